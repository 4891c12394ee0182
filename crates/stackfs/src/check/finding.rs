//! What a check finds.

use std::fmt;
use std::path::PathBuf;

/// One defect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The kind of defect.
    pub kind: FindingKind,
    /// Where.
    pub path: PathBuf,
    /// What is wrong: a predicate that follows the path in a message.
    pub text: String,
    /// The result of repairing it.
    pub mended: Mended,
}

/// Kinds of findings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum FindingKind {
    /// A conversion that was cut off, or is under way.
    HalfWay,
    /// No set-user-id bit, although its entries lie as in a managed directory.
    LostBit,
    /// In the hidden level, but not where its name belongs.
    WrongPlace,
    /// Directly in a managed directory, or between its levels, and no part of the hidden level.
    Stranger,
    /// A subdirectory of the hidden level with another owner, other permissions or other lists than the directory.
    Permissions,
    /// A mark that names no layout, or another than the entries lie in.
    WrongMark,
    /// A mark on a directory that is not managed.
    StrayMark,
    /// Something that could not be looked at.
    Unreadable,
}

/// The result of a repair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mended {
    /// No repair was requested.
    NotTried,
    /// Repaired.
    Done,
    /// Not repaired, for this reason.
    Not(String),
}

impl Finding {
    pub(super) fn new(kind: FindingKind, path: impl Into<PathBuf>, text: impl Into<String>) -> Self {
        Self { kind, path: path.into(), text: text.into(), mended: Mended::NotTried }
    }
}

impl FindingKind {
    /// In the order in which they are reported.
    pub const ALL: [Self; 8] = [
        Self::HalfWay,
        Self::LostBit,
        Self::WrongPlace,
        Self::Stranger,
        Self::Permissions,
        Self::WrongMark,
        Self::StrayMark,
        Self::Unreadable,
    ];

    /// For tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::HalfWay => "half converted",
            Self::LostBit => "lost bit",
            Self::WrongPlace => "wrong place",
            Self::Stranger => "stranger",
            Self::Permissions => "permissions",
            Self::WrongMark => "wrong mark",
            Self::StrayMark => "stray mark",
            Self::Unreadable => "unreadable",
        }
    }
}

impl Mended {
    /// Whether it is right now.
    pub fn is_done(&self) -> bool {
        *self == Self::Done
    }

    pub(super) fn by(done: rustix::io::Result<()>) -> Self {
        match done {
            Ok(()) => Self::Done,
            Err(rustix::io::Errno::EXIST) => {
                Self::Not("the name is taken where it belongs; both are kept: rename one of them".to_owned())
            }
            Err(rustix::io::Errno::PERM) => Self::Not(
                "not permitted: a subdirectory on the way belongs to another user than the directory, or is \
                 immutable"
                    .to_owned(),
            ),
            Err(error) => Self::Not(std::io::Error::from(error).to_string()),
        }
    }
}

impl fmt::Display for FindingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
