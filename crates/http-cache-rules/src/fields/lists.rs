//! Lists in field values: members, directives with arguments, and numbers (RFC 9110 section 5.6, RFC 9111 section 1.2.2).
//!
//! ```text
//! a, b="x, y" ,, c=3   ->   a | b="x, y" | c=3      commas in quotes do not separate, empty members are skipped
//! ```
//!
//! Always holds: nothing is copied, nothing panics, and an unclosed quote extends to the end of its line.
//! Not here: structured fields, which are stricter (`targeted`).

use http::{HeaderMap, HeaderName};

/// The largest number of seconds; larger ones count as this (RFC 9111 section 1.2.2).
pub const DELTA_MAX: u32 = 1 << 31;

/// The members of one line, trimmed.
pub struct Members<'a> {
    rest: &'a [u8],
}

/// Splits one line at its commas.
pub fn members(line: &[u8]) -> Members<'_> {
    Members { rest: line }
}

/// The members of every line of a field, in order.
pub fn all_members<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
    headers.get_all(name).iter().flat_map(|line| members(line.as_bytes()))
}

impl<'a> Iterator for Members<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        while !self.rest.is_empty() {
            let end = comma(self.rest);
            let member = self.rest[..end].trim_ascii();
            self.rest = self.rest.get(end + 1..).unwrap_or_default();
            if !member.is_empty() {
                return Some(member);
            }
        }
        None
    }
}

/// Position of the first comma outside quotes, or the end.
fn comma(line: &[u8]) -> usize {
    let mut quotes = Quotes::default();
    line.iter().position(|&byte| !quotes.within(byte) && byte == b',').unwrap_or(line.len())
}

/// Whether a quote is still open at the end of a line: what follows it may have been meant as members.
pub fn has_open_quote(line: &[u8]) -> bool {
    let mut quotes = Quotes::default();
    line.iter().for_each(|&byte| {
        quotes.within(byte);
    });
    quotes.open
}

/// Follows quoted strings (RFC 9110 section 5.6.4) through a line.
#[derive(Default)]
struct Quotes {
    open: bool,
    escaped: bool,
}

impl Quotes {
    /// Takes the next byte, and returns whether it belongs to a quoted string.
    fn within(&mut self, byte: u8) -> bool {
        let was_open = self.open;
        match byte {
            _ if self.escaped => self.escaped = false,
            b'\\' if self.open => self.escaped = true,
            b'"' => self.open = !self.open,
            _ => {}
        }
        was_open
    }
}

/// A directive's name and its argument, without the quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Directive<'a> {
    /// As sent; compare case-insensitively.
    pub name: &'a [u8],
    /// The argument, if any. Escapes within quotes are kept.
    pub argument: Option<&'a [u8]>,
    /// White space around the `=`, an unclosed quote, bytes after the closing quote, or a name that is not a token.
    pub malformed: bool,
}

/// Splits a member at its first `=`.
pub fn directive(member: &[u8]) -> Directive<'_> {
    let Some(equals) = member.iter().position(|byte| *byte == b'=') else {
        return Directive { name: member, argument: None, malformed: !is_token(member) };
    };
    let (name, argument) = (&member[..equals], &member[equals + 1..]);
    let spaced =
        name.trim_ascii_end().len() < name.len() || argument.trim_ascii_start().len() < argument.len();
    let (name, argument) = (name.trim_ascii(), argument.trim_ascii());
    let (argument, open) = match argument {
        [b'"', inner @ .., b'"'] => (inner, inner.contains(&b'"') && !inner.contains(&b'\\')),
        _ => (argument, argument.contains(&b'"')),
    };
    Directive { name, argument: Some(argument), malformed: spaced || open || !is_token(name) }
}

/// A token of RFC 9110 section 5.6.2.
pub fn is_token(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().copied().all(is_token_byte)
}

/// A byte that a token may contain.
pub fn is_token_byte(byte: u8) -> bool {
    TOKEN_BYTES[usize::from(byte)]
}

/// A table, as the framing check tests every byte of every name in a head.
const TOKEN_BYTES: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0;
    while byte < 256 {
        table[byte] = matches!(byte as u8, b'!' | b'#'..=b'\'' | b'*' | b'+' | b'-' | b'.' | b'^'..=b'`' | b'|' | b'~')
            || (byte as u8).is_ascii_alphanumeric();
        byte += 1;
    }
    table
};

/// Delta-seconds: any number of digits; larger values saturate at [`DELTA_MAX`].
pub fn delta_seconds(text: &[u8]) -> Option<u32> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let mut total = 0_u32;
    for digit in text {
        total = total.saturating_mul(10).saturating_add(u32::from(digit - b'0')).min(DELTA_MAX);
    }
    Some(total)
}

/// A number of bytes: digits only, at most 2^63 - 1. It does not saturate, as a length must be exact.
pub fn byte_count(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 19 || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let total = text.iter().fold(0_u64, |total, digit| total * 10 + u64::from(digit - b'0'));
    (total <= i64::MAX as u64).then_some(total)
}
