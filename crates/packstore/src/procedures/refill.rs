//! Finds the next packed file to fill: a new one, one with room again, or, in a cache, one made room in.
//!
//! Before a file's free blocks are written, its index is written anew without the records that count no more. So no
//! control block on disk ever names blocks that were given to another object. What those records made void elsewhere is
//! kept as a tombstone for as long as the void record is still in some index.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use disk::{DiskError, DiskOpen};

use crate::cache_policy::lanes::Lane;
use crate::error::StoreError;
use crate::format::{Control, Controls, IndexHead, Kind, Put, Tombstone, Victim, mend_controls};
use crate::objects::Objects;
use crate::options::Mode;
use crate::procedures::recover::untold;
use crate::segments::bitmap::Bitmap;
use crate::segments::packed::{Access, Packed};
use crate::segments::volume::{Counters, Volume, replace_file};
use crate::segments::volume_copy::write_copy;
use crate::write_queue::direct::Direct;
use crate::write_queue::filling::{Filling, Session, TOLD_AGAIN_AFTER_BYTES};
use crate::write_queue::group::{Change, Held};

/// Why there is nothing to fill.
pub(crate) enum NoRoom {
    Full,
    Failed(StoreError),
}

impl From<DiskError> for NoRoom {
    fn from(error: DiskError) -> Self {
        match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => Self::Full,
            _ => Self::Failed(error.into()),
        }
    }
}

/// Left free on a disk, besides an eighth of a packed file, for index files that are written anew.
const SPARE_BYTES: u64 = 512 << 10;

/// The next file to fill.
pub(crate) fn prepare(
    objects: &Objects,
    volume: &Arc<Volume>,
    index: usize,
    want_blocks: u32,
    lane: Lane,
) -> Result<Filling, NoRoom> {
    let files = volume.size_bytes.load(Ordering::Relaxed) / objects.setup.shape.packed_bytes();
    let two = objects.policy.has_lanes(files);
    let blocks = objects.setup.shape.packed_blocks;
    let mut may_create = true;
    loop {
        let mine =
            objects.segments.all_files().into_iter().filter(|file| file.volume == index).collect::<Vec<_>>();
        let used = mine
            .iter()
            .map(|file| objects.setup.shape.packed_bytes() + file.index_bytes.load(Ordering::Relaxed))
            .sum::<u64>();
        // The new file's index will be as large as the others'.
        let index_mean =
            if mine.is_empty() { 0 } else { used / mine.len() as u64 - objects.setup.shape.packed_bytes() };
        let needed = used
            + objects.setup.shape.packed_bytes()
            + index_mean.max(objects.setup.shape.packed_bytes() / 64);
        let idle = |file: &&Arc<Packed>| {
            !file.filling.load(Ordering::SeqCst) && file.pins.load(Ordering::SeqCst) == 0
        };
        let free = |file: &Arc<Packed>| blocks - file.live_blocks.load(Ordering::Relaxed).min(blocks);
        let worth = |file: &&Arc<Packed>| {
            let exhausted = file.exhausted_at.load(Ordering::Relaxed);
            let lost = exhausted.saturating_sub(file.live_blocks.load(Ordering::Relaxed));
            let shorter = want_blocks <= file.exhausted_for.load(Ordering::Relaxed) / 2;
            want_blocks == 0
                || (free(file) > blocks / 32 && (exhausted == u32::MAX || lost > blocks / 32 || shorter))
        };
        // What stays in it should be of the lane.
        let of_lane = |file: &&Arc<Packed>| {
            !two || file.lane.load(Ordering::Relaxed) == lane.code()
                || file.live_blocks.load(Ordering::Relaxed) == 0
        };
        let emptiest = mine.iter().filter(idle).filter(worth).filter(of_lane).max_by_key(|file| free(file));
        if let Some(file) = emptiest
            && free(file) >= blocks / 2
            && let Some(filling) = refill(objects, volume, file, lane)?
        {
            return Ok(filling);
        }
        if may_create && (needed <= volume.size_bytes.load(Ordering::Relaxed) || mine.is_empty()) {
            match create(objects, volume, index, lane) {
                Err(NoRoom::Full) => may_create = false,
                done => return done,
            }
        }
        let enough = match objects.setup.mode {
            Mode::Store => 0,
            Mode::Cache => blocks / 10 * 3,
        };
        if let Some(file) = emptiest
            && free(file) >= enough
            && let Some(filling) = refill(objects, volume, file, lane)?
        {
            return Ok(filling);
        }
        if objects.setup.mode == Mode::Store {
            return Err(NoRoom::Full);
        }
        let turns = objects.policy.to_empty(&mine, lane, two, idle);
        // Those that what is being read fills, only when there is nothing else.
        let Some(first) = turns.first() else { return Err(NoRoom::Full) };
        for (file, sparing) in turns.iter().map(|file| (file, true)).chain([(first, false)]) {
            match evict(objects, volume, file, want_blocks, two, sparing) {
                Ok(false) => continue,
                Err(NoRoom::Failed(StoreError::NotAVolume { .. } | StoreError::Foreign { .. })) => {}
                done => drop(done?),
            }
            if let Some(filling) = refill(objects, volume, file, lane)? {
                return Ok(filling);
            }
            break;
        }
    }
}

