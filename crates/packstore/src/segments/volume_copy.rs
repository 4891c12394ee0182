//! What a volume's head says, a second time, and which segments the volume has: the file `volume.copy`.
//!
//! ```text
//! | heads 4 B | files 4 B | own head 96 B, other volumes' heads | numbers of segments, 4 B each | crc32c 4 B |
//! ```
//!
//! Written when the store is opened for writing, after a segment was made, and before one is removed: so a file that it
//! names and that is not there was lost.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use disk::{Disk, DiskError, DiskOpen};

use crate::format::{IndexHead, VOLUME_HEAD_BYTES, VolumeHead, crc, u32_at};
use crate::locks::locked;
use crate::segments::Segments;
use crate::segments::volume::{read_head, replace_file};

pub(crate) const COPY_NAME: &str = "volume.copy";

/// More segments, or volumes, than a store has: nothing is sized by a damaged count.
const BYTES_MAX: u64 = 64 << 20;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct VolumeCopy {
    /// The volume's own first.
    pub heads: Vec<VolumeHead>,
    pub files: Vec<u32>,
}

impl VolumeCopy {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = (self.heads.len() as u32).to_le_bytes().to_vec();
        bytes.extend_from_slice(&(self.files.len() as u32).to_le_bytes());
        self.heads.iter().for_each(|head| bytes.extend_from_slice(&head.encode()));
        self.files.iter().for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
        let sum = crc(&bytes);
        bytes.extend_from_slice(&sum.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (bytes, sum) = bytes.split_at_checked(bytes.len().checked_sub(4)?)?;
        let (counts, rest) = bytes.split_at_checked(8)?;
        let (heads, files) = (u32_at(counts, 0) as usize, u32_at(counts, 4) as usize);
        let wanted = heads.checked_mul(VOLUME_HEAD_BYTES)?.checked_add(files.checked_mul(4)?)?;
        if crc(bytes) != u32_at(sum, 0) || rest.len() != wanted {
            return None;
        }
        let (heads, files) = rest.split_at(heads * VOLUME_HEAD_BYTES);
        let heads = heads.chunks_exact(VOLUME_HEAD_BYTES).map(|head| VolumeHead::decode(head).ok());
        let files = files.chunks_exact(4).map(|number| u32_at(number, 0)).collect();
        Some(Self { heads: heads.collect::<Option<_>>()?, files })
    }

    /// What is wrong with the copy of a volume with this head. What a kill between the writing of the two leaves is not wrong:
    /// then the copy is of an earlier opening, and the head does not tell of a clean stop.
    pub(crate) fn fault(disk: &Arc<dyn Disk>, head: &VolumeHead) -> Option<String> {
        let was_closed = head.closed.is_some();
        let what = match Self::read(disk) {
            None if disk.open(COPY_NAME, DiskOpen::Read).is_ok() => {
                "is damaged: which segments the volume had is not known"
            }
            // An earlier version of this program wrote none, and recorded no clean stop.
            None if was_closed => "is missing: which segments the volume had is not known",
            None => return None,
            Some(copy) => {
                let own = copy.heads.first().copied()?;
                let is_older = own.openings <= head.openings && own.is_of_same_volume(head);
                if own == head.unclosed() || is_older && !was_closed {
                    return None;
                }
                "is not the copy of this volume's head, or of an earlier time"
            }
        };
        Some(format!(
            "the file `{COPY_NAME}` {what}; the next opening for writing, or a repair, writes it again"
        ))
    }

    /// `None`: there is none, as an earlier version wrote the store, or it is damaged.
    pub(crate) fn read(disk: &Arc<dyn Disk>) -> Option<Self> {
        let file = disk.open(COPY_NAME, DiskOpen::Read).ok()?;
        let length = file.length().ok().filter(|&length| length <= BYTES_MAX)?;
        let mut bytes = vec![0; length as usize];
        let read = file.read_at(&mut bytes, 0).ok()?;
        Self::decode(&bytes[..read])
    }

    pub(crate) fn write(&self, disk: &Arc<dyn Disk>) -> Result<(), DiskError> {
        replace_file(disk, COPY_NAME, &[&self.encode()])
    }
}

