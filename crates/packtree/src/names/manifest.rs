//! Which files are the names: the file `manifest`, replaced by rename; and which blocks are free, `free-N`.
//!
//! ```text
//! manifest: | head 64: last change, next inode, inodes | next number, number of `free`, runs of each: number, changes from and
//!             to, keys (u64 each), level u8 | crc u32 |
//! free-N:   | head 64: runs, segments, 0 | of each run: blocks in use before it, blocks (seven bits a byte) | crc u32 |
//! ```
//!
//! Always holds: what a manifest names was synced before it; a manifest that is damaged is made again from the heads of the runs, and
//! a fault is reported.

use std::io::ErrorKind;

use disk::{Disk, DiskError, DiskOpen};

use super::SortedRun;
use crate::format::{
    FREE_MAGIC, HEAD_BYTES, Head, MANIFEST_MAGIC, Reader, crc, put_u32, put_u64, put_varint,
};
use crate::space::Run;

pub(crate) const MANIFEST: &str = "manifest";
const NEW: &str = "manifest.new";
/// Runs are merged long before.
const RUNS_MAX: u64 = 1 << 16;
/// A longer list of free blocks is damaged: it is read whole. Some 50 million runs take as much.
const FREE_BYTES_MAX: u64 = 256 << 20;

/// What is in the runs, and which they are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Manifest {
    /// All changes up to this one are in the runs.
    pub sequence: u64,
    pub next_inode: u64,
    /// How many there are.
    pub inodes: u64,
    /// Of the next file.
    pub next_number: u64,
    pub free_number: u64,
    /// Number and level of each run, the newest first.
    pub runs: Vec<(u64, u8)>,
}

/// What was found of a manifest.
pub(crate) enum ManifestRead {
    Whole(Manifest),
    /// Damaged or missing; this is what the runs that are there say.
    Recovered(Manifest),
}

impl Manifest {
    /// Puts it in the place of the last one, durably.
    pub(crate) fn write(&self, disk: &dyn Disk, id: u128) -> Result<(), DiskError> {
        let head = Head::new(id, [self.sequence, self.next_inode, self.inodes], 0);
        let mut bytes = head.encode(MANIFEST_MAGIC).to_vec();
        [self.next_number, self.free_number, self.runs.len() as u64]
            .iter()
            .for_each(|number| put_u64(&mut bytes, *number));
        for (number, level) in &self.runs {
            put_u64(&mut bytes, *number);
            bytes.push(*level);
        }
        let sum = crc(&bytes);
        put_u32(&mut bytes, sum);
        remove(disk, NEW)?;
        let file = disk.open(NEW, DiskOpen::New)?;
        file.write_at(&bytes, 0)?;
        file.sync()?;
        // The names of the files that it names are durable before it is: the disk keeps no order among them.
        disk.sync_names()?;
        disk.rename(NEW, MANIFEST)?;
        disk.sync_names()
    }

    /// After [`Manifest::write`] failed: removes what was begun. Returns whether the last manifest is certainly still there.
    pub(crate) fn remove_new(disk: &dyn Disk, failed: &DiskError) -> bool {
        // Nothing is opened once it has its name.
        disk.remove(NEW).is_ok() || failed.operation == "open"
    }

    pub(crate) fn read(disk: &dyn Disk, id: u128) -> Result<ManifestRead, DiskError> {
        let bytes = match disk.open(MANIFEST, DiskOpen::Read) {
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            opened => {
                let file = opened?;
                let mut bytes = vec![0; file.length()?.min(RUNS_MAX * 16) as usize];
                let read = file.read_at(&mut bytes, 0)?;
                bytes.truncate(read);
                bytes
            }
        };
        match Self::decode(&bytes, id) {
            Some(manifest) => Ok(ManifestRead::Whole(manifest)),
            None => Self::recovered(disk, id).map(ManifestRead::Recovered),
        }
    }

    fn decode(bytes: &[u8], id: u128) -> Option<Self> {
        let (bytes, sum) = bytes.split_last_chunk()?;
        if crc(bytes).to_le_bytes() != *sum {
            return None;
        }
        let [sequence, next_inode, inodes] = Head::decode_own(MANIFEST_MAGIC, bytes, id)?.numbers;
        let mut from = Reader::new(&bytes[HEAD_BYTES..]);
        let (next_number, free_number, count) = (from.u64()?, from.u64()?, from.u64()?);
        let runs = (0..count.min(RUNS_MAX)).map(|_| Some((from.u64()?, from.u8()?)));
        let runs = runs.collect::<Option<_>>()?;
        Some(Self { sequence, next_inode, inodes, next_number, free_number, runs })
    }

    /// From the runs that are there: of those that have the same changes, the one that has most.
    fn recovered(disk: &dyn Disk, id: u128) -> Result<Self, DiskError> {
        let mut found = Vec::new();
        for name in disk.names()? {
            if let Some(number) = number_of(&name, "names-")
                && let Some((run, _)) = SortedRun::open(disk, id, number, 0)?
            {
                found.push((run.changes, run.number));
            }
        }
        found.sort_by_key(|((from, to), number)| (to - from, *number));
        let mut chosen: Vec<((u64, u64), u64)> = Vec::new();
        while let Some(((from, to), number)) = found.pop() {
            if chosen.iter().all(|((other, end), _)| to <= *other || *end <= from) {
                chosen.push(((from, to), number));
            }
        }
        chosen.sort_unstable_by(|one, other| other.cmp(one));
        let sequence = chosen.first().map_or(0, |((_, to), _)| *to);
        let runs = chosen.into_iter().map(|(_, number)| (number, 0)).collect();
        Ok(Self { sequence, runs, ..Self::default() })
    }

