//! S3-FIFO in a cache of segments: which objects go to which segments.
//!
//! ```text
//! put --a ghost?--no--> Small, a fifth of the segments --its turn to be emptied--> requested twice: stay where they are;
//!                `-yes-> Main <------- the segment, when this queue takes it to fill ----'  others go, and leave a ghost
//! ```
//!
//! An object that is promoted is not copied: it stays in its segment, and the segment changes queues as it is filled again. Copying it at its
//! second request wrote each such object twice, and left a hole that nothing filled before the segment's turn came.
//!
//! Not here: who goes when a file is emptied (`make_room`).
//! Source: Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023.

use std::sync::Mutex;

use crate::eviction::Recent;
use crate::locks::locked;
use crate::options::{Admission, Eviction};

/// Which segments an object goes to. A store, and a cache of another policy, has the small queue alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FifoQueue {
    Small,
    Main,
}

impl FifoQueue {
    pub(crate) const ALL: [Self; 2] = [Self::Small, Self::Main];

    pub(crate) fn code(self) -> u8 {
        self as u8
    }

    pub(crate) fn of(code: u8) -> Self {
        if code == 1 { Self::Main } else { Self::Small }
    }
}

/// Requests after which an object of the small queue is promoted.
pub(crate) const TOUCHES_FOR_MAIN: u16 = 2;
/// The small queue has one in this many segments.
pub(crate) const SMALL_QUEUE_OF: usize = 5;
const SHARDS: usize = 16;

/// Keys that were evicted or requested recently, in parts that are locked one by one.
struct Known(Vec<Mutex<Recent>>);

impl Known {
    fn of(keys: u64) -> Self {
        let each = u32::try_from(keys / SHARDS as u64 + 8).unwrap_or(u32::MAX);
        Self((0..SHARDS).map(|_| Mutex::new(Recent::new(each))).collect())
    }

    /// By bits that choose neither row nor fingerprint.
    fn shard(&self, hash: u64) -> &Mutex<Recent> {
        &self.0[(hash >> 20) as usize % SHARDS]
    }

    fn memory_bytes(&self) -> usize {
        self.0.iter().map(|shard| locked(shard).memory_bytes()).sum()
    }
}

/// What a cache knows of objects that it does not hold.
#[derive(Default)]
pub(crate) struct Ghosts {
    /// Keys that were evicted from the small queue.
    gone: Option<Known>,
    /// Keys that were put once.
    seen: Option<Known>,
}

impl Ghosts {
    /// For a cache of this many objects.
    pub(crate) fn new(eviction: Eviction, admission: Admission, objects: u64) -> Self {
        Self {
            gone: (eviction == Eviction::S3Fifo).then(|| Known::of(objects - objects / 10)),
            seen: (admission == Admission::SecondRequest).then(|| Known::of(objects)),
        }
    }

    /// Whether there are two queues.
    pub(crate) fn are_two(&self) -> bool {
        self.gone.is_some()
    }

    /// Where a new object with this hash goes.
    pub(crate) fn queue_of(&self, hash: u64) -> FifoQueue {
        match &self.gone {
            Some(gone) if locked(gone.shard(hash)).take(hash) => FifoQueue::Main,
            _ => FifoQueue::Small,
        }
    }

    /// An object was evicted from the small queue.
    pub(crate) fn note_evicted(&self, hash: u64) {
        if let Some(gone) = &self.gone {
            locked(gone.shard(hash)).note(hash);
        }
    }

    /// Whether an object that is not there may be stored.
    pub(crate) fn admits(&self, hash: u64) -> bool {
        self.seen.as_ref().is_none_or(|seen| locked(seen.shard(hash)).admits(hash))
    }

    /// Whether that is so for all.
    pub(crate) fn admit_all(&self) -> bool {
        self.seen.is_none()
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        [&self.gone, &self.seen].into_iter().flatten().map(Known::memory_bytes).sum()
    }
}
