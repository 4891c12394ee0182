//! A reply that is being received from upstream, shared by its readers and the store.
//!
//! ```text
//! origin ─> body relay ─> StreamingReply: head, buffered end of the body ─> reader, reader, ...     each at its own position
//!                         └─> store writer ─> store                         └─ behind the buffer: continues from the store
//! ```
//!
//! Always holds:
//! - The buffer is bounded while the body is being stored, whatever the readers do.
//! - While storing, the relay keeps pace with the fastest reader, and with none once a reader has fallen behind the buffer. So a
//!   slow or dead reader blocks no other.
//! - Without storing, the relay keeps pace with the slowest reader. Readers that were behind when storing stopped are cut off.
//! - A reader that fell behind continues from the object that this very reply became, never from what its key holds by then.
//!
//! Locks: the state of one `StreamingReply`; nothing is awaited or written while it is held.
//! Not here: which requests may join (`answer::driver`), which replies are being received (`collapsing`).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::StatusCode;
use http_cache_rules::reuse::Failure;

use crate::object_cache::{NewHead, StoredBody};

/// The head of a shared reply.
#[derive(Debug)]
pub struct SharedHead {
    /// Status.
    pub status: StatusCode,
    /// The head as it will be stored. The received fields would keep their 64 KiB read buffer alive until the reply is stored.
    pub stored: Arc<NewHead>,
    /// Content-Length, if the reply has one.
    pub announced: Option<u64>,
    /// How many bans there were when the fetch began: later ones apply to the reply.
    pub bans_seen: u64,
}

/// The result for the requests that wait for this fetch.
#[derive(Clone, Debug)]
pub enum FetchResult {
    /// The head has arrived and the reply may be shared.
    Shared(Arc<SharedHead>),
    /// The store has the reply: look it up.
    InStore,
    /// The reply is for one client only: fetch separately.
    NotShared,
    /// Upstream failed: a stored reply may stand in.
    Failed(Failure),
    /// The fetch was given up: start over.
    Abandoned,
}

/// How a body ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It is complete.
    Whole,
    /// It broke off.
    Cut,
}

#[derive(Debug, Default)]
struct State {
    result: Option<FetchResult>,
    /// Position in the body of the first buffered chunk.
    buffer_start: u64,
    buffer: VecDeque<Bytes>,
    received: u64,
    ended: Option<Ending>,
    /// Whether the body is being stored, so that the buffer may move past a reader.
    storing: bool,
    /// Set when storing has ended: the stored body, or `None` when it failed.
    stored: Option<Option<StoredBody>>,
    /// Whether look-ups find it in the store; `None` until that is decided.
    findable: Option<bool>,
    readers: Vec<(u64, u64)>,
    next_reader: u64,
    /// Purged or invalidated: it must not be found or shared any more.
    invalidated: bool,
    wakers: Vec<Waker>,
}

/// A reply that is being received.
#[derive(Debug, Default)]
pub struct StreamingReply {
    state: Mutex<State>,
}

/// Polls that [`Reader::wait_for_first_bytes`] waits for bytes that were read with the head: the relay polls, the connection
/// delivers, the relay takes them.
const SETTLE_POLLS_MAX: u32 = 4;

/// What a reader gets.
#[derive(Debug)]
pub enum Piece {
    /// The next bytes.
    Bytes(Bytes),
    /// The end of a complete body.
    End,
    /// The body broke off.
    Cut,
    /// The buffer has moved past the reader: the rest is in the store.
    FromStore(StoredBody),
}

impl StreamingReply {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let mut state = self.lock();
        change(&mut state);
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Publishes the result to the requests that wait. Only the first call counts.
    pub fn publish(&self, result: FetchResult) {
        self.change(|state| {
            if state.result.is_none() {
                state.storing = matches!(result, FetchResult::Shared(_));
                state.result = Some(result);
            }
        });
    }

