//! The threads that serve a mount.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, Thread};
use std::time::Instant;

use fuse::{BackgroundSession, Config, Notifier};

use super::backings::IDLE_FOR;
use super::watch::{WatchEnd, Watcher};
use super::{Adapter, mounting};
use crate::mount::mounts;
use crate::mount::options::StackOptions;
use crate::tree::nodes::lock;

/// Mounts, and starts the worker threads.
pub(crate) fn start(mut adapter: Adapter, options: &StackOptions, source: &Path) -> io::Result<Session> {
    let owner = (!options.allow_other).then(|| rustix::process::geteuid().as_raw());
    let transport = adapter.shared.waiting.transport;
    let config = Config { threads: options.threads, owner, transport };
    let (serving, served) = mpsc::channel();
    adapter.serving = Some(serving);
    let connection = mounting::mount(options, source)?;
    serve(adapter, connection, config, options, served).inspect_err(|_| {
        // Not served, it would only be in the way.
        if let Err(error) = mounts::detach(&options.mountpoint, true) {
            tracing::warn!("{}", measure::error_chain(&error));
        }
    })
}

/// `served` ends with the adapter.
fn serve(
    mut adapter: Adapter,
    connection: OwnedFd,
    config: Config,
    options: &StackOptions,
    served: mpsc::Receiver<()>,
) -> io::Result<Session> {
    let shared = Arc::clone(&adapter.shared);
    let (awake, watched) = (adapter.awake.clone(), adapter.awake.clone());
    adapter.believed.connected(Notifier::new(connection.try_clone()?));
    let watcher = watch(&mut adapter, options, &connection);
    let session = fuse::Session::new(adapter, connection, &config)?;
    shared.connected(&session);
    let over = Arc::new(Over::default());
    let ended = Arc::clone(&over);
    let watch_end = watcher.as_ref().map(|(_, end)| end.clone());
    let sweep = move || {
        while served.recv_timeout(IDLE_FOR) == Err(RecvTimeoutError::Timeout) {
            shared.backings.expire(Instant::now() - IDLE_FOR);
            shared.tree.unopened.expire(IDLE_FOR);
        }
        shared.running.end();
        shared.tree.conversions.clear();
        ended.tell();
        shared.backings.expire(Instant::now());
        if let Some(awake) = awake {
            awake.end();
        }
        if let Some(watch) = watch_end {
            watch.end();
        }
    };
    let mut helpers = vec![helper("crumb-sweep", sweep)?];
    if let Some(awake) = watched {
        helpers.push(helper("crumb-awake", move || awake.watch())?);
    }
    if let Some((watcher, _)) = watcher {
        helpers.push(helper("crumb-watch", move || watcher.run())?);
    }
    Ok(Session { background: session.spawn()?, helpers, over })
}

/// Begins to watch the lower file system where that is wanted and possible; otherwise the time-outs stay short.
fn watch(adapter: &mut Adapter, options: &StackOptions, connection: &OwnedFd) -> Option<(Watcher, WatchEnd)> {
    if !options.watches() || !rustix::process::geteuid().is_root() {
        return None;
    }
    let started = connection
        .try_clone()
        .and_then(|connection| Watcher::new(&adapter.shared, &options.lower, connection));
    match started {
        Ok((watcher, watched, end)) => {
            let _ = adapter.shared.watched.set(Arc::downgrade(&watched));
            adapter.believed.watch(watched);
            Some((watcher, end))
        }
        Err(error) => {
            tracing::info!(
                "changes below cannot be watched, so names and attributes are cached for 1 s: {error}"
            );
            None
        }
    }
}

fn helper(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.into()).spawn(work)
}

/// The threads of a mount.
pub(crate) struct Session {
    /// They serve requests.
    background: BackgroundSession,
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
        self.over.over.load(Ordering::SeqCst) || self.background.is_finished()
    }

    /// Unparks a thread when it has.
    pub(crate) fn wake_at_end(&self, thread: Thread) {
        self.over.wake(thread);
    }

    /// Waits until it has.
    pub(crate) fn join(self) -> io::Result<()> {
        let outcome = self.background.join();
        let panicked = |_| io::Error::other("a helping thread panicked");
        let helped = self.helpers.into_iter().try_for_each(|helper| helper.join().map_err(panicked));
        outcome.and(helped)
    }
}

/// Whether the device can be opened at all.
pub(crate) fn device() -> io::Result<()> {
    fuse::device().map(drop)
}
