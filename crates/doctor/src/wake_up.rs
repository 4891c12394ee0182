//! What it costs to wake a thread that sleeps: the time from the wake-up's beginning until the thread runs.
//!
//! Between two wake-ups the machine is left alone for a while, so that CPUs sleep as they do between the requests of a server with
//! little load. FUSE file systems and proxies pay it once or twice for each request.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

use measure::LatencyHistogram;

use crate::WakeUp;

/// How many are measured.
pub const WAKE_UPS: u32 = 200;
/// Long enough for a CPU to enter its deepest state.
const SLEEP: Duration = Duration::from_millis(2);
/// Fewer say nothing of a percentile.
const COUNT_MIN: u64 = 20;

/// Wakes a thread [`WAKE_UPS`] times, fewer once `stop` is set. None where no thread can be started.
pub fn wake_up(stop: &AtomicBool) -> Option<WakeUp> {
    let (wake, woken) = sync_channel::<Instant>(0);
    let (report, reported) = sync_channel::<Duration>(0);
    let sleeper = move || {
        while let Ok(begun) = woken.recv() {
            if report.send(begun.elapsed()).is_err() {
                return;
            }
        }
    };
    let sleeper = thread::Builder::new().name("doctor-sleeper".to_owned()).spawn(sleeper).ok()?;
    let mut costs = LatencyHistogram::new();
    for _ in 0..WAKE_UPS {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        thread::sleep(SLEEP);
        let Some(cost) = wake.send(Instant::now()).ok().and_then(|()| reported.recv().ok()) else { break };
        costs.record(cost);
    }
    drop(wake);
    let _ = sleeper.join();
    let us = |quantile| costs.quantile(quantile).as_secs_f64() * 1e6;
    (costs.count() >= COUNT_MIN).then(|| WakeUp {
        median_us: us(0.5),
        p99_us: us(0.99),
        count: u32::try_from(costs.count()).unwrap_or(u32::MAX),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_woken_two_hundred_times_and_stops_when_asked() {
        let found = wake_up(&AtomicBool::new(false)).expect("threads can be started");
        assert_eq!(found.count, WAKE_UPS);
        assert!(found.median_us > 0.0 && found.p99_us >= found.median_us, "{found:?}");
        assert_eq!(wake_up(&AtomicBool::new(true)), None);
    }
}
