//! READDIR and READDIRPLUS.
//!
//! A cookie is the directory offset that the kernel gives with each entry (`d_off`), which stays where it is
//! while other names come and go; so a listing continues after any pause, also with a new descriptor, and
//! shows every name that was there all the time exactly once. The cookie verifier is therefore constant.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{Mode, OFlags, RawDir, SeekFrom, openat, seek, statx};
use rustix::io::Errno;

use super::attributes::{Identity, STAT_MASK, attributes_of, kind_of};
use super::nodes::{NO_FOLLOW, stat_fd};
use super::scratch::put_entry;
use super::table::{Node, ROOT};
use super::{Directory, Scratch};
use crate::{DirEntry, Entries, HandleRef, Reply, Status};

const COOKIE_VERIFIER: [u8; 8] = [0; 8];

/// XDR of a reply without entries: status, attributes, verifier, end of list, end flag.
const REPLY_BYTES: usize = 4 + 88 + 8 + 4 + 4;
/// XDR of an entry without its name: follows, fileid, name's length, cookie.
const ENTRY_BYTES: usize = 4 + 8 + 4 + 8;
/// XDR that READDIRPLUS adds: attributes, handle.
const ENTRY_PLUS_BYTES: usize = 88 + 4 + 4 + 24;
/// The most that one reply holds, whatever is asked for.
const REPLY_BYTES_MAX: usize = 128 * 1024;

/// Room for the entries of one READDIR or READDIRPLUS, in bytes of XDR.
#[derive(Clone, Copy, Debug)]
pub struct ListingRoom {
    /// Bytes of names, ids and cookies (the RFC's dircount); READDIR has no such limit.
    names: usize,
    reply: usize,
    plus: bool,
}

impl Directory {
    pub(super) fn readdir(
        &self,
        dir: HandleRef<'_>,
        cookie: u64,
        verifier: [u8; 8],
        count: u32,
        scratch: &mut Scratch,
    ) -> Result<Reply<'static>, Status> {
        self.list(dir, cookie, verifier, ListingRoom::of_readdir(count), scratch)
    }

    pub(super) fn readdirplus(
        &self,
        dir: HandleRef<'_>,
        cookie: u64,
        verifier: [u8; 8],
        name_bytes: u32,
        reply_bytes: u32,
        scratch: &mut Scratch,
    ) -> Result<Reply<'static>, Status> {
        self.list(dir, cookie, verifier, ListingRoom::of_readdirplus(name_bytes, reply_bytes), scratch)
    }

    fn list(
        &self,
        handle: HandleRef<'_>,
        cookie: u64,
        verifier: [u8; 8],
        room: Result<ListingRoom, Status>,
        scratch: &mut Scratch,
    ) -> Result<Reply<'static>, Status> {
        let (dir, path_fd) = self.nodes.dir(handle)?;
        if cookie != 0 && verifier != COOKIE_VERIFIER || cookie > i64::MAX as u64 {
            return Err(Status::BAD_COOKIE);
        }
        let mut room = room?;
        // A descriptor of its own: two listings must not share an offset.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = openat(&path_fd, c".", flags, Mode::empty())
            .map_err(|errno| self.dir_error(dir, &path_fd, errno))?;
        if cookie != 0 {
            seek(&fd, SeekFrom::Start(cookie)).map_err(|errno| match errno {
                Errno::INVAL => Status::BAD_COOKIE,
                other => other.into(),
            })?;
        }
        let Scratch { entries, dirents, .. } = scratch;
        // The kernel's entries are about as long as XDR's: what it reads ahead for nothing stays small.
        dirents.resize(room.reply.clamp(4096, 32 * 1024), MaybeUninit::uninit());
        let mut raw = RawDir::new(&fd, dirents);
        let end = loop {
            let Some(entry) = raw.next() else { break true };
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if !room.take(name.len()) {
                if entries.is_empty() {
                    return Err(Status::TOOSMALL);
                }
                break false;
            }
            let mut listed = DirEntry {
                fileid: entry.ino(),
                name,
                cookie: entry.next_entry_cookie(),
                attributes: None,
                object: None,
            };
            // What lies above the root is nobody's business.
            if name == b".." && dir == ROOT {
                listed.fileid = self.nodes.table.known(ROOT)?.identity.ino;
            }
            if !room.plus {
                put_entry(entries, &listed);
                continue;
            }
            let found = match name {
                b"." => Some((dir, attributes_of(&stat_fd(path_fd.as_fd())?))),
                b".." => None,
                _ => self.see(path_fd.as_fd(), dir, name),
            };
            // A name that went away since is listed bare: the client finds out when it asks for it.
            let object = found.as_ref().map(|(node, _)| self.nodes.table.handle(*node));
            listed.attributes = found.map(|(_, attributes)| attributes);
            listed.object = object.as_ref().map(crate::Handle::by_ref);
            put_entry(entries, &listed);
        };
        let attributes = attributes_of(&stat_fd(fd.as_fd())?);
        Ok(Reply::Listing {
            dir: Some(attributes),
            verifier: COOKIE_VERIFIER,
            entries: Entries::Listed(&[]),
            end,
        })
    }

    fn see(&self, fd: BorrowedFd<'_>, dir: Node, name: &[u8]) -> Option<(Node, crate::Attributes)> {
        let stat = statx(fd, name, NO_FOLLOW, STAT_MASK).ok()?;
        let node = self.nodes.table.seen(Identity::of(&stat), kind_of(&stat), dir, name);
        Some((node, attributes_of(&stat)))
    }
}

impl ListingRoom {
    /// Of a READDIR that asks for `count` bytes.
    ///
    /// # Errors
    /// `TOOSMALL`: not even an empty reply fits.
    pub fn of_readdir(count: u32) -> Result<Self, Status> {
        Self { names: usize::MAX, reply: count as usize, plus: false }.without_reply()
    }

    /// Of a READDIRPLUS, by the RFC's `dircount` and `maxcount`.
    ///
    /// # Errors
    /// `TOOSMALL`: not even an empty reply fits.
    pub fn of_readdirplus(name_bytes: u32, reply_bytes: u32) -> Result<Self, Status> {
        Self { names: name_bytes as usize, reply: reply_bytes as usize, plus: true }.without_reply()
    }

    fn without_reply(self) -> Result<Self, Status> {
        let reply = self.reply.min(REPLY_BYTES_MAX).checked_sub(REPLY_BYTES).ok_or(Status::TOOSMALL)?;
        Ok(Self { reply, ..self })
    }

    /// Whether entries carry attributes and handles.
    pub fn is_plus(&self) -> bool {
        self.plus
    }

    /// No more entries than this fit, however short their names.
    pub fn entries_max(&self) -> usize {
        self.reply / (ENTRY_BYTES + 4)
    }

    /// Takes the room of one entry, if it is there.
    pub fn take(&mut self, name_len: usize) -> bool {
        let bare = ENTRY_BYTES + name_len.next_multiple_of(4);
        let whole = bare + if self.plus { ENTRY_PLUS_BYTES } else { 0 };
        // The RFC's dircount is a hint: the first entry is given though it may exceed it.
        let names = if self.names == usize::MAX { 0 } else { bare };
        if whole > self.reply || names > self.names {
            return false;
        }
        self.reply -= whole;
        self.names -= names;
        true
    }
}
