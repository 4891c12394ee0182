//! A reply on its way from the origin, shared by its readers and the store.
//!
//! ```text
//! origin ─> relay ─> StreamingReply: head, window of the body ─> reader, reader, ...        each at its own place
//!                    └─> store writer ─> store                └─ fallen behind the window: goes on from the store at the end
//! ```
//!
//! Always holds: the window is bounded while the body is stored, whatever readers do; the body relay keeps pace with the
//! fastest reader, and with nobody once one has been left behind, so that a slow or dead one blocks nobody; without a
//! store to go on from, with the slowest, and who was behind by then is cut off at once. A reader goes on from the very
//! object that this fill became, never from what lies at its key by then.
//! Locks, in order: one `StreamingReply`'s state; nothing is awaited or written under it.
//! Not here: who may join (`handler`), which fills are on their way (`collapsing`).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::StatusCode;
use http_cache_rules::WallSeconds;
use http_cache_rules::reuse::Failure;

use crate::object_cache::{NewHead, StoredBody};

/// The head of a shared reply.
#[derive(Debug)]
pub struct SharedHead {
    /// Status.
    pub status: StatusCode,
    /// What is stored of it. Not as received: each value would keep the buffer of 64 KiB alive that it was read into, for as
    /// long as the reply waits to be stored.
    pub stored: Arc<NewHead>,
    /// Length of the body, when it was announced.
    pub announced: Option<u64>,
    /// When the origin was asked for it: bans of later count.
    pub requested_at: WallSeconds,
}

/// What those who wait for a head are told.
#[derive(Clone, Debug)]
pub enum FetchResult {
    /// The reply is on its way, and may be shared.
    Shared(Arc<SharedHead>),
    /// It is in the store: look there.
    InStore,
    /// It is for one client only: go to the origin.
    NotShared,
    /// The origin fails: what is stored may stand in.
    Failed(Failure),
    /// Nobody fetches it any more: begin again.
    Abandoned,
}

/// How a body ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All of it came.
    Whole,
    /// It broke off.
    Cut,
}

#[derive(Debug, Default)]
struct State {
    result: Option<FetchResult>,
    /// Place in the body of the first chunk in the window.
    window_at: u64,
    window: VecDeque<Bytes>,
    received: u64,
    ended: Option<Ending>,
    /// Whether the body goes to the store, so that the window may move past a reader.
    storing: bool,
    /// Told when the store has it or not.
    stored: Option<Option<StoredBody>>,
    /// Whether it is found in the store from now on; nothing as long as that is not known.
    stays: Option<bool>,
    readers: Vec<(u64, u64)>,
    next_reader: u64,
    /// Must not be found any more: purged or invalidated meanwhile.
    void: bool,
    wakers: Vec<Waker>,
}

/// A reply on its way.
#[derive(Debug, Default)]
pub struct StreamingReply {
    state: Mutex<State>,
}

/// Turns of a loop until what was read with a head is in its fill: the body relay asks, the connection gives, the body relay takes.
const TURNS_MAX: u32 = 4;

/// What a reader gets.
#[derive(Debug)]
pub enum Piece {
    /// The next bytes.
    Bytes(Bytes),
    /// It has all.
    End,
    /// It broke off.
    Cut,
    /// The window has moved past it: the rest is in the store.
    Behind(StoredBody),
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

    /// Tells those who wait. Only the first word counts.
    pub fn tell(&self, result: FetchResult) {
        self.change(|state| {
            if state.result.is_none() {
                state.storing = matches!(result, FetchResult::Shared(_));
                state.result = Some(result);
            }
        });
    }

    /// The head, as soon as it is known.
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

    /// Takes a chunk of the body in. `window_bytes` bounds what is kept for readers while it is stored.
    pub fn push(&self, chunk: Bytes, window_bytes: u64) {
        self.change(|state| {
            state.received += chunk.len() as u64;
            state.window.push_back(chunk);
            state.trim(window_bytes);
        });
    }

    /// The body will not be stored, or no longer: who has fallen behind has nothing to go on from.
    pub fn store_no_more(&self) {
        self.change(|state| state.storing = false);
    }

