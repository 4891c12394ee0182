//! An index that ends before records that were written while it was longer, or that is damaged within: how that shows.
//!
//! Not here: what becomes of these records (`adopt`).

use super::holes::Holes;
use super::index::{end_of, indexed_blocks, put_of};
use super::records::{Record, each_record};
use crate::error::StoreError;
use crate::format::{IndexRecord, IndexRecords, Put, RecordHead, decode_index_record};
use crate::objects::Objects;
use crate::segments::bitmap::Bitmap;
use crate::segments::index_file::IndexRead;
use crate::segments::segment::Segment;

/// A record that an index lacks since it was cut off or damaged.
pub(crate) struct CutRecord {
    put: Vec<u8>,
    salt: u32,
}

impl CutRecord {
    /// Of a record of a data file; `None` when it is not one that the store wrote.
    pub(super) fn of(objects: &Objects, record: &Record<'_>, salt: u32) -> Option<Self> {
        let mut put = Vec::new();
        IndexRecord::Put(put_of(objects, record, true)?).encode(salt, &mut put);
        Some(Self { put, salt })
    }

    /// Of what an index names.
    pub(super) fn of_put(put: Put<'_>) -> Self {
        let mut bytes = Vec::new();
        // The salt is of no matter, as it is not written so.
        IndexRecord::Put(put).encode(0, &mut bytes);
        Self { put: bytes, salt: 0 }
    }

    pub(crate) fn put(&self) -> Put<'_> {
        match decode_index_record(&self.put, self.salt) {
            Some((IndexRecord::Put(put), _)) => put,
            _ => unreachable!("it was encoded as one"),
        }
    }
}

/// What an index does not name.
#[derive(Default)]
pub(crate) struct Unnamed {
    pub records: Vec<CutRecord>,
    /// It ends too early.
    pub is_cut: bool,
}

/// Records that an index does not name and that it may have named: it was longer, as one of them says, or is damaged where it may
/// have named them. Records that power loss left without an index record say nothing of the sort.
pub(crate) fn cut_records(
    objects: &Objects,
    segment: &Segment,
    read: &IndexRead,
) -> Result<Unnamed, StoreError> {
    let (indexed, end, salt) = (indexed_blocks(objects, read), end_of(read), read.salt);
    let (mut behind_the_end, mut in_holes, mut index_end) = (Vec::new(), Vec::new(), 0);
    let (dropped_to, holes) = (dropped_to(read), Holes::of(read));
    each_record(objects, segment, |record| {
        let is_dropped = record.head.sequence <= dropped_to;
        if !is_dropped {
            index_end = index_end.max(record.index_end);
        }
        let is_in_hole = holes.may_have_named(record.head.sequence, record.index_end);
        if indexed.is_taken(record.block) || is_dropped && !is_in_hole {
            return;
        }
        if let Some(record) = CutRecord::of(objects, record, salt) {
            (if is_in_hole { &mut in_holes } else { &mut behind_the_end }).push(record);
        }
    })?;
    let is_cut = !behind_the_end.is_empty() && (index_end > end || is_short(objects, segment, read));
    if is_cut {
        in_holes.append(&mut behind_the_end);
    }
    Ok(Unnamed { records: in_holes, is_cut })
}

/// Records up to this number that the index does not name were dropped when it was rewritten, or may have been. A rewritten
/// index has a mark behind all that was kept: without one it lost some of that, and which is not known.
fn dropped_to(read: &IndexRead) -> u64 {
    if read.head.is_first || !has_mark(read) { 0 } else { read.head.generation }
}

fn has_mark(read: &IndexRead) -> bool {
    IndexRecords::new(&read.bytes, read.salt)
        .any(|(_, index_record)| matches!(index_record, IndexRecord::Mark { .. }))
}

/// Whether an index ends with a mark of all of it.
pub(crate) fn ends_with_mark(read: &IndexRead) -> bool {
    let last = IndexRecords::new(&read.bytes, read.salt).last();
    last.is_none_or(|(at, last)| last == IndexRecord::Mark { durable_end: at })
}

/// Whether it is known that an index was longer, or may have been, whatever the records themselves say.
fn is_short(objects: &Objects, segment: &Segment, read: &IndexRead) -> bool {
    objects.segments.has_short_index(segment.volume) || !read.head.is_first && !has_mark(read)
}

/// Whether an index seems to be cut off, by what lies where the next record would have been written. A look, not a proof of
/// the contrary: what is in the file is not overwritten then.
pub(crate) fn looks_cut(objects: &Objects, segment: &Segment, read: &IndexRead) -> bool {
    let mut indexed = Bitmap::new(objects.setup.shape.segment_blocks);
    let mut newest = (0, 0);
    for (_, index_record) in IndexRecords::new(&read.bytes, read.salt) {
        let IndexRecord::Put(put) = index_record else { continue };
        let blocks = objects.setup.shape.blocks(put.record_bytes());
        let Some(end) =
            put.block.checked_add(blocks).filter(|&end| end <= objects.setup.shape.segment_blocks)
        else {
            continue;
        };
        indexed.mark(put.block, blocks);
        newest = newest.max((put.sequence, end));
    }
    let first_free = (0..objects.setup.shape.segment_blocks).find(|&block| !indexed.is_taken(block));
    let (end, dropped_to, is_short) = (end_of(read), dropped_to(read), is_short(objects, segment, read));
    let Ok(body) = segment.body() else { return false };
    let mut bytes = vec![0; LOOK_BYTES];
    for mut block in [Some(newest.1), first_free].into_iter().flatten() {
        // One after the other: the first of them may be of the time when the index was no longer than it is now.
        for _ in 0..LOOKS_MAX {
            let Ok(length) = body.read_at(&mut bytes, objects.setup.shape.offset(block)) else { break };
            let record = &bytes[..length];
            let Some(head) = RecordHead::decode(record, objects.setup.body_salt(segment.number)) else {
                break;
            };
            if head.sequence <= dropped_to {
                break;
            }
            if is_short || RecordHead::index_end(record) > end {
                return true;
            }
            block = block.saturating_add(objects.setup.shape.blocks(head.record_bytes()));
        }
    }
    false
}

/// More than the records of a usual group.
const LOOKS_MAX: usize = 4096;

/// Enough for a head with its key and usual attributes.
const LOOK_BYTES: usize = 8 << 10;
