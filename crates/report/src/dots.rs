//! The numbers of the dot plot: every figure of a comparison as ratios on one logarithmic axis.
//!
//! ```text
//!                0.9    1    1.1
//! Transactions    |     |  [-●-]     B    interval and ratio; the runs are small dots behind it
//! ```
//!
//! Always holds: places are percent of the axis' length, from 0 to 100, so that a page of any width can draw
//! them; the axis holds 1 and every interval's end that lies within a factor of 100.

use serde::Serialize;

use crate::captions;
use crate::compare::{Comparison, Figure, Verdict, ratio_text};
use crate::figures::figure_text;

/// The whole plot.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct DotPlot {
    pub ticks: Vec<Tick>,
    /// Place of ratio 1.
    pub one: f64,
    pub rows: Vec<DotRow>,
    /// Some interval continues beyond the axis.
    pub any_beyond: bool,
    /// What is to be seen, in a sentence a side.
    pub caption: String,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Tick {
    pub at: f64,
    pub text: String,
}

/// One figure.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct DotRow {
    pub title: String,
    pub headline: bool,
    /// `higher`, `lower` or nothing is better.
    pub better: &'static str,
    /// By side, the baseline too.
    pub sides: Vec<SideDots>,
}

/// One side of a figure.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SideDots {
    pub side: usize,
    pub n: usize,
    pub median: String,
    /// Its runs, normalised by the baseline's median.
    pub runs: Vec<f64>,
    /// Ratio's place; the baseline's is that of 1.
    pub at: Option<f64>,
    /// Places of the interval's ends; of one that continues beyond the axis the axis' own end.
    pub low: Option<f64>,
    pub high: Option<f64>,
    /// The interval continues beyond the axis, to the left or to the right.
    pub beyond_low: bool,
    pub beyond_high: bool,
    pub ratio: String,
    pub interval: String,
    pub confidence: String,
    pub shown: &'static str,
    /// `good`, `bad` or nothing: how `shown` is coloured.
    pub mood: &'static str,
}

/// The axis is never shorter than from 0.95 to 1.05, where noise would look like news.
const SPAN_MIN: f64 = 1.05;
/// Nor longer than this on one side of 1.
const SPAN_MAX: f64 = 100.0;
const TICKS_MAX: usize = 7;

impl DotPlot {
    /// None when no figure has a ratio.
    pub fn of(comparison: &Comparison) -> Option<Self> {
        let ratios = comparison.figures.iter().flat_map(|figure| &figure.against);
        let ends = ratios.flat_map(|of| [of.low.or(of.ratio), of.high.or(of.ratio)]).flatten();
        let ends: Vec<f64> = ends.filter(|ratio| ratio.is_finite() && *ratio > 0.0).collect();
        if ends.is_empty() {
            return None;
        }
        let low = ends.iter().copied().fold(1.0 / SPAN_MIN, f64::min).max(1.0 / SPAN_MAX) / 1.015;
        let high = ends.iter().copied().fold(SPAN_MIN, f64::max).min(SPAN_MAX) * 1.015;
        let place = |ratio: f64| 100.0 * (ratio / low).ln() / (high / low).ln();
        let ticks =
            ticks(low, high).into_iter().map(|ratio| Tick { at: place(ratio), text: tick_text(ratio) });
        let rows = comparison.figures.iter().filter(|figure| {
            figure.sides[0].median.is_some_and(|median| median > 0.0)
                && figure.against.iter().any(|of| of.ratio.is_some())
        });
        let rows: Vec<DotRow> = rows.map(|figure| DotRow::of(figure, &place)).collect();
        let beyond = |side: &SideDots| side.beyond_low || side.beyond_high;
        let any_beyond = rows.iter().flat_map(|row| &row.sides).any(beyond);
        let caption = captions::of_comparison(comparison, rows.len());
        Some(Self { ticks: ticks.collect(), one: place(1.0), rows, any_beyond, caption })
    }
}

