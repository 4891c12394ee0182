//! The moves of a conversion under way, in batches, each entry under the lock of its name.
//!
//! Always holds: no rename replaces anything; a pass that moves nothing proves that nothing is left. Every descriptor that
//! is renamed from or to was opened without following links and belongs to the directory's owner.

use std::collections::HashMap;
use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

use rustix::fs::{FileType, OFlags, Timespec, Timestamps};
use rustix::io::Errno;

use super::{SLICE, entry_path, is_stopped, pause_of, times_file};
use crate::convert::calls::{Call, Calls as _, Kernel};
use crate::convert::level_attributes::LevelAttributes;
use crate::convert::levels::{Levels, joined};
use crate::convert::moves::{Collisions, Cut, failed_at};
use crate::convert::state::{Names, is_reserved, open_own};
use crate::convert::{ConvertError, TIMES_FILE, Work};
use crate::online::Run;
use crate::tree::Tree;
use crate::tree::converting::{Conversion, Side};

/// How long moves go into one transaction of a journal. A program that changes the same directory waits until it is written.
const FLUSH_EVERY: Duration = Duration::from_millis(200);
/// Leaves kept open at once.
const LEAVES_OPEN_MAX: usize = 256;

/// Moves entries and subdirectories of one directory.
pub(super) struct Moves<'a> {
    pub(super) tree: &'a Tree,
    pub(super) conversion: &'a Conversion,
    run: &'a Run,
    owner: u32,
    /// Entries that there are to move, as far as known.
    entries: u64,
    levels: Levels,
    collisions: Collisions,
    batch: Batch<'a>,
    pub(super) entries_moved: u64,
    pub(super) levels_moved: u64,
}

/// What came of moving an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moved {
    Yes,
    /// It is gone, or the directory that it was to go to.
    Missing,
    /// Its name is there already.
    Taken,
}

impl Moved {
    fn count(self) -> u64 {
        u64::from(self == Self::Yes)
    }
}

/// The lock under which entries move, and since when it has been held.
#[derive(Default)]
struct Batch<'a> {
    held: Option<(MutexGuard<'a, ()>, Instant)>,
    /// Operations of programs before it.
    operations: u64,
    /// The time of modification that the times file has.
    kept: Option<Timespec>,
    times: Option<OwnedFd>,
    flushed: Option<Instant>,
}

impl<'a> Moves<'a> {
    pub(super) fn new(
        tree: &'a Tree,
        conversion: &'a Conversion,
        run: &'a Run,
        owner: u32,
        entries: u64,
    ) -> Self {
        let levels = Levels::of(conversion.layout);
        Self {
            tree,
            conversion,
            run,
            owner,
            entries,
            levels,
            collisions: Collisions::default(),
            batch: Batch::default(),
            entries_moved: 0,
            levels_moved: 0,
        }
    }

    /// Moves entries from the directory into the leaves of the staging directory until none is left.
    pub(super) fn entries_in(&mut self) -> Result<(), Cut> {
        let mut leaves = Leaves::default();
        self.until_none_moves(|moves| {
            let mut moved = 0;
            let directory = &moves.conversion.directory;
            for entry in Names::of(directory).map_err(|e| moves.failed("read the directory", e))? {
                let (name, _) = entry.map_err(|e| moves.failed("read the directory", e))?;
                if is_reserved(name.to_bytes()) {
                    continue;
                }
                moves.tick()?;
                let leaf = moves.levels.leaf_of(name.to_bytes());
                let to = match leaves.opened(&leaf, moves.tree, moves.conversion) {
                    // Removed as soon as it was made: see below.
                    Err(Errno::NOENT) => {
                        moved += 1;
                        continue;
                    }
                    to => to,
                };
                let to = to.map_err(|e| moves.failed_in(Side::Staged, &leaf, "make a subdirectory", e))?;
                let below = joined(&leaf, name.to_bytes());
                match moves.entry(directory, to, &name, (Side::Flat, name.to_bytes()), &below)? {
                    Moved::Yes => moved += 1,
                    Moved::Taken => {}
                    // The entry, or an empty leaf: rmdir of a directory that is not empty removes those. The next pass
                    // looks again.
                    Moved::Missing => {
                        leaves.open.remove(&leaf);
                        moved += 1;
                    }
                }
                let (done, of) = (moves.entries_moved, moves.entries);
                moves.run.report(Work::EntriesIntoStaging, done, of.max(done));
            }
            Ok(moved)
        })
    }

