//! Errors of feeds and spools.

use std::io;
use std::path::{Path, PathBuf};

use files::FsError;
use harness::RanksError;

use crate::batch::BatchError;

/// Why a feed or a spool cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NetnewsError {
    /// A file outside of the storage under test cannot be read or written.
    #[error("{}: cannot {what}", .path.display())]
    Io {
        /// What was tried.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The storage under test refused a call.
    #[error(transparent)]
    Storage(#[from] FsError),
    /// A batch cannot be read, or is damaged.
    #[error("{}: cannot use this batch", .path.display())]
    Batch {
        /// The batch.
        path: PathBuf,
        /// What is wrong with it.
        source: BatchError,
    },
    /// No feed there.
    #[error(
        "{0}: no feed there (no feed.json in it); make one: crumb feed synthesize --articles 100000 -o {0}, or crumb \
         feed import SOURCE -o {0}", .path.display()
    )]
    NoFeed {
        /// Where it should be.
        path: PathBuf,
    },
    /// A feed that was never finished.
    #[error(
        "{0}: an unfinished feed: its maker was killed, or is still at work; when it is not, remove it (rm -r {0}) \
         and make it again", .path.display()
    )]
    FeedUnfinished {
        /// Its directory.
        path: PathBuf,
    },
    /// A feed would overwrite another one.
    #[error("{0}: there is a feed already; name another directory, or remove it first (rm -r {0})", .path.display())]
    FeedExists {
        /// Its directory.
        path: PathBuf,
    },
    /// A feed in a directory that is not there.
    #[error(
        "{}: there is no directory {1} to make the feed in; make it (mkdir -p {1}) or name another one", .path.display(),
        .path.parent().unwrap_or(.path).display()
    )]
    NoDirectoryFor {
        /// The feed.
        path: PathBuf,
    },
    /// A feed would mix with what is there.
    #[error("{}: not empty, and no feed; name a directory that is not there yet", .path.display())]
    NotEmpty {
        /// The directory.
        path: PathBuf,
    },
    /// Batches are not those that the feed was made with.
    #[error(
        "{}: its batches have {file_bytes} bytes and had {expected_bytes} when it was made; make it again", .path.display()
    )]
    FeedChanged {
        /// Its directory.
        path: PathBuf,
        /// Bytes of the batches now.
        file_bytes: u64,
        /// Bytes then.
        expected_bytes: u64,
    },
    /// A `feed.json` that cannot be read.
    #[error("{}: no description of a feed: {what}; make the feed again", .path.display())]
    BadManifest {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// A source without one whole article.
    #[error("{}: not made: there was no whole article for it", .path.display())]
    NoArticles {
        /// The feed.
        path: PathBuf,
    },
    /// A source of mail alone.
    #[error(
        "{}: not made: {letters} articles name no newsgroups; letters are taken with --letters folder, --letters \
         list-id, or --letters GROUP", .path.display()
    )]
    OnlyLetters {
        /// The feed.
        path: PathBuf,
        /// How many there were.
        letters: u64,
    },
    /// A rule of the place map that cannot be understood.
    #[error("{text}: {why}; an example: alt.*=/disk2")]
    BadPlace {
        /// As given.
        text: String,
        /// What is wrong with it.
        why: &'static str,
    },
    /// A file of a spool that is not as it must be.
    #[error("{}: {why}", .path.display())]
    BadFile {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        why: String,
    },
    /// A path that leads to no spool's directory.
    #[error("{path}: a spool's directory is called crumb-netnews-NAME")]
    NotASpool {
        /// As given.
        path: String,
    },
    /// No spool of that name.
    #[error(
        "{target}: no spool named {name} (no crumb-netnews-{name}/where there); `--keep {name}` leaves one"
    )]
    NoSpool {
        /// Where it was looked for.
        target: String,
        /// Its name.
        name: String,
    },
    /// A spool would be written over.
    #[error(
        "{target}: there is a spool named {name}; go on with it (--resume {name}), or remove crumb-netnews-{name}"
    )]
    SpoolExists {
        /// Where it is.
        target: String,
        /// Its name.
        name: String,
    },
    /// Another process works on the spool.
    #[error("{target}: another process works on spool {name}{who}; wait for its end, or name another spool")]
    SpoolBusy {
        /// Where it is.
        target: String,
        /// Its name.
        name: String,
        /// Which process, and what to do where that cannot be known here; empty where the kernel keeps the lock.
        who: String,
    },
    /// A spool to be continued with a different configuration.
    #[error("spool {name} was begun with {was} and is to go on with {asked}: ask for the same")]
    OtherSpool {
        /// Its name.
        name: String,
        /// What differs, as it was.
        was: String,
        /// And as it is asked for.
        asked: String,
    },
    /// A resumed spool of which all passes are done: its old figures would be stored as those of a new run.
    #[error(
        "cannot continue spool {name}: all {passes} passes are done, so there is nothing left to measure; ask for more passes \
         (--passes), or begin another spool (--keep)"
    )]
    NothingLeft {
        /// Its name.
        name: String,
        /// Passes asked for.
        passes: u32,
    },
    /// Spools of ranks that were not stopped together.
    #[error(
        "cannot continue spool {name}: {first}, {last}: they were not stopped in the same run; bring each to the same pass by \
         itself (crumb run netnews --resume, --passes), or start again"
    )]
    SpoolsApart {
        /// Their common name.
        name: String,
        /// Where the one that is furthest behind stands.
        first: String,
        /// Where the one that is furthest ahead stands.
        last: String,
    },
    /// A spool of more ranks than are to resume it.
    #[error(
        "spool {name} is of more than {ranks} ranks (crumb-netnews-{name}-r{ranks} is there); start as many"
    )]
    OfMoreRanks {
        /// Its name, of all ranks.
        name: String,
        /// Ranks of this run.
        ranks: u32,
    },
    /// Something on another rank, or between ranks.
    #[error(transparent)]
    Ranks(#[from] RanksError),
    /// A feed without one batch for each pass.
    #[error(
        "the feed has {batches} batches, too few for {passes} passes{}; ask for fewer or smaller passes, or for a \
         larger feed", .per_pass.map(|batches| format!(" of {batches}")).unwrap_or_default()
    )]
    FeedTooSmall {
        /// Batches there are.
        batches: u64,
        /// Passes asked for.
        passes: u32,
        /// Batches a pass, where a number was asked for.
        per_pass: Option<std::num::NonZeroU64>,
    },
    /// A feed need not be imported.
    #[error(
        "{0}: a feed already; use it as it is, or multiply it: crumb feed clone {0} N -o OUT", .path.display()
    )]
    SourceIsFeed {
        /// The feed.
        path: PathBuf,
    },
    /// A feed would be imported into itself.
    #[error("{}: within the source; name a directory outside of it", .path.display())]
    WithinSource {
        /// The feed to be made.
        path: PathBuf,
    },
    /// Stopped by the caller.
    #[error("stopped before the end; nothing is left half-made")]
    Stopped,
}

impl NetnewsError {
    /// `what` failed on the file at `path`.
    pub(crate) fn io(what: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { what, path: path.to_owned(), source }
    }
}
