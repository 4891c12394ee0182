//! Finds a record by its name, reads it in one piece, proves that it is the one.
//!
//! Always holds: what is returned has the key that was asked for, and a body with the right checksum when it was compared.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::error::{StoreError, printable};
use crate::fingerprints::Location;
use crate::format::{Name, RECORD_HEAD_BYTES, RecordHead, crc, internal_key};
use crate::index::address::Address;
use crate::objects::Objects;
use crate::options::{Mode, Verify};
use crate::procedures::recover::index::is_gone;
use crate::segments::segment::Segment;
use crate::write_queue::group::TableEntry;

/// A record as read.
pub(crate) struct Record {
    pub entry: TableEntry,
    pub head: RecordHead,
    /// From its head on; in a look at the head alone, perhaps not all of it.
    pub bytes: Vec<u8>,
    pub address: Address,
    /// Of its file's index, as it was before the record was read.
    pub generation: u64,
    /// The body has the right checksum.
    pub compared: bool,
}

impl Record {
    pub(crate) fn key(&self) -> &[u8] {
        &self.bytes[RECORD_HEAD_BYTES..][..self.head.key_len as usize]
    }

    pub(crate) fn meta_start(&self) -> usize {
        RECORD_HEAD_BYTES + self.head.key_len as usize
    }

    pub(crate) fn meta(&self) -> &[u8] {
        &self.bytes[self.meta_start()..][..self.head.meta_len as usize]
    }

    pub(crate) fn body_start(&self) -> usize {
        self.meta_start() + self.head.meta_len as usize
    }

    pub(crate) fn body(&self) -> &[u8] {
        &self.bytes[self.body_start()..][..self.head.body_len as usize]
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    /// Head, key and attributes.
    Head,
    Whole,
    /// As [`Depth::Whole`], and the body's checksum is compared whatever the sampling says.
    Proven,
}

enum Look {
    Found(Box<Record>),
    /// Another object with the same fingerprint.
    Stranger,
    /// It moved while we looked.
    Moved,
    Damaged(Address, &'static str),
}

/// Enough for a head with its key and usual attributes.
const HEAD_READ_BYTES: usize = 1024;

/// What is looked for, and how well.
#[derive(Clone, Copy)]
struct Sought<'a> {
    name: Name<'a>,
    hash: u64,
    depth: Depth,
}

/// What was read where the table said that the object lies, by somebody who did not wait for it.
pub(crate) struct ReadBefore {
    pub location: Location,
    /// Of its file's index, before it was read.
    pub generation: u64,
    pub bytes: Vec<u8>,
}

impl Objects {
    /// The record of this name; `None` when there is none.
    pub(crate) fn find(
        &self,
        name: Name<'_>,
        hash: u64,
        depth: Depth,
    ) -> Result<Option<Box<Record>>, StoreError> {
        self.find_with(name, hash, depth, None)
    }

    /// As [`Objects::find`]; what was read before is not read again, if it still counts.
    pub(crate) fn find_with(
        &self,
        name: Name<'_>,
        hash: u64,
        depth: Depth,
        mut before: Option<ReadBefore>,
    ) -> Result<Option<Box<Record>>, StoreError> {
        let sought = Sought { name, hash, depth };
        loop {
            let (mut moved, mut damaged) = (false, None);
            for location in self.index.find(hash) {
                let before = before.take_if(|before| before.location == location);
                match self.look(location, sought, before)? {
                    Look::Found(record) => return Ok(Some(record)),
                    Look::Stranger => {}
                    Look::Moved => moved = true,
                    Look::Damaged(address, why) => damaged = Some((address, why)),
                }
            }
            if moved {
                continue;
            }
            return match damaged {
                None => Ok(None),
                Some((address, why)) => Err(self.damaged(name, address, why)),
            };
        }
    }

