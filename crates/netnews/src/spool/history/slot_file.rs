//! The index looked up in its file, as dbz does it without `dbzincore`: nothing of the table is kept.
//!
//! ```text
//! find:  seek, read 16 slots (and the next 16, …) up to a vacant one
//! add:   seek, write one slot, the vacant one that the search before it ended at
//! ```
//!
//! What a lookup read is forgotten at the next one: whether a page is still at hand is the storage's to say, by the
//! kernel's cache or a client's.
//!
//! Always holds: no search is endless, whatever is in the file; memory does not grow with the table.
//! Source: dbz(3), which reads through a buffer of 16 entries and lets a store take up where its fetch ended.

use std::path::Path;

use files::{Access, FileSystem, FsError, OpenFile};

use super::super::whole::write_all;
use super::INDEX_FILE;
use super::index::{
    HEAD_BYTES, Head, SLOT_BYTES, SlotCounts, damaged, offset_in, slot_of, start, would_be_full,
};
use super::table::Table;

/// Slots read at a time.
const WINDOW_SLOTS: usize = 16;
/// Slots written before the file is closed and opened again: an NFS client keeps each write until it is committed,
/// which closing does. A local file has nothing to do then.
const WRITES_UNTIL_REOPENED: u32 = 4096;

/// The open file.
pub(crate) struct SlotFile {
    file: Box<dyn OpenFile>,
    slots: usize,
    used: usize,
    window: Window,
    /// The hash that was last looked up in vain, and the vacant slot where it belongs.
    vacant: Option<(u64, usize)>,
    counts: SlotCounts,
    writes_since_opened: u32,
}

/// Slots as they were read.
#[derive(Default)]
struct Window {
    bytes: [[u8; SLOT_BYTES]; WINDOW_SLOTS],
    first: usize,
    len: usize,
}

impl SlotFile {
    /// Continues with a table that is in memory and in its file.
    pub(crate) fn of(table: Table, lib: &dyn FileSystem) -> Result<Self, FsError> {
        let (slots, used) = (table.len(), table.used() as usize);
        table.close()?;
        let file = lib.open(Path::new(INDEX_FILE), Access::ReadWrite)?;
        Ok(Self {
            file,
            slots,
            used,
            window: Window::default(),
            vacant: None,
            counts: SlotCounts::default(),
            writes_since_opened: 0,
        })
    }

    pub(crate) fn find(
        &mut self,
        hash: u64,
        mut confirm: impl FnMut(u64) -> Result<bool, FsError>,
    ) -> Result<Option<u64>, FsError> {
        let found = self.search(hash, |slot| match offset_in(slot, hash) {
            Some(offset) => confirm(offset),
            None => Ok(false),
        })?;
        match found {
            (_, 0) => {
                self.vacant = Some((hash, found.0));
                Ok(None)
            }
            (_, slot) => Ok(offset_in(slot, hash)),
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        would_be_full(self.used, self.slots)
    }

    pub(crate) fn used(&self) -> u64 {
        self.used as u64
    }

    pub(crate) fn add(&mut self, hash: u64, offset: u64) -> Result<(), FsError> {
        assert!(!self.is_full(), "a full table would make looking up endless");
        let at = match self.vacant.take() {
            Some((looked_up, at)) if looked_up == hash => at,
            _ => self.search(hash, |_| Ok(false))?.0,
        };
        self.used += 1;
        self.write(at, slot_of(hash, offset))
    }

    pub(crate) fn replace(&mut self, hash: u64, old: u64, offset: u64) -> Result<(), FsError> {
        let wanted = slot_of(hash, old);
        let (at, slot) = self.search(hash, |slot| Ok(slot == wanted))?;
        // The caller found it there; a file that has lost it since is not ours to mend.
        if slot == wanted { self.write(at, slot_of(hash, offset)) } else { Err(damaged()) }
    }

    /// Closes and opens the file when many slots were written.
    pub(crate) fn reopen_if_due(&mut self, lib: &dyn FileSystem) -> Result<(), FsError> {
        if self.writes_since_opened < WRITES_UNTIL_REOPENED {
            return Ok(());
        }
        let next = lib.open(Path::new(INDEX_FILE), Access::ReadWrite)?;
        self.writes_since_opened = 0;
        std::mem::replace(&mut self.file, next).close()
    }

    pub(crate) fn settle(&mut self, text_bytes: u64) -> Result<(), FsError> {
        let head = Head { slots: self.slots as u64, used: self.used as u64, text_bytes };
        self.file.seek(0)?;
        write_all(&mut *self.file, &head.encode())?;
        // A client that holds writes back sends them before it moves on.
        self.file.seek(0)
    }

    pub(crate) fn close(self) -> Result<(), FsError> {
        self.file.close()
    }

    pub(crate) fn counts(&self) -> SlotCounts {
        self.counts
    }

    /// The first slot from the hash's own on that `is_wanted`, or is vacant.
    fn search(
        &mut self,
        hash: u64,
        mut is_wanted: impl FnMut(u64) -> Result<bool, FsError>,
    ) -> Result<(usize, u64), FsError> {
        self.window.len = 0;
        let mut at = start(hash, self.slots);
        for _ in 0..self.slots {
            let slot = self.slot(at)?;
            if slot == 0 || is_wanted(slot)? {
                return Ok((at, slot));
            }
            at = (at + 1) & (self.slots - 1);
        }
        Err(damaged())
    }

    fn slot(&mut self, at: usize) -> Result<u64, FsError> {
        let within = at.wrapping_sub(self.window.first);
        if within < self.window.len {
            return Ok(u64::from_le_bytes(self.window.bytes[within]));
        }
        let wanted = WINDOW_SLOTS.min(self.slots - at);
        self.file.seek((HEAD_BYTES + at * SLOT_BYTES) as u64)?;
        let bytes = self.window.bytes[..wanted].as_flattened_mut();
        let mut filled = 0;
        while filled < bytes.len() {
            match self.file.read(&mut bytes[filled..])? {
                0 => return Err(damaged()),
                taken => filled += taken,
            }
        }
        self.counts.reads += 1;
        (self.window.first, self.window.len) = (at, wanted);
        Ok(u64::from_le_bytes(self.window.bytes[0]))
    }

    fn write(&mut self, at: usize, slot: u64) -> Result<(), FsError> {
        self.window.len = 0;
        self.file.seek((HEAD_BYTES + at * SLOT_BYTES) as u64)?;
        self.counts.writes += 1;
        self.writes_since_opened += 1;
        write_all(&mut *self.file, &slot.to_le_bytes())
    }
}
