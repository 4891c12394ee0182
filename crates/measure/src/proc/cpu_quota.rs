//! CPU quotas of control groups: `cpu.max` in version 2, `cpu.cfs_quota_us` in version 1.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use super::{ControlGroups, number_after};

/// A control group with a CPU quota.
#[derive(Clone, Debug, PartialEq)]
pub struct CpuQuota {
    /// Its directory.
    pub group: PathBuf,
    /// CPUs that its processes may use together, on average over a period.
    pub cpus: f64,
    /// CPU time that they have used so far.
    pub used: Duration,
}

impl ControlGroups {
    /// Quotas of the group and of those around it, in both versions. The least of them is in force.
    pub fn cpu_quotas(&self) -> Vec<CpuQuota> {
        let text = |path: PathBuf| fs::read_to_string(path).ok();
        let number = |path: PathBuf| text(path)?.trim().parse::<f64>().ok();
        let mut quotas = Vec::new();
        for group in self.version_2() {
            if let Some(cpus) = text(group.join("cpu.max")).and_then(|text| of_version_2(&text)) {
                let used_us = text(group.join("cpu.stat")).and_then(|text| number_after(&text, "usage_usec"));
                quotas.push(CpuQuota { cpus, used: Duration::from_micros(used_us.unwrap_or(0)), group });
            }
        }
        let accounts = self.version_1("cpuacct");
        for (at, group) in self.version_1("cpu").into_iter().enumerate() {
            let (quota, period) =
                (number(group.join("cpu.cfs_quota_us")), number(group.join("cpu.cfs_period_us")));
            if let (Some(quota), Some(period)) = (quota, period)
                && quota > 0.0
            {
                let used_ns = accounts.get(at).and_then(|account| number(account.join("cpuacct.usage")));
                let used = Duration::from_nanos(used_ns.unwrap_or(0.0) as u64);
                quotas.push(CpuQuota { cpus: quota / period.max(1.0), used, group });
            }
        }
        quotas
    }
}

/// `200000 100000` is two CPUs; `max 100000` is no quota.
fn of_version_2(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?.max(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quotas(files: &[(&str, &str)]) -> Vec<(f64, f64)> {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let quotas = ControlGroups::below(root.path()).cpu_quotas().into_iter();
        quotas.map(|quota| (quota.cpus, quota.used.as_secs_f64())).collect()
    }

    #[test]
    fn quotas_of_both_versions_are_found_in_all_groups_around() {
        let v2 = quotas(&[
            ("proc/self/cgroup", "0::/system.slice/crumb.service\n"),
            ("sys/fs/cgroup/system.slice/crumb.service/cpu.max", "max 100000\n"),
            ("sys/fs/cgroup/system.slice/cpu.max", "150000 100000\n"),
            ("sys/fs/cgroup/system.slice/cpu.stat", "usage_usec 2500000\nuser_usec 1\n"),
        ]);
        assert_eq!(v2, [(1.5, 2.5)]);
        let v1 = quotas(&[
            ("proc/self/cgroup", "5:memory:/a\n4:cpuacct,cpu:/docker/1f\n0::/\n"),
            // Inside the container its own group is the topmost.
            ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000\n"),
            ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
            ("sys/fs/cgroup/cpuacct/cpuacct.usage", "4000000000\n"),
        ]);
        assert_eq!(v1, [(0.5, 4.0)]);
        let unlimited = quotas(&[
            ("proc/self/cgroup", "4:cpu:/\n0::/\n"),
            ("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n"),
            ("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"),
        ]);
        assert_eq!(unlimited, []);
    }
}
