//! The hidden level of a managed directory: made as it is needed, kept like the directory, removed with it.
//!
//! Always holds: a hidden directory has the managed directory's owner, group, permissions and access control lists,
//! without the bit; an empty one is nothing, made again when it is wanted.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use rustix::fs::{
    AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid, XattrFlags,
};
use rustix::io::Errno;

use super::converting::{Conversion, Side};
use super::holders::{open_hidden, owner};
use super::identity::{Caller, Identity};
use super::listing::{Entries, is_second, is_top};
use super::nodes::{Kind, lock};
use super::stamps::Time;
use super::{Done, Inside, LOOK, Tree, WANTED};
use crate::convert::TIMES_FILE;
use crate::convert::state::{is_reserved, staging_name};
use crate::managed;
use files::Layout;

const ACCESS_LIST: &str = "system.posix_acl_access";
const DEFAULT_LIST: &str = "system.posix_acl_default";
/// The largest extended attribute Linux has.
const ATTRIBUTE_BYTES_MAX: usize = 65_536;

impl Tree {
    /// Does something that makes an entry `name` in a directory, which gets its hidden directory when it was that which
    /// was missing, and is seen as changed afterwards.
    pub(crate) fn making<T>(
        &self,
        inside: &mut Inside<'_>,
        name: &[u8],
        mut make: impl FnMut(&Arc<OwnedFd>) -> Done<T>,
    ) -> Done<T> {
        // It would pass for a conversion under way.
        if is_reserved(name) {
            return Err(Errno::PERM);
        }
        let made = match self.making_at(inside, name, &mut make) {
            Err(Errno::NOENT) if matches!(inside.kind, Kind::Managed(_)) => {
                self.hide(inside, name)?;
                self.at(inside, name, &mut make)
            }
            other => other,
        }?;
        self.touched(inside);
        Ok(made)
    }

    fn making_at<T>(
        &self,
        inside: &Inside<'_>,
        name: &[u8],
        make: &mut impl FnMut(&Arc<OwnedFd>) -> Done<T>,
    ) -> Done<T> {
        match inside.kind {
            Kind::Converting => self.making_at_either(inside, name, make),
            _ => self.at(inside, name, make),
        }
    }

    /// The managed directory's contents have changed, although by themselves they lie deeper.
    pub(crate) fn touched(&self, inside: &Inside<'_>) {
        self.unopened.changed(inside.id);
        let is_kept = inside.half.as_ref().is_some_and(|(conversion, _)| {
            let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
            conversion.set_modified(Timespec { tv_sec: now.tv_sec, tv_nsec: now.tv_nsec })
        });
        if !is_kept && matches!(inside.kind, Kind::Managed(_) | Kind::Converting) {
            let omit = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
            let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
            let times = Timestamps { last_access: omit, last_modification: now };
            // Only an ordinary user's daemon may fail to, in a directory of somebody else's.
            let set = || rustix::fs::utimensat(&inside.directory, c".", &times, AtFlags::empty());
            if let Err(errno) = self.stamps.once(inside.id, || modified(&inside.directory), set) {
                tracing::debug!("a managed directory keeps its old time of modification: {errno}");
            }
        }
    }

