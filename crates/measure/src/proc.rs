//! What the kernel says in `/proc` and `/sys/fs/cgroup`: the one reader, with the units and versions of each file.
//!
//! | file | reader | units in the file |
//! |---|---|---|
//! | `/proc/PID/stat`, `io`, `status` | [`ProcessStat`], [`written_bytes`], [`resident_bytes`] | clock ticks; bytes; KiB |
//! | `/proc/stat` | [`idle_by_cpu`] | clock ticks |
//! | `/proc/meminfo` | [`memory_total_bytes`] | KiB |
//! | `/proc/self/mountinfo` | [`MountInfo`] | names with octal escapes |
//! | `/proc/self/cgroup`, `/sys/fs/cgroup` | [`ControlGroups`], [`CpuQuota`] | versions 1 and 2 differ: see there |
//!
//! Always holds: a file that is missing, or that another kernel writes in another way, gives `None` or nothing, never a panic.
//! Each parser takes the file's text, so that its tests are texts as kernels wrote them.
//! Not here: what is concluded from these numbers (see `cpu`, `memory`, `environment`).
//! Source: proc(5), cgroups(7).

mod control_groups;
mod cpu_quota;
mod mount_info;
mod process;

use std::fs;
use std::time::Duration;

pub use control_groups::ControlGroups;
pub use cpu_quota::CpuQuota;
pub use mount_info::{MountInfo, unescaped};
pub use process::{ProcessStat, process_ids, resident_bytes, written_bytes};

/// The number in the line that begins with `name`, as in `MemTotal:   2048 kB` or `usage_usec 17`. The unit is the file's.
pub fn number_after(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        let rest = line.strip_prefix(name)?.trim_start_matches([':', ' ', '\t']);
        rest.split_whitespace().next()?.parse().ok()
    })
}

/// Main memory of the machine by the text of `/proc/meminfo`, in bytes.
pub fn memory_total_bytes(meminfo: &str) -> Option<u64> {
    number_after(meminfo, "MemTotal:").map(|kib| kib << 10)
}

/// How long each CPU was idle since the machine started, waiting for a disk included, by the text of `/proc/stat`. CPUs are
/// numbered as the kernel numbers them; those that are switched off are missing.
pub fn idle_by_cpu(stat: &str) -> Vec<(usize, Duration)> {
    let of_line = |line: &str| {
        // The line of all CPUs together has a blank in the place of the number.
        let mut fields = line.strip_prefix("cpu")?.split(' ');
        let cpu = fields.next()?.parse().ok()?;
        let idle = fields.skip(3).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
        Some((cpu, of_ticks(idle)))
    };
    stat.lines().filter_map(of_line).collect()
}

/// A time that the kernel counts in clock ticks, mostly 100 a second.
fn of_ticks(ticks: u64) -> Duration {
    Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_found_by_the_whole_name_of_its_line() {
        let text = "VmPeak:\t 9 kB\nVmRSS:\t  512 kB\nusage_usec_max 7\nusage_usec 17\n";
        assert_eq!(number_after(text, "VmRSS:"), Some(512));
        assert_eq!(number_after(text, "usage_usec"), Some(17));
        assert_eq!(number_after(text, "VmSwap:"), None);
        assert_eq!(
            memory_total_bytes("MemTotal:        2048000 kB\nMemFree:  1 kB\n"),
            Some(2_048_000 << 10)
        );
        assert_eq!(memory_total_bytes(""), None);
    }

    #[test]
    fn idle_time_is_of_each_cpu_and_not_of_all_together() {
        let stat = "cpu  9 9 9 900 90 9\ncpu0 1 1 1 300 20 1 0\ncpu1 1 1 1 600 70 1 0\nintr 5\n";
        assert_eq!(idle_by_cpu(stat), [(0, of_ticks(320)), (1, of_ticks(670))]);
        assert_eq!(idle_by_cpu("cpu\ncpux 1\ncpu3\n"), [(3, Duration::ZERO)]);
    }
}
