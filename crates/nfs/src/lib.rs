//! NFS version 3 on the wire: a client for load, servers to aim it at, and the messages between.
//!
//! ```text
//! files::Transport ── client ──┐                  ┌── server (null responder, directory export)
//!                              └── wire (bytes) ──┘
//! ```
//!
//! Always holds: whatever a peer sends yields a value, an error or a counted bad reply, never a panic and never
//! an allocation of a size the peer chose; neither the client's nor the null responder's path of one call allocates.
//! Not here: NFSv4, locking (NLM), Kerberos; kernel mounts are directories to `files`.
//! Sources: RFC 1813 (NFSv3, MOUNT), 5531 (RPC), 4506 (XDR), 1833 (portmap).

pub mod client;
mod error;
pub mod server;
pub mod wire;

pub use error::{NfsError, Peer};
