//! Whether the memory that a configuration may come to need is there.
//!
//! Allowed is what the machine has, or the least that a control group around this process may take (cgroup v2
//! `memory.max`, v1 `memory.limit_in_bytes`), as in containers and under `MemoryMax=`.

use std::fs;
use std::path::Path;

use report::{bytes_text, count_text};

/// What a request that waits for an origin takes (`requests_that_wait_for_an_origin_take_few_bytes_each`).
const WAITING_BYTES: u64 = 40_000;

/// What to tell the user where so many connections and the cache's own `cache_bytes` may need more than is allowed.
pub fn shortage(connections: u64, cache_bytes: u64, allowed_bytes: u64) -> Option<String> {
    let waiting_bytes = connections.saturating_mul(WAITING_BYTES);
    let bytes = cache_bytes.saturating_add(waiting_bytes);
    if bytes <= allowed_bytes {
        return None;
    }
    let mut text = format!(
        "{} of memory are allowed, and {} may be needed: {} by the cache, {} when each of limits.connections = {} waits \
         for an origin; allow more (MemoryMax=)",
        bytes_text(allowed_bytes),
        bytes_text(bytes),
        bytes_text(cache_bytes),
        bytes_text(waiting_bytes),
        connections
    );
    match allowed_bytes.saturating_sub(cache_bytes) / WAITING_BYTES {
        0 => text.push_str(" or make the cache smaller"),
        fits => text.push_str(&format!(" or fewer connections, at most {}", count_text(fits))),
    }
    Some(text)
}

/// Bytes that this process may take at most, as files under `root` say; `None` where none does.
pub fn allowed_bytes(root: &Path) -> Option<u64> {
    let text = |path: &str| fs::read_to_string(root.join(path)).ok();
    let machine = text("proc/meminfo").and_then(|told| {
        let kib = told.lines().find_map(|line| line.strip_prefix("MemTotal:"))?.trim().strip_suffix("kB")?;
        Some(kib.trim().parse::<u64>().ok()? << 10)
    });
    let groups = text("proc/self/cgroup").unwrap_or_default();
    let limits = groups.lines().flat_map(|line| {
        // number:controllers:path, without controllers in v2
        let mut parts = line.splitn(3, ':').skip(1);
        let (file, path) = match (parts.next(), parts.next()) {
            (Some(""), Some(path)) => ("memory.max", format!("sys/fs/cgroup{path}")),
            (Some(controllers), Some(path)) if controllers.split(',').any(|name| name == "memory") => {
                ("memory.limit_in_bytes", format!("sys/fs/cgroup/memory{path}"))
            }
            _ => return Vec::new(),
        };
        // The groups around it bound it too. In a container its own group is often the topmost that is seen.
        let around = Path::new(&path).ancestors().filter_map(|group| text(group.join(file).to_str()?));
        around.filter_map(|told| told.trim().parse().ok()).collect::<Vec<u64>>()
    });
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
    fn what_is_short_is_told_with_what_fits() {
        assert_eq!(shortage(10_000, 100_000_000, 500_000_000), None);
        let told = shortage(10_001, 100_000_000, 500_000_000).unwrap();
        assert!(
            told.starts_with("500 MB of memory are allowed, and 500 MB may be needed: 100 MB by the cache"),
            "{told}"
        );
        assert!(told.ends_with("limits.connections = 10001 waits for an origin; allow more (MemoryMax=) or fewer connections, at most 10,000"), "{told}");
        let told = shortage(1, 600_000_000, 500_000_000).unwrap();
        assert!(told.ends_with("or make the cache smaller"), "{told}");
    }
}
