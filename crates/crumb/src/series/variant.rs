//! The sides of a comparison: each a target, and what differs from what the command line says otherwise.
//!
//! ```text
//! --vs /mnt/b                       the same on another target
//! --vs rm=dumbrm                    another option on the same target
//! --vs nfs://filer/vol,link=symlink  both
//! --vs mount=noatime                the target's file system mounted otherwise for its turns   (see `remount`)
//! ```
//!
//! A comma begins another setting only where a key and `=` follow it: elsewhere it belongs to the value it stands in.
//! What has no `=`, or begins as a path or URL does, is a target.
//!
//! Always holds: the first side is what the command line says by itself; a side knows its label before anything runs,
//! and says in it what differs and nothing else.
//! Not here: what a key does (the verbs), running (see `series`).

use std::str::FromStr as _;

use anyhow::{Context as _, anyhow};
use files::Target;

use super::remount::MountOptions;
use crate::exit::BadUsage;

/// An option of a verb that sides may differ in.
#[derive(Clone, Debug)]
pub struct Key {
    /// As its flag is called.
    pub name: &'static str,
    /// Its value without `--vs`.
    pub base: String,
    /// The metric that answers when nothing else differs; none: the benchmark's own.
    pub metric: Option<&'static str>,
}

/// A key and what it is on one side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// As its flag is called.
    pub key: &'static str,
    /// As the user wrote it.
    pub value: String,
}

/// One side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    /// Where.
    pub target: Target,
    /// What differs.
    pub settings: Vec<Setting>,
    /// How the target's file system is mounted meanwhile.
    pub mount: Option<MountOptions>,
    /// What to call it; none: the verb's own words.
    pub label: Option<String>,
    /// Metrics that answer for it against the first side; none: the benchmark's own.
    pub metrics: Vec<String>,
}

/// All sides, the first one what the command line says by itself.
pub struct Sides {
    /// One at least.
    pub variants: Vec<Variant>,
    /// From which the order of the turns is drawn.
    pub seed: u64,
}

const MOUNT: &str = "mount";

impl Sides {
    /// Reads what `--vs` was given; `keys` are what the verb lets it change.
    ///
    /// # Errors
    /// On a key that is not there or twice, a target that is none, mount options that cannot be such.
    pub fn parse(first: &Target, vs: &[String], keys: &[Key]) -> anyhow::Result<Self> {
        let mut variants = vec![Variant::at(first)];
        for text in vs {
            let variant = parse(text, first, keys).map_err(|error| error.context(BadUsage));
            let mut variant = variant.with_context(|| format!("--vs {text}"))?;
            variant.metrics = variant.metric(first, keys).map(str::to_owned).into_iter().collect();
            variants.push(variant);
        }
        let mut changed: Vec<&'static str> = variants.iter().flat_map(Variant::changes).collect();
        changed.sort_unstable();
        changed.dedup();
        if !changed.is_empty() {
            let elsewhere = variants.iter().any(|variant| variant.target != *first);
            variants[0].label = Some(match (&changed[..], elsewhere) {
                ([MOUNT], false) => "mounted as it is".to_owned(),
                ([one], false) => {
                    keys.iter().find(|key| key.name == *one).map_or("as given".to_owned(), |key| {
                        Setting { key: key.name, value: key.base.clone() }.to_string()
                    })
                }
                _ => "as given".to_owned(),
            });
            variants[1..].iter_mut().for_each(|variant| variant.label = Some(variant.words(first)));
        }
        Ok(Self { variants, seed: 0 })
    }

    /// Sides that differ in their target alone.
    pub fn on(targets: &[Target]) -> Self {
        Self { variants: targets.iter().map(Variant::at).collect(), seed: 0 }
    }

    /// The same, with turns in the order that `seed` draws.
    #[must_use]
    pub fn in_order_of(self, seed: u64) -> Self {
        Self { seed, ..self }
    }
}

impl Variant {
    fn at(target: &Target) -> Self {
        Self { target: target.clone(), settings: Vec::new(), mount: None, label: None, metrics: Vec::new() }
    }

    /// The metric of the one setting that differs. Where more differs, that setting's metric does not answer for the rest.
    fn metric(&self, first: &Target, keys: &[Key]) -> Option<&'static str> {
        match &self.settings[..] {
            [one] if self.target == *first && self.mount.is_none() => {
                keys.iter().find(|key| key.name == one.key)?.metric
            }
            _ => None,
        }
    }

    fn changes(&self) -> impl Iterator<Item = &'static str> {
        self.settings.iter().map(|setting| setting.key).chain(self.mount.is_some().then_some(MOUNT))
    }

    /// `nfs://filer/vol, rm=dumbrm`.
    fn words(&self, first: &Target) -> String {
        let target = (self.target != *first).then(|| self.target.to_string());
        let settings = self.settings.iter().map(ToString::to_string);
        let mount = self.mount.iter().map(|options| format!("{MOUNT}={options}"));
        target.into_iter().chain(settings).chain(mount).collect::<Vec<_>>().join(", ")
    }
}

impl std::fmt::Display for Setting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}={}", self.key, self.value)
    }
}

