//! Range, If-Range, Content-Range, and parts put together (RFC 9110 section 14, RFC 9111 sections 3.3 and 3.4).

use http_cache_rules::facts::meta_bytes;
use http_cache_rules::ranges::{
    Plan, RANGES_MAX, combine, content_range, content_range_value, part_head, parts_end, plan, wanted,
};
use http_cache_rules::{Extent, Meta, Policy};

use crate::storing::judged;
use crate::{NOW, fields};

fn shown(plan: &Plan) -> String {
    match plan {
        Plan::Whole => "200".to_owned(),
        Plan::One(span) => format!("{}-{}", span.first, span.last),
        Plan::Several(spans) => {
            spans.iter().map(|span| format!("{}-{}", span.first, span.last)).collect::<Vec<_>>().join(" ")
        }
        Plan::Unsatisfiable(total) => format!("416 */{total}"),
        Plan::NotHere => "fetch".to_owned(),
    }
}

pub fn meta_of(status: u16, reply: &str) -> Vec<u8> {
    let reply = format!("cache-control: max-age=60|{reply}");
    let facts = judged("GET", "", status, &reply, &Policy::default()).expect("stored");
    meta_bytes(facts, &fields(&reply), &fields(""))
}

/// Section, status, reply stored, request's fields, what is sent.
#[rustfmt::skip]
const PLANS: &[(&str, u16, &str, &str, &str)] = &[
    ("9110 14.2 no Range", 200, "content-length: 10", "", "200"),
    ("9110 14.1.2 both ends", 200, "content-length: 10", "range: bytes=2-4", "2-4"),
    ("9110 14.1.2 one byte", 200, "content-length: 10", "range: bytes=0-0", "0-0"),
    ("9110 14.1.2 to the end", 200, "content-length: 10", "range: bytes=7-", "7-9"),
    ("9110 14.1.2 the last bytes", 200, "content-length: 10", "range: bytes=-3", "7-9"),
    ("9110 14.1.2 more last bytes than there are", 200, "content-length: 10", "range: bytes=-30", "0-9"),
    ("9110 14.1.2 past the end is the end", 200, "content-length: 10", "range: bytes=7-100", "7-9"),
    ("9110 14.1.2 begins past the end", 200, "content-length: 10", "range: bytes=10-", "416 */10"),
    ("9110 14.1.2 no last bytes", 200, "content-length: 10", "range: bytes=-0", "416 */10"),
    ("9110 14.1.2 of nothing", 200, "content-length: 0", "range: bytes=0-", "416 */0"),
    ("9110 14.1.2 the last of nothing", 200, "content-length: 0", "range: bytes=-5", "416 */0"),
    ("9110 14.1.2 several", 200, "content-length: 10", "range: bytes=0-1,8-", "0-1 8-9"),
    ("9110 14.1.2 white space in the list", 200, "content-length: 10", "range: bytes= 0-1 ,, 8- ", "0-1 8-9"),
    ("9110 15.3.7 in the order asked for", 200, "content-length: 10", "range: bytes=8-,0-1", "8-9 0-1"),
    ("9110 15.3.7 those that overlap are one", 200, "content-length: 10", "range: bytes=0-4,3-6", "0-6"),
    ("9110 15.3.7 those that touch too", 200, "content-length: 10", "range: bytes=0-4,5-6", "0-6"),
    ("9110 15.3.7 some overlap", 200, "content-length: 10", "range: bytes=8-8,0-2,1-3", "0-3 8-8"),
    ("9110 14.1.2 those outside are left out", 200, "content-length: 10", "range: bytes=0-1,20-30", "0-1"),
    ("9110 14.1.2 all outside", 200, "content-length: 10", "range: bytes=20-,30-", "416 */10"),
    ("9110 14.1 another unit", 200, "content-length: 10", "range: lines=0-1", "200"),
    ("9110 14.1 case of the unit", 200, "content-length: 10", "range: BYTES=0-1", "0-1"),
    ("9110 14.2 backwards is malformed", 200, "content-length: 10", "range: bytes=4-2", "200"),
    ("9110 14.2 no dash", 200, "content-length: 10", "range: bytes=4", "200"),
    ("9110 14.2 only a dash", 200, "content-length: 10", "range: bytes=-", "200"),
    ("9110 14.2 a sign", 200, "content-length: 10", "range: bytes=+1-2", "200"),
    ("9110 14.2 a letter", 200, "content-length: 10", "range: bytes=1-2x", "200"),
    ("9110 14.2 one malformed spoils all", 200, "content-length: 10", "range: bytes=0-1,x", "200"),
    ("9110 14.2 empty", 200, "content-length: 10", "range: bytes=", "200"),
    ("9110 14.2 no unit", 200, "content-length: 10", "range: 0-1", "200"),
    ("9110 14.2 two lines", 200, "content-length: 10", "range: bytes=0-1|range: bytes=2-3", "200"),
    ("9110 14.2 past 63 bits is malformed", 200, "content-length: 10", "range: bytes=0-9223372036854775808", "200"),
    ("9110 14.2 an error has no parts", 404, "content-length: 10", "range: bytes=0-1", "200"),
    // If-Range.
    ("9110 13.1.5 the same tag", 200, "content-length: 10|etag: \"a\"", "range: bytes=0-1|if-range: \"a\"", "0-1"),
    ("9110 13.1.5 another tag", 200, "content-length: 10|etag: \"a\"", "range: bytes=0-1|if-range: \"b\"", "200"),
    ("9110 13.1.5 a weak tag is never the same", 200, "content-length: 10|etag: W/\"a\"", "range: bytes=0-1|if-range: W/\"a\"", "200"),
    ("9110 13.1.5 no stored tag", 200, "content-length: 10", "range: bytes=0-1|if-range: \"a\"", "200"),
    ("9110 13.1.5 the same date, strong", 200, "content-length: 10|date: @0|last-modified: @-60", "range: bytes=0-1|if-range: @-60", "0-1"),
    ("9110 8.8.2.2 changed within the second it was made", 200, "content-length: 10|date: @0|last-modified: @0", "range: bytes=0-1|if-range: @0", "200"),
    ("9110 13.1.5 a later date is not the same", 200, "content-length: 10|date: @0|last-modified: @-60", "range: bytes=0-1|if-range: @-59", "200"),
    ("9110 13.1.5 unreadable", 200, "content-length: 10|etag: \"a\"", "range: bytes=0-1|if-range: a", "200"),
    ("9110 13.1.5 two of them", 200, "content-length: 10|etag: \"a\"", "range: bytes=0-1|if-range: \"a\"|if-range: \"a\"", "200"),
    ("9110 13.1.5 without Range it does not count", 200, "content-length: 10|etag: \"a\"", "if-range: \"b\"", "200"),
    // From a stored part: bytes 4 to 9 of 20.
    ("9111 3.3 all of it", 206, "content-range: bytes 4-9/20", "range: bytes=4-9", "4-9"),
    ("9111 3.3 within", 206, "content-range: bytes 4-9/20", "range: bytes=5-6", "5-6"),
    ("9111 3.3 before it", 206, "content-range: bytes 4-9/20", "range: bytes=3-6", "fetch"),
    ("9111 3.3 beyond it", 206, "content-range: bytes 4-9/20", "range: bytes=5-10", "fetch"),
    ("9111 3.3 to the end", 206, "content-range: bytes 4-9/20", "range: bytes=5-", "fetch"),
    ("9111 3.3 to the end, which it has", 206, "content-range: bytes 14-19/20", "range: bytes=15-", "15-19"),
    ("9111 3.3 the last bytes, which it has", 206, "content-range: bytes 14-19/20", "range: bytes=-2", "18-19"),
    ("9111 3.3 two, both within", 206, "content-range: bytes 4-9/20", "range: bytes=4-5,8-9", "4-5 8-9"),
    ("9111 3.3 two, one within", 206, "content-range: bytes 4-9/20", "range: bytes=4-5,18-", "fetch"),
    ("9110 14.1.2 past the whole's end", 206, "content-range: bytes 4-9/20", "range: bytes=20-", "416 */20"),
    ("9111 3.3 the whole", 206, "content-range: bytes 4-9/20", "", "fetch"),
    ("9111 3.3 If-Range fails: the whole is wanted", 206, "content-range: bytes 4-9/20|etag: \"a\"", "range: bytes=5-6|if-range: \"b\"", "fetch"),
    ("9110 14.4 of a length unknown, within", 206, "content-range: bytes 4-9/*", "range: bytes=5-6", "5-6"),
    ("9110 14.4 of a length unknown, to the end", 206, "content-range: bytes 4-9/*", "range: bytes=5-", "fetch"),
    ("9110 14.4 of a length unknown, the last", 206, "content-range: bytes 4-9/*", "range: bytes=-2", "fetch"),
];

