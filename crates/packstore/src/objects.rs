//! The objects of a store, above the four components that keep them: how a change counts, how a record is read, what large
//! and shared objects are made of.
//!
//! ```text
//! Store --stage--> WriteQueue --apply--> Index, live blocks of Segments, links
//! Store --find---> Index --> unwritten bytes of WriteQueue, else the data file of a segment --> Record
//! ```
//!
//! Always holds: a change counts as a whole or not at all; what it leaves without an owner (pieces, shared objects) is
//! forgotten after it, without locks.
//! Not here: when the store is ready and what its users call (`store`); recovery, compaction, checks (`procedures`).
//! Locks: `links` and `open` are leaves.

mod large;
pub(crate) mod object;
pub(crate) mod read;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use large::Opened;

use crate::cache_policy::CachePolicy;
use crate::cache_policy::queues::FifoQueue;
use crate::clock::StoreClock;
use crate::error::StoreError;
use crate::format::body_salt;
use crate::index::Index;
use crate::locks::locked;
use crate::options::{Mode, Shape, Verify};
use crate::segments::Segments;
use crate::segments::segment::Segment;
use crate::segments::volume::Volume;
use crate::write_queue::group::{Ack, After, Change, TableEntry};
use crate::write_queue::keys::Taken;
use crate::write_queue::staging::{NewRecord, Operation, Patience};
use crate::write_queue::{Apply, WriteQueue};

/// The components of a store, and the objects in them.
pub(crate) struct Objects {
    pub setup: Setup,
    pub segments: Arc<Segments>,
    pub index: Index,
    pub policy: CachePolicy,
    pub queue: WriteQueue,
    /// By which objects expire.
    pub clock: StoreClock,
    /// Names of each shared object.
    links: Mutex<HashMap<u64, u32>>,
    /// Large objects that somebody reads.
    open: Mutex<HashMap<u64, Opened>>,
    damaged_reads: AtomicU64,
    disk_reads: AtomicU64,
    /// Counts reads, to choose those that are compared.
    sampled: AtomicU64,
}

/// What does not change while a store is open.
#[derive(Clone, Copy)]
pub(crate) struct Setup {
    /// The store's number.
    pub store: u128,
    pub hash_seed: u64,
    pub mode: Mode,
    /// Objects have a time to live.
    pub expires: bool,
    /// The oldest objects are overwritten when it is full.
    pub cyclic: bool,
    pub read_only: bool,
    pub shape: Shape,
    pub verify: Verify,
    /// Whether long writes bypass the page cache.
    pub direct_writes: bool,
    /// How often the store was opened for writing, this time included.
    pub openings: u64,
}

impl Setup {
    /// Whether objects are evicted.
    pub(crate) fn evicts(&self) -> bool {
        self.mode == Mode::Cache && !self.read_only
    }

    /// Whether parts of an object may be gone while the others are there: then the object is.
    pub(crate) fn loses_parts(&self) -> bool {
        self.mode == Mode::Cache || self.cyclic
    }

    /// With what the checksums of a data file's records are salted.
    pub(crate) fn body_salt(&self, file: u32) -> u32 {
        body_salt(self.store, file)
    }
}

impl Objects {
    pub(crate) fn new(
        setup: Setup,
        segments: Arc<Segments>,
        index: Index,
        policy: CachePolicy,
        queue: WriteQueue,
        clock: StoreClock,
    ) -> Self {
        Self {
            setup,
            segments,
            index,
            policy,
            queue,
            clock,
            links: Mutex::default(),
            open: Mutex::default(),
            damaged_reads: AtomicU64::new(0),
            disk_reads: AtomicU64::new(0),
            sampled: AtomicU64::new(0),
        }
    }

    /// Whether the time to live is over of an object that expires then, in seconds since 1970.
    pub(crate) fn has_expired(&self, expires_s: u32) -> bool {
        self.setup.expires && expires_s != 0 && expires_s <= self.clock.now_s()
    }

    /// The time for the head of an index.
    pub(crate) fn time_of_heads(&self) -> u32 {
        if self.setup.expires { self.clock.now_s() } else { 0 }
    }

    /// Where an object of a store goes.
    pub(crate) fn lifetime_queue(&self, expires_s: u32) -> FifoQueue {
        match self.setup.expires && !self.setup.cyclic && expires_s != 0 {
            true => FifoQueue::of_lifetime(expires_s.saturating_sub(self.clock.now_s())),
            false => FifoQueue::Small,
        }
    }

