//! A request's fields and its reply's, through every rule that reads them.
//!
//! ```text
//! 3 bytes: status, seconds later │ lines of the request │ empty line │ lines of the reply
//! ```

use http::header::{CACHE_CONTROL, CONTENT_RANGE, RANGE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use http_cache_rules::cache_status::{CACHE_STATUS, CacheStatus};
use http_cache_rules::reuse::{ForwardReason, Held, OnError};
use http_cache_rules::vary::{self, Vary};
use http_cache_rules::*;

/// Some moment: 2026-11-22, 00:00:00.
const NOW: WallSeconds = WallSeconds(1_795_305_600);
/// One that structured fields are read of.
const TARGETED: HeaderName = HeaderName::from_static("cdn-cache-control");

/// Returns whether the reply may be stored.
pub fn exchange(input: &[u8]) -> bool {
    let Some(([status, later @ ..], text)) = input.split_first_chunk::<3>() else { return false };
    let status = StatusCode::from_u16(
        [200, 206, 304, 404, 500, 301][usize::from(*status) % 6] + u16::from(*status) / 64,
    );
    let (status, later_s) = (status.expect("a status"), i64::from(u16::from_le_bytes(*later)));
    let (mut request_headers, mut headers) = (HeaderMap::new(), HeaderMap::new());
    let mut into = &mut request_headers;
    let mut of_reply = false;
    for line in text.split(|byte| *byte == b'\n') {
        if line.is_empty() && !of_reply {
            (into, of_reply) = (&mut headers, true);
        }
        let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
        let name = HeaderName::from_bytes(&line[..colon]);
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_bytes(line[colon + 1..].trim_ascii())) {
            into.append(name, value);
        }
    }
    for headers in [&request_headers, &headers] {
        each_line(headers);
        said_otherwise_it_says_the_same(headers);
    }
    judged(&request_headers, &headers, status, later_s)
}

/// The fields by themselves.
fn each_line(headers: &HeaderMap) {
    for line in headers.values().map(HeaderValue::as_bytes) {
        if let Some(at) = date::parse(line, NOW) {
            let written = date::format(at);
            assert_eq!(date::parse(&written, NOW), Some(at), "a date is another when it is written");
        }
        if let Some(extent) = ranges::content_range(line) {
            let last = extent.end() - 1;
            let written =
                ranges::content_range_value(Some(ranges::Span { first: extent.first, last }), extent.total);
            assert_eq!(ranges::content_range(written.as_bytes()), Some(extent), "{written}");
            assert!(extent.total.is_none_or(|total| extent.end() <= total), "past its whole");
        }
        for member in lists::members(line) {
            assert!(!member.is_empty() && member.trim_ascii() == member);
            let _never_panics =
                (lists::directive(member), lists::delta_seconds(member), lists::byte_count(member));
        }
        if let Some(tag) = validators::EntityTag::parse(line) {
            assert!(tag.weakly_equals(tag) && tag.strongly_equals(tag) != tag.weak);
        }
        if let Ok(text) = std::str::from_utf8(line) {
            cache_status_holds(text);
        }
    }
    let wanted = ranges::wanted(headers);
    for wanted in wanted.iter().flatten() {
        for total in [0, 1, 1000, u64::MAX] {
            let span = ranges::span(*wanted, total);
            assert!(
                span.is_none_or(|span| span.first <= span.last && span.last < total),
                "{wanted:?} of {total}"
            );
        }
    }
    assert!(wanted.is_none_or(|wanted| (1..=ranges::RANGES_MAX).contains(&wanted.len())));
    let names = Vary::of(headers).names();
    let mut again = HeaderMap::new();
    again.append("vary", HeaderValue::from_bytes(&names).expect("names"));
    assert_eq!(Vary::of(&again).names(), names, "names of Vary are others when they are read again");
}

/// Cache-Status holds whatever text.
fn cache_status_holds(text: &str) {
    let status = CacheStatus {
        key: Some(text),
        detail: Some(text),
        ..CacheStatus::forwarded(text, ForwardReason::Stale)
    };
    let mut headers = HeaderMap::new();
    status.append_to(&mut headers);
    let line = headers.get(CACHE_STATUS).expect("it can be a field's value").as_bytes();
    assert_eq!(lists::members(line).count(), 1, "{status}");
    let (mut quoted, mut escaped) = (false, false);
    for byte in line {
        assert!((0x20..0x7f).contains(byte), "{status}");
        (quoted, escaped) = match byte {
            _ if escaped => {
                assert!(
                    b"\"\\".contains(byte),
                    "only these may be escaped (RFC 8941 section 3.3.3): {status}"
                );
                (quoted, false)
            }
            b'\\' => {
                assert!(quoted, "{status}");
                (quoted, true)
            }
            b'"' => (!quoted, false),
            _ => (quoted, false),
        };
    }
    assert!(!quoted && !escaped, "{status}");
}

/// Lines joined to one list, other case, other space: no directive may change by it.
fn said_otherwise_it_says_the_same(headers: &HeaderMap) {
    let lines: Vec<&[u8]> = headers.get_all(CACHE_CONTROL).iter().map(HeaderValue::as_bytes).collect();
    // A quote that is left open ends with its line.
    if !lines.is_empty() && !lines.iter().any(|line| line.contains(&b'"')) {
        let mut other = headers.clone();
        let joined = lines.join(&b" , ,\t"[..]).to_ascii_uppercase();
        other.insert(CACHE_CONTROL, HeaderValue::from_bytes(&joined).expect("made of values"));
        assert_eq!(RequestDirectives::of(headers), RequestDirectives::of(&other));
        assert_eq!(ResponseDirectives::of(headers, &[]), ResponseDirectives::of(&other, &[]));
        assert_eq!(cache_control::withheld_fields(headers), cache_control::withheld_fields(&other));
    }
    if let Some(found) = targeted::directives(headers, &TARGETED) {
        assert!(found.targeted);
        let lines: Vec<&[u8]> = headers.get_all(TARGETED).iter().map(HeaderValue::as_bytes).collect();
        let mut other = headers.clone();
        let joined = lines.join(&b" ,\t"[..]);
        other.insert(TARGETED, HeaderValue::from_bytes(&joined).expect("made of values"));
        assert_eq!(targeted::directives(&other, &TARGETED), Some(found));
    }
}

