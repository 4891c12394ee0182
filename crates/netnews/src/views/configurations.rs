//! Which runs are repeats of one thing, and what to call each thing beside the others.
//!
//! ```text
//! runs -> traits of each run -> same traits: one configuration -> its name: the traits that not all share
//! ```
//!
//! Always holds: configurations stand in the order of their sides where the runs are one series, and otherwise of their first runs;
//! no two have the same name.
//! Not here: which traits a run has (see `traits`).

use measure::RunRecord;

/// Something by which runs may differ.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Trait {
    /// What it is about, such as `target`.
    pub key: String,
    /// What is said of it, such as `history on /mnt/b`.
    pub text: String,
    pub weight: Weight,
}

/// When a trait is part of a configuration's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weight {
    /// The user's own label: if it distinguishes all configurations, it is the whole name.
    Own,
    /// In the name unless all configurations share it.
    Plain,
    /// A default: in the name only if the name would otherwise be empty or taken.
    Usual,
    /// In the name, last, only if nothing else distinguishes two configurations.
    Last,
}

/// Repeats of one thing.
#[derive(Clone, Debug)]
pub(crate) struct Configuration<'a> {
    pub name: String,
    pub runs: Vec<&'a RunRecord>,
    pub traits: Vec<Trait>,
}

/// Groups `runs` by their traits.
pub(crate) fn group<'a>(
    runs: impl Iterator<Item = &'a RunRecord>,
    traits: impl Fn(&RunRecord) -> Vec<Trait>,
) -> Vec<Configuration<'a>> {
    let mut runs: Vec<&RunRecord> = runs.collect();
    let places: Option<Vec<_>> = runs.iter().map(|run| run.series.as_ref()).collect();
    if places.is_some_and(|places| places.iter().all(|place| place.of == places[0].of)) {
        // Sides take turns: the first run may be of any, and colours are by side.
        runs.sort_by_key(|run| run.series.as_ref().map(|place| (place.side.len(), place.side.clone())));
    }
    let mut found: Vec<Configuration> = Vec::new();
    for run in runs {
        let traits = traits(run);
        match found.iter_mut().find(|known| known.traits == traits) {
            Some(known) => known.runs.push(run),
            None => found.push(Configuration { name: String::new(), runs: vec![run], traits }),
        }
    }
    for (at, name) in names(&found).into_iter().enumerate() {
        found[at].name = name;
    }
    found
}

fn names(all: &[Configuration<'_>]) -> Vec<String> {
    if let [alone] = all {
        return vec![alone.runs.first().map_or_else(String::new, |run| run.label.clone())];
    }
    let said = |weights: &[Weight]| -> Vec<String> {
        all.iter().map(|one| said(one, all, weights)).collect::<Vec<_>>()
    };
    use Weight::{Last, Own, Plain, Usual};
    let tries = [&[Own][..], &[Own, Plain], &[Own, Plain, Usual], &[Own, Plain, Usual, Last]];
    let mut names = Vec::new();
    for weights in tries {
        names = said(weights);
        if unique(&names) && names.iter().all(|name| !name.is_empty()) {
            return names;
        }
    }
    for at in 0..names.len() {
        let twins = names[..at].iter().filter(|earlier| **earlier == names[at]).count();
        if twins > 0 {
            names[at] = format!("{} ({})", names[at], twins + 1);
        }
    }
    names
}

fn said(one: &Configuration<'_>, all: &[Configuration<'_>], weights: &[Weight]) -> String {
    let differs = |of: &Trait| !all.iter().all(|other| other.traits.contains(of));
    let mut texts: Vec<&str> = Vec::new();
    for of in one.traits.iter().filter(|of| weights.contains(&of.weight) && differs(of)) {
        if !of.text.is_empty() && !texts.contains(&of.text.as_str()) {
            texts.push(&of.text);
        }
    }
    texts.join(", ")
}

fn unique(names: &[String]) -> bool {
    names.iter().enumerate().all(|(at, name)| !names[..at].contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(traits: &[(&str, &str, Weight)]) -> Configuration<'static> {
        let traits = traits.iter().map(|(key, text, weight)| Trait {
            key: (*key).to_owned(),
            text: (*text).to_owned(),
            weight: *weight,
        });
        Configuration { name: String::new(), runs: vec![], traits: traits.collect() }
    }

    #[test]
    fn a_name_says_what_differs_and_nothing_that_all_share() {
        use Weight::{Plain, Usual};
        let all = [
            of(&[("target", "/a", Plain), ("rm", "dumbrm", Plain), ("readers", "no readers", Usual)]),
            of(&[("target", "/a", Plain), ("rm", "fastrm", Plain), ("readers", "no readers", Usual)]),
            of(&[("target", "/a", Plain), ("rm", "fastrm", Plain), ("readers", "8 readers", Plain)]),
        ];
        assert_eq!(names(&all), ["dumbrm", "fastrm", "fastrm, 8 readers"]);
    }

    #[test]
    fn what_nobody_asked_for_is_said_where_the_name_would_be_empty() {
        use Weight::{Plain, Usual};
        let all = [
            of(&[("history", "history with the articles", Usual)]),
            of(&[("history", "history on /b", Plain)]),
        ];
        assert_eq!(names(&all), ["history with the articles", "history on /b"]);
    }

    #[test]
    fn labels_of_the_user_are_enough_where_they_tell_all_apart_and_twins_are_numbered() {
        use Weight::{Own, Plain};
        let all = [
            of(&[("label", "old", Own), ("target", "/a", Plain)]),
            of(&[("label", "new", Own), ("target", "/b", Plain)]),
        ];
        assert_eq!(names(&all), ["old", "new"]);
        let twins = [of(&[("key", "x", Plain)]), of(&[("other", "x", Plain)])];
        assert_eq!(names(&twins), ["x", "x (2)"]);
    }
}
