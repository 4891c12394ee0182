//! The seam that engines write through: a directory's files, by offset, with every promise spelt out.
//!
//! ```text
//! packstore --> Disk, DiskFile --+-- LocalDisk   a directory of any local file system
//!                                `-- SimulatedDisk  fails, tears, loses and reorders writes   (feature `simulated`)
//! ```
//!
//! What power loss leaves: bytes written before a sync that returned are there; of those written after it any part may
//! be, in any order, sector by sector (512 bytes). A name is there after [`Disk::sync_names`]; before, perhaps.
//!
//! Always holds: a name is one component; an error names the disk, the file and the operation.
//! Not here: what is written. Source of the model: POSIX.1-2017 fsync, and Linux' fsync(2), fallocate(2), flock(2).

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// A directory in which an engine keeps its files. Shared between threads; calls block.
pub trait Disk: Send + Sync {
    /// Opens a file of the directory.
    ///
    /// # Errors
    /// `NotFound` when it is not there, `AlreadyExists` with [`DiskOpen::New`] when it is.
    fn open(&self, name: &str, how: DiskOpen) -> Result<Arc<dyn DiskFile>, DiskError>;

    /// Names of all files, in no order.
    ///
    /// # Errors
    /// When the directory cannot be read.
    fn names(&self) -> Result<Vec<String>, DiskError>;

    /// What is there besides regular files: names, and what each is, for people. Links are not followed.
    ///
    /// # Errors
    /// When the directory cannot be read.
    fn other_than_files(&self) -> Result<Vec<(String, &'static str)>, DiskError> {
        Ok(Vec::new())
    }

    /// Gives a file another name; one that had it is gone at the same instant.
    ///
    /// # Errors
    /// `NotFound` and what rename(2) knows.
    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError>;

    /// Removes a file.
    ///
    /// # Errors
    /// `NotFound` and what unlink(2) knows.
    fn remove(&self, name: &str) -> Result<(), DiskError>;

    /// Makes names, new, changed and removed, durable.
    ///
    /// # Errors
    /// When the device failed: then nothing is known of what was written since the last sync.
    fn sync_names(&self) -> Result<(), DiskError>;

    /// Holds the directory for one process until the guard goes; `None` when another one has it.
    ///
    /// # Errors
    /// When the lock file cannot be made.
    fn lock(&self, name: &str) -> Result<Option<DiskLock>, DiskError>;

    /// Locks the directory itself, beside [`Disk::lock`]: a lock that removing or replacing a file cannot undo. Writes nothing.
    ///
    /// # Errors
    /// When the directory cannot be opened.
    fn lock_directory(&self, sharing: Sharing) -> Result<Locking, DiskError> {
        let _ = sharing;
        Ok(Locking::Unavailable)
    }

    /// Keeps those out who hold `name` by [`Disk::lock`], and lets other readers in. Makes no file: it works on read-only media, and
    /// without the right to write.
    ///
    /// # Errors
    /// When something that is no file is in the place of `name`.
    fn lock_shared(&self, name: &str) -> Result<Locking, DiskError> {
        Ok(self.lock(name)?.map_or(Locking::Busy, Locking::Held))
    }

    /// Bytes of the file system that hold the directory, and how many of them are free for us.
    ///
    /// # Errors
    /// When the directory is gone.
    fn room(&self) -> Result<DiskRoom, DiskError>;

    /// The directory as a user knows it.
    fn place(&self) -> String;
}

/// An open file. Offsets and lengths in bytes; reads and writes carry no cursor and may run in parallel.
pub trait DiskFile: Send + Sync {
    /// Fills `bytes` from `offset` on; fewer only where the file ends.
    ///
    /// # Errors
    /// What pread(2) knows.
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<usize, DiskError>;

