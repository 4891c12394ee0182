//! A desk: where the changes of some URIs are asked for.
//!
//! Always holds: its clerk finds the jobs in the order they were given; who makes a change holds the turn of its URI, which is
//! to be had at once only while no job waits for it. Some URIs share a turn: so few that one which waits, for a store that
//! looks for room, does not send all that come after it the long way.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use super::backlog::Backlog;
use super::job::Job;

/// Turns of a desk.
const TURNS: usize = 256;

/// Where the changes of some URIs are made.
pub(super) struct Desk {
    jobs: Sender<(TurnNumber, Job)>,
    turns: Box<[Turn]>,
    bodies_begun: AtomicU64,
    /// Of all desks.
    pub(super) backlog: Arc<Backlog>,
}

/// Whose changes are made one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TurnNumber(usize);

#[derive(Default)]
pub(super) struct Turn {
    /// Given, and not done yet.
    pub(super) waiting: AtomicUsize,
    /// Held while a change is made.
    held: Mutex<()>,
}

impl Desk {
    /// And where its clerk finds the jobs.
    pub(super) fn new(backlog: Arc<Backlog>) -> (Self, Receiver<(TurnNumber, Job)>) {
        let (jobs, given) = channel();
        let turns = (0..TURNS).map(|_| Turn::default()).collect();
        (Self { jobs, turns, bodies_begun: AtomicU64::new(0), backlog }, given)
    }

    /// Of a URI with this hash.
    pub(super) fn number(&self, hash: u64) -> TurnNumber {
        TurnNumber(hash as usize % self.turns.len())
    }

    pub(super) fn turn(&self, number: TurnNumber) -> &Turn {
        &self.turns[number.0]
    }

    /// False when its clerk is gone.
    pub(super) fn give(&self, number: TurnNumber, job: Job) -> bool {
        self.turn(number).waiting.fetch_add(1, Ordering::SeqCst);
        // A clerk that is gone has dropped what would tell of it, and that is told as not stored.
        self.jobs.send((number, job)).is_ok()
    }

    /// False when too much waits already.
    pub(super) fn give_if_room(&self, number: TurnNumber, job: Job) -> bool {
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

impl Turn {
    pub(super) fn take(&self) -> MutexGuard<'_, ()> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing while somebody else has it, or waits for it.
    pub(super) fn take_at_once(&self) -> Option<MutexGuard<'_, ()>> {
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
