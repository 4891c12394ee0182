//! A mount from its beginning to its end.
//!
//! ```text
//! start: places checked -> lower root opened -> mounted (over it, perhaps) -> worker threads
//! stop:  unmounted -> threads joined;  in use: detached, the threads end with the last user
//! ```
//!
//! The lower root is opened before anything is mounted, so that a mount over LOWER itself still sees the lower tree.
//!
//! Always holds: when `start` returns, the mount answers. A daemon that is killed leaves a lower tree that needs no
//! repair: each operation is one system call there, and hidden directories may stay empty.
//! `options` says what a mount is to be, `claims` what it holds of its lower tree, `mounts` which mounts there are.
//! Not here: signals, daemons, output (`crumb`).

pub(super) mod claims;
pub mod mounts;
pub(super) mod options;

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use rustix::fs::{Mode, OFlags};

use self::claims::Claim;
use self::mounts::Mounted;
use self::options::{StackOptions, Timeouts};
use crate::StackError;
use crate::adapter::{self, Adapter, Session, Shared, Waiting};
use crate::counters::Census;
use crate::online::Online;
use crate::tree::Tree;

/// A mounted tree. Dropped, it is unmounted, lazily when in use.
pub struct Mount {
    shared: Arc<Shared>,
    session: Option<Session>,
    lower: PathBuf,
    mountpoint: PathBuf,
    claim: Weak<Claim>,
}

/// How a mount ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Unmounted; no program used it.
    Unmounted,
    /// Detached: hidden from new users, and served until the last present one is gone.
    Detached,
}

impl Mount {
    /// Mounts, and returns when the mount answers.
    pub fn start(mut options: StackOptions) -> Result<Self, StackError> {
        // Before looking there: a mount whose daemon was killed does not answer. It is replaced, so that a service
        // manager can start the daemon again.
        let place = mounts::resolved(&options.mountpoint);
        if mounts::clear_dead(&place)? > 0 {
            tracing::warn!("{}: took away a mount whose daemon had been killed", place.display());
        }
        if is_mounted(&place) {
            return Err(StackError::Twice { mountpoint: options.mountpoint });
        }
        let lower = directory(&options.lower)?;
        let mountpoint = directory(&options.mountpoint)?;
        check_places(&lower, &mountpoint, options.nonempty)?;
        if options.exclusive
            && let Some(other) = mounts::serving(&lower).into_iter().next()
        {
            return Err(StackError::Shared { lower, mountpoint: other.mountpoint });
        }
        adapter::device().map_err(|source| StackError::NoDevice { source })?;
        let descriptors = raise_descriptor_limit();
        let of_lower = |source| StackError::Place { path: lower.clone(), source };
        // Until the mount is to be seen: conversions look for it once they hold their locks.
        let _starting = crate::convert::guard::starting_mount(&lower).map_err(of_lower)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let claim = Claim::take(&lower, options.exclusive);
        if claim.conflicts(options.exclusive) || mounts::covers_alone(&lower) {
            return Err(StackError::StillServed { lower });
        }
        let root: OwnedFd =
            rustix::fs::open(&lower, flags, Mode::empty()).map_err(|errno| of_lower(errno.into()))?;
        if let Some(verb) = crate::convert::state::unfinished(&root) {
            return Err(StackError::HalfConverted { lower, verb });
        }
        let trusted_for = options.timeouts.entry;
        let tree = Tree::new(root, options.layout_new, options.directories_max, trusted_for)
            .map_err(of_lower)?
            .with_unopened(options.no_open, options.lists_unopened());
        if options.no_open && !options.read_only && !tree.identity.is_privileged() {
            return Err(StackError::NoOpen);
        }
        let shared = Arc::new(Shared::new(tree, descriptors, &options));
        options.mountpoint.clone_from(&mountpoint);
        let claim = Arc::new(claim);
        let held = Arc::downgrade(&claim);
        let adapter = Adapter::new(Arc::clone(&shared), &options, claim)
            .map_err(|source| StackError::Asleep { source })?;
        let session = adapter::start(adapter, &options, &lower).map_err(|error| StackError::Refused {
            mountpoint: mountpoint.clone(),
            reason: refusal(&error, options.allow_other),
        })?;
        Ok(Self { shared, session: Some(session), lower, mountpoint, claim: held })
    }

    /// The tree below, absolute and without links.
    pub fn lower(&self) -> &Path {
        &self.lower
    }

    /// Where it is shown, absolute and without links.
    pub fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// How long the kernel may cache names and attributes, at most; `given` are those of the options that it was made with, which are
    /// longer where changes of the lower tree are watched.
    pub fn timeouts(&self, given: Timeouts) -> Timeouts {
        self.shared.timeouts(given)
    }

    /// By what requests come, how its threads wait for them, and whether CPUs stay awake meanwhile.
    pub fn waiting(&self) -> Waiting {
        self.shared.waiting()
    }

    /// Operation statistics since the mount was made.
    pub fn census(&self) -> Census {
        self.shared.census()
    }

    /// A handle to the operation statistics that outlives the mount.
    pub fn watch(&self) -> Watch {
        Watch { shared: Arc::clone(&self.shared) }
    }

    /// Converts directories of it while programs use them.
    pub fn online(&self) -> Online {
        let (lower, mountpoint) = (self.lower.clone(), self.mountpoint.clone());
        Online { shared: Arc::clone(&self.shared), lower, mountpoint, claim: Weak::clone(&self.claim) }
    }

