//! For how long the kernel may believe what it gets: by the mount's time-outs, or for minutes where changes of the lower tree are
//! watched.
//!
//! ```text
//! request begins: generation noted -> system call -> node marked as believed -> generation still the same? for minutes : 1 s
//! watcher: changes read -> generation raised -> of each changed node that is marked: mark taken away, kernel notified
//! ```
//!
//! A request whose system call came before a change either sees the raised generation or has set the mark that the watcher finds,
//! as both happen under the lock of the node's shard. The kernel itself drops attributes that it asked for before a notice, and
//! names that it asked for before all were dropped.
//!
//! Always holds: believed for minutes is only what is on the root's file system, named by a plain directory, and not open for writing
//! through the mount; names only where the kernel can drop all of them at once. A plain directory that is converted is not one any more:
//! when the conversion begins, all names are dropped. The rest has the time-outs of a mount that is not watched, and so has all when
//! watching ends.
//! Not here: reading changes (`watch`).

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, RwLock, Weak};
use std::time::Duration;

use fuse::{INodeNo, Notifier};

use crate::mount::options::Timeouts;
use crate::tree::{Entry, Tree};

/// What decides.
pub(super) struct Believed {
    given: Timeouts,
    watched: Option<Arc<Watched>>,
    /// `None` before the connection.
    notices: Option<Notifier>,
}

/// What the watcher and the threads that serve requests share.
pub(super) struct Watched {
    pub(super) notices: Notifier,
    /// Raised whenever anybody but this mount has changed the file system.
    generation: AtomicU64,
    /// Changes are read.
    is_watching: AtomicBool,
    /// The kernel can drop all names at once, so that they may be believed for long, missing ones too.
    pub(super) has_epochs: AtomicBool,
    /// File data is kept by the kernel for this mount, and not by the lower file system alone.
    pub(super) keeps_data: AtomicBool,
    /// Threads that work for this mount.
    own: RwLock<HashSet<i32>>,
}

/// For how long what is watched is believed. It bounds what no change is reported of: times of access, the size and time of a file
/// that is written in shared memory below, and mounts made below.
pub(super) const WATCHED_FOR: Duration = Duration::from_secs(120);

thread_local! {
    /// The generation when this thread's request began.
    static BEGUN: Cell<u64> = const { Cell::new(0) };
    /// That this thread works for a mount.
    static REGISTERED: RefCell<Option<Registered>> = const { RefCell::new(None) };
}

/// A thread among those of a mount, until it ends.
struct Registered {
    watched: Weak<Watched>,
    thread: i32,
}

impl Drop for Registered {
    fn drop(&mut self) {
        if let Some(watched) = self.watched.upgrade() {
            watched.own.write().unwrap_or_else(std::sync::PoisonError::into_inner).remove(&self.thread);
        }
    }
}

impl Watched {
    pub(super) fn new(notices: Notifier) -> Self {
        Self {
            notices,
            generation: AtomicU64::new(1),
            is_watching: AtomicBool::new(true),
            has_epochs: AtomicBool::new(false),
            keeps_data: AtomicBool::new(false),
            own: RwLock::default(),
        }
    }

    /// Something has changed; called before any notice of it.
    pub(super) fn changed(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    /// Nothing more will be noticed.
    pub(super) fn over(&self) {
        self.is_watching.store(false, Ordering::SeqCst);
        self.changed();
    }

    /// The kernel believes no name any more that it has looked up. Attributes stay.
    ///
    /// All at once, as a notice about one name waits, uninterruptibly, for those who work in its directory. When this process was killed
    /// meanwhile, they waited for an answer that nobody gives, and the notice for them.
    pub(super) fn drop_names(&self) {
        self.changed();
        // Where the kernel cannot, no name is believed for longer than without a watcher.
        let _ = self.notices.increment_epoch();
    }

    /// The kernel believes nothing any more.
    pub(super) fn drop_all(&self, tree: &Tree) {
        self.drop_names();
        for id in tree.nodes.doubt_all() {
            let _ = self.notices.inval_inode(INodeNo(id), true);
        }
    }

    /// Whether a thread works for this mount: the kernel knows what it asked for.
    pub(super) fn is_own(&self, thread: i32) -> bool {
        self.own.read().unwrap_or_else(std::sync::PoisonError::into_inner).contains(&thread)
    }

    fn register(self: &Arc<Self>) {
        REGISTERED.with_borrow_mut(|registered| {
            let is_known = |known: &Registered| Weak::ptr_eq(&known.watched, &Arc::downgrade(self));
            if registered.as_ref().is_some_and(is_known) {
                return;
            }
            let thread = rustix::thread::gettid().as_raw_nonzero().get();
            self.own.write().unwrap_or_else(std::sync::PoisonError::into_inner).insert(thread);
            *registered = Some(Registered { watched: Arc::downgrade(self), thread });
        });
    }

    /// Whether what this thread found out since its request began is still so.
    fn is_unchanged(&self) -> bool {
        self.is_watching.load(Ordering::SeqCst) && self.generation.load(Ordering::SeqCst) == BEGUN.get()
    }
}

impl Believed {
    pub(super) fn new(given: Timeouts) -> Self {
        Self { given, watched: None, notices: None }
    }

