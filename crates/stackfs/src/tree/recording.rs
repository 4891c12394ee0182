//! A listing written down: names and positions in the order in which they are returned, for directories whose entries move
//! while they are listed.
//!
//! ```text
//! position u64 | inode u64 | type u8 | length u16 | name      one after the other, little endian
//! ```
//!
//! Up to a MiB is in memory, more is in a file without a name on the lower file system (or, where that has no such files
//! or is full, in a memfd). A reader holds 64 KiB of it, and the places of what it returned last: the kernel asks for some
//! entries again when a program's buffer had no room for them.
//!
//! Always holds: what is recorded never changes. Not here: who is recorded and when (`opening`).

use std::collections::VecDeque;
use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use rustix::fs::{FileType, MemfdFlags, Mode, OFlags};
use rustix::io::Errno;

use super::Done;
use super::listing::{Holder, ListedEntry};

/// Kept in memory up to this size.
const MEMORY_BYTES_MAX: usize = 1 << 20;
/// What a reader holds of it.
const PART_BYTES: usize = 64 << 10;
/// Entries returned last whose places are remembered: more than fit in the largest reply.
const RECENT_MAX: usize = 8192;
/// Before the name: position, inode, type, length.
const HEAD_BYTES: usize = 19;

/// A listing written down.
pub(crate) struct Recording {
    bytes: Bytes,
    len: u64,
}

enum Bytes {
    Memory(Vec<u8>),
    File(File),
}

/// Writes one.
pub(crate) struct Recorder<'a> {
    /// A directory on whose file system there may be room.
    near: &'a OwnedFd,
    buffer: Vec<u8>,
    file: Option<File>,
    /// Bytes in the file.
    written: u64,
}

/// Where somebody is in a recording.
pub(crate) struct Cursor {
    recording: Arc<Recording>,
    /// Offset of the next record.
    at: u64,
    /// The position it is at: behind the record before.
    position: u64,
    part: Vec<u8>,
    part_at: u64,
    recent: VecDeque<(u64, u64)>,
}

/// One record, read.
struct Record {
    position: u64,
    inode: u64,
    kind: FileType,
    name: std::ops::Range<usize>,
}

impl<'a> Recorder<'a> {
    pub(crate) fn new(near: &'a OwnedFd) -> Self {
        Self { near, buffer: Vec::new(), file: None, written: 0 }
    }

    pub(crate) fn add(&mut self, name: &[u8], kind: FileType, inode: u64, position: u64) -> Done<()> {
        let len = u16::try_from(name.len()).map_err(|_| Errno::NAMETOOLONG)?;
        self.buffer.extend_from_slice(&position.to_le_bytes());
        self.buffer.extend_from_slice(&inode.to_le_bytes());
        self.buffer.push((kind.as_raw_mode() >> 12) as u8);
        self.buffer.extend_from_slice(&len.to_le_bytes());
        self.buffer.extend_from_slice(name);
        if self.buffer.len() >= MEMORY_BYTES_MAX { self.flush() } else { Ok(()) }
    }

    pub(crate) fn finish(mut self) -> Done<Recording> {
        if self.file.is_some() {
            self.flush()?;
        }
        let len = self.written + self.buffer.len() as u64;
        let bytes = match self.file {
            Some(file) => Bytes::File(file),
            None => Bytes::Memory(self.buffer),
        };
        Ok(Recording { bytes, len })
    }

    fn flush(&mut self) -> Done<()> {
        let mut file = match self.file.take() {
            Some(file) => file,
            None => unnamed(self.near)?,
        };
        if file.write_all(&self.buffer).is_err() {
            // The file system is full, or this user's share of it.
            let mut memory = in_memory()?;
            let moved = file.rewind().and_then(|()| {
                std::io::copy(&mut (&mut file).take(self.written), &mut memory)?;
                memory.write_all(&self.buffer)
            });
            moved.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
            file = memory;
        }
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        self.file = Some(file);
        Ok(())
    }
}

fn unnamed(near: &OwnedFd) -> Done<File> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    match rustix::fs::openat(near, c".", flags, Mode::RUSR | Mode::WUSR) {
        Ok(file) => Ok(file.into()),
        Err(_) => in_memory(),
    }
}

fn in_memory() -> Done<File> {
    Ok(rustix::fs::memfd_create(c"crumb-listing", MemfdFlags::CLOEXEC)?.into())
}

impl Recording {
    fn read_at(&self, at: u64, into: &mut Vec<u8>) -> Done<()> {
        let wanted = PART_BYTES.min((self.len - at) as usize);
        match &self.bytes {
            Bytes::Memory(bytes) => {
                into.clear();
                into.extend_from_slice(&bytes[at as usize..at as usize + wanted]);
                Ok(())
            }
            Bytes::File(file) => {
                into.resize(wanted, 0);
                file.read_exact_at(into, at)
                    .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
            }
        }
    }
}

impl Cursor {
    /// At its beginning.
    pub(crate) fn new(recording: Arc<Recording>) -> Self {
        let (part, recent) = (Vec::new(), VecDeque::new());
        Self { recording, at: 0, position: 0, part, part_at: 0, recent }
    }

