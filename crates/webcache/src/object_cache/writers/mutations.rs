//! Changes the store. The caller holds the key lock of the URI: it is a store writer, or an event loop that need not wait.
//!
//! Always holds: a variant is written before the list at its URI that leads to it. A reply that only its readers still need is
//! put under a key that no request uses, so that the URI's own entry is unchanged.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bytes::Bytes;
use http_cache_rules::Meta;
use http_cache_rules::key::CacheKey;
use packstore::{ObjectWriter, PutOptions, Store, StoreError};

use super::job::{Applied, NewHead, Precondition, StillWanted};
use crate::log::Throttle;
use crate::object_cache::{
    StoredBody, StoredHead, VariantList, Version, encode_list, object_key, variant_key,
};

/// One for all write queues.
pub(super) struct StoreMutations {
    store: Arc<Store>,
    failed: AtomicU64,
    failures: Throttle,
    /// Numbers the keys of [`StoreMutations::unfindable_name`].
    reader_only_puts: AtomicU64,
}

/// The key to write to, and the list of variants to write afterwards, if it has to change.
type Target = (Vec<u8>, Option<VariantList>);

impl StoreMutations {
    pub(super) fn new(store: Arc<Store>) -> Self {
        Self {
            store,
            failed: AtomicU64::new(0),
            failures: Throttle::default(),
            reader_only_puts: AtomicU64::new(0),
        }
    }

    /// How many changes failed in the store.
    pub(super) fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Counts and logs a failed change. Nothing was stored.
    pub(super) fn record_failure(&self, error: &StoreError) -> Option<Applied> {
        self.failed.fetch_add(1, Ordering::Relaxed);
        if let Some(held_back) = self.failures.pass(Instant::now()) {
            let error = match error {
                // The store's own advice is for a store that evicts nothing.
                StoreError::Full => "the disk is full, or the process out of memory: free some space outside the cache, or raise the limit"
                    .to_owned(),
                error => error.to_string(),
            };
            tracing::warn!(error, failures_since = held_back, "cannot store a reply");
        }
        None
    }

    /// Puts without blocking. `None` when that would block, or a list of variants has to be written.
    pub(super) fn try_put_now(
        &self,
        head: &NewHead,
        body: &[u8],
        still_wanted: &StillWanted,
    ) -> Option<Result<Option<Applied>, StoreError>> {
        if !still_wanted() {
            return Some(Ok(None));
        }
        let put = match self.target(&head.key, &head.facts) {
            Ok(Some((target, None))) => self.store.try_put(&target, body, head.options()),
            Ok(Some((_, Some(_)))) => return None,
            Ok(None) => return Some(Ok(None)),
            Err(error) => Err(error),
        };
        match put {
            Err(StoreError::Busy) => None,
            put => Some(put.map(|()| Some(Applied { body: None, findable: true }))),
        }
    }

    pub(super) fn put(
        &self,
        head: &NewHead,
        body: &[Bytes],
        condition: &Precondition,
        return_body: bool,
    ) -> Result<Option<Applied>, StoreError> {
        let applied = match condition {
            Precondition::StillWanted(still_wanted) => still_wanted(),
            Precondition::Unreplaced(version) => self.is_current(&head.key, version)?,
        };
        if !applied && !return_body {
            return Ok(None);
        }
        let target =
            if applied { self.target(&head.key, &head.facts)? } else { Some((self.unfindable_name(), None)) };
        let Some((target, list)) = target else { return Ok(None) };
        if let [] | [_] = body {
            let body: &[u8] = body.first().map_or(b"", |chunk| chunk);
            self.store.put_deferred(&target, body, head.options())?;
        } else {
            let mut writer = self.store.put_stream(&target, head.options())?;
            body.iter().try_for_each(|chunk| writer.write(chunk))?;
            writer.commit_deferred()?;
        }
        if !applied {
            return self.store_for_readers(&target, &head.meta).map(Some);
        }
        self.write_list(&head.key, list)?;
        Ok(Some(self.applied(&target, &head.meta, return_body)))
    }

