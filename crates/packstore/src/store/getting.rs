//! Reads of a store: from the memory tier, else from where the table says.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::error::StoreError;
use crate::fingerprints::Location;
use crate::format::{Kind, Manifest, Name, SHARED};
use crate::index::address::Address;
use crate::objects::Objects;
use crate::objects::object::{Object, Pieces, Stat};
use crate::objects::read::{Depth, ReadBefore, Record};
use crate::options::Mode;
use crate::segments::segment::Segment;
use crate::store::Store;
use crate::store::touching::requested;
use crate::write_queue::group::{Change, TableEntry};

impl Store {
    /// The object of a key.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when its bytes are not those that were put; when the disk fails.
    pub fn get(&self, key: &[u8]) -> Result<Option<Object>, StoreError> {
        if !self.known()? || key.is_empty() {
            return Ok(None);
        }
        let hash = self.name_hash(key);
        if let Some(object) = self.in_memory(key, hash) {
            return Ok(Some(object));
        }
        self.read_object(key, hash, self.objects.policy.memory().forgotten(), None)
    }

    fn in_memory(&self, key: &[u8], hash: u64) -> Option<Object> {
        let objects = &self.objects;
        let record = objects.policy.memory().find(&objects.index, &objects.segments, Name::of(key), hash)?;
        if objects.has_expired(record.head.expires_s) {
            return None;
        }
        requested(&self.objects, key, &record.entry, record.head.requested_s);
        Some(Object::of(stat_of(&record), record, None))
    }

