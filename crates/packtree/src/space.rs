//! The file `space`: which blocks are free, which will be, and which rooms the journal may use.
//!
//! ```text
//! space: | segment 0                  | segment 1                  | ...     64 MiB each
//!        | room 1 MiB | contents      | room       | contents      |
//! ```
//!
//! - A run of blocks that a change frees waits until a mark that says "this change is durable" is durable itself. Only then
//!   is it given out again. So a record that may still have to be verified after a crash always finds its contents.
//! - Space is given out from one long run, so that what is written together is together; when it is used up, from the
//!   longest that is free.
//!
//! Always holds: no block is given out twice; rooms and contents never mix.
//! Not here: the writing (see `journal`, `tree`).

mod runs;

use std::collections::{HashMap, VecDeque};

pub(crate) use runs::{FreeRuns, Run};

use crate::format::{BLOCK_BYTES, TreeHead};
use crate::names::FreeMap;

/// Runs shorter than this are left alone while the file may grow instead: 4 KiB.
const SHORT_BLOCKS: u64 = 64;
/// Of a page of 4 KiB, which a file system can take back.
const PAGE_BLOCKS: u64 = 64;

pub(crate) struct Space {
    shape: TreeHead,
    pub segments: u32,
    runs: FreeRuns,
    /// Freed by the change of this number, in its order.
    waiting: VecDeque<(u64, Run)>,
    waiting_blocks: u64,
    /// Given out, and no record names them yet: where they begin, and how many. A checkpoint counts them as free.
    unnamed: HashMap<u64, u64, foldhash::fast::RandomState>,
    /// Whether something became free since the opening, and since [`Space::take_free_pages`].
    pub has_freed: bool,
    /// All free pages are holes already.
    is_given_back: bool,
    /// Segments whose rooms nothing needs.
    rooms: Vec<u32>,
}

impl Space {
    /// All of it free.
    pub(crate) fn new(shape: TreeHead) -> Self {
        Self {
            shape,
            segments: 0,
            runs: FreeRuns::default(),
            waiting: VecDeque::new(),
            waiting_blocks: 0,
            unnamed: HashMap::default(),
            has_freed: false,
            is_given_back: false,
            rooms: Vec::new(),
        }
    }

    /// What a checkpoint left: all is free that it says, and what the file grew by since.
    pub(crate) fn restored(shape: TreeHead, segments: u32, free: &FreeMap) -> Self {
        let mut space = Self::new(shape);
        space.segments = segments;
        let end = shape.room_at(segments) / BLOCK_BYTES;
        // Of what the file was grown by without a sync, nothing may be there.
        free.runs.iter().filter(|run| run.end() <= end).for_each(|run| space.runs.add(*run));
        (free.segments..segments).for_each(|segment| space.runs.add(shape.contents_of(segment)));
        space
    }

    /// The rooms of these segments are in use, and all others are free.
    pub(crate) fn use_rooms(&mut self, used: &[u32]) {
        self.rooms = (0..self.segments).rev().filter(|segment| !used.contains(segment)).collect();
    }

    /// All is free but these runs. Runs that overlap are returned.
    pub(crate) fn rebuilt(shape: TreeHead, segments: u32, mut used: Vec<Run>) -> (Self, Vec<Run>) {
        let mut space = Self::new(shape);
        used.sort_unstable_by_key(|run| run.start);
        let mut overlapping = Vec::new();
        let mut used = used.into_iter().peekable();
        space.segments = segments;
        for segment in 0..segments {
            let contents = shape.contents_of(segment);
            let mut at = contents.start;
            while let Some(run) = used.next_if(|run| run.start < contents.end()) {
                if run.start < at {
                    overlapping.push(run);
                } else {
                    space.runs.add(Run { start: at, blocks: run.start - at });
                }
                at = at.max(run.end());
            }
            space.runs.add(Run { start: at, blocks: contents.end().saturating_sub(at) });
        }
        overlapping.extend(used);
        (space, overlapping)
    }

    /// The file is one segment longer.
    pub(crate) fn grown(&mut self) {
        self.runs.add(self.shape.contents_of(self.segments));
        self.rooms.push(self.segments);
        self.segments += 1;
    }

    /// Up to this many blocks, together. `None`: too little is free in one place; the file should grow. With `anything`, a
    /// short run too.
    pub(crate) fn allocate(&mut self, blocks: u64, anything: bool) -> Option<Run> {
        let run = self.runs.take(blocks, if anything { 1 } else { blocks.min(SHORT_BLOCKS) })?;
        self.unnamed.insert(run.start, run.blocks);
        Some(run)
    }

    /// The blocks right behind a run, all of them or none.
    pub(crate) fn extend(&mut self, behind: u64, blocks: u64) -> bool {
        if blocks == 0 {
            return true;
        }
        let is_free = self.runs.take_at(Run { start: behind, blocks });
        if is_free {
            self.unnamed.insert(behind, blocks);
        }
        is_free
    }

    /// All that is free in whole pages, given out to become holes; nothing if it is holes already.
    pub(crate) fn take_free_pages(&mut self) -> Vec<Run> {
        if std::mem::replace(&mut self.is_given_back, true) {
            return Vec::new();
        }
        self.has_freed = false;
        let taken = self.runs.take_pages(PAGE_BLOCKS);
        self.unnamed.extend(taken.iter().map(|run| (run.start, run.blocks)));
        taken
    }

