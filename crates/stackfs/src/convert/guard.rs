//! Makes sure that nobody else is at work in a directory: no mount that shows it, no second conversion.
//!
//! ```text
//! /            shared      a conversion of /news/spool holds `flock` on it, and shared ones on all above it,
//! /news        shared      until it ends
//! /news/spool  exclusive
//!
//! /news        exclusive   a mount of /news, from before it opens its root until the kernel's table has it
//! ```
//!
//! A mount that was detached while in use is in no table but is still served. Its program holds a claim (`claims`),
//! which it takes under that lock.
//!
//! So a conversion is refused in, above or below another one, and a mount at or above one under way. A mount that is
//! there is found in the kernel's table (`/proc/self/mountinfo`), which is looked at once the locks are held: a mount
//! that starts at the same time either shows there, or holds its lock. Locks end with their process.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use measure::proc::MountInfo;
use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::STAGING_PREFIX;
use super::error::ConvertError;
use super::levels::Levels;
use crate::managed::{is_managed, layout_of, open_directory, open_without_links};
use crate::mount::claims;
use crate::mount::mounts::{self, MountOfOurs as _};

/// A directory that is ours alone as long as this lives.
#[derive(Debug)]
pub(crate) struct Guard {
    /// Without symbolic links.
    pub path: PathBuf,
    pub directory: Held,
    _above: Vec<Held>,
}

/// A directory with a lock on it. The lock goes with it at once: left to the closing of its descriptor, it would last as
/// long as a copy that a program being started by another thread has of it for a moment.
#[derive(Debug)]
pub(crate) struct Held(File);

impl std::ops::Deref for Held {
    type Target = File;

    fn deref(&self) -> &File {
        &self.0
    }
}

impl AsFd for Held {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Without locks on this storage there is nothing to give back.
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

impl Guard {
    /// Opens and locks it.
    pub(crate) fn take(path: &Path) -> Result<Self, ConvertError> {
        refuse_link(path)?;
        let (real, mounts) = unmounted(path)?;
        Self::take_real(path, real, mounts)
    }

    /// The same of a path that was found without following symbolic links: none that somebody has put on the way since
    /// is followed.
    pub(crate) fn take_as_is(path: &Path) -> Result<Self, ConvertError> {
        let (real, mounts) = unmounted(path)?;
        if real != path {
            return Err(ConvertError::Open { path: path.to_owned(), source: Errno::LOOP.into() });
        }
        Self::take_real(path, real, mounts)
    }

    /// Of a directory that the mount in this process shows; `path` is for messages, the locks are held.
    pub(crate) fn of_a_mount(path: PathBuf, directory: Held, above: Vec<Held>) -> Self {
        Self { path, directory, _above: above }
    }

