//! ICP, version 2: messages byte by byte, and which replies are offered (RFC 2186, RFC 2187).

use super::*;
use http::{HeaderName, HeaderValue};
use http_cache_rules::{Exchange, Extent, judge};
use proptest::prelude::*;

const NOW: WallSeconds = WallSeconds(1_795_305_600);

/// Fields from `name: value` lines divided by `|`.
fn fields(text: &str) -> HeaderMap {
    let lines = text.split('|').filter(|line| !line.is_empty());
    let pairs = lines.map(|line| line.split_once(": ").expect("name: value"));
    pairs
        .map(|(name, value)| {
            let name = HeaderName::from_bytes(name.as_bytes()).expect("a field's name");
            (name, HeaderValue::from_str(value).expect("a field's value"))
        })
        .collect()
}

/// The facts of a reply to a plain GET that was answered just now.
fn stored(status: u16, reply: &str) -> Option<StoredFacts> {
    let (request_headers, headers) = (HeaderMap::new(), fields(reply));
    let exchange = Exchange {
        target: &"http://a.example/x?y".parse().expect("a target"),
        request: &RequestFacts::of(&Method::GET, &request_headers),
        request_headers: &request_headers,
        requested_at: NOW,
        answered_at: NOW,
        status: StatusCode::from_u16(status).expect("a status"),
        headers: &headers,
    };
    Some(judge(&exchange, &Policy::default()).expect("stored"))
}

/// Opcode, version, length, number; then options, their data and the sender, all nothing.
fn head(opcode: u8, version: u8, length: u16, number: u32) -> Vec<u8> {
    let mut bytes = vec![opcode, version];
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(&number.to_be_bytes());
    bytes.extend_from_slice(&[0; 12]);
    bytes
}

fn with(head: Vec<u8>, payload: &[u8]) -> Vec<u8> {
    [head, payload.to_vec()].concat()
}

#[test]
fn messages_have_the_bytes_of_the_rfc() {
    let asked = query(0x0102_0304, "http://a/").expect("short");
    // RFC 2186 section 2: opcode 1, version 2, 34 bytes; requester, URL, NUL.
    assert_eq!(asked, with(head(1, 2, 34, 0x0102_0304), b"\0\0\0\0http://a/\0"));
    assert_eq!(read(&asked), Ok(Message::Query { number: 0x0102_0304, url: b"http://a/" }));
    for (answer, opcode) in [
        (Answer::Hit, 2),
        (Answer::Miss, 3),
        (Answer::Err, 4),
        (Answer::MissNoFetch, 21),
        (Answer::Denied, 22),
    ] {
        let said = reply(answer, 7, b"http://a/").expect("short");
        assert_eq!(said, with(head(opcode, 2, 30, 7), b"http://a/\0"), "{answer:?}");
        assert_eq!(read(&said), Ok(Message::Reply { answer, number: 7, url: b"http://a/" }));
        assert!(said.len() < asked.len(), "an answer multiplies nothing");
    }
}

#[test]
fn what_others_put_in_fields_that_are_not_used_here_changes_nothing() {
    // RFC 2186: options, option data, sender and requester may hold anything.
    let mut asked = query(1, "http://a/").expect("short");
    asked[8..24].fill(0xff);
    assert_eq!(read(&asked), Ok(Message::Query { number: 1, url: b"http://a/" }));
}

