//! Finds the next segment to fill: a new one, one with room again, or, in a cache, one from which objects are evicted.
//!
//! 1. The emptiest segment that is idle, when half of it is free.
//! 2. Else a new segment, when the volume may have one more.
//! 3. Else the emptiest that is worth it. A store that has none is full. Where objects have a time to live, what has expired is
//!    swept first (`expire`), and segments of other lifetimes are taken last.
//! 4. In a cache: `CachePolicy` says which segment is to be emptied; objects go from it until an eighth is free.
//!
//! Always holds: before free blocks of a segment are written, its index was rewritten (`rewrite_index`).

use std::cmp::Reverse;
use std::collections::HashSet;
use std::io::ErrorKind;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use disk::{DiskError, DiskOpen};

use crate::cache_policy::queues::FifoQueue;
use crate::error::StoreError;
use crate::format::{IndexHead, IndexRecord, IndexRecords, Kind, Put};
use crate::objects::Objects;
use crate::options::Mode;
use crate::procedures::cycle::next_in_cycle;
use crate::procedures::expire::{sweep_all, sweep_held, sweep_one};
use crate::procedures::recover::misplaced::looks_misplaced;
use crate::procedures::rewrite_index::{lacks_nothing, rewrite_index};
use crate::segments::bitmap::Bitmap;
use crate::segments::index_file::{IndexRead, index_of};
use crate::segments::segment::{Access, Segment};
use crate::segments::volume::{Counters, Volume, full, is_full, replace_file};
use crate::segments::volume_copy::write_copy;
use crate::write_queue::direct::Direct;
use crate::write_queue::filling::{Filling, Session};
use crate::write_queue::group::{Change, TableEntry};

/// Why there is nothing to fill.
pub(crate) enum NoRoom {
    Full,
    Failed(StoreError),
}

impl From<DiskError> for NoRoom {
    fn from(error: DiskError) -> Self {
        if !is_full(&error) {
            return Self::Failed(error.into());
        }
        tracing::debug!(%error, "no room for the moment");
        match full(error) {
            StoreError::Full => Self::Full,
            error => Self::Failed(error),
        }
    }
}

/// Left free on a disk, besides an eighth of a segment, for index files that are rewritten.
const SPARE_BYTES: u64 = 512 << 10;

/// The next file to fill.
pub(crate) fn prepare(
    objects: &Objects,
    volume: &Arc<Volume>,
    index: usize,
    want_blocks: u32,
    queue_kind: FifoQueue,
) -> Result<Filling, NoRoom> {
    if objects.setup.cyclic {
        return next_in_cycle(objects, volume, index, want_blocks);
    }
    let segments = volume.size_bytes.load(Ordering::Relaxed) / objects.setup.shape.segment_bytes();
    let two = objects.policy.has_two_queues(segments);
    let blocks = objects.setup.shape.segment_blocks;
    let mut may_create = true;
    loop {
        let mine = of_volume(objects, index);
        sweep_one(objects, &mine).map_err(NoRoom::Failed)?;
        let free = |segment: &Arc<Segment>| free_blocks(segment, blocks);
        let worth = |segment: &&Arc<Segment>| is_worth(segment, blocks, want_blocks);
        // What stays in it should be of the queue.
        let of_lane = |segment: &&Arc<Segment>| {
            !(two || objects.setup.expires)
                || segment.queue_kind.load(Ordering::Relaxed) == queue_kind.code()
                || segment.live_blocks.load(Ordering::Relaxed) == 0
        };
        let emptiest =
            mine.iter().filter(idle).filter(worth).filter(of_lane).max_by_key(|segment| free(segment));
        if let Some(segment) = emptiest
            && free(segment) >= blocks / 2
            && let Some(filling) = refill(objects, volume, segment, queue_kind)?
        {
            return Ok(filling);
        }
        if may_create && may_have_one_more(objects, volume, &mine) {
            match create(objects, volume, index, queue_kind) {
                Err(NoRoom::Full) => may_create = false,
                done => return done,
            }
        }
        let enough = match objects.setup.mode {
            Mode::Store => 0,
            Mode::Cache => blocks / 10 * 3,
        };
        if let Some(segment) = emptiest
            && free(segment) >= enough
            && let Some(filling) = refill(objects, volume, segment, queue_kind)?
        {
            return Ok(filling);
        }
        if objects.setup.mode == Mode::Store {
            return last_resort(objects, volume, &mine, want_blocks, queue_kind);
        }
        let turns = objects.policy.to_empty(&mine, queue_kind, two, idle);
        // Those that what is being read fills, only when there is nothing else.
        let Some(first) = turns.first() else { return Err(NoRoom::Full) };
        for (segment, sparing) in turns.iter().map(|segment| (segment, true)).chain([(first, false)]) {
            match evict(objects, volume, segment, want_blocks, two, sparing) {
                Ok(false) => continue,
                Err(NoRoom::Failed(StoreError::NotAVolume { .. } | StoreError::Foreign { .. })) => {}
                done => drop(done?),
            }
            if let Some(filling) = refill(objects, volume, segment, queue_kind)? {
                return Ok(filling);
            }
            break;
        }
    }
}

