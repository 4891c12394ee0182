//! The numbers behind every plot, computed once for the HTML page and the SVG files.
//!
//! ```text
//! RunRecord -> Curve (rate, latency) per run and loop kind      -> latency-load, achieved-offered
//!           -> Cumulative (share done within x) per load level  -> cumulative
//! ```
//!
//! Always holds: every number is finite and every latency positive, so that a logarithmic axis can bear
//! it, whatever an imported record says; open-loop points lie at their offered rate, closed-loop ones at
//! their achieved rate and in a curve of their own.

mod levels;

use measure::{
    BenchmarkRegistry, FigureMark, FigureMarks, LatencySummary, LevelState, LoadPoint, LoopKind, RateMark,
    RunRecord,
};
use serde::Serialize;

use crate::figures::round_rate_text;

/// Which figure of a latency distribution is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stat {
    Mean,
    P50,
    P90,
    P99,
    P999,
}

/// One run's points of one loop kind, by rising rate.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Curve {
    /// Index of the run, which chooses colour and mark.
    pub run: usize,
    pub label: String,
    pub closed: bool,
    pub dots: Vec<Dot>,
    /// Rates that the plot names, by rising rate; none of a closed loop.
    pub marks: Vec<Mark>,
}

/// A rate that the plot names.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Mark {
    pub per_sec: f64,
    /// Such as `knee 7,000/s`.
    pub text: String,
}

/// A load point as plotted.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Dot {
    /// Position of the load point in the run, from 0.
    pub point: usize,
    pub name: String,
    /// Where it lies on the load axis: offered rate, or achieved rate in a closed loop.
    pub rate_per_sec: f64,
    pub offered_per_sec: Option<f64>,
    pub achieved_per_sec: f64,
    /// In the order of [`Stat::ALL`]; none without samples.
    pub latency_ms: [Option<f64>; 5],
    /// Before each of these, in a table.
    pub signs: [&'static str; 5],
    #[serde(skip)]
    pub marks: FigureMarks,
    pub saturated: bool,
    /// Held, with latencies over the bound of the search.
    pub over_bound: bool,
    /// A saturated level is INVALID only for another reason.
    pub valid: bool,
}

/// How many of the requests were done within how long, one line per load level.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Cumulative {
    pub run: usize,
    /// Latencies at which the shares are reported: evenly spaced on a logarithmic axis.
    pub latency_ms: Vec<f64>,
    pub levels: Vec<Level>,
}

/// One load level's line.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Level {
    pub name: String,
    pub share_percent: Vec<f64>,
    pub closed: bool,
    pub saturated: bool,
    /// A saturated level is INVALID only for another reason.
    pub valid: bool,
    /// Whether the plot shows it at first: of many levels it shows a few.
    pub shown: bool,
    pub tag: Tag,
}

/// The text on a level's line.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Tag {
    pub text: String,
    /// Where on the line.
    pub latency_ms: f64,
    pub share_percent: f64,
    /// Whether the text ends there instead of beginning there.
    pub left: bool,
}

/// Points of the cumulative lines per factor of ten: one every 6%.
const GRID_PER_DECADE: f64 = 40.0;
/// Rates from here on are not believed: an imported record is wrong.
const RATE_LIMIT: f64 = 1e12;
/// The linear axis ends at this many times the slowest point that the server kept up with: beyond the
/// knee an open loop's latency grows without bound and would flatten all the rest.
const LINEAR_HEADROOM: f64 = 3.0;

impl Stat {
    pub const ALL: [Self; 5] = [Self::Mean, Self::P50, Self::P90, Self::P99, Self::P999];

    pub fn name(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::P50 => "p50",
            Self::P90 => "p90",
            Self::P99 => "p99",
            Self::P999 => "p99.9",
        }
    }

    fn of_ms(self, latency_us: &LatencySummary) -> Option<f64> {
        let us = match self {
            Self::Mean => latency_us.mean,
            Self::P50 => latency_us.p50,
            Self::P90 => latency_us.p90,
            Self::P99 => latency_us.p99,
            Self::P999 => latency_us.p999,
        };
        (latency_us.count > 0 && us > 0.0 && us < RATE_LIMIT).then_some(us / 1e3)
    }
}

impl Dot {
    pub fn latency_ms(&self, stat: Stat) -> Option<f64> {
        self.latency_ms[stat as usize]
    }
}