    /// Passes entries from `position` on to `emit`, until it returns false. Behind a position that was never given out
    /// there is nothing.
    pub(crate) fn read(
        &mut self,
        position: u64,
        dots: (u64, u64),
        emit: &mut impl FnMut(&ListedEntry<'_>) -> Done<bool>,
    ) -> Done<()> {
        if position != self.position && !self.seek(position)? {
            return Ok(());
        }
        while let Some(record) = self.peek()? {
            let name = &self.part[record.name.clone()];
            let (inode, holder) = match name {
                b"." => (dots.0, None),
                b".." => (dots.1, None),
                _ => (record.inode, Some(Holder::ByName)),
            };
            let (kind, position) = (record.kind, record.position);
            if !emit(&ListedEntry { name, kind, inode, position, holder })? {
                return Ok(());
            }
            self.step(&record);
        }
        Ok(())
    }

    fn step(&mut self, record: &Record) {
        self.at += (HEAD_BYTES + record.name.len()) as u64;
        self.position = record.position;
        if self.recent.len() == RECENT_MAX {
            self.recent.pop_front();
        }
        self.recent.push_back((self.position, self.at));
    }

    /// Goes behind the record of this position; false when no record has it.
    fn seek(&mut self, position: u64) -> Done<bool> {
        if let Some(known) = self.recent.iter().rev().find(|(known, _)| *known == position) {
            (self.position, self.at) = *known;
            return Ok(true);
        }
        (self.at, self.position) = (0, 0);
        self.recent.clear();
        while self.position != position {
            let Some(record) = self.peek()? else { return Ok(false) };
            self.step(&record);
        }
        Ok(true)
    }

    fn peek(&mut self) -> Done<Option<Record>> {
        if self.at >= self.recording.len {
            return Ok(None);
        }
        if let Some(record) = self.in_part() {
            return Ok(Some(record));
        }
        self.recording.read_at(self.at, &mut self.part)?;
        self.part_at = self.at;
        self.in_part().map(Some).ok_or(Errno::IO)
    }

    /// The next record, if all of it is in the part held.
    fn in_part(&self) -> Option<Record> {
        let from = usize::try_from(self.at.checked_sub(self.part_at)?).ok()?;
        let head: &[u8; HEAD_BYTES] = self.part.get(from..from + HEAD_BYTES)?.try_into().ok()?;
        let number = |from: usize| u64::from_le_bytes(std::array::from_fn(|byte| head[from + byte]));
        let len = usize::from(u16::from_le_bytes([head[17], head[18]]));
        let name = from + HEAD_BYTES..from + HEAD_BYTES + len;
        self.part.get(name.clone())?;
        let kind = FileType::from_raw_mode(u32::from(head[16]) << 12);
        Some(Record { position: number(0), inode: number(8), kind, name })
    }
}

/// A directory of which nothing is known but that it can be written to.
pub(crate) fn record<'a>(
    near: &'a OwnedFd,
    fill: impl FnOnce(&mut Recorder<'a>) -> Done<()>,
) -> Done<Arc<Recording>> {
    let mut recorder = Recorder::new(near);
    fill(&mut recorder)?;
    Ok(Arc::new(recorder.finish()?))
}

impl std::fmt::Debug for Recording {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match &self.bytes {
            Bytes::Memory(_) => "memory",
            Bytes::File(file) => {
                return write!(f, "{} bytes in file {:?}", self.len, file.as_fd());
            }
        };
        write!(f, "{} bytes in {kind}", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recorded(names: u64) -> Arc<Recording> {
        let place: OwnedFd = File::open(std::env::temp_dir()).unwrap().into();
        record(&place, |recorder| {
            recorder.add(b".", FileType::Directory, 5, 1)?;
            (0..names).try_for_each(|number| {
                let name = format!("an-entry-of-a-listing-{number}");
                recorder.add(name.as_bytes(), FileType::RegularFile, number, 10 + number * 3)
            })
        })
        .unwrap()
    }

    /// Up to `count` names with the positions behind them.
    fn read(cursor: &mut Cursor, position: u64, count: usize) -> Vec<(String, u64)> {
        let mut all = Vec::new();
        let mut emit = |entry: &ListedEntry<'_>| {
            if all.len() == count {
                return Ok(false);
            }
            all.push((String::from_utf8(entry.name.to_vec()).unwrap(), entry.position));
            Ok(true)
        };
        cursor.read(position, (7, 8), &mut emit).unwrap();
        all
    }

    #[test]
    fn what_was_recorded_is_read_in_order_from_any_position_given_out() {
        // In memory, and in a file: at this many names it is 5 MB.
        for names in [100, 100_000] {
            let recording = recorded(names);
            assert_eq!(matches!(recording.bytes, Bytes::File(_)), names == 100_000);
            let mut cursor = Cursor::new(Arc::clone(&recording));
            let all = read(&mut cursor, 0, usize::MAX);
            assert_eq!(all.len() as u64, names + 1);
            assert_eq!(all[0], (".".to_owned(), 1));
            assert_eq!(all[100].0, "an-entry-of-a-listing-99");
            for at in [0, 1, 50, 99, names as usize - 1] {
                let (_, position) = all[at];
                let rest = read(&mut cursor, position, 5);
                assert_eq!(rest, all[at + 1..(at + 6).min(all.len())], "behind {position}");
                // Again from where it was: as when a program had no room.
                assert_eq!(read(&mut cursor, position, 2), rest[..rest.len().min(2)]);
            }
            assert!(read(&mut cursor, 11, 5).is_empty(), "a position that was not given out");
            assert_eq!(read(&mut cursor, 0, 3), all[..3], "back at the beginning");
        }
    }
}
