//! Which directory below holds an entry: the directory itself or, of a managed one, one of its hidden directories.
//!
//! ```text
//! (directory, name) --Layout--> "345" --kept?--> descriptor of DIR/345 --> one system call on the bare name
//!                                   `-- openat2: beneath DIR, no symbolic link, no mount point, DIR's owner
//! ```
//!
//! The owner of a lower directory may put anything in the place of a hidden directory, even while the daemon runs.
//! `mkdirat`, `renameat`, `unlinkat` and `statx` follow symbolic links in all but the last component, and no flag
//! prevents it. So we only pass them a single component, below a descriptor that was opened safely.
//!
//! Always holds: only [`open_hidden`] resolves a path of two components or more. A hidden directory's
//! descriptor is reopened after the time for which the kernel caches a name (`entry_timeout`), at most 10 s. A daemon
//! with root's rights does not work in a hidden directory of another user than the managed directory's owner, nor in
//! one below it.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::descriptors::Descriptors;
use super::nodes::{Kind, lock};
use super::{Done, Inside, LOOK, Tree, WANTED, hidden};

/// Cached descriptors of hidden directories.
pub(crate) struct Holders {
    /// By the managed directory's number and the hidden directory's path as a number.
    kept: Descriptors<(u64, u64)>,
    trusted_for: Duration,
    /// Whether the log already mentions a stranger in a hidden directory's place.
    refusal_logged: AtomicBool,
}

/// The longest that a descriptor is used. Also who mounts with `exclusive` may be wrong about who changes the tree.
const TRUSTED_MAX: Duration = Duration::from_secs(10);

impl Holders {
    pub(crate) fn new(kept_max: usize, trusted_for: Duration) -> Self {
        let (kept, trusted_for) = (Descriptors::new(kept_max), trusted_for.min(TRUSTED_MAX));
        Self { kept, trusted_for, refusal_logged: AtomicBool::new(false) }
    }

    /// The kernel has forgotten a managed directory; its number may come back as another directory's.
    pub(crate) fn forget(&self, managed: u64) {
        self.kept.drop_where(|(id, _)| *id == managed);
    }
}

impl Tree {
    /// Does something to `name` in the directory below that holds it.
    pub(crate) fn at<T>(
        &self,
        inside: &Inside<'_>,
        name: &[u8],
        mut work: impl FnMut(&Arc<OwnedFd>) -> Done<T>,
    ) -> Done<T> {
        let layout = match inside.kind {
            Kind::Managed(layout) => layout,
            Kind::Converting => return self.at_either(inside, name, work),
            _ => return self.with_descriptors(|| work(&inside.directory)),
        };
        let mut path = Vec::with_capacity(8);
        layout.subdirectory(name, &mut path);
        let key = (inside.id, as_number(&path));
        if let Some(kept) = self.holders.kept.find_younger(key, self.holders.trusted_for) {
            match self.with_descriptors(|| work(&kept)) {
                // An empty hidden directory may be removed and made again at any time.
                Err(Errno::NOENT) if is_removed(&kept) => self.holders.kept.drop_of(key),
                other => return other,
            }
        }
        let opened = self.open_holder(inside, &path)?;
        let kept = self.holders.kept.keep(key, opened);
        self.with_descriptors(|| work(&kept))
    }

    /// Opens the hidden directory of an entry for look-ups. Of two levels the upper one is kept too, with the verdict that
    /// it is the owner's, for as long as any: there are a hundred of them for ten thousand, and each would cost an
    /// `openat2` and two `statx` more.
    fn open_holder(&self, inside: &Inside<'_>, path: &[u8]) -> Done<OwnedFd> {
        let (managed, split) = (&inside.directory, path.iter().position(|byte| *byte == b'/'));
        let Some(split) = split.filter(|_| self.identity.is_privileged()) else {
            return self.open_hidden(managed, path, OFlags::PATH);
        };
        let key = (inside.id, as_number(&path[..split]));
        if let Some(kept) = self.holders.kept.find_younger(key, self.holders.trusted_for) {
            match self.open_lower(managed, &kept, path, split, OFlags::PATH) {
                Err(Errno::NOENT) if is_removed(&kept) => self.holders.kept.drop_of(key),
                other => return other,
            }
        }
        let upper = self.open_upper(managed, path, split)?;
        let kept = self.holders.kept.keep(key, upper);
        self.open_lower(managed, &kept, path, split, OFlags::PATH)
    }

    /// Opens a hidden directory of a managed one. ENOTDIR when something else is in its place.
    pub(crate) fn open_hidden(&self, managed: &OwnedFd, path: &[u8], access: OFlags) -> Done<OwnedFd> {
        if !self.identity.is_privileged() {
            return self.open_part(managed, managed, path, path, access);
        }
        // With root's rights also the upper one of two is looked at before anything is looked for in it.
        let Some(split) = path.iter().position(|byte| *byte == b'/') else {
            let opened = self.open_part(managed, managed, path, path, access)?;
            return self.only_the_owners(managed, opened, path);
        };
        let upper = self.open_upper(managed, path, split)?;
        self.open_lower(managed, &upper, path, split, access)
    }

    /// Opens the upper one of two hidden directories, whose name ends at `split`.
    fn open_upper(&self, managed: &OwnedFd, path: &[u8], split: usize) -> Done<OwnedFd> {
        let upper = self.open_part(managed, managed, &path[..split], path, OFlags::PATH)?;
        self.only_the_owners(managed, upper, path)
    }

