//! One client's connection, from its first byte to its last.
//!
//! Always holds: what a client does not take is held for it for a bounded time: of HTTP/1 by the request guard, of HTTP/2 for the
//! connection as a whole, and for each stream, so that one that goes on keeps no other; and of a stream of HTTP/2 no more
//! than a frame is in hyper's hands; of an idle connection of HTTP/1 only the socket is held.

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
use crate::server::client::request_guard::{ClientTimeouts, Parked, Parking, RequestGuard, Watched};
use crate::server::counters::Outcome;
use crate::server::worker::{Admitted, Busy, Stage, Worker};

/// Serves a connection until it ends. Refuses it at once when there are too many, or it comes from where none may.
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
    let watched = Arc::new(Watched::default());
    let client = Client {
        address,
        side,
        watched: Arc::clone(&watched),
        stream: None,
        unflushed: Rc::default(),
        admitted: Rc::new(admitted),
    };
    let tls = worker.tls().filter(|_| side == Side::Reverse { tls: true });
    let (worker, began) = (Rc::clone(worker), Instant::now());
    tokio::task::spawn_local(async move {
        match tls {
            None => http1(&worker, &config, stream, Rc::new(client)).await,
            Some(tls) => Box::pin(encrypted(&worker, &config, stream, tls, client)).await,
        }
        // After either nothing is read, so that there is one at most.
        let (refused, long) =
            (watched.refused.load(Ordering::Relaxed), watched.refused_long.load(Ordering::Relaxed));
        worker
            .counters
            .malformed_requests
            .add(refused + long + watched.refused_bodies.load(Ordering::Relaxed));
        // One whose head was read has a line of its own.
        if refused + long > 0 && worker.logs() {
            let status = if long > 0 { 431 } else { 400 };
            worker.log(&malformed(address, began, worker.request_id(), status));
        }
        worker.counters.connections_ended.add(1);
        drop(busy);
    });
}

async fn encrypted(
    worker: &Rc<Worker>,
    config: &Config,
    stream: TcpStream,
    tls: TlsAcceptor,
    client: Client,
) {
    // A client that says nothing has as long as for a head.
    let Ok(Ok(stream)) = tokio::time::timeout(config.limits.head_time, tls.accept(stream)).await else {
        return;
    };
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        http2(worker, config, stream, client).await;
    } else {
        http1(worker, config, stream, Rc::new(client)).await;
    }
}

