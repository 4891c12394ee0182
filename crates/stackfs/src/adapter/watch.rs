//! Watches the lower file system and has the kernel drop what others have changed.
//!
//! ```text
//! first change --wakes--> read all -> notices -> wait 50 ms -> read all -> ... -> nothing for a second -> wait for a change
//! ```
//!
//! Changes of the mount's own threads are passed over: the kernel asked for them. While there is traffic the queue is read by
//! time, so that they cost no wake-up each. A file system that is mounted in the tree, or unmounted, changes no directory: the kernel's
//! table of mounts reports it.
//!
//! Always holds: a change is notified within [`READ_EVERY`] and the time that notices take. When changes are lost, or cannot be read
//! any more, the kernel drops everything that it believes for long.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use fuse::{INodeNo, Notifier};
use measure::proc::MountInfo;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use sys::changes::{Change, Changes};

use super::Shared;
use super::believed::Watched;
use crate::tree::Tree;
use crate::tree::nodes::Kind;

/// The time between two readings of the queue while there is traffic.
const READ_EVERY: Duration = Duration::from_millis(50);
/// Readings without a change until the next change wakes the watcher.
const QUIET_MAX: u32 = 20;
/// Readings for which a notice is repeated that the kernel could not use yet.
const REPEATS_MAX: u32 = 40;

/// File systems that this machine's programs alone change, each by the kernel that reports it: ext2 to ext4, XFS, btrfs, tmpfs,
/// f2fs, bcachefs (statfs(2)). Another client of NFS is not seen here, nor is a change below an overlay.
const LOCAL: [u64; 6] = [0xef53, 0x5846_5342, 0x9123_683e, 0x0102_1994, 0xf2f5_2010, 0xca45_1a4e];

/// What watches.
pub(super) struct Watcher {
    changes: Changes,
    mounts: Option<Mounts>,
    watched: Arc<Watched>,
    shared: Arc<Shared>,
    end: Arc<OwnedFd>,
    /// Notices of inodes that the kernel did not have although a request had named them: its answer is under way. With how
    /// often each was repeated.
    early: BTreeMap<u64, u32>,
    loss_logged: bool,
}

/// Ends the watcher.
#[derive(Clone)]
pub(super) struct WatchEnd(Arc<OwnedFd>);

impl WatchEnd {
    pub(super) fn end(&self) {
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }
}

/// The time without a look at the table of mounts after a change of it that was elsewhere: an idle mount sleeps although others come and go.
const MOUNTS_ELSEWHERE: Duration = Duration::from_secs(3);

/// What is mounted in the tree: only the kernel's table of mounts reports that.
struct Mounts {
    /// Has an exceptional condition after each change of the table.
    table: File,
    lower: PathBuf,
    within: Vec<MountInfo>,
    /// It is looked at again from then on.
    again: Option<Instant>,
}

impl Mounts {
    /// `None` where the table cannot be read: what is mounted in the tree is then seen when the time-outs are over.
    fn within(lower: &Path) -> Option<Self> {
        let table = File::open("/proc/self/mountinfo").ok()?;
        let mut mounts = Self { table, lower: lower.canonicalize().ok()?, within: Vec::new(), again: None };
        mounts.changed();
        mounts.again = None;
        Some(mounts)
    }

    /// Whether other mounts lie in the tree than when this was asked last.
    fn changed(&mut self) -> bool {
        let Ok(mut now) = MountInfo::all() else { return true };
        now.retain(|mount| mount.point.starts_with(&self.lower));
        let changed = now != self.within;
        self.within = now;
        self.again = (!changed).then(|| Instant::now() + MOUNTS_ELSEWHERE);
        changed
    }
}

/// What ended a wait.
#[derive(Clone, Copy, Default)]
struct Woken {
    ended: bool,
    mounts_changed: bool,
}

/// What is no longer right.
#[derive(Default)]
struct Batch {
    /// Inodes, and whether their contents have changed.
    inodes: BTreeMap<u64, bool>,
    /// A name in a directory that the mount has shown.
    names: bool,
    /// Directories whose mode may have changed, and with it whether they are managed.
    directories: BTreeSet<u64>,
    is_anything: bool,
}

