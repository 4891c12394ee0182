//! The moves between the states of a conversion: one rename per entry or subdirectory.
//!
//! | function | from | to | one rename moves |
//! |---|---|---|---|
//! | `entries_into_staging` | the directory | a leaf in the staging directory | an entry |
//! | `levels_out_of_staging` | the staging directory | the directory | a subdirectory with its contents |
//! | `levels_into_staging` | the directory | the staging directory | a subdirectory with its contents |
//! | `entries_out_of_staging` | a leaf in the staging directory | the directory | an entry |
//!
//! A leaf is a subdirectory of the hidden level that holds entries.
//!
//! Always holds: a rename keeps the name and replaces nothing. When a name is taken, both entries stay, the collision is
//! reported at the end, and the other moves continue. We never read a directory of another user than DIR's owner, nor
//! change its owner. No function relies on an earlier one, so a run may begin with any of them.

use std::collections::HashMap;
use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use rustix::fs::FileType;
use rustix::io::Errno;

use super::calls::{Call, Calls};
use super::error::ConvertError;
use super::level_attributes::LevelAttributes;
use super::levels::{Levels, joined};
use super::state::{Names, is_reserved, open_own};
use super::{TIMES_FILE, Watch, Work};

/// Leaves kept open: far below any descriptor limit, and most of a `345` layout's leaves are needed again soon.
const LEAVES_OPEN_MAX: usize = 256;
/// Report progress every 64 moves.
const PROGRESS_EVERY: u64 = 64;

/// Why the work ends early.
#[derive(Debug)]
pub(super) enum Cut {
    /// The caller has set `Watch::stop`.
    Stopped,
    Failed(ConvertError),
}

impl From<ConvertError> for Cut {
    fn from(error: ConvertError) -> Self {
        Self::Failed(error)
    }
}

/// Moves entries and subdirectories between a directory and its staging directory.
pub(super) struct Mover<'a, 'w> {
    pub path: &'a Path,
    pub directory: &'a OwnedFd,
    /// The directory's owner: only this user's subdirectories belong to the hidden level.
    pub owner: u32,
    pub staging: OwnedFd,
    pub staging_path: PathBuf,
    pub levels: Levels,
    pub calls: &'a mut dyn Calls,
    pub watch: &'a mut Watch<'w>,
    pub collisions: Collisions,
    /// Entries of users that this run has moved.
    pub entries_moved: u64,
    /// Subdirectories that this run has moved.
    pub levels_moved: u64,
}

/// Names that exist on both sides.
#[derive(Debug, Default)]
pub(super) struct Collisions {
    count: u64,
    first: Option<(PathBuf, PathBuf)>,
}

impl Mover<'_, '_> {
    /// Moves entries from the directory into the leaves until none is left.
    pub(super) fn entries_into_staging(&mut self, entries: u64) -> Result<(), Cut> {
        let mut leaves = Leaves::default();
        self.until_none_moves(|mover| {
            let mut moved = 0;
            for entry in Names::of(mover.directory).map_err(|e| mover.failed("read the directory", e))? {
                let (name, _) = entry.map_err(|e| mover.failed("read the directory", e))?;
                if is_reserved(name.to_bytes()) {
                    continue;
                }
                moved += u64::from(mover.entry_into_staging(&name, &mut leaves)?);
                mover.report_progress(Work::EntriesIntoStaging, mover.entries_moved, entries)?;
            }
            Ok(moved)
        })
    }

    fn entry_into_staging(&mut self, name: &CStr, leaves: &mut Leaves) -> Result<bool, Cut> {
        let leaf = self.levels.leaf_of(name.to_bytes());
        let to = leaves.opened(&leaf, &self.staging, self.owner, self.calls);
        let to = to.map_err(|error| failed_at(&self.staging_path, &leaf, "make a subdirectory", error))?;
        let from = self.directory.as_fd();
        match self.calls.call(&Call::Rename { from, to: to.as_fd(), name }) {
            Ok(()) => {
                self.entries_moved += 1;
                Ok(true)
            }
            Err(Errno::EXIST) => {
                let taken = self.staging_path.join(OsStr::from_bytes(&joined(&leaf, name.to_bytes())));
                self.collisions.add(self.path.join(OsStr::from_bytes(name.to_bytes())), taken);
                Ok(false)
            }
            Err(error) => {
                let doing = "move an entry into its subdirectory";
                Err(failed_at(self.path, name.to_bytes(), doing, error).into())
            }
        }
    }

