//! What was read and measured: values without conclusions, as they go into JSON.

use std::path::PathBuf;

use measure::{Environment, MachineUse};
use serde::Serialize;

/// Everything that conclusions rest on.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Facts {
    /// The machine this runs on.
    pub machine: MachineFacts,
    /// The storage behind the target.
    pub target: TargetFacts,
    /// Measured loops: the target first, then what it is compared with.
    pub places: Vec<PlaceFacts>,
    /// What waking a thread costs.
    pub wake_up: Option<WakeUp>,
    /// What the machine did while the loops ran.
    pub machine_use: Option<UseFacts>,
    /// What could not be read, and is taken to be as usual.
    pub assumed: Vec<String>,
}

/// The machine.
#[derive(Clone, Debug, Default, Serialize)]
pub struct MachineFacts {
    /// Kernel, processor, governor, clock source, memory, load.
    pub environment: Environment,
    /// A hypervisor is below the kernel.
    pub is_virtual: bool,
    /// Root runs it.
    pub is_root: bool,
    /// Driver of the governor's frequencies, such as `intel_pstate`.
    pub frequency_driver: Option<String>,
    /// States a CPU sleeps in, as processor 0 has them; none where the kernel manages none.
    pub idle_states: Vec<IdleState>,
    /// CPUs that control groups let this process use on average; none without a quota.
    pub cpu_quota: Option<f64>,
    /// Memory that this process may use, in bytes: the machine's, or a control group's limit.
    pub memory_bytes_allowed: Option<u64>,
    /// Reading the clock once, in nanoseconds.
    pub clock_read_ns: f64,
}

/// A state that a CPU sleeps in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct IdleState {
    /// As the driver names it: `C6`.
    pub name: String,
    /// Microseconds that leaving it takes, as the driver claims.
    pub exit_us: u64,
    /// An administrator switched it off.
    pub is_disabled: bool,
}

/// The storage behind the target.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TargetFacts {
    /// As it was given, links resolved when it is a directory.
    pub place: String,
    /// Its directory on this machine; none of a server's.
    pub path: Option<PathBuf>,
    /// The mount that holds it.
    pub mount: Option<MountFacts>,
    /// Room in its file system.
    pub space: Option<SpaceFacts>,
    /// Why no directory could be made in it.
    pub unwritable: Option<String>,
    /// The status behind that, by its name in NFSv3.
    pub unwritable_status: Option<String>,
    /// The target's own directory.
    pub directory: Option<DirectoryFacts>,
    /// The largest directory that was seen below it, if another one.
    pub largest: Option<DirectoryFacts>,
    /// Directories that were looked at, and whether all were.
    pub directories_seen: u64,
    /// All below the target were looked at.
    pub saw_all: bool,
    /// Whether new directories get an index (ext4), by how a new one of many names looks. None where that is not known.
    pub new_directories_are_indexed: Option<bool>,
}

/// A line of the table of mounts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MountFacts {
    /// Where it is mounted.
    pub point: PathBuf,
    /// Device or server.
    pub source: String,
    /// Type, such as `ext4`.
    pub kind: String,
    /// Options, of the mount and of the file system; those that ext4 has by default too, where the kernel lists them.
    pub options: Vec<String>,
}

/// Room in a file system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SpaceFacts {
    /// Size, bytes; 0 where the storage does not say.
    pub bytes_total: u64,
    /// Free, bytes.
    pub bytes_free: u64,
    /// Free for this user, bytes.
    pub bytes_available: u64,
    /// Inodes; 0 where the storage makes them as needed.
    pub inodes_total: u64,
    /// Free inodes for this user.
    pub inodes_available: u64,
}

/// A directory by itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DirectoryFacts {
    /// Where.
    pub path: PathBuf,
    /// Its own size, in bytes: what the storage needs, or once needed, for its names.
    pub own_bytes: u64,
    /// Bytes of one block of it.
    pub block_bytes: u64,
    /// Names in it, as far as they were counted.
    pub names: u64,
    /// All names were counted.
    pub is_counted: bool,
    /// ext4: has an index of its names. None where the question makes no sense, or in one block.
    pub is_indexed: Option<bool>,
    /// Names are compared without regard to case.
    pub folds_case: bool,
    /// Looking up a name that is not there, median, in microseconds.
    pub negative_lookup_us: Option<f64>,
    /// ext4 without `large_dir`: the numbers of names, of lengths as those there, between which it refuses the next one.
    pub names_max: Option<NamesMax>,
    /// Its layout, if `crumb manage` has spread its entries over subdirectories; set by the caller, which knows layouts.
    pub managed: Option<String>,
}

/// How many names a directory takes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct NamesMax {
    /// It takes this number at least.
    pub low: u64,
    /// And this at most.
    pub high: u64,
}

/// Loops in one place.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct PlaceFacts {
    /// `here`, `tmpfs` or `/tmp`.
    pub name: String,
    /// The directory.
    pub path: String,
    /// Type of the file system.
    pub kind: String,
    /// One for each operation that could be done.
    pub basics: Vec<Basic>,
    /// Why loops ended, when an operation failed.
    pub failed: Option<String>,
}

/// A short closed loop of one operation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Basic {
    /// Which.
    pub op: BasicOp,
    /// One operation, in microseconds: the median of the means of batches.
    pub median_us: f64,
    /// The slowest batch's mean, in microseconds.
    pub worst_us: f64,
    /// Operations a second of one thread, by the median.
    pub per_sec: f64,
    /// Operations timed.
    pub operations: u64,
}

