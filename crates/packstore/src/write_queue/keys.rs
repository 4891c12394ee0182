//! One change at a time to a key, from its beginning until it counts.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

use crate::hashed::Hashed;
use crate::locks::locked;

const SHARDS: usize = 64;

/// Keys that are being changed, by their hashes.
pub(crate) struct BusyKeys {
    shards: Vec<(Mutex<Shard>, Condvar)>,
    clock: AtomicU64,
}

#[derive(Default)]
struct Shard {
    /// Since when.
    busy: HashMap<u64, u64, Hashed>,
    /// A condition variable that nobody waits on costs a system call all the same.
    waiting: usize,
}

impl BusyKeys {
    pub(crate) fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| Default::default()).collect(), clock: AtomicU64::new(1) }
    }

    fn shard(&self, hash: u64) -> &(Mutex<Shard>, Condvar) {
        &self.shards[hash as usize % SHARDS]
    }

    /// Waits until the key is nobody's.
    pub(crate) fn take(&self, hash: u64) {
        let (shard, freed) = self.shard(hash);
        let mut shard = locked(shard);
        while shard.busy.contains_key(&hash) {
            shard.waiting += 1;
            shard = freed.wait(shard).unwrap_or_else(PoisonError::into_inner);
            shard.waiting -= 1;
        }
        shard.busy.insert(hash, self.clock.load(Ordering::SeqCst));
    }

    /// False when it is somebody's.
    fn try_take(&self, hash: u64) -> bool {
        let mut shard = locked(&self.shard(hash).0);
        if shard.busy.contains_key(&hash) {
            return false;
        }
        shard.busy.insert(hash, self.clock.load(Ordering::SeqCst));
        true
    }

    pub(crate) fn give_back(&self, hash: u64) {
        let (shard, freed) = self.shard(hash);
        let mut shard = locked(shard);
        shard.busy.remove(&hash);
        let waiting = shard.waiting > 0;
        drop(shard);
        if waiting {
            freed.notify_all();
        }
    }

    /// Since when the key is somebody's, if it is.
    pub(crate) fn busy_since(&self, hash: u64) -> Option<u64> {
        locked(&self.shard(hash).0).busy.get(&hash).copied()
    }

    /// An instant: keys that are busy since then, or later, were taken after this was called.
    pub(crate) fn instant(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst) + 1
    }
}

/// The keys of one operation; given back when it ends early.
pub(crate) struct Taken<'a> {
    busy: &'a BusyKeys,
    hashes: Vec<u64>,
}

impl<'a> Taken<'a> {
    pub(crate) fn one(busy: &'a BusyKeys, hash: u64) -> Self {
        busy.take(hash);
        Self { busy, hashes: vec![hash] }
    }

    /// Nothing when somebody has it.
    pub(crate) fn one_at_once(busy: &'a BusyKeys, hash: u64) -> Option<Self> {
        busy.try_take(hash).then(|| Self { busy, hashes: vec![hash] })
    }

    /// In one order for every caller, so that two never wait for each other.
    pub(crate) fn two(busy: &'a BusyKeys, one: u64, other: u64) -> Self {
        let mut hashes = vec![one, other];
        hashes.sort_unstable();
        hashes.dedup();
        for &hash in &hashes {
            busy.take(hash);
        }
        Self { busy, hashes }
    }

    pub(crate) fn hashes(&self) -> &[u64] {
        &self.hashes
    }

    /// From now on somebody else gives them back.
    pub(crate) fn hand_over(mut self) {
        self.hashes.clear();
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        for &hash in &self.hashes {
            self.busy.give_back(hash);
        }
    }
}
