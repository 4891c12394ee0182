//! Turns a flat directory into a managed one and back, offline, with one rename per entry.
//!
//! `manage` takes these steps from left to right, `unmanage` from right to left:
//!
//! ```text
//!   Flat <--1--> MovingEntries <--2--> MovingLevels <--3--> Managed
//! ```
//!
//! 1. `entries_into_staging` moves the entries into subdirectories of the staging directory; `entries_out_of_staging`
//!    moves them back.
//! 2. `switch` sets or clears the set-user-id bit.
//! 3. `levels_out_of_staging` moves the subdirectories up into DIR; `levels_into_staging` moves them back.
//!
//! The staging directory, `DIR/.crumb-converting-345` (its name holds the layout), is the only journal. It is
//! made first and removed last. While it exists, the set-user-id bit says what `DIR/345` is:
//!
//! | state | bit | staging | DIR holds | the staging directory holds | next step of `manage` | of `unmanage` |
//! |---|---|---|---|---|---|---|
//! | Flat | off | missing | all entries | | create it | none |
//! | MovingEntries | off | exists | entries; `345` is a user's | the other entries, in subdirectories | 1, then 2 | 1 |
//! | MovingLevels | on | exists | subdirectories; `345` is ours | the other subdirectories | 3 | 3, then 2 |
//! | Managed | on | missing | all subdirectories | | none | create it |
//!
//! The bit changes only while DIR holds nothing but the staging directory, so a user's own `345` or `aaa` is never
//! mistaken for ours. Either command finishes what the other began: a conversion that cannot continue (no space, an
//! immutable file) can be reversed. The staging directory also holds an empty file with DIR's times (the times file), from
//! which they are restored at the end.
//!
//! Power failures: journaling file systems keep the order of renames, so a crash leaves the state after some
//! step. Where we depend on order (around the bit, and at the end) we also call syncfs.
//!
//! Always holds: an entry is in one place at any time, under its own name, as the same inode; no rename replaces
//! anything; DIR stays the same inode, with its owner, permissions, access lists and other attributes.
//! Not here: what a mount does; converting while mounted (`online`).

pub(crate) mod calls;
pub(crate) mod error;
pub(crate) mod guard;
#[cfg(test)]
mod killed;
pub(crate) mod level_attributes;
pub(crate) mod levels;
pub(crate) mod lost;
mod moves;
mod names;
pub(crate) mod online;
pub(crate) mod state;

use std::collections::HashSet;
use std::ffi::{CStr, CString, OsStr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use files::Layout;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Stat, Timespec, Timestamps};
use rustix::io::Errno;

use self::calls::{Call, Calls, Kernel};
pub use self::error::ConvertError;
use self::guard::Guard;
use self::levels::Levels;
use self::moves::{Collisions, Cut, Mover, failed_at};
pub use self::names::NameSample;
pub use self::state::State;
use self::state::{Names, Survey, open_own, staging_name};
use crate::managed::MANAGED_BIT;

/// A staging directory's name is this prefix and the layout's name, with `-` for `/`. No entry's name may begin with it.
pub const STAGING_PREFIX: &str = ".crumb-converting-";
/// The empty file in a staging directory whose times are those of the directory above.
pub(crate) const TIMES_FILE: &CStr = c".times";

const MODE_BITS: u32 = 0o7777;

/// What a directory is to become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// Managed in this layout. `None`: the layout of the unfinished conversion, or else the one that suits the names
    /// ([`NameSample::default_layout`]).
    Managed(Option<Layout>),
    /// An ordinary directory.
    Flat,
}

/// How far a conversion has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The step under way.
    pub work: Work,
    /// Entries or subdirectories that this run has moved.
    pub done: u64,
    /// How many there are to move, as far as known.
    pub of: u64,
}

/// A step of a conversion that can take long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Entries move into subdirectories of the staging directory.
    EntriesIntoStaging,
    /// Subdirectories move from the staging directory up into the directory.
    LevelsOutOfStaging,
    /// Subdirectories move from the directory into the staging directory.
    LevelsIntoStaging,
    /// Entries move out of the staging directory's subdirectories.
    EntriesOutOfStaging,
}

/// How a caller follows a conversion and stops it.
pub struct Watch<'a> {
    /// Called every 64 moves or so.
    pub progress: &'a mut dyn FnMut(Progress),
    /// Set it to stop the work soon; the same command later continues from there.
    pub stop: &'a AtomicBool,
}

