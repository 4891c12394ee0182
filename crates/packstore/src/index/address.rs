//! Where an object lies, and how much must be read to have it whole, in the 40 bits that the table in memory keeps.
//!
//! ```text
//! | block of the store, 34 b | class of length, 6 b |     block of the store = file x blocks a file + block
//! ```
//!
//! Always holds: a class is at least the length, and at most a quarter more.

use crate::fingerprints::Location;
use crate::options::Shape;

/// Blocks that a store may have.
pub(crate) const BLOCKS_MAX: u64 = 1 << 34;

/// A place taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub file: u32,
    pub block: u32,
    /// Blocks to read.
    pub blocks_max: u32,
}

impl Address {
    pub(crate) fn of(location: Location, shape: Shape) -> Self {
        let number = location.number() >> 6;
        let blocks = u64::from(shape.segment_blocks);
        Self {
            file: (number / blocks) as u32,
            block: (number % blocks) as u32,
            blocks_max: class_blocks((location.number() & 63) as u32),
        }
    }
}

/// The place of `blocks` blocks; `None` beyond what a place can say.
pub(crate) fn location(file: u32, block: u32, blocks: u32, shape: Shape) -> Option<Location> {
    let number = u64::from(file) * u64::from(shape.segment_blocks) + u64::from(block);
    let class = class_of(blocks);
    (number < BLOCKS_MAX && class < 64).then(|| Location::new(number << 6 | u64::from(class))).flatten()
}

/// 1, 2, 3, 4, then four steps an octave.
fn class_of(blocks: u32) -> u32 {
    if blocks <= 4 {
        return blocks.saturating_sub(1);
    }
    let octave = (blocks - 1).ilog2() - 2;
    4 * octave + blocks.div_ceil(1 << octave) - 1
}

fn class_blocks(class: u32) -> u32 {
    if class < 4 {
        return class + 1;
    }
    (5 + class % 4) << (class / 4 - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_never_too_short_and_at_most_a_quarter_too_long() {
        let shape = Shape { block_bytes: 64, segment_blocks: 1 << 20 };
        for blocks in (1..5_000).chain([16_384, 70_000, 131_072]) {
            let location = location(77, 12_345, blocks, shape).expect("it can be said");
            let address = Address::of(location, shape);
            assert_eq!((address.file, address.block), (77, 12_345));
            assert!(address.blocks_max >= blocks, "{blocks} -> {}", address.blocks_max);
            assert!(address.blocks_max <= blocks + blocks / 4, "{blocks} -> {}", address.blocks_max);
        }
        assert_eq!(location(u32::MAX, 0, 1, shape), None);
    }
}
