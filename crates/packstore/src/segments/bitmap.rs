//! Which blocks of a segment are taken: one bit each, and the search for room.
//!
//! Each class of size goes along the file, taking the first free run that is long enough, so that small objects fill
//! the gaps that large ones pass over. In an empty file all classes go together: writing stays sequential.

/// Blocks taken, and how far each class of size came.
#[derive(Debug)]
pub(crate) struct Bitmap {
    words: Vec<u64>,
    blocks: u32,
    free: u32,
    cursors: [u32; CLASSES],
    /// The shortest run of each class that was looked for everywhere in vain.
    vain: [u32; CLASSES],
}

/// By powers of two; the last takes all that are larger.
const CLASSES: usize = 16;

impl Bitmap {
    pub(crate) fn new(blocks: u32) -> Self {
        let mut words = vec![0; blocks.div_ceil(64) as usize];
        if !blocks.is_multiple_of(64) {
            // Beyond the end nothing is free.
            *words.last_mut().expect("a file has blocks") = u64::MAX << (blocks % 64);
        }
        Self { words, blocks, free: blocks, cursors: [0; CLASSES], vain: [u32::MAX; CLASSES] }
    }

    pub(crate) fn free(&self) -> u32 {
        self.free
    }

    pub(crate) fn taken(&self) -> u32 {
        self.blocks - self.free
    }

    pub(crate) fn is_taken(&self, block: u32) -> bool {
        self.words.get((block / 64) as usize).is_none_or(|word| word >> (block % 64) & 1 == 1)
    }

    /// Marks a run as taken; false when it leaves the file or part of it was taken already.
    pub(crate) fn mark(&mut self, block: u32, blocks: u32) -> bool {
        let Some(end) = block.checked_add(blocks).filter(|&end| end <= self.blocks) else { return false };
        let mut fresh = 0;
        let mut at = block;
        while at < end {
            let upto = end.min((at / 64 + 1) * 64);
            let mask = ones(at % 64, upto - at);
            let word = &mut self.words[(at / 64) as usize];
            fresh += (mask & !*word).count_ones();
            *word |= mask;
            at = upto;
        }
        self.free -= fresh;
        fresh == blocks
    }

    /// Takes a run of exactly this many blocks.
    pub(crate) fn take(&mut self, blocks: u32) -> Option<u32> {
        if blocks == 0 || blocks > self.free {
            return None;
        }
        let class = (blocks.ilog2() as usize).min(CLASSES - 1);
        if blocks >= self.vain[class] {
            return None;
        }
        let mut at = self.cursors[class];
        let begun_at = at;
        let found = loop {
            at = self.first_free(at);
            if u64::from(at) + u64::from(blocks) > u64::from(self.blocks) {
                // Those passed over may do for a shorter one of the class.
                self.cursors[class] = 0;
                if begun_at == 0 {
                    self.vain[class] = blocks;
                    return None;
                }
                return self.take(blocks);
            }
            // No further than is wanted: an empty file would be looked through to its end each time.
            match self.taken_within(at, blocks) {
                None => break at,
                Some(taken) => at = taken,
            }
        };
        let fresh = self.mark(found, blocks);
        assert!(fresh, "a free run was free");
        self.cursors[class] = found + blocks;
        Some(found)
    }

    /// The free runs, each as its first block and how many.
    pub(crate) fn free_runs(&self) -> impl Iterator<Item = (u32, u32)> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let first = self.first_free(at);
            if first == self.blocks {
                return None;
            }
            at = self.taken_within(first, self.blocks - first).unwrap_or(self.blocks);
            Some((first, at - first))
        })
    }

    /// The first taken block of a run within the file.
    fn taken_within(&self, at: u32, blocks: u32) -> Option<u32> {
        let last = ((at + blocks - 1) / 64) as usize;
        let mut mask = u64::MAX << (at % 64);
        for index in (at / 64) as usize..=last {
            let taken = self.words[index] & mask;
            if taken != 0 {
                return Some(index as u32 * 64 + taken.trailing_zeros()).filter(|&taken| taken < at + blocks);
            }
            mask = u64::MAX;
        }
        None
    }

    /// The first free block from `at` on; the number of blocks when there is none.
    fn first_free(&self, at: u32) -> u32 {
        let mut index = (at / 64) as usize;
        let mut mask = u64::MAX << (at % 64);
        while let Some(&word) = self.words.get(index) {
            let free = !word & mask;
            if free != 0 {
                return (index as u32 * 64 + free.trailing_zeros()).min(self.blocks);
            }
            mask = u64::MAX;
            index += 1;
        }
        self.blocks
    }
}

fn ones(from: u32, count: u32) -> u64 {
    (if count == 64 { u64::MAX } else { (1 << count) - 1 }) << from
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_taken_never_overlaps_and_all_of_a_file_can_be_had() {
        for blocks in [64, 100, 1000, 1500] {
            let mut map = Bitmap::new(blocks);
            assert!(map.mark(10, 20));
            assert!(!map.mark(29, 2), "one of them was taken");
            assert!(!map.mark(blocks - 1, 2), "beyond the end");
            let mut seen = vec![false; blocks as usize];
            seen[10..31].fill(true);
            for want in [40, 7, 1, 3].into_iter().cycle().take(40).chain(std::iter::repeat_n(1, 2000)) {
                if let Some(at) = map.take(want) {
                    for block in at..at + want {
                        assert!(!seen[block as usize], "{block} twice");
                        seen[block as usize] = true;
                    }
                }
            }
            assert!(seen.iter().all(|&taken| taken), "{blocks}");
            assert_eq!(map.free(), 0);
        }
    }

    #[test]
    fn an_empty_file_is_filled_from_its_start_whatever_the_sizes() {
        let mut map = Bitmap::new(10_000);
        let mut end = 0;
        for blocks in [3, 300, 20, 100, 1, 2_000, 5] {
            assert_eq!(map.take(blocks), Some(end));
            end += blocks;
        }
    }
}
