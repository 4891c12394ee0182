//! One client's connection, from its first byte to its last.
//!
//! Always holds:
//! - Bytes that a client does not read are held for a bounded time: with HTTP/1 by the request guard; with HTTP/2 for the
//!   connection as a whole and for each stream, so that one active stream keeps no other alive.
//! - hyper holds at most one frame of an HTTP/2 stream.
//! - An idle HTTP/1 connection holds its socket and nothing else.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::config::Config;
use crate::log::Entry;
use crate::server::answer::handler::{self, Client};
use crate::server::client::access_entry::Unflushed;
use crate::server::client::parsed_request::Side;
use crate::server::client::reply_body::ReplyBody;
use crate::server::client::request_guard::{ClientTimeouts, ConnectionState, Parked, Parking, RequestGuard};
use crate::server::counters::Outcome;
use crate::server::worker::{Admitted, Busy, Stage, Worker};

/// Serves a connection until it ends. Closes it at once when there are too many, or its address is not allowed.
pub fn serve(worker: &Rc<Worker>, stream: TcpStream, peer: SocketAddr, side: Side) {
    let config = worker.config();
    let address = peer.ip();
    let counters = &worker.counters;
    let allowed = config.serves(address);
    let Some(admitted) =
        Some(()).filter(|()| allowed).and_then(|()| Admitted::new(&worker.shared, address, &config))
    else {
        counters.connections_refused.add(1);
        return;
    };
    counters.connections_accepted.add(1);
    let _ = stream.set_nodelay(true);
    let busy = Busy::new(worker);
    let conn_state = Arc::new(ConnectionState::default());
    let client = Client {
        address,
        side,
        conn_state: Arc::clone(&conn_state),
        stream: None,
        unflushed: Rc::default(),
        admitted: Rc::new(admitted),
    };
    let tls = worker.tls().filter(|_| side == Side::Reverse { tls: true });
    let (worker, began) = (Rc::clone(worker), Instant::now());
    tokio::task::spawn_local(async move {
        match tls {
            None => http1(&worker, &config, stream, Rc::new(client)).await,
            Some(tls) => Box::pin(serve_tls(&worker, &config, stream, tls, client)).await,
        }
        // The guard reads nothing after a refusal, so there is at most one.
        let (refused, long) =
            (conn_state.refused.load(Ordering::Relaxed), conn_state.refused_long.load(Ordering::Relaxed));
        worker
            .counters
            .malformed_requests
            .add(refused + long + conn_state.refused_bodies.load(Ordering::Relaxed));
        // A request whose head was read has a log line of its own.
        if refused + long > 0 && worker.logs() {
            let status = if long > 0 { 431 } else { 400 };
            worker.log(&malformed(address, began, worker.request_id(), status));
        }
        worker.counters.connections_ended.add(1);
        drop(busy);
    });
}

async fn serve_tls(
    worker: &Rc<Worker>,
    config: &Config,
    stream: TcpStream,
    tls: TlsAcceptor,
    client: Client,
) {
    // The TLS handshake may take as long as a request head.
    let Ok(Ok(stream)) = tokio::time::timeout(config.limits.head_time, tls.accept(stream)).await else {
        return;
    };
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        http2(worker, config, stream, client).await;
    } else {
        http1(worker, config, stream, Rc::new(client)).await;
    }
}

/// The log entry of a request whose head was refused.
fn malformed(client: IpAddr, began: Instant, request_id: u64, status: u16) -> Entry {
    Entry {
        at: SystemTime::now(),
        took: began.elapsed(),
        client,
        // As Squid logs it: the bytes contain no valid method and URL.
        method: "NONE".to_owned(),
        url: "error:invalid-request".to_owned(),
        version: "HTTP/0.0",
        status,
        sent_bytes: 0,
        outcome: Outcome::Denied,
        aborted: false,
        origin: None,
        content_type: String::new(),
        referer: String::new(),
        agent: String::new(),
        request_id,
    }
}

/// A socket that reports readiness to read without needing a buffer.
trait ReadReadiness {
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
}

