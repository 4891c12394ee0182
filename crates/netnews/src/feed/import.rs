//! Makes a feed from existing articles: trees of files, spools, mailboxes, rnews batches, gzipped or not.
//!
//! ```text
//! SOURCE -> files -> `#! `     rnews batch --+
//!                    `From `   mbox ---------+--> CRLF to LF --> Article::parse --> FeedWriter
//!                    else      one article --+                        `-> broken/000001, reasons.tsv
//! ```
//!
//! Letters become articles with a group line in front (see `letters`).
//!
//! Always holds: an invalid article does not end the import and is not lost: it is counted by reason and kept in
//! `broken/`. A file with several hard links in the source, such as a spool's cross-post, is imported once. An article
//! with a message id seen before is kept, because duplicates are part of a feed.
//! Not here: undoing what a server added (`Path:`, `Xref:`), or the dots of articles stored as they come over NNTP.
//! Source: RFC 4155 for mboxes, and the `>From ` quoting known as mboxrd.

mod aside;
mod letters;
mod mbox;
mod walk;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;

use super::make::{FeedShape, FeedWriter};
use super::{Feed, FeedProgress, MANIFEST_NAME, Origin, Watch};
use crate::NetnewsError;
use crate::article::{Article, Broken};
use crate::batch::{ARTICLE_BYTES_MAX, BatchError, BatchReader};
use aside::Aside;
pub use letters::LetterGroups;
use mbox::{Letter, MboxReader};
use walk::Walk;

/// The order in which files of a tree become a feed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// By the `Date:` of the first article in a file; those without one come last. The default: a feed mixes its
    /// groups, and a tree read group by group would not. Takes a path and a date of memory for each file.
    #[default]
    Date,
    /// By path, numbers by value. Memory for one directory at a time.
    Path,
}

/// How to import.
#[derive(Clone, Debug)]
pub struct ImportConfig {
    /// A file or a directory.
    pub source: PathBuf,
    /// How the feed is cut.
    pub shape: FeedShape,
    /// Of files.
    pub order: Order,
    /// Larger articles are set aside. Default 16 MiB.
    pub article_bytes_max: usize,
    /// Take letters, which name no newsgroups, into these. Default none: they are set aside.
    pub letters: Option<LetterGroups>,
}

impl ImportConfig {
    /// From `source`, with the defaults for everything else.
    pub fn new(source: impl Into<PathBuf>) -> Self {
        Self {
            source: source.into(),
            shape: FeedShape::default(),
            order: Order::default(),
            article_bytes_max: ARTICLE_BYTES_MAX,
            letters: None,
        }
    }
}

/// What an import did.
#[derive(Clone, Debug)]
pub struct Imported {
    /// The feed.
    pub feed: Feed,
    /// Files read.
    pub files: u64,
    /// Further names of files that were read by another name: hard links.
    pub hard_links: u64,
    /// Names not followed: symbolic links, devices, names that begin with a dot.
    pub skipped: u64,
    /// Articles whose CRLF were made LF.
    pub crlf: u64,
    /// Letters that were given a group.
    pub letters: u64,
    /// Set aside, by reason.
    pub broken: BTreeMap<Broken, u64>,
}

