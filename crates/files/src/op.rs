//! What can be asked of storage and what comes back: the 22 procedures of NFSv3 (RFC 1813, section 3.3).
//!
//! Requests and replies borrow: a request from its caller, a reply from the buffer it arrived in, so that
//! neither side of the hot path allocates. Both the client and the server of `nfs` speak these types, and
//! so does a local directory.
//!
//! Always holds: names and link targets are bytes without meaning; handles are opaque and at most 64 bytes.

/// The procedures of NFSv3, by their numbers on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[allow(missing_docs)] // The names are the RFC's.
pub enum OpKind {
    Null = 0,
    Getattr = 1,
    Setattr = 2,
    Lookup = 3,
    Access = 4,
    Readlink = 5,
    Read = 6,
    Write = 7,
    Create = 8,
    Mkdir = 9,
    Symlink = 10,
    Mknod = 11,
    Remove = 12,
    Rmdir = 13,
    Rename = 14,
    Link = 15,
    Readdir = 16,
    Readdirplus = 17,
    Fsstat = 18,
    Fsinfo = 19,
    Pathconf = 20,
    Commit = 21,
}

impl OpKind {
    /// How many there are.
    pub const COUNT: usize = 22;

    /// All of them, by number.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Null,
        Self::Getattr,
        Self::Setattr,
        Self::Lookup,
        Self::Access,
        Self::Readlink,
        Self::Read,
        Self::Write,
        Self::Create,
        Self::Mkdir,
        Self::Symlink,
        Self::Mknod,
        Self::Remove,
        Self::Rmdir,
        Self::Rename,
        Self::Link,
        Self::Readdir,
        Self::Readdirplus,
        Self::Fsstat,
        Self::Fsinfo,
        Self::Pathconf,
        Self::Commit,
    ];

    const NAMES: [&'static str; Self::COUNT] = [
        "null",
        "getattr",
        "setattr",
        "lookup",
        "access",
        "readlink",
        "read",
        "write",
        "create",
        "mkdir",
        "symlink",
        "mknod",
        "remove",
        "rmdir",
        "rename",
        "link",
        "readdir",
        "readdirplus",
        "fsstat",
        "fsinfo",
        "pathconf",
        "commit",
    ];

    /// The RFC's name in lower case.
    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// The operation of this name, as [`Self::name`] spells it.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::NAMES.iter().position(|known| *known == name).map(|number| Self::ALL[number])
    }

    /// The operation with this number on the wire.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.get(number as usize).copied()
    }
}

/// A file handle, borrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HandleRef<'a>(pub &'a [u8]);

/// A file handle, owned: at most 64 bytes that only the server understands (RFC 1813, section 2.3.3).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle {
    len: u8,
    bytes: [u8; Self::BYTES_MAX],
}

impl Handle {
    /// `NFS3_FHSIZE`.
    pub const BYTES_MAX: usize = 64;

    /// A copy of `bytes`, or nothing when they are too many.
    pub fn new(bytes: &[u8]) -> Option<Self> {
        let mut handle = Self { len: u8::try_from(bytes.len()).ok()?, bytes: [0; Self::BYTES_MAX] };
        handle.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(handle)
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// The handle, borrowed.
    pub fn by_ref(&self) -> HandleRef<'_> {
        HandleRef(self.as_bytes())
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Handle(")?;
        self.as_bytes().iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str(")")
    }
}

/// Seconds and nanoseconds since 1970 (`nfstime3`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct NodeTime {
    /// Seconds.
    pub s: u32,
    /// Nanoseconds, below one thousand million.
    pub ns: u32,
}

/// What an object is (`ftype3`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum FileKind {
    Regular = 1,
    Directory = 2,
    BlockDevice = 3,
    CharDevice = 4,
    Symlink = 5,
    Socket = 6,
    Fifo = 7,
}

