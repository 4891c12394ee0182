//! A tree opened, and closed.
//!
//! ```text
//! open: lock -> tree -> manifest, heads and indexes of runs -> replay -> [to write: sync, a room of the journal that ends what
//!       was found]; a tree of format 1 is first written as one of format 2
//! ```
//!
//! Always holds: an opening that found damage, or may not write, only reads; one that only reads writes nothing at all.

use std::io::ErrorKind;
use std::sync::Arc;

use disk::{Disk, DiskError, DiskFile, DiskOpen};

use crate::clean_stop;
use crate::copying;
use crate::creation::{is_unused, write_head, write_names};
use crate::engine::{Engine, Found, State};
use crate::error::{Refusal, TreeError};
use crate::format::{HEAD_BYTES, TreeHead, VERSION_1};
use crate::journal::Tail;
use crate::locking::TreeLock;
use crate::names::{FreeMap, Manifest, ManifestRead, SortedRun, remove_others};
use crate::options::TreeOptions;
use crate::presence::nothing_in_the_way;
use crate::replay::{Journal, Replayed, TreeFault};
use crate::space::{Run, Space};
use crate::spare::is_full;
use crate::table::Table;
use crate::version1;

pub(crate) const HEAD: &str = "tree";
pub(crate) const HEAD_NEW: &str = "tree.new";
pub(crate) const SPACE: &str = "space";
/// 64 TiB of segments of the usual length. An opening looks at each of them.
const SEGMENTS_MAX: u64 = 1 << 20;

/// What a tree's directory says of it.
pub(crate) fn read_head(disk: &dyn Disk) -> Result<(TreeHead, u32), TreeError> {
    let no_tree = || TreeError::NoTree { place: disk.place() };
    let file = match disk.open(HEAD, DiskOpen::Read) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let headless = disk.names()?.iter().any(|name| name == SPACE) && !is_unused(disk)?;
            return Err(if headless { TreeError::HeadMissing { place: disk.place() } } else { no_tree() });
        }
        opened => opened?,
    };
    let mut bytes = [0; HEAD_BYTES];
    let read = file.read_at(&mut bytes, 0)?;
    match TreeHead::decode(&bytes[..read]) {
        Some(Ok(head)) => Ok(head),
        Some(Err(version)) => Err(TreeError::Version { place: disk.place(), version }),
        None => Err(no_tree()),
    }
}

/// A tree as its disk has it, before anything is written.
pub(crate) struct Read {
    pub shape: TreeHead,
    pub file: Arc<dyn DiskFile>,
    pub table: Table,
    pub space: Space,
    pub faults: Vec<TreeFault>,
    version: u32,
    manifest: Manifest,
    replayed: Replayed,
    next_number: u64,
}

impl Read {
    /// Number of the last change that counts.
    pub(crate) fn last(&self) -> u64 {
        self.replayed.last
    }
}

