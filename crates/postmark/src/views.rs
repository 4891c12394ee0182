//! What a page shows of one run: how fast each phase was, and what each kind of operation took.
//!
//! ```text
//! phases: create, transactions, delete         -> a bar each, items a second
//! the load point's operations: create, read, … -> a range each, from the median to the slowest
//! ```
//!
//! Not here: several runs, which the comparison of their figures shows better.

use measure::numbers::{count_text, figure_text, seconds_text};
use measure::view::{Bar, Bars, Place, Range, Ranges, Section, View};
use measure::{OpStats, Phase, RunRecord};

/// The section of a run that is alone on its page; none for several.
pub(crate) fn views(runs: &[&RunRecord]) -> Vec<Section> {
    let [run] = runs else { return vec![] };
    let bars: Vec<Bar> = run.phases.iter().filter(|phase| phase.items > 0).map(bar).collect();
    let ops = run.points.iter().flat_map(|point| &point.ops);
    let ranges: Vec<Range> = ops.filter(|(_, op)| op.latency_us.count > 0).map(range).collect();
    let mut items = Vec::new();
    if !bars.is_empty() {
        items.push(View::Bars(Bars {
            title: "Rate of each phase",
            read: "Files created, transactions, files deleted: each a second of its own phase. Longer is better.",
            axis: "items a second",
            unit: "/s",
            rows: bars,
        }));
    }
    if !ranges.is_empty() {
        items.push(View::Ranges(Ranges {
            title: "Time of each operation",
            read: "Dot: median. Thick: to the 99th percentile. Thin: to the slowest. Further left is better.",
            rows: ranges,
        }));
    }
    if items.is_empty() {
        return vec![];
    }
    vec![Section {
        id: "phases-of-the-run".to_owned(),
        title: "Phase by phase".to_owned(),
        read: "First the files are created, then transactions work on them, at last those that are left are deleted."
            .to_owned(),
        runs: vec![0],
        place: Place::First,
        items,
        ..Section::default()
    }]
}

fn bar(phase: &Phase) -> Bar {
    Bar {
        name: phase.name.clone(),
        value: phase.items_per_sec,
        text: figure_text("/s", phase.items_per_sec),
        published: None,
        facts: vec![("items", count_text(phase.items)), ("took", seconds_text(phase.wall_s))],
    }
}

fn range((name, op): (&String, &OpStats)) -> Range {
    let us = |value: f64| figure_text("us", value);
    let latency = &op.latency_us;
    Range {
        name: name.clone(),
        p50_us: latency.p50,
        p99_us: latency.p99,
        max_us: Some(latency.max),
        text: us(latency.p50),
        facts: vec![
            ("operations", count_text(latency.count)),
            ("median", us(latency.p50)),
            ("p99", us(latency.p99)),
            ("slowest", us(latency.max)),
        ],
    }
}

#[cfg(test)]
mod tests {
    use measure::Environment;

    use super::*;

    fn run() -> RunRecord {
        let phase = |name: &str, items: u64| {
            serde_json::to_value(Phase {
                name: name.to_owned(),
                pass: 1,
                wall_s: 2.0,
                items,
                items_per_sec: items as f64 / 2.0,
                ..Phase::default()
            })
            .unwrap()
        };
        let json = serde_json::json!({
            "schema": 1, "id": "x", "benchmark": "postmark", "label": "", "target": "", "started": "2026-11-21T18:00:00Z",
            "ended": "2026-11-21T18:00:00Z", "command": [], "config": null, "environment": Environment::default(),
            "seed": 1, "complete": true, "verdict": {"valid": true, "reasons": []},
            "phases": [phase("create", 8_200), phase("transactions", 2_420), phase("sync", 0)]
        });
        RunRecord::from_json(&json.to_string()).unwrap()
    }

    #[test]
    fn a_run_alone_has_a_bar_for_each_phase_that_did_something_and_several_runs_have_none() {
        let run = run();
        let sections = views(&[&run]);
        let [View::Bars(bars)] = &sections[0].items[..] else { panic!("{:?}", sections[0].items) };
        let rows: Vec<(&str, &str)> =
            bars.rows.iter().map(|row| (row.name.as_str(), row.text.as_str())).collect();
        assert_eq!(rows, [("create", "4,100/s"), ("transactions", "1,210/s")]);
        assert!(views(&[&run, &run]).is_empty() && views(&[]).is_empty());
        let mut bare = run;
        bare.phases.clear();
        assert!(views(&[&bare]).is_empty(), "a heading above nothing");
    }
}
