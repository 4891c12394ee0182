//! Finding the stored reply for a request.
//!
//! Always holds: what cannot be read is deleted and counts as missing; at most [`super::head::NAME_SETS_MAX`] variants are
//! read for one request.

use bytes::Bytes;
use http::HeaderMap;
use packstore::{Object, StoreError};

use super::{Shelf, StoredHead, head, object_key, variant_key};
use crate::rules::key::CacheKey;
use crate::rules::{Meta, vary};

/// What the store has for a request.
pub enum Look {
    /// Nothing for the URI.
    Nothing,
    /// Only replies to other request fields.
    OtherVariants,
    /// This.
    Reply(Box<StoredReply>),
}

/// The body of a stored reply.
pub enum StoredBody {
    /// In memory.
    Whole(Bytes),
    /// Too long for that.
    Pieces(Object),
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

    /// Length of the stored body.
    pub fn body_bytes(&self) -> u64 {
        self.facts.body_bytes
    }
}

impl Shelf {
    /// Finds the reply to use for a request. Reads the disk.
    pub fn look(&self, key: &CacheKey, request: &HeaderMap) -> Look {
        let Some(name) = object_key(key) else { return Look::Nothing };
        match self.read(&name) {
            None => Look::Nothing,
            Some(Found::Reply(reply)) => match reply.meta().vary_names {
                b"" => Look::Reply(reply),
                // Lists are for what varies; a reply that does cannot lie here.
                _ => Look::Nothing,
            },
            Some(Found::Variants(list)) => {
                let mut best: Option<Box<StoredReply>> = None;
                let mut variant = Vec::new();
                for names in &list.names {
                    variant.clear();
                    vary::write_variant(names, request, &mut variant);
                    let name = variant_key(key, list.generation, names, &variant);
                    let Some(Found::Reply(reply)) = self.read(&name) else { continue };
                    let order = |reply: &StoredReply| {
                        let facts = reply.meta().facts;
                        (facts.made_at, facts.stored_at)
                    };
                    // The hash of a variant is its name: compared, as two could share it.
                    let same = (reply.meta().vary_names, reply.meta().variant) == (names, &variant);
                    if same && best.as_ref().is_none_or(|best| order(best) < order(&reply)) {
                        best = Some(reply);
                    }
                }
                best.map_or(Look::OtherVariants, Look::Reply)
            }
        }
    }

    /// Whether there may be something for the URI, by memory alone.
    pub fn may_have(&self, key: &CacheKey) -> bool {
        object_key(key).is_some_and(|name| self.store.may_contain(&name))
    }

    /// The reply that lies at a name that a clerk told.
    pub fn reply_at(&self, name: &[u8]) -> Option<Box<StoredReply>> {
        match self.read(name)? {
            Found::Reply(reply) => Some(reply),
            Found::Variants(_) => None,
        }
    }

    fn read(&self, name: &[u8]) -> Option<Found> {
        let object = match self.store.get(name) {
            Ok(object) => object?,
            Err(error) => {
                if matches!(error, StoreError::Damaged { .. }) {
                    tracing::warn!(%error, "a stored reply is damaged, and fetched anew");
                    self.clerks.forget(name);
                }
                return None;
            }
        };
        let found = open(object);
        if found.is_err() {
            self.clerks.forget(name);
        }
        found.ok()
    }
}

enum Found {
    Reply(Box<StoredReply>),
    Variants(super::VariantList),
}

fn open(object: Object) -> Result<Found, head::HeadError> {
    let stat = *object.stat();
    let (facts, fields) = match StoredHead::read(object.meta())? {
        StoredHead::Variants(list) => return Ok(Found::Variants(list)),
        StoredHead::Reply { facts, fields } => (facts, fields),
    };
    let meta_bytes = object.meta().len();
    let (record, facts, fields, body) = match object.into_whole() {
        Ok((record, body)) => {
            // Attributes lie right before the body (docs/design/packstore-format.md).
            let start = body.start.checked_sub(meta_bytes).ok_or(head::HeadError::Malformed)?;
            let record = Bytes::from(record);
            let body = StoredBody::Whole(record.slice(body));
            let shift = |range: std::ops::Range<usize>| range.start + start..range.end + start;
            (record, shift(facts), shift(fields), body)
        }
        Err(object) => (Bytes::copy_from_slice(object.meta()), facts, fields, StoredBody::Pieces(*object)),
    };
    head::facts(&record[facts.clone()], stat.length)?;
    let facts = Facts { record, place: facts, body_bytes: stat.length };
    Ok(Found::Reply(Box::new(StoredReply { facts, fields, body })))
}
