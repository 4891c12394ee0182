//! A local directory behind the blocking seam: each call is the system call it is named after.
//!
//! | call | system calls |
//! |---|---|
//! | create | openat (`O_CREAT`, `O_EXCL`) |
//! | open | openat |
//! | read, write, seek, block_bytes, close | read, write, lseek, fstat, close |
//! | sync | fdatasync or fsync |
//! | sync_dir | openat, fsync, close |
//! | sync_all | syncfs |
//! | lock | openat (`O_CREAT`), flock |
//! | stat | statx (`AT_SYMLINK_NOFOLLOW`) |
//! | readdir | openat, getdents64 until it is empty, close |
//! | link, symlink, readlink, rename, unlink, mkdir, rmdir, statfs | linkat, symlinkat, readlinkat, renameat, unlinkat, mkdirat, unlinkat, fstatvfs |
//!
//! Always holds: paths are resolved from the root's descriptor; each open file is one descriptor.
//! Not here: handles that outlive a rename (see `Directory`), worker threads (see `DirectoryTransport`).

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, RawDir, SeekFrom, StatxFlags, openat, statx};
use rustix::io::{Errno, retry_on_intr};

use crate::directory::attributes::{attributes_of, space_of};
use crate::{
    Access, Attributes, FileLock, FileSystem, FsError, FsOp, Fsstat, ListedEntry, Locking, OpenFile, Status,
    SyncScope,
};

/// A local directory.
#[derive(Debug)]
pub struct LocalFs {
    root: OwnedFd,
    path: PathBuf,
}

/// Bytes taken by one getdents64: about 1000 entries, what libc's readdir asks for.
const LISTING_BYTES: usize = 32 << 10;
/// As fopen(3) makes files, less the umask.
const FILE_MODE: Mode = Mode::from_raw_mode(0o666);
const DIRECTORY_MODE: Mode = Mode::from_raw_mode(0o777);
/// Of directories that nobody else has any business in.
const OWN_MODE: Mode = Mode::RWXU;

impl LocalFs {
    /// Opens the directory at `path`.
    ///
    /// # Errors
    /// When it is not there, no directory, or not permitted.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, FsError> {
        let path = path.into();
        match rustix::fs::open(&path, DIRECTORY_FLAGS, Mode::empty()) {
            Ok(root) => Ok(Self { root, path }),
            Err(errno) => Err(FsError::of_errno(FsOp::Open, path, errno)),
        }
    }

    fn opened(
        &self,
        opened: Result<OwnedFd, Errno>,
        op: FsOp,
        path: &Path,
    ) -> Result<Box<dyn OpenFile>, FsError> {
        let descriptor = opened.map_err(self.failed(op, path))?;
        Ok(Box::new(LocalFile { descriptor }))
    }

    fn failed(&self, op: FsOp, path: &Path) -> impl FnOnce(Errno) -> FsError {
        move |errno| FsError::of_errno(op, self.path.join(path), errno)
    }

    /// Opens the directory itself that has this name, not what a link names.
    fn itself(&self, path: &Path) -> Result<Self, FsError> {
        let root = from_root(path)
            .and_then(|from| openat(&self.root, from, DIRECTORY_FLAGS | OFlags::NOFOLLOW, Mode::empty()))
            .map_err(self.failed(FsOp::Open, path))?;
        Ok(Self { root, path: self.path.join(path) })
    }

    /// This directory, when nobody else can put anything in it.
    fn ours_alone(self, op: FsOp) -> Result<Self, FsError> {
        let refused = |errno: Errno| FsError::of_errno(op, self.path.clone(), errno);
        let stat = rustix::fs::fstat(&self.root).map_err(refused)?;
        let user = rustix::process::geteuid().as_raw();
        let owner_is_told = stat.st_uid == user || !maps_owners(&self.root, stat.st_uid).map_err(refused)?;
        let why = if owner_is_told && stat.st_uid != user {
            format!("it belongs to user {}, not to user {user}, who runs this", stat.st_uid)
        } else if owner_is_told && stat.st_mode & 0o022 != 0 {
            "others may write in it; take that away (chmod go-w) if all in it is yours".to_owned()
        } else {
            return Ok(self);
        };
        Err(not_ours(op, self.path, why))
    }
}

fn not_ours(op: FsOp, path: PathBuf, why: String) -> FsError {
    let source = Some(std::io::Error::new(std::io::ErrorKind::PermissionDenied, why));
    FsError::Failed { op, path, status: Status::PERM, source }
}

