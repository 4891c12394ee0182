//! Connections to origins and parents: each loop its own, kept for reuse.
//!
//! ```text
//! send ─> idle connection, the one used last ─┐
//!      └> name ─> addresses ─> TCP (─> TLS) ──┴─> request ─> reply's head; kept again when the body has ended
//! ```
//!
//! Always holds: connecting and waiting for a head are bounded; a request is sent a second time only if it may be repeated
//! and no byte of a reply came; addresses and connections kept are bounded by time and number.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::counters::Counters;
use crate::config::{Config, Upstream};

/// Names whose addresses are remembered at most.
const NAMES_MAX: usize = 4096;

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
}

fn humane(time: Duration) -> String {
    format!("{} ms", time.as_millis())
}

/// Body of a request that goes on.
pub enum RequestBody {
    /// None.
    Nothing,
    /// The client's, of at most so many bytes more.
    Client(Incoming, Option<u64>),
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.get_mut() {
            Self::Nothing => Poll::Ready(None),
            Self::Client(incoming, left) => {
                let frame = std::task::ready!(Pin::new(incoming).poll_frame(cx));
                if let (Some(Ok(frame)), Some(left)) = (&frame, left)
                    && let Some(bytes) = frame.data_ref()
                {
                    match left.checked_sub(bytes.len() as u64) {
                        Some(less) => *left = less,
                        None => {
                            return Poll::Ready(Some(Err("the body is longer than limits.body_mib".into())));
                        }
                    }
                }
                Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Nothing => true,
            Self::Client(incoming, _) => incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Nothing => SizeHint::with_exact(0),
            Self::Client(incoming, _) => incoming.size_hint(),
        }
    }
}

struct Idle {
    sender: SendRequest<RequestBody>,
    since: Instant,
}

/// Of a name, and until when they count.
type Addresses = (Instant, Vec<SocketAddr>);

/// One loop's connections.
pub struct Pool {
    idle: RefCell<HashMap<Upstream, Vec<Idle>>>,
    names: RefCell<HashMap<(String, u16), Addresses>>,
    down: RefCell<HashMap<Upstream, Instant>>,
    tls: Arc<rustls::ClientConfig>,
    counters: Arc<Counters>,
}

