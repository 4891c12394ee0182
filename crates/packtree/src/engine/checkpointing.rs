//! When the journal has grown long, the names are written as a whole, and its rooms are free again.

use std::sync::TryLockError;
use std::sync::atomic::Ordering;

use super::{Engine, State};
use crate::checkpoint;
use crate::error::TreeError;

/// Rooms of the journal that an opening may have to read, at least.
pub(super) const ROOMS_MIN: usize = 8;

impl Engine {
    /// Writes a checkpoint if the journal is longer than [`ROOMS_MIN`] rooms and twice the last checkpoint, or if the
    /// next room is not there. A failure is only logged: the journal has everything.
    pub(super) fn checkpoint_when_due(&self) {
        let (used, free) = {
            let state = self.read();
            (state.tail.used_rooms(), state.space.free_rooms())
        };
        let journal_bytes = used as u64 * u64::from(self.shape.room_bytes);
        let long = journal_bytes > 2 * self.checkpoint_bytes.load(Ordering::Relaxed);
        if used > ROOMS_MIN
            && (long || free == 0)
            && let Err(error) = self.checkpoint()
        {
            tracing::warn!(place = %self.place, %error, "the names could not be written as a whole");
        }
    }

    /// For an opening that has written nothing yet and has synced what it found: with the names written as a whole, no room of the
    /// journal holds anything else. A failure is only logged.
    pub(super) fn free_all_rooms(&self) {
        let bytes = {
            let state = self.read();
            checkpoint::encode(&state.table, self.shape.id, state.tail.last)
        };
        if let Err(error) = checkpoint::write(&*self.disk, &bytes) {
            tracing::warn!(place = %self.place, %error, "the names could not be written as a whole");
            return;
        }
        self.checkpoint_bytes.store(bytes.len() as u64, Ordering::Relaxed);
        let mut state = self.write();
        let State { tail, space, .. } = &mut *state;
        tail.free_all_rooms(space);
    }

    /// Writes all names as they are now. One thread does; others find it done.
    pub(super) fn checkpoint(&self) -> Result<(), TreeError> {
        let _alone = match self.checkpointing.try_lock() {
            Err(TryLockError::WouldBlock) => return Ok(()),
            Err(TryLockError::Poisoned(held)) => held.into_inner(),
            Ok(held) => held,
        };
        let (bytes, sequence) = {
            let state = self.read();
            (checkpoint::encode(&state.table, self.shape.id, state.tail.last), state.tail.last)
        };
        // It names contents, and these must be there before it is.
        self.sync_to(sequence)?;
        checkpoint::write(&*self.disk, &bytes)?;
        self.checkpoint_bytes.store(bytes.len() as u64, Ordering::Relaxed);
        let mut state = self.write();
        let State { tail, space, .. } = &mut *state;
        tail.checkpointed(sequence, space);
        space.release(sequence);
        Ok(())
    }
}
