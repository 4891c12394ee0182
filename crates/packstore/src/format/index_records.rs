//! All index records of an index file, whatever is damaged, and the repair of single bits.

use std::collections::HashSet;
use std::ops::Range;

use super::{
    INDEX_HEAD_BYTES, INDEX_RECORD_BYTES_MAX, IndexRecord, MARK_BYTES, TOMBSTONES_APART_BYTES, crc,
    decode_index_record, index_record::MARK, u16_at, u32_at,
};
use crate::hashed::Hashed;

/// All index records of an index file's bytes after its head; damaged ranges are passed over.
///
/// Zeros behind the last index record are room never written. Zeros before one are damage, unless they are too short for an index
/// record, or are what a rewritten index has between its tombstones and their copies.
pub(crate) struct IndexRecords<'a> {
    bytes: &'a [u8],
    at: usize,
    salt: u32,
    /// Ranges that are no index records, each up to the next index record or the end of the file.
    pub damaged: Vec<Range<u64>>,
    is_after_tombstone: bool,
}

impl<'a> IndexRecords<'a> {
    /// `bytes`: the whole file.
    pub(crate) fn new(bytes: &'a [u8], salt: u32) -> Self {
        Self { bytes, at: INDEX_HEAD_BYTES, salt, damaged: Vec::new(), is_after_tombstone: false }
    }

    /// Without those before this offset, at which one begins.
    pub(crate) fn starting_at(self, at: u64) -> Self {
        Self { at: self.at.max(self.bytes.len().min(at as usize)), ..self }
    }
}

impl<'a> Iterator for IndexRecords<'a> {
    /// Offset and what is there.
    type Item = (u64, IndexRecord<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let (start, mut has_bytes) = (self.at, false);
        while self.at + MARK_BYTES <= self.bytes.len() {
            if let Some((index_record, len)) = decode_index_record(&self.bytes[self.at..], self.salt) {
                let (at, gap) = (self.at, self.at - start);
                let is_tombstone = matches!(index_record, IndexRecord::Tombstone(_));
                let is_between = is_tombstone && self.is_after_tombstone && gap <= TOMBSTONES_APART_BYTES;
                if has_bytes || gap >= MARK_BYTES && !is_between {
                    self.damaged.push(start as u64..at as u64);
                }
                self.is_after_tombstone = is_tombstone;
                self.at += len;
                return Some((at as u64, index_record));
            }
            has_bytes |= self.bytes[self.at..self.at + 8] != [0; 8];
            self.at += 8;
        }
        if has_bytes {
            self.damaged.push(start as u64..self.bytes.len() as u64);
        }
        None
    }
}

/// Makes unreadable what an index has twice, so that it counts as damaged: a put is in an index once, until the index is rewritten. A
/// second one was written over other index records. Which of the two was moved does not matter, as they are the same. Returns whether
/// there was any.
pub(crate) fn expose_copies(bytes: &mut [u8], salt: u32) -> bool {
    let mut seen = HashSet::with_hasher(Hashed::default());
    let mut copies = Vec::new();
    for (at, index_record) in IndexRecords::new(bytes, salt) {
        if let IndexRecord::Put(put) = index_record
            && !seen.insert((put.sequence, put.block))
        {
            copies.push(at as usize);
        }
    }
    for &at in &copies {
        let len = usize::from(u16_at(bytes, at + 4)) * 8;
        bytes[at..at + len].fill(u8::MAX);
    }
    !copies.is_empty()
}

/// Fills ranges that hold no index record with ones that have no meaning, so that these ranges do not count as damaged.
pub(crate) fn fill_gaps(bytes: &mut [u8], salt: u32) {
    let mut at = INDEX_HEAD_BYTES;
    while at < bytes.len() {
        let start = at;
        let mut len = 0;
        while at < bytes.len() && len == 0 {
            len = decode_index_record(&bytes[at..], salt).map_or(0, |(_, len)| len);
            at = (at + 8 * usize::from(len == 0)).min(bytes.len());
        }
        fill(&mut bytes[start..at], salt);
        at += len;
    }
}

