//! Latency against load of one run: the highest rate held, the knee, and up to which rate a latency bound is kept.
//!
//! ```text
//! ln(mean latency)                     x
//!      |                            .  |     chord from the lowest to the highest level held
//!      |                      .       x
//!      |                .            x
//!      |          .            K           K, the knee: the level furthest below the chord
//!      |  x    x     x    x
//!      +------------------------------------ rate
//! ```
//!
//! 1. Take the VALID levels of the open loop that the storage held, by rising rate. Of a rate that was measured several
//!    times the last level counts.
//! 2. Scale rates and logarithms of mean latencies to 0 at the lowest level and 1 at the highest.
//! 3. The knee is the level furthest below the chord, if it is far enough below.
//!
//! Saturated levels stay out: their latency is the length of the queue, which grows with the measured interval. A curve of
//! few levels, or one that hardly rises, has no knee.
//!
//! Always holds: each rate given was measured, never interpolated.
//! Source of the method: Satopää et al., "Finding a 'Kneedle' in a Haystack", ICDCS Workshops 2011, section III.

use crate::{LevelState, LoadPoint, LoopKind};

/// Levels held below which a curve has no shape.
const LEVELS_MIN: usize = 4;
/// The mean latency at the highest level must be this many times that at the lowest.
const RISE_MIN: f64 = 2.0;
/// The knee must be this far below the chord, of a chord from 0 to 1.
const DISTANCE_MIN: f64 = 0.1;

/// The levels that a run held.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadCurve {
    /// By rising rate.
    held: Vec<Level>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct Level {
    per_sec: f64,
    mean_us: f64,
    p99_us: f64,
}

/// A bound on the 99th percentile, and up to where it is kept.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KeptBound {
    /// A round number, microseconds.
    pub below_us: f64,
    /// All VALID levels up to this rate are below the bound.
    pub up_to_per_sec: f64,
}

impl LoadCurve {
    /// Of the open-loop levels among `points`.
    pub fn of(points: &[LoadPoint]) -> Self {
        let believed = |figure: f64| figure.is_finite() && figure > 0.0;
        let level = |point: &LoadPoint| {
            let is_open = point.loop_kind == LoopKind::Open;
            let (mean_us, p99_us) = (point.latency_us.mean, point.latency_us.p99);
            // Over a search's bound the storage still keeps up, and the figures are sound.
            let is_held = matches!(point.state(), LevelState::Valid | LevelState::OverBound);
            let per_sec = point.offered_per_sec.filter(|_| is_open && is_held)?;
            let fine = point.latency_us.count > 0 && [per_sec, mean_us, p99_us].into_iter().all(believed);
            fine.then_some(Level { per_sec, mean_us, p99_us })
        };
        // The last measured comes first among equals, and stays.
        let mut held: Vec<Level> = points.iter().rev().filter_map(level).collect();
        held.sort_by(|a, b| a.per_sec.total_cmp(&b.per_sec));
        held.dedup_by(|later, first| later.per_sec == first.per_sec);
        Self { held }
    }

    /// The highest rate held.
    pub fn highest_per_sec(&self) -> Option<f64> {
        self.held.last().map(|level| level.per_sec)
    }

    /// The rate at which latency begins to rise steeply.
    pub fn knee_per_sec(&self) -> Option<f64> {
        let (first, last) = (self.held.first()?, self.held.last()?);
        if self.held.len() < LEVELS_MIN || last.mean_us < RISE_MIN * first.mean_us {
            return None;
        }
        let height = (last.mean_us / first.mean_us).ln();
        let width = last.per_sec - first.per_sec;
        let below = |level: &Level| {
            (level.per_sec - first.per_sec) / width - (level.mean_us / first.mean_us).ln() / height
        };
        let knee = self.held.iter().max_by(|a, b| below(a).total_cmp(&below(b)))?;
        (below(knee) >= DISTANCE_MIN).then_some(knee.per_sec)
    }

    /// The next round bound above the 99th percentiles up to the knee, or of all levels without one, and up to where it is
    /// kept.
    pub fn kept_bound(&self) -> Option<KeptBound> {
        let calm_end = self.knee_per_sec().or(self.highest_per_sec())?;
        let calm = self.held.iter().filter(|level| level.per_sec <= calm_end);
        let below_us = round_above(calm.map(|level| level.p99_us).fold(0.0, f64::max));
        let kept = self.held.iter().take_while(|level| level.p99_us < below_us).last()?;
        Some(KeptBound { below_us, up_to_per_sec: kept.per_sec })
    }
}

