//! A full disk: what the tree has in reserve or does not use is given to it, so that what changed can be written; and where no room of the
//! journal is free, the journal continues in its last one.
//!
//! ```text
//! no room for a checkpoint -> the file `spare` goes -> blocks of `space` that are free become holes -> once more -> `spare` is taken again
//! opening, no room free    -> a checkpoint, or else: last room | records that count | zeros, synced | mark | removals ...
//! ```
//!
//! Always holds: no block that a record may name becomes a hole; bytes of the journal are never in a hole.

use std::sync::atomic::Ordering;

use disk::DiskError;

use super::Engine;
use crate::error::{Refusal, TreeError};
use crate::format::{BLOCK_BYTES, HEAD_BYTES, RoomHead, unframe};
use crate::journal::{MARK_BYTES, UsedRoom};
use crate::spare::{self, is_full};

impl Engine {
    /// Does work that needs free space on the disk. If the disk is full, gives up what the tree can spare and tries once more.
    pub(crate) fn with_room<T>(&self, work: impl Fn() -> Result<T, TreeError>) -> Result<T, TreeError> {
        match work() {
            Err(TreeError::Disk(error)) if is_full(&error) => {
                if !self.give_room()? {
                    return Err(error.into());
                }
                work()
            }
            done => done,
        }
    }

    /// Takes the spare room, if it is missing; where there is no room, from what `space` does not use. A failure is only logged: the tree
    /// can do without.
    pub(crate) fn retake_spare(&self) {
        if self.has_spare.load(Ordering::Relaxed) {
            return;
        }
        let take = || spare::take(&*self.disk, &self.shape).map_err(TreeError::from);
        let taken = take()
            .and_then(|is_taken| if is_taken || self.give_back()? == 0 { Ok(is_taken) } else { take() });
        match taken {
            Ok(is_taken) => self.has_spare.store(is_taken, Ordering::Relaxed),
            Err(error) => {
                let error = error.with_cause();
                tracing::warn!(place = %self.place, error, "room for removals could not be reserved");
            }
        }
    }

    /// Gives up what is not needed. Returns whether there was anything.
    fn give_room(&self) -> Result<bool, TreeError> {
        self.has_spare.store(false, Ordering::Relaxed);
        let had_spare = spare::give_up(&*self.disk)?;
        Ok(self.give_back()? > 0 || had_spare)
    }

    /// Makes holes of the free blocks of `space`, if some became free and the disk has no room by which it could grow: what is removed
    /// from a tree on a full disk is then room for others too.
    pub(crate) fn give_back_when_short(&self) -> Result<(), TreeError> {
        let has_freed = self.read().space.has_freed;
        if has_freed && self.disk.room()?.free_bytes < self.shape.segment_bytes.into() {
            self.give_back()?;
        }
        Ok(())
    }

    /// Makes holes of the free blocks of `space`. Returns how many bytes.
    pub(super) fn give_back(&self) -> Result<u64, TreeError> {
        // Until an opening has said that what it found is durable, the next one would compare contents that changes freed meanwhile.
        if !self.has_begun.load(Ordering::Acquire) {
            return Ok(0);
        }
        if self.read().space.waiting_bytes() > 0 {
            self.settle()?;
        }
        let runs = self.write().space.take_free_pages();
        let mut given = 0;
        let released = runs.iter().try_for_each(|run| {
            let bytes = run.blocks * BLOCK_BYTES;
            self.file.release(run.start * BLOCK_BYTES, bytes)?;
            given += bytes;
            Ok::<_, DiskError>(())
        });
        let mut state = self.write();
        runs.into_iter().for_each(|run| state.space.unused(run));
        drop(state);
        match released {
            // A hole is noted by the file system below, which may have no room for the note.
            Err(error) if !is_full(&error) => Err(error.into()),
            _ => Ok(given),
        }
    }

    /// Bytes of `space` that have no room below the tree.
    pub(crate) fn hole_bytes(&self) -> Result<u64, DiskError> {
        Ok(self.file.length()?.saturating_sub(self.file.allocated()?))
    }

    /// For an opening that has written nothing and finds no room free: the journal continues in its last room, behind the last record
    /// that counts. What is there is zeroed first, so it never counts. Returns whether there is any place.
    pub(super) fn continue_last_room(&self) -> Result<bool, Refusal> {
        let (used, last) = {
            let state = self.read();
            (state.tail.last_room(), state.tail.last)
        };
        let Some(UsedRoom { segment, .. }) = used else { return Ok(false) };
        let (start, length) = (self.shape.room_at(segment), self.shape.room_bytes as usize);
        let mut bytes = vec![0; length];
        let read = self.file.read_at(&mut bytes, start)?;
        let head = RoomHead::decode(&bytes[..read.min(HEAD_BYTES)], self.shape.id, crate::format::VERSION);
        let (Some(head), true) = (head, read == length) else { return Ok(false) };
        let (mut at, mut sequence) = (HEAD_BYTES, head.first_sequence.saturating_sub(1));
        while sequence < last
            && let Some((next, _, length)) = unframe(&bytes[at..], head.salt)
            && next == sequence + 1
        {
            (at, sequence) = (at + length, next);
        }
        if sequence != last || at + MARK_BYTES > length {
            return Ok(false);
        }
        bytes[at..].fill(0);
        self.file.write_at(&bytes[at..], start + at as u64)?;
        self.file.sync()?;
        self.write().tail.continue_room(head, segment, at);
        Ok(true)
    }
}
