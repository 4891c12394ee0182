//! Connections to origins and parents: each loop its own, kept for reuse.
//!
//! ```text
//! send ─> idle connection, the one used last ─┐
//!      └> name ─> addresses ─> TCP (─> TLS) ──┴─> request ─> reply's head; kept again when the body has ended
//! ```
//!
//! Always holds: connecting and waiting for a head are bounded; a request is sent a second time only if it may be repeated
//! and no byte of a reply came; addresses and connections kept are bounded by time and number; the proxy is no origin of
//! itself: its own listeners are not reached through it, whatever name they are called by; what a client named is connected to,
//! and a kept connection used for it, only after the very address has been judged (`access.internal`,
//! `access.destinations_denied`); a connection whose reply could be read in two ways is not used again.

pub(super) mod connection;
pub(super) mod health;
pub(super) mod idle_pool;
pub(super) mod request;
pub(super) mod write_batching;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::UPGRADE;
use http::{Response, StatusCode};
use http_cache_rules::framing::{self, Violation};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::config::{Config, DeniedBy, IdleMax, Upstream};
use crate::server::counters::Counters;
use crate::server::upstream::connection::{ArrivingBody, OriginConnection};
use crate::server::upstream::idle_pool::IdlePool;
use crate::server::upstream::request::{BrokenBody, RequestBody, RequestHead, Silent, TooLong, TooSlow};

/// Names whose addresses are remembered at most.
const NAMES_MAX: usize = 4096;

/// Read from an origin at once, in bytes: most replies whole, their head included.
pub const READ_BYTES: usize = 32 << 10;

/// A connection that was used so lately is open in all likelihood.
const FRESH: Duration = Duration::from_secs(1);

