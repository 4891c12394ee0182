//! Rewrites a segment's index without what counts no more, so that the blocks of that can be given to others.
//!
//! 1. The index gets its next generation. Changes begun from now on name it; those begun before are found by their keys,
//!    which are busy.
//! 2. Records that count are kept. What superseded a record of another segment becomes a tombstone, while it is needed.
//! 3. In a cache all changes are made durable: what superseded the dropped records may be in memory only.
//! 4. The new index file takes the place of the old one. Tombstones are in it twice, far apart.
//!
//! Always holds: no index record on disk names blocks that were given to another object; what was superseded stays so.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::error::StoreError;
use crate::format::{
    IndexHead, IndexRecord, IndexRecords, Put, Superseded, TOMBSTONES_APART_BYTES, Tombstone,
};
use crate::objects::Objects;
use crate::options::Mode;
use crate::procedures::make_room::NoRoom;
use crate::procedures::recover::holes::Holes;
use crate::procedures::recover::index::unindexed;
use crate::segments::bitmap::Bitmap;
use crate::segments::index_file::IndexRead;
use crate::segments::segment::{ExpiryRange, Segment};
use crate::segments::volume::{Counters, Volume, replace_file};

/// An index that lacks records that count must not be rewritten, as their blocks would be given to others; nor, in a store, one that is
/// damaged, as that would hide what it may lack.
pub(crate) fn lacks_nothing(
    objects: &Objects,
    segment: &Arc<Segment>,
    read: &IndexRead,
) -> Result<(), StoreError> {
    let why = if objects.setup.mode == Mode::Store && !Holes::of(read).is_empty() {
        "it is damaged"
    } else if lacks_some(objects, segment, read)? {
        "it lacks index records of objects that are there"
    } else {
        return Ok(());
    };
    let place = format!(
        "{}/{}",
        objects.segments.volume(segment.volume).disk.place(),
        Segment::index_name(segment.number)
    );
    Err(StoreError::Foreign { place, why: why.to_owned() })
}

fn lacks_some(objects: &Objects, segment: &Segment, read: &IndexRead) -> Result<bool, StoreError> {
    let mut indexed = 0;
    for (_, index_record) in IndexRecords::new(&read.bytes, read.salt) {
        if let IndexRecord::Put(put) = index_record
            && objects
                .index
                .location_of(put.name.hash(objects.setup.hash_seed), segment.number, put.block)
                .is_some()
        {
            indexed += objects.setup.shape.blocks(put.record_bytes());
        }
    }
    // Blocks of what is being deleted may count a little longer than it does: whether there is any is seen in the data file.
    Ok(indexed < segment.live_blocks.load(Ordering::Relaxed)
        && !unindexed(objects, segment, read)?.keys.is_empty())
}

/// Rewrites the index without what counts no more.
pub(crate) fn rewrite_index(
    objects: &Objects,
    volume: &Arc<Volume>,
    segment: &Arc<Segment>,
    read: IndexRead,
) -> Result<(IndexHead, u64, Bitmap), NoRoom> {
    let IndexRead { salt: old_salt, head: old_head, bytes, .. } = read;
    let generation = objects.queue.next_sequence();
    // Who changes a key from now on names this generation; who began before is found busy below.
    segment.generation.store(generation, Ordering::SeqCst);
    let from = objects.queue.keys().instant();
    let from_before = segment.generation_from.swap(from, Ordering::SeqCst);
    let mut bitmap = Bitmap::new(objects.setup.shape.segment_blocks);
    let mut dying_since = u64::MAX;
    let (mut live, mut expiry) = (Vec::new(), ExpiryRange::EMPTY);
    for (at, index_record) in IndexRecords::new(&bytes, old_salt) {
        let IndexRecord::Put(put) = index_record else { continue };
        let hash = put.name.hash(objects.setup.hash_seed);
        if objects.index.location_of(hash, segment.number, put.block).is_none() {
            continue;
        }
        if !bitmap.mark(put.block, objects.setup.shape.blocks(put.record_bytes())) {
            let why = "its objects overlap";
            let place = format!("{}/{}", volume.disk.place(), Segment::index_name(segment.number));
            return Err(NoRoom::Failed(StoreError::Foreign { place, why: why.to_owned() }));
        }
        dying_since = dying_since.min(objects.queue.keys().busy_since(hash).unwrap_or(u64::MAX));
        live.push(at);
        expiry.add(put.expires_s);
    }
    // Changes on their way name the generation that was when they were staged: the last one, unless they take very long. Were
    // the older `since` kept for each of them, a busy store would never forget a tombstone.
    let since = match dying_since {
        u64::MAX => generation,
        since if since >= from_before => old_head.generation.max(segment.since.load(Ordering::SeqCst)),
        _ => segment.since.load(Ordering::SeqCst),
    };
    if objects.setup.mode == Mode::Cache {
        // What superseded the others may be in memory only, on any volume.
        objects.make_durable();
    }
    let queue_kind = segment.queue_kind.load(Ordering::Relaxed);
    let head = IndexHead {
        store: objects.setup.store,
        file: segment.number,
        generation,
        since,
        queue_kind,
        is_first: false,
        time_s: objects.time_of_heads(),
    };
    let mut out = head.encode().to_vec();
    let mut live = live.into_iter().peekable();
    // Each of them once here, and once more at the end.
    let (mut tombstones, mut kept) = (Vec::new(), HashSet::new());
    let is_needed = |superseded: Superseded| {
        if superseded.file == segment.number {
            superseded.generation >= since
        } else {
            objects.segments.is_needed(superseded)
        }
    };
    let needed = |superseded: Option<Superseded>| superseded.filter(|&superseded| is_needed(superseded));
    for (at, index_record) in IndexRecords::new(&bytes, old_salt) {
        match index_record {
            IndexRecord::Put(put) if live.peek() == Some(&at) => {
                live.next();
                IndexRecord::Put(Put { superseded: needed(put.superseded), ..put })
                    .encode(head.salt(), &mut out);
            }
            // It never counted, so it superseded nothing.
            IndexRecord::Put(put) if objects.index.is_torn(put.sequence) => {}
            IndexRecord::Put(put) => {
                if let Some(superseded) = needed(put.superseded) {
                    let hash = put.name.hash(objects.setup.hash_seed);
                    let tombstone = Tombstone { sequence: put.sequence, hash, superseded, deleted_s: 0 };
                    IndexRecord::Tombstone(tombstone).encode(head.salt(), &mut tombstones);
                }
            }
            IndexRecord::Tombstone(Tombstone { sequence, hash, superseded, .. }) if is_needed(superseded) => {
                if kept.insert((sequence, hash, superseded.file)) {
                    index_record.encode(head.salt(), &mut tombstones);
                }
            }
            IndexRecord::Tombstone(_) | IndexRecord::Mark { .. } => {}
        }
    }
    if !tombstones.is_empty() {
        let first_at = out.len();
        out.extend_from_slice(&tombstones);
        let apart = first_at + tombstones.len().max(TOMBSTONES_APART_BYTES + tombstones.len());
        out.resize(apart.next_multiple_of(8), 0);
        out.extend_from_slice(&tombstones);
    }
    IndexRecord::Mark { durable_end: out.len() as u64 }.encode(head.salt(), &mut out);
    Counters::add(&volume.counters.index_bytes, out.len() as u64);
    replace_file(&volume.disk, &Segment::index_name(segment.number), &[&out])?;
    // Not before: others drop what supersedes records of this segment once these are durably gone from its index.
    segment.since.store(since, Ordering::SeqCst);
    segment.set_expiry(expiry);
    Ok((head, out.len() as u64, bitmap))
}

