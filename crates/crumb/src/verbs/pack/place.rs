//! Which directories make up a store: its own, and those that its file `volumes` lists, one path a line.
//!
//! Always holds: a directory is listed before it becomes a volume, so that none is forgotten; a listed one that is
//! none yet is left out by the engine.

use std::fs;
use std::io::{ErrorKind, Write as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, anyhow};
use bytesize::ByteSize;
use files::{Disk, FileSystem, LocalDisk};
use packstore::{Fault, OpenOptions, PackFs, Store, StoreError, StoreOptions, VolumeSpec};
use report::bytes_text;

use super::told;
use crate::exit::BadUsage;

const LIST: &str = "volumes";
/// The engine's head of a volume.
const HEAD: &str = "volume";
/// Its copy.
const COPY: &str = "volume.copy";
/// Of a store that a benchmark makes by itself; less where half of the free room is less.
const DEFAULT_BYTES: u64 = 10 << 30;

/// The directories of a store.
#[derive(Clone, Debug)]
pub struct Place {
    /// The one that names it.
    pub store: PathBuf,
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

/// `DIR` or `DIR=BYTES`.
#[derive(Clone, Debug)]
pub struct SizedVolume {
    directory: PathBuf,
    size_bytes: Option<u64>,
}

impl FromStr for SizedVolume {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (directory, size_bytes) = match text.rsplit_once('=') {
            None => (text, None),
            Some((directory, size)) => {
                let size: ByteSize = size
                    .parse()
                    .map_err(|_| format!("`{size}` is no size; expected DIR or DIR=BYTES, as in /d2=10G"))?;
                (directory, Some(size.as_u64()))
            }
        };
        if directory.is_empty() || directory.contains('\n') {
            return Err("expected DIR or DIR=BYTES, as in /d2=10G".to_owned());
        }
        Ok(Self { directory: directory.into(), size_bytes })
    }
}

