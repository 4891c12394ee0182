//! What can end a run early.

use files::FsError;
use rustix::io::Errno;

/// Why a run ended, or could not begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OverheadError {
    /// The storage refused something while directories were made or removed.
    #[error(transparent)]
    Storage(#[from] FsError),
    /// A measured system call failed.
    #[error("{place}: {call} of '{name}' failed")]
    Call {
        /// The directory.
        place: String,
        /// The system call.
        call: &'static str,
        /// The file in it.
        name: String,
        /// What it said.
        source: Errno,
    },
    /// A listing or a read gave something else than was written.
    #[error("{place}: {what}")]
    Wrong {
        /// The directory.
        place: String,
        /// What was found instead.
        what: String,
    },
    /// Nothing lies between the two.
    #[error(
        "{mount} is on the same file system as {lower}: nothing lies between them; name the mount point, and the directory that \
         it shows"
    )]
    SameFileSystem {
        /// The lower directory.
        lower: String,
        /// The other.
        mount: String,
    },
}
