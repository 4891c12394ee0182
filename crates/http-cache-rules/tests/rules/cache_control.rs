//! Cache-Control of replies and requests, Pragma, and targeted fields.

use http::HeaderName;
use http_cache_rules::lists::{delta_seconds, directive, members};
use http_cache_rules::{RequestDirectives, ResponseDirectives, cache_control};

use crate::fields;

/// The directives that are set, in one line.
fn shown(found: &ResponseDirectives) -> String {
    let flags = [
        ("no-store", found.no_store),
        ("no-cache", found.no_cache),
        ("no-cache=fields", found.no_cache_fields),
        ("private", found.private),
        ("private=fields", found.private_fields),
        ("public", found.public),
        ("must-revalidate", found.must_revalidate),
        ("proxy-revalidate", found.proxy_revalidate),
        ("must-understand", found.must_understand),
        ("immutable", found.immutable),
        ("targeted", found.targeted),
    ];
    let numbers = [
        ("max-age", found.max_age),
        ("s-maxage", found.s_maxage),
        ("swr", found.stale_while_revalidate),
        ("sie", found.stale_if_error),
    ];
    let mut shown: Vec<String> =
        flags.iter().filter(|(_, set)| *set).map(|(name, _)| (*name).to_owned()).collect();
    shown.extend(numbers.iter().filter_map(|(name, seconds)| Some(format!("{name}={}", (*seconds)?))));
    shown.join(" ")
}

/// Section, value of Cache-Control (`|cache-control: ` begins another line), what is understood.
#[rustfmt::skip]
const RESPONSES: &[(&str, &str, &str)] = &[
    ("9111 5.2 nothing", "", ""),
    ("9111 5.2.2.1", "max-age=60", "max-age=60"),
    ("9111 5.2.2.10", "s-maxage=60", "s-maxage=60"),
    ("9111 5.2.2.5", "no-store", "no-store"),
    ("9111 5.2.2.4", "no-cache", "no-cache"),
    ("9111 5.2.2.7", "private", "private"),
    ("9111 5.2.2.9", "public", "public"),
    ("9111 5.2.2.2", "must-revalidate", "must-revalidate"),
    ("9111 5.2.2.8", "proxy-revalidate", "proxy-revalidate"),
    ("9111 5.2.2.3", "must-understand, no-store", "no-store must-understand"),
    ("8246 2", "max-age=60, immutable", "immutable max-age=60"),
    ("5861 3", "max-age=60, stale-while-revalidate=30", "max-age=60 swr=30"),
    ("5861 4", "max-age=60, stale-if-error=30", "max-age=60 sie=30"),
    ("9111 5.2 case of names", "MaX-AgE=60, No-StOrE", "no-store max-age=60"),
    ("9111 5.2.3 unknown ones are skipped", "foo, bar=1, baz=\"x\", max-age=60", "max-age=60"),
    ("9110 5.6.1 empty members", ",, max-age=60 ,,no-store,", "no-store max-age=60"),
    ("9110 5.3 lines are one list", "max-age=60|cache-control: no-store", "no-store max-age=60"),
    ("9111 5.2 quoted arguments are as good", "max-age=\"60\"", "max-age=60"),
    ("9110 5.6.4 a quoted string hides what is in it", "x=\"max-age=5, no-store\", max-age=60", "max-age=60"),
    ("9110 5.6.4 an escaped quote does not end it", "x=\"a\\\", no-store, \\\"b\", max-age=60", "max-age=60"),
    ("9110 5.6.4 a quote left open may hide anything", "max-age=60, x=\"no-store, no-cache", "no-store max-age=60"),
    ("9110 5.6.4 as well on another line", "max-age=60|cache-control: x=\"private", "no-store max-age=60"),
    ("9110 5.6.4 or left open by an escape", "max-age=60, x=\"private\\\"", "no-store max-age=60"),
    ("9111 5.2.2.3 must-understand does not help it", "must-understand, max-age=60, x=\"", "no-store max-age=60"),
    ("9111 4.2.1 not a number is stale", "max-age=abc", "max-age=0"),
    ("9111 4.2.1 a sign", "max-age=-60", "max-age=0"),
    ("9111 4.2.1 a plus", "max-age=+60", "max-age=0"),
    ("9111 4.2.1 a fraction", "max-age=60.5", "max-age=0"),
    ("9111 4.2.1 a letter behind", "max-age=60a", "max-age=0"),
    ("9111 4.2.1 single quotes are no quotes", "max-age='60'", "max-age=0"),
    ("9111 4.2.1 no argument", "max-age", "max-age=0"),
    ("9111 4.2.1 an empty one", "max-age=", "max-age=0"),
    ("9111 4.2.1 an empty quoted one", "max-age=\"\"", "max-age=0"),
    ("9111 5.2 no space before =", "max-age =60", "max-age=0"),
    ("9111 5.2 no space behind =", "max-age= 60", "max-age=0"),
    ("9111 1.2.2 leading zeros", "max-age=00060", "max-age=60"),
    ("9111 1.2.2 2^31", "max-age=2147483648", "max-age=2147483648"),
    ("9111 1.2.2 too great saturates", "max-age=2147483649", "max-age=2147483648"),
    ("9111 1.2.2 far too great", "max-age=99999999999999999999999999", "max-age=2147483648"),
    ("9111 4.2.1 the same twice", "max-age=60, max-age=60", "max-age=60"),
    ("9111 4.2.1 two that differ are stale", "max-age=60, max-age=61", "max-age=0"),
    ("9111 4.2.1 two lines that differ", "max-age=60|cache-control: max-age=1", "max-age=0"),
    ("9111 4.2.1 one good and one bad", "s-maxage=60, s-maxage=x", "s-maxage=0"),
    ("9111 5.2.2.4 with fields", "no-cache=\"set-cookie\"", "no-cache=fields"),
    ("9111 5.2.2.4 as a token", "no-cache=set-cookie", "no-cache=fields"),
    ("9111 5.2.2.4 both forms", "no-cache=\"a\", no-cache", "no-cache no-cache=fields"),
    ("9111 5.2.2.4 an empty list is the plain form", "no-cache=\"\"", "no-cache"),
    ("9111 5.2.2.4 an unreadable list is the plain form", "no-cache=\"a b\"", "no-cache"),
    ("9111 5.2.2.7 with fields", "private=\"a, b\"", "private=fields"),
    ("9111 5.2.2.7 an unreadable list is the plain form", "private=\"a, (\"", "private"),
    ("9111 5.2.2.7 a list left open is the plain form", "private=\"a, b", "no-store private"),
    ("9111 5.2.2.5 an argument changes nothing", "no-store=\"x\"", "no-store"),
    ("9111 5.2 a name that merely begins alike", "no-stored, max-ages=60, xmax-age=5", ""),
];

