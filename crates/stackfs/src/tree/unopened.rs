//! Files and directories that programs use without a request to open them: `-o no-open`, and directories where `exclusive` is given as well.
//!
//! ```text
//! READ of node 7    -> a descriptor used for it lately, else opened by its name
//! UNLINK            -> a descriptor until the kernel forgets the node: a program may have the file open
//! READDIR of node 9 -> the listing that stands at that position, else a new one
//! ```
//!
//! Always holds: a file whose last name was removed through the mount keeps a descriptor for as long as the kernel knows
//! it, and its removal fails when no descriptor is left. All other descriptors here can be given up at any time. A listing
//! is left here only until something in its directory changes through the mount.
//! Locks: three, each a leaf; what they held is closed after them.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::descriptors::Descriptors;
use super::nodes::{ByInode, lock};
use super::opened::OpenDirectory;
use super::{Done, Tree};

/// What a request names: a node, and the number that it got when it was opened, 0 where nothing was.
pub(crate) type Of = (u64, u64);

/// What is used without having been opened.
pub(crate) struct Unopened {
    /// No request opens a file, and none closes one.
    pub(crate) files: bool,
    /// The same of directories.
    pub(crate) directories: bool,
    reading: Descriptors,
    writing: Descriptors,
    /// Files without a name.
    nameless: Mutex<HashMap<u64, Arc<OwnedFd>, ByInode>>,
    listings: Mutex<Vec<Left>>,
}

/// A listing that a reader has left at a position.
struct Left {
    position: u64,
    since: Instant,
    directory: Arc<OpenDirectory>,
}

/// An open file, for one operation.
pub(crate) struct Reached {
    pub(crate) descriptor: Arc<OwnedFd>,
    /// Set-user-id bits are cleared when this one writes.
    pub(crate) by_ordinary_user: bool,
}

/// Descriptors kept for reading, and as many for writing.
const KEPT_MAX: usize = 256;
/// Listings kept.
const LISTINGS_MAX: usize = 32;

impl Unopened {
    pub(crate) fn new(files: bool, directories: bool) -> Self {
        Self {
            files,
            directories,
            reading: Descriptors::new(KEPT_MAX),
            writing: Descriptors::new(KEPT_MAX),
            nameless: Mutex::default(),
            listings: Mutex::default(),
        }
    }

    /// The kernel has forgotten a node: no program has it open.
    pub(crate) fn forget(&self, id: u64) {
        if self.files {
            self.reading.drop_of(id);
            self.writing.drop_of(id);
            let closed = lock(&self.nameless).remove(&id);
            drop(closed);
        }
    }

    /// Closes what was opened or left longer ago than `age`.
    pub(crate) fn expire(&self, age: Duration) {
        self.reading.drop_older(age);
        self.writing.drop_older(age);
        let mut listings = lock(&self.listings);
        let (stay, gone) =
            std::mem::take(&mut *listings).into_iter().partition(|left| left.since.elapsed() < age);
        *listings = stay;
        drop(listings);
        let _closed_after_the_lock: Vec<Left> = gone;
    }

    /// Gives up every descriptor that is only kept; false when there was none.
    pub(crate) fn give_up(&self) -> bool {
        let listings = std::mem::take(&mut *lock(&self.listings));
        let given_up = [!listings.is_empty(), self.reading.give_up(), self.writing.give_up()];
        given_up.contains(&true)
    }

    pub(crate) fn nameless(&self, id: u64) -> Option<Arc<OwnedFd>> {
        lock(&self.nameless).get(&id).cloned()
    }

    /// Keeps a descriptor of a file that has lost its last known name.
    pub(crate) fn keep_nameless(&self, id: u64, descriptor: OwnedFd) {
        let closed = lock(&self.nameless).insert(id, Arc::new(descriptor));
        drop(closed);
    }

