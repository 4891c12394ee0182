//! HTTP-date: parses its three forms and writes the first (RFC 9110 section 5.6.7).
//!
//! ```text
//! Sun, 06 Nov 1994 08:49:37 GMT      IMF-fixdate, the form that is written
//! Sunday, 06-Nov-94 08:49:37 GMT     RFC 850: a two-digit year, interpreted relative to today
//! Sun Nov  6 08:49:37 1994           asctime
//! ```
//!
//! Always holds: names are case-insensitive (RFC 9111 section 4.2). Zones other than GMT are invalid. The name of the day is checked for
//! being a day, not for matching the date.
//! Not here: what an invalid date means (`freshness`).

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
    let (this_year, ..) = civil_from_days(now.0.div_euclid(86_400));
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
    let at = at.0.clamp(-62_167_219_200, 253_402_300_799);
    let (days, clock) = (at.div_euclid(86_400), at.rem_euclid(86_400));
    let (year, month, day) = civil_from_days(days);
    let mut text = *b"Sun, 06 Nov 1994 08:49:37 GMT";
    // 1970-01-01 was a Thursday, the fourth name.
    text[..3].copy_from_slice(&DAYS[(days + 4).rem_euclid(7) as usize].as_bytes()[..3]);
    text[8..11].copy_from_slice(MONTHS[(month - 1) as usize].as_bytes());
    let mut put = |at: usize, number: i64| {
        text[at] = b'0' + (number / 10 % 10) as u8;
        text[at + 1] = b'0' + (number % 10) as u8;
    };
    put(5, day);
    put(12, year / 100);
    put(14, year % 100);
    put(17, clock / 3600);
    put(20, clock / 60 % 60);
    put(23, clock % 60);
    text
}

fn two(tens: u8, ones: u8) -> Option<i64> {
    (tens.is_ascii_digit() && ones.is_ascii_digit()).then(|| i64::from((tens - b'0') * 10 + (ones - b'0')))
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
fn month(m1: u8, m2: u8, m3: u8) -> Option<i64> {
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

/// Seconds since midnight. A leap second (60) counts as the second before it, so that it is never later than stated.
fn time_of_day(clock: &[u8]) -> Option<i64> {
    let [h1, h2, b':', m1, m2, b':', s1, s2] = clock else { return None };
    let (hour, minute, second) = (two(*h1, *h2)?, two(*m1, *m2)?, two(*s1, *s2)?);
    (hour < 24 && minute < 60 && second < 61).then(|| hour * 3600 + minute * 60 + second.min(59))
}

fn seconds(year: i64, month: i64, day: i64, clock: i64) -> Option<WallSeconds> {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let in_month = [31, 28 + i64::from(leap), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31][(month - 1) as usize];
    let valid = (1..=in_month).contains(&day);
    valid.then(|| WallSeconds(days_from_civil(year, month, day) * 86_400 + clock))
}

/// Days since 1970-01-01. Years are counted from March, so that the leap day is the last of them.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + day_of_year - 719_468
}

/// Year, month from 1, day from 1.
fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

#[cfg(test)]
mod tests {
    use super::*;

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
