//! Parity blocks of a run: any one damaged block of a group is made again from the others.
//!
//! ```text
//! window: | block 0 | block 1 | ... | block 127 | parity of each of 8 groups |      block N is in group N mod 8
//! parity: | crc32c u32 (xor salt) | length u32 | 0 u32 | the group's blocks, each padded by zeros, combined by exclusive or |
//! ```
//!
//! 1. The last window may have fewer blocks. A group without blocks has no parity block.
//! 2. The first parity block is that of the group that the next block would be in. So eight neighbours are of eight groups, and damage
//!    to a whole page, or to some of them, costs no group two blocks. A window of fewer than eight blocks has a copy of each, as near as
//!    it has blocks.
//!
//! A sixteenth more is stored. Source: Patterson et al., "A Case for Redundant Arrays of Inexpensive Disks", SIGMOD 1988.

use std::iter::StepBy;
use std::ops::Range;

use super::block::HEAD;
use crate::format::{Reader, crc};

const GROUPS: usize = 8;
const GROUP_BLOCKS: usize = 16;
/// Blocks between parity blocks.
pub(super) const WINDOW: usize = GROUPS * GROUP_BLOCKS;

/// Offset and length of each block of a run.
pub(super) type Places = [(u64, u32)];

/// Collects the parity of one window.
#[derive(Default)]
pub(super) struct ParityBuilder {
    groups: [Vec<u8>; GROUPS],
    blocks: usize,
}

/// A group, and where its parity block is.
pub(super) struct Group {
    pub blocks: StepBy<Range<usize>>,
    pub offset: u64,
    pub length: usize,
}

impl ParityBuilder {
    pub(super) fn add(&mut self, block: &[u8]) {
        combine(&mut self.groups[self.blocks % GROUPS], block);
        self.blocks += 1;
    }

    pub(super) fn is_full(&self) -> bool {
        self.blocks == WINDOW
    }

    /// Appends the parity blocks to `into`, and begins the next window.
    pub(super) fn finish(&mut self, salt: u32, into: &mut Vec<u8>) {
        for group in order(self.blocks) {
            let bytes = &mut self.groups[group];
            let start = into.len();
            into.extend_from_slice(&[0; 4]);
            into.extend_from_slice(&((HEAD + bytes.len()) as u32).to_le_bytes());
            into.extend_from_slice(&[0; 4]);
            into.append(bytes);
            let sum = crc(&into[start + 4..]) ^ salt;
            into[start..start + 4].copy_from_slice(&sum.to_le_bytes());
        }
        self.blocks = 0;
    }
}

/// The groups of a window of this many blocks, in the order of their parity blocks.
fn order(blocks: usize) -> impl Iterator<Item = usize> {
    (0..GROUPS).map(move |at| (blocks + at) % GROUPS).filter(move |group| *group < blocks)
}

/// Puts the exclusive or of two strings of bytes in the place of the first; the shorter is padded.
pub(super) fn combine(into: &mut Vec<u8>, bytes: &[u8]) {
    if into.len() < bytes.len() {
        into.resize(bytes.len(), 0);
    }
    into.iter_mut().zip(bytes).for_each(|(byte, other)| *byte ^= other);
}

/// What a parity block holds. `None`: it is damaged.
pub(super) fn decode(bytes: &[u8], salt: u32) -> Option<&[u8]> {
    let mut from = Reader::new(bytes);
    let (sum, length, keys) = (from.u32()?, from.u32()? as usize, from.u32()?);
    let is_whole = length == bytes.len() && keys == 0 && crc(&bytes[4..]) ^ salt == sum;
    is_whole.then(|| &bytes[HEAD..])
}

/// The group of a block.
pub(super) fn group_of(block: usize, places: &Places) -> Option<Group> {
    groups_of_window(block / WINDOW, places).find(|group| group.blocks.clone().any(|other| other == block))
}

/// All groups of a run.
pub(super) fn groups(places: &Places) -> impl Iterator<Item = Group> {
    (0..places.len().div_ceil(WINDOW)).flat_map(|window| groups_of_window(window, places))
}

fn groups_of_window(window: usize, places: &Places) -> impl Iterator<Item = Group> {
    let first = window * WINDOW;
    let end = (first + WINDOW).min(places.len());
    let mut offset = places[first..end].last().map_or(0, |(offset, length)| offset + u64::from(*length));
    order(end - first).map(move |group| {
        let blocks = (first + group..end).step_by(GROUPS);
        let longest = blocks.clone().map(|block| places[block].1 as usize).max().unwrap_or(0);
        let found = Group { blocks, offset, length: HEAD + longest };
        offset += found.length as u64;
        found
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_of_different_groups_also_where_blocks_end_and_parity_begins() {
        for count in (1..40).chain([127, 128, 129, 200, 256, 300]) {
            let places: Vec<(u64, u32)> =
                (0..count).map(|at| (u64::from(at) * 10_000, 50 + at % 7)).collect();
            // Group of each block and each parity block, in the order of the file.
            let mut row: Vec<(u64, usize, usize)> =
                (0..places.len()).map(|at| (places[at].0, at / WINDOW, at % GROUPS)).collect();
            let mut covered = vec![0; places.len()];
            for group in groups(&places) {
                let first = group.blocks.clone().next().expect("no group is empty");
                row.push((group.offset, first / WINDOW, first % GROUPS));
                group.blocks.for_each(|block| covered[block] += 1);
            }
            assert!(covered.iter().all(|times| *times == 1), "{count} blocks: {covered:?}");
            row.sort_unstable();
            for (at, (_, window, group)) in row.iter().enumerate() {
                let neighbours = &row[at + 1..(at + GROUPS).min(row.len())];
                let is_near = neighbours.iter().any(|(_, other, near)| (other, near) == (window, group));
                let is_short = places.len() - window * WINDOW < GROUPS;
                assert!(!is_near || is_short, "{count} blocks: {at}");
            }
        }
    }

    #[test]
    fn a_parity_block_says_what_is_missing_of_its_group_and_a_flipped_bit_makes_it_none() {
        let blocks: Vec<Vec<u8>> =
            (0..WINDOW as u64).map(|at| vec![at as u8 ^ 0x5a; 40 + (at % 29) as usize]).collect();
        let mut builder = ParityBuilder::default();
        blocks.iter().for_each(|block| builder.add(block));
        assert!(builder.is_full());
        let mut bytes = Vec::new();
        builder.finish(9, &mut bytes);
        assert!(!builder.is_full());
        let mut offset = 0;
        let places: Vec<(u64, u32)> = blocks
            .iter()
            .map(|block| {
                offset += block.len() as u64;
                (offset - block.len() as u64, block.len() as u32)
            })
            .collect();
        for missing in 0..blocks.len() {
            let group = group_of(missing, &places).expect("one");
            let start = (group.offset - offset) as usize;
            let parity = &bytes[start..start + group.length];
            let mut combined = decode(parity, 9).expect("whole").to_vec();
            group.blocks.filter(|block| *block != missing).for_each(|at| combine(&mut combined, &blocks[at]));
            combined.truncate(blocks[missing].len());
            assert_eq!(combined, blocks[missing], "{missing}");
            let mut damaged = parity.to_vec();
            damaged[missing % parity.len()] ^= 4;
            assert!(decode(&damaged, 9).is_none(), "{missing}");
        }
    }
}
