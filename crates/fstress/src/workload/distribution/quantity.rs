//! One value as it is written: `8KiB`, `1.5 MB`, `1_000`.
//!
//! Always holds: what [`quantity_text`] writes reads back as the same number.

use measure::quantity::{QuantityError, bytes_per_unit, factor_of_count, refuse_grouped};

use super::Dimension;
use crate::error::ValueProblem;

/// What values are written in; any unit of a size is read.
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

/// What belongs where a value of the given dimension is to stand.
pub(super) fn expected_number(dimension: Dimension) -> &'static str {
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
    if let Err(QuantityError::Grouped { write } | QuantityError::DecimalComma { write }) =
        refuse_grouped(text)
    {
        return Err(ValueProblem::new(text, format_args!("{write}, without a comma")));
    }
    let problem = || ValueProblem::new(text, expected_number(dimension));
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(text.len());
    let (number, unit) = (&text[..digits].replace('_', ""), text[digits..].trim());
    let value = parse_number(number).ok_or_else(problem)?;
    match dimension {
        Dimension::Weight if unit.is_empty() => Ok(value),
        Dimension::Count if unit.is_empty() && value.fract() == 0.0 => Ok(value),
        Dimension::Count => {
            let value = value * factor_of_count(unit).ok_or_else(problem)? as f64;
            if value.fract() == 0.0 { Ok(value) } else { Err(problem()) }
        }
        Dimension::Bytes => Ok(value * bytes_per_unit(unit).ok_or_else(problem)? as f64),
        Dimension::Weight => Err(problem()),
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
