//! Learns from the index files what is there, after a stop that was not clean.
//!
//! ```text
//! index files --> records by hash --> of each key the newest that is whole --> table, live blocks, links
//! ```
//!
//! Records written after an index file's last mark may have lost their bodies: these are read and compared. What is not
//! whole never counted; what it would have replaced is still there. 32 bytes of memory for each record while it lasts.

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use crate::bitmap::Bitmap;
use crate::core::{Core, Uncertain};
use crate::error::StoreError;
use crate::format::{
    Control, Controls, KEY_BYTES_MAX, Kind, META_BYTES_MAX, Name, Put, RECORD_HEAD_BYTES, RecordHead, SHARED,
    Victim, crc, u32_at, u64_at,
};
use crate::keys::locked;
use crate::options::Mode;
use crate::packed::Packed;
use crate::refill::{IndexRead, index_as_it_is};
use crate::signatures::Place;
use crate::spot::{Spot, place};

/// One record of an index, made small.
#[derive(Clone, Copy)]
struct Found {
    hash: u64,
    sequence: u64,
    /// `None`: a tombstone.
    place: Option<Place>,
    blocks: u32,
    /// The file whose record it makes void, as it says itself.
    victim: u32,
    kind: Kind,
    /// Its body may have been lost.
    suspect: bool,
    /// Found in the body file alone: all that is sure is that older ones are void.
    uncertain: bool,
}

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
}

impl Heap {
    fn lens(&self) -> Vec<usize> {
        self.parts.iter().map(Vec::len).chain([self.internals.len()]).collect()
    }

    fn cut_to(&mut self, lens: &[usize]) {
        self.parts.iter_mut().zip(lens).for_each(|(part, &len)| part.truncate(len));
        self.internals.truncate(lens[self.parts.len()]);
    }
}

const PARTS: usize = 256;
/// A body file is looked through in such steps.
const SEEK_BYTES: usize = 1 << 20;
/// Sequence numbers that an unclean stop may have used up unseen.
const SEQUENCES_LOST_MAX: u64 = 1 << 20;

/// Fills the table.
pub(crate) fn rebuild(core: &Core) -> Result<(), StoreError> {
    let files = core.all_files();
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get().min(8));
    let heaps = Mutex::new(Vec::new());
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads.min(files.len()) {
            scope.spawn(|| {
                let mut heap = Heap { parts: (0..PARTS).map(|_| Vec::new()).collect(), ..Heap::default() };
                while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if core.closing.load(Ordering::Relaxed) {
                        break;
                    }
                    if let Err(error) = read_file(core, file, &mut heap) {
                        // It costs its objects; it is never written again, so that it can be mended.
                        tracing::error!(%error, "a packed file's index cannot be read");
                        core.damaged_files.fetch_add(1, Ordering::Relaxed);
                        file.filling.store(true, Ordering::SeqCst);
                    }
                }
                locked(&heaps).push(heap);
            });
        }
    });
    if core.closing.load(Ordering::Relaxed) {
        return Err(StoreError::Closed);
    }
    let heaps = heaps.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    resolve(core, heaps, threads);
    Ok(())
}

fn read_file(core: &Core, file: &Packed, heap: &mut Heap) -> Result<(), StoreError> {
    let mut read = index_as_it_is(core, file)?;
    file.generation.store(read.head.generation, Ordering::SeqCst);
    file.since.store(read.head.since, Ordering::SeqCst);
    file.lane.store(read.head.lane, Ordering::Relaxed);
    heap.sequence_max = heap.sequence_max.max(read.head.generation);
    let before = heap.lens();
    let mut learned = learn(core, file, &read, heap);
    if !learned.damaged.is_empty() {
        // Seldom, so that it is worth to read all once more then.
        heap.cut_to(&before);
        read.mend();
        learned = learn(core, file, &read, heap);
    }
    let IndexRead { head, bytes, mended } = read;
    let Learned { durable_end, suspects, damaged } = learned;
    if !mended.is_empty() {
        tracing::warn!(file = file.number, mended = mended.len(), "flipped bits of an index were put right");
        core.damaged_controls.fetch_add(mended.len() as u64, Ordering::Relaxed);
    }
    let damaged = damaged.iter().filter(|&&at| at < durable_end).count();
    if damaged > 0 {
        tracing::error!(
            file = file.number,
            damaged,
            "control blocks fail their checksums; run `crumb pack check`"
        );
        core.damaged_controls.fetch_add(damaged as u64, Ordering::Relaxed);
        seek_untold(core, file, &bytes, head.salt(), heap)?;
    }
    for (at, index, part) in suspects {
        if at >= durable_end {
            match part {
                None => heap.internals[index].2.suspect = true,
                Some(part) => heap.parts[part][index].suspect = true,
            }
        }
    }
    Ok(())
}

