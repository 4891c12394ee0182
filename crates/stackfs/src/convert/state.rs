//! Determines a directory's conversion state from the directory alone.

use std::ffi::{CStr, CString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::LazyLock;

use files::Layout;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::error::ConvertError;
use super::names::NameSample;
use super::{STAGING_PREFIX, TIMES_FILE};
use crate::managed::{is_managed, layout_of, takes_mark};

/// A conversion state; the header of [`super`] has a table of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// An ordinary directory.
    Flat,
    /// Bit off: some entries are in the directory, the others in the staging directory.
    MovingEntries(Layout),
    /// Bit on: some subdirectories of the hidden level are in the directory, the others in the staging directory.
    MovingLevels(Layout),
    /// Managed, no conversion under way.
    Managed(Layout),
}

impl State {
    /// The layout it has, or that a conversion is moving it into or out of.
    pub fn layout(self) -> Layout {
        match self {
            Self::Flat => Layout::Flat,
            Self::MovingEntries(layout) | Self::MovingLevels(layout) | Self::Managed(layout) => layout,
        }
    }

    /// Whether an unfinished conversion left this state.
    pub fn is_half_way(self) -> bool {
        matches!(self, Self::MovingEntries(_) | Self::MovingLevels(_))
    }
}

/// What one reading of a directory shows.
#[derive(Debug)]
pub(crate) struct Survey {
    pub state: State,
    /// Entries, without the staging directory.
    pub entries: u64,
    /// A sample of their names.
    pub names: NameSample,
}

impl Survey {
    /// Whether the directory is flat with names that are not numbers.
    pub(crate) fn are_not_numbers(&self) -> bool {
        self.state == State::Flat && self.names.are_not_numbers()
    }
}

/// The name of the staging directory of a layout.
pub(crate) fn staging_name(layout: Layout) -> CString {
    let name = format!("{STAGING_PREFIX}{}", layout.name().replace('/', "-"));
    CString::new(name).expect("layouts have no NUL in their names")
}

/// The command that finishes this directory's unfinished conversion, `manage` or `unmanage`; none if nothing is unfinished. Costs
/// a failing look-up per layout.
pub(crate) fn unfinished(directory: impl AsFd) -> Option<&'static str> {
    static STAGING: LazyLock<Vec<CString>> = LazyLock::new(|| {
        Layout::ALL.into_iter().filter(|layout| *layout != Layout::Flat).map(staging_name).collect()
    });
    let is_there = |name: &&CString| {
        let found = rustix::fs::statat(&directory, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW);
        // Trust the name of a staging directory that we may not read.
        found.is_ok() && is_staging(&directory, name).unwrap_or(true)
    };
    STAGING.iter().find(is_there)?;
    let mode = rustix::fs::statat(&directory, c"", AtFlags::EMPTY_PATH).ok()?.st_mode;
    Some(finishing_verb(is_managed(mode)))
}

/// The verb that finishes an unfinished conversion in the direction given by the bit.
pub(crate) fn finishing_verb(managed: bool) -> &'static str {
    if managed { "manage" } else { "unmanage" }
}

/// Whether a name is reserved for staging directories.
pub(crate) fn is_reserved(name: &[u8]) -> bool {
    name.starts_with(STAGING_PREFIX.as_bytes())
}

/// The layout in a staging directory's name.
fn staged_layout(name: &[u8]) -> Option<Layout> {
    let named = |layout: &Layout| *layout != Layout::Flat && staging_name(*layout).as_bytes() == name;
    Layout::ALL.into_iter().find(named)
}