    /// Waits for the result.
    pub async fn result(&self) -> FetchResult {
        std::future::poll_fn(|cx| {
            let mut state = self.lock();
            match &state.result {
                Some(result) => Poll::Ready(result.clone()),
                None => state.wait(cx),
            }
        })
        .await
    }

    /// Appends a chunk of the body. `buffer_bytes_max` bounds the buffer while the body is being stored.
    pub fn push(&self, chunk: Bytes, buffer_bytes_max: u64) {
        self.change(|state| {
            state.received += chunk.len() as u64;
            state.buffer.push_back(chunk);
            state.trim(buffer_bytes_max);
        });
    }

    /// The body will not be stored after all: readers behind the buffer have nothing to continue from.
    pub fn stop_storing(&self) {
        self.change(|state| state.storing = false);
    }

    /// Whether the body is being stored, or has arrived complete and was given to the store.
    pub fn is_storing(&self) -> bool {
        let state = self.lock();
        state.storing || state.ended == Some(Ending::Whole)
    }

    /// Whether a reader will need the stored body. No reader falls behind after the end.
    pub fn has_readers_behind(&self) -> bool {
        let state = self.lock();
        state.readers.iter().any(|(_, position)| *position < state.buffer_start)
    }

    /// Waits until a reader can use more bytes. False when no reader is left.
    pub async fn wait_for_demand(&self, buffer_bytes_max: u64) -> bool {
        std::future::poll_fn(|cx| {
            let mut state = self.lock();
            if state.readers.iter().all(|(_, position)| state.is_cut_off(*position)) {
                return Poll::Ready(false);
            }
            match state.pacing_position() {
                Some(position) if state.received - position >= buffer_bytes_max => state.wait(cx),
                _ => Poll::Ready(true),
            }
        })
        .await
    }

    /// Ends the body. Only the first call counts.
    pub fn end(&self, ending: Ending) {
        self.change(|state| {
            state.ended.get_or_insert(ending);
        });
    }

    /// Storing has ended, with this result.
    pub fn set_stored(&self, body: Option<StoredBody>) {
        self.change(|state| {
            if body.is_none() {
                state.storing = false;
            }
            state.findable.get_or_insert(false);
            state.stored.get_or_insert(body);
        });
    }

    /// Whether look-ups find it from now on. Call before [`StreamingReply::set_stored`], which otherwise assumes that they do not.
    pub fn set_findable(&self, findable: bool) {
        self.change(|state| {
            state.findable.get_or_insert(findable);
        });
    }

    /// Whether look-ups find it in the store; `None` until that is decided.
    pub fn findable(&self) -> Option<bool> {
        let state = self.lock();
        state.findable.or((state.result.is_some() && !state.storing).then_some(false))
    }

    /// Whether the body is complete, so that a client may have seen its end, while the store has not finished with it.
    pub fn is_about_to_be_stored(&self) -> bool {
        self.lock().is_about_to_be_stored()
    }

    /// Waits until the store has finished with it.
    pub async fn wait_until_stored(&self) {
        std::future::poll_fn(|cx| {
            let mut state = self.lock();
            if state.is_about_to_be_stored() { state.wait(cx) } else { Poll::Ready(()) }
        })
        .await;
    }

    /// Marks it as purged or invalidated: it is neither found nor shared any more.
    pub fn invalidate(&self) {
        self.change(|state| state.invalidated = true);
    }

    /// Whether it was purged or invalidated.
    pub fn is_invalidated(&self) -> bool {
        self.lock().invalidated
    }

    /// A reader from the start of the body; `None` when the start has left the buffer, or the reply was invalidated or broke off.
    pub fn reader(self: &Arc<Self>) -> Option<Reader> {
        let state = self.lock();
        if state.buffer_start > 0 || state.invalidated || state.ended == Some(Ending::Cut) {
            return None;
        }
        Some(self.new_reader(state))
    }

    /// The reader for the client that caused the fetch, before the first byte. It works even after an invalidation, as the request
    /// came earlier.
    pub fn own_reader(self: &Arc<Self>) -> Reader {
        self.new_reader(self.lock())
    }

