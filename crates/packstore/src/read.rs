//! Finds a record by its name, reads it in one piece, proves that it is the one.
//!
//! Always holds: what is returned has the key that was asked for, and a body with the right checksum when it was compared.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::core::Core;
use crate::error::{StoreError, printable};
use crate::format::{Kind, Manifest, Name, Put, RECORD_HEAD_BYTES, RecordHead, SHARED, crc, internal_key};
use crate::locks::locked;
use crate::options::{Mode, Verify};
use crate::packed::Packed;
use crate::recover::is_gone;
use crate::signatures::Place;
use crate::spot::Spot;
use crate::write_queue::group::{Change, Held};

/// A record as read.
pub(crate) struct Record {
    pub held: Held,
    pub head: RecordHead,
    /// From its head on; in a look at the head alone, perhaps not all of it.
    pub bytes: Vec<u8>,
    pub spot: Spot,
    /// Of its file's index, as it was before the record was read.
    pub generation: u64,
    /// The body has the right checksum.
    pub compared: bool,
}

impl Record {
    pub(crate) fn key(&self) -> &[u8] {
        &self.bytes[RECORD_HEAD_BYTES..][..self.head.key_len as usize]
    }

    pub(crate) fn meta_start(&self) -> usize {
        RECORD_HEAD_BYTES + self.head.key_len as usize
    }

    pub(crate) fn meta(&self) -> &[u8] {
        &self.bytes[self.meta_start()..][..self.head.meta_len as usize]
    }

    pub(crate) fn body_start(&self) -> usize {
        self.meta_start() + self.head.meta_len as usize
    }

