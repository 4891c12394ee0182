//! Lines over passes: the median, lowest and highest of the repeats of each configuration.
//!
//! Invariant: every value is finite and above zero, and a line has at least one point.

use measure::statistics::median;
use measure::view::{PassLine, PassPoint};
use measure::{Phase, RunRecord};

use super::configurations::Configuration;

/// What is beyond is not believed: an imported record is wrong.
const LIMIT: f64 = 1e12;

fn believed(value: f64) -> Option<f64> {
    (value.is_finite() && value > 0.0 && value < LIMIT).then_some(value)
}

/// The phases of this name in which something was done.
pub(super) fn phases<'a>(run: &'a RunRecord, name: &'a str) -> impl Iterator<Item = &'a Phase> {
    run.phases.iter().filter(move |phase| phase.name == name && phase.items > 0)
}

/// A line whose points are `of` for each pass of each run.
pub(super) fn by_pass(
    configurations: &[Configuration<'_>],
    of: impl Fn(&RunRecord) -> Vec<(u32, f64)>,
) -> Vec<PassLine> {
    let line = |(at, configuration): (usize, &Configuration<'_>)| {
        let mut values: std::collections::BTreeMap<u32, Vec<f64>> = Default::default();
        for run in &configuration.runs {
            for (pass, value) in of(run) {
                values.entry(pass).or_default().extend(believed(value));
            }
        }
        let points = values.into_iter().filter_map(|(pass, values)| point(pass, &values)).collect();
        PassLine { configuration: at, name: configuration.name.clone(), points }
    };
    configurations.iter().enumerate().map(line).filter(|line| !line.points.is_empty()).collect()
}

fn point(pass: u32, values: &[f64]) -> Option<PassPoint> {
    Some(PassPoint {
        pass,
        y: median(values)?,
        low: values.iter().copied().fold(f64::INFINITY, f64::min),
        high: values.iter().copied().fold(0.0, f64::max),
        runs: values.len(),
    })
}

/// A figure's rate in its last pass as percent of the first's, and the slope of all by least squares, percent of the
/// first a pass.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Ageing {
    pub last_pass: u32,
    pub kept_percent: f64,
    pub trend_percent_per_pass: f64,
}

/// None for fewer than two passes.
pub(super) fn ageing(rates: &[(u32, f64)]) -> Option<Ageing> {
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
}