/// The segments of a volume.
pub(super) fn of_volume(objects: &Objects, index: usize) -> Vec<Arc<Segment>> {
    let segments = objects.segments.all_files().into_iter();
    segments.filter(|segment| segment.volume == index).collect()
}

/// Whether one more segment is within what a volume may use.
pub(super) fn may_have_one_more(objects: &Objects, volume: &Volume, mine: &[Arc<Segment>]) -> bool {
    let segment_bytes = objects.setup.shape.segment_bytes();
    let used =
        mine.iter().map(|segment| segment_bytes + segment.index_bytes.load(Ordering::Relaxed)).sum::<u64>();
    // The new file's index will be as large as the others'.
    let index_mean = used.checked_div(mine.len() as u64).map_or(0, |mean| mean - segment_bytes);
    let needed = used + segment_bytes + index_mean.max(segment_bytes / 64);
    needed <= volume.size_bytes.load(Ordering::Relaxed) || mine.is_empty()
}

/// Nothing is written to it, and nobody holds its blocks.
pub(super) fn idle(segment: &&Arc<Segment>) -> bool {
    !segment.filling.load(Ordering::SeqCst) && segment.pins.load(Ordering::SeqCst) == 0
}

fn free_blocks(segment: &Segment, blocks: u32) -> u32 {
    blocks - segment.live_blocks.load(Ordering::Relaxed).min(blocks)
}

/// Whether so much is free in it, since room was last looked for in it in vain, that it is worth rewriting its index.
pub(super) fn is_worth(segment: &Segment, blocks: u32, want_blocks: u32) -> bool {
    let exhausted = segment.exhausted_at.load(Ordering::Relaxed);
    let lost = exhausted.saturating_sub(segment.live_blocks.load(Ordering::Relaxed));
    let shorter = want_blocks <= segment.exhausted_for.load(Ordering::Relaxed) / 2;
    want_blocks == 0
        || (free_blocks(segment, blocks) > blocks / 32
            && (exhausted == u32::MAX || lost > blocks / 32 || shorter))
}

/// What a store does before it says that it is full: where objects have a time to live, it sweeps all segments in which any has
/// expired, and takes the emptiest, whatever else is in it.
fn last_resort(
    objects: &Objects,
    volume: &Arc<Volume>,
    mine: &[Arc<Segment>],
    want_blocks: u32,
    queue_kind: FifoQueue,
) -> Result<Filling, NoRoom> {
    let blocks = objects.setup.shape.segment_blocks;
    if objects.setup.expires {
        sweep_all(objects, mine).map_err(NoRoom::Failed)?;
        let mut worth = mine
            .iter()
            .filter(idle)
            .filter(|segment| is_worth(segment, blocks, want_blocks))
            .collect::<Vec<_>>();
        worth.sort_by_cached_key(|segment| Reverse(free_blocks(segment, blocks)));
        for segment in worth {
            if let Some(filling) = refill(objects, volume, segment, queue_kind)? {
                return Ok(filling);
            }
        }
    }
    Err(NoRoom::Full)
}