    /// As [`Store::get`], up to where a disk has to be read: that is left to the caller, who need not wait for it.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn begin_get(&self, key: &[u8]) -> Result<Begun, StoreError> {
        if !self.known()? || key.is_empty() {
            return Ok(Begun::Done(None));
        }
        let hash = self.name_hash(key);
        if let Some(object) = self.in_memory(key, hash) {
            return Ok(Begun::Done(Some(object)));
        }
        let forgotten = self.objects.policy.memory().forgotten();
        if let Some(begun) = reading(&self.objects, hash, forgotten) {
            return Ok(Begun::Read(begun));
        }
        self.read_object(key, hash, forgotten, None).map(Begun::Done)
    }

    /// Continues with what was begun; `read`: what was read, nothing when it could not be. An object that changed meanwhile is looked up
    /// again.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn end_get(
        &self,
        key: &[u8],
        reading: Reading,
        read: Option<Vec<u8>>,
    ) -> Result<Option<Object>, StoreError> {
        let Reading { hash, forgotten, bytes, location, generation, .. } = reading;
        // Cut off at the end of a file, or by a signal: who waits for it can tell.
        let before = read.filter(|read| read.len() == bytes);
        let before = before.map(|bytes| ReadBefore { location, generation, bytes });
        if before.is_some() {
            self.objects.note_disk_read();
        }
        self.read_object(key, hash, forgotten, before)
    }

    fn read_object(
        &self,
        key: &[u8],
        hash: u64,
        mut forgotten: u64,
        mut before: Option<ReadBefore>,
    ) -> Result<Option<Object>, StoreError> {
        let name = Name::of(key);
        loop {
            let Some(record) = self.objects.find_with(name, hash, Depth::Whole, before.take())? else {
                return self.objects.is_missing(name, hash).map(|()| None);
            };
            let (mut stat, named) = (stat_of(&record), record.entry);
            if self.objects.has_expired(stat.expires_s) {
                return Ok(None);
            }
            let mut body = record;
            if body.head.kind == Kind::Alias {
                let id = self.objects.shared_id(&body)?;
                let Some(shared) = self.objects.find_internal(id, SHARED, Depth::Whole)? else {
                    if self.objects.setup.mode == Mode::Cache && self.objects.remove(&body.entry) {
                        // The body was evicted: the object is, then.
                        self.objects.apply_now(&[Change::Unlink(id)]);
                        return Ok(None);
                    }
                    if self.is_at(&body.entry) && !self.objects.has_expired(stat.expires_s) {
                        return Err(self.objects.damaged(
                            name,
                            body.address,
                            "the object that it names is gone",
                        ));
                    }
                    forgotten = self.objects.policy.memory().forgotten();
                    continue;
                };
                body = shared;
                stat.length = body.head.body_len.into();
                stat.meta_bytes = body.head.meta_len;
            }
            let mut pieces = None;
            if let Some(manifest) = self.objects.manifest_of(&body)? {
                self.objects.open_large(manifest.id);
                stat.length = manifest.length();
                pieces = Some(Pieces {
                    objects: self.objects.clone(),
                    manifest,
                    key: key.to_vec(),
                    address: body.address,
                });
                // A sweep that did not see this reader yet saw a time that was no later.
                if self.objects.has_expired(stat.expires_s) {
                    return Ok(None);
                }
                if !self.is_at(&body.entry) {
                    forgotten = self.objects.policy.memory().forgotten();
                    continue;
                }
                let pieces = &pieces.as_ref().expect("just made").manifest;
                if self.lacks_pieces(&body.entry, pieces) {
                    return Ok(None);
                }
            }
            let record = Arc::from(body);
            requested(&self.objects, key, &named, stat.requested_s);
            if pieces.is_none() {
                self.objects.policy.memory().keep(&record, forgotten);
            }
            return Ok(Some(Object::of(stat, record, pieces)));
        }
    }

    /// Whether a piece of a large object was evicted or overwritten: the object is gone, then.
    fn lacks_pieces(&self, entry: &TableEntry, manifest: &Manifest) -> bool {
        let lacks_some = self.objects.setup.loses_parts() && !self.objects.has_pieces(manifest);
        if lacks_some && self.objects.remove(entry) {
            self.objects.remove_pieces(manifest);
        }
        lacks_some
    }

    pub(crate) fn is_at(&self, entry: &TableEntry) -> bool {
        self.objects.index.has(entry.hash, entry.location)
    }

    /// Whether what is on disk is known; waits for it in store mode.
    fn known(&self) -> Result<bool, StoreError> {
        if !self.readiness.is_ready() {
            if self.objects.setup.mode == Mode::Cache {
                return Ok(false);
            }
            self.readiness.wait_ready()?;
        }
        Ok(true)
    }

    /// Waits until the store knows all that it holds, but no longer than this; whether it does. Only after a kill there is
    /// something to wait for: until then a cache misses.
    pub fn wait_until_ready(&self, longest: Duration) -> bool {
        self.readiness.wait_ready_for(longest)
    }

    /// Whether an object has the key, as far as memory alone shows: a miss is certain, a hit almost, but that it may have expired.
    pub fn may_contain(&self, key: &[u8]) -> bool {
        self.objects.index.may_have(self.name_hash(key)) || !self.readiness.is_ready()
    }

    /// Length and times of an object.
    ///
    /// # Errors
    /// As [`Store::get`]; the body of a small object is not compared.
    pub fn stat(&self, key: &[u8]) -> Result<Option<Stat>, StoreError> {
        if !self.known()? || key.is_empty() {
            return Ok(None);
        }
        match self.objects.find(Name::of(key), self.name_hash(key), Depth::Head)? {
            Some(record) if self.objects.has_expired(record.head.expires_s) => Ok(None),
            Some(record) if record.head.kind == Kind::Whole => Ok(Some(stat_of(&record))),
            Some(_) => Ok(self.get(key)?.map(|object| object.stat)),
            None => self.objects.is_missing(Name::of(key), self.name_hash(key)).map(|()| None),
        }
    }

    /// An object's attributes with its length and times: for most objects one short read.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn attributes(&self, key: &[u8]) -> Result<Option<(Stat, Vec<u8>)>, StoreError> {
        self.readiness.wait_ready()?;
        if key.is_empty() {
            return Ok(None);
        }
        let name = Name::of(key);
        match self.objects.find(name, self.name_hash(key), Depth::Head)? {
            Some(record) if self.objects.has_expired(record.head.expires_s) => Ok(None),
            Some(record) if record.head.kind == Kind::Whole => {
                Ok(Some((stat_of(&record), record.meta().to_vec())))
            }
            Some(_) => Ok(self.get(key)?.map(|object| (*object.stat(), object.meta().to_vec()))),
            None => Ok(None),
        }
    }
}

/// How far a get came without a disk.
pub enum Begun {
    /// To its end.
    Done(Option<Object>),
    /// This has to be read for it, and given to [`Store::end_get`].
    Read(Reading),
}

/// What has to be read for an object.
pub struct Reading {
    file: Arc<Segment>,
    hash: u64,
    location: Location,
    /// Of the file's index, before it is read.
    generation: u64,
    /// What the memory tier said before it is read.
    forgotten: u64,
    offset: u64,
    bytes: usize,
}

impl Reading {
    /// From where on.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// How many bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl AsFd for Reading {
    fn as_fd(&self) -> BorrowedFd<'_> {
        let body = self.file.body().expect("opened when it was made");
        body.descriptor().expect("asked for when it was made")
    }
}

/// What has to be read for an object of this hash, if it is as simple as that.
fn reading(objects: &Objects, hash: u64, forgotten: u64) -> Option<Reading> {
    let location = objects.index.find(hash).next()?;
    let address = Address::of(location, objects.setup.shape);
    let segment = objects.segments.file(address.file)?;
    let generation = segment.generation.load(Ordering::SeqCst);
    // In this order: what lies there now lies there for as long as that is the generation.
    if !objects.index.has(hash, location) {
        return None;
    }
    if objects.segments.volume(segment.volume).queue.may_have_unwritten() && objects.is_unwritten(address) {
        return None;
    }
    segment.body().ok()?.descriptor()?;
    let (offset, bytes) =
        (objects.setup.shape.offset(address.block), objects.setup.shape.bytes_at_most(address));
    Some(Reading { file: segment, hash, location, generation, forgotten, offset, bytes })
}

