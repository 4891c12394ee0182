//! Removes a spool, all of it, wherever its parts are.

use std::path::{Path, PathBuf};

use files::{FileKind, FileSystem, FsError, Status};

use super::{Storage, directory_of};

/// Removes the spool `name` from every target; `told` hears now and then how many files are gone. What is not there is
/// gone already.
pub(crate) fn remove(storage: &Storage, name: &str, told: &mut dyn FnMut(u64)) -> Result<u64, FsError> {
    let mut removed = 0;
    for fs in storage.targets() {
        let mut count = |more: u64| {
            removed += more;
            told(removed);
        };
        remove_tree(&**fs, &directory_of(name), &mut count)?;
    }
    Ok(removed)
}

/// Files are unlinked by names relative to their directory, found once for each and never through a link: the target's
/// owner may have put one in the place of the spool.
fn remove_tree(fs: &dyn FileSystem, path: &Path, count: &mut dyn FnMut(u64)) -> Result<(), FsError> {
    let below = match fs.below_itself(path) {
        Err(error) if error.status() == Some(Status::NOENT) => return Ok(()),
        other => other?,
    };
    let mut names: Vec<PathBuf> = Vec::new();
    below.readdir(Path::new(""), &mut |entry| {
        names.push(crate::spool::whole::path_of(entry.name).to_owned())
    })?;
    let mut done = 0;
    for name in &names {
        match below.unlink(name) {
            Ok(()) => done += 1,
            Err(error) if error.status() == Some(Status::NOENT) => {}
            // Linux says EISDIR of a directory, POSIX EPERM, and NFS servers what they like.
            Err(_) if below.stat(name).is_ok_and(|found| found.kind == FileKind::Directory) => {
                remove_tree(&*below, name, count)?;
            }
            Err(error) => return Err(error),
        }
        if done >= 1024 {
            count(std::mem::take(&mut done));
        }
    }
    count(done);
    drop(below);
    match fs.rmdir(path) {
        Err(error) if error.status() == Some(Status::NOENT) => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spool::scratch::folder;

    #[test]
    fn a_link_in_the_place_of_a_spool_leads_the_removal_nowhere() {
        let ((target, fs), (victim, _)) = (folder(), folder());
        let file = victim.path().join("precious");
        std::fs::write(&file, "").unwrap();
        let storage = Storage::of(fs);
        std::os::unix::fs::symlink(victim.path(), target.path().join(directory_of("t"))).unwrap();
        let error = remove(&storage, "t", &mut |_| {}).unwrap_err();
        assert_eq!(error.status(), Some(Status::NOTDIR));
        assert!(file.exists());
    }
}
