//! The numbers behind plots of a record's `curves`: one plot a curve name, the lines of all runs in it.
//!
//! Always holds: every number is finite and above zero, as both axes are logarithmic; the colour identifies the
//! line's label and the dashes the run, so that one layout on two machines is seen as such.
//! Not here: latency against load (see `series`).

use measure::{Metric, RunRecord};
use serde::Serialize;

/// All lines of one curve name.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LinePlot {
    /// As in the record, such as `lookup_random_us`.
    pub name: String,
    pub title: String,
    /// What is to the right, in words.
    pub over: String,
    /// Of the values drawn, which are the record's divided by the unit.
    pub unit: &'static str,
    pub lines: Vec<Line>,
    /// True when some point has an interval.
    pub intervals: bool,
}

/// One variant of one run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Line {
    /// Colour and mark: the same for the same variant of every run.
    pub variant: usize,
    /// Which run of those with curves: the dashes.
    pub group: usize,
    pub label: String,
    pub points: Vec<LinePoint>,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct LinePoint {
    pub x: f64,
    pub y: f64,
    pub low: Option<f64>,
    pub high: Option<f64>,
}

/// What is beyond is not believed: an imported record is wrong.
const LIMIT: f64 = 1e15;

/// What the first run that has this curve calls it.
fn title(runs: &[&RunRecord], name: &str) -> String {
    let of = runs.iter().find(|run| run.curves.iter().any(|curve| curve.name == name));
    of.map_or_else(|| Metric::undeclared(name), |run| run.metric(name)).title
}

/// The plots of these runs, in the order of the first run that has them.
pub(crate) fn plots(runs: &[&RunRecord]) -> Vec<LinePlot> {
    let mut names: Vec<(&str, &str)> = Vec::new();
    let mut variants: Vec<&str> = Vec::new();
    let with_curves: Vec<&RunRecord> = runs.iter().copied().filter(|run| !run.curves.is_empty()).collect();
    for curve in with_curves.iter().flat_map(|run| &run.curves) {
        if !names.iter().any(|(name, _)| *name == curve.name) {
            names.push((&curve.name, &curve.over));
        }
        for line in &curve.lines {
            if !variants.contains(&line.label.as_str()) {
                variants.push(&line.label);
            }
        }
    }
    let several = with_curves.len() > 1;
    let twins = |label: &str| with_curves.iter().filter(|run| run.label == label).count() > 1;
    let plot = |(name, over): (&str, &str)| {
        let mut lines = Vec::new();
        for (group, run) in with_curves.iter().enumerate() {
            for line in run.curves.iter().filter(|curve| curve.name == name).flat_map(|curve| &curve.lines) {
                let mut points: Vec<LinePoint> = line.points.iter().filter_map(believed).collect();
                points.sort_by(|a, b| a.x.total_cmp(&b.x));
                let end = run.id.0.rsplit('-').next().unwrap_or_default();
                let label = match (several, twins(&run.label)) {
                    (false, _) => line.label.clone(),
                    (true, false) => format!("{}, {}", line.label, run.label),
                    (true, true) => format!("{}, {} ({end})", line.label, run.label),
                };
                let variant = variants.iter().position(|known| *known == line.label).unwrap_or(0);
                if !points.is_empty() {
                    lines.push(Line { variant, group, label, points });
                }
            }
        }
        let (unit, divisor) = unit(name, &lines);
        for point in lines.iter_mut().flat_map(|line| &mut line.points) {
            point.y /= divisor;
            point.low = point.low.map(|low| low / divisor);
            point.high = point.high.map(|high| high / divisor);
        }
        LinePlot {
            name: name.to_owned(),
            title: title(&with_curves, name),
            over: over.replace('_', " "),
            unit,
            intervals: lines.iter().flat_map(|line| &line.points).any(|point| point.low.is_some()),
            lines,
        }
    };
    names.into_iter().map(plot).filter(|plot| !plot.lines.is_empty()).collect()
}

fn believed(point: &measure::CurvePoint) -> Option<LinePoint> {
    let fine = |number: f64| number.is_finite() && number > 0.0 && number < LIMIT;
    let (low, high) = point.low.zip(point.high).filter(|(low, high)| fine(*low) && fine(*high)).unzip();
    (fine(point.x) && fine(point.y)).then_some(LinePoint { x: point.x, y: point.y, low, high })
}

/// Microseconds as far as they are readable.
fn unit(name: &str, lines: &[Line]) -> (&'static str, f64) {
    let highest = lines.iter().flat_map(|line| &line.points).map(|point| point.y).fold(0.0, f64::max);
    match name.rsplit('_').next() {
        Some("us") if highest >= 1e7 => ("s", 1e6),
        Some("us") if highest >= 1e4 => ("ms", 1e3),
        Some("us") => ("µs", 1.0),
        Some("ms") => ("ms", 1.0),
        Some("s") => ("s", 1.0),
        Some("percent") => ("%", 1.0),
        _ if name.ends_with("_per_sec") => ("/s", 1.0),
        _ => ("", 1.0),
    }
}

impl LinePlot {
    /// Ends of what is drawn: x, then y with the intervals.
    pub fn ends(&self) -> [(f64, f64); 2] {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let over = |values: &mut dyn Iterator<Item = f64>| {
            values.fold((f64::INFINITY, 0.0f64), |(low, high), value| (low.min(value), high.max(value)))
        };
        [
            over(&mut points().map(|point| point.x)),
            over(
                &mut points()
                    .flat_map(|point| [point.y, point.low.unwrap_or(point.y), point.high.unwrap_or(point.y)]),
            ),
        ]
    }
}