impl ReadReadiness for TcpStream {
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_read_ready(cx)
    }
}

impl ReadReadiness for TlsStream<TcpStream> {
    /// Everything that arrived before was decrypted and taken.
    fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_ref().0.poll_read_ready(cx)
    }
}

async fn http1<T>(worker: &Rc<Worker>, config: &Config, stream: T, client: Rc<Client>)
where
    T: AsyncRead + AsyncWrite + ReadReadiness + Unpin + Send + 'static,
{
    let timeouts = ClientTimeouts {
        idle: config.limits.idle_time,
        head: config.limits.head_time,
        stall: config.limits.stall_time,
    };
    let (parking, conn_state, head_max_bytes) =
        (Parking::new(), &client.conn_state, config.limits.head_bytes_max);
    let mut builder = http1::Builder::new();
    // The request guard has the timeouts. hyper checks the length of a head only when it needs more bytes of it; the guard lets through
    // no head longer than hyper's buffer.
    builder.header_read_timeout(None).max_buf_size(head_max_bytes).half_close(false);
    let mut request_guard =
        RequestGuard::new(stream, parking.clone(), Arc::clone(conn_state), timeouts, head_max_bytes);
    loop {
        let service = {
            let (worker, client) = (Rc::clone(worker), Rc::clone(&client));
            service_fn(move |request| handler::answer(Rc::clone(&worker), Rc::clone(&client), request))
        };
        let connection = builder.serve_connection(request_guard, service).with_upgrades();
        let until_parked =
            UntilParked { connection, parking: &parking, conn_state, unflushed: &client.unflushed };
        // The request guard ends idle connections. Boxed, so that the memory is freed while the connection is parked.
        let ended = Box::pin(run_to_end(worker, until_parked, std::future::pending(), |until| {
            Pin::new(&mut until.get_mut().connection).graceful_shutdown();
        }))
        .await;
        client.unflushed.record_rest(conn_state);
        record_end(worker, client.address, conn_state, ended);
        let Some(parked) = parking.take() else { return };
        worker.counters.connections_rested.add(1);
        if !wait_until_readable(worker, &parked, timeouts.idle).await {
            return;
        }
        request_guard =
            RequestGuard::resume(parked, parking.clone(), Arc::clone(conn_state), timeouts, head_max_bytes);
    }
}

/// Counts how a connection ended; `None` when it was cut off or parked.
fn record_end(
    worker: &Worker,
    client: IpAddr,
    conn_state: &ConnectionState,
    ended: Option<hyper::Result<()>>,
) {
    if let Some(Err(error)) = ended {
        worker.counters.connections_broken.add(1);
        // Clients often leave; the access log says which replies they did not get.
        tracing::debug!(%client, error = &error as &dyn std::error::Error, "a client's connection broke");
    }
    let lost = conn_state.lost_writes.swap(0, Ordering::Relaxed);
    if lost > 0 {
        worker.counters.lost_writes.add(lost);
        tracing::error!(%client, lost, "a reply was written to a connection that was parked: it is lost");
    }
}

/// Runs a connection until it ends or its socket is parked. Records replies as they leave.
struct UntilParked<'a, C, T> {
    connection: C,
    parking: &'a Parking<T>,
    conn_state: &'a ConnectionState,
    unflushed: &'a Unflushed,
}

impl<C: Future<Output = hyper::Result<()>> + Unpin, T> Future for UntilParked<'_, C, T> {
    type Output = hyper::Result<()>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        let this = self.get_mut();
        let ended = Pin::new(&mut this.connection).poll(cx);
        this.unflushed.record(this.conn_state);
        match ended {
            Poll::Pending if this.parking.is_taken() => Poll::Ready(Ok(())),
            ended => ended,
        }
    }
}

