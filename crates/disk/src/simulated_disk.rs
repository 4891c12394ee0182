//! A directory in memory that fails, tears, loses and reorders writes on demand, the same for the same seed.
//!
//! ```text
//! write, set_length, release --> what is read          sync --> what is durable
//! create, rename, remove     --> names that are seen   sync_names --> names that are durable
//! power_cut(seed) --> another disk: what was durable, and of all since any part that a real one could have kept
//! ```
//!
//! What a power cut may keep: of each sector (512 bytes) what it held at any moment since the file's last sync, of the
//! length likewise, each on its own; of the changes to names any of them in their order, a rename whole or not at all. A
//! tenth of all cuts lose everything unsynced, a tenth nothing, a tenth all from some moment on.
//! The unlucky operation itself is begun and not acknowledged: a stopped write may be kept in any part.
//!
//! Always holds: what was synced with success survives. Reads see all writes at once. An operation that fails by plan
//! says [`STOPPED`], or the error that was asked for.
//! Not here: holes cost memory as they do on a disk, in pages of 4 KiB; time.

mod contents;
mod cut;
mod names;
#[cfg(test)]
mod tests;

use std::collections::HashSet;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::disk::{Disk, DiskError, DiskFile, DiskLock, DiskOpen, DiskRoom};

use contents::{Change, Contents};
use names::{FileNumber, NameChange, Names};

/// What operations fail with after the disk was stopped.
pub const STOPPED: &str = "the simulated machine has stopped";

/// The disk. Clones are the same disk.
#[derive(Clone)]
pub struct SimulatedDisk {
    state: Arc<Mutex<State>>,
    /// Before each name: disks of one machine share a state.
    place: Arc<str>,
}

/// What can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DiskOperation {
    /// Opening a file that is there.
    Open,
    /// Making one.
    Create,
    /// Listing names.
    Names,
    /// Renaming.
    Rename,
    /// Removing.
    Remove,
    /// Making names durable.
    SyncNames,
    /// Taking the lock.
    Lock,
    /// Reading from a file.
    Read,
    /// Writing to one.
    Write,
    /// Making a file durable.
    Sync,
    /// Cutting or lengthening one.
    SetLength,
    /// Taking room.
    Reserve,
    /// Giving room back.
    Release,
}

/// How an operation fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskFault {
    /// With this error, and nothing done: `StorageFull`, or anything.
    Refused(io::ErrorKind),
    /// As [`DiskFault::Refused`], with this number of errno(3).
    RefusedWith(i32),
    /// EIO, with an unknown part done: a write keeps its first half.
    Half,
    /// A sync says EIO once; what was written since the last one reads well and is never made durable.
    SyncLost,
}

struct Planned {
    operation: DiskOperation,
    /// Only on files of this name, as they were opened.
    name: Option<String>,
    /// Times it goes well before.
    spared: u64,
    /// Times it then fails.
    times: u64,
    fault: DiskFault,
}

#[derive(Default)]
struct State {
    files: Vec<Contents>,
    names: Names,
    /// Those that a cut leaves in any case.
    names_durable: Names,
    /// What happened since, with the operation's number.
    changes: Vec<(u64, NameChange)>,
    planned: Vec<Planned>,
    /// Operations that change something, so far.
    operations: u64,
    /// The first that is not acknowledged.
    stop_at: Option<u64>,
    stopped: bool,
    /// Places of disks that are gone.
    vanished: HashSet<Arc<str>>,
    locks: HashSet<String>,
    room_bytes: Option<u64>,
}

impl SimulatedDisk {
    /// An empty one without an end, known as `place`, which is one word.
    pub fn new(place: &str) -> Self {
        Self { state: Arc::default(), place: place.into() }
    }

    /// Another disk of the same machine: they lose power together and stop together, and their operations are counted as
    /// one row. Faults planned for a name strike that name on either.
    #[must_use]
    pub fn beside(&self, place: &str) -> Self {
        assert!(!place.contains('/'), "{place} is one word");
        Self { state: self.state.clone(), place: place.into() }
    }

    /// The same with room for this many bytes (all disks of the machine together), counted in pages of 4 KiB that were written or reserved.
    #[must_use]
    pub fn with_room(self, bytes: u64) -> Self {
        self.state().room_bytes = Some(bytes);
        self
    }

    /// Operations so far that change something on the disk or make it durable: all but open, list, lock, read and stat.
    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// From the operation of this number on (the first is 0) nothing is acknowledged any more, and after it nothing done.
    pub fn stop_at(&self, operation: u64) {
        self.state().stop_at = Some(operation);
    }

