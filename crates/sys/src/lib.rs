//! System calls that no safe library has. All unsafe code of the workspace is here, behind safe functions.
//!
//! | module | what | for whom |
//! |---|---|---|
//! | `arrivals` | when what a socket received had arrived | generators of open loops |
//! | `changes` (a feature) | what anybody changes in a file system, by fanotify(7) | the stackable file system |
//! | `file_flags` | an inode's extended flags | the stackable file system |
//! | `fuse_device` (a feature) | what `/dev/fuse` does beside reading and writing | FUSE file systems |
//! | `fuse_ring` (a feature) | FUSE over io_uring(7) | FUSE file systems |
//! | `idle_class` | the idle scheduling class of a thread | the stackable file system |
//! | `reads` (a feature) | reads of files by io_uring(7) that an event loop does not wait for | the proxy |
//! | `short_slice` | a short time slice for a thread | generators of open loops |
//!
//! Not here: what rustix says safely, which is nearly all.

mod arrivals;
#[cfg(feature = "changes")]
pub mod changes;
mod file_flags;
#[cfg(feature = "fuse-device")]
pub mod fuse_device;
#[cfg(feature = "fuse-ring")]
pub mod fuse_ring;
mod idle_class;
#[cfg(feature = "reads")]
mod reads;
mod short_slice;

pub use arrivals::{Received, receive, receive_stamped, stamp_arrivals};
pub use file_flags::{EXTENDED_FLAGS_BYTES, extended_flags};
pub use idle_class::{can_leave_idle_class, set_idle_class};
#[cfg(feature = "reads")]
pub use reads::Reads;
pub use short_slice::ShortSlice;
