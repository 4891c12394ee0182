//! Threads that change the store, so that no event loop waits for a disk that writes.
//!
//! ```text
//! loops ── jobs, by the hash of the URI ──> write queue 0 ──> store writer 0 ── put, put_stream, delete ──> packstore
//!      │                               └──> write queue 1 ──> store writer 1      └─ told by a oneshot      ^
//!      │                                                              when it counts          │
//!      └── what is put at once, while nothing waits for its URI's turn ── try_put ────────────┘
//! ```
//!
//! A small reply is put by the loop itself, if that does not have to wait: handing it over costs more than putting it.
//! Always holds: jobs of one URI are done at one write queue in the order they were given, one at a time; bytes that wait are
//! bounded, heads and keys counted with bodies: above it nothing is taken, and the reply is passed on without being stored;
//! a store writer gives up on a body that no more comes of when its sender is gone; a new head for what is stored counts only
//! while that lies there, so that nothing that replaced or removed it meanwhile is undone.

mod backlog;
mod job;
mod mutations;
mod queue;
mod writer;
mod writing;

pub use job::{Counts, If, NewHead, Still, Stored};
pub use writing::Writing;

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use bytes::Bytes;
use http_cache_rules::key::CacheKey;
use packstore::Store;
use tokio::sync::oneshot;
use xxhash_rust::xxh3::xxh3_64;

use super::Version;
use backlog::Backlog;
use job::Job;
use mutations::StoreMutations;
use queue::{KeyLockNumber, WriteQueue};
use writer::StoreWriter;

/// A body that is put at once, in bytes: what copying it takes is little beside waking a store writer.
const AT_ONCE_BYTES_MAX: usize = 64 << 10;

/// The threads.
pub struct StoreWriters {
    mutations: Arc<StoreMutations>,
    backlog: Arc<Backlog>,
    queues: Vec<Arc<WriteQueue>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl StoreWriters {
    pub(super) fn start(store: &Arc<Store>, count: usize, behind_bytes_max: u64) -> std::io::Result<Self> {
        let mutations = Arc::new(StoreMutations::new(Arc::clone(store)));
        let backlog = Arc::new(Backlog::new(behind_bytes_max));
        let (mut queues, mut threads) = (Vec::new(), Vec::new());
        for number in 0..count.max(1) {
            let (queue, jobs) = WriteQueue::new(Arc::clone(&backlog));
            let queue = Arc::new(queue);
            let (mutations, own) = (Arc::clone(&mutations), Arc::clone(&queue));
            let work = move || StoreWriter::new(&mutations, &own).work(&jobs);
            threads.push(std::thread::Builder::new().name(format!("writer-{number}")).spawn(work)?);
            queues.push(queue);
        }
        Ok(Self { mutations, backlog, queues, threads: Mutex::new(threads) })
    }

    /// Bytes that wait to be written.
    pub fn behind_bytes(&self) -> u64 {
        self.backlog.bytes()
    }

    /// Changes that the store refused.
    pub fn failed(&self) -> u64 {
        self.mutations.failed()
    }

    /// Stores a whole reply. `hand`: give it back, as its readers need it. Nothing when too much waits already.
    pub fn put(&self, head: Arc<NewHead>, mut body: Vec<Bytes>, condition: If, hand: bool) -> Option<Stored> {
        let (done, stored) = oneshot::channel();
        let bytes: usize = body.iter().map(Bytes::len).sum();
        if let If::Still(still) = &condition
            && !hand
            && bytes <= AT_ONCE_BYTES_MAX
        {
            if body.len() > 1 {
                body = vec![body.concat().into()];
            }
            if let Some(counts) = self.put_at_once(&head, body.first(), still) {
                let _ = done.send(counts);
                return Some(stored);
            }
        }
        let (queue, number) = self.queue(&head.key);
        queue.give_if_room(number, Job::Put { head, body, condition, hand, done }).then_some(stored)
    }

    /// By the caller, in its URI's turn; nothing when that would have to wait, or lists of variants are to be written.
    fn put_at_once(&self, head: &NewHead, body: Option<&Bytes>, still: &Still) -> Option<Option<Counts>> {
        let (queue, number) = self.queue(&head.key);
        let _taken = queue.key_lock(number).try_take()?;
        let put = self.mutations.put_at_once(head, body.map_or(b"", |body| body), still)?;
        Some(put.unwrap_or_else(|error| self.mutations.refused(&error)))
    }

    /// Begins a reply whose body comes in parts. Nothing when too much waits already.
    pub fn begin(&self, head: Arc<NewHead>) -> Option<Writing> {
        let (queue, number) = self.queue(&head.key);
        Writing::begin(queue, number, head)
    }

    /// As [`StoreWriters::begin`], but waits until less waits.
    pub async fn begin_when_room(&self, head: Arc<NewHead>) -> Option<Writing> {
        if !self.backlog.can_ever_take(&Job::Begin { id: 0, head: Arc::clone(&head) }) {
            return None;
        }
        loop {
            let room = self.backlog.room.notified();
            if let Some(writing) = self.begin(Arc::clone(&head)) {
                return Some(writing);
            }
            room.await;
        }
    }

    /// Gives what is stored another head, while it lies there: its body is copied. Nothing when too much waits already.
    pub fn update(&self, head: Arc<NewHead>, over: Version) -> Option<Stored> {
        let (done, stored) = oneshot::channel();
        let (queue, number) = self.queue(&head.key);
        queue.give_if_room(number, Job::Copy { head, over, done }).then_some(stored)
    }

    /// Takes out all that is stored for a URI.
    pub fn remove(&self, key: &CacheKey) -> Stored {
        let (done, removed) = oneshot::channel();
        let (queue, number) = self.queue(key);
        queue.give(number, Job::Remove { key: key.clone(), done });
        removed
    }

    /// Takes out an object of a URI that cannot be read.
    pub(super) fn forget(&self, key: &CacheKey, name: &[u8]) {
        let (queue, number) = self.queue(key);
        queue.give(number, Job::Forget { name: name.to_vec() });
    }

    pub(super) fn stop(&self) {
        for queue in &self.queues {
            queue.give(queue.number(0), Job::Stop);
        }
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            let _ = thread.join();
        }
    }