#[test]
fn a_reply_s_directives_are_read_as_the_sections_say() {
    for (section, value, understood) in RESPONSES {
        let headers = if value.is_empty() { fields("") } else { fields(&format!("cache-control: {value}")) };
        assert_eq!(shown(&ResponseDirectives::of(&headers, &[])), *understood, "{section}: {value}");
    }
}

/// Section, fields, what is understood when `cdn-cache-control` is ours.
#[rustfmt::skip]
const TARGETED: &[(&str, &str, &str)] = &[
    ("9213 2.2 it stands for Cache-Control", "cache-control: max-age=1|cdn-cache-control: max-age=60", "targeted max-age=60"),
    ("9213 2.2 also against no-store", "cache-control: no-store|cdn-cache-control: max-age=60", "targeted max-age=60"),
    ("9213 2.2 also for no-store", "cache-control: max-age=60|cdn-cache-control: no-store", "no-store targeted"),
    ("9213 2.1 empty is absent", "cache-control: max-age=1|cdn-cache-control:", "max-age=1"),
    ("9213 2.1 what does not parse is absent", "cache-control: max-age=1|cdn-cache-control: max-age=60, &&", "max-age=1"),
    ("9213 2.1 large letters do not parse", "cache-control: max-age=1|cdn-cache-control: Max-Age=60", "max-age=1"),
    ("9213 2.1 a string is no number", "cache-control: max-age=1|cdn-cache-control: max-age=\"60\"", "max-age=1"),
    ("9213 2.1 a fraction is no number of seconds", "cache-control: max-age=1|cdn-cache-control: max-age=60.0", "max-age=1"),
    ("9213 2.1 a negative one neither", "cache-control: max-age=1|cdn-cache-control: max-age=-60", "max-age=1"),
    ("8941 3.1.2 parameters are skipped", "cdn-cache-control: max-age=60;a;b=\"c\", public;x=?0", "public targeted max-age=60"),
    ("8941 3.3.6 ?0 is false", "cdn-cache-control: no-store=?0, max-age=60", "targeted max-age=60"),
    ("8941 3.3.6 ?1 is true", "cdn-cache-control: no-store=?1", "no-store targeted"),
    ("8941 4.2.2 a comma at the end does not parse", "cache-control: max-age=1|cdn-cache-control: max-age=60,", "max-age=1"),
    ("8941 4.2.2 space before = does not parse", "cache-control: max-age=1|cdn-cache-control: max-age =60", "max-age=1"),
    ("8941 4.2.2 space behind = does not parse", "cache-control: max-age=1|cdn-cache-control: max-age= 60", "max-age=1"),
    ("8941 3.2 the last of two counts", "cdn-cache-control: max-age=5, max-age=60", "targeted max-age=60"),
    ("8941 4.2 lines are joined", "cdn-cache-control: max-age=60|cdn-cache-control: public", "public targeted max-age=60"),
    ("8941 4.2.4 16 digits do not parse", "cache-control: max-age=1|cdn-cache-control: max-age=1234567890123456", "max-age=1"),
    ("9111 1.2.2 too great saturates", "cdn-cache-control: max-age=999999999999999", "targeted max-age=2147483648"),
    ("9213 2.1 unknown members are skipped", "cdn-cache-control: a=(1 2;x \"y\");z, b=:YQ==:, c=t/k, max-age=60", "targeted max-age=60"),
    ("8941 4.2.1.2 a list left open does not parse", "cache-control: max-age=1|cdn-cache-control: a=(1 2", "max-age=1"),
    ("8941 4.2.5 a string left open does not parse", "cache-control: max-age=1|cdn-cache-control: a=\"b", "max-age=1"),
    ("9213 2.1 a list of fields is read as none", "cdn-cache-control: no-cache=\"a\"", "no-cache targeted"),
    ("9213 3.1 others' fields are not looked at", "cache-control: max-age=1|other-cache-control: max-age=60", "max-age=1"),
];

