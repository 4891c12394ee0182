//! Where a message ends, and heads that two parsers could read differently (RFC 9112).
//!
//! ```text
//! raw head, up to and including the empty line ─> check_request │ check_reply ─> Framing, or Violation with its section
//! ```
//!
//! Always holds: a head is checked on its raw bytes, before a lenient parser interprets it. An ambiguous head is refused even where the
//! RFC lets a recipient repair it, as the next hop may repair it differently. Never panics; checking a head allocates nothing.
//! Not here: limits on sizes and counts (the proxy's configuration), and bodies.

use http::header::{CONTENT_LENGTH, HeaderMap, HeaderValue, TRANSFER_ENCODING};
use http::{StatusCode, Version};
use memchr::{memchr, memchr2_iter};

use crate::fields::lists::{all_members, byte_count, is_token_byte, members};

/// The length of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyLength {
    /// No body.
    Nothing,
    /// This many bytes, from Content-Length.
    Bytes(u64),
    /// Until the last chunk.
    Chunked,
    /// Until the connection closes; replies only.
    UntilClose,
}

/// What a well-formed head says about the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Framing {
    /// The minor version of HTTP/1.x: 0 or 1.
    pub minor_version: u8,
    /// The length of the body.
    pub body: BodyLength,
}

/// What is wrong with a head. A request is answered with 400, a reply with 502, and the connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// No empty line at the end.
    #[error("the head does not end in an empty line")]
    Unfinished,
    /// A line feed without a carriage return, or the reverse.
    #[error("a line of the head ends in a lone carriage return or line feed")]
    BareLineBreak,
    /// Not "method target version" or "version status reason" with single spaces.
    #[error("the first line is malformed")]
    StartLine,
    /// Neither HTTP/1.0 nor HTTP/1.1.
    #[error("the version is not HTTP/1.0 or HTTP/1.1")]
    Version,
    /// A line that begins with white space: it continues the previous one, or hides a field.
    #[error("a field line begins with white space")]
    Folded,
    /// White space between a field name and the colon.
    #[error("white space precedes the colon of a field")]
    SpaceBeforeColon,
    /// A field name is empty or not a token, or the colon is missing.
    #[error("a field's name is not a token")]
    FieldName,
    /// A field value contains a control character.
    #[error("a field's value holds a control character")]
    FieldValue,
    /// Content-Length is not a number, or several differ.
    #[error("Content-Length is not a single number")]
    ContentLength,
    /// Both Content-Length and Transfer-Encoding.
    #[error("both Content-Length and Transfer-Encoding are present")]
    TwoLengths,
    /// A transfer coding other than a single `chunked`, or any in HTTP/1.0.
    #[error("Transfer-Encoding is not a single chunked in HTTP/1.1")]
    TransferEncoding,
    /// Host is missing in HTTP/1.1, repeated, or invalid.
    #[error("Host is missing, repeated or invalid")]
    Host,
    /// CONNECT with a body: another parser could take its bytes for the tunnel's.
    #[error("CONNECT has a body")]
    ConnectBody,
}

impl Violation {
    /// The section that is violated, or that describes the ambiguity.
    pub fn section(self) -> &'static str {
        match self {
            Violation::Unfinished => "RFC 9112 section 2.1",
            Violation::BareLineBreak => "RFC 9112 section 2.2",
            Violation::StartLine => "RFC 9112 sections 3 and 4",
            Violation::Version => "RFC 9112 section 2.3",
            Violation::Folded => "RFC 9112 sections 2.2 and 5.2",
            Violation::SpaceBeforeColon => "RFC 9112 section 5.1",
            Violation::FieldName => "RFC 9110 section 5.1",
            Violation::FieldValue => "RFC 9110 section 5.5",
            Violation::ContentLength => "RFC 9112 section 6.3, item 5",
            Violation::TwoLengths => "RFC 9112 section 6.3, item 3",
            Violation::TransferEncoding => "RFC 9112 section 6.1",
            Violation::Host => "RFC 9112 section 3.2",
            Violation::ConnectBody => "RFC 9110 section 9.3.6",
        }
    }
}

/// Checks a request's head.
pub fn check_request(head: &[u8]) -> Result<Framing, Violation> {
    let (start, fields) = split(head)?;
    let minor_version = request_line(start)?;
    let seen = Fields::read(fields)?;
    if seen.hosts > 1 || (seen.hosts == 0 && minor_version == 1) || seen.bad_host {
        return Err(Violation::Host);
    }
    let body = seen.body(minor_version)?;
    if seen.codings > 0 && body == Some(BodyLength::UntilClose) {
        return Err(Violation::TransferEncoding);
    }
    if start.starts_with(b"CONNECT ") && !matches!(body, None | Some(BodyLength::Bytes(0))) {
        return Err(Violation::ConnectBody);
    }
    // A request without a length has no body (RFC 9112 section 6.3, item 7).
    Ok(Framing { minor_version, body: body.unwrap_or(BodyLength::Nothing) })
}

