//! A sorted run: keys in order in checksummed blocks, written once; its sparse index and its filter are in memory.
//!
//! ```text
//! version 3: | head 64 | end 64 | block | ... | parity | block | ... | index, crc u32 | filter, crc u32 | head 64 | end 64 |
//! version 2: | head 64 | block | block | ... | index, crc u32 | filter, crc u32 | end 64 |
//! head: number of the run, changes that it has (from, to)     end: where the index and the filter begin, number of keys
//! index: of each block its offset (u64), length (u32) and first key (length u16, bytes)
//! ```
//!
//! Always holds: damage to one block, to one head, to the index or to the filter of a run of version 3 costs no key. A block is
//! made again from its parity group, an index from the blocks, and a head has a copy; each is reported.

mod index;
mod writer;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use disk::{Disk, DiskError, DiskFile, DiskOpen};

use super::filter::{Filter, hash};
use super::{Block, Loader, parity};
use crate::error::{Refusal, TreeError};
use crate::format::{HEAD_BYTES, Head, RUN_END_MAGIC, RUN_MAGIC, RUN_VERSION, VERSION};
use index::{Index, blocks_from, is_unreadable, section};

pub(crate) use writer::RunWriter;

/// A head and an end.
const HEADS_BYTES: usize = 2 * HEAD_BYTES;

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
    has_parity: bool,
    index: Index,
    filter: Filter,
    /// Blocks that were made again from others.
    rebuilt: Mutex<BTreeSet<usize>>,
}

/// Something that is damaged of a run.
#[derive(Debug)]
pub(crate) struct RunFault {
    pub what: String,
    /// Nothing is lost: a run that is written again has everything.
    pub is_repairable: bool,
}

/// What the end of a run says.
#[derive(Clone, Copy)]
struct Ends {
    index_at: u64,
    filter_at: u64,
    keys: u64,
}

impl Ends {
    /// The head and the end of a run.
    fn encode(&self, id: u128, number: u64, changes: (u64, u64), salt: u32) -> [u8; HEADS_BYTES] {
        let of = |numbers, salt| Head { version: RUN_VERSION, id, numbers, salt };
        let mut bytes = [0; HEADS_BYTES];
        bytes[..HEAD_BYTES].copy_from_slice(&of([number, changes.0, changes.1], salt).encode(RUN_MAGIC));
        let end = of([self.index_at, self.filter_at, self.keys], 0).encode(RUN_END_MAGIC);
        bytes[HEAD_BYTES..].copy_from_slice(&end);
        bytes
    }

    /// Of the filter of a run that has lost all but one in 64 of its keys, and some more.
    fn filter_bytes_max(&self) -> u64 {
        self.keys.saturating_mul(64 * 2).saturating_add(64 << 20)
    }

    fn of(head: &Head) -> Self {
        let [index_at, filter_at, keys] = head.numbers;
        Self { index_at, filter_at, keys }
    }
}

/// The heads of a run, as far as they can be read.
struct Heads {
    head: Head,
    end: Option<Ends>,
    /// Where the first block begins, and where the filter ends.
    blocks_at: u64,
    filter_end: u64,
    is_damaged: bool,
}

/// `None`: no head of this run can be read.
fn read_heads(file: &dyn DiskFile, id: u128, number: u64, length: u64) -> Result<Option<Heads>, DiskError> {
    let read = |at: u64| {
        let mut bytes = [0; HEADS_BYTES];
        match file.read_at(&mut bytes, at) {
            Err(error) if is_unreadable(&error) => {}
            read => drop(read?),
        }
        Ok::<_, DiskError>(bytes)
    };
    let (front, back) = (read(0)?, read(length.saturating_sub(HEADS_BYTES as u64))?);
    let head_in = |bytes: &[u8], version| {
        Head::decode(RUN_MAGIC, bytes)
            .filter(|head| (head.version, head.id, head.numbers[0]) == (version, id, number))
    };
    let end_in = |bytes: &[u8], version| {
        Head::decode(RUN_END_MAGIC, bytes).filter(|head| (head.version, head.id) == (version, id))
    };
    if let Some(head) = head_in(&front, VERSION) {
        let end = end_in(&back[HEAD_BYTES..], VERSION);
        let filter_end = length.saturating_sub(HEAD_BYTES as u64);
        let (end, blocks_at) = (end.as_ref().map(Ends::of), HEAD_BYTES as u64);
        return Ok(Some(Heads { head, end, blocks_at, filter_end, is_damaged: false }));
    }
    let heads = [&front, &back].map(|bytes| head_in(bytes, RUN_VERSION));
    let ends = [&front, &back].map(|bytes| end_in(&bytes[HEAD_BYTES..], RUN_VERSION));
    let is_damaged = heads.iter().chain(&ends).any(Option::is_none);
    let end = ends.iter().flatten().next().map(Ends::of);
    let (blocks_at, filter_end) = (HEADS_BYTES as u64, length.saturating_sub(HEADS_BYTES as u64));
    let head = heads.into_iter().flatten().next();
    Ok(head.map(|head| Heads { head, end, blocks_at, filter_end, is_damaged }))
}