fn create(objects: &Objects, volume: &Arc<Volume>, index: usize, lane: Lane) -> Result<Filling, NoRoom> {
    // A body file that is there under a free number was left alone when the store was opened: it is not ours to replace.
    let is_there = |number: u32| volume.disk.open(&Packed::body_name(number), DiskOpen::Read).is_ok();
    let reserved = objects.segments.reserve_number(is_there);
    let number = reserved.number();
    let most = crate::index::spot::BLOCKS_MAX / u64::from(objects.setup.shape.packed_blocks);
    if u64::from(number) >= most {
        return Err(NoRoom::Full);
    }
    let generation = objects.queue.next_sequence();
    // A full disk could not even take the index of a file that makes room.
    let spare = objects.setup.shape.packed_bytes() / 8 + SPARE_BYTES;
    if volume.disk.room().is_ok_and(|room| room.free_bytes < objects.setup.shape.packed_bytes() + spare) {
        return Err(NoRoom::Full);
    }
    // Only this name is ever deleted as left over: a body file under its own name is never taken for one.
    let body_new = Packed::new_body_name(number);
    match volume.disk.remove(&body_new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let body = volume.disk.open(&body_new, DiskOpen::New)?;
    if let Err(error) = body.reserve(0, objects.setup.shape.packed_bytes()) {
        let _ = volume.disk.remove(&body_new);
        return Err(error.into());
    }
    let head = IndexHead {
        store: objects.setup.store,
        file: number,
        generation,
        since: generation,
        lane: lane.code(),
        is_first: true,
    };
    // The index first, for good. An index that is a head alone, without a body file, holds nothing: it is passed over, and
    // replaced when its number is taken again.
    replace_file(&volume.disk, &Packed::index_name(number), &[&head.encode()])?;
    volume.disk.rename(&body_new, &Packed::body_name(number))?;
    volume.disk.sync_names()?;
    let access = Access::of(objects.setup.mode, objects.setup.read_only);
    let packed = Arc::new(Packed::new(number, index, volume.disk.clone(), access, generation));
    packed.filling.store(true, Ordering::SeqCst);
    packed.lane.store(lane.code(), Ordering::Relaxed);
    objects.segments.add(reserved, packed.clone());
    write_copy(&objects.segments, index, None)?;
    session(
        objects,
        volume,
        packed,
        &head,
        head.encode().len() as u64,
        Bitmap::new(objects.setup.shape.packed_blocks),
    )
}

fn session(
    objects: &Objects,
    volume: &Arc<Volume>,
    packed: Arc<Packed>,
    head: &IndexHead,
    end: u64,
    bitmap: Bitmap,
) -> Result<Filling, NoRoom> {
    let body = packed.body()?.clone();
    let index = volume.disk.open(&Packed::index_name(packed.number), DiskOpen::Write)?;
    packed.index_bytes.store(end, Ordering::Relaxed);
    let session = Session {
        body_salt: objects.setup.body_salt(packed.number),
        index_salt: head.salt(),
        packed,
        direct: Direct::of(
            &body,
            objects.setup.direct_writes && bitmap.free() > objects.setup.shape.packed_blocks / 2,
        ),
        body,
        index,
        index_end: AtomicU64::new(end),
        durable_end: AtomicU64::new(end),
        marked_end: AtomicU64::new(end),
        reserved_end: AtomicU64::new(end),
        told_once: Mutex::default(),
    };
    Ok(Filling::new(session, bitmap))
}

/// What a packed file's index holds.
pub(crate) struct IndexRead {
    pub head: IndexHead,
    /// Of the control blocks' checksums.
    pub salt: u32,
    /// The whole file, with flipped bits put right where there was one in a block.
    pub bytes: Vec<u8>,
    /// Where that was done: the file is still as it was.
    pub mended: Vec<u64>,
    /// Why the index file itself could not be used, when it could not.
    pub lost: Option<Lost>,
}

/// An index file that could not be used as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lost {
    /// Its head is damaged; all control blocks could be read.
    Head,
    /// All of it: the control blocks were made from the body file's records.
    Whole,
}