/// What an index told.
struct Learned {
    durable_end: u64,
    /// Offset in the index, and where in the heap: in which part, or among ours.
    suspects: Vec<(u64, usize, Option<usize>)>,
    damaged: Vec<u64>,
}

fn learn(core: &Core, file: &Packed, read: &IndexRead, heap: &mut Heap) -> Learned {
    let mut durable_end = 0;
    let mut suspects: Vec<(u64, usize, Option<usize>)> = Vec::new();
    let mut controls = Controls::new(&read.bytes, read.head.salt());
    for (at, control) in controls.by_ref() {
        match control {
            Control::Mark { durable_end: end } => {
                durable_end = durable_end.max(end);
                suspects.retain(|suspect| suspect.0 >= durable_end);
            }
            Control::Tombstone { sequence, hash, victim } => {
                heap.sequence_max = heap.sequence_max.max(sequence);
                let found = Found {
                    hash,
                    sequence,
                    place: None,
                    blocks: 0,
                    victim: victim.file,
                    kind: Kind::Whole,
                    suspect: false,
                    uncertain: false,
                };
                heap.parts[part_of(hash)].push(found);
            }
            Control::Put(put) => {
                let Some(found) = found_of(core, file, &put) else { continue };
                heap.sequence_max = heap.sequence_max.max(put.sequence);
                if put.kind != Kind::Whole {
                    heap.specials.insert(put.sequence, Special { id: put.id, pieces: put.pieces() });
                }
                if put.name.internal {
                    if put.name.key.len() == 12 {
                        suspects.push((at, heap.internals.len(), None));
                        let (id, part) = (u64_at(put.name.key, 0), u32_at(put.name.key, 8));
                        heap.internals.push((id, part, found));
                    }
                } else {
                    let part = part_of(found.hash);
                    suspects.push((at, heap.parts[part].len(), Some(part)));
                    heap.parts[part].push(found);
                }
            }
        }
    }
    Learned { durable_end, suspects, damaged: controls.damaged }
}

/// Records of a body file that no control block tells of: one was damaged, or they were void long ago. Which of the two is not
/// known, so they are not served; but what they replaced must not come back.
fn seek_untold(
    core: &Core,
    file: &Packed,
    index: &[u8],
    salt: u32,
    heap: &mut Heap,
) -> Result<(), StoreError> {
    let mut told = Bitmap::new(core.shape.packed_blocks);
    for (_, control) in Controls::new(index, salt) {
        if let Control::Put(put) = control {
            told.mark(put.block, core.shape.blocks(put.record_bytes()));
        }
    }
    let (block_bytes, body_salt) = (core.shape.block_bytes as usize, core.body_salt(file.number));
    let body = file.body()?;
    // As much as the longest head, key and attributes, so that each is whole in one of two reads.
    let head_bytes_max = RECORD_HEAD_BYTES + KEY_BYTES_MAX + META_BYTES_MAX;
    let step_blocks = (SEEK_BYTES / block_bytes) as u32;
    let mut block = 0;
    while block < core.shape.packed_blocks {
        let mut bytes = vec![0; step_blocks as usize * block_bytes + head_bytes_max];
        let read = body.read_at(&mut bytes, core.shape.offset(block))?;
        bytes.truncate(read);
        for step in 0..step_blocks.min(core.shape.packed_blocks - block) {
            let Some(from) = bytes.get(step as usize * block_bytes..) else { break };
            let at = block + step;
            if told.is_taken(at) {
                continue;
            }
            let Some(head) = RecordHead::decode(from, body_salt).filter(|head| !head.internal) else {
                continue;
            };
            let key = &from[RECORD_HEAD_BYTES..][..head.key_len as usize];
            let hash = Name::of(key).hash(core.hash_seed);
            heap.sequence_max = heap.sequence_max.max(head.sequence);
            let found = Found {
                hash,
                sequence: head.sequence,
                place: place(file.number, at, core.shape.blocks(head.record_bytes()), core.shape),
                blocks: 0,
                victim: u32::MAX,
                kind: head.kind,
                suspect: false,
                uncertain: true,
            };
            heap.parts[part_of(hash)].push(found);
            let uncertain = Uncertain { key: key.to_vec(), file: file.number, block: at };
            heap.uncertain.insert(head.sequence, uncertain);
        }
        block += step_blocks;
    }
    Ok(())
}

