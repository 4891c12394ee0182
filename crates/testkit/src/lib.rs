//! What tests share: storage whose behaviour is known beforehand, and real servers on loopback.
//!
//! ```text
//! LawTransport    answers after times drawn from a law, on a clock that only it moves; stalls on demand
//! conformance     one suite that every FileSystem passes
//! Ganesha         a real nfs-ganesha with its own ports and folders, stopped by its own process id
//! Inn             a real innd on a port of its own, and the tools of the same package, unpacked and not installed
//! LoopImage       a real file system of its own on a loop device, unmounted when dropped
//! Tmpfs           a small file system in memory, to be full or read-only
//! SlowFuse        a volume that takes its time for each operation on names and attributes
//! CpuQuota        a control group with a CPU quota, as a container has one
//! Golden          committed records of runs, compared field by field, what the machine decides masked
//! HeldDisk        on which a store comes further only when it is let
//! SimulatedDisk   a directory in memory that fails, tears, loses and reorders writes, and stops where the test says
//! is_ordinary_user  runs a test again in a child without privileges, where it was started as root
//! with_fuse_ring  begins a mount while FUSE over io_uring is switched on
//! need            what a test needs of the machine: where it is missing, the test is listed as skipped, or fails in CI
//! ```
//!
//! A dev-dependency only. Not here: anything that a user runs.

pub mod conformance;
mod cpu_quota;
mod ganesha;
mod golden;
mod held_disk;
mod inn;
mod law;
mod loop_image;
pub mod need;
mod ordinary_user;
mod ring_switch;
mod slow_fuse;
mod tmpfs;

pub use cpu_quota::CpuQuota;
/// Disks, for tests of crates that know `disk` through another one.
pub use disk::{DiskFault, DiskOperation, LocalDisk, STOPPED, SimulatedDisk};
pub use ganesha::Ganesha;
pub use golden::Golden;
pub use held_disk::{Held, HeldDisk};
pub use inn::{Inn, InnCpu, InnRecord, InnStorage, InnTools, Taken, Wire, trad_token};
pub use law::{Fault, HeldUp, Law, LawTransport};
pub use loop_image::LoopImage;
pub use need::need;
pub use ordinary_user::is_ordinary_user;
pub use ring_switch::{with_fuse_ring, without_fuse_ring};
pub use slow_fuse::SlowFuse;
pub use tmpfs::Tmpfs;
