//! Converts a directory while programs use it through the mount: by the daemon that serves the mount, and by no other.
//!
//! The states below, the steps between them and what a kill leaves are those of a conversion offline (see [`super`]), so
//! either can finish what the other began. What is new is that operations go on meanwhile:
//!
//! ```text
//! FlatStill -> EntriesIn -> LevelsOutReady -> LevelsOut -> ManagedStill          (crumb manage --online)
//! ManagedStill -> LevelsInReady -> LevelsIn -> EntriesOutReady -> EntriesOut -> FlatStill      (unmanage)
//! ```
//!
//! `tree::converting` says what operations do at each of them. Here:
//!
//! 1. Refuse what cannot be converted; lock the directory as offline, and register the conversion.
//! 2. Drain: every operation knows of it now. Have the kernel drop the names that it believes. Record the listings under way;
//!    create the staging directory.
//! 3. For each step: publish it, drain, move. A batch of moves takes [`SLICE`]; when programs were at work meanwhile, a
//!    rest of the same length follows.
//! 4. Remove the staging directory, publish the end, drain all gates, forget the conversion.
//!
//! Stopped or failed half way, the conversion stays registered: programs see the whole directory, and the next request
//! continues or reverses it. A killed daemon leaves a directory half converted, which no mount shows until one of the
//! commands has finished it.
//! Not here: who may ask (`online`).

mod moves;

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use files::Layout;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, Timespec};
use rustix::io::Errno;

use self::moves::Moves;
use super::calls::{Call, Calls as _, Kernel};
use super::guard::Guard;
use super::level_attributes::LevelAttributes;
use super::levels::{Levels, joined};
use super::moves::{Cut, failed_at};
use super::state::{Names, State, Survey, is_reserved, open_own, staging_name};
use super::{
    Conversion as Beginning, ConvertError, Converted, Goal, MODE_BITS, Plan, TIMES_FILE, aim, planned,
    refuse_foreign,
};
use crate::managed::MANAGED_BIT;
use crate::online::Run;
use crate::tree::Tree;
use crate::tree::converting::{Conversion, Step};
use crate::tree::nodes::Kind;

/// How long a batch of moves takes, and how long the rest after it when programs work.
const SLICE: Duration = Duration::from_millis(2);

/// What is converted: a directory that no other program converts, or one of this mount that was stopped half way.
pub(crate) enum Subject {
    New { id: u64, directory: Arc<OwnedFd>, guard: Guard },
    Stopped(Arc<Conversion>),
}

impl Subject {
    fn guard(&self) -> &Guard {
        match self {
            Self::New { guard, .. } => guard,
            Self::Stopped(conversion) => &conversion.guard,
        }
    }
}

/// Reports what [`convert`] would do and whether it would be refused; changes nothing.
pub(crate) fn plan(subject: &Subject, goal: Goal) -> Result<Plan, ConvertError> {
    let guard = subject.guard();
    let survey = Survey::of(&guard.path, &guard.directory)?;
    let (before, after) = (survey.state, aim(guard, &survey, goal)?);
    refuse_foreign(guard, before)?;
    if matches!(before, State::Managed(layout) if State::Managed(layout) != after) {
        refuse_strays(guard, before.layout())?;
    }
    planned(guard, &survey, after)
}

/// Converts it, to the end or until it is stopped. `drop_names` has the kernel drop the names that it believes, when those looked up
/// from then on are believed for a short time only.
pub(crate) fn convert(
    tree: &Tree,
    subject: Subject,
    goal: Goal,
    run: &Run,
    drop_names: &dyn Fn(),
) -> Result<Converted, ConvertError> {
    let guard = subject.guard();
    let survey = Survey::of(&guard.path, &guard.directory)?;
    let before = survey.state;
    let after = aim(guard, &survey, goal)?;
    let mut converted = Converted::none_yet(&survey, after);
    let owner = refuse_foreign(guard, before)?;
    if before == after {
        return Ok(converted);
    }
    let layout = if after == State::Flat { before.layout() } else { after.layout() };
    if matches!(before, State::Managed(_)) {
        refuse_strays(guard, layout)?;
    }
    let conversion = register(tree, subject, first_step(before, after), layout, owner)?;
    // Names that it believes for minutes would outlive the moves: what others change in the hidden level is reported by other names.
    drop_names();
    let path = conversion.guard.path.clone();
    let mut moves = Moves::new(tree, &conversion, run, owner, survey.entries);
    let ended = prepare(tree, &conversion, before, owner).and_then(|()| go(&mut moves, before, after));
    converted.entries_moved = moves.entries_moved;
    converted.subdirectories_moved = moves.levels_moved;
    match ended {
        Ok(()) => {
            forget(tree, &conversion, after);
            Ok(converted)
        }
        Err(_) if conversion.is_removed() => Err(ConvertError::Removed { path }),
        Err(Cut::Stopped) => {
            converted.after = half_way(&conversion);
            Ok(converted)
        }
        Err(Cut::Failed(error)) => {
            give_up(tree, &conversion, before);
            Err(error)
        }
    }
}

