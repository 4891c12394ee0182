//! What a picture shows, as text beside it: a plot in a paper or a mail is read without its page.
//!
//! 1. A plot of runs has the sentences that its page begins with, as lines above it.
//! 2. A figure by pass and a comparison have a sentence of their own, made from the values drawn.
//! 3. Every SVG has its title and that text as `title` and `desc`, for those who do not see it.
//!
//! Always holds: a run without an answer has no line; a sentence names values that are drawn, in the units of the axis.

use measure::view::{ByPass, Over, PassLine};
use measure::{BenchmarkRegistry, RunRecord};

use crate::compare::{Comparison, Verdict};
use crate::passes::Unit;

/// Letters of a line across a plot of full width.
const LINE_CHARS: usize = 112;
/// Letters of a label before its sentence.
const LABEL_CHARS: usize = 32;
/// Lines of one text.
const LINES_MAX: usize = 2;
/// Runs beyond which a plot is no place for sentences.
const RUNS_MAX: usize = 3;

/// The lines of these runs, each with its label where there are several.
pub(crate) fn of(runs: &[&RunRecord], registry: BenchmarkRegistry) -> Vec<String> {
    if runs.len() > RUNS_MAX {
        return vec![];
    }
    let lines = |run: &&RunRecord| {
        let sentence = registry.answer(run).sentence;
        let text = match (sentence.is_empty(), runs.len()) {
            (true, _) => return vec![],
            (false, 1) => format!("{sentence}."),
            _ => format!("{}: {sentence}.", crate::svg::shortened(&run.label, LABEL_CHARS)),
        };
        wrapped(&text)
    };
    runs.iter().flat_map(lines).collect()
}

/// Lines of a figure that its sentence names; of more only the ends.
const NAMED_MAX: usize = 4;

/// What a figure by pass shows.
pub(crate) fn of_passes(frame: &ByPass, unit: Unit) -> String {
    let sentence = if frame.over == Over::Runs { of_bars(frame, unit) } else { over_passes(frame, unit) };
    let repeats = frame.lines.iter().flat_map(|line| &line.points).map(|point| point.runs).max();
    match repeats {
        Some(runs) if runs > 1 => format!("{sentence} Values are medians of up to {runs} runs."),
        _ => sentence,
    }
}

fn of_bars(frame: &ByPass, unit: Unit) -> String {
    let mut bars: Vec<(&str, f64)> =
        frame.lines.iter().filter_map(|line| Some((line.name.as_str(), line.points.first()?.y))).collect();
    if bars.len() <= NAMED_MAX {
        let of = |(name, y): &(&str, f64)| format!("{} for {name}", unit.text(*y));
        return format!(
            "{}: {}.",
            upper_first(frame.what),
            bars.iter().map(of).collect::<Vec<_>>().join(", ")
        );
    }
    bars.sort_by(|a, b| a.1.total_cmp(&b.1));
    let ((low, least), (high, most)) = (bars[0], bars[bars.len() - 1]);
    format!(
        "{} of {} configurations: from {} for {low} to {} for {high}.",
        upper_first(frame.what),
        bars.len(),
        unit.text(least),
        unit.text(most)
    )
}

fn over_passes(frame: &ByPass, unit: Unit) -> String {
    let of = |line: &PassLine| {
        let (first, last) = (line.points.first()?, line.points.last()?);
        let name = &line.name;
        if first.pass == last.pass {
            return Some(format!("{} in pass {} for {name}", unit.text(first.y), first.pass));
        }
        Some(format!(
            "from {} in pass {} to {} in pass {} for {name}",
            unit.text(first.y),
            first.pass,
            unit.text(last.y),
            last.pass
        ))
    };
    let all: Vec<String> = frame.lines.iter().filter_map(of).collect();
    let shown = all.iter().take(NAMED_MAX).map(String::as_str).collect::<Vec<_>>().join("; ");
    let more = all.len().saturating_sub(NAMED_MAX);
    let rest = match more {
        0 => String::new(),
        1 => "; one more configuration is drawn".to_owned(),
        more => format!("; {more} more configurations are drawn"),
    };
    format!("{}: {shown}{rest}.", upper_first(frame.what))
}

