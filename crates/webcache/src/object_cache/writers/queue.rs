//! A write queue: the jobs of some URIs, and the locks that serialize changes to one URI.
//!
//! Always holds: the store writer receives jobs in the order they were queued. A change holds the key lock of its URI;
//! `try_lock` succeeds only while no queued job needs that lock. URIs share the locks by hash; there are enough of them that
//! one slow change delays few other URIs.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use super::backlog::Backlog;
use super::job::Job;

/// Key locks per write queue.
const KEY_LOCKS: usize = 256;

/// The sending side of a queue, with its key locks.
pub(super) struct WriteQueue {
    jobs: Sender<(KeyLockNumber, Job)>,
    key_locks: Box<[KeyLock]>,
    bodies_started: AtomicU64,
    /// Shared by all write queues.
    pub(super) backlog: Arc<Backlog>,
}

/// The key lock of a URI, as an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyLockNumber(usize);

#[derive(Default)]
pub(super) struct KeyLock {
    /// Jobs that were queued and are not finished.
    pub(super) queued: AtomicUsize,
    /// Held while a change is made.
    mutex: Mutex<()>,
}

impl WriteQueue {
    /// Returns the queue and the receiver for its store writer.
    pub(super) fn new(backlog: Arc<Backlog>) -> (Self, Receiver<(KeyLockNumber, Job)>) {
        let (jobs, given) = channel();
        let key_locks = (0..KEY_LOCKS).map(|_| KeyLock::default()).collect();
        (Self { jobs, key_locks, bodies_started: AtomicU64::new(0), backlog }, given)
    }

    /// The key lock of a URI with this hash.
    pub(super) fn number(&self, hash: u64) -> KeyLockNumber {
        KeyLockNumber(hash as usize % self.key_locks.len())
    }

    pub(super) fn key_lock(&self, number: KeyLockNumber) -> &KeyLock {
        &self.key_locks[number.0]
    }

    /// Queues a job that counts against no bound. False when the store writer has stopped.
    pub(super) fn enqueue(&self, number: KeyLockNumber, job: Job) -> bool {
        self.key_lock(number).queued.fetch_add(1, Ordering::SeqCst);
        // When the store writer has stopped, the receipt's sender is dropped, which the caller takes as not stored.
        self.jobs.send((number, job)).is_ok()
    }

    /// Queues a job if the backlog has space for it.
    pub(super) fn try_enqueue(&self, number: KeyLockNumber, job: Job) -> bool {
        let fits = self.backlog.try_reserve(&job);
        if fits {
            self.enqueue(number, job);
        }
        fits
    }

    /// A number that is unique in this queue, for a streamed body.
    pub(super) fn next_body(&self) -> u64 {
        self.bodies_started.fetch_add(1, Ordering::Relaxed)
    }
}

impl KeyLock {
    pub(super) fn lock(&self) -> MutexGuard<'_, ()> {
        self.mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// `None` while a change holds the lock or a queued job needs it.
    pub(super) fn try_lock(&self) -> Option<MutexGuard<'_, ()>> {
        let held = match self.mutex.try_lock() {
            Ok(held) => held,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        (self.queued.load(Ordering::SeqCst) == 0).then_some(held)
    }

    /// Notes that a queued job has finished.
    pub(super) fn job_done(&self) {
        self.queued.fetch_sub(1, Ordering::SeqCst);
    }
}
