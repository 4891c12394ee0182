//! What a run is asked to do. The types leave no value that a run would have to refuse.

use std::num::NonZeroU32;
use std::path::PathBuf;

/// All settings of the command language; [`Default`] gives the original's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Sizes of new files, and the size up to which files grow. Default 500 to 10000 bytes.
    pub size: SizeRange,
    /// Files made before the transactions; the table has twice as many slots. Default 500.
    pub number: NonZeroU32,
    /// Same seed, same operations. Default 42.
    pub seed: u32,
    /// Default 500.
    pub transactions: NonZeroU32,
    /// Where files are made, and how often one is chosen relative to the others. Default none: the working directory.
    pub locations: Vec<(PathBuf, NonZeroU32)>,
    /// Directories `s0`, `s1`, … in each location that files are spread over; below 2 there are none. Default 0.
    pub subdirectories: u32,
    /// Bytes that one read asks for. Default 512.
    pub read_block: NonZeroU32,
    /// Bytes that one write hands over. Default 512.
    pub write_block: NonZeroU32,
    /// Through a stream buffer as stdio has it, else one system call a block. Default yes.
    pub buffered: bool,
    /// Reading rather than appending. Default 5.
    pub read_bias: Bias,
    /// Creating rather than deleting. Default 5.
    pub create_bias: Bias,
    /// Default verbose.
    pub report: ReportForm,
}

impl Default for Settings {
    fn default() -> Self {
        let count = |count| NonZeroU32::new(count).expect("the original's defaults are not 0");
        Self {
            size: SizeRange::new(count(500), count(10_000)),
            number: count(500),
            seed: 42,
            transactions: count(500),
            locations: Vec::new(),
            subdirectories: 0,
            read_block: count(512),
            write_block: count(512),
            buffered: true,
            read_bias: Bias::EVEN,
            create_bias: Bias::EVEN,
            report: ReportForm::Verbose,
        }
    }
}

impl Settings {
    /// Directories `s0`, `s1`, … that a run makes in each location: one alone is none, as in the original.
    pub fn directories_made(&self) -> u32 {
        if self.subdirectories < 2 { 0 } else { self.subdirectories }
    }
}

/// From the smallest to the largest file, both at least one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeRange {
    low: NonZeroU32,
    high: NonZeroU32,
}

impl SizeRange {
    /// `high` is raised to `low` when it lies below.
    pub fn new(low: NonZeroU32, high: NonZeroU32) -> Self {
        Self { low, high: high.max(low) }
    }

    /// Smallest new file, bytes.
    pub fn low(self) -> u32 {
        self.low.get()
    }

    /// Largest file, bytes; a new one is smaller unless both bounds are equal.
    pub fn high(self) -> u32 {
        self.high.get()
    }
}

/// A chance in tenths, or not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bias(i8);

impl Bias {
    /// Neither of the two operations.
    pub const OFF: Self = Self(-1);
    /// One as often as the other.
    pub const EVEN: Self = Self(5);

    /// -1 for off, or 0 (never the first operation) to 10 (always).
    pub fn new(value: i32) -> Option<Self> {
        (-1..=10).contains(&value).then_some(Self(value as i8))
    }

    /// As it is set: -1 to 10.
    pub fn value(self) -> i32 {
        i32::from(self.0)
    }

    /// Tenths of the first operation, unless it is off.
    pub fn tenths(self) -> Option<u32> {
        u32::try_from(self.0).ok()
    }
}

/// The form of a run's report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportForm {
    /// In words.
    Verbose,
    /// 13 numbers on one line.
    Terse,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_high_bound_below_the_low_one_is_raised_to_it() {
        let range = SizeRange::new(100.try_into().unwrap(), 50.try_into().unwrap());
        assert_eq!((range.low(), range.high()), (100, 100));
    }

    #[test]
    fn a_bias_is_off_or_in_tenths() {
        assert_eq!(Bias::new(-1), Some(Bias::OFF));
        assert_eq!(Bias::OFF.tenths(), None);
        assert_eq!(Bias::new(10).unwrap().tenths(), Some(10));
        assert_eq!((Bias::new(-2), Bias::new(11)), (None, None));
    }
}
