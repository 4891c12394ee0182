//! Turns a flat directory into a managed one and back, offline: every entry by one rename.
//!
//! ```text
//!            sort ->                 bit on ->               lift ->
//!   Flat ------------- Sorting ---------------- Lifting ------------- Managed
//!            <- spread               <- bit off              <- stow
//! ```
//!
//! The staging directory, `DIR/.crumb-converting-345` (the layout is in its name), is all the journal there is. It is
//! made first and removed last, and while it is there the set-user-id bit tells what `DIR/345` is:
//!
//! | state | bit | staging | what lies in DIR | in the staging directory | `manage` goes on by | `unmanage` by |
//! |---|---|---|---|---|---|---|
//! | Flat | off | none | all entries | | making it | nothing |
//! | Sorting | off | there | entries: `345` is a user's | the others, in leaves | sort, then the bit | spread |
//! | Lifting | on | there | hidden level: `345` is ours | the rest of the hidden level | lift | stow, then no bit |
//! | Managed | on | none | hidden level | | nothing | making it |
//!
//! A user's own `345` or `aaa` is therefore never mistaken: the bit changes only when DIR holds nothing but the staging
//! directory. Either command finishes what either began, so a conversion that cannot go on (no room, an immutable
//! file) can go back. The staging directory also holds an empty file with DIR's times, which are put back at the end.
//!
//! Power failures: journaling file systems keep the order of renames, so that what is left is the state after some
//! step. Where order matters to us (around the bit, and at the end) everything is flushed by syncfs besides.
//!
//! Always holds: an entry is in one place at any time, under its own name, as the same inode; nothing is ever
//! replaced; DIR stays the same inode, with its owner, permissions, lists and other attributes.
//! Not here: what a mount does, converting while mounted.

pub(crate) mod calls;
pub(crate) mod error;
pub(crate) mod guard;
#[cfg(test)]
mod killed;
pub(crate) mod level_attributes;
pub(crate) mod levels;
pub(crate) mod lost;
mod moves;
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
pub use self::state::State;
use self::state::{Names, Survey, open_own, staging_name};
use crate::managed::{LAYOUT_UNMARKED, MANAGED_BIT};

/// Staging directories are called this and the layout's name, with `-` for `/`. No entry may begin so.
pub const STAGING_PREFIX: &str = ".crumb-converting-";
/// The empty file in a staging directory that has the times of the directory above.
pub(crate) const KEEPSAKE: &CStr = c".times";

const MODE_BITS: u32 = 0o7777;

/// What a directory is to become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// In this layout; none: as it was begun, or 345.
    Managed(Option<Layout>),
    /// As any directory.
    Flat,
}

/// How far long work has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Which.
    pub work: Work,
    /// Entries or subdirectories moved by this run.
    pub done: u64,
    /// Of how many, as far as known.
    pub of: u64,
}

/// Long work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Entries into their subdirectories.
    Sort,
    /// Subdirectories to their places.
    Lift,
    /// Subdirectories out of their places.
    Stow,
    /// Entries out of their subdirectories.
    Spread,
}

/// Who hears of progress, and who ends it early.
pub struct Watch<'a> {
    /// Hears of it now and then.
    pub progress: &'a mut dyn FnMut(Progress),
    /// Ends the work soon when raised; the same command continues from there.
    pub stop: &'a AtomicBool,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Converted {
    /// As it was found.
    pub before: State,
    /// As it is left; half way only when it was stopped.
    pub after: State,
    /// Entries of users moved by this run.
    pub entries_moved: u64,
    /// Subdirectories of the hidden level moved by this run.
    pub subdirectories_moved: u64,
}

/// What a conversion would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// As it is.
    pub before: State,
    /// As it would be.
    pub after: State,
    /// What lies in the directory now: entries or, when it is managed, subdirectories.
    pub entries: u64,
}

/// Converts a directory of the lower tree.
///
/// # Errors
/// When it is refused, and nothing was done; or when a step failed, and the same call continues from there.
pub fn convert(path: &Path, goal: Goal, watch: &mut Watch<'_>) -> Result<Converted, ConvertError> {
    convert_by(path, goal, watch, &mut Kernel)
}

/// Looks at what [`convert`] would do and whether it would be refused; changes nothing.
///
/// # Errors
/// As [`convert`] before its first step.
pub fn plan(path: &Path, goal: Goal) -> Result<Plan, ConvertError> {
    let guard = Guard::take(path)?;
    let survey = Survey::of(&guard.path, &guard.directory)?;
    let after = aim(&guard, &survey, goal)?;
    refuse_foreign(&guard, survey.state)?;
    Ok(Plan { before: survey.state, after, entries: survey.entries })
}

/// In which state a directory is.
///
/// # Errors
/// When it cannot be read, or holds names that only a conversion may use.
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

