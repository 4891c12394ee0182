//! Hash tables whose keys are hashes, or places, already.

use std::hash::{BuildHasherDefault, Hasher};

/// For numbers that are hashes, or places: one multiplication is enough for both.
pub(crate) type Hashed = BuildHasherDefault<Multiplied>;

#[derive(Clone, Copy, Default)]
pub(crate) struct Multiplied(u64);

impl Hasher for Multiplied {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        let mixed = (self.0.rotate_left(32) ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 29;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}
