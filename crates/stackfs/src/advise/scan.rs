//! Counts what lies in each directory of a lower tree, through hidden levels.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::FileType;

use crate::convert::ConvertError;
use crate::convert::guard::refuse_covered;
use crate::convert::levels::{Levels, joined};
use crate::convert::state::{Names, open_below};
use crate::managed::{is_managed, layout_of, open_directory};

/// One directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Which.
    pub path: PathBuf,
    /// Entries in it other than directories, as a mount shows them.
    pub files: u64,
    /// Whether it is managed.
    pub managed: bool,
}

/// A tree, counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scan {
    /// Directories, those of hidden levels not counted.
    pub directories: u64,
    /// Entries other than directories.
    pub files: u64,
    /// Directories of at least as many files as asked for, the largest first.
    pub large: Vec<Counted>,
    /// Files in the largest directory.
    pub largest: u64,
    /// Directories that could not be read, and are not counted.
    pub unreadable: u64,
    /// False when it was stopped.
    pub complete: bool,
}

/// How a caller follows a scan and stops it.
pub struct ScanWatch<'a> {
    /// Called with the directories and files counted so far.
    pub progress: &'a mut dyn FnMut(u64, u64),
    /// Set it to stop the scan soon.
    pub stop: &'a AtomicBool,
}

/// Counts a tree; directories of fewer than `files_min` files are only added up. Other file systems mounted in it are
/// left out: a lower tree is one.
///
/// # Errors
/// When the tree itself cannot be opened, or a mount of ours hides what lies below.
pub fn scan(tree: &Path, files_min: u64, watch: &mut ScanWatch<'_>) -> Result<Scan, ConvertError> {
    refuse_covered(tree)?;
    let opened = || {
        let tree = tree.canonicalize()?;
        let device = rustix::fs::fstat(open_directory(&tree)?)?.st_dev;
        io::Result::Ok((tree, device))
    };
    let (tree, device) = opened().map_err(|source| ConvertError::Open { path: tree.to_owned(), source })?;
    let mut scan = Scan { complete: true, ..Scan::default() };
    let mut waiting = vec![tree];
    while let Some(path) = waiting.pop() {
        if watch.stop.load(Ordering::Relaxed) {
            scan.complete = false;
            break;
        }
        match count(&path, device, watch, (scan.directories, scan.files), &mut waiting) {
            Ok(Some(counted)) => {
                scan.directories += 1;
                scan.files += counted.files;
                scan.largest = scan.largest.max(counted.files);
                if counted.files >= files_min {
                    scan.large.push(counted);
                }
            }
            Ok(None) => {}
            Err(_) => scan.unreadable += 1,
        }
        (watch.progress)(scan.directories, scan.files);
    }
    scan.large.sort_by(|a, b| b.files.cmp(&a.files).then_with(|| a.path.cmp(&b.path)));
    Ok(scan)
}

fn count(
    path: &Path,
    device: u64,
    watch: &mut ScanWatch<'_>,
    before: (u64, u64),
    waiting: &mut Vec<PathBuf>,
) -> io::Result<Option<Counted>> {
    let directory: File = open_directory(path)?;
    let stat = rustix::fs::fstat(&directory)?;
    if stat.st_dev != device {
        return Ok(None);
    }
    let managed = is_managed(stat.st_mode);
    let levels = if managed { Some(Levels::of(layout_of(&directory)?)) } else { None };
    let mut tally = Tally { path, levels, files: 0, waiting, watch, before };
    tally.level(&directory, b"")?;
    Ok(Some(Counted { path: path.to_owned(), files: tally.files, managed }))
}

struct Tally<'a, 'w> {
    path: &'a Path,
    levels: Option<Levels>,
    files: u64,
    waiting: &'a mut Vec<PathBuf>,
    watch: &'a mut ScanWatch<'w>,
    before: (u64, u64),
}

/// Report progress every 4,096 files within a directory.
const PROGRESS_EVERY: u64 = 4096;

impl Tally<'_, '_> {
    fn level(&mut self, level: impl AsFd, at: &[u8]) -> io::Result<()> {
        for entry in Names::of(&level)? {
            let (name, kind) = entry?;
            if kind != FileType::Directory {
                self.files += 1;
                if self.files.is_multiple_of(PROGRESS_EVERY) {
                    (self.watch.progress)(self.before.0, self.before.1 + self.files);
                }
                continue;
            }
            let below = joined(at, name.to_bytes());
            if self.levels.as_ref().is_some_and(|levels| levels.is_level(&below)) {
                self.level(open_below(&level, &name)?, &below)?;
            } else {
                self.waiting.push(self.path.join(std::ffi::OsStr::from_bytes(&below)));
            }
            if self.watch.stop.load(Ordering::Relaxed) {
                break;
            }
        }
        Ok(())
    }
}
