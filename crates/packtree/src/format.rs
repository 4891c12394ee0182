//! Bytes on disk: the head of a tree, the head of a journal room, and the frame of a record. `docs/design/packtree.md` is the layout.
//!
//! ```text
//! record: | crc32c u32 | length u32 | sequence u64 | kind u8 | fields | zeros to 8 |      little-endian
//! ```
//!
//! Always holds: bytes that are no whole record of this room or checkpoint decode to nothing; a record's checksum covers
//! the random number (`salt`) of what it was written to, so what an earlier use left there is no record.
//! Not here: what the records do (`table`), where they are (`journal`), sorted runs of names (`names`).

mod checksum;
mod fields;
mod node;
mod record;

pub(crate) use checksum::{crc, crc_of_both};
pub(crate) use fields::{Reader, put_u16, put_u32, put_u64, put_varint};
pub(crate) use node::{Named, decode_node, encode_node};
pub(crate) use record::{Change, NodeKind, Owner, Piece, Record};

/// Unit of space for contents.
pub(crate) const BLOCK_BYTES: u64 = 64;
/// Longest piece: what a read of one byte has to verify.
pub(crate) const PIECE_BYTES_MAX: u64 = 128 << 10;
/// Head of a room and of every other file of a tree.
pub(crate) const HEAD_BYTES: usize = 64;
/// A record without its fields.
const FRAME_BYTES: usize = 17;
/// Longest record: a symbolic link, or the pieces of one long write.
pub(crate) const RECORD_BYTES_MAX: usize = 4800;
/// What this program writes.
pub(crate) const VERSION: u32 = 2;
/// What it also reads, and replaces.
pub(crate) const VERSION_1: u32 = 1;
/// Of the runs of names that this program writes. A tree of version 2 may have runs of version 2 too.
pub(crate) const RUN_VERSION: u32 = 3;
pub(crate) const TREE_MAGIC: &[u8; 8] = b"CRUMBTRE";
const ROOM_MAGIC: &[u8; 8] = b"CRUMBJRN";
const NAMES_MAGIC: &[u8; 8] = b"CRUMBNAM";
pub(crate) const MANIFEST_MAGIC: &[u8; 8] = b"CRUMBMAN";
pub(crate) const FREE_MAGIC: &[u8; 8] = b"CRUMBFRE";
pub(crate) const RUN_MAGIC: &[u8; 8] = b"CRUMBRUN";
pub(crate) const RUN_END_MAGIC: &[u8; 8] = b"CRUMBEND";

/// Blocks that hold this many bytes.
pub(crate) fn blocks_of(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK_BYTES)
}

/// What never changes of a tree: file `tree`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TreeHead {
    pub id: u128,
    pub segment_bytes: u32,
    pub room_bytes: u32,
}

/// The beginning of a room of the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RoomHead {
    pub id: u128,
    /// Rooms are read in the order of their numbers.
    pub number: u64,
    /// Of its first record. Records of rooms before it count up to here.
    pub first_sequence: u64,
    pub salt: u32,
}

/// The beginning of a checkpoint of version 1, the file `names`; and the file `clean`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NamesHead {
    pub id: u128,
    /// All changes up to this one are in it.
    pub sequence: u64,
    pub next_inode: u64,
    pub records: u64,
    pub salt: u32,
}

/// The first 64 bytes of a file or a room. What the numbers are is said where it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub version: u32,
    pub id: u128,
    pub numbers: [u64; 3],
    pub salt: u32,
}

impl Head {
    /// One of the version that this program writes.
    pub(crate) fn new(id: u128, numbers: [u64; 3], salt: u32) -> Self {
        Self { version: VERSION, id, numbers, salt }
    }

    pub(crate) fn encode(&self, magic: &[u8; 8]) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[..8].copy_from_slice(magic);
        bytes[8..12].copy_from_slice(&self.version.to_le_bytes());
        bytes[12..28].copy_from_slice(&self.id.to_le_bytes());
        for (at, number) in (28..).step_by(8).zip(self.numbers) {
            bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
        }
        bytes[52..56].copy_from_slice(&self.salt.to_le_bytes());
        let sum = crc(&bytes[..60]);
        bytes[60..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(magic: &[u8; 8], bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..HEAD_BYTES)?;
        let mut reader = Reader::new(&bytes[8..]);
        if &bytes[..8] != magic || crc(&bytes[..60]).to_le_bytes() != bytes[60..] {
            return None;
        }
        Some(Self {
            version: reader.u32()?,
            id: u128::from(reader.u64()?) | u128::from(reader.u64()?) << 64,
            numbers: [reader.u64()?, reader.u64()?, reader.u64()?],
            salt: reader.u32()?,
        })
    }

