//! Completes a stored part by requesting only the missing bytes (RFC 9111 sections 3.3 and 3.4, RFC 9110 sections 13.1.5, 14.4 and
//! 15.3.7.3).
//!
//! ```text
//! stored 0-4/10, "v"    wanted: all      ->  Range: bytes=5-   If-Range: "v"  ->  206 5-9/10, "v"  ->  200, complete
//! stored 4-9/10, "v"    wanted: 2-6      ->  Range: bytes=2-3  If-Range: "v"  ->  206 2-3/10, "v"  ->  206 2-6, from 2-9
//! ```
//!
//! Always holds: parts are combined only if they share a strong validator and the total length, and are adjacent. The bytes that are
//! requested are exactly those that are added. Each new piece is at least a fifth of the result, so that a reply requested in
//! small steps is not rewritten over and over.
//! Not here: a part within the requested range that lacks both ends; the complete range is requested then.

use http::header::{CONTENT_LENGTH, CONTENT_RANGE, HeaderMap, HeaderValue, IF_RANGE, LAST_MODIFIED, RANGE};
use http::{Method, StatusCode};

use super::conditional::{self, Outcome};
use super::ranges::{self, Plan, Span};
use crate::facts::{self, Extent, Meta, StoredFacts};
use crate::fields::date::WallSeconds;
use crate::freshness::{made_at, single_date};

/// A new piece is at least 1/SHARE_MIN of the stored part, unless it completes it.
const SHARE_MIN: u64 = 4;

/// What a stored part lacks for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// What the client asks for; `None` for everything.
    pub wanted: Option<Span>,
    /// The bytes to request.
    pub missing: Span,
    /// The extent of both together.
    pub extent: Extent,
    /// Length of the complete content.
    pub total: u64,
    validator: String,
}

impl Completion {
    /// For a GET without conditions other than If-Range; `None` when the part does not help, or suffices.
    pub fn of(request: &HeaderMap, meta: &Meta<'_>, now: WallSeconds) -> Option<Self> {
        let stored = meta.facts.extent;
        let total = stored.total.filter(|_| meta.facts.is_part() && stored.length > 0)?;
        let validator = ranges::strong_validator(meta)?;
        let wanted = match ranges::wanted(request).filter(|_| ranges::holds(request, meta, now)) {
            None => None,
            Some(wanted) => match wanted[..] {
                [one] => Some(ranges::span(one, total)?),
                _ => return None,
            },
        };
        let Span { first, last } = wanted.unwrap_or(Span { first: 0, last: total.checked_sub(1)? });
        let missing = match () {
            () if stored.first <= first && first <= stored.end() && last >= stored.end() => {
                Span { first: stored.end(), last }
            }
            () if first < stored.first && stored.first <= last.saturating_add(1) && last < stored.end() => {
                Span { first, last: stored.first - 1 }
            }
            () => return None,
        };
        let extent = Extent {
            first: stored.first.min(missing.first),
            length: stored.length + missing.bytes(),
            total: Some(total),
        };
        let worth = extent.is_whole() || missing.bytes().saturating_mul(SHARE_MIN) >= stored.length;
        worth.then_some(Self { wanted, missing, extent, total, validator })
    }

    /// Asks for the missing bytes, or for everything if the content has changed.
    pub fn request_missing(&self, request: &mut HeaderMap) {
        let Span { first, last } = self.missing;
        let range =
            if last + 1 == self.total { format!("bytes={first}-") } else { format!("bytes={first}-{last}") };
        for (name, text) in [(RANGE, range), (IF_RANGE, self.validator.clone())] {
            request.remove(&name);
            if let Ok(value) = HeaderValue::from_str(&text) {
                request.insert(name, value);
            }
        }
    }

    /// Whether a reply brings exactly the missing bytes.
    pub fn is_satisfied_by(
        &self,
        stored: &Meta<'_>,
        status: StatusCode,
        reply: &HeaderMap,
        now: WallSeconds,
    ) -> bool {
        let mut lines = reply.get_all(CONTENT_RANGE).iter();
        let (Some(line), None, StatusCode::PARTIAL_CONTENT) = (lines.next(), lines.next(), status) else {
            return false;
        };
        let Some(extent) = ranges::content_range(line.as_bytes()) else { return false };
        let length = reply.get(CONTENT_LENGTH).map(|line| crate::fields::lists::byte_count(line.as_bytes()));
        if (extent.first, extent.length) != (self.missing.first, self.missing.bytes())
            || length.is_some_and(|length| length != Some(extent.length))
        {
            return false;
        }
        let fresh = StoredFacts {
            made_at: made_at(reply, now),
            changed_at: single_date(reply, &LAST_MODIFIED, now),
            extent,
            tagged: facts::stored_tag(reply).is_some(),
            ..stored.facts
        };
        let bytes = facts::meta_bytes(fresh, reply, &HeaderMap::new());
        Meta::from_bytes(&bytes).is_ok_and(|fresh| ranges::combine(stored, &fresh) == Some(self.extent))
    }

    /// The status of the combined reply; sets its fields accordingly.
    pub fn describe(&self, fields: &mut HeaderMap) -> StatusCode {
        fields.insert(CONTENT_LENGTH, HeaderValue::from(self.extent.length));
        if self.extent.is_whole() {
            fields.remove(CONTENT_RANGE);
            return StatusCode::OK;
        }
        let span = Span { first: self.extent.first, last: self.extent.end() - 1 };
        set_range(fields, span, self.total);
        StatusCode::PARTIAL_CONTENT
    }

    /// As [`Completion::describe`], for the range that the client asked for. Returns the bytes to skip, and the length.
    pub fn describe_wanted(&self, fields: &mut HeaderMap) -> Option<(u64, u64)> {
        let span = self.wanted?;
        fields.insert(CONTENT_LENGTH, HeaderValue::from(span.bytes()));
        set_range(fields, span, self.total);
        Some((span.first - self.extent.first, span.bytes()))
    }
}

fn set_range(fields: &mut HeaderMap, span: Span, total: u64) {
    if let Ok(value) = HeaderValue::from_str(&ranges::content_range_value(Some(span), Some(total))) {
        fields.insert(CONTENT_RANGE, value);
    }
}

/// Whether a stored part does not suffice for a GET that it would answer otherwise.
pub fn is_insufficient(method: &Method, request: &HeaderMap, meta: &Meta<'_>, now: WallSeconds) -> bool {
    *method == Method::GET
        && meta.facts.is_part()
        && conditional::evaluate(request, meta, now) == Outcome::Send
        && ranges::plan(request, meta, now) == Plan::NotHere
}
