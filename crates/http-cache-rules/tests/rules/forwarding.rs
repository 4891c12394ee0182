//! Fields between hops, Via, Date, and Cache-Status (RFC 9110 section 7.6, RFC 9111 section 3.1, RFC 9211).

use http_cache_rules::cache_status::CacheStatus;
use http_cache_rules::forwarding::{
    Forwards, Received, add_date, add_via, age_value, count_forwards, is_loop, join_cookies, storable_fields,
    strip_hop_by_hop,
};
use http_cache_rules::reuse::ForwardReason;

use crate::{NOW, fields};

/// Section, fields, what is left of them on the next hop, and in the store.
#[rustfmt::skip]
const HOPS: &[(&str, &str, &str, &str)] = &[
    ("9110 7.6.1 end to end", "a: 1|etag: \"a\"", "a: 1|etag: \"a\"", "a: 1|etag: \"a\""),
    ("9110 7.6.1 named by Connection", "connection: a, close|a: 1|b: 2", "b: 2", "b: 2"),
    ("9110 7.6.1 named in another line, in any case", "connection: x|connection: A|a: 1|b: 2", "b: 2", "b: 2"),
    ("9110 7.6.1 Keep-Alive", "keep-alive: 1", "", ""),
    ("9110 7.6.1 Proxy-Connection", "proxy-connection: 1", "", ""),
    ("9110 10.1.4 TE", "te: trailers", "", ""),
    ("9112 6.1 Transfer-Encoding", "transfer-encoding: chunked", "", ""),
    ("9110 7.8 Upgrade", "upgrade: h2c", "", ""),
    ("9110 7.6.1 must not be named: Cache-Control", "connection: cache-control|cache-control: private", "cache-control: private", "cache-control: private"),
    ("9110 7.6.1 must not be named: Content-Length", "connection: content-length|content-length: 5", "content-length: 5", "content-length: 5"),
    ("9110 7.6.1 must not be named: Host", "connection: host|host: a", "host: a", "host: a"),
    ("9111 3.1 Proxy-Authenticate", "proxy-authenticate: a", "proxy-authenticate: a", ""),
    ("9111 3.1 Proxy-Authorization", "proxy-authorization: a", "proxy-authorization: a", ""),
    ("9111 3.1 Proxy-Authentication-Info", "proxy-authentication-info: a", "proxy-authentication-info: a", ""),
    ("9111 5.1 Age is in the facts", "age: 5", "age: 5", ""),
    (
        "9111 5.2.2.7 private with fields",
        "cache-control: private=\"a, b\"|a: 1|b: 2|c: 3",
        "cache-control: private=\"a, b\"|a: 1|b: 2|c: 3",
        "cache-control: private=\"a, b\"|c: 3",
    ),
    (
        "9111 5.2.2.4 no-cache with fields",
        "cache-control: no-cache=a|a: 1|c: 3",
        "cache-control: no-cache=a|a: 1|c: 3",
        "cache-control: no-cache=a|c: 3",
    ),
    ("9111 3.1 unknown fields are stored", "x-foo: 1|content-foo: 2", "x-foo: 1|content-foo: 2", "x-foo: 1|content-foo: 2"),
];

#[test]
fn fields_go_on_and_are_stored_as_the_sections_say() {
    for (section, lines, forwarded, stored) in HOPS {
        let (mut on, mut kept) = (fields(lines), fields(lines));
        strip_hop_by_hop(&mut on);
        storable_fields(&mut kept);
        assert_eq!((on, kept), (fields(forwarded), fields(stored)), "{section}");
    }
}

#[test]
fn a_reply_without_a_readable_date_gets_one() {
    for (before, after) in [("", "date: @0"), ("date: x", "date: @0"), ("date: @-60", "date: @-60")] {
        let mut headers = fields(before);
        add_date(&mut headers, NOW);
        assert_eq!(headers, fields(after), "RFC 9110 section 6.6.1");
    }
}

