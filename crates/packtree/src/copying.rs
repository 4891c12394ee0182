//! The file `copying`: the tree is a copy that has not ended. What is missing in it nobody can tell otherwise.
//!
//! It is there before all other files of the copy, and goes last.

use std::io::ErrorKind;

use disk::{Disk, DiskError, DiskOpen};

use crate::creation::leftovers;
use crate::error::TreeError;
use crate::locking::TreeLock;
use crate::names::remove;
use crate::presence::{is_of_tree, nothing_in_the_way};
use crate::replay::TreeFault;

pub(crate) const COPYING: &str = "copying";

/// Begins a copy in an empty directory, or in one where an earlier copy did not end: what that made is removed.
///
/// # Errors
/// When the directory has anything else, a process uses it, or it cannot be written.
pub fn begin_copy(disk: &dyn Disk) -> Result<(), TreeError> {
    nothing_in_the_way(disk)?;
    if is_copying(disk)? {
        let _lock = TreeLock::alone(disk)?;
        for name in disk.names()?.iter().filter(|name| is_of_tree(name) && *name != COPYING) {
            remove(disk, name)?;
        }
    } else {
        leftovers(disk)?;
        disk.open(COPYING, DiskOpen::New)?.sync()?;
    }
    disk.sync_names()?;
    Ok(())
}

/// Says that the copy is whole: it is durable, and closed.
///
/// # Errors
/// When the directory cannot be written.
pub fn end_copy(disk: &dyn Disk) -> Result<(), TreeError> {
    remove(disk, COPYING)?;
    disk.sync_names()?;
    Ok(())
}

/// Whether a copy here has not ended.
fn is_copying(disk: &dyn Disk) -> Result<bool, DiskError> {
    match disk.open(COPYING, DiskOpen::Read) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        opened => opened.map(|_| true),
    }
}

/// That a copy here has not ended, as what is wrong with the tree.
pub(crate) fn fault(disk: &dyn Disk) -> Result<Option<TreeFault>, DiskError> {
    let what = "copying: the copy that `crumb pack repair --to` made here did not end, and files are missing; run it again";
    Ok(is_copying(disk)?.then(|| TreeFault::of(what.to_owned())))
}
