//! A connection to an origin: run by whoever waits for what it brings, and by no task of its own.
//!
//! ```text
//! OriginConnection::send ─> head ─> ArrivingBody: frames ─┬─ the last one ─> kept by its pool
//!                                         └─ dropped before ─> closed
//! ```
//!
//! Always holds: what has come is all taken before whoever waits is told to wait on, so that a reply that came in one piece
//! goes on in one; a connection that a client's body goes out by, or that may change protocols, is a task after all, as it
//! has to go on also while nobody takes the reply.

use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::header::UPGRADE;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{self, SendRequest};

use crate::config::{IdleMax, Upstream};
use crate::server::upstream::request::RequestBody;
use crate::server::upstream::write_batching::WriteBatching;
use crate::server::upstream::{Pool, READ_BYTES};

/// Fields of a reply at most. hyper's own bound is 100, which some sites pass.
pub const REPLY_FIELDS_MAX: usize = 256;

type Run = Pin<Box<dyn Future<Output = ()>>>;

/// A connection that speaks HTTP.
pub struct OriginConnection {
    peer: SocketAddr,
    sender: SendRequest<RequestBody>,
    /// What moves it. Nothing when it is a task, or has ended.
    run: Option<Run>,
}

impl OriginConnection {
    /// Over a socket that leads to `peer`, for replies with heads of so many bytes.
    ///
    /// # Errors
    /// As hyper's handshake, which sends nothing.
    pub async fn over<T>(io: T, peer: SocketAddr, head_max_bytes: usize) -> hyper::Result<Self>
    where
        T: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
    {
        let mut builder = http1::Builder::new();
        builder.read_buf_exact_size(Some(head_max_bytes.max(READ_BYTES))).max_headers(REPLY_FIELDS_MAX);
        let (sender, connection) = builder.handshake(WriteBatching::new(io)).await?;
        let run: Run = Box::pin(async move {
            // Errors are told to whoever waits for the reply.
            let _ = connection.with_upgrades().await;
        });
        Ok(Self { peer, sender, run: Some(run) })
    }

    /// The address at its other end.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Sends a request and waits for the head of its reply.
    ///
    /// # Errors
    /// As hyper's, with the request when none of it was sent.
    pub async fn send(
        &mut self,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, TrySendError<Request<RequestBody>>> {
        let apart = !request.body().is_end_stream() || request.headers().contains_key(UPGRADE);
        if apart && let Some(run) = self.run.take() {
            tokio::task::spawn_local(run);
        }
        let mut sent = std::pin::pin!(self.sender.try_send_request(request));
        let run = &mut self.run;
        std::future::poll_fn(|cx| {
            move_on(run, cx);
            sent.as_mut().poll(cx)
        })
        .await
    }

    /// Whether it takes a request: the other side may have closed it since it was used.
    pub fn is_ready(&mut self) -> bool {
        move_on(&mut self.run, &mut Context::from_waker(Waker::noop()));
        self.sender.is_ready()
    }

    /// Until it takes another request.
    ///
    /// # Errors
    /// When it has ended.
    pub async fn ready(&mut self) -> hyper::Result<()> {
        let run = &mut self.run;
        let mut ready = std::pin::pin!(self.sender.ready());
        std::future::poll_fn(|cx| {
            move_on(run, cx);
            ready.as_mut().poll(cx)
        })
        .await
    }

    /// Whether it has ended.
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }
}

/// As far as it goes now.
fn move_on(run: &mut Option<Run>, cx: &mut Context<'_>) {
    if let Some(connection) = run
        && connection.as_mut().poll(cx).is_ready()
    {
        *run = None;
    }
}

/// A reply's body on its way.
pub struct ArrivingBody {
    incoming: Incoming,
    /// By what it comes, until it has ended.
    by: Option<Box<By>>,
}

struct By {
    link: OriginConnection,
    pool: Rc<Pool>,
    upstream: Upstream,
    idle_max: IdleMax,
}

impl ArrivingBody {
    /// What comes by a link of a pool, which keeps at most so many.
    pub fn new(
        incoming: Incoming,
        link: OriginConnection,
        pool: &Rc<Pool>,
        upstream: &Upstream,
        idle_max: IdleMax,
    ) -> Self {
        let by = By { link, pool: Rc::clone(pool), upstream: upstream.clone(), idle_max };
        let mut arriving = Self { incoming, by: Some(Box::new(by)) };
        arriving.give_back_if_ended();
        arriving
    }

    fn give_back_if_ended(&mut self) {
        if self.incoming.is_end_stream() {
            self.give_back();
        }
    }

    fn give_back(&mut self) {
        if let Some(by) = self.by.take() {
            let By { link, pool, upstream, idle_max } = *by;
            pool.take_back(link, upstream, idle_max);
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
            && let Some(by) = &mut this.by
        {
            // Told above that more is wanted.
            move_on(&mut by.link.run, cx);
            frame = Pin::new(&mut this.incoming).poll_frame(cx);
        }
        match &frame {
            Poll::Ready(None) => this.give_back(),
            Poll::Ready(Some(Ok(_))) => this.give_back_if_ended(),
            Poll::Ready(Some(Err(_))) => this.by = None,
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
