//! Conditions: the client's, evaluated against the stored reply, and ours, sent to the origin (RFC 9111 section 4.3, RFC 9110
//! section 13).
//!
//! ```text
//! client ── If-None-Match, else If-Modified-Since ──> evaluate ──> 304 │ complete reply
//! stale reply ──> set_conditions ──> If-None-Match: its tag, If-Modified-Since: its date ──> origin
//! ```
//!
//! Always holds: If-None-Match takes precedence over If-Modified-Since (13.2.2). An invalid or repeated date is ignored. If-Match and
//! If-Unmodified-Since are for the origin (`reuse::evaluate` forwards them).
//! Not here: what a 304 from the origin does to the store (`update`).

use http::header::{
    CACHE_CONTROL, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG,
    HeaderMap, HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, LAST_MODIFIED, RANGE,
};

use crate::facts::Meta;
use crate::fields::date::{self, WallSeconds};
use crate::fields::validators::{is_any, tags};
use crate::freshness::single_date;

/// The result of the client's conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The client has the current reply: 304.
    NotModified,
    /// It does not, or set no condition.
    Send,
}

/// Evaluates the conditions of a GET or HEAD against a stored reply that will be served. Allocates nothing.
pub fn evaluate(request: &HeaderMap, meta: &Meta<'_>, now: WallSeconds) -> Outcome {
    // Conditions apply only if the reply without them would be a success (13.2.1).
    if !matches!(meta.facts.status.as_u16(), 200 | 203 | 204 | 206) {
        return Outcome::Send;
    }
    let not_modified = if request.contains_key(IF_NONE_MATCH) {
        let lines = || request.get_all(IF_NONE_MATCH).iter().map(HeaderValue::as_bytes);
        let stored = meta.entity_tag();
        lines().any(is_any)
            || stored.is_some_and(|stored| lines().flat_map(tags).any(|tag| tag.weakly_equals(stored)))
    } else {
        // Without Last-Modified use Date, if the reply was not made later (RFC 9111 section 4.3.2).
        let changed_at = meta.facts.changed_at.unwrap_or(meta.facts.made_at);
        single_date(request, &IF_MODIFIED_SINCE, now).is_some_and(|since| changed_at <= since)
    };
    if not_modified { Outcome::NotModified } else { Outcome::Send }
}

/// Replaces the client's conditions by ours, to validate a stored reply. Removes Range too: the stored reply is complete, and its
/// successor is wanted completely.
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

/// Requests a new copy without conditions, after a 304 that did not help.
pub fn clear_conditions(request: &mut HeaderMap) {
    for name in [IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_RANGE] {
        request.remove(name);
    }
    // Caches on the way must not answer with the reply that was just found invalid.
    request.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
}

/// Removes the fields that a 304 does not repeat, which describe the body it lacks (RFC 9110 section 15.4.5). Last-Modified stays if
/// there is no tag.
pub fn leave_for_304(headers: &mut HeaderMap) {
    for name in [CONTENT_TYPE, CONTENT_LENGTH, CONTENT_ENCODING, CONTENT_LANGUAGE, CONTENT_RANGE] {
        headers.remove(name);
    }
    if headers.contains_key(ETAG) {
        headers.remove(LAST_MODIFIED);
    }
}
