//! The file `spare`: room that a tree holds in reserve, and gives up when its disk is full, so that removals can be written.
//!
//! ```text
//! taken:    a creation, an opening, a checkpoint, a flush     (where there is no room for it, the tree does without)
//! given up: a checkpoint or a clean stop that finds no room
//! ```
//!
//! Always holds: nothing is in it. So it may be missing, or have no room, after a crash, and a version that does not know it leaves it
//! alone.

use std::io::ErrorKind;

use disk::{Disk, DiskError, DiskOpen};

use crate::format::TreeHead;

pub(crate) const NAME: &str = "spare";

/// Half of a room of the journal: 512 KiB of a tree of the usual shape.
pub(crate) fn bytes_of(shape: &TreeHead) -> u64 {
    u64::from(shape.room_bytes / 2)
}

/// Takes the room, if it is not taken. Returns whether it is.
pub(crate) fn take(disk: &dyn Disk, shape: &TreeHead) -> Result<bool, DiskError> {
    let bytes = bytes_of(shape);
    let taken = (|| {
        let file = match disk.open(NAME, DiskOpen::Write) {
            Err(error) if error.kind() == ErrorKind::NotFound => disk.open(NAME, DiskOpen::New)?,
            opened => opened?,
        };
        // Also of one that is there: a copy of the tree's files may have none.
        file.reserve(0, bytes)?;
        if file.length()? != bytes {
            file.set_length(bytes)?;
        }
        Ok(())
    })();
    match taken {
        Err(error) if is_full(&error) => give_up(disk).map(|_| false),
        taken => taken.map(|()| true),
    }
}

/// Gives the room to the next write. Returns whether there was any.
pub(crate) fn give_up(disk: &dyn Disk) -> Result<bool, DiskError> {
    match disk.remove(NAME) {
        Ok(()) => disk.sync_names().map(|()| true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether the disk has no room, or the user none of it.
pub(crate) fn is_full(error: &DiskError) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}
