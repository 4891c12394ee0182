//! What held a run up, as its benchmark says it: its remarks, the load it kept, where it found the caches.
//!
//! Always holds: nothing is guessed: where a benchmark does not name its limit, neither does this.

use measure::{LoopKind, RunRecord};
use serde::Serialize;

/// The limit in a word, and in a sentence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Limit {
    /// `device`, `server`, `memory`, `CPU`, `generator`, `storage`, `unclear` or `not named`.
    pub word: &'static str,
    /// With the numbers.
    pub text: String,
}

/// Remarks that name a limit, by the beginning of their codes.
const NAMED: [(&str, &str); 7] = [
    ("device-bound", "device"),
    ("server-bound", "server"),
    ("cache-bound", "memory"),
    ("cpu-bound", "CPU"),
    ("generator", "generator"),
    ("transport-full", "generator"),
    ("bound-unclear", "unclear"),
];

/// The limit of a run.
pub fn of(record: &RunRecord) -> Limit {
    let reasons = &record.verdict.reasons;
    let named = NAMED.iter().find_map(|(code, word)| {
        let reason = reasons.iter().find(|reason| reason.code.starts_with(code))?;
        Some(Limit { word, text: reason.text.clone() })
    });
    named.or_else(|| of_closed_loop(record)).or_else(|| of_warm(record)).unwrap_or_else(|| Limit {
        word: "not named",
        text: format!("{} does not say what held it up", record.benchmark),
    })
}

/// A closed loop waits for the storage with all it has.
fn of_closed_loop(record: &RunRecord) -> Option<Limit> {
    let point = record.points.last().filter(|point| point.loop_kind == LoopKind::Closed)?;
    let outstanding = point.outstanding.filter(|outstanding| *outstanding > 1)?;
    Some(Limit {
        word: "storage",
        text: format!(
            "{outstanding} requests were under way at every moment, and the generator computed {:.0}% of the time: the storage set the rate",
            100.0 * point.generator_busy
        ),
    })
}

/// Directories that were looked at before they were measured.
fn of_warm(record: &RunRecord) -> Option<Limit> {
    let is_warm = record
        .config
        .get("cache")
        .and_then(|cache| cache.as_str())
        .is_some_and(|cache| cache.contains("warm"));
    let is_local = !record.target.starts_with("nfs:");
    (is_warm && is_local).then(|| Limit {
        word: "memory",
        text: "names and directories were in memory when they were measured".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(more: &str) -> RunRecord {
        let environment = serde_json::to_string(&measure::Environment::default()).unwrap();
        RunRecord::from_json(&format!(
            r#"{{"schema": 1, "id": "a", "benchmark": "dirscale", "label": "", "target": "/mnt/a", "seed": 1, "complete": true,
                "started": "2026-11-21T18:00:00Z", "ended": "2026-11-21T18:00:00Z", "command": [], "metrics": {{}},
                "environment": {environment}, {more}}}"#
        ))
        .unwrap()
    }

    #[test]
    fn a_remark_of_the_benchmark_names_the_limit_and_silence_is_said() {
        let bound = record(
            r#""config": null, "verdict": {"valid": true, "reasons": [{"code": "device-bound", "text": "vda was busy", "fatal": false}]}"#,
        );
        assert_eq!(of(&bound), Limit { word: "device", text: "vda was busy".to_owned() });
        let warm = record(r#""config": {"cache": "warm"}, "verdict": {"valid": true, "reasons": []}"#);
        assert_eq!(of(&warm).word, "memory");
        let silent = record(r#""config": null, "verdict": {"valid": true, "reasons": []}"#);
        assert_eq!(of(&silent).word, "not named");
    }
}