fn first_step(before: State, after: State) -> Step {
    match (before, after) {
        (State::Flat, _) => Step::FlatStill,
        (State::Managed(_), _) => Step::ManagedStill,
        (State::MovingEntries(_), State::Flat) => Step::EntriesOut,
        (State::MovingEntries(_), _) => Step::EntriesIn,
        (State::MovingLevels(_), State::Flat) => Step::LevelsIn,
        (State::MovingLevels(_), _) => Step::LevelsOut,
    }
}

/// From now on every operation in the directory knows of the conversion.
fn register(
    tree: &Tree,
    subject: Subject,
    step: Step,
    layout: Layout,
    owner: u32,
) -> Result<Arc<Conversion>, ConvertError> {
    let conversion = match subject {
        Subject::Stopped(conversion) => {
            conversion.publish(step);
            conversion
        }
        Subject::New { id, directory, guard } => {
            let conversion = Arc::new(Conversion::new(id, layout, directory, guard, step));
            if !matches!(step, Step::FlatStill | Step::ManagedStill) {
                // Of a daemon that was killed, or of a conversion offline: what is made in it must be as in the directory.
                adopt(&conversion, owner)?;
            }
            tree.conversions.add(Arc::clone(&conversion));
            conversion
        }
    };
    tree.conversions.gates.drain(conversion.id);
    tree.holders.forget(conversion.id);
    Ok(conversion)
}

/// Takes over a staging directory that somebody else has left.
fn adopt(conversion: &Conversion, owner: u32) -> Result<(), ConvertError> {
    let path = &conversion.guard.path;
    let name = staging_name(conversion.layout);
    let failed = |doing, error| failed_at(path, name.as_bytes(), doing, error);
    let staging = open_own(&conversion.directory, &name, owner).map_err(|e| failed("open it", e))?;
    let attributes = LevelAttributes::for_level_of(&conversion.directory)
        .map_err(|e| failed("read its permissions", e))?;
    let levels = Levels::of(conversion.layout);
    like_the_directory(&staging, b"", &levels, owner, &attributes)
        .map_err(|e| failed("give a subdirectory its owner and permissions", e))?;
    let times = rustix::fs::statat(&staging, TIMES_FILE, AtFlags::SYMLINK_NOFOLLOW);
    conversion.set_staging(staging);
    conversion.keep_modified().map_err(|e| failed("read its times", e))?;
    if let Ok(times) = times {
        conversion.set_modified(Timespec { tv_sec: times.st_mtime, tv_nsec: times.st_mtime_nsec as _ });
    }
    Ok(())
}

fn like_the_directory(
    level: &OwnedFd,
    at: &[u8],
    levels: &Levels,
    owner: u32,
    attributes: &LevelAttributes,
) -> rustix::io::Result<()> {
    for entry in Names::of(level)? {
        let (name, kind) = entry?;
        let below = joined(at, name.to_bytes());
        if kind != FileType::Directory || !levels.is_level(&below) {
            continue;
        }
        let inner = open_own(level, &name, owner)?;
        if !levels.is_leaf(&below) {
            like_the_directory(&inner, &below, levels, owner, attributes)?;
        }
        attributes.apply_to(&inner, &mut Kernel)?;
    }
    Ok(())
}