/// The result of a conversion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Converted {
    /// The state in which it was found.
    pub before: State,
    /// The state in which it is left: unfinished only if it was stopped.
    pub after: State,
    /// Entries of users moved by this run.
    pub entries_moved: u64,
    /// Subdirectories of the hidden level moved by this run.
    pub subdirectories_moved: u64,
    /// The directory was flat, and most of its names are not numbers.
    pub are_not_numbers: bool,
}

impl Converted {
    fn none_yet(survey: &Survey, after: State) -> Self {
        let are_not_numbers = survey.are_not_numbers();
        Self { before: survey.state, after, entries_moved: 0, subdirectories_moved: 0, are_not_numbers }
    }
}

/// What a conversion would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Its state now.
    pub before: State,
    /// The state it would reach.
    pub after: State,
    /// How many entries the directory holds now or, when it is managed, subdirectories.
    pub entries: u64,
    /// Subdirectories that a flat directory's entries would be spread over; 0 for any other.
    pub subdirectories: u64,
    /// The directory is flat, and most of its names are not numbers.
    pub are_not_numbers: bool,
}

/// Converts a directory of the lower tree.
///
/// # Errors
/// When the conversion is refused (nothing has changed then), or a step fails (the same call continues from there).
pub fn convert(path: &Path, goal: Goal, watch: &mut Watch<'_>) -> Result<Converted, ConvertError> {
    convert_by(path, goal, watch, &mut Kernel)
}

/// Reports what [`convert`] would do and whether it would be refused; changes nothing.
///
/// # Errors
/// As [`convert`] before its first step.
pub fn plan(path: &Path, goal: Goal) -> Result<Plan, ConvertError> {
    let guard = Guard::take(path)?;
    let survey = Survey::of(&guard.path, &guard.directory)?;
    let after = aim(&guard, &survey, goal)?;
    refuse_foreign(&guard, survey.state)?;
    planned(&guard, &survey, after)
}

fn planned(guard: &Guard, survey: &Survey, after: State) -> Result<Plan, ConvertError> {
    let subdirectories = match (survey.state, after) {
        (State::Flat, State::Managed(layout)) => subdirectories_to_make(&guard.directory, layout)
            .map_err(|error| ConvertError::Open { path: guard.path.clone(), source: error.into() })?,
        _ => 0,
    };
    let are_not_numbers = survey.are_not_numbers();
    Ok(Plan { before: survey.state, after, entries: survey.entries, subdirectories, are_not_numbers })
}

/// The state of a directory.
///
/// # Errors
/// When the directory cannot be read, or holds names that only a conversion may use.
pub fn state_of(path: &Path) -> Result<State, ConvertError> {
    let opened = crate::managed::open_directory(path);
    let directory = opened.map_err(|source| ConvertError::Open { path: path.to_owned(), source })?;
    Ok(Survey::of(path, &directory)?.state)
}

pub(crate) fn convert_by(
    path: &Path,
    goal: Goal,
    watch: &mut Watch<'_>,
    calls: &mut dyn Calls,
) -> Result<Converted, ConvertError> {
    convert_guarded(&Guard::take(path)?, goal, watch, calls)
}

/// Like [`convert`], for a directory that a walk without symbolic links has found at this path.
pub(crate) fn convert_as_is(
    path: &Path,
    goal: Goal,
    watch: &mut Watch<'_>,
) -> Result<Converted, ConvertError> {
    convert_guarded(&Guard::take_as_is(path)?, goal, watch, &mut Kernel)
}

