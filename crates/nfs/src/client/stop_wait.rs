//! How long a blocking call still waits once its caller was asked to stop.
//!
//! ```text
//! call begins ----- stop is asked for --- 1 s --| ends        a call of the run
//! stop is asked for ----- call begins --- 5 s --| ends        a call of the clean-up, which a busy server gets time for
//! ```

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a call that was under way still waits.
const UNDER_WAY_MAX: Duration = Duration::from_secs(1);
/// How long a call waits that begins after the caller was asked to stop.
const BEGUN_AFTER_MAX: Duration = Duration::from_secs(5);
/// How long a wait may last before the flag is looked at again.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// One call's view of the flag.
#[derive(Debug)]
pub(super) struct StopWait {
    flag: Option<Arc<AtomicBool>>,
    begun: Instant,
    /// When the call ends, once the flag was seen.
    end: Option<Instant>,
}

impl StopWait {
    /// Of a call that begins now.
    pub(super) fn begin(flag: Option<&Arc<AtomicBool>>) -> Self {
        let mut wait = Self { flag: flag.cloned(), begun: Instant::now(), end: None };
        if wait.is_asked() {
            wait.end = Some(wait.begun + BEGUN_AFTER_MAX);
        }
        wait
    }

    fn is_asked(&self) -> bool {
        self.flag.as_ref().is_some_and(|flag| flag.load(Ordering::Relaxed))
    }

    /// How long the call has lasted.
    pub(super) fn waited(&self) -> Duration {
        self.begun.elapsed()
    }

    /// How long to wait now of `left`; none when the caller was asked to stop and the call is to end.
    pub(super) fn slice(&mut self, left: Duration) -> Option<Duration> {
        if self.flag.is_none() {
            return Some(left);
        }
        if self.end.is_none() && self.is_asked() {
            self.end = Some(Instant::now() + UNDER_WAY_MAX);
        }
        match self.end {
            None => Some(left.min(LOOK_EVERY)),
            Some(end) => {
                let until_end = end.saturating_duration_since(Instant::now());
                (!until_end.is_zero()).then(|| left.min(until_end))
            }
        }
    }

    /// Sleeps for `pause`; false when the call is to end.
    pub(super) fn sleep(&mut self, pause: Duration) -> bool {
        let until = Instant::now() + pause;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.slice(left) {
                None => return false,
                Some(_) if left.is_zero() => return true,
                Some(slice) => std::thread::sleep(slice),
            }
        }
    }
}
