//! The bytes that wait for all store writers together.
//!
//! Always holds: reservations never exceed the bound. Tasks that wait for space are woken whenever some is released. Streamed
//! bodies wait for space and may use three quarters of it; whole replies never wait, and the last quarter is left for them.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

use super::job::Job;

/// Accounts for the bytes of jobs that were queued and are not finished.
pub(super) struct Backlog {
    bytes: AtomicU64,
    bytes_max: u64,
    /// Wakes waiting tasks when bytes are released.
    pub(super) space_freed: Notify,
}

impl Backlog {
    pub(super) fn new(bytes_max: u64) -> Self {
        Self { bytes: AtomicU64::new(0), bytes_max, space_freed: Notify::new() }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Whether the job fits while nothing else is waiting.
    pub(super) fn fits_when_empty(&self, job: &Job) -> bool {
        job.bytes() <= self.bytes_max(job)
    }

    fn bytes_max(&self, job: &Job) -> u64 {
        match job {
            Job::Begin { .. } | Job::Append { .. } => self.bytes_max - self.bytes_max / 4,
            _ => self.bytes_max,
        }
    }

    /// Reserves the job's bytes if they fit.
    pub(super) fn try_reserve(&self, job: &Job) -> bool {
        let bytes = job.bytes();
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let fits = before + bytes <= self.bytes_max(job);
        if !fits {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        fits
    }

    /// Releases the bytes of a finished job.
    pub(super) fn release(&self, bytes: u64) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.space_freed.notify_waiters();
    }
}
