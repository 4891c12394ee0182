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

use crate::checkpoint;
use crate::clean_stop;
use crate::engine::piece_is_whole;
use crate::error::TreeError;
use crate::format::{HEAD_BYTES, Record, RoomHead, TreeHead, records};
use crate::journal::UsedRoom;
use crate::space::Run;
use crate::table::Table;

/// Something that is damaged, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeFault {
    /// What, where, and what it costs.
    pub what: String,
}

pub(crate) struct Replayed {
    pub table: Table,
    /// Number of the last record that counts.
    pub last: u64,
    /// Rooms with records that the checkpoint does not have.
    pub used: VecDeque<UsedRoom>,
    pub next_number: u64,
    pub segments: u32,
    pub checkpoint_bytes: u64,
    pub faults: Vec<TreeFault>,
}

/// A room as it was found.
struct FoundRoom {
    segment: u32,
    head: RoomHead,
}

/// Reads all of it.
pub(crate) fn replay(
    disk: &dyn Disk,
    file: &Arc<dyn DiskFile>,
    shape: &TreeHead,
) -> Result<Replayed, TreeError> {
    let mut faults = Vec::new();
    let mut table = Table::new();
    let (start, checkpoint_bytes) = restore(disk, shape, &mut table, &mut faults)?;
    let segments = (file.length()? / u64::from(shape.segment_bytes)) as u32;
    let (rooms, next_number) = rooms(&**file, shape, segments, start)?;
    let found = journal(&**file, shape, &rooms, start)?;
    let durable = found.iter().filter_map(|(_, record)| match record {
        Record::Mark { durable } => Some(*durable),
        _ => None,
    });
    let stopped = clean_stop::read(disk, shape.id)?;
    let durable = durable.max().unwrap_or(0).max(start).max(stopped.unwrap_or(0));
    let mut last = start;
    let mut scratch = Vec::new();
    let mut freed: Vec<Run> = Vec::new();
    for (sequence, record) in &found {
        if *sequence != last + 1 {
            if last >= durable {
                break;
            }
            let (first, end) = (last + 1, sequence - 1);
            faults.push(TreeFault {
                what: format!("journal: changes {first} to {end} are damaged and not made"),
            });
        }
        if *sequence > durable
            && let Record::Write { pieces, .. } = record
            && !pieces.iter().all(|piece| piece_is_whole(file, piece, &mut scratch))
        {
            break;
        }
        if let Err(dangling) = table.apply(record, &mut freed) {
            let (what, inode) = (dangling.what, dangling.inode);
            faults.push(TreeFault {
                what: format!("journal: change {sequence} cannot be made: {what} ({inode})"),
            });
        }
        last = *sequence;
    }
    if last < durable {
        let what = format!("journal: changes {} to {durable} are damaged and not made", last + 1);
        faults.push(TreeFault { what });
        last = durable;
    }
    let used = rooms
        .iter()
        // The others hold what did not become durable.
        .filter(|room| room.head.first_sequence <= last)
        .map(|room| UsedRoom { segment: room.segment, first_sequence: room.head.first_sequence })
        .collect();
    Ok(Replayed { table, last, used, next_number, segments, checkpoint_bytes, faults })
}

/// Makes the names of the checkpoint. Returns its number and length.
fn restore(
    disk: &dyn Disk,
    shape: &TreeHead,
    table: &mut Table,
    faults: &mut Vec<TreeFault>,
) -> Result<(u64, u64), TreeError> {
    let Some(found) = checkpoint::read(disk, shape.id)? else {
        let what =
            "names: missing, or its head is damaged; what the journal does not have is lost".to_owned();
        faults.push(TreeFault { what });
        return Ok((0, 0));
    };
    let mut freed = Vec::new();
    let mut next = 1;
    for (number, record) in &found.records {
        if *number != next {
            let what = format!("names: records {next} to {} are damaged; what they name is lost", number - 1);
            faults.push(TreeFault { what });
        }
        next = number + 1;
        if let Err(dangling) = table.apply_kept(record, &mut freed) {
            let (what, inode) = (dangling.what, dangling.inode);
            faults
                .push(TreeFault { what: format!("names: record {number} cannot be used: {what} ({inode})") });
        }
    }
    if next <= found.head.records {
        let what =
            format!("names: records {next} to {} are damaged; what they name is lost", found.head.records);
        faults.push(TreeFault { what });
    }
    table.next_inode = table.next_inode.max(found.head.next_inode);
    Ok((found.head.sequence, found.bytes))
}

/// Rooms with records behind `start`, in order; and a number that is higher than all.
fn rooms(
    file: &dyn DiskFile,
    shape: &TreeHead,
    segments: u32,
    start: u64,
) -> Result<(Vec<FoundRoom>, u64), TreeError> {
    let mut found = Vec::new();
    let mut bytes = [0; HEAD_BYTES];
    for segment in 0..segments {
        let read = file.read_at(&mut bytes, shape.room_at(segment))?;
        if read == HEAD_BYTES
            && let Some(head) = RoomHead::decode(&bytes, shape.id)
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