/// What a comparison's picture shows: each side's answer, and of how many figures a difference is shown.
pub(crate) fn of_comparison(comparison: &Comparison, drawn: usize) -> String {
    let of_side = |side: usize| {
        let shown = comparison
            .figures
            .iter()
            .filter_map(|figure| figure.against.get(side - 1))
            .filter(|of| matches!(of.verdict, Verdict::Faster | Verdict::Slower | Verdict::Differs));
        let (shown, name) = (shown.count(), &comparison.sides[side].name);
        let answer = upper_first(&comparison.answer(side));
        format!(
            "{answer}. {shown} of {drawn} figures show a difference of {name} to {}.",
            comparison.sides[0].name
        )
    };
    (1..comparison.sides.len()).map(of_side).collect::<Vec<_>>().join(" ")
}

/// An SVG with its title and description, for those who do not see it and for programs that look for texts.
pub(crate) fn described(svg: String, title: &str, about: &str) -> String {
    let Some(end) = svg.find('>') else { return svg };
    let element = |name: &str, text: &str| match text.is_empty() {
        true => String::new(),
        false => format!("<{name}>{}</{name}>\n", escaped(text)),
    };
    let (open, rest) = svg.split_at(end);
    format!("{open} role=\"img\">\n{}{}{}", element("title", title), element("desc", about), &rest[1..])
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn upper_first(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// In lines; what does not fit the last is cut off.
pub(crate) fn wrapped(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = vec![String::new()];
    for word in text.split_whitespace() {
        let is_last = lines.len() == LINES_MAX;
        let line = lines.last_mut().expect("there is a first line");
        let is_full = !line.is_empty() && line.chars().count() + 1 + word.chars().count() > LINE_CHARS;
        if is_full && !is_last {
            lines.push(word.to_owned());
        } else {
            line.push_str(if line.is_empty() { "" } else { " " });
            line.push_str(word);
        }
    }
    lines.into_iter().map(|line| crate::svg::shortened(&line, LINE_CHARS)).collect()
}

#[cfg(test)]
mod tests {
    use measure::view::PassPoint;

    use super::*;

    #[test]
    fn a_figure_by_pass_says_what_each_line_does_and_of_many_the_first() {
        let point = |pass, y| PassPoint { pass, y, low: y, high: y, runs: 2 };
        let line = |name: &str, points| PassLine { configuration: 0, name: name.to_owned(), points };
        let frame = |over, lines| ByPass {
            id: "x",
            like: "",
            title: "",
            read: String::new(),
            over,
            what: "things made",
            unit: "/s",
            findings: vec![],
            lines,
        };
        let unit = Unit { name: "/s", divisor: 1.0 };
        let two = vec![line("a", vec![point(1, 200.0), point(9, 150.0)]), line("b", vec![point(1, 90.0)])];
        assert_eq!(
            of_passes(&frame(Over::Passes, two), unit),
            "Things made: from 200/s in pass 1 to 150/s in pass 9 for a; 90.0/s in pass 1 for b. Values are medians of up to 2 runs."
        );
        let many: Vec<PassLine> =
            (1..=5).map(|at| line(&format!("c{at}"), vec![point(0, f64::from(at))])).collect();
        let of_bars = of_passes(&frame(Over::Runs, many.clone()), unit);
        assert!(
            of_bars.starts_with("Things made of 5 configurations: from 1.00/s for c1 to 5.00/s for c5."),
            "{of_bars}"
        );
        assert!(of_passes(&frame(Over::Passes, many), unit).contains("one more configuration is drawn"));
    }

    #[test]
    fn a_picture_has_a_title_and_a_description_and_what_they_hold_is_text() {
        let svg = "<svg width=\"9\" xmlns=\"x\">\n<rect/>\n</svg>".to_owned();
        let with = described(svg, "a & b", "</desc><script>");
        assert_eq!(
            with,
            "<svg width=\"9\" xmlns=\"x\" role=\"img\">\n<title>a &amp; b</title>\n\
             <desc>&lt;/desc&gt;&lt;script&gt;</desc>\n\n<rect/>\n</svg>"
        );
    }

    #[test]
    fn a_long_sentence_takes_two_lines_and_ends_in_an_ellipsis() {
        assert_eq!(wrapped("Holds 4,000/s of mail."), ["Holds 4,000/s of mail."]);
        let lines = wrapped(&"word ".repeat(80));
        assert_eq!(lines.len(), LINES_MAX);
        assert!(lines.iter().all(|line| line.chars().count() <= LINE_CHARS), "{lines:?}");
        assert!(lines[1].ends_with('…'), "{lines:?}");
        assert_eq!(wrapped(&"x".repeat(300)).len(), 1, "one word is one line");
    }
}