    fn take_real(path: &Path, real: PathBuf, mounts: Vec<MountInfo>) -> Result<Self, ConvertError> {
        let cannot_open = |source: io::Error| ConvertError::Open { path: path.to_owned(), source };
        let directory = open_without_links(&real).map_err(cannot_open)?;
        refuse_hidden(path, &real)?;
        let mut above = Vec::new();
        let ways = MountInfo::open_ways(&real, &mounts);
        for ancestor in [&real].into_iter().chain(&ways).flat_map(|way| way.ancestors().skip(1)) {
            // A user who may not read a directory cannot have mounted it. Some storage has no locks.
            let Ok(opened) = open_directory(ancestor) else { continue };
            above.push(lock_of(path, ancestor, opened, FlockOperation::NonBlockingLockShared)?);
        }
        let directory = lock_of(path, &real, directory, FlockOperation::NonBlockingLockExclusive)?;
        // Again, now that none can start.
        let (_, mounts) = unmounted(path)?;
        refuse_served(path, &real, &mounts)?;
        let stat = rustix::fs::fstat(&directory).map_err(|error| cannot_open(error.into()))?;
        let me = rustix::process::geteuid();
        if !me.is_root() && me.as_raw() != stat.st_uid {
            return Err(ConvertError::NotOwner { path: path.to_owned(), owner: stat.st_uid });
        }
        // Hidden subdirectories lie two levels deep at most, and what is in them is moved too.
        if let Some(mount) = mounts.iter().find(|mount| {
            mount.point != real
                && mount.point.strip_prefix(&real).is_ok_and(|below| below.components().count() <= 3)
        }) {
            return Err(ConvertError::MountPoint { path: path.to_owned(), mount_point: mount.point.clone() });
        }
        Ok(Self { path: real, directory, _above: above })
    }
}

/// The path without symbolic links, when no mount of ours has to do with it; and all mounts.
fn unmounted(path: &Path) -> Result<(PathBuf, Vec<MountInfo>), ConvertError> {
    let cannot_open = |source: io::Error| ConvertError::Open { path: path.to_owned(), source };
    let real = path.canonicalize().map_err(cannot_open)?;
    let mounts = MountInfo::all().unwrap_or_default();
    refuse_mounted(path, &real, &mounts)?;
    // A bind mount may show a part of what a mount of ours stands on.
    MountInfo::other_ways(&real, &mounts).iter().try_for_each(|way| refuse_mounted(path, way, &mounts))?;
    Ok((real, mounts))
}

/// Refuses a path that is a symbolic link, also with slashes after it: the owner of the directory above could have
/// put it there, and it may lead anywhere.
fn refuse_link(path: &Path) -> Result<(), ConvertError> {
    let bare: PathBuf = path.components().collect();
    match std::fs::symlink_metadata(&bare) {
        Ok(of) if of.is_symlink() => Err(ConvertError::Link {
            path: path.to_owned(),
            leads_to: path.canonicalize().or_else(|_| std::fs::read_link(&bare)).unwrap_or_default(),
        }),
        // The caller's open reports a missing directory.
        _ => Ok(()),
    }
}

/// Refuses a tree of which a mount shows anything, and a link to one.
pub(crate) fn refuse_in_use(tree: &Path) -> Result<PathBuf, ConvertError> {
    refuse_link(tree)?;
    let (real, mounts) = unmounted(tree)?;
    refuse_served(tree, &real, &mounts)?;
    Ok(real)
}

fn refuse_served(path: &Path, real: &Path, mounts: &[MountInfo]) -> Result<(), ConvertError> {
    match claims::is_served(real, mounts) {
        true => Err(ConvertError::StillServed { path: path.to_owned() }),
        false => Ok(()),
    }
}

/// Refuses a tree of which a mount of ours hides all or a part: what is seen there has no hidden level, so that nothing
/// can be said about it. A tree below that a mount shows elsewhere may be looked at.
pub(crate) fn refuse_covered(tree: &Path) -> Result<(), ConvertError> {
    // A mount whose daemon is dead resolves no path: then what leads to it is resolved.
    let real = tree.canonicalize().unwrap_or_else(|_| mounts::resolved(tree));
    match covering(&real, &MountInfo::all().unwrap_or_default()) {
        Some(mount) => Err(ConvertError::Covered { path: tree.to_owned(), mount_point: mount.point.clone() }),
        None => Ok(()),
    }
}

/// The mount of ours at, above or in a path.
fn covering<'a>(real: &Path, mounts: &'a [MountInfo]) -> Option<&'a MountInfo> {
    let governing = MountInfo::governing(real, mounts).filter(|mount| mount.is_ours());
    governing.or_else(|| {
        mounts.iter().find(|mount| mount.is_ours() && mount.point != *real && mount.point.starts_with(real))
    })
}

/// For a mount that starts: a lock on its lower root, to be held until the mount shows in the kernel's table; none
/// where it cannot be had for other reasons than a conversion. `WouldBlock` beside a conversion or another start.
pub(crate) fn starting_mount(lower: &Path) -> io::Result<Option<Held>> {
    let Ok(root) = open_directory(lower) else { return Ok(None) };
    match rustix::fs::flock(&root, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(Held(root))),
        Err(Errno::WOULDBLOCK) => {
            let why = "a lock (flock) is held on it: by a conversion in it (crumb manage or unmanage), by another \
                       mount of it that starts, or by any program of a user who may read it (lslocks lists them); wait \
                       for that or end it";
            Err(io::Error::new(io::ErrorKind::WouldBlock, why))
        }
        Err(_) => Ok(None),
    }
}

