//! What can go wrong with all of it; what concerns one entry alone is reported to the watcher, and the rest continues.

use std::io;
use std::path::PathBuf;

use packstore::StoreError;

/// Why putting or getting ended early.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PackFsError {
    /// An entry could not be put, and no other will be.
    #[error("{what}: cannot be put")]
    Put {
        /// Its name, for people.
        what: String,
        /// Why.
        source: StoreError,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A stream without its end blocks.
    #[error("it holds nothing: whatever was to write it may have failed")]
    EmptyStream,
    /// A tar stream ended within an entry, or is none from there on.
    #[error("{what}: the stream breaks off")]
    BrokenStream {
        /// The entry, for people.
        what: String,
        /// Why.
        source: io::Error,
    },
    /// A tar stream ended between two entries, without the block of zeros that says that these were all.
    #[error("the stream has no end: it may have been cut off after {last}; what came before is in the store")]
    CutStream {
        /// The last entry, for people.
        last: String,
    },
    /// A tar stream could not be read or written.
    #[error(transparent)]
    Stream(#[from] io::Error),
    /// A directory to write below.
    #[error("{}: cannot be {what}", path.display())]
    Directory {
        /// Where.
        path: PathBuf,
        /// `made` or `opened`.
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// No room to write files.
    #[error("{}: is full", path.display())]
    Full {
        /// The directory.
        path: PathBuf,
        /// As the file system said it.
        source: io::Error,
    },
}
