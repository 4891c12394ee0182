//! The hidden level of a managed directory: made as it is needed, kept like the directory, removed with it.
//!
//! Always holds: a hidden directory has the managed directory's owner, group, permissions and access control lists,
//! without the bit; an empty one is nothing, made again when it is wanted.

use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, XattrFlags};
use rustix::io::Errno;

use super::{Done, Inside, LOOK, Tree, WANTED};
use crate::convert::state::is_reserved;
use crate::listing::Entries;
use crate::managed;
use crate::nodes::{Kind, lock};
use files::Layout;

const ACCESS_LIST: &str = "system.posix_acl_access";
const DEFAULT_LIST: &str = "system.posix_acl_default";
/// The largest extended attribute Linux has.
const ATTRIBUTE_BYTES_MAX: usize = 65_536;

impl Tree {
    /// Does something that makes an entry `name` in the directory `parent`, which gets its hidden directory when it
    /// was that which was missing, and is seen as changed afterwards.
    pub(crate) fn making<T>(
        &self,
        parent: u64,
        inside: &mut Inside,
        name: &[u8],
        mut make: impl FnMut(&OwnedFd, &[u8]) -> Done<T>,
    ) -> Done<T> {
        // It would pass for a conversion under way.
        if is_reserved(name) {
            return Err(Errno::PERM);
        }
        let made = match make(&inside.directory, &inside.place(name)) {
            Err(Errno::NOENT) if matches!(inside.kind, Kind::Managed(_)) => {
                self.hide(parent, inside, name)?;
                make(&inside.directory, &inside.place(name))
            }
            other => other,
        }?;
        self.touched(inside);
        Ok(made)
    }

    /// The managed directory's contents have changed, although by themselves they lie deeper.
    pub(crate) fn touched(&self, inside: &Inside) {
        if let Kind::Managed(_) = inside.kind {
            let omit = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
            let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
            let times = Timestamps { last_access: omit, last_modification: now };
            // Only an ordinary user's daemon may fail to, in a directory of somebody else's.
            if let Err(errno) = rustix::fs::utimensat(&inside.directory, c".", &times, AtFlags::empty()) {
                tracing::debug!("a managed directory keeps its old time of modification: {errno}");
            }
        }
    }

    /// Makes the hidden directory that `name` belongs in.
    fn hide(&self, parent: u64, inside: &mut Inside, name: &[u8]) -> Done<()> {
        let _hiding = lock(&self.hiding);
        // Whoever held the lock before may have given the directory its layout.
        inside.kind = self.nodes.kind(parent).unwrap_or(inside.kind);
        let Kind::Managed(mut layout) = inside.kind else { return Ok(()) };
        if layout == managed::LAYOUT_UNMARKED && self.layout_new != layout && self.is_bare(inside)? {
            managed::set_layout_mark(&inside.directory, self.layout_new).map_err(|error| {
                tracing::error!("a new managed directory cannot be marked as {}: {error}", self.layout_new);
                error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error)
            })?;
            layout = self.layout_new;
            inside.kind = Kind::Managed(layout);
            self.nodes.set_kind(parent, inside.kind);
        }
        let mut path = Vec::new();
        layout.subdirectory(name, &mut path);
        for end in
            path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at).chain([path.len()])
        {
            self.identity.with_fsetid(|| make_like(&inside.directory, &path[..end]))?;
        }
        Ok(())
    }

    /// Whether nothing at all lies in a managed directory, and no mark on it.
    fn is_bare(&self, inside: &Inside) -> Done<bool> {
        let unmarked = managed::layout_mark(&inside.directory).map_err(|_| Errno::IO)?.is_none();
        Ok(unmarked && hidden_names(&inside.directory, b".")?.is_empty())
    }

    /// Removes the hidden level, which must hold nothing: ENOTEMPTY otherwise, with some empty ones gone.
    pub(crate) fn bare(&self, managed: &OwnedFd, layout: Layout) -> Done<()> {
        for (name, kind) in hidden_names(managed, b".")? {
            if kind != FileType::Directory {
                tracing::warn!(
                    "{} lies beside the hidden directories of a managed directory: run `crumb check`",
                    String::from_utf8_lossy(&name)
                );
                return Err(Errno::NOTEMPTY);
            }
            match rustix::fs::unlinkat(managed, &name, AtFlags::REMOVEDIR) {
                Err(Errno::NOTEMPTY) if layout.levels() == 2 && name != Layout::OTHERS.as_bytes() => {
                    for (below, _) in hidden_names(managed, &name)? {
                        let path = [&name[..], b"/", &below[..]].concat();
                        ignore_missing(rustix::fs::unlinkat(managed, path, AtFlags::REMOVEDIR))?;
                    }
                    ignore_missing(rustix::fs::unlinkat(managed, &name, AtFlags::REMOVEDIR))?;
                }
                other => ignore_missing(other)?,
            }
        }
        Ok(())
    }

    /// After the managed directory's owner or permissions changed: its hidden directories follow.
    pub(crate) fn follow(&self, managed: &OwnedFd, layout: Layout) -> Done<()> {
        self.identity.with_fsetid(|| follow(managed, layout))
    }

    /// The mode a new file gets: the umask counts unless the directory has a default access control list, which the
    /// lower file system applies instead.
    pub(crate) fn masked(&self, inside: &Inside, mode: u32, umask: u32) -> Mode {
        let masked = Mode::from_raw_mode(mode & 0o7777 & !(umask & 0o777));
        if mode & umask & 0o777 == 0 {
            return masked;
        }
        let mut none = [0u8; 0];
        let listed = match rustix::fs::fgetxattr(&inside.directory, DEFAULT_LIST, &mut none) {
            // A descriptor for look-ups only: of a directory that may not be read.
            Err(Errno::BADF) => {
                rustix::fs::getxattr(by_descriptor(&inside.directory), DEFAULT_LIST, &mut none)
            }
            other => other,
        };
        if listed.is_ok() { Mode::from_raw_mode(mode & 0o7777) } else { masked }
    }
}

