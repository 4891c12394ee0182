//! rnews batches: articles one after another, each after its byte count.
//!
//! ```text
//! #! rnews 5 LF | abcde | #! rnews 2 LF | xy | ...        plain, gzipped, or gzipped after a line `#! cunbatch`
//! ```
//!
//! Always holds: memory is bounded by the largest article allowed. A count that does not lead to another `#!` is
//! reported with its offset, and reading continues at the next line `#! rnews N`. Every byte read is in an article or in
//! [`BatchReader::damaged_bytes`].
//! Not here: whether the bytes are an article (see `article`), files of batches (see `feed`).

mod read;
mod write;

pub use read::{ARTICLE_BYTES_MAX, BatchReader};
pub use write::BatchWriter;

use crate::article::Broken;

/// What can be wrong with a batch. Reading can continue after all but [`BatchError::Io`] and [`BatchError::Compressed`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// The batch cannot be read.
    #[error("cannot read the batch at byte {offset_bytes}")]
    Io {
        /// Bytes of it read so far, decompressed.
        offset_bytes: u64,
        /// The cause.
        source: std::io::Error,
    },
    /// Packed in a way that is not read here.
    #[error(
        "the batch is packed by compress(1), or not at all what its first line says; unpack it first: gzip -dc FILE"
    )]
    Compressed,
    /// Bytes that are no article of the batch; [`BatchReader::damaged`] has them.
    #[error("the batch is damaged at byte {offset_bytes}: {why}; {bytes} bytes skipped")]
    Damaged {
        /// Where the damage begins, in the decompressed batch.
        offset_bytes: u64,
        /// Up to the next `#! rnews` line, or the end.
        bytes: u64,
        /// What is wrong there.
        why: Broken,
    },
}

#[cfg(test)]
mod tests;
