//! How to wait for a moment: sleeping is cheap and late, spinning is dear and exact.
//!
//! On the kind of machine Crumb was built on, `clock_nanosleep` came 4 to 7 microseconds late at the
//! median and 12 to over 1,000 at the 99th percentile; sleeping until 60 microseconds before and
//! spinning the rest brought that to 0.08 and 1 to 20.

use std::time::Duration;

/// Who gives way while a transport waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Patience {
    /// Sleep until shortly before the moment, then spin. The default.
    SleepThenSpin {
        /// How long before the moment to begin to spin.
        spin: Duration,
    },
    /// Spin all the time: needs a core of its own.
    Spin,
}

impl Default for Patience {
    fn default() -> Self {
        Self::SleepThenSpin { spin: Duration::from_micros(60) }
    }
}

impl Patience {
    /// How long to sleep when `left` remains; `None` to spin.
    pub fn sleep_for(self, left: Duration) -> Option<Duration> {
        match self {
            Self::Spin => None,
            Self::SleepThenSpin { spin } => left.checked_sub(spin).filter(|rest| !rest.is_zero()),
        }
    }
}
