//! Which directories make up a store: its own, and those that its file `volumes` lists, one path a line.
//!
//! Always holds: a directory is listed before it becomes a volume, so that none is forgotten; a listed one that is
//! none yet is left out by the engine. A line that is no path stays in the list: nobody but its owner knows what it was.

use std::fs;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::{Disk, DiskError, LocalDisk, give_to_owner, open_regular};
use packstore::{Fault, OpenOptions, Store, StoreError, StoreOptions, VolumeSpec};

const LIST: &str = "volumes";
/// The list while it is written.
const NEW_LIST: &str = "volumes.new";
/// Far above the paths of all directories that a store can have.
const LIST_BYTES_MAX: u64 = 16 << 20;
/// The engine's head of a volume.
const HEAD: &str = "volume";
/// The engine's lock.
const LOCK: &str = "lock";
/// The copy of the head.
const COPY: &str = "volume.copy";

/// Why the directories of a store cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VolumesError {
    /// There is no store.
    #[error("{0}: no packed store; make one with `crumb pack create {0} --size BYTES`", store.display())]
    NoStore {
        /// Where it was looked for.
        store: PathBuf,
    },
    /// A file or directory.
    #[error("{path}: cannot be {what}")]
    File {
        /// Its path, escaped.
        path: String,
        /// `read`, `written`, …
        what: &'static str,
        /// Why.
        source: io::Error,
    },
    /// A directory that is to be a volume.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The engine.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Something that is no regular file, in the place of the list.
    #[error("{place}: {what} is in the place of the file `{LIST}`, which lists the store's other directories; {}", advice(*is_needed))]
    ListInTheWay {
        /// The store's own directory, escaped.
        place: String,
        /// What is there.
        what: &'static str,
        /// The store has other directories, or may have: nothing else says which.
        is_needed: bool,
    },
    /// A directory in which a store was to be made has something else already.
    #[error(
        "{}: has other files already (`{name}`), and a store needs a directory of its own; choose an empty one, or one that is not there yet",
        directory.display()
    )]
    OtherFiles {
        /// The directory.
        directory: PathBuf,
        /// The first of them by name, escaped.
        name: String,
    },
    /// It was named as a further directory.
    #[error("{}: is the store's own directory, which lists the others; it stays", directory.display())]
    Own {
        /// The directory.
        directory: PathBuf,
    },
    /// It is not listed.
    #[error("{}: is no further directory of the store: {others}", directory.display())]
    NotListed {
        /// The directory.
        directory: PathBuf,
        /// Those that are, for people.
        others: String,
    },
    /// It was to be added.
    #[error("{}: is a directory of the store already", directory.display())]
    Listed {
        /// The directory.
        directory: PathBuf,
    },
}

impl VolumesError {
    /// Whether what was asked for cannot be, so that asking again cannot help.
    pub fn is_bad_request(&self) -> bool {
        matches!(
            self,
            Self::Own { .. }
                | Self::NotListed { .. }
                | Self::Listed { .. }
                | Self::Store(StoreError::Setting { .. })
        )
    }
}

/// What to do about what is in the place of the list.
fn advice(list_is_needed: bool) -> &'static str {
    match list_is_needed {
        true => {
            "put the file back there, or write it again, with the path of one directory per line; `crumb pack repair` refuses until then"
        }
        false => "the store has no other directory, so `crumb pack repair` moves it aside",
    }
}

fn file_error(path: &Path, what: &'static str) -> impl FnOnce(io::Error) -> VolumesError {
    let path = escaped(path.as_os_str().as_bytes());
    move |source| VolumesError::File { path, what, source }
}

/// Whether there are files of segments: then there is a store, and its heads are lost, which its opening reports.
fn has_segments(store: &Path) -> bool {
    let Ok(entries) = fs::read_dir(store) else { return false };
    entries.flatten().any(|entry| {
        let name = entry.file_name();
        let name = name.as_bytes();
        let number = name.strip_suffix(b".index").or_else(|| name.strip_suffix(b".body"));
        number.is_some_and(|number| number.len() == 8 && number.iter().all(u8::is_ascii_digit))
    })
}

