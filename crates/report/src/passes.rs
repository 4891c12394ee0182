//! Figures of what is done pass after pass: rates and times, a line a configuration, repeats as a spread.
//!
//! ```text
//! configurations -> Line (median, lowest, highest over the repeats) -> PassFigure -> Drawing: places in percent
//!                              published values: Reference           ---^             with them, and without
//! ```
//!
//! Always holds: every value is finite and above zero; a figure has at least one line and a line at least one
//! point; the axis is linear until the published values, drawn with it, would squeeze everything else flat.
//! Not here: which figures a benchmark has (see `netnews`), how they are laid out (the template, `svg`).

mod placed;

use measure::statistics::median;
use measure::{Phase, RunRecord};
use serde::Serialize;

use crate::configurations::Configuration;
use crate::figures::ms_text;
pub(crate) use placed::{Drawing, HEIGHT};

/// The published values as a layer over figures of passes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reference {
    /// Drawn where they fit on the axis of the runs' own values. On the page each figure's can be switched.
    #[default]
    Auto,
    /// Drawn in all figures, on a logarithmic axis where they need one; they can be switched off on the page.
    On,
    /// Left out.
    Off,
}

/// All figures of a page that belong together.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PassSection {
    pub title: &'static str,
    pub read: &'static str,
    pub figures: Vec<PassFigure>,
    /// Where the published values are from; nothing when they are left out.
    pub source: Option<&'static str>,
    /// Each published value once, drawn or not.
    pub published: Vec<Published>,
}

/// What a figure is, before it has values.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Frame {
    /// Names its files and its element.
    pub id: &'static str,
    /// Which figure of the publication it is like.
    pub like: &'static str,
    pub title: &'static str,
    pub read: String,
    pub over: Over,
    /// What the values are, without their unit.
    pub what: &'static str,
    pub unit: Unit,
    /// Sentences with the figures that matter, one a configuration or less.
    pub told: Vec<String>,
}

/// One figure.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PassFigure {
    #[serde(flatten)]
    pub frame: Frame,
    pub lines: Vec<Line>,
    pub published: Vec<Published>,
    /// Without published values, and with them where there are any.
    pub drawings: Vec<Drawing>,
    /// Whether the second drawing is the one to show first.
    pub published_first: bool,
}

/// What is along the other axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Over {
    /// Nothing: one value a configuration, as bars.
    Runs,
    /// The passes, as lines; the axis begins at zero.
    Passes,
    /// The same; the axis holds 100% and does not begin at zero.
    PassesAroundWhole,
}

/// A unit and what a value in the base unit is divided by.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Unit {
    pub name: &'static str,
    pub divisor: f64,
}

/// One configuration's values.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Line {
    /// Which configuration: chooses colour and mark.
    pub configuration: usize,
    pub name: String,
    pub points: Vec<Point>,
}

/// The repeats of one pass.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Point {
    /// 0 for a value of the whole run.
    pub pass: u32,
    pub y: f64,
    pub low: f64,
    pub high: f64,
    pub runs: usize,
}

/// A value that somebody has published.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Published {
    pub name: &'static str,
    /// In the figure's base unit.
    pub value: f64,
    /// The value as the publication has it.
    pub text: &'static str,
    /// Of what the value is.
    pub of: &'static str,
    /// The pass that it is of; none: of all.
    pub pass: Option<u32>,
    /// Figure or section.
    pub source: &'static str,
    /// Ids of the figures in which it is drawn.
    #[serde(skip)]
    pub drawn: &'static [&'static str],
}

impl Unit {
    pub const PER_SEC: Self = Self { name: "/s", divisor: 1.0 };
    pub const PERCENT: Self = Self { name: "%", divisor: 1.0 };

    /// Of seconds: minutes where they are many.
    pub fn of_seconds(highest_s: f64) -> Self {
        match highest_s {
            s if s >= 120.0 => Self { name: "min", divisor: 60.0 },
            s if s >= 0.5 => Self { name: "s", divisor: 1.0 },
            _ => Self { name: "ms", divisor: 1e-3 },
        }
    }

    /// For values beside published ones: minutes of 1996 are too many milliseconds to read.
    fn coarser(self) -> Self {
        if self.name == "ms" { Self { name: "s", divisor: 1.0 } } else { self }
    }

    /// A value in the base unit, with the unit's name.
    pub fn text(self, value: f64) -> String {
        let gap = if self.name.starts_with(['/', '%']) { "" } else { " " };
        format!("{}{gap}{}", self.bare(value), self.name)
    }

    /// The same without the name.
    pub fn bare(self, value: f64) -> String {
        // Three digits that count, as everywhere.
        ms_text(1e3 * value / self.divisor)
    }
}

/// What is beyond is not believed: an imported record is wrong.
const LIMIT: f64 = 1e12;

fn believed(value: f64) -> Option<f64> {
    (value.is_finite() && value > 0.0 && value < LIMIT).then_some(value)
}