/// Writes the copy of a volume: its segments, but for one that is about to be removed; and those that were lost, until
/// they are given up.
pub(crate) fn write_copy(segments: &Segments, index: usize, without: Option<u32>) -> Result<(), DiskError> {
    let volume = segments.volume(index);
    let _copying = locked(&volume.copying);
    let mut heads = vec![];
    for other in segments.all_volumes() {
        // One that cannot be read now is left out: the volume has its own.
        let own = other.number == volume.number;
        if other.leaving.load(Ordering::SeqCst) && !own {
            continue;
        }
        if let Ok(head) = read_head(&other.disk) {
            heads.insert(if own { 0 } else { heads.len() }, head);
        }
    }
    if heads.first().is_none_or(|head| head.volume != volume.number) {
        return Ok(());
    }
    let here = segments
        .all_files()
        .into_iter()
        .filter(|segment| segment.volume == index)
        .map(|segment| segment.number);
    let lost = segments.lost().files;
    let lost = lost.into_iter().filter(|&(_, volume)| volume == index).map(|(number, _)| number);
    let files = here.chain(lost).filter(|&number| Some(number) != without).collect();
    VolumeCopy { heads, files }.write(&volume.disk)?;
    volume.copy_is_old.store(false, Ordering::SeqCst);
    Ok(())
}

/// The head of a volume that lost its own and the copy, as another volume of its store has it: the store's number is in the
/// heads of its indexes too.
pub(crate) fn head_from_others(
    disk: &Arc<dyn Disk>,
    others: &[&Arc<dyn Disk>],
    present: &[u32],
) -> Option<VolumeHead> {
    let store = *stores_of_indexes(disk).first()?;
    let copies = others.iter().filter_map(|other| VolumeCopy::read(other));
    let mut heads = copies.flat_map(|copy| copy.heads).collect::<Vec<_>>();
    heads.retain(|head| head.store == store && !present.contains(&head.volume));
    let newest = *heads.iter().max_by_key(|head| head.openings)?;
    // Two that are away cannot be distinguished.
    heads.iter().all(|head| head.volume == newest.volume).then_some(newest)
}

/// The head in the copy of a volume whose own head is one of another store, as the indexes show: put back from the wrong backup.
pub(crate) fn head_of_indexes(disk: &Arc<dyn Disk>, head: &VolumeHead) -> Option<VolumeHead> {
    let copied = *VolumeCopy::read(disk)?.heads.first()?;
    if copied.store == head.store {
        return None;
    }
    let stores = stores_of_indexes(disk);
    (stores.contains(&copied.store) && !stores.contains(&head.store)).then_some(copied)
}

/// The stores whose numbers are in the heads of a volume's indexes.
fn stores_of_indexes(disk: &Arc<dyn Disk>) -> Vec<u128> {
    let store_of = |name: &String| {
        let mut bytes = vec![0; crate::format::INDEX_HEAD_BYTES];
        disk.open(name, DiskOpen::Read).ok()?.read_at(&mut bytes, 0).ok()?;
        Some(IndexHead::decode_repairing(&mut bytes).ok()?.0.store)
    };
    let names = disk.names().unwrap_or_default();
    names.iter().filter(|name| name.ends_with(".index")).filter_map(store_of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comes_back_as_it_was_and_no_flipped_bit_passes() {
        let head = VolumeHead {
            store: 1,
            hash_seed: 2,
            volume: 3,
            volumes: 4,
            block_bytes: 64,
            segment_blocks: 5,
            size_bytes: 6,
            object_bytes_mean: 7,
            durable: true,
            expires: false,
            cyclic: false,
            openings: 8,
            begun: 9,
            closed: None,
        };
        let copy = VolumeCopy { heads: vec![head, VolumeHead { volume: 2, ..head }], files: vec![0, 7] };
        let mut bytes = copy.encode();
        assert_eq!(VolumeCopy::decode(&bytes), Some(copy));
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(VolumeCopy::decode(&bytes), None, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        (0..bytes.len()).for_each(|len| assert_eq!(VolumeCopy::decode(&bytes[..len]), None, "{len} bytes"));
    }
}
