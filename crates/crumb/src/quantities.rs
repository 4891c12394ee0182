//! How flags read counts, sizes, times and numbers: `measure::quantity`, as clap's `value_parser` takes it.
//!
//! Always holds: a flag whose value is such a quantity names it by one of [`VALUE_NAMES`], so that a test can find all of
//! them and a minus sign reaches the parser that explains it.

use std::num::{NonZeroU8, NonZeroU16, NonZeroU32, NonZeroU64, NonZeroUsize};
use std::ops::RangeInclusive;

use clap::Command;
pub use measure::quantity::{QuantityError, refuse_grouped, time};

/// Names of values that are counts, sizes, times, rates, shares and other numbers, or lists of them.
pub const VALUE_NAMES: [&str; 20] = [
    "N",
    "MIB",
    "SIZE",
    "SIZES",
    "LOW..HIGH",
    "auto|SIZE",
    "TIME",
    "off|TIME",
    "MEAN,SD",
    "RATE",
    "RATES",
    "BOUND",
    "PERCENT",
    "TENTHS",
    "SHARE",
    "TIMES",
    "ALPHA",
    "FACTOR",
    "R:W",
    "PASSES",
];

/// A type that holds a whole number.
pub trait Whole: Clone + Send + Sync + Sized + 'static {
    /// Its smallest and largest number.
    const RANGE: RangeInclusive<u64>;
    /// The number, if it is within the range.
    fn of(number: u64) -> Option<Self>;
}

macro_rules! whole {
    ($($plain:ident $non_zero:ident),*) => {$(
        impl Whole for $plain {
            const RANGE: RangeInclusive<u64> = 0..=$plain::MAX as u64;
            fn of(number: u64) -> Option<Self> {
                Self::try_from(number).ok()
            }
        }
        impl Whole for $non_zero {
            const RANGE: RangeInclusive<u64> = 1..=$plain::MAX as u64;
            fn of(number: u64) -> Option<Self> {
                Self::new($plain::try_from(number).ok()?)
            }
        }
    )*};
}
whole!(u8 NonZeroU8, u16 NonZeroU16, u32 NonZeroU32, u64 NonZeroU64, usize NonZeroUsize);

/// A count, as `20000` or `20k`.
///
/// # Errors
/// When the text is not one, or the value does not fit the type.
pub fn count<W: Whole>(text: &str) -> Result<W, QuantityError> {
    count_in(W::RANGE)(text)
}

/// A parser of counts within `range`.
pub fn count_in<W: Whole>(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<W, QuantityError> + Clone + Send + Sync + 'static {
    move |text| measure::quantity::count_in(text, &range).map(held)
}

/// A size in bytes, as `64KiB` or `1.5G`.
///
/// # Errors
/// When the text is not one, or the value does not fit the type.
pub fn size<W: Whole>(text: &str) -> Result<W, QuantityError> {
    size_in(W::RANGE)(text)
}

/// A parser of sizes within `range`.
pub fn size_in<W: Whole>(
    range: RangeInclusive<u64>,
) -> impl Fn(&str) -> Result<W, QuantityError> + Clone + Send + Sync + 'static {
    move |text| measure::quantity::size_in(text, &range).map(held)
}

/// A parser of numbers with or without a fraction within `range`.
pub fn number_in(
    range: RangeInclusive<f64>,
) -> impl Fn(&str) -> Result<f64, QuantityError> + Clone + Send + Sync + 'static {
    move |text| measure::quantity::number_in(text, &range)
}

/// A parser of percentages within `range`, with or without the sign; 5 for `5%`.
pub fn percent_in(
    range: RangeInclusive<f64>,
) -> impl Fn(&str) -> Result<f64, QuantityError> + Clone + Send + Sync + 'static {
    move |text| measure::quantity::percent_in(text, &range)
}

fn held<W: Whole>(number: u64) -> W {
    W::of(number).expect("the range of a flag is within that of its type")
}

/// The same command, whose quantities may begin with a minus sign: without it clap takes `-5` for a flag, and says nothing
/// of what is accepted.
pub fn with_negative_numbers(command: Command) -> Command {
    command
        .mut_args(|arg| {
            let names = arg.get_value_names().unwrap_or_default();
            let is_quantity = names.iter().any(|name| VALUE_NAMES.contains(&name.as_str()));
            if is_quantity { arg.allow_negative_numbers(true) } else { arg }
        })
        .mut_subcommands(with_negative_numbers)
}

#[cfg(test)]
mod tests;
