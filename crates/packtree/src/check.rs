//! Everything of a tree compared with its checksums, and the names with each other. Nothing is changed.
//!
//! 1. Opening reads the manifest, the runs' indexes and the journal.
//! 2. All runs are read in order: names are counted for each inode, contents compared, blocks of `space` collected.
//! 3. Names of missing inodes, inodes with other numbers of names, blocks of two files, and blocks that are used and free are
//!    faults.
//!
//! It takes some 16 bytes of memory for each inode and for each piece of a file.

use std::collections::HashMap;
use std::sync::Arc;

use disk::{Disk, DiskFile, DiskOpen};

use crate::clean_stop;
use crate::copying;
use crate::engine::piece_is_whole;
use crate::error::{Refusal, TreeError};
use crate::format::{BLOCK_BYTES, HEAD_BYTES, Named, RoomHead, VERSION, VERSION_1, decode_node};
use crate::locking::TreeLock;
use crate::names::{BlockCache, Faults, Key, Loader};
use crate::opening::{Read, doubly_used, read};
use crate::options::TreeOptions;
use crate::presence::nothing_in_the_way;
use crate::replay::TreeFault;
use crate::space::{Run, Space};
use crate::table::{Body, Inode, Kind, Node, ROOT, Table};

/// What [`check`] found.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct TreeReport {
    /// Names of files and of all else that is no directory.
    pub names: u64,
    /// Files, each once whatever its names.
    pub files: u64,
    /// Directories, the root not counted.
    pub directories: u64,
    /// Of contents that were read and compared.
    pub bytes: u64,
    /// Bytes of `space` that are in no file and not free. They cannot be used until the tree is copied. 0 is normal, and it is 0 where
    /// damage hides what is free.
    pub leaked_bytes: u64,
    /// Whether writers were kept out meanwhile. Where the storage has no locks that a reader may take, none is taken.
    pub is_locked: bool,
    /// Whether the tree was closed after it was written, if it ever was. After a kill or a power cut the journal ends at its first record that is
    /// not whole, and damage there looks the same.
    pub is_closed: bool,
    /// What costs nothing that is known, but should not be.
    pub notes: Vec<String>,
    /// What is damaged.
    pub faults: Vec<TreeFault>,
}

/// Names that lead to an inode and what they say that it is, until the inode is met.
type Counts = HashMap<Inode, (u32, Kind), foldhash::fast::RandomState>;

struct Checker<'a> {
    table: &'a Table,
    file: &'a Arc<dyn DiskFile>,
    /// Blocks of names that are lost: then counts say nothing.
    lost: Faults,
    report: TreeReport,
    counts: Counts,
    used: Vec<Run>,
    scratch: Vec<u8>,
}

/// Checks a tree that no process writes. Nothing is written, so read-only media will do, and the right to read. `progress` is called with inodes done and inodes in all.
///
/// # Errors
/// When there is no tree, another process uses it, or the disk cannot be read.
pub fn check(disk: &dyn Disk, progress: impl FnMut(u64, u64)) -> Result<TreeReport, TreeError> {
    nothing_in_the_way(disk)?;
    checked(disk, &TreeLock::shared(disk)?, progress)
}

/// As [`check`], under a lock that is held.
pub(crate) fn checked(
    disk: &dyn Disk,
    lock: &TreeLock,
    progress: impl FnMut(u64, u64),
) -> Result<TreeReport, TreeError> {
    let mut found = read(disk, DiskOpen::Read, TreeOptions::default().cache_bytes)?;
    let unfinished = copying::fault(disk)?;
    found.faults.extend(unfinished);
    let damaged = damaged_rooms(&found)?;
    let is_new = found.last() == 0 && damaged.is_empty();
    let is_closed = is_new || clean_stop::read(disk, found.shape.id)?.is_some();
    let notes = damaged.iter().map(|segment| room_note(*segment, is_closed)).collect();
    let Read { table, file, faults, space, .. } = found;
    let _direct = BlockCache::directly(&table.blocks);
    let is_free_known = faults.is_empty();
    let report = TreeReport { is_locked: lock.is_held(), is_closed, notes, faults, ..TreeReport::default() };
    let (counts, used, scratch, lost) = (Counts::default(), Vec::new(), Vec::new(), Faults::default());
    let mut checker = Checker { table: &table, file: &file, lost, report, counts, used, scratch };
    checker.scan(progress)?;
    checker.missing();
    // Where it is not known what is free, nothing can be compared with it.
    if is_free_known {
        checker.blocks(&space);
    }
    let lost = checker.lost.into_inner().into_iter().map(|fault| TreeFault::of(damage(&fault)));
    let mut report = checker.report;
    report.faults.extend(lost);
    // After all blocks were read: it is known then which had to be made again.
    let rebuilt = table.runs().iter().flat_map(|run| run.damage_without_loss());
    report.faults.extend(rebuilt.map(TreeFault::from));
    Ok(report)
}

/// Segments whose rooms of the journal have heads that are neither unused nor whole. A head is in one sector, so a power cut leaves none
/// of these; if the journal needed the room, its changes are missing, and only a tree that was closed says so by itself.
fn damaged_rooms(found: &Read) -> Result<Vec<u32>, TreeError> {
    let mut damaged = Vec::new();
    let mut head = [0; HEAD_BYTES];
    for segment in 0..found.space.segments {
        let read = found.file.read_at(&mut head, found.shape.room_at(segment))?;
        let is_unused = head[..read].iter().all(|byte| *byte == 0);
        let is_whole = [VERSION_1, VERSION]
            .iter()
            .any(|version| RoomHead::decode(&head[..read], found.shape.id, *version).is_some());
        if !is_unused && !is_whole {
            damaged.push(segment);
        }
    }
    Ok(damaged)
}

