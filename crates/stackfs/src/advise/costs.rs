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

    /// Above the largest size measured. An operation in a larger directory costs no less, and at most as many times more
    /// as the directory is larger: between the two the cost goes on as it last grew.
    fn beyond(&self, files: f64) -> Option<Cost> {
        let (largest, cost) = self.points.last()?;
        let times = (files / largest).max(1.0);
        let before = self.points.len().checked_sub(2).map(|before| self.points[before]);
        let slope = before.map_or(0.0, |(size, before)| {
            ((cost.us / before.us).ln() / (largest / size).ln()).clamp(0.0, 1.0)
        });
        Some(Cost { us: cost.us * times.powf(slope), low: cost.low, high: cost.high * times })
    }
}
