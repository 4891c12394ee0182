//! How often objects were asked for since the hand last came by, up to three times: two counters of two bits for each object
//! expected, chosen by its hash.
//!
//! Two objects may share a counter; one in three or so is then worth more than it should be, once a round.

use std::sync::atomic::{AtomicU64, Ordering};

/// The counters.
pub(crate) struct Touched(Box<[AtomicU64]>);

const MOST: u64 = 0b11;

impl Touched {
    pub(crate) fn new(objects: u64) -> Self {
        Self((0..(objects / 16).min(1 << 29)).map(|_| AtomicU64::new(0)).collect())
    }

    fn word(&self, hash: u64) -> Option<(&AtomicU64, u32)> {
        let counters = self.0.len() as u128 * 32;
        let counter = ((u128::from(hash.wrapping_mul(0x9e37_79b9_7f4a_7c15)) * counters) >> 64) as usize;
        Some((self.0.get(counter / 32)?, (counter % 32 * 2) as u32))
    }

    /// One more, and how many that makes; 0 when it was counted up to three already.
    pub(crate) fn touch(&self, hash: u64) -> u64 {
        let Some((word, shift)) = self.word(hash) else { return 0 };
        let seen = word.load(Ordering::Relaxed);
        let count = seen >> shift & MOST;
        if count == MOST {
            return 0;
        }
        // A request that overtakes another may be lost, and nothing depends on it.
        let _ = word.compare_exchange(seen, seen + (1 << shift), Ordering::Relaxed, Ordering::Relaxed);
        count + 1
    }

    /// How often.
    pub(crate) fn count(&self, hash: u64) -> u64 {
        self.word(hash).map_or(0, |(word, shift)| word.load(Ordering::Relaxed) >> shift & MOST)
    }

    /// Takes off so many, or all there are.
    pub(crate) fn take(&self, hash: u64, fewer: u64) {
        let Some((word, shift)) = self.word(hash) else { return };
        let taken = |seen: u64| Some(seen - ((seen >> shift & MOST).min(fewer) << shift));
        let _ = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken);
    }

    /// Nobody asked for it yet.
    pub(crate) fn reset(&self, hash: u64) {
        self.take(hash, MOST);
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_goes_to_three_and_back_and_touches_no_other() {
        let touched = Touched::new(10_000);
        let hashes = [0, 1 << 60, u64::MAX / 3];
        assert_eq!(hashes.map(|hash| touched.touch(hash)), [1; 3]);
        assert_eq!([(); 4].map(|()| touched.touch(0)), [2, 3, 0, 0]);
        assert_eq!(touched.count(0), 3);
        touched.take(0, 1);
        assert_eq!(hashes.map(|hash| touched.count(hash)), [2, 1, 1]);
        touched.reset(0);
        touched.take(0, 1);
        assert_eq!(hashes.map(|hash| touched.count(hash)), [0, 1, 1]);
    }
}
