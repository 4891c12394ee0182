//! Which run of a series is measured again, and what both records say then.
//!
//! ```text
//! run, machine-disturbed -> kept beside the series ("measured again as B")
//! the same turn again    -> has the place in the series ("measured again in place of A")
//! ```
//!
//! Always holds: what the machine did beside a run decides, never how the run came out: a rule that looked at results would
//! choose them. The second run has the place whatever came of it, so no turn is measured more than twice.

use harness::series::MEASURED_AGAIN;
use measure::{MACHINE_DISTURBED, RunRecord};

use crate::context::Context;
use crate::layout::wrapped;
use crate::outcome::{OutputArgs, Run};
use crate::output::note;

/// Whether a run is to be measured again.
pub fn is_due(run: &Run) -> bool {
    run.record.verdict.has(MACHINE_DISTURBED)
        && run.record.complete
        && run.error.is_none()
        && !run.interrupted
}

/// Measures again. The first run is kept beside the series; this returns the run that has the place in the series.
pub fn repeated(
    first: Run,
    output: &OutputArgs,
    context: &Context,
    measure: impl FnOnce() -> anyhow::Result<Run>,
) -> Run {
    note(context, wrapped("measured again: ", &disturbance_of(&first.record)).trim_end());
    // The process may be killed meanwhile.
    output.keep(context, &first.record);
    let (stays, replaced) = in_place_of(first, measure());
    if let Some(replaced) = replaced {
        output.keep(context, &replaced);
    }
    stays
}

/// The run that has the place in the series, and the record that it replaces. Where the second run did not come to its end,
/// the first keeps the place.
fn in_place_of(mut first: Run, second: anyhow::Result<Run>) -> (Run, Option<RunRecord>) {
    match second {
        Ok(mut second) if !second.interrupted => {
            let (why, before) = (disturbance_of(&first.record), first.record.id.clone());
            let text = format!("measured again as {}, which has its place in the series", second.record.id);
            first.record.verdict.remark(MEASURED_AGAIN, text);
            second
                .record
                .verdict
                .remark(MEASURED_AGAIN, format!("measured again in place of {before}: {why}"));
            (second, Some(first.record))
        }
        Ok(_) => (Run { interrupted: true, ..first }, None),
        Err(error) => (Run { error: Some(error), ..first }, None),
    }
}

/// What disturbed the machine beside a run, as its verdict says.
fn disturbance_of(record: &RunRecord) -> String {
    let found = record.verdict.reasons.iter().find(|reason| reason.code == MACHINE_DISTURBED);
    found.map(|reason| reason.text.clone()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(id: &str, rate: f64, disturbed: bool) -> Run {
        let environment = serde_json::to_string(&measure::Environment::default()).unwrap();
        let json = format!(
            r#"{{"schema": 1, "id": "{id}", "benchmark": "postmark", "label": "", "target": "", "seed": 1, "complete": true,
                "started": "2026-11-21T18:00:00Z", "ended": "2026-11-21T18:00:00Z", "command": [], "config": null,
                "environment": {environment}, "metrics": {{"transactions_per_sec": {rate}}},
                "verdict": {{"valid": true, "reasons": []}}}}"#
        );
        let mut record = RunRecord::from_json(&json).unwrap();
        if disturbed {
            record.verdict.invalidate(MACHINE_DISTURBED, "by a test");
        }
        Run { record, any_measured: true, error: None, interrupted: false, is_shown: false }
    }

    #[test]
    fn a_run_is_measured_again_by_what_the_machine_did_and_not_by_its_result() {
        assert!(is_due(&run("a", 500.0, true)));
        assert!(!is_due(&run("a", 0.001, false)));
        let mut late = run("a", 500.0, false);
        late.record.verdict.invalidate("generator-late", "late");
        assert!(!is_due(&late));
        let mut cut = run("a", 500.0, true);
        cut.record.complete = false;
        assert!(!is_due(&cut), "it ended early: so does the series");
        assert!(!is_due(&Run { interrupted: true, ..run("a", 500.0, true) }));
    }

    #[test]
    fn the_second_run_has_the_place_whatever_came_of_it_and_each_names_the_other() {
        for (rate, disturbed) in [(900.0, false), (1.0, false), (1.0, true)] {
            let (stays, replaced) =
                in_place_of(run("first", 500.0, true), Ok(run("second", rate, disturbed)));
            assert_eq!(stays.record.id.0, "second");
            let text = |record: &RunRecord| {
                let found = record.verdict.reasons.iter().find(|reason| reason.code == MEASURED_AGAIN);
                found.unwrap().text.clone()
            };
            assert!(text(&stays.record).contains("in place of first: by a test"));
            let replaced = replaced.unwrap();
            assert!(text(&replaced).contains("measured again as second") && replaced.series.is_none());
        }
    }

    #[test]
    fn where_the_second_run_did_not_come_to_its_end_the_first_keeps_its_place() {
        let interrupted = Run { interrupted: true, ..run("second", 500.0, false) };
        let (stays, replaced) = in_place_of(run("first", 500.0, true), Ok(interrupted));
        assert!(stays.record.id.0 == "first" && stays.interrupted && replaced.is_none());
        let (stays, replaced) = in_place_of(run("first", 500.0, true), Err(anyhow::anyhow!("no space")));
        assert!(stays.record.id.0 == "first" && stays.error.is_some() && replaced.is_none());
    }
}
