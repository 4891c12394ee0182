//! The pieces of a file, by their offsets.

use crate::format::{Piece, blocks_of};
use crate::space::Run;

/// Pieces in order. Between them are zeros.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extents(Vec<Extent>);

/// A piece and where in the file it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub offset: u64,
    pub piece: Piece,
}

/// What a change did to the blocks of a file.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    /// Nothing names them any more.
    pub freed: Vec<Run>,
    /// They are named for the first time.
    pub named: Vec<Run>,
}

impl Extent {
    pub(crate) fn end(&self) -> u64 {
        self.offset + u64::from(self.piece.bytes)
    }
}

impl Piece {
    pub(crate) fn run(&self) -> Run {
        Run { start: self.block, blocks: blocks_of(self.bytes.into()) }
    }
}

impl From<Vec<Extent>> for Extents {
    fn from(extents: Vec<Extent>) -> Self {
        Self(extents)
    }
}

impl Extents {
    pub(crate) fn all(&self) -> &[Extent] {
        &self.0
    }

    fn range(&self, start: u64, end: u64) -> std::ops::Range<usize> {
        let first = self.0.partition_point(|extent| extent.end() <= start);
        let behind = self.0.partition_point(|extent| extent.offset < end);
        first..behind.max(first)
    }

    /// Those that have bytes in `start..end`.
    pub(crate) fn within(&self, start: u64, end: u64) -> &[Extent] {
        &self.0[self.range(start, end)]
    }

    /// Why [`Extents::replace`] would not do it.
    pub(crate) fn refuse(&self, start: u64, end: u64, new: &[Extent]) -> Result<(), &'static str> {
        let old = self.within(start, end);
        if old.first().is_some_and(|first| first.offset < start)
            || old.last().is_some_and(|last| last.end() > end)
        {
            return Err("a change of a part of a piece");
        }
        let mut at = start;
        for extent in new {
            if extent.offset < at || extent.piece.bytes == 0 {
                return Err("pieces that overlap, or are empty");
            }
            at = extent.end();
        }
        if at > end { Err("pieces outside of what is changed") } else { Ok(()) }
    }

    /// Replaces what is in `start..end` by these. It was not refused.
    pub(super) fn replace(&mut self, start: u64, end: u64, new: Vec<Extent>, blocks: &mut Blocks) {
        let range = self.range(start, end);
        let old = &self.0[range.clone()];
        // A piece that grew where it was keeps its blocks.
        let before =
            |run: Run| old.iter().map(|extent| extent.piece.run()).find(|old| old.start == run.start);
        for run in new.iter().map(|extent| extent.piece.run()) {
            let kept = before(run).map_or(0, |old| old.blocks.min(run.blocks));
            if run.blocks > kept {
                blocks.named.push(Run { start: run.start + kept, blocks: run.blocks - kept });
            }
        }
        for run in old.iter().map(|extent| extent.piece.run()) {
            let stays = new.iter().map(|extent| extent.piece.run()).find(|stays| stays.start == run.start);
            let kept = stays.map_or(0, |stays| stays.blocks.min(run.blocks));
            if run.blocks > kept {
                blocks.freed.push(Run { start: run.start + kept, blocks: run.blocks - kept });
            }
        }
        self.0.splice(range, new);
    }
}
