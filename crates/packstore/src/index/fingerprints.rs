//! Answers from memory whether an object is stored and where, so that a miss costs no disk access. (KOTETU's authors call
//! the fingerprints signatures.)
//!
//! ```text
//! hash 64 b   | shard | bucket within the shard's ring ...        | tag 24 b |
//! bucket 64 B | slot 0 | slot 1 | ... | slot 7 |       one line of the processor's cache
//! slot 64 b   | tag 24 b | place 40 b |                a tag of zeros: empty
//! slot 0      | passed 4 b | tag 20 b | place 40 b |
//! ```
//!
//! An object lies in one of two buckets given by its hash, whichever was emptier: at 90% load both are full for one in
//! a hundred (of a table turned over many times, one in four), which goes to a third, or fourth. `passed` counts those at their first bucket (and at each from the third
//! on that they passed; 15: too many to count, for good); a search goes beyond the second while it is not zero. So
//! nothing ever moves, deleting leaves no tombstone, and a reader needs no lock: each slot is one atomic word. Writers
//! take turns shard by shard. A shard that fills up gets a further ring of buckets; searches then look into each.
//!
//! Always holds: an object that is there during a whole search is found by it, whatever others write meanwhile, since
//! the buckets that it passed count it for as long as it is there. No two objects have one place.
//! Not here: keys. Two of them may look the same (one search in 200,000 finds a stranger), so the caller compares the
//! key that lies at the place.
//! Compare: Bronson and Shi, "Open-sourcing F14", 2019, for counting what overflowed.

mod ring;
mod snapshot;
#[cfg(test)]
mod tests;
mod touches;

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use ring::{Ring, SLOTS_PER_BUCKET, Want};

/// Where an object lies, in units that its owner chooses: 40 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Location(u64);

impl Location {
    /// The first number that is no place.
    pub const END: u64 = 1 << 40;

    /// The place of this number; `None` from [`Location::END`] on.
    pub fn new(number: u64) -> Option<Self> {
        (number < Self::END).then_some(Self(number))
    }

    /// Its number.
    pub fn number(self) -> u64 {
        self.0
    }
}

/// The table: hashes of keys to places. Shared between threads.
pub struct FingerprintIndex {
    /// A power of two of them, chosen by the first bits of a hash.
    shards: Box<[Shard]>,
    /// Touches too.
    counts: bool,
}

/// What one lock guards for writers. Small, so that all shards stay in the processor's nearest cache.
struct Shard {
    first: Ring<AtomicU64>,
    further: OnceLock<Box<FurtherRings>>,
    /// Objects in each ring.
    used: Mutex<Box<[usize; RINGS_MAX]>>,
}

type FurtherRings = [OnceLock<Ring<AtomicU64>>; RINGS_MAX - 1];

impl FingerprintIndex {
    /// A table for as many objects at 90% load: 8.9 bytes each. It takes more of them too, ring by ring, slower with each.
    pub fn with_capacity(objects: usize) -> Self {
        let shards = (objects / SHARD_OBJECTS).next_power_of_two().min(SHARDS_MAX);
        let slots = objects.div_ceil(shards) * LOAD_OF.1 / LOAD_OF.0;
        let buckets = slots.div_ceil(SLOTS_PER_BUCKET).max(1);
        Self { shards: (0..shards).map(|_| Shard::new(buckets)).collect(), counts: false }
    }

