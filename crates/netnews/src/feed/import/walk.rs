//! The files below a directory in the order of their paths, each once however many names it has.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::NetnewsError;

/// Memory: the directories on the way down, and 16 bytes for each file with several names.
pub(super) struct Walk {
    /// What is still to do, the next one last.
    ahead: Vec<PathBuf>,
    linked: HashSet<(u64, u64)>,
    hard_links: u64,
    skipped: u64,
    root: PathBuf,
    /// Directories whose names begin with a dot are folders of a Maildir when they have a `cur`.
    maildirs: bool,
}

impl Walk {
    /// From `source`, a file or a directory, even behind a symbolic link; with `maildirs` folders of a Maildir too whose
    /// names begin with a dot.
    pub(super) fn new(source: &Path, maildirs: bool) -> Result<Self, NetnewsError> {
        let source =
            source.canonicalize().map_err(|error| NetnewsError::io("find the source", source, error))?;
        let (root, ahead) = (source.clone(), vec![source]);
        Ok(Self { ahead, linked: HashSet::new(), hard_links: 0, skipped: 0, root, maildirs })
    }

    /// Where it began, by its whole path.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn next_file(&mut self) -> Result<Option<PathBuf>, NetnewsError> {
        while let Some(path) = self.ahead.pop() {
            let meta = match fs::symlink_metadata(&path) {
                Ok(meta) => meta,
                // A live spool expires articles while it is read.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    self.skipped += 1;
                    continue;
                }
                Err(error) => return Err(NetnewsError::io("look at the source", &path, error)),
            };
            if meta.is_dir() {
                self.enter(&path)?;
            } else if !meta.is_file() {
                self.skipped += 1;
            } else if meta.nlink() > 1 && !self.linked.insert((meta.dev(), meta.ino())) {
                self.hard_links += 1;
            } else {
                return Ok(Some(path));
            }
        }
        Ok(None)
    }

    pub(super) fn hard_links(&self) -> u64 {
        self.hard_links
    }

    pub(super) fn skipped(&self) -> u64 {
        self.skipped
    }

    fn enter(&mut self, directory: &Path) -> Result<(), NetnewsError> {
        let failed = |error| NetnewsError::io("list the source", directory, error);
        let mut entries = Vec::new();
        for entry in fs::read_dir(directory).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name();
            // .overview, .keep and their like are servers' own files.
            let is_hidden = name.as_encoded_bytes().starts_with(b".");
            let is_folder = || self.maildirs && directory.join(&name).join("cur").is_dir();
            if is_hidden && !is_folder() {
                self.skipped += 1;
            } else {
                entries.push(name);
            }
        }
        entries.sort_by(|a, b| by_number(b.as_encoded_bytes(), a.as_encoded_bytes()));
        self.ahead.extend(entries.into_iter().map(|name| directory.join(name)));
        Ok(())
    }
}

/// Numbers first, by value; then names.
fn by_number(a: &[u8], b: &[u8]) -> Ordering {
    let is_number = |name: &[u8]| name.iter().all(u8::is_ascii_digit);
    match (is_number(a), is_number(b)) {
        (true, true) => {
            let value = |name: &[u8]| name.iter().skip_while(|digit| **digit == b'0').count();
            value(a).cmp(&value(b)).then_with(|| a.cmp(b))
        }
        (true, false) => Ordering::Less,
        (false, true) => Ordering::Greater,
        (false, false) => a.cmp(b),
    }
}