    fn new_reader(self: &Arc<Self>, mut state: MutexGuard<'_, State>) -> Reader {
        let id = state.next_reader;
        state.next_reader += 1;
        state.readers.push((id, 0));
        drop(state);
        Reader { streaming: Arc::clone(self), id, position: 0 }
    }
}

impl State {
    fn wait<T>(&mut self, cx: &Context<'_>) -> Poll<T> {
        if !self.wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            self.wakers.push(cx.waker().clone());
        }
        Poll::Pending
    }

    fn is_about_to_be_stored(&self) -> bool {
        let announced = match &self.result {
            Some(FetchResult::Shared(head)) => head.announced,
            _ => None,
        };
        let came = self.ended == Some(Ending::Whole) || announced.is_some_and(|bytes| bytes <= self.received);
        came && self.storing && self.stored.is_none() && self.ended != Some(Ending::Cut)
    }

    /// Whether a reader at this position can get no more: it is behind the buffer, and nothing is stored.
    fn is_cut_off(&self, position: u64) -> bool {
        position < self.buffer_start && !self.storing && !matches!(self.stored, Some(Some(_)))
    }

    /// The position that the relay keeps pace with, if any. Once a reader waits for the store, nothing may delay the end: the reader
    /// that was fastest may have stopped reading.
    fn pacing_position(&self) -> Option<u64> {
        let positions =
            self.readers.iter().map(|(_, position)| *position).filter(|position| !self.is_cut_off(*position));
        match () {
            () if !self.storing => positions.min(),
            () if positions.clone().any(|position| position < self.buffer_start) => None,
            () => positions.max(),
        }
    }

    /// Drops chunks beyond the bound that the fastest reader has read; without storing, chunks that all readers have read.
    fn trim(&mut self, buffer_bytes_max: u64) {
        let keep_from = if self.storing {
            let fastest = self.pacing_position().unwrap_or(u64::MAX);
            self.received.saturating_sub(buffer_bytes_max).min(fastest)
        } else {
            let slowest = self.pacing_position().unwrap_or(self.received);
            if self.received <= buffer_bytes_max { 0 } else { slowest }
        };
        while let Some(first) = self.buffer.front() {
            let end = self.buffer_start + first.len() as u64;
            if end > keep_from {
                return;
            }
            self.buffer_start = end;
            self.buffer.pop_front();
        }
    }
}

/// One reader of a streaming reply.
#[derive(Debug)]
pub struct Reader {
    streaming: Arc<StreamingReply>,
    id: u64,
    position: u64,
}

impl Reader {
    /// Bytes read so far.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Whether the body that it reads is being stored.
    pub fn is_storing(&self) -> bool {
        self.streaming.is_storing()
    }

