//! [`Disk`] on a directory of a local file system, by pread, pwrite, fdatasync and fallocate.
//!
//! Always holds: no name leads out of the directory, nor does a symbolic link in it; a file's length is made durable with
//! its bytes; a file that is made is its owner's alone; one that root makes in another user's directory is that user's.
//! Not here: O_DIRECT, queues: the engine's threads are the queue.

use std::fs::{File, FileType, OpenOptions, TryLockError};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FallocateFlags, Gid, OFlags, SeekFrom, Uid, fallocate, fchown, fstatfs, seek, statvfs};
use rustix::io::Errno;
use rustix::process::geteuid;

use crate::disk::{Disk, DiskError, DiskFile, DiskLock, DiskOpen, DiskRoom, Locking, Sharing};

/// Mode of files that are made: what is stored may be a mail, or one user's page.
const FILE_MODE: u32 = 0o600;

/// File systems that note of each reserved block when it is first written: ext4 (and ext2, ext3, which reserve nothing) and XFS (statfs(2)).
const NOTES_FIRST_WRITES: [u64; 2] = [0xef53, 0x5846_5342];

/// Times that a lock file is opened again because it was removed meanwhile.
const LOCK_ATTEMPTS: usize = 16;

/// A directory as a [`Disk`].
#[derive(Debug)]
pub struct LocalDisk {
    root: PathBuf,
}

/// A link in the place of a file would make the process that opens a store write anywhere that its owner wants, and a pipe would make it
/// wait for ever.
const NO_LINK_NOR_WAIT: i32 = OFlags::NOFOLLOW.union(OFlags::NONBLOCK).bits() as i32;

/// Opens a regular file, which is not reached through a symbolic link in its last place. Never waits for the other end of a pipe.
///
/// # Errors
/// As opening, and when there is something else in the file's place: then it says what.
pub fn open_regular(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let in_the_way = |what: &str| {
        let text = format!("{what} is in the place of the file, and is not used; put the file itself there");
        io::Error::new(io::ErrorKind::InvalidInput, text)
    };
    let file = options.custom_flags(NO_LINK_NOR_WAIT).open(path).map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists | io::ErrorKind::NotFound => error,
        _ => other_than_file(path).map_or(error, in_the_way),
    })?;
    match kind_besides_file(file.metadata()?.file_type()) {
        Some(what) => Err(in_the_way(what)),
        None => Ok(file),
    }
}

/// What is at a path, for people, when something is and it is no regular file. A link is not followed.
pub fn other_than_file(path: &Path) -> Option<&'static str> {
    kind_besides_file(path.symlink_metadata().ok()?.file_type())
}

fn kind_besides_file(kind: FileType) -> Option<&'static str> {
    Some(match kind {
        kind if kind.is_file() => return None,
        kind if kind.is_dir() => "a directory",
        kind if kind.is_symlink() => "a symbolic link",
        kind if kind.is_fifo() => "a pipe",
        kind if kind.is_socket() => "a socket",
        _ => "a device",
    })
}

/// Gives a file that root made to the owner of its directory, who could not open it otherwise.
///
/// # Errors
/// What fstat(2) and fchown(2) know.
pub fn give_to_owner(directory: &Path, file: &File) -> io::Result<()> {
    if !geteuid().is_root() {
        return Ok(());
    }
    let (directory, made) = (directory.metadata()?, file.metadata()?);
    if directory.uid() != 0 && made.uid() == 0 {
        let (user, group) = (Uid::from_raw(directory.uid()), Gid::from_raw(directory.gid()));
        fchown(file, Some(user), Some(group))?;
    }
    Ok(())
}

impl LocalDisk {
    /// The directory at `root`, which is there.
    ///
    /// # Errors
    /// When it is no directory or cannot be looked at.
    pub fn open(root: impl Into<PathBuf>) -> Result<Self, DiskError> {
        let disk = Self { root: root.into() };
        let found = disk.root.metadata();
        match found {
            Ok(found) if found.is_dir() => Ok(disk),
            Ok(_) => Err(disk.error("open", ".", io::ErrorKind::NotADirectory.into())),
            Err(error) => Err(disk.error("open", ".", error)),
        }
    }

