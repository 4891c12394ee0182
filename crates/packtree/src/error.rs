//! What can go wrong with a tree as a whole, and why one call on it is refused.

use disk::DiskError;
use files::Status;

use crate::names::MissingBlock;
use crate::table::Dangling;

/// Why a tree cannot be made, opened, read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TreeError {
    /// A file could not be read or written.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// Another process has it.
    #[error("{place}: another process uses this tree")]
    InUse {
        /// Its directory.
        place: String,
    },
    /// No tree, or its head is damaged.
    #[error("{place}: no file tree is there, or its file `tree` is damaged")]
    NoTree {
        /// The directory.
        place: String,
    },
    /// There is a tree, but for its head.
    #[error(
        "{place}: the head of a file tree, its file `tree`, is missing, but there are contents; put `tree` back from a backup: nothing is made in its place"
    )]
    HeadMissing {
        /// The directory.
        place: String,
    },
    /// There is a tree, and its head is damaged.
    #[error(
        "{place}: the head of a file tree, its file `tree`, is damaged, and there are contents; put `tree` back from a backup: nothing is made in its place"
    )]
    HeadDamaged {
        /// The directory.
        place: String,
    },
    /// Something that is no regular file.
    #[error(
        "{place}: {what} is in the place of the file `{name}` of a file tree, and is neither followed nor overwritten; put the file itself back there, or move what is there out of the directory: `crumb pack check {place}` then says what is missing"
    )]
    InTheWay {
        /// The directory.
        place: String,
        /// The file.
        name: String,
        /// What is there.
        what: &'static str,
    },
    /// The file `lock` is not the one that was locked.
    #[error(
        "{place}: its file `lock` was removed or replaced while the tree was open, so another program may be writing it; nothing more is written: end that program, then run `crumb pack check {place}`"
    )]
    LockLost {
        /// The directory.
        place: String,
    },
    /// Something is where a new tree was to be made.
    #[error("{place}: not empty; a tree is made in an empty directory")]
    NotEmpty {
        /// The directory.
        place: String,
    },
    /// Another version of this program made it.
    #[error("{place}: a tree of format {version}; this program knows formats 1 and 2")]
    Version {
        /// The directory.
        place: String,
        /// Its format.
        version: u32,
    },
    /// Sizes that do not fit.
    #[error("a segment of {segment_bytes} bytes with a journal of {room_bytes}: {wrong}")]
    Shape {
        /// Of a segment.
        segment_bytes: u32,
        /// Of the journal's part of it.
        room_bytes: u32,
        /// What is wrong.
        wrong: &'static str,
    },
    /// An earlier write or sync failed, after which nothing is known of what the disk has.
    #[error("{place}: an earlier write failed, and no more are done until the tree is opened again")]
    Stopped {
        /// The directory.
        place: String,
    },
    /// The thread that flushes could not be started.
    #[error("{place}: cannot start a thread")]
    Thread {
        /// The directory.
        place: String,
        /// Why.
        source: std::io::Error,
    },
    /// No room to begin to write.
    #[error("{place}: the disk is full: there is no room for the journal; free space there")]
    Full {
        /// The directory.
        place: String,
    },
    /// Bytes of a file that do not have their checksum.
    #[error(
        "{place}: the contents of inode {inode} at byte {offset_bytes} fail their checksum; `crumb pack check` lists every damaged file"
    )]
    Damaged {
        /// The directory.
        place: String,
        /// The file.
        inode: u64,
        /// In the file, the beginning of the piece.
        offset_bytes: u64,
    },
    /// Names and inodes that do not have their checksum.
    #[error(
        "{place}/{file}: the block of names at byte {offset_bytes} fails its checksum; `crumb pack check` lists every fault"
    )]
    DamagedNames {
        /// The directory.
        place: String,
        /// The run.
        file: String,
        /// In the run, the beginning of the block.
        offset_bytes: u64,
    },
    /// A name or an inode that a change needs is missing.
    #[error("{place}: inode {inode}: {what}; `crumb pack check` lists every fault")]
    Inconsistent {
        /// The directory.
        place: String,
        /// The inode.
        inode: u64,
        /// What is wrong.
        what: &'static str,
    },
}

impl TreeError {
    /// For the log: the text of a disk's error has no cause.
    pub(crate) fn with_cause(&self) -> String {
        match std::error::Error::source(self) {
            Some(cause) => format!("{self}: {cause}"),
            None => self.to_string(),
        }
    }
}

/// Why one call is not done.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// As every file system says it.
    Status(Status),
    /// No room in the journal, or for this many bytes: grow, and try again.
    Room,
    /// A block of names is not in memory: load it without a lock, and try again.
    Block(MissingBlock),
    /// What is there does not fit.
    Dangling(Dangling),
    Tree(TreeError),
}

impl Refusal {
    /// For a fault that people read.
    pub(crate) fn reason(&self) -> String {
        match self {
            Self::Status(status) => status.to_string(),
            Self::Room => "no room".to_owned(),
            Self::Block(block) => format!("{block:?} was not read"),
            Self::Dangling(Dangling { what, inode }) => format!("{what} ({inode})"),
            Self::Tree(error) => error.to_string(),
        }
    }
}

impl From<TreeError> for Refusal {
    fn from(error: TreeError) -> Self {
        Self::Tree(error)
    }
}

impl From<DiskError> for Refusal {
    fn from(error: DiskError) -> Self {
        Self::Tree(error.into())
    }
}

impl From<Status> for Refusal {
    fn from(status: Status) -> Self {
        Self::Status(status)
    }
}
