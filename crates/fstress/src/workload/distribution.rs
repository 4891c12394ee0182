//! What a workload is made of: values drawn at random, each described by one line a person can write.
//!
//! ```text
//! 8KiB                                             always the same (B, KB = 1000 B, KiB = 1024 B, MB, MiB, ... TiB)
//! uniform 20..60                                   any value from 20 to 60, ends included
//! lognormal median=1.3KB mean=10.5KB max=138MB     long tail; what exceeds max becomes max
//! pareto mean=4.7KB alpha=1.2 max=1MB              power law between min and max; or min= instead of mean=
//! histogram 1KiB:33 2KiB:21 4KiB:13                value:weight, the form of the paper's files
//! mix 0.6: 5KB | 0.4: uniform 40KB..50KB           one of several, by weight
//! zipf 0.75                                        popularities only, see below
//! ```
//!
//! **Popularity without knowing the population.** Zipf's law gives the object of rank r among N a share
//! proportional to r^-alpha. Ranks shift whenever a file set grows, so each new object instead gets the weight
//! u^-alpha with u uniform in (0, 1]: among N such draws the r-th smallest u lies near r/N, hence the r-th
//! heaviest object weighs about (r/N)^-alpha, which is Zipf's law times a constant, whatever N has become.
//! The smallest u of N draws has no lower bound, and one lucky draw could attract most requests, so u counts
//! as at least 1/N, which is where Zipf's law has its first rank.
//!
//! Always holds: samples are finite and not negative; equal seeds give equal samples; `parse(to_string())`
//! gives an equal distribution.
//! Not here: the files of `value:weight` lines as a whole (see `workload`).
//! Source: Anderson, "Fstress", sections 3.1 and 5 (the twelve parameters; `value:weight` histograms).

mod notation;
mod quantity;
mod shape;

use std::fmt;
use std::path::Path;

use measure::{SETTINGS_BYTES_MAX, read_text};
use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

pub(crate) use self::notation::meaningful_lines;
pub(crate) use self::quantity::{parse_number, parse_quantity, quantity_text};
use self::shape::{Histogram, Shape, ZIPF_U_MIN};
use crate::error::{FstressError, Place, ValueProblem};
use crate::objects::weights::WEIGHT_ONE;

/// What the values of a distribution are, which decides how they may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dimension {
    /// Whole numbers of things, such as files in a directory.
    Count,
    /// Bytes; units such as `KiB` are understood.
    Bytes,
    /// Popularities: relative weights; `zipf` is understood.
    Weight,
}

/// Values drawn at random. Two are equal when they draw equally, however they were written.
#[derive(Clone, Debug)]
pub struct Distribution {
    text: String,
    dimension: Dimension,
    shape: Shape,
}

impl PartialEq for Distribution {
    fn eq(&self, other: &Self) -> bool {
        self.dimension == other.dimension && self.shape == other.shape
    }
}

impl Distribution {
    /// Reads the one-line form.
    pub fn parse(text: &str, dimension: Dimension) -> Result<Self, ValueProblem> {
        let text = text.trim();
        let shape = notation::parse(text, dimension)?;
        Ok(Self { text: text.to_owned(), dimension, shape })
    }

    /// Always `value`.
    pub fn constant(value: f64, dimension: Dimension) -> Self {
        assert!(value.is_finite() && value >= 0.0, "a constant of {value} cannot be drawn");
        Self::of(Shape::Constant(value), dimension)
    }

    /// Popularities by Zipf's law; `alpha` from 0 (all alike) to 3.
    pub fn zipf(alpha: f64) -> Result<Self, ValueProblem> {
        Self::parse(&format!("zipf {alpha}"), Dimension::Weight)
    }