    fn names(&self, name: &str) -> bool {
        let is_run = |number| self.runs.iter().any(|(run, _)| *run == number);
        number_of(name, "names-").is_some_and(is_run) || number_of(name, "free-") == Some(self.free_number)
    }
}

/// Removes runs and lists of free blocks that the manifest does not name: what a kill left of a checkpoint or a merge.
pub(crate) fn remove_others(disk: &dyn Disk, manifest: &Manifest) -> Result<(), DiskError> {
    for name in disk.names()? {
        let is_own = number_of(&name, "names-").or(number_of(&name, "free-")).is_some();
        if is_own && !manifest.names(&name) {
            remove(disk, &name)?;
        }
    }
    Ok(())
}

/// Whether a file of this name is one of those that hold the names of a tree.
pub(crate) fn is_of_names(name: &str) -> bool {
    [MANIFEST, NEW].contains(&name) || number_of(name, "names-").or(number_of(name, "free-")).is_some()
}

fn number_of(name: &str, before: &str) -> Option<u64> {
    let digits = name.strip_prefix(before)?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten()
}

pub(crate) fn remove(disk: &dyn Disk, name: &str) -> Result<(), DiskError> {
    match disk.remove(name) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The blocks that are free when all changes of a manifest, and no later ones, have been made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FreeMap {
    pub segments: u32,
    /// In order; none overlap.
    pub runs: Vec<Run>,
}

impl FreeMap {
    pub(crate) fn file_name(number: u64) -> String {
        format!("free-{number:06}")
    }

    /// Puts runs in order, and joins those that touch. They overlap in none.
    pub(crate) fn sort(&mut self) {
        self.runs.sort_unstable();
        self.runs.dedup_by(|next, before| {
            let touches = before.end() == next.start;
            before.blocks += if touches { next.blocks } else { 0 };
            touches
        });
    }

    pub(crate) fn write(&self, disk: &dyn Disk, id: u128, number: u64) -> Result<(), DiskError> {
        let head = Head::new(id, [self.runs.len() as u64, self.segments.into(), 0], 0);
        let mut bytes = head.encode(FREE_MAGIC).to_vec();
        let mut end = 0;
        for run in &self.runs {
            put_varint(&mut bytes, run.start - end);
            put_varint(&mut bytes, run.blocks);
            end = run.end();
        }
        let sum = crc(&bytes);
        put_u32(&mut bytes, sum);
        let name = Self::file_name(number);
        remove(disk, &name)?;
        let file = disk.open(&name, DiskOpen::New)?;
        file.write_at(&bytes, 0)?;
        file.sync()
    }

    /// `None`: missing or damaged.
    pub(crate) fn read(disk: &dyn Disk, id: u128, number: u64) -> Result<Option<Self>, DiskError> {
        let file = match disk.open(&Self::file_name(number), DiskOpen::Read) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let length = file.length()?;
        if length > FREE_BYTES_MAX {
            return Ok(None);
        }
        let mut bytes = vec![0; length as usize];
        let read = file.read_at(&mut bytes, 0)?;
        bytes.truncate(read);
        Ok(Self::decode(&bytes, id))
    }

    fn decode(bytes: &[u8], id: u128) -> Option<Self> {
        let (bytes, sum) = bytes.split_last_chunk()?;
        if crc(bytes).to_le_bytes() != *sum {
            return None;
        }
        let [count, segments, _] = Head::decode_own(FREE_MAGIC, bytes, id)?.numbers;
        let mut from = Reader::new(&bytes[HEAD_BYTES..]);
        let mut end: u64 = 0;
        let mut run = || {
            let start = end.checked_add(from.varint()?)?;
            let run = Run { start, blocks: from.varint()? };
            end = start.checked_add(run.blocks)?;
            Some(run)
        };
        let runs = (0..count).map(|_| run()).collect::<Option<_>>()?;
        Some(Self { segments: u32::try_from(segments).ok()?, runs })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_and_a_list_of_free_blocks_read_back_and_a_flipped_bit_is_noticed() {
        let machine = testkit::SimulatedDisk::new("machine");
        let manifest = Manifest {
            sequence: 1 << 40,
            next_inode: 7,
            inodes: 5,
            next_number: 9,
            free_number: 8,
            runs: vec![(6, 0), (3, 2)],
        };
        manifest.write(&machine, 5).unwrap();
        let read = |id| match Manifest::read(&machine, id).unwrap() {
            ManifestRead::Whole(manifest) => Some(manifest),
            ManifestRead::Recovered(_) => None,
        };
        assert_eq!((read(5), read(6)), (Some(manifest), None));
        let runs = [(3, 4), (10, 1 << 40)].map(|(start, blocks)| Run { start, blocks }).to_vec();
        let free = FreeMap { segments: 3, runs };
        free.write(&machine, 5, 8).unwrap();
        assert_eq!(FreeMap::read(&machine, 5, 8).unwrap(), Some(free));
        assert_eq!(FreeMap::read(&machine, 5, 7).unwrap(), None);
        for byte in 0..machine.bytes("manifest").unwrap().len() as u64 {
            assert!(machine.flip("manifest", byte * 8 + byte % 8) && read(5).is_none(), "byte {byte}");
            assert!(machine.flip("manifest", byte * 8 + byte % 8));
        }
        assert!(machine.flip("free-000008", 70 * 8));
        assert_eq!(FreeMap::read(&machine, 5, 8).unwrap(), None);
    }
}