pub(super) fn create(
    objects: &Objects,
    volume: &Arc<Volume>,
    index: usize,
    queue_kind: FifoQueue,
) -> Result<Filling, NoRoom> {
    // A data file that is there under a free number was left alone when the store was opened: it is not ours to replace. The
    // directory is listed once: were each name opened, a disk that fails would make every number look taken.
    let names = volume.disk.names()?.into_iter().collect::<HashSet<_>>();
    let reserved = objects.segments.reserve_number(|number| names.contains(&Segment::data_name(number)));
    let number = reserved.number();
    let most = crate::index::address::BLOCKS_MAX / u64::from(objects.setup.shape.segment_blocks);
    if u64::from(number) >= most {
        return Err(NoRoom::Full);
    }
    let generation = objects.queue.next_sequence();
    // A full disk could not even take the index of a file that makes room.
    let spare = objects.setup.shape.segment_bytes() / 8 + SPARE_BYTES;
    if volume.disk.room().is_ok_and(|room| room.free_bytes < objects.setup.shape.segment_bytes() + spare) {
        return Err(NoRoom::Full);
    }
    // Only this name is ever deleted as left over: a data file under its own name is never taken for one.
    let body_new = Segment::new_data_name(number);
    match volume.disk.remove(&body_new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let body = volume.disk.open(&body_new, DiskOpen::New)?;
    if let Err(error) = body.reserve(0, objects.setup.shape.segment_bytes()) {
        let _ = volume.disk.remove(&body_new);
        return Err(error.into());
    }
    let head = IndexHead {
        store: objects.setup.store,
        file: number,
        generation,
        since: generation,
        queue_kind: queue_kind.code(),
        is_first: true,
        time_s: objects.time_of_heads(),
    };
    // The index first, for good. An index that is a head alone, without a data file, holds nothing: it is passed over, and
    // replaced when its number is taken again.
    replace_file(&volume.disk, &Segment::index_name(number), &[&head.encode()])?;
    volume.disk.rename(&body_new, &Segment::data_name(number))?;
    volume.disk.sync_names()?;
    let volume_bytes = volume.size_bytes.load(Ordering::Relaxed).max(objects.setup.shape.segment_bytes());
    let access = Access::of(objects.setup.mode, objects.setup.read_only, volume_bytes);
    let segment = Arc::new(Segment::new(number, index, volume.disk.clone(), access, generation));
    segment.filling.store(true, Ordering::SeqCst);
    segment.queue_kind.store(queue_kind.code(), Ordering::Relaxed);
    objects.segments.add(reserved, segment.clone());
    write_copy(&objects.segments, index, None)?;
    session(
        objects,
        volume,
        segment,
        &head,
        head.encode().len() as u64,
        Bitmap::new(objects.setup.shape.segment_blocks),
    )
}

fn session(
    objects: &Objects,
    volume: &Arc<Volume>,
    segment: Arc<Segment>,
    head: &IndexHead,
    end: u64,
    bitmap: Bitmap,
) -> Result<Filling, NoRoom> {
    let body = segment.body()?.clone();
    let index = volume.disk.open(&Segment::index_name(segment.number), DiskOpen::Write)?;
    segment.index_bytes.store(end, Ordering::Relaxed);
    let direct = objects.setup.direct_writes && bitmap.free() > objects.setup.shape.segment_blocks / 2;
    let direct = Direct::of(&body, direct);
    let body_salt = objects.setup.body_salt(segment.number);
    let session = Session::new(segment, body, index, direct, body_salt, head.salt(), end);
    Ok(Filling::new(session, bitmap))
}

/// A file that is there, to be filled where it is free; `None` when somebody holds it.
pub(super) fn refill(
    objects: &Objects,
    volume: &Arc<Volume>,
    segment: &Arc<Segment>,
    queue_kind: FifoQueue,
) -> Result<Option<Filling>, NoRoom> {
    if segment.filling.swap(true, Ordering::SeqCst) {
        // Compaction took it meanwhile.
        return Ok(None);
    }
    segment.sorting.store(true, Ordering::SeqCst);
    if segment.pins.load(Ordering::SeqCst) != 0 {
        segment.sorting.store(false, Ordering::SeqCst);
        segment.filling.store(false, Ordering::SeqCst);
        return Ok(None);
    }
    segment.queue_kind.store(queue_kind.code(), Ordering::Relaxed);
    let swept = match objects.setup.expires {
        true => sweep_held(objects, segment).map(drop),
        false => Ok(()),
    };
    let rewritten = swept
        .and_then(|()| index_of(objects.setup.store, segment))
        .and_then(|read| lacks_nothing(objects, segment, &read).map(|()| read))
        .and_then(|read| looks_misplaced(objects, segment).map_or(Ok(read), Err))
        .map_err(NoRoom::Failed)
        .and_then(|read| rewrite_index(objects, volume, segment, read));
    segment.sorting.store(false, Ordering::SeqCst);
    let (head, end, bitmap) = match rewritten {
        Ok(rewritten) => rewritten,
        Err(NoRoom::Failed(
            error @ (StoreError::NotAVolume { .. }
            | StoreError::Foreign { .. }
            | StoreError::Misplaced { .. }),
        )) => {
            // It stays as it is, never to be filled, for `crumb pack check` to see; the others go on.
            tracing::error!(%error, "a segment is damaged: it takes no more objects");
            objects.segments.note_damaged_file();
            segment.never_fill();
            return Ok(None);
        }
        Err(error) => {
            segment.filling.store(false, Ordering::SeqCst);
            return Err(error);
        }
    };
    segment.exhausted_at.store(u32::MAX, Ordering::Relaxed);
    segment.exhausted_for.store(u32::MAX, Ordering::Relaxed);
    session(objects, volume, segment.clone(), &head, end, bitmap).map(Some)
}

/// At least one part in this many of a file is made free: less, and rewriting its index would cost more than what then
/// goes in; more, and objects go that are asked for.
const FREE_AT_LEAST_OF: u32 = 8;

/// Makes an eighth of a cache's file free at least, and a run as long as is wanted, by forgetting what nobody asked for
/// lately, and what lies in the way. Pieces of a large object that is being read go last; `sparing`: not at all, and false when
/// that leaves too little.
fn evict(
    objects: &Objects,
    volume: &Arc<Volume>,
    segment: &Arc<Segment>,
    want_blocks: u32,
    two: bool,
    sparing: bool,
) -> Result<bool, NoRoom> {
    let small = two && segment.queue_kind.load(Ordering::Relaxed) == FifoQueue::Small.code();
    let touches_min = objects.policy.touches_to_stay(small);
    let blocks = objects.setup.shape.segment_blocks;
    let IndexRead { salt, bytes, .. } = index_of(objects.setup.store, segment).map_err(NoRoom::Failed)?;
    let puts = || {
        IndexRecords::new(&bytes, salt).filter_map(|(_, index_record)| match index_record {
            IndexRecord::Put(put) => Some(put),
            _ => None,
        })
    };
    let blocks_of = |put: &Put<'_>| put.block..put.block + objects.setup.shape.blocks(put.record_bytes());
    let is_read = |put: &Put<'_>| {
        objects.is_read(put)
            && objects
                .index
                .location_of(put.name.hash(objects.setup.hash_seed), segment.number, put.block)
                .is_some()
    };
    let taken: Vec<_> = puts().filter(is_read).map(|put| blocks_of(&put)).collect();
    let taken_blocks: u32 = taken.iter().map(|its| its.end - its.start).sum();
    let run = match run_beside(taken, want_blocks, blocks) {
        Some(run) if taken_blocks <= blocks - blocks / FREE_AT_LEAST_OF => run,
        _ if sparing => return Ok(false),
        _ => 0..want_blocks,
    };
    let (mut spared, mut read) = (Vec::new(), Vec::new());
    for put in puts() {
        let hash = put.name.hash(objects.setup.hash_seed);
        let its = blocks_of(&put);
        let in_the_way = its.start < run.end && run.start < its.end;
        let Some(location) = objects.index.location_of(hash, segment.number, put.block) else { continue };
        if let Some(touches_min) =
            touches_min.filter(|&least| !in_the_way && objects.index.touches(hash, location) >= least)
        {
            objects.index.untouch(hash, location, touches_min);
            spared.push(put);
        } else if !in_the_way && is_read(&put) {
            read.push(put);
        } else {
            forget(objects, volume, segment, &put, small);
        }
    }
    for put in spared.into_iter().chain(read) {
        if blocks - segment.live_blocks.load(Ordering::Relaxed).min(blocks) >= blocks / FREE_AT_LEAST_OF {
            break;
        }
        forget(objects, volume, segment, &put, small);
    }
    Ok(true)
}

