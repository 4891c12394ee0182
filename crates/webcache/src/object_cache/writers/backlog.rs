//! How much waits for all store writers together.
//!
//! Always holds: no more is counted in than may wait; who waits for room is told whenever there is more of it; bodies that come in
//! parts, which wait for room, leave a quarter of it to whole replies, which do not.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

use super::job::Job;

/// The jobs that were given and are not done yet, by their bytes.
pub(super) struct Backlog {
    bytes: AtomicU64,
    bytes_max: u64,
    /// Told when less waits.
    pub(super) room: Notify,
}

impl Backlog {
    pub(super) fn new(bytes_max: u64) -> Self {
        Self { bytes: AtomicU64::new(0), bytes_max, room: Notify::new() }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether a job has room once nothing else waits.
    pub(super) fn can_ever_take(&self, job: &Job) -> bool {
        job.bytes() <= self.bytes_max(job)
    }

    fn bytes_max(&self, job: &Job) -> u64 {
        match job {
            Job::Begin { .. } | Job::More { .. } => self.bytes_max - self.bytes_max / 4,
            _ => self.bytes_max,
        }
    }

    /// Counts a job in, if there is room for it.
    pub(super) fn take(&self, job: &Job) -> bool {
        let bytes = job.bytes();
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let fits = before + bytes <= self.bytes_max(job);
        if !fits {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        fits
    }

    /// What [`Backlog::take`] counted in for a job that is done.
    pub(super) fn give_back(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.room.notify_waiters();
    }
}
