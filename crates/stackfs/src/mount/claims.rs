//! Locks that a serving program holds on its lower tree for its whole life, even after its mount has left the kernel's table.
//!
//! ```text
//! /            byte 1      a mount of /news/spool holds shared locks of open file descriptions (F_OFD_SETLK) on single
//! /news        byte 1      bytes of these directories, until the last of its users is gone; an exclusive one the bytes
//! /news/spool  byte 0      2 and 3 besides
//! ```
//!
//! Directories cannot be opened for writing, so these locks are always shared, and mounts do not block one another. A program
//! that must be alone queries for another holder (F_OFD_GETLK with a conflicting lock), which takes no lock.
//! The locks end with their last descriptor, also when the program is killed. On storage without locks, only the kernel's
//! table of mounts shows who serves a tree.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;

use measure::proc::MountInfo;

use crate::managed::open_directory;

/// Held on the tree's root.
const SERVED: i64 = 0;
/// Held on all directories above it.
const SERVED_BELOW: i64 = 1;
/// The same two of a mount that is to be alone with its tree.
const ALONE: i64 = 2;
const ALONE_BELOW: i64 = 3;

/// A program whose mount was ended a moment ago needs a moment to end too.
const ENDS_WITHIN: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The locks of one mount.
#[derive(Debug)]
pub(crate) struct Claim {
    root: Option<File>,
    above: Vec<File>,
}

impl Claim {
    /// Takes them; `lower` is absolute and without links. Directories that cannot be opened or locked are passed over.
    pub(crate) fn take(lower: &Path, exclusive: bool) -> Self {
        let locked = |path: &Path, byte, byte_alone| {
            let directory = open_directory(path).ok()?;
            let bytes = [Some(byte), exclusive.then_some(byte_alone)];
            let held = bytes.into_iter().flatten().all(|byte| {
                let shared = at(byte, libc::F_RDLCK);
                fcntl(&directory, FcntlArg::F_OFD_SETLK(&shared)).is_ok()
            });
            held.then_some(directory)
        };
        let mounts = MountInfo::all().unwrap_or_default();
        Self {
            root: locked(lower, SERVED, ALONE),
            above: above(lower, &mounts)
                .filter_map(|path| locked(&path, SERVED_BELOW, ALONE_BELOW))
                .collect(),
        }
    }

    /// Whether another mount serves the tree, a part of it or one that holds it, and one of the two is to be alone.
    pub(crate) fn conflicts(&self, exclusive: bool) -> bool {
        let (around, below) = if exclusive { (SERVED, SERVED_BELOW) } else { (ALONE, ALONE_BELOW) };
        freed(|| {
            let of_root = |root: &File| held(root, around) || held(root, below);
            self.root.as_ref().is_some_and(of_root) || self.above.iter().any(|above| held(above, around))
        })
    }
}

impl Claim {
    /// Whether a mount of another process or place serves this tree, a part of it or one that holds it.
    pub(crate) fn others_serve(&self) -> bool {
        freed(|| {
            let of_root = |root: &File| held(root, SERVED) || held(root, SERVED_BELOW);
            self.root.as_ref().is_some_and(of_root) || self.above.iter().any(|above| held(above, SERVED))
        })
    }
}

/// The directories above this one, by each way that leads to it: one that is seen through a bind mount has others above it.
fn above(path: &Path, mounts: &[MountInfo]) -> impl Iterator<Item = PathBuf> {
    let mut ways = MountInfo::open_ways(path, mounts);
    ways.insert(0, path.to_owned());
    ways.into_iter().flat_map(|way| way.ancestors().skip(1).map(Path::to_owned).collect::<Vec<_>>())
}

/// Whether a mount serves this directory, anything below it or a tree that holds it.
pub(crate) fn is_served(path: &Path, mounts: &[MountInfo]) -> bool {
    let root = open_directory(path).ok();
    let above: Vec<File> = above(path, mounts).filter_map(|path| open_directory(&path).ok()).collect();
    freed(|| {
        let of_root = |root: &File| held(root, SERVED) || held(root, SERVED_BELOW);
        root.as_ref().is_some_and(of_root) || above.iter().any(|above| held(above, SERVED))
    })
}

/// Whether the mount of this tree at this place is to be alone with it.
pub(crate) fn is_alone(lower: &Path, mountpoint: &Path) -> bool {
    match lower.parent() {
        // Its root cannot be seen below the mount, but what is above it can.
        Some(above) if lower == mountpoint => {
            open_directory(above).is_ok_and(|above| held(above, ALONE_BELOW))
        }
        _ => open_directory(lower).is_ok_and(|root| held(root, ALONE)),
    }
}

/// What is said now, or when a program that is just ending has had the time to.
fn freed(is_held: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    while is_held() {
        if begun.elapsed() > ENDS_WITHIN {
            return true;
        }
        std::thread::park_timeout(LOOK_EVERY);
    }
    false
}

/// Whether another open file description holds a lock on this byte.
fn held(directory: impl AsFd, byte: i64) -> bool {
    let mut asked = at(byte, libc::F_WRLCK);
    let answer = fcntl(directory, FcntlArg::F_OFD_GETLK(&mut asked));
    answer.is_ok() && i32::from(asked.l_type) != libc::F_UNLCK
}

fn at(byte: i64, kind: libc::c_int) -> libc::flock {
    libc::flock { l_type: kind as _, l_whence: libc::SEEK_SET as _, l_start: byte, l_len: 1, l_pid: 0 }
}
