//! What a run answers, in the words of its benchmark: the first sentence of a page, of its plots and of the terminal.
//!
//! ```text
//! RunRecord -> its benchmark's `answer` -> Answer -> BenchmarkRegistry::answer: the verdict's word on it -> page, plots, terminal
//! ```
//!
//! Always holds: the sentence of an INVALID run gives the reason in place of a figure.

use crate::numbers::figure_text;
use crate::{RunRecord, Verdict};

/// What a record answers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answer {
    /// One sentence without its full stop, such as `Holds 129,000/s of mail`, from VALID levels only; empty when there is
    /// nothing to say.
    pub sentence: String,
    /// Rates that plots of load levels name.
    pub marks: Vec<RateMark>,
    /// Whether the run searched for a rate: plots of its levels have logarithmic axes at first.
    pub is_search: bool,
}

/// A rate that a plot of load levels names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateMark {
    /// Offered, requests a second.
    pub per_sec: f64,
    /// What it is, such as `knee`.
    pub name: &'static str,
}

impl Answer {
    /// A sentence alone.
    pub fn of(sentence: impl Into<String>) -> Self {
        Self { sentence: sentence.into(), ..Self::default() }
    }

    /// The same under the record's verdict.
    pub(crate) fn judged(mut self, record: &RunRecord) -> Self {
        if self.sentence.is_empty() {
            self.sentence = headline(record).unwrap_or_default();
        }
        if !record.verdict.valid {
            self.sentence = why_not(&record.verdict);
            self.marks.clear();
        } else if !record.complete && !self.sentence.is_empty() {
            self.sentence.push_str("; the run was cut short");
        }
        self
    }
}

/// The figure that answers, by its title.
fn headline(record: &RunRecord) -> Option<String> {
    let (name, value) = record.headlines().find_map(|name| Some((name, *record.metrics.get(name)?)))?;
    let metric = record.metric(name);
    Some(format!("{}: {}", metric.title, figure_text(&metric.unit, value)))
}

fn why_not(verdict: &Verdict) -> String {
    let fatal = verdict.reasons.iter().filter(|reason| reason.fatal);
    let reasons: Vec<&str> = fatal.map(|reason| reason.text.as_str()).collect();
    let Some((first, rest)) = reasons.split_first() else {
        return "INVALID: no figure of this run counts".to_owned();
    };
    let more = match rest.len() {
        0 => String::new(),
        1 => " (1 more reason below)".to_owned(),
        more => format!(" ({more} more reasons below)"),
    };
    format!("INVALID, so no figure of this run counts: {}{more}", begin(first))
}

/// Letters that the begin of a reason has at least.
const BEGIN_CHARS_MIN: usize = 20;

/// A reason up to its figures and its advice, which are listed with the verdict.
fn begin(reason: &str) -> &str {
    let ends = [": ", "; ", " ("].into_iter().flat_map(|end| reason.match_indices(end));
    let end = ends.map(|(at, _)| at).filter(|at| *at >= BEGIN_CHARS_MIN).min();
    &reason[..end.unwrap_or(reason.len())]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BenchmarkEntry, BenchmarkRegistry, MetricDeclaration};

    const KNOWN: [MetricDeclaration; 1] =
        [MetricDeclaration::rate("plates_per_sec", "Plates stacked").answers()];

    fn record() -> RunRecord {
        let json = serde_json::json!({
            "schema": 1, "id": "x", "benchmark": "plates", "label": "", "target": "", "started": "2026-11-21T18:00:00Z",
            "ended": "2026-11-21T18:00:00Z", "command": [], "config": null, "environment": crate::Environment::default(),
            "seed": 1, "complete": true, "metrics": {"plates_per_sec": 12_000.0}, "verdict": {"valid": true, "reasons": []}
        });
        RunRecord::from_json(&json.to_string()).unwrap().declared_by(plain())
    }

    const fn plain() -> BenchmarkRegistry {
        BenchmarkRegistry::new(|_| Some(BenchmarkEntry::of(&KNOWN)))
    }

    const fn worded() -> BenchmarkRegistry {
        BenchmarkRegistry::new(|_| Some(BenchmarkEntry { answer: stacks, ..BenchmarkEntry::of(&KNOWN) }))
    }

    fn stacks(record: &RunRecord) -> Answer {
        let marks = vec![RateMark { per_sec: 7.0, name: "knee" }];
        Answer { marks, ..Answer::of(format!("Stacks {}/s", record.metrics["plates_per_sec"])) }
    }

    #[test]
    fn a_run_answers_in_its_benchmarks_words_else_by_its_headline_and_one_without_figures_not_at_all() {
        assert_eq!(worded().answer(&record()).sentence, "Stacks 12000/s");
        assert_eq!(plain().answer(&record()).sentence, "Plates stacked: 12,000/s");
        let mut bare = record();
        bare.metrics.clear();
        assert_eq!(plain().answer(&bare), Answer::default());
        let mut cut = record();
        cut.complete = false;
        assert_eq!(worded().answer(&cut).sentence, "Stacks 12000/s; the run was cut short");
    }

    #[test]
    fn an_invalid_run_answers_why_it_is_and_gives_no_figure() {
        let mut spoilt = record();
        spoilt.verdict.remark("x", "a remark");
        spoilt.verdict.invalidate("a", "at 500/s: the machine was disturbed: threads waited; stop them");
        let answer = worded().answer(&spoilt);
        assert_eq!(
            answer.sentence,
            "INVALID, so no figure of this run counts: at 500/s: the machine was disturbed"
        );
        assert_eq!(answer.marks, []);
        spoilt.verdict.invalidate("b", "the generator was late");
        assert!(worded().answer(&spoilt).sentence.ends_with("was disturbed (1 more reason below)"));
        assert!(plain().answer(&spoilt).sentence.starts_with("INVALID"));
    }
}
