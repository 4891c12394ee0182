//! The open tree: changes are made in memory and journaled in one step, handed to the kernel before a call returns, and
//! synced together for all who ask at the same time.
//!
//! ```text
//! change:  state lock [check, append to the journal, apply to the table] -> hand over (one write for all who wait)
//! sync:    hand over -> zeros ahead -> one fdatasync of `space` for all who ask -> frees what marks allow -> a mark
//! ```
//!
//! Locks, in order: a file's stripe, `growing`, `merging`, `manifest` (across the writing of a run), `syncing` (never across the
//! disk), `ahead`, `writing` (the journal's own: across a write of journal bytes into the page cache), `state` (across the disk only when
//! the cache of names forgets blocks faster than they are looked at).
//!
//! Always holds: contents are handed to the kernel before the record that names them is appended; after a failed write or
//! sync nothing is written any more.
//! Not here: paths and open files (`file_system`), opening and recovery (`opening`).

mod ahead;
mod checkpointing;
mod contents;
mod holding;
mod looking;
mod reshaping;
mod room;
mod workers;

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{
    Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
};

use disk::{Disk, DiskFile};
use files::Status;

use crate::error::{Refusal, TreeError};
use crate::format::{Record, TreeHead};
use crate::journal::Tail;
use crate::locking::TreeLock;
use crate::names::{BlockCache, Manifest};
use crate::space::Space;
use crate::spare::is_full;
use crate::table::{Blocks, Inode, Table};

pub(crate) use contents::{Cached, FILE_BYTES_MAX, piece_is_whole};
pub(crate) use holding::Held;
use looking::Fetches;
use workers::Workers;

/// Locks of files that are written: by inode number.
const STRIPES: usize = 64;

pub(crate) struct State {
    pub table: Table,
    pub space: Space,
    pub tail: Tail,
}

pub(crate) struct Engine {
    pub disk: Arc<dyn Disk>,
    pub file: Arc<dyn DiskFile>,
    pub shape: TreeHead,
    pub place: String,
    pub read_only: bool,
    /// The state's cache of names, for reading blocks without its lock.
    blocks: Arc<BlockCache>,
    state: RwLock<State>,
    writing: Mutex<Written>,
    /// As in `writing`, to be looked at without the lock.
    written: AtomicU64,
    syncing: Mutex<Syncing>,
    /// For syncs of an even and of an odd number.
    synced: [Condvar; 2],
    ahead: Mutex<ahead::Ahead>,
    growing: Mutex<()>,
    /// The last one that was written.
    manifest: Mutex<Manifest>,
    /// Whether merges are over, as one failed.
    merging: Mutex<bool>,
    /// Rooms of the journal when a checkpoint failed; 0 when the last one did not.
    rooms_at_failure: AtomicUsize,
    workers: OnceLock<Workers>,
    /// A merge is given up.
    is_closing: AtomicBool,
    stripes: Vec<Mutex<()>>,
    stopped: AtomicBool,
    syncs: AtomicU64,
    lock: TreeLock,
    /// Whether the file `spare` has its room.
    has_spare: AtomicBool,
    /// An opening has made durable what it found, and has said so.
    has_begun: AtomicBool,
}

/// What the kernel has.
#[derive(Clone, Copy, Default)]
struct Written {
    sequence: u64,
    /// The last of it that is no mark.
    changed: u64,
    /// The highest number that a mark among it says is durable.
    marked: u64,
}

#[derive(Default)]
struct Syncing {
    durable: u64,
    running: bool,
    /// Counts syncs that began.
    round: u64,
    /// What the one that runs makes durable, as far as it is known yet.
    covers: u64,
    /// Threads that wait for a sync of an even and of an odd number.
    waiting: [usize; 2],
}

impl State {
    /// Journals a change and makes it.
    pub(crate) fn commit(&mut self, record: &Record) -> Result<u64, Refusal> {
        self.table.prepare(record)?;
        let sequence = self.tail.append(record, &mut self.space)?;
        self.apply(record);
        Ok(sequence)
    }

    /// As [`State::commit`]. A change of an inode that is open and has no name is nothing that an opening should find.
    pub(crate) fn commit_to(&mut self, inode: Inode, record: &Record) -> Result<(), Refusal> {
        if self.table.is_orphan(inode) {
            self.table.prepare(record)?;
            self.apply(record);
            return Ok(());
        }
        self.commit(record).map(drop)
    }

    /// Makes a change that was prepared.
    fn apply(&mut self, record: &Record) {
        let mut blocks = Blocks::default();
        self.table.apply(record, &mut blocks);
        self.account(&blocks);
    }

    fn account(&mut self, blocks: &Blocks) {
        blocks.named.iter().for_each(|run| self.space.named(*run));
        blocks.freed.iter().for_each(|run| self.space.free_after(self.tail.last, *run));
    }
}

/// What an opening found, for [`Engine::new`].
pub(crate) struct Found {
    pub disk: Arc<dyn Disk>,
    pub file: Arc<dyn DiskFile>,
    pub shape: TreeHead,
    pub state: State,
    pub manifest: Manifest,
    pub read_only: bool,
    pub lock: TreeLock,
}

