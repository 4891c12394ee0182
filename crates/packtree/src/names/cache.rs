//! Blocks of runs that were read lately, up to a bound of bytes.
//!
//! Under a lock of the engine only what is here is looked at: a block that is not makes the look-up fail with
//! [`Refusal::Block`]; the engine lets its lock go, loads the block, and looks again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};

use super::{Block, SortedRun};
use crate::error::{Refusal, TreeError};

/// Beyond its bytes, what an entry costs, about.
const ENTRY_BYTES: u64 = 100;
/// What a block takes, to lay out the cache's own tables.
const BLOCK_BYTES_USUAL: u64 = 4300;

pub(crate) struct BlockCache {
    cache: Cache<(u64, u32), Arc<Block>, Weight, foldhash::fast::RandomState>,
    /// Threads that gave up loading without the lock, as the cache forgets faster than they look.
    direct: AtomicUsize,
}

#[derive(Clone)]
struct Weight;

impl Weighter<(u64, u32), Arc<Block>> for Weight {
    fn weight(&self, _: &(u64, u32), block: &Arc<Block>) -> u64 {
        block.bytes() as u64 + ENTRY_BYTES
    }
}

/// A block that a look-up needs.
#[derive(Clone)]
pub(crate) struct MissingBlock {
    run: Arc<SortedRun>,
    at: usize,
}

impl std::fmt::Debug for MissingBlock {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "block {} of run {}", self.at, self.run.number)
    }
}

/// How a look-up gets blocks.
pub(crate) enum Loader<'a> {
    /// From the cache.
    Cache(&'a BlockCache),
    /// From the disk, and the cache is left as it is: for whole scans.
    Disk,
}

impl BlockCache {
    pub(crate) fn new(bytes: u64) -> Self {
        let options = OptionsBuilder::new()
            .estimated_items_capacity((bytes / BLOCK_BYTES_USUAL).max(16) as usize)
            .weight_capacity(bytes.max(64 << 10))
            .build()
            .expect("both capacities are given");
        let state = foldhash::fast::RandomState::default();
        let cache = Cache::with_options(options, Weight, state, DefaultLifecycle::default());
        Self { cache, direct: AtomicUsize::new(0) }
    }

    /// Loads a block from the disk into the cache.
    pub(crate) fn load(&self, missing: &MissingBlock) -> Result<(), TreeError> {
        self.loaded(&missing.run, missing.at).map(drop)
    }

    fn loaded(&self, run: &SortedRun, at: usize) -> Result<Arc<Block>, TreeError> {
        let block = run.load(at)?;
        self.cache.insert((run.number, at as u32), block.clone());
        Ok(block)
    }

    /// Until the returned guard goes, missing blocks are read at once.
    pub(crate) fn directly(cache: &Arc<Self>) -> Direct {
        cache.direct.fetch_add(1, Ordering::Relaxed);
        Direct(cache.clone())
    }
}

/// See [`BlockCache::directly`].
pub(crate) struct Direct(Arc<BlockCache>);

impl Drop for Direct {
    fn drop(&mut self) {
        self.0.direct.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Loader<'_> {
    pub(crate) fn block(&self, run: &Arc<SortedRun>, at: usize) -> Result<Arc<Block>, Refusal> {
        let Self::Cache(cache) = self else { return Ok(run.load(at)?) };
        match cache.cache.get(&(run.number, at as u32)) {
            Some(block) => Ok(block),
            None if cache.direct.load(Ordering::Relaxed) > 0 => Ok(cache.loaded(run, at)?),
            None => Err(Refusal::Block(MissingBlock { run: run.clone(), at })),
        }
    }
}
