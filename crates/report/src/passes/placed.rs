//! Where everything of a figure lies, in percent of its axes, for a page of any width and for SVG files.
//!
//! Always holds: places are from 0 to 100, upwards and to the right; names beside the axis never lie on each other;
//! a logarithmic axis has no bars, since it has no zero for them to stand on.

use measure::view::{Over, PassPoint, PublishedValue};
use serde::Serialize;

use super::{PassFigure, Unit};
use crate::axis::Axis;

/// Height of the axes in pixels, for which the names are kept apart.
pub(crate) const HEIGHT: u32 = 250;
/// Pixels from one name to the next.
const NAME_HEIGHT: f64 = 16.0;
/// A linear axis longer than this times its smallest value would show that as nothing.
const SPREAD_MAX: f64 = 25.0;

/// One way of drawing a figure.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Drawing {
    /// With the published values.
    pub published: bool,
    pub log: bool,
    /// What is on the value axis, with its unit.
    pub axis: String,
    pub ticks: Vec<Tick>,
    /// Of the passes; none for bars.
    pub passes: Vec<Tick>,
    pub lines: Vec<PlacedLine>,
    pub references: Vec<PlacedReference>,
    /// Place of 100%, where that is the measure.
    pub whole: Option<f64>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Tick {
    pub at: f64,
    pub text: String,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct PlacedLine {
    pub configuration: usize,
    pub name: String,
    pub dots: Vec<Dot>,
}

/// A point: `across` the passes and `at` its value.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Dot {
    pub across: f64,
    pub at: f64,
    pub low: f64,
    pub high: f64,
    pub pass: u32,
    pub runs: usize,
    pub text: String,
    /// Lowest and highest of the repeats.
    pub range: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct PlacedReference {
    pub at: f64,
    /// Place of its pass; none for a line all across.
    pub across: Option<f64>,
    pub name: &'static str,
    pub text: &'static str,
    pub source: &'static str,
    /// Where the name stands beside the axis.
    pub name_at: f64,
}

impl Drawing {
    pub fn of(figure: &PassFigure, published: bool) -> Self {
        let shown: &[PublishedValue] = if published { &figure.published } else { &[] };
        let unit = if published { figure.unit().coarser() } else { figure.unit() };
        let own = figure.frame.lines.iter().flat_map(|line| &line.points);
        let values: Vec<f64> = own
            .flat_map(|point| [point.low, point.high])
            .chain(shown.iter().map(|value| value.value))
            .chain((figure.frame.over == Over::PassesAroundWhole).then_some(100.0))
            .map(|value| value / unit.divisor)
            .collect();
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(0.0, f64::max);
        let log = published && high / low > SPREAD_MAX;
        let axis = match (figure.frame.over, log) {
            (_, true) => Axis::log(low, high),
            (Over::PassesAroundWhole, _) => Axis::between(low, high, 6),
            (Over::Runs, _) => Axis::linear(1.04 * high, 5),
            (Over::Passes, _) => Axis::linear(1.06 * high, 5),
        };
        let axis = if log && figure.frame.over == Over::Runs { axis.decades() } else { axis };
        let place = |value: f64| axis.place(value / unit.divisor);
        let across = Across::of(figure);
        let dots = |points: &[PassPoint]| -> Vec<Dot> {
            points
                .iter()
                .map(|point| Dot {
                    across: across.place(point.pass),
                    at: place(point.y),
                    low: place(point.low),
                    high: place(point.high),
                    pass: point.pass,
                    runs: point.runs,
                    text: unit.text(point.y),
                    range: (point.runs > 1)
                        .then(|| format!("{} to {}", unit.bare(point.low), unit.bare(point.high))),
                })
                .collect()
        };
        let lines = figure.frame.lines.iter().map(|line| PlacedLine {
            configuration: line.configuration,
            name: line.name.clone(),
            dots: dots(&line.points),
        });
        let reference = |value: &PublishedValue| PlacedReference {
            at: place(value.value),
            // A pass that the runs do not reach: drawn all across, and the name says which.
            across: value.pass.filter(|pass| across.reaches(*pass)).map(|pass| across.place(pass)),
            name: value.name,
            text: value.text,
            source: value.source,
            name_at: place(value.value),
        };
        let mut references: Vec<PlacedReference> = shown.iter().map(reference).collect();
        keep_apart(&mut references);
        Self {
            published,
            log,
            axis: axis_title(figure, unit, log),
            ticks: axis
                .ticks
                .iter()
                .map(|tick| Tick { at: axis.place(*tick), text: crate::svg::plain(*tick) })
                .collect(),
            passes: across.ticks(figure),
            lines: lines.collect(),
            references,
            whole: (figure.frame.over == Over::PassesAroundWhole).then(|| place(100.0)),
        }
    }
}

/// What is on the value axis, in words.
fn axis_title(figure: &PassFigure, unit: Unit, log: bool) -> String {
    let log = if log { ", logarithmic" } else { "" };
    match unit.name {
        "/s" => format!("{} per second{log}", figure.frame.what),
        "%" => format!("% {}{log}", figure.frame.what),
        name => format!("{}, {name}{log}", figure.frame.what),
    }
}

/// The axis of the passes.
struct Across {
    first: u32,
    last: u32,
}

impl Across {
    fn of(figure: &PassFigure) -> Self {
        let passes = figure.passes();
        Self { first: passes.first().map_or(1, |first| *first), last: passes.last().map_or(1, |last| *last) }
    }

    fn reaches(&self, pass: u32) -> bool {
        (self.first..=self.last).contains(&pass)
    }

    /// Half a pass is left at both ends.
    fn place(&self, pass: u32) -> f64 {
        100.0 * (f64::from(pass) - f64::from(self.first) + 0.5)
            / (f64::from(self.last) - f64::from(self.first) + 1.0)
    }

    fn ticks(&self, figure: &PassFigure) -> Vec<Tick> {
        const TICKS_MAX: usize = 15;
        if figure.frame.over == Over::Runs {
            return vec![];
        }
        let passes = figure.passes();
        let step = passes.len().div_ceil(TICKS_MAX);
        let some = passes.iter().step_by(step);
        some.map(|pass| Tick { at: self.place(*pass), text: pass.to_string() }).collect()
    }
}

/// Moves names that would lie on each other, as little as may be, and keeps their order.
fn keep_apart(references: &mut [PlacedReference]) {
    let gap = 100.0 * NAME_HEIGHT / f64::from(HEIGHT);
    references.sort_by(|a, b| b.at.total_cmp(&a.at));
    // Downwards from the highest; what falls below the axis lifts those above it.
    let mut above = f64::INFINITY;
    for reference in references.iter_mut() {
        reference.name_at = reference.name_at.min(above - gap);
        above = reference.name_at;
    }
    let mut below = -gap;
    for reference in references.iter_mut().rev() {
        reference.name_at = reference.name_at.max(below + gap);
        below = reference.name_at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kept_apart_and_in_order() {
        let at = |at: f64| PlacedReference { at, across: None, name: "", text: "", source: "", name_at: at };
        let mut references: Vec<_> = [3.0, 1.0, 2.0, 90.0, 91.0].map(at).into();
        keep_apart(&mut references);
        let places: Vec<f64> = references.iter().map(|reference| reference.name_at).collect();
        assert!(places.windows(2).all(|pair| pair[0] - pair[1] >= 6.39), "{places:?}");
        assert!(places.iter().all(|place| (0.0..=100.0).contains(place)), "{places:?}");
    }
}
