//! The bodies of replies to clients, from every source.
//!
//! ```text
//! Whole (memory) │ Pieces (store, 256 KiB per read, on a blocking thread) │ Reader (streaming reply) │ PassThrough (upstream)
//! Several: these in sequence, with text between (multipart/byteranges), or a stored part with its missing bytes
//! Slice: the requested range of one of these
//! ```
//!
//! Trailers are passed on after a body that is neither stored nor combined. They are not stored (RFC 9110 section 6.5.1).
//!
//! Always holds: a body that breaks off ends in an error, never as if complete. Its length is the announced length. An upstream that
//! sends nothing for `upstream.reply_s` within a body has broken off.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use http_cache_rules::forwarding;
use tokio::task::JoinHandle;
use tokio::time::Sleep;

use crate::object_cache::{LongBody, StoredBody};
use crate::server::client::access_entry::AccessEntry;
use crate::server::fetch::streaming_reply::{Piece, Reader};
use crate::server::upstream::connection::ArrivingBody;

/// Bytes per read from the store.
const PIECE_BYTES: u64 = 256 << 10;

type Read = JoinHandle<io::Result<Bytes>>;

/// A long body in the store.
pub struct Pieces {
    body: Arc<LongBody>,
    at: u64,
    end: u64,
    read: Option<Read>,
}

enum Source {
    Nothing,
    Whole(Bytes),
    Pieces(Pieces),
    Reader(Reader),
    PassThrough(PassThrough),
    Several(VecDeque<Source>),
    Slice(Box<Slice>),
}

/// A range of a body that is produced from its start.
struct Slice {
    source: Source,
    skip: u64,
    left: u64,
}

/// A body that is received for one client only.
struct PassThrough {
    incoming: ArrivingBody,
    silence_max: Duration,
    /// Bytes still to come, where the framing does not give the length of this part.
    expected: Option<u64>,
    /// Runs while nothing arrives.
    silence: Option<Pin<Box<Sleep>>>,
    /// Trailers that were received.
    trailers: Option<Box<HeaderMap>>,
}

/// One of several parts of a body.
pub enum Part {
    /// Bytes of the proxy's own.
    Text(Bytes),
    /// Bytes of a stored body, from the first offset to before the second.
    Stored(StoredBody, u64, u64),
}

/// A body on its way to a client.
pub struct ReplyBody {
    source: Source,
    left: Option<u64>,
    access_entry: Option<AccessEntry>,
    pending_error: Option<PendingError>,
}

/// How a body broke off, delivered after this many polls.
struct PendingError {
    error: io::Error,
    polls: u8,
}

/// An error delivered at once would keep earlier bytes from being written: one poll hands them to the socket, and the socket may
/// defer the write by another (`request_guard`).
const POLLS_BEFORE_ERROR: u8 = 2;

impl ReplyBody {
    fn of(source: Source, left: Option<u64>) -> Self {
        Self { source, left, access_entry: None, pending_error: None }
    }

    /// An empty body.
    pub fn nothing() -> Self {
        Self::of(Source::Nothing, Some(0))
    }

    /// A body in memory.
    pub fn whole(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        let left = Some(bytes.len() as u64);
        Self::of(Source::Whole(bytes), left)
    }

    /// Bytes `from` to before `end` of a stored body.
    pub fn stored(body: StoredBody, from: u64, end: u64) -> Self {
        Self::of(Source::stored(body, from, end), Some(end - from))
    }

    /// Parts in sequence.
    pub fn several(parts: Vec<Part>) -> Self {
        let bytes = |part: &Part| match part {
            Part::Text(text) => text.len() as u64,
            Part::Stored(_, from, end) => end - from,
        };
        let left = Some(parts.iter().map(bytes).sum());
        let source = |part| match part {
            Part::Text(text) => Source::Whole(text),
            Part::Stored(body, from, end) => Source::stored(body, from, end),
        };
        Self::of(Source::Several(parts.into_iter().map(source).collect()), left)
    }

    /// A reply that is being received.
    pub fn streamed(reader: Reader, announced: Option<u64>) -> Self {
        Self::of(Source::Reader(reader), announced)
    }

    /// A body from upstream. `silence_max` is the longest pause before upstream counts as broken.
    pub fn pass_through(incoming: ArrivingBody, silence_max: Duration) -> Self {
        let left = incoming.size_hint().exact();
        let pass_through =
            PassThrough { incoming, silence_max, expected: None, silence: None, trailers: None };
        Self::of(Source::PassThrough(pass_through), left)
    }