    /// The directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The user that the directory belongs to.
    ///
    /// # Errors
    /// When the directory is gone.
    pub fn owner(&self) -> Result<u32, DiskError> {
        let found = self.root.metadata().map_err(|error| self.error("stat", ".", error))?;
        Ok(found.uid())
    }

    fn error(&self, operation: &'static str, name: &str, source: io::Error) -> DiskError {
        DiskError { place: self.place(), name: name.to_owned(), operation, source }
    }

    fn path(&self, operation: &'static str, name: &str) -> Result<PathBuf, DiskError> {
        if name.is_empty() || name == "." || name == ".." || name.contains('/') {
            return Err(self.error(operation, name, io::ErrorKind::InvalidFilename.into()));
        }
        Ok(self.root.join(name))
    }
}

impl Disk for LocalDisk {
    fn open(&self, name: &str, how: DiskOpen) -> Result<Arc<dyn DiskFile>, DiskError> {
        let path = self.path("open", name)?;
        let mut options = OpenOptions::new();
        options.read(true).write(how != DiskOpen::Read).create_new(how == DiskOpen::New);
        options.mode(FILE_MODE);
        let file = open_regular(&mut options, &path).map_err(|error| self.error("open", name, error))?;
        if how == DiskOpen::New {
            give_to_owner(&self.root, &file).map_err(|error| self.error("chown", name, error))?;
        }
        Ok(Arc::new(LocalDiskFile { place: self.place(), name: name.to_owned(), file }))
    }

    fn names(&self) -> Result<Vec<String>, DiskError> {
        let wrong = |error| self.error("list", ".", error);
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.root).map_err(wrong)? {
            // An engine's names are text; what is not is a stranger's.
            if let Ok(name) = entry.map_err(wrong)?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn other_than_files(&self) -> Result<Vec<(String, &'static str)>, DiskError> {
        let wrong = |error| self.error("list", ".", error);
        let mut others = Vec::new();
        for entry in std::fs::read_dir(&self.root).map_err(wrong)? {
            let entry = entry.map_err(wrong)?;
            let kind = match entry.file_type() {
                // It was removed meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                kind => kind.map_err(wrong)?,
            };
            let Some(what) = kind_besides_file(kind) else { continue };
            if let Ok(name) = entry.file_name().into_string() {
                others.push((name, what));
            }
        }
        Ok(others)
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        let (old, new) = (self.path("rename", from)?, self.path("rename", to)?);
        std::fs::rename(old, new).map_err(|error| self.error("rename", from, error))
    }

    fn remove(&self, name: &str) -> Result<(), DiskError> {
        std::fs::remove_file(self.path("remove", name)?).map_err(|error| self.error("remove", name, error))
    }

    fn sync_names(&self) -> Result<(), DiskError> {
        let synced = File::open(&self.root).and_then(|directory| directory.sync_all());
        synced.map_err(|error| self.error("sync", ".", error))
    }

    fn lock(&self, name: &str) -> Result<Option<DiskLock>, DiskError> {
        let path = self.path("lock", name)?;
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(FILE_MODE);
        // Another process may remove the file between its opening and its locking: then the lock keeps no one out.
        for _ in 0..LOCK_ATTEMPTS {
            let file = open_regular(&mut options, &path);
            let file = file.map_err(|error| self.error("lock", name, error))?;
            give_to_owner(&self.root, &file).map_err(|error| self.error("lock", name, error))?;
            match file.try_lock() {
                Ok(()) => {
                    let lock = watched(file, &path).map_err(|error| self.error("lock", name, error))?;
                    if lock.is_in_place() {
                        return Ok(Some(lock));
                    }
                }
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(self.error("lock", name, error)),
            }
        }
        Err(self.error("lock", name, io::Error::other("the file is removed or replaced again and again")))
    }

    fn lock_directory(&self, sharing: Sharing) -> Result<Locking, DiskError> {
        let directory = File::open(&self.root).map_err(|error| self.error("lock", ".", error))?;
        self.try_locking(directory, ".", sharing)
    }

    fn lock_shared(&self, name: &str) -> Result<Locking, DiskError> {
        let path = self.path("lock", name)?;
        match open_regular(OpenOptions::new().read(true), &path) {
            Ok(file) => self.try_locking(file, name, Sharing::Shared),
            Err(error)
                if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied) =>
            {
                Ok(Locking::Unavailable)
            }
            Err(error) => Err(self.error("lock", name, error)),
        }
    }

