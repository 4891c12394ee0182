//! Stored replies: how they lie in the packed store, and how they are found, put there and taken out.
//!
//! ```text
//! "o" uri ────────────────> reply                         no Vary
//! "o" uri ────────────────> list of variants: generation, sets of field names
//!    "v" generation hash uri ──> reply                    hash of names and of what the request said in them
//! "r", "w"                  the same of sites that are served here: nobody who asks the web is answered from there
//!
//! attributes of an object = stored head (`head.rs`)      body of the object = body of the reply, as it came
//! ```
//!
//! Always holds: one read for a reply without Vary, two with it; a list that is written anew has another generation, so
//! that no variant of before it is found again; changes of one URI happen in the order they were asked for.
//! Not here: whether a reply may be used (`rules`), bans (`admin`).

mod head;
mod lookup;
mod writers;

pub use head::{HeadError, StoredHead, VariantList, encode_list, encode_reply};
pub use lookup::{Look, Looked, StoredBody, StoredReply, Version};
pub use writers::{Counts, If, NewHead, Still, StoreWriters, Stored, Writing};

use std::sync::Arc;

use http_cache_rules::key::{CacheKey, Realm};
use packstore::Store;

/// The store as the proxy uses it. Shared by all loops.
pub struct ObjectCache {
    store: Arc<Store>,
    writers: StoreWriters,
}

impl ObjectCache {
    /// On an open store. `behind_bytes_max` bounds what waits to be written.
    ///
    /// # Errors
    /// When no threads can be started.
    pub fn new(store: Arc<Store>, writers: usize, behind_bytes_max: u64) -> std::io::Result<Self> {
        let writers = StoreWriters::start(&store, writers, behind_bytes_max)?;
        Ok(Self { store, writers })
    }

    /// Those who change it.
    pub fn writers(&self) -> &StoreWriters {
        &self.writers
    }

    /// Figures.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Ends the store writers and gives the store back.
    pub fn close(self) -> Arc<Store> {
        self.writers.stop();
        self.store
    }
}

/// Of a URI's reply, or of its list of variants. Nothing when the URI is longer than a key may be: not stored then.
fn object_key(key: &CacheKey) -> Option<Vec<u8>> {
    let uri = key.as_str().as_bytes();
    // Room for the generation and hash of a variant's key.
    let first = match key.realm() {
        Realm::Web => b"o",
        Realm::Sites => b"r",
    };
    (uri.len() + 32 <= packstore::KEY_BYTES_MAX).then(|| [first, uri].concat())
}

/// Of one variant.
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