/// Of a request whose head was refused.
fn malformed(client: IpAddr, began: Instant, request_id: u64, status: u16) -> Entry {
    Entry {
        at: SystemTime::now(),
        took: began.elapsed(),
        client,
        // As Squid has it: what was sent is no method and no URL.
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

/// A socket that says when there is something to read, without a buffer for it.
trait Wakes {
    fn poll_wakes(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>>;
}

impl Wakes for TcpStream {
    fn poll_wakes(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_read_ready(cx)
    }
}

impl Wakes for TlsStream<TcpStream> {
    /// All that came before was decrypted and taken.
    fn poll_wakes(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_ref().0.poll_read_ready(cx)
    }
}

async fn http1<T>(worker: &Rc<Worker>, config: &Config, stream: T, client: Rc<Client>)
where
    T: AsyncRead + AsyncWrite + Wakes + Unpin + Send + 'static,
{
    let timeouts = ClientTimeouts {
        idle: config.limits.idle_time,
        head: config.limits.head_time,
        stall: config.limits.stall_time,
    };
    let (parking, watched, head_max_bytes) = (Parking::new(), &client.watched, config.limits.head_bytes_max);
    let mut builder = http1::Builder::new();
    // The request guard keeps time. hyper looks at the length of a head only when it must read more of it: the request guard lets no longer one
    // through than hyper has room for.
    builder.header_read_timeout(None).max_buf_size(head_max_bytes).half_close(false);
    let mut request_guard =
        RequestGuard::new(stream, parking.clone(), Arc::clone(watched), timeouts, head_max_bytes);
    loop {
        let service = {
            let (worker, client) = (Rc::clone(worker), Rc::clone(&client));
            service_fn(move |request| handler::answer(Rc::clone(&worker), Rc::clone(&client), request))
        };
        let connection = builder.serve_connection(request_guard, service).with_upgrades();
        let until_rest = UntilRest { connection, parking: &parking, watched, unflushed: &client.unflushed };
        // The request guard ends idle ones. In a box, which is let go while the connection rests.
        let ended = Box::pin(to_its_end(worker, until_rest, std::future::pending(), |until| {
            Pin::new(&mut until.get_mut().connection).graceful_shutdown();
        }))
        .await;
        client.unflushed.end(watched);
        note_end(worker, client.address, watched, ended);
        let Some(parked) = parking.take() else { return };
        worker.counters.connections_rested.add(1);
        if !wakes(worker, &parked, timeouts.idle).await {
            return;
        }
        request_guard =
            RequestGuard::again(parked, parking.clone(), Arc::clone(watched), timeouts, head_max_bytes);
    }
}

/// Counts what hyper says of a connection's end; nothing when it was cut, or its socket was laid down.
fn note_end(worker: &Worker, client: IpAddr, watched: &Watched, ended: Option<hyper::Result<()>>) {
    if let Some(Err(error)) = ended {
        worker.counters.connections_broken.add(1);
        // Clients that leave are everyday; what they did not get is in the access log.
        tracing::debug!(%client, error = &error as &dyn std::error::Error, "a client's connection broke");
    }
    let lost = watched.lost_writes.swap(0, Ordering::Relaxed);
    if lost > 0 {
        worker.counters.lost_writes.add(lost);
        tracing::error!(%client, lost, "a reply was written to a connection that was taken for idle: it is lost");
    }
}

/// A connection, until it ends, with what hyper says of that, or its socket is laid down. Replies are written down as they
/// leave.
struct UntilRest<'a, C, T> {
    connection: C,
    parking: &'a Parking<T>,
    watched: &'a Watched,
    unflushed: &'a Unflushed,
}

impl<C: Future<Output = hyper::Result<()>> + Unpin, T> Future for UntilRest<'_, C, T> {
    type Output = hyper::Result<()>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        let this = self.get_mut();
        let ended = Pin::new(&mut this.connection).poll(cx);
        this.unflushed.write_down(this.watched);
        match ended {
            Poll::Pending if this.parking.is_taken() => Poll::Ready(Ok(())),
            ended => ended,
        }
    }
}

/// Waits until a client that lay idle says something: false when it does not in time, or the server drains.
async fn wakes<T: Wakes>(worker: &Worker, parked: &Parked<T>, idle: Duration) -> bool {
    let mut stage = worker.shared.stage.subscribe();
    let word = std::future::poll_fn(|cx| parked.io.poll_wakes(cx));
    tokio::select! {
        word = tokio::time::timeout_at(parked.heard_at + idle, word) => word.is_ok(),
        _ = stage.wait_for(|stage| *stage >= Stage::Draining) => false,
    }
}

/// When the client's turn began to take what there is of one stream's reply; nothing while it is ours.
pub type Since = Rc<Cell<Option<Instant>>>;

/// Runs what hyper makes of each stream: its reply, until the last byte has been handed over.
#[derive(Clone)]
struct Streams {
    watched: Arc<Watched>,
    stall: Duration,
    /// The stream that hyper called the service for, which it gives the future of right after.
    called: Rc<RefCell<Option<Since>>>,
}

impl<F: Future<Output = ()> + 'static> hyper::rt::Executor<F> for Streams {
    fn execute(&self, future: F) {
        let Some(since) = self.called.take() else { return drop(tokio::task::spawn_local(future)) };
        let (watched, stall) = (Arc::clone(&self.watched), self.stall);
        tokio::task::spawn_local(async move {
            tokio::select! {
                biased;
                () = future => {}
                // Dropped, so that the client is told of the reply's end (RST_STREAM).
                () = not_taken(&since, &watched, stall) => {}
            }
        });
    }
}

