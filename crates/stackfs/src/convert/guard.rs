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
//! So a conversion is refused in, above or below another one, and a mount at or above one under way. A mount that is
//! there is found in the kernel's table (`/proc/self/mountinfo`), which is looked at once the locks are held: a mount
//! that starts at the same time either shows there, or holds its lock. Locks end with their process.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use rustix::io::Errno;

use super::STAGING_PREFIX;
use super::error::ConvertError;
use super::levels::Levels;
use crate::managed::{is_managed, layout_of, open_directory};

/// The type of our mounts in the kernel's table.
const MOUNT_TYPE: &str = "fuse.crumb";

/// A directory that is ours alone as long as this lives.
#[derive(Debug)]
pub(crate) struct Guard {
    /// Without symbolic links.
    pub path: PathBuf,
    pub directory: File,
    _above: Vec<File>,
}

impl Guard {
    /// Opens and locks it.
    pub(crate) fn take(path: &Path) -> Result<Self, ConvertError> {
        let cannot_open = |source: io::Error| ConvertError::Open { path: path.to_owned(), source };
        let (real, _) = unmounted(path)?;
        let directory = open_directory(&real).map_err(cannot_open)?;
        refuse_hidden(path, &real)?;
        let mut above = Vec::new();
        for ancestor in real.ancestors().skip(1) {
            // Whoever may not read a directory cannot have mounted it either; nor can all storage lock.
            let Ok(opened) = open_directory(ancestor) else { continue };
            lock(path, ancestor, &opened, FlockOperation::NonBlockingLockShared)?;
            above.push(opened);
        }
        lock(path, &real, &directory, FlockOperation::NonBlockingLockExclusive)?;
        // Again, now that none can start.
        let (_, mounts) = unmounted(path)?;
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
fn unmounted(path: &Path) -> Result<(PathBuf, Vec<Mount>), ConvertError> {
    let cannot_open = |source: io::Error| ConvertError::Open { path: path.to_owned(), source };
    let real = path.canonicalize().map_err(cannot_open)?;
    let mounts = Mount::all();
    refuse_mounted(path, &real, &mounts)?;
    Ok((real, mounts))
}

/// Refuses a tree of which a mount shows anything.
pub(crate) fn refuse_in_use(tree: &Path) -> Result<PathBuf, ConvertError> {
    unmounted(tree).map(|(real, _)| real)
}

/// For a mount that starts: a lock on its lower root, to be held until the mount shows in the kernel's table; none
/// where it cannot be had for other reasons than a conversion. `WouldBlock` beside a conversion or another start.
pub(crate) fn starting_mount(lower: &Path) -> io::Result<Option<File>> {
    let Ok(root) = open_directory(lower) else { return Ok(None) };
    match rustix::fs::flock(&root, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(root)),
        Err(Errno::WOULDBLOCK) => {
            let why = "a directory in it is being converted (crumb manage or unmanage), or another mount of it \
                       starts; wait for that";
            Err(io::Error::new(io::ErrorKind::WouldBlock, why))
        }
        Err(_) => Ok(None),
    }
}

fn lock(path: &Path, at: &Path, directory: impl AsFd, operation: FlockOperation) -> Result<(), ConvertError> {
    match rustix::fs::flock(directory, operation) {
        Err(Errno::WOULDBLOCK) => Err(ConvertError::Locked { path: path.to_owned(), at: at.to_owned() }),
        // Storage without locks: the table of mounts has been looked at.
        Ok(()) | Err(_) => Ok(()),
    }
}

fn refuse_mounted(path: &Path, real: &Path, mounts: &[Mount]) -> Result<(), ConvertError> {
    // Later lines cover earlier ones.
    let governing = mounts.iter().rev().filter(|mount| real.starts_with(&mount.point));
    let governing = governing.max_by_key(|mount| mount.point.components().count());
    let refused = |by: String| Err(ConvertError::Mounted { path: path.to_owned(), by });
    if let Some(mount) = governing.filter(|mount| mount.is_ours()) {
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

/// A line of the kernel's table.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    point: PathBuf,
    kind: String,
    source: PathBuf,
}

impl Mount {
    fn all() -> Vec<Self> {
        let table = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
        table.split(|byte| *byte == b'\n').filter_map(Self::parse).collect()
    }

    /// `id parent device root POINT options optional… - KIND SOURCE options`, see proc(5).
    fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = line.split(|byte| *byte == b' ');
        let point = unescaped(fields.nth(4)?);
        let mut fields = fields.skip_while(|field| *field != b"-").skip(1);
        let kind = String::from_utf8_lossy(fields.next()?).into_owned();
        Some(Self { point, kind, source: unescaped(fields.next()?) })
    }

    fn is_ours(&self) -> bool {
        self.kind == MOUNT_TYPE
    }
}

/// Blanks and the like stand as `\040` there.
fn unescaped(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        let octal = after
            .get(..3)
            .filter(|digits| *first == b'\\' && digits.iter().all(|d| (b'0'..b'8').contains(d)));
        match octal {
            Some(digits) => {
                bytes.push(digits.iter().fold(0u8, |byte, digit| byte.wrapping_mul(8) | (digit - b'0')));
                rest = &after[3..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    PathBuf::from(OsStr::from_bytes(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(point: &str, kind: &str, source: &str) -> Mount {
        Mount { point: point.into(), kind: kind.to_owned(), source: source.into() }
    }

    #[test]
    fn a_line_of_the_table_is_read_with_its_escapes_and_optional_fields() {
        let line = br"36 35 98:0 / /mnt/a\040b rw,noatime master:1 shared:2 - fuse.crumb /srv/\134x rw";
        assert_eq!(Mount::parse(line), Some(mount("/mnt/a b", "fuse.crumb", r"/srv/\x")));
        assert_eq!(Mount::parse(b"36 35"), None);
        assert!(!Mount::all().is_empty());
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
}
