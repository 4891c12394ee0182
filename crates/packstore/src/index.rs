//! Which objects there are and where each is stored, in memory; and what is not known for certain.
//!
//! 1. A look-up yields locations that may be the object's. The caller compares the key that is stored there.
//! 2. A change adds, moves or removes one entry: one atomic step for those who look up meanwhile.
//! 3. A look-up that found nothing is certain unless `uncertain` names the key.
//!
//! Always holds: an entry that a method returned as removed or moved was there, and no other caller got it too. So a caller that
//! gets `true` accounts for its blocks.
//! Not here: how many blocks of a segment are live (`segments`), the names of shared objects (`links`).
//! The lock of each set is a leaf. Look-ups take none, except for a key that is not there while some key is uncertain.

pub(crate) mod address;
pub mod fingerprints;

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use crate::fingerprints::{Candidates, FingerprintIndex, Location};
use crate::hashed::Hashed;
use crate::index::address::Address;
use crate::locks::locked;
use crate::options::Shape;
use crate::write_queue::group::TableEntry;

/// The objects of a store.
pub(crate) struct Index {
    table: FingerprintIndex,
    shape: Shape,
    objects: AtomicI64,
    /// Sequence numbers of puts on disk that never counted: power was lost before they were whole.
    torn: Mutex<HashSet<u64>>,
    /// Keys, by hash, whose newest record is one that no index record names any more.
    uncertain: Mutex<HashMap<u64, Uncertain, Hashed>>,
    is_uncertain: AtomicBool,
    is_rebuilt: AtomicBool,
    /// Indexes were damaged that alone say what there is.
    is_incomplete: AtomicBool,
    /// Parts of objects with sequence numbers below it count though perhaps no object names them; 0: none.
    orphans_end: AtomicU64,
}

/// A record whose index record is damaged: what its key names is not known.
#[derive(Clone, Debug)]
pub(crate) struct Uncertain {
    pub key: Vec<u8>,
    pub file: u32,
    pub block: u32,
}

impl Index {
    pub(crate) fn new(table: FingerprintIndex, shape: Shape) -> Self {
        Self {
            table,
            shape,
            objects: AtomicI64::new(0),
            torn: Mutex::default(),
            uncertain: Mutex::default(),
            is_uncertain: AtomicBool::new(false),
            is_rebuilt: AtomicBool::new(false),
            is_incomplete: AtomicBool::new(false),
            orphans_end: AtomicU64::new(0),
        }
    }

