//! A sorted run: keys in order in checksummed blocks, written once; its sparse index and its filter are in memory.
//!
//! ```text
//! | head 64 | block | block | ... | index, crc u32 | filter, crc u32 | end 64 |
//! head: number of the run, changes that it has (from, to)     end: where the index and the filter begin, number of keys
//! index: of each block its offset (u64), length (u32) and first key (length u16, bytes)
//! ```
//!
//! Always holds: a run whose index or filter is damaged is still read: they are made again from its blocks, and a fault is reported.

use std::sync::Arc;

use disk::{Disk, DiskError, DiskFile, DiskOpen};

use super::block::BlockBuilder;
use super::filter::{Filter, hash};
use super::{Block, Loader, remove};
use crate::error::{Refusal, TreeError};
use crate::format::{HEAD_BYTES, Head, RUN_END_MAGIC, RUN_MAGIC, Reader, crc, put_u16, put_u32, put_u64};
use crate::journal::salt;

/// A write carries about this many bytes.
const WRITE_BYTES: usize = 256 << 10;
/// No block is longer: a file of 16 TiB in pieces of 128 KiB has less.
const BLOCK_BYTES_MAX: usize = 1 << 31;

pub(crate) struct SortedRun {
    pub number: u64,
    /// How often its keys were merged.
    pub level: u8,
    /// Changes that it has: behind the first, up to the second.
    pub changes: (u64, u64),
    pub keys: u64,
    name: String,
    place: String,
    file: Arc<dyn DiskFile>,
    salt: u32,
    index: Index,
    filter: Filter,
}

/// Where blocks are, and the first key of each.
#[derive(Default)]
struct Index {
    keys: Vec<u8>,
    /// Ends of the keys in `keys`.
    ends: Vec<u32>,
    places: Vec<(u64, u32)>,
}

impl Index {
    fn add(&mut self, first_key: &[u8], offset: u64, length: u32) {
        self.keys.extend_from_slice(first_key);
        self.ends.push(self.keys.len() as u32);
        self.places.push((offset, length));
    }

    fn key(&self, at: usize) -> &[u8] {
        let start = if at == 0 { 0 } else { self.ends[at - 1] as usize };
        &self.keys[start..self.ends[at] as usize]
    }

    /// The block that has the key, if any has.
    fn block_of(&self, key: &[u8]) -> Option<usize> {
        let (mut low, mut high) = (0, self.places.len());
        while low < high {
            let middle = low.midpoint(high);
            if self.key(middle) <= key { low = middle + 1 } else { high = middle }
        }
        low.checked_sub(1)
    }

    fn encode(&self, into: &mut Vec<u8>) {
        for (at, (offset, length)) in self.places.iter().enumerate() {
            put_u64(into, *offset);
            put_u32(into, *length);
            put_u16(into, self.key(at).len() as u16);
            into.extend_from_slice(self.key(at));
        }
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut index = Self::default();
        let mut from = Reader::new(bytes);
        while !from.is_at_end() {
            let (offset, length, key_length) = (from.u64()?, from.u32()?, from.u16()?);
            index.add(from.bytes(key_length.into())?, offset, length);
        }
        Some(index)
    }
}

impl SortedRun {
    pub(crate) fn file_name(number: u64) -> String {
        format!("names-{number:06}")
    }

    /// Opens a run. `None`: it is missing, or its head is damaged. The text says what else is damaged.
    pub(crate) fn open(
        disk: &dyn Disk,
        id: u128,
        number: u64,
        level: u8,
    ) -> Result<Option<(Self, Option<String>)>, DiskError> {
        let name = Self::file_name(number);
        let file = match disk.open(&name, DiskOpen::Read) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let mut bytes = [0; HEAD_BYTES];
        let read = file.read_at(&mut bytes, 0)?;
        let Some(head) = Head::decode_own(RUN_MAGIC, &bytes[..read], id) else { return Ok(None) };
        if head.numbers[0] != number {
            return Ok(None);
        }
        let (changes, salt, length) = ((head.numbers[1], head.numbers[2]), head.salt, file.length()?);
        let mut fault = None;
        let (index, filter, keys) = match read_index(&*file, id, length)? {
            Some(found) => found,
            None => {
                let (index, keys, end) = scanned(&*file, salt)?;
                fault = Some(format!(
                    "{name}: its index is damaged; {keys} names and inodes were found in its first {end} bytes"
                ));
                (index, Filter::of_everything(), keys)
            }
        };
        let place = disk.place();
        let run = Self { number, level, changes, keys, name, place, file, salt, index, filter };
        Ok(Some((run, fault)))
    }

