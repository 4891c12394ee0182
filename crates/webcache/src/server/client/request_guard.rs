//! Stands between a client's socket and hyper: no request reaches the parser that two readers could read in two ways,
//! and no client holds a connection by doing nothing.
//!
//! ```text
//! socket ─> RequestGuard: raw head ─ framing::check_request ─> hyper
//!              │      violation: bytes that hyper answers with 400, then the end
//!              ├─ nothing in time: the connection ends        idle │ head │ body │ reply not taken
//!              └─ idle for a while: the socket is laid down, and all else let go
//!
//! writes:  Clear ── a read ──> Deferred ── hyper writes ──> Due ── next turn: written ──> Clear
//!                                                            └─ the client takes nothing ──> Blocked, for stall_s at most
//! ```
//!
//! Always holds: hyper never sees the end of a head that was not checked; where a body ends is known here by the same
//! rules, so that the next head is found where hyper finds it. Bytes are copied once, and no idle connection has a buffer.
//! A connection counts as idle, and its socket is laid down, only after a completed flush that followed the end of its last
//! reply: hyper flushes the socket only once its own buffer is empty, so that nothing of a reply is left in it by then.
//!
//! The first write after a read waits for one turn of the loop, so that all that are ready read first, and the write that
//! wakes the other side finds the others' bytes there too. It waits for the other tasks, not for time: alone, it goes out at
//! once, and what follows in a long reply waits for nothing.
//! Not here: limits on lengths that hyper keeps (431).
//! Source: RFC 9112 sections 2.2, 6 and 7.1.

use std::cell::RefCell;
use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http_cache_rules::framing::{self, BodyLength};
use hyper::rt::ReadBufCursor;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use crate::server::client::chunks::Chunks;

/// How long a client may take.
#[derive(Clone, Copy, Debug)]
pub struct ClientTimeouts {
    /// Between requests.
    pub idle: Duration,
    /// For a head, from its first byte on.
    pub head: Duration,
    /// Without a byte of a body, either way.
    pub stall: Duration,
}

/// What request guard and service both know of a connection.
#[derive(Debug, Default)]
pub struct Watched {
    /// Requests whose replies have not ended.
    pub busy: AtomicU32,
    /// Replies that have ended, as far as hyper has all of them.
    pub ended: AtomicU64,
    /// Of them those that have left: the value of `ended` when the socket was flushed last. HTTP/1 only.
    pub flushed: AtomicU64,
    /// Writes to a socket that was laid down, which must not happen: what was written is lost.
    pub lost_writes: AtomicU64,
    /// Of them, those whose clients wait for us and not we for them.
    pub waiting: AtomicU32,
    /// Requests and pieces of replies so far.
    pub progress: AtomicU64,
    /// What follows is of another protocol.
    pub switched: AtomicBool,
    /// Requests that were refused for how their heads were written.
    pub refused: AtomicU64,
    /// Those whose heads were longer than they may be.
    pub refused_long: AtomicU64,
    /// Those refused for how their chunks were: they have a head, and are answered by that.
    pub refused_bodies: AtomicU64,
}

impl Watched {
    /// A reply has ended: hyper has all of it, or it broke off. Gives its number among this connection's replies.
    pub fn reply_ended(&self) -> u64 {
        self.busy.fetch_sub(1, Ordering::Relaxed);
        self.ended.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Whether no reply is under way, and all of them have left.
    fn is_quiet(&self) -> bool {
        self.busy.load(Ordering::Relaxed) == 0
            && self.ended.load(Ordering::Relaxed) == self.flushed.load(Ordering::Relaxed)
    }
}

enum Place {
    /// Before a head.
    Idle,
    /// In one, since then.
    Head(Instant),
    Body(u64),
    Chunked(Chunks),
    /// After CONNECT, or a switch of protocols: not HTTP.
    Tunnel,
    /// To be told to hyper as nonsense.
    Refused,
    Ended,
}

/// What stands between what hyper writes and the socket.
enum Writes {
    /// Nothing.
    Clear,
    /// The next write waits for a turn of the loop.
    Deferred,
    /// It has waited: hyper has bytes that are to be written now.
    Due,
    /// The client takes nothing, and may do so until then.
    Blocked(Pin<Box<Sleep>>),
}

/// A socket between two requests, while hyper's buffers for it are let go.
pub struct Parked<T> {
    /// The socket.
    pub io: T,
    /// When the client said something last.
    pub heard_at: Instant,
}

/// Where a request guard lays a socket down.
pub struct Parking<T>(Arc<Mutex<Option<Parked<T>>>>);

impl<T> Parking<T> {
    /// Empty.
    pub fn new() -> Self {
        Self(Arc::default())
    }