fn part_of(hash: u64) -> usize {
    (hash >> 56) as usize
}

fn found_of(core: &Core, file: &Packed, put: &Put<'_>) -> Option<Found> {
    let blocks = core.shape.blocks(put.record_bytes());
    // Beyond the file's end: no record of ours.
    if put.block.checked_add(blocks)? > core.shape.packed_blocks {
        return None;
    }
    Some(Found {
        hash: put.name.hash(core.hash_seed),
        sequence: put.sequence,
        place: Some(place(file.number, put.block, blocks, core.shape)?),
        blocks,
        victim: put.victim.map_or(u32::MAX, |victim| victim.file),
        kind: put.kind,
        suspect: false,
        uncertain: false,
    })
}

/// Whether a record's body is the one that its control block was written for.
fn is_whole(core: &Core, found: &Found) -> bool {
    let Some(place) = found.place.filter(|_| found.suspect) else { return true };
    let spot = Spot::of(place, core.shape);
    let Some(file) = core.file(spot.file) else { return false };
    let mut bytes = vec![0; found.blocks as usize * core.shape.block_bytes as usize];
    let offset = core.shape.offset(spot.block);
    let Ok(read) = file.body().and_then(|body| body.read_at(&mut bytes, offset)) else { return false };
    let Some(head) = RecordHead::decode(&bytes[..read], core.body_salt(spot.file)) else { return false };
    let start = head.record_bytes() - head.body_len as usize;
    let body = bytes[..read].get(start..head.record_bytes());
    head.sequence == found.sequence && body.is_some_and(|body| crc(body) == head.body_crc)
}