/// Reads a tree, and adds what does not fit together to the faults.
pub(crate) fn read(disk: &dyn Disk, how: DiskOpen, cache_bytes: u64) -> Result<Read, TreeError> {
    let (shape, version) = read_head(disk)?;
    let file = disk.open(SPACE, how)?;
    let segments = file.length()? / u64::from(shape.segment_bytes);
    let mut faults = Vec::new();
    if segments > SEGMENTS_MAX {
        let what = format!(
            "space: {segments} segments are more than any tree has; what is behind the first {SEGMENTS_MAX} is not read"
        );
        faults.push(TreeFault::of(what));
    }
    let segments = segments.min(SEGMENTS_MAX) as u32;
    if version == VERSION_1 {
        let mut table = Table::new(version1::own(), cache_bytes);
        let sequence = version1::restore(disk, shape.id, &mut table, &mut faults)?;
        let journal = Journal::find(&*file, &shape, version, segments, sequence)?;
        let replayed = journal.replay(disk, &file, &mut table, None, &mut faults)?;
        let (space, overlapping) = Space::rebuilt(shape, segments, table.used_in_memory());
        faults.extend(overlapping.into_iter().map(doubly_used));
        let (manifest, next_number) = (Manifest::default(), journal.next_number);
        return Ok(Read { shape, file, table, space, faults, version, manifest, replayed, next_number });
    }
    let manifest = match Manifest::read(disk, shape.id)? {
        ManifestRead::Whole(manifest) => manifest,
        ManifestRead::Recovered(manifest) => {
            let what = "manifest: missing or damaged; all runs that are there are taken".to_owned();
            faults.push(TreeFault::of(what));
            manifest
        }
    };
    let mut runs = Vec::new();
    for (number, level) in &manifest.runs {
        match SortedRun::open(disk, shape.id, *number, *level)? {
            Some((run, fault)) => {
                runs.push(Arc::new(run));
                faults.extend(fault.into_iter().map(TreeFault::from));
            }
            None => {
                let name = SortedRun::file_name(*number);
                let what = format!("{name}: missing, or its head is damaged; what only it has is lost");
                faults.push(TreeFault::of(what));
            }
        }
    }
    let mut table = Table::of_runs(runs, manifest.next_inode, manifest.inodes, cache_bytes);
    let free = FreeMap::read(disk, shape.id, manifest.free_number)?.unwrap_or_else(|| {
        let name = FreeMap::file_name(manifest.free_number);
        faults.push(TreeFault::of(format!("{name}: missing or damaged; it is not known what is free")));
        FreeMap::default()
    });
    let mut space = Space::restored(shape, segments, &free);
    let journal = Journal::find(&*file, &shape, version, segments, manifest.sequence)?;
    // What is wrong anyway would be reported once more for each change.
    let with_space = faults.is_empty().then_some(&mut space);
    let replayed = journal.replay(disk, &file, &mut table, with_space, &mut faults)?;
    let rooms: Vec<u32> = replayed.used.iter().map(|room| room.segment).collect();
    space.use_rooms(&rooms);
    let next_number = journal.next_number;
    Ok(Read { shape, file, table, space, faults, version, manifest, replayed, next_number })
}

pub(crate) fn doubly_used(run: Run) -> TreeFault {
    let what = format!("space: block {} belongs to two files, or to none that can be", run.start);
    TreeFault::of(what)
}

/// An open tree.
pub(crate) struct Opening {
    pub engine: Engine,
    pub faults: Vec<TreeFault>,
    /// Why nothing can be written, when neither faults nor the caller are the reason.
    pub unwritable: Option<DiskError>,
}

/// Opens a tree. One with faults can be read only, and so can one on read-only media, without the right to write, or on a disk that has no
/// room for the beginning of a journal.
pub(crate) fn open(disk: Arc<dyn Disk>, options: &TreeOptions) -> Result<Opening, TreeError> {
    match open_as(Arc::clone(&disk), options, Purpose::Write) {
        Err(TreeError::Full { place }) => {
            let full = DiskError {
                place,
                name: SPACE.to_owned(),
                operation: "write",
                source: ErrorKind::StorageFull.into(),
            };
            open_as(disk, options, Purpose::Read(Some(full)))
        }
        Err(TreeError::Disk(error)) if is_full(&error) => open_as(disk, options, Purpose::Read(Some(error))),
        opened => opened,
    }
}

/// Opens a tree and writes nothing, whatever could be written.
pub(crate) fn open_to_read(disk: Arc<dyn Disk>, options: &TreeOptions) -> Result<Opening, TreeError> {
    open_as(disk, options, Purpose::Read(None))
}

/// Opens a new tree that a copy is written into.
pub(crate) fn open_to_copy(disk: Arc<dyn Disk>, options: &TreeOptions) -> Result<Opening, TreeError> {
    open_as(disk, options, Purpose::Copy)
}

