//! Which keys are not in a run, known without reading it: a Bloom filter, each key's bits in one cache line.
//!
//! Ten bits a key: of the keys that are not there, it takes one in a hundred or so for one that may be.
//! Source: Putze et al., "Cache-, Hash- and Space-Efficient Bloom Filters", WEA 2007.

use crate::format::{Reader, put_u64};

const BITS_PER_KEY: u64 = 10;
/// Words of a line of 512 bits.
const LINE: usize = 8;
/// Bits set for a key, of nine bits of the hash each.
const BITS: u32 = 6;

pub(crate) struct Filter {
    words: Box<[u64]>,
}

impl Filter {
    /// For up to this many keys.
    pub(crate) fn for_keys(keys: u64) -> Self {
        let lines = (keys * BITS_PER_KEY).div_ceil(512).max(1);
        Self { words: vec![0; lines as usize * LINE].into() }
    }

    pub(crate) fn insert(&mut self, hash: u64) {
        let line = self.line(hash);
        bits(hash).for_each(|(word, bit)| self.words[line + word] |= bit);
    }

    pub(crate) fn may_have(&self, hash: u64) -> bool {
        let line = self.line(hash);
        bits(hash).all(|(word, bit)| self.words[line + word] & bit != 0)
    }

    fn line(&self, hash: u64) -> usize {
        let lines = (self.words.len() / LINE) as u128;
        ((u128::from(hash) * lines) >> 64) as usize * LINE
    }

    pub(crate) fn encode(&self, into: &mut Vec<u8>) {
        self.words.iter().for_each(|word| put_u64(into, *word));
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        if bytes.is_empty() || !bytes.len().is_multiple_of(LINE * 8) {
            return None;
        }
        let mut from = Reader::new(bytes);
        let words = (0..bytes.len() / 8).map(|_| from.u64()).collect::<Option<_>>()?;
        Some(Self { words })
    }

    /// One that excludes nothing, where that of the run is damaged.
    pub(crate) fn of_everything() -> Self {
        Self { words: [u64::MAX; LINE].into() }
    }
}

fn bits(hash: u64) -> impl Iterator<Item = (usize, u64)> {
    let drawn = mixed(hash ^ 0x9E37_79B9_7F4A_7C15);
    (0..BITS).map(move |at| {
        let bit = drawn >> (at * 9) & 511;
        ((bit / 64) as usize, 1 << (bit % 64))
    })
}

/// The hash of a key. It is part of the format.
pub(crate) fn hash(key: &[u8]) -> u64 {
    let mut hash = key.len() as u64;
    for chunk in key.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = mixed(hash ^ u64::from_le_bytes(word));
    }
    hash
}

/// A number in which every bit depends on every bit (splitmix64).
fn mixed(number: u64) -> u64 {
    let mut bits = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ bits >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ bits >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ bits >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_has_every_key_it_was_made_of_and_few_others() {
        let hashes: Vec<u64> = (0..10_000_u64).map(|number| hash(&number.to_be_bytes())).collect();
        let mut filter = Filter::for_keys(hashes.len() as u64);
        hashes.iter().for_each(|hash| filter.insert(*hash));
        let mut bytes = Vec::new();
        filter.encode(&mut bytes);
        let read = Filter::decode(&bytes).expect("whole");
        assert!(hashes.iter().all(|hash| filter.may_have(*hash) && read.may_have(*hash)));
        let others =
            (10_000..110_000_u64).filter(|number| read.may_have(hash(&number.to_be_bytes()))).count();
        assert!(others < 2_000, "{others} of 100,000 keys that are not there");
        assert!(Filter::of_everything().may_have(7) && !Filter::for_keys(0).may_have(7));
    }
}
