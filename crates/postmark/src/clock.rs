//! Where the engine's times come from.

use std::time::Instant;

/// Read once at each boundary between two phases (twice in a run that is held up there) and nowhere else, so that a
/// clock that advances by a fixed step gives a report known in advance.
pub trait Clock: Send + Sync {
    /// The moment this is called.
    fn now(&self) -> Instant;
}

/// The system's monotonic clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        Instant::now()
    }
}