    /// Reads a file of `value:weight` lines; `#` starts a comment. A single line `value` is a constant.
    pub fn load(path: &Path, dimension: Dimension) -> Result<Self, FstressError> {
        let source = read_text(path, SETTINGS_BYTES_MAX)
            .map_err(|source| FstressError::ReadWorkload { path: path.to_owned(), source })?;
        let file = path.display().to_string();
        let at = |line: usize, problem| FstressError::BadValue {
            place: Place::line(&file, line),
            key: "value:weight".to_owned(),
            problem,
        };
        let mut entries = Vec::new();
        let mut last_line = 1;
        for (line, text) in meaningful_lines(&source) {
            last_line = line;
            // The other forms are as welcome in a file of their own: one line, one distribution.
            if entries.is_empty() && !text.contains(':')
                || text.starts_with(|c: char| c.is_ascii_alphabetic())
            {
                let single = meaningful_lines(&source).count() == 1;
                let distribution = Self::parse(text, dimension).map_err(|problem| at(line, problem))?;
                if single {
                    return Ok(distribution);
                }
                return Err(at(line, ValueProblem::new(text, "value:weight, as there are more lines")));
            }
            entries.push(notation::parse_entry(text, dimension).map_err(|problem| at(line, problem))?);
        }
        let histogram = Histogram::new(entries).map_err(|problem| at(last_line, problem))?;
        Ok(Self::of(Shape::Histogram(histogram), dimension))
    }

    fn of(shape: Shape, dimension: Dimension) -> Self {
        Self { text: notation::render(&shape, dimension), dimension, shape }
    }

    /// What its values are.
    pub fn dimension(&self) -> Dimension {
        self.dimension
    }

    /// The Zipf exponent, if it is a Zipf law.
    pub fn zipf_alpha(&self) -> Option<f64> {
        match self.shape {
            Shape::Zipf { alpha } => Some(alpha),
            _ => None,
        }
    }

    /// The value, if it is always the same.
    pub fn constant_value(&self) -> Option<f64> {
        match self.shape {
            Shape::Constant(value) => Some(value),
            _ => None,
        }
    }

    /// Draws a value.
    #[inline]
    pub fn sample(&self, rng: &mut impl Rng) -> f64 {
        self.shape.sample(self.dimension, ZIPF_U_MIN, rng)
    }

    /// Draws a value, rounded to a whole number.
    #[inline]
    pub fn sample_u64(&self, rng: &mut impl Rng) -> u64 {
        self.sample(rng).round() as u64
    }

    /// Draws the weight of a new object for a [`crate::WeightTree`], in units of 1/[`WEIGHT_ONE`].
    ///
    /// `population` is how many objects the set has or is soon to have; it bounds what one draw can take (see
    /// the head of this file). What is above zero never becomes zero.
    pub fn sample_weight(&self, population: u64, rng: &mut impl Rng) -> u32 {
        let u_min = 1.0 / population.max(1) as f64;
        let weight = self.shape.sample(self.dimension, u_min, rng);
        let units = (weight * f64::from(WEIGHT_ONE)).round();
        if weight > 0.0 { units.clamp(1.0, f64::from(u32::MAX)) as u32 } else { 0 }
    }

    /// Expected value.
    pub fn mean(&self) -> f64 {
        self.shape.mean()
    }

    /// How many requests of `request_bytes` it takes on average to go once through a whole file of this size;
    /// an empty file takes one.
    ///
    /// That is more than mean size over request size, as nearly every file ends in the middle of a request:
    /// with the paper's web files of 10.5 KB and 8 KB requests about two, not 1.3.
    pub fn requests_per_file(&self, request_bytes: f64) -> f64 {
        // The part of the last request that is empty lies between 0 and 1, so its mean is found well by
        // sampling, while the mean size of a long tail is not.
        const SAMPLES: u32 = 100_000;
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let unfilled: f64 = (0..SAMPLES)
            .map(|_| self.sample(&mut rng).round() / request_bytes)
            .map(|requests| requests.ceil().max(1.0) - requests)
            .sum();
        self.mean() / request_bytes + unfilled / f64::from(SAMPLES)
    }

    /// The same with every value multiplied by `factor`, which must be finite and above zero.
    pub fn scaled(&self, factor: f64) -> Self {
        assert!(factor.is_finite() && factor > 0.0, "values cannot be scaled by {factor}");
        Self::of(self.shape.scaled(factor), self.dimension)
    }
}

