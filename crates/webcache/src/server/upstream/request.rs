//! A request to an upstream: a head, built again for each attempt, and a body: none, or the client's.
//!
//! Always holds: a client's body is no longer than `limits.body_mib`, never pauses for longer than `limits.stall_s`, and never falls
//! behind `limits.body_bytes_per_s` by more than that time.

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

/// The client's body exceeds the limit.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the body is longer than this proxy accepts (limits.body_mib)")]
pub struct BodyTooLong;

/// The client stopped sending its body.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the client stopped sending its body (limits.stall_s)")]
pub struct BodyStalled;

/// The client's body is incomplete or its framing malformed.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the request body broke off, or its chunks are malformed")]
pub struct BodyBroken;

/// The client sends its body below the minimum rate.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the client sends its body too slowly (limits.body_bytes_per_s)")]
pub struct BodyTooSlow;

/// The head of a request to an upstream.
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

/// The body of a request to an upstream.
pub enum RequestBody {
    /// No body.
    Nothing,
    /// The client's body. Boxed, as hyper reserves space for 32 requests per connection.
    Client(Box<ClientBody>),
}

/// A body that a client sends.
pub struct ClientBody {
    incoming: Incoming,
    /// Bytes that may still come.
    left: Option<u64>,
    /// When bytes of it were last sent on.
    last_progress: Rc<Cell<Instant>>,
    /// The longest pause while the origin would accept bytes. Chunk extensions and trailers do not end a pause.
    stall: Duration,
    silence: Option<Pin<Box<Sleep>>>,
    allowance: Option<RateAllowance>,
}

/// How far a client may still fall behind the minimum rate. Time counts only while the proxy waits for the client's bytes.
#[derive(Clone, Copy, Debug)]
pub struct RateAllowance {
    bytes_per_s: u64,
    /// Upper bound of `left`.
    grace: Duration,
    left: Duration,
    waiting_since: Option<Instant>,
}

impl RateAllowance {
    /// Allows falling `grace` behind this rate; `None` when there is no minimum rate.
    pub fn new(bytes_per_s: u64, grace: Duration) -> Option<Self> {
        (bytes_per_s > 0).then_some(Self { bytes_per_s, grace, left: grace, waiting_since: None })
    }

    fn wait_started(&mut self, now: Instant) {
        self.waiting_since.get_or_insert(now);
    }

    fn received(&mut self, bytes: usize, now: Instant) -> Result<(), BodyTooSlow> {
        let waited =
            self.waiting_since.take().map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        let left = self.left.checked_sub(waited).ok_or(BodyTooSlow)?;
        let earned = Duration::from_secs_f64(bytes as f64 / self.bytes_per_s as f64);
        self.left = left.saturating_add(earned).min(self.grace);
        Ok(())
    }
}

impl ClientBody {
    /// When bytes of it were last sent on, for the timeout of the reply.
    pub fn last_progress(&self) -> Rc<Cell<Instant>> {
        Rc::clone(&self.last_progress)
    }
}

impl RequestBody {
    /// A client's body of at most `bytes_max` bytes.
    pub fn client(
        incoming: Incoming,
        bytes_max: Option<u64>,
        stall: Duration,
        allowance: Option<RateAllowance>,
    ) -> Self {
        let last_progress = Rc::new(Cell::new(Instant::now()));
        Self::Client(Box::new(ClientBody {
            incoming,
            left: bytes_max,
            last_progress,
            stall,
            silence: None,
            allowance,
        }))
    }

    /// Whether a request with this method and body may be sent again when no reply arrived (RFC 9110 section 9.2.2). A client's body is
    /// not kept, so it cannot be.
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
                let ClientBody { incoming, left, last_progress, stall, silence, allowance } = &mut **body;
                let Poll::Ready(frame) = Pin::new(incoming).poll_frame(cx) else {
                    if let Some(allowance) = allowance {
                        allowance.wait_started(Instant::now());
                    }
                    let silence = silence.get_or_insert_with(|| Box::pin(tokio::time::sleep(*stall)));
                    std::task::ready!(silence.as_mut().poll(cx));
                    return Poll::Ready(Some(Err(BodyStalled.into())));
                };
                *silence = None;
                last_progress.set(Instant::now());
                if let (Some(Ok(frame)), Some(allowance)) = (&frame, allowance)
                    && let Err(slow) =
                        allowance.received(frame.data_ref().map_or(0, Bytes::len), last_progress.get())
                {
                    return Poll::Ready(Some(Err(slow.into())));
                }
                if let (Some(Ok(frame)), Some(left)) = (&frame, left)
                    && let Some(bytes) = frame.data_ref()
                {
                    match left.checked_sub(bytes.len() as u64) {
                        Some(less) => *left = less,
                        None => {
                            return Poll::Ready(Some(Err(BodyTooLong.into())));
                        }
                    }
                }
                // Whatever the error is, the client caused it, not the origin.
                Poll::Ready(frame.map(|frame| frame.map_err(|_| BodyBroken.into())))
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
        // When a client is cut off that sends `bytes` at this interval; `None` if not within a day.
        let cut_off = |bytes: usize, every: Duration| {
            let mut allowance = RateAllowance::new(500, grace)?;
            let mut now = began;
            while now < began + Duration::from_secs(86_400) {
                allowance.wait_started(now);
                now += every;
                if allowance.received(bytes, now).is_err() {
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
        assert!(RateAllowance::new(0, grace).is_none(), "no least rate");
        let mut allowance = RateAllowance::new(500, grace).expect("a rate");
        assert!(
            allowance.received(1, began + second * 3600).is_ok(),
            "when the origin is waited for no time counts"
        );
    }
}
