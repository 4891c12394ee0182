//! Conditions answered from the store, and sent to the origin (RFC 9111 section 4.3, RFC 9110 section 13).

use http_cache_rules::conditional::{Outcome, clear_conditions, evaluate, leave_for_304, set_conditions};
use http_cache_rules::facts::meta_bytes;
use http_cache_rules::validators::{EntityTag, is_any, tags};
use http_cache_rules::{Meta, Policy};

use crate::storing::judged;
use crate::{NOW, date, fields};

/// Section, status, reply stored, request's fields, whether it is answered with 304.
#[rustfmt::skip]
const CONDITIONS: &[(&str, u16, &str, &str, bool)] = &[
    ("9110 13.1.2 the same", 200, "etag: \"a\"", "if-none-match: \"a\"", true),
    ("9110 13.1.2 another", 200, "etag: \"a\"", "if-none-match: \"b\"", false),
    ("9110 13.1.2 case counts", 200, "etag: \"a\"", "if-none-match: \"A\"", false),
    ("9110 13.1.2 first of several", 200, "etag: \"a\"", "if-none-match: \"a\", \"b\"", true),
    ("9110 13.1.2 last of several", 200, "etag: \"a\"", "if-none-match: \"b\", \"c\",\"a\"", true),
    ("9110 13.1.2 in another line", 200, "etag: \"a\"", "if-none-match: \"b\"|if-none-match: \"a\"", true),
    ("9110 13.1.2 compared weakly", 200, "etag: \"a\"", "if-none-match: W/\"a\"", true),
    ("9110 13.1.2 compared weakly", 200, "etag: W/\"a\"", "if-none-match: \"a\"", true),
    ("9110 13.1.2 both weak", 200, "etag: W/\"a\"", "if-none-match: W/\"a\"", true),
    ("9110 8.8.3 W has regard to case", 200, "etag: \"a\"", "if-none-match: w/\"a\"", false),
    ("9110 13.1.2 star", 200, "etag: \"a\"", "if-none-match: *", true),
    ("9110 13.1.2 star without a tag", 200, "", "if-none-match: *", true),
    ("9110 13.1.2 star among others is none", 200, "etag: \"a\"", "if-none-match: *, \"b\"", false),
    ("9110 8.8.3 without quotes it is no tag", 200, "etag: \"a\"", "if-none-match: a", false),
    ("9110 8.8.3 a comma in a tag", 200, "etag: \"a,b\"", "if-none-match: \"x\", \"a,b\"", true),
    ("9110 8.8.3 a backslash escapes nothing", 200, "etag: \"b\"", "if-none-match: \"a\\\", \"b\"", true),
    ("9110 8.8.3 bytes past ASCII", 200, "etag: \"ü\"", "if-none-match: \"ü\"", true),
    ("9110 8.8.3 the empty tag", 200, "etag: \"\"", "if-none-match: \"\"", true),
    ("9110 13.1.2 without a stored tag", 200, "last-modified: @-60", "if-none-match: \"a\"", false),
    ("9110 13.2.2 wins over If-Modified-Since", 200, "etag: \"a\"|last-modified: @-60", "if-none-match: \"b\"|if-modified-since: @0", false),
    ("9110 13.2.2 wins over If-Modified-Since", 200, "etag: \"a\"|last-modified: @-60", "if-none-match: \"a\"|if-modified-since: @-90", true),
    ("9110 13.2.2 wins even when it is unreadable", 200, "etag: \"a\"|last-modified: @-60", "if-none-match: a|if-modified-since: @0", false),
    ("9110 13.1.3 the same date", 200, "last-modified: @-60", "if-modified-since: @-60", true),
    ("9110 13.1.3 a later date", 200, "last-modified: @-60", "if-modified-since: @-59", true),
    ("9110 13.1.3 an earlier date", 200, "last-modified: @-60", "if-modified-since: @-61", false),
    ("9110 13.1.3 unreadable", 200, "last-modified: @-60", "if-modified-since: today", false),
    ("9110 13.1.3 two that differ", 200, "last-modified: @-60", "if-modified-since: @-60|if-modified-since: @0", false),
    ("9110 13.1.3 RFC 850", 200, "last-modified: @-60", "if-modified-since: Saturday, 21-Nov-26 23:59:00 GMT", true),
    ("9111 4.3.2 no Last-Modified: the Date counts", 200, "date: @-10", "if-modified-since: @-10", true),
    ("9111 4.3.2 no Last-Modified: made later", 200, "date: @-10", "if-modified-since: @-11", false),
    ("9111 4.3.2 neither: when it came counts", 200, "", "if-modified-since: @-1", false),
    ("9110 13.2.1 an error is not conditional", 404, "etag: \"a\"", "if-none-match: \"a\"", false),
    ("9110 13.2.1 a redirection neither", 301, "etag: \"a\"", "if-none-match: \"a\"", false),
    ("9110 13.1.2 no condition", 200, "etag: \"a\"", "", false),
];

#[test]
fn conditions_are_answered_as_the_sections_say() {
    for (section, status, reply, request, not_modified) in CONDITIONS {
        let reply = format!("cache-control: max-age=60|{reply}");
        let facts = judged("GET", "", *status, &reply, &Policy::default()).expect("stored");
        let bytes = meta_bytes(facts, &fields(&reply), &fields(""));
        let outcome = evaluate(&fields(request), &Meta::from_bytes(&bytes).expect("facts"), NOW);
        let expected = if *not_modified { Outcome::NotModified } else { Outcome::Send };
        assert_eq!(outcome, expected, "{section}: {reply} / {request}");
    }
}

