//! Wake-ups as exact as the kernel allows.
//!
//! Linux lets every sleep of an ordinary thread end up to 50 us late, so that wake-ups can be merged (`PR_SET_TIMERSLACK`,
//! prctl(2)). A generator that sleeps until 60 us before a moment and spins for the rest then often wakes after it.

use std::num::NonZeroU64;

use rustix::thread::{current_timer_slack, set_current_timer_slack};

/// While it lives, sleeps of the thread that made it end at most about 1 ns late by the kernel's choice. What the scheduler
/// and a processor's own waking take comes on top. The thread must keep it.
#[derive(Debug)]
pub struct FineTimers {
    slack_before_ns: Option<NonZeroU64>,
    // The slack belongs to a thread: another one could not put it back.
    _of_this_thread: std::marker::PhantomData<*const ()>,
}

impl FineTimers {
    /// Asks for exact wake-ups in this thread. A kernel that refuses leaves them as they are.
    pub fn begin() -> Self {
        let before = current_timer_slack().ok().and_then(NonZeroU64::new);
        let changed = before.is_some() && set_current_timer_slack(Some(NonZeroU64::MIN)).is_ok();
        Self { slack_before_ns: before.filter(|_| changed), _of_this_thread: std::marker::PhantomData }
    }
}

impl Drop for FineTimers {
    fn drop(&mut self) {
        if let Some(before) = self.slack_before_ns {
            // It was accepted a moment ago in the other direction; a refusal leaves timers finer than they were.
            let _ = set_current_timer_slack(Some(before));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_are_fine_while_it_lives_and_as_before_afterwards() {
        let before = current_timer_slack().unwrap();
        {
            let _fine = FineTimers::begin();
            assert_eq!(current_timer_slack().unwrap(), 1);
        }
        assert_eq!(current_timer_slack().unwrap(), before);
    }
}
