//! Random draws that never change: a feed's seed must always give the same bytes, so no library's generator is used.
//!
//! Source: Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014 (SplitMix64).

/// A stream of draws that belongs to one place of one feed.
#[derive(Clone, Debug)]
pub(super) struct Draw(u64);

impl Draw {
    /// The stream for `place` in what `purpose` is about.
    pub(super) fn new(seed: u64, purpose: Purpose, place: u64) -> Self {
        let start = mixed(seed ^ mixed(purpose as u64));
        Self(mixed(start.wrapping_add(place.wrapping_mul(STEP))))
    }

    pub(super) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(STEP);
        mixed(self.0)
    }

    /// From 0 to below 1.
    pub(super) fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// From 0 to below `bound`, which is above 0.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.bits()) * u128::from(bound)) >> 64) as u64
    }

    pub(super) fn chance(&mut self, share: f64) -> bool {
        self.unit() < share
    }

    /// A rank from 0 to below `count`, the rank r with a share of about 1/r: Zipf's law with exponent 1.
    pub(super) fn rank(&mut self, count: usize) -> usize {
        ((count as f64 + 1.0).powf(self.unit()) as usize).clamp(1, count) - 1
    }

    /// Exponential with this mean.
    pub(super) fn waiting(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }

    /// Standard normal, by Box and Muller.
    pub(super) fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }
}

/// The purpose of a stream; streams of different purposes are independent.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    Role = 1,
    Article,
    Path,
    Groups,
    Names,
    Text,
    Days,
    Id,
}

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

fn mixed(bits: u64) -> u64 {
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
