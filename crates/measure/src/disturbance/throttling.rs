//! How long CPU quotas stopped the control groups of this process: `cpu.stat` of each group, versions 1 and 2.

use std::fs;
use std::time::Duration;

use crate::proc::{ControlGroups, number_after};

/// Since the groups were made, of the group that was stopped longest.
pub(super) fn throttled() -> Duration {
    longest(&ControlGroups::of_this_process())
}

fn longest(groups: &ControlGroups) -> Duration {
    let around = groups.version_2().into_iter().chain(groups.version_1("cpu"));
    let stats = around.filter_map(|group| fs::read_to_string(group.join("cpu.stat")).ok());
    stats.map(|stat| of_stat(&stat)).max().unwrap_or_default()
}

/// Microseconds in version 2, nanoseconds in version 1.
fn of_stat(stat: &str) -> Duration {
    let v2 = number_after(stat, "throttled_usec").map(Duration::from_micros);
    v2.or_else(|| number_after(stat, "throttled_time").map(Duration::from_nanos)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn throttling_of_a_group_around_this_one_counts_in_both_versions() {
        let v2 = root(&[
            ("proc/self/cgroup", "0::/user/run\n"),
            ("sys/fs/cgroup/user/cpu.stat", "usage_usec 9\nnr_throttled 3\nthrottled_usec 250000\n"),
            ("sys/fs/cgroup/user/run/cpu.stat", "usage_usec 9\nnr_throttled 0\nthrottled_usec 0\n"),
        ]);
        assert_eq!(longest(&ControlGroups::below(v2.path())), Duration::from_millis(250));
        let v1 = root(&[
            ("proc/self/cgroup", "4:memory:/other\n3:cpu,cpuacct:/job\n"),
            ("sys/fs/cgroup/cpu/job/cpu.stat", "nr_periods 9\nnr_throttled 3\nthrottled_time 70000000\n"),
        ]);
        assert_eq!(longest(&ControlGroups::below(v1.path())), Duration::from_millis(70));
    }

    #[test]
    fn without_control_groups_nothing_is_throttled() {
        assert_eq!(longest(&ControlGroups::below(root(&[]).path())), Duration::ZERO);
    }
}
