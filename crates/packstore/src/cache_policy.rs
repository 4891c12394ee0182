//! What a cache keeps: which objects it stores at all, to which files they go, which go when it is full, and which records
//! stay in memory.
//!
//! ```text
//! put --admits--> queue_for --> a file of that queue
//! full --> to_empty: files, the first to be emptied first --> touches_to_stay: what stays in one of them
//! get --> memory, before the disk
//! ```
//!
//! Always holds: in store mode everything is admitted, there is one queue, and nothing is evicted.
//! Not here: removing what was chosen (`make_room`); requests of objects, which the index counts beside their places.
//! Locks: those of its parts, all leaves.

pub(crate) mod memory;
pub(crate) mod queues;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::cache_policy::memory::Memory;
use crate::cache_policy::queues::{FifoQueue, Ghosts, SMALL_QUEUE_OF, TOUCHES_FOR_MAIN};
use crate::eviction::SEGMENTS_FOR_QUEUES;
use crate::options::{CacheOptions, Eviction};
use crate::segments::segment::Segment;

/// The choices of a cache.
pub(crate) struct CachePolicy {
    eviction: Eviction,
    ghosts: Ghosts,
    memory: Memory,
    /// Puts that were not stored, as nobody had put the key before.
    refused: AtomicU64,
}

impl CachePolicy {
    /// Of a store for this many objects. `memory_bytes_max`: of the memory tier, which a durable store has too.
    pub(crate) fn new(evicts: bool, options: &CacheOptions, memory_bytes_max: u64, objects: u64) -> Self {
        let ghosts = if evicts {
            Ghosts::new(options.eviction, options.admission, objects)
        } else {
            Ghosts::default()
        };
        let memory = Memory::new(memory_bytes_max);
        Self { eviction: options.eviction, ghosts, memory, refused: AtomicU64::new(0) }
    }

    /// The memory tier.
    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Whether an object that is not there is stored. Counts those that are not.
    pub(crate) fn admits(&self, hash: u64) -> bool {
        let admits = self.ghosts.admits(hash);
        if !admits {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        admits
    }

    /// Whether all objects are stored.
    pub(crate) fn admits_all(&self) -> bool {
        self.ghosts.admit_all()
    }

    /// Puts that were not stored.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Whether a volume of this many files has two queues.
    pub(crate) fn has_two_queues(&self, files: u64) -> bool {
        self.ghosts.are_two() && files >= SEGMENTS_FOR_QUEUES
    }

    /// Where an object goes that replaces none.
    pub(crate) fn queue_of_new(&self, hash: u64) -> FifoQueue {
        self.ghosts.queue_of(hash)
    }

    /// Notes that an object of the small queue was evicted, or found no room.
    pub(crate) fn note_evicted(&self, hash: u64) {
        self.ghosts.note_evicted(hash);
    }

    /// Segments of a volume in the order in which they are to be emptied for this queue: of the queue that is due first, the oldest
    /// first.
    pub(crate) fn to_empty<'a>(
        &self,
        segments: &'a [Arc<Segment>],
        queue_kind: FifoQueue,
        has_two_queues: bool,
        is_idle: impl Fn(&&Arc<Segment>) -> bool,
    ) -> Vec<&'a Arc<Segment>> {
        let from = has_two_queues.then(|| queue_to_empty(segments, queue_kind));
        let of = |segment: &Arc<Segment>| {
            from.is_none_or(|from| segment.queue_kind.load(Ordering::Relaxed) == from.code())
        };
        let mut turns = segments.iter().filter(is_idle).collect::<Vec<_>>();
        turns.sort_by_cached_key(|segment| (!of(segment), segment.generation.load(Ordering::Relaxed)));
        turns
    }

    /// Requests after which an object stays in a segment that is emptied; `None`: none stays. The small queue asks for more.
    pub(crate) fn touches_to_stay(&self, is_small: bool) -> Option<u16> {
        match self.eviction {
            Eviction::Cyclic => None,
            _ => Some(if is_small { TOUCHES_FOR_MAIN } else { 1 }),
        }
    }

    /// Memory that grows with the objects.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.ghosts.memory_bytes()
    }
}

