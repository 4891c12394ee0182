//! What a directory of the hidden level looks like to the lower file system: like the directory that it is part of.
//!
//! Owner, group, permissions with the sticky and set-group-id bits, and both access control lists are those of the
//! managed directory, so that who may do something in the one may do it in the other, and files made in the hidden
//! level inherit what they would have inherited. The set-user-id bit, which says "managed", is not passed on.

use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::Stat;
use rustix::io::{Errno, Result};

use super::calls::{Call, Calls};
use crate::managed::MANAGED_BIT;

/// Access control lists as the kernel gives them.
const LISTS: [&str; 2] = ["system.posix_acl_access", "system.posix_acl_default"];
const MODE_BITS: u32 = 0o7777;
/// An access control list has 8 bytes an entry; file systems keep them below a block or so.
const LIST_BYTES_MAX: usize = 64 << 10;

/// Owner and permissions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dress {
    uid: u32,
    gid: u32,
    mode: u32,
    lists: [Option<Vec<u8>>; 2],
}

impl Dress {
    /// What subdirectories of the hidden level of this directory are to look like.
    pub(crate) fn for_level_of(directory: impl AsFd) -> Result<Self> {
        let mut dress = Self::of(directory)?;
        dress.mode &= !MANAGED_BIT;
        Ok(dress)
    }

    /// What this directory looks like.
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

    /// Makes a directory look like this, by as few calls as it takes; how many there were. `EPERM` when it belongs to
    /// another user: nothing is given away.
    pub(crate) fn put_on(&self, directory: impl AsFd, calls: &mut dyn Calls) -> Result<u32> {
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
        // Last: a change of owner clears bits, and an access list sets those of the group.
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
