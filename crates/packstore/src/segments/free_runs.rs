//! The free runs of a segment that is mostly taken: each object goes where it leaves the least over.
//!
//! Taken in the order of their places, short objects would use up the long gaps, of which such a file has few; a long one
//! would then be looked for in file after file, each opened for little. In a nearly full store of random overwrites that cost
//! nine tenths of the time.

use std::collections::BTreeSet;

use crate::segments::bitmap::Bitmap;

/// Runs of free blocks, by length, then first block.
#[derive(Debug, Default)]
pub(crate) struct FreeRuns(BTreeSet<(u32, u32)>);

impl FreeRuns {
    /// All that are free.
    pub(crate) fn of(bitmap: &Bitmap) -> Self {
        Self(bitmap.free_runs().map(|(at, blocks)| (blocks, at)).collect())
    }

    /// Takes exactly this many blocks, from the shortest run that is long enough.
    pub(crate) fn take(&mut self, blocks: u32) -> Option<u32> {
        let &(length, at) = self.0.range((blocks, 0)..).next().filter(|_| blocks > 0)?;
        self.0.remove(&(length, at));
        if length > blocks {
            self.0.insert((length - blocks, at + blocks));
        }
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shortest_run_that_is_long_enough_is_taken_and_all_can_be_had() {
        let mut map = Bitmap::new(1_000);
        // Free: 0..100, 120..130, 150..1000.
        assert!(map.mark(100, 20) && map.mark(130, 20));
        let mut free = FreeRuns::of(&map);
        assert_eq!(free.take(8), Some(120));
        assert_eq!(free.take(90), Some(0), "not where a longer one fits");
        assert_eq!(free.take(850), Some(150));
        assert_eq!(free.take(11), None);
        assert_eq!([free.take(10), free.take(2), free.take(1)], [Some(90), Some(128), None]);
        assert_eq!(free.take(0), None);
    }
}
