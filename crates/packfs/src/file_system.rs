//! The store as a file system, so that what drives directories drives it too.
//!
//! ```text
//! FileSystem call --> walk (tree of names in memory) --> key "a/b/c" --> put, get, link, delete of the store
//! OpenFile        --> opened (bytes while written: content) --> one put at sync or close
//! ```
//!
//! - A file is an object whose key is its path. Directories are implied by keys; one that was made, or that lost its
//!   last entry, has an object of its own, so that it is there when it is empty. Symbolic links are objects. What is
//!   kept of each beside its bytes: [`FileMeta`].
//! - The tree is built at opening from the keys, and objects are read then only if they are links, directories or have
//!   several names: some 130 bytes of memory for each file. Numbers of files are good until the store is closed.
//! - Nothing is durable before `sync` or `sync_dir`, as in a local file system: both flush the whole store. `link` and
//!   `rename` wait for the disk, since the store has them so.
//! - Several names of one file are links of the store. A file with several names that is written is put once and linked
//!   again: a kill between leaves some names with the old bytes.
//! - A rename of a file with one name of up to 256 KB puts it again under the other key; other files are linked, and stay
//!   linked objects. A rename of a directory does this for each object below it: its cost is theirs, and a kill in the
//!   middle leaves some of them under both names.
//! - Symbolic links to paths from `/` lead nowhere. They have no second names (`NOTSUPP`).
//!
//! Locks, in order: state of an open file, `shape`, `stripes` (ascending), `tree`. Only the tree's is never held across
//! a call to the store.
//!
//! Always holds: the object of a key and its entry in the tree change under the stripe of the key; a path never leads
//! out of the store.
//! Not here: owners, times of access.

mod content;
mod meta;
mod opened;
mod settling;
mod shared;
mod tree;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use files::{Access, Attributes, FileKind, FileSystem, FsError, FsOp, Fsstat, ListedEntry, OpenFile, Status};
use packstore::{KEY_BYTES_MAX, Store, StoreError};

use self::content::Content;
use self::opened::{How, Opened, PackFile, State};
use self::shared::Shared;
use self::tree::{File, Name, Names, Node, NodeId, ROOT, Symlink, Tree, Walked};

pub use self::meta::{FileMeta, FileType};

/// What one transfer should carry: stream buffers are sized by it.
const BLOCK_BYTES: usize = 4096;
/// Longest text of a symbolic link.
const LINK_BYTES_MAX: usize = 4095;

/// A store, or a directory in it, as a [`FileSystem`]. The store is closed when the last view and open file are gone.
pub struct PackFs {
    shared: Arc<Shared>,
    root: NodeId,
    /// Of the root, from the store on.
    below: PathBuf,
    local: Option<PathBuf>,
}