    /// Creates the hidden directory that `name` belongs in.
    fn hide(&self, inside: &mut Inside<'_>, name: &[u8]) -> Done<()> {
        let _hiding = lock(&self.hiding);
        // The previous holder of the lock may have given the directory its layout.
        if inside.half.is_none() {
            inside.kind = self.nodes.kind(inside.id).unwrap_or(inside.kind);
        }
        let Kind::Managed(mut layout) = inside.kind else { return Ok(()) };
        if layout == managed::LAYOUT_UNMARKED && self.layout_new != layout && self.is_bare(inside)? {
            managed::set_layout_mark(&inside.directory, self.layout_new).map_err(|error| {
                tracing::error!("a new managed directory cannot be marked as {}: {error}", self.layout_new);
                error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)
            })?;
            layout = self.layout_new;
            inside.kind = Kind::Managed(layout);
            self.nodes.set_kind(inside.id, inside.kind);
        }
        let mut path = Vec::new();
        layout.subdirectory(name, &mut path);
        let strict = self.identity.is_privileged();
        let managed = &*inside.directory;
        self.with_descriptors(|| make_hidden(managed, managed, &path, strict, &self.identity))
    }

    /// Makes the hidden directory at `path` below `root`, a directory under conversion or its staging directory. The lock is not held
    /// any more when this returns: opening a hidden directory takes it, where its owner is another.
    pub(crate) fn make_level(&self, root: &OwnedFd, managed: &OwnedFd, path: &[u8]) -> Done<()> {
        let _hiding = lock(&self.hiding);
        let strict = self.identity.is_privileged();
        self.with_descriptors(|| make_hidden(root, managed, path, strict, &self.identity))
    }

    /// Whether a managed directory is empty and unmarked.
    fn is_bare(&self, inside: &Inside<'_>) -> Done<bool> {
        let unmarked = managed::layout_mark(&inside.directory).map_err(|_| Errno::IO)?.is_none();
        Ok(unmarked && is_empty(&inside.directory)?)
    }

    /// Removes the hidden level. ENOTEMPTY if it holds an entry; some empty hidden directories may be gone then.
    pub(crate) fn bare(&self, managed: &OwnedFd, layout: Layout) -> Done<()> {
        for (name, kind) in names(managed)? {
            if kind != FileType::Directory {
                tracing::warn!(
                    "{} lies beside the hidden directories of a managed directory: run `crumb check`",
                    String::from_utf8_lossy(&name)
                );
                return Err(Errno::NOTEMPTY);
            }
            match rustix::fs::unlinkat(managed, &name, AtFlags::REMOVEDIR) {
                Err(Errno::NOTEMPTY) if layout.levels() == 2 && name != Layout::OTHERS.as_bytes() => {
                    let upper = open_hidden(managed, &name, OFlags::RDONLY)?;
                    // Empty directories in another user's are his to remove.
                    if self.identity.is_privileged() && owner(&upper)? != owner(managed)? {
                        return Err(Errno::NOTEMPTY);
                    }
                    for (below, _) in names(&upper)? {
                        ignore_missing(rustix::fs::unlinkat(&upper, below, AtFlags::REMOVEDIR))?;
                    }
                    ignore_missing(rustix::fs::unlinkat(managed, &name, AtFlags::REMOVEDIR))?;
                }
                other => ignore_missing(other)?,
            }
        }
        Ok(())
    }

    /// After the managed directory's owner or permissions changed: its hidden directories follow. Those that belong to
    /// somebody else than it does, or did `before`, are left alone by a daemon with root's rights: they are not ours.
    pub(crate) fn follow(&self, managed: &OwnedFd, layout: Layout, before: Option<u32>) -> Done<()> {
        self.follow_below(managed, managed, layout, before)
    }

    fn follow_below(
        &self,
        root: &OwnedFd,
        managed: &OwnedFd,
        layout: Layout,
        before: Option<u32>,
    ) -> Done<()> {
        let strict = self.identity.is_privileged();
        let each = |hidden: &OwnedFd| {
            if strict && !is_ours(managed, hidden, before)? {
                tracing::warn!(
                    "a hidden directory of another user keeps its owner and permissions: run `crumb check`"
                );
                return Ok(false);
            }
            liken(managed, hidden).map(|()| true)
        };
        self.identity.with_fsetid(|| each_hidden(root, layout, each))
    }

    /// The same during a conversion: its staging directory and what is in it follow too. The moves are paused.
    pub(crate) fn follow_in_conversion(&self, conversion: &Conversion, before: u32) -> Done<()> {
        let (managed, layout) = (&*conversion.directory, conversion.layout);
        if let Ok(staging) = conversion.staging() {
            let like = rustix::fs::fstat(managed)?;
            let (uid, gid) = (Uid::from_raw(like.st_uid), Gid::from_raw(like.st_gid));
            self.identity.with_fsetid(|| match rustix::fs::fchown(staging, Some(uid), Some(gid)) {
                // An ordinary user's daemon keeps what it makes.
                Err(Errno::PERM) => Ok(()),
                other => other,
            })?;
            self.follow_below(staging, managed, layout, Some(before))?;
        }
        if conversion.step().sides().contains(&Side::Up) {
            self.follow_below(managed, managed, layout, Some(before))?;
        }
        Ok(())
    }

    /// The mode a new file gets: the umask counts unless the directory has a default access control list, which the
    /// lower file system applies instead.
    pub(crate) fn masked(&self, inside: &Inside<'_>, mode: u32, umask: u32) -> Mode {
        let masked = Mode::from_raw_mode(mode & 0o7777 & !(umask & 0o777));
        if mode & umask & 0o777 == 0 {
            return masked;
        }
        let listed = match rustix::fs::fgetxattr_query(&inside.directory, DEFAULT_LIST) {
            // A descriptor for look-ups only: of a directory that may not be read.
            Err(Errno::BADF) => rustix::fs::getxattr_query(by_descriptor(&inside.directory), DEFAULT_LIST),
            other => other,
        };
        if listed.is_ok() { Mode::from_raw_mode(mode & 0o7777) } else { masked }
    }
}

