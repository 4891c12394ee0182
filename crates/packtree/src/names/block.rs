//! A block of a run: neighbouring keys with their values, and one checksum.
//!
//! ```text
//! | crc32c u32 (xor salt) | length u32 | keys u32 | offset of each u16 | entry | entry | ... |
//! entry: | key length u16, its highest bit for a removal | value length, seven bits a byte | key | value |
//! ```
//!
//! Always holds: what was decoded has offsets and lengths within its bytes, so that no look-up leaves them.

use crate::format::{Reader, crc, put_u16, put_varint};

/// A block is closed once it has this many bytes of entries. One value may be longer.
const BYTES: usize = 4096;
/// Before the entries, and before the bytes of a parity block.
pub(super) const HEAD: usize = 12;
const REMOVED: u16 = 1 << 15;

pub(crate) struct Block {
    bytes: Box<[u8]>,
    count: usize,
}

/// Collects keys, in order, for one block.
#[derive(Default)]
pub(crate) struct BlockBuilder {
    offsets: Vec<u16>,
    entries: Vec<u8>,
}

impl BlockBuilder {
    /// Adds a key that is higher than all before it. `None`: it was removed.
    pub(crate) fn add(&mut self, key: &[u8], value: Option<&[u8]>) {
        self.offsets.push(self.entries.len() as u16);
        let removed = if value.is_none() { REMOVED } else { 0 };
        put_u16(&mut self.entries, key.len() as u16 | removed);
        put_varint(&mut self.entries, value.map_or(0, <[u8]>::len) as u64);
        self.entries.extend_from_slice(key);
        self.entries.extend_from_slice(value.unwrap_or_default());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    pub(crate) fn is_full(&self) -> bool {
        self.entries.len() >= BYTES
    }

    /// Appends the block to `into`, and begins the next.
    pub(crate) fn finish(&mut self, salt: u32, into: &mut Vec<u8>) {
        let start = into.len();
        let length = HEAD + self.offsets.len() * 2 + self.entries.len();
        into.extend_from_slice(&[0; 4]);
        into.extend_from_slice(&(length as u32).to_le_bytes());
        into.extend_from_slice(&(self.offsets.len() as u32).to_le_bytes());
        self.offsets.iter().for_each(|offset| put_u16(into, *offset));
        into.extend_from_slice(&self.entries);
        let sum = crc(&into[start + 4..]) ^ salt;
        into[start..start + 4].copy_from_slice(&sum.to_le_bytes());
        self.offsets.clear();
        self.entries.clear();
    }
}

impl Block {
    /// Length and keys of a block that begins with these bytes, if it is one at all. A parity block has no keys.
    pub(crate) fn frame(head: &[u8]) -> Option<(usize, u32)> {
        let mut from = Reader::new(head);
        let (_, length, keys) = (from.u32()?, from.u32()? as usize, from.u32()?);
        (length > HEAD).then_some((length, keys))
    }

    /// `None`: damaged.
    pub(crate) fn decode(bytes: Box<[u8]>, salt: u32) -> Option<Self> {
        let mut from = Reader::new(&bytes);
        let (sum, length, count) = (from.u32()?, from.u32()? as usize, from.u32()? as usize);
        if length != bytes.len() || crc(&bytes[4..]) ^ salt != sum || count == 0 {
            return None;
        }
        let block = Self { bytes, count };
        (0..count).all(|at| block.entry(at).is_some()).then_some(block)
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// As it is in the file.
    pub(super) fn encoded(&self) -> &[u8] {
        &self.bytes
    }

    /// The key and the value at a place; the value is `None` when the key was removed.
    pub(crate) fn entry(&self, at: usize) -> Option<(&[u8], Option<&[u8]>)> {
        let offset = self.bytes.get(HEAD + at * 2..HEAD + at * 2 + 2)?;
        let offset = usize::from(u16::from_le_bytes(offset.try_into().ok()?));
        let mut from = Reader::new(self.bytes.get(HEAD + self.count * 2 + offset..)?);
        let key_length = from.u16()?;
        let value_length = usize::try_from(from.varint()?).ok()?;
        let key = from.bytes((key_length & !REMOVED).into())?;
        let value = from.bytes(value_length)?;
        Some((key, (key_length & REMOVED == 0).then_some(value)))
    }

    /// The first place whose key is not below `key`.
    pub(crate) fn place_of(&self, key: &[u8]) -> usize {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low.midpoint(high);
            match self.entry(middle) {
                Some((found, _)) if found < key => low = middle + 1,
                _ => high = middle,
            }
        }
        low
    }

    /// The value of a key; `None` when it is not here.
    pub(crate) fn get(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        let (found, value) = self.entry(self.place_of(key))?;
        (found == key).then_some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_a_block_are_found_and_a_flipped_bit_makes_it_no_block() {
        let mut builder = BlockBuilder::default();
        let value = |number: u32| (!number.is_multiple_of(3)).then(|| number.to_le_bytes().repeat(3));
        for number in 0..100_u32 {
            builder.add(&(2 * number).to_be_bytes(), value(number).as_deref());
        }
        let mut bytes = Vec::new();
        builder.finish(7, &mut bytes);
        assert!(builder.is_empty() && Block::frame(&bytes) == Some((bytes.len(), 100)));
        let block = Block::decode(bytes.clone().into(), 7).expect("whole");
        for number in 0..100_u32 {
            let found = block.get(&(2 * number).to_be_bytes());
            assert_eq!(found, Some(value(number).as_deref()), "{number}");
            assert_eq!(block.get(&(2 * number + 1).to_be_bytes()), None);
            assert_eq!(block.place_of(&(2 * number + 1).to_be_bytes()), number as usize + 1);
        }
        assert!(Block::decode(bytes.clone().into(), 8).is_none(), "another run's salt");
        for bit in (0..bytes.len() * 8).step_by(13) {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Block::decode(damaged.into(), 7).is_none(), "bit {bit}");
        }
    }
}
