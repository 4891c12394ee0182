//! The proxy's store: opened where it is, made where nothing is, and grown by directories that are named for the first time.

use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use packstore::{CacheOptions, Mode, OpenOptions, Store, StoreOptions, Verify};
use report::bytes_text;
use webcache::config::Config;

use crate::context::Context;
use crate::exit::BadUsage;
use crate::output::note;
use crate::verbs::pack::place::{Place, SizedVolume};

/// What most replies take in the store besides their bodies: the head, and the URL twice.
const REPLY_BESIDES_BYTES: u32 = 256;

/// Opens the store of the cache.
///
/// # Errors
/// When a directory cannot be made or used, or holds a store that is no cache.
pub fn open(config: &Config, context: &Context) -> anyhow::Result<Store> {
    let (first, others) = config.cache.directories.split_first().context("no directory")?;
    let cache = CacheOptions { behind_bytes_max: config.store_behind_bytes(), ..CacheOptions::default() };
    let memory_bytes_max = config.cache.memory_bytes_max;
    let verify = match config.cache.verify_one_in {
        1 => Verify::Always,
        reads => Verify::OneIn(reads),
    };
    if let Some(parent) = first.parent() {
        std::fs::create_dir_all(parent).with_context(|| format!("{}: cannot be made", parent.display()))?;
    }
    // A volume whose head is gone is opened by the copy of its head.
    if !["volume", "volume.copy", "volumes"].iter().any(|name| first.join(name).exists()) {
        let volumes: Vec<SizedVolume> = others
            .iter()
            .map(|directory| {
                directory
                    .display()
                    .to_string()
                    .parse::<SizedVolume>()
                    .map_err(|error: measure::ValueError| anyhow!(error))
            })
            .collect::<anyhow::Result<_>>()?;
        let options = StoreOptions {
            mode: Mode::Cache,
            object_bytes_mean: config.cache.object_mean_bytes.saturating_add(REPLY_BESIDES_BYTES),
            cache,
            verify,
            memory_bytes_max,
            ..StoreOptions::default()
        };
        let (_, store) = Place::create(first, config.cache.size_bytes, &volumes, options)?;
        note(
            context,
            &format!("made a cache of {} in {}", bytes_text(store.usage().size_bytes), first.display()),
        );
        return Ok(store);
    }
    let mut place = Place::read(first)?;
    let store = place.open(OpenOptions { cache, verify, memory_bytes_max, ..OpenOptions::default() })?;
    if store.mode() != Mode::Cache {
        let error = anyhow!(
            "{}: is a store that evicts nothing; name another directory, or make this one with `crumb pack create \
             --mode cache`",
            first.display()
        );
        return Err(error.context(BadUsage));
    }
    for directory in others {
        let there = std::fs::canonicalize(directory).unwrap_or_else(|_| directory.clone());
        if !place.directories().iter().any(|known| *known == there) {
            place.grow(&store, directory, config.cache.size_bytes)?;
            note(context, &format!("added {} to the cache", directory.display()));
        }
    }
    Ok(store)
}

/// Closes it, unless requests that did not end still have it.
///
/// # Errors
/// When it cannot be written.
pub fn close(store: Arc<Store>) -> anyhow::Result<()> {
    let Ok(store) = Arc::try_unwrap(store) else { return Ok(()) };
    store.close().context("the cache could not be closed cleanly; the next start looks through it")
}
