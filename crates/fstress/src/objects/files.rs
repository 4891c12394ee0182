//! Records of files. See `objects` for what holds.

use rand::Rng;

use super::chunks::Chunks;
use super::names::NameNumbers;
use super::weights::{WeightTree, touch};
use super::{DirectoryId, HandleTable, ObjectName};

/// A file of one [`super::ObjectSets`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileId(u32);

impl FileId {
    /// Position in the set, for tables kept beside it.
    #[inline]
    pub fn slot(self) -> u32 {
        self.0
    }
}

/// Marks on a file, combined by [`FileFlags::union`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileFlags(u8);

impl FileFlags {
    /// Data was written that the server has not yet committed.
    pub const UNCOMMITTED: Self = Self(1);
    /// A series of reads or writes of the whole file is under way.
    pub const IN_SERIES: Self = Self(1 << 1);
    /// A removal has been sent; no further operation should be.
    pub const REMOVING: Self = Self(1 << 2);
    // Removed, but operations on it are in flight.
    const GONE: Self = Self(1 << 6);
    const FREE: Self = Self(1 << 7);

    /// All marks of both.
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all marks of `other` are set.
    #[inline]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    #[inline]
    fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

// `parent` of a free record is the next free slot.
#[derive(Clone, Copy, Default)]
struct FileRecord {
    size_bytes: u64,
    parent: u32,
    name: u32,
    in_flight: u32,
    // In what would be padding. Once at its maximum it stays there: such a file counts as busy for good.
    requests: u16,
    flags: FileFlags,
}

const _: () = assert!(size_of::<FileRecord>() == 24, "ten million files are kept in memory");

const NONE: u32 = u32::MAX;
const RECORDS_PER_CHUNK: usize = 4096;
const PROBES_MAX: u32 = 64;
const CHOICES_AHEAD: usize = 8;

pub(super) struct Files {
    records: Chunks<FileRecord, RECORDS_PER_CHUNK>,
    weights: WeightTree,
    pub(super) handles: HandleTable,
    free_first: u32,
    pub(super) names: NameNumbers,
    count: u64,
    bytes: u64,
    // Choices made but not yet given out: `ahead[..ahead_len]`.
    ahead: [u32; CHOICES_AHEAD],
    ahead_len: usize,
}

impl Default for Files {
    fn default() -> Self {
        Self {
            records: Chunks::default(),
            weights: WeightTree::new(),
            handles: HandleTable::new(),
            free_first: NONE,
            names: NameNumbers::default(),
            count: 0,
            bytes: 0,
            ahead: [0; CHOICES_AHEAD],
            ahead_len: 0,
        }
    }
}

impl Files {
    pub fn insert(&mut self, parent: DirectoryId, size_bytes: u64, weight: u32) -> FileId {
        let record = FileRecord {
            size_bytes,
            parent: parent.slot(),
            name: self.new_name(),
            in_flight: 0,
            requests: 0,
            flags: FileFlags::default(),
        };
        self.count += 1;
        self.bytes += size_bytes;
        if self.free_first == NONE {
            self.records.push(record);
            return FileId(self.weights.push(weight));
        }
        let slot = self.free_first;
        self.free_first = self.records[slot as usize].parent;
        self.records[slot as usize] = record;
        self.weights.set(slot, weight);
        FileId(slot)
    }

    fn new_name(&mut self) -> u32 {
        self.names.next()
    }

    pub fn remove(&mut self, file: FileId) {
        let record = self.live_mut(file);
        record.flags = record.flags.union(FileFlags::GONE);
        let (size_bytes, idle) = (record.size_bytes, record.in_flight == 0);
        self.bytes -= size_bytes;
        self.count -= 1;
        self.weights.set(file.0, 0);
        if idle {
            self.free(file);
        }
    }

    fn free(&mut self, file: FileId) {
        self.handles.clear(file.0);
        let record = &mut self.records[file.0 as usize];
        record.flags = FileFlags::FREE;
        record.parent = self.free_first;
        self.free_first = file.0;
    }

    pub fn rename(&mut self, file: FileId, parent: DirectoryId) -> ObjectName {
        let name = self.new_name();
        let record = self.live_mut(file);
        record.parent = parent.slot();
        record.name = name;
        ObjectName::file(name)
    }

    // Eight choices cost little more than one, as they wait for memory together. So a choice may be up to
    // seven choices old; one that has since lost its weight is not given out.
    #[inline]
    pub fn select(&mut self, rng: &mut impl Rng) -> Option<FileId> {
        loop {
            while self.ahead_len > 0 {
                self.ahead_len -= 1;
                let slot = self.ahead[self.ahead_len];
                if self.weights.weight(slot) > 0 {
                    return Some(FileId(slot));
                }
            }
            self.ahead = self.weights.select_many(rng)?;
            self.ahead_len = CHOICES_AHEAD;
            // What the caller looks at next comes into the cache in the same way.
            touch(self.ahead.map(|slot| self.records[slot as usize].flags.0));
            touch(self.ahead.map(|slot| self.handles.handle_bytes(slot)));
        }
    }

