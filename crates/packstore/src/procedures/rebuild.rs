//! Learns from the index files what is there, after a stop that was not clean.
//!
//! ```text
//! index files --> records by hash --> of each key the newest that is whole --> table, live blocks    filled in place
//!                                                                         `--> Rebuilt               installed by the caller
//! ```
//!
//! The table and the counts of live blocks are filled where they are: a second table would need its memory twice, and a cache
//! serves meanwhile what is known already.
//!
//! Records written after an index file's last mark may have lost their bodies: these are read and compared, in the order in
//! which they lie. What is not whole never counted; what it would have replaced is still there. Records take 32 bytes each while
//! it lasts, in memory up to `rebuild_bytes_max`, beyond that in a file.

mod found;
mod resolve;
mod spill;
mod torn;

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use found::Found;
use resolve::{Resolved, resolve};
pub(crate) use spill::SPILL_NAME;
use spill::{PARTS, Spill};
use torn::{Suspect, torn};

use crate::error::StoreError;
use crate::format::{
    INDEX_HEAD_BYTES, IndexHead, IndexRecord, IndexRecords, KEY_BYTES_MAX, Kind, META_BYTES_MAX, Name, Put,
    RECORD_HEAD_BYTES, RecordHead, Tombstone, damaged_behind, u32_at, u64_at,
};
use crate::index::Uncertain;
use crate::index::address::location;
use crate::locks::locked;
use crate::objects::Objects;
use crate::options::Mode;
use crate::procedures::recover::cut::{cut_records, ends_with_mark, looks_cut};
use crate::procedures::recover::holes::Holes;
use crate::procedures::recover::index::{end_of, index_or_records, is_gone};
use crate::procedures::recover::misplaced::looks_misplaced;
use crate::procedures::recover::restore::restore;
use crate::segments::bitmap::Bitmap;
use crate::segments::index_file::{IndexRead, Lost, index_as_it_is};
use crate::segments::segment::Segment;

/// Number and count of pieces of a manifest; number of an alias' object.
#[derive(Clone, Copy)]
struct Special {
    id: u64,
    pieces: u32,
}

#[derive(Default)]
struct Heap {
    parts: Vec<Vec<Found>>,
    internals: Vec<(u64, u32, Found)>,
    specials: HashMap<u64, Special>,
    /// By sequence number.
    uncertain: HashMap<u64, Uncertain>,
    sequence_max: u64,
    /// What expires at this time or before has expired, for all of a rebuild: two looks at one record must agree. 0: nothing has.
    now_s: u32,
    /// Records whose index is lost: what it said about others is not known.
    lost: bool,
}

impl Heap {
    fn lens(&self) -> Vec<usize> {
        self.parts.iter().map(Vec::len).chain([self.internals.len()]).collect()
    }

    fn cut_to(&mut self, lens: &[usize]) {
        self.parts.iter_mut().zip(lens).for_each(|(part, &len)| part.truncate(len));
        self.internals.truncate(lens[self.parts.len()]);
    }

    /// Those that came since it had these lengths.
    fn mark(&mut self, lens: &[usize], marked: &HashSet<Found>, mark: impl Fn(&mut Found)) {
        if marked.is_empty() {
            return;
        }
        let internals = self.internals.iter_mut().skip(lens[self.parts.len()]).map(|(_, _, found)| found);
        let parts = self.parts.iter_mut().zip(lens).flat_map(|(part, &len)| &mut part[len..]);
        parts.chain(internals).filter(|found| marked.contains(*found)).for_each(mark);
    }
}

/// A data file is looked through in such steps.
const SEEK_BYTES: usize = 1 << 20;

/// What a rebuild learnt besides the table.
pub(crate) struct Rebuilt {
    resolved: Resolved,
    /// A lost index of a cache may have said what was purged: nothing of the cache counts.
    drops_all: bool,
}

impl Rebuilt {
    /// Gives it to the store, and writes the indexes that were lost.
    pub(crate) fn install(self, objects: &Objects) {
        self.resolved.install(objects);
        restore(objects, self.drops_all);
    }
}