    pub(crate) fn blocks(&self) -> usize {
        self.index.places.len()
    }

    /// The block that may have the key.
    pub(super) fn block_of(&self, key: &[u8]) -> Option<usize> {
        self.index.block_of(key)
    }

    /// Whether a key may be in it.
    pub(crate) fn may_have(&self, key: &[u8]) -> bool {
        self.filter.may_have(hash(key))
    }

    /// Reads a block from the disk.
    pub(crate) fn load(&self, at: usize) -> Result<Arc<Block>, TreeError> {
        let (offset, length) = self.index.places[at];
        let mut bytes = vec![0; length as usize].into_boxed_slice();
        let read = self.file.read_at(&mut bytes, offset)?;
        let whole = if read == bytes.len() { Block::decode(bytes, self.salt) } else { None };
        whole.map(Arc::new).ok_or_else(|| self.damaged(at))
    }

    fn damaged(&self, at: usize) -> TreeError {
        let (place, file, offset_bytes) = (self.place.clone(), self.name.clone(), self.index.places[at].0);
        TreeError::DamagedNames { place, file, offset_bytes }
    }
}

/// Looks a key up, the newest run first, and decodes its value.
pub(crate) fn find<T>(
    runs: &[Arc<SortedRun>],
    key: &[u8],
    loader: &Loader<'_>,
    decode: impl FnOnce(&[u8]) -> Option<T>,
) -> Result<Option<T>, Refusal> {
    let hash = hash(key);
    for run in runs.iter().filter(|run| run.filter.may_have(hash)) {
        let Some(at) = run.block_of(key) else { continue };
        let block = loader.block(run, at)?;
        match block.get(key) {
            None => {}
            Some(None) => return Ok(None),
            Some(Some(value)) => return Ok(Some(decode(value).ok_or_else(|| run.damaged(at))?)),
        }
    }
    Ok(None)
}

/// The index, the filter and the number of keys. `None`: they are damaged.
fn read_index(file: &dyn DiskFile, id: u128, length: u64) -> Result<Option<(Index, Filter, u64)>, DiskError> {
    let mut bytes = [0; HEAD_BYTES];
    let end = length.saturating_sub(HEAD_BYTES as u64);
    let read = file.read_at(&mut bytes, end)?;
    let Some(head) = Head::decode_own(RUN_END_MAGIC, &bytes[..read], id) else { return Ok(None) };
    let [index_at, filter_at, keys] = head.numbers;
    if !(HEAD_BYTES as u64 <= index_at && index_at <= filter_at && filter_at <= end) {
        return Ok(None);
    }
    let section = |from: u64, to: u64| {
        let mut bytes = vec![0; (to - from) as usize];
        let read = file.read_at(&mut bytes, from)?;
        let whole = read == bytes.len()
            && bytes.split_last_chunk().is_some_and(|(rest, sum)| crc(rest).to_le_bytes() == *sum);
        bytes.truncate(read.saturating_sub(4));
        Ok::<_, DiskError>(whole.then_some(bytes))
    };
    let (Some(index), Some(filter)) = (section(index_at, filter_at)?, section(filter_at, end)?) else {
        return Ok(None);
    };
    let found = Index::decode(&index).zip(Filter::decode(&filter));
    Ok(found.map(|(index, filter)| (index, filter, keys)))
}

