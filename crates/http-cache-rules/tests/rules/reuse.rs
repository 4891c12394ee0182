//! What is done with a request, given what is stored (RFC 9111 section 4).

use http::{Method, StatusCode};
use http_cache_rules::facts::meta_bytes;
use http_cache_rules::reuse::{Failure, Held, OnError, evaluate, is_error_status, on_error, select};
use http_cache_rules::{Meta, Policy, RequestFacts, Reuse, WallSeconds};

use crate::storing::judged;
use crate::{NOW, fields};

fn shown(reuse: Reuse) -> String {
    match reuse {
        Reuse::Serve { age_s, stale: false } => format!("serve {age_s}"),
        Reuse::Serve { age_s, stale: true } => format!("serve stale {age_s}"),
        Reuse::ServeStaleWhileRevalidate { age_s } => format!("serve {age_s} and revalidate"),
        Reuse::Revalidate(why) => format!("revalidate {why:?}"),
        Reuse::Forward(why) => format!("forward {why:?}"),
        Reuse::GatewayTimeout => "504".to_owned(),
    }
}

/// Section, reply stored, seconds ago, method, request's fields, what is done.
type Row = (&'static str, &'static str, i64, &'static str, &'static str, &'static str);

const M60: &str = "cache-control: max-age=60|etag: \"a\"";
const BARE: &str = "cache-control: max-age=60";

#[rustfmt::skip]
const ROWS: &[Row] = &[
    ("9111 4 fresh", M60, 10, "GET", "", "serve 10"),
    ("9111 4 fresh, for HEAD", M60, 10, "HEAD", "", "serve 10"),
    ("9111 4.2 the last fresh second", M60, 59, "GET", "", "serve 59"),
    ("9111 4.2 the lifetime is over", M60, 60, "GET", "", "revalidate Stale"),
    ("9111 4.3.1 stale, no validator", BARE, 60, "GET", "", "forward Stale"),
    ("9111 4.3.1 stale, by date", "cache-control: max-age=60|last-modified: @-9", 60, "GET", "", "revalidate Stale"),
    ("9110 9.2.3 POST", M60, 0, "POST", "", "forward Method"),
    ("9110 9.2.3 OPTIONS", M60, 0, "OPTIONS", "", "forward Method"),
    ("9110 9.1 an unknown method", M60, 0, "FOO", "", "forward Method"),
    ("9111 4.3.2 If-Match is the origin's", M60, 0, "GET", "if-match: \"a\"", "forward Bypass"),
    ("9111 4.3.2 If-Unmodified-Since is the origin's", M60, 0, "GET", "if-unmodified-since: @0", "forward Bypass"),
    ("9111 4.3.2 If-None-Match is ours", M60, 0, "GET", "if-none-match: \"a\"", "serve 0"),
    // What the reply says.
    ("9111 5.2.2.4 no-cache", "cache-control: max-age=60, no-cache|etag: \"a\"", 0, "GET", "", "revalidate Stale"),
    ("9111 5.2.2.4 no-cache with fields", "cache-control: max-age=60, no-cache=\"b\"", 0, "GET", "", "serve 0"),
    ("9111 5.2.2.2 must-revalidate, fresh", "cache-control: max-age=60, must-revalidate", 10, "GET", "", "serve 10"),
    ("9111 5.2.2.2 must-revalidate, stale", "cache-control: max-age=60, must-revalidate", 70, "GET", "cache-control: max-stale", "forward Stale"),
    ("9111 5.2.2.8 proxy-revalidate, fresh", "cache-control: max-age=60, proxy-revalidate", 10, "GET", "", "serve 10"),
    ("9111 5.2.2.8 proxy-revalidate, stale", "cache-control: max-age=60, proxy-revalidate", 70, "GET", "cache-control: max-stale", "forward Stale"),
    ("9111 5.2.2.10 s-maxage, stale", "cache-control: s-maxage=60", 70, "GET", "cache-control: max-stale", "forward Stale"),
    ("5861 3", "cache-control: max-age=60, stale-while-revalidate=30", 70, "GET", "", "serve 70 and revalidate"),
    ("5861 3 from the first stale second", "cache-control: max-age=60, stale-while-revalidate=30", 60, "GET", "", "serve 60 and revalidate"),
    ("5861 3 its end", "cache-control: max-age=60, stale-while-revalidate=30", 90, "GET", "", "forward Stale"),
    ("5861 3 not against must-revalidate", "cache-control: max-age=60, stale-while-revalidate=30, must-revalidate", 70, "GET", "", "forward Stale"),
    ("5861 3 not against no-cache", "cache-control: max-age=60, stale-while-revalidate=30, no-cache|etag: \"a\"", 70, "GET", "", "revalidate Stale"),
    ("5861 3 not against the request's max-age", "cache-control: max-age=60, stale-while-revalidate=30", 70, "GET", "cache-control: max-age=65", "forward Stale"),
    // What the request says.
    ("9111 5.2.1.4", M60, 10, "GET", "cache-control: no-cache", "revalidate Request"),
    ("9111 5.2.1.4 without a validator", BARE, 10, "GET", "cache-control: no-cache", "forward Request"),
    ("9111 5.2.1.4 is not overridden by max-stale", M60, 70, "GET", "cache-control: no-cache, max-stale", "revalidate Stale"),
    ("9111 5.4 Pragma", M60, 10, "GET", "pragma: no-cache", "revalidate Request"),
    ("9111 5.2.1.5 no-store may be answered from the store", M60, 10, "GET", "cache-control: no-store", "serve 10"),
    ("9111 5.2.1.1 young enough", M60, 10, "GET", "cache-control: max-age=10", "serve 10"),
    ("9111 5.2.1.1 too old", M60, 10, "GET", "cache-control: max-age=9", "revalidate Request"),
    ("9111 5.2.1.1 zero is a reload, even in the first second", M60, 0, "GET", "cache-control: max-age=0", "revalidate Request"),
    ("9111 5.2.1.1 does not make it live longer", M60, 70, "GET", "cache-control: max-age=100", "revalidate Stale"),
    ("9111 5.2.1.2 stale, but not too much", BARE, 70, "GET", "cache-control: max-stale=10", "serve stale 70"),
    ("9111 5.2.1.2 too much", BARE, 71, "GET", "cache-control: max-stale=10", "forward Stale"),
    ("9111 5.2.1.2 without an argument", BARE, 100_000, "GET", "cache-control: max-stale", "serve stale 100000"),
    ("9111 5.2.1.2 never against the reply's no-cache", "cache-control: no-cache|etag: \"a\"", 0, "GET", "cache-control: max-stale", "revalidate Stale"),
    ("9111 5.2.1.1 with max-stale, age still counts", BARE, 70, "GET", "cache-control: max-age=65, max-stale=60", "forward Stale"),
    ("9111 5.2.1.1 with max-stale, young enough", BARE, 70, "GET", "cache-control: max-age=75, max-stale=60", "serve stale 70"),
    ("9111 5.2.1.3 fresh for long enough", M60, 10, "GET", "cache-control: min-fresh=50", "serve 10"),
    ("9111 5.2.1.3 not for long enough", M60, 10, "GET", "cache-control: min-fresh=51", "revalidate Request"),
    ("9111 5.2.1.7 stored", M60, 10, "GET", "cache-control: only-if-cached", "serve 10"),
    ("9111 5.2.1.7 stale", M60, 70, "GET", "cache-control: only-if-cached", "504"),
    ("9111 5.2.1.7 stale, and the client takes it", M60, 70, "GET", "cache-control: only-if-cached, max-stale", "serve stale 70"),
    ("9111 5.2.1.7 with no-cache", M60, 10, "GET", "cache-control: only-if-cached, no-cache", "504"),
    ("9111 5.2.1.7 another method", M60, 10, "POST", "cache-control: only-if-cached", "504"),
    ("9111 5.2.1.7 the origin's condition", M60, 10, "GET", "cache-control: only-if-cached|if-match: \"a\"", "504"),
    ("8246 2 a reload does not ask", "cache-control: max-age=60, immutable|etag: \"a\"", 10, "GET", "cache-control: max-age=0", "serve 10"),
    ("8246 2 a forced one does", "cache-control: max-age=60, immutable|etag: \"a\"", 10, "GET", "cache-control: no-cache", "revalidate Request"),
    ("8246 2 only while fresh", "cache-control: max-age=60, immutable|etag: \"a\"", 70, "GET", "cache-control: max-age=0", "revalidate Stale"),
    ("9110 12.5.5 of Authorization nothing is asked of a stored reply", M60, 10, "GET", "authorization: x", "serve 10"),
    ("9111 4 of Cookie neither", M60, 10, "GET", "cookie: a=b", "serve 10"),
];

#[test]
fn requests_are_dealt_with_as_the_sections_say() {
    for (section, reply, ago_s, method, request, done) in ROWS {
        let facts = judged("GET", "", 200, reply, &Policy::default())
            .unwrap_or_else(|why| panic!("{section}: {why}"));
        let request =
            RequestFacts::of(&Method::from_bytes(method.as_bytes()).expect("a method"), &fields(request));
        let decision =
            evaluate(&request, Held::Reply(&facts), &Policy::default(), WallSeconds(NOW.0 + ago_s));
        assert_eq!(shown(decision), *done, "{section}");
    }
}

#[test]
fn without_a_stored_reply_a_request_goes_on_or_is_answered_504() {
    let policy = Policy::default();
    for (request, nothing, others) in [
        ("", "forward UriMiss", "forward VaryMiss"),
        ("cache-control: only-if-cached", "504", "504"),
        ("cache-control: max-stale", "forward UriMiss", "forward VaryMiss"),
    ] {
        let request = RequestFacts::of(&Method::GET, &fields(request));
        assert_eq!(
            shown(evaluate(&request, Held::Nothing, &policy, NOW)),
            nothing,
            "RFC 9111 section 5.2.1.7"
        );
        assert_eq!(
            shown(evaluate(&request, Held::OtherVariants, &policy, NOW)),
            others,
            "RFC 9211 section 2.2"
        );
    }
}

#[test]
fn a_stored_part_answers_requests_for_parts_alone() {
    let reply = "cache-control: max-age=60|content-range: bytes 0-4/10";
    let facts = judged("GET", "range: bytes=0-4", 206, reply, &Policy::default()).expect("stored");
    for (request, done) in [("", "forward Partial"), ("range: bytes=0-1", "serve 0")] {
        let request = RequestFacts::of(&Method::GET, &fields(request));
        assert_eq!(
            shown(evaluate(&request, Held::Reply(&facts), &Policy::default(), NOW)),
            done,
            "RFC 9111 section 3.3"
        );
    }
    let head = RequestFacts::of(&Method::HEAD, &fields("range: bytes=0-1"));
    assert_eq!(
        shown(evaluate(&head, Held::Reply(&facts), &Policy::default(), NOW)),
        "forward Partial",
        "RFC 9110 section 14.2"
    );
}

#[test]
fn an_operator_can_keep_clients_from_asking_past_the_cache() {
    let policy = Policy { client_reload: false, ..Policy::default() };
    let facts = judged("GET", "", 200, M60, &policy).expect("stored");
    for request in [
        "cache-control: no-cache",
        "cache-control: max-age=0",
        "cache-control: min-fresh=100",
        "pragma: no-cache",
    ] {
        let request = RequestFacts::of(&Method::GET, &fields(request));
        assert_eq!(shown(evaluate(&request, Held::Reply(&facts), &policy, NOW)), "serve 0");
    }
}

/// Section, reply stored, seconds ago, request's fields, failure, what is done.
type ErrorRow = (&'static str, &'static str, i64, &'static str, Failure, OnError);

#[test]
fn a_failing_origin_is_stood_in_for_as_the_sections_say() {
    use Failure::{ErrorStatus, NoReply};
    use OnError::{GatewayTimeout, PassOn, ServeStale};
    const SIE: &str = "cache-control: max-age=60, stale-if-error=30";
    #[rustfmt::skip]
    let rows: [ErrorRow; 12] = [
        ("5861 4 no reply", SIE, 70, "", NoReply, ServeStale { age_s: 70 }),
        ("5861 4 an error", SIE, 70, "", ErrorStatus, ServeStale { age_s: 70 }),
        ("5861 4 its end", SIE, 90, "", ErrorStatus, PassOn),
        ("5861 4 its end, no reply", SIE, 90, "", NoReply, GatewayTimeout),
        ("9111 4.2.4 not without being told", M60, 70, "", ErrorStatus, PassOn),
        ("9111 4.2.4 not without being told", M60, 70, "", NoReply, GatewayTimeout),
        ("5861 4 told by the request", M60, 70, "cache-control: stale-if-error=30", NoReply, ServeStale { age_s: 70 }),
        ("9111 5.2.2.2", "cache-control: max-age=60, stale-if-error=30, must-revalidate", 70, "", NoReply, GatewayTimeout),
        ("9111 5.2.2.8", "cache-control: max-age=60, stale-if-error=30, proxy-revalidate", 70, "", ErrorStatus, PassOn),
        ("9111 5.2.2.10", "cache-control: s-maxage=60, stale-if-error=30", 70, "", ErrorStatus, PassOn),
        ("9111 5.2.2.4", "cache-control: no-cache, stale-if-error=30|etag: \"a\"", 0, "", ErrorStatus, PassOn),
        ("9111 5.2.1.4", SIE, 70, "cache-control: no-cache", ErrorStatus, PassOn),
    ];
    for (section, reply, ago_s, request, failure, done) in rows {
        let facts = judged("GET", "", 200, reply, &Policy::default()).expect("stored");
        let request = RequestFacts::of(&Method::GET, &fields(request));
        let decision = on_error(&request, &facts, failure, &Policy::default(), WallSeconds(NOW.0 + ago_s));
        assert_eq!(decision, done, "{section}: {reply}");
    }
    let policy = Policy { stale_if_error_s: 30, ..Policy::default() };
    let facts = judged("GET", "", 200, M60, &policy).expect("stored");
    let request = RequestFacts::of(&Method::GET, &fields(""));
    let done = on_error(&request, &facts, NoReply, &policy, WallSeconds(NOW.0 + 70));
    assert_eq!(done, ServeStale { age_s: 70 }, "told by the operator (RFC 9111 section 4.2.4)");
    let errors =
        (100..600).filter(|status| is_error_status(StatusCode::from_u16(*status).expect("a status")));
    assert_eq!(errors.collect::<Vec<_>>(), [500, 502, 503, 504], "RFC 5861 section 4");
}

#[test]
fn of_the_variants_that_match_the_one_made_last_is_used() {
    let bytes = |reply: &str, request: &str| {
        let facts = judged("GET", request, 200, reply, &Policy::default()).expect("stored");
        meta_bytes(facts, &fields(reply), &fields(request))
    };
    let stored = [
        bytes("cache-control: max-age=60|vary: foo|etag: \"old\"|date: @-5", "foo: 1"),
        bytes("cache-control: max-age=60|vary: foo|etag: \"new\"|date: @-1", "foo: 1"),
        bytes("cache-control: max-age=60|vary: foo|etag: \"other\"|date: @0", "foo: 2"),
    ];
    let metas: Vec<Meta<'_>> = stored.iter().map(|bytes| Meta::from_bytes(bytes).expect("facts")).collect();
    let mut scratch = Vec::new();
    let mut tag =
        |request: &str| select(&metas, &fields(request), &mut scratch).map(|meta| meta.tag.to_vec());
    assert_eq!(tag("foo: 1"), Some(b"\"new\"".to_vec()), "RFC 9111 section 4.1");
    assert_eq!(tag("foo: 2"), Some(b"\"other\"".to_vec()), "RFC 9111 section 4.1");
    assert_eq!(tag("foo: 3"), None, "RFC 9111 section 4.1");
}
