//! HTTP-date: parses its three forms and writes the first (RFC 9110 section 5.6.7).
//!
//! ```text
//! Sun, 06 Nov 1994 08:49:37 GMT      IMF-fixdate, the form that is written
//! Sunday, 06-Nov-94 08:49:37 GMT     RFC 850: a two-digit year, interpreted relative to today
//! Sun Nov  6 08:49:37 1994           asctime
//! ```
//!
//! The calendar is `jiff`'s; the three forms are read and written here, byte by byte.
//!
//! Always holds: names are case-insensitive (RFC 9111 section 4.2). Zones other than GMT are invalid. The name of the day is checked for
//! being a day, not for matching the date.
//! Not here: what an invalid date means (`freshness`).

use jiff::SignedDuration;
use jiff::civil::{Date, DateTime, Time};

/// Seconds since 1970 by the wall clock; negative before. Ages and lifetimes are differences of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WallSeconds(pub i64);

impl WallSeconds {
    /// Whole seconds since `earlier`; 0 if that is later, at most 2^31 (RFC 9111 section 1.2.2).
    pub fn since(self, earlier: WallSeconds) -> u32 {
        self.0.saturating_sub(earlier.0).clamp(0, i64::from(crate::fields::lists::DELTA_MAX)) as u32
    }
}

/// Parses an HTTP-date. `now` only determines the century of the RFC 850 form.
pub fn parse(text: &[u8], now: WallSeconds) -> Option<WallSeconds> {
    let text = text.trim_ascii();
    let comma = text.iter().position(|byte| *byte == b',');
    let Some(comma) = comma else { return parse_asctime(text) };
    let (day_name, rest) = (&text[..comma], text[comma + 1..].strip_prefix(b" ")?);
    if day_name.len() == 3 { parse_fixdate(day_name, rest) } else { parse_rfc850(day_name, rest, now) }
}

fn parse_fixdate(day_name: &[u8], rest: &[u8]) -> Option<WallSeconds> {
    let [w1, w2, w3] = day_name else { return None };
    is_day(*w1, *w2, *w3)?;
    // 06 Nov 1994 08:49:37 GMT
    let [d1, d2, b' ', m1, m2, m3, b' ', y1, y2, y3, y4, b' ', clock @ .., b' ', z1, z2, z3] = rest else {
        return None;
    };
    gmt(&[*z1, *z2, *z3])?;
    let year = two(*y1, *y2)? * 100 + two(*y3, *y4)?;
    seconds(year, month(*m1, *m2, *m3)?, two(*d1, *d2)?, time_of_day(clock)?)
}

fn parse_rfc850(day_name: &[u8], rest: &[u8], now: WallSeconds) -> Option<WallSeconds> {
    DAYS.iter().position(|day| day_name.eq_ignore_ascii_case(day.as_bytes()))?;
    // 06-Nov-94 08:49:37 GMT
    let [d1, d2, b'-', m1, m2, m3, b'-', y1, y2, b' ', clock @ .., b' ', z1, z2, z3] = rest else {
        return None;
    };
    gmt(&[*z1, *z2, *z3])?;
    let (month, day) = (month(*m1, *m2, *m3)?, two(*d1, *d2)?);
    let (clock, short_year) = (time_of_day(clock)?, two(*y1, *y2)?);
    let this_year = date_time(now)?.year();
    // A date more than 50 years ahead means the most recent past year with these digits.
    let year = this_year - this_year.rem_euclid(100) + short_year;
    let year = if year > this_year + 50 { year - 100 } else { year };
    let year = if year <= this_year - 50 { year + 100 } else { year };
    seconds(year, month, day, clock)
}

fn parse_asctime(text: &[u8]) -> Option<WallSeconds> {
    // Sun Nov  6 08:49:37 1994
    let [w1, w2, w3, b' ', m1, m2, m3, b' ', d1, d2, b' ', clock @ .., b' ', y1, y2, y3, y4] = text else {
        return None;
    };
    is_day(*w1, *w2, *w3)?;
    let tens = if *d1 == b' ' { b'0' } else { *d1 };
    let year = two(*y1, *y2)? * 100 + two(*y3, *y4)?;
    seconds(year, month(*m1, *m2, *m3)?, two(tens, *d2)?, time_of_day(clock)?)
}

/// Formats an IMF-fixdate of 29 bytes. Years outside 0 to 9999 are clamped.
pub fn format(at: WallSeconds) -> [u8; 29] {
    let at =
        date_time(WallSeconds(at.0.clamp(FIRST.0, LAST.0))).expect("the calendar has the years 0 to 9999");
    let mut text = *b"Sun, 06 Nov 1994 08:49:37 GMT";
    text[..3].copy_from_slice(&DAYS[at.weekday().to_sunday_zero_offset() as usize].as_bytes()[..3]);
    text[8..11].copy_from_slice(MONTHS[at.month() as usize - 1].as_bytes());
    let mut put = |place: usize, number: i16| {
        text[place] = b'0' + (number / 10 % 10) as u8;
        text[place + 1] = b'0' + (number % 10) as u8;
    };
    put(5, at.day().into());
    put(12, at.year() / 100);
    put(14, at.year() % 100);
    put(17, at.hour().into());
    put(20, at.minute().into());
    put(23, at.second().into());
    text
}

