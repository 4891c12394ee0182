//! An NFSv3 export behind the blocking seam: paths are walked by LOOKUP, writes gathered, reads read ahead.
//!
//! ```text
//! FileSystem call -> walk (path -> handle; cache) -> calls (pool of connections, repeats) -> one to three RPCs
//! OpenFile        -> file (cursor, read-ahead)    -> write_back (held, kept until COMMIT)
//! ```
//!
//! RPCs of PostMark's operations on files of 10 KB in the root (below a directory and with the cache off, one LOOKUP
//! more for each name on the way; with it on, none while the directory is remembered):
//!
//! | operation | cache on, file remembered | cache off |
//! |---|---|---|
//! | create: create, write, close | CREATE, WRITE | CREATE, WRITE |
//! | read: open, read to the end, close | READ | LOOKUP, READ |
//! | append: open, seek_end, write, close | GETATTR, WRITE | LOOKUP, GETATTR, GETATTR, WRITE |
//! | delete: unlink | REMOVE | REMOVE |
//!
//! What a kernel's page cache does for its programs is done here for each open file, and no further:
//! - Writes are gathered up to `io_bytes_max` and go out when that is full, at seek, read, sync and close. Others,
//!   this process's other open files too, see them from then on. A file of which sync or close finds everything in
//!   one WRITE is written `FILE_SYNC`, which saves the COMMIT, as Linux does.
//! - A READ asks for 64 KiB at least and what came beyond is handed to the next reads. Own writes and seeks drop it;
//!   what others write meanwhile is not seen.
//! - Opened to append: GETATTR, then WRITE at that size. Two clients that append at once may overwrite each other;
//!   NFSv3 has no better way.
//! - No ACCESS and no close-to-open check: a file that may not be read fails at its first READ, and with the cache on
//!   a change by another client may stay unseen for the agreed time.
//!
//! CREATE is GUARDED, not EXCLUSIVE: that would cost a SETATTR each. Retransmissions over UDP carry the XID of their
//! call, and telling a repeat is left to the server's cache of recent replies, as in every client. A call repeated on
//! a new connection is a new call to the server; when it then finds a name gone (REMOVE, RMDIR, RENAME), or
//! there (LINK, MKDIR, SYMLINK, or CREATE's file, empty and with one name), an earlier try is taken to have done it;
//! `FsCounters::found_done` counts these.
//!
//! Always holds: no lock is held across the network; whatever a server answers ends in a value or an error; every
//! repeat and wait is counted; files are made 0644 and directories 0755, whatever the umask.
//! Not here: silly renames (an unlinked file is STALE to a caller that holds it open), locks, open-loop load (`connect`).
//! A path's last `/` is as good as absent.
//! Sources: RFC 1813; Callaghan, "NFS Illustrated", 2000, chapters 7 and 8.

mod cache;
mod calls;
mod counters;
mod file;
mod gone;
mod options;
mod walk;
mod write_back;

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use files::{
    Access, Attributes, CreateHow, FileKind, FileSystem, FsError, FsOp, Fsstat, Handle, ListedEntry,
    NfsTarget, OpenFile, Reply, Request, SetAttributes, Status, Wcc,
};
use rustix::io::Errno;

use self::cache::Cache;
use self::calls::{Calls, Fail};
use self::counters::add;
use self::file::{Ahead, NfsFile};
use self::walk::{Found, Last, Trust};
use self::write_back::WriteBack;
use super::Mount;
use crate::NfsError;

pub use counters::FsCounters;
pub use options::{CacheMode, FsOptions, ModeError, WriteMode};

/// An NFSv3 export, or a directory in it. Cloning shares connections, cache and counters.
#[derive(Clone)]
pub struct NfsFs {
    shared: Arc<Shared>,
    root: Handle,
    /// Of the root, from the export on.
    below: PathBuf,
}

struct Shared {
    calls: Calls,
    cache: Option<Cache>,
    writes: WriteMode,
    io_bytes_max: usize,
    name_bytes_max: usize,
    file_bytes_max: u64,
    listing_bytes: u32,
    target: NfsTarget,
    /// The target without its options, as errors name it.
    url: PathBuf,
}

/// The most that one READ or WRITE carries here: what a connection takes as an answer.
const IO_BYTES_MAX: usize = 1 << 20;
/// The most that one READDIR asks for: some 1500 names.
const LISTING_BYTES_MAX: u32 = 64 << 10;
const FILE_MODE: u32 = 0o644;
const DIRECTORY_MODE: u32 = 0o755;

