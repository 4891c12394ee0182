//! A macro-benchmark of storage for many small files: stores a real news feed, forwards and expires it, pass after pass.
//!
//! ```text
//! tree, mbox, spool, rnews --import--+
//! Model + seed ---------synthesize---+--> Feed: 000001.rnews ... feed.json --batch--> article --> spool
//! Feed ---------------------clone----+
//! ```
//!
//! As one of the benchmarks it is [`Netnews`].
//!
//! Not here: opening targets (the binary); axes and pages (`report`, which draws what `views` says).

pub mod article;
pub mod batch;
mod benchmark;
mod error;
pub mod feed;
pub mod spool;
mod views;

pub use benchmark::{Netnews, Supplies};
pub use error::NetnewsError;
pub use views::{ENTRY, views};