    /// Whether it has come to that.
    pub fn has_stopped(&self) -> bool {
        self.state().stopped
    }

    /// Nothing is acknowledged from now on.
    pub fn stop(&self) {
        self.state().stopped = true;
    }

    /// After `spared` more operations of this sort (on files of this name), the next `times` of them fail.
    pub fn fail(
        &self,
        operation: DiskOperation,
        name: Option<&str>,
        spared: u64,
        times: u64,
        fault: DiskFault,
    ) {
        let name = name.map(str::to_owned);
        self.state().planned.push(Planned { operation, name, spared, times, fault });
    }

    /// Planned faults that have not happened, in full, are given up.
    pub fn heal(&self) {
        self.state().planned.clear();
    }

    /// The whole disk is gone, or there again: meanwhile files fail with EIO and names with `NotFound`.
    pub fn vanish(&self, gone: bool) {
        let mut state = self.state();
        if gone {
            state.vanished.insert(self.place.clone());
        } else {
            state.vanished.remove(&self.place);
        }
    }

    /// Flips a bit of a file, of what is read and what is durable. False when the file is not so long.
    pub fn flip(&self, name: &str, bit: u64) -> bool {
        let mut state = self.state();
        let Some(&number) = state.names.get(&self.full(name)) else { return false };
        state.files[number].flip(bit)
    }

    /// A file's bytes as they read.
    pub fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        let state = self.state();
        let contents = &state.files[*state.names.get(&self.full(name))?];
        let mut bytes = vec![0; contents.length() as usize];
        contents.read(&mut bytes, 0);
        Some(bytes)
    }

    /// Another disk, as this one could be found after losing power now. Faults are healed and locks let go.
    pub fn power_cut(&self, seed: u64) -> Self {
        let state = self.state();
        let (files, names) = cut::cut(&state.files, &state.names_durable, &state.changes, seed);
        let names_durable = names.clone();
        let after = State { files, names, names_durable, room_bytes: state.room_bytes, ..State::default() };
        Self { state: Arc::new(Mutex::new(after)), place: self.place.clone() }
    }

    /// Another disk, as this one would be found when the process alone ended now: nothing is lost.
    pub fn process_end(&self) -> Self {
        let state = self.state();
        let after = State {
            files: state.files.clone(),
            names: state.names.clone(),
            names_durable: state.names_durable.clone(),
            operations: state.operations,
            changes: state.changes.clone(),
            room_bytes: state.room_bytes,
            ..State::default()
        };
        Self { state: Arc::new(Mutex::new(after)), place: self.place.clone() }
    }

    fn full(&self, name: &str) -> String {
        format!("{}/{name}", self.place)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A test that panicked is reported by itself; the disk stays whole at every step.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn checked<T>(&self, word: &'static str, name: &str, done: io::Result<T>) -> Result<T, DiskError> {
        let (place, name) = (self.place.to_string(), name.to_owned());
        done.map_err(|source| DiskError { place, name, operation: word, source })
    }
}

/// What an operation that is about to be done must still do.
enum Go {
    Well,
    /// Begin it, then fail.
    Stop,
    Fault(DiskFault),
}

impl State {
    /// Counts the operation and looks what is planned for it.
    fn begin(&mut self, disk: &SimulatedDisk, operation: DiskOperation, name: &str) -> io::Result<Go> {
        if self.stopped {
            return Err(io::Error::other(STOPPED));
        }
        use DiskOperation::{Lock, Names, Open, Read, Release, Reserve, SetLength, Sync, Write};
        if self.vanished.contains(&disk.place) {
            let open_file = matches!(operation, Read | Write | Sync | SetLength | Reserve | Release);
            return Err(if open_file { eio() } else { io::ErrorKind::NotFound.into() });
        }
        if !matches!(operation, Open | Names | Lock | Read) {
            let number = self.operations;
            self.operations += 1;
            if self.stop_at.is_some_and(|stop| number >= stop) {
                self.stopped = true;
                return Ok(Go::Stop);
            }
        }
        for planned in &mut self.planned {
            if planned.operation != operation || planned.name.as_deref().is_some_and(|only| only != name) {
                continue;
            }
            if planned.spared > 0 {
                planned.spared -= 1;
            } else if planned.times > 0 {
                planned.times -= 1;
                return match planned.fault {
                    DiskFault::Refused(kind) => Err(kind.into()),
                    DiskFault::RefusedWith(code) => Err(io::Error::from_raw_os_error(code)),
                    fault => Ok(Go::Fault(fault)),
                };
            }
        }
        Ok(Go::Well)
    }

