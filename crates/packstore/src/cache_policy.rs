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
//! Not here: removing what was chosen (`refill`); requests of objects, which the index counts beside their places.
//! Locks: those of its parts, all leaves.

pub(crate) mod lanes;
pub(crate) mod memory;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::cache_policy::lanes::{Lane, Lanes, NEWCOMERS_OF, TOUCHES_FOR_PROVEN};
use crate::cache_policy::memory::Memory;
use crate::eviction::FILES_FOR_LANES;
use crate::options::{CacheOptions, Eviction};
use crate::segments::packed::Packed;

/// The choices of a cache.
pub(crate) struct CachePolicy {
    eviction: Eviction,
    lanes: Lanes,
    memory: Memory,
    /// Puts that were not stored, as nobody had put the key before.
    refused: AtomicU64,
}

impl CachePolicy {
    /// Of a store for this many objects. `memory_bytes_max`: of the memory tier, which a durable store has too.
    pub(crate) fn new(evicts: bool, options: &CacheOptions, memory_bytes_max: u64, objects: u64) -> Self {
        let lanes =
            if evicts { Lanes::new(options.eviction, options.admission, objects) } else { Lanes::default() };
        let memory = Memory::new(memory_bytes_max);
        Self { eviction: options.eviction, lanes, memory, refused: AtomicU64::new(0) }
    }

    /// The memory tier.
    pub(crate) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Whether an object that is not there is stored. Counts those that are not.
    pub(crate) fn admits(&self, hash: u64) -> bool {
        let admits = self.lanes.admits(hash);
        if !admits {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        admits
    }

    /// Whether all objects are stored.
    pub(crate) fn admits_all(&self) -> bool {
        self.lanes.admit_all()
    }

    /// Puts that were not stored.
    pub(crate) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Whether a volume of this many files has two queues.
    pub(crate) fn has_lanes(&self, files: u64) -> bool {
        self.lanes.are_two() && files >= FILES_FOR_LANES
    }

    /// Where an object goes that replaces none.
    pub(crate) fn lane_of_new(&self, hash: u64) -> Lane {
        self.lanes.lane_of(hash)
    }

    /// Notes that a newcomer was evicted, or found no room.
    pub(crate) fn note_gone(&self, hash: u64) {
        self.lanes.note_gone(hash);
    }

    /// Files of a volume in the order in which they are to be emptied for this lane: of the lane that is due first, the oldest
    /// first.
    pub(crate) fn to_empty<'a>(
        &self,
        files: &'a [Arc<Packed>],
        lane: Lane,
        has_lanes: bool,
        is_idle: impl Fn(&&Arc<Packed>) -> bool,
    ) -> Vec<&'a Arc<Packed>> {
        let from = has_lanes.then(|| lane_to_empty(files, lane));
        let of =
            |file: &Arc<Packed>| from.is_none_or(|from| file.lane.load(Ordering::Relaxed) == from.code());
        let mut turns = files.iter().filter(is_idle).collect::<Vec<_>>();
        turns.sort_by_cached_key(|file| (!of(file), file.generation.load(Ordering::Relaxed)));
        turns
    }

    /// Requests after which an object stays in a file that is emptied; `None`: none stays. A newcomer has to be proven.
    pub(crate) fn touches_to_stay(&self, is_newcomer: bool) -> Option<u16> {
        match self.eviction {
            Eviction::Cyclic => None,
            _ => Some(if is_newcomer { TOUCHES_FOR_PROVEN } else { 1 }),
        }
    }

    /// Memory that grows with the objects.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.lanes.memory_bytes()
    }
}

/// Newcomers' files when they have their share already; for those proven, when they have more than that.
fn lane_to_empty(files: &[Arc<Packed>], lane: Lane) -> Lane {
    let is_newcomers = |file: &&Arc<Packed>| file.lane.load(Ordering::Relaxed) == Lane::Newcomers.code();
    let newcomers = files.iter().filter(is_newcomers).count();
    let share = (files.len() / NEWCOMERS_OF).max(1);
    let enough = match lane {
        Lane::Newcomers => newcomers >= share,
        Lane::Proven => newcomers > share + 1,
    };
    if enough { Lane::Newcomers } else { Lane::Proven }
}

#[cfg(test)]
mod tests {
    use testkit::SimulatedDisk;

    use super::*;
    use crate::options::{Admission, Mode};
    use crate::segments::packed::Access;

    fn policy(options: &CacheOptions) -> CachePolicy {
        CachePolicy::new(true, options, 0, 1000)
    }

    fn files(lanes: &[Lane]) -> Vec<Arc<Packed>> {
        let disk = Arc::new(SimulatedDisk::new("policy"));
        let file = |(number, lane): (usize, &Lane)| {
            // Later numbers are older.
            let file = Packed::new(
                number as u32,
                0,
                disk.clone(),
                Access::of(Mode::Cache, false),
                100 - number as u64,
            );
            file.lane.store(lane.code(), Ordering::Relaxed);
            Arc::new(file)
        };
        lanes.iter().enumerate().map(file).collect()
    }

    fn numbers(files: &[&Arc<Packed>]) -> Vec<u32> {
        files.iter().map(|file| file.number).collect()
    }

    #[test]
    fn a_store_admits_all_has_one_queue_and_counts_no_refusals() {
        let store = CachePolicy::new(false, &CacheOptions::default(), 0, 1000);
        assert!(store.admits(1) && store.admits_all() && !store.has_lanes(1 << 20));
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
        assert_eq!(policy.lane_of_new(9 << 30), Lane::Newcomers);
        policy.note_gone(9 << 30);
        assert_eq!(policy.lane_of_new(9 << 30), Lane::Proven);
        assert_eq!(policy.lane_of_new(9 << 30), Lane::Newcomers, "that was its second chance");
    }

    #[test]
    fn the_oldest_file_goes_first_and_with_two_queues_one_of_the_queue_that_has_its_share() {
        let policy = policy(&CacheOptions::default());
        let mut lanes = vec![Lane::Proven; 12];
        (lanes[0], lanes[5], lanes[11]) = (Lane::Newcomers, Lane::Newcomers, Lane::Proven);
        let files = files(&lanes);
        let all = |_: &&Arc<Packed>| true;
        let one_queue = policy.to_empty(&files, Lane::Newcomers, false, all);
        assert_eq!(numbers(&one_queue)[..2], [11, 10], "the oldest");
        // Two of twelve are newcomers': their share.
        let for_newcomers = policy.to_empty(&files, Lane::Newcomers, true, all);
        assert_eq!(numbers(&for_newcomers)[..3], [5, 0, 11], "theirs before the others");
        let for_proven = policy.to_empty(&files, Lane::Proven, true, all);
        assert_eq!(numbers(&for_proven)[..2], [11, 10], "newcomers have no more than their share");
        let idle = policy.to_empty(&files, Lane::Newcomers, true, |file| file.number != 5);
        assert_eq!(numbers(&idle)[0], 0, "a file in use is passed over");
    }

    #[test]
    fn a_cyclic_cache_spares_nothing_and_a_newcomer_needs_two_requests_to_stay() {
        let cyclic = policy(&CacheOptions { eviction: Eviction::Cyclic, ..CacheOptions::default() });
        assert_eq!(cyclic.touches_to_stay(false), None);
        let policy = policy(&CacheOptions::default());
        assert_eq!((policy.touches_to_stay(true), policy.touches_to_stay(false)), (Some(2), Some(1)));
    }
}