fn two(tens: u8, ones: u8) -> Option<i16> {
    (tens.is_ascii_digit() && ones.is_ascii_digit()).then(|| i16::from((tens - b'0') * 10 + (ones - b'0')))
}

fn gmt(zone: &[u8]) -> Option<()> {
    zone.eq_ignore_ascii_case(b"GMT").then_some(())
}

/// Whether these letters begin the name of a day.
fn is_day(w1: u8, w2: u8, w3: u8) -> Option<()> {
    let name = [w1, w2, w3].map(|letter| letter.to_ascii_lowercase());
    matches!(&name, b"sun" | b"mon" | b"tue" | b"wed" | b"thu" | b"fri" | b"sat").then_some(())
}

/// A month's number from 1, by the first three letters of its name.
fn month(m1: u8, m2: u8, m3: u8) -> Option<i8> {
    Some(match &[m1, m2, m3].map(|letter| letter.to_ascii_lowercase()) {
        b"jan" => 1,
        b"feb" => 2,
        b"mar" => 3,
        b"apr" => 4,
        b"may" => 5,
        b"jun" => 6,
        b"jul" => 7,
        b"aug" => 8,
        b"sep" => 9,
        b"oct" => 10,
        b"nov" => 11,
        b"dec" => 12,
        _ => return None,
    })
}

/// Hour, minute and second. A leap second (60) counts as the second before it, so that it is never later than stated.
fn time_of_day(clock: &[u8]) -> Option<Time> {
    let [h1, h2, b':', m1, m2, b':', s1, s2] = clock else { return None };
    let (hour, minute, second) = (two(*h1, *h2)?, two(*m1, *m2)?, two(*s1, *s2)?);
    let second = if second == 60 { 59 } else { second };
    Time::new(hour as i8, minute as i8, second as i8, 0).ok()
}

fn seconds(year: i16, month: i8, day: i16, clock: Time) -> Option<WallSeconds> {
    let date = Date::new(year, month, day as i8).ok()?;
    Some(WallSeconds(date.to_datetime(clock).duration_since(EPOCH).as_secs()))
}

/// In GMT; none beyond the calendar's years, -9999 to 9999.
fn date_time(at: WallSeconds) -> Option<DateTime> {
    EPOCH.checked_add(SignedDuration::from_secs(at.0)).ok()
}

// A `jiff::Timestamp` ends 26 hours before the year 9999 does, so that every zone can show it. The last second of that year is
// what many origins send for "never expires", and a civil date and time reaches it.
const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);
/// The first second of year 0.
const FIRST: WallSeconds = WallSeconds(-62_167_219_200);
/// The last second of year 9999.
const LAST: WallSeconds = WallSeconds(253_402_300_799);

const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_second_of_the_last_year_is_a_date_and_the_next_day_of_a_short_month_is_none() {
        let read = |text: &str| parse(text.as_bytes(), WallSeconds(0));
        assert_eq!(read("Fri, 31 Dec 9999 23:59:59 GMT"), Some(LAST));
        assert_eq!(&format(LAST), b"Fri, 31 Dec 9999 23:59:59 GMT");
        assert_eq!(format(WallSeconds(i64::MAX)), format(LAST));
        assert_eq!(&format(WallSeconds(i64::MIN)), b"Sat, 01 Jan 0000 00:00:00 GMT");
        assert_eq!(read("Thu, 29 Feb 2024 00:00:00 GMT"), Some(WallSeconds(1_709_164_800)));
        for none in [
            "Wed, 29 Feb 2023 00:00:00 GMT",
            "Sun, 31 Apr 2023 00:00:00 GMT",
            "Sun, 00 Apr 2023 00:00:00 GMT",
        ] {
            assert_eq!(read(none), None, "{none}");
        }
        assert_eq!(read("Sun, 06 Nov 1994 24:00:00 GMT"), None);
        assert_eq!(read("Sun, 06 Nov 1994 08:49:61 GMT"), None);
    }

    #[test]
    fn every_day_of_eight_hundred_years_is_written_and_read_back() {
        for days in -146_097_i64..146_097 {
            let at = WallSeconds(days * 86_400 + (days * 7919).rem_euclid(86_400));
            assert_eq!(
                parse(&format(at), WallSeconds(0)),
                Some(at),
                "{:?}",
                String::from_utf8_lossy(&format(at))
            );
        }
    }
}
