//! The laws that values follow: what each draws, its mean, and itself on another scale.
//!
//! Always holds: samples are finite and not negative.
//! Not here: how a law is written (see `notation`).

use rand::{Rng, RngExt};
use rand_distr::StandardNormal;

use super::Dimension;
use crate::error::ValueProblem;

/// A law with its parameters.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Shape {
    Constant(f64),
    Uniform { low: f64, high: f64 },
    Zipf { alpha: f64 },
    LogNormal { median: f64, mean: f64, max: f64 },
    Pareto { min: f64, alpha: f64, max: f64, mean_asked: Option<f64> },
    Histogram(Histogram),
    Mix(Vec<(f64, Shape)>),
}

/// Values with weights; `share_up_to` is the running sum of the weights over their total.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Histogram {
    pub entries: Vec<(f64, f64)>,
    share_up_to: Vec<f64>,
}

/// The smallest u if the population is unknown: among more than 16 million objects the few most
/// popular ones then weigh the same.
pub(super) const ZIPF_U_MIN: f64 = 1.0 / (1 << 24) as f64;

impl Shape {
    /// The bounded Pareto law with this mean; the mean rises with the minimum, so halving intervals finds it.
    pub fn pareto_of_mean(mean: f64, alpha: f64, max: f64) -> Self {
        let (mut low, mut high) = (mean * 1e-9, mean);
        for _ in 0..200 {
            let middle = (low + high) / 2.0;
            if pareto_mean(middle, alpha, max) < mean { low = middle } else { high = middle }
        }
        Self::Pareto { min: (low + high) / 2.0, alpha, max, mean_asked: Some(mean) }
    }

    /// Draws a value; `zipf_u_min` bounds what one draw of a popularity can take.
    pub fn sample(&self, dimension: Dimension, zipf_u_min: f64, rng: &mut impl Rng) -> f64 {
        match self {
            Self::Constant(value) => *value,
            Self::Uniform { low, high } => {
                let u: f64 = rng.random();
                // Rounding a continuous draw would give the two ends half their share.
                if dimension == Dimension::Count {
                    (low + u * (high - low + 1.0)).floor().min(*high)
                } else {
                    low + u * (high - low)
                }
            }
            Self::Zipf { alpha } => {
                let u: f64 = 1.0 - rng.random::<f64>();
                u.max(zipf_u_min).powf(-alpha)
            }
            Self::LogNormal { median, mean, max } => {
                let z: f64 = rng.sample(StandardNormal);
                (median * (log_normal_sigma(*median, *mean) * z).exp()).min(*max)
            }
            Self::Pareto { min, alpha, max, .. } => {
                let u: f64 = rng.random();
                min / (1.0 - u * (1.0 - (min / max).powf(*alpha))).powf(1.0 / alpha)
            }
            Self::Histogram(histogram) => histogram.sample(rng),
            Self::Mix(parts) => {
                let mut point = rng.random::<f64>() * parts.iter().map(|(weight, _)| weight).sum::<f64>();
                for (weight, part) in parts {
                    if point < *weight {
                        return part.sample(dimension, zipf_u_min, rng);
                    }
                    point -= weight;
                }
                // Only when rounding ate the last part's end.
                parts[parts.len() - 1].1.sample(dimension, zipf_u_min, rng)
            }
        }
    }

    /// Expected value.
    pub fn mean(&self) -> f64 {
        match self {
            Self::Constant(value) => *value,
            Self::Uniform { low, high } => (low + high) / 2.0,
            Self::Zipf { alpha } if (alpha - 1.0).abs() < 1e-9 => 1.0 - ZIPF_U_MIN.ln(),
            Self::Zipf { alpha } => {
                let tail = ZIPF_U_MIN.powf(1.0 - alpha);
                (1.0 - tail) / (1.0 - alpha) + tail
            }
            Self::LogNormal { median, mean, max } => {
                let sigma = log_normal_sigma(*median, *mean);
                let d = (max / median).ln() / sigma;
                mean * normal_cumulative(d - sigma) + max * (1.0 - normal_cumulative(d))
            }
            Self::Pareto { min, alpha, max, .. } => pareto_mean(*min, *alpha, *max),
            Self::Histogram(histogram) => weighted_mean(histogram.entries.iter().map(|(v, w)| (*w, *v))),
            Self::Mix(parts) => weighted_mean(parts.iter().map(|(w, part)| (*w, part.mean()))),
        }
    }