/// Whether a file system reports another owner than the user who created a file: NFS makes root nobody, SMB and the FAT
/// family have one owner for all, set by the mount.
fn maps_owners(directory: &OwnedFd, owner: u32) -> Result<bool, Errno> {
    const NFS: u32 = 0x6969;
    const ONE_OWNER: [u32; 4] = [0xff53_4d42, 0xfe53_4d42, 0x4d44, 0x2011_bab0];
    const NOBODY: [u32; 2] = [65534, u32::MAX - 1];
    // The number has 32 bits, whatever type a machine's statfs gives it.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let kind = rustix::fs::fstatfs(directory)?.f_type as u32;
    Ok(ONE_OWNER.contains(&kind) || kind == NFS && NOBODY.contains(&owner))
}

const DIRECTORY_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// The root itself has no name of its own to resolve. A path from `/`, or up by `..`, would leave the root unseen.
fn from_root(path: &Path) -> Result<&Path, Errno> {
    match path.as_os_str().as_bytes() {
        [] => Ok(Path::new(".")),
        [b'/', ..] => Err(Errno::INVAL),
        bytes if climbs(bytes) => Err(Errno::INVAL),
        _ => Ok(path),
    }
}

/// Whether `..` is one of a path's names. Two dots are rare enough to look closer only where they are.
fn climbs(path: &[u8]) -> bool {
    path.windows(2).any(|pair| pair == b"..") && path.split(|byte| *byte == b'/').any(|name| name == b"..")
}

/// As [`from_root`], for what must have a name: the kernel's `EBUSY` for the root would read as a broken disk.
fn named(path: &Path) -> Result<&Path, Errno> {
    let from = from_root(path)?;
    if from == Path::new(".") { Err(Errno::INVAL) } else { Ok(from) }
}

