//! Threads that change the store, so that no event loop waits for a disk that writes.
//!
//! ```text
//! loops ── jobs, by the hash of the URI ──> clerk 0 ── put, put_stream, delete ──> packstore
//!      │                               └──> clerk 1      └─ told by a oneshot when it counts      ^
//!      └── what is put at once, where nothing waits at its URI's desk ── try_put ─────────────────┘
//! ```
//!
//! A small reply is put by the loop itself, if that does not have to wait: handing it over costs more than putting it.
//! Always holds: jobs of one URI are done at one desk in the order they were given, one at a time; bytes that wait are
//! bounded, heads and keys counted with bodies: above it nothing is taken, and the reply is passed on without being stored;
//! a clerk gives up on a body that no more comes of when its sender is gone; a new head for what is stored counts only
//! while that lies there, so that nothing that replaced or removed it meanwhile is undone.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::JoinHandle;

use bytes::Bytes;
use http::HeaderMap;
use packstore::{ObjectWriter, PutOptions, Store, StoreError};
use tokio::sync::{Notify, oneshot};
use xxhash_rust::xxh3::xxh3_64;

use super::{StoredBody, StoredHead, VariantList, Version, encode_list, object_key, variant_key};
use crate::rules::Meta;
use crate::rules::key::CacheKey;

/// Told when a change counts, if it does.
pub type Stored = oneshot::Receiver<Option<Counts>>;
type Done = oneshot::Sender<Option<Counts>>;
/// What a job came to, and who is to be told.
type Outcome = (Option<Done>, Result<Option<Counts>, StoreError>);

/// A change counts.
pub struct Counts {
    /// What was stored, if it was asked for: this version, whatever replaces it.
    pub body: Option<StoredBody>,
    /// Whether it lies there from now on. Else it was not wanted any more, but for its readers.
    pub stays: bool,
}

/// Asked right before a reply counts: whether it is wanted still, but for readers who have begun with it. What a later
/// removal of its URI has said already is then known for sure, as the removal waits at the same desk.
pub type Still = Box<dyn Fn() -> bool + Send>;

/// On which condition a reply counts.
pub enum If {
    /// It is wanted still.
    Still(Still),
    /// What it replaces lies there still.
    There(Version),
}

/// A reply's head on its way to the store.
#[derive(Clone)]
pub struct NewHead {
    /// Of the URI.
    pub key: CacheKey,
    /// The stored head.
    pub meta: Vec<u8>,
    /// The part of it that says by what it varies.
    pub facts: Vec<u8>,
    /// For listings, in seconds since 1970.
    pub expires_s: u32,
}

/// What a job takes beside its bytes, about.
const JOB_BYTES: u64 = 256;

impl NewHead {
    /// Its fields.
    pub fn fields(&self) -> Option<HeaderMap> {
        match StoredHead::read(&self.meta).ok()? {
            StoredHead::Reply { fields, .. } => {
                super::head::fields(&Bytes::copy_from_slice(&self.meta[fields])).ok()
            }
            StoredHead::Variants(_) => None,
        }
    }

    fn bytes(&self) -> u64 {
        JOB_BYTES + (self.key.as_str().len() + self.meta.len() + self.facts.len()) as u64
    }

    fn bytes_with(&self, body: &[Bytes]) -> u64 {
        self.bytes() + body.iter().map(|chunk| chunk.len() as u64).sum::<u64>()
    }

    fn options(&self) -> PutOptions<'_> {
        PutOptions { meta: &self.meta, expires_s: self.expires_s, created_s: None }
    }
}

enum Job {
    Put { head: NewHead, body: Vec<Bytes>, condition: If, hand: bool, done: Done },
    Begin { id: u64, head: NewHead },
    More { id: u64, chunk: Bytes },
    End { id: u64, commit: Option<Still>, hand: bool, done: Done },
    Copy { head: NewHead, over: Version, done: Done },
    Remove { key: CacheKey, done: Done },
    Forget { name: Vec<u8> },
    Stop,
}

struct Shared {
    behind_bytes: AtomicU64,
    behind_bytes_max: u64,
    failed: AtomicU64,
    next_id: AtomicU64,
    /// Told when less waits.
    room: Notify,
}

/// Where the changes of some URIs are made.
struct Desk {
    jobs: Sender<Job>,
    /// Given, and not done yet.
    waiting: AtomicUsize,
    /// Held while a change is made.
    turn: Mutex<()>,
}

