//! Which directories `crumb manage` has converted.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use doctor::TargetFacts;
use files::FileSystem;

/// Looks at the target, and at which of its directories are managed.
pub(super) fn target(fs: &dyn FileSystem, stop: &AtomicBool) -> TargetFacts {
    let mut target = doctor::target::target(fs, stop);
    for directory in target.directory.iter_mut().chain(&mut target.largest) {
        directory.managed = layout(&directory.path);
    }
    target
}

/// The layout of a directory that `crumb manage` has converted.
#[cfg(feature = "mount")]
fn layout(directory: &Path) -> Option<String> {
    use std::os::unix::fs::MetadataExt as _;

    use stackfs::managed::{is_managed, layout_of, open_directory};
    let mode = std::fs::metadata(directory).ok()?.mode();
    if !is_managed(mode) {
        return None;
    }
    Some(layout_of(open_directory(directory).ok()?).ok()?.to_string())
}

#[cfg(not(feature = "mount"))]
fn layout(_directory: &Path) -> Option<String> {
    None
}
