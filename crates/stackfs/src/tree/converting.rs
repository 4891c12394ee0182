//! Directories that this mount converts while programs use them: which step each is at, and where its entries may be.
//!
//! While a directory is converted, an entry is at one of two sides, and every operation looks at both:
//!
//! | step | look at | make at |
//! |---|---|---|
//! | `FlatStill` | flat | flat |
//! | `EntriesIn` | flat, staged | staged |
//! | `LevelsOutReady` | staged, up | staged |
//! | `LevelsOut` | staged, up | where its top directory is, else up |
//! | `ManagedStill` | up | up |
//! | `LevelsInReady` | up, staged | up |
//! | `LevelsIn` | up, staged | where its top directory is, else staged |
//! | `EntriesOutReady` | staged, flat | staged |
//! | `EntriesOut` | staged, flat | flat |
//!
//! *Flat* is `DIR/123456`, *up* `DIR/345/123456`, *staged* `DIR/.crumb-converting-345/345/123456`. The first side is
//! the one that moves empty, so that what moves between two looks is found at the second.
//!
//! 1. The conversion publishes a step and drains the directory's gate (`gate`): from then on no operation relies on an
//!    earlier step. Each step differs from the one before by so little that operations of both may run side by side.
//! 2. It moves entries in batches of some milliseconds, each entry under the lock of its name. An operation holds the
//!    locks of its names shared; the conversion only ever tries, and holds one at a time, so nothing can deadlock.
//! 3. A listing that begins meanwhile is recorded first (`recording`), with the moves paused.
//!
//! Always holds: a name that exists is at exactly one side; what exists is replaced where it is; what is new is made at the
//! side that fills.
//! Locks: `moving` is held for a batch, for the recording of a listing and for a change of the directory's permissions;
//! it is taken inside a gate and never around a drain. Leaves: the table, `times`.
//! Not here: the moves themselves (`convert::online`).

use std::collections::HashMap;
use std::hash::BuildHasher as _;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use files::Layout;
use rustix::fs::{AtFlags, Mode, OFlags, Statx, Timespec, Timestamps, UTIME_OMIT};
use rustix::io::Errno;

use super::gate::{Gates, Passed};
use super::hidden::top_of;
use super::holders::is_removed;
use super::nodes::{ByInode, Kind, lock};
use super::{Done, Inside, LOOK, Tree, WANTED};
use crate::convert::guard::Guard;
use crate::convert::state::is_reserved;

/// Where an entry of a directory that is being converted can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// In the directory itself.
    Flat,
    /// In its hidden level.
    Up,
    /// In the hidden level of the staging directory.
    Staged,
}

/// Where a new entry is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Makes {
    At(Side),
    /// At the side that has the top directory it belongs in, or else here.
    WithItsTop(Side),
}

/// How far a conversion is, as far as operations are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Step {
    FlatStill,
    EntriesIn,
    LevelsOutReady,
    LevelsOut,
    ManagedStill,
    LevelsInReady,
    LevelsIn,
    EntriesOutReady,
    EntriesOut,
    /// It has ended, and the directory is plain.
    OverFlat,
    /// It has ended, and the directory is managed.
    OverManaged,
}

impl Step {
    const ALL: [Self; 11] = [
        Self::FlatStill,
        Self::EntriesIn,
        Self::LevelsOutReady,
        Self::LevelsOut,
        Self::ManagedStill,
        Self::LevelsInReady,
        Self::LevelsIn,
        Self::EntriesOutReady,
        Self::EntriesOut,
        Self::OverFlat,
        Self::OverManaged,
    ];

