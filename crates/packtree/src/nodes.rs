//! Calls by inode number, with all attributes of a POSIX tree: what a mount or an export of a tree needs.
//!
//! ```text
//! kernel --lookup(parent, name), read(inode, offset), ...--> TreeNodes --> Engine
//! ```
//!
//! An inode number is a handle: it is never used for another inode, also after a restart, and there is one generation. What has
//! no name any more stays while it is open ([`OpenNode`]); after a kill it is gone.
//!
//! Not here: permissions (the kernel checks them, or the export does), time stamps of reading (set them with [`TreeNodes::set`]),
//! locks.

mod names;
mod xattrs;

use std::sync::{Arc, Mutex};

use files::{FileKind, Status};

use crate::engine::{Cached, Engine};
use crate::error::{Refusal, TreeError};
use crate::file_system::{Opened, file_kind};
use crate::format::{Change, Record};
use crate::table::{Body, Dangling, Inode, Listed, Node, ROOT};
use crate::time::now;

pub(crate) use names::named;
pub use names::{NewKind, NewNode, RenameHow};
pub use xattrs::XattrHow;

/// The inodes of a tree. It stays open while this is there.
#[derive(Clone)]
pub struct TreeNodes {
    tree: Arc<Opened>,
}

/// Attributes of an inode. Times are nanoseconds since 1970, negative before.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // As stat(2) has them.
pub struct NodeAttributes {
    pub inode: u64,
    pub kind: FileKind,
    /// Permission bits, with set-id and sticky bits.
    pub mode: u16,
    pub links: u32,
    pub uid: u32,
    pub gid: u32,
    /// Bytes; of a directory the number of its names.
    pub size: u64,
    pub used_bytes: u64,
    /// Major and minor number of a device.
    pub device: (u32, u32),
    pub atime_ns: i64,
    pub mtime_ns: i64,
    pub ctime_ns: i64,
}

/// Attributes to set; what is `None` stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // As in `NodeAttributes`.
pub struct SetAttributes {
    pub mode: Option<u16>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub atime_ns: Option<i64>,
    pub mtime_ns: Option<i64>,
}

/// A name of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeEntry {
    /// Bytes without meaning.
    pub name: Box<[u8]>,
    /// What it leads to.
    pub inode: u64,
    /// What that is.
    pub kind: FileKind,
}

/// Why a call was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// As every file system says it.
    #[error("{0}")]
    Status(Status),
    /// The inode has no extended attribute of this name (ENODATA).
    #[error("no extended attribute of this name is there")]
    NoXattr,
    /// A value has at most 4,096 bytes, and those of an inode 64 KiB (E2BIG).
    #[error("an extended attribute is too long: up to 4096 bytes are stored, and 65536 for one inode")]
    XattrTooLong,
    /// The tree could not be read or written (EIO).
    #[error(transparent)]
    Tree(#[from] TreeError),
}

impl NodeError {
    fn of(engine: &Engine, refusal: Refusal) -> Self {
        match refusal {
            Refusal::Status(status) => Self::Status(status),
            Refusal::Room => Self::Status(Status::NOSPC),
            Refusal::Block(_) => Self::Status(Status::IO),
            Refusal::Dangling(Dangling { what, inode }) => {
                let place = engine.place.clone();
                Self::Tree(TreeError::Inconsistent { place, inode, what })
            }
            Refusal::Tree(TreeError::Disk(disk)) if disk.kind() == std::io::ErrorKind::StorageFull => {
                Self::Status(Status::NOSPC)
            }
            Refusal::Tree(error) => Self::Tree(error),
        }
    }
}

impl TreeNodes {
    /// Number of the root.
    pub const ROOT: u64 = ROOT;

    pub(crate) fn new(tree: Arc<Opened>) -> Self {
        Self { tree }
    }

    fn engine(&self) -> &Engine {
        &self.tree.engine
    }

