//! What can end a run early.

use files::FsError;

use crate::SET_PREFIX;

/// Why a run ended, or could not begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DirscaleError {
    /// The storage refused something.
    #[error(transparent)]
    Storage(#[from] FsError),
    /// No room left in the middle of the run.
    #[error(
        "the storage is full: no room for a file more (bytes or inodes) when the directories had {files} files \
         together; measure smaller sizes, or fewer layouts"
    )]
    Full {
        /// Files in all directories by then.
        files: u64,
        /// What the storage said.
        source: FsError,
    },
    /// Not even the smallest size fits.
    #[error(
        "{place}: no room: {size} files in each of {layouts} layouts take about {bytes_needed} bytes and \
         {inodes_needed} inodes, and {bytes_available} bytes and {} inodes are free; make room, or measure smaller \
         sizes or fewer layouts", inodes(*.inodes_available)
    )]
    NoRoom {
        /// The storage.
        place: String,
        /// The smallest size asked for.
        size: u64,
        /// Layouts asked for.
        layouts: usize,
        /// Estimated need, bytes.
        bytes_needed: u64,
        /// Files and directories.
        inodes_needed: u64,
        /// Free for this user, bytes.
        bytes_available: u64,
        /// Free for this user; none where inodes are not limited.
        inodes_available: Option<u64>,
    },
    /// A set of the name is there already.
    #[error(
        "{place}: there is a folder {SET_PREFIX}{name} already; go on with it by --reuse {name}, or remove it \
         (rm -r {place}/{SET_PREFIX}{name})"
    )]
    SetExists {
        /// The storage.
        place: String,
        /// The set's name.
        name: String,
    },
    /// Nothing to take up.
    #[error("{place}: no folder {SET_PREFIX}{name} to reuse; make it with --keep {name}")]
    SetMissing {
        /// The storage.
        place: String,
        /// The set's name.
        name: String,
    },
    /// A set that cannot be gone on with.
    #[error(
        "{place}/{SET_PREFIX}{name} cannot be reused: {wrong}; remove it and make a new one with --keep {name}"
    )]
    SetUnfit {
        /// The storage.
        place: String,
        /// The set's name.
        name: String,
        /// What is wrong with it.
        wrong: String,
    },
    /// All sizes asked for are below what a reused set holds.
    #[error(
        "{SET_PREFIX}{name} has grown beyond {largest} files, the largest size asked for, and a directory that once \
         was large is not like a small one; ask for larger sizes, or make a new set"
    )]
    SetOutgrown {
        /// The set's name.
        name: String,
        /// The largest size asked for.
        largest: u64,
    },
}

fn inodes(available: Option<u64>) -> String {
    available.map_or_else(|| "unlimited".to_owned(), |count| count.to_string())
}
