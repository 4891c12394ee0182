//! Requests to convert a directory of a mount while programs use it, and who may make them.
//!
//! 1. The path is resolved in the tree, one name after the other; no link is followed.
//! 2. Root may ask, and the user whose daemon and directory it is.
//! 3. The directory and all above it are locked as by a conversion offline, and no other mount may show it.
//! 4. A thread converts it; one at a time for each mount. A second request for the same joins the one under way.
//!
//! Always holds: the thread ends before the mount's other threads do. A conversion that was stopped continues when it is
//! asked for again. Not here: the conversion (`convert::online`), the socket (`crumb`).

use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use measure::proc::MountInfo;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::adapter::Shared;
use crate::convert::guard::{Guard, Held, lock_of};
use crate::convert::online::{Subject, convert, plan};
use crate::convert::{ConvertError, Converted, Goal, Plan, Progress, Work};
use crate::managed::open_directory;
use crate::mount::claims::Claim;
use crate::mount::mounts::MountOfOurs as _;
use crate::tree::Tree;
use crate::tree::identity::prepare_thread;
use crate::tree::nodes::{Kind, ROOT, lock};

/// Converts directories of a running mount.
#[derive(Clone)]
pub struct Online {
    pub(crate) shared: Arc<Shared>,
    pub(crate) lower: PathBuf,
    pub(crate) mountpoint: PathBuf,
    pub(crate) claim: Weak<Claim>,
}

/// A conversion of a running mount.
pub struct Run {
    place: PathBuf,
    goal: Goal,
    /// Set, it ends soon; asked for again, it continues.
    pub(crate) stop: AtomicBool,
    progress: Mutex<Option<Progress>>,
    reports: AtomicU64,
    outcome: Mutex<Option<Result<Converted, Arc<ConvertError>>>>,
    ended: Condvar,
}

/// What a mount is converting.
#[derive(Default)]
pub(crate) struct Running {
    now: Mutex<Option<(Arc<Run>, JoinHandle<()>)>>,
    /// Nothing is served any more.
    over: AtomicBool,
}

/// Progress is passed on after this many moves.
const REPORT_EVERY: u64 = 64;

impl Run {
    fn new(place: &Path, goal: Goal) -> Self {
        Self {
            place: place.to_owned(),
            goal,
            stop: AtomicBool::new(false),
            progress: Mutex::default(),
            reports: AtomicU64::new(0),
            outcome: Mutex::default(),
            ended: Condvar::new(),
        }
    }

    /// How far it has come; `None` before the first move.
    pub fn progress(&self) -> Option<Progress> {
        *lock(&self.progress)
    }

    /// Stops it soon. Programs go on seeing the whole directory, and the same request continues from there.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Waits this long for its end.
    pub fn wait(&self, at_most: Duration) -> Option<Result<Converted, Arc<ConvertError>>> {
        let outcome = lock(&self.outcome);
        let ended = self.ended.wait_timeout_while(outcome, at_most, |outcome| outcome.is_none());
        ended.unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    pub(crate) fn report(&self, work: Work, done: u64, of: u64) {
        if self.reports.fetch_add(1, Ordering::Relaxed).is_multiple_of(REPORT_EVERY) {
            *lock(&self.progress) = Some(Progress { work, done, of });
        }
    }

    fn end(&self, outcome: Result<Converted, ConvertError>) {
        *lock(&self.outcome) = Some(outcome.map_err(Arc::new));
        self.ended.notify_all();
    }

    fn is_over(&self) -> bool {
        lock(&self.outcome).is_some()
    }
}

impl Running {
    /// Stops what is under way, and lets nothing begin any more.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::SeqCst);
        let now = lock(&self.now).take();
        if let Some((run, thread)) = now {
            run.stop();
            if thread.join().is_err() {
                tracing::error!("the thread that converted {} panicked", run.place.display());
            }
        }
    }
}

/// A directory found by its path. The mount keeps the nodes on the way until this is dropped.
struct Found<'s> {
    shared: &'s Shared,
    /// The root, and the nodes on the way.
    ids: Vec<u64>,
    directory: Arc<OwnedFd>,
}