/// Makes a feed at `out`.
///
/// # Errors
/// When the source cannot be read, the feed cannot be written, no article is whole, or the work is ended; then
/// nothing is left of it.
pub fn import(config: &ImportConfig, out: &Path, watch: &mut Watch<'_>) -> Result<Imported, NetnewsError> {
    if config.source.join(MANIFEST_NAME).exists() {
        return Err(NetnewsError::SourceIsFeed { path: config.source.clone() });
    }
    if let (Ok(source), Ok(out)) = (config.source.canonicalize(), std::path::absolute(out))
        && out.starts_with(&source)
    {
        return Err(NetnewsError::WithinSource { path: out });
    }
    // Check the source first: a mistyped name must not create a directory.
    let mut walk = Walk::new(&config.source, config.letters.is_some())?;
    let mut importer = Importer {
        writer: FeedWriter::create(out, config.shape)?,
        aside: Aside::default(),
        crlf: 0,
        letters: 0,
        groups: config.letters.as_ref().map(|groups| (groups, walk.root().to_owned())),
        letter: Vec::new(),
        unix: Vec::new(),
        article_bytes_max: config.article_bytes_max,
        files: 0,
        reader: None,
    };
    match config.order {
        Order::Path => {
            while let Some(path) = walk.next_file()? {
                importer.file(&path, watch)?;
            }
        }
        Order::Date => {
            let mut files = Vec::new();
            while let Some(path) = walk.next_file()? {
                let at = importer.first_date(&path).unwrap_or(i64::MAX);
                files.push((at, path));
                let files_sorted = files.len() as u64;
                watch.tick(FeedProgress { articles: 0, bytes: 0, articles_total: None, files_sorted })?;
            }
            // Stable: files of the same second stay in the order of their paths.
            files.sort_by_key(|(at, _)| *at);
            for (_, path) in files {
                importer.file(&path, watch)?;
            }
        }
    }
    let Importer { writer, aside, crlf, letters, files, .. } = importer;
    let broken = aside.finish()?;
    let origin = Origin::Import {
        source: config.source.display().to_string(),
        broken: broken.iter().map(|(why, count)| (why.name().to_owned(), *count)).collect(),
    };
    let without_groups = broken.get(&Broken::NoNewsgroups).copied().unwrap_or(0);
    let feed = writer.finish(origin, 0).map_err(|error| match error {
        NetnewsError::NoArticles { path } if without_groups > 0 => {
            NetnewsError::OnlyLetters { path, letters: without_groups }
        }
        error => error,
    })?;
    let (hard_links, skipped) = (walk.hard_links(), walk.skipped());
    Ok(Imported { feed, files, hard_links, skipped, crlf, letters, broken })
}

struct Importer<'a> {
    writer: FeedWriter,
    aside: Aside,
    crlf: u64,
    letters: u64,
    /// Which groups letters belong to, and what their folders are below.
    groups: Option<(&'a LetterGroups, PathBuf)>,
    /// The letter at hand with its group.
    letter: Vec<u8>,
    /// The article at hand without its CR.
    unix: Vec<u8>,
    article_bytes_max: usize,
    files: u64,
    /// Kept for its buffer.
    reader: Option<BatchReader<Box<dyn Read>>>,
}

