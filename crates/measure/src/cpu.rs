//! CPU time of this process over a stretch of work, user and system apart.

use std::fs;
use std::iter::Sum;
use std::ops::Add;
use std::time::Duration;

use serde::{Deserialize, Serialize};

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
        Self::of_stat(&fs::read_to_string("/proc/self/stat").unwrap_or_default()).unwrap_or_default()
    }

    /// Fields 14 and 15 of proc(5), in clock ticks, counted from behind the command's closing parenthesis, as the
    /// command may hold blanks and parentheses itself.
    fn of_stat(stat: &str) -> Option<Self> {
        let tick_s = 1.0 / rustix::param::clock_ticks_per_second() as f64;
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
        let mut next = || Some(Duration::from_secs_f64(fields.next()?.parse::<u64>().ok()? as f64 * tick_s));
        Some(Self { user: next()?, sys: next()? })
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

    #[test]
    fn a_command_with_parentheses_does_not_shift_the_fields() {
        let stat = "1 (a) b) (c) S 1 1 1 0 -1 0 10 0 0 0 300 200 0 0 20 0 1 0";
        let times = CpuTimes::of_stat(stat).unwrap();
        assert_eq!((times.user, times.sys), (Duration::from_secs(3), Duration::from_secs(2)));
    }
}
