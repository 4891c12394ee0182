//! What a 304 or the reply to a HEAD does to stored replies (RFC 9111 sections 3.2, 4.3.4 and 4.3.5).
//!
//! ```text
//! 304 ─> identify (same strong tag │ latest with the same weak validator │ the only one) ─> merge ─> refresh
//! HEAD 200 ─> same tag, date and length ─> merge ─> refresh        otherwise ─> remove
//! ```
//!
//! Always holds: a reply without a body never changes the fields that describe the stored bytes (length, coding, range, digest,
//! tag).
//! Not here: writing the updated head to the store.

use http::header::{
    AGE, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, DATE, ETAG, HeaderMap, HeaderName, LAST_MODIFIED,
};

use super::facts::{Meta, StoredFacts, stored_tag};
use super::freshness::single_date;
use super::policy::{Foreign304, Policy};
use super::request::{MethodKind, RequestFacts};
use super::storing::{self, Exchange, Refusal};
use crate::fields::lists;

/// The stored reply that a 304 validates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confirmed {
    /// The one with this index.
    This(usize),
    /// None: request again without conditions (`conditional::clear_conditions`).
    None,
}

/// Finds the stored reply that a 304 validates. `stored` are those that match the request's fields; `validated` is the index of the
/// one whose validators were sent. All strong matches may be updated; this returns the one to serve.
pub fn identify(stored: &[Meta<'_>], validated: usize, reply: &HeaderMap, policy: &Policy) -> Confirmed {
    let fallback = stored.get(validated).map_or(Confirmed::None, |_| Confirmed::This(validated));
    let latest = |matching: &dyn Fn(&Meta<'_>) -> bool| {
        let all = stored.iter().enumerate().filter(|(_, meta)| matching(meta));
        all.max_by_key(|(place, meta)| (meta.facts.made_at, *place == validated, meta.facts.stored_at))
            .map(|(place, _)| place)
    };
    let found = match stored_tag(reply) {
        Some(tag) if !tag.weak => {
            latest(&|meta| meta.entity_tag().is_some_and(|held| held.strongly_equals(tag)))
        }
        Some(tag) => latest(&|meta| meta.entity_tag().is_some_and(|held| held.weakly_equals(tag))),
        None => match single_date(reply, &LAST_MODIFIED, super::WallSeconds(0)) {
            Some(changed_at) => latest(&|meta| meta.facts.changed_at == Some(changed_at)),
            // A 304 without validators can only mean the reply whose validators were sent. The RFC describes this case for stored replies without
            // validators only, but many origins omit the tag in a 304.
            None => return fallback,
        },
    };
    match (found, policy.foreign_304) {
        (Some(place), _) => Confirmed::This(place),
        (None, Foreign304::KeepStoredTag) => fallback,
        (None, Foreign304::FetchAgain) => Confirmed::None,
    }
}

/// Replaces stored fields by those of the same name in a 304 or HEAD reply (RFC 9111 section 3.2). The reply's hop-by-hop fields were
/// removed before (`forwarding::strip_hop_by_hop`), its Age was not: [`refresh`] reads it, and `forwarding::storable_fields`
/// removes it before the head is written.
pub fn merge(stored: &mut HeaderMap, reply: &HeaderMap) {
    // Age and Date of the old exchange no longer apply: `forwarding::add_date` adds a new Date.
    stored.remove(AGE);
    stored.remove(DATE);
    for name in reply.keys().filter(|name| !describes_the_bytes(name)) {
        stored.remove(name);
        for value in reply.get_all(name) {
            stored.append(name, value.clone());
        }
    }
}

/// Fields that describe the stored bytes: those that RFC 9111 section 3.2 excludes or allows to exclude, and digests.
pub fn describes_the_bytes(name: &HeaderName) -> bool {
    [CONTENT_LENGTH, CONTENT_ENCODING, CONTENT_RANGE, ETAG].contains(name)
        || matches!(name.as_str(), "content-md5" | "content-digest" | "repr-digest" | "digest")
}

/// The facts of a stored reply after its fields were merged, as if it had just been received by GET. `exchange.headers` are the merged
/// fields. On [`Refusal::RequestNoStore`] leave the stored reply as it was; on any other refusal serve it once more and remove it.
pub fn refresh(old: &StoredFacts, exchange: &Exchange<'_>, policy: &Policy) -> Result<StoredFacts, Refusal> {
    let request = RequestFacts { method: MethodKind::Get, ..*exchange.request };
    let facts = storing::judge(&Exchange { status: old.status, request: &request, ..*exchange }, policy)?;
    Ok(StoredFacts { extent: old.extent, ..facts })
}

/// What the reply to a HEAD says about the stored reply to a GET.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadSays {
    /// It is still valid: merge and refresh.
    Same,
    /// The content has changed: remove it.
    Other,
    /// Nothing: the HEAD failed.
    Nothing,
}

/// Compares the two (RFC 9111 section 4.3.5).
pub fn head_says(stored: &Meta<'_>, status: http::StatusCode, reply: &HeaderMap) -> HeadSays {
    if status != http::StatusCode::OK {
        return HeadSays::Nothing;
    }
    let same_tag =
        stored_tag(reply).is_none_or(|tag| stored.entity_tag().is_some_and(|held| held.weakly_equals(tag)));
    let changed_at = single_date(reply, &LAST_MODIFIED, super::WallSeconds(0));
    let same_date = changed_at.is_none_or(|changed_at| stored.facts.changed_at == Some(changed_at));
    let length = reply.get(CONTENT_LENGTH).map(|line| lists::byte_count(line.as_bytes()));
    let same_length = length.is_none_or(|length| length.is_some() && length == stored.facts.extent.total);
    if same_tag && same_date && same_length { HeadSays::Same } else { HeadSays::Other }
}
