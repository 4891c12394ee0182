//! What a page shows of webload's runs: proxies side by side, and how each run went over its minutes.
//!
//! ```text
//! metrics                                                                       -> a row a run, the talk's below
//! curves over minutes: requests_per_sec, response_us, document_hit_percent, ... -> a figure each, runs in one
//! ```
//!
//! Not here: axes and pages (crate `report`).
//! Source of the published row: the talk "User Level Techniques for Improvement of Disk I/O in WWW Caching", 2000.

use std::collections::BTreeMap;

use measure::numbers::{figure_text, grouped, ms_text, rate_text, round_rate_text};
use measure::view::{Column, Line, Lines, Row, Section, Stroke, Table, Usual, View};
use measure::{Answer, BenchmarkEntry, Curve, Role, RunRecord};
use serde::Deserialize;

/// What webload says of its records.
pub const ENTRY: BenchmarkEntry = BenchmarkEntry {
    metrics: crate::METRICS,
    settings: &[
        ("workload", Role::Identity),
        ("through", Role::Place),
        // A run's own origin listens wherever a port is free.
        ("origin", Role::Place),
        ("wait", Role::Chosen),
        ("cpus_awake", Role::Chosen),
    ],
    answers: &[],
    answer: |record| Answer::of(sentence(&record.metrics)),
    is_compared: |_| true,
    views,
};

/// What a record's configuration says, as far as a page needs it; of any version.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Configured {
    workload: Option<String>,
}

/// A curve of the record and how it is drawn.
struct Kind {
    curve: &'static str,
    id: &'static str,
    title: &'static str,
    read: &'static str,
    unit: &'static str,
    /// What the curve's values are divided by.
    divisor: f64,
}

const KINDS: [Kind; 5] = [
    Kind {
        curve: "requests_per_sec",
        id: "requests-per-sec",
        title: "Rate",
        read: "Good replies a second. Dashed: what the schedule offered.",
        unit: "requests/s",
        divisor: 1.0,
    },
    Kind {
        curve: "response_us",
        id: "response-us",
        title: "Response time",
        read: "Mean from sending to the last byte; what waits for a connection counts from its planned moment. Dashed: without the origin’s think time. Dotted: hits alone.",
        unit: "ms",
        divisor: 1e3,
    },
    Kind {
        curve: "document_hit_percent",
        id: "document-hit-percent",
        title: "Document hit ratio",
        read: "Replies that came from the cache. Dashed: what a cache that keeps everything could have answered.",
        unit: "%",
        divisor: 1.0,
    },
    Kind {
        curve: "byte_hit_percent",
        id: "byte-hit-percent",
        title: "Byte hit ratio",
        read: "The same by bytes of the bodies.",
        unit: "%",
        divisor: 1.0,
    },
    Kind {
        curve: "errors_percent",
        id: "errors-percent",
        title: "Errors",
        read: "Requests without a good reply.",
        unit: "%",
        divisor: 1.0,
    },
];
/// The lines of curves that are what was achieved, and the one that is a part of it.
const ACHIEVED: [&str; 3] = ["achieved", "all", "errors"];
const PART: &str = "hits";
/// What is beyond is not believed: an imported record is wrong.
const LIMIT: f64 = 1e15;

const fn column(group: Option<&'static str>, title: &'static str) -> Column {
    Column { group, title }
}

const COLUMNS: [(&str, Column); 8] = [
    ("requests_per_sec", column(None, "Good replies/s")),
    ("response_mean_us", column(Some("Mean response, ms"), "whole")),
    ("response_without_think_us", column(Some("Mean response, ms"), "without think time")),
    ("document_hit_percent", column(Some("Documents hit, %"), "achieved")),
    ("document_hit_offered_percent", column(Some("Documents hit, %"), "offered")),
    ("byte_hit_percent", column(None, "Bytes hit, %")),
    ("errors_percent", column(None, "Errors, %")),
    ("false_replies", column(None, "False replies")),
];

/// The sections of all runs of webload that a page has.
pub fn views(runs: &[&RunRecord]) -> Vec<Section> {
    if runs.is_empty() {
        return vec![];
    }
    let mut items = vec![View::Table(table(runs))];
    items.extend(KINDS.iter().filter_map(|kind| figure(kind, runs)).map(View::Lines));
    vec![Section {
        id: "traffic".to_owned(),
        title: "Traffic through the proxy".to_owned(),
        read: "What the robots asked for and got, over the minutes of the run. A reply counts as a hit when the origin did not make it for this request.".to_owned(),
        runs: (0..runs.len()).collect(),
        instead_of: &[Usual::Curves],
        items,
        ..Section::default()
    }]
}