    /// An object that is not there: an error when it is not known whether it is.
    pub(crate) fn is_missing(&self, name: Name<'_>, hash: u64) -> Result<(), StoreError> {
        let Some(doubt) = self.index.doubt_of(name.key, hash) else { return Ok(()) };
        let address = Address { file: doubt.file, block: doubt.block, blocks_max: 0 };
        Err(self.damaged(name, address, "its index record is damaged"))
    }

    /// The error of an object whose bytes are wrong. Counts it.
    pub(crate) fn damaged(&self, name: Name<'_>, address: Address, why: &'static str) -> StoreError {
        self.damaged_reads.fetch_add(1, Ordering::Relaxed);
        let place = self
            .segments
            .file(address.file)
            .map(|segment| self.segments.volume(segment.volume).disk.place())
            .unwrap_or_default();
        let key = if name.internal { format!("(part {:02x?})", name.key) } else { printable(name.key) };
        StoreError::Damaged { place, key, file: address.file, block: address.block, why }
    }

    fn look(
        &self,
        location: Location,
        sought: Sought<'_>,
        before: Option<ReadBefore>,
    ) -> Result<Look, StoreError> {
        let Sought { hash, depth, .. } = sought;
        let address = Address::of(location, self.setup.shape);
        let in_table = || self.index.has(hash, location);
        let Some(segment) = self.segments.file(address.file) else {
            return Ok(if in_table() { Look::Damaged(address, "its segment is gone") } else { Look::Moved });
        };
        let generation = segment.generation.load(Ordering::SeqCst);
        // The same object may come to the same location again, written again in between: then its segment's index was too.
        let still_there = || {
            in_table()
                && segment.generation.load(Ordering::SeqCst) == generation
                && self.segments.file(address.file).is_some_and(|now| Arc::ptr_eq(&now, &segment))
        };
        if !still_there() {
            return Ok(Look::Moved);
        }
        // Its blocks may have been given to another object while they were read. That begins with its leaving the table:
        // so either the checksum was compared, or the table still has it, or it is looked for again.
        let before = before.filter(|before| before.generation == generation).map(|before| before.bytes);
        match self.look_at(&segment, location, address, sought, before) {
            Ok(Look::Found(mut record)) if depth == Depth::Head || record.compared => {
                record.generation = generation;
                Ok(Look::Found(record))
            }
            _ if !still_there() => Ok(Look::Moved),
            Ok(Look::Found(mut record)) => {
                record.generation = generation;
                Ok(Look::Found(record))
            }
            look => look,
        }
    }

    fn look_at(
        &self,
        segment: &Arc<Segment>,
        location: Location,
        address: Address,
        Sought { name, hash, depth }: Sought<'_>,
        before: Option<Vec<u8>>,
    ) -> Result<Look, StoreError> {
        let all = self.setup.shape.bytes_at_most(address);
        let want = if depth == Depth::Head { all.min(HEAD_READ_BYTES) } else { all };
        let salt = self.setup.body_salt(address.file);
        let mut bytes = match before.map_or_else(|| self.bytes_at(segment, address.block, want), Ok) {
            // The others are there.
            Err(error) if is_gone(&error) => return Ok(Look::Damaged(address, "its data file is missing")),
            bytes => bytes?,
        };
        let mut head = RecordHead::decode(&bytes, salt);
        if head.is_none() && want < all && RecordHead::peek(&bytes).is_some() {
            bytes = self.bytes_at(segment, address.block, all)?;
            head = RecordHead::decode(&bytes, salt);
        }
        let Some(mut head) = head else { return Ok(Look::Damaged(address, "its head fails its checksum")) };
        if self.setup.expires && !RecordHead::has_times(&bytes) {
            // Perhaps they were being written just then.
            let again = self.bytes_at(segment, address.block, RECORD_HEAD_BYTES)?;
            match RecordHead::peek(&again).filter(|_| RecordHead::has_times(&again)) {
                Some(whole) => (head.requested_s, head.expires_s) = (whole.requested_s, whole.expires_s),
                None => return Ok(Look::Damaged(address, "its times fail their checksum")),
            }
        }
        let blocks = self.setup.shape.blocks(head.record_bytes());
        let entry = TableEntry { hash, location, blocks, visible: !head.internal };
        let mut record = Box::new(Record { entry, head, bytes, address, generation: 0, compared: false });
        if head.internal != name.internal || record.key() != name.key {
            return Ok(Look::Stranger);
        }
        if depth != Depth::Head {
            if record.bytes.len() < head.record_bytes() {
                return Ok(Look::Damaged(address, "it is cut off"));
            }
            record.compared = depth == Depth::Proven || self.samples();
            if record.compared && crc(record.body()) != head.body_crc {
                return Ok(Look::Damaged(address, "its body fails its checksum"));
            }
        }
        Ok(Look::Found(record))
    }

