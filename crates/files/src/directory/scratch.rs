//! Memory that one operation at a time puts its reply into.
//!
//! An operation leaves its bytes here and returns a reply whose borrowed parts are empty; [`Scratch::fill`]
//! puts them in. So a reply can travel between threads together with its scratch, and nothing is allocated
//! once the buffers have grown to what is asked of them.

use std::mem::MaybeUninit;

use crate::{Attributes, DirEntry, Entries, FileKind, Handle, HandleRef, NodeTime, Reply};

/// Buffers of one operation at a time, for [`crate::FileService::perform`]. Grows to the largest READ asked
/// of it, at most [`crate::DirectoryOptions::io_bytes_max`].
#[derive(Default)]
pub struct Scratch {
    /// Bytes of a READ, or a link's target.
    pub(super) bytes: Vec<u8>,
    /// How many of `bytes` belong to the reply.
    pub(super) bytes_len: usize,
    pub(super) handle: Option<Handle>,
    /// Entries of a listing, as [`put_entry`] encodes them.
    pub(super) entries: Vec<u8>,
    /// What the kernel returned for a listing.
    pub(super) dirents: Vec<MaybeUninit<u8>>,
}

impl Scratch {
    /// Empty buffers.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets the last operation; its buffers stay.
    pub fn clear(&mut self) {
        self.bytes_len = 0;
        self.handle = None;
        self.entries.clear();
    }

    /// The handle of the reply.
    pub fn set_handle(&mut self, handle: Handle) {
        self.handle = Some(handle);
    }

    /// The bytes of the reply: `write` fills a buffer of `len_max` bytes and returns how many of them count.
    ///
    /// # Errors
    /// Those of `write`.
    pub fn set_bytes<E>(
        &mut self,
        len_max: usize,
        write: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        self.bytes_len = write(self.room(len_max))?.min(len_max);
        Ok(self.bytes_len)
    }

    /// One more entry of the reply's listing.
    pub fn add_entry(&mut self, entry: &DirEntry<'_>) {
        put_entry(&mut self.entries, entry);
    }