/// What a run answers; empty for one without replies.
fn sentence(metrics: &BTreeMap<String, f64>) -> String {
    let metric = |name: &str| metrics.get(name).copied().filter(|value| believed(*value));
    let Some(rate) = metric("requests_per_sec") else { return String::new() };
    let mut sentence = format!("Serves {} requests/s", round_rate_text(rate));
    if let Some(mean) = metric("response_mean_us") {
        sentence.push_str(&format!(" in {} on average", figure_text("us", mean)));
    }
    if let Some(p99) = metric("response_p99_us") {
        sentence.push_str(&format!(", p99 {}", figure_text("us", p99)));
    }
    if let Some(hit) = metric("document_hit_percent").filter(|hit| *hit > 0.0) {
        let possible = metric("document_hit_offered_percent").filter(|possible| *possible > 0.0);
        let of = possible.map_or(String::new(), |possible| format!(" of {}% possible", grouped(possible, 1)));
        sentence.push_str(&format!("; {}%{of} came from the cache", grouped(hit, 1)));
    }
    if let Some(errors) = metric("errors_percent").filter(|errors| *errors > 0.0) {
        sentence.push_str(&format!("; {}% failed", grouped(errors, 2)));
    }
    sentence
}

fn believed(value: f64) -> bool {
    (0.0..LIMIT).contains(&value)
}

fn table(runs: &[&RunRecord]) -> Table {
    let polymix = |run: &&RunRecord| {
        Configured::deserialize(&run.config).is_ok_and(|of| of.workload.as_deref() == Some("polymix-3"))
    };
    let published = runs.iter().any(polymix);
    let mut rows: Vec<Row> = runs.iter().map(|run| row(run)).collect();
    let mut key = "Over the load points alone. Without think time: less what the origin said it waited before this reply."
        .to_owned();
    if published {
        rows.push(row_of_the_talk());
        key.push_str(" The talk: PolyMix-3, cache of 31.3 GB, dual Pentium III, origin at 2,500 ms.");
    }
    let columns = COLUMNS.iter().map(|(_, column)| *column).collect();
    Table { about: "Proxies side by side".to_owned(), of: "Run", columns, rows, key }
}

fn row(run: &RunRecord) -> Row {
    let cell = |(name, _): &(&str, Column)| {
        let value = run.metrics.get(*name).copied().filter(|value| believed(*value))?;
        let metric = run.metric(name);
        Some(match metric.unit.as_str() {
            "us" => ms_text(value),
            "%" => grouped(value, 2),
            "/s" => rate_text(value),
            unit => figure_text(unit, value),
        })
    };
    Row { name: run.label.clone(), cells: COLUMNS.iter().map(cell).collect(), published: false }
}

/// 300 requests a second, 1.792 s, 42.91%, 0.10%; what the talk does not say stays open.
fn row_of_the_talk() -> Row {
    let cells = [Some("300"), Some("1,792"), None, Some("42.91"), None, None, Some("0.10"), None]
        .map(|cell| cell.map(str::to_owned));
    Row { name: "KOTETU 1.5b, 2000 (the talk)".to_owned(), cells: cells.into(), published: true }
}

fn figure(kind: &Kind, runs: &[&RunRecord]) -> Option<Lines> {
    let curves: Vec<(usize, &Curve)> = runs
        .iter()
        .enumerate()
        .filter_map(|(at, run)| Some((at, run.curves.iter().find(|curve| curve.name == kind.curve)?)))
        .collect();
    let lines: Vec<Line> = curves
        .iter()
        .flat_map(|(run, curve)| curve.lines.iter().map(move |line| (*run, line)))
        .map(|(run, line)| Line {
            run,
            name: match curves.len() {
                1 => line.label.clone(),
                _ => format!("{}, {}", runs[run].label, line.label),
            },
            stroke: match line.label.as_str() {
                label if ACHIEVED.contains(&label) => Stroke::Whole,
                PART => Stroke::Dotted,
                _ => Stroke::Dashed,
            },
            points: line.points.iter().map(|point| (point.x, point.y / kind.divisor)).collect(),
        })
        .collect();
    (!lines.is_empty()).then(|| Lines {
        id: kind.id,
        title: kind.title,
        read: kind.read,
        unit: kind.unit,
        over: "minutes",
        lines,
        marks: if let [run] = runs { phases_begin(run) } else { vec![] },
    })
}

/// Minutes at which the phases of a run begin.
fn phases_begin(run: &RunRecord) -> Vec<(f64, String)> {
    let mut from_s = 0.0;
    let begin = |phase: &measure::Phase| {
        let at = from_s / 60.0;
        from_s += phase.wall_s;
        (at, phase.name.clone())
    };
    run.phases.iter().filter(|phase| believed(phase.wall_s)).map(begin).collect()
}

#[cfg(test)]
mod tests {
    use measure::{CurveLine, CurvePoint, Environment, Phase, RunId, Verdict};
    use serde_json::json;

    use super::*;

