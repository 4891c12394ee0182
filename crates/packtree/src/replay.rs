//! What the disk says: the checkpoint, and of the journal everything up to the first change that is not whole.
//!
//! 1. The checkpoint gives the names up to its number.
//! 2. Rooms are read in the order of their numbers. A room's records count up to the next room's first number.
//! 3. The highest mark says what was durable. A record that is missing before it was damaged; the rest is read, and the
//!    tree can only be read.
//! 4. Behind it the journal ends at the first record that is missing, or whose contents are not there. A power cut leaves that.
//!
//! Always holds: nothing is written; what is found is the tree as it was at one moment, unless a fault is reported.

use std::collections::VecDeque;
use std::sync::Arc;

use disk::{Disk, DiskFile};

use crate::clean_stop;
use crate::engine::piece_is_whole;
use crate::error::{Refusal, TreeError};
use crate::format::{HEAD_BYTES, Record, RoomHead, TreeHead, VERSION_1, records};
use crate::journal::UsedRoom;
use crate::names::{BlockCache, RunFault};
use crate::space::Space;
use crate::table::{Blocks, Table};
use crate::version1;

/// Something that is damaged, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeFault {
    /// What, where, and what it costs.
    pub what: String,
    /// Nothing is lost, and `crumb pack repair` repairs it where it is.
    pub is_repairable: bool,
}

impl TreeFault {
    /// Something is lost, or may be.
    pub(crate) fn of(what: String) -> Self {
        Self { what, is_repairable: false }
    }
}

impl From<RunFault> for TreeFault {
    fn from(fault: RunFault) -> Self {
        Self { what: fault.what, is_repairable: fault.is_repairable }
    }
}

/// The journal as it was found.
pub(crate) struct Journal {
    shape: TreeHead,
    version: u32,
    /// Number of the last change of the checkpoint.
    start: u64,
    rooms: Vec<FoundRoom>,
    /// Higher than those of all rooms.
    pub next_number: u64,
}

/// Where the journal ended.
pub(crate) struct Replayed {
    /// Number of the last record that counts.
    pub last: u64,
    /// Rooms with records that the checkpoint does not have.
    pub used: VecDeque<UsedRoom>,
}

/// A room as it was found.
struct FoundRoom {
    segment: u32,
    head: RoomHead,
}

impl Journal {
    /// Looks at the rooms of all segments. `start` is the last change of the checkpoint.
    pub(crate) fn find(
        file: &dyn DiskFile,
        shape: &TreeHead,
        version: u32,
        segments: u32,
        start: u64,
    ) -> Result<Self, TreeError> {
        let (rooms, next_number) = rooms(file, shape, version, segments, start)?;
        Ok(Self { shape: *shape, version, start, rooms, next_number })
    }

    /// Makes all changes that count. With `space`, also the changes of what is free.
    pub(crate) fn replay(
        &self,
        disk: &dyn Disk,
        file: &Arc<dyn DiskFile>,
        table: &mut Table,
        mut space: Option<&mut Space>,
        faults: &mut Vec<TreeFault>,
    ) -> Result<Replayed, TreeError> {
        let start = self.start;
        let _direct = BlockCache::directly(&table.blocks);
        let found = journal(&**file, &self.shape, &self.rooms, start)?;
        let durable = found.iter().filter_map(|(_, record)| match record {
            Record::Mark { durable } => Some(*durable),
            _ => None,
        });
        let stopped = clean_stop::read(disk, self.shape.id)?;
        let durable = durable.max().unwrap_or(0).max(start).max(stopped.unwrap_or(0));
        let mut last = start;
        let mut scratch = Vec::new();
        let mut fault = |what: String| faults.push(TreeFault::of(what));
        for (sequence, record) in &found {
            if *sequence != last + 1 {
                if last >= durable {
                    break;
                }
                let (first, end) = (last + 1, sequence - 1);
                fault(format!("journal: changes {first} to {end} are damaged and not made"));
            }
            if *sequence > durable && !record.pieces().all(|piece| piece_is_whole(file, piece, &mut scratch))
            {
                break;
            }
            match self.make(record, table, space.as_deref_mut()) {
                Ok(None) => {}
                Ok(Some(block)) => fault(format!(
                    "space: block {block} belongs to two files, or to none that can be: change {sequence}"
                )),
                Err(refusal) => {
                    fault(format!("journal: change {sequence} cannot be made: {}", refusal.reason()));
                }
            }
            last = *sequence;
        }
        if last < durable {
            fault(format!("journal: changes {} to {durable} are damaged and not made", last + 1));
            last = durable;
        }
        let used = self
            .rooms
            .iter()
            // The others hold what did not become durable.
            .filter(|room| room.head.first_sequence <= last)
            .map(|room| UsedRoom { segment: room.segment, first_sequence: room.head.first_sequence })
            .collect();
        Ok(Replayed { last, used })
    }

    /// Makes one change. Returns a block that was free and should not be, or the other way.
    fn make(
        &self,
        record: &Record,
        table: &mut Table,
        space: Option<&mut Space>,
    ) -> Result<Option<u64>, Refusal> {
        let owned;
        let record = if self.version == VERSION_1 {
            owned = version1::owned(record);
            &owned
        } else {
            record
        };
        table.prepare(record)?;
        let mut blocks = Blocks::default();
        table.apply(record, &mut blocks);
        let Some(space) = space else { return Ok(None) };
        let doubly = blocks.freed.iter().find(|run| !space.reclaim(**run));
        let twice = blocks.named.iter().find(|run| !space.claim(**run));
        Ok(doubly.or(twice).map(|run| run.start))
    }
}

/// Rooms with records behind `start`, in order; and a number that is higher than all.
fn rooms(
    file: &dyn DiskFile,
    shape: &TreeHead,
    version: u32,
    segments: u32,
    start: u64,
) -> Result<(Vec<FoundRoom>, u64), TreeError> {
    let mut found = Vec::new();
    let mut bytes = [0; HEAD_BYTES];
    for segment in 0..segments {
        let read = file.read_at(&mut bytes, shape.room_at(segment))?;
        if read == HEAD_BYTES
            && let Some(head) = RoomHead::decode(&bytes, shape.id, version)
        {
            found.push(FoundRoom { segment, head });
        }
    }
    found.sort_by_key(|room| room.head.number);
    let next_number = found.last().map_or(1, |room| room.head.number + 1);
    // Those whose successor begins behind the checkpoint's last change or at once after it hold nothing new.
    let first = found.iter().rposition(|room| room.head.first_sequence <= start + 1).unwrap_or(0);
    found.drain(..first);
    Ok((found, next_number))
}

/// All records of the journal behind `start` in the order of their numbers, gaps included.
fn journal(
    file: &dyn DiskFile,
    shape: &TreeHead,
    rooms: &[FoundRoom],
    start: u64,
) -> Result<Vec<(u64, Record)>, TreeError> {
    let mut found = Vec::new();
    let mut bytes = vec![0; shape.room_bytes as usize];
    for (at, room) in rooms.iter().enumerate() {
        let read = file.read_at(&mut bytes, shape.room_at(room.segment))?;
        // Any later one: an opening after a crash continues at a number that rooms before it may have used.
        let later = rooms[at + 1..].iter().map(|next| next.head.first_sequence);
        let behind = later.min().unwrap_or(u64::MAX);
        let counts = room.head.first_sequence.max(start + 1)..behind;
        let all = records(bytes.get(HEAD_BYTES..read).unwrap_or_default(), room.head.salt);
        found.extend(all.filter(|(sequence, _)| counts.contains(sequence)));
    }
    Ok(found)
}
