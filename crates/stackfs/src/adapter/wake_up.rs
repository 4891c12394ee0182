//! How long it takes to wake a thread that sleeps, where the scheduler places it: measured when a mount starts.
//!
//! ```text
//! caller: waits a little, sends the time ---> sleeper: wakes, receives it; the difference is one wake-up
//! ```
//!
//! Neither thread is bound. Some schedulers wake a thread on the CPU of the one that wakes it, and a mount then never waits
//! for a CPU that halts: 7 us, where waking a thread bound to another CPU takes 35 us (`results/2026-11-26-readers`).
//! Not here: what follows from the figure (see `choice`).

use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

/// How many are measured. Other work on the machine delays some, so the median is taken.
const WAKE_UPS: usize = 16;
/// Long enough for a CPU to go idle.
const PAUSE: Duration = Duration::from_micros(500);
/// No idle CPU takes longer: the CPUs are busy, and the figure says nothing of how they wake.
const BUSY: Duration = Duration::from_millis(1);

/// The median; `None` while the CPUs are busy, and where no thread can be started.
pub(super) fn measure() -> Option<Duration> {
    let (wake, woken) = sync_channel::<Instant>(0);
    let sleeper = move || woken.iter().map(|begun| begun.elapsed()).collect::<Vec<_>>();
    let sleeper = thread::Builder::new().name("crumb-sleeper".into()).spawn(sleeper).ok()?;
    for _ in 0..WAKE_UPS {
        thread::sleep(PAUSE);
        if wake.send(Instant::now()).is_err() {
            break;
        }
    }
    drop(wake);
    median(sleeper.join().ok()?).filter(|cost| *cost < BUSY)
}

fn median(mut costs: Vec<Duration>) -> Option<Duration> {
    costs.sort_unstable();
    costs.get(costs.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_up_takes_some_time() {
        // None on a busy machine.
        assert!(measure().is_none_or(|cost| cost > Duration::ZERO));
    }

    #[test]
    fn the_median_ignores_wake_ups_that_other_work_delayed() {
        let us = Duration::from_micros;
        assert_eq!(median(vec![us(9_000), us(4), us(5), us(7_000), us(6)]), Some(us(6)));
        assert_eq!(median(Vec::new()), None);
    }
}
