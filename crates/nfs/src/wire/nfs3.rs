//! Arguments and results of the 22 procedures of NFS version 3, between bytes and the types of `files` (RFC 1813).
//!
//! ```text
//! requests   put_request, decode_request     arguments
//! replies    put_reply, decode_reply         results: a status, then what the procedure gives
//! parts      handles, names, attributes, times: what both are made of
//! ```
//!
//! Always holds: a failure is sent without attributes; a listing is checked whole when it arrives and then walked
//! in place. Names are bounded by [`NAME_BYTES_MAX`], link targets by [`PATH_BYTES_MAX`], data by the message.
//! A MKNOD for anything but a device, socket or FIFO is malformed here, where RFC 1813 has NFS3ERR_BADTYPE.

mod parts;
mod replies;
mod requests;

pub use replies::{LISTING_BYTES, decode_reply, entry_bytes, put_reply};
pub use requests::{decode_request, put_request};

/// RPC program number.
pub const PROGRAM: u32 = 100_003;
/// Program version.
pub const VERSION: u32 = 3;
/// The usual port.
pub const PORT: u16 = 2049;
/// The longest name accepted from a peer, bytes. RFC 1813 sets no bound; no file system goes beyond this.
pub const NAME_BYTES_MAX: u32 = 4096;
/// The longest link target accepted from a peer, bytes.
pub const PATH_BYTES_MAX: u32 = 65_536;
/// Bytes of `fattr3`.
pub const ATTRIBUTES_BYTES: usize = 84;
