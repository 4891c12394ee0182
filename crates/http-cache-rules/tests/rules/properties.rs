//! What holds for any bytes: nothing panics, nothing grows younger or fresher, and what is written is read.

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use http_cache_rules::facts::meta_bytes;
use http_cache_rules::reuse::{Held, evaluate};
use http_cache_rules::vary::{Vary, matches, write_variant};
use http_cache_rules::*;
use proptest::prelude::*;

use crate::NOW;

/// Names that the rules look at, and two that they do not.
const NAMES: [&str; 28] = [
    "cache-control",
    "cdn-cache-control",
    "pragma",
    "expires",
    "date",
    "last-modified",
    "age",
    "vary",
    "etag",
    "authorization",
    "set-cookie",
    "content-length",
    "content-range",
    "content-location",
    "range",
    "if-range",
    "if-match",
    "if-none-match",
    "if-modified-since",
    "connection",
    "via",
    "accept-encoding",
    "accept-language",
    "transfer-encoding",
    "max-forwards",
    "foo",
    "bar",
    "location",
];

/// Pieces that values are made of, so that near misses are common.
fn value() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        "(max-age|s-maxage|max-stale|min-fresh|stale-if-error|stale-while-revalidate)(=\"?[0-9]{0,12}\"?)?",
        "(no-cache|private)(=\"?(foo|set-cookie)\"?)?",
        "no-store|public|must-revalidate|proxy-revalidate|must-understand|immutable|only-if-cached",
        "(W/)?\"[a-c]?\"|\\*|foo|bar|[0-9]{1,20}",
        "(bytes[= ])?[0-9]{0,20}-[0-9]{0,20}(/[0-9*]{1,3})?",
        "(Sun|Thu|Sunday), ?[0-9]{2}[ -](Nov|Feb)[ -](19)?[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2} GMT",
        "[a-z]{2}(;q=[01](\\.[0-9]{0,4})?)?",
        "//?[a-z.%/?#]{0,9}|https?://[a-z.:%@/]{0,12}",
        "[ -~]{0,12}",
    ];
    let joined = prop::collection::vec(piece, 0..4).prop_map(|pieces| pieces.join(", ").into_bytes());
    let raw = prop::collection::vec(any::<u8>(), 0..24);
    prop_oneof![8 => joined, 1 => raw].prop_map(|mut bytes| {
        bytes.retain(|byte| *byte == b'\t' || (*byte >= 0x20 && *byte != 0x7f));
        bytes
    })
}

fn headers() -> impl Strategy<Value = HeaderMap> {
    prop::collection::vec((0..NAMES.len(), value()), 0..7).prop_map(|lines| {
        let mut headers = HeaderMap::new();
        for (name, value) in lines {
            headers.append(
                HeaderName::from_static(NAMES[name]),
                HeaderValue::from_bytes(&value).expect("filtered"),
            );
        }
        headers
    })
}

