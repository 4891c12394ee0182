//! Dates as news articles have them: RFC 822, RFC 850, RFC 1036, ctime, and what people made of these.
//! The calendar is `jiff`'s.

use jiff::civil::DateTime;

/// Unix time in seconds; none when there is no day, month, year and time in it. No zone, or one unknown, is GMT.
pub(super) fn unix_time(value: &[u8]) -> Option<i64> {
    let mut seen = Seen::default();
    // A date has 6 words; more than 16 is a comment or an attack.
    let gap = |byte: &u8| byte.is_ascii_whitespace() || matches!(byte, b',' | b'(' | b')');
    for word in value.split(gap).filter(|word| !word.is_empty()).take(16) {
        seen.word(word)?;
    }
    let (day, month, year) = (seen.day?, seen.month?, seen.year?);
    let seconds = seen.seconds?;
    let days = days_from_epoch(year, month, day)?;
    Some(days * 86_400 + seconds - i64::from(seen.zone_minutes.unwrap_or(0)) * 60)
}

#[derive(Default)]
struct Seen {
    day: Option<i64>,
    month: Option<i64>,
    year: Option<i64>,
    /// Since midnight.
    seconds: Option<i64>,
    zone_minutes: Option<i32>,
}

impl Seen {
    fn word(&mut self, word: &[u8]) -> Option<()> {
        if word.contains(&b':') {
            if self.seconds.is_none() {
                self.seconds = Some(time(word)?);
            }
        } else if let [sign @ (b'+' | b'-'), digits @ ..] = word
            && self.seconds.is_some()
        {
            self.zone_minutes = self.zone_minutes.or_else(|| offset(*sign, digits));
        } else if word.iter().all(u8::is_ascii_digit) {
            self.digits(word)?;
        } else if word.first()?.is_ascii_digit() && word.contains(&b'-') {
            // RFC 850: 06-Apr-93
            for part in word.split(|byte| *byte == b'-').take(4).filter(|part| !part.is_empty()) {
                if part.iter().all(u8::is_ascii_digit) { self.digits(part)? } else { self.name(part) }
            }
        } else {
            self.name(word);
        }
        Some(())
    }

    fn digits(&mut self, word: &[u8]) -> Option<()> {
        let value = number(word)?;
        if self.day.is_none() && (1..=31).contains(&value) && word.len() <= 2 {
            self.day = Some(value);
        } else if self.year.is_none() {
            self.year = Some(match value {
                0..=69 => 2000 + value,
                70..=199 => 1900 + value,
                1900..=9999 => value,
                _ => return None,
            });
        }
        Some(())
    }

    fn name(&mut self, word: &[u8]) {
        if self.month.is_none()
            && let Some(month) = word.get(..3).and_then(|three| named(MONTHS, three))
        {
            self.month = Some(month + 1);
        } else if self.seconds.is_some() && self.zone_minutes.is_none() {
            self.zone_minutes =
                ZONES.iter().find(|(name, _)| word.eq_ignore_ascii_case(name)).map(|(_, minutes)| *minutes);
        }
    }
}

fn time(word: &[u8]) -> Option<i64> {
    let mut parts = word.split(|byte| *byte == b':').map(number);
    let (hour, minute) = (parts.next()??, parts.next()??);
    let second = match parts.next() {
        Some(second) => second?,
        None => 0,
    };
    (hour < 24 && minute < 60 && second <= 60).then_some(hour * 3600 + minute * 60 + second)
}

fn offset(sign: u8, digits: &[u8]) -> Option<i32> {
    let value = number(digits).filter(|_| digits.len() == 4)?;
    let minutes = i32::try_from(value / 100 * 60 + value % 100).ok().filter(|minutes| *minutes <= 24 * 60)?;
    Some(if sign == b'-' { -minutes } else { minutes })
}

/// Up to 4 digits: nothing in a date has more.
fn number(word: &[u8]) -> Option<i64> {
    let fine = !word.is_empty() && word.len() <= 4 && word.iter().all(u8::is_ascii_digit);
    fine.then(|| word.iter().fold(0, |sum, digit| sum * 10 + i64::from(digit - b'0')))
}

fn named(names: &[&[u8; 3]], word: &[u8]) -> Option<i64> {
    names.iter().position(|name| word.eq_ignore_ascii_case(&name[..])).map(|at| at as i64)
}

/// From the first day of the month: some articles are of 31 April, which is taken as the day after the 30th.
fn days_from_epoch(year: i64, month: i64, day: i64) -> Option<i64> {
    let first = DateTime::new(year as i16, month as i8, 1, 0, 0, 0, 0).ok()?;
    Some(first.duration_since(EPOCH).as_hours() / 24 + day - 1)
}

const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

const MONTHS: &[&[u8; 3]] =
    &[b"jan", b"feb", b"mar", b"apr", b"may", b"jun", b"jul", b"aug", b"sep", b"oct", b"nov", b"dec"];

/// East of Greenwich in minutes.
const ZONES: &[(&[u8], i32)] = &[
    (b"gmt", 0),
    (b"ut", 0),
    (b"utc", 0),
    (b"z", 0),
    (b"wet", 0),
    (b"bst", 60),
    (b"met", 60),
    (b"cet", 60),
    (b"mesz", 120),
    (b"cest", 120),
    (b"eet", 120),
    (b"jst", 540),
    (b"est", -300),
    (b"edt", -240),
    (b"cst", -360),
    (b"cdt", -300),
    (b"mst", -420),
    (b"mdt", -360),
    (b"pst", -480),
    (b"pdt", -420),
];
