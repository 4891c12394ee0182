//! Several requests one after another, through the proxy that is made of the rules alone.

use http::{Method, StatusCode};
use http_cache_rules::policy::Foreign304;
use http_cache_rules::{Policy, WallSeconds};

use crate::proxy::{Proxy, Reply, Request};
use crate::{NOW, fields};

fn request(method: &str, headers: &str) -> Request {
    Request {
        method: Method::from_bytes(method.as_bytes()).expect("a method"),
        target: "http://a.example/x".parse().expect("a target"),
        headers: fields(headers),
    }
}

fn reply(status: u16, headers: &str, body: &str) -> Reply {
    let status = StatusCode::from_u16(status).expect("a status");
    Reply { status, headers: fields(headers), body: body.as_bytes().to_vec() }
}

/// An origin that is not to be asked.
fn nobody(asked: &Request) -> Option<Reply> {
    panic!("the origin is asked: {asked:?}")
}

fn later(proxy: &mut Proxy, seconds: i64) {
    proxy.now = WallSeconds(proxy.now.0 + seconds);
}

fn text(reply: &Reply) -> (u16, String) {
    (reply.status.as_u16(), String::from_utf8_lossy(&reply.body).into_owned())
}

/// A proxy that holds one reply to `GET /x`.
fn holding(policy: Policy, stored: &str) -> Proxy {
    let mut proxy = Proxy::new(NOW, policy);
    let first = proxy.answer(&request("GET", ""), &mut |_| Some(reply(200, stored, "one")));
    assert_eq!(text(&first), (200, "one".to_owned()));
    proxy
}

#[test]
fn a_dead_origin_is_stood_in_for_as_long_as_stale_if_error_says() {
    let mut proxy = holding(Policy::default(), "cache-control: max-age=2, stale-if-error=60");
    later(&mut proxy, 3);
    assert_eq!(text(&proxy.answer(&request("GET", ""), &mut |_| None)), (200, "one".to_owned()));
    let error = proxy.answer(&request("GET", ""), &mut |_| Some(reply(503, "", "down")));
    assert_eq!(text(&error), (200, "one".to_owned()));
    let missing = proxy.answer(&request("GET", ""), &mut |_| Some(reply(404, "", "gone")));
    assert_eq!(text(&missing), (404, "gone".to_owned()), "404 is an answer, no failure");
}

#[test]
fn a_dead_origin_ends_in_504_when_nothing_stale_may_be_served() {
    let mut proxy =
        holding(Policy::default(), "cache-control: max-age=2, must-revalidate, stale-if-error=60");
    later(&mut proxy, 3);
    assert_eq!(proxy.answer(&request("GET", ""), &mut |_| None).status, 504, "RFC 9111 section 5.2.2.2");
}

#[test]
fn a_304_renews_what_is_stored_and_the_client_s_own_condition_is_answered_from_it() {
    let mut proxy = holding(Policy::default(), "cache-control: max-age=2|etag: \"a\"|foo: 1");
    later(&mut proxy, 3);
    let mut validated = |asked: &Request| {
        assert_eq!(asked.headers.get("if-none-match").map(|tag| tag.as_bytes()), Some(&b"\"a\""[..]));
        Some(reply(304, "etag: \"a\"|foo: 2", ""))
    };
    let other = proxy.answer(&request("GET", "if-none-match: \"b\""), &mut validated);
    assert_eq!((text(&other), other.headers["foo"].as_bytes()), ((200, "one".to_owned()), &b"2"[..]));
    let same = proxy.answer(&request("GET", "if-none-match: \"b\", W/\"a\""), &mut nobody);
    assert_eq!(same.status, 304, "fresh again, and the client has it");
}

#[test]
fn a_304_for_another_tag_is_not_believed_unless_the_operator_says_so() {
    for (foreign_304, asked_times, body) in
        [(Foreign304::FetchAgain, 2, "two"), (Foreign304::KeepStoredTag, 1, "one")]
    {
        let policy = Policy { foreign_304, ..Policy::default() };
        let mut proxy = holding(policy, "cache-control: max-age=2|etag: \"a\"");
        later(&mut proxy, 3);
        let mut asked = 0;
        let answer = proxy.answer(&request("GET", ""), &mut |sent: &Request| {
            asked += 1;
            let conditional = sent.headers.contains_key("if-none-match");
            Some(if conditional {
                reply(304, "etag: \"b\"", "")
            } else {
                reply(200, "etag: \"b\"|cache-control: max-age=9", "two")
            })
        });
        assert_eq!((asked, text(&answer)), (asked_times, (200, body.to_owned())), "RFC 9111 section 4.3.4");
    }
}

