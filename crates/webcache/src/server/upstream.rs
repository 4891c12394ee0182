//! Connections to origins and parents. Each loop has its own and keeps them for reuse.
//!
//! ```text
//! send ─> idle connection, the most recently used ─┐
//!      └> name ─> addresses ─> TCP (─> TLS) ───────┴─> request ─> head of the reply; idle again when the body has ended
//! ```
//!
//! Always holds:
//! - Connecting and waiting for a head are bounded in time. Cached addresses and idle connections are bounded in time and number.
//! - A request is sent a second time to an upstream only if it is repeatable and no byte of a reply arrived. One attempt on an idle
//!   connection that turns out to be closed is free; `upstream.retries` bounds the others, which use new connections.
//! - The proxy never connects to its own listeners, whatever name a request uses for them.
//! - For a destination named by a client, the very address is checked before connecting and before reusing an idle connection
//!   (`access.internal`, `access.destinations_denied`).
//! - A connection whose reply two parsers could read differently is not reused.

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

use http::header::{IF_MODIFIED_SINCE, IF_NONE_MATCH, UPGRADE};
use http::{Method, Response, StatusCode};
use http_cache_rules::framing::{self, Violation};
use hyper::body::Incoming;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::config::{Config, DeniedBy, IdleMax, Upstream};
use crate::server::counters::Counters;
use crate::server::upstream::connection::{ArrivingBody, OriginConnection};
use crate::server::upstream::idle_pool::IdlePool;
use crate::server::upstream::request::{
    BodyBroken, BodyStalled, BodyTooLong, BodyTooSlow, RequestBody, RequestHead,
};

/// Most names whose addresses are cached.
const DNS_CACHE_MAX: usize = 4096;

/// Read buffer per upstream connection, in bytes: holds most replies completely, with their heads.
pub const READ_BYTES: usize = 32 << 10;

/// A connection used within this time is almost certainly still open.
const RECENT_USE: Duration = Duration::from_secs(1);

