//! Finding the stored reply for a request.
//!
//! Always holds: what cannot be read is deleted and counts as missing; at most [`super::head::NAME_SETS_MAX`] variants are
//! read for one request.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use http_cache_rules::key::CacheKey;
use http_cache_rules::{Meta, vary};
use packstore::{Begun, Object, Reading, StoreError};

use super::{ObjectCache, StoredHead, VariantList, head, object_key, variant_key};

/// What the store has for a request.
pub enum Look {
    /// Nothing for the URI.
    Nothing,
    /// Only replies to other request fields.
    OtherVariants,
    /// This.
    Reply(Box<StoredReply>),
}

/// The body of a stored reply. It stays what it is whatever becomes of the URI.
#[derive(Clone, Debug)]
pub enum StoredBody {
    /// In memory.
    Whole(Bytes),
    /// Too long for that.
    Pieces(Arc<Object>),
}

impl StoredBody {
    pub(super) fn of(object: Object) -> Self {
        match object.into_shared() {
            // The memory tier's own, where there is one: not copied.
            Ok(body) => Self::Whole(Bytes::from_owner(body)),
            Err(object) => Self::Pieces(Arc::from(object)),
        }
    }

    /// Its length.
    pub fn bytes(&self) -> u64 {
        match self {
            Self::Whole(bytes) => bytes.len() as u64,
            Self::Pieces(object) => object.length(),
        }
    }
}

/// Which of the objects that lay at a name one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Version {
    pub(super) name: Vec<u8>,
    pub(super) sequence: u64,
    /// Of the list that led to it.
    pub(super) generation: Option<u64>,
}

/// The head of a stored reply.
#[derive(Clone)]
pub struct Facts {
    record: Bytes,
    place: std::ops::Range<usize>,
    body_bytes: u64,
}

impl Facts {
    /// What the rules ask about it.
    pub fn meta(&self) -> Meta<'_> {
        head::facts(&self.record[self.place.clone()], self.body_bytes).expect("read once before")
    }
}

/// A stored reply.
pub struct StoredReply {
    facts: Facts,
    fields: std::ops::Range<usize>,
    version: Version,
    /// Its body.
    pub body: StoredBody,
}

impl StoredReply {
    /// Head and body.
    pub fn into_parts(self) -> (Facts, StoredBody) {
        (self.facts, self.body)
    }

    /// What the rules ask about it.
    pub fn meta(&self) -> Meta<'_> {
        self.facts.meta()
    }

    /// Its fields.
    ///
    /// # Errors
    /// When they are none.
    pub fn fields(&self) -> Result<HeaderMap, head::HeadError> {
        head::fields(&self.facts.record.slice(self.fields.clone()))
    }

    /// Which one it is.
    pub fn version(&self) -> &Version {
        &self.version
    }
}

/// How far a look has come.
#[expect(clippy::large_enum_variant, reason = "of one at a time, never kept")]
pub enum Looked {
    /// To its end.
    Done(Look),
    /// As far as memory goes, perhaps.
    On(Looking),
}

/// A look on its way: at what the URI's name holds, then at the variants that it lists.
pub struct Looking {
    name: Vec<u8>,
    begun: Result<Begun, StoreError>,
    among: Option<Among>,
}

impl Looking {
    /// What has to be read before it goes on.
    pub fn reading(&self) -> Option<&Reading> {
        match &self.begun {
            Ok(Begun::Read(reading)) => Some(reading),
            _ => None,
        }
    }
}

/// The variants of a URI, looked at one after the other.
struct Among {
    list: VariantList,
    looked_at: usize,
    /// The request's values of the fields that the one being looked at varies by.
    variant: Vec<u8>,
    best: Option<Box<StoredReply>>,
}

impl Among {
    /// Takes a reply if it is for this request, and later than what was found before.
    fn consider(&mut self, reply: Box<StoredReply>) {
        let order = |reply: &StoredReply| {
            let facts = reply.meta().facts;
            (facts.made_at, facts.stored_at)
        };
        let names = &self.list.names[self.looked_at - 1];
        // The hash of a variant is its name: compared, as two could share it.
        let same = (reply.meta().vary_names, reply.meta().variant) == (names, &self.variant);
        if same && self.best.as_ref().is_none_or(|best| order(best) < order(&reply)) {
            self.best = Some(reply);
        }
    }
}

