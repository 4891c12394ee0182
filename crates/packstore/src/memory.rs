//! The memory tier: records that were read lately, whole and proven, up to a bound of bytes.
//!
//! Always holds: what is found lies where the table says that the object lies, in a file whose index was not written anew
//! since: blocks are given to another object only after that. So nothing has to be taken out when an object goes.
//! Not here: pieces of large objects; what waits to be written (`group`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};

use crate::core::Core;
use crate::format::{Kind, Name};
use crate::keys::Hashed;
use crate::read::Record;

/// Beyond its bytes, what an entry costs, about.
const ENTRY_BYTES: u64 = 160;
/// What an entry takes when nothing is known of them, to lay out the cache's own tables.
const ENTRY_BYTES_USUAL: u64 = 8192;

/// Records by the hashes of their keys.
pub(crate) struct Memory {
    cache: Option<Cache<u64, Kept, Weight, Hashed>>,
    record_bytes_max: u64,
    pub hits: AtomicU64,
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
    /// Of so many bytes; of none, it keeps nothing.
    pub(crate) fn new(bytes_max: u64) -> Self {
        let options = OptionsBuilder::new()
            .estimated_items_capacity((bytes_max / ENTRY_BYTES_USUAL).max(16) as usize)
            .weight_capacity(bytes_max)
            .build();
        let made = options.ok().filter(|_| bytes_max > 0);
        let cache = made.map(|options| {
            Cache::with_options(options, Weight, Hashed::default(), DefaultLifecycle::default())
        });
        Self { cache, record_bytes_max: bytes_max / 16, hits: AtomicU64::new(0) }
    }

    /// The record of this name, if it is kept and still counts.
    pub(crate) fn find(&self, core: &Core, name: Name<'_>, hash: u64) -> Option<Arc<Record>> {
        let Kept { record } = self.cache.as_ref()?.get(&hash)?;
        let counts = record.key() == name.key
            && record.head.internal == name.internal
            && core.table.find(hash).any(|place| place == record.held.place)
            && core.generation_of(record.spot.file) == Some(record.generation);
        if !counts {
            return None;
        }
        self.hits.fetch_add(1, Ordering::Relaxed);
        Some(record)
    }

    /// Keeps a record, if it may: it was proven, and is small and whole.
    pub(crate) fn keep(&self, record: &Arc<Record>) {
        let Some(cache) = &self.cache else { return };
        let small = record.bytes.capacity() as u64 <= self.record_bytes_max;
        if record.compared && !record.head.internal && small && record.head.kind == Kind::Whole {
            cache.insert(record.held.hash, Kept { record: record.clone() });
        }
    }

    /// What is kept of this hash is out of date: its times were changed.
    pub(crate) fn forget(&self, hash: u64) {
        if let Some(cache) = &self.cache {
            cache.remove(&hash);
        }
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        self.cache.as_ref().map_or(0, Cache::weight)
    }
}