#[test]
fn a_targeted_field_stands_for_cache_control_when_it_parses() {
    let targets = [HeaderName::from_static("cdn-cache-control")];
    for (section, lines, understood) in TARGETED {
        assert_eq!(
            shown(&ResponseDirectives::of(&fields(lines), &targets)),
            *understood,
            "{section}: {lines}"
        );
    }
}

#[test]
fn a_cache_that_is_not_a_target_does_not_look_at_targeted_fields() {
    let headers = fields("cache-control: no-store|cdn-cache-control: max-age=60");
    assert_eq!(shown(&ResponseDirectives::of(&headers, &[])), "no-store", "RFC 9213 section 2.2");
}

#[test]
fn of_several_targets_the_first_that_counts_is_used() {
    let targets =
        [HeaderName::from_static("crumb-cache-control"), HeaderName::from_static("cdn-cache-control")];
    let both = fields("cdn-cache-control: max-age=1|crumb-cache-control: max-age=2");
    assert_eq!(shown(&ResponseDirectives::of(&both, &targets)), "targeted max-age=2", "RFC 9213 section 2.2");
    let broken = fields("cdn-cache-control: max-age=1|crumb-cache-control: &");
    assert_eq!(
        shown(&ResponseDirectives::of(&broken, &targets)),
        "targeted max-age=1",
        "RFC 9213 section 2.1"
    );
}

