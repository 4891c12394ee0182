//! What an operation costs by the size of its directory, between the sizes that were measured.

/// A cost, microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// As measured.
    pub us: f64,
    /// Lower end of its interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// Costs by size, straight between points on log-log paper, and beyond the last one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CostCurve {
    /// Rising sizes.
    points: Vec<(f64, Cost)>,
}

impl CostCurve {
    /// From sizes in files and the cost at each, in any order; what is no positive number is left out.
    pub fn new(points: impl IntoIterator<Item = (f64, Cost)>) -> Self {
        let positive = |number: f64| number.is_finite() && number > 0.0;
        let fits = |(files, cost): &(f64, Cost)| {
            [*files, cost.us, cost.low, cost.high].into_iter().all(positive)
                && cost.low <= cost.us
                && cost.us <= cost.high
        };
        let mut points: Vec<(f64, Cost)> = points.into_iter().filter(fits).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        points.dedup_by(|a, b| a.0 == b.0);
        Self { points }
    }

    /// Sizes measured.
    pub fn sizes(&self) -> usize {
        self.points.len()
    }

    /// The largest size measured, in files; 0 when none was measured.
    pub fn largest(&self) -> f64 {
        self.points.last().map_or(0.0, |(files, _)| *files)
    }

    /// The largest size measured that is smaller than this.
    pub(super) fn below(&self, files: f64) -> Option<f64> {
        self.points.iter().rev().map(|(size, _)| *size).find(|size| *size < files)
    }

    /// The cost at a size: that of the smallest when it is below it, extrapolated when it is above the largest; none when
    /// nothing was measured.
    pub fn at(&self, files: f64) -> Option<Cost> {
        let above = self.points.partition_point(|(size, _)| *size < files);
        let Some((size_above, cost_above)) = self.points.get(above) else {
            return self.beyond(files);
        };
        let Some((size_below, cost_below)) = above.checked_sub(1).and_then(|below| self.points.get(below))
        else {
            return Some(*cost_above);
        };
        let way = (files.ln() - size_below.ln()) / (size_above.ln() - size_below.ln());
        let between = |of: fn(&Cost) -> f64| {
            let (from, to) = (of(cost_below).ln(), of(cost_above).ln());
            (from + (to - from) * way).exp()
        };
        Some(Cost { us: between(|c| c.us), low: between(|c| c.low), high: between(|c| c.high) })
    }

    /// Above the largest size measured.
    ///
    /// 1. An operation in a larger directory costs no less.
    /// 2. Where the last three sizes show that each further file adds as much as those before, as in a directory that is
    ///    searched from its beginning to its end, further files are taken to add at least [`GROWTH_KEPT`] of that.
    /// 3. It costs at most as many times more as the directory is larger, or what files added between the last two sizes,
    ///    and half as much again: larger directories also outgrow the processor's caches.
    fn beyond(&self, files: f64) -> Option<Cost> {
        let (largest, cost) = self.points.last()?;
        let times = (files / largest).max(1.0);
        let more = (files - largest).max(0.0);
        let Some(growth) = self.linear_growth() else {
            let before = self.points.len().checked_sub(2).map(|before| self.points[before]);
            let slope = before.map_or(0.0, |(size, before)| {
                ((cost.us / before.us).ln() / (largest / size).ln()).clamp(0.0, 1.0)
            });
            return Some(Cost { us: cost.us * times.powf(slope), low: cost.low, high: cost.high * times });
        };
        Some(Cost {
            us: cost.us + more * growth.us,
            low: cost.low + more * growth.low,
            high: (cost.high * times).max(cost.high + more * growth.high),
        })
    }

    /// What each further file adds to an operation's cost, where that grows in proportion to the files: not when the growth
    /// becomes less from size to size, as it does in hashed and in sorted directories.
    fn linear_growth(&self) -> Option<Cost> {
        let [.., first, second, third] = self.points[..] else { return None };
        let per_file =
            |(from, cost_from): (f64, f64), (to, cost_to): (f64, f64)| (cost_to - cost_from) / (to - from);
        let us = |(files, cost): (f64, Cost)| (files, cost.us);
        let (before, last) = (per_file(us(first), us(second)), per_file(us(second), us(third)));
        if before <= 0.0 || last < GROWTH_KEPT * before {
            return None;
        }
        let (low, high) =
            (|(files, cost): (f64, Cost)| (files, cost.low), |(files, cost): (f64, Cost)| (files, cost.high));
        // Growth from an earlier size is no more than what it has become, and the longer way has the smaller error.
        let earlier = self.points[..self.points.len() - 1].iter();
        let surely =
            earlier.map(|point| per_file(high(*point), low(third))).fold(0.0, f64::max) * GROWTH_KEPT;
        Some(Cost { us: last.max(surely), low: surely, high: 1.5 * per_file(low(second), high(third)) })
    }
}

/// Of the growth from one size to the next, what must be left at the size after that for it to count as linear.
const GROWTH_KEPT: f64 = 0.75;
