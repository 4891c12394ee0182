//! Reading directories: a managed one as if its hidden directories were one, restartable at any entry.
//!
//! ```text
//! position given out     0      1     2      3 ...
//! stands for             begin  "."   ".."   behind the entry at (hidden directory 0, its own offset)
//! ```
//!
//! A plain directory's offsets are the lower one's. In a managed one, each position given out stands for a hidden
//! directory and an offset of the lower file system's in it, remembered as long as the directory is open: going back
//! to one is exactly what it is below. 16 bytes an entry.
//!
//! Always holds: `.` and `..` first, then `aaa`, then the others in order. An entry that is there all the while is
//! told exactly once: its hidden directory is there from the beginning (those made later hold only later entries),
//! and within it the lower file system keeps the same promise.
//! Not here: attributes of entries (`tree`), the protocol.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::OwnedFd;

use files::Layout;
use rustix::fs::{FileType, Mode, OFlags, RawDir, SeekFrom};
use rustix::io::Errno;

use crate::tree::Done;

/// An entry as the lower file system tells it.
pub(crate) struct Raw<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) kind: FileType,
    pub(crate) inode: u64,
    /// Where reading goes on behind it.
    pub(crate) offset: u64,
}

/// Entries read at once from one lower directory.
#[derive(Default)]
pub(crate) struct Entries {
    names: Vec<u8>,
    entries: Vec<Packed>,
    at: usize,
}

struct Packed {
    name: Range<u32>,
    kind: FileType,
    inode: u64,
    offset: u64,
}

/// Bytes asked of the lower file system at once: some hundred entries.
const BATCH_BYTES: usize = 32 * 1024;

impl Entries {
    /// Reads the next ones, in place of those here; false at the end.
    pub(crate) fn fill(&mut self, directory: &OwnedFd) -> Done<bool> {
        self.clear();
        let mut buffer = [MaybeUninit::uninit(); BATCH_BYTES];
        let mut raw = RawDir::new(directory, &mut buffer);
        loop {
            let entry = match raw.next() {
                None => break,
                // A directory removed meanwhile reads as empty.
                Some(Err(Errno::NOENT)) => break,
                Some(entry) => entry?,
            };
            let begin = self.names.len() as u32;
            self.names.extend_from_slice(entry.file_name().to_bytes());
            let name = begin..self.names.len() as u32;
            let (kind, inode, offset) = (entry.file_type(), entry.ino(), entry.next_entry_cookie());
            self.entries.push(Packed { name, kind, inode, offset });
            if raw.is_buffer_empty() {
                break;
            }
        }
        Ok(!self.entries.is_empty())
    }

    fn clear(&mut self) {
        self.names.clear();
        self.entries.clear();
        self.at = 0;
    }

    fn is_used_up(&self) -> bool {
        self.at == self.entries.len()
    }

    fn peek(&self) -> Option<Raw<'_>> {
        let packed = self.entries.get(self.at)?;
        let name = &self.names[packed.name.start as usize..packed.name.end as usize];
        Some(Raw { name, kind: packed.kind, inode: packed.inode, offset: packed.offset })
    }

    /// The next of those read.
    pub(crate) fn next(&mut self) -> Option<Raw<'_>> {
        if self.is_used_up() {
            return None;
        }
        self.at += 1;
        let packed = &self.entries[self.at - 1];
        let name = &self.names[packed.name.start as usize..packed.name.end as usize];
        Some(Raw { name, kind: packed.kind, inode: packed.inode, offset: packed.offset })
    }
}

/// One entry to be told.
pub(crate) struct Told<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) kind: FileType,
    /// As the lower directory tells it; of the two dots, as it is shown.
    pub(crate) inode: u64,
    /// Where reading goes on behind it.
    pub(crate) position: u64,
    /// The lower directory that holds it; `None` for the two dots.
    pub(crate) holder: Option<&'a OwnedFd>,
}

/// A directory being read.
pub(crate) struct Listing {
    directory: OwnedFd,
    /// File system that the entries lie on.
    pub(crate) device: u64,
    /// Inode numbers of `.` and `..`, as shown.
    dots: (u64, u64),
    entries: Entries,
    /// Position of the next entry.
    position: u64,
    spread: Option<Spread>,
}