impl PackFs {
    /// Takes a store and learns its names. `place` is how a user knows it, such as `pack:/srv/objects`.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn open(store: Store, place: impl Into<PathBuf>) -> Result<Self, StoreError> {
        if !store.is_read_only() {
            content::sweep(&*store.first_disk())?;
        }
        let tree = shared::learn(&store)?;
        let shared = Shared::new(store, tree, place.into());
        Ok(Self { shared: Arc::new(shared), root: ROOT, below: PathBuf::new(), local: None })
    }

    /// Says in which directory of this machine the store is: device counters are found by it. The files are not there.
    pub fn lying_at(mut self, directory: PathBuf) -> Self {
        self.local = Some(directory);
        self
    }

    /// The store below.
    pub fn store(&self) -> &Store {
        self.shared.store()
    }

    /// Objects that are not shown: their keys are no paths, or lie below another object's.
    pub fn hidden_objects(&self) -> u64 {
        self.shared.read_tree().hidden
    }

    fn path(&self, path: &Path) -> PathBuf {
        self.shared.place.join(&self.below).join(path.strip_prefix("/").unwrap_or(path))
    }

    fn refused(&self, op: FsOp, path: &Path, status: Status) -> FsError {
        FsError::refused_here(op, self.path(path), status)
    }

    fn walk(&self, op: FsOp, path: &Path, follow: bool) -> Result<Walked, FsError> {
        self.shared.read_tree().walk(self.root, path, follow).map_err(|status| self.refused(op, path, status))
    }

    /// Where a name that is to be new goes.
    fn vacant(&self, op: FsOp, path: &Path) -> Result<Name, FsError> {
        match self.walk(op, path, false)? {
            Walked::Missing(name) => Ok(name),
            Walked::Root(_) | Walked::Found(..) => Err(self.refused(op, path, Status::EXIST)),
        }
    }

    /// Adds an entry for an object that is then put by `put`; takes it back when that fails.
    fn add(
        &self,
        op: FsOp,
        path: &Path,
        make: impl FnOnce(&mut Tree) -> NodeId,
        put: impl FnOnce(&Shared, &[u8]) -> Result<(), StoreError>,
    ) -> Result<NodeId, FsError> {
        let shared = &self.shared;
        let _shape = shared.hold_shape();
        let name = self.vacant(op, path)?;
        let key = shared.read_tree().key(&name);
        let _stripes = shared.stripes(&[&key]);
        let id = {
            let mut tree = shared.write_tree();
            let directory = tree.directory(name.directory);
            if directory.removed {
                return Err(self.refused(op, path, Status::NOENT));
            }
            if directory.entries.contains_key(&name.name) {
                return Err(self.refused(op, path, Status::EXIST));
            }
            let id = make(&mut tree);
            tree.enter(&name, id);
            id
        };
        if let Err(error) = put(shared, &key) {
            let mut tree = shared.write_tree();
            tree.leave(&name);
            tree.forget(id);
            return Err(failed(op, self.path(path), error));
        }
        Ok(id)
    }

    fn open_node(&self, path: &Path, node: NodeId, how: How) -> Box<dyn OpenFile> {
        let opened = Some(self.shared.opened(node));
        Box::new(PackFile {
            shared: self.shared.clone(),
            opened,
            how,
            cursor: 0,
            path: self.path(path),
            window: None,
        })
    }
}

impl FileSystem for PackFs {
    fn create(&self, path: &Path) -> Result<Box<dyn OpenFile>, FsError> {
        let meta = FileMeta::new(FileType::Regular, 0o644);
        let created_s = meta.mtime_s as u32;
        let mut opened = None;
        let make = |tree: &mut Tree| {
            let meta = Some(Box::new(meta));
            let node =
                tree.add(Node::File(File { names: Names::Several(Vec::new()), size: 0, meta, created_s }));
            let state = State { base: None, content: Some(Content::empty()), dirty: true };
            let new = Arc::new(Opened { node, state: Mutex::new(state) });
            tree.opened.insert(node, Arc::downgrade(&new));
            opened = Some(new);
            node
        };
        self.add(FsOp::Create, path, make, |_, _| Ok(()))?;
        let path = self.path(path);
        Ok(Box::new(PackFile {
            shared: self.shared.clone(),
            opened,
            how: How::Made,
            cursor: 0,
            path,
            window: None,
        }))
    }

    fn open(&self, path: &Path, access: Access) -> Result<Box<dyn OpenFile>, FsError> {
        loop {
            let node = match self.walk(FsOp::Open, path, true)? {
                Walked::Found(_, node) => node,
                Walked::Root(_) => return Err(self.refused(FsOp::Open, path, Status::ISDIR)),
                Walked::Missing(_) => return Err(self.refused(FsOp::Open, path, Status::NOENT)),
            };
            match self.shared.read_tree().node(node) {
                Node::File(_) => {}
                Node::Directory(_) => return Err(self.refused(FsOp::Open, path, Status::ISDIR)),
                Node::Symlink(_) | Node::Free => continue,
            }
            let file = self.open_node(path, node, How::Opened(access));
            match self.shared.load(node) {
                Ok(true) => return Ok(file),
                // Its name went meanwhile.
                Ok(false) => {}
                Err(error) => return Err(failed(FsOp::Open, self.path(path), error)),
            }
        }
    }

