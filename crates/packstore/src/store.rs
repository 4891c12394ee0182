//! The store as its users see it.
//!
//! ```text
//! Store     readiness, threads
//! Objects   large and shared objects, how records are read and changes count
//! Index | Segments | WriteQueue | CachePolicy
//! ```
//!
//! Locks, in order:
//!
//! 1. keys, by hash (`write_queue::keys`); two of them in the order of their hashes;
//! 2. a volume's turn to write (`write_queue`);
//! 3. what is staged on a volume (`write_queue`);
//! 4. the group that is being written; links; readers of large objects; doubts and torn puts of the index; shards of its table;
//!    volumes and files of the segments; parts of the cache policy. None of these is held while another is taken.
//!
//! Keys and the turn alone are held across disk access; besides, `Volume::copying`, which is taken before the locks of the
//! segments, and the list of volumes while one is added.

mod deletions;
pub(crate) mod extents;
pub(crate) mod getting;
mod in_the_way;
pub(crate) mod iterate;
pub(crate) mod lifetime;
mod links;
pub(crate) mod opening;
mod readiness;
pub(crate) mod stream;
pub(crate) mod touching;
pub(crate) mod usage;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use crate::cache_policy::queues::FifoQueue;
use crate::clock::now_s;
use crate::error::StoreError;
use crate::format::{KEY_BYTES_MAX, Kind, META_BYTES_MAX, Name, RecordHead, Superseded, Tombstone, crc};
use crate::objects::Objects;
use crate::objects::read::{Depth, Record};
use crate::options::{Mode, PutOptions};
use crate::store::iterate::record_from_index;
use crate::store::stream::ObjectWriter;
use crate::write_queue::group::{Ack, Change, TableEntry};
use crate::write_queue::keys::Taken;
use crate::write_queue::staging::{NewRecord, Patience};
pub(crate) use readiness::Readiness;

/// A packed object store. Shared between threads; reads wait for no writes.
///
/// Dropping it without [`Store::close`] is a kill: what was acknowledged is there, and the next opening looks through the
/// index files.
pub struct Store {
    pub(crate) objects: Arc<Objects>,
    pub(crate) readiness: Arc<Readiness>,
    pub(crate) threads: Mutex<Vec<JoinHandle<()>>>,
}

/// A change on its way.
pub struct Pending {
    pub(crate) ack: Option<Arc<Ack>>,
}

impl Pending {
    /// Returns when the change will survive power loss (store mode), or at once (cache mode).
    ///
    /// # Errors
    /// When it could not be written: then it may be there, or not.
    pub fn wait(self) -> Result<(), StoreError> {
        self.ack.map_or(Ok(()), |ack| ack.wait())
    }
}

impl Store {
    pub(crate) fn name_hash(&self, key: &[u8]) -> u64 {
        Name::of(key).hash(self.objects.setup.hash_seed)
    }

