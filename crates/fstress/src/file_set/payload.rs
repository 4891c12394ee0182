//! What is written to files: bytes that neither compress nor repeat within a block.
//!
//! A server that compresses or stores equal blocks once would otherwise be measured at writing nothing. All
//! payload is cut from one random megabyte at varying places, so that making it costs the generator nothing.

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

pub(crate) struct Payload {
    bytes: Vec<u8>,
}

/// Places to begin at. A prime, so that equal offsets of files written one after the other differ.
const PLACES: u64 = 1_048_573;
/// The longest piece that can be cut.
const PIECE_MAX: usize = 4 << 20;

impl Payload {
    pub fn new(seed: u64) -> Self {
        let mut bytes = vec![0; PLACES as usize + PIECE_MAX];
        Xoshiro256PlusPlus::seed_from_u64(seed).fill_bytes(&mut bytes);
        Self { bytes }
    }

    /// `count` bytes for offset `offset`; the same for the same offset.
    #[inline]
    pub fn at(&self, offset: u64, count: u32) -> &[u8] {
        let place = (offset.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) % PLACES;
        &self.bytes[place as usize..][..(count as usize).min(PIECE_MAX)]
    }
}