    /// The sides that can have an entry; the one that moves empty first.
    pub(crate) fn sides(self) -> &'static [Side] {
        match self {
            Self::FlatStill | Self::OverFlat => &[Side::Flat],
            Self::EntriesIn => &[Side::Flat, Side::Staged],
            Self::LevelsOutReady | Self::LevelsOut => &[Side::Staged, Side::Up],
            Self::ManagedStill | Self::OverManaged => &[Side::Up],
            Self::LevelsInReady | Self::LevelsIn => &[Side::Up, Side::Staged],
            Self::EntriesOutReady | Self::EntriesOut => &[Side::Staged, Side::Flat],
        }
    }

    fn makes(self) -> Makes {
        match self {
            Self::FlatStill | Self::EntriesOut | Self::OverFlat => Makes::At(Side::Flat),
            Self::EntriesIn | Self::LevelsOutReady | Self::EntriesOutReady => Makes::At(Side::Staged),
            Self::ManagedStill | Self::LevelsInReady | Self::OverManaged => Makes::At(Side::Up),
            Self::LevelsOut => Makes::WithItsTop(Side::Up),
            Self::LevelsIn => Makes::WithItsTop(Side::Staged),
        }
    }
}

/// A conversion under way, or one that was stopped half way.
pub(crate) struct Conversion {
    /// The directory's number.
    pub(crate) id: u64,
    pub(crate) layout: Layout,
    pub(crate) directory: Arc<OwnedFd>,
    /// Its path for messages, and the locks that keep other conversions out.
    pub(crate) guard: Guard,
    staging: OnceLock<OwnedFd>,
    step: AtomicU8,
    moving: Mutex<()>,
    /// Callers that wait for a pause of the moves.
    waiting: AtomicUsize,
    /// The time of modification that is shown: below it changes with each move. `None` while the one below is right.
    modified: Mutex<Option<Timespec>>,
    /// The directory was removed, with the staging directory, while it was being converted.
    removed: AtomicBool,
}

/// All conversions of a tree.
pub(crate) struct Conversions {
    pub(crate) gates: Gates,
    /// How many of them, so that nearly every operation reads one number.
    count: AtomicUsize,
    by_id: RwLock<HashMap<u64, Arc<Conversion>, ByInode>>,
    /// Locks of names, by their hashes.
    names: Box<[RwLock<()>]>,
    /// Operations in directories under conversion.
    operations: AtomicU64,
}

const NAME_LOCKS: usize = 1024;
/// How often a conversion tries for a name that is in use.
const TRY_EVERY: Duration = Duration::from_micros(20);
/// A leaf that is removed just when it was opened is looked for again.
const ATTEMPTS: usize = 8;

/// A conversion, and the step at which an operation found it.
pub(crate) type Half = (Arc<Conversion>, Step);

/// Operations that share a name's lock.
pub(crate) type HeldName<'t> = RwLockReadGuard<'t, ()>;

impl Conversion {
    pub(crate) fn new(id: u64, layout: Layout, directory: Arc<OwnedFd>, guard: Guard, step: Step) -> Self {
        Self {
            id,
            layout,
            directory,
            guard,
            staging: OnceLock::new(),
            step: AtomicU8::new(step as u8),
            moving: Mutex::default(),
            waiting: AtomicUsize::new(0),
            modified: Mutex::default(),
            removed: AtomicBool::new(false),
        }
    }

    pub(crate) fn step(&self) -> Step {
        Step::ALL[usize::from(self.step.load(Ordering::SeqCst))]
    }

    pub(crate) fn set_staging(&self, staging: OwnedFd) {
        // The second time it is the same directory: a conversion that continues has it already.
        let _ = self.staging.set(staging);
    }

    pub(crate) fn staging(&self) -> Done<&OwnedFd> {
        self.staging.get().ok_or(Errno::NOENT)
    }

    pub(crate) fn is_removed(&self) -> bool {
        self.removed.load(Ordering::SeqCst)
    }

