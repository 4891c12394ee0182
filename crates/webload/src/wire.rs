//! As much of HTTP/1.1 as robots and origin need: heads cut out of a stream and read, bodies by length, by chunks or
//! until the connection ends.
//!
//! Always holds: nothing a peer sends panics, and a head is refused once it is longer than [`HEAD_BYTES_MAX`].
//! Not here: connections (see `client`, `origin`), caching rules (none are needed: what a cache may do is seen from
//! the replies).
//! Source: RFC 9112; heads are read by `httparse`.

pub(super) mod http_date;

use std::mem::MaybeUninit;

/// No head may be longer.
pub(crate) const HEAD_BYTES_MAX: usize = 64 * 1024;
/// No head may have more fields.
const FIELDS_MAX: usize = 128;
/// Names a request; what comes back with it was made for it by the origin.
pub(crate) const REQUEST_FIELD: &str = "X-Crumb-Request";
/// What the origin says of a reply: the request's name, its think time in microseconds, `v` for a validation.
pub(crate) const ORIGIN_FIELD: &str = "X-Crumb-Origin";

/// A reply or request that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// Length of the head that `bytes` begin with, the empty line included.
pub(crate) fn head_len(bytes: &[u8]) -> Result<Option<usize>, Malformed> {
    let mut from = 0;
    while let Some(at) = bytes[from..].iter().position(|&byte| byte == b'\n') {
        let end = from + at;
        if bytes[..end].ends_with(b"\n") || bytes[..end].ends_with(b"\n\r") {
            return Ok(Some(end + 1));
        }
        from = end + 1;
    }
    if bytes.len() > HEAD_BYTES_MAX { Err(Malformed) } else { Ok(None) }
}

/// Space for the fields of a head; `httparse` fills in those that there are.
type Fields<'a> = [MaybeUninit<httparse::Header<'a>>; FIELDS_MAX];

fn no_fields<'a>() -> Fields<'a> {
    [const { MaybeUninit::uninit() }; FIELDS_MAX]
}

/// As lenient as a client can be: a field that is malformed is skipped, as its reply may be good nevertheless.
fn lenient() -> httparse::ParserConfig {
    let mut config = httparse::ParserConfig::default();
    config
        .allow_spaces_after_header_name_in_responses(true)
        .allow_obsolete_multiline_headers_in_responses(true)
        .ignore_invalid_headers_in_responses(true)
        .ignore_invalid_headers_in_requests(true);
    config
}

fn has_token(value: &[u8], token: &str) -> bool {
    value.split(|&byte| byte == b',').any(|part| part.trim_ascii().eq_ignore_ascii_case(token.as_bytes()))
}

fn digits(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// How the end of a body is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// This many bytes.
    Length(u64),
    Chunked,
    UntilClose,
}

/// What matters of a reply's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplyHead {
    pub status: u16,
    pub framing: Framing,
    pub keep_alive: bool,
    /// What the origin wrote into it: the request it answered then, its think time, whether it was a validation.
    pub origin: Option<OriginNote>,
}

/// The origin's note on a reply, in [`ORIGIN_FIELD`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OriginNote {
    pub request: u64,
    pub think_us: u32,
    /// It said 304 to a cache.
    pub validated: bool,
}

impl OriginNote {
    fn read(value: &[u8]) -> Option<Self> {
        let mut parts = std::str::from_utf8(value).ok()?.split(';');
        let request = u64::from_str_radix(parts.next()?, 16).ok()?;
        let think_us = parts.next()?.parse().ok()?;
        Some(Self { request, think_us, validated: parts.next() == Some("v") })
    }
}

