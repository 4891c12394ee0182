//! Stands between a client's socket and hyper. No request reaches the parser that two parsers could read differently, and no
//! client holds a connection by doing nothing.
//!
//! ```text
//! socket ─> RequestGuard: raw head ─ framing::check_request ─> hyper
//!              │      violation: an invalid head that hyper answers with 400, then end of file
//!              ├─ timeout: the connection ends        idle │ head │ body │ reply not read
//!              └─ idle for a while: the socket is parked, and everything else freed
//!
//! writes:  Clear ── a read ──> Deferred ── hyper writes ──> Due ── next poll: written ──> Clear
//!                                                            └─ the client reads nothing ──> Blocked, for stall_s at most
//! ```
//!
//! Always holds:
//! - hyper never sees the end of a head that was not checked. The guard finds the end of each body by the same rules as hyper,
//!   so both find the next head at the same byte.
//! - Bytes are copied once, and an idle connection has no buffer.
//! - A connection counts as idle, and its socket is parked, only after a completed flush that followed the end of its last
//!   reply. hyper flushes the socket only when its own buffer is empty, so no part of a reply is left there.
//!
//! The first write after a read is deferred by one poll, so that all tasks that are ready read first, and the write that wakes
//! the peer lets it find the bytes of the others too. The write waits for other tasks, not for time: alone it leaves at once,
//! and later writes of a long reply are not deferred.
//! Not here: where a request ends (`scanner`); limits on field lengths, which hyper enforces (431).

mod connection_state;
mod parking;
mod scanner;

use std::cell::RefCell;
use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::rt::ReadBufCursor;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

pub use self::connection_state::ConnectionState;
pub use self::parking::{Parked, Parking};
use self::scanner::{ReadState, RequestScanner};

/// How long a client may take.
#[derive(Clone, Copy, Debug)]
pub struct ClientTimeouts {
    /// Between requests.
    pub idle: Duration,
    /// For a request head, from its first byte.
    pub head: Duration,
    /// Without a byte of a body in either direction.
    pub stall: Duration,
}

/// The state of writes between hyper and the socket.
enum Writes {
    /// Writes pass.
    Clear,
    /// The next write is deferred by one poll.
    Deferred,
    /// It was deferred: hyper has bytes to write now.
    Due,
    /// The client reads nothing, and may do so until the timer fires.
    Blocked(Pin<Box<Sleep>>),
}

/// How long a connection is idle before its socket is parked. Resuming it takes a few microseconds.
const PARK_AFTER: Duration = Duration::from_millis(500);

/// A guarded socket.
pub struct RequestGuard<T> {
    /// `None` once it is parked.
    io: Option<T>,
    parking: Parking<T>,
    conn_state: Arc<ConnectionState>,
    timeouts: ClientTimeouts,
    scanner: RequestScanner,
    last_read_at: Instant,
    timer: Pin<Box<Sleep>>,
    writes: Writes,
}

const SCRATCH_BYTES: usize = 64 << 10;
/// Bytes that are invalid anywhere in a head, so that hyper answers 400.
const INVALID_HEAD: &[u8] = b"\0\r\n\r\n";

thread_local! {
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; SCRATCH_BYTES].into_boxed_slice());
}

impl<T> RequestGuard<T> {
    /// Guards a new connection.
    pub fn new(
        io: T,
        parking: Parking<T>,
        conn_state: Arc<ConnectionState>,
        timeouts: ClientTimeouts,
        head_max_bytes: usize,
    ) -> Self {
        let last_read_at = Instant::now();
        let begun = Parked { io, last_read_at };
        Self {
            scanner: RequestScanner::new(ReadState::Head(last_read_at), head_max_bytes),
            ..Self::resume(begun, parking, conn_state, timeouts, head_max_bytes)
        }
    }

    /// Guards a connection that was parked.
    pub fn resume(
        parked: Parked<T>,
        parking: Parking<T>,
        conn_state: Arc<ConnectionState>,
        timeouts: ClientTimeouts,
        head_max_bytes: usize,
    ) -> Self {
        let Parked { io, last_read_at } = parked;
        let timer = Box::pin(tokio::time::sleep(timeouts.head.min(PARK_AFTER)));
        Self {
            io: Some(io),
            parking,
            conn_state,
            timeouts,
            scanner: RequestScanner::new(ReadState::Idle, head_max_bytes),
            last_read_at,
            timer,
            // Its first write answers the bytes it reads first.
            writes: Writes::Deferred,
        }
    }

    /// Scans received bytes. Returns how many hyper may see; fewer than all when the rest is refused.
    pub(crate) fn scan(&mut self, bytes: &[u8]) -> usize {
        self.scanner.scan(bytes, &self.conn_state)
    }

