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

use std::fmt;
use std::path::Path;

use rand::{Rng, RngExt, SeedableRng};
use rand_distr::StandardNormal;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::error::{FstressError, Place, ValueProblem};
use crate::weights::WEIGHT_ONE;

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

#[derive(Clone, Debug, PartialEq)]
enum Shape {
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
struct Histogram {
    entries: Vec<(f64, f64)>,
    share_up_to: Vec<f64>,
}

// A sample of a popularity whose population is not told: among more than 16 million objects the few most
// popular ones then weigh the same.
const ZIPF_U_MIN: f64 = 1.0 / (1 << 24) as f64;
const ZIPF_ALPHA_MAX: f64 = 3.0;
const FORMS: &str = "a number, or one of: uniform LOW..HIGH, zipf ALPHA, lognormal median= mean= max=, \
                     pareto mean= (or min=) alpha= max=, histogram VALUE:WEIGHT ..., mix WEIGHT: ... | WEIGHT: ...";
const UNITS: [(&str, f64); 9] = [
    ("TiB", (1u64 << 40) as f64),
    ("GiB", (1u64 << 30) as f64),
    ("MiB", (1u64 << 20) as f64),
    ("KiB", 1024.0),
    ("TB", 1e12),
    ("GB", 1e9),
    ("MB", 1e6),
    ("KB", 1e3),
    ("B", 1.0),
];

impl Distribution {
    /// Reads the one-line form.
    pub fn parse(text: &str, dimension: Dimension) -> Result<Self, ValueProblem> {
        let text = text.trim();
        let shape = parse_shape(text, dimension)?;
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
        let source = std::fs::read_to_string(path)
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
            entries.push(parse_entry(text, dimension).map_err(|problem| at(line, problem))?);
        }
        let histogram = Histogram::new(entries).map_err(|problem| at(last_line, problem))?;
        Ok(Self::of(Shape::Histogram(histogram), dimension))
    }

