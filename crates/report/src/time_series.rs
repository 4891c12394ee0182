//! The time series of runs: a picture of each level and phase for the page, and all of them as CSV.
//!
//! Always holds: each series of a run is in the CSV; on a page are as many as it holds, and it says how many are not; a mark
//! that somebody set is in the picture of the series during which it was set.
//! Not here: how lines lie on their axes (see `sections::over_time`), what is in a step (see `measure::TimeSeries`).

use measure::view::{Line, Lines, Stroke};
use measure::{Annotation, RunRecord, TimeSeries};
use serde::Serialize;

use crate::figures::{grouped, rate_text};
use crate::sections::over_time::OverTime;
use crate::series::point_name;

/// One level or phase: its rate above, its latencies below.
#[derive(Debug, Serialize)]
pub(crate) struct TimeSeriesView {
    /// Which run of the page.
    run: usize,
    name: String,
    /// What it did, for who does not open it.
    summary: String,
    /// What is drawn, with the length of a step.
    caption: String,
    panels: Vec<OverTime>,
    /// Shown at once, and not when somebody asks for it.
    is_open: bool,
}

/// Series on one page: each is some 20 KB.
const SERIES_MAX: usize = 48;
/// Series of a run that are open at first, besides those with a mark.
const OPEN: usize = 2;
/// On a page with more runs than this, only the runs with a mark are open at first.
const OPEN_RUNS_MAX: usize = 2;
/// A line of fewer steps is nothing to look at.
const OPEN_STEPS_MIN: usize = 3;

/// A series with its name.
struct Named<'r> {
    name: String,
    series: &'r TimeSeries,
    /// Seconds from the run's begin to its own.
    begin_s: f64,
}

/// All series of a run in the order of time.
fn of_run(record: &RunRecord) -> Vec<Named<'_>> {
    let points = record.points.iter().enumerate().filter_map(|(at, point)| {
        Some((format!("level {}: {}", at + 1, point_name(point)), point.time_series.as_ref()?))
    });
    let is_repeated = |name: &str| record.phases.iter().filter(|phase| phase.name == name).count() > 1;
    let phases = record.phases.iter().filter_map(|phase| {
        let name = match is_repeated(&phase.name) {
            true => format!("{}, pass {}", phase.name, phase.pass),
            false => phase.name.clone(),
        };
        Some((name, phase.time_series.as_ref()?))
    });
    let begin_s = |series: &TimeSeries| series.started.duration_since(record.started).as_secs_f64();
    let mut all: Vec<Named<'_>> =
        points.chain(phases).map(|(name, series)| Named { name, begin_s: begin_s(series), series }).collect();
    all.sort_by(|a, b| a.begin_s.total_cmp(&b.begin_s));
    all
}

/// The pictures of all runs, and how many series have none for want of room.
pub(crate) fn views(runs: &[RunRecord]) -> (Vec<TimeSeriesView>, usize) {
    let mut views: Vec<TimeSeriesView> = Vec::new();
    let mut left_out = 0;
    for (run, record) in runs.iter().enumerate() {
        let all = of_run(record);
        let mut by_operations: Vec<u64> = all.iter().map(|of| of.series.ok.iter().sum()).collect();
        by_operations.sort_unstable_by(|a, b| b.cmp(a));
        let open_from = match runs.len() <= OPEN_RUNS_MAX {
            true => by_operations.get(OPEN - 1).copied().unwrap_or(0),
            false => u64::MAX,
        };
        for named in all {
            if views.len() >= SERIES_MAX {
                left_out += 1;
                continue;
            }
            let number = views.len();
            views.extend(view(run, &named, &record.annotations, open_from, number));
        }
    }
    (views, left_out)
}