fn status() -> impl Strategy<Value = StatusCode> {
    prop_oneof![3 => Just(200), 1 => Just(206), 1 => 100..999_u16]
        .prop_map(|status| StatusCode::from_u16(status).expect("a status"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn whatever_is_exchanged_is_judged_and_what_is_stored_is_read_back(
        request_headers in headers(), headers in headers(), status in status(), way_s in 0..100_i64, later_s in 0..100_000_i64,
    ) {
        let request = RequestFacts::of(&Method::GET, &request_headers);
        let target: Uri = "http://a.example/x".parse().expect("a target");
        let exchange = Exchange {
            target: &target, request: &request, request_headers: &request_headers,
            requested_at: WallSeconds(NOW.0 - way_s), answered_at: NOW, status, headers: &headers,
        };
        let policy = Policy { targets: vec![HeaderName::from_static("cdn-cache-control")], ..Policy::default() };
        prop_assert!(!invalidation::invalidated(request::MethodKind::Post, &target, status, &headers).contains(&key::CacheKey::of(&"http://b.example/".parse().expect("a target")).expect("a key")));
        let Ok(facts) = judge(&exchange, &policy) else { return Ok(()) };
        let bytes = meta_bytes(facts, &headers, &request_headers);
        let meta = Meta::from_bytes(&bytes).expect("what was written is read");
        prop_assert_eq!(meta.facts, facts);
        prop_assert_eq!(meta.to_bytes(), bytes.clone());
        prop_assert!(meta.answers(&request_headers, &mut Vec::new()), "a reply answers the request that it came for");
        let now = WallSeconds(NOW.0 + later_s);
        let decision = evaluate(&request, Held::Reply(&facts), &policy, now);
        if let Reuse::Serve { age_s, stale } = decision {
            prop_assert_eq!(age_s, facts.age_s(now));
            prop_assert_eq!(stale, !facts.is_fresh(now));
            prop_assert!(!facts.no_cache, "RFC 9111 section 5.2.2.4");
            prop_assert!(!stale || !facts.forbids_stale, "RFC 9111 section 5.2.2.2");
        }
        if let ranges::Plan::Several(spans) = ranges::plan(&request_headers, &meta, now) {
            let total: u64 = spans.iter().map(|span| span.bytes()).sum();
            prop_assert!(total <= facts.extent.total.expect("a known whole"), "no byte is sent twice");
        }
        let _never_panics = (
            conditional::evaluate(&request_headers, &meta, now),
            update::identify(&[meta], 0, &request_headers, &policy),
            update::head_says(&meta, status, &request_headers),
            completion::Completion::of(&request_headers, &meta, now),
        );
        let mut stored = headers.clone();
        forwarding::strip_hop_by_hop(&mut stored);
        update::merge(&mut stored, &request_headers);
        forwarding::storable_fields(&mut stored);
        prop_assert!(!stored.contains_key("connection") && !stored.contains_key("age"));
    }

    #[test]
    fn age_never_falls_and_freshness_never_comes_back(lifetime_s in any::<u32>(), age_s in any::<u32>(), first in any::<i64>(), second in any::<i64>()) {
        let plain = crate::storing::judged("GET", "", 200, "cache-control: max-age=60", &Policy::default()).expect("stored");
        let facts = StoredFacts { lifetime_s, initial_age_s: age_s, ..plain };
        let (earlier, later) = (WallSeconds(first.min(second)), WallSeconds(first.max(second)));
        prop_assert!(facts.age_s(earlier) <= facts.age_s(later));
        prop_assert!(facts.is_fresh(earlier) || !facts.is_fresh(later));
        prop_assert!(facts.staleness_s(earlier) <= facts.staleness_s(later));
    }

    #[test]
    fn any_bytes_are_read_as_facts_or_refused(mut bytes in prop::collection::vec(any::<u8>(), 0..160), first in 0..2_u8) {
        if let Some(version) = bytes.first_mut() {
            *version = first;
        }
        if let Ok(meta) = Meta::from_bytes(&bytes) {
            prop_assert_eq!(meta.to_bytes(), bytes);
        }
    }

    #[test]
    fn any_bytes_are_a_head_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..120)) {
        prop_assert!(framing::check_request(&bytes).is_err() || bytes.ends_with(b"\r\n\r\n"));
        prop_assert!(framing::check_reply(&bytes, false).is_err() || bytes.ends_with(b"\r\n\r\n"));
    }

    /// Heads that are nearly right: the accepted ones give every line a name, and never two lengths.
    #[test]
    fn a_head_that_is_accepted_has_one_length_and_no_odd_line(
        lines in prop::collection::vec("(Content-Length|Transfer-Encoding|Host|A|[ \t]A|A ?)(:|)[ \t]?(chunked|5|6|a|\n|\r|\0|,){0,3}(\r\n|\n|\r)", 0..5),
    ) {
        let head = format!("POST / HTTP/1.1\r\nHost: a\r\n{}\r\n", lines.concat());
        if let Ok(framing) = framing::check_request(head.as_bytes()) {
            let lower = head.to_ascii_lowercase();
            let (lengths, chunked) = (lower.matches("\r\ncontent-length:").count(), lower.contains("\r\ntransfer-encoding:"));
            prop_assert!(!(lengths > 0 && chunked), "{head:?}");
            prop_assert_eq!(framing.body == framing::BodyLength::Chunked, chunked);
            prop_assert!(head.split("\r\n").all(|line| !line.contains(['\n', '\r', '\0']) && !line.starts_with([' ', '\t'])));
        }
    }

    #[test]
    fn a_key_is_its_own_key(text in "https?://[a-zA-Z.]{1,8}(:[0-9]{1,4})?(/[a-zA-Z0-9%./]{0,12})?(\\?[a-z%=&]{0,8})?", reference in "[ -~]{0,20}") {
        let Ok(target) = text.parse::<Uri>() else { return Ok(()) };
        let key = key::CacheKey::of(&target).expect("an absolute target");
        let again = key::CacheKey::of(&key.as_str().parse().expect("a key is a target")).expect("a key");
        prop_assert_eq!(&key, &again);
        let _never_panics = key::resolve(&target, reference.as_bytes());
    }

    #[test]
    fn equal_variants_agree_in_every_field_but_for_what_syntax_ignores(one in headers(), other in headers(), reply in headers()) {
        let names = Vary::of(&reply).names();
        let mut variant = Vec::new();
        write_variant(&names, &one, &mut variant);
        prop_assert!(matches(&names, &variant, &one, &mut Vec::new()));
        if matches(&names, &variant, &other, &mut Vec::new()) && names != b"*" {
            for name in names.split(|byte| *byte == b',').filter(|name| !name.is_empty()) {
                let name = HeaderName::from_bytes(name).expect("a name");
                prop_assert_eq!(one.contains_key(&name), other.contains_key(&name));
            }
        }
    }

    #[test]
    fn any_text_is_a_date_or_not(text in prop::collection::vec(any::<u8>(), 0..40), now in any::<i64>()) {
        let _never_panics = date::parse(&text, WallSeconds(now / 1_000_000));
        let _never_panics = date::format(WallSeconds(now));
    }
}
