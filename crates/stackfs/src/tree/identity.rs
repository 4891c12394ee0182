//! Creates files as the caller, so that owner and group are right from the start.
//!
//! A daemon with root's rights changes its thread's file system identity (setfsuid) to the caller's, instead of creating
//! files as root and changing their owner. So no file of root's is ever visible, and set-group-ID directories, access
//! control lists and quotas work as on the lower file system. The kernel has checked permissions before
//! (`default_permissions`), with the caller's supplementary groups, which this thread lacks. So we restore the
//! capabilities that setfsuid drops, except CAP_FSETID: without it the lower file system clears set-user-ID bits as it
//! does for ordinary callers.
//!
//! Always holds: after a closure has run, the thread is root again, with or without CAP_FSETID: code that depends on it
//! uses `with_fsetid` or `without_fsetid`. Each worker thread has its own umask, 0.
//! Not here: any check of permission.

use std::cell::Cell;

use nix::sched::CloneFlags;
use nix::unistd::{Gid, Uid};
use rustix::fs::Mode;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};

/// The user and group for whom an operation is done.
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

thread_local!(
    /// Whether this thread has CAP_FSETID. It keeps what the last operation needed: changing costs a system call.
    static WITH_FSETID: Cell<bool> = const { Cell::new(true) };
);

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

    /// Runs `work`, whose new files are the caller's, with this mode.
    pub(crate) fn create_as<T>(&self, caller: Caller, mode: Mode, work: impl FnOnce() -> T) -> T {
        if self.sets.is_none() {
            return work();
        }
        if caller.uid == 0 && caller.gid == 0 {
            return if mode.contains(Mode::SGID) { self.with_fsetid(work) } else { work() };
        }
        nix::unistd::setfsgid(Gid::from_raw(caller.gid));
        if caller.uid != 0 {
            nix::unistd::setfsuid(Uid::from_raw(caller.uid));
            // setfsuid dropped all capabilities that concern files.
            WITH_FSETID.set(true);
            self.have_fsetid(false);
        } else {
            self.have_fsetid(true);
        }
        let done = work();
        if caller.uid != 0 {
            nix::unistd::setfsuid(Uid::from_raw(0));
            // Returning to root restored them.
            WITH_FSETID.set(true);
        }
        nix::unistd::setfsgid(Gid::from_raw(0));
        done
    }

    /// Runs `work` so that what it writes to loses its set-user-ID bits.
    pub(crate) fn without_fsetid<T>(&self, work: impl FnOnce() -> T) -> T {
        self.have_fsetid(false);
        work()
    }

    /// Runs `work` with CAP_FSETID: modes are set exactly as given, and writing clears no bits.
    pub(crate) fn with_fsetid<T>(&self, work: impl FnOnce() -> T) -> T {
        self.have_fsetid(true);
        work()
    }

    fn have_fsetid(&self, wanted: bool) {
        let Some((full, fewer)) = self.sets else { return };
        if WITH_FSETID.replace(wanted) != wanted {
            // Both sets are subsets of the permitted ones, which nobody takes away.
            set_capabilities(None, if wanted { full } else { fewer })
                .expect("a thread may always choose among its permitted capabilities");
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn effective() -> CapabilitySet {
        capabilities(None).unwrap().effective
    }

    #[test]
    fn what_is_asked_for_is_there_whatever_was_done_before() {
        let identity = Identity::of_this_process();
        if !identity.is_privileged() {
            return;
        }
        let ordinary = Caller { uid: 1000, gid: 1000 };
        for _ in 0..2 {
            identity.without_fsetid(|| assert!(!effective().contains(CapabilitySet::FSETID)));
            identity.create_as(ordinary, Mode::RWXU, || {
                assert!(!effective().contains(CapabilitySet::FSETID));
                assert!(effective().contains(CapabilitySet::DAC_OVERRIDE), "the kernel has checked already");
            });
            identity.without_fsetid(|| assert!(!effective().contains(CapabilitySet::FSETID)));
            let root = Caller { uid: 0, gid: 0 };
            identity.create_as(root, Mode::SGID, || assert!(effective().contains(CapabilitySet::FSETID)));
            identity.create_as(ordinary, Mode::RWXU, || ());
            identity.with_fsetid(|| assert!(effective().contains(CapabilitySet::FSETID)));
        }
    }
}
