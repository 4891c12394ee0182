//! What all views and open files of a store share: the store, the tree, and the locks that keep them in step.
//!
//! Always holds: an object and its entry change under the stripe of the key. Locks: see `file_system`.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};

use disk::Disk;
use files::{Attributes, FileKind, NodeTime};
use packstore::{KEY_BYTES_MAX, Mode, Pending, PutOptions, Stat, Store, StoreError};

use super::content::Content;
use super::meta::{FILE_META_BYTES, FileMeta, FileType};
use super::opened::{Opened, State};
use super::settling::Settling;
use super::tree::{File, Names, Node, NodeId, Symlink, Tree};
use super::{fileid, locked};

/// Locks that keys share by their hash.
const STRIPES: usize = 64;
/// Objects up to this are renamed by a put.
const RENAMED_BY_PUT_BYTES_MAX: u64 = 256 << 10;

pub(super) struct Shared {
    /// There until it is dropped.
    pub(super) store: Option<Store>,
    pub(super) tree: RwLock<Tree>,
    /// Held for writing while a directory moves.
    pub(super) shape: RwLock<()>,
    pub(super) stripes: Vec<Mutex<()>>,
    pub(super) place: PathBuf,
    pub(super) disk: Arc<dyn Disk>,
    pub(super) settling: Settling,
    pub(super) fsid: u64,
}

impl Drop for Shared {
    fn drop(&mut self) {
        let Some(store) = self.store.take() else { return };
        if let Err(error) = store.close() {
            tracing::error!(place = %self.place.display(), %error, "the store was not closed cleanly");
        }
    }
}

impl Shared {
    /// A store whose names are known.
    pub(super) fn new(store: Store, tree: Tree, place: PathBuf) -> Self {
        Self {
            fsid: store.random_id(),
            disk: store.first_disk(),
            store: Some(store),
            tree: RwLock::new(tree),
            shape: RwLock::new(()),
            stripes: (0..STRIPES).map(|_| Mutex::new(())).collect(),
            place,
            settling: Settling::default(),
        }
    }

    pub(super) fn store(&self) -> &Store {
        self.store.as_ref().expect("there until it is dropped")
    }

    pub(super) fn scratch_disk(&self) -> &Arc<dyn Disk> {
        &self.disk
    }

