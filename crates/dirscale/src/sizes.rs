//! Sizes of directories to measure, rising: `1..524288` by doubling, or a list.

use std::fmt;
use std::str::FromStr;

use measure::quantity::{QuantityError, count, refuse_grouped};

/// Rising numbers of files; at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sizes(Vec<u64>);

/// A text that is no list of sizes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}`: {wrong}; give a range to double through, such as 1..524288, or sizes such as 1000,10k,100k"
)]
pub struct SizesError {
    /// The text.
    pub text: String,
    /// What is wrong.
    pub wrong: String,
}

/// More files in one directory than this are more than any layout's numbers were made for.
const SIZE_MAX: u64 = 1 << 32;

impl Sizes {
    /// These sizes, in any order; `None` when there are none but 0. Text such as `512,600` would be refused as one number with a
    /// thousands separator.
    pub fn of(sizes: impl IntoIterator<Item = u64>) -> Option<Self> {
        let sizes: Vec<u64> = sizes.into_iter().filter(|size| *size > 0).collect();
        (!sizes.is_empty()).then(|| Self::rising(sizes))
    }

    fn rising(mut sizes: Vec<u64>) -> Self {
        // A directory only grows.
        sizes.sort_unstable();
        sizes.dedup();
        Self(sizes)
    }

    /// The sizes, rising.
    pub fn as_slice(&self) -> &[u64] {
        &self.0
    }

    /// The largest.
    pub fn largest(&self) -> u64 {
        *self.0.last().expect("there is at least one size")
    }

    /// Those up to `most`; all where none is so small.
    pub(crate) fn up_to(&self, most: u64) -> Self {
        let fit: Vec<u64> = self.0.iter().copied().filter(|size| *size <= most).collect();
        if fit.is_empty() { self.clone() } else { Self(fit) }
    }

    fn doubling(first: u64, last: u64) -> Vec<u64> {
        let mut sizes: Vec<u64> = std::iter::successors(Some(first), |size| size.checked_mul(2))
            .take_while(|size| *size <= last)
            .collect();
        // The end that was asked for is measured, whether doubling hits it or not.
        if sizes.last() != Some(&last) {
            sizes.push(last);
        }
        sizes
    }
}

impl Default for Sizes {
    /// The paper's: 1, 2, 4 … 524288.
    fn default() -> Self {
        Self(Self::doubling(1, 524_288))
    }
}

impl FromStr for Sizes {
    type Err = SizesError;

    fn from_str(text: &str) -> Result<Self, SizesError> {
        let error = |wrong: &str| SizesError { text: text.to_owned(), wrong: wrong.to_owned() };
        let number = |text: &str| match count(text) {
            Ok(0) => Err(error("an empty directory has nothing to look up")),
            Ok(size) if size <= SIZE_MAX => Ok(size),
            Ok(_) => Err(error("more than 4294967296 files")),
            Err(wrong @ (QuantityError::Grouped { .. } | QuantityError::DecimalComma { .. })) => {
                Err(error(&wrong.to_string()))
            }
            Err(_) => Err(error("not a number of files")),
        };
        if measure::grouped_number(text).is_some_and(|one| one <= SIZE_MAX)
            && let Err(wrong) = refuse_grouped(text)
        {
            let several = text.replace(',', ", ");
            return Err(error(&format!("{wrong}, or '{several}' with spaces for several sizes")));
        }
        let mut sizes = Vec::new();
        for part in text.split(',') {
            match part.split_once("..") {
                Some((first, last)) => {
                    let (first, last) = (number(first)?, number(last)?);
                    if first > last {
                        return Err(error("a range that falls"));
                    }
                    sizes.extend(Self::doubling(first, last));
                }
                None => sizes.push(number(part)?),
            }
        }
        Ok(Self::rising(sizes))
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (first, last) = (self.0[0], self.largest());
        if self.0.len() > 2 && self.0 == Self::doubling(first, last) {
            return write!(f, "{first}..{last}");
        }
        let texts: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&texts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(text: &str) -> Vec<u64> {
        text.parse::<Sizes>().unwrap().0
    }

    #[test]
    fn a_range_doubles_and_measures_its_end() {
        assert_eq!(sizes("1..524288").len(), 20);
        assert_eq!(sizes("1..524288"), Sizes::default().0);
        assert_eq!(sizes("1..10"), [1, 2, 4, 8, 10]);
        assert_eq!(sizes("100..100"), [100]);
    }

    #[test]
    fn a_list_is_measured_rising_and_each_size_once() {
        assert_eq!(sizes("1000, 10,1000"), [10, 1000]);
        assert_eq!(sizes("1..4,100"), [1, 2, 4, 100]);
        assert_eq!(sizes("1k,20k"), [1_000, 20_000]);
        assert_eq!(sizes("20, 300"), [20, 300]);
    }

    #[test]
    fn sizes_are_made_of_numbers_too() {
        assert_eq!(Sizes::of([600, 512, 600]).unwrap().0, [512, 600]);
        assert_eq!(Sizes::of([0]), None);
    }

    #[test]
    fn what_is_no_size_is_refused_with_an_example() {
        for text in ["", "0", "1..", "8..4", "many", "-1", "1,,2", "99999999999"] {
            let error = text.parse::<Sizes>().unwrap_err();
            assert!(error.to_string().contains("such as 1..524288"), "{error}");
        }
        let grouped = "20,300".parse::<Sizes>().unwrap_err().to_string();
        assert!(grouped.contains("write 20300 or 20.3k, or '20, 300'"), "{grouped}");
    }

    #[test]
    fn what_is_shown_is_read_back() {
        for text in ["1..524288", "1,2", "7", "10,1000", "3..20"] {
            let parsed: Sizes = text.parse().unwrap();
            assert_eq!(parsed.to_string().parse::<Sizes>().unwrap(), parsed);
        }
    }
}
