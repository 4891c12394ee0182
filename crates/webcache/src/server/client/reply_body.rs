//! Bodies of replies to clients, whatever they come from.
//!
//! ```text
//! Whole (memory) │ Pieces (store, 256 KiB a read, on a thread of its own) │ Reader (fill) │ Through (origin)
//! Several: of these, one after the other, with text between (multipart/byteranges), or what was missing of a stored part
//! Slice: what is wanted of that
//! ```
//!
//! Trailers are passed on behind what is neither stored nor joined, and are not stored (RFC 9110 section 6.5.1).
//!
//! Always holds: a body that breaks off is an error and never an end; what was promised as its length is its length; an
//! origin that says nothing for `upstream.reply_s` in the middle of a body has broken off.

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
use packstore::Object;
use tokio::task::JoinHandle;
use tokio::time::Sleep;

use crate::object_cache::StoredBody;
use crate::server::client::access_entry::Ledger;
use crate::server::fetch::streaming_reply::{Piece, Reader};
use crate::server::upstream::connection::ArrivingBody;

/// Read from the store at once, in bytes.
const PIECE_BYTES: u64 = 256 << 10;

type Read = JoinHandle<io::Result<Bytes>>;

/// A long body in the store.
pub struct Pieces {
    object: Arc<Object>,
    at: u64,
    end: u64,
    read: Option<Read>,
}

enum Source {
    Nothing,
    Whole(Bytes),
    Pieces(Pieces),
    Reader(Reader),
    Through(Through),
    Several(VecDeque<Source>),
    Slice(Box<Slice>),
}

/// A part of a body that comes from its beginning.
struct Slice {
    source: Source,
    skip: u64,
    left: u64,
}

/// A body that comes for one client alone.
struct Through {
    incoming: ArrivingBody,
    patience: Duration,
    /// Bytes still to come, where another part follows or length was told otherwise than by the framing.
    owed: Option<u64>,
    /// While nothing comes.
    silence: Option<Pin<Box<Sleep>>>,
    /// What came behind it.
    trailers: Option<Box<HeaderMap>>,
}

/// One of several parts of a body.
pub enum Part {
    /// Of our own making.
    Text(Bytes),
    /// Bytes from here to before there of what is stored.
    Stored(StoredBody, u64, u64),
}

/// A body on its way to a client.
pub struct ReplyBody {
    source: Source,
    left: Option<u64>,
    ledger: Option<Ledger>,
    broken: Option<Broken>,
}

/// How a body broke off, told after so many turns.
struct Broken {
    error: io::Error,
    turns: u8,
}

/// Told at once, it would keep what came before it from being written: a turn to hand that to the socket, and one for which the
/// socket may wait (`request_guard`).
const TURNS_TO_WRITE: u8 = 2;

impl ReplyBody {
    fn of(source: Source, left: Option<u64>) -> Self {
        Self { source, left, ledger: None, broken: None }
    }

    /// None.
    pub fn nothing() -> Self {
        Self::of(Source::Nothing, Some(0))
    }

    /// In memory.
    pub fn whole(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        let left = Some(bytes.len() as u64);
        Self::of(Source::Whole(bytes), left)
    }

    /// Bytes `from` to before `end` of a stored body.
    pub fn stored(body: StoredBody, from: u64, end: u64) -> Self {
        Self::of(Source::stored(body, from, end), Some(end - from))
    }

    /// Parts, one after the other.
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

    /// What is on its way from the origin.
    pub fn streamed(reader: Reader, announced: Option<u64>) -> Self {
        Self::of(Source::Reader(reader), announced)
    }

    /// What comes from the origin. `patience`: the longest silence of an origin that lives.
    pub fn through(incoming: ArrivingBody, patience: Duration) -> Self {
        let left = incoming.size_hint().exact();
        let through = Through { incoming, patience, owed: None, silence: None, trailers: None };
        Self::of(Source::Through(through), left)
    }

    /// What is stored with `bytes` from the origin before or behind it.
    pub fn completed(
        stored: StoredBody,
        incoming: ArrivingBody,
        bytes: u64,
        behind: bool,
        patience: Duration,
    ) -> Self {
        let left = Some(stored.bytes() + bytes);
        let whole = stored.bytes();
        let stored = Source::stored(stored, 0, whole);
        let through =
            Source::Through(Through { incoming, patience, owed: Some(bytes), silence: None, trailers: None });
        let parts = if behind { [stored, through] } else { [through, stored] };
        Self::of(Source::Several(parts.into()), left)
    }

    /// So many bytes of it, without so many before.
    pub fn slice(self, skip: u64, bytes: u64) -> Self {
        let slice = Slice { source: self.source, skip, left: bytes };
        Self {
            source: Source::Slice(Box::new(slice)),
            left: Some(bytes),
            ledger: self.ledger,
            broken: self.broken,
        }
    }

    /// Whether reading it brings something into the store.
    pub fn fills_store(&self) -> bool {
        self.source.fills_store()
    }

