//! Range, If-Range and Content-Range: serving parts of a stored reply, and combining parts (RFC 9110 section 14, RFC 9111 sections 3.3
//! and 3.4).
//!
//! ```text
//! bytes=0-1, 5-, -3   of 10 bytes stored as 4..10   ->   0-1 is missing: fetch
//! bytes=-3                                          ->   206, bytes 7-9/10
//! ```
//!
//! Always holds: a malformed Range is ignored and never an error. At most 32 ranges are considered, and overlapping ones are merged, so
//! that a short request cannot cause a reply many times the size of the content (14.2, 17.15).
//! Not here: reading the bytes, requesting missing ones (`completion`).

use http::header::{HeaderMap, IF_RANGE, RANGE};

use crate::facts::{Extent, Meta};
use crate::fields::date::{self, WallSeconds};
use crate::fields::lists::{byte_count, members};
use crate::fields::validators::{EntityTag, is_strong_date};

/// One range-spec of Range, before the total length is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeSpec {
    /// From this byte to that one, inclusive, or to the end.
    From(u64, Option<u64>),
    /// This many bytes at the end.
    Last(u64),
}

/// Bytes `first` to `last`, inclusive, of the complete content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// Offset of the first byte.
    pub first: u64,
    /// Offset of the last byte.
    pub last: u64,
}

impl Span {
    /// Its length in bytes.
    pub fn bytes(self) -> u64 {
        self.last - self.first + 1
    }
}

/// How to answer a range request from the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// 200 with everything: no Range, or one that is ignored.
    Whole,
    /// 206 with this part.
    One(Span),
    /// 206 as multipart/byteranges, in the requested order.
    Several(Vec<Span>),
    /// 416 with `Content-Range: bytes */length`.
    Unsatisfiable(u64),
    /// A requested range is not stored.
    NotHere,
}

/// Most ranges of one request; with more, the Range is ignored.
pub const RANGES_MAX: usize = 32;

/// Decides for a GET whose conditions did not end it. `meta.facts` describes the stored reply.
pub fn plan(headers: &HeaderMap, meta: &Meta<'_>, now: WallSeconds) -> Plan {
    let extent = meta.facts.extent;
    let everything = if meta.facts.is_part() { Plan::NotHere } else { Plan::Whole };
    let Some(wanted) = wanted(headers).filter(|_| holds(headers, meta, now)) else { return everything };
    // Only 200 and 206 have ranges; other 2xx and errors have none (RFC 9110 section 14.2).
    if !matches!(meta.facts.status.as_u16(), 200 | 206) {
        return Plan::Whole;
    }
    let Some(total) = extent.total else { return known_part(&wanted, extent) };
    let spans: Vec<Span> = wanted.iter().filter_map(|wanted| span(*wanted, total)).collect();
    if spans.is_empty() {
        return Plan::Unsatisfiable(total);
    }
    let merged = merge(&spans);
    if !merged.iter().all(|span| extent.first <= span.first && span.last < extent.end()) {
        return Plan::NotHere;
    }
    // Disjoint ranges keep the requested order; overlapping ones were merged in order of position.
    let spans = if merged.len() == spans.len() { spans } else { merged };
    match spans[..] {
        [one] => Plan::One(one),
        _ => Plan::Several(spans),
    }
}

/// A part of unknown total length can still serve one range with both ends.
fn known_part(wanted: &[RangeSpec], extent: Extent) -> Plan {
    match wanted {
        [RangeSpec::From(first, Some(last))] if extent.first <= *first && *last < extent.end() => {
            Plan::One(Span { first: *first, last: *last })
        }
        _ => Plan::NotHere,
    }
}

/// The requested ranges; `None` without a Range, or with one that is ignored.
pub fn wanted(headers: &HeaderMap) -> Option<Vec<RangeSpec>> {
    let mut lines = headers.get_all(RANGE).iter();
    let line = lines.next()?.as_bytes();
    if lines.next().is_some() {
        return None;
    }
    let equals = line.iter().position(|byte| *byte == b'=')?;
    let (unit, set) = (&line[..equals], &line[equals + 1..]);
    unit.eq_ignore_ascii_case(b"bytes").then_some(())?;
    let mut found = Vec::new();
    for member in members(set) {
        if found.len() == RANGES_MAX {
            return None;
        }
        found.push(one_wanted(member)?);
    }
    (!found.is_empty()).then_some(found)
}

fn one_wanted(member: &[u8]) -> Option<RangeSpec> {
    let dash = member.iter().position(|byte| *byte == b'-')?;
    let (first, last) = (&member[..dash], &member[dash + 1..]);
    match (first, last) {
        ([], last) => Some(RangeSpec::Last(byte_count(last)?)),
        (first, []) => Some(RangeSpec::From(byte_count(first)?, None)),
        (first, last) => {
            let (first, last) = (byte_count(first)?, byte_count(last)?);
            (first <= last).then_some(RangeSpec::From(first, Some(last)))
        }
    }
}

