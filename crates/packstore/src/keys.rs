//! One change at a time to a key, from its beginning until it counts.

use std::collections::HashSet;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

const SHARDS: usize = 64;

/// Keys that are being changed, by their hashes.
pub(crate) struct BusyKeys {
    shards: Vec<(Mutex<HashSet<u64>>, Condvar)>,
}

impl BusyKeys {
    pub(crate) fn new() -> Self {
        Self { shards: (0..SHARDS).map(|_| Default::default()).collect() }
    }

    fn shard(&self, hash: u64) -> &(Mutex<HashSet<u64>>, Condvar) {
        &self.shards[hash as usize % SHARDS]
    }

    /// Waits until the key is nobody's.
    pub(crate) fn take(&self, hash: u64) {
        let (busy, freed) = self.shard(hash);
        let mut busy = locked(busy);
        while !busy.insert(hash) {
            busy = freed.wait(busy).unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(crate) fn give_back(&self, hash: u64) {
        let (busy, freed) = self.shard(hash);
        locked(busy).remove(&hash);
        freed.notify_all();
    }

    pub(crate) fn is_busy(&self, hash: u64) -> bool {
        locked(&self.shard(hash).0).contains(&hash)
    }
}

/// A lock whose holders leave what it guards whole also when they panic.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// In one order whoever asks, so that two never wait for each other.
    pub(crate) fn two(busy: &'a BusyKeys, one: u64, other: u64) -> Self {
        let mut hashes = vec![one, other];
        hashes.sort_unstable();
        hashes.dedup();
        for &hash in &hashes {
            busy.take(hash);
        }
        Self { busy, hashes }
    }

    /// From now on somebody else gives them back.
    pub(crate) fn hand_over(mut self) -> Vec<u64> {
        std::mem::take(&mut self.hashes)
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        for &hash in &self.hashes {
            self.busy.give_back(hash);
        }
    }
}
