//! The time of day in seconds since 1970, as records keep it, and the clock by which objects expire.
//!
//! Always holds: a store's clock never goes back, whatever becomes of the time of day, and never stands still while the store is open.
//! So what has expired stays gone, and a time of day that was ahead by mistake does not keep objects for good.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::time::SystemTime;

use rustix::time::{ClockId, clock_gettime};

/// Now.
pub(crate) fn now_s() -> u32 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| u32::try_from(since.as_secs()).unwrap_or(u32::MAX))
}

/// As [`now_s`], by some milliseconds late, and never a system call.
pub(crate) fn about_now_s() -> u32 {
    u32::try_from(clock_gettime(ClockId::RealtimeCoarse).tv_sec).unwrap_or(0)
}

/// Where a store has the time from by which its objects expire.
#[derive(Clone, Debug, Default)]
pub struct Clock(Option<Arc<AtomicU32>>);

impl Clock {
    /// A clock for tests and replays, which stands at this time, in seconds since 1970, until [`Clock::set`] moves it. The
    /// default is the system's.
    pub fn manual(now_s: u32) -> Self {
        Self(Some(Arc::new(AtomicU32::new(now_s))))
    }

    /// Moves a manual clock and all its clones. Without effect on the system's.
    pub fn set(&self, now_s: u32) {
        if let Some(time_s) = &self.0 {
            time_s.store(now_s, Ordering::SeqCst);
        }
    }

    /// The time of day and a time that never goes back, in milliseconds.
    fn read_ms(&self) -> (i64, i64) {
        let ms = |id| {
            let time = clock_gettime(id);
            time.tv_sec * 1000 + time.tv_nsec / 1_000_000
        };
        match &self.0 {
            Some(time_s) => (i64::from(time_s.load(Ordering::SeqCst)) * 1000, 0),
            None => (ms(ClockId::RealtimeCoarse), ms(ClockId::Boottime)),
        }
    }
}

/// The clock of an open store.
#[derive(Debug)]
pub(crate) struct StoreClock {
    clock: Clock,
    /// The most by which the time of day was ever ahead of the time since the machine was started.
    lead_ms: AtomicI64,
}

impl StoreClock {
    pub(crate) fn new(clock: Clock) -> Self {
        Self { clock, lead_ms: AtomicI64::new(0) }
    }

    /// Now, in seconds since 1970: at least as late as whatever it returned before, to any thread.
    pub(crate) fn now_s(&self) -> u32 {
        let (day_ms, running_ms) = self.clock.read_ms();
        let lead_ms = day_ms - running_ms;
        let lead_ms = self.lead_ms.fetch_max(lead_ms, Ordering::SeqCst).max(lead_ms);
        u32::try_from((running_ms + lead_ms) / 1000).unwrap_or(u32::MAX)
    }

    /// It was at least this late when something of the store was written.
    pub(crate) fn not_before(&self, time_s: u32) {
        let (_, running_ms) = self.clock.read_ms();
        self.lead_ms.fetch_max(i64::from(time_s) * 1000 - running_ms, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_s_clock_follows_the_time_of_day_forward_and_never_back() {
        let clock = Clock::manual(1_000);
        let store = StoreClock::new(clock.clone());
        assert_eq!(store.now_s(), 1_000);
        clock.set(900);
        assert_eq!(store.now_s(), 1_000);
        clock.set(1_100);
        assert_eq!(store.now_s(), 1_100);
        store.not_before(1_050);
        assert_eq!(store.now_s(), 1_100);
        store.not_before(1_200);
        assert_eq!(store.now_s(), 1_200);
    }

    #[test]
    fn the_system_s_clock_is_the_time_of_day_and_runs_on_from_a_later_time() {
        let store = StoreClock::new(Clock::default());
        let before_s = about_now_s();
        assert!((before_s..=now_s() + 1).contains(&store.now_s()));
        let (begun_ms, later_s) = (store.clock.read_ms().1, before_s + 1_000);
        store.not_before(later_s);
        let now_s = store.now_s();
        let passed_s = (store.clock.read_ms().1 - begun_ms) / 1000;
        assert!((later_s..=later_s + passed_s as u32 + 1).contains(&now_s), "{now_s} after {later_s}");
    }
}
