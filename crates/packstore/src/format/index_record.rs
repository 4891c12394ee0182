//! An index record: one entry of an index file.

use super::{
    INDEX_RECORD_BYTES_MAX, INDEX_RECORD_FIXED_BYTES, INTERNAL, KEY_BYTES_MAX, Kind, MARK_BYTES,
    META_BYTES_MAX, Name, RECORD_HEAD_BYTES, RECOVERED, TOMBSTONE_BYTES, crc, u16_at, u32_at, u64_at,
};

const TOMBSTONE: u8 = 16;
pub(super) const MARK: u8 = 17;

/// The segment whose record is superseded, and the generation of its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Superseded {
    pub file: u32,
    pub generation: u64,
}

const NOBODY: u32 = u32::MAX;

/// An index record: one entry of an index file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IndexRecord<'a> {
    Put(Put<'a>),
    Tombstone(Tombstone),
    /// All before this offset of the index is durable, and the bodies that it names.
    Mark {
        durable_end: u64,
    },
}

/// Objects with this hash and at most this sequence number are gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tombstone {
    pub sequence: u64,
    pub hash: u64,
    pub superseded: Superseded,
    /// When the object was deleted, in seconds since 1970; 0: not known, or it was replaced.
    pub deleted_s: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Put<'a> {
    pub kind: Kind,
    pub name: Name<'a>,
    pub sequence: u64,
    pub superseded: Option<Superseded>,
    pub block: u32,
    pub meta_len: u32,
    pub body_len: u32,
    pub created_s: u32,
    pub expires_s: u32,
    /// Manifest: number of the pieces' owner. Alias: number of the shared object. Else 0.
    pub id: u64,
    /// Manifest: number of pieces and length. Alias: length. Else 0.
    pub length: u64,
    /// Its index was lost, and this index record was made from the record itself.
    pub recovered: bool,
}

impl Put<'_> {
    pub(crate) fn record_bytes(&self) -> usize {
        RECORD_HEAD_BYTES + self.name.key.len() + self.meta_len as usize + self.body_len as usize
    }

    /// Length of the object as its user sees it.
    pub(crate) fn object_bytes(&self) -> u64 {
        if self.kind == Kind::Whole { u64::from(self.body_len) } else { self.length }
    }

    /// Pieces of a manifest.
    pub(crate) fn pieces(&self) -> u32 {
        self.body_len.saturating_sub(8) / 4
    }
}

impl IndexRecord<'_> {
    /// Appends the index record to an index whose checksums are salted so.
    pub(crate) fn encode(&self, salt: u32, out: &mut Vec<u8>) {
        let start = out.len();
        let (kind, flags, sequence) = match self {
            Self::Put(put) => {
                let flags = (u8::from(put.name.internal) * INTERNAL) | (u8::from(put.recovered) * RECOVERED);
                (put.kind.code(), flags, put.sequence)
            }
            Self::Tombstone(tombstone) => (TOMBSTONE, 0, tombstone.sequence),
            Self::Mark { durable_end } => (MARK, 0, *durable_end),
        };
        out.extend_from_slice(&[0, 0, 0, 0, 0, 0, kind, flags]);
        out.extend_from_slice(&sequence.to_le_bytes());
        match self {
            Self::Put(put) => {
                out.extend_from_slice(
                    &put.superseded.map_or(NOBODY, |superseded| superseded.file).to_le_bytes(),
                );
                out.extend_from_slice(&put.body_len.to_le_bytes());
                out.extend_from_slice(
                    &put.superseded.map_or(0, |superseded| superseded.generation).to_le_bytes(),
                );
                for word in [put.block, put.meta_len, put.created_s, put.expires_s] {
                    out.extend_from_slice(&word.to_le_bytes());
                }
                out.extend_from_slice(&(put.name.key.len() as u16).to_le_bytes());
                out.extend_from_slice(&[0; 2]);
                out.extend_from_slice(put.name.key);
                if put.kind.has_extension() {
                    out.extend_from_slice(&put.id.to_le_bytes());
                    out.extend_from_slice(&put.length.to_le_bytes());
                }
            }
            Self::Tombstone(Tombstone { hash, superseded, deleted_s, .. }) => {
                out.extend_from_slice(&superseded.file.to_le_bytes());
                out.extend_from_slice(&deleted_s.to_le_bytes());
                out.extend_from_slice(&superseded.generation.to_le_bytes());
                out.extend_from_slice(&hash.to_le_bytes());
            }
            Self::Mark { .. } => out.extend_from_slice(&[0; 8]),
        }
        while !(out.len() - start).is_multiple_of(8) {
            out.push(0);
        }
        let units = ((out.len() - start) / 8) as u16;
        out[start + 4..start + 6].copy_from_slice(&units.to_le_bytes());
        let sum = crc(&out[start + 4..]) ^ salt;
        out[start..start + 4].copy_from_slice(&sum.to_le_bytes());
    }
}

/// The index record at the start of `bytes`, and its length; `None` when it is not whole.
pub(crate) fn decode_index_record(bytes: &[u8], salt: u32) -> Option<(IndexRecord<'_>, usize)> {
    let len = u16_at(bytes.get(..MARK_BYTES)?, 4) as usize * 8;
    if !(MARK_BYTES..=INDEX_RECORD_BYTES_MAX).contains(&len) {
        return None;
    }
    let bytes = bytes.get(..len)?;
    if crc(&bytes[4..]) ^ salt != u32_at(bytes, 0) {
        return None;
    }
    let sequence = u64_at(bytes, 8);
    let index_record = match bytes[6] {
        MARK => IndexRecord::Mark { durable_end: sequence },
        TOMBSTONE if len == TOMBSTONE_BYTES => IndexRecord::Tombstone(Tombstone {
            sequence,
            hash: u64_at(bytes, 32),
            superseded: Superseded { file: u32_at(bytes, 16), generation: u64_at(bytes, 24) },
            deleted_s: u32_at(bytes, 20),
        }),
        code => {
            let kind = Kind::of(code)?;
            let key_len = u16_at(bytes.get(..INDEX_RECORD_FIXED_BYTES)?, 48) as usize;
            let end = INDEX_RECORD_FIXED_BYTES + key_len;
            let key = bytes.get(INDEX_RECORD_FIXED_BYTES..end)?;
            let (id, length) = match bytes.get(end..end + 16) {
                Some(extension) if kind.has_extension() => (u64_at(extension, 0), u64_at(extension, 8)),
                None if kind.has_extension() => return None,
                _ => (0, 0),
            };
            let file = u32_at(bytes, 16);
            let put = Put {
                kind,
                name: Name { internal: bytes[7] & INTERNAL != 0, key },
                sequence,
                superseded: (file != NOBODY).then(|| Superseded { file, generation: u64_at(bytes, 24) }),
                block: u32_at(bytes, 32),
                meta_len: u32_at(bytes, 36),
                body_len: u32_at(bytes, 20),
                created_s: u32_at(bytes, 40),
                expires_s: u32_at(bytes, 44),
                id,
                length,
                recovered: bytes[7] & RECOVERED != 0,
            };
            if key.is_empty() || key_len > KEY_BYTES_MAX || put.meta_len as usize > META_BYTES_MAX {
                return None;
            }
            IndexRecord::Put(put)
        }
    };
    Some((index_record, len))
}