/// Waits until an idle client sends something; false when it does not in time, or the proxy drains.
async fn wait_until_readable<T: ReadReadiness>(worker: &Worker, parked: &Parked<T>, idle: Duration) -> bool {
    let mut stage = worker.shared.stage.subscribe();
    let word = std::future::poll_fn(|cx| parked.io.poll_readable(cx));
    tokio::select! {
        word = tokio::time::timeout_at(parked.last_read_at + idle, word) => word.is_ok(),
        _ = stage.wait_for(|stage| *stage >= Stage::Draining) => false,
    }
}

/// Since when the client could have read more of one stream's reply; `None` while it waits for the proxy.
pub type BlockedSince = Rc<Cell<Option<Instant>>>;

/// Runs the future that hyper makes for each stream, until it has handed over the last byte of the reply.
#[derive(Clone)]
struct StreamExecutor {
    conn_state: Arc<ConnectionState>,
    stall: Duration,
    /// The stream for which hyper last called the service; the next future it spawns belongs to it.
    next_stream: Rc<RefCell<Option<BlockedSince>>>,
}

impl<F: Future<Output = ()> + 'static> hyper::rt::Executor<F> for StreamExecutor {
    fn execute(&self, future: F) {
        let Some(since) = self.next_stream.take() else { return drop(tokio::task::spawn_local(future)) };
        let (conn_state, stall) = (Arc::clone(&self.conn_state), self.stall);
        tokio::task::spawn_local(async move {
            tokio::select! {
                biased;
                () = future => {}
                // Dropping it resets the stream (RST_STREAM).
                () = client_blocked(&since, &conn_state, stall) => {}
            }
        });
    }
}

/// Waits until a client has read nothing of one stream for `limits.stall_s` times the number of active streams, as they share
/// the connection; it may take up to twice as long. The factor is at least two: a client that reads nothing at all is cut off
/// earlier.
async fn client_blocked(since: &Cell<Option<Instant>>, conn_state: &ConnectionState, stall: Duration) {
    loop {
        let now = Instant::now();
        let until = match since.get() {
            None => now + stall,
            Some(since) => since + stall * conn_state.busy.load(Ordering::Relaxed).max(2),
        };
        if until <= now {
            return;
        }
        tokio::time::sleep_until(until.into()).await;
    }
}

async fn http2<T>(worker: &Rc<Worker>, config: &Config, stream: T, client: Client)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (address, conn_state) = (client.address, Arc::clone(&client.conn_state));
    let next_stream = Rc::new(RefCell::new(None));
    let executor = StreamExecutor {
        conn_state: Arc::clone(&conn_state),
        stall: config.limits.stall_time,
        next_stream: Rc::clone(&next_stream),
    };
    let service = {
        let worker = Rc::clone(worker);
        service_fn(move |request| {
            // The request guard counts them for HTTP/1.
            client.conn_state.busy.fetch_add(1, Ordering::Relaxed);
            let since = BlockedSince::default();
            next_stream.replace(Some(Rc::clone(&since)));
            let client = Rc::new(Client { stream: Some(Rc::clone(&since)), ..client.clone() });
            let answer = handler::answer(Rc::clone(&worker), client, request);
            async move {
                answer.await.map(|reply| reply.map(|body| PacedBody { body, rest: Bytes::new(), since }))
            }
        })
    };
    let mut builder = http2::Builder::new(executor);
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(config.limits.idle_time)
        .keep_alive_timeout(config.limits.stall_time)
        .max_header_list_size(u32::try_from(config.limits.head_bytes_max).unwrap_or(u32::MAX))
        .max_concurrent_streams(128);
    let stream = ProgressIo { io: stream, conn_state: Arc::clone(&conn_state) };
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    let (idle, stall) = (config.limits.idle_time, config.limits.stall_time);
    let watched_state = Arc::clone(&conn_state);
    let inactive = async move {
        match inactivity(&watched_state, idle, stall).await {
            Inactivity::Idle => stall,
            Inactivity::Stalled => Duration::ZERO,
        }
    };
    let ended = run_to_end(worker, connection, inactive, |connection| connection.graceful_shutdown()).await;
    record_end(worker, address, &conn_state, ended);
}