    /// The same with every value multiplied by `factor`.
    pub fn scaled(&self, factor: f64) -> Self {
        match self {
            Self::Constant(value) => Self::Constant(value * factor),
            Self::Uniform { low, high } => Self::Uniform { low: low * factor, high: high * factor },
            Self::Zipf { alpha } => Self::Zipf { alpha: *alpha },
            Self::LogNormal { median, mean, max } => {
                Self::LogNormal { median: median * factor, mean: mean * factor, max: max * factor }
            }
            Self::Pareto { min, alpha, max, mean_asked } => match mean_asked {
                Some(mean) => Self::pareto_of_mean(mean * factor, *alpha, max * factor),
                None => {
                    Self::Pareto { min: min * factor, alpha: *alpha, max: max * factor, mean_asked: None }
                }
            },
            Self::Histogram(histogram) => Self::Histogram(Histogram {
                entries: histogram.entries.iter().map(|(v, w)| (v * factor, *w)).collect(),
                share_up_to: histogram.share_up_to.clone(),
            }),
            Self::Mix(parts) => Self::Mix(parts.iter().map(|(w, part)| (*w, part.scaled(factor))).collect()),
        }
    }
}

impl Histogram {
    pub fn new(entries: Vec<(f64, f64)>) -> Result<Self, ValueProblem> {
        let total: f64 = entries.iter().map(|(_, weight)| weight).sum();
        if total.is_nan() || total <= 0.0 {
            return Err(ValueProblem::new(
                if entries.is_empty() { "nothing" } else { "only weights of zero" },
                "at least one value:weight whose weight is above zero",
            ));
        }
        let share_up_to = entries
            .iter()
            .scan(0.0, |sum, (_, weight)| {
                *sum += weight;
                Some(*sum / total)
            })
            .collect();
        Ok(Self { entries, share_up_to })
    }

    fn sample(&self, rng: &mut impl Rng) -> f64 {
        let u: f64 = rng.random();
        let index = self.share_up_to.partition_point(|share| *share <= u);
        self.entries[index.min(self.entries.len() - 1)].0
    }
}

fn log_normal_sigma(median: f64, mean: f64) -> f64 {
    (2.0 * (mean / median).ln()).sqrt()
}

/// Standard normal distribution function, by Simpson's rule: wanted a few times a run, not in a hot loop.
fn normal_cumulative(x: f64) -> f64 {
    let x = x.clamp(-8.0, 8.0);
    let density = |t: f64| (-t * t / 2.0).exp();
    let steps = 2_000;
    let width = x / f64::from(steps);
    let sum: f64 =
        (1..steps).map(|i| if i % 2 == 1 { 4.0 } else { 2.0 } * density(f64::from(i) * width)).sum();
    0.5 + (density(0.0) + sum + density(x)) * width / 3.0 / (2.0 * std::f64::consts::PI).sqrt()
}

fn pareto_mean(min: f64, alpha: f64, max: f64) -> f64 {
    let cut = 1.0 - (min / max).powf(alpha);
    if (alpha - 1.0).abs() < 1e-9 {
        return min * (max / min).ln() / cut;
    }
    alpha / (alpha - 1.0) * (min - max * (min / max).powf(alpha)) / cut
}

fn weighted_mean(parts: impl Iterator<Item = (f64, f64)>) -> f64 {
    let (sum, total) =
        parts.fold((0.0, 0.0), |(sum, total), (weight, value)| (sum + weight * value, total + weight));
    sum / total
}
