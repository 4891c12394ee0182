//! Which mounts of Crumb's there are, and how one is ended.
//!
//! A mount is seen in `/proc/self/mountinfo` as type `fuse.crumb`, its source the lower tree's absolute path.

use std::path::{Path, PathBuf};
use std::time::Duration;

use fuse::DetachError;
use measure::proc::MountInfo;
use rustix::io::Errno;

use super::options::StackOptions;
use crate::StackError;

/// The type that mounts of ours have.
pub const MOUNT_TYPE: &str = "fuse.crumb";
/// The same without the word for all of FUSE.
pub(crate) const SUBTYPE: &str = "crumb";

/// A mount of Crumb's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted {
    /// The tree it shows, as it was named then.
    pub lower: PathBuf,
    /// Where.
    pub mountpoint: PathBuf,
    /// The user who mounted it.
    pub owner: Option<u32>,
}

/// All mounts of Crumb's that this process can see, in the order in which they were made.
pub fn mounted() -> std::io::Result<Vec<Mounted>> {
    Ok(ours_of(MountInfo::all()?))
}

fn ours_of(table: Vec<MountInfo>) -> Vec<Mounted> {
    let ours = table.into_iter().filter(MountInfo::is_ours);
    ours.map(|line| Mounted { owner: line.owner(), lower: line.source, mountpoint: line.point }).collect()
}

/// The mounts that show `path`, or anything it holds, or a tree that holds it: a command that changes the lower
/// tree's layout must not run beside them. `path` is absolute and without links.
pub fn showing(path: &Path) -> std::io::Result<Vec<Mounted>> {
    let table = MountInfo::all()?;
    let mut ways = MountInfo::other_ways(path, &table);
    ways.push(path.to_owned());
    let shows =
        |one: &Mounted| ways.iter().any(|way| way.starts_with(&one.lower) || one.lower.starts_with(way));
    Ok(ours_of(table).into_iter().filter(shows).collect())
}

/// The same without those whose daemons were killed.
pub fn serving(path: &Path) -> Vec<Mounted> {
    let all = showing(path).unwrap_or_default();
    all.into_iter().filter(|one| !is_dead(&one.mountpoint)).collect()
}

/// Whether a mount that is to be alone with its tree covers a way to this path: then its locks are not found on that way.
pub(crate) fn covers_alone(path: &Path) -> bool {
    let table = MountInfo::all().unwrap_or_default();
    MountInfo::other_ways(path, &table).len() > MountInfo::open_ways(path, &table).len()
        && serving(path).iter().any(|one| crate::mount::claims::is_alone(&one.lower, &one.mountpoint))
}

/// Whether the mount at this place has lost its daemon, which was killed: then each call on it fails with ENOTCONN.
pub fn is_dead(mountpoint: &Path) -> bool {
    let place = mountpoint.to_owned();
    let (answer, heard) = std::sync::mpsc::channel();
    let ask = move || {
        let dead = rustix::fs::statfs(&place).is_err_and(|errno| errno == Errno::NOTCONN);
        // The receiver is gone if this took too long.
        let _ = answer.send(dead);
    };
    // In a thread of its own: a daemon that hangs would hang the caller.
    match std::thread::Builder::new().name("is-dead".into()).spawn(ask) {
        Ok(_) => heard.recv_timeout(ANSWERS_WITHIN).unwrap_or(false),
        Err(_) => false,
    }
}

/// Takes mounts of ours away from a place whose daemons were killed; how many there were.
pub(crate) fn clear_dead(place: &Path) -> Result<usize, StackError> {
    let unreadable = |source| StackError::Place { path: "/proc/self/mountinfo".into(), source };
    let mut cleared = 0;
    loop {
        let mut topmost = MountInfo::all().map_err(unreadable)?.into_iter().rev();
        let here = topmost.find(|line| line.point == *place);
        if !here.is_some_and(|line| line.is_ours()) || !is_dead(place) {
            return Ok(cleared);
        }
        detach(place, true)?;
        cleared += 1;
    }
}

