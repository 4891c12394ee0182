//! Large objects, whose bodies are in pieces, and shared objects, which have several names.
//!
//! Always holds: the pieces of an object that is being read stay until its last reader is done. They go with the last name
//! of their object.

use super::Objects;
use super::read::{Depth, Record};
use crate::error::StoreError;
use crate::format::{Kind, Manifest, Name, Put, RECORD_HEAD_BYTES, SHARED, internal_key};
use crate::locks::locked;
use crate::write_queue::group::{Change, TableEntry};

/// A large object that is being read.
#[derive(Default)]
pub(super) struct Opened {
    readers: u32,
    /// Its pieces go when the last reader does.
    gone: Option<Manifest>,
}

impl Objects {
    /// The manifest that a record is, if it is one.
    pub(crate) fn manifest_of(&self, record: &Record) -> Result<Option<Manifest>, StoreError> {
        if record.head.kind != Kind::Manifest {
            return Ok(None);
        }
        let name = Name { internal: record.head.internal, key: record.key() };
        let manifest = Manifest::decode(record.body());
        manifest.map(Some).ok_or_else(|| self.damaged(name, record.address, "its list of pieces is damaged"))
    }

    /// Changes that go with a record's end: its pieces, its name.
    pub(crate) fn ends_with(&self, record: &Record) -> Result<Vec<Change>, StoreError> {
        match record.head.kind {
            Kind::Whole => Ok(Vec::new()),
            Kind::Manifest => {
                let manifest = self.manifest_of(record)?.expect("it is a manifest");
                Ok(vec![Change::Pieces(manifest)])
            }
            Kind::Alias => Ok(vec![Change::Unlink(self.shared_id(record)?)]),
        }
    }

    pub(crate) fn shared_id(&self, record: &Record) -> Result<u64, StoreError> {
        let name = Name { internal: record.head.internal, key: record.key() };
        let bytes = record.body().first_chunk::<8>();
        let id = bytes.map(|bytes| u64::from_le_bytes(*bytes));
        id.ok_or_else(|| self.damaged(name, record.address, "it names no shared object"))
    }

    /// Forgets a large object's pieces, now or when its last reader is done.
    pub(crate) fn remove_pieces(&self, manifest: &Manifest) {
        if let Some(opened) = locked(&self.open).get_mut(&manifest.id) {
            opened.gone = Some(manifest.clone());
            return;
        }
        for (part, &len) in manifest.piece_lens.iter().enumerate() {
            // It may move meanwhile: until it is gone.
            while let Some(entry) = self.piece_held(manifest.id, part as u32, len) {
                if self.remove(&entry) {
                    break;
                }
            }
        }
    }

    /// Whether all of a large object is still there, as far as memory alone shows.
    pub(crate) fn has_pieces(&self, manifest: &Manifest) -> bool {
        (0..manifest.piece_lens.len()).all(|part| {
            let key = internal_key(manifest.id, part as u32);
            let name = Name { internal: true, key: &key };
            self.index.may_have(name.hash(self.setup.hash_seed))
        })
    }

    /// Where a piece is, as a rule without reading it.
    fn piece_held(&self, id: u64, part: u32, len: u32) -> Option<TableEntry> {
        let key = internal_key(id, part);
        let hash = Name { internal: true, key: &key }.hash(self.setup.hash_seed);
        let alike = self.index.find(hash).collect::<Vec<_>>();
        let location = match alike[..] {
            // Another object with its fingerprint, when it is gone itself: one in millions, and noticed by the length below.
            // Where pieces expire or are overwritten by themselves it is not so seldom that they are gone.
            [only] if !self.setup.expires && !self.setup.cyclic => only,
            [] => return None,
            _ => self.find_internal(id, part, Depth::Head).ok()??.entry.location,
        };
        let blocks = self.setup.shape.blocks(RECORD_HEAD_BYTES + key.len() + len as usize);
        Some(TableEntry { hash, location, blocks, visible: false })
    }

    /// Keeps a large object's pieces until [`Objects::close_large`].
    pub(crate) fn open_large(&self, id: u64) {
        locked(&self.open).entry(id).or_default().readers += 1;
    }

    /// Whether it is a piece of a large object that is being read.
    pub(crate) fn is_read(&self, put: &Put<'_>) -> bool {
        let id = || put.name.key.first_chunk().map(|id| u64::from_le_bytes(*id));
        put.name.internal && id().is_some_and(|id| locked(&self.open).contains_key(&id))
    }

    pub(crate) fn close_large(&self, id: u64) {
        let mut open = locked(&self.open);
        let Some(opened) = open.get_mut(&id) else { return };
        opened.readers -= 1;
        if opened.readers == 0 {
            let gone = open.remove(&id).and_then(|opened| opened.gone);
            drop(open);
            if let Some(manifest) = gone {
                self.remove_pieces(&manifest);
            }
        }
    }

    /// A shared object that has no name any more.
    pub(crate) fn forget_shared(&self, id: u64) {
        let found = self.find_internal(id, SHARED, Depth::Whole);
        if self.setup.expires && matches!(found, Ok(None)) {
            // It has expired with its names, and was swept first.
            return;
        }
        let Ok(Some(record)) = found else {
            tracing::warn!(
                id,
                "a shared object without names could not be read: its room comes back on a rebuild"
            );
            return;
        };
        let more = self.ends_with(&record).unwrap_or_default();
        self.remove(&record.entry);
        self.apply_now(&more);
    }

    /// Forgets the pieces of objects that are gone, though readers still had them: the store is being closed.
    pub(crate) fn close_all_large(&self) {
        let gone = std::mem::take(&mut *locked(&self.open));
        gone.into_values().filter_map(|opened| opened.gone).for_each(|gone| self.remove_pieces(&gone));
    }
}