fn parse(text: &str, first: &Target, keys: &[Key]) -> anyhow::Result<Variant> {
    let known: Vec<&'static str> = keys.iter().map(|key| key.name).chain([MOUNT]).collect();
    let mut variant = Variant::at(first);
    for (at, piece) in pieces(text, &known).into_iter().enumerate() {
        if at == 0 && is_target(piece) {
            variant.target = Target::from_str(piece)?;
            continue;
        }
        let (name, value) = piece.split_once('=').expect("what has no = is a target");
        let Some(key) = known.iter().find(|key| **key == name).copied() else {
            let known = known.join(", ");
            return Err(anyhow!("no setting is called {name}; there are {known}; a directory is ./{piece}"));
        };
        if variant.changes().any(|before| before == key) {
            return Err(anyhow!("{key} is set twice"));
        }
        match key {
            MOUNT => {
                variant.mount =
                    Some(value.parse().map_err(|why: measure::ValueError| anyhow!("{key}={value}: {why}"))?)
            }
            key => variant.settings.push(Setting { key, value: value.to_owned() }),
        }
    }
    if let (Some(_), target @ (Target::Nfs(_) | Target::Pack(_) | Target::Null)) =
        (&variant.mount, &variant.target)
    {
        return Err(anyhow!("{target} is reached without a mount; mount= is for directories"));
    }
    Ok(variant)
}

/// Cut at each comma that a known key and `=` follow.
fn pieces<'t>(text: &'t str, known: &[&str]) -> Vec<&'t str> {
    let begins = |rest: &str| rest.split_once('=').is_some_and(|(name, _)| known.contains(&name));
    let mut found = Vec::new();
    let mut from = 0;
    for (comma, _) in text.match_indices(',') {
        if begins(&text[comma + 1..]) {
            found.push(&text[from..comma]);
            from = comma + 1;
        }
    }
    found.push(&text[from..]);
    found
}

fn is_target(piece: &str) -> bool {
    let name = piece.split_once('=').map(|(name, _)| name);
    name.is_none_or(|name| name.starts_with(['.', '/']) || name.contains(['/', ':']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> [Key; 2] {
        let key = |name, base: &str, metric| Key { name, base: base.to_owned(), metric };
        [key("rm", "fastrm", Some("expire_files_per_sec")), key("link", "hard", None)]
    }

    fn sides(vs: &[&str]) -> anyhow::Result<Sides> {
        let vs: Vec<String> = vs.iter().map(ToString::to_string).collect();
        Sides::parse(&Target::Directory("/mnt/a".into()), &vs, &keys())
    }

    fn labels(vs: &[&str]) -> Vec<String> {
        let named = |side: Variant| side.label.unwrap_or_else(|| "-".to_owned());
        sides(vs).unwrap().variants.into_iter().map(named).collect()
    }

    #[test]
    fn sides_are_called_by_what_differs_and_nothing_else() {
        assert_eq!(labels(&["/mnt/b"]), ["-", "-"], "targets have names of their own");
        assert_eq!(labels(&["rm=dumbrm"]), ["rm=fastrm", "rm=dumbrm"]);
        assert_eq!(labels(&["mount=noatime"]), ["mounted as it is", "mount=noatime"]);
        assert_eq!(
            labels(&["rm=dumbrm", "link=symlink", "nfs://filer/vol,rm=dumbrm", "/mnt/b"]),
            ["as given", "rm=dumbrm", "link=symlink", "nfs://filer/vol, rm=dumbrm", "/mnt/b"]
        );
    }

    #[test]
    fn a_comma_belongs_to_the_value_unless_a_key_follows() {
        let sides = sides(&["./a,b=c,mount=noatime,commit=30,rm=dumbrm"]).unwrap();
        let side = &sides.variants[1];
        assert_eq!(side.target, Target::Directory("./a,b=c".into()));
        assert_eq!(side.mount.as_ref().unwrap().to_string(), "noatime,commit=30");
        assert_eq!(side.settings, [Setting { key: "rm", value: "dumbrm".to_owned() }]);
    }

    #[test]
    fn a_setting_s_metric_answers_for_the_side_that_differs_in_it_alone() {
        let vs = ["rm=dumbrm", "link=symlink", "rm=dumbrm,link=symlink", "/mnt/b,rm=dumbrm"];
        let metrics: Vec<_> = sides(&vs).unwrap().variants.into_iter().map(|side| side.metrics).collect();
        assert_eq!(metrics[1], ["expire_files_per_sec"]);
        assert!([0, 2, 3, 4].iter().all(|side| metrics[*side].is_empty()), "{metrics:?}");
    }

    #[test]
    fn what_cannot_be_meant_is_refused_with_what_can() {
        let error_of = |vs: &str| format!("{:#}", sides(&[vs]).err().unwrap_or_else(|| panic!("{vs}")));
        assert!(error_of("rmm=dumbrm").contains("there are rm, link, mount"), "{}", error_of("rmm=dumbrm"));
        assert!(error_of("rm=dumbrm,rm=fastrm").contains("twice"));
        assert!(error_of("mount=").contains("noatime"));
        assert!(error_of("mount=noatime,remount").contains("remount"));
        assert!(error_of("nfs://filer/vol,mount=noatime").contains("without a mount"));
        assert!(error_of("ftp://filer").contains("unknown target kind"));
    }
}