    /// For a batch of moves; waits until those who want a pause have had it.
    pub(crate) fn moving(&self) -> MutexGuard<'_, ()> {
        while self.waiting.load(Ordering::SeqCst) > 0 {
            std::thread::park_timeout(TRY_EVERY);
        }
        lock(&self.moving)
    }

    /// Nothing moves until it is dropped.
    pub(crate) fn pause(&self) -> MutexGuard<'_, ()> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let paused = lock(&self.moving);
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        paused
    }

    /// From now on the time of modification is kept here. No operation of an earlier step is under way.
    pub(crate) fn keep_modified(&self) -> Done<()> {
        let mut modified = lock(&self.modified);
        if modified.is_none() {
            let of = rustix::fs::fstat(&*self.directory)?;
            *modified = Some(Timespec { tv_sec: of.st_mtime, tv_nsec: of.st_mtime_nsec as _ });
        }
        Ok(())
    }

    /// The time that is kept here.
    pub(crate) fn modified(&self) -> Option<Timespec> {
        *lock(&self.modified)
    }

    /// The time of modification was set, or an entry has been made or removed. False when that must be done below.
    pub(crate) fn set_modified(&self, time: Timespec) -> bool {
        lock(&self.modified).as_mut().map(|modified| *modified = time).is_some()
    }

    /// Gives the directory below the time that was kept here.
    pub(crate) fn give_modified_back(&self) -> Done<()> {
        let mut modified = lock(&self.modified);
        let Some(time) = modified.take() else { return Ok(()) };
        let times =
            Timestamps { last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT }, last_modification: time };
        rustix::fs::utimensat(&*self.directory, c".", &times, AtFlags::empty())
    }
}

impl Conversions {
    pub(crate) fn new() -> Self {
        Self {
            gates: Gates::new(),
            count: AtomicUsize::new(0),
            by_id: RwLock::default(),
            names: (0..NAME_LOCKS).map(|_| RwLock::default()).collect(),
            operations: AtomicU64::new(0),
        }
    }

    /// The conversion of the directory with this number.
    pub(crate) fn of(&self, id: u64) -> Option<Arc<Conversion>> {
        if self.count.load(Ordering::SeqCst) == 0 {
            return None;
        }
        self.by_id.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }

    pub(crate) fn add(&self, conversion: Arc<Conversion>) {
        let mut by_id = self.by_id.write().unwrap_or_else(PoisonError::into_inner);
        by_id.insert(conversion.id, conversion);
        self.count.store(by_id.len(), Ordering::SeqCst);
    }

    /// Takes this one out, if it is still there.
    pub(crate) fn remove(&self, conversion: &Arc<Conversion>) {
        let mut by_id = self.by_id.write().unwrap_or_else(PoisonError::into_inner);
        if by_id.get(&conversion.id).is_some_and(|there| Arc::ptr_eq(there, conversion)) {
            by_id.remove(&conversion.id);
        }
        self.count.store(by_id.len(), Ordering::SeqCst);
    }

    /// Gives up those that were stopped half way, and their locks: nothing is served any more.
    pub(crate) fn clear(&self) {
        let mut by_id = self.by_id.write().unwrap_or_else(PoisonError::into_inner);
        self.count.store(0, Ordering::SeqCst);
        by_id.clear();
    }

    /// Operations in directories under conversion so far.
    pub(crate) fn operations(&self) -> u64 {
        self.operations.load(Ordering::Relaxed)
    }

    /// Takes a name's lock to move it. Only ever tries, so that operations that hold several never wait for each other.
    pub(crate) fn name_to_move(&self, id: u64, name: &[u8]) -> RwLockWriteGuard<'_, ()> {
        let of_name = self.lock_of(id, name);
        loop {
            match of_name.try_write() {
                Ok(held) => return held,
                Err(std::sync::TryLockError::Poisoned(held)) => return held.into_inner(),
                Err(std::sync::TryLockError::WouldBlock) => std::thread::park_timeout(TRY_EVERY),
            }
        }
    }

    fn lock_of(&self, id: u64, name: &[u8]) -> &RwLock<()> {
        let hash = ByInode::default().hash_one((id, name));
        &self.names[hash as usize % NAME_LOCKS]
    }
}

impl Tree {
    /// What a node is for an operation, and how far its conversion is.
    pub(super) fn now(&self, id: u64) -> Done<(Kind, Option<Half>)> {
        let Some(conversion) = self.conversions.of(id) else {
            return Ok((self.nodes.kind(id).ok_or(Errno::STALE)?, None));
        };
        self.conversions.operations.fetch_add(1, Ordering::Relaxed);
        let step = conversion.step();
        Ok((kind_at(step, conversion.layout), Some((conversion, step))))
    }