/// What a packed file's index holds, whole.
pub(crate) fn index_of(objects: &Objects, packed: &Packed) -> Result<IndexRead, StoreError> {
    let mut read = index_as_it_is(objects, packed)?;
    read.mend();
    Ok(read)
}

impl IndexRead {
    /// Puts right what can be.
    pub(crate) fn mend(&mut self) {
        self.mended.extend(mend_controls(&mut self.bytes, self.salt));
    }
}

/// As [`index_of`], with the control blocks as they are.
pub(crate) fn index_as_it_is(objects: &Objects, packed: &Packed) -> Result<IndexRead, StoreError> {
    index_in(objects, packed, packed.read_index()?)
}

/// As [`index_as_it_is`], from the bytes of the file.
pub(crate) fn index_in(
    objects: &Objects,
    packed: &Packed,
    mut bytes: Vec<u8>,
) -> Result<IndexRead, StoreError> {
    let place = objects.segments.volume(packed.volume).disk.place();
    let name = Packed::index_name(packed.number);
    let (head, head_mended) = IndexHead::decode_mending(&mut bytes)
        .map_err(|why| StoreError::NotAVolume { place: format!("{place}/{name}"), why })?;
    if head.store != objects.setup.store || head.file != packed.number {
        return Err(StoreError::Foreign {
            place: format!("{place}/{name}"),
            why: "it is the index of another packed file".to_owned(),
        });
    }
    let mended = if head_mended { vec![0] } else { Vec::new() };
    Ok(IndexRead { head, salt: head.salt(), bytes, mended, lost: None })
}

/// A file that is there, to be filled where it is free; `None` when somebody holds it.
fn refill(
    objects: &Objects,
    volume: &Arc<Volume>,
    packed: &Arc<Packed>,
    lane: Lane,
) -> Result<Option<Filling>, NoRoom> {
    if packed.filling.swap(true, Ordering::SeqCst) {
        // Compaction took it meanwhile.
        return Ok(None);
    }
    packed.sorting.store(true, Ordering::SeqCst);
    if packed.pins.load(Ordering::SeqCst) != 0 {
        packed.sorting.store(false, Ordering::SeqCst);
        packed.filling.store(false, Ordering::SeqCst);
        return Ok(None);
    }
    packed.lane.store(lane.code(), Ordering::Relaxed);
    let rewritten = index_of(objects, packed)
        .and_then(|read| lacks_nothing(objects, packed, &read).map(|()| read))
        .map_err(NoRoom::Failed)
        .and_then(|read| rewrite_index(objects, volume, packed, read));
    packed.sorting.store(false, Ordering::SeqCst);
    let (head, end, bitmap) = match rewritten {
        Ok(rewritten) => rewritten,
        Err(NoRoom::Failed(error @ (StoreError::NotAVolume { .. } | StoreError::Foreign { .. }))) => {
            // It stays as it is, never to be filled, for `crumb pack check` to see; the others go on.
            tracing::error!(%error, "a packed file's index is damaged: it takes no more objects");
            objects.segments.note_damaged_file();
            packed.never_fill();
            return Ok(None);
        }
        Err(error) => {
            packed.filling.store(false, Ordering::SeqCst);
            return Err(error);
        }
    };
    packed.exhausted_at.store(u32::MAX, Ordering::Relaxed);
    packed.exhausted_for.store(u32::MAX, Ordering::Relaxed);
    session(objects, volume, packed.clone(), &head, end, bitmap).map(Some)
}

/// An index that lacks control blocks of records that count must not be written anew: their blocks would be given to others.
fn lacks_nothing(objects: &Objects, packed: &Arc<Packed>, read: &IndexRead) -> Result<(), StoreError> {
    let mut told = 0;
    for (_, control) in Controls::new(&read.bytes, read.salt) {
        if let Control::Put(put) = control
            && objects
                .index
                .place_of(put.name.hash(objects.setup.hash_seed), packed.number, put.block)
                .is_some()
        {
            told += objects.setup.shape.blocks(put.record_bytes());
        }
    }
    // Blocks of what is being deleted may count a little longer than it does: whether there is any is seen in the body file.
    if told >= packed.live_blocks.load(Ordering::Relaxed) || untold(objects, packed, read)?.keys.is_empty() {
        return Ok(());
    }
    let place = format!(
        "{}/{}",
        objects.segments.volume(packed.volume).disk.place(),
        Packed::index_name(packed.number)
    );
    Err(StoreError::Foreign { place, why: "it lacks control blocks of objects that are there".to_owned() })
}

