//! A workload: the distributions that say what a file set looks like and what is asked of it.
//!
//! ```text
//! creation phase                                    measurement phase
//! [tree]        files, directories, symlinks        [mix]     operations and their shares
//!               per directory; depth                [sizes]   of reads and writes
//! [popularity]  of files, directories, symlinks     [chains]  requests that follow one another's replies
//!                                                   [access]  in which order files are read and written
//! [sizes]       of files                            load level: given when a run starts
//!                        [scale]  files for each request a second that is offered
//! ```
//!
//! A workload is a TOML file (`crates/fstress/workloads/web-server.toml` shows all there is), or a directory
//! with one file for each parameter, as the paper has it. The files are called `files_per_directory`,
//! `directories_per_directory`, `symlinks_per_directory`, `depth_max`, `file_popularity`,
//! `directory_popularity`, `symlink_popularity`, `file_size`, `read_size`, `write_size` (lines of
//! `value:weight`, or one line with any distribution) and `mix` (lines such as `lookup:14`); optional files
//! `chains` (lines such as `lookup-read:20`), `read_access`, `write_access`, `write_stability`, `setattr`, `append_max`, `files_per_op`, `files_min` and
//! `about` hold one value each. `#` starts a comment.
//!
//! Always holds: a `Workload` that was loaded or derived can be run; an error names file, line and
//! what was expected.
//! Source: Anderson, "Fstress", sections 3.1, 3.2, 5, tables 1 and 2.

pub(super) mod chains;
pub mod derive;
pub(super) mod distribution;
pub mod knobs;
pub(super) mod mix;
mod parse;
mod write;

use std::path::Path;
use std::str::FromStr;

use files::OpKind;
use measure::{SETTINGS_BYTES_MAX, read_text};

use self::chains::Chain;
use self::distribution::Distribution;
use self::mix::Mix;
use crate::error::{FstressError, ValueProblem, nearest};

/// All parameters of the paper but the load level, which a run is given.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// Its name, for reports.
    pub name: String,
    /// One line for lists.
    pub about: String,
    /// Shape of the directory tree.
    pub tree: Tree,
    /// Weights given to new objects.
    pub popularity: Popularity,
    /// Bytes of files and requests.
    pub sizes: Sizes,
    /// How files are read and written.
    pub access: Access,
    /// Which operations, how often.
    pub mix: Mix,
    /// Which chains of requests, how often in the unit of the mix; none by default.
    pub chains: Vec<Chain>,
    /// How large a file set the offered load calls for.
    pub scale: Scale,
}

/// Shape of the directory tree; each distribution is drawn once for every new directory.
#[derive(Clone, Debug, PartialEq)]
pub struct Tree {
    /// Files directly in a directory. Default 30.
    pub files_per_directory: Distribution,
    /// Directories directly in a directory. Default 3.
    pub directories_per_directory: Distribution,
    /// Symbolic links directly in a directory. Default 0.
    pub symlinks_per_directory: Distribution,
    /// Steps from the root down to the deepest directory. Default 4.
    pub depth_max: u16,
}

/// Weights drawn for new objects; operations choose their targets by weight. Default 1: all alike.
#[derive(Clone, Debug, PartialEq)]
pub struct Popularity {
    /// Of files.
    pub file: Distribution,
    /// Of directories.
    pub directory: Distribution,
    /// Of symbolic links.
    pub symlink: Distribution,
}

/// Sizes in bytes. Those of reads and writes are what is asked for; a server may allow less for one request.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizes {
    /// Of new files.
    pub file: Distribution,
    /// Of one read request. Default 8 KiB where the mix has no reads.
    pub read: Distribution,
    /// Of one write request. Default 8 KiB where the mix has no writes.
    pub write: Distribution,
}

/// In which order the bytes of a file are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadAccess {
    /// Whole files from begin to end, one request after the other's reply. The default.
    Sequential,
    /// Each read at a random place of a file.
    Random,
}

