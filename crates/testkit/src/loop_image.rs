//! A small real file system for tests: an image file made with mkfs and mounted through a loop device.
//!
//! Always holds: it is unmounted and its image removed when the value is dropped, also by a panic. Mounted without
//! `discard`, so that deleting in it is as quick as in memory.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::need;

/// A mounted file system of its own.
pub struct LoopImage {
    mount: PathBuf,
    folder: TempDir,
}

impl LoopImage {
    /// Makes a file system of `fs_type` (`ext4`, `xfs`, `btrfs`, …) and `size_bytes` with further flags for its mkfs,
    /// and mounts it. An error text says why it cannot be had: not root, no mkfs, no loop devices.
    pub fn make(fs_type: &str, size_bytes: u64, mkfs_flags: &[&str]) -> Result<Self, String> {
        let parent =
            if Path::new("/dev/shm").is_dir() { PathBuf::from("/dev/shm") } else { std::env::temp_dir() };
        let failure = |error: std::io::Error| error.to_string();
        let folder = tempfile::Builder::new().prefix("crumb-image").tempdir_in(parent).map_err(failure)?;
        let (image, mount) = (folder.path().join("image"), folder.path().join("mount"));
        File::create(&image).and_then(|file| file.set_len(size_bytes)).map_err(failure)?;
        fs::create_dir(&mount).map_err(failure)?;
        let quiet = if fs_type == "ext2" || fs_type == "ext4" { &["-q", "-F"][..] } else { &["-q"][..] };
        let mkfs = Command::new(format!("/sbin/mkfs.{fs_type}"));
        carried_out(mkfs, &[quiet, mkfs_flags].concat(), &image)?;
        let options = if fs_type == "btrfs" { "loop,nodiscard" } else { "loop" };
        let mut mounting = Command::new("mount");
        mounting.args(["-t", fs_type, "-o", options]).arg(&image);
        carried_out(mounting, &[], &mount)?;
        Ok(Self { mount, folder })
    }

    /// As [`make`](Self::make), for a test that needs it: where it cannot be made, the test is skipped or fails.
    pub fn needed(fs_type: &str, size_bytes: u64, mkfs_flags: &[&str]) -> Option<Self> {
        let package = match fs_type {
            "xfs" => "xfsprogs",
            "btrfs" => "btrfs-progs",
            _ => "e2fsprogs",
        };
        need::program(&format!("mkfs.{fs_type}"), package)?;
        if !need::root("a loop device") {
            return None;
        }
        need::host(need::HostFeature::Mounts, Self::make(fs_type, size_bytes, mkfs_flags))
    }

    /// Makes the directories of an ext4 ones without an index, as if it had been made without `dir_index`: filling a
    /// directory of 100,000 names without one takes minutes. Nothing may be open in it.
    ///
    /// # Panics
    /// When tune2fs or e2fsck fails.
    pub fn drop_directory_indexes(&self) {
        let image = self.folder.path().join("image");
        let run = |program: &str, flags: &[&str], path: &Path| {
            carried_out(Command::new(program), flags, path).unwrap_or_else(|error| panic!("{error}"));
        };
        // It says by 1 that it mended something.
        let check = || {
            let checked =
                Command::new("/sbin/e2fsck").args(["-fy"]).arg(&image).output().expect("e2fsck runs");
            let said = String::from_utf8_lossy(&checked.stdout).into_owned();
            assert!(matches!(checked.status.code(), Some(0 | 1)), "{said}");
        };
        run("umount", &[], &self.mount);
        wait_until_detached(&image);
        // tune2fs refuses a file system that may need its journal, as now and then just after the umount.
        check();
        run("/sbin/tune2fs", &["-O", "^dir_index"], &image);
        // The flags of the directories that had an index.
        check();
        let image = image.display().to_string();
        run("mount", &["-t", "ext4", "-o", "loop", &image], &self.mount);
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.mount
    }
}

impl Drop for LoopImage {
    fn drop(&mut self) {
        // A server that still holds a descriptor keeps a plain unmount from working; a lazy one ends with it.
        let plain = Command::new("umount").arg(&self.mount).stderr(Stdio::null()).status();
        if !plain.is_ok_and(|status| status.success()) {
            let _ = Command::new("umount").arg("-l").arg(&self.mount).status();
        }
    }
}

/// A mount namespace that another test made meanwhile holds a copy of each mount: until it is gone the file system stays in memory,
/// with what is changed in the image below it unseen.
fn wait_until_detached(image: &Path) {
    let begun = Instant::now();
    loop {
        let attached = Command::new("/sbin/losetup").arg("-j").arg(image).output().expect("losetup runs");
        if attached.stdout.is_empty() {
            return;
        }
        let text = String::from_utf8_lossy(&attached.stdout);
        assert!(begun.elapsed() < Duration::from_secs(60), "still mounted somewhere: {text}");
        std::thread::park_timeout(Duration::from_millis(50));
    }
}

fn carried_out(mut command: Command, flags: &[&str], path: &Path) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.args(flags).arg(path).output().map_err(|error| format!("{name}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = [output.stderr, output.stdout].concat();
    Err(format!("{name}: {}: {}", output.status, String::from_utf8_lossy(&said).trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_a_file_system_of_its_own_and_gone_afterwards() {
        let Some(image) = LoopImage::needed("ext4", 16 << 20, &[]) else { return };
        let path = image.path().to_owned();
        fs::write(path.join("a"), b"x").expect("a file in it");
        let mounts = || fs::read_to_string("/proc/self/mounts").expect("mounts");
        assert!(mounts().contains(&path.display().to_string()));
        drop(image);
        assert!(!mounts().contains(&path.display().to_string()) && !path.exists());
    }
}
