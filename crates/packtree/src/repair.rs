//! Runs of names that are damaged and of which nothing is lost, written again where they are.
//!
//! 1. Everything is checked.
//! 2. A run with a damaged block that its parity group makes again, with a damaged index or head, is written as a new file.
//! 3. A manifest that names the new files takes the place of the old one, by rename. Then the old files are removed.
//! 4. Everything is checked again.
//!
//! Always holds: a kill or a power cut at any moment leaves the damaged runs or the new ones, and the names of both are the same.
//! Not here: what can be read of a tree that lost something (`salvage`).

use std::sync::Arc;

use disk::Disk;

use crate::check::checked;
use crate::checkpoint::rewritten;
use crate::error::TreeError;
use crate::locking::TreeLock;
use crate::names::{Manifest, ManifestRead, SortedRun, remove};
use crate::opening::read_head;
use crate::presence::nothing_in_the_way;
use crate::replay::TreeFault;
use crate::spare::{self, is_full};

/// What [`repair`] did.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct TreeRepair {
    /// Faults that are no more. Nothing was lost by them.
    pub repaired: Vec<TreeFault>,
    /// Faults that are still there. [`crate::salvage`] copies what can be read.
    pub left: Vec<TreeFault>,
}

/// Repairs what can be repaired without loss, and changes nothing else. `progress` is called as by [`crate::check`], twice.
///
/// # Errors
/// When there is no tree, another process uses it, or the disk cannot be read or written. The tree is then as it was.
pub fn repair(disk: &dyn Disk, mut progress: impl FnMut(u64, u64)) -> Result<TreeRepair, TreeError> {
    nothing_in_the_way(disk)?;
    let lock = TreeLock::alone(disk)?;
    let before = checked(disk, &lock, &mut progress)?.faults;
    let write =
        || if before.iter().any(|fault| fault.is_repairable) { write_runs_again(disk) } else { Ok(false) };
    let is_written = match write() {
        // The next opening takes it again.
        Err(TreeError::Disk(error)) if is_full(&error) && spare::give_up(disk)? => write(),
        written => written,
    };
    if !is_written? {
        return Ok(TreeRepair { repaired: Vec::new(), left: before });
    }
    let left = checked(disk, &lock, &mut progress)?.faults;
    let repaired = before.into_iter().filter(|fault| !left.contains(fault)).collect();
    Ok(TreeRepair { repaired, left })
}

/// Whether there was a run to be written.
fn write_runs_again(disk: &dyn Disk) -> Result<bool, TreeError> {
    let (shape, _) = read_head(disk)?;
    // Which runs count is not known without a manifest.
    let ManifestRead::Whole(mut manifest) = Manifest::read(disk, shape.id)? else { return Ok(false) };
    let (mut old, mut new) = (Vec::new(), Vec::new());
    for at in 0..manifest.runs.len() {
        let (number, level) = manifest.runs[at];
        let Some((run, faults)) = SortedRun::open(disk, shape.id, number, level)? else { continue };
        let is_readable = (0..run.blocks()).all(|block| run.load(block).is_ok());
        let mut faults = faults.into_iter().chain(run.damage_without_loss()).peekable();
        if faults.peek().is_none() || !is_readable || !faults.all(|fault| fault.is_repairable) {
            continue;
        }
        let next = manifest.next_number;
        rewritten(disk, shape.id, next, &Arc::new(run))?;
        manifest.runs[at].0 = next;
        manifest.next_number += 1;
        old.push(number);
        new.push(next);
    }
    if old.is_empty() {
        return Ok(false);
    }
    if let Err(error) = manifest.write(disk, shape.id) {
        // Nothing names the new ones, as the manifest did not get its name.
        if Manifest::remove_new(disk, &error) {
            new.iter().for_each(|number| drop(remove(disk, &SortedRun::file_name(*number))));
        }
        return Err(error.into());
    }
    for number in old {
        remove(disk, &SortedRun::file_name(number))?;
    }
    Ok(true)
}