/// Why there is no reply.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpstreamError {
    /// The name has no address.
    #[error("{host}: the name has no address")]
    Name {
        /// The name.
        host: String,
    },
    /// Connecting failed.
    #[error("cannot connect to {authority}")]
    Connect {
        /// Who.
        authority: String,
        /// Why.
        source: io::Error,
    },
    /// The reply is not valid HTTP.
    #[error("{authority} sent no valid reply")]
    Reply {
        /// Who.
        authority: String,
        /// Why.
        source: hyper::Error,
    },
    /// No reply arrived in time.
    #[error("no reply from {authority} within {}", in_ms(*.after))]
    Timeout {
        /// Who.
        authority: String,
        /// How long the proxy waited.
        after: Duration,
    },
    /// Two parsers could disagree about where the reply ends.
    #[error("the framing of the reply from {authority} is refused")]
    Framing {
        /// Who.
        authority: String,
        /// Why.
        source: Violation,
    },
    /// It switched to another protocol, which the request did not ask for.
    #[error("{authority} switched protocols without being asked to")]
    Switched {
        /// Who.
        authority: String,
    },
    /// 304 says that what the requester holds is valid, and the request named nothing that it holds (RFC 9110 section 15.4.5).
    #[error("{authority} sent 304 (Not Modified) to a request without a condition")]
    NotModified {
        /// Who.
        authority: String,
    },
    /// The destination is this proxy.
    #[error("{authority} is this proxy itself, which does not fetch from its own listening addresses")]
    OwnAddress {
        /// As it was asked for.
        authority: String,
    },
    /// Clients may not reach any of its addresses.
    #[error("{authority} has no address that clients may reach ({})", by.key())]
    Denied {
        /// As the client named it.
        authority: String,
        /// The rule that denies them.
        by: DeniedBy,
    },
    /// The client's body is too long.
    #[error(transparent)]
    BodyTooLong(#[from] BodyTooLong),
    /// The client stopped sending its body.
    #[error(transparent)]
    BodyStalled(#[from] BodyStalled),
    /// The client's body is incomplete or malformed.
    #[error(transparent)]
    BodyBroken(#[from] BodyBroken),
    /// The client sends its body too slowly.
    #[error(transparent)]
    BodyTooSlow(#[from] BodyTooSlow),
}

impl UpstreamError {
    /// Whether the client's body is at fault; more of it may follow, which is not read.
    pub fn is_client_body(&self) -> bool {
        matches!(
            self,
            Self::BodyTooLong(_) | Self::BodyStalled(_) | Self::BodyTooSlow(_) | Self::BodyBroken(_)
        )
    }

    /// Whether another upstream would fail in the same way.
    pub fn is_final(&self) -> bool {
        self.is_refusal() || self.is_client_body()
    }

    /// Whether the proxy refuses to connect there for a client.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Self::OwnAddress { .. } | Self::Denied { .. })
    }
}

fn in_ms(time: Duration) -> String {
    format!("{} ms", time.as_millis())
}

/// Who named an upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedBy {
    /// The operator, in the configuration.
    Operator,
    /// A client: the addresses are checked.
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

/// The attempts at one request so far, and what they leave to the next one.
#[derive(Clone, Copy, Debug)]
pub struct Attempts {
    /// An idle connection may be used: none has turned out to be closed yet, and this upstream has not failed yet.
    pub may_use_idle: bool,
    /// The last attempt received bytes of a reply.
    pub reply_began: bool,
}

impl Attempts {
    /// Before the first attempt.
    pub fn new() -> Self {
        Self { may_use_idle: true, reply_began: false }
    }
}

/// The addresses of a name, and when they expire.
type Addresses = (Instant, Vec<SocketAddr>);

/// The upstream connections of one loop.
pub struct Pool {
    idle: RefCell<IdlePool<OriginConnection>>,
    dns_cache: RefCell<HashMap<(String, u16), Addresses>>,
    down: RefCell<HashMap<Upstream, Instant>>,
    tls: Arc<rustls::ClientConfig>,
    counters: Arc<Counters>,
    listeners: Arc<[SocketAddr]>,
}

impl Pool {
    /// Without any connection. `listeners` are the proxy's own listening addresses.
    pub fn new(
        tls: Arc<rustls::ClientConfig>,
        counters: Arc<Counters>,
        listeners: Arc<[SocketAddr]>,
    ) -> Rc<Self> {
        Rc::new(Self {
            idle: RefCell::new(IdlePool::new()),
            dns_cache: RefCell::default(),
            down: RefCell::default(),
            tls,
            counters,
            listeners,
        })
    }

    /// Whether the last attempt reached it, or is long ago.
    pub fn is_up(&self, upstream: &Upstream) -> bool {
        self.down.borrow().get(upstream).is_none_or(|until| *until <= Instant::now())
    }

    /// Marks an upstream as down until then, or as up.
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

    /// Sends a request and waits for the head of the reply. `attempts` is shared by all attempts at one request.
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
        attempts: &mut Attempts,
    ) -> Result<Response<ArrivingBody>, UpstreamError> {
        self.counters.origin_requests.add(1);
        attempts.reply_began = false;
        let result = self.try_send(upstream, named_by, head, body, config, attempts).await;
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
        attempts: &mut Attempts,
    ) -> Result<Response<ArrivingBody>, UpstreamError> {
        let repeatable = body.may_be_repeated(&head.method);
        let last_progress = match &body {
            RequestBody::Nothing => None,
            RequestBody::Client(body) => Some(body.last_progress()),
        };
        // Requests of clients lose this field: it is present only when the proxy itself asks for a switch.
        let may_switch = head.headers.contains_key(UPGRADE);
        let may_be_unmodified = !matches!(head.method, Method::GET | Method::HEAD)
            || [IF_NONE_MATCH, IF_MODIFIED_SINCE].iter().any(|name| head.headers.contains_key(name));
        // A request that cannot be repeated uses a connection that was active a moment ago, or a new one: an idle connection may have been
        // closed already.
        let age_max =
            if repeatable { config.upstream.idle_time } else { config.upstream.idle_time.min(RECENT_USE) };
        let arriving = |mut reply: Response<Incoming>, connection| {
            check(upstream, &mut reply, may_switch, may_be_unmodified)?;
            Ok(reply
                .map(|body| ArrivingBody::new(body, connection, self, upstream, config.upstream_idle_max())))
        };
        while attempts.may_use_idle
            && let Some(mut connection) = self.take_idle(upstream, named_by, age_max, config)
        {
            let request = head.with(std::mem::replace(&mut body, RequestBody::Nothing));
            let sent = self
                .wait_for_head(upstream, config, last_progress.as_deref(), connection.send(request))
                .await;
            attempts.reply_began = connection.reply_began();
            match sent? {
                Ok(reply) => return arriving(reply, connection),
                Err(mut error) => match error.take_message() {
                    // Closed before any of it was sent.
                    Some(unsent) => body = unsent.into_body(),
                    // Closed by the origin before it replied, which happens to idle connections. Another idle one may be closed too,
                    // and an origin that closes whenever it reads this request would get it once on each of them.
                    None if repeatable && !attempts.reply_began => {
                        attempts.may_use_idle = false;
                        self.counters.origin_failures.add(1);
                        self.counters.origin_requests.add(1);
                    }
                    None => return Err(reply_error(upstream, error.into_error())),
                },
            }
        }
        let mut connection = Box::pin(self.connect(upstream, named_by, config)).await?;
        let sent = self
            .wait_for_head(upstream, config, last_progress.as_deref(), connection.send(head.with(body)))
            .await;
        attempts.reply_began = connection.reply_began();
        arriving(sent?.map_err(|error| reply_error(upstream, error.into_error()))?, connection)
    }

    /// Waits for the head of a reply; the timeout starts again whenever bytes of the request body are sent.
    async fn wait_for_head<T>(
        &self,
        upstream: &Upstream,
        config: &Config,
        last_progress: Option<&Cell<Instant>>,
        work: impl Future<Output = T>,
    ) -> Result<T, UpstreamError> {
        let mut work = std::pin::pin!(work);
        let mut since = Instant::now();
        loop {
            let until = since + config.upstream.reply_time;
            if let Ok(done) = tokio::time::timeout_at(until.into(), work.as_mut()).await {
                return Ok(done);
            }
            match last_progress.map(Cell::get) {
                Some(at) if at > since => since = at,
                _ => {
                    let authority = upstream.authority();
                    return Err(UpstreamError::Timeout { authority, after: config.upstream.reply_time });
                }
            }
        }
    }

    /// A separate function, so that the pool is no longer borrowed while the connection is used.
    fn take_idle(
        &self,
        upstream: &Upstream,
        named_by: NamedBy,
        age_max: Duration,
        config: &Config,
    ) -> Option<OriginConnection> {
        // The connection may have been opened for a site, or under other rules.
        let may_be_used = |connection: &mut OriginConnection| {
            named_by.denies(connection.peer(), config).is_none() && connection.is_ready()
        };
        self.idle.borrow_mut().take(upstream, age_max, may_be_used)
    }

    /// Returns a connection whose reply has ended, for reuse.
    pub fn return_connection(
        self: &Rc<Self>,
        mut connection: OriginConnection,
        upstream: Upstream,
        idle_max: IdleMax,
    ) {
        if connection.is_ready() {
            self.idle.borrow_mut().put(upstream, connection, idle_max);
        } else if !connection.is_closed() {
            // The request may still be sent after its reply has ended.
            let pool = Rc::clone(self);
            tokio::task::spawn_local(async move {
                if connection.ready().await.is_ok() {
                    pool.idle.borrow_mut().put(upstream, connection, idle_max);
                }
            });
        }
    }

    /// Closes connections that were idle for too long.
    pub fn sweep(&self, config: &Config) {
        self.idle.borrow_mut().sweep(config.upstream.idle_time, OriginConnection::is_ready);
    }

    /// Opens a TCP connection.
    ///
    /// # Errors
    /// When that fails or takes too long, or clients may not reach the destination.
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
                    Ok(stream) if self.leads_back_here(&stream) => {
                        return Err(UpstreamError::OwnAddress { authority: authority() });
                    }
                    Ok(stream) => {
                        let _ = stream.set_nodelay(true);
                        return Ok(stream);
                    }
                    Err(error) => last = error,
                }
            }
            self.dns_cache.borrow_mut().remove(&(host.to_owned(), port));
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

    /// Whether a connection leads back to this proxy: to the very address of a listener, or to any address of this machine where a
    /// listener is bound to all of them. Only an established connection shows for certain that its peer is this machine, as both
    /// ends then have the same address. No byte has been sent by then.
    fn leads_back_here(&self, stream: &TcpStream) -> bool {
        let (Ok(peer), Ok(local)) = (stream.peer_addr(), stream.local_addr()) else { return false };
        let (peer_ip, local_ip) = (peer.ip().to_canonical(), local.ip().to_canonical());
        self.listeners.iter().filter(|listener| listener.port() == peer.port()).any(|listener| {
            let listener_ip = listener.ip().to_canonical();
            if listener_ip.is_unspecified() {
                peer_ip.is_loopback() || peer_ip == local_ip
            } else {
                listener_ip == peer_ip
            }
        })
    }

    /// The addresses of a name, cached for `upstream.dns_s`.
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
        if let Some((until, addresses)) = self.dns_cache.borrow().get(&name)
            && *until > Instant::now()
        {
            return Ok(addresses.clone());
        }
        let found: Vec<SocketAddr> = match tokio::net::lookup_host((host, port)).await {
            Ok(found) => found.collect(),
            Err(_) => return Err(UpstreamError::Name { host: name.0 }),
        };
        let mut dns_cache = self.dns_cache.borrow_mut();
        if dns_cache.len() >= DNS_CACHE_MAX {
            dns_cache.clear();
        }
        dns_cache.insert(name, (Instant::now() + config.upstream.dns_time, found.clone()));
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
        let connection = if upstream.tls {
            let failed = |source| UpstreamError::Connect { authority: upstream.authority(), source };
            let name = ServerName::try_from(upstream.host.clone())
                .map_err(|error| failed(io::Error::other(error)))?;
            let tls = TlsConnector::from(Arc::clone(&self.tls)).connect(name, tcp);
            match tokio::time::timeout(config.upstream.connect_time, tls).await {
                Ok(Ok(tls)) => OriginConnection::over(tls, peer, config.limits.head_bytes_max).await,
                Ok(Err(error)) => return Err(failed(error)),
                Err(_) => return Err(failed(io::ErrorKind::TimedOut.into())),
            }
        } else {
            OriginConnection::over(tcp, peer, config.limits.head_bytes_max).await
        };
        connection.map_err(|source| reply_error(upstream, source))
    }
}

