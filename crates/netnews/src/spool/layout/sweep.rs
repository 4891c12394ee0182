//! Removes a spool, all of it, wherever its parts are.

use std::path::Path;

use files::{FsError, RUN_MARK, remove_tree};

use super::{Storage, directory_of};

/// Removes the spool `name` from every target; calls `progress` now and then with the files removed. Missing parts are
/// not an error.
pub(crate) fn remove(storage: &Storage, name: &str, progress: &mut dyn FnMut(u64)) -> Result<u64, FsError> {
    let mut removed = 0;
    for fs in storage.targets() {
        let before = removed;
        let mut count = |here: u64| progress(before + here);
        removed += remove_tree(&**fs, &directory_of(name), Path::new(RUN_MARK), &mut count)?;
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use files::Status;

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