/// Attributes of an object (`fattr3`, RFC 1813 section 2.3.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// What it is.
    pub kind: FileKind,
    /// Permission bits, with set-id and sticky bits.
    pub mode: u32,
    /// Hard links.
    pub links: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Length, bytes.
    pub size: u64,
    /// Space taken, bytes.
    pub used: u64,
    /// Major and minor number of a device.
    pub device: (u32, u32),
    /// File system identifier.
    pub fsid: u64,
    /// Number of the object within its file system.
    pub fileid: u64,
    /// Last access.
    pub atime: NodeTime,
    /// Last change of the content.
    pub mtime: NodeTime,
    /// Last change of the attributes.
    pub ctime: NodeTime,
}

/// Attributes from before an operation, to tell whether someone else changed the object (`wcc_attr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreAttributes {
    /// Length, bytes.
    pub size: u64,
    /// Last change of the content.
    pub mtime: NodeTime,
    /// Last change of the attributes.
    pub ctime: NodeTime,
}

/// An object before and after an operation, as far as the server says (`wcc_data`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wcc {
    /// Before.
    pub before: Option<PreAttributes>,
    /// After.
    pub after: Option<Attributes>,
}

/// A new time (`set_atime`, `set_mtime`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetTime {
    /// Leave it.
    #[default]
    Keep,
    /// The server's now.
    ServerTime,
    /// This one.
    To(NodeTime),
}

/// New attributes; what is `None` stays (`sattr3`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length, bytes: truncates or extends.
    pub size: Option<u64>,
    /// Access time.
    pub atime: SetTime,
    /// Modification time.
    pub mtime: SetTime,
}

/// What to do when the name is taken (`createmode3`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateHow {
    /// Take the file that is there, with these attributes.
    Unchecked(SetAttributes),
    /// Fail with `NFS3ERR_EXIST`.
    Guarded(SetAttributes),
    /// As `Guarded`, but a repeat with the same verifier succeeds.
    Exclusive([u8; 8]),
}

/// How durable a write must be before it is answered (`stable_how`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Stability {
    /// Not at all, until a COMMIT.
    Unstable = 0,
    /// The data.
    DataSync = 1,
    /// Data and attributes.
    FileSync = 2,
}

/// A special file to make (`mknoddata3`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum NodeKind {
    BlockDevice { device: (u32, u32) },
    CharDevice { device: (u32, u32) },
    Socket,
    Fifo,
}

/// One operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // Fields are the RFC's arguments.
pub enum Request<'a> {
    Null,
    Getattr {
        object: HandleRef<'a>,
    },
    /// `guard`: fail with `NFS3ERR_NOT_SYNC` unless the object's ctime is this.
    Setattr {
        object: HandleRef<'a>,
        new: SetAttributes,
        guard: Option<NodeTime>,
    },
    Lookup {
        dir: HandleRef<'a>,
        name: &'a [u8],
    },
    /// `rights`: bits of RFC 1813, section 3.3.4.
    Access {
        object: HandleRef<'a>,
        rights: u32,
    },
    Readlink {
        link: HandleRef<'a>,
    },
    Read {
        file: HandleRef<'a>,
        offset: u64,
        count: u32,
    },
    Write {
        file: HandleRef<'a>,
        offset: u64,
        bytes: &'a [u8],
        stability: Stability,
    },
    Create {
        dir: HandleRef<'a>,
        name: &'a [u8],
        how: CreateHow,
    },
    Mkdir {
        dir: HandleRef<'a>,
        name: &'a [u8],
        new: SetAttributes,
    },
    Symlink {
        dir: HandleRef<'a>,
        name: &'a [u8],
        target: &'a [u8],
        new: SetAttributes,
    },
    Mknod {
        dir: HandleRef<'a>,
        name: &'a [u8],
        node: NodeKind,
        new: SetAttributes,
    },
    Remove {
        dir: HandleRef<'a>,
        name: &'a [u8],
    },
    Rmdir {
        dir: HandleRef<'a>,
        name: &'a [u8],
    },
    Rename {
        from_dir: HandleRef<'a>,
        from_name: &'a [u8],
        to_dir: HandleRef<'a>,
        to_name: &'a [u8],
    },
    Link {
        file: HandleRef<'a>,
        dir: HandleRef<'a>,
        name: &'a [u8],
    },
    /// `count`: bytes of XDR the reply may have.
    Readdir {
        dir: HandleRef<'a>,
        cookie: u64,
        verifier: [u8; 8],
        count: u32,
    },
    /// `name_bytes`, `reply_bytes`: the RFC's `dircount` and `maxcount`.
    Readdirplus {
        dir: HandleRef<'a>,
        cookie: u64,
        verifier: [u8; 8],
        name_bytes: u32,
        reply_bytes: u32,
    },
    Fsstat {
        root: HandleRef<'a>,
    },
    Fsinfo {
        root: HandleRef<'a>,
    },
    Pathconf {
        object: HandleRef<'a>,
    },
    /// `count` 0: to the end of the file.
    Commit {
        file: HandleRef<'a>,
        offset: u64,
        count: u32,
    },
}

