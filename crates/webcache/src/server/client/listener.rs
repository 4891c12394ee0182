//! Listening sockets: one per address and event loop. The kernel distributes connections over them (SO_REUSEPORT).
//!
//! Always holds: the first socket of an address is bound without SO_REUSEPORT, so that the bind fails while another program
//! listens there. Otherwise a second proxy of the same user would silently take a share of the first one's clients.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::net::sockopt;
use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::log::Throttle;
use crate::server::client::connection;
use crate::server::client::parsed_request::Side;
use crate::server::worker::{Stage, Worker};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 4096;

/// An address with its listening sockets.
#[derive(Debug)]
pub struct Listener {
    /// The address, with the port that was bound.
    pub address: SocketAddr,
    /// The kind of clients.
    pub side: Side,
    /// One per event loop.
    pub sockets: Vec<TcpListener>,
}

impl Listener {
    /// Opens `loops` sockets at an address. `beside` are the other listening addresses: `[::]` accepts IPv4 clients too unless `0.0.0.0`
    /// with the same port is among them.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub fn open(
        mut address: SocketAddr,
        side: Side,
        loops: usize,
        beside: &[SocketAddr],
    ) -> io::Result<Self> {
        let v6_only = beside.contains(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port())));
        let mut sockets = Vec::new();
        for number in 0..loops {
            let socket = listen(address, number == 0, v6_only)?;
            address = socket.local_addr()?;
            sockets.push(socket);
        }
        Ok(Self { address, side, sockets })
    }
}

fn listen(address: SocketAddr, first: bool, v6_only: bool) -> io::Result<TcpListener> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        sockopt::set_ipv6_v6only(&socket, v6_only)?;
    }
    sockopt::set_socket_reuseport(&socket, !first)?;
    rustix::net::bind(&socket, &address)?;
    // The first socket joins the group now that it is bound.
    sockopt::set_socket_reuseport(&socket, true)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// Accepts connections until the proxy drains.
pub async fn accept(worker: Rc<Worker>, socket: TcpListener, side: Side) {
    let socket = match tokio::net::TcpListener::from_std(socket) {
        Ok(socket) => socket,
        Err(error) => return tracing::error!(%error, "a listening socket cannot be used"),
    };
    let mut stage = worker.shared.stage.subscribe();
    let failures = Throttle::default();
    loop {
        tokio::select! {
            accepted = socket.accept() => match accepted {
                Ok((stream, peer)) => connection::serve(&worker, stream, peer, side),
                Err(error) => {
                    // For example out of file descriptors: let other connections end first.
                    if let Some(held_back) = failures.pass(Instant::now()) {
                        tracing::warn!(%error, failures_since = held_back, "cannot accept a connection");
                    }
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            },
            _ = stage.wait_for(|stage| *stage >= Stage::Draining) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_listened_at_by_all_loops_of_one_proxy_and_by_no_other() {
        let any = "127.0.0.1:0".parse().expect("an address");
        let listener = Listener::open(any, Side::Forward, 4, &[]).expect("a free port");
        assert_eq!(listener.sockets.len(), 4);
        for loops in [1, 4] {
            let error = Listener::open(listener.address, Side::Forward, loops, &[]).expect_err("it is taken");
            assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        }
        let address = listener.address;
        drop(listener);
        assert!(Listener::open(address, Side::Forward, 4, &[]).is_ok(), "free again");
    }

    #[test]
    fn all_addresses_of_both_kinds_share_a_port() {
        let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let four = Listener::open(any, Side::Forward, 2, &[]).expect("a free port").address;
        let six = SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, four.port()));
        let both = [six, four];
        let listeners = both.map(|address| Listener::open(address, Side::Forward, 2, &both));
        assert!(listeners.iter().all(Result::is_ok), "{listeners:?}");
        drop(listeners);
        let alone = Listener::open(six, Side::Forward, 2, &[six]).expect("free again");
        assert!(std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, six.port())).is_ok(), "{alone:?}");
    }

    #[test]
    fn each_loop_gets_connections() {
        let any = "127.0.0.1:0".parse().expect("an address");
        let listener = Listener::open(any, Side::Forward, 2, &[]).expect("a free port");
        let _clients: Vec<_> =
            (0..64).map(|_| std::net::TcpStream::connect(listener.address).expect("connected")).collect();
        for socket in &listener.sockets {
            assert!(socket.accept().is_ok(), "of 64 none came here");
        }
    }
}
