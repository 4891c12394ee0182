//! A record of a data file: head, key, attributes, body; and the list of pieces, which is one kind of body.

use super::{INTERNAL, KEY_BYTES_MAX, Kind, META_BYTES_MAX, RECORD_HEAD_BYTES, crc, u16_at, u32_at, u64_at};

/// Head of a record in a data file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RecordHead {
    pub kind: Kind,
    pub internal: bool,
    pub key_len: u16,
    pub sequence: u64,
    pub meta_len: u32,
    pub body_len: u32,
    pub body_crc: u32,
    pub created_s: u32,
    pub requested_s: u32,
    pub expires_s: u32,
}

impl RecordHead {
    /// Bytes of the whole record.
    pub(crate) fn record_bytes(&self) -> usize {
        RECORD_HEAD_BYTES + self.key_len as usize + self.meta_len as usize + self.body_len as usize
    }

    /// Appends head, key and attributes; the body follows. `index_end`: so long the file's index was, durably, when the record was
    /// written, in 8 bytes.
    pub(crate) fn encode(&self, key: &[u8], meta: &[u8], salt: u32, index_end: u32, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(&[self.kind.code(), u8::from(self.internal) * INTERNAL]);
        out.extend_from_slice(&self.key_len.to_le_bytes());
        out.extend_from_slice(&self.sequence.to_le_bytes());
        for word in [self.meta_len, self.body_len, self.body_crc, self.created_s] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(&encode_times(self.sequence, self.requested_s, self.expires_s));
        out.extend_from_slice(&index_end.to_le_bytes());
        out.extend_from_slice(key);
        out.extend_from_slice(meta);
        let sum = record_crc(&out[start..], salt);
        out[start..start + 4].copy_from_slice(&sum.to_le_bytes());
    }

    /// The head at the start of `bytes`, without its checksum's proof.
    pub(crate) fn peek(bytes: &[u8]) -> Option<Self> {
        let head = bytes.get(..RECORD_HEAD_BYTES)?;
        let sequence = u64_at(head, 8);
        let (requested_s, expires_s) = decode_times(sequence, &head[32..44]).unwrap_or((0, 0));
        let head = Self {
            kind: Kind::of(head[4])?,
            internal: match head[5] {
                0 => false,
                INTERNAL => true,
                _ => return None,
            },
            key_len: u16_at(head, 6),
            sequence,
            meta_len: u32_at(head, 16),
            body_len: u32_at(head, 20),
            body_crc: u32_at(head, 24),
            created_s: u32_at(head, 28),
            requested_s,
            expires_s,
        };
        let fits = head.key_len as usize <= KEY_BYTES_MAX && head.meta_len as usize <= META_BYTES_MAX;
        (fits && head.key_len > 0).then_some(head)
    }

    /// Whether the times of the record at the start of `bytes` are as they were written.
    pub(crate) fn has_times(bytes: &[u8]) -> bool {
        bytes
            .get(..RECORD_HEAD_BYTES)
            .is_some_and(|head| decode_times(u64_at(head, 8), &head[32..44]).is_some())
    }

    /// The least length of the file's index, in bytes, since the record at the start of `bytes` was written; 0: not known.
    pub(crate) fn index_end(bytes: &[u8]) -> u64 {
        bytes.get(44..RECORD_HEAD_BYTES).map_or(0, |word| u64::from(u32_at(word, 0)) * 8)
    }

    /// The salt with which the checksum of the record at the start of `bytes` is right, and its head. Any bytes have one.
    pub(crate) fn salt_of(bytes: &[u8]) -> Option<(u32, Self)> {
        let head = Self::peek(bytes)?;
        let end = RECORD_HEAD_BYTES + head.key_len as usize + head.meta_len as usize;
        Some((record_crc(bytes.get(..end)?, 0) ^ u32_at(bytes, 0), head))
    }

    /// The head, when its checksum, which covers key and attributes too, is right. `None` also when `bytes` end before.
    pub(crate) fn decode(bytes: &[u8], salt: u32) -> Option<Self> {
        let head = Self::peek(bytes)?;
        let end = RECORD_HEAD_BYTES + head.key_len as usize + head.meta_len as usize;
        (record_crc(bytes.get(..end)?, salt) == u32_at(bytes, 0)).then_some(head)
    }
}

/// The times are left out: they alone change in place.
fn record_crc(head: &[u8], salt: u32) -> u32 {
    let mut fixed = [0; 28];
    fixed.copy_from_slice(&head[4..32]);
    // Two sums, so that no copy has to be made of a long key.
    crc(&fixed).rotate_left(1) ^ crc(&head[44..]) ^ salt
}

/// Where the times lie within a record: inside its first 64 bytes, hence inside one sector.
pub(crate) const TIMES_AT: u64 = 32;

pub(crate) fn encode_times(sequence: u64, requested_s: u32, expires_s: u32) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&requested_s.to_le_bytes());
    bytes[4..8].copy_from_slice(&expires_s.to_le_bytes());
    let sum = crc(&bytes[..8]) ^ sequence as u32;
    bytes[8..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

fn decode_times(sequence: u64, bytes: &[u8]) -> Option<(u32, u32)> {
    let whole = crc(&bytes[..8]) ^ sequence as u32 == u32_at(bytes, 8);
    whole.then(|| (u32_at(bytes, 0), u32_at(bytes, 4)))
}

/// The list of an object's pieces, as the body of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub id: u64,
    pub piece_lens: Vec<u32>,
}

impl Manifest {
    pub(crate) fn length(&self) -> u64 {
        self.piece_lens.iter().map(|&len| u64::from(len)).sum()
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut bytes = self.id.to_le_bytes().to_vec();
        for len in &self.piece_lens {
            bytes.extend_from_slice(&len.to_le_bytes());
        }
        bytes
    }

    pub(crate) fn decode(body: &[u8]) -> Option<Self> {
        if body.len() < 8 || !body.len().is_multiple_of(4) {
            return None;
        }
        let piece_lens = body[8..].chunks_exact(4).map(|word| u32_at(word, 0)).collect();
        Some(Self { id: u64_at(body, 0), piece_lens })
    }
}