/// The small queue, when it has its share already; for the main queue, when it has more than that.
fn queue_to_empty(segments: &[Arc<Segment>], queue_kind: FifoQueue) -> FifoQueue {
    let is_small =
        |segment: &&Arc<Segment>| segment.queue_kind.load(Ordering::Relaxed) == FifoQueue::Small.code();
    let small = segments.iter().filter(is_small).count();
    let share = (segments.len() / SMALL_QUEUE_OF).max(1);
    let enough = match queue_kind {
        FifoQueue::Small | FifoQueue::Lifetime(_) => small >= share,
        FifoQueue::Main => small > share + 1,
    };
    if enough { FifoQueue::Small } else { FifoQueue::Main }
}

#[cfg(test)]
mod tests {
    use testkit::SimulatedDisk;

    use super::*;
    use crate::options::{Admission, Mode};
    use crate::segments::segment::Access;

    fn policy(options: &CacheOptions) -> CachePolicy {
        CachePolicy::new(true, options, 0, 1000)
    }

    fn files(queues: &[FifoQueue]) -> Vec<Arc<Segment>> {
        let disk = Arc::new(SimulatedDisk::new("policy"));
        let segment = |(number, queue_kind): (usize, &FifoQueue)| {
            // Later numbers are older.
            let segment = Segment::new(
                number as u32,
                0,
                disk.clone(),
                Access::of(Mode::Cache, false, 1 << 20),
                100 - number as u64,
            );
            segment.queue_kind.store(queue_kind.code(), Ordering::Relaxed);
            Arc::new(segment)
        };
        queues.iter().enumerate().map(segment).collect()
    }

    fn numbers(segments: &[&Arc<Segment>]) -> Vec<u32> {
        segments.iter().map(|segment| segment.number).collect()
    }

    #[test]
    fn a_store_admits_all_has_one_queue_and_counts_no_refusals() {
        let store = CachePolicy::new(false, &CacheOptions::default(), 0, 1000);
        assert!(store.admits(1) && store.admits_all() && !store.has_two_queues(1 << 20));
        assert_eq!(store.refused(), 0);
    }

    #[test]
    fn admission_at_the_second_request_refuses_the_first_put_and_counts_it() {
        let policy = policy(&CacheOptions { admission: Admission::SecondRequest, ..CacheOptions::default() });
        assert!(!policy.admits_all());
        assert_eq!((policy.admits(7 << 30), policy.admits(7 << 30)), (false, true));
        assert_eq!(policy.refused(), 1);
    }

    #[test]
    fn a_key_that_comes_back_after_its_eviction_is_proven_once() {
        let policy = policy(&CacheOptions::default());
        assert_eq!(policy.queue_of_new(9 << 30), FifoQueue::Small);
        policy.note_evicted(9 << 30);
        assert_eq!(policy.queue_of_new(9 << 30), FifoQueue::Main);
        assert_eq!(policy.queue_of_new(9 << 30), FifoQueue::Small, "that was its second chance");
    }

    #[test]
    fn the_oldest_file_goes_first_and_with_two_queues_one_of_the_queue_that_has_its_share() {
        let policy = policy(&CacheOptions::default());
        let mut queues = vec![FifoQueue::Main; 12];
        (queues[0], queues[5], queues[11]) = (FifoQueue::Small, FifoQueue::Small, FifoQueue::Main);
        let segments = files(&queues);
        let all = |_: &&Arc<Segment>| true;
        let one_queue = policy.to_empty(&segments, FifoQueue::Small, false, all);
        assert_eq!(numbers(&one_queue)[..2], [11, 10], "the oldest");
        // Two of twelve are the small queue's: its share.
        let for_newcomers = policy.to_empty(&segments, FifoQueue::Small, true, all);
        assert_eq!(numbers(&for_newcomers)[..3], [5, 0, 11], "theirs before the others");
        let for_proven = policy.to_empty(&segments, FifoQueue::Main, true, all);
        assert_eq!(numbers(&for_proven)[..2], [11, 10], "newcomers have no more than their share");
        let idle = policy.to_empty(&segments, FifoQueue::Small, true, |segment| segment.number != 5);
        assert_eq!(numbers(&idle)[0], 0, "a file in use is passed over");
    }

    #[test]
    fn a_cyclic_cache_spares_nothing_and_the_small_queue_asks_for_two_requests() {
        let cyclic = policy(&CacheOptions { eviction: Eviction::Cyclic, ..CacheOptions::default() });
        assert_eq!(cyclic.touches_to_stay(false), None);
        let policy = policy(&CacheOptions::default());
        assert_eq!((policy.touches_to_stay(true), policy.touches_to_stay(false)), (Some(2), Some(1)));
    }
}
