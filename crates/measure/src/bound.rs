//! What a closed-loop run was held up by: the device, a server, the caches, or the processor.
//!
//! The author of the 2001 PostMark comparison kept `iostat` beside his runs, to see whether the disk was really
//! busy. This does so for every run and says the answer.

use std::time::Duration;

use crate::{CpuTimes, DiskUse};

/// What a stretch of work used.
#[derive(Clone, Debug)]
pub struct Usage {
    /// How long it took.
    pub wall: Duration,
    /// CPU time of this process.
    pub cpu: CpuTimes,
    /// Threads that worked.
    pub threads: usize,
    /// File bytes read and written by the benchmark.
    pub bytes_asked: u64,
    /// What the device did, where one could be watched.
    pub disk: Option<DiskUse>,
    /// True when a server did the work, out of this machine's sight.
    pub remote: bool,
}

/// What held a run up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// The device was at work most of the time.
    Device,
    /// A server was waited for.
    Server,
    /// Memory served what was asked: the run says nothing about the device.
    Cache,
    /// The benchmark or the kernel computed most of the time.
    Cpu,
    /// None of these clearly.
    Unclear,
}

/// From this share of the time on the device was the limit: a request was nearly always there.
const DEVICE_BUSY: f64 = 0.7;
/// From this share of the time on the processor was.
const CPU_BUSY: f64 = 0.7;
/// Less than this share of the bytes at the device: the caches bore the run.
const CACHE_LEAK: f64 = 0.1;

impl Bound {
    /// Stable short name, for a verdict's code.
    pub fn code(self) -> &'static str {
        match self {
            Self::Device => "device-bound",
            Self::Server => "server-bound",
            Self::Cache => "cache-bound",
            Self::Cpu => "cpu-bound",
            Self::Unclear => "bound-unclear",
        }
    }
}

impl Usage {
    /// Share of its threads' time that the process computed, 0 to 1.
    pub fn cpu_share(&self) -> f64 {
        let room = self.wall.as_secs_f64() * self.threads.max(1) as f64;
        ((self.cpu.user + self.cpu.sys).as_secs_f64() / room.max(1e-9)).min(1.0)
    }

    /// What held the run up, and one sentence with the numbers.
    pub fn bound(&self) -> (Bound, String) {
        let cpu = percent(self.cpu_share());
        let sys = self.cpu.sys.as_secs_f64() / (self.cpu.user + self.cpu.sys).as_secs_f64().max(1e-9);
        let computed =
            format!("the run's threads computed {cpu} of their time, {} of that in the kernel", percent(sys));
        if self.remote {
            return if self.cpu_share() >= CPU_BUSY {
                (Bound::Cpu, format!("CPU-bound: {computed}; the server was hardly waited for"))
            } else {
                (Bound::Server, format!("server-bound: {computed}; they waited for the server the rest"))
            };
        }
        let Some(disk) = &self.disk else {
            return if self.cpu_share() >= CPU_BUSY && sys < 0.5 {
                (Bound::Cpu, format!("CPU-bound: no device behind it, and {computed}"))
            } else {
                (
                    Bound::Cache,
                    format!("cache-bound: no device behind it, all was done in memory; {computed}"),
                )
            };
        };
        let moved = disk.read_bytes + disk.written_bytes;
        let at_device = format!(
            "{} was busy {} of the time with {:.1} requests on average",
            disk.device,
            percent(disk.busy),
            disk.queue_mean
        );
        let leak = moved as f64 / self.bytes_asked.max(1) as f64;
        if disk.busy >= DEVICE_BUSY {
            (Bound::Device, format!("device-bound: {at_device}; {computed}"))
        } else if leak < CACHE_LEAK {
            let share = percent(leak);
            (
                Bound::Cache,
                format!(
                    "cache-bound: only {share} of the bytes reached the device in time; {at_device}; {computed}"
                ),
            )
        } else if self.cpu_share() >= CPU_BUSY {
            (Bound::Cpu, format!("CPU-bound: {computed}; {at_device}"))
        } else {
            (Bound::Unclear, format!("neither device nor CPU was the limit alone: {at_device}; {computed}"))
        }
    }
}

fn percent(share: f64) -> String {
    format!("{:.0}%", 100.0 * share)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(busy: f64, moved: u64, cpu_s: f64) -> Usage {
        let disk = DiskUse { device: "/dev/x".into(), busy, written_bytes: moved, ..DiskUse::default() };
        let half = Duration::from_secs_f64(cpu_s / 2.0);
        Usage {
            wall: Duration::from_secs(10),
            cpu: CpuTimes { user: half, sys: half },
            threads: 1,
            bytes_asked: 1_000_000,
            disk: Some(disk),
            remote: false,
        }
    }

    #[test]
    fn each_limit_is_told_by_its_own_numbers() {
        for (usage, bound) in [
            (usage(0.9, 900_000, 1.0), Bound::Device),
            (usage(0.1, 20_000, 9.5), Bound::Cache),
            (usage(0.3, 900_000, 9.5), Bound::Cpu),
            (usage(0.3, 900_000, 3.0), Bound::Unclear),
            (Usage { disk: None, ..usage(0.0, 0, 9.0) }, Bound::Cache),
            (Usage { disk: None, remote: true, ..usage(0.0, 0, 2.0) }, Bound::Server),
            (Usage { disk: None, remote: true, ..usage(0.0, 0, 9.0) }, Bound::Cpu),
        ] {
            let (found, text) = usage.bound();
            assert_eq!(found, bound, "{text}");
        }
    }

    #[test]
    fn the_sentence_carries_the_numbers_it_rests_on() {
        let (_, text) = usage(0.92, 900_000, 1.0).bound();
        assert!(text.contains("/dev/x was busy 92%") && text.contains("computed 10%"), "{text}");
    }
}