impl FileSystem for LocalFs {
    fn create(&self, path: &Path) -> Result<Box<dyn OpenFile>, FsError> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let opened = from_root(path).and_then(|from| openat(&self.root, from, flags, FILE_MODE));
        self.opened(opened, FsOp::Create, path)
    }

    fn open(&self, path: &Path, access: Access) -> Result<Box<dyn OpenFile>, FsError> {
        let flags = OFlags::CLOEXEC
            | match access {
                Access::Read => OFlags::RDONLY,
                Access::Write => OFlags::WRONLY,
                Access::Append => OFlags::WRONLY | OFlags::APPEND,
                Access::ReadWrite => OFlags::RDWR,
            };
        let opened = from_root(path).and_then(|from| openat(&self.root, from, flags, Mode::empty()));
        self.opened(opened, FsOp::Open, path)
    }

    fn link(&self, existing: &Path, new: &Path) -> Result<(), FsError> {
        let link = || {
            rustix::fs::linkat(
                &self.root,
                from_root(existing)?,
                &self.root,
                from_root(new)?,
                AtFlags::empty(),
            )
        };
        link().map_err(self.failed(FsOp::Link, new))
    }

    fn symlink(&self, target: &Path, path: &Path) -> Result<(), FsError> {
        from_root(path)
            .and_then(|from| rustix::fs::symlinkat(target, &self.root, from))
            .map_err(self.failed(FsOp::Symlink, path))
    }

    fn readlink(&self, path: &Path) -> Result<PathBuf, FsError> {
        from_root(path)
            .and_then(|from| rustix::fs::readlinkat(&self.root, from, Vec::new()))
            .map(|target| PathBuf::from(std::ffi::OsString::from_vec(target.into_bytes())))
            .map_err(self.failed(FsOp::Readlink, path))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), FsError> {
        let rename = || rustix::fs::renameat(&self.root, named(from)?, &self.root, named(to)?);
        rename().map_err(self.failed(FsOp::Rename, to))
    }

    fn unlink(&self, path: &Path) -> Result<(), FsError> {
        from_root(path)
            .and_then(|from| rustix::fs::unlinkat(&self.root, from, AtFlags::empty()))
            .map_err(self.failed(FsOp::Unlink, path))
    }

    fn mkdir(&self, path: &Path) -> Result<(), FsError> {
        from_root(path)
            .and_then(|from| rustix::fs::mkdirat(&self.root, from, DIRECTORY_MODE))
            .map_err(self.failed(FsOp::Mkdir, path))
    }

    fn rmdir(&self, path: &Path) -> Result<(), FsError> {
        from_root(path)
            .and_then(|from| rustix::fs::unlinkat(&self.root, from, AtFlags::REMOVEDIR))
            .map_err(self.failed(FsOp::Rmdir, path))
    }

    fn readdir(&self, path: &Path, each: &mut dyn FnMut(ListedEntry<'_>)) -> Result<(), FsError> {
        let mut listed = || {
            let dir = openat(&self.root, from_root(path)?, DIRECTORY_FLAGS, Mode::empty())?;
            let mut buf = Vec::with_capacity(LISTING_BYTES);
            let mut entries = RawDir::new(&dir, buf.spare_capacity_mut());
            while let Some(entry) = entries.next() {
                let entry = entry?;
                let name = entry.file_name().to_bytes();
                if name != b"." && name != b".." {
                    each(ListedEntry { name, fileid: entry.ino() });
                }
            }
            Ok(())
        };
        listed().map_err(self.failed(FsOp::Readdir, path))
    }

    fn stat(&self, path: &Path) -> Result<Attributes, FsError> {
        from_root(path)
            .and_then(|from| statx(&self.root, from, AtFlags::SYMLINK_NOFOLLOW, StatxFlags::BASIC_STATS))
            .map(|stat| attributes_of(&stat))
            .map_err(self.failed(FsOp::Stat, path))
    }

    fn statfs(&self) -> Result<Fsstat, FsError> {
        rustix::fs::fstatvfs(&self.root)
            .map(|space| space_of(&space))
            .map_err(self.failed(FsOp::Statfs, Path::new("")))
    }

    fn sync_dir(&self, path: &Path) -> Result<(), FsError> {
        from_root(path)
            .and_then(|from| openat(&self.root, from, DIRECTORY_FLAGS, Mode::empty()))
            .and_then(|dir| rustix::fs::fsync(&dir))
            .map_err(self.failed(FsOp::Sync, path))
    }

    fn sync_all(&self) -> Result<(), FsError> {
        rustix::fs::syncfs(&self.root).map_err(self.failed(FsOp::Sync, Path::new("")))
    }

    fn below(&self, path: &Path) -> Result<Arc<dyn FileSystem>, FsError> {
        let root = from_root(path)
            .and_then(|from| openat(&self.root, from, DIRECTORY_FLAGS, Mode::empty()))
            .map_err(self.failed(FsOp::Open, path))?;
        Ok(Arc::new(Self { root, path: self.path.join(path) }))
    }

    fn below_itself(&self, path: &Path) -> Result<Arc<dyn FileSystem>, FsError> {
        Ok(Arc::new(self.itself(path)?))
    }

    fn make_own(&self, path: &Path) -> Result<Arc<dyn FileSystem>, FsError> {
        named(path)
            .and_then(|from| rustix::fs::mkdirat(&self.root, from, OWN_MODE))
            .map_err(self.failed(FsOp::Mkdir, path))?;
        let own = self.itself(path)?.ours_alone(FsOp::Mkdir)?;
        // Another directory of this user's may have been moved here from where the directory above's owner can write.
        let mut empty = true;
        own.readdir(Path::new(""), &mut |_| empty = false)?;
        if !empty {
            let why = "another directory was put in the place of the one just made".to_owned();
            return Err(not_ours(FsOp::Mkdir, own.path, why));
        }
        Ok(Arc::new(own))
    }

    fn own(&self, path: &Path) -> Result<Arc<dyn FileSystem>, FsError> {
        Ok(Arc::new(self.itself(path)?.ours_alone(FsOp::Open)?))
    }

    fn lock(&self, path: &Path) -> Result<Locking, FsError> {
        // A link in the lock's place would have a file made wherever it leads.
        let flags = OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened =
            |more| from_root(path).and_then(|from| openat(&self.root, from, flags | more, FILE_MODE));
        // For writing, as a mounted NFS locks nothing exclusively that is open for reading; a file that is there can be
        // locked on a read-only file system too.
        let file = match opened(OFlags::RDWR) {
            Err(Errno::ROFS | Errno::ACCESS) => opened(OFlags::RDONLY),
            other => other,
        };
        let file = file.map_err(self.failed(FsOp::Open, path))?;
        match retry_on_intr(|| rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)) {
            Ok(()) => Ok(Locking::Held(FileLock::new(file))),
            Err(Errno::WOULDBLOCK) => Ok(Locking::Busy),
            // A network mount without a lock service, or a file system that has none.
            Err(Errno::NOLCK | Errno::NOSYS | Errno::OPNOTSUPP | Errno::BADF) => Ok(Locking::Unsupported),
            Err(errno) => Err(self.failed(FsOp::Open, path)(errno)),
        }
    }

    fn place(&self) -> String {
        self.path.display().to_string()
    }

    fn local_root(&self) -> Option<&Path> {
        Some(&self.path)
    }
}

/// An open file: its descriptor and nothing else, so that opening allocates 4 bytes. Its path is read from
/// `/proc` when an error must name it.
struct LocalFile {
    descriptor: OwnedFd,
}

