//! Records of symbolic links. See `objects` for what holds.

use rand::Rng;

use super::chunks::Chunks;
use super::names::NameNumbers;
use super::weights::WeightTree;
use super::{DirectoryId, HandleTable, ObjectName};

/// A symbolic link of one [`super::ObjectSets`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SymlinkId(u32);

impl SymlinkId {
    /// Position in the set, for tables kept beside it.
    #[inline]
    pub fn slot(self) -> u32 {
        self.0
    }
}

// `parent` of a free record is the next free slot.
#[derive(Clone, Copy, Default)]
struct SymlinkRecord {
    parent: u32,
    name: u32,
    free: bool,
}

const NONE: u32 = u32::MAX;
const RECORDS_PER_CHUNK: usize = 1024;

pub(super) struct Symlinks {
    records: Chunks<SymlinkRecord, RECORDS_PER_CHUNK>,
    weights: WeightTree,
    pub(super) handles: HandleTable,
    free_first: u32,
    pub(super) names: NameNumbers,
    count: u64,
}

impl Default for Symlinks {
    fn default() -> Self {
        Self {
            records: Chunks::default(),
            weights: WeightTree::new(),
            handles: HandleTable::new(),
            free_first: NONE,
            names: NameNumbers::default(),
            count: 0,
        }
    }
}

impl Symlinks {
    pub fn insert(&mut self, parent: DirectoryId, weight: u32) -> SymlinkId {
        let record = SymlinkRecord { parent: parent.slot(), name: self.names.next(), free: false };
        self.count += 1;
        if self.free_first == NONE {
            self.records.push(record);
            return SymlinkId(self.weights.push(weight));
        }
        let slot = self.free_first;
        self.free_first = self.records[slot as usize].parent;
        self.records[slot as usize] = record;
        self.weights.set(slot, weight);
        SymlinkId(slot)
    }

    pub fn remove(&mut self, symlink: SymlinkId) {
        self.taken(symlink);
        self.records[symlink.0 as usize] = SymlinkRecord { parent: self.free_first, name: 0, free: true };
        self.free_first = symlink.0;
        self.weights.set(symlink.0, 0);
        self.handles.clear(symlink.0);
        self.count -= 1;
    }

    #[inline]
    pub fn select(&self, rng: &mut impl Rng) -> Option<SymlinkId> {
        self.weights.select(rng).map(SymlinkId)
    }

    pub fn ids(&self) -> impl Iterator<Item = SymlinkId> + '_ {
        (0..self.records.len() as u32).filter(|slot| !self.records[*slot as usize].free).map(SymlinkId)
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    #[inline]
    pub fn parent(&self, symlink: SymlinkId) -> DirectoryId {
        DirectoryId::of_slot(self.taken(symlink).parent)
    }

    #[inline]
    pub fn name(&self, symlink: SymlinkId) -> ObjectName {
        ObjectName::symlink(self.taken(symlink).name)
    }

    pub fn set_weight(&mut self, symlink: SymlinkId, weight: u32) {
        self.taken(symlink);
        self.weights.set(symlink.0, weight);
    }

    pub fn heap_bytes(&self) -> usize {
        self.records.heap_bytes() + self.weights.heap_bytes()
    }

    #[inline]
    fn taken(&self, symlink: SymlinkId) -> &SymlinkRecord {
        let record = &self.records[symlink.0 as usize];
        assert!(!record.free, "symlink slot {} was freed", symlink.0);
        record
    }
}