    /// Writes all of `bytes`.
    ///
    /// # Errors
    /// `StorageFull`, and what pwrite(2) knows: then any part may have been written.
    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), DiskError>;

    /// Makes all that was written durable, with the length (fdatasync).
    ///
    /// # Errors
    /// When the device failed: then nothing is known of what was written since the last sync, and a second sync that
    /// succeeds proves nothing.
    fn sync(&self) -> Result<(), DiskError>;

    /// Length.
    ///
    /// # Errors
    /// When the file is gone.
    fn length(&self) -> Result<u64, DiskError>;

    /// Bytes that have room on the disk: fewer than the length where there are holes.
    ///
    /// # Errors
    /// When the file is gone.
    fn allocated(&self) -> Result<u64, DiskError> {
        self.length()
    }

    /// Cuts the file or lengthens it by zeros.
    ///
    /// # Errors
    /// What ftruncate(2) knows.
    fn set_length(&self, bytes: u64) -> Result<(), DiskError>;

    /// Takes room for a range, so that writing there cannot lack it; nothing to do where that cannot be had.
    ///
    /// # Errors
    /// `StorageFull`.
    fn reserve(&self, offset: u64, bytes: u64) -> Result<(), DiskError>;

    /// Bytes from `offset` on that have room and were never written, where the file system notes it when they are: the first sync of such
    /// bytes has to commit that note. 0 where there is no such note, or it is not known. A hole may count as well.
    ///
    /// # Errors
    /// When the file cannot be looked at.
    fn unwritten_at(&self, offset: u64) -> Result<u64, DiskError> {
        let _ = offset;
        Ok(0)
    }

    /// Gives the room of a range back; it reads as zeros. Nothing to do where that cannot be had.
    ///
    /// # Errors
    /// What fallocate(2) knows.
    fn release(&self, offset: u64, bytes: u64) -> Result<(), DiskError>;

    /// The descriptor, for copying to a socket within the kernel, when there is one.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;
}

/// How to open a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskOpen {
    /// One that is there, for reading.
    Read,
    /// One that is there, for reading and writing.
    Write,
    /// One that is not there yet, for reading and writing.
    New,
}

/// Room of the file system below a [`Disk`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskRoom {
    /// All of it.
    pub total_bytes: u64,
    /// What an ordinary process may still write.
    pub free_bytes: u64,
}

/// Who else may hold a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// No one.
    Alone,
    /// Others that share it.
    Shared,
}

/// What came of a lock that the storage may lack.
#[derive(Debug)]
pub enum Locking {
    /// This process has it.
    Held(DiskLock),
    /// Another process has it.
    Busy,
    /// This storage has no such lock, or this user may not take it.
    Unavailable,
}

/// The hold on a directory; let go when dropped, or when the process ends in any way.
pub struct DiskLock {
    #[expect(dead_code, reason = "held, never looked at")]
    held: Box<dyn Send + Sync>,
    in_place: Box<dyn Fn() -> bool + Send + Sync>,
}

impl DiskLock {
    /// A hold that ends when `held` is dropped.
    pub fn new(held: impl Send + Sync + 'static) -> Self {
        Self::watched(held, || true)
    }

    /// As [`DiskLock::new`], with how to find out whether the locked file still has its name.
    pub fn watched(
        held: impl Send + Sync + 'static,
        in_place: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Self {
        Self { held: Box::new(held), in_place: Box::new(in_place) }
    }

    /// Whether the next process that locks by this name would find this lock. Not so once the file was removed or replaced.
    pub fn is_in_place(&self) -> bool {
        (self.in_place)()
    }
}

impl fmt::Debug for DiskLock {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("DiskLock")
    }
}

/// What an operation on a [`Disk`] failed with.
#[derive(Debug, thiserror::Error)]
#[error("{place}: {operation} of {name}")]
pub struct DiskError {
    /// The disk, as [`Disk::place`] says.
    pub place: String,
    /// The file, or the directory itself.
    pub name: String,
    /// What was asked: `open`, `read`, `write`, `sync`, …
    pub operation: &'static str,
    /// Why not.
    pub source: io::Error,
}

impl DiskError {
    /// The class of the cause.
    pub fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }
}