/// Before the first move: listings under way get a recording, and the staging directory is created.
fn prepare(tree: &Tree, conversion: &Conversion, before: State, owner: u32) -> Result<(), Cut> {
    let path = &conversion.guard.path;
    let failed = |doing, error| Cut::from(failed_at(path, b"", doing, error));
    if !before.is_half_way() {
        let layout = matches!(before, State::Managed(_)).then_some(conversion.layout);
        tree.record_listings(conversion.id, layout).map_err(|e| failed("record its listings", e))?;
        conversion.keep_modified().map_err(|e| failed("read its times", e))?;
    }
    // Also half way, when it was left without its times file.
    let (guard, layout) = (&conversion.guard, conversion.layout);
    let staging = Beginning { guard, layout, owner, calls: &mut Kernel }.staging(before)?;
    conversion.set_staging(staging);
    Ok(())
}

/// Takes the steps from the state found to `after`.
fn go(moves: &mut Moves<'_>, before: State, after: State) -> Result<(), Cut> {
    let is_sorted_below = matches!(before, State::Flat | State::MovingEntries(_));
    if let State::Managed(layout) = after {
        if is_sorted_below {
            enter(moves, Step::EntriesIn);
            moves.entries_in()?;
            switch(moves, Some(layout))?;
            enter(moves, Step::LevelsOutReady);
        }
        enter(moves, Step::LevelsOut);
        moves.levels_out()?;
        enter(moves, Step::ManagedStill);
    } else {
        if !is_sorted_below {
            if matches!(before, State::Managed(_)) {
                enter(moves, Step::LevelsInReady);
            }
            enter(moves, Step::LevelsIn);
            moves.levels_in()?;
            switch(moves, None)?;
            enter(moves, Step::EntriesOutReady);
        }
        enter(moves, Step::EntriesOut);
        moves.entries_out()?;
        enter(moves, Step::FlatStill);
        let of = moves.conversion.directory.as_fd();
        call(moves.conversion, "remove its layout mark", &Call::Mark { of, layout: None })?;
    }
    finish(moves.conversion)
}

fn enter(moves: &Moves<'_>, step: Step) {
    moves.conversion.publish(step);
    moves.tree.conversions.gates.drain(moves.conversion.id);
}

/// Sets or clears the bit. The directory holds nothing but the staging directory now.
fn switch(moves: &Moves<'_>, layout: Option<Layout>) -> Result<(), Cut> {
    let conversion = moves.conversion;
    let of = conversion.directory.as_fd();
    let path = &conversion.guard.path;
    let failed = |doing, error| Cut::from(failed_at(path, b"", doing, error));
    // As offline: the moves must reach the disk before the bit does, and the bit before the moves that depend on it.
    let to_flush = conversion.to_read().map_err(|e| failed("open it", e))?;
    call(conversion, "flush what was moved", &Call::Sync { of: to_flush.as_fd() })?;
    {
        // A program may be changing the mode.
        let _paused = conversion.pause();
        if conversion.is_removed() {
            return Err(Cut::Stopped);
        }
        crate::tree::hidden::only_reserved(&conversion.directory)
            .map_err(|_| ConvertError::Beside { path: path.clone() })?;
        let stat = rustix::fs::fstat(of).map_err(|e| failed("read its mode", e))?;
        let mode = stat.st_mode & MODE_BITS & !MANAGED_BIT;
        let mode = if layout.is_some() { mode | MANAGED_BIT } else { mode };
        if layout.is_some() {
            call(conversion, "mark it with its layout", &Call::Mark { of, layout })?;
        }
        call(conversion, "set or clear its set-user-id bit", &Call::Mode { of: to_flush.as_fd(), mode })?;
    }
    call(conversion, "flush its set-user-id bit", &Call::Sync { of: to_flush.as_fd() })
}

/// Removes the staging directory, and gives the directory its times.
fn finish(conversion: &Conversion) -> Result<(), Cut> {
    let path = &conversion.guard.path;
    let failed = |doing, error| Cut::from(failed_at(path, b"", doing, error));
    let to_flush = conversion.to_read().map_err(|e| failed("open it", e))?;
    {
        let _paused = conversion.pause();
        if conversion.is_removed() {
            return Err(Cut::Stopped);
        }
        let staging = conversion.staging().map_err(|e| failed("find its staging directory", e))?;
        let (at, name) = (staging.as_fd(), TIMES_FILE);
        call(conversion, "remove the file that kept its times", &Call::RemoveFile { at, name })?;
        let (at, name) = (conversion.directory.as_fd(), staging_name(conversion.layout));
        let remove = Call::RemoveDirectory { at, name: &name };
        call(conversion, "remove the staging directory", &remove)?;
        conversion.give_modified_back().map_err(|e| failed("restore its times", e))?;
    }
    call(conversion, "flush the last steps", &Call::Sync { of: to_flush.as_fd() })
}