    /// The free run that is given out from, if there is one.
    pub(crate) fn given_out_from(&self) -> Option<Run> {
        self.runs.current()
    }

    /// Gives back what no record ever named.
    pub(crate) fn unused(&mut self, run: Run) {
        self.unnamed.remove(&run.start);
        self.runs.add(run);
    }

    /// A record names what was given out.
    pub(crate) fn named(&mut self, run: Run) {
        self.unnamed.remove(&run.start);
    }

    /// For an opening: a record names this run. `false`: a part of it is not free.
    pub(crate) fn claim(&mut self, run: Run) -> bool {
        self.runs.take_inside(run)
    }

    /// For an opening: a record frees this run. `false`: a part of it is free.
    pub(crate) fn reclaim(&mut self, run: Run) -> bool {
        let is_used = !self.runs.has_some_of(run);
        if is_used {
            self.runs.add(run);
        }
        is_used
    }

    /// What no change made so far names; `more` are runs that only this process knows of. Not in order.
    pub(crate) fn not_named(&self, more: Vec<Run>) -> FreeMap {
        let mut runs = more;
        runs.extend(self.runs.all());
        runs.extend(self.waiting.iter().map(|(_, run)| *run));
        runs.extend(self.unnamed.iter().map(|(&start, &blocks)| Run { start, blocks }));
        FreeMap { segments: self.segments, runs }
    }

    /// Frees a run once the change of this number is durable, and known to be.
    pub(crate) fn free_after(&mut self, sequence: u64, run: Run) {
        self.waiting_blocks += run.blocks;
        self.waiting.push_back((sequence, run));
    }

    /// Changes up to this one are durable, and so is what says it.
    pub(crate) fn release(&mut self, sequence: u64) {
        while let Some((_, run)) = self.waiting.pop_front_if(|(freed_by, _)| *freed_by <= sequence) {
            self.waiting_blocks -= run.blocks;
            (self.has_freed, self.is_given_back) = (true, false);
            self.runs.add(run);
        }
    }

    pub(crate) fn waiting_bytes(&self) -> u64 {
        self.waiting_blocks * BLOCK_BYTES
    }

    pub(crate) fn free_bytes(&self) -> u64 {
        (self.runs.blocks() + self.waiting_blocks) * BLOCK_BYTES
    }

    /// Of all segments, without the journal's rooms.
    pub(crate) fn contents_bytes(&self) -> u64 {
        u64::from(self.segments) * u64::from(self.shape.segment_bytes - self.shape.room_bytes)
    }

    pub(crate) fn length_bytes(&self) -> u64 {
        u64::from(self.segments) * u64::from(self.shape.segment_bytes)
    }

    pub(crate) fn take_room(&mut self) -> Option<u32> {
        self.rooms.pop()
    }

    pub(crate) fn free_room(&mut self, segment: u32) {
        self.rooms.push(segment);
    }

    pub(crate) fn free_rooms(&self) -> usize {
        self.rooms.len()
    }
}

impl TreeHead {
    /// Where a segment's room begins.
    pub(crate) fn room_at(&self, segment: u32) -> u64 {
        u64::from(segment) * u64::from(self.segment_bytes)
    }

    pub(crate) fn contents_of(&self, segment: u32) -> Run {
        let start = (self.room_at(segment) + u64::from(self.room_bytes)) / BLOCK_BYTES;
        Run { start, blocks: u64::from(self.segment_bytes - self.room_bytes) / BLOCK_BYTES }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: TreeHead = TreeHead { id: 1, segment_bytes: 64 << 10, room_bytes: 8 << 10 };

    #[test]
    fn what_is_freed_is_given_out_again_only_after_its_change_is_known_to_be_durable() {
        let mut space = Space::new(SHAPE);
        space.grown();
        let all = space.allocate(u64::MAX, true).expect("all of it");
        assert_eq!(all, SHAPE.contents_of(0));
        space.free_after(5, Run { start: all.start, blocks: 10 });
        space.free_after(6, Run { start: all.start + 10, blocks: 10 });
        space.release(4);
        assert_eq!(space.allocate(1, true), None);
        space.release(5);
        assert_eq!(space.allocate(100, true), Some(Run { start: all.start, blocks: 10 }));
        assert_eq!((space.waiting_bytes(), space.free_bytes()), (640, 640));
    }

    #[test]
    fn what_is_rebuilt_is_free_but_for_what_is_used_and_overlaps_are_found() {
        let first = SHAPE.contents_of(0);
        let used = [(first.start + 5, 5), (first.start + 7, 2), (first.start, 1)];
        let used = used.map(|(start, blocks)| Run { start, blocks }).to_vec();
        let (mut space, overlapping) = Space::rebuilt(SHAPE, 2, used);
        space.use_rooms(&[1]);
        assert_eq!(overlapping, [Run { start: first.start + 7, blocks: 2 }]);
        assert_eq!((space.take_room(), space.take_room()), (Some(0), None));
        let free = 2 * first.blocks - 6;
        assert_eq!(space.free_bytes(), free * BLOCK_BYTES);
        let mut taken = 0;
        while let Some(run) = space.allocate(1000, true) {
            taken += run.blocks;
        }
        assert_eq!(taken, free);
    }
}
