//! The text that files are filled with: printable characters, drawn before anything else of a run.
//!
//! The original draws twice as many as the largest file holds and only ever writes from the beginning, so that
//! the second half is drawn, as later numbers depend on it, and not kept.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::PostmarkError;
use crate::memory::reserved;
use crate::random::Random;

/// As many bytes as the largest file holds.
#[derive(Debug)]
pub(crate) struct Text {
    bytes: Vec<u8>,
}

const PRINTABLE: u32 = 95;
const FIRST_PRINTABLE: u8 = b' ';
/// Draws between two looks at whether to stop: some milliseconds.
const DRAWS_AT_ONCE: u64 = 1 << 20;

impl Text {
    /// Draws the text. It is cut short when `stop` is set, as then nothing is written any more.
    pub(crate) fn draw(
        largest_bytes: u32,
        random: &mut Random,
        stop: &AtomicBool,
    ) -> Result<Self, PostmarkError> {
        let what = "the text that files are filled with";
        let mut bytes = reserved(u64::from(largest_bytes), what)?;
        let mut left = 2 * u64::from(largest_bytes);
        while left > 0 && !stop.load(Ordering::Relaxed) {
            let at_once = left.min(DRAWS_AT_ONCE);
            left -= at_once;
            for _ in 0..at_once {
                let drawn = FIRST_PRINTABLE + random.below(PRINTABLE) as u8;
                if bytes.len() < largest_bytes as usize {
                    bytes.push(drawn);
                }
            }
        }
        bytes.resize(largest_bytes as usize, FIRST_PRINTABLE);
        Ok(Self { bytes })
    }

    /// The first `len_bytes` of it.
    #[inline]
    pub(crate) fn first(&self, len_bytes: u32) -> &[u8] {
        &self.bytes[..len_bytes as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_seed_42_is_the_one_seen_in_files_of_the_original() {
        let text = Text::draw(10_000, &mut Random::seeded(42), &AtomicBool::new(false)).unwrap();
        assert_eq!(text.first(32), b"LeZebJ6S5~qPv$C$py}hmKd H58nM4~.");
        assert_eq!(&text.first(10_000)[4096..4128], b"KDIbi>%L^u%*$D'*;G;y}#9ur[!US]=o");
    }
}
