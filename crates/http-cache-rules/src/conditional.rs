//! Conditions: the client's, answered from the store, and ours, sent to the origin (RFC 9111 section 4.3, RFC 9110
//! section 13).
//!
//! ```text
//! client ── If-None-Match, else If-Modified-Since ──> evaluate ──> 304 │ all of it
//! stale reply ──> set_conditions ──> If-None-Match: its tag, If-Modified-Since: its date ──> origin
//! ```
//!
//! Always holds: If-None-Match wins over If-Modified-Since (13.2.2); a date that cannot be read, or a second one, does
//! not count; If-Match and If-Unmodified-Since are the origin's (`reuse::evaluate` forwards them).
//! Not here: what a 304 from the origin does to the store (`update`).

use http::header::{
    CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG,
    HeaderMap, HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, LAST_MODIFIED, RANGE,
};

use super::date::{self, WallSeconds};
use super::facts::Meta;
use super::freshness::single_date;
use super::validators::{is_any, tags};

/// What a client's conditions ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The client has it: 304.
    NotModified,
    /// It does not, or did not ask.
    Send,
}

/// Evaluates the client's conditions against what is stored. Of a GET or HEAD, and for a stored reply that will be
/// served. Allocates nothing.
pub fn evaluate(request: &HeaderMap, meta: &Meta<'_>, now: WallSeconds) -> Outcome {
    // Conditions do not count where the reply without them were no success (13.2.1).
    if !matches!(meta.facts.status.as_u16(), 200 | 203 | 204 | 206) {
        return Outcome::Send;
    }
    let not_modified = if request.contains_key(IF_NONE_MATCH) {
        let lines = || request.get_all(IF_NONE_MATCH).iter().map(HeaderValue::as_bytes);
        let stored = meta.entity_tag();
        lines().any(is_any)
            || stored.is_some_and(|stored| lines().flat_map(tags).any(|tag| tag.weakly_equals(stored)))
    } else {
        // Without a Last-Modified the Date stands in, as long as the reply was not made later (RFC 9111 section 4.3.2).
        let changed_at = meta.facts.changed_at.unwrap_or(meta.facts.made_at);
        single_date(request, &IF_MODIFIED_SINCE, now).is_some_and(|since| changed_at <= since)
    };
    if not_modified { Outcome::NotModified } else { Outcome::Send }
}

/// Puts our conditions in the place of the client's, for a request that asks whether what is stored still holds. Takes
/// out Range as well: the stored reply is whole, and its successor is wanted whole.
pub fn set_conditions(request: &mut HeaderMap, meta: &Meta<'_>) {
    for name in [IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_RANGE, RANGE] {
        request.remove(name);
    }
    if let Some(tag) = meta.entity_tag()
        && let Ok(value) = HeaderValue::from_bytes(tag.text)
    {
        request.insert(IF_NONE_MATCH, value);
    }
    if let Some(changed_at) = meta.facts.changed_at
        && let Ok(value) = HeaderValue::from_bytes(&date::format(changed_at))
    {
        request.insert(IF_MODIFIED_SINCE, value);
    }
}

/// Asks the origin for a new copy without conditions: after a 304 that was of no use.
pub fn clear_conditions(request: &mut HeaderMap) {
    for name in [IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_RANGE] {
        request.remove(name);
    }
    // Caches on the way must not answer with what this one just found wanting.
    request.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
}

/// Takes out of a stored reply's fields what a 304 does not repeat: what describes the body it does not have
/// (RFC 9110 section 15.4.5). Last-Modified stays when there is no tag.
pub fn leave_for_304(headers: &mut HeaderMap) {
    for name in [CONTENT_TYPE, CONTENT_LENGTH, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_RANGE] {
        headers.remove(name);
    }
    if headers.contains_key(ETAG) {
        headers.remove(LAST_MODIFIED);
    }
}
