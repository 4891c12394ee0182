//! S3-FIFO in a cache of packed files: which objects go to which files, and how those that prove themselves change over.
//!
//! ```text
//! put --known since it went?--no--> Newcomers, a fifth of the files --asked for twice--> promoted, by a thread of its own
//!                           `-yes-> Proven <-------------------------------------------------'
//! ```
//!
//! Not here: who goes when a file is emptied (`refill`).
//! Source: Yang et al., "FIFO queues are all you need for cache eviction", SOSP 2023.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};

use crate::core::Core;
use crate::error::StoreError;
use crate::eviction::{FILES_FOR_LANES, Recent};
use crate::format::Kind;
use crate::group::Held;
use crate::keys::{Taken, locked};
use crate::options::{Admission, Eviction, Mode};
use crate::read::Record;
use crate::spot::Spot;
use crate::staging::NewRecord;
use crate::volume::Volume;

/// Which files an object goes to. A store, and a cache of another policy, has newcomers alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    Newcomers,
    Proven,
}

impl Lane {
    pub(crate) const ALL: [Self; 2] = [Self::Newcomers, Self::Proven];

    pub(crate) fn code(self) -> u8 {
        self as u8
    }

    pub(crate) fn of(code: u8) -> Self {
        if code == 1 { Self::Proven } else { Self::Newcomers }
    }
}

/// Requests after which a newcomer is proven.
pub(crate) const TOUCHES_FOR_PROVEN: u64 = 2;
/// Newcomers' share of the files, one in so many.
pub(crate) const NEWCOMERS_OF: usize = 5;
/// Records waiting to be promoted. One that finds no room is promoted at its next request, or spared when its file is emptied.
const PROMOTIONS_MAX: usize = 256;
const SHARDS: usize = 16;

/// Keys that were told of lately, in parts that are locked one by one.
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

/// What a cache knows of objects that it does not hold, and whom it is about to promote.
#[derive(Default)]
pub(crate) struct Lanes {
    /// Newcomers that had to go.
    gone: Option<Known>,
    /// Keys that were put once.
    seen: Option<Known>,
    promotions: Mutex<Option<SyncSender<Arc<Record>>>>,
    /// Who goes through all files: an object that changes files meanwhile would be passed over.
    walks: Mutex<u32>,
}

/// Nothing is promoted while it is held.
pub(crate) struct Walk(Arc<Core>);

impl Walk {
    pub(crate) fn begin(core: &Arc<Core>) -> Self {
        *locked(&core.lanes.walks) += 1;
        Self(core.clone())
    }
}

impl Drop for Walk {
    fn drop(&mut self) {
        *locked(&self.0.lanes.walks) -= 1;
    }
}

impl Lanes {
    /// For a cache of so many objects.
    pub(crate) fn new(eviction: Eviction, admission: Admission, objects: u64) -> Self {
        Self {
            gone: (eviction == Eviction::S3Fifo).then(|| Known::of(objects - objects / 10)),
            seen: (admission == Admission::SecondRequest).then(|| Known::of(objects)),
            promotions: Mutex::default(),
            walks: Mutex::default(),
        }
    }

    /// Its files are told apart.
    pub(crate) fn are_two(&self) -> bool {
        self.gone.is_some()
    }

    /// Where a new object with this hash goes.
    pub(crate) fn lane_of(&self, hash: u64) -> Lane {
        match &self.gone {
            Some(gone) if locked(gone.shard(hash)).take(hash) => Lane::Proven,
            _ => Lane::Newcomers,
        }
    }

    /// A newcomer had to go.
    pub(crate) fn note_gone(&self, hash: u64) {
        if let Some(gone) = &self.gone {
            locked(gone.shard(hash)).note(hash);
        }
    }

    /// Whether an object that is not there may be stored.
    pub(crate) fn admits(&self, hash: u64) -> bool {
        self.seen.as_ref().is_none_or(|seen| locked(seen.shard(hash)).admits(hash))
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        [&self.gone, &self.seen].into_iter().flatten().map(Known::memory_bytes).sum()
    }

    /// Those to be promoted from now on.
    pub(crate) fn open(&self) -> Receiver<Arc<Record>> {
        let (promotions, records) = sync_channel(PROMOTIONS_MAX);
        *locked(&self.promotions) = Some(promotions);
        records
    }

    pub(crate) fn close(&self) {
        *locked(&self.promotions) = None;
    }
}

impl Core {
    /// Whether this volume's files are told apart.
    pub(crate) fn has_lanes(&self, volume: &Volume) -> bool {
        let files = volume.size_bytes.load(Ordering::Relaxed) / self.shape.packed_bytes();
        self.mode == Mode::Cache && self.lanes.are_two() && files >= FILES_FOR_LANES
    }

    /// Where an object goes that replaces another, or none.
    pub(crate) fn lane_for(&self, hash: u64, old: Option<&Held>) -> Lane {
        if self.mode == Mode::Store {
            return Lane::Newcomers;
        }
        match old.and_then(|old| self.file(Spot::of(old.place, self.shape).file)) {
            Some(file) => Lane::of(file.lane.load(Ordering::Relaxed)),
            None => {
                self.touched.reset(hash);
                self.lanes.lane_of(hash)
            }
        }
    }

    /// The record was asked for, so often since the hand last came by.
    pub(crate) fn asked_for(&self, record: &Arc<Record>) {
        let count = self.touched.touch(record.held.hash);
        if count < TOUCHES_FOR_PROVEN || !self.lanes.are_two() || record.head.kind != Kind::Whole {
            return;
        }
        let lane = self.file(record.spot.file).map(|file| file.lane.load(Ordering::Relaxed));
        if lane == Some(Lane::Newcomers.code())
            && let Some(promotions) = &*locked(&self.lanes.promotions)
        {
            let _ = promotions.try_send(record.clone());
        }
    }

    /// Writes those who proved themselves to the other files, until there will be no more.
    pub(crate) fn promote_all(&self, records: &Receiver<Arc<Record>>) {
        for record in records {
            match self.promote(&record) {
                Ok(()) | Err(StoreError::Full | StoreError::VolumeFailed { .. }) => {}
                Err(_) => return,
            }
        }
    }

    fn promote(&self, record: &Record) -> Result<(), StoreError> {
        let hash = record.held.hash;
        let taken = Taken::one(&self.keys, hash);
        if record.head.internal || !self.table.find(hash).any(|place| place == record.held.place) {
            return Ok(());
        }
        let Some(file) = self.file(record.spot.file) else { return Ok(()) };
        let counts = file.generation.load(Ordering::SeqCst) == record.generation
            && file.lane.load(Ordering::Relaxed) == Lane::Newcomers.code();
        if !counts || !self.has_lanes(&self.volume(file.volume)) {
            return Ok(());
        }
        let mut head = record.head;
        head.sequence = self.next_sequence();
        let moved = NewRecord {
            head,
            key: record.key(),
            meta: record.meta(),
            body: record.body(),
            hash,
            id: 0,
            length: 0,
            old: Some(record.held),
            moved: true,
            lane: Lane::Proven,
        };
        // Held until it counts, which in a cache is at once: whoever begins to walk then finds it where it is.
        let walks = locked(&self.lanes.walks);
        if *walks > 0 {
            return Ok(());
        }
        self.stage(&[moved], &[], Vec::new(), taken.hand_over())?;
        drop(walks);
        self.touched.reset(hash);
        Ok(())
    }
}