    pub(crate) fn checked(key: &[u8], meta: &[u8]) -> Result<(), StoreError> {
        let wrong = |what, bytes: usize, bytes_min, bytes_max: usize| StoreError::Length {
            what,
            bytes: bytes as u64,
            bytes_min,
            bytes_max: bytes_max as u64,
        };
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Err(wrong("key", key.len(), 1, KEY_BYTES_MAX));
        }
        if meta.len() > META_BYTES_MAX {
            return Err(wrong("attributes", meta.len(), 0, META_BYTES_MAX));
        }
        Ok(())
    }

    /// Stores an object, in place of what had the key.
    ///
    /// # Errors
    /// [`StoreError::Full`] in store mode; when key or attributes are too long; when no volume can be written.
    pub fn put(&self, key: &[u8], body: &[u8], options: PutOptions<'_>) -> Result<(), StoreError> {
        self.put_deferred(key, body, options)?.wait()
    }

    /// As [`Store::put`], but does not wait: many can be on their way and share one sync.
    ///
    /// # Errors
    /// As [`Store::put`].
    pub fn put_deferred(
        &self,
        key: &[u8],
        body: &[u8],
        options: PutOptions<'_>,
    ) -> Result<Pending, StoreError> {
        if body.len() > self.objects.setup.shape.piece_bytes() {
            let mut writer = self.put_stream(key, options)?;
            writer.write(body)?;
            return writer.commit_deferred();
        }
        Self::checked(key, options.meta)?;
        self.readiness.wait_ready()?;
        let hash = self.name_hash(key);
        let body_crc = crc(body);
        let taken = Taken::one(self.objects.queue.keys(), hash);
        let old = self.old(key, hash)?;
        let more = old.as_ref().map_or(Ok(Vec::new()), |old| self.objects.ends_with(old))?;
        if old.is_none() && !self.objects.policy.admits(hash) {
            return Ok(Pending { ack: None });
        }
        let head = self.head(Kind::Whole, false, key, body, body_crc, options);
        let old = old.map(|old| old.entry);
        let queue_kind = self.objects.queue_for(hash, old.as_ref(), options.expires_s);
        let meta = options.meta;
        let record = NewRecord {
            head,
            key,
            meta,
            body,
            hash,
            id: 0,
            length: 0,
            old,
            moved: false,
            recovered: false,
            queue_kind,
        };
        match self.staged(&[record], &[], more, taken) {
            Err(StoreError::Full) => self.put_cut(key, body, options),
            staged => staged,
        }
    }

    /// As [`Store::put_deferred`] of a cache, by who must not wait for a disk that writes: an event loop. What the key has now
    /// may have to be read.
    ///
    /// # Errors
    /// [`StoreError::Busy`] when it would have to wait, and for what is not simple: a body of several pieces, another change
    /// of the key under way, a large, linked or damaged object in its place, a store or a cache that admits not all. Then
    /// nothing has changed. Else as [`Store::put`].
    pub fn try_put(&self, key: &[u8], body: &[u8], options: PutOptions<'_>) -> Result<(), StoreError> {
        Self::checked(key, options.meta)?;
        let objects = &self.objects;
        let simple = body.len() <= objects.setup.shape.piece_bytes() && objects.policy.admits_all();
        if objects.setup.mode != Mode::Cache || !self.readiness.is_ready() || !simple {
            return Err(StoreError::Busy);
        }
        let hash = self.name_hash(key);
        let taken = Taken::one_at_once(objects.queue.keys(), hash).ok_or(StoreError::Busy)?;
        let old = match objects.find(Name::of(key), hash, Depth::Head) {
            // Its place is learnt from the index then.
            Err(StoreError::Damaged { .. }) => return Err(StoreError::Busy),
            old => old?,
        };
        if old.as_ref().is_some_and(|old| old.head.kind != Kind::Whole) {
            return Err(StoreError::Busy);
        }
        let head = self.head(Kind::Whole, false, key, body, crc(body), options);
        let old = old.map(|old| old.entry);
        let queue_kind = objects.queue_for(hash, old.as_ref(), options.expires_s);
        let record = NewRecord {
            head,
            key,
            meta: options.meta,
            body,
            hash,
            id: 0,
            length: 0,
            old,
            moved: false,
            recovered: false,
            queue_kind,
        };
        match objects.stage(&[record], &[], &[], Some(taken), Patience::None) {
            Err(StoreError::Full | StoreError::Busy) => {
                if queue_kind == FifoQueue::Main {
                    // It goes to the main queue still when it is put again; shorter runs may do then.
                    objects.policy.note_evicted(hash);
                }
                Err(StoreError::Busy)
            }
            staged => staged.map(drop),
        }
    }

    /// No free run is long enough, but shorter ones may be.
    fn put_cut(&self, key: &[u8], body: &[u8], options: PutOptions<'_>) -> Result<Pending, StoreError> {
        if body.len() < 2 {
            return Err(StoreError::Full);
        }
        let mut writer = ObjectWriter::new(self, key, options).cut_at(body.len().div_ceil(2));
        writer.write(body)?;
        writer.commit_deferred()
    }

    /// Begins an object whose body comes in parts. Nothing counts before [`ObjectWriter::commit`].
    ///
    /// # Errors
    /// When key or attributes are too long.
    pub fn put_stream(&self, key: &[u8], options: PutOptions<'_>) -> Result<ObjectWriter<'_>, StoreError> {
        Self::checked(key, options.meta)?;
        self.readiness.wait_ready()?;
        Ok(ObjectWriter::new(self, key, options))
    }

    /// Puts many objects with one wait at the end. Each is whole or not there; together they are not atomic.
    ///
    /// # Errors
    /// The first failure; others may have been stored.
    pub fn batch<'a>(
        &self,
        puts: impl IntoIterator<Item = (&'a [u8], &'a [u8], PutOptions<'a>)>,
    ) -> Result<(), StoreError> {
        let mut pending = Vec::new();
        let mut first = Ok(());
        for (key, body, options) in puts {
            match self.put_deferred(key, body, options) {
                Ok(put) => pending.push(put),
                Err(error) => {
                    first = Err(error);
                    break;
                }
            }
        }
        for put in pending {
            first = first.and(put.wait());
        }
        first
    }

    pub(crate) fn head(
        &self,
        kind: Kind,
        internal: bool,
        key: &[u8],
        body: &[u8],
        body_crc: u32,
        options: PutOptions<'_>,
    ) -> RecordHead {
        let created_s = options.created_s.unwrap_or_else(now_s);
        RecordHead {
            kind,
            internal,
            key_len: key.len() as u16,
            sequence: self.objects.queue.next_sequence(),
            meta_len: options.meta.len() as u32,
            body_len: body.len() as u32,
            body_crc,
            created_s,
            requested_s: created_s,
            expires_s: options.expires_s,
        }
    }

    /// What a key has now; read whole only when more than its head matters. Its key must be taken.
    pub(crate) fn old(&self, key: &[u8], hash: u64) -> Result<Option<Box<Record>>, StoreError> {
        let name = Name::of(key);
        let found = match self.objects.find(name, hash, Depth::Head) {
            // A damaged object can be replaced and deleted: its place is known, and its length is in its index.
            Err(StoreError::Damaged { file, block, .. }) => return self.damaged_old(key, hash, file, block),
            found => found?,
        };
        match found {
            Some(record) if record.head.kind != Kind::Whole => self.objects.find(name, hash, Depth::Whole),
            found => Ok(found),
        }
    }

    /// An object that cannot be read, as its index record describes it.
    fn damaged_old(
        &self,
        key: &[u8],
        hash: u64,
        file: u32,
        block: u32,
    ) -> Result<Option<Box<Record>>, StoreError> {
        record_from_index(&self.objects, Name::of(key), hash, file, block)
    }

    pub(crate) fn staged(
        &self,
        records: &[NewRecord<'_>],
        removals: &[(u64, TableEntry)],
        more: Vec<Change>,
        taken: Taken<'_>,
    ) -> Result<Pending, StoreError> {
        let ack = self.objects.stage(records, removals, &more, Some(taken), Patience::Some)?;
        Ok(Pending { ack: (self.objects.setup.mode == Mode::Store).then_some(ack) })
    }

    /// Deletes an object; false when there was none, or when it had expired.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn delete(&self, key: &[u8]) -> Result<bool, StoreError> {
        let (was_there, pending) = self.delete_deferred(key)?;
        pending.wait()?;
        Ok(was_there)
    }

    /// As [`Store::delete`], and in cache mode too returns only when the deletion is with the kernel: it survives a kill of the
    /// process, but not the loss of power.
    ///
    /// # Errors
    /// As [`Store::delete`].
    pub fn delete_through(&self, key: &[u8]) -> Result<bool, StoreError> {
        let (was_there, ack) = self.delete_staged(key)?;
        if let Some(ack) = ack {
            for volume in self.objects.segments.all_volumes() {
                volume.queue.ask_for_write(&ack);
            }
            ack.wait()?;
        }
        Ok(was_there)
    }

    /// As [`Store::delete`], but does not wait.
    ///
    /// # Errors
    /// As [`Store::delete`].
    pub fn delete_deferred(&self, key: &[u8]) -> Result<(bool, Pending), StoreError> {
        let (was_there, ack) = self.delete_staged(key)?;
        Ok((was_there, Pending { ack: ack.filter(|_| self.objects.setup.mode == Mode::Store) }))
    }

    /// Also the acknowledgement of the group that writes it, unless it is written already.
    fn delete_staged(&self, key: &[u8]) -> Result<(bool, Option<Arc<Ack>>), StoreError> {
        Self::checked(key, &[])?;
        self.readiness.wait_ready()?;
        let hash = self.name_hash(key);
        let taken = Taken::one(self.objects.queue.keys(), hash);
        let Some(old) = self.old(key, hash)? else {
            let known = self.objects.index.make_certain(hash);
            let tombstone = known.and_then(|known| {
                let generation = self.objects.segments.file(known.file)?.generation.load(Ordering::SeqCst);
                let superseded = Superseded { file: known.file, generation };
                let sequence = self.objects.queue.next_sequence();
                Some(Tombstone { sequence, hash, superseded, deleted_s: now_s() })
            });
            if let Some(tombstone) = tombstone {
                self.objects.queue.stage_tombstones(&[tombstone])?;
                self.flush()?;
            }
            return Ok((tombstone.is_some(), None));
        };
        let was_there = !self.objects.has_expired(old.head.expires_s);
        let more = self.objects.ends_with(&old)?;
        let removal = (self.objects.queue.next_sequence(), old.entry);
        Ok((was_there, Some(self.objects.stage(&[], &[removal], &more, Some(taken), Patience::Some)?)))
    }
}

