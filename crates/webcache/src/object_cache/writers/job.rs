//! The jobs of the store writers, and their receipts.
//!
//! Always holds: the size of a job depends on the job alone, so that exactly what was reserved is released.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use http_cache_rules::key::CacheKey;
use packstore::PutOptions;
use tokio::sync::oneshot;

use crate::object_cache::{StoredBody, StoredHead, Version, head};

/// Receives the result of a change: `None` when nothing was changed.
pub type WriteReceipt = oneshot::Receiver<Option<Applied>>;
pub(super) type ReceiptSender = oneshot::Sender<Option<Applied>>;

/// The result of a change that was applied.
pub struct Applied {
    /// The stored body, if the job asked for it: this very version, whatever replaces it later.
    pub body: Option<StoredBody>,
    /// Whether later requests find it. False for a reply that was no longer wanted, and was stored for its current readers only.
    pub findable: bool,
}

/// Called right before a reply becomes findable: whether it is still wanted. A purge of the URI is a job of the same write queue,
/// so a purge that ran before this job is always seen here.
pub type StillWanted = Box<dyn Fn() -> bool + Send>;

/// The condition under which a reply is stored.
pub enum Precondition {
    /// The reply was not purged, banned or invalidated in the meantime.
    StillWanted(StillWanted),
    /// The stored version that it updates is still the current one.
    Unreplaced(Version),
}

/// The head of a reply on its way to the store.
#[derive(Debug)]
pub struct NewHead {
    /// The key of the URI.
    pub key: CacheKey,
    /// The encoded stored head (`head.rs`).
    pub meta: Vec<u8>,
    /// The facts inside `meta`, with Vary.
    pub facts: Vec<u8>,
    /// Expiry time for listings, in seconds since 1970.
    pub expires_s: u32,
}

impl NewHead {
    /// Decodes the header fields.
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

/// A change that is queued for a store writer.
pub(super) enum Job {
    Put {
        head: Arc<NewHead>,
        body: Vec<Bytes>,
        condition: Precondition,
        return_body: bool,
        done: ReceiptSender,
    },
    Begin {
        id: u64,
        head: Arc<NewHead>,
    },
    Append {
        id: u64,
        chunk: Bytes,
    },
    End {
        id: u64,
        commit: Option<StillWanted>,
        return_body: bool,
        done: ReceiptSender,
    },
    ReplaceHead {
        head: Arc<NewHead>,
        over: Version,
        done: ReceiptSender,
    },
    Remove {
        key: CacheKey,
        done: ReceiptSender,
    },
    RemoveUnreadable {
        name: Vec<u8>,
        /// Only this version; `None`: whichever is stored.
        sequence: Option<u64>,
        done: Option<ReceiptSender>,
    },
    Stop,
}

impl Job {
    /// The bytes that the job reserves in the backlog, head and key included; 0 for jobs that must never be refused.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Put { head, body, .. } => {
                JOB_BYTES + head.bytes() + body.iter().map(|chunk| chunk.len() as u64).sum::<u64>()
            }
            Self::Begin { head, .. } | Self::ReplaceHead { head, .. } => JOB_BYTES + head.bytes(),
            Self::Append { chunk, .. } => JOB_BYTES + chunk.len() as u64,
            Self::End { .. } | Self::Remove { .. } | Self::RemoveUnreadable { .. } | Self::Stop => 0,
        }
    }
}

/// Approximate size of a job without its buffers.
const JOB_BYTES: u64 = 256;
