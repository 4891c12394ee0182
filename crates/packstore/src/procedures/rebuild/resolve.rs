//! Of each key the newest record that is whole: it goes into the table, and its blocks count as live.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::found::Found;
use super::spill::{PARTS, Spill};
use super::{Heap, Special};
use crate::error::StoreError;
use crate::fingerprints::Location;
use crate::format::{Kind, SHARED, Superseded, Tombstone};
use crate::index::Uncertain;
use crate::index::address::Address;
use crate::locks::locked;
use crate::objects::Objects;
use crate::options::Mode;

/// Sequence numbers that an unclean stop may have used up unseen.
const SEQUENCES_LOST_MAX: u64 = 1 << 20;

/// Decides about all keys. `lost`: an index is, so that records of a store may be superseded by what is lost; a cache drops all.
///
/// The table and the counts of live blocks are filled in place: a second table would take its memory twice, and a cache answers
/// with what is known already. Everything else is returned.
///
/// # Errors
/// When what was spilled cannot be read again, or the store is being closed.
pub(super) fn resolve(
    objects: &Objects,
    heaps: Vec<Heap>,
    spill: &Spill,
    threads: usize,
    lost: bool,
) -> Result<Resolved, StoreError> {
    let mut ours = Ours::default();
    let mut internals = Vec::new();
    let mut unindexed = HashMap::new();
    let parts = (0..PARTS).map(|_| Mutex::new(Vec::new())).collect::<Vec<Mutex<Vec<Vec<Found>>>>>();
    let mut sequence_max = 0;
    for heap in heaps {
        ours.specials.extend(heap.specials);
        unindexed.extend(heap.uncertain);
        internals.extend(heap.internals);
        sequence_max = sequence_max.max(heap.sequence_max);
        for (part, found) in parts.iter().zip(heap.parts) {
            locked(part).push(found);
        }
    }
    let next_sequence = sequence_max + SEQUENCES_LOST_MAX;
    if lost && objects.setup.mode == Mode::Cache {
        return Ok(Resolved { next_sequence, ..Resolved::default() });
    }

    // Ours first: users' records count only when what they name is there.
    internals.sort_unstable_by_key(|&(id, part, found)| (id, part, Reverse(found.sequence)));
    internals.retain(|(_, _, found)| !found.is_torn());
    internals.dedup_by_key(|&mut (id, part, _)| (id, part));
    ours.learn(&internals);

    let next = AtomicUsize::new(0);
    let decide = || {
        let mut resolved = Resolved { lost, ..Resolved::default() };
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(kept) = parts.get(number) else { return Ok(resolved) };
            if objects.queue.is_closing() {
                return Err(StoreError::Closed);
            }
            let mut part = std::mem::take(&mut *locked(kept)).concat();
            spill.read(number, &mut part)?;
            resolved.part(objects, &ours, part);
        }
    };
    let mut resolved = Resolved { next_sequence, unindexed, ..Resolved::default() };
    std::thread::scope(|scope| {
        let threads = (0..threads).map(|_| scope.spawn(decide)).collect::<Vec<_>>();
        for thread in threads {
            resolved.add(thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        }
        Ok::<_, StoreError>(())
    })?;
    count_parts(objects, &ours, &internals, &mut resolved);
    Ok(resolved)
}

/// Counts pieces and shared objects that some object names.
fn count_parts(objects: &Objects, ours: &Ours, internals: &[(u64, u32, Found)], resolved: &mut Resolved) {
    for (id, found) in &ours.shared {
        if resolved.links.contains_key(id)
            && let Some(special) = ours.specials.get(&found.sequence)
        {
            resolved.owners.insert(special.id);
        }
    }
    // Some of them may be what an object consists of that no index names any more.
    let all_wanted = objects.index.is_incomplete();
    for (id, part, found) in internals {
        let wanted = all_wanted
            || if *part == SHARED { resolved.links.contains_key(id) } else { resolved.owners.contains(id) };
        if let Some(location) = found.location().filter(|_| wanted) {
            count(objects, found, location);
        }
    }
}

/// What the records of ours say: which manifests have all their pieces, which shared objects are there.
#[derive(Default)]
struct Ours {
    /// By sequence number.
    specials: HashMap<u64, Special>,
    piece_counts: HashMap<u64, u32>,
    shared: HashMap<u64, Found>,
}

