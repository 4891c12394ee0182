//! A connection to an origin. It has no task of its own: the task that waits for its reply drives it.
//!
//! ```text
//! OriginConnection::send ─> head ─> ArrivingBody: frames ─┬─ last frame ─> back to the pool
//!                                                         └─ dropped early ─> closed
//! ```
//!
//! Always holds: all received bytes are taken before the task waits again, so that a reply that arrived in one piece is
//! relayed in one piece. A connection gets a task after all when it sends a client's body or may switch protocols, as it then
//! has to make progress while the reply is not being read.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::header::UPGRADE;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::config::{IdleMax, Upstream};
use crate::server::upstream::request::RequestBody;
use crate::server::upstream::write_batching::WriteBatching;
use crate::server::upstream::{Pool, READ_BYTES};

/// Most fields of a reply. hyper's default is 100, which some sites exceed.
pub const REPLY_FIELDS_MAX: usize = 256;

type Driver = Pin<Box<dyn Future<Output = ()>>>;

/// An HTTP connection.
pub struct OriginConnection {
    peer: SocketAddr,
    sender: SendRequest<RequestBody>,
    /// Drives the connection; `None` when a task does, or it has ended.
    driver: Option<Driver>,
    /// Bytes arrived since the last request was sent.
    received: Arc<AtomicBool>,
}

impl OriginConnection {
    /// Starts HTTP on a socket connected to `peer`, for reply heads of up to `head_max_bytes`.
    ///
    /// # Errors
    /// As hyper's handshake, which sends nothing.
    pub async fn over<T>(io: T, peer: SocketAddr, head_max_bytes: usize) -> hyper::Result<Self>
    where
        T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let received = Arc::new(AtomicBool::new(false));
        let io = TokioIo::new(NoteReceived { io, received: Arc::clone(&received) });
        let mut builder = http1::Builder::new();
        builder.read_buf_exact_size(Some(head_max_bytes.max(READ_BYTES))).max_headers(REPLY_FIELDS_MAX);
        let (sender, connection) = builder.handshake(WriteBatching::new(io)).await?;
        let driver: Driver = Box::pin(async move {
            // Errors reach the task that waits for the reply.
            let _ = connection.with_upgrades().await;
        });
        Ok(Self { peer, sender, driver: Some(driver), received })
    }

    /// The address of the other end.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Sends a request and waits for the head of the reply.
    ///
    /// # Errors
    /// As hyper's; with the request when none of it was sent.
    pub async fn send(
        &mut self,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, TrySendError<Request<RequestBody>>> {
        self.received.store(false, Ordering::Relaxed);
        let needs_task = !request.body().is_end_stream() || request.headers().contains_key(UPGRADE);
        if needs_task && let Some(driver) = self.driver.take() {
            tokio::task::spawn_local(driver);
        }
        let mut sent = std::pin::pin!(self.sender.try_send_request(request));
        let driver = &mut self.driver;
        std::future::poll_fn(|cx| {
            drive(driver, cx);
            sent.as_mut().poll(cx)
        })
        .await
    }

    /// Whether bytes arrived since the last request was sent, a reply's or not.
    pub fn reply_began(&self) -> bool {
        self.received.load(Ordering::Relaxed)
    }

    /// Whether it can take a request. The peer may have closed it since its last use.
    pub fn is_ready(&mut self) -> bool {
        drive(&mut self.driver, &mut Context::from_waker(Waker::noop()));
        self.sender.is_ready()
    }

    /// Waits until it can take another request.
    ///
    /// # Errors
    /// When it has ended.
    pub async fn ready(&mut self) -> hyper::Result<()> {
        let driver = &mut self.driver;
        let mut ready = std::pin::pin!(self.sender.ready());
        std::future::poll_fn(|cx| {
            drive(driver, cx);
            ready.as_mut().poll(cx)
        })
        .await
    }

    /// Whether it has ended.
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }
}

/// A socket that notes when bytes arrive: hyper's errors do not tell a connection closed before a reply from one closed within it.
struct NoteReceived<T> {
    io: T,
    received: Arc<AtomicBool>,
}

impl<T: AsyncRead + Unpin> AsyncRead for NoteReceived<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.io).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            this.received.store(true, Ordering::Relaxed);
        }
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for NoteReceived<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(cx)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().io).poll_write_vectored(cx, bytes)
    }
}

/// Drives the connection as far as it gets without waiting.
fn drive(driver: &mut Option<Driver>, cx: &mut Context<'_>) {
    if let Some(connection) = driver
        && connection.as_mut().poll(cx).is_ready()
    {
        *driver = None;
    }
}

/// The body of a reply that is being received.
pub struct ArrivingBody {
    incoming: Incoming,
    /// The connection it arrives on, until it has ended.
    carrier: Option<Box<Carrier>>,
}

struct Carrier {
    connection: OriginConnection,
    pool: Rc<Pool>,
    upstream: Upstream,
    idle_max: IdleMax,
}

impl ArrivingBody {
    /// A body that arrives on a connection of `pool`, which keeps at most `idle_max` idle ones.
    pub fn new(
        incoming: Incoming,
        connection: OriginConnection,
        pool: &Rc<Pool>,
        upstream: &Upstream,
        idle_max: IdleMax,
    ) -> Self {
        let carrier = Carrier { connection, pool: Rc::clone(pool), upstream: upstream.clone(), idle_max };
        let mut arriving = Self { incoming, carrier: Some(Box::new(carrier)) };
        arriving.give_back_if_ended();
        arriving
    }

    fn give_back_if_ended(&mut self) {
        if self.incoming.is_end_stream() {
            self.give_back();
        }
    }

    fn give_back(&mut self) {
        if let Some(carrier) = self.carrier.take() {
            let Carrier { connection, pool, upstream, idle_max } = *carrier;
            pool.return_connection(connection, upstream, idle_max);
        }
    }
}

impl Body for ArrivingBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let this = self.get_mut();
        let mut frame = Pin::new(&mut this.incoming).poll_frame(cx);
        if frame.is_pending()
            && let Some(carrier) = &mut this.carrier
        {
            // The poll above asked hyper for more.
            drive(&mut carrier.connection.driver, cx);
            frame = Pin::new(&mut this.incoming).poll_frame(cx);
        }
        match &frame {
            Poll::Ready(None) => this.give_back(),
            Poll::Ready(Some(Ok(_))) => this.give_back_if_ended(),
            Poll::Ready(Some(Err(_))) => this.carrier = None,
            Poll::Pending => {}
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