impl Request<'_> {
    /// Which procedure it is.
    pub fn kind(&self) -> OpKind {
        match self {
            Self::Null => OpKind::Null,
            Self::Getattr { .. } => OpKind::Getattr,
            Self::Setattr { .. } => OpKind::Setattr,
            Self::Lookup { .. } => OpKind::Lookup,
            Self::Access { .. } => OpKind::Access,
            Self::Readlink { .. } => OpKind::Readlink,
            Self::Read { .. } => OpKind::Read,
            Self::Write { .. } => OpKind::Write,
            Self::Create { .. } => OpKind::Create,
            Self::Mkdir { .. } => OpKind::Mkdir,
            Self::Symlink { .. } => OpKind::Symlink,
            Self::Mknod { .. } => OpKind::Mknod,
            Self::Remove { .. } => OpKind::Remove,
            Self::Rmdir { .. } => OpKind::Rmdir,
            Self::Rename { .. } => OpKind::Rename,
            Self::Link { .. } => OpKind::Link,
            Self::Readdir { .. } => OpKind::Readdir,
            Self::Readdirplus { .. } => OpKind::Readdirplus,
            Self::Fsstat { .. } => OpKind::Fsstat,
            Self::Fsinfo { .. } => OpKind::Fsinfo,
            Self::Pathconf { .. } => OpKind::Pathconf,
            Self::Commit { .. } => OpKind::Commit,
        }
    }
}

/// What a successful operation brings. Failures are a [`crate::Status`] instead.
#[derive(Clone, Copy, Debug, PartialEq)]
#[allow(missing_docs)] // Fields are the RFC's results.
pub enum Reply<'a> {
    Null,
    Getattr {
        attributes: Attributes,
    },
    Setattr {
        object: Wcc,
    },
    Lookup {
        object: HandleRef<'a>,
        attributes: Option<Attributes>,
        dir: Option<Attributes>,
    },
    Access {
        attributes: Option<Attributes>,
        rights: u32,
    },
    Readlink {
        attributes: Option<Attributes>,
        target: &'a [u8],
    },
    Read {
        attributes: Option<Attributes>,
        bytes: &'a [u8],
        end: bool,
    },
    Write {
        file: Wcc,
        count: u32,
        stability: Stability,
        verifier: [u8; 8],
    },
    /// Of CREATE, MKDIR, SYMLINK and MKNOD. A server need not tell the handle: then look the name up.
    Created {
        object: Option<HandleRef<'a>>,
        attributes: Option<Attributes>,
        dir: Wcc,
    },
    /// Of REMOVE and RMDIR.
    Removed {
        dir: Wcc,
    },
    Rename {
        from_dir: Wcc,
        to_dir: Wcc,
    },
    Link {
        attributes: Option<Attributes>,
        dir: Wcc,
    },
    /// Of READDIR and READDIRPLUS.
    Listing {
        dir: Option<Attributes>,
        verifier: [u8; 8],
        entries: Entries<'a>,
        end: bool,
    },
    Fsstat {
        attributes: Option<Attributes>,
        stat: Fsstat,
    },
    Fsinfo {
        attributes: Option<Attributes>,
        limits: Fsinfo,
    },
    Pathconf {
        attributes: Option<Attributes>,
        limits: Pathconf,
    },
    Commit {
        file: Wcc,
        verifier: [u8; 8],
    },
}

