//! Makes changes in the store, for whoever holds the key lock: a store writer, or a loop that does not have to wait.
//!
//! Always holds: what varies is found through the list at its URI, which is written after it; what is not wanted any more but
//! by its readers is put under a name of its own, so that what lies at the URI stays as it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http_cache_rules::Meta;
use http_cache_rules::key::CacheKey;
use packstore::{ObjectWriter, PutOptions, Store, StoreError};

use super::job::{Counts, If, NewHead, Still};
use crate::object_cache::{
    StoredBody, StoredHead, VariantList, Version, encode_list, object_key, variant_key,
};

/// One for all write queues. The caller holds the lock of the URI in its write queue.
pub(super) struct StoreMutations {
    store: Arc<Store>,
    failed: AtomicU64,
    /// To readers alone.
    handed_over: AtomicU64,
}

/// The name of an object, and what list must lie at its URI if another is there.
type Place = (Vec<u8>, Option<VariantList>);

impl StoreMutations {
    pub(super) fn new(store: Arc<Store>) -> Self {
        Self { store, failed: AtomicU64::new(0), handed_over: AtomicU64::new(0) }
    }

    /// Changes that the store refused.
    pub(super) fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    /// Counts and tells it. Nothing was stored then.
    pub(super) fn refused(&self, error: &StoreError) -> Option<Counts> {
        self.failed.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(%error, "a reply could not be stored");
        None
    }

    /// Nothing when that would have to wait, or lists of variants are to be written.
    pub(super) fn put_at_once(
        &self,
        head: &NewHead,
        body: &[u8],
        still: &Still,
    ) -> Option<Result<Option<Counts>, StoreError>> {
        if !still() {
            return Some(Ok(None));
        }
        let put = match self.place(&head.key, &head.facts) {
            Ok(Some((place, None))) => self.store.try_put(&place, body, head.options()),
            Ok(Some((_, Some(_)))) => return None,
            Ok(None) => return Some(Ok(None)),
            Err(error) => Err(error),
        };
        match put {
            Err(StoreError::Busy) => None,
            put => Some(put.map(|()| Some(Counts { body: None, stays: true }))),
        }
    }

    pub(super) fn put(
        &self,
        head: &NewHead,
        body: &[Bytes],
        condition: &If,
        hand: bool,
    ) -> Result<Option<Counts>, StoreError> {
        let counts = match condition {
            If::Still(still) => still(),
            If::There(version) => self.is_there(&head.key, version)?,
        };
        if !counts && !hand {
            return Ok(None);
        }
        let place =
            if counts { self.place(&head.key, &head.facts)? } else { Some((self.name_of_none(), None)) };
        let Some((place, list)) = place else { return Ok(None) };
        if let [] | [_] = body {
            let body: &[u8] = body.first().map_or(b"", |chunk| chunk);
            self.store.put_deferred(&place, body, head.options())?;
        } else {
            let mut writer = self.store.put_stream(&place, head.options())?;
            body.iter().try_for_each(|chunk| writer.write(chunk))?;
            writer.commit_deferred()?;
        }
        if !counts {
            return self.hand_over(&place, &head.meta).map(Some);
        }
        self.write_list(&head.key, list)?;
        Ok(Some(self.counts(&place, &head.meta, hand)))
    }

