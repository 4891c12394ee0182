//! Carries a reply's body from upstream to its readers and to the store.
//!
//! ```text
//! up to 256 KiB: buffered, and stored in one put at the end      longer: streamed to the store as it arrives, at the disk's pace
//! no reader left: finished when little is missing, else dropped
//! ```
//!
//! Always holds: an incomplete body is stored only as a part, and only with a strong validator. A reply that was purged while
//! it arrived is not found afterwards.

use std::ops::Range;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body as _, Frame};
use http_cache_rules::StoredFacts;
use http_cache_rules::storing::{self, BodyEnd};

use crate::config::Config;
use crate::object_cache::{NewHead, Precondition, StillWanted, StreamingPut};
use crate::server::client::reply_body::ReplyBody;
use crate::server::fetch::collapsing::{Epoch, FetchGuard};
use crate::server::fetch::streaming_reply::{Ending, StreamingReply};
use crate::server::prefetch::Page;
use crate::server::upstream::READ_BYTES;
use crate::server::worker::{Busy, Worker};

/// Longest body that is stored in one put, in bytes; the store reads and writes up to this much at once.
pub const WHOLE_BODY_BYTES_MAX: u64 = 256 << 10;

/// How long to wait for space in the write queue before a long body is not stored after all. A disk that works makes space several
/// times a second, so the fetch runs at its pace; a disk that hangs delays clients by no more than this.
const SPACE_WAIT_MAX: Duration = Duration::from_secs(10);

/// What to store of a reply, and how.
pub struct StoragePlan {
    /// Key and stored head.
    pub head: Arc<NewHead>,
    /// The facts that the rules decided on.
    pub facts: StoredFacts,
    /// The URI's epoch when the fetch began.
    pub epoch: Epoch,
    /// How many bans there were when the fetch began: later ones apply to the reply.
    pub bans_seen: u64,
    /// Whether it has a strong validator, so that a part of it can be completed later.
    pub strong: bool,
    /// Length of the body, if announced.
    pub announced: Option<u64>,
}

/// What a relay needs.
pub struct RelayInput {
    /// The shared reply that it fills.
    pub streaming: Arc<StreamingReply>,
    /// Held until the reply is stored, so that other requests can join.
    pub guard: Option<FetchGuard>,
    /// How to store it.
    pub plan: StoragePlan,
    /// Set for a page whose embedded objects are prefetched once it is stored.
    pub page: Option<Page>,
    /// Which bytes of the body come from upstream: all, or those that a stored part lacked.
    pub fetched: Range<u64>,
}

struct BodyRelay {
    worker: Rc<Worker>,
    config: Arc<Config>,
    streaming: Arc<StreamingReply>,
    plan: StoragePlan,
    buffered: Vec<Bytes>,
    writing: Option<StreamingPut>,
    storing: bool,
    received: u64,
    page: Option<Page>,
    fetched: Range<u64>,
}

