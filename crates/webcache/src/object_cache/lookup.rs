//! Finds the stored reply for a request.
//!
//! ```text
//! begin_look_up ─> Read(pending) ─ the caller reads from disk ─> continue_look_up ─> Read(pending), ... ─> Done(result)
//! ```
//!
//! Always holds: an unreadable object is deleted and counts as missing. One look-up reads at most
//! [`super::head::NAME_SETS_MAX`] variants.

use bytes::Bytes;
use http::HeaderMap;
use http_cache_rules::key::CacheKey;
use http_cache_rules::{Meta, vary};
use packstore::{Begun, Object, Reading, StoreError};

use super::{ObjectCache, StoredBody, StoredHead, VariantList, head, object_key, variant_key};

/// What the store has for a request.
pub enum LookupResult {
    /// Nothing is stored for the URI.
    Nothing,
    /// Replies are stored, but for other request fields.
    OtherVariants,
    /// This reply.
    Reply(Box<StoredReply>),
}

/// Identifies one of the objects that were stored at a key one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    pub(super) name: Vec<u8>,
    pub(super) sequence: u64,
    /// Generation of the list of variants that led here; `None` without Vary.
    pub(super) generation: Option<u64>,
}

impl Version {
    /// The store's number of the change that stored it: higher than that of all that was stored before.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }
}

/// The facts of a stored reply, in the bytes that the store returned.
#[derive(Clone)]
pub struct ReplyFacts {
    record: Bytes,
    place: std::ops::Range<usize>,
    body_bytes: u64,
}

impl ReplyFacts {
    /// The facts that the caching rules use.
    pub fn meta(&self) -> Meta<'_> {
        head::facts(&self.record[self.place.clone()], self.body_bytes).expect("read once before")
    }
}

/// A stored reply.
pub struct StoredReply {
    facts: ReplyFacts,
    fields: std::ops::Range<usize>,
    version: Version,
    /// The body.
    pub body: StoredBody,
}

impl StoredReply {
    /// Splits the reply into facts and body.
    pub fn into_parts(self) -> (ReplyFacts, StoredBody) {
        (self.facts, self.body)
    }

    /// The facts that the caching rules use.
    pub fn meta(&self) -> Meta<'_> {
        self.facts.meta()
    }

    /// The header fields.
    ///
    /// # Errors
    /// When the stored bytes are not valid fields.
    pub fn fields(&self) -> Result<HeaderMap, head::HeadError> {
        head::fields(&self.facts.record.slice(self.fields.clone()))
    }

    /// Which version of the object this is.
    pub fn version(&self) -> &Version {
        &self.version
    }
}

/// The state of a look-up after a step.
#[expect(clippy::large_enum_variant, reason = "of one at a time, never kept")]
pub enum LookupStep {
    /// The look-up has ended.
    Done(LookupResult),
    /// Data from the disk may be needed; see [`LookupInProgress::pending_read`].
    Read(LookupInProgress),
}

/// A look-up in progress: first at the key of the URI, then at the variants that are listed there.
pub struct LookupInProgress {
    name: Vec<u8>,
    begun: Result<Begun, StoreError>,
    search: Option<VariantSearch>,
}

impl LookupInProgress {
    /// The read that the next step needs; `None` when memory suffices.
    pub fn pending_read(&self) -> Option<&Reading> {
        match &self.begun {
            Ok(Begun::Read(reading)) => Some(reading),
            _ => None,
        }
    }
}

/// The search through a URI's variants, one after the other.
struct VariantSearch {
    list: VariantList,
    examined: usize,
    /// The request's values of the fields that the variant under examination varies by.
    variant: Vec<u8>,
    best: Option<Box<StoredReply>>,
}

impl VariantSearch {
    /// Takes a reply if it matches this request and is later than the best so far.
    fn consider(&mut self, reply: Box<StoredReply>) {
        let order = |reply: &StoredReply| {
            let facts = reply.meta().facts;
            (facts.made_at, facts.stored_at)
        };
        let names = &self.list.names[self.examined - 1];
        // The key holds only a hash, which two variants could share: compare the values.
        let same = (reply.meta().vary_names, reply.meta().variant) == (names, &self.variant);
        if same && self.best.as_ref().is_none_or(|best| order(best) < order(&reply)) {
            self.best = Some(reply);
        }
    }
}

impl ObjectCache {
    /// Finds the reply to use for a request. Blocks while the disk is read.
    pub fn look_up(&self, key: &CacheKey, request: &HeaderMap) -> LookupResult {
        let mut looked = self.begin_look_up(key);
        loop {
            match looked {
                LookupStep::Done(look) => return look,
                LookupStep::Read(pending) => looked = self.continue_look_up(pending, None, key, request),
            }
        }
    }

