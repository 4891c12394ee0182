//! The file `clean`: after a clean stop, up to which change all is durable. So damage to the journal's end is no power cut.

use disk::{Disk, DiskError, DiskOpen};

use crate::format::{HEAD_BYTES, NamesHead};

pub(crate) const NAME: &str = "clean";
pub(crate) const NEW: &str = "clean.new";

/// Says it, durably.
pub(crate) fn write(disk: &dyn Disk, id: u128, sequence: u64) -> Result<(), DiskError> {
    remove(disk, NEW)?;
    let written = (|| {
        let file = disk.open(NEW, DiskOpen::New)?;
        file.write_at(&NamesHead { id, sequence, next_inode: 0, records: 0, salt: 0 }.encode(), 0)?;
        file.sync()
    })();
    // What was begun would take the room that the next attempt needs.
    written.inspect_err(|_| drop(remove(disk, NEW)))?;
    disk.rename(NEW, NAME)?;
    disk.sync_names()
}

/// What the last stop said, if it was a clean one.
pub(crate) fn read(disk: &dyn Disk, id: u128) -> Result<Option<u64>, DiskError> {
    let file = match disk.open(NAME, DiskOpen::Read) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let mut bytes = [0; HEAD_BYTES];
    let read = file.read_at(&mut bytes, 0)?;
    Ok(NamesHead::decode(&bytes[..read], id).map(|head| head.sequence))
}

/// The tree is written again.
pub(crate) fn clear(disk: &dyn Disk) -> Result<(), DiskError> {
    remove(disk, NEW)?;
    if remove(disk, NAME)? {
        disk.sync_names()?;
    }
    Ok(())
}

fn remove(disk: &dyn Disk, name: &str) -> Result<bool, DiskError> {
    match disk.remove(name) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}
