//! Brings a reply's body from the origin to its readers and to the store.
//!
//! ```text
//! up to 256 KiB: kept, and put whole at the end      longer: written on the way, a piece at a time, as fast as the disk takes it
//! no reader left: finished when little is missing, else dropped
//! ```
//!
//! Always holds: what did not come whole is stored only as the part it is, and only with a strong validator; what was
//! purged while it came is not found afterwards.

use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as _, Frame};
use http_cache_rules::storing::{self, BodyEnd};
use http_cache_rules::{StoredFacts, WallSeconds};

use crate::config::Config;
use crate::object_cache::{NewHead, Precondition, StillWanted, StreamingPut};
use crate::server::client::reply_body::ReplyBody;
use crate::server::fetch::collapsing::{Epoch, Guard};
use crate::server::fetch::streaming_reply::{Ending, StreamingReply};
use crate::server::prefetch::Page;
use crate::server::upstream::READ_BYTES;
use crate::server::worker::{Busy, Worker};

/// Bodies up to this are put in one piece (the store's own measure).
pub const WHOLE_BODY_BYTES_MAX: u64 = 256 << 10;

/// How long the store may have no room at all for more of a long body, until it is not stored after all. A disk that writes makes
/// room several times a second, so that a fetch goes on at its pace; one that hangs holds up no client for longer.
const ROOM_WAIT_MAX: Duration = Duration::from_secs(10);

/// What is to be stored, and how.
pub struct Plan {
    /// Key and stored head.
    pub head: Arc<NewHead>,
    /// What was judged.
    pub facts: StoredFacts,
    /// The URI's when the origin was asked.
    pub epoch: Epoch,
    /// When that was: bans of later count.
    pub requested_at: WallSeconds,
    /// Whether a part is told from others by a strong validator.
    pub strong: bool,
    /// Length that the origin announced.
    pub announced: Option<u64>,
}

/// What is to be filled, and for whom.
pub struct Filling {
    /// For readers.
    pub streaming: Arc<StreamingReply>,
    /// For those who wait, if others may; held until the store has it.
    pub guard: Option<Guard>,
    /// For the store.
    pub plan: Plan,
    /// A page, of which what it embeds is fetched once it is stored.
    pub page: Option<Page>,
    /// Which bytes of the body come from the origin: all, or what was missing of a stored part.
    pub fetched: Range<u64>,
}

struct BodyRelay {
    worker: Rc<Worker>,
    config: Arc<Config>,
    streaming: Arc<StreamingReply>,
    plan: Plan,
    kept: Vec<Bytes>,
    writing: Option<StreamingPut>,
    storing: bool,
    received: u64,
    page: Option<Page>,
    fetched: Range<u64>,
}

/// Begins, and takes at once what is there already: with a short reply that came in one piece with its head, all of it. A task
/// is made of what has to wait.
pub async fn start(worker: &Rc<Worker>, config: &Arc<Config>, filling: Filling, body: ReplyBody) {
    let Filling { streaming, guard, plan, page, fetched } = filling;
    let busy = Busy::new(worker);
    let relay = BodyRelay {
        worker: Rc::clone(worker),
        config: Arc::clone(config),
        streaming,
        plan,
        kept: Vec::new(),
        writing: None,
        storing: true,
        received: 0,
        page,
        fetched,
    };
    let mut relaying = Box::pin(async move {
        relay.run(body).await;
        drop(guard);
        drop(busy);
    });
    let waits = std::future::poll_fn(|cx| Poll::Ready(relaying.as_mut().poll(cx).is_pending()));
    if waits.await {
        tokio::task::spawn_local(relaying);
    }
}

