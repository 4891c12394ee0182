//! What is done with a request, given what was found for it: which action, by which section.

use http::Method;
use http_cache_rules::decide::{Action, Fetch, Found, Local, Reply, Request, decide};
use http_cache_rules::facts::meta_bytes;
use http_cache_rules::reuse::ForwardReason;
use http_cache_rules::{Extent, Meta, Policy, RequestFacts, StoredFacts, WallSeconds};

use crate::storing::judged;
use crate::{NOW, fields};

fn shown(action: Action) -> String {
    let fetch = |fetch: Fetch| {
        let about = if fetch.about_found { ", about it" } else { "" };
        let collapse = if fetch.collapse { ", for all" } else { "" };
        format!("fetch {:?}{about}{collapse}", fetch.why)
    };
    let reply = match action.reply {
        Reply::Stored { age_s, stale: false } => format!("stored {age_s}"),
        Reply::Stored { age_s, stale: true } => format!("stale {age_s}"),
        Reply::Wait => "wait".to_owned(),
        Reply::Fetch(it) => fetch(it),
        Reply::Complete => "complete".to_owned(),
        Reply::Tunnel => "tunnel".to_owned(),
        Reply::Local(Local::NeverStored) => "504, never stored".to_owned(),
        Reply::Local(Local::NotStored) => "504, not stored".to_owned(),
        Reply::Local(Local::LastHop) => "last hop".to_owned(),
    };
    action.background.map_or(reply.clone(), |background| format!("{reply}; {}", fetch(background)))
}