/// What a load point is called wherever it appears.
pub(crate) fn point_name(point: &LoadPoint) -> String {
    match point.loop_kind {
        LoopKind::Open => format!("{}/s offered", round_rate_text(point.offered_per_sec.unwrap_or(0.0))),
        LoopKind::Closed => format!("closed loop, {} outstanding", point.outstanding.unwrap_or(0)),
    }
}

/// Whether one of the runs searched for a rate: plots of their levels have logarithmic axes at first.
pub(crate) fn is_search(runs: &[RunRecord], registry: BenchmarkRegistry) -> bool {
    runs.iter().any(|run| registry.answer(run).is_search)
}

/// Those of one rate share a text.
fn marks(record: &RunRecord, registry: BenchmarkRegistry) -> Vec<Mark> {
    let mut found = registry.answer(record).marks;
    found.retain(|mark| mark.per_sec > 0.0 && mark.per_sec < RATE_LIMIT);
    found.sort_by(|a, b| a.per_sec.total_cmp(&b.per_sec));
    let mark = |same: &[RateMark]| {
        let names: Vec<&str> = same.iter().map(|mark| mark.name).collect();
        let per_sec = same[0].per_sec;
        Mark { per_sec, text: format!("{} {}/s", names.join(", "), round_rate_text(per_sec)) }
    };
    found.chunk_by(|a, b| a.per_sec == b.per_sec).map(mark).collect()
}

/// The curves of all runs, in the order of the runs, a run's open loop first; none where every one is a dot at the same load,
/// as of closed-loop runs with one number of threads: a curve is what several loads make.
pub(crate) fn curves(runs: &[RunRecord], registry: BenchmarkRegistry) -> Vec<Curve> {
    let mut curves = Vec::new();
    let search = is_search(runs, registry);
    for (run, record) in runs.iter().enumerate() {
        for loop_kind in [LoopKind::Open, LoopKind::Closed] {
            let mut dots: Vec<Dot> = record
                .points
                .iter()
                .enumerate()
                .filter(|(_, point)| point.loop_kind == loop_kind)
                .filter_map(|(at, point)| dot(at, point, registry.figure_marks(point)))
                // A rate of zero has no place on a logarithmic axis.
                .filter(|dot| dot.rate_per_sec > 0.0 || !search)
                .collect();
            dots.sort_by(|a, b| a.rate_per_sec.total_cmp(&b.rate_per_sec));
            if !dots.is_empty() {
                let closed = loop_kind == LoopKind::Closed;
                let marks = if closed { Vec::new() } else { marks(record, registry) };
                curves.push(Curve { run, label: record.label.clone(), closed, dots, marks });
            }
        }
    }
    let mut offered =
        curves.iter().flat_map(|curve: &Curve| &curve.dots).filter_map(|dot| dot.offered_per_sec);
    let first = offered.next();
    let one_load = offered.all(|rate| Some(rate) == first);
    if one_load && curves.iter().all(|curve| curve.dots.len() == 1) { Vec::new() } else { curves }
}

fn dot(at: usize, point: &LoadPoint, marks: FigureMarks) -> Option<Dot> {
    let believed = |rate: &f64| (0.0..RATE_LIMIT).contains(rate);
    let achieved_per_sec = Some(point.achieved_per_sec).filter(believed)?;
    let offered_per_sec = match point.loop_kind {
        LoopKind::Open => Some(point.offered_per_sec.filter(believed)?),
        LoopKind::Closed => None,
    };
    Some(Dot {
        point: at,
        name: point_name(point),
        rate_per_sec: offered_per_sec.unwrap_or(achieved_per_sec),
        offered_per_sec,
        achieved_per_sec,
        latency_ms: Stat::ALL.map(|stat| stat.of_ms(&point.latency_us)),
        signs: [marks.mean, marks.p50, marks.p90, marks.p99, marks.p999].map(FigureMark::sign),
        marks,
        saturated: point.saturated,
        over_bound: point.state() == LevelState::OverBound,
        valid: point.state() != LevelState::Invalid,
    })
}

