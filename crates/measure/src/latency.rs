//! Latency histograms that can be merged, stored whole and asked for any percentile.
//!
//! Resolution is three significant digits from 100 ns to one hour, which costs 240 KB a histogram and
//! bounds the error of every percentile to 0.1%. Stored as HdrHistogram V2 (deflated, base64), the
//! interchange format that other HdrHistogram libraries read. One that was read stays in its stored form until
//! something is added: a record of thousands of histograms takes the memory of its text.

mod stored;

use std::borrow::Cow;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use self::stored::StoredHistogram;

/// Latencies in nanoseconds, of one kind of operation or of all.
#[derive(Clone, Debug)]
pub struct LatencyHistogram {
    counts: Counts,
}

#[derive(Clone, Debug)]
enum Counts {
    Live(Histogram<u64>),
    Stored(StoredHistogram),
}

/// The figures of a histogram that tables show; every figure in microseconds but `count`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencySummary {
    /// Samples.
    pub count: u64,
    /// Arithmetic mean, microseconds.
    pub mean: f64,
    /// Standard deviation, microseconds.
    pub sd: f64,
    /// Smallest sample, microseconds.
    pub min: f64,
    /// Median, microseconds.
    pub p50: f64,
    /// 90th percentile, microseconds.
    pub p90: f64,
    /// 99th percentile, microseconds.
    pub p99: f64,
    /// 99.9th percentile, microseconds.
    pub p999: f64,
    /// Largest sample, microseconds.
    pub max: f64,
}

/// A stored histogram that cannot be read back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HistogramError {
    /// The text is not base64.
    #[error("histogram is not base64 text")]
    Base64(#[source] base64::DecodeError),
    /// The bytes are not an HdrHistogram.
    #[error("histogram is not in HdrHistogram V2 form: {reason}")]
    Format {
        /// What is wrong with them.
        reason: String,
    },
    /// Counts that no run can reach.
    #[error("histogram has more samples than {max}, which no run can take")]
    TooManySamples {
        /// Most that are accepted.
        max: u64,
    },
}

const LOWEST_NS: u64 = 100;
const HIGHEST_NS: u64 = 3_600_000_000_000;
const SIGNIFICANT_DIGITS: u8 = 3;

impl LatencyHistogram {
    /// An empty histogram.
    pub fn new() -> Self {
        Self { counts: Counts::Live(empty()) }
    }

    /// Counts one sample. What lasts over an hour counts as an hour.
    #[inline]
    pub fn record(&mut self, latency: Duration) {
        let ns =
            latency.as_secs().saturating_mul(1_000_000_000).saturating_add(u64::from(latency.subsec_nanos()));
        self.live().saturating_record(ns);
    }

    /// Adds all samples of `other`: exact, as the buckets are the same.
    pub fn merge(&mut self, other: &Self) {
        self.live().add(other.whole().as_ref()).expect("histograms of equal bounds always add up");
    }

    /// Forgets all samples.
    pub fn clear(&mut self) {
        self.live().reset();
    }

    /// Samples counted.
    pub fn count(&self) -> u64 {
        match &self.counts {
            Counts::Live(counts) => counts.len(),
            Counts::Stored(stored) => stored.samples(),
        }
    }

    /// Latency that `quantile` (0 to 1) of the samples did not exceed; zero when there are none.
    pub fn quantile(&self, quantile: f64) -> Duration {
        Duration::from_nanos(self.whole().value_at_quantile(quantile))
    }

    /// Sum of all samples, in seconds.
    pub fn total_s(&self) -> f64 {
        let counts = self.whole();
        counts.mean() * counts.len() as f64 / 1e9
    }

    /// The figures for a table.
    pub fn summary(&self) -> LatencySummary {
        let counts = self.whole();
        if counts.is_empty() {
            return LatencySummary::default();
        }
        let us = |quantile| counts.value_at_quantile(quantile) as f64 / 1e3;
        LatencySummary {
            count: counts.len(),
            mean: counts.mean() / 1e3,
            sd: counts.stdev() / 1e3,
            min: counts.min() as f64 / 1e3,
            p50: us(0.5),
            p90: us(0.9),
            p99: us(0.99),
            p999: us(0.999),
            max: counts.max() as f64 / 1e3,
        }
    }

    /// Cumulative distribution as (latency in microseconds, share of samples not above it, 0 to 1), one
    /// point for each recorded bucket.
    pub fn cumulative(&self) -> Vec<(f64, f64)> {
        let counts = self.whole();
        let total = counts.len() as f64;
        let mut below = 0;
        counts
            .iter_recorded()
            .map(|bucket| {
                below += bucket.count_at_value();
                (bucket.value_iterated_to() as f64 / 1e3, below as f64 / total)
            })
            .collect()
    }

    /// The buckets in use as (highest latency in nanoseconds, samples), by rising latency: small enough to send.
    pub fn buckets(&self) -> Vec<(u64, u64)> {
        self.whole()
            .iter_recorded()
            .map(|bucket| (bucket.value_iterated_to(), bucket.count_at_value()))
            .collect()
    }