impl NfsFs {
    /// Mounts the target's export.
    ///
    /// # Errors
    /// When the server cannot be found, reached, mounted or asked for its limits; the text says which and what to do.
    pub fn open(target: &NfsTarget, options: &FsOptions) -> Result<Self, NfsError> {
        let mut mount = Mount::open(target, &options.client)?;
        let peer = mount.peer();
        let root = mount.root;
        let name_bytes_max = match mount.control.request(&Request::Pathconf { object: root.by_ref() })? {
            Ok(Reply::Pathconf { limits, .. }) if limits.name_bytes_max > 0 => limits.name_bytes_max as usize,
            // A server need not say; then it will refuse what is too long for it.
            _ => usize::MAX,
        };
        let io_bytes_max = (mount.io_bytes_max() as usize).min(IO_BYTES_MAX);
        let file_bytes_max = match mount.limits.file_size_max {
            0 => i64::MAX as u64,
            limit => limit.min(i64::MAX as u64),
        };
        let listing_bytes = (io_bytes_max as u32).clamp(512, LISTING_BYTES_MAX);
        let plain = NfsTarget { mount_port: None, proto: None, ..target.clone() };
        let url = PathBuf::from(plain.to_string());
        let mut target = target.clone();
        target.proto = Some(peer.proto);
        let shared = Shared {
            calls: Calls::new(mount.control, &options.client),
            cache: match options.cache {
                CacheMode::Off => None,
                CacheMode::For(keep) => Some(Cache::new(keep)),
            },
            writes: options.writes,
            io_bytes_max,
            name_bytes_max,
            file_bytes_max,
            listing_bytes,
            target,
            url,
        };
        Ok(Self { shared: Arc::new(shared), root, below: PathBuf::new() })
    }

    /// What was done so far, by all clones and everything below together; mounting itself is not counted.
    pub fn counters(&self) -> FsCounters {
        self.shared.calls.tally.read()
    }

    /// Most bytes of one READ or WRITE.
    pub fn io_bytes_max(&self) -> usize {
        self.shared.io_bytes_max
    }

    /// A path as a user would name it.
    fn named(&self, path: &Path) -> PathBuf {
        self.shared.url.join(&self.below).join(path)
    }

    /// Tries with what is remembered, and once more without it when that was stale.
    fn attempt<T>(
        &self,
        op: FsOp,
        path: &Path,
        mut go: impl FnMut(Trust) -> Result<T, Fail>,
    ) -> Result<T, FsError> {
        let mut outcome = go(Trust::Remembered);
        if self.shared.cache.is_some() && outcome.as_ref().is_err_and(Fail::is_stale) {
            add(&self.shared.calls.tally.stale_walks, 1);
            outcome = go(Trust::Fresh);
        }
        outcome.map_err(|fail| fail.into_error(op, self.named(path)))
    }

    fn changed(&self, object: &Handle, wcc: &Wcc) {
        if let Some(cache) = &self.shared.cache {
            cache.changed(object, wcc);
        }
    }

    /// Notes an object just made, and asks for its handle when the server did not tell.
    fn made(
        &self,
        dir: &Handle,
        name: &[u8],
        (handle, attributes, wcc): (Option<Handle>, Option<Attributes>, Wcc),
        kind: FileKind,
    ) -> Option<Handle> {
        self.changed(dir, &wcc);
        if let (Some(cache), Some(handle)) = (&self.shared.cache, handle) {
            cache.saw_name(dir, name, handle, kind);
            cache.changed(&handle, &Wcc { before: None, after: attributes });
        }
        handle
    }

    /// Makes something new. When a repeated call finds the name taken, `is_ours` judges what is there.
    fn make(
        &self,
        dir: &Handle,
        name: &[u8],
        request: &Request<'_>,
        kind: FileKind,
        is_ours: impl FnOnce(&Found, &Attributes) -> Result<bool, Fail>,
    ) -> Result<Option<Handle>, Fail> {
        let made = self.shared.calls.call(request, |reply| match reply {
            Reply::Created { object, attributes, dir } => {
                let handle = match object {
                    Some(object) => Some(Handle::new(object.0)?),
                    None => None,
                };
                Some((handle, attributes, dir))
            }
            _ => None,
        });
        match made {
            Ok(made) => Ok(self.made(dir, name, made, kind)),
            Err(Fail::Refused { status: Status::EXIST, resent: true }) => {
                let found = self.find(dir, name)?;
                let attributes = self.getattr(&found.handle)?;
                if found.kind == kind && is_ours(&found, &attributes)? {
                    add(&self.shared.calls.tally.found_done, 1);
                    Ok(Some(found.handle))
                } else {
                    Err(Fail::of(Status::EXIST))
                }
            }
            Err(fail) => Err(fail),
        }
    }

