//! What repeated runs say: medians, how sure they are, and ratios of two of them.
//!
//! ```text
//! runs of A ─┐                         1          estimate: median B / median A
//!            ├─ ratio_interval ──[─────┼──●────]  interval: bootstrap with runs as units
//! runs of B ─┘                                    holds 1: no difference shown
//! ```
//!
//! Always holds: a sample is one run, never one request; equal samples give equal intervals, since nothing is
//! drawn: the bootstrap distribution of a median is computed exactly; samples that cannot bear an answer
//! give `None` and no number.
//! Not here: which figures to compare and what to call the outcome (see `report::compare`).
//!
//! The ratio's interval is the percentile bootstrap of `ln(median b / median a)` (Efron, "Bootstrap methods",
//! Annals of Statistics 7, 1979, section 3, has the exact distribution for an odd number of samples). It
//! is too narrow below 5 samples a side and is widened there by [`SMALL_SAMPLE`]; it ends at the samples'
//! extremes, so that at confidences above 95% it is the 95% one stretched by the ratio of Student's quantiles.
//! The tests at the bottom say how often it holds the truth.

mod bootstrap;
mod student;
mod trend;

use bootstrap::MedianLaw;
pub use trend::{POINTS_MIN, Trend};

/// Samples of one side below which nothing is said about a ratio.
pub const SAMPLES_MIN: usize = 3;
/// Samples of one side from which an interval is as sure as it says without being widened.
pub const SAMPLES_ENOUGH: usize = 5;

/// Two ends between which a figure lies with some confidence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// How often such an interval holds the truth, 0 to 1.
    pub confidence: f64,
}

/// How many times as large one median is as another.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RatioEstimate {
    /// Median of `b` over median of `a`.
    pub ratio: f64,
    /// Lower end of its confidence interval.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// How often such an interval holds the truth, 0 to 1.
    pub confidence: f64,
}

/// Widening of the 95% interval with 3 and 4 samples on the smaller side. Found by simulation (see the
/// tests): the plain bootstrap holds the truth in 90% and 93% of cases there.
const SMALL_SAMPLE: [f64; 2] = [1.6, 1.2];
/// Confidence at which the bootstrap's percentiles are taken as they are.
const PLAIN_CONFIDENCE: f64 = 0.95;

/// The middle of the samples; none when there are none, or one is not finite.
pub fn median(samples: &[f64]) -> Option<f64> {
    Some(middle(&sorted(samples)?))
}

/// The interval in which the median of what the samples are drawn from lies, whatever its distribution.
///
/// By order statistics: the k-th smallest and k-th largest sample hold the median with a binomial
/// probability; between two such k it is interpolated so that small numbers of samples are not served with far
/// more confidence than asked (Hettmansperger and Sheather, "Confidence intervals based on interpolated order
/// statistics", Statistics and Probability Letters 4, 1986). None when even the smallest and largest sample hold
/// it too seldom: for 95% that is below 6 samples.
pub fn median_interval(samples: &[f64], confidence: f64) -> Option<Interval> {
    let sorted = sorted(samples)?;
    let n = sorted.len();
    // Chance that the k-th smallest (from 1) to the k-th largest hold the median.
    let holds = |k: usize| 1.0 - 2.0 * bootstrap::binomial_at_most(k - 1, n, 0.5);
    let k = (1..=n / 2).take_while(|&k| holds(k) >= confidence).last()?;
    let inner = if 2 * (k + 1) <= n { holds(k + 1) } else { 0.0 };
    let surplus = (holds(k) - confidence) / (holds(k) - inner);
    let (n_f, k_f) = (n as f64, k as f64);
    let weight = (n_f - k_f) * surplus / (k_f + (n_f - 2.0 * k_f) * surplus);
    let next = if 2 * (k + 1) <= n { k } else { k - 1 };
    let between = |outer: f64, inner: f64| outer + weight * (inner - outer);
    Some(Interval {
        low: between(sorted[k - 1], sorted[next]),
        high: between(sorted[n - k], sorted[n - 1 - next]),
        confidence,
    })
}

/// Half of the interval's width as a share of its middle: 0.05 for "plus or minus 5%"; infinite when the interval
/// is not above zero.
pub fn relative_half_width(interval: Interval) -> f64 {
    match interval.low > 0.0 {
        true => (interval.high - interval.low) / (interval.high + interval.low),
        false => f64::INFINITY,
    }
}

/// Median of `b` over median of `a` with its 95% interval; none with fewer than [`SAMPLES_MIN`] samples on a
/// side, or when a sample is not a finite number above zero.
pub fn ratio_interval(a: &[f64], b: &[f64]) -> Option<RatioEstimate> {
    ratio_interval_at(a, b, PLAIN_CONFIDENCE)
}

/// The same at another confidence: `1 - 0.05 / m` where `m` comparisons shall be right all together in 95% of
/// cases (Bonferroni).
pub fn ratio_interval_at(a: &[f64], b: &[f64], confidence: f64) -> Option<RatioEstimate> {
    let smaller = a.len().min(b.len());
    if smaller < SAMPLES_MIN || !a.iter().chain(b).all(|sample| *sample > 0.0 && sample.is_finite()) {
        return None;
    }
    let logs = |samples: &[f64]| sorted(&samples.iter().map(|sample| sample.ln()).collect::<Vec<_>>());
    let (a_logs, b_logs) = (logs(a)?, logs(b)?);
    // The ratio of the medians as the reader computes it, which for even numbers is not the logs' own.
    let estimate = (median(b)? / median(a)?).ln();
    let plain = PLAIN_CONFIDENCE.min(confidence);
    let [low, high] =
        MedianLaw::of(&b_logs).minus(&MedianLaw::of(&a_logs)).map_or([estimate; 2], |law| law.ends(plain));
    let widened = if smaller < SAMPLES_ENOUGH { SMALL_SAMPLE[smaller - SAMPLES_MIN] } else { 1.0 };
    let freedom = (a.len() + b.len() - 2) as u32;
    let stretched = student::quantile((1.0 + confidence) / 2.0, freedom)
        / student::quantile((1.0 + plain) / 2.0, freedom);
    let stretch = widened * stretched;
    Some(RatioEstimate {
        ratio: estimate.exp(),
        low: (estimate - stretch * (estimate - low).max(0.0)).exp(),
        high: (estimate + stretch * (high - estimate).max(0.0)).exp(),
        confidence,
    })
}

fn sorted(samples: &[f64]) -> Option<Vec<f64>> {
    if samples.is_empty() || !samples.iter().all(|sample| sample.is_finite()) {
        return None;
    }
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    Some(sorted)
}

fn middle(sorted: &[f64]) -> f64 {
    let n = sorted.len();
    // Halved before they are added, since the sum may be too large.
    sorted[(n - 1) / 2] / 2.0 + sorted[n / 2] / 2.0
}

#[cfg(test)]
mod tests;
