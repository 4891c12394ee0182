//! An index that ends before records that were written while it was longer: how that shows, and what becomes of these records.

use std::sync::atomic::Ordering;

use super::index::{end_of, indexed_blocks, put_of};
use super::records::each_record;
use crate::error::StoreError;
use crate::format::{
    IndexRecord, IndexRecords, Kind, Manifest, Put, RecordHead, SHARED, Tombstone, decode_index_record,
};
use crate::index::address::location;
use crate::objects::Objects;
use crate::objects::read::Depth;
use crate::segments::bitmap::Bitmap;
use crate::segments::index_file::IndexRead;
use crate::segments::segment::Segment;
use crate::write_queue::group::{Change, TableEntry};
use crate::write_queue::keys::Taken;

/// A record that an index lacks since it was cut off.
pub(crate) struct CutRecord {
    put: Vec<u8>,
    salt: u32,
}

impl CutRecord {
    pub(crate) fn put(&self) -> Put<'_> {
        match decode_index_record(&self.put, self.salt) {
            Some((IndexRecord::Put(put), _)) => put,
            _ => unreachable!("it was encoded as one"),
        }
    }
}

/// Records that were written after an index that was longer than it is now, and that it does not name, when one of them
/// says so. Records that power loss left without an index record say nothing of the sort.
pub(crate) fn cut_records(
    objects: &Objects,
    segment: &Segment,
    read: &IndexRead,
) -> Result<Vec<CutRecord>, StoreError> {
    let (indexed, end, salt) = (indexed_blocks(objects, read), end_of(read), read.salt);
    let (mut cut, mut index_end) = (Vec::new(), 0);
    each_record(objects, segment, |record| {
        // Older ones were dropped from the index when it was rewritten, or may have been.
        if record.head.sequence <= read.head.generation && !read.head.is_first {
            return;
        }
        index_end = index_end.max(record.index_end);
        if !indexed.is_taken(record.block)
            && let Some(put) = put_of(objects, record, true)
        {
            let mut bytes = Vec::new();
            IndexRecord::Put(put).encode(salt, &mut bytes);
            cut.push(CutRecord { put: bytes, salt });
        }
    })?;
    if index_end <= end {
        cut.clear();
    }
    Ok(cut)
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
    let end = end_of(read);
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
            if head.sequence <= read.head.generation && !read.head.is_first {
                break;
            }
            if RecordHead::index_end(record) > end {
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

/// Makes records count again that a cut index lacks, where they are the newest of their key. Parts of objects come first. The index is
/// rewritten after this.
pub(crate) fn adopt(objects: &Objects, segment: &Segment, cut: &[CutRecord]) -> Result<(), StoreError> {
    segment.recovered.store(true, Ordering::SeqCst);
    let mut puts = cut.iter().map(CutRecord::put).collect::<Vec<_>>();
    puts.sort_by_key(|put| (!put.name.internal, put.sequence));
    for put in puts {
        let hash = put.name.hash(objects.setup.hash_seed);
        let _taken = Taken::one(objects.queue.keys(), hash);
        let old = objects.find(put.name, hash, Depth::Whole)?;
        let blocks = objects.setup.shape.blocks(put.record_bytes());
        let Some(location) = location(segment.number, put.block, blocks, objects.setup.shape) else {
            continue;
        };
        if old.as_ref().is_some_and(|old| old.head.sequence >= put.sequence)
            || !has_parts(objects, segment, &put)?
        {
            continue;
        }
        let visible = !put.name.internal;
        let mut changes = old.as_ref().map_or(Ok(Vec::new()), |old| objects.ends_with(old))?;
        if put.kind == Kind::Alias {
            changes.insert(0, Change::Link(put.id));
        }
        if let Some((old, superseded)) =
            old.as_ref().and_then(|old| Some((old, objects.segments.superseded_at(old.entry.location)?)))
        {
            objects.queue.stage_tombstones(&[Tombstone {
                sequence: old.head.sequence,
                hash,
                superseded,
                deleted_s: 0,
            }])?;
        }
        let new = TableEntry { hash, location, blocks, visible };
        changes.insert(0, Change::Put { new, old: old.map(|old| old.entry) });
        objects.apply_now(&changes);
    }
    Ok(())
}

/// Whether the parts of an object, or the object that it names, are there.
fn has_parts(objects: &Objects, segment: &Segment, put: &Put<'_>) -> Result<bool, StoreError> {
    match put.kind {
        Kind::Whole => Ok(true),
        Kind::Alias => Ok(objects.find_internal(put.id, SHARED, Depth::Head)?.is_some()),
        Kind::Manifest => {
            let mut bytes = vec![0; put.record_bytes()];
            segment.body()?.read_at(&mut bytes, objects.setup.shape.offset(put.block))?;
            let manifest = Manifest::decode(&bytes[put.record_bytes() - put.body_len as usize..]);
            Ok(manifest.is_some_and(|manifest| objects.has_pieces(&manifest)))
        }
    }
}