/// What a tree is opened for.
#[derive(Debug)]
enum Purpose {
    Write,
    /// Like that, although the copy has not ended.
    Copy,
    /// And why not to write, where that is not the caller's wish.
    Read(Option<DiskError>),
}

fn open_as(disk: Arc<dyn Disk>, options: &TreeOptions, purpose: Purpose) -> Result<Opening, TreeError> {
    nothing_in_the_way(&*disk)?;
    read_head(&*disk)?;
    let (lock, purpose) = match purpose {
        Purpose::Write => match TreeLock::alone(&*disk) {
            Err(TreeError::Disk(error)) if forbids_writing(&error) => {
                (TreeLock::shared(&*disk)?, Purpose::Read(Some(error)))
            }
            locked => (locked?, Purpose::Write),
        },
        Purpose::Copy => (TreeLock::alone(&*disk)?, Purpose::Copy),
        to_read => (TreeLock::shared(&*disk)?, to_read),
    };
    let unfinished = match purpose {
        Purpose::Copy => None,
        _ => copying::fault(&*disk)?,
    };
    let (how, only_reads, unwritable) = match purpose {
        Purpose::Write | Purpose::Copy => (DiskOpen::Write, false, None),
        Purpose::Read(why) => (DiskOpen::Read, true, why),
    };
    let mut found = read(&*disk, how, options.cache_bytes)?;
    found.faults.extend(unfinished);
    let read_only = only_reads || !found.faults.is_empty();
    if !read_only {
        clean_stop::clear(&*disk)?;
        if found.version == VERSION_1 {
            upgrade(&*disk, &mut found)?;
        }
        remove_others(&*disk, &found.manifest)?;
        // A kill may have left a manifest whose name is not durable; rooms that it frees are going to be used again.
        disk.sync_names()?;
    }
    let Read { shape, file, table, space, faults, manifest, replayed, next_number, .. } = found;
    let tail = Tail::new(shape, replayed.last, next_number, replayed.used);
    let state = State { table, space, tail };
    let engine = Engine::new(Found { disk, file, shape, state, manifest, read_only, lock });
    if !read_only {
        engine.begin().map_err(|refusal| match refusal {
            Refusal::Tree(error) => error,
            _ => TreeError::Full { place: engine.place.clone() },
        })?;
    }
    Ok(Opening { engine, faults, unwritable })
}

fn forbids_writing(error: &DiskError) -> bool {
    matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem)
}

/// Writes a tree of format 1, which is in memory, as one of format 2. Until the last step it is one of format 1.
fn upgrade(disk: &dyn Disk, found: &mut Read) -> Result<(), TreeError> {
    tracing::info!(place = disk.place(), "a file tree of format 1 becomes one of format 2");
    found.file.sync()?;
    // What an attempt that was killed left.
    remove_others(disk, &Manifest::default())?;
    let free = found.space.not_named(Vec::new());
    found.manifest = write_names(disk, &found.shape, &mut found.table, free, found.replayed.last)?;
    write_head(disk, &found.shape)?;
    version1::forget(disk)?;
    found.replayed.used.clear();
    found.space.use_rooms(&[]);
    Ok(())
}

/// Makes all durable and says so.
pub(crate) fn close(engine: &Engine) -> Result<(), TreeError> {
    if engine.read_only {
        return Ok(());
    }
    engine.settle()?;
    engine.give_back_when_short()?;
    let last = engine.read().tail.changed;
    let written = engine.with_room(|| Ok(clean_stop::write(&*engine.disk, engine.shape.id, last)?));
    match written {
        // All is durable nevertheless; only damage to the journal's end would not be noticed.
        Err(TreeError::Disk(error)) if is_full(&error) => {
            tracing::warn!(place = %engine.place, "the disk is full: it could not be noted that the tree was closed");
        }
        written => written?,
    }
    engine.retake_spare();
    Ok(())
}
