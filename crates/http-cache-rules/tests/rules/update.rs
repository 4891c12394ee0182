//! What a 304 or the reply to a HEAD does to what is stored (RFC 9111 sections 3.2, 4.3.4, 4.3.5).

use http::{Method, StatusCode};
use http_cache_rules::facts::meta_bytes;
use http_cache_rules::policy::Foreign304;
use http_cache_rules::update::{Confirmed, HeadSays, head_says, identify, merge, refresh};
use http_cache_rules::{Exchange, Meta, Policy, RequestFacts, WallSeconds};

use crate::storing::judged;
use crate::{NOW, fields};

fn meta_of(reply: &str) -> Vec<u8> {
    let reply = format!("cache-control: max-age=60|{reply}");
    let facts = judged("GET", "", 200, &reply, &Policy::default()).expect("stored");
    meta_bytes(facts, &fields(&reply), &fields(""))
}

/// Section, replies stored (the first was asked about), the 304's fields, which one it confirms.
#[rustfmt::skip]
const IDENTIFIED: &[(&str, &[&str], &str, Option<usize>)] = &[
    ("9111 4.3.4 the same strong tag", &["etag: \"a\""], "etag: \"a\"", Some(0)),
    ("9111 4.3.4 another strong tag: none", &["etag: \"a\""], "etag: \"b\"", None),
    ("9111 4.3.4 a strong tag for a weak one: none", &["etag: W/\"a\""], "etag: \"a\"", None),
    ("9111 4.3.4 the strong tag of another one", &["etag: \"a\"", "etag: \"b\""], "etag: \"b\"", Some(1)),
    ("9111 4.3.4 a weak tag", &["etag: W/\"a\""], "etag: W/\"a\"", Some(0)),
    ("9111 4.3.4 a weak tag for a strong one", &["etag: \"a\""], "etag: W/\"a\"", Some(0)),
    ("9111 4.3.4 of two with the weak tag the later", &["etag: W/\"a\"|date: @-9", "etag: W/\"a\"|date: @-5"], "etag: W/\"a\"", Some(1)),
    ("9111 4.3.4 another weak tag: none", &["etag: W/\"a\""], "etag: W/\"b\"", None),
    ("9111 4.3.4 the same date", &["last-modified: @-60"], "last-modified: @-60", Some(0)),
    ("9111 4.3.4 another date: none", &["last-modified: @-60"], "last-modified: @-61", None),
    ("9111 4.3.4 no validator on either side", &["foo: 1"], "", Some(0)),
    ("9111 4.3.4 no validator in the 304: what was asked about", &["etag: \"a\"", "etag: \"b\"|date: @5"], "", Some(0)),
];

#[test]
fn a_304_confirms_the_stored_reply_that_the_sections_say() {
    for (section, stored, reply, place) in IDENTIFIED {
        let stored: Vec<Vec<u8>> = stored.iter().map(|reply| meta_of(reply)).collect();
        let metas: Vec<Meta<'_>> =
            stored.iter().map(|bytes| Meta::from_bytes(bytes).expect("facts")).collect();
        let expected = place.map_or(Confirmed::None, Confirmed::This);
        assert_eq!(identify(&metas, 0, &fields(reply), &Policy::default()), expected, "{section}");
    }
    let bytes = meta_of("etag: \"a-gzip\"");
    let stored = [Meta::from_bytes(&bytes).expect("facts")];
    let lenient = Policy { foreign_304: Foreign304::KeepStoredTag, ..Policy::default() };
    assert_eq!(
        identify(&stored, 0, &fields("etag: \"a\""), &lenient),
        Confirmed::This(0),
        "the operator's choice"
    );
}