    /// As [`Objects::find`]; the body is read, and compared, as often as the store's sampling says.
    pub(crate) fn find_sampled(&self, name: Name<'_>, hash: u64) -> Result<Option<Box<Record>>, StoreError> {
        let depth = if self.samples() { Depth::Proven } else { Depth::Head };
        self.find(name, hash, depth)
    }

    /// Whether the next body is one to be compared.
    fn samples(&self) -> bool {
        match self.setup.verify {
            Verify::Always => true,
            Verify::OneIn(reads) => {
                self.sampled.fetch_add(1, Ordering::Relaxed).is_multiple_of(u64::from(reads.max(1)))
            }
        }
    }

    pub(crate) fn note_disk_read(&self) {
        self.disk_reads.fetch_add(1, Ordering::Relaxed);
    }

    /// Since the opening: reads of data files.
    pub(crate) fn disk_reads(&self) -> u64 {
        self.disk_reads.load(Ordering::Relaxed)
    }

    /// Since the opening: objects that were asked for and found damaged.
    pub(crate) fn damaged_reads(&self) -> u64 {
        self.damaged_reads.load(Ordering::Relaxed)
    }

    /// Reads without counting what is damaged.
    pub(crate) fn uncounted<T>(&self, read: impl FnOnce() -> T) -> T {
        let before = self.damaged_reads();
        let read = read();
        self.damaged_reads.store(before, Ordering::Relaxed);
        read
    }

    /// Whether the record at this place is only in memory.
    pub(crate) fn is_unwritten(&self, address: Address) -> bool {
        let Some(segment) = self.segments.file(address.file) else { return false };
        let volume = self.segments.volume(segment.volume);
        volume.queue.is_unwritten(address.file, address.block)
    }

    /// Bytes from a block on: from memory while they are not written yet.
    fn bytes_at(&self, segment: &Arc<Segment>, block: u32, len: usize) -> Result<Vec<u8>, StoreError> {
        if self.setup.mode == Mode::Cache && !self.setup.read_only {
            let volume = self.segments.volume(segment.volume);
            if let Some(bytes) = volume.queue.unwritten(segment.number, block) {
                return Ok(bytes);
            }
        }
        self.note_disk_read();
        let mut bytes = vec![0; len];
        let read = segment.body()?.read_at(&mut bytes, self.setup.shape.offset(block))?;
        bytes.truncate(read);
        Ok(bytes)
    }