    fn done<T>(&self, done: Result<T, Refusal>) -> Result<T, NodeError> {
        done.map_err(|refusal| NodeError::of(self.engine(), refusal))
    }

    fn node(&self, inode: Inode) -> Result<Arc<Node>, Refusal> {
        self.engine().look(|state| state.table.node(inode)?.ok_or(Status::STALE.into()))
    }

    /// Attributes of an inode, also of one that is open and has no name.
    ///
    /// # Errors
    /// `STALE` when it is gone.
    pub fn attributes(&self, inode: u64) -> Result<NodeAttributes, NodeError> {
        let node = self.done(self.node(inode))?;
        Ok(attributes(inode, &node))
    }

    /// Sets attributes; a size is set first, as a change of its own.
    ///
    /// # Errors
    /// `STALE`, `ISDIR` and `INVAL` for the size of what is no file, `FBIG`, `NOSPC`, `ROFS`.
    pub fn set(&self, inode: u64, set: &SetAttributes) -> Result<NodeAttributes, NodeError> {
        let SetAttributes { mode, uid, gid, size, atime_ns, mtime_ns } = *set;
        if let Some(size) = size {
            self.done(self.check_is_file(inode))?;
            self.done(self.engine().truncate(inode, size))?;
        }
        let mode = mode.map(|mode| mode & 0o7777);
        let change = Change { mode, uid, gid, atime: atime_ns, mtime: mtime_ns };
        if change != Change::default() {
            let record = Record::Set { time: now(), inode, change };
            self.done(self.change_inode(inode, &record))?;
        }
        self.attributes(inode)
    }

    /// Journals a change of one inode, which must be there.
    fn change_inode(&self, inode: Inode, record: &Record) -> Result<(), Refusal> {
        self.engine().change(|state| {
            state.table.node(inode)?.ok_or(Status::STALE)?;
            state.commit_to(inode, record)
        })
    }

    fn check_is_file(&self, inode: Inode) -> Result<(), Refusal> {
        match &self.node(inode)?.body {
            Body::File(_) => Ok(()),
            Body::Directory(_) => Err(Status::ISDIR.into()),
            Body::Symlink(_) | Body::Special(_) => Err(Status::INVAL.into()),
        }
    }

    /// Makes a range of a file a hole: it reads as zeros, and its space is free. The size stays.
    ///
    /// # Errors
    /// As [`TreeNodes::set`].
    pub fn punch_hole(&self, inode: u64, offset: u64, bytes: u64) -> Result<(), NodeError> {
        self.done(self.check_is_file(inode))?;
        self.done(self.engine().punch_hole(inode, offset, bytes))
    }

    /// The text of a symbolic link.
    ///
    /// # Errors
    /// `INVAL` when it is not one, `STALE` when it is gone.
    pub fn readlink(&self, inode: u64) -> Result<Box<[u8]>, NodeError> {
        match &self.done(self.node(inode))?.body {
            Body::Symlink(text) => Ok(text.clone()),
            _ => Err(NodeError::Status(Status::INVAL)),
        }
    }

    /// Up to `entries_max` names of a directory behind `after`, in the order of their bytes, without `.` and `..`. The second value
    /// says that they are the last. The empty name is before all others.
    ///
    /// # Errors
    /// `NOTDIR`; `IO` when names are damaged, and those before them were returned by earlier calls.
    pub fn list(
        &self,
        directory: u64,
        after: &[u8],
        entries_max: usize,
    ) -> Result<(Vec<NodeEntry>, bool), NodeError> {
        let listed = self.engine().look(|state| {
            let node = state.table.node(directory)?.ok_or(Status::STALE)?;
            if !node.is_directory() {
                return Err(Status::NOTDIR.into());
            }
            state.table.list(directory, after, entries_max.max(1))
        });
        let Listed { names, is_end, damaged } = self.done(listed)?;
        if let Some(lost) = damaged.filter(|_| names.is_empty()) {
            return Err(NodeError::of(self.engine(), lost));
        }
        let entry = |(name, named): (_, crate::format::Named)| NodeEntry {
            name,
            inode: named.inode,
            kind: file_kind(named.kind),
        };
        Ok((names.into_iter().map(entry).collect(), is_end))
    }