    /// Moves entries out of the leaves of the staging directory until none is left, and removes the leaves.
    pub(super) fn entries_out(&mut self) -> Result<(), Cut> {
        let staging = self.staging()?;
        self.batch.end();
        self.entries = self.count(&staging, b"").map_err(|e| self.failed("read the staging directory", e))?;
        self.until_none_moves(|moves| moves.entries_out_of(&staging, b""))
    }

    fn entries_out_of(&mut self, level: &OwnedFd, at: &[u8]) -> Result<u64, Cut> {
        let doing = "read a subdirectory";
        let mut moved = 0;
        let names = match Names::of(level) {
            Err(Errno::NOENT) => return Ok(0),
            names => names.map_err(|e| self.failed_in(Side::Staged, at, doing, e))?,
        };
        for entry in names {
            let (name, kind) = entry.map_err(|e| self.failed_in(Side::Staged, at, doing, e))?;
            if at.is_empty() && name.as_c_str() == TIMES_FILE {
                continue;
            }
            self.tick()?;
            let below = joined(at, name.to_bytes());
            if kind == FileType::Directory && self.levels.is_level(&below) {
                let inner = match open_own(level, &name, self.owner) {
                    Err(Errno::NOENT) => continue,
                    inner => inner.map_err(|e| self.failed_in(Side::Staged, &below, doing, e))?,
                };
                moved += self.entries_out_of(&inner, &below)?;
                self.tick()?;
                match Kernel.call(&Call::RemoveDirectory { at: level.as_fd(), name: &name }) {
                    Ok(()) => {
                        moved += 1;
                        self.levels_moved += 1;
                    }
                    // What was put there meanwhile moves in the next pass, and collisions are reported at the end. An empty
                    // one may have been removed by an rmdir of the whole directory, which then found entries.
                    Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOENT) => {}
                    Err(error) => {
                        let doing = "remove a subdirectory that is empty";
                        return Err(self.failed_in(Side::Staged, &below, doing, error));
                    }
                }
                continue;
            }
            let directory = &self.conversion.directory;
            moved += self.entry(level, directory, &name, (Side::Staged, &below), name.to_bytes())?.count();
            let (done, of) = (self.entries_moved, self.entries);
            self.run.report(Work::EntriesOutOfStaging, done, of.max(done));
        }
        Ok(moved)
    }

    /// Moves the top directories of the staging directory up.
    pub(super) fn levels_out(&mut self) -> Result<(), Cut> {
        let staging = self.staging()?;
        self.levels_of(Side::Staged, &staging, Work::LevelsOutOfStaging)
    }

    /// Moves the top directories of the hidden level into the staging directory.
    pub(super) fn levels_in(&mut self) -> Result<(), Cut> {
        let directory = std::sync::Arc::clone(&self.conversion.directory);
        self.levels_of(Side::Up, &directory, Work::LevelsIntoStaging)
    }

    fn levels_of(&mut self, side: Side, from: &OwnedFd, work: Work) -> Result<(), Cut> {
        let names = Names::of(from).map_err(|e| self.failed("read the directory", e))?;
        let of = names.flatten().filter(|(name, _)| self.levels.is_level(name.to_bytes())).count() as u64;
        self.until_none_moves(|moves| {
            let mut moved = 0;
            for entry in Names::of(from).map_err(|e| moves.failed("read the directory", e))? {
                let (name, kind) = entry.map_err(|e| moves.failed("read the directory", e))?;
                if is_reserved(name.to_bytes()) || name.as_c_str() == TIMES_FILE {
                    continue;
                }
                if kind != FileType::Directory || !moves.levels.is_level(name.to_bytes()) {
                    return Err(ConvertError::Beside { path: moves.conversion.guard.path.clone() }.into());
                }
                moves.tick()?;
                moved += moves.level(side, from, &name)?;
                moves.run.report(work, moves.levels_moved, of.max(moves.levels_moved));
            }
            Ok(moved)
        })
    }

    /// Moves one top directory with all that is in it. When the other side has one of that name, what a conversion that was
    /// killed has left, its entries are moved one by one.
    fn level(&mut self, side: Side, from: &OwnedFd, name: &CStr) -> Result<u64, Cut> {
        let other = if side == Side::Staged { Side::Up } else { Side::Staged };
        let to = self.conversion.root_of(other).map_err(|e| self.failed("open the other side", e))?;
        if side == Side::Staged {
            let level = open_own(from, name, self.owner);
            let alike = level.and_then(|level| {
                LevelAttributes::for_level_of(&self.conversion.directory)?.apply_to(&level, &mut Kernel)
            });
            if alike.is_err_and(|errno| errno == Errno::NOENT) {
                return Ok(0);
            }
            let doing = "give a subdirectory its owner and permissions";
            alike.map_err(|e| self.failed_in(side, name.to_bytes(), doing, e))?;
        }
        match Kernel.call(&Call::Rename { from: from.as_fd(), to: to.as_fd(), name }) {
            Ok(()) => {
                self.levels_moved += 1;
                Ok(1)
            }
            Err(Errno::NOENT) => Ok(0),
            Err(Errno::EXIST) => {
                let doing = "open a subdirectory";
                let opened = |at: &OwnedFd| {
                    open_own(at, name, self.owner)
                        .map_err(|e| self.failed_in(side, name.to_bytes(), doing, e))
                };
                let (inner_from, inner_to) = (opened(from)?, opened(to)?);
                let moved = self.merge(side, &inner_from, &inner_to, name.to_bytes())?;
                Ok(moved + self.remove_level(side, from, name, name.to_bytes())?)
            }
            Err(error) => Err(self.failed_in(side, name.to_bytes(), "move a subdirectory", error)),
        }
    }

    fn merge(&mut self, side: Side, from: &OwnedFd, to: &OwnedFd, at: &[u8]) -> Result<u64, Cut> {
        let doing = "read a subdirectory";
        let mut moved = 0;
        for entry in Names::of(from).map_err(|e| self.failed_in(side, at, doing, e))? {
            let (name, _) = entry.map_err(|e| self.failed_in(side, at, doing, e))?;
            self.tick()?;
            let below = joined(at, name.to_bytes());
            if !self.levels.is_level(&below) {
                moved += self.entry(from, to, &name, (side, &below), &below)?.count();
                continue;
            }
            match Kernel.call(&Call::Rename { from: from.as_fd(), to: to.as_fd(), name: &name }) {
                Ok(()) => moved += 1,
                Err(Errno::NOENT) => {}
                Err(Errno::EXIST) => {
                    let opened = |at: &OwnedFd| {
                        open_own(at, &name, self.owner).map_err(|e| self.failed_in(side, &below, doing, e))
                    };
                    let (inner_from, inner_to) = (opened(from)?, opened(to)?);
                    moved += self.merge(side, &inner_from, &inner_to, &below)?;
                    moved += self.remove_level(side, from, &name, &below)?;
                }
                Err(error) => return Err(self.failed_in(side, &below, "move a subdirectory", error)),
            }
        }
        Ok(moved)
    }

    fn remove_level(&self, side: Side, at: &OwnedFd, name: &CStr, below: &[u8]) -> Result<u64, Cut> {
        match Kernel.call(&Call::RemoveDirectory { at: at.as_fd(), name }) {
            Ok(()) => Ok(1),
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOENT) => Ok(0),
            Err(error) => Err(self.failed_in(side, below, "remove a subdirectory that is empty", error)),
        }
    }

    /// Moves one entry.
    fn entry(
        &mut self,
        from: &OwnedFd,
        to: &OwnedFd,
        name: &CStr,
        (side, below): (Side, &[u8]),
        below_to: &[u8],
    ) -> Result<Moved, Cut> {
        let conversions = &self.tree.conversions;
        let moved = {
            let _held = conversions.name_to_move(self.conversion.id, name.to_bytes());
            Kernel.call(&Call::Rename { from: from.as_fd(), to: to.as_fd(), name })
        };
        match moved {
            Ok(()) => {
                self.entries_moved += 1;
                Ok(Moved::Yes)
            }
            // Removed or renamed by a program since it was listed.
            Err(Errno::NOENT) => Ok(Moved::Missing),
            Err(Errno::EXIST) => {
                let path = &self.conversion.guard.path;
                self.collisions.add(entry_path(path, below), entry_path(path, below_to));
                Ok(Moved::Taken)
            }
            Err(error) => {
                let doing = "move an entry to its other place";
                Err(self.failed_in(side, below, doing, error))
            }
        }
    }

    fn until_none_moves(&mut self, mut pass: impl FnMut(&mut Self) -> Result<u64, Cut>) -> Result<(), Cut> {
        let outcome = loop {
            self.collisions = Collisions::default();
            match pass(self) {
                Ok(0) => break self.collisions.refuse(&self.conversion.guard.path),
                Ok(_) => {}
                Err(cut) => break Err(cut),
            }
        };
        self.batch.end();
        outcome
    }

    /// Before each move: the batch continues, or ends and after a rest the next one begins.
    fn tick(&mut self) -> Result<(), Cut> {
        if self.batch.held.as_ref().is_some_and(|(_, since)| since.elapsed() < SLICE) {
            return Ok(());
        }
        self.batch.end();
        self.batch.keep_times(self.conversion);
        self.batch.flush();
        if is_stopped(self.run, self.conversion) {
            return Err(Cut::Stopped);
        }
        let operations = self.tree.conversions.operations();
        if operations != self.batch.operations {
            std::thread::park_timeout(SLICE);
        }
        self.batch.operations = self.tree.conversions.operations();
        self.batch.held = Some((pause_of(self.conversion), Instant::now()));
        // Removed while we waited: nothing of it is to be made again.
        if is_stopped(self.run, self.conversion) { Err(Cut::Stopped) } else { Ok(()) }
    }

    fn staging(&self) -> Result<OwnedFd, Cut> {
        let staging = self.conversion.staging().map_err(|e| self.failed("open the staging directory", e))?;
        staging.try_clone().map_err(|source| {
            ConvertError::Step { path: self.conversion.guard.path.clone(), doing: "open it", source }.into()
        })
    }

    fn count(&self, level: &OwnedFd, at: &[u8]) -> rustix::io::Result<u64> {
        let mut count = 0;
        for entry in Names::of(level)? {
            let (name, kind) = entry?;
            let below = joined(at, name.to_bytes());
            if kind == FileType::Directory && self.levels.is_level(&below) {
                count += self.count(&open_own(level, &name, self.owner)?, &below)?;
            } else {
                count += 1;
            }
        }
        Ok(count)
    }

    fn failed(&self, doing: &'static str, error: Errno) -> Cut {
        failed_at(&self.conversion.guard.path, b"", doing, error).into()
    }

    fn failed_in(&self, side: Side, below: &[u8], doing: &'static str, error: Errno) -> Cut {
        let staging = crate::convert::state::staging_name(self.conversion.layout);
        let below = match side {
            Side::Staged => joined(staging.as_bytes(), below),
            Side::Flat | Side::Up => below.to_vec(),
        };
        failed_at(&self.conversion.guard.path, &below, doing, error).into()
    }
}

