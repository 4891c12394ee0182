//! The messages: XDR, ONC RPC and its record marking, portmap, MOUNT and NFS version 3.
//!
//! ```text
//! record mark | rpc call or reply | portmap2, mount3 or nfs3 arguments or results    (xdr)
//!   `record`         `rpc`
//! ```
//!
//! Always holds: a decoder reads slices of what arrived and allocates nothing; whatever arrives, it returns
//! a value or a [`WireError`], and never panics; every variable length is checked against the protocol's bound
//! and against the bytes at hand before it is used. Encoders append to a `Vec<u8>` and cannot fail.
//! Not here: sockets, retransmission (`client`), answers (`server`).
//! Sources: RFC 4506 (XDR), 5531 (RPC), 1833 (portmap), 1813 (NFSv3 and MOUNT).

pub mod mount3;
pub mod nfs3;
pub mod portmap2;
pub mod record;
pub mod rpc;
pub mod xdr;

pub use xdr::{WireError, XdrReader};
