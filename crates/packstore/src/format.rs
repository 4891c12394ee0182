//! Bytes on disk: a volume's head, the records of a data file, the index records of an index file.
//!
//! Always holds: what is decoded was whole by its checksum, and its lengths fit into what was read.
//! Not here: where records go (`write_queue`), which of them still count (`rebuild`).
//! Layout: `docs/design/packstore-format.md`, the only description of it.

mod heads;
mod index_record;
mod index_records;
mod record;
#[cfg(test)]
mod tests;

pub(crate) use heads::{IndexHead, VolumeHead, body_salt};
pub(crate) use index_record::{IndexRecord, Put, Superseded, Tombstone, decode_index_record};
pub(crate) use index_records::{
    IndexRecords, damaged_behind, expose_copies, fill_gaps, repair_index_records, salt_of,
};
pub(crate) use record::{Manifest, RecordHead, TIMES_AT, encode_times};

/// The format's version, in each head.
pub const FORMAT_VERSION: u32 = 1;
/// Version in the heads of the volumes, and in the table, of a store with properties that version 1 does not have.
pub(crate) const EXTENDED_VERSION: u32 = 2;
/// Longest key.
pub const KEY_BYTES_MAX: usize = 4096;
/// Longest attributes.
pub const META_BYTES_MAX: usize = 65_536;
pub(crate) const RECORD_HEAD_BYTES: usize = 48;
pub(crate) const INDEX_HEAD_BYTES: usize = 64;
pub(crate) const VOLUME_HEAD_BYTES: usize = 96;
pub(crate) const INDEX_RECORD_FIXED_BYTES: usize = 52;
/// What an object takes at least besides its body, its attributes, and its key in the record and in the index.
pub(crate) const OBJECT_OVERHEAD_BYTES: u64 = (RECORD_HEAD_BYTES + INDEX_RECORD_FIXED_BYTES) as u64;
pub(crate) const TOMBSTONE_BYTES: usize = 40;
pub(crate) const MARK_BYTES: usize = 24;
/// So far apart are a tombstone and its copy, at least; and a rewritten index has no more zeros than that between the two.
pub(crate) const TOMBSTONES_APART_BYTES: usize = 512;
const INDEX_RECORD_BYTES_MAX: usize = INDEX_RECORD_FIXED_BYTES + KEY_BYTES_MAX + 16 + 8;

pub(crate) fn crc(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// What kind of record an object's bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The whole object in one extent.
    Whole,
    /// The list of an object's pieces.
    Manifest,
    /// A key that names a shared object.
    Alias,
}

impl Kind {
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Whole => 1,
            Self::Manifest => 2,
            Self::Alias => 3,
        }
    }

    pub(crate) fn of(code: u8) -> Option<Self> {
        [Self::Whole, Self::Manifest, Self::Alias].into_iter().find(|kind| kind.code() == code)
    }

    fn has_extension(self) -> bool {
        self != Self::Whole
    }
}

/// The key is one of ours (a piece, a shared object), not a user's.
const INTERNAL: u8 = 1;
/// In an index record: it was made from the record, as the index was lost.
const RECOVERED: u8 = 2;

/// What a name within the store is: a user's key, or one of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name<'a> {
    pub internal: bool,
    pub key: &'a [u8],
}

impl<'a> Name<'a> {
    pub(crate) fn of(key: &'a [u8]) -> Self {
        Self { internal: false, key }
    }

    pub(crate) fn hash(self, seed: u64) -> u64 {
        xxhash_rust::xxh3::xxh3_64_with_seed(self.key, if self.internal { !seed } else { seed })
    }
}

/// Our own key: part `part` of the object with this number; [`SHARED`] for one with several names.
pub(crate) fn internal_key(id: u64, part: u32) -> [u8; 12] {
    let mut key = [0; 12];
    key[..8].copy_from_slice(&id.to_le_bytes());
    key[8..].copy_from_slice(&part.to_le_bytes());
    key
}

pub(crate) const SHARED: u32 = u32::MAX;

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}
