//! Second names of objects, and other names.

use crate::cache_policy::queues::FifoQueue;
use crate::error::StoreError;
use crate::format::{Kind, Name, SHARED, crc, internal_key};
use crate::objects::read::{Depth, Record};
use crate::options::{Mode, PutOptions};
use crate::store::Store;
use crate::write_queue::group::Change;
use crate::write_queue::keys::Taken;
use crate::write_queue::staging::NewRecord;

impl Store {
    /// Gives an object a second name; both then name one body, and expire when it does. What `new_key` named is replaced. False when there is no
    /// object of `key`. The first link of an object writes it once more. In a cyclic store each link is a copy.
    ///
    /// # Errors
    /// As [`Store::put`].
    pub fn link(&self, key: &[u8], new_key: &[u8]) -> Result<bool, StoreError> {
        Self::checked(key, &[])?;
        Self::checked(new_key, &[])?;
        self.readiness.wait_ready()?;
        if self.objects.setup.cyclic {
            return self.copy(key, new_key);
        }
        let (hash, new_hash) = (self.name_hash(key), self.name_hash(new_key));
        let taken = Taken::two(self.objects.queue.keys(), hash, new_hash);
        let Some(record) = self.objects.find(Name::of(key), hash, Depth::Whole)? else { return Ok(false) };
        if self.objects.has_expired(record.head.expires_s) {
            return Ok(false);
        }
        if key != new_key {
            self.link_record(&record, (key, hash), (new_key, new_hash), taken)?;
        }
        Ok(true)
    }

    /// Gives the object of a record a second name. Both keys, with their hashes, are taken.
    fn link_record(
        &self,
        record: &Record,
        (key, hash): (&[u8], u64),
        (new_key, new_hash): (&[u8], u64),
        taken: Taken<'_>,
    ) -> Result<(), StoreError> {
        let replaced = self.old(new_key, new_hash)?;
        let mut more = replaced.as_ref().map_or(Ok(Vec::new()), |old| self.objects.ends_with(old))?;
        let replaced = replaced.map(|old| old.entry);
        let times = PutOptions {
            meta: &[],
            expires_s: record.head.expires_s,
            created_s: Some(record.head.created_s),
        };
        let queue_kind = match self.objects.setup.mode {
            Mode::Store => self.objects.lifetime_queue(times.expires_s),
            Mode::Cache => FifoQueue::Main,
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
            recovered: false,
            queue_kind,
        };
        if record.head.kind == Kind::Alias {
            let id = self.objects.shared_id(record)?;
            let target = id.to_le_bytes();
            let length = self.stat(key)?.map_or(0, |stat| stat.length);
            more.insert(0, Change::Link(id));
            let alias =
                NewRecord { body: &target, ..alias(new_key, new_hash, id, &target, length, replaced) };
            return self.staged(&[alias], &[], more, taken)?.wait();
        }
        let id = self.objects.queue.next_sequence();
        let target = id.to_le_bytes();
        let shared_key = internal_key(id, SHARED);
        let shared_hash = Name { internal: true, key: &shared_key }.hash(self.objects.setup.hash_seed);
        let manifest = self.objects.manifest_of(record)?;
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
            recovered: false,
            queue_kind,
        };
        more.splice(0..0, [Change::Link(id), Change::Link(id)]);
        let first = NewRecord { body: &target, ..alias(key, hash, id, &target, length, Some(record.entry)) };
        let second = NewRecord { body: &target, ..alias(new_key, new_hash, id, &target, length, replaced) };
        self.staged(&[shared, first, second], &[], more, taken)?.wait()
    }

    /// In a cyclic store a second name is a copy: a shared body would be overwritten before its names are.
    fn copy(&self, key: &[u8], new_key: &[u8]) -> Result<bool, StoreError> {
        let Some(object) = self.get(key)? else { return Ok(false) };
        if key == new_key {
            return Ok(true);
        }
        let (meta, stat) = (object.meta().to_vec(), *object.stat());
        let (expires_s, created_s) = (stat.expires_s, Some(stat.created_s));
        let mut writer = self.put_stream(new_key, PutOptions { meta: &meta, expires_s, created_s })?;
        for chunk in object.chunks() {
            writer.write(chunk?.as_slice())?;
        }
        writer.commit()?;
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
}