/// Refuses a directory that has what no store makes. A disk's root has `lost+found` from the beginning, and a proxy keeps its bans beside
/// its cache.
fn has_no_other_files(directory: &Path) -> Result<(), VolumesError> {
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        // It is made, or what it is instead is reported then.
        Err(_) => return Ok(()),
    };
    // A store that is there is reported as such.
    if directory.join(HEAD).exists() {
        return Ok(());
    }
    let is_ours = |name: &[u8]| {
        let ends = [&b".index"[..], b".body"];
        name.starts_with(b"volume")
            || [LOCK.as_bytes(), b"table", b"lost+found", b"bans", b"bans.new"].contains(&name)
            || ends.iter().any(|end| name.ends_with(end))
    };
    let names = entries.flatten().map(|entry| entry.file_name().into_vec());
    match names.filter(|name| !is_ours(name)).min() {
        None => Ok(()),
        Some(name) => Err(VolumesError::OtherFiles { directory: directory.to_owned(), name: escaped(&name) }),
    }
}

/// What is in the place of the list, when that is no regular file.
fn in_the_way(store: &Path) -> Option<VolumesError> {
    let disk: Arc<dyn Disk> = Arc::new(LocalDisk::open(store).ok()?);
    let (_, what) = disk.other_than_files().ok()?.into_iter().find(|(name, _)| name == LIST)?;
    let is_needed = !matches!(packstore::volumes_expected(&disk), Ok(1));
    Some(VolumesError::ListInTheWay { place: escaped(store.as_os_str().as_bytes()), what, is_needed })
}

/// The directories of a store.
#[derive(Clone, Debug)]
pub struct VolumeList {
    store: PathBuf,
    others: Vec<PathBuf>,
    /// Lines of the list that are no paths: damage. They stay in it.
    not_paths: Vec<Vec<u8>>,
}

/// What came of asking for the lock of a volume.
enum Lock {
    Held(fs::File),
    /// A process has the volume open for writing.
    Taken,
}

