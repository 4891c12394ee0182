//! Threads that change the store, so that no event loop waits for a disk that writes.
//!
//! ```text
//! loops ── jobs, by the hash of the URI ──> clerk 0 ── put, put_stream, delete ──> packstore
//!                                      └──> clerk 1      └─ told by a oneshot when it counts
//! ```
//!
//! Always holds: jobs of one URI are done by one clerk in the order they were given; bytes of bodies that wait are bounded:
//! above it nothing is taken, and the reply is passed on without being stored; a clerk gives up on a body that no more
//! comes of when its sender is gone.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use bytes::Bytes;
use packstore::{ObjectWriter, PutOptions, Store, StoreError};
use tokio::sync::oneshot;
use xxhash_rust::xxh3::xxh3_64;

use super::{StoredHead, VariantList, encode_list, object_key, variant_key};
use crate::rules::Meta;
use crate::rules::key::CacheKey;

/// Told when a change counts: the name of the object, if it was made.
pub type Stored = oneshot::Receiver<Option<Vec<u8>>>;
type Done = oneshot::Sender<Option<Vec<u8>>>;

enum Job {
    Put { key: CacheKey, meta: Vec<u8>, facts: Vec<u8>, body: Vec<Bytes>, expires_s: u32, done: Done },
    Begin { id: u64, key: CacheKey, meta: Vec<u8>, facts: Vec<u8>, expires_s: u32 },
    More { id: u64, chunk: Bytes },
    End { id: u64, commit: bool, done: Done },
    Copy { key: CacheKey, meta: Vec<u8>, facts: Vec<u8>, expires_s: u32, done: Done },
    Remove { key: CacheKey, done: Done },
    Forget { name: Vec<u8> },
    Stop,
}

struct Shared {
    behind_bytes: AtomicU64,
    behind_bytes_max: u64,
    failed: AtomicU64,
    next_id: AtomicU64,
}

/// The threads.
pub struct Clerks {
    shared: Arc<Shared>,
    desks: Vec<Sender<Job>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// A body on its way. Dropped before its end nothing of it stays.
pub struct Writing {
    id: u64,
    desk: Sender<Job>,
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
        });
        let (mut desks, mut threads) = (Vec::new(), Vec::new());
        for number in 0..count.max(1) {
            let (desk, jobs) = channel();
            let (store, shared) = (Arc::clone(store), Arc::clone(&shared));
            let work = move || Clerk { store: &store, shared: &shared, bodies: HashMap::new() }.work(&jobs);
            threads.push(std::thread::Builder::new().name(format!("clerk-{number}")).spawn(work)?);
            desks.push(desk);
        }
        Ok(Self { shared, desks, threads: Mutex::new(threads) })
    }

    fn desk(&self, name: &[u8]) -> &Sender<Job> {
        &self.desks[xxh3_64(name) as usize % self.desks.len()]
    }

    fn give(&self, key: &CacheKey, job: Job) {
        // A clerk that is gone has dropped what would tell of it, and that is told as not stored.
        let _ = self.desk(key.as_str().as_bytes()).send(job);
    }

    /// Bytes of bodies that wait to be written.
    pub fn behind_bytes(&self) -> u64 {
        self.shared.behind_bytes.load(Ordering::Relaxed)
    }

    /// Changes that the store refused.
    pub fn failed(&self) -> u64 {
        self.shared.failed.load(Ordering::Relaxed)
    }

    /// Stores a whole reply. `meta` is the stored head, `facts` the part of it that says by what it varies.
    /// Nothing when too much waits already.
    pub fn put(
        &self,
        key: &CacheKey,
        meta: Vec<u8>,
        facts: Vec<u8>,
        body: Vec<Bytes>,
        expires_s: u32,
    ) -> Option<Stored> {
        let bytes: u64 = body.iter().map(|chunk| chunk.len() as u64).sum();
        self.shared.take(bytes).then(|| {
            let (done, stored) = oneshot::channel();
            self.give(key, Job::Put { key: key.clone(), meta, facts, body, expires_s, done });
            stored
        })
    }

    /// Begins a reply whose body comes in parts.
    pub fn begin(&self, key: &CacheKey, meta: Vec<u8>, facts: Vec<u8>, expires_s: u32) -> Writing {
        let id = self.shared.next_id.fetch_add(1, Ordering::Relaxed);
        self.give(key, Job::Begin { id, key: key.clone(), meta, facts, expires_s });
        let desk = self.desk(key.as_str().as_bytes()).clone();
        Writing { id, desk, shared: Arc::clone(&self.shared), ended: false }
    }

    /// Gives what is stored another head: its body is copied.
    pub fn update(&self, key: &CacheKey, meta: Vec<u8>, facts: Vec<u8>, expires_s: u32) -> Stored {
        let (done, stored) = oneshot::channel();
        self.give(key, Job::Copy { key: key.clone(), meta, facts, expires_s, done });
        stored
    }

    /// Takes out all that is stored for a URI.
    pub fn remove(&self, key: &CacheKey) -> Stored {
        let (done, removed) = oneshot::channel();
        self.give(key, Job::Remove { key: key.clone(), done });
        removed
    }

    /// Takes out an object that cannot be read.
    pub(super) fn forget(&self, name: &[u8]) {
        let _ = self.desk(name).send(Job::Forget { name: name.to_vec() });
    }

    pub(super) fn stop(&self) {
        for desk in &self.desks {
            let _ = desk.send(Job::Stop);
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

    fn give_back(&self, bytes: usize) {
        self.behind_bytes.fetch_sub(bytes as u64, Ordering::Relaxed);
    }
}

impl Writing {
    /// Appends to the body; false when too much waits: then nothing will be stored.
    pub fn write(&self, chunk: Bytes) -> bool {
        self.shared.take(chunk.len() as u64) && self.desk.send(Job::More { id: self.id, chunk }).is_ok()
    }

    /// The body is whole: from now on it is found.
    pub fn commit(mut self) -> Stored {
        self.ended = true;
        let (done, stored) = oneshot::channel();
        let _ = self.desk.send(Job::End { id: self.id, commit: true, done });
        stored
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        if !self.ended {
            let (done, _) = oneshot::channel();
            let _ = self.desk.send(Job::End { id: self.id, commit: false, done });
        }
    }
}

/// A body that is being written, and what its list of variants must say then.
struct Begun<'a> {
    writer: Option<ObjectWriter<'a>>,
    key: CacheKey,
    place: Vec<u8>,
    list: Option<VariantList>,
}

