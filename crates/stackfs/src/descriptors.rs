//! Descriptors of the directories last used, a bounded number of them.
//!
//! A clock: a directory used since the hand last passed is spared once.
//!
//! Always holds: never more than `limit` here (users may hold on to evicted ones a moment longer).
//! Lock: one, a leaf; opening and closing happen outside it.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use crate::nodes::{Mixer, lock};

/// Descriptors by node number.
pub(crate) struct Descriptors {
    limit: usize,
    clock: Mutex<Clock>,
}

#[derive(Default)]
struct Clock {
    index: HashMap<u64, usize, BuildHasherDefault<Mixer>>,
    slots: Vec<Slot>,
    hand: usize,
}

struct Slot {
    id: u64,
    used: bool,
    descriptor: Arc<OwnedFd>,
}

impl Descriptors {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit: limit.max(8), clock: Mutex::default() }
    }

    pub(crate) fn find(&self, id: u64) -> Option<Arc<OwnedFd>> {
        let mut clock = lock(&self.clock);
        let at = *clock.index.get(&id)?;
        clock.slots[at].used = true;
        Some(Arc::clone(&clock.slots[at].descriptor))
    }

    pub(crate) fn keep(&self, id: u64, descriptor: OwnedFd) -> Arc<OwnedFd> {
        let descriptor = Arc::new(descriptor);
        // Not yet used again: a walk through many directories shall not drive out those in use.
        let slot = Slot { id, used: false, descriptor: Arc::clone(&descriptor) };
        let mut clock = lock(&self.clock);
        let _closed_after_the_lock;
        if let Some(at) = clock.index.get(&id).copied() {
            _closed_after_the_lock = Some(std::mem::replace(&mut clock.slots[at], slot));
        } else if clock.slots.len() < self.limit {
            let at = clock.slots.len();
            clock.index.insert(id, at);
            clock.slots.push(slot);
            _closed_after_the_lock = None;
        } else {
            let at = clock.victim();
            let old = std::mem::replace(&mut clock.slots[at], slot);
            clock.index.remove(&old.id);
            clock.index.insert(id, at);
            _closed_after_the_lock = Some(old);
        }
        drop(clock);
        descriptor
    }

    pub(crate) fn drop_of(&self, id: u64) {
        let mut clock = lock(&self.clock);
        if let Some(at) = clock.index.remove(&id) {
            let old = clock.slots.swap_remove(at);
            if let Some(moved) = clock.slots.get(at).map(|slot| slot.id) {
                clock.index.insert(moved, at);
            }
            drop(clock);
            drop(old);
        }
    }

    /// Descriptors held.
    pub(crate) fn count(&self) -> usize {
        lock(&self.clock).slots.len()
    }
}

impl Clock {
    fn victim(&mut self) -> usize {
        loop {
            self.hand = (self.hand + 1) % self.slots.len();
            if !std::mem::take(&mut self.slots[self.hand].used) {
                return self.hand;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor() -> OwnedFd {
        std::fs::File::open("/").unwrap().into()
    }

    #[test]
    fn the_number_held_is_bounded_and_what_is_used_stays() {
        let held = Descriptors::new(8);
        held.keep(1, descriptor());
        for id in 2..100 {
            held.keep(id, descriptor());
            assert!(held.find(1).is_some(), "evicted although used, at {id}");
            assert!(held.count() <= 8);
        }
    }

    #[test]
    fn dropping_one_leaves_the_others_findable() {
        let held = Descriptors::new(8);
        for id in 1..=5 {
            held.keep(id, descriptor());
        }
        held.drop_of(2);
        assert!(held.find(2).is_none());
        assert!([1, 3, 4, 5].iter().all(|id| held.find(*id).is_some()));
        assert_eq!(held.count(), 4);
    }
}
