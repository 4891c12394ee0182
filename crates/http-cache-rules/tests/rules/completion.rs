//! What is missing of a stored part (RFC 9111 sections 3.3 and 3.4, RFC 9110 sections 13.1.5, 14.4 and 15.3.7.3).

use http::{HeaderMap, Method, StatusCode};
use http_cache_rules::Meta;
use http_cache_rules::completion::{Completion, is_insufficient};

use crate::ranges::meta_of;
use crate::{NOW, fields};

const PREFIX: &str = "content-range: bytes 0-4/10|etag: \"a\"";
const SUFFIX: &str = "content-range: bytes 6-9/10|etag: \"a\"";
const MIDDLE: &str = "content-range: bytes 3-5/10|etag: \"a\"";
const DATED: &str = "content-range: bytes 0-4/10|date: @0|last-modified: @-60";

/// Section, what is stored, request's fields, what is asked for, and what there will be of it.
#[rustfmt::skip]
const ROWS: &[(&str, &str, &str, &str, &str)] = &[
    ("9111 3.3 the end of the whole", PREFIX, "", "bytes=5-", "0-9"),
    ("9111 3.3 its beginning", SUFFIX, "", "bytes=0-5", "0-9"),
    ("9111 3.3 both are missing", MIDDLE, "", "", ""),
    ("9111 3.3 by a strong date", DATED, "", "bytes=5-", "0-9"),
    ("9110 8.8.2.2 a date of the same second", "content-range: bytes 0-4/10|date: @0|last-modified: @0", "", "", ""),
    ("9111 3.4 a weak tag", "content-range: bytes 0-4/10|etag: W/\"a\"", "", "", ""),
    ("9111 3.4 no validator", "content-range: bytes 0-4/10", "", "", ""),
    ("9110 14.4 a whole of unknown length", "content-range: bytes 0-4/*|etag: \"a\"", "", "", ""),
    ("9111 3.3 nothing is missing", "content-range: bytes 0-9/10|etag: \"a\"", "", "", ""),
    ("9110 14.2 overlaps its end", PREFIX, "range: bytes=3-7", "bytes=5-7", "0-7"),
    ("9110 14.2 touches its end", PREFIX, "range: bytes=5-6", "bytes=5-6", "0-6"),
    ("9110 14.2 to the end of all", PREFIX, "range: bytes=2-", "bytes=5-", "0-9"),
    ("9110 14.2 beyond the end of all", PREFIX, "range: bytes=2-99", "bytes=5-", "0-9"),
    ("9110 14.2 the last ones", PREFIX, "range: bytes=-6", "bytes=5-", "0-9"),
    ("9110 14.2 overlaps its beginning", SUFFIX, "range: bytes=4-7", "bytes=4-5", "4-9"),
    ("9110 14.2 touches its beginning", SUFFIX, "range: bytes=4-5", "bytes=4-5", "4-9"),
    ("9110 14.2 leaves a gap behind it", PREFIX, "range: bytes=6-7", "", ""),
    ("9110 14.2 leaves a gap before it", SUFFIX, "range: bytes=2-4", "", ""),
    ("9110 14.2 on both sides", MIDDLE, "range: bytes=2-6", "", ""),
    ("9110 14.2 is there", PREFIX, "range: bytes=1-2", "", ""),
    ("9110 14.1.2 lies outside", PREFIX, "range: bytes=10-", "", ""),
    ("9110 14.2 several", PREFIX, "range: bytes=3-7,8-9", "", ""),
    ("9110 14.2 a malformed one is none", PREFIX, "range: bytes=x", "bytes=5-", "0-9"),
    ("9110 13.1.5 If-Range of this", PREFIX, "range: bytes=3-7|if-range: \"a\"", "bytes=5-7", "0-7"),
    ("9110 13.1.5 If-Range of another: the whole", PREFIX, "range: bytes=3-7|if-range: \"b\"", "bytes=5-", "0-9"),
    ("a piece of a fifth", "content-range: bytes 0-79/999|etag: \"a\"", "range: bytes=80-99", "bytes=80-99", "0-99"),
    ("a smaller one", "content-range: bytes 0-79/999|etag: \"a\"", "range: bytes=80-98", "", ""),
    ("a smaller one that makes it whole", "content-range: bytes 0-79/81|etag: \"a\"", "", "bytes=80-", "0-80"),
];

#[test]
fn only_what_is_missing_is_asked_for_and_only_if_it_holds_together() {
    for (section, stored, request, range, extent) in ROWS {
        let bytes = meta_of(206, stored);
        let meta = Meta::from_bytes(&bytes).expect("facts");
        let request = fields(request);
        let completion = Completion::of(&request, &meta, NOW);
        let (mut asked, mut told) = (request.clone(), String::new());
        if let Some(completion) = &completion {
            completion.request_missing(&mut asked);
            told = format!("{}-{}", completion.extent.first, completion.extent.end() - 1);
            assert_eq!(asked.get_all("if-range").iter().count(), 1, "{section}");
        }
        let found = completion.as_ref().map_or("", |_| asked["range"].to_str().expect("text"));
        assert_eq!((found, told.as_str()), (*range, *extent), "{section}");
    }
}

