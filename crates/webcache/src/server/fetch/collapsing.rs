//! The request collapsing table: the replies that are being fetched, so that later requests wait for one instead of fetching it
//! again; and the URIs whose replies are not worth waiting for.
//!
//! Always holds: at most one fetch per key is in the table. Dropping a guard, for whatever reason, releases the requests that
//! wait. A fetch that began before its URI was invalidated can see that from the URI's epoch, with or without a guard.
//! Not here: the reply that they wait for (`streaming_reply`).

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http_cache_rules::key::CacheKey;
use http_cache_rules::reuse::Failure;
use xxhash_rust::xxh3::xxh3_64;

use crate::server::fetch::streaming_reply::{FetchResult, StreamingReply};

const SHARDS: usize = 64;
/// Invalidation counters. URIs that share one occasionally cost each other a reply that is not stored.
const EPOCHS: usize = 1 << 16;
/// URIs per shard that are remembered as not shareable.
const UNCOLLAPSIBLE_MAX: usize = 1024;

#[derive(Default)]
struct Shard {
    in_flight: HashMap<CacheKey, Arc<StreamingReply>>,
    /// By hash of the key: until when requests do not wait.
    uncollapsible: HashMap<u64, Instant>,
}

/// The fetches in progress, of all loops.
pub struct CollapseTable {
    shards: Vec<Mutex<Shard>>,
    epochs: Vec<AtomicU64>,
}

/// A URI's invalidation count at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch {
    slot: usize,
    count: u64,
}

impl Epoch {
    /// The epoch to compare with after the fetch itself caused an invalidation with this epoch.
    pub fn after_own_invalidation(self, invalidated: Epoch) -> Self {
        let own = u64::from(invalidated.slot == self.slot);
        Self { count: self.count + own, ..self }
    }
}

/// The right and the duty to fetch a reply for all requests that wait.
pub struct FetchGuard {
    collapse_table: Arc<CollapseTable>,
    key: CacheKey,
    /// The reply to fill.
    pub streaming: Arc<StreamingReply>,
}

/// How a request takes part.
pub enum JoinResult {
    /// It fetches, and others may wait for it.
    Lead(FetchGuard),
    /// Another request is fetching.
    Follow(Arc<StreamingReply>),
    /// It fetches for itself: such replies were not shareable recently.
    Bypass,
}