    fn room(&self) -> Result<DiskRoom, DiskError> {
        let room = statvfs(&self.root).map_err(|error| self.error("statvfs", ".", error.into()))?;
        let bytes = |blocks: u64| blocks.saturating_mul(room.f_frsize);
        Ok(DiskRoom { total_bytes: bytes(room.f_blocks), free_bytes: bytes(room.f_bavail) })
    }

    fn place(&self) -> String {
        self.root.display().to_string()
    }
}

impl LocalDisk {
    fn try_locking(&self, file: File, name: &str, sharing: Sharing) -> Result<Locking, DiskError> {
        let tried = match sharing {
            Sharing::Alone => file.try_lock(),
            Sharing::Shared => file.try_lock_shared(),
        };
        match tried {
            Ok(()) => Ok(Locking::Held(DiskLock::new(Held(file)))),
            Err(TryLockError::WouldBlock) => Ok(Locking::Busy),
            // A network file system locks ranges of files that are open for writing, and so no directory.
            Err(TryLockError::Error(error)) if lacks_the_lock(&error) => Ok(Locking::Unavailable),
            Err(TryLockError::Error(error)) => Err(self.error("lock", name, error)),
        }
    }
}

fn lacks_the_lock(error: &io::Error) -> bool {
    const LACKING: [Errno; 5] = [Errno::BADF, Errno::INVAL, Errno::NOLCK, Errno::NOSYS, Errno::OPNOTSUPP];
    LACKING.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// The hold on a locked file that knows whether the file still has its name.
fn watched(file: File, path: &Path) -> io::Result<DiskLock> {
    let locked = file.metadata()?;
    let path = path.to_owned();
    let in_place = move || {
        let found = std::fs::symlink_metadata(&path);
        found.is_ok_and(|found| (found.dev(), found.ino()) == (locked.dev(), locked.ino()))
    };
    Ok(DiskLock::watched(Held(file), in_place))
}

/// A locked file. Closing it is not enough while a child of this process has the descriptor between its fork and its exec.
struct Held(File);

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.0.unlock();
    }
}

struct LocalDiskFile {
    place: String,
    name: String,
    file: File,
}

impl LocalDiskFile {
    fn checked<T>(&self, operation: &'static str, done: io::Result<T>) -> Result<T, DiskError> {
        done.map_err(|source| DiskError {
            place: self.place.clone(),
            name: self.name.clone(),
            operation,
            source,
        })
    }

    /// What a file system cannot do is left undone: room is then taken and given as files grow and go.
    fn allocate(
        &self,
        operation: &'static str,
        flags: FallocateFlags,
        offset: u64,
        bytes: u64,
    ) -> Result<(), DiskError> {
        let done = match fallocate(&self.file, flags, offset, bytes) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            done => done.map_err(io::Error::from),
        };
        self.checked(operation, done)
    }
}

impl DiskFile for LocalDiskFile {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<usize, DiskError> {
        let mut read = 0;
        while read < bytes.len() {
            match self.file.read_at(&mut bytes[read..], offset + read as u64) {
                Ok(0) => break,
                Ok(more) => read += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return self.checked("read", Err(error)),
            }
        }
        Ok(read)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), DiskError> {
        self.checked("write", self.file.write_all_at(bytes, offset))
    }

    fn sync(&self) -> Result<(), DiskError> {
        self.checked("sync", self.file.sync_data())
    }

    fn length(&self) -> Result<u64, DiskError> {
        self.checked("stat", self.file.metadata().map(|found| found.len()))
    }

    fn allocated(&self) -> Result<u64, DiskError> {
        // stat(2) counts in 512 bytes, whatever the file system's blocks are.
        self.checked("stat", self.file.metadata().map(|found| found.blocks().saturating_mul(512)))
    }

    fn set_length(&self, bytes: u64) -> Result<(), DiskError> {
        self.checked("truncate", self.file.set_len(bytes))
    }

    fn reserve(&self, offset: u64, bytes: u64) -> Result<(), DiskError> {
        self.allocate("reserve", FallocateFlags::KEEP_SIZE, offset, bytes)
    }

