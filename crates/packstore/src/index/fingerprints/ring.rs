//! One table of buckets: many readers, one writer at a time (the caller's lock).
//!
//! Generic in its atomic word, so that a model checker can try all orders of its loads and stores.

use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};

use super::Location;

pub(super) const SLOTS_PER_BUCKET: usize = 8;

/// One atomic word of a slot.
pub(super) trait Word {
    fn new(value: u64) -> Self;
    fn load(&self) -> u64;
    fn store(&self, value: u64);
}

impl Word for AtomicU64 {
    fn new(value: u64) -> Self {
        Self::new(value)
    }

    /// Acquire: what the object's writer did before it noted the place is seen by who finds it.
    fn load(&self) -> u64 {
        self.load(Ordering::Acquire)
    }

    fn store(&self, value: u64) {
        self.store(value, Ordering::Release);
    }
}

/// What a slot must hold to look like the object searched for: its tag, in place.
#[derive(Clone, Copy)]
pub(super) struct Want(u64);

impl Want {
    pub(super) fn new(hash: u64) -> Self {
        let tag = (hash & (FULL_TAG >> PLACE_BITS)) << PLACE_BITS;
        // A tag of zeros says "empty".
        Self(if tag & TAG == 0 { tag | (1 << PLACE_BITS) } else { tag })
    }

    fn is_in(self, slot: usize, word: u64) -> bool {
        (word ^ self.0) & tag_of(slot) == 0
    }

    fn at(self, slot: usize, location: Location) -> u64 {
        (self.0 & tag_of(slot)) | location.number()
    }
}

#[repr(align(64))]
pub(super) struct Bucket<W>([W; SLOTS_PER_BUCKET]);

pub(super) struct Ring<W> {
    buckets: Box<[Bucket<W>]>,
    /// How often the object in each slot was asked for, two bits each; none where nobody wants to know.
    pub(super) touches: Box<[AtomicU16]>,
}

impl<W: Word> Ring<W> {
    /// An empty ring.
    pub(super) fn new(buckets: usize) -> Self {
        Self::of((0..buckets).map(|_| [0; SLOTS_PER_BUCKET]))
    }

    /// A ring of words that [`Ring::words`] gave.
    pub(super) fn of(buckets: impl Iterator<Item = [u64; SLOTS_PER_BUCKET]>) -> Self {
        let buckets = buckets.map(|words| Bucket(words.map(W::new))).collect::<Box<[_]>>();
        assert!(!buckets.is_empty(), "a ring has a bucket");
        Self { buckets, touches: Box::default() }
    }

    pub(super) fn buckets(&self) -> usize {
        self.buckets.len()
    }

    /// Objects above which a search gets long.
    pub(super) fn objects_max(&self) -> usize {
        self.buckets.len() * SLOTS_PER_BUCKET * 15 / 16
    }

    pub(super) fn memory_bytes(&self) -> usize {
        size_of_val(&*self.buckets) + size_of_val(&*self.touches)
    }

    /// All words as they are.
    pub(super) fn words(&self) -> impl Iterator<Item = u64> {
        self.buckets.iter().flat_map(|bucket| bucket.0.iter().map(Word::load))
    }