/// In which order the bytes of a file are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteAccess {
    /// Whole files from begin to end, one request after the other's reply. The default.
    Sequential,
    /// Each write at a random place within a file.
    Random,
    /// Each write at the end of a file, which grows.
    Append,
}

/// What the server must have done when it answers a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteStability {
    /// Nothing yet: a later commit makes it safe. The default.
    Unstable,
    /// Stored the data and what is needed to find it.
    DataSync,
    /// Stored everything.
    FileSync,
}

/// What a setattr changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetattrUse {
    /// Times and mode; nothing is lost. The default.
    Attributes,
    /// Cuts the file to no bytes, as a mail server does after the mailbox was fetched.
    Truncate,
}

/// How files are read and written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Order of reads.
    pub read: ReadAccess,
    /// Order of writes.
    pub write: WriteAccess,
    /// Stability of writes.
    pub write_stability: WriteStability,
    /// Meaning of setattr.
    pub setattr: SetattrUse,
    /// Bytes a file may reach by appending; the next append starts again at its begin, as if the old content
    /// had expired. `None`, the default: files grow without end.
    pub append_bytes_max: Option<u64>,
}

/// How many files the offered load calls for: the file set grows with the load, as users who ask more also
/// keep more.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// Files for each request a second that is offered. Default 10.
    pub files_per_op: FilesPerOp,
    /// Never fewer files than this. Default 100.
    pub files_min: u64,
}

/// A finite number of files, 0 or more, for each request a second.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub struct FilesPerOp(f64);

impl FilesPerOp {
    /// Checks the number.
    pub fn new(files: f64) -> Result<Self, ValueProblem> {
        if files.is_finite() && files >= 0.0 {
            Ok(Self(files))
        } else {
            Err(ValueProblem::new(files, "a number of files of 0 or more"))
        }
    }

    /// The number.
    pub fn files(self) -> f64 {
        self.0
    }
}

impl Scale {
    /// Files to have when `ops_per_sec` are offered.
    pub fn files_at(&self, ops_per_sec: f64) -> u64 {
        ((self.files_per_op.0 * ops_per_sec).ceil() as u64).max(self.files_min)
    }
}

const BUILTIN: [(&str, &str); 8] = [
    ("sfs97", include_str!("../workloads/sfs97.toml")),
    ("web-server", include_str!("../workloads/web-server.toml")),
    ("web-proxy", include_str!("../workloads/web-proxy.toml")),
    ("database", include_str!("../workloads/database.toml")),
    ("p2p", include_str!("../workloads/p2p.toml")),
    ("mail", include_str!("../workloads/mail.toml")),
    ("news", include_str!("../workloads/news.toml")),
    ("null", include_str!("../workloads/null.toml")),
];