    /// The object of a name just now, whatever is remembered.
    fn find(&self, dir: &Handle, name: &[u8]) -> Result<Found, Fail> {
        let here = Self { shared: Arc::clone(&self.shared), root: *dir, below: PathBuf::new() };
        here.walk(Path::new(std::ffi::OsStr::from_bytes(name)), Last::Keep, Trust::Fresh)
    }

    /// Whether a failure to remove says that an earlier try had done it.
    fn removed_before(&self, outcome: Result<Wcc, Fail>) -> Result<Wcc, Fail> {
        match outcome {
            Err(Fail::Refused { status: Status::NOENT, resent: true }) => {
                add(&self.shared.calls.tally.found_done, 1);
                Ok(Wcc::default())
            }
            outcome => outcome,
        }
    }

    fn remove(&self, path: &Path, trust: Trust, op: FsOp, root: Errno) -> Result<(), Fail> {
        let (dir, name) = self.walk_to_parent(path, trust, root)?;
        let request = match op {
            FsOp::Rmdir => Request::Rmdir { dir: dir.by_ref(), name },
            _ => Request::Remove { dir: dir.by_ref(), name },
        };
        let removed = self.shared.calls.call(&request, |reply| match reply {
            Reply::Removed { dir } => Some(dir),
            _ => None,
        });
        let wcc = self.removed_before(removed)?;
        self.changed(&dir, &wcc);
        if let Some(cache) = &self.shared.cache {
            cache.forget_name(&dir, name);
        }
        Ok(())
    }

    fn file(&self, path: &Path, found: &Found, access: Access) -> Box<dyn OpenFile> {
        Box::new(NfsFile {
            fs: self.clone(),
            path: path.to_owned(),
            handle: found.handle,
            kind: found.kind,
            access,
            remembered_in: found.remembered_in,
            cursor: 0,
            ahead: Ahead::default(),
            jumped: false,
            back: WriteBack::default(),
            closed: false,
        })
    }

    fn list(
        &self,
        path: &Path,
        trust: Trust,
        begun: &mut bool,
        each: &mut dyn FnMut(ListedEntry<'_>),
    ) -> Result<(), Fail> {
        let dir = self.walk(path, Last::Follow, trust)?.handle;
        let (mut cookie, mut verifier) = (0, [0; 8]);
        loop {
            let request =
                Request::Readdir { dir: dir.by_ref(), cookie, verifier, count: self.shared.listing_bytes };
            let (attributes, returned, last, end) =
                self.shared.calls.call(&request, |reply| match reply {
                    Reply::Listing { dir, verifier, entries, end } => {
                        let mut last = None;
                        for entry in entries {
                            last = Some(entry.cookie);
                            if entry.name != b"." && entry.name != b".." {
                                *begun = true;
                                each(ListedEntry { name: entry.name, fileid: entry.fileid });
                            }
                        }
                        Some((dir, verifier, last, end))
                    }
                    _ => None,
                })?;
            if let (Some(cache), Some(attributes)) = (&self.shared.cache, attributes) {
                cache.saw_attributes(&dir, attributes);
            }
            match last {
                _ if end => return Ok(()),
                // Neither an end nor a way on: asking again would go on for ever.
                None => return Err(Fail::of(Status::SERVERFAULT)),
                Some(next) if next == cookie => return Err(Fail::of(Status::SERVERFAULT)),
                Some(next) => (cookie, verifier) = (next, returned),
            }
        }
    }
}

impl FileSystem for NfsFs {
    fn create(&self, path: &Path) -> Result<Box<dyn OpenFile>, FsError> {
        self.attempt(FsOp::Create, path, |trust| {
            let (dir, name) = self.walk_to_parent(path, trust, Errno::EXIST)?;
            let new = SetAttributes { mode: Some(FILE_MODE), ..SetAttributes::default() };
            let how = CreateHow::Guarded(new);
            let request = Request::Create { dir: dir.by_ref(), name, how };
            let handle = self.make(&dir, name, &request, FileKind::Regular, |_, attributes| {
                Ok(attributes.size == 0 && attributes.links == 1)
            })?;
            let handle = match handle {
                Some(handle) => handle,
                None => self.find(&dir, name)?.handle,
            };
            let found = Found { handle, kind: FileKind::Regular, attributes: None, remembered_in: None };
            Ok(self.file(path, &found, Access::Write))
        })
    }

