//! Lifetimes and ages (RFC 9111 section 4.2).

use http::StatusCode;
use http_cache_rules::freshness::{LifetimeSource, initial_age_s, lifetime};
use http_cache_rules::policy::AgeErrors;
use http_cache_rules::{Policy, ResponseDirectives, WallSeconds};

use crate::storing::judged;
use crate::{NOW, fields};

/// Section, status, reply's fields, seconds, whose word it is.
#[rustfmt::skip]
const LIFETIMES: &[(&str, u16, &str, u32, LifetimeSource)] = &{
    use LifetimeSource::{Explicit, Heuristic, Unknown};
    [
        ("9111 4.2.1 max-age", 200, "cache-control: max-age=60", 60, Explicit),
        ("9111 4.2.1 s-maxage before max-age", 200, "cache-control: max-age=60, s-maxage=5", 5, Explicit),
        ("9111 4.2.1 s-maxage before max-age, in any order", 200, "cache-control: s-maxage=500, max-age=60", 500, Explicit),
        ("9111 5.3 max-age before Expires", 200, "cache-control: max-age=60|expires: @-10", 60, Explicit),
        ("9111 5.2.2.10 s-maxage before Expires", 200, "cache-control: s-maxage=60|expires: @-10", 60, Explicit),
        ("9111 4.2.1 an unreadable max-age before Expires", 200, "cache-control: max-age=x|expires: @60", 0, Explicit),
        ("9111 4.2.1 Expires less Date", 200, "date: @-10|expires: @60", 70, Explicit),
        ("9111 4.2.1 Expires without Date", 200, "expires: @60", 60, Explicit),
        ("9111 4.2.1 Expires with an unreadable Date", 200, "date: foo|expires: @60", 60, Explicit),
        ("9111 4.2.1 Expires before Date", 200, "date: @400|expires: @300", 0, Explicit),
        ("9111 5.3 Expires equal to Date", 200, "date: @0|expires: @0", 0, Explicit),
        ("9111 5.3 an unreadable Expires", 200, "expires: 0|last-modified: @-86400", 0, Explicit),
        ("9111 4.2.1 two Expires that differ", 200, "expires: @60|expires: @61", 0, Explicit),
        ("9111 4.2.1 the same Expires twice", 200, "expires: @60|expires: @60", 60, Explicit),
        ("9111 5.3 Expires in the form of RFC 850", 200, "date: @0|expires: Sunday, 22-Nov-26 00:01:00 GMT", 60, Explicit),
        ("9111 4.2 more than a year is a year here", 200, "cache-control: max-age=99999999", 31_536_000, Explicit),
        ("9111 4.2.2 a tenth", 200, "date: @0|last-modified: @-1000", 100, Heuristic),
        ("9111 4.2.2 at most a day here", 200, "date: @0|last-modified: @-100000000", 86_400, Heuristic),
        ("9111 4.2.2 of the time to Date, not to now", 200, "date: @-500|last-modified: @-1000", 50, Heuristic),
        ("9111 4.2.2 without Date to now", 200, "last-modified: @-1000", 100, Heuristic),
        ("9111 4.2.2 changed after it was made", 200, "date: @0|last-modified: @1000", 0, Heuristic),
        ("9111 4.2.2 no guess beside an explicit one", 200, "cache-control: max-age=0|last-modified: @-1000", 0, Explicit),
        ("9111 4.2.2 an unreadable Last-Modified", 200, "last-modified: yesterday", 0, Unknown),
        ("9110 15.1 no guess for 302", 302, "last-modified: @-1000", 0, Unknown),
        ("9111 4.2.2 public allows one", 302, "cache-control: public|last-modified: @-1000", 100, Heuristic),
        ("9110 15.1 206", 206, "last-modified: @-1000", 100, Heuristic),
        ("9110 15.1 308", 308, "last-modified: @-1000", 100, Heuristic),
        ("9110 15.1 414", 414, "last-modified: @-1000", 100, Heuristic),
        ("9111 4.2 nothing", 200, "", 0, Unknown),
    ]
};

