//! What store writers are asked to do, and what they tell when it is done.
//!
//! Always holds: what a job takes of what may wait depends on the job alone, so that as much is given back as was taken.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use http_cache_rules::key::CacheKey;
use packstore::PutOptions;
use tokio::sync::oneshot;

use crate::object_cache::{StoredBody, StoredHead, Version, head};

/// Told when a change counts, if it does.
pub type Stored = oneshot::Receiver<Option<Counts>>;
pub(super) type Done = oneshot::Sender<Option<Counts>>;

/// A change counts.
pub struct Counts {
    /// What was stored, if it was asked for: this version, whatever replaces it.
    pub body: Option<StoredBody>,
    /// Whether it lies there from now on. Else it was not wanted any more, but for its readers.
    pub stays: bool,
}

/// Called right before a reply counts: whether it is wanted still, but for readers who have begun with it. What a later
/// removal of its URI has said already is then known for sure, as the removal waits at the same write queue.
pub type Still = Box<dyn Fn() -> bool + Send>;

/// On which condition a reply counts.
pub enum If {
    /// It is wanted still.
    Still(Still),
    /// What it replaces lies there still.
    There(Version),
}

/// A reply's head on its way to the store.
#[derive(Debug)]
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

impl NewHead {
    /// Its fields.
    pub fn fields(&self) -> Option<HeaderMap> {
        match StoredHead::read(&self.meta).ok()? {
            StoredHead::Reply { fields, .. } => {
                head::fields(&Bytes::copy_from_slice(&self.meta[fields])).ok()
            }
            StoredHead::Variants(_) => None,
        }
    }

    pub(super) fn options(&self) -> PutOptions<'_> {
        PutOptions { meta: &self.meta, expires_s: self.expires_s, created_s: None }
    }

    fn bytes(&self) -> u64 {
        (self.key.as_str().len() + self.meta.len() + self.facts.len()) as u64
    }
}

/// What is given at a write queue.
pub(super) enum Job {
    Put { head: Arc<NewHead>, body: Vec<Bytes>, condition: If, hand: bool, done: Done },
    Begin { id: u64, head: Arc<NewHead> },
    More { id: u64, chunk: Bytes },
    End { id: u64, commit: Option<Still>, hand: bool, done: Done },
    Copy { head: Arc<NewHead>, over: Version, done: Done },
    Remove { key: CacheKey, done: Done },
    Forget { name: Vec<u8> },
    Stop,
}

impl Job {
    /// What it takes of what may wait, heads and keys counted. Nothing, if it must be done however much waits.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Put { head, body, .. } => {
                JOB_BYTES + head.bytes() + body.iter().map(|chunk| chunk.len() as u64).sum::<u64>()
            }
            Self::Begin { head, .. } | Self::Copy { head, .. } => JOB_BYTES + head.bytes(),
            Self::More { chunk, .. } => JOB_BYTES + chunk.len() as u64,
            Self::End { .. } | Self::Remove { .. } | Self::Forget { .. } | Self::Stop => 0,
        }
    }
}

/// What a job takes beside its bytes, about.
const JOB_BYTES: u64 = 256;