fn fill(gap: &mut [u8], salt: u32) {
    gap.fill(0);
    for part in gap.chunks_mut(FILLER_BYTES_MAX) {
        let units = part.len() / 8;
        if units * 8 >= MARK_BYTES {
            let part = &mut part[..units * 8];
            part[4..6].copy_from_slice(&(units as u16).to_le_bytes());
            part[6] = MARK;
            let sum = crc(&part[4..]) ^ salt;
            part[..4].copy_from_slice(&sum.to_le_bytes());
        }
    }
}

/// A mark of nothing, as long as an index record may be.
const FILLER_BYTES_MAX: usize = INDEX_RECORD_BYTES_MAX / 8 * 8;

/// Ranges behind this offset that are no index records and not zeros alone. Half a mark at the end is none: the last mark is
/// written after the last sync, and nothing is lost with it.
pub(crate) fn damaged_behind(bytes: &[u8], salt: u32, offset: u64) -> Vec<Range<u64>> {
    let mut ranges = Vec::new();
    let mut begin = None;
    let mut at = INDEX_HEAD_BYTES.max(bytes.len().min(offset as usize));
    while at < bytes.len() {
        let step = &bytes[at..bytes.len().min(at + 8)];
        if let Some((_, len)) = decode_index_record(&bytes[at..], salt) {
            ranges.extend(begin.take().map(|begin| begin..at as u64));
            at += len;
        } else {
            if begin.is_none() && step.iter().any(|&byte| byte != 0) {
                begin = Some(at as u64);
            }
            at += step.len();
        }
    }
    if let Some(begin) = begin {
        let end = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last as u64 + 1);
        ranges.extend((end > begin + MARK_BYTES as u64).then_some(begin..end));
    }
    ranges
}

/// The salt of an index file whose head is damaged, as its index records' checksums tell it: two blocks must agree.
pub(crate) fn salt_of(bytes: &[u8]) -> Option<u32> {
    let mut seen = HashSet::new();
    let mut at = INDEX_HEAD_BYTES;
    while at + MARK_BYTES <= bytes.len() {
        let len = u16_at(bytes, at + 4) as usize * 8;
        let block = bytes.get(at..at + len).filter(|_| (MARK_BYTES..=INDEX_RECORD_BYTES_MAX).contains(&len));
        if let Some(block) = block {
            let salt = crc(&block[4..]) ^ u32_at(block, 0);
            if decode_index_record(block, salt).is_some() && !seen.insert(salt) {
                return Some(salt);
            }
        }
        at += 8;
    }
    None
}

/// Repairs what one flipped bit made of each index record; at most one try for each damaged range. Returns where.
pub(crate) fn repair_index_records(bytes: &mut [u8], salt: u32) -> Vec<u64> {
    let (mut at, mut repaired, mut tried) = (INDEX_HEAD_BYTES, Vec::new(), false);
    while at + MARK_BYTES <= bytes.len() {
        if let Some((_, len)) = decode_index_record(&bytes[at..], salt) {
            (at, tried) = (at + len, false);
        } else if bytes[at..at + 8] == [0; 8] || tried {
            at += 8;
        } else if repair_index_record(&mut bytes[at..], salt) {
            repaired.push(at as u64);
        } else {
            tried = true;
        }
    }
    repaired
}

/// One flipped bit at most: as a checksum of 32 bits goes wrong differently for each bit of a block this short, it is the
/// block that was written. Two bits are never taken for one.
fn repair_index_record(bytes: &mut [u8], salt: u32) -> bool {
    // First its length, which says how far the checksum reaches.
    for bit in 32..48 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        if decode_index_record(bytes, salt).is_some() {
            return true;
        }
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    let len = u16_at(bytes, 4) as usize * 8;
    if !(MARK_BYTES..=INDEX_RECORD_BYTES_MAX.min(bytes.len())).contains(&len) {
        return false;
    }
    for bit in (0..32).chain(48..len * 8) {
        bytes[bit / 8] ^= 1 << (bit % 8);
        if decode_index_record(bytes, salt).is_some() {
            return true;
        }
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
    false
}