/// Checks a reply's head. `to_head`: the reply to a HEAD, which never has a body.
pub fn check_reply(head: &[u8], to_head: bool) -> Result<Framing, Violation> {
    let (start, fields) = split(head)?;
    let (minor_version, status) = status_line(start)?;
    let body = Fields::read(fields)?.body(minor_version)?;
    let bodiless = to_head || status < 200 || status == 204 || status == 304;
    let body = if bodiless { BodyLength::Nothing } else { body.unwrap_or(BodyLength::UntilClose) };
    Ok(Framing { minor_version, body })
}

/// Checks a reply that a lenient parser has already read. Refuses lengths that another parser could read differently, and transfer codings
/// that are not decoded here and must not be passed on, and what only resembles `chunked`. An unknown coding only means that the body ends with the connection (RFC
/// 9112 section 6.3).
pub fn check_read_reply(version: Version, status: StatusCode, headers: &HeaderMap) -> Result<(), Violation> {
    if !headers.contains_key(TRANSFER_ENCODING) {
        return Ok(());
    }
    if headers.contains_key(CONTENT_LENGTH) {
        return Err(Violation::TwoLengths);
    }
    // The parser takes all but a plain `chunked` for a body until the end of the connection, whatever resembles it.
    let resembles = |line: &[u8]| line.windows(7).any(|part| part.eq_ignore_ascii_case(b"chunked"));
    let is_plain = |line: &[u8]| line.trim_ascii().eq_ignore_ascii_case(b"chunked");
    let mut lines = headers.get_all(TRANSFER_ENCODING).iter().map(HeaderValue::as_bytes);
    if lines.any(|line| resembles(line) && !is_plain(line)) {
        return Err(Violation::TransferEncoding);
    }
    let is = |coding: &[u8], name: &str| coding.eq_ignore_ascii_case(name.as_bytes());
    let mut codings = all_members(headers, &TRANSFER_ENCODING);
    let passes = codings.next().is_some_and(|coding| !CODINGS_NOT_UNDONE.iter().any(|name| is(coding, name)));
    let bodiless = status.is_informational() || status == StatusCode::NO_CONTENT;
    match passes && codings.next().is_none() && version != Version::HTTP_10 && !bodiless {
        true => Ok(()),
        false => Err(Violation::TransferEncoding),
    }
}