/// Section, datagram, why it is dropped.
#[test]
fn what_is_no_message_is_dropped() {
    let url = b"\0\0\0\0http://a/\0";
    let long = vec![b'x'; MESSAGE_BYTES_MAX];
    let rows: Vec<(&str, Vec<u8>, Malformed)> = vec![
        ("2186 2 nothing", vec![], Malformed::Size { bytes: 0 }),
        ("2186 2 shorter than its head", vec![1; 19], Malformed::Size { bytes: 19 }),
        ("2186 2 more than 16,384", with(head(1, 2, 16_404, 1), &long), Malformed::Size { bytes: 16_404 }),
        ("2186 2 length says more", with(head(1, 2, 35, 1), url), Malformed::Length),
        ("2186 2 length says less", with(head(1, 2, 33, 1), url), Malformed::Length),
        ("2186 2 length says most", with(head(1, 2, u16::MAX, 1), url), Malformed::Length),
        ("2186 2 version 1", with(head(1, 1, 34, 1), url), Malformed::Version { version: 1 }),
        ("2186 2 version 3", with(head(1, 3, 34, 1), url), Malformed::Version { version: 3 }),
        (
            "2186 2 a query without a requester",
            with(head(1, 2, 22, 1), b"\0\0"),
            Malformed::Size { bytes: 22 },
        ),
        ("2186 2 a query without a URL", with(head(1, 2, 24, 1), b"\0\0\0\0"), Malformed::Url),
        ("2186 2 no NUL", with(head(1, 2, 33, 1), b"\0\0\0\0http://a/"), Malformed::Url),
        ("2186 2 bytes after the NUL", with(head(3, 2, 32, 1), b"http://a/\0ab"), Malformed::Url),
        ("2186 2 a NUL within", with(head(3, 2, 29, 1), b"http:\0/a/"), Malformed::Url),
        ("2186 2 and at the end", with(head(3, 2, 29, 1), b"http:\0/a\0"), Malformed::Url),
        ("2186 2 an answer of nothing", head(3, 2, 20, 1), Malformed::Url),
        ("2186 2 opcode INVALID", with(head(0, 2, 34, 1), url), Malformed::Opcode { opcode: 0 }),
        ("2186 2 opcode unused", with(head(5, 2, 34, 1), url), Malformed::Opcode { opcode: 5 }),
        ("2186 2 opcode SECHO", with(head(10, 2, 34, 1), url), Malformed::Opcode { opcode: 10 }),
        ("2186 2 opcode DECHO", with(head(11, 2, 34, 1), url), Malformed::Opcode { opcode: 11 }),
        (
            "2187 5.3.3 HIT_OBJ was not asked for",
            with(head(23, 2, 34, 1), url),
            Malformed::Opcode { opcode: 23 },
        ),
    ];
    for (section, datagram, why) in rows {
        assert_eq!(read(&datagram), Err(why), "{section}");
    }
}

#[test]
fn a_url_that_fills_a_message_is_asked_for_and_a_longer_one_is_not() {
    let longest = "x".repeat(MESSAGE_BYTES_MAX - 25);
    let asked = query(1, &longest).expect("just fits");
    assert_eq!(asked.len(), MESSAGE_BYTES_MAX);
    assert!(read(&asked).is_ok());
    assert_eq!(query(1, &format!("{longest}x")), None);
    assert_eq!(query(1, "a\0b"), None);
    assert_eq!(reply(Answer::Hit, 1, b"a\0b"), None);
}

/// Section, what is stored, seconds ago, whether it is offered.
#[test]
fn a_hit_is_what_a_request_for_stored_replies_alone_will_be_answered_with() {
    let rows = [
        ("2187 5.2.5 nothing", None, 0, false),
        ("2187 5.2.3 fresh", stored(200, "cache-control: max-age=60"), 0, true),
        ("2187 5.2.3 fresh for 30 s more", stored(200, "cache-control: max-age=60"), 29, true),
        ("2187 5.2.3 stale in 30 s", stored(200, "cache-control: max-age=60"), 30, false),
        ("2187 5.2.3 stale", stored(200, "cache-control: max-age=60"), 61, false),
        ("9111 4.2 of some age when it came", stored(200, "cache-control: max-age=60|age: 31"), 0, false),
        ("9111 5.2.2.4 to be validated", stored(200, "cache-control: no-cache|etag: \"a\""), 0, false),
        (
            "5861 3 stale, though usable",
            stored(200, "cache-control: max-age=1, stale-while-revalidate=99"),
            9,
            false,
        ),
        ("9111 3 an error with a lifetime", stored(404, "cache-control: max-age=60"), 0, true),
    ];
    for (section, facts, ago_s, offered) in rows {
        let then = WallSeconds(NOW.0 + ago_s);
        assert_eq!(is_offered(facts.as_ref(), &Policy::default(), then), offered, "{section}");
    }
    let part = StoredFacts {
        status: StatusCode::PARTIAL_CONTENT,
        extent: Extent { first: 0, length: 3, total: Some(10) },
        ..stored(200, "cache-control: max-age=60").expect("stored")
    };
    assert!(
        !is_offered(Some(&part), &Policy::default(), NOW),
        "9111 3.3: of a part the whole is not to be had"
    );
    assert_eq!(FRESH_S_MIN, 30);
}

