//! Made-up benchmarks with every kind of view, as `report` knows no other.
//!
//! `rounds` shows figures by pass with published values, `tally` a table, bars, ranges and lines.

#![allow(dead_code, reason = "every test binary takes what it needs")]

use measure::view::{
    Bar, Bars, ByPass, Column, Line, Lines, Over, PassLine, PassPoint, Place, Published, PublishedValue,
    Range, Ranges, Row, Section, Stroke, Table, Usual, View,
};
use measure::{Answer, BenchmarkEntry, BenchmarkRegistry, LoadCurve, Phase, RateMark, Role, RunRecord};

/// What the tests draw and compare with.
pub const REGISTRY: BenchmarkRegistry = BenchmarkRegistry::new(|name| {
    let entry = BenchmarkEntry::of(&super::sample::DECLARED);
    match name {
        "rounds" => Some(BenchmarkEntry { views: rounds, settings: &[("place", Role::Place)], ..entry }),
        "tally" => Some(BenchmarkEntry { views: tally, ..entry }),
        super::sample::SWEEPING => Some(BenchmarkEntry { answer: sweep, ..entry }),
        _ => None,
    }
});

/// What a sweep answers: a search where its configuration says so.
fn sweep(record: &RunRecord) -> Answer {
    let curve = LoadCurve::of(&record.points);
    let Some(held) = curve.highest_per_sec() else { return Answer::default() };
    let knee = curve.knee_per_sec().map(|per_sec| RateMark { per_sec, name: "knee" });
    Answer {
        sentence: format!("Holds {held} requests a second"),
        marks: knee.into_iter().chain([RateMark { per_sec: held, name: "highest held" }]).collect(),
        is_search: record.config["search"] == true,
    }
}

/// Names of the figures of `rounds`, in their order.
pub const PASS_FIGURES: [&str; 5] = ["rate-mean", "rate-passes", "rate-left", "delete-passes", "rate-again"];

const fn value(
    name: &'static str,
    value: f64,
    text: &'static str,
    drawn: &'static [&'static str],
) -> PublishedValue {
    PublishedValue { name, value, text, of: "files stored a second", pass: None, source: "figure 2", drawn }
}

const RATES: &[&str] = &["rate-mean", "rate-passes"];
const PUBLISHED: Published = Published {
    source: "A. N. Author, Storage of Old, Proceedings of Nowhere, 1996",
    short: "Author, Nowhere, 1996",
    year: "1996",
    read: "Hold the shapes against ours, not the rates.",
    values: &[
        value("Old filer", 40.0, "about 40/s", RATES),
        value("Older filer", 38.0, "about 38/s", RATES),
        value("Disks of old", 8.0, "about 8/s", RATES),
        value("Old filer, slow", 600.0, "10 min", &["delete-passes"]),
        PublishedValue {
            pass: Some(14),
            of: "what was left",
            ..value("Old filer, aged", 86.5, "86.5%", &["rate-left"])
        },
        value("Not drawn", 1.0, "1/s", &[]),
    ],
};

fn figure(id: &'static str, over: Over, unit: &'static str, lines: Vec<PassLine>) -> Option<View> {
    let lines: Vec<PassLine> = lines.into_iter().filter(|line| !line.points.is_empty()).collect();
    let enough = over == Over::Runs || lines.iter().any(|line| line.points.len() > 1);
    (enough && !lines.is_empty()).then(|| {
        View::ByPass(ByPass {
            id,
            like: "Figure 2",
            title: "Files stored a second",
            read: "Higher is better.".to_owned(),
            over,
            what: "files stored",
            unit,
            findings: lines
                .iter()
                .map(|line| format!("{} has {} points", line.name, line.points.len()))
                .collect(),
            lines,
        })
    })
}

fn line(runs: &[&RunRecord], of: impl Fn(&RunRecord) -> Vec<(u32, f64)>) -> Vec<PassLine> {
    let point = |(pass, y): (u32, f64)| PassPoint { pass, y, low: 0.97 * y, high: 1.03 * y, runs: 3 };
    let line = |(configuration, run): (usize, &&RunRecord)| PassLine {
        configuration,
        name: run.label.clone(),
        points: of(run).into_iter().map(point).collect(),
    };
    runs.iter().enumerate().map(line).collect()
}

