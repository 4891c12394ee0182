//! The operations that change nothing, listings apart.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{fstatvfs, readlinkat_raw, statx};
use rustix::io::{Errno, pread};

use super::attributes::{Identity, STAT_MASK, attributes_of, kind_of, space_of};
use super::nodes::{NO_FOLLOW, Use, stat_fd, stat_same};
use super::table::{Node, ROOT};
use super::{Caller, Directory, Scratch};
use crate::{Attributes, FileKind, Fsinfo, HandleRef, NodeTime, Pathconf, Reply, Status};

/// `PATH_MAX`: no link's target is longer.
const TARGET_BYTES_MAX: usize = 4096;

/// `ACCESS3_*`, RFC 1813 section 3.3.4.
mod rights {
    pub const READ: u32 = 0x01;
    pub const LOOKUP: u32 = 0x02;
    pub const MODIFY: u32 = 0x04;
    pub const EXTEND: u32 = 0x08;
    pub const DELETE: u32 = 0x10;
    pub const EXECUTE: u32 = 0x20;
}

impl Directory {
    pub(super) fn getattr(&self, object: HandleRef<'_>) -> Result<Reply<'static>, Status> {
        Ok(Reply::Getattr { attributes: self.attributes(object)? })
    }

    pub(super) fn attributes(&self, object: HandleRef<'_>) -> Result<Attributes, Status> {
        let (node, known) = self.nodes.table.node(object)?;
        Ok(attributes_of(&self.nodes.stat(node, &known)?))
    }

    /// The directory's attributes are left out: they would cost a second system call, and clients that
    /// want them ask.
    pub(super) fn lookup(
        &self,
        dir: HandleRef<'_>,
        name: &[u8],
        scratch: &mut Scratch,
    ) -> Result<Reply<'static>, Status> {
        let (dir_node, dir_fd) = self.nodes.dir(dir)?;
        let (node, attributes) = match name {
            b"." => (dir_node, attributes_of(&stat_fd(dir_fd.as_fd())?)),
            b".." => {
                let parent = self.parent(dir_node)?;
                (parent, attributes_of(&stat_fd(self.nodes.dir_fd(parent)?.as_fd())?))
            }
            _ => {
                check_name(name)?;
                let stat = statx(&dir_fd, name, NO_FOLLOW, STAT_MASK)
                    .map_err(|errno| self.dir_error(dir_node, &dir_fd, errno))?;
                let node = self.nodes.table.seen(Identity::of(&stat), kind_of(&stat), dir_node, name);
                (node, attributes_of(&stat))
            }
        };
        scratch.handle = Some(self.nodes.table.handle(node));
        Ok(Reply::Lookup { object: HandleRef(&[]), attributes: Some(attributes), dir: None })
    }

    /// The parent as far as the export goes. The kernel's `..` is not asked: after a move from outside it
    /// could lead out.
    fn parent(&self, dir: Node) -> Result<Node, Status> {
        if dir == ROOT {
            return Ok(ROOT);
        }
        let known = self.nodes.table.known(dir)?;
        // Proves the place, so that the parent is the present one.
        self.nodes.at_place(dir, |fd, name| stat_same(fd, name, known.identity))?;
        Ok(self.nodes.table.first_place(dir, &mut [0; 255])?.0)
    }

    pub(super) fn access(&self, object: HandleRef<'_>, asked: u32) -> Result<Reply<'static>, Status> {
        let attributes = self.attributes(object)?;
        let mut granted = self.caller.rights(&attributes);
        if self.read_only {
            granted &= !(rights::MODIFY | rights::EXTEND | rights::DELETE);
        }
        Ok(Reply::Access { attributes: Some(attributes), rights: asked & granted })
    }

    pub(super) fn readlink(
        &self,
        link: HandleRef<'_>,
        scratch: &mut Scratch,
    ) -> Result<Reply<'static>, Status> {
        let (node, known) = self.nodes.table.node(link)?;
        if known.kind != FileKind::Symlink {
            return Err(Status::INVAL);
        }
        // A descriptor pins the link, so that attributes and target are of the same one.
        let fd = self.nodes.path_fd(node, &known)?;
        let stat = stat_fd(fd.as_fd())?;
        let len = readlinkat_raw(&fd, c"", scratch.room(TARGET_BYTES_MAX))?;
        scratch.bytes_len = len;
        Ok(Reply::Readlink { attributes: Some(attributes_of(&stat)), target: &[] })
    }

