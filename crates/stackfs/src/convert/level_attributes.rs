//! Owner and permissions of the hidden level's subdirectories: those of the managed directory.
//!
//! They copy its owner, group, permissions with the sticky and set-group-id bits, and both access control lists. So a
//! user has the same rights in both, and files created in the hidden level inherit what they would have inherited
//! in the directory. They do not copy the set-user-id bit, which means "managed".

use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::Stat;
use rustix::io::{Errno, Result};

use super::calls::{Call, Calls};
use crate::managed::MANAGED_BIT;

/// Access control lists as the kernel gives them.
const LISTS: [&str; 2] = ["system.posix_acl_access", "system.posix_acl_default"];
const MODE_BITS: u32 = 0o7777;
/// An access control list takes 8 bytes per entry; file systems limit one to about a block.
const LIST_BYTES_MAX: usize = 64 << 10;

/// Owner, group, permissions and access control lists of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LevelAttributes {
    uid: u32,
    gid: u32,
    mode: u32,
    lists: [Option<Vec<u8>>; 2],
}

impl LevelAttributes {
    /// The attributes that subdirectories of this directory's hidden level must have.
    pub(crate) fn for_level_of(directory: impl AsFd) -> Result<Self> {
        let mut attributes = Self::of(directory)?;
        attributes.mode &= !MANAGED_BIT;
        Ok(attributes)
    }

    /// The attributes of this directory.
    pub(crate) fn of(directory: impl AsFd) -> Result<Self> {
        let stat: Stat = rustix::fs::fstat(&directory)?;
        let mut lists = [None, None];
        for (list, name) in lists.iter_mut().zip(LISTS) {
            *list = list_of(directory.as_fd(), name)?;
        }
        Ok(Self { uid: stat.st_uid, gid: stat.st_gid, mode: stat.st_mode & MODE_BITS, lists })
    }

    /// The user.
    pub(crate) fn owner(&self) -> u32 {
        self.uid
    }

    /// Gives a directory these attributes with as few calls as possible; returns their number. `EPERM` when the
    /// directory belongs to another user: we never change an owner.
    pub(crate) fn apply_to(&self, directory: impl AsFd, calls: &mut dyn Calls) -> Result<u32> {
        let of = directory.as_fd();
        let now = Self::of(of)?;
        if now.uid != self.uid {
            return Err(Errno::PERM);
        }
        let mut changes = 0;
        if now.gid != self.gid {
            calls.call(&Call::Owner { of, uid: self.uid, gid: self.gid })?;
            changes += 1;
        }
        for ((list, was), name) in self.lists.iter().zip(&now.lists).zip(LISTS) {
            if list != was {
                calls.call(&Call::Attribute { of, name, value: list.as_deref() })?;
                changes += 1;
            }
        }
        // Last, because chown clears mode bits and an access list sets the group's.
        if changes > 0 || now.mode != self.mode {
            calls.call(&Call::Mode { of, mode: self.mode })?;
            changes += 1;
        }
        Ok(changes)
    }
}

fn list_of(of: BorrowedFd<'_>, name: &str) -> Result<Option<Vec<u8>>> {
    let mut list = vec![0u8; 256];
    loop {
        match rustix::fs::fgetxattr(of, name, &mut list[..]) {
            Ok(len) => {
                list.truncate(len);
                return Ok(Some(list));
            }
            Err(Errno::NODATA | Errno::OPNOTSUPP) => return Ok(None),
            Err(Errno::RANGE) if list.len() < LIST_BYTES_MAX => list.resize(list.len() * 4, 0),
            Err(error) => return Err(error),
        }
    }
}