impl ReplyHead {
    /// Reads a whole head.
    pub fn read(head: &[u8]) -> Result<Self, Malformed> {
        let (mut fields, mut parsed) = (no_fields(), httparse::Response::new(&mut []));
        let read = lenient().parse_response_with_uninit_headers(&mut parsed, head, &mut fields);
        let (Ok(httparse::Status::Complete(_)), Some(minor), Some(status)) =
            (read, parsed.version, parsed.code)
        else {
            return Err(Malformed);
        };
        if status < 100 {
            return Err(Malformed);
        }
        let mut reply = Self { status, framing: Framing::UntilClose, keep_alive: minor != 0, origin: None };
        let mut chunked = false;
        let mut length = None;
        for httparse::Header { name, value } in parsed.headers.iter().copied() {
            match name.len() {
                14 if name.eq_ignore_ascii_case("content-length") => {
                    length = Some(digits(value).ok_or(Malformed)?);
                }
                17 if name.eq_ignore_ascii_case("transfer-encoding") => chunked = has_token(value, "chunked"),
                10 if name.eq_ignore_ascii_case("connection") => {
                    if has_token(value, "close") {
                        reply.keep_alive = false;
                    } else if has_token(value, "keep-alive") {
                        reply.keep_alive = true;
                    }
                }
                14 if name.eq_ignore_ascii_case(ORIGIN_FIELD) => {
                    reply.origin = OriginNote::read(value);
                }
                _ => {}
            }
        }
        reply.framing = match (status, chunked, length) {
            (100..200 | 204 | 304, ..) => Framing::Length(0),
            (_, true, _) => Framing::Chunked,
            (_, false, Some(length)) => Framing::Length(length),
            (_, false, None) => Framing::UntilClose,
        };
        reply.keep_alive &= reply.framing != Framing::UntilClose;
        Ok(reply)
    }
}

/// What matters of a request's head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestHead<'a> {
    pub method: &'a [u8],
    /// Without scheme and authority.
    pub path: &'a [u8],
    pub http_11: bool,
    pub keep_alive: bool,
    /// The request's name, when it has one of ours.
    pub request: Option<u64>,
    pub if_modified_since: Option<&'a [u8]>,
    pub if_none_match: Option<&'a [u8]>,
    /// It has a body, which the origin does not read.
    pub has_body: bool,
}

impl<'a> RequestHead<'a> {
    /// Reads a whole head.
    pub fn read(head: &'a [u8]) -> Result<Self, Malformed> {
        let (mut fields, mut parsed) = (no_fields(), httparse::Request::new(&mut []));
        let read = lenient().parse_request_with_uninit_headers(&mut parsed, head, &mut fields);
        let (Ok(httparse::Status::Complete(_)), Some(minor), Some(method), Some(target)) =
            (read, parsed.version, parsed.method, parsed.path)
        else {
            return Err(Malformed);
        };
        let (method, http_11) = (method.as_bytes(), minor == 1);
        let mut request = Self {
            method,
            path: path_of(target.as_bytes()),
            http_11,
            keep_alive: http_11,
            request: None,
            if_modified_since: None,
            if_none_match: None,
            has_body: false,
        };
        for httparse::Header { name, value } in parsed.headers.iter().copied() {
            let is = |known: &str| name.eq_ignore_ascii_case(known);
            match name.len() {
                10 if is("connection") => {
                    if has_token(value, "close") {
                        request.keep_alive = false;
                    } else if has_token(value, "keep-alive") {
                        request.keep_alive = true;
                    }
                }
                15 if is(REQUEST_FIELD) => {
                    request.request =
                        std::str::from_utf8(value).ok().and_then(|text| u64::from_str_radix(text, 16).ok());
                }
                17 if is("if-modified-since") => request.if_modified_since = Some(value),
                13 if is("if-none-match") => request.if_none_match = Some(value),
                14 if is("content-length") => request.has_body |= value != b"0",
                17 if is("transfer-encoding") => request.has_body = true,
                _ => {}
            }
        }
        Ok(request)
    }
}

