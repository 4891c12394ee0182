//! The feed that is made up for a run which names none: where it is put, and that it goes again.
//!
//! ```text
//! TMPDIR/crumb-feed-RANDOM/crumb-run    the mark of the run, by which `crumb clean TMPDIR` knows what a killed one left
//! TMPDIR/crumb-feed-RANDOM/lock         held by the process: what no process holds goes when the next run begins
//! TMPDIR/crumb-feed-RANDOM/feed/        the feed
//! ```
//!
//! Always holds: no other user can foresee the name and put something in its place; the folder is private to its user.
//!
//! Reading the feed should cost the storage under test nothing: without TMPDIR it is put into the first of /tmp and
//! /var/tmp that is on another file system and has room for it.

use std::cell::OnceCell;
use std::collections::hash_map::RandomState;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::hash::BuildHasher as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail};
use files::{LocalFs, write_run_mark};
use report::bytes_text;

use crate::context::Context;
use crate::output::note;

const PREFIX: &str = "crumb-feed-";
const LOCK: &str = "lock";
const FEED: &str = "feed";
/// One without a lock is of a version that had none, or of a process that is just making it. Its name ends with the process.
const OLD: Duration = Duration::from_secs(86_400);

/// A folder for a feed that nobody named, gone with the run.
pub(super) struct MadeUp {
    /// The feed itself.
    pub path: PathBuf,
    base: PathBuf,
    shares_a_disk: bool,
    held: OnceCell<File>,
}

impl MadeUp {
    /// Where `bytes` go while `targets` are measured; nothing is made yet.
    pub fn folder(targets: &[PathBuf], bytes: u64) -> Self {
        let named = std::env::var_os("TMPDIR").filter(|path| !path.is_empty()).map(PathBuf::from);
        let bases = named.map_or_else(|| vec!["/tmp".into(), "/var/tmp".into()], |path| vec![path]);
        let devices: Vec<u64> = targets.iter().filter_map(|target| device_of(target)).collect();
        let shares = |base: &PathBuf| device_of(base).is_some_and(|device| devices.contains(&device));
        let fits = |base: &&PathBuf| free_bytes(base).is_some_and(|free| free > bytes);
        let apart = bases.iter().filter(|base| !shares(base)).find(fits);
        let base = apart.or_else(|| bases.iter().find(fits)).unwrap_or(&bases[0]).clone();
        // By the system's random numbers: the keys of std's hasher are.
        let random = RandomState::new().hash_one(std::process::id());
        let folder = base.join(format!("{PREFIX}{random:016x}"));
        Self { path: folder.join(FEED), shares_a_disk: shares(&base), base, held: OnceCell::new() }
    }

    /// Makes the folder, and removes those that killed runs left.
    ///
    /// # Errors
    /// When there is no room for `bytes`, or the folder cannot be made.
    pub fn make(&self, bytes: u64, context: &Context) -> anyhow::Result<()> {
        let folder = self.path.parent().expect("a feed in its folder");
        for gone in remove_left(&self.base) {
            note(context, &format!("removed {}, which a run that was killed left", gone.display()));
        }
        if let Some(free) = free_bytes(&self.base).filter(|free| *free < bytes) {
            bail!(
                "{}: {} are free, and the feed made up for the run takes {}; name a directory with more room by TMPDIR, \
                 make the feed elsewhere (crumb feed synthesize) and name it by --feed, or ask for fewer --articles",
                self.base.display(),
                bytes_text(free),
                bytes_text(bytes)
            );
        }
        let make = || -> anyhow::Result<File> {
            DirBuilder::new().mode(0o700).create(folder)?;
            write_run_mark(&LocalFs::open(folder)?)?;
            // Under another name until it is held: one that is not is removed.
            let new = folder.join(format!("{LOCK}.new"));
            let file = File::create(&new)?;
            file.lock()?;
            fs::rename(&new, folder.join(LOCK))?;
            Ok(file)
        };
        let held =
            make().with_context(|| format!("cannot make a folder for the feed, {}", folder.display()))?;
        let _ = self.held.set(held);
        if self.shares_a_disk {
            note(
                context,
                &format!(
                    "the feed made up for the run is on the disk that is measured, in {}: TMPDIR names another place",
                    self.base.display()
                ),
            );
        }
        Ok(())
    }
}

impl Drop for MadeUp {
    fn drop(&mut self) {
        if let (Some(_), Some(folder)) = (self.held.get(), self.path.parent()) {
            let _ = fs::remove_dir_all(folder);
        }
    }
}

/// Removes the folders below `base` that no process holds any more; which.
fn remove_left(base: &Path) -> Vec<PathBuf> {
    let user = rustix::process::geteuid().as_raw();
    let is_left = |folder: &Path| -> Option<bool> {
        let about = fs::symlink_metadata(folder).ok()?;
        if !about.is_dir() || about.uid() != user {
            return Some(false);
        }
        // Neither a link is followed nor a pipe waited for.
        let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        match OpenOptions::new().read(true).custom_flags(flags.bits() as i32).open(folder.join(LOCK)) {
            Ok(lock) => Some(lock.try_lock().is_ok()),
            Err(_) => {
                let number = folder.file_name()?.to_str()?.strip_prefix(PREFIX)?;
                let pid = number.split('-').next()?;
                let lives = pid.parse::<u32>().is_err() || Path::new("/proc").join(pid).exists();
                Some(!lives && about.modified().ok()?.elapsed().ok()? > OLD)
            }
        }
    };
    let entries = fs::read_dir(base).into_iter().flatten().flatten();
    let named = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
    named
        .map(|entry| entry.path())
        .filter(|folder| is_left(folder) == Some(true))
        .filter(|folder| fs::remove_dir_all(folder).is_ok())
        .collect()
}

fn device_of(path: &Path) -> Option<u64> {
    fs::metadata(path).ok().map(|about| about.dev())
}

fn free_bytes(base: &Path) -> Option<u64> {
    let room = rustix::fs::statvfs(base).ok()?;
    Some(room.f_bavail.saturating_mul(room.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Symptom: 0.9 GB were left by each run that was killed. Fix: the next run removes what no process holds.
    #[test]
    fn what_a_killed_run_left_goes_and_what_a_process_holds_stays() {
        let base = tempfile::tempdir().unwrap();
        let folder = |name: &str| {
            let folder = base.path().join(name);
            fs::create_dir_all(folder.join(FEED)).unwrap();
            folder
        };
        let (left, held, young, other) = (
            folder("crumb-feed-4294967295"),
            folder("crumb-feed-1"),
            folder("crumb-feed-4294967294"),
            folder("crumb-other"),
        );
        File::create(left.join(LOCK)).unwrap();
        let lock = File::create(held.join(LOCK)).unwrap();
        lock.lock().unwrap();
        std::os::unix::fs::symlink(&other, base.path().join("crumb-feed-9")).unwrap();
        // A pipe in the place of a lock was waited for.
        let pipe = folder("crumb-feed-8").join(LOCK);
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
        let pipe = rustix::fs::open(&pipe, rustix::fs::OFlags::RDWR, rustix::fs::Mode::empty()).unwrap();
        rustix::fs::flock(&pipe, rustix::fs::FlockOperation::LockExclusive).unwrap();
        assert_eq!(remove_left(base.path()), std::slice::from_ref(&left));
        assert!(!left.exists() && held.exists() && young.exists() && other.join(FEED).exists());
        drop(lock);
        assert_eq!(remove_left(base.path()), [held]);
    }
}
