//! How long CPU quotas stopped the control groups of this process: `cpu.stat` of each group, versions 1 and 2.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Since the groups were made, of the group that was stopped longest.
pub(super) fn throttled() -> Duration {
    throttled_below(Path::new("/"))
}

/// By the files under `root`.
fn throttled_below(root: &Path) -> Duration {
    let text = |path: &Path| fs::read_to_string(root.join(path)).unwrap_or_default();
    let membership = text(Path::new("proc/self/cgroup"));
    let groups = membership.lines().filter_map(group_of);
    groups
        .flat_map(|group| around(&group))
        .map(|group| of_stat(&text(&group.join("cpu.stat"))))
        .max()
        .unwrap_or_default()
}

/// The directory of the group in a line `number:controllers:path`; without controllers in version 2.
fn group_of(line: &str) -> Option<PathBuf> {
    let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
    let mount = match controllers {
        "" => "sys/fs/cgroup".to_owned(),
        controllers if controllers.split(',').any(|name| name == "cpu") => {
            format!("sys/fs/cgroup/{controllers}")
        }
        _ => return None,
    };
    Some(PathBuf::from(format!("{mount}{path}")))
}

/// The group and those around it: in a container its own is often the topmost that is seen.
fn around(group: &Path) -> Vec<PathBuf> {
    group.ancestors().filter(|path| path.starts_with("sys/fs/cgroup")).map(Path::to_owned).collect()
}

/// Microseconds in version 2, nanoseconds in version 1.
fn of_stat(stat: &str) -> Duration {
    let number = |name: &str| {
        let line = stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|number| number.trim().parse::<u64>().ok())
    };
    let v2 = number("throttled_usec").map(Duration::from_micros);
    v2.or_else(|| number("throttled_time").map(Duration::from_nanos)).unwrap_or_default()
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
        assert_eq!(throttled_below(v2.path()), Duration::from_millis(250));
        let v1 = root(&[
            ("proc/self/cgroup", "4:memory:/other\n3:cpu,cpuacct:/job\n"),
            (
                "sys/fs/cgroup/cpu,cpuacct/job/cpu.stat",
                "nr_periods 9\nnr_throttled 3\nthrottled_time 70000000\n",
            ),
        ]);
        assert_eq!(throttled_below(v1.path()), Duration::from_millis(70));
    }

    #[test]
    fn without_control_groups_nothing_is_throttled() {
        assert_eq!(throttled_below(root(&[]).path()), Duration::ZERO);
    }
}