    /// Puts the borrowed parts into the reply that the last operation returned.
    pub fn fill(&self, reply: Reply<'static>) -> Reply<'_> {
        let handle = || self.handle.as_ref().map(Handle::by_ref);
        let bytes = &self.bytes[..self.bytes_len];
        match reply {
            Reply::Lookup { attributes, dir, .. } => {
                Reply::Lookup { object: handle().unwrap_or(HandleRef(&[])), attributes, dir }
            }
            Reply::Created { attributes, dir, .. } => Reply::Created { object: handle(), attributes, dir },
            Reply::Readlink { attributes, .. } => Reply::Readlink { attributes, target: bytes },
            Reply::Read { attributes, end, .. } => Reply::Read { attributes, bytes, end },
            Reply::Listing { dir, verifier, end, .. } => {
                let entries = Entries::Encoded { bytes: &self.entries, step: take_entry };
                Reply::Listing { dir, verifier, entries, end }
            }
            // Nothing borrowed in these; they are rebuilt for the lifetime only.
            Reply::Null => Reply::Null,
            Reply::Getattr { attributes } => Reply::Getattr { attributes },
            Reply::Setattr { object } => Reply::Setattr { object },
            Reply::Access { attributes, rights } => Reply::Access { attributes, rights },
            Reply::Write { file, count, stability, verifier } => {
                Reply::Write { file, count, stability, verifier }
            }
            Reply::Removed { dir } => Reply::Removed { dir },
            Reply::Rename { from_dir, to_dir } => Reply::Rename { from_dir, to_dir },
            Reply::Link { attributes, dir } => Reply::Link { attributes, dir },
            Reply::Fsstat { attributes, stat } => Reply::Fsstat { attributes, stat },
            Reply::Fsinfo { attributes, limits } => Reply::Fsinfo { attributes, limits },
            Reply::Pathconf { attributes, limits } => Reply::Pathconf { attributes, limits },
            Reply::Commit { file, verifier } => Reply::Commit { file, verifier },
        }
    }

    /// Room for `len` bytes.
    pub(super) fn room(&mut self, len: usize) -> &mut [u8] {
        if self.bytes.len() < len {
            self.bytes.resize(len, 0);
        }
        &mut self.bytes[..len]
    }
}

/// Appends: fileid, cookie, name length u16, name, handle length u8, handle, 0 or 1 and the attributes.
/// Numbers are little endian.
pub(super) fn put_entry(out: &mut Vec<u8>, entry: &DirEntry<'_>) {
    out.extend_from_slice(&entry.fileid.to_le_bytes());
    out.extend_from_slice(&entry.cookie.to_le_bytes());
    out.extend_from_slice(&(entry.name.len() as u16).to_le_bytes());
    out.extend_from_slice(entry.name);
    let handle = entry.object.map_or(&[][..], |object| object.0);
    out.push(handle.len() as u8);
    out.extend_from_slice(handle);
    let Some(attributes) = entry.attributes else {
        out.push(0);
        return;
    };
    out.push(1);
    let Attributes { kind, mode, links, uid, gid, size, used, device, fsid, fileid, atime, mtime, ctime } =
        attributes;
    for word in [kind as u32, mode, links, uid, gid, device.0, device.1] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    for long in [size, used, fsid, fileid] {
        out.extend_from_slice(&long.to_le_bytes());
    }
    for time in [atime, mtime, ctime] {
        out.extend_from_slice(&time.s.to_le_bytes());
        out.extend_from_slice(&time.ns.to_le_bytes());
    }
}

fn take_entry(bytes: &[u8]) -> Option<(DirEntry<'_>, &[u8])> {
    let mut rest = Rest(bytes);
    let (fileid, cookie) = (rest.long()?, rest.long()?);
    let name_len = u16::from_le_bytes(rest.array()?);
    let name = rest.bytes(usize::from(name_len))?;
    let [handle_len] = rest.array()?;
    let handle = rest.bytes(usize::from(handle_len))?;
    let attributes = match rest.array()? {
        [0] => None,
        [_] => {
            let kind = kind_from(rest.word()?)?;
            let (mode, links, uid, gid) = (rest.word()?, rest.word()?, rest.word()?, rest.word()?);
            let device = (rest.word()?, rest.word()?);
            let (size, used, fsid, fileid) = (rest.long()?, rest.long()?, rest.long()?, rest.long()?);
            let (atime, mtime, ctime) = (rest.time()?, rest.time()?, rest.time()?);
            Some(Attributes {
                kind,
                mode,
                links,
                uid,
                gid,
                size,
                used,
                device,
                fsid,
                fileid,
                atime,
                mtime,
                ctime,
            })
        }
    };
    let object = (!handle.is_empty()).then_some(HandleRef(handle));
    Some((DirEntry { fileid, name, cookie, attributes, object }, rest.0))
}

fn kind_from(number: u32) -> Option<FileKind> {
    use FileKind as K;
    [K::Regular, K::Directory, K::BlockDevice, K::CharDevice, K::Symlink, K::Socket, K::Fifo]
        .into_iter()
        .find(|kind| *kind as u32 == number)
}

struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (first, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(first)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    fn word(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn long(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn time(&mut self) -> Option<NodeTime> {
        Some(NodeTime { s: self.word()?, ns: self.word()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_come_out_as_they_went_in() {
        let attributes = Attributes {
            kind: FileKind::Fifo,
            mode: 0o1644,
            links: 3,
            uid: 4,
            gid: 5,
            size: 1 << 40,
            used: 7,
            device: (8, 9),
            fsid: 10,
            fileid: 11,
            atime: NodeTime { s: 12, ns: 13 },
            mtime: NodeTime { s: 14, ns: 15 },
            ctime: NodeTime { s: u32::MAX, ns: 17 },
        };
        let bare = DirEntry { fileid: 1, name: b".", cookie: u64::MAX, attributes: None, object: None };
        let full = DirEntry {
            name: &[0xff; 255],
            attributes: Some(attributes),
            object: Some(HandleRef(&[3; 64])),
            ..bare
        };
        let mut bytes = Vec::new();
        put_entry(&mut bytes, &bare);
        put_entry(&mut bytes, &full);
        let entries = Entries::Encoded { bytes: &bytes, step: take_entry };
        assert_eq!(entries, Entries::Listed(&[bare, full]));
    }
}