/// This many of a file's blocks, beside those that are taken.
fn run_beside(mut taken: Vec<Range<u32>>, want_blocks: u32, blocks: u32) -> Option<Range<u32>> {
    taken.sort_unstable_by_key(|its| its.start);
    let mut start = 0;
    for its in taken {
        if its.start >= start + want_blocks {
            break;
        }
        start = its.end;
    }
    (start + want_blocks <= blocks).then_some(start..start + want_blocks)
}

pub(super) fn forget(objects: &Objects, volume: &Volume, segment: &Segment, put: &Put<'_>, is_small: bool) {
    let hash = put.name.hash(objects.setup.hash_seed);
    let Some(location) = objects.index.location_of(hash, segment.number, put.block) else { return };
    let entry = TableEntry {
        hash,
        location,
        blocks: objects.setup.shape.blocks(put.record_bytes()),
        visible: !put.name.internal,
    };
    if !objects.remove(&entry) {
        return;
    }
    if is_small && entry.visible {
        objects.policy.note_evicted(hash);
    }
    Counters::add(&volume.counters.evicted, u64::from(entry.visible));
    if put.kind == Kind::Alias {
        objects.apply_now(&[Change::Unlink(put.id)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_made_in_the_first_gap_that_is_long_enough_beside_what_is_read() {
        let beside = |taken: &[Range<u32>], want| run_beside(taken.to_vec(), want, 100);
        assert_eq!(beside(&[], 100), Some(0..100));
        assert_eq!(beside(&[], 101), None);
        // In whatever order they come.
        assert_eq!(beside(&[50..60, 5..10], 20), Some(10..30));
        assert_eq!(beside(&[50..60, 5..10], 5), Some(0..5));
        assert_eq!(beside(&[50..60, 5..10], 40), Some(10..50));
        assert_eq!(beside(&[50..60, 5..10], 41), None);
        assert_eq!(beside(&[0..60, 60..100], 1), None);
    }

    #[test]
    fn a_full_disk_is_no_room_and_any_other_error_is_a_failure() {
        let error = |kind| DiskError {
            place: "disk".to_owned(),
            name: "file".to_owned(),
            operation: "write",
            source: std::io::Error::from(kind),
        };
        assert!(matches!(NoRoom::from(error(ErrorKind::StorageFull)), NoRoom::Full));
        assert!(matches!(NoRoom::from(error(ErrorKind::QuotaExceeded)), NoRoom::Full));
        assert!(matches!(NoRoom::from(error(ErrorKind::PermissionDenied)), NoRoom::Failed(_)));
    }
}