/// Section, method, request's fields, whether others are asked.
#[test]
fn others_are_asked_only_for_what_a_store_may_give_anybody() {
    let rows = [
        ("2187 5.1.1 GET", "GET", "", true),
        ("2187 5.1.1 not HEAD", "HEAD", "", false),
        ("2187 5.1.1 not POST", "POST", "", false),
        ("2187 5.1.2 Pragma: no-cache", "GET", "pragma: no-cache", false),
        ("9111 5.2.1.4 no-cache", "GET", "cache-control: no-cache", false),
        ("9111 5.2.1.5 no-store", "GET", "cache-control: no-store", false),
        ("9111 5.2.1.7 only-if-cached", "GET", "cache-control: only-if-cached", false),
        ("9111 5.2.1.1 max-age=0", "GET", "cache-control: max-age=0", false),
        ("9111 5.2.1.1 max-age=60", "GET", "cache-control: max-age=60", true),
        ("9111 3.5 Authorization", "GET", "authorization: x", false),
        ("9111 4.3.2 If-Match", "GET", "if-match: \"a\"", false),
        ("9111 4.3.2 If-None-Match", "GET", "if-none-match: \"a\"", true),
        ("9110 14.2 Range", "GET", "range: bytes=0-1", true),
    ];
    for (section, method, request, asked) in rows {
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        assert_eq!(is_queryable(&RequestFacts::of(&method, &fields(request))), asked, "{section}");
    }
}

/// Section, a sibling's status, whether it is passed on.
#[test]
fn a_sibling_s_word_is_taken_only_where_it_can_be_the_origin_s() {
    let rows = [
        ("2187 5.2.3 it has it", 200, true),
        ("9110 15.3.7 a part", 206, true),
        ("9110 15.4.2", 301, true),
        ("9111 4.3.2 the client has it", 304, true),
        ("9110 15.5.5 stored", 404, true),
        ("9110 15.5.11 stored", 410, true),
        ("9111 5.2.1.7 it has it no more", 504, false),
        ("9110 15.5.4 this cache may not ask there", 403, false),
        ("9110 15.5.8 nor without a password", 407, false),
        ("5842 7.2 it takes this for a loop", 508, false),
        ("9110 15.6.1", 500, false),
        ("9110 15.5.1", 400, false),
    ];
    for (section, status, taken) in rows {
        assert_eq!(
            is_usable_reply(StatusCode::from_u16(status).expect("a status")),
            taken,
            "{section} {status}"
        );
    }
}

proptest! {
    #[test]
    fn no_bytes_panic_and_what_is_read_is_written_as_it_was(
        bytes in prop::collection::vec(any::<u8>(), 0..80), opcode in 0..30_u8, own_length: bool, ends: bool,
    ) {
        let mut bytes = bytes;
        let _ = read(&bytes);
        // Near misses: a head that is nearly right.
        if bytes.len() >= 20 {
            (bytes[0], bytes[1]) = (opcode, 2);
            if own_length {
                let length = bytes.len() as u16;
                bytes[2..4].copy_from_slice(&length.to_be_bytes());
            }
            if ends && let Some(last) = bytes.last_mut() {
                *last = 0;
            }
        }
        match read(&bytes) {
            Ok(Message::Query { number, url }) => {
                let text = std::str::from_utf8(url).ok();
                if let Some(again) = text.and_then(|url| query(number, url)) {
                    prop_assert_eq!(read(&again), Ok(Message::Query { number, url }));
                    prop_assert_eq!(again.len(), bytes.len());
                }
                for answer in Answer::ALL {
                    prop_assert!(reply(answer, number, url).is_some_and(|said| said.len() < bytes.len()));
                }
            }
            Ok(Message::Reply { answer, number, url }) => {
                let again = reply(answer, number, url).expect("it was one");
                prop_assert_eq!(read(&again), Ok(Message::Reply { answer, number, url }));
            }
            Err(_) => {}
        }
    }
}
