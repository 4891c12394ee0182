//! How the client connects, waits and gives up.

use std::num::{NonZeroU16, NonZeroU32};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use files::NfsProto;

use crate::wire::rpc::AuthSys;

/// How the client connects, waits and gives up.
#[derive(Clone, Debug)]
pub struct ClientOptions {
    /// What carries the calls when the target does not say. Default TCP.
    pub proto: NfsProto,
    /// Sockets that calls are spread over. Default 1.
    pub connections: NonZeroU16,
    /// Calls in flight on one connection. Default 4096: far beyond what a server answers at a bearable latency.
    pub in_flight_max: NonZeroU16,
    /// When datagrams are sent again.
    pub udp: UdpOptions,
    /// How long to wait for a connection, and for each answer while mounting. Default 5 s.
    pub connect_timeout: Duration,
    /// How long the server may be away before the run ends: a broken TCP connection not regained, or no reply at all, over
    /// UDP or TCP, while calls wait. Default 30 s: a server's restart.
    pub reconnect_timeout: Duration,
    /// TCP: how long one connection with calls in flight may stay silent before it counts as broken, while others are
    /// answered. Default 60 s, the Linux client's `timeo=600`.
    pub silence_timeout: Duration,
    /// Whom the calls come from. Default: the owner of this process.
    pub user: User,
    /// Most bytes of one READ or WRITE; the server's limit if that is lower, and 32 KiB over UDP. Default 1 MiB.
    pub io_bytes_max: NonZeroU32,
    /// Where the calls come from.
    pub source_port: SourcePort,
    /// Set when the caller is asked to stop: connecting, mounting or a blocking call that waits for an answer then ends
    /// within a second, and one that begins later waits 5 s at most. A transport that is connected does not look at it,
    /// as its caller decides how long it waits. Default none.
    pub stop: Option<Arc<AtomicBool>>,
}

/// When datagrams are sent again, and when they are given up.
#[derive(Clone, Copy, Debug)]
pub struct UdpOptions {
    /// Wait before the first retransmission; doubles with each. Default 700 ms: what NFS clients over UDP have begun
    /// with since the first ones (`timeo=7`), and so what servers and papers mean by a retransmission.
    pub timeout: Duration,
    /// Retransmissions before a call is cancelled. Default 5.
    pub retransmits_max: u8,
    /// The wait does not double beyond this. Default 10 s.
    pub timeout_max: Duration,
}

impl UdpOptions {
    /// How long to wait after the given number of retransmissions.
    pub fn timeout_after(&self, retransmits: u32) -> Duration {
        self.timeout.saturating_mul(1_u32.checked_shl(retransmits).unwrap_or(u32::MAX)).min(self.timeout_max)
    }
}

/// Which ports calls come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SourcePort {
    /// One below 1024 when the system permits, as many servers demand by default (`secure`); otherwise any.
    #[default]
    PrivilegedIfPermitted,
    /// Any.
    Any,
}

/// Whom calls come from: the AUTH_SYS credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Further groups, the first 16 count.
    pub gids: Vec<u32>,
    /// Name of this machine.
    pub machine: String,
}

impl User {
    /// The effective owner of this process.
    pub fn of_process() -> Self {
        Self {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            gids: Vec::new(),
            machine: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        }
    }

    pub(super) fn credential(&self) -> AuthSys {
        AuthSys {
            stamp: 0,
            machine: self.machine.clone().into_bytes(),
            uid: self.uid,
            gid: self.gid,
            gids: self.gids.clone(),
        }
    }
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            proto: NfsProto::Tcp,
            connections: NonZeroU16::MIN,
            in_flight_max: const { NonZeroU16::new(4096).unwrap() },
            udp: UdpOptions::default(),
            connect_timeout: Duration::from_secs(5),
            reconnect_timeout: Duration::from_secs(30),
            silence_timeout: Duration::from_secs(60),
            user: User::of_process(),
            io_bytes_max: const { NonZeroU32::new(1 << 20).unwrap() },
            source_port: SourcePort::default(),
            stop: None,
        }
    }
}

impl Default for UdpOptions {
    fn default() -> Self {
        Self { timeout: Duration::from_millis(700), retransmits_max: 5, timeout_max: Duration::from_secs(10) }
    }
}