    /// The kind of a directory under conversion; `None` for any other.
    pub(super) fn kind_in_conversion(&self, id: u64) -> Option<Kind> {
        self.conversions.of(id).map(|conversion| kind_at(conversion.step(), conversion.layout))
    }

    /// Whether changes below are reported by the names that a directory shows: it is plain, and no conversion moves its entries.
    pub(crate) fn is_plain(&self, id: u64) -> bool {
        self.nodes.kind(id) == Some(Kind::Plain) && self.conversions.of(id).is_none()
    }

    /// An operation in a directory begins.
    pub(crate) fn pass(&self, id: u64) -> Passed<'_> {
        self.conversions.gates.pass(id)
    }

    /// Keeps a conversion from moving this name.
    pub(super) fn hold(&self, inside: &Inside<'_>, name: &[u8]) -> Option<HeldName<'_>> {
        inside.half.as_ref()?;
        let of_name = self.conversions.lock_of(inside.id, name);
        Some(of_name.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Does something to `name` at the side that has it.
    pub(super) fn at_either<T>(
        &self,
        inside: &Inside<'_>,
        name: &[u8],
        mut work: impl FnMut(&Arc<OwnedFd>) -> Done<T>,
    ) -> Done<T> {
        let Some((conversion, step)) = &inside.half else { return Err(Errno::IO) };
        if is_reserved(name) {
            return Err(Errno::NOENT);
        }
        let _held = self.hold(inside, name);
        for side in step.sides() {
            let holder = match self.holder_at(conversion, *side, name) {
                Err(Errno::NOENT | Errno::NOTDIR) => continue,
                holder => holder?,
            };
            match self.with_descriptors(|| work(&holder)) {
                Err(Errno::NOENT) => {}
                done => return done,
            }
        }
        Err(Errno::NOENT)
    }

    /// Makes `name`, or does what fails because it exists.
    pub(super) fn making_at_either<T>(
        &self,
        inside: &Inside<'_>,
        name: &[u8],
        make: &mut impl FnMut(&Arc<OwnedFd>) -> Done<T>,
    ) -> Done<T> {
        let Some((conversion, step)) = &inside.half else { return Err(Errno::IO) };
        let _held = self.hold(inside, name);
        let mut attempts = 0;
        loop {
            attempts += 1;
            let holder = match self.holder_with(conversion, *step, name)? {
                Some(holder) => holder,
                None => self.holder_for_new(conversion, *step, name)?,
            };
            match self.with_descriptors(|| make(&holder)) {
                Err(Errno::NOENT) if attempts < ATTEMPTS && is_removed(&holder) => {}
                done => return done,
            }
        }
    }

    /// The directory below that has this name, if any.
    fn holder_with(&self, conversion: &Conversion, step: Step, name: &[u8]) -> Done<Option<Arc<OwnedFd>>> {
        for side in step.sides() {
            match self.holder_at(conversion, *side, name) {
                Err(Errno::NOENT | Errno::NOTDIR) => {}
                Err(errno) => return Err(errno),
                Ok(holder) if rustix::fs::statx(&*holder, name, LOOK, WANTED).is_ok() => {
                    return Ok(Some(holder));
                }
                Ok(_) => {}
            }
        }
        Ok(None)
    }

    fn holder_for_new(&self, conversion: &Conversion, step: Step, name: &[u8]) -> Done<Arc<OwnedFd>> {
        let mut path = Vec::with_capacity(8);
        conversion.layout.subdirectory(name, &mut path);
        let side = match step.makes() {
            Makes::At(side) => side,
            Makes::WithItsTop(otherwise) => {
                let has_top = |side: &&Side| {
                    let at = conversion.root_of(**side);
                    at.is_ok_and(|at| rustix::fs::statx(at, top_of(&path), LOOK, WANTED).is_ok())
                };
                step.sides().iter().find(has_top).copied().unwrap_or(otherwise)
            }
        };
        match self.holder_at(conversion, side, name) {
            Err(Errno::NOENT) => {
                self.make_level(conversion.root_of(side)?, &conversion.directory, &path)?;
                self.holder_at(conversion, side, name)
            }
            other => other,
        }
    }

    /// The directory below that holds a name of this side. Not kept: conversions are rare, and directories move.
    pub(super) fn holder_at(&self, conversion: &Conversion, side: Side, name: &[u8]) -> Done<Arc<OwnedFd>> {
        if side == Side::Flat {
            return Ok(Arc::clone(&conversion.directory));
        }
        let mut path = Vec::with_capacity(8);
        conversion.layout.subdirectory(name, &mut path);
        self.open_hidden(conversion.root_of(side)?, &path, OFlags::PATH).map(Arc::new)
    }

    /// The attributes of a directory under conversion: nothing of the moves shows.
    pub(super) fn without_moves(&self, attributes: &mut Statx) {
        let Some(conversion) = self.conversions.of(self.number(attributes)) else { return };
        if let Some(time) = conversion.modified() {
            attributes.stx_mtime.tv_sec = time.tv_sec;
            attributes.stx_mtime.tv_nsec = time.tv_nsec as u32;
        }
        // Links count subdirectories, which move; see `as_seen`.
        attributes.stx_nlink = attributes.stx_nlink.min(1);
    }

    /// Removes what a conversion has made of a directory that holds no entries; ENOTEMPTY when it holds any.
    pub(super) fn bare_in_conversion(&self, conversion: &Arc<Conversion>) -> Done<()> {
        let _paused = conversion.pause();
        let step = conversion.step();
        for side in step.sides() {
            match (side, conversion.root_of(*side)) {
                (_, Err(Errno::NOENT)) => {}
                (_, Err(errno)) => return Err(errno),
                (Side::Flat, Ok(at)) => super::hidden::only_reserved(at)?,
                (_, Ok(at)) => super::hidden::remove_empty_levels(at, conversion.layout)?,
            }
        }
        if let Ok(staging) = conversion.staging() {
            super::hidden::remove_staging(&conversion.directory, staging, conversion.layout)?;
        }
        conversion.removed.store(true, Ordering::SeqCst);
        let mode = rustix::fs::fstat(&*conversion.directory)?.st_mode;
        let is_managed = crate::managed::is_managed(mode);
        let kind = if is_managed { Kind::Managed(conversion.layout) } else { Kind::Plain };
        self.nodes.set_kind(conversion.id, kind);
        self.conversions.remove(conversion);
        Ok(())
    }
}

impl Conversion {
    /// The directory that holds this side's entries or levels.
    pub(crate) fn root_of(&self, side: Side) -> Done<&OwnedFd> {
        match side {
            Side::Flat | Side::Up => Ok(&self.directory),
            Side::Staged => self.staging(),
        }
    }

    /// Publishes a step. The caller drains the gate before it relies on it.
    pub(crate) fn publish(&self, step: Step) {
        self.step.store(step as u8, Ordering::SeqCst);
    }

    /// Opens the directory to be read from its beginning.
    pub(crate) fn to_read(&self) -> Done<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::openat(&*self.directory, c".", flags, Mode::empty())
    }
}

fn kind_at(step: Step, layout: Layout) -> Kind {
    match step {
        Step::OverFlat => Kind::Plain,
        Step::ManagedStill | Step::OverManaged => Kind::Managed(layout),
        _ => Kind::Converting,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_read_as_it_was_published() {
        for (number, step) in Step::ALL.into_iter().enumerate() {
            assert_eq!(step as usize, number);
        }
    }

    #[test]
    fn what_one_step_makes_the_next_one_and_the_one_before_find() {
        use Step::*;
        let manage = [FlatStill, EntriesIn, LevelsOutReady, LevelsOut, ManagedStill];
        let unmanage = [ManagedStill, LevelsInReady, LevelsIn, EntriesOutReady, EntriesOut, FlatStill];
        for way in [&manage[..], &unmanage[..]] {
            for pair in way.windows(2) {
                let makes = match pair[0].makes() {
                    Makes::At(side) | Makes::WithItsTop(side) => side,
                };
                assert!(pair[1].sides().contains(&makes), "made in {:?}, sought in {:?}", pair[0], pair[1]);
            }
        }
    }
}
