//! The directories of a store (`packfs::VolumeList`) as verbs name them, and stores as targets of benchmarks.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use disk::{Disk, LocalDisk};
use files::FileSystem;
use packfs::{PackFs, VolumeList, VolumesError, make_directory};
use packstore::{Fault, OpenOptions, Store, StoreOptions};
use report::bytes_text;

use super::owner::say_owner;
use super::{tree, with_usage_marked};
use crate::exit::BadUsage;
use crate::quantities::size;

/// The engine's head of a volume.
const HEAD: &str = "volume";
/// Of a store that a benchmark makes by itself; less where half of the free room is less.
const DEFAULT_BYTES: u64 = 10 << 30;

/// `DIR` or `DIR=SIZE`.
#[derive(Clone, Debug)]
pub struct SizedVolume {
    directory: PathBuf,
    size_bytes: Option<u64>,
}

impl SizedVolume {
    /// Its size; that of the store's own directory where it names none.
    pub fn size_or(&self, of_store: u64) -> u64 {
        self.size_bytes.unwrap_or(of_store)
    }
}

impl FromStr for SizedVolume {
    type Err = measure::ValueError;

    fn from_str(text: &str) -> Result<Self, measure::ValueError> {
        let (directory, size_bytes) = match text.rsplit_once('=') {
            None => (text, None),
            Some((directory, text)) => {
                let bytes = size(text)
                    .map_err(|wrong| format!("`{text}`: {wrong}; expected DIR or DIR=SIZE, as in /d2=10G"))?;
                (directory, Some(bytes))
            }
        };
        if directory.is_empty() || directory.contains('\n') {
            return Err("expected DIR or DIR=SIZE, as in /d2=10G".into());
        }
        Ok(Self { directory: directory.into(), size_bytes })
    }
}

/// The directories of a store; its errors are for people, and mark bad usage.
#[derive(Clone, Debug)]
pub struct Place(VolumeList);

impl Place {
    /// As [`VolumeList::read`].
    pub fn read(store: &Path) -> anyhow::Result<Self> {
        tree::refuse(store)?;
        VolumeList::read(store).map(Self).map_err(told_of_volumes)
    }

    /// As [`VolumeList::read_to_repair`].
    pub fn read_to_repair(store: &Path) -> anyhow::Result<(Self, Vec<Fault>)> {
        tree::refuse(store)?;
        let (list, moved) = VolumeList::read_to_repair(store).map_err(told_of_volumes)?;
        Ok((Self(list), moved))
    }

    /// As [`VolumeList::faults`].
    pub fn faults(&self) -> Vec<Fault> {
        self.0.faults()
    }

    /// As [`VolumeList::store`].
    pub fn store(&self) -> &Path {
        self.0.store()
    }

    /// As [`VolumeList::directories`].
    pub fn directories(&self) -> Vec<&Path> {
        self.0.directories()
    }

    /// As [`VolumeList::open`].
    pub fn open(&self, options: OpenOptions) -> anyhow::Result<Store> {
        if !options.read_only {
            self.directories().into_iter().for_each(say_owner);
        }
        self.0.open(options).map_err(told_of_volumes)
    }

    /// As [`VolumeList::open_to_read`].
    pub fn open_to_read(&self) -> anyhow::Result<Store> {
        self.0.open_to_read().map_err(told_of_volumes)
    }

    /// As [`VolumeList::is_in_use`].
    pub fn is_in_use(&self) -> bool {
        self.0.is_in_use()
    }

    /// As [`VolumeList::keep_writers_out`].
    pub fn keep_writers_out(&self) -> anyhow::Result<Vec<fs::File>> {
        self.0.keep_writers_out().map_err(told_of_volumes)
    }

    /// As [`VolumeList::create`]; a directory that names no size of its own gets that of the store's.
    pub fn create(
        store: &Path,
        size_bytes: u64,
        volumes: &[SizedVolume],
        options: StoreOptions,
    ) -> anyhow::Result<(Self, Store)> {
        let sized = |volume: &SizedVolume| (volume.directory.clone(), volume.size_or(size_bytes));
        let volumes: Vec<_> = volumes.iter().map(sized).collect();
        volumes.iter().try_for_each(|(directory, _)| tree::refuse(directory))?;
        let made = VolumeList::create(store, size_bytes, &volumes, options);
        made.map(|(list, store)| (Self(list), store)).map_err(told_of_volumes)
    }

    /// As [`VolumeList::grow`].
    pub fn grow(&mut self, store: &Store, directory: &Path, size_bytes: u64) -> anyhow::Result<()> {
        tree::refuse(directory)?;
        self.0.grow(store, directory, size_bytes).map_err(told_of_volumes)
    }

    /// As [`VolumeList::member`].
    pub fn member(&self, directory: &Path) -> anyhow::Result<PathBuf> {
        self.0.member(directory).map_err(told_of_volumes)
    }

    /// As [`VolumeList::forget`].
    pub fn forget(&mut self, directories: &[PathBuf]) -> anyhow::Result<()> {
        self.0.forget(directories).map_err(told_of_volumes)
    }
}

/// The engine's errors as this program reports them.
fn told_of_volumes(error: VolumesError) -> anyhow::Error {
    match error {
        VolumesError::Store(error) => with_usage_marked(error),
        VolumesError::Disk(error) => error.into(),
        error if error.is_bad_request() => anyhow::Error::new(error).context(BadUsage),
        error => error.into(),
    }
}

/// The store or file tree of a `pack:` target as a file system, or a directory in it, as in `pack:/srv/objects/images`; a store is
/// made, and that said, when its directory is empty or not there.
///
/// # Errors
/// When it cannot be made or opened.
pub fn open_file_system(path: &Path) -> anyhow::Result<Arc<dyn FileSystem>> {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    if let Some(tree) = tree::open_at_or_above(&path)? {
        return Ok(Arc::new(tree));
    }
    tree::refuse_remains(&path)?;
    let is_empty = match fs::read_dir(&path) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            if let Some(above) = path.ancestors().skip(1).find(|above| above.join(HEAD).exists()) {
                let inside = path.strip_prefix(above).expect("it is above");
                return Ok(as_file_system(above, Place::read(above)?.open(OpenOptions::default())?)?
                    .below(inside)?);
            }
            tree::refuse_remains_above(&path)?;
            true
        }
        Err(error) => return Err(error).with_context(|| format!("{}: cannot be used", path.display())),
    };
    let store = if is_empty {
        let made_directory = !path.exists();
        make_directory(&path).map_err(told_of_volumes)?;
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
    let fs = PackFs::open(store, format!("pack:{}", path.display()))
        .map_err(with_usage_marked)?
        .lying_at(path.to_owned());
    if fs.hidden_objects() > 0 {
        tracing::warn!("{} objects are not shown as files: their keys are no paths", fs.hidden_objects());
    }
    Ok(fs)
}
