//! How often objects were asked for since the hand last came by, up to three times: two bits a slot, beside the table.
//!
//! An object keeps its slot for as long as it is there, also when it is replaced, so its count is its own; who takes a slot begins
//! at none. A quarter of a byte an object, for caches alone.
//! Not here: what the counts are worth (`cache_policy`).

use std::sync::atomic::{AtomicU16, Ordering};

use super::ring::{Ring, Want, Word};
use super::{FingerprintIndex, Location, Shard};

const MOST: u16 = 0b11;

impl FingerprintIndex {
    /// The table, counting touches from now on.
    pub fn counting(mut self) -> Self {
        self.counts = true;
        self.shards.iter_mut().flat_map(Shard::rings_mut).for_each(Ring::count_touches);
        self
    }

    /// The object was asked for once more.
    pub fn touch(&self, hash: u64, location: Location) {
        self.at_slot(hash, location, Ring::touch);
    }

    /// How often, up to three times. None when it is not there, or nothing is counted.
    pub fn touches(&self, hash: u64, location: Location) -> u16 {
        self.at_slot(hash, location, Ring::touches).unwrap_or(0)
    }

    /// Takes off this many, or all there are.
    pub fn untouch(&self, hash: u64, location: Location, fewer: u16) {
        self.at_slot(hash, location, |ring, bucket, slot| ring.untouch(bucket, slot, fewer));
    }

    fn at_slot<T>(
        &self,
        hash: u64,
        location: Location,
        what: impl Fn(&Ring<std::sync::atomic::AtomicU64>, usize, usize) -> T,
    ) -> Option<T> {
        if !self.counts {
            return None;
        }
        let want = Want::new(hash);
        let (shard, within) = self.shard(hash);
        shard.rings().find_map(|ring| {
            let (step, _, slot) = ring.entry(within, want, location)?;
            Some(what(ring, ring.bucket(within, step), slot))
        })
    }
}

impl<W: Word> Ring<W> {
    pub(super) fn count_touches(&mut self) {
        self.touches = (0..self.buckets()).map(|_| AtomicU16::new(0)).collect();
    }

    fn touch(&self, bucket: usize, slot: usize) {
        let Some(counts) = self.touches.get(bucket) else { return };
        let (seen, shift) = (counts.load(Ordering::Relaxed), slot * 2);
        if seen >> shift & MOST < MOST {
            // A request that overtakes another may be lost, and nothing depends on it.
            let _ = counts.compare_exchange(seen, seen + (1 << shift), Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    fn touches(&self, bucket: usize, slot: usize) -> u16 {
        self.touches.get(bucket).map_or(0, |counts| counts.load(Ordering::Relaxed) >> (slot * 2) & MOST)
    }

    pub(super) fn untouch(&self, bucket: usize, slot: usize, fewer: u16) {
        let Some(counts) = self.touches.get(bucket) else { return };
        let shift = slot * 2;
        let fewer = |seen: u16| Some(seen - ((seen >> shift & MOST).min(fewer) << shift));
        let _ = counts.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer);
    }
}
