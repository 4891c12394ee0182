//! CPU time of this process over a stretch of work, user and system apart.

use std::iter::Sum;
use std::ops::Add;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::proc::ProcessStat;

/// Read at one moment, asked at another.
#[derive(Clone, Copy, Debug)]
pub struct CpuMeter {
    begun: CpuTimes,
}

/// CPU time of all threads of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuTimes {
    /// In user mode.
    pub user: Duration,
    /// In the kernel.
    pub sys: Duration,
}

impl Add for CpuTimes {
    type Output = Self;

    fn add(self, more: Self) -> Self {
        Self { user: self.user + more.user, sys: self.sys + more.sys }
    }
}

impl Sum for CpuTimes {
    fn sum<I: Iterator<Item = Self>>(times: I) -> Self {
        times.fold(Self::default(), Self::add)
    }
}

impl CpuMeter {
    /// Begins to meter.
    pub fn start() -> Self {
        Self { begun: CpuTimes::now() }
    }

    /// CPU time since the start, to a hundredth of a second.
    pub fn used(&self) -> CpuTimes {
        let now = CpuTimes::now();
        CpuTimes {
            user: now.user.saturating_sub(self.begun.user),
            sys: now.sys.saturating_sub(self.begun.sys),
        }
    }
}

impl CpuTimes {
    fn now() -> Self {
        ProcessStat::own().map_or_else(Self::default, |stat| Self { user: stat.user, sys: stat.sys })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_works_is_charged_for_it() {
        let meter = CpuMeter::start();
        let mut sum = 0u64;
        while meter.used().user < Duration::from_millis(20) {
            sum = std::hint::black_box(sum.wrapping_mul(31).wrapping_add(7));
        }
        assert!(meter.used().user >= Duration::from_millis(20));
    }
}
