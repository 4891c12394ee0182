//! Whether a thread may take a whole CPU for spinning: CPUs that stayed idle, and CPU quotas of control groups.
//!
//! ```text
//! reading -- some time --> reading:  idle CPU time that this thread may use, and its own   /proc/stat, affinity
//!                                    quota less use, for each control group around it      cpu.max, cpu.stat
//! ```
//!
//! A thread that spins under a quota uses the quota up and is then stopped for the rest of each period, 100 ms by default:
//! it would be later than one that sleeps.
//! Not here: what this is used for (see `pacer`).

use std::fs;
use std::time::Instant;

use measure::proc::{self, ControlGroups, CpuQuota};
use rustix::process::getpid;
use rustix::thread::{CpuSet, sched_getaffinity};
use rustix::time::{ClockId, clock_gettime};

/// CPUs that must stay free beside those that spin: the storage may be on this machine.
const LEFT_FREE: f64 = 1.5;
/// Share of a CPU that nobody else used, from which a CPU that this thread was pinned to counts as its own.
const OWN_CPU: f64 = 0.95;

/// CPU use at one moment.
#[derive(Clone, Debug)]
pub(super) struct CpuReading {
    at: Instant,
    /// Seconds that the CPUs this thread may use were idle.
    idle_s: f64,
    /// CPU time of this thread, seconds.
    own_s: f64,
    /// This thread may use fewer CPUs than the process.
    is_pinned: bool,
    quotas: Vec<CpuQuota>,
}

/// CPUs that were free between two readings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Room {
    /// Of those that this thread may use: idle, or used by this thread itself.
    free_cpus: f64,
    is_pinned: bool,
    /// The least that a quota leaves, this thread's own use included; none without a quota.
    quota_left_cpus: Option<f64>,
}

impl Room {
    /// Whether that many threads may spin.
    pub fn is_enough_for(&self, threads: usize) -> bool {
        let threads = threads as f64;
        let needed = if self.is_pinned { OWN_CPU * threads } else { threads + LEFT_FREE };
        self.free_cpus >= needed && self.quota_left_cpus.is_none_or(|left| left >= threads + LEFT_FREE)
    }
}

impl CpuReading {
    /// Of this thread, now. What cannot be read counts as busy.
    pub fn now() -> Self {
        let mine = sched_getaffinity(None).ok();
        let of_process = sched_getaffinity(Some(getpid())).ok();
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let own = clock_gettime(ClockId::ThreadCPUTime);
        Self {
            at: Instant::now(),
            idle_s: mine.as_ref().map_or(0.0, |cpus| idle_s(&stat, &|cpu| is_set(cpus, cpu))),
            own_s: own.tv_sec as f64 + own.tv_nsec as f64 / 1e9,
            is_pinned: mine.zip(of_process).is_some_and(|(mine, all)| mine.count() < all.count()),
            quotas: ControlGroups::of_this_process().cpu_quotas(),
        }
    }

    /// What was free since an earlier reading of the same thread.
    pub fn room_since(&self, before: &Self) -> Room {
        let span_s = (self.at - before.at).as_secs_f64().max(1e-3);
        let own_cpus = (self.own_s - before.own_s) / span_s;
        let left = |quota: &CpuQuota| {
            let used_before = before.quotas.iter().find(|earlier| earlier.group == quota.group);
            let used = quota.used.saturating_sub(used_before.map_or(quota.used, |earlier| earlier.used));
            quota.cpus - used.as_secs_f64() / span_s + own_cpus
        };
        Room {
            free_cpus: (self.idle_s - before.idle_s) / span_s + own_cpus,
            is_pinned: self.is_pinned,
            quota_left_cpus: self.quotas.iter().map(left).min_by(f64::total_cmp),
        }
    }
}

fn is_set(cpus: &CpuSet, cpu: usize) -> bool {
    cpu < CpuSet::MAX_CPU && cpus.is_set(cpu)
}

/// Idle time of the CPUs that count, with that in which they waited for a disk.
fn idle_s(stat: &str, counts: &dyn Fn(usize) -> bool) -> f64 {
    proc::idle_by_cpu(stat)
        .into_iter()
        .filter(|(cpu, _)| counts(*cpu))
        .map(|(_, idle)| idle.as_secs_f64())
        .sum()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn only_the_cpus_that_count_are_idle() {
        let stat = "cpu  9 9 9 900 90 9\ncpu0 1 1 1 300 20 1 0\ncpu1 1 1 1 600 70 1 0\nintr 5\n";
        let idle: Vec<f64> = proc::idle_by_cpu(stat).iter().map(|(_, idle)| idle.as_secs_f64()).collect();
        assert_eq!(idle_s(stat, &|cpu| cpu == 0), idle[0]);
        assert_eq!(idle_s(stat, &|_| true), idle[0] + idle[1]);
    }

    #[test]
    fn spinning_needs_free_cpus_and_a_quota_that_leaves_room() {
        let begun = Instant::now();
        let reading = |after_s: u64, idle_s, own_s, used_s: Option<f64>| CpuReading {
            at: begun + Duration::from_secs(after_s),
            idle_s,
            own_s,
            is_pinned: false,
            quotas: used_s
                .map(|used_s| CpuQuota {
                    group: "a".into(),
                    cpus: 3.0,
                    used: Duration::from_secs_f64(used_s),
                })
                .into_iter()
                .collect(),
        };
        let may = |idle_cpus: f64, own_cpus: f64, used_cpus: Option<f64>, threads| {
            let before = reading(0, 100.0, 5.0, used_cpus.map(|_| 7.0));
            let used_s = used_cpus.map(|cpus| 7.0 + 10.0 * cpus);
            let after = reading(10, 100.0 + 10.0 * idle_cpus, 5.0 + 10.0 * own_cpus, used_s);
            after.room_since(&before).is_enough_for(threads)
        };
        assert!(may(3.8, 0.1, None, 1), "four CPUs, nearly all idle");
        assert!(!may(1.9, 0.1, None, 1), "of two CPUs one is for the storage");
        assert!(!may(3.0, 0.1, None, 2), "two that spin leave one");
        assert!(may(3.8, 0.1, Some(0.5), 1), "a quota of three with half of one in use");
        assert!(!may(3.8, 0.1, Some(1.0), 1), "a quota of three with one in use");
    }

    #[test]
    fn a_thread_pinned_to_a_cpu_that_nobody_else_uses_may_spin_there() {
        let room = |free_cpus| Room { free_cpus, is_pinned: true, quota_left_cpus: None };
        assert!(room(0.99).is_enough_for(1));
        assert!(!room(0.8).is_enough_for(1), "another program used a fifth of it");
    }

    #[test]
    fn the_machine_that_runs_this_can_be_read() {
        let before = CpuReading::now();
        let room = CpuReading::now().room_since(&before);
        assert!(room.free_cpus.is_finite() && before.idle_s > 0.0, "{before:?}");
    }
}
