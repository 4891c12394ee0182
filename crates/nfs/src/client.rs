//! An NFSv3 client for load: calls leave from templates, replies are matched by XID and read where they arrived.
//!
//! ```text
//! connect(target) = resolve, portmap, MOUNT, FSINFO   (control, blocking)
//!                   then N sockets in one thread      (tcp | udp, files::Transport)
//!
//! NfsFs::open(target)                            blocking calls on paths (files::FileSystem), a connection a caller
//!
//! submit -> slots (XID = generation | slot) + template -> socket -> reply -> slot -> Completion
//! ```
//!
//! Always holds: one thread drives a transport and nothing in it blocks but `poll`, within its time; matching a reply
//! to its call is an index and a comparison; a call allocates nothing once the buffers have grown.
//! Not here: what to send and when (`fstress`), the meaning of a reply (`files`).

mod control;
mod fs;
mod mount;
mod options;
mod silence;
mod slots;
mod socket;
mod stop_wait;
mod tcp;
mod template;
mod udp;

use files::{NfsTarget, Transport};
use quanta::Clock;

use crate::NfsError;

pub use control::Control;
pub use fs::{CacheMode, FsCounters, FsOptions, ModeError, NfsFs, WriteMode};
pub use mount::{Mount, exports};
pub use options::{ClientOptions, SourcePort, UdpOptions, User};

/// Mounts the target's export and opens the connections that load will flow over. Completions carry times of `clock`.
///
/// # Errors
/// When the server cannot be found, reached, mounted or asked for its limits; the text says which and what to do.
pub fn connect(
    target: &NfsTarget,
    options: &ClientOptions,
    clock: Clock,
) -> Result<Box<dyn Transport>, NfsError> {
    let mount = Mount::open(target, options)?;
    Ok(match mount.peer().proto {
        files::NfsProto::Tcp => Box::new(tcp::TcpTransport::open(target, &mount, options, clock)?),
        files::NfsProto::Udp => Box::new(udp::UdpTransport::open(target, &mount, options, clock)?),
    })
}
