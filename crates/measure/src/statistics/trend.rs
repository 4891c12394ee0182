//! Whether figures measured one after another have a trend, where each may be like the one before.
//!
//! ```text
//! slope by least squares; its interval: slope -+ c(n, rho) * standard error
//! rho     how much a deviation is like the one before it (lag 1 of what the line leaves), corrected for the bias of
//!         short series, and taken at the upper end of what the series allows, at least 0.6
//! c       the 95% point of |slope| / standard error among series of n figures without a trend, whose deviations
//!         follow an autoregression of that rho: found by simulation with a fixed seed
//! ```
//!
//! Student's interval, which takes figures for independent, shows a trend in a quarter of series of 14 figures without
//! one where rho is 0.7: what slows one pass slows the next. The test at the bottom says how often this one does.
//!
//! Always holds: equal figures give equal intervals.
//! Not here: what wears out (the benchmarks).

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// How figures change from one to the next.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Trend {
    /// Change for each step to the right.
    pub slope: f64,
    /// How far the 95% interval of the slope reaches to either side; none for fewer than [`POINTS_MIN`] figures.
    pub reach: Option<f64>,
}

/// Figures below which a slope has no interval: with fewer nothing is known of how one depends on the one before.
pub const POINTS_MIN: usize = 5;
/// What is taken for the likeness of neighbours at least: short series show less of it than there is.
const RHO_MIN: f64 = 0.6;
const RHO_MAX: f64 = 0.95;
/// Simulated series are of a likeness that is a multiple of this.
const RHO_STEP: f64 = 0.05;
/// Standard errors that the likeness may be above its estimate.
const RHO_ABOVE: f64 = 2.2;
const CONFIDENCE: f64 = 0.95;
const SERIES: usize = 8000;

impl Trend {
    /// Of figures `(x, y)` by rising `x`; none for fewer than two.
    pub fn of(points: &[(f64, f64)]) -> Option<Self> {
        let fit = Fit::of(points)?;
        let reach = (points.len() >= POINTS_MIN).then(|| {
            let count = points.len() as f64;
            let unbiased = fit.likeness + (1.0 + 2.0 * fit.likeness) / (count - 2.0);
            let rho = (unbiased + RHO_ABOVE / count.sqrt()).clamp(RHO_MIN, RHO_MAX);
            critical(points.len(), (rho / RHO_STEP - 1e-9).ceil() as u32) * fit.error
        });
        Some(Self { slope: fit.slope, reach })
    }

    /// Whether the interval leaves out a slope of 0.
    pub fn is_shown(&self) -> bool {
        self.reach.is_some_and(|reach| self.slope.abs() > reach)
    }
}

/// A line by least squares.
struct Fit {
    slope: f64,
    /// Standard error of the slope, if deviations were independent.
    error: f64,
    /// Autocorrelation of the deviations at lag 1.
    likeness: f64,
}

impl Fit {
    fn of(points: &[(f64, f64)]) -> Option<Self> {
        let count = points.len() as f64;
        let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / count;
        let (mean_x, mean_y) = (mean(|point| point.0), mean(|point| point.1));
        let along: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
        let across: f64 = points.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
        let slope = (along > 0.0).then(|| across / along)?;
        let left: Vec<f64> = points.iter().map(|(x, y)| y - mean_y - slope * (x - mean_x)).collect();
        let squares: f64 = left.iter().map(|off| off * off).sum();
        let neighbours: f64 = left.windows(2).map(|pair| pair[0] * pair[1]).sum();
        let freedom = (count - 2.0).max(1.0);
        let likeness = if squares > 0.0 { neighbours / squares } else { 0.0 };
        Some(Self { slope, error: (squares / freedom / along).sqrt(), likeness })
    }
}

