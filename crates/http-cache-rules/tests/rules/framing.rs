//! Heads on which two readers could differ about where the message ends (RFC 9112).

use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{StatusCode, Version};
use http_cache_rules::framing::BodyLength::{Bytes, Chunked, Nothing, UntilClose};
use http_cache_rules::framing::{BodyLength, Violation, check_read_reply, check_reply, check_request};

type Outcome = Result<BodyLength, Violation>;

/// What is tried, the field lines of a POST of HTTP/1.1 with Host, outcome.
#[rustfmt::skip]
const REQUESTS: &[(&str, &str, Outcome)] = &{
    use Violation::*;
    [
        ("no length", "", Ok(Nothing)),
        ("a length", "Content-Length: 5\r\n", Ok(Bytes(5))),
        ("a length of zero", "Content-Length: 0\r\n", Ok(Bytes(0))),
        ("space around it", "Content-Length:\t 5 \r\n", Ok(Bytes(5))),
        ("chunked", "Transfer-Encoding: chunked\r\n", Ok(Chunked)),
        ("chunked, in other letters", "transfer-encoding: CHUNKED\r\n", Ok(Chunked)),
        ("the same length twice in a list", "Content-Length: 5, 5\r\n", Ok(Bytes(5))),
        ("the same length in two lines", "Content-Length: 5\r\nContent-Length: 5\r\n", Ok(Bytes(5))),
        ("two lengths", "Content-Length: 5\r\nContent-Length: 6\r\n", Err(ContentLength)),
        ("two lengths in a list", "Content-Length: 5, 6\r\n", Err(ContentLength)),
        ("two lengths, one written longer, equal", "Content-Length: 5, 05\r\n", Ok(Bytes(5))),
        ("a negative length", "Content-Length: -5\r\n", Err(ContentLength)),
        ("a length with a plus", "Content-Length: +5\r\n", Err(ContentLength)),
        ("a hexadecimal length", "Content-Length: 0x5\r\n", Err(ContentLength)),
        ("a length with a space inside", "Content-Length: 5 0\r\n", Err(ContentLength)),
        ("an empty length", "Content-Length:\r\n", Err(ContentLength)),
        ("a list with an empty length", "Content-Length: 5,\r\n", Err(ContentLength)),
        ("a length past 63 bits", "Content-Length: 9223372036854775808\r\n", Err(ContentLength)),
        ("a length past 64 bits", "Content-Length: 18446744073709551621\r\n", Err(ContentLength)),
        ("length and chunked", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", Err(TwoLengths)),
        ("chunked and length", "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", Err(TwoLengths)),
        ("length and an unknown coding", "Transfer-Encoding: foo\r\nContent-Length: 5\r\n", Err(TwoLengths)),
        ("chunked twice", "Transfer-Encoding: chunked, chunked\r\n", Err(TransferEncoding)),
        ("chunked in two lines", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", Err(TransferEncoding)),
        ("chunked not last", "Transfer-Encoding: chunked, gzip\r\n", Err(TransferEncoding)),
        ("another coding before chunked", "Transfer-Encoding: gzip, chunked\r\n", Err(TransferEncoding)),
        ("identity", "Transfer-Encoding: identity\r\n", Err(TransferEncoding)),
        ("an unknown coding", "Transfer-Encoding: foo\r\n", Err(TransferEncoding)),
        ("an empty coding", "Transfer-Encoding:\r\n", Err(TransferEncoding)),
        ("a coding of commas", "Transfer-Encoding: ,\r\n", Err(TransferEncoding)),
        ("xchunked", "Transfer-Encoding: xchunked\r\n", Err(TransferEncoding)),
        ("chunked with a parameter", "Transfer-Encoding: chunked;a=b\r\n", Err(TransferEncoding)),
        ("quoted chunked", "Transfer-Encoding: \"chunked\"\r\n", Err(TransferEncoding)),
        ("chunked behind a vertical tab", "Transfer-Encoding: \x0bchunked\r\n", Err(FieldValue)),
        ("space before the colon", "Transfer-Encoding : chunked\r\n", Err(SpaceBeforeColon)),
        ("a tab before the colon", "Content-Length\t: 5\r\n", Err(SpaceBeforeColon)),
        ("a folded line", "A: b\r\n c\r\n", Err(Folded)),
        ("a folded line with a tab", "A: b\r\n\tTransfer-Encoding: chunked\r\n", Err(Folded)),
        ("a lone line feed", "A: b\nContent-Length: 5\r\n", Err(BareLineBreak)),
        ("a lone carriage return", "A: b\rContent-Length: 5\r\n", Err(BareLineBreak)),
        ("two carriage returns", "A: b\r\r\n", Err(BareLineBreak)),
        ("a NUL", "A: b\0c\r\n", Err(FieldValue)),
        ("a delete", "A: b\x7fc\r\n", Err(FieldValue)),
        ("bytes past ASCII are allowed", "A: b\u{fc}c\r\n", Ok(Nothing)),
        ("a tab is allowed", "A: b\tc\r\n", Ok(Nothing)),
        ("no colon", "Content-Length\r\n", Err(FieldName)),
        ("no name", ": b\r\n", Err(FieldName)),
        ("a space in a name", "Content Length: 5\r\n", Err(FieldName)),
        ("a parenthesis in a name", "A(: b\r\n", Err(FieldName)),
        ("a byte past ASCII in a name", "\u{fc}: b\r\n", Err(FieldName)),
        ("a name that merely resembles", "Content_Length: 5\r\n", Ok(Nothing)),
        ("a second Host", "Host: b.example\r\n", Err(Host)),
    ]
};

#[test]
fn requests_that_could_be_read_in_two_ways_are_refused() {
    for (tried, lines, outcome) in REQUESTS {
        let head = format!("POST / HTTP/1.1\r\nHost: a.example\r\n{lines}\r\n");
        let found = check_request(head.as_bytes()).map(|framing| framing.body);
        assert_eq!(
            found,
            *outcome,
            "{tried} ({})",
            outcome.err().map_or("RFC 9112 section 6.3", Violation::section)
        );
    }
}

/// What is tried, a whole head, outcome.
#[rustfmt::skip]
const HEADS: &[(&str, &[u8], Result<u8, Violation>)] = &{
    use Violation::*;
    [
        ("HTTP/1.1", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", Ok(1)),
        ("HTTP/1.0 needs no Host", b"GET / HTTP/1.0\r\n\r\n", Ok(0)),
        ("an absolute target", b"GET http://a.example/ HTTP/1.1\r\nHost: a.example\r\n\r\n", Ok(1)),
        ("no target but an authority", b"CONNECT a.example:443 HTTP/1.1\r\nHost: a.example:443\r\n\r\n", Ok(1)),
        ("CONNECT with a body", b"CONNECT a:443 HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n", Err(ConnectBody)),
        ("CONNECT, chunked", b"CONNECT a:443 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", Err(ConnectBody)),
        ("CONNECT with a length of zero", b"CONNECT a:443 HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", Ok(1)),
        ("no Host", b"GET / HTTP/1.1\r\n\r\n", Err(Host)),
        ("an empty Host is one", b"GET / HTTP/1.1\r\nHost:\r\n\r\n", Ok(1)),
        ("a Host with a path", b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", Err(Host)),
        ("a Host with a user", b"GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", Err(Host)),
        ("a Host with a space", b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", Err(Host)),
        ("HTTP/2.0 in the text form", b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", Err(Version)),
        ("HTTP/1.2", b"GET / HTTP/1.2\r\nHost: a\r\n\r\n", Err(Version)),
        ("HTTP/0.9", b"GET /\r\n\r\n", Err(StartLine)),
        ("small letters", b"GET / http/1.1\r\nHost: a\r\n\r\n", Err(Version)),
        ("two spaces", b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n", Err(StartLine)),
        ("a tab", b"GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n", Err(StartLine)),
        ("a space behind", b"GET / HTTP/1.1 \r\nHost: a\r\n\r\n", Err(StartLine)),
        ("a space in the target", b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", Err(StartLine)),
        ("a method that is no token", b"G(T / HTTP/1.1\r\nHost: a\r\n\r\n", Err(StartLine)),
        ("a byte past ASCII in the target", b"GET /\xfc HTTP/1.1\r\nHost: a\r\n\r\n", Err(StartLine)),
        ("no empty line", b"GET / HTTP/1.1\r\nHost: a\r\n", Err(Unfinished)),
        ("bare line feeds throughout", b"GET / HTTP/1.1\nHost: a\n\n", Err(BareLineBreak)),
        ("an empty line in front", b"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", Err(StartLine)),
        ("a folded first field", b"GET / HTTP/1.1\r\n Host: a\r\n\r\n", Err(Folded)),
        ("chunked in HTTP/1.0", b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", Err(TransferEncoding)),
        ("nothing", b"", Err(Unfinished)),
        ("only an empty line", b"\r\n\r\n", Err(StartLine)),
        ("a carriage return at the end", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n\r", Err(Unfinished)),
        ("two heads", b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", Err(FieldName)),
    ]
};

#[test]
fn first_lines_and_hosts_are_judged_too() {
    for (tried, head, outcome) in HEADS {
        assert_eq!(check_request(head).map(|framing| framing.minor_version), *outcome, "{tried}");
    }
}

/// What is tried, a reply's head, whether it answers a HEAD, outcome.
#[rustfmt::skip]
const REPLIES: &[(&str, &str, bool, Outcome)] = &{
    use Violation::*;
    [
        ("9112 6.3 a length", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n", false, Ok(Bytes(5))),
        ("9112 6.3 chunked", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n", false, Ok(Chunked)),
        ("9112 6.3 neither", "HTTP/1.1 200 OK\r\n", false, Ok(UntilClose)),
        ("9112 6.3 another coding", "HTTP/1.1 200 OK\r\nTransfer-Encoding: foo\r\n", false, Ok(UntilClose)),
        ("9112 6.3 to a HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n", true, Ok(Nothing)),
        ("9112 6.3 204", "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n", false, Ok(Nothing)),
        ("9112 6.3 304", "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n", false, Ok(Nothing)),
        ("9112 6.3 103", "HTTP/1.1 103 Early Hints\r\n", false, Ok(Nothing)),
        ("9112 6.3 both lengths", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n", false, Err(TwoLengths)),
        ("9112 6.3 two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n", false, Err(ContentLength)),
        ("9112 6.3 two lengths, to a HEAD too", "HTTP/1.1 200 OK\r\nContent-Length: 5, 6\r\n", true, Err(ContentLength)),
        ("9112 6.1 chunked in HTTP/1.0", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n", false, Err(TransferEncoding)),
        ("9112 4 no reason", "HTTP/1.1 200 \r\n", false, Ok(UntilClose)),
        ("9112 4 no reason, no space", "HTTP/1.1 200\r\n", false, Ok(UntilClose)),
        ("9112 4 two digits", "HTTP/1.1 20 OK\r\n", false, Err(StartLine)),
        ("9112 4 four digits", "HTTP/1.1 2000 OK\r\n", false, Err(StartLine)),
        ("9112 4 status 099", "HTTP/1.1 099 OK\r\n", false, Err(StartLine)),
        ("9112 2.3 another version", "HTTP/3.0 200 OK\r\n", false, Err(Version)),
        ("9112 2.3 another protocol", "ICY 200 OK and\r\n", false, Err(Version)),
        ("9112 5.1 space before the colon", "HTTP/1.1 200 OK\r\nContent-Length : 5\r\n", false, Err(SpaceBeforeColon)),
        ("9112 5.2 folded", "HTTP/1.1 200 OK\r\nA: b\r\n c\r\n", false, Err(Folded)),
    ]
};

#[test]
fn replies_are_judged_as_the_sections_say() {
    for (section, lines, to_head, outcome) in REPLIES {
        let head = format!("{lines}\r\n");
        assert_eq!(
            check_reply(head.as_bytes(), *to_head).map(|framing| framing.body),
            *outcome,
            "{section}: {lines}"
        );
    }
}

/// Version, status, fields, outcome.
type Row = (Version, u16, &'static [(&'static str, &'static str)], Result<(), Violation>);

#[test]
fn a_reply_that_a_lenient_parser_took_is_refused_when_another_could_end_it_elsewhere() {
    use Violation::{TransferEncoding, TwoLengths};
    let (v0, v1) = (Version::HTTP_10, Version::HTTP_11);
    #[rustfmt::skip]
    let rows: &[Row] = &[
        (v1, 200, &[], Ok(())),
        (v0, 200, &[("content-length", "5")], Ok(())),
        (v1, 200, &[("transfer-encoding", "chunked")], Ok(())),
        (v1, 200, &[("transfer-encoding", " Chunked ")], Ok(())),
        (v1, 304, &[("transfer-encoding", "chunked")], Ok(())),
        (v1, 200, &[("transfer-encoding", "chunked"), ("content-length", "5")], Err(TwoLengths)),
        (v1, 200, &[("transfer-encoding", "gzip, chunked")], Err(TransferEncoding)),
        (v1, 200, &[("transfer-encoding", "gzip"), ("transfer-encoding", "chunked")], Err(TransferEncoding)),
        (v1, 200, &[("transfer-encoding", "chunked, chunked")], Err(TransferEncoding)),
        (v1, 200, &[("transfer-encoding", "identity")], Err(TransferEncoding)),
        (v1, 200, &[("transfer-encoding", "X-GZip")], Err(TransferEncoding)),
        (v1, 200, &[("transfer-encoding", "nobody-knows")], Ok(())),
        (v1, 200, &[("transfer-encoding", "nobody-knows, chunked")], Err(TransferEncoding)),
        (v1, 200, &[("transfer-encoding", "chunked,")], Err(TransferEncoding)),
        (v1, 200, &[("transfer-encoding", ",chunked")], Err(TransferEncoding)),
        (v1, 200, &[("transfer-encoding", "xchunked")], Err(TransferEncoding)),
        (v1, 200, &[("transfer-encoding", "x-chunked")], Err(TransferEncoding)),
        (v1, 200, &[("transfer-encoding", "\"chunked\"")], Err(TransferEncoding)),
        (v1, 200, &[("transfer-encoding", "chunked;q=1")], Err(TransferEncoding)),
        (v1, 200, &[("transfer-encoding", "")], Err(TransferEncoding)),
        (v0, 200, &[("transfer-encoding", "chunked")], Err(TransferEncoding)),
        (v1, 204, &[("transfer-encoding", "chunked")], Err(TransferEncoding)),
    ];
    for (version, status, fields, outcome) in rows {
        let mut headers = HeaderMap::new();
        for (name, value) in *fields {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let status = StatusCode::from_u16(*status).expect("a status");
        assert_eq!(check_read_reply(*version, status, &headers), *outcome, "{version:?} {status} {fields:?}");
    }
}
