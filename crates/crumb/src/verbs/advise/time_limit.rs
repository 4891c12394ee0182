//! Work that ends early, by a signal or because its time is up.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use anyhow::anyhow;

/// How soon the work hears of it.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Does `work`, whose flag is raised as soon as `stop` is, or when the time is up.
///
/// # Errors
/// When the thread that watches the time cannot be started.
pub fn within<T>(
    limit: Duration,
    stop: &Arc<AtomicBool>,
    work: impl FnOnce(&AtomicBool) -> T,
) -> anyhow::Result<T> {
    let ended = Arc::new(AtomicBool::new(false));
    let (done, waits) = channel::<()>();
    let (raise, stop) = (Arc::clone(&ended), Arc::clone(stop));
    let deadline = Instant::now() + limit;
    let watch = move || loop {
        if stop.load(Ordering::Relaxed) || Instant::now() >= deadline {
            raise.store(true, Ordering::Relaxed);
            return;
        }
        if !matches!(waits.recv_timeout(LOOK_EVERY), Err(RecvTimeoutError::Timeout)) {
            return;
        }
    };
    let watcher = std::thread::Builder::new().name("time-limit".to_owned()).spawn(watch)?;
    let came = work(&ended);
    drop(done);
    watcher.join().map_err(|_| anyhow!("the time limit's thread panicked"))?;
    Ok(came)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn until_raised(flag: &AtomicBool) -> bool {
        let begun = Instant::now();
        while !flag.load(Ordering::Relaxed) {
            if begun.elapsed() > Duration::from_secs(60) {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }

    #[test]
    fn work_hears_of_the_end_of_its_time_and_of_a_stop_and_otherwise_of_nothing() {
        let (stop, hour) = (Arc::new(AtomicBool::new(false)), Duration::from_secs(3600));
        assert!(within(Duration::ZERO, &stop, until_raised).unwrap(), "the time is up");
        assert!(!within(hour, &stop, |flag| flag.load(Ordering::Relaxed)).unwrap(), "there is time");
        stop.store(true, Ordering::Relaxed);
        assert!(within(hour, &stop, until_raised).unwrap(), "it was stopped");
    }
}