    /// Whether it has ended: unmounted by somebody else, and its last user gone.
    pub fn is_over(&self) -> bool {
        self.session.as_ref().is_none_or(Session::is_over)
    }

    /// Unparks a thread when it has ended.
    pub fn wake_at_end(&self, thread: std::thread::Thread) {
        match &self.session {
            Some(session) => session.wake_at_end(thread),
            None => thread.unpark(),
        }
    }

    /// Unmounts it; detaches it when it is in use. `wait` then returns when the last user has gone.
    pub fn stop(&self) -> Result<Ending, StackError> {
        if self.is_over() {
            return Ok(Ending::Unmounted);
        }
        match mounts::detach(&self.mountpoint, false) {
            Ok(()) => Ok(Ending::Unmounted),
            Err(StackError::Busy { .. }) => {
                mounts::detach(&self.mountpoint, true)?;
                Ok(Ending::Detached)
            }
            // Unmounted by somebody else in the meantime.
            Err(_) if self.is_over() || !is_mounted(&self.mountpoint) => Ok(Ending::Unmounted),
            Err(error) => Err(error),
        }
    }

    /// Waits until it has ended.
    pub fn wait(mut self) -> io::Result<Census> {
        let outcome = self.session.take().map_or(Ok(()), Session::join);
        let census = self.shared.census();
        outcome.map(|()| census)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if self.session.is_none() {
            return;
        }
        match self.stop() {
            Ok(Ending::Unmounted) => {
                if let Some(Err(error)) = self.session.take().map(Session::join) {
                    tracing::warn!("{}: ended with {error}", self.mountpoint.display());
                }
            }
            Ok(Ending::Detached) => tracing::warn!("{}: detached while in use", self.mountpoint.display()),
            Err(error) => tracing::warn!("{}", measure::error_chain(&error)),
        }
    }
}

/// A handle to a mount's operation statistics that outlives the mount.
#[derive(Clone)]
pub struct Watch {
    shared: Arc<Shared>,
}

impl Watch {
    /// Operation statistics since the mount was made.
    pub fn census(&self) -> Census {
        self.shared.census()
    }
}

/// The absolute path of a directory that is there.
fn directory(path: &Path) -> Result<PathBuf, StackError> {
    let unusable = |source| StackError::Place { path: path.into(), source };
    let real = path.canonicalize().map_err(unusable)?;
    let attributes = std::fs::metadata(&real).map_err(unusable)?;
    if attributes.is_dir() { Ok(real) } else { Err(StackError::NotADirectory { path: path.into() }) }
}

fn check_places(lower: &Path, mountpoint: &Path, nonempty: bool) -> Result<(), StackError> {
    if is_mounted(mountpoint) {
        return Err(StackError::Twice { mountpoint: mountpoint.into() });
    }
    if mountpoint == lower {
        return Ok(());
    }
    if mountpoint.starts_with(lower) {
        return Err(StackError::Inside { lower: lower.into(), mountpoint: mountpoint.into() });
    }
    let unusable = |source| StackError::Place { path: mountpoint.into(), source };
    let mut entries = std::fs::read_dir(mountpoint).map_err(unusable)?;
    if !nonempty && entries.next().is_some() {
        return Err(StackError::NotEmpty { path: mountpoint.into() });
    }
    Ok(())
}

fn is_mounted(mountpoint: &Path) -> bool {
    let mounted = mounts::mounted().unwrap_or_default();
    mounted.iter().any(|Mounted { mountpoint: other, .. }| other == mountpoint)
}

/// Raises the process's descriptor limit to the maximum, because each file open through the mount takes one; returns it.
fn raise_descriptor_limit() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let ceiling = std::fs::read_to_string("/proc/sys/fs/nr_open");
    let ceiling = ceiling.ok().and_then(|text| text.trim().parse::<u64>().ok());
    // Beyond the hard limit only with the capability SYS_RESOURCE.
    let beyond = ceiling.filter(|ceiling| limit.maximum.is_some_and(|maximum| maximum < *ceiling));
    let wanted = [beyond, limit.maximum].into_iter().flatten().filter(|most| Some(*most) != limit.current);
    let mut refused = None;
    for most in wanted {
        match setrlimit(Resource::Nofile, Rlimit { current: Some(most), maximum: Some(most) }) {
            Ok(()) => return most,
            Err(errno) => refused = Some((most, errno)),
        }
    }
    let current = limit.current.or(limit.maximum).or(ceiling).unwrap_or(u64::MAX);
    if let Some((_, errno)) = refused.filter(|(most, _)| Some(*most) == limit.maximum) {
        tracing::warn!("files that can be open at once stay limited to {current}: {errno}");
    }
    current
}

fn refusal(error: &io::Error, allow_other: bool) -> String {
    let cause = error.to_string();
    let cause = cause.trim();
    if rustix::process::geteuid().is_root() {
        return format!("{cause}; mounting needs the capability SYS_ADMIN, which containers may lack");
    }
    if error.kind() == io::ErrorKind::NotFound {
        return "not root, and fusermount3 is not installed (package fuse3)".into();
    }
    if allow_other {
        return format!("{cause}; user_allow_other must be in /etc/fuse.conf for allow_other");
    }
    format!("{cause}; an ordinary user needs fusermount3 (package fuse3) and a mount point of his own")
}