pub(crate) fn stat_of(record: &Record) -> Stat {
    Stat {
        length: record.head.body_len.into(),
        meta_bytes: record.head.meta_len,
        created_s: record.head.created_s,
        requested_s: record.head.requested_s,
        expires_s: record.head.expires_s,
        sequence: record.head.sequence,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use disk::LocalDisk;
    use tempfile::TempDir;

    use super::*;
    use crate::options::{PutOptions, StoreOptions, VolumeSpec};

    /// On a disk with descriptors, and without a memory tier.
    fn store() -> (TempDir, Store) {
        let directory = tempfile::tempdir().expect("a directory");
        let disk = Arc::new(LocalDisk::open(directory.path()).expect("it opens"));
        let volume = VolumeSpec { disk, size_bytes: 8 << 20 };
        let options = StoreOptions { memory_bytes_max: 0, ..StoreOptions::default() };
        let store = Store::create(vec![volume], options).expect("a store");
        (directory, store)
    }

    fn body(object: Option<Object>) -> Option<Vec<u8>> {
        object.map(|object| object.read_all().expect("whole"))
    }

    fn begin(store: &Store, key: &[u8]) -> Reading {
        match store.begin_get(key).expect("readable") {
            Begun::Read(reading) => reading,
            Begun::Done(done) => panic!("nothing had to be read: {done:?}"),
        }
    }

    fn read(reading: &Reading) -> Vec<u8> {
        let file = std::fs::File::from(reading.as_fd().try_clone_to_owned().expect("a descriptor"));
        let mut bytes = vec![0; reading.bytes()];
        file.read_exact_at(&mut bytes, reading.offset()).expect("read");
        bytes
    }

    #[test]
    fn a_get_ends_with_what_was_read_for_it_and_reads_itself_what_was_not_read_or_not_all() {
        let (_directory, store) = store();
        store.put(b"key", b"body", PutOptions::default()).expect("put");
        let reads = || store.objects.disk_reads();
        let before = reads();
        let reading = begin(&store, b"key");
        assert_eq!(reads(), before, "the disk is the caller's");
        let bytes = read(&reading);
        let short = bytes[..bytes.len() - 1].to_vec();
        for given in [Some(bytes), Some(short), None] {
            let what = given.as_ref().map(Vec::len);
            let got = store.end_get(b"key", begin(&store, b"key"), given).expect("readable");
            assert_eq!(body(got).as_deref(), Some(&b"body"[..]), "{what:?}");
        }
        assert_eq!(reads(), before + 3, "each of the three was read once");
    }

    #[test]
    fn a_get_of_what_is_not_there_is_done_at_once_and_one_that_was_deleted_meanwhile_ends_with_nothing() {
        let (_directory, store) = store();
        assert!(matches!(store.begin_get(b"none").expect("readable"), Begun::Done(None)));
        assert!(matches!(store.begin_get(b"").expect("readable"), Begun::Done(None)));
        store.put(b"key", b"body", PutOptions::default()).expect("put");
        let reading = begin(&store, b"key");
        let bytes = read(&reading);
        assert!(store.delete(b"key").expect("deleted"));
        assert!(store.end_get(b"key", reading, Some(bytes)).expect("readable").is_none());
    }

    #[test]
    fn what_has_the_hash_of_the_key_and_another_key_is_not_taken_for_it() {
        let (_directory, store) = store();
        store.put(b"other", b"another body", PutOptions::default()).expect("put");
        let reading = begin(&store, b"other");
        let bytes = read(&reading);
        // As if both had one hash: the key in the record decides.
        assert!(store.end_get(b"key", reading, Some(bytes)).expect("readable").is_none());
    }

    #[test]
    fn length_and_attributes_are_those_of_the_object_also_by_its_second_name() {
        let (_directory, store) = store();
        let options = PutOptions { meta: b"meta", created_s: Some(7), ..PutOptions::default() };
        store.put(b"key", b"body", options).expect("put");
        assert!(store.link(b"key", b"twin").expect("linked"));
        for key in [&b"key"[..], b"twin"] {
            let (stat, meta) = store.attributes(key).expect("readable").expect("there");
            assert_eq!((stat.length, stat.created_s, &meta[..]), (4, 7, &b"meta"[..]));
            assert_eq!(store.stat(key).expect("readable").map(|stat| stat.length), Some(4));
            assert!(store.may_contain(key));
        }
        assert!(store.attributes(b"none").expect("readable").is_none());
    }
}