impl Desk {
    fn give(&self, job: Job) -> bool {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        // A clerk that is gone has dropped what would tell of it, and that is told as not stored.
        self.jobs.send(job).is_ok()
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing while somebody else makes a change here, or waits to.
    fn turn_at_once(&self) -> Option<MutexGuard<'_, ()>> {
        let turn = match self.turn.try_lock() {
            Ok(turn) => turn,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        (self.waiting.load(Ordering::SeqCst) == 0).then_some(turn)
    }
}

/// The threads.
pub struct Clerks {
    shared: Arc<Shared>,
    store: Arc<Store>,
    desks: Vec<Arc<Desk>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// A body on its way. Dropped before its end nothing of it stays.
pub struct Writing {
    id: u64,
    desk: Arc<Desk>,
    shared: Arc<Shared>,
    ended: bool,
}

impl Clerks {
    pub(super) fn start(store: &Arc<Store>, count: usize, behind_bytes_max: u64) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            behind_bytes: AtomicU64::new(0),
            behind_bytes_max,
            failed: AtomicU64::new(0),
            next_id: AtomicU64::new(0),
            room: Notify::new(),
        });
        let (mut desks, mut threads) = (Vec::new(), Vec::new());
        for number in 0..count.max(1) {
            let (sender, jobs) = channel();
            let desk = Arc::new(Desk { jobs: sender, waiting: AtomicUsize::new(0), turn: Mutex::default() });
            let (store, shared, own) = (Arc::clone(store), Arc::clone(&shared), Arc::clone(&desk));
            let work = move || {
                let hand = Hand { store: &store, shared: &shared };
                Clerk { hand, desk: &own, bodies: HashMap::new() }.work(&jobs);
            };
            threads.push(std::thread::Builder::new().name(format!("clerk-{number}")).spawn(work)?);
            desks.push(desk);
        }
        Ok(Self { shared, store: Arc::clone(store), desks, threads: Mutex::new(threads) })
    }

    fn desk(&self, key: &CacheKey) -> &Arc<Desk> {
        &self.desks[xxh3_64(key.as_str().as_bytes()) as usize % self.desks.len()]
    }

    fn give(&self, key: &CacheKey, job: Job) {
        self.desk(key).give(job);
    }

    /// Bytes that wait to be written.
    pub fn behind_bytes(&self) -> u64 {
        self.shared.behind_bytes.load(Ordering::Relaxed)
    }

    /// Changes that the store refused.
    pub fn failed(&self) -> u64 {
        self.shared.failed.load(Ordering::Relaxed)
    }

    /// Stores a whole reply. `hand`: give it back, as its readers need it. Nothing when too much waits already.
    pub fn put(&self, head: NewHead, body: Vec<Bytes>, condition: If, hand: bool) -> Option<Stored> {
        if let (If::Still(still), [] | [_], false) = (&condition, &body[..], hand)
            && let Some(counts) = self.put_at_once(&head, body.first(), still)
        {
            let (done, stored) = oneshot::channel();
            let _ = done.send(counts);
            return Some(stored);
        }
        self.shared.take(head.bytes_with(&body)).then(|| {
            let (done, stored) = oneshot::channel();
            let key = head.key.clone();
            self.give(&key, Job::Put { head, body, condition, hand, done });
            stored
        })
    }

    /// By the caller, in its desk's turn; nothing when that would have to wait, or lists of variants are to be written.
    fn put_at_once(&self, head: &NewHead, body: Option<&Bytes>, still: &Still) -> Option<Option<Counts>> {
        let desk = self.desk(&head.key);
        let _turn = desk.turn_at_once()?;
        if !still() {
            return Some(None);
        }
        let hand = Hand { store: &self.store, shared: &self.shared };
        let put = match hand.place(&head.key, &head.facts) {
            Ok(Some((place, None))) => {
                self.store.try_put(&place, body.map_or(b"", |body| body), head.options())
            }
            Ok(Some((_, Some(_)))) => return None,
            Ok(None) => return Some(None),
            Err(error) => Err(error),
        };
        match put {
            Ok(()) => Some(Some(Counts { body: None, stays: true })),
            Err(StoreError::Busy) => None,
            Err(error) => Some(self.shared.refused(&error)),
        }
    }

    /// Begins a reply whose body comes in parts. Nothing when too much waits already.
    pub fn begin(&self, head: NewHead) -> Option<Writing> {
        self.shared.take(head.bytes()).then(|| {
            let id = self.shared.next_id.fetch_add(1, Ordering::Relaxed);
            let desk = Arc::clone(self.desk(&head.key));
            desk.give(Job::Begin { id, head });
            Writing { id, desk, shared: Arc::clone(&self.shared), ended: false }
        })
    }

    /// Gives what is stored another head, while it lies there: its body is copied. Nothing when too much waits already.
    pub fn update(&self, head: NewHead, over: Version) -> Option<Stored> {
        self.shared.take(head.bytes()).then(|| {
            let (done, stored) = oneshot::channel();
            let key = head.key.clone();
            self.give(&key, Job::Copy { head, over, done });
            stored
        })
    }

    /// Takes out all that is stored for a URI.
    pub fn remove(&self, key: &CacheKey) -> Stored {
        let (done, removed) = oneshot::channel();
        self.give(key, Job::Remove { key: key.clone(), done });
        removed
    }

    /// Takes out an object of a URI that cannot be read.
    pub(super) fn forget(&self, key: &CacheKey, name: &[u8]) {
        self.give(key, Job::Forget { name: name.to_vec() });
    }

    pub(super) fn stop(&self) {
        for desk in &self.desks {
            desk.give(Job::Stop);
        }
        let threads = std::mem::take(&mut *self.threads.lock().unwrap_or_else(PoisonError::into_inner));
        for thread in threads {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn take(&self, bytes: u64) -> bool {
        let before = self.behind_bytes.fetch_add(bytes, Ordering::Relaxed);
        let fits = before + bytes <= self.behind_bytes_max;
        if !fits {
            self.behind_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        fits
    }

    fn refused(&self, error: &StoreError) -> Option<Counts> {
        self.failed.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(%error, "a reply could not be stored");
        None
    }

    fn give_back(&self, bytes: u64) {
        self.behind_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.room.notify_waiters();
    }
}

impl Writing {
    /// Appends to the body; false when too much waits: then nothing will be stored.
    pub fn write(&self, chunk: Bytes) -> bool {
        self.shared.take(JOB_BYTES + chunk.len() as u64) && self.desk.give(Job::More { id: self.id, chunk })
    }

    /// As [`Writing::write`], but waits until less waits: for readers who have nothing else to go on from.
    pub async fn write_when_room(&self, chunk: Bytes) -> bool {
        if JOB_BYTES + chunk.len() as u64 > self.shared.behind_bytes_max {
            return false;
        }
        loop {
            let room = self.shared.room.notified();
            if self.write(chunk.clone()) {
                return true;
            }
            room.await;
        }
    }

    /// The body is whole: from now on it is found, if it is wanted still. `hand`: give it back, as its readers need it.
    pub fn commit(mut self, still: Still, hand: bool) -> Stored {
        self.ended = true;
        let (done, stored) = oneshot::channel();
        self.desk.give(Job::End { id: self.id, commit: Some(still), hand, done });
        stored
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        if !self.ended {
            let (done, _) = oneshot::channel();
            self.desk.give(Job::End { id: self.id, commit: None, hand: false, done });
        }
    }
}

/// A body that is being written. Where it goes is told at its end, as the list of variants may be another by then.
struct Begun<'a> {
    writer: Option<ObjectWriter<'a>>,
    head: NewHead,
}

/// The name of an object, and what list must lie at its URI if another is there.
type Place = (Vec<u8>, Option<VariantList>);

/// Makes changes, in a desk's turn.
#[derive(Clone, Copy)]
struct Hand<'a> {
    store: &'a Store,
    shared: &'a Shared,
}

