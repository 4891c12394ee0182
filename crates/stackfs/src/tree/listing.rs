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
//! This requires reading a hidden directory whole; it is small (some hundred names).
//!
//! Always holds: `.` and `..` first, then `aaa`, then the others in order. An entry that exists during the whole listing is
//! returned exactly once: changes to other names do not move it. One exception: if two names in one hidden
//! directory have the same hash (once in 30 million directories of 4,000 names) and a reader stops just between
//! them, it gets the first one twice.
//! Not here: attributes of entries (`tree`), the protocol.

use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::fd::OwnedFd;

use files::Layout;
use rustix::fs::{FileType, Mode, OFlags, RawDir, SeekFrom};
use rustix::io::Errno;

use super::Done;

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
        self.fill_more(directory)
    }

    /// Reads the next ones, behind those here; false at the end.
    fn fill_more(&mut self, directory: &OwnedFd) -> Done<bool> {
        let before = self.entries.len();
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
        Ok(self.entries.len() > before)
    }

    fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.entries.iter().map(|packed| &self.names[packed.name.start as usize..packed.name.end as usize])
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
    pub(crate) holder: Option<&'a OwnedFd>,
}

/// A directory being read.
pub(crate) struct Listing {
    directory: OwnedFd,
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
    /// Hidden directories by rising numbers, from the one on where reading began.
    hidden: Vec<(u64, Vec<u8>)>,
    /// Which of them is next.
    next: usize,
    /// The one being read.
    reading: Option<Leaf>,
}

/// A hidden directory, read whole.
struct Leaf {
    directory: OwnedFd,
    names: Entries,
    /// Indices of `names` with the hashes of their names, in order of the hashes.
    order: Vec<(u64, usize)>,
    /// The next of `order`.
    at: usize,
    /// The hidden directory's part of a position.
    base: u64,
}

const BEHIND_DOTS: u64 = 2;
/// Bits of a position that tell the entry within its hidden directory.
const HASH_BITS: u32 = 48;
const HASH_MASK: u64 = (1 << HASH_BITS) - 1;

impl Listing {
    pub(crate) fn plain(directory: OwnedFd) -> Self {
        Self { directory, dots: (0, 0), entries: Entries::default(), position: 0, spread: None }
    }

    pub(crate) fn managed(directory: OwnedFd, layout: Layout) -> Self {
        let spread = Spread { layout, hidden: Vec::new(), next: 0, reading: None };
        Self { spread: Some(spread), ..Self::plain(directory) }
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
        match &mut self.spread {
            None => self.read_plain(position, &mut emit),
            Some(_) => self.read_managed(position, open, &mut emit),
        }
    }

    /// The directory that is read.
    pub(crate) fn itself(&self) -> &OwnedFd {
        &self.directory
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
            for (_, name) in hidden(&again, spread.layout, 0, open)? {
                if let Some(opened) = there(open(&again, &name))? {
                    work(&opened)?;
                }
            }
        }
        work(&self.directory)
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
                    _ => (entry.inode, Some(&self.directory)),
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
        let Some(spread) = &mut self.spread else { return Ok(()) };
        if position != self.position || position == 0 || position == BEHIND_DOTS {
            self.position = position;
            // Behind the dots again: as from the beginning, and from elsewhere as it is now.
            let (number, behind) = match position >> HASH_BITS {
                0 => (0, None),
                number => (number - 1, Some(position & HASH_MASK)),
            };
            spread.hidden = hidden(&self.directory, spread.layout, number, open)?;
            (spread.next, spread.reading) = (0, None);
            if let Some(behind) = behind {
                spread.go_to(&self.directory, number, behind, open)?;
            }
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
                let holder = Some(&leaf.directory);
                let (name, kind, inode) = (entry.name, entry.kind, entry.inode);
                if !emit(&ListedEntry { name, kind, inode, position, holder })? {
                    return Ok(());
                }
                leaf.at += 1;
                self.position = position;
            }
            spread.reading = None;
        }
    }
}

impl Spread {
    /// Reads the next hidden directory; false when there is none.
    fn go_on(&mut self, managed: &OwnedFd, open: &impl Fn(&OwnedFd, &[u8]) -> Done<OwnedFd>) -> Done<bool> {
        while let Some((number, name)) = self.hidden.get(self.next) {
            self.next += 1;
            if let Some(directory) = there(open(managed, name))? {
                self.reading = Some(Leaf::read(directory, *number)?);
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
        if self.hidden.first().is_some_and(|(first, _)| *first == number)
            && self.go_on(managed, open)?
            && let Some(leaf) = &mut self.reading
        {
            // It may have gone since the names were listed, and the next one been read.
            if leaf.base == base(number) {
                leaf.at = leaf.order.partition_point(|(hash, _)| *hash <= behind);
            }
        }
        Ok(())
    }
}

impl Leaf {
    fn read(directory: OwnedFd, number: u64) -> Done<Self> {
        let mut names = Entries::default();
        while names.fill_more(&directory)? {}
        let hashes = names.names().enumerate().filter(|(_, name)| !matches!(*name, b"." | b".."));
        let mut order: Vec<(u64, usize)> = hashes.map(|(at, name)| (hash(name), at)).collect();
        order.sort_by_key(|(hash, at)| (*hash, names.name(*at)));
        Ok(Self { directory, names, order, at: 0, base: base(number) })
    }

    /// The next entry, and the position behind it.
    fn peek(&self) -> Option<(Raw<'_>, u64)> {
        let (hash, at) = *self.order.get(self.at)?;
        let behind = self.base + hash;
        // A position cannot distinguish two names of the same hash: a reader that stops between them reads both again.
        let shared = self.order.get(self.at + 1).is_some_and(|(next, _)| *next == hash);
        Some((self.names.raw(at)?, if shared { behind - 1 } else { behind }))
    }
}

fn base(number: u64) -> u64 {
    (number + 1) << HASH_BITS
}

/// 48 bits of a name's FNV-1a hash. Positions that clients keep depend on it, so it stays.
fn hash(name: &[u8]) -> u64 {
    let hash = name.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash ^ hash >> HASH_BITS) & HASH_MASK
}

/// The hidden directories that are there, with their numbers, in the order in which they are read; from a number on.
fn hidden(
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
fn there(opened: Done<OwnedFd>) -> Done<Option<OwnedFd>> {
    match opened {
        Ok(opened) => Ok(Some(opened)),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(errno) => Err(errno),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behind_one_of_two_names_of_the_same_hash_both_are_told_again() {
        let place = tempfile::tempdir().unwrap();
        for name in ["a", "b", "c"] {
            std::fs::write(place.path().join(name), "").unwrap();
        }
        let directory = std::fs::File::open(place.path()).unwrap().into();
        let mut leaf = Leaf::read(directory, 7).unwrap();
        let hashes: Vec<u64> = leaf.order.iter().map(|(hash, _)| *hash).collect();
        assert!(hashes.is_sorted() && hashes.len() == 3, "{hashes:?}");
        for (at, hash) in [5, 5, 9].into_iter().enumerate() {
            leaf.order[at].0 = hash;
        }
        let mut positions = Vec::new();
        while let Some((_, position)) = leaf.peek() {
            positions.push(position);
            leaf.at += 1;
        }
        assert_eq!(positions, [base(7) + 4, base(7) + 5, base(7) + 9]);
    }

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