fn call(conversion: &Conversion, doing: &'static str, call: &Call<'_>) -> Result<(), Cut> {
    Kernel.call(call).map_err(|error| failed_at(&conversion.guard.path, b"", doing, error).into())
}

/// The directory is what it is below: no operation needs the conversion any more.
fn forget(tree: &Tree, conversion: &Arc<Conversion>, state: State) {
    let (step, kind) = match state {
        State::Managed(layout) => (Step::OverManaged, Kind::Managed(layout)),
        _ => (Step::OverFlat, Kind::Plain),
    };
    conversion.publish(step);
    // Of all directories: a look-up in its parent may still have to note what it is.
    tree.conversions.gates.drain_all();
    tree.nodes.set_kind(conversion.id, kind);
    tree.conversions.remove(conversion);
    tree.holders.forget(conversion.id);
}

/// After a failure. Before the first move, the directory is left as it was; later the conversion stays, to be continued.
fn give_up(tree: &Tree, conversion: &Arc<Conversion>, before: State) {
    if before.is_half_way() || !matches!(conversion.step(), Step::FlatStill | Step::ManagedStill) {
        return;
    }
    let removed = {
        let _paused = conversion.pause();
        let staging = conversion.staging();
        staging.map_or(true, is_bare)
    };
    let name = staging_name(conversion.layout);
    if let Ok(staging) = conversion.staging()
        && removed
    {
        // Both may be missing.
        let _ = rustix::fs::unlinkat(staging, TIMES_FILE, AtFlags::empty());
    }
    let gone = rustix::fs::unlinkat(&*conversion.directory, name.as_c_str(), AtFlags::REMOVEDIR);
    if removed && matches!(gone, Ok(()) | Err(Errno::NOENT)) {
        if before == State::Flat {
            let unmark = Call::Mark { of: conversion.directory.as_fd(), layout: None };
            if let Err(errno) = Kernel.call(&unmark) {
                tracing::warn!("{}: its layout mark stays: {errno}", conversion.guard.path.display());
            }
        }
        let _ = conversion.give_modified_back();
        forget(tree, conversion, before);
    }
}

fn is_bare(staging: &OwnedFd) -> bool {
    let is_times = |entry: rustix::io::Result<(std::ffi::CString, FileType)>| {
        entry.is_ok_and(|(name, _)| name.as_c_str() == TIMES_FILE)
    };
    Names::of(staging).is_ok_and(|mut names| names.all(is_times))
}

fn half_way(conversion: &Conversion) -> State {
    match conversion.step() {
        Step::EntriesIn | Step::EntriesOut | Step::EntriesOutReady => State::MovingEntries(conversion.layout),
        _ => State::MovingLevels(conversion.layout),
    }
}

/// Refuses entries beside the hidden level: no program sees them, and with their move they would appear.
fn refuse_strays(guard: &Guard, layout: Layout) -> Result<(), ConvertError> {
    let failed = |error: Errno| ConvertError::Open { path: guard.path.clone(), source: error.into() };
    let levels = Levels::of(layout);
    for entry in Names::of(&guard.directory).map_err(failed)? {
        let (name, kind) = entry.map_err(failed)?;
        let is_level = kind == FileType::Directory && levels.is_level(name.to_bytes());
        if !is_level && !is_reserved(name.to_bytes()) {
            return Err(ConvertError::Beside { path: guard.path.clone() });
        }
    }
    Ok(())
}

/// Opens the file that keeps a directory's times for a conversion that is killed.
fn times_file(staging: &OwnedFd) -> Option<OwnedFd> {
    let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    rustix::fs::openat(staging, TIMES_FILE, flags, Mode::empty()).ok()
}

/// The path of an entry, for an error.
fn entry_path(path: &Path, below: &[u8]) -> std::path::PathBuf {
    use std::os::unix::ffi::OsStrExt as _;
    path.join(std::ffi::OsStr::from_bytes(below))
}

/// Whether somebody wants the conversion to end.
fn is_stopped(run: &Run, conversion: &Conversion) -> bool {
    run.stop.load(Ordering::Relaxed) || conversion.is_removed()
}

/// A lock that only this module takes beside the tree.
fn pause_of(conversion: &Conversion) -> std::sync::MutexGuard<'_, ()> {
    conversion.moving()
}
