//! A small tmpfs for tests: a full or read-only file system, mounted until dropped.

use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::need;

/// A mounted tmpfs.
pub struct Tmpfs {
    folder: TempDir,
}

impl Tmpfs {
    /// Mounts one with these options of mount(8), for a test that needs it: where it cannot be mounted, the test is
    /// skipped or fails.
    pub fn needed(options: &str) -> Option<Self> {
        if !need::root("a small tmpfs") {
            return None;
        }
        need::host(need::HostFeature::Mounts, Self::mount(options))
    }

    fn mount(options: &str) -> Result<Self, String> {
        let folder =
            tempfile::Builder::new().prefix("crumb-tmpfs").tempdir().map_err(|error| error.to_string())?;
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", options, "crumb-test"]).arg(folder.path());
        let done = mount.output().map_err(|error| format!("mount: {error}"))?;
        if done.status.success() {
            return Ok(Self { folder });
        }
        Err(String::from_utf8_lossy(&done.stderr).trim().to_owned())
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Unmounts it now; whether that worked, which it does not while a process has a file open in it.
    pub fn unmount(self) -> bool {
        self.umount(&[])
    }

    fn umount(&self, flags: &[&str]) -> bool {
        let mut umount = Command::new("umount");
        umount.args(flags).arg(self.path()).stderr(Stdio::null());
        umount.status().is_ok_and(|status| status.success())
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        // Unmounted already, or still in use: then a lazy unmount ends with its last user.
        let _ = self.umount(&[]) || self.umount(&["-l"]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tmpfs_of_one_mebibyte_is_full_after_it_and_gone_afterwards() {
        let Some(disk) = Tmpfs::needed("size=1m") else { return };
        let path = disk.path().to_owned();
        let full = std::fs::write(path.join("a"), vec![1; 2 << 20]).expect_err("it is full");
        assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
        assert!(disk.unmount());
        assert!(!path.exists());
    }
}
