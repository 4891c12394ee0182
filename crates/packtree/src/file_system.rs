//! The tree as a [`FileSystem`]: paths walked, what is refused, views that begin at a directory.
//!
//! Always holds: a path never leads out of the tree; a call that changed something returns after the kernel has it.
//! Not here: owners (the process's own are reported), times of access, locks between processes.

mod flusher;
mod opened;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::Disk;
use files::{
    Access, Attributes, FileKind, FileSystem, FsError, FsOp, Fsstat, ListedEntry, NodeTime, OpenFile, Status,
};

use crate::engine::{Engine, State};
use crate::error::{Refusal, TreeError};
use crate::format::{BLOCK_BYTES, NodeKind, Record, blocks_of};
use crate::opening;
use crate::options::TreeOptions;
use crate::replay::TreeFault;
use crate::table::{Body, Inode, Name, Node, ROOT, Walked};
use crate::time::now;

use flusher::Flusher;
use opened::{How, TreeFile};

/// Longest text of a symbolic link.
const LINK_BYTES_MAX: usize = 4095;
/// Names of one file at most.
const LINKS_MAX: u32 = 65_000;

/// A tree, or a directory in it, as a [`FileSystem`]. It is closed when the last view and open file are gone.
pub struct PackTree {
    tree: Arc<Opened>,
    root: Inode,
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
    fsid: u64,
    closed: bool,
}

impl PackTree {
    /// Makes an empty tree.
    ///
    /// # Errors
    /// When the directory is not empty, or the disk is full.
    pub fn create(disk: &dyn Disk, options: &TreeOptions) -> Result<(), TreeError> {
        opening::create(disk, options)
    }