/// One name in a directory. Attributes and handle come with READDIRPLUS only, and not always then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct DirEntry<'a> {
    pub fileid: u64,
    pub name: &'a [u8],
    /// Where to go on after this entry.
    pub cookie: u64,
    pub attributes: Option<Attributes>,
    pub object: Option<HandleRef<'a>>,
}

/// Takes the first entry off encoded ones and returns it with the rest; `None` at the end.
pub type EntryStep<'a> = fn(&'a [u8]) -> Option<(DirEntry<'a>, &'a [u8])>;

/// The entries of a listing: in memory, or still in the form they arrived in and decoded as they are walked.
#[derive(Clone, Copy)]
pub enum Entries<'a> {
    /// In memory.
    Listed(&'a [DirEntry<'a>]),
    /// Encoded, already checked as a whole; `step` takes the first entry off and returns the rest.
    Encoded {
        /// The encoded entries.
        bytes: &'a [u8],
        /// Takes the first off; `None` at the end.
        step: EntryStep<'a>,
    },
}

impl<'a> Iterator for Entries<'a> {
    type Item = DirEntry<'a>;

    fn next(&mut self) -> Option<DirEntry<'a>> {
        match self {
            Self::Listed(entries) => {
                let (first, rest) = entries.split_first()?;
                *entries = rest;
                Some(*first)
            }
            Self::Encoded { bytes, step } => {
                let (first, rest) = step(bytes)?;
                *bytes = rest;
                Some(first)
            }
        }
    }
}

impl PartialEq for Entries<'_> {
    /// Equal when the same entries come out, in whatever form they are held.
    fn eq(&self, other: &Self) -> bool {
        Iterator::eq(*self, *other)
    }
}

impl std::fmt::Debug for Entries<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(*self).finish()
    }
}

/// Space and file counts of a file system (FSSTAT).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fsstat {
    /// Size, bytes.
    pub bytes_total: u64,
    /// Free, bytes.
    pub bytes_free: u64,
    /// Free for this user, bytes.
    pub bytes_available: u64,
    /// Inodes.
    pub files_total: u64,
    /// Free inodes.
    pub files_free: u64,
    /// Free inodes for this user.
    pub files_available: u64,
    /// Seconds for which this is not expected to change.
    pub stable_s: u32,
}

/// Limits of a server (FSINFO); bytes unless named otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // The RFC's fields, in its order.
pub struct Fsinfo {
    pub read_max: u32,
    pub read_preferred: u32,
    pub read_multiple: u32,
    pub write_max: u32,
    pub write_preferred: u32,
    pub write_multiple: u32,
    pub readdir_preferred: u32,
    pub file_size_max: u64,
    pub time_delta: NodeTime,
    /// `FSF3_*` bits.
    pub properties: u32,
}

/// Limits of names and links (PATHCONF).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // The RFC's fields, in its order.
pub struct Pathconf {
    pub links_max: u32,
    pub name_bytes_max: u32,
    pub no_truncation: bool,
    pub chown_restricted: bool,
    pub case_insensitive: bool,
    pub case_preserving: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_is_found_by_its_name_and_number() {
        for (number, kind) in OpKind::ALL.into_iter().enumerate() {
            assert_eq!(OpKind::from_name(kind.name()), Some(kind));
            assert_eq!(OpKind::from_number(number as u32), Some(kind));
            assert_eq!(kind as usize, number);
        }
        assert_eq!(OpKind::from_number(22), None);
    }

    #[test]
    fn a_handle_over_64_bytes_is_refused() {
        assert!(Handle::new(&[7; 64]).is_some_and(|handle| handle.as_bytes() == [7; 64]));
        assert_eq!(Handle::new(&[7; 65]), None);
        assert_eq!(Handle::new(&[7; 300]), None);
    }
}