/// A directory's time of modification.
fn modified(directory: &OwnedFd) -> Option<Time> {
    let attributes = rustix::fs::statx(directory, c"", LOOK | AtFlags::EMPTY_PATH, WANTED).ok()?;
    Some((attributes.stx_mtime.tv_sec, attributes.stx_mtime.tv_nsec.into()))
}

/// A path to what a descriptor is open on.
pub(crate) fn by_descriptor(descriptor: impl AsFd) -> String {
    use std::os::fd::AsRawFd;
    format!("/proc/self/fd/{}", descriptor.as_fd().as_raw_fd())
}

/// Names and types in a directory (any descriptor of it), in no order, without the two dots.
fn names(at: &OwnedFd) -> Done<Vec<(Vec<u8>, FileType)>> {
    let mut names = Vec::new();
    each_name(at, |name, kind| {
        names.push((name.to_vec(), kind));
        true
    })?;
    Ok(names)
}

fn is_empty(directory: &OwnedFd) -> Done<bool> {
    let mut empty = true;
    each_name(directory, |_, _| {
        empty = false;
        false
    })?;
    Ok(empty)
}

/// Until `wants_more` says no.
fn each_name(at: &OwnedFd, mut wants_more: impl FnMut(&[u8], FileType) -> bool) -> Done<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = match rustix::fs::openat(at, c".", flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        other => other?,
    };
    let mut entries = Entries::default();
    while entries.fill(&directory)? {
        while let Some(entry) = entries.next() {
            if !matches!(entry.name, b"." | b"..") && !wants_more(entry.name, entry.kind) {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Does something to every hidden directory that is there; strangers are passed over, and what is in one of which `work`
/// says that it is not ours.
fn each_hidden(managed: &OwnedFd, layout: Layout, mut work: impl FnMut(&OwnedFd) -> Done<bool>) -> Done<()> {
    let open = |at: &OwnedFd, name: &[u8]| match open_hidden(at, name, OFlags::RDONLY) {
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        other => other.map(Some),
    };
    for (name, _) in names(managed)? {
        if !is_top(layout, &name) {
            continue;
        }
        let Some(top) = open(managed, &name)? else { continue };
        if !work(&top)? {
            continue;
        }
        if layout.levels() == 2 && name != Layout::OTHERS.as_bytes() {
            for (below, _) in names(&top)? {
                if is_second(&below)
                    && let Some(opened) = open(&top, &below)?
                {
                    work(&opened)?;
                }
            }
        }
    }
    Ok(())
}

/// Makes the hidden directory at `path` below `root`, and the one above it; `root` is the managed directory or its staging
/// directory. With root's rights (`strict`), it is made as the managed directory's owner: there is never one of root's in
/// its place, which somebody else could have put there.
fn make_hidden(
    root: &OwnedFd,
    managed: &OwnedFd,
    path: &[u8],
    strict: bool,
    identity: &Identity,
) -> Done<()> {
    let like = rustix::fs::statx(managed, c"", LOOK | AtFlags::EMPTY_PATH, WANTED)?;
    let its_owner = Caller { uid: like.stx_uid, gid: like.stx_gid };
    let mut upper: Option<OwnedFd> = None;
    for part in path.split(|byte| *byte == b'/') {
        let at = upper.as_ref().unwrap_or(root);
        let make = || rustix::fs::mkdirat(at, part, Mode::RWXU);
        let opened = match identity.create_as(its_owner, Mode::RWXU, make) {
            Ok(()) => {
                let made = open_hidden(at, part, OFlags::RDONLY)?;
                // By now it may be another one that the managed directory's owner has put there.
                if strict && !is_ours(managed, &made, None)? {
                    return Err(Errno::IO);
                }
                identity.with_fsetid(|| liken(managed, &made))?;
                made
            }
            // Made meanwhile by somebody else.
            Err(Errno::EXIST) => {
                let there = open_hidden(at, part, OFlags::PATH)?;
                if strict && !is_ours(managed, &there, None)? {
                    return Err(Errno::IO);
                }
                there
            }
            Err(errno) => return Err(errno),
        };
        upper = Some(opened);
    }
    Ok(())
}

/// Whether a hidden directory belongs to the managed one's owner, now or `before`.
fn is_ours(managed: &OwnedFd, hidden: &OwnedFd, before: Option<u32>) -> Done<bool> {
    let its = owner(hidden)?;
    Ok(its == owner(managed)? || before == Some(its))
}

/// Gives a hidden directory the managed one's owner, group, permissions and lists.
fn liken(managed: &OwnedFd, hidden: &OwnedFd) -> Done<()> {
    let like = rustix::fs::statx(managed, c"", LOOK | AtFlags::EMPTY_PATH, WANTED)?;
    let is = rustix::fs::statx(hidden, c"", LOOK | AtFlags::EMPTY_PATH, WANTED)?;
    if (is.stx_uid, is.stx_gid) != (like.stx_uid, like.stx_gid) {
        let (uid, gid) = (Uid::from_raw(like.stx_uid), Gid::from_raw(like.stx_gid));
        match rustix::fs::fchown(hidden, Some(uid), Some(gid)) {
            // An ordinary user's daemon keeps what it makes.
            Err(Errno::PERM) => {}
            other => other?,
        }
    }
    let mode = u32::from(like.stx_mode) & 0o7777 & !managed::MANAGED_BIT;
    if u32::from(is.stx_mode) & 0o7777 != mode {
        match rustix::fs::fchmod(hidden, Mode::from_raw_mode(mode)) {
            Err(Errno::PERM) => {}
            other => other?,
        }
    }
    for list in [ACCESS_LIST, DEFAULT_LIST] {
        let mut value = vec![0; ATTRIBUTE_BYTES_MAX];
        match rustix::fs::getxattr(by_descriptor(managed), list, &mut value[..]) {
            Ok(len) => rustix::fs::fsetxattr(hidden, list, &value[..len], XattrFlags::empty())?,
            Err(Errno::NODATA) => match rustix::fs::fremovexattr(hidden, list) {
                Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
                Err(errno) => return Err(errno),
            },
            Err(Errno::OPNOTSUPP) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

/// The top directory of a hidden directory's path.
pub(super) fn top_of(path: &[u8]) -> &[u8] {
    path.split(|byte| *byte == b'/').next().unwrap_or(path)
}

/// ENOTEMPTY when a directory holds anything but staging directories.
pub(crate) fn only_reserved(directory: &OwnedFd) -> Done<()> {
    let mut empty = true;
    each_name(directory, |name, _| {
        empty = is_reserved(name);
        empty
    })?;
    if empty { Ok(()) } else { Err(Errno::NOTEMPTY) }
}

/// Removes the hidden directories below `root`; ENOTEMPTY when one of them holds an entry, or anything else is there but the
/// names of conversions.
pub(super) fn remove_empty_levels(root: &OwnedFd, layout: Layout) -> Done<()> {
    for (name, _) in names(root)? {
        if is_reserved(&name) || name == TIMES_FILE.to_bytes() {
            continue;
        }
        if !is_top(layout, &name) {
            return Err(Errno::NOTEMPTY);
        }
        if layout.levels() == 2 && name != Layout::OTHERS.as_bytes() {
            let upper = open_hidden(root, &name, OFlags::RDONLY)?;
            if owner(&upper)? != owner(root)? {
                return Err(Errno::NOTEMPTY);
            }
            for (below, _) in names(&upper)? {
                ignore_missing(rustix::fs::unlinkat(&upper, below, AtFlags::REMOVEDIR))?;
            }
        }
        ignore_missing(rustix::fs::unlinkat(root, &name, AtFlags::REMOVEDIR))?;
    }
    Ok(())
}

/// Removes a staging directory whose levels are gone.
pub(super) fn remove_staging(directory: &OwnedFd, staging: &OwnedFd, layout: Layout) -> Done<()> {
    ignore_missing(rustix::fs::unlinkat(staging, TIMES_FILE, AtFlags::empty()))?;
    let name = staging_name(layout);
    ignore_missing(rustix::fs::unlinkat(directory, name.as_c_str(), AtFlags::REMOVEDIR))
}

fn ignore_missing(done: Done<()>) -> Done<()> {
    match done {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}