    /// Begins a look-up in steps, for callers that read from the disk without blocking.
    pub fn begin_look_up(&self, key: &CacheKey) -> LookupStep {
        object_key(key).map_or(LookupStep::Done(LookupResult::Nothing), |name| self.begin_read(name, None))
    }

    /// Takes the next step. `read` holds the bytes of [`LookupInProgress::pending_read`]; without them this call blocks and reads.
    pub fn continue_look_up(
        &self,
        pending: LookupInProgress,
        read: Option<Vec<u8>>,
        key: &CacheKey,
        request: &HeaderMap,
    ) -> LookupStep {
        let LookupInProgress { name, begun, search } = pending;
        let object = begun.and_then(|begun| match begun {
            Begun::Done(object) => Ok(object),
            Begun::Read(reading) => self.store.end_get(&name, reading, read),
        });
        let generation = search.as_ref().map(|search| search.list.generation);
        match (self.decode(key, name, generation, object), search) {
            (found, Some(mut search)) => {
                if let Some(Decoded::Reply(reply)) = found {
                    search.consider(reply);
                }
                self.next_variant(search, key, request)
            }
            (None, None) => LookupStep::Done(LookupResult::Nothing),
            (Some(Decoded::Reply(reply)), None) => LookupStep::Done(match reply.meta().vary_names {
                b"" => LookupResult::Reply(reply),
                // A reply with Vary is never stored at the key of the URI itself.
                _ => LookupResult::Nothing,
            }),
            (Some(Decoded::Variants(list)), None) => {
                let search = VariantSearch { list, examined: 0, variant: Vec::new(), best: None };
                self.next_variant(search, key, request)
            }
        }
    }

    fn next_variant(&self, mut search: VariantSearch, key: &CacheKey, request: &HeaderMap) -> LookupStep {
        let Some(names) = search.list.names.get(search.examined) else {
            return LookupStep::Done(search.best.map_or(LookupResult::OtherVariants, LookupResult::Reply));
        };
        search.variant.clear();
        vary::write_variant(names, request, &mut search.variant);
        let name = variant_key(key, search.list.generation, names, &search.variant);
        search.examined += 1;
        self.begin_read(name, Some(search))
    }

    fn begin_read(&self, name: Vec<u8>, search: Option<VariantSearch>) -> LookupStep {
        let begun = self.store.begin_get(&name);
        LookupStep::Read(LookupInProgress { name, begun, search })
    }

    fn decode(
        &self,
        key: &CacheKey,
        name: Vec<u8>,
        generation: Option<u64>,
        object: Result<Option<Object>, StoreError>,
    ) -> Option<Decoded> {
        let object = match object {
            Ok(object) => object?,
            Err(error) => {
                if matches!(error, StoreError::Damaged { .. }) {
                    tracing::warn!(%error, "a stored reply is damaged; it is removed and fetched again");
                    self.writers.remove_unreadable(key, &name);
                }
                return None;
            }
        };
        match self.open(key, object, name, generation) {
            Ok(found) => Some(found),
            Err((_, name)) => {
                self.writers.remove_unreadable(key, &name);
                None
            }
        }
    }

    fn open(
        &self,
        key: &CacheKey,
        object: Object,
        name: Vec<u8>,
        generation: Option<u64>,
    ) -> Result<Decoded, (head::HeadError, Vec<u8>)> {
        let stat = *object.stat();
        let read = StoredHead::read(object.meta()).and_then(|head| match head {
            StoredHead::Variants(list) => Ok(Err(list)),
            StoredHead::Reply { facts, fields } => {
                head::facts(&object.meta()[facts.clone()], stat.length)?;
                Ok(Ok((facts, fields)))
            }
        });
        let (place, fields) = match read {
            Ok(Ok(ranges)) => ranges,
            Ok(Err(list)) => return Ok(Decoded::Variants(list)),
            Err(error) => return Err((error, name)),
        };
        let record = Bytes::copy_from_slice(object.meta());
        let facts = ReplyFacts { record, place, body_bytes: stat.length };
        let version = Version { name, sequence: stat.sequence, generation };
        let body = StoredBody::of(object, || Some(self.writers.removal_of(key, &version)));
        Ok(Decoded::Reply(Box::new(StoredReply { facts, fields, version, body })))
    }
}

enum Decoded {
    Reply(Box<StoredReply>),
    Variants(VariantList),
}
