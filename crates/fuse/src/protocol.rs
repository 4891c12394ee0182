//! The FUSE protocol as bytes: requests of the kernel are parsed, replies to it are encoded.
//!
//! ```text
//! request:  header 40 B | arguments of the operation, fixed | names, ended by a zero | data
//! reply:    header 16 B | result of the operation
//! ```
//!
//! Always holds: a request is read only inside the bytes that were received, and names and data are borrowed from them. Bytes that no
//! kernel sends are an error of that one request, and never a panic.
//! Not here: where bytes come from (`device`, `ring`), and what answers them (`Filesystem`).
//! Source: include/uapi/linux/fuse.h, protocol 7.42.

mod encode;
mod flags;
mod request;
mod values;

pub(crate) use encode::{
    Agreed, Attributes, attributes, created, directory_entry, entry, init, ioctl, number, number_64, opened,
    out_header, statfs,
};
pub use flags::{CopyFileRangeFlags, FopenFlags, InitFlags, IoctlFlags, RenameFlags, WriteFlags};
pub(crate) use request::{Header, Malformed, Operation, SetAttr, argument_bytes, is_unanswered};
pub use values::{
    Errno, FileAttr, FileHandle, FileType, ForgetOne, Generation, INodeNo, LockOwner, OpenFlags, TimeOrNow,
};

/// The version that replies announce.
pub(crate) const MAJOR: u32 = 7;
pub(crate) const MINOR: u32 = 42;
/// `struct fuse_in_header`.
pub(crate) const IN_HEADER_BYTES: usize = 40;
/// `struct fuse_out_header`.
pub(crate) const OUT_HEADER_BYTES: usize = 16;
