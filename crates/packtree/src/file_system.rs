//! The tree as a [`FileSystem`]: paths walked, what is refused, views that begin at a directory.
//!
//! Always holds: a path never leads out of the tree; a call that changed something returns after the kernel has it.
//! Not here: calls by inode number with all attributes (`nodes`), locks between processes.

mod flusher;
mod opened;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::{Disk, DiskError};
use files::{
    Access, Attributes, FileKind, FileSystem, FsError, FsOp, Fsstat, ListedEntry, NodeTime, OpenFile, Status,
};

use crate::creation;
use crate::engine::{Engine, State};
use crate::error::{Refusal, TreeError};
use crate::format::{BLOCK_BYTES, NodeKind, Owner, Record};
use crate::nodes::TreeNodes;
use crate::opening::{self, Opening};
use crate::options::TreeOptions;
use crate::replay::TreeFault;
use crate::requests::Answering;
use crate::table::{Body, Dangling, Inode, Kind, Listed, Name, Node, ROOT, Walked};
use crate::time::now;
use crate::version1;

use flusher::Flusher;
use opened::{How, TreeFile};

/// Longest text of a symbolic link.
pub(crate) const LINK_BYTES_MAX: usize = 4095;
/// Names of one file at most.
pub(crate) const LINKS_MAX: u32 = 65_000;
/// Names of a listing that are looked up at once.
const LISTED_AT_ONCE: usize = 1024;

/// A tree, or a directory in it, as a [`FileSystem`]. It is closed when the last view and open file are gone.
pub struct PackTree {
    pub(crate) tree: Arc<Opened>,
    pub(crate) root: Inode,
    /// Of the root, from the tree on.
    below: PathBuf,
    local: Option<PathBuf>,
}

/// What all views share.
pub(crate) struct Opened {
    pub engine: Arc<Engine>,
    flusher: Option<Flusher>,
    place: PathBuf,
    faults: Vec<TreeFault>,
    unwritable: Option<DiskError>,
    pub fsid: u64,
    /// Of what is made by path, or without an owner: this process's.
    pub owner: Owner,
    pub answering: Answering,
    closed: bool,
}

impl PackTree {
    /// Makes an empty tree.
    ///
    /// # Errors
    /// When the directory is not empty, or the disk is full. What an unfinished creation left is taken up.
    pub fn create(disk: &dyn Disk, options: &TreeOptions) -> Result<(), TreeError> {
        creation::create(disk, options)
    }

    /// Opens a tree. `place` is how a user knows it. One that is damaged is opened to be read: see [`PackTree::faults`]; so is one that
    /// may not be written, or on a disk without room for a journal: see [`PackTree::unwritable`].
    ///
    /// # Errors
    /// When there is no tree, another process uses it, or the disk cannot be read.
    pub fn open(
        disk: Arc<dyn Disk>,
        options: &TreeOptions,
        place: impl Into<PathBuf>,
    ) -> Result<Self, TreeError> {
        Self::of(opening::open(disk, options)?, options, place)
    }

    /// Opens a tree to be read: nothing is written, and others may read it meanwhile.
    ///
    /// # Errors
    /// As [`PackTree::open`].
    pub fn open_to_read(
        disk: Arc<dyn Disk>,
        options: &TreeOptions,
        place: impl Into<PathBuf>,
    ) -> Result<Self, TreeError> {
        Self::of(opening::open_to_read(disk, options)?, options, place)
    }

    /// Opens the new tree that a copy is to be written into, between [`crate::begin_copy`] and [`crate::end_copy`].
    ///
    /// # Errors
    /// As [`PackTree::open`].
    pub fn open_to_copy(
        disk: Arc<dyn Disk>,
        options: &TreeOptions,
        place: impl Into<PathBuf>,
    ) -> Result<Self, TreeError> {
        Self::of(opening::open_to_copy(disk, options)?, options, place)
    }