    /// A stored body with `bytes` from upstream before it, or after it if `behind`.
    pub fn completed(
        stored: StoredBody,
        incoming: ArrivingBody,
        bytes: u64,
        behind: bool,
        silence_max: Duration,
    ) -> Self {
        let left = Some(stored.bytes() + bytes);
        let whole = stored.bytes();
        let stored = Source::stored(stored, 0, whole);
        let pass_through = Source::PassThrough(PassThrough {
            incoming,
            silence_max,
            expected: Some(bytes),
            silence: None,
            trailers: None,
        });
        let parts = if behind { [stored, pass_through] } else { [pass_through, stored] };
        Self::of(Source::Several(parts.into()), left)
    }

    /// `bytes` bytes of the body after the first `skip`.
    pub fn slice(self, skip: u64, bytes: u64) -> Self {
        let slice = Slice { source: self.source, skip, left: bytes };
        Self {
            source: Source::Slice(Box::new(slice)),
            left: Some(bytes),
            access_entry: self.access_entry,
            pending_error: self.pending_error,
        }
    }

    /// Whether reading it still fills the store.
    pub fn is_being_stored(&self) -> bool {
        self.source.is_being_stored()
    }

    /// Attaches the access-log entry, which is completed when the body ends.
    pub fn with_access_entry(mut self, mut access_entry: AccessEntry) -> Self {
        if self.left == Some(0) {
            access_entry.set_complete();
        }
        // The client can now read the head.
        access_entry.count_mut().set_client_waiting(false);
        self.access_entry = Some(access_entry);
        self
    }
}

impl Source {
    fn is_being_stored(&self) -> bool {
        match self {
            Self::Reader(reader) => reader.is_storing(),
            Self::Slice(slice) => slice.source.is_being_stored(),
            _ => false,
        }
    }

    /// The trailers of a passed-through body, once.
    fn take_trailers(&mut self) -> Option<HeaderMap> {
        let Self::PassThrough(pass_through) = self else { return None };
        let mut trailers = *pass_through.trailers.take()?;
        forwarding::strip_hop_by_hop(&mut trailers);
        Some(trailers)
    }

    fn stored(body: StoredBody, from: u64, end: u64) -> Self {
        match body {
            StoredBody::Whole(bytes) => Self::Whole(bytes.slice(from as usize..end as usize)),
            StoredBody::Long(body) => Self::Pieces(Pieces { body, at: from, end, read: None }),
        }
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        loop {
            match self {
                Self::Nothing => return Poll::Ready(None),
                Self::Whole(bytes) => {
                    let bytes = std::mem::take(bytes);
                    *self = Self::Nothing;
                    return Poll::Ready((!bytes.is_empty()).then_some(Ok(bytes)));
                }
                Self::Pieces(pieces) => return pieces.poll_next(cx),
                Self::Reader(reader) => match ready!(reader.poll_piece(cx)) {
                    Piece::Bytes(bytes) => return Poll::Ready(Some(Ok(bytes))),
                    Piece::End => return Poll::Ready(None),
                    Piece::Cut => return Poll::Ready(Some(Err(cut()))),
                    Piece::FromStore(body) => {
                        let (from, end) = (reader.position(), body.bytes());
                        if end < from {
                            return Poll::Ready(Some(Err(cut())));
                        }
                        *self = Self::stored(body, from, end);
                    }
                },
                Self::PassThrough(pass_through) => return pass_through.poll_next(cx),
                Self::Slice(slice) => return slice.poll_next(cx),
                Self::Several(parts) => {
                    let Some(first) = parts.front_mut() else { return Poll::Ready(None) };
                    match ready!(first.poll_next(cx)) {
                        Some(piece) => return Poll::Ready(Some(piece)),
                        None => drop(parts.pop_front()),
                    }
                }
            }
        }
    }
}

impl Slice {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        while self.left > 0 {
            match ready!(self.source.poll_next(cx)) {
                Some(Ok(mut bytes)) => {
                    let skipped = self.skip.min(bytes.len() as u64);
                    self.skip -= skipped;
                    let bytes = bytes.split_off(skipped as usize);
                    let taken = self.left.min(bytes.len() as u64);
                    if taken > 0 {
                        self.left -= taken;
                        return Poll::Ready(Some(Ok(bytes.slice(..taken as usize))));
                    }
                }
                end => return Poll::Ready(end),
            }
        }
        Poll::Ready(None)
    }
}

