//! Between the session of FUSE (crate `fuse`) and the tree: the only module that knows the protocol's types.
//!
//! ```text
//! kernel -> session (threads) -> requests -> tree
//!              answers <- shown <---'          backings: file data that does not come by here
//! ```
//!
//! Each request is timed, done by the tree and answered; an error of the lower file system goes to the caller as it is.

mod awake;
mod backings;
mod believed;
mod choice;
mod mounting;
mod readers;
mod requests;
mod session;
mod shown;
mod strangers;
mod wake_up;
mod watch;

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Instant;

use fuse::{
    BackingId, Errno, FileHandle, FopenFlags, Generation, InitFlags, KernelConfig, ReplyAttr, ReplyEmpty,
    ReplyEntry, Request, Transport,
};
use rustix::fs::Statx;

use crate::counters::{Census, Counters, Operation};
use crate::mount::claims::Claim;
use crate::mount::options::{StackOptions, Timeouts};
use crate::online::Running;
use crate::tree::identity::{Caller, prepare_thread};
use crate::tree::listing::ListedEntry;
use crate::tree::nodes::Kind;
use crate::tree::opened::{OpenDirectory, OpenFile};
use crate::tree::shares::{Share, Shares};
use crate::tree::{Done, Entry, Of, Tree};
use awake::Awake;
use backings::Backings;
use believed::{Believed, WATCHED_FOR, Watched};
use readers::Readers;
use strangers::Strangers;

pub use choice::Waiting;
pub(crate) use mounting::remount;
pub use readers::{Followed, ReaderPolicy, Waited};
pub(crate) use session::{Session, device, start};

/// What is shared by the mount's handle and its worker threads.
pub(crate) struct Shared {
    pub(crate) tree: Tree,
    pub(crate) counters: Counters,
    backings: Backings<BackingId>,
    strangers: Strangers,
    readers: Readers,
    /// What is believed for long; none where nothing is watched.
    watched: OnceLock<Weak<Watched>>,
    waiting: Waiting,
    /// The device serves though a ring was wanted.
    ring_refused: AtomicBool,
    /// Conversions while mounted.
    pub(crate) running: Running,
    shares: Arc<Shares>,
    /// Of directories that are open, by their handles.
    directory_shares: Mutex<HashMap<u64, Share>>,
}

/// The file system that the session drives.
pub(crate) struct Adapter {
    shared: Arc<Shared>,
    believed: Believed,
    exclusive: bool,
    access_lists: bool,
    extended: bool,
    /// The kernel is asked to send no OPEN.
    no_open: bool,
    /// The same of OPENDIR.
    no_opendir: bool,
    /// Whether data may pass by.
    passthrough: bool,
    /// What keeps the processors awake.
    awake: Option<Arc<Awake>>,
    /// Dropped with the adapter, when nothing is served any more: what else works for the mount then ends.
    serving: Option<Sender<()>>,
    /// Keeps conversions and exclusive mounts of the tree out for as long as anything is served.
    _claim: Arc<Claim>,
}

/// File data in one request, without pass-through. The kernel takes no more than 1 MiB.
const DATA_BYTES_MAX: u32 = 1 << 20;
/// Descriptors that the daemon needs besides those of directories and open files: threads, files read lately (256), and
/// those that are open for an operation.
const DESCRIPTORS_NEEDED: u64 = 512;
/// An open directory, and the subdirectory of the hidden level that is being read.
const DESCRIPTORS_OF_A_LISTING: u64 = 2;
/// Requests that may wait for the daemon in the background (reading ahead).
const BACKGROUND_MAX: u16 = 64;

impl Shared {
    /// `descriptors` are those that the process may have, for users and for itself.
    pub(crate) fn new(tree: Tree, descriptors: u64, options: &StackOptions) -> Self {
        let chosen = Waiting::choose(options);
        let readers = Readers::new(options.threads, chosen.readers);
        Self {
            shares: Shares::new(descriptors, options.directories_max as u64 + DESCRIPTORS_NEEDED),
            waiting: Waiting { readers: readers.policy(), ..chosen },
            readers,
            ring_refused: AtomicBool::new(false),
            directory_shares: Mutex::default(),
            running: Running::default(),
            tree,
            counters: Counters::default(),
            backings: Backings::default(),
            strangers: Strangers::default(),
            watched: OnceLock::new(),
        }
    }

    /// The kernel believes no name any more that it has looked up: from now on changes of some are not reported.
    pub(crate) fn drop_names(&self) {
        if let Some(watched) = self.watched.get().and_then(Weak::upgrade) {
            watched.drop_names();
        }
    }