    fn link(&self, existing: &Path, new: &Path) -> Result<(), FsError> {
        let refused = |status| self.refused(FsOp::Link, existing, status);
        loop {
            let (old_name, node) = match self.walk(FsOp::Link, existing, false)? {
                Walked::Found(name, node) => (name, node),
                Walked::Root(_) => return Err(refused(Status::PERM)),
                Walked::Missing(_) => return Err(refused(Status::NOENT)),
            };
            match self.shared.read_tree().node(node) {
                Node::File(_) => {}
                Node::Directory(_) => return Err(refused(Status::PERM)),
                Node::Symlink(_) | Node::Free => return Err(refused(Status::NOTSUPP)),
            }
            // What is written and not put yet would have no object to name.
            let opened = self.shared.read_tree().opened.get(&node).and_then(Weak::upgrade);
            if let Some(opened) = opened {
                let committed = self.shared.commit(&opened, &mut locked(&opened.state));
                committed.map_err(|error| failed(FsOp::Link, self.path(existing), error))?;
            }
            let _shape = self.shared.hold_shape();
            let new_name = self.vacant(FsOp::Link, new)?;
            let (key, new_key) = {
                let tree = self.shared.read_tree();
                (tree.key(&old_name), tree.key(&new_name))
            };
            let _stripes = self.shared.stripes(&[&key, &new_key]);
            let moved = {
                let tree = self.shared.read_tree();
                let there = |name: &Name| tree.directory(name.directory).entries.get(&name.name).copied();
                if there(&new_name).is_some() {
                    return Err(self.refused(FsOp::Link, new, Status::EXIST));
                }
                there(&old_name) != Some(node)
            };
            if moved {
                continue;
            }
            return match self.shared.store().link(&key, &new_key) {
                Ok(true) => {
                    self.shared.write_tree().enter(&new_name, node);
                    Ok(())
                }
                Ok(false) => Err(refused(Status::NOENT)),
                Err(error) => Err(failed(FsOp::Link, self.path(new), error)),
            };
        }
    }

    fn symlink(&self, target: &Path, path: &Path) -> Result<(), FsError> {
        let target = target.as_os_str().as_encoded_bytes().to_vec();
        let wrong = match target.len() {
            0 => Some(Status::NOENT),
            _ if target.contains(&0) => Some(Status::INVAL),
            length => (length > LINK_BYTES_MAX).then_some(Status::NAMETOOLONG),
        };
        if let Some(status) = wrong {
            return Err(self.refused(FsOp::Symlink, path, status));
        }
        let meta = FileMeta::new(FileType::Symlink(target.clone()), 0o777);
        let kept = meta.clone();
        let make = |tree: &mut Tree| {
            let name = Name { directory: ROOT, name: Arc::from(&b""[..]) };
            tree.add(Node::Symlink(Box::new(Symlink { name, target, meta })))
        };
        self.add(FsOp::Symlink, path, make, |shared, key| shared.put_meta(key, &kept)).map(drop)
    }