/// Section, stored fields, the 304's fields, the fields afterwards.
#[rustfmt::skip]
const MERGED: &[(&str, &str, &str, &str)] = &[
    ("9111 3.2 replaced", "a: 1", "a: 2", "a: 2"),
    ("9111 3.2 kept", "a: 1|b: 1", "a: 2", "a: 2|b: 1"),
    ("9111 3.2 added", "a: 1", "b: 2", "a: 1|b: 2"),
    ("9111 3.2 all lines replaced", "a: 1|a: 2", "a: 3", "a: 3"),
    ("9111 3.2 by all lines", "a: 1", "a: 2|a: 3", "a: 2|a: 3"),
    ("9111 3.2 not the length", "content-length: 5", "content-length: 0", "content-length: 5"),
    ("9111 3.2 not the coding", "content-encoding: gzip", "content-encoding: br", "content-encoding: gzip"),
    ("9111 3.2 not the place", "content-range: bytes 0-1/2", "content-range: bytes 0-2/3", "content-range: bytes 0-1/2"),
    ("9111 4.3.4 not the tag", "etag: \"a\"", "etag: W/\"a\"", "etag: \"a\""),
    ("9530 3 not a digest of the bytes", "repr-digest: a", "repr-digest: b", "repr-digest: a"),
    ("9111 3.2 the type", "content-type: a/b", "content-type: a/c", "content-type: a/c"),
    ("9111 5.1 the old Age goes", "age: 50", "", ""),
    ("9111 5.1 a new Age comes", "age: 50", "age: 3", "age: 3"),
    ("9110 6.6.1 the old Date goes", "date: @-60", "", ""),
    ("9110 6.6.1 a new Date comes", "date: @-60", "date: @0", "date: @0"),
];

#[test]
fn fields_are_merged_as_the_sections_say() {
    for (section, stored, reply, merged) in MERGED {
        let mut headers = fields(stored);
        merge(&mut headers, &fields(reply));
        assert_eq!(headers, fields(merged), "{section}");
    }
}

#[test]
fn a_validated_reply_is_fresh_again_by_its_new_fields_and_keeps_its_bytes() {
    let stored = "cache-control: max-age=60|etag: \"a\"|content-length: 10|date: @0|age: 30";
    let old = judged("GET", "", 200, stored, &Policy::default()).expect("stored");
    let mut headers = fields(stored);
    let later = WallSeconds(NOW.0 + 100);
    merge(&mut headers, &fields("cache-control: max-age=600|content-length: 0|age: 7|date: @100"));
    let (request_headers, request) = (fields(""), RequestFacts::of(&Method::GET, &fields("")));
    let exchange = Exchange {
        target: &"http://a.example/".parse().expect("a target"),
        request: &request,
        request_headers: &request_headers,
        requested_at: later,
        answered_at: later,
        status: StatusCode::NOT_MODIFIED,
        headers: &headers,
    };
    let new = refresh(&old, &exchange, &Policy::default()).expect("still to be stored");
    assert_eq!((new.status, new.extent), (old.status, old.extent), "RFC 9111 section 3.2");
    assert_eq!((new.lifetime_s, new.age_s(later)), (600, 7), "RFC 9111 section 4.3.4");

    let mut private = fields(stored);
    merge(&mut private, &fields("cache-control: private"));
    let refused = refresh(&old, &Exchange { headers: &private, ..exchange }, &Policy::default());
    assert_eq!(refused.map_err(|refusal| refusal.name()), Err("private"), "RFC 9111 section 3");
}

/// Section, stored, HEAD's status, its fields, what it says.
#[rustfmt::skip]
const HEADS: &[(&str, &str, u16, &str, HeadSays)] = &[
    ("9111 4.3.5 the same", "etag: \"a\"|content-length: 10", 200, "etag: \"a\"|content-length: 10", HeadSays::Same),
    ("9111 4.3.5 says nothing against it", "etag: \"a\"|content-length: 10", 200, "foo: 1", HeadSays::Same),
    ("9111 4.3.5 another tag", "etag: \"a\"", 200, "etag: \"b\"", HeadSays::Other),
    ("9111 4.3.5 a tag where there was none", "foo: 1", 200, "etag: \"b\"", HeadSays::Other),
    ("9111 4.3.5 another date", "last-modified: @-60", 200, "last-modified: @-50", HeadSays::Other),
    ("9111 4.3.5 another length", "content-length: 10", 200, "content-length: 11", HeadSays::Other),
    ("9111 4.3.5 an unreadable length", "content-length: 10", 200, "content-length: x", HeadSays::Other),
    ("9111 4.3.5 no success", "etag: \"a\"", 404, "etag: \"b\"", HeadSays::Nothing),
    ("9111 4.3.5 304 is dealt with elsewhere", "etag: \"a\"", 304, "etag: \"b\"", HeadSays::Nothing),
];

#[test]
fn the_reply_to_a_head_updates_or_drops_what_is_stored() {
    for (section, stored, status, reply, says) in HEADS {
        let bytes = meta_of(stored);
        let meta = Meta::from_bytes(&bytes).expect("facts");
        let status = StatusCode::from_u16(*status).expect("a status");
        assert_eq!(head_says(&meta, status, &fields(reply)), *says, "{section}: {stored} / {reply}");
    }
}
