//! Which replies are on their way from an origin, so that a second request for one waits instead of asking again; and
//! for which URIs that would be in vain.
//!
//! Always holds: one fill a key; a guard that is dropped, for whatever reason, lets those go who wait for it; a fetch
//! that began before its URI was voided can tell, whether it has a guard or not, by the URI's epoch.
//! Not here: what they wait for (`streaming_reply`).

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http_cache_rules::key::CacheKey;
use http_cache_rules::reuse::Failure;
use xxhash_rust::xxh3::xxh3_64;

use crate::server::fetch::streaming_reply::{FetchResult, StreamingReply};

const SHARDS: usize = 64;
/// Counters of what was voided. Two URIs that share one cost each other a reply that is not stored, now and then.
const EPOCHS: usize = 1 << 16;
/// URIs a shard remembers as not storable.
const PASSES_MAX: usize = 1024;

#[derive(Default)]
struct Shard {
    fills: HashMap<CacheKey, Arc<StreamingReply>>,
    /// By the hash of the key: until when nobody waits.
    passes: HashMap<u64, Instant>,
}

/// Replies on their way, for all loops.
pub struct CollapseTable {
    shards: Vec<Mutex<Shard>>,
    epochs: Vec<AtomicU64>,
}

/// What a URI's voids were counted to when a fetch began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch {
    slot: usize,
    count: u64,
}

impl Epoch {
    /// After a void that the fetch itself brought about, of this URI.
    pub fn after_own_void(self, voided: Epoch) -> Self {
        let own = u64::from(voided.slot == self.slot);
        Self { count: self.count + own, ..self }
    }
}

/// The right, and the duty, to fetch a reply.
pub struct Guard {
    collapse_table: Arc<CollapseTable>,
    key: CacheKey,
    /// What is fetched.
    pub streaming: Arc<StreamingReply>,
}

/// What a request finds.
pub enum JoinResult {
    /// It is to fetch the reply itself, and others may wait for it.
    Mine(Guard),
    /// It is on its way.
    Others(Arc<StreamingReply>),
    /// It is to fetch the reply for itself.
    Alone,
}

