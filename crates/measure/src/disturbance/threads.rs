//! Run delay of all threads of this process: how long each was ready to run and waited for a CPU.
//!
//! The second number of `/proc/self/task/*/schedstat` (proc(5)). A thread that ends takes its number with it: one that may end
//! during a stretch is a [`MeasuringThread`], which leaves it behind.

use std::collections::HashMap;
use std::fs;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Run delays of threads that have ended. Clones are the same list.
#[derive(Clone, Debug, Default)]
pub struct EndedThreads(Arc<Mutex<HashMap<u32, Duration>>>);

/// Stands for a thread that works for a run, as long as it does.
#[derive(Debug)]
pub struct MeasuringThread {
    ended: EndedThreads,
}

impl EndedThreads {
    /// Called by the thread when it begins; its run delay is noted when what this gives is dropped.
    #[must_use]
    pub fn measuring_thread(&self) -> MeasuringThread {
        MeasuringThread { ended: self.clone() }
    }

    fn note(&self, thread: u32, delay: Duration) {
        // A number that is used again is another thread's: both waited.
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(thread).or_default() += delay;
    }
}

impl Drop for MeasuringThread {
    fn drop(&mut self) {
        let thread = rustix::thread::gettid().as_raw_nonzero().get();
        let delay = run_delay(&fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default());
        self.ended.note(thread.unsigned_abs(), delay);
    }
}

/// By thread.
#[derive(Debug, Default)]
pub(super) struct Delays {
    live: HashMap<u32, Duration>,
}

impl Delays {
    pub fn read() -> Self {
        let mut live = HashMap::new();
        for entry in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
            let Some(thread) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            // One that has just ended has none.
            let Ok(text) = fs::read_to_string(entry.path().join("schedstat")) else { continue };
            live.insert(thread, run_delay(&text));
        }
        Self { live }
    }

    /// What all waited between these readings. Takes what is in `ended`, which is of this stretch then.
    pub fn since(&self, now: &Self, ended: &EndedThreads) -> Duration {
        let before = |thread: &u32| self.live.get(thread).copied().unwrap_or_default();
        let mut noted = ended.0.lock().unwrap_or_else(PoisonError::into_inner);
        // One that has noted its delay and has not quite ended is in both lists.
        let live = now.live.iter().filter(|(thread, _)| !noted.contains_key(thread));
        let of_live: Duration = live.map(|(thread, delay)| delay.saturating_sub(before(thread))).sum();
        let of_ended: Duration =
            noted.drain().map(|(thread, delay)| delay.saturating_sub(before(&thread))).sum();
        of_live + of_ended
    }
}

/// Nanoseconds, the second of three numbers; nothing where the kernel does not count it.
fn run_delay(schedstat: &str) -> Duration {
    let ns = schedstat.split_whitespace().nth(1).and_then(|number| number.parse().ok());
    Duration::from_nanos(ns.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn delays(of: &[(u32, u64)]) -> Delays {
        Delays { live: of.iter().map(|(thread, ms)| (*thread, Duration::from_millis(*ms))).collect() }
    }

    #[test]
    fn threads_that_began_or_ended_meanwhile_count_with_what_they_waited() {
        let ended = EndedThreads::default();
        // 2 ended, 3 began, 4 began and ended.
        ended.note(2, Duration::from_millis(30));
        ended.note(4, Duration::from_millis(5));
        let waited = delays(&[(1, 100), (2, 10)]).since(&delays(&[(1, 107), (3, 2)]), &ended);
        assert_eq!(waited, Duration::from_millis(7 + 20 + 2 + 5));
        assert_eq!(
            delays(&[]).since(&delays(&[]), &ended),
            Duration::ZERO,
            "of the next stretch nothing is known"
        );
    }

    #[test]
    fn the_second_number_is_the_run_delay() {
        assert_eq!(run_delay("235900 652890 2\n"), Duration::from_nanos(652_890));
        assert_eq!(run_delay(""), Duration::ZERO);
    }

    #[test]
    fn a_thread_leaves_its_run_delay_behind() {
        let ended = EndedThreads::default();
        let of_thread = ended.clone();
        std::thread::spawn(move || drop(of_thread.measuring_thread())).join().unwrap();
        assert_eq!(ended.0.lock().unwrap().len(), 1);
        assert!(!Delays::read().live.is_empty());
    }
}