    pub(crate) fn body(&self) -> &[u8] {
        &self.bytes[self.body_start()..][..self.head.body_len as usize]
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Depth {
    /// Head, key and attributes.
    Head,
    Whole,
    /// As [`Depth::Whole`], and the body's checksum is compared whatever the sampling says.
    Proven,
}

enum Look {
    Found(Box<Record>),
    /// Another object with the same signature.
    Stranger,
    /// It moved while we looked.
    Moved,
    Damaged(Spot, &'static str),
}

/// Enough for a head with its key and usual attributes.
const HEAD_READ_BYTES: usize = 1024;

/// What is looked for, and how well.
#[derive(Clone, Copy)]
struct Sought<'a> {
    name: Name<'a>,
    hash: u64,
    depth: Depth,
}

/// What was read where the table said that the object lies, by somebody who did not wait for it.
pub(crate) struct ReadBefore {
    pub place: Place,
    /// Of its file's index, before it was read.
    pub generation: u64,
    pub bytes: Vec<u8>,
}

impl Core {
    /// The record of this name; `None` when there is none.
    pub(crate) fn find(
        &self,
        name: Name<'_>,
        hash: u64,
        depth: Depth,
    ) -> Result<Option<Box<Record>>, StoreError> {
        self.find_with(name, hash, depth, None)
    }

    /// As [`Core::find`]; what was read before is not read again, if it still counts.
    pub(crate) fn find_with(
        &self,
        name: Name<'_>,
        hash: u64,
        depth: Depth,
        mut before: Option<ReadBefore>,
    ) -> Result<Option<Box<Record>>, StoreError> {
        let sought = Sought { name, hash, depth };
        loop {
            let (mut moved, mut damaged) = (false, None);
            for place in self.index.find(hash) {
                let before = before.take_if(|before| before.place == place);
                match self.look(place, sought, before)? {
                    Look::Found(record) => return Ok(Some(record)),
                    Look::Stranger => {}
                    Look::Moved => moved = true,
                    Look::Damaged(spot, why) => damaged = Some((spot, why)),
                }
            }
            if moved {
                continue;
            }
            return match damaged {
                None => Ok(None),
                Some((spot, why)) => Err(self.damaged(name, spot, why)),
            };
        }
    }

    pub(crate) fn damaged(&self, name: Name<'_>, spot: Spot, why: &'static str) -> StoreError {
        self.damaged_reads.fetch_add(1, Ordering::Relaxed);
        let place = self
            .segments
            .file(spot.file)
            .map(|file| self.segments.volume(file.volume).disk.place())
            .unwrap_or_default();
        let key = if name.internal { format!("(part {:02x?})", name.key) } else { printable(name.key) };
        StoreError::Damaged { place, key, file: spot.file, block: spot.block, why }
    }

    fn look(&self, place: Place, sought: Sought<'_>, before: Option<ReadBefore>) -> Result<Look, StoreError> {
        let Sought { hash, depth, .. } = sought;
        let spot = Spot::of(place, self.shape);
        let in_table = || self.index.has(hash, place);
        let Some(file) = self.segments.file(spot.file) else {
            return Ok(if in_table() { Look::Damaged(spot, "its packed file is gone") } else { Look::Moved });
        };
        let generation = file.generation.load(Ordering::SeqCst);
        // The same object may come to the same place again, written anew in between: then its file's index was too.
        let still_there = || {
            in_table()
                && file.generation.load(Ordering::SeqCst) == generation
                && self.segments.file(spot.file).is_some_and(|now| Arc::ptr_eq(&now, &file))
        };
        if !still_there() {
            return Ok(Look::Moved);
        }
        // Its blocks may have been given to another object while they were read. That begins with its leaving the table:
        // so either the checksum was compared, or the table still has it, or it is looked for again.
        let before = before.filter(|before| before.generation == generation).map(|before| before.bytes);
        match self.look_at(&file, place, spot, sought, before) {
            Ok(Look::Found(mut record)) if depth == Depth::Head || record.compared => {
                record.generation = generation;
                Ok(Look::Found(record))
            }
            _ if !still_there() => Ok(Look::Moved),
            Ok(Look::Found(mut record)) => {
                record.generation = generation;
                Ok(Look::Found(record))
            }
            look => look,
        }
    }

    fn look_at(
        &self,
        file: &Arc<Packed>,
        place: Place,
        spot: Spot,
        Sought { name, hash, depth }: Sought<'_>,
        before: Option<Vec<u8>>,
    ) -> Result<Look, StoreError> {
        let all = self.shape.bytes_at_most(spot);
        let want = if depth == Depth::Head { all.min(HEAD_READ_BYTES) } else { all };
        let salt = self.body_salt(spot.file);
        let mut bytes = match before.map_or_else(|| self.bytes_at(file, spot.block, want), Ok) {
            // The others are there.
            Err(error) if is_gone(&error) => return Ok(Look::Damaged(spot, "its body file is missing")),
            bytes => bytes?,
        };
        let mut head = RecordHead::decode(&bytes, salt);
        if head.is_none() && want < all && RecordHead::peek(&bytes).is_some() {
            bytes = self.bytes_at(file, spot.block, all)?;
            head = RecordHead::decode(&bytes, salt);
        }
        let Some(head) = head else { return Ok(Look::Damaged(spot, "its head fails its checksum")) };
        let blocks = self.shape.blocks(head.record_bytes());
        let held = Held { hash, place, blocks, visible: !head.internal };
        let mut record = Box::new(Record { held, head, bytes, spot, generation: 0, compared: false });
        if head.internal != name.internal || record.key() != name.key {
            return Ok(Look::Stranger);
        }
        if depth != Depth::Head {
            if record.bytes.len() < head.record_bytes() {
                return Ok(Look::Damaged(spot, "it is cut off"));
            }
            record.compared = depth == Depth::Proven || self.samples();
            if record.compared && crc(record.body()) != head.body_crc {
                return Ok(Look::Damaged(spot, "its body fails its checksum"));
            }
        }
        Ok(Look::Found(record))
    }

    /// Whether the next body is one to be compared.
    pub(crate) fn samples(&self) -> bool {
        match self.verify {
            Verify::Always => true,
            Verify::OneIn(reads) => {
                self.reads.fetch_add(1, Ordering::Relaxed).is_multiple_of(u64::from(reads.max(1)))
            }
        }
    }

    /// Whether the record at this place is only in memory.
    pub(crate) fn is_unwritten(&self, spot: Spot) -> bool {
        let Some(file) = self.segments.file(spot.file) else { return false };
        let volume = self.segments.volume(file.volume);
        volume.queue.is_unwritten(spot.file, spot.block)
    }

    /// Bytes from a block on: from memory while they are not written yet.
    fn bytes_at(&self, file: &Arc<Packed>, block: u32, len: usize) -> Result<Vec<u8>, StoreError> {
        if self.mode == Mode::Cache && !self.read_only {
            let volume = self.segments.volume(file.volume);
            if let Some(bytes) = volume.queue.unwritten(file.number, block) {
                return Ok(bytes);
            }
        }
        self.disk_reads.fetch_add(1, Ordering::Relaxed);
        let mut bytes = vec![0; len];
        let read = file.body()?.read_at(&mut bytes, self.shape.offset(block))?;
        bytes.truncate(read);
        Ok(bytes)
    }

    pub(crate) fn find_internal(
        &self,
        id: u64,
        part: u32,
        depth: Depth,
    ) -> Result<Option<Box<Record>>, StoreError> {
        let key = internal_key(id, part);
        let name = Name { internal: true, key: &key };
        let hash = name.hash(self.hash_seed);
        let found = self.find(name, hash, depth)?;
        if let Some(record) = &found {
            self.index.touch(&record.held);
        }
        Ok(found)
    }

    /// The manifest that a record is, if it is one.
    pub(crate) fn manifest_of(&self, record: &Record) -> Result<Option<Manifest>, StoreError> {
        if record.head.kind != Kind::Manifest {
            return Ok(None);
        }
        let name = Name { internal: record.head.internal, key: record.key() };
        let manifest = Manifest::decode(record.body());
        manifest.map(Some).ok_or_else(|| self.damaged(name, record.spot, "its list of pieces is none"))
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
        id.ok_or_else(|| self.damaged(name, record.spot, "it names no shared object"))
    }

    /// Forgets a large object's pieces, now or when its last reader is done.
    pub(crate) fn remove_pieces(&self, manifest: &Manifest) {
        if let Some(opened) = locked(&self.open).get_mut(&manifest.id) {
            opened.gone = Some(manifest.clone());
            return;
        }
        for (part, &len) in manifest.piece_lens.iter().enumerate() {
            // It may move meanwhile: until it is gone.
            while let Some(held) = self.piece_held(manifest.id, part as u32, len) {
                if self.remove(&held) {
                    break;
                }
            }
        }
    }

    /// Whether all of a large object is still there, as memory alone tells.
    pub(crate) fn has_pieces(&self, manifest: &Manifest) -> bool {
        (0..manifest.piece_lens.len()).all(|part| {
            let key = internal_key(manifest.id, part as u32);
            let name = Name { internal: true, key: &key };
            self.index.may_have(name.hash(self.hash_seed))
        })
    }

    /// Where a piece is, as a rule without reading it.
    fn piece_held(&self, id: u64, part: u32, len: u32) -> Option<Held> {
        let key = internal_key(id, part);
        let hash = Name { internal: true, key: &key }.hash(self.hash_seed);
        let alike = self.index.find(hash).collect::<Vec<_>>();
        let place = match alike[..] {
            // A stranger with its signature, when it is gone itself: one in millions, and told by the length below.
            [only] => only,
            [] => return None,
            _ => self.find_internal(id, part, Depth::Head).ok()??.held.place,
        };
        let blocks = self.shape.blocks(RECORD_HEAD_BYTES + key.len() + len as usize);
        Some(Held { hash, place, blocks, visible: false })
    }

    /// Keeps a large object's pieces until [`Core::close_large`].
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
        let Ok(Some(record)) = found else {
            tracing::warn!(
                id,
                "a shared object without names could not be read: its room comes back on a rebuild"
            );
            return;
        };
        let more = self.ends_with(&record).unwrap_or_default();
        self.remove(&record.held);
        self.apply_now(&more);
    }
}
