//! Feeds: directories of rnews batches in order of arrival, and how feeds are made.
//!
//! ```text
//! FEED/000001.rnews         batches, `.rnews.gz` when packed
//! FEED/000002.rnews ...
//! FEED/feed.json            the Manifest, which describes the feed; written last
//! FEED/broken/              files that an import refused as articles, and reasons.tsv
//! FEED/feed.unfinished      while it is being made
//! ```
//!
//! Always holds: a directory with a `feed.json` is a complete feed. A command that is stopped while it makes a feed removes
//! the feed; one that is killed leaves a feed that is refused, with advice. No file changes once it has its name.
//! Not here: what an article is (`article`), the form of batches (`batch`), storing them (`spool`).
//! Source: Swartz, "The Brave Little Toaster Meets Usenet", section "All the News That's Fit to Test".

mod clone;
pub mod import;
mod make;
mod manifest;
mod seen;
mod stat;
pub mod synthesize;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

pub use clone::{Cloned, clone, clone_article};
pub use make::{FeedShape, FeedWriter};
pub use manifest::{MANIFEST_SCHEMA, Manifest, Origin};
pub use stat::{GroupStat, Sizes, Stat, stat};

use crate::NetnewsError;
use crate::batch::{BatchError, BatchReader};

/// Name of the manifest.
pub const MANIFEST_NAME: &str = "feed.json";
const UNFINISHED_NAME: &str = "feed.unfinished";
const BROKEN_NAME: &str = "broken";

/// Progress of a long operation on feeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedProgress {
    /// Articles written or read so far.
    pub articles: u64,
    /// Their bytes.
    pub bytes: u64,
    /// All there will be, where that is known.
    pub articles_total: Option<u64>,
    /// Files of an import looked at for their dates, before the first article.
    pub files_sorted: u64,
}

/// How a caller follows a long operation and stops it.
pub struct Watch<'a> {
    /// Called every 1,024 articles.
    pub progress: &'a mut dyn FnMut(FeedProgress),
    /// Set it to stop the operation soon.
    pub stop: &'a AtomicBool,
}

impl Watch<'_> {
    /// Reports progress and checks `stop`, only every 1,024 articles because both cost more than an article.
    fn tick(&mut self, now: FeedProgress) -> Result<(), NetnewsError> {
        if now.articles.is_multiple_of(1024) {
            (self.progress)(now);
            if self.stop.load(Ordering::Relaxed) {
                return Err(NetnewsError::Stopped);
            }
        }
        Ok(())
    }
}

/// A complete feed on disk.
#[derive(Clone, Debug)]
pub struct Feed {
    path: PathBuf,
    manifest: Manifest,
}

impl Feed {
    /// Opens a feed and checks that all batches exist with their sizes.
    ///
    /// # Errors
    /// When it is not a feed, is incomplete, or has a later format.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, NetnewsError> {
        let path = path.into();
        let manifest = Manifest::read(&path)?;
        let feed = Self { path, manifest };
        let mut file_bytes = 0;
        for number in 1..=feed.manifest.batches {
            let batch = feed.batch_path(number);
            let meta =
                fs::metadata(&batch).map_err(|source| NetnewsError::io("find the batch", &batch, source))?;
            file_bytes += meta.len();
        }
        if file_bytes != feed.manifest.file_bytes {
            return Err(NetnewsError::FeedChanged {
                path: feed.path,
                file_bytes,
                expected_bytes: feed.manifest.file_bytes,
            });
        }
        Ok(feed)
    }

    /// Its directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What its `feed.json` says.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Articles in it, duplicates and broken ones that were kept included.
    pub fn articles(&self) -> u64 {
        self.manifest.articles
    }

    /// Bytes of its articles, not packed.
    pub fn bytes(&self) -> u64 {
        self.manifest.bytes
    }

    /// How many batches it has.
    pub fn batch_count(&self) -> u64 {
        self.manifest.batches
    }

    /// Where batch `number` is; the first is 1.
    pub fn batch_path(&self, number: u64) -> PathBuf {
        self.path.join(batch_name(number, self.manifest.packed))
    }

    /// Its batches in order.
    pub fn batches(&self) -> impl ExactSizeIterator<Item = Batch> + '_ {
        let count = usize::try_from(self.manifest.batches).unwrap_or(usize::MAX);
        (0..count).map(|at| self.batch(at as u64 + 1))
    }

    /// Batch `number`; the first is 1.
    pub fn batch(&self, number: u64) -> Batch {
        let article_bytes_max = usize::try_from(self.manifest.article_bytes_max).unwrap_or(usize::MAX);
        Batch { number, path: self.batch_path(number), article_bytes_max }
    }
}

/// One batch of a feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// From 1.
    pub number: u64,
    /// Its file.
    pub path: PathBuf,
    /// Larger articles are damage.
    pub article_bytes_max: usize,
}

impl Batch {
    /// Opens it for reading.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn open(&self) -> Result<BatchReader<File>, NetnewsError> {
        Ok(BatchReader::with_limit(self.file()?, self.article_bytes_max))
    }

    /// Opens it for reading, with the buffer of the batch before.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn open_with(&self, before: BatchReader<File>) -> Result<BatchReader<File>, NetnewsError> {
        Ok(before.reuse(self.file()?))
    }

    /// An error of its reader, with its name.
    pub fn error(&self, source: BatchError) -> NetnewsError {
        NetnewsError::Batch { path: self.path.clone(), source }
    }

    fn file(&self) -> Result<File, NetnewsError> {
        File::open(&self.path).map_err(|source| NetnewsError::io("open the batch", &self.path, source))
    }
}

fn batch_name(number: u64, packed: bool) -> String {
    format!("{number:06}.rnews{}", if packed { ".gz" } else { "" })
}
