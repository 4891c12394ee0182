//! Who a thread is while it makes something: the caller, so that owner and group come out right at once.
//!
//! A daemon with root's rights makes files as the caller by changing its thread's file system identity (setfsuid),
//! rather than making them as root and giving them away: nobody ever sees a file of root's, set-group-ID
//! directories, access control lists and quotas work as below. Permission was checked by the kernel before
//! (`default_permissions`), with the caller's supplementary groups, which this thread does not have; so the
//! capabilities that changing the identity takes away are given back, all but CAP_FSETID, whose absence makes the
//! lower file system clear set-user-ID bits as it does for ordinary callers.
//!
//! Always holds: when a closure has run the thread is as it was; a worker thread has a umask of its own, 0.
//! Not here: any check of permission.

use std::cell::Cell;

use nix::sched::CloneFlags;
use nix::unistd::{Gid, Uid};
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

/// Whom an operation is done for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// Changes the identity of threads; does nothing in a daemon without root's rights.
pub(crate) struct Identity {
    /// All of the daemon's capabilities, and the same without CAP_FSETID; none for an ordinary user's daemon.
    sets: Option<(CapabilitySets, CapabilitySets)>,
}

impl Identity {
    pub(crate) fn of_this_process() -> Self {
        let able = CapabilitySet::SETUID | CapabilitySet::SETGID | CapabilitySet::FSETID;
        let full = capabilities(None)
            .ok()
            .filter(|sets| rustix::process::geteuid().is_root() && sets.effective.contains(able));
        let sets = full.map(|full| {
            let fewer = CapabilitySets { effective: full.effective - CapabilitySet::FSETID, ..full };
            (full, fewer)
        });
        Self { sets }
    }

    /// Whether the daemon has root's rights.
    pub(crate) fn is_privileged(&self) -> bool {
        self.sets.is_some()
    }

    /// Runs `work`, whose new files are the caller's.
    pub(crate) fn create_as<T>(&self, caller: Caller, work: impl FnOnce() -> T) -> T {
        let Some((full, fewer)) = self.sets else { return work() };
        if caller.uid == 0 && caller.gid == 0 {
            return work();
        }
        nix::unistd::setfsgid(Gid::from_raw(caller.gid));
        if caller.uid != 0 {
            nix::unistd::setfsuid(Uid::from_raw(caller.uid));
            set(fewer);
        }
        let done = work();
        if caller.uid != 0 {
            nix::unistd::setfsuid(Uid::from_raw(0));
            set(full);
        }
        nix::unistd::setfsgid(Gid::from_raw(0));
        done
    }

    /// Runs `work` so that what it writes to loses its set-user-ID bits.
    pub(crate) fn without_fsetid<T>(&self, work: impl FnOnce() -> T) -> T {
        let Some((full, fewer)) = self.sets else { return work() };
        set(fewer);
        let done = work();
        set(full);
        done
    }
}

fn set(sets: CapabilitySets) {
    // Both sets are subsets of the permitted ones, which nobody takes away.
    set_capabilities(None, sets).expect("a thread may always choose among its permitted capabilities");
}

/// Gives the calling worker thread a umask of its own, 0: modes come from the kernel as they shall be. To be
/// called before a thread's first operation; cheap when done already.
pub(crate) fn prepare_thread() {
    thread_local!(static READY: Cell<bool> = const { Cell::new(false) });
    READY.with(|ready| {
        if !ready.get() {
            match nix::sched::unshare(CloneFlags::CLONE_FS) {
                Ok(()) => {
                    rustix::process::umask(rustix::fs::Mode::empty());
                }
                Err(errno) => tracing::warn!("files get the daemon's umask besides the caller's: {errno}"),
            }
            ready.set(true);
        }
    });
}
