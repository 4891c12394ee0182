//! A tree made, in a directory that has nothing, or what an unfinished creation left.
//!
//! 1. `space`: one segment of zeros. It stays so until the tree is opened to be written.
//! 2. `spare`: room in reserve, if there is any.
//! 3. `names-1`, `free-2`, `manifest`: the root, and that all is free.
//! 4. `tree`: by rename, last. From then on there is a tree.
//!
//! Always holds: what an unfinished creation left is taken up only when there is nothing in it; a directory that lost `tree` alone is
//! never made a new tree.

use std::hash::{BuildHasher as _, RandomState};
use std::io::ErrorKind;

use disk::{Disk, DiskOpen};

use crate::checkpoint::Checkpoint;
use crate::copying::COPYING;
use crate::error::TreeError;
use crate::format::{HEAD_BYTES, Head, RECORD_BYTES_MAX, RUN_MAGIC, TreeHead};
use crate::locking::{LOCK, TreeLock};
use crate::names::{FreeMap, MANIFEST, Manifest, SortedRun, is_of_names, remove};
use crate::opening::{HEAD, HEAD_NEW, SPACE};
use crate::options::TreeOptions;
use crate::presence::nothing_in_the_way;
use crate::spare;
use crate::table::Table;
use crate::version1;

/// The first run and the first list of free blocks.
const FIRST: Manifest =
    Manifest { sequence: 0, next_inode: 0, inodes: 0, next_number: 1, free_number: 0, runs: Vec::new() };
/// A run that has the root alone is shorter, and so is one that was begun.
const ROOT_RUN_BYTES_MAX: u64 = 1024;
/// What a tree has that was opened and closed.
const CLOSED: [&str; 2] = ["clean", "clean.new"];
/// A creation makes `space` no longer than a segment can be.
const UNUSED_BYTES_MAX: u64 = u32::MAX as u64;

/// Makes an empty tree in a directory that is empty, or has what an unfinished creation left.
pub(crate) fn create(disk: &dyn Disk, options: &TreeOptions) -> Result<(), TreeError> {
    let shape = shape_of(options)?;
    leftovers(disk)?;
    let _lock = TreeLock::alone(disk)?;
    // Again: another process may have made it meanwhile.
    for name in leftovers(disk)? {
        disk.remove(&name)?;
    }
    let space = disk.open(SPACE, DiskOpen::New)?;
    space.reserve(0, shape.segment_bytes.into())?;
    space.set_length(shape.segment_bytes.into())?;
    space.sync()?;
    spare::take(disk, &shape)?;
    let mut table = Table::new(version1::own(), 0);
    let free = FreeMap { segments: 1, runs: vec![shape.contents_of(0)] };
    write_names(disk, &shape, &mut table, free, 0)?;
    write_head(disk, &shape)
}

/// From now on it is a tree of the format that this program writes.
pub(crate) fn write_head(disk: &dyn Disk, shape: &TreeHead) -> Result<(), TreeError> {
    remove(disk, HEAD_NEW)?;
    let head = disk.open(HEAD_NEW, DiskOpen::New)?;
    head.write_at(&shape.encode(), 0)?;
    head.sync()?;
    disk.rename(HEAD_NEW, HEAD)?;
    disk.sync_names()?;
    Ok(())
}

/// Writes all that a table has, which has no runs, as the first run of a tree.
pub(crate) fn write_names(
    disk: &dyn Disk,
    shape: &TreeHead,
    table: &mut Table,
    mut free: FreeMap,
    sequence: u64,
) -> Result<Manifest, TreeError> {
    let layer = table.freeze();
    free.sort();
    let (next_inode, inodes) = (table.next_inode, table.inodes);
    let checkpoint = Checkpoint { sequence, next_inode, inodes, layer: &layer, free };
    let (manifest, run) = checkpoint.write(disk, shape.id, &FIRST, &[])?;
    table.written(run.into_iter().collect());
    Ok(manifest)
}

/// Files that an unfinished creation left, all of which may go.
pub(crate) fn leftovers(disk: &dyn Disk) -> Result<Vec<String>, TreeError> {
    let mut names = disk.names()?;
    if names.iter().any(|name| [SPACE, MANIFEST].contains(&&**name)) {
        nothing_in_the_way(disk)?;
    }
    names.retain(|name| name != LOCK && name != COPYING);
    let was_closed = names.iter().any(|name| CLOSED.contains(&&**name));
    let is_known = |name: &String| is_of_creation(name) || CLOSED.contains(&&**name);
    if !names.iter().all(is_known) || !disk.other_than_files()?.is_empty() {
        return Err(TreeError::NotEmpty { place: disk.place() });
    }
    match !was_closed && is_unused(disk)? {
        true => Ok(names),
        false => Err(TreeError::HeadMissing { place: disk.place() }),
    }
}

/// Whether a creation of any version makes a file of this name before `tree`.
fn is_of_creation(name: &str) -> bool {
    [SPACE, HEAD_NEW, spare::NAME].contains(&name) || version1::NAMES.contains(&name) || is_of_names(name)
}

/// Whether `space` and the files of names, as far as they are there, hold nothing.
pub(crate) fn is_unused(disk: &dyn Disk) -> Result<bool, TreeError> {
    let names = disk.names()?;
    let length_of = |name: &str| match disk.open(name, DiskOpen::Read) {
        Ok(file) => Ok(Some((file.length()?, file))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(TreeError::Disk(error)),
    };
    if length_of(version1::NAMES[0])?.is_some_and(|(bytes, _)| bytes > HEAD_BYTES as u64) {
        return Ok(false);
    }
    for name in names.iter().filter(|name| is_of_names(name)) {
        // A checkpoint, or a tree of format 1 that became one of format 2, has changes in it.
        let is_first = ["manifest", "manifest.new", &SortedRun::file_name(1), &FreeMap::file_name(2)]
            .contains(&name.as_str());
        let Some((bytes, file)) = length_of(name)? else { continue };
        let mut head = [0; HEAD_BYTES];
        let read = file.read_at(&mut head, 0)?;
        let has_changes = Head::decode(RUN_MAGIC, &head[..read]).is_some_and(|head| head.numbers[2] > 0);
        if !is_first || has_changes || bytes > ROOT_RUN_BYTES_MAX {
            return Ok(false);
        }
    }
    let Some((bytes, space)) = length_of(SPACE)? else { return Ok(true) };
    if bytes > UNUSED_BYTES_MAX {
        return Ok(false);
    }
    let mut piece = vec![0; 1 << 20];
    for at in (0..bytes).step_by(piece.len()) {
        let read = space.read_at(&mut piece, at)?;
        if piece[..read].iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
    }
    Ok(true)
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
