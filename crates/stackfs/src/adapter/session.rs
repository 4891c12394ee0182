//! The threads that serve a mount.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, Thread};
use std::time::Instant;

use fuser::{Config, MountOption, SessionACL};

use super::backings::IDLE_FOR;
use super::{Adapter, mounting};
use crate::mount::mounts;
use crate::mount::options::StackOptions;
use crate::tree::nodes::lock;

/// Mounts, and starts the worker threads.
pub(crate) fn start(mut adapter: Adapter, options: &StackOptions, source: &Path) -> io::Result<Session> {
    let acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
    let mut config = Config::default();
    config.acl = acl;
    config.n_threads = Some(options.threads);
    config.clone_fd = true;
    let shared = Arc::clone(&adapter.shared);
    let (serving, served) = mpsc::channel();
    adapter.serving = Some(serving);
    let (awake, watched) = (adapter.awake.clone(), adapter.awake.clone());
    let session = if rustix::process::geteuid().is_root() {
        let connection = mounting::mount(options, source)?;
        fuser::Session::from_fd(adapter, connection, acl, config).inspect_err(|_| {
            // Not served, it would only be in the way.
            if let Err(error) = mounts::detach(&options.mountpoint, true) {
                tracing::warn!("{}", measure::error_chain(&error));
            }
        })?
    } else {
        config.mount_options = for_fusermount(options, source);
        fuser::Session::new(adapter, &options.mountpoint, &config)?
    };
    shared.readers.connected(&session);
    let over = Arc::new(Over::default());
    let ended = Arc::clone(&over);
    let sweep = move || {
        while served.recv_timeout(IDLE_FOR) == Err(RecvTimeoutError::Timeout) {
            shared.backings.expire(Instant::now() - IDLE_FOR);
        }
        ended.tell();
        shared.backings.expire(Instant::now());
        if let Some(awake) = awake {
            awake.end();
        }
    };
    let mut helpers = vec![helper("crumb-sweep", sweep)?];
    if let Some(awake) = watched {
        helpers.push(helper("crumb-awake", move || awake.watch())?);
    }
    Ok(Session { background: session.spawn()?, helpers, over })
}

fn helper(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.into()).spawn(work)
}

/// An ordinary user's options.
fn for_fusermount(options: &StackOptions, source: &Path) -> Vec<MountOption> {
    let mut mount_options = vec![
        MountOption::FSName(escaped(source)),
        MountOption::DefaultPermissions,
        MountOption::Subtype(mounts::SUBTYPE.into()),
        if options.read_only { MountOption::RO } else { MountOption::RW },
    ];
    let flags = options.flags;
    let chosen = [
        (flags.dev, MountOption::Dev),
        (flags.suid, MountOption::Suid),
        (flags.noexec, MountOption::NoExec),
        (flags.noatime, MountOption::NoAtime),
        (flags.sync, MountOption::Sync),
    ];
    mount_options.extend(chosen.into_iter().filter(|(wanted, _)| *wanted).map(|(_, option)| option));
    mount_options
}

/// The threads of a mount.
pub(crate) struct Session {
    /// They serve requests.
    background: fuser::BackgroundSession,
    /// They end what has been idle for long, and then themselves, with the adapter.
    helpers: Vec<JoinHandle<()>>,
    over: Arc<Over>,
}

/// Whether nothing is served any more, and the thread that waits for it.
#[derive(Default)]
struct Over {
    over: AtomicBool,
    waiter: Mutex<Option<Thread>>,
}

impl Over {
    fn tell(&self) {
        self.over.store(true, Ordering::SeqCst);
        if let Some(waiter) = lock(&self.waiter).take() {
            waiter.unpark();
        }
    }

    fn wake(&self, thread: Thread) {
        let mut waiter = lock(&self.waiter);
        if self.over.load(Ordering::SeqCst) {
            thread.unpark();
        } else {
            *waiter = Some(thread);
        }
    }
}

impl Session {
    /// Whether the mount has come to its end.
    pub(crate) fn is_over(&self) -> bool {
        self.over.over.load(Ordering::SeqCst) || self.background.guard.is_finished()
    }

    /// Unparks a thread when it has.
    pub(crate) fn wake_at_end(&self, thread: Thread) {
        self.over.wake(thread);
    }

    /// Waits until it has.
    pub(crate) fn join(self) -> io::Result<()> {
        let outcome = end_of(self.background.join());
        let panicked = |_| io::Error::other("a helping thread panicked");
        let helped = self.helpers.into_iter().try_for_each(|helper| helper.join().map_err(panicked));
        outcome.and(helped)
    }
}

/// What the threads ended with, for the caller that waits for the mount. A thread's read fails with `ENODEV` when the mount
/// is gone, but with `ECONNABORTED` when it was just taking a request (Linux, `fuse_dev_do_read`), such as the RELEASE of
/// the last file that was open in a detached mount.
fn end_of(threads: io::Result<()>) -> io::Result<()> {
    match threads {
        Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => Ok(()),
        outcome => outcome,
    }
}

/// Whether the device can be opened at all.
pub(crate) fn device() -> io::Result<()> {
    fuse::device().map(drop)
}

/// Commas and backslashes end or escape an option in the lists that fusermount3 takes.
fn escaped(path: &Path) -> String {
    path.to_string_lossy().replace('\\', "\\\\").replace(',', "\\,")
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn a_connection_that_went_while_a_request_was_taken_has_ended_as_any_other() {
        assert!(end_of(Ok(())).is_ok());
        assert!(end_of(Err(Errno::CONNABORTED.into())).is_ok());
        let other = end_of(Err(Errno::IO.into())).unwrap_err();
        assert_eq!(other.raw_os_error(), Some(Errno::IO.raw_os_error()));
    }
}
