//! A directory of the doctor's own in a place that it measures: marked as a run's, and removed when dropped.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use files::{FileSystem, FsError, RUN_MARK, Status, remove_tree, write_run_mark};

/// Names of such directories begin so: `crumb clean` finds by it what a kill left.
pub const PREFIX: &str = "crumb-doctor-";

/// Names that are tried when others are taken.
const OTHERS_MAX: u32 = 16;

/// A directory in a place.
pub struct Scratch {
    above: Arc<dyn FileSystem>,
    name: PathBuf,
    fs: Arc<dyn FileSystem>,
    /// It was removed, or that was tried.
    is_done: bool,
}

impl Scratch {
    /// The name that it takes, unless another machine or container left one of that name.
    pub fn name() -> String {
        format!("{PREFIX}{:x}", std::process::id())
    }

    /// Makes it in the root of `above`, and marks it.
    ///
    /// # Errors
    /// When nothing can be made there.
    pub fn make(above: Arc<dyn FileSystem>) -> Result<Self, FsError> {
        let mut name = PathBuf::from(Self::name());
        let mut made = above.make_own(&name);
        for more in 1..OTHERS_MAX {
            if made.as_ref().err().and_then(FsError::status) != Some(Status::EXIST) {
                break;
            }
            name = PathBuf::from(format!("{}-{more}", Self::name()));
            made = above.make_own(&name);
        }
        let fs = made?;
        // Dropped, and so removed, when the mark cannot be written.
        let scratch = Self { above, name, fs, is_done: false };
        write_run_mark(&*scratch.fs)?;
        Ok(scratch)
    }

    /// Its root is the directory.
    pub fn fs(&self) -> &dyn FileSystem {
        &*self.fs
    }

    /// Where it is on this machine; none on a server.
    pub fn local_path(&self) -> Option<PathBuf> {
        self.above.local_root().map(|root| root.join(&self.name))
    }
}

impl Scratch {
    /// Removes it, as dropping it does; whether nothing is left.
    pub fn remove(mut self) -> bool {
        self.is_removed()
    }

    fn is_removed(&mut self) -> bool {
        if std::mem::replace(&mut self.is_done, true) {
            return true;
        }
        let removed = remove_tree(&*self.above, &self.name, Path::new(RUN_MARK), &mut |_| {});
        if let Err(error) = &removed {
            let place = self.above.place();
            tracing::warn!(
                "{} is left in {place}: {}; `crumb clean` removes it",
                self.name.display(),
                measure::error_chain(error)
            );
        }
        removed.is_ok()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        self.is_removed();
    }
}

#[cfg(test)]
mod tests {
    use files::{LocalFs, MarkedProcess, marked_process, read_run_mark};

    use super::*;

    #[test]
    fn a_scratch_directory_carries_the_mark_of_this_process_and_is_gone_when_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let scratch = Scratch::make(Arc::new(LocalFs::open(folder.path()).unwrap())).unwrap();
        let mark = read_run_mark(scratch.fs()).unwrap().expect("a mark");
        assert_eq!(marked_process(&mark), MarkedProcess::Lives);
        let path = scratch.local_path().unwrap();
        std::fs::write(path.join("left"), "x").unwrap();
        assert!(scratch.remove());
        assert!(!path.exists());
    }

    #[test]
    fn what_another_container_left_under_the_same_number_is_no_obstacle_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        let other = folder.path().join(Scratch::name());
        std::fs::create_dir(&other).unwrap();
        let scratch = Scratch::make(Arc::new(LocalFs::open(folder.path()).unwrap())).unwrap();
        let path = scratch.local_path().unwrap();
        assert_ne!(path, other);
        drop(scratch);
        assert!(other.exists() && !path.exists());
    }
}