impl Ours {
    fn learn(&mut self, internals: &[(u64, u32, Found)]) {
        for &(id, part, found) in internals {
            if part == SHARED {
                self.shared.insert(id, found);
            } else {
                *self.piece_counts.entry(id).or_default() += 1;
            }
        }
    }

    /// The number of the pieces of the manifest with this sequence number, when all of them are there.
    fn pieces(&self, sequence: u64) -> Option<u64> {
        let special = self.specials.get(&sequence)?;
        let pieces = self.piece_counts.get(&special.id).copied().unwrap_or(0);
        (pieces >= special.pieces).then_some(special.id)
    }

    /// Whether what a record names is there, and its number when it names anything.
    fn named(&self, found: &Found) -> Option<Option<u64>> {
        match found.kind() {
            Kind::Whole => Some(None),
            Kind::Manifest => self.pieces(found.sequence).map(Some),
            Kind::Alias => {
                let special = self.specials.get(&found.sequence)?;
                let shared = self.shared.get(&special.id)?;
                let is_whole = match shared.kind() {
                    Kind::Whole => true,
                    Kind::Manifest => self.pieces(shared.sequence).is_some(),
                    Kind::Alias => false,
                };
                is_whole.then_some(Some(special.id))
            }
        }
    }
}

/// What came out, besides the table.
#[derive(Default)]
pub(super) struct Resolved {
    /// Numbers of changes begin here.
    next_sequence: u64,
    objects: i64,
    /// How many names a shared object has.
    links: HashMap<u64, u32>,
    /// Numbers of pieces that an object has.
    owners: HashSet<u64>,
    torn: HashSet<u64>,
    /// Hash and sequence number.
    uncertain: Vec<(u64, u64)>,
    /// Records that no index record names, by sequence number.
    unindexed: HashMap<u64, Uncertain>,
    /// Sequence number, hash and file of records that get a tombstone.
    superseded: Vec<(u64, u64, u32)>,
    /// As given to [`resolve`].
    lost: bool,
}

impl Resolved {
    /// All records whose hash begins alike.
    fn part(&mut self, objects: &Objects, ours: &Ours, mut part: Vec<Found>) {
        // One that is uncertain before the tombstone that was made for what it replaced; a tombstone before what it supersedes.
        part.sort_unstable_by_key(|found| {
            (found.hash, Reverse(found.sequence), !found.is_uncertain(), found.location().is_some())
        });
        for group in part.chunk_by(|one, other| one.hash == other.hash) {
            self.group(objects, ours, group);
        }
    }

    /// All records of a hash, the newest first.
    fn group(&mut self, objects: &Objects, ours: &Ours, group: &[Found]) {
        for (at, found) in group.iter().enumerate() {
            let fate = Fate::of(objects, ours, found);
            if fate == Fate::Torn {
                self.torn.insert(found.sequence);
                continue;
            }
            // What is newer than the one that counts is torn and superseded nothing.
            if objects.setup.mode == Mode::Cache || self.lost {
                self.superseded.extend(unnamed_superseded(objects, &group[at..]));
            }
            match fate {
                Fate::Uncertain => {
                    if !found.has_expired() {
                        self.uncertain.push((found.hash, found.sequence));
                    }
                    self.superseded.extend(older_known(objects, group, found));
                }
                Fate::Counts(names) => {
                    match (found.kind(), names) {
                        (Kind::Alias, Some(id)) => *self.links.entry(id).or_default() += 1,
                        (_, Some(id)) => {
                            self.owners.insert(id);
                        }
                        _ => {}
                    }
                    if let Some(location) = found.location() {
                        count(objects, found, location);
                        self.objects += 1;
                    }
                }
                // It supersedes what is older until its own index record is dropped, which leaves a tombstone.
                Fate::Void | Fate::Torn => {}
            }
            return;
        }
    }

    fn add(&mut self, other: Self) {
        self.objects += other.objects;
        for (id, count) in other.links {
            *self.links.entry(id).or_default() += count;
        }
        self.owners.extend(other.owners);
        self.torn.extend(other.torn);
        self.uncertain.extend(other.uncertain);
        self.superseded.extend(other.superseded);
    }