    /// Whether it goes to the store still, or has come whole: then the store has been given it.
    pub fn is_storing(&self) -> bool {
        let state = self.lock();
        state.storing || state.ended == Some(Ending::Whole)
    }

    /// Whether a reader will need what the store has. Nobody falls behind after the end.
    pub fn has_readers_behind(&self) -> bool {
        let state = self.lock();
        state.readers.iter().any(|(_, place)| *place < state.window_at)
    }

    /// Waits until a reader can use more, or none is left. True when some are left.
    pub async fn wanted(&self, window_bytes: u64) -> bool {
        std::future::poll_fn(|cx| {
            let mut state = self.lock();
            if state.readers.iter().all(|(_, place)| state.is_lost(*place)) {
                return Poll::Ready(false);
            }
            match state.pace() {
                Some(place) if state.received - place >= window_bytes => state.wait(cx),
                _ => Poll::Ready(true),
            }
        })
        .await
    }

    /// No more will come.
    pub fn end(&self, ending: Ending) {
        self.change(|state| {
            state.ended.get_or_insert(ending);
        });
    }

    /// What the store made of it.
    pub fn set_stored(&self, body: Option<StoredBody>) {
        self.change(|state| {
            if body.is_none() {
                state.storing = false;
            }
            state.stays.get_or_insert(false);
            state.stored.get_or_insert(body);
        });
    }

    /// Whether requests find it in the store from now on. Before [`StreamingReply::set_stored`], which takes it for not found.
    pub fn set_stays(&self, stays: bool) {
        self.change(|state| {
            state.stays.get_or_insert(stays);
        });
    }

    /// Whether it is found in the store; nothing as long as that is not known.
    pub fn stays(&self) -> Option<bool> {
        let state = self.lock();
        state.stays.or((state.result.is_some() && !state.storing).then_some(false))
    }

    /// Whether all of it has come, so that clients may know, and the store has yet to say whether it has it.
    pub fn is_landing(&self) -> bool {
        self.lock().is_landing()
    }

    /// Waits while it is.
    pub async fn landed(&self) {
        std::future::poll_fn(|cx| {
            let mut state = self.lock();
            if state.is_landing() { state.wait(cx) } else { Poll::Ready(()) }
        })
        .await;
    }

    /// Must not be found nor stored any more.
    pub fn void(&self) {
        self.change(|state| state.void = true);
    }

    /// Whether it was purged or invalidated.
    pub fn is_void(&self) -> bool {
        self.lock().void
    }

    /// A reader from the beginning; nothing when that has left the window, or the reply was voided.
    pub fn read(self: &Arc<Self>) -> Option<Reader> {
        let state = self.lock();
        if state.window_at > 0 || state.void || state.ended == Some(Ending::Cut) {
            return None;
        }
        Some(self.reader(state))
    }

    /// The reader of the client whose request it is, before the first byte: his also when it was voided meanwhile, as he asked
    /// before that.
    pub fn read_own(self: &Arc<Self>) -> Reader {
        self.reader(self.lock())
    }

    fn reader(self: &Arc<Self>, mut state: MutexGuard<'_, State>) -> Reader {
        let id = state.next_reader;
        state.next_reader += 1;
        state.readers.push((id, 0));
        drop(state);
        Reader { streaming: Arc::clone(self), id, place: 0 }
    }
}

