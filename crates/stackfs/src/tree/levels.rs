//! Which managed directory a hidden one belongs to, by the hidden one's inode: changes below are reported by that.
//!
//! Always holds: while the lower file system is watched, a hidden directory is noted before anything is looked up in it, for as long as
//! the kernel knows the managed directory. An entry may outlive its hidden directory: then a change elsewhere is taken for one here,
//! and a name is dropped that need not be.
//! Lock: one, a leaf.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};

use super::nodes::ByInode;

/// What a hidden directory is to a managed one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// It holds entries of the managed directory.
    Leaf,
    /// It holds hidden directories.
    Upper,
}

/// The hidden directories that were opened.
#[derive(Default)]
pub(crate) struct LevelsKnown {
    is_watched: AtomicBool,
    by_inode: RwLock<HashMap<u64, Known, ByInode>>,
}

#[derive(Clone, Copy)]
struct Known {
    managed: u64,
    level: Level,
    /// The kernel did not know the managed directory when this was looked at last.
    is_old: bool,
}

impl LevelsKnown {
    /// From now on they are noted. Called before the first request.
    pub(crate) fn watch(&self) {
        self.is_watched.store(true, Ordering::SeqCst);
    }

    pub(crate) fn are_watched(&self) -> bool {
        self.is_watched.load(Ordering::Relaxed)
    }

    pub(super) fn note(&self, hidden: u64, managed: u64, level: Level) {
        let mut by_inode = self.by_inode.write().unwrap_or_else(PoisonError::into_inner);
        by_inode.insert(hidden, Known { managed, level, is_old: false });
    }

    /// The managed directory that a hidden one, by its number, is part of.
    pub(crate) fn of(&self, hidden: u64) -> Option<(u64, Level)> {
        let by_inode = self.by_inode.read().unwrap_or_else(PoisonError::into_inner);
        by_inode.get(&hidden).map(|known| (known.managed, known.level))
    }

    /// Drops those whose managed directory the kernel does not know, now and when this was called before. Descriptors by which they
    /// could be used without being noted again are gone by then.
    pub(crate) fn sweep(&self, knows: impl Fn(u64) -> bool) {
        let mut by_inode = self.by_inode.write().unwrap_or_else(PoisonError::into_inner);
        by_inode.retain(|_, known| {
            let was_old = std::mem::replace(&mut known.is_old, !knows(known.managed));
            !(was_old && known.is_old)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hidden_directory_is_known_for_as_long_as_its_managed_one_and_a_little_longer() {
        let levels = LevelsKnown::default();
        levels.note(10, 7, Level::Upper);
        levels.note(11, 7, Level::Leaf);
        levels.note(20, 8, Level::Leaf);
        levels.sweep(|managed| managed == 8);
        assert_eq!(levels.of(10), Some((7, Level::Upper)));
        assert_eq!(levels.of(11), Some((7, Level::Leaf)));
        levels.note(11, 7, Level::Leaf);
        levels.sweep(|managed| managed == 8);
        assert_eq!(levels.of(10), None);
        assert_eq!(levels.of(11), Some((7, Level::Leaf)), "it was used since");
        levels.sweep(|_| true);
        levels.sweep(|managed| managed == 8);
        assert_eq!(levels.of(11), Some((7, Level::Leaf)), "its directory was known in between");
        levels.sweep(|managed| managed == 8);
        assert_eq!((levels.of(11), levels.of(20)), (None, Some((8, Level::Leaf))));
        levels.note(20, 9, Level::Upper);
        assert_eq!(levels.of(20), Some((9, Level::Upper)), "its inode has come back in another");
    }
}