    /// Moves subdirectories from the staging directory up. Each gets the directory's owner and permissions first.
    pub(super) fn levels_out_of_staging(&mut self) -> Result<(), Cut> {
        let attributes = LevelAttributes::for_level_of(self.directory)
            .map_err(|e| self.failed("read its permissions", e))?;
        let of = self.count_tops(self.staging.try_clone().map_err(|e| self.failed_io("open", e))?)?;
        self.until_none_moves(|mover| {
            let mut moved = 0;
            let staging = mover.staging.try_clone().map_err(|e| mover.failed_io("open", e))?;
            for entry in Names::of(&staging).map_err(|e| mover.failed("read the staging directory", e))? {
                let (name, kind) = entry.map_err(|e| mover.failed("read the staging directory", e))?;
                if name.as_c_str() == TIMES_FILE {
                    continue;
                }
                if kind == FileType::Directory && mover.levels.is_level(name.to_bytes()) {
                    mover.apply_attributes(&staging, &name, name.to_bytes(), &attributes)?;
                }
                moved += mover.carry(Side::Staging, &name)?;
                mover.report_progress(Work::LevelsOutOfStaging, mover.levels_moved, of)?;
            }
            Ok(moved)
        })
    }

    /// Moves subdirectories of the hidden level from the directory into the staging directory, and stray entries of the
    /// directory into their leaves there.
    pub(super) fn levels_into_staging(&mut self) -> Result<(), Cut> {
        let mut leaves = Leaves::default();
        let of = self.count_tops(self.directory.try_clone().map_err(|e| self.failed_io("open", e))?)?;
        self.until_none_moves(|mover| {
            let mut moved = 0;
            for entry in Names::of(mover.directory).map_err(|e| mover.failed("read the directory", e))? {
                let (name, kind) = entry.map_err(|e| mover.failed("read the directory", e))?;
                if is_reserved(name.to_bytes()) {
                    continue;
                }
                if kind == FileType::Directory && mover.levels.is_level(name.to_bytes()) {
                    moved += mover.carry(Side::Directory, &name)?;
                } else {
                    moved += u64::from(mover.entry_into_staging(&name, &mut leaves)?);
                }
                mover.report_progress(Work::LevelsIntoStaging, mover.levels_moved, of)?;
            }
            Ok(moved)
        })
    }

    /// From the leaves into the directory; leaves that are empty are removed.
    pub(super) fn entries_out_of_staging(&mut self) -> Result<(), Cut> {
        let root = self.staging.try_clone().map_err(|e| self.failed_io("open", e))?;
        let of = self.count_entries(&root, b"").map_err(|e| self.failed("read the staging directory", e))?;
        self.entries_out_of_level(&root, b"", of)?;
        self.collisions.refuse(self.path)
    }

    fn entries_out_of_level(&mut self, level: &OwnedFd, at: &[u8], of: u64) -> Result<(), Cut> {
        let failed = |mover: &Self, error| failed_at(&mover.staging_path, at, "read a subdirectory", error);
        loop {
            let mut moved = 0;
            for entry in Names::of(level).map_err(|e| failed(self, e))? {
                let (name, kind) = entry.map_err(|e| failed(self, e))?;
                if at.is_empty() && name.as_c_str() == TIMES_FILE {
                    continue;
                }
                let below = joined(at, name.to_bytes());
                if kind == FileType::Directory && self.levels.is_level(&below) {
                    let inner = open_own(level, &name, self.owner).map_err(|e| failed(self, e))?;
                    self.entries_out_of_level(&inner, &below, of)?;
                    match self.calls.call(&Call::RemoveDirectory { at: level.as_fd(), name: &name }) {
                        // It still holds collisions, which are reported at the end.
                        Ok(()) | Err(Errno::NOTEMPTY | Errno::EXIST) => continue,
                        Err(error) => {
                            let doing = "remove a subdirectory that is empty";
                            return Err(failed_at(&self.staging_path, &below, doing, error).into());
                        }
                    }
                }
                let (from, to) = (level.as_fd(), self.directory.as_fd());
                match self.calls.call(&Call::Rename { from, to, name: &name }) {
                    Ok(()) => {
                        moved += 1;
                        self.entries_moved += 1;
                    }
                    Err(Errno::EXIST) => {
                        let taken = self.path.join(OsStr::from_bytes(name.to_bytes()));
                        self.collisions.add(self.staging_path.join(OsStr::from_bytes(&below)), taken);
                    }
                    Err(error) => {
                        let doing = "move an entry out of its subdirectory";
                        return Err(failed_at(&self.staging_path, &below, doing, error).into());
                    }
                }
                self.report_progress(Work::EntriesOutOfStaging, self.entries_moved, of)?;
            }
            // A listing may miss entries while we rename; only a pass that moves nothing proves that none is left.
            if moved == 0 {
                return Ok(());
            }
        }
    }

