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
//! [`HistoryIndex`] says where the table is looked up: in memory (see `table`), or in the file (see `slot_file`). The
//! file is the same. `text_bytes` is 0 while it is in use, so that a table left in that state is rebuilt from the text.
//!
//! Always holds: at most two thirds of the slots are used; the number of slots is a power of two.
//! Source: dbz(3); spec `netnews.md`, formats.

use std::path::Path;
use std::str::FromStr;

use files::{FileSystem, FsError, FsOp, Status};

use super::INDEX_FILE;
use super::slot_file::SlotFile;
use super::table::Table;

pub(super) const MAGIC: &[u8; 8] = b"crumbdbz";
pub(super) const VERSION: u64 = 1;
pub(super) const HEAD_BYTES: usize = 40;
pub(super) const SLOT_BYTES: usize = 8;
const OFFSET_BITS: u32 = 40;
const OFFSET_MASK: u64 = (1 << OFFSET_BITS) - 1;
/// Where the last line may begin: what a slot can say.
pub(super) const OFFSET_MAX: u64 = OFFSET_MASK - 1;
pub(super) const SLOTS_MIN: usize = 1 << 10;
/// A table of 32 GiB: more ids than have ever been posted.
pub(super) const SLOTS_MAX: usize = 1 << 32;

/// Where ids are looked up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HistoryIndex {
    /// In a table in memory, 8 bytes a slot, written behind. Default: what dbz's `dbzincore` is for.
    #[default]
    Memory,
    /// In the index file, as dbz does otherwise: each lookup reads the slots it looks at, and each article writes its
    /// line and its slot at once.
    File,
}

/// What looking up in the file cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SlotCounts {
    /// Reads of some slots.
    pub(crate) reads: u64,
    /// Writes of one.
    pub(crate) writes: u64,
}

impl SlotCounts {
    /// With more.
    pub(crate) fn and(self, more: Self) -> Self {
        Self { reads: self.reads + more.reads, writes: self.writes + more.writes }
    }
}

/// The open index.
pub(crate) enum Index {
    Memory(Table),
    File(SlotFile),
}

impl HistoryIndex {
    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::File => "file",
        }
    }
}

impl FromStr for HistoryIndex {
    type Err = measure::ValueError;

    fn from_str(text: &str) -> Result<Self, measure::ValueError> {
        match text {
            "memory" => Ok(Self::Memory),
            "file" => Ok(Self::File),
            _ => Err("expected memory or file".into()),
        }
    }
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
    /// A table that is in memory and in its file, to be looked up as `how` says.
    pub(crate) fn of(table: Table, lib: &dyn FileSystem, how: HistoryIndex) -> Result<Self, FsError> {
        match how {
            HistoryIndex::Memory => Ok(Self::Memory(table)),
            HistoryIndex::File => Ok(Self::File(SlotFile::of(table, lib)?)),
        }
    }

    /// The same index, looked up as `how` says from now on.
    pub(crate) fn turned(self, lib: &dyn FileSystem, how: HistoryIndex) -> Result<Self, FsError> {
        match (self, how) {
            (Self::Memory(table), HistoryIndex::File) => Self::of(table, lib, how),
            (Self::File(slots), HistoryIndex::Memory) => {
                slots.close()?;
                let table = Table::read(lib)?.ok_or_else(damaged)?;
                Ok(Self::Memory(table))
            }
            (same, _) => Ok(same),
        }
    }

    /// The offset of the entry of `hash` that `confirm` says is the one.
    pub(crate) fn find(
        &mut self,
        hash: u64,
        confirm: impl FnMut(u64) -> Result<bool, FsError>,
    ) -> Result<Option<u64>, FsError> {
        match self {
            Self::Memory(table) => table.find(hash, confirm),
            Self::File(slots) => slots.find(hash, confirm),
        }
    }

