//! The blocking seam to storage: one call at a time on paths below a root, for closed-loop benchmarks.
//!
//! ```text
//! postmark, netnews, dirscale --> FileSystem --+-- LocalFs   a local directory, by openat and its kin
//!                                              `-- NfsFs     NFSv3 over UDP or TCP       (crate nfs)
//! ```
//!
//! Paths are relative to the root, walked from it and never from `/`; an empty path is the root itself, `.` means
//! nothing, and `..` or a path from `/` is refused with `INVAL`. A benchmark that works in one directory for long
//! takes [`FileSystem::below`] and saves the walk.
//!
//! Always holds: every failure names the operation, the path and a [`Status`], the same one for the same cause
//! behind every implementation; a file's cursor moves by what was read or written and by nothing else.
//! What all implementations must do alike is code: `testkit::conformance`.
//! Not here: open-loop load (see `Transport`), caches of our own (an implementation's options say which it has).

use std::error::Error;
use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{Attributes, Fsstat, Status};

/// Storage under a closed-loop benchmark. Shared between threads by reference; calls block.
pub trait FileSystem: Send + Sync {
    /// Makes a regular file that is not there yet and opens it for writing, its cursor at 0.
    ///
    /// # Errors
    /// `EXIST` when the name is taken: nothing is ever overwritten by making a file.
    fn create(&self, path: &Path) -> Result<Box<dyn OpenFile>, FsError>;

    /// Opens a file that is there. Symbolic links are followed as the storage follows them.
    ///
    /// # Errors
    /// `NOENT`, `ISDIR`, `ACCES`, …
    fn open(&self, path: &Path, access: Access) -> Result<Box<dyn OpenFile>, FsError>;

    /// Gives a file a second name.
    ///
    /// # Errors
    /// `EXIST`, `XDEV`, `MLINK`, …
    fn link(&self, existing: &Path, new: &Path) -> Result<(), FsError>;

    /// Makes a symbolic link at `path` that holds `target`, uninterpreted.
    ///
    /// # Errors
    /// `EXIST`, …
    fn symlink(&self, target: &Path, path: &Path) -> Result<(), FsError>;

    /// What a symbolic link holds.
    ///
    /// # Errors
    /// `INVAL` when it is none.
    fn readlink(&self, path: &Path) -> Result<PathBuf, FsError>;

    /// Renames; what was at `to` is replaced, as rename(2) does.
    ///
    /// # Errors
    /// `NOENT`, `NOTEMPTY`, `XDEV`, …
    fn rename(&self, from: &Path, to: &Path) -> Result<(), FsError>;

    /// Removes a name of something that is no directory.
    ///
    /// # Errors
    /// `NOENT`, `ISDIR` (`PERM` on some storage), …
    fn unlink(&self, path: &Path) -> Result<(), FsError>;

    /// Makes a directory.
    ///
    /// # Errors
    /// `EXIST`, `NOENT` when its parent is not there, …
    fn mkdir(&self, path: &Path) -> Result<(), FsError>;

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `NOTEMPTY`, `NOTDIR`, …
    fn rmdir(&self, path: &Path) -> Result<(), FsError>;

