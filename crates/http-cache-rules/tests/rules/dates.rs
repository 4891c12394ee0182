//! HTTP-date: what is one, and when (RFC 9110 section 5.6.7, RFC 9111 section 4.2).

use http_cache_rules::WallSeconds;
use http_cache_rules::date::{format, parse};

use crate::NOW;

/// Section, text, seconds since 1970.
#[rustfmt::skip]
const DATES: &[(&str, &str, Option<i64>)] = &[
    ("9110 5.6.7 IMF-fixdate", "Sun, 06 Nov 1994 08:49:37 GMT", Some(784_111_777)),
    ("9110 5.6.7 RFC 850", "Sunday, 06-Nov-94 08:49:37 GMT", Some(784_111_777)),
    ("9110 5.6.7 asctime", "Sun Nov  6 08:49:37 1994", Some(784_111_777)),
    ("9110 5.6.7 asctime, two digits", "Wed Nov 16 08:49:37 1994", Some(784_975_777)),
    ("9110 5.6.7 space around a value is not of it", "  Sun, 06 Nov 1994 08:49:37 GMT\t", Some(784_111_777)),
    ("9110 5.6.7 the epoch", "Thu, 01 Jan 1970 00:00:00 GMT", Some(0)),
    ("9110 5.6.7 before it", "Wed, 31 Dec 1969 23:59:59 GMT", Some(-1)),
    ("9110 5.6.7 a leap day", "Tue, 29 Feb 2000 00:00:00 GMT", Some(951_782_400)),
    ("9110 5.6.7 no leap day in 1900", "Thu, 29 Feb 1900 00:00:00 GMT", None),
    ("9110 5.6.7 no leap day in 2023", "Wed, 29 Feb 2023 00:00:00 GMT", None),
    ("9110 5.6.7 past 32 bits", "Tue, 19 Jan 2038 03:14:08 GMT", Some(2_147_483_648)),
    ("9110 5.6.7 the last year", "Fri, 31 Dec 9999 23:59:59 GMT", Some(253_402_300_799)),
    ("9110 5.6.7 a leap second is the second before", "Sat, 31 Dec 2016 23:59:60 GMT", Some(1_483_228_799)),
    ("9110 5.6.7 the weekday is not checked against the date", "Mon, 06 Nov 1994 08:49:37 GMT", Some(784_111_777)),
    // More than 50 years ahead of 2026 is the past.
    ("9110 5.6.7 two digits, 50 years ahead", "Thursday, 01-Jan-76 00:00:00 GMT", Some(3_345_062_400)),
    ("9110 5.6.7 two digits, 51 years ahead", "Saturday, 01-Jan-77 00:00:00 GMT", Some(220_924_800)),
    ("9110 5.6.7 two digits, last century", "Friday, 01-Jan-99 00:00:00 GMT", Some(915_148_800)),
    ("9110 5.6.7 two digits, this one", "Thursday, 18-Aug-50 02:01:18 GMT", Some(2_544_400_878)),
    ("9111 4.2 no regard to case, weekday", "SUN, 06 Nov 1994 08:49:37 GMT", Some(784_111_777)),
    ("9111 4.2 no regard to case, month", "Sun, 06 nOV 1994 08:49:37 GMT", Some(784_111_777)),
    ("9111 4.2 no regard to case, zone", "Sun, 06 Nov 1994 08:49:37 gmt", Some(784_111_777)),
    ("9111 4.2 another zone", "Sun, 06 Nov 1994 08:49:37 UTC", None),
    ("9111 4.2 another zone", "Sun, 06 Nov 1994 08:49:37 AEST", None),
    ("9111 4.2 an offset", "Sun, 06 Nov 1994 08:49:37 +0000", None),
    ("9110 5.6.7 no zone", "Sun, 06 Nov 1994 08:49:37", None),
    ("9110 5.6.7 no comma", "Sun 06 Nov 1994 08:49:37 GMT", None),
    ("9110 5.6.7 two spaces", "Sun, 06  Nov 1994 08:49:37 GMT", None),
    ("9110 5.6.7 no space", "Sun,06 Nov 1994 08:49:37 GMT", None),
    ("9110 5.6.7 dashes in a fixdate", "Sun, 06-Nov-1994 08:49:37 GMT", None),
    ("9110 5.6.7 two digits in a fixdate", "Sun, 06 Nov 94 08:49:37 GMT", None),
    ("9110 5.6.7 points in the time", "Sun, 06 Nov 1994 08.49.37 GMT", None),
    ("9110 5.6.7 one digit of the hour", "Sun, 06 Nov 1994 8:49:37 GMT", None),
    ("9110 5.6.7 one digit of the day", "Sun, 6 Nov 1994 08:49:37 GMT", None),
    ("9110 5.6.7 hour 24", "Sun, 06 Nov 1994 24:00:00 GMT", None),
    ("9110 5.6.7 minute 60", "Sun, 06 Nov 1994 08:60:00 GMT", None),
    ("9110 5.6.7 second 61", "Sun, 06 Nov 1994 08:49:61 GMT", None),
    ("9110 5.6.7 day 0", "Sun, 00 Nov 1994 08:49:37 GMT", None),
    ("9110 5.6.7 day 31 of 30", "Thu, 31 Nov 1994 08:49:37 GMT", None),
    ("9110 5.6.7 no such month", "Sun, 06 Foo 1994 08:49:37 GMT", None),
    ("9110 5.6.7 no such weekday", "Foo, 06 Nov 1994 08:49:37 GMT", None),
    ("9110 5.6.7 a long weekday in a fixdate", "Sunday, 06 Nov 1994 08:49:37 GMT", None),
    ("9110 5.6.7 more behind it", "Sun, 06 Nov 1994 08:49:37 GMT x", None),
    ("9111 5.3 zero is invalid, and so expired", "0", None),
    ("9111 5.3 a number", "-1", None),
    ("9110 5.6.7 nothing", "", None),
    ("9110 5.6.7 a sign for a digit", "Sun, +6 Nov 1994 08:49:37 GMT", None),
    ("9110 5.6.7 ISO 8601", "1994-11-06T08:49:37Z", None),
];

#[test]
fn dates_are_read_as_the_sections_say() {
    for (section, text, seconds) in DATES {
        assert_eq!(parse(text.as_bytes(), NOW), seconds.map(WallSeconds), "{section}: {text}");
    }
}

#[test]
fn a_date_is_written_as_a_fixdate_whatever_the_clock_says() {
    assert_eq!(&format(WallSeconds(784_111_777)), b"Sun, 06 Nov 1994 08:49:37 GMT");
    assert_eq!(&format(WallSeconds(i64::MAX)), b"Fri, 31 Dec 9999 23:59:59 GMT");
    assert_eq!(&format(WallSeconds(i64::MIN)), b"Sat, 01 Jan 0000 00:00:00 GMT");
}
