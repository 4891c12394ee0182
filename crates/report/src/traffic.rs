//! The figures of HTTP traffic through proxies (`crumb run webload`): over the minutes of each run, and side by side.
//!
//! ```text
//! curves over minutes: requests_per_sec, response_us, document_hit_percent, ... -> a figure each, runs in one
//! metrics                                                                       -> a row a run, the talk's below
//! ```
//!
//! Always holds: every number drawn is finite and none is below zero, whatever an imported record says; axes are
//! linear and begin at zero; what could have been is dashed.
//! Not here: measuring (crate `webload`), the plots of load points (`series`).
//! Source of the published row: the talk "User Level Techniques for Improvement of Disk I/O in WWW Caching", 2000.

use measure::{Curve, RunRecord};
use serde::Serialize;

use crate::axis::Axis;
use crate::figures::{figure_text, grouped, ms_text, rate_text};

const BENCHMARK: &str = "webload";

/// All figures of the page.
#[derive(Debug, Serialize)]
pub(crate) struct Traffic {
    figures: Vec<Figure>,
    rows: Vec<Row>,
    /// The talk's figures, where PolyMix was run.
    published: Option<Row>,
}

#[derive(Debug, Serialize)]
struct Figure {
    id: String,
    title: &'static str,
    read: &'static str,
    unit: &'static str,
    lines: Vec<Line>,
    up: Vec<Tick>,
    along: Vec<Tick>,
    /// Where phases begin; only when all runs are one.
    phases: Vec<Tick>,
}

#[derive(Debug, Serialize)]
struct Line {
    /// Which run: chooses the colour.
    run: usize,
    name: String,
    /// Whole for what was achieved; broken for what could have been, or a part of it.
    style: &'static str,
    /// Points of a polyline in a box of 1000 by 1000, downwards; stretches without values part it.
    paths: Vec<String>,
    /// What it was on average.
    told: String,
}

#[derive(Debug, Serialize)]
struct Tick {
    at: f64,
    text: String,
}

#[derive(Debug, Serialize)]
struct Row {
    run: Option<usize>,
    name: String,
    cells: [String; 8],
}

/// Name of the curve, title, explanation, unit, what it is divided by.
type Kind = (&'static str, &'static str, &'static str, &'static str, f64);

const KINDS: [Kind; 5] = [
    (
        "requests_per_sec",
        "Rate",
        "Good replies a second. Dashed: what the schedule offered.",
        "requests/s",
        1.0,
    ),
    (
        "response_us",
        "Response time",
        "Mean from the planned send time to the last byte. Dashed: without the origin’s think time. Dotted: hits alone.",
        "ms",
        1e3,
    ),
    (
        "document_hit_percent",
        "Document hit ratio",
        "Replies that came from the cache. Dashed: what a cache that keeps everything could have answered.",
        "%",
        1.0,
    ),
    ("byte_hit_percent", "Byte hit ratio", "The same by bytes of the bodies.", "%", 1.0),
    ("errors_percent", "Errors", "Requests without a good reply.", "%", 1.0),
];
/// The first line of a curve that is what was achieved.
const ACHIEVED: [&str; 3] = ["achieved", "all", "errors"];
/// What is beyond is not believed: an imported record is wrong.
const LIMIT: f64 = 1e15;
const BOX: f64 = 1000.0;
const METRICS: [&str; 8] = [
    "requests_per_sec",
    "response_mean_us",
    "response_without_think_us",
    "document_hit_percent",
    "document_hit_offered_percent",
    "byte_hit_percent",
    "errors_percent",
    "false_replies",
];

/// True when the run's curves are drawn here.
pub(crate) fn draws(run: &RunRecord) -> bool {
    run.benchmark == BENCHMARK
}

/// Of all runs of webload; none when there is no such run.
pub(crate) fn of_all(runs: &[RunRecord]) -> Option<Traffic> {
    let mine: Vec<(usize, &RunRecord)> = runs.iter().enumerate().filter(|(_, run)| draws(run)).collect();
    if mine.is_empty() {
        return None;
    }
    let figures = KINDS.iter().filter_map(|kind| Figure::of(kind, &mine)).collect();
    let rows = mine.iter().map(|(at, run)| Row::of(*at, run)).collect();
    let polymix = |run: &RunRecord| run.config.get("workload").is_some_and(|name| name == "polymix-3");
    let published = mine.iter().any(|(_, run)| polymix(run)).then(Row::published);
    Some(Traffic { figures, rows, published })
}

fn believed(value: f64) -> bool {
    value.is_finite() && (0.0..LIMIT).contains(&value)
}

fn points(curve: &Curve, line: usize) -> impl Iterator<Item = (f64, f64)> {
    let all = curve.lines[line].points.iter().map(|point| (point.x, point.y));
    all.filter(|(x, y)| believed(*x) && believed(*y))
}