    /// Where a URI's changes are made, and whose turn it takes.
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

    /// Of a reply that may be stored for a minute.
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

    fn always() -> Still {
        Box::new(|| true)
    }

    #[test]
    fn heads_and_keys_of_what_waits_are_bounded_too() {
        let (_store, writers) = writers(4000);
        let long = || head(vec![0; 5000], Vec::new());
        let put = writers.put(long(), Vec::new(), If::Still(always()), true);
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
        // Room is found by a store writer first.
        let first = writers.put(reply_head(0), Vec::new(), If::Still(always()), true);
        first.expect("room").blocking_recv().expect("told").expect("counts");
        for piece_bytes in [10, 1000, AT_ONCE_BYTES_MAX / 4] {
            let pieces: Vec<Bytes> = (0..4).map(|piece| Bytes::from(vec![piece; piece_bytes])).collect();
            let whole = pieces.concat();
            let head = reply_head(whole.len() as u64);
            let name = object_key(&head.key).expect("short");
            let put = writers.put(head, pieces, If::Still(always()), false);
            assert!(
                put.expect("room")
                    .try_recv()
                    .unwrap_or_else(|_| panic!("{piece_bytes} bytes four times are not put at once"))
                    .expect("counts")
                    .stays
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
        let at_once = || writers.put_at_once(&head(), None, &always()).is_some();
        let (queue, number) = writers.queue(&head().key);
        assert!(at_once());
        let taken = queue.key_lock(number).take();
        assert!(!at_once(), "a change is being made");
        let other = (0..).map(|page| CacheKey::of(&format!("http://a/{page}").parse().expect("a URI")));
        let other = other.map(|key| key.expect("a key")).find(|key| writers.queue(key).1 != number);
        let key = other.expect("there are many");
        let other = NewHead { key, meta: Vec::new(), facts: Vec::new(), expires_s: 0 };
        assert!(writers.put_at_once(&other, None, &always()).is_some(), "another's turn");
        let removed = writers.remove(&head().key);
        drop(taken);
        let _ = removed.blocking_recv();
        let begun = std::time::Instant::now();
        while !at_once() {
            assert!(begun.elapsed().as_secs() < 20, "what is done does not wait any more");
        }
        queue.key_lock(number).waiting.fetch_add(1, Ordering::SeqCst);
        assert!(!at_once(), "another waits");
        writers.stop();
    }

    #[test]
    fn what_is_not_wanted_any_more_when_its_turn_comes_does_not_count() {
        let (store, writers) = writers(1 << 20);
        let head = || reply_head(5);
        let body = || vec![Bytes::from_static(b"hello")];
        let name = object_key(&head().key).expect("short");
        for (wanted, hand) in [(false, false), (false, true), (true, true)] {
            let still = || -> Still { Box::new(move || wanted) };
            let told = |counts: Stored| {
                let counts = counts.blocking_recv().expect("told");
                counts.map(|counts| (counts.body.expect("handed").bytes(), counts.stays))
            };
            let put = writers.put(head(), body(), If::Still(still()), hand).expect("room");
            assert_eq!(told(put), hand.then_some((5, wanted)), "{wanted} {hand}");
            let writing = writers.begin(head()).expect("room");
            assert!(writing.write(Bytes::from_static(b"longer")));
            assert_eq!(told(writing.commit(still(), hand)), hand.then_some((6, wanted)), "{wanted} {hand}");
            assert_eq!(store.get(&name).expect("readable").is_some(), wanted, "{wanted} {hand}");
        }
        // What its readers alone get takes nothing away from those who find the one that is there.
        let there = store.stat(&name).expect("readable").expect("stored").sequence;
        let never: Still = Box::new(|| false);
        let put = writers.put(head(), body(), If::Still(never), true).expect("room");
        assert!(!put.blocking_recv().expect("told").expect("handed").stays);
        assert_eq!(store.stat(&name).expect("readable").map(|stat| stat.sequence), Some(there));
        writers.stop();
    }
}
