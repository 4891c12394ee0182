//! Two NFSv3 servers that need neither root nor a portmapper: one that answers at once, one that exports a
//! directory. NFS and MOUNT answer on the same port, over TCP and UDP.
//!
//! ```text
//! tcp: accept -> a thread a connection: receive -> every whole call -> Replies -> one write
//! udp: threads on one socket:           receive -> call -> send
//!                                                   |
//!                     Service: rpc rules, MOUNT -> null (prebuilt replies) or export (files::Directory)
//! ```
//!
//! Credentials: AUTH_SYS and AUTH_NONE are taken and not looked at, everything runs as the server's user; any
//! other flavour, or a malformed one, is refused with AUTH_BADCRED. A caller that reaches the port has the server's
//! rights below the export: that is why it should listen on loopback only, or in a network that is trusted.
//! Calls of one connection are carried out one after the other; connections are independent.
//!
//! Always holds: a peer's bytes never panic the server and its memory is bounded: connections, bytes of a
//! record and of unsent replies. What is no call closes its connection, or is dropped over UDP.
//! Not here: locking (NLM), portmap, Kerberos. Sources: RFC 1813, RFC 5531.

mod busy;
mod export;
mod null;
mod recent;
mod replies;
mod service;
mod tcp;
mod udp;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use files::{Directory, DirectoryError, DirectoryOptions};

use self::service::Service;

/// Where and how a server listens.
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Address for TCP and UDP. Default 127.0.0.1 and a free port: only this machine reaches it.
    pub listen: SocketAddr,
    /// The most TCP connections at a time; more are closed at once. Default 256: each has a thread and up to
    /// two megabytes of buffers.
    pub connections_max: usize,
    /// Threads that answer UDP. Default: one for each CPU, four at most.
    pub udp_threads: usize,
    /// How long a thread looks for the next call before it sleeps. Default zero; more needs a processor for each
    /// busy connection, and takes the waking out of what is measured.
    pub spin: Duration,
}

impl Default for ServerOptions {
    fn default() -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            connections_max: 256,
            udp_threads: cpus.min(4),
            spin: Duration::ZERO,
        }
    }
}

/// A server that cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The address is not to be had.
    #[error("cannot listen on {listen} ({proto}); is it in use? port 0 takes a free one")]
    Listen {
        /// The address asked for.
        listen: SocketAddr,
        /// TCP or UDP.
        proto: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// No thread to be had.
    #[error("cannot start a server thread; raise `ulimit -u`")]
    Thread(#[source] io::Error),
    /// The directory cannot be exported.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
}

/// What a server did so far, over all connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerCounters {
    /// Calls answered with results, NFS errors included.
    pub calls: u64,
    /// Calls answered with an NFS error.
    pub errors: u64,
    /// Calls refused by the rules of RPC, and messages that were none.
    pub refused: u64,
    /// Bytes received.
    pub received_bytes: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// TCP connections open now.
    pub connections: u64,
    /// TCP connections accepted so far.
    pub connections_accepted: u64,
    /// TCP connections closed at once, because there were `connections_max` already.
    pub connections_refused: u64,
}

/// A running server. Dropping it stops it.
pub struct Server {
    addr: SocketAddr,
    shared: Arc<Shared>,
    tcp: Option<tcp::Acceptor>,
    udp: Option<udp::Receivers>,
}

/// What all threads of a server share.
struct Shared {
    service: Service,
    stop: AtomicBool,
    tally: Tally,
    spin: Duration,
}

/// [`ServerCounters`] while they are counted. Threads add a batch at a time.
#[derive(Default)]
struct Tally {
    calls: AtomicU64,
    errors: AtomicU64,
    refused: AtomicU64,
    received_bytes: AtomicU64,
    sent_bytes: AtomicU64,
    connections: AtomicU64,
    connections_accepted: AtomicU64,
    connections_refused: AtomicU64,
}

