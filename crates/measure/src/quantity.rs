//! Counts, sizes, times, rates and shares as people write them. All flags are read by these functions.
//!
//! ```text
//! count   20000   20k   1.5M            k, M, G, T, P are powers of 1000
//! size    512   64KiB   64k   1.5G      Ki, Mi, Gi, Ti, Pi, Ei are powers of 1024; a B may follow any of them
//! time    1.5s   200ms   2m   1h 30min  ns, us, ms, s, m, h, d, w and their words
//! rate    500   1.5k                    a number with a count's letters, per second
//! share   5%   5                        percent
//! ```
//!
//! Always holds: letters of units may be large or small; `_` may separate digits and a comma never does, so that
//! `20,300` is an error that says what to write; a result is exact or an error, except that a size is rounded down to
//! whole bytes.
//! Not here: lists and ranges of these (each flag's own), writing numbers (see `numbers`).

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::grouped::grouped_number;

/// A text that is not such a quantity. The caller names the flag and the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QuantityError {
    /// An empty text.
    #[error("the value is empty; expected {expected}")]
    Empty {
        /// What is accepted.
        expected: String,
    },
    /// Commas between thousands.
    #[error("a comma does not separate thousands: write {write}")]
    Grouped {
        /// The same number without commas.
        write: String,
    },
    /// A decimal comma.
    #[error("a fraction begins with a point: write {write}")]
    DecimalComma {
        /// The same number with a point.
        write: String,
    },
    /// A minus sign.
    #[error("a negative number is not accepted; expected {expected}")]
    Negative {
        /// What is accepted.
        expected: String,
    },
    /// A time without its unit.
    #[error("a time needs its unit: write {number}s, {number}ms or {number}m")]
    NoUnit {
        /// The number.
        number: String,
    },
    /// A unit of something else, or none at all.
    #[error("unknown unit `{unit}`; expected {expected}")]
    Unit {
        /// What follows the number.
        unit: String,
        /// What is accepted.
        expected: String,
    },
    /// A number that is too small, too large, or not whole.
    #[error("out of range; expected {expected}")]
    Range {
        /// What is accepted.
        expected: String,
    },
    /// No number.
    #[error("expected {expected}")]
    Form {
        /// What is accepted.
        expected: String,
    },
}

/// Factors of counts and rates.
const THOUSANDS: [(&str, u64); 5] = [
    ("k", 1_000),
    ("m", 1_000_000),
    ("g", 1_000_000_000),
    ("t", 1_000_000_000_000),
    ("p", 1_000_000_000_000_000),
];
const SECOND_NS: u64 = 1_000_000_000;
const DAY_NS: u64 = 24 * 3600 * SECOND_NS;
/// Units of time, each by all its names. A month is a twelfth of a year of 365.25 days.
const TIMES: [(&[&str], u64); 10] = [
    (&["ns", "nsec", "nanos"], 1),
    (&["us", "µs", "usec"], 1_000),
    (&["ms", "msec", "millis"], 1_000_000),
    (&["s", "sec", "secs", "second", "seconds"], SECOND_NS),
    (&["m", "min", "mins", "minute", "minutes"], 60 * SECOND_NS),
    (&["h", "hr", "hrs", "hour", "hours"], 3600 * SECOND_NS),
    (&["d", "day", "days"], DAY_NS),
    (&["w", "wk", "wks", "week", "weeks"], 7 * DAY_NS),
    (&["month", "months"], 2_630_016 * SECOND_NS),
    (&["y", "yr", "yrs", "year", "years"], 31_557_600 * SECOND_NS),
];
/// Enough for any fraction that means something, and a power of ten that fits.
const DECIMALS_MAX: usize = 18;

/// A whole number, such as `20000` or `20k`.
///
/// # Errors
/// When the text is not one, or the value does not fit.
pub fn count(text: &str) -> Result<u64, QuantityError> {
    count_in(text, &(0..=u64::MAX))
}

/// A whole number within `range`.
///
/// # Errors
/// When it is none, or outside.
pub fn count_in(text: &str, range: &RangeInclusive<u64>) -> Result<u64, QuantityError> {
    let expected = || {
        let example = if *range.end() >= 20_000 { ", such as 20000 or 20k" } else { "" };
        format!("a whole number {}{example}", between(range, u64::MAX))
    };
    let (decimal, unit) = Decimal::split(text, &expected)?;
    let factor = match unit {
        "" => 1,
        unit => factor_of_count(unit).ok_or_else(|| unknown(unit, &expected))?,
    };
    let whole = decimal.times(factor).filter(|(_, is_exact)| *is_exact);
    let number = whole.and_then(|(number, _)| u64::try_from(number).ok());
    number
        .filter(|number| range.contains(number))
        .ok_or_else(|| QuantityError::Range { expected: expected() })
}