fn resolve(core: &Core, heaps: Vec<Heap>, threads: usize) {
    let mut specials = HashMap::new();
    let mut internals = Vec::new();
    let mut untold = HashMap::new();
    let mut parts: Vec<Vec<Vec<Found>>> = (0..PARTS).map(|_| Vec::new()).collect();
    let mut sequence_max = 0;
    for heap in heaps {
        specials.extend(heap.specials);
        untold.extend(heap.uncertain);
        internals.extend(heap.internals);
        sequence_max = sequence_max.max(heap.sequence_max);
        for (part, found) in parts.iter_mut().zip(heap.parts) {
            part.push(found);
        }
    }
    core.sequence.store(sequence_max + SEQUENCES_LOST_MAX, Ordering::SeqCst);

    // Ours first: users' records count only when what they name is there.
    internals.sort_unstable_by_key(|&(id, part, found)| (id, part, std::cmp::Reverse(found.sequence)));
    internals.retain(|(_, _, found)| is_whole(core, found));
    internals.dedup_by_key(|&mut (id, part, _)| (id, part));
    let mut piece_counts: HashMap<u64, u32> = HashMap::new();
    let mut shared: HashMap<u64, Found> = HashMap::new();
    for &(id, part, found) in &internals {
        if part == SHARED {
            shared.insert(id, found);
        } else {
            *piece_counts.entry(id).or_default() += 1;
        }
    }
    let has_pieces = |sequence: u64| {
        let special = specials.get(&sequence)?;
        (piece_counts.get(&special.id).copied().unwrap_or(0) >= special.pieces).then_some(special.id)
    };
    let shared_is_whole = |found: &Found| {
        found.kind == Kind::Whole || (found.kind == Kind::Manifest && has_pieces(found.sequence).is_some())
    };

    let outcome = Mutex::new((HashMap::<u64, u32>::new(), HashSet::<u64>::new(), HashSet::<u64>::new()));
    let doubts = Mutex::new((Vec::<(u64, u64)>::new(), Vec::<(u64, u64, u32)>::new()));
    let objects = AtomicI64::new(0);
    let parts = parts.into_iter().map(|part| Mutex::new(Some(part))).collect::<Vec<_>>();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let (mut links, mut owners, mut torn) =
                    (HashMap::<u64, u32>::new(), HashSet::new(), HashSet::new());
                let (mut uncertain, mut voids) = (Vec::new(), Vec::new());
                while let Some(part) = parts.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let mut part = locked(part).take().unwrap_or_default().concat();
                    // One that is uncertain before the tombstone that was made for what it replaced; a tombstone before what it voids.
                    part.sort_unstable_by_key(|found| {
                        (
                            found.hash,
                            std::cmp::Reverse(found.sequence),
                            !found.uncertain,
                            found.place.is_some(),
                        )
                    });
                    for group in part.chunk_by(|one, other| one.hash == other.hash) {
                        // What is newer than the one that counts is torn and made nothing void.
                        let mut void_below = |at: usize| {
                            if core.mode == Mode::Cache {
                                voids.extend(untold_voids(core, &group[at..]));
                            }
                        };
                        for (at, found) in group.iter().enumerate() {
                            let Some(place) = found.place else {
                                void_below(at);
                                break;
                            };
                            if found.uncertain {
                                void_below(at);
                                uncertain.push((found.hash, found.sequence));
                                let older = group.iter().filter(|older| older.sequence < found.sequence);
                                voids.extend(older.filter_map(|older| {
                                    let file =
                                        Spot::of(older.place.filter(|_| !older.uncertain)?, core.shape).file;
                                    Some((found.sequence, found.hash, file))
                                }));
                                break;
                            }
                            let names = match found.kind {
                                Kind::Whole => Some(None),
                                Kind::Manifest => has_pieces(found.sequence).map(Some),
                                Kind::Alias => specials
                                    .get(&found.sequence)
                                    .filter(|special| shared.get(&special.id).is_some_and(shared_is_whole))
                                    .map(|special| Some(special.id)),
                            };
                            let Some(names) = names.filter(|_| is_whole(core, found)) else {
                                torn.insert(found.sequence);
                                continue;
                            };
                            match (found.kind, names) {
                                (Kind::Alias, Some(id)) => *links.entry(id).or_default() += 1,
                                (_, Some(id)) => {
                                    owners.insert(id);
                                }
                                _ => {}
                            }
                            void_below(at);
                            count(core, found, place);
                            objects.fetch_add(1, Ordering::Relaxed);
                            break;
                        }
                    }
                }
                let mut outcome = locked(&outcome);
                for (id, count) in links {
                    *outcome.0.entry(id).or_default() += count;
                }
                outcome.1.extend(owners);
                outcome.2.extend(torn);
                locked(&doubts).0.extend(uncertain);
                locked(&doubts).1.extend(voids);
            });
        }
    });
    let (links, mut owners, torn) = outcome.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    for (id, found) in &shared {
        if links.contains_key(id)
            && let Some(special) = specials.get(&found.sequence)
        {
            owners.insert(special.id);
        }
    }
    for (id, part, found) in &internals {
        let wanted = if *part == SHARED { links.contains_key(id) } else { owners.contains(id) };
        if let Some(place) = found.place.filter(|_| wanted) {
            count(core, found, place);
        }
    }
    core.objects.store(objects.into_inner(), Ordering::Relaxed);
    *locked(&core.links) = links;
    *locked(&core.torn) = torn;
    let (uncertain, voids) = doubts.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    for (hash, sequence) in uncertain {
        if let Some(what) = untold.remove(&sequence) {
            locked(&core.uncertain).insert(hash, what);
            core.is_uncertain.store(true, Ordering::Release);
        }
    }
    // For good, as the damaged index may be written anew before the next stop.
    let voids = voids.into_iter().filter_map(|(sequence, hash, file)| {
        let generation = core.file(file)?.generation.load(Ordering::SeqCst);
        Some((sequence, hash, Victim { file, generation }))
    });
    let voids = voids.collect::<Vec<_>>();
    if !voids.is_empty()
        && !core.read_only
        && let Err(error) = core.stage_voids(&voids)
    {
        tracing::warn!(%error, "what a damaged control block made void could not be told again");
    }
}

/// Older records that nothing newer names as its victim: what did was lost with power, before it was durable, while something
/// newer yet was not. They must be made void by name, or they are back when the newer one is dropped.
fn untold_voids(core: &Core, group: &[Found]) -> Vec<(u64, u64, u32)> {
    let file = |found: &Found| found.place.map(|place| Spot::of(place, core.shape).file);
    let older = group.iter().enumerate().skip(1).filter(|(_, older)| older.sequence < group[0].sequence);
    let untold = older.filter_map(|(at, older)| {
        let file = file(older)?;
        let told = group[..at].iter().any(|newer| newer.victim == file);
        (!told).then_some((older.sequence, older.hash, file))
    });
    untold.collect()
}

fn count(core: &Core, found: &Found, place: Place) {
    core.table.insert(found.hash, place);
    if let Some(file) = core.file(Spot::of(place, core.shape).file) {
        file.gain(found.blocks);
    }
}
