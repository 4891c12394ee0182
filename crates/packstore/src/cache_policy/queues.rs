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

/// Which segments an object goes to. A store, and a cache of another policy, has the small queue alone; but a store in which objects
/// expire has one queue more for each class of lifetimes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FifoQueue {
    Small,
    Main,
    /// Objects with a time to live, by what was left of it at the put: below [`LIFETIMES`].
    Lifetime(u8),
}

/// Classes of lifetimes: each is up to twice as long as the one before. The first ends at 128 s, the last begins at 24 days.
const LIFETIMES: u8 = 16;
const SHORTEST_LOG2_S: u32 = 6;
/// A volume has at most one class in this many segments: each has a segment that is being filled.
const SEGMENTS_PER_LIFETIME: u64 = 8;

impl FifoQueue {
    /// Queues that there can be.
    pub(crate) const COUNT: usize = 2 + LIFETIMES as usize;

    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (0..Self::COUNT as u8).map(Self::of)
    }

    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Small => 0,
            Self::Main => 1,
            Self::Lifetime(class) => 2 + class,
        }
    }

    /// Its place among all.
    pub(crate) fn at(self) -> usize {
        self.code().into()
    }

    pub(crate) fn of(code: u8) -> Self {
        match code {
            1 => Self::Main,
            2.. if usize::from(code) < Self::COUNT => Self::Lifetime(code - 2),
            _ => Self::Small,
        }
    }

    /// Of objects that expire in this many seconds.
    pub(crate) fn of_lifetime(left_s: u32) -> Self {
        let class = left_s.max(1).ilog2().saturating_sub(SHORTEST_LOG2_S);
        Self::Lifetime((class as u8).min(LIFETIMES - 1))
    }

    /// As it is in a volume of this many segments: a small one has fewer classes of lifetimes.
    pub(crate) fn within(self, segments: u64) -> Self {
        let Self::Lifetime(class) = self else { return self };
        let classes = (segments / SEGMENTS_PER_LIFETIME).clamp(1, LIFETIMES.into()) as u8;
        Self::Lifetime((u16::from(class) * u16::from(classes) / u16::from(LIFETIMES)) as u8)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_queue_comes_back_from_its_code_and_one_that_is_not_known_is_the_small_one() {
        for (at, queue) in FifoQueue::all().enumerate() {
            assert_eq!((queue.at(), FifoQueue::of(queue.code())), (at, queue));
        }
        assert_eq!(FifoQueue::all().count(), FifoQueue::COUNT);
        assert_eq!(FifoQueue::of(FifoQueue::COUNT as u8), FifoQueue::Small);
    }

    #[test]
    fn lifetimes_are_classed_by_powers_of_two_and_a_small_volume_has_fewer_classes() {
        let class = |left_s, segments| FifoQueue::of_lifetime(left_s).within(segments);
        let lifetime = FifoQueue::Lifetime;
        assert_eq!([0, 1, 127].map(|left_s| class(left_s, 256)), [lifetime(0); 3]);
        assert_eq!([128, 255, 256].map(|left_s| class(left_s, 256)), [lifetime(1), lifetime(1), lifetime(2)]);
        assert_eq!(class(u32::MAX, 256), lifetime(LIFETIMES - 1));
        assert_eq!([64, 3_600, u32::MAX].map(|left_s| class(left_s, 15)), [lifetime(0); 3]);
        assert_eq!([64, u32::MAX].map(|left_s| class(left_s, 16)), [lifetime(0), lifetime(1)]);
        assert_eq!(FifoQueue::Main.within(256), FifoQueue::Main);
    }
}