/// Section, reply stored, what is sent in the place of the client's own conditions.
type Sent = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

#[rustfmt::skip]
const SENT: &[Sent] = &[
    ("9111 4.3.1 a tag", "etag: \"a\"", &[("if-none-match", "\"a\"")]),
    ("9111 4.3.1 a weak tag", "etag: W/\"a\"", &[("if-none-match", "W/\"a\"")]),
    ("9111 4.3.1 a date", "last-modified: Sun, 06 Nov 1994 08:49:37 GMT", &[("if-modified-since", "Sun, 06 Nov 1994 08:49:37 GMT")]),
    ("9110 13.1.3 another form is sent as a fixdate", "last-modified: Sunday, 06-Nov-94 08:49:37 GMT", &[("if-modified-since", "Sun, 06 Nov 1994 08:49:37 GMT")]),
    (
        "9111 4.3.1 both",
        "etag: \"a\"|last-modified: Sun, 06 Nov 1994 08:49:37 GMT",
        &[("if-none-match", "\"a\""), ("if-modified-since", "Sun, 06 Nov 1994 08:49:37 GMT")],
    ),
    ("9110 8.8.3 what is no tag is not sent", "etag: a|last-modified: Sun, 06 Nov 1994 08:49:37 GMT", &[("if-modified-since", "Sun, 06 Nov 1994 08:49:37 GMT")]),
];

#[test]
fn a_revalidation_sends_the_stored_validators_and_none_of_the_client_s() {
    for (section, reply, sent) in SENT {
        let reply = format!("cache-control: max-age=60|{reply}");
        let facts = judged("GET", "", 200, &reply, &Policy::default()).expect("stored");
        let bytes = meta_bytes(facts, &fields(&reply), &fields(""));
        let mut request =
            fields("if-none-match: \"x\"|if-modified-since: @0|if-range: \"x\"|range: bytes=0-1|foo: 1");
        set_conditions(&mut request, &Meta::from_bytes(&bytes).expect("facts"));
        let mut expected: Vec<(&str, &str)> = vec![("foo", "1")];
        expected.extend_from_slice(sent);
        expected.sort_unstable();
        let mut found: Vec<(&str, &str)> =
            request.iter().map(|(name, value)| (name.as_str(), value.to_str().expect("ASCII"))).collect();
        found.sort_unstable();
        assert_eq!(found, expected, "{section}");
    }
}

#[test]
fn a_second_try_has_no_conditions_and_passes_caches_on_the_way() {
    let mut request = fields("if-none-match: \"x\"|if-modified-since: @0|cache-control: max-stale");
    clear_conditions(&mut request);
    assert_eq!(request, fields("cache-control: no-cache"), "RFC 9111 section 4.3.4");
}

#[test]
fn a_304_repeats_what_rfc_9110_section_15_4_5_lists_and_leaves_the_body_s_description_out() {
    let stored =
        "etag: \"a\"|date: @0|expires: @5|vary: a|cache-control: max-age=60|content-location: /x|foo: 1";
    let mut headers = fields(&format!(
        "{stored}|content-type: a/b|content-length: 3|content-encoding: gzip|last-modified: @-9"
    ));
    leave_for_304(&mut headers);
    assert_eq!(headers, fields(stored));
    let mut without_tag = fields("last-modified: @-9|content-length: 3");
    leave_for_304(&mut without_tag);
    assert_eq!(without_tag, fields("last-modified: @-9"), "it is all there is to validate by");
}

/// Section, tag, other tag, whether they are strongly equal, and weakly: the table of RFC 9110 section 8.8.3.2.
#[rustfmt::skip]
const TAGS: &[(&str, &str, bool, bool)] = &[
    ("W/\"1\"", "W/\"1\"", false, true),
    ("W/\"1\"", "W/\"2\"", false, false),
    ("W/\"1\"", "\"1\"", false, true),
    ("\"1\"", "\"1\"", true, true),
    ("\"1\"", "\"2\"", false, false),
];

#[test]
fn tags_compare_as_in_the_table_of_rfc_9110_section_8_8_3_2() {
    for (one, other, strong, weak) in TAGS {
        let tag = |text: &'static str| EntityTag::parse(text.as_bytes()).expect("a tag");
        assert_eq!(
            (tag(one).strongly_equals(tag(other)), tag(one).weakly_equals(tag(other))),
            (*strong, *weak),
            "{one} {other}"
        );
    }
    for bad in [
        "a",
        "\"a",
        "a\"",
        "w/\"a\"",
        "W\"a\"",
        "W/a",
        "\"a\"b\"",
        "\"a b\"",
        "\"a\u{7f}\"",
        "",
        "\"",
        "W/\"",
    ] {
        assert_eq!(EntityTag::parse(bad.as_bytes()), None, "RFC 9110 section 8.8.3: {bad}");
    }
    let listed: Vec<&[u8]> = tags(b"x, \"a\" , W/\"b,c\",, y\"z\", \"d").map(|tag| tag.text).collect();
    assert_eq!(listed, [&b"\"a\""[..], b"W/\"b,c\""], "what is no tag is skipped");
    assert!(is_any(b" * ") && !is_any(b"*, *") && !is_any(b"\"*\""));
    assert_eq!(date(NOW), "Sun, 22 Nov 2026 00:00:00 GMT");
}
