//! Operations that name an entry of a directory: look up, make, link, rename, remove.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, Statx};
use rustix::io::Errno;

use super::identity::Caller;
use super::listing::Holder;
use super::nodes::{Kind, Place};
use super::{Done, Entry, LOOK, Tree, WANTED};

/// What is to be made.
pub(crate) enum New<'a> {
    Directory {
        mode: u32,
        umask: u32,
    },
    /// A special file, or a regular one, by its mode.
    Special {
        mode: u32,
        umask: u32,
        device: u64,
    },
    Symlink {
        target: &'a [u8],
    },
}

impl Tree {
    /// Looks a name up. The kernel holds a reference to what is found.
    pub(crate) fn look_up(&self, parent: u64, name: &[u8]) -> Done<Entry> {
        let inside = self.inside(parent)?;
        let _held = self.hold(&inside, name);
        let (holder, attributes) = found(self.at(&inside, name, |holder| {
            Ok((Arc::clone(holder), rustix::fs::statx(holder, name, LOOK, WANTED)?))
        }))?;
        Ok(self.refer(parent, &holder, name, attributes))
    }

    /// What an entry of a directory, just read, is, with a reference of the kernel to it; `None` when it is gone.
    pub(crate) fn listed(&self, directory: u64, holder: Holder<'_>, name: &[u8]) -> Done<Option<Entry>> {
        let look = |holder: &OwnedFd| {
            let attributes = rustix::fs::statx(holder, name, LOOK, WANTED)?;
            Ok(self.refer(directory, holder, name, attributes))
        };
        let found = match holder {
            Holder::Open(holder) => look(holder),
            Holder::ByName => {
                let inside = self.inside(directory)?;
                found(self.at(&inside, name, |holder| look(holder)))
            }
        };
        match found {
            Ok(entry) => Ok(Some(entry)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// Makes a directory, symbolic link or special file as the caller's.
    pub(crate) fn make(&self, parent: u64, name: &[u8], new: &New<'_>, caller: Caller) -> Done<Entry> {
        let mut inside = self.inside(parent)?;
        let _held = self.hold(&inside, name);
        let mode = match *new {
            New::Directory { mode, umask } | New::Special { mode, umask, .. } => {
                self.masked(&inside, mode, umask)
            }
            New::Symlink { .. } => Mode::empty(),
        };
        let holder = self.making(&mut inside, name, |holder| {
            self.identity.create_as(caller, mode, || match *new {
                New::Directory { .. } => rustix::fs::mkdirat(holder, name, mode),
                New::Special { mode: typed, device, .. } => {
                    rustix::fs::mknodat(holder, name, FileType::from_raw_mode(typed), mode, device)
                }
                New::Symlink { target } => rustix::fs::symlinkat(target, holder, name),
            })?;
            Ok(Arc::clone(holder))
        })?;
        let attributes = rustix::fs::statx(&holder, name, LOOK, WANTED)?;
        Ok(self.refer(parent, &holder, name, attributes))
    }

    /// Makes a regular file and opens it with `flags` (access mode and synchronous writing).
    pub(crate) fn create(
        &self,
        parent: u64,
        name: &[u8],
        (mode, umask): (u32, u32),
        (flags, exclusive): (OFlags, bool),
        caller: Caller,
    ) -> Done<(Entry, OwnedFd)> {
        let mut inside = self.inside(parent)?;
        let _held = self.hold(&inside, name);
        let mode = self.masked(&inside, mode, umask);
        let flags = flags | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let made = self.making(&mut inside, name, |holder| {
            let create = || rustix::fs::openat(holder, name, flags, mode);
            Ok((Arc::clone(holder), self.identity.create_as(caller, mode, create)?))
        });
        let (holder, opened) = match made {
            // Somebody made it meanwhile, below the mount. ESTALE has the kernel look again and open it with its
            // permissions checked.
            Err(Errno::EXIST) if !exclusive => return Err(Errno::STALE),
            other => other?,
        };
        let attributes = rustix::fs::statx(&opened, c"", LOOK | AtFlags::EMPTY_PATH, WANTED)?;
        Ok((self.refer(parent, &holder, name, attributes), opened))
    }

    /// Gives a node another name.
    pub(crate) fn link(&self, id: u64, parent: u64, name: &[u8]) -> Done<Entry> {
        let mut inside = self.inside(parent)?;
        let _held = self.hold(&inside, name);
        let linked = self.by_name(id, |from, path| {
            self.is_still(id, from, path)?;
            let made = self.making(&mut inside, name, |holder| {
                rustix::fs::linkat(from, path, holder, name, AtFlags::empty())?;
                Ok(Arc::clone(holder))
            });
            // That the new name's directory is gone must not be taken for a wrong old name.
            if matches!(made, Err(Errno::NOENT)) { Ok(Err(Errno::NOENT)) } else { made.map(Ok) }
        });
        let holder = linked.map_err(|errno| if errno == Errno::STALE { Errno::NOENT } else { errno })??;
        let attributes = rustix::fs::statx(&holder, name, LOOK, WANTED)?;
        Ok(self.refer(parent, &holder, name, attributes))
    }

    /// Removes a name of anything but a directory.
    pub(crate) fn unlink(&self, parent: u64, name: &[u8]) -> Done<()> {
        let inside = self.inside(parent)?;
        let kept = self.at(&inside, name, |holder| {
            let kept = self.before_removal(holder, name)?;
            rustix::fs::unlinkat(holder, name, AtFlags::empty())?;
            Ok(kept)
        })?;
        self.after_removal(kept);
        self.touched(&inside);
        Ok(())
    }

    /// Removes an empty directory; a managed one with its hidden level.
    pub(crate) fn remove_directory(&self, parent: u64, name: &[u8]) -> Done<()> {
        let inside = self.inside(parent)?;
        let kept = self.at(&inside, name, |holder| {
            let kept = self.before_removal(holder, name)?;
            match rustix::fs::unlinkat(holder, name, AtFlags::REMOVEDIR) {
                Err(Errno::NOTEMPTY | Errno::EXIST) => {
                    self.bare_at(holder, name)?;
                    rustix::fs::unlinkat(holder, name, AtFlags::REMOVEDIR)?;
                }
                other => other?,
            }
            Ok(kept)
        })?;
        self.after_removal(kept);
        self.touched(&inside);
        Ok(())
    }

    /// A descriptor of what is about to lose its last name. The daemon has a regular file open when a program has, unless
    /// no request opens files. A FIFO or device is opened without us, and a directory may be where a program stands.
    fn before_removal(&self, holder: &OwnedFd, name: &[u8]) -> Done<Option<Removed>> {
        let Ok(attributes) = rustix::fs::statx(holder, name, LOOK, WANTED) else { return Ok(None) };
        let regular = FileType::from_raw_mode(attributes.stx_mode.into()) == FileType::RegularFile;
        let (id, links) = (self.number(&attributes), attributes.stx_nlink);
        // Other names that a FIFO or device has may be unknown here: the kernel forgets what it does not use.
        if (regular && !self.unopened.files) || self.nodes.kind(id).is_none() {
            return Ok(None);
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match self.with_descriptors(|| rustix::fs::openat(holder, name, flags, Mode::empty())) {
            Ok(descriptor) => Ok(Some(Removed { id, regular, links, descriptor })),
            // A program could lose a file that it writes. The removal itself says what is wrong with the name.
            Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM) if regular => Err(Errno::MFILE),
            Err(_) => Ok(None),
        }
    }

    /// Keeps that descriptor until the kernel gives its last reference back. Not to be called while a rename is under way.
    fn after_removal(&self, removed: Option<Removed>) {
        let Some(Removed { id, regular, links, descriptor }) = removed else { return };
        if !regular {
            self.descriptors.keep(id, descriptor);
        } else if links > 1 && self.by_name(id, |parent, name| self.is_still(id, parent, name)).is_ok() {
            // The kernel may know that other name for long.
            return;
        } else {
            self.unopened.keep_nameless(id, descriptor);
        }
        // It may have given it back in between.
        if self.nodes.kind(id).is_none() {
            self.descriptors.drop_of(id);
            self.unopened.forget(id);
        }
    }

    /// Renames within and across directories, managed or not.
    pub(crate) fn rename(&self, from: (u64, &[u8]), to: (u64, &[u8]), flags: RenameFlags) -> Done<()> {
        // Before the lock: finding a directory may have to wait until no rename is under way.
        let source = self.inside(from.0)?;
        let mut target = self.inside(to.0)?;
        let _held = (self.hold(&source, from.1), self.hold(&target, to.1));
        let renaming = self.renames.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        let (holder, moved) = found(self.at(&source, from.1, |holder| {
            Ok((Arc::clone(holder), rustix::fs::statx(holder, from.1, LOOK, WANTED)?))
        }))?;
        let exchanged = if flags.contains(RenameFlags::EXCHANGE) {
            Some(found(self.at(&target, to.1, |holder| rustix::fs::statx(holder, to.1, LOOK, WANTED)))?)
        } else {
            None
        };
        let mut replaced = None;
        self.making(&mut target, to.1, |new_holder| {
            if self.unopened.files && flags.is_empty() {
                replaced = self.before_removal(new_holder, to.1)?.filter(|removed| removed.regular);
            }
            match rustix::fs::renameat_with(&holder, from.1, new_holder, to.1, flags) {
                // Over an empty managed directory: it is not empty below.
                Err(Errno::NOTEMPTY | Errno::EXIST) if is_directory(&moved) && flags.is_empty() => {
                    self.bare_at(new_holder, to.1)?;
                    rustix::fs::renameat_with(&holder, from.1, new_holder, to.1, flags)
                }
                other => other,
            }
        })?;
        self.touched(&source);
        let (old, new) = (place(from), place(to));
        self.nodes.renamed(self.number(&moved), &old, new.clone());
        if let Some(exchanged) = exchanged {
            self.nodes.renamed(self.number(&exchanged), &new, old);
        }
        drop(renaming);
        self.after_removal(replaced);
        Ok(())
    }

    /// Takes the hidden level from the directory `name`, when it is managed; ENOTEMPTY when it is not, or holds
    /// anything.
    fn bare_at(&self, holder: &OwnedFd, name: &[u8]) -> Done<()> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(holder, name, flags, Mode::empty())?;
        let attributes = rustix::fs::statx(&opened, c"", LOOK | AtFlags::EMPTY_PATH, WANTED)?;
        let id = self.number(&attributes);
        let _passed = self.pass(id);
        if let Some(conversion) = self.conversions.of(id) {
            return self.bare_in_conversion(&conversion);
        }
        let again = |_| opened.try_clone().map_err(|_| Errno::MFILE);
        match self.kind_of(id, &attributes, again) {
            Kind::Managed(layout) => self.bare(&opened, layout),
            Kind::Leaf | Kind::Plain | Kind::Unreadable | Kind::Converting => Err(Errno::NOTEMPTY),
        }
    }

    /// ESTALE unless this name leads to the node.
    pub(super) fn is_still(&self, id: u64, directory: impl std::os::fd::AsFd, path: &[u8]) -> Done<()> {
        let attributes = rustix::fs::statx(directory, path, LOOK, WANTED)?;
        if self.number(&attributes) == id { Ok(()) } else { Err(Errno::STALE) }
    }
}

/// What loses a name, by a descriptor.
struct Removed {
    id: u64,
    regular: bool,
    /// Names that it had.
    links: u32,
    descriptor: OwnedFd,
}

/// A stranger in the place of a hidden directory (ENOTDIR) hides what would be there: to the caller it is missing.
fn found<T>(outcome: Done<T>) -> Done<T> {
    outcome.map_err(|errno| if errno == Errno::NOTDIR { Errno::NOENT } else { errno })
}

fn place((parent, name): (u64, &[u8])) -> Place {
    Place { parent, name: name.into() }
}

fn is_directory(attributes: &Statx) -> bool {
    FileType::from_raw_mode(attributes.stx_mode.into()) == FileType::Directory
}
