//! What is held while the tree is open: inodes, for as long as a request takes; and the lock, which may no longer be the one that the
//! next process would ask for.

use std::sync::atomic::Ordering;

use files::Status;

use super::Engine;
use crate::error::{Refusal, TreeError};
use crate::table::Inode;

/// A hold on an inode: until it is dropped the inode stays, also without a name.
pub(crate) struct Held<'a> {
    engine: &'a Engine,
    pub inode: Inode,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.engine.let_go(self.inode);
    }
}

impl Engine {
    /// Stops all writing when the file `lock` was removed or replaced: an earlier version of this program, which asks for that file
    /// alone, may be writing the tree by now.
    pub(crate) fn check_lock(&self) -> Result<(), TreeError> {
        if self.lock.is_in_place() {
            return Ok(());
        }
        self.stopped.store(true, Ordering::Release);
        Err(TreeError::LockLost { place: self.place.clone() })
    }

    /// Holds an inode that has a name.
    pub(crate) fn hold(&self, inode: Inode) -> Result<Held<'_>, Refusal> {
        self.look_mut(|state| {
            state.table.node(inode)?.filter(|node| node.links > 0).ok_or(Status::STALE)?;
            state.table.hold(inode);
            Ok(())
        })?;
        Ok(Held { engine: self, inode })
    }
}
