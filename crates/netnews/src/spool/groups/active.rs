//! `active`: one line a group, `NAME HIGH LOW FLAG`, numbers of ten digits so that they are overwritten in place.
//!
//! ```text
//! rec.sport.hockey 0000000117 0000000023 y
//! ```
//!
//! Lines whose group changed are written when a batch of articles has been stored, neighbours in one call.
//!
//! Always holds: a line's place and length never change; new groups stand at the end.
//! Source: active(5) of INN; relaynews of C News updates the same file the same way.

use std::path::Path;

use files::{Access, FileSystem, FsError, OpenFile};

use super::{Group, GroupId, Groups};
use crate::NetnewsError;
use crate::spool::decimal;
use crate::spool::layout::places::Places;
use crate::spool::whole::{place_of, read_whole, replace, write_all};

/// Its name in the library directory.
pub(crate) const FILE: &str = "active";
const DIGITS: usize = 10;
/// ` HIGH LOW F` and the line's end.
const TAIL_BYTES: usize = 2 * (1 + DIGITS) + 2 + 1;
/// Changed lines closer than this are written together: copying a page costs less than another two calls.
const GAP_BYTES: usize = 4096;
/// Bytes of an `active` that are read at most: a million groups.
const BYTES_MAX: usize = 256 << 20;

/// The open file and what it holds.
pub(crate) struct Active {
    file: Box<dyn OpenFile>,
    image: Vec<u8>,
    /// Where each group's line begins.
    starts: Vec<usize>,
    dirty: Vec<GroupId>,
}

impl Active {
    /// A new file with the groups there are, in place of what is there.
    pub(crate) fn create(lib: &dyn FileSystem, groups: &mut Groups) -> Result<Self, FsError> {
        let mut image = Vec::new();
        let mut starts = Vec::new();
        for id in groups.ids() {
            let group = groups.get_mut(id);
            group.dirty = false;
            starts.push(image.len());
            image.extend_from_slice(&group.name);
            image.resize(image.len() + TAIL_BYTES, b' ');
            put_tail(&mut image, group);
        }
        // By a rename: highs that no article is left of stand nowhere else.
        replace(lib, FILE, &image)?;
        let file = lib.open(Path::new(FILE), Access::ReadWrite)?;
        Ok(Self { file, image, starts, dirty: Vec::new() })
    }

    /// Opens the file and fills `groups`, which must be empty.
    pub(crate) fn open(
        lib: &dyn FileSystem,
        groups: &mut Groups,
        places: &Places,
    ) -> Result<Self, NetnewsError> {
        let mut image = Vec::new();
        read_whole(lib, Path::new(FILE), &mut image, BYTES_MAX)?;
        let mut starts = Vec::new();
        let mut at = 0;
        while at < image.len() {
            let rest = &image[at..];
            let Some(entry) = parse_line(rest) else {
                return Err(NetnewsError::BadFile {
                    path: place_of(lib, Path::new(FILE)),
                    why: format!("no line of a group at byte {at}; `--resume` mends what a kill left"),
                });
            };
            let id = groups.add(entry.name, places);
            let group = groups.get_mut(id);
            (group.high, group.low, group.flag) = (entry.high, entry.low, entry.flag);
            group.made = entry.high > 0;
            starts.push(at);
            at += entry.line_len;
        }
        let file = lib.open(Path::new(FILE), Access::ReadWrite)?;
        Ok(Self { file, image, starts, dirty: Vec::new() })
    }

    /// A line for a new group; ids come in order.
    pub(crate) fn add(&mut self, groups: &mut Groups, id: GroupId) {
        assert_eq!(id.0 as usize, self.starts.len(), "groups are added in the order of their numbers");
        self.starts.push(self.image.len());
        self.image.extend_from_slice(&groups.get(id).name);
        self.image.resize(self.image.len() + TAIL_BYTES, b' ');
        self.mark(groups, id);
    }

    /// A group's numbers changed.
    pub(crate) fn mark(&mut self, groups: &mut Groups, id: GroupId) {
        let group = groups.get_mut(id);
        if !group.dirty {
            group.dirty = true;
            self.dirty.push(id);
        }
    }

