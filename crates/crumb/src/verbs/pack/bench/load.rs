//! The objects that both sides are given.

/// What is put: sizes, keys, and bytes to cut from.
pub struct Load {
    pub sizes: Vec<usize>,
    pub keys: Vec<String>,
    pub missing: Vec<String>,
    /// Order of reading.
    pub order: Vec<usize>,
    bytes: Vec<u8>,
}

impl Load {
    /// `count` objects of this mean size.
    pub fn drawn(count: usize, mean_bytes: u64) -> Self {
        let mut random = 0x9E37_79B9_7F4A_7C15_u64;
        let mut next = move || {
            // xorshift64*: the same objects in every run.
            random ^= random >> 12;
            random ^= random << 25;
            random ^= random >> 27;
            random.wrapping_mul(0x2545_F491_4F6C_DD1D)
        };
        let mean = mean_bytes.clamp(1, 64 << 20) as f64;
        let unit = |bits: u64| (bits >> 11) as f64 / (1_u64 << 53) as f64;
        let sizes: Vec<usize> = (0..count)
            .map(|_| (-mean * (1.0 - unit(next())).ln()).clamp(1.0, mean * 20.0) as usize)
            .collect();
        let keys = (0..count)
            .map(|number| format!("{:02x}/{number:08}-{:08x}", next() & 0xff, next() as u32))
            .collect();
        let missing = (0..count).map(|number| format!("{:02x}/none-{number:08}", next() & 0xff)).collect();
        let mut order: Vec<usize> = (0..count).collect();
        for at in (1..count).rev() {
            order.swap(at, (next() % (at as u64 + 1)) as usize);
        }
        let most = sizes.iter().copied().max().unwrap_or(0);
        let bytes = (0..most + 4096).map(|_| next() as u8).collect();
        Self { sizes, keys, missing, order, bytes }
    }

    /// An object's bytes.
    pub fn body(&self, number: usize) -> &[u8] {
        &self.bytes[number % 4096..][..self.sizes[number]]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_run_draws_the_same_objects_about_as_large_as_asked_for_and_reads_each_once() {
        let (load, again) = (Load::drawn(5000, 10_000), Load::drawn(5000, 10_000));
        assert_eq!((&load.sizes, &load.keys, &load.order), (&again.sizes, &again.keys, &again.order));
        let mean = load.sizes.iter().sum::<usize>() as f64 / 5000.0;
        assert!((9_000.0..11_000.0).contains(&mean), "{mean}");
        assert_eq!(load.order.iter().collect::<BTreeSet<_>>().len(), 5000);
        let keys: BTreeSet<_> = load.keys.iter().chain(&load.missing).collect();
        assert_eq!(keys.len(), 10_000, "what is missing is none of those that are put");
        assert!((0..5000).all(|number| load.body(number).len() == load.sizes[number]));
    }
}
