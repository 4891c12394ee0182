//! An axis with round ticks, linear or logarithmic, in one type for plotters.
//!
//! Always holds: `low < high`, both finite; ticks lie within them.

use std::ops::Range;

use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};

/// From `low` to `high`, with ticks.
#[derive(Clone, Debug)]
pub(crate) struct Axis {
    pub low: f64,
    pub high: f64,
    pub ticks: Vec<f64>,
    log: bool,
}

impl Axis {
    /// From zero to `end`, with about `wanted` steps of 1, 2 or 5.
    pub fn linear(end: f64, wanted: u32) -> Self {
        let end = if end.is_finite() && end > 0.0 { end } else { 1.0 };
        let step = step(end / f64::from(wanted));
        let ticks = (0..=wanted).map(|at| f64::from(at) * step).filter(|tick| *tick <= end);
        Self { low: 0.0, high: end, ticks: ticks.collect(), log: false }
    }

    /// From zero to `high` with these ticks.
    pub fn fixed(high: f64, ticks: &[f64]) -> Self {
        Self { low: 0.0, high, ticks: ticks.to_vec(), log: false }
    }

    /// Around the values from `low` to `high`, not from zero.
    pub fn between(low: f64, high: f64, wanted: u32) -> Self {
        let fine = low.is_finite() && high.is_finite() && low <= high;
        let (low, high) = if fine { (low, high) } else { (0.0, 1.0) };
        let room = (0.06 * (high - low)).max(0.01 * high.abs()).max(1e-9);
        let (low, high) = (low - room, high + room);
        let step = step((high - low) / f64::from(wanted));
        let first = (low / step).ceil();
        let ticks = (0..=2 * wanted).map(|at| (first + f64::from(at)) * step).filter(|tick| *tick <= high);
        Self { low, high, ticks: ticks.collect(), log: false }
    }

    /// Logarithmic over `low` to `high`, with some room at both ends; ticks at 1, 2 and 5 over few decades,
    /// at powers of ten over many.
    pub fn log(low: f64, high: f64) -> Self {
        let low = if low.is_finite() && low > 0.0 { low * 0.8 } else { 0.1 };
        let high = if high.is_finite() && high > low { high * 1.25 } else { low * 10.0 };
        let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
        let digits: &[f64] = if (high / low).log10() > 3.5 { &[1.0] } else { &[1.0, 2.0, 5.0] };
        let ticks = decades.flat_map(|decade| digits.iter().map(move |digit| digit * 10f64.powi(decade)));
        Self { low, high, ticks: ticks.filter(|tick| (low..=high).contains(tick)).collect(), log: true }
    }

    /// The same with ticks at powers of ten alone, where two of them are there: for numbers side by side.
    pub fn decades(mut self) -> Self {
        let whole = |tick: &f64| (tick.log10() - tick.log10().round()).abs() < 1e-9;
        if self.ticks.iter().filter(|tick| whole(tick)).count() > 1 {
            self.ticks.retain(whole);
        }
        self
    }

    /// Where `value` lies, in percent of the axis.
    pub fn place(&self, value: f64) -> f64 {
        100.0 * self.share(value).clamp(0.0, 1.0)
    }

    fn share(&self, value: f64) -> f64 {
        let share = if self.log {
            (value.max(self.low / 10.0) / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        };
        share.clamp(-1.0, 2.0)
    }
}

/// The next of 1, 2 and 5 in any decade.
fn step(rough: f64) -> f64 {
    let decade = 10f64.powf(rough.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|digit| digit * decade);
    steps.into_iter().find(|step| *step >= rough).unwrap_or(rough)
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, limit: (i32, i32)) -> i32 {
        limit.0 + (self.share(*value) * f64::from(limit.1 - limit.0)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, _hint: Hint) -> Vec<f64> {
        self.ticks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.low..self.high
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside_their_axis() {
        assert_eq!(Axis::linear(4160.0, 8).ticks, [0.0, 1000.0, 2000.0, 3000.0, 4000.0]);
        let log = Axis::log(0.5, 72.0);
        assert!(log.ticks.iter().all(|tick| (log.low..=log.high).contains(tick)), "{log:?}");
        assert_eq!(log.ticks, [0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0]);
    }

    #[test]
    fn an_axis_around_its_values_begins_below_them_and_has_round_ticks() {
        let axis = Axis::between(84.2, 103.0, 6);
        assert!(axis.low < 84.2 && axis.high > 103.0, "{axis:?}");
        assert_eq!(axis.ticks, [85.0, 90.0, 95.0, 100.0]);
        let flat = Axis::between(100.0, 100.0, 6);
        assert!(flat.low < 100.0 && flat.high > 100.0 && flat.ticks.contains(&100.0), "{flat:?}");
        assert!(Axis::between(f64::NAN, 1.0, 6).low < 1.0);
    }

    #[test]
    fn an_axis_of_nonsense_is_still_an_axis() {
        for axis in [Axis::linear(f64::NAN, 8), Axis::log(0.0, -1.0), Axis::log(f64::NAN, f64::INFINITY)] {
            assert!(axis.low < axis.high && axis.high.is_finite() && !axis.ticks.is_empty(), "{axis:?}");
        }
    }

    #[test]
    fn both_ends_of_an_axis_lie_at_its_limits() {
        for axis in [Axis::linear(50.0, 5), Axis::log(1.0, 100.0)] {
            assert_eq!([axis.low, axis.high].map(|end| axis.map(&end, (300, 0))), [300, 0]);
        }
    }
}