    fn unwritten_at(&self, offset: u64) -> Result<u64, DiskError> {
        let looked = || {
            if !NOTES_FIRST_WRITES.contains(&(fstatfs(&self.file)?.f_type as u64)) {
                return Ok(0);
            }
            // What was reserved and never written is no data to these file systems. No other call uses the cursor.
            match seek(&self.file, SeekFrom::Data(offset)) {
                Ok(data) => Ok(data - offset),
                // None up to the end.
                Err(Errno::NXIO) => Ok(self.file.metadata()?.len().saturating_sub(offset)),
                Err(errno) => Err(io::Error::from(errno)),
            }
        };
        self.checked("seek", looked())
    }

    fn release(&self, offset: u64, bytes: u64) -> Result<(), DiskError> {
        self.allocate("release", FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, offset, bytes)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.file.as_fd())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk() -> (tempfile::TempDir, LocalDisk) {
        let memory = Path::new("/dev/shm");
        let dir = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
        let dir = dir.expect("a directory");
        let disk = LocalDisk::open(dir.path()).expect("it opens");
        (dir, disk)
    }

    #[test]
    fn what_is_written_at_an_offset_is_read_there_and_the_end_cuts_short() {
        let (_dir, disk) = disk();
        let file = disk.open("volume", DiskOpen::New).expect("new");
        file.write_at(b"crumbs", 4_096).expect("written");
        file.sync().expect("synced");
        let mut bytes = [9; 8];
        assert_eq!(file.read_at(&mut bytes, 4_098).expect("read"), 4);
        assert_eq!(&bytes[..4], b"umbs");
        assert_eq!(file.length().expect("length"), 4_102);
        file.release(4_096, 3).expect("released");
        assert_eq!(file.read_at(&mut bytes[..6], 4_096).expect("read"), 6);
        assert_eq!(&bytes[..6], b"\0\0\0mbs");
    }

    #[test]
    fn a_name_that_leads_out_or_is_taken_is_refused() {
        let (_dir, disk) = disk();
        for name in ["", ".", "..", "a/b", "../x"] {
            let error = disk.open(name, DiskOpen::New).err().expect("refused");
            assert_eq!(error.kind(), io::ErrorKind::InvalidFilename, "{name}");
        }
        disk.open("once", DiskOpen::New).expect("new");
        let error = disk.open("once", DiskOpen::New).err().expect("taken");
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        assert!(error.to_string().contains("open of once"), "{error}");
    }

    #[test]
    fn what_is_made_is_its_owner_s_alone() {
        use std::os::unix::fs::PermissionsExt as _;
        let (dir, disk) = disk();
        disk.open("volume", DiskOpen::New).expect("new");
        disk.lock("lock").expect("locks work").expect("free");
        for name in ["volume", "lock"] {
            let mode = dir.path().join(name).metadata().expect("there").permissions().mode() & 0o777;
            assert_eq!(mode, 0o600, "{name}: {mode:o}");
        }
    }

    #[test]
    fn a_link_in_the_place_of_a_file_is_not_followed() {
        let (_dir, disk) = disk();
        let (outside, _elsewhere) = self::disk();
        std::fs::write(outside.path().join("theirs"), "text").expect("written");
        for (name, leads_to) in [("1.body", "theirs"), ("lock", "not-there")] {
            std::os::unix::fs::symlink(outside.path().join(leads_to), disk.root().join(name))
                .expect("a link");
        }
        for how in [DiskOpen::Read, DiskOpen::Write] {
            assert!(disk.open("1.body", how).is_err(), "{how:?}");
        }
        assert!(disk.lock("lock").is_err() && !outside.path().join("not-there").exists());
    }

    #[test]
    fn what_is_no_regular_file_is_listed_by_what_it_is() {
        let (_dir, disk) = disk();
        disk.open("file", DiskOpen::New).expect("new");
        std::fs::create_dir(disk.root().join("directory")).expect("made");
        std::os::unix::fs::symlink("file", disk.root().join("link")).expect("a link");
        rustix::fs::mkfifoat(rustix::fs::CWD, disk.root().join("pipe"), 0o600.into()).expect("a pipe");
        let mut others = disk.other_than_files().expect("listed");
        others.sort_unstable();
        let others = others.iter().map(|(name, what)| (&**name, *what)).collect::<Vec<_>>();
        assert_eq!(others, [("directory", "a directory"), ("link", "a symbolic link"), ("pipe", "a pipe")]);
    }