    /// Adds what `buckets` of another histogram gave: exact, as the buckets are the same.
    pub fn add_buckets(&mut self, buckets: &[(u64, u64)]) {
        let counts = self.live();
        for &(ns, samples) in buckets {
            counts.saturating_record_n(ns, samples);
        }
    }

    /// The whole histogram as base64 of HdrHistogram V2, deflated.
    pub fn encode(&self) -> String {
        match &self.counts {
            Counts::Live(counts) => StoredHistogram::of(counts).text(),
            Counts::Stored(stored) => stored.text(),
        }
    }

    /// Reads what `encode` wrote.
    ///
    /// # Errors
    /// When the text is not base64, not an HdrHistogram, or one that no run can have.
    pub fn decode(text: &str) -> Result<Self, HistogramError> {
        StoredHistogram::parse(text).map(|stored| Self { counts: Counts::Stored(stored) })
    }

    /// All buckets, to look at.
    fn whole(&self) -> Cow<'_, Histogram<u64>> {
        match &self.counts {
            Counts::Live(counts) => Cow::Borrowed(counts),
            Counts::Stored(stored) => Cow::Owned(stored.whole()),
        }
    }

    /// All buckets, to add to.
    #[inline]
    fn live(&mut self) -> &mut Histogram<u64> {
        if let Counts::Stored(stored) = &self.counts {
            self.counts = Counts::Live(stored.whole());
        }
        match &mut self.counts {
            Counts::Live(counts) => counts,
            Counts::Stored(_) => unreachable!("what was stored was made live just now"),
        }
    }
}

impl PartialEq for LatencyHistogram {
    fn eq(&self, other: &Self) -> bool {
        self.whole() == other.whole()
    }
}

/// No samples yet.
fn empty() -> Histogram<u64> {
    Histogram::new_with_bounds(LOWEST_NS, HIGHEST_NS, SIGNIFICANT_DIGITS)
        .expect("the bounds are constants that HdrHistogram accepts")
}

impl Default for LatencyHistogram {
    fn default() -> Self {
        Self::new()
    }
}

impl Serialize for LatencyHistogram {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.encode())
    }
}

impl<'de> Deserialize<'de> for LatencyHistogram {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::decode(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn of(samples_ns: &[u64]) -> LatencyHistogram {
        let mut histogram = LatencyHistogram::new();
        for &ns in samples_ns {
            histogram.record(Duration::from_nanos(ns));
        }
        histogram
    }

    #[test]
    fn an_empty_histogram_reports_zeros_and_survives_storage() {
        let empty = LatencyHistogram::new();
        assert_eq!(empty.summary(), LatencySummary::default());
        assert_eq!(LatencyHistogram::decode(&empty.encode()).unwrap().count(), 0);
    }

    #[test]
    fn a_torn_histogram_is_an_error_and_not_a_panic() {
        let whole = of(&[1_000, 2_000_000]).encode();
        assert!(matches!(
            LatencyHistogram::decode(&whole[..whole.len() / 2 / 4 * 4]),
            Err(HistogramError::Format { .. })
        ));
        assert!(matches!(LatencyHistogram::decode("%%"), Err(HistogramError::Base64(_))));
    }

    proptest! {
        #[test]
        fn merging_equals_recording_everything_in_one(
            left in prop::collection::vec(0u64..10_000_000_000, 0..200),
            right in prop::collection::vec(0u64..10_000_000_000, 0..200),
        ) {
            let mut merged = of(&left);
            merged.merge(&of(&right));
            let together = of(&[left, right].concat());
            prop_assert_eq!(merged.summary(), together.summary());
        }

        #[test]
        fn buckets_make_the_histogram_they_came_from(samples in prop::collection::vec(0u64..10_000_000_000_000, 0..200)) {
            let mut again = LatencyHistogram::new();
            again.add_buckets(&of(&samples).buckets());
            prop_assert_eq!(again, of(&samples));
        }

        #[test]
        fn storage_keeps_every_percentile(samples in prop::collection::vec(100u64..3_000_000_000_000, 1..200)) {
            let histogram = of(&samples);
            // Added to an empty one, as what was read is decoded for each percentile.
            let mut again = LatencyHistogram::new();
            again.merge(&LatencyHistogram::decode(&histogram.encode()).unwrap());
            for per_mille in 0..=1000 {
                let quantile = f64::from(per_mille) / 1000.0;
                prop_assert_eq!(histogram.quantile(quantile), again.quantile(quantile));
            }
        }

        #[test]
        fn a_percentile_is_within_a_thousandth_of_the_sample(sample in 200_000u64..3_000_000_000_000) {
            let reported = of(&[sample]).quantile(0.5).as_nanos() as f64;
            prop_assert!((reported / sample as f64 - 1.0).abs() < 0.001);
        }
    }
}