    /// Where objects with this hash are stored; rarely also one with another hash.
    pub(crate) fn find(&self, hash: u64) -> Candidates<'_> {
        self.table.find(hash)
    }

    /// Whether some object may have this hash.
    pub(crate) fn may_have(&self, hash: u64) -> bool {
        self.table.find(hash).next().is_some()
    }

    /// Whether an object with this hash is stored at this place.
    pub(crate) fn has(&self, hash: u64, location: Location) -> bool {
        self.table.find(hash).any(|found| found == location)
    }

    /// The place of the object with this hash that is stored at this block of this file, if there is one.
    pub(crate) fn location_of(&self, hash: u64, file: u32, block: u32) -> Option<Location> {
        self.table.find(hash).find(|&location| {
            let address = Address::of(location, self.shape);
            address.file == file && address.block == block
        })
    }

    /// Adds an object.
    pub(crate) fn insert(&self, new: &TableEntry) {
        self.table.insert(new.hash, new.location);
        self.objects.fetch_add(i64::from(new.visible), Ordering::Relaxed);
    }

    /// Adds what a rebuild found. It counts the objects itself: [`Index::learn`].
    pub(crate) fn insert_found(&self, hash: u64, location: Location) {
        self.table.insert(hash, location);
    }

    /// Moves an object. False, and nothing done, when it was not at the old place any more.
    pub(crate) fn replace(&self, old: &TableEntry, new: &TableEntry) -> bool {
        self.table.replace(new.hash, old.location, new.location)
    }

    /// Removes an object. False when it was not there any more.
    pub(crate) fn remove(&self, entry: &TableEntry) -> bool {
        let there = self.table.remove(entry.hash, entry.location);
        if there {
            self.objects.fetch_sub(i64::from(entry.visible), Ordering::Relaxed);
        }
        there
    }

    /// Removes all objects whose place is not to be kept, and returns how many these were. [`Index::learn`] sets the count.
    pub(crate) fn retain(&self, keep: impl Fn(Location) -> bool) -> usize {
        self.table.retain(keep)
    }

    /// Counts a request of an object for eviction.
    pub(crate) fn touch(&self, entry: &TableEntry) {
        self.table.touch(entry.hash, entry.location);
    }

    /// Requests of an object that count for eviction.
    pub(crate) fn touches(&self, hash: u64, location: Location) -> u16 {
        self.table.touches(hash, location)
    }

    /// Takes requests back from an object.
    pub(crate) fn untouch(&self, hash: u64, location: Location, touches: u16) {
        self.table.untouch(hash, location, touches);
    }

    /// Users' objects.
    pub(crate) fn objects(&self) -> u64 {
        self.objects.load(Ordering::Relaxed).max(0) as u64
    }

    /// Sets what a rebuild, or the table of the last clean stop, found besides the entries.
    pub(crate) fn learn(&self, objects: i64, torn: HashSet<u64>) {
        self.objects.store(objects.max(0), Ordering::Relaxed);
        *locked(&self.torn) = torn;
    }

    /// Whether the put with this sequence number never counted.
    pub(crate) fn is_torn(&self, sequence: u64) -> bool {
        locked(&self.torn).contains(&sequence)
    }

    /// Notes that a put counts after all: what it lacked was found.
    pub(crate) fn not_torn(&self, sequence: u64) {
        locked(&self.torn).remove(&sequence);
    }

    pub(crate) fn torn(&self) -> HashSet<u64> {
        locked(&self.torn).clone()
    }

    /// Notes that it is not known what a key names.
    pub(crate) fn doubt(&self, hash: u64, what: Uncertain) {
        locked(&self.uncertain).insert(hash, what);
        self.is_uncertain.store(true, Ordering::Release);
    }

    /// What is not known of a key, if anything.
    pub(crate) fn doubt_of(&self, key: &[u8], hash: u64) -> Option<Uncertain> {
        if !self.is_uncertain.load(Ordering::Acquire) {
            return None;
        }
        locked(&self.uncertain).get(&hash).filter(|uncertain| uncertain.key == key).cloned()
    }

    /// From now on it is known what the key names. Returns what was not known.
    pub(crate) fn make_certain(&self, hash: u64) -> Option<Uncertain> {
        if !self.is_uncertain.load(Ordering::Acquire) {
            return None;
        }
        let mut uncertain = locked(&self.uncertain);
        let known = uncertain.remove(&hash);
        self.is_uncertain.store(!uncertain.is_empty(), Ordering::Release);
        known
    }

    pub(crate) fn doubts(&self) -> Vec<Uncertain> {
        locked(&self.uncertain).values().cloned().collect()
    }

    /// Only the index files said what there is: the last stop was not clean.
    pub(crate) fn is_rebuilt(&self) -> bool {
        self.is_rebuilt.load(Ordering::SeqCst)
    }

    pub(crate) fn note_rebuild(&self) {
        self.is_rebuilt.store(true, Ordering::SeqCst);
    }

    /// Whether indexes were damaged that alone say what there is, until a repair.
    pub(crate) fn is_incomplete(&self) -> bool {
        self.is_incomplete.load(Ordering::SeqCst)
    }

    pub(crate) fn note_incomplete(&self) {
        self.is_incomplete.store(true, Ordering::SeqCst);
    }

    pub(crate) fn note_complete(&self) {
        self.is_incomplete.store(false, Ordering::SeqCst);
    }

    /// Notes that parts of objects count that perhaps no object names, all with sequence numbers below this.
    pub(crate) fn note_orphans(&self, sequence_end: u64) {
        self.orphans_end.store(sequence_end, Ordering::SeqCst);
    }

    /// As given to [`Index::note_orphans`], once.
    pub(crate) fn take_orphans_end(&self) -> Option<u64> {
        Some(self.orphans_end.swap(0, Ordering::SeqCst)).filter(|&end| end > 0)
    }

    /// Writes the entries for the next opening.
    pub(crate) fn snapshot(&self, out: &mut impl io::Write) -> io::Result<()> {
        self.table.snapshot(out)
    }

    /// Memory that the entries take.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.table.memory_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::address::location;

    const SHAPE: Shape = Shape { block_bytes: 64, segment_blocks: 1 << 14 };

    fn index() -> Index {
        Index::new(FingerprintIndex::with_capacity(1024), SHAPE)
    }

    fn entry(hash: u64, file: u32, block: u32, visible: bool) -> TableEntry {
        TableEntry {
            hash,
            location: location(file, block, 3, SHAPE).expect("it can be said"),
            blocks: 3,
            visible,
        }
    }

    #[test]
    fn an_entry_is_removed_once_and_only_users_objects_count() {
        let index = index();
        let (users, ours) = (entry(1 << 40, 0, 10, true), entry(2 << 40, 0, 20, false));
        index.insert(&users);
        index.insert(&ours);
        assert_eq!(index.objects(), 1);
        assert!(index.remove(&users) && !index.remove(&users), "the second caller does not get it");
        assert!(index.remove(&ours));
        assert_eq!(index.objects(), 0);
    }

    #[test]
    fn an_object_that_moved_is_found_at_its_new_place_alone_and_moves_from_there_alone() {
        let index = index();
        let (old, new) = (entry(7 << 40, 0, 10, true), entry(7 << 40, 3, 99, true));
        index.insert(&old);
        assert!(index.replace(&old, &new) && !index.replace(&old, &new));
        assert_eq!(
            (index.location_of(old.hash, 0, 10), index.location_of(old.hash, 3, 99)),
            (None, Some(new.location))
        );
        assert!(!index.has(old.hash, old.location) && index.has(new.hash, new.location));
        assert_eq!(index.objects(), 1, "it is one object still");
    }

    #[test]
    fn a_doubt_is_of_one_key_and_ends_with_its_next_change() {
        let index = index();
        let what = Uncertain { key: b"key".to_vec(), file: 4, block: 5 };
        assert!(index.make_certain(9).is_none());
        index.doubt(9, what);
        assert!(index.doubt_of(b"other", 9).is_none(), "another key with the same hash");
        assert_eq!(index.doubt_of(b"key", 9).map(|what| (what.file, what.block)), Some((4, 5)));
        assert_eq!(index.make_certain(9).map(|what| what.key), Some(b"key".to_vec()));
        assert!(index.doubt_of(b"key", 9).is_none() && index.doubts().is_empty());
    }
}