#[test]
fn a_new_reply_replaces_the_old_and_one_that_may_not_be_stored_removes_it() {
    let mut proxy = holding(Policy::default(), "cache-control: max-age=2|etag: \"a\"");
    later(&mut proxy, 3);
    let new = proxy.answer(&request("GET", ""), &mut |_| {
        Some(reply(200, "cache-control: max-age=2|etag: \"b\"", "two"))
    });
    assert_eq!(text(&new), (200, "two".to_owned()));
    assert_eq!(text(&proxy.answer(&request("GET", ""), &mut nobody)), (200, "two".to_owned()));
    later(&mut proxy, 3);
    let private =
        proxy.answer(&request("GET", ""), &mut |_| Some(reply(200, "cache-control: private", "mine")));
    assert_eq!(text(&private), (200, "mine".to_owned()));
    let after = proxy.answer(&request("GET", ""), &mut |asked: &Request| {
        assert!(!asked.headers.contains_key("if-none-match"), "nothing is left to be validated");
        Some(reply(200, "", "yours"))
    });
    assert_eq!(text(&after), (200, "yours".to_owned()));
}

#[test]
fn head_is_answered_from_get_and_renews_or_drops_it() {
    let mut proxy = holding(Policy::default(), "cache-control: max-age=2|etag: \"a\"|foo: 1");
    let head = proxy.answer(&request("HEAD", ""), &mut nobody);
    assert_eq!((text(&head), head.headers["foo"].as_bytes()), ((200, String::new()), &b"1"[..]));
    later(&mut proxy, 3);
    let head = proxy.answer(&request("HEAD", ""), &mut |asked: &Request| {
        assert_eq!(asked.method, Method::HEAD);
        Some(reply(200, "cache-control: max-age=60|etag: \"a\"|foo: 2", ""))
    });
    assert_eq!(head.status, 200);
    let get = proxy.answer(&request("GET", ""), &mut nobody);
    assert_eq!(
        (text(&get), get.headers["foo"].as_bytes()),
        ((200, "one".to_owned()), &b"2"[..]),
        "RFC 9111 section 4.3.5"
    );
    later(&mut proxy, 100);
    proxy.answer(&request("HEAD", ""), &mut |_| Some(reply(200, "etag: \"b\"", "")));
    let fetched = proxy.answer(&request("GET", ""), &mut |_| Some(reply(200, "", "two")));
    assert_eq!(text(&fetched), (200, "two".to_owned()), "RFC 9111 section 4.3.5");
}

#[test]
fn several_parts_come_from_the_store_and_a_part_beyond_the_end_is_416() {
    let mut proxy = Proxy::new(NOW, Policy::default());
    proxy.answer(&request("GET", ""), &mut |_| Some(reply(200, "cache-control: max-age=60", "0123456789")));
    let several = proxy.answer(&request("GET", "range: bytes=0-1,-1"), &mut nobody);
    let body = "\r\n--edge\r\nContent-Range: bytes 0-1/10\r\n\r\n01\r\n--edge\r\nContent-Range: bytes 9-9/10\r\n\r\n9\r\n--edge--\r\n";
    assert_eq!(text(&several), (206, body.to_owned()));
    let beyond = proxy.answer(&request("GET", "range: bytes=10-"), &mut nobody);
    assert_eq!(
        (beyond.status.as_u16(), beyond.headers["content-range"].as_bytes()),
        (416, &b"bytes */10"[..])
    );
}

#[test]
fn a_stored_part_serves_what_it_has_and_asks_for_what_it_has_not() {
    let mut proxy = Proxy::new(NOW, Policy::default());
    let part = "cache-control: max-age=60|content-range: bytes 4-9/20";
    proxy.answer(&request("GET", "range: bytes=4-9"), &mut |_| Some(reply(206, part, "456789")));
    let inside = proxy.answer(&request("GET", "range: bytes=5-6"), &mut nobody);
    assert_eq!(
        (text(&inside), inside.headers["content-range"].as_bytes()),
        ((206, "56".to_owned()), &b"bytes 5-6/20"[..])
    );
    for range in ["range: bytes=0-5", "range: bytes=8-12", ""] {
        let mut asked = 0;
        proxy.answer(&request("GET", range), &mut |_| {
            asked += 1;
            Some(reply(500, "", ""))
        });
        assert_eq!(asked, 1, "{range}");
    }
}
