//! Which latencies of a load point are not the storage's own, for every table and plot that shows them.

use super::LoadPoint;
use crate::LatencySummary;

/// What a shown latency is marked with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FigureMark {
    /// It is what it says.
    #[default]
    None,
    /// It rests on requests that were never answered, which took longer.
    AtLeast,
    /// The generator's own lateness moved it.
    Late,
}

impl FigureMark {
    /// As it stands before the figure.
    pub fn sign(self) -> &'static str {
        match self {
            Self::None => "",
            Self::AtLeast => ">",
            Self::Late => "~",
        }
    }
}

/// A figure each, in the order of a latency's summary without its deviation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FigureMarks {
    /// Of the mean.
    pub mean: FigureMark,
    /// Of the median.
    pub p50: FigureMark,
    /// Of the 90th percentile.
    pub p90: FigureMark,
    /// Of the 99th percentile.
    pub p99: FigureMark,
    /// Of the 99.9th percentile.
    pub p999: FigureMark,
    /// Of the maximum.
    pub max: FigureMark,
}

impl LoadPoint {
    /// The marks of its latencies. `is_moved` says of a figure with the generator's lateness and without it, in microseconds,
    /// whether they are too far apart.
    pub fn figure_marks(&self, is_moved: impl Fn(f64, f64) -> bool) -> FigureMarks {
        let pacing = self.pacing.unwrap_or_default();
        let answered_share = 1.0 - pacing.unanswered as f64 / self.latency_us.count.max(1) as f64;
        let (with, without) = (&self.latency_us, &pacing.latency_without_lateness_us);
        let mark = |share: f64, figure: fn(&LatencySummary) -> f64| {
            if pacing.unanswered > 0 && share > answered_share {
                FigureMark::AtLeast
            } else if without.count > 0 && is_moved(figure(with), figure(without)) {
                FigureMark::Late
            } else {
                FigureMark::None
            }
        };
        // The mean rests on all requests, and so does the maximum.
        FigureMarks {
            mean: mark(1.0, |us| us.mean),
            p50: mark(0.5, |us| us.p50),
            p90: mark(0.9, |us| us.p90),
            p99: mark(0.99, |us| us.p99),
            p999: mark(0.999, |us| us.p999),
            max: mark(1.0, |us| us.max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::FigureMark::{AtLeast, Late, None};
    use super::*;
    use crate::{FileSetRecord, LatencyHistogram, Pacing};

    fn point(pacing: Pacing, latency: LatencySummary) -> LoadPoint {
        serde_json::from_value(serde_json::json!({
            "loop_kind": "open", "offered_per_sec": 7.0, "outstanding": null, "sent_per_sec": 7.0, "achieved_per_sec": 7.0,
            "warm_s": 1.0, "measured_s": 1.0, "unsent": 0, "reconnects": 0, "bad_replies": 0, "generator_busy": 0.1,
            "lateness_us": latency, "latency_us": latency, "histogram": LatencyHistogram::new().encode(), "ops": {},
            "file_set": FileSetRecord::default(), "saturated": false, "verdict": {"valid": true, "reasons": []},
            "pacing": pacing
        }))
        .unwrap()
    }

    #[test]
    fn figures_that_rest_on_unanswered_requests_are_the_least_and_moved_ones_are_late() {
        let latency =
            LatencySummary { count: 1000, mean: 50.0, p50: 10.0, p99: 90.0, ..LatencySummary::default() };
        let without = LatencySummary { mean: 20.0, ..latency };
        let pacing =
            |unanswered| Pacing { unanswered, latency_without_lateness_us: without, ..Pacing::default() };
        let moved = |with: f64, without: f64| with > 2.0 * without;
        let late = point(pacing(0), latency).figure_marks(moved);
        assert_eq!((late.mean, late.p50, late.p99, late.max), (Late, None, None, None));
        let lost = point(pacing(5), latency).figure_marks(moved);
        assert_eq!((lost.mean, lost.p99, lost.p999, lost.max), (AtLeast, None, AtLeast, AtLeast));
        let no_plan = point(Pacing::default(), latency).figure_marks(moved);
        assert_eq!(no_plan, FigureMarks::default(), "a record of an earlier version");
    }
}
