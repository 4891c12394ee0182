//! The longest time that the doctor takes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Twice what it takes on slow storage.
pub(super) const TIME_MAX: Duration = Duration::from_secs(60);

/// Ends the examination after [`TIME_MAX`]: a server that falls silent would be waited for at each call.
pub(super) struct Watch {
    late: Arc<AtomicBool>,
    /// Dropped with it, which ends the thread.
    _done: mpsc::Sender<()>,
}

impl Watch {
    /// Begins; `stop` is raised when the time is over, and no more when the value was dropped before.
    pub fn over(stop: Arc<AtomicBool>) -> Self {
        let late = Arc::new(AtomicBool::new(false));
        let (done, is_done) = mpsc::channel();
        let raised = Arc::clone(&late);
        let watch = move || {
            if is_done.recv_timeout(TIME_MAX) == Err(mpsc::RecvTimeoutError::Timeout) {
                raised.store(true, Ordering::Relaxed);
                stop.store(true, Ordering::Relaxed);
            }
        };
        // Without it the page is the same, and silence is waited for.
        let _ = std::thread::Builder::new().name("watch".to_owned()).spawn(watch);
        Self { late, _done: done }
    }

    /// Whether the time was over.
    pub fn is_late(&self) -> bool {
        self.late.load(Ordering::Relaxed)
    }
}
