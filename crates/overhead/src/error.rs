//! What can end a run early.

use files::FsError;
use fuse::DetachError;
use rustix::io::Errno;

use crate::BuildError;

/// Of which file a call was; of the directory itself nothing more is said.
fn of_file(name: &str) -> String {
    if name == "." { String::new() } else { format!(" of '{name}'") }
}

/// Why a run ended, or could not begin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OverheadError {
    /// The storage refused something while directories were made or removed.
    #[error(transparent)]
    Storage(#[from] FsError),
    /// A measured system call failed.
    #[error("{place}: {call}{} failed", of_file(name))]
    Call {
        /// The directory.
        place: String,
        /// The system call.
        call: &'static str,
        /// The file in it, or `.`.
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
         it shows (of a tree that is mounted over itself, bind the lower one elsewhere before: mount --bind TREE ELSEWHERE)"
    )]
    SameFileSystem {
        /// The lower directory.
        lower: String,
        /// The other.
        mount: String,
    },
    /// The layer is named first.
    #[error(
        "{lower} is a FUSE mount and {mount} is not: they look exchanged; name the directory below first"
    )]
    Exchanged {
        /// What was named as the lower directory.
        lower: String,
        /// What was named as the mount.
        mount: String,
    },
    /// Another user could rename there.
    #[error(
        "{place} can be changed by other users than root, who could lead the layer's daemon out of it: name directories that only \
         root can write to, or run it as the user"
    )]
    OthersChange {
        /// The directory.
        place: String,
    },
    /// The build.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The floor cannot be unmounted.
    #[error(
        "the floor at {place} stays mounted; unmount it (umount, fusermount3 -u) and remove the directory"
    )]
    FloorStays {
        /// Where.
        place: String,
        /// Why.
        source: DetachError,
    },
    /// The mount would not remove what was made through it.
    #[error(
        "{folder} is left where {mount} shows it: `crumb clean {lower}` removes it, or `crumb clean {mount}`"
    )]
    Left {
        /// The directory that was made.
        folder: String,
        /// The mount.
        mount: String,
        /// The directory below.
        lower: String,
        /// Why.
        source: Box<OverheadError>,
    },
}

impl OverheadError {
    /// Whether the directories were named wrongly, so that another try cannot help.
    pub fn is_bad_usage(&self) -> bool {
        match self {
            Self::SameFileSystem { .. } | Self::Exchanged { .. } => true,
            Self::Build(error) => matches!(error, BuildError::Sources { .. }),
            _ => false,
        }
    }
}