/// The span of a range-spec within `total` bytes; `None` outside (RFC 9110 section 14.1.2).
pub fn span(wanted: RangeSpec, total: u64) -> Option<Span> {
    let last = total.checked_sub(1)?;
    match wanted {
        RangeSpec::From(first, until) if first <= last => {
            Some(Span { first, last: until.map_or(last, |until| until.min(last)) })
        }
        RangeSpec::Last(bytes) if bytes > 0 => Some(Span { first: total.saturating_sub(bytes), last }),
        _ => None,
    }
}

/// Sorts spans, and merges those that overlap or are adjacent.
fn merge(spans: &[Span]) -> Vec<Span> {
    let mut sorted = spans.to_vec();
    sorted.sort_unstable();
    let mut merged: Vec<Span> = Vec::with_capacity(sorted.len());
    for span in sorted {
        match merged.last_mut() {
            Some(before) if span.first <= before.last.saturating_add(1) => {
                before.last = before.last.max(span.last)
            }
            _ => merged.push(span),
        }
    }
    merged
}

/// Whether If-Range, if there is one, names what is stored: else the Range does not count (RFC 9110 section 13.1.5).
pub(crate) fn holds(headers: &HeaderMap, meta: &Meta<'_>, now: WallSeconds) -> bool {
    let mut lines = headers.get_all(IF_RANGE).iter();
    let Some(line) = lines.next() else { return true };
    if lines.next().is_some() {
        return false;
    }
    if let Some(tag) = EntityTag::parse(line.as_bytes()) {
        return meta.entity_tag().is_some_and(|stored| stored.strongly_equals(tag));
    }
    let named = date::parse(line.as_bytes(), now);
    let strong = |changed: &WallSeconds| is_strong_date(*changed, meta.facts.made_at);
    named.is_some() && meta.facts.changed_at.filter(strong) == named
}

/// Parses `bytes 4-9/10` or `bytes 4-9/*`; `None` when it is malformed, empty, or in another unit.
pub fn content_range(line: &[u8]) -> Option<Extent> {
    let line = line.trim_ascii();
    let space = line.iter().position(|byte| *byte == b' ')?;
    line[..space].eq_ignore_ascii_case(b"bytes").then_some(())?;
    let range = line[space + 1..].trim_ascii();
    let (dash, slash) =
        (range.iter().position(|byte| *byte == b'-')?, range.iter().position(|byte| *byte == b'/')?);
    let first = byte_count(&range[..dash])?;
    let last = byte_count(range.get(dash + 1..slash)?)?;
    let total = match &range[slash + 1..] {
        b"*" => None,
        total => Some(byte_count(total)?),
    };
    let length = last.checked_sub(first)?.checked_add(1)?;
    total.is_none_or(|total| last < total).then_some(Extent { first, length, total })
}

/// The Content-Range of a 206 with `span`, or of a 416 without.
pub fn content_range_value(span: Option<Span>, total: Option<u64>) -> String {
    let total = total.map_or_else(|| "*".to_owned(), |total| total.to_string());
    match span {
        Some(Span { first, last }) => format!("bytes {first}-{last}/{total}"),
        None => format!("bytes */{total}"),
    }
}

/// The value of If-Range for a stored reply: a strong tag or a strong date.
pub fn strong_validator(meta: &Meta<'_>) -> Option<String> {
    if let Some(tag) = meta.entity_tag() {
        return (!tag.weak).then(|| String::from_utf8(tag.text.to_vec()).ok()).flatten();
    }
    let changed = meta.facts.changed_at.filter(|changed| is_strong_date(*changed, meta.facts.made_at))?;
    Some(String::from_utf8_lossy(&date::format(changed)).into_owned())
}

/// The extent of two parts together, if they share a strong tag and the total length, and overlap or are adjacent (RFC 9111 section 3.4).
/// The newer one's fields apply.
pub fn combine(stored: &Meta<'_>, fresh: &Meta<'_>) -> Option<Extent> {
    let (one, other) = (stored.facts.extent, fresh.facts.extent);
    let same = match (stored.entity_tag(), fresh.entity_tag()) {
        (Some(stored), Some(fresh)) => stored.strongly_equals(fresh),
        (None, None) => {
            strong_validator(stored).is_some() && strong_validator(stored) == strong_validator(fresh)
        }
        _ => false,
    };
    let total = match (one.total, other.total) {
        (Some(one), Some(other)) if one != other => return None,
        (one, other) => one.or(other),
    };
    let touching = one.first <= other.end() && other.first <= one.end();
    let first = one.first.min(other.first);
    let length = one.end().max(other.end()) - first;
    (same && touching).then_some(Extent { first, length, total })
}

/// The head of one part of a multipart/byteranges body, with its leading line break (RFC 9110 section 14.6).
pub fn part_head(boundary: &str, content_type: Option<&str>, span: Span, total: u64) -> String {
    let kind = content_type.map_or_else(String::new, |kind| format!("Content-Type: {kind}\r\n"));
    let range = content_range_value(Some(span), Some(total));
    format!("\r\n--{boundary}\r\n{kind}Content-Range: {range}\r\n\r\n")
}

/// The end of a multipart/byteranges body.
pub fn parts_end(boundary: &str) -> String {
    format!("\r\n--{boundary}--\r\n")
}