    /// Opens a tree. `place` is how a user knows it. One that is damaged is opened to be read: see [`PackTree::faults`].
    ///
    /// # Errors
    /// When there is no tree, another process uses it, or the disk cannot be read.
    pub fn open(
        disk: Arc<dyn Disk>,
        options: &TreeOptions,
        place: impl Into<PathBuf>,
    ) -> Result<Self, TreeError> {
        let (engine, faults) = opening::open(disk, false)?;
        let fsid = (engine.shape.id >> 64) as u64 ^ engine.shape.id as u64;
        let engine = Arc::new(engine);
        let flusher = match options.flush_every {
            Some(every) if !engine.read_only => Some(Flusher::start(engine.clone(), every)?),
            _ => None,
        };
        let tree = Opened { engine, flusher, place: place.into(), faults, fsid, closed: false };
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

    fn engine(&self) -> &Engine {
        &self.tree.engine
    }

    fn path(&self, path: &Path) -> PathBuf {
        self.tree.place.join(&self.below).join(path.strip_prefix("/").unwrap_or(path))
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
        holders: u32,
    ) -> Result<Inode, FsError> {
        let time = now();
        self.change(op, path, |state| {
            let Name { directory, name } = vacant(state, self.root, path)?;
            let inode = state.table.next_inode;
            state.commit(&Record::Make { time, directory, name, inode, mode, kind: kind.clone() })?;
            state.table.node_mut(inode).expect("made above").holders = holders;
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
        let inode = self.make(FsOp::Create, path, 0o644, &NodeKind::File, 1)?;
        Ok(self.file(inode, path, How::Made))
    }

    fn open(&self, path: &Path, access: Access) -> Result<Box<dyn OpenFile>, FsError> {
        let refused = |status: Status| self.refused(FsOp::Open, path, status);
        let mut state = self.engine().write();
        let inode = match state.table.walk(self.root, path, true).map_err(refused)? {
            Walked::Found(_, inode) => inode,
            Walked::Root(_) => return Err(refused(Status::ISDIR)),
            Walked::Missing(_) => return Err(refused(Status::NOENT)),
        };
        if access != Access::Read && self.engine().read_only {
            return Err(refused(Status::ROFS));
        }
        match state.table.node_mut(inode) {
            Some(node @ Node { body: Body::File(_), .. }) => node.holders += 1,
            _ => return Err(refused(Status::ISDIR)),
        }
        drop(state);
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
            let node = state.table.node(inode).ok_or(Status::IO)?;
            if matches!(node.body, Body::Directory(_)) {
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
        self.make(FsOp::Symlink, path, 0o777, &NodeKind::Symlink(text.into()), 0).map(drop)
    }

    fn readlink(&self, path: &Path) -> Result<PathBuf, FsError> {
        let state = self.engine().read();
        let walked = state.table.walk(self.root, path, false);
        let status = match walked.map_err(|status| self.refused(FsOp::Readlink, path, status))? {
            Walked::Root(_) => Status::INVAL,
            Walked::Missing(_) => Status::NOENT,
            Walked::Found(_, inode) => match state.table.node(inode).map(|node| &node.body) {
                Some(Body::Symlink(text)) => return Ok(OsString::from_vec(text.to_vec()).into()),
                _ => Status::INVAL,
            },
        };
        Err(self.refused(FsOp::Readlink, path, status))
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
        self.make(FsOp::Mkdir, path, 0o755, &NodeKind::Directory, 0).map(drop)
    }

    fn rmdir(&self, path: &Path) -> Result<(), FsError> {
        self.remove(FsOp::Rmdir, path)
    }

    fn readdir(&self, path: &Path, each: &mut dyn FnMut(ListedEntry<'_>)) -> Result<(), FsError> {
        // A copy: the listener may call the file system itself.
        let entries: Vec<(Box<[u8]>, Inode)> = {
            let state = self.engine().read();
            let directory = state.table.walk_to_directory(self.root, path);
            let directory = directory.map_err(|status| self.refused(FsOp::Readdir, path, status))?;
            let directory = state.table.directory(directory);
            directory.map(|found| found.entries.iter().map(|(name, inode)| (name.clone(), *inode)).collect())
        }
        .unwrap_or_default();
        for (name, fileid) in entries {
            each(ListedEntry { name: &name, fileid });
        }
        Ok(())
    }

    fn stat(&self, path: &Path) -> Result<Attributes, FsError> {
        let refused = |status: Status| self.refused(FsOp::Stat, path, status);
        let state = self.engine().read();
        let inode = match state.table.walk(self.root, path, false).map_err(refused)? {
            Walked::Found(_, inode) | Walked::Root(inode) => inode,
            Walked::Missing(_) => return Err(refused(Status::NOENT)),
        };
        let node = state.table.node(inode).ok_or_else(|| refused(Status::IO))?;
        Ok(attributes(inode, node, self.tree.fsid))
    }

    fn statfs(&self) -> Result<Fsstat, FsError> {
        let room = self.engine().disk.room();
        let room = room.map_err(|error| self.refused(FsOp::Statfs, Path::new(""), error))?;
        let (free, names) = {
            let state = self.engine().read();
            (state.space.free_bytes(), state.table.len() as u64)
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

    fn sync_dir(&self, path: &Path) -> Result<(), FsError> {
        let found = self.engine().read().table.walk_to_directory(self.root, path);
        found.map_err(|status| self.refused(FsOp::Sync, path, status))?;
        self.engine().sync().map_err(|error| self.refused(FsOp::Sync, path, error))
    }

    fn sync_all(&self) -> Result<(), FsError> {
        self.engine().sync().map_err(|error| self.refused(FsOp::Sync, Path::new(""), error))
    }

    fn below(&self, path: &Path) -> Result<Arc<dyn FileSystem>, FsError> {
        let mut state = self.engine().write();
        let root = state.table.walk_to_directory(self.root, path);
        let root = root.map_err(|status| self.refused(FsOp::Open, path, status))?;
        if let Some(node) = state.table.node_mut(root) {
            node.holders += 1;
        }
        drop(state);
        let (tree, below, local) = (self.tree.clone(), self.below.join(path), self.local.clone());
        Ok(Arc::new(Self { tree, root, below, local }))
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
            match (op, state.table.node(inode).map(|node| &node.body)) {
                (FsOp::Unlink, Some(Body::Directory(_))) => return Err(Status::ISDIR.into()),
                (FsOp::Rmdir, Some(Body::Directory(found))) if !found.entries.is_empty() => {
                    return Err(Status::NOTEMPTY.into());
                }
                (FsOp::Rmdir, Some(Body::File(_) | Body::Symlink(_))) => return Err(Status::NOTDIR.into()),
                _ => {}
            }
            state.commit(&Record::Unlink { time, directory, name }).map(drop)
        })
    }
}

/// As rename(2).
fn rename(state: &mut State, root: Inode, from: &Path, to: &Path, time: u64) -> Result<(), Refusal> {
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
    let is_directory = state.table.directory(inode).is_some();
    if is_directory && state.table.is_below(new.directory, inode) {
        return Err(Status::INVAL.into());
    }
    let over = replaced.map(|replaced| state.table.directory(replaced));
    match over {
        Some(Some(_)) if !is_directory => return Err(Status::ISDIR.into()),
        Some(Some(over)) if !over.entries.is_empty() => return Err(Status::NOTEMPTY.into()),
        Some(None) if is_directory => return Err(Status::NOTDIR.into()),
        _ => {}
    }
    let record =
        Record::Rename { time, from: old.directory, old: old.name, to: new.directory, new: new.name };
    state.commit(&record).map(drop)
}

fn attributes(inode: Inode, node: &Node, fsid: u64) -> Attributes {
    let (kind, links, size, used) = match &node.body {
        Body::Directory(directory) => {
            (FileKind::Directory, 2 + directory.subdirectories, directory.entries.len() as u64, 0)
        }
        Body::Symlink(text) => (FileKind::Symlink, node.links, text.len() as u64, 0),
        Body::File(extents) => {
            let blocks = extents.all().iter().map(|extent| blocks_of(extent.piece.bytes.into()));
            (FileKind::Regular, node.links, extents.size(), blocks.sum::<u64>() * BLOCK_BYTES)
        }
    };
    const SECOND_NS: u64 = 1_000_000_000;
    let seconds = u32::try_from(node.time / SECOND_NS).unwrap_or(u32::MAX);
    let time = NodeTime { s: seconds, ns: (node.time % SECOND_NS) as u32 };
    Attributes {
        kind,
        mode: node.mode.into(),
        links,
        uid: rustix::process::getuid().as_raw(),
        gid: rustix::process::getgid().as_raw(),
        size,
        used,
        device: (0, 0),
        fsid,
        fileid: inode,
        atime: time,
        mtime: time,
        ctime: time,
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
        match std::mem::replace(&mut self.closed, true) {
            true => Ok(()),
            false => opening::close(&self.engine),
        }
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            tracing::warn!(place = %self.place.display(), %error, "the tree was not closed cleanly");
        }
    }
}

/// A refusal on `path`.
fn failed(op: FsOp, path: PathBuf, refusal: Refusal) -> FsError {
    match refusal {
        Refusal::Status(status) => FsError::Failed { op, path, status, source: None },
        Refusal::Room => FsError::Failed { op, path, status: Status::NOSPC, source: None },
        Refusal::Tree(error) => {
            let status = match &error {
                TreeError::Disk(disk) if disk.kind() == std::io::ErrorKind::StorageFull => Status::NOSPC,
                _ => Status::IO,
            };
            FsError::Failed { op, path, status, source: Some(std::io::Error::other(error)) }
        }
    }
}