    /// Hands over every entry of a directory but `.` and `..`, in the storage's order.
    ///
    /// # Errors
    /// `NOTDIR`, `NOENT`, …
    fn readdir(&self, path: &Path, each: &mut dyn FnMut(ListedEntry<'_>)) -> Result<(), FsError>;

    /// Attributes; of a symbolic link itself, not of what it names (lstat).
    ///
    /// # Errors
    /// `NOENT`, `NOTDIR`, …
    fn stat(&self, path: &Path) -> Result<Attributes, FsError>;

    /// Room in the file system that holds the root.
    ///
    /// # Errors
    /// When the storage is gone.
    fn statfs(&self) -> Result<Fsstat, FsError>;

    /// Whether [`FileSystem::statfs`] reports room inside the storage's own files, as a packed store does, and not that of the file
    /// system below. What a file takes there, and inodes above all, does not follow from it.
    fn has_room_of_its_own(&self) -> bool {
        false
    }

    /// Makes the names in a directory durable (fsync of the directory). Nothing to do where each operation is
    /// durable once answered, as in NFSv3.
    ///
    /// # Errors
    /// `NOENT`, `IO`, …
    fn sync_dir(&self, path: &Path) -> Result<(), FsError>;

    /// Makes everything that was written to the file system durable, also by others (syncfs). Nothing to do where each
    /// operation is durable once answered.
    ///
    /// # Errors
    /// `IO`, `NOSPC`, …: something that was written before may be lost.
    fn sync_all(&self) -> Result<(), FsError> {
        Ok(())
    }

    /// The same storage with its root at the directory `path`, which is found once and held.
    ///
    /// # Errors
    /// `NOENT`, `NOTDIR`, …
    fn below(&self, path: &Path) -> Result<Arc<dyn FileSystem>, FsError>;

    /// As [`FileSystem::below`], and a symbolic link at the end of `path` is refused instead of followed: for removing
    /// what is there.
    ///
    /// # Errors
    /// `NOTDIR` for a link too.
    fn below_itself(&self, path: &Path) -> Result<Arc<dyn FileSystem>, FsError> {
        self.below(path)
    }

    /// Makes a directory that is this user's alone and holds it, as [`FileSystem::below`]: whatever takes its name
    /// later, also a link put there by the owner of the directory above, nothing elsewhere is reached through it.
    ///
    /// # Errors
    /// `EXIST`, …; `PERM` when another directory or a link was put in its place at once.
    fn make_own(&self, path: &Path) -> Result<Arc<dyn FileSystem>, FsError> {
        self.mkdir(path)?;
        self.below(path)
    }

    /// Holds a directory of this user's that was made before: nobody else may write in it.
    ///
    /// # Errors
    /// `NOENT`, `NOTDIR` for a link too; `PERM` when it is another user's, or others may write in it.
    fn own(&self, path: &Path) -> Result<Arc<dyn FileSystem>, FsError> {
        self.below(path)
    }

    /// Locks the file `path`, made when it is missing, for this process until the guard goes or the process ends.
    ///
    /// # Errors
    /// When the file cannot be made or locked.
    fn lock(&self, path: &Path) -> Result<Locking, FsError> {
        let _ = path;
        Ok(Locking::Unsupported)
    }

    /// The root as a user knows it: a path or an URL.
    fn place(&self) -> String;

    /// Where the root lies in this machine's own tree, when it does: for mount options, device counters, caches.
    fn local_root(&self) -> Option<&Path>;

    /// What a client of ours has counted since it was opened, by name with the unit in it: calls by procedure, bytes.
    /// Counts only grow. None where the calls are the operating system's, which counts for itself.
    fn client_counts(&self) -> Vec<(String, u64)> {
        Vec::new()
    }
}

/// An open file with a cursor. Dropping it closes it and forgets errors that closing would tell.
pub trait OpenFile: Send {
    /// Reads at the cursor; 0 only at the end of the file or for an empty `buf`.
    ///
    /// # Errors
    /// `IO`, `STALE`, …
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, FsError>;

    /// Writes at the cursor, or at the end when opened to append. May take fewer bytes than given, as write(2).
    ///
    /// # Errors
    /// `NOSPC`, `DQUOT`, `IO`, …
    fn write(&mut self, bytes: &[u8]) -> Result<usize, FsError>;

    /// Moves the cursor to the end and returns its position in bytes from the beginning.
    ///
    /// # Errors
    /// `STALE`, `IO`, …
    fn seek_end(&mut self) -> Result<u64, FsError>;

    /// Moves the cursor to `offset_bytes` from the beginning.
    ///
    /// # Errors
    /// `INVAL` beyond what the storage can address.
    fn seek(&mut self, offset_bytes: u64) -> Result<(), FsError>;

    /// Bytes that one transfer should best carry (`st_blksize`): what a stream buffer is sized by.
    ///
    /// # Errors
    /// `STALE`, `IO`, …
    fn block_bytes(&mut self) -> Result<usize, FsError>;

    /// Makes what was written durable.
    ///
    /// # Errors
    /// `IO`, `NOSPC`, …: the data may be lost, and a later sync that succeeds says nothing about it.
    fn sync(&mut self, scope: SyncScope) -> Result<(), FsError>;

    /// Closes, and returns errors of writes that were held back.
    ///
    /// # Errors
    /// `NOSPC`, `IO`, …
    fn close(self: Box<Self>) -> Result<(), FsError>;
}

/// What came of [`FileSystem::lock`].
#[derive(Debug)]
pub enum Locking {
    /// This process has it.
    Held(FileLock),
    /// Another one has it.
    Busy,
    /// The storage has no locks.
    Unsupported,
}

/// The hold on a file; ends when it is dropped, or with the process.
#[derive(Debug)]
pub struct FileLock(OwnedFd);

impl FileLock {
    /// A hold that ends when this descriptor is closed.
    pub fn new(descriptor: OwnedFd) -> Self {
        Self(descriptor)
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // Closing is not enough while a child of this process has the descriptor between its fork and its exec.
        let _ = rustix::fs::flock(&self.0, rustix::fs::FlockOperation::Unlock);
    }
}

/// What a file is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading.
    Read,
    /// Writing over what is there, from the beginning.
    Write,
    /// Writing behind what is there, wherever the end is by then.
    Append,
    /// Reading and writing.
    ReadWrite,
}

/// What a sync must make durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncScope {
    /// The data, and of the attributes what is needed to read it back (fdatasync).
    Data,
    /// Data and attributes (fsync).
    All,
}

