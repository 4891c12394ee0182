//! Whether the generator already has CPUs of its own, so that no advice names what was done.

use rustix::process::getpid;
use rustix::thread::sched_getaffinity;

/// What helps a generator that did not get the CPU in time, as the end of a sentence. For the thread that generates, or one
/// that it started.
pub(super) fn remedy() -> &'static str {
    if is_pinned() {
        "keep other programs off the CPU that it is pinned to, or lower the rate"
    } else {
        "give it a core of its own (--pin) or lower the rate"
    }
}

/// `--pin` keeps the thread of the run, and no other, on chosen CPUs. On one CPU alone there is nothing to choose.
fn is_pinned() -> bool {
    let Ok(mine) = sched_getaffinity(None) else { return false };
    let programs = sched_getaffinity(Some(getpid()));
    mine.count() == 1 || programs.is_ok_and(|programs| programs != mine)
}

#[cfg(test)]
mod tests {
    use rustix::thread::{CpuSet, sched_setaffinity};

    use super::*;

    /// Symptom: a run with `--pin 1` was advised to use `--pin`. Cause: the advice was one text for all.
    #[test]
    fn a_thread_that_is_pinned_is_not_advised_to_be() {
        let allowed = sched_getaffinity(None).unwrap();
        let first = (0..CpuSet::MAX_CPU).find(|&cpu| allowed.is_set(cpu)).unwrap();
        let pinned = std::thread::spawn(move || {
            let mut one = CpuSet::new();
            one.set(first);
            sched_setaffinity(None, &one).unwrap();
            remedy()
        });
        assert!(pinned.join().unwrap().contains("that it is pinned to"));
        assert_eq!(remedy().contains("(--pin)"), allowed.count() > 1);
    }
}
