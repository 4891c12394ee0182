//! Whether the server is gone: after one call was given up, those that follow do not wait as long each.
//!
//! ```text
//! a call is given up --- 1 s: calls wait until here ---+--- 5 s: calls fail at once ---+--- 1 s: calls wait --- …
//! any answer ends it
//! ```

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long calls may wait for a server that is gone, together.
const TRY: Duration = Duration::from_secs(1);
/// How long calls then fail at once: a caller that removes 10,000 files is through by then.
const REST: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(super) struct Gone {
    /// Whether there is anything in `since`: looked at by each call.
    is_gone: AtomicBool,
    since: Mutex<Option<Since>>,
}

#[derive(Clone, Copy, Debug)]
struct Since {
    /// When the first of the calls that were given up began.
    silent: Instant,
    /// Calls wait until here, and later fail until `again`.
    wait_until: Instant,
    again: Instant,
}

/// How long a call may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Allowance {
    /// As the options say.
    Full,
    /// So long, with one try.
    Short(Duration),
    /// Not at all; how long the server has been silent.
    None(Duration),
}

impl Gone {
    fn since(&self) -> MutexGuard<'_, Option<Since>> {
        self.since.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long a call that begins now may wait.
    pub(super) fn allowance(&self, now: Instant) -> Allowance {
        if !self.is_gone.load(Ordering::Relaxed) {
            return Allowance::Full;
        }
        let mut guard = self.since();
        let Some(since) = &mut *guard else { return Allowance::Full };
        if now >= since.again {
            (since.wait_until, since.again) = (now + TRY, now + TRY + REST);
        }
        match since.wait_until.saturating_duration_since(now) {
            Duration::ZERO => Allowance::None(now.saturating_duration_since(since.silent)),
            left => Allowance::Short(left),
        }
    }

    /// A call that began at `begun` was given up; `try_again`: those that follow may still wait a little.
    pub(super) fn gave_up(&self, begun: Instant, now: Instant, try_again: bool) {
        let wait = if try_again { TRY } else { Duration::ZERO };
        let mut guard = self.since();
        match &mut *guard {
            Some(since) if !try_again => since.wait_until = since.wait_until.min(now),
            Some(_) => {}
            None => {
                *guard = Some(Since { silent: begun, wait_until: now + wait, again: now + wait + REST });
                self.is_gone.store(true, Ordering::Relaxed);
            }
        }
    }

    /// The server answered.
    pub(super) fn answered(&self) {
        if self.is_gone.load(Ordering::Relaxed) {
            let mut guard = self.since();
            *guard = None;
            self.is_gone.store(false, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_to_a_server_that_is_gone_share_one_short_wait_and_then_fail_at_once_until_the_next() {
        let seconds = Duration::from_secs;
        let (gone, begun) = (Gone::default(), Instant::now());
        assert_eq!(gone.allowance(begun), Allowance::Full);
        let lost = begun + seconds(60);
        gone.gave_up(begun, lost, true);
        assert_eq!(gone.allowance(lost), Allowance::Short(TRY));
        // Those of other threads begin to fail while one waits: they get no more than what is left.
        gone.gave_up(begun, lost + TRY / 2, true);
        assert_eq!(gone.allowance(lost + TRY / 2), Allowance::Short(TRY / 2));
        assert_eq!(gone.allowance(lost + TRY), Allowance::None(seconds(61)));
        assert_eq!(gone.allowance(lost + TRY + REST), Allowance::Short(TRY));
        assert_eq!(gone.allowance(lost + TRY + REST + TRY), Allowance::None(seconds(67)));
        gone.answered();
        assert_eq!(gone.allowance(lost), Allowance::Full);
        gone.gave_up(begun, lost, false);
        assert_eq!(gone.allowance(lost), Allowance::None(seconds(60)));
    }
}