    fn open(&self, path: &Path, access: Access) -> Result<Box<dyn OpenFile>, FsError> {
        self.attempt(FsOp::Open, path, |trust| {
            let found = self.walk(path, Last::Follow, trust)?;
            match found.kind {
                FileKind::Regular => {}
                FileKind::Directory if access == Access::Read => {}
                FileKind::Directory => return Err(Fail::Os(Errno::ISDIR)),
                // What such a file names is on the machine that opens it, and the server has no such thing to read.
                _ => return Err(Fail::Os(Errno::NXIO)),
            }
            Ok(self.file(path, &found, access))
        })
    }

    fn link(&self, existing: &Path, new: &Path) -> Result<(), FsError> {
        self.attempt(FsOp::Link, new, |trust| {
            let file = self.walk(existing, Last::Keep, trust)?.handle;
            let (dir, name) = self.walk_to_parent(new, trust, Errno::EXIST)?;
            let request = Request::Link { file: file.by_ref(), dir: dir.by_ref(), name };
            let linked = self.shared.calls.call(&request, |reply| match reply {
                Reply::Link { attributes, dir } => Some((attributes, dir)),
                _ => None,
            });
            let (attributes, wcc) = match linked {
                Err(Fail::Refused { status: Status::EXIST, resent: true })
                    if self.find(&dir, name)?.handle == file =>
                {
                    add(&self.shared.calls.tally.found_done, 1);
                    (None, Wcc::default())
                }
                linked => linked?,
            };
            self.changed(&dir, &wcc);
            self.changed(&file, &Wcc { before: None, after: attributes });
            if let (Some(cache), Some(attributes)) = (&self.shared.cache, attributes) {
                cache.saw_name(&dir, name, file, attributes.kind);
            }
            Ok(())
        })
    }

    fn symlink(&self, target: &Path, path: &Path) -> Result<(), FsError> {
        self.attempt(FsOp::Symlink, path, |trust| {
            let target = target.as_os_str().as_bytes();
            match target {
                // As symlink(2).
                [] => return Err(Fail::Os(Errno::NOENT)),
                target if target.contains(&0) => return Err(Fail::Os(Errno::INVAL)),
                _ => {}
            }
            let (dir, name) = self.walk_to_parent(path, trust, Errno::EXIST)?;
            let new = SetAttributes::default();
            let request = Request::Symlink { dir: dir.by_ref(), name, target, new };
            self.make(&dir, name, &request, FileKind::Symlink, |found, _| {
                Ok(self.read_link(&found.handle)? == target)
            })?;
            Ok(())
        })
    }

    fn readlink(&self, path: &Path) -> Result<PathBuf, FsError> {
        self.attempt(FsOp::Readlink, path, |trust| {
            let found = self.walk(path, Last::Keep, trust)?;
            if found.kind != FileKind::Symlink {
                return Err(Fail::Os(Errno::INVAL));
            }
            Ok(PathBuf::from(OsString::from_vec(self.read_link(&found.handle)?)))
        })
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), FsError> {
        self.attempt(FsOp::Rename, to, |trust| {
            let (from_dir, from_name) = self.walk_to_parent(from, trust, Errno::INVAL)?;
            let (to_dir, to_name) = self.walk_to_parent(to, trust, Errno::INVAL)?;
            let request =
                Request::Rename { from_dir: from_dir.by_ref(), from_name, to_dir: to_dir.by_ref(), to_name };
            let renamed = self.shared.calls.call(&request, |reply| match reply {
                Reply::Rename { from_dir, to_dir } => Some((from_dir, to_dir)),
                _ => None,
            });
            let (from_wcc, to_wcc) = match renamed {
                Err(Fail::Refused { status: Status::NOENT, resent: true })
                    if self.find(&to_dir, to_name).is_ok() =>
                {
                    add(&self.shared.calls.tally.found_done, 1);
                    Default::default()
                }
                renamed => renamed?,
            };
            self.changed(&from_dir, &from_wcc);
            self.changed(&to_dir, &to_wcc);
            if let Some(cache) = &self.shared.cache {
                cache.renamed((&from_dir, from_name), (&to_dir, to_name));
            }
            Ok(())
        })
    }