    /// Whose end is written down.
    pub fn with(mut self, mut ledger: Ledger) -> Self {
        if self.left == Some(0) {
            ledger.finished();
        }
        // It is the client's turn now, to take the head.
        ledger.client_waits(false);
        self.ledger = Some(ledger);
        self
    }
}

impl Source {
    fn fills_store(&self) -> bool {
        match self {
            Self::Reader(reader) => reader.is_storing(),
            Self::Slice(slice) => slice.source.fills_store(),
            _ => false,
        }
    }

    /// What came behind a body that goes to one client alone, once.
    fn take_trailers(&mut self) -> Option<HeaderMap> {
        let Self::Through(through) = self else { return None };
        let mut trailers = *through.trailers.take()?;
        forwarding::strip_hop_by_hop(&mut trailers);
        Some(trailers)
    }

    fn stored(body: StoredBody, from: u64, end: u64) -> Self {
        match body {
            StoredBody::Whole(bytes) => Self::Whole(bytes.slice(from as usize..end as usize)),
            StoredBody::Pieces(object) => Self::Pieces(Pieces { object, at: from, end, read: None }),
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
                Self::Through(through) => return through.poll_next(cx),
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

impl Through {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        loop {
            let Poll::Ready(frame) = Pin::new(&mut self.incoming).poll_frame(cx) else {
                let silence = self.silence.get_or_insert_with(|| Box::pin(tokio::time::sleep(self.patience)));
                ready!(silence.as_mut().poll(cx));
                let what = "the origin says nothing in the middle of its reply (upstream.reply_s)";
                return Poll::Ready(Some(Err(io::Error::new(io::ErrorKind::TimedOut, what))));
            };
            self.silence = None;
            match frame.map(|frame| frame.map(Frame::into_data)) {
                None if self.owed.is_some_and(|owed| owed > 0) => return Poll::Ready(Some(Err(cut()))),
                None => return Poll::Ready(None),
                Some(Ok(Ok(bytes))) => {
                    if let Some(owed) = &mut self.owed {
                        let Some(less) = owed.checked_sub(bytes.len() as u64) else {
                            return Poll::Ready(Some(Err(io::Error::other(
                                "a part is longer than was asked for",
                            ))));
                        };
                        *owed = less;
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
        let (at, end, object) = (self.at, self.end, &self.object);
        let read = self.read.get_or_insert_with(|| {
            let (object, bytes) = (Arc::clone(object), (end - at).min(PIECE_BYTES) as usize);
            tokio::task::spawn_blocking(move || {
                let mut piece = vec![0; bytes];
                let read = object.read_range(at, &mut piece).map_err(io::Error::other)?;
                if read == bytes { Ok(piece.into()) } else { Err(cut()) }
            })
        });
        let done = ready!(Pin::new(read).poll(cx));
        self.read = None;
        let piece = done.unwrap_or_else(|error| Err(io::Error::other(error)));
        match &piece {
            Ok(piece) => self.at += piece.len() as u64,
            // Nothing follows what could not be read.
            Err(_) => self.end = self.at,
        }
        Poll::Ready(Some(piece))
    }
}

impl ReplyBody {
    fn tell_broken(
        &mut self,
        error: io::Error,
        turns: u8,
        cx: &Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if turns == 0 {
            return Poll::Ready(Some(Err(error)));
        }
        self.broken = Some(Broken { error, turns });
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        if let Some(Broken { error, turns }) = this.broken.take() {
            return this.tell_broken(error, turns - 1, cx);
        }
        let piece = this.source.poll_next(cx);
        if let Some(ledger) = &mut this.ledger {
            ledger.client_waits(piece.is_pending());
        }
        let mut piece = ready!(piece);
        if let Some(Ok(bytes)) = &piece {
            if let Some(left) = &mut this.left {
                match left.checked_sub(bytes.len() as u64) {
                    Some(less) => *left = less,
                    None => piece = Some(Err(io::Error::other("the reply is longer than was announced"))),
                }
            }
        } else if piece.is_none() && this.left.is_some_and(|left| left > 0) {
            piece = Some(Err(cut()));
        }
        if let Some(ledger) = &mut this.ledger {
            match &piece {
                Some(Ok(bytes)) => {
                    ledger.sent(bytes.len() as u64);
                    // Nobody asks for more of a body that has its length.
                    if this.left == Some(0) {
                        ledger.finished();
                    }
                }
                Some(Err(_)) => ledger.broke_off(),
                None => ledger.finished(),
            }
        }
        if piece.is_none()
            && let Some(trailers) = this.source.take_trailers()
        {
            return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
        }
        if let Some(Err(error)) = piece {
            return this.tell_broken(error, TURNS_TO_WRITE, cx);
        }
        Poll::Ready(piece.map(|piece| piece.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Nothing => true,
            Source::Whole(bytes) => bytes.is_empty(),
            _ => self.left == Some(0) && !matches!(self.source, Source::Through(_)),
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map_or_else(SizeHint::default, SizeHint::with_exact)
    }
}