impl Watcher {
    /// Begins to collect changes.
    pub(super) fn new(
        shared: &Arc<Shared>,
        lower: &Path,
        connection: OwnedFd,
    ) -> io::Result<(Self, Arc<Watched>, WatchEnd)> {
        let kind = rustix::fs::fstatfs(shared.tree.root())?.f_type as u64 & 0xffff_ffff;
        if !LOCAL.contains(&kind) {
            let why = format!(
                "a file system of type {kind:#x} may be changed by others than this machine's programs"
            );
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        let changes = Changes::of(shared.tree.root().as_fd())?;
        let end = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let watched = Arc::new(Watched::new(Notifier::new(connection)));
        let (shared, its_end) = (Arc::clone(shared), WatchEnd(Arc::clone(&end)));
        let watcher = Self {
            changes,
            mounts: Mounts::within(lower),
            watched: Arc::clone(&watched),
            shared,
            end,
            early: BTreeMap::new(),
            loss_logged: false,
        };
        Ok((watcher, watched, its_end))
    }

    /// Until the mount has ended.
    pub(super) fn run(mut self) {
        let outcome = self.watch();
        self.watched.over();
        // After the mount's end the kernel has dropped everything itself.
        if let Err(error) = outcome {
            tracing::warn!(
                "changes below are not watched any more, so names and attributes are cached for 1 s again: {error}"
            );
            self.watched.drop_all(&self.shared.tree);
        }
    }

    fn watch(&mut self) -> io::Result<()> {
        let mut quiet = QUIET_MAX;
        // As early as can be: what the kernel has looked up before it looks up again.
        self.probe_epochs();
        loop {
            let wait = if quiet < QUIET_MAX { Some(READ_EVERY) } else { None };
            let woken = self.wait(wait)?;
            if woken.ended {
                return Ok(());
            }
            if woken.mounts_changed && self.mounts.as_mut().is_some_and(Mounts::changed) {
                self.watched.changed();
                self.watched.drop_all(&self.shared.tree);
            }
            self.probe_epochs();
            // A copy of file data is old as soon as it is written in memory below: closing is all that is reported of that.
            if self.watched.keeps_data.swap(false, Ordering::SeqCst) {
                self.changes.with_closes()?;
            }
            quiet = if self.turn()? { 0 } else { quiet + 1 };
        }
    }

    /// Finds out whether the kernel can drop all names at once.
    fn probe_epochs(&self) {
        if !self.watched.has_epochs.load(Ordering::SeqCst) {
            let has_epochs = self.watched.notices.increment_epoch().is_ok();
            self.watched.has_epochs.store(has_epochs, Ordering::SeqCst);
        }
    }

    /// Waits for a change, or for a time.
    fn wait(&self, time: Option<Duration>) -> io::Result<Woken> {
        let reads_by_time = time.is_some();
        let mut polled = vec![PollFd::new(&*self.end, PollFlags::IN)];
        // Until then the table is not looked at.
        let again = self.mounts.as_ref().and_then(|mounts| mounts.again);
        let later = again.and_then(|again| again.checked_duration_since(Instant::now()));
        let mounts = self.mounts.as_ref().filter(|_| later.is_none());
        polled.extend(mounts.map(|mounts| PollFd::new(&mounts.table, PollFlags::PRI)));
        let time = time.into_iter().chain(later).min().and_then(|time| Timespec::try_from(time).ok());
        if !reads_by_time {
            polled.push(PollFd::from_borrowed_fd(self.changes.descriptor(), PollFlags::IN));
        }
        match poll(&mut polled, time.as_ref()) {
            Ok(_) => Ok(Woken {
                ended: !polled[0].revents().is_empty(),
                mounts_changed: mounts.is_some() && polled[1].revents().contains(PollFlags::PRI),
            }),
            Err(Errno::INTR) => Ok(Woken::default()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Reads what there is and passes it on; whether there was anything, the mount's own changes included.
    fn turn(&mut self) -> io::Result<bool> {
        let (watched, tree) = (&self.watched, &self.shared.tree);
        let (mut batch, own) = (Batch::default(), std::cell::Cell::new(false));
        let is_foreign = |thread| {
            own.set(true);
            !watched.is_own(thread)
        };
        let read = self.changes.read(is_foreign, |change| batch.add(tree, change))?;
        if batch.is_anything || read.lost {
            self.watched.changed();
        }
        if read.lost {
            if !std::mem::replace(&mut self.loss_logged, true) {
                tracing::info!(
                    "more was changed below at once than the kernel reports; everything cached was dropped (not said again)"
                );
            }
            self.watched.drop_all(&self.shared.tree);
        }
        for id in &batch.directories {
            // What it is now is noted on the way.
            let _ = tree.attributes(*id);
        }
        if batch.names | tree.nodes.take_reshaped() {
            self.watched.drop_names();
        }
        self.pass_on(batch);
        Ok(own.get() || read.lost || !self.early.is_empty())
    }

    fn pass_on(&mut self, batch: Batch) {
        let (notices, nodes) = (&self.watched.notices, &self.shared.tree.nodes);
        self.early.retain(|id, repeats| {
            *repeats += 1;
            *repeats <= REPEATS_MAX
                && nodes.kind(*id).is_some()
                && is_unknown(notices.inval_inode(INodeNo(*id), true))
        });
        for (id, contents) in batch.inodes {
            if nodes.doubt(id) && is_unknown(notices.inval_inode(INodeNo(id), contents)) {
                self.early.insert(id, 0);
            }
        }
    }
}

/// Whether a notice was about something that the kernel does not have.
fn is_unknown(noticed: io::Result<()>) -> bool {
    noticed.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

impl Batch {
    fn add(&mut self, tree: &Tree, change: &Change<'_>) {
        self.is_anything = true;
        if let Some((directory, _)) = change.name.filter(|_| change.what & Change::NAMES != 0) {
            let directory = tree.number_on_root(directory);
            if tree.nodes.kind(directory).is_some() {
                self.inodes.entry(directory).or_insert(true);
                // Names in a managed directory, or in one that is converted, are believed for no longer than without a watcher.
                self.names |= tree.is_plain(directory);
            }
        }
        if let Some(inode) = change.inode {
            let contents = change.what & Change::CONTENTS != 0;
            let id = tree.number_on_root(inode);
            *self.inodes.entry(id).or_insert(contents) |= contents;
            let is_directory = || matches!(tree.nodes.kind(id), Some(Kind::Plain | Kind::Managed(_)));
            if change.what & Change::ATTRIBUTES != 0 && is_directory() {
                self.directories.insert(id);
            }
        }
    }
}