impl LocalFile {
    fn failed(&self, op: FsOp) -> impl FnOnce(Errno) -> FsError {
        let number = self.descriptor.as_raw_fd();
        move |errno| {
            let link = PathBuf::from(format!("/proc/self/fd/{number}"));
            let path = std::fs::read_link(&link).unwrap_or(link);
            FsError::of_errno(op, path, errno)
        }
    }
}

impl OpenFile for LocalFile {
    fn read(&mut self, buf: &mut [u8]) -> Result<usize, FsError> {
        retry_on_intr(|| rustix::io::read(&self.descriptor, &mut *buf)).map_err(self.failed(FsOp::Read))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<usize, FsError> {
        retry_on_intr(|| rustix::io::write(&self.descriptor, bytes)).map_err(self.failed(FsOp::Write))
    }

    fn seek_end(&mut self) -> Result<u64, FsError> {
        rustix::fs::seek(&self.descriptor, SeekFrom::End(0)).map_err(self.failed(FsOp::Seek))
    }

    fn seek(&mut self, offset_bytes: u64) -> Result<(), FsError> {
        rustix::fs::seek(&self.descriptor, SeekFrom::Start(offset_bytes))
            .map(drop)
            .map_err(self.failed(FsOp::Seek))
    }

    fn block_bytes(&mut self) -> Result<usize, FsError> {
        let stat = rustix::fs::fstat(&self.descriptor).map_err(self.failed(FsOp::Stat))?;
        Ok(usize::try_from(stat.st_blksize).unwrap_or(0).clamp(512, 1 << 20))
    }

    fn sync(&mut self, scope: SyncScope) -> Result<(), FsError> {
        match scope {
            SyncScope::Data => rustix::fs::fdatasync(&self.descriptor),
            SyncScope::All => rustix::fs::fsync(&self.descriptor),
        }
        .map_err(self.failed(FsOp::Sync))
    }

    fn close(self: Box<Self>) -> Result<(), FsError> {
        // Held-back errors of a local file system come with sync; rustix closes on drop and cannot tell them.
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_would_leave_the_root_is_refused_and_dots_in_names_are_not() {
        for path in ["/", "/etc", "..", "a/..", "a/../b", "../b", "./.."] {
            assert_eq!(from_root(Path::new(path)), Err(Errno::INVAL), "{path}");
        }
        for path in ["a..b", "...", "a/...", "..a/b", "a/b..", "./a"] {
            assert_eq!(from_root(Path::new(path)), Ok(Path::new(path)), "{path}");
        }
        assert_eq!((from_root(Path::new("")), named(Path::new(""))), (Ok(Path::new(".")), Err(Errno::INVAL)));
    }

    #[test]
    fn a_root_that_is_none_is_named_with_the_systems_own_words() {
        let error = LocalFs::open("/nowhere/at/all").expect_err("not there");
        assert_eq!((error.op(), error.status()), (FsOp::Open, Some(crate::Status::NOENT)));
        assert_eq!(error.to_string(), "/nowhere/at/all: cannot open");
        assert_eq!(
            measure::error_chain(&error),
            "/nowhere/at/all: cannot open: No such file or directory (os error 2)"
        );
    }

    #[test]
    fn one_holds_a_lock_until_it_lets_go() {
        let folder = tempfile::tempdir().expect("a folder");
        let fs = LocalFs::open(folder.path()).expect("opened");
        let lock = || fs.lock(Path::new("lock")).expect("locks work");
        let held = lock();
        assert!(matches!(held, Locking::Held(_)));
        assert!(matches!(lock(), Locking::Busy));
        drop(held);
        assert!(matches!(lock(), Locking::Held(_)));
    }

    #[test]
    fn a_link_in_the_place_of_a_lock_is_not_followed() {
        let (folder, elsewhere) =
            (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("another"));
        let made = elsewhere.path().join("made");
        std::os::unix::fs::symlink(&made, folder.path().join("lock")).expect("a link");
        let fs = LocalFs::open(folder.path()).expect("opened");
        assert!(fs.lock(Path::new("lock")).is_err());
        assert!(!made.exists(), "a file was made where the link leads");
    }

    #[test]
    fn an_open_file_names_itself_in_its_errors() {
        let folder = tempfile::tempdir().expect("a folder");
        let fs = LocalFs::open(folder.path()).expect("opened");
        let mut file = fs.create(Path::new("written-only")).expect("made");
        let error = file.read(&mut [0; 4]).expect_err("opened to write").to_string();
        assert!(error.contains("written-only") && error.contains("cannot read"), "{error}");
    }
}
