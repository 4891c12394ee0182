//! What a run ends with: the sentence that it answers, its figures, and whether to believe it.

use measure::{LoadPoint, RunRecord, Verdict};
use report::number_text_beside;

use super::layout::{named, named_list, wrapped};
use crate::declarations::REGISTRY;

/// What the run answers, as a sentence; nothing for an INVALID run, whose verdict says why.
pub fn answer(record: &RunRecord) -> String {
    let sentence = REGISTRY.answer(record).sentence;
    match record.verdict.valid && !sentence.is_empty() {
        true => wrapped("", &format!("{sentence}.")),
        false => String::new(),
    }
}

/// What the run answers, its figures, and the verdict with its reasons: the verdict first where it is INVALID.
pub fn summary(record: &RunRecord) -> String {
    let is_valid = record.verdict.valid;
    let mut text = if is_valid { answer(record) } else { verdict(&record.verdict) };
    let mut lines = figures(record);
    if is_valid {
        lines.push(("Verdict".to_owned(), "VALID".to_owned()));
    }
    text.push_str(&named_list(&lines));
    if is_valid {
        text.push_str(&reasons(&record.verdict));
    }
    if !record.complete {
        text.push_str(&named("Incomplete", "cut short; this is what was measured so far"));
    }
    text
}

/// The run's figures, each with its title.
fn figures(record: &RunRecord) -> Vec<(String, String)> {
    let metric = |name: &str| record.metrics.get(name).copied();
    // If a saturation point was found, it equals the highest rate held: print it once.
    let held_again = metric("saturation_per_sec").is_some();
    // Times that stand below one another have one unit.
    let times: Vec<f64> = record
        .metrics_in_order()
        .filter(|name| record.metric(name).unit == "us")
        .filter_map(metric)
        .collect();
    let mut lines = Vec::new();
    for name in record.metrics_in_order().filter(|name| !(held_again && *name == "held_per_sec")) {
        let Some(value) = metric(name) else { continue };
        let declared = record.metric(name);
        let (number, unit) = number_text_beside(&declared.unit, &times, value);
        let hint = if name == "held_per_sec" { held_hint(record, value) } else { "" };
        // As in "4,000/s" and "0.412 ms".
        let gap = if unit.is_empty() || unit.starts_with('/') { "" } else { " " };
        lines.push((declared.title.clone(), format!("{number}{gap}{unit}{hint}")));
    }
    lines
}

/// What to think of the highest rate held where no saturation point was found.
fn held_hint(record: &RunRecord, held: f64) -> &'static str {
    let is_good = |point: &LoadPoint| point.verdict.valid && !point.saturated;
    if record.points.iter().all(is_good) {
        " (nothing saturated: it may hold more)"
    } else if record.points.iter().any(|point| point.offered_per_sec > Some(held)) {
        " (no higher level is VALID: it may hold more)"
    } else {
        ""
    }
}

/// Whether to believe a run, and why not.
pub fn verdict(verdict: &Verdict) -> String {
    named("Verdict", if verdict.valid { "VALID" } else { "INVALID because" }) + &reasons(verdict)
}

/// A verdict's reasons and remarks, a line each.
fn reasons(verdict: &Verdict) -> String {
    let mut text = String::new();
    for (fatal, bullet) in [(true, "  - "), (false, "  note: ")] {
        for reason in verdict.reasons.iter().filter(|reason| reason.fatal == fatal) {
            text.push_str(&wrapped(bullet, &reason.text));
        }
    }
    text
}