impl Drop for Found<'_> {
    fn drop(&mut self) {
        for id in &self.ids[1..] {
            self.shared.forget_node(*id, 1);
        }
    }
}

impl Online {
    /// Begins to convert the directory at `place`, a path below the mount point, for the user `by`; joins the conversion
    /// that is under way to the same end.
    ///
    /// # Errors
    /// When it is refused. What fails later is the run's outcome.
    pub fn begin(&self, place: &Path, goal: Goal, by: u32) -> Result<Arc<Run>, ConvertError> {
        prepare_thread();
        let shown = self.mountpoint.join(place);
        let found = find(&self.shared, place)
            .map_err(|errno| ConvertError::Open { path: shown.clone(), source: errno.into() })?;
        refuse_others(&found, &shown, by)?;
        let mut now = lock(&self.shared.running.now);
        if self.shared.running.over.load(Ordering::SeqCst) {
            return Err(ConvertError::Ending { path: shown });
        }
        if let Some((run, _)) = now.as_ref().filter(|(run, _)| !run.is_over()) {
            if run.place == place && run.goal == goal {
                return Ok(Arc::clone(run));
            }
            return Err(ConvertError::Busy { path: shown, other: self.mountpoint.join(&run.place) });
        }
        let subject = self.subject(&found, &shown)?;
        let run = Arc::new(Run::new(place, goal));
        let (shared, mine) = (Arc::clone(&self.shared), Arc::clone(&run));
        let work = move || {
            prepare_thread();
            mine.end(convert(&shared.tree, subject, goal, &mine, &|| shared.drop_names()));
        };
        let thread = std::thread::Builder::new().name("crumb-convert".into()).spawn(work);
        let thread =
            thread.map_err(|source| ConvertError::Step { path: shown, doing: "start a thread", source })?;
        if let Some((_, ended)) = now.replace((Arc::clone(&run), thread)) {
            // It has said its last word.
            let _ = ended.join();
        }
        Ok(run)
    }

    /// Reports what [`Online::begin`] would do with the directory at `place` for the user `by`; changes nothing.
    ///
    /// # Errors
    /// When it would be refused.
    pub fn plan(&self, place: &Path, goal: Goal, by: u32) -> Result<Plan, ConvertError> {
        prepare_thread();
        let shown = self.mountpoint.join(place);
        let found = find(&self.shared, place)
            .map_err(|errno| ConvertError::Open { path: shown.clone(), source: errno.into() })?;
        refuse_others(&found, &shown, by)?;
        // Held until the end, so that none begins meanwhile.
        let now = lock(&self.shared.running.now);
        if let Some((run, _)) = now.as_ref().filter(|(run, _)| !run.is_over()) {
            return Err(ConvertError::Busy { path: shown, other: self.mountpoint.join(&run.place) });
        }
        plan(&self.subject(&found, &shown)?, goal)
    }

    /// What is to be converted: locked, unless this mount stopped half way in it.
    fn subject(&self, found: &Found<'_>, shown: &Path) -> Result<Subject, ConvertError> {
        self.refuse_shown_elsewhere(shown)?;
        if self.shared.tree.unopened.directories {
            let mountpoint = self.mountpoint.clone();
            return Err(ConvertError::Unopened { path: shown.to_owned(), mountpoint });
        }
        match self.shared.tree.conversions.of(found.ids[found.ids.len() - 1]) {
            Some(stopped) => Ok(Subject::Stopped(stopped)),
            None => self.locked(found, shown),
        }
    }

    /// Another mount would see the directory half converted.
    fn refuse_shown_elsewhere(&self, shown: &Path) -> Result<(), ConvertError> {
        let path = || shown.to_owned();
        let claim = self.claim.upgrade().ok_or_else(|| ConvertError::Ending { path: path() })?;
        if claim.others_serve() {
            return Err(ConvertError::AlsoShown { path: path() });
        }
        let mounts = MountInfo::all().unwrap_or_default();
        let here = mounts.iter().rev().find(|mount| mount.point == self.mountpoint && mount.is_ours());
        if here.is_some_and(|mount| mount.has("ro")) {
            return Err(ConvertError::ReadOnly { path: path(), mountpoint: self.mountpoint.clone() });
        }
        Ok(())
    }