/// What there is for a key.
enum There {
    Nothing,
    Others,
    Soon,
    /// The fields of a 200 of 10 bytes that came some seconds ago.
    Reply(&'static str, i64),
    /// The first 4 of its 10 bytes.
    Part(&'static str, i64),
}
use There::{Nothing, Others, Part, Soon};

fn decided(there: &There, method: &str, request: &str, has_body: bool) -> String {
    let (headers, method) = (fields(request), Method::from_bytes(method.as_bytes()).expect("a method"));
    let facts = RequestFacts::of(&method, &headers);
    let request = Request { method: &method, headers: &headers, facts: &facts, has_body, upgrades: false };
    let (reply, ago_s) = match there {
        There::Reply(reply, ago_s) | Part(reply, ago_s) => (*reply, *ago_s),
        _ => ("cache-control: max-age=60", 0),
    };
    let judged = judged("GET", "", 200, reply, &Policy::default()).expect("stored");
    let extent = match there {
        Part(..) => Extent { first: 0, length: 4, total: Some(10) },
        _ => Extent::whole(10),
    };
    let bytes = meta_bytes(StoredFacts { extent, ..judged }, &fields(reply), &fields(""));
    let meta = Meta::from_bytes(&bytes).expect("what was written is read");
    let found = match there {
        Nothing => Found::Nothing,
        Others => Found::OtherVariants,
        Soon => Found::AboutToBeStored,
        There::Reply(..) | Part(..) => Found::Reply(&meta),
    };
    shown(decide(&request, found, &Policy::default(), WallSeconds(NOW.0 + ago_s)))
}

const M60: &str = "cache-control: max-age=60|etag: \"a\"";
const BARE: &str = "cache-control: max-age=60";
const SWR: &str = "cache-control: max-age=60, stale-while-revalidate=30|etag: \"a\"";
const OIC: &str = "cache-control: only-if-cached";
const FRESH: There = There::Reply(M60, 10);
const STALE: There = There::Reply(M60, 70);

/// Section, what there is, method, request's fields, what is done.
#[rustfmt::skip]
const ROWS: &[(&str, There, &str, &str, &str)] = &[
    ("9111 4 fresh", FRESH, "GET", "", "stored 10"),
    ("9111 4 fresh, for HEAD", FRESH, "HEAD", "", "stored 10"),
    ("9111 4 nothing", Nothing, "GET", "", "fetch UriMiss, for all"),
    ("9111 4.1 other variants", Others, "GET", "", "fetch VaryMiss, for all"),
    ("9111 4.3.1 stale", STALE, "GET", "", "fetch Stale, about it, for all"),
    ("5861 4 stale without a validator may stand in", There::Reply(BARE, 70), "GET", "", "fetch Stale, about it, for all"),
    ("9111 5.2.1.4 fresh, but the client wants the origin's", FRESH, "GET", "cache-control: no-cache", "fetch Request, about it"),
    ("9111 5.2.1.2 stale, and the client takes it", STALE, "GET", "cache-control: max-stale", "stale 70"),
    ("5861 3 meanwhile", There::Reply(SWR, 70), "GET", "", "stale 70; fetch Stale, about it, for all"),
    ("5861 3 not on behalf of only-if-cached", There::Reply(SWR, 70), "GET", OIC, "stale 70"),
    // For whom one fetch does.
    ("9111 4 HEAD brings no body for others", Nothing, "HEAD", "", "fetch UriMiss"),
    ("9110 14.2 a part is not for others", Nothing, "GET", "range: bytes=0-1", "fetch UriMiss"),
    ("9111 4.3.2 nor is the answer to conditions", Nothing, "GET", "if-none-match: \"a\"", "fetch UriMiss"),
    ("9111 3.5 nor what was authorized", Nothing, "GET", "authorization: x", "fetch UriMiss"),
    ("9111 5.2.1.5 nor what is not to be stored", Nothing, "GET", "cache-control: no-store", "fetch UriMiss"),
    ("9111 5.2.1.4 nor does another's reply do", Nothing, "GET", "cache-control: no-cache", "fetch UriMiss"),
    // What is about to be stored.
    ("9111 4 joined as long as it is on its way", Soon, "GET", "", "fetch UriMiss, for all"),
    ("9110 14.2 a part of it once it is stored", Soon, "GET", "range: bytes=0-1", "wait"),
    ("9111 4.3.2 conditions once it is stored", Soon, "GET", "if-none-match: \"a\"", "wait"),
    ("9111 5.2.1.7 only-if-cached once it is stored", Soon, "GET", OIC, "wait"),
    // Parts.
    ("9111 3.3 the whole of a part", Part(M60, 10), "GET", "", "complete"),
    ("9110 14.2 what is there of a part", Part(M60, 10), "GET", "range: bytes=1-3", "stored 10"),
    ("9111 3.4 what is not there of a part", Part(M60, 10), "GET", "range: bytes=1-7", "complete"),
    ("9111 3.4 what is not there, of a stale part", Part(M60, 70), "GET", "range: bytes=1-7", "fetch Stale, about it"),
    ("9111 5.2.1.7 the whole of a part, stored only", Part(M60, 10), "GET", OIC, "504, not stored"),
    ("9111 5.2.1.7 what is not there, stored only", Part(M60, 10), "GET", "cache-control: only-if-cached|range: bytes=1-7", "504, not stored"),
    ("9111 4.3.2 a condition that the part answers", Part(M60, 10), "GET", "range: bytes=1-7|if-none-match: \"a\"", "stored 10"),
    // What no store answers.
    ("9110 9.2.3 POST", FRESH, "POST", "", "fetch Method"),
    ("9111 5.2.1.7 POST", FRESH, "POST", OIC, "504, never stored"),
    ("9111 5.2.1.7 nothing", Nothing, "GET", OIC, "504, not stored"),
    ("9111 5.2.1.7 other variants", Others, "GET", OIC, "504, not stored"),
    ("9111 5.2.1.7 stale", STALE, "GET", OIC, "504, not stored"),
    ("9111 4.3.2 If-Match is the origin's", FRESH, "GET", "if-match: \"a\"", "fetch Bypass"),
    ("9110 9.3.6 CONNECT", Nothing, "CONNECT", "", "tunnel"),
    ("9110 7.6.2 OPTIONS for us", Nothing, "OPTIONS", "max-forwards: 0", "last hop"),
    ("9110 7.6.2 TRACE for us", Nothing, "TRACE", "max-forwards: 0", "last hop"),
    ("9110 7.6.2 OPTIONS for the next", Nothing, "OPTIONS", "max-forwards: 1", "fetch Method"),
    ("9110 7.6.2 not for GET", Nothing, "GET", "max-forwards: 0", "fetch UriMiss, for all"),
];

#[test]
fn each_request_is_answered_by_the_action_of_its_section() {
    for (section, there, method, request, wanted) in ROWS {
        assert_eq!(decided(there, method, request, false), *wanted, "{section}: {method} {request}");
    }
}

#[test]
fn a_get_with_a_body_is_answered_by_upstream_alone() {
    assert_eq!(decided(&FRESH, "GET", "", true), "fetch Bypass", "RFC 9110 section 9.3.1");
    assert_eq!(decided(&FRESH, "GET", OIC, true), "504, never stored", "RFC 9111 section 5.2.1.7");
    assert_eq!(decided(&FRESH, "POST", "", true), "fetch Method", "RFC 9110 section 9.2.3");
}

#[test]
fn what_asks_for_another_protocol_becomes_a_tunnel_whatever_is_stored() {
    let (headers, facts) = (fields(""), RequestFacts::of(&Method::GET, &fields("")));
    let request =
        Request { method: &Method::GET, headers: &headers, facts: &facts, has_body: false, upgrades: true };
    assert_eq!(decide(&request, Found::Nothing, &Policy::default(), NOW).reply, Reply::Tunnel);
    assert!(!request.is_answered_from_store());
}

#[test]
fn an_action_that_cannot_be_carried_out_becomes_a_fetch_unless_none_may_be() {
    let instead = |request: &str| {
        let headers = fields(request);
        let facts = RequestFacts::of(&Method::GET, &headers);
        let request = Request {
            method: &Method::GET,
            headers: &headers,
            facts: &facts,
            has_body: false,
            upgrades: false,
        };
        request.fetch_instead(ForwardReason::Partial)
    };
    let fetch = Fetch { why: ForwardReason::Partial, about_found: false, collapse: false };
    assert_eq!(instead(""), Some(fetch));
    assert_eq!(instead(OIC), None, "RFC 9111 section 5.2.1.7");
}
