//! The store as its users see it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use files::Disk;

use crate::core::{Core, NewRecord, now_s};
use crate::error::StoreError;
use crate::format::{
    KEY_BYTES_MAX, Kind, META_BYTES_MAX, Name, RecordHead, SHARED, TIMES_AT, VolumeHead, crc, encode_times,
    internal_key,
};
use crate::group::{Change, Gate, Held};
use crate::keys::{Taken, locked};
use crate::object::{Object, Pieces, Stat};
use crate::options::{Mode, OpenOptions, PutOptions, StoreOptions, VolumeSpec};
use crate::read::{Depth, Record};
use crate::stream::ObjectWriter;
use crate::volume::{HEAD_NAME, Volume, hold, write_head};

/// A packed object store. Shared between threads; reads wait for no writes.
///
/// Dropping it without [`Store::close`] is a kill: what was acknowledged is there, and the next opening looks through the
/// index files.
pub struct Store {
    pub(crate) core: Arc<Core>,
    pub(crate) threads: Mutex<Vec<JoinHandle<()>>>,
}

/// A change on its way.
pub struct Pending {
    gate: Option<Arc<Gate>>,
}

impl Pending {
    /// Returns when the change will survive power loss (store mode), or at once (cache mode).
    ///
    /// # Errors
    /// When it could not be written: then it may be there, or not.
    pub fn wait(self) -> Result<(), StoreError> {
        self.gate.map_or(Ok(()), |gate| gate.wait())
    }
}

impl Store {
    /// Makes an empty store and opens it.
    ///
    /// # Errors
    /// When a setting cannot be, a directory holds a store already, or a disk fails.
    pub fn create(volumes: Vec<VolumeSpec>, options: StoreOptions) -> Result<Self, StoreError> {
        let shape = options.shape(&volumes)?;
        let (store, hash_seed) = (u128::from(random()) << 64 | u128::from(random()), random());
        let disks = volumes.iter().map(|volume| volume.disk.clone()).collect::<Vec<_>>();
        for (number, spec) in volumes.iter().enumerate() {
            let head = VolumeHead {
                store,
                hash_seed,
                volume: number as u32,
                volumes: volumes.len() as u32,
                block_bytes: shape.block_bytes,
                packed_blocks: shape.packed_blocks,
                size_bytes: spec.size_bytes,
                object_bytes_mean: options.object_bytes_mean,
                durable: options.mode == Mode::Store,
                openings: 0,
                begun: 0,
            };
            make_volume(&spec.disk, &head)?;
        }
        Self::open(
            disks,
            OpenOptions { cache: options.cache, verify: options.verify, ..OpenOptions::default() },
        )
    }

    /// Opens a store: at once after a clean stop; else it learns in the background what is there, while a cache misses
    /// and a store lets its users wait.
    ///
    /// # Errors
    /// When another process has it, no volume is one, they do not belong together, or one is missing in store mode.
    pub fn open(disks: Vec<Arc<dyn Disk>>, options: OpenOptions) -> Result<Self, StoreError> {
        crate::opening::open(disks, options)
    }

    pub(crate) fn name_hash(&self, key: &[u8]) -> u64 {
        Name::of(key).hash(self.core.hash_seed)
    }

    fn checked(key: &[u8], meta: &[u8]) -> Result<(), StoreError> {
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
        if body.len() > self.core.shape.piece_bytes() {
            let mut writer = self.put_stream(key, options)?;
            writer.write(body)?;
            return writer.commit_deferred();
        }
        Self::checked(key, options.meta)?;
        self.core.wait_ready()?;
        let hash = self.name_hash(key);
        let body_crc = crc(body);
        let taken = Taken::one(&self.core.keys, hash);
        let old = self.old(key, hash)?;
        let more = old.as_ref().map_or(Ok(Vec::new()), |old| self.core.ends_with(old))?;
        let head = self.head(Kind::Whole, false, key, body, body_crc, options);
        let old = old.map(|old| old.held);
        let record =
            NewRecord { head, key, meta: options.meta, body, hash, id: 0, length: 0, old, moved: false };
        match self.staged(&[record], &[], more, taken) {
            Err(StoreError::Full) => self.put_cut(key, body, options),
            staged => staged,
        }
    }

