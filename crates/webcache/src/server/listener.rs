//! Listening sockets, one of each address for every loop: the kernel deals connections out (SO_REUSEPORT).

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::time::Duration;

use rustix::net::sockopt;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use tokio_rustls::TlsAcceptor;

use super::asked::Side;
use super::connection;
use super::worker::{Stage, Worker};

/// Connections that wait to be accepted.
const BACKLOG: i32 = 4096;

/// An address that is listened at.
#[derive(Debug)]
pub struct Door {
    /// With the port that was taken.
    pub address: SocketAddr,
    /// For whom.
    pub side: Side,
    /// One a loop.
    pub sockets: Vec<TcpListener>,
}

impl Door {
    /// Opens an address for so many loops.
    ///
    /// # Errors
    /// When it is taken.
    pub fn open(mut address: SocketAddr, side: Side, loops: usize) -> io::Result<Self> {
        let mut sockets = Vec::new();
        for _ in 0..loops {
            let socket = listen(address)?;
            address = socket.local_addr()?;
            sockets.push(socket);
        }
        Ok(Self { address, side, sockets })
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

/// Takes connections until the proxy drains.
pub async fn accept(worker: Rc<Worker>, socket: TcpListener, side: Side, tls: Option<TlsAcceptor>) {
    let socket = match tokio::net::TcpListener::from_std(socket) {
        Ok(socket) => socket,
        Err(error) => return tracing::error!(%error, "a listening socket cannot be used"),
    };
    let mut stage = worker.shared.stage.subscribe();
    loop {
        tokio::select! {
            accepted = socket.accept() => match accepted {
                Ok((stream, peer)) => connection::serve(&worker, stream, peer, tls.as_ref(), side),
                Err(error) => {
                    // Out of descriptors, say: others must end first.
                    tracing::warn!(%error, "a connection could not be taken");
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            },
            _ = stage.wait_for(|stage| *stage >= Stage::Draining) => return,
        }
    }
}