/// None for a series in which nothing ended.
fn view(
    run: usize,
    named: &Named<'_>,
    annotations: &[Annotation],
    open_from: u64,
    number: usize,
) -> Option<TimeSeriesView> {
    let series = named.series;
    let notes: Vec<(f64, String)> = annotations
        .iter()
        .map(|note| (note.at_s - named.begin_s, note.text.clone()))
        .filter(|(at_s, _)| (0.0..=series.wall_s).contains(at_s))
        .collect();
    let ok: u64 = series.ok.iter().sum();
    let panel = |lines: &Lines, log| OverTime::panel(lines, run, &format!("series-{number}"), &notes, log);
    let panels: Vec<OverTime> =
        [panel(&rates(series), false), panel(&latencies(series), true)].into_iter().flatten().collect();
    let step = match series.step_s {
        step_s if step_s < 1.0 => format!("{} ms", grouped(step_s * 1e3, 0)),
        step_s => format!("{} s", grouped(step_s, 0)),
    };
    let mean = rate_text(ok as f64 / series.wall_s.max(1e-9));
    let failed: u64 = series.failed.iter().sum();
    let failures = if failed > 0 { format!(", {} failed", grouped(failed as f64, 0)) } else { String::new() };
    (!panels.is_empty()).then(|| TimeSeriesView {
        run,
        name: named.name.clone(),
        summary: format!("{mean} operations/s over {} s{failures}", grouped(series.wall_s, 1)),
        caption: format!("Rate and latency of the operations that ended within each {step}."),
        is_open: !notes.is_empty() || ok >= open_from && series.ok.len() >= OPEN_STEPS_MIN,
        panels,
    })
}

/// In the middle of each step.
fn points(series: &TimeSeries, y: impl Fn(&measure::TimeStep) -> Option<f64>) -> Vec<(f64, f64)> {
    series.steps().filter_map(|step| Some(((step.from_s + step.to_s) / 2.0, y(&step)?))).collect()
}

fn line(name: &str, stroke: Stroke, points: Vec<(f64, f64)>) -> Line {
    Line { run: 0, name: name.to_owned(), stroke, points }
}

fn lines(
    id: &'static str,
    title: &'static str,
    read: &'static str,
    unit: &'static str,
    of: Vec<Line>,
) -> Lines {
    Lines { id, title, read, unit, over: "seconds since its begin", lines: of, marks: vec![] }
}

fn marks(series: &TimeSeries) -> Vec<(f64, String)> {
    let measured_from = (series.measured_from_s, "the warm-up ends".to_owned());
    if series.measured_from_s > 0.0 { vec![measured_from] } else { vec![] }
}

fn rates(series: &TimeSeries) -> Lines {
    let mut all = vec![line("successful", Stroke::Whole, points(series, |step| Some(step.ok_per_sec)))];
    if series.failed.iter().any(|failed| *failed > 0) {
        let failed = points(series, |step| Some(step.failed as f64 / (step.to_s - step.from_s).max(1e-9)));
        all.push(line("failed", Stroke::Dotted, failed));
    }
    let read = "Operations that ended, a second. Where the line is on the axis, none did.";
    Lines { marks: marks(series), ..lines("rate", "Rate", read, "operations/s", all) }
}

fn latencies(series: &TimeSeries) -> Lines {
    let ms = |pick: fn((f64, f64)) -> f64| points(series, |step| step.p50_p99_us.map(|us| pick(us) / 1e3));
    let all =
        vec![line("p50", Stroke::Whole, ms(|(p50, _)| p50)), line("p99", Stroke::Dashed, ms(|(_, p99)| p99))];
    let read =
        "Median, and 99th percentile (dashed), of the operations that ended then, on a logarithmic axis.";
    Lines { marks: marks(series), ..lines("latency", "Latency", read, "ms", all) }
}

/// Heads of the columns of [`csv`].
const COLUMNS: &str = "run,series,from_s,to_s,ok,failed,ok_per_sec,p50_us,p99_us,annotation";

/// All time series and annotations of a run as CSV (RFC 4180, but for line ends): a row for each step and one for each
/// annotation, times in seconds since the run's begin.
pub fn csv(record: &RunRecord) -> String {
    let mut text = format!("{COLUMNS}\n");
    let run = quoted(&record.id.0);
    for Named { name, series, begin_s } in of_run(record) {
        let name = quoted(&name);
        for step in series.steps() {
            let (from_s, to_s) = (begin_s + step.from_s, begin_s + step.to_s);
            let (p50, p99) =
                step.p50_p99_us.map_or(Default::default(), |(p50, p99)| (p50.to_string(), p99.to_string()));
            let measure::TimeStep { ok, failed, ok_per_sec, .. } = step;
            text.push_str(&format!(
                "{run},{name},{from_s:.3},{to_s:.3},{ok},{failed},{ok_per_sec:.3},{p50},{p99},\n"
            ));
        }
    }
    for Annotation { at_s, text: note } in &record.annotations {
        text.push_str(&format!("{run},,{at_s:.3},{at_s:.3},,,,,,{}\n", quoted(note)));
    }
    text
}

