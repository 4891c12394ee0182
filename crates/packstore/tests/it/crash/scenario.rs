//! A history of a store, drawn from a seed: it can be run again, and ended anywhere.

use std::sync::Arc;
use std::time::Duration;

use disk::Disk;
use packstore::{CacheOptions, Mode, OpenOptions, PutOptions, Store, StoreError, StoreOptions, VolumeSpec};
use testkit::SimulatedDisk;

use super::model::{Model, Version, body, expires_s, meta, mixed};

/// A small store is full with them.
const FILLERS: u64 = 27;
const FILLER_BYTES: usize = 55_000;

/// What is played on which store.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    pub seed: u64,
    pub mode: Mode,
    pub volumes: u64,
    pub steps: usize,
    pub keys: u64,
    /// Of each volume.
    pub size_bytes: u64,
    /// Objects may go, as the cache is smaller than what is put.
    pub evicts: bool,
    /// Objects have a time to live; each step takes a second.
    pub expires: bool,
    /// The oldest objects are overwritten when it is full. It begins nearly so.
    pub cyclic: bool,
    /// The caller is slower than the store's own threads: before it reads, they have written what they were given.
    pub caller_is_slow: bool,
}

impl Scenario {
    /// Of the many, the one of this seed.
    pub fn of(seed: u64) -> Self {
        let one_in = |count| mixed(seed ^ count).is_multiple_of(count);
        let mode = if one_in(4) { Mode::Cache } else { Mode::Store };
        let cyclic = mode == Mode::Store && mixed(seed ^ 0xc9c).is_multiple_of(5);
        let tight = one_in(3) || cyclic;
        Self {
            seed,
            mode,
            volumes: if one_in(5) { 2 } else { 1 },
            steps: 40 + (mixed(seed) % 60) as usize,
            keys: if tight { 60 } else { 12 },
            size_bytes: if tight { 2 << 20 } else { 16 << 20 },
            evicts: mode == Mode::Cache && tight || cyclic,
            cyclic,
            expires: mode == Mode::Store && mixed(seed ^ 0x771).is_multiple_of(3),
            caller_is_slow: false,
        }
    }

    pub fn disks(&self, machine: &SimulatedDisk) -> Vec<Arc<dyn Disk>> {
        let disk = |number| Arc::new(machine.beside(&format!("volume{number}"))) as Arc<dyn Disk>;
        (0..self.volumes).map(disk).collect()
    }

    fn cache(&self) -> CacheOptions {
        CacheOptions { behind_max: Duration::from_millis(20), ..CacheOptions::default() }
    }

    pub fn create(&self, machine: &SimulatedDisk, model: &Model) -> Result<Store, StoreError> {
        let size_bytes = self.size_bytes;
        let volumes = self.disks(machine).into_iter().map(|disk| VolumeSpec { disk, size_bytes }).collect();
        let block_bytes = 64 << (self.seed % 4);
        let options = StoreOptions {
            mode: self.mode,
            block_bytes,
            packed_blocks: Some((512 << 10) / block_bytes),
            object_bytes_mean: 1_000,
            cache: self.cache(),
            expires: self.expires,
            cyclic: self.cyclic,
            clock: model.clock.clone(),
            ..StoreOptions::default()
        };
        Store::create(volumes, options)
    }

    pub fn open(&self, machine: &SimulatedDisk, model: &Model) -> Result<Store, StoreError> {
        let clock = model.clock.clone();
        let mut options = OpenOptions { cache: self.cache(), clock, ..OpenOptions::default() };
        // One in two keeps what it finds after a crash in a file.
        if self.seed % 2 == 1 {
            options.rebuild_bytes_max = 0;
        }
        Store::open(self.disks(machine), options)
    }

    fn key(&self, drawn: u64) -> Vec<u8> {
        let number = drawn % self.keys;
        let mut key = format!("key {number}").into_bytes();
        // Some long ones.
        key.resize(key.len() + if number.is_multiple_of(7) { (number * 31) as usize } else { 0 }, b'.');
        key
    }