    pub(super) fn read_tree(&self) -> RwLockReadGuard<'_, Tree> {
        self.tree.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn write_tree(&self) -> RwLockWriteGuard<'_, Tree> {
        self.tree.write().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn hold_shape(&self) -> RwLockReadGuard<'_, ()> {
        self.shape.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The locks of keys, each once, in one order.
    pub(super) fn stripes(&self, keys: &[&[u8]]) -> Vec<MutexGuard<'_, ()>> {
        let stripe = |key: &&[u8]| xxhash_rust::xxh3::xxh3_64(key) as usize % STRIPES;
        let numbers: std::collections::BTreeSet<usize> = keys.iter().map(stripe).collect();
        numbers.into_iter().map(|number| locked(&self.stripes[number])).collect()
    }

    /// Makes all that was put durable.
    pub(super) fn flush(&self) -> Result<(), StoreError> {
        let flushed = self.store().flush();
        self.settling.wait_all().and(flushed)
    }

    pub(super) fn put_meta(&self, key: &[u8], meta: &FileMeta) -> Result<(), StoreError> {
        let meta = meta.encode();
        self.store().put_deferred(key, b"", PutOptions { meta: &meta, ..PutOptions::default() }).map(drop)
    }

    /// What is open of a file, shared by all who have it open.
    pub(super) fn opened(&self, node: NodeId) -> Arc<Opened> {
        let mut tree = self.write_tree();
        if let Some(opened) = tree.opened.get(&node).and_then(Weak::upgrade) {
            return opened;
        }
        let opened = Arc::new(Opened { node, state: Mutex::default() });
        tree.opened.insert(node, Arc::downgrade(&opened));
        opened
    }

    /// Reads the object of an open file unless it is there; false when the file has no name any more.
    pub(super) fn load(&self, node: NodeId) -> Result<bool, StoreError> {
        let Some(opened) = self.read_tree().opened.get(&node).and_then(Weak::upgrade) else {
            return Ok(false);
        };
        let mut state = locked(&opened.state);
        if state.base.is_some() || state.content.is_some() {
            return Ok(true);
        }
        // As often as its name changes while it is looked for.
        loop {
            if let Some(bytes) = self.settling.bytes_of(node) {
                state.content = Some(Content::of_bytes(bytes));
                return Ok(true);
            }
            let Some(key) = self.keys(node).into_iter().next() else { return Ok(false) };
            if let Some(object) = self.store().get(&key)? {
                self.learned(node, object.stat(), object.meta());
                state.base = Some(Arc::new(object));
                return Ok(true);
            }
            let _shape = self.hold_shape();
            let _stripes = self.stripes(&[&key]);
            let is_settling = self.settling.bytes_of(node).is_some();
            if !is_settling && self.keys(node).first() == Some(&key) && self.store().get(&key)?.is_none() {
                // Gone below us: a cache evicted it.
                self.drop_names(node);
                return Ok(false);
            }
        }
    }

    fn drop_names(&self, node: NodeId) {
        let mut tree = self.write_tree();
        let names = tree.file(node).map(|file| file.names.as_slice().to_vec()).unwrap_or_default();
        for name in names {
            tree.leave(&name);
        }
    }

    pub(super) fn keys(&self, node: NodeId) -> Vec<Vec<u8>> {
        let tree = self.read_tree();
        let names = tree.file(node).map(|file| file.names.as_slice()).unwrap_or_default();
        names.iter().map(|name| tree.key(name)).collect()
    }

    /// Puts what was written of an open file.
    pub(super) fn commit(&self, opened: &Opened, state: &mut State) -> Result<(), StoreError> {
        while state.dirty {
            let _shape = self.hold_shape();
            let keys = self.keys(opened.node);
            let Some((first, others)) = keys.split_first() else {
                state.dirty = false;
                return Ok(());
            };
            let refs: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            let _stripes = self.stripes(&refs);
            if self.keys(opened.node) != keys {
                continue;
            }
            let known = self.read_tree().file(opened.node).and_then(|file| file.meta.clone());
            let now = FileMeta::new(FileType::Regular, 0o644);
            let meta = match known {
                Some(meta) => FileMeta { mtime_s: now.mtime_s, mtime_ns: now.mtime_ns, ..*meta },
                None => now,
            };
            let encoded = meta.encode();
            let options = PutOptions { meta: &encoded, ..PutOptions::default() };
            let content = state.content.as_ref().expect("what is dirty has content");
            match content.in_memory() {
                Some(bytes) => {
                    let pending = self.store().put_deferred(first, bytes, options)?;
                    if others.is_empty() && self.store().mode() == Mode::Store {
                        self.settling.add(opened.node, bytes.clone(), pending)?;
                    } else {
                        self.settling.forget(opened.node);
                        pending.wait()?;
                    }
                }
                None => {
                    let mut writer = self.store().put_stream(first, options)?;
                    content.each_step(|bytes| writer.write(bytes))?;
                    self.settling.forget(opened.node);
                    writer.commit()?;
                }
            }
            for other in others {
                self.store().link(first, other)?;
            }
            state.dirty = false;
            if let Some(file) = self.write_tree().file_mut(opened.node) {
                (file.size, file.meta) = (content.length(), Some(Box::new(meta)));
            }
        }
        Ok(())
    }

    /// What could not be put is as it was before.
    pub(super) fn revert(&self, opened: &Opened) {
        locked(&opened.state).dirty = false;
        // What was put before is seen then; when it fails too, the names stay.
        let _ = self.flush();
        let _shape = self.hold_shape();
        let names = {
            let tree = self.read_tree();
            tree.file(opened.node).map(|file| file.names.as_slice().to_vec()).unwrap_or_default()
        };
        for name in names {
            let key = self.read_tree().key(&name);
            let _stripes = self.stripes(&[&key]);
            let stat = self.store().stat(&key);
            let mut tree = self.write_tree();
            match stat {
                Ok(None) => {
                    tree.leave(&name);
                }
                Ok(Some(stat)) => {
                    if let Some(file) = tree.file_mut(opened.node) {
                        file.size = stat.length;
                    }
                }
                Err(_) => {}
            }
        }
    }

    /// The last who had a file open has closed it.
    pub(super) fn closed(&self, opened: Arc<Opened>) {
        let node = opened.node;
        drop(opened);
        let mut tree = self.write_tree();
        if tree.opened.get(&node).is_some_and(|opened| opened.strong_count() == 0) {
            tree.opened.remove(&node);
            if tree.file(node).is_some_and(|file| file.names.as_slice().is_empty()) {
                tree.forget(node);
            }
        }
    }

    pub(super) fn grown(&self, node: NodeId, length: u64) {
        if let Some(file) = self.write_tree().file_mut(node) {
            file.size = length;
        }
    }

    /// An implied directory that lost its last entry gets an object, or it would be gone with the next opening.
    pub(super) fn keep_empty(&self, id: NodeId) -> Result<(), StoreError> {
        let to_keep = |tree: &Tree| match tree.node(id) {
            Node::Directory(directory) => {
                (!directory.kept && !directory.removed && directory.entries.is_empty())
                    .then(|| directory.meta.clone())
            }
            _ => None,
        };
        let (key, _) = {
            let tree = self.read_tree();
            let Some(meta) = to_keep(&tree) else { return Ok(()) };
            (tree.key_of_directory(id), meta)
        };
        let _stripes = self.stripes(&[&key]);
        let Some(meta) = to_keep(&self.read_tree()) else { return Ok(()) };
        self.put_meta(&key, &meta)?;
        self.write_tree().directory_mut(id).kept = true;
        Ok(())
    }

    /// Gives an object another key; nothing to do when it was never put.
    pub(super) fn move_object(&self, node: NodeId, key: &[u8], new_key: &[u8]) -> Result<(), StoreError> {
        if self.read_tree().file(node).is_some() {
            self.settling.wait_for(node)?;
        } else {
            self.store().flush()?;
        }
        self.copy_object(node, key, new_key)?.map_or(Ok(()), Pending::wait)?;
        self.store().delete_deferred(key).map(drop)
    }

    pub(super) fn copy_object(
        &self,
        node: NodeId,
        key: &[u8],
        new_key: &[u8],
    ) -> Result<Option<Pending>, StoreError> {
        let store = self.store();
        let names = self.read_tree().file(node).map_or(1, |file| file.names.as_slice().len());
        let short = store.stat(key)?.is_some_and(|stat| stat.length <= RENAMED_BY_PUT_BYTES_MAX);
        if names == 1 && short {
            let Some(object) = store.get(key)? else { return Ok(None) };
            let stat = *object.stat();
            let body = object.read_all()?;
            let options = PutOptions {
                meta: object.meta(),
                expires_s: stat.expires_s,
                created_s: Some(stat.created_s),
            };
            return store.put_deferred(new_key, &body, options).map(Some);
        }
        let linked = store.link(key, new_key)?;
        if !linked {
            // Never put; what had the name is replaced all the same.
            store.delete_deferred(new_key)?;
        }
        Ok(None)
    }

    /// Gives all objects below a directory other keys: all are there by both before the first old one goes.
    pub(super) fn move_directory(&self, id: NodeId, key: &[u8], new_key: &[u8]) -> Result<(), StoreError> {
        let moves: Vec<(NodeId, Vec<u8>)> = {
            let tree = self.read_tree();
            tree.below(id).into_iter().map(|(name, node)| (node, tree.key(&name))).collect()
        };
        let renamed = |old: &[u8]| [new_key, &old[key.len()..]].concat();
        if let Some((_, long)) = moves.iter().find(|(_, old)| renamed(old).len() > KEY_BYTES_MAX) {
            let bytes = renamed(long).len() as u64;
            return Err(StoreError::Length {
                what: "key",
                bytes,
                bytes_min: 1,
                bytes_max: KEY_BYTES_MAX as u64,
            });
        }
        // What is not durable could not be read.
        self.flush()?;
        let meta = self.read_tree().directory(id).meta.clone();
        self.put_meta(new_key, &meta)?;
        for (at, (node, old)) in moves.iter().enumerate() {
            if let Err(error) = self.copy_object(*node, old, &renamed(old)) {
                for (_, old) in &moves[..at] {
                    self.store().delete_deferred(&renamed(old))?;
                }
                self.store().delete_deferred(new_key)?;
                return Err(error);
            }
        }
        self.flush()?;
        for (_, old) in &moves {
            self.store().delete_deferred(old)?;
        }
        self.store().delete_deferred(key).map(drop)
    }

    /// `None` when permissions and time of a file are not known yet.
    pub(super) fn attributes(&self, node: NodeId) -> Option<Attributes> {
        let tree = self.read_tree();
        let (kind, links, size, meta) = match tree.node(node) {
            Node::Free => return None,
            Node::Directory(directory) => (
                FileKind::Directory,
                2 + directory.subdirectories,
                directory.entries.len() as u64,
                &directory.meta,
            ),
            Node::Symlink(link) => (FileKind::Symlink, 1, link.target.len() as u64, &link.meta),
            Node::File(file) => {
                (FileKind::Regular, file.names.as_slice().len() as u32, file.size, file.meta.as_deref()?)
            }
        };
        let mtime = NodeTime { s: u32::try_from(meta.mtime_s.max(0)).unwrap_or(u32::MAX), ns: meta.mtime_ns };
        Some(Attributes {
            kind,
            mode: meta.mode.into(),
            links,
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            size,
            used: size.next_multiple_of(self.store().shape().0.into()),
            device: (0, 0),
            fsid: self.fsid,
            fileid: fileid(node),
            atime: mtime,
            mtime,
            ctime: mtime,
        })
    }

    pub(super) fn learn_meta(&self, node: NodeId) -> Result<(), StoreError> {
        let Some(key) = self.keys(node).into_iter().next() else { return Ok(()) };
        match self.store().attributes(&key)? {
            Some((stat, meta)) => self.learned(node, &stat, &meta),
            None => {
                // Never put, gone, or renamed meanwhile: then the path is walked again. Gone below us is an empty file.
                let _shape = self.hold_shape();
                let _stripes = self.stripes(&[&key]);
                if self.keys(node).first() == Some(&key)
                    && let Some(file) = self.write_tree().file_mut(node)
                {
                    let created_s = file.created_s.into();
                    file.meta.get_or_insert_with(|| {
                        Box::new(FileMeta {
                            mtime_s: created_s,
                            mtime_ns: 0,
                            ..FileMeta::new(FileType::Regular, 0o644)
                        })
                    });
                }
            }
        }
        Ok(())
    }

    pub(super) fn learned(&self, node: NodeId, stat: &Stat, meta: &[u8]) {
        if let Some(file) = self.write_tree().file_mut(node)
            && file.meta.is_none()
        {
            file.meta = Some(Box::new(meta_of(stat, meta)));
        }
    }
}