    fn of(opening: Opening, options: &TreeOptions, place: impl Into<PathBuf>) -> Result<Self, TreeError> {
        let Opening { engine, faults, unwritable } = opening;
        let fsid = (engine.shape.id >> 64) as u64 ^ engine.shape.id as u64;
        let engine = Arc::new(engine);
        let flusher = match options.flush_every {
            Some(every) if !engine.read_only => {
                engine.start_workers()?;
                Some(Flusher::start(engine.clone(), every)?)
            }
            _ => None,
        };
        engine.merge_when_due();
        let owner = version1::own();
        let place = place.into();
        let answering = Answering::new();
        let tree =
            Opened { engine, flusher, place, faults, unwritable, fsid, owner, answering, closed: false };
        Ok(Self { tree: Arc::new(tree), root: ROOT, below: PathBuf::new(), local: None })
    }

    /// Says in which directory of this machine the tree is: device counters are found by it. The files are not there.
    #[must_use]
    pub fn lying_at(mut self, directory: PathBuf) -> Self {
        self.local = Some(directory);
        self
    }

    /// What is damaged, as far as opening noticed. If anything is, the tree can only be read.
    pub fn faults(&self) -> &[TreeFault] {
        &self.tree.faults
    }

    /// Why nothing can be written, where the storage or a permission forbids it.
    pub fn unwritable(&self) -> Option<&DiskError> {
        self.tree.unwritable.as_ref()
    }

    /// The tree by inode numbers, with all attributes, from its root.
    pub fn nodes(&self) -> TreeNodes {
        TreeNodes::new(self.tree.clone())
    }

    /// Syncs of the disk since it was opened, for all who asked together.
    pub fn syncs(&self) -> u64 {
        self.engine().syncs()
    }

    /// Makes everything durable and closes the tree, if this is the last view of it.
    ///
    /// # Errors
    /// When that fails: what was synced before is there.
    pub fn close(self) -> Result<(), TreeError> {
        let tree = self.tree.clone();
        drop(self);
        match Arc::into_inner(tree) {
            Some(mut tree) => tree.end(),
            None => Ok(()),
        }
    }

    /// The same tree with its root at the directory `path`, which is held.
    ///
    /// # Errors
    /// `NOENT`, `NOTDIR`, …
    pub fn view(&self, path: &Path) -> Result<Self, FsError> {
        let root = self.engine().look_mut(|state| {
            let root = state.table.walk_to_directory(self.root, path)?;
            state.table.hold(root);
            Ok(root)
        });
        let root = root.map_err(|refusal| self.refused(FsOp::Open, path, refusal))?;
        let (tree, below, local) = (self.tree.clone(), self.below.join(path), self.local.clone());
        Ok(Self { tree, root, below, local })
    }

    fn engine(&self) -> &Engine {
        &self.tree.engine
    }

    fn path(&self, path: &Path) -> PathBuf {
        self.tree.place.join(&self.below).join(path.strip_prefix("/").unwrap_or(path))
    }

    pub(crate) fn refused_write(&self, path: &Path, refusal: Refusal) -> FsError {
        self.refused(FsOp::Write, path, refusal)
    }

    fn refused(&self, op: FsOp, path: &Path, refusal: impl Into<Refusal>) -> FsError {
        failed(op, self.path(path), refusal.into())
    }

    fn change<T>(
        &self,
        op: FsOp,
        path: &Path,
        make: impl FnMut(&mut State) -> Result<T, Refusal>,
    ) -> Result<T, FsError> {
        self.engine().change(make).map_err(|refusal| self.refused(op, path, refusal))
    }

    /// Makes an inode with its first name.
    fn make(
        &self,
        op: FsOp,
        path: &Path,
        mode: u16,
        kind: &NodeKind,
        is_open: bool,
    ) -> Result<Inode, FsError> {
        let (time, owner) = (now(), self.tree.owner);
        self.change(op, path, |state| {
            let Name { directory, name } = vacant(state, self.root, path)?;
            let inode = state.table.next_inode;
            state.commit(&Record::Make { time, directory, name, inode, mode, owner, kind: kind.clone() })?;
            if is_open {
                state.table.hold(inode);
            }
            Ok(inode)
        })
    }