    fn readlink(&self, path: &Path) -> Result<PathBuf, FsError> {
        use std::os::unix::ffi::OsStringExt;
        let status = match self.walk(FsOp::Readlink, path, false)? {
            Walked::Root(_) => Status::INVAL,
            Walked::Missing(_) => Status::NOENT,
            Walked::Found(_, node) => match self.shared.read_tree().node(node) {
                Node::Symlink(link) => return Ok(std::ffi::OsString::from_vec(link.target.clone()).into()),
                Node::Free => Status::NOENT,
                _ => Status::INVAL,
            },
        };
        Err(self.refused(FsOp::Readlink, path, status))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), FsError> {
        // Both names: either may be what is wrong.
        let both = PathBuf::from(format!("{} -> {}", self.path(from).display(), self.path(to).display()));
        let refused = |status| FsError::refused_here(FsOp::Rename, both.clone(), status);
        let mut whole = false;
        loop {
            let (_shape, _alone) = match whole {
                false => (Some(self.shared.hold_shape()), None),
                true => (None, Some(self.shared.shape.write().unwrap_or_else(PoisonError::into_inner))),
            };
            let (old_name, node) = match self.walk(FsOp::Rename, from, false)? {
                Walked::Found(name, node) => (name, node),
                Walked::Root(_) => return Err(refused(Status::INVAL)),
                Walked::Missing(_) => return Err(refused(Status::NOENT)),
            };
            let (new_name, replaced) = match self.walk(FsOp::Rename, to, false)? {
                Walked::Missing(name) => (name, None),
                Walked::Found(name, replaced) => (name, Some(replaced)),
                Walked::Root(_) => return Err(refused(Status::INVAL)),
            };
            if replaced == Some(node) {
                return Ok(());
            }
            let is_directory = {
                let tree = self.shared.read_tree();
                let is_directory = matches!(tree.node(node), Node::Directory(_));
                if is_directory && tree.is_below(new_name.directory, node) {
                    return Err(refused(Status::INVAL));
                }
                match replaced.map(|replaced| tree.node(replaced)) {
                    Some(Node::Directory(_)) if !is_directory => return Err(refused(Status::ISDIR)),
                    Some(Node::Directory(over)) if !over.entries.is_empty() => {
                        return Err(refused(Status::NOTEMPTY));
                    }
                    Some(Node::File(_) | Node::Symlink(_)) if is_directory => {
                        return Err(refused(Status::NOTDIR));
                    }
                    _ => is_directory,
                }
            };
            if is_directory && !whole {
                whole = true;
                continue;
            }
            let (key, new_key) = {
                let tree = self.shared.read_tree();
                (tree.key(&old_name), tree.key(&new_name))
            };
            if new_key.len() > KEY_BYTES_MAX {
                return Err(refused(Status::NAMETOOLONG));
            }
            let stripes = self.shared.stripes(&[&key, &new_key]);
            let there = |name: &Name| {
                let tree = self.shared.read_tree();
                tree.directory(name.directory).entries.get(&name.name).copied()
            };
            if there(&old_name) != Some(node) || there(&new_name) != replaced {
                continue;
            }
            let moved = if is_directory {
                self.shared.move_directory(node, &key, &new_key)
            } else {
                self.shared.move_object(node, &key, &new_key)
            };
            moved.map_err(|error| match error {
                StoreError::Length { .. } => refused(Status::NAMETOOLONG),
                error => failed(FsOp::Rename, both.clone(), error),
            })?;
            {
                let mut tree = self.shared.write_tree();
                if let Some(replaced) = replaced {
                    tree.leave(&new_name);
                    tree.forget(replaced);
                    if tree.file(replaced).is_none_or(|file| file.names.as_slice().is_empty()) {
                        self.shared.settling.forget(replaced);
                    }
                }
                tree.leave(&old_name);
                tree.enter(&new_name, node);
                if is_directory {
                    tree.directory_mut(node).kept = true;
                }
            }
            drop(stripes);
            let kept = self.shared.keep_empty(old_name.directory);
            return kept.map_err(|error| failed(FsOp::Rename, both.clone(), error));
        }
    }

    fn unlink(&self, path: &Path) -> Result<(), FsError> {
        self.remove(FsOp::Unlink, path)
    }

    fn mkdir(&self, path: &Path) -> Result<(), FsError> {
        let meta = FileMeta::new(FileType::Directory, 0o755);
        let kept = meta.clone();
        let make = |tree: &mut Tree| tree.add_directory(true, meta);
        self.add(FsOp::Mkdir, path, make, |shared, key| shared.put_meta(key, &kept)).map(drop)
    }

    fn rmdir(&self, path: &Path) -> Result<(), FsError> {
        self.remove(FsOp::Rmdir, path)
    }

