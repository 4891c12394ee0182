//! Bodies of replies to clients, whatever they come from.
//!
//! ```text
//! Whole (memory) │ Pieces (store, 256 KiB a read, on a thread of its own) │ Reader (fill) │ Through (origin)
//! ```
//!
//! Always holds: a body that breaks off is an error and never an end; what was promised as its length is its length.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use packstore::Object;
use tokio::task::JoinHandle;

use super::fill::{Piece, Reader};
use super::ledger::Ledger;
use crate::shelf::{Shelf, StoredBody};

/// Read from the store at once, in bytes.
const PIECE_BYTES: u64 = 256 << 10;

type Read = JoinHandle<(Option<Object>, io::Result<Bytes>)>;

/// A long body in the store.
pub struct Pieces {
    object: Option<Object>,
    at: u64,
    end: u64,
    read: Option<Read>,
}

enum Source {
    Nothing,
    Whole(Bytes),
    Pieces(Pieces),
    Reader { reader: Reader, shelf: Arc<Shelf> },
    Through(Incoming),
}

/// A body on its way to a client.
pub struct ReplyBody {
    source: Source,
    left: Option<u64>,
    ledger: Option<Ledger>,
}

impl ReplyBody {
    /// None.
    pub fn nothing() -> Self {
        Self { source: Source::Nothing, left: Some(0), ledger: None }
    }

    /// In memory.
    pub fn whole(bytes: impl Into<Bytes>) -> Self {
        let bytes = bytes.into();
        Self { left: Some(bytes.len() as u64), source: Source::Whole(bytes), ledger: None }
    }

    /// Bytes `from` to before `end` of a stored body.
    pub fn stored(body: StoredBody, from: u64, end: u64) -> Self {
        match body {
            StoredBody::Whole(bytes) => Self::whole(bytes.slice(from as usize..end as usize)),
            StoredBody::Pieces(object) => {
                let pieces = Pieces { object: Some(object), at: from, end, read: None };
                Self { source: Source::Pieces(pieces), left: Some(end - from), ledger: None }
            }
        }
    }

    /// What is on its way from the origin.
    pub fn filled(reader: Reader, announced: Option<u64>, shelf: Arc<Shelf>) -> Self {
        Self { source: Source::Reader { reader, shelf }, left: announced, ledger: None }
    }

    /// What comes from the origin for this client alone.
    pub fn through(incoming: Incoming) -> Self {
        let left = incoming.size_hint().exact();
        Self { source: Source::Through(incoming), left, ledger: None }
    }

    /// Whose end is written down.
    pub fn with(mut self, mut ledger: Ledger) -> Self {
        if self.left == Some(0) {
            ledger.finished();
        }
        self.ledger = Some(ledger);
        self
    }

    fn poll_source(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        loop {
            match &mut self.source {
                Source::Nothing => return Poll::Ready(None),
                Source::Whole(bytes) => {
                    let bytes = std::mem::take(bytes);
                    self.source = Source::Nothing;
                    return Poll::Ready((!bytes.is_empty()).then_some(Ok(bytes)));
                }
                Source::Pieces(pieces) => return pieces.poll_next(cx),
                Source::Reader { reader, shelf } => match ready!(reader.poll_piece(cx)) {
                    Piece::Bytes(bytes) => return Poll::Ready(Some(Ok(bytes))),
                    Piece::End => return Poll::Ready(None),
                    Piece::Cut => return Poll::Ready(Some(Err(cut()))),
                    Piece::Behind(name) => {
                        // One small read; the pieces themselves are read elsewhere.
                        let Some(reply) = shelf.reply_at(&name) else { return Poll::Ready(Some(Err(cut()))) };
                        let (from, end) = (reader.place(), reply.body_bytes());
                        if end < from {
                            return Poll::Ready(Some(Err(cut())));
                        }
                        self.source = Self::stored(reply.body, from, end).source;
                    }
                },
                Source::Through(incoming) => {
                    let frame = ready!(Pin::new(incoming).poll_frame(cx));
                    match frame.map(|frame| frame.map(Frame::into_data)) {
                        None => return Poll::Ready(None),
                        Some(Ok(Ok(bytes))) => return Poll::Ready(Some(Ok(bytes))),
                        // Trailers are not passed on (RFC 9110 section 6.5.1).
                        Some(Ok(Err(_))) => {}
                        Some(Err(error)) => return Poll::Ready(Some(Err(io::Error::other(error)))),
                    }
                }
            }
        }
    }
}

fn cut() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the origin's reply broke off")
}

impl Pieces {
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if self.read.is_none() {
            let Some(object) = self.object.take().filter(|_| self.at < self.end) else {
                return Poll::Ready(None);
            };
            let (at, bytes) = (self.at, (self.end - self.at).min(PIECE_BYTES) as usize);
            self.read = Some(tokio::task::spawn_blocking(move || {
                let mut piece = vec![0; bytes];
                let read = object.read_range(at, &mut piece).map_err(io::Error::other);
                let whole = read.and_then(|read| if read == bytes { Ok(piece.into()) } else { Err(cut()) });
                (Some(object), whole)
            }));
        }
        let Some(read) = &mut self.read else { return Poll::Ready(None) };
        let done = ready!(Pin::new(read).poll(cx));
        self.read = None;
        let (object, piece) = done.unwrap_or_else(|error| (None, Err(io::Error::other(error))));
        self.object = object;
        if let Ok(piece) = &piece {
            self.at += piece.len() as u64;
        }
        Poll::Ready(Some(piece))
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let this = self.get_mut();
        let mut piece = ready!(this.poll_source(cx));
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
