//! What can go wrong in this crate, said so that the reader knows where to look and what to write instead.

use std::fmt;
use std::path::PathBuf;

use files::Status;
use harness::ranks::RanksError;

/// A place in a text somebody wrote: a workload file, or a built-in one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Path as it was given, or the name of a built-in workload.
    pub file: String,
    /// Line, counted from 1; `None` where the whole file is meant.
    pub line: Option<usize>,
}

impl Place {
    /// The whole of `file`.
    pub fn whole(file: impl Into<String>) -> Self {
        Self { file: file.into(), line: None }
    }

    /// One line of `file`, counted from 1.
    pub fn line(file: impl Into<String>, line: usize) -> Self {
        Self { file: file.into(), line: Some(line) }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}, line {line}", self.file),
            None => write!(f, "{}", self.file),
        }
    }
}

/// A value that cannot be used: what was found and what should stand there.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("found `{found}`, expected {expected}")]
pub struct ValueProblem {
    /// The text as it was written.
    pub found: String,
    /// What would have been right, in words.
    pub expected: String,
}

impl ValueProblem {
    pub(crate) fn new(found: impl fmt::Display, expected: impl fmt::Display) -> Self {
        Self { found: found.to_string(), expected: expected.to_string() }
    }
}

/// Every error of this crate.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FstressError {
    /// A workload file, or a file it names, cannot be read.
    #[error("cannot read workload file {}", path.display())]
    ReadWorkload {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Neither a built-in workload nor a path.
    #[error("no workload is called `{name}`{}; there are {}, or give the path of a TOML file or of a directory of value:weight files", did_you_mean(near), known.join(", "))]
    UnknownWorkload {
        /// What was asked for.
        name: String,
        /// The built-in name it resembles most.
        near: Option<&'static str>,
        /// All built-in names.
        known: Vec<&'static str>,
    },
    /// The text is not TOML at all.
    #[error("{place}: not valid TOML: {problem}")]
    Syntax {
        /// Where the parser stopped.
        place: Place,
        /// What the parser said.
        problem: String,
    },
    /// A section, key, file or operation that does not exist.
    #[error("{place}: unknown {what} `{found}`{}; expected one of {}", did_you_mean(near), known.join(", "))]
    Unknown {
        /// Where it stands.
        place: Place,
        /// Section, key, parameter file or operation.
        what: &'static str,
        /// What was written.
        found: String,
        /// The known word it resembles most.
        near: Option<&'static str>,
        /// All that could stand there.
        known: Vec<&'static str>,
    },
    /// A value that means nothing.
    #[error("{place}: `{key}`: {problem}")]
    BadValue {
        /// Where it stands.
        place: Place,
        /// Which parameter.
        key: String,
        /// What was found and expected.
        problem: ValueProblem,
    },
    /// A parameter without which the mix cannot be run.
    #[error("{place}: `{key}` is missing: {why}")]
    Missing {
        /// The workload file.
        place: Place,
        /// Which parameter.
        key: &'static str,
        /// Why it is needed.
        why: String,
    },
    /// The storage refused something that a run cannot do without.
    #[error("cannot {tried} {name}: {why}{}", advised(advice))]
    Refused {
        /// What was tried.
        tried: &'static str,
        /// On what.
        name: String,
        /// What the storage said.
        why: String,
        /// What to do about it; may be empty.
        advice: &'static str,
    },
    /// The file set would not fit.
    #[error("no room for the file set: {files} more files of about {} MB in all are wanted, and {} MB and {files_available} files are free; ask for less with --files, --files-per-op or --file-size, or free space", bytes / 1_000_000, bytes_available / 1_000_000)]
    NoRoom {
        /// Files wanted.
        files: u64,
        /// Their bytes, as expected.
        bytes: u64,
        /// Bytes free.
        bytes_available: u64,
        /// Inodes free.
        files_available: u64,
    },
    /// The file set to reuse was made for something else.
    #[error(
        "file set {name} was made for something else:\n{was}wanted was:\n{is}give the same workload and seed, or another name"
    )]
    OtherSet {
        /// Name of its directory.
        name: String,
        /// Its label.
        was: String,
        /// The label wanted.
        is: String,
    },
    /// Another run has the file set.
    #[error(
        "file set {name} is in use by another run ({}); wait for that, or if it is gone remove {name}/crumb-lock", if .by.is_empty() { "of an unknown host" } else { .by.as_str() }
    )]
    SetInUse {
        /// Name of its directory.
        name: String,
        /// Host and process, as the lock has them.
        by: String,
    },
    /// What operations made in a file set that is kept could not all be removed from it.
    #[error(
        "the file set {name} is kept with {names} names too many, which the next run with it tries to remove"
    )]
    NotTidied {
        /// Name of its directory.
        name: String,
        /// Names that should have gone.
        names: u64,
        /// Why the first of them has not.
        source: Box<FstressError>,
    },
    /// The file set, or a part of it, could not be removed.
    #[error("the file set is not removed: {names} of its names are left in {name}; remove them by hand")]
    LeftBehind {
        /// Name of its directory.
        name: String,
        /// Names of files and directories that are left, as far as is known.
        names: u64,
        /// Why the first of them is.
        source: Box<FstressError>,
    },
    /// The file of raw samples cannot be written.
    #[error("cannot write the raw samples to {}; give --raw a directory with room for some 35 bytes a request, or leave it out", path.display())]
    Raw {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// More raw samples than are kept in memory.
    #[error(
        "--raw: {samples} requests in one load point of one rank are more than the {samples_max} kept; measure for a shorter time, with more ranks, or leave --raw out"
    )]
    TooManySamples {
        /// At least this many.
        samples: u64,
        /// The limit.
        samples_max: u64,
    },
    /// The user asked to stop.
    #[error("interrupted")]
    Interrupted,
    /// The storage is gone.
    #[error(transparent)]
    Transport(#[from] files::TransportError),
    /// The ranks of a run do not go on together.
    #[error(transparent)]
    Ranks(RanksError),
    /// A derived workload was asked for that cannot exist.
    #[error("cannot derive from workload {workload}: {problem}")]
    Derive {
        /// Name of the workload begun with.
        workload: String,
        /// What was found and expected.
        problem: ValueProblem,
    },
}