    /// What was laid down.
    pub fn take(&self) -> Option<Parked<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Whether there is something.
    pub fn is_taken(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    fn park(&self, parked: Parked<T>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(parked);
    }
}

impl<T> Clone for Parking<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// How long a connection lies idle until its socket is laid down: a new one is made when it wakes, in a few microseconds.
const REST_AFTER: Duration = Duration::from_millis(500);

/// The socket, guarded.
pub struct RequestGuard<T> {
    /// Nothing once it is laid down.
    io: Option<T>,
    parking: Parking<T>,
    watched: Arc<Watched>,
    timeouts: ClientTimeouts,
    head_max_bytes: usize,
    place: Place,
    /// What came of a head whose end did not come with it.
    partial: Vec<u8>,
    heard_at: Instant,
    timer: Pin<Box<Sleep>>,
    writes: Writes,
}

const SCRATCH_BYTES: usize = 64 << 10;
/// What no head may hold: hyper answers 400 to it wherever it stands.
const NONSENSE: &[u8] = b"\0\r\n\r\n";

thread_local! {
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; SCRATCH_BYTES].into_boxed_slice());
}

/// Why a request's head is not passed on whole.
enum Refusal {
    /// It is longer than `limits.head_kib`: hyper gets as many bytes as it takes for a head, and answers 431.
    Long {
        seen: usize,
    },
    Malformed(framing::Violation),
}

impl From<framing::Violation> for Refusal {
    fn from(violation: framing::Violation) -> Self {
        Self::Malformed(violation)
    }
}

impl<T> RequestGuard<T> {
    /// Guards a connection that begins now.
    pub fn new(
        io: T,
        parking: Parking<T>,
        watched: Arc<Watched>,
        timeouts: ClientTimeouts,
        head_max_bytes: usize,
    ) -> Self {
        let heard_at = Instant::now();
        let begun = Parked { io, heard_at };
        Self {
            place: Place::Head(heard_at),
            ..Self::again(begun, parking, watched, timeouts, head_max_bytes)
        }
    }

    /// Guards one that was laid down.
    pub fn again(
        parked: Parked<T>,
        parking: Parking<T>,
        watched: Arc<Watched>,
        timeouts: ClientTimeouts,
        head_max_bytes: usize,
    ) -> Self {
        let Parked { io, heard_at } = parked;
        let timer = Box::pin(tokio::time::sleep(timeouts.head.min(REST_AFTER)));
        Self {
            io: Some(io),
            parking,
            watched,
            timeouts,
            head_max_bytes,
            place: Place::Idle,
            partial: Vec::new(),
            heard_at,
            timer,
            // Its first write answers what it reads first.
            writes: Writes::Deferred,
        }
    }