    /// Opens a file, or holds any other inode: it stays as long as this is there, also without a name.
    ///
    /// # Errors
    /// `STALE` when it is gone.
    pub fn open(&self, inode: u64) -> Result<OpenNode, NodeError> {
        let held = self.engine().look_mut(|state| {
            state.table.node(inode)?.ok_or(Status::STALE)?;
            state.table.hold(inode);
            Ok(())
        });
        self.done(held)?;
        Ok(OpenNode { nodes: self.clone(), inode, cached: Mutex::default() })
    }

    /// Makes everything durable that was changed before.
    ///
    /// # Errors
    /// When the disk failed: then nothing is written any more.
    pub fn sync(&self) -> Result<(), NodeError> {
        Ok(self.engine().sync()?)
    }
}

/// An inode that is open. Reads and writes may run in parallel.
pub struct OpenNode {
    nodes: TreeNodes,
    inode: Inode,
    cached: Mutex<Cached>,
}

impl OpenNode {
    /// Its number.
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// Reads at `offset` until `into` is full or the file ends. Returns how many bytes.
    ///
    /// # Errors
    /// `STALE` when it is no file, `IO` when a piece fails its checksum.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<usize, NodeError> {
        let mut own = Cached::default();
        // Others that read meanwhile do without the piece that was read last.
        let mut shared = self.cached.try_lock();
        let cached = shared.as_deref_mut().unwrap_or(&mut own);
        let mut done = 0;
        while done < into.len() {
            let at = offset.saturating_add(done as u64);
            let read = self.nodes.engine().read_file(self.inode, at, &mut into[done..], cached);
            match self.nodes.done(read)? {
                0 => break,
                bytes => done += bytes,
            }
        }
        Ok(done)
    }

    /// Writes all of `bytes` at `offset`, or at the end. Returns where.
    ///
    /// # Errors
    /// `NOSPC`, `FBIG`, `ROFS`; a part may have been written.
    pub fn write(&self, offset: Option<u64>, bytes: &[u8]) -> Result<u64, NodeError> {
        let (mut start, mut done) = (None, 0);
        while done < bytes.len() {
            let at = match start.or(offset) {
                Some(first) => Some(first.checked_add(done as u64).ok_or(NodeError::Status(Status::FBIG))?),
                None => None,
            };
            let written = self.nodes.engine().write_file(self.inode, at, &bytes[done..]);
            let (at, written) = self.nodes.done(written)?;
            start.get_or_insert(at);
            done += written;
        }
        match start.or(offset) {
            Some(start) => Ok(start),
            None => self.nodes.done(self.nodes.engine().size_of(self.inode)),
        }
    }
}

impl Drop for OpenNode {
    fn drop(&mut self) {
        self.nodes.engine().let_go(self.inode);
    }
}

fn attributes(inode: Inode, node: &Node) -> NodeAttributes {
    let (links, size, used_bytes, device) = match &node.body {
        Body::Directory(directory) => (1 + node.links + directory.subdirectories, directory.names, 0, (0, 0)),
        Body::Symlink(text) => (node.links, text.len() as u64, 0, (0, 0)),
        Body::Special(special) => (node.links, 0, 0, (special.major, special.minor)),
        Body::File(content) => (node.links, content.size, content.used_bytes(), (0, 0)),
    };
    NodeAttributes {
        inode,
        kind: file_kind(node.kind()),
        mode: node.mode,
        links,
        uid: node.owner.uid,
        gid: node.owner.gid,
        size,
        used_bytes,
        device,
        atime_ns: node.atime,
        mtime_ns: node.mtime,
        ctime_ns: node.ctime,
    }
}