/// What reading a managed directory needs to remember.
struct Spread {
    layout: Layout,
    /// Hidden directories in order, as of the last beginning.
    hidden: Vec<Vec<u8>>,
    /// The one being read, open.
    reading: Option<(usize, OwnedFd)>,
    /// What the positions behind the two dots stand for: a hidden directory and an offset in it.
    marks: Vec<(usize, u64)>,
}

const BEHIND_DOTS: u64 = 2;

impl Listing {
    pub(crate) fn plain(directory: OwnedFd, device: u64) -> Self {
        Self { directory, device, dots: (0, 0), entries: Entries::default(), position: 0, spread: None }
    }

    pub(crate) fn managed(directory: OwnedFd, layout: Layout, device: u64) -> Self {
        let spread = Spread { layout, hidden: Vec::new(), reading: None, marks: Vec::new() };
        Self { spread: Some(spread), ..Self::plain(directory, device) }
    }

    pub(crate) fn with_dots(self, dots: (u64, u64)) -> Self {
        Self { dots, ..self }
    }

    /// Tells entries from `position` on, until `tell` says that it took no more (false).
    /// `open` opens hidden directories.
    pub(crate) fn read(
        &mut self,
        position: u64,
        open: &impl Fn(&OwnedFd, &[u8]) -> Done<OwnedFd>,
        mut tell: impl FnMut(&Told<'_>) -> Done<bool>,
    ) -> Done<()> {
        match &mut self.spread {
            None => self.read_plain(position, &mut tell),
            Some(_) => self.read_managed(position, open, &mut tell),
        }
    }

    /// Does something to all lower directories that hold its entries, and to itself.
    pub(crate) fn each_lower(
        &mut self,
        open: &impl Fn(&OwnedFd, &[u8]) -> Done<OwnedFd>,
        mut work: impl FnMut(&OwnedFd) -> Done<()>,
    ) -> Done<()> {
        if let Some(spread) = &self.spread {
            // By a descriptor of its own: the listing may be anywhere.
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let again = rustix::fs::openat(&self.directory, c".", flags, Mode::empty())?;
            for name in hidden(&again, spread.layout, open)? {
                if let Some(opened) = there(open(&again, &name))? {
                    work(&opened)?;
                }
            }
        }
        work(&self.directory)
    }

    fn read_plain(&mut self, position: u64, tell: &mut impl FnMut(&Told<'_>) -> Done<bool>) -> Done<()> {
        if position != self.position || position == 0 {
            rustix::fs::seek(&self.directory, SeekFrom::Start(position))?;
            self.entries.clear();
            self.position = position;
        }
        loop {
            if self.entries.is_used_up() && !self.entries.fill(&self.directory)? {
                return Ok(());
            }
            while let Some(entry) = self.entries.peek() {
                let (inode, holder) = match entry.name {
                    b"." => (self.dots.0, None),
                    b".." => (self.dots.1, None),
                    _ => (entry.inode, Some(&self.directory)),
                };
                let position = entry.offset;
                let told = Told { name: entry.name, kind: entry.kind, inode, position, holder };
                if !tell(&told)? {
                    return Ok(());
                }
                self.entries.at += 1;
                self.position = position;
            }
        }
    }

    fn read_managed(
        &mut self,
        position: u64,
        open: &impl Fn(&OwnedFd, &[u8]) -> Done<OwnedFd>,
        tell: &mut impl FnMut(&Told<'_>) -> Done<bool>,
    ) -> Done<()> {
        let Some(spread) = &mut self.spread else { return Ok(()) };
        if position == 0 {
            spread.hidden = hidden(&self.directory, spread.layout, open)?;
            spread.marks.clear();
        }
        if position != self.position || position == 0 {
            self.entries.clear();
            spread.reading = None;
            self.position = position;
        }
        for (at, name, inode) in [(0, &b"."[..], self.dots.0), (1, b"..", self.dots.1)] {
            if self.position == at {
                let kind = FileType::Directory;
                if !tell(&Told { name, kind, inode, position: at + 1, holder: None })? {
                    return Ok(());
                }
                self.position = at + 1;
            }
        }
        // Where to go on: behind the entry that the position stands for.
        let (mut at, mut offset) = match self.position - BEHIND_DOTS {
            0 => (0, 0),
            behind => match spread.marks.get(behind as usize - 1) {
                Some(mark) => *mark,
                None => return Ok(()),
            },
        };
        // Reading may have gone on to the next hidden directory without having told of it.
        if let Some((reading, _)) = &spread.reading {
            at = *reading;
        }
        loop {
            if self.entries.is_used_up() {
                if spread.reading.as_ref().is_none_or(|(reading, _)| *reading != at) {
                    let Some(name) = spread.hidden.get(at) else { return Ok(()) };
                    let Some(opened) = there(open(&self.directory, name))? else {
                        (at, offset) = (at + 1, 0);
                        continue;
                    };
                    if offset != 0 {
                        rustix::fs::seek(&opened, SeekFrom::Start(offset))?;
                    }
                    spread.reading = Some((at, opened));
                }
                let Some((_, reading)) = &spread.reading else { return Ok(()) };
                if !self.entries.fill(reading)? {
                    spread.reading = None;
                    (at, offset) = (at + 1, 0);
                    continue;
                }
            }
            let Some((_, holder)) = &spread.reading else { return Ok(()) };
            while let Some(entry) = self.entries.peek() {
                if matches!(entry.name, b"." | b"..") {
                    self.entries.at += 1;
                    continue;
                }
                let mark = (at, entry.offset);
                // Read a second time, it stands where it stood, unless something changed before it.
                let next = (self.position - BEHIND_DOTS) as usize;
                let index = if spread.marks.get(next) == Some(&mark) { next } else { spread.marks.len() };
                let position = index as u64 + BEHIND_DOTS + 1;
                let (name, kind, inode) = (entry.name, entry.kind, entry.inode);
                if !tell(&Told { name, kind, inode, position, holder: Some(holder) })? {
                    return Ok(());
                }
                if index == spread.marks.len() {
                    spread.marks.push(mark);
                }
                self.entries.at += 1;
                self.position = position;
            }
        }
    }
}

/// The hidden directories that are there, in the order in which they are read.
fn hidden(
    directory: &OwnedFd,
    layout: Layout,
    open: &impl Fn(&OwnedFd, &[u8]) -> Done<OwnedFd>,
) -> Done<Vec<Vec<u8>>> {
    let others = Layout::OTHERS.as_bytes();
    let mut first = names(directory)?;
    // Strangers are not shown: their entries could be listed and not found.
    first.retain(|name| is_top(layout, name));
    first.sort_by(|a, b| (a != others, a).cmp(&(b != others, b)));
    if layout.levels() < 2 {
        return Ok(first);
    }
    let mut leaves = Vec::new();
    for name in first {
        if name == others {
            leaves.push(name);
        } else if let Some(opened) = there(open(directory, &name))? {
            let mut below = names(&opened)?;
            below.retain(|name| is_second(name));
            below.sort();
            leaves.extend(below.iter().map(|last| [&name[..], b"/", &last[..]].concat()));
        }
    }
    Ok(leaves)
}

/// Whether this is the name of a hidden directory that lies in the managed one itself.
pub(crate) fn is_top(layout: Layout, name: &[u8]) -> bool {
    match layout {
        Layout::Flat => false,
        Layout::Hash2 => name.len() == 2 && name.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')),
        _ if name == Layout::OTHERS.as_bytes() => true,
        _ => are_digits(name, if layout.levels() == 2 { 2 } else { 3 }),
    }
}

/// Whether this is the name of one that lies in such a one, in the layouts of two levels.
pub(crate) fn is_second(name: &[u8]) -> bool {
    are_digits(name, 2)
}

fn are_digits(name: &[u8], len: usize) -> bool {
    name.len() == len && name.iter().all(u8::is_ascii_digit)
}

/// Names of the directories in a directory. A type not told is taken for one: what is none fails to open.
fn names(directory: &OwnedFd) -> Done<Vec<Vec<u8>>> {
    rustix::fs::seek(directory, SeekFrom::Start(0))?;
    let mut names = Vec::new();
    let mut entries = Entries::default();
    while entries.fill(directory)? {
        while let Some(entry) = entries.next() {
            let other = matches!(entry.kind, FileType::Directory | FileType::Unknown);
            if other && !matches!(entry.name, b"." | b"..") {
                names.push(entry.name.to_vec());
            }
        }
    }
    Ok(names)
}

/// A hidden directory to be read; `None` when it is gone, or something else is in its place.
fn there(opened: Done<OwnedFd>) -> Done<Option<OwnedFd>> {
    match opened {
        Ok(opened) => Ok(Some(opened)),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(errno) => Err(errno),
    }
}