impl Importer<'_> {
    fn file(&mut self, path: &Path, watch: &mut Watch<'_>) -> Result<(), NetnewsError> {
        self.files += 1;
        let (start, input) = opened(path)?;
        if start.starts_with(b"From ") {
            self.mbox(path, input, watch)
        } else {
            self.batch(path, input, watch)
        }
    }

    fn batch(
        &mut self,
        path: &Path,
        input: Box<dyn Read>,
        watch: &mut Watch<'_>,
    ) -> Result<(), NetnewsError> {
        let mut reader = match self.reader.take() {
            Some(reader) => reader.reuse(input),
            None => BatchReader::with_limit(input, self.article_bytes_max),
        };
        let mut any = false;
        loop {
            match reader.next() {
                Ok(Some(article)) => self.article(path, article, false)?,
                Ok(None) => break,
                Err(BatchError::Damaged { offset_bytes, why, .. }) => {
                    self.aside.take(&self.writer, why, path, offset_bytes, reader.damaged())?;
                }
                // A truncated or differently compressed file: skip the rest of it and continue.
                Err(BatchError::Io { offset_bytes, source }) if source.raw_os_error().is_none() => {
                    self.aside.take(&self.writer, Broken::Truncated, path, offset_bytes, &[])?;
                    any = true;
                    break;
                }
                Err(source) => return Err(NetnewsError::Batch { path: path.to_owned(), source }),
            }
            any = true;
            self.tick(watch)?;
        }
        if !any {
            self.aside.take(&self.writer, Broken::Empty, path, 0, &[])?;
        }
        self.reader = Some(reader);
        Ok(())
    }

    fn mbox(&mut self, path: &Path, input: Box<dyn Read>, watch: &mut Watch<'_>) -> Result<(), NetnewsError> {
        let mut letters = MboxReader::new(input, self.article_bytes_max);
        loop {
            let letter = letters.next_letter();
            match letter.map_err(|source| NetnewsError::io("read the mailbox", path, source))? {
                Some(Letter::Whole(bytes)) => self.article(path, bytes, true)?,
                Some(Letter::TooLarge { offset_bytes, kept }) => {
                    self.aside.take(&self.writer, Broken::TooLarge, path, offset_bytes, kept)?;
                }
                None => return Ok(()),
            }
            self.tick(watch)?;
        }
    }

    fn article(&mut self, path: &Path, bytes: &[u8], in_mailbox: bool) -> Result<(), NetnewsError> {
        let first_line = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(0);
        let is_crlf = first_line > 0 && bytes[first_line - 1] == b'\r';
        if is_crlf {
            self.unix.clear();
            let mut from = 0;
            while let Some(at) = bytes[from..].windows(2).position(|two| two == b"\r\n") {
                self.unix.extend_from_slice(&bytes[from..from + at]);
                from += at + 1;
            }
            self.unix.extend_from_slice(&bytes[from..]);
        }
        let article = if is_crlf { &self.unix[..] } else { bytes };
        match Article::parse(article) {
            Ok(parsed) => {
                self.crlf += u64::from(is_crlf);
                self.writer.write(parsed.message_id(), article).map(|_| ())
            }
            Err(Broken::NoNewsgroups) if self.groups.is_some() => {
                let group = self
                    .groups
                    .as_ref()
                    .and_then(|(groups, source)| groups.of(article, source, path, in_mailbox));
                self.letter.clear();
                if let Some(group) = group {
                    self.letter.extend_from_slice(format!("Newsgroups: {group}\n").as_bytes());
                    self.letter.extend_from_slice(article);
                }
                match Article::parse(&self.letter) {
                    Ok(parsed) => {
                        self.crlf += u64::from(is_crlf);
                        self.letters += 1;
                        self.writer.write(parsed.message_id(), &self.letter).map(|_| ())
                    }
                    Err(_) => self.aside.take(&self.writer, Broken::NoNewsgroups, path, 0, bytes),
                }
            }
            Err(why) => self.aside.take(&self.writer, why, path, 0, bytes),
        }
    }

    /// The date of the file's first article; `None` if the file cannot be read, which is reported when it is imported.
    fn first_date(&self, path: &Path) -> Option<i64> {
        let (_, input) = opened(path).ok()?;
        let mut head = Vec::new();
        // A header beyond 16 KiB has its Date before that.
        input.take(16 << 10).read_to_end(&mut head).ok()?;
        let from = if head.starts_with(b"#! rnews") || head.starts_with(b"From ") {
            head.iter().position(|byte| *byte == b'\n')? + 1
        } else {
            0
        };
        crate::article::header_date(&head[from..])
    }

    fn tick(&self, watch: &mut Watch<'_>) -> Result<(), NetnewsError> {
        let (articles, bytes) = (self.writer.articles(), self.writer.bytes());
        watch.tick(FeedProgress { articles, bytes, articles_total: None, files_sorted: 0 })
    }
}

/// The file, unpacked when it is gzipped, and its first bytes, which come again.
fn opened(path: &Path) -> Result<(Vec<u8>, Box<dyn Read>), NetnewsError> {
    let failed = |source| NetnewsError::io("read the article", path, source);
    let mut file = File::open(path).map_err(failed)?;
    let start = first_bytes(&mut file).map_err(failed)?;
    if !start.starts_with(&[0x1f, 0x8b]) {
        return Ok((start.clone(), Box::new(Cursor::new(start).chain(file))));
    }
    let mut unpacked = MultiGzDecoder::new(Cursor::new(start).chain(file));
    // What cannot be unpacked at all is found again when it is read.
    let start = first_bytes(&mut unpacked).unwrap_or_default();
    Ok((start.clone(), Box::new(Cursor::new(start).chain(unpacked))))
}

fn first_bytes(input: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut start = Vec::with_capacity(16);
    input.by_ref().take(16).read_to_end(&mut start)?;
    Ok(start)
}
