//! How long a thread waited for a CPU: `/proc/thread-self/schedstat`, its second number (proc(5)).
//!
//! It counts from the moment the thread could run, so that a wake-up from an idle state is in it. For the delay of one sleep
//! the caller must [`mark`](RunDelay::mark) its beginning: what was not asked for adds up.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::Duration;

/// Reads the run delay of the thread that made it.
#[derive(Debug)]
pub struct RunDelay {
    schedstat: Option<File>,
    last_ns: u64,
}

impl RunDelay {
    /// Of this thread, from now on. A kernel that does not count it has none.
    pub fn of_this_thread() -> Self {
        let mut delay = Self { schedstat: File::open("/proc/thread-self/schedstat").ok(), last_ns: 0 };
        delay.since_last();
        delay
    }

    /// The delay counts from now on.
    pub fn mark(&mut self) {
        self.since_last();
    }

    /// The delay since it was last asked for or marked.
    pub fn since_last(&mut self) -> Duration {
        let Some(file) = &self.schedstat else { return Duration::ZERO };
        let mut text = [0; 64];
        let Ok(bytes) = file.read_at(&mut text, 0) else { return Duration::ZERO };
        let text = std::str::from_utf8(&text[..bytes]).unwrap_or_default();
        let Some(ns) = text.split(' ').nth(1).and_then(|number| number.parse().ok()) else {
            return Duration::ZERO;
        };
        let before = std::mem::replace(&mut self.last_ns, ns);
        Duration::from_nanos(ns.saturating_sub(before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_share_a_cpu_wait_for_it() {
        let cpu = rustix::thread::sched_getcpu();
        let rounds = std::thread::scope(|threads| {
            let work = || {
                let mut cpus = rustix::thread::CpuSet::new();
                cpus.set(cpu);
                rustix::thread::sched_setaffinity(None, &cpus).unwrap();
                let mut delay = RunDelay::of_this_thread();
                let mut waited = Duration::ZERO;
                let mut rounds = 0_u64;
                // Ends when it had to wait: the kernel changes threads every few milliseconds.
                while waited < Duration::from_millis(1) && rounds < 10_000_000 {
                    rounds += 1;
                    waited += delay.since_last();
                }
                (waited, rounds)
            };
            let [a, b] = [threads.spawn(work), threads.spawn(work)];
            [a.join().unwrap(), b.join().unwrap()]
        });
        assert!(rounds.iter().any(|(waited, _)| *waited >= Duration::from_millis(1)), "{rounds:?}");
    }
}