#[cfg(test)]
mod tests {
    use testkit::SimulatedDisk;

    use super::*;
    use crate::options::{OpenOptions, PutOptions, StoreOptions, VolumeSpec};
    use crate::segments::index_file::index_of;
    use crate::store::Store;

    /// A store that was closed and opened again, so that nothing is being filled.
    fn reopened(fill: impl FnOnce(&Store)) -> Store {
        let disk: Arc<dyn disk::Disk> = Arc::new(SimulatedDisk::new("room"));
        let volume = VolumeSpec { disk: disk.clone(), size_bytes: 8 << 20 };
        let store = Store::create(vec![volume], StoreOptions::default()).expect("a store");
        fill(&store);
        store.close().expect("closed");
        Store::open(vec![disk], OpenOptions::default()).expect("it opens")
    }

    #[test]
    fn a_rewritten_index_names_what_counts_alone_and_its_bitmap_is_the_live_blocks() {
        let store = reopened(|store| {
            for number in 0..20_u8 {
                store.put(&[number], &[number; 100], PutOptions::default()).expect("put");
            }
            (0..5_u8).for_each(|number| assert!(store.delete(&[number]).expect("deleted")));
            store.put(&[5], b"again", PutOptions::default()).expect("put");
        });
        let objects = &store.objects;
        let segment = objects.segments.file(0).expect("all are in the first");
        let puts = |read: &IndexRead| {
            IndexRecords::new(&read.bytes, read.salt)
                .filter(|(_, index_record)| matches!(index_record, IndexRecord::Put(_)))
                .count()
        };
        let before = index_of(objects.setup.store, &segment).expect("readable");
        assert_eq!(puts(&before), 21, "also those that count no more");
        let generation = before.head.generation;
        let volume = objects.segments.volume(0);
        let Ok((head, end, bitmap)) = rewrite_index(objects, &volume, &segment, before) else {
            panic!("it cannot be rewritten")
        };
        assert!(head.generation > generation && !head.is_first);
        assert_eq!(bitmap.taken(), segment.live_blocks.load(Ordering::Relaxed));
        let after = index_of(objects.setup.store, &segment).expect("readable");
        assert_eq!((puts(&after), after.bytes.len() as u64), (15, end));
        assert!((5..20_u8).all(|number| store.get(&[number]).expect("readable").is_some()));
    }

    #[test]
    fn an_index_that_lacks_a_record_that_counts_is_not_rewritten() {
        let store = reopened(|store| {
            (0..3_u8).for_each(|number| store.put(&[number], b"body", PutOptions::default()).expect("put"));
        });
        let objects = &store.objects;
        let segment = objects.segments.file(0).expect("all are in the first");
        let mut read = index_of(objects.setup.store, &segment).expect("readable");
        assert!(lacks_nothing(objects, &segment, &read).is_ok());
        let last = IndexRecords::new(&read.bytes, read.salt)
            .filter(|(_, index_record)| matches!(index_record, IndexRecord::Put(_)))
            .map(|(at, _)| at as usize)
            .last();
        read.bytes.truncate(last.expect("there are three"));
        let lacking = lacks_nothing(objects, &segment, &read);
        assert!(matches!(lacking, Err(StoreError::Foreign { .. })), "{lacking:?}");
    }
}