    fn file(&self, inode: Inode, path: &Path, how: How) -> Box<dyn OpenFile> {
        Box::new(TreeFile::new(self.tree.clone(), inode, how, self.path(path)))
    }
}

/// Where a name that is to be new goes.
fn vacant(state: &State, root: Inode, path: &Path) -> Result<Name, Refusal> {
    match state.table.walk(root, path, false)? {
        Walked::Missing(name) => Ok(name),
        Walked::Root(_) | Walked::Found(..) => Err(Status::EXIST.into()),
    }
}

impl FileSystem for PackTree {
    fn create(&self, path: &Path) -> Result<Box<dyn OpenFile>, FsError> {
        let inode = self.make(FsOp::Create, path, 0o644, &NodeKind::File, true)?;
        Ok(self.file(inode, path, How::Made))
    }

    fn open(&self, path: &Path, access: Access) -> Result<Box<dyn OpenFile>, FsError> {
        let read_only = self.engine().read_only;
        let opened = self.engine().look_mut(|state| {
            let inode = match state.table.walk(self.root, path, true)? {
                Walked::Found(_, inode) => inode,
                Walked::Root(_) => return Err(Status::ISDIR.into()),
                Walked::Missing(_) => return Err(Status::NOENT.into()),
            };
            if access != Access::Read && read_only {
                return Err(Status::ROFS.into());
            }
            let node = state.table.node(inode)?.ok_or(Status::IO)?;
            match node.kind() {
                Kind::File => state.table.hold(inode),
                Kind::Directory | Kind::Symlink => return Err(Status::ISDIR.into()),
                _ => return Err(Status::NXIO.into()),
            }
            Ok(inode)
        });
        let inode = opened.map_err(|refusal| self.refused(FsOp::Open, path, refusal))?;
        Ok(self.file(inode, path, How::Opened(access)))
    }

    fn link(&self, existing: &Path, new: &Path) -> Result<(), FsError> {
        let time = now();
        self.change(FsOp::Link, new, |state| {
            let inode = match state.table.walk(self.root, existing, false)? {
                Walked::Found(_, inode) => inode,
                Walked::Root(_) => return Err(Status::PERM.into()),
                Walked::Missing(_) => return Err(Status::NOENT.into()),
            };
            let node = state.table.node(inode)?.ok_or(Status::IO)?;
            if node.is_directory() {
                return Err(Status::PERM.into());
            }
            if node.links >= LINKS_MAX {
                return Err(Status::MLINK.into());
            }
            let Name { directory, name } = vacant(state, self.root, new)?;
            state.commit(&Record::Link { time, directory, name, inode }).map(drop)
        })
    }

    fn symlink(&self, target: &Path, path: &Path) -> Result<(), FsError> {
        let text = target.as_os_str().as_encoded_bytes();
        let wrong = match text.len() {
            0 => Some(Status::NOENT),
            _ if text.contains(&0) => Some(Status::INVAL),
            length => (length > LINK_BYTES_MAX).then_some(Status::NAMETOOLONG),
        };
        if let Some(status) = wrong {
            return Err(self.refused(FsOp::Symlink, path, status));
        }
        self.make(FsOp::Symlink, path, 0o777, &NodeKind::Symlink(text.into()), false).map(drop)
    }