/// All rules, as the proxy asks them.
fn judged(request_headers: &HeaderMap, headers: &HeaderMap, status: StatusCode, later_s: i64) -> bool {
    let request = RequestFacts::of(&Method::GET, request_headers);
    let target: Uri = "http://a.example/x".parse().expect("a target");
    let exchange = Exchange {
        target: &target,
        request: &request,
        request_headers,
        requested_at: WallSeconds(NOW.0 - later_s % 100),
        answered_at: NOW,
        status,
        headers,
    };
    let policy = Policy { targets: vec![TARGETED], ..Policy::default() };
    let invalidated = invalidation::invalidated(request::MethodKind::Post, &target, status, headers);
    assert!(
        invalidated.iter().all(|key| key.origin() == "http://a.example"),
        "another host's: {invalidated:?}"
    );
    passed_on(headers);
    passed_on(request_headers);
    let Ok(facts) = judge(&exchange, &policy) else { return false };
    let bytes = facts::meta_bytes(facts, headers, request_headers);
    let meta = Meta::from_bytes(&bytes).expect("what was written is read");
    assert_eq!((meta.facts, meta.to_bytes()), (facts, bytes.clone()));
    assert!(meta.answers(request_headers, &mut Vec::new()), "a reply answers the request that it came for");
    let now = WallSeconds(NOW.0 + later_s);
    match reuse::evaluate(&request, Held::Reply(&facts), &policy, now) {
        Reuse::Serve { age_s, stale } => {
            assert_eq!((age_s, stale), (facts.age_s(now), !facts.is_fresh(now)));
            assert!(!facts.no_cache, "RFC 9111 section 5.2.2.4");
            assert!(!stale || !facts.forbids_stale, "RFC 9111 section 5.2.2.2");
        }
        Reuse::ServeStaleWhileRevalidate { .. } => assert!(!facts.no_cache && !facts.forbids_stale),
        _ => {}
    }
    if let OnError::ServeStale { .. } =
        reuse::on_error(&request, &facts, reuse::Failure::NoReply, &policy, now)
    {
        assert!(facts.is_fresh(now) || !facts.forbids_stale && !facts.no_cache, "RFC 9111 section 4.2.4");
    }
    match ranges::plan(request_headers, &meta, now) {
        ranges::Plan::One(span) => within(&[span], &facts),
        ranges::Plan::Several(spans) => within(&spans, &facts),
        _ => {}
    }
    if let Some(completion) = completion::Completion::of(request_headers, &meta, now) {
        let mut asks = request_headers.clone();
        completion.request_missing(&mut asks);
        assert_eq!(
            ranges::wanted(&asks).map(|wanted| wanted.len()),
            Some(1),
            "one range is asked for: {asks:?}"
        );
    }
    let _never_panics = (
        conditional::evaluate(request_headers, &meta, now),
        update::identify(&[meta], 0, request_headers, &policy),
        update::head_says(&meta, status, request_headers),
    );
    let mut variant = Vec::new();
    vary::write_variant(meta.vary_names, request_headers, &mut variant);
    assert_eq!(variant, meta.variant);
    true
}

fn within(spans: &[ranges::Span], facts: &StoredFacts) {
    let extent = facts.extent;
    let mut sorted = spans.to_vec();
    sorted.sort_unstable();
    assert!(sorted.windows(2).all(|pair| pair[0].last < pair[1].first), "a byte is sent twice: {spans:?}");
    assert!(
        spans.iter().all(|span| extent.first <= span.first && span.last < extent.end()),
        "{spans:?} of {extent:?}"
    );
}

/// What is sent on, and what is stored.
fn passed_on(headers: &HeaderMap) {
    let mut left = headers.clone();
    forwarding::strip_hop_by_hop(&mut left);
    for name in ["connection", "keep-alive", "te", "transfer-encoding", "upgrade", "proxy-connection"] {
        assert!(!left.contains_key(name), "{name} goes on");
    }
    let mut again = left.clone();
    forwarding::strip_hop_by_hop(&mut again);
    assert_eq!(again, left);
    forwarding::storable_fields(&mut left);
    assert!(!left.contains_key("age") && !left.contains_key("proxy-authorization"));
    let withheld = cache_control::withheld_fields(headers);
    assert!(withheld.iter().all(|name| !left.contains_key(name)), "a withheld field is stored");
    let mut stored = left.clone();
    update::merge(&mut stored, headers);
    for name in [CONTENT_RANGE, RANGE] {
        // A reply without bytes changes nothing about those that are there; Range is no field of a reply.
        assert!(name == RANGE || stored.get(&name) == left.get(&name), "{name} is merged");
    }
    forwarding::add_via(&mut stored, forwarding::Received::Http11, "crumb");
    assert!(
        forwarding::is_loop(&stored, "crumb"),
        "its own name is not seen again: {:?}",
        stored.get_all("via")
    );
    let _never_panics = forwarding::count_forwards(&mut stored);
}