impl Tally {
    fn add(&self, batch: &mut ServerCounters) {
        self.calls.fetch_add(batch.calls, Ordering::Relaxed);
        self.errors.fetch_add(batch.errors, Ordering::Relaxed);
        self.refused.fetch_add(batch.refused, Ordering::Relaxed);
        self.received_bytes.fetch_add(batch.received_bytes, Ordering::Relaxed);
        self.sent_bytes.fetch_add(batch.sent_bytes, Ordering::Relaxed);
        *batch = ServerCounters::default();
    }
}

/// Starts the null responder: every procedure succeeds at once with plausible results, nothing is kept.
/// Driving it shows what a generator and its protocol can do at most.
///
/// # Errors
/// When the address is not to be had.
pub fn serve_null(options: ServerOptions) -> Result<Server, ServerError> {
    Server::start(Service::Null(Box::default()), options)
}

/// Starts a server that exports the directory at `path` as `/`; a path inside can be mounted as well.
///
/// # Errors
/// When the directory or the address is not to be had.
pub fn serve_dir(
    path: impl AsRef<Path>,
    options: ServerOptions,
    directory: DirectoryOptions,
) -> Result<Server, ServerError> {
    let export = export::Export::new(Directory::open(path, directory)?);
    Server::start(Service::Export(Box::new(export)), options)
}

impl Server {
    fn start(service: Service, options: ServerOptions) -> Result<Self, ServerError> {
        let (listener, socket) = bind(options.listen)?;
        let addr = listener.local_addr().map_err(|source| ServerError::Listen {
            listen: options.listen,
            proto: "tcp",
            source,
        })?;
        let shared = Arc::new(Shared {
            service,
            stop: AtomicBool::new(false),
            tally: Tally::default(),
            spin: options.spin,
        });
        // Filled in step by step: when a later thread cannot start, dropping stops the earlier ones.
        let mut server = Self { addr, shared, tcp: None, udp: None };
        let shared = || Arc::clone(&server.shared);
        let (tcp_shared, udp_shared) = (shared(), shared());
        server.tcp = Some(tcp::Acceptor::start(listener, tcp_shared, options.connections_max)?);
        server.udp = Some(udp::Receivers::start(socket, udp_shared, options.udp_threads.max(1))?);
        Ok(server)
    }

    /// Where it listens, with the port that was found.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// What it did so far.
    pub fn counters(&self) -> ServerCounters {
        let tally = &self.shared.tally;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ServerCounters {
            calls: read(&tally.calls),
            errors: read(&tally.errors),
            refused: read(&tally.refused),
            received_bytes: read(&tally.received_bytes),
            sent_bytes: read(&tally.sent_bytes),
            connections: read(&tally.connections),
            connections_accepted: read(&tally.connections_accepted),
            connections_refused: read(&tally.connections_refused),
        }
    }

    /// Closes all connections and waits for all threads; a call being carried out is finished first.
    pub fn stop(mut self) {
        self.shut_down();
    }

    fn shut_down(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        if let Some(tcp) = self.tcp.take() {
            tcp.stop();
        }
        if let Some(udp) = self.udp.take() {
            udp.stop(reachable(self.addr));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shut_down();
    }
}

/// The same port for both. A free one for TCP may be taken for UDP; then another.
fn bind(listen: SocketAddr) -> Result<(TcpListener, UdpSocket), ServerError> {
    let error = |proto| move |source| ServerError::Listen { listen, proto, source };
    let mut tries_left = if listen.port() == 0 { 16 } else { 1 };
    loop {
        let listener = TcpListener::bind(listen).map_err(error("tcp"))?;
        let addr = listener.local_addr().map_err(error("tcp"))?;
        tries_left -= 1;
        match UdpSocket::bind(addr) {
            Ok(socket) => return Ok((listener, socket)),
            Err(source) if tries_left == 0 => return Err(error("udp")(source)),
            Err(_) => {}
        }
    }
}

/// An address by which this machine reaches one that may mean all interfaces.
fn reachable(addr: SocketAddr) -> SocketAddr {
    let ip = match addr.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, addr.port())
}