/// A number of bytes, such as `64KiB`, `64k` (of 1000 bytes each) or `1.5G`.
///
/// # Errors
/// When the text is not one, or the value does not fit.
pub fn size(text: &str) -> Result<u64, QuantityError> {
    size_in(text, &(0..=u64::MAX))
}

/// A number of bytes within `range`.
///
/// # Errors
/// When it is none, or outside.
pub fn size_in(text: &str, range: &RangeInclusive<u64>) -> Result<u64, QuantityError> {
    let expected = || {
        let text = match (*range.start(), *range.end()) {
            (0, u64::MAX) => String::new(),
            (low, u64::MAX) => format!("of {} or more, ", size_text(low)),
            (low, high) => format!("from {} to {}, ", size_text(low), size_text(high)),
        };
        format!("a size {text}such as 512, 4KiB or 1.5k")
    };
    let (decimal, unit) = Decimal::split(text, &expected)?;
    let factor = bytes_per_unit(unit).ok_or_else(|| unknown(unit, &expected))?;
    let bytes = decimal.times(factor).and_then(|(bytes, _)| u64::try_from(bytes).ok());
    bytes.filter(|bytes| range.contains(bytes)).ok_or_else(|| QuantityError::Range { expected: expected() })
}

/// How many bytes a unit of size has: `KiB` and `Ki` 1024, `kB` and `k` 1000, `B` and nothing 1. None for other texts.
pub fn bytes_per_unit(unit: &str) -> Option<u64> {
    let unit = unit.to_ascii_lowercase();
    let scale = unit.strip_suffix('b').unwrap_or(&unit);
    let (letter, base) = match scale.strip_suffix('i') {
        Some(letter) => (letter, 1024_u64),
        None => (scale, 1000),
    };
    if scale.is_empty() {
        return Some(1);
    }
    let power = ["k", "m", "g", "t", "p", "e"].iter().position(|known| *known == letter)? as u32 + 1;
    Some(base.pow(power))
}

/// A time, such as `1.5s`, `200ms`, `2m` or `1h 30min`; no unit is needed for 0.
///
/// # Errors
/// When it is none, has no unit, or does not fit.
pub fn time(text: &str) -> Result<Duration, QuantityError> {
    let expected = || "a time, such as 1.5s, 200ms, 2m or 1h".to_owned();
    let mut ns: u128 = 0;
    let mut rest = text.trim();
    loop {
        let (decimal, after) = Decimal::split(rest, &expected).map_err(in_seconds)?;
        let unit_end = after.find(|letter: char| !letter.is_alphabetic()).unwrap_or(after.len());
        let (unit, more) = after.split_at(unit_end);
        if unit.is_empty() {
            let number = rest[..rest.len() - after.len()].trim();
            return match decimal.times(1) {
                Some((0, true)) if ns == 0 && more.is_empty() => Ok(Duration::ZERO),
                _ if more.is_empty() => Err(QuantityError::NoUnit { number: number.to_owned() }),
                _ => Err(unknown(more, &expected)),
            };
        }
        let factor = ns_per_unit(unit).ok_or_else(|| unknown(unit, &expected))?;
        let too_large = || QuantityError::Range { expected: expected() };
        let (part, _) = decimal.times(factor).ok_or_else(too_large)?;
        ns = ns.checked_add(part).ok_or_else(too_large)?;
        rest = more.trim();
        if rest.is_empty() {
            let seconds = u64::try_from(ns / u128::from(SECOND_NS)).map_err(|_| too_large())?;
            return Ok(Duration::new(seconds, (ns % u128::from(SECOND_NS)) as u32));
        }
    }
}