impl SortedRun {
    pub(crate) fn file_name(number: u64) -> String {
        format!("names-{number:06}")
    }

    /// Opens a run. `None`: it is missing, or no head of it can be read. What else is damaged is returned beside it.
    pub(crate) fn open(
        disk: &dyn Disk,
        id: u128,
        number: u64,
        level: u8,
    ) -> Result<Option<(Self, Vec<RunFault>)>, DiskError> {
        let name = Self::file_name(number);
        let file = match disk.open(&name, DiskOpen::Read) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let length = file.length()?;
        let Some(heads) = read_heads(&*file, id, number, length)? else { return Ok(None) };
        let Heads { head, end, filter_end, .. } = heads;
        let mut faults = Vec::new();
        if heads.is_damaged {
            let what =
                format!("{name}: its head is damaged at one end of the file; the copy at the other is read");
            faults.push(RunFault { what, is_repairable: end.is_some() });
        }
        let fits = |end: &Ends| {
            heads.blocks_at <= end.index_at && end.index_at <= end.filter_at && end.filter_at <= filter_end
        };
        let whole = end.filter(fits);
        let (index, filter) = match whole {
            Some(end) => {
                // Where the file does not end as a run does, its length may be anything.
                let is_plausible = !heads.is_damaged || filter_end - end.filter_at <= end.filter_bytes_max();
                let filter = if is_plausible { section(&*file, end.filter_at, filter_end)? } else { None };
                (section(&*file, end.index_at, end.filter_at)?, filter)
            }
            None => (None, None),
        };
        let index = index.as_deref().and_then(Index::decode);
        let filter = filter.as_deref().and_then(Filter::decode);
        if index.is_some() && filter.is_none() {
            let what =
                format!("{name}: its filter is damaged; look-ups of other runs' names read its blocks too");
            faults.push(RunFault { what, is_repairable: true });
        }
        let is_indexed = index.is_some();
        let mut run = Self {
            number,
            level,
            changes: (head.numbers[1], head.numbers[2]),
            keys: end.map_or(0, |end| end.keys),
            name,
            place: disk.place(),
            file,
            salt: head.salt,
            has_parity: head.version == RUN_VERSION,
            index: index.unwrap_or_default(),
            filter: filter.unwrap_or_else(Filter::of_everything),
            rebuilt: Mutex::default(),
        };
        if !is_indexed {
            faults.push(run.index_again(heads.blocks_at, whole)?);
        }
        Ok(Some((run, faults)))
    }

    /// Makes the index again from the blocks. `ends`: where they should end and how many keys there should be, where that is known.
    fn index_again(&mut self, start: u64, ends: Option<Ends>) -> Result<RunFault, DiskError> {
        let (places, end) = blocks_from(&*self.file, start, ends.map(|ends| ends.index_at))?;
        let mut index = Index::default();
        self.index = Index::of_places(places);
        self.keys = 0;
        let mut behind: Vec<u8> = Vec::new();
        for at in 0..self.blocks() {
            let (offset, length) = self.index.places()[at];
            let found = self.found(at).ok().flatten();
            let first = found.as_ref().and_then(|block| block.entry(0));
            // What a block that cannot be read may have lies behind the last key before it.
            index.add(first.map_or(&behind[..], |(key, _)| key), offset, length);
            if let Some((key, _)) = found.as_ref().and_then(|block| block.entry(block.len() - 1)) {
                behind = [key, &[0]].concat();
            }
            self.keys += found.map_or(0, |block| block.len() as u64);
        }
        self.index = index;
        self.filter = Filter::of_everything();
        let what = format!(
            "{}: its index is damaged; {} names and inodes were found in its first {end} bytes",
            self.name, self.keys
        );
        Ok(RunFault { what, is_repairable: ends.is_some_and(|ends| ends.keys == self.keys) })
    }

