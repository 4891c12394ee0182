//! Names and inodes: what changed since the last checkpoint in memory, over the sorted runs on disk; and what the records of the
//! journal make of them.
//!
//! ```text
//! look-up: inodes without a name (open) -> `changed` -> `frozen` (being written) -> runs, newest first
//! record --prepare--> loads what it changes, refuses what does not fit --apply--> `changed`, blocks freed and named
//! ```
//!
//! Always holds: the pieces of a file do not overlap, and a write replaces whole pieces; an inode without names stays while it
//! is open, and is in no layer; a change that was prepared does not fail.
//! Not here: the disk (`names`); who may change what, and when (`file_system`, `nodes`).

mod apply;
mod extents;
mod layer;
mod node;
mod walk;

use std::collections::HashMap;
use std::sync::Arc;

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};

use crate::error::Refusal;
use crate::format::{Named, Owner, decode_node};
use crate::names::{BlockCache, Faults, Key, Loader, Merged, SortedRun, Source, find};
use crate::space::Run;

pub(crate) use apply::Dangling;
pub(crate) use extents::{Blocks, Extent, Extents};
pub(crate) use layer::{Layer, Sorted};
pub(crate) use node::{Body, Content, Directory, Inode, Kind, Node, Special};
pub(crate) use walk::{Name, Walked};

pub(crate) const ROOT: Inode = 1;
/// What an inode takes in memory, to lay out the cache's own tables.
const NODE_BYTES_USUAL: u64 = 256;

type Hashed = foldhash::fast::RandomState;
/// The newest first.
pub(crate) type Runs = Arc<Vec<Arc<SortedRun>>>;

/// All inodes, and all names.
pub(crate) struct Table {
    changed: Layer,
    /// What a checkpoint that is being written takes out of `changed`.
    frozen: Option<Arc<Layer>>,
    runs: Runs,
    pub blocks: Arc<BlockCache>,
    /// Inodes of the runs that no layer has.
    decoded: Cache<Inode, Arc<Node>, Weight, Hashed>,
    /// Inodes without a name that are open.
    orphans: HashMap<Inode, Arc<Node>, Hashed>,
    /// How often an inode is open, or a view begins there.
    held: HashMap<Inode, u32, Hashed>,
    pub next_inode: Inode,
    /// How many have a name.
    pub inodes: u64,
}

#[derive(Clone)]
struct Weight;

impl Weighter<Inode, Arc<Node>> for Weight {
    fn weight(&self, _: &Inode, node: &Arc<Node>) -> u64 {
        node.memory_bytes() as u64 + 64
    }
}

/// Some names of a directory.
pub(crate) struct Listed {
    pub names: Vec<(Box<[u8]>, Named)>,
    /// There are no more behind them.
    pub is_end: bool,
    /// Why names are missing.
    pub damaged: Option<Refusal>,
}

/// A directory's root inode, as a new tree has it.
fn new_root(owner: Owner) -> Node {
    let body = Directory { parent: ROOT, name: [].into(), names: 0, subdirectories: 0 };
    Node {
        mode: 0o755,
        owner,
        atime: 0,
        mtime: 0,
        ctime: 0,
        links: 1,
        xattrs: Vec::new(),
        body: Body::Directory(Box::new(body)),
    }
}

impl Table {
    /// What these runs have. Blocks and inodes that were read are kept in up to `cache_bytes`.
    pub(crate) fn of_runs(
        runs: Vec<Arc<SortedRun>>,
        next_inode: Inode,
        inodes: u64,
        cache_bytes: u64,
    ) -> Self {
        let nodes_bytes = cache_bytes / 4;
        let options = OptionsBuilder::new()
            .estimated_items_capacity((nodes_bytes / NODE_BYTES_USUAL).max(16) as usize)
            .weight_capacity(nodes_bytes.max(16 << 10))
            .build()
            .expect("both capacities are given");
        Self {
            changed: Layer::default(),
            frozen: None,
            runs: Arc::new(runs),
            blocks: Arc::new(BlockCache::new(cache_bytes - nodes_bytes)),
            decoded: Cache::with_options(options, Weight, Hashed::default(), DefaultLifecycle::default()),
            orphans: HashMap::default(),
            held: HashMap::default(),
            next_inode,
            inodes,
        }
    }

    /// A new tree: its root, and nothing in it.
    pub(crate) fn new(owner: Owner, cache_bytes: u64) -> Self {
        let mut table = Self::of_runs(Vec::new(), ROOT + 1, 1, cache_bytes);
        table.changed.nodes.insert(ROOT, Some(Arc::new(new_root(owner))));
        table
    }

    pub(crate) fn node(&self, inode: Inode) -> Result<Option<Arc<Node>>, Refusal> {
        if let Some(found) = self.changed.nodes.get(&inode) {
            return Ok(found.clone().or_else(|| self.orphans.get(&inode).cloned()));
        }
        if let Some(orphan) = self.orphans.get(&inode) {
            return Ok(Some(orphan.clone()));
        }
        if let Some(found) = self.frozen.as_ref().and_then(|frozen| frozen.nodes.get(&inode)) {
            return Ok(found.clone());
        }
        if let Some(node) = self.decoded.get(&inode) {
            return Ok(Some(node));
        }
        let key = Key::of_inode(inode);
        let found = find(&self.runs, key.bytes(), &Loader::Cache(&self.blocks), decode_node)?.map(Arc::new);
        if let Some(node) = &found {
            self.decoded.insert(inode, node.clone());
        }
        Ok(found)
    }

