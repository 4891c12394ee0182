//! The index of history: an open-addressed table of offsets into the text, as dbz has it.
//!
//! ```text
//! file:  | head 40 B | slot | slot | …       slot, 64 bits LE: | tag 24 bits | offset + 1, 40 bits |     0: vacant
//! head:  | magic 8 B | version u64 | slots u64 | used u64 | text_bytes u64 |                       all LE
//! ```
//!
//! The low bits of an id's hash say where to begin looking, linearly; its high 24 bits are the tag. A slot whose tag
//! differs is of another id, so that the text is read for an id that is not there about once in 2^24 slots looked at.
//!
//! The table is kept in memory, 8 bytes a slot; slots that changed are written when there are a thousand of them, in the
//! order of the file: the scattered writes of dbz, as INN syncs it now and then. `text_bytes` is 0 while the table is in use, so that a table not settled
//! is made anew from the text.
//!
//! Always holds: at most two thirds of the slots are used; the number of slots is a power of two.
//! Source: dbz(3); spec `netnews.md`, formats.

use std::path::Path;

use files::{Access, FileSystem, FsError, OpenFile};

use super::super::whole::{CHUNK_BYTES, create_anew, read_whole, write_all};
use super::INDEX_FILE;

const MAGIC: &[u8; 8] = b"crumbdbz";
const VERSION: u64 = 1;
const HEAD_BYTES: usize = 40;
const SLOT_BYTES: usize = 8;
const OFFSET_BITS: u32 = 40;
const OFFSET_MASK: u64 = (1 << OFFSET_BITS) - 1;
/// Changed slots that are written together: about ten batches of articles.
const DIRTY_MANY: usize = 1024;
/// Slots between two changed ones that are written with them rather than skipped by another call.
const GAP_SLOTS: u32 = 64;
const SLOTS_MIN: usize = 1 << 10;
/// A table of 32 GiB: more ids than have ever been posted.
const SLOTS_MAX: usize = 1 << 32;

/// The table, and its file when it has one.
pub(crate) struct Index {
    slots: Vec<u64>,
    used: usize,
    /// Slots that differ from the file.
    dirty: Vec<u32>,
    file: Option<Box<dyn OpenFile>>,
}