struct Clerk<'a> {
    hand: Hand<'a>,
    desk: &'a Desk,
    bodies: HashMap<u64, Begun<'a>>,
}

impl Clerk<'_> {
    fn work(mut self, jobs: &Receiver<Job>) {
        while let Ok(job) = jobs.recv() {
            let turn = self.desk.turn();
            let Some((done, result)) = self.carry_out(job) else { return };
            self.desk.waiting.fetch_sub(1, Ordering::SeqCst);
            drop(turn);
            let stored = result.unwrap_or_else(|error| self.hand.shared.refused(&error));
            if let Some(done) = done {
                let _ = done.send(stored);
            }
        }
    }

    /// Nothing when it is to stop.
    fn carry_out(&mut self, job: Job) -> Option<Outcome> {
        let Hand { store, shared } = self.hand;
        Some(match job {
            Job::Put { head, body, condition, hand, done } => {
                let result = self.hand.put(&head, &body, &condition, hand);
                shared.give_back(head.bytes_with(&body));
                (Some(done), result)
            }
            Job::Begin { id, head } => {
                let bytes = head.bytes();
                let result = self.begin(id, head);
                shared.give_back(bytes);
                (None, result)
            }
            Job::More { id, chunk } => {
                let result = self.more(id, &chunk);
                shared.give_back(JOB_BYTES + chunk.len() as u64);
                (None, result)
            }
            Job::End { id, commit, hand, done } => (Some(done), self.end(id, commit, hand)),
            Job::Copy { head, over, done } => {
                let result = self.hand.copy(&head, &over);
                shared.give_back(head.bytes());
                (Some(done), result)
            }
            Job::Remove { key, done } => (Some(done), self.hand.remove(&key)),
            Job::Forget { name } => (None, store.delete_deferred(&name).map(|_| None)),
            Job::Stop => return None,
        })
    }

    fn begin(&mut self, id: u64, head: NewHead) -> Result<Option<Counts>, StoreError> {
        let Some((place, _)) = self.hand.place(&head.key, &head.facts)? else { return Ok(None) };
        let writer = self.hand.store.put_stream(&place, head.options())?;
        self.bodies.insert(id, Begun { writer: Some(writer), head });
        Ok(None)
    }

    fn more(&mut self, id: u64, chunk: &[u8]) -> Result<Option<Counts>, StoreError> {
        let Some(Begun { writer, .. }) = self.bodies.get_mut(&id) else { return Ok(None) };
        let Some(open) = writer else { return Ok(None) };
        let written = open.write(chunk);
        if written.is_err() {
            *writer = None;
        }
        written.map(|()| None)
    }

    fn end(&mut self, id: u64, commit: Option<Still>, hand: bool) -> Result<Option<Counts>, StoreError> {
        let Some(Begun { writer: Some(writer), head }) = self.bodies.remove(&id) else { return Ok(None) };
        let Some(still) = commit else { return Ok(None) };
        let counts = still();
        if !counts && !hand {
            return Ok(None);
        }
        if !counts {
            let name = self.hand.name_of_none();
            writer.commit_deferred_at(&name)?;
            return self.hand.hand_over(&name, &head.meta).map(Some);
        }
        let Some((place, list)) = self.hand.place(&head.key, &head.facts)? else { return Ok(None) };
        writer.commit_deferred_at(&place)?;
        self.hand.write_list(&head.key, list)?;
        Ok(Some(self.hand.counts(&place, &head.meta, hand)))
    }
}