fn convert_guarded(
    guard: &Guard,
    goal: Goal,
    watch: &mut Watch<'_>,
    calls: &mut dyn Calls,
) -> Result<Converted, ConvertError> {
    let survey = Survey::of(&guard.path, &guard.directory)?;
    let after = aim(guard, &survey, goal)?;
    let mut converted = Converted::none_yet(&survey, after);
    if survey.state == after {
        if after != State::Flat {
            refuse_foreign(guard, survey.state)?;
        } else {
            // A conversion that was killed before its first move leaves the mark.
            let unmark = Call::Mark { of: guard.directory.as_fd(), layout: None };
            let doing = "remove its layout mark";
            calls.call(&unmark).map_err(|error| failed_at(&guard.path, b"", doing, error))?;
        }
        return Ok(converted);
    }
    let owner = refuse_foreign(guard, survey.state)?;
    let layout = if after == State::Flat { survey.state.layout() } else { after.layout() };
    let mut conversion = Conversion { guard, layout, owner, calls };
    let staging = conversion.staging(survey.state)?;
    let directory = OwnedFd::from(
        guard
            .directory
            .try_clone()
            .map_err(|source| ConvertError::Open { path: guard.path.clone(), source })?,
    );
    let mut mover = Mover {
        path: &guard.path,
        directory: &directory,
        owner,
        staging,
        staging_path: guard.path.join(OsStr::from_bytes(staging_name(layout).as_bytes())),
        levels: Levels::of(layout),
        calls: conversion.calls,
        watch,
        collisions: Collisions::default(),
        entries_moved: 0,
        levels_moved: 0,
    };
    let ended = go(&mut mover, &survey, after, layout);
    converted.entries_moved = mover.entries_moved;
    converted.subdirectories_moved = mover.levels_moved;
    match ended {
        Ok(()) => Ok(converted),
        Err(Cut::Stopped) => {
            converted.after = Survey::of(&guard.path, &guard.directory)?.state;
            Ok(converted)
        }
        Err(Cut::Failed(error)) => Err(error),
    }
}

/// Takes the steps from the state found to `after`.
fn go(mover: &mut Mover<'_, '_>, survey: &Survey, after: State, layout: Layout) -> Result<(), Cut> {
    let is_sorted_below = matches!(survey.state, State::Flat | State::MovingEntries(_));
    match after {
        State::Managed(_) => {
            if is_sorted_below {
                mover.entries_into_staging(survey.entries)?;
                switch(mover, Some(layout))?;
            }
            mover.levels_out_of_staging()?;
        }
        _ => {
            if !is_sorted_below {
                mover.levels_into_staging()?;
                switch(mover, None)?;
            }
            mover.entries_out_of_staging()?;
            let of = mover.directory.as_fd();
            step(mover, "remove its layout mark", &Call::Mark { of, layout: None })?;
        }
    }
    finish(mover)
}

/// Sets or clears the bit. The directory holds nothing but the staging directory now.
fn switch(mover: &mut Mover<'_, '_>, layout: Option<Layout>) -> Result<(), Cut> {
    let of = mover.directory.as_fd();
    // The moves into the staging directory must reach the disk before the bit does.
    step(mover, "flush what was moved", &Call::Sync { of })?;
    let stat = rustix::fs::fstat(of).map_err(|e| failed_at(mover.path, b"", "read its mode", e))?;
    let mode = stat.st_mode & MODE_BITS & !MANAGED_BIT;
    let mode = if layout.is_some() { mode | MANAGED_BIT } else { mode };
    if layout.is_some() {
        step(mover, "mark it with its layout", &Call::Mark { of, layout })?;
    }
    step(mover, "set or clear its set-user-id bit", &Call::Mode { of, mode })?;
    // The bit must reach the disk before the moves that depend on it.
    step(mover, "flush its set-user-id bit", &Call::Sync { of })
}

/// Removes the staging directory and restores the times of the one above.
fn finish(mover: &mut Mover<'_, '_>) -> Result<(), Cut> {
    let times =
        rustix::fs::statat(&mover.staging, TIMES_FILE, AtFlags::SYMLINK_NOFOLLOW).map(|stat| times_of(&stat));
    let staging = mover.staging.try_clone().map_err(|source| {
        Cut::Failed(ConvertError::Step { path: mover.staging_path.clone(), doing: "open it", source })
    })?;
    let of = mover.directory.as_fd();
    if times.is_ok() {
        step(
            mover,
            "remove the file that kept its times",
            &Call::RemoveFile { at: staging.as_fd(), name: TIMES_FILE },
        )?;
    }
    let name = staging_name(mover.levels.layout());
    step(mover, "remove the staging directory", &Call::RemoveDirectory { at: of, name: &name })?;
    if let Ok(times) = times {
        step(mover, "restore its times", &Call::Times { of, times: &times })?;
    }
    step(mover, "flush the last steps", &Call::Sync { of })
}

fn step(mover: &mut Mover<'_, '_>, doing: &'static str, call: &Call<'_>) -> Result<(), Cut> {
    let path = mover.path;
    mover.calls.call(call).map_err(|error| Cut::Failed(failed_at(path, b"", doing, error)))
}