/// One entry of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedEntry<'a> {
    /// Its name, bytes without meaning.
    pub name: &'a [u8],
    /// Its number within the file system.
    pub fileid: u64,
}

/// What was tried when a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)] // The calls of the seam.
pub enum FsOp {
    Create,
    Open,
    Read,
    Write,
    Seek,
    Sync,
    Close,
    Link,
    Symlink,
    Readlink,
    Rename,
    Unlink,
    Mkdir,
    Rmdir,
    Readdir,
    Stat,
    Statfs,
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FsError {
    /// The storage refused it.
    #[error("{}: cannot {op}{}", .path.display(), refusal(*.status, .source.as_ref()))]
    Failed {
        /// What was tried.
        op: FsOp,
        /// On what, as a user would name it.
        path: PathBuf,
        /// Why, in the words that all implementations share.
        status: Status,
        /// The operating system's own error, when it was the one to refuse.
        source: Option<io::Error>,
    },
    /// The storage does not answer any more.
    #[error("{}: cannot {op}: the storage is gone", .path.display())]
    Lost {
        /// What was tried.
        op: FsOp,
        /// On what.
        path: PathBuf,
        /// How it showed.
        source: Box<dyn Error + Send + Sync>,
    },
}

/// What the status says. An error of the operating system says more, and is printed as the cause.
fn refusal(status: Status, source: Option<&io::Error>) -> String {
    match (source, status.advice()) {
        (Some(_), _) => String::new(),
        (None, "") => format!(": {status}"),
        (None, advice) => format!(": {status}; {advice}"),
    }
}

impl FsError {
    /// An error of a system call on `path`.
    pub fn of_errno(op: FsOp, path: PathBuf, errno: rustix::io::Errno) -> Self {
        Self::Failed { op, path, status: errno.into(), source: Some(errno.into()) }
    }

    /// A refusal by storage on this machine that is no file system of the kernel: in the words that one would use.
    pub fn refused_here(op: FsOp, path: PathBuf, status: Status) -> Self {
        let source = status.local_words().map(|(words, advice)| match advice {
            "" => io::Error::other(words),
            advice => io::Error::other(format!("{words}; {advice}")),
        });
        Self::Failed { op, path, status, source }
    }

    /// Why, unless the storage was lost.
    pub fn status(&self) -> Option<Status> {
        match self {
            Self::Failed { status, .. } => Some(*status),
            Self::Lost { .. } => None,
        }
    }

    /// What was tried.
    pub fn op(&self) -> FsOp {
        match self {
            Self::Failed { op, .. } | Self::Lost { op, .. } => *op,
        }
    }
}

impl FsOp {
    /// As the system call is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Open => "open",
            Self::Read => "read",
            Self::Write => "write",
            Self::Seek => "seek",
            Self::Sync => "sync",
            Self::Close => "close",
            Self::Link => "link",
            Self::Symlink => "symlink",
            Self::Readlink => "readlink",
            Self::Rename => "rename",
            Self::Unlink => "unlink",
            Self::Mkdir => "mkdir",
            Self::Rmdir => "rmdir",
            Self::Readdir => "readdir",
            Self::Stat => "stat",
            Self::Statfs => "statfs",
        }
    }
}

impl fmt::Display for FsOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