/// A path to what a descriptor is open on.
pub(crate) fn by_descriptor(descriptor: impl AsFd) -> String {
    use std::os::fd::AsRawFd;
    format!("/proc/self/fd/{}", descriptor.as_fd().as_raw_fd())
}

/// Names and types in the directory at `path`, in no order, without the two dots.
pub(crate) fn hidden_names(at: &OwnedFd, path: &[u8]) -> Done<Vec<(Vec<u8>, FileType)>> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = match rustix::fs::openat(at, path, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(Vec::new()),
        other => other?,
    };
    let mut names = Vec::new();
    let mut entries = Entries::default();
    while entries.fill(&directory)? {
        while let Some(entry) = entries.next() {
            if !matches!(entry.name, b"." | b"..") {
                names.push((entry.name.to_vec(), entry.kind));
            }
        }
    }
    Ok(names)
}

fn follow(managed: &OwnedFd, layout: Layout) -> Done<()> {
    for (name, kind) in hidden_names(managed, b".")? {
        if kind != FileType::Directory {
            continue;
        }
        liken(managed, &name)?;
        if layout.levels() == 2 && name != Layout::OTHERS.as_bytes() {
            for (below, _) in hidden_names(managed, &name)? {
                liken(managed, &[&name[..], b"/", &below[..]].concat())?;
            }
        }
    }
    Ok(())
}

fn make_like(managed: &OwnedFd, path: &[u8]) -> Done<()> {
    match rustix::fs::mkdirat(managed, path, Mode::RWXU) {
        // Made meanwhile by somebody else, or a file that `crumb check` will tell of.
        Err(Errno::EXIST) => Ok(()),
        Ok(()) => liken(managed, path),
        Err(errno) => Err(errno),
    }
}

/// Gives a hidden directory the managed one's owner, group, permissions and lists.
fn liken(managed: &OwnedFd, path: &[u8]) -> Done<()> {
    let like = rustix::fs::statx(managed, c"", LOOK | AtFlags::EMPTY_PATH, WANTED)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let hidden = match rustix::fs::openat(managed, path, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(()),
        other => other?,
    };
    let is = rustix::fs::statx(&hidden, c"", LOOK | AtFlags::EMPTY_PATH, WANTED)?;
    if (is.stx_uid, is.stx_gid) != (like.stx_uid, like.stx_gid) {
        let (uid, gid) = (rustix::fs::Uid::from_raw(like.stx_uid), rustix::fs::Gid::from_raw(like.stx_gid));
        match rustix::fs::fchown(&hidden, Some(uid), Some(gid)) {
            // An ordinary user's daemon keeps what it makes.
            Err(Errno::PERM) => {}
            other => other?,
        }
    }
    let mode = u32::from(like.stx_mode) & 0o7777 & !managed::MANAGED_BIT;
    if u32::from(is.stx_mode) & 0o7777 != mode {
        match rustix::fs::fchmod(&hidden, Mode::from_raw_mode(mode)) {
            Err(Errno::PERM) => {}
            other => other?,
        }
    }
    for list in [ACCESS_LIST, DEFAULT_LIST] {
        let mut value = vec![0; ATTRIBUTE_BYTES_MAX];
        match rustix::fs::getxattr(by_descriptor(managed), list, &mut value[..]) {
            Ok(len) => rustix::fs::fsetxattr(&hidden, list, &value[..len], XattrFlags::empty())?,
            Err(Errno::NODATA) => match rustix::fs::fremovexattr(&hidden, list) {
                Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
                Err(errno) => return Err(errno),
            },
            Err(Errno::OPNOTSUPP) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(())
}

fn ignore_missing(done: Done<()>) -> Done<()> {
    match done {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}