impl DotRow {
    fn of(figure: &Figure, place: &dyn Fn(f64) -> f64) -> Self {
        let within = |at: f64| Some(at).filter(|at| (0.0..=100.0).contains(at));
        let baseline = figure.sides[0].median.unwrap_or(1.0);
        let side = |side: usize| {
            let samples = &figure.sides[side];
            let of = side.checked_sub(1).map(|at| &figure.against[at]);
            let ends = of.and_then(|of| of.low.zip(of.high));
            SideDots {
                side,
                n: samples.values.len(),
                median: samples
                    .median
                    .map_or_else(|| "–".to_owned(), |median| figure_text(&figure.unit, median)),
                runs: samples
                    .values
                    .iter()
                    .filter(|value| **value > 0.0)
                    .filter_map(|value| within(place(value / baseline)))
                    .collect(),
                at: match of {
                    None => within(place(1.0)),
                    Some(of) => of.ratio.and_then(|ratio| within(place(ratio))),
                },
                low: ends.map(|(low, _)| place(low).clamp(0.0, 100.0)),
                high: ends.map(|(_, high)| place(high).clamp(0.0, 100.0)),
                beyond_low: ends.is_some_and(|(low, _)| place(low) < 0.0),
                beyond_high: ends.is_some_and(|(_, high)| place(high) > 100.0),
                ratio: of.and_then(|of| of.ratio).map_or_else(|| "–".to_owned(), ratio_text),
                interval: ends.map_or_else(
                    || "–".to_owned(),
                    |(low, high)| format!("{} to {}", ratio_text(low), ratio_text(high)),
                ),
                confidence: of.map_or_else(String::new, |of| confidence_text(of.confidence)),
                shown: match of {
                    None => "baseline",
                    Some(of) if of.verdict == Verdict::NoDifferenceShown => "no difference shown",
                    Some(of) if of.verdict == Verdict::TooFewRepeats => "too few repeats",
                    Some(of) => figure.word(of),
                },
                mood: match of.map(|of| of.verdict) {
                    Some(Verdict::Faster) => "good",
                    Some(Verdict::Slower) => "bad",
                    _ => "",
                },
            }
        };
        Self {
            title: figure.title.clone(),
            headline: figure.headline,
            better: match figure.better {
                measure::Better::Higher => "higher",
                measure::Better::Lower => "lower",
                measure::Better::Unknown => "",
            },
            sides: (0..figure.sides.len())
                .filter(|at| !figure.sides[*at].values.is_empty())
                .map(side)
                .collect(),
        }
    }
}

/// 0.95 as `95%`, 0.9972 as `99.7%`, 0.99917 as `99.92%`.
pub(crate) fn confidence_text(confidence: f64) -> String {
    let percent = 100.0 * confidence;
    let decimals = if percent < 95.05 { 0 } else { usize::from(percent > 99.8) + 1 };
    format!("{}%", crate::figures::grouped(percent, decimals))
}

/// Round ratios within the axis: the finest set that leaves room for its numbers.
fn ticks(low: f64, high: f64) -> Vec<f64> {
    let even = |step: f64| (1..200).map(|at| f64::from(at) * step).collect::<Vec<f64>>();
    let decades = |digits: &[f64]| -> Vec<f64> {
        (-3..=3).flat_map(|power| digits.iter().map(move |digit| digit * 10f64.powi(power))).collect()
    };
    let sets = [
        even(0.01),
        even(0.02),
        even(0.05),
        even(0.1),
        vec![0.2, 0.25, 0.33, 0.5, 0.67, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0],
        vec![0.2, 0.33, 0.5, 1.0, 2.0, 3.0, 5.0],
        decades(&[1.0, 2.0, 5.0]),
        decades(&[1.0]),
    ];
    let inside = |set: &Vec<f64>| -> Vec<f64> {
        set.iter().copied().filter(|ratio| (low * 0.9999..=high * 1.0001).contains(ratio)).collect()
    };
    let fitting = sets.iter().map(inside).find(|set| set.len() <= TICKS_MAX);
    fitting.unwrap_or_else(|| vec![1.0])
}

fn tick_text(ratio: f64) -> String {
    let text = format!("{ratio:.2}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_axis_has_some_ticks_and_one_of_them_is_1() {
        for (low, high) in [(0.94, 1.06), (0.5, 1.1), (0.9, 3.0), (0.01, 100.0), (0.2, 46.0)] {
            let ticks = ticks(low, high);
            assert!((3..=TICKS_MAX).contains(&ticks.len()), "{low} to {high}: {ticks:?}");
            assert!(ticks.iter().any(|tick| (tick - 1.0).abs() < 1e-9), "{low} to {high}: {ticks:?}");
        }
    }

    #[test]
    fn an_interval_beyond_the_axis_ends_at_it_and_is_marked_there() {
        let samples =
            |values: &[f64]| crate::compare::Samples { values: values.to_vec(), median: Some(values[0]) };
        let figure = Figure {
            kind: crate::compare::FigureKind::Metric,
            name: "made_up_us".to_owned(),
            title: "Made up".to_owned(),
            unit: "us".to_owned(),
            better: measure::Better::Lower,
            headline: true,
            sides: vec![samples(&[1.0]), samples(&[2.0])],
            against: vec![crate::compare::Against {
                side: 1,
                headline: true,
                ratio: Some(2.0),
                low: Some(0.5),
                high: Some(30_000.0),
                confidence: 0.95,
                verdict: Verdict::NoDifferenceShown,
            }],
        };
        let place = |ratio: f64| 100.0 * (ratio / 0.01).ln() / (100.0_f64 / 0.01).ln();
        let row = DotRow::of(&figure, &place);
        let side = &row.sides[1];
        assert!(side.high == Some(100.0) && side.beyond_high && !side.beyond_low, "{side:?}");
        assert!(side.at.is_some_and(|at| at < 100.0));
        assert!(!row.sides[0].beyond_high, "the baseline has no interval");
    }

    #[test]
    fn a_confidence_keeps_the_digit_that_counts() {
        assert_eq!([0.95, 0.9972, 0.99917].map(confidence_text), ["95%", "99.7%", "99.92%"]);
    }
}
