//! A control group with a CPU quota, as a container has one: versions 1 and 2.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::need;

/// A group of its own, removed when it is dropped; the processes in it must have ended by then.
pub struct CpuQuota {
    group: PathBuf,
}

const PERIOD_US: u32 = 100_000;

impl CpuQuota {
    /// Makes one that allows `cpus` of a CPU, for a test that needs it: where it cannot be made, the test is skipped or fails.
    pub fn needed(cpus: f64) -> Option<Self> {
        if !need::root("a control group") {
            return None;
        }
        need::host(need::HostFeature::CpuQuotas, Self::make(cpus))
    }

    fn make(cpus: f64) -> io::Result<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!("crumb-test-{}-{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        let quota_us = (cpus * f64::from(PERIOD_US)).round();
        let (v2, v1) = (Path::new("/sys/fs/cgroup"), Path::new("/sys/fs/cgroup/cpu"));
        let has_v2 = fs::read_to_string(v2.join("cgroup.controllers"))
            .is_ok_and(|controllers| controllers.split_whitespace().any(|one| one == "cpu"));
        let group = Self { group: if has_v2 { v2 } else { v1 }.join(name) };
        fs::create_dir(&group.group)?;
        if has_v2 {
            // Where the topmost group does not hand the controller on, there is no such file below.
            fs::write(v2.join("cgroup.subtree_control"), "+cpu")?;
            fs::write(group.group.join("cpu.max"), format!("{quota_us} {PERIOD_US}"))?;
        } else {
            fs::write(group.group.join("cpu.cfs_period_us"), PERIOD_US.to_string())?;
            fs::write(group.group.join("cpu.cfs_quota_us"), quota_us.to_string())?;
        }
        Ok(group)
    }

    /// `program` to be started in the group, all of its time.
    pub fn command(&self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]);
        command.arg(self.group.join("cgroup.procs")).arg(program.as_ref());
        command
    }
}

impl Drop for CpuQuota {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.group);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_runs_in_the_group_which_is_gone_afterwards() {
        let Some(quota) = CpuQuota::needed(0.5) else { return };
        let output = quota.command("/bin/cat").arg("/proc/self/cgroup").output().expect("cat runs");
        let (text, group) = (String::from_utf8_lossy(&output.stdout), quota.group.clone());
        let name = group.file_name().expect("a name").to_string_lossy();
        assert!(text.contains(&*name), "{text}");
        drop(quota);
        assert!(!group.exists());
    }
}