fn times_of(stat: &Stat) -> Timestamps {
    let time = |tv_sec: i64, tv_nsec| Timespec { tv_sec, tv_nsec };
    Timestamps {
        last_access: time(stat.st_atime, stat.st_atime_nsec as _),
        last_modification: time(stat.st_mtime, stat.st_mtime_nsec as _),
    }
}

/// The state to reach, or why the conversion is refused.
fn aim(guard: &Guard, survey: &Survey, goal: Goal) -> Result<State, ConvertError> {
    let path = || guard.path.clone();
    if survey.state == State::Flat {
        let lost = lost::lost_bit(&guard.directory);
        let lost = lost.map_err(|error| ConvertError::Open { path: path(), source: error.into() })?;
        if let Some(lost) = lost {
            let lost::Lost { layout, entries, marked } = lost;
            return Err(ConvertError::LostBit { path: path(), layout, entries, marked });
        }
    }
    let asked = match goal {
        Goal::Flat => {
            refuse_reserved_within(guard, survey.state)?;
            return Ok(State::Flat);
        }
        Goal::Managed(Some(Layout::Flat)) => return Err(ConvertError::FlatLayout { path: path() }),
        Goal::Managed(asked) => asked,
    };
    if survey.state == State::Flat {
        let layout = asked.unwrap_or_else(|| survey.names.default_layout());
        refuse_no_room(guard, layout)?;
        return Ok(State::Managed(layout));
    }
    let there = survey.state.layout();
    match asked {
        Some(asked) if asked != there => Err(ConvertError::OtherLayout { path: path(), there, asked }),
        _ => Ok(State::Managed(there)),
    }
}

/// Refuses when inodes or blocks are short: each subdirectory, the staging directory and its times file take one of each.
fn refuse_no_room(guard: &Guard, layout: Layout) -> Result<(), ConvertError> {
    let subdirectories = subdirectories_to_make(&guard.directory, layout);
    let subdirectories = subdirectories
        .map_err(|error| ConvertError::Open { path: guard.path.clone(), source: error.into() })?;
    let needed = subdirectories + 2;
    let Ok(space) = rustix::fs::fstatvfs(&guard.directory) else { return Ok(()) };
    let refused = |free, what| Err(ConvertError::NoRoom { path: guard.path.clone(), needed, free, what });
    // File systems without a fixed number of inodes report a total of 0.
    if space.f_files > 0 && space.f_favail < needed {
        return refused(space.f_favail, "inodes");
    }
    if space.f_blocks > 0 && space.f_bavail < needed {
        return refused(space.f_bavail, "blocks");
    }
    Ok(())
}

/// How many subdirectories the entries of a flat directory need: only those with entries are created.
fn subdirectories_to_make(directory: impl AsFd, layout: Layout) -> rustix::io::Result<u64> {
    let mut paths: HashSet<Vec<u8>> = HashSet::new();
    let mut path = Vec::new();
    for entry in Names::of(directory)? {
        path.clear();
        layout.subdirectory(entry?.0.to_bytes(), &mut path);
        if !paths.contains(&path) {
            let upper = path.iter().position(|byte| *byte == b'/');
            paths.extend(upper.map(|end| path[..end].to_vec()));
            paths.insert(path.clone());
        }
    }
    Ok(paths.len() as u64)
}

/// Refuses an entry in the hidden level that has a staging directory's name: once moved out, it would pass for one.
fn refuse_reserved_within(guard: &Guard, state: State) -> Result<(), ConvertError> {
    let State::Managed(layout) = state else { return Ok(()) };
    for other in Layout::ALL.into_iter().filter(|layout| *layout != Layout::Flat) {
        let mut place = Vec::new();
        layout.place(staging_name(other).as_bytes(), &mut place);
        let name = OsStr::from_bytes(&place);
        if rustix::fs::statat(&guard.directory, name, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            return Err(ConvertError::ReservedName { entry: guard.path.join(name) });
        }
    }
    Ok(())
}