    /// Opens the lower one, in the upper one.
    fn open_lower(
        &self,
        managed: &OwnedFd,
        upper: &OwnedFd,
        path: &[u8],
        split: usize,
        access: OFlags,
    ) -> Done<OwnedFd> {
        let opened = self.open_part(managed, upper, &path[split + 1..], path, access)?;
        self.only_the_owners(managed, opened, path)
    }

    /// Opens `part` of the hidden directory at `path`, below `at`.
    fn open_part(
        &self,
        managed: &OwnedFd,
        at: &OwnedFd,
        part: &[u8],
        path: &[u8],
        access: OFlags,
    ) -> Done<OwnedFd> {
        let opened = self.with_descriptors(|| open_hidden(at, part, access));
        if opened.as_ref().is_err_and(|errno| *errno == Errno::NOTDIR) {
            self.tell_refusal(managed, path, "is no directory of the same file system");
        }
        opened
    }

    /// EIO when it does not belong to the managed directory's owner.
    fn only_the_owners(&self, managed: &OwnedFd, opened: OwnedFd, path: &[u8]) -> Done<OwnedFd> {
        if owner(managed)? != owner(&opened)? {
            // Their owner may just be changing.
            let _hiding = lock(&self.hiding);
            if owner(managed)? != owner(&opened)? {
                self.tell_refusal(
                    managed,
                    path,
                    "belongs to another user than the directory that it is part of",
                );
                return Err(Errno::IO);
            }
        }
        Ok(opened)
    }

    /// Does something that may need a new descriptor. When there is none left, those that are only kept are given up:
    /// first those of files and listings that are not open, then of hidden directories, then of others.
    pub(crate) fn with_descriptors<T>(&self, mut work: impl FnMut() -> Done<T>) -> Done<T> {
        let mut done = work();
        let spared: &dyn Fn() -> bool = &|| self.spared.get().is_some_and(|give_up| give_up());
        let unopened: &dyn Fn() -> bool = &|| self.unopened.give_up();
        let hidden: &dyn Fn() -> bool = &|| self.holders.kept.give_up();
        let others: &dyn Fn() -> bool = &|| self.descriptors.give_up();
        for give_up in [spared, unopened, hidden, others] {
            if !matches!(done, Err(Errno::MFILE | Errno::NFILE)) {
                break;
            }
            if give_up() {
                done = work();
            }
        }
        done
    }

    /// Once: the owner of the directory could otherwise fill the log.
    fn tell_refusal(&self, managed: &OwnedFd, path: &[u8], why: &str) {
        if !self.holders.refusal_logged.swap(true, Ordering::Relaxed) {
            let managed = std::fs::read_link(hidden::by_descriptor(managed)).unwrap_or_default();
            tracing::error!(
                "{}/{} {why}, so what the mount keeps there is not shown; run `crumb check {}` (not said again \
                 for other places)",
                managed.display(),
                String::from_utf8_lossy(path),
                managed.display()
            );
        }
    }
}

/// Opens the directory at `path` in a directory: through no symbolic link, into no mount, whatever is exchanged
/// meanwhile. ENOTDIR when one of them, or anything else, is in the way.
pub(crate) fn open_hidden(at: impl AsFd, path: &[u8], access: OFlags) -> Done<OwnedFd> {
    let flags = access | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH
        | ResolveFlags::NO_SYMLINKS
        | ResolveFlags::NO_MAGICLINKS
        | ResolveFlags::NO_XDEV;
    let opened = loop {
        match rustix::fs::openat2(&at, path, flags, Mode::empty(), resolve) {
            // Something was renamed on the way, or a signal came.
            Err(Errno::AGAIN | Errno::INTR) => {}
            // Kernels before 5.6, and containers that allow no call that is newer than they are.
            Err(Errno::NOSYS | Errno::PERM) => break step_by_step(at, path, flags),
            other => break other,
        }
    };
    match opened {
        Err(Errno::LOOP | Errno::XDEV) => Err(Errno::NOTDIR),
        other => other,
    }
}

fn step_by_step(at: impl AsFd, path: &[u8], flags: OFlags) -> Done<OwnedFd> {
    let device = |of: &OwnedFd| rustix::fs::fstat(of).map(|stat| stat.st_dev);
    let device_above = rustix::fs::fstat(&at)?.st_dev;
    let mut opened: Option<OwnedFd> = None;
    for part in path.split(|byte| *byte == b'/') {
        let above = opened.as_ref().map_or(at.as_fd(), AsFd::as_fd);
        let next = rustix::fs::openat(above, part, flags, Mode::empty())?;
        if device(&next)? != device_above {
            return Err(Errno::XDEV);
        }
        opened = Some(next);
    }
    opened.ok_or(Errno::INVAL)
}

/// The user who owns what a descriptor is open on.
pub(super) fn owner(of: &OwnedFd) -> Done<u32> {
    Ok(rustix::fs::statx(of, c"", LOOK | AtFlags::EMPTY_PATH, WANTED)?.stx_uid)
}

pub(super) fn is_removed(directory: &OwnedFd) -> bool {
    rustix::fs::statx(directory, c"", LOOK | AtFlags::EMPTY_PATH, WANTED).is_ok_and(|is| is.stx_nlink == 0)
}

/// A hidden directory's path has at most five bytes.
fn as_number(path: &[u8]) -> u64 {
    path.iter().fold(1, |number, byte| number << 8 | u64::from(*byte))
}