    fn readdir(&self, path: &Path, each: &mut dyn FnMut(ListedEntry<'_>)) -> Result<(), FsError> {
        // A copy: the listener may call the file system itself.
        let entries: Vec<(Arc<[u8]>, NodeId)> = {
            let tree = self.shared.read_tree();
            let directory = tree.walk_to_directory(self.root, path);
            let directory = directory.map_err(|status| self.refused(FsOp::Readdir, path, status))?;
            tree.directory(directory).entries.iter().map(|(name, id)| (name.clone(), *id)).collect()
        };
        for (name, id) in entries {
            each(ListedEntry { name: &name, fileid: fileid(id) });
        }
        Ok(())
    }

    fn stat(&self, path: &Path) -> Result<Attributes, FsError> {
        loop {
            let node = match self.walk(FsOp::Stat, path, false)? {
                Walked::Found(_, node) | Walked::Root(node) => node,
                Walked::Missing(_) => return Err(self.refused(FsOp::Stat, path, Status::NOENT)),
            };
            if let Some(attributes) = self.shared.attributes(node) {
                return Ok(attributes);
            }
            self.shared.learn_meta(node).map_err(|error| failed(FsOp::Stat, self.path(path), error))?;
        }
    }

    fn statfs(&self) -> Result<Fsstat, FsError> {
        let usage = self.shared.store().usage();
        let free = usage.size_bytes.saturating_sub(usage.live_bytes);
        let files_free = free / u64::from(self.shared.store().shape().0).max(1) / 2;
        Ok(Fsstat {
            bytes_total: usage.size_bytes,
            bytes_free: free,
            bytes_available: free,
            files_total: usage.objects + files_free,
            files_free,
            files_available: files_free,
            stable_s: 0,
        })
    }

    fn has_room_of_its_own(&self) -> bool {
        true
    }

    fn sync_dir(&self, path: &Path) -> Result<(), FsError> {
        let found = self.shared.read_tree().walk_to_directory(self.root, path);
        found.map_err(|status| self.refused(FsOp::Sync, path, status))?;
        self.shared.flush().map_err(|error| failed(FsOp::Sync, self.path(path), error))
    }

    fn sync_all(&self) -> Result<(), FsError> {
        self.shared.flush().map_err(|error| failed(FsOp::Sync, self.path(Path::new("")), error))
    }

    fn below(&self, path: &Path) -> Result<Arc<dyn FileSystem>, FsError> {
        let mut tree = self.shared.write_tree();
        let found = tree.walk_to_directory(self.root, path);
        let root = found.map_err(|status| self.refused(FsOp::Open, path, status))?;
        tree.directory_mut(root).holders += 1;
        drop(tree);
        Ok(Arc::new(Self {
            shared: self.shared.clone(),
            root,
            below: self.below.join(path),
            local: self.local.clone(),
        }))
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

impl PackFs {
    /// Takes away the name of a file or link, or an empty directory.
    fn remove(&self, op: FsOp, path: &Path) -> Result<(), FsError> {
        let refused = |status| self.refused(op, path, status);
        loop {
            let _shape = self.shared.hold_shape();
            let (name, node) = match self.walk(op, path, false)? {
                Walked::Found(name, node) => (name, node),
                Walked::Missing(_) => return Err(refused(Status::NOENT)),
                Walked::Root(_) if op == FsOp::Unlink => return Err(refused(Status::ISDIR)),
                Walked::Root(_) => return Err(refused(Status::INVAL)),
            };
            let key = self.shared.read_tree().key(&name);
            let stripes = self.shared.stripes(&[&key]);
            {
                let mut tree = self.shared.write_tree();
                match tree.directory(name.directory).entries.get(&name.name) {
                    None => return Err(refused(Status::NOENT)),
                    Some(there) if *there != node => continue,
                    Some(_) => {}
                }
                match (op, tree.node(node)) {
                    (FsOp::Unlink, Node::Directory(_)) => return Err(refused(Status::ISDIR)),
                    (FsOp::Rmdir, Node::Directory(directory)) if !directory.entries.is_empty() => {
                        return Err(refused(Status::NOTEMPTY));
                    }
                    (FsOp::Rmdir, Node::File(_) | Node::Symlink(_)) => return Err(refused(Status::NOTDIR)),
                    _ => {}
                }
                // Before it goes from the store: nobody opens what is about to go.
                tree.leave(&name);
                tree.forget(node);
                if tree.file(node).is_none_or(|file| file.names.as_slice().is_empty()) {
                    self.shared.settling.forget(node);
                }
            }
            self.shared.store().delete_deferred(&key).map_err(|error| failed(op, self.path(path), error))?;
            drop(stripes);
            return self
                .shared
                .keep_empty(name.directory)
                .map_err(|error| failed(op, self.path(path), error));
        }
    }
}

impl Drop for PackFs {
    fn drop(&mut self) {
        if self.below.as_os_str().is_empty() && self.root == ROOT {
            return;
        }
        let mut tree = self.shared.write_tree();
        let directory = tree.directory_mut(self.root);
        directory.holders = directory.holders.saturating_sub(1);
        if directory.removed {
            tree.forget(self.root);
        }
    }
}

/// A lock whose holders leave what it guards whole also when they panic.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn fileid(id: NodeId) -> u64 {
    u64::from(id) + 1
}

/// An error of the store on `path`.
fn failed(op: FsOp, path: PathBuf, error: StoreError) -> FsError {
    let status = match &error {
        StoreError::Full => Status::NOSPC,
        StoreError::NoDescriptors { .. } => Status::JUKEBOX,
        StoreError::ReadOnly { .. } => Status::ROFS,
        StoreError::Length { what: "key", .. } => Status::NAMETOOLONG,
        StoreError::Length { .. } => Status::FBIG,
        _ => Status::IO,
    };
    FsError::Failed { op, path, status, source: Some(std::io::Error::other(error)) }
}