impl From<RanksError> for FstressError {
    fn from(error: RanksError) -> Self {
        match error {
            RanksError::Interrupted => Self::Interrupted,
            error => Self::Ranks(error),
        }
    }
}

impl FstressError {
    /// The same where the storage is a local file system: no server said what it says.
    pub(crate) fn in_local_words(self) -> Self {
        match self {
            Self::Refused { tried, name, why, advice } => {
                match Status::from_name(&why).and_then(Status::local_words) {
                    Some((why, advice)) => Self::Refused { tried, name, why: why.to_owned(), advice },
                    None => Self::Refused { tried, name, why, advice },
                }
            }
            Self::LeftBehind { name, names, source } => {
                Self::LeftBehind { name, names, source: Box::new(source.in_local_words()) }
            }
            other => other,
        }
    }
}

fn advised(advice: &str) -> String {
    if advice.is_empty() { String::new() } else { format!(": {advice}") }
}

fn did_you_mean(near: &Option<&'static str>) -> String {
    near.map(|word| format!(", did you mean `{word}`?")).unwrap_or_default()
}

/// The word of `known` nearest to `word` by edit distance, when near enough to be a slip of the pen.
pub(crate) fn nearest(word: &str, known: &[&'static str]) -> Option<&'static str> {
    let distance_max = (word.chars().count() / 3).max(1);
    known
        .iter()
        .map(|candidate| (edit_distance(word, candidate), *candidate))
        .filter(|(distance, _)| *distance <= distance_max)
        .min()
        .map(|(_, candidate)| candidate)
}

fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let substituted = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = substituted.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_pen_is_recognised_and_another_word_is_not() {
        let known = ["files_per_directory", "depth_max", "mix"];
        assert_eq!(nearest("file_per_directory", &known), Some("files_per_directory"));
        assert_eq!(nearest("max_depth", &known), None);
        assert_eq!(nearest("miks", &known), None);
        assert_eq!(nearest("mx", &known), Some("mix"));
        assert_eq!(edit_distance("kitten", "sitting"), 3);
    }
}