/// A proxy may be given the whole URL, and so may an origin (RFC 9112, 3.2.2).
fn path_of(target: &[u8]) -> &[u8] {
    let Some(rest) = target.strip_prefix(b"http://") else { return target };
    rest.iter().position(|&byte| byte == b'/').map_or(b"/", |slash| &rest[slash..])
}

/// Takes the framing off a body.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Unframe {
    /// Bytes left.
    Length(u64),
    UntilClose,
    Chunked(Chunk),
}

/// Where in the chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chunk {
    /// In the size, with its digits so far.
    Size(u64, u8),
    /// Behind the size.
    Extension(u64),
    Bytes(u64),
    /// Before the line end that follows a chunk's bytes.
    AfterBytes,
    /// In the trailer, with the length of the line so far.
    Trailer(u32),
    End,
}

impl Unframe {
    /// For a reply's framing.
    pub fn new(framing: Framing) -> Self {
        match framing {
            Framing::Length(bytes) => Self::Length(bytes),
            Framing::UntilClose => Self::UntilClose,
            Framing::Chunked => Self::Chunked(Chunk::Size(0, 0)),
        }
    }

    /// Whether the body is whole.
    pub fn is_done(&self) -> bool {
        matches!(self, Self::Length(0) | Self::Chunked(Chunk::End))
    }

    /// Takes bytes off `input`, giving those of the body to `body`; how many were taken. All, unless the body ends
    /// before.
    pub fn take(&mut self, input: &[u8], mut body: impl FnMut(&[u8])) -> Result<usize, Malformed> {
        match self {
            Self::Length(left) => {
                let take = (*left).min(input.len() as u64) as usize;
                body(&input[..take]);
                *left -= take as u64;
                Ok(take)
            }
            Self::UntilClose => {
                body(input);
                Ok(input.len())
            }
            Self::Chunked(chunk) => {
                let mut at = 0;
                while at < input.len() && *chunk != Chunk::End {
                    let byte = input[at];
                    at += 1;
                    *chunk = match (*chunk, byte) {
                        (Chunk::Size(size, count), b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') if count < 15 => {
                            Chunk::Size(size << 4 | u64::from(hex(byte)), count + 1)
                        }
                        (Chunk::Size(size, 1..), b';' | b' ' | b'\r') => Chunk::Extension(size),
                        (Chunk::Size(0, 1..) | Chunk::Extension(0), b'\n') => Chunk::Trailer(0),
                        (Chunk::Size(size, 1..) | Chunk::Extension(size), b'\n') => Chunk::Bytes(size),
                        (Chunk::Size(..), _) => return Err(Malformed),
                        (Chunk::Extension(size), _) => Chunk::Extension(size),
                        (Chunk::Bytes(left), _) => {
                            at -= 1;
                            let take = left.min((input.len() - at) as u64) as usize;
                            body(&input[at..at + take]);
                            at += take;
                            if left == take as u64 {
                                Chunk::AfterBytes
                            } else {
                                Chunk::Bytes(left - take as u64)
                            }
                        }
                        (Chunk::AfterBytes, b'\r') => Chunk::AfterBytes,
                        (Chunk::AfterBytes, b'\n') => Chunk::Size(0, 0),
                        (Chunk::AfterBytes, _) => return Err(Malformed),
                        (Chunk::Trailer(0), b'\n') => Chunk::End,
                        (Chunk::Trailer(_), b'\n') => Chunk::Trailer(0),
                        (Chunk::Trailer(len), b'\r') => Chunk::Trailer(len),
                        (Chunk::Trailer(len), _) if (len as usize) < HEAD_BYTES_MAX => {
                            Chunk::Trailer(len + 1)
                        }
                        (Chunk::Trailer(_), _) => return Err(Malformed),
                        (Chunk::End, _) => Chunk::End,
                    };
                }
                Ok(at)
            }
        }
    }
}

fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        _ => (digit | 0x20) - b'a' + 10,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn dechunked(input: &[u8], piece: usize) -> Result<(Vec<u8>, bool), Malformed> {
        let (mut body, mut unframe) = (Vec::new(), Unframe::new(Framing::Chunked));
        for bytes in input.chunks(piece) {
            unframe.take(bytes, |bytes| body.extend_from_slice(bytes))?;
        }
        Ok((body, unframe.is_done()))
    }

    #[test]
    fn a_reply_says_how_its_body_ends_and_where_it_came_from() {
        let head = b"HTTP/1.1 200 OK\r\ncontent-LENGTH: 12\r\nX-Crumb-Origin: 1f;2500;v\r\n\r\n";
        let reply = ReplyHead::read(head).unwrap();
        assert_eq!((reply.status, reply.framing, reply.keep_alive), (200, Framing::Length(12), true));
        assert_eq!(reply.origin, Some(OriginNote { request: 31, think_us: 2500, validated: true }));
        let of = |head: &str| ReplyHead::read(head.as_bytes());
        let chunked =
            of("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n").unwrap();
        assert_eq!(chunked.framing, Framing::Chunked);
        let old = of("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\n").unwrap();
        assert!(old.keep_alive && !of("HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\n").unwrap().keep_alive);
        assert!(!of("HTTP/1.1 200 OK\r\n\r\n").unwrap().keep_alive, "only its end gives the length");
        assert_eq!(
            of("HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n").unwrap().framing,
            Framing::Length(0)
        );
        for wrong in
            ["", "HTTP/2 200\r\n\r\n", "HTTP/1.1 20\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"]
        {
            assert_eq!(of(wrong), Err(Malformed), "{wrong}");
        }
    }

    #[test]
    fn a_request_is_read_with_a_path_or_a_whole_url() {
        let head =
            b"GET http://a:1/i/2 HTTP/1.1\r\nHost: a\r\nX-Crumb-Request: ff\r\nIf-Modified-Since: x\r\n\r\n";
        let request = RequestHead::read(head).unwrap();
        assert_eq!((request.path, request.request), (&b"/i/2"[..], Some(255)));
        assert_eq!(request.if_modified_since, Some(&b"x"[..]));
        assert!(request.keep_alive && !request.has_body);
        assert!(RequestHead::read(b"GET /\r\n\r\n").is_err() && RequestHead::read(b"").is_err());
    }

    #[test]
    fn a_head_ends_at_its_empty_line_and_an_endless_one_is_refused() {
        assert_eq!(head_len(b"A\r\nB: c\r\n\r\nrest"), Ok(Some(11)));
        assert_eq!(head_len(b"A\nB\n\nrest"), Ok(Some(5)));
        assert_eq!(head_len(b"A\r\nB: c\r\n\r"), Ok(None));
        assert_eq!(head_len(&vec![b'x'; HEAD_BYTES_MAX + 1]), Err(Malformed));
    }

    #[test]
    fn chunks_are_put_together_however_they_are_cut() {
        let input = b"5;a=b\r\nhello\r\n0A\r\n, chunks!!\r\n0\r\nT: x\r\n\r\n";
        for piece in 1..input.len() {
            assert_eq!(
                dechunked(input, piece),
                Ok((b"hello, chunks!!".to_vec(), true)),
                "in pieces of {piece}"
            );
        }
        assert_eq!(dechunked(b"5\r\nhel", 9), Ok((b"hel".to_vec(), false)));
        for wrong in ["x\r\n", "\r\n", "1\r\nab", "ffffffffffffffffff\r\n"] {
            assert_eq!(dechunked(wrong.as_bytes(), 1), Err(Malformed), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn nothing_a_peer_sends_panics(bytes in prop::collection::vec(any::<u8>(), 0..200), piece in 1usize..9) {
            let _ = (ReplyHead::read(&bytes), RequestHead::read(&bytes), head_len(&bytes), dechunked(&bytes, piece));
        }
    }
}