    /// Yields to the other tasks of the loop a few times until bytes have arrived, so that bytes that the origin sent with the head
    /// leave with it in one write.
    pub async fn wait_for_first_bytes(&self) {
        let mut polls = 0;
        std::future::poll_fn(|cx| {
            let state = self.streaming.lock();
            if state.received > 0 || state.ended.is_some() || polls == SETTLE_POLLS_MAX {
                return Poll::Ready(());
            }
            polls += 1;
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    /// Polls for the next piece.
    pub fn poll_piece(&mut self, cx: &Context<'_>) -> Poll<Piece> {
        let mut state = self.streaming.lock();
        if self.position < state.buffer_start {
            // A stored part of a reply that broke off does not complete it.
            return match (&state.stored, state.ended) {
                (_, Some(Ending::Cut)) => Poll::Ready(Piece::Cut),
                (Some(Some(body)), _) if body.bytes() == state.received => {
                    Poll::Ready(Piece::FromStore(body.clone()))
                }
                (Some(_), _) => Poll::Ready(Piece::Cut),
                (None, _) if !state.storing => Poll::Ready(Piece::Cut),
                (None, _) => state.wait(cx),
            };
        }
        let mut chunk_at = state.buffer_start;
        for chunk in &state.buffer {
            let end = chunk_at + chunk.len() as u64;
            if self.position < end {
                let bytes = chunk.slice((self.position - chunk_at) as usize..);
                self.position = end;
                let position = self.position;
                let id = self.id;
                if let Some(mine) = state.readers.iter_mut().find(|(reader, _)| *reader == id) {
                    mine.1 = position;
                }
                let wakers = std::mem::take(&mut state.wakers);
                drop(state);
                wakers.into_iter().for_each(Waker::wake);
                return Poll::Ready(Piece::Bytes(bytes));
            }
            chunk_at = end;
        }
        match state.ended {
            Some(Ending::Whole) => Poll::Ready(Piece::End),
            Some(Ending::Cut) => Poll::Ready(Piece::Cut),
            None => state.wait(cx),
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let id = self.id;
        self.streaming.change(|state| state.readers.retain(|(reader, _)| *reader != id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_cache_rules::key::CacheKey;

    fn now<T>(poll: impl FnOnce(&Context<'_>) -> Poll<T>) -> Option<T> {
        match poll(&Context::from_waker(Waker::noop())) {
            Poll::Ready(value) => Some(value),
            Poll::Pending => None,
        }
    }

    fn bytes(piece: Option<Piece>) -> Option<Bytes> {
        match piece {
            Some(Piece::Bytes(bytes)) => Some(bytes),
            _ => None,
        }
    }

    fn shared() -> Arc<StreamingReply> {
        let streaming = Arc::new(StreamingReply::default());
        let key = CacheKey::of(&"http://a/".parse().expect("a URI")).expect("a key");
        let head = SharedHead {
            status: StatusCode::OK,
            stored: Arc::new(NewHead { key, meta: Vec::new(), facts: Vec::new(), expires_s: 0 }),
            announced: None,
            bans_seen: 0,
        };
        streaming.publish(FetchResult::Shared(Arc::new(head)));
        streaming
    }

    #[test]
    fn a_reader_that_joins_late_gets_all_and_one_that_falls_behind_continues_from_the_store() {
        let streaming = shared();
        let mut slow = streaming.reader().expect("from the beginning");
        streaming.push(Bytes::from_static(b"abcd"), 8);
        let mut late = streaming.reader().expect("still all there");
        assert_eq!(bytes(now(|cx| late.poll_piece(cx))).as_deref(), Some(&b"abcd"[..]));
        assert!(now(|cx| late.poll_piece(cx)).is_none(), "no more has come");
        streaming.push(Bytes::from_static(b"efgh"), 8);
        streaming.push(Bytes::from_static(b"ijkl"), 8);
        assert!(streaming.reader().is_none(), "the start has left the buffer");
        assert!(now(|cx| slow.poll_piece(cx)).is_none(), "waits for the store");
        streaming.end(Ending::Whole);
        assert!(streaming.has_readers_behind());
        streaming.set_stored(Some(StoredBody::Whole(Bytes::from_static(b"abcdefghijkl"))));
        assert!(matches!(now(|cx| slow.poll_piece(cx)), Some(Piece::FromStore(body)) if body.bytes() == 12));
        assert_eq!(bytes(now(|cx| late.poll_piece(cx))).as_deref(), Some(&b"efgh"[..]));
    }

    #[test]
    fn without_a_store_nothing_unread_is_let_go() {
        let streaming = shared();
        streaming.stop_storing();
        let mut reader = streaming.reader().expect("a reader");
        for _ in 0..10 {
            streaming.push(Bytes::from_static(b"abcd"), 8);
        }
        let mut total = 0;
        while let Some(piece) = bytes(now(|cx| reader.poll_piece(cx))) {
            total += piece.len();
        }
        assert_eq!(total, 40);
    }

    #[test]
    fn a_reader_behind_is_cut_off_when_storing_ends_and_delays_no_other() {
        let streaming = shared();
        let mut slow = streaming.reader().expect("from the beginning");
        let mut fast = streaming.reader().expect("from the beginning");
        for _ in 0..4 {
            streaming.push(Bytes::from_static(b"abcd"), 8);
            assert!(bytes(now(|cx| fast.poll_piece(cx))).is_some());
        }
        assert!(now(|cx| slow.poll_piece(cx)).is_none(), "waits for the store");
        streaming.stop_storing();
        assert_eq!(has_demand(&streaming, 8), Some(true), "for the reader that is not cut off");
        assert!(matches!(now(|cx| slow.poll_piece(cx)), Some(Piece::Cut)));
        for _ in 0..4 {
            streaming.push(Bytes::from_static(b"efgh"), 8);
            assert_eq!(bytes(now(|cx| fast.poll_piece(cx))).as_deref(), Some(&b"efgh"[..]));
        }
        assert!(streaming.lock().buffer.len() <= 1, "nothing is buffered for the reader that is cut off");
        drop(fast);
        assert_eq!(has_demand(&streaming, 8), None, "a reader that is cut off does not count");
    }

    #[test]
    fn a_part_that_was_stored_is_no_end_for_a_reader_behind() {
        let streaming = shared();
        let mut slow = streaming.reader().expect("from the beginning");
        let mut fast = streaming.reader().expect("from the beginning");
        for _ in 0..4 {
            streaming.push(Bytes::from_static(b"abcd"), 8);
            assert!(bytes(now(|cx| fast.poll_piece(cx))).is_some());
        }
        streaming.end(Ending::Cut);
        streaming.set_stored(Some(StoredBody::Whole(Bytes::from_static(&[b'x'; 16]))));
        assert!(matches!(now(|cx| slow.poll_piece(cx)), Some(Piece::Cut)));
    }

    #[test]
    fn a_cut_reply_never_ends_as_if_it_were_whole() {
        let streaming = shared();
        let mut reader = streaming.reader().expect("a reader");
        streaming.push(Bytes::from_static(b"abcd"), 8);
        streaming.end(Ending::Cut);
        streaming.end(Ending::Whole);
        assert!(bytes(now(|cx| reader.poll_piece(cx))).is_some());
        assert!(matches!(now(|cx| reader.poll_piece(cx)), Some(Piece::Cut)));
    }

    /// Whether the relay may continue; `None` when no reader is left.
    fn has_demand(streaming: &StreamingReply, buffer_bytes_max: u64) -> Option<bool> {
        let mut wait_for_demand = std::pin::pin!(streaming.wait_for_demand(buffer_bytes_max));
        match wait_for_demand.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(true) => Some(true),
            Poll::Ready(false) => None,
            Poll::Pending => Some(false),
        }
    }

    #[test]
    fn the_relay_waits_for_the_fastest_reader_whatever_the_chunks_and_for_no_reader_left_behind() {
        let streaming = shared();
        assert_eq!(has_demand(&streaming, 8), None);
        let mut fast = streaming.reader().expect("from the beginning");
        let slow = streaming.reader().expect("from the beginning");
        // A chunk larger than the buffer leaves no reader behind.
        streaming.push(Bytes::from_static(&[b'x'; 30]), 8);
        assert_eq!(has_demand(&streaming, 8), Some(false));
        assert_eq!(bytes(now(|cx| fast.poll_piece(cx))).map(|chunk| chunk.len()), Some(30));
        assert_eq!(has_demand(&streaming, 8), Some(true));
        streaming.push(Bytes::from_static(&[b'x'; 30]), 8);
        assert_eq!(
            has_demand(&streaming, 8),
            Some(true),
            "one waits for the store: no reader may delay the end"
        );
        drop(fast);
        assert_eq!(has_demand(&streaming, 8), Some(true), "only that one is left");
        drop(slow);
        assert_eq!(has_demand(&streaming, 8), None);
    }
}