    /// Follows what was received. Gives how many bytes hyper may see; fewer than all when the rest is refused.
    pub(crate) fn follow(&mut self, bytes: &[u8]) -> usize {
        if self.watched.switched.load(Ordering::Relaxed) {
            self.place = Place::Tunnel;
        }
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            match &mut self.place {
                Place::Idle | Place::Head(_) => match self.follow_head(rest) {
                    Ok(taken) => at += taken,
                    Err(Refusal::Long { seen }) => {
                        self.watched.refused_long.fetch_add(1, Ordering::Relaxed);
                        self.place = Place::Refused;
                        return at + seen;
                    }
                    Err(Refusal::Malformed(_violation)) => {
                        self.watched.refused.fetch_add(1, Ordering::Relaxed);
                        self.place = Place::Refused;
                        return at;
                    }
                },
                Place::Body(left) => {
                    let taken = (*left).min(rest.len() as u64);
                    *left -= taken;
                    at += taken as usize;
                    if *left == 0 {
                        self.place = Place::Idle;
                    }
                }
                Place::Chunked(chunks) => match chunks.follow(rest) {
                    Ok(taken) => {
                        at += taken;
                        if chunks.is_done() {
                            self.place = Place::Idle;
                        }
                    }
                    Err(_) => {
                        self.watched.refused_bodies.fetch_add(1, Ordering::Relaxed);
                        self.place = Place::Refused;
                        return at;
                    }
                },
                Place::Tunnel => return bytes.len(),
                Place::Refused | Place::Ended => return at,
            }
        }
        at
    }

    /// Whether what came last was refused, and nothing is read any more.
    pub(crate) fn is_refused(&self) -> bool {
        matches!(self.place, Place::Refused)
    }

    fn follow_head(&mut self, rest: &[u8]) -> Result<usize, Refusal> {
        // Empty lines before a request are passed over, as hyper does (RFC 9112 section 2.2), also in two pieces.
        let line_break = &b"\r\n"[self.partial.len().min(2)..];
        if b"\r\n".starts_with(&self.partial) && !line_break.is_empty() && rest.starts_with(line_break) {
            self.partial = Vec::new();
            return Ok(line_break.len());
        }
        let known = self.partial.len();
        // The end may have begun in what came before.
        let from = known.saturating_sub(3);
        let head: &[u8] = if known == 0 {
            rest
        } else {
            self.partial.extend_from_slice(rest);
            &self.partial
        };
        let Some(end) = find_end(head, from, known)? else {
            if known == 0 {
                self.partial.extend_from_slice(rest);
            }
            if self.partial.len() >= self.head_max_bytes {
                return Err(Refusal::Long { seen: self.head_max_bytes - known });
            }
            // Half of an empty line is no beginning yet.
            if let Place::Idle = self.place
                && self.partial != b"\r"
            {
                self.place = Place::Head(Instant::now());
            }
            return Ok(rest.len());
        };
        if end > self.head_max_bytes {
            return Err(Refusal::Long { seen: self.head_max_bytes - known });
        }
        let framing = framing::check_request(&head[..end])?;
        let tunnel = head.starts_with(b"CONNECT ");
        self.partial = Vec::new();
        self.watched.busy.fetch_add(1, Ordering::Relaxed);
        self.place = match framing.body {
            _ if tunnel => Place::Tunnel,
            BodyLength::Nothing | BodyLength::Bytes(0) | BodyLength::UntilClose => Place::Idle,
            BodyLength::Bytes(bytes) => Place::Body(bytes),
            BodyLength::Chunked => Place::Chunked(Chunks::default()),
        };
        Ok(end - known)
    }

    /// When the client must have said something; nothing while it waits for us.
    fn deadline(&self) -> Option<Instant> {
        match self.place {
            Place::Head(since) => Some(since + self.timeouts.head),
            // As long as a part of a reply has not left, the client's time is that of a write.
            Place::Idle if self.is_quiet() => {
                let rests = if self.may_rest() { REST_AFTER } else { Duration::MAX };
                Some(self.heard_at + self.timeouts.idle.min(rests))
            }
            Place::Body(_) | Place::Chunked(_) => Some(self.heard_at + self.timeouts.stall),
            _ => None,
        }
    }

    fn is_tunnel(&self) -> bool {
        matches!(self.place, Place::Tunnel) || self.watched.switched.load(Ordering::Relaxed)
    }

    /// Whether all replies have ended and left, and hyper is not known to have bytes for the client.
    fn is_quiet(&self) -> bool {
        self.watched.is_quiet() && matches!(self.writes, Writes::Clear | Writes::Deferred)
    }

    /// Whether nothing is under way, and nobody else knows more of the connection than that.
    fn may_rest(&self) -> bool {
        matches!(self.place, Place::Idle)
            && self.partial.is_empty()
            && self.is_quiet()
            && self.timeouts.idle > REST_AFTER
            && !self.watched.switched.load(Ordering::Relaxed)
    }

    fn poll_patience(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        // The timer may have been set for the idle time before, which is longer than a head's.
        if let Some(deadline) = self.deadline()
            && self.timer.deadline() > deadline
        {
            self.timer.as_mut().reset(deadline);
        }
        loop {
            ready!(self.timer.as_mut().poll(cx));
            let now = Instant::now();
            match self.deadline() {
                Some(deadline) if deadline <= now => {
                    if self.may_rest()
                        && let Some(io) = self.io.take()
                    {
                        self.parking.park(Parked { io, heard_at: self.heard_at });
                        return Poll::Pending;
                    }
                    return Poll::Ready(io::ErrorKind::TimedOut.into());
                }
                Some(deadline) => self.timer.as_mut().reset(deadline.min(now + REST_AFTER)),
                None => {
                    // The reply is under way: its end counts as word from the client.
                    self.heard_at = now;
                    let least = self.timeouts.idle.min(self.timeouts.stall).min(self.timeouts.head);
                    // That end is told to nobody here: it is looked for.
                    let again = if self.is_tunnel() { least } else { least.min(REST_AFTER) };
                    self.timer.as_mut().reset(now + again);
                }
            }
        }
    }

    /// Ready when hyper may write. A task that wakes itself goes to the end of the queue, behind all that are ready now.
    fn poll_turn(&mut self, cx: &Context<'_>) -> Poll<()> {
        if !matches!(self.writes, Writes::Deferred) {
            return Poll::Ready(());
        }
        self.writes = Writes::Due;
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// What comes of a write or a flush, and for how long the client may take nothing.
    fn poll_taking<R>(&mut self, cx: &mut Context<'_>, done: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        // A tunnel has a time of its own, which both ways share.
        if done.is_ready() || self.is_tunnel() {
            self.writes = Writes::Clear;
            return done;
        }
        if !matches!(self.writes, Writes::Blocked(_)) {
            self.writes = Writes::Blocked(Box::pin(tokio::time::sleep(self.timeouts.stall)));
        }
        let Writes::Blocked(until) = &mut self.writes else { return Poll::Pending };
        ready!(until.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// All that hyper had has left: with it the replies that have ended. The client's time for the next request begins.
    fn note_flushed(&mut self) {
        let ended = self.watched.ended.load(Ordering::Relaxed);
        if self.watched.flushed.load(Ordering::Relaxed) != ended {
            self.watched.flushed.store(ended, Ordering::Relaxed);
            self.heard_at = Instant::now();
        }
    }

    /// A write after the socket was laid down.
    fn lost<R>(&self) -> Poll<io::Result<R>> {
        self.watched.lost_writes.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(Err(io::ErrorKind::NotConnected.into()))
    }
}

/// Past the empty line, if it is there, looked for from `from` on. Line feeds from `known` on that end a line for lenient
/// readers only are refused: a lenient one might take the head for finished.
fn find_end(head: &[u8], from: usize, known: usize) -> Result<Option<usize>, framing::Violation> {
    let mut at = from;
    while let Some(feed) = head[at..].iter().position(|byte| *byte == b'\n') {
        let feed = at + feed;
        if feed >= known && (feed == 0 || head[feed - 1] != b'\r') {
            return Err(framing::Violation::BareLineBreak);
        }
        if head[..=feed].ends_with(b"\r\n\r\n") {
            return Ok(Some(feed + 1));
        }
        at = feed + 1;
    }
    Ok(None)
}

impl<T: AsyncRead + AsyncWrite + Unpin> hyper::rt::Read for RequestGuard<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut cursor: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match this.place {
            Place::Refused => {
                this.place = Place::Ended;
                let bytes = cursor.remaining().min(NONSENSE.len());
                cursor.put_slice(&NONSENSE[..bytes]);
                return Poll::Ready(Ok(()));
            }
            Place::Ended => return Poll::Ready(Ok(())),
            _ => {}
        }
        SCRATCH.with_borrow_mut(|scratch| {
            let Some(io) = &mut this.io else { return Poll::Pending };
            let room = cursor.remaining().min(SCRATCH_BYTES);
            let mut read = ReadBuf::new(&mut scratch[..room]);
            match Pin::new(io).poll_read(cx, &mut read) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return this.poll_patience(cx).map(Err),
            }
            if matches!(this.writes, Writes::Clear) {
                this.writes = Writes::Deferred;
            }
            let bytes = read.filled();
            this.heard_at = Instant::now();
            let seen = this.follow(bytes);
            cursor.put_slice(&bytes[..seen]);
            if seen == 0 && matches!(this.place, Place::Refused) {
                this.place = Place::Ended;
                let bytes = cursor.remaining().min(NONSENSE.len());
                cursor.put_slice(&NONSENSE[..bytes]);
            }
            Poll::Ready(Ok(()))
        })
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> hyper::rt::Write for RequestGuard<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_turn(cx));
        let Some(io) = &mut this.io else { return this.lost() };
        let written = Pin::new(io).poll_write(cx, bytes);
        this.poll_taking(cx, written)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let Some(io) = &mut this.io else { return Poll::Ready(Ok(())) };
        match Pin::new(io).poll_flush(cx) {
            Poll::Ready(Ok(())) => {
                this.note_flushed();
                if matches!(this.writes, Writes::Blocked(_)) {
                    this.writes = Writes::Clear;
                }
                Poll::Ready(Ok(()))
            }
            flushed => this.poll_taking(cx, flushed),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.get_mut().io {
            Some(io) => Pin::new(io).poll_shutdown(cx),
            None => Poll::Ready(Ok(())),
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.io.as_ref().is_some_and(AsyncWrite::is_write_vectored)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_turn(cx));
        let Some(io) = &mut this.io else { return this.lost() };
        let written = Pin::new(io).poll_write_vectored(cx, bytes);
        this.poll_taking(cx, written)
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::rc::Rc;

    use bytes::Bytes;
    use http::{Request, Response};
    use http_body::{Body, Frame, SizeHint};
    use hyper::body::Incoming;
    use hyper::rt::{Read as _, Write as _};
    use hyper::server::conn::http1;
    use hyper::service::service_fn;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
    use tokio::sync::Notify;
    use tokio::task::LocalSet;

    use super::*;

    fn request_guard() -> RequestGuard<tokio::io::DuplexStream> {
        let timeouts = ClientTimeouts {
            idle: Duration::from_secs(1),
            head: Duration::from_secs(1),
            stall: Duration::from_secs(1),
        };
        RequestGuard::new(
            tokio::io::duplex(64).0,
            Parking::new(),
            Arc::new(Watched::default()),
            timeouts,
            1 << 14,
        )
    }

    #[test]
    fn a_head_that_begins_while_a_long_idle_time_runs_has_no_longer_than_a_head_has() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        let _inside = runtime.enter();
        let mut request_guard = request_guard();
        request_guard.timeouts.idle = Duration::from_secs(3600);
        request_guard.place = Place::Idle;
        request_guard.timer.as_mut().reset(Instant::now() + Duration::from_secs(3600));
        request_guard.follow(b"GET / HT");
        let mut context = Context::from_waker(std::task::Waker::noop());
        assert!(request_guard.poll_patience(&mut context).is_pending());
        let latest = Instant::now() + request_guard.timeouts.head;
        assert!(request_guard.timer.deadline() <= latest, "it wakes when the head is late");
    }

    /// How much hyper sees of what comes in pieces, and whether the rest was refused.
    fn follow(pieces: &[&[u8]]) -> (usize, bool) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        let _inside = runtime.enter();
        let mut request_guard = request_guard();
        let seen = pieces.iter().map(|piece| request_guard.follow(piece)).sum();
        (seen, matches!(request_guard.place, Place::Refused))
    }

    #[test]
    fn requests_that_follow_each_other_are_told_apart_however_they_are_cut() {
        let stream: &[u8] = b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n\
            POST /b HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello\
            POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nT: v\r\n\r\n\
            GET /d HTTP/1.0\r\n\r\n";
        assert_eq!(follow(&[stream]), (stream.len(), false));
        for size in 1..40 {
            let pieces: Vec<&[u8]> = stream.chunks(size).collect();
            assert_eq!(follow(&pieces), (stream.len(), false), "in pieces of {size}");
        }
    }

    #[test]
    fn a_request_that_can_be_read_in_two_ways_never_reaches_the_parser_whole() {
        let good: &[u8] = b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n";
        let rows: [&[u8]; 7] = [
            b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n",
            b"GET / HTTP/1.1\nHost: a\n\n",
            b"GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n",
            b"GET / HTTP/1.1\r\nHost : a\r\n\r\n",
        ];
        for bad in rows {
            let told = String::from_utf8_lossy(bad).into_owned();
            assert_eq!(follow(&[&[good, bad].concat()]), (good.len(), true), "{told}");
            let bytes: Vec<&[u8]> = bad.chunks(1).collect();
            let (seen, refused) = follow(&bytes);
            assert!(refused && seen < bad.len(), "{told} byte by byte");
        }
    }

    #[test]
    fn a_head_that_is_a_byte_too_long_is_cut_where_hyper_finds_it_too_long_however_it_comes() {
        let head = |bytes: usize| {
            let begin = "GET / HTTP/1.1\r\nHost: a\r\nX: ";
            format!("{begin}{}\r\n\r\n", "x".repeat(bytes - begin.len() - 4)).into_bytes()
        };
        let (longest, most) = (head(1 << 14), 1 << 14);
        for size in [100, 4096, most - 1, most, most + 1, 1 << 16] {
            let told = format!("in pieces of {size}");
            let whole = [&longest[..], &longest].concat();
            assert_eq!(follow(&whole.chunks(size).collect::<Vec<_>>()), (whole.len(), false), "{told}");
            for too_long in [head(most + 1), head(most * 3)] {
                let stream = [&longest[..], &too_long].concat();
                let pieces: Vec<&[u8]> = stream.chunks(size).collect();
                assert_eq!(follow(&pieces), (longest.len() + most, true), "{told}, {} bytes", too_long.len());
            }
        }
    }

    /// A reply of one piece, and its end as the connection is told of it.
    struct Tail(Option<Bytes>, Arc<Watched>);

    impl Body for Tail {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Ready(self.get_mut().0.take().map(|bytes| Ok(Frame::data(bytes))))
        }

        fn size_hint(&self) -> SizeHint {
            SizeHint::with_exact(self.0.as_ref().map_or(0, |bytes| bytes.len() as u64))
        }
    }

    impl Drop for Tail {
        fn drop(&mut self) {
            self.1.reply_ended();
        }
    }

    /// A connection behind a request guard, on a clock that moves only when it is told to, or nothing else is to be done.
    struct Guarded {
        watched: Arc<Watched>,
        parking: Parking<DuplexStream>,
        /// Lets the service answer.
        answer: Rc<Notify>,
        client: DuplexStream,
    }

    fn guarded(timeouts: ClientTimeouts, pipe_bytes: usize, reply: Bytes) -> Guarded {
        let (near, client) = tokio::io::duplex(pipe_bytes);
        let (watched, parking) = (Arc::new(Watched::default()), Parking::new());
        let answer = Rc::new(Notify::new());
        let request_guard = RequestGuard::new(near, parking.clone(), Arc::clone(&watched), timeouts, 1 << 14);
        let service = {
            let (watched, answer) = (Arc::clone(&watched), Rc::clone(&answer));
            service_fn(move |_request: Request<Incoming>| {
                let (watched, answer, reply) = (Arc::clone(&watched), Rc::clone(&answer), reply.clone());
                async move {
                    answer.notified().await;
                    Ok::<_, Infallible>(Response::new(Tail(Some(reply), watched)))
                }
            })
        };
        tokio::task::spawn_local(async move {
            let _ = http1::Builder::new().serve_connection(request_guard, service).await;
        });
        Guarded { watched, parking, answer, client }
    }

    fn paused(test: impl Future<Output = ()>) {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().start_paused(true).build().expect("a runtime");
        LocalSet::new().block_on(&runtime, test);
    }

    /// Reads a reply to the end of its body, which ends with this byte.
    async fn receive(client: &mut DuplexStream, last: u8) -> Vec<u8> {
        let mut reply = Vec::new();
        while reply.last() != Some(&last) {
            assert!(client.read_buf(&mut reply).await.expect("it can be read") > 0, "it ends early");
        }
        reply
    }

    const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

    /// Symptom: a reply that was logged never reaches its client. Cause: the first write after a read waits for one turn, and
    /// when the timer of an idle connection fired in that turn, the socket was laid down with the reply in hyper's buffer.
    /// Fix: see the header.
    #[test]
    fn a_reply_that_ends_just_before_its_connection_would_be_idle_leaves_before_that() {
        // The timer that looks for the end of a reply fires twice a second.
        for released_at_ms in [490, 499, 990, 999, 1490] {
            paused(async move {
                let timeouts = ClientTimeouts {
                    idle: Duration::from_secs(60),
                    head: Duration::from_secs(60),
                    stall: Duration::from_secs(60),
                };
                let mut guarded = guarded(timeouts, 1 << 16, Bytes::from_static(b"hello~"));
                guarded.client.write_all(GET).await.expect("written");
                tokio::time::sleep(Duration::from_millis(released_at_ms)).await;
                // The clock moves within the turn of the reply, and more follows in it than a loop runs before it looks at
                // its timers: then the timer comes first, and the write after it.
                let answer = Rc::clone(&guarded.answer);
                tokio::task::spawn_local(async move {
                    answer.notified().await;
                    tokio::time::advance(Duration::from_millis(20)).await;
                });
                for _ in 0..100 {
                    let answer = Rc::clone(&guarded.answer);
                    tokio::task::spawn_local(async move { answer.notified().await });
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
                guarded.answer.notify_waiters();
                let reply = receive(&mut guarded.client, b'~');
                let reply = tokio::time::timeout(Duration::from_secs(30), reply).await;
                assert!(reply.is_ok(), "released at {released_at_ms} ms, it never comes");
                assert!(!guarded.parking.is_taken(), "it is not idle yet");
                tokio::time::sleep(REST_AFTER * 3).await;
                assert!(guarded.parking.is_taken(), "it is idle by now");
                assert_eq!(guarded.watched.lost_writes.load(Ordering::Relaxed), 0);
            });
        }
    }

    /// Symptom: a client that reads slowly is cut off after `idle_s`, where that is less than `stall_s`. Cause: with the whole
    /// reply in hyper's hands the connection counted as idle, though most of it had yet to leave.
    #[test]
    fn a_client_that_reads_slowly_has_the_time_of_a_write_and_not_that_of_an_idle_connection() {
        let timeouts = ClientTimeouts {
            idle: Duration::from_secs(1),
            head: Duration::from_secs(1),
            stall: Duration::from_secs(10),
        };
        let reply = [&[b'x'; 100_000][..], b"~"].concat();
        paused(async move {
            let mut guarded = guarded(timeouts, 1 << 10, reply.into());
            guarded.client.write_all(GET).await.expect("written");
            tokio::time::sleep(Duration::from_millis(1)).await;
            guarded.answer.notify_waiters();
            let mut got = 0;
            for _ in 0..3 {
                tokio::time::sleep(Duration::from_secs(5)).await;
                got += guarded.client.read(&mut [0; 100]).await.expect("it goes on");
            }
            got += receive(&mut guarded.client, b'~').await.len();
            assert!(got > 100_000, "{got}");
        });
        paused(async move {
            let mut guarded = guarded(timeouts, 1 << 10, vec![b'x'; 100_000].into());
            guarded.client.write_all(GET).await.expect("written");
            tokio::time::sleep(Duration::from_millis(1)).await;
            guarded.answer.notify_waiters();
            tokio::time::sleep(Duration::from_secs(12)).await;
            let mut got = Vec::new();
            guarded.client.read_to_end(&mut got).await.expect("what was on its way");
            assert!(got.len() < 100_000, "one that takes nothing for longer is cut off");
        });
    }

    #[test]
    fn all_that_are_ready_read_before_the_first_writes_and_one_alone_writes_at_once() {
        for count in [1, 3] {
            let done = Rc::new(RefCell::new(Vec::new()));
            let seen = Rc::clone(&done);
            paused(async move {
                let mut tasks = Vec::new();
                for number in 0..count {
                    let done = Rc::clone(&done);
                    let (near, mut far) = tokio::io::duplex(64);
                    far.write_all(b"GET").await.expect("asked");
                    tasks.push(tokio::task::spawn_local(async move {
                        let hour = Duration::from_secs(3600);
                        let timeouts = ClientTimeouts { idle: hour, head: hour, stall: hour };
                        let mut request_guard =
                            RequestGuard::new(near, Parking::new(), Arc::default(), timeouts, 1 << 14);
                        let mut space = [0; 16];
                        let mut room = hyper::rt::ReadBuf::new(&mut space);
                        std::future::poll_fn(|cx| {
                            Pin::new(&mut request_guard).poll_read(cx, room.unfilled())
                        })
                        .await
                        .expect("read");
                        done.borrow_mut().push(("reads", number));
                        for _ in 0..2 {
                            let written = std::future::poll_fn(|cx| {
                                Pin::new(&mut request_guard).poll_write(cx, b"said")
                            })
                            .await;
                            assert_eq!(written.expect("written"), 4);
                            done.borrow_mut().push(("writes", number));
                        }
                        drop(far);
                    }));
                }
                for task in tasks {
                    task.await.expect("no panic");
                }
            });
            let reads = (0..count).map(|number| ("reads", number));
            let writes = (0..count).flat_map(|number| [("writes", number); 2]);
            assert_eq!(seen.take(), reads.chain(writes).collect::<Vec<_>>());
        }
    }
}
