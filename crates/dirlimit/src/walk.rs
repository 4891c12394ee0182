//! Counts the names of a tree's directories, and keeps a sample of them.
//!
//! ```text
//! each directory -> names, blocks, Reservoir (of its own) -> the largest ones are kept
//!                              each name -> Reservoir (of the tree)
//! ```
//!
//! Other file systems that are mounted in the tree are left out. Symbolic links are names and are not followed.

use std::ffi::{CString, OsStr};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Dir, FileType, Mode, OFlags};

use crate::DirlimitError;
use crate::file_system::is_indexed;
use crate::sample::{Inode, Reservoir};

/// Names of a directory that are looked at.
const DIRECTORY_SAMPLE: usize = 2000;
/// Names of the whole tree that are looked at.
const TREE_SAMPLE: usize = 5000;
/// Report progress every 4,096 names.
const PROGRESS_EVERY: u64 = 4096;

/// How a caller follows a count and stops it.
pub struct Watch<'a> {
    /// Called with the directories and names counted so far.
    pub progress: &'a mut dyn FnMut(u64, u64),
    /// Set it to stop the count soon.
    pub stop: &'a AtomicBool,
}

/// One directory.
#[derive(Clone, Debug)]
pub(crate) struct Counted {
    pub path: PathBuf,
    /// Without `.` and `..`.
    pub names: u64,
    pub size_bytes: u64,
    /// None where the file system does not say.
    pub indexed: Option<bool>,
    sample: Reservoir<CString>,
}

impl Counted {
    /// Lengths of sampled names.
    pub fn name_bytes(&self) -> impl Iterator<Item = usize> {
        self.sample.kept().iter().map(|name| name.as_bytes().len())
    }

    /// The inodes of sampled names, of those that are still there.
    pub fn inodes(&self) -> Vec<Inode> {
        let Ok(directory) = open(&self.path) else { return Vec::new() };
        self.sample.kept().iter().filter_map(|name| Inode::of(&directory, name)).collect()
    }
}

/// A tree.
pub(crate) struct Walked {
    pub directories: u64,
    pub names: u64,
    pub unreadable: u64,
    /// The largest of those with at least `names_min` names and of the tree's own; the largest first.
    pub large: Vec<Counted>,
    pub inodes: Vec<Inode>,
}

/// Opens a directory, which must not be a symbolic link.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}

/// Counts one directory; `each` gets its names with their types.
///
/// # Errors
/// When it cannot be read.
pub(crate) fn count(
    path: &Path,
    directory: &File,
    each: &mut dyn FnMut(&std::ffi::CStr, FileType) -> bool,
) -> io::Result<Counted> {
    let mut counted = Counted {
        path: path.to_owned(),
        names: 0,
        size_bytes: directory.metadata()?.len(),
        indexed: is_indexed(directory),
        sample: Reservoir::new(DIRECTORY_SAMPLE),
    };
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        counted.names += 1;
        counted.sample.offer(|| name.to_owned());
        if !each(name, entry.file_type()) {
            break;
        }
    }
    Ok(counted)
}