impl State {
    fn wait<T>(&mut self, cx: &Context<'_>) -> Poll<T> {
        if !self.wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            self.wakers.push(cx.waker().clone());
        }
        Poll::Pending
    }

    fn is_landing(&self) -> bool {
        let announced = match &self.result {
            Some(FetchResult::Shared(head)) => head.announced,
            _ => None,
        };
        let came = self.ended == Some(Ending::Whole) || announced.is_some_and(|bytes| bytes <= self.received);
        came && self.storing && self.stored.is_none() && self.ended != Some(Ending::Cut)
    }

    /// Whether a reader at this place will get no more: fallen behind, and nothing is stored.
    fn is_lost(&self, place: u64) -> bool {
        place < self.window_at && !self.storing && !matches!(self.stored, Some(Some(_)))
    }

    /// The place that the body relay keeps to, if to any. Once the window has left a reader behind who now waits for the store,
    /// nobody may hold the end up: the one who was the fastest may be the one who now reads nothing.
    fn pace(&self) -> Option<u64> {
        let places = self.readers.iter().map(|(_, place)| *place).filter(|place| !self.is_lost(*place));
        match () {
            () if !self.storing => places.min(),
            () if places.clone().any(|place| place < self.window_at) => None,
            () => places.max(),
        }
    }

    /// Lets go of what is beyond the window and read by the fastest, or of what all have where nothing is stored.
    fn trim(&mut self, window_bytes: u64) {
        let keep_from = if self.storing {
            let fastest = self.pace().unwrap_or(u64::MAX);
            self.received.saturating_sub(window_bytes).min(fastest)
        } else {
            let slowest = self.pace().unwrap_or(self.received);
            if self.received <= window_bytes { 0 } else { slowest }
        };
        while let Some(first) = self.window.front() {
            let end = self.window_at + first.len() as u64;
            if end > keep_from {
                return;
            }
            self.window_at = end;
            self.window.pop_front();
        }
    }
}

/// One reader of a fill.
#[derive(Debug)]
pub struct Reader {
    streaming: Arc<StreamingReply>,
    id: u64,
    place: u64,
}

impl Reader {
    /// Bytes read so far.
    pub fn place(&self) -> u64 {
        self.place
    }

    /// Whether what it reads goes to the store still.
    pub fn is_storing(&self) -> bool {
        self.streaming.is_storing()
    }

