//! Changes on their way to disk: which keys are being changed, what is staged on each volume, and the groups in which it is
//! written.
//!
//! ```text
//! caller --stage--> group --> volume's writer: bodies, index records, [sync] --> applied --> caller notified
//!                     cache mode: applied when staged, read from the group until written
//! ```
//!
//! 1. `stage` takes places in the files being filled, and appends records and index records to the group of a volume.
//! 2. `next_task` gives a volume's writer its next task: a group, room for the next objects, times of requests.
//! 3. `write_group` writes the group, syncs it where that was promised, and acknowledges it.
//!
//! Always holds: a group is staged whole or not at all, and none after its volume's writer was asked to stop: nobody would
//! write it. In store mode nothing is applied before its body and its index record are durable.
//! Not here: what a change means for the index (`Apply`); where room comes from (`make_room`).
//! Locks, in order: keys (by hash); a volume's turn; a volume's staging; the group being written. Only keys and the turn are
//! held across disk access. `Apply` is called with the turn held (store mode) or the staging (cache mode).

pub(crate) mod buffer;
pub(crate) mod direct;
pub(crate) mod filling;
pub(crate) mod group;
pub(crate) mod keys;
mod requests;
pub(crate) mod staging;
mod syncing;
mod tasks;
#[cfg(test)]
mod tests;
mod writing;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock, TryLockError};
use std::time::{Duration, Instant};

use buffer::Buffer;
use filling::{Filling, Fillings, Session};
use group::{Ack, After, Change, Group};
use keys::BusyKeys;
use requests::Requests;
use syncing::Syncing;
pub(crate) use tasks::{Pace, Task};

use crate::cache_policy::queues::FifoQueue;
use crate::error::StoreError;
use crate::locks::locked;
use crate::options::{CacheOptions, Mode, Shape};
use crate::segments::Segments;

/// What is changed by changes once they count: index, live blocks, links.
pub(crate) trait Apply {
    /// Makes a change count. Returns what is to be done after it, without locks.
    fn apply(&self, change: &Change) -> Option<After>;
    /// Cache mode: makes a change count no more that did not reach the disk.
    fn undo(&self, change: &Change);
}

/// What all volumes' queues share.
pub(crate) struct WriteQueue {
    mode: Mode,
    /// Segments are filled one after the other.
    cyclic: bool,
    read_only: bool,
    shape: Shape,
    behind_bytes_max: u64,
    behind_max: Duration,
    segments: Arc<Segments>,
    keys: BusyKeys,
    /// The next sequence number.
    sequence: AtomicU64,
    closing: AtomicBool,
}

impl WriteQueue {
    pub(crate) fn new(
        mode: Mode,
        cyclic: bool,
        read_only: bool,
        shape: Shape,
        options: &CacheOptions,
        segments: Arc<Segments>,
    ) -> Self {
        Self {
            mode,
            cyclic,
            read_only,
            shape,
            behind_bytes_max: options.behind_bytes_max,
            behind_max: options.behind_max,
            segments,
            keys: BusyKeys::new(),
            sequence: AtomicU64::new(1),
            closing: AtomicBool::new(false),
        }
    }

    /// Keys that are being changed.
    pub(crate) fn keys(&self) -> &BusyKeys {
        &self.keys
    }

    /// A number that is higher than all before it.
    pub(crate) fn next_sequence(&self) -> u64 {
        self.sequence.fetch_add(1, Ordering::SeqCst)
    }

    /// The number that [`Self::next_sequence`] returns next.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence.load(Ordering::SeqCst)
    }

    pub(crate) fn set_sequence(&self, next: u64) {
        self.sequence.store(next, Ordering::SeqCst);
    }

    /// The store is being closed: nothing is staged any more.
    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    /// Lets the volumes' writers write what is staged, and end then.
    pub(crate) fn stop(&self) {
        self.closing.store(true, Ordering::SeqCst);
        for volume in self.segments.all_volumes() {
            locked(&volume.queue.staging).stop = true;
            volume.queue.work.notify_all();
            volume.queue.room.notify_all();
        }
    }
}

/// What waits to be written to one volume.
pub(crate) struct VolumeQueue {
    /// Held while a group is written, from its leaving `staging` on: by the volume's writer, or by who needs all volumes
    /// durable.
    turn: Mutex<Turn>,
    staging: Mutex<Staging>,
    /// The writer waits here.
    work: Condvar,
    /// Those who stage wait here for room.
    room: Condvar,
    /// The group being written, in cache mode, where its objects are read meanwhile.
    inflight: RwLock<Option<Arc<Group>>>,
    /// Whether there may be objects that are only in memory.
    dirty: AtomicBool,
}