/// What is kept of a file; of a stranger's object, what can be said of it.
fn meta_of(stat: &Stat, meta: &[u8]) -> FileMeta {
    FileMeta::decode(meta).unwrap_or(FileMeta {
        kind: FileType::Regular,
        mode: 0o644,
        mtime_s: stat.created_s.into(),
        mtime_ns: 0,
        group: 0,
    })
}

/// Builds the tree from the keys.
pub(super) fn learn(store: &Store) -> Result<Tree, StoreError> {
    let mut tree = Tree::new();
    // Names of files that may have several, by what is the same for all of them.
    let mut groups = std::collections::HashMap::<u64, NodeId>::new();
    for entry in store.iter()? {
        let entry = entry?;
        let mut known = None;
        if entry.stat.meta_bytes as usize != FILE_META_BYTES {
            let Some((stat, meta)) = store.attributes(&entry.key)? else { continue };
            known = Some(meta_of(&stat, &meta));
        }
        let Some(name) = tree.imply(&entry.key) else {
            tree.hidden += 1;
            continue;
        };
        let there = tree.directory(name.directory).entries.get(&name.name).copied();
        match (&known, there) {
            (Some(FileMeta { kind: FileType::Directory, .. }), there) => {
                let meta = known.expect("just seen");
                match there {
                    Some(id) if matches!(tree.node(id), Node::Directory(_)) => {
                        let directory = tree.directory_mut(id);
                        (directory.kept, directory.meta) = (true, meta);
                    }
                    Some(_) => {}
                    None => {
                        let id = tree.add_directory(true, meta);
                        tree.enter(&name, id);
                    }
                }
            }
            // Seen twice while it moved, or a directory by the keys below it.
            (_, Some(id)) => tree.hidden += u64::from(matches!(tree.node(id), Node::Directory(_))),
            (Some(FileMeta { kind: FileType::Symlink(target), .. }), None) => {
                let link = Symlink {
                    name: name.clone(),
                    target: target.clone(),
                    meta: known.clone().expect("just seen"),
                };
                let id = tree.add(Node::Symlink(Box::new(link)));
                tree.enter(&name, id);
            }
            (_, None) => {
                let group = known.as_ref().map_or(0, |meta| meta.group);
                let other = groups.get(&group).copied().filter(|_| group != 0);
                let id = other.unwrap_or_else(|| {
                    tree.add(Node::File(File {
                        names: Names::Several(Vec::new()),
                        size: entry.stat.length,
                        meta: known.map(Box::new),
                        created_s: entry.stat.created_s,
                    }))
                });
                if group != 0 {
                    groups.insert(group, id);
                }
                tree.enter(&name, id);
            }
        }
    }
    Ok(tree)
}
