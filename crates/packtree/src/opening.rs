//! A tree made, opened, and closed.
//!
//! ```text
//! create: space (one segment), names (none), then tree, whose name says that all is there
//! open:   lock -> tree -> replay -> free runs -> [to write: sync, a room of the journal that ends what was found]
//! ```
//!
//! Always holds: an opening that found damage only reads; one that only reads writes nothing at all.

use std::hash::{BuildHasher as _, RandomState};
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use disk::{Disk, DiskFile, DiskOpen};

use crate::checkpoint;
use crate::clean_stop;
use crate::engine::{Engine, Found, State};
use crate::error::{Refusal, TreeError};
use crate::format::{HEAD_BYTES, RECORD_BYTES_MAX, TREE_MAGIC, TreeHead};
use crate::journal::Tail;
use crate::options::TreeOptions;
use crate::replay::{Replayed, TreeFault, replay};
use crate::space::Space;
use crate::table::{Body, Table};

const HEAD: &str = "tree";
const HEAD_NEW: &str = "tree.new";
const SPACE: &str = "space";
const LOCK: &str = "lock";

/// Makes an empty tree on an empty disk.
pub(crate) fn create(disk: &dyn Disk, options: &TreeOptions) -> Result<(), TreeError> {
    let shape = shape_of(options)?;
    if disk.names()?.iter().any(|name| name != LOCK) || !disk.other_than_files()?.is_empty() {
        return Err(TreeError::NotEmpty { place: disk.place() });
    }
    let _lock = disk.lock(LOCK)?.ok_or_else(|| TreeError::InUse { place: disk.place() })?;
    let space = disk.open(SPACE, DiskOpen::New)?;
    space.reserve(0, shape.segment_bytes.into())?;
    space.set_length(shape.segment_bytes.into())?;
    space.sync()?;
    checkpoint::write(disk, &checkpoint::encode(&Table::new(), shape.id, 0))?;
    let head = disk.open(HEAD_NEW, DiskOpen::New)?;
    head.write_at(&shape.encode(), 0)?;
    head.sync()?;
    disk.rename(HEAD_NEW, HEAD)?;
    disk.sync_names()?;
    Ok(())
}

fn shape_of(options: &TreeOptions) -> Result<TreeHead, TreeError> {
    let (segment_bytes, room_bytes) = (options.segment_bytes, options.journal_bytes);
    let wrong = match () {
        () if !segment_bytes.is_multiple_of(4096) || !room_bytes.is_multiple_of(4096) => {
            "not whole pages of 4096"
        }
        () if (room_bytes as usize) < HEAD_BYTES + RECORD_BYTES_MAX => {
            "too short a journal for the longest record"
        }
        () if room_bytes > segment_bytes / 2 => "more journal than contents",
        () => "",
    };
    if !wrong.is_empty() {
        return Err(TreeError::Shape { segment_bytes, room_bytes, wrong });
    }
    let random = || u128::from(RandomState::new().hash_one(1));
    Ok(TreeHead { id: random() << 64 | random(), segment_bytes, room_bytes })
}

/// Whether a directory has a tree, of any version.
pub fn is_tree(directory: &Path) -> bool {
    let path = directory.join(HEAD);
    // A pipe in its place would be waited for.
    if !std::fs::symlink_metadata(&path).is_ok_and(|found| found.is_file()) {
        return false;
    }
    let head = std::fs::File::open(path);
    let mut magic = [0; 8];
    head.is_ok_and(|mut head| head.read_exact(&mut magic).is_ok() && magic == *TREE_MAGIC)
}

/// What a tree's directory says of it.
fn read_head(disk: &dyn Disk) -> Result<TreeHead, TreeError> {
    let no_tree = || TreeError::NoTree { place: disk.place() };
    let file = match disk.open(HEAD, DiskOpen::Read) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Err(no_tree()),
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
    pub replayed: Replayed,
    pub space: Space,
}

/// Reads a tree, and adds what does not fit together to the faults.
pub(crate) fn read(disk: &dyn Disk, how: DiskOpen) -> Result<Read, TreeError> {
    let shape = read_head(disk)?;
    let file = disk.open(SPACE, how)?;
    let mut replayed = replay(disk, &file, &shape)?;
    let table = &mut replayed.table;
    for (directory, name) in table.names_of_missing() {
        let path = table.path_of(directory).join(String::from_utf8_lossy(&name).as_ref());
        replayed.faults.push(TreeFault { what: format!("{}: a name of nothing", path.display()) });
    }
    let mut used = Vec::new();
    for (_, node) in table.inodes() {
        if let Body::File(extents) = &node.body {
            used.extend(extents.all().iter().map(|extent| extent.piece.run()));
        }
    }
    let rooms: Vec<u32> = replayed.used.iter().map(|room| room.segment).collect();
    let (space, overlapping) = Space::rebuilt(shape, replayed.segments, used, &rooms);
    for run in overlapping {
        let what = format!("space: block {} belongs to two files, or to none that can be", run.start);
        replayed.faults.push(TreeFault { what });
    }
    Ok(Read { shape, file, replayed, space })
}

/// Opens a tree. One with faults can be read only.
pub(crate) fn open(disk: Arc<dyn Disk>, read_only: bool) -> Result<(Engine, Vec<TreeFault>), TreeError> {
    read_head(&*disk)?;
    let lock = disk.lock(LOCK)?.ok_or_else(|| TreeError::InUse { place: disk.place() })?;
    let Read { shape, file, replayed, space } = read(&*disk, DiskOpen::Write)?;
    let Replayed { table, last, used, next_number, checkpoint_bytes, faults, .. } = replayed;
    let read_only = read_only || !faults.is_empty();
    if !read_only {
        clean_stop::clear(&*disk)?;
    }
    let state = State { table, space, tail: Tail::new(shape, last, next_number, used) };
    let lock = Some(lock);
    let engine = Engine::new(Found { disk, file, shape, state, checkpoint_bytes, read_only, lock });
    if !read_only {
        engine.begin().map_err(|refusal| match refusal {
            Refusal::Tree(error) => error,
            Refusal::Status(_) | Refusal::Room => TreeError::Full { place: engine.place.clone() },
        })?;
    }
    Ok((engine, faults))
}

/// Makes all durable and says so.
pub(crate) fn close(engine: &Engine) -> Result<(), TreeError> {
    if engine.read_only {
        return Ok(());
    }
    engine.settle()?;
    let last = engine.read().tail.changed;
    Ok(clean_stop::write(&*engine.disk, engine.shape.id, last)?)
}
