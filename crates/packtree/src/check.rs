//! Everything of a tree compared with its checksums, and the names with each other. Nothing is changed.

use disk::{Disk, DiskOpen};

use crate::engine::piece_is_whole;
use crate::error::TreeError;
use crate::opening::read;
use crate::replay::TreeFault;
use crate::table::{Body, Inode, Node, ROOT, Table};

/// What [`check`] found.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct TreeReport {
    /// Names of files and links.
    pub names: u64,
    /// Files, each once whatever its names.
    pub files: u64,
    /// Directories, the root not counted.
    pub directories: u64,
    /// Of contents that were read and compared.
    pub bytes: u64,
    /// What is damaged.
    pub faults: Vec<TreeFault>,
}

/// Checks a tree that no process uses. `progress` is called with files done and files in all.
///
/// # Errors
/// When there is no tree, another process uses it, or the disk cannot be read.
pub fn check(disk: &dyn Disk, mut progress: impl FnMut(u64, u64)) -> Result<TreeReport, TreeError> {
    let _lock = disk.lock("lock")?.ok_or_else(|| TreeError::InUse { place: disk.place() })?;
    let found = read(disk, DiskOpen::Read)?;
    let table = &found.replayed.table;
    let mut report = TreeReport { faults: found.replayed.faults, ..TreeReport::default() };
    let of = table.len() as u64;
    let mut scratch = Vec::new();
    for (done, (inode, node)) in (1..).zip(table.inodes()) {
        progress(done, of);
        match &node.body {
            Body::Directory(_) if inode == ROOT => {}
            Body::Directory(_) => report.directories += 1,
            Body::Symlink(_) => report.names += u64::from(node.links),
            Body::File(extents) => {
                report.names += u64::from(node.links);
                report.files += 1;
                for extent in extents.all() {
                    report.bytes += u64::from(extent.piece.bytes);
                    if !piece_is_whole(&found.file, &extent.piece, &mut scratch) {
                        let (from, end) = (extent.offset, extent.end());
                        let what = format!("{}: bytes {from} to {end} are damaged", path_of(table, inode));
                        report.faults.push(TreeFault { what });
                    }
                }
            }
        }
        report.faults.extend(links_fault(table, inode, node));
    }
    Ok(report)
}

/// A number of names that is not what directories say would be a mistake of this program, or damage to a checkpoint.
fn links_fault(table: &Table, inode: Inode, node: &Node) -> Option<TreeFault> {
    if matches!(node.body, Body::Directory(_)) {
        let what = format!("inode {inode}: a directory that no path leads to");
        return (!table.is_reached(inode)).then_some(TreeFault { what });
    }
    (node.links == 0).then(|| TreeFault { what: format!("inode {inode}: a file without a name") })
}

/// A path of an inode, looked for in all directories.
fn path_of(table: &Table, wanted: Inode) -> String {
    for (inode, _) in table.inodes() {
        let entries = table.directory(inode).map(|directory| &directory.entries);
        let named = entries.and_then(|entries| entries.iter().find(|(_, named)| **named == wanted));
        if let Some((name, _)) = named {
            let name = String::from_utf8_lossy(name).escape_debug().to_string();
            return table.path_of(inode).join(name).display().to_string();
        }
    }
    format!("inode {wanted}")
}