/// What who writes to a volume needs.
#[derive(Default)]
struct Turn {
    /// Files written to since they were last synced.
    unsynced: Vec<Arc<Session>>,
    syncing: Syncing,
}

/// What waits to be written.
struct Staging {
    group: Group,
    /// Where objects go, by [`crate::cache_policy::queues::FifoQueue`].
    queues: [Fillings; FifoQueue::COUNT],
    stop: bool,
    /// A group is being written.
    writing: bool,
    /// What was written is not synced yet.
    unsynced: bool,
    /// When the oldest change that is not durable was made.
    oldest: Option<Instant>,
    /// An emptied buffer, to be used again.
    spare: Buffer,
    /// Store mode: the writer waits a little for as many to be staged as waited for the last group.
    stagings_wanted: usize,
    /// Objects whose time of the last request is to be written.
    requests: Requests,
}

impl Staging {
    /// What the writer takes next; an error once it was asked to stop, as nobody would write it.
    fn group_to_add_to(&mut self) -> Result<&mut Group, StoreError> {
        if self.stop { Err(StoreError::Closed) } else { Ok(&mut self.group) }
    }
}

impl VolumeQueue {
    pub(crate) fn new() -> Self {
        Self {
            turn: Mutex::default(),
            staging: Mutex::new(Staging {
                group: Group::new(Buffer::default()),
                queues: Default::default(),
                stop: false,
                writing: false,
                unsynced: false,
                oldest: None,
                spare: Buffer::default(),
                stagings_wanted: 1,
                requests: Requests::default(),
            }),
            work: Condvar::new(),
            room: Condvar::new(),
            inflight: RwLock::new(None),
            dirty: AtomicBool::new(false),
        }
    }

    /// Asks for all that is staged to be durable, which is acknowledged then.
    pub(crate) fn ask_for_sync(&self) -> Arc<Ack> {
        let mut staging = locked(&self.staging);
        staging.group.sync = true;
        self.work.notify_one();
        staging.group.ack.clone()
    }

    /// Asks for the group of this acknowledgement to be written soon, if it is still staged here.
    pub(crate) fn ask_for_write(&self, ack: &Arc<Ack>) {
        let mut staging = locked(&self.staging);
        if Arc::ptr_eq(&staging.group.ack, ack) {
            staging.group.write_now = true;
            self.work.notify_one();
        }
    }

    /// Waits until the group that is being written is, and lets go of the files being filled.
    pub(crate) fn let_go_of_files(&self) {
        drop(locked(&self.turn));
        locked(&self.staging).queues = Default::default();
    }

    /// Ends the filling of all files for now. What is put next finds room again. The caller has flushed.
    pub(crate) fn retire_files(&self) {
        drop(locked(&self.turn));
        let mut staging = locked(&self.staging);
        for fillings in &mut staging.queues {
            fillings.now.drain(..).for_each(Filling::retire);
            fillings.next = None;
        }
    }

    /// Notes that an object was requested, for its time on disk. Never waits: a note is dropped when another thread stages.
    pub(crate) fn note_request(&self, hash: u64, key: &[u8]) {
        let mut staging = match self.staging.try_lock() {
            Ok(staging) => staging,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        if staging.requests.note(hash, key) {
            self.work.notify_one();
        }
    }

    /// Whether there may be records that are only in memory.
    pub(crate) fn may_have_unwritten(&self) -> bool {
        self.dirty.load(Ordering::SeqCst)
    }

    /// Whether the record at this file's block is only in memory.
    pub(crate) fn is_unwritten(&self, file: u32, block: u32) -> bool {
        let at = (file, block);
        // The lock is let go of before the other is taken.
        let staged = locked(&self.staging).group.records.contains_key(&at);
        let inflight = self.inflight.read().unwrap_or_else(PoisonError::into_inner);
        staged || inflight.as_ref().is_some_and(|group| group.records.contains_key(&at))
    }

    /// The record at this file's block, when it is only in memory.
    pub(crate) fn unwritten(&self, file: u32, block: u32) -> Option<Vec<u8>> {
        if !self.may_have_unwritten() {
            return None;
        }
        let at = (file, block);
        let staging = locked(&self.staging);
        if let Some(&(start, len)) = staging.group.records.get(&at) {
            return Some(staging.group.bytes.at(start..start + len).to_vec());
        }
        drop(staging);
        let inflight = self.inflight.read().unwrap_or_else(PoisonError::into_inner).clone();
        let group = inflight?;
        let &(start, len) = group.records.get(&at)?;
        Some(group.bytes.at(start..start + len).to_vec())
    }
}