    /// Moves one top-level entry of `side` to the other side. If a subdirectory of that name exists there, moves its
    /// contents one by one. Returns the number of moves.
    fn carry(&mut self, side: Side, name: &CStr) -> Result<u64, Cut> {
        let (directory, staging) = (self.directory.as_fd(), self.staging.as_fd());
        let (from, to) = match side {
            Side::Directory => (directory, staging),
            Side::Staging => (staging, directory),
        };
        match self.calls.call(&Call::Rename { from, to, name }) {
            Ok(()) => {
                self.levels_moved += 1;
                Ok(1)
            }
            Err(Errno::EXIST) => {
                let opened = |at| {
                    let path = self.path_of(side, name.to_bytes());
                    open_own(at, name, self.owner)
                        .map_err(|error| failed_at(&path, b"", "open a subdirectory", error))
                };
                if !self.levels.is_level(name.to_bytes()) {
                    self.collide(side, name.to_bytes());
                    return Ok(0);
                }
                let (inner_from, inner_to) = (opened(from)?, opened(to)?);
                let moved = self.merge(side, &inner_from, &inner_to, name.to_bytes())?;
                let from = match side {
                    Side::Directory => self.directory.as_fd(),
                    Side::Staging => self.staging.as_fd(),
                };
                match self.calls.call(&Call::RemoveDirectory { at: from, name }) {
                    Ok(()) => Ok(moved + 1),
                    Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(moved),
                    Err(error) => {
                        let path = self.path_of(side, name.to_bytes());
                        Err(failed_at(&path, b"", "remove a subdirectory that is empty", error).into())
                    }
                }
            }
            Err(error) => {
                let path = self.path_of(side, name.to_bytes());
                Err(failed_at(&path, b"", "move a subdirectory", error).into())
            }
        }
    }

    fn merge(&mut self, side: Side, from: &OwnedFd, to: &OwnedFd, at: &[u8]) -> Result<u64, Cut> {
        let path = self.path_of(side, at);
        let failed = |doing, error| Cut::from(failed_at(&path, b"", doing, error));
        let mut moved = 0;
        for entry in Names::of(from).map_err(|e| failed("read a subdirectory", e))? {
            let (name, _) = entry.map_err(|e| failed("read a subdirectory", e))?;
            let below = joined(at, name.to_bytes());
            match self.calls.call(&Call::Rename { from: from.as_fd(), to: to.as_fd(), name: &name }) {
                Ok(()) => moved += 1,
                Err(Errno::EXIST) if self.levels.is_level(&below) => {
                    let inner =
                        |at| open_own(at, &name, self.owner).map_err(|e| failed("open a subdirectory", e));
                    moved += self.merge(side, &inner(from)?, &inner(to)?, &below)?;
                    match self.calls.call(&Call::RemoveDirectory { at: from.as_fd(), name: &name }) {
                        Ok(()) | Err(Errno::NOTEMPTY | Errno::EXIST) => {}
                        Err(error) => return Err(failed("remove a subdirectory that is empty", error)),
                    }
                }
                Err(Errno::EXIST) => self.collide(side, &below),
                Err(error) => return Err(failed("move an entry", error)),
            }
            self.go_on()?;
        }
        Ok(moved)
    }

    fn apply_attributes(
        &mut self,
        at: &OwnedFd,
        name: &CStr,
        path: &[u8],
        attributes: &LevelAttributes,
    ) -> Result<(), Cut> {
        let failed = |mover: &Self, error| {
            failed_at(&mover.staging_path, path, "give a subdirectory its owner and permissions", error)
        };
        let level = open_own(at, name, self.owner).map_err(|e| failed(self, e))?;
        if !self.levels.is_leaf(path) {
            for entry in Names::of(&level).map_err(|e| failed(self, e))? {
                let (name, kind) = entry.map_err(|e| failed(self, e))?;
                let below = joined(path, name.to_bytes());
                if kind == FileType::Directory && self.levels.is_level(&below) {
                    self.apply_attributes(&level, &name, &below, attributes)?;
                }
            }
        }
        attributes.apply_to(&level, self.calls).map_err(|e| failed(self, e))?;
        Ok(())
    }

