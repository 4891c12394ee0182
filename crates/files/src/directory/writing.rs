//! The operations that change one object: its content and its attributes.

use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

use rustix::fs::{
    AtFlags, CWD, Gid, Mode, Statx, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid, chmodat, chownat,
    fdatasync, ftruncate, utimensat,
};
use rustix::io::{Errno, ReadWriteFlags, pwrite, pwritev2};

use super::Directory;
use super::attributes::{attributes_of, mode_of, pre_attributes_of, time_of};
use super::nodes::{Use, stat_fd};
use crate::{FileKind, HandleRef, NodeTime, Reply, SetAttributes, SetTime, Stability, Status, Wcc};

impl Directory {
    pub(super) fn setattr(
        &self,
        object: HandleRef<'_>,
        new: &SetAttributes,
        guard: Option<NodeTime>,
    ) -> Result<Reply<'static>, Status> {
        let (node, known) = self.nodes.table.node(object)?;
        let before = self.nodes.stat(node, &known)?;
        if guard.is_some_and(|guard| guard != time_of(before.stx_ctime)) {
            return Err(Status::NOT_SYNC);
        }
        if let Some(size) = new.size {
            let file = self.nodes.open_file(node, &known, Use::Write)?;
            truncate(file.fd.as_fd(), size)?;
        }
        let fd = self.nodes.path_fd(node, &known)?;
        set_attributes(&fd, &before, &SetAttributes { size: None, ..*new })?;
        let after = stat_fd(fd.as_fd())?;
        let wcc = Wcc { before: Some(pre_attributes_of(&before)), after: Some(attributes_of(&after)) };
        Ok(Reply::Setattr { object: wcc })
    }

    pub(super) fn write(
        &self,
        file: HandleRef<'_>,
        offset: u64,
        bytes: &[u8],
        stability: Stability,
    ) -> Result<Reply<'static>, Status> {
        let (node, file) = self.nodes.file(file, Use::Write)?;
        let bytes = &bytes[..bytes.len().min(self.io_bytes_max as usize)];
        if offset > i64::MAX as u64 - bytes.len() as u64 {
            return Err(Status::FBIG);
        }
        let flags = match stability {
            Stability::Unstable => None,
            Stability::DataSync => Some(ReadWriteFlags::DSYNC),
            Stability::FileSync => Some(ReadWriteFlags::SYNC),
        };
        let written = match flags {
            None => pwrite(&file.fd, bytes, offset)?,
            Some(flags) => pwritev2(&file.fd, &[IoSlice::new(bytes)], offset, flags)
                .inspect_err(|errno| self.note_lost_data(*errno))?,
        };
        let stat = self.nodes.alive(node, stat_fd(file.fd.as_fd())?)?;
        Ok(Reply::Write {
            file: Wcc { before: None, after: Some(attributes_of(&stat)) },
            count: written as u32,
            stability,
            verifier: self.verifier(),
        })
    }

    /// The whole file, whatever range is named, as Linux's server does for small ones.
    pub(super) fn commit(&self, file: HandleRef<'_>) -> Result<Reply<'static>, Status> {
        let (node, known) = self.nodes.table.node(file)?;
        // Any descriptor will do; one for reading needs fewer rights.
        let file = match self.nodes.open_file(node, &known, Use::Read) {
            Err(Status::ACCES) => self.nodes.open_file(node, &known, Use::Write)?,
            other => other?,
        };
        fdatasync(&file.fd).inspect_err(|errno| self.note_lost_data(*errno))?;
        let stat = self.nodes.alive(node, stat_fd(file.fd.as_fd())?)?;
        Ok(Reply::Commit {
            file: Wcc { before: None, after: Some(attributes_of(&stat)) },
            verifier: self.verifier(),
        })
    }

    fn verifier(&self) -> [u8; 8] {
        self.write_verifier.load(Ordering::Relaxed).to_be_bytes()
    }

    /// After a failed write-back the page cache may have dropped data that was answered for. Another
    /// verifier makes clients send again what they did not see committed.
    fn note_lost_data(&self, errno: Errno) {
        if errno == Errno::IO || errno == Errno::NOSPC || errno == Errno::DQUOT {
            self.write_verifier.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(%errno, "write-back failed: the write verifier changes, clients write again");
        }
    }
}

pub(super) fn truncate(fd: BorrowedFd<'_>, size: u64) -> Result<(), Status> {
    if size > i64::MAX as u64 {
        return Err(Status::FBIG);
    }
    Ok(ftruncate(fd, size)?)
}

/// Sets owner, mode and times where they differ from what `now` says; not the size. In this order: a change
/// of owner clears set-id bits, and any change but the last would spoil the times.
pub(super) fn set_attributes(fd: &OwnedFd, now: &Statx, new: &SetAttributes) -> Result<(), Status> {
    let uid = new.uid.filter(|uid| *uid != now.stx_uid);
    let gid = new.gid.filter(|gid| *gid != now.stx_gid);
    if uid == Some(u32::MAX) || gid == Some(u32::MAX) {
        return Err(Status::INVAL);
    }
    let owned = uid.is_some() || gid.is_some();
    if owned {
        chownat(fd, c"", uid.map(Uid::from_raw), gid.map(Gid::from_raw), AtFlags::EMPTY_PATH)?;
    }
    if let Some(mode) = new.mode.map(|mode| mode & 0o7777)
        && (owned || mode != mode_of(now))
    {
        if super::attributes::kind_of(now) == FileKind::Symlink {
            // Linux has no modes on symlinks; clients that set one do not mean it.
            tracing::trace!("mode of a symlink ignored");
        } else {
            // fchmod takes no O_PATH descriptor; its entry in /proc names the very object.
            let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
            chmodat(CWD, path, Mode::from_raw_mode(mode), AtFlags::empty())?;
        }
    }
    if new.atime != SetTime::Keep || new.mtime != SetTime::Keep {
        let times = Timestamps { last_access: timespec(new.atime)?, last_modification: timespec(new.mtime)? };
        utimensat(fd, c"", &times, AtFlags::EMPTY_PATH)?;
    }
    Ok(())
}

fn timespec(time: SetTime) -> Result<Timespec, Status> {
    Ok(match time {
        SetTime::Keep => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        SetTime::ServerTime => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        SetTime::To(NodeTime { s, ns }) if ns < 1_000_000_000 => {
            Timespec { tv_sec: i64::from(s), tv_nsec: i64::from(ns) as _ }
        }
        SetTime::To(_) => return Err(Status::INVAL),
    })
}
