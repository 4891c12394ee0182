//! Whether a store knows all that it holds: at once after a clean stop, else when the indexes were looked through.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::error::StoreError;
use crate::locks::locked;

/// Set once, by the opening or by the thread that looks through the indexes.
#[derive(Default)]
pub(crate) struct Readiness {
    result: Mutex<Option<Result<(), StoreError>>>,
    decided: Condvar,
    is_ready: AtomicBool,
}

impl Readiness {
    pub(crate) fn set_ready(&self, result: Result<(), StoreError>) {
        if result.is_ok() {
            self.is_ready.store(true, Ordering::Release);
        }
        *locked(&self.result) = Some(result);
        self.decided.notify_all();
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Acquire)
    }

    /// Waits until all that is on disk is known.
    pub(crate) fn wait_ready(&self) -> Result<(), StoreError> {
        if self.is_ready() {
            return Ok(());
        }
        let mut ready = locked(&self.result);
        loop {
            if let Some(result) = &*ready {
                return result.clone();
            }
            ready = self.decided.wait(ready).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// As [`Readiness::wait_ready`], but no longer than this; whether it is.
    pub(crate) fn wait_ready_for(&self, longest: Duration) -> bool {
        let ready = locked(&self.result);
        let waited = self.decided.wait_timeout_while(ready, longest, |ready| ready.is_none());
        drop(waited);
        self.is_ready()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn who_waits_gets_the_result_whether_it_came_before_or_after() {
        let readiness = Arc::new(Readiness::default());
        assert!(!readiness.is_ready() && !readiness.wait_ready_for(Duration::ZERO));
        let waiting = readiness.clone();
        let waiter = std::thread::spawn(move || waiting.wait_ready());
        readiness.set_ready(Err(StoreError::Closed));
        assert!(matches!(waiter.join().expect("no panic"), Err(StoreError::Closed)));
        assert!(matches!(readiness.wait_ready(), Err(StoreError::Closed)), "it stays so");
        assert!(!readiness.is_ready(), "a store that could not be learnt is not ready");
        let readiness = Readiness::default();
        readiness.set_ready(Ok(()));
        assert!(readiness.is_ready() && readiness.wait_ready().is_ok());
    }
}