/// The 95% point of `|slope| / error` among series of `count` figures without a trend.
fn critical(count: usize, rho_steps: u32) -> f64 {
    static FOUND: Mutex<BTreeMap<(usize, u32), f64>> = Mutex::new(BTreeMap::new());
    let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    *found.entry((count, rho_steps)).or_insert_with(|| {
        let mut draws = Draws(0x5eed);
        let mut ratios: Vec<f64> = (0..SERIES)
            .filter_map(|_| {
                let fit = Fit::of(&draws.series(count, RHO_STEP * f64::from(rho_steps)))?;
                Some(fit.slope.abs() / fit.error)
            })
            .collect();
        ratios.sort_by(f64::total_cmp);
        ratios[(CONFIDENCE * ratios.len() as f64) as usize]
    })
}

/// SplitMix64 (Steele, Lea, Flood 2014), made normal by Box and Muller's way.
struct Draws(u64);

impl Draws {
    fn uniform(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        ((bits >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * self.uniform().ln()).sqrt();
        radius * (std::f64::consts::TAU * self.uniform()).cos()
    }

    /// `count` figures without a trend, each like the one before by `rho`.
    fn series(&mut self, count: usize, rho: f64) -> Vec<(f64, f64)> {
        let mut y = self.normal() / (1.0 - rho * rho).sqrt();
        let next = |at: usize| {
            if at > 0 {
                y = rho * y + self.normal();
            }
            (at as f64, y)
        };
        (0..count).map(next).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Share of series, each falling by `drop` from its first figure to its last, in which a trend is shown.
    fn shown(count: usize, rho: f64, drop: f64, shows: impl Fn(&[(f64, f64)]) -> bool) -> f64 {
        let (mut draws, series) = (Draws(7), 2000);
        let falls = |&(x, y): &(f64, f64)| (x, y - drop * x / (count - 1) as f64);
        let shows = (0..series)
            .filter(|_| shows(&draws.series(count, rho).iter().map(falls).collect::<Vec<_>>()))
            .count();
        shows as f64 / f64::from(series)
    }

    fn trend_shown(points: &[(f64, f64)]) -> bool {
        Trend::of(points).is_some_and(|trend| trend.is_shown())
    }

    /// Symptom: runs on storage that cannot age were said to age, 5 of 12. Cause: passes of one run were taken for
    /// independent. 5% of 2,000 series have a standard error of 0.5%.
    #[test]
    fn without_a_trend_none_is_shown_but_in_one_of_twenty_also_where_passes_are_like_their_neighbours() {
        for count in [5, 8, 14, 28] {
            for rho in [0.0, 0.3, 0.5, 0.7] {
                let share = shown(count, rho, 0.0, trend_shown);
                assert!(share <= 0.06, "{count} figures, rho {rho}: {share}");
            }
        }
        // What Student's interval for independent figures did: 2.179 for 12 degrees of freedom.
        let student = |points: &[(f64, f64)]| {
            let fit = Fit::of(points).unwrap();
            fit.slope.abs() > 2.179 * fit.error
        };
        assert!(shown(14, 0.7, 0.0, student) > 0.2);
    }

    #[test]
    fn a_fall_of_some_deviations_is_shown() {
        assert!(shown(14, 0.0, 8.0, trend_shown) > 0.9);
        assert!(shown(5, 0.0, 20.0, trend_shown) > 0.9);
        let falling: Vec<(f64, f64)> =
            (0..6).map(|pass| (f64::from(pass), 100.0 - f64::from(pass))).collect();
        let trend = Trend::of(&falling).unwrap();
        assert!((trend.slope + 1.0).abs() < 1e-9 && trend.is_shown(), "{trend:?}");
    }

    #[test]
    fn few_figures_have_a_slope_and_no_interval() {
        let points = [(1.0, 4.0), (2.0, 2.0), (3.0, 3.0), (4.0, 1.0)];
        let trend = Trend::of(&points).unwrap();
        assert_eq!((trend.reach, trend.is_shown()), (None, false));
        assert_eq!(trend.slope, -0.8);
        assert_eq!(Trend::of(&points[..1]), None);
    }
}
