//! Trees of format 1, which had all names in memory: their checkpoint is read, and an opening that writes replaces it.
//!
//! ```text
//! names: | head: sequence, next inode, records, salt | Make | Link | Write | ... |      a directory before what is in it
//! ```
//!
//! Always holds: until the head `tree` is replaced by one of format 2, all files of format 1 are as they were.

use disk::{Disk, DiskError, DiskOpen};

use crate::format::{HEAD_BYTES, NamesHead, Owner, RECORD_BYTES_MAX, Record, records};
use crate::names::remove;
use crate::replay::TreeFault;
use crate::table::{Blocks, Table};

/// Its checkpoint, and one that was begun.
pub(crate) const NAMES: [&str; 2] = ["names", "names.new"];

/// The file was found, and this is its head and its records.
struct Checkpoint {
    head: NamesHead,
    records: Vec<(u64, Record)>,
}

/// Makes the names of the checkpoint. Returns the number of its last change.
pub(crate) fn restore(
    disk: &dyn Disk,
    id: u128,
    table: &mut Table,
    faults: &mut Vec<TreeFault>,
) -> Result<u64, DiskError> {
    let mut fault = |what: String| faults.push(TreeFault::of(what));
    let Some(found) = read(disk, id)? else {
        fault("names: missing, or its head is damaged; what the journal does not have is lost".to_owned());
        return Ok(0);
    };
    let mut blocks = Blocks::default();
    let mut next = 1;
    for (number, record) in &found.records {
        if *number != next {
            fault(format!("names: records {next} to {} are damaged; what they name is lost", number - 1));
        }
        next = number + 1;
        if let Err(refusal) = table.apply_kept(&owned(record), &mut blocks) {
            fault(format!("names: record {number} cannot be used: {}", refusal.reason()));
        }
    }
    if next <= found.head.records {
        let last = found.head.records;
        fault(format!("names: records {next} to {last} are damaged; what they name is lost"));
    }
    table.next_inode = table.next_inode.max(found.head.next_inode);
    Ok(found.head.sequence)
}

/// Format 1 had no owners: everything is this process's own, as it was reported then.
pub(crate) fn owned(record: &Record) -> Record {
    let mut record = record.clone();
    if let Record::Make { owner, .. } = &mut record {
        *owner = own();
    }
    record
}

/// The user and the group of this process.
pub(crate) fn own() -> Owner {
    Owner { uid: rustix::process::getuid().as_raw(), gid: rustix::process::getgid().as_raw() }
}

/// The head of the tree says format 2: the checkpoint of format 1 is not needed any more.
pub(crate) fn forget(disk: &dyn Disk) -> Result<(), DiskError> {
    NAMES.iter().try_for_each(|name| remove(disk, name))
}

/// `None`: it is missing, or its head is damaged.
fn read(disk: &dyn Disk, id: u128) -> Result<Option<Checkpoint>, DiskError> {
    let file = match disk.open(NAMES[0], DiskOpen::Read) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let mut head = [0; HEAD_BYTES];
    let read = file.read_at(&mut head, 0)?;
    let Some(head) = NamesHead::decode(&head[..read], id) else { return Ok(None) };
    let length = file.length()?;
    // Longer than its records can be: not one that was written here, and perhaps more than fits in memory.
    if length > HEAD_BYTES as u64 + head.records.saturating_mul(RECORD_BYTES_MAX as u64) {
        return Ok(None);
    }
    let mut bytes = vec![0; length as usize];
    let read = file.read_at(&mut bytes, 0)?;
    bytes.truncate(read);
    let records = records(&bytes[HEAD_BYTES..], head.salt).collect();
    Ok(Some(Checkpoint { head, records }))
}