#[cfg(test)]
mod tests {
    use testkit::SimulatedDisk;

    use super::*;
    use crate::options::{StoreOptions, VolumeSpec};

    fn store(mode: Mode) -> Store {
        let disk = Arc::new(SimulatedDisk::new("store"));
        let volume = VolumeSpec { disk, size_bytes: 8 << 20 };
        Store::create(vec![volume], StoreOptions { mode, ..StoreOptions::default() }).expect("a store")
    }

    fn length(store: &Store, key: &[u8]) -> Option<u64> {
        store.get(key).expect("readable").map(|object| object.length())
    }

    #[test]
    fn keys_and_attributes_have_the_lengths_that_the_format_has_room_for() {
        let checked = |key: usize, meta: usize| Store::checked(&vec![1; key], &vec![1; meta]).is_ok();
        assert!(checked(1, 0) && checked(KEY_BYTES_MAX, META_BYTES_MAX));
        assert!(!checked(0, 0) && !checked(KEY_BYTES_MAX + 1, 0) && !checked(1, META_BYTES_MAX + 1));
    }

    #[test]
    fn a_batch_ends_at_the_first_object_that_cannot_be_put_and_those_before_it_are_there() {
        let store = store(Mode::Store);
        let long = vec![b'k'; KEY_BYTES_MAX + 1];
        let puts = [&b"first"[..], b"second", &long, b"third"];
        let batch = store.batch(puts.map(|key| (key, &b"body"[..], PutOptions::default())));
        assert!(matches!(batch, Err(StoreError::Length { what: "key", .. })), "{batch:?}");
        let lengths = puts.map(|key| length(&store, key));
        assert_eq!(lengths, [Some(4), Some(4), None, None]);
    }

