//! Threads that change the store, so that no event loop waits for a disk write.
//!
//! ```text
//! loops ── jobs, by the hash of the URI ──> write queue 0 ──> store writer 0 ── put, put_stream, delete ──> packstore
//!      │                               └──> write queue 1 ──> store writer 1      └─ receipt (oneshot)         ^
//!      └── try_put_now, while no queued job needs the URI's key lock ── try_put ───────────────────────────────┘
//! ```
//!
//! An event loop puts a small reply itself if it need not wait for that: a handover to a thread costs more than the put.
//! Always holds:
//! - The jobs of one URI go through one write queue and are executed one at a time, in the order they were queued.
//! - The bytes that wait are bounded, heads and keys included. Above the bound a job is refused, and the reply is passed on
//!   without being stored.
//! - A body that is dropped before its end is not stored.
//! - A new head replaces a stored one only while that version is still current, so that it never undoes a later change.

mod backlog;
mod job;
mod mutations;
mod queue;
mod unreadable;
mod writer;
mod writing;

pub use job::{Applied, NewHead, Precondition, StillWanted, WriteReceipt};
pub(super) use unreadable::UnreadableRemoval;
pub use writing::StreamingPut;

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use bytes::Bytes;
use http_cache_rules::key::CacheKey;
use packstore::Store;
use tokio::sync::oneshot;
use xxhash_rust::xxh3::xxh3_64;

use super::Version;
use crate::error::WebcacheError;
use backlog::Backlog;
use job::Job;
use mutations::StoreMutations;
use queue::{KeyLockNumber, WriteQueue};
use writer::StoreWriter;

/// Longest body that an event loop puts itself, in bytes: copying it costs little beside waking a store writer.
const INLINE_PUT_BYTES_MAX: usize = 64 << 10;

/// The store writer threads and their queues.
pub struct StoreWriters {
    mutations: Arc<StoreMutations>,
    backlog: Arc<Backlog>,
    queues: Vec<Arc<WriteQueue>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl StoreWriters {
    pub(super) fn start(
        store: &Arc<Store>,
        count: usize,
        behind_bytes_max: u64,
    ) -> Result<Self, WebcacheError> {
        let mutations = Arc::new(StoreMutations::new(Arc::clone(store)));
        let backlog = Arc::new(Backlog::new(behind_bytes_max));
        let (mut queues, mut threads) = (Vec::new(), Vec::new());
        for number in 0..count.max(1) {
            let (queue, jobs) = WriteQueue::new(Arc::clone(&backlog));
            let queue = Arc::new(queue);
            let (mutations, own) = (Arc::clone(&mutations), Arc::clone(&queue));
            let work = move || StoreWriter::new(&mutations, &own).work(&jobs);
            let name = format!("writer-{number}");
            let thread = std::thread::Builder::new().name(name.clone()).spawn(work);
            threads.push(thread.map_err(|source| WebcacheError::Thread { name, source })?);
            queues.push(queue);
        }
        Ok(Self { mutations, backlog, queues, threads: Mutex::new(threads) })
    }

    /// Bytes that wait to be written.
    pub fn behind_bytes(&self) -> u64 {
        self.backlog.bytes()
    }

    /// How many changes failed in the store.
    pub fn failed(&self) -> u64 {
        self.mutations.failed()
    }

    /// Stores a whole reply. `return_body` asks for the stored body in the receipt, for readers that need it. `None` when too much is
    /// waiting already.
    pub fn put(
        &self,
        head: Arc<NewHead>,
        mut body: Vec<Bytes>,
        condition: Precondition,
        return_body: bool,
    ) -> Option<WriteReceipt> {
        let (done, stored) = oneshot::channel();
        let bytes: usize = body.iter().map(Bytes::len).sum();
        if let Precondition::StillWanted(still_wanted) = &condition
            && !return_body
            && bytes <= INLINE_PUT_BYTES_MAX
        {
            if body.len() > 1 {
                body = vec![body.concat().into()];
            }
            if let Some(applied) = self.try_put_now(&head, body.first(), still_wanted) {
                let _ = done.send(applied);
                return Some(stored);
            }
        }
        let (queue, number) = self.queue(&head.key);
        queue.try_enqueue(number, Job::Put { head, body, condition, return_body, done }).then_some(stored)
    }

    /// Puts on the calling thread, under the URI's key lock. `None` when that would block, or a list of variants has to be written.
    fn try_put_now(
        &self,
        head: &NewHead,
        body: Option<&Bytes>,
        still_wanted: &StillWanted,
    ) -> Option<Option<Applied>> {
        let (queue, number) = self.queue(&head.key);
        let _taken = queue.key_lock(number).try_lock()?;
        let put = self.mutations.try_put_now(head, body.map_or(b"", |body| body), still_wanted)?;
        Some(put.unwrap_or_else(|error| self.mutations.record_failure(&error)))
    }

    /// Begins to store a reply whose body comes in chunks. `None` when too much is waiting already.
    pub fn begin(&self, head: Arc<NewHead>) -> Option<StreamingPut> {
        let (queue, number) = self.queue(&head.key);
        StreamingPut::begin(queue, number, head)
    }

    /// As [`StoreWriters::begin`], but waits until the backlog has space for it.
    pub async fn begin_when_space(&self, head: Arc<NewHead>) -> Option<StreamingPut> {
        if !self.backlog.fits_when_empty(&Job::Begin { id: 0, head: Arc::clone(&head) }) {
            return None;
        }
        loop {
            let space_freed = self.backlog.space_freed.notified();
            if let Some(writing) = self.begin(Arc::clone(&head)) {
                return Some(writing);
            }
            space_freed.await;
        }
    }

    /// Replaces the head of a stored reply while `over` is its current version; the body is copied. `None` when too much is waiting
    /// already.
    pub fn replace_head(&self, head: Arc<NewHead>, over: Version) -> Option<WriteReceipt> {
        let (done, stored) = oneshot::channel();
        let (queue, number) = self.queue(&head.key);
        queue.try_enqueue(number, Job::ReplaceHead { head, over, done }).then_some(stored)
    }

    /// Removes everything that is stored for a URI.
    pub fn remove(&self, key: &CacheKey) -> WriteReceipt {
        let (done, removed) = oneshot::channel();
        let (queue, number) = self.queue(key);
        queue.enqueue(number, Job::Remove { key: key.clone(), done });
        removed
    }

    /// Removes one unreadable object of a URI.
    pub(super) fn remove_unreadable(&self, key: &CacheKey, name: &[u8]) {
        let (queue, number) = self.queue(key);
        queue.enqueue(number, Job::RemoveUnreadable { name: name.to_vec(), sequence: None, done: None });
    }

    /// Removes this version of a URI once it proves unreadable.
    pub(super) fn removal_of(&self, key: &CacheKey, version: &Version) -> UnreadableRemoval {
        let (queue, number) = self.queue(key);
        UnreadableRemoval::new(queue, number, version)
    }

    pub(super) fn stop(&self) {
        for queue in &self.queues {
            queue.enqueue(queue.number(0), Job::Stop);
        }
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            let _ = thread.join();
        }
    }

