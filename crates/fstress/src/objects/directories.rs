//! Records of directories. See `objects` for what holds.

use rand::Rng;

use super::chunks::Chunks;
use super::names::NameNumbers;
use super::weights::WeightTree;
use super::{HandleTable, ObjectName};

/// A directory of one [`super::ObjectSets`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DirectoryId(u32);

impl DirectoryId {
    /// The directory that holds all others.
    pub const ROOT: Self = Self(0);

    /// Position in the set, for tables kept beside it.
    #[inline]
    pub fn slot(self) -> u32 {
        self.0
    }

    #[inline]
    pub(super) fn of_slot(slot: u32) -> Self {
        Self(slot)
    }
}

// `parent` of a free record is the next free slot.
#[derive(Clone, Copy, Default)]
struct DirectoryRecord {
    parent: u32,
    name: u32,
    files: u32,
    directories: u32,
    symlinks: u32,
    depth: u16,
    free: bool,
    // Stands in `empty`, where each directory may stand only once.
    listed_empty: bool,
}

impl DirectoryRecord {
    fn is_empty(&self) -> bool {
        self.files == 0 && self.directories == 0 && self.symlinks == 0
    }
}

const NONE: u32 = u32::MAX;
const RECORDS_PER_CHUNK: usize = 1024;

pub(super) struct Directories {
    records: Chunks<DirectoryRecord, RECORDS_PER_CHUNK>,
    weights: WeightTree,
    pub(super) handles: HandleTable,
    free_first: u32,
    pub(super) names: NameNumbers,
    count: u64,
    // Directories that were empty when listed; looked at again before they are given out.
    empty: Vec<u32>,
}

impl Directories {
    pub fn with_root(weight: u32) -> Self {
        let mut directories = Self {
            records: Chunks::default(),
            weights: WeightTree::new(),
            handles: HandleTable::new(),
            free_first: NONE,
            names: NameNumbers::default(),
            count: 1,
            empty: Vec::new(),
        };
        directories.records.push(DirectoryRecord::default());
        directories.weights.push(weight);
        directories
    }

    pub fn insert(&mut self, parent: DirectoryId, weight: u32) -> DirectoryId {
        let depth = self.taken(parent).depth;
        let record = DirectoryRecord {
            parent: parent.0,
            name: self.names.next(),
            depth: depth.checked_add(1).expect("trees are less than 65536 deep"),
            ..DirectoryRecord::default()
        };
        self.taken_mut(parent).directories += 1;
        self.count += 1;
        let slot = if self.free_first == NONE {
            self.records.push(record);
            self.weights.push(weight)
        } else {
            let slot = self.free_first;
            self.free_first = self.records[slot as usize].parent;
            // A slot may still stand in `empty` from its former life.
            let listed_empty = self.records[slot as usize].listed_empty;
            self.records[slot as usize] = DirectoryRecord { listed_empty, ..record };
            self.weights.set(slot, weight);
            slot
        };
        self.list_if_empty(DirectoryId(slot));
        DirectoryId(slot)
    }

    pub fn remove(&mut self, directory: DirectoryId) -> bool {
        let record = *self.taken(directory);
        if directory == DirectoryId::ROOT || !record.is_empty() {
            return false;
        }
        let parent = DirectoryId(record.parent);
        self.taken_mut(parent).directories -= 1;
        self.list_if_empty(parent);
        let free_first = std::mem::replace(&mut self.free_first, directory.0);
        let record = self.taken_mut(directory);
        record.free = true;
        record.parent = free_first;
        self.weights.set(directory.0, 0);
        self.handles.clear(directory.0);
        self.count -= 1;
        true
    }

    fn list_if_empty(&mut self, directory: DirectoryId) {
        let record = self.taken_mut(directory);
        if directory != DirectoryId::ROOT && record.is_empty() && !record.listed_empty {
            record.listed_empty = true;
            self.empty.push(directory.0);
        }
    }

    pub fn take_empty(&mut self) -> Option<DirectoryId> {
        while let Some(slot) = self.empty.pop() {
            let record = &mut self.records[slot as usize];
            record.listed_empty = false;
            if !record.free && record.is_empty() {
                return Some(DirectoryId(slot));
            }
        }
        None
    }

    pub fn count_files(&mut self, directory: DirectoryId, change: i32) {
        let files = &mut self.taken_mut(directory).files;
        *files = files.checked_add_signed(change).expect("as many files leave a directory as came");
        self.list_if_empty(directory);
    }

    pub fn count_symlinks(&mut self, directory: DirectoryId, change: i32) {
        let symlinks = &mut self.taken_mut(directory).symlinks;
        *symlinks = symlinks.checked_add_signed(change).expect("as many symlinks leave a directory as came");
        self.list_if_empty(directory);
    }

    #[inline]
    pub fn select(&self, rng: &mut impl Rng) -> Option<DirectoryId> {
        self.weights.select(rng).map(DirectoryId)
    }

    pub fn ids(&self) -> impl Iterator<Item = DirectoryId> + '_ {
        (0..self.records.len() as u32).filter(|slot| !self.records[*slot as usize].free).map(DirectoryId)
    }

    pub fn deepest_first(&self) -> Vec<DirectoryId> {
        let mut ids: Vec<_> = self.ids().filter(|id| *id != DirectoryId::ROOT).collect();
        ids.sort_by_key(|id| std::cmp::Reverse(self.depth(*id)));
        ids
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    #[inline]
    pub fn parent(&self, directory: DirectoryId) -> DirectoryId {
        DirectoryId(self.taken(directory).parent)
    }

    #[inline]
    pub fn name(&self, directory: DirectoryId) -> ObjectName {
        ObjectName::directory(self.taken(directory).name)
    }

    pub fn depth(&self, directory: DirectoryId) -> u16 {
        self.taken(directory).depth
    }

    pub fn children(&self, directory: DirectoryId) -> (u32, u32, u32) {
        let record = self.taken(directory);
        (record.files, record.directories, record.symlinks)
    }

    pub fn set_weight(&mut self, directory: DirectoryId, weight: u32) {
        self.taken(directory);
        self.weights.set(directory.0, weight);
    }

    pub fn heap_bytes(&self) -> usize {
        self.records.heap_bytes() + self.weights.heap_bytes() + self.empty.capacity() * size_of::<u32>()
    }

    #[inline]
    fn taken(&self, directory: DirectoryId) -> &DirectoryRecord {
        let record = &self.records[directory.0 as usize];
        assert!(!record.free, "directory slot {} was freed", directory.0);
        record
    }

    #[inline]
    fn taken_mut(&mut self, directory: DirectoryId) -> &mut DirectoryRecord {
        let record = &mut self.records[directory.0 as usize];
        assert!(!record.free, "directory slot {} was freed", directory.0);
        record
    }
}