    /// Opens a stream for a body that comes in chunks. `None` when the reply cannot be stored.
    pub(super) fn begin(&self, head: &NewHead) -> Result<Option<ObjectWriter<'_>>, StoreError> {
        let Some((target, _)) = self.target(&head.key, &head.facts)? else { return Ok(None) };
        self.store.put_stream(&target, head.options()).map(Some)
    }

    /// Commits a body that is complete.
    pub(super) fn end(
        &self,
        writer: ObjectWriter<'_>,
        head: &NewHead,
        still_wanted: &StillWanted,
        return_body: bool,
    ) -> Result<Option<Applied>, StoreError> {
        let applied = still_wanted();
        if !applied && !return_body {
            return Ok(None);
        }
        if !applied {
            let name = self.unfindable_name();
            writer.commit_deferred_at(&name)?;
            return self.store_for_readers(&name, &head.meta).map(Some);
        }
        let Some((target, list)) = self.target(&head.key, &head.facts)? else { return Ok(None) };
        writer.commit_deferred_at(&target)?;
        self.write_list(&head.key, list)?;
        Ok(Some(self.applied(&target, &head.meta, return_body)))
    }

    /// Copies the stored body under another head, if `over` is still the current version.
    pub(super) fn replace_head(&self, head: &NewHead, over: &Version) -> Result<Option<Applied>, StoreError> {
        if !self.is_current(&head.key, over)? {
            return Ok(None);
        }
        let Some(object) = self.store.get(&over.name)? else { return Ok(None) };
        let Some((target, list)) = self.target(&head.key, &head.facts)? else { return Ok(None) };
        let mut writer = self.store.put_stream(&target, head.options())?;
        for chunk in object.chunks() {
            writer.write(chunk?.as_slice())?;
        }
        writer.commit_deferred()?;
        self.write_list(&head.key, list)?;
        Ok(Some(Applied { body: None, findable: true }))
    }

    pub(super) fn remove(&self, key: &CacheKey) -> Result<Option<Applied>, StoreError> {
        let Some(name) = object_key(key) else { return Ok(None) };
        if !self.store.may_contain(&name) {
            return Ok(None);
        }
        // The client that purged it is answered next: from then on a kill must not bring it back.
        Ok(self.store.delete_through(&name)?.then_some(Applied { body: None, findable: true }))
    }

    /// Deletes an unreadable object, unless it is no longer this version.
    pub(super) fn remove_unreadable(
        &self,
        name: &[u8],
        sequence: Option<u64>,
    ) -> Result<Option<Applied>, StoreError> {
        if let (Some(sequence), Ok(Some(stat))) = (sequence, self.store.stat(name))
            && stat.sequence != sequence
        {
            return Ok(None);
        }
        self.store.delete_deferred(name).map(|_| None)
    }

    /// The key for a reply with these facts.
    fn target(&self, key: &CacheKey, facts: &[u8]) -> Result<Option<Target>, StoreError> {
        let (Some(name), Ok(meta)) = (object_key(key), Meta::from_bytes(facts)) else { return Ok(None) };
        if meta.vary_names.is_empty() {
            return Ok(Some((name, None)));
        }
        let there = self.list(&name)?;
        let mut list =
            there.clone().unwrap_or_else(|| VariantList { generation: generation(), names: Vec::new() });
        // The latest goes last: it is examined last and dropped last.
        list.names.retain(|names| names != meta.vary_names);
        list.names.push(meta.vary_names.to_vec());
        let target = variant_key(key, list.generation, meta.vary_names, meta.variant);
        Ok(Some((target, (there.as_ref() != Some(&list)).then_some(list))))
    }

    fn list(&self, name: &[u8]) -> Result<Option<VariantList>, StoreError> {
        if !self.store.may_contain(name) {
            return Ok(None);
        }
        let object = match self.store.get(name) {
            Err(StoreError::Damaged { .. }) => None,
            object => object?,
        };
        let head = object.map(|object| StoredHead::read(object.meta()));
        Ok(match head {
            Some(Ok(StoredHead::Variants(list))) => Some(list),
            _ => None,
        })
    }

    fn write_list(&self, key: &CacheKey, list: Option<VariantList>) -> Result<(), StoreError> {
        let (Some(list), Some(name)) = (list, object_key(key)) else { return Ok(()) };
        let meta = encode_list(&list);
        self.store.put_deferred(&name, b"", PutOptions { meta: &meta, ..PutOptions::default() })?;
        Ok(())
    }

    /// Whether a request for the URI would find this version. A variant can outlive the list that led to it.
    fn is_current(&self, key: &CacheKey, version: &Version) -> Result<bool, StoreError> {
        if let Some(generation) = version.generation {
            let list = object_key(key).map_or(Ok(None), |name| self.list(&name))?;
            if list.is_none_or(|list| list.generation != generation) {
                return Ok(false);
            }
        }
        match self.store.stat(&version.name) {
            Err(StoreError::Damaged { .. }) => Ok(false),
            stat => Ok(stat?.is_some_and(|stat| stat.sequence == version.sequence)),
        }
    }

    /// Describes what was just stored. The key lock keeps others from replacing it first.
    fn applied(&self, target: &[u8], meta: &[u8], return_body: bool) -> Applied {
        let object = if return_body { self.store.get(target).ok().flatten() } else { None };
        // Compare heads: if the store refused the new object, the old one is still there.
        Applied {
            body: object.filter(|object| object.meta() == meta).map(|object| StoredBody::of(object, || None)),
            findable: true,
        }
    }

    /// Deletes the name again: an open object stays readable without it.
    fn store_for_readers(&self, name: &[u8], meta: &[u8]) -> Result<Applied, StoreError> {
        let applied = self.applied(name, meta, true);
        self.store.delete_deferred(name)?;
        Ok(Applied { findable: false, ..applied })
    }

    /// A key that no request uses.
    fn unfindable_name(&self) -> Vec<u8> {
        let number = self.reader_only_puts.fetch_add(1, Ordering::Relaxed);
        [b"x".as_slice(), &generation().to_le_bytes(), &number.to_le_bytes()].concat()
    }
}

/// A random number, so that no two lists share a generation.
fn generation() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::time::SystemTime::now())
}