/// The next of 1, 2 and 5 in any decade above `value`.
fn round_above(value: f64) -> f64 {
    let decade = 10f64.powf(value.log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0, 20.0].map(|digit| digit * decade);
    steps.into_iter().find(|step| *step > value).unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RATE_OFF;
    use crate::record::level_tests::level;

    /// Mean latency of a queue at these shares of its capacity of 1000/s.
    fn queue(shares: &[f64]) -> Vec<LoadPoint> {
        let at = |share: &f64| level(1000.0 * share, 100.0 / (1.0 - share), 460.0 / (1.0 - share));
        shares.iter().map(at).collect()
    }

    const SHARES: [f64; 9] = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.95];

    #[test]
    fn the_knee_of_a_queue_is_where_its_latency_leaves_the_flat_part_in_any_order_of_levels() {
        let mut points = queue(&SHARES);
        let curve = LoadCurve::of(&points);
        assert_eq!((curve.highest_per_sec(), curve.knee_per_sec()), (Some(950.0), Some(700.0)));
        points.reverse();
        assert_eq!(LoadCurve::of(&points), curve);
    }

    #[test]
    fn invalid_and_saturated_levels_and_those_of_a_closed_loop_move_nothing() {
        let mut points = queue(&SHARES);
        let curve = LoadCurve::of(&points);
        let mut spoilt = level(990.0, 9.0, 9.0);
        spoilt.verdict.invalidate("generator-late", "late");
        let mut saturated = level(1_200.0, 9e6, 9e6);
        saturated.saturated = true;
        saturated.verdict.invalidate(RATE_OFF, "fell behind");
        let mut closed = level(5_000.0, 100.0, 200.0);
        (closed.loop_kind, closed.offered_per_sec) = (LoopKind::Closed, None);
        let mut nonsense = level(7_000.0, 100.0, 200.0);
        (nonsense.latency_us.mean, nonsense.latency_us.p99) = (f64::NAN, -1.0);
        points.extend([spoilt, saturated, closed, nonsense]);
        assert_eq!(LoadCurve::of(&points), curve);
    }

    #[test]
    fn a_level_that_was_measured_again_counts_as_measured_last() {
        let points = [level(100.0, 1.0, 2.0), level(100.0, 3.0, 4.0)];
        assert_eq!(LoadCurve::of(&points).held, [Level { per_sec: 100.0, mean_us: 3.0, p99_us: 4.0 }]);
    }

    #[test]
    fn a_curve_that_is_flat_straight_or_of_few_levels_has_no_knee() {
        let flat: Vec<LoadPoint> =
            (1..=8).map(|step| level(500.0 * f64::from(step), 100.0 + f64::from(step), 300.0)).collect();
        assert_eq!(LoadCurve::of(&flat).knee_per_sec(), None);
        let straight: Vec<LoadPoint> =
            (1..=8).map(|step| level(500.0 * f64::from(step), 100.0 * f64::from(step).exp(), 9e9)).collect();
        assert_eq!(LoadCurve::of(&straight).knee_per_sec(), None);
        assert_eq!(LoadCurve::of(&queue(&[0.1, 0.5, 0.95])).knee_per_sec(), None);
        assert_eq!(LoadCurve::of(&[]), LoadCurve { held: vec![] });
        assert_eq!(LoadCurve::of(&[]).kept_bound(), None);
    }

    #[test]
    fn the_bound_is_the_next_round_number_above_what_the_calm_levels_need_and_ends_at_the_first_level_above_it()
     {
        let curve = LoadCurve::of(&queue(&SHARES));
        // 460 us / 0.3 at the knee, and / 0.2 at the level above it.
        assert_eq!(curve.kept_bound(), Some(KeptBound { below_us: 2_000.0, up_to_per_sec: 700.0 }));
        let calm = LoadCurve::of(&[level(1.0, 10.0, 90.0), level(2.0, 10.0, 100.0), level(3.0, 10.0, 80.0)]);
        assert_eq!(calm.kept_bound(), Some(KeptBound { below_us: 200.0, up_to_per_sec: 3.0 }));
        assert_eq!([99.0, 100.0, 199.0, 0.5, 999.0].map(round_above), [100.0, 200.0, 200.0, 1.0, 1000.0]);
    }
}