/// An operation of the loops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BasicOp {
    /// Makes an empty file and closes it.
    Create,
    /// Attributes of a file that is there.
    Stat,
    /// Attributes of a name that is not there.
    NegativeLookup,
    /// Opens a file of 4 KiB, reads it from the page cache, closes it.
    ReadCached,
    /// The same after its pages were dropped.
    ReadDropped,
    /// Writes 4 KiB to a new file and makes it durable (fsync).
    Fsync,
    /// Removes a file.
    Unlink,
}

/// What it costs to wake a thread that sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct WakeUp {
    /// Median, microseconds.
    pub median_us: f64,
    /// 99th percentile, microseconds.
    pub p99_us: f64,
    /// Wake-ups measured.
    pub count: u32,
}

/// What the machine did meanwhile, as shares from 0 to 1.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct UseFacts {
    /// CPU time that the hypervisor kept, of that which was asked for.
    pub stolen: f64,
    /// Time in which a CPU quota stopped this process.
    pub throttled: f64,
    /// CPUs that other processes used.
    pub others_cpus: f64,
    /// Time of this process that was lost to others.
    pub lost_to_others: f64,
    /// Programs that used most CPU time meanwhile.
    pub programs: Vec<String>,
}

impl Facts {
    /// The loops in the target.
    pub fn here(&self) -> Option<&PlaceFacts> {
        self.places.first()
    }

    /// The loops in memory.
    pub fn in_memory(&self) -> Option<&PlaceFacts> {
        self.places.iter().skip(1).find(|place| place.kind == "tmpfs")
    }

    /// One operation in the target, in microseconds.
    pub fn here_us(&self, op: BasicOp) -> Option<f64> {
        self.here()?.us(op)
    }

    /// The directory with the most names that was seen; none that is managed, whose names are those of subdirectories.
    pub fn largest(&self) -> Option<&DirectoryFacts> {
        self.target.unmanaged().max_by_key(|directory| (directory.names, directory.own_bytes))
    }
}

impl PlaceFacts {
    /// One operation, in microseconds.
    pub fn us(&self, op: BasicOp) -> Option<f64> {
        self.basics.iter().find(|basic| basic.op == op).map(|basic| basic.median_us)
    }
}

impl TargetFacts {
    /// The directories looked at that no layout spreads over subdirectories.
    pub(crate) fn unmanaged(&self) -> impl Iterator<Item = &DirectoryFacts> {
        let both = self.directory.iter().chain(&self.largest);
        both.filter(|directory| directory.managed.is_none())
    }

    /// Type of the file system; empty where that is not known.
    pub fn kind(&self) -> &str {
        self.mount.as_ref().map_or("", |mount| &mount.kind)
    }

    /// Its contents are gone after a reboot.
    pub fn is_volatile(&self) -> bool {
        matches!(self.kind(), "tmpfs" | "ramfs")
    }

    /// ext2, ext3 or ext4.
    pub fn is_ext(&self) -> bool {
        matches!(self.kind(), "ext2" | "ext3" | "ext4")
    }
}

impl MountFacts {
    /// Whether this option is set.
    pub fn has(&self, option: &str) -> bool {
        self.options.iter().any(|one| one == option)
    }

    /// A server is behind it.
    pub fn is_network(&self) -> bool {
        let kinds = ["nfs", "nfs4", "cifs", "smb3", "ceph", "9p", "afs", "lustre", "beegfs", "gpfs", "ocfs2"];
        let over_fuse =
            ["fuse.sshfs", "fuse.glusterfs", "fuse.s3fs", "fuse.rclone", "fuse.ceph", "fuse.gcsfuse"];
        kinds.contains(&&*self.kind) || over_fuse.contains(&&*self.kind)
    }

    /// A program answers the kernel.
    pub fn is_fuse(&self) -> bool {
        self.kind == "fuse" || self.kind == "fuseblk" || self.kind.starts_with("fuse.")
    }
}

impl SpaceFacts {
    /// Share of the bytes in use, as df(1) has it: what is reserved for root counts as gone. None where it is not known.
    pub fn bytes_used_share(&self) -> Option<f64> {
        let used = self.bytes_total.saturating_sub(self.bytes_free);
        (self.bytes_total > 0).then(|| used as f64 / ((used + self.bytes_available).max(1)) as f64)
    }

    /// Share of the inodes in use. None where inodes are made as needed.
    pub fn inodes_used_share(&self) -> Option<f64> {
        let used = self.inodes_total.saturating_sub(self.inodes_available);
        (self.inodes_total > 0).then(|| used as f64 / self.inodes_total as f64)
    }
}

impl From<&MachineUse> for UseFacts {
    fn from(machine: &MachineUse) -> Self {
        Self {
            stolen: machine.stolen_share(),
            throttled: machine.throttled_share(),
            others_cpus: machine.others_cpus(),
            lost_to_others: machine.lost_to_others(),
            programs: machine.named.iter().map(|(name, ..)| name.clone()).collect(),
        }
    }
}

impl BasicOp {
    /// In the order in which they are shown.
    pub const ALL: [Self; 7] = [
        Self::Create,
        Self::Stat,
        Self::NegativeLookup,
        Self::ReadCached,
        Self::ReadDropped,
        Self::Fsync,
        Self::Unlink,
    ];

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Stat => "stat",
            Self::NegativeLookup => "lookup of no file",
            Self::ReadCached => "read 4 KiB, cached",
            Self::ReadDropped => "read 4 KiB, dropped",
            Self::Fsync => "write 4 KiB + fsync",
            Self::Unlink => "unlink",
        }
    }
}