    /// Notices can be sent from now on, watched or not.
    pub(super) fn connected(&mut self, notices: Notifier) {
        self.notices = Some(notices);
    }

    pub(super) fn watch(&mut self, watched: Arc<Watched>) {
        self.watched = Some(watched);
    }

    /// File data does not pass by: the kernel keeps a copy of its own.
    pub(super) fn keeps_data(&self) {
        if let Some(watched) = &self.watched {
            watched.keeps_data.store(true, Ordering::SeqCst);
        }
    }

    /// This thread begins with a request.
    pub(super) fn begin(&self) {
        if let Some(watched) = &self.watched {
            watched.register();
            BEGUN.set(watched.generation.load(Ordering::SeqCst));
        }
    }

    /// For how long attributes and name of what was found are believed.
    pub(super) fn of_entry(&self, tree: &Tree, entry: &Entry) -> (Duration, Duration) {
        let attributes = self.of_attributes(tree, entry.id);
        if !entry.is_in_plain {
            return (attributes, self.given.entry);
        }
        let all_can_go = |watched: &Arc<Watched>| {
            watched.has_epochs.load(Ordering::SeqCst)
                && watched.is_unchanged()
                && tree.is_on_root_device(entry.id)
        };
        let name = if self.watched.as_ref().is_some_and(all_can_go) { WATCHED_FOR } else { self.given.entry };
        (attributes, name)
    }

    /// For how long the attributes of a node are.
    pub(super) fn of_attributes(&self, tree: &Tree, id: u64) -> Duration {
        let Some(watched) = &self.watched else { return self.given.attributes };
        let may_be = || watched.is_unchanged() && !tree.opened.is_written(id);
        // Asked before the mark, as a mark too many costs a notice, and after it, for the reason above.
        if tree.is_on_root_device(id) && may_be() && tree.nodes.believe(id) && may_be() {
            WATCHED_FOR
        } else {
            self.given.attributes
        }
    }

    /// For how long a name is believed to be missing in a directory.
    pub(super) fn of_missing(&self, tree: &Tree, directory: u64) -> Duration {
        let Some(watched) = &self.watched else { return self.given.missing };
        let is_plain = tree.is_on_root_device(directory) && tree.is_plain(directory);
        let all_can_go = watched.has_epochs.load(Ordering::SeqCst);
        if is_plain && all_can_go && watched.is_unchanged() { WATCHED_FOR } else { self.given.missing }
    }

    /// A file was changed in a way that may have cleared bits of its mode, which no answer reports.
    pub(super) fn mode_may_have_changed(&self, id: u64) {
        if let Some(notices) = &self.notices {
            // ENOENT: the kernel has forgotten it.
            let _ = notices.inval_inode(INodeNo(id), false);
        }
    }

    /// A file has been opened to be written: what the kernel believes of it is as short-lived as that of any file being written.
    pub(super) fn is_written(&self, tree: &Tree, id: u64) {
        if let Some(watched) = &self.watched
            && tree.nodes.doubt(id)
        {
            // ENOENT: the kernel has forgotten it.
            let _ = watched.notices.inval_inode(INodeNo(id), false);
        }
    }
}