/// The index anew, without what counts no more.
pub(crate) fn rewrite_index(
    objects: &Objects,
    volume: &Arc<Volume>,
    packed: &Arc<Packed>,
    read: IndexRead,
) -> Result<(IndexHead, u64, Bitmap), NoRoom> {
    let IndexRead { salt: old_salt, head: old_head, bytes, .. } = read;
    let generation = objects.queue.next_sequence();
    // Who changes a key from now on names this generation; who began before is found busy below.
    packed.generation.store(generation, Ordering::SeqCst);
    let from = objects.queue.keys().instant();
    let from_before = packed.generation_from.swap(from, Ordering::SeqCst);
    let mut bitmap = Bitmap::new(objects.setup.shape.packed_blocks);
    let mut dying_since = u64::MAX;
    let mut live = Vec::new();
    for (at, control) in Controls::new(&bytes, old_salt) {
        let Control::Put(put) = control else { continue };
        let hash = put.name.hash(objects.setup.hash_seed);
        if objects.index.place_of(hash, packed.number, put.block).is_none() {
            continue;
        }
        if !bitmap.mark(put.block, objects.setup.shape.blocks(put.record_bytes())) {
            let why = "its objects overlap";
            let place = format!("{}/{}", volume.disk.place(), Packed::index_name(packed.number));
            return Err(NoRoom::Failed(StoreError::Foreign { place, why: why.to_owned() }));
        }
        dying_since = dying_since.min(objects.queue.keys().busy_since(hash).unwrap_or(u64::MAX));
        live.push(at);
    }
    // Changes on their way name the generation that was when they were staged: the last one, unless they take very long. Were
    // the older `since` kept for each of them, a busy store would never forget a tombstone.
    let since = match dying_since {
        u64::MAX => generation,
        since if since >= from_before => old_head.generation.max(packed.since.load(Ordering::SeqCst)),
        _ => packed.since.load(Ordering::SeqCst),
    };
    if objects.setup.mode == Mode::Cache {
        // What made the others void may be in memory only, on any volume.
        objects.make_durable();
    }
    let lane = packed.lane.load(Ordering::Relaxed);
    let head = IndexHead {
        store: objects.setup.store,
        file: packed.number,
        generation,
        since,
        lane,
        is_first: false,
    };
    let mut out = head.encode().to_vec();
    let mut live = live.into_iter().peekable();
    // Each of them once here, and once more at the end.
    let (mut tombstones, mut told) = (Vec::new(), HashSet::new());
    let is_needed = |victim: Victim| {
        if victim.file == packed.number {
            victim.generation >= since
        } else {
            objects.segments.is_needed(victim)
        }
    };
    let needed = |victim: Option<Victim>| victim.filter(|&victim| is_needed(victim));
    for (at, control) in Controls::new(&bytes, old_salt) {
        match control {
            Control::Put(put) if live.peek() == Some(&at) => {
                live.next();
                Control::Put(Put { victim: needed(put.victim), ..put }).encode(head.salt(), &mut out);
            }
            // It never counted, so it made nothing void.
            Control::Put(put) if objects.index.is_torn(put.sequence) => {}
            Control::Put(put) => {
                if let Some(victim) = needed(put.victim) {
                    let hash = put.name.hash(objects.setup.hash_seed);
                    let void = Tombstone { sequence: put.sequence, hash, victim, deleted_s: 0 };
                    Control::Tombstone(void).encode(head.salt(), &mut tombstones);
                }
            }
            Control::Tombstone(Tombstone { sequence, hash, victim, .. }) if is_needed(victim) => {
                if told.insert((sequence, hash, victim.file)) {
                    control.encode(head.salt(), &mut tombstones);
                }
            }
            Control::Tombstone(_) | Control::Mark { .. } => {}
        }
    }
    if !tombstones.is_empty() {
        let first_at = out.len();
        out.extend_from_slice(&tombstones);
        let apart = first_at + tombstones.len().max(TOLD_AGAIN_AFTER_BYTES as usize + tombstones.len());
        out.resize(apart.next_multiple_of(8), 0);
        out.extend_from_slice(&tombstones);
    }
    Control::Mark { durable_end: out.len() as u64 }.encode(head.salt(), &mut out);
    Counters::add(&volume.counters.index_bytes, out.len() as u64);
    replace_file(&volume.disk, &Packed::index_name(packed.number), &[&out])?;
    // Not before: others drop what voids records of this file once they are durably gone from its index.
    packed.since.store(since, Ordering::SeqCst);
    Ok((head, out.len() as u64, bitmap))
}