    /// To write a body part by part. Nothing when it cannot be stored.
    pub(super) fn begin(&self, head: &NewHead) -> Result<Option<ObjectWriter<'_>>, StoreError> {
        let Some((place, _)) = self.place(&head.key, &head.facts)? else { return Ok(None) };
        self.store.put_stream(&place, head.options()).map(Some)
    }

    /// Of a body that is whole.
    pub(super) fn end(
        &self,
        writer: ObjectWriter<'_>,
        head: &NewHead,
        still: &Still,
        hand: bool,
    ) -> Result<Option<Counts>, StoreError> {
        let counts = still();
        if !counts && !hand {
            return Ok(None);
        }
        if !counts {
            let name = self.name_of_none();
            writer.commit_deferred_at(&name)?;
            return self.hand_over(&name, &head.meta).map(Some);
        }
        let Some((place, list)) = self.place(&head.key, &head.facts)? else { return Ok(None) };
        writer.commit_deferred_at(&place)?;
        self.write_list(&head.key, list)?;
        Ok(Some(self.counts(&place, &head.meta, hand)))
    }

    /// Another head for what is stored, if it lies there still.
    pub(super) fn copy(&self, head: &NewHead, over: &Version) -> Result<Option<Counts>, StoreError> {
        if !self.is_there(&head.key, over)? {
            return Ok(None);
        }
        let Some(object) = self.store.get(&over.name)? else { return Ok(None) };
        let Some((place, list)) = self.place(&head.key, &head.facts)? else { return Ok(None) };
        let mut writer = self.store.put_stream(&place, head.options())?;
        for chunk in object.chunks() {
            writer.write(chunk?.as_slice())?;
        }
        writer.commit_deferred()?;
        self.write_list(&head.key, list)?;
        Ok(Some(Counts { body: None, stays: true }))
    }

    pub(super) fn remove(&self, key: &CacheKey) -> Result<Option<Counts>, StoreError> {
        let Some(name) = object_key(key) else { return Ok(None) };
        if !self.store.may_contain(&name) {
            return Ok(None);
        }
        Ok(self.store.delete_deferred(&name)?.0.then_some(Counts { body: None, stays: true }))
    }

    /// Of an object that cannot be read.
    pub(super) fn forget(&self, name: &[u8]) -> Result<Option<Counts>, StoreError> {
        self.store.delete_deferred(name).map(|_| None)
    }

    /// Where a reply with these facts goes, and what list must then lie at its URI.
    fn place(&self, key: &CacheKey, facts: &[u8]) -> Result<Option<Place>, StoreError> {
        let (Some(name), Ok(meta)) = (object_key(key), Meta::from_bytes(facts)) else { return Ok(None) };
        if meta.vary_names.is_empty() {
            return Ok(Some((name, None)));
        }
        let there = self.list(&name)?;
        let mut list =
            there.clone().unwrap_or_else(|| VariantList { generation: generation(), names: Vec::new() });
        // The latest last: what is tried and kept longest.
        list.names.retain(|names| names != meta.vary_names);
        list.names.push(meta.vary_names.to_vec());
        let place = variant_key(key, list.generation, meta.vary_names, meta.variant);
        Ok(Some((place, (there.as_ref() != Some(&list)).then_some(list))))
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

    /// Whether this is what is found for its URI: a variant whose list is gone lies there still.
    fn is_there(&self, key: &CacheKey, version: &Version) -> Result<bool, StoreError> {
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

    /// What was just stored, before anybody can replace it: who has the turn alone writes there.
    fn counts(&self, place: &[u8], meta: &[u8], hand: bool) -> Counts {
        let object = if hand { self.store.get(place).ok().flatten() } else { None };
        // Not what lay there before, should the store have refused the new one.
        Counts { body: object.filter(|object| object.meta() == meta).map(StoredBody::of), stays: true }
    }

    /// For readers alone: an object stays readable when its name is gone.
    fn hand_over(&self, name: &[u8], meta: &[u8]) -> Result<Counts, StoreError> {
        let counts = self.counts(name, meta, true);
        self.store.delete_deferred(name)?;
        Ok(Counts { stays: false, ..counts })
    }

    /// A name that no request finds, for what is not wanted any more but by its readers.
    fn name_of_none(&self) -> Vec<u8> {
        let number = self.handed_over.fetch_add(1, Ordering::Relaxed);
        [b"x".as_slice(), &generation().to_le_bytes(), &number.to_le_bytes()].concat()
    }
}

/// A number that no other list has.
fn generation() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::time::SystemTime::now())
}