    fn readlink(&self, path: &Path) -> Result<PathBuf, FsError> {
        let read = self.engine().look(|state| {
            let inode = match state.table.walk(self.root, path, false)? {
                Walked::Root(_) => return Err(Status::INVAL.into()),
                Walked::Missing(_) => return Err(Status::NOENT.into()),
                Walked::Found(_, inode) => inode,
            };
            match state.table.node(inode)?.as_deref() {
                Some(Node { body: Body::Symlink(text), .. }) => Ok(OsString::from_vec(text.to_vec()).into()),
                _ => Err(Status::INVAL.into()),
            }
        });
        read.map_err(|refusal| self.refused(FsOp::Readlink, path, refusal))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), FsError> {
        let time = now();
        let renamed = self.engine().change(|state| rename(state, self.root, from, to, time));
        renamed.map_err(|refusal| {
            // Both names: either may be what is wrong.
            let both = format!("{} -> {}", self.path(from).display(), self.path(to).display());
            failed(FsOp::Rename, both.into(), refusal)
        })
    }

    fn unlink(&self, path: &Path) -> Result<(), FsError> {
        self.remove(FsOp::Unlink, path)
    }

    fn mkdir(&self, path: &Path) -> Result<(), FsError> {
        self.make(FsOp::Mkdir, path, 0o755, &NodeKind::Directory, false).map(drop)
    }

    fn rmdir(&self, path: &Path) -> Result<(), FsError> {
        self.remove(FsOp::Rmdir, path)
    }

