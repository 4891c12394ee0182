//! Which objects were asked for since the hand last came by: two bits for each object expected, chosen by its hash.
//!
//! Two objects may share a bit; at two bits an object one in three or so is then spared for another's sake once a round.

use std::sync::atomic::{AtomicU64, Ordering};

/// The bits.
pub(crate) struct Touched(Box<[AtomicU64]>);

impl Touched {
    pub(crate) fn new(objects: u64) -> Self {
        Self((0..(objects / 32).min(1 << 28)).map(|_| AtomicU64::new(0)).collect())
    }

    fn word(&self, hash: u64) -> Option<(&AtomicU64, u64)> {
        let bits = self.0.len() as u128 * 64;
        let bit = ((u128::from(hash.wrapping_mul(0x9e37_79b9_7f4a_7c15)) * bits) >> 64) as usize;
        Some((self.0.get(bit / 64)?, 1 << (bit % 64)))
    }

    pub(crate) fn touch(&self, hash: u64) {
        if let Some((word, bit)) = self.word(hash)
            && word.load(Ordering::Relaxed) & bit == 0
        {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Whether it was touched; from now on it was not.
    pub(crate) fn take(&self, hash: u64) -> bool {
        self.word(hash).is_some_and(|(word, bit)| word.fetch_and(!bit, Ordering::Relaxed) & bit != 0)
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.0)
    }
}