/// Section, request's fields, what is asked for.
#[rustfmt::skip]
const REQUESTS: &[(&str, &str, RequestDirectives)] = &{
    const N: RequestDirectives = RequestDirectives {
        no_cache: false,
        no_store: false,
        only_if_cached: false,
        max_age: None,
        max_stale: None,
        min_fresh: None,
        stale_if_error: None,
    };
    [
        ("9111 5.2.1 nothing", "", N),
        ("9111 5.2.1.4", "cache-control: no-cache", RequestDirectives { no_cache: true, ..N }),
        ("9111 5.2.1.5", "cache-control: no-store", RequestDirectives { no_store: true, ..N }),
        ("9111 5.2.1.7", "cache-control: only-if-cached", RequestDirectives { only_if_cached: true, ..N }),
        ("9111 5.2.1.1", "cache-control: max-age=60", RequestDirectives { max_age: Some(60), ..N }),
        ("9111 5.2.1.1 unreadable: nothing is new enough", "cache-control: max-age=x", RequestDirectives { max_age: Some(0), ..N }),
        ("9111 5.2.1.1 the least of two", "cache-control: max-age=60, max-age=5", RequestDirectives { max_age: Some(5), ..N }),
        ("9111 5.2.1.2", "cache-control: max-stale=60", RequestDirectives { max_stale: Some(60), ..N }),
        ("9111 5.2.1.2 any", "cache-control: max-stale", RequestDirectives { max_stale: Some(u32::MAX), ..N }),
        ("9111 5.2.1.2 unreadable: not said", "cache-control: max-stale=x", N),
        ("9111 5.2.1.2 the least of two", "cache-control: max-stale, max-stale=5", RequestDirectives { max_stale: Some(5), ..N }),
        ("9111 5.2.1.3", "cache-control: min-fresh=60", RequestDirectives { min_fresh: Some(60), ..N }),
        ("9111 5.2.1.3 unreadable: nothing is fresh enough", "cache-control: min-fresh=", RequestDirectives { min_fresh: Some(1 << 31), ..N }),
        ("9111 5.2.1.3 the greatest of two", "cache-control: min-fresh=5, min-fresh=60", RequestDirectives { min_fresh: Some(60), ..N }),
        ("5861 4", "cache-control: stale-if-error=60", RequestDirectives { stale_if_error: Some(60), ..N }),
        ("9110 5.6.4 a quote left open may hide anything", "cache-control: x=\"y, no-store", RequestDirectives { no_cache: true, no_store: true, ..N }),
        ("9111 5.4", "pragma: no-cache", RequestDirectives { no_cache: true, ..N }),
        ("9111 5.4 in a list", "pragma: foo, No-Cache", RequestDirectives { no_cache: true, ..N }),
        ("9111 5.4 not beside Cache-Control", "pragma: no-cache|cache-control: max-age=60", RequestDirectives { max_age: Some(60), ..N }),
        ("9111 5.4 not beside any", "pragma: no-cache|cache-control: foo", N),
        ("9111 5.4 another pragma", "pragma: foo", N),
    ]
};

#[test]
fn a_request_s_directives_are_read_as_the_sections_say() {
    for (section, lines, asked) in REQUESTS {
        assert_eq!(RequestDirectives::of(&fields(lines)), *asked, "{section}: {lines}");
    }
}

#[test]
fn the_fields_that_private_and_no_cache_name_are_withheld() {
    let headers = fields("cache-control: private=\"Set-Cookie, a\", max-age=5|cache-control: no-cache=b");
    assert_eq!(
        cache_control::withheld_fields(&headers),
        ["set-cookie", "a", "b"],
        "RFC 9111 sections 5.2.2.4, 5.2.2.7"
    );
}

#[test]
fn a_list_is_divided_at_commas_outside_quotes_alone() {
    let divided: Vec<&[u8]> = members(b" a , \"b, c\" ,, d=\"\\\",\" , ").collect();
    assert_eq!(divided, [&b"a"[..], b"\"b, c\"", b"d=\"\\\",\""]);
}

#[test]
fn a_directive_tells_a_name_an_argument_and_whether_it_was_well_formed() {
    assert_eq!(directive(b"a=\"b\"").argument, Some(&b"b"[..]));
    for malformed in [&b"a =b"[..], b"a= b", b"a=\"b", b"a=b\"", b"a=\"b\"c\"", b"(=b", b"="] {
        assert!(directive(malformed).malformed, "{}", String::from_utf8_lossy(malformed));
    }
    assert_eq!(delta_seconds(b"4294967296000"), Some(1 << 31));
    assert_eq!(delta_seconds(b""), None);
}