/// So much of a file is made free at least, one part in so many: less, and writing its index anew would cost more than what then
/// goes in; more, and objects go that are asked for.
const FREE_AT_LEAST_OF: u32 = 8;

/// Makes an eighth of a cache's file free at least, and a stretch as long as is wanted, by forgetting what nobody asked for
/// lately, and what lies in the way. Pieces of a large object that is being read go last; `sparing`: not at all, and false when
/// that leaves too little.
fn evict(
    objects: &Objects,
    volume: &Arc<Volume>,
    packed: &Arc<Packed>,
    want_blocks: u32,
    two: bool,
    sparing: bool,
) -> Result<bool, NoRoom> {
    let newcomers = two && packed.lane.load(Ordering::Relaxed) == Lane::Newcomers.code();
    let touches_min = objects.policy.touches_to_stay(newcomers);
    let blocks = objects.setup.shape.packed_blocks;
    let IndexRead { salt, bytes, .. } = index_of(objects, packed).map_err(NoRoom::Failed)?;
    let puts = || {
        Controls::new(&bytes, salt).filter_map(|(_, control)| match control {
            Control::Put(put) => Some(put),
            _ => None,
        })
    };
    let blocks_of = |put: &Put<'_>| put.block..put.block + objects.setup.shape.blocks(put.record_bytes());
    let is_read = |put: &Put<'_>| {
        objects.is_read(put)
            && objects
                .index
                .place_of(put.name.hash(objects.setup.hash_seed), packed.number, put.block)
                .is_some()
    };
    let taken: Vec<_> = puts().filter(is_read).map(|put| blocks_of(&put)).collect();
    let taken_blocks: u32 = taken.iter().map(|its| its.end - its.start).sum();
    let stretch = match stretch_beside(taken, want_blocks, blocks) {
        Some(stretch) if taken_blocks <= blocks - blocks / FREE_AT_LEAST_OF => stretch,
        _ if sparing => return Ok(false),
        _ => 0..want_blocks,
    };
    let (mut spared, mut read) = (Vec::new(), Vec::new());
    for put in puts() {
        let hash = put.name.hash(objects.setup.hash_seed);
        let its = blocks_of(&put);
        let in_the_way = its.start < stretch.end && stretch.start < its.end;
        let Some(place) = objects.index.place_of(hash, packed.number, put.block) else { continue };
        if let Some(touches_min) =
            touches_min.filter(|&least| !in_the_way && objects.index.touches(hash, place) >= least)
        {
            objects.index.untouch(hash, place, touches_min);
            spared.push(put);
        } else if !in_the_way && is_read(&put) {
            read.push(put);
        } else {
            forget(objects, volume, packed, &put, newcomers);
        }
    }
    for put in spared.into_iter().chain(read) {
        if blocks - packed.live_blocks.load(Ordering::Relaxed).min(blocks) >= blocks / FREE_AT_LEAST_OF {
            break;
        }
        forget(objects, volume, packed, &put, newcomers);
    }
    Ok(true)
}

/// So many of a file's blocks, beside those that are taken.
fn stretch_beside(mut taken: Vec<Range<u32>>, want_blocks: u32, blocks: u32) -> Option<Range<u32>> {
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

fn forget(objects: &Objects, volume: &Volume, packed: &Packed, put: &Put<'_>, newcomer: bool) {
    let hash = put.name.hash(objects.setup.hash_seed);
    let Some(place) = objects.index.place_of(hash, packed.number, put.block) else { return };
    let held = Held {
        hash,
        place,
        blocks: objects.setup.shape.blocks(put.record_bytes()),
        visible: !put.name.internal,
    };
    if !objects.remove(&held) {
        return;
    }
    if newcomer && held.visible {
        objects.policy.note_gone(hash);
    }
    Counters::add(&volume.counters.evicted, u64::from(held.visible));
    if put.kind == Kind::Alias {
        objects.apply_now(&[Change::Unlink(put.id)]);
    }
}