impl Batch<'_> {
    fn end(&mut self) {
        self.held = None;
    }

    /// For a daemon that is killed: the next conversion restores the times that programs have given the directory.
    fn keep_times(&mut self, conversion: &Conversion) {
        let now = conversion.modified();
        if self.times.is_none() {
            self.times = conversion.staging().ok().and_then(times_file);
        }
        if now != self.kept && self.write_times(now) {
            self.kept = now;
        }
    }

    fn write_times(&self, modified: Option<Timespec>) -> bool {
        let (Some(file), Some(modified)) = (&self.times, modified) else { return false };
        let omit = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
        let times = Timestamps { last_access: omit, last_modification: modified };
        rustix::fs::futimens(file, &times).is_ok()
    }

    /// Has the journal write what moved, and waits for it without a lock: the moves never outrun the disk, and programs
    /// wait for small transactions only.
    fn flush(&mut self) {
        let Some(since) = self.flushed else {
            self.flushed = Some(Instant::now());
            return;
        };
        if since.elapsed() < FLUSH_EVERY {
            return;
        }
        // Written again, so that it is part of the transaction.
        if self.write_times(self.kept)
            && let Some(file) = &self.times
            && let Err(errno) = rustix::fs::fsync(file)
        {
            tracing::debug!("the moves of a conversion were not flushed: {errno}");
        }
        self.flushed = Some(Instant::now());
    }
}

/// Leaves in the staging directory, created on demand; up to `LEAVES_OPEN_MAX` stay open.
#[derive(Default)]
struct Leaves {
    open: HashMap<Vec<u8>, OwnedFd>,
}

impl Leaves {
    fn opened(&mut self, leaf: &[u8], tree: &Tree, conversion: &Conversion) -> rustix::io::Result<&OwnedFd> {
        if !self.open.contains_key(leaf) {
            if self.open.len() >= LEAVES_OPEN_MAX {
                self.open.clear();
            }
            let staging = conversion.staging()?;
            let opened = match tree.open_hidden(staging, leaf, OFlags::PATH) {
                Err(Errno::NOENT) => {
                    tree.make_level(staging, &conversion.directory, leaf)?;
                    tree.open_hidden(staging, leaf, OFlags::PATH)?
                }
                opened => opened?,
            };
            self.open.insert(leaf.to_vec(), opened);
        }
        Ok(&self.open[leaf])
    }
}
