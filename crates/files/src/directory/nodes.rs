//! From a handle to the object: by a kept descriptor, or from the parent by name, step by step.
//!
//! Every step opens one name below an open directory with `O_NOFOLLOW` and compares device, inode and birth
//! time, so no symlink and no `..` is ever walked. When an object is not where it was seen last, its other
//! places are tried while its parent's names are held still; when it is at none of them, it is gone.
//!
//! Locks, in order: `name_locks` (two at most, by index), then the table's or a shard's.
//! `name_locks` are held across the system calls that change names, as the kernel holds the directory's own
//! lock: otherwise table and directory could disagree about which object a name meant. A caller that holds one
//! finds no objects meanwhile: a search takes them too.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::fs::{AtFlags, Mode, OFlags, Statx, openat, statx};
use rustix::io::Errno;

use super::attributes::{Identity, STAT_MASK, kind_of};
use super::descriptors::Descriptors;
use super::table::{Known, Node, Place, ROOT, Table};
use crate::{FileKind, HandleRef, Status};

/// Deeper than any path that a program can name (`PATH_MAX` / 2), and small enough to bound a walk.
const DEPTH_MAX: usize = 2048;
const NAME_LOCKS: usize = 64;
/// A search may need another for the parent. Places noted before moves from outside can lead in a circle.
const SEARCHES_MAX: u8 = 4;

pub(super) const NO_FOLLOW: AtFlags = AtFlags::SYMLINK_NOFOLLOW.union(AtFlags::NO_AUTOMOUNT);

/// A regular file, opened for reading, writing or both.
pub(super) struct OpenFile {
    pub fd: OwnedFd,
    pub readable: bool,
    pub writable: bool,
}

/// What to open a file for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Read,
    Write,
}

/// The objects of an export and the descriptors kept to them.
pub(super) struct Nodes {
    pub table: Table,
    root: Arc<OwnedFd>,
    dirs: Descriptors<OwnedFd>,
    files: Descriptors<OpenFile>,
    name_locks: [Mutex<()>; NAME_LOCKS],
}

impl Nodes {
    pub(super) fn new(root: OwnedFd, instance: u64, descriptors_max: usize) -> Result<Self, Errno> {
        let stat = stat_fd(root.as_fd())?;
        Ok(Self {
            table: Table::new(instance, Identity::of(&stat)),
            root: Arc::new(root),
            dirs: Descriptors::new(descriptors_max / 4),
            files: Descriptors::new(descriptors_max - descriptors_max / 4),
            name_locks: std::array::from_fn(|_| Mutex::new(())),
        })
    }