/// Until a client has taken nothing of one stream for `limits.stall_s` times those that are under way on the connection, as
/// they share it; or up to twice as late. Twice at least: a client that takes nothing of anything is cut off before.
async fn not_taken(since: &Cell<Option<Instant>>, watched: &Watched, stall: Duration) {
    loop {
        let now = Instant::now();
        let until = match since.get() {
            None => now + stall,
            Some(since) => since + stall * watched.busy.load(Ordering::Relaxed).max(2),
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
    let (address, watched) = (client.address, Arc::clone(&client.watched));
    let called = Rc::new(RefCell::new(None));
    let streams = Streams {
        watched: Arc::clone(&watched),
        stall: config.limits.stall_time,
        called: Rc::clone(&called),
    };
    let service = {
        let worker = Rc::clone(worker);
        service_fn(move |request| {
            // Counted by the request guard for HTTP/1.
            client.watched.busy.fetch_add(1, Ordering::Relaxed);
            let since = Since::default();
            called.replace(Some(Rc::clone(&since)));
            let client = Rc::new(Client { stream: Some(Rc::clone(&since)), ..client.clone() });
            let answer = handler::answer(Rc::clone(&worker), client, request);
            async move { answer.await.map(|reply| reply.map(|body| Handed { body, rest: Bytes::new(), since })) }
        })
    };
    let mut builder = http2::Builder::new(streams);
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(config.limits.idle_time)
        .keep_alive_timeout(config.limits.stall_time)
        .max_header_list_size(u32::try_from(config.limits.head_bytes_max).unwrap_or(u32::MAX))
        .max_concurrent_streams(128);
    let stream = Counted { io: stream, watched: Arc::clone(&watched) };
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    let (idle, stall) = (config.limits.idle_time, config.limits.stall_time);
    let silent = Arc::clone(&watched);
    let bored = async move {
        match silence(&silent, idle, stall).await {
            Silence::Idle => stall,
            Silence::Stalled => Duration::ZERO,
        }
    };
    let ended = to_its_end(worker, connection, bored, |connection| connection.graceful_shutdown()).await;
    note_end(worker, address, &watched, ended);
}

/// What hyper is given of a stream's reply at a time, in bytes: it keeps that until the client takes it. A frame holds no
/// more, unless a client allows it.
const HANDED_BYTES: usize = 16 << 10;

/// A reply in small pieces, each handed over when the client has taken those before.
struct Handed {
    body: ReplyBody,
    rest: Bytes,
    since: Since,
}

impl Body for Handed {
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
        let bytes = this.rest.len().min(HANDED_BYTES);
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

/// Writes of more bytes than this bring a client more than a ping.
const PROGRESS_BYTES: usize = 64;

/// A client that takes bytes, however few at a time, is not silent.
struct Counted<T> {
    io: T,
    watched: Arc<Watched>,
}

impl<T> Counted<T> {
    fn note(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if matches!(written, Poll::Ready(Ok(bytes)) if bytes > PROGRESS_BYTES) {
            self.watched.progress.fetch_add(1, Ordering::Relaxed);
        }
        written
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Counted<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_read(cx, bytes)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Counted<T> {
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

enum Silence {
    /// Nothing was asked for and nothing was under way for `limits.idle_s`.
    Idle,
    /// The client took nothing of what there was for it for `limits.stall_s`.
    Stalled,
}

/// Until one of the two has lasted so long, or up to a quarter longer. Pings are no sign of life here: whoever answers them
/// may hold a connection and all that is under way on it by doing nothing else.
async fn silence(watched: &Watched, idle: Duration, stall: Duration) -> Silence {
    let step = idle.min(stall) / 4;
    let (mut quiet, mut known) = (Duration::ZERO, 0);
    loop {
        tokio::time::sleep(step).await;
        let progress = watched.progress.load(Ordering::Relaxed);
        let (busy, waiting) = (watched.busy.load(Ordering::Relaxed), watched.waiting.load(Ordering::Relaxed));
        // Where all wait for us there is nothing to complain of.
        let silent = progress == known && (busy == 0 || waiting < busy);
        quiet = if silent { quiet + step } else { Duration::ZERO };
        known = progress;
        match busy {
            0 if quiet >= idle => return Silence::Idle,
            1.. if quiet >= stall => return Silence::Stalled,
            _ => {}
        }
    }
}

/// Serves until the client or the server ends it: asked to end when the server drains, cut off when that lasts too long;
/// asked to end when it is `bored`, and cut off so long after. Gives what comes of it; nothing when it was cut off.
async fn to_its_end<C: Future>(
    worker: &Worker,
    connection: C,
    bored: impl Future<Output = Duration>,
    ask_to_end: impl FnOnce(Pin<&mut C>),
) -> Option<C::Output> {
    let mut connection = std::pin::pin!(connection);
    let mut stage = worker.shared.stage.subscribe();
    let left = tokio::select! {
        ended = connection.as_mut() => return Some(ended),
        left = bored => Some(left),
        _ = stage.wait_for(|stage| *stage >= Stage::Draining) => None,
    };
    ask_to_end(connection.as_mut());
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