impl Workload {
    /// Names of the workloads that come with Crumb.
    pub fn builtin_names() -> Vec<&'static str> {
        BUILTIN.iter().map(|(name, _)| *name).collect()
    }

    /// The file of a built-in workload as it stands in the repository, comments and all.
    pub fn builtin_toml(name: &str) -> Option<&'static str> {
        BUILTIN.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
    }

    /// A workload that comes with Crumb.
    pub fn builtin(name: &str) -> Result<Self, FstressError> {
        let known = Self::builtin_names();
        let Some(text) = Self::builtin_toml(name) else {
            let near = nearest(name, &known);
            return Err(FstressError::UnknownWorkload { name: name.to_owned(), near, known });
        };
        Self::from_toml(text, &format!("built-in workload {name}"), None)
    }

    /// What a user means by a word: a built-in name, or the path of a TOML file or of a directory.
    pub fn find(name_or_path: &str) -> Result<Self, FstressError> {
        let path = Path::new(name_or_path);
        let looks_like_path = name_or_path.contains('/') || name_or_path.ends_with(".toml");
        if Self::builtin_toml(name_or_path).is_none() && (looks_like_path || path.exists()) {
            return Self::load(path);
        }
        Self::builtin(name_or_path)
    }

    /// Reads a TOML file, or a directory with one file for each parameter.
    pub fn load(path: &Path) -> Result<Self, FstressError> {
        if path.is_dir() {
            return parse::directory(path);
        }
        let text = read_text(path, SETTINGS_BYTES_MAX)
            .map_err(|source| FstressError::ReadWorkload { path: path.to_owned(), source })?;
        Self::from_toml(&text, &path.display().to_string(), path.parent())
    }

    /// Reads the TOML form. `file` is how errors call it; `folder` is where `file NAME` distributions are
    /// looked for, `None` if there can be none.
    pub fn from_toml(text: &str, file: &str, folder: Option<&Path>) -> Result<Self, FstressError> {
        parse::toml(text, file, folder)
    }

    /// A TOML file that reads back to the same workload.
    pub fn to_toml(&self) -> String {
        write::toml(self)
    }

    /// Bytes that a set of `files` files is expected to hold.
    pub fn bytes_expected(&self, files: u64) -> f64 {
        files as f64 * self.sizes.file.mean()
    }

    /// Whether it needs files at all: NULL and questions about the file system do not.
    pub fn needs_files(&self) -> bool {
        let without = [OpKind::Null, OpKind::Fsstat, OpKind::Fsinfo, OpKind::Pathconf];
        !self.chains.is_empty() || self.mix.shares().iter().any(|(op, _)| !without.contains(op))
    }

    /// Whether the operation occurs, by itself or in a chain.
    pub fn has(&self, op: OpKind) -> bool {
        self.mix.has(op) || chains::have(&self.chains, op)
    }

    /// Chains with their shares (0 to 1) of what the schedule offers.
    pub fn chain_shares(&self) -> Vec<(String, f64)> {
        let total = self.mix.total_as_written() + self.chains.iter().map(Chain::weight).sum::<f64>();
        self.chains.iter().map(|chain| (chain.name(), chain.weight() / total)).collect()
    }

    /// The shares of all requests that are sent, those of chains among them.
    pub fn requests(&self) -> Mix {
        chains::requests(&self.mix, &self.chains)
    }
}

/// Words of the parameters that are a choice: the word in the file and what it means.
trait Choice: Copy + PartialEq + Sized + 'static {
    const WORDS: &'static [(&'static str, Self)];

    fn word(self) -> &'static str {
        Self::WORDS
            .iter()
            .find(|(_, value)| *value == self)
            .map(|(word, _)| *word)
            .expect("every choice has a word")
    }

    fn parse(text: &str) -> Result<Self, ValueProblem> {
        Self::WORDS.iter().find(|(word, _)| *word == text).map(|(_, value)| *value).ok_or_else(|| {
            let words: Vec<_> = Self::WORDS.iter().map(|(word, _)| *word).collect();
            ValueProblem::new(text, words.join(" or "))
        })
    }
}

macro_rules! choice {
    ($of:ty, $($word:literal => $value:ident),+) => {
        impl Choice for $of {
            const WORDS: &'static [(&'static str, Self)] = &[$(($word, Self::$value)),+];
        }
        impl std::fmt::Display for $of {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.word())
            }
        }
        impl FromStr for $of {
            type Err = ValueProblem;
            fn from_str(text: &str) -> Result<Self, ValueProblem> {
                <Self as Choice>::parse(text)
            }
        }
    };
}

choice!(ReadAccess, "sequential" => Sequential, "random" => Random);
choice!(WriteAccess, "sequential" => Sequential, "random" => Random, "append" => Append);
choice!(WriteStability, "unstable" => Unstable, "data-sync" => DataSync, "file-sync" => FileSync);
choice!(SetattrUse, "attributes" => Attributes, "truncate" => Truncate);
