//! Builds the reply to a client from a stored reply, or from one that was just validated.
//!
//! ```text
//! conditions hold ─> 304      HEAD ─> no body      Range ─> 206, multipart 206, 416      else ─> complete body
//! ```
//!
//! Always holds: Content-Length is the length of the stored body, whatever the origin sent.

use http::header::{AGE, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Method, StatusCode};
use http_body::Body as _;
use http_cache_rules::conditional::{self, Outcome as Conditions};
use http_cache_rules::ranges::{self, Plan, Span};
use http_cache_rules::{Meta, WallSeconds, forwarding};

use crate::object_cache::StoredBody;
use crate::server::client::reply_body::{Part, ReplyBody};

/// A reply for a client.
pub struct Served {
    /// Status.
    pub status: StatusCode,
    /// Fields, without those that the proxy adds to every reply.
    pub headers: HeaderMap,
    /// Body.
    pub body: ReplyBody,
}

/// Serves a GET or HEAD; `None` when the requested range is not stored.
pub fn serve(
    method: &Method,
    request: &HeaderMap,
    meta: &Meta<'_>,
    mut headers: HeaderMap,
    body: StoredBody,
    age_s: u32,
    now: WallSeconds,
) -> Option<Served> {
    let facts = &meta.facts;
    // A 206 that holds the complete content is served as 200 (RFC 9111 section 3.3).
    let is_all = facts.status == StatusCode::PARTIAL_CONTENT && facts.extent.is_whole();
    let status = if is_all { StatusCode::OK } else { facts.status };
    if is_all {
        headers.remove(CONTENT_RANGE);
    }
    headers.insert(AGE, forwarding::age_value(age_s));
    let bodiless = facts.status == StatusCode::NO_CONTENT;
    if bodiless {
        // Stores written by older versions may have one.
        headers.remove(CONTENT_LENGTH);
    } else {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(facts.extent.length));
    }
    if conditional::evaluate(request, meta, now) == Conditions::NotModified {
        conditional::leave_for_304(&mut headers);
        return Some(Served { status: StatusCode::NOT_MODIFIED, headers, body: ReplyBody::nothing() });
    }
    if *method == Method::HEAD {
        return Some(Served { status, headers, body: ReplyBody::nothing() });
    }
    let (first, length) = (facts.extent.first, facts.extent.length);
    match ranges::plan(request, meta, now) {
        Plan::Whole => {
            let body = if bodiless { ReplyBody::nothing() } else { ReplyBody::stored(body, 0, length) };
            Some(Served { status, headers, body })
        }
        Plan::NotHere => None,
        Plan::One(span) => {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(span.bytes()));
            headers.insert(CONTENT_RANGE, content_range(Some(span), facts.extent.total)?);
            let body = ReplyBody::stored(body, span.first - first, span.last + 1 - first);
            Some(Served { status: StatusCode::PARTIAL_CONTENT, headers, body })
        }
        Plan::Several(spans) => several(&spans, meta, headers, body),
        Plan::Unsatisfiable(total) => {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(0));
            headers.insert(CONTENT_RANGE, content_range(None, Some(total))?);
            let status = StatusCode::RANGE_NOT_SATISFIABLE;
            Some(Served { status, headers, body: ReplyBody::nothing() })
        }
    }
}

fn content_range(span: Option<Span>, total: Option<u64>) -> Option<HeaderValue> {
    HeaderValue::from_str(&ranges::content_range_value(span, total)).ok()
}

fn several(spans: &[Span], meta: &Meta<'_>, mut headers: HeaderMap, body: StoredBody) -> Option<Served> {
    let extent = meta.facts.extent;
    let Some(total) = extent.total else {
        // A server may ignore Range (RFC 9110 section 14.2), but a part cannot be sent in place of the complete content.
        let whole = extent.is_whole().then(|| ReplyBody::stored(body, 0, extent.length))?;
        return Some(Served { status: meta.facts.status, headers, body: whole });
    };
    let boundary = format!("crumb-{:016x}-{:x}", meta.facts.stored_at.0, extent.length);
    let content_type = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let mut parts = Vec::with_capacity(spans.len() * 2 + 1);
    for span in spans {
        let head = ranges::part_head(&boundary, content_type.as_deref(), *span, total);
        parts.push(Part::Text(head.into()));
        parts.push(Part::Stored(body.clone(), span.first - extent.first, span.last + 1 - extent.first));
    }
    parts.push(Part::Text(ranges::parts_end(&boundary).into()));
    let text = ReplyBody::several(parts);
    headers.insert(CONTENT_LENGTH, HeaderValue::from(text.size_hint().exact()?));
    let kind = format!("multipart/byteranges; boundary={boundary}");
    headers.insert(CONTENT_TYPE, HeaderValue::from_str(&kind).ok()?);
    Some(Served { status: StatusCode::PARTIAL_CONTENT, headers, body: text })
}
