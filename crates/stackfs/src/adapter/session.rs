//! The threads that serve a mount.

use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Instant;

use fuser::{Config, MountOption, SessionACL};

use super::Adapter;
use super::backings::IDLE_FOR;
use crate::options::StackOptions;

const DEVICE: &str = "/dev/fuse";

/// Mounts, and starts the worker threads.
pub(crate) fn start(mut adapter: Adapter, options: &StackOptions, source: &Path) -> std::io::Result<Session> {
    let mut mount_options = vec![
        MountOption::FSName(escaped(source)),
        MountOption::DefaultPermissions,
        if options.read_only { MountOption::RO } else { MountOption::RW },
    ];
    // fuser gives a subtype to fusermount3 alone; the kernel takes it as well.
    mount_options.push(if rustix::process::geteuid().is_root() {
        MountOption::CUSTOM("subtype=crumb".into())
    } else {
        MountOption::Subtype("crumb".into())
    });
    let flags = options.flags;
    let chosen = [
        (flags.dev, MountOption::Dev),
        (flags.suid, MountOption::Suid),
        (flags.noexec, MountOption::NoExec),
        (flags.noatime, MountOption::NoAtime),
    ];
    mount_options.extend(chosen.into_iter().filter(|(wanted, _)| *wanted).map(|(_, option)| option));
    let mut config = Config::default();
    config.mount_options = mount_options;
    config.acl = if options.allow_other { SessionACL::All } else { SessionACL::Owner };
    config.n_threads = Some(options.threads);
    config.clone_fd = true;
    let shared = Arc::clone(&adapter.shared);
    let (serving, served) = mpsc::channel();
    adapter.serving = Some(serving);
    let session = fuser::Session::new(adapter, &options.mountpoint, &config)?;
    let sweep = move || {
        while served.recv_timeout(IDLE_FOR) == Err(RecvTimeoutError::Timeout) {
            shared.backings.expire(Instant::now() - IDLE_FOR);
        }
        shared.backings.expire(Instant::now());
    };
    let sweeper = std::thread::Builder::new().name("crumb-sweep".into()).spawn(sweep)?;
    Ok(Session { background: session.spawn()?, sweeper })
}

/// The threads of a mount.
pub(crate) struct Session {
    /// They serve requests.
    background: fuser::BackgroundSession,
    /// It ends what has been idle for long, and then itself, with the adapter.
    sweeper: JoinHandle<()>,
}

impl Session {
    /// Whether the mount has come to its end.
    pub(crate) fn is_over(&self) -> bool {
        self.background.guard.is_finished()
    }

    /// Waits until it has.
    pub(crate) fn join(self) -> std::io::Result<()> {
        let outcome = self.background.join();
        let swept = self.sweeper.join();
        outcome.and_then(|()| swept.map_err(|_| std::io::Error::other("the sweeping thread panicked")))
    }
}

/// Whether the device can be opened at all.
pub(crate) fn device() -> std::io::Result<()> {
    std::fs::OpenOptions::new().read(true).write(true).open(DEVICE).map(drop)
}

/// Commas and backslashes end or escape an option in the lists that fusermount3 takes.
fn escaped(path: &Path) -> String {
    let text = path.to_string_lossy();
    if rustix::process::geteuid().is_root() {
        return text.into_owned();
    }
    text.replace('\\', "\\\\").replace(',', "\\,")
}