/// Locks `at`, for the conversion of `path`.
pub(crate) fn lock_of(
    path: &Path,
    at: &Path,
    directory: File,
    operation: FlockOperation,
) -> Result<Held, ConvertError> {
    match rustix::fs::flock(&directory, operation) {
        Err(Errno::WOULDBLOCK) => Err(ConvertError::Locked { path: path.to_owned(), at: at.to_owned() }),
        // Storage without locks: the table of mounts has been looked at.
        Ok(()) | Err(_) => Ok(Held(directory)),
    }
}

fn refuse_mounted(path: &Path, real: &Path, mounts: &[MountInfo]) -> Result<(), ConvertError> {
    let refused = |by: String| Err(ConvertError::Mounted { path: path.to_owned(), by });
    if let Some(mount) = MountInfo::governing(real, mounts).filter(|mount| mount.is_ours()) {
        return refused(format!("the mount that shows it, {}", mount.point.display()));
    }
    let over = mounts
        .iter()
        .find(|mount| mount.is_ours() && (real.starts_with(&mount.source) || mount.source.starts_with(real)));
    match over {
        Some(mount) => {
            refused(format!("the mount at {} over {}", mount.point.display(), mount.source.display()))
        }
        None => Ok(()),
    }
}

/// A subdirectory of some managed directory's hidden level is nothing to convert.
fn refuse_hidden(path: &Path, real: &Path) -> Result<(), ConvertError> {
    for parent in real.ancestors().skip(1).take(2) {
        let Ok(below) = real.strip_prefix(parent) else { continue };
        let first = below.components().next().map(|part| part.as_os_str().as_bytes().to_vec());
        let staging = first.is_some_and(|first| first.starts_with(STAGING_PREFIX.as_bytes()));
        let hidden = || {
            let directory = open_directory(parent).ok()?;
            let mode = rustix::fs::fstat(&directory).ok()?.st_mode;
            let layout = layout_of(&directory).ok()?;
            Some(is_managed(mode) && Levels::of(layout).is_level(below.as_os_str().as_bytes()))
        };
        if staging || hidden().unwrap_or(false) {
            return Err(ConvertError::HiddenLevel { path: path.to_owned(), parent: parent.to_owned() });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(point: &str, kind: &str, source: &str) -> MountInfo {
        MountInfo {
            device: source.to_owned(),
            root: "/".into(),
            point: point.into(),
            kind: kind.to_owned(),
            source: source.into(),
            options: String::new(),
        }
    }

    #[test]
    fn whatever_a_mount_shows_or_stands_on_is_refused_and_the_rest_is_not() {
        let mounts = [
            mount("/", "ext4", "/dev/vda"),
            mount("/news", "fuse.crumb", "/lower/news"),
            mount("/news/scratch", "tmpfs", "none"),
        ];
        let refused = |path: &str| refuse_mounted(Path::new(path), Path::new(path), &mounts).is_err();
        assert!(refused("/lower/news") && refused("/lower/news/control") && refused("/lower"));
        assert!(refused("/news") && refused("/news/control"));
        assert!(!refused("/news/scratch/x") && !refused("/lower/newsletters") && !refused("/other"));
    }

    #[test]
    fn a_tree_is_covered_by_a_mount_at_above_or_in_it_and_not_by_one_that_shows_it_elsewhere() {
        let mut mounts = vec![
            mount("/", "ext4", "/dev/vda"),
            mount("/news/spool", "fuse.crumb", "/news/spool"),
            mount("/news/spool/scratch", "tmpfs", "none"),
            mount("/at", "fuse.crumb", "/lower"),
        ];
        let covered = |path: &str, mounts: &[MountInfo]| {
            covering(Path::new(path), mounts).map(|mount| mount.point.display().to_string())
        };
        for path in ["/news/spool", "/news/spool/control", "/news"] {
            assert_eq!(covered(path, &mounts).as_deref(), Some("/news/spool"), "{path}");
        }
        for path in ["/news/spool/scratch/x", "/lower", "/news/spoolers"] {
            assert_eq!(covered(path, &mounts), None, "{path}");
        }
        mounts.push(mount("/at", "tmpfs", "none"));
        for path in ["/at", "/at/x"] {
            assert_eq!(covered(path, &mounts), None, "{path}: another file system lies over the mount");
        }
    }
}