fn room_note(segment: u32, is_closed: bool) -> String {
    let cost = match is_closed {
        true => "the tree was closed, so what it held is not needed, or its loss is a fault",
        false => "the tree was not closed, so the last changes may be missing",
    };
    format!("space: the head of the journal's room in segment {segment} is damaged; {cost}")
}

impl Checker<'_> {
    /// Reads all names, which come first, and then all inodes.
    fn scan(&mut self, mut progress: impl FnMut(u64, u64)) -> Result<(), TreeError> {
        let (loader, lost) = (Loader::Disk, Faults::default());
        let mut done = 0;
        let scanned = (|| {
            let mut merged = self.table.scan(&loader, &lost)?;
            while merged.advance()? {
                let Some(value) = &merged.value else { continue };
                if let Some((directory, _)) = Key::as_name(&merged.key) {
                    self.name(directory, Named::decode(value));
                } else if let Some(inode) = Key::as_inode(&merged.key) {
                    done += 1;
                    progress(done, self.table.inodes.max(done));
                    self.inode(inode, decode_node(value), lost.borrow().is_empty());
                }
            }
            Ok(())
        })();
        self.lost = lost;
        match scanned {
            Err(Refusal::Tree(error)) => Err(error),
            _ => Ok(()),
        }
    }

    fn fault(&mut self, what: String) {
        self.report.faults.push(TreeFault::of(what));
    }

    fn name(&mut self, directory: Inode, named: Option<Named>) {
        match named {
            Some(named) => self.counts.entry(named.inode).or_insert((0, named.kind)).0 += 1,
            None => self.fault(format!("inode {directory}: a name in it cannot be decoded")),
        }
    }

    fn inode(&mut self, inode: Inode, node: Option<Node>, names_are_whole: bool) {
        let Some(node) = node else { return self.fault(format!("inode {inode}: it cannot be decoded")) };
        let (names, kind) = self.counts.remove(&inode).unwrap_or((0, node.kind()));
        let names = names + u32::from(inode == ROOT);
        if names_are_whole && (names, kind) != (node.links, node.kind()) {
            let (links, is) = (node.links, node.kind());
            self.fault(format!(
                "inode {inode}: {names} names lead to it as a {kind:?}; it is a {is:?} and should have {links}"
            ));
        }
        match &node.body {
            Body::Directory(_) if names_are_whole && !self.table.path_of(inode).1 => {
                self.fault(format!("inode {inode}: a directory that no path leads to"));
            }
            Body::Directory(_) => self.report.directories += u64::from(inode != ROOT),
            Body::Symlink(_) | Body::Special(_) => self.report.names += u64::from(node.links),
            Body::File(content) => {
                self.report.names += u64::from(node.links);
                self.report.files += 1;
                for extent in content.extents.all() {
                    self.used.push(extent.piece.run());
                    self.report.bytes += u64::from(extent.piece.bytes);
                    if !piece_is_whole(self.file, &extent.piece, &mut self.scratch) {
                        let (from, end) = (extent.offset, extent.end());
                        let path = self.path_of(inode);
                        self.fault(format!("{path}: bytes {from} to {end} are damaged"));
                    }
                }
            }
        }
    }

    /// A path of a file, looked for in all directories.
    fn path_of(&self, wanted: Inode) -> String {
        let (loader, faults) = (Loader::Disk, Faults::default());
        let Ok(mut merged) = self.table.scan(&loader, &faults) else { return format!("inode {wanted}") };
        while let Ok(true) = merged.advance() {
            let Some((directory, name)) = Key::as_name(&merged.key) else { break };
            let named = merged.value.as_deref().and_then(Named::decode);
            if named.is_some_and(|named| named.inode == wanted) {
                let name = String::from_utf8_lossy(name).escape_debug().to_string();
                return self.table.path_of(directory).0.join(name).display().to_string();
            }
        }
        format!("inode {wanted}")
    }

    /// Names whose inodes were not met.
    fn missing(&mut self) {
        let mut missing: Vec<Inode> = std::mem::take(&mut self.counts).into_keys().collect();
        missing.sort_unstable();
        for inode in missing {
            let path = self.path_of(inode);
            self.fault(format!("{path}: a name of nothing"));
        }
    }

    /// Compares what is used with itself and with what is free.
    fn blocks(&mut self, space: &Space) {
        let mut free = space.not_named(Vec::new());
        free.sort();
        let used = std::mem::take(&mut self.used);
        let mut all: Vec<(Run, bool)> = used.into_iter().map(|run| (run, true)).collect();
        all.extend(free.runs.into_iter().map(|run| (run, false)));
        all.sort_unstable_by_key(|(run, _)| *run);
        let (mut end, mut blocks) = (0, 0);
        for (run, is_used) in all {
            if run.start < end {
                let what = if is_used { doubly_used(run).what } else { used_and_free(run) };
                self.fault(what);
            }
            blocks += run.blocks;
            end = end.max(run.end());
        }
        self.report.leaked_bytes = space.contents_bytes().saturating_sub(blocks * BLOCK_BYTES);
    }
}

fn used_and_free(run: Run) -> String {
    format!(
        "space: {} blocks from {} on are taken for free, and a file has some of them",
        run.blocks, run.start
    )
}

fn damage(fault: &Refusal) -> String {
    match fault {
        Refusal::Tree(TreeError::DamagedNames { file, offset_bytes, .. }) => {
            format!(
                "{file}: the block at byte {offset_bytes} is damaged; the names and inodes in it are lost"
            )
        }
        other => other.reason(),
    }
}