    /// As [`Head::decode`], of this tree and of the version that this program writes.
    pub(crate) fn decode_own(magic: &[u8; 8], bytes: &[u8], id: u128) -> Option<Self> {
        Self::decode(magic, bytes).filter(|head| head.version == VERSION && head.id == id)
    }
}

impl TreeHead {
    pub(crate) fn encode(&self) -> [u8; HEAD_BYTES] {
        Head::new(self.id, [self.segment_bytes.into(), self.room_bytes.into(), 0], 0).encode(TREE_MAGIC)
    }

    /// The head and its version, or the version that wrote it when this program does not know it.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Result<(Self, u32), u32>> {
        let head = Head::decode(TREE_MAGIC, bytes)?;
        if !matches!(head.version, VERSION_1 | VERSION) {
            return Some(Err(head.version));
        }
        let [segment_bytes, room_bytes, _] = head.numbers;
        let (segment_bytes, room_bytes) =
            (u32::try_from(segment_bytes).ok()?, u32::try_from(room_bytes).ok()?);
        let fits = u64::from(segment_bytes).is_multiple_of(BLOCK_BYTES)
            && u64::from(room_bytes).is_multiple_of(BLOCK_BYTES)
            && room_bytes as usize >= HEAD_BYTES + RECORD_BYTES_MAX
            && room_bytes < segment_bytes;
        fits.then_some(Ok((Self { id: head.id, segment_bytes, room_bytes }, head.version)))
    }
}

impl RoomHead {
    pub(crate) fn encode(&self) -> [u8; HEAD_BYTES] {
        Head::new(self.id, [self.number, self.first_sequence, 0], self.salt).encode(ROOM_MAGIC)
    }

    /// A room that this version of the format wrote. One of another version is no room of this tree.
    pub(crate) fn decode(bytes: &[u8], id: u128, version: u32) -> Option<Self> {
        let head = Head::decode(ROOM_MAGIC, bytes)?;
        let [number, first_sequence, _] = head.numbers;
        let room = Self { id: head.id, number, first_sequence, salt: head.salt };
        (head.version == version && head.id == id).then_some(room)
    }
}

impl NamesHead {
    pub(crate) fn encode(&self) -> [u8; HEAD_BYTES] {
        Head::new(self.id, [self.sequence, self.next_inode, self.records], self.salt).encode(NAMES_MAGIC)
    }

    pub(crate) fn decode(bytes: &[u8], id: u128) -> Option<Self> {
        let head = Head::decode(NAMES_MAGIC, bytes)?;
        let [sequence, next_inode, records] = head.numbers;
        let names = Self { id: head.id, sequence, next_inode, records, salt: head.salt };
        (matches!(head.version, VERSION_1 | VERSION) && head.id == id).then_some(names)
    }
}

/// Appends a record in its frame.
pub(crate) fn frame(record: &Record, sequence: u64, salt: u32, into: &mut Vec<u8>) {
    let start = into.len();
    into.extend_from_slice(&[0; 8]);
    put_u64(into, sequence);
    into.push(record.kind());
    record.put_fields(into);
    let length = (into.len() - start).next_multiple_of(8);
    into.resize(start + length, 0);
    into[start + 4..start + 8].copy_from_slice(&(length as u32).to_le_bytes());
    let sum = crc(&into[start + 4..]) ^ salt;
    into[start..start + 4].copy_from_slice(&sum.to_le_bytes());
}

/// A record at the beginning of `bytes`, with its sequence number and length.
pub(crate) fn unframe(bytes: &[u8], salt: u32) -> Option<(u64, Record, usize)> {
    let mut reader = Reader::new(bytes);
    let sum = reader.u32()?;
    let length = reader.u32()? as usize;
    if !(FRAME_BYTES..=RECORD_BYTES_MAX).contains(&length)
        || !length.is_multiple_of(8)
        || length > bytes.len()
    {
        return None;
    }
    if crc(&bytes[4..length]) ^ salt != sum {
        return None;
    }
    let sequence = reader.u64()?;
    let kind = reader.u8()?;
    let record = Record::take_fields(kind, &mut Reader::new(&bytes[FRAME_BYTES..length]))?;
    Some((sequence, record, length))
}

/// Every record in a stretch of bytes, whatever lies between them.
pub(crate) fn records(bytes: &[u8], salt: u32) -> impl Iterator<Item = (u64, Record)> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        while at + FRAME_BYTES <= bytes.len() {
            if let Some((sequence, record, length)) = unframe(&bytes[at..], salt) {
                at += length;
                return Some((sequence, record));
            }
            at += 8;
        }
        None
    })
}

#[cfg(test)]
mod tests;
