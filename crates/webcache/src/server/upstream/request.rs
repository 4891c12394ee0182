//! A request to an origin: its head, made anew each time it is sent, and its body: nothing, or what the client sends.
//!
//! Always holds: a client's body is no longer than `limits.body_mib`, no pause in it than `limits.stall_s`, and it does not
//! come more slowly than `limits.body_bytes_per_s` for longer than that.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Uri};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tokio::time::Sleep;

/// A client sends more than it may.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the body is longer than this proxy takes (limits.body_mib)")]
pub struct TooLong;

/// A client began with a body and does not go on.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("nothing came of the rest of the body (limits.stall_s)")]
pub struct Silent;

/// A client's body ended before its end, or is not framed as its head says.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the request's body broke off, or its chunks are malformed")]
pub struct BrokenBody;

/// A client sends its body byte by byte.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the body comes too slowly (limits.body_bytes_per_s)")]
pub struct TooSlow;

/// Head of a request that goes on.
pub struct RequestHead {
    pub method: Method,
    pub uri: Uri,
    pub headers: HeaderMap,
}

impl RequestHead {
    pub(in crate::server) fn with(&self, body: RequestBody) -> Request<RequestBody> {
        let mut request = Request::new(body);
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = self.headers.clone();
        request
    }
}

/// Body of a request that goes on.
pub enum RequestBody {
    /// None.
    Nothing,
    /// The client's. Boxed, as hyper makes room for 32 requests for each connection.
    Client(Box<ClientBody>),
}

/// A body that a client sends.
pub struct ClientBody {
    incoming: Incoming,
    /// Bytes that may still come.
    left: Option<u64>,
    /// When a byte of it went on last.
    moved: Rc<Cell<Instant>>,
    /// How long nothing of it may come while the origin would take it; and since when nothing does. Extensions of chunks and
    /// trailers are nothing of it.
    stall: Duration,
    silence: Option<Pin<Box<Sleep>>>,
    pace: Option<Pace>,
}

/// How far a client may still fall behind the least rate. Only the time counts in which nothing but its bytes is waited for.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    bytes_per_s: u64,
    /// The most that there is of `left`.
    grace: Duration,
    left: Duration,
    waiting_since: Option<Instant>,
}

impl Pace {
    /// At this rate, or `grace` behind it; nothing when any rate will do.
    pub fn new(bytes_per_s: u64, grace: Duration) -> Option<Self> {
        (bytes_per_s > 0).then_some(Self { bytes_per_s, grace, left: grace, waiting_since: None })
    }

    fn waits(&mut self, now: Instant) {
        self.waiting_since.get_or_insert(now);
    }

    fn came(&mut self, bytes: usize, now: Instant) -> Result<(), TooSlow> {
        let waited =
            self.waiting_since.take().map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        let left = self.left.checked_sub(waited).ok_or(TooSlow)?;
        let earned = Duration::from_secs_f64(bytes as f64 / self.bytes_per_s as f64);
        self.left = left.saturating_add(earned).min(self.grace);
        Ok(())
    }
}

impl ClientBody {
    /// When a byte of it went on last, for who keeps time.
    pub fn moved(&self) -> Rc<Cell<Instant>> {
        Rc::clone(&self.moved)
    }
}

impl RequestBody {
    /// The client's, of at most so many bytes, with no longer a pause than `stall`, and at a pace.
    pub fn client(incoming: Incoming, bytes_max: Option<u64>, stall: Duration, pace: Option<Pace>) -> Self {
        let moved = Rc::new(Cell::new(Instant::now()));
        Self::Client(Box::new(ClientBody { incoming, left: bytes_max, moved, stall, silence: None, pace }))
    }

    /// Whether a request of this method with this body may be sent again when no reply came (RFC 9110 section 9.2.2): a
    /// client's body is not kept.
    pub fn may_be_repeated(&self, method: &Method) -> bool {
        let idempotent = matches!(method.as_str(), "GET" | "HEAD" | "OPTIONS" | "PUT" | "DELETE" | "TRACE");
        idempotent && matches!(self, Self::Nothing)
    }
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
            Self::Client(body) => {
                let ClientBody { incoming, left, moved, stall, silence, pace } = &mut **body;
                let Poll::Ready(frame) = Pin::new(incoming).poll_frame(cx) else {
                    if let Some(pace) = pace {
                        pace.waits(Instant::now());
                    }
                    let silence = silence.get_or_insert_with(|| Box::pin(tokio::time::sleep(*stall)));
                    std::task::ready!(silence.as_mut().poll(cx));
                    return Poll::Ready(Some(Err(Silent.into())));
                };
                *silence = None;
                moved.set(Instant::now());
                if let (Some(Ok(frame)), Some(pace)) = (&frame, pace)
                    && let Err(slow) = pace.came(frame.data_ref().map_or(0, Bytes::len), moved.get())
                {
                    return Poll::Ready(Some(Err(slow.into())));
                }
                if let (Some(Ok(frame)), Some(left)) = (&frame, left)
                    && let Some(bytes) = frame.data_ref()
                {
                    match left.checked_sub(bytes.len() as u64) {
                        Some(less) => *left = less,
                        None => {
                            return Poll::Ready(Some(Err(TooLong.into())));
                        }
                    }
                }
                // The client's doing, whatever it is: no reply of the origin's is missing.
                Poll::Ready(frame.map(|frame| frame.map_err(|_| BrokenBody.into())))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Nothing => true,
            Self::Client(body) => body.incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Nothing => SizeHint::with_exact(0),
            Self::Client(body) => body.incoming.size_hint(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_may_lag_behind_its_rate_by_the_grace_and_no_more() {
        let began = Instant::now();
        let grace = Duration::from_secs(30);
        // When it is cut off that sends so many bytes every so often; nothing within a day.
        let cut_off = |bytes: usize, every: Duration| {
            let mut pace = Pace::new(500, grace)?;
            let mut now = began;
            while now < began + Duration::from_secs(86_400) {
                pace.waits(now);
                now += every;
                if pace.came(bytes, now).is_err() {
                    return Some((now - began).as_secs());
                }
            }
            None
        };
        let second = Duration::from_secs(1);
        assert_eq!(cut_off(1, second), Some(31), "a byte a second");
        assert_eq!(cut_off(1, second * 29), Some(58), "a byte in time for limits.stall_s");
        assert_eq!(cut_off(499, second), Some(14_502), "a little too slow");
        assert_eq!(cut_off(500, second), None);
        assert_eq!(cut_off(15_000, second * 30), None, "in bursts");
        assert_eq!(cut_off(1 << 20, second * 31), Some(31), "what was sent before lasts for no longer");
        assert!(Pace::new(0, grace).is_none(), "no least rate");
        let mut pace = Pace::new(500, grace).expect("a rate");
        assert!(pace.came(1, began + second * 3600).is_ok(), "when the origin is waited for no time counts");
    }
}