/// Counts a tree and keeps its `top` largest directories of at least `names_min` names.
///
/// # Errors
/// When the tree itself cannot be read, or the caller stopped it.
pub(crate) fn walk(
    tree: &Path,
    names_min: u64,
    top: usize,
    watch: &mut Watch<'_>,
) -> Result<Walked, DirlimitError> {
    let device = open(tree).and_then(|tree| tree.metadata()).map_err(DirlimitError::read(tree))?.dev();
    let mut walked =
        Walked { directories: 0, names: 0, unreadable: 0, large: Vec::new(), inodes: Vec::new() };
    let mut sample: Reservoir<(Rc<Path>, CString)> = Reservoir::new(TREE_SAMPLE);
    let mut waiting = vec![tree.to_owned()];
    while let Some(path) = waiting.pop() {
        let here: Rc<Path> = path.as_path().into();
        let before = walked.names;
        let mut seen = 0;
        let mut each = |name: &std::ffi::CStr, kind: FileType| {
            sample.offer(|| (Rc::clone(&here), name.to_owned()));
            let below = || path.join(OsStr::from_bytes(name.to_bytes()));
            match kind {
                FileType::Directory => waiting.push(below()),
                // Some file systems do not say.
                FileType::Unknown if below().symlink_metadata().is_ok_and(|found| found.is_dir()) => {
                    waiting.push(below());
                }
                _ => {}
            }
            seen += 1;
            if seen % PROGRESS_EVERY == 0 {
                (watch.progress)(walked.directories, before + seen);
            }
            !watch.stop.load(Ordering::Relaxed)
        };
        let counted = open(&path).and_then(|directory| {
            let same = directory.metadata()?.dev() == device;
            same.then(|| count(&path, &directory, &mut each)).transpose()
        });
        if watch.stop.load(Ordering::Relaxed) {
            return Err(DirlimitError::Stopped { path: tree.to_owned() });
        }
        match counted {
            Ok(Some(counted)) => {
                walked.directories += 1;
                walked.names += counted.names;
                if counted.names >= names_min || path == tree {
                    walked.keep(counted, top);
                }
            }
            Ok(None) => {}
            Err(source) if path == tree => return Err(DirlimitError::Read { path, source }),
            Err(_) => walked.unreadable += 1,
        }
        (watch.progress)(walked.directories, walked.names);
    }
    walked.sort(top);
    walked.inodes = inodes_of(sample.kept());
    Ok(walked)
}

impl Walked {
    fn keep(&mut self, counted: Counted, top: usize) {
        self.large.push(counted);
        if self.large.len() > 2 * top.max(8) {
            self.sort(top);
        }
    }

    fn sort(&mut self, top: usize) {
        self.large.sort_by(|a, b| b.names.cmp(&a.names).then_with(|| a.path.cmp(&b.path)));
        self.large.truncate(top);
    }
}

/// Those of them that are still there; each directory is opened once.
fn inodes_of(sample: &[(Rc<Path>, CString)]) -> Vec<Inode> {
    let mut order: Vec<&(Rc<Path>, CString)> = sample.iter().collect();
    order.sort_by(|a, b| a.0.cmp(&b.0));
    let mut found = Vec::with_capacity(order.len());
    for group in order.chunk_by(|a, b| a.0 == b.0) {
        let Ok(directory) = open(&group[0].0) else { continue };
        found.extend(group.iter().filter_map(|(_, name)| Inode::of(&directory, name)));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_counted_with_its_largest_directories_and_links_are_not_followed() {
        let tree = tempfile::tempdir().unwrap();
        for (name, files) in [("a", 3), ("b", 20), ("b/c", 30)] {
            let directory = tree.path().join(name);
            std::fs::create_dir(&directory).unwrap();
            (0..files).for_each(|file| std::fs::write(directory.join(format!("{file:04}")), "x").unwrap());
        }
        std::os::unix::fs::symlink("/", tree.path().join("link")).unwrap();
        let (mut steps, stop) = (0, AtomicBool::new(false));
        let mut progress = |_: u64, _: u64| steps += 1;
        let walked = walk(tree.path(), 10, 2, &mut Watch { progress: &mut progress, stop: &stop }).unwrap();
        // a, b, link and c are names too.
        assert_eq!((walked.directories, walked.names, walked.unreadable), (4, 57, 0));
        let large: Vec<_> = walked.large.iter().map(|one| (one.path.clone(), one.names)).collect();
        assert_eq!(large, [(tree.path().join("b/c"), 30), (tree.path().join("b"), 21)]);
        assert!(walked.large[0].name_bytes().all(|bytes| bytes == 4));
        assert_eq!((walked.inodes.len(), walked.large[0].inodes().len()), (57, 30));
        assert!(steps >= 4);
    }

    #[test]
    fn a_count_that_is_stopped_and_a_tree_that_is_missing_are_errors() {
        let tree = tempfile::tempdir().unwrap();
        std::fs::write(tree.path().join("a"), "x").unwrap();
        let stop = AtomicBool::new(true);
        let mut progress = |_: u64, _: u64| {};
        let mut watch = Watch { progress: &mut progress, stop: &stop };
        assert!(matches!(walk(tree.path(), 1, 1, &mut watch), Err(DirlimitError::Stopped { .. })));
        let missing = walk(&tree.path().join("b"), 1, 1, &mut watch);
        assert!(matches!(missing, Err(DirlimitError::Read { .. })));
    }
}