/// A field; a table calculator must not take a note for a formula.
fn quoted(field: &str) -> String {
    let guarded = if field.starts_with(['=', '+', '-', '@', '\t', '\r']) {
        format!("'{field}")
    } else {
        field.to_owned()
    };
    let is_plain = !guarded.contains([',', '"', '\n', '\r']);
    if is_plain { guarded } else { format!("\"{}\"", guarded.replace('"', "\"\"")) }
}

#[cfg(test)]
mod tests {
    use measure::Phase;

    use super::*;

    fn series(started: &str, ok: Vec<u64>) -> TimeSeries {
        let steps = ok.len();
        TimeSeries {
            started: started.parse().unwrap(),
            step_s: 0.5,
            wall_s: 0.5 * steps as f64,
            measured_from_s: 0.0,
            p50_us: ok.iter().map(|ok| if *ok > 0 { 100.0 } else { 0.0 }).collect(),
            p99_us: ok.iter().map(|ok| if *ok > 0 { 900.5 } else { 0.0 }).collect(),
            failed: vec![],
            ok,
        }
    }

    fn run() -> RunRecord {
        let json = serde_json::json!({
            "schema": 1, "id": "x", "benchmark": "b", "label": "", "target": "", "started": "2026-11-21T18:00:00Z",
            "ended": "2026-11-21T18:00:00Z", "command": [], "config": null, "environment": measure::Environment::default(),
            "seed": 1, "complete": true, "verdict": {"valid": true, "reasons": []}
        });
        let mut record = RunRecord::from_json(&json.to_string()).unwrap();
        let phase = |name: &str, series| Phase {
            name: name.to_owned(),
            time_series: Some(series),
            ..Phase::default()
        };
        record.phases = vec![
            phase("create", series("2026-11-21T18:00:10Z", vec![50, 0, 50, 50])),
            phase("delete", series("2026-11-21T18:00:14Z", vec![7])),
            phase("flush", series("2026-11-21T18:00:15Z", vec![5])),
        ];
        record.annotations = vec![Annotation { at_s: 10.5, text: "stopped, \"here\"".to_owned() }];
        record
    }

    #[test]
    fn a_csv_has_a_row_for_each_step_and_each_annotation_in_the_run_s_own_seconds() {
        let text = csv(&run());
        let rows: Vec<&str> = text.lines().collect();
        assert_eq!(rows[0], COLUMNS);
        assert_eq!(rows[1], "x,create,10.000,10.500,50,0,100.000,100,900.5,");
        assert_eq!(rows[2], "x,create,10.500,11.000,0,0,0.000,,,");
        assert_eq!(rows[7], "x,,10.500,10.500,,,,,,\"stopped, \"\"here\"\"\"");
        assert_eq!(rows.len(), 8);
        assert!(rows[1..7].iter().all(|row| row.matches(',').count() == COLUMNS.matches(',').count()));
        assert_eq!(quoted("=1+1"), "'=1+1");
    }

    #[test]
    fn the_busiest_series_are_open_and_each_that_somebody_marked() {
        let mut run = run();
        let open = |run: &RunRecord| -> Vec<bool> {
            views(std::slice::from_ref(run)).0.iter().map(|view| view.is_open).collect()
        };
        assert_eq!(open(&run), [true, false, false], "one step is no line");
        run.annotations.push(Annotation { at_s: 15.1, text: "late".to_owned() });
        assert_eq!(open(&run), [true, false, true]);
        let (of_many, _) = views(&[run.clone(), run.clone(), run]);
        assert!(
            of_many.iter().all(|view| view.is_open != view.name.starts_with("delete")),
            "those with a mark"
        );
    }

    #[test]
    fn a_page_has_no_more_series_than_it_holds_and_says_how_many_are_missing() {
        let runs = vec![run(); 20];
        let (views, left_out) = views(&runs);
        assert_eq!((views.len(), left_out), (SERIES_MAX, 60 - SERIES_MAX));
    }
}