impl Survey {
    /// Reads the whole directory.
    pub(crate) fn of(path: &Path, directory: &File) -> Result<Self, ConvertError> {
        let failed = |error: Errno| ConvertError::Open { path: path.to_owned(), source: error.into() };
        let stat = rustix::fs::fstat(directory).map_err(failed)?;
        let (mode, owner) = (stat.st_mode, stat.st_uid);
        let (mut entries, mut names, mut staged) = (0, NameSample::default(), Vec::new());
        for entry in Names::of(directory).map_err(failed)? {
            let (name, _) = entry.map_err(failed)?;
            if is_reserved(name.to_bytes()) {
                staged.push(name);
            } else {
                entries += 1;
                names.add(name.to_bytes());
            }
        }
        let reserved = |name: &CStr| ConvertError::ReservedName {
            entry: path.join(std::ffi::OsStr::from_bytes(name.to_bytes())),
        };
        let state = match (&staged[..], is_managed(mode)) {
            ([], false) => State::Flat,
            ([], true) => State::Managed(marked_layout(path, directory)?),
            ([name], managed) => {
                let layout = staged_layout(name.to_bytes()).ok_or_else(|| reserved(name))?;
                let staging = rustix::fs::statat(directory, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW);
                let its = staging.map_err(failed)?.st_uid;
                if its != owner {
                    let entry = path.join(std::ffi::OsStr::from_bytes(name.to_bytes()));
                    return Err(ConvertError::Foreign {
                        path: path.to_owned(),
                        entry,
                        owner: its,
                        of: owner,
                    });
                }
                if !is_staging(directory, name).map_err(failed)? {
                    return Err(reserved(name));
                }
                if managed { State::MovingLevels(layout) } else { State::MovingEntries(layout) }
            }
            (names, _) => return Err(reserved(&names[0])),
        };
        // Only the unmarked layout can be had where there are no extended attributes.
        let names = if takes_mark(directory) { names } else { NameSample::default() };
        Ok(Self { state, entries, names })
    }
}

fn marked_layout(path: &Path, directory: &File) -> Result<Layout, ConvertError> {
    layout_of(directory).map_err(|source: io::Error| ConvertError::Mark { path: path.to_owned(), source })
}

/// Whether this is a staging directory of ours: it is empty or holds the times file.
fn is_staging(directory: impl AsFd, name: &CStr) -> rustix::io::Result<bool> {
    let staging = match open_below(directory, name) {
        Err(Errno::NOTDIR | Errno::LOOP) => return Ok(false),
        opened => opened?,
    };
    let times_file = rustix::fs::statat(&staging, TIMES_FILE, AtFlags::SYMLINK_NOFOLLOW);
    if times_file.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile) {
        return Ok(true);
    }
    Ok(Names::of(&staging)?.next().is_none())
}

/// Opens a subdirectory, never through a symbolic link.
pub(crate) fn open_below(directory: impl AsFd, name: &CStr) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(directory, name, flags, Mode::empty())
}

/// The same of one that is to be part of `owner`'s managed directory: `EPERM` when it belongs to anybody else, who may
/// not know of it: the owner of a directory can rename what others have created there.
pub(crate) fn open_own(directory: impl AsFd, name: &CStr, owner: u32) -> rustix::io::Result<OwnedFd> {
    let opened = open_below(directory, name)?;
    if rustix::fs::fstat(&opened)?.st_uid == owner { Ok(opened) } else { Err(Errno::PERM) }
}

/// The entries of a directory but `.` and `..`, with their types.
pub(crate) struct Names {
    listing: Dir,
    directory: OwnedFd,
}

impl Names {
    pub(crate) fn of(directory: impl AsFd) -> rustix::io::Result<Self> {
        // A second open of the directory, so that the listing has its own position.
        let listing = Dir::read_from(&directory)?;
        Ok(Self { listing, directory: rustix::io::fcntl_dupfd_cloexec(&directory, 0)? })
    }
}

impl Iterator for Names {
    type Item = rustix::io::Result<(CString, FileType)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let entry = match self.listing.next()? {
                Ok(entry) => entry,
                Err(error) => return Some(Err(error)),
            };
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let kind = match entry.file_type() {
                // Some file systems do not tell in the listing. One that is gone by now is of no type.
                FileType::Unknown => rustix::fs::statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW)
                    .map_or(FileType::Unknown, |stat| FileType::from_raw_mode(stat.st_mode)),
                known => known,
            };
            return Some(Ok((name.to_owned(), kind)));
        }
    }
}
