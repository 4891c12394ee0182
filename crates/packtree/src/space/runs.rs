//! Free runs of blocks, by where they are and by how long they are.

use std::collections::{BTreeMap, BTreeSet};

/// Blocks one behind the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Run {
    pub start: u64,
    pub blocks: u64,
}

impl Run {
    pub(crate) fn end(&self) -> u64 {
        self.start + self.blocks
    }
}

/// All that is free. No two runs touch, but for the one that is given out from.
#[derive(Default)]
pub(crate) struct FreeRuns {
    by_start: BTreeMap<u64, u64>,
    by_length: BTreeSet<(u64, u64)>,
    /// What is given out from, in order.
    current: Option<Run>,
    blocks: u64,
}

impl FreeRuns {
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }

    pub(crate) fn current(&self) -> Option<Run> {
        self.current
    }

    pub(crate) fn add(&mut self, run: Run) {
        if run.blocks == 0 {
            return;
        }
        self.blocks += run.blocks;
        let mut run = run;
        if let Some((&start, &blocks)) = self.by_start.range(..run.start).next_back()
            && start + blocks == run.start
        {
            self.remove(start, blocks);
            run = Run { start, blocks: blocks + run.blocks };
        }
        if let Some(&blocks) = self.by_start.get(&run.end()) {
            self.remove(run.end(), blocks);
            run.blocks += blocks;
        }
        self.insert(run);
    }

    /// Up to `blocks`, but no fewer than `least`.
    pub(crate) fn take(&mut self, blocks: u64, least: u64) -> Option<Run> {
        if self.current.is_none_or(|current| current.blocks < blocks) {
            let longest = self.by_length.last().copied();
            let (length, start) = match (longest, self.current) {
                (Some((length, start)), Some(current)) if length > current.blocks => (length, start),
                (Some((length, start)), None) => (length, start),
                (_, Some(current)) => (current.blocks, current.start),
                (None, None) => return None,
            };
            if length.min(blocks) < least {
                return None;
            }
            if self.current.is_none_or(|current| current.start != start) {
                let before = self.current.take();
                self.remove(start, length);
                self.current = Some(Run { start, blocks: length });
                if let Some(before) = before {
                    self.blocks -= before.blocks;
                    self.add(before);
                }
            }
        }
        let current = self.current.as_mut().expect("chosen above");
        let taken = Run { start: current.start, blocks: blocks.min(current.blocks) };
        *current = Run { start: taken.end(), blocks: current.blocks - taken.blocks };
        if current.blocks == 0 {
            self.current = None;
        }
        self.blocks -= taken.blocks;
        Some(taken)
    }

    /// Exactly this run, if all of it is free.
    pub(crate) fn take_at(&mut self, wanted: Run) -> bool {
        if let Some(current) = &mut self.current
            && current.start == wanted.start
        {
            if current.blocks < wanted.blocks {
                return false;
            }
            *current = Run { start: wanted.end(), blocks: current.blocks - wanted.blocks };
            if current.blocks == 0 {
                self.current = None;
            }
            self.blocks -= wanted.blocks;
            return true;
        }
        match self.by_start.get(&wanted.start) {
            Some(&blocks) if blocks >= wanted.blocks => {
                self.remove(wanted.start, blocks);
                if blocks > wanted.blocks {
                    self.insert(Run { start: wanted.end(), blocks: blocks - wanted.blocks });
                }
                self.blocks -= wanted.blocks;
                true
            }
            _ => false,
        }
    }

    /// Exactly this run, wherever in a free one it is; `false` when a part of it is not free.
    pub(crate) fn take_inside(&mut self, wanted: Run) -> bool {
        debug_assert!(self.current.is_none(), "for openings only");
        let Some((&start, &blocks)) = self.by_start.range(..=wanted.start).next_back() else { return false };
        let end = start + blocks;
        if end < wanted.end() {
            return false;
        }
        self.remove(start, blocks);
        if start < wanted.start {
            self.insert(Run { start, blocks: wanted.start - start });
        }
        if wanted.end() < end {
            self.insert(Run { start: wanted.end(), blocks: end - wanted.end() });
        }
        self.blocks -= wanted.blocks;
        true
    }

    /// All whole pages of this many blocks each, in order.
    pub(crate) fn take_pages(&mut self, page_blocks: u64) -> Vec<Run> {
        if let Some(current) = self.current.take() {
            self.blocks -= current.blocks;
            self.add(current);
        }
        let pages = self.by_start.iter().filter_map(|(&start, &blocks)| {
            let (first, end) =
                (start.next_multiple_of(page_blocks), (start + blocks) / page_blocks * page_blocks);
            (first < end).then(|| Run { start: first, blocks: end - first })
        });
        let pages = pages.collect::<Vec<_>>();
        pages.iter().for_each(|run| assert!(self.take_inside(*run), "it is free"));
        pages
    }

    /// Whether any block of a run is free.
    pub(crate) fn has_some_of(&self, run: Run) -> bool {
        let before = self.by_start.range(..run.end()).next_back();
        before.is_some_and(|(start, blocks)| start + blocks > run.start)
    }

    /// All of them, in no order.
    pub(crate) fn all(&self) -> impl Iterator<Item = Run> + '_ {
        let kept = self.by_start.iter().map(|(&start, &blocks)| Run { start, blocks });
        kept.chain(self.current)
    }

    fn insert(&mut self, run: Run) {
        self.by_start.insert(run.start, run.blocks);
        self.by_length.insert((run.blocks, run.start));
    }

    fn remove(&mut self, start: u64, blocks: u64) {
        self.by_start.remove(&start);
        self.by_length.remove(&(blocks, start));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_that_touch_become_one_and_the_longest_is_used_first() {
        let mut free = FreeRuns::default();
        for (start, blocks) in [(0, 10), (20, 10), (100, 15)] {
            free.add(Run { start, blocks });
        }
        assert_eq!(free.take(5, 5), Some(Run { start: 100, blocks: 5 }));
        free.add(Run { start: 10, blocks: 10 });
        assert_eq!(free.take(30, 30), Some(Run { start: 0, blocks: 30 }));
        assert_eq!(free.take(30, 30), None);
        assert_eq!(free.take(30, 10), Some(Run { start: 105, blocks: 10 }));
        assert_eq!((free.take(1, 1), free.blocks()), (None, 0));
    }

    #[test]
    fn a_run_is_taken_from_inside_a_free_one_whole_or_not_at_all() {
        let mut free = FreeRuns::default();
        free.add(Run { start: 10, blocks: 10 });
        let run = |start, blocks| Run { start, blocks };
        assert!(
            !free.take_inside(run(9, 2)) && !free.take_inside(run(19, 2)) && !free.take_inside(run(5, 1))
        );
        assert!(free.take_inside(run(12, 3)) && free.blocks() == 7);
        assert_eq!(free.all().collect::<Vec<_>>(), [run(10, 2), run(15, 5)]);
        assert!(
            free.has_some_of(run(14, 2)) && !free.has_some_of(run(12, 3)) && !free.has_some_of(run(20, 9))
        );
        assert!(free.take_inside(run(10, 2)) && free.take_inside(run(15, 5)) && free.blocks() == 0);
    }

    #[test]
    fn whole_pages_are_taken_and_what_is_around_them_stays_free() {
        let mut free = FreeRuns::default();
        let run = |start, blocks| Run { start, blocks };
        for (start, blocks) in [(3, 10), (20, 30), (60, 3)] {
            free.add(run(start, blocks));
        }
        assert_eq!(free.take(1, 1), Some(run(20, 1)));
        assert_eq!(free.take_pages(8), [run(24, 24)]);
        assert_eq!((free.blocks(), free.take_pages(8)), (10 + 29 - 24 + 3, Vec::new()));
    }

    #[test]
    fn the_blocks_behind_a_piece_are_taken_whole_or_not_at_all() {
        let mut free = FreeRuns::default();
        free.add(Run { start: 10, blocks: 10 });
        assert!(!free.take_at(Run { start: 10, blocks: 11 }) && !free.take_at(Run { start: 11, blocks: 1 }));
        assert!(free.take_at(Run { start: 10, blocks: 4 }) && free.blocks() == 6);
        assert_eq!(free.take(2, 2), Some(Run { start: 14, blocks: 2 }));
        assert!(free.take_at(Run { start: 16, blocks: 4 }));
        assert_eq!((free.take(1, 1), free.blocks()), (None, 0));
    }
}
