//! A whole directory tree through the blocking seam: how large it is, and its removal.
//!
//! Always holds: each directory is opened by its own name from the one above, never through a link, and on the file system of the
//! first one: what a link or a mount point in the tree leads to is neither counted nor removed.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{FileKind, FileSystem, FsError, FsOp, Status};

/// What is in a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TreeSize {
    /// Names of what is no directory.
    pub files: u64,
    /// Directories, the first one not counted.
    pub directories: u64,
    /// Bytes of regular files; a file with several names counts with each.
    pub bytes: u64,
}

/// No benchmark makes deeper trees; each level holds a descriptor.
const DEPTH_MAX: u32 = 256;
/// Names removed between two reports.
const PROGRESS_EVERY: u64 = 1024;

/// Counts what is in the directory that is the root of `fs`.
///
/// # Errors
/// When a directory cannot be read, is on another file system, or is too deep.
pub fn tree_size(fs: &dyn FileSystem) -> Result<TreeSize, FsError> {
    let mut size = TreeSize::default();
    let fsid = fs.stat(Path::new(""))?.fsid;
    add_size(fs, fsid, DEPTH_MAX, &mut size)?;
    Ok(size)
}

fn add_size(fs: &dyn FileSystem, fsid: u64, depth: u32, size: &mut TreeSize) -> Result<(), FsError> {
    for name in names_in(fs)? {
        let found = match fs.stat(&name) {
            // Gone meanwhile.
            Err(error) if error.status() == Some(Status::NOENT) => continue,
            found => found?,
        };
        if found.kind == FileKind::Directory {
            size.directories += 1;
            add_size(&*below_on(fs, &name, fsid, depth)?, fsid, depth - 1, size)?;
        } else {
            size.files += 1;
            size.bytes += if found.kind == FileKind::Regular { found.size } else { 0 };
        }
    }
    Ok(())
}

/// Removes the directory `path` with its contents. Removes the name `last` in it, if it exists, after all others. Calls
/// `progress` now and then with the number of names removed. A missing directory is not an error.
///
/// # Errors
/// When something cannot be removed, is on another file system, or is too deep. What was removed until then is gone.
pub fn remove_tree(
    fs: &dyn FileSystem,
    path: &Path,
    last: &Path,
    progress: &mut dyn FnMut(u64),
) -> Result<u64, FsError> {
    let mut gone = Gone { names: 0, progress };
    let below = match fs.below_itself(path) {
        Err(error) if error.status() == Some(Status::NOENT) => return Ok(0),
        other => other?,
    };
    let fsid = below.stat(Path::new(""))?.fsid;
    let names = names_in(&*below)?;
    remove_names(&*below, names.iter().filter(|name| *name != last), fsid, DEPTH_MAX, &mut gone)?;
    remove_names(&*below, names.iter().filter(|name| *name == last), fsid, DEPTH_MAX, &mut gone)?;
    drop(below);
    (gone.progress)(gone.names);
    match fs.rmdir(path) {
        Err(error) if error.status() == Some(Status::NOENT) => Ok(gone.names),
        other => other.map(|()| gone.names),
    }
}

struct Gone<'a> {
    names: u64,
    progress: &'a mut dyn FnMut(u64),
}

fn remove_names<'n>(
    fs: &dyn FileSystem,
    names: impl Iterator<Item = &'n PathBuf>,
    fsid: u64,
    depth: u32,
    gone: &mut Gone<'_>,
) -> Result<(), FsError> {
    for name in names {
        match fs.unlink(name) {
            Ok(()) => {
                gone.names += 1;
                if gone.names.is_multiple_of(PROGRESS_EVERY) {
                    (gone.progress)(gone.names);
                }
            }
            Err(error) if error.status() == Some(Status::NOENT) => {}
            // Linux says EISDIR of a directory, POSIX EPERM, and NFS servers what they like.
            Err(_) if fs.stat(name).is_ok_and(|found| found.kind == FileKind::Directory) => {
                let below = below_on(fs, name, fsid, depth)?;
                remove_names(&*below, names_in(&*below)?.iter(), fsid, depth - 1, gone)?;
                drop(below);
                match fs.rmdir(name) {
                    Err(error) if error.status() == Some(Status::NOENT) => {}
                    other => other?,
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The directory `name` itself, when it is on the same file system.
fn below_on(fs: &dyn FileSystem, name: &Path, fsid: u64, depth: u32) -> Result<Arc<dyn FileSystem>, FsError> {
    let refused = |status| FsError::Failed { op: FsOp::Open, path: name.to_owned(), status, source: None };
    if depth == 0 {
        return Err(refused(Status::NAMETOOLONG));
    }
    let below = fs.below_itself(name)?;
    if below.stat(Path::new(""))?.fsid == fsid { Ok(below) } else { Err(refused(Status::XDEV)) }
}

fn names_in(fs: &dyn FileSystem) -> Result<Vec<PathBuf>, FsError> {
    let mut names = Vec::new();
    fs.readdir(Path::new(""), &mut |entry| names.push(PathBuf::from(OsStr::from_bytes(entry.name))))?;
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LocalFs;

    /// A folder with `t/a`, `t/b/c` and `t/last`, and a file beside it that links in `t` and `t/b` lead to.
    fn folder() -> (tempfile::TempDir, LocalFs) {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(at("t/b/empty")).unwrap();
        std::fs::create_dir(at("precious")).unwrap();
        for (name, bytes) in [("t/a", 10), ("t/b/c", 20), ("t/last", 5), ("precious/file", 7)] {
            std::fs::write(at(name), vec![0; bytes]).unwrap();
        }
        std::os::unix::fs::symlink("../precious", at("t/link")).unwrap();
        std::os::unix::fs::symlink("../../precious/file", at("t/b/link")).unwrap();
        let fs = LocalFs::open(folder.path()).unwrap();
        (folder, fs)
    }

    #[test]
    fn links_are_counted_and_removed_and_never_followed() {
        let (folder, fs) = folder();
        let size = tree_size(&*fs.below_itself(Path::new("t")).unwrap()).unwrap();
        assert_eq!(size, TreeSize { files: 5, directories: 2, bytes: 35 });
        assert_eq!(remove_tree(&fs, Path::new("t"), Path::new("last"), &mut |_| {}).unwrap(), 5);
        assert!(!folder.path().join("t").exists() && folder.path().join("precious/file").exists());
        assert_eq!(remove_tree(&fs, Path::new("t"), Path::new(""), &mut |_| {}).unwrap(), 0);
        std::os::unix::fs::symlink("precious", folder.path().join("t")).unwrap();
        let refused = remove_tree(&fs, Path::new("t"), Path::new(""), &mut |_| {}).unwrap_err();
        assert_eq!(refused.status(), Some(Status::NOTDIR));
        assert!(folder.path().join("precious/file").exists());
    }

    #[test]
    fn a_removal_that_is_cut_short_leaves_the_last_name() {
        let (folder, fs) = folder();
        // A directory too deep stops it, after what was listed before it.
        let mut deep = folder.path().join("t/b/empty");
        for _ in 0..DEPTH_MAX {
            deep.push("d");
        }
        std::fs::create_dir_all(&deep).unwrap();
        let refused = remove_tree(&fs, Path::new("t"), Path::new("last"), &mut |_| {}).unwrap_err();
        assert_eq!(refused.status(), Some(Status::NAMETOOLONG));
        assert!(folder.path().join("t/last").exists());
    }
}