    /// No stretch is long enough, but shorter ones may be.
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
        self.core.wait_ready()?;
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
            sequence: self.core.next_sequence(),
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
        let found = match self.core.find(name, hash, Depth::Head) {
            // A damaged object can be replaced and deleted: its place is known, and its length is in its index.
            Err(StoreError::Damaged { file, block, .. }) => return self.damaged_old(key, hash, file, block),
            found => found?,
        };
        match found {
            Some(record) if record.head.kind != Kind::Whole => self.core.find(name, hash, Depth::Whole),
            found => Ok(found),
        }
    }

    /// An object that cannot be read, as its control block tells it.
    fn damaged_old(
        &self,
        key: &[u8],
        hash: u64,
        file: u32,
        block: u32,
    ) -> Result<Option<Box<Record>>, StoreError> {
        self.core.record_from_index(Name::of(key), hash, file, block)
    }

    pub(crate) fn staged(
        &self,
        records: &[NewRecord<'_>],
        voids: &[(u64, Held)],
        more: Vec<Change>,
        taken: Taken<'_>,
    ) -> Result<Pending, StoreError> {
        let gate = self.core.stage(records, voids, more, taken.hand_over())?;
        Ok(Pending { gate: (self.core.mode == Mode::Store).then_some(gate) })
    }

    /// The object of a key.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] when its bytes are not those that were put; when the disk fails.
    pub fn get(&self, key: &[u8]) -> Result<Option<Object>, StoreError> {
        if !self.known()? || key.is_empty() {
            return Ok(None);
        }
        let hash = self.name_hash(key);
        let name = Name::of(key);
        loop {
            let Some(record) = self.core.find(name, hash, Depth::Whole)? else { return Ok(None) };
            self.core.touched.touch(hash);
            let mut stat = stat_of(&record);
            let mut body = record;
            if body.head.kind == Kind::Alias {
                let id = self.core.shared_id(&body)?;
                let Some(shared) = self.core.find_internal(id, SHARED, Depth::Whole)? else {
                    if self.is_at(&body.held) {
                        return Err(self.core.damaged(name, body.spot, "the object that it names is gone"));
                    }
                    continue;
                };
                body = shared;
                stat.length = body.head.body_len.into();
                stat.meta_bytes = body.head.meta_len;
            }
            let mut pieces = None;
            if let Some(manifest) = self.core.manifest_of(&body)? {
                self.core.open_large(manifest.id);
                stat.length = manifest.length();
                pieces =
                    Some(Pieces { core: self.core.clone(), manifest, key: key.to_vec(), spot: body.spot });
                if !self.is_at(&body.held) {
                    continue;
                }
                let pieces = &pieces.as_ref().expect("just made").manifest;
                if self.core.mode == Mode::Cache && !self.core.has_pieces(pieces) {
                    // One was evicted: the object is, then.
                    if self.core.remove(&body.held) {
                        self.core.remove_pieces(pieces);
                    }
                    return Ok(None);
                }
            }
            let meta = body.meta_start()..body.body_start();
            let range = body.body_start()..body.body_start() + body.head.body_len as usize;
            let bytes = body.bytes;
            return Ok(Some(Object { stat, bytes, meta, body: range, pieces }));
        }
    }

    fn is_at(&self, held: &Held) -> bool {
        self.core.table.find(held.hash).any(|place| place == held.place)
    }

    /// Whether what is on disk is known; waits for it in store mode.
    fn known(&self) -> Result<bool, StoreError> {
        if !self.core.is_ready() {
            if self.core.mode == Mode::Cache {
                return Ok(false);
            }
            self.core.wait_ready()?;
        }
        Ok(true)
    }

    /// Whether an object has the key, as memory alone tells: a miss is certain, a hit almost.
    pub fn may_contain(&self, key: &[u8]) -> bool {
        self.core.table.find(self.name_hash(key)).next().is_some() || !self.core.is_ready()
    }

    /// Length and times of an object.
    ///
    /// # Errors
    /// As [`Store::get`]; the body of a small object is not compared.
    pub fn stat(&self, key: &[u8]) -> Result<Option<Stat>, StoreError> {
        if !self.known()? || key.is_empty() {
            return Ok(None);
        }
        match self.core.find(Name::of(key), self.name_hash(key), Depth::Head)? {
            Some(record) if record.head.kind == Kind::Whole => Ok(Some(stat_of(&record))),
            Some(_) => Ok(self.get(key)?.map(|object| object.stat)),
            None => Ok(None),
        }
    }

    /// Deletes an object; false when there was none.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn delete(&self, key: &[u8]) -> Result<bool, StoreError> {
        let (was_there, pending) = self.delete_deferred(key)?;
        pending.wait()?;
        Ok(was_there)
    }

    /// As [`Store::delete`], but does not wait.
    ///
    /// # Errors
    /// As [`Store::delete`].
    pub fn delete_deferred(&self, key: &[u8]) -> Result<(bool, Pending), StoreError> {
        Self::checked(key, &[])?;
        self.core.wait_ready()?;
        let hash = self.name_hash(key);
        let taken = Taken::one(&self.core.keys, hash);
        let Some(old) = self.old(key, hash)? else { return Ok((false, Pending { gate: None })) };
        let more = self.core.ends_with(&old)?;
        let void = (self.core.next_sequence(), old.held);
        Ok((true, self.staged(&[], &[void], more, taken)?))
    }

    /// Notes that an object was asked for, and when it expires from now on if that changed; false when there is none.
    /// Written in place, not synced: after power loss the old times may be back.
    ///
    /// # Errors
    /// When it cannot be read or written.
    pub fn touch(&self, key: &[u8], expires_s: Option<u32>) -> Result<bool, StoreError> {
        Self::checked(key, &[])?;
        self.core.wait_ready()?;
        if self.core.read_only {
            return Err(StoreError::ReadOnly { why: "the store was opened read-only".to_owned() });
        }
        let hash = self.name_hash(key);
        let _taken = Taken::one(&self.core.keys, hash);
        let Some(record) = self.core.find(Name::of(key), hash, Depth::Head)? else { return Ok(false) };
        self.core.touched.touch(hash);
        if self.core.is_unwritten(record.spot) {
            // The group that brings the record to disk would write over the times.
            self.flush()?;
        }
        let expires_s = expires_s.unwrap_or(record.head.expires_s);
        let times = encode_times(record.head.sequence, now_s(), expires_s);
        let Some(file) = self.core.file(record.spot.file) else { return Ok(false) };
        let volume = self.core.volume(file.volume);
        if let Some(failure) = volume.failure() {
            return Err(failure);
        }
        let pin = file.pin();
        if !self.is_at(&record.held) {
            return Ok(false);
        }
        let offset = u64::from(record.spot.block) * u64::from(self.core.shape.block_bytes) + TIMES_AT;
        pin.0.body()?.write_at(&times, offset).map_err(|error| volume.fail(&error))?;
        Ok(true)
    }

    /// Gives an object a second name; both then name one body. What `new_key` named is replaced. False when there is no
    /// object of `key`. The first link of an object writes it once more.
    ///
    /// # Errors
    /// As [`Store::put`].
    pub fn link(&self, key: &[u8], new_key: &[u8]) -> Result<bool, StoreError> {
        Self::checked(key, &[])?;
        Self::checked(new_key, &[])?;
        self.core.wait_ready()?;
        let (hash, new_hash) = (self.name_hash(key), self.name_hash(new_key));
        let taken = Taken::two(&self.core.keys, hash, new_hash);
        let Some(record) = self.core.find(Name::of(key), hash, Depth::Whole)? else { return Ok(false) };
        if key == new_key {
            return Ok(true);
        }
        let replaced = self.old(new_key, new_hash)?;
        let mut more = replaced.as_ref().map_or(Ok(Vec::new()), |old| self.core.ends_with(old))?;
        let replaced = replaced.map(|old| old.held);
        let times = PutOptions {
            meta: &[],
            expires_s: record.head.expires_s,
            created_s: Some(record.head.created_s),
        };
        let alias = |key, hash, id: u64, target: &[u8], length, old| NewRecord {
            head: self.head(Kind::Alias, false, key, target, crc(target), times),
            key,
            meta: &[],
            body: &[],
            hash,
            id,
            length,
            old,
            moved: false,
        };
        if record.head.kind == Kind::Alias {
            let id = self.core.shared_id(&record)?;
            let target = id.to_le_bytes();
            let length = self.stat(key)?.map_or(0, |stat| stat.length);
            more.insert(0, Change::Link(id));
            let alias =
                NewRecord { body: &target, ..alias(new_key, new_hash, id, &target, length, replaced) };
            self.staged(&[alias], &[], more, taken)?.wait()?;
            return Ok(true);
        }
        let id = self.core.next_sequence();
        let target = id.to_le_bytes();
        let shared_key = internal_key(id, SHARED);
        let shared_hash = Name { internal: true, key: &shared_key }.hash(self.core.hash_seed);
        let manifest = self.core.manifest_of(&record)?;
        let length = manifest.as_ref().map_or(u64::from(record.head.body_len), |manifest| manifest.length());
        let shared_options = PutOptions { meta: record.meta(), ..times };
        let body = record.body();
        let shared = NewRecord {
            head: self.head(record.head.kind, true, &shared_key, body, record.head.body_crc, shared_options),
            key: &shared_key,
            meta: record.meta(),
            body,
            hash: shared_hash,
            id: manifest.as_ref().map_or(0, |manifest| manifest.id),
            length: if manifest.is_some() { length } else { 0 },
            old: None,
            moved: false,
        };
        more.splice(0..0, [Change::Link(id), Change::Link(id)]);
        let first = NewRecord { body: &target, ..alias(key, hash, id, &target, length, Some(record.held)) };
        let second = NewRecord { body: &target, ..alias(new_key, new_hash, id, &target, length, replaced) };
        self.staged(&[shared, first, second], &[], more, taken)?.wait()?;
        Ok(true)
    }

    /// Gives an object another key; what had that key is gone. False when there is no object of `key`. After a power cut
    /// both may name it, never none.
    ///
    /// # Errors
    /// As [`Store::put`].
    pub fn rename(&self, key: &[u8], new_key: &[u8]) -> Result<bool, StoreError> {
        Self::checked(new_key, &[])?;
        if key == new_key {
            return Ok(self.stat(key)?.is_some());
        }
        if !self.link(key, new_key)? {
            return Ok(false);
        }
        self.delete(key)?;
        Ok(true)
    }

    /// Makes all that was done durable.
    ///
    /// # Errors
    /// When a volume failed.
    pub fn flush(&self) -> Result<(), StoreError> {
        if self.core.read_only {
            return Ok(());
        }
        let mut result = Ok(());
        let gates = self.core.all_volumes().into_iter().map(|volume| {
            if let Some(failure) = volume.failure() {
                return Err(failure);
            }
            let mut staging = locked(&volume.staging);
            staging.group.sync = true;
            volume.work.notify_one();
            Ok(staging.group.gate.clone())
        });
        for gate in gates.collect::<Vec<_>>() {
            result = result.and(gate.and_then(|gate| gate.wait()));
        }
        result
    }

    /// Adds a volume. It takes objects from now on.
    ///
    /// # Errors
    /// When the directory holds a store already, or its disk fails.
    pub fn add_volume(&self, spec: VolumeSpec) -> Result<(), StoreError> {
        self.core.wait_ready()?;
        if self.core.read_only {
            return Err(StoreError::ReadOnly { why: "the store was opened read-only".to_owned() });
        }
        let shape = self.core.shape;
        if spec.size_bytes < shape.packed_bytes() * 5 / 4 {
            let why = "room for a packed file and its index";
            return Err(StoreError::Setting { name: "size_bytes", given: spec.size_bytes, why });
        }
        // Held for the whole of it: two that grow at once take turns.
        let mut volumes = self.core.volumes.write().unwrap_or_else(PoisonError::into_inner);
        let number = volumes.iter().map(|volume| volume.number + 1).max().unwrap_or(0);
        let mut head = crate::volume::read_head(&volumes[0].disk)?;
        (head.volume, head.size_bytes, head.volumes) = (number, spec.size_bytes, number + 1);
        make_volume(&spec.disk, &head)?;
        for volume in volumes.iter() {
            let mut other = crate::volume::read_head(&volume.disk)?;
            other.volumes = number + 1;
            write_head(&volume.disk, &other)?;
        }
        let lock = hold(&spec.disk)?;
        let volume = Arc::new(Volume::new(number, spec.disk, spec.size_bytes, Some(lock)));
        let index = volumes.len();
        volumes.push(volume.clone());
        drop(volumes);
        self.start_writer(&volume, index);
        Ok(())
    }

    pub(crate) fn start_writer(&self, volume: &Arc<Volume>, index: usize) {
        let (core, volume) = (self.core.clone(), volume.clone());
        let name = format!("pack-writer-{}", volume.number);
        let spawned =
            std::thread::Builder::new().name(name).spawn(move || crate::writer::run(&core, &volume, index));
        locked(&self.threads).push(spawned.expect("a thread can be started"));
    }

    /// Ends cleanly: all is durable, and the next opening knows at once what is there.
    ///
    /// # Errors
    /// When a volume failed.
    pub fn close(self) -> Result<(), StoreError> {
        let ready = self.core.wait_ready();
        if self.core.read_only {
            return Ok(());
        }
        let gone = std::mem::take(&mut *locked(&self.core.open));
        gone.into_values()
            .filter_map(|opened| opened.gone)
            .for_each(|manifest| self.core.remove_pieces(&manifest));
        let flushed = self.flush();
        self.stop();
        ready.and(flushed).and_then(|()| crate::table_file::write(&self.core))
    }

    fn stop(&self) {
        self.core.closing.store(true, Ordering::SeqCst);
        for volume in self.core.all_volumes() {
            locked(&volume.staging).stop = true;
            volume.work.notify_all();
            volume.room.notify_all();
        }
        let threads = std::mem::take(&mut *locked(&self.threads));
        for thread in threads {
            let _ = thread.join();
        }
        for volume in self.core.all_volumes() {
            let mut staging = locked(&volume.staging);
            staging.fillings.clear();
            staging.next = None;
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.stop();
    }
}

fn stat_of(record: &Record) -> Stat {
    Stat {
        length: record.head.body_len.into(),
        meta_bytes: record.head.meta_len,
        created_s: record.head.created_s,
        requested_s: record.head.requested_s,
        expires_s: record.head.expires_s,
        sequence: record.head.sequence,
    }
}

fn make_volume(disk: &Arc<dyn Disk>, head: &VolumeHead) -> Result<(), StoreError> {
    let ours = |name: &String| name == HEAD_NAME || name.ends_with(".body") || name.ends_with(".index");
    if disk.names()?.iter().any(ours) {
        return Err(StoreError::NotEmpty { place: disk.place() });
    }
    Ok(write_head(disk, head)?)
}

/// A number that no stranger can guess.
fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id())
}