    /// How long the kernel may cache names and attributes, at most: longer than `given` where changes below are watched.
    pub(crate) fn timeouts(&self, given: Timeouts) -> Timeouts {
        let watched = Timeouts { entry: WATCHED_FOR, attributes: WATCHED_FOR, missing: WATCHED_FOR };
        self.watched.get().map_or(given, |_| watched)
    }

    /// How requests are waited for.
    pub(crate) fn waiting(&self) -> Waiting {
        let refused = self.ring_refused.load(Ordering::Relaxed);
        let transport = if refused { Transport::Device } else { self.waiting.transport };
        Waiting { transport, ..self.waiting.clone() }
    }

    /// The session is agreed: the device's readers wait by their policy, those of a ring do not need one.
    fn connected(&self, session: &fuse::Session<Adapter>) {
        if let Some(reason) = session.refusal() {
            self.ring_refused.store(true, Ordering::Relaxed);
            tracing::warn!("requests come by /dev/fuse and not by io_uring: {reason}");
        }
        match session.transport() {
            Transport::Device => self.readers.connected(session),
            Transport::Ring => self.readers.unused(),
        }
    }

    /// The kernel returns references to a node (FORGET).
    pub(crate) fn forget_node(&self, id: u64, lookups: u64) {
        let Some(kind) = self.tree.nodes.forget(id, lookups) else { return };
        self.tree.descriptors.drop_of(id);
        self.tree.unopened.forget(id);
        self.backings.forget(id);
        if matches!(kind, Kind::Managed(_) | Kind::Converting) {
            self.tree.holders.forget(id);
        }
    }

    pub(crate) fn census(&self) -> Census {
        let (files_open, directories_open) = self.tree.opened.count();
        Census {
            elapsed: self.counters.elapsed(),
            operations: self.counters.operations(),
            nodes: self.tree.nodes.count(),
            files_open,
            directories_open,
            directories_kept: self.tree.descriptors.count(),
            passed_through: self.backings.count(),
            waiting: self.waiting(),
            waited: self.readers.waited(),
        }
    }
}

impl Adapter {
    /// Fails where the processors shall be kept awake and cannot.
    pub(crate) fn new(
        shared: Arc<Shared>,
        options: &StackOptions,
        claim: Arc<Claim>,
    ) -> std::io::Result<Self> {
        let privileged = shared.tree.identity.is_privileged();
        let awake = shared.waiting.awake.then(Awake::open).transpose()?;
        let idle = Arc::downgrade(&shared);
        let give_up = move || idle.upgrade().is_some_and(|shared| shared.backings.give_up());
        // A second adapter of the same mount would give up the same.
        let _ = shared.tree.spared.set(Box::new(give_up));
        Ok(Self {
            shared,
            believed: Believed::new(options.timeouts),
            exclusive: options.exclusive,
            // With them the kernel checks permissions whatever was asked for. Otherwise the lower file system does, lists and all.
            access_lists: options.access_lists && options.extended && privileged && options.kernel_checks(),
            extended: options.extended,
            no_open: options.no_open,
            no_opendir: options.lists_unopened(),
            // What is not opened cannot be passed through.
            passthrough: options.passthrough && privileged && !options.no_open,
            awake,
            serving: None,
            _claim: claim,
        })
    }

    /// Negotiates capabilities with the kernel.
    fn agree(&mut self, config: &mut KernelConfig) {
        let offered = config.capabilities();
        let mut wanted = InitFlags::FUSE_DO_READDIRPLUS
            | InitFlags::FUSE_PARALLEL_DIROPS
            | InitFlags::FUSE_ASYNC_DIO
            | InitFlags::FUSE_DONT_MASK
            | InitFlags::FUSE_AUTO_INVAL_DATA
            | InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP
            // Without it the kernel asks for security.capability before each write.
            | InitFlags::FUSE_HANDLE_KILLPRIV_V2;
        if self.access_lists {
            wanted |= InitFlags::FUSE_POSIX_ACL;
        }
        if self.exclusive {
            // With every listing come attributes, which are believed for long.
            wanted |= InitFlags::FUSE_CACHE_SYMLINKS;
        } else {
            wanted |= InitFlags::FUSE_READDIRPLUS_AUTO;
        }
        // Older kernels would take the answer for an error.
        self.no_open &= offered.contains(InitFlags::FUSE_NO_OPEN_SUPPORT);
        self.no_opendir &= offered.contains(InitFlags::FUSE_NO_OPENDIR_SUPPORT);
        self.passthrough &= offered.contains(InitFlags::FUSE_PASSTHROUGH);
        if !self.passthrough {
            self.believed.keeps_data();
        }
        if self.passthrough {
            wanted |= InitFlags::FUSE_PASSTHROUGH;
            // The kernel stacks two levels in all. Over a file system of disks this one is the first, so that an
            // overlay can have it below; over one that is stacked itself it has to be the last.
            let depth = if self.tree().is_over_a_stack() { 2 } else { 1 };
            config.set_max_stack_depth(depth);
        }
        config.add_capabilities(wanted);
        config.set_max_write(DATA_BYTES_MAX);
        config.set_max_readahead(DATA_BYTES_MAX);
        config.set_max_background(BACKGROUND_MAX);
    }

