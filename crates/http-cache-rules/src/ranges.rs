//! Range, If-Range and Content-Range: parts of what is stored, and parts put together (RFC 9110 section 14, RFC 9111
//! sections 3.3 and 3.4).
//!
//! ```text
//! bytes=0-1, 5-, -3   of 10 bytes stored as 4..10   ->   0-1 is missing: fetch
//! bytes=-3                                          ->   206, bytes 7-9/10
//! ```
//!
//! Always holds: a Range that is not well formed is ignored, never an error; at most 32 ranges are looked at, and
//! overlapping ones are merged, so that a short request cannot ask for a long reply many times over (14.2, 17.15).
//! Not here: reading the bytes, asking for those that are missing (`completion`).

use http::header::{HeaderMap, IF_RANGE, RANGE};

use super::date::{self, WallSeconds};
use super::facts::{Extent, Meta};
use super::lists::{byte_count, members};
use super::validators::{EntityTag, is_strong_date};

/// One member of Range: which bytes are wanted, the whole's length not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// From this byte to that one, inclusive, or to the end.
    From(u64, Option<u64>),
    /// This many at the end.
    Last(u64),
}

/// Bytes `first` to `last`, inclusive, of the whole content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Span {
    /// Place of the first byte.
    pub first: u64,
    /// Place of the last byte.
    pub last: u64,
}

impl Span {
    /// How many bytes it has.
    pub fn bytes(self) -> u64 {
        self.last - self.first + 1
    }
}

/// How a request for parts is answered from what is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// All of it with 200: no Range, or one that does not count.
    Whole,
    /// 206 with this part.
    One(Span),
    /// 206 as multipart/byteranges, in the order asked for.
    Several(Vec<Span>),
    /// 416 with `Content-Range: bytes */length`.
    Unsatisfiable(u64),
    /// Something is asked for that is not stored.
    NotHere,
}

/// The most ranges of one request that are looked at; with more the Range does not count.
pub const RANGES_MAX: usize = 32;

/// Decides for a GET whose conditions did not end it. `meta.facts` says what is stored.
pub fn plan(headers: &HeaderMap, meta: &Meta<'_>, now: WallSeconds) -> Plan {
    let extent = meta.facts.extent;
    let everything = if meta.facts.is_part() { Plan::NotHere } else { Plan::Whole };
    let Some(wanted) = wanted(headers).filter(|_| holds(headers, meta, now)) else { return everything };
    // 2xx but 200 and 206 have no parts, nor have errors (RFC 9110 section 14.2).
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
    // Apart they stay in the order asked for; overlapping ones were merged in order of place.
    let spans = if merged.len() == spans.len() { spans } else { merged };
    match spans[..] {
        [one] => Plan::One(one),
        _ => Plan::Several(spans),
    }
}

/// Of a part whose whole length nobody said, one range with both ends may still be served.
fn known_part(wanted: &[Wanted], extent: Extent) -> Plan {
    match wanted {
        [Wanted::From(first, Some(last))] if extent.first <= *first && *last < extent.end() => {
            Plan::One(Span { first: *first, last: *last })
        }
        _ => Plan::NotHere,
    }
}

/// The ranges asked for; nothing when there is no Range, or one that does not count.
pub fn wanted(headers: &HeaderMap) -> Option<Vec<Wanted>> {
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

fn one_wanted(member: &[u8]) -> Option<Wanted> {
    let dash = member.iter().position(|byte| *byte == b'-')?;
    let (first, last) = (&member[..dash], &member[dash + 1..]);
    match (first, last) {
        ([], last) => Some(Wanted::Last(byte_count(last)?)),
        (first, []) => Some(Wanted::From(byte_count(first)?, None)),
        (first, last) => {
            let (first, last) = (byte_count(first)?, byte_count(last)?);
            (first <= last).then_some(Wanted::From(first, Some(last)))
        }
    }
}

/// What a wanted range is of a whole of `total` bytes; nothing when it lies outside (RFC 9110 section 14.1.2).
pub fn span(wanted: Wanted, total: u64) -> Option<Span> {
    let last = total.checked_sub(1)?;
    match wanted {
        Wanted::From(first, until) if first <= last => {
            Some(Span { first, last: until.map_or(last, |until| until.min(last)) })
        }
        Wanted::Last(bytes) if bytes > 0 => Some(Span { first: total.saturating_sub(bytes), last }),
        _ => None,
    }
}

/// Sorted, with those that overlap or touch made one.
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
pub(super) fn holds(headers: &HeaderMap, meta: &Meta<'_>, now: WallSeconds) -> bool {
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

/// `bytes 4-9/10` or `bytes 4-9/*` as an extent; nothing when it is malformed, empty, or says nothing of bytes.
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

/// What If-Range may be given for a stored reply: a strong tag, or a strong date.
pub fn strong_validator(meta: &Meta<'_>) -> Option<String> {
    if let Some(tag) = meta.entity_tag() {
        return (!tag.weak).then(|| String::from_utf8(tag.text.to_vec()).ok()).flatten();
    }
    let changed = meta.facts.changed_at.filter(|changed| is_strong_date(*changed, meta.facts.made_at))?;
    Some(String::from_utf8_lossy(&date::format(changed)).into_owned())
}

/// What two parts make together, when they share the same strong tag, agree on the whole, and overlap or touch
/// (RFC 9111 section 3.4). The newer one's fields are used.
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

/// The head of one part of a multipart/byteranges body, its leading line break included (RFC 9110 section 14.6).
pub fn part_head(boundary: &str, content_type: Option<&str>, span: Span, total: u64) -> String {
    let kind = content_type.map_or_else(String::new, |kind| format!("Content-Type: {kind}\r\n"));
    let range = content_range_value(Some(span), Some(total));
    format!("\r\n--{boundary}\r\n{kind}Content-Range: {range}\r\n\r\n")
}

/// The end of a multipart/byteranges body.
pub fn parts_end(boundary: &str) -> String {
    format!("\r\n--{boundary}--\r\n")
}