    fn run(label: &str, workload: &str) -> RunRecord {
        let line = |label: &str, y: f64| CurveLine {
            label: label.to_owned(),
            points: vec![CurvePoint { x: 0.5, y, ..CurvePoint::default() }],
        };
        let curve = |name: &str, lines| Curve { name: name.to_owned(), over: "minutes".to_owned(), lines };
        let phase = |name: &str| Phase { name: name.to_owned(), wall_s: 90.0, ..Phase::default() };
        let mut record = RunRecord {
            schema: measure::RECORD_SCHEMA,
            id: RunId(label.to_owned()),
            benchmark: "webload".to_owned(),
            label: label.to_owned(),
            target: "http://127.0.0.1:3128".to_owned(),
            started: "2026-11-21T18:00:00Z".parse().unwrap(),
            ended: "2026-11-21T18:01:00Z".parse().unwrap(),
            command: vec![],
            config: json!({ "workload": workload, "threads": 1 }),
            environment: Environment::default(),
            seed: 1,
            complete: true,
            points: vec![],
            phases: vec![phase("fill"), phase("top")],
            curves: vec![
                curve("requests_per_sec", vec![line("achieved", 300.0), line("offered", 301.0)]),
                curve("response_us", vec![line("all", 2e6), line("without think", 1e5), line("hits", 9e4)]),
            ],
            series: None,
            metrics: [
                ("requests_per_sec", 299.5),
                ("response_mean_us", 1_912_000.0),
                ("errors_percent", -5.0),
            ]
            .map(|(name, value)| (name.to_owned(), value))
            .into(),
            annotations: vec![],
            not_seen: Default::default(),
            headline: vec![],
            declarations: vec![],
            verdict: Verdict::valid(),
        };
        record.declare(crate::METRICS);
        record
    }

    fn parts(section: &Section) -> (&Table, Vec<&Lines>) {
        let [View::Table(table), figures @ ..] = &section.items[..] else { panic!("{:?}", section.items) };
        let lines = figures.iter().map(|view| match view {
            View::Lines(lines) => lines,
            other => panic!("{other:?}"),
        });
        (table, lines.collect())
    }

    #[test]
    fn a_run_is_a_row_with_the_talks_below_it_only_beside_its_workload() {
        let polymix = run("squid", "polymix-3");
        let section = &views(&[&polymix])[0];
        let (table, _) = parts(section);
        let cells = |at: usize| -> Vec<&str> {
            table.rows[at].cells.iter().map(|cell| cell.as_deref().unwrap_or("-")).collect()
        };
        assert_eq!(cells(0), ["299.5", "1,912", "-", "-", "-", "-", "-", "-"], "minus 5% cannot be");
        assert_eq!(cells(1), ["300", "1,792", "-", "42.91", "-", "-", "0.10", "-"]);
        assert!(table.rows[1].published && table.key.contains("The talk"));
        let hits = run("squid", "hits");
        let (table, _) = (parts(&views(&[&hits])[0]).0.rows.len(), ());
        assert_eq!(table, 1);
        let mut old = run("of another version", "x");
        old.config = json!({ "workload": ["a", "list"] });
        assert_eq!(views(&[&old])[0].runs, [0]);
        assert!(views(&[]).is_empty());
    }

    #[test]
    fn a_run_answers_with_rate_response_and_hits_and_leaves_out_what_cannot_be() {
        let mut metrics = run("squid", "hits").metrics;
        assert_eq!(sentence(&metrics), "Serves 299.5 requests/s in 1,912 ms on average");
        for (name, value) in [
            ("response_p99_us", 9e6),
            ("document_hit_percent", 42.9),
            ("document_hit_offered_percent", 58.0),
            ("errors_percent", 0.1),
        ] {
            metrics.insert(name.to_owned(), value);
        }
        assert_eq!(
            sentence(&metrics),
            "Serves 299.5 requests/s in 1,912 ms on average, p99 9,000 ms; 42.9% of 58.0% possible came from the cache; 0.10% failed"
        );
        metrics.clear();
        assert_eq!(sentence(&metrics), "");
    }

    #[test]
    fn what_could_have_been_is_dashed_and_lines_of_several_runs_bear_their_labels() {
        let (a, b) = (run("A", "polymix-3"), run("B", "polymix-3"));
        let one = views(&[&a]);
        let (_, figures) = parts(&one[0]);
        assert_eq!(
            figures.iter().map(|figure| figure.id).collect::<Vec<_>>(),
            ["requests-per-sec", "response-us"]
        );
        let strokes: Vec<Stroke> = figures[1].lines.iter().map(|line| line.stroke).collect();
        assert_eq!(strokes, [Stroke::Whole, Stroke::Dashed, Stroke::Dotted]);
        assert_eq!(figures[1].lines[0].points, [(0.5, 2_000.0)]);
        assert_eq!(figures[0].marks, [(0.0, "fill".to_owned()), (1.5, "top".to_owned())]);
        let two = views(&[&a, &b]);
        let (_, figures) = parts(&two[0]);
        let names: Vec<(usize, &str)> =
            figures[0].lines.iter().map(|line| (line.run, line.name.as_str())).collect();
        assert_eq!(names, [(0, "A, achieved"), (0, "A, offered"), (1, "B, achieved"), (1, "B, offered")]);
        assert!(figures[0].marks.is_empty(), "runs begin their phases at different times");
    }
}
