//! Stored replies: how the packed store keeps them, and how they are found, written and removed.
//!
//! ```text
//! "o" uri ────────────────> reply                         no Vary
//! "o" uri ────────────────> list of variants: generation, sets of field names
//!    "v" generation hash uri ──> reply                    hash of the field names and of the request's values in them
//! "r", "w"                  the same for the sites of the reverse side: the forward side never answers from them
//!
//! attributes of an object = stored head (`head.rs`)      body of the object = body of the reply, as received
//! ```
//!
//! Always holds: a look-up costs one read for a reply without Vary and two with it. A rewritten list gets another generation,
//! so that variants of the old one are never found again. Changes to one URI are applied in the order in which they were
//! requested.
//! Not here: whether a stored reply may be used (`http_cache_rules`), bans (`server::bans`).

mod head;
mod lookup;
mod stored_body;
mod writers;

pub use head::{HeadError, StoredHead, VariantList, encode_list, encode_reply};
pub use lookup::{LookupResult, LookupStep, StoredReply, Version};
pub use stored_body::{LongBody, StoredBody};
pub use writers::{Applied, NewHead, Precondition, StillWanted, StoreWriters, StreamingPut, WriteReceipt};

use std::sync::Arc;

use http_cache_rules::key::{CacheKey, Realm};
use packstore::Store;

use crate::error::WebcacheError;

/// The packed store as the proxy uses it. All loops share it.
pub struct ObjectCache {
    store: Arc<Store>,
    writers: StoreWriters,
}

impl ObjectCache {
    /// Wraps an open store and starts its `writers` threads. `behind_bytes_max` bounds the bytes that wait to be written.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn new(store: Arc<Store>, writers: usize, behind_bytes_max: u64) -> Result<Self, WebcacheError> {
        let writers = StoreWriters::start(&store, writers, behind_bytes_max)?;
        Ok(Self { store, writers })
    }

    /// The threads that change the store.
    pub fn writers(&self) -> &StoreWriters {
        &self.writers
    }

    /// The packed store itself, for its figures.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Stops the store writers and returns the store.
    pub fn close(self) -> Arc<Store> {
        self.writers.stop();
        self.store
    }
}

/// The key of a URI's reply or of its list of variants. `None` when the URI is too long for a key: it is not stored then.
fn object_key(key: &CacheKey) -> Option<Vec<u8>> {
    let uri = key.as_str().as_bytes();
    // Leave room for the generation and the hash in the key of a variant.
    let first = match key.realm() {
        Realm::Web => b"o",
        Realm::Sites => b"r",
    };
    (uri.len() + 32 <= packstore::KEY_BYTES_MAX).then(|| [first, uri].concat())
}

/// The key of one variant.
fn variant_key(key: &CacheKey, generation: u64, names: &[u8], variant: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(names.len() + variant.len() + 4);
    text.extend_from_slice(&(names.len() as u32).to_le_bytes());
    text.extend_from_slice(names);
    text.extend_from_slice(variant);
    let hash = xxhash_rust::xxh3::xxh3_128(&text);
    let mut variant = Vec::with_capacity(25 + key.as_str().len());
    variant.push(match key.realm() {
        Realm::Web => b'v',
        Realm::Sites => b'w',
    });
    variant.extend_from_slice(&generation.to_le_bytes());
    variant.extend_from_slice(&hash.to_le_bytes());
    variant.extend_from_slice(key.as_str().as_bytes());
    variant
}
