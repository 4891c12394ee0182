//! Stands between a client's socket and hyper: no request reaches the parser that two readers could read in two ways,
//! and no client holds a connection by doing nothing.
//!
//! ```text
//! socket ─> Sentry: raw head ─ framing::check_request ─> hyper
//!              │      violation: bytes that hyper answers with 400, then the end
//!              ├─ nothing in time: the connection ends        idle │ head │ body │ reply not taken
//!              └─ idle for a while: the socket is laid down, and all else let go
//! ```
//!
//! Always holds: hyper never sees the end of a head that was not checked; where a body ends is known here by the same
//! rules, so that the next head is found where hyper finds it. Bytes are copied once, and no idle connection has a buffer.
//! Not here: limits on lengths that hyper keeps (431).
//! Source: RFC 9112 sections 2.2, 6 and 7.1.

use std::cell::RefCell;
use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use hyper::rt::ReadBufCursor;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

use super::chunks::Chunks;
use crate::rules::framing::{self, BodyLength};

/// How long a client may take.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Between requests.
    pub idle: Duration,
    /// For a head, from its first byte on.
    pub head: Duration,
    /// Without a byte of a body, either way.
    pub stall: Duration,
}

/// What sentry and service both know of a connection.
#[derive(Debug, Default)]
pub struct Watched {
    /// Requests whose replies have not ended.
    pub busy: AtomicU32,
    /// Of them, those whose clients wait for us and not we for them.
    pub waiting: AtomicU32,
    /// Requests and pieces of replies so far.
    pub progress: AtomicU64,
    /// What follows is of another protocol.
    pub switched: AtomicBool,
    /// Requests that were refused for how they were written.
    pub refused: AtomicU64,
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

/// A socket between two requests, while hyper's buffers for it are let go.
pub struct Resting<T> {
    /// The socket.
    pub io: T,
    /// When the client said something last.
    pub heard_at: Instant,
}

/// Where a sentry lays a socket down.
pub struct Bed<T>(Arc<Mutex<Option<Resting<T>>>>);

impl<T> Bed<T> {
    /// Empty.
    pub fn new() -> Self {
        Self(Arc::default())
    }

    /// What was laid down.
    pub fn take(&self) -> Option<Resting<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Whether there is something.
    pub fn is_taken(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    fn lay(&self, resting: Resting<T>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(resting);
    }
}

impl<T> Clone for Bed<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// How long a connection lies idle until its socket is laid down: a new one is made when it wakes, in a few microseconds.
const REST_AFTER: Duration = Duration::from_millis(500);

/// The socket, guarded.
pub struct Sentry<T> {
    /// Nothing once it is laid down.
    io: Option<T>,
    bed: Bed<T>,
    watched: Arc<Watched>,
    patience: Patience,
    head_max_bytes: usize,
    place: Place,
    /// What came of a head whose end did not come with it.
    partial: Vec<u8>,
    heard_at: Instant,
    timer: Pin<Box<Sleep>>,
    /// While the client takes nothing.
    unsent: Option<Pin<Box<Sleep>>>,
}

const SCRATCH_BYTES: usize = 64 << 10;
/// What no head may hold: hyper answers 400 to it wherever it stands.
const NONSENSE: &[u8] = b"\0\r\n\r\n";

thread_local! {
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; SCRATCH_BYTES].into_boxed_slice());
}

impl<T> Sentry<T> {
    /// Guards a connection that begins now.
    pub fn new(io: T, bed: Bed<T>, watched: Arc<Watched>, patience: Patience, head_max_bytes: usize) -> Self {
        let heard_at = Instant::now();
        let begun = Resting { io, heard_at };
        Self { place: Place::Head(heard_at), ..Self::again(begun, bed, watched, patience, head_max_bytes) }
    }

