//! A local directory behind NFSv3's operations: each of the 22 becomes the system calls it stands for.
//!
//! ```text
//! Request -> Directory -> table:  handle -> object and where it was seen last
//!                      -> nodes:  object -> kept descriptor, or parent's descriptor + name
//!                      -> one to four system calls -> Reply in the caller's Scratch
//! ```
//!
//! | operation | system calls, descriptors kept |
//! |---|---|
//! | GETATTR, ACCESS, LOOKUP | statx |
//! | READ, WRITE | pread or pwritev2 (`RWF_DSYNC`, `RWF_SYNC` when stability is asked for), statx |
//! | COMMIT | fdatasync, statx |
//! | CREATE | openat, statx of the file, statx of the directory; fchmod when the umask took bits away |
//! | REMOVE, RMDIR, RENAME | statx of what goes, unlinkat or renameat, statx of the directories |
//! | READDIR(PLUS) | openat, lseek, getdents64, statx of the directory (and of each entry), close |
//!
//! Always holds: nothing outside of the directory is reached by handle, name, `..` or symlink (an
//! administrator's mounts inside are part of it; a directory that he moves out stays reachable by handles
//! given out before). A handle follows its object through renames, and is stale once the object is gone.
//! All operations run as this process's user; callers' credentials are not looked at.
//! Memory: about 110 bytes an object that was ever looked up and still exists, see `directory/table.rs`.
//! Not here: the network (`nfs::server`), threads (`DirectoryTransport`).
//! Source: RFC 1813, section 3.3.

pub(crate) mod attributes;
mod descriptors;
mod listing;
mod naming;
mod nodes;
mod reading;
mod scratch;
mod table;
mod writing;

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

use rustix::fs::{Mode, OFlags, openat};
use rustix::process::{Resource, getrlimit};

use self::nodes::Nodes;
use self::table::ROOT;
use crate::{FileService, Handle, NodeKind, Reply, Request, Status};

pub use listing::ListingRoom;
pub use naming::check_new_name;
pub use reading::check_name;
pub use scratch::Scratch;

/// How a directory is opened. Every field has a default; see each.
#[derive(Clone, Debug)]
pub struct DirectoryOptions {
    /// Refuse every change with `NFS3ERR_ROFS`. Default: no.
    pub read_only: bool,
    /// Make device nodes for MKNOD, where this process may. Default: no, `NFS3ERR_PERM`: a caller that has a device has what is
    /// behind it.
    pub devices: bool,
    /// The most bytes that one READ or WRITE carries. Default 1 MiB, what Linux clients use at most.
    pub io_bytes_max: u32,
    /// Descriptors kept open to files and directories. Default: a quarter of this process's limit
    /// (`ulimit -n`), from 32 to 4096, so that sockets and the rest of the program find room.
    pub descriptors_max: Option<usize>,
}

impl Default for DirectoryOptions {
    fn default() -> Self {
        Self { read_only: false, devices: false, io_bytes_max: 1 << 20, descriptors_max: None }
    }
}