impl CollapseTable {
    /// An empty table.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            epochs: (0..EPOCHS).map(|_| AtomicU64::new(0)).collect(),
        })
    }

    /// The epoch now. Read it before the request goes upstream.
    pub fn epoch(&self, key: &CacheKey) -> Epoch {
        let slot = xxh3_64(key.as_str().as_bytes()) as usize / SHARDS % EPOCHS;
        Epoch { slot, count: self.epochs[slot].load(Ordering::SeqCst) }
    }

    /// Whether no invalidation has happened since.
    pub fn is_current(&self, epoch: Epoch) -> bool {
        self.epochs[epoch.slot].load(Ordering::SeqCst) == epoch.count
    }

    fn shard(&self, key: &CacheKey) -> (u64, MutexGuard<'_, Shard>) {
        let hash = xxh3_64(key.as_str().as_bytes());
        let shard = &self.shards[hash as usize % SHARDS];
        (hash, shard.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Joins the fetch of this key, or starts one.
    pub fn join(self: &Arc<Self>, key: &CacheKey) -> JoinResult {
        let (hash, mut shard) = self.shard(key);
        if let Some(streaming) = shard.in_flight.get(key) {
            return JoinResult::Follow(Arc::clone(streaming));
        }
        if shard.uncollapsible.get(&hash).is_some_and(|until| Instant::now() < *until) {
            return JoinResult::Bypass;
        }
        let streaming = Arc::new(StreamingReply::default());
        shard.in_flight.insert(key.clone(), Arc::clone(&streaming));
        JoinResult::Lead(FetchGuard { collapse_table: Arc::clone(self), key: key.clone(), streaming })
    }

    /// A reply that has arrived completely and is being stored.
    pub fn about_to_be_stored(&self, key: &CacheKey) -> Option<Arc<StreamingReply>> {
        self.shard(key).1.in_flight.get(key).filter(|streaming| streaming.is_about_to_be_stored()).cloned()
    }

    /// The URI was purged or invalidated: later requests do not share the reply that is being fetched. Returns whether one was.
    pub fn invalidate(&self, key: &CacheKey) -> bool {
        self.epochs[self.epoch(key).slot].fetch_add(1, Ordering::SeqCst);
        let gone = self.shard(key).1.in_flight.remove(key);
        if let Some(streaming) = &gone {
            streaming.invalidate();
        }
        gone.is_some()
    }

    /// How many fetches are in progress.
    pub fn len(&self) -> usize {
        let shard =
            |shard: &Mutex<Shard>| shard.lock().unwrap_or_else(PoisonError::into_inner).in_flight.len();
        self.shards.iter().map(shard).sum()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl FetchGuard {
    /// Publishes that the reply is for one client only. For the time `pass`, requests for the key do not wait.
    pub fn not_shared(self, pass: Duration) {
        if !pass.is_zero() {
            let (hash, mut shard) = self.collapse_table.shard(&self.key);
            if shard.uncollapsible.len() >= UNCOLLAPSIBLE_MAX {
                let now = Instant::now();
                shard.uncollapsible.retain(|_, until| now < *until);
            }
            if shard.uncollapsible.len() < UNCOLLAPSIBLE_MAX {
                shard.uncollapsible.insert(hash, Instant::now() + pass);
            }
        }
        self.streaming.publish(FetchResult::NotShared);
    }

    /// Publishes that upstream failed, so that each request may use what it has stored.
    pub fn failed(self, failure: Failure) {
        self.streaming.publish(FetchResult::Failed(failure));
    }

    /// Publishes that the store has the reply.
    pub fn in_store(self) {
        self.streaming.publish(FetchResult::InStore);
    }
}

impl Drop for FetchGuard {
    fn drop(&mut self) {
        let (_, mut shard) = self.collapse_table.shard(&self.key);
        // After an invalidation another fetch may have taken the key: leave that one in place.
        if let Some(streaming) = shard.in_flight.remove(&self.key)
            && !Arc::ptr_eq(&streaming, &self.streaming)
        {
            shard.in_flight.insert(self.key.clone(), streaming);
        }
        drop(shard);
        self.streaming.publish(FetchResult::Abandoned);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(path: &str) -> CacheKey {
        CacheKey::of(&format!("http://a/{path}").parse().expect("a URI")).expect("a key")
    }

    #[test]
    fn the_second_waits_for_the_first_until_that_is_gone() {
        let collapse_table = CollapseTable::new();
        let JoinResult::Lead(guard) = collapse_table.join(&key("x")) else { panic!("the first fetches") };
        assert!(matches!(collapse_table.join(&key("x")), JoinResult::Follow(_)));
        assert!(matches!(collapse_table.join(&key("y")), JoinResult::Lead(_)));
        drop(guard);
        assert!(matches!(collapse_table.join(&key("x")), JoinResult::Lead(_)));
        assert!(collapse_table.is_empty(), "guards that were dropped leave nothing");
    }

    #[test]
    fn nobody_waits_for_what_was_just_not_shared() {
        let collapse_table = CollapseTable::new();
        let JoinResult::Lead(guard) = collapse_table.join(&key("x")) else { panic!("the first fetches") };
        guard.not_shared(Duration::from_secs(60));
        assert!(matches!(collapse_table.join(&key("x")), JoinResult::Bypass));
    }

    #[test]
    fn a_fetch_without_a_guard_learns_that_its_uri_was_voided_and_not_by_its_own_doing() {
        let collapse_table = CollapseTable::new();
        let (x, y) = (collapse_table.epoch(&key("x")), collapse_table.epoch(&key("y")));
        collapse_table.invalidate(&key("x"));
        assert!(!collapse_table.is_current(x) && collapse_table.is_current(y));
        assert!(collapse_table.is_current(x.after_own_invalidation(x)));
        assert!(collapse_table.is_current(y.after_own_invalidation(x)), "another's");
        collapse_table.invalidate(&key("x"));
        assert!(!collapse_table.is_current(x.after_own_invalidation(x)), "somebody else's came on top");
    }

    #[test]
    fn what_is_purged_on_its_way_is_fetched_again_and_does_not_take_the_new_one_with_it() {
        let collapse_table = CollapseTable::new();
        let JoinResult::Lead(old) = collapse_table.join(&key("x")) else { panic!("the first fetches") };
        collapse_table.invalidate(&key("x"));
        assert!(old.streaming.is_invalidated());
        let JoinResult::Lead(_new) = collapse_table.join(&key("x")) else { panic!("it is fetched again") };
        drop(old);
        assert!(matches!(collapse_table.join(&key("x")), JoinResult::Follow(_)));
    }
}
