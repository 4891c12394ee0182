//! The memory tier: records that were read lately, whole and with their checksums compared, up to a bound of bytes.
//!
//! Always holds: what is found is where the index says that the object is, in a segment whose index was not rewritten
//! since: blocks are given to another object only after that. So nothing has to be taken out when an object goes.
//! Not here: pieces of large objects; what waits to be written (`write_queue`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};

use crate::format::{Kind, Name};
use crate::hashed::Hashed;
use crate::index::Index;
use crate::objects::read::Record;
use crate::segments::Segments;

/// Beyond its bytes, what an entry costs, about.
const ENTRY_BYTES: u64 = 160;
/// What an entry takes when nothing is known of them, to lay out the cache's own tables.
const ENTRY_BYTES_USUAL: u64 = 8192;

/// Records by the hashes of their keys.
pub(crate) struct Memory {
    cache: Option<Cache<u64, Kept, Weight, Hashed>>,
    record_bytes_max: u64,
    /// How often something was forgotten.
    forgotten: AtomicU64,
    hits: AtomicU64,
}

#[derive(Clone)]
struct Kept {
    record: Arc<Record>,
}

#[derive(Clone)]
struct Weight;

impl Weighter<u64, Kept> for Weight {
    fn weight(&self, _: &u64, kept: &Kept) -> u64 {
        kept.record.bytes.capacity() as u64 + ENTRY_BYTES
    }
}

impl Memory {
    /// With room for this many bytes; with 0 it keeps nothing.
    pub(crate) fn new(bytes_max: u64) -> Self {
        let options = OptionsBuilder::new()
            .estimated_items_capacity((bytes_max / ENTRY_BYTES_USUAL).max(16) as usize)
            .weight_capacity(bytes_max)
            .build();
        let made = options.ok().filter(|_| bytes_max > 0);
        let cache = made.map(|options| {
            Cache::with_options(options, Weight, Hashed::default(), DefaultLifecycle::default())
        });
        let (forgotten, hits) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { cache, record_bytes_max: bytes_max / 16, forgotten, hits }
    }

    /// The record of this name, if it is kept and still counts.
    pub(crate) fn find(
        &self,
        index: &Index,
        segments: &Segments,
        name: Name<'_>,
        hash: u64,
    ) -> Option<Arc<Record>> {
        let Kept { record } = self.cache.as_ref()?.get(&hash)?;
        let counts = record.key() == name.key
            && record.head.internal == name.internal
            && index.has(hash, record.entry.location)
            && segments.generation_of(record.address.file) == Some(record.generation);
        if !counts {
            return None;
        }
        self.hits.fetch_add(1, Ordering::Relaxed);
        Some(record)
    }

    /// To be asked before a record is read that [`Memory::keep`] is to have.
    pub(crate) fn forgotten(&self) -> u64 {
        self.forgotten.load(Ordering::SeqCst)
    }

    /// Keeps a record, if it may: its checksum was compared, it is small and whole, and nothing was forgotten since it was read.
    pub(crate) fn keep(&self, record: &Arc<Record>, forgotten: u64) {
        let Some(cache) = &self.cache else { return };
        let small = record.bytes.capacity() as u64 <= self.record_bytes_max;
        if record.compared && !record.head.internal && small && record.head.kind == Kind::Whole {
            cache.insert(record.entry.hash, Kept { record: record.clone() });
            // Checked afterwards: the thread that forgets counts first, and removes then.
            if self.forgotten() != forgotten {
                cache.remove(&record.entry.hash);
            }
        }
    }

    /// What is kept of this hash is out of date: its times were changed.
    pub(crate) fn forget(&self, hash: u64) {
        if let Some(cache) = &self.cache {
            self.forgotten.fetch_add(1, Ordering::SeqCst);
            cache.remove(&hash);
        }
    }

    /// Records that were found.
    pub(crate) fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        self.cache.as_ref().map_or(0, Cache::weight)
    }
}

#[cfg(test)]
mod tests {
    use testkit::SimulatedDisk;

    use super::*;
    use crate::objects::read::Depth;
    use crate::options::{PutOptions, StoreOptions, VolumeSpec};
    use crate::store::Store;

    /// Symptom: an object touched long ago has the times of before. Cause: a reader that had begun before the touch gave the
    /// memory tier what it had read. Fix: nothing is kept that was read before something was forgotten.
    #[test]
    fn what_was_read_before_a_touch_is_not_kept_after_it() {
        let disk = Arc::new(SimulatedDisk::new("memory"));
        let volume = VolumeSpec { disk, size_bytes: 8 << 20 };
        let store = Store::create(vec![volume], StoreOptions::default()).expect("a store");
        store.put(b"key", b"body", PutOptions::default()).expect("put");
        let hash = store.name_hash(b"key");
        let read = || {
            let record = store.objects.find(Name::of(b"key"), hash, Depth::Whole).expect("readable");
            Arc::from(record.expect("put"))
        };
        let expires_s = || store.get(b"key").expect("readable").expect("put").stat().expires_s;
        let memory = store.objects.policy.memory();
        let (forgotten, record) = (memory.forgotten(), read());
        assert!(store.touch(b"key", Some(99)).expect("touched"));
        memory.keep(&record, forgotten);
        assert_eq!(expires_s(), 99);
        let hits = memory.hits();
        memory.keep(&read(), memory.forgotten());
        assert_eq!((expires_s(), memory.hits()), (99, hits + 1), "else it is kept");
    }
}
