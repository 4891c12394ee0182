//! A run that is written, key by key, in order.

use std::sync::Arc;

use disk::{Disk, DiskError, DiskFile, DiskOpen};

use super::super::block::BlockBuilder;
use super::super::filter::{Filter, hash};
use super::super::parity::ParityBuilder;
use super::super::remove;
use super::index::Index;
use super::{Ends, HEADS_BYTES, SortedRun};
use crate::format::{crc, put_u32};
use crate::journal::salt;

/// A write carries about this many bytes.
const WRITE_BYTES: usize = 256 << 10;
/// No block is longer: a file of 16 TiB in pieces of 128 KiB has less.
const BLOCK_BYTES_MAX: usize = 1 << 31;

pub(crate) struct RunWriter {
    file: Arc<dyn DiskFile>,
    id: u128,
    number: u64,
    changes: (u64, u64),
    salt: u32,
    builder: BlockBuilder,
    parity: ParityBuilder,
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
        Ok(Self {
            file,
            id,
            number,
            changes,
            salt: salt(),
            builder: BlockBuilder::default(),
            parity: ParityBuilder::default(),
            first_key: Vec::new(),
            index: Index::default(),
            filter: Filter::for_keys(keys),
            // The heads are written last.
            buffer: vec![0; HEADS_BYTES],
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
        self.parity.add(&self.buffer[start..]);
        if self.parity.is_full() {
            self.parity.finish(self.salt, &mut self.buffer);
        }
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
        self.parity.finish(self.salt, &mut self.buffer);
        let index_at = self.offset + self.buffer.len() as u64;
        let mut section = Vec::new();
        self.index.encode(&mut section);
        put_with_sum(&mut self.buffer, &section);
        let filter_at = self.offset + self.buffer.len() as u64;
        section.clear();
        self.filter.encode(&mut section);
        put_with_sum(&mut self.buffer, &section);
        let ends = Ends { index_at, filter_at, keys: self.keys };
        let heads = ends.encode(self.id, self.number, self.changes, self.salt);
        self.buffer.extend_from_slice(&heads);
        self.write()?;
        self.file.write_at(&heads, 0)?;
        self.file.sync()?;
        Ok(self.keys)
    }
}

fn put_with_sum(into: &mut Vec<u8>, section: &[u8]) {
    into.extend_from_slice(section);
    put_u32(into, crc(section));
}