/// The name of an object, and what list must lie at its URI if another is there.
type Place = (Vec<u8>, Option<VariantList>);

struct Clerk<'a> {
    store: &'a Store,
    shared: &'a Shared,
    bodies: HashMap<u64, Begun<'a>>,
}

impl Clerk<'_> {
    fn work(mut self, jobs: &Receiver<Job>) {
        while let Ok(job) = jobs.recv() {
            let (done, result) = match job {
                Job::Put { key, meta, facts, body, expires_s, done } => {
                    let bytes = body.iter().map(Bytes::len).sum();
                    let result = self.put(&key, &meta, &facts, &body, expires_s);
                    self.shared.give_back(bytes);
                    (Some(done), result)
                }
                Job::Begin { id, key, meta, facts, expires_s } => {
                    (None, self.begin(id, key, &meta, &facts, expires_s))
                }
                Job::More { id, chunk } => {
                    let result = self.more(id, &chunk);
                    self.shared.give_back(chunk.len());
                    (None, result)
                }
                Job::End { id, commit, done } => (Some(done), self.end(id, commit)),
                Job::Copy { key, meta, facts, expires_s, done } => {
                    (Some(done), self.copy(&key, &meta, &facts, expires_s))
                }
                Job::Remove { key, done } => (Some(done), self.remove(&key)),
                Job::Forget { name } => (None, self.store.delete_deferred(&name).map(|_| None)),
                Job::Stop => return,
            };
            let stored = result.unwrap_or_else(|error| {
                self.shared.failed.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(%error, "a reply could not be stored");
                None
            });
            if let Some(done) = done {
                let _ = done.send(stored);
            }
        }
    }

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

    fn put(
        &self,
        key: &CacheKey,
        meta: &[u8],
        facts: &[u8],
        body: &[Bytes],
        expires_s: u32,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let Some((place, list)) = self.place(key, facts)? else { return Ok(None) };
        let options = PutOptions { meta, expires_s, created_s: None };
        if let [] | [_] = body {
            let body: &[u8] = body.first().map_or(b"", |chunk| chunk);
            self.store.put_deferred(&place, body, options)?;
        } else {
            let mut writer = self.store.put_stream(&place, options)?;
            body.iter().try_for_each(|chunk| writer.write(chunk))?;
            writer.commit_deferred()?;
        }
        self.write_list(key, list)?;
        Ok(Some(place))
    }

    fn begin(
        &mut self,
        id: u64,
        key: CacheKey,
        meta: &[u8],
        facts: &[u8],
        expires_s: u32,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let Some((place, list)) = self.place(&key, facts)? else { return Ok(None) };
        let writer = self.store.put_stream(&place, PutOptions { meta, expires_s, created_s: None })?;
        self.bodies.insert(id, Begun { writer: Some(writer), key, place, list });
        Ok(None)
    }

    fn more(&mut self, id: u64, chunk: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(Begun { writer, .. }) = self.bodies.get_mut(&id) else { return Ok(None) };
        let Some(open) = writer else { return Ok(None) };
        let written = open.write(chunk);
        if written.is_err() {
            *writer = None;
        }
        written.map(|()| None)
    }

    fn end(&mut self, id: u64, commit: bool) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(Begun { writer: Some(writer), key, place, list }) = self.bodies.remove(&id) else {
            return Ok(None);
        };
        if !commit {
            return Ok(None);
        }
        writer.commit_deferred()?;
        self.write_list(&key, list)?;
        Ok(Some(place))
    }

    fn copy(
        &self,
        key: &CacheKey,
        meta: &[u8],
        facts: &[u8],
        expires_s: u32,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        let Some((place, list)) = self.place(key, facts)? else { return Ok(None) };
        let Some(object) = self.store.get(&place)? else { return Ok(None) };
        let mut writer = self.store.put_stream(&place, PutOptions { meta, expires_s, created_s: None })?;
        for chunk in object.chunks() {
            writer.write(chunk?.as_slice())?;
        }
        writer.commit_deferred()?;
        self.write_list(key, list)?;
        Ok(Some(place))
    }

    fn remove(&self, key: &CacheKey) -> Result<Option<Vec<u8>>, StoreError> {
        let Some(name) = object_key(key) else { return Ok(None) };
        if !self.store.may_contain(&name) {
            return Ok(None);
        }
        Ok(self.store.delete_deferred(&name)?.0.then_some(name))
    }
}

/// A number that no other list has.
fn generation() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::time::SystemTime::now())
}