/// Fills the table. `bytes_max`: of records, in memory.
///
/// # Errors
/// When what was spilled cannot be read again, or the store is being closed.
pub(crate) fn rebuild(objects: &Objects, bytes_max: u64) -> Result<Rebuilt, StoreError> {
    objects.index.note_rebuild();
    let segments = objects.segments.all_files();
    learn_time(objects, &segments);
    let now_s = objects.time_of_heads();
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get().min(8));
    let spill = Spill::new(objects, bytes_max, threads);
    let heaps = Mutex::new(Vec::new());
    let next = AtomicUsize::new(0);
    // What cannot be read for that is not damaged.
    let lacks = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..threads.min(segments.len()) {
            scope.spawn(|| {
                let parts = (0..PARTS).map(|_| Vec::new()).collect();
                let mut heap = Heap { parts, now_s, ..Heap::default() };
                while let Some(segment) = segments.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if objects.queue.is_closing() {
                        break;
                    }
                    let read = read_segment(objects, segment, &mut heap);
                    if let Err(error @ StoreError::NoDescriptors { .. }) = read {
                        *locked(&lacks) = Some(error);
                        break;
                    }
                    if let Err(error) = read {
                        // It costs its objects; it is never written again, so that it can be repaired.
                        tracing::error!(%error, "a segment's index cannot be read");
                        objects.segments.note_damaged_file();
                        segment.never_fill();
                    }
                    spill.relieve(&mut heap.parts);
                }
                locked(&heaps).push(heap);
            });
        }
    });
    if let Some(error) = lacks.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner) {
        return Err(error);
    }
    if objects.queue.is_closing() {
        return Err(StoreError::Closed);
    }
    let heaps = heaps.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let lost = heaps.iter().any(|heap| heap.lost);
    // What was purged must not come back, and the lost index may be the only record of the purge.
    let drops_all = lost && objects.setup.mode == Mode::Cache;
    if drops_all {
        tracing::error!("a lost index may have recorded what was purged: the cache begins empty");
    }
    let resolved = resolve(objects, heaps, &spill, threads, lost)?;
    Ok(Rebuilt { resolved, drops_all })
}

/// Learns how late it was when the store was last written to, before it is judged what has expired: what was swept then is gone
/// in part, and must not be back in part should the time of day have been set back.
fn learn_time(objects: &Objects, segments: &[Arc<Segment>]) {
    if !objects.setup.expires {
        return;
    }
    for segment in segments {
        let mut head = segment.read_index_begin(INDEX_HEAD_BYTES).unwrap_or_default();
        if let Ok((head, _)) = IndexHead::decode_repairing(&mut head)
            && head.store == objects.setup.store
        {
            objects.clock.not_before(head.time_s);
        }
    }
}

fn read_segment(objects: &Objects, segment: &Segment, heap: &mut Heap) -> Result<(), StoreError> {
    let mut read = match index_as_it_is(objects.setup.store, segment) {
        Ok(read) => read,
        Err(error @ StoreError::NoDescriptors { .. }) => return Err(error),
        Err(error) => known_otherwise(objects, segment, error)?,
    };
    if read.lost == Some(Lost::Whole)
        && IndexRecords::new(&read.bytes, read.salt)
            .any(|(_, index_record)| matches!(index_record, IndexRecord::Put(_)))
    {
        heap.lost = true;
    }
    segment.generation.store(read.head.generation, Ordering::SeqCst);
    segment.since.store(read.head.since, Ordering::SeqCst);
    segment.queue_kind.store(read.head.queue_kind, Ordering::Relaxed);
    heap.sequence_max = heap.sequence_max.max(read.head.generation);
    let before = heap.lens();
    let mut learned = learn(objects, segment, &read, heap);
    if learned.is_damaged {
        // Seldom, so that it is worth to read all once more then.
        heap.cut_to(&before);
        read.repair();
        learned = learn(objects, segment, &read, heap);
    }
    let durable_end = learned.durable_end;
    if !read.repaired.is_empty() {
        tracing::warn!(
            file = segment.number,
            repaired = read.repaired.len(),
            "flipped bits of an index were repaired"
        );
        objects.segments.note_damaged_controls(read.repaired.len() as u64);
    }
    let now_s = heap.now_s;
    let suspects = |from| {
        IndexRecords::new(&read.bytes, read.salt).starting_at(from).filter_map(|(_, index_record)| {
            let IndexRecord::Put(put) = index_record else { return None };
            found_of(objects, segment, &put, now_s).map(|found| Suspect { found, block: put.block })
        })
    };
    // Without its data file all of them are damaged, which is said when they are asked for.
    if !segment.lacks_data() {
        let torn = torn(objects, segment, suspects(durable_end));
        // Nor in the data file of another segment, which has none of them.
        if !torn.is_empty() && looks_misplaced(objects, segment).is_none() {
            heap.mark(&before, &torn, Found::tear);
        }
    }
    let with_parts = |from| {
        let founds = suspects(from).map(|suspect| suspect.found);
        founds.filter(|found| found.kind() != Kind::Whole).collect::<HashSet<_>>()
    };
    match read.lost {
        Some(Lost::Whole) => heap.mark(&before, &with_parts(0), Found::note_from_data),
        _ => heap.mark(&before, &with_parts(durable_end), Found::note_unsynced),
    }
    if read.lost.is_none() {
        end_index(objects, segment, &read, durable_end);
    }
    seek_what_is_missing(objects, segment, &read, heap)
}