/// Section, status, fields of the reply to a request for 5-9 of 10, whether it brings that.
#[test]
fn a_reply_is_put_to_a_part_only_when_it_is_just_what_was_asked_for_of_the_same_content() {
    let rows = [
        ("9110 15.3.7", 206, "content-range: bytes 5-9/10|etag: \"a\"", true),
        (
            "9110 15.3.7.3 with its length",
            206,
            "content-range: bytes 5-9/10|etag: \"a\"|content-length: 5",
            true,
        ),
        (
            "9110 14.4 its length is another",
            206,
            "content-range: bytes 5-9/10|etag: \"a\"|content-length: 4",
            false,
        ),
        ("9110 15.3.7.3 of a whole of unknown length", 206, "content-range: bytes 5-9/*|etag: \"a\"", true),
        ("9110 13.1.5 it has changed", 200, "etag: \"b\"|content-length: 10", false),
        ("9111 3.4 another tag", 206, "content-range: bytes 5-9/10|etag: \"b\"", false),
        ("9111 3.4 a weak tag", 206, "content-range: bytes 5-9/10|etag: W/\"a\"", false),
        ("9111 3.4 no tag", 206, "content-range: bytes 5-9/10", false),
        ("9110 15.3.7.3 another whole", 206, "content-range: bytes 5-9/11|etag: \"a\"", false),
        ("9110 15.3.7 less", 206, "content-range: bytes 5-8/10|etag: \"a\"", false),
        ("9110 15.3.7 more", 206, "content-range: bytes 4-9/10|etag: \"a\"", false),
        ("9110 14.4 no place", 206, "etag: \"a\"", false),
        (
            "9110 14.4 two places",
            206,
            "content-range: bytes 5-9/10|content-range: bytes 5-9/10|etag: \"a\"",
            false,
        ),
        ("9110 15.5.17", 416, "content-range: bytes */3", false),
    ];
    let bytes = meta_of(206, PREFIX);
    let meta = Meta::from_bytes(&bytes).expect("facts");
    let completion = Completion::of(&HeaderMap::new(), &meta, NOW).expect("the rest");
    for (section, status, reply, brings) in rows {
        let status = StatusCode::from_u16(status).expect("a status");
        assert_eq!(
            completion.is_satisfied_by(&meta, status, &fields(reply), NOW),
            brings,
            "{section}: {reply}"
        );
    }
}

#[test]
fn what_comes_of_it_says_what_it_is() {
    let rows = [
        (PREFIX, "", 200, "-", "10", None),
        (PREFIX, "range: bytes=3-7", 206, "bytes 0-7/10", "8", Some(("bytes 3-7/10", "5", (3, 5)))),
        (SUFFIX, "range: bytes=0-7", 200, "-", "10", Some(("bytes 0-7/10", "8", (0, 8)))),
        (SUFFIX, "range: bytes=4-4", 206, "-", "-", None),
        (SUFFIX, "range: bytes=5-6", 206, "bytes 5-9/10", "5", Some(("bytes 5-6/10", "2", (0, 2)))),
    ];
    for (stored, request, status, range, length, wanted) in rows {
        let bytes = meta_of(206, stored);
        let meta = Meta::from_bytes(&bytes).expect("facts");
        let Some(completion) = Completion::of(&fields(request), &meta, NOW) else {
            assert_eq!(range, "-", "{stored} {request}");
            continue;
        };
        let mut reply = fields("content-range: bytes 1-2/3|content-length: 9");
        let text = |reply: &HeaderMap, name: &str| {
            reply.get(name).map_or("-".to_owned(), |value| value.to_str().expect("text").to_owned())
        };
        assert_eq!(completion.describe(&mut reply).as_u16(), status, "{stored} {request}");
        assert_eq!(
            (text(&reply, "content-range").as_str(), text(&reply, "content-length").as_str()),
            (range, length)
        );
        let slice = completion.describe_wanted(&mut reply);
        let told = (text(&reply, "content-range"), text(&reply, "content-length"));
        if let Some((range, length, of)) = wanted {
            assert_eq!(
                (told.0.as_str(), told.1.as_str(), slice),
                (range, length, Some(of)),
                "{stored} {request}"
            );
        } else {
            assert_eq!(slice, None);
        }
    }
}

#[test]
fn a_part_is_too_little_only_for_who_wants_more_and_has_not_got_it() {
    let bytes = meta_of(206, PREFIX);
    let meta = Meta::from_bytes(&bytes).expect("facts");
    for (method, request, too_little) in [
        ("GET", "range: bytes=3-7", true),
        ("GET", "range: bytes=3-4", false),
        ("GET", "range: bytes=3-7|if-none-match: \"a\"", false),
        ("GET", "range: bytes=99-", false),
        ("HEAD", "", false),
    ] {
        let method: Method = method.parse().expect("a method");
        assert_eq!(is_insufficient(&method, &fields(request), &meta, NOW), too_little, "{method} {request}");
    }
}