/// A number with or without a fraction within `range`, such as `0.5`, `1500` or `1.5k`: a rate, a factor, an exponent.
///
/// # Errors
/// When it is none, or outside.
pub fn number_in(text: &str, range: &RangeInclusive<f64>) -> Result<f64, QuantityError> {
    let expected = || {
        let (low, high) = (range.start(), range.end());
        let example = if *high >= 20_000.0 { ", such as 1500 or 1.5k" } else { "" };
        match high.is_finite() {
            true => format!("a number from {low} to {high}{example}"),
            false => format!("a number of {low} or more{example}"),
        }
    };
    let (_, unit) = Decimal::split(text, &expected)?;
    let plain = text.trim().replace('_', "");
    let value = match plain.parse::<f64>() {
        // With an exponent, as in 1e6, too.
        Ok(value) => value,
        Err(_) => {
            let factor = factor_of_count(unit).ok_or_else(|| unknown(unit, &expected))?;
            let digits = plain[..plain.len() - unit.len()].trim();
            digits.parse::<f64>().map_err(|_| QuantityError::Form { expected: expected() })? * factor as f64
        }
    };
    match range.contains(&value) {
        true => Ok(value),
        false => Err(QuantityError::Range { expected: expected() }),
    }
}

/// Percent within `range`, with or without the sign: `5%` and `5` are 5.
///
/// # Errors
/// When it is none, or outside.
pub fn percent_in(text: &str, range: &RangeInclusive<f64>) -> Result<f64, QuantityError> {
    let number = text.trim();
    number_in(number.strip_suffix('%').unwrap_or(number), range).map_err(|wrong| match wrong {
        QuantityError::Range { .. } | QuantityError::Form { .. } | QuantityError::Unit { .. } => {
            let expected = format!("percent from {} to {}, such as 5%", range.start(), range.end());
            QuantityError::Form { expected }
        }
        other => other,
    })
}

/// Refuses a number with its thousands separated by commas.
///
/// # Errors
/// For such a number, and with what to write instead.
pub fn refuse_grouped(text: &str) -> Result<(), QuantityError> {
    let text = text.trim();
    let end = text.find(|letter: char| !letter.is_ascii_digit() && letter != ',').unwrap_or(text.len());
    let (number, rest) = text.split_at(end);
    if let Some(value) = grouped_number(number) {
        let write = if rest.is_empty() { alternatives(value) } else { format!("{value}{rest}") };
        return Err(QuantityError::Grouped { write });
    }
    match number.split_once(',') {
        Some((whole, fraction)) if !whole.is_empty() && !fraction.is_empty() && !fraction.contains(',') => {
            Err(QuantityError::DecimalComma { write: format!("{whole}.{fraction}{rest}") })
        }
        _ => Ok(()),
    }
}

/// `20300 or 20.3k`.
pub(crate) fn alternatives(value: u64) -> String {
    let short = THOUSANDS.iter().rev().find(|(_, factor)| value >= *factor).map(|(letter, factor)| {
        let letter = if *letter == "k" { "k".to_owned() } else { letter.to_uppercase() };
        let fraction = format!("{:0width$}", value % factor, width = factor.ilog10() as usize);
        let number = format!("{}.{fraction}", value / factor);
        format!("{}{letter}", number.trim_end_matches('0').trim_end_matches('.'))
    });
    match short {
        Some(short) if short.len() <= value.to_string().len() => format!("{value} or {short}"),
        _ => value.to_string(),
    }
}

/// A number as it was written, exact.
struct Decimal {
    whole: u64,
    /// Its digits as a number, and how many there are.
    fraction: (u64, u32),
}

impl Decimal {
    /// Cuts a number from the begin of `text`; the rest is its unit, without blanks.
    fn split<'t>(text: &'t str, expected: &dyn Fn() -> String) -> Result<(Self, &'t str), QuantityError> {
        let text = text.trim();
        let text = text.strip_prefix('+').unwrap_or(text);
        if text.is_empty() {
            return Err(QuantityError::Empty { expected: expected() });
        }
        refuse_grouped(text)?;
        if text
            .strip_prefix(['-', '−'])
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit() || c == '.'))
        {
            return Err(QuantityError::Negative { expected: expected() });
        }
        let form = || QuantityError::Form { expected: expected() };
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(text.len());
        let (number, unit) = (text[..end].replace('_', ""), text[end..].trim());
        let (whole, fraction) = number.split_once('.').unwrap_or((&number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(form());
        }
        let range = || QuantityError::Range { expected: expected() };
        let read = |digits: &str| if digits.is_empty() { Ok(0) } else { digits.parse().map_err(|_| range()) };
        let fraction = fraction.trim_end_matches('0');
        let fraction = &fraction[..fraction.len().min(DECIMALS_MAX)];
        let decimal = Self { whole: read(whole)?, fraction: (read(fraction)?, fraction.len() as u32) };
        Ok((decimal, unit))
    }

    /// This many times `factor`, rounded down, and whether that is exact.
    fn times(&self, factor: u64) -> Option<(u128, bool)> {
        let factor = u128::from(factor);
        let (digits, decimals) = self.fraction;
        let (part, scale) = (u128::from(digits) * factor, 10_u128.pow(decimals));
        let whole = u128::from(self.whole).checked_mul(factor)?;
        Some((whole.checked_add(part / scale)?, part.is_multiple_of(scale)))
    }
}

