//! The operations that change names: making, removing, moving and linking.
//!
//! Each holds the names of its directories still from the moment it looks at a name until the table knows
//! what became of it (see `nodes` for why).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, Statx, linkat, makedev, mkdirat, mknodat, openat, renameat, statx,
    symlinkat, unlinkat,
};
use rustix::io::Errno;

use super::attributes::{Identity, STAT_MASK, attributes_of, kind_of, mode_of, time_of};
use super::nodes::{NO_FOLLOW, stat_fd, stat_same};
use super::reading::check_name;
use super::table::{Node, Place};
use super::writing::{set_attributes, truncate};
use super::{Directory, Scratch};
use crate::{CreateHow, FileKind, HandleRef, NodeKind, NodeTime, Reply, SetAttributes, SetTime, Status, Wcc};

const NEW_FILE: OFlags =
    OFlags::CREATE.union(OFlags::EXCL).union(OFlags::RDWR).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl Directory {
    pub(super) fn create(
        &self,
        dir: HandleRef<'_>,
        name: &[u8],
        how: CreateHow,
        scratch: &mut Scratch,
    ) -> Result<Reply<'static>, Status> {
        check_new_name(name)?;
        let (dir, dir_fd) = self.nodes.dir(dir)?;
        let new = match how {
            CreateHow::Unchecked(new) | CreateHow::Guarded(new) => new,
            CreateHow::Exclusive(verifier) => exclusive_attributes(verifier),
        };
        let _held = self.nodes.hold(dir);
        let mode = Mode::from_raw_mode(new.mode.unwrap_or(0o644) & 0o7777);
        let (stat, node) = match openat(&dir_fd, name, NEW_FILE, mode) {
            Ok(fd) => {
                let stat = finish_file(&fd, &new).inspect_err(|_| {
                    // Half made is not made. The error that matters is the first.
                    let _ = unlinkat(&dir_fd, name, AtFlags::empty());
                })?;
                let node = self.nodes.table.seen(Identity::of(&stat), FileKind::Regular, dir, name);
                self.nodes.keep_file(node, fd);
                (stat, node)
            }
            Err(Errno::EXIST) => {
                let stat = self.take_existing(dir_fd.as_fd(), name, how)?;
                (stat, self.nodes.table.seen(Identity::of(&stat), kind_of(&stat), dir, name))
            }
            Err(errno) => return Err(self.dir_error(dir, &dir_fd, errno)),
        };
        self.created(&stat, node, dir_fd.as_fd(), scratch)
    }

    /// The name is taken: by a file that will do, or not.
    fn take_existing(&self, dir: BorrowedFd<'_>, name: &[u8], how: CreateHow) -> Result<Statx, Status> {
        let stat = statx(dir, name, NO_FOLLOW, STAT_MASK)?;
        if kind_of(&stat) != FileKind::Regular {
            return Err(Status::EXIST);
        }
        match how {
            CreateHow::Guarded(_) => Err(Status::EXIST),
            // As Linux's server: of the attributes only the size applies to a file that is there.
            CreateHow::Unchecked(SetAttributes { size: None, .. }) => Ok(stat),
            CreateHow::Unchecked(SetAttributes { size: Some(size), .. }) => {
                let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                let fd = openat(dir, name, flags, Mode::empty())?;
                truncate(fd.as_fd(), size)?;
                Ok(stat_fd(fd.as_fd())?)
            }
            CreateHow::Exclusive(verifier) => {
                let wanted = exclusive_attributes(verifier);
                let same =
                    |wanted: SetTime, found| wanted == SetTime::To(NodeTime { ns: 0, ..time_of(found) });
                let replay = stat.stx_size == 0
                    && same(wanted.atime, stat.stx_atime)
                    && same(wanted.mtime, stat.stx_mtime);
                if replay { Ok(stat) } else { Err(Status::EXIST) }
            }
        }
    }

    pub(super) fn mkdir(
        &self,
        dir: HandleRef<'_>,
        name: &[u8],
        new: &SetAttributes,
        scratch: &mut Scratch,
    ) -> Result<Reply<'static>, Status> {
        let mode = Mode::from_raw_mode(new.mode.unwrap_or(0o755) & 0o7777);
        self.make(dir, name, new, scratch, |fd| mkdirat(fd, name, mode))
    }

    pub(super) fn symlink(
        &self,
        dir: HandleRef<'_>,
        name: &[u8],
        target: &[u8],
        new: &SetAttributes,
        scratch: &mut Scratch,
    ) -> Result<Reply<'static>, Status> {
        if target.is_empty() || target.contains(&0) {
            return Err(Status::INVAL);
        }
        self.make(dir, name, new, scratch, |fd| symlinkat(target, fd, name))
    }

    pub(super) fn mknod(
        &self,
        dir: HandleRef<'_>,
        name: &[u8],
        node: NodeKind,
        new: &SetAttributes,
        scratch: &mut Scratch,
    ) -> Result<Reply<'static>, Status> {
        let (kind, device) = match node {
            NodeKind::BlockDevice { device } => (FileType::BlockDevice, device),
            NodeKind::CharDevice { device } => (FileType::CharacterDevice, device),
            NodeKind::Socket => (FileType::Socket, (0, 0)),
            NodeKind::Fifo => (FileType::Fifo, (0, 0)),
        };
        let mode = Mode::from_raw_mode(new.mode.unwrap_or(0o644) & 0o7777);
        self.make(dir, name, new, scratch, |fd| mknodat(fd, name, kind, mode, makedev(device.0, device.1)))
    }

    /// Makes anything but a regular file.
    fn make(
        &self,
        dir: HandleRef<'_>,
        name: &[u8],
        new: &SetAttributes,
        scratch: &mut Scratch,
        make: impl FnOnce(BorrowedFd<'_>) -> Result<(), Errno>,
    ) -> Result<Reply<'static>, Status> {
        check_new_name(name)?;
        let (dir, dir_fd) = self.nodes.dir(dir)?;
        let _held = self.nodes.hold(dir);
        make(dir_fd.as_fd()).map_err(|errno| self.dir_error(dir, &dir_fd, errno))?;
        let mut stat = statx(&dir_fd, name, NO_FOLLOW, STAT_MASK)?;
        if differs(&stat, new) {
            let set = || -> Result<Statx, Status> {
                let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let fd = openat(&dir_fd, name, flags, Mode::empty())?;
                set_attributes(&fd, &stat, new)?;
                Ok(stat_fd(fd.as_fd())?)
            };
            stat = set().inspect_err(|_| {
                let dir_flag = match kind_of(&stat) {
                    FileKind::Directory => AtFlags::REMOVEDIR,
                    _ => AtFlags::empty(),
                };
                let _ = unlinkat(&dir_fd, name, dir_flag);
            })?;
        }
        let node = self.nodes.table.seen(Identity::of(&stat), kind_of(&stat), dir, name);
        self.created(&stat, node, dir_fd.as_fd(), scratch)
    }

    fn created(
        &self,
        stat: &Statx,
        node: Node,
        dir: BorrowedFd<'_>,
        scratch: &mut Scratch,
    ) -> Result<Reply<'static>, Status> {
        scratch.handle = Some(self.nodes.table.handle(node));
        Ok(Reply::Created { object: None, attributes: Some(attributes_of(stat)), dir: after(dir) })
    }

    pub(super) fn remove(&self, dir: HandleRef<'_>, name: &[u8]) -> Result<Reply<'static>, Status> {
        match name {
            b"." | b".." => Err(Status::ISDIR),
            _ => self.unlink(dir, name, false),
        }
    }

    pub(super) fn rmdir(&self, dir: HandleRef<'_>, name: &[u8]) -> Result<Reply<'static>, Status> {
        match name {
            b"." => Err(Status::INVAL),
            b".." => Err(Status::EXIST),
            _ => self.unlink(dir, name, true),
        }
    }

    fn unlink(&self, dir: HandleRef<'_>, name: &[u8], as_dir: bool) -> Result<Reply<'static>, Status> {
        check_name(name)?;
        let (dir, dir_fd) = self.nodes.dir(dir)?;
        let gone = {
            let _held = self.nodes.hold(dir);
            let stat = statx(&dir_fd, name, NO_FOLLOW, STAT_MASK)
                .map_err(|errno| self.dir_error(dir, &dir_fd, errno))?;
            let kind = kind_of(&stat);
            if as_dir != (kind == FileKind::Directory) {
                return Err(if as_dir { Status::NOTDIR } else { Status::ISDIR });
            }
            unlinkat(&dir_fd, name, if as_dir { AtFlags::REMOVEDIR } else { AtFlags::empty() })?;
            self.gone(&stat, &Place { parent: dir, name: name.into() })
        };
        // Closing the last descriptor of a removed file frees its blocks: not while names are held.
        if let Some(node) = gone {
            self.nodes.close(node);
        }
        Ok(Reply::Removed { dir: after(dir_fd.as_fd()) })
    }

    /// Notes that a name went away; says whose descriptor to close.
    fn gone(&self, stat: &Statx, place: &Place) -> Option<Node> {
        let kind = kind_of(stat);
        let last = kind == FileKind::Directory || stat.stx_nlink <= 1;
        self.nodes.table.unlinked(Identity::of(stat), kind, place, last).filter(|_| last)
    }

    pub(super) fn rename(
        &self,
        from_dir: HandleRef<'_>,
        from_name: &[u8],
        to_dir: HandleRef<'_>,
        to_name: &[u8],
    ) -> Result<Reply<'static>, Status> {
        for name in [from_name, to_name] {
            if matches!(name, b"." | b"..") {
                return Err(Status::INVAL);
            }
            check_name(name)?;
        }
        let (from_dir, from_fd) = self.nodes.dir(from_dir)?;
        let (to_dir, to_fd) = self.nodes.dir(to_dir)?;
        let replaced = {
            let _held = self.nodes.hold_both(from_dir, to_dir);
            let moving = statx(&from_fd, from_name, NO_FOLLOW, STAT_MASK)
                .map_err(|errno| self.dir_error(from_dir, &from_fd, errno))?;
            let target = match statx(&to_fd, to_name, NO_FOLLOW, STAT_MASK) {
                Ok(stat) => Some(stat),
                Err(Errno::NOENT) => None,
                Err(errno) => return Err(errno.into()),
            };
            renameat(&from_fd, from_name, &to_fd, to_name)
                .map_err(|errno| self.dir_error(to_dir, &to_fd, errno))?;
            let from = Place { parent: from_dir, name: from_name.into() };
            let to = Place { parent: to_dir, name: to_name.into() };
            let identity = Identity::of(&moving);
            // Two names of one object: the kernel leaves both.
            match target.filter(|target| Identity::of(target) != identity) {
                Some(target) => {
                    let gone = self.gone(&target, &to);
                    self.nodes.table.moved(identity, kind_of(&moving), &from, to);
                    gone
                }
                None if target.is_some() => None,
                None => {
                    self.nodes.table.moved(identity, kind_of(&moving), &from, to);
                    None
                }
            }
        };
        if let Some(node) = replaced {
            self.nodes.close(node);
        }
        Ok(Reply::Rename { from_dir: after(from_fd.as_fd()), to_dir: after(to_fd.as_fd()) })
    }

    pub(super) fn link(
        &self,
        file: HandleRef<'_>,
        dir: HandleRef<'_>,
        name: &[u8],
    ) -> Result<Reply<'static>, Status> {
        check_new_name(name)?;
        let (node, known) = self.nodes.table.node(file)?;
        if known.kind == FileKind::Directory {
            return Err(Status::INVAL);
        }
        let (dir, dir_fd) = self.nodes.dir(dir)?;
        // A name may be moved between finding it and linking it; then once more.
        for _ in 0..8 {
            self.nodes.at_place(node, |fd, name| stat_same(fd, name, known.identity))?;
            let mut old_name = [0; 255];
            let (parent, len) = self.nodes.table.first_place(node, &mut old_name)?;
            let parent_fd = self.nodes.dir_fd(parent)?;
            let _held = self.nodes.hold_both(parent, dir);
            if stat_same(parent_fd.as_fd(), &old_name[..len], known.identity)?.is_none() {
                continue;
            }
            linkat(&parent_fd, &old_name[..len], &dir_fd, name, AtFlags::empty())
                .map_err(|errno| self.dir_error(dir, &dir_fd, errno))?;
            let stat = statx(&dir_fd, name, NO_FOLLOW, STAT_MASK)?;
            self.nodes.table.seen(Identity::of(&stat), kind_of(&stat), dir, name);
            return Ok(Reply::Link { attributes: Some(attributes_of(&stat)), dir: after(dir_fd.as_fd()) });
        }
        Err(Status::JUKEBOX)
    }
}

