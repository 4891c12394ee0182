//! An object whose body comes in parts, of whatever length.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::cache_policy::queues::FifoQueue;
use crate::clock::now_s;
use crate::error::{StoreError, printable};
use crate::format::{Kind, Manifest, Name, crc, internal_key};
use crate::objects::read::Depth;
use crate::options::PutOptions;
use crate::store::{Pending, Store};
use crate::write_queue::group::Ack;
use crate::write_queue::keys::Taken;
use crate::write_queue::staging::{NewRecord, Patience};

/// Objects are not cut into shorter pieces when space is in splinters.
const CUT_BYTES_MIN: usize = 512;

/// Takes a body. Dropped without a commit, nothing of it stays.
pub struct ObjectWriter<'a> {
    store: &'a Store,
    key: Vec<u8>,
    meta: Vec<u8>,
    expires_s: u32,
    created_s: u32,
    /// Not a piece yet.
    rest: Vec<u8>,
    manifest: Manifest,
    acks: Vec<Arc<Ack>>,
    piece_bytes: usize,
    queue_kind: FifoQueue,
    /// A cache that does not store what is put for the first time takes its length alone.
    refused: Option<u64>,
    admitted: bool,
    done: bool,
}

impl<'a> ObjectWriter<'a> {
    pub(crate) fn new(store: &'a Store, key: &[u8], options: PutOptions<'_>) -> Self {
        Self {
            store,
            key: key.to_vec(),
            meta: options.meta.to_vec(),
            expires_s: options.expires_s,
            created_s: options.created_s.unwrap_or_else(now_s),
            rest: Vec::new(),
            manifest: Manifest { id: store.objects.queue.next_sequence(), piece_lens: Vec::new() },
            acks: Vec::new(),
            piece_bytes: store.objects.setup.shape.piece_bytes(),
            queue_kind: store.objects.lifetime_queue(options.expires_s),
            refused: None,
            admitted: store.objects.setup.mode == crate::options::Mode::Store,
            done: false,
        }
    }

    /// Pieces of this, for want of longer free runs.
    pub(crate) fn cut_at(mut self, piece_bytes: usize) -> Self {
        self.piece_bytes = piece_bytes;
        self.admitted = true;
        self
    }