/// Changes what the kernel itself keeps of the mount at `options.mountpoint`: read-only or not, and the flags. What is not
/// asked for by name stays.
pub fn remount(options: &StackOptions) -> Result<(), StackError> {
    let place = resolved(&options.mountpoint);
    let unreadable = |source| StackError::Place { path: "/proc/self/mountinfo".into(), source };
    let here = MountInfo::all().map_err(unreadable)?.into_iter().rev().find(|line| line.point == place);
    let Some(here) = here.filter(MountInfo::is_ours) else {
        return Err(StackError::NotMounted { mountpoint: options.mountpoint.clone() });
    };
    if !options.lower.canonicalize().is_ok_and(|lower| lower == here.source) {
        let lower = options.lower.clone();
        return Err(StackError::OtherLower { lower, mountpoint: place, shown: here.source });
    }
    // Of /etc/fstab mount(8) passes on all there is.
    let is_so = |name: &str| match name {
        "allow_other" => here.has("allow_other"),
        "owner_only" => !here.has("allow_other"),
        "exclusive" => crate::mount::claims::is_alone(&here.source, &place),
        _ => false,
    };
    if let Some(option) = options.fixed(is_so) {
        return Err(StackError::Fixed { option: option.to_owned(), mountpoint: place });
    }
    crate::adapter::remount(&options.clone().over(|option| here.has(option)), &place).map_err(|error| {
        StackError::Refused { reason: format!("{error}; changing a mount needs root"), mountpoint: place }
    })
}

/// A daemon that does not answer for so long is busy, and not dead.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// Ends the mount at this place; with `lazy` it is taken out of sight at once and ends with its last user.
pub fn unmount(mountpoint: &Path, lazy: bool) -> Result<(), StackError> {
    // The mount point itself may not answer any more: only what leads to it is resolved.
    let place = resolved(mountpoint);
    let all =
        mounted().map_err(|source| StackError::Place { path: "/proc/self/mountinfo".into(), source })?;
    if !all.iter().any(|one| one.mountpoint == place) {
        return Err(StackError::NotMounted { mountpoint: mountpoint.into() });
    }
    detach(&place, lazy)
}

pub(crate) fn detach(place: &Path, lazy: bool) -> Result<(), StackError> {
    fuse::detach(place, lazy).map_err(|error| match error {
        DetachError::Busy => StackError::Busy { mountpoint: place.into() },
        DetachError::Refused(reason) => StackError::Unmount { mountpoint: place.into(), reason },
    })
}

/// The path without links in what leads to its last component.
pub(crate) fn resolved(path: &Path) -> PathBuf {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    match (absolute.parent(), absolute.file_name()) {
        (Some(parent), Some(name)) => {
            parent.canonicalize().map_or(absolute.clone(), |parent| parent.join(name))
        }
        _ => absolute,
    }
}

/// What a line of the table says of a mount of ours.
pub(crate) trait MountOfOurs {
    /// Whether it is one.
    fn is_ours(&self) -> bool;
    /// The user who mounted it.
    fn owner(&self) -> Option<u32>;
}

impl MountOfOurs for MountInfo {
    fn is_ours(&self) -> bool {
        self.kind == MOUNT_TYPE
    }

    fn owner(&self) -> Option<u32> {
        self.options.split(',').find_map(|one| one.strip_prefix("user_id=")?.parse().ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_is_ours_by_its_type_and_has_the_user_who_mounted_it() {
        let line = |text: &[u8]| MountInfo::parse(text).unwrap();
        let ours = line(b"36 25 0:31 / /mnt rw,nosuid - fuse.crumb /spool rw,user_id=7");
        assert!(ours.is_ours());
        assert_eq!(ours.owner(), Some(7));
        assert!(!line(b"36 25 0:31 / /mnt rw - fuse.bindfs /lower rw").is_ours());
    }
}