/// Reduces a reply's length to one field with one number, or removes it where there is no body. A proxy must not send a length with 1xx
/// and 204, nor several (RFC 9110 section 8.6); that of a 304 belongs to another reply.
pub fn normalize_length(status: StatusCode, headers: &mut HeaderMap) -> Result<(), Violation> {
    let bodiless = [StatusCode::NO_CONTENT, StatusCode::NOT_MODIFIED].contains(&status);
    if bodiless || status.is_informational() {
        headers.remove(CONTENT_LENGTH);
        return Ok(());
    }
    let mut seen = Fields::default();
    for line in headers.get_all(CONTENT_LENGTH) {
        seen.note_length(line.as_bytes().trim_ascii())?;
    }
    if let Some(length) = seen.length {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    Ok(())
}

/// The registered transfer codings (RFC 9112 section 12.3) except `chunked`, and the former `identity`.
const CODINGS_NOT_UNDONE: [&str; 7] =
    ["compress", "deflate", "gzip", "identity", "trailers", "x-compress", "x-gzip"];

/// Splits a head into its first line and the field lines with their line breaks.
fn split(head: &[u8]) -> Result<(&[u8], &[u8]), Violation> {
    for place in memchr2_iter(b'\r', b'\n', head) {
        let lone = match head[place] {
            b'\n' => place == 0 || head[place - 1] != b'\r',
            _ => head.get(place + 1).is_some_and(|next| *next != b'\n'),
        };
        if lone {
            return Err(Violation::BareLineBreak);
        }
    }
    // From here on every carriage return is part of a line break.
    let lines = head.strip_suffix(b"\r\n\r\n").ok_or(Violation::Unfinished)?;
    let end = memchr(b'\r', lines).unwrap_or(lines.len());
    let fields = lines.get(end + 2..).unwrap_or_default();
    Ok((&lines[..end], fields))
}

fn request_line(line: &[u8]) -> Result<u8, Violation> {
    let mut words = line.split(|byte| *byte == b' ');
    let (method, target, version) = (words.next(), words.next(), words.next());
    let (Some(method), Some(target), Some(version), None) = (method, target, version, words.next()) else {
        return Err(Violation::StartLine);
    };
    let token = !method.is_empty() && method.iter().copied().all(is_token_byte);
    let visible = !target.is_empty() && target.iter().all(|byte| (0x21..=0x7e).contains(byte));
    if !token || !visible {
        return Err(Violation::StartLine);
    }
    minor_version(version)
}

fn status_line(line: &[u8]) -> Result<(u8, u16), Violation> {
    let (version, rest) = line.split_at_checked(8).ok_or(Violation::StartLine)?;
    let minor_version = minor_version(version)?;
    let [b' ', h @ b'1'..=b'9', t @ b'0'..=b'9', o @ b'0'..=b'9', reason @ ..] = rest else {
        return Err(Violation::StartLine);
    };
    // Servers often omit the space before an empty reason.
    let reason = match reason {
        [] => reason,
        [b' ', reason @ ..] => reason,
        _ => return Err(Violation::StartLine),
    };
    if !reason.iter().copied().all(is_value_byte) {
        return Err(Violation::StartLine);
    }
    let digit = |byte: &u8| u16::from(byte - b'0');
    Ok((minor_version, digit(h) * 100 + digit(t) * 10 + digit(o)))
}

fn minor_version(version: &[u8]) -> Result<u8, Violation> {
    match version {
        b"HTTP/1.0" => Ok(0),
        b"HTTP/1.1" => Ok(1),
        _ => Err(Violation::Version),
    }
}

fn is_value_byte(byte: u8) -> bool {
    byte == b'\t' || (byte >= 0x20 && byte != 0x7f)
}

/// What the field lines say about length and host.
#[derive(Default)]
struct Fields {
    length: Option<u64>,
    codings: usize,
    /// Codings in which the word `chunked` occurs, spelt right or not.
    chunked: usize,
    plain_chunked: bool,
    hosts: usize,
    bad_host: bool,
}

impl Fields {
    fn read(mut lines: &[u8]) -> Result<Self, Violation> {
        let mut seen = Self::default();
        while !lines.is_empty() {
            let end = memchr(b'\r', lines).unwrap_or(lines.len());
            let line = &lines[..end];
            lines = lines.get(end + 2..).unwrap_or_default();
            seen.note(line)?;
        }
        Ok(seen)
    }

    fn note(&mut self, line: &[u8]) -> Result<(), Violation> {
        if line.first().is_some_and(|first| b" \t".contains(first)) {
            return Err(Violation::Folded);
        }
        let colon = memchr(b':', line).ok_or(Violation::FieldName)?;
        let (name, value) = (&line[..colon], &line[colon + 1..]);
        if name.last().is_some_and(|last| b" \t".contains(last)) {
            return Err(Violation::SpaceBeforeColon);
        }
        if name.is_empty() || !name.iter().copied().all(is_token_byte) {
            return Err(Violation::FieldName);
        }
        if !value.iter().copied().all(is_value_byte) {
            return Err(Violation::FieldValue);
        }
        let value = value.trim_ascii();
        if name.eq_ignore_ascii_case(b"content-length") {
            self.note_length(value)?;
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            // A field without members still shows that the sender meant a coding.
            self.codings += members(value).count().max(1);
            for coding in members(value) {
                self.chunked +=
                    usize::from(coding.windows(7).any(|part| part.eq_ignore_ascii_case(b"chunked")));
                self.plain_chunked |= coding.eq_ignore_ascii_case(b"chunked");
            }
        } else if name.eq_ignore_ascii_case(b"host") {
            self.hosts += 1;
            let fits = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=:[]".contains(byte);
            self.bad_host |= !value.iter().all(fits);
        }
        Ok(())
    }

    /// Equal values count once; different or invalid ones are a violation (RFC 9112 section 6.3).
    fn note_length(&mut self, value: &[u8]) -> Result<(), Violation> {
        if value.is_empty() {
            return Err(Violation::ContentLength);
        }
        for length in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
            let length = byte_count(length).ok_or(Violation::ContentLength)?;
            if self.length.is_some_and(|before| before != length) {
                return Err(Violation::ContentLength);
            }
            self.length = Some(length);
        }
        Ok(())
    }

    fn body(&self, minor_version: u8) -> Result<Option<BodyLength>, Violation> {
        if self.codings > 0 {
            if self.length.is_some() {
                return Err(Violation::TwoLengths);
            }
            return match (self.codings, self.chunked, minor_version) {
                (1, 1, 1) if self.plain_chunked => Ok(Some(BodyLength::Chunked)),
                // A reply in another coding ends with the connection (RFC 9112 section 6.3, item 4); a request cannot. Another parser could take
                // anything that resembles `chunked` for it.
                (_, 0, 1) => Ok(Some(BodyLength::UntilClose)),
                _ => Err(Violation::TransferEncoding),
            };
        }
        Ok(self.length.map(BodyLength::Bytes))
    }
}
