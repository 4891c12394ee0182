//! Targeted cache control: CDN-Cache-Control and its kin, which are structured fields (RFC 9213, RFC 8941).
//!
//! Always holds: a field that is empty or does not parse to its last byte is as good as absent (RFC 9213 section 2.1),
//! and so is one that gives a directive we act on a value of the wrong type.
//! Not here: whose field it is (`Policy::targets` lists those of this cache).

use http::{HeaderMap, HeaderName};

use super::cache_control::ResponseDirectives;
use super::lists::DELTA_MAX;

/// What one targeted field says; nothing when it does not count.
pub fn directives(headers: &HeaderMap, target: &HeaderName) -> Option<ResponseDirectives> {
    let mut lines = headers.get_all(target).iter();
    // Lines are joined before parsing (RFC 8941 section 4.2); one line, the usual case, is parsed in place.
    let first = lines.next()?.as_bytes();
    let mut joined = Vec::new();
    for line in lines {
        if joined.is_empty() {
            joined.extend_from_slice(first);
        }
        joined.extend_from_slice(b",");
        joined.extend_from_slice(line.as_bytes());
    }
    let mut parser = Parser { rest: if joined.is_empty() { first } else { &joined } };
    let mut found = ResponseDirectives { targeted: true, ..ResponseDirectives::default() };
    let mut members = 0_usize;
    parser.skip(b" ");
    while !parser.rest.is_empty() {
        let key = parser.key()?;
        let value = if parser.take(b'=') { parser.item_or_list()? } else { Value::Boolean(true) };
        parser.parameters()?;
        note(&mut found, key, value)?;
        members += 1;
        parser.skip(b" \t");
        if parser.rest.is_empty() {
            break;
        }
        if !parser.take(b',') {
            return None;
        }
        parser.skip(b" \t");
        // A comma at the end is an error (RFC 8941 section 4.2.2).
        if parser.rest.is_empty() {
            return None;
        }
    }
    (members > 0).then_some(found)
}

/// As much of a value as the directives need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Value {
    Boolean(bool),
    Integer(i64),
    Other,
}

/// Of two members with one name the last counts (RFC 8941 section 3.2).
fn note(found: &mut ResponseDirectives, key: &[u8], value: Value) -> Option<()> {
    let flag = match value {
        Value::Boolean(flag) => Some(flag),
        _ => None,
    };
    let seconds = match value {
        Value::Integer(seconds) => u32::try_from(seconds.min(i64::from(DELTA_MAX))).ok(),
        _ => None,
    };
    match key {
        b"no-store" => found.no_store = flag?,
        // With a list of fields these count as without: the careful reading.
        b"no-cache" => found.no_cache = flag.unwrap_or(true),
        b"private" => found.private = flag.unwrap_or(true),
        b"public" => found.public = flag?,
        b"must-revalidate" => found.must_revalidate = flag?,
        b"proxy-revalidate" => found.proxy_revalidate = flag?,
        b"must-understand" => found.must_understand = flag?,
        b"immutable" => found.immutable = flag?,
        b"max-age" => found.max_age = Some(seconds?),
        b"s-maxage" => found.s_maxage = Some(seconds?),
        b"stale-while-revalidate" => found.stale_while_revalidate = Some(seconds?),
        b"stale-if-error" => found.stale_if_error = Some(seconds?),
        _ => {}
    }
    Some(())
}

/// Reads forwards and never back; every answer of nothing means that the field does not parse.
struct Parser<'a> {
    rest: &'a [u8],
}

impl<'a> Parser<'a> {
    fn skip(&mut self, any_of: &[u8]) {
        while self.rest.first().is_some_and(|byte| any_of.contains(byte)) {
            self.rest = &self.rest[1..];
        }
    }

    fn take(&mut self, wanted: u8) -> bool {
        let found = self.rest.first() == Some(&wanted);
        if found {
            self.rest = &self.rest[1..];
        }
        found
    }

    fn while_of(&mut self, belongs: impl Fn(u8) -> bool) -> &'a [u8] {
        let end = self.rest.iter().position(|byte| !belongs(*byte)).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    fn key(&mut self) -> Option<&'a [u8]> {
        let first = *self.rest.first()?;
        (first.is_ascii_lowercase() || first == b'*').then_some(())?;
        let belongs =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-.*".contains(&byte);
        Some(self.while_of(belongs))
    }

    fn item_or_list(&mut self) -> Option<Value> {
        if !self.take(b'(') {
            return self.bare_item();
        }
        loop {
            self.skip(b" ");
            if self.take(b')') {
                return Some(Value::Other);
            }
            self.bare_item()?;
            self.parameters()?;
            matches!(self.rest.first()?, b' ' | b')').then_some(())?;
        }
    }

    fn parameters(&mut self) -> Option<()> {
        while self.take(b';') {
            self.skip(b" ");
            self.key()?;
            if self.take(b'=') {
                self.bare_item()?;
            }
        }
        Some(())
    }

    fn bare_item(&mut self) -> Option<Value> {
        match *self.rest.first()? {
            b'-' | b'0'..=b'9' => self.number(),
            b'"' => self.string(),
            b'?' => {
                self.take(b'?');
                let digit = self.take(b'1');
                (digit || self.take(b'0')).then_some(Value::Boolean(digit))
            }
            b':' => {
                self.take(b':');
                self.while_of(|byte| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte));
                self.take(b':').then_some(Value::Other)
            }
            b'*' | b'A'..=b'Z' | b'a'..=b'z' => {
                self.while_of(|byte| super::lists::is_token_byte(byte) || b":/".contains(&byte));
                Some(Value::Other)
            }
            _ => None,
        }
    }

    /// At most 15 digits, or 12 before a point and 3 behind it (RFC 8941 section 4.2.4).
    fn number(&mut self) -> Option<Value> {
        let negative = self.take(b'-');
        let whole = self.while_of(|byte| byte.is_ascii_digit());
        if self.take(b'.') {
            let behind = self.while_of(|byte| byte.is_ascii_digit());
            let fits = (1..=12).contains(&whole.len()) && (1..=3).contains(&behind.len());
            return fits.then_some(Value::Other);
        }
        (1..=15).contains(&whole.len()).then_some(())?;
        let amount = whole.iter().fold(0_i64, |amount, digit| amount * 10 + i64::from(digit - b'0'));
        Some(Value::Integer(if negative { -amount } else { amount }))
    }

    fn string(&mut self) -> Option<Value> {
        self.take(b'"');
        loop {
            let byte = *self.rest.first()?;
            self.rest = &self.rest[1..];
            match byte {
                b'"' => return Some(Value::Other),
                b'\\' => (self.take(b'"') || self.take(b'\\')).then_some(())?,
                0x20..=0x7e => {}
                _ => return None,
            }
        }
    }
}