    #[test]
    fn who_must_not_wait_puts_what_is_simple_and_is_told_busy_for_all_else() {
        let busy = |store: &Store, body: &[u8]| {
            matches!(store.try_put(b"key", body, PutOptions::default()), Err(StoreError::Busy))
        };
        assert!(busy(&store(Mode::Store), b"body"), "a store's put waits for the disk");
        let cache = store(Mode::Cache);
        assert!(busy(&cache, &vec![0; cache.objects.setup.shape.piece_bytes() + 1]), "several pieces");
        let taken = Taken::one(cache.objects.queue.keys(), cache.name_hash(b"key"));
        assert!(busy(&cache, b"body"), "the key is being changed");
        drop(taken);
        // The first one asks for a file to fill; the writer makes it.
        cache.put(b"other", b"body", PutOptions::default()).expect("put");
        assert!(!busy(&cache, b"body"));
        assert_eq!(length(&cache, b"key"), Some(4));
    }

    #[test]
    fn a_key_whose_object_has_several_pieces_is_replaced_with_all_of_them_and_deleted_once() {
        let store = store(Mode::Store);
        let large = vec![3; store.objects.setup.shape.piece_bytes() * 2 + 5];
        // Pieces go after the change is acknowledged, and before the next group is.
        let live = || {
            store.flush().expect("flushed");
            store.usage().live_bytes
        };
        store.put(b"key", b"small", PutOptions::default()).expect("put");
        let small = live();
        store.put(b"key", &large, PutOptions::default()).expect("put");
        assert_eq!(length(&store, b"key"), Some(large.len() as u64));
        assert!(live() > large.len() as u64);
        store.put(b"key", b"small", PutOptions::default()).expect("put");
        assert_eq!(live(), small, "its pieces went with it");
        assert!(store.delete(b"key").expect("deleted"));
        assert!(!store.delete(b"key").expect("nothing is there"));
        assert_eq!((live(), store.usage().objects), (0, 0));
    }
}