    /// Symptom: "Too many levels of symbolic links", "No such device or address", "Is a directory": none says what is there.
    #[test]
    fn what_is_in_the_place_of_a_file_is_named_by_the_error_and_never_waited_for() {
        let (_dir, disk) = disk();
        let at = |name: &str| disk.root().join(name);
        std::fs::create_dir(at("a directory")).expect("made");
        std::os::unix::fs::symlink("nowhere", at("a symbolic link")).expect("a link");
        rustix::fs::mkfifoat(rustix::fs::CWD, at("a pipe"), 0o600.into()).expect("a pipe");
        let _socket = std::os::unix::net::UnixListener::bind(at("a socket")).expect("a socket");
        for what in ["a directory", "a symbolic link", "a pipe", "a socket"] {
            let opened = [DiskOpen::Read, DiskOpen::Write].map(|how| disk.open(what, how).map(drop));
            let locked = [disk.lock(what).map(drop), disk.lock_shared(what).map(drop)];
            for refused in opened.into_iter().chain(locked) {
                let text = refused.expect_err(what).source.to_string();
                assert!(text.starts_with(&format!("{what} is in the place of the file")), "{what}: {text}");
            }
            let refused = disk.open(what, DiskOpen::New).map(drop).expect_err(what);
            assert_eq!(refused.kind(), io::ErrorKind::AlreadyExists, "{what}");
        }
    }

    #[test]
    fn one_holds_the_lock_until_it_lets_go() {
        let (_dir, disk) = disk();
        let held = disk.lock("lock").expect("locks work").expect("free");
        assert!(disk.lock("lock").expect("locks work").is_none());
        drop(held);
        assert!(disk.lock("lock").expect("locks work").is_some());
    }

    /// Symptom: after `rm lock` a second process locked a new file and wrote the same store. Fix: the directory is locked too, and the
    /// first one finds out that its file is not the one by that name.
    #[test]
    fn a_removed_or_replaced_lock_file_is_noticed_and_the_directory_stays_locked() {
        let (_dir, disk) = disk();
        let lock = disk.lock("lock").expect("locks work").expect("free");
        let Locking::Held(directory) = disk.lock_directory(Sharing::Alone).expect("locks work") else {
            panic!("free")
        };
        assert!(lock.is_in_place());
        disk.remove("lock").expect("removed");
        assert!(!lock.is_in_place());
        let second = disk.lock("lock").expect("locks work").expect("another file");
        assert!(second.is_in_place() && !lock.is_in_place());
        for sharing in [Sharing::Alone, Sharing::Shared] {
            assert!(matches!(disk.lock_directory(sharing).expect("locks work"), Locking::Busy));
        }
        drop(directory);
        assert!(matches!(disk.lock_directory(Sharing::Alone).expect("locks work"), Locking::Held(_)));
    }

    #[test]
    fn readers_share_a_lock_keep_writers_out_and_make_no_file() {
        let (_dir, disk) = disk();
        assert!(matches!(disk.lock_shared("lock").expect("none there"), Locking::Unavailable));
        assert_eq!(disk.names().expect("listed"), [""; 0]);
        drop(disk.lock("lock").expect("locks work"));
        let shared = disk.lock_shared("lock").expect("locks work");
        assert!(matches!(shared, Locking::Held(_)));
        assert!(matches!(disk.lock_shared("lock").expect("locks work"), Locking::Held(_)));
        assert!(disk.lock("lock").expect("locks work").is_none(), "a reader has it");
        drop(shared);
        let writer = disk.lock("lock").expect("locks work").expect("free");
        assert!(matches!(disk.lock_shared("lock").expect("locks work"), Locking::Busy));
        drop(writer);
    }

    #[test]
    fn names_are_those_that_are_there() {
        let (_dir, disk) = disk();
        for name in ["a", "b", "c"] {
            disk.open(name, DiskOpen::New).expect("new");
        }
        disk.remove("b").expect("removed");
        disk.rename("c", "a").expect("renamed");
        disk.sync_names().expect("synced");
        assert_eq!(disk.names().expect("listed"), ["a"]);
        assert_eq!(disk.remove("b").unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
