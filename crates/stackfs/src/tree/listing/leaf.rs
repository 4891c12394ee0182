//! One hidden directory being read, in the order of its names' hashes.
//!
//! A directory of some hundred names is read whole. Of a larger one a window is held: the names of the lowest hashes behind
//! what was returned. For each window the directory is read again, so memory is bounded and time grows with the square of the
//! windows: a million names are four of them.
//!
//! Always holds: the names come in the order of their hashes, and a position follows from the hash alone.

use std::os::fd::OwnedFd;

use rustix::fs::SeekFrom;

use super::{Entries, Raw};
use crate::tree::Done;

/// Bits of a position that tell the entry within its hidden directory.
pub(super) const HASH_BITS: u32 = 48;
pub(super) const HASH_MASK: u64 = (1 << HASH_BITS) - 1;

/// A hidden directory, read whole or, when it is large, a window of it.
pub(super) struct Leaf {
    pub(super) directory: OwnedFd,
    names: Entries,
    /// Indices of `names` with the hashes of their names, in order of the hashes.
    order: Vec<(u64, usize)>,
    /// The next of `order`.
    pub(super) at: usize,
    /// The hidden directory's part of a position.
    base: u64,
    /// The window begins behind this hash.
    behind: Option<u64>,
    /// There are names behind the window.
    rest: bool,
    /// Names in a window.
    window: usize,
}

/// Names of one hidden directory held at once, or up to twice as many: about 20 MB. A larger one is read again for each
/// window; it belongs into `hash:2`.
const WINDOW: usize = 1 << 18;

impl Leaf {
    /// Reads it, or of a large one the window behind this hash.
    pub(super) fn read(directory: OwnedFd, number: u64, behind: Option<u64>) -> Done<Self> {
        let (names, order, rest) = (Entries::default(), Vec::new(), false);
        let mut leaf =
            Self { directory, names, order, at: 0, base: base(number), behind, rest, window: WINDOW };
        leaf.read_window()?;
        Ok(leaf)
    }

    /// Reads the window behind what was returned; false when there is nothing more.
    pub(super) fn read_on(&mut self) -> Done<bool> {
        if !self.rest {
            return Ok(false);
        }
        self.behind = self.order.last().map(|(hash, _)| *hash);
        self.read_window()?;
        Ok(true)
    }

    /// Keeps the names of the lowest hashes behind `behind`: all of them, or about a window if there are more.
    fn read_window(&mut self) -> Done<()> {
        rustix::fs::seek(&self.directory, SeekFrom::Start(0))?;
        let (mut part, mut limit) = (Entries::default(), u64::MAX);
        self.names.clear();
        self.order.clear();
        (self.at, self.rest) = (0, false);
        while part.fill(&self.directory)? {
            while let Some(entry) = part.next() {
                let hash = hash(entry.name);
                if matches!(entry.name, b"." | b"..") || self.behind.is_some_and(|behind| hash <= behind) {
                    continue;
                }
                if hash > limit {
                    self.rest = true;
                    continue;
                }
                self.order.push((hash, self.names.push(&entry)));
            }
            if self.order.len() >= 2 * self.window {
                limit = self.drop_above_window();
            }
        }
        self.sort();
        Ok(())
    }

    /// Keeps the window's lowest hashes, all names of the last one included; returns the last one.
    fn drop_above_window(&mut self) -> u64 {
        self.sort();
        let last = self.order[self.window - 1].0;
        let keep = self.order.partition_point(|(hash, _)| *hash <= last);
        self.rest |= keep < self.order.len();
        self.order.truncate(keep);
        let mut kept = Entries::default();
        for (_, at) in &mut self.order {
            if let Some(entry) = self.names.raw(*at) {
                *at = kept.push(&entry);
            }
        }
        self.names = kept;
        last
    }

    fn sort(&mut self) {
        let names = &self.names;
        self.order.sort_by_key(|(hash, at)| (*hash, names.name(*at)));
    }

