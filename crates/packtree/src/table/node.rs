//! An inode: its attributes, and what it consists of.

use super::extents::Extents;
use crate::format::{BLOCK_BYTES, NodeKind, Owner};

pub(crate) type Inode = u64;

/// What an inode is, as names and inodes on disk say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    File = 0,
    Directory = 1,
    Symlink = 2,
    CharDevice = 3,
    BlockDevice = 4,
    Fifo = 5,
    Socket = 6,
}

impl Kind {
    pub(crate) fn of(number: u8) -> Option<Self> {
        let all = [
            Self::File,
            Self::Directory,
            Self::Symlink,
            Self::CharDevice,
            Self::BlockDevice,
            Self::Fifo,
            Self::Socket,
        ];
        all.get(usize::from(number)).copied()
    }
}

/// Times are nanoseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Node {
    /// Permission bits, with set-id and sticky bits.
    pub mode: u16,
    pub owner: Owner,
    pub atime: i64,
    /// Last change of the contents.
    pub mtime: i64,
    /// Last change of anything.
    pub ctime: i64,
    /// Names.
    pub links: u32,
    /// Extended attributes, by name.
    pub xattrs: Vec<Xattr>,
    pub body: Body,
}

/// An extended attribute: its name and its value.
pub(crate) type Xattr = (Box<[u8]>, Box<[u8]>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    File(Content),
    Directory(Box<Directory>),
    Symlink(Box<[u8]>),
    Special(Special),
}

/// What a file holds. Where no piece is, there are zeros.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Content {
    pub size: u64,
    pub extents: Extents,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Directory {
    pub parent: Inode,
    /// In its parent. It stays when the directory is removed while it is open.
    pub name: Box<[u8]>,
    /// How many it has.
    pub names: u64,
    pub subdirectories: u32,
}

/// A device, a pipe or a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Special {
    pub kind: Kind,
    pub major: u32,
    pub minor: u32,
}

impl Node {
    pub(crate) fn kind(&self) -> Kind {
        match &self.body {
            Body::File(_) => Kind::File,
            Body::Directory(_) => Kind::Directory,
            Body::Symlink(_) => Kind::Symlink,
            Body::Special(special) => special.kind,
        }
    }

    pub(crate) fn is_directory(&self) -> bool {
        matches!(self.body, Body::Directory(_))
    }

    /// The directory, if it is one that has a name or is the root.
    pub(crate) fn as_directory(&self) -> Option<&Directory> {
        match &self.body {
            Body::Directory(directory) if self.links > 0 => Some(directory),
            _ => None,
        }
    }

    pub(crate) fn content(&self) -> Option<&Content> {
        match &self.body {
            Body::File(content) => Some(content),
            _ => None,
        }
    }

    /// A value of an extended attribute.
    pub(crate) fn xattr(&self, name: &[u8]) -> Option<&[u8]> {
        let at = self.xattrs.binary_search_by(|(found, _)| (**found).cmp(name)).ok()?;
        Some(&self.xattrs[at].1)
    }

    pub(super) fn set_xattr(&mut self, name: &[u8], value: Option<&[u8]>) {
        match (self.xattrs.binary_search_by(|(found, _)| (**found).cmp(name)), value) {
            (Ok(at), Some(value)) => self.xattrs[at].1 = value.into(),
            (Ok(at), None) => drop(self.xattrs.remove(at)),
            (Err(at), Some(value)) => self.xattrs.insert(at, (name.into(), value.into())),
            (Err(_), None) => {}
        }
    }

    /// About what it takes in memory.
    pub(crate) fn memory_bytes(&self) -> usize {
        let of_body = match &self.body {
            Body::File(content) => std::mem::size_of_val(content.extents.all()),
            Body::Directory(directory) => size_of::<Directory>() + directory.name.len(),
            Body::Symlink(text) => text.len(),
            Body::Special(_) => 0,
        };
        let of_xattrs: usize = self.xattrs.iter().map(|(name, value)| 32 + name.len() + value.len()).sum();
        size_of::<Self>() + 32 + of_body + of_xattrs
    }
}

impl Content {
    /// Of the blocks that it has.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.extents.all().iter().map(|extent| extent.piece.run().blocks).sum::<u64>() * BLOCK_BYTES
    }
}

impl Body {
    /// Of a new inode.
    pub(super) fn of_new(kind: &NodeKind, parent: Inode, name: &[u8]) -> Self {
        let special = |kind, major, minor| Self::Special(Special { kind, major, minor });
        match kind {
            NodeKind::File => Self::File(Content::default()),
            NodeKind::Symlink(text) => Self::Symlink(text.clone()),
            NodeKind::Directory => Self::Directory(Box::new(Directory {
                parent,
                name: name.into(),
                names: 0,
                subdirectories: 0,
            })),
            NodeKind::CharDevice { major, minor } => special(Kind::CharDevice, *major, *minor),
            NodeKind::BlockDevice { major, minor } => special(Kind::BlockDevice, *major, *minor),
            NodeKind::Fifo => special(Kind::Fifo, 0, 0),
            NodeKind::Socket => special(Kind::Socket, 0, 0),
        }
    }
}
