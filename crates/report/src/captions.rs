//! What the runs of a plot answer, as lines of text above it: a plot in a paper or a mail is read without its page.
//!
//! Always holds: a run answers with the sentence that the page begins with; a run without one has no line.

use measure::{BenchmarkRegistry, RunRecord};

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
    use super::*;

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