    pub(super) fn read(
        &self,
        file: HandleRef<'_>,
        offset: u64,
        count: u32,
        scratch: &mut Scratch,
    ) -> Result<Reply<'static>, Status> {
        let (node, file) = self.nodes.file(file, Use::Read)?;
        let wanted = count.min(self.io_bytes_max) as usize;
        // Past what the kernel can address there is nothing to read.
        let len = if offset > i64::MAX as u64 - wanted as u64 {
            0
        } else {
            pread(&file.fd, scratch.room(wanted), offset)?
        };
        let stat = self.nodes.alive(node, stat_fd(file.fd.as_fd())?)?;
        scratch.bytes_len = len;
        let end = offset.saturating_add(len as u64) >= stat.stx_size;
        Ok(Reply::Read { attributes: Some(attributes_of(&stat)), bytes: &[], end })
    }

    pub(super) fn fsstat(&self, root: HandleRef<'_>) -> Result<Reply<'static>, Status> {
        let attributes = self.attributes(root)?;
        let stat = space_of(&fstatvfs(self.nodes.root_fd())?);
        Ok(Reply::Fsstat { attributes: Some(attributes), stat })
    }

    pub(super) fn fsinfo(&self, root: HandleRef<'_>) -> Result<Reply<'static>, Status> {
        let attributes = self.attributes(root)?;
        let io = self.io_bytes_max;
        let limits = Fsinfo {
            read_max: io,
            read_preferred: io,
            read_multiple: 4096.min(io),
            write_max: io,
            write_preferred: io,
            write_multiple: 4096.min(io),
            readdir_preferred: 65_536,
            file_size_max: i64::MAX as u64,
            time_delta: NodeTime { s: 0, ns: 1 },
            // FSF3_LINK, FSF3_SYMLINK, FSF3_HOMOGENEOUS, FSF3_CANSETTIME.
            properties: 0x1 | 0x2 | 0x8 | 0x10,
        };
        Ok(Reply::Fsinfo { attributes: Some(attributes), limits })
    }

    pub(super) fn pathconf(&self, object: HandleRef<'_>) -> Result<Reply<'static>, Status> {
        let attributes = self.attributes(object)?;
        let limits = Pathconf {
            // ext4's, the lowest of Linux's usual file systems but ext2's 32,000.
            links_max: 65_000,
            name_bytes_max: 255,
            no_truncation: true,
            chown_restricted: true,
            case_insensitive: false,
            case_preserving: true,
        };
        Ok(Reply::Pathconf { attributes: Some(attributes), limits })
    }

    /// What an error of a name in a directory means: the directory itself may be gone. Takes no name lock.
    pub(super) fn dir_error(&self, dir: Node, fd: &OwnedFd, errno: Errno) -> Status {
        if errno == Errno::NOENT
            && let Ok(stat) = stat_fd(fd.as_fd())
            && stat.stx_nlink == 0
        {
            self.nodes.forget(dir);
            return Status::STALE;
        }
        errno.into()
    }
}

impl Caller {
    /// This process's user.
    ///
    /// # Errors
    /// When its groups cannot be read.
    pub fn current() -> io::Result<Self> {
        let mut groups = vec![rustix::process::getegid().as_raw()];
        groups.extend(rustix::process::getgroups()?.iter().map(|group| group.as_raw()));
        Ok(Self { uid: rustix::process::geteuid().as_raw(), groups })
    }

    /// Which of the rights of ACCESS (RFC 1813, section 3.3.4) it has on an object, from the permission bits; access control lists are
    /// not looked at.
    pub fn rights(&self, attributes: &Attributes) -> u32 {
        let dir = attributes.kind == FileKind::Directory;
        let bits = if self.uid == 0 {
            0o6 | u32::from(dir || attributes.mode & 0o111 != 0)
        } else if attributes.uid == self.uid {
            attributes.mode >> 6
        } else if self.groups.contains(&attributes.gid) {
            attributes.mode >> 3
        } else {
            attributes.mode
        };
        let mut granted = 0;
        if bits & 0o4 != 0 {
            granted |= rights::READ;
        }
        if bits & 0o2 != 0 {
            granted |= rights::MODIFY | rights::EXTEND | if dir { rights::DELETE } else { 0 };
        }
        if bits & 0o1 != 0 {
            granted |= if dir { rights::LOOKUP } else { rights::EXECUTE };
        }
        granted
    }
}

/// A name of one object below a directory: what a system call may be given. `.` and `..` are for the
/// caller to deal with first.
///
/// # Errors
/// `INVAL`, `ACCES` or `NAMETOOLONG`.
pub fn check_name(name: &[u8]) -> Result<(), Status> {
    if name.is_empty() || name.contains(&0) {
        return Err(Status::INVAL);
    }
    if name.contains(&b'/') {
        return Err(Status::ACCES);
    }
    if name.len() > 255 {
        return Err(Status::NAMETOOLONG);
    }
    Ok(())
}
