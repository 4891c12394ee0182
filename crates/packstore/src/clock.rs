//! The time of day in seconds since 1970, as records keep it.

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