    /// The write queue and key lock of a URI.
    fn queue(&self, key: &CacheKey) -> (&Arc<WriteQueue>, KeyLockNumber) {
        let hash = xxh3_64(key.as_str().as_bytes());
        let queue = &self.queues[hash as usize % self.queues.len()];
        (queue, queue.number(hash >> 32))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use http::HeaderMap;
    use packstore::{Mode, StoreOptions, VolumeSpec};
    use testkit::SimulatedDisk;

    use super::*;
    use crate::object_cache::{encode_reply, object_key};

    fn writers(behind_bytes_max: u64) -> (Arc<Store>, StoreWriters) {
        let disk = Arc::new(SimulatedDisk::new("cache"));
        let options = StoreOptions { mode: Mode::Cache, ..StoreOptions::default() };
        let store = Store::create(vec![VolumeSpec { disk, size_bytes: 8 << 20 }], options).expect("a store");
        let store = Arc::new(store);
        let writers = StoreWriters::start(&store, 1, behind_bytes_max).expect("a thread");
        (store, writers)
    }

    fn head(meta: Vec<u8>, facts: Vec<u8>) -> Arc<NewHead> {
        let key = CacheKey::of(&"http://a/".parse().expect("a URI")).expect("a key");
        Arc::new(NewHead { key, meta, facts, expires_s: 0 })
    }

    /// The head of a reply that is fresh for a minute.
    fn reply_head(body_bytes: u64) -> Arc<NewHead> {
        use http_cache_rules::facts::{Extent, StoredFacts};
        use http_cache_rules::{Exchange, Policy, RequestFacts, WallSeconds, judge};
        let mut fields = HeaderMap::new();
        fields.insert(http::header::CACHE_CONTROL, http::HeaderValue::from_static("max-age=60"));
        let judged = judge(
            &Exchange {
                target: &"http://a/".parse().expect("a URI"),
                request: &RequestFacts::of(&http::Method::GET, &HeaderMap::new()),
                request_headers: &HeaderMap::new(),
                requested_at: WallSeconds(100),
                answered_at: WallSeconds(100),
                status: http::StatusCode::OK,
                headers: &fields,
            },
            &Policy::default(),
        );
        let facts = StoredFacts { extent: Extent::whole(body_bytes), ..judged.expect("may be stored") };
        let facts = http_cache_rules::facts::meta_bytes(facts, &HeaderMap::new(), &HeaderMap::new());
        let meta = encode_reply(&facts, &[]).expect("short");
        head(meta, facts)
    }

    fn always() -> StillWanted {
        Box::new(|| true)
    }

    #[test]
    fn heads_and_keys_of_what_waits_are_bounded_too() {
        let (_store, writers) = writers(4000);
        let long = || head(vec![0; 5000], Vec::new());
        let put = writers.put(long(), Vec::new(), Precondition::StillWanted(always()), true);
        assert!(put.is_none(), "no body, but a head");
        assert!(writers.begin(long()).is_none());
        let writing = writers.begin(head(vec![0; 100], Vec::new())).expect("that fits");
        assert!(!writing.write(Bytes::from(vec![0; 4000])));
        drop(writing);
        writers.stop();
        assert_eq!(writers.behind_bytes(), 0);
    }

    #[test]
    fn a_short_body_is_put_at_once_in_however_many_pieces_it_came() {
        let (store, writers) = writers(1 << 20);
        // The store writer allocates space first.
        let first = writers.put(reply_head(0), Vec::new(), Precondition::StillWanted(always()), true);
        first.expect("room").blocking_recv().expect("a receipt").expect("stored");
        for piece_bytes in [10, 1000, INLINE_PUT_BYTES_MAX / 4] {
            let pieces: Vec<Bytes> = (0..4).map(|piece| Bytes::from(vec![piece; piece_bytes])).collect();
            let whole = pieces.concat();
            let head = reply_head(whole.len() as u64);
            let name = object_key(&head.key).expect("short");
            let put = writers.put(head, pieces, Precondition::StillWanted(always()), false);
            assert!(
                put.expect("room")
                    .try_recv()
                    .unwrap_or_else(|_| panic!("{piece_bytes} bytes four times are not put at once"))
                    .expect("stored")
                    .findable
            );
            let stored = store.get(&name).expect("readable").expect("there");
            assert_eq!(stored.read_all().expect("readable"), whole);
        }
        writers.stop();
    }

    #[test]
    fn nothing_is_put_at_once_before_what_waits_for_its_turn() {
        let (_store, writers) = writers(1 << 20);
        let head = || head(Vec::new(), Vec::new());
        let at_once = || writers.try_put_now(&head(), None, &always()).is_some();
        let (queue, number) = writers.queue(&head().key);
        assert!(at_once());
        let taken = queue.key_lock(number).lock();
        assert!(!at_once(), "a change is being made");
        let other = (0..).map(|page| CacheKey::of(&format!("http://a/{page}").parse().expect("a URI")));
        let other = other.map(|key| key.expect("a key")).find(|key| writers.queue(key).1 != number);
        let key = other.expect("there are many");
        let other = NewHead { key, meta: Vec::new(), facts: Vec::new(), expires_s: 0 };
        assert!(writers.try_put_now(&other, None, &always()).is_some(), "another's turn");
        let removed = writers.remove(&head().key);
        drop(taken);
        let _ = removed.blocking_recv();
        let begun = std::time::Instant::now();
        while !at_once() {
            assert!(begun.elapsed().as_secs() < 20, "what is done does not wait any more");
        }
        queue.key_lock(number).queued.fetch_add(1, Ordering::SeqCst);
        assert!(!at_once(), "another waits");
        writers.stop();
    }

    #[test]
    fn what_is_not_wanted_any_more_when_its_turn_comes_does_not_count() {
        let (store, writers) = writers(1 << 20);
        let head = || reply_head(5);
        let body = || vec![Bytes::from_static(b"hello")];
        let name = object_key(&head().key).expect("short");
        for (wanted, return_body) in [(false, false), (false, true), (true, true)] {
            let still_wanted = || -> StillWanted { Box::new(move || wanted) };
            let receipt = |applied: WriteReceipt| {
                let applied = applied.blocking_recv().expect("a receipt");
                applied.map(|applied| (applied.body.expect("returned").bytes(), applied.findable))
            };
            let put = writers
                .put(head(), body(), Precondition::StillWanted(still_wanted()), return_body)
                .expect("room");
            assert_eq!(receipt(put), return_body.then_some((5, wanted)), "{wanted} {return_body}");
            let writing = writers.begin(head()).expect("room");
            assert!(writing.write(Bytes::from_static(b"longer")));
            assert_eq!(
                receipt(writing.commit(still_wanted(), return_body)),
                return_body.then_some((6, wanted)),
                "{wanted} {return_body}"
            );
            assert_eq!(store.get(&name).expect("readable").is_some(), wanted, "{wanted} {return_body}");
        }
        // A put for readers alone leaves the stored version in place.
        let there = store.stat(&name).expect("readable").expect("stored").sequence;
        let never: StillWanted = Box::new(|| false);
        let put = writers.put(head(), body(), Precondition::StillWanted(never), true).expect("room");
        assert!(!put.blocking_recv().expect("a receipt").expect("returned").findable);
        assert_eq!(store.stat(&name).expect("readable").map(|stat| stat.sequence), Some(there));
        writers.stop();
    }
}