/// Starts the relay and runs it until it has to wait: a short reply that arrived with its head is relayed completely here. A task
/// continues the rest.
pub async fn start(worker: &Rc<Worker>, config: &Arc<Config>, input: RelayInput, body: ReplyBody) {
    let RelayInput { streaming, guard, plan, page, fetched } = input;
    let busy = Busy::new(worker);
    let relay = BodyRelay {
        worker: Rc::clone(worker),
        config: Arc::clone(config),
        streaming,
        plan,
        buffered: Vec::new(),
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
            // The body has its own timeout.
            match frame.await {
                None => break true,
                Some(Ok(frame)) => {
                    let Ok(chunk) = Frame::into_data(frame) else { continue };
                    self.take(compact(chunk)).await;
                    if !self.streaming.wait_for_demand(self.config.cache.fill_window_bytes).await
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
        let before = self.fetched_within(self.received);
        self.received += chunk.len() as u64;
        self.worker.counters.origin_bytes.add(self.fetched_within(self.received) - before);
        if self.storing {
            if self.received > self.config.cache.object_max_bytes {
                self.stop_storing();
            } else if let Some(writing) = &self.writing {
                if !self.write(writing, chunk.clone()).await {
                    self.worker.counters.unstored_behind.add(1);
                    self.stop_storing();
                }
            } else {
                self.buffered.push(chunk.clone());
                if self.received > WHOLE_BODY_BYTES_MAX {
                    self.begin_streaming_put().await;
                }
            }
        }
        self.streaming.push(chunk, self.config.cache.fill_window_bytes);
    }

    /// Waits while the backlog is full; longer if readers depend on the store, as they would be cut off.
    async fn write(&self, writing: &StreamingPut, chunk: Bytes) -> bool {
        if writing.write(chunk.clone()) {
            return true;
        }
        let wait_max = match self.streaming.has_readers_behind() {
            true => self.config.upstream.reply_time.max(SPACE_WAIT_MAX),
            false => SPACE_WAIT_MAX,
        };
        tokio::time::timeout(wait_max, writing.write_when_space(chunk)).await.unwrap_or(false)
    }

    async fn begin_streaming_put(&mut self) {
        if let Some(writing) = self.start_streaming().await {
            self.writing = Some(writing);
        } else {
            self.worker.counters.unstored_behind.add(1);
            self.stop_storing();
        }
    }

    /// Starts with the bytes that are buffered so far.
    async fn start_streaming(&mut self) -> Option<StreamingPut> {
        let shared = Arc::clone(&self.worker.shared);
        let begun = shared.object_cache.writers().begin_when_space(Arc::clone(&self.plan.head));
        let writing = tokio::time::timeout(SPACE_WAIT_MAX, begun).await.ok()??;
        for chunk in std::mem::take(&mut self.buffered) {
            if !self.write(&writing, chunk).await {
                return None;
            }
        }
        Some(writing)
    }

    fn stop_storing(&mut self) {
        self.storing = false;
        self.writing = None;
        self.buffered = Vec::new();
        self.streaming.stop_storing();
    }

    /// How many of the first `bytes` bytes come from upstream.
    fn fetched_within(&self, bytes: u64) -> u64 {
        bytes.clamp(self.fetched.start, self.fetched.end) - self.fetched.start
    }

    /// Whether to finish the body though no reader is left.
    fn worth_finishing(&self) -> bool {
        let missing = match self.plan.announced {
            Some(announced) => {
                self.fetched_within(announced).saturating_sub(self.fetched_within(self.received))
            }
            // Guess that a body of unknown length has as much left as has arrived.
            None => self.received,
        };
        self.storing && missing <= self.config.cache.finish_bytes
    }

    /// Whether it was purged, banned or invalidated since the fetch began.
    fn is_invalidated(&self) -> bool {
        let (shared, plan) = (&self.worker.shared, &self.plan);
        self.streaming.is_invalidated()
            || !shared.collapse_table.is_current(plan.epoch)
            || shared.bans.covers_since(plan.bans_seen, plan.head.key.as_str(), || plan.head.fields())
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
        // When the bytes that precede a stored part are incomplete, keep the part.
        let loses = !whole && self.fetched.start == 0 && self.fetched.end < u64::MAX;
        self.streaming.end(if whole { Ending::Whole } else { Ending::Cut });
        // Current readers of an invalidated reply may finish; new requests do not find it.
        let (invalidated, return_body) =
            (self.is_invalidated(), whole && self.streaming.has_readers_behind());
        if !self.storing || loses || ended == BodyEnd::Discard || invalidated && !return_body {
            self.streaming.set_stored(None);
            return;
        }
        let (page, received) = (self.page.take(), self.received);
        let page = page.filter(|page| whole && self.writing.is_none() && received <= page.bytes_max());
        let page = page.map(|page| (page, self.buffered.clone()));
        let writers = self.worker.shared.object_cache.writers();
        let (collapse_table, epoch) = (Arc::clone(&self.worker.shared.collapse_table), self.plan.epoch);
        let still_wanted: StillWanted = Box::new(move || !invalidated && collapse_table.is_current(epoch));
        let stored = match self.writing.take() {
            Some(writing) => Some(writing.commit(still_wanted, return_body)),
            None => writers.put(
                self.plan.head,
                self.buffered,
                Precondition::StillWanted(still_wanted),
                return_body,
            ),
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
        self.streaming.set_findable(applied.as_ref().is_some_and(|applied| applied.findable));
        self.streaming.set_stored(applied.and_then(|applied| applied.body));
    }
}

/// Copies a chunk that fills less than half of its read buffer. Memory held is then at most twice what is counted, and the
/// buffer is reused.
fn compact(chunk: Bytes) -> Bytes {
    if chunk.len() < READ_BYTES / 2 { Bytes::copy_from_slice(&chunk) } else { chunk }
}

/// Expiry time for store listings, in seconds since 1970. Not authoritative, as validation can extend it.
pub fn expires_s(facts: &StoredFacts) -> u32 {
    let left = i64::from(facts.lifetime_s) - i64::from(facts.initial_age_s);
    u32::try_from(facts.stored_at.0.saturating_add(left)).unwrap_or(u32::MAX)
}
