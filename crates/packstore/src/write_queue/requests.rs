//! Times of requests: readers note them, a volume's writer writes them into the records, in place.
//!
//! As with `relatime` of a file system, a time is written only when the one on disk is older than [`STEP_S`]: a hot object
//! costs 12 bytes a day, and the time of a request is at most a day older than the request.
//!
//! Always holds: who reads never waits. A note is dropped when the writer has too many already, when its lock is held, or when
//! the key is being changed: the next request notes it again.
//! Not here: `Store::touch`, which writes at once and always.

use std::collections::HashMap;
use std::sync::TryLockError;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::core::Core;
use crate::error::StoreError;
use crate::format::Name;
use crate::read::Depth;
use crate::write_queue::group::Held;
use crate::write_queue::keys::{Hashed, Taken};

/// A time on disk that is younger than this stays.
const STEP_S: u32 = 24 * 60 * 60;
/// Notes of a volume; more are dropped.
const NOTES_MAX: usize = 1024;
/// The writer is woken once for all that come within this.
const GATHERED: Duration = Duration::from_secs(1);
/// Written between two groups at most: puts wait no longer for the sake of reads.
const WRITTEN_AT_ONCE: usize = 32;

/// Objects that were requested, by the hashes of their keys.
#[derive(Default)]
pub(crate) struct Requests {
    keys: HashMap<u64, Vec<u8>, Hashed>,
    /// When the oldest of them came.
    since: Option<Instant>,
}

impl Requests {
    /// True when it is the first: the writer has to learn that there are any.
    fn note(&mut self, hash: u64, key: &[u8]) -> bool {
        if self.keys.len() < NOTES_MAX {
            self.keys.entry(hash).or_insert_with(|| key.to_vec());
        }
        let is_first = self.since.is_none();
        self.since.get_or_insert_with(Instant::now);
        is_first
    }

    /// How long until they are to be written; `None`: there are none.
    pub(crate) fn due_in(&self, is_last: bool) -> Option<Duration> {
        let since = self.since?;
        Some(if is_last { Duration::ZERO } else { GATHERED.saturating_sub(since.elapsed()) })
    }

    /// Some of them. The others stay due.
    pub(crate) fn take(&mut self) -> Vec<(u64, Vec<u8>)> {
        let hashes = self.keys.keys().copied().take(WRITTEN_AT_ONCE).collect::<Vec<_>>();
        let taken = hashes.into_iter().filter_map(|hash| self.keys.remove_entry(&hash)).collect();
        if self.keys.is_empty() {
            self.since = None;
        }
        taken
    }
}

/// Whether the time of the last request is so old that a new one is worth a write. Times that are damaged (0) stay as they are.
fn is_old(requested_s: u32, now_s: u32) -> bool {
    requested_s != 0 && now_s.saturating_sub(requested_s) >= STEP_S
}

/// As [`crate::core::now_s`], by some milliseconds late, and never a system call.
fn about_now_s() -> u32 {
    u32::try_from(clock_gettime(ClockId::RealtimeCoarse).tv_sec).unwrap_or(0)
}

impl Core {
    /// Somebody requested an object: counts for eviction, and for its time when that is old.
    pub(crate) fn requested(&self, key: &[u8], held: &Held, requested_s: u32) {
        self.index.touch(held);
        if self.read_only || !is_old(requested_s, about_now_s()) {
            return;
        }
        let Some(file) = self.segments.file_at(held.place) else { return };
        let volume = self.segments.volume(file.volume);
        let mut staging = match volume.staging.try_lock() {
            Ok(staging) => staging,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        if staging.requests.note(held.hash, key) {
            volume.work.notify_one();
        }
    }

    /// Writes that an object was requested, unless it is being changed or waits to be written itself. By the volume's writer, which
    /// must wait for neither: both may wait for it.
    ///
    /// # Errors
    /// When the record cannot be read or written.
    pub(crate) fn write_request(&self, hash: u64, key: &[u8]) -> Result<(), StoreError> {
        let Some(_taken) = Taken::one_at_once(&self.keys, hash) else { return Ok(()) };
        let Some(record) = self.find(Name::of(key), hash, Depth::Head)? else { return Ok(()) };
        if is_old(record.head.requested_s, about_now_s()) && !self.is_unwritten(record.spot) {
            self.write_times(&record, record.head.expires_s)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_bounded_and_each_key_is_noted_once() {
        let mut requests = Requests::default();
        assert!(requests.due_in(true).is_none());
        assert!(requests.note(7, b"seven") && !requests.note(7, b"seven"));
        for hash in 0..3 * NOTES_MAX as u64 {
            requests.note(hash, b"key");
        }
        assert_eq!(requests.keys.len(), NOTES_MAX);
        let mut taken = 0;
        while requests.due_in(true).is_some() {
            let some = requests.take();
            assert!((1..=WRITTEN_AT_ONCE).contains(&some.len()));
            taken += some.len();
        }
        assert_eq!(taken, NOTES_MAX);
    }

    #[test]
    fn only_a_time_that_is_a_day_old_is_written_anew() {
        let now_s = 1_800_000_000;
        assert!(is_old(now_s - STEP_S, now_s) && is_old(1, now_s));
        assert!(!is_old(now_s - STEP_S + 1, now_s), "younger than a day");
        assert!(!is_old(now_s + 10, now_s), "the clock was set back");
        assert!(!is_old(0, now_s), "damaged");
    }
}
