//! Reading directories: a managed one as if its hidden directories were one, restartable at any entry at any time.
//!
//! ```text
//! position given out     0      1     2      a hidden directory's number + 1 (16 bits), the name's hash (48 bits)
//! stands for             begin  "."   ".."   behind the entry of that hash in that hidden directory
//! ```
//!
//! A plain directory's positions are the lower one's. In a managed one they follow from names alone: hidden directories
//! are read in the order of their numbers, and each one's entries in the order of their names' hashes. So a position
//! means the same after the directory was closed and opened again, and after a remount, which NFS servers rely on.
//! This requires reading a hidden directory whole; it is small (some hundred names). Of one with many names a window is held.
//! While a directory is converted its entries move: then its listing is recorded when it begins (`recording`).
//!
//! Always holds: `.` and `..` first, then `aaa`, then the others in order. An entry that exists during the whole listing is
//! returned exactly once: changes to other names do not move it. One exception: if two names in one hidden
//! directory have the same hash (once in 30 million directories of 4,000 names) and a reader stops just between
//! them, it gets the first one twice.
//! Not here: attributes of entries (`tree`), the protocol.

mod leaf;

use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use files::Layout;
use rustix::fs::{FileType, RawDir, SeekFrom};
use rustix::io::Errno;

use self::leaf::{HASH_BITS, HASH_MASK, Leaf};
use super::Done;
use super::recording::{Cursor, Recording};

/// An entry as the lower file system returns it.
pub(crate) struct Raw<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) kind: FileType,
    pub(crate) inode: u64,
    /// The position of the next entry.
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

    /// Adds a copy of an entry; its index.
    fn push(&mut self, entry: &Raw<'_>) -> usize {
        let begin = self.names.len() as u32;
        self.names.extend_from_slice(entry.name);
        let name = begin..self.names.len() as u32;
        self.entries.push(Packed { name, kind: entry.kind, inode: entry.inode, offset: entry.offset });
        self.entries.len() - 1
    }

    fn name(&self, at: usize) -> &[u8] {
        self.raw(at).map_or(&[], |raw| raw.name)
    }

    fn raw(&self, at: usize) -> Option<Raw<'_>> {
        let packed = self.entries.get(at)?;
        let name = &self.names[packed.name.start as usize..packed.name.end as usize];
        Some(Raw { name, kind: packed.kind, inode: packed.inode, offset: packed.offset })
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
        self.raw(self.at)
    }

    /// The next of those read.
    pub(crate) fn next(&mut self) -> Option<Raw<'_>> {
        if self.is_used_up() {
            return None;
        }
        self.at += 1;
        self.raw(self.at - 1)
    }
}

/// One entry of a listing.
pub(crate) struct ListedEntry<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) kind: FileType,
    /// As in the lower directory; for the two dots, as shown by the mount.
    pub(crate) inode: u64,
    /// The position of the next entry.
    pub(crate) position: u64,
    /// The lower directory that holds it; `None` for the two dots.
    pub(crate) holder: Option<Holder<'a>>,
}

/// Where a listed entry is below.
#[derive(Clone, Copy)]
pub(crate) enum Holder<'a> {
    Open(&'a OwnedFd),
    /// To be looked up: it may have moved since it was listed.
    ByName,
}

/// A directory being read.
pub(crate) struct Listing {
    directory: OwnedFd,
    /// Inode numbers of `.` and `..`, as shown.
    dots: (u64, u64),
    entries: Entries,
    /// Position of the next entry.
    position: u64,
    source: Source,
}

/// Where entries come from.
enum Source {
    Plain,
    Managed(Spread),
    /// The directory was being converted when its listing began, or has been since.
    Recorded(Cursor),
}

/// What reading a managed directory needs to remember.
struct Spread {
    layout: Layout,
    /// Hidden directories by rising numbers, from the one on where reading began.
    hidden: Vec<(u64, Vec<u8>)>,
    /// That number.
    from: u64,
    /// Which of them is next.
    next: usize,
    /// The one being read.
    reading: Option<Leaf>,
}

const BEHIND_DOTS: u64 = 2;
impl Listing {
    pub(crate) fn plain(directory: OwnedFd) -> Self {
        let (entries, source) = (Entries::default(), Source::Plain);
        Self { directory, dots: (0, 0), entries, position: 0, source }
    }

    pub(crate) fn managed(directory: OwnedFd, layout: Layout) -> Self {
        Self { source: Source::Managed(Spread::new(layout)), ..Self::plain(directory) }
    }

    pub(crate) fn with_dots(self, dots: (u64, u64)) -> Self {
        Self { dots, ..self }
    }

