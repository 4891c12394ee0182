//! Behaviour across the modules of `nfs`: the wire, the client, the servers.
//!
//! A program of its own: `server_stop` counts the threads of the process.

mod client_mount;
mod client_peer;
mod client_tcp;
mod client_udp;
#[path = "../../fuzz/entry.rs"]
mod entry;
mod fs_calls;
mod fs_conformance;
mod fs_misbehaving;
mod server_client;
mod server_hostile;
mod server_protocol;
mod server_tools;
mod wire_captured;
mod wire_hostile;
mod wire_oracle;
mod wire_values;