    /// Whether there is no room for another.
    pub(crate) fn is_full(&self) -> bool {
        match self {
            Self::Memory(table) => table.is_full(),
            Self::File(slots) => slots.is_full(),
        }
    }

    pub(crate) fn used(&self) -> u64 {
        match self {
            Self::Memory(table) => table.used(),
            Self::File(slots) => slots.used(),
        }
    }

    /// Adds an entry; the caller has seen that there is room and that it is not there.
    pub(crate) fn add(&mut self, hash: u64, offset: u64) -> Result<(), FsError> {
        match self {
            Self::Memory(table) => {
                table.add(hash, offset);
                Ok(())
            }
            Self::File(slots) => slots.add(hash, offset),
        }
    }

    /// Lets the entry that was at `old` name another offset.
    pub(crate) fn replace(&mut self, hash: u64, old: u64, offset: u64) -> Result<(), FsError> {
        match self {
            Self::Memory(table) => {
                table.replace(hash, old, offset);
                Ok(())
            }
            Self::File(slots) => slots.replace(hash, old, offset),
        }
    }

    /// Does what is due at the end of a batch.
    pub(crate) fn end_batch(&mut self, lib: &dyn FileSystem) -> Result<(), FsError> {
        match self {
            Self::Memory(table) => table.flush_many(),
            Self::File(slots) => slots.reopen_if_due(lib),
        }
    }

    /// Writes what changed and that the file covers `text_bytes` of the text.
    pub(crate) fn settle(&mut self, text_bytes: u64) -> Result<(), FsError> {
        match self {
            Self::Memory(table) => table.settle(text_bytes),
            Self::File(slots) => slots.settle(text_bytes),
        }
    }

    /// What looking up in the file cost.
    pub(crate) fn counts(&self) -> SlotCounts {
        match self {
            Self::Memory(_) => SlotCounts::default(),
            Self::File(slots) => slots.counts(),
        }
    }
}

/// What the head of the file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(super) slots: u64,
    pub(super) used: u64,
    /// Bytes of the text that it covers; 0 while it is worked on.
    pub(crate) text_bytes: u64,
}

impl Head {
    pub(super) fn encode(self) -> [u8; HEAD_BYTES] {
        let mut head = [0; HEAD_BYTES];
        head[..8].copy_from_slice(MAGIC);
        let words = [VERSION, self.slots, self.used, self.text_bytes];
        for (place, word) in head[8..].chunks_exact_mut(8).zip(words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        head
    }

    /// None when it is no head of ours.
    pub(super) fn decode(head: &[u8; HEAD_BYTES]) -> Option<Self> {
        let word = |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
        let found = Self { slots: word(16), used: word(24), text_bytes: word(32) };
        (&head[..8] == MAGIC && word(8) == VERSION).then_some(found)
    }
}

/// Where to begin looking in a table of `slots`.
pub(super) fn start(hash: u64, slots: usize) -> usize {
    hash as usize & (slots - 1)
}

pub(super) fn slot_of(hash: u64, offset: u64) -> u64 {
    assert!(offset <= OFFSET_MAX, "the text refuses to grow beyond what a slot can say");
    (hash >> OFFSET_BITS) << OFFSET_BITS | (offset + 1)
}

/// The offset in a slot that has the tag of `hash`. A slot may come from a damaged file.
pub(super) fn offset_in(slot: u64, hash: u64) -> Option<u64> {
    if slot >> OFFSET_BITS == hash >> OFFSET_BITS { (slot & OFFSET_MASK).checked_sub(1) } else { None }
}

/// Whether a table with one more entry than `used` is fuller than it may be.
pub(super) fn would_be_full(used: usize, slots: usize) -> bool {
    (used + 1) * 3 > slots * 2
}

/// The file does not hold what was written to it.
pub(super) fn damaged() -> FsError {
    FsError::Failed {
        op: FsOp::Read,
        path: Path::new(INDEX_FILE).to_owned(),
        status: Status::IO,
        source: None,
    }
}