    /// Lets the others of this loop have a few turns, as long as nothing has come: what the origin sent with the head then
    /// leaves with it, in one write.
    pub async fn settle(&self) {
        let mut turns = 0;
        std::future::poll_fn(|cx| {
            let state = self.streaming.lock();
            if state.received > 0 || state.ended.is_some() || turns == TURNS_MAX {
                return Poll::Ready(());
            }
            turns += 1;
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    /// The next piece.
    pub fn poll_piece(&mut self, cx: &Context<'_>) -> Poll<Piece> {
        let mut state = self.streaming.lock();
        if self.place < state.window_at {
            // A part that was stored of a reply that broke off is not its end.
            return match (&state.stored, state.ended) {
                (_, Some(Ending::Cut)) => Poll::Ready(Piece::Cut),
                (Some(Some(body)), _) if body.bytes() == state.received => {
                    Poll::Ready(Piece::Behind(body.clone()))
                }
                (Some(_), _) => Poll::Ready(Piece::Cut),
                (None, _) if !state.storing => Poll::Ready(Piece::Cut),
                (None, _) => state.wait(cx),
            };
        }
        let mut chunk_at = state.window_at;
        for chunk in &state.window {
            let end = chunk_at + chunk.len() as u64;
            if self.place < end {
                let bytes = chunk.slice((self.place - chunk_at) as usize..);
                self.place = end;
                let place = self.place;
                let id = self.id;
                if let Some(mine) = state.readers.iter_mut().find(|(reader, _)| *reader == id) {
                    mine.1 = place;
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
            requested_at: WallSeconds(0),
        };
        streaming.tell(FetchResult::Shared(Arc::new(head)));
        streaming
    }

    #[test]
    fn a_reader_that_joins_late_gets_all_and_one_that_falls_behind_goes_on_from_the_store() {
        let streaming = shared();
        let mut slow = streaming.read().expect("from the beginning");
        streaming.push(Bytes::from_static(b"abcd"), 8);
        let mut late = streaming.read().expect("still all there");
        assert_eq!(bytes(now(|cx| late.poll_piece(cx))).as_deref(), Some(&b"abcd"[..]));
        assert!(now(|cx| late.poll_piece(cx)).is_none(), "no more has come");
        streaming.push(Bytes::from_static(b"efgh"), 8);
        streaming.push(Bytes::from_static(b"ijkl"), 8);
        assert!(streaming.read().is_none(), "the beginning has left the window");
        assert!(now(|cx| slow.poll_piece(cx)).is_none(), "waits for the store");
        streaming.end(Ending::Whole);
        assert!(streaming.has_readers_behind());
        streaming.set_stored(Some(StoredBody::Whole(Bytes::from_static(b"abcdefghijkl"))));
        assert!(matches!(now(|cx| slow.poll_piece(cx)), Some(Piece::Behind(body)) if body.bytes() == 12));
        assert_eq!(bytes(now(|cx| late.poll_piece(cx))).as_deref(), Some(&b"efgh"[..]));
    }

    #[test]
    fn without_a_store_nothing_unread_is_let_go() {
        let streaming = shared();
        streaming.store_no_more();
        let mut reader = streaming.read().expect("a reader");
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
    fn a_reader_behind_is_cut_off_when_storing_ends_and_holds_nobody_up() {
        let streaming = shared();
        let mut slow = streaming.read().expect("from the beginning");
        let mut fast = streaming.read().expect("from the beginning");
        for _ in 0..4 {
            streaming.push(Bytes::from_static(b"abcd"), 8);
            assert!(bytes(now(|cx| fast.poll_piece(cx))).is_some());
        }
        assert!(now(|cx| slow.poll_piece(cx)).is_none(), "waits for the store");
        streaming.store_no_more();
        assert_eq!(goes_on(&streaming, 8), Some(true), "for the one that is not lost");
        assert!(matches!(now(|cx| slow.poll_piece(cx)), Some(Piece::Cut)));
        for _ in 0..4 {
            streaming.push(Bytes::from_static(b"efgh"), 8);
            assert_eq!(bytes(now(|cx| fast.poll_piece(cx))).as_deref(), Some(&b"efgh"[..]));
        }
        assert!(streaming.lock().window.len() <= 1, "nothing is kept for the lost one");
        drop(fast);
        assert_eq!(goes_on(&streaming, 8), None, "a lost reader is none");
    }

    #[test]
    fn a_part_that_was_stored_is_no_end_for_a_reader_behind() {
        let streaming = shared();
        let mut slow = streaming.read().expect("from the beginning");
        let mut fast = streaming.read().expect("from the beginning");
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
        let mut reader = streaming.read().expect("a reader");
        streaming.push(Bytes::from_static(b"abcd"), 8);
        streaming.end(Ending::Cut);
        streaming.end(Ending::Whole);
        assert!(bytes(now(|cx| reader.poll_piece(cx))).is_some());
        assert!(matches!(now(|cx| reader.poll_piece(cx)), Some(Piece::Cut)));
    }

    /// Whether the body relay may go on; nothing when nobody reads.
    fn goes_on(streaming: &StreamingReply, window_bytes: u64) -> Option<bool> {
        let mut wanted = std::pin::pin!(streaming.wanted(window_bytes));
        match wanted.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(true) => Some(true),
            Poll::Ready(false) => None,
            Poll::Pending => Some(false),
        }
    }

    #[test]
    fn the_pump_waits_for_the_fastest_reader_whatever_the_chunks_and_for_nobody_left_behind() {
        let streaming = shared();
        assert_eq!(goes_on(&streaming, 8), None);
        let mut fast = streaming.read().expect("from the beginning");
        let slow = streaming.read().expect("from the beginning");
        // A chunk larger than the window leaves nobody behind who would have gone on.
        streaming.push(Bytes::from_static(&[b'x'; 30]), 8);
        assert_eq!(goes_on(&streaming, 8), Some(false));
        assert_eq!(bytes(now(|cx| fast.poll_piece(cx))).map(|chunk| chunk.len()), Some(30));
        assert_eq!(goes_on(&streaming, 8), Some(true));
        streaming.push(Bytes::from_static(&[b'x'; 30]), 8);
        assert_eq!(goes_on(&streaming, 8), Some(true), "one waits for the store: nobody may hold up the end");
        drop(fast);
        assert_eq!(goes_on(&streaming, 8), Some(true), "only that one is left");
        drop(slow);
        assert_eq!(goes_on(&streaming, 8), None);
    }
}