    /// What a name in a directory leads to.
    pub(crate) fn name(&self, directory: Inode, name: &[u8]) -> Result<Option<Named>, Refusal> {
        if let Some(found) = self.changed.name(directory, name) {
            return Ok(found);
        }
        if let Some(found) = self.frozen.as_ref().and_then(|frozen| frozen.name(directory, name)) {
            return Ok(found);
        }
        let key = Key::of_name(directory, name);
        find(&self.runs, key.bytes(), &Loader::Cache(&self.blocks), Named::decode)
    }

    /// The inode, if it is a directory that has a name or is the root.
    pub(crate) fn directory(&self, inode: Inode) -> Result<Option<Arc<Node>>, Refusal> {
        Ok(self.node(inode)?.filter(|node| node.as_directory().is_some()))
    }

    /// Names of a directory behind `after`, in order: some of them. After an error the look-up can be repeated.
    pub(crate) fn list(&self, directory: Inode, after: &[u8], names_max: usize) -> Result<Listed, Refusal> {
        let loader = Loader::Cache(&self.blocks);
        let faults = Faults::default();
        let layers = [Some(&self.changed), self.frozen.as_deref()].into_iter().flatten();
        let mut sources: Vec<Box<dyn Source + '_>> = Vec::new();
        for names in layers.filter_map(|layer| layer.names_of(directory, after)) {
            sources.push(Box::new(names));
        }
        let key = Key::of_name(directory, after);
        Merged::add_runs(&mut sources, &self.runs, key.bytes(), &loader, Some(&faults))?;
        let mut merged = Merged::new(sources);
        let mut listed = Listed { names: Vec::new(), is_end: false, damaged: None };
        while listed.names.len() < names_max {
            match merged.advance() {
                // What is there is returned; the next call begins at the block that is missing.
                Err(Refusal::Block(_)) if !listed.names.is_empty() => break,
                Err(refusal) => return Err(refusal),
                Ok(there) => {
                    let found = Key::as_name(&merged.key).filter(|(found, _)| there && *found == directory);
                    let Some((_, name)) = found else {
                        listed.is_end = true;
                        break;
                    };
                    if let Some(named) =
                        merged.value.as_deref().and_then(Named::decode).filter(|_| name != after)
                    {
                        listed.names.push((name.into(), named));
                    }
                }
            }
        }
        drop(merged);
        listed.damaged = faults.into_inner().into_iter().next();
        Ok(listed)
    }

    /// Keeps an inode until [`Table::let_go`], also without a name.
    pub(crate) fn hold(&mut self, inode: Inode) {
        *self.held.entry(inode).or_default() += 1;
    }

    /// Ends a hold. One without a name is gone with its last hold.
    pub(crate) fn let_go(&mut self, inode: Inode, blocks: &mut Blocks) {
        let left = self.held.get_mut(&inode).map_or(0, |holds| {
            *holds -= 1;
            *holds
        });
        if left == 0 {
            self.held.remove(&inode);
            if let Some(node) = self.orphans.remove(&inode) {
                free_pieces(&node, blocks);
            }
        }
    }

    /// Whether an inode is open and has no name.
    pub(crate) fn is_orphan(&self, inode: Inode) -> bool {
        self.orphans.contains_key(&inode)
    }

    /// Blocks that only inodes without a name have: nothing on disk says so.
    pub(crate) fn orphans_runs(&self) -> Vec<Run> {
        let mut blocks = Blocks::default();
        self.orphans.values().for_each(|node| free_pieces(node, &mut blocks));
        blocks.freed
    }

    /// Blocks of the inodes that no run has.
    pub(crate) fn used_in_memory(&self) -> Vec<Run> {
        let mut blocks = Blocks::default();
        self.changed.nodes.values().flatten().for_each(|node| free_pieces(node, &mut blocks));
        blocks.freed
    }

    pub(crate) fn runs(&self) -> &Runs {
        &self.runs
    }

    /// All that changed since the last checkpoint, to be written as a run; changes continue in a layer above.
    pub(crate) fn freeze(&mut self) -> Arc<Layer> {
        assert!(self.frozen.is_none(), "one checkpoint at a time");
        let frozen = Arc::new(std::mem::take(&mut self.changed));
        self.frozen = Some(frozen.clone());
        frozen
    }

    /// The frozen layer could not be written: its changes are again among those that are to be.
    pub(crate) fn thaw(&mut self) {
        let Some(frozen) = self.frozen.take() else { return };
        let later = std::mem::replace(&mut self.changed, Arc::unwrap_or_clone(frozen));
        self.changed.overlay(later);
    }

    /// The frozen layer is in the first of these runs.
    pub(crate) fn written(&mut self, runs: Vec<Arc<SortedRun>>) {
        self.frozen = None;
        self.runs = Arc::new(runs);
    }

    /// Runs were merged: the others are in the same order.
    pub(crate) fn merged(&mut self, runs: Vec<Arc<SortedRun>>) {
        self.runs = Arc::new(runs);
    }

    /// Everything in order, read from the disk past the cache. What is damaged is added to `faults`.
    pub(crate) fn scan<'a>(&self, loader: &'a Loader<'a>, faults: &'a Faults) -> Result<Merged<'a>, Refusal> {
        let mut sources: Vec<Box<dyn Source + 'a>> = vec![Box::new(Sorted::of(&self.changed))];
        if let Some(frozen) = &self.frozen {
            sources.push(Box::new(Sorted::of(frozen)));
        }
        Merged::add_runs(&mut sources, &self.runs, &[], loader, Some(faults))?;
        Ok(Merged::new(sources))
    }
}

fn free_pieces(node: &Node, blocks: &mut Blocks) {
    if let Body::File(content) = &node.body {
        blocks.freed.extend(content.extents.all().iter().map(|extent| extent.piece.run()));
    }
}