/// Where the linear latency axis ends, in ms; points above are drawn as arrows at its edge.
pub(crate) fn linear_top_ms(curves: &[Curve], stat: Stat) -> f64 {
    let highest = |saturated_too: bool| {
        curves
            .iter()
            .flat_map(|curve| &curve.dots)
            .filter(|dot| saturated_too || !dot.saturated)
            .filter_map(|dot| dot.latency_ms(stat))
            .fold(0.0, f64::max)
    };
    let (all, kept_up) = (highest(true), highest(false));
    let top = if kept_up > 0.0 { all.min(kept_up * LINEAR_HEADROOM) } else { all };
    if top > 0.0 { top * 1.06 } else { 1.0 }
}

/// The cumulative distribution of every load level of `record`; none when nothing was sampled. At first the levels that
/// [`levels::shown`] chooses are drawn.
pub(crate) fn cumulative(run: usize, record: &RunRecord) -> Option<Cumulative> {
    let mut points: Vec<&LoadPoint> = record.points.iter().filter(|p| p.histogram.count() > 0).collect();
    let load = |point: &LoadPoint| point.offered_per_sec.unwrap_or(point.achieved_per_sec);
    points.sort_by(|a, b| (a.loop_kind as u8).cmp(&(b.loop_kind as u8)).then(load(a).total_cmp(&load(b))));
    let steps: Vec<Vec<(f64, f64)>> = points.iter().map(|point| point.histogram.cumulative()).collect();
    let ends = steps.iter().filter_map(|line| Some((line.first()?.0, line.last()?.0)));
    let (first_us, last_us) = ends.reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))?;
    // The histogram's own bounds, 100 ns to an hour, keep this below 400 steps.
    let begin = (first_us.max(0.1).log10() * GRID_PER_DECADE).floor() as i32 - 1;
    let end = (last_us.max(0.1).log10() * GRID_PER_DECADE).ceil() as i32 + 1;
    let grid_us: Vec<f64> = (begin..=end).map(|step| 10f64.powf(f64::from(step) / GRID_PER_DECADE)).collect();
    let latency_ms: Vec<f64> = grid_us.iter().map(|us| us / 1e3).collect();
    let states: Vec<LevelState> = points.iter().map(|point| point.state()).collect();
    let shown = levels::shown(&states);
    let drawn = shown.iter().filter(|shown| **shown).count();
    let mut nth = 0;
    let level = |at: usize| {
        let (point, line) = (points[at], &steps[at]);
        let share_percent: Vec<f64> = grid_us.iter().map(|&us| 100.0 * share_within(line, us)).collect();
        let again = points[..at].iter().filter(|earlier| point_name(earlier) == point_name(point)).count();
        let place = shown[at].then_some((nth, drawn));
        nth += usize::from(shown[at]);
        Level {
            name: levels::again(point_name(point), again),
            tag: levels::tag(point, again, &latency_ms, &share_percent, place),
            share_percent,
            closed: point.loop_kind == LoopKind::Closed,
            saturated: point.saturated,
            valid: states[at] != LevelState::Invalid,
            shown: shown[at],
        }
    };
    let levels = (0..points.len()).map(level).collect();
    Some(Cumulative { run, latency_ms, levels })
}

fn share_within(line: &[(f64, f64)], us: f64) -> f64 {
    match line.partition_point(|&(latency_us, _)| latency_us <= us) {
        0 => 0.0,
        passed => line[passed - 1].1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_that_of_the_last_step_not_above() {
        let line = [(10.0, 0.25), (20.0, 0.75), (40.0, 1.0)];
        assert_eq!([9.9, 10.0, 39.0, 1e6].map(|us| share_within(&line, us)), [0.0, 0.25, 0.75, 1.0]);
    }

    #[test]
    fn the_linear_axis_is_not_flattened_by_a_saturated_point() {
        let dot = |ms: f64, saturated| Dot {
            point: 0,
            name: String::new(),
            rate_per_sec: 1.0,
            offered_per_sec: Some(1.0),
            achieved_per_sec: 1.0,
            latency_ms: [Some(ms); 5],
            signs: [""; 5],
            marks: FigureMarks::default(),
            saturated,
            over_bound: false,
            valid: true,
        };
        let curve = |dots| [Curve { run: 0, label: String::new(), closed: false, dots, marks: vec![] }];
        let top = linear_top_ms(&curve(vec![dot(2.0, false), dot(4000.0, true)]), Stat::P99);
        assert!((6.0..7.0).contains(&top), "{top}");
        assert!(linear_top_ms(&curve(vec![dot(4000.0, true)]), Stat::P99) > 4000.0);
        assert!(linear_top_ms(&[], Stat::P99) > 0.0);
    }
}