impl Place {
    /// The directories of the store at `store`.
    ///
    /// # Errors
    /// When there is none, or its list cannot be read.
    pub fn read(store: &Path) -> anyhow::Result<Self> {
        let is_there = |name: &str| {
            let path = store.join(name);
            path.try_exists().with_context(|| format!("{}: cannot be looked at", path.display()))
        };
        if !is_there(HEAD)? && !is_there(COPY)? && !is_there(LIST)? {
            let wrong = anyhow!(
                "{0}: no packed store; make one with `crumb pack create {0} --size BYTES`",
                store.display()
            );
            return Err(wrong);
        }
        let list = store.join(LIST);
        let bytes = match fs::read(&list) {
            Err(error) if error.kind() == ErrorKind::NotFound => Vec::new(),
            bytes => bytes.with_context(|| format!("{}: cannot be read", list.display()))?,
        };
        let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).map(<[u8]>::to_vec);
        let (not_paths, paths): (Vec<_>, Vec<_>) = lines.partition(|line| line.contains(&0));
        let others =
            paths.into_iter().map(|path| PathBuf::from(std::ffi::OsString::from_vec(path))).collect();
        Ok(Self { store: store.to_owned(), others, not_paths })
    }

    /// What is wrong with the list, for `check` and `repair`, and what to do: neither can know what a line was.
    pub fn faults(&self) -> Vec<Fault> {
        let list = escaped(self.store.join(LIST).as_os_str().as_bytes());
        let what = self.not_paths.iter().map(|line| {
            let line = escaped(line);
            format!("{list}: the line `{line}` is no path; remove it, or put the path of the directory that it named")
        });
        what.map(|what| Fault { file: None, key: None, what, is_damaged: false }).collect()
    }

    /// All directories, the store's own first.
    pub fn directories(&self) -> Vec<&Path> {
        std::iter::once(&self.store).chain(&self.others).map(PathBuf::as_path).collect()
    }

    /// Opens the store. Directories that are away are left to the engine to judge.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn open(&self, options: OpenOptions) -> anyhow::Result<Store> {
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
        Store::open(disks, options).map_err(told)
    }

    /// Opens the store read-only, beside a process that writes to it or not, and waits until all that it holds is known: a
    /// cache that was not closed would answer with misses before that.
    ///
    /// # Errors
    /// As [`Store::open`] and [`Store::iter`].
    pub fn open_to_read(&self) -> anyhow::Result<Store> {
        let store = self.open(OpenOptions { read_only: true, ..OpenOptions::default() })?;
        store.iter().map(drop).map_err(told)?;
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
    pub fn keep_writers_out(&self) -> anyhow::Result<Vec<fs::File>> {
        let mut held = Vec::new();
        for directory in self.directories() {
            match Self::lock_for_reading(directory) {
                Ok(Lock::Held(file)) => held.push(file),
                Ok(Lock::Taken) => {
                    return Err(StoreError::Locked { place: directory.display().to_string() }.into());
                }
                // A directory that is away, or one that never was a volume: no process writes there.
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => {
                    let directory = escaped(directory.as_os_str().as_bytes());
                    let what = format!("{directory}: cannot be locked against writers");
                    return Err(anyhow::Error::new(error).context(what));
                }
            }
        }
        Ok(held)
    }

    fn lock_for_reading(directory: &Path) -> std::io::Result<Lock> {
        let file = fs::File::open(directory.join("lock"))?;
        match file.try_lock_shared() {
            Ok(()) => Ok(Lock::Held(file)),
            Err(fs::TryLockError::WouldBlock) => Ok(Lock::Taken),
            Err(fs::TryLockError::Error(error)) => Err(error),
        }
    }

    /// Makes a store.
    ///
    /// # Errors
    /// As [`Store::create`], and when a directory cannot be made or is given twice.
    pub fn create(
        store: &Path,
        size_bytes: u64,
        volumes: &[SizedVolume],
        options: StoreOptions,
    ) -> anyhow::Result<(Self, Store)> {
        make_directory(store)?;
        let mut place = Self { store: store.to_owned(), others: Vec::new(), not_paths: Vec::new() };
        let mut specs = vec![VolumeSpec { disk: Arc::new(LocalDisk::open(store)?), size_bytes }];
        for volume in volumes {
            place.add(&volume.directory)?;
            let disk = Arc::new(LocalDisk::open(&volume.directory)?);
            specs.push(VolumeSpec { disk, size_bytes: volume.size_bytes.unwrap_or(size_bytes) });
        }
        if store.join(HEAD).exists() {
            return Err(told(packstore::StoreError::NotEmpty { place: store.display().to_string() }));
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
                Err(told(error))
            }
        }
    }

    /// Adds a directory to a store that is open.
    ///
    /// # Errors
    /// As [`Store::add_volume`], and when the list cannot be written.
    pub fn grow(&mut self, store: &Store, directory: &Path, size_bytes: u64) -> anyhow::Result<()> {
        let before = self.others.clone();
        self.add(directory)?;
        self.write_list()?;
        let disk = Arc::new(LocalDisk::open(directory)?);
        let added = store.add_volume(VolumeSpec { disk, size_bytes });
        if let Err(error) = added {
            self.others = before;
            self.write_list()?;
            return Err(told(error));
        }
        Ok(())
    }

    /// A directory of the store, as it is listed.
    ///
    /// # Errors
    /// When it is none, or the store's own.
    pub fn member(&self, directory: &Path) -> anyhow::Result<PathBuf> {
        let whole = |path: &Path| fs::canonicalize(path).or_else(|_| std::path::absolute(path));
        let same = |other: &Path| {
            other == directory
                || matches!((whole(other), whole(directory)), (Ok(one), Ok(other)) if one == other)
        };
        if same(&self.store) {
            let why = anyhow!(
                "{}: is the store's own directory, which lists the others; it stays",
                directory.display()
            );
            return Err(why.context(BadUsage));
        }
        let found = self.others.iter().find(|other| same(other)).cloned();
        found.ok_or_else(|| {
            let others: Vec<_> = self.others.iter().map(|other| other.display().to_string()).collect();
            let others = if others.is_empty() { "it has none".to_owned() } else { others.join(", ") };
            anyhow!("{}: is no further directory of the store: {others}", directory.display())
                .context(BadUsage)
        })
    }

    /// Takes directories that are volumes no more off the list.
    ///
    /// # Errors
    /// When the list cannot be written.
    pub fn forget(&mut self, directories: &[PathBuf]) -> anyhow::Result<()> {
        self.others.retain(|other| !directories.contains(other));
        self.write_list()
    }

    fn add(&mut self, directory: &Path) -> anyhow::Result<()> {
        make_directory(directory)?;
        let whole = |path: &Path| {
            fs::canonicalize(path).with_context(|| format!("{}: cannot be used", path.display()))
        };
        let directory = whole(directory)?;
        for there in self.directories() {
            // One that is away cannot be the same.
            if whole(there).is_ok_and(|there| there == directory) {
                let wrong = anyhow!("{}: is a directory of the store already", directory.display());
                return Err(wrong.context(BadUsage));
            }
        }
        self.others.push(directory);
        Ok(())
    }

    fn write_list(&self) -> anyhow::Result<()> {
        let mut lines = Vec::new();
        let others = self.others.iter().map(|other| other.as_os_str().as_bytes());
        for line in others.chain(self.not_paths.iter().map(Vec::as_slice)) {
            lines.extend_from_slice(line);
            lines.push(b'\n');
        }
        let (new, list) = (self.store.join("volumes.new"), self.store.join(LIST));
        let write = || -> std::io::Result<()> {
            let mut file = fs::OpenOptions::new();
            let file = file.write(true).create(true).truncate(true).mode(0o600);
            let mut file = file.open(&new)?;
            file.write_all(&lines)?;
            file.sync_all()?;
            fs::rename(&new, &list)?;
            fs::File::open(&self.store)?.sync_all()
        };
        write().with_context(|| format!("{}: cannot be written", list.display()))
    }
}