    pub fn select_uniformly(&self, rng: &mut impl Rng) -> Option<FileId> {
        if self.count == 0 {
            return None;
        }
        let slots = self.records.len() as u64;
        let draw = |rng: &mut _| ((u128::from(Rng::next_u64(rng)) * u128::from(slots)) >> 64) as u32;
        for _ in 0..PROBES_MAX {
            let slot = draw(rng);
            if self.is_live(slot) {
                return Some(FileId(slot));
            }
        }
        // Nearly all slots are free: take the next file there is, which is not quite uniform but ends.
        let start = draw(rng);
        (start..slots as u32).chain(0..start).find(|slot| self.is_live(*slot)).map(FileId)
    }

    fn is_live(&self, slot: u32) -> bool {
        !self.records[slot as usize].flags.intersects(FileFlags::FREE.union(FileFlags::GONE))
    }

    pub fn ids(&self) -> impl Iterator<Item = FileId> + '_ {
        (0..self.records.len() as u32).filter(|slot| self.is_live(*slot)).map(FileId)
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    #[inline]
    pub fn parent(&self, file: FileId) -> DirectoryId {
        DirectoryId::of_slot(self.taken(file).parent)
    }

    #[inline]
    pub fn name(&self, file: FileId) -> ObjectName {
        ObjectName::file(self.taken(file).name)
    }

    #[inline]
    pub fn size_bytes(&self, file: FileId) -> u64 {
        self.taken(file).size_bytes
    }

    // A late reply may tell the size of a file that is gone; it no longer counts.
    #[inline]
    pub fn set_size_bytes(&mut self, file: FileId, size_bytes: u64) {
        let gone = self.flags(file).intersects(FileFlags::GONE);
        let before = std::mem::replace(&mut self.taken_mut(file).size_bytes, size_bytes);
        if !gone {
            self.bytes = self.bytes - before + size_bytes;
        }
    }

    pub fn weight(&self, file: FileId) -> u32 {
        self.weights.weight(file.0)
    }

    pub fn set_weight(&mut self, file: FileId, weight: u32) {
        self.live_mut(file);
        self.weights.set(file.0, weight);
    }

    #[inline]
    pub fn flags(&self, file: FileId) -> FileFlags {
        self.taken(file).flags
    }

    #[inline]
    pub fn mark(&mut self, file: FileId, flag: FileFlags, on: bool) {
        let flags = &mut self.taken_mut(file).flags;
        if on { flags.0 |= flag.0 } else { flags.0 &= !flag.0 }
    }

    #[inline]
    pub fn begin_op(&mut self, file: FileId) {
        let record = self.live_mut(file);
        record.in_flight = record
            .in_flight
            .checked_add(1)
            .expect("fewer than 4 thousand million operations in flight on one file");
    }

    #[inline]
    pub fn end_op(&mut self, file: FileId) {
        let record = self.taken_mut(file);
        record.in_flight = record.in_flight.checked_sub(1).expect("every operation that ends has begun");
        if record.in_flight == 0 && record.flags.intersects(FileFlags::GONE) {
            self.free(file);
        }
    }

    #[inline]
    pub fn begin_request(&mut self, file: FileId) {
        let requests = &mut self.taken_mut(file).requests;
        *requests = requests.saturating_add(1);
    }

    #[inline]
    pub fn end_request(&mut self, file: FileId) {
        let requests = &mut self.taken_mut(file).requests;
        if *requests != u16::MAX {
            *requests = requests.checked_sub(1).expect("every request that ends has begun");
        }
    }

    #[inline]
    pub fn has_requests(&self, file: FileId) -> bool {
        self.taken(file).requests > 0
    }

    #[inline]
    pub fn in_flight(&self, file: FileId) -> u32 {
        self.taken(file).in_flight
    }

    pub fn heap_bytes(&self) -> usize {
        self.records.heap_bytes() + self.weights.heap_bytes()
    }

    #[inline]
    fn taken(&self, file: FileId) -> &FileRecord {
        let record = &self.records[file.0 as usize];
        assert!(!record.flags.intersects(FileFlags::FREE), "file slot {} was freed", file.0);
        record
    }

    #[inline]
    fn taken_mut(&mut self, file: FileId) -> &mut FileRecord {
        let record = &mut self.records[file.0 as usize];
        assert!(!record.flags.intersects(FileFlags::FREE), "file slot {} was freed", file.0);
        record
    }

    #[inline]
    fn live_mut(&mut self, file: FileId) -> &mut FileRecord {
        let record = self.taken_mut(file);
        assert!(!record.flags.intersects(FileFlags::GONE), "file in slot {} was removed", file.0);
        record
    }
}
