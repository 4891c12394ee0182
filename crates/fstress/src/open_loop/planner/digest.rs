//! One number for all operations of a load point: two runs that have the same asked the same.

use super::{Planned, Target};

pub(super) struct Digest(u64);

const BEGIN: u64 = 0xcbf2_9ce4_8422_2325;
/// Odd, and near to 2^64 divided by the golden ratio: spreads what differs over all bits.
pub(crate) const DIGEST_FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

impl Default for Digest {
    fn default() -> Self {
        Self(BEGIN)
    }
}

impl Digest {
    pub fn value(&self) -> u64 {
        self.0
    }

    #[inline]
    pub fn add(&mut self, planned: &Planned) {
        let object = match planned.target {
            Target::None => 0,
            Target::File(file) => 1 << 32 | u64::from(file.slot()),
            Target::Dir(dir) => 2 << 32 | u64::from(dir.slot()),
            Target::Link(link) => 3 << 32 | u64::from(link.slot()),
        };
        let shape = (planned.kind as u64) << 32 | u64::from(planned.count);
        // One multiplication in the chain, as this runs for each of millions of requests a second.
        let operation = object ^ shape.rotate_left(17) ^ planned.offset.wrapping_mul(DIGEST_FACTOR);
        self.0 = (self.0.rotate_left(5) ^ operation).wrapping_mul(DIGEST_FACTOR);
    }
}