    pub(super) fn probe(&self, within: u64, want: Want) -> Probe<'_, W> {
        let mut probe = Probe {
            ring: self,
            want,
            within,
            step: 0,
            goes_on: false,
            words: [0; SLOTS_PER_BUCKET],
            matches: 0,
        };
        probe.look();
        probe
    }

    /// False when none of the buckets that the object may lie in has room.
    pub(super) fn insert(&self, within: u64, want: Want, location: Location) -> bool {
        let empty = |step| self.step(within, step).0.iter().filter(|word| is_empty(word.load())).count();
        // The emptier of two keeps loads so even that hardly one object in a hundred must go further.
        let first = match (empty(0), empty(1)) {
            (0, 0) => 2,
            (here, there) => usize::from(there > here),
        };
        let has_room = |&step: &usize| step < 2 || empty(step) > 0;
        let Some(found) = (first..STEPS_MAX).find(has_room) else { return false };
        let bucket = self.step(within, found);
        // Counted first: who finds it is there later must find the way.
        for word in self.passed(within, found) {
            let value = word.load();
            if value < PASSED_MANY {
                word.store(value + PASSED_ONE);
            }
        }
        // The last slots first: slot 0 has the shorter tag.
        let slot = (0..SLOTS_PER_BUCKET).rev().find(|&slot| is_empty(bucket.0[slot].load()));
        let slot = slot.expect("only one writes at a time");
        let word = &bucket.0[slot];
        let count = if slot == 0 { word.load() & PASSED } else { 0 };
        self.untouch(self.bucket(within, found), slot, u16::MAX);
        word.store(count | want.at(slot, location));
        true
    }

    /// The words that count an object which lies this many steps from its home.
    fn passed(&self, within: u64, step: usize) -> impl Iterator<Item = &W> {
        (0..step)
            .filter(move |&passed| step > 1 && passed != 1)
            .map(move |passed| &self.step(within, passed).0[0])
    }

    pub(super) fn replace(&self, within: u64, want: Want, old: Location, new: Location) -> bool {
        let Some((_, bucket, slot)) = self.entry(within, want, old) else { return false };
        let word = &bucket.0[slot];
        word.store((word.load() & !PLACE) | new.number());
        true
    }

    pub(super) fn remove(&self, within: u64, want: Want, location: Location) -> bool {
        let Some((step, bucket, slot)) = self.entry(within, want, location) else { return false };
        let word = &bucket.0[slot];
        word.store(if slot == 0 { word.load() & PASSED } else { 0 });
        for word in self.passed(within, step) {
            let value = word.load();
            // Nothing to count down only in a table whose snapshot was forged.
            if (PASSED_ONE..PASSED_MANY).contains(&value) {
                word.store(value - PASSED_ONE);
            }
        }
        true
    }

    /// Returns how many it forgot.
    pub(super) fn retain(&self, keep: &impl Fn(Location) -> bool) -> usize {
        let mut gone = 0;
        for bucket in &self.buckets {
            for (slot, word) in bucket.0.iter().enumerate() {
                let value = word.load();
                if !is_empty(value) && !keep(Location(value & PLACE)) {
                    word.store(if slot == 0 { value & PASSED } else { 0 });
                    gone += 1;
                }
            }
        }
        gone
    }

    /// The slot that holds the object, and how many steps from its home. For the writer; others may miss it.
    pub(super) fn entry(
        &self,
        within: u64,
        want: Want,
        location: Location,
    ) -> Option<(usize, &Bucket<W>, usize)> {
        let mut goes_on = false;
        for step in 0..STEPS_MAX {
            let bucket = self.step(within, step);
            let here = |&slot: &usize| {
                let word = bucket.0[slot].load();
                want.is_in(slot, word) && word & PLACE == location.number()
            };
            if let Some(slot) = (0..SLOTS_PER_BUCKET).find(here) {
                return Some((step, bucket, slot));
            }
            if step != 1 {
                goes_on = bucket.0[0].load() >= PASSED_ONE;
            }
            if step > 0 && !goes_on {
                break;
            }
        }
        None
    }

    /// The buckets that an object may lie in, the first of which is its home.
    fn step(&self, within: u64, step: usize) -> &Bucket<W> {
        &self.buckets[self.bucket(within, step)]
    }

    pub(super) fn bucket(&self, within: u64, step: usize) -> usize {
        let drawn = match step {
            0 => within,
            _ => within.rotate_left(11 * step as u32).wrapping_mul(0x9e37_79b9_7f4a_7c15),
        };
        ((u128::from(drawn) * self.buckets.len() as u128) >> 64) as usize
    }
}

/// A reader's way from bucket to bucket.
pub(super) struct Probe<'a, W> {
    ring: &'a Ring<W>,
    want: Want,
    within: u64,
    step: usize,
    goes_on: bool,
    words: [u64; SLOTS_PER_BUCKET],
    /// A bit for each slot of the bucket that looks right and was not given out.
    matches: u32,
}

impl<W: Word> Probe<'_, W> {
    fn look(&mut self) {
        let bucket = self.ring.step(self.within, self.step);
        self.matches = 0;
        for (slot, word) in bucket.0.iter().enumerate() {
            self.words[slot] = word.load();
            self.matches |= u32::from(self.want.is_in(slot, self.words[slot])) << slot;
        }
        if self.step != 1 {
            self.goes_on = self.words[0] >= PASSED_ONE;
        }
    }

    pub(super) fn next(&mut self) -> Option<Location> {
        loop {
            if self.matches != 0 {
                let slot = self.matches.trailing_zeros() as usize;
                self.matches &= self.matches - 1;
                return Some(Location(self.words[slot] & PLACE));
            }
            self.step += 1;
            if self.step > 1 && !self.goes_on || self.step >= STEPS_MAX {
                // Asked again it says so again.
                self.step = STEPS_MAX;
                return None;
            }
            self.look();
        }
    }
}

pub(super) fn is_empty(word: u64) -> bool {
    word & TAG == 0
}

fn tag_of(slot: usize) -> u64 {
    if slot == 0 { TAG } else { FULL_TAG }
}

/// An object that finds no room so far goes to the next ring; at the loads we allow none does.
const STEPS_MAX: usize = 64;
const PLACE_BITS: u32 = 40;
const PLACE: u64 = Location::END - 1;
/// The bits of a tag that every slot keeps; never all zeros in one that is not empty.
const TAG: u64 = 0xf_ffff << PLACE_BITS;
const FULL_TAG: u64 = !PLACE;
/// In slot 0, the count of objects that passed the bucket.
const PASSED: u64 = 0xf << 60;
const PASSED_ONE: u64 = 1 << 60;
/// From here on it is not counted any more, up or down.
const PASSED_MANY: u64 = PASSED;
