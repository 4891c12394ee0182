//! Makes a feed: batches one after another, the manifest last. If the work is stopped early, removes everything.

use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use super::manifest::{MANIFEST_SCHEMA, Manifest, Origin};
use super::seen::Seen;
use super::{BROKEN_NAME, Feed, MANIFEST_NAME, UNFINISHED_NAME, batch_name};
use crate::NetnewsError;
use crate::batch::{ARTICLE_BYTES_MAX, BatchWriter};

/// How a feed is cut and packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedShape {
    /// Articles a batch. Default 109: the paper's 300,150 articles in 2,759 batches.
    pub batch_articles: NonZeroU64,
    /// Whether batches are packed by gzip. Default no: reading them is not what is measured.
    pub packed: bool,
}

impl Default for FeedShape {
    fn default() -> Self {
        Self { batch_articles: NonZeroU64::new(109).expect("109 is not 0"), packed: false }
    }
}

/// A feed in the making; dropped before [`FeedWriter::finish`], it leaves nothing.
pub struct FeedWriter {
    path: PathBuf,
    shape: FeedShape,
    made_directory: bool,
    finished: bool,
    batch: Option<BatchWriter<BufWriter<File>>>,
    articles: u64,
    bytes: u64,
    article_bytes_max: u64,
    batches: u64,
    file_bytes: u64,
    seen: Seen,
}

impl FeedWriter {
    /// Begins a feed in a missing or empty directory.
    ///
    /// # Errors
    /// When the directory is not empty or cannot be created.
    pub fn create(path: impl Into<PathBuf>, shape: FeedShape) -> Result<Self, NetnewsError> {
        let path = path.into();
        let failed = |source| NetnewsError::io("make the feed's directory", &path, source);
        let made_directory = !path.exists();
        match fs::create_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(NetnewsError::NoDirectoryFor { path });
            }
            other => other.map_err(failed)?,
        }
        if path.join(UNFINISHED_NAME).exists() {
            return Err(NetnewsError::FeedUnfinished { path });
        }
        if path.join(MANIFEST_NAME).exists() {
            return Err(NetnewsError::FeedExists { path });
        }
        if fs::read_dir(&path).map_err(failed)?.next().is_some() {
            return Err(NetnewsError::NotEmpty { path });
        }
        // If two commands start at the same moment, only one gets the name.
        File::create_new(path.join(UNFINISHED_NAME)).map_err(failed)?;
        Ok(Self {
            path,
            shape,
            made_directory,
            finished: false,
            batch: None,
            articles: 0,
            bytes: 0,
            article_bytes_max: ARTICLE_BYTES_MAX as u64,
            batches: 0,
            file_bytes: 0,
            seen: Seen::default(),
        })
    }

    /// Where it is made.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Articles so far.
    pub fn articles(&self) -> u64 {
        self.articles
    }

    /// Bytes of articles so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Articles so far whose message id came before.
    pub fn duplicates(&self) -> u64 {
        self.seen.repeated()
    }

    /// Adds an article with this message id; returns whether the id came before.
    ///
    /// # Errors
    /// When it cannot be written; the feed is then unusable.
    pub fn write(&mut self, message_id: &[u8], article: &[u8]) -> Result<bool, NetnewsError> {
        if self.batch.is_none() {
            let part = self.part_path();
            let file =
                File::create(&part).map_err(|source| NetnewsError::io("make a batch", &part, source))?;
            let file = BufWriter::with_capacity(256 << 10, file);
            self.batch =
                Some(if self.shape.packed { BatchWriter::gzip(file) } else { BatchWriter::new(file) });
        }
        let batch = self.batch.as_mut().expect("made above");
        let written = batch.write(article);
        let full = batch.articles() >= self.shape.batch_articles.get();
        written.map_err(|source| NetnewsError::io("write a batch", &self.part_path(), source))?;
        self.articles += 1;
        self.bytes += article.len() as u64;
        self.article_bytes_max = self.article_bytes_max.max(article.len() as u64);
        if full {
            self.end_batch()?;
        }
        Ok(self.seen.again(message_id))
    }

    /// Ends the batch under way, so that the next article begins another one.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn end_batch(&mut self) -> Result<(), NetnewsError> {
        let Some(batch) = self.batch.take() else { return Ok(()) };
        let part = self.part_path();
        let failed = |source| NetnewsError::io("write a batch", &part, source);
        let file =
            batch.finish().map_err(failed)?.into_inner().map_err(|error| failed(error.into_error()))?;
        self.file_bytes += file.metadata().map_err(failed)?.len();
        self.batches += 1;
        fs::rename(&part, self.path.join(batch_name(self.batches, self.shape.packed))).map_err(failed)
    }

    /// Creates the directory for invalid articles.
    pub(super) fn broken_directory(&self) -> Result<PathBuf, NetnewsError> {
        let path = self.path.join(BROKEN_NAME);
        match fs::create_dir(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(NetnewsError::io("make the directory for broken articles", &path, error))
            }
            _ => Ok(path),
        }
    }

    /// Writes the manifest, which completes the feed.
    ///
    /// # Errors
    /// When it has no article or cannot be written.
    pub fn finish(mut self, origin: Origin, clone_number_max: u64) -> Result<Feed, NetnewsError> {
        self.end_batch()?;
        if self.articles == 0 {
            return Err(NetnewsError::NoArticles { path: self.path.clone() });
        }
        let manifest = Manifest {
            schema: MANIFEST_SCHEMA,
            articles: self.articles,
            bytes: self.bytes,
            batches: self.batches,
            file_bytes: self.file_bytes,
            batch_articles: self.shape.batch_articles.get(),
            packed: self.shape.packed,
            article_bytes_max: self.article_bytes_max,
            duplicates: self.seen.repeated(),
            clone_number_max,
            origin,
        };
        manifest.write(&self.path)?;
        self.finished = true;
        let unfinished = self.path.join(UNFINISHED_NAME);
        fs::remove_file(&unfinished)
            .map_err(|source| NetnewsError::io("remove the mark", &unfinished, source))?;
        Feed::open(self.path.clone())
    }

    fn part_path(&self) -> PathBuf {
        self.path.join(format!(".{}.part", batch_name(self.batches + 1, self.shape.packed)))
    }
}

impl Drop for FeedWriter {
    /// Removes everything this writer created, and nothing else.
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        drop(self.batch.take());
        let _ = fs::remove_file(self.part_path());
        for number in 1..=self.batches {
            let _ = fs::remove_file(self.path.join(batch_name(number, self.shape.packed)));
        }
        let _ = fs::remove_file(self.path.join(format!(".{MANIFEST_NAME}.part")));
        let _ = fs::remove_dir_all(self.path.join(BROKEN_NAME));
        let _ = fs::remove_file(self.path.join(UNFINISHED_NAME));
        if self.made_directory {
            let _ = fs::remove_dir(&self.path);
        }
    }
}