impl VolumeList {
    /// The directories of the store at `store`.
    ///
    /// # Errors
    /// When there is none, or its list cannot be read.
    pub fn read(store: &Path) -> Result<Self, VolumesError> {
        let is_there = |name: &str| {
            let path = store.join(name);
            path.try_exists().map_err(file_error(&path, "looked at"))
        };
        if !is_there(HEAD)? && !is_there(COPY)? && !is_there(LIST)? && !has_segments(store) {
            return Err(VolumesError::NoStore { store: store.to_owned() });
        }
        let list = store.join(LIST);
        let mut bytes = Vec::new();
        match open_regular(fs::OpenOptions::new().read(true), &list) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(in_the_way(store).unwrap_or_else(|| file_error(&list, "read")(error))),
            Ok(file) => {
                file.take(LIST_BYTES_MAX).read_to_end(&mut bytes).map_err(file_error(&list, "read"))?;
            }
        }
        let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(<[u8]>::to_vec);
        let (not_paths, paths): (Vec<_>, Vec<_>) = lines.partition(|line| line.contains(&0));
        let others =
            paths.into_iter().map(|path| PathBuf::from(std::ffi::OsString::from_vec(path))).collect();
        Ok(Self { store: store.to_owned(), others, not_paths })
    }

    /// As [`VolumeList::read`], to repair the store: what is in the place of a list that the store does not need gets another name.
    /// Returns also what was done.
    ///
    /// # Errors
    /// As [`VolumeList::read`], and [`StoreError::Locked`] while a process has the store open for writing.
    pub fn read_to_repair(store: &Path) -> Result<(Self, Vec<Fault>), VolumesError> {
        let (place, what) = match Self::read(store) {
            Err(VolumesError::ListInTheWay { place, what, is_needed: false }) => (place, what),
            read => return Ok((read?, Vec::new())),
        };
        let disk = LocalDisk::open(store)?;
        let _lock = disk.lock(LOCK)?.ok_or_else(|| StoreError::Locked { place: place.clone() })?;
        let names = disk.names()?;
        let aside = (0_u64..).map(|number| match number {
            0 => format!("{LIST}.aside"),
            number => format!("{LIST}.aside.{number}"),
        });
        let aside = aside.into_iter().find(|aside| !names.contains(aside)).expect("numbers do not end");
        disk.rename(LIST, &aside)?;
        disk.sync_names()?;
        let what =
            format!("{place}: {what} was in the place of the file `{LIST}`: it is called `{aside}` now");
        let moved = Fault { file: None, key: None, what, is_damaged: false, by_hand: false };
        Ok((Self::read(store)?, vec![moved]))
    }

    /// What is wrong with the list, for `check` and `repair`, and what to do: neither can know what a line was.
    pub fn faults(&self) -> Vec<Fault> {
        let list = escaped(self.store.join(LIST).as_os_str().as_bytes());
        let what = self.not_paths.iter().map(|line| {
            let line = escaped(line);
            format!("{list}: the line `{line}` is no path; remove it, or put the path of the directory that it named")
        });
        what.map(|what| Fault { file: None, key: None, what, is_damaged: false, by_hand: true }).collect()
    }

    /// The store's own directory, which names it.
    pub fn store(&self) -> &Path {
        &self.store
    }

    /// All directories, the store's own first.
    pub fn directories(&self) -> Vec<&Path> {
        std::iter::once(&self.store).chain(&self.others).map(PathBuf::as_path).collect()
    }

    /// Opens the store. Directories that are away are left to the engine to judge.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open(&self, options: OpenOptions) -> Result<Store, VolumesError> {
        let mut disks = Vec::<Arc<dyn Disk>>::new();
        for directory in self.directories() {
            match LocalDisk::open(directory) {
                Ok(disk) => disks.push(Arc::new(disk)),
                Err(error) => {
                    let directory = escaped(directory.as_os_str().as_bytes());
                    tracing::warn!("{directory}: left out of the store: {}", error.source);
                }
            }
        }
        for fault in self.faults() {
            tracing::warn!("{}", fault.what);
        }
        Ok(Store::open(disks, options)?)
    }

    /// Opens the store read-only, beside a process that writes to it or not, and waits until all that it holds is known: a
    /// cache that was not closed would answer with misses before that.
    ///
    /// # Errors
    /// As [`Store::open`] and [`Store::iter`].
    pub fn open_to_read(&self) -> Result<Store, VolumesError> {
        let store = self.open(OpenOptions { read_only: true, ..OpenOptions::default() })?;
        drop(store.iter()?);
        Ok(store)
    }

    /// Whether another process has it open for writing.
    pub fn is_in_use(&self) -> bool {
        matches!(Self::lock_for_reading(&self.store), Ok(Lock::Taken))
    }

    /// Keeps writers out for as long as what is returned is held. Other readers may do so too. Nothing is written: it works
    /// on read-only media, and without the right to write.
    ///
    /// # Errors
    /// [`StoreError::Locked`] while a process has the store open for writing.
    pub fn keep_writers_out(&self) -> Result<Vec<fs::File>, VolumesError> {
        let mut held = Vec::new();
        for directory in self.directories() {
            match Self::lock_for_reading(directory) {
                Ok(Lock::Held(file)) => held.push(file),
                Ok(Lock::Taken) => {
                    return Err(StoreError::Locked { place: directory.display().to_string() }.into());
                }
                // A directory that is away, or one that never was a volume: no process writes there.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                // Something else is in the place of the lock: no process can have it, and the engine reports it.
                Err(_) if directory.join(LOCK).symlink_metadata().is_ok_and(|found| !found.is_file()) => {}
                Err(error) => return Err(file_error(directory, "locked against writers")(error)),
            }
        }
        Ok(held)
    }

    fn lock_for_reading(directory: &Path) -> io::Result<Lock> {
        let file = open_regular(fs::OpenOptions::new().read(true), &directory.join(LOCK))?;
        match file.try_lock_shared() {
            Ok(()) => Ok(Lock::Held(file)),
            Err(fs::TryLockError::WouldBlock) => Ok(Lock::Taken),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }

    /// Makes a store, in directories that are empty but for what a creation that was killed left.
    ///
    /// # Errors
    /// As [`Store::create`], and when a directory has other files, cannot be made or is given twice.
    pub fn create(
        store: &Path,
        size_bytes: u64,
        volumes: &[(PathBuf, u64)],
        options: StoreOptions,
    ) -> Result<(Self, Store), VolumesError> {
        std::iter::once(store)
            .chain(volumes.iter().map(|(other, _)| &**other))
            .try_for_each(has_no_other_files)?;
        make_directory(store)?;
        let mut place = Self { store: store.to_owned(), others: Vec::new(), not_paths: Vec::new() };
        let mut specs = vec![VolumeSpec { disk: Arc::new(LocalDisk::open(store)?), size_bytes }];
        for (directory, size_bytes) in volumes {
            place.add(directory)?;
            specs.push(VolumeSpec { disk: Arc::new(LocalDisk::open(directory)?), size_bytes: *size_bytes });
        }
        if store.join(HEAD).exists() {
            return Err(StoreError::NotEmpty { place: store.display().to_string() }.into());
        }
        if !place.others.is_empty() {
            place.write_list()?;
        }
        match Store::create(specs, options) {
            Ok(made) => Ok((place, made)),
            Err(error) => {
                // Nothing was made: what we wrote is ours to remove.
                if !place.others.is_empty() && !store.join(HEAD).exists() {
                    let _ = fs::remove_file(store.join(LIST));
                }
                Err(error.into())
            }
        }
    }

    /// Adds a directory to a store that is open.
    ///
    /// # Errors
    /// As [`Store::add_volume`], and when the list cannot be written.
    pub fn grow(&mut self, store: &Store, directory: &Path, size_bytes: u64) -> Result<(), VolumesError> {
        let before = self.others.clone();
        self.add(directory)?;
        self.write_list()?;
        let disk = Arc::new(LocalDisk::open(directory)?);
        let added = store.add_volume(VolumeSpec { disk, size_bytes });
        if let Err(error) = added {
            self.others = before;
            self.write_list()?;
            return Err(error.into());
        }
        Ok(())
    }

    /// A directory of the store, as it is listed.
    ///
    /// # Errors
    /// When it is none, or the store's own.
    pub fn member(&self, directory: &Path) -> Result<PathBuf, VolumesError> {
        let whole = |path: &Path| fs::canonicalize(path).or_else(|_| std::path::absolute(path));
        let same = |other: &Path| {
            other == directory
                || matches!((whole(other), whole(directory)), (Ok(one), Ok(other)) if one == other)
        };
        if same(&self.store) {
            return Err(VolumesError::Own { directory: directory.to_owned() });
        }
        let found = self.others.iter().find(|other| same(other)).cloned();
        found.ok_or_else(|| {
            let others: Vec<_> = self.others.iter().map(|other| other.display().to_string()).collect();
            let others = if others.is_empty() { "it has none".to_owned() } else { others.join(", ") };
            VolumesError::NotListed { directory: directory.to_owned(), others }
        })
    }

    /// Takes directories that are volumes no more off the list.
    ///
    /// # Errors
    /// When the list cannot be written.
    pub fn forget(&mut self, directories: &[PathBuf]) -> Result<(), VolumesError> {
        self.others.retain(|other| !directories.contains(other));
        self.write_list()
    }

    fn add(&mut self, directory: &Path) -> Result<(), VolumesError> {
        make_directory(directory)?;
        let whole = |path: &Path| fs::canonicalize(path).map_err(file_error(path, "used"));
        let directory = whole(directory)?;
        for there in self.directories() {
            // One that is away cannot be the same.
            if whole(there).is_ok_and(|there| there == directory) {
                return Err(VolumesError::Listed { directory });
            }
        }
        self.others.push(directory);
        Ok(())
    }

    fn write_list(&self) -> Result<(), VolumesError> {
        let mut lines = Vec::new();
        let others = self.others.iter().map(|other| other.as_os_str().as_bytes());
        for line in others.chain(self.not_paths.iter().map(Vec::as_slice)) {
            lines.extend_from_slice(line);
            lines.push(b'\n');
        }
        let (new, list) = (self.store.join(NEW_LIST), self.store.join(LIST));
        // A link is not followed: what it names would be emptied. Only what is known to be a regular file is emptied.
        let mut options = fs::OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        let mut file = open_regular(&mut options, &new).map_err(file_error(&new, "opened"))?;
        let mut write = || -> io::Result<()> {
            give_to_owner(&self.store, &file)?;
            file.set_len(0)?;
            file.write_all(&lines)?;
            file.sync_all()?;
            fs::rename(&new, &list)?;
            fs::File::open(&self.store)?.sync_all()
        };
        write().map_err(file_error(&list, "written"))
    }
}

/// Bytes of a damaged file for people: none of them moves the cursor, and each can be distinguished from any other.
fn escaped(bytes: &[u8]) -> String {
    match str::from_utf8(bytes) {
        Ok(text) => text.escape_debug().to_string(),
        Err(_) => bytes.escape_ascii().to_string(),
    }
}

/// Its owner's alone: names and sizes are nobody else's business either.
///
/// # Errors
/// When it cannot be made.
pub fn make_directory(path: &Path) -> Result<(), VolumesError> {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(file_error(path, "made")(error)),
        _ => Ok(()),
    }
}