/// The phases of this name in which something was done.
pub(crate) fn phases<'a>(run: &'a RunRecord, name: &'a str) -> impl Iterator<Item = &'a Phase> {
    run.phases.iter().filter(move |phase| phase.name == name && phase.items > 0)
}

/// A line whose points are `of` for each pass of each run.
pub(crate) fn by_pass(
    configurations: &[Configuration<'_>],
    of: impl Fn(&RunRecord) -> Vec<(u32, f64)>,
) -> Vec<Line> {
    let line = |(at, configuration): (usize, &Configuration<'_>)| {
        let mut values: std::collections::BTreeMap<u32, Vec<f64>> = Default::default();
        for run in &configuration.runs {
            for (pass, value) in of(run) {
                values.entry(pass).or_default().extend(believed(value));
            }
        }
        let points = values.into_iter().filter_map(|(pass, values)| Point::of(pass, &values)).collect();
        Line { configuration: at, name: configuration.name.clone(), points }
    };
    configurations.iter().enumerate().map(line).filter(|line| !line.points.is_empty()).collect()
}

impl Point {
    fn of(pass: u32, values: &[f64]) -> Option<Self> {
        Some(Self {
            pass,
            y: median(values)?,
            low: values.iter().copied().fold(f64::INFINITY, f64::min),
            high: values.iter().copied().fold(0.0, f64::max),
            runs: values.len(),
        })
    }
}

/// A figure's rate in its last pass as percent of the first's, and the slope of all by least squares, percent of the
/// first a pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ageing {
    pub last_pass: u32,
    pub kept_percent: f64,
    pub trend_percent_per_pass: f64,
}

/// None for fewer than two passes.
pub(crate) fn ageing(rates: &[(u32, f64)]) -> Option<Ageing> {
    let (Some(&(_, first)), Some(&(last_pass, last))) = (rates.first(), rates.last()) else { return None };
    let count = rates.len() as f64;
    let mean_pass = rates.iter().map(|(pass, _)| f64::from(*pass)).sum::<f64>() / count;
    let mean_rate = rates.iter().map(|(_, rate)| rate).sum::<f64>() / count;
    let (mut across, mut along) = (0.0, 0.0);
    for (pass, rate) in rates {
        let from_mean = f64::from(*pass) - mean_pass;
        across += from_mean * (rate - mean_rate);
        along += from_mean * from_mean;
    }
    (along > 0.0 && first > 0.0).then(|| Ageing {
        last_pass,
        kept_percent: 100.0 * last / first,
        trend_percent_per_pass: 100.0 * across / along / first,
    })
}

impl Frame {
    /// The figure, or nothing when it has no line.
    pub fn drawn(
        self,
        lines: Vec<Line>,
        published: &[Published],
        reference: Reference,
    ) -> Option<PassFigure> {
        if lines.is_empty() {
            return None;
        }
        let mine = published.iter().filter(|value| value.drawn.contains(&self.id)).copied();
        let published = if reference == Reference::Off { vec![] } else { mine.collect() };
        let mut figure =
            PassFigure { frame: self, lines, published, drawings: vec![], published_first: false };
        figure.drawings.push(Drawing::of(&figure, false));
        if !figure.published.is_empty() {
            let with = Drawing::of(&figure, true);
            figure.published_first = reference == Reference::On || !with.log;
            figure.drawings.push(with);
        }
        Some(figure)
    }
}

impl PassFigure {
    /// All passes that have a value, in order; one of 0 for bars.
    pub fn passes(&self) -> Vec<u32> {
        let mut passes: Vec<u32> =
            self.lines.iter().flat_map(|line| line.points.iter().map(|point| point.pass)).collect();
        passes.sort_unstable();
        passes.dedup();
        passes
    }

    /// The drawing that is shown unless the reader chooses otherwise.
    pub fn first(&self) -> &Drawing {
        let at = if self.published_first { self.drawings.len() - 1 } else { 0 };
        &self.drawings[at]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ageing_is_the_last_over_the_first_and_its_trend_the_slope_of_all() {
        let even: Vec<(u32, f64)> = (1..=5).map(|pass| (pass, 1_050.0 - 50.0 * f64::from(pass))).collect();
        let of = ageing(&even).unwrap();
        assert_eq!((of.last_pass, of.kept_percent), (5, 80.0));
        assert!((of.trend_percent_per_pass + 5.0).abs() < 1e-9, "{of:?}");
        assert_eq!(ageing(&even[..1]), None);
    }

    #[test]
    fn times_are_told_in_minutes_only_where_they_are_long() {
        assert_eq!(Unit::of_seconds(6_000.0).text(6_000.0), "100 min");
        assert_eq!(Unit::of_seconds(3.2).text(3.2), "3.20 s");
        assert_eq!(Unit::of_seconds(0.09).text(0.09), "90.0 ms");
        assert_eq!([Unit::PERCENT.text(86.5), Unit::PER_SEC.text(20_411.0)], ["86.5%", "20,411/s"]);
    }
}
