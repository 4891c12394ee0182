//! Scratch directories in memory.

use std::path::Path;

/// A directory that goes with the test, in memory where there is some.
pub fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let builder = || tempfile::Builder::new().prefix("crumb-feed-").to_owned();
    if memory.is_dir() { builder().tempdir_in(memory) } else { builder().tempdir() }
        .expect("a scratch directory")
}