    fn readdir(&self, path: &Path, each: &mut dyn FnMut(ListedEntry<'_>)) -> Result<(), FsError> {
        let refused = |refusal| self.refused(FsOp::Readdir, path, refusal);
        let directory = self.engine().look(|state| state.table.walk_to_directory(self.root, path));
        let directory = directory.map_err(refused)?;
        let mut after: Box<[u8]> = [].into();
        let mut damaged = None;
        loop {
            // Copies: the listener may call the file system itself.
            let listed = self.engine().look(|state| state.table.list(directory, &after, LISTED_AT_ONCE));
            let Listed { names, is_end, damaged: lost } = listed.map_err(refused)?;
            for (name, named) in &names {
                each(ListedEntry { name, fileid: named.inode });
            }
            damaged = damaged.or(lost);
            if let Some((last, _)) = names.into_iter().next_back() {
                after = last;
            }
            if is_end {
                // What can be read was listed; and it is reported that it was not all.
                return damaged.map_or(Ok(()), |lost| Err(refused(lost)));
            }
        }
    }

    fn stat(&self, path: &Path) -> Result<Attributes, FsError> {
        let found = self.engine().look(|state| {
            let inode = match state.table.walk(self.root, path, false)? {
                Walked::Found(_, inode) | Walked::Root(inode) => inode,
                Walked::Missing(_) => return Err(Status::NOENT.into()),
            };
            Ok((inode, state.table.node(inode)?.ok_or(Status::IO)?))
        });
        let (inode, node) = found.map_err(|refusal| self.refused(FsOp::Stat, path, refusal))?;
        Ok(attributes(inode, &node, self.tree.fsid))
    }

    fn statfs(&self) -> Result<Fsstat, FsError> {
        let room = self.engine().disk.room();
        let room = room.map_err(|error| self.refused(FsOp::Statfs, Path::new(""), error))?;
        let holes = self.engine().hole_bytes();
        let holes = holes.map_err(|error| self.refused(FsOp::Statfs, Path::new(""), error))?;
        let (free, names) = {
            let state = self.engine().read();
            (state.space.free_bytes().saturating_sub(holes), state.table.inodes)
        };
        let bytes_free = (room.free_bytes + free).min(room.total_bytes);
        // An inode takes a block and a record of its name at least.
        let files_free = bytes_free / (2 * BLOCK_BYTES);
        Ok(Fsstat {
            bytes_total: room.total_bytes,
            bytes_free,
            bytes_available: bytes_free,
            files_total: names + files_free,
            files_free,
            files_available: files_free,
            stable_s: 0,
        })
    }

    fn has_room_of_its_own(&self) -> bool {
        true
    }

    fn sync_dir(&self, path: &Path) -> Result<(), FsError> {
        let found = self.engine().look(|state| state.table.walk_to_directory(self.root, path));
        found.map_err(|refusal| self.refused(FsOp::Sync, path, refusal))?;
        self.engine().sync().map_err(|error| self.refused(FsOp::Sync, path, error))
    }

    fn sync_all(&self) -> Result<(), FsError> {
        self.engine().sync().map_err(|error| self.refused(FsOp::Sync, Path::new(""), error))
    }

    fn below(&self, path: &Path) -> Result<Arc<dyn FileSystem>, FsError> {
        Ok(Arc::new(self.view(path)?))
    }

    fn below_itself(&self, path: &Path) -> Result<Arc<dyn FileSystem>, FsError> {
        if self.stat(path)?.kind != FileKind::Directory {
            return Err(self.refused(FsOp::Open, path, Status::NOTDIR));
        }
        self.below(path)
    }

    fn make_own(&self, path: &Path) -> Result<Arc<dyn FileSystem>, FsError> {
        self.mkdir(path)?;
        self.below_itself(path)
    }

    fn own(&self, path: &Path) -> Result<Arc<dyn FileSystem>, FsError> {
        self.below_itself(path)
    }

    fn place(&self) -> String {
        self.path(Path::new("")).display().to_string()
    }

    fn local_root(&self) -> Option<&Path> {
        self.local.as_deref()
    }
}

impl PackTree {
    /// Takes away the name of a file or link, or an empty directory.
    fn remove(&self, op: FsOp, path: &Path) -> Result<(), FsError> {
        let time = now();
        self.change(op, path, |state| {
            let (Name { directory, name }, inode) = match state.table.walk(self.root, path, false)? {
                Walked::Found(name, inode) => (name, inode),
                Walked::Missing(_) => return Err(Status::NOENT.into()),
                Walked::Root(_) if op == FsOp::Unlink => return Err(Status::ISDIR.into()),
                Walked::Root(_) => return Err(Status::INVAL.into()),
            };
            let node = state.table.node(inode)?.ok_or(Status::IO)?;
            removable(&node, op == FsOp::Rmdir)?;
            state.commit(&Record::Unlink { time, directory, name }).map(drop)
        })
    }
}

/// Whether a name of this inode can be removed, as a directory or as anything else.
pub(crate) fn removable(node: &Node, as_directory: bool) -> Result<(), Status> {
    match (as_directory, &node.body) {
        (false, Body::Directory(_)) => Err(Status::ISDIR),
        (true, Body::Directory(found)) if found.names > 0 => Err(Status::NOTEMPTY),
        (true, Body::File(_) | Body::Symlink(_) | Body::Special(_)) => Err(Status::NOTDIR),
        _ => Ok(()),
    }
}

/// As rename(2).
fn rename(state: &mut State, root: Inode, from: &Path, to: &Path, time: i64) -> Result<(), Refusal> {
    let (old, inode) = match state.table.walk(root, from, false)? {
        Walked::Found(name, inode) => (name, inode),
        Walked::Root(_) => return Err(Status::INVAL.into()),
        Walked::Missing(_) => return Err(Status::NOENT.into()),
    };
    let (new, replaced) = match state.table.walk(root, to, false)? {
        Walked::Missing(name) => (name, None),
        Walked::Found(name, replaced) => (name, Some(replaced)),
        Walked::Root(_) => return Err(Status::INVAL.into()),
    };
    if replaced == Some(inode) {
        return Ok(());
    }
    renamable(state, inode, new.directory, replaced)?;
    let record =
        Record::Rename { time, from: old.directory, old: old.name, to: new.directory, new: new.name };
    state.commit(&record).map(drop)
}

/// Whether an inode can be moved into this directory, over what is there.
pub(crate) fn renamable(
    state: &State,
    inode: Inode,
    to: Inode,
    replaced: Option<Inode>,
) -> Result<(), Refusal> {
    let is_directory = state.table.directory(inode)?.is_some();
    if is_directory && state.table.is_below(to, inode)? {
        return Err(Status::INVAL.into());
    }
    let Some(replaced) = replaced else { return Ok(()) };
    let over = state.table.node(replaced)?.ok_or(Status::IO)?;
    match over.as_directory() {
        Some(_) if !is_directory => Err(Status::ISDIR.into()),
        Some(over) if over.names > 0 => Err(Status::NOTEMPTY.into()),
        None if is_directory => Err(Status::NOTDIR.into()),
        _ => Ok(()),
    }
}

pub(crate) fn attributes(inode: Inode, node: &Node, fsid: u64) -> Attributes {
    let (links, size, used) = match &node.body {
        Body::Directory(directory) => (2 + directory.subdirectories, directory.names, 0),
        Body::Symlink(text) => (node.links, text.len() as u64, 0),
        Body::Special(_) => (node.links, 0, 0),
        Body::File(content) => (node.links, content.size, content.used_bytes()),
    };
    let device = match &node.body {
        Body::Special(special) => (special.major, special.minor),
        _ => (0, 0),
    };
    Attributes {
        kind: file_kind(node.kind()),
        mode: node.mode.into(),
        links,
        uid: node.owner.uid,
        gid: node.owner.gid,
        size,
        used,
        device,
        fsid,
        fileid: inode,
        atime: node_time(node.atime),
        mtime: node_time(node.mtime),
        ctime: node_time(node.ctime),
    }
}

/// Times before 1970 and after 2106 are shown as those: the seam has no others.
fn node_time(time: i64) -> NodeTime {
    const SECOND_NS: i64 = 1_000_000_000;
    let time = time.max(0);
    let seconds = u32::try_from(time / SECOND_NS).unwrap_or(u32::MAX);
    NodeTime { s: seconds, ns: (time % SECOND_NS) as u32 }
}

pub(crate) fn file_kind(kind: Kind) -> FileKind {
    match kind {
        Kind::File => FileKind::Regular,
        Kind::Directory => FileKind::Directory,
        Kind::Symlink => FileKind::Symlink,
        Kind::CharDevice => FileKind::CharDevice,
        Kind::BlockDevice => FileKind::BlockDevice,
        Kind::Fifo => FileKind::Fifo,
        Kind::Socket => FileKind::Socket,
    }
}

impl Drop for PackTree {
    fn drop(&mut self) {
        if !self.below.as_os_str().is_empty() || self.root != ROOT {
            self.tree.engine.let_go(self.root);
        }
    }
}

impl Opened {
    fn end(&mut self) -> Result<(), TreeError> {
        if let Some(flusher) = self.flusher.take() {
            flusher.stop();
        }
        self.engine.stop_workers();
        match std::mem::replace(&mut self.closed, true) {
            true => Ok(()),
            false => opening::close(&self.engine),
        }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::warn!(place = %self.place.display(), error = error.with_cause(), "the tree was not closed cleanly");
        }
    }
}

/// A refusal on `path`.
fn failed(op: FsOp, path: PathBuf, refusal: Refusal) -> FsError {
    match refusal {
        Refusal::Status(status) => FsError::refused_here(op, path, status),
        Refusal::Room => FsError::refused_here(op, path, Status::NOSPC),
        Refusal::Dangling(Dangling { what, inode }) => {
            let place = path.display().to_string();
            let error = TreeError::Inconsistent { place, inode, what };
            FsError::Failed { op, path, status: Status::IO, source: Some(std::io::Error::other(error)) }
        }
        // It is read and looked at again before a call ends.
        Refusal::Block(block) => {
            let source = Some(std::io::Error::other(format!("{block:?} was not read")));
            FsError::Failed { op, path, status: Status::IO, source }
        }
        Refusal::Tree(error) => {
            let status = match &error {
                TreeError::Disk(disk) if disk.kind() == std::io::ErrorKind::StorageFull => Status::NOSPC,
                _ => Status::IO,
            };
            FsError::Failed { op, path, status, source: Some(std::io::Error::other(error)) }
        }
    }
}