#[test]
fn via_is_appended_and_tells_loops() {
    let mut headers = fields("via: 1.0 fred, 1.1 p.example");
    assert!(!is_loop(&headers, "crumb"));
    add_via(&mut headers, Received::Http11, "crumb");
    add_via(&mut headers, Received::Http2, "other");
    assert_eq!(
        headers,
        fields("via: 1.0 fred, 1.1 p.example|via: 1.1 crumb|via: 2.0 other"),
        "RFC 9110 section 7.6.3"
    );
    assert!(is_loop(&headers, "crumb") && is_loop(&headers, "fred") && !is_loop(&headers, "1.1"));
    assert!(is_loop(&fields("via: HTTP/1.1 crumb (a, crumb comment)"), "crumb"));
    assert!(!is_loop(&fields("via: 1.1 x (not crumb)"), "crumb"));
}

#[test]
fn max_forwards_counts_down_to_the_last() {
    for (before, after, what) in [
        ("max-forwards: 5", "max-forwards: 4", Forwards::Goes),
        ("max-forwards: 0", "max-forwards: 0", Forwards::Last),
        ("", "", Forwards::Goes),
        ("max-forwards: x", "max-forwards: x", Forwards::Goes),
    ] {
        let mut headers = fields(before);
        assert_eq!((count_forwards(&mut headers), headers), (what, fields(after)), "RFC 9110 section 7.6.2");
    }
    assert_eq!(age_value(1 << 31), "2147483648");
}

#[test]
fn cache_status_is_a_structured_field_after_those_of_other_caches() {
    let hit = CacheStatus::hit("edge", 376);
    let mut revalidated = CacheStatus::forwarded("edge", ForwardReason::Stale);
    (revalidated.forward_status, revalidated.stored) = (Some(304), true);
    let mut odd = CacheStatus::forwarded("Crumb at \"home\"", ForwardReason::VaryMiss);
    (odd.collapsed, odd.key, odd.detail) = (true, Some("http://a.example/ü"), Some("set-cookie"));
    for (status, text) in [
        (&hit, "edge; hit; ttl=376"),
        (&CacheStatus::hit("edge", -5), "edge; hit; ttl=-5"),
        (&revalidated, "edge; fwd=stale; fwd-status=304; stored"),
        (&CacheStatus::forwarded("edge", ForwardReason::UriMiss), "edge; fwd=uri-miss"),
        (&CacheStatus::forwarded("edge", ForwardReason::Request), "edge; fwd=request"),
        (&CacheStatus::forwarded("edge", ForwardReason::Bypass), "edge; fwd=bypass"),
        (&CacheStatus::forwarded("edge", ForwardReason::Method), "edge; fwd=method"),
        (&CacheStatus::forwarded("edge", ForwardReason::Partial), "edge; fwd=partial"),
        (
            &odd,
            r#""Crumb at \"home\""; fwd=vary-miss; collapsed; key="http://a.example/?"; detail=set-cookie"#,
        ),
    ] {
        assert_eq!(status.to_string(), text, "RFC 9211 section 2");
    }
    let mut headers = fields("cache-status: origin; hit");
    hit.append_to(&mut headers);
    assert_eq!(
        headers,
        fields("cache-status: origin; hit|cache-status: edge; hit; ttl=376"),
        "RFC 9211 section 2"
    );
}

#[test]
fn cookies_in_lines_of_their_own_become_one_line_in_their_order() {
    let rows = [
        ("", ""),
        ("cookie: a=1", "cookie: a=1"),
        ("cookie: a=1|b: 2|cookie: c=3; d=4|cookie: e=é", "b: 2|cookie: a=1; c=3; d=4; e=é"),
    ];
    for (sent, expected) in rows {
        let mut headers = fields(sent);
        join_cookies(&mut headers);
        assert_eq!(headers, fields(expected), "9113 8.2.3: {sent}");
    }
}
