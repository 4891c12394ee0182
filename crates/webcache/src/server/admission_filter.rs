//! Remembers which URIs were requested recently, so that a reply is admitted to the store at its second request: a Bloom filter with
//! one hash, also known as a doorkeeper.
//!
//! Always holds: it takes 128 KiB, whatever is requested, and is cleared when half of its bits are set.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use http_cache_rules::key::CacheKey;
use xxhash_rust::xxh3::xxh3_64;

const BITS: usize = 1 << 20;

/// The filter.
pub struct AdmissionFilter {
    words: Vec<AtomicU64>,
    set: AtomicUsize,
}

impl Default for AdmissionFilter {
    fn default() -> Self {
        Self { words: (0..BITS / 64).map(|_| AtomicU64::new(0)).collect(), set: AtomicUsize::new(0) }
    }
}

impl AdmissionFilter {
    /// Adds a URI; returns whether it was present before.
    pub fn note(&self, key: &CacheKey) -> bool {
        let bit = xxh3_64(key.as_str().as_bytes()) as usize % BITS;
        let before = self.words[bit / 64].fetch_or(1 << (bit % 64), Ordering::Relaxed);
        let was_there = before & (1 << (bit % 64)) != 0;
        if !was_there && self.set.fetch_add(1, Ordering::Relaxed) == BITS / 2 {
            self.words.iter().for_each(|word| word.store(0, Ordering::Relaxed));
            self.set.store(0, Ordering::Relaxed);
        }
        was_there
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_time_is_told_from_the_first() {
        let seen = AdmissionFilter::default();
        let key =
            |name: &str| CacheKey::of(&format!("http://a/{name}").parse().expect("a URI")).expect("a key");
        assert!(!seen.note(&key("x")));
        assert!(!seen.note(&key("y")));
        assert!(seen.note(&key("x")));
    }
}