/// Looks for what an index that is damaged or was cut off may have named.
fn seek_what_is_missing(
    objects: &Objects,
    segment: &Segment,
    read: &IndexRead,
    heap: &mut Heap,
) -> Result<(), StoreError> {
    let mut holes = Holes::of(read);
    if !holes.is_empty() {
        tracing::error!(file = segment.number, "an index is damaged: run `crumb pack check`");
        objects.segments.note_damaged_controls(holes.count());
        if objects.setup.mode == Mode::Store {
            // What it no longer names would be written over, and rewriting it would hide that anything is missing.
            segment.never_fill();
        }
    }
    // One that does not end with a mark was killed between a sync and its mark, or cut off: then all is looked at. A cache writes few
    // marks, and must not read all that it has before it serves.
    let may_be_cut = objects.setup.mode == Mode::Store && !ends_with_mark(read) && !segment.lacks_data();
    let is_cut = read.lost.is_none()
        && (looks_cut(objects, segment, read) || may_be_cut && cut_records(objects, segment, read)?.is_cut);
    if is_cut {
        tracing::error!(file = segment.number, "the index of a segment was cut off: run `crumb pack check`");
        objects.segments.note_damaged_file();
        segment.never_fill();
        if objects.setup.mode == Mode::Store {
            holes.add_end(end_of(read));
        }
    }
    if holes.is_empty() {
        return Ok(());
    }
    if objects.setup.mode == Mode::Store {
        objects.index.note_incomplete();
    }
    seek_unindexed(objects, segment, read, &holes, heap)
}

/// What is behind an index's last mark and no index record: after a stop that was not clean it is what power or a kill left of a
/// write that was never acknowledged. It is cleared, so that whatever is there later is known to be damage. After a clean stop it
/// is damage, and may have been deletions.
fn end_index(objects: &Objects, segment: &Segment, read: &IndexRead, durable_end: u64) {
    let ranges = damaged_behind(&read.bytes, read.salt, durable_end);
    if ranges.is_empty() {
        return;
    }
    if objects.segments.lacks_table() {
        tracing::error!(
            file = segment.number,
            "the end of a segment's index is damaged, and there is no `table`: what was deleted last may be back; run `crumb pack check`"
        );
        segment.never_fill();
    } else if !objects.setup.read_only {
        tracing::warn!(file = segment.number, "the last write to the index of a segment was cut short");
        if let Err(error) = segment.clear_in_index(&ranges) {
            let error = StoreError::from(error);
            tracing::warn!(%error, "what it left could not be cleared: `crumb pack check` will call it damage");
        }
    }
}

/// What is known of a file whose index cannot be used.
fn known_otherwise(objects: &Objects, segment: &Segment, error: StoreError) -> Result<IndexRead, StoreError> {
    segment.recovered.store(true, Ordering::SeqCst);
    let mut read = index_or_records(objects, segment).map_err(|_| error.clone())?;
    if objects.setup.mode == Mode::Cache && read.lost == Some(Lost::Whole) {
        // Nothing of it is kept.
        segment.index_lost.store(true, Ordering::SeqCst);
    }
    if !is_gone(&error) {
        tracing::error!(%error, "a segment's index is damaged: run `crumb pack repair`");
        objects.segments.note_damaged_file();
    }
    // Until its index is rewritten.
    segment.never_fill();
    read.repaired.clear();
    Ok(read)
}

/// What an index contained.
struct Learned {
    /// Records that it names behind this may lack their bodies.
    durable_end: u64,
    /// Some of it cannot be read, or seems to be there twice.
    is_damaged: bool,
}

