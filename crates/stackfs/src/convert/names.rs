//! The layout of a directory for which none was given: by a sample of its names.

use std::path::Path;

use files::Layout;

use super::error::ConvertError;
use super::state::Names;
use crate::managed::{LAYOUT_UNMARKED, open_directory, takes_mark};

/// Names that are looked at.
const NAMES_MAX: u64 = 1000;

/// What the names of a directory are made of, by the first 1,000 of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NameSample {
    names: u64,
    /// Those that a layout by digits would put into [`Layout::OTHERS`].
    others: u64,
}

impl NameSample {
    /// Samples the names of the directory at `path`, which is flat. None where only the unmarked layout can be had, as there are no
    /// extended attributes.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn of(path: &Path) -> Result<Self, ConvertError> {
        let failed = |source: std::io::Error| ConvertError::Open { path: path.to_owned(), source };
        let directory = open_directory(path).map_err(failed)?;
        let mut sample = Self::default();
        if !takes_mark(&directory) {
            return Ok(sample);
        }
        for entry in Names::of(&directory).map_err(|error| failed(error.into()))?.take(NAMES_MAX as usize) {
            sample.add(entry.map_err(|error| failed(error.into()))?.0.to_bytes());
        }
        Ok(sample)
    }

    /// Adds a name, unless the sample has 1,000.
    pub(crate) fn add(&mut self, name: &[u8]) {
        if self.names == NAMES_MAX {
            return;
        }
        let mut place = Vec::new();
        LAYOUT_UNMARKED.subdirectory(name, &mut place);
        self.names += 1;
        self.others += u64::from(place == Layout::OTHERS.as_bytes());
    }

    /// Whether more than half of the names are not numbers: a layout by digits would put them into one subdirectory.
    pub fn are_not_numbers(self) -> bool {
        2 * self.others > self.names
    }

    /// The layout that spreads such names: `hash:2` when they are not numbers, else 345.
    pub fn default_layout(self) -> Layout {
        if self.are_not_numbers() { Layout::Hash2 } else { LAYOUT_UNMARKED }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(numbers: u64, others: u64) -> NameSample {
        let mut sample = NameSample::default();
        (0..numbers).for_each(|number| sample.add(number.to_string().as_bytes()));
        (0..others).for_each(|number| sample.add(format!("mail.{number}").as_bytes()));
        sample
    }

    #[test]
    fn names_that_are_mostly_not_numbers_are_spread_by_their_hash() {
        assert_eq!(sample(0, 0).default_layout(), Layout::D345);
        assert_eq!(sample(10, 10).default_layout(), Layout::D345);
        assert_eq!(sample(10, 11).default_layout(), Layout::Hash2);
        assert_eq!(sample(0, 1).default_layout(), Layout::Hash2);
        assert_eq!(sample(1000, 5000).default_layout(), Layout::D345, "1,000 names are looked at");
    }
}
