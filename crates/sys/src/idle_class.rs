//! The idle scheduling class of a thread: `SCHED_IDLE` of sched(7), which rustix does not have.
//!
//! A thread in it runs where nothing else wants to. The kernel counts a CPU that runs only such threads as idle when it
//! looks for a place for a thread that wakes up, and lets that thread displace them at once.
//!
//! Anybody may enter the class. To leave it takes the capability SYS_NICE or a resource limit (`RLIMIT_NICE`): without
//! either a thread stays in it, so check with [`can_leave_idle_class`] first.

#![expect(unsafe_code, reason = "rustix has no sched_setscheduler, and musl's does nothing")]

use rustix::io::Errno;
use rustix::thread::Pid;

/// Moves a thread of this process into the idle class, or back to the usual one. It keeps its nice value.
///
/// # Errors
/// `EPERM` where the thread may not leave the class, `ESRCH` when the thread has ended.
pub fn set_idle_class(thread: Pid, idle: bool) -> Result<(), Errno> {
    let policy = if idle { libc::SCHED_IDLE } else { libc::SCHED_OTHER };
    // The only field that all C libraries have; both policies want 0.
    let priority: libc::c_int = 0;
    // SAFETY: the kernel's `struct sched_param` is one `int`, and `priority` is a live one that the kernel only reads.
    let failed = unsafe {
        libc::syscall(
            libc::SYS_sched_setscheduler,
            thread.as_raw_nonzero().get(),
            policy,
            &raw const priority,
        )
    };
    if failed == 0 {
        return Ok(());
    }
    let error = std::io::Error::last_os_error();
    Err(Errno::from_io_error(&error).unwrap_or(Errno::PERM))
}

/// Whether a thread of this process that entered the idle class can leave it again. Tried with a thread that ends.
pub fn can_leave_idle_class() -> bool {
    let tried = std::thread::Builder::new().name("idle-class".to_owned()).spawn(|| {
        let thread = rustix::thread::gettid();
        set_idle_class(thread, true).is_ok() && set_idle_class(thread, false).is_ok()
    });
    tried.is_ok_and(|thread| thread.join().unwrap_or(false))
}

#[cfg(test)]
mod tests {
    use rustix::thread::gettid;

    use super::*;

    /// As sched_getscheduler(2) numbers it, read from /proc.
    fn policy(thread: Pid) -> String {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap();
        let after_name = stat.rsplit_once(") ").unwrap().1;
        after_name.split(' ').nth(38).unwrap().to_owned()
    }

    #[test]
    fn a_thread_enters_and_leaves_the_idle_class_where_that_is_allowed() {
        let allowed = can_leave_idle_class();
        std::thread::spawn(move || {
            let thread = gettid();
            let before = policy(thread);
            set_idle_class(thread, true).unwrap();
            assert_eq!(policy(thread), libc::SCHED_IDLE.to_string());
            assert_eq!(set_idle_class(thread, false).is_ok(), allowed);
            if allowed {
                assert_eq!(policy(thread), before);
            }
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_thread_that_is_gone_cannot_be_moved() {
        let gone = std::thread::spawn(gettid).join().unwrap();
        // Its number may be in use again within this process only when another test's thread got it, which is harmless.
        if let Err(errno) = set_idle_class(gone, false) {
            assert_eq!(errno, Errno::SRCH);
        }
    }
}