fn learn(objects: &Objects, segment: &Segment, read: &IndexRead, heap: &mut Heap) -> Learned {
    let mut durable_end = 0;
    let mut index_records = IndexRecords::new(&read.bytes, read.salt);
    let (mut named, mut names_twice) = (Bitmap::new(objects.setup.shape.segment_blocks), false);
    for (_, index_record) in index_records.by_ref() {
        match index_record {
            IndexRecord::Mark { durable_end: end } => durable_end = durable_end.max(end),
            IndexRecord::Tombstone(Tombstone { sequence, hash, superseded, .. }) => {
                heap.sequence_max = heap.sequence_max.max(sequence);
                heap.parts[part_of(hash)].push(Found::tombstone(hash, sequence, superseded.file));
            }
            IndexRecord::Put(put) => {
                let Some(found) = found_of(objects, segment, &put, heap.now_s) else { continue };
                names_twice |= !named.mark(put.block, 1);
                heap.sequence_max = heap.sequence_max.max(put.sequence);
                segment.note_expiry(put.expires_s);
                if put.kind != Kind::Whole {
                    heap.specials.insert(put.sequence, Special { id: put.id, pieces: put.pieces() });
                }
                if put.name.internal {
                    if put.name.key.len() == 12 {
                        let (id, part) = (u64_at(put.name.key, 0), u32_at(put.name.key, 8));
                        heap.internals.push((id, part, found));
                    }
                } else {
                    heap.parts[part_of(found.hash)].push(found);
                }
            }
        }
    }
    Learned { durable_end, is_damaged: names_twice || !index_records.damaged.is_empty() }
}

/// Records of a data file that no index record names, and that one in a hole may have named: it is gone, or they were superseded long
/// ago. Which of the two is not known, so they are not served before a repair; but what they replaced must not come back.
fn seek_unindexed(
    objects: &Objects,
    segment: &Segment,
    read: &IndexRead,
    holes: &Holes,
    heap: &mut Heap,
) -> Result<(), StoreError> {
    let mut indexed = Bitmap::new(objects.setup.shape.segment_blocks);
    for (_, index_record) in IndexRecords::new(&read.bytes, read.salt) {
        if let IndexRecord::Put(put) = index_record {
            indexed.mark(put.block, objects.setup.shape.blocks(put.record_bytes()));
        }
    }
    let (block_bytes, body_salt) =
        (objects.setup.shape.block_bytes as usize, objects.setup.body_salt(segment.number));
    let body = segment.body()?;
    // As much as the longest head, key and attributes, so that each is whole in one of two reads.
    let head_bytes_max = RECORD_HEAD_BYTES + KEY_BYTES_MAX + META_BYTES_MAX;
    let step_blocks = (SEEK_BYTES / block_bytes) as u32;
    let mut block = 0;
    while block < objects.setup.shape.segment_blocks {
        let mut bytes = vec![0; step_blocks as usize * block_bytes + head_bytes_max];
        let read = body.read_at(&mut bytes, objects.setup.shape.offset(block))?;
        bytes.truncate(read);
        for step in 0..step_blocks.min(objects.setup.shape.segment_blocks - block) {
            let Some(from) = bytes.get(step as usize * block_bytes..) else { break };
            let at = block + step;
            if indexed.is_taken(at) {
                continue;
            }
            let may_count = |head: &RecordHead| {
                !head.internal && holes.may_have_named(head.sequence, RecordHead::index_end(from))
            };
            let Some(head) = RecordHead::decode(from, body_salt).filter(may_count) else { continue };
            let key = &from[RECORD_HEAD_BYTES..][..head.key_len as usize];
            let hash = Name::of(key).hash(objects.setup.hash_seed);
            heap.sequence_max = heap.sequence_max.max(head.sequence);
            let blocks = objects.setup.shape.blocks(head.record_bytes());
            let Some(location) = location(segment.number, at, blocks, objects.setup.shape) else { continue };
            let mut found = Found::record(hash, head.sequence, head.kind, location, 0).uncertain();
            if is_over(head.expires_s, heap.now_s) {
                found = found.expired();
            }
            heap.parts[part_of(hash)].push(found);
            let uncertain = Uncertain { key: key.to_vec(), file: segment.number, block: at };
            heap.uncertain.insert(head.sequence, uncertain);
        }
        block += step_blocks;
    }
    Ok(())
}

/// Whether a time to live is over.
fn is_over(expires_s: u32, now_s: u32) -> bool {
    expires_s != 0 && expires_s <= now_s
}

fn part_of(hash: u64) -> usize {
    (hash >> 56) as usize
}

/// `now_s`: as [`Heap::now_s`].
fn found_of(objects: &Objects, segment: &Segment, put: &Put<'_>, now_s: u32) -> Option<Found> {
    let blocks = objects.setup.shape.blocks(put.record_bytes());
    // Beyond the file's end: no record of ours.
    if put.block.checked_add(blocks)? > objects.setup.shape.segment_blocks {
        return None;
    }
    let location = location(segment.number, put.block, blocks, objects.setup.shape)?;
    let hash = put.name.hash(objects.setup.hash_seed);
    let mut found = Found::record(hash, put.sequence, put.kind, location, blocks);
    found.superseded = put.superseded.map_or(found.superseded, |superseded| superseded.file);
    Some(if is_over(put.expires_s, now_s) { found.expired() } else { found })
}
