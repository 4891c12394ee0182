//! What is done with what came of a fetch: which action, by which section.

use http::{Method, StatusCode};
use http_cache_rules::decide::Request;
use http_cache_rules::facts::meta_bytes;
use http_cache_rules::response::{FetchOutcome, ResponseAction, Role, Stored, decide_response};
use http_cache_rules::reuse::Failure::{ErrorStatus, NoReply};
use http_cache_rules::{Exchange, Extent, Meta, Policy, RequestFacts, StoredFacts};

use crate::storing::judged;
use crate::{NOW, fields};

fn shown(action: ResponseAction) -> String {
    let drops = |supersedes| if supersedes { ", the old one goes" } else { "" };
    match action {
        ResponseAction::NextUpstream => "next".to_owned(),
        ResponseAction::Merge => "merge".to_owned(),
        ResponseAction::RetryUnconditional => "retry".to_owned(),
        ResponseAction::ServeStale { age_s, failure } => format!("stale {age_s} for {failure:?}"),
        ResponseAction::Store { supersedes, .. } => format!("store{}", drops(supersedes)),
        ResponseAction::PassOn { refusal: Some(refusal), supersedes } => {
            format!("pass on, {}{}", refusal.name(), drops(supersedes))
        }
        ResponseAction::PassOn { refusal: None, supersedes } => format!("pass on{}", drops(supersedes)),
        ResponseAction::GatewayTimeout => "504".to_owned(),
        ResponseAction::NoReply => "no reply".to_owned(),
    }
}