    fn of(shape: Shape, dimension: Dimension) -> Self {
        Self { text: render(&shape, dimension), dimension, shape }
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

impl Shape {
    fn sample(&self, dimension: Dimension, zipf_u_min: f64, rng: &mut impl Rng) -> f64 {
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

    fn mean(&self) -> f64 {
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

    fn scaled(&self, factor: f64) -> Self {
        match self {
            Self::Constant(value) => Self::Constant(value * factor),
            Self::Uniform { low, high } => Self::Uniform { low: low * factor, high: high * factor },
            Self::Zipf { alpha } => Self::Zipf { alpha: *alpha },
            Self::LogNormal { median, mean, max } => {
                Self::LogNormal { median: median * factor, mean: mean * factor, max: max * factor }
            }
            Self::Pareto { min, alpha, max, mean_asked } => match mean_asked {
                Some(mean) => pareto_of_mean(mean * factor, *alpha, max * factor),
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
    fn new(entries: Vec<(f64, f64)>) -> Result<Self, ValueProblem> {
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

/// The bounded Pareto law with this mean; the mean rises with the minimum, so halving intervals finds it.
fn pareto_of_mean(mean: f64, alpha: f64, max: f64) -> Shape {
    let (mut low, mut high) = (mean * 1e-9, mean);
    for _ in 0..200 {
        let middle = (low + high) / 2.0;
        if pareto_mean(middle, alpha, max) < mean { low = middle } else { high = middle }
    }
    Shape::Pareto { min: (low + high) / 2.0, alpha, max, mean_asked: Some(mean) }
}

fn weighted_mean(parts: impl Iterator<Item = (f64, f64)>) -> f64 {
    let (sum, total) =
        parts.fold((0.0, 0.0), |(sum, total), (weight, value)| (sum + weight * value, total + weight));
    sum / total
}

/// Lines with comments and white space taken off, numbered from 1, empty ones left out.
pub(crate) fn meaningful_lines(source: &str) -> impl Iterator<Item = (usize, &str)> {
    source
        .lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line.split('#').next().unwrap_or_default().trim()))
        .filter(|(_, line)| !line.is_empty())
}

fn parse_shape(text: &str, dimension: Dimension) -> Result<Shape, ValueProblem> {
    let (form, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let rest = rest.trim();
    match form {
        "uniform" => {
            let expected = "uniform LOW..HIGH with LOW not above HIGH, such as `uniform 20..60`";
            let (low, high) = rest.split_once("..").ok_or_else(|| ValueProblem::new(text, expected))?;
            let (low, high) = (parse_quantity(low, dimension)?, parse_quantity(high, dimension)?);
            if low > high {
                return Err(ValueProblem::new(text, expected));
            }
            Ok(Shape::Uniform { low, high })
        }
        "zipf" if dimension != Dimension::Weight => Err(ValueProblem::new(
            text,
            format_args!("{}; zipf is for popularities", expected_number(dimension)),
        )),
        "zipf" => match parse_number(rest) {
            Some(alpha) if alpha <= ZIPF_ALPHA_MAX => Ok(Shape::Zipf { alpha }),
            _ => Err(ValueProblem::new(text, "zipf ALPHA with ALPHA from 0 to 3, such as `zipf 0.75`")),
        },
        "lognormal" => parse_log_normal(text, rest, dimension),
        "pareto" => parse_pareto(text, rest, dimension),
        "histogram" => {
            let entries = rest.split_whitespace().map(|entry| parse_entry(entry, dimension));
            Ok(Shape::Histogram(Histogram::new(entries.collect::<Result<_, _>>()?)?))
        }
        "mix" => parse_mix(rest, dimension),
        _ if text.starts_with(|c: char| c.is_ascii_alphabetic()) || text.is_empty() => {
            Err(ValueProblem::new(text, FORMS))
        }
        _ => Ok(Shape::Constant(parse_quantity(text, dimension)?)),
    }
}

fn parse_log_normal(text: &str, rest: &str, dimension: Dimension) -> Result<Shape, ValueProblem> {
    let expected = "lognormal median=M mean=A max=X with 0 < M < A < X, such as `lognormal median=1.3KB mean=10.5KB max=138MB`";
    let problem = || ValueProblem::new(text, expected);
    let [median, mean, max] = named(rest, ["median", "mean", "max"]).ok_or_else(problem)?;
    let value =
        |part: Option<&str>| part.ok_or_else(problem).and_then(|part| parse_quantity(part, dimension));
    let (median, mean, max) = (value(median)?, value(mean)?, value(max)?);
    if !(0.0 < median && median < mean && mean < max) {
        return Err(problem());
    }
    Ok(Shape::LogNormal { median, mean, max })
}

fn parse_pareto(text: &str, rest: &str, dimension: Dimension) -> Result<Shape, ValueProblem> {
    let expected = "pareto mean=A alpha=E max=X, or min=M instead of mean=A, with 0 < M, A < X and 0.1 <= E <= 10, \
                    such as `pareto mean=4.7KB alpha=1.2 max=1MB`";
    let problem = || ValueProblem::new(text, expected);
    let [min, mean, alpha, max] = named(rest, ["min", "mean", "alpha", "max"]).ok_or_else(problem)?;
    let alpha =
        alpha.and_then(parse_number).filter(|alpha| (0.1..=10.0).contains(alpha)).ok_or_else(problem)?;
    let max = parse_quantity(max.ok_or_else(problem)?, dimension)?;
    let given = |text| parse_quantity(text, dimension);
    let (value, is_mean) = match (min, mean) {
        (Some(min), None) => (given(min)?, false),
        (None, Some(mean)) => (given(mean)?, true),
        _ => return Err(problem()),
    };
    if !(0.0 < value && value < max) {
        return Err(problem());
    }
    Ok(if is_mean {
        pareto_of_mean(value, alpha, max)
    } else {
        Shape::Pareto { min: value, alpha, max, mean_asked: None }
    })
}

fn parse_mix(rest: &str, dimension: Dimension) -> Result<Shape, ValueProblem> {
    let mut parts = Vec::new();
    for part in rest.split('|').map(str::trim) {
        let expected = "WEIGHT: DISTRIBUTION, such as `mix 0.6: 5KB | 0.4: uniform 40KB..50KB`";
        let problem = || ValueProblem::new(part, expected);
        let (weight, of) = part.split_once(':').ok_or_else(problem)?;
        let weight = parse_number(weight.trim()).filter(|weight| *weight > 0.0).ok_or_else(problem)?;
        if of.trim().starts_with("mix") {
            return Err(ValueProblem::new(part, "a distribution that is no mix itself"));
        }
        parts.push((weight, parse_shape(of.trim(), dimension)?));
    }
    Ok(Shape::Mix(parts))
}

/// Splits `a=1 b=2` into the values of `names`; `None` if anything else stands there or one stands twice.
fn named<'a, const N: usize>(text: &'a str, names: [&str; N]) -> Option<[Option<&'a str>; N]> {
    let mut values = [None; N];
    for part in text.split_whitespace() {
        let (name, value) = part.split_once('=')?;
        let index = names.iter().position(|known| *known == name)?;
        if values[index].replace(value).is_some() {
            return None;
        }
    }
    Some(values)
}

fn parse_entry(text: &str, dimension: Dimension) -> Result<(f64, f64), ValueProblem> {
    let problem = || ValueProblem::new(text, "VALUE:WEIGHT with a weight of 0 or more, such as `8KiB:10`");
    let (value, weight) = text.split_once(':').ok_or_else(problem)?;
    Ok((parse_quantity(value.trim(), dimension)?, parse_number(weight.trim()).ok_or_else(problem)?))
}

fn expected_number(dimension: Dimension) -> &'static str {
    match dimension {
        Dimension::Count => "a whole number of 0 or more",
        Dimension::Bytes => {
            "a number of bytes of 0 or more, with or without B, KB, KiB, MB, MiB, GB, GiB, TB, TiB"
        }
        Dimension::Weight => "a number of 0 or more",
    }
}

/// A finite number of 0 or more in plain decimal notation.
pub(crate) fn parse_number(text: &str) -> Option<f64> {
    // Words that the standard parser takes for numbers (inf, nan) and signs are kept out here.
    let plain = text.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    text.parse::<f64>().ok().filter(|value| plain && value.is_finite() && *value >= 0.0)
}

/// One value of the given dimension, with its unit.
pub(crate) fn parse_quantity(text: &str, dimension: Dimension) -> Result<f64, ValueProblem> {
    let text = text.trim();
    let problem = || ValueProblem::new(text, expected_number(dimension));
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(text.len());
    let (number, unit) = (&text[..digits].replace('_', ""), text[digits..].trim());
    let value = parse_number(number).ok_or_else(problem)?;
    match dimension {
        Dimension::Weight if unit.is_empty() => Ok(value),
        Dimension::Count if unit.is_empty() && value.fract() == 0.0 => Ok(value),
        Dimension::Bytes if unit.is_empty() => Ok(value),
        Dimension::Bytes => {
            let (_, bytes) =
                UNITS.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).ok_or_else(problem)?;
            Ok(value * bytes)
        }
        _ => Err(problem()),
    }
}

/// The text of a value in the largest unit in which it is short and reads back to the same number.
pub(crate) fn quantity_text(value: f64, dimension: Dimension) -> String {
    if dimension == Dimension::Bytes {
        for (unit, bytes) in UNITS {
            let count = value / bytes;
            let text = format!("{count}");
            if count >= 1.0
                && text.len() <= 6
                && text.parse::<f64>().is_ok_and(|count| count * bytes == value)
            {
                return format!("{text}{unit}");
            }
        }
    }
    format!("{value}")
}

fn render(shape: &Shape, dimension: Dimension) -> String {
    let quantity = |value: f64| quantity_text(value, dimension);
    match shape {
        Shape::Constant(value) => quantity(*value),
        Shape::Uniform { low, high } => format!("uniform {}..{}", quantity(*low), quantity(*high)),
        Shape::Zipf { alpha } => format!("zipf {alpha}"),
        Shape::LogNormal { median, mean, max } => {
            format!("lognormal median={} mean={} max={}", quantity(*median), quantity(*mean), quantity(*max))
        }
        Shape::Pareto { min, alpha, max, mean_asked } => match mean_asked {
            Some(mean) => format!("pareto mean={} alpha={alpha} max={}", quantity(*mean), quantity(*max)),
            None => format!("pareto min={} alpha={alpha} max={}", quantity(*min), quantity(*max)),
        },
        Shape::Histogram(histogram) => {
            let entries = histogram.entries.iter().map(|(v, w)| format!(" {}:{w}", quantity(*v)));
            format!("histogram{}", entries.collect::<String>())
        }
        Shape::Mix(parts) => {
            let parts: Vec<_> =
                parts.iter().map(|(w, part)| format!("{w}: {}", render(part, dimension))).collect();
            format!("mix {}", parts.join(" | "))
        }
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
            assert!(off.abs() < 0.02, "{text}: drawn mean {mean}, told {}", distribution.mean());
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
            assert_eq!(bytes(&render(&distribution.shape, Dimension::Bytes)), distribution, "{text}");
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
            ("8K", Dimension::Bytes, "KiB"),
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