    /// Whether the last bytes were refused, so that nothing more is read.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn is_refused(&self) -> bool {
        matches!(self.scanner.state(), ReadState::Refused)
    }

    /// When the client must have sent something; `None` while it waits for the proxy.
    fn deadline(&self) -> Option<Instant> {
        match self.scanner.state() {
            ReadState::Head(since) => Some(*since + self.timeouts.head),
            // While part of a reply has not left, the write timeout applies instead.
            ReadState::Idle if self.is_quiet() => {
                let parks = if self.may_park() { PARK_AFTER } else { Duration::MAX };
                Some(self.last_read_at + self.timeouts.idle.min(parks))
            }
            ReadState::Body(_) | ReadState::Chunked(_) => Some(self.last_read_at + self.timeouts.stall),
            _ => None,
        }
    }

    fn is_tunnel(&self) -> bool {
        matches!(self.scanner.state(), ReadState::Tunnel) || self.conn_state.switched.load(Ordering::Relaxed)
    }

    /// Whether all replies have ended and left, and hyper is not known to hold bytes for the client.
    fn is_quiet(&self) -> bool {
        self.conn_state.is_quiet() && matches!(self.writes, Writes::Clear | Writes::Deferred)
    }

    /// Whether the connection has no state beyond its socket.
    fn may_park(&self) -> bool {
        self.scanner.is_between_requests()
            && self.is_quiet()
            && self.timeouts.idle > PARK_AFTER
            && !self.conn_state.switched.load(Ordering::Relaxed)
    }

    fn poll_timeout(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        // The timer may be set for the idle timeout, which can be longer than that of a head.
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
                    if self.may_park()
                        && let Some(io) = self.io.take()
                    {
                        self.parking.park(Parked { io, last_read_at: self.last_read_at });
                        return Poll::Pending;
                    }
                    return Poll::Ready(io::ErrorKind::TimedOut.into());
                }
                Some(deadline) => self.timer.as_mut().reset(deadline.min(now + PARK_AFTER)),
                None => {
                    // A reply is in progress; its end counts as activity of the client.
                    self.last_read_at = now;
                    let least = self.timeouts.idle.min(self.timeouts.stall).min(self.timeouts.head);
                    // The guard is not notified of that end, so it polls for it.
                    let again = if self.is_tunnel() { least } else { least.min(PARK_AFTER) };
                    self.timer.as_mut().reset(now + again);
                }
            }
        }
    }

    /// Ready when hyper may write. A task that wakes itself goes to the end of the run queue, behind all tasks that are ready now.
    fn poll_deferral(&mut self, cx: &Context<'_>) -> Poll<()> {
        if !matches!(self.writes, Writes::Deferred) {
            return Poll::Ready(());
        }
        self.writes = Writes::Due;
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// Passes on the result of a write or flush, and bounds the time for which the client reads nothing.
    fn poll_write_timeout<R>(
        &mut self,
        cx: &mut Context<'_>,
        done: Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        // A tunnel has its own timeout, shared by both directions.
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

    /// Everything that hyper had has left, and with it the replies that have ended. The idle timeout of the client starts.
    fn note_flushed(&mut self) {
        let ended = self.conn_state.ended.load(Ordering::Relaxed);
        if self.conn_state.flushed.load(Ordering::Relaxed) != ended {
            self.conn_state.flushed.store(ended, Ordering::Relaxed);
            self.last_read_at = Instant::now();
        }
    }

    /// A write after the socket was parked.
    fn lost<R>(&self) -> Poll<io::Result<R>> {
        self.conn_state.lost_writes.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(Err(io::ErrorKind::NotConnected.into()))
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> hyper::rt::Read for RequestGuard<T> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut cursor: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.scanner.take_refusal() {
            let bytes = cursor.remaining().min(INVALID_HEAD.len());
            cursor.put_slice(&INVALID_HEAD[..bytes]);
            return Poll::Ready(Ok(()));
        }
        if matches!(this.scanner.state(), ReadState::Ended) {
            return Poll::Ready(Ok(()));
        }
        SCRATCH.with_borrow_mut(|scratch| {
            let Some(io) = &mut this.io else { return Poll::Pending };
            let room = cursor.remaining().min(SCRATCH_BYTES);
            let mut read = ReadBuf::new(&mut scratch[..room]);
            match Pin::new(io).poll_read(cx, &mut read) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return this.poll_timeout(cx).map(Err),
            }
            if matches!(this.writes, Writes::Clear) {
                this.writes = Writes::Deferred;
            }
            let bytes = read.filled();
            this.last_read_at = Instant::now();
            let seen = this.scan(bytes);
            cursor.put_slice(&bytes[..seen]);
            if seen == 0 && this.scanner.take_refusal() {
                let bytes = cursor.remaining().min(INVALID_HEAD.len());
                cursor.put_slice(&INVALID_HEAD[..bytes]);
            }
            Poll::Ready(Ok(()))
        })
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> hyper::rt::Write for RequestGuard<T> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_deferral(cx));
        let Some(io) = &mut this.io else { return this.lost() };
        let written = Pin::new(io).poll_write(cx, bytes);
        this.poll_write_timeout(cx, written)
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
            flushed => this.poll_write_timeout(cx, flushed),
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
        ready!(this.poll_deferral(cx));
        let Some(io) = &mut this.io else { return this.lost() };
        let written = Pin::new(io).poll_write_vectored(cx, bytes);
        this.poll_write_timeout(cx, written)
    }
}

#[cfg(test)]
mod tests;