/// The same, where a number alone is not accepted.
fn in_seconds(wrong: QuantityError) -> QuantityError {
    match wrong {
        QuantityError::Grouped { write } if !write.ends_with(|last: char| last.is_alphabetic()) => {
            QuantityError::Grouped { write: format!("{write}s") }
        }
        QuantityError::Grouped { write } => match write.split_once(" or ") {
            Some((number, _)) => QuantityError::Grouped { write: format!("{number}s") },
            None => QuantityError::Grouped { write },
        },
        other => other,
    }
}

/// What a letter after a count or a rate multiplies it by: `k` 1000. None for other texts.
pub fn factor_of_count(unit: &str) -> Option<u64> {
    THOUSANDS.iter().find(|(letter, _)| letter.eq_ignore_ascii_case(unit)).map(|(_, factor)| *factor)
}

fn ns_per_unit(unit: &str) -> Option<u64> {
    // A large M is a month: the only unit that differs from another by that alone.
    let unit = if unit == "M" { "month".to_owned() } else { unit.to_lowercase() };
    TIMES.iter().find(|(names, _)| names.contains(&unit.as_str())).map(|(_, ns)| *ns)
}

fn unknown(unit: &str, expected: &dyn Fn() -> String) -> QuantityError {
    QuantityError::Unit { unit: unit.to_owned(), expected: expected() }
}

fn between<N: Display + PartialEq>(range: &RangeInclusive<N>, highest: N) -> String {
    match *range.end() == highest {
        true => format!("of {} or more", range.start()),
        false => format!("from {} to {}", range.start(), range.end()),
    }
}

