//! The text: appended to through a buffer, read at an offset, scanned from end to end.

use std::path::{Path, PathBuf};

use files::{Access, FileSystem, FsError, FsOp, OpenFile, Status};

use super::super::whole::{CHUNK_BYTES, create_anew, place_of, write_all};
use super::TEXT_FILE;
use super::index::OFFSET_MAX;

/// Longest line: an id, dates, and files in more groups than an article may name.
const LINE_BYTES_MAX: usize = 128 << 10;
/// Read at first for one line; nearly all are shorter.
const LINE_BYTES: usize = 512;
const WRITES_UNTIL_REOPENED: u32 = 4096;

/// The open text.
pub(crate) struct Text {
    file: Box<dyn OpenFile>,
    /// With the storage, as errors name it.
    path: PathBuf,
    /// Bytes in the file.
    written: u64,
    /// What comes behind them.
    waiting: Vec<u8>,
    /// Of one line read.
    read: Vec<u8>,
    /// A write failed: how much of it was written is unknown until the text is reopened.
    broken: bool,
    writes_since_opened: u32,
}

impl Text {
    pub(crate) fn create(lib: &dyn FileSystem) -> Result<Self, FsError> {
        create_anew(lib, Path::new(TEXT_FILE))?.close()?;
        Self::open(lib)
    }

    pub(crate) fn open(lib: &dyn FileSystem) -> Result<Self, FsError> {
        let mut file = lib.open(Path::new(TEXT_FILE), Access::ReadWrite)?;
        let written = file.seek_end()?;
        let path = place_of(lib, Path::new(TEXT_FILE));
        if written > OFFSET_MAX {
            return Err(too_large(FsOp::Open, path, written));
        }
        Ok(Self {
            file,
            path,
            written,
            waiting: Vec::new(),
            read: Vec::new(),
            broken: false,
            writes_since_opened: 0,
        })
    }

    /// Bytes with what waits: where the next line begins.
    pub(crate) fn end(&self) -> u64 {
        self.written + self.waiting.len() as u64
    }

    /// Adds the line that `write` makes, without its end; where it begins. Fails, and adds nothing, where the index
    /// could not say that.
    pub(crate) fn append(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Result<u64, FsError> {
        let offset = self.end();
        if offset > OFFSET_MAX {
            return Err(too_large(FsOp::Write, self.path.clone(), offset));
        }
        write(&mut self.waiting);
        self.waiting.push(b'\n');
        Ok(offset)
    }

    pub(crate) fn flush(&mut self) -> Result<(), FsError> {
        assert!(!self.broken, "after a failed write the spool must be reopened");
        if self.waiting.is_empty() {
            return Ok(());
        }
        self.broken = true;
        self.file.seek(self.written)?;
        write_all(&mut *self.file, &self.waiting)?;
        // A client that holds writes back sends them before its cursor moves: what comes next may rest on them.
        self.file.seek(self.written + self.waiting.len() as u64)?;
        self.broken = false;
        self.written += self.waiting.len() as u64;
        self.waiting.clear();
        self.writes_since_opened += 1;
        Ok(())
    }

    /// Closes and opens the file when it was written to often: an NFS client keeps each write until it is committed,
    /// which closing does. A local file has nothing to do then.
    pub(crate) fn reopen_if_due(&mut self, lib: &dyn FileSystem) -> Result<(), FsError> {
        if self.writes_since_opened < WRITES_UNTIL_REOPENED {
            return Ok(());
        }
        let next = lib.open(Path::new(TEXT_FILE), Access::ReadWrite)?;
        self.writes_since_opened = 0;
        std::mem::replace(&mut self.file, next).close()
    }

    /// The line that begins at `offset`, without its end; none when there is no whole one.
    pub(crate) fn line_at(&mut self, offset: u64) -> Result<Option<&[u8]>, FsError> {
        if let Some(ahead) = offset.checked_sub(self.written) {
            let rest = usize::try_from(ahead).ok().and_then(|ahead| self.waiting.get(ahead..));
            return Ok(rest.and_then(whole_line));
        }
        self.file.seek(offset)?;
        let mut filled = 0;
        loop {
            if self.read.len() < filled + LINE_BYTES {
                self.read.resize(filled + LINE_BYTES, 0);
            }
            let taken = self.file.read(&mut self.read[filled..])?;
            let found = self.read[filled..filled + taken].iter().position(|byte| *byte == b'\n');
            if let Some(at) = found {
                return Ok(Some(&self.read[..filled + at]));
            }
            filled += taken;
            if taken == 0 || filled > LINE_BYTES_MAX {
                return Ok(None);
            }
        }
    }
}

/// A text beyond what the index can say, by its own growth or by what the storage answers.
fn too_large(op: FsOp, path: PathBuf, bytes: u64) -> FsError {
    let why = format!(
        "by what the storage answers it ends at {bytes} bytes, and its index reaches to {OFFSET_MAX}"
    );
    FsError::Failed {
        op,
        path,
        status: Status::FBIG,
        source: Some(std::io::Error::new(std::io::ErrorKind::FileTooLarge, why)),
    }
}

fn whole_line(text: &[u8]) -> Option<&[u8]> {
    text.iter().position(|byte| *byte == b'\n').map(|end| &text[..end])
}

/// Hands over every whole line with its offset; how many bytes the whole lines take. What is behind them, or longer
/// than a line can be, is a torn tail.
pub(crate) fn scan<E: From<FsError>>(
    lib: &dyn FileSystem,
    path: &Path,
    mut each: impl FnMut(u64, &[u8]) -> Result<(), E>,
) -> Result<u64, E> {
    let mut file = lib.open(path, Access::Read)?;
    let mut chunk = vec![0; CHUNK_BYTES];
    let (mut filled, mut offset) = (0, 0);
    loop {
        let taken = file.read(&mut chunk[filled..])?;
        if taken == 0 {
            return Ok(offset);
        }
        filled += taken;
        let mut from = 0;
        while let Some(line) = whole_line(&chunk[from..filled]) {
            each(offset, line)?;
            offset += line.len() as u64 + 1;
            from += line.len() + 1;
        }
        chunk.copy_within(from..filled, 0);
        filled -= from;
        if filled == chunk.len() {
            return Ok(offset);
        }
    }
}
