//! FUSE: sessions between the kernel and a file system of ours, mounting, and the floor.
//!
//! ```text
//! program -> kernel (FUSE) -+-> /dev/fuse   (device) -+-> protocol -> dispatch -> Filesystem: stackfs | Floor
//!                           `-> io_uring(7) (ring)   -'                 reply  <-'
//! ```
//!
//! 1. `NewMount::at` mounts, as root by mount(2), else by fusermount3, and gives the connection.
//! 2. `Session::new` agrees with the kernel on what the file system wants (INIT), and prepares the rings where they shall be used.
//! 3. `Session::spawn` starts the threads that serve, until the mount ends.
//!
//! The *floor* is a file system that answers from memory with no tree below it, with the replies of `stackfs`: what it takes is the
//! price of the requests themselves, and no daemon with the same requests gets below it.
//!
//! Always holds: a mount is taken away by the place where it was made, following no link. Bytes of a connection never panic.
//! Not here: what `stackfs` answers, and which of its threads wait for requests.

mod device;
mod dispatch;
mod filesystem;
mod floor;
mod mounting;
mod nodes;
mod notify;
mod protocol;
mod reply;
mod ring;
mod session;

pub use device::{BackingId, DEVICE, device};
pub use filesystem::{Filesystem, KernelConfig, Request};
pub use floor::{FLOOR_TYPE, Floor};
pub use mounting::{DetachError, NewMount, detach};
pub use notify::Notifier;
pub use protocol::{
    CopyFileRangeFlags, Errno, FileAttr, FileHandle, FileType, FopenFlags, ForgetOne, Generation, INodeNo,
    InitFlags, IoctlFlags, LockOwner, OpenFlags, RenameFlags, TimeOrNow, WriteFlags,
};
pub use reply::{
    ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry,
    ReplyIoctl, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr,
};
pub use session::{BackgroundSession, Config, Session, Transport};