#[test]
fn parts_are_sent_as_the_sections_say() {
    for (section, status, reply, request, sent) in PLANS {
        let bytes = meta_of(*status, reply);
        let meta = Meta::from_bytes(&bytes).expect("facts");
        assert_eq!(shown(&plan(&fields(request), &meta, NOW)), *sent, "{section}: {reply} / {request}");
    }
}

#[test]
fn a_request_for_very_many_parts_gets_the_whole() {
    let many = |count: u64| {
        fields(&format!(
            "range: bytes={}",
            (0..count).map(|place| format!("{0}-{0}", place * 3)).collect::<Vec<_>>().join(",")
        ))
    };
    let bytes = meta_of(200, "content-length: 1000");
    let meta = Meta::from_bytes(&bytes).expect("facts");
    assert!(
        matches!(plan(&many(RANGES_MAX as u64), &meta, NOW), Plan::Several(spans) if spans.len() == RANGES_MAX)
    );
    assert_eq!(plan(&many(RANGES_MAX as u64 + 1), &meta, NOW), Plan::Whole, "RFC 9110 section 17.15");
    assert_eq!(wanted(&fields("range: bytes=0-,0-,0-,0-,0-")).map(|wanted| wanted.len()), Some(5));
    assert_eq!(
        shown(&plan(&fields("range: bytes=0-,0-,0-,0-,0-"), &meta, NOW)),
        "0-999",
        "the whole is not sent five times"
    );
}