/// In the largest unit in which it is whole, those of 1024 first.
fn size_text(bytes: u64) -> String {
    let of = |names: [&'static str; 4], base: u64| {
        let units = names.into_iter().zip([1, 2, 3, 4]).rev();
        units
            .map(|(name, power)| (name, base.pow(power)))
            .find(|(_, unit)| bytes > 0 && bytes.is_multiple_of(*unit))
    };
    let unit = of(["KiB", "MiB", "GiB", "TiB"], 1024).or_else(|| of(["kB", "MB", "GB", "TB"], 1000));
    unit.map_or_else(|| format!("{bytes} B"), |(name, unit)| format!("{}{name}", bytes / unit))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn wrong<T: std::fmt::Debug>(result: Result<T, QuantityError>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn a_count_may_have_a_letter_for_its_thousands() {
        for (text, value) in [
            ("0", 0),
            ("20000", 20_000),
            ("20k", 20_000),
            ("20K", 20_000),
            ("20.3k", 20_300),
            ("1.5M", 1_500_000),
            ("2 G", 2_000_000_000),
            ("1_000", 1_000),
            ("+7", 7),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(count(text), Ok(value), "{text}");
        }
        for text in
            ["1.5", "1.0001k", "20Ki", "20x", "k", ".", "1.2.3", "nan", "inf", "18446744073709551616", "1e3"]
        {
            assert!(count(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_size_knows_powers_of_1000_and_of_1024() {
        for (text, value) in [
            ("512", 512),
            ("512B", 512),
            ("64KiB", 65_536),
            ("64ki", 65_536),
            ("64k", 64_000),
            ("64kB", 64_000),
            ("1.5G", 1_500_000_000),
            ("1.5 GiB", 1_610_612_736),
            ("10.7kB", 10_700),
            ("0.5", 0),
            ("16E", 16_000_000_000_000_000_000),
        ] {
            assert_eq!(size(text), Ok(value), "{text}");
        }
        for text in ["17EiB", "1x", "KiB", "ten", "1KiBB", "1i", "1e3"] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_time_may_have_a_fraction_and_several_parts_and_needs_its_unit() {
        for (text, ms) in [
            ("1.5s", 1_500),
            ("200ms", 200),
            ("2m", 120_000),
            ("2min", 120_000),
            ("1h", 3_600_000),
            ("1h30m", 5_400_000),
            ("1h 30 min", 5_400_000),
            ("0.25 d", 21_600_000),
            ("0", 0),
            ("1month", 2_630_016_000),
            ("1M", 2_630_016_000),
        ] {
            assert_eq!(time(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        assert_eq!(wrong(time("30")), "a time needs its unit: write 30s, 30ms or 30m");
        assert_eq!(wrong(time("1h 30")), "a time needs its unit: write 30s, 30ms or 30m");
        assert_eq!(wrong(time("1,500ms")), "a comma does not separate thousands: write 1500ms");
        assert!(wrong(time("5 parsecs")).contains("unknown unit `parsecs`"));
        assert!(wrong(time("99999999999999999999s")).contains("out of range"));
        assert!(time("18446744073709551615y").is_err() && time("s").is_err() && time("1s,2s").is_err());
    }

    #[test]
    fn a_comma_is_answered_with_what_to_write() {
        assert_eq!(wrong(count("20,300")), "a comma does not separate thousands: write 20300 or 20.3k");
        assert_eq!(wrong(size("1,250,000")), "a comma does not separate thousands: write 1250000 or 1.25M");
        assert_eq!(wrong(size("20,300KiB")), "a comma does not separate thousands: write 20300KiB");
        assert_eq!(wrong(time("20,300")), "a comma does not separate thousands: write 20300s");
        assert_eq!(wrong(time("20,301")), "a comma does not separate thousands: write 20301s");
        assert_eq!(wrong(number_in("1,5", &(0.0..=9.0))), "a fraction begins with a point: write 1.5");
        assert_eq!(alternatives(20_000), "20000 or 20k");
        assert_eq!(alternatives(20_301), "20301");
        assert_eq!(alternatives(7), "7");
    }

    #[test]
    fn an_error_says_what_is_wrong_and_what_is_accepted() {
        assert_eq!(wrong(count_in("0", &(1..=256))), "out of range; expected a whole number from 1 to 256");
        assert_eq!(
            wrong(count_in("-5", &(1..=u64::MAX))),
            "a negative number is not accepted; expected a whole number \
                    of 1 or more, such as 20000 or 20k"
        );
        assert!(wrong(count("")).contains("is empty") && wrong(time(" ")).contains("is empty"));
        assert_eq!(
            wrong(size_in("1", &(1024..=1 << 30))),
            "out of range; expected a size from 1KiB to 1GiB, such as 512, 4KiB or 1.5k"
        );
        assert!(wrong(number_in("nan", &(0.0..=1.0))).contains("a number from 0 to 1"));
        assert!(wrong(number_in("inf", &(0.0..=f64::INFINITY))).contains("a number of 0 or more"));
    }

    #[test]
    fn numbers_and_percentages_have_fractions() {
        for (text, value) in
            [("0.5", 0.5), ("1.5k", 1_500.0), ("2_000", 2_000.0), ("1e3", 1_000.0), ("20k", 20_000.0)]
        {
            assert_eq!(number_in(text, &(0.1..=1e7)), Ok(value), "{text}");
        }
        assert!(number_in("1e400", &(0.0..=f64::MAX)).is_err() && number_in("1e3k", &(0.0..=1e9)).is_err());
        assert_eq!(percent_in("2.5%", &(0.0..=100.0)), Ok(2.5));
        assert_eq!(percent_in("5", &(0.0..=100.0)), Ok(5.0));
        assert_eq!(wrong(percent_in("200", &(1.0..=100.0))), "expected percent from 1 to 100, such as 5%");
    }

    proptest! {
        #[test]
        fn no_text_makes_them_panic(text in "[-+]?[0-9_.,]{0,24} ?[ -~µ]{0,6}") {
            let _ = (count(&text), size(&text), time(&text), number_in(&text, &(0.0..=1e9)), percent_in(&text, &(0.0..=1.0)));
        }

        #[test]
        fn a_count_in_thousands_is_the_count(value in 0_u64..1 << 50) {
            let text = format!("{}.{:03}k", value / 1000, value % 1000);
            prop_assert_eq!(count(&text), Ok(value));
        }
    }
}
