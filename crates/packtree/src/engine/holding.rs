//! The lock while the tree is open: is it still the one that the next process would ask for?

use std::sync::atomic::Ordering;

use super::Engine;
use crate::error::TreeError;

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
}
