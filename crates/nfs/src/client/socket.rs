//! Sockets that never block, from privileged ports where that is possible.

use std::{
    hash::{BuildHasher, Hasher},
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::fd::{AsFd, OwnedFd},
    time::{Duration, Instant},
};

use files::NfsProto;
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    net::{AddressFamily, SocketFlags, SocketType, bind, connect, ipproto, socket_with, sockopt},
};

use super::SourcePort;

/// Privileged ports to try before any port will do: enough to get past those in use or in TIME_WAIT.
const PRIVILEGED_TRIES: u16 = 128;
/// Ports that `bindresvport` hands out; below 512 are those of well-known services.
const PRIVILEGED: std::ops::Range<u16> = 600..1024;

/// What is asked of the kernel for UDP; it grants what `net.core.rmem_max` permits.
const UDP_BUFFER_BYTES: usize = 8 << 20;

/// Something unlike what any earlier run had: servers remember XIDs and ports for a while to detect repeats
/// and would answer a new run's call with an old run's reply.
pub(super) fn unique() -> u32 {
    std::hash::RandomState::new().build_hasher().finish() as u32
}

/// Begins to connect; over TCP [`outcome`] reports later whether it worked.
pub(super) fn begin_connect(
    address: SocketAddr,
    proto: NfsProto,
    source_port: SourcePort,
) -> io::Result<OwnedFd> {
    if source_port == SourcePort::PrivilegedIfPermitted {
        let first = unique() as u16 % PRIVILEGED.len() as u16;
        for step in 0..PRIVILEGED_TRIES {
            let port = PRIVILEGED.start + (first + step) % PRIVILEGED.len() as u16;
            match begin_connect_from(address, proto, Some(port)) {
                Err(Errno::ADDRINUSE | Errno::ADDRNOTAVAIL) => {}
                Err(Errno::ACCESS | Errno::PERM) => break,
                other => return Ok(other?),
            }
        }
    }
    Ok(begin_connect_from(address, proto, None)?)
}

fn begin_connect_from(
    address: SocketAddr,
    proto: NfsProto,
    port: Option<u16>,
) -> rustix::io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let (kind, protocol) = match proto {
        NfsProto::Tcp => (SocketType::STREAM, ipproto::TCP),
        NfsProto::Udp => (SocketType::DGRAM, ipproto::UDP),
    };
    let socket = socket_with(family, kind, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, Some(protocol))?;
    match proto {
        NfsProto::Tcp => {
            sockopt::set_tcp_nodelay(&socket, true)?;
            sockopt::set_socket_reuseaddr(&socket, port.is_some())?;
        }
        NfsProto::Udp => widen(&socket),
    }
    if let Some(port) = port {
        let any = match address {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        };
        bind(&socket, &SocketAddr::new(any, port))?;
    }
    match connect(&socket, &address) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
        Err(errno) => Err(errno),
    }
}

/// Has arrivals stamped, or no longer. Without stamps a generator knows less of its own lateness, and all else is as before.
/// Whether they are.
pub(super) fn stamp_arrivals(socket: &OwnedFd, wanted: bool) -> bool {
    sys::stamp_arrivals(socket, wanted).is_ok() && wanted
}

/// Receives once, with how long the bytes had waited if the socket has arrivals stamped.
#[inline]
pub(super) fn receive(
    socket: &OwnedFd,
    buffer: &mut [u8],
    is_stamped: bool,
) -> rustix::io::Result<sys::Received> {
    if is_stamped { sys::receive_stamped(socket, buffer) } else { sys::receive(socket, buffer) }
}

/// Asks for large UDP buffers. Best effort: with less, bursts are lost sooner and retransmitted.
fn widen(socket: &OwnedFd) {
    if sockopt::set_socket_recv_buffer_size_force(socket, UDP_BUFFER_BYTES).is_err() {
        let _ = sockopt::set_socket_recv_buffer_size(socket, UDP_BUFFER_BYTES);
    }
    if sockopt::set_socket_send_buffer_size_force(socket, UDP_BUFFER_BYTES).is_err() {
        let _ = sockopt::set_socket_send_buffer_size(socket, UDP_BUFFER_BYTES);
    }
}

/// Whether a connection that was begun is there: `None` while it is still on its way.
pub(super) fn outcome(socket: &OwnedFd) -> Option<io::Result<()>> {
    let mut fds = [PollFd::new(socket, PollFlags::OUT)];
    match poll(&mut fds, Some(&Timespec::default())) {
        Ok(0) | Err(Errno::INTR) => None,
        Ok(_) => Some(match sockopt::socket_error(socket) {
            Ok(connected) => connected.map_err(io::Error::from),
            Err(errno) => Err(errno.into()),
        }),
        Err(errno) => Some(Err(errno.into())),
    }
}

/// Connects, waiting until `deadline` at most. `slice` says how much of what is left to wait at a time; when it says
/// none, there is no connection.
pub(super) fn connect_by(
    deadline: Instant,
    slice: &mut dyn FnMut(Duration) -> Option<Duration>,
    address: SocketAddr,
    proto: NfsProto,
    source_port: SourcePort,
) -> io::Result<Option<OwnedFd>> {
    let socket = begin_connect(address, proto, source_port)?;
    if proto == NfsProto::Udp {
        return Ok(Some(socket));
    }
    loop {
        if let Some(outcome) = outcome(&socket) {
            return outcome.map(|()| Some(socket));
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let Some(now) = slice(left) else { return Ok(None) };
        wait(&socket, PollFlags::OUT, now)?;
    }
}

/// Waits for an event on one socket, but not longer than `left`; a signal ends it early.
pub(super) fn wait(socket: impl AsFd, events: PollFlags, left: Duration) -> io::Result<()> {
    wait_any(&mut [PollFd::new(&socket, events)], left)
}

/// Waits for an event on any of some sockets, but not longer than `left`; a signal ends it early.
pub(super) fn wait_any(fds: &mut [PollFd<'_>], left: Duration) -> io::Result<()> {
    let left = Timespec::try_from(left).ok();
    match poll(fds, left.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}