    /// Plays `steps` of it, numbered from `from`, on an open store; to the end, or to the first error.
    ///
    /// # Errors
    /// What an operation failed with, other than that the store is full.
    pub fn play(
        &self,
        machine: &SimulatedDisk,
        mut store: Store,
        model: &mut Model,
        from: u64,
    ) -> Result<Store, StoreError> {
        (model.evicts, model.index_lost) = (self.evicts, false);
        if self.cyclic && from == 0 {
            for number in 0..FILLERS * self.volumes {
                let (key, body) = (format!("filler {number}"), vec![number as u8; FILLER_BYTES]);
                store.put(key.as_bytes(), &body, PutOptions::default())?;
            }
        }
        for step in 0..self.steps as u64 {
            let step = from + step;
            model.at_step(step);
            let drawn = mixed(self.seed.wrapping_mul(1_000_003) ^ step);
            let key = self.key(mixed(drawn));
            match drawn % 100 {
                0..42 => self.put(&store, model, &key, step * 16 + 1)?,
                42..48 => self.put_stream(&store, model, &key, step * 16 + 1)?,
                48..54 => self.batch(&store, model, drawn, step)?,
                54..68 => {
                    if model.now(&key).is_some() || self.evicts {
                        model.begin(&key, None);
                        store.delete(&key)?;
                        self.acknowledged(model, &key);
                    } else {
                        assert!(!store.delete(&key)?, "{self:?} step {step}: deleted what was not there");
                    }
                }
                68..76 => self.link(
                    (&store, machine),
                    model,
                    &key,
                    &self.key(drawn >> 20),
                    drawn.is_multiple_of(3),
                )?,
                76..86 => {
                    if self.caller_is_slow && store.flush().is_ok() {
                        model.all_done();
                    }
                    let when = format!("{self:?} step {step}");
                    let evicts =
                        std::mem::replace(&mut model.evicts, self.mode == Mode::Cache || self.evicts);
                    let read = found(&store, model, &key, &when);
                    model.evicts = evicts;
                    if read?.is_none() && !model.allowed(&key).contains(&None) {
                        assert!(self.may_miss(machine), "{when}: {} names nothing", key.escape_ascii());
                    }
                }
                86..90 => {
                    store.touch(&key, (!self.expires).then_some(step as u32 + 1))?;
                }
                90..95 => {
                    store.flush()?;
                    model.all_done();
                }
                95..97 => {
                    self.compact(&store)?;
                }
                _ => {
                    store.close()?;
                    model.all_done();
                    store = self.open(machine, model)?;
                    if self.mode == Mode::Cache {
                        // A miss until it knows what is there.
                        store.flush()?;
                    }
                }
            }
        }
        Ok(store)
    }

    /// A cache forgets what did not reach the disk before it stopped. Asked after a miss: the disk stops at any moment.
    fn may_miss(&self, machine: &SimulatedDisk) -> bool {
        self.mode == Mode::Cache && machine.has_stopped()
    }

    fn acknowledged(&self, model: &mut Model, key: &[u8]) {
        // A cache promises nothing before the next flush.
        if self.mode == Mode::Store {
            model.done(key);
        }
    }

    fn put(&self, store: &Store, model: &mut Model, key: &[u8], version: u64) -> Result<(), StoreError> {
        model.begin(key, Some(version));
        let meta = meta(version);
        let put = store.put(key, &body(version), self.options(version, &meta));
        self.told(put, model, key)
    }

