//! Takes back the space of objects whose time to live is over.
//!
//! 1. A put goes to a segment of objects that live about as long (`FifoQueue::Lifetime`), so that most of a segment's objects
//!    expire at about the same time.
//! 2. Each segment knows when its first and its last object expire. So which segments have something to give is known without a disk.
//! 3. When a volume's writer needs room, it sweeps the segment in which most has expired: it reads that segment's own index, and forgets
//!    what has expired. What that leaves free is filled as all free space is (`make_room`).
//! 4. Before a store says that it is full, all segments are swept in which anything has expired.
//!
//! Always holds: an object is forgotten only when its time by the store's clock is over. Nothing is written for it: a reader looks at the
//! time in the record, and an opening after a kill at that in the index record. Before blocks are written again the segment's
//! index is rewritten (`rewrite_index`), with tombstones for what the forgotten records replaced, and with the time.
//! A large object that is being read keeps its pieces.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::error::StoreError;
use crate::format::{IndexRecord, IndexRecords, Kind};
use crate::objects::Objects;
use crate::segments::index_file::{IndexRead, index_of};
use crate::segments::segment::{ExpiryRange, Segment};
use crate::segments::volume::Counters;
use crate::store::Store;
use crate::write_queue::group::{Change, TableEntry};

/// Fewer blocks than one in this many are not worth the reading of an index, unless there is nothing else.
const WORTH_ONE_IN: u32 = 32;

impl Store {
    /// Forgets all objects whose time to live is over, so that their space counts as free at once. Readers miss them anyway, and puts
    /// take their space when they need it. Returns how many there were.
    ///
    /// # Errors
    /// When an index cannot be read, or a volume failed.
    pub fn forget_expired(&self) -> Result<u64, StoreError> {
        self.readiness.wait_ready()?;
        let objects = &self.objects;
        if !objects.setup.expires || objects.setup.read_only {
            return Ok(0);
        }
        // Those that are being filled are swept too.
        self.flush()?;
        objects.segments.all_volumes().iter().for_each(|volume| volume.queue.retire_files());
        let mut forgotten = 0;
        for segment in objects.segments.all_files() {
            forgotten += sweep(objects, &segment)?;
        }
        Ok(forgotten)
    }

    /// Whether objects have a time to live here: [`PutOptions::expires_s`](crate::PutOptions::expires_s).
    pub fn expires(&self) -> bool {
        self.objects.setup.expires
    }

    /// The time by which objects expire, in seconds since 1970: that of the system, but it never goes back.
    pub fn now_s(&self) -> u32 {
        self.objects.clock.now_s()
    }
}

/// Sweeps the one of these segments in which most has expired, if it is worth it.
pub(crate) fn sweep_one(objects: &Objects, segments: &[Arc<Segment>]) -> Result<(), StoreError> {
    if !objects.setup.expires {
        return Ok(());
    }
    let is_free = |segment: &&Arc<Segment>| {
        segment.live_blocks.load(Ordering::Relaxed) == 0 && !segment.filling.load(Ordering::SeqCst)
    };
    if segments.iter().any(|segment| is_free(&segment)) {
        return Ok(());
    }
    let now_s = objects.clock.now_s();
    let expired = |segment: &Arc<Segment>| expired_blocks(segment, now_s);
    let most = segments.iter().filter(|segment| is_idle(segment)).max_by_key(|segment| expired(segment));
    match most {
        Some(segment) if expired(segment) > objects.setup.shape.segment_blocks / WORTH_ONE_IN => {
            sweep(objects, segment).map(drop)
        }
        _ => Ok(()),
    }
}

/// Sweeps all of these segments in which anything has expired. Returns whether that left something free.
pub(crate) fn sweep_all(objects: &Objects, segments: &[Arc<Segment>]) -> Result<bool, StoreError> {
    let mut forgotten = 0;
    if objects.setup.expires {
        let now_s = objects.clock.now_s();
        for segment in segments.iter().filter(|segment| segment.expiry().first_s <= now_s) {
            forgotten += sweep(objects, segment)?;
        }
    }
    Ok(forgotten > 0)
}

fn is_idle(segment: &Segment) -> bool {
    !segment.filling.load(Ordering::SeqCst) && segment.pins.load(Ordering::SeqCst) == 0
}

/// How many of a segment's live blocks have expired, if its objects expire one after the other at equal distances.
fn expired_blocks(segment: &Segment, now_s: u32) -> u32 {
    let live = segment.live_blocks.load(Ordering::Relaxed);
    let ExpiryRange { first_s, last_s } = segment.expiry();
    if last_s <= now_s {
        return live;
    }
    // Objects without a time to live are among them: how many is not known.
    if first_s > now_s || last_s == ExpiryRange::NEVER_S {
        return 0;
    }
    let (passed, all) = (u64::from(now_s - first_s), u64::from(last_s - first_s));
    (u64::from(live) * passed / all) as u32
}

/// Forgets what has expired in a segment, and returns how many objects that were. Nothing happens to one that is being filled.
pub(crate) fn sweep(objects: &Objects, segment: &Arc<Segment>) -> Result<u64, StoreError> {
    if segment.filling.swap(true, Ordering::SeqCst) {
        return Ok(0);
    }
    let swept = sweep_held(objects, segment);
    segment.filling.store(false, Ordering::SeqCst);
    match swept {
        // It takes no more objects, and stays as it is for `crumb pack check` to see.
        Err(error @ (StoreError::NotAVolume { .. } | StoreError::Foreign { .. })) => {
            tracing::error!(%error, "a segment is damaged: it takes no more objects");
            objects.segments.note_damaged_file();
            segment.never_fill();
            Ok(0)
        }
        swept => swept,
    }
}

/// As [`sweep`], by the one that holds the segment.
pub(crate) fn sweep_held(objects: &Objects, segment: &Segment) -> Result<u64, StoreError> {
    let IndexRead { salt, bytes, .. } = index_of(objects.setup.store, segment)?;
    // Before the look at who reads: a reader that opens a large object after it sees a time that is as late.
    let now_s = objects.clock.now_s();
    let (mut left, mut forgotten) = (ExpiryRange::EMPTY, 0);
    for (_, index_record) in IndexRecords::new(&bytes, salt) {
        let IndexRecord::Put(put) = index_record else { continue };
        let hash = put.name.hash(objects.setup.hash_seed);
        let Some(location) = objects.index.location_of(hash, segment.number, put.block) else { continue };
        if put.expires_s == 0 || put.expires_s > now_s || objects.is_read(&put) {
            left.add(put.expires_s);
            continue;
        }
        let blocks = objects.setup.shape.blocks(put.record_bytes());
        let visible = !put.name.internal;
        if !objects.remove(&TableEntry { hash, location, blocks, visible }) {
            continue;
        }
        forgotten += u64::from(visible);
        if put.kind == Kind::Alias {
            objects.apply_now(&[Change::Unlink(put.id)]);
        }
    }
    segment.set_expiry(left);
    Counters::add(&objects.segments.volume(segment.volume).counters.expired, forgotten);
    Ok(forgotten)
}
