//! Dates as HTTP writes them (RFC 9110 section 5.6.7), in whole seconds since 1970. The calendar is `jiff`'s.

use jiff::Timestamp;
use jiff::fmt::rfc2822::{DateTimeParser, DateTimePrinter};

/// The last second that a calendar knows whose years have four digits in every zone.
const LATEST_S: u64 = 253_402_207_200;

/// In the only form that may be sent.
pub(crate) fn written(unix_s: u64) -> String {
    let at = Timestamp::from_second(unix_s.min(LATEST_S) as i64);
    let text = at.and_then(|at| DateTimePrinter::new().timestamp_to_rfc9110_string(&at));
    text.expect("a year of four digits can be written")
}

/// Reads a date of that form; those before 1970 are none here.
pub(crate) fn read(text: &[u8]) -> Option<u64> {
    let at = DateTimeParser::new().parse_timestamp(text).ok()?;
    u64::try_from(at.as_second()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_rfc_to_their_last_year_and_never_a_panic() {
        assert_eq!(written(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(read(b"Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(written(951_782_400), "Tue, 29 Feb 2000 00:00:00 GMT");
        assert_eq!(written(u64::MAX), "Thu, 30 Dec 9999 22:00:00 GMT");
        assert_eq!(read(written(u64::MAX).as_bytes()), Some(LATEST_S));
        for wrong in ["", "Sun, 36 Nov 1994 08:49:37 GMT", "Mon, 06 Nov 1994 08:49:37 GMT"] {
            assert_eq!(read(wrong.as_bytes()), None, "{wrong}");
        }
        assert_eq!(read(b"\xff"), None);
    }
}