/// An index made from the blocks, the number of their keys, and where the last whole block ends.
fn scanned(file: &dyn DiskFile, salt: u32) -> Result<(Index, u64, u64), DiskError> {
    let length = file.length()?;
    let (mut index, mut keys, mut at) = (Index::default(), 0, HEAD_BYTES as u64);
    let mut head = [0; 12];
    loop {
        let read = file.read_at(&mut head, at)?;
        let Some(bytes) = Block::length(&head[..read]).filter(|bytes| at + *bytes as u64 <= length) else {
            return Ok((index, keys, at));
        };
        let mut block = vec![0; bytes].into_boxed_slice();
        file.read_at(&mut block, at)?;
        if let Some(block) = Block::decode(block, salt)
            && let Some((first, _)) = block.entry(0)
        {
            index.add(first, at, bytes as u32);
            keys += block.len() as u64;
        }
        at += bytes as u64;
    }
}

/// Writes a run, key by key, in order.
pub(crate) struct RunWriter {
    file: Arc<dyn DiskFile>,
    id: u128,
    salt: u32,
    builder: BlockBuilder,
    /// Of the block that is built.
    first_key: Vec<u8>,
    index: Index,
    filter: Filter,
    buffer: Vec<u8>,
    /// In the file, where `buffer` goes.
    offset: u64,
    keys: u64,
}

impl RunWriter {
    /// A new run with up to `keys` keys.
    pub(crate) fn new(
        disk: &dyn Disk,
        id: u128,
        number: u64,
        changes: (u64, u64),
        keys: u64,
    ) -> Result<Self, DiskError> {
        let name = SortedRun::file_name(number);
        // What an attempt that failed left.
        remove(disk, &name)?;
        let file = disk.open(&name, DiskOpen::New)?;
        let salt = salt();
        let head = Head::new(id, [number, changes.0, changes.1], salt).encode(RUN_MAGIC);
        Ok(Self {
            file,
            id,
            salt,
            builder: BlockBuilder::default(),
            first_key: Vec::new(),
            index: Index::default(),
            filter: Filter::for_keys(keys),
            buffer: head.to_vec(),
            offset: 0,
            keys: 0,
        })
    }

    /// Adds a key that is higher than all before it. `None`: it was removed.
    pub(crate) fn add(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<(), DiskError> {
        assert!(value.is_none_or(|value| value.len() < BLOCK_BYTES_MAX), "files have fewer pieces");
        if self.builder.is_empty() {
            self.first_key.clear();
            self.first_key.extend_from_slice(key);
        }
        self.builder.add(key, value);
        self.filter.insert(hash(key));
        self.keys += 1;
        if self.builder.is_full() {
            self.end_block()?;
        }
        Ok(())
    }

    fn end_block(&mut self) -> Result<(), DiskError> {
        let start = self.buffer.len();
        self.builder.finish(self.salt, &mut self.buffer);
        let length = (self.buffer.len() - start) as u32;
        self.index.add(&self.first_key, self.offset + start as u64, length);
        if self.buffer.len() >= WRITE_BYTES {
            self.write()?;
        }
        Ok(())
    }

    fn write(&mut self) -> Result<(), DiskError> {
        self.file.write_at(&self.buffer, self.offset)?;
        self.offset += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Writes the rest and syncs. Returns how many keys the run has.
    pub(crate) fn finish(mut self) -> Result<u64, DiskError> {
        if !self.builder.is_empty() {
            self.end_block()?;
        }
        let index_at = self.offset + self.buffer.len() as u64;
        let mut section = Vec::new();
        self.index.encode(&mut section);
        put_with_sum(&mut self.buffer, &section);
        let filter_at = self.offset + self.buffer.len() as u64;
        section.clear();
        self.filter.encode(&mut section);
        put_with_sum(&mut self.buffer, &section);
        let end = Head::new(self.id, [index_at, filter_at, self.keys], 0).encode(RUN_END_MAGIC);
        self.buffer.extend_from_slice(&end);
        self.write()?;
        self.file.sync()?;
        Ok(self.keys)
    }
}

fn put_with_sum(into: &mut Vec<u8>, section: &[u8]) {
    into.extend_from_slice(section);
    put_u32(into, crc(section));
}
