//! Descriptors of the directories last used, a bounded number of them.
//!
//! A clock: a directory used since the hand last passed is spared once.
//!
//! Always holds: never more than `limit` here (users may hold on to evicted ones a moment longer).
//! Lock: one, a leaf; opening and closing happen outside it.

use std::collections::HashMap;
use std::hash::Hash;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::nodes::{ByInode, lock};

/// Descriptors by what names their directory: a node's number, or more.
pub(crate) struct Descriptors<Key = u64> {
    limit: usize,
    clock: Mutex<Clock<Key>>,
}

struct Clock<Key> {
    index: HashMap<Key, usize, ByInode>,
    slots: Vec<Slot<Key>>,
    hand: usize,
}

struct Slot<Key> {
    id: Key,
    used: bool,
    since: Instant,
    descriptor: Arc<OwnedFd>,
}

impl<Key: Copy + Eq + Hash> Descriptors<Key> {
    pub(crate) fn new(limit: usize) -> Self {
        let clock = Clock { index: HashMap::default(), slots: Vec::new(), hand: 0 };
        Self { limit: limit.max(8), clock: Mutex::new(clock) }
    }

    pub(crate) fn find(&self, id: Key) -> Option<Arc<OwnedFd>> {
        let mut clock = lock(&self.clock);
        let at = *clock.index.get(&id)?;
        clock.slots[at].used = true;
        Some(Arc::clone(&clock.slots[at].descriptor))
    }

    /// The descriptor, unless it was opened longer ago than `age_max`.
    pub(crate) fn find_younger(&self, id: Key, age_max: Duration) -> Option<Arc<OwnedFd>> {
        let mut clock = lock(&self.clock);
        let at = *clock.index.get(&id)?;
        let slot = &mut clock.slots[at];
        if slot.since.elapsed() >= age_max {
            return None;
        }
        slot.used = true;
        Some(Arc::clone(&slot.descriptor))
    }

    pub(crate) fn keep(&self, id: Key, descriptor: OwnedFd) -> Arc<OwnedFd> {
        let descriptor = Arc::new(descriptor);
        // Not yet used again: a walk through many directories shall not drive out those in use.
        let slot = Slot { id, used: false, since: Instant::now(), descriptor: Arc::clone(&descriptor) };
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

    pub(crate) fn drop_of(&self, id: Key) {
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

    /// Drops all that `is` says yes to.
    pub(crate) fn drop_where(&self, is: impl Fn(&Key) -> bool) {
        let mut clock = lock(&self.clock);
        let (gone, stay) = std::mem::take(&mut clock.slots).into_iter().partition(|slot| is(&slot.id));
        clock.slots = stay;
        clock.index = clock.slots.iter().enumerate().map(|(at, slot)| (slot.id, at)).collect();
        drop(clock);
        let _closed_after_the_lock: Vec<Slot<Key>> = gone;
    }

    /// Drops those that were opened longer ago than `age`.
    pub(crate) fn drop_older(&self, age: Duration) {
        let mut clock = lock(&self.clock);
        if clock.slots.is_empty() {
            return;
        }
        let (gone, stay) =
            std::mem::take(&mut clock.slots).into_iter().partition(|slot| slot.since.elapsed() >= age);
        clock.slots = stay;
        clock.index = clock.slots.iter().enumerate().map(|(at, slot)| (slot.id, at)).collect();
        drop(clock);
        let _closed_after_the_lock: Vec<Slot<Key>> = gone;
    }

    /// Gives all of them up; false when there were none.
    pub(crate) fn give_up(&self) -> bool {
        let mut clock = lock(&self.clock);
        clock.index.clear();
        clock.hand = 0;
        let given_up = std::mem::take(&mut clock.slots);
        drop(clock);
        !given_up.is_empty()
    }

    /// Descriptors held.
    pub(crate) fn count(&self) -> usize {
        lock(&self.clock).slots.len()
    }
}

impl<Key> Clock<Key> {
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

    #[test]
    fn one_that_was_opened_too_long_ago_is_not_found_and_a_new_one_takes_its_place() {
        let held = Descriptors::new(8);
        let first = held.keep((7, 1), descriptor());
        assert!(held.find_younger((7, 1), Duration::MAX).is_some_and(|found| Arc::ptr_eq(&found, &first)));
        assert!(held.find_younger((7, 1), Duration::ZERO).is_none());
        held.keep((7, 1), descriptor());
        assert!(held.find_younger((7, 1), Duration::MAX).is_some_and(|found| !Arc::ptr_eq(&found, &first)));
        assert_eq!(held.count(), 1);
    }

    #[test]
    fn all_can_be_given_up_at_once() {
        let held = Descriptors::new(8);
        assert!(!held.give_up(), "there were none");
        for id in 1..=20 {
            held.keep(id, descriptor());
        }
        assert!(held.give_up());
        assert_eq!(held.count(), 0);
        held.keep(3, descriptor());
        assert!(held.find(3).is_some() && held.find(20).is_none());
    }
}
