//! The one line that a person writes for a distribution, read and written.
//!
//! Always holds: what is rendered reads back as an equal law; every mistake names what was found and what belongs there.
//! Not here: the forms and what they mean (see the head of `distribution`), single values (see `quantity`).

use super::Dimension;
use super::quantity::{expected_number, parse_number, parse_quantity, quantity_text};
use super::shape::{Histogram, Shape};
use crate::error::ValueProblem;

const ZIPF_ALPHA_MAX: f64 = 3.0;
const FORMS: &str = "a number, or one of: uniform LOW..HIGH, zipf ALPHA, lognormal median= mean= max=, \
                     pareto mean= (or min=) alpha= max=, histogram VALUE:WEIGHT ..., mix WEIGHT: ... | WEIGHT: ...";

/// Lines with comments and white space taken off, numbered from 1, empty ones left out.
pub(crate) fn meaningful_lines(source: &str) -> impl Iterator<Item = (usize, &str)> {
    source
        .lines()
        .enumerate()
        .map(|(index, line)| (index + 1, line.split('#').next().unwrap_or_default().trim()))
        .filter(|(_, line)| !line.is_empty())
}

/// Reads a law.
pub(super) fn parse(text: &str, dimension: Dimension) -> Result<Shape, ValueProblem> {
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
        Shape::pareto_of_mean(value, alpha, max)
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
        parts.push((weight, parse(of.trim(), dimension)?));
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

/// Reads one value of a histogram with its weight.
pub(super) fn parse_entry(text: &str, dimension: Dimension) -> Result<(f64, f64), ValueProblem> {
    let problem = || ValueProblem::new(text, "VALUE:WEIGHT with a weight of 0 or more, such as `8KiB:10`");
    let (value, weight) = text.split_once(':').ok_or_else(problem)?;
    Ok((parse_quantity(value.trim(), dimension)?, parse_number(weight.trim()).ok_or_else(problem)?))
}

/// Writes a law.
pub(super) fn render(shape: &Shape, dimension: Dimension) -> String {
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
