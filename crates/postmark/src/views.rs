//! What a page shows of one run: how fast each phase was, and what each kind of operation took.
//!
//! ```text
//! phases: create, transactions, delete         -> a bar each, items a second
//! the load point's operations: create, read, … -> a range each, from the median to the slowest
//! the whole run's figures                      -> a row below those published in 2001
//! ```
//!
//! Not here: several runs, which the comparison of their figures shows better.

use measure::numbers::{count_text, figure_text, grouped, seconds_text};
use measure::view::{Bar, Bars, Column, Place, Range, Ranges, Row, Section, Table, View};
use measure::{OpStats, Phase, RunRecord};

use crate::published::{RUNS_OF_2001, SOURCE_OF_2001};

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
    items.push(View::Table(beside_2001(run)));
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

/// The five published runs and this one.
fn beside_2001(run: &RunRecord) -> Table {
    const COLUMNS: [(&str, &str, f64); 6] = [
        ("total_s", "Total, s", 1.0),
        ("transactions_per_sec", "Transactions/s", 1.0),
        ("created_alone_per_sec", "Created alone/s", 1.0),
        ("deleted_alone_per_sec", "Deleted alone/s", 1.0),
        ("read_bytes_per_sec", "Read, KiB/s", 1024.0),
        ("written_bytes_per_sec", "Written, KiB/s", 1024.0),
    ];
    let text = |value: f64| grouped(value, if value < 100.0 { 1 } else { 0 });
    let published = RUNS_OF_2001.iter().map(|of| Row {
        name: of.name.to_owned(),
        cells: of.figures().iter().map(|value| Some(text(*value))).collect(),
        published: true,
    });
    let is_believed = |value: &f64| (0.0..1e15).contains(value);
    let ours = |(metric, _, divisor): &(&str, &str, f64)| {
        run.metrics.get(*metric).copied().filter(is_believed).map(|value| text(value / divisor))
    };
    let cells = COLUMNS.iter().map(ours).collect();
    let this_run = Row { name: "this run".to_owned(), cells, published: false };
    Table {
        about: "This run beside the runs published in 2001".to_owned(),
        of: "Storage",
        columns: COLUMNS.iter().map(|(_, title, _)| Column { group: None, title }).collect(),
        rows: published.chain([this_run]).collect(),
        key: format!(
            "Grey: {SOURCE_OF_2001}. They had 10,000 files of 10 to 20 KiB in 10 subdirectories and 100,000 transactions, on a              machine with 192 MB of memory: a run with --preset 2001 has the same settings."
        ),
    }
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
        let [View::Bars(bars), View::Table(table)] = &sections[0].items[..] else {
            panic!("{:?}", sections[0].items)
        };
        let names: Vec<(&str, bool)> =
            table.rows.iter().map(|row| (row.name.as_str(), row.published)).collect();
        assert_eq!((names.len(), names[5]), (6, ("this run", false)));
        assert_eq!(table.rows[0].cells[1].as_deref(), Some("29.0"));
        let rows: Vec<(&str, &str)> =
            bars.rows.iter().map(|row| (row.name.as_str(), row.text.as_str())).collect();
        assert_eq!(rows, [("create", "4,100/s"), ("transactions", "1,210/s")]);
        assert!(views(&[&run, &run]).is_empty() && views(&[]).is_empty());
        let mut bare = run;
        bare.phases.clear();
        assert!(views(&[&bare]).is_empty(), "a heading above nothing");
    }
}