    pub(crate) fn find_internal(
        &self,
        id: u64,
        part: u32,
        depth: Depth,
    ) -> Result<Option<Box<Record>>, StoreError> {
        let key = internal_key(id, part);
        let name = Name { internal: true, key: &key };
        let hash = name.hash(self.setup.hash_seed);
        let found = self.find(name, hash, depth)?;
        if let Some(record) = &found {
            self.index.touch(&record.entry);
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use testkit::SimulatedDisk;

    use super::*;
    use crate::options::{PutOptions, StoreOptions, VolumeSpec};
    use crate::store::Store;

    fn store(options: StoreOptions) -> (Arc<SimulatedDisk>, Store) {
        let disk = Arc::new(SimulatedDisk::new("read"));
        let volume = VolumeSpec { disk: disk.clone(), size_bytes: 8 << 20 };
        let store = Store::create(vec![volume], StoreOptions { memory_bytes_max: 0, ..options });
        (disk, store.expect("a store"))
    }

    fn put(store: &Store, key: &[u8], body: &[u8]) -> u64 {
        store.put(key, body, PutOptions::default()).expect("put");
        store.name_hash(key)
    }

    #[test]
    fn what_was_read_before_counts_while_its_segment_is_as_it_was_and_is_read_again_else() {
        let (_, store) = store(StoreOptions::default());
        let hash = put(&store, b"key", b"body");
        let objects = &store.objects;
        let find = |before| {
            let found = objects.find_with(Name::of(b"key"), hash, Depth::Proven, before)?;
            Ok::<_, StoreError>(found.map(|record| record.body().to_vec()))
        };
        let record = objects.find(Name::of(b"key"), hash, Depth::Whole).expect("readable").expect("put");
        let (location, generation) = (record.entry.location, record.generation);
        let before =
            |generation, bytes: &[u8]| Some(ReadBefore { location, generation, bytes: bytes.to_vec() });
        let reads = objects.disk_reads();
        assert_eq!(find(before(generation, &record.bytes)).expect("whole"), Some(b"body".to_vec()));
        assert_eq!(objects.disk_reads(), reads, "the bytes were there");
        let zeros = vec![0; record.bytes.len()];
        let damaged = find(before(generation, &zeros));
        assert!(matches!(damaged, Err(StoreError::Damaged { .. })), "{damaged:?}");
        // The index was rewritten meanwhile: what was read may be another object's.
        assert_eq!(find(before(generation + 1, &zeros)).expect("whole"), Some(b"body".to_vec()));
        assert_eq!(objects.disk_reads(), reads + 1);
    }

    #[test]
    fn a_head_is_read_without_its_body_and_a_key_with_the_same_hash_is_no_other_object() {
        let (_, store) = store(StoreOptions::default());
        let hash = put(&store, b"key", &[7; 100_000]);
        let head = store.objects.find(Name::of(b"key"), hash, Depth::Head).expect("readable").expect("put");
        assert_eq!((head.bytes.len(), head.head.body_len), (HEAD_READ_BYTES, 100_000));
        let other = store.objects.find(Name::of(b"other"), hash, Depth::Head);
        assert!(other.expect("readable").is_none(), "its key is not the one that is stored there");
    }

    #[test]
    fn one_body_in_so_many_is_compared_and_one_that_must_be_is_compared_always() {
        let (_, store) = store(StoreOptions { verify: Verify::OneIn(3), ..StoreOptions::default() });
        let hash = put(&store, b"key", b"body");
        let compared = |depth| {
            let found = store.objects.find(Name::of(b"key"), hash, depth);
            found.expect("readable").expect("put").compared
        };
        let sampled = (0..6).map(|_| compared(Depth::Whole)).collect::<Vec<_>>();
        assert_eq!(sampled, [true, false, false, true, false, false]);
        assert!((0..3).all(|_| compared(Depth::Proven)));
    }

    #[test]
    fn a_damaged_body_is_an_error_that_is_counted_unless_the_reader_asks_not_to() {
        let (disk, store) = store(StoreOptions::default());
        let hash = put(&store, b"key", b"body");
        let record =
            store.objects.find(Name::of(b"key"), hash, Depth::Whole).expect("readable").expect("put");
        let at = store.objects.setup.shape.offset(record.address.block) + record.body_start() as u64;
        assert!(disk.flip(&Segment::data_name(record.address.file), at * 8));
        let find = || store.objects.find(Name::of(b"key"), hash, Depth::Whole);
        assert!(matches!(store.objects.uncounted(find), Err(StoreError::Damaged { .. })));
        assert_eq!(store.objects.damaged_reads(), 0);
        assert!(matches!(find(), Err(StoreError::Damaged { .. })));
        assert_eq!(store.objects.damaged_reads(), 1);
    }
}