    fn used_bytes(&self) -> u64 {
        self.names.values().map(|&number| self.files[number].room_bytes()).sum()
    }

    /// `StorageFull` when a range that has no room yet would need more than there is.
    fn take_room(&mut self, number: FileNumber, offset: u64, bytes: u64) -> io::Result<()> {
        // What has room keeps it, also where a cut has brought removed files back, and they are more than there is.
        let wanted = self.files[number].room_wanted_bytes(offset, bytes);
        if let Some(room) = self.room_bytes
            && wanted > 0
            && self.used_bytes() + wanted > room
        {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    fn change_names(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.changes.push((self.operations, change));
    }
}

/// The end of an operation that was begun.
fn done<T>(go: &Go, value: T) -> io::Result<T> {
    match go {
        Go::Well => Ok(value),
        Go::Stop => Err(io::Error::other(STOPPED)),
        Go::Fault(_) => Err(eio()),
    }
}

fn eio() -> io::Error {
    io::Error::from_raw_os_error(EIO)
}

const EIO: i32 = 5;

impl Disk for SimulatedDisk {
    fn open(&self, name: &str, how: DiskOpen) -> Result<Arc<dyn DiskFile>, DiskError> {
        let new = how == DiskOpen::New;
        let mut state = self.state();
        let opened = (|| {
            let go =
                state.begin(self, if new { DiskOperation::Create } else { DiskOperation::Open }, name)?;
            if name.is_empty() || name == "." || name == ".." || name.contains('/') {
                return Err(io::ErrorKind::InvalidFilename.into());
            }
            let full = self.full(name);
            let number = match (state.names.get(&full).copied(), new) {
                (Some(_), true) => return Err(io::ErrorKind::AlreadyExists.into()),
                (None, false) => return Err(io::ErrorKind::NotFound.into()),
                (Some(number), false) => number,
                (None, true) => {
                    let number = state.files.len();
                    state.files.push(Contents::default());
                    state.change_names(NameChange::Create { name: full, number });
                    number
                }
            };
            done(&go, number)
        })();
        drop(state);
        let number = self.checked("open", name, opened)?;
        let writes = how != DiskOpen::Read;
        Ok(Arc::new(SimulatedFile { disk: self.clone(), name: name.to_owned(), number, writes }))
    }

    fn names(&self) -> Result<Vec<String>, DiskError> {
        let mut state = self.state();
        let listed = state.begin(self, DiskOperation::Names, ".").and_then(|go| done(&go, ()));
        self.checked(
            "list",
            ".",
            listed.map(|()| {
                let ours =
                    |name: &String| name.strip_prefix(&*self.place)?.strip_prefix('/').map(str::to_owned);
                state.names.keys().filter_map(ours).collect()
            }),
        )
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        let mut state = self.state();
        let renamed = state.begin(self, DiskOperation::Rename, from).and_then(|go| {
            let number = *state.names.get(&self.full(from)).ok_or(io::ErrorKind::NotFound)?;
            if from != to {
                state.change_names(NameChange::Rename { from: self.full(from), to: self.full(to), number });
            }
            done(&go, ())
        });
        self.checked("rename", from, renamed)
    }

    fn remove(&self, name: &str) -> Result<(), DiskError> {
        let mut state = self.state();
        let removed = state.begin(self, DiskOperation::Remove, name).and_then(|go| {
            let number = *state.names.get(&self.full(name)).ok_or(io::ErrorKind::NotFound)?;
            state.change_names(NameChange::Remove { name: self.full(name), number });
            done(&go, ())
        });
        self.checked("remove", name, removed)
    }

    fn sync_names(&self) -> Result<(), DiskError> {
        let mut state = self.state();
        let synced = state.begin(self, DiskOperation::SyncNames, ".").and_then(|go| {
            if matches!(go, Go::Well) {
                let ours = self.full("");
                let state = &mut *state;
                state.changes.retain(|(_, change)| !change.is_under(&ours));
                state.names_durable.retain(|name, _| !name.starts_with(&ours));
                let names = state.names.iter().filter(|(name, _)| name.starts_with(&ours));
                state.names_durable.extend(names.map(|(name, number)| (name.clone(), *number)));
            }
            done(&go, ())
        });
        self.checked("sync", ".", synced)
    }

    fn lock(&self, name: &str) -> Result<Option<DiskLock>, DiskError> {
        let mut state = self.state();
        let begun = state.begin(self, DiskOperation::Lock, name).and_then(|go| done(&go, ()));
        self.checked("lock", name, begun)?;
        let full = self.full(name);
        if !state.locks.insert(full.clone()) {
            return Ok(None);
        }
        if !state.names.contains_key(&full) {
            // As a real one it leaves an empty file.
            let number = state.files.len();
            state.files.push(Contents::default());
            state.change_names(NameChange::Create { name: full.clone(), number });
        }
        Ok(Some(DiskLock::new(Held { disk: self.clone(), full })))
    }

    fn room(&self) -> Result<DiskRoom, DiskError> {
        let state = self.state();
        let there =
            if state.vanished.contains(&self.place) { Err(io::ErrorKind::NotFound.into()) } else { Ok(()) };
        self.checked("statvfs", ".", there)?;
        let total_bytes = state.room_bytes.unwrap_or(1 << 40);
        Ok(DiskRoom { total_bytes, free_bytes: total_bytes.saturating_sub(state.used_bytes()) })
    }

    fn place(&self) -> String {
        self.place.to_string()
    }
}

struct Held {
    disk: SimulatedDisk,
    full: String,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.disk.state().locks.remove(&self.full);
    }
}

struct SimulatedFile {
    disk: SimulatedDisk,
    name: String,
    number: FileNumber,
    writes: bool,
}

impl SimulatedFile {
    /// One change to the contents, whole or as planned.
    fn change(
        &self,
        word: &'static str,
        operation: DiskOperation,
        change: impl FnOnce(&mut State, FileNumber) -> io::Result<Change>,
    ) -> Result<(), DiskError> {
        let mut state = self.disk.state();
        let changed = state.begin(&self.disk, operation, &self.name).and_then(|go| {
            if !self.writes {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            let mut change = change(&mut state, self.number)?;
            if let (Go::Fault(DiskFault::Half), Change::Write { bytes, .. }) = (&go, &mut change) {
                bytes.truncate(bytes.len() / 2);
            }
            let time = state.operations;
            state.files[self.number].change(time, change);
            done(&go, ())
        });
        self.disk.checked(word, &self.name, changed)
    }
}

impl DiskFile for SimulatedFile {
    fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<usize, DiskError> {
        let mut state = self.disk.state();
        let begun = state.begin(&self.disk, DiskOperation::Read, &self.name).and_then(|go| done(&go, ()));
        self.disk.checked("read", &self.name, begun.map(|()| state.files[self.number].read(bytes, offset)))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), DiskError> {
        self.change("write", DiskOperation::Write, |state, number| {
            state.take_room(number, offset, bytes.len() as u64)?;
            let nothing = bytes.is_empty();
            Ok(if nothing { Change::Nothing } else { Change::Write { offset, bytes: bytes.to_vec() } })
        })
    }

