//! Remembers message ids by 64 bits of each: 9 to 18 bytes per article.
//!
//! Always holds: an id seen before is recognized. Among 10 million different ids, the chance that any two are confused
//! is 3 in a million.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hasher as _};

/// Message ids seen so far.
#[derive(Default)]
pub(super) struct Seen {
    ids: HashSet<u64, foldhash::fast::FixedState>,
    repeated: u64,
}

impl Seen {
    /// Adds an id; returns whether it came before.
    pub(super) fn again(&mut self, message_id: &[u8]) -> bool {
        let mut hasher = DefaultHasher::new();
        hasher.write(message_id);
        let again = !self.ids.insert(hasher.finish());
        self.repeated += u64::from(again);
        again
    }

    /// How many came before.
    pub(super) fn repeated(&self) -> u64 {
        self.repeated
    }
}
