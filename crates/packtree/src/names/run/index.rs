//! The sparse index of a run, and what of it is stored: where blocks are, and the first key of each.

use disk::{DiskError, DiskFile};

use super::super::Block;
use super::super::parity::Places;
use crate::format::{Reader, crc, put_u16, put_u32, put_u64};

/// Error number of a medium that cannot be read: EIO.
const UNREADABLE: i32 = 5;

/// Where blocks are, and the first key of each.
#[derive(Default)]
pub(super) struct Index {
    keys: Vec<u8>,
    /// Ends of the keys in `keys`.
    ends: Vec<u32>,
    places: Vec<(u64, u32)>,
}

impl Index {
    pub(super) fn add(&mut self, first_key: &[u8], offset: u64, length: u32) {
        self.keys.extend_from_slice(first_key);
        self.ends.push(self.keys.len() as u32);
        self.places.push((offset, length));
    }

    pub(super) fn places(&self) -> &Places {
        &self.places
    }

    fn key(&self, at: usize) -> &[u8] {
        let start = if at == 0 { 0 } else { self.ends[at - 1] as usize };
        &self.keys[start..self.ends[at] as usize]
    }

    /// The block that has the key, if any has.
    pub(super) fn block_of(&self, key: &[u8]) -> Option<usize> {
        let (mut low, mut high) = (0, self.places.len());
        while low < high {
            let middle = low.midpoint(high);
            if self.key(middle) <= key { low = middle + 1 } else { high = middle }
        }
        low.checked_sub(1)
    }

    pub(super) fn encode(&self, into: &mut Vec<u8>) {
        for (at, (offset, length)) in self.places.iter().enumerate() {
            put_u64(into, *offset);
            put_u32(into, *length);
            put_u16(into, self.key(at).len() as u16);
            into.extend_from_slice(self.key(at));
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut index = Self::default();
        let mut from = Reader::new(bytes);
        while !from.is_at_end() {
            let (offset, length, key_length) = (from.u64()?, from.u32()?, from.u16()?);
            index.add(from.bytes(key_length.into())?, offset, length);
        }
        Some(index)
    }

    /// Blocks that were found one behind the other, without their keys.
    pub(super) fn of_places(places: Vec<(u64, u32)>) -> Self {
        Self { keys: Vec::new(), ends: vec![0; places.len()], places }
    }
}

/// A part of a run with its checksum behind it. `None`: it is damaged.
pub(super) fn section(file: &dyn DiskFile, from: u64, to: u64) -> Result<Option<Vec<u8>>, DiskError> {
    let mut bytes = vec![0; (to - from) as usize];
    let read = match file.read_at(&mut bytes, from) {
        Err(error) if is_unreadable(&error) => return Ok(None),
        read => read?,
    };
    let whole = read == bytes.len()
        && bytes.split_last_chunk().is_some_and(|(rest, sum)| crc(rest).to_le_bytes() == *sum);
    bytes.truncate(read.saturating_sub(4));
    Ok(whole.then_some(bytes))
}

/// Whether the medium is damaged, and not the way to it.
pub(super) fn is_unreadable(error: &DiskError) -> bool {
    error.source.raw_os_error() == Some(UNREADABLE)
}

/// Blocks one behind the other from `start` on, by their frames, and where the last one ends: before `limit`, where the index begins, if
/// that is known. Parity blocks are passed over.
pub(super) fn blocks_from(
    file: &dyn DiskFile,
    start: u64,
    limit: Option<u64>,
) -> Result<(Vec<(u64, u32)>, u64), DiskError> {
    // A damaged index may look like the frame of a block.
    let limit = limit.map_or_else(|| file.length(), Ok)?;
    let (mut places, mut at) = (Vec::new(), start);
    let mut head = [0; 12];
    loop {
        let read = file.read_at(&mut head, at)?;
        let Some((bytes, keys)) =
            Block::frame(&head[..read]).filter(|(bytes, _)| at + *bytes as u64 <= limit)
        else {
            return Ok((places, at));
        };
        if keys > 0 {
            places.push((at, bytes as u32));
        }
        at += bytes as u64;
    }
}