fn check(
    upstream: &Upstream,
    reply: &mut Response<Incoming>,
    may_switch: bool,
    may_be_unmodified: bool,
) -> Result<(), UpstreamError> {
    let status = reply.status();
    if status == StatusCode::NOT_MODIFIED && !may_be_unmodified {
        return Err(UpstreamError::NotModified { authority: upstream.authority() });
    }
    if status == StatusCode::SWITCHING_PROTOCOLS && !may_switch {
        return Err(UpstreamError::Switched { authority: upstream.authority() });
    }
    framing::check_read_reply(reply.version(), status, reply.headers())
        .and_then(|()| framing::normalize_length(status, reply.headers_mut()))
        .map_err(|source| UpstreamError::Framing { authority: upstream.authority(), source })
}

fn reply_error(upstream: &Upstream, source: hyper::Error) -> UpstreamError {
    let mut cause = std::error::Error::source(&source);
    while let Some(error) = cause {
        if let Some(too_long) = error.downcast_ref::<BodyTooLong>() {
            return (*too_long).into();
        }
        if let Some(silent) = error.downcast_ref::<BodyStalled>() {
            return (*silent).into();
        }
        if let Some(broken) = error.downcast_ref::<BodyBroken>() {
            return (*broken).into();
        }
        if let Some(slow) = error.downcast_ref::<BodyTooSlow>() {
            return (*slow).into();
        }
        cause = error.source();
    }
    UpstreamError::Reply { authority: upstream.authority(), source }
}