impl Figure {
    fn of(kind: &Kind, runs: &[(usize, &RunRecord)]) -> Option<Self> {
        let (id, title, read, unit, divisor) = *kind;
        let curves: Vec<(usize, &RunRecord, &Curve)> = runs
            .iter()
            .filter_map(|(at, run)| Some((*at, *run, run.curves.iter().find(|curve| curve.name == id)?)))
            .collect();
        let every = || {
            curves
                .iter()
                .flat_map(|(_, _, curve)| (0..curve.lines.len()).flat_map(|line| points(curve, line)))
        };
        let (mut x_end, mut y_end) = (0.0f64, 0.0f64);
        every().for_each(|(x, y)| (x_end, y_end) = (x_end.max(x), y_end.max(y / divisor)));
        // Nothing went wrong: no figure of it.
        if y_end <= 0.0 || x_end <= 0.0 {
            return None;
        }
        let percent = unit == "%" && y_end > 50.0;
        let up = if percent {
            Axis::fixed(100.0, &[0.0, 25.0, 50.0, 75.0, 100.0])
        } else {
            Axis::linear(1.04 * y_end, 6)
        };
        let along = Axis::linear(1.01 * x_end, 8);
        let tick = |axis: &Axis, tick: &f64| Tick { at: axis.place(*tick), text: short(*tick) };
        let mut lines = Vec::new();
        for (run, record, curve) in &curves {
            for (number, line) in curve.lines.iter().enumerate() {
                let style = match line.label.as_str() {
                    own if ACHIEVED.contains(&own) => "",
                    "hits" => " dotted",
                    _ => " dashed",
                };
                let values: Vec<(f64, f64)> = points(curve, number).map(|(x, y)| (x, y / divisor)).collect();
                if values.is_empty() {
                    continue;
                }
                let mean = values.iter().map(|(_, y)| y).sum::<f64>() / values.len() as f64;
                let name = if curves.len() > 1 {
                    format!("{}, {}", record.label, line.label)
                } else {
                    line.label.clone()
                };
                let told =
                    format!("{} {unit}", if unit == "ms" { ms_text(mean * 1e3) } else { grouped(mean, 1) });
                lines.push(Line { run: *run, name, style, paths: paths(&values, &along, &up), told });
            }
        }
        let phases = match runs {
            [(_, run)] => phase_marks(run, &along),
            _ => vec![],
        };
        Some(Self {
            id: id.replace('_', "-"),
            title,
            read,
            unit,
            lines,
            up: up.ticks.iter().map(|value| tick(&up, value)).collect(),
            along: along.ticks.iter().map(|value| tick(&along, value)).collect(),
            phases,
        })
    }
}

/// A tick's number, without zeros behind the point.
fn short(value: f64) -> String {
    let text = grouped(value, 2);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Polylines; where a stretch is without a value the line is broken.
fn paths(values: &[(f64, f64)], along: &Axis, up: &Axis) -> Vec<String> {
    let step = values.windows(2).map(|pair| pair[1].0 - pair[0].0).fold(f64::INFINITY, f64::min);
    values
        .chunk_by(|a, b| b.0 - a.0 < 1.5 * step)
        .map(|piece| {
            let at = |(x, y): &(f64, f64)| {
                format!("{:.1},{:.1}", BOX / 100.0 * along.place(*x), BOX - BOX / 100.0 * up.place(*y))
            };
            piece.iter().map(at).collect::<Vec<_>>().join(" ")
        })
        .collect()
}

/// Where the phases of a run begin; those too short to be read are left out.
fn phase_marks(run: &RunRecord, along: &Axis) -> Vec<Tick> {
    let mut from_s = 0.0;
    let mut marks: Vec<Tick> = Vec::new();
    for phase in run.phases.iter().filter(|phase| believed(phase.wall_s)) {
        let at = along.place(from_s / 60.0);
        if marks.last().is_none_or(|last| at - last.at > 7.0) && at < 96.0 {
            marks.push(Tick { at, text: phase.name.clone() });
        }
        from_s += phase.wall_s;
    }
    marks
}

impl Row {
    fn of(at: usize, run: &RunRecord) -> Self {
        let cell = |name: &str| match run.metrics.get(name).copied().filter(|value| believed(*value)) {
            None => "–".to_owned(),
            Some(value) if name.ends_with("_us") => ms_text(value),
            Some(value) if name.ends_with("_percent") => grouped(value, 2),
            Some(value) if name.ends_with("_per_sec") => rate_text(value),
            Some(value) => figure_text(&run.metric(name).unit, value),
        };
        Self { run: Some(at), name: run.label.clone(), cells: METRICS.map(cell) }
    }

    /// 300 requests a second, 1.792 s, 42.91%, 0.10%; what the talk does not say stays open.
    fn published() -> Self {
        let cells = ["300", "1,792", "–", "42.91", "–", "–", "0.10", "–"];
        Self { run: None, name: "KOTETU 1.5b, 2000 (the talk)".to_owned(), cells: cells.map(str::to_owned) }
    }
}

#[cfg(test)]
mod tests {
    use measure::{CurveLine, CurvePoint};

    use super::*;

    fn curve(name: &str, label: &str, values: &[(f64, f64)]) -> Curve {
        let points = values.iter().map(|&(x, y)| CurvePoint { x, y, ..CurvePoint::default() }).collect();
        Curve {
            name: name.to_owned(),
            over: "minutes".to_owned(),
            lines: vec![CurveLine { label: label.to_owned(), points }],
        }
    }

    #[test]
    fn a_stretch_without_values_parts_the_line_and_wrong_numbers_are_not_drawn() {
        let values = [(0.5, 10.0), (1.5, 20.0), (5.5, 30.0), (6.5, f64::NAN), (7.5, -1.0), (8.5, 1e300)];
        let curve = curve("requests_per_sec", "achieved", &values);
        let kept: Vec<_> = points(&curve, 0).collect();
        assert_eq!(kept.len(), 3);
        let drawn = paths(&kept, &Axis::fixed(10.0, &[]), &Axis::fixed(40.0, &[]));
        assert_eq!(drawn, ["50.0,750.0 150.0,500.0", "550.0,250.0"]);
    }

    #[test]
    fn ticks_have_no_zeros_behind_the_point() {
        assert_eq!([0.0, 0.5, 25.0, 1200.0].map(short), ["0", "0.5", "25", "1,200"]);
    }
}