    fn tree(&self) -> &Tree {
        &self.shared.tree
    }

    /// Does an operation, timed and counted.
    fn timed<T>(&self, operation: Operation, work: impl FnOnce(&Tree) -> Done<T>) -> Result<T, Errno> {
        let begun = Instant::now();
        if let Some(awake) = &self.awake {
            awake.note();
        }
        prepare_thread();
        self.believed.begin();
        let done = work(self.tree());
        self.shared.readers.done();
        self.shared.counters.record(operation, begun.elapsed(), done.is_err());
        done.map_err(Errno::from)
    }

    /// The same for one on extended attributes; where there are none by request, ENOSYS lets the kernel stop asking.
    fn timed_extended<T>(
        &self,
        operation: Operation,
        work: impl FnOnce(&Tree) -> Done<T>,
    ) -> Result<T, Errno> {
        self.timed(operation, |tree| if self.extended { work(tree) } else { Err(rustix::io::Errno::NOSYS) })
    }

    /// Sets up pass-through for an open file; `None` when its data goes through the daemon.
    fn backing(
        &self,
        id: u64,
        for_reading: Option<&Arc<OwnedFd>>,
        register: impl FnOnce() -> std::io::Result<BackingId>,
    ) -> Option<Arc<BackingId>> {
        // The kernel writes with the rights of who registers: without CAP_FSETID, so that writing clears
        // set-user-id bits.
        let register = || self.tree().identity.without_fsetid(register);
        self.passthrough.then(|| self.shared.backings.open(id, for_reading, register)).flatten()
    }

    fn keep_open(
        &self,
        id: u64,
        descriptor: Arc<OwnedFd>,
        caller: Caller,
        (writes, passed_through): (bool, bool),
        share: Share,
    ) -> FileHandle {
        let by_ordinary_user = caller.uid != 0;
        let file = OpenFile { id, descriptor, writes, by_ordinary_user, passed_through, _share: share };
        let handle = self.tree().opened.add(file);
        if writes {
            self.believed.is_written(self.tree(), id);
        }
        FileHandle(handle)
    }

    fn close(&self, handle: u64) {
        if let Some(file) = self.tree().opened.close(handle)
            && file.passed_through
        {
            self.shared.backings.release(file.id);
        }
    }

    /// How the kernel treats an open file that does not pass through.
    fn open_flags(&self) -> FopenFlags {
        if self.exclusive || self.no_open { FopenFlags::FOPEN_KEEP_CACHE } else { FopenFlags::empty() }
    }

    fn list(
        &self,
        of: Of,
        position: u64,
        emit: impl FnMut(&OpenDirectory, &ListedEntry<'_>) -> Done<bool>,
    ) -> Result<(), Errno> {
        if self.no_opendir && position == 0 {
            self.shared.strangers.look(self.tree(), of.0);
        }
        self.timed(Operation::Readdir, |tree| tree.list(of, position, emit))
    }

    fn answer_entry(&self, done: Result<Entry, Errno>, reply: ReplyEntry) {
        match done {
            Ok(entry) => {
                let (attributes, name) = self.believed.of_entry(self.tree(), &entry);
                let shown = shown::attributes(entry.id, &entry.attributes);
                reply.entry_with_ttls(&attributes, &name, &shown, Generation(entry.generation));
            }
            Err(errno) => reply.error(errno),
        }
    }

    fn answer_attributes(&self, id: u64, done: Result<Statx, Errno>, reply: ReplyAttr) {
        match done {
            Ok(attributes) => {
                let shown = shown::attributes(self.tree().shown(id), &attributes);
                reply.attr(&self.believed.of_attributes(self.tree(), id), &shown);
            }
            Err(errno) => reply.error(errno),
        }
    }
}

fn answer(done: Result<(), Errno>, reply: ReplyEmpty) {
    match done {
        Ok(()) => reply.ok(),
        Err(errno) => reply.error(errno),
    }
}

fn caller(request: &Request) -> Caller {
    Caller { uid: request.uid(), gid: request.gid() }
}
