//! What a load level says of the storage, for every table and plot that marks levels.

use super::LoadPoint;

/// Code of a level in which too little of what was due was answered in time. The storage's own fault makes it saturated.
pub const RATE_OFF: &str = "rate-off";
/// Code of the remark on a level that the storage held, but whose latencies missed the bound of a search.
pub const BOUND_MISSED: &str = "bound-missed";

/// What a load level says of the storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LevelState {
    /// The storage did what was requested, and the figures may be trusted.
    Valid,
    /// The figures may be trusted, but latencies are over the bound of the search: the level failed it.
    OverBound,
    /// The storage did not keep up: a finding about the storage.
    Saturated,
    /// Something else spoilt the level: its figures say nothing about the storage.
    Invalid,
}

impl LoadPoint {
    /// What the level says. A level that the storage could not keep up with is INVALID only for another reason.
    pub fn state(&self) -> LevelState {
        let expected = |code: &str| self.saturated && code == RATE_OFF;
        let mut fatal = self.verdict.reasons.iter().filter(|reason| reason.fatal).peekable();
        let has_no_reason = fatal.peek().is_none();
        let is_spoilt = fatal.any(|reason| !expected(&reason.code));
        if is_spoilt || (!self.verdict.valid && has_no_reason) {
            LevelState::Invalid
        } else if self.saturated {
            LevelState::Saturated
        } else if self.verdict.has(BOUND_MISSED) {
            LevelState::OverBound
        } else {
            LevelState::Valid
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::{FileSetRecord, LatencyHistogram, LatencySummary};

    /// A level of an open loop, of which the storage held all.
    pub(crate) fn level(per_sec: f64, mean_us: f64, p99_us: f64) -> LoadPoint {
        let latency = LatencySummary { count: 1000, mean: mean_us, p99: p99_us, ..LatencySummary::default() };
        serde_json::from_value(serde_json::json!({
            "loop_kind": "open", "offered_per_sec": per_sec, "outstanding": null, "sent_per_sec": per_sec,
            "achieved_per_sec": per_sec, "warm_s": 1.0, "measured_s": 1.0, "unsent": 0, "reconnects": 0, "bad_replies": 0,
            "generator_busy": 0.1, "lateness_us": latency, "latency_us": latency,
            "histogram": LatencyHistogram::new().encode(), "ops": {}, "file_set": FileSetRecord::default(),
            "saturated": false, "verdict": {"valid": true, "reasons": []}
        }))
        .unwrap()
    }

    #[test]
    fn a_level_over_the_bound_of_a_search_is_neither_plainly_valid_nor_saturated() {
        let mut point = level(500.0, 200.0, 900.0);
        point.verdict.remark(BOUND_MISSED, "over the bound p99 < 0.5ms: p99 is 0.900 ms");
        assert_eq!(point.state(), LevelState::OverBound);
        point.saturated = true;
        assert_eq!(point.state(), LevelState::Saturated, "what was not held failed by that");
    }

    #[test]
    fn a_level_that_the_storage_could_not_keep_up_with_is_saturated_and_invalid_only_for_another_reason() {
        let mut point = level(500.0, 200.0, 900.0);
        assert_eq!(point.state(), LevelState::Valid);
        point.saturated = true;
        point.verdict.invalidate(RATE_OFF, "3% of the requests due were not answered in time");
        assert_eq!(point.state(), LevelState::Saturated);
        point.verdict.invalidate("generator-late", "the generator was late");
        assert_eq!(point.state(), LevelState::Invalid);
        let mut unsent = level(500.0, 200.0, 900.0);
        unsent.verdict.invalidate(RATE_OFF, "the generator did not send them");
        assert_eq!(unsent.state(), LevelState::Invalid, "the storage is not to blame");
        let mut imported = level(500.0, 200.0, 900.0);
        imported.verdict.valid = false;
        assert_eq!(imported.state(), LevelState::Invalid);
    }
}
