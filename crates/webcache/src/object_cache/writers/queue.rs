//! A write queue: where the changes of some URIs are asked for.
//!
//! Always holds: its store writer finds the jobs in the order they were given. Whoever makes a change holds the key lock of its
//! URI; `try_take` succeeds only while no queued job needs that lock. Some URIs share a lock: so few that one which waits, for a
//! store that looks for room, does not send all that come after it the long way.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use super::backlog::Backlog;
use super::job::Job;

/// Key locks of a write queue.
const KEY_LOCKS: usize = 256;

/// Where the changes of some URIs are made.
pub(super) struct WriteQueue {
    jobs: Sender<(KeyLockNumber, Job)>,
    key_locks: Box<[KeyLock]>,
    bodies_begun: AtomicU64,
    /// Of all write queues.
    pub(super) backlog: Arc<Backlog>,
}

/// Whose changes are made one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyLockNumber(usize);

#[derive(Default)]
pub(super) struct KeyLock {
    /// Given, and not done yet.
    pub(super) waiting: AtomicUsize,
    /// Held while a change is made.
    held: Mutex<()>,
}

impl WriteQueue {
    /// And where its store writer finds the jobs.
    pub(super) fn new(backlog: Arc<Backlog>) -> (Self, Receiver<(KeyLockNumber, Job)>) {
        let (jobs, given) = channel();
        let key_locks = (0..KEY_LOCKS).map(|_| KeyLock::default()).collect();
        (Self { jobs, key_locks, bodies_begun: AtomicU64::new(0), backlog }, given)
    }

    /// Of a URI with this hash.
    pub(super) fn number(&self, hash: u64) -> KeyLockNumber {
        KeyLockNumber(hash as usize % self.key_locks.len())
    }

    pub(super) fn key_lock(&self, number: KeyLockNumber) -> &KeyLock {
        &self.key_locks[number.0]
    }

    /// False when its store writer is gone.
    pub(super) fn give(&self, number: KeyLockNumber, job: Job) -> bool {
        self.key_lock(number).waiting.fetch_add(1, Ordering::SeqCst);
        // A store writer that is gone has dropped what would tell of it, and that is told as not stored.
        self.jobs.send((number, job)).is_ok()
    }

    /// False when too much waits already.
    pub(super) fn give_if_room(&self, number: KeyLockNumber, job: Job) -> bool {
        let fits = self.backlog.take(&job);
        if fits {
            self.give(number, job);
        }
        fits
    }

    /// A number that no other body has here.
    pub(super) fn next_body(&self) -> u64 {
        self.bodies_begun.fetch_add(1, Ordering::Relaxed)
    }
}

impl KeyLock {
    pub(super) fn take(&self) -> MutexGuard<'_, ()> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing while somebody else has it, or waits for it.
    pub(super) fn try_take(&self) -> Option<MutexGuard<'_, ()>> {
        let held = match self.held.try_lock() {
            Ok(held) => held,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        (self.waiting.load(Ordering::SeqCst) == 0).then_some(held)
    }

    /// A job that was given is done.
    pub(super) fn done(&self) {
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}