    fn until_none_moves(&mut self, mut pass: impl FnMut(&mut Self) -> Result<u64, Cut>) -> Result<(), Cut> {
        loop {
            self.collisions = Collisions::default();
            // A listing may miss entries while we rename; only a pass that moves nothing proves that none is left.
            if pass(self)? == 0 {
                return self.collisions.refuse(self.path);
            }
        }
    }

    fn count_tops(&self, at: OwnedFd) -> Result<u64, Cut> {
        let names = Names::of(&at).map_err(|e| self.failed("read the directory", e))?;
        Ok(names.flatten().filter(|(name, _)| self.levels.is_level(name.to_bytes())).count() as u64)
    }

    fn count_entries(&self, level: &OwnedFd, at: &[u8]) -> rustix::io::Result<u64> {
        let mut count = 0;
        for entry in Names::of(level)? {
            let (name, kind) = entry?;
            let below = joined(at, name.to_bytes());
            if kind == FileType::Directory && self.levels.is_level(&below) {
                count += self.count_entries(&open_own(level, &name, self.owner)?, &below)?;
            } else {
                count += 1;
            }
        }
        Ok(count)
    }

    fn report_progress(&mut self, work: Work, done: u64, of: u64) -> Result<(), Cut> {
        if done.is_multiple_of(PROGRESS_EVERY) {
            (self.watch.progress)(super::Progress { work, done, of: of.max(done) });
        }
        self.go_on()
    }

    fn go_on(&self) -> Result<(), Cut> {
        if self.watch.stop.load(Ordering::Relaxed) { Err(Cut::Stopped) } else { Ok(()) }
    }

    fn collide(&mut self, side: Side, below: &[u8]) {
        let pair = (self.path_of(side, below), self.path_of(side.other(), below));
        self.collisions.add(pair.0, pair.1);
    }

    fn path_of(&self, side: Side, below: &[u8]) -> PathBuf {
        let root = match side {
            Side::Directory => self.path,
            Side::Staging => &self.staging_path,
        };
        root.join(OsStr::from_bytes(below))
    }

    fn failed(&self, doing: &'static str, error: Errno) -> Cut {
        failed_at(self.path, b"", doing, error).into()
    }

    fn failed_io(&self, doing: &'static str, source: std::io::Error) -> Cut {
        ConvertError::Step { path: self.path.to_owned(), doing, source }.into()
    }
}

/// The side that an entry is moved from.
#[derive(Clone, Copy)]
enum Side {
    Directory,
    Staging,
}

impl Side {
    fn other(self) -> Self {
        match self {
            Self::Directory => Self::Staging,
            Self::Staging => Self::Directory,
        }
    }
}

impl Collisions {
    pub(super) fn add(&mut self, here: PathBuf, there: PathBuf) {
        self.count += 1;
        self.first.get_or_insert((here, there));
    }

    pub(super) fn refuse(&self, path: &Path) -> Result<(), Cut> {
        match self.first.clone() {
            None => Ok(()),
            Some((first, second)) => {
                let (path, count) = (path.to_owned(), self.count);
                Err(ConvertError::Collisions { path, count, first, second }.into())
            }
        }
    }
}

/// Leaves in the staging directory, created on demand; up to `LEAVES_OPEN_MAX` stay open.
#[derive(Default)]
struct Leaves {
    open: HashMap<Vec<u8>, OwnedFd>,
}

impl Leaves {
    fn opened(
        &mut self,
        leaf: &[u8],
        staging: &OwnedFd,
        owner: u32,
        calls: &mut dyn Calls,
    ) -> rustix::io::Result<&OwnedFd> {
        if !self.open.contains_key(leaf) {
            if self.open.len() >= LEAVES_OPEN_MAX {
                self.open.clear();
            }
            let mut level = rustix::io::fcntl_dupfd_cloexec(staging, 0)?;
            for part in leaf.split(|byte| *byte == b'/') {
                let name = CString::new(part).map_err(|_| Errno::INVAL)?;
                level = match open_own(&level, &name, owner) {
                    Err(Errno::NOENT) => {
                        calls.call(&Call::MakeDirectory { at: level.as_fd(), name: &name })?;
                        open_own(&level, &name, owner)?
                    }
                    opened => opened?,
                };
            }
            self.open.insert(leaf.to_vec(), level);
        }
        Ok(&self.open[leaf])
    }
}

/// An error of a step at a path below `root`.
pub(super) fn failed_at(root: &Path, below: &[u8], doing: &'static str, error: Errno) -> ConvertError {
    let path = if below.is_empty() { root.to_owned() } else { root.join(OsStr::from_bytes(below)) };
    ConvertError::Step { path, doing, source: error.into() }
}
