//! The index in memory, 8 bytes a slot, written behind: slots that changed are written when there are a thousand of
//! them, in the order of the file.

use std::path::Path;

use files::{Access, FileSystem, FsError, OpenFile, Status};

use super::super::whole::{CHUNK_BYTES, create_anew, read_whole, write_all};
use super::INDEX_FILE;
use super::index::{
    HEAD_BYTES, Head, SLOT_BYTES, SLOTS_MAX, SLOTS_MIN, offset_in, slot_of, start, would_be_full,
};

/// Changed slots that are written together: about ten batches of articles.
const DIRTY_MANY: usize = 1024;
/// Slots between two changed ones that are written with them rather than skipped by another call.
const GAP_SLOTS: u32 = 64;

/// The table, and its file when it has one.
pub(crate) struct Table {
    slots: Vec<u64>,
    used: usize,
    /// Slots that differ from the file.
    dirty: Vec<u32>,
    file: Option<Box<dyn OpenFile>>,
}

impl Table {
    /// An empty table with room for `ids`, in memory only.
    pub(crate) fn in_memory(ids: u64) -> Self {
        let wanted = usize::try_from(ids.saturating_mul(3) / 2 + 1).unwrap_or(SLOTS_MAX);
        let slots = wanted.clamp(SLOTS_MIN, SLOTS_MAX).next_power_of_two();
        Self { slots: vec![0; slots], used: 0, dirty: Vec::new(), file: None }
    }

    /// An empty table and its file.
    pub(crate) fn create(lib: &dyn FileSystem, ids: u64) -> Result<Self, FsError> {
        let mut table = Self::in_memory(ids);
        table.write_anew(lib, 0)?;
        Ok(table)
    }

    /// Reads a table that was settled when the text had `text_bytes`; none when there is no such one.
    pub(crate) fn open(lib: &dyn FileSystem, text_bytes: u64) -> Result<Option<Self>, FsError> {
        let settled = |head: Head, used: usize| {
            head.used == used as u64 && head.text_bytes == text_bytes && text_bytes > 0
        };
        Self::read_if(lib, settled)
    }

    /// Reads a table that this process has just written, and that need not be settled.
    pub(crate) fn read(lib: &dyn FileSystem) -> Result<Option<Self>, FsError> {
        Self::read_if(lib, |_, _| true)
    }

    /// Reads a table to look things up in, whatever its head says of the text; none when the file is no table.
    pub(crate) fn look(lib: &dyn FileSystem) -> Result<Option<(Self, Head)>, FsError> {
        let mut bytes = Vec::new();
        match read_whole(lib, Path::new(INDEX_FILE), &mut bytes, HEAD_BYTES + SLOTS_MAX * SLOT_BYTES) {
            Err(error) if error.status() == Some(Status::NOENT) => return Ok(None),
            other => other?,
        };
        let Some((head, table)) = bytes.split_first_chunk::<HEAD_BYTES>() else { return Ok(None) };
        let Some(head) = Head::decode(head) else { return Ok(None) };
        let slots: Vec<u64> = table
            .chunks_exact(SLOT_BYTES)
            .map(|slot| u64::from_le_bytes(slot.try_into().expect("eight bytes")))
            .collect();
        let used = slots.iter().filter(|slot| **slot != 0).count();
        let is_table = head.slots == slots.len() as u64
            && slots.len().is_power_of_two()
            && slots.len() >= SLOTS_MIN
            && used < slots.len();
        Ok(is_table.then_some((Self { slots, used, dirty: Vec::new(), file: None }, head)))
    }

    fn read_if(
        lib: &dyn FileSystem,
        fits: impl FnOnce(Head, usize) -> bool,
    ) -> Result<Option<Self>, FsError> {
        let Some((mut table, head)) = Self::look(lib)? else { return Ok(None) };
        if !fits(head, table.used) {
            return Ok(None);
        }
        table.file = Some(lib.open(Path::new(INDEX_FILE), Access::ReadWrite)?);
        // From here on the file is behind the table.
        table.write_head(0)?;
        Ok(Some(table))
    }

    /// Slots, used or not.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn find(
        &self,
        hash: u64,
        mut confirm: impl FnMut(u64) -> Result<bool, FsError>,
    ) -> Result<Option<u64>, FsError> {
        let mut at = start(hash, self.slots.len());
        while self.slots[at] != 0 {
            if let Some(offset) = offset_in(self.slots[at], hash)
                && confirm(offset)?
            {
                return Ok(Some(offset));
            }
            at = self.behind(at);
        }
        Ok(None)
    }

    pub(crate) fn is_full(&self) -> bool {
        would_be_full(self.used, self.slots.len())
    }

    pub(crate) fn used(&self) -> u64 {
        self.used as u64
    }

    pub(crate) fn add(&mut self, hash: u64, offset: u64) {
        assert!(!self.is_full(), "a full table would make looking up endless");
        let mut at = start(hash, self.slots.len());
        while self.slots[at] != 0 {
            at = self.behind(at);
        }
        self.used += 1;
        self.put(at, slot_of(hash, offset));
    }

    pub(crate) fn replace(&mut self, hash: u64, old: u64, offset: u64) {
        let mut at = start(hash, self.slots.len());
        while self.slots[at] != slot_of(hash, old) {
            assert!(self.slots[at] != 0, "the caller found the entry there");
            at = self.behind(at);
        }
        self.put(at, slot_of(hash, offset));
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

    /// Writes what changed and gives the file up.
    pub(crate) fn close(mut self) -> Result<(), FsError> {
        self.flush()?;
        self.file.map_or(Ok(()), OpenFile::close)
    }

    fn write_head(&mut self, text_bytes: u64) -> Result<(), FsError> {
        let head = self.head(text_bytes);
        let Some(file) = &mut self.file else { return Ok(()) };
        file.seek(0)?;
        write_all(&mut **file, &head)
    }

    fn head(&self, text_bytes: u64) -> [u8; HEAD_BYTES] {
        Head { slots: self.slots.len() as u64, used: self.used as u64, text_bytes }.encode()
    }

    /// The slot behind another one; the first behind the last.
    fn behind(&self, at: usize) -> usize {
        (at + 1) & (self.slots.len() - 1)
    }

    fn put(&mut self, at: usize, slot: u64) {
        self.slots[at] = slot;
        if self.file.is_some() {
            self.dirty.push(at as u32);
        }
    }
}