    /// Places of all objects that look like this one: all whose hash is the same, rarely one more. Waits for nobody.
    pub fn find(&self, hash: u64) -> Candidates<'_> {
        let want = Want::new(hash);
        let (shard, within) = self.shard(hash);
        let rings = shard.further.get().map_or(&[][..], |further| &further[..]);
        Candidates { rings, probe: Some(shard.first.probe(within, want)), within, want }
    }

    /// Notes an object. Its place must be nobody else's.
    ///
    /// # Panics
    /// When there are more objects than memory could hold.
    pub fn insert(&self, hash: u64, location: Location) {
        let want = Want::new(hash);
        let (shard, within) = self.shard(hash);
        let mut used = shard.lock();
        let mut buckets = 0_usize;
        for (number, used) in used.iter_mut().enumerate() {
            let more = if number < 8 { buckets.div_ceil(2) } else { buckets };
            let ring = shard.ring(number, || {
                let mut ring = Ring::new(more);
                if self.counts {
                    ring.count_touches();
                }
                ring
            });
            buckets += ring.buckets();
            if *used < ring.objects_max() && ring.insert(within, want, location) {
                *used += 1;
                return;
            }
        }
        panic!("{buckets} buckets of one shard are full: more objects than memory could hold");
    }

    /// The object lies elsewhere now: one atomic step. False, and nothing done, when it was not at `old`.
    pub fn replace(&self, hash: u64, old: Location, new: Location) -> bool {
        let want = Want::new(hash);
        let (shard, within) = self.shard(hash);
        let _turn = shard.lock();
        shard.rings().any(|ring| ring.replace(within, want, old, new))
    }

    /// Forgets an object. False when it was not at `place`.
    pub fn remove(&self, hash: u64, location: Location) -> bool {
        let want = Want::new(hash);
        let (shard, within) = self.shard(hash);
        let mut used = shard.lock();
        let entry = shard.rings().zip(used.iter_mut()).find(|(ring, _)| ring.remove(within, want, location));
        entry.map(|(_, used)| *used -= 1).is_some()
    }

    /// Forgets all objects at places that are not to be kept, as when a volume vanished; returns how many. Whom they had
    /// passed cannot be known any more, so that searches nearby stay longer than they need until the table is rebuilt.
    pub fn retain(&self, keep: impl Fn(Location) -> bool) -> usize {
        let mut forgotten = 0;
        for shard in &self.shards {
            let mut used = shard.lock();
            for (ring, used) in shard.rings().zip(used.iter_mut()) {
                let gone = ring.retain(&keep);
                *used -= gone;
                forgotten += gone;
            }
        }
        forgotten
    }

    /// Objects that are there.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().iter().sum::<usize>()).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Memory it takes, in total.
    pub fn memory_bytes(&self) -> usize {
        let rings = self.shards.iter().flat_map(Shard::rings).map(Ring::memory_bytes).sum::<usize>();
        rings + size_of_val(&*self.shards) + self.shards.len() * size_of::<[usize; RINGS_MAX]>()
    }

    /// Whether more objects came than the capacity allowed for: each search then looks into several rings, and a table
    /// rebuilt from the index would be faster.
    pub fn outgrown(&self) -> bool {
        self.shards.iter().filter(|shard| shard.rings().nth(1).is_some()).count() * 10 > self.shards.len()
    }

    /// The shard of a hash, and the rest of the hash that chooses the bucket.
    fn shard(&self, hash: u64) -> (&Shard, u64) {
        let bits = self.shards.len().trailing_zeros();
        // Two shifts: shifting by 64 at once is an error where there is one shard.
        let shard = ((hash >> 1) >> (63 - bits)) as usize;
        (&self.shards[shard], hash << bits)
    }
}

impl fmt::Debug for FingerprintIndex {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Signatures").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl Shard {
    fn new(buckets: usize) -> Self {
        Self::of([Ring::new(buckets)], [0; RINGS_MAX])
    }

    /// `rings`: at least one.
    fn of(rings: impl IntoIterator<Item = Ring<AtomicU64>>, used: [usize; RINGS_MAX]) -> Self {
        let mut rings = rings.into_iter();
        let first = rings.next().expect("a shard has a ring");
        let shard = Self { first, further: OnceLock::new(), used: Mutex::new(Box::new(used)) };
        for (number, ring) in rings.enumerate() {
            shard.ring(number + 1, || ring);
        }
        shard
    }

    /// The ring of this number, made if it is not there.
    fn ring(&self, number: usize, make: impl FnOnce() -> Ring<AtomicU64>) -> &Ring<AtomicU64> {
        match number {
            0 => &self.first,
            _ => self.further.get_or_init(|| Box::new([const { OnceLock::new() }; RINGS_MAX - 1]))
                [number - 1]
                .get_or_init(make),
        }
    }

    fn rings(&self) -> impl Iterator<Item = &Ring<AtomicU64>> {
        let further =
            self.further.get().into_iter().flat_map(|further| further.iter().map_while(OnceLock::get));
        std::iter::once(&self.first).chain(further)
    }

    fn rings_mut(&mut self) -> impl Iterator<Item = &mut Ring<AtomicU64>> {
        let further = self.further.get_mut().into_iter();
        let further = further.flat_map(|further| further.iter_mut().map_while(OnceLock::get_mut));
        std::iter::once(&mut self.first).chain(further)
    }

    /// A writer that panicked left each word whole, and the counts before them; there is nothing to repair.
    fn lock(&self) -> MutexGuard<'_, Box<[usize; RINGS_MAX]>> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Places of objects that look like the one searched for.
pub struct Candidates<'a> {
    rings: &'a [OnceLock<Ring<AtomicU64>>],
    probe: Option<ring::Probe<'a, AtomicU64>>,
    within: u64,
    want: Want,
}

impl Iterator for Candidates<'_> {
    type Item = Location;

    fn next(&mut self) -> Option<Location> {
        while let Some(probe) = &mut self.probe {
            if let Some(location) = probe.next() {
                return Some(location);
            }
            let (first, rest) = self.rings.split_first()?;
            self.rings = rest;
            self.probe = first.get().map(|ring| ring.probe(self.within, self.want));
        }
        None
    }
}

/// Enough for two million times the capacity.
const RINGS_MAX: usize = 24;
/// Enough that 16 writers seldom meet.
const SHARDS_MAX: usize = 256;
/// A shard's load then differs from the others' by about a percent.
const SHARD_OBJECTS: usize = 16_384;
/// 90%: a search for what is not there then looks at 2.1 buckets; at 2.9 after many turnovers, and no more.
const LOAD_OF: (usize, usize) = (9, 10);
