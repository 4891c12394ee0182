//! The packed object store (KOTETU's disk techniques): many small objects in few large files, on ordinary file systems
//! by ordinary calls.
//!
//! ```text
//! put --> group of changes --> writer of a volume --> 00000012.body   records: head, key, attributes, body
//!                                    |                00000012.index  index records: key, location, times
//!                                    `--> table in memory: fingerprint of the key -> location     (fingerprints)
//! get --> table --> one read of the record --> key and checksums compared --> Object
//! ```
//!
//! Always holds: in store mode what was acknowledged survives power loss; no object is ever served with another's bytes;
//! a read waits for no write.
//! Not here: paths and directories (`packfs`), HTTP (`webcache`), flags and output (`crumb`).
//! Design: `docs/design/packstore.md`; bytes on disk: `docs/design/packstore-format.md`.
//! Source: Chinen, "User Level Techniques for Improvement of Disk I/O in WWW Caching", 2000.

pub mod eviction;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzing;

mod cache_policy;
mod clock;
mod error;
mod format;
mod hashed;
mod index;
mod locks;
mod objects;
mod options;
mod procedures;
mod segments;
mod store;
mod write_queue;

/// The entries of the fuzz targets, which the tests run too, name the crate.
#[cfg(test)]
extern crate self as packstore;

pub use clock::Clock;
pub use error::StoreError;
pub use format::{FORMAT_VERSION, KEY_BYTES_MAX, META_BYTES_MAX};
pub use index::fingerprints;
pub use objects::object::{Body, Chunk, Chunks, Object, Stat};
pub use options::{
    Admission, CacheOptions, Eviction, Mode, OpenOptions, PutOptions, StoreOptions, Verify, VolumeSpec,
};
pub use procedures::check::{CheckReport, Fault};
pub use procedures::compact::CompactReport;
pub use procedures::repair::RepairReport;
pub use store::extents::{Extent, Extents};
pub use store::getting::{Begun, Reading};
pub use store::iterate::{Entry, Iter, OrderedIter};
pub use store::lifetime::volumes_expected;
pub use store::stream::ObjectWriter;
pub use store::usage::{Usage, VolumeState};
pub use store::{Pending, Store};