    /// Guards one that was laid down.
    pub fn again(
        resting: Resting<T>,
        bed: Bed<T>,
        watched: Arc<Watched>,
        patience: Patience,
        head_max_bytes: usize,
    ) -> Self {
        let Resting { io, heard_at } = resting;
        let timer = Box::pin(tokio::time::sleep(patience.head.min(REST_AFTER)));
        Self {
            io: Some(io),
            bed,
            watched,
            patience,
            head_max_bytes,
            place: Place::Idle,
            partial: Vec::new(),
            heard_at,
            timer,
            unsent: None,
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
                    Err(_violation) => {
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
                        self.watched.refused.fetch_add(1, Ordering::Relaxed);
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

    fn follow_head(&mut self, rest: &[u8]) -> Result<usize, framing::Violation> {
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
            if self.partial.len() > self.head_max_bytes * 2 {
                return Err(framing::Violation::Unfinished);
            }
            // Half of an empty line is no beginning yet.
            if let Place::Idle = self.place
                && self.partial != b"\r"
            {
                self.place = Place::Head(Instant::now());
            }
            return Ok(rest.len());
        };
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
            Place::Head(since) => Some(since + self.patience.head),
            Place::Idle if self.watched.busy.load(Ordering::Relaxed) == 0 => {
                let rests = if self.may_rest() { REST_AFTER } else { Duration::MAX };
                Some(self.heard_at + self.patience.idle.min(rests))
            }
            Place::Body(_) | Place::Chunked(_) => Some(self.heard_at + self.patience.stall),
            _ => None,
        }
    }

    fn is_tunnel(&self) -> bool {
        matches!(self.place, Place::Tunnel) || self.watched.switched.load(Ordering::Relaxed)
    }

    /// Whether nothing is under way, and nobody else knows more of the connection than that.
    fn may_rest(&self) -> bool {
        matches!(self.place, Place::Idle)
            && self.partial.is_empty()
            && self.unsent.is_none()
            && self.patience.idle > REST_AFTER
            && self.watched.busy.load(Ordering::Relaxed) == 0
            && !self.watched.switched.load(Ordering::Relaxed)
    }

    fn poll_patience(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        // The timer may have been set for the idle time before, which is longer than a head's.
        if let Some(deadline) = self.deadline()
            && self.timer.deadline() > deadline.into()
        {
            self.timer.as_mut().reset(deadline.into());
        }
        loop {
            ready!(self.timer.as_mut().poll(cx));
            let now = Instant::now();
            match self.deadline() {
                Some(deadline) if deadline <= now => {
                    if self.may_rest()
                        && let Some(io) = self.io.take()
                    {
                        self.bed.lay(Resting { io, heard_at: self.heard_at });
                        return Poll::Pending;
                    }
                    return Poll::Ready(io::ErrorKind::TimedOut.into());
                }
                Some(deadline) => self.timer.as_mut().reset(deadline.min(now + REST_AFTER).into()),
                None => {
                    // The reply is under way: its end counts as word from the client.
                    self.heard_at = now;
                    let least = self.patience.idle.min(self.patience.stall).min(self.patience.head);
                    // That end is told to nobody here: it is looked for.
                    let again = if self.is_tunnel() { least } else { least.min(REST_AFTER) };
                    self.timer.as_mut().reset((now + again).into());
                }
            }
        }
    }

    fn poll_taking<R>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<R>>) -> Poll<io::Result<R>> {
        // A tunnel has a time of its own, which both ways share.
        if written.is_ready() || self.is_tunnel() {
            self.unsent = None;
            return written;
        }
        let stall = self.patience.stall;
        let unsent = self.unsent.get_or_insert_with(|| Box::pin(tokio::time::sleep(stall)));
        ready!(unsent.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
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

impl<T: AsyncRead + AsyncWrite + Unpin> hyper::rt::Read for Sentry<T> {
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

impl<T: AsyncRead + AsyncWrite + Unpin> hyper::rt::Write for Sentry<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let Some(io) = &mut this.io else { return Poll::Ready(Err(io::ErrorKind::NotConnected.into())) };
        let written = Pin::new(io).poll_write(cx, bytes);
        this.poll_taking(cx, written)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let Some(io) = &mut this.io else { return Poll::Ready(Ok(())) };
        let flushed = Pin::new(io).poll_flush(cx);
        this.poll_taking(cx, flushed)
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
        let Some(io) = &mut this.io else { return Poll::Ready(Err(io::ErrorKind::NotConnected.into())) };
        let written = Pin::new(io).poll_write_vectored(cx, bytes);
        this.poll_taking(cx, written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sentry() -> Sentry<tokio::io::DuplexStream> {
        let patience = Patience {
            idle: Duration::from_secs(1),
            head: Duration::from_secs(1),
            stall: Duration::from_secs(1),
        };
        Sentry::new(tokio::io::duplex(64).0, Bed::new(), Arc::new(Watched::default()), patience, 1 << 14)
    }

    #[test]
    fn a_head_that_begins_while_a_long_idle_time_runs_has_no_longer_than_a_head_has() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        let _inside = runtime.enter();
        let mut sentry = sentry();
        sentry.patience.idle = Duration::from_secs(3600);
        sentry.place = Place::Idle;
        sentry.timer.as_mut().reset((Instant::now() + Duration::from_secs(3600)).into());
        sentry.follow(b"GET / HT");
        let mut context = Context::from_waker(std::task::Waker::noop());
        assert!(sentry.poll_patience(&mut context).is_pending());
        let latest = Instant::now() + sentry.patience.head;
        assert!(sentry.timer.deadline() <= latest.into(), "it wakes when the head is late");
    }

    /// How much hyper sees of what comes in pieces, and whether the rest was refused.
    fn follow(pieces: &[&[u8]]) -> (usize, bool) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        let _inside = runtime.enter();
        let mut sentry = sentry();
        let seen = pieces.iter().map(|piece| sentry.follow(piece)).sum();
        (seen, matches!(sentry.place, Place::Refused))
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
}