    /// Passes entries from `position` on to `emit`, until it returns false (no room for the entry).
    /// `open` opens hidden directories.
    pub(crate) fn read(
        &mut self,
        position: u64,
        open: &impl Fn(&OwnedFd, &[u8]) -> Done<OwnedFd>,
        mut emit: impl FnMut(&ListedEntry<'_>) -> Done<bool>,
    ) -> Done<()> {
        match &mut self.source {
            Source::Plain => self.read_plain(position, &mut emit),
            Source::Managed(_) => self.read_managed(position, open, &mut emit),
            Source::Recorded(cursor) => cursor.read(position, self.dots, &mut emit),
        }
    }

    /// Begins again, as a plain directory or a managed one.
    pub(crate) fn begin(&mut self, layout: Option<Layout>) {
        self.entries.clear();
        self.position = 0;
        self.source = layout.map_or(Source::Plain, |layout| Source::Managed(Spread::new(layout)));
    }

    /// Continues from a recording, wherever it is.
    pub(crate) fn continue_from(&mut self, recording: &Arc<Recording>) {
        self.entries.clear();
        self.source = Source::Recorded(Cursor::new(Arc::clone(recording)));
    }

    /// Whether anything has been read of the directory itself, so that positions of it are known.
    pub(crate) fn is_under_way(&self) -> bool {
        self.position != 0 && !self.is_recorded()
    }

    pub(crate) fn is_recorded(&self) -> bool {
        matches!(self.source, Source::Recorded(_))
    }

    /// The directory that is read.
    pub(crate) fn itself(&self) -> &OwnedFd {
        &self.directory
    }

    fn read_plain(
        &mut self,
        position: u64,
        emit: &mut impl FnMut(&ListedEntry<'_>) -> Done<bool>,
    ) -> Done<()> {
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
                    _ => (entry.inode, Some(Holder::Open(&self.directory))),
                };
                let position = entry.offset;
                let listed = ListedEntry { name: entry.name, kind: entry.kind, inode, position, holder };
                if !emit(&listed)? {
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
        emit: &mut impl FnMut(&ListedEntry<'_>) -> Done<bool>,
    ) -> Done<()> {
        let Source::Managed(spread) = &mut self.source else { return Ok(()) };
        if position != self.position || position == 0 || position == BEHIND_DOTS {
            self.position = position;
            spread.seek(&self.directory, position, open)?;
        }
        for (at, name, inode) in [(0, &b"."[..], self.dots.0), (1, b"..", self.dots.1)] {
            if self.position == at {
                let kind = FileType::Directory;
                if !emit(&ListedEntry { name, kind, inode, position: at + 1, holder: None })? {
                    return Ok(());
                }
                self.position = at + 1;
            }
        }
        loop {
            if spread.reading.is_none() && !spread.go_on(&self.directory, open)? {
                return Ok(());
            }
            let Some(leaf) = &mut spread.reading else { continue };
            while let Some((entry, position)) = leaf.peek() {
                let holder = Some(Holder::Open(&leaf.directory));
                let (name, kind, inode) = (entry.name, entry.kind, entry.inode);
                if !emit(&ListedEntry { name, kind, inode, position, holder })? {
                    return Ok(());
                }
                leaf.at += 1;
                self.position = position;
            }
            if !leaf.read_on()? {
                spread.reading = None;
            }
        }
    }
}

impl Spread {
    fn new(layout: Layout) -> Self {
        Self { layout, hidden: Vec::new(), from: u64::MAX, next: 0, reading: None }
    }

    /// Goes to a position other than the next one. The kernel asks for some entries twice, when a program's buffer was full,
    /// so the hidden directories listed at the beginning are kept: a directory that was flat with millions of names keeps
    /// its blocks, and to list it takes a tenth of a second.
    fn seek(
        &mut self,
        managed: &OwnedFd,
        position: u64,
        open: &impl Fn(&OwnedFd, &[u8]) -> Done<OwnedFd>,
    ) -> Done<()> {
        // Behind the dots again: as from the beginning.
        let Some(number) = (position >> HASH_BITS).checked_sub(1) else {
            self.hidden = hidden(managed, self.layout, 0, open)?;
            (self.from, self.next, self.reading) = (0, 0, None);
            return Ok(());
        };
        let behind = position & HASH_MASK;
        if let Some(leaf) = self.reading.as_mut().filter(|leaf| leaf.is_of(number))
            && leaf.covers(behind)
        {
            leaf.go_behind(behind);
            return Ok(());
        }
        if number < self.from {
            self.hidden = hidden(managed, self.layout, number, open)?;
            self.from = number;
        }
        self.next = self.hidden.partition_point(|(there, _)| *there < number);
        self.reading = None;
        self.go_to(managed, number, behind, open)
    }

    /// Reads the next hidden directory; false when there is none.
    fn go_on(&mut self, managed: &OwnedFd, open: &impl Fn(&OwnedFd, &[u8]) -> Done<OwnedFd>) -> Done<bool> {
        while let Some((number, name)) = self.hidden.get(self.next) {
            self.next += 1;
            if let Some(directory) = there(open(managed, name))? {
                self.reading = Some(Leaf::read(directory, *number, None)?);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Goes behind the entry of this hash in this hidden directory, if it is still there.
    fn go_to(
        &mut self,
        managed: &OwnedFd,
        number: u64,
        behind: u64,
        open: &impl Fn(&OwnedFd, &[u8]) -> Done<OwnedFd>,
    ) -> Done<()> {
        let Some((_, name)) = self.hidden.get(self.next).filter(|(there, _)| *there == number) else {
            return Ok(());
        };
        if let Some(directory) = there(open(managed, name))? {
            self.reading = Some(Leaf::read(directory, number, Some(behind))?);
        }
        self.next += 1;
        Ok(())
    }
}

/// The hidden directories that are there, with their numbers, in the order in which they are read; from a number on.
pub(crate) fn hidden(
    directory: &OwnedFd,
    layout: Layout,
    from: u64,
    open: &impl Fn(&OwnedFd, &[u8]) -> Done<OwnedFd>,
) -> Done<Vec<(u64, Vec<u8>)>> {
    let mut leaves = Vec::new();
    for name in names(directory)? {
        // Strangers are not shown: their entries could be listed and not found.
        if !is_top(layout, &name) {
            continue;
        }
        if layout.levels() < 2 || name == Layout::OTHERS.as_bytes() {
            leaves.push((number_of(layout, &name), name));
            continue;
        }
        let first = number_of(layout, &name) * 100 - 99;
        if first + 99 < from {
            continue;
        }
        let Some(opened) = there(open(directory, &name))? else { continue };
        for below in names(&opened)?.iter().filter(|below| is_second(below)) {
            let number = first + number_of(layout, below) - 1;
            leaves.push((number, [&name[..], b"/", &below[..]].concat()));
        }
    }
    leaves.retain(|(number, _)| *number >= from);
    leaves.sort();
    Ok(leaves)
}

/// The number of a name of the hidden level among those beside it: `aaa` is 0, the others begin at 1.
fn number_of(layout: Layout, name: &[u8]) -> u64 {
    let radix = if layout == Layout::Hash2 { 16 } else { 10 };
    let number = std::str::from_utf8(name).ok().and_then(|name| u64::from_str_radix(name, radix).ok());
    if name == Layout::OTHERS.as_bytes() { 0 } else { number.map_or(0, |number| number + 1) }
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

/// Names of the directories in a directory. An entry of unknown type is included: if it is not one, opening it fails.
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
pub(crate) fn there(opened: Done<OwnedFd>) -> Done<Option<OwnedFd>> {
    match opened {
        Ok(opened) => Ok(Some(opened)),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{Mode, OFlags};

    use super::*;

    #[test]
    fn hidden_directories_are_numbered_in_their_order_whatever_others_there_are() {
        for (layout, first, last) in
            [(Layout::D345, "000", 1000), (Layout::D34D56, "00", 10_000), (Layout::Hash2, "00", 256)]
        {
            let place = tempfile::tempdir().unwrap();
            let numbers = |from| {
                let directory = std::fs::File::open(place.path()).unwrap().into();
                let open = |at: &OwnedFd, path: &[u8]| {
                    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
                    rustix::fs::openat(at, path, flags, Mode::empty())
                };
                hidden(&directory, layout, from, &open).unwrap()
            };
            let mut made = Vec::new();
            for leaf in layout.leaves().skip(1).step_by(5).chain(layout.leaves().last()) {
                std::fs::create_dir_all(place.path().join(&leaf)).unwrap();
                made.push(leaf.into_bytes());
            }
            let before = numbers(0);
            assert_eq!(before.iter().map(|(_, name)| name.clone()).collect::<Vec<_>>(), made, "{layout}");
            assert_eq!(before.last().map(|(number, _)| *number), Some(last), "{layout}");
            let lowest = if layout.levels() == 2 { format!("{first}/00") } else { first.to_owned() };
            std::fs::create_dir_all(place.path().join(lowest)).unwrap();
            assert_eq!(numbers(2), before, "{layout}");
            assert_eq!(numbers(0).len(), before.len() + 1, "{layout}");
        }
    }
}