    fn unlink(&self, path: &Path) -> Result<(), FsError> {
        self.attempt(FsOp::Unlink, path, |trust| self.remove(path, trust, FsOp::Unlink, Errno::ISDIR))
    }

    fn mkdir(&self, path: &Path) -> Result<(), FsError> {
        self.attempt(FsOp::Mkdir, path, |trust| {
            let (dir, name) = self.walk_to_parent(path, trust, Errno::EXIST)?;
            let new = SetAttributes { mode: Some(DIRECTORY_MODE), ..SetAttributes::default() };
            let request = Request::Mkdir { dir: dir.by_ref(), name, new };
            self.make(&dir, name, &request, FileKind::Directory, |_, _| Ok(true))?;
            Ok(())
        })
    }

    fn rmdir(&self, path: &Path) -> Result<(), FsError> {
        self.attempt(FsOp::Rmdir, path, |trust| self.remove(path, trust, FsOp::Rmdir, Errno::INVAL))
    }

    fn readdir(&self, path: &Path, each: &mut dyn FnMut(ListedEntry<'_>)) -> Result<(), FsError> {
        let mut begun = false;
        self.attempt(FsOp::Readdir, path, |trust| {
            // What was handed over cannot be taken back.
            if std::mem::replace(&mut begun, false) {
                return Err(Fail::of(Status::STALE));
            }
            self.list(path, trust, &mut begun, each)
        })
    }

    fn stat(&self, path: &Path) -> Result<Attributes, FsError> {
        self.attempt(FsOp::Stat, path, |trust| {
            let found = self.walk(path, Last::Keep, trust)?;
            found.attributes.map_or_else(|| self.getattr(&found.handle), Ok)
        })
    }

    fn statfs(&self) -> Result<Fsstat, FsError> {
        self.attempt(FsOp::Statfs, Path::new(""), |_| {
            self.shared.calls.call(&Request::Fsstat { root: self.root.by_ref() }, |reply| match reply {
                Reply::Fsstat { stat, .. } => Some(stat),
                _ => None,
            })
        })
    }

    fn sync_dir(&self, path: &Path) -> Result<(), FsError> {
        // Names are durable once answered (RFC 1813, 4.8): all there is to do is to find the directory.
        self.attempt(FsOp::Sync, path, |trust| self.directory(path, trust).map(drop))
    }

    fn below(&self, path: &Path) -> Result<Arc<dyn FileSystem>, FsError> {
        let root = self.attempt(FsOp::Open, path, |trust| self.directory(path, trust))?;
        Ok(Arc::new(Self { shared: Arc::clone(&self.shared), root, below: self.below.join(path) }))
    }

    fn below_itself(&self, path: &Path) -> Result<Arc<dyn FileSystem>, FsError> {
        let root = self.attempt(FsOp::Open, path, |trust| {
            let found = self.walk(path, Last::Keep, trust)?;
            if found.kind == FileKind::Directory { Ok(found.handle) } else { Err(Fail::Os(Errno::NOTDIR)) }
        })?;
        Ok(Arc::new(Self { shared: Arc::clone(&self.shared), root, below: self.below.join(path) }))
    }

    fn make_own(&self, path: &Path) -> Result<Arc<dyn FileSystem>, FsError> {
        self.mkdir(path)?;
        self.below_itself(path)
    }

    fn own(&self, path: &Path) -> Result<Arc<dyn FileSystem>, FsError> {
        self.below_itself(path)
    }

    fn place(&self) -> String {
        let mut target = self.shared.target.clone();
        target.export = Path::new(&target.export).join(&self.below).to_string_lossy().into_owned();
        target.to_string()
    }

    fn local_root(&self) -> Option<&Path> {
        None
    }

    fn client_counts(&self) -> Vec<(String, u64)> {
        self.counters().named().into_iter().map(|(name, count)| (format!("nfs_{name}"), count)).collect()
    }
}

impl NfsFs {
    fn directory(&self, path: &Path, trust: Trust) -> Result<Handle, Fail> {
        let found = self.walk(path, Last::Follow, trust)?;
        if found.kind == FileKind::Directory { Ok(found.handle) } else { Err(Fail::Os(Errno::NOTDIR)) }
    }
}