/// Section, value of Content-Range, first byte, length, total.
type ContentRange = (&'static str, &'static str, Option<(u64, u64, Option<u64>)>);

#[rustfmt::skip]
const CONTENT_RANGES: &[ContentRange] = &[
    ("9110 14.4", "bytes 4-9/10", Some((4, 6, Some(10)))),
    ("9110 14.4 length unknown", "bytes 4-9/*", Some((4, 6, None))),
    ("9110 14.4 case of the unit", "Bytes 0-0/1", Some((0, 1, Some(1)))),
    ("9110 14.4 ends at the whole's end or past it", "bytes 4-10/10", None),
    ("9110 14.4 backwards", "bytes 9-4/10", None),
    ("9110 14.4 unsatisfied", "bytes */10", None),
    ("9110 14.4 another unit", "lines 4-9/10", None),
    ("9110 14.4 no unit", "4-9/10", None),
    ("9110 14.4 no total", "bytes 4-9", None),
    ("9110 14.4 a slash before the dash", "bytes 4/9-10", None),
    ("9110 14.4 a sign", "bytes -4-9/10", None),
    ("9110 14.4 nothing", "", None),
    ("9110 14.4 past 63 bits", "bytes 0-9223372036854775808/*", None),
    ("9110 14.4 up to 63 bits", "bytes 0-9223372036854775807/*", Some((0, 1 << 63, None))),
];

#[test]
fn content_range_is_read_and_written_as_the_sections_say() {
    for (section, text, extent) in CONTENT_RANGES {
        let extent = extent.map(|(first, length, total)| Extent { first, length, total });
        assert_eq!(content_range(text.as_bytes()), extent, "{section}: {text}");
    }
    assert_eq!(content_range_value(None, Some(10)), "bytes */10", "RFC 9110 section 15.5.17");
}

#[test]
fn parts_are_combined_only_when_they_are_of_the_same_content_and_leave_no_gap() {
    let whole = Some((0, 10, Some(10)));
    for (one, other, together) in [
        ("0-4/10|etag: \"a\"", "5-9/10|etag: \"a\"", whole),
        ("5-9/10|etag: \"a\"", "0-4/10|etag: \"a\"", whole),
        ("0-6/10|etag: \"a\"", "3-9/10|etag: \"a\"", whole),
        ("0-4/*|etag: \"a\"", "5-9/10|etag: \"a\"", whole),
        ("0-4/10|etag: \"a\"", "6-9/10|etag: \"a\"", None),
        ("0-4/10|etag: \"a\"", "5-9/11|etag: \"a\"", None),
        ("0-4/10|etag: \"a\"", "5-9/10|etag: \"b\"", None),
        ("0-4/10|etag: W/\"a\"", "5-9/10|etag: W/\"a\"", None),
        ("0-4/10|etag: \"a\"", "5-9/10", None),
        ("0-4/10", "5-9/10", None),
        ("0-4/10|date: @0|last-modified: @-60", "5-9/10|date: @0|last-modified: @-60", whole),
        ("0-4/10|date: @0|last-modified: @-60", "5-9/10|date: @0|last-modified: @-61", None),
    ] {
        let (one_bytes, other_bytes) = (
            meta_of(206, &format!("content-range: bytes {one}")),
            meta_of(206, &format!("content-range: bytes {other}")),
        );
        let (first, second) =
            (Meta::from_bytes(&one_bytes).expect("facts"), Meta::from_bytes(&other_bytes).expect("facts"));
        let expected = together.map(|(first, length, total)| Extent { first, length, total });
        assert_eq!(combine(&first, &second), expected, "RFC 9111 section 3.4: {one} and {other}");
    }
}

#[test]
fn several_parts_are_sent_in_the_form_of_rfc_9110_section_14_6() {
    let bytes = meta_of(200, "content-length: 8000");
    let Plan::Several(spans) =
        plan(&fields("range: bytes=500-999,7000-7999"), &Meta::from_bytes(&bytes).expect("facts"), NOW)
    else {
        panic!("two parts");
    };
    let heads: String = spans.iter().map(|span| part_head("SEP", Some("text/plain"), *span, 8000)).collect();
    let expected = "\r\n--SEP\r\nContent-Type: text/plain\r\nContent-Range: bytes 500-999/8000\r\n\r\n\
                    \r\n--SEP\r\nContent-Type: text/plain\r\nContent-Range: bytes 7000-7999/8000\r\n\r\n";
    assert_eq!((heads.as_str(), parts_end("SEP").as_str()), (expected, "\r\n--SEP--\r\n"));
}
