//! What keeps two programs from writing one tree.
//!
//! ```text
//! write: flock of the directory, alone  +  flock of the file `lock`, alone (earlier versions of this program know only that one)
//! read:  flock of the directory, shared +  flock of the file `lock`, shared; neither is made, and neither has to be had
//! ```
//!
//! Always holds: a removed or replaced `lock` lets no second writer in, as the directory cannot be exchanged below the first; an earlier
//! version, which locks the file alone, is noticed (see [`TreeLock::is_in_place`]).

use disk::{Disk, DiskError, DiskLock, Locking, Sharing};

use crate::error::TreeError;

pub(crate) const LOCK: &str = "lock";

/// Held while a tree is open.
#[derive(Debug)]
pub(crate) struct TreeLock {
    file: Option<DiskLock>,
    directory: Option<DiskLock>,
}

impl TreeLock {
    /// To write.
    pub(crate) fn alone(disk: &dyn Disk) -> Result<Self, TreeError> {
        let directory = held(disk, disk.lock_directory(Sharing::Alone))?;
        let file = disk.lock(LOCK)?.ok_or_else(|| TreeError::InUse { place: disk.place() })?;
        Ok(Self { file: Some(file), directory })
    }

    /// To read: keeps writers out where that can be had. Makes no file.
    pub(crate) fn shared(disk: &dyn Disk) -> Result<Self, TreeError> {
        let directory = held(disk, disk.lock_directory(Sharing::Shared))?;
        Ok(Self { file: held(disk, disk.lock_shared(LOCK))?, directory })
    }

    /// Whether anything is held.
    pub(crate) fn is_held(&self) -> bool {
        self.file.is_some() || self.directory.is_some()
    }

    /// Whether `lock` is still the file that was locked.
    pub(crate) fn is_in_place(&self) -> bool {
        self.file.as_ref().is_none_or(DiskLock::is_in_place)
    }
}

fn held(disk: &dyn Disk, tried: Result<Locking, DiskError>) -> Result<Option<DiskLock>, TreeError> {
    match tried? {
        Locking::Held(lock) => Ok(Some(lock)),
        Locking::Unavailable => Ok(None),
        Locking::Busy => Err(TreeError::InUse { place: disk.place() }),
    }
}
