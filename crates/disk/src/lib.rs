//! Files of one's own, by offset: the seam through which a storage engine writes, with every promise of a disk spelt out.
//!
//! ```text
//! packstore --offsets--> Disk, DiskFile --+-- LocalDisk      a directory of any local file system
//!                                         `-- SimulatedDisk  fails, tears, loses and reorders writes (feature `simulated`)
//! ```
//!
//! Always holds: an error names the disk, the file and the operation; bytes written before a sync that returned survive
//! power loss.
//! Not here: paths, attributes, NFS words (see `files`); what an engine writes.

mod disk;
mod local_disk;
#[cfg(any(test, feature = "simulated"))]
mod simulated_disk;

pub use disk::{Disk, DiskError, DiskFile, DiskLock, DiskOpen, DiskRoom, Locking, Sharing};
pub use local_disk::{LocalDisk, give_to_owner, open_regular, other_than_file};
#[cfg(any(test, feature = "simulated"))]
pub use simulated_disk::{DiskFault, DiskOperation, STOPPED, SimulatedDisk};