/// The directory cannot be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DirectoryError {
    /// It cannot be opened.
    #[error("{}: cannot open this directory; give an existing one that you may read", path.display())]
    Open {
        /// The directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A thread for it cannot be started.
    #[error("{}: cannot start a worker thread; ask for fewer, or raise `ulimit -u`", path.display())]
    Thread {
        /// The directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
}

/// An open directory tree that answers NFSv3 requests. Shared between threads by reference.
pub struct Directory {
    nodes: Nodes,
    read_only: bool,
    devices: bool,
    io_bytes_max: u32,
    caller: Caller,
    /// Reported with every WRITE and COMMIT: changes when unwritten data may have been lost.
    write_verifier: AtomicU64,
}

/// As whom this process runs, for ACCESS.
#[derive(Clone, Debug)]
pub struct Caller {
    uid: u32,
    groups: Vec<u32>,
}

impl Directory {
    /// Opens the directory at `path`.
    ///
    /// # Errors
    /// When it is not there, no directory, or not permitted.
    pub fn open(path: impl AsRef<Path>, options: DirectoryOptions) -> Result<Self, DirectoryError> {
        let path = path.as_ref();
        let error =
            |errno: rustix::io::Errno| DirectoryError::Open { path: path.to_owned(), source: errno.into() };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(rustix::fs::CWD, path, flags, Mode::empty()).map_err(error)?;
        let descriptors_max = options.descriptors_max.unwrap_or_else(|| {
            let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
            (limit / 4).clamp(32, 4096) as usize
        });
        let instance = unrepeatable_number();
        let caller = Caller::current();
        let caller = caller.map_err(|source| DirectoryError::Open { path: path.to_owned(), source })?;
        Ok(Self {
            nodes: Nodes::new(root, instance, descriptors_max).map_err(error)?,
            read_only: options.read_only,
            devices: options.devices,
            io_bytes_max: options.io_bytes_max.max(512),
            caller,
            write_verifier: AtomicU64::new(instance),
        })
    }

    /// The handle of the directory itself.
    pub fn root(&self) -> Handle {
        self.nodes.table.handle(ROOT)
    }

    /// The most bytes that one READ or WRITE carries.
    pub fn io_bytes_max(&self) -> u32 {
        self.io_bytes_max
    }

    /// Objects that handles were given out for and that are not known to be gone.
    pub fn objects_known(&self) -> usize {
        self.nodes.table.len()
    }

    /// Does what is asked. The reply borrows from `scratch`.
    ///
    /// # Errors
    /// The status that an NFSv3 server gives.
    pub fn execute<'s>(&self, request: &Request<'_>, scratch: &'s mut Scratch) -> Result<Reply<'s>, Status> {
        let hollow = self.perform(request, scratch)?;
        Ok(scratch.fill(hollow))
    }

    /// As [`Self::execute`], but the reply's borrowed parts are empty until [`Scratch::fill`] puts them in.
    pub(crate) fn perform(
        &self,
        request: &Request<'_>,
        scratch: &mut Scratch,
    ) -> Result<Reply<'static>, Status> {
        use Request as R;
        scratch.clear();
        if self.read_only && changes(request) {
            return Err(Status::ROFS);
        }
        if !self.devices
            && let R::Mknod { node: NodeKind::CharDevice { .. } | NodeKind::BlockDevice { .. }, .. } = request
        {
            return Err(Status::PERM);
        }
        match *request {
            R::Null => Ok(Reply::Null),
            R::Getattr { object } => self.getattr(object),
            R::Setattr { object, new, guard } => self.setattr(object, &new, guard),
            R::Lookup { dir, name } => self.lookup(dir, name, scratch),
            R::Access { object, rights } => self.access(object, rights),
            R::Readlink { link } => self.readlink(link, scratch),
            R::Read { file, offset, count } => self.read(file, offset, count, scratch),
            R::Write { file, offset, bytes, stability } => self.write(file, offset, bytes, stability),
            R::Create { dir, name, how } => self.create(dir, name, how, scratch),
            R::Mkdir { dir, name, new } => self.mkdir(dir, name, &new, scratch),
            R::Symlink { dir, name, target, new } => self.symlink(dir, name, target, &new, scratch),
            R::Mknod { dir, name, node, new } => self.mknod(dir, name, node, &new, scratch),
            R::Remove { dir, name } => self.remove(dir, name),
            R::Rmdir { dir, name } => self.rmdir(dir, name),
            R::Rename { from_dir, from_name, to_dir, to_name } => {
                self.rename(from_dir, from_name, to_dir, to_name)
            }
            R::Link { file, dir, name } => self.link(file, dir, name),
            R::Readdir { dir, cookie, verifier, count } => {
                self.readdir(dir, cookie, verifier, count, scratch)
            }
            R::Readdirplus { dir, cookie, verifier, name_bytes, reply_bytes } => {
                self.readdirplus(dir, cookie, verifier, name_bytes, reply_bytes, scratch)
            }
            R::Fsstat { root } => self.fsstat(root),
            R::Fsinfo { root } => self.fsinfo(root),
            R::Pathconf { object } => self.pathconf(object),
            R::Commit { file, .. } => self.commit(file),
        }
    }
}

impl FileService for Directory {
    fn root(&self) -> Handle {
        Self::root(self)
    }

    fn io_bytes_max(&self) -> u32 {
        self.io_bytes_max
    }

    fn perform(&self, request: &Request<'_>, scratch: &mut Scratch) -> Result<Reply<'static>, Status> {
        Self::perform(self, request, scratch)
    }
}

fn changes(request: &Request<'_>) -> bool {
    use crate::OpKind as K;
    matches!(
        request.kind(),
        K::Setattr
            | K::Write
            | K::Create
            | K::Mkdir
            | K::Symlink
            | K::Mknod
            | K::Remove
            | K::Rmdir
            | K::Rename
            | K::Link
            | K::Commit
    )
}

/// The standard library's hash keys are random, which saves a source of randomness here.
fn unrepeatable_number() -> u64 {
    RandomState::new().build_hasher().finish()
}