impl CollapseTable {
    /// None on its way.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            epochs: (0..EPOCHS).map(|_| AtomicU64::new(0)).collect(),
        })
    }

    /// As of now: to be asked before the origin is.
    pub fn epoch(&self, key: &CacheKey) -> Epoch {
        let slot = xxh3_64(key.as_str().as_bytes()) as usize / SHARDS % EPOCHS;
        Epoch { slot, count: self.epochs[slot].load(Ordering::SeqCst) }
    }

    /// Whether nothing was voided since.
    pub fn is_current(&self, epoch: Epoch) -> bool {
        self.epochs[epoch.slot].load(Ordering::SeqCst) == epoch.count
    }

    fn shard(&self, key: &CacheKey) -> (u64, MutexGuard<'_, Shard>) {
        let hash = xxh3_64(key.as_str().as_bytes());
        let shard = &self.shards[hash as usize % SHARDS];
        (hash, shard.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Joins, or begins.
    pub fn join(self: &Arc<Self>, key: &CacheKey) -> JoinResult {
        let (hash, mut shard) = self.shard(key);
        if let Some(streaming) = shard.fills.get(key) {
            return JoinResult::Others(Arc::clone(streaming));
        }
        if shard.passes.get(&hash).is_some_and(|until| Instant::now() < *until) {
            return JoinResult::Alone;
        }
        let streaming = Arc::new(StreamingReply::default());
        shard.fills.insert(key.clone(), Arc::clone(&streaming));
        JoinResult::Mine(Guard { collapse_table: Arc::clone(self), key: key.clone(), streaming })
    }

    /// What has come whole and will be in the store in a moment.
    pub fn landing(&self, key: &CacheKey) -> Option<Arc<StreamingReply>> {
        self.shard(key).1.fills.get(key).filter(|streaming| streaming.is_landing()).cloned()
    }

    /// Purged or invalidated: what is on its way is not for those who come from now on.
    pub fn void(&self, key: &CacheKey) {
        self.epochs[self.epoch(key).slot].fetch_add(1, Ordering::SeqCst);
        let gone = self.shard(key).1.fills.remove(key);
        if let Some(streaming) = gone {
            streaming.void();
        }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        let shard = |shard: &Mutex<Shard>| shard.lock().unwrap_or_else(PoisonError::into_inner).fills.len();
        self.shards.iter().map(shard).sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Guard {
    /// Tells that it is for one client only, and that others need not wait for a while.
    pub fn not_shared(self, pass: Duration) {
        if !pass.is_zero() {
            let (hash, mut shard) = self.collapse_table.shard(&self.key);
            if shard.passes.len() >= PASSES_MAX {
                let now = Instant::now();
                shard.passes.retain(|_, until| now < *until);
            }
            if shard.passes.len() < PASSES_MAX {
                shard.passes.insert(hash, Instant::now() + pass);
            }
        }
        self.streaming.tell(FetchResult::NotShared);
    }

    /// Tells that the origin fails, so that what each has stored may stand in.
    pub fn failed(self, failure: Failure) {
        self.streaming.tell(FetchResult::Failed(failure));
    }

    /// Tells that the store has it.
    pub fn in_store(self) {
        self.streaming.tell(FetchResult::InStore);
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let (_, mut shard) = self.collapse_table.shard(&self.key);
        // It may have been purged, and fetched again since: then that one stays.
        if let Some(streaming) = shard.fills.remove(&self.key)
            && !Arc::ptr_eq(&streaming, &self.streaming)
        {
            shard.fills.insert(self.key.clone(), streaming);
        }
        drop(shard);
        self.streaming.tell(FetchResult::Abandoned);
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
        let JoinResult::Mine(guard) = collapse_table.join(&key("x")) else { panic!("the first fetches") };
        assert!(matches!(collapse_table.join(&key("x")), JoinResult::Others(_)));
        assert!(matches!(collapse_table.join(&key("y")), JoinResult::Mine(_)));
        drop(guard);
        assert!(matches!(collapse_table.join(&key("x")), JoinResult::Mine(_)));
        assert!(collapse_table.is_empty(), "guards that were dropped leave nothing");
    }

    #[test]
    fn nobody_waits_for_what_was_just_not_shared() {
        let collapse_table = CollapseTable::new();
        let JoinResult::Mine(guard) = collapse_table.join(&key("x")) else { panic!("the first fetches") };
        guard.not_shared(Duration::from_secs(60));
        assert!(matches!(collapse_table.join(&key("x")), JoinResult::Alone));
    }

    #[test]
    fn a_fetch_without_a_guard_learns_that_its_uri_was_voided_and_not_by_its_own_doing() {
        let collapse_table = CollapseTable::new();
        let (x, y) = (collapse_table.epoch(&key("x")), collapse_table.epoch(&key("y")));
        collapse_table.void(&key("x"));
        assert!(!collapse_table.is_current(x) && collapse_table.is_current(y));
        assert!(collapse_table.is_current(x.after_own_void(x)));
        assert!(collapse_table.is_current(y.after_own_void(x)), "another's");
        collapse_table.void(&key("x"));
        assert!(!collapse_table.is_current(x.after_own_void(x)), "somebody else's came on top");
    }

    #[test]
    fn what_is_purged_on_its_way_is_fetched_again_and_does_not_take_the_new_one_with_it() {
        let collapse_table = CollapseTable::new();
        let JoinResult::Mine(old) = collapse_table.join(&key("x")) else { panic!("the first fetches") };
        collapse_table.void(&key("x"));
        assert!(old.streaming.is_void());
        let JoinResult::Mine(_new) = collapse_table.join(&key("x")) else { panic!("it is fetched again") };
        drop(old);
        assert!(matches!(collapse_table.join(&key("x")), JoinResult::Others(_)));
    }
}