    fn options<'m>(&self, version: u64, meta: &'m [u8]) -> PutOptions<'m> {
        let expires_s = if self.expires { expires_s(version) } else { 0 };
        PutOptions { meta, expires_s, ..PutOptions::default() }
    }

    fn told(&self, done: Result<(), StoreError>, model: &mut Model, key: &[u8]) -> Result<(), StoreError> {
        match done {
            Ok(()) => {
                self.acknowledged(model, key);
                Ok(())
            }
            Err(StoreError::Full) if self.mode == Mode::Store => {
                model.refused(key);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn put_stream(
        &self,
        store: &Store,
        model: &mut Model,
        key: &[u8],
        version: u64,
    ) -> Result<(), StoreError> {
        model.begin(key, Some(version));
        let meta = meta(version);
        let streamed = (|| {
            let mut writer = store.put_stream(key, self.options(version, &meta))?;
            for part in body(version).chunks(1 + (version % 7_000) as usize) {
                writer.write(part)?;
            }
            writer.commit()
        })();
        self.told(streamed, model, key)
    }

    fn batch(&self, store: &Store, model: &mut Model, drawn: u64, step: u64) -> Result<(), StoreError> {
        let puts = (1..2 + drawn % 8).map(|number| (self.key(mixed(drawn ^ number)), step * 16 + number));
        let puts =
            puts.map(|(key, version)| (key, version, body(version), meta(version))).collect::<Vec<_>>();
        puts.iter().for_each(|(key, version, ..)| model.begin(key, Some(*version)));
        let batch =
            puts.iter().map(|(key, version, body, meta)| (&key[..], &body[..], self.options(*version, meta)));
        match store.batch(batch) {
            Ok(()) => puts.iter().for_each(|(key, ..)| self.acknowledged(model, key)),
            // Some were stored; which, a look tells.
            Err(StoreError::Full) if self.mode == Mode::Store => {
                for (key, ..) in &puts {
                    let found =
                        found(store, model, key, &format!("{self:?} step {step}, batch on a full store"))?;
                    model.settle(key, found, true);
                }
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn link(
        &self,
        (store, machine): (&Store, &SimulatedDisk),
        model: &mut Model,
        key: &[u8],
        other: &[u8],
        rename: bool,
    ) -> Result<(), StoreError> {
        let moved = model.now(key);
        if key == other || self.evicts {
            return Ok(());
        }
        if moved.is_none() {
            assert!(!store.link(key, other)?, "{self:?}: a link to what was not there");
            return Ok(());
        }
        model.begin(other, moved);
        if rename {
            model.begin(key, None);
        }
        let linked = if rename { store.rename(key, other) } else { store.link(key, other) };
        match linked {
            Ok(was_there) => {
                let expected = was_there || self.may_miss(machine);
                assert!(expected, "{self:?}: {} was there", key.escape_ascii());
                self.acknowledged(model, other);
                if rename {
                    self.acknowledged(model, key);
                }
                Ok(())
            }
            Err(StoreError::Full) if self.mode == Mode::Store => {
                for key in [other, key].into_iter().take(if rename { 2 } else { 1 }) {
                    let found = found(store, model, key, &format!("{self:?}, link on a full store"))?;
                    model.settle(key, found, true);
                }
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn compact(&self, store: &Store) -> Result<(), StoreError> {
        match store.compact(1 << 20) {
            Ok(_) | Err(StoreError::Full) => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// What the key names, which must be something that it may name, whole.
///
/// # Errors
/// When it cannot be read.
pub fn found(store: &Store, model: &Model, key: &[u8], when: &str) -> Result<Version, StoreError> {
    let allowed = model.allowed(key);
    let found = match store.get(key)? {
        None => None,
        Some(object) => {
            let bytes = object.read_all()?;
            let same = |version: &&u64| body(**version) == bytes && meta(**version) == object.meta();
            let version = allowed.iter().flatten().find(same);
            Some(*version.unwrap_or_else(|| {
                let begins = bytes.first_chunk().map(|bytes| u64::from_le_bytes(*bytes));
                let whole = begins.is_some_and(|version| body(version) == bytes);
                panic!(
                    "{when}: {} names {} bytes that begin as version {begins:?} (whole: {whole}), allowed: {allowed:?}",
                    key.escape_ascii(),
                    bytes.len()
                )
            }))
        }
    };
    assert!(allowed.contains(&found), "{when}: {} names nothing, allowed: {allowed:?}", key.escape_ascii());
    Ok(found)
}
