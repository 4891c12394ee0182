//! Rewrites damaged indexes of a store that is opened for a repair, while the file `table` of the last clean stop says what counts.
//!
//! 1. The opening has read `table` and has changed nothing yet.
//! 2. An index that is damaged, or that lacks records which count, is replaced. What of it can be read stays at its offset. Damaged
//!    ranges are filled with marks of nothing. Index records of what it lacks are made from the data file and appended.
//! 3. Only then the opening removes `table`.
//! 4. The repair that follows rewrites it without what counts no more: what was deleted has no index record in it any more.
//!
//! Always holds: `table` agrees with the indexes before and after each replacement, as an index keeps its generation and names the
//! same records that count. So a kill at any moment leaves `table`, or whole indexes, or both.
//! Not here: an index that is missing (`restore`); a tombstone of which both copies are damaged, as `table` has none.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::index::{index_or_records, unindexed};
use super::misplaced::misplaced;
use super::records::each_record;
use crate::error::StoreError;
use crate::format::{INDEX_HEAD_BYTES, IndexRecord, IndexRecords, fill_gaps, u16_at};
use crate::objects::Objects;
use crate::segments::index_file::{IndexRead, Lost};
use crate::segments::segment::Segment;
use crate::segments::volume::{full, is_full, replace_file};

/// Rewrites damaged indexes, and notes each for the next check. While a file is under the name of another segment nothing is
/// written, as a repair refuses then.
///
/// # Errors
/// When an index cannot be written. `table` is still there then.
pub(crate) fn reindex(objects: &Objects) -> Result<(), StoreError> {
    let segments = objects.segments.all_files();
    if segments.iter().any(|segment| misplaced(objects, segment).is_some()) {
        return Ok(());
    }
    for segment in segments {
        let is_lost = segment.index_lost.load(Ordering::SeqCst);
        if is_lost || segment.lacks_data() {
            continue;
        }
        match whole_index(objects, &segment) {
            Ok(None) => {}
            Ok(Some(bytes)) => replace(objects, &segment, &bytes)?,
            // A store with a bad sector can still be repaired elsewhere.
            Err(error) => tracing::warn!(%error, file = segment.number, "its index is left for the repair"),
        }
    }
    Ok(())
}

fn replace(objects: &Objects, segment: &Arc<Segment>, bytes: &[u8]) -> Result<(), StoreError> {
    let volume = objects.segments.volume(segment.volume);
    let name = Segment::index_name(segment.number);
    replace_file(&volume.disk, &name, &[bytes]).map_err(|error| match is_full(&error) {
        true => full(error),
        false => error.into(),
    })?;
    segment.index_bytes.store(bytes.len() as u64, Ordering::Relaxed);
    segment.rewrite_due.store(true, Ordering::SeqCst);
    let place = segment.place();
    objects.segments.note_damage(format!(
        "{place}: the index `{name}` was damaged; it was rewritten with all objects that the file `table` lists"
    ));
    Ok(())
}

/// The bytes of an index as it should be; `None` when it is so, or when nothing is known of it.
fn whole_index(objects: &Objects, segment: &Segment) -> Result<Option<Vec<u8>>, StoreError> {
    // What cannot be read at all is left to the repair, which reports it.
    let Ok(read) = index_or_records(objects, segment) else { return Ok(None) };
    if read.head.salt() != read.salt {
        return Ok(None);
    }
    let kept = kept(objects, segment, &read);
    let lacks_some = kept.live_blocks < segment.live_blocks.load(Ordering::Relaxed);
    let missing = if lacks_some { unindexed(objects, segment, &read)?.index_records } else { Vec::new() };
    if read.lost.is_none() && read.repaired.is_empty() && !kept.is_damaged && missing.is_empty() {
        return Ok(None);
    }
    let mut bytes = kept.bytes;
    // Each record of the data file says how long the index was when it was written. A shorter one would count as cut off.
    let end = bytes.len().max(index_bytes_min(objects, segment)?);
    bytes.resize(end.next_multiple_of(8), 0);
    fill_gaps(&mut bytes, read.salt);
    bytes.extend_from_slice(&missing);
    IndexRecord::Mark { durable_end: bytes.len() as u64 }.encode(read.salt, &mut bytes);
    Ok(Some(bytes))
}

/// What can be used of an index.
struct Kept {
    /// The whole file, with zeros in the place of what is not kept.
    bytes: Vec<u8>,
    /// Of its records that count.
    live_blocks: u32,
    is_damaged: bool,
}

fn kept(objects: &Objects, segment: &Segment, read: &IndexRead) -> Kept {
    let mut kept = Kept { bytes: vec![0; read.bytes.len()], live_blocks: 0, is_damaged: false };
    kept.bytes[..INDEX_HEAD_BYTES].copy_from_slice(&read.head.encode());
    let mut index_records = IndexRecords::new(&read.bytes, read.salt);
    for (at, index_record) in index_records.by_ref() {
        let mut is_kept = true;
        if let IndexRecord::Put(put) = index_record {
            let hash = put.name.hash(objects.setup.hash_seed);
            let counts = objects.index.location_of(hash, segment.number, put.block).is_some();
            kept.live_blocks += if counts { objects.setup.shape.blocks(put.record_bytes()) } else { 0 };
            // Made from the data file, which has what was deleted too.
            is_kept = counts || read.lost != Some(Lost::Whole);
        }
        if is_kept {
            let (at, bytes) = (at as usize, u16_at(&read.bytes, at as usize + 4) as usize * 8);
            kept.bytes[at..at + bytes].copy_from_slice(&read.bytes[at..at + bytes]);
        }
    }
    kept.is_damaged = !index_records.damaged.is_empty();
    kept
}

/// The longest that the index was, as the records of the data file say.
fn index_bytes_min(objects: &Objects, segment: &Segment) -> Result<usize, StoreError> {
    let mut end = 0;
    each_record(objects, segment, |record| end = end.max(record.index_end))?;
    // None is several times as long as its data file: what says so is damaged.
    let most = objects.setup.shape.segment_bytes() * INDEX_SHARE_MAX;
    Ok(if end <= most { end as usize } else { 0 })
}

/// Far above what index records of the smallest objects take, and tombstones.
const INDEX_SHARE_MAX: u64 = 4;