    /// Whether it is the hidden directory of this number.
    pub(super) fn is_of(&self, number: u64) -> bool {
        self.base == base(number)
    }

    /// Whether the names behind this hash are here, as far as the window goes.
    pub(super) fn covers(&self, hash: u64) -> bool {
        let (from, to) = (self.behind.unwrap_or(0), self.order.last().map_or(0, |(last, _)| *last));
        from <= hash && (hash <= to || !self.rest)
    }

    pub(super) fn go_behind(&mut self, hash: u64) {
        self.at = self.order.partition_point(|(there, _)| *there <= hash);
    }

    /// The next entry, and the position behind it.
    pub(super) fn peek(&self) -> Option<(Raw<'_>, u64)> {
        let (hash, at) = *self.order.get(self.at)?;
        let behind = self.base + hash;
        // A position cannot distinguish two names of the same hash: a reader that stops between them reads both again.
        let shared = self.order.get(self.at + 1).is_some_and(|(next, _)| *next == hash);
        Some((self.names.raw(at)?, if shared { behind - 1 } else { behind }))
    }
}

fn base(number: u64) -> u64 {
    (number + 1) << HASH_BITS
}

/// 48 bits of a name's FNV-1a hash. Positions that clients keep depend on it, so it stays.
fn hash(name: &[u8]) -> u64 {
    let hash = name.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash ^ hash >> HASH_BITS) & HASH_MASK
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behind_one_of_two_names_of_the_same_hash_both_are_told_again() {
        let place = tempfile::tempdir().unwrap();
        for name in ["a", "b", "c"] {
            std::fs::write(place.path().join(name), "").unwrap();
        }
        let directory = std::fs::File::open(place.path()).unwrap().into();
        let mut leaf = Leaf::read(directory, 7, None).unwrap();
        let hashes: Vec<u64> = leaf.order.iter().map(|(hash, _)| *hash).collect();
        assert!(hashes.is_sorted() && hashes.len() == 3, "{hashes:?}");
        for (at, hash) in [5, 5, 9].into_iter().enumerate() {
            leaf.order[at].0 = hash;
        }
        let mut positions = Vec::new();
        while let Some((_, position)) = leaf.peek() {
            positions.push(position);
            leaf.at += 1;
        }
        assert_eq!(positions, [base(7) + 4, base(7) + 5, base(7) + 9]);
    }

    #[test]
    fn a_hidden_directory_larger_than_the_window_is_read_in_parts_and_none_is_missed() {
        let place = tempfile::tempdir().unwrap();
        for number in 0..1000 {
            std::fs::write(place.path().join(format!("name-{number}")), "").unwrap();
        }
        let whole = |window: usize, behind: Option<u64>| {
            let directory = std::fs::File::open(place.path()).unwrap().into();
            let mut leaf = Leaf::read(directory, 7, behind).unwrap();
            leaf.window = window;
            leaf.read_window().unwrap();
            let (mut all, mut windows) = (Vec::new(), 0);
            loop {
                assert!(leaf.order.len() <= 2 * window.max(1), "{} names held", leaf.order.len());
                while let Some((entry, position)) = leaf.peek() {
                    all.push((entry.name.to_vec(), position));
                    leaf.at += 1;
                }
                windows += 1;
                if !leaf.read_on().unwrap() {
                    return (all, windows);
                }
            }
        };
        let (all, windows) = whole(WINDOW, None);
        assert_eq!((all.len(), windows), (1000, 1));
        assert!(all.is_sorted_by_key(|(_, position)| *position));
        let (in_parts, windows) = whole(64, None);
        assert!(windows > 5, "{windows} windows");
        assert!(in_parts == all, "other names or another order");
        let behind = all[700].1 & HASH_MASK;
        assert!(whole(64, Some(behind)).0 == all[701..]);
    }
}