    /// Where an object goes that is moved out of a segment.
    pub(crate) fn queue_of_moved(&self, segment: &Segment, expires_s: u32) -> FifoQueue {
        match self.setup.mode {
            Mode::Store => self.lifetime_queue(expires_s),
            Mode::Cache => FifoQueue::of(segment.queue_kind.load(Ordering::Relaxed)),
        }
    }

    /// Where an object goes that replaces another, or none.
    pub(crate) fn queue_for(&self, hash: u64, old: Option<&TableEntry>, expires_s: u32) -> FifoQueue {
        if self.setup.mode == Mode::Store {
            return self.lifetime_queue(expires_s);
        }
        match old.and_then(|old| self.segments.segment_at(old.location)) {
            Some(segment) => FifoQueue::of(segment.queue_kind.load(Ordering::Relaxed)),
            None => self.policy.queue_of_new(hash),
        }
    }

    /// How many names each shared object has.
    pub(crate) fn links(&self) -> HashMap<u64, u32> {
        locked(&self.links).clone()
    }

    pub(crate) fn set_links(&self, links: HashMap<u64, u32>) {
        *locked(&self.links) = links;
    }

    /// Shared objects.
    pub(crate) fn shared_objects(&self) -> usize {
        locked(&self.links).len()
    }

    /// Stages records, and removals of objects, all on one volume and in one group. Cache mode: they count at once. The keys
    /// that are `taken` are given back when the changes count.
    pub(crate) fn stage(
        &self,
        records: &[NewRecord<'_>],
        removals: &[(u64, TableEntry)],
        more: &[Change],
        taken: Option<Taken<'_>>,
        patience: Patience,
    ) -> Result<Arc<Ack>, StoreError> {
        let keys = taken.as_ref().map_or(&[][..], Taken::hashes);
        let operation = Operation { records, removals, more, keys, patience };
        let (ack, after) = self.queue.stage(&operation, &self.policy, self)?;
        after.iter().for_each(|after| self.do_after(after));
        if let Some(taken) = taken.filter(|_| self.setup.mode == Mode::Store) {
            // By the volume's writer.
            taken.hand_over();
        }
        Ok(ack)
    }

    /// Writes what is staged on a volume. Any thread may call it, a writer too.
    pub(crate) fn write_group(&self, volume: &Volume, sync: bool) {
        let after = self.queue.write_group(volume, sync, self);
        after.iter().for_each(|after| self.do_after(after));
    }

    /// Makes all that counts durable, on all volumes. A cache's changes count before they are: what they superseded must not
    /// leave the disk before this. Any thread may call it, a writer too: turns are held for a volume's own writes alone.
    pub(crate) fn make_durable(&self) {
        self.segments.all_volumes().iter().for_each(|volume| self.write_group(volume, true));
    }

    /// Makes changes count that need no writing. The caller holds no locks but the keys'.
    pub(crate) fn apply_now(&self, changes: &[Change]) {
        let after = changes.iter().filter_map(|change| self.apply(change)).collect::<Vec<_>>();
        after.iter().for_each(|after| self.do_after(after));
    }

    fn do_after(&self, after: &After) {
        match after {
            After::Forget(id) => self.forget_shared(*id),
            After::Pieces(manifest) => self.remove_pieces(manifest),
        }
    }

    /// False when it was not there any more.
    pub(crate) fn remove(&self, entry: &TableEntry) -> bool {
        let there = self.index.remove(entry);
        if there {
            self.segments.lose(entry.location, entry.blocks);
        }
        there
    }
}

impl Apply for Objects {
    fn apply(&self, change: &Change) -> Option<After> {
        match change {
            Change::Put { new, old } => {
                self.index.make_certain(new.hash);
                self.segments.gain(new.location, new.blocks);
                match old {
                    Some(old) if self.index.replace(old, new) => self.segments.lose(old.location, old.blocks),
                    _ => self.index.insert(new),
                }
            }
            Change::Remove(entry) => {
                self.remove(entry);
            }
            Change::Move { new, old } => {
                if self.index.replace(old, new) {
                    self.segments.gain(new.location, new.blocks);
                    self.segments.lose(old.location, old.blocks);
                }
            }
            Change::Pieces(manifest) => return Some(After::Pieces(manifest.clone())),
            Change::Link(id) => *locked(&self.links).entry(*id).or_insert(0) += 1,
            Change::Unlink(id) => {
                let mut links = locked(&self.links);
                let left = links.get_mut(id)?;
                *left = left.saturating_sub(1);
                if *left == 0 {
                    links.remove(id);
                    return Some(After::Forget(*id));
                }
            }
        }
        None
    }

    fn undo(&self, change: &Change) {
        // Wherever it was before, it counts no more.
        if let Change::Put { new, .. } | Change::Move { new, .. } = change {
            self.remove(new);
        }
    }
}
