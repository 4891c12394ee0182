//! The end of the journal: what changes were made, in which room the next record goes, what is still to be handed to the kernel.
//!
//! ```text
//! append --> pending bytes --> (engine: one write for all who wait) --> room of a segment --> (one sync for all who ask)
//! room:  | head: number, first sequence, salt | record | record | ... | zeros or an earlier use |
//! ```
//!
//! Always holds: sequence numbers have no gaps; a room's number is higher than that of every room before it.
//! Not here: who writes and syncs (`engine`), reading it back (`replay`).

use std::collections::VecDeque;
use std::hash::{BuildHasher as _, RandomState};
use std::ops::Range;

use crate::error::Refusal;
use crate::format::{HEAD_BYTES, Record, RoomHead, TreeHead, frame};
use crate::space::Space;

/// A mark in its frame.
pub(crate) const MARK_BYTES: usize = 32;
/// Of the last room that is free, this part is left to removals: some 2,000 in a room of 1 MiB.
const REMOVALS_SHARE: usize = 8;
/// And of that, this part to marks, half of them of openings that find no other room: some 500.
const MARKS_SHARE: usize = 32;

/// A room that an opening would have to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UsedRoom {
    pub segment: u32,
    pub first_sequence: u64,
}

/// What [`Tail::take_pending`] returns: bytes and where in the file they go.
pub(crate) type Pending = Vec<(u64, Vec<u8>)>;

pub(crate) struct Tail {
    shape: TreeHead,
    room: Option<RoomHead>,
    segment: u32,
    next_number: u64,
    /// Within the room, where the next record goes.
    at: usize,
    /// Number of the last record.
    pub last: u64,
    /// Number of the last record that is no mark.
    pub changed: u64,
    /// The highest number that a mark says is durable.
    pub marked: u64,
    /// The next record is the mark of an opening that continues in a room.
    is_continued: bool,
    pending: Pending,
    used: VecDeque<UsedRoom>,
    scratch: Vec<u8>,
}

impl Tail {
    /// Continues behind record `last` with a room of number `next_number` at least; `used` are the rooms that hold records
    /// that no checkpoint has.
    pub(crate) fn new(shape: TreeHead, last: u64, next_number: u64, used: VecDeque<UsedRoom>) -> Self {
        Self {
            shape,
            room: None,
            segment: 0,
            next_number,
            at: 0,
            last,
            changed: last,
            marked: 0,
            is_continued: false,
            pending: Vec::new(),
            used,
            scratch: Vec::new(),
        }
    }

    /// Adds a record and returns its number.
    ///
    /// # Errors
    /// [`Refusal::Room`]: no room is free; nothing has changed.
    pub(crate) fn append(&mut self, record: &Record, space: &mut Space) -> Result<u64, Refusal> {
        let sequence = self.last + 1;
        let room = match self.room {
            Some(room) => room,
            None => self.enter_room(space)?,
        };
        self.scratch.clear();
        frame(record, sequence, room.salt, &mut self.scratch);
        // A mark frees space when there is no other room: there is always place for one. And removals free what a full disk lacks.
        let share = |part| if space.free_rooms() == 0 { self.shape.room_bytes as usize / part } else { 0 };
        let left = match record {
            Record::Mark { .. } if std::mem::take(&mut self.is_continued) => 0,
            Record::Mark { .. } => share(2 * MARKS_SHARE),
            Record::Unlink { .. } => MARK_BYTES + share(MARKS_SHARE),
            Record::Reshape { pieces, .. } if pieces.is_empty() => MARK_BYTES + share(MARKS_SHARE),
            _ => MARK_BYTES + share(REMOVALS_SHARE),
        };
        if self.at + self.scratch.len() + left > self.shape.room_bytes as usize {
            let room = self.enter_room(space)?;
            self.scratch.clear();
            frame(record, sequence, room.salt, &mut self.scratch);
        }
        let scratch = std::mem::take(&mut self.scratch);
        self.push(&scratch);
        self.scratch = scratch;
        self.last = sequence;
        match record {
            Record::Mark { durable } => self.marked = *durable,
            _ => self.changed = sequence,
        }
        Ok(sequence)
    }

    fn enter_room(&mut self, space: &mut Space) -> Result<RoomHead, Refusal> {
        self.segment = space.take_room().ok_or(Refusal::Room)?;
        let (id, number, first_sequence) = (self.shape.id, self.next_number, self.last + 1);
        let room = RoomHead { id, number, first_sequence, salt: salt() };
        self.next_number += 1;
        self.used.push_back(UsedRoom { segment: self.segment, first_sequence });
        self.room = Some(room);
        self.at = 0;
        let head: [u8; HEAD_BYTES] = room.encode();
        self.push(&head);
        Ok(room)
    }

    /// Where in the file the next record goes, and the end of its room.
    pub(crate) fn room_left(&self) -> Option<Range<u64>> {
        let start = self.shape.room_at(self.segment);
        self.room.map(|_| start + self.at as u64..start + u64::from(self.shape.room_bytes))
    }

    /// The last of the rooms that an opening would read.
    pub(crate) fn last_room(&self) -> Option<UsedRoom> {
        self.used.back().copied()
    }

    /// Continues in a room that an opening found, behind its records: nothing else is in it any more.
    pub(crate) fn continue_room(&mut self, room: RoomHead, segment: u32, at: usize) {
        debug_assert!(self.room.is_none() && self.pending.is_empty());
        (self.room, self.segment, self.at) = (Some(room), segment, at);
        self.is_continued = true;
    }

    fn push(&mut self, bytes: &[u8]) {
        let to = self.shape.room_at(self.segment) + self.at as u64;
        match self.pending.last_mut() {
            Some((start, before)) if *start + before.len() as u64 == to => before.extend_from_slice(bytes),
            _ => self.pending.push((to, bytes.to_vec())),
        }
        self.at += bytes.len();
    }

    /// All bytes that were not handed over yet.
    pub(crate) fn take_pending(&mut self) -> Pending {
        std::mem::take(&mut self.pending)
    }

    /// Rooms that an opening would read.
    pub(crate) fn used_rooms(&self) -> usize {
        self.used.len()
    }

    /// A checkpoint has all changes there are, and nothing was added since the opening: every room is free.
    pub(crate) fn free_all_rooms(&mut self, space: &mut Space) {
        debug_assert!(self.room.is_none());
        self.used.drain(..).for_each(|room| space.free_room(room.segment));
    }

    /// A checkpoint has all changes up to `sequence`: frees the rooms that hold nothing else.
    pub(crate) fn checkpointed(&mut self, sequence: u64, space: &mut Space) {
        while let (Some(first), Some(next)) = (self.used.front(), self.used.get(1))
            && next.first_sequence <= sequence + 1
        {
            space.free_room(first.segment);
            self.used.pop_front();
        }
    }
}

/// A number that no earlier use of a room had.
pub(crate) fn salt() -> u32 {
    // Keys of a fresh hasher are random, and each has others.
    RandomState::new().hash_one(0) as u32
}