    /// Writes what changed.
    pub(crate) fn flush(&mut self, groups: &mut Groups) -> Result<(), FsError> {
        self.dirty.sort_unstable();
        let mut run: Option<(usize, usize)> = None;
        for &id in &self.dirty {
            let group = groups.get_mut(id);
            group.dirty = false;
            let start = self.starts[id.0 as usize];
            let end = start + group.name.len() + TAIL_BYTES;
            put_tail(&mut self.image[..end], group);
            run = match run {
                Some((from, to)) if start <= to + GAP_BYTES => Some((from, end)),
                Some(done) => {
                    write_run(&mut *self.file, &self.image, done)?;
                    Some((start, end))
                }
                None => Some((start, end)),
            };
        }
        self.dirty.clear();
        run.map_or(Ok(()), |run| write_run(&mut *self.file, &self.image, run))
    }
}

/// Fills in the end of a line, the last bytes of `image`.
fn put_tail(image: &mut [u8], group: &Group) {
    let at = image.len() - TAIL_BYTES;
    let tail = &mut image[at..];
    decimal::put_padded(&mut tail[1..=DIGITS], group.high);
    decimal::put_padded(&mut tail[DIGITS + 2..2 * DIGITS + 2], group.low);
    tail[2 * DIGITS + 3] = group.flag;
    tail[TAIL_BYTES - 1] = b'\n';
}

fn write_run(file: &mut dyn OpenFile, image: &[u8], (from, to): (usize, usize)) -> Result<(), FsError> {
    file.seek(from as u64)?;
    write_all(file, &image[from..to])
}

/// A line as it is read.
pub(crate) struct ActiveLine<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) high: u64,
    pub(crate) low: u64,
    pub(crate) flag: u8,
    /// With its end.
    pub(crate) line_len: usize,
}

/// The line at the beginning of `text`; none when it is not as this module writes it.
pub(crate) fn parse_line(text: &[u8]) -> Option<ActiveLine<'_>> {
    let end = text.iter().position(|byte| *byte == b'\n')?;
    let mut fields = text[..end].split(|byte| *byte == b' ');
    let (name, high, low, flag) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
    let &[flag] = flag else { return None };
    if fields.next().is_some()
        || high.len() != DIGITS
        || low.len() != DIGITS
        || !crate::spool::groups::is_usable(name)
    {
        return None;
    }
    Some(ActiveLine { name, high: decimal::parse(high)?, low: decimal::parse(low)?, flag, line_len: end + 1 })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::spool::scratch;

    #[test]
    fn numbers_change_in_place_and_an_empty_group_has_its_low_above_its_high() {
        let (folder, lib) = scratch::folder();
        let places = Places::new(Arc::clone(&lib), vec![]);
        let mut groups = Groups::default();
        for name in ["rec.sport.hockey", "alt.2600"] {
            groups.add(name.as_bytes(), &places);
        }
        let mut active = Active::create(&*lib, &mut groups).unwrap();
        let read = || std::fs::read_to_string(folder.path().join(FILE)).unwrap();
        assert_eq!(read(), "rec.sport.hockey 0000000000 0000000001 y\nalt.2600 0000000000 0000000001 y\n");
        groups.get_mut(GroupId(1)).high = 42;
        active.mark(&mut groups, GroupId(1));
        let third = groups.add(b"comp.os", &places);
        active.add(&mut groups, third);
        active.flush(&mut groups).unwrap();
        let expected = "rec.sport.hockey 0000000000 0000000001 y\nalt.2600 0000000042 0000000001 y\n\
                        comp.os 0000000000 0000000001 y\n";
        assert_eq!(read(), expected);

        let mut again = Groups::default();
        Active::open(&*lib, &mut again, &places).unwrap();
        assert_eq!((again.len(), again.get(GroupId(1)).high), (3, 42));
    }

    #[test]
    fn a_torn_line_is_an_error_that_names_the_byte() {
        let (folder, lib) = scratch::folder();
        std::fs::write(folder.path().join(FILE), "a 0000000001 0000000001 y\nb 00000").unwrap();
        let places = Places::new(Arc::clone(&lib), vec![]);
        let error = Active::open(&*lib, &mut Groups::default(), &places).err().unwrap();
        assert!(error.to_string().contains("byte 26"), "{error}");
    }
}