    pub(crate) fn blocks(&self) -> usize {
        self.index.places().len()
    }

    /// The block that may have the key.
    pub(super) fn block_of(&self, key: &[u8]) -> Option<usize> {
        self.index.block_of(key)
    }

    /// Whether a key may be in it.
    pub(crate) fn may_have(&self, key: &[u8]) -> bool {
        self.filter.may_have(hash(key))
    }

    /// Reads a block from the disk, or makes it again from its group.
    pub(crate) fn load(&self, at: usize) -> Result<Arc<Block>, TreeError> {
        self.found(at)?.map(Arc::new).ok_or_else(|| self.damaged(at))
    }

    /// As [`SortedRun::load`]. `None`: it is lost.
    fn found(&self, at: usize) -> Result<Option<Block>, DiskError> {
        let read = self.block_at(at);
        if let Ok(Some(block)) = read {
            return Ok(Some(block));
        }
        let Some(block) = self.block_from_others(at) else { return read };
        let mut rebuilt = self.rebuilt.lock().unwrap_or_else(PoisonError::into_inner);
        if rebuilt.insert(at) {
            let (run, offset) = (&self.name, self.index.places()[at].0);
            tracing::warn!(place = %self.place, run, offset, "a damaged block of names was rebuilt from its parity group");
        }
        Ok(Some(block))
    }

    fn block_at(&self, at: usize) -> Result<Option<Block>, DiskError> {
        let (offset, length) = self.index.places()[at];
        let mut bytes = vec![0; length as usize].into_boxed_slice();
        let read = self.file.read_at(&mut bytes, offset)?;
        Ok(if read == bytes.len() { Block::decode(bytes, self.salt) } else { None })
    }

    fn block_from_others(&self, at: usize) -> Option<Block> {
        if !self.has_parity {
            return None;
        }
        let group = parity::group_of(at, self.index.places())?;
        let mut bytes = vec![0; group.length];
        self.file.read_at(&mut bytes, group.offset).ok()?;
        let mut combined = parity::decode(&bytes, self.salt)?.to_vec();
        for other in group.blocks.filter(|other| *other != at) {
            parity::combine(&mut combined, self.block_at(other).ok()??.encoded());
        }
        combined.truncate(self.index.places()[at].1 as usize);
        Block::decode(combined.into(), self.salt)
    }

    /// Blocks that were damaged and made again since the run was opened, and parity blocks that are damaged.
    pub(crate) fn damage_without_loss(&self) -> Vec<RunFault> {
        let rebuilt = self.rebuilt.lock().unwrap_or_else(PoisonError::into_inner);
        let blocks = rebuilt.iter().map(|at| {
            let offset = self.index.places()[*at].0;
            format!("{}: the block at byte {offset} is damaged; its names and inodes were rebuilt", self.name)
        });
        let is_damaged = |group: &parity::Group| {
            let mut bytes = vec![0; group.length];
            let read = self.file.read_at(&mut bytes, group.offset);
            read.is_err() || parity::decode(&bytes, self.salt).is_none()
        };
        let groups = if self.has_parity { parity::groups(self.index.places()) } else { parity::groups(&[]) };
        let spare = groups.filter(is_damaged).map(|group| {
            let offset = group.offset;
            format!(
                "{}: the parity block at byte {offset} is damaged; no name and no inode is lost",
                self.name
            )
        });
        blocks.chain(spare).map(|what| RunFault { what, is_repairable: true }).collect()
    }

    fn damaged(&self, at: usize) -> TreeError {
        let (place, file, offset_bytes) = (self.place.clone(), self.name.clone(), self.index.places()[at].0);
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
