//! All index records of an index file, whatever is damaged, and the repair of single bits.

use std::collections::HashSet;
use std::ops::Range;

use super::{
    INDEX_HEAD_BYTES, INDEX_RECORD_BYTES_MAX, IndexRecord, MARK_BYTES, crc, decode_index_record, u16_at,
    u32_at,
};

/// All index records of an index file's bytes after its head; damaged ranges are passed over.
pub(crate) struct IndexRecords<'a> {
    bytes: &'a [u8],
    at: usize,
    salt: u32,
    /// Offsets of ranges that are no index records.
    pub damaged: Vec<u64>,
}

impl<'a> IndexRecords<'a> {
    /// `bytes`: the whole file.
    pub(crate) fn new(bytes: &'a [u8], salt: u32) -> Self {
        Self { bytes, at: INDEX_HEAD_BYTES, salt, damaged: Vec::new() }
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
        let mut damaged = false;
        while self.at + MARK_BYTES <= self.bytes.len() {
            if let Some((index_record, len)) = decode_index_record(&self.bytes[self.at..], self.salt) {
                let at = self.at as u64;
                self.at += len;
                return Some((at, index_record));
            }
            // Zeros are room that was taken and never written.
            if !damaged && self.bytes[self.at..self.at + 8] != [0; 8] {
                damaged = true;
                self.damaged.push(self.at as u64);
            }
            self.at += 8;
        }
        None
    }
}

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
