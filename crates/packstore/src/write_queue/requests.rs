//! Notes of requests that readers leave for a volume's writer, which writes their times into the records.
//!
//! Always holds: they are bounded. A note that finds no room is dropped: the next request notes it again.
//! Not here: which requests are noted, and what is written (`touching`).

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::hashed::Hashed;

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
    pub(super) fn note(&mut self, hash: u64, key: &[u8]) -> bool {
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
}