impl Engine {
    pub(crate) fn new(found: Found) -> Self {
        let last = found.state.tail.last;
        Self {
            place: found.disk.place(),
            disk: found.disk,
            file: found.file,
            shape: found.shape,
            read_only: found.read_only,
            blocks: found.state.table.blocks.clone(),
            state: RwLock::new(found.state),
            writing: Mutex::new(Written { sequence: last, changed: last, marked: 0 }),
            written: AtomicU64::new(last),
            syncing: Mutex::new(Syncing { durable: last, ..Syncing::default() }),
            synced: [Condvar::new(), Condvar::new()],
            ahead: Mutex::default(),
            growing: Mutex::new(()),
            manifest: Mutex::new(found.manifest),
            merging: Mutex::new(false),
            rooms_at_failure: AtomicUsize::new(0),
            workers: OnceLock::new(),
            is_closing: AtomicBool::new(false),
            stripes: (0..STRIPES).map(|_| Mutex::new(())).collect(),
            stopped: AtomicBool::new(false),
            syncs: AtomicU64::new(0),
            lock: found.lock,
            has_spare: AtomicBool::new(false),
            has_begun: AtomicBool::new(false),
        }
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, State> {
        self.state.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> RwLockWriteGuard<'_, State> {
        self.state.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn stripe(&self, inode: Inode) -> MutexGuard<'_, ()> {
        locked(&self.stripes[inode as usize % STRIPES])
    }

    pub(crate) fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    fn check_writable(&self) -> Result<(), Refusal> {
        if self.read_only {
            return Err(Status::ROFS.into());
        }
        Ok(self.check_going()?)
    }

    fn check_going(&self) -> Result<(), TreeError> {
        match self.stopped.load(Ordering::Acquire) {
            true => Err(TreeError::Stopped { place: self.place.clone() }),
            false => Ok(()),
        }
    }

    /// After this nothing is written: what the disk has is not known any more.
    fn stopping<T, E>(&self, done: Result<T, E>) -> Result<T, E> {
        if done.is_err() {
            self.stopped.store(true, Ordering::Release);
        }
        done
    }

    /// Makes a change, and returns once the kernel has it. `make` may run again after the file grew.
    pub(crate) fn change<T>(
        &self,
        mut make: impl FnMut(&mut State) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        self.check_writable()?;
        let mut fetches = Fetches::new(self);
        loop {
            let mut state = self.write();
            let segments = state.space.segments;
            let made = make(&mut state);
            let last = state.tail.last;
            drop(state);
            match made {
                Ok(value) => {
                    self.hand_over(last)?;
                    self.checkpoint_when_due();
                    return Ok(value);
                }
                Err(Refusal::Room) => self.grow(segments)?,
                Err(Refusal::Block(missing)) => fetches.fetch(&missing),
                Err(refusal) => return Err(refusal),
            }
        }
    }

    /// Returns once the kernel has all records up to this one.
    fn hand_over(&self, sequence: u64) -> Result<(), TreeError> {
        if self.written.load(Ordering::Acquire) >= sequence {
            return Ok(());
        }
        let mut written = locked(&self.writing);
        if written.sequence >= sequence {
            return Ok(());
        }
        self.check_going()?;
        let (pending, taken) = {
            let mut state = self.write();
            let Tail { last, changed, marked, .. } = state.tail;
            (state.tail.take_pending(), Written { sequence: last, changed, marked })
        };
        for (offset, bytes) in &pending {
            self.stopping(self.file.write_at(bytes, *offset))?;
        }
        *written = taken;
        self.written.store(taken.sequence, Ordering::Release);
        Ok(())
    }

    /// Makes everything durable that was changed before the call.
    pub(crate) fn sync(&self) -> Result<(), TreeError> {
        let changed = self.read().tail.changed;
        self.sync_to(changed)
    }

    fn sync_to(&self, sequence: u64) -> Result<(), TreeError> {
        let mut syncing = locked(&self.syncing);
        while syncing.durable < sequence {
            self.check_going().inspect_err(|_| self.synced.iter().for_each(Condvar::notify_all))?;
            if syncing.running {
                syncing = self.wait(syncing, sequence);
                continue;
            }
            syncing.running = true;
            syncing.round += 1;
            drop(syncing);
            let outcome = self.sync_all_written();
            syncing = locked(&self.syncing);
            syncing.running = false;
            self.wake(&syncing, outcome.is_err());
            syncing.durable = outcome?;
        }
        Ok(())
    }

    /// Waits for the sync that runs, if it began after this record was written, or else for the next one.
    fn wait<'a>(&self, mut syncing: MutexGuard<'a, Syncing>, sequence: u64) -> MutexGuard<'a, Syncing> {
        let round = if sequence <= syncing.covers { syncing.round } else { syncing.round + 1 };
        let group = (round % 2) as usize;
        syncing.waiting[group] += 1;
        syncing = self.synced[group].wait(syncing).unwrap_or_else(PoisonError::into_inner);
        syncing.waiting[group] -= 1;
        // Woken to run the next sync, and needs none: another of those who wait runs it.
        if !syncing.running && syncing.durable >= sequence && syncing.waiting[group] > 0 {
            self.synced[group].notify_one();
        }
        syncing
    }

    /// A sync has ended: all whose records it made durable are woken, and of those who need another, one, which runs it.
    fn wake(&self, syncing: &Syncing, is_over: bool) {
        let group = (syncing.round % 2) as usize;
        self.synced[group].notify_all();
        if is_over {
            self.synced[1 - group].notify_all();
        } else {
            self.synced[1 - group].notify_one();
        }
    }

    /// One sync; returns up to which record all is durable now.
    fn sync_all_written(&self) -> Result<u64, TreeError> {
        let last = self.read().tail.last;
        self.hand_over(last)?;
        let written = *locked(&self.writing);
        locked(&self.syncing).covers = written.sequence;
        self.write_ahead();
        self.stopping(self.file.sync())?;
        self.syncs.fetch_add(1, Ordering::Relaxed);
        let mut state = self.write();
        state.space.release(written.marked);
        let State { tail, space, .. } = &mut *state;
        if tail.marked < written.changed {
            // Without room the next sync says it.
            let _ = tail.append(&Record::Mark { durable: written.sequence }, space);
        }
        Ok(written.sequence)
    }

    /// Makes the last changes durable, and then the mark that says so: all that was freed can be used again.
    pub(crate) fn settle(&self) -> Result<(), TreeError> {
        self.sync()?;
        let last = self.read().tail.last;
        self.sync_to(last)
    }

    /// Ends a hold on an inode. One without a name is gone with its last hold.
    pub(crate) fn let_go(&self, inode: Inode) {
        let mut state = self.write();
        let mut blocks = Blocks::default();
        state.table.let_go(inode, &mut blocks);
        state.account(&blocks);
    }

    /// Begins to write after an opening: what was found is made durable, and so is where the journal continues. Whatever lies behind
    /// the end that was found never counts again.
    pub(crate) fn begin(&self) -> Result<(), Refusal> {
        self.file.sync()?;
        // On a full disk there may be no further segment, and a tree that cannot be opened cannot be emptied either.
        if self.read().space.free_rooms() == 0 {
            self.free_all_rooms();
        }
        let has_no_room = self.read().space.free_rooms() == 0;
        let continues = has_no_room && self.continue_last_room()?;
        let durable = self.read().tail.last;
        self.change(|state| state.commit(&Record::Mark { durable }))?;
        let last = self.read().tail.last;
        self.sync_to(last)?;
        self.has_begun.store(true, Ordering::Release);
        // There is little place in that room. Now what changes freed can be given up for a checkpoint.
        if continues && let Err(error) = self.checkpoint() {
            tracing::warn!(place = %self.place, error = error.with_cause(), "the changed names could not be written as a run");
        }
        self.retake_spare();
        Ok(())
    }

    /// Gets more room for a change that saw `segments` and found too little.
    fn grow(&self, segments: u32) -> Result<(), Refusal> {
        let _growing = locked(&self.growing);
        let (there, waiting, length, free_rooms, used_rooms) = {
            let state = self.read();
            let space = &state.space;
            let used_rooms = state.tail.used_rooms();
            (space.segments, space.waiting_bytes(), space.length_bytes(), space.free_rooms(), used_rooms)
        };
        if there != segments {
            return Ok(());
        }
        if waiting > u64::from(self.shape.segment_bytes).max(length / 8) && self.settled_more(waiting)? {
            return Ok(());
        }
        if free_rooms == 0 && used_rooms >= checkpointing::ROOMS_MIN {
            self.wait_for_merges();
            match self.checkpoint() {
                // Perhaps the file can grow.
                Err(TreeError::Disk(error)) if is_full(&error) => {}
                done => {
                    done?;
                    self.merge_when_due();
                    return Ok(());
                }
            }
        }
        let segment_bytes = u64::from(self.shape.segment_bytes);
        let grown = self.file.reserve(length, segment_bytes);
        match grown.and_then(|()| self.file.set_length(length + segment_bytes)) {
            Ok(()) => {
                self.write().space.grown();
                Ok(())
            }
            Err(error) if is_full(&error) => {
                // ext4 keeps what it had taken before it found that there is not enough.
                self.file.set_length(length)?;
                if self.settled_more(waiting)? || free_rooms == 0 && self.freed_rooms()? {
                    return Ok(());
                }
                Err(Status::NOSPC.into())
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Settles, and says whether less waits to be free after it.
    fn settled_more(&self, waiting_bytes: u64) -> Result<bool, TreeError> {
        if waiting_bytes > 0 {
            self.settle()?;
        }
        Ok(self.read().space.waiting_bytes() < waiting_bytes)
    }
}

/// A lock whose holders leave what it guards whole also when they panic.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