impl Pool {
    /// None yet.
    pub fn new(tls: Arc<rustls::ClientConfig>, counters: Arc<Counters>) -> Rc<Self> {
        Rc::new(Self {
            idle: RefCell::default(),
            names: RefCell::default(),
            down: RefCell::default(),
            tls,
            counters,
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

    /// Sends a request and waits for the head of its reply. `repeatable`: once more on a new connection when a kept one
    /// turned out to be closed.
    ///
    /// # Errors
    /// When there is no reply.
    pub async fn send(
        self: &Rc<Self>,
        upstream: &Upstream,
        mut request: Request<RequestBody>,
        config: &Config,
    ) -> Result<Response<Incoming>, UpstreamError> {
        self.counters.origin_requests.add(1);
        let result = self.try_send(upstream, &mut request, config).await;
        match &result {
            Err(UpstreamError::Connect { .. } | UpstreamError::Name { .. }) => {
                self.counters.origin_failures.add(1);
                self.set_down(upstream, Some(Instant::now() + config.down_time));
            }
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
        request: &mut Request<RequestBody>,
        config: &Config,
    ) -> Result<Response<Incoming>, UpstreamError> {
        let repeatable = matches!(request.body(), RequestBody::Nothing)
            && matches!(request.method().as_str(), "GET" | "HEAD" | "OPTIONS" | "PUT" | "DELETE" | "TRACE");
        // What cannot be sent twice goes where the origin spoke a moment ago, or on a new connection: one that lay idle may
        // have been closed without our knowing yet.
        let idle_max =
            if repeatable { config.upstream_idle_time } else { config.upstream_idle_time.min(FRESH) };
        while let Some(mut sender) = self.kept(upstream, idle_max) {
            let again = repeatable.then(|| copy(request));
            let this = std::mem::replace(request, Request::new(RequestBody::Nothing));
            let sent = sender.try_send_request(this);
            match self.within(upstream, config, sent).await? {
                Ok(reply) => {
                    self.keep(upstream, sender, config);
                    return Ok(reply);
                }
                Err(mut error) => match (error.take_message(), again) {
                    // Closed before it was sent at all.
                    (Some(unsent), _) => *request = unsent,
                    // Closed by the origin before it replied: what happens to idle connections.
                    (None, Some(again))
                        if error.error().is_incomplete_message() || error.error().is_closed() =>
                    {
                        *request = again;
                    }
                    (None, _) => return Err(reply_error(upstream, error.into_error())),
                },
            }
        }
        let mut sender = self.connect(upstream, config).await?;
        let this = std::mem::replace(request, Request::new(RequestBody::Nothing));
        let sent = self.within(upstream, config, sender.try_send_request(this)).await?;
        let reply = sent.map_err(|error| reply_error(upstream, error.into_error()))?;
        self.keep(upstream, sender, config);
        Ok(reply)
    }

    async fn within<T>(
        &self,
        upstream: &Upstream,
        config: &Config,
        work: impl Future<Output = T>,
    ) -> Result<T, UpstreamError> {
        let late = |_| UpstreamError::Late { authority: upstream.authority(), after: config.reply_time };
        tokio::time::timeout(config.reply_time, work).await.map_err(late)
    }

    fn kept(&self, upstream: &Upstream, idle_max: Duration) -> Option<SendRequest<RequestBody>> {
        let mut idle = self.idle.borrow_mut();
        let kept = idle.get_mut(upstream)?;
        let found = loop {
            match kept.pop() {
                Some(Idle { sender, since }) if sender.is_ready() && since.elapsed() < idle_max => {
                    break Some(sender);
                }
                Some(_) => {}
                None => break None,
            }
        };
        if kept.is_empty() {
            idle.remove(upstream);
        }
        found
    }

    /// Kept for reuse once the reply's body has ended.
    fn keep(self: &Rc<Self>, upstream: &Upstream, mut sender: SendRequest<RequestBody>, config: &Config) {
        let (pool, upstream, most) = (Rc::clone(self), upstream.clone(), config.upstream_idle_max);
        tokio::task::spawn_local(async move {
            if sender.ready().await.is_ok() {
                let mut idle = pool.idle.borrow_mut();
                let kept = idle.entry(upstream).or_default();
                if kept.len() < most {
                    kept.push(Idle { sender, since: Instant::now() });
                }
            }
        });
    }

    /// Closes what was not used for long.
    pub fn sweep(&self, config: &Config) {
        let old = config.upstream_idle_time;
        self.idle.borrow_mut().retain(|_, kept| {
            kept.retain(|idle| idle.since.elapsed() < old && !idle.sender.is_closed());
            !kept.is_empty()
        });
    }

    /// A TCP connection.
    ///
    /// # Errors
    /// When there is none to be had in time.
    pub async fn tcp(&self, host: &str, port: u16, config: &Config) -> Result<TcpStream, UpstreamError> {
        let authority = || Upstream { host: host.to_owned(), port, tls: false }.authority();
        let connect = async {
            let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
            for address in self.addresses(host, port, config).await? {
                match TcpStream::connect(address).await {
                    Ok(stream) => {
                        let _ = stream.set_nodelay(true);
                        return Ok(stream);
                    }
                    Err(error) => last = error,
                }
            }
            self.names.borrow_mut().remove(&(host.to_owned(), port));
            Err(UpstreamError::Connect { authority: authority(), source: last })
        };
        match tokio::time::timeout(config.connect_time, connect).await {
            Ok(result) => result,
            Err(_) => {
                Err(UpstreamError::Connect { authority: authority(), source: io::ErrorKind::TimedOut.into() })
            }
        }
    }

    async fn addresses(
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
        names.insert(name, (Instant::now() + config.dns_time, found.clone()));
        Ok(found)
    }

    async fn connect(
        &self,
        upstream: &Upstream,
        config: &Config,
    ) -> Result<SendRequest<RequestBody>, UpstreamError> {
        self.counters.origin_connections.add(1);
        let tcp = self.tcp(&upstream.host, upstream.port, config).await?;
        if !upstream.tls {
            return handshake(upstream, TokioIo::new(tcp), config).await;
        }
        let failed = |source| UpstreamError::Connect { authority: upstream.authority(), source };
        let name =
            ServerName::try_from(upstream.host.clone()).map_err(|error| failed(io::Error::other(error)))?;
        let tls = TlsConnector::from(Arc::clone(&self.tls)).connect(name, tcp);
        match tokio::time::timeout(config.connect_time, tls).await {
            Ok(Ok(tls)) => handshake(upstream, TokioIo::new(tls), config).await,
            Ok(Err(error)) => Err(failed(error)),
            Err(_) => Err(failed(io::ErrorKind::TimedOut.into())),
        }
    }
}

async fn handshake<T>(
    upstream: &Upstream,
    io: T,
    config: &Config,
) -> Result<SendRequest<RequestBody>, UpstreamError>
where
    T: hyper::rt::Read + hyper::rt::Write + Unpin + 'static,
{
    let mut builder = http1::Builder::new();
    builder.max_buf_size(config.head_max_bytes.max(64 << 10));
    let (sender, connection) = builder.handshake(io).await.map_err(|source| reply_error(upstream, source))?;
    tokio::task::spawn_local(async move {
        // Errors are told to whoever waits for the reply.
        let _ = connection.await;
    });
    Ok(sender)
}

fn reply_error(upstream: &Upstream, source: hyper::Error) -> UpstreamError {
    UpstreamError::Reply { authority: upstream.authority(), source }
}

/// Of a request without a body.
fn copy(request: &Request<RequestBody>) -> Request<RequestBody> {
    let mut again = Request::new(RequestBody::Nothing);
    *again.method_mut() = request.method().clone();
    *again.uri_mut() = request.uri().clone();
    *again.version_mut() = request.version();
    *again.headers_mut() = request.headers().clone();
    again
}