impl Hand<'_> {
    /// Where a reply with these facts goes, and what list must then lie at its URI.
    fn place(&self, key: &CacheKey, facts: &[u8]) -> Result<Option<Place>, StoreError> {
        let (Some(name), Ok(meta)) = (object_key(key), Meta::from_bytes(facts)) else { return Ok(None) };
        if meta.vary_names.is_empty() {
            return Ok(Some((name, None)));
        }
        let there = self.list(&name)?;
        let mut list =
            there.clone().unwrap_or_else(|| VariantList { generation: generation(), names: Vec::new() });
        // The latest last: what is tried and kept longest.
        list.names.retain(|names| names != meta.vary_names);
        list.names.push(meta.vary_names.to_vec());
        let place = variant_key(key, list.generation, meta.vary_names, meta.variant);
        Ok(Some((place, (there.as_ref() != Some(&list)).then_some(list))))
    }

    fn list(&self, name: &[u8]) -> Result<Option<VariantList>, StoreError> {
        if !self.store.may_contain(name) {
            return Ok(None);
        }
        let object = match self.store.get(name) {
            Err(StoreError::Damaged { .. }) => None,
            object => object?,
        };
        let head = object.map(|object| StoredHead::read(object.meta()));
        Ok(match head {
            Some(Ok(StoredHead::Variants(list))) => Some(list),
            _ => None,
        })
    }

    fn write_list(&self, key: &CacheKey, list: Option<VariantList>) -> Result<(), StoreError> {
        let (Some(list), Some(name)) = (list, object_key(key)) else { return Ok(()) };
        let meta = encode_list(&list);
        self.store.put_deferred(&name, b"", PutOptions { meta: &meta, ..PutOptions::default() })?;
        Ok(())
    }

    /// Whether this is what is found for its URI: a variant whose list is gone lies there still.
    fn is_there(&self, key: &CacheKey, version: &Version) -> Result<bool, StoreError> {
        if let Some(generation) = version.generation {
            let list = object_key(key).map_or(Ok(None), |name| self.list(&name))?;
            if list.is_none_or(|list| list.generation != generation) {
                return Ok(false);
            }
        }
        match self.store.stat(&version.name) {
            Err(StoreError::Damaged { .. }) => Ok(false),
            stat => Ok(stat?.is_some_and(|stat| stat.sequence == version.sequence)),
        }
    }

    /// What was just stored, before anybody can replace it: this clerk alone writes there.
    fn counts(&self, place: &[u8], meta: &[u8], hand: bool) -> Counts {
        let object = if hand { self.store.get(place).ok().flatten() } else { None };
        // Not what lay there before, should the store have refused the new one.
        Counts { body: object.filter(|object| object.meta() == meta).map(StoredBody::of), stays: true }
    }

    /// For readers alone: an object stays readable when its name is gone.
    fn hand_over(&self, name: &[u8], meta: &[u8]) -> Result<Counts, StoreError> {
        let counts = self.counts(name, meta, true);
        self.store.delete_deferred(name)?;
        Ok(Counts { stays: false, ..counts })
    }

    /// A name that no request finds, for what is not wanted any more but by its readers.
    fn name_of_none(&self) -> Vec<u8> {
        let number = self.shared.next_id.fetch_add(1, Ordering::Relaxed);
        [b"x".as_slice(), &generation().to_le_bytes(), &number.to_le_bytes()].concat()
    }

    fn put(
        &self,
        head: &NewHead,
        body: &[Bytes],
        condition: &If,
        hand: bool,
    ) -> Result<Option<Counts>, StoreError> {
        let counts = match condition {
            If::Still(still) => still(),
            If::There(version) => self.is_there(&head.key, version)?,
        };
        if !counts && !hand {
            return Ok(None);
        }
        let place =
            if counts { self.place(&head.key, &head.facts)? } else { Some((self.name_of_none(), None)) };
        let Some((place, list)) = place else { return Ok(None) };
        if let [] | [_] = body {
            let body: &[u8] = body.first().map_or(b"", |chunk| chunk);
            self.store.put_deferred(&place, body, head.options())?;
        } else {
            let mut writer = self.store.put_stream(&place, head.options())?;
            body.iter().try_for_each(|chunk| writer.write(chunk))?;
            writer.commit_deferred()?;
        }
        if !counts {
            return self.hand_over(&place, &head.meta).map(Some);
        }
        self.write_list(&head.key, list)?;
        Ok(Some(self.counts(&place, &head.meta, hand)))
    }

    fn copy(&self, head: &NewHead, over: &Version) -> Result<Option<Counts>, StoreError> {
        if !self.is_there(&head.key, over)? {
            return Ok(None);
        }
        let Some(object) = self.store.get(&over.name)? else { return Ok(None) };
        let Some((place, list)) = self.place(&head.key, &head.facts)? else { return Ok(None) };
        let mut writer = self.store.put_stream(&place, head.options())?;
        for chunk in object.chunks() {
            writer.write(chunk?.as_slice())?;
        }
        writer.commit_deferred()?;
        self.write_list(&head.key, list)?;
        Ok(Some(Counts { body: None, stays: true }))
    }

    fn remove(&self, key: &CacheKey) -> Result<Option<Counts>, StoreError> {
        let Some(name) = object_key(key) else { return Ok(None) };
        if !self.store.may_contain(&name) {
            return Ok(None);
        }
        Ok(self.store.delete_deferred(&name)?.0.then_some(Counts { body: None, stays: true }))
    }
}