fn rounds(runs: &[&RunRecord]) -> Vec<Section> {
    let phases = |run: &RunRecord, name: &str| -> Vec<(u32, f64, f64)> {
        let mine = run.phases.iter().filter(|phase| phase.name == name && phase.items > 0);
        mine.map(|phase| (phase.pass, phase.items as f64 / phase.wall_s, phase.wall_s)).collect()
    };
    let rates = |run: &RunRecord| -> Vec<(u32, f64)> {
        phases(run, "store").into_iter().map(|(pass, rate, _)| (pass, rate)).collect()
    };
    let left = |run: &RunRecord| {
        let rates = rates(run);
        let first = rates.first().map_or(1.0, |(_, rate)| *rate);
        rates.into_iter().map(|(pass, rate)| (pass, 100.0 * rate / first)).collect()
    };
    let times =
        |run: &RunRecord| phases(run, "delete").into_iter().map(|(pass, _, wall_s)| (pass, wall_s)).collect();
    let whole = |run: &RunRecord| rates(run).first().map(|(_, rate)| (0, *rate)).into_iter().collect();
    let items: Vec<View> = [
        figure("rate-mean", Over::Runs, "/s", line(runs, whole)),
        figure("rate-passes", Over::Passes, "/s", line(runs, rates)),
        figure("rate-left", Over::PassesAroundWhole, "%", line(runs, left)),
        figure("delete-passes", Over::Passes, "s", line(runs, times)),
        // Beside which nothing is published.
        figure("rate-again", Over::Passes, "/s", line(runs, rates)),
    ]
    .into_iter()
    .flatten()
    .collect();
    let section = Section {
        id: "rounds".to_owned(),
        title: "Round after round".to_owned(),
        read: "A mark is the median.".to_owned(),
        runs: (0..runs.len()).collect(),
        place: Place::First,
        instead_of: &[Usual::Curves],
        published: Some(PUBLISHED),
        items,
    };
    if section.items.is_empty() { vec![] } else { vec![section] }
}

/// A section a run that was asked something.
fn tally(runs: &[&RunRecord]) -> Vec<Section> {
    runs.iter().enumerate().filter_map(|(at, run)| tally_of(at, run)).collect()
}

fn tally_of(at: usize, run: &RunRecord) -> Option<Section> {
    let phase = run.phases.iter().find(|phase| phase.name == "asked")?;
    let names: Vec<&str> = phase.counters.keys().filter_map(|name| name.strip_suffix("_count")).collect();
    (!names.is_empty()).then(|| Section {
        id: format!("tally-{at}"),
        title: format!("What {} was asked", run.label),
        read: "Counted by the server.".to_owned(),
        runs: vec![at],
        instead_of: &[Usual::Metrics, Usual::Phases, Usual::Curves],
        items: vec![bars(phase, &names), ranges(phase, &names), table(run, phase, &names), lines(at, run)],
        ..Section::default()
    })
}

fn number(phase: &Phase, name: &str, of: &str) -> f64 {
    phase.counters.get(&format!("{name}_{of}")).copied().unwrap_or(f64::NAN)
}

fn bars(phase: &Phase, names: &[&str]) -> View {
    let bar = |name: &&str| Bar {
        name: (*name).to_owned(),
        value: number(phase, name, "count") / 4e3,
        text: number(phase, name, "count").to_string(),
        published: Some(50.0),
        facts: vec![("count", number(phase, name, "count").to_string())],
    };
    View::Bars(Bars {
        title: "Asked by name",
        read: "Bars: this run.",
        axis: "share, %",
        unit: "%",
        rows: names.iter().map(bar).collect(),
    })
}

fn ranges(phase: &Phase, names: &[&str]) -> View {
    let range = |name: &&str| Range {
        name: (*name).to_owned(),
        p50_us: number(phase, name, "p50_us"),
        p99_us: number(phase, name, "p99_us"),
        max_us: Some(number(phase, name, "max_us")),
        text: format!("{} µs", number(phase, name, "p50_us")),
        facts: vec![("median", number(phase, name, "p50_us").to_string())],
    };
    View::Ranges(Ranges { title: "Time", read: "From the median.", rows: names.iter().map(range).collect() })
}

fn table(run: &RunRecord, phase: &Phase, names: &[&str]) -> View {
    let cell = |name: &str, of: &str| Some(number(phase, name, of).to_string());
    let row = |name: &&str| Row {
        name: (*name).to_owned(),
        cells: vec![cell(name, "count"), None, cell(name, "p99_us")],
        published: false,
    };
    let column = |group, title| Column { group, title };
    View::Table(Table {
        about: format!("Operations of {}", run.label),
        of: "Operation",
        columns: vec![
            column(None, "count"),
            column(Some("Time, µs"), "p50"),
            column(Some("Time, µs"), "p99"),
        ],
        rows: names.iter().map(row).collect(),
        key: "All that was asked.".to_owned(),
    })
}

fn lines(at: usize, run: &RunRecord) -> View {
    let line = |line: &measure::CurveLine| Line {
        run: at,
        name: line.label.clone(),
        stroke: if line.label == "done" { Stroke::Whole } else { Stroke::Dashed },
        points: line.points.iter().map(|point| (point.x, point.y)).collect(),
    };
    View::Lines(Lines {
        id: "asked",
        title: "Rate",
        read: "Dashed: wanted.",
        unit: "requests/s",
        over: "minutes",
        lines: run.curves.iter().flat_map(|curve| &curve.lines).map(line).collect(),
        marks: vec![(0.0, "begin".to_owned()), (30.0, "half".to_owned())],
    })
}
