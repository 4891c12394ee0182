//! Compares a synthetic feed with the model it was made from.

use serde::Serialize;

use super::model;
use super::names::Groups;
use crate::feed::stat::Stat;

/// One figure of both.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// What it is, with its unit.
    pub name: &'static str,
    /// By the model.
    pub model: f64,
    /// Of the feed.
    pub feed: f64,
    /// How far they may be apart: the model's roughness, and chance in a feed of this size.
    pub allowed: f64,
}

impl Figure {
    /// Whether they are further apart than allowed.
    pub fn is_off(&self) -> bool {
        (self.feed - self.model).abs() > self.allowed
    }
}

/// All figures.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// In the order in which they are printed.
    pub figures: Vec<Figure>,
}

impl Comparison {
    pub(super) fn new(stat: &Stat, groups: &Groups) -> Self {
        let articles = stat.articles as f64;
        let root = articles.sqrt();
        let size = |name, model: f64, feed: f64, rough: f64, chance: f64| Figure {
            name,
            model,
            feed,
            allowed: model * (rough + chance / root),
        };
        let share = |name, model: f64, count: u64| {
            let feed = count as f64 / articles;
            // Articles that refer to an earlier one are rarer at the beginning.
            let allowed = model * 0.05 + 4.0 * (model * (1.0 - model)).sqrt() / root;
            Figure { name, model: 100.0 * model, feed: 100.0 * feed, allowed: 100.0 * allowed }
        };
        let sizes = stat.article_bytes;
        let counts: u32 = model::GROUP_COUNTS.iter().sum();
        let named: u32 = (1..).zip(model::GROUP_COUNTS).map(|(groups, count)| groups * count).sum();
        let entries = articles * f64::from(named) / f64::from(counts);
        let groups_named = groups.shares().map(|share| 1.0 - (-entries * share).exp()).sum();
        let cross_posted = 1.0 - f64::from(model::GROUP_COUNTS[0]) / f64::from(counts);
        let hosts = integral(|at| model::quantile(model::PATH_HOSTS, at));
        Self {
            figures: vec![
                size("article size, mean (B)", model::ARTICLE_BYTES_MEAN, sizes.mean, 0.03, 12.0),
                size("article size, median (B)", mixture(0.50), sizes.p50 as f64, 0.03, 3.0),
                size("article size, p90 (B)", mixture(0.90), sizes.p90 as f64, 0.04, 10.0),
                size("article size, p99 (B)", mixture(0.99), sizes.p99 as f64, 0.08, 30.0),
                size("header size, mean (B)", model::HEAD_BYTES_MEAN, stat.head_bytes.mean, 0.04, 3.0),
                share("cross-posted (%)", cross_posted, stat.cross_posted),
                size("groups named", groups_named, stat.groups as f64, 0.05, 8.0),
                size("hosts in Path, mean", hosts, stat.path_hosts_mean, 0.02, 2.0),
                share("duplicates (%)", model::DUPLICATE_SHARE, stat.duplicates),
                share("cancels (%)", model::CANCEL_SHARE, stat.cancels),
                share("supersedes (%)", model::SUPERSEDES_SHARE, stat.supersedes),
            ],
        }
    }

    /// Those further apart than allowed.
    pub fn off(&self) -> impl Iterator<Item = &Figure> {
        self.figures.iter().filter(|figure| figure.is_off())
    }
}

/// Size below which a share of `at` of the model's articles lies: text, binaries and cancels together.
fn mixture(at: f64) -> f64 {
    let (mut low, mut high) = (1.0_f64, 1e7_f64);
    for _ in 0..60 {
        let middle = (low * high).sqrt();
        if share_below(middle) < at { low = middle } else { high = middle }
    }
    low
}

/// Of a cancel: a header and a word.
const CANCEL_BYTES: f64 = 500.0;

fn share_below(bytes: f64) -> f64 {
    let below = |from: f64| if from < bytes { 1.0 } else { 0.0 };
    let text = integral(|at| below(model::size_quantile(at)));
    let binary = normal_share((bytes / model::BINARY_BYTES_MEDIAN).ln() / model::BINARY_BYTES_SIGMA);
    let cancels = model::CANCEL_SHARE;
    let articles = (1.0 - model::BINARY_SHARE) * text + model::BINARY_SHARE * binary;
    (1.0 - cancels) * articles + cancels * below(CANCEL_BYTES)
}

/// The standard normal's share below `z`, within 0.0002 (Hastings, 26.2.17 would be finer and is not needed).
fn normal_share(z: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.33267 * z.abs());
    let tail = (-z * z / 2.0).exp() / std::f64::consts::TAU.sqrt()
        * t
        * (0.436_183_6 + t * (-0.120_167_6 + t * 0.937_298));
    if z > 0.0 { 1.0 - tail } else { tail }
}

/// Mean of a function over 0 to 1.
fn integral(of: impl Fn(f64) -> f64) -> f64 {
    const STEPS: usize = 20_000;
    (0..STEPS).map(|step| of((step as f64 + 0.5) / STEPS as f64)).sum::<f64>() / STEPS as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_binaries_brings_the_mean_size_to_the_papers() {
        let text = integral(model::size_quantile);
        assert!((text / 2219.0 - 1.0).abs() < 0.02, "text: {text}");
        // Mean of the lognormal law, a little less for its upper bound.
        let binary = model::BINARY_BYTES_MEDIAN * (model::BINARY_BYTES_SIGMA.powi(2) / 2.0).exp() * 0.995;
        let articles = (1.0 - model::BINARY_SHARE) * text + model::BINARY_SHARE * binary;
        let mean = (1.0 - model::CANCEL_SHARE) * articles + model::CANCEL_SHARE * CANCEL_BYTES;
        assert!((mean / model::ARTICLE_BYTES_MEAN - 1.0).abs() < 0.01, "mean: {mean}");
    }

    #[test]
    fn quantiles_of_the_mixture_are_those_of_its_largest_part_in_the_middle() {
        assert!((mixture(0.5) / 1578.0 - 1.0).abs() < 0.03, "{}", mixture(0.5));
        assert!(mixture(0.99) > 25_000.0);
    }
}