    /// Gives it to the store.
    pub fn install(mut self, objects: &Objects) {
        objects.queue.set_sequence(self.next_sequence);
        objects.index.learn(self.objects, self.torn);
        if objects.index.is_incomplete() {
            objects.index.note_orphans(self.next_sequence);
        }
        objects.set_links(self.links);
        for (hash, sequence) in self.uncertain {
            if let Some(what) = self.unindexed.remove(&sequence) {
                objects.index.doubt(hash, what);
            }
        }
        // For good, as the damaged index may be rewritten before the next stop.
        let superseded = self.superseded.into_iter().filter_map(|(sequence, hash, file)| {
            let generation = objects.segments.file(file)?.generation.load(Ordering::SeqCst);
            Some(Tombstone { sequence, hash, superseded: Superseded { file, generation }, deleted_s: 0 })
        });
        let superseded = superseded.collect::<Vec<_>>();
        if !superseded.is_empty()
            && !objects.setup.read_only
            && let Err(error) = objects.queue.stage_tombstones(&superseded)
        {
            tracing::warn!(%error, "what a damaged index record made void could not be recorded again");
        }
    }
}

/// What becomes of a record when all newer ones of its key are torn.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It never counted: power took its body or what it names.
    Torn,
    /// No index names it.
    Uncertain,
    /// All that it does is supersede older ones.
    Void,
    /// It counts; the number of what it names, if anything.
    Counts(Option<u64>),
}

impl Fate {
    fn of(objects: &Objects, ours: &Ours, found: &Found) -> Self {
        if found.is_uncertain() {
            return Self::Uncertain;
        }
        if found.location().is_none() {
            return Self::Void;
        }
        if found.is_torn() {
            return Self::Torn;
        }
        match ours.named(found) {
            Some(names) if !found.has_expired() => Self::Counts(names),
            Some(_) => Self::Void,
            None if may_lack_parts(objects, found) => Self::Void,
            None if objects.setup.mode == Mode::Cache || found.is_unsynced() => Self::Torn,
            None if found.is_from_data() && !objects.index.is_incomplete() => Self::Torn,
            // Its parts were durable with it: the index record of one of them is gone since. Reading it is an error until a
            // repair has found the part, and nothing older comes back.
            None => ours
                .specials
                .get(&found.sequence)
                .map_or(Self::Torn, |special| Self::Counts(Some(special.id))),
        }
    }
}

/// Older records that an index names, each with its own number: what is uncertain may yet turn out to count.
fn older_known(objects: &Objects, group: &[Found], found: &Found) -> Vec<(u64, u64, u32)> {
    let older = group.iter().filter(|older| older.sequence < found.sequence && !older.is_uncertain());
    let named = older.filter_map(|older| {
        let file = Address::of(older.location()?, objects.setup.shape).file;
        Some((older.sequence, older.hash, file))
    });
    named.collect()
}

/// Whether parts of what a record names may be gone though it was whole: they have expired with it and were swept, or were
/// overwritten, as they are older than it. A store's record of a list of pieces was written after these were durable.
fn may_lack_parts(objects: &Objects, found: &Found) -> bool {
    found.has_expired() || objects.setup.cyclic && found.kind() == Kind::Manifest
}

/// Older records that nothing newer names as superseded: what did was lost with power, before it was durable, while something
/// newer yet was not. They must get a tombstone, or they are back when the newer one is dropped.
fn unnamed_superseded(objects: &Objects, group: &[Found]) -> Vec<(u64, u64, u32)> {
    let file =
        |found: &Found| found.location().map(|location| Address::of(location, objects.setup.shape).file);
    let older = group.iter().enumerate().skip(1).filter(|(_, older)| older.sequence < group[0].sequence);
    let unindexed = older.filter_map(|(at, older)| {
        let file = file(older)?;
        let recorded = group[..at].iter().any(|newer| newer.superseded == file);
        (!recorded).then_some((older.sequence, older.hash, file))
    });
    unindexed.collect()
}

fn count(objects: &Objects, found: &Found, location: Location) {
    objects.index.insert_found(found.hash, location);
    if let Some(segment) = objects.segments.segment_at(location) {
        segment.gain(found.blocks);
    }
}
