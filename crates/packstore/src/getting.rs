//! Reads of a store: from the memory tier, else from where the table says.

use std::sync::Arc;
use std::time::Duration;

use crate::error::StoreError;
use crate::format::{Kind, Name, SHARED};
use crate::group::{Change, Held};
use crate::object::{Object, Pieces, Stat};
use crate::options::Mode;
use crate::read::{Depth, Record};
use crate::store::Store;

impl Store {
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
        if let Some(record) = self.core.memory.find(&self.core, name, hash) {
            self.core.touch(&record.held);
            return Ok(Some(Object::of(stat_of(&record), record, None)));
        }
        loop {
            let forgotten = self.core.memory.forgotten();
            let Some(record) = self.core.find(name, hash, Depth::Whole)? else {
                return self.core.is_missing(name, hash).map(|()| None);
            };
            let (mut stat, named) = (stat_of(&record), record.held);
            let mut body = record;
            if body.head.kind == Kind::Alias {
                let id = self.core.shared_id(&body)?;
                let Some(shared) = self.core.find_internal(id, SHARED, Depth::Whole)? else {
                    if self.core.mode == Mode::Cache && self.core.remove(&body.held) {
                        // The body was evicted: the object is, then.
                        if let Some(after) = self.core.settle(&Change::Unlink(id)) {
                            self.core.do_after(&after);
                        }
                        return Ok(None);
                    }
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
            let record = Arc::from(body);
            self.core.touch(&named);
            if pieces.is_none() {
                self.core.memory.keep(&record, forgotten);
            }
            return Ok(Some(Object::of(stat, record, pieces)));
        }
    }

    pub(crate) fn is_at(&self, held: &Held) -> bool {
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

    /// Waits until the store knows all that it holds, but no longer than this; whether it does. Only after a kill there is
    /// something to wait for: until then a cache misses.
    pub fn wait_until_ready(&self, longest: Duration) -> bool {
        self.core.wait_ready_for(longest)
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
            None => self.core.is_missing(Name::of(key), self.name_hash(key)).map(|()| None),
        }
    }
}

pub(crate) fn stat_of(record: &Record) -> Stat {
    Stat {
        length: record.head.body_len.into(),
        meta_bytes: record.head.meta_len,
        created_s: record.head.created_s,
        requested_s: record.head.requested_s,
        expires_s: record.head.expires_s,
        sequence: record.head.sequence,
    }
}