/// FNV-1a and a finalizer that carries every bit everywhere: written to disk, so it must never change.
pub(crate) fn hash_of(id: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in id {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

impl Index {
    /// An empty table with room for `ids`, in memory only.
    pub(crate) fn in_memory(ids: u64) -> Self {
        let wanted = usize::try_from(ids.saturating_mul(3) / 2 + 1).unwrap_or(SLOTS_MAX);
        let slots = wanted.clamp(SLOTS_MIN, SLOTS_MAX).next_power_of_two();
        Self { slots: vec![0; slots], used: 0, dirty: Vec::new(), file: None }
    }

    /// An empty table and its file.
    pub(crate) fn create(lib: &dyn FileSystem, ids: u64) -> Result<Self, FsError> {
        let mut index = Self::in_memory(ids);
        index.write_anew(lib, 0)?;
        Ok(index)
    }

    /// Reads a table that was settled when the text had `text_bytes`; none when there is no such one.
    pub(crate) fn open(lib: &dyn FileSystem, text_bytes: u64) -> Result<Option<Self>, FsError> {
        let mut bytes = Vec::new();
        match read_whole(lib, Path::new(INDEX_FILE), &mut bytes, HEAD_BYTES + SLOTS_MAX * SLOT_BYTES) {
            Err(error) if error.status() == Some(files::Status::NOENT) => return Ok(None),
            other => other?,
        };
        let Some((head, table)) = bytes.split_at_checked(HEAD_BYTES) else { return Ok(None) };
        let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
        let slots: Vec<u64> = table
            .chunks_exact(SLOT_BYTES)
            .map(|slot| u64::from_le_bytes(slot.try_into().expect("eight bytes")))
            .collect();
        let used = slots.iter().filter(|slot| **slot != 0).count();
        let fits = &head[..8] == MAGIC
            && word(8) == VERSION
            && word(16) == slots.len() as u64
            && slots.len().is_power_of_two()
            && slots.len() >= SLOTS_MIN
            && word(24) == used as u64
            && used < slots.len()
            && word(32) == text_bytes
            && text_bytes > 0;
        if !fits {
            return Ok(None);
        }
        let mut index = Self { slots, used, dirty: Vec::new(), file: None };
        index.file = Some(lib.open(Path::new(INDEX_FILE), Access::ReadWrite)?);
        // From here on the file is behind the table.
        index.write_head(0)?;
        Ok(Some(index))
    }

    /// The offset of the entry of `hash` that `confirm` says is the one.
    pub(crate) fn find(
        &self,
        hash: u64,
        mut confirm: impl FnMut(u64) -> Result<bool, FsError>,
    ) -> Result<Option<u64>, FsError> {
        let mut at = self.start(hash);
        while self.slots[at] != 0 {
            let slot = self.slots[at];
            if slot >> OFFSET_BITS == hash >> OFFSET_BITS {
                let offset = (slot & OFFSET_MASK) - 1;
                if confirm(offset)? {
                    return Ok(Some(offset));
                }
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
        Ok(None)
    }

    /// Whether there is no room for another.
    pub(crate) fn is_full(&self) -> bool {
        (self.used + 1) * 3 > self.slots.len() * 2
    }

    pub(crate) fn used(&self) -> u64 {
        self.used as u64
    }

    /// Adds an entry; the caller has seen that there is room and that it is not there.
    pub(crate) fn add(&mut self, hash: u64, offset: u64) {
        assert!(!self.is_full(), "a full table would make looking up endless");
        let mut at = self.start(hash);
        while self.slots[at] != 0 {
            at = (at + 1) & (self.slots.len() - 1);
        }
        self.used += 1;
        self.put(at, hash, offset);
    }

    /// Lets the entry that was at `old` name another offset.
    pub(crate) fn replace(&mut self, hash: u64, old: u64, offset: u64) {
        let mut at = self.start(hash);
        while self.slots[at] != slot_of(hash, old) {
            assert!(self.slots[at] != 0, "the caller found the entry there");
            at = (at + 1) & (self.slots.len() - 1);
        }
        self.put(at, hash, offset);
    }

    /// Writes the slots that changed once there are many of them: one by one they cost a tenth of storing an article.
    pub(crate) fn flush_many(&mut self) -> Result<(), FsError> {
        if self.dirty.len() < DIRTY_MANY { Ok(()) } else { self.flush() }
    }

    /// Writes the slots that changed, by rising place, near ones in one call.
    pub(crate) fn flush(&mut self) -> Result<(), FsError> {
        let Some(file) = &mut self.file else { return Ok(()) };
        self.dirty.sort_unstable();
        let mut bytes = Vec::new();
        for run in self.dirty.chunk_by(|before, after| after - before <= GAP_SLOTS) {
            let (first, last) = (run[0] as usize, run[run.len() - 1] as usize);
            bytes.clear();
            self.slots[first..=last].iter().for_each(|slot| bytes.extend_from_slice(&slot.to_le_bytes()));
            file.seek((HEAD_BYTES + first * SLOT_BYTES) as u64)?;
            write_all(&mut **file, &bytes)?;
        }
        self.dirty.clear();
        Ok(())
    }

    /// Writes what changed and that the file covers `text_bytes` of the text.
    pub(crate) fn settle(&mut self, text_bytes: u64) -> Result<(), FsError> {
        self.flush()?;
        self.write_head(text_bytes)
    }

    /// Writes the whole table to a new file that takes the place of the old one, settled at `text_bytes`.
    pub(crate) fn write_anew(&mut self, lib: &dyn FileSystem, text_bytes: u64) -> Result<(), FsError> {
        let new = format!("{INDEX_FILE}.new");
        let mut file = create_anew(lib, Path::new(&new))?;
        let mut chunk = self.head(text_bytes).to_vec();
        for slot in &self.slots {
            chunk.extend_from_slice(&slot.to_le_bytes());
            if chunk.len() >= CHUNK_BYTES {
                write_all(&mut *file, &chunk)?;
                chunk.clear();
            }
        }
        write_all(&mut *file, &chunk)?;
        file.close()?;
        lib.rename(Path::new(&new), Path::new(INDEX_FILE))?;
        self.dirty.clear();
        self.file = Some(lib.open(Path::new(INDEX_FILE), Access::ReadWrite)?);
        self.write_head(0)
    }

    fn write_head(&mut self, text_bytes: u64) -> Result<(), FsError> {
        let head = self.head(text_bytes);
        let Some(file) = &mut self.file else { return Ok(()) };
        file.seek(0)?;
        write_all(&mut **file, &head)
    }

    fn head(&self, text_bytes: u64) -> [u8; HEAD_BYTES] {
        let mut head = [0; HEAD_BYTES];
        head[..8].copy_from_slice(MAGIC);
        let words = [VERSION, self.slots.len() as u64, self.used as u64, text_bytes];
        for (place, word) in head[8..].chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        head
    }

    fn start(&self, hash: u64) -> usize {
        hash as usize & (self.slots.len() - 1)
    }

    fn put(&mut self, at: usize, hash: u64, offset: u64) {
        self.slots[at] = slot_of(hash, offset);
        if self.file.is_some() {
            self.dirty.push(at as u32);
        }
    }
}

fn slot_of(hash: u64, offset: u64) -> u64 {
    assert!(offset < OFFSET_MASK, "a history of a terabyte");
    (hash >> OFFSET_BITS) << OFFSET_BITS | (offset + 1)
}