/// A number that no other list has.
fn generation() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::time::SystemTime::now())
}

#[cfg(test)]
mod tests {
    use packstore::{Mode, StoreOptions, VolumeSpec};
    use testkit::SimulatedDisk;

    use super::*;

    fn clerks(behind_bytes_max: u64) -> (Arc<Store>, Clerks) {
        let disk = Arc::new(SimulatedDisk::new("cache"));
        let options = StoreOptions { mode: Mode::Cache, ..StoreOptions::default() };
        let store = Store::create(vec![VolumeSpec { disk, size_bytes: 8 << 20 }], options).expect("a store");
        let store = Arc::new(store);
        let clerks = Clerks::start(&store, 1, behind_bytes_max).expect("a thread");
        (store, clerks)
    }

    fn head(meta: Vec<u8>, facts: Vec<u8>) -> NewHead {
        let key = CacheKey::of(&"http://a/".parse().expect("a URI")).expect("a key");
        NewHead { key, meta, facts, expires_s: 0 }
    }

    fn always() -> Still {
        Box::new(|| true)
    }

    #[test]
    fn heads_and_keys_of_what_waits_are_bounded_too() {
        let (_store, clerks) = clerks(4000);
        let long = || head(vec![0; 5000], Vec::new());
        assert!(
            clerks.put(long(), vec![Bytes::new(); 2], If::Still(always()), false).is_none(),
            "no body, but a head"
        );
        assert!(clerks.begin(long()).is_none());
        let writing = clerks.begin(head(vec![0; 100], Vec::new())).expect("that fits");
        assert!(!writing.write(Bytes::from(vec![0; 4000])));
        drop(writing);
        clerks.stop();
        assert_eq!(clerks.behind_bytes(), 0);
    }