/// Bytes of a stream's reply given to hyper at a time, which it holds until the client reads them. One frame holds no more unless
/// the client allows it.
const PACED_BYTES: usize = 16 << 10;

/// A reply in small pieces, each given to hyper when the client has read the previous ones.
struct PacedBody {
    body: ReplyBody,
    rest: Bytes,
    since: BlockedSince,
}

impl Body for PacedBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        if this.rest.is_empty() {
            match ready!(Pin::new(&mut this.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(bytes) => this.rest = bytes,
                    Err(frame) => return Poll::Ready(Some(Ok(frame))),
                },
                end => return Poll::Ready(end),
            }
        }
        this.since.set(Some(Instant::now()));
        let bytes = this.rest.len().min(PACED_BYTES);
        Poll::Ready(Some(Ok(Frame::data(this.rest.split_to(bytes)))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.len() as u64;
        self.body
            .size_hint()
            .exact()
            .map_or_else(SizeHint::default, |bytes| SizeHint::with_exact(bytes + rest))
    }
}

/// Writes longer than this carry more than a ping.
const PROGRESS_BYTES: usize = 64;

/// Counts writes as progress, so that a client that reads slowly does not count as inactive.
struct ProgressIo<T> {
    io: T,
    conn_state: Arc<ConnectionState>,
}

impl<T> ProgressIo<T> {
    fn note(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if matches!(written, Poll::Ready(Ok(bytes)) if bytes > PROGRESS_BYTES) {
            self.conn_state.progress.fetch_add(1, Ordering::Relaxed);
        }
        written
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for ProgressIo<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_read(cx, bytes)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for ProgressIo<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.io).poll_write(cx, bytes);
        this.note(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.io).poll_write_vectored(cx, bytes);
        this.note(written)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(cx)
    }
}

/// Why a connection counts as inactive.
enum Inactivity {
    /// No request came and none was in progress for `limits.idle_s`.
    Idle,
    /// The client read nothing of what was ready for it for `limits.stall_s`.
    Stalled,
}

/// Waits until either has lasted that long, or up to a quarter longer. Replies to pings do not count as activity: otherwise a client
/// could hold a connection with pings alone.
async fn inactivity(conn_state: &ConnectionState, idle: Duration, stall: Duration) -> Inactivity {
    let step = idle.min(stall) / 4;
    let (mut quiet, mut known) = (Duration::ZERO, 0);
    loop {
        tokio::time::sleep(step).await;
        let progress = conn_state.progress.load(Ordering::Relaxed);
        let (busy, waiting) =
            (conn_state.busy.load(Ordering::Relaxed), conn_state.waiting.load(Ordering::Relaxed));
        // A client that only waits for the proxy is not at fault.
        let same_as_before = progress == known && (busy == 0 || waiting < busy);
        quiet = if same_as_before { quiet + step } else { Duration::ZERO };
        known = progress;
        match busy {
            0 if quiet >= idle => return Inactivity::Idle,
            1.. if quiet >= stall => return Inactivity::Stalled,
            _ => {}
        }
    }
}

/// Serves until the client or the proxy ends the connection. When the proxy drains, the connection is shut down gracefully, and cut
/// off if that takes too long. The same happens when it is `inactive`, which returns the time left until the cut. `None` when it was
/// cut off.
async fn run_to_end<C: Future>(
    worker: &Worker,
    connection: C,
    inactive: impl Future<Output = Duration>,
    shut_down: impl FnOnce(Pin<&mut C>),
) -> Option<C::Output> {
    let mut connection = std::pin::pin!(connection);
    let mut stage = worker.shared.stage.subscribe();
    let left = tokio::select! {
        ended = connection.as_mut() => return Some(ended),
        left = inactive => Some(left),
        _ = stage.wait_for(|stage| *stage >= Stage::Draining) => None,
    };
    shut_down(connection.as_mut());
    let late = async {
        match left {
            Some(left) => tokio::time::sleep(left).await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        ended = connection => Some(ended),
        () = late => None,
        _ = stage.wait_for(|stage| *stage >= Stage::Cut) => None,
    }
}
