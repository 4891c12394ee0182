//! READ, WRITE, COMMIT, SETATTR.

use files::{HandleRef, NodeTime, Reply, Scratch, SetAttributes, SetTime, Stability, Status};

use super::{IO_BYTES_MAX, PackTree, expect_file};
use crate::engine::{Cached, Held};
use crate::error::Refusal;
use crate::format::{Change, Record};
use crate::table::Inode;
use crate::time::now;

impl PackTree {
    /// The file of a handle, which stays for as long as it is held.
    pub(super) fn hold_file(&self, handle: HandleRef<'_>) -> Result<Held<'_>, Refusal> {
        expect_file(self.attributes_of(handle)?.kind)?;
        self.tree.engine.hold(self.inode(handle)?)
    }

    pub(super) fn read(
        &self,
        file: HandleRef<'_>,
        offset: u64,
        count: u32,
        scratch: &mut Scratch,
    ) -> Result<Reply<'static>, Refusal> {
        expect_file(self.attributes_of(file)?.kind)?;
        let inode = self.inode(file)?;
        let wanted = count.min(IO_BYTES_MAX) as usize;
        let caches = &self.answering().cached;
        let mut own = Cached::default();
        // Another read has it: this one does without.
        let mut shared = caches[inode as usize % caches.len()].try_lock();
        let cached = shared.as_deref_mut().unwrap_or(&mut own);
        let length = scratch.set_bytes(wanted, |into| {
            let mut done = 0;
            while done < into.len() {
                match self.tree.engine.read_file(
                    inode,
                    offset.saturating_add(done as u64),
                    &mut into[done..],
                    cached,
                )? {
                    0 => break,
                    more => done += more,
                }
            }
            Ok::<_, Refusal>(done)
        })?;
        let attributes = self.attributes_of(file)?;
        let end = offset.saturating_add(length as u64) >= attributes.size;
        Ok(Reply::Read { attributes: Some(attributes), bytes: &[], end })
    }

    pub(super) fn write(
        &self,
        file: HandleRef<'_>,
        offset: u64,
        bytes: &[u8],
        stability: Stability,
    ) -> Result<Reply<'static>, Refusal> {
        let held = self.hold_file(file)?;
        let bytes = &bytes[..bytes.len().min(IO_BYTES_MAX as usize)];
        let mut done = 0;
        while done < bytes.len() {
            let at = offset.checked_add(done as u64).ok_or(Status::FBIG)?;
            done += self.tree.engine.write_file(held.inode, Some(at), &bytes[done..])?.1;
        }
        if stability != Stability::Unstable {
            self.tree.engine.sync()?;
        }
        let (count, verifier) = (done as u32, self.answering().verifier);
        Ok(Reply::Write { file: self.after(file), count, stability, verifier })
    }

    /// All that was changed before, whatever range is named.
    pub(super) fn commit(&self, file: HandleRef<'_>) -> Result<Reply<'static>, Refusal> {
        expect_file(self.attributes_of(file)?.kind)?;
        self.tree.engine.sync()?;
        Ok(Reply::Commit { file: self.after(file), verifier: self.answering().verifier })
    }

    pub(super) fn setattr(
        &self,
        object: HandleRef<'_>,
        new: &SetAttributes,
        guard: Option<NodeTime>,
    ) -> Result<Reply<'static>, Refusal> {
        let found = self.attributes_of(object)?;
        if guard.is_some_and(|guard| guard != found.ctime) {
            return Err(Status::NOT_SYNC.into());
        }
        let change = change_of(new)?;
        if let Some(size) = new.size {
            let held = self.hold_file(object)?;
            self.tree.engine.truncate(held.inode, size)?;
        }
        let held = self.tree.engine.hold(self.inode(object)?)?;
        self.set(held.inode, change)?;
        Ok(Reply::Setattr { object: self.after(object) })
    }

    /// Sets attributes of an inode that is there, if there are any to set.
    pub(super) fn set(&self, inode: Inode, change: Change) -> Result<(), Refusal> {
        if change == Change::default() {
            return Ok(());
        }
        let record = Record::Set { time: now(), inode, change };
        self.tree.engine.change(|state| {
            state.table.node(inode)?.ok_or(Status::STALE)?;
            state.commit_to(inode, &record)
        })
    }
}

/// All of it but the size.
pub(super) fn change_of(new: &SetAttributes) -> Result<Change, Status> {
    let mode = new.mode.map(|mode| (mode & 0o7777) as u16);
    let (atime, mtime) = (time_of(new.atime)?, time_of(new.mtime)?);
    Ok(Change { mode, uid: new.uid, gid: new.gid, atime, mtime })
}

/// Nanoseconds since 1970, when a time is to be set.
fn time_of(time: SetTime) -> Result<Option<i64>, Status> {
    match time {
        SetTime::Keep => Ok(None),
        SetTime::ServerTime => Ok(Some(now())),
        SetTime::To(NodeTime { s, ns }) if ns < 1_000_000_000 => {
            Ok(Some(i64::from(s) * 1_000_000_000 + i64::from(ns)))
        }
        SetTime::To(_) => Err(Status::INVAL),
    }
}