    #[test]
    fn nothing_is_put_at_once_before_what_waits_at_its_desk() {
        let (_store, clerks) = clerks(1 << 20);
        let head = || head(Vec::new(), Vec::new());
        let at_once = || clerks.put_at_once(&head(), None, &always()).is_some();
        let desk = Arc::clone(clerks.desk(&head().key));
        assert!(at_once());
        let turn = desk.turn();
        assert!(!at_once(), "a change is being made");
        let removed = clerks.remove(&head().key);
        drop(turn);
        let _ = removed.blocking_recv();
        let begun = std::time::Instant::now();
        while !at_once() {
            assert!(begun.elapsed().as_secs() < 20, "what is done does not wait any more");
        }
        desk.waiting.fetch_add(1, Ordering::SeqCst);
        assert!(!at_once(), "another waits");
        clerks.stop();
    }

    #[test]
    fn what_is_not_wanted_any_more_when_its_turn_comes_does_not_count() {
        use crate::rules::facts::{Extent, StoredFacts};
        use crate::rules::{Exchange, Policy, RequestFacts, WallSeconds, judge};
        let (store, clerks) = clerks(1 << 20);
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
        let facts = StoredFacts { extent: Extent::whole(5), ..judged.expect("may be stored") };
        let facts = crate::rules::facts::meta_bytes(facts, &HeaderMap::new(), &HeaderMap::new());
        let meta = super::super::encode_reply(&facts, &HeaderMap::new()).expect("short");
        let head = || head(meta.clone(), facts.clone());
        let body = || vec![Bytes::from_static(b"hello")];
        let name = object_key(&head().key).expect("short");
        for (wanted, hand) in [(false, false), (false, true), (true, true)] {
            let still = || -> Still { Box::new(move || wanted) };
            let told = |counts: Stored| {
                let counts = counts.blocking_recv().expect("told");
                counts.map(|counts| (counts.body.expect("handed").bytes(), counts.stays))
            };
            let put = clerks.put(head(), body(), If::Still(still()), hand).expect("room");
            assert_eq!(told(put), hand.then_some((5, wanted)), "{wanted} {hand}");
            let writing = clerks.begin(head()).expect("room");
            assert!(writing.write(Bytes::from_static(b"longer")));
            assert_eq!(told(writing.commit(still(), hand)), hand.then_some((6, wanted)), "{wanted} {hand}");
            assert_eq!(store.get(&name).expect("readable").is_some(), wanted, "{wanted} {hand}");
        }
        // What its readers alone get takes nothing away from those who find the one that is there.
        let there = store.stat(&name).expect("readable").expect("stored").sequence;
        let never: Still = Box::new(|| false);
        let put = clerks.put(head(), body(), If::Still(never), true).expect("room");
        assert!(!put.blocking_recv().expect("told").expect("handed").stays);
        assert_eq!(store.stat(&name).expect("readable").map(|stat| stat.sequence), Some(there));
        clerks.stop();
    }
}
