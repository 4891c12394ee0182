//! What may be stored (RFC 9111 section 3), one row a rule.

use http::{HeaderName, Method, StatusCode};
use http_cache_rules::policy::SetCookie;
use http_cache_rules::storing::{BodyEnd, Exchange, body_ended, is_understood};
use http_cache_rules::{Extent, Policy, RequestFacts, StoredFacts, judge};

use crate::{NOW, fields};

pub fn judged(
    method: &str,
    request: &str,
    status: u16,
    reply: &str,
    policy: &Policy,
) -> Result<StoredFacts, &'static str> {
    let (request_headers, headers) = (fields(request), fields(reply));
    let method = Method::from_bytes(method.as_bytes()).expect("a method");
    let exchange = Exchange {
        target: &"http://a.example/x?y".parse().expect("a target"),
        request: &RequestFacts::of(&method, &request_headers),
        request_headers: &request_headers,
        requested_at: NOW,
        answered_at: NOW,
        status: StatusCode::from_u16(status).expect("a status"),
        headers: &headers,
    };
    judge(&exchange, policy).map_err(|refusal| {
        assert!(!refusal.section().is_empty());
        refusal.name()
    })
}

/// Section, method, request's fields, status, reply's fields, and why it is refused or `stored`.
type Row = (&'static str, &'static str, &'static str, u16, &'static str, &'static str);

const FRESH: &str = "cache-control: max-age=60";

#[rustfmt::skip]
const ROWS: &[Row] = &[
    // Methods.
    ("9110 9.2.3 GET", "GET", "", 200, FRESH, "stored"),
    ("9110 9.2.3 HEAD updates, but has no content", "HEAD", "", 200, FRESH, "method"),
    ("9110 9.2.3 PUT", "PUT", "", 200, FRESH, "method"),
    ("9110 9.2.3 DELETE", "DELETE", "", 200, FRESH, "method"),
    ("9110 9.3.7 OPTIONS", "OPTIONS", "", 200, FRESH, "method"),
    ("9110 9.1 methods have regard to case", "get", "", 200, FRESH, "method"),
    ("9110 9.3.3 POST", "POST", "", 200, FRESH, "method"),
    ("9110 9.3.3 POST that is what GET would bring", "POST", "", 200, "cache-control: max-age=60|content-location: /x?y", "stored"),
    ("9110 9.3.3 absolute", "POST", "", 200, "cache-control: max-age=60|content-location: http://A.example:80/x?y", "stored"),
    ("9110 9.3.3 POST that is something else", "POST", "", 200, "cache-control: max-age=60|content-location: /z", "method"),
    ("9110 9.3.3 POST without explicit freshness", "POST", "", 200, "last-modified: @-86400|content-location: /x?y", "method"),
    // Statuses.
    ("9111 3 any final status with explicit freshness", "GET", "", 201, FRESH, "stored"),
    ("9111 3 unknown ones too", "GET", "", 299, FRESH, "stored"),
    ("9111 3 302", "GET", "", 302, FRESH, "stored"),
    ("9111 3 307", "GET", "", 307, FRESH, "stored"),
    ("9111 3 403", "GET", "", 403, FRESH, "stored"),
    ("9111 3 500", "GET", "", 500, FRESH, "stored"),
    ("9111 3 599", "GET", "", 599, FRESH, "stored"),
    ("9111 3 interim", "GET", "", 103, FRESH, "status"),
    ("9111 4.3.3 304 updates, and is not stored", "GET", "", 304, FRESH, "status"),
    ("9110 15.5.8 407 is for one client", "GET", "", 407, FRESH, "status"),
    ("9110 15.5.13 412 answers a condition", "GET", "", 412, FRESH, "status"),
    ("9110 15.5.17 416 answers a range", "GET", "", 416, FRESH, "status"),
    ("6585 3 428", "GET", "", 428, FRESH, "status"),
    ("6585 4 429", "GET", "", 429, FRESH, "status"),
    ("6585 5 431", "GET", "", 431, FRESH, "status"),
    ("6585 6 511", "GET", "", 511, FRESH, "status"),
    // no-store, private, must-understand.
    ("9111 5.2.2.5", "GET", "", 200, "cache-control: max-age=60, no-store", "no-store"),
    ("9111 5.2.1.5", "GET", "cache-control: no-store", 200, FRESH, "request-no-store"),
    ("9111 5.2.2.7", "GET", "", 200, "cache-control: max-age=60, private", "private"),
    ("9111 5.2.2.7 wins over public", "GET", "", 200, "cache-control: public, private, s-maxage=60", "private"),
    ("9111 5.2.2.7 with fields", "GET", "", 200, "cache-control: max-age=60, private=\"foo\"", "stored"),
    ("9111 5.2.2.3 understood, and so in spite of no-store", "GET", "", 200, "cache-control: max-age=60, no-store, must-understand", "stored"),
    ("9111 5.2.2.3 not understood", "GET", "", 599, "cache-control: max-age=60, must-understand", "must-understand"),
    ("9111 5.2.2.3 not understood, with no-store", "GET", "", 299, "cache-control: max-age=60, no-store, must-understand", "must-understand"),
    ("9110 5.6.4 an unclosed quote may hide private", "GET", "", 200, "cache-control: max-age=60, x=\"y, private", "no-store"),
    ("9110 7.6.1 Connection cannot hide private", "GET", "", 200, "cache-control: private, max-age=60|connection: cache-control", "private"),
    // Authorization.
    ("9111 3.5", "GET", "authorization: x", 200, FRESH, "authorization"),
    ("9111 3.5 Expires is not enough", "GET", "authorization: x", 200, "expires: @60", "authorization"),
    ("9111 3.5 public", "GET", "authorization: x", 200, "cache-control: max-age=60, public", "stored"),
    ("9111 3.5 must-revalidate", "GET", "authorization: x", 200, "cache-control: max-age=60, must-revalidate", "stored"),
    ("9111 3.5 s-maxage", "GET", "authorization: x", 200, "cache-control: s-maxage=60", "stored"),
    ("9111 3.5 proxy-revalidate is not among them", "GET", "authorization: x", 200, "cache-control: max-age=60, proxy-revalidate", "authorization"),
    ("9111 3.5 nor is no-cache", "GET", "authorization: x", 200, "cache-control: no-cache|etag: \"a\"", "authorization"),
    // Cookies.
    ("9111 7.3 Set-Cookie", "GET", "", 200, "cache-control: max-age=60|set-cookie: a=b", "set-cookie"),
    ("9111 7.3 told by public", "GET", "", 200, "cache-control: max-age=60, public|set-cookie: a=b", "stored"),
    ("9111 7.3 told by s-maxage", "GET", "", 200, "cache-control: s-maxage=60|set-cookie: a=b", "stored"),
    ("9111 5.2.2.4 taken out by no-cache", "GET", "", 200, "cache-control: max-age=60, no-cache=\"set-cookie\"|set-cookie: a=b", "stored"),
    ("9111 5.2.2.7 taken out by private", "GET", "", 200, "cache-control: max-age=60, private=\"Set-Cookie\"|set-cookie: a=b", "stored"),
    ("9111 5.2.2.7 another field taken out", "GET", "", 200, "cache-control: max-age=60, private=\"a\"|set-cookie: a=b", "set-cookie"),
    ("9111 7.3 a request's cookie does not matter", "GET", "cookie: a=b", 200, FRESH, "stored"),
    // Vary.
    ("9111 4.1 Vary: *", "GET", "", 200, "cache-control: max-age=60|vary: *", "vary-any"),
    ("9111 4.1 Vary: foo", "GET", "foo: 1", 200, "cache-control: max-age=60|vary: foo", "stored"),
    // What is needed for it to be of use.
    ("9111 3 Expires", "GET", "", 200, "expires: @60", "stored"),
    ("9111 3 s-maxage", "GET", "", 200, "cache-control: s-maxage=60", "stored"),
    ("9111 3 a guess by Last-Modified", "GET", "", 200, "last-modified: @-86400", "stored"),
    ("9110 15.1 no guess for 201", "GET", "", 201, "last-modified: @-86400", "no-lifetime"),
    ("9110 15.1 no guess for 302", "GET", "", 302, "last-modified: @-86400", "no-lifetime"),
    ("9110 15.1 no guess for 403", "GET", "", 403, "last-modified: @-86400", "no-lifetime"),
    ("9110 15.1 no guess for 502", "GET", "", 502, "last-modified: @-86400", "no-lifetime"),
    ("9110 15.1 a guess for 301", "GET", "", 301, "last-modified: @-86400", "stored"),
    ("9110 15.1 a guess for 404", "GET", "", 404, "last-modified: @-86400", "stored"),
    ("9110 15.1 a guess for 501", "GET", "", 501, "last-modified: @-86400", "stored"),
    ("9111 4.2.2 a guess for any when public", "GET", "", 599, "cache-control: public|last-modified: @-86400", "stored"),
    ("9111 4 neither lifetime nor validator", "GET", "", 200, "", "useless"),
    ("9111 4 stale from the start, without a validator", "GET", "", 200, "cache-control: max-age=0", "useless"),
    ("9111 4 stale from the start, with a tag", "GET", "", 200, "cache-control: max-age=0|etag: \"a\"", "stored"),
    ("9111 4 a tag that is none does not help", "GET", "", 200, "cache-control: max-age=0|etag: a", "useless"),
    ("9111 4 two tags are none", "GET", "", 200, "cache-control: max-age=0|etag: \"a\"|etag: \"b\"", "useless"),
    ("9111 5.2.2.4 no-cache with a tag", "GET", "", 200, "cache-control: no-cache|etag: \"a\"", "stored"),
    ("9111 5.2.2.4 no-cache without one", "GET", "", 200, "cache-control: no-cache, max-age=60", "useless"),
    ("5861 3 stale from the start, to be served so", "GET", "", 200, "cache-control: max-age=0, stale-while-revalidate=60", "stored"),
    ("5861 4 stale from the start, for errors", "GET", "", 200, "cache-control: max-age=0, stale-if-error=60", "stored"),
    ("9111 5.3 an unreadable Expires with a tag", "GET", "", 200, "expires: 0|etag: \"a\"", "stored"),
    ("9111 5.1 older than its lifetime, with a tag", "GET", "", 200, "cache-control: max-age=60|age: 61|etag: \"a\"", "stored"),
    ("9111 5.1 older than its lifetime, without", "GET", "", 200, "cache-control: max-age=60|age: 61", "useless"),
    // Parts.
    ("9111 3.3 a part", "GET", "range: bytes=0-4", 206, "cache-control: max-age=60|content-range: bytes 0-4/10", "stored"),
    ("9110 15.3.7 a part that does not say where", "GET", "range: bytes=0-4", 206, FRESH, "part-unreadable"),
    ("9110 15.3.7.2 several parts in one", "GET", "range: bytes=0-4,6-", 206, "cache-control: max-age=60|content-type: multipart/byteranges;boundary=a", "part-unreadable"),
    ("9110 14.4 a part that ends past the end", "GET", "range: bytes=0-4", 206, "cache-control: max-age=60|content-range: bytes 0-10/10", "part-unreadable"),
    ("9110 14.4 a length that is not the part's", "GET", "range: bytes=0-4", 206, "cache-control: max-age=60|content-range: bytes 0-4/10|content-length: 4", "part-unreadable"),
    ("9110 14.4 the whole's length unknown", "GET", "range: bytes=0-4", 206, "cache-control: max-age=60|content-range: bytes 0-4/*", "stored"),
    ("9110 14.2 the whole although a range was asked for", "GET", "range: bytes=0-4", 200, FRESH, "stored"),
];

#[test]
fn replies_are_stored_or_refused_as_the_sections_say() {
    for (section, method, request, status, reply, outcome) in ROWS {
        let judged = judged(method, request, *status, reply, &Policy::default());
        assert_eq!(
            judged.map_or_else(|refusal| refusal, |_| "stored"),
            *outcome,
            "{section}: {method} {request} -> {status} {reply}"
        );
    }
}

#[test]
fn the_operator_decides_about_cookies_errors_and_targets() {
    let cookie = "cache-control: s-maxage=60|set-cookie: a=b";
    let refuse = Policy { set_cookie: SetCookie::Refuse, ..Policy::default() };
    assert_eq!(judged("GET", "", 200, cookie, &refuse).map(|_| ()), Err("set-cookie"));
    let store = Policy { set_cookie: SetCookie::Store, ..Policy::default() };
    assert!(judged("GET", "", 200, "cache-control: max-age=60|set-cookie: a=b", &store).is_ok());

    let negative = Policy { negative_s: 30, ..Policy::default() };
    for (status, lifetime) in [(404, Some(30)), (503, Some(30)), (403, Some(30)), (401, None), (302, None)] {
        let judged = judged("GET", "", status, "", &negative);
        assert_eq!(judged.ok().map(|facts| facts.lifetime_s), lifetime, "{status}");
    }
    let own = judged("GET", "", 404, "cache-control: max-age=5", &negative).expect("stored");
    assert_eq!(own.lifetime_s, 5, "an error's own lifetime counts");

    let cdn = Policy { targets: vec![HeaderName::from_static("cdn-cache-control")], ..Policy::default() };
    let reply = "cache-control: no-store|cdn-cache-control: max-age=60";
    assert!(judged("GET", "", 200, reply, &cdn).is_ok(), "RFC 9213 section 2.2");
    assert!(judged("GET", "", 200, reply, &Policy::default()).is_err());
    let stale =
        judged("GET", "", 200, "expires: @600|cdn-cache-control: public|etag: \"a\"", &cdn).expect("stored");
    assert_eq!(stale.lifetime_s, 0, "Expires does not count beside a targeted field (RFC 9213 section 2.2)");
}

#[test]
fn a_variant_too_long_to_keep_is_not_stored() {
    let request = format!("foo: {}", "x".repeat(20_000));
    let reply = "cache-control: max-age=60|vary: foo";
    assert_eq!(judged("GET", &request, 200, reply, &Policy::default()).map(|_| ()), Err("variant-too-long"));
}

/// Section, status, first byte, announced, received, ended well, strong validator, what becomes of it.
type EndRow = (&'static str, u16, u64, Option<u64>, u64, bool, bool, BodyEnd);

fn part(first: u64, length: u64, total: u64) -> BodyEnd {
    BodyEnd::Part(Extent { first, length, total: Some(total) })
}

#[test]
fn a_body_that_is_cut_off_is_never_taken_as_whole() {
    let whole = |bytes| BodyEnd::Whole(Extent::whole(bytes));
    let of_206 = BodyEnd::Whole(Extent { first: 10, length: 5, total: Some(20) });
    #[rustfmt::skip]
    let rows: [EndRow; 11] = [
        ("9112 8 all announced bytes", 200, 0, Some(10), 10, true, false, whole(10)),
        ("9112 8 no length, last chunk seen", 200, 0, None, 10, true, false, whole(10)),
        ("9112 8 no length, cut off", 200, 0, None, 10, false, true, BodyEnd::Discard),
        ("9112 8 fewer, no validator", 200, 0, Some(10), 9, false, false, BodyEnd::Discard),
        ("9111 3.3 fewer, strong validator", 200, 0, Some(10), 9, false, true, part(0, 9, 10)),
        ("9111 3.3 none of them", 200, 0, Some(10), 0, false, true, BodyEnd::Discard),
        ("9111 3.3 only of a 200", 404, 0, Some(10), 9, false, true, BodyEnd::Discard),
        ("9112 8 more than announced", 200, 0, Some(10), 11, false, true, BodyEnd::Discard),
        ("9111 3.3 a part, all of it", 206, 10, Some(5), 5, true, false, of_206),
        ("9111 3.3 a part, cut off", 206, 10, Some(5), 3, false, true, part(10, 3, 20)),
        ("9111 3.3 a part, cut off, no validator", 206, 10, Some(5), 3, false, false, BodyEnd::Discard),
    ];
    for (section, status, first, announced, received, cleanly, strong, end) in rows {
        let reply = match status {
            206 => format!("cache-control: max-age=60|content-range: bytes {first}-14/20"),
            _ => FRESH.to_owned(),
        };
        let facts = judged("GET", "", status, &reply, &Policy::default()).expect("stored");
        assert_eq!(body_ended(&facts, strong, announced, received, cleanly), end, "{section}");
    }
}

#[test]
fn the_registered_statuses_are_understood_and_others_not() {
    for status in [200, 206, 304, 404, 451, 503] {
        assert!(is_understood(StatusCode::from_u16(status).expect("a status")), "{status}");
    }
    for status in [209, 299, 306, 418, 420, 499, 509, 599, 999] {
        assert!(!is_understood(StatusCode::from_u16(status).expect("a status")), "{status}");
    }
}
