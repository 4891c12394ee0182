//! The outgoing feed's batch file: one line an article, its path in the spool, of the first group only.
//!
//! ```text
//! outgoing.7:   comp/os/linux/42        one file a pass; the batcher of the next pass reads it
//! ```
//!
//! Lines wait in memory until a batch of articles has been stored.
//! Source: newsfeeds(5) of INN, an `f` feed: `downstream:all,!junk:f:`.

use std::path::{Path, PathBuf};

use files::{FileSystem, FsError, OpenFile};

use crate::spool::decimal;
use crate::spool::whole::{create_anew, unlink_if_there, write_all};

/// Where the paths of a pass stand in the library directory.
pub(crate) fn file_of(pass: u32) -> PathBuf {
    PathBuf::from(format!("outgoing.{pass}"))
}

/// The open file.
pub(crate) struct Outgoing {
    file: Box<dyn OpenFile>,
    waiting: Vec<u8>,
}

impl Outgoing {
    /// An empty one for a pass.
    pub(crate) fn create(lib: &dyn FileSystem, pass: u32) -> Result<Self, FsError> {
        Ok(Self { file: create_anew(lib, &file_of(pass))?, waiting: Vec::new() })
    }

    /// Continues the file of a pass.
    pub(crate) fn open(lib: &dyn FileSystem, pass: u32) -> Result<Self, FsError> {
        Ok(Self { file: lib.open(&file_of(pass), files::Access::Append)?, waiting: Vec::new() })
    }

    pub(crate) fn push(&mut self, directory: &[u8], number: u64) {
        self.waiting.extend_from_slice(directory);
        self.waiting.push(b'/');
        decimal::push(&mut self.waiting, number);
        self.waiting.push(b'\n');
    }

    pub(crate) fn flush(&mut self) -> Result<(), FsError> {
        if !self.waiting.is_empty() {
            write_all(&mut *self.file, &self.waiting)?;
            self.waiting.clear();
        }
        Ok(())
    }
}

/// Rewrites the file of a pass from group names and numbers.
pub(crate) struct Remake {
    file: Box<dyn OpenFile>,
    new: String,
    waiting: Vec<u8>,
}

impl Remake {
    pub(crate) fn begin(lib: &dyn FileSystem, pass: u32) -> Result<Self, FsError> {
        let new = format!("{}.new", file_of(pass).display());
        Ok(Self { file: create_anew(lib, Path::new(&new))?, new, waiting: Vec::new() })
    }

    pub(crate) fn push(&mut self, group: &[u8], number: u64) -> Result<(), FsError> {
        self.waiting.extend(group.iter().map(|&byte| if byte == b'.' { b'/' } else { byte }));
        self.waiting.push(b'/');
        decimal::push(&mut self.waiting, number);
        self.waiting.push(b'\n');
        if self.waiting.len() > crate::spool::whole::CHUNK_BYTES {
            write_all(&mut *self.file, &self.waiting)?;
            self.waiting.clear();
        }
        Ok(())
    }

    pub(crate) fn finish(mut self, lib: &dyn FileSystem, pass: u32) -> Result<(), FsError> {
        write_all(&mut *self.file, &self.waiting)?;
        self.file.close()?;
        lib.rename(Path::new(&self.new), &file_of(pass))
    }
}

/// Removes the file of a pass, if it is there.
pub(crate) fn remove(lib: &dyn FileSystem, pass: u32) -> Result<(), FsError> {
    unlink_if_there(lib, &file_of(pass)).map(drop)
}