/// What is stored beside: its fields, whether all ten bytes are there, what it is for. It came just now.
type There = Option<(&'static str, bool, Role)>;

/// What comes.
#[derive(Clone, Copy)]
enum Comes {
    Head(u16, &'static str),
    Failure { can_retry: bool },
    Shared(http_cache_rules::reuse::Failure),
    Refused,
}
use Comes::{Failure, Head, Refused, Shared};

fn decided(there: There, method: &str, request: &str, has_body: bool, comes: Comes) -> String {
    let (request_headers, method) =
        (fields(request), Method::from_bytes(method.as_bytes()).expect("a method"));
    let facts = RequestFacts::of(&method, &request_headers);
    let request =
        Request { method: &method, headers: &request_headers, facts: &facts, has_body, upgrades: false };
    let bytes = there.map(|(reply, whole, _)| {
        let judged = judged("GET", "", 200, reply, &Policy::default()).expect("stored");
        let extent = if whole { Extent::whole(10) } else { Extent { first: 0, length: 4, total: Some(10) } };
        meta_bytes(StoredFacts { extent, ..judged }, &fields(reply), &fields(""))
    });
    let meta = bytes.as_ref().map(|bytes| Meta::from_bytes(bytes).expect("what was written is read"));
    let stored = meta.as_ref().zip(there).map(|(meta, (_, _, role))| Stored { meta, role });
    let headers = if let Head(_, reply) = comes { fields(reply) } else { fields("") };
    let status = if let Head(status, _) = comes { status } else { 200 };
    let target = "http://a.example/x?y".parse().expect("a target");
    let exchange = Exchange {
        target: &target,
        request: &facts,
        request_headers: &request_headers,
        requested_at: NOW,
        answered_at: NOW,
        status: StatusCode::from_u16(status).expect("a status"),
        headers: &headers,
    };
    let came = match comes {
        Head(..) => FetchOutcome::Reply(&exchange),
        Failure { can_retry } => FetchOutcome::NoReply { can_retry },
        Shared(failure) => FetchOutcome::CollapsedFailure(failure),
        Refused => FetchOutcome::RefusedHere,
    };
    shown(decide_response(&request, stored, came, &Policy::default(), NOW))
}

const M60: &str = "cache-control: max-age=60|etag: \"a\"";
const SIE: &str = "cache-control: max-age=0, stale-if-error=60|etag: \"a\"";
const VALIDATED: There = Some((M60, true, Role::Validated));
const STANDS_IN: There = Some((SIE, true, Role::Validated));
const FAILS: Comes = Failure { can_retry: false };

/// Section, what is stored, method, request's fields, what comes, what is done.
#[rustfmt::skip]
const ROWS: &[(&str, There, &str, &str, Comes, &str)] = &[
    ("9111 3 may be stored", None, "GET", "", Head(200, M60), "store"),
    ("9111 3 may be stored, and another was", VALIDATED, "GET", "", Head(200, M60), "store, the old one goes"),
    ("9111 5.2.2.5 may not", None, "GET", "", Head(200, "cache-control: no-store"), "pass on, no-store"),
    ("9111 4.3.3 may not, and another was", VALIDATED, "GET", "", Head(200, "cache-control: no-store"), "pass on, no-store, the old one goes"),
    ("9111 4.3.3 gone", VALIDATED, "GET", "", Head(404, "cache-control: no-store"), "pass on, no-store, the old one goes"),
    ("9110 9.2.3 POST", None, "POST", "", Head(200, M60), "pass on, method"),
    ("9110 9.3.3 POST that names itself", None, "POST", "", Head(200, "cache-control: max-age=60|content-location: /x?y"), "store"),
    ("9111 4.3.5 HEAD brings nothing to store", None, "HEAD", "", Head(200, M60), "pass on"),
    ("9111 4.3.5 HEAD drops nothing of its own", VALIDATED, "HEAD", "", Head(200, "etag: \"b\""), "pass on"),
    // 304.
    ("9111 4.3.4 the same strong tag", VALIDATED, "GET", "", Head(304, "etag: \"a\""), "merge"),
    ("9111 4.3.4 no validator", VALIDATED, "GET", "", Head(304, ""), "merge"),
    ("9111 4.3.4 another tag", VALIDATED, "GET", "", Head(304, "etag: \"b\""), "retry"),
    ("9110 15.4.5 to the client's own question", None, "GET", "if-none-match: \"b\"", Head(304, ""), "pass on, status"),
    ("9110 15.4.5 nothing was asked about", Some((M60, true, Role::Doubtful)), "GET", "", Head(304, "etag: \"a\""), "pass on, status, the old one goes"),
    // Parts.
    ("9111 3.3 a part", None, "GET", "range: bytes=0-3", Head(206, "cache-control: max-age=60|content-range: bytes 0-3/10"), "store"),
    ("9111 3.3 a part beside the whole", VALIDATED, "GET", "range: bytes=0-3", Head(206, "cache-control: max-age=60|content-range: bytes 0-3/10"), "pass on"),
    ("9111 3.4 a part beside a part", Some((M60, false, Role::Doubtful)), "GET", "range: bytes=0-3", Head(206, "cache-control: max-age=60|content-range: bytes 0-3/10"), "store"),
    // Failures.
    ("5861 4 an error, in time", STANDS_IN, "GET", "", Head(503, ""), "stale 0 for ErrorStatus"),
    ("5861 4 no reply, in time", STANDS_IN, "GET", "", FAILS, "stale 0 for NoReply"),
    ("5861 4 an error, and nothing may stand in", VALIDATED, "GET", "", Head(503, ""), "pass on, no-lifetime"),
    ("9111 5.2.2.2 no reply, and nothing may stand in", VALIDATED, "GET", "", FAILS, "504"),
    ("5861 4 not for the client's no-cache", STANDS_IN, "GET", "cache-control: no-cache", FAILS, "504"),
    ("5861 4 404 is no such error", STANDS_IN, "GET", "", Head(404, "cache-control: no-store"), "pass on, no-store, the old one goes"),
    ("5861 4 without a validator all the same", Some((SIE, true, Role::StandIn)), "GET", "", FAILS, "stale 0 for NoReply"),
    ("9111 4.3.4 not what upstream has no more", Some((SIE, true, Role::Doubtful)), "GET", "", FAILS, "no reply"),
    ("9111 4.3.4 nor for its error", Some((SIE, true, Role::Doubtful)), "GET", "", Head(503, ""), "pass on, no-lifetime"),
    ("9110 15.6.3 no reply, nothing stored", None, "GET", "", FAILS, "no reply"),
    ("9110 9.2.2 another upstream first", STANDS_IN, "GET", "", Failure { can_retry: true }, "next"),
    ("5861 4 of what others were told as well", STANDS_IN, "GET", "", Shared(ErrorStatus), "stale 0 for ErrorStatus"),
    ("9111 5.2.2.2 of what others were told, nothing may stand in", VALIDATED, "GET", "", Shared(NoReply), "504"),
    ("9111 4 of what others were told, an error is not for us", VALIDATED, "GET", "", Shared(ErrorStatus), "next"),
    ("9111 4 of what others were told, nothing stored", None, "GET", "", Shared(NoReply), "next"),
    ("9110 15.5.4 what is refused here is not hidden", STANDS_IN, "GET", "", Refused, "no reply"),
];

#[test]
fn what_comes_is_dealt_with_by_the_action_of_its_section() {
    for (section, there, method, request, comes, wanted) in ROWS {
        assert_eq!(decided(*there, method, request, false, *comes), *wanted, "{section}");
    }
}

#[test]
fn the_reply_to_a_get_with_a_body_is_stored_for_nobody() {
    assert_eq!(decided(None, "GET", "", true, Head(200, M60)), "pass on", "RFC 9110 section 9.3.1");
    let names_itself = "cache-control: max-age=60|content-location: /x?y";
    assert_eq!(decided(None, "POST", "", true, Head(200, names_itself)), "store", "RFC 9110 section 9.3.3");
}
