//! Files and directories that programs have open through the mount.
//!
//! Always holds: a node with an open file has its descriptors findable by the node's number, so that a file removed
//! while open keeps its attributes. Locks: a shard's, a leaf; descriptors are closed outside it.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::listing::Listing;
use super::nodes::lock;
use super::shares::Share;

/// An open regular file.
pub(crate) struct OpenFile {
    pub(crate) id: u64,
    /// Shared with others that only read the same file.
    pub(crate) descriptor: Arc<OwnedFd>,
    /// It may be written.
    pub(crate) writes: bool,
    /// Set-user-id bits are cleared when this one writes.
    pub(crate) by_ordinary_user: bool,
    /// Its data passes by the daemon.
    pub(crate) passed_through: bool,
    /// What it counts for among its user's descriptors.
    pub(crate) _share: Share,
}

/// An open directory.
pub(crate) struct OpenDirectory {
    pub(crate) id: u64,
    /// File system that its entries are on.
    pub(crate) device: u64,
    pub(crate) listing: Mutex<Listing>,
}

/// All that is open.
#[derive(Default)]
pub(crate) struct Opened {
    shards: [Mutex<Shard>; SHARDS],
    directories: Mutex<HashMap<u64, Arc<OpenDirectory>>>,
    next: AtomicU64,
}

#[derive(Default)]
struct Shard {
    files: HashMap<u64, Arc<OpenFile>>,
    of_node: HashMap<u64, Vec<u64>>,
}

const SHARDS: usize = 16;

impl Opened {
    /// Keeps an open file; the number names it from now on.
    pub(crate) fn add(&self, file: OpenFile) -> u64 {
        let shard = file.id % SHARDS as u64;
        // The shard is part of the number, so that it is found again without asking for the node.
        let handle = self.next.fetch_add(1, Ordering::Relaxed) * SHARDS as u64 + shard;
        let mut shard = lock(&self.shards[shard as usize]);
        shard.of_node.entry(file.id).or_default().push(handle);
        shard.files.insert(handle, Arc::new(file));
        handle
    }

    pub(crate) fn file(&self, handle: u64) -> Option<Arc<OpenFile>> {
        self.shard(handle).files.get(&handle).cloned()
    }

    /// Any open file of this node, the latest opened.
    pub(crate) fn any_of(&self, id: u64) -> Option<Arc<OpenFile>> {
        let shard = self.shard(id);
        let handle = shard.of_node.get(&id)?.last()?;
        shard.files.get(handle).cloned()
    }

    /// Whether this node is open to be written.
    pub(crate) fn is_written(&self, id: u64) -> bool {
        let shard = self.shard(id);
        let Some(handles) = shard.of_node.get(&id) else { return false };
        handles.iter().any(|handle| shard.files.get(handle).is_some_and(|file| file.writes))
    }

    /// Ends an open file, which the caller may still look at.
    pub(crate) fn close(&self, handle: u64) -> Option<Arc<OpenFile>> {
        let mut shard = self.shard(handle);
        let file = shard.files.remove(&handle)?;
        if let Some(handles) = shard.of_node.get_mut(&file.id) {
            handles.retain(|other| *other != handle);
            if handles.is_empty() {
                shard.of_node.remove(&file.id);
            }
        }
        Some(file)
    }

    pub(crate) fn add_directory(&self, directory: OpenDirectory) -> u64 {
        let handle = self.next.fetch_add(1, Ordering::Relaxed);
        lock(&self.directories).insert(handle, Arc::new(directory));
        handle
    }

    pub(crate) fn directory(&self, handle: u64) -> Option<Arc<OpenDirectory>> {
        lock(&self.directories).get(&handle).cloned()
    }

    /// All that are open of this one.
    pub(crate) fn directories_of(&self, id: u64) -> Vec<Arc<OpenDirectory>> {
        lock(&self.directories).values().filter(|directory| directory.id == id).cloned().collect()
    }

    pub(crate) fn close_directory(&self, handle: u64) {
        let closed = lock(&self.directories).remove(&handle);
        drop(closed);
    }

    /// Files and directories open.
    pub(crate) fn count(&self) -> (usize, usize) {
        let files = self.shards.iter().map(|shard| lock(shard).files.len()).sum();
        (files, lock(&self.directories).len())
    }

    fn shard(&self, number: u64) -> std::sync::MutexGuard<'_, Shard> {
        lock(&self.shards[(number % SHARDS as u64) as usize])
    }
}
