//! A desk: where the changes of some URIs are asked for, and made one at a time.
//!
//! Always holds: its clerk finds the jobs in the order they were given; who makes a change holds the desk's turn, which is to
//! be had at once only while no job waits.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use super::backlog::Backlog;
use super::job::Job;

/// Where the changes of some URIs are made.
pub(super) struct Desk {
    jobs: Sender<Job>,
    /// Given, and not done yet.
    pub(super) waiting: AtomicUsize,
    /// Held while a change is made.
    turn: Mutex<()>,
    bodies_begun: AtomicU64,
    /// Of all desks.
    pub(super) backlog: Arc<Backlog>,
}

impl Desk {
    /// And where its clerk finds the jobs.
    pub(super) fn new(backlog: Arc<Backlog>) -> (Self, Receiver<Job>) {
        let (jobs, given) = channel();
        let (waiting, bodies_begun) = (AtomicUsize::new(0), AtomicU64::new(0));
        (Self { jobs, waiting, turn: Mutex::default(), bodies_begun, backlog }, given)
    }

    /// False when its clerk is gone.
    pub(super) fn give(&self, job: Job) -> bool {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        // A clerk that is gone has dropped what would tell of it, and that is told as not stored.
        self.jobs.send(job).is_ok()
    }

    /// False when too much waits already.
    pub(super) fn give_if_room(&self, job: Job) -> bool {
        let fits = self.backlog.take(&job);
        if fits {
            self.give(job);
        }
        fits
    }

    pub(super) fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing while somebody else makes a change here, or waits to.
    pub(super) fn turn_at_once(&self) -> Option<MutexGuard<'_, ()>> {
        let turn = match self.turn.try_lock() {
            Ok(turn) => turn,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        (self.waiting.load(Ordering::SeqCst) == 0).then_some(turn)
    }

    /// A number that no other body has here.
    pub(super) fn next_body(&self) -> u64 {
        self.bodies_begun.fetch_add(1, Ordering::Relaxed)
    }
}
