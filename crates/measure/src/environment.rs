//! The machine and build a run was made on, recorded without being asked.
//!
//! Every field is read from `/proc`, `/sys` and `uname`; what cannot be read is left empty rather than
//! guessed, so that a record from another kernel or a container still reads back.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::numbers::{bytes_text, grouped};
use crate::proc;

/// Where and with what a run was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// Version of Crumb.
    pub crumb_version: String,
    /// Commit that Crumb was built from, with `-modified` when sources differed from it; not known of debug builds and old
    /// records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub crumb_commit: Option<String>,
    /// `release` or `debug`; figures of a debug build are not to be trusted.
    pub build_profile: String,
    /// Name of the generator's host.
    pub host: String,
    /// Operating system and kernel release, such as `Linux 6.18.1`.
    pub kernel: String,
    /// CPU model as the kernel names it.
    pub cpu_model: String,
    /// Processors this process may run on.
    pub cpus: u32,
    /// CPU frequency governor of processor 0, where there is one.
    pub cpu_governor: Option<String>,
    /// Main memory, bytes.
    pub memory_bytes: u64,
    /// Kernel clock source, such as `tsc`.
    pub clock_source: Option<String>,
    /// One-minute load average when the run began: other work on the machine.
    pub load_average: f64,
    /// File system under a directory target.
    pub mount: Option<MountPoint>,
}

/// The mounted file system that holds a path.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MountPoint {
    /// Where it is mounted.
    pub path: String,
    /// Device or source, such as `/dev/sda1`.
    pub device: String,
    /// Type, such as `ext4`.
    pub fs_type: String,
    /// Mount options, as the kernel lists them.
    pub options: String,
}

impl Environment {
    /// Reads this machine; `directory` is where the target lies, when it is a local one.
    pub fn capture(crumb_version: &str, directory: Option<&Path>) -> Self {
        let uname = rustix::system::uname();
        let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        Self {
            crumb_version: crumb_version.to_owned(),
            crumb_commit: None,
            build_profile: if cfg!(debug_assertions) { "debug" } else { "release" }.to_owned(),
            host: uname.nodename().to_string_lossy().into_owned(),
            kernel: format!("{} {}", uname.sysname().to_string_lossy(), uname.release().to_string_lossy()),
            cpu_model: first_line_after("/proc/cpuinfo", "model name")
                .map(|line| line.trim_start_matches([' ', '\t', ':']).to_owned())
                .unwrap_or_default(),
            cpus: std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
            cpu_governor: trimmed("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            memory_bytes: proc::memory_total_bytes(&meminfo).unwrap_or(0),
            clock_source: trimmed("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            load_average: load.split_whitespace().next().and_then(|one| one.parse().ok()).unwrap_or(0.0),
            mount: directory.and_then(MountPoint::of),
        }
    }
}

impl Environment {
    /// Version of Crumb, with its commit where that is known: `0.1.0 (8f3a2b1c9d0e)`.
    pub fn version(&self) -> String {
        let commit = self.crumb_commit.as_ref().map_or_else(String::new, |commit| format!(" ({commit})"));
        format!("{}{commit}", self.crumb_version)
    }

    /// What it is, in words: only what is known.
    pub fn in_words(&self) -> Vec<(&'static str, String)> {
        let memory = match self.memory_bytes {
            0 => String::new(),
            bytes => bytes_text(bytes),
        };
        let mount = self.mount.as_ref().map_or_else(String::new, |mount| {
            format!("{} at {}: {} ({})", mount.device, mount.path, mount.fs_type, mount.options)
        });
        let build = match self.build_profile.as_str() {
            "debug" => format!("Crumb {}, debug build: figures are not to be trusted", self.version()),
            profile => format!("Crumb {}, {profile} build", self.version()),
        };
        let mut lines = vec![
            ("Generator host", self.host.clone()),
            ("Kernel", self.kernel.clone()),
            ("Processor", format!("{} ({} usable)", self.cpu_model, self.cpus)),
            ("Frequency governor", self.cpu_governor.clone().unwrap_or_default()),
            ("Memory", memory),
            ("Clock source", self.clock_source.clone().unwrap_or_default()),
            ("Load average at start", grouped(self.load_average, 2)),
            ("Mount", mount),
            ("Program", build),
        ];
        lines.retain(|(_, text)| !text.is_empty());
        lines
    }

    /// What must be equal for runs to be comparable: the words for it, and what it is here; empty where it is not known.
    pub fn conditions(&self) -> [(&'static str, String); 10] {
        let mount = self.mount.clone().unwrap_or_default();
        [
            ("the host", self.host.clone()),
            ("the kernel", self.kernel.clone()),
            ("the processor", self.cpu_model.clone()),
            ("the number of processors", self.cpus.to_string()),
            ("the frequency governor", self.cpu_governor.clone().unwrap_or_default()),
            ("the memory", bytes_text(self.memory_bytes)),
            ("the version of Crumb", self.version()),
            ("the build of Crumb", self.build_profile.clone()),
            ("the file system", mount.fs_type),
            ("the list of mount options", mount.options),
        ]
    }
}

impl MountPoint {
    /// The mount that holds `path`: the longest mount point that is a prefix of it, the last one mounted
    /// when several are equal.
    pub fn of(path: &Path) -> Option<Self> {
        let path = fs::canonicalize(path).ok()?;
        Self::find(&fs::read_to_string("/proc/self/mounts").ok()?, &path)
    }

    fn find(mounts: &str, path: &Path) -> Option<Self> {
        mounts
            .lines()
            .filter_map(|line| {
                let unescape = |field: &str| proc::unescaped(field.as_bytes()).to_string_lossy().into_owned();
                let mut fields = line.split(' ');
                Some(Self {
                    device: unescape(fields.next()?),
                    path: unescape(fields.next()?),
                    fs_type: fields.next()?.to_owned(),
                    options: fields.next()?.to_owned(),
                })
            })
            .filter(|mount| path.starts_with(&mount.path))
            .max_by_key(|mount| mount.path.len())
    }
}

fn first_line_after(file: &str, prefix: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    text.lines().find_map(|line| line.strip_prefix(prefix)).map(|rest| rest.trim().to_owned())
}

fn trimmed(file: &str) -> Option<String> {
    fs::read_to_string(file).ok().map(|text| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capturing_this_machine_fills_what_every_linux_has() {
        let here = Environment::capture("9.9.9", Some(Path::new("/")));
        assert_eq!(here.crumb_version, "9.9.9");
        assert!(here.kernel.starts_with("Linux "), "{}", here.kernel);
        assert!(here.memory_bytes > 1 << 20 && here.cpus > 0);
        assert_eq!(here.mount.map(|mount| mount.path), Some("/".to_owned()));
    }

    #[test]
    fn the_deepest_and_latest_mount_is_the_one_that_holds_a_path() {
        let mounts = "/dev/a / ext4 rw 0 0\n/dev/b /mnt/my\\040disk xfs rw,noatime 0 0\ntmpfs /mnt/my\\040disk tmpfs rw 0 0\n";
        let found = MountPoint::find(mounts, Path::new("/mnt/my disk/spool")).unwrap();
        assert_eq!((found.fs_type.as_str(), found.path.as_str()), ("tmpfs", "/mnt/my disk"));
        assert_eq!(MountPoint::find(mounts, Path::new("/mnt/my")).unwrap().device, "/dev/a");
    }
}