impl PassThrough {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        loop {
            let Poll::Ready(frame) = Pin::new(&mut self.incoming).poll_frame(cx) else {
                let silence =
                    self.silence.get_or_insert_with(|| Box::pin(tokio::time::sleep(self.silence_max)));
                ready!(silence.as_mut().poll(cx));
                let what = "the origin stopped sending its reply (upstream.reply_s)";
                return Poll::Ready(Some(Err(io::Error::new(io::ErrorKind::TimedOut, what))));
            };
            self.silence = None;
            match frame.map(|frame| frame.map(Frame::into_data)) {
                None if self.expected.is_some_and(|expected| expected > 0) => {
                    return Poll::Ready(Some(Err(cut())));
                }
                None => return Poll::Ready(None),
                Some(Ok(Ok(bytes))) => {
                    if let Some(expected) = &mut self.expected {
                        let Some(less) = expected.checked_sub(bytes.len() as u64) else {
                            return Poll::Ready(Some(Err(io::Error::other(
                                "a part is longer than requested",
                            ))));
                        };
                        *expected = less;
                    }
                    return Poll::Ready(Some(Ok(bytes)));
                }
                Some(Ok(Err(frame))) => self.trailers = frame.into_trailers().ok().map(Box::new),
                Some(Err(error)) => return Poll::Ready(Some(Err(io::Error::other(error)))),
            }
        }
    }
}

fn cut() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the origin's reply broke off")
}

impl Pieces {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if self.at >= self.end {
            return Poll::Ready(None);
        }
        let (at, end, body) = (self.at, self.end, &self.body);
        let read = self.read.get_or_insert_with(|| {
            let (body, bytes) = (Arc::clone(body), (end - at).min(PIECE_BYTES) as usize);
            tokio::task::spawn_blocking(move || {
                let piece = body.read(at, bytes)?;
                if piece.len() == bytes { Ok(piece) } else { Err(cut()) }
            })
        });
        let done = ready!(Pin::new(read).poll(cx));
        self.read = None;
        let piece = done.unwrap_or_else(|error| Err(io::Error::other(error)));
        match &piece {
            Ok(piece) => self.at += piece.len() as u64,
            // Nothing can follow a failed read.
            Err(_) => self.end = self.at,
        }
        Poll::Ready(Some(piece))
    }
}

impl ReplyBody {
    fn deliver_error(
        &mut self,
        error: io::Error,
        polls: u8,
        cx: &Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if polls == 0 {
            return Poll::Ready(Some(Err(error)));
        }
        self.pending_error = Some(PendingError { error, polls });
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        if let Some(PendingError { error, polls }) = this.pending_error.take() {
            return this.deliver_error(error, polls - 1, cx);
        }
        let piece = this.source.poll_next(cx);
        if let Some(access_entry) = &mut this.access_entry {
            access_entry.count_mut().set_client_waiting(piece.is_pending());
        }
        let mut piece = ready!(piece);
        if let Some(Ok(bytes)) = &piece {
            if let Some(left) = &mut this.left {
                match left.checked_sub(bytes.len() as u64) {
                    Some(less) => *left = less,
                    None => piece = Some(Err(io::Error::other("the reply is longer than announced"))),
                }
            }
        } else if piece.is_none() && this.left.is_some_and(|left| left > 0) {
            piece = Some(Err(cut()));
        }
        if let Some(access_entry) = &mut this.access_entry {
            match &piece {
                Some(Ok(bytes)) => {
                    access_entry.add_sent_bytes(bytes.len() as u64);
                    // hyper does not poll a body again that has reached its length.
                    if this.left == Some(0) {
                        access_entry.set_complete();
                    }
                }
                Some(Err(_)) => access_entry.set_aborted(),
                None => access_entry.set_complete(),
            }
        }
        if piece.is_none()
            && let Some(trailers) = this.source.take_trailers()
        {
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        if let Some(Err(error)) = piece {
            return this.deliver_error(error, POLLS_BEFORE_ERROR, cx);
        }
        Poll::Ready(piece.map(|piece| piece.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Nothing => true,
            Source::Whole(bytes) => bytes.is_empty(),
            _ => self.left == Some(0) && !matches!(self.source, Source::PassThrough(_)),
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
