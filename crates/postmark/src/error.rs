//! Everything that can go wrong in a run.

use std::path::PathBuf;

use files::FsError;
use measure::numbers::bytes_text;

use crate::engine::Phase;

/// Why a run did not come to its end, or what it had to leave behind.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PostmarkError {
    /// A location cannot be used at all.
    #[error("location '{}' cannot be used: choose a directory that is there and writable", .location.display())]
    Location {
        /// As it was given.
        location: PathBuf,
        /// Why.
        source: FsError,
    },
    /// Something lies where a file or directory of the run would be made.
    #[error(
        "{name} is there already and a run never overwrites: move it away, or choose an empty directory \
         (`set location DIR`)"
    )]
    Taken {
        /// Where, as a user would name it.
        name: String,
        /// What the storage said.
        source: FsError,
    },
    /// The storage refused an operation.
    #[error("the storage refused a call while {phase}")]
    Storage {
        /// In which phase.
        phase: Phase,
        /// What was tried, on what, and why not.
        source: FsError,
    },
    /// A file does not hold any more what was written to it.
    #[error(
        "{name} ends after {read_bytes} bytes, {size_bytes} were written: something else works in this place"
    )]
    Shortened {
        /// Which file.
        name: String,
        /// Bytes it gave.
        read_bytes: u64,
        /// Bytes it should hold.
        size_bytes: u32,
    },
    /// The storage takes no bytes and gives no error.
    #[error("{name} takes no more bytes, although the storage reports no error")]
    NothingWritten {
        /// Which file.
        name: String,
    },
    /// Some of what the run made is still there.
    #[error("{place}: {left} of this run's files and directories could not be removed; the first one failed")]
    Left {
        /// Below which location.
        place: String,
        /// How many, with those not even tried.
        left: u64,
        /// What the storage said of the first.
        source: FsError,
    },
    /// The settings ask for more memory than there is.
    #[error(
        "{what} would take {} of memory: set a smaller `number` or `size`",
        size_text(.needed_bytes)
    )]
    Memory {
        /// What for.
        what: &'static str,
        /// How much.
        needed_bytes: u64,
    },
    /// The weights do not fit the 31 bits that locations are drawn by.
    #[error("the locations' weights add up to {total}, more than 2147483647: choose smaller weights")]
    Weights {
        /// Their sum.
        total: u64,
    },
    /// There is nowhere to run.
    #[error("no location to run in: name at least one")]
    NoPlace,
    /// The run's own folder cannot be made.
    #[error("cannot make a folder for the run's files")]
    MakeFolder {
        /// What the storage said.
        source: FsError,
    },
    /// The run's own folder is still there.
    #[error("{place}: cannot remove this run's folder {name}")]
    RemoveFolder {
        /// Below which location.
        place: String,
        /// Its name.
        name: String,
        /// What the storage said.
        source: FsError,
    },
    /// The system gave no thread for the progress.
    #[error("cannot start the thread that watches the run")]
    Watch {
        /// What the system said.
        source: std::io::Error,
    },
    /// The system gave no thread.
    #[error("cannot start worker {worker}: use fewer threads")]
    Thread {
        /// Which, counted from 0.
        worker: usize,
        /// What the system said.
        source: std::io::Error,
    },
}

fn size_text(bytes: &u64) -> String {
    bytes_text(*bytes)
}
