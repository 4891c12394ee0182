//! The packed object store (KOTETU's disk techniques): many small objects in few large files, on ordinary file systems
//! by ordinary calls.
//!
//! ```text
//! put --> group of changes --> writer of a volume --> 00000012.body   records: head, key, attributes, body
//!                                    |                00000012.index  control blocks: key, place, times
//!                                    `--> table in memory: signature of the key -> place            (signatures)
//! get --> table --> one read of the record --> key and checksums compared --> Object
//! ```
//!
//! Always holds: in store mode what was acknowledged survives power loss; no object is ever served with another's bytes;
//! a read waits for no write.
//! Not here: paths and directories (`packfs`), HTTP (`webcache`), flags and output (`crumb`).
//! Design: `docs/design/packstore.md`; bytes on disk: `docs/design/packstore-format.md`.
//! Source: Chinen, "User Level Techniques for Improvement of Disk I/O in WWW Caching", 2000.

pub mod eviction;
#[doc(hidden)]
pub mod fuzzing;
pub mod signatures;

mod bitmap;
mod cache_policy;
mod check;
mod clock;
mod compact;
mod deletions;
mod error;
mod extents;
mod format;
mod getting;
mod hashed;
mod index;
mod iterate;
mod lanes;
mod lifetime;
mod links;
mod locks;
mod members;
mod memory;
mod object;
mod objects;
mod opening;
mod options;
mod packed;
mod rebuild;
mod recover;
mod refill;
mod segments;
mod spot;
mod store;
mod stream;
mod stretches;
mod table_file;
mod touching;
mod usage;
mod volume;
mod volume_copy;
mod write_queue;
mod writer;

pub use check::{CheckReport, Fault, RepairReport};
pub use compact::CompactReport;
pub use error::StoreError;
pub use extents::{Extent, Extents};
pub use format::{FORMAT_VERSION, KEY_BYTES_MAX, META_BYTES_MAX};
pub use getting::{Begun, Reading};
pub use iterate::{Entry, Iter, OrderedIter};
pub use object::{Body, Chunk, Chunks, Object, Stat};
pub use options::{
    Admission, CacheOptions, Eviction, Mode, OpenOptions, PutOptions, StoreOptions, Verify, VolumeSpec,
};
pub use store::{Pending, Store};
pub use stream::ObjectWriter;
pub use usage::{Usage, VolumeState};