    pub(super) fn root_fd(&self) -> BorrowedFd<'_> {
        self.root.as_fd()
    }

    /// Holds the names of one directory still.
    pub(super) fn hold(&self, dir: Node) -> MutexGuard<'_, ()> {
        self.name_locks[lock_of(dir)].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds the names of two directories still; they may be the same.
    pub(super) fn hold_both(&self, a: Node, b: Node) -> (MutexGuard<'_, ()>, Option<MutexGuard<'_, ()>>) {
        let (low, high) = (lock_of(a).min(lock_of(b)), lock_of(a).max(lock_of(b)));
        let lock = |at: usize| self.name_locks[at].lock().unwrap_or_else(PoisonError::into_inner);
        (lock(low), (high != low).then(|| lock(high)))
    }

    /// An open directory for a handle.
    pub(super) fn dir(&self, handle: HandleRef<'_>) -> Result<(Node, Arc<OwnedFd>), Status> {
        let (node, known) = self.table.node(handle)?;
        match known.kind {
            FileKind::Directory => Ok((node, self.dir_fd(node)?)),
            _ => Err(Status::NOTDIR),
        }
    }

    /// An open descriptor (`O_PATH`) of a directory.
    pub(super) fn dir_fd(&self, node: Node) -> Result<Arc<OwnedFd>, Status> {
        self.dir_fd_within(node, 0)
    }

    fn dir_fd_within(&self, node: Node, searches: u8) -> Result<Arc<OwnedFd>, Status> {
        if let Some(fd) = self.kept_dir(node) {
            return Ok(fd);
        }
        // Up to the nearest kept ancestor, then down again.
        let mut chain = vec![node];
        let mut fd = loop {
            let last = chain[chain.len() - 1];
            if let Some(fd) = self.kept_dir(last) {
                chain.pop();
                break fd;
            }
            if chain.len() == DEPTH_MAX {
                return Err(Status::NAMETOOLONG);
            }
            chain.push(self.table.first_place(last, &mut [0; 255])?.0);
        };
        while let Some(child) = chain.pop() {
            fd = self.open_dir_in(fd.as_fd(), child, searches)?;
        }
        Ok(fd)
    }

    fn kept_dir(&self, node: Node) -> Option<Arc<OwnedFd>> {
        if node == ROOT { Some(Arc::clone(&self.root)) } else { self.dirs.find(node) }
    }

    fn open_dir_in(&self, parent: BorrowedFd<'_>, node: Node, searches: u8) -> Result<Arc<OwnedFd>, Status> {
        let known = self.table.known(node)?;
        let mut name = [0; 255];
        let (_, len) = self.table.first_place(node, &mut name)?;
        let fd = match open_same(parent, &name[..len], PATH_DIR, known.identity)? {
            Some(fd) => fd,
            None => {
                let attempt =
                    |dir: BorrowedFd<'_>, name: &[u8]| open_same(dir, name, PATH_DIR, known.identity);
                self.search(node, &attempt, searches)?
            }
        };
        let fd = Arc::new(fd);
        self.dirs.keep(node, Arc::clone(&fd));
        Ok(fd)
    }

    /// Does something to an object by way of its parent and name. `attempt` returns `None` when another
    /// object has that name.
    pub(super) fn at_place<T>(
        &self,
        node: Node,
        attempt: impl Fn(BorrowedFd<'_>, &[u8]) -> Result<Option<T>, Status>,
    ) -> Result<T, Status> {
        let mut name = [0; 255];
        let (parent, len) = self.table.first_place(node, &mut name)?;
        // The parent itself may be gone while the object lives on under another one.
        let found = match self.dir_fd(parent) {
            Ok(dir) => attempt(dir.as_fd(), &name[..len])?,
            Err(Status::STALE) => None,
            Err(other) => return Err(other),
        };
        match found {
            Some(found) => Ok(found),
            None => self.search(node, &attempt, 0),
        }
    }

    /// Tries each place of an object with its parent's names held still.
    fn search<T>(
        &self,
        node: Node,
        attempt: &impl Fn(BorrowedFd<'_>, &[u8]) -> Result<Option<T>, Status>,
        searches: u8,
    ) -> Result<T, Status> {
        if node == ROOT || searches > SEARCHES_MAX {
            return Err(Status::STALE);
        }
        let mut tried: Vec<Place> = Vec::new();
        // A rename may move the object while its places are tried; each round tries one that is new.
        for _ in 0..64 {
            let places = self.table.places(node)?;
            let Some(place) = places.into_iter().find(|place| !tried.contains(place)) else {
                tracing::debug!(?node, "an object is at none of its places: removed or moved from outside");
                if searches == 0 {
                    self.forget(node);
                }
                return Err(Status::STALE);
            };
            match self.dir_fd_within(place.parent, searches + 1) {
                Ok(dir) => {
                    let _held = self.hold(place.parent);
                    if !self.table.places(node)?.contains(&place) {
                        continue;
                    }
                    if let Some(found) = attempt(dir.as_fd(), &place.name)? {
                        self.table.promote(node, &place);
                        return Ok(found);
                    }
                }
                Err(Status::STALE) => {}
                Err(other) => return Err(other),
            }
            tried.push(place);
        }
        Err(Status::JUKEBOX)
    }

    /// Attributes of an object: one system call when its parent or itself is kept open.
    pub(super) fn stat(&self, node: Node, known: &Known) -> Result<Statx, Status> {
        let kept = match known.kind {
            FileKind::Directory => match self.kept_dir(node) {
                Some(fd) => Some(stat_fd(fd.as_fd())?),
                None => None,
            },
            FileKind::Regular => match self.files.find(node) {
                Some(file) => Some(stat_fd(file.fd.as_fd())?),
                None => None,
            },
            _ => None,
        };
        match kept {
            Some(stat) => self.alive(node, stat),
            None => self.at_place(node, |dir, name| stat_same(dir, name, known.identity)),
        }
    }

    /// A kept descriptor outlives the object's last name; its handle does not.
    pub(super) fn alive(&self, node: Node, stat: Statx) -> Result<Statx, Status> {
        if stat.stx_nlink == 0 {
            self.forget(node);
            return Err(Status::STALE);
        }
        Ok(stat)
    }

    pub(super) fn file(&self, handle: HandleRef<'_>, wanted: Use) -> Result<(Node, Arc<OpenFile>), Status> {
        let (node, known) = self.table.node(handle)?;
        Ok((node, self.open_file(node, &known, wanted)?))
    }

    pub(super) fn open_file(&self, node: Node, known: &Known, wanted: Use) -> Result<Arc<OpenFile>, Status> {
        match known.kind {
            FileKind::Regular => {}
            FileKind::Directory => return Err(Status::ISDIR),
            _ => return Err(Status::INVAL),
        }
        let kept = self.files.find(node);
        if let Some(kept) = &kept
            && (if wanted == Use::Write { kept.writable } else { kept.readable })
        {
            return Ok(Arc::clone(kept));
        }
        let flags = match (wanted, kept) {
            (Use::Read, None) => OFlags::RDONLY,
            _ => OFlags::RDWR,
        };
        let flags = flags | SAFE_OPEN;
        let open = |flags| {
            self.at_place(node, |dir, name| match open_same(dir, name, flags, known.identity)? {
                Some(fd) => Ok(Some(OpenFile {
                    fd,
                    readable: !flags.contains(OFlags::WRONLY),
                    writable: flags.intersects(OFlags::WRONLY | OFlags::RDWR),
                })),
                None => Ok(None),
            })
        };
        let only = if wanted == Use::Write { OFlags::WRONLY } else { OFlags::RDONLY };
        let file = match open(flags) {
            Err(Status::ACCES | Status::IO) if flags.contains(OFlags::RDWR) => open(SAFE_OPEN | only)?,
            other => other?,
        };
        let file = Arc::new(file);
        self.files.keep(node, Arc::clone(&file));
        Ok(file)
    }

    /// Keeps a file's descriptor from its creation: it may be written even when its mode forbids opening it.
    pub(super) fn keep_file(&self, node: Node, fd: OwnedFd) {
        self.files.keep(node, Arc::new(OpenFile { fd, readable: true, writable: true }));
    }

    /// An `O_PATH` descriptor of an object of any kind.
    pub(super) fn path_fd(&self, node: Node, known: &Known) -> Result<Arc<OwnedFd>, Status> {
        match known.kind {
            FileKind::Directory => self.dir_fd(node),
            _ => {
                self.at_place(node, |dir, name| open_same(dir, name, PATH_ANY, known.identity)).map(Arc::new)
            }
        }
    }

    /// Closes what is kept of an object.
    pub(super) fn close(&self, node: Node) {
        self.dirs.drop_node(node);
        self.files.drop_node(node);
    }

    pub(super) fn forget(&self, node: Node) {
        self.close(node);
        self.table.forget(node);
    }
}

fn lock_of(dir: Node) -> usize {
    dir.slot as usize % NAME_LOCKS
}

const SAFE_OPEN: OFlags =
    OFlags::NOFOLLOW.union(OFlags::NONBLOCK).union(OFlags::NOCTTY).union(OFlags::CLOEXEC);
const PATH_ANY: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const PATH_DIR: OFlags = PATH_ANY.union(OFlags::DIRECTORY);

pub(super) fn stat_fd(fd: BorrowedFd<'_>) -> Result<Statx, Errno> {
    statx(fd, c"", AtFlags::EMPTY_PATH, STAT_MASK)
}

/// Attributes of the object `name` in `dir`, unless it is another one or not there.
pub(super) fn stat_same(
    dir: BorrowedFd<'_>,
    name: &[u8],
    identity: Identity,
) -> Result<Option<Statx>, Status> {
    match statx(dir, name, NO_FOLLOW, STAT_MASK) {
        Ok(stat) => Ok((Identity::of(&stat) == identity).then_some(stat)),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

fn open_same(
    dir: BorrowedFd<'_>,
    name: &[u8],
    flags: OFlags,
    identity: Identity,
) -> Result<Option<OwnedFd>, Status> {
    let fd = match openat(dir, name, flags, Mode::empty()) {
        Ok(fd) => fd,
        // Not there, or meanwhile a symlink, a socket, or a directory.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NXIO | Errno::ISDIR) => return Ok(None),
        // A running program cannot be opened for writing.
        Err(Errno::TXTBSY) => return Err(Status::ACCES),
        // The file system is mounted read-only: reading may go on.
        Err(Errno::ROFS) => return Err(Status::ROFS),
        Err(errno) => return Err(errno.into()),
    };
    let stat = stat_fd(fd.as_fd())?;
    debug_assert!(kind_of(&stat) != FileKind::Symlink || flags.contains(OFlags::PATH));
    Ok((Identity::of(&stat) == identity).then_some(fd))
}