    fn sync(&self) -> Result<(), DiskError> {
        let mut state = self.disk.state();
        let synced = state.begin(&self.disk, DiskOperation::Sync, &self.name).and_then(|go| {
            let file = &mut state.files[self.number];
            match go {
                Go::Well => file.sync(),
                Go::Fault(DiskFault::SyncLost) => file.lose(),
                Go::Stop | Go::Fault(_) => {}
            }
            done(&go, ())
        });
        self.disk.checked("sync", &self.name, synced)
    }

    fn length(&self) -> Result<u64, DiskError> {
        let state = self.disk.state();
        let there = match (state.stopped, state.vanished.contains(&self.disk.place)) {
            (true, _) => Err(io::Error::other(STOPPED)),
            (false, true) => Err(io::ErrorKind::NotFound.into()),
            (false, false) => Ok(state.files[self.number].length()),
        };
        self.disk.checked("stat", &self.name, there)
    }

    fn set_length(&self, bytes: u64) -> Result<(), DiskError> {
        self.change("truncate", DiskOperation::SetLength, |_, _| Ok(Change::Length(bytes)))
    }

    fn reserve(&self, offset: u64, bytes: u64) -> Result<(), DiskError> {
        self.change("reserve", DiskOperation::Reserve, |state, number| {
            state.take_room(number, offset, bytes)?;
            state.files[number].reserve(offset, bytes);
            Ok(Change::Nothing)
        })
    }

    fn unwritten_at(&self, offset: u64) -> Result<u64, DiskError> {
        Ok(self.disk.state().files[self.number].unwritten_at(offset))
    }

    fn release(&self, offset: u64, bytes: u64) -> Result<(), DiskError> {
        self.change("release", DiskOperation::Release, |_, _| Ok(Change::Release { offset, bytes }))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}
