//! How a run went over its time: counts in stretches of equal length, and the curves of the record.
//!
//! Always holds: there are at most 240 stretches, however long the run; a request counts in the stretch it was due in.

use std::time::Duration;

use measure::{Curve, CurveLine, CurvePoint};
use serde::{Deserialize, Serialize};

use super::tally::Moment;

/// Counts by stretch.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Moments {
    span: Duration,
    stretches: Vec<Moment>,
}

const STRETCHES_MAX: usize = 240;

impl Default for Moments {
    fn default() -> Self {
        Self { span: Duration::from_millis(500), stretches: Vec::new() }
    }
}

impl Moments {
    /// The stretch that holds a moment.
    #[inline]
    pub fn at(&mut self, since: Duration) -> &mut Moment {
        let mut number = (since.as_nanos() / self.span.as_nanos()) as usize;
        while number >= STRETCHES_MAX {
            self.widen();
            number /= 2;
        }
        if number >= self.stretches.len() {
            self.stretches.resize(number + 1, Moment::default());
        }
        &mut self.stretches[number]
    }

    fn widen(&mut self) {
        self.span *= 2;
        let pairs = self.stretches.chunks(2).map(|pair| {
            let mut sum = pair[0];
            pair.get(1).into_iter().for_each(|second| sum.merge(second));
            sum
        });
        self.stretches = pairs.collect();
    }

    pub fn merge(&mut self, mut other: Self) {
        while self.span < other.span {
            self.widen();
        }
        while other.span < self.span {
            other.widen();
        }
        if self.stretches.len() < other.stretches.len() {
            self.stretches.resize(other.stretches.len(), Moment::default());
        }
        self.stretches.iter_mut().zip(&other.stretches).for_each(|(mine, theirs)| mine.merge(theirs));
    }

    /// The curves over minutes.
    pub fn curves(&self) -> Vec<Curve> {
        let span_s = self.span.as_secs_f64();
        // The last stretch is cut short by the end of the run and would look like a fall.
        let whole = self.stretches.len() - usize::from(self.stretches.len() > 2);
        let line = |label: &str, y: &dyn Fn(&Moment) -> Option<f64>| {
            let points = self.stretches[..whole].iter().enumerate().filter_map(|(number, moment)| {
                let x = (number as f64 + 0.5) * span_s / 60.0;
                y(moment).map(|y| CurvePoint { x, y, low: None, high: None })
            });
            CurveLine { label: label.to_owned(), points: points.collect() }
        };
        let share = |part: u64, of: u64| (of > 0).then(|| 100.0 * part as f64 / of as f64);
        let mean_us = |sum_s: f64, count: u64| (count > 0).then(|| 1e6 * sum_s / count as f64);
        let curve = |name: &str, lines: Vec<CurveLine>| Curve {
            name: name.to_owned(),
            over: "minutes".to_owned(),
            lines,
        };
        vec![
            curve(
                "requests_per_sec",
                vec![
                    line("offered", &|moment| Some(moment.due as f64 / span_s)),
                    line("achieved", &|moment| Some(moment.answered as f64 / span_s)),
                ],
            ),
            curve(
                "response_us",
                vec![
                    line("all", &|moment| mean_us(moment.latency_s, moment.ok)),
                    line("without think time", &|moment| mean_us(moment.without_think_s, moment.ok)),
                    line("hits", &|moment| mean_us(moment.hit_latency_s, moment.hits)),
                ],
            ),
            curve(
                "document_hit_percent",
                vec![
                    line("offered", &|moment| share(moment.could_hit, moment.ok)),
                    line("achieved", &|moment| share(moment.hits, moment.ok)),
                ],
            ),
            curve(
                "byte_hit_percent",
                vec![
                    line("offered", &|moment| share(moment.could_hit_bytes, moment.asked_bytes)),
                    line("achieved", &|moment| share(moment.hit_bytes, moment.bytes)),
                ],
            ),
            curve(
                "errors_percent",
                vec![line("errors", &|moment| share(moment.failed, moment.failed + moment.ok))],
            ),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_run_has_wider_stretches_and_loses_no_count() {
        let mut moments = Moments::default();
        for second in 0..10_000 {
            moments.at(Duration::from_secs(second)).due += 1;
        }
        assert!(moments.stretches.len() <= STRETCHES_MAX);
        let mut other = Moments::default();
        other.at(Duration::from_secs(1)).due += 5;
        moments.merge(other);
        assert_eq!(moments.stretches.iter().map(|moment| moment.due).sum::<u64>(), 10_005);
        let curves = moments.curves();
        let offered = &curves[0].lines[0].points;
        assert!((offered[10].y - 1.0).abs() < 0.1, "{:?}", offered[10]);
    }
}