/// No reply.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpstreamError {
    /// The name has no address.
    #[error("{host}: no address for this name")]
    Name {
        /// Whose.
        host: String,
    },
    /// It cannot be reached.
    #[error("{authority}: cannot be reached")]
    Connect {
        /// Who.
        authority: String,
        /// Why.
        source: io::Error,
    },
    /// It does not speak HTTP as it should.
    #[error("{authority}: no proper reply")]
    Reply {
        /// Who.
        authority: String,
        /// Why.
        source: hyper::Error,
    },
    /// It took too long.
    #[error("{authority}: no reply within {}", humane(*.after))]
    Late {
        /// Who.
        authority: String,
        /// How long was waited.
        after: Duration,
    },
    /// Where its reply ends could be read in two ways.
    #[error("{authority}: its reply is refused")]
    Framing {
        /// Who.
        authority: String,
        /// Why.
        source: Violation,
    },
    /// It speaks something else from now on, which nobody asked for.
    #[error("{authority}: switches protocols unasked")]
    Switched {
        /// Who.
        authority: String,
    },
    /// This proxy itself.
    #[error("{authority}: is this proxy itself, which fetches nothing from its own listening addresses")]
    Own {
        /// As it was asked for.
        authority: String,
    },
    /// All its addresses are denied to clients.
    #[error("{authority}: leads to no address that clients may reach ({})", by.key())]
    Denied {
        /// As the client named it.
        authority: String,
        /// What denies it.
        by: DeniedBy,
    },
    /// The client's body.
    #[error(transparent)]
    TooLong(#[from] TooLong),
    /// The client sends nothing of its body.
    #[error(transparent)]
    Silent(#[from] Silent),
    /// The client's body is not one.
    #[error(transparent)]
    Broken(#[from] BrokenBody),
    /// The client sends its body too slowly.
    #[error(transparent)]
    TooSlow(#[from] TooSlow),
}

impl UpstreamError {
    /// Whether it is about the client's body, of which more may follow that nobody will read.
    pub fn is_the_clients(&self) -> bool {
        matches!(self, Self::TooLong(_) | Self::Silent(_) | Self::TooSlow(_) | Self::Broken(_))
    }

    /// Whether another try, with whomever, would end so too.
    pub fn is_final(&self) -> bool {
        self.is_refusal() || self.is_the_clients()
    }

    /// Whether this proxy does not connect there for a client.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::Own { .. } | Self::Denied { .. })
    }
}

fn humane(time: Duration) -> String {
    format!("{} ms", time.as_millis())
}

/// Who chose an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedBy {
    /// The operator, in the configuration.
    Operator,
    /// A client: its addresses are judged.
    Client,
}

impl NamedBy {
    fn denies(self, address: SocketAddr, config: &Config) -> Option<DeniedBy> {
        match self {
            Self::Operator => None,
            Self::Client => config.destinations.denies(address.ip()),
        }
    }
}

/// Of a name, and until when they count.
type Addresses = (Instant, Vec<SocketAddr>);

/// One loop's connections.
pub struct Pool {
    idle: RefCell<IdlePool<OriginConnection>>,
    names: RefCell<HashMap<(String, u16), Addresses>>,
    down: RefCell<HashMap<Upstream, Instant>>,
    tls: Arc<rustls::ClientConfig>,
    counters: Arc<Counters>,
    listeners: Arc<[SocketAddr]>,
}

impl Pool {
    /// None yet. `listeners`: where this proxy listens.
    pub fn new(
        tls: Arc<rustls::ClientConfig>,
        counters: Arc<Counters>,
        listeners: Arc<[SocketAddr]>,
    ) -> Rc<Self> {
        Rc::new(Self {
            idle: RefCell::new(IdlePool::new()),
            names: RefCell::default(),
            down: RefCell::default(),
            tls,
            counters,
            listeners,
        })
    }

    /// Whether it could be reached when it was last tried, or that is long ago.
    pub fn is_up(&self, upstream: &Upstream) -> bool {
        self.down.borrow().get(upstream).is_none_or(|until| *until <= Instant::now())
    }

    /// Says that it is to be left out for a while, or not any more.
    pub fn set_down(&self, upstream: &Upstream, until: Option<Instant>) {
        let mut down = self.down.borrow_mut();
        match until {
            Some(until) => {
                let now = Instant::now();
                down.retain(|_, until| *until > now);
                down.insert(upstream.clone(), until);
            }
            None => drop(down.remove(upstream)),
        }
    }

    /// Sends a request and waits for the head of its reply: once more on a new connection when it may be repeated and a kept
    /// one turned out to be closed.
    ///
    /// # Errors
    /// When there is no reply.
    pub async fn send(
        self: &Rc<Self>,
        upstream: &Upstream,
        named_by: NamedBy,
        head: &RequestHead,
        body: RequestBody,
        config: &Config,
    ) -> Result<Response<ArrivingBody>, UpstreamError> {
        self.counters.origin_requests.add(1);
        let result = self.try_send(upstream, named_by, head, body, config).await;
        match &result {
            Err(UpstreamError::Connect { .. } | UpstreamError::Name { .. }) => {
                self.counters.origin_failures.add(1);
                self.set_down(upstream, Some(Instant::now() + config.upstream.down_time));
            }
            Err(error) if error.is_final() => {}
            Err(_) => self.counters.origin_failures.add(1),
            Ok(_) => {
                if !self.down.borrow().is_empty() {
                    self.set_down(upstream, None);
                }
            }
        }
        result
    }

    async fn try_send(
        self: &Rc<Self>,
        upstream: &Upstream,
        named_by: NamedBy,
        head: &RequestHead,
        mut body: RequestBody,
        config: &Config,
    ) -> Result<Response<ArrivingBody>, UpstreamError> {
        let repeatable = body.may_be_repeated(&head.method);
        let moved = match &body {
            RequestBody::Nothing => None,
            RequestBody::Client(body) => Some(body.moved()),
        };
        // Taken out of what clients send: only there when this proxy asks for it.
        let may_switch = head.headers.contains_key(UPGRADE);
        // What cannot be sent twice goes where the origin spoke a moment ago, or on a new connection: one that lay idle may
        // have been closed without our knowing yet.
        let age_max =
            if repeatable { config.upstream.idle_time } else { config.upstream.idle_time.min(FRESH) };
        let arriving = |mut reply: Response<Incoming>, link| {
            check(upstream, &mut reply, may_switch)?;
            Ok(reply.map(|body| ArrivingBody::new(body, link, self, upstream, config.upstream_idle_max())))
        };
        while let Some(mut link) = self.kept(upstream, named_by, age_max, config) {
            let request = head.with(std::mem::replace(&mut body, RequestBody::Nothing));
            match self.within(upstream, config, moved.as_deref(), link.send(request)).await? {
                Ok(reply) => return arriving(reply, link),
                Err(mut error) => match error.take_message() {
                    // Closed before it was sent at all.
                    Some(unsent) => body = unsent.into_body(),
                    // Closed by the origin before it replied: what happens to idle connections.
                    None if repeatable
                        && (error.error().is_incomplete_message() || error.error().is_closed()) => {}
                    None => return Err(reply_error(upstream, error.into_error())),
                },
            }
        }
        let mut link = Box::pin(self.connect(upstream, named_by, config)).await?;
        let sent = self.within(upstream, config, moved.as_deref(), link.send(head.with(body))).await?;
        arriving(sent.map_err(|error| reply_error(upstream, error.into_error()))?, link)
    }

    /// Waits for a reply's head, from when the last byte of the request's body moved on.
    async fn within<T>(
        &self,
        upstream: &Upstream,
        config: &Config,
        moved: Option<&Cell<Instant>>,
        work: impl Future<Output = T>,
    ) -> Result<T, UpstreamError> {
        let mut work = std::pin::pin!(work);
        let mut since = Instant::now();
        loop {
            let until = since + config.upstream.reply_time;
            if let Ok(done) = tokio::time::timeout_at(until.into(), work.as_mut()).await {
                return Ok(done);
            }
            match moved.map(Cell::get) {
                Some(at) if at > since => since = at,
                _ => {
                    let authority = upstream.authority();
                    return Err(UpstreamError::Late { authority, after: config.upstream.reply_time });
                }
            }
        }
    }

    /// Apart, so that nothing is borrowed any more while the link is used.
    fn kept(
        &self,
        upstream: &Upstream,
        named_by: NamedBy,
        age_max: Duration,
        config: &Config,
    ) -> Option<OriginConnection> {
        // It may have been made for a site, or under other rules.
        let may_be_used =
            |link: &mut OriginConnection| named_by.denies(link.peer(), config).is_none() && link.is_ready();
        self.idle.borrow_mut().take(upstream, age_max, may_be_used)
    }

    /// A link that a reply has come by whole, for reuse.
    pub fn take_back(self: &Rc<Self>, mut link: OriginConnection, upstream: Upstream, idle_max: IdleMax) {
        if link.is_ready() {
            self.idle.borrow_mut().put(upstream, link, idle_max);
        } else if !link.is_closed() {
            // The request may go on for longer than its reply.
            let pool = Rc::clone(self);
            tokio::task::spawn_local(async move {
                if link.ready().await.is_ok() {
                    pool.idle.borrow_mut().put(upstream, link, idle_max);
                }
            });
        }
    }

    /// Closes what was not used for long.
    pub fn sweep(&self, config: &Config) {
        self.idle.borrow_mut().sweep(config.upstream.idle_time, OriginConnection::is_ready);
    }

    /// A TCP connection.
    ///
    /// # Errors
    /// When there is none to be had in time, or none that a client may have.
    pub async fn tcp(
        &self,
        host: &str,
        port: u16,
        named_by: NamedBy,
        config: &Config,
    ) -> Result<TcpStream, UpstreamError> {
        let authority = || Upstream { host: host.to_owned(), port, tls: false }.authority();
        let connect = async {
            let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
            let (mut tried, mut denied) = (false, None);
            for address in self.addresses(host, port, config).await? {
                if let Some(by) = named_by.denies(address, config) {
                    tracing::debug!(host, %address, key = by.key(), "not connected to for a client");
                    denied = Some(by);
                    continue;
                }
                tried = true;
                match TcpStream::connect(address).await {
                    Ok(stream) if self.is_own(&stream) => {
                        return Err(UpstreamError::Own { authority: authority() });
                    }
                    Ok(stream) => {
                        let _ = stream.set_nodelay(true);
                        return Ok(stream);
                    }
                    Err(error) => last = error,
                }
            }
            self.names.borrow_mut().remove(&(host.to_owned(), port));
            if let (false, Some(by)) = (tried, denied) {
                return Err(UpstreamError::Denied { authority: authority(), by });
            }
            Err(UpstreamError::Connect { authority: authority(), source: last })
        };
        match tokio::time::timeout(config.upstream.connect_time, connect).await {
            Ok(result) => result,
            Err(_) => {
                Err(UpstreamError::Connect { authority: authority(), source: io::ErrorKind::TimedOut.into() })
            }
        }
    }

    /// Whether a connection leads back to this proxy: to a listener's own address, or to any of this machine where a listener takes
    /// all of them. That an address is this machine's can be told for sure only once the connection is there: it then has
    /// the same address at both ends. No byte has been sent by then.
    fn is_own(&self, stream: &TcpStream) -> bool {
        let (Ok(peer), Ok(local)) = (stream.peer_addr(), stream.local_addr()) else { return false };
        let (peer_ip, local_ip) = (peer.ip().to_canonical(), local.ip().to_canonical());
        self.listeners.iter().filter(|listener| listener.port() == peer.port()).any(|listener| {
            let door_ip = listener.ip().to_canonical();
            if door_ip.is_unspecified() {
                peer_ip.is_loopback() || peer_ip == local_ip
            } else {
                door_ip == peer_ip
            }
        })
    }

    /// Addresses of a name, remembered for `upstream.dns_s`.
    ///
    /// # Errors
    /// When it has none.
    pub async fn addresses(
        &self,
        host: &str,
        port: u16,
        config: &Config,
    ) -> Result<Vec<SocketAddr>, UpstreamError> {
        if let Ok(address) = host.parse() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let name = (host.to_owned(), port);
        if let Some((until, addresses)) = self.names.borrow().get(&name)
            && *until > Instant::now()
        {
            return Ok(addresses.clone());
        }
        let found: Vec<SocketAddr> = match tokio::net::lookup_host((host, port)).await {
            Ok(found) => found.collect(),
            Err(_) => return Err(UpstreamError::Name { host: name.0 }),
        };
        let mut names = self.names.borrow_mut();
        if names.len() >= NAMES_MAX {
            names.clear();
        }
        names.insert(name, (Instant::now() + config.upstream.dns_time, found.clone()));
        Ok(found)
    }

    async fn connect(
        &self,
        upstream: &Upstream,
        named_by: NamedBy,
        config: &Config,
    ) -> Result<OriginConnection, UpstreamError> {
        self.counters.origin_connections.add(1);
        let tcp = self.tcp(&upstream.host, upstream.port, named_by, config).await?;
        let peer = tcp
            .peer_addr()
            .map_err(|source| UpstreamError::Connect { authority: upstream.authority(), source })?;
        let link = if upstream.tls {
            let failed = |source| UpstreamError::Connect { authority: upstream.authority(), source };
            let name = ServerName::try_from(upstream.host.clone())
                .map_err(|error| failed(io::Error::other(error)))?;
            let tls = TlsConnector::from(Arc::clone(&self.tls)).connect(name, tcp);
            match tokio::time::timeout(config.upstream.connect_time, tls).await {
                Ok(Ok(tls)) => {
                    OriginConnection::over(TokioIo::new(tls), peer, config.limits.head_bytes_max).await
                }
                Ok(Err(error)) => return Err(failed(error)),
                Err(_) => return Err(failed(io::ErrorKind::TimedOut.into())),
            }
        } else {
            OriginConnection::over(TokioIo::new(tcp), peer, config.limits.head_bytes_max).await
        };
        link.map_err(|source| reply_error(upstream, source))
    }
}

fn check(upstream: &Upstream, reply: &mut Response<Incoming>, may_switch: bool) -> Result<(), UpstreamError> {
    let status = reply.status();
    if status == StatusCode::SWITCHING_PROTOCOLS && !may_switch {
        return Err(UpstreamError::Switched { authority: upstream.authority() });
    }
    framing::check_read_reply(reply.version(), status, reply.headers())
        .and_then(|()| framing::settle_length(status, reply.headers_mut()))
        .map_err(|source| UpstreamError::Framing { authority: upstream.authority(), source })
}

fn reply_error(upstream: &Upstream, source: hyper::Error) -> UpstreamError {
    let mut cause = std::error::Error::source(&source);
    while let Some(error) = cause {
        if let Some(too_long) = error.downcast_ref::<TooLong>() {
            return (*too_long).into();
        }
        if let Some(silent) = error.downcast_ref::<Silent>() {
            return (*silent).into();
        }
        if let Some(broken) = error.downcast_ref::<BrokenBody>() {
            return (*broken).into();
        }
        if let Some(slow) = error.downcast_ref::<TooSlow>() {
            return (*slow).into();
        }
        cause = error.source();
    }
    UpstreamError::Reply { authority: upstream.authority(), source }
}