impl ObjectCache {
    /// Finds the reply to use for a request. Reads the disk.
    pub fn look(&self, key: &CacheKey, request: &HeaderMap) -> Look {
        let mut looked = self.begin_look(key);
        loop {
            match looked {
                Looked::Done(look) => return look,
                Looked::On(looking) => looked = self.go_on(looking, None, key, request),
            }
        }
    }

    /// As [`ObjectCache::look`], step by step: what has to be read in between is the caller's, who need not wait for it.
    pub fn begin_look(&self, key: &CacheKey) -> Looked {
        object_key(key).map_or(Looked::Done(Look::Nothing), |name| self.seek(name, None))
    }

    /// The next step; `read`: what [`Looking::reading`] asked for. Without it it is read here.
    pub fn go_on(
        &self,
        looking: Looking,
        read: Option<Vec<u8>>,
        key: &CacheKey,
        request: &HeaderMap,
    ) -> Looked {
        let Looking { name, begun, among } = looking;
        let object = begun.and_then(|begun| match begun {
            Begun::Done(object) => Ok(object),
            Begun::Read(reading) => self.store.end_get(&name, reading, read),
        });
        let generation = among.as_ref().map(|among| among.list.generation);
        match (self.opened(key, name, generation, object), among) {
            (found, Some(mut among)) => {
                if let Some(Found::Reply(reply)) = found {
                    among.consider(reply);
                }
                self.next_variant(among, key, request)
            }
            (None, None) => Looked::Done(Look::Nothing),
            (Some(Found::Reply(reply)), None) => Looked::Done(match reply.meta().vary_names {
                b"" => Look::Reply(reply),
                // Lists are for what varies; a reply that does cannot lie here.
                _ => Look::Nothing,
            }),
            (Some(Found::Variants(list)), None) => {
                let among = Among { list, looked_at: 0, variant: Vec::new(), best: None };
                self.next_variant(among, key, request)
            }
        }
    }

    fn next_variant(&self, mut among: Among, key: &CacheKey, request: &HeaderMap) -> Looked {
        let Some(names) = among.list.names.get(among.looked_at) else {
            return Looked::Done(among.best.map_or(Look::OtherVariants, Look::Reply));
        };
        among.variant.clear();
        vary::write_variant(names, request, &mut among.variant);
        let name = variant_key(key, among.list.generation, names, &among.variant);
        among.looked_at += 1;
        self.seek(name, Some(among))
    }

    fn seek(&self, name: Vec<u8>, among: Option<Among>) -> Looked {
        let begun = self.store.begin_get(&name);
        Looked::On(Looking { name, begun, among })
    }

    fn opened(
        &self,
        key: &CacheKey,
        name: Vec<u8>,
        generation: Option<u64>,
        object: Result<Option<Object>, StoreError>,
    ) -> Option<Found> {
        let object = match object {
            Ok(object) => object?,
            Err(error) => {
                if matches!(error, StoreError::Damaged { .. }) {
                    tracing::warn!(%error, "a stored reply is damaged, and fetched anew");
                    self.writers.forget(key, &name);
                }
                return None;
            }
        };
        match open(object, name, generation) {
            Ok(found) => Some(found),
            Err((_, name)) => {
                self.writers.forget(key, &name);
                None
            }
        }
    }
}

enum Found {
    Reply(Box<StoredReply>),
    Variants(VariantList),
}

fn open(object: Object, name: Vec<u8>, generation: Option<u64>) -> Result<Found, (head::HeadError, Vec<u8>)> {
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
        Ok(Err(list)) => return Ok(Found::Variants(list)),
        Err(error) => return Err((error, name)),
    };
    let record = Bytes::copy_from_slice(object.meta());
    let facts = Facts { record, place, body_bytes: stat.length };
    let version = Version { name, sequence: stat.sequence, generation };
    let body = StoredBody::of(object);
    Ok(Found::Reply(Box::new(StoredReply { facts, fields, version, body })))
}
