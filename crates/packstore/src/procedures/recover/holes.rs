//! Where index records of an index may be gone that a mark covered, and which records of the data file they may have named.
//!
//! | the hole is | the record was | the record |
//! |---|---|---|
//! | before the mark behind what a rewriting kept | written before the rewriting | may have been kept, or dropped as it counted no more |
//! | only behind that mark | written before the rewriting | was dropped |
//! | anywhere | written when the index was durable up to a place behind the last hole | has no index record for another reason |
//! | anywhere | written otherwise | may have been named there |
//!
//! A record says how long the index was, durably, when it was written: its index record is behind that. What was written before a
//! rewriting says it of the index of that time, and is known by its sequence number, unless `compact` moved it.

use std::ops::Range;

use crate::format::{IndexRecord, IndexRecords};
use crate::segments::index_file::{IndexRead, Lost};

/// Damaged ranges of an index that a mark covered.
pub(crate) struct Holes {
    ranges: Vec<Range<u64>>,
    /// Up to here the last rewriting wrote it.
    rewritten_end: u64,
    generation: u64,
}

impl Holes {
    /// The holes of an index.
    pub(crate) fn of(read: &IndexRead) -> Self {
        let mut index_records = IndexRecords::new(&read.bytes, read.salt);
        let (mut marked_end, mut rewritten_end) = (0, None);
        for (at, index_record) in index_records.by_ref() {
            if let IndexRecord::Mark { durable_end } = index_record {
                marked_end = marked_end.max(durable_end);
                rewritten_end = rewritten_end.or((durable_end == at).then_some(at));
            }
        }
        let mut ranges = index_records.damaged;
        ranges.retain(|range| range.start < marked_end);
        // Without such a mark nothing is known to be behind what was kept.
        let rewritten_end = if read.head.is_first { 0 } else { rewritten_end.unwrap_or(u64::MAX) };
        // With its head its generation is lost: anything may have been written before the rewriting.
        let generation = if read.lost == Some(Lost::Head) { u64::MAX } else { read.head.generation };
        Self { ranges, rewritten_end, generation }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// It was cut off here: a last hole.
    pub(crate) fn add_end(&mut self, end: u64) {
        self.ranges.push(end..u64::MAX);
    }

    pub(crate) fn count(&self) -> u64 {
        self.ranges.len() as u64
    }

    /// Whether an index record of a record may have been in one of them. `index_end`: as the record says.
    pub(crate) fn may_have_named(&self, sequence: u64, index_end: u64) -> bool {
        let (Some(first), Some(last)) = (self.ranges.first(), self.ranges.last()) else { return false };
        let is_kept_or_dropped = self.rewritten_end > 0 && sequence <= self.generation;
        if is_kept_or_dropped && first.start < self.rewritten_end {
            return true;
        }
        // Of the index before its rewriting, when it is less.
        let is_dropped = is_kept_or_dropped && index_end < self.rewritten_end;
        !is_dropped && index_end < last.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_may_have_been_named_in_a_hole_unless_it_was_dropped_before_or_written_later() {
        let holes = |rewritten_end, ranges: &[(u64, u64)]| Holes {
            ranges: ranges.iter().map(|&(start, end)| start..end).collect(),
            rewritten_end,
            generation: 100,
        };
        let never_rewritten = holes(0, &[(200, 300), (400, 500)]);
        assert!(never_rewritten.may_have_named(1, 0) && never_rewritten.may_have_named(200, 499));
        assert!(!never_rewritten.may_have_named(200, 500), "its index record is behind both");
        let among_the_kept = holes(350, &[(200, 300)]);
        assert!(among_the_kept.may_have_named(100, 9_000), "of the index before it was rewritten");
        assert!(!among_the_kept.may_have_named(101, 350));
        let behind_the_kept = holes(350, &[(400, 500)]);
        assert!(!behind_the_kept.may_have_named(100, 0), "dropped");
        assert!(behind_the_kept.may_have_named(100, 350), "moved here later");
        assert!(behind_the_kept.may_have_named(101, 400) && !behind_the_kept.may_have_named(101, 500));
        assert!(!holes(0, &[]).may_have_named(1, 0));
    }
}