/// Bytes of a damaged file for people: none of them moves the cursor, and each can be told from any other.
fn escaped(bytes: &[u8]) -> String {
    match str::from_utf8(bytes) {
        Ok(text) => text.escape_debug().to_string(),
        Err(_) => bytes.escape_ascii().to_string(),
    }
}

/// Its owner's alone: names and sizes are nobody else's business either.
fn make_directory(path: &Path) -> anyhow::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            Err(error).with_context(|| format!("{}: cannot be made", path.display()))
        }
        _ => Ok(()),
    }
}

/// The store of a `pack:` target as a file system, or a directory in it, as in `pack:/srv/objects/images`; a store is
/// made, and that said, when its directory is empty or not there.
///
/// # Errors
/// When it cannot be made or opened.
pub fn open_file_system(path: &Path) -> anyhow::Result<Arc<dyn FileSystem>> {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let is_empty = match fs::read_dir(&path) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            if let Some(above) = path.ancestors().skip(1).find(|above| above.join(HEAD).exists()) {
                let inside = path.strip_prefix(above).expect("it is above");
                return Ok(as_file_system(above, Place::read(above)?.open(OpenOptions::default())?)?
                    .below(inside)?);
            }
            true
        }
        Err(error) => return Err(error).with_context(|| format!("{}: cannot be used", path.display())),
    };
    let store = if is_empty {
        let made_directory = !path.exists();
        make_directory(&path)?;
        let free = LocalDisk::open(&path)?.room()?.free_bytes;
        let size = (free / 2).min(DEFAULT_BYTES);
        let (_, store) = Place::create(&path, size, &[], StoreOptions::default())?;
        tracing::warn!("{}: made a packed store of {} there", path.display(), bytes_text(size));
        MADE.lock().unwrap_or_else(PoisonError::into_inner).push((path.clone(), made_directory));
        store
    } else {
        Place::read(&path)?.open(OpenOptions::default())?
    };
    Ok(Arc::new(as_file_system(&path, store)?))
}

/// Stores that this process made for a target, and whether their directories too.
static MADE: Mutex<Vec<(PathBuf, bool)>> = Mutex::new(Vec::new());

/// Removes the stores that were made for a target, unless something was left in them to be kept. They take up to 10 GB,
/// and nobody asked for them to stay.
pub fn remove_unused() {
    for (path, made_directory) in MADE.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
        match is_unused(&path).and_then(|unused| if unused { remove(&path, made_directory) } else { Ok(()) })
        {
            Ok(()) => {}
            Err(error) => tracing::warn!("{}: the store made for the run is left: {error:#}", path.display()),
        }
    }
}

fn is_unused(path: &Path) -> anyhow::Result<bool> {
    let fs = as_file_system(path, Place::read(path)?.open(OpenOptions::default())?)?;
    let mut names = 0;
    fs.readdir(Path::new(""), &mut |_| names += 1)?;
    Ok(names == 0 && fs.hidden_objects() == 0)
}

/// The directory was empty before: all in it is the store's.
fn remove(path: &Path, made_directory: bool) -> anyhow::Result<()> {
    if made_directory {
        return Ok(fs::remove_dir_all(path)?);
    }
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

fn as_file_system(path: &Path, store: Store) -> anyhow::Result<PackFs> {
    let fs = PackFs::open(store, format!("pack:{}", path.display())).map_err(told)?.lying_at(path.to_owned());
    if fs.hidden_objects() > 0 {
        tracing::warn!("{} objects are not shown as files: their keys are no paths", fs.hidden_objects());
    }
    Ok(fs)
}