    /// The directory, locked against conversions offline and mounts that start.
    fn locked(&self, found: &Found<'_>, shown: &Path) -> Result<Subject, ConvertError> {
        let failed = |errno: Errno| ConvertError::Open { path: shown.to_owned(), source: errno.into() };
        let tree = &self.shared.tree;
        let (id, above) = (found.ids[found.ids.len() - 1], &found.ids[..found.ids.len() - 1]);
        let mut held = Vec::new();
        for ancestor in self.lower.ancestors().skip(1) {
            // As offline: what this user may not read cannot be converted or mounted either.
            let Ok(opened) = open_directory(ancestor) else { continue };
            held.push(lock_of(shown, ancestor, opened, FlockOperation::NonBlockingLockShared)?);
        }
        for ancestor in above {
            let Ok(opened) = again(tree, *ancestor) else { continue };
            held.push(lock_of(shown, &self.lower, opened, FlockOperation::NonBlockingLockShared)?);
        }
        let directory = again(tree, id).map_err(failed)?;
        let directory: Held = lock_of(shown, shown, directory, FlockOperation::NonBlockingLockExclusive)?;
        refuse_mount_points(&directory, shown)?;
        let guard = Guard::of_a_mount(shown.to_owned(), directory, held);
        Ok(Subject::New { id, directory: Arc::clone(&found.directory), guard })
    }
}

fn again(tree: &Tree, id: u64) -> Result<std::fs::File, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = tree.directory(id)?;
    Ok(rustix::fs::openat(&*directory, c".", flags, Mode::empty())?.into())
}

fn find<'s>(shared: &'s Shared, place: &Path) -> Result<Found<'s>, Errno> {
    let tree = &shared.tree;
    let mut found = Found { shared, ids: vec![ROOT], directory: tree.directory(ROOT)? };
    for component in place.components() {
        let Component::Normal(name) = component else { return Err(Errno::INVAL) };
        let entry = tree.look_up(found.ids[found.ids.len() - 1], name.as_bytes())?;
        found.ids.push(entry.id);
        if entry.kind == Kind::Leaf {
            return Err(Errno::NOTDIR);
        }
    }
    found.directory = tree.directory(found.ids[found.ids.len() - 1])?;
    Ok(found)
}

/// Root, or who serves the mount and owns the directory.
fn refuse_others(found: &Found<'_>, shown: &Path, by: u32) -> Result<(), ConvertError> {
    let failed = |errno: Errno| ConvertError::Open { path: shown.to_owned(), source: errno.into() };
    let owner = rustix::fs::fstat(found.directory.as_fd()).map_err(failed)?.st_uid;
    let me = rustix::process::geteuid();
    if by != 0 && (by != me.as_raw() || by != owner) {
        return Err(ConvertError::NotYours { path: shown.to_owned(), owner, daemon: me.as_raw() });
    }
    if !me.is_root() && me.as_raw() != owner {
        return Err(ConvertError::NotOwner { path: shown.to_owned(), owner });
    }
    Ok(())
}

/// A mount point below cannot be renamed.
fn refuse_mount_points(directory: &Held, shown: &Path) -> Result<(), ConvertError> {
    let Ok(below) = std::fs::read_link(crate::tree::by_descriptor(directory)) else { return Ok(()) };
    let mounts = MountInfo::all().unwrap_or_default();
    let in_it = |mount: &&MountInfo| {
        let below = mount.point.strip_prefix(&below);
        below.is_ok_and(|below| (1..=3).contains(&below.components().count()))
    };
    match mounts.iter().find(in_it) {
        Some(mount) => {
            Err(ConvertError::MountPoint { path: shown.to_owned(), mount_point: mount.point.clone() })
        }
        None => Ok(()),
    }
}
