//! Dates as HTTP writes them: `Sun, 06 Nov 1994 08:49:37 GMT`, in whole seconds since 1970 (RFC 9110, 5.6.7).

use std::io::Write as _;

/// Length of the only form that may be sent.
pub(crate) const LENGTH: usize = 29;
const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
/// The last second of 9999: years have four digits.
const LATEST_S: u64 = 253_402_300_799;

/// Writes a date.
pub(crate) fn written(unix_s: u64) -> [u8; LENGTH] {
    let unix_s = unix_s.min(LATEST_S);
    let (days, second) = (unix_s / 86_400, unix_s % 86_400);
    let (year, month, day) = civil(days);
    let mut text = [b' '; LENGTH];
    let done = write!(
        &mut text[..],
        "{}, {day:02} {} {year:04} {:02}:{:02}:{:02} GMT",
        DAYS[(days % 7) as usize],
        MONTHS[month as usize - 1],
        second / 3600,
        second / 60 % 60,
        second % 60
    );
    done.expect("29 bytes hold a date of four digits' year");
    text
}

/// Reads a date of the form that is sent; the obsolete forms are no dates here.
pub(crate) fn read(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok().filter(|text| text.len() == LENGTH && text.is_ascii())?;
    let number = |from: usize, to: usize| text[from..to].parse::<u64>().ok();
    let month = MONTHS.iter().position(|month| *month == &text[8..11])? as u64 + 1;
    let (day, year) = (number(5, 7)?, number(12, 16)?);
    let (hour, minute, second) = (number(17, 19)?, number(20, 22)?, number(23, 25)?);
    let fine = (1..=31).contains(&day) && year >= 1970 && hour < 24 && minute < 60 && second < 61;
    (fine && text.ends_with(" GMT"))
        .then(|| days_of(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second)
}

/// Years from March on, so that the leap day is the last: 400 of them have 146,097 days.
fn civil(days_since_1970: u64) -> (u64, u64, u64) {
    let days = days_since_1970 + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day)
}

fn days_of(year: u64, month: u64, day: u64) -> u64 {
    let year = year - u64::from(month <= 2);
    let from_march = if month > 2 { month - 3 } else { month + 9 };
    let of_year = (153 * from_march + 2) / 5 + day - 1;
    year / 400 * 146_097 + year % 400 * 365 + year % 400 / 4 - year % 400 / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_example_of_the_rfc_is_read_and_written() {
        let text = b"Sun, 06 Nov 1994 08:49:37 GMT";
        assert_eq!(read(text), Some(784_111_777));
        assert_eq!(&written(784_111_777), text);
        assert_eq!(&written(951_782_400), b"Tue, 29 Feb 2000 00:00:00 GMT");
        for wrong in [
            "",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 36 Nov 1994 08:49:37 GMT",
        ] {
            assert_eq!(read(wrong.as_bytes()), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(second in 0..LATEST_S) {
            prop_assert_eq!(read(&written(second)), Some(second));
        }

        #[test]
        fn no_text_panics(text in ".{0,40}") {
            let _ = read(text.as_bytes());
        }
    }
}