    /// Something in a directory changed: who reads it next reads it from the lower file system.
    pub(crate) fn changed(&self, directory: u64) {
        if !self.directories {
            return;
        }
        let mut listings = lock(&self.listings);
        let (gone, stay) =
            std::mem::take(&mut *listings).into_iter().partition(|left| left.directory.id == directory);
        *listings = stay;
        drop(listings);
        let _closed_after_the_lock: Vec<Left> = gone;
    }

    fn take(&self, id: u64, position: u64) -> Option<Arc<OpenDirectory>> {
        // From its beginning a directory is read as it is now.
        if position == 0 {
            self.changed(id);
            return None;
        }
        let mut listings = lock(&self.listings);
        let found = listings.iter().position(|left| left.directory.id == id && left.position == position)?;
        Some(listings.swap_remove(found).directory)
    }

    fn leave(&self, position: u64, directory: Arc<OpenDirectory>) {
        let mut listings = lock(&self.listings);
        let oldest = listings.iter().enumerate().min_by_key(|(_, left)| left.since).map(|(at, _)| at);
        let closed = oldest.filter(|_| listings.len() >= LISTINGS_MAX).map(|at| listings.swap_remove(at));
        listings.push(Left { position, since: Instant::now(), directory });
        drop(listings);
        drop(closed);
    }
}

impl Tree {
    /// The file that a request names, opened so that it can be used with `access`.
    pub(super) fn file_of(&self, (id, handle): Of, access: OFlags) -> Done<Reached> {
        if !self.unopened.files {
            let file = self.opened.file(handle).ok_or(Errno::BADF)?;
            return Ok(Reached {
                descriptor: Arc::clone(&file.descriptor),
                by_ordinary_user: file.by_ordinary_user,
            });
        }
        // The kernel says of each write whether it clears set-user-id bits.
        let reached = |descriptor| Reached { descriptor, by_ordinary_user: false };
        if let Some(kept) = self.unopened.writing.find(id) {
            return Ok(reached(kept));
        }
        if access == OFlags::RDONLY {
            if let Some(kept) = self.unopened.reading.find(id) {
                return Ok(reached(kept));
            }
            let opened = self.open(id, access)?;
            return Ok(reached(self.unopened.reading.keep(id, opened)));
        }
        match self.open(id, OFlags::RDWR) {
            Ok(opened) => Ok(reached(self.unopened.writing.keep(id, opened))),
            // A file that can only grow (chattr +a) is opened in no other way.
            Err(Errno::PERM) => Ok(reached(Arc::new(self.open(id, OFlags::WRONLY | OFlags::APPEND)?))),
            Err(errno) => Err(errno),
        }
    }

    /// A descriptor of a file that has no name any more.
    pub(super) fn nameless_file(&self, id: u64) -> Option<Arc<OwnedFd>> {
        let open = self.opened.any_of(id).map(|file| Arc::clone(&file.descriptor));
        open.or_else(|| self.unopened.nameless(id))
    }

    /// Runs `work` on the directory that a request names.
    pub(super) fn with_directory<T>(
        &self,
        (id, handle): Of,
        work: impl FnOnce(&OpenDirectory) -> Done<T>,
    ) -> Done<T> {
        if self.unopened.directories {
            return work(&self.listing_of(id)?);
        }
        work(&*self.opened.directory(handle).ok_or(Errno::BADF)?)
    }

    /// Passes entries of a directory from `position` on to `list`, which returns whether there was one.
    pub(super) fn listing_at<T>(
        &self,
        (id, handle): Of,
        position: u64,
        list: impl FnOnce(&OpenDirectory) -> Done<(T, u64)>,
    ) -> Done<T> {
        if !self.unopened.directories {
            let directory = self.opened.directory(handle).ok_or(Errno::BADF)?;
            return list(&directory).map(|(listed, _)| listed);
        }
        let directory = match self.unopened.take(id, position) {
            Some(left) => left,
            None => Arc::new(self.listing_of(id)?),
        };
        let (listed, behind) = list(&directory)?;
        // At the end nothing follows.
        if behind != position {
            self.unopened.leave(behind, directory);
        }
        Ok(listed)
    }
}
