//! Vary: which requests are the same to a reply (RFC 9111 section 4.1).

use http_cache_rules::vary::{Vary, matches, write_variant};

use crate::fields;

/// Section, Vary, the request that was answered, the request that asks, whether they are the same.
#[rustfmt::skip]
const PAIRS: &[(&str, &str, &str, &str, bool)] = &[
    ("9111 4.1 equal", "vary: foo", "foo: 1", "foo: 1", true),
    ("9111 4.1 other value", "vary: foo", "foo: 1", "foo: 2", false),
    ("9111 4.1 absent from both", "vary: foo", "", "", true),
    ("9111 4.1 absent from the first", "vary: foo", "", "foo: 1", false),
    ("9111 4.1 absent from the second", "vary: foo", "foo: 1", "", false),
    ("9111 4.1 empty is not absent", "vary: foo", "foo:", "", false),
    ("9111 4.1 fields not listed do not count", "vary: foo", "foo: 1|bar: 1", "foo: 1|bar: 2", true),
    ("9111 4.1 all of the listed count", "vary: foo, bar", "foo: 1|bar: 1", "foo: 1|bar: 2", false),
    ("9111 4.1 all of the lines count", "vary: foo|vary: bar", "foo: 1|bar: 1", "foo: 1|bar: 2", false),
    ("9111 4.1 no value runs into the next field", "vary: foo, bar", "foo: 1|bar: 2", "foo: 1,2", false),
    ("9111 4.1 case of the names", "vary: FOO", "foo: 1", "Foo: 1", true),
    ("9111 4.1 case of an unknown value counts", "vary: foo", "foo: a", "foo: A", false),
    ("9111 4.1 order of an unknown value counts", "vary: foo", "foo: a, b", "foo: b, a", false),
    ("9111 4.1 white space in a list does not", "vary: foo", "foo: 1,2", "foo: 1 ,\t2", true),
    ("9111 4.1 white space in quotes does", "vary: foo", "foo: \"1,2\"", "foo: \"1, 2\"", false),
    ("9111 4.1 lines are one list", "vary: foo", "foo: 1, 2", "foo: 1|foo: 2", true),
    ("9111 4.1 the order of lines counts", "vary: foo", "foo: 2, 1", "foo: 1|foo: 2", false),
    ("9110 12.5.3 case of a coding", "vary: accept-encoding", "accept-encoding: GZIP", "accept-encoding: gzip", true),
    ("9110 12.5.3 order of codings", "vary: accept-encoding", "accept-encoding: gzip, br", "accept-encoding: br,gzip", true),
    ("9110 12.4.2 weight 1 is no weight", "vary: accept-encoding", "accept-encoding: gzip;q=1.0", "accept-encoding: gzip", true),
    ("9110 12.4.2 zeros behind a weight", "vary: accept-encoding", "accept-encoding: gzip;q=0.50", "accept-encoding: gzip; Q=0.5", true),
    ("9110 12.4.2 weight 0 is not absence", "vary: accept-encoding", "accept-encoding: gzip;q=0, br", "accept-encoding: br", false),
    ("9110 12.4.2 other weights", "vary: accept-encoding", "accept-encoding: gzip;q=0.5", "accept-encoding: gzip;q=0.6", false),
    ("9110 12.5.3 twice the same", "vary: accept-encoding", "accept-encoding: gzip, gzip", "accept-encoding: gzip", true),
    ("9110 12.5.4 case of a language", "vary: accept-language", "accept-language: en-GB, de", "accept-language: EN-gb,de", true),
    ("9110 12.5.4 order of languages of one weight", "vary: accept-language", "accept-language: en, de", "accept-language: de, en", true),
    ("9110 12.5.4 another language", "vary: accept-language", "accept-language: en", "accept-language: en-gb", false),
    ("9110 12.5.1 media types", "vary: accept", "accept: text/html, */*;q=0.1", "accept: */*; q=0.1 , Text/HTML", true),
    ("9110 12.5.1 a parameter of a media type counts", "vary: accept", "accept: text/html;level=1", "accept: text/html", false),
    ("9110 12.5.5 a name twice is one", "vary: foo, Foo", "foo: 1", "foo: 1", true),
];

#[test]
fn requests_are_the_same_to_a_reply_when_the_sections_say_so() {
    for (section, vary, first, second, same) in PAIRS {
        let (names, mut variant, mut scratch) = (Vary::of(&fields(vary)).names(), Vec::new(), Vec::new());
        write_variant(&names, &fields(first), &mut variant);
        assert_eq!(
            matches(&names, &variant, &fields(second), &mut scratch),
            *same,
            "{section}: {vary}: {first} / {second}"
        );
    }
}

/// Section, fields, the names that are kept; `*` matches nothing.
#[rustfmt::skip]
const NAMES: &[(&str, &str, &str)] = &[
    ("9110 12.5.5", "vary: Foo, bar", "bar,foo"),
    ("9110 12.5.5 none", "", ""),
    ("9110 12.5.5 an empty one", "vary:", ""),
    ("9110 12.5.5 empty members", "vary: ,foo,,", "foo"),
    ("9111 4.1 star", "vary: *", "*"),
    ("9111 4.1 star twice", "vary: *, *", "*"),
    ("9111 4.1 star behind", "vary: foo, *", "*"),
    ("9111 4.1 star before", "vary: *, foo", "*"),
    ("9111 4.1 star in another line", "vary:|vary: *", "*"),
    ("9110 12.5.5 what is no name matches nothing", "vary: foo bar", "*"),
];

#[test]
fn vary_lists_names_or_matches_nothing() {
    for (section, lines, names) in NAMES {
        let vary = Vary::of(&fields(lines));
        assert_eq!(String::from_utf8(vary.names()).expect("ASCII"), *names, "{section}: {lines}");
        assert_eq!(vary == Vary::Anything, *names == "*", "{section}");
    }
}
