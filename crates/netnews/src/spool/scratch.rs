//! A folder for one unit test: gone when the test drops it.

use std::sync::Arc;

use files::{FileSystem, LocalFs};
use tempfile::TempDir;

/// The folder, and its file system as a spool is given it.
pub(super) fn folder() -> (TempDir, Arc<dyn FileSystem>) {
    let folder = tempfile::tempdir().unwrap();
    let fs = LocalFs::open(folder.path()).unwrap();
    (folder, Arc::new(fs))
}
