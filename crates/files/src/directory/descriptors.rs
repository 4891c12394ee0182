//! Open descriptors kept for later, so that most operations need no path walk.
//!
//! Sixteen shards by slot, each a ring with a second chance for what was used since the hand passed.
//!
//! Always holds: never more than `limit` descriptors, apart from those an operation holds right now.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::table::Node;

const SHARDS: usize = 16;

/// A bounded cache from objects to open descriptors of one sort.
pub(super) struct Descriptors<T> {
    shards: [Mutex<Shard<T>>; SHARDS],
    shard_limit: usize,
}

struct Shard<T> {
    places: HashMap<u32, usize>,
    ring: Vec<Kept<T>>,
    hand: usize,
}

struct Kept<T> {
    node: Node,
    open: Arc<T>,
    used: bool,
}

impl<T> Descriptors<T> {
    pub(super) fn new(limit: usize) -> Self {
        let shard = || Mutex::new(Shard { places: HashMap::new(), ring: Vec::new(), hand: 0 });
        Self { shards: std::array::from_fn(|_| shard()), shard_limit: (limit / SHARDS).max(1) }
    }

    fn shard(&self, node: Node) -> MutexGuard<'_, Shard<T>> {
        self.shards[node.slot as usize % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn find(&self, node: Node) -> Option<Arc<T>> {
        let mut shard = self.shard(node);
        let place = *shard.places.get(&node.slot)?;
        let kept = &mut shard.ring[place];
        if kept.node != node {
            return None;
        }
        kept.used = true;
        Some(Arc::clone(&kept.open))
    }

    pub(super) fn keep(&self, node: Node, open: Arc<T>) {
        // A newcomer must prove itself: else one sweep through many files would put out all the others.
        let kept = Kept { node, open, used: false };
        let mut shard = self.shard(node);
        // What is put out is closed after the lock is gone: closing may write.
        let put_out = if let Some(place) = shard.places.get(&node.slot).copied() {
            Some(std::mem::replace(&mut shard.ring[place], kept))
        } else if shard.ring.len() < self.shard_limit {
            let place = shard.ring.len();
            shard.places.insert(node.slot, place);
            shard.ring.push(kept);
            None
        } else {
            let place = shard.pass_hand();
            let old_slot = shard.ring[place].node.slot;
            shard.places.remove(&old_slot);
            shard.places.insert(node.slot, place);
            Some(std::mem::replace(&mut shard.ring[place], kept))
        };
        drop(shard);
        drop(put_out);
    }

    pub(super) fn drop_node(&self, node: Node) {
        let mut shard = self.shard(node);
        let Some(place) = shard.places.get(&node.slot).copied() else { return };
        if shard.ring[place].node != node {
            return;
        }
        shard.places.remove(&node.slot);
        let put_out = shard.ring.swap_remove(place);
        if let Some(filled_in) = shard.ring.get(place) {
            let slot = filled_in.node.slot;
            shard.places.insert(slot, place);
        }
        drop(shard);
        drop(put_out);
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().unwrap().ring.len()).sum()
    }
}

impl<T> Shard<T> {
    /// Where the next one to be put out is. The ring is not empty.
    fn pass_hand(&mut self) -> usize {
        loop {
            self.hand = (self.hand + 1) % self.ring.len();
            if !std::mem::take(&mut self.ring[self.hand].used) {
                return self.hand;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(slot: u32) -> Node {
        Node { slot, generation: 0 }
    }

    #[test]
    fn the_limit_holds_and_what_is_used_stays() {
        let cache = Descriptors::new(64);
        for slot in 0..1000 {
            cache.keep(node(slot), Arc::new(slot));
            assert!(cache.find(node(0)).is_some(), "after {slot}");
        }
        assert_eq!(cache.len(), 64);
        assert!(cache.find(Node { slot: 0, generation: 1 }).is_none());
    }

    #[test]
    fn dropping_one_leaves_the_others_findable() {
        let cache = Descriptors::new(64);
        for slot in [0, 16, 32] {
            cache.keep(node(slot), Arc::new(slot));
        }
        cache.drop_node(node(0));
        assert!(cache.find(node(0)).is_none());
        assert_eq!(cache.find(node(16)).as_deref(), Some(&16));
        assert_eq!(cache.find(node(32)).as_deref(), Some(&32));
    }
}
