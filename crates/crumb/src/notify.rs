//! Reports the state of a server to the service manager, as sd_notify(3) does: a datagram to the socket in NOTIFY_SOCKET.
//!
//! Always holds: without a service manager nothing happens, and its absence is no error.

use std::ffi::OsString;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Who started us and wants to know, if anybody.
pub struct Supervisor {
    socket: Option<(UnixDatagram, SocketAddr)>,
}

impl Supervisor {
    /// Whom the environment names.
    pub fn from_environment() -> Self {
        let address = std::env::var_os("NOTIFY_SOCKET").and_then(address);
        let socket = address.and_then(|address| Some((UnixDatagram::unbound().ok()?, address)));
        Self { socket }
    }

    /// Without a service manager: every message is dropped.
    pub fn none() -> Self {
        Self { socket: None }
    }

    /// Reports a state.
    pub fn tell(&self, state: &str) {
        let Some((socket, address)) = &self.socket else { return };
        let mut text = state.to_owned();
        if state == "RELOADING=1" {
            // Type=notify-reload compares it with its own clock.
            let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
            text.push_str(&format!("\nMONOTONIC_USEC={}", now.tv_sec * 1_000_000 + now.tv_nsec / 1000));
        }
        if let Err(error) = socket.send_to_addr(text.as_bytes(), address) {
            tracing::debug!(%error, "the service manager cannot be notified");
        }
    }
}

fn address(name: OsString) -> Option<SocketAddr> {
    match name.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name).ok(),
        [b'/', ..] => SocketAddr::from_pathname(&name).ok(),
        _ => None,
    }
}
