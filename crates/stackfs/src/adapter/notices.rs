//! What the daemon says to the kernel unasked: that names or attributes which it believes are no longer right.
//!
//! A message is written to the connection as it is in linux/fuse.h: a header whose second number is the kind of message and
//! whose third is 0, then the body.
//!
//! A notice about a name waits for requests in its directory that are under way, so no thread that serves requests may send one.
//! One about attributes waits for nothing.

use std::io::IoSlice;
use std::os::fd::OwnedFd;

use rustix::io::Errno;

/// The connection, for notices.
pub(super) struct Notices {
    connection: OwnedFd,
}

/// Kinds of message, `enum fuse_notify_code`.
const INVALIDATE_INODE: i32 = 2;
const INVALIDATE_ENTRY: i32 = 3;
const NEW_EPOCH: i32 = 8;
const HEADER_BYTES: usize = 16;

impl Notices {
    pub(super) fn new(connection: OwnedFd) -> Self {
        Self { connection }
    }

    /// Attributes of an inode are out of date, and with `contents` what is kept of its data or entries as well. ENOENT when the
    /// kernel does not have it.
    pub(super) fn inode(&self, id: u64, contents: bool) -> Result<(), Errno> {
        let offset: i64 = if contents { 0 } else { -1 };
        let mut body = [0; 24];
        body[..8].copy_from_slice(&id.to_ne_bytes());
        body[8..16].copy_from_slice(&offset.to_ne_bytes());
        // To the end.
        body[16..].copy_from_slice(&0i64.to_ne_bytes());
        self.send(INVALIDATE_INODE, &[IoSlice::new(&body)])
    }

    /// A name, there or missing, is out of date. ENOENT when the kernel does not have it.
    pub(super) fn entry(&self, directory: u64, name: &[u8]) -> Result<(), Errno> {
        let mut body = [0; 16];
        body[..8].copy_from_slice(&directory.to_ne_bytes());
        body[8..12].copy_from_slice(&(name.len() as u32).to_ne_bytes());
        self.send(INVALIDATE_ENTRY, &[IoSlice::new(&body), IoSlice::new(name), IoSlice::new(&[0])])
    }

    /// All names are out of date. EINVAL before Linux 6.16.
    pub(super) fn epoch(&self) -> Result<(), Errno> {
        self.send(NEW_EPOCH, &[])
    }

    fn send(&self, kind: i32, body: &[IoSlice<'_>]) -> Result<(), Errno> {
        let len = HEADER_BYTES + body.iter().map(|part| part.len()).sum::<usize>();
        let mut header = [0; HEADER_BYTES];
        header[..4].copy_from_slice(&(len as u32).to_ne_bytes());
        header[4..8].copy_from_slice(&kind.to_ne_bytes());
        let mut parts = vec![IoSlice::new(&header)];
        parts.extend(body.iter().copied());
        loop {
            match rustix::io::writev(&self.connection, &parts) {
                Err(Errno::INTR) => {}
                outcome => return outcome.map(|_| ()),
            }
        }
    }
}