/// The same of a directory that a walk without symbolic links has found at this path.
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
    let mut converted = Converted { before: survey.state, after, entries_moved: 0, subdirectories_moved: 0 };
    if survey.state == after {
        if after != State::Flat {
            refuse_foreign(guard, survey.state)?;
        } else {
            // What a conversion leaves that was killed before its first move.
            let unmark = Call::Mark { of: guard.directory.as_fd(), layout: None };
            let doing = "take its layout's mark away";
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

/// From state to state.
fn go(mover: &mut Mover<'_, '_>, survey: &Survey, after: State, layout: Layout) -> Result<(), Cut> {
    let is_sorted_below = matches!(survey.state, State::Flat | State::Sorting(_));
    match after {
        State::Managed(_) => {
            if is_sorted_below {
                mover.sort(survey.entries)?;
                switch(mover, Some(layout))?;
            }
            mover.lift()?;
        }
        _ => {
            if !is_sorted_below {
                mover.stow()?;
                switch(mover, None)?;
            }
            mover.spread()?;
            let of = mover.directory.as_fd();
            step(mover, "take its layout's mark away", &Call::Mark { of, layout: None })?;
        }
    }
    finish(mover)
}

/// Sets or clears the bit, when the directory holds nothing but the staging directory.
fn switch(mover: &mut Mover<'_, '_>, layout: Option<Layout>) -> Result<(), Cut> {
    let of = mover.directory.as_fd();
    // On the disk before the bit: what lay here is in the staging directory.
    step(mover, "flush what was moved", &Call::Sync { of })?;
    let stat = rustix::fs::fstat(of).map_err(|e| failed_at(mover.path, b"", "read its mode", e))?;
    let mode = stat.st_mode & MODE_BITS & !MANAGED_BIT;
    let mode = if layout.is_some() { mode | MANAGED_BIT } else { mode };
    if layout.is_some() {
        step(mover, "mark it with its layout", &Call::Mark { of, layout })?;
    }
    step(mover, "set or clear its set-user-id bit", &Call::Mode { of, mode })?;
    // And the bit before anything that it gives a meaning to.
    step(mover, "flush its set-user-id bit", &Call::Sync { of })
}

/// Removes the staging directory, and puts back the times of the one above.
fn finish(mover: &mut Mover<'_, '_>) -> Result<(), Cut> {
    let times =
        rustix::fs::statat(&mover.staging, KEEPSAKE, AtFlags::SYMLINK_NOFOLLOW).map(|stat| times_of(&stat));
    let staging = mover.staging.try_clone().map_err(|source| {
        Cut::Failed(ConvertError::Step { path: mover.staging_path.clone(), doing: "open it", source })
    })?;
    let of = mover.directory.as_fd();
    if times.is_ok() {
        step(mover, "remove its keepsake", &Call::RemoveFile { at: staging.as_fd(), name: KEEPSAKE })?;
    }
    let name = staging_name(mover.levels.layout());
    step(mover, "remove the staging directory", &Call::RemoveDirectory { at: of, name: &name })?;
    if let Ok(times) = times {
        step(mover, "put its times back", &Call::Times { of, times: &times })?;
    }
    step(mover, "flush the end", &Call::Sync { of })
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

/// The state to go to, or why not.
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
        let layout = asked.unwrap_or(LAYOUT_UNMARKED);
        refuse_no_room(guard, layout)?;
        return Ok(State::Managed(layout));
    }
    let there = survey.state.layout();
    match asked {
        Some(asked) if asked != there => Err(ConvertError::OtherLayout { path: path(), there, asked }),
        _ => Ok(State::Managed(there)),
    }
}

/// Subdirectories take an inode and a block each; so do the staging directory and the file in it.
fn refuse_no_room(guard: &Guard, layout: Layout) -> Result<(), ConvertError> {
    let subdirectories = subdirectories_to_make(&guard.directory, layout);
    let subdirectories = subdirectories
        .map_err(|error| ConvertError::Open { path: guard.path.clone(), source: error.into() })?;
    let needed = subdirectories + 2;
    let Ok(space) = rustix::fs::fstatvfs(&guard.directory) else { return Ok(()) };
    let refused = |free, what| Err(ConvertError::NoRoom { path: guard.path.clone(), needed, free, what });
    // Some file systems have no fixed number of inodes and say that they have none in all.
    if space.f_files > 0 && space.f_favail < needed {
        return refused(space.f_favail, "inodes");
    }
    if space.f_blocks > 0 && space.f_bavail < needed {
        return refused(space.f_bavail, "blocks");
    }
    Ok(())
}

/// Subdirectories that the entries of a flat directory are sorted into: the hidden level is made as entries need it.
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

/// An entry with a name of ours in the hidden level could not be told from the staging directory when it comes out.
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

/// Directories of other users in the places of hidden ones: they are neither looked into nor given away. The owner of
/// the directory, whose those are that are part of it.
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
    if matches!(state, State::Managed(_) | State::Lifting(_))
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

/// The first directory in the place of a hidden one that belongs to somebody else, and its owner.
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
    /// Opens the staging directory, made now when the directory is in a state of rest.
    fn staging(&mut self, state: State) -> Result<OwnedFd, ConvertError> {
        let (at, name): (_, CString) = (self.guard.directory.as_fd(), staging_name(self.layout));
        let failed = |doing, error: Errno| failed_at(&self.guard.path, b"", doing, error);
        let times =
            rustix::fs::fstat(at).map(|stat| times_of(&stat)).map_err(|e| failed("read its times", e))?;
        if !state.is_half_way() {
            if state == State::Flat {
                // First of all, so that a file system that cannot keep it refuses before anything has moved.
                let mark = Call::Mark { of: at, layout: Some(self.layout) };
                self.calls.call(&mark).map_err(|e| failed("mark it with its layout", e))?;
            }
            let make = Call::MakeDirectory { at, name: &name };
            self.calls.call(&make).map_err(|e| failed("make the staging directory", e))?;
        }
        let staging = open_own(at, &name, self.owner).map_err(|e| failed("open the staging directory", e))?;
        // Also when it was there: killed between the two, it would look like somebody else's once anything is in it.
        let keepsake = rustix::fs::statat(&staging, KEEPSAKE, AtFlags::SYMLINK_NOFOLLOW);
        if keepsake.is_err_and(|error| error == Errno::NOENT) {
            let make = Call::MakeFile { at: staging.as_fd(), name: KEEPSAKE };
            self.calls.call(&make).map_err(|e| failed("keep its times", e))?;
            let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let opened = rustix::fs::openat(&staging, KEEPSAKE, flags, Mode::empty());
            let opened = opened.map_err(|e| failed("keep its times", e))?;
            // The directory's owner may put something else there meanwhile.
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