#[test]
fn lifetimes_are_computed_as_the_sections_say() {
    for (section, status, reply, seconds, source) in LIFETIMES {
        let headers = fields(reply);
        let status = StatusCode::from_u16(*status).expect("a status");
        let found =
            lifetime(status, &headers, &ResponseDirectives::of(&headers, &[]), NOW, &Policy::default());
        assert_eq!((found.seconds, found.source), (*seconds, *source), "{section}: {reply}");
    }
}

/// Section, seconds on the way, reply's fields, age on arrival: where it cannot be read, by RFC 9111 and as stale.
type Age = (&'static str, i64, &'static str, Option<u32>, Option<u32>);

#[rustfmt::skip]
const AGES: &[Age] = &[
    ("9111 4.2.3 none", 0, "", Some(0), Some(0)),
    ("9111 4.2.3 by Date", 0, "date: @-30", Some(30), Some(30)),
    ("9111 4.2.3 Date ahead of us", 0, "date: @30", Some(0), Some(0)),
    ("9111 4.2.3 an unreadable Date", 0, "date: x|age: 5", Some(5), Some(5)),
    ("9111 4.2.3 by Age", 0, "age: 30", Some(30), Some(30)),
    ("9111 4.2.3 the greater", 0, "age: 30|date: @-40", Some(40), Some(40)),
    ("9111 4.2.3 the greater", 0, "age: 50|date: @-40", Some(50), Some(50)),
    ("9111 4.2.3 the way counts for Age", 4, "age: 50", Some(54), Some(54)),
    ("9111 4.2.3 the way counts without Age", 4, "date: @0", Some(4), Some(4)),
    ("9111 4.2.3 the way does not count for Date", 4, "date: @-40", Some(40), Some(40)),
    ("9111 1.2.2 too great saturates", 0, "age: 99999999999", Some(1 << 31), Some(1 << 31)),
    ("9111 5.1 no number", 0, "age: abc", Some(0), None),
    ("9111 5.1 negative", 0, "age: -5", Some(0), None),
    ("9111 5.1 a fraction", 0, "age: 7.0", Some(0), None),
    ("9111 5.1 empty", 0, "age:", Some(0), None),
    ("9111 5.1 a parameter", 0, "age: 7;foo=bar", Some(0), None),
    ("9111 5.1 the first of a list", 0, "age: 7, 0", Some(7), None),
    ("9111 5.1 the first of a list", 0, "age: 0, 7", Some(0), None),
    ("9111 5.1 the first of two lines", 0, "age: 7|age: 0", Some(7), None),
    ("9111 5.1 the first of two equal ones", 0, "age: 0|age: 0", Some(0), None),
];

#[test]
fn ages_on_arrival_are_computed_as_the_sections_say() {
    let stale = Policy { age_errors: AgeErrors::Stale, ..Policy::default() };
    for (section, way_s, reply, ignoring, as_stale) in AGES {
        let (headers, requested_at) = (fields(reply), WallSeconds(NOW.0 - way_s));
        let age_s = |policy| initial_age_s(&headers, requested_at, NOW, policy);
        assert_eq!((age_s(&Policy::default()), age_s(&stale)), (*ignoring, *as_stale), "{section}: {reply}");
    }
}

#[test]
fn a_stored_reply_ages_second_by_second_and_is_fresh_until_its_lifetime_is_over() {
    let facts =
        judged("GET", "", 200, "cache-control: max-age=60|age: 10", &Policy::default()).expect("stored");
    for (later_s, age_s, fresh, staleness_s) in
        [(0, 10, true, 0), (49, 59, true, 0), (50, 60, false, 0), (51, 61, false, 1)]
    {
        let now = WallSeconds(NOW.0 + later_s);
        assert_eq!(
            (facts.age_s(now), facts.is_fresh(now), facts.staleness_s(now)),
            (age_s, fresh, staleness_s),
            "RFC 9111 section 4.2"
        );
    }
    assert_eq!(facts.age_s(WallSeconds(NOW.0 - 1000)), 10, "a clock set back makes nothing younger");
    assert_eq!(facts.age_s(WallSeconds(i64::MAX)), 1 << 31, "RFC 9111 section 1.2.2");
}
