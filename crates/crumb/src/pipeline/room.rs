//! Whether a run has room on its target, asked before it begins.
//!
//! What a run needs is reckoned from below: nothing is refused that could end well.

use anyhow::bail;
use files::FileSystem;
use measure::MountPoint;
use report::bytes_text;

use crate::terminal::slow_server::said_when_slow;

/// What a run will have on its target at once, at least.
#[derive(Clone, Copy, Debug, Default)]
pub struct Need {
    /// Bytes of its files.
    pub bytes: u64,
    /// Files.
    pub files: u64,
}

/// Whether files may take less room than they have bytes.
fn compresses(storage: &dyn FileSystem) -> bool {
    let mount = storage.local_root().and_then(MountPoint::of);
    mount.is_some_and(|mount| mount.fs_type == "zfs" || mount.options.contains("compress"))
}

/// Refuses a run for which there is no room; `less` says what makes it smaller. Storage that reports no sizes passes.
///
/// # Errors
/// When the storage fails, or has less room than is needed.
pub fn ensure(storage: &dyn FileSystem, need: Need, less: &str) -> anyhow::Result<()> {
    let room = said_when_slow(&storage.place(), || storage.statfs())?;
    if room.bytes_total > 0 && room.bytes_available < need.bytes && !compresses(storage) {
        bail!(
            "{}: {} are free, and the run has at least {} there at once; {less}, or name another target",
            storage.place(),
            bytes_text(room.bytes_available),
            bytes_text(need.bytes)
        );
    }
    if room.files_total > 0 && room.files_available < need.files {
        bail!(
            "{}: {} inodes are free, and the run has at least {} files there at once; {less}, or name another target",
            storage.place(),
            room.files_available,
            need.files
        );
    }
    Ok(())
}