impl fmt::Display for Distribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> Distribution {
        Distribution::parse(text, Dimension::Bytes).unwrap_or_else(|problem| panic!("{text}: {problem}"))
    }

    fn rng() -> Xoshiro256PlusPlus {
        Xoshiro256PlusPlus::seed_from_u64(7)
    }

    #[test]
    fn units_of_a_thousand_and_of_1024_are_told_apart() {
        assert_eq!(bytes("8KiB").mean(), 8192.0);
        assert_eq!(bytes("8KB").mean(), 8000.0);
        assert_eq!(bytes("1.5 MiB").mean(), 1_572_864.0);
        assert_eq!(bytes("1_000").mean(), 1000.0);
        assert_eq!(bytes("2TiB").mean(), 2.0 * 1024f64.powi(4));
    }

    #[test]
    fn sample_means_agree_with_the_means_told() {
        for text in [
            "8KiB",
            "uniform 1KB..3KB",
            "lognormal median=3MB mean=3.7MB max=700MB",
            "lognormal median=1KB mean=3KB max=5KB",
            "pareto mean=4.7KB alpha=1.2 max=1MB",
            "pareto min=1KB alpha=1 max=50KB",
            "pareto min=1KB alpha=2.5 max=1GB",
            "histogram 1KiB:33 2KiB:21 1MiB:1",
            "mix 0.6: 5KB | 0.4: uniform 40KB..50KB",
        ] {
            let distribution = bytes(text);
            let mut rng = rng();
            let n = 400_000;
            let mean = (0..n).map(|_| distribution.sample(&mut rng)).sum::<f64>() / f64::from(n);
            let off = mean / distribution.mean() - 1.0;
            assert!(off.abs() < 0.02, "{text}: drawn mean {mean}, declared {}", distribution.mean());
        }
    }

    #[test]
    fn a_pareto_law_asked_by_its_mean_has_that_mean() {
        let distribution = bytes("pareto mean=4.7KB alpha=1.2 max=1MB");
        assert!((distribution.mean() - 4700.0).abs() < 0.01, "{}", distribution.mean());
    }

    #[test]
    fn the_web_file_sizes_have_the_median_and_mean_of_the_papers_trace() {
        let sizes = bytes("lognormal median=1.3KB mean=10.5KB max=138MB");
        let mut rng = rng();
        let mut drawn: Vec<f64> = (0..200_000).map(|_| sizes.sample(&mut rng)).collect();
        drawn.sort_by(f64::total_cmp);
        assert!((drawn[100_000] / 1300.0 - 1.0).abs() < 0.03, "median {}", drawn[100_000]);
        assert!((sizes.mean() / 10_500.0 - 1.0).abs() < 0.001, "mean {}", sizes.mean());
        assert!(*drawn.last().unwrap() <= 138e6);
    }

    #[test]
    fn a_web_file_takes_about_two_reads_of_8_kib_as_the_paper_says() {
        let reads = bytes("lognormal median=1.3KB mean=10.5KB max=138MB").requests_per_file(8192.0);
        assert!((1.9..2.2).contains(&reads), "{reads}");
        assert_eq!(bytes("0").requests_per_file(8192.0), 1.0);
        assert!((bytes("16KiB").requests_per_file(8192.0) - 2.0).abs() < 1e-9);
    }

    #[test]
    fn a_uniform_count_gives_both_ends_their_full_share() {
        let distribution = Distribution::parse("uniform 1..4", Dimension::Count).unwrap();
        let mut rng = rng();
        let mut seen = [0; 5];
        for _ in 0..40_000 {
            seen[distribution.sample_u64(&mut rng) as usize] += 1;
        }
        assert_eq!(seen[0], 0);
        assert!(seen[1..].iter().all(|n| (9_500..10_500).contains(n)), "{seen:?}");
    }

    #[test]
    fn drawn_popularities_follow_zipfs_law_by_rank_whatever_the_population() {
        for (alpha, n) in [(0.75, 10_000u64), (1.3, 10_000), (0.75, 200_000)] {
            let popularity = Distribution::zipf(alpha).unwrap();
            let mut rng = rng();
            let mut weights: Vec<f64> =
                (0..n).map(|_| f64::from(popularity.sample_weight(n, &mut rng))).collect();
            weights.sort_by(|a, b| b.total_cmp(a));
            // Ranks deep enough for the order statistic to be steady.
            for rank in [n as usize / 20, n as usize / 10, n as usize / 2] {
                let expected = (rank as f64 / n as f64).powf(-alpha) * f64::from(WEIGHT_ONE);
                let off = weights[rank - 1] / expected - 1.0;
                assert!(off.abs() < 0.2, "alpha {alpha}, {n} objects, rank {rank}: off by {off}");
            }
        }
    }

    #[test]
    fn no_single_draw_of_a_steep_zipf_law_attracts_most_requests() {
        let popularity = Distribution::zipf(1.3).unwrap();
        for seed in 0..200 {
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
            let weights: Vec<u64> =
                (0..2_000).map(|_| u64::from(popularity.sample_weight(2_000, &mut rng))).collect();
            let share = *weights.iter().max().unwrap() as f64 / weights.iter().sum::<u64>() as f64;
            assert!(share < 0.45, "seed {seed}: one of 2000 objects draws {share}");
        }
    }

    #[test]
    fn a_weight_above_zero_stays_above_zero_and_zero_stays_zero() {
        let tiny = Distribution::parse("0.0001", Dimension::Weight).unwrap();
        assert_eq!(tiny.sample_weight(10, &mut rng()), 1);
        let none = Distribution::parse("0", Dimension::Weight).unwrap();
        assert_eq!(none.sample_weight(10, &mut rng()), 0);
    }

    #[test]
    fn what_was_written_and_what_is_rendered_read_back_equal() {
        for text in [
            "8KiB",
            "uniform 1KB..3KB",
            "lognormal median=1.3KB mean=10.5KB max=138MB",
            "pareto mean=4.7KB alpha=1.2 max=1MB",
            "pareto min=100 alpha=1.2 max=1MB",
            "histogram 1KiB:33 2KiB:21.5 12345:1",
            "mix 0.6: 5KB | 0.4: uniform 40KB..50KB",
        ] {
            let distribution = bytes(text);
            assert_eq!(bytes(&distribution.to_string()), distribution, "{text}");
            assert_eq!(
                bytes(&notation::render(&distribution.shape, Dimension::Bytes)),
                distribution,
                "{text}"
            );
            let scaled = distribution.scaled(0.37);
            assert_eq!(bytes(&scaled.to_string()).mean(), scaled.mean(), "{text} scaled: {scaled}");
        }
        assert_eq!(
            bytes("lognormal median=1.3KB mean=10.5KB max=138MB").scaled(2.0).to_string(),
            "lognormal median=2.6KB mean=21KB max=276MB"
        );
    }

    #[test]
    fn every_mistake_names_what_was_found_and_what_belongs_there() {
        for (text, dimension, expected) in [
            ("-5", Dimension::Bytes, "number of bytes of 0 or more"),
            ("8 Kebab", Dimension::Bytes, "KiB"),
            ("8Kx", Dimension::Bytes, "KiB"),
            ("20,300", Dimension::Bytes, "20300 or 20.3k"),
            ("1.5", Dimension::Count, "whole number"),
            ("8KiB", Dimension::Count, "whole number"),
            ("inf", Dimension::Weight, "histogram"),
            ("", Dimension::Weight, "uniform"),
            ("gauss 3", Dimension::Weight, "lognormal"),
            ("zipf 0.7", Dimension::Bytes, "popularities"),
            ("zipf 9", Dimension::Weight, "0 to 3"),
            ("zipf", Dimension::Weight, "0 to 3"),
            ("uniform 5..2", Dimension::Count, "LOW not above HIGH"),
            ("uniform 5", Dimension::Count, "LOW..HIGH"),
            ("lognormal median=3KB mean=2KB max=9KB", Dimension::Bytes, "0 < M < A < X"),
            ("lognormal median=3KB", Dimension::Bytes, "lognormal median=M"),
            ("pareto min=1KB mean=2KB alpha=1 max=3KB", Dimension::Bytes, "or min=M instead"),
            ("pareto min=1KB alpha=1 max=3KB max=4KB", Dimension::Bytes, "pareto mean=A"),
            ("histogram", Dimension::Bytes, "at least one"),
            ("histogram 1:0 2:0", Dimension::Bytes, "above zero"),
            ("histogram 1:-3", Dimension::Bytes, "weight of 0 or more"),
            ("mix 0.5 5KB", Dimension::Bytes, "WEIGHT: DISTRIBUTION"),
            ("mix 1: mix 1: 5KB", Dimension::Bytes, "no mix itself"),
        ] {
            let problem = Distribution::parse(text, dimension).expect_err(text).to_string();
            assert!(problem.contains(expected), "{text}: {problem}");
        }
    }
}