impl BodyRelay {
    async fn run(mut self, mut body: ReplyBody) {
        let cleanly = loop {
            let frame = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx));
            // The body itself keeps the time.
            match frame.await {
                None => break true,
                Some(Ok(frame)) => {
                    let Ok(chunk) = Frame::into_data(frame) else { continue };
                    self.take(compact(chunk)).await;
                    if !self.streaming.wanted(self.config.cache.fill_window_bytes).await
                        && !self.worth_finishing()
                    {
                        break false;
                    }
                }
                Some(Err(_)) => break false,
            }
        };
        self.end(cleanly).await;
    }

    async fn take(&mut self, chunk: Bytes) {
        let before = self.fetched_of(self.received);
        self.received += chunk.len() as u64;
        self.worker.counters.origin_bytes.add(self.fetched_of(self.received) - before);
        if self.storing {
            if self.received > self.config.cache.object_max_bytes {
                self.store_no_more();
            } else if let Some(writing) = &self.writing {
                if !self.write(writing, chunk.clone()).await {
                    self.worker.counters.unstored_behind.add(1);
                    self.store_no_more();
                }
            } else {
                self.kept.push(chunk.clone());
                if self.received > WHOLE_BODY_BYTES_MAX {
                    self.begin_writing().await;
                }
            }
        }
        self.streaming.push(chunk, self.config.cache.fill_window_bytes);
    }

    /// When too much waits already, that is waited for: longer if readers have fallen behind, as they would be cut off.
    async fn write(&self, writing: &StreamingPut, chunk: Bytes) -> bool {
        if writing.write(chunk.clone()) {
            return true;
        }
        let patience = match self.streaming.has_readers_behind() {
            true => self.config.upstream.reply_time.max(ROOM_WAIT_MAX),
            false => ROOM_WAIT_MAX,
        };
        tokio::time::timeout(patience, writing.write_when_space(chunk)).await.unwrap_or(false)
    }

    async fn begin_writing(&mut self) {
        if let Some(writing) = self.begun().await {
            self.writing = Some(writing);
        } else {
            self.worker.counters.unstored_behind.add(1);
            self.store_no_more();
        }
    }

    /// With what has come so far.
    async fn begun(&mut self) -> Option<StreamingPut> {
        let shared = Arc::clone(&self.worker.shared);
        let begun = shared.object_cache.writers().begin_when_space(Arc::clone(&self.plan.head));
        let writing = tokio::time::timeout(ROOM_WAIT_MAX, begun).await.ok()??;
        for chunk in std::mem::take(&mut self.kept) {
            if !self.write(&writing, chunk).await {
                return None;
            }
        }
        Some(writing)
    }

    fn store_no_more(&mut self) {
        self.storing = false;
        self.writing = None;
        self.kept = Vec::new();
        self.streaming.store_no_more();
    }

    /// Of the first so many bytes, those from the origin.
    fn fetched_of(&self, bytes: u64) -> u64 {
        bytes.clamp(self.fetched.start, self.fetched.end) - self.fetched.start
    }

    /// With nobody left who wants it.
    fn worth_finishing(&self) -> bool {
        let missing = match self.plan.announced {
            Some(announced) => self.fetched_of(announced).saturating_sub(self.fetched_of(self.received)),
            // Of unknown length: as much again as has come is a guess.
            None => self.received,
        };
        self.storing && missing <= self.config.cache.finish_bytes
    }

    /// Purged, banned or invalidated since the origin was asked.
    fn is_void(&self) -> bool {
        let (shared, plan) = (&self.worker.shared, &self.plan);
        self.streaming.is_void()
            || !shared.collapse_table.is_current(plan.epoch)
            || shared.bans.covers(plan.head.key.as_str(), plan.requested_at, || plan.head.fields())
    }

    async fn end(mut self, cleanly: bool) {
        let ended = storing::body_ended(
            &self.plan.facts,
            self.plan.strong,
            self.plan.announced,
            self.received,
            cleanly,
        );
        let whole = matches!(ended, BodyEnd::Whole(_));
        // What should have come before a stored part and did not is no reason to lose that.
        let loses = !whole && self.fetched.start == 0 && self.fetched.end < u64::MAX;
        self.streaming.end(if whole { Ending::Whole } else { Ending::Cut });
        // Readers who began with what is void now may end with it; those who begin now do not find it.
        let (void, return_body) = (self.is_void(), whole && self.streaming.has_readers_behind());
        if !self.storing || loses || ended == BodyEnd::Discard || void && !return_body {
            self.streaming.set_stored(None);
            return;
        }
        let (page, received) = (self.page.take(), self.received);
        let page = page.filter(|page| whole && self.writing.is_none() && received <= page.bytes_max());
        let page = page.map(|page| (page, self.kept.clone()));
        let writers = self.worker.shared.object_cache.writers();
        let (collapse_table, epoch) = (Arc::clone(&self.worker.shared.collapse_table), self.plan.epoch);
        let still_wanted: StillWanted = Box::new(move || !void && collapse_table.is_current(epoch));
        let stored = match self.writing.take() {
            Some(writing) => Some(writing.commit(still_wanted, return_body)),
            None => {
                writers.put(self.plan.head, self.kept, Precondition::StillWanted(still_wanted), return_body)
            }
        };
        let applied = match stored {
            Some(stored) => stored.await.unwrap_or(None),
            None => {
                self.worker.counters.unstored_behind.add(1);
                None
            }
        };
        if applied.as_ref().is_some_and(|applied| applied.findable) {
            self.worker.counters.stored_objects.add(1);
            self.worker.counters.stored_bytes.add(self.received);
            if let Some((page, body)) = page {
                page.fetch_embedded(body);
            }
        }
        self.streaming.set_stays(applied.as_ref().is_some_and(|applied| applied.findable));
        self.streaming.set_stored(applied.and_then(|applied| applied.body));
    }
}

/// A chunk keeps the buffer alive that it was read into. One that is not half of it is copied, so that what is held is at most
/// twice what is counted, and the buffer is used again.
fn compact(chunk: Bytes) -> Bytes {
    if chunk.len() < READ_BYTES / 2 { Bytes::copy_from_slice(&chunk) } else { chunk }
}

/// When the store may take a reply for expired: told for listings only, as validation can prolong it.
pub fn expires_s(facts: &StoredFacts) -> u32 {
    let left = i64::from(facts.lifetime_s) - i64::from(facts.initial_age_s);
    u32::try_from(facts.stored_at.0.saturating_add(left)).unwrap_or(u32::MAX)
}