/// As [`check_name`], for a name that is to be made: `.` and `..` are always there already.
///
/// # Errors
/// `EXIST` for `.` and `..`, and those of [`check_name`].
pub fn check_new_name(name: &[u8]) -> Result<(), Status> {
    match name {
        b"." | b".." => Err(Status::EXIST),
        _ => check_name(name),
    }
}

fn differs(stat: &Statx, new: &SetAttributes) -> bool {
    let symlink = kind_of(stat) == FileKind::Symlink;
    new.mode.is_some_and(|mode| !symlink && mode & 0o7777 != mode_of(stat))
        || new.uid.is_some_and(|uid| uid != stat.stx_uid)
        || new.gid.is_some_and(|gid| gid != stat.stx_gid)
        || new.atime != SetTime::Keep
        || new.mtime != SetTime::Keep
}

/// Gives a new file the attributes asked for; the umask may have taken some.
fn finish_file(fd: &OwnedFd, new: &SetAttributes) -> Result<Statx, Status> {
    let stat = stat_fd(fd.as_fd())?;
    let sized = new.size.is_some_and(|size| size != 0);
    if sized {
        truncate(fd.as_fd(), new.size.unwrap_or(0))?;
    }
    let differs = differs(&stat, new);
    if differs {
        set_attributes(fd, &stat, new)?;
    }
    Ok(if sized || differs { stat_fd(fd.as_fd())? } else { stat })
}

/// An exclusive CREATE keeps its verifier in the file's times, as the RFC suggests, so that it survives a
/// restart. The top bits stay free: some file systems know no seconds from 2^31 on.
fn exclusive_attributes(verifier: [u8; 8]) -> SetAttributes {
    let [a, b, c, d, e, f, g, h] = verifier;
    let time = |bytes| SetTime::To(NodeTime { s: u32::from_be_bytes(bytes) & 0x7fff_ffff, ns: 0 });
    SetAttributes { atime: time([a, b, c, d]), mtime: time([e, f, g, h]), ..SetAttributes::default() }
}

/// A directory after the operation. What it was before would cost a system call; clients then drop what
/// they know of it.
fn after(dir: BorrowedFd<'_>) -> Wcc {
    Wcc { before: None, after: stat_fd(dir).ok().map(|stat| attributes_of(&stat)) }
}
