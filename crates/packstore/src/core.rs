//! What all parts of a store share, and how a change gets from a caller to what counts.
//!
//! ```text
//! caller --stage--> Group --> writer: bodies, control blocks, [sync] --> settle: table, counts --> caller told
//!                     cache mode: settled when staged, read from the group until written
//! ```
//!
//! Locks, in order: keys (by hash), a volume's turn, links, a volume's staging, files. None is held across disk access but the
//! keys' and the turn.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use crate::cache_policy::{CachePolicy, evicts};
use crate::error::StoreError;
use crate::format::{Manifest, body_salt};
use crate::index::Index;
use crate::lanes::Lane;
use crate::locks::locked;
use crate::options::{CacheOptions, Mode, Shape, Verify};
use crate::segments::Segments;
use crate::signatures::Signatures;
use crate::write_queue::WriteQueue;
use crate::write_queue::group::Held;

pub(crate) struct Core {
    pub store: u128,
    pub hash_seed: u64,
    pub mode: Mode,
    pub read_only: bool,
    pub shape: Shape,
    pub verify: Verify,
    pub direct_writes: bool,
    pub segments: Arc<Segments>,
    pub index: Index,
    pub policy: CachePolicy,
    pub queue: WriteQueue,
    /// Names of each shared object.
    pub links: Mutex<HashMap<u64, u32>>,
    /// Large objects that somebody reads.
    pub open: Mutex<HashMap<u64, Opened>>,
    pub damaged_reads: AtomicU64,
    pub disk_reads: AtomicU64,
    pub reads: AtomicU64,
    pub openings: AtomicU64,
    ready: (Mutex<Option<Result<(), StoreError>>>, Condvar),
    is_ready: AtomicBool,
}

/// A large object that is being read.
#[derive(Default)]
pub(crate) struct Opened {
    pub readers: u32,
    /// Its pieces go when the last reader does.
    pub gone: Option<Manifest>,
}

/// Seconds since 1970.
pub(crate) fn now_s() -> u32 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| u32::try_from(since.as_secs()).unwrap_or(u32::MAX))
}

pub(crate) struct CoreParts {
    pub store: u128,
    pub hash_seed: u64,
    pub mode: Mode,
    pub read_only: bool,
    pub shape: Shape,
    pub cache: CacheOptions,
    pub verify: Verify,
    pub direct_writes: Option<bool>,
    pub memory_bytes_max: u64,
    pub segments: Arc<Segments>,
    pub table: Signatures,
    pub objects_expected: u64,
    pub openings: u64,
}

impl Core {
    pub(crate) fn new(parts: CoreParts) -> Self {
        let evicts = evicts(parts.mode, parts.read_only);
        Self {
            store: parts.store,
            hash_seed: parts.hash_seed,
            mode: parts.mode,
            read_only: parts.read_only,
            shape: parts.shape,
            verify: parts.verify,
            direct_writes: parts.direct_writes.unwrap_or(parts.mode == Mode::Cache),
            segments: parts.segments.clone(),
            index: Index::new(if evicts { parts.table.counting() } else { parts.table }, parts.shape),
            policy: CachePolicy::new(evicts, &parts.cache, parts.memory_bytes_max, parts.objects_expected),
            queue: WriteQueue::new(parts.mode, parts.read_only, parts.shape, &parts.cache, parts.segments),
            links: Mutex::default(),
            open: Mutex::default(),
            damaged_reads: AtomicU64::new(0),
            disk_reads: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            openings: AtomicU64::new(parts.openings),
            ready: Default::default(),
            is_ready: AtomicBool::new(false),
        }
    }

    pub(crate) fn set_ready(&self, result: Result<(), StoreError>) {
        if result.is_ok() {
            self.is_ready.store(true, Ordering::Release);
        }
        *locked(&self.ready.0) = Some(result);
        self.ready.1.notify_all();
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.is_ready.load(Ordering::Acquire)
    }

    /// Waits until all that is on disk is known.
    pub(crate) fn wait_ready(&self) -> Result<(), StoreError> {
        if self.is_ready() {
            return Ok(());
        }
        let mut ready = locked(&self.ready.0);
        loop {
            if let Some(result) = &*ready {
                return result.clone();
            }
            ready = self.ready.1.wait(ready).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// As [`Core::wait_ready`], but no longer than this; whether it is.
    pub(crate) fn wait_ready_for(&self, longest: Duration) -> bool {
        let ready = locked(&self.ready.0);
        let waited = self.ready.1.wait_timeout_while(ready, longest, |ready| ready.is_none());
        drop(waited);
        self.is_ready()
    }

    pub(crate) fn body_salt(&self, file: u32) -> u32 {
        body_salt(self.store, file)
    }

    /// Where an object goes that replaces another, or none.
    pub(crate) fn lane_for(&self, hash: u64, old: Option<&Held>) -> Lane {
        if self.mode == Mode::Store {
            return Lane::Newcomers;
        }
        match old.and_then(|old| self.segments.file_at(old.place)) {
            Some(file) => Lane::of(file.lane.load(Ordering::Relaxed)),
            None => self.policy.lane_of_new(hash),
        }
    }
}
