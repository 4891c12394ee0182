//! Which object goes when a cache is full.
//!
//! ```text
//! engine --inserted, removed, evicted--> Policy --victim--> engine         under the engine's lock
//! engine --touched--> Policy                                               a read: shared, one atomic byte
//! ```
//!
//! A policy knows objects by slot, a small number that its owner gives to each for as long as it is stored.
//!
//! [`S3Fifo`] is the default: it alone beats LRU's hit ratio on all of three real request sequences at 1%, 5% and 10% of
//! their objects, with less memory. [`Sieve`] beats it nowhere and falls below FIFO on the file server's loop-like ones.
//! Hit ratios in percent (`cargo bench -p packstore --bench hit_ratio`):
//!
//! ```text
//!                  web 2012             web 2013             file server        bytes an
//!              1%    5%   10%       1%    5%   10%       1%    5%   10%         object
//! FIFO       37.6  56.3  64.5     36.3  47.9  53.1     17.0  61.8  82.0          5.0
//! LRU        39.7  60.0  68.5     39.2  50.6  55.7     16.3  65.6  86.5          8.0
//! clock, 1   40.3  60.8  69.2     39.8  51.2  56.2     16.2  65.3  86.4          5.0
//! clock, 3   41.2  62.3  70.5     40.9  52.2  57.1     16.3  66.3  86.9          5.0
//! SIEVE      39.8  63.5  71.7     42.1  53.3  57.9     14.7  56.3  76.7          5.0
//! S3-FIFO    42.4  64.6  72.3     44.0  54.2  58.2     21.3  67.4  86.6          6.8
//! optimum    58.5  74.7  80.0     53.4  63.7  68.1     42.3  82.3  91.4
//! ```
//!
//! Admission at the second request ([`Recent::admits`]) costs 4 to 7 points of hits and saves most writes.
//!
//! Always holds: a victim is an object that was inserted and not removed, and is known no more.
//! Not here: objects, keys, bytes.
//! Sources: Zhang et al., "SIEVE is Simpler than LRU", NSDI 2024; Yang et al., "FIFO queues are all you need for cache
//! eviction" (S3-FIFO), SOSP 2023.

mod chain;
mod clock;
mod fifo;
mod lru;
mod recent;
mod s3_fifo;
mod sieve;
#[cfg(test)]
mod tests;

pub use clock::Clock;
pub use fifo::Fifo;
pub use lru::Lru;
pub use recent::Recent;
pub use s3_fifo::S3Fifo;
pub use sieve::Sieve;

/// Segments of a volume from which on [`crate::Eviction::S3Fifo`] keeps new objects apart: with fewer, those being filled
/// would be most of them.
pub const SEGMENTS_FOR_QUEUES: u64 = 12;

/// An order in which objects go.
pub trait Policy: Send + Sync {
    /// The slot holds a new object. `key`: a hash of its key, the same whenever it comes back.
    fn inserted(&mut self, slot: u32, key: u64);

    /// The object was asked for. Who cannot have the policy at once may leave it out.
    fn touched(&self, slot: u32);

    /// The object was deleted or replaced; its slot may be used again.
    fn removed(&mut self, slot: u32);

    /// Evicts an object and returns which; none when there are none.
    fn victim(&mut self) -> Option<u32>;

    /// What the key of the last victim was, so that it is known again should it come back soon.
    fn evicted(&mut self, _slot: u32, _key: u64) {}

    /// Objects that are known.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Memory it takes, in total.
    fn memory_bytes(&self) -> usize;
}
