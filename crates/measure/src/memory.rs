//! How much memory this process may use.

use std::fs;
use std::path::{Path, PathBuf};

use crate::proc::{ControlGroups, memory_total_bytes};

/// Bytes of main memory that this process may use: what the machine has, or the least that a control group around this
/// process allows (version 2 `memory.max`, version 1 `memory.limit_in_bytes`), as in containers and under systemd's
/// `MemoryMax=`. `None` where the kernel does not say.
pub fn memory_bytes() -> Option<u64> {
    allowed_bytes(Path::new("/"))
}

/// The same as files under `root` say.
fn allowed_bytes(root: &Path) -> Option<u64> {
    let text = |path: PathBuf| fs::read_to_string(path).ok();
    let machine = text(root.join("proc/meminfo")).and_then(|text| memory_total_bytes(&text));
    let groups = ControlGroups::below(root);
    let version_2 = groups.version_2().into_iter().map(|group| group.join("memory.max"));
    let version_1 = groups.version_1("memory").into_iter().map(|group| group.join("memory.limit_in_bytes"));
    // `max` is no limit.
    let limits = version_2.chain(version_1).filter_map(|file| text(file)?.trim().parse().ok());
    machine.into_iter().chain(limits).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(files: &[(&str, &str)]) -> Option<u64> {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        allowed_bytes(root.path())
    }

    const MACHINE: (&str, &str) = ("proc/meminfo", "MemTotal:        2048000 kB\nMemFree:  1 kB\n");

    #[test]
    fn the_least_of_the_machine_and_all_groups_around_is_allowed() {
        assert_eq!(allowed(&[]), None);
        assert_eq!(allowed(&[MACHINE]), Some(2_048_000 << 10));
        let v2 = ("proc/self/cgroup", "0::/system.slice/crumb.service\n");
        let (own, slice) =
            ("sys/fs/cgroup/system.slice/crumb.service/memory.max", "sys/fs/cgroup/system.slice/memory.max");
        assert_eq!(allowed(&[MACHINE, v2, (own, "max\n"), (slice, "max\n")]), Some(2_048_000 << 10));
        assert_eq!(allowed(&[MACHINE, v2, (own, "536870912\n"), (slice, "max\n")]), Some(512 << 20));
        assert_eq!(allowed(&[MACHINE, v2, (own, "536870912\n"), (slice, "1000000\n")]), Some(1_000_000));
    }

    #[test]
    fn groups_of_version_1_count_where_they_are_of_memory_and_from_within_a_container_too() {
        let v1 = ("proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory,hugetlb:/docker/1f\n0::/\n");
        let cpu = ("sys/fs/cgroup/cpu/a/memory.limit_in_bytes", "1\n");
        let host = ("sys/fs/cgroup/memory/docker/1f/memory.limit_in_bytes", "1000000\n");
        let inside = ("sys/fs/cgroup/memory/memory.limit_in_bytes", "2000000\n");
        assert_eq!(allowed(&[MACHINE, v1, cpu, host]), Some(1_000_000));
        assert_eq!(allowed(&[MACHINE, v1, cpu, inside]), Some(2_000_000));
        let none = ("sys/fs/cgroup/memory/docker/1f/memory.limit_in_bytes", "9223372036854771712\n");
        assert_eq!(allowed(&[MACHINE, v1, none]), Some(2_048_000 << 10));
    }

    #[test]
    fn this_machine_has_some() {
        assert!(memory_bytes().is_some_and(|bytes| bytes > 1 << 20));
    }
}
