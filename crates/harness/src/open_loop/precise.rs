//! All that the kernel offers a thread that must wake up on time, short of real-time scheduling.

use sys::ShortSlice;

use super::awake_cpus::AwakeCpus;
use super::fine_timers::FineTimers;

/// While it lives, the thread that made it wakes up as exactly as an ordinary user, or root, may ask for. The thread must
/// keep it.
#[derive(Debug)]
pub struct Precise {
    _timers: FineTimers,
    _slice: Option<ShortSlice>,
    awake: Option<AwakeCpus>,
}

impl Precise {
    /// Asks for exact timers, a short time slice and CPUs that stay awake; what is refused stays as it is.
    pub fn begin() -> Self {
        Self { _timers: FineTimers::begin(), _slice: ShortSlice::begin(), awake: AwakeCpus::hold() }
    }

    /// Whether the CPUs of this machine stay awake meanwhile, which makes storage on this machine faster, too.
    pub fn keeps_cpus_awake(&self) -> bool {
        self.awake.is_some()
    }
}