    /// Appends to the body.
    ///
    /// # Errors
    /// As [`Store::put`]; the object then cannot be finished.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<(), StoreError> {
        let piece_bytes = self.piece_bytes;
        if let Some(length) = &mut self.refused {
            *length += bytes.len() as u64;
            return Ok(());
        }
        while self.rest.len() + bytes.len() > piece_bytes {
            if self.rest.is_empty() {
                let (piece, rest) = bytes.split_at(piece_bytes);
                self.stage_piece(piece)?;
                bytes = rest;
            } else {
                let (more, rest) = bytes.split_at(piece_bytes - self.rest.len());
                self.rest.extend_from_slice(more);
                bytes = rest;
                let piece = std::mem::take(&mut self.rest);
                self.stage_piece(&piece)?;
                self.rest = piece;
                self.rest.clear();
            }
        }
        self.rest.extend_from_slice(bytes);
        Ok(())
    }

    fn stage_piece(&mut self, piece: &[u8]) -> Result<(), StoreError> {
        let objects = &self.store.objects;
        if !self.admitted && self.refused.is_none() && !self.is_admitted()? {
            self.refused = Some(0);
        }
        if let Some(length) = &mut self.refused {
            *length += piece.len() as u64;
            return Ok(());
        }
        // The list itself must fit into one extent.
        if self.manifest.piece_lens.len() * 4 + 64 > objects.setup.shape.piece_bytes() {
            let most = (objects.setup.shape.piece_bytes() / 4 - 16) as u64
                * objects.setup.shape.piece_bytes() as u64;
            let bytes = self.manifest.length() + piece.len() as u64;
            return Err(StoreError::Length { what: "object", bytes, bytes_min: 0, bytes_max: most });
        }
        self.fits_a_cycle(piece.len() as u64)?;
        let part = self.manifest.piece_lens.len() as u32;
        let key = internal_key(self.manifest.id, part);
        let hash = Name { internal: true, key: &key }.hash(objects.setup.hash_seed);
        // A piece goes with its object.
        let expires_s = if objects.setup.expires { self.expires_s } else { 0 };
        let options = PutOptions { expires_s, created_s: Some(self.created_s), ..PutOptions::default() };
        let head = self.store.head(Kind::Whole, true, &key, piece, crc(piece), options);
        let record = NewRecord {
            head,
            key: &key,
            meta: &[],
            body: piece,
            hash,
            id: 0,
            length: 0,
            old: None,
            moved: false,
            recovered: false,
            queue_kind: self.queue_kind,
        };
        let ack = match objects.stage(&[record], &[], &[], None, Patience::Some) {
            // No free run is long enough, but shorter ones may be.
            Err(StoreError::Full) if piece.len() >= CUT_BYTES_MIN * 2 => {
                let (first, second) = piece.split_at(piece.len() / 2);
                self.stage_piece(first)?;
                return self.stage_piece(second);
            }
            ack => ack?,
        };
        if objects.setup.mode == crate::options::Mode::Store
            && self.acks.last().is_none_or(|last| !Arc::ptr_eq(last, &ack))
        {
            self.acks.push(ack);
        }
        self.manifest.piece_lens.push(piece.len() as u32);
        Ok(())
    }

    /// A cyclic store would write over the first pieces of an object that is larger.
    fn fits_a_cycle(&self, more_bytes: u64) -> Result<(), StoreError> {
        let objects = &self.store.objects;
        if !objects.setup.cyclic {
            return Ok(());
        }
        let volumes = objects.segments.all_volumes();
        let bytes_max =
            volumes.iter().map(|volume| volume.size_bytes.load(Ordering::Relaxed) / 2).min().unwrap_or(0);
        let bytes = self.manifest.length() + more_bytes;
        match bytes > bytes_max {
            true => Err(StoreError::Length { what: "object", bytes, bytes_min: 0, bytes_max }),
            false => Ok(()),
        }
    }

    /// Asked once, before the first piece: also where the pieces go.
    fn is_admitted(&mut self) -> Result<bool, StoreError> {
        let (store, objects) = (self.store, &self.store.objects);
        let hash = store.name_hash(&self.key);
        let old = objects.find(Name::of(&self.key), hash, Depth::Head)?.map(|old| old.entry);
        if old.is_none() && !objects.policy.admits(hash) {
            return Ok(false);
        }
        self.queue_kind = objects.queue_for(hash, old.as_ref(), self.expires_s);
        self.admitted = true;
        Ok(true)
    }

    /// Length so far.
    pub fn length(&self) -> u64 {
        self.refused.unwrap_or(0) + self.manifest.length() + self.rest.len() as u64
    }

    /// The object is there, in place of what had the key.
    ///
    /// # Errors
    /// As [`Store::put`]; then nothing of it stays.
    pub fn commit(self) -> Result<(), StoreError> {
        self.commit_deferred()?.wait()
    }

    /// As [`ObjectWriter::commit_deferred`], at another key than the one it was begun for.
    ///
    /// # Errors
    /// As [`ObjectWriter::commit`], and when the key's length is none that a key may have.
    pub fn commit_deferred_at(mut self, key: &[u8]) -> Result<Pending, StoreError> {
        Store::checked(key, &self.meta)?;
        self.key = key.to_vec();
        self.commit_deferred()
    }

    /// As [`ObjectWriter::commit`], but does not wait for the last part; it does for the pieces before.
    ///
    /// # Errors
    /// As [`ObjectWriter::commit`].
    pub fn commit_deferred(mut self) -> Result<Pending, StoreError> {
        let options =
            PutOptions { meta: &self.meta, expires_s: self.expires_s, created_s: Some(self.created_s) };
        if self.refused.is_some() {
            self.done = true;
            return Ok(Pending { ack: None });
        }
        if self.manifest.piece_lens.is_empty() {
            self.done = true;
            return self.store.put_deferred(&self.key, &self.rest, options);
        }
        if !self.rest.is_empty() {
            let piece = std::mem::take(&mut self.rest);
            self.stage_piece(&piece)?;
        }
        for ack in self.acks.drain(..) {
            ack.wait()?;
        }
        let (store, objects) = (self.store, &self.store.objects);
        if objects.setup.cyclic && !objects.has_pieces(&self.manifest) {
            return Err(StoreError::Overwritten { key: printable(&self.key) });
        }
        let body = self.manifest.encode();
        let hash = store.name_hash(&self.key);
        let taken = Taken::one(objects.queue.keys(), hash);
        let old = store.old(&self.key, hash)?;
        let more = old.as_ref().map_or(Ok(Vec::new()), |old| objects.ends_with(old))?;
        let options =
            PutOptions { meta: &self.meta, expires_s: self.expires_s, created_s: Some(self.created_s) };
        let record = NewRecord {
            head: store.head(Kind::Manifest, false, &self.key, &body, crc(&body), options),
            key: &self.key,
            meta: &self.meta,
            body: &body,
            hash,
            id: self.manifest.id,
            length: self.manifest.length(),
            old: old.map(|old| old.entry),
            moved: false,
            recovered: false,
            queue_kind: self.queue_kind,
        };
        let pending = store.staged(&[record], &[], more, taken)?;
        self.done = true;
        Ok(pending)
    }

    /// Ends without an object.
    pub fn abort(self) {}
}

impl Drop for ObjectWriter<'_> {
    fn drop(&mut self) {
        if self.done || self.manifest.piece_lens.is_empty() {
            return;
        }
        // Pieces count when their group is durable; before, they cannot be taken back.
        for ack in self.acks.drain(..) {
            let _ = ack.wait();
        }
        self.store.objects.remove_pieces(&self.manifest);
    }
}