/// Refuses directories of other users in the places of hidden ones: we neither read them nor change their owner.
/// Returns the owner of the directory and thereby of its hidden ones.
fn refuse_foreign(guard: &Guard, state: State) -> Result<u32, ConvertError> {
    let failed = |error: Errno| ConvertError::Open { path: guard.path.clone(), source: error.into() };
    let of = rustix::fs::fstat(&guard.directory).map_err(failed)?.st_uid;
    let foreign = |(below, owner): (Vec<u8>, u32)| ConvertError::Foreign {
        path: guard.path.clone(),
        entry: guard.path.join(OsStr::from_bytes(&below)),
        owner,
        of,
    };
    if state == State::Flat {
        return Ok(of);
    }
    let levels = Levels::of(state.layout());
    if matches!(state, State::Managed(_) | State::MovingLevels(_))
        && let Some(found) = foreign_in(&guard.directory, b"", &levels, of).map_err(failed)?
    {
        return Err(foreign(found));
    }
    if state.is_half_way() {
        let name = staging_name(state.layout());
        let staging = open_own(&guard.directory, &name, of).map_err(failed)?;
        if let Some((below, owner)) = foreign_in(&staging, b"", &levels, of).map_err(failed)? {
            return Err(foreign((levels::joined(name.as_bytes(), &below), owner)));
        }
    }
    Ok(of)
}

/// The first directory in the place of a hidden one that belongs to another user, and that user.
fn foreign_in(
    level: impl AsFd,
    at: &[u8],
    levels: &Levels,
    of: u32,
) -> rustix::io::Result<Option<(Vec<u8>, u32)>> {
    for entry in Names::of(&level)? {
        let (name, kind) = entry?;
        let below = levels::joined(at, name.to_bytes());
        if kind != FileType::Directory || !levels.is_level(&below) {
            continue;
        }
        let owner = rustix::fs::statat(&level, name.as_c_str(), AtFlags::SYMLINK_NOFOLLOW)?.st_uid;
        if owner != of {
            return Ok(Some((below, owner)));
        }
        if !levels.is_leaf(&below) {
            let found = foreign_in(open_own(&level, &name, of)?, &below, levels, of)?;
            if found.is_some() {
                return Ok(found);
            }
        }
    }
    Ok(None)
}

/// The first steps of a conversion.
struct Conversion<'a> {
    guard: &'a Guard,
    layout: Layout,
    owner: u32,
    calls: &'a mut dyn Calls,
}

impl Conversion<'_> {
    /// Opens the staging directory; creates it unless a conversion is under way.
    fn staging(&mut self, state: State) -> Result<OwnedFd, ConvertError> {
        let (at, name): (_, CString) = (self.guard.directory.as_fd(), staging_name(self.layout));
        let failed = |doing, error: Errno| failed_at(&self.guard.path, b"", doing, error);
        let times =
            rustix::fs::fstat(at).map(|stat| times_of(&stat)).map_err(|e| failed("read its times", e))?;
        if !state.is_half_way() {
            if state == State::Flat {
                // First, so that a file system without extended attributes refuses before anything has moved.
                let mark = Call::Mark { of: at, layout: Some(self.layout) };
                self.calls.call(&mark).map_err(|e| failed("mark it with its layout", e))?;
            }
            let make = Call::MakeDirectory { at, name: &name };
            self.calls.call(&make).map_err(|e| failed("make the staging directory", e))?;
        }
        let staging = open_own(at, &name, self.owner).map_err(|e| failed("open the staging directory", e))?;
        // Also in a staging directory that already existed: after a kill between the two steps it has no times file, and
        // with an entry in it, it would not be recognized as ours.
        let times_file = rustix::fs::statat(&staging, TIMES_FILE, AtFlags::SYMLINK_NOFOLLOW);
        if times_file.is_err_and(|error| error == Errno::NOENT) {
            let make = Call::MakeFile { at: staging.as_fd(), name: TIMES_FILE };
            self.calls.call(&make).map_err(|e| failed("keep its times", e))?;
            let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let opened = rustix::fs::openat(&staging, TIMES_FILE, flags, Mode::empty());
            let opened = opened.map_err(|e| failed("keep its times", e))?;
            // The directory's owner may have replaced the file since.
            let is = rustix::fs::fstat(&opened).map_err(|e| failed("keep its times", e))?;
            if (is.st_uid, is.st_nlink) != (self.owner, 1) {
                return Err(failed("keep its times", Errno::PERM));
            }
            let keep = Call::Times { of: opened.as_fd(), times: &times };
            self.calls.call(&keep).map_err(|e| failed("keep its times", e))?;
        }
        Ok(staging)
    }
}
