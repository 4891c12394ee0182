//! A client's bytes: what the request guard lets through must mean the same to a strict reader and to hyper.
//!
//! ```text
//! bytes, cut in pieces ─ RequestGuard ─┬─> strict reader: heads without a second meaning, bodies by their one length
//!                                └─> hyper, in earnest ─> the same requests, or fewer and 400
//! ```

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body as _;
use http_cache_rules::framing;
use hyper::body::Incoming;
use hyper::service::service_fn;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::Runtime;

use crate::server::ReplyBody;
use crate::server::client::request_guard::{ClientTimeouts, ConnectionState, Parking, RequestGuard};

/// Longest head that the request guard of these runs takes, in bytes.
const HEAD_BYTES_MAX: usize = 8 << 10;

thread_local! {
    static RUNTIME: Runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
}

/// A whole request as one reader has it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Parsed {
    method: String,
    target: String,
    /// Sorted; names in small letters.
    fields: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
    last: bool,
}

/// All that a client sends. The first byte says how it is cut. Returns how many requests came whole.
pub fn connection(input: &[u8]) -> usize {
    let Some((cut, stream)) = input.split_first() else { return 0 };
    RUNTIME.with(|runtime| {
        let _inside = runtime.enter();
        let (seen, refused) = follow(stream, 0);
        assert!(refused || seen == stream.len(), "some of it is neither taken nor refused");
        let parsed = read_strictly(&stream[..seen]);
        if *cut > 0 {
            let (seen, again) = follow(stream, *cut);
            assert_eq!(again, refused, "cut in pieces it is judged otherwise");
            assert_eq!(read_strictly(&stream[..seen]), parsed, "cut in pieces it is read otherwise");
        }
        let (heard, ended_well) = runtime.block_on(by_hyper(stream, *cut));
        assert!(heard.len() <= parsed.len(), "hyper makes more of it: {heard:?}\n{parsed:?}");
        for (heard, parsed) in heard.iter().zip(&parsed) {
            let plain =
                |parsed: &Parsed| Parsed { target: loosely(&parsed.target), last: false, ..parsed.clone() };
            assert_eq!(plain(heard), plain(parsed), "hyper reads it otherwise");
        }
        if heard.len() < parsed.len() && ended_well {
            let last = parsed[..heard.len()].last().is_some_and(|parsed| parsed.last);
            assert!(last, "hyper misses one: {parsed:?}");
        }
        parsed.len()
    })
}

/// How much of the bytes passes, and whether the rest was refused.
fn follow(stream: &[u8], cut: u8) -> (usize, bool) {
    let mut request_guard = request_guard(Script::default());
    let mut seen = 0;
    for piece in pieces(stream, cut) {
        seen += request_guard.scan(piece);
        if request_guard.is_refused() {
            break;
        }
    }
    (seen, request_guard.is_refused())
}

fn request_guard(io: Script) -> RequestGuard<Script> {
    let hour = Duration::from_secs(3600);
    let timeouts = ClientTimeouts { idle: hour, head: hour, stall: hour };
    RequestGuard::new(io, Parking::new(), Arc::new(ConnectionState::default()), timeouts, HEAD_BYTES_MAX)
}

/// Of up to this many bytes, each of another length; in one with 0.
fn pieces(mut bytes: &[u8], cut: u8) -> Vec<&[u8]> {
    let mut found = Vec::new();
    let mut state = u32::from(cut);
    while !bytes.is_empty() {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let size = if cut == 0 { bytes.len() } else { (state >> 16) as usize % usize::from(cut) + 1 };
        let (piece, rest) = bytes.split_at(size.min(bytes.len()));
        found.push(piece);
        bytes = rest;
    }
    found
}

/// What a reader makes of it that knows no leniency, with assertions that a lenient one can make nothing else of it.
fn read_strictly(mut stream: &[u8]) -> Vec<Parsed> {
    let mut all = Vec::new();
    loop {
        while let Some(rest) = stream.strip_prefix(b"\r\n") {
            stream = rest;
        }
        let Some(end) = find(stream, b"\r\n\r\n") else { return all };
        let (head, rest) = stream.split_at(end + 4);
        let parsed = read_head(head);
        let Some((mut parsed, body)) = parsed else { panic!("no head: {:?}", String::from_utf8_lossy(head)) };
        if parsed.method == "CONNECT" {
            // No HTTP from here on.
            all.push(Parsed { last: true, ..parsed });
            return all;
        }
        let taken = match body {
            Length::Bytes(bytes) => {
                let Some(body) = usize::try_from(bytes).ok().and_then(|bytes| rest.get(..bytes)) else {
                    return all;
                };
                parsed.body = body.to_vec();
                body.len()
            }
            Length::Chunked => match read_chunks(rest) {
                Some((body, taken)) => {
                    parsed.body = body;
                    taken
                }
                None => return all,
            },
        };
        all.push(parsed);
        stream = &rest[taken..];
    }
}

enum Length {
    Bytes(u64),
    Chunked,
}

fn read_head(head: &[u8]) -> Option<(Parsed, Length)> {
    let lone = |at: usize| match head[at] {
        b'\r' => head.get(at + 1) != Some(&b'\n'),
        b'\n' => at == 0 || head[at - 1] != b'\r',
        0 => true,
        _ => false,
    };
    assert!(
        !(0..head.len()).any(lone),
        "a lone line break or a NUL passes: {:?}",
        String::from_utf8_lossy(head)
    );
    assert!(framing::check_request(head).is_ok(), "it was not checked: {:?}", String::from_utf8_lossy(head));
    let text = head.strip_suffix(b"\r\n\r\n")?;
    let mut lines = Vec::new();
    let mut rest = text;
    while let Some(at) = find(rest, b"\r\n") {
        lines.push(&rest[..at]);
        rest = &rest[at + 2..];
    }
    lines.push(rest);
    let words: Vec<&[u8]> = lines[0].split(|byte| *byte == b' ').collect();
    let [method, target, version] = words[..] else { return None };
    let minor = version.strip_prefix(b"HTTP/1.")?;
    let mut fields = Vec::new();
    let (mut lengths, mut codings) = (Vec::new(), Vec::new());
    let mut closes = minor == b"0";
    for line in &lines[1..] {
        assert!(!line.starts_with(b" ") && !line.starts_with(b"\t"), "a folded line passes");
        let colon = line.iter().position(|byte| *byte == b':')?;
        let (name, value) = (line[..colon].to_ascii_lowercase(), line[colon + 1..].trim_ascii());
        assert!(!name.is_empty() && name.iter().all(u8::is_ascii_graphic), "a name that is none passes");
        match &name[..] {
            b"content-length" => lengths.extend(value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii)),
            b"transfer-encoding" => codings.push(value.to_ascii_lowercase()),
            b"connection" => closes |= find(&value.to_ascii_lowercase(), b"close").is_some(),
            _ => {}
        }
        // hyper keeps one of several equal lengths.
        if name != b"content-length" {
            fields.push((String::from_utf8(name).ok()?, value.to_vec()));
        }
    }
    fields.sort();
    let mut lengths: Vec<u64> =
        lengths.iter().map(|text| std::str::from_utf8(text).ok()?.parse().ok()).collect::<Option<_>>()?;
    lengths.dedup();
    assert!(lengths.len() <= 1, "two lengths pass");
    assert!(lengths.is_empty() || codings.is_empty(), "a length and a coding pass");
    let length = match &codings[..] {
        [] => Length::Bytes(lengths.first().copied().unwrap_or(0)),
        [coding] if coding == b"chunked" => Length::Chunked,
        _ => panic!("a coding passes that is not chunked"),
    };
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
    let parsed =
        Parsed { method: text(method)?, target: text(target)?, fields, body: Vec::new(), last: closes };
    Some((parsed, length))
}

/// The body and the bytes that it took; nothing when some are missing still.
fn read_chunks(bytes: &[u8]) -> Option<(Vec<u8>, usize)> {
    let (mut body, mut at) = (Vec::new(), 0);
    loop {
        let line = &bytes[at..at + find(&bytes[at..], b"\r\n")?];
        at += line.len() + 2;
        let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let size =
            std::str::from_utf8(&line[..digits]).ok().and_then(|text| u64::from_str_radix(text, 16).ok());
        let size = size.unwrap_or_else(|| panic!("a chunk without a size passes: {line:?}"));
        assert!(matches!(line.get(digits), None | Some(b';' | b' ' | b'\t')), "{line:?}");
        assert!(!line.contains(&b'\n') && !line.contains(&b'\r'), "{line:?}");
        if size == 0 {
            break;
        }
        let size = usize::try_from(size).ok()?;
        body.extend_from_slice(bytes.get(at..at.checked_add(size)?)?);
        at += size;
        assert_eq!(bytes.get(at..at + 2)?, b"\r\n", "a chunk ends elsewhere");
        at += 2;
    }
    loop {
        let line = &bytes[at..at + find(&bytes[at..], b"\r\n")?];
        at += line.len() + 2;
        if line.is_empty() {
            return Some((body, at));
        }
        assert!(!line.starts_with(b" ") && !line.starts_with(b"\t"), "a folded trailer passes");
        assert!(!line.contains(&b'\n') && !line.contains(&b'\r'), "{line:?}");
    }
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|part| part == wanted)
}

/// Without what `http::Uri` does not keep: the fragment, the case of scheme and host, and the slash of an empty path.
fn loosely(target: &str) -> String {
    target.split('#').next().unwrap_or_default().to_ascii_lowercase().replace('/', "")
}

/// The requests that hyper makes of it behind a request guard, and whether it complained of nothing.
async fn by_hyper(stream: &[u8], cut: u8) -> (Vec<Parsed>, bool) {
    let (heard, complained) = (Rc::new(RefCell::new(Vec::new())), Rc::new(Cell::new(false)));
    let service = {
        let (heard, complained) = (Rc::clone(&heard), Rc::clone(&complained));
        service_fn(move |request: Request<Incoming>| {
            let (heard, complained) = (Rc::clone(&heard), Rc::clone(&complained));
            async move {
                match hear(request).await {
                    Some(parsed) => heard.borrow_mut().push(parsed),
                    None => complained.set(true),
                }
                Ok::<_, Infallible>(Response::new(ReplyBody::nothing()))
            }
        })
    };
    let script =
        Script { pieces: pieces(stream, cut).into_iter().rev().map(<[u8]>::to_vec).collect(), idle: 0 };
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.header_read_timeout(None).max_buf_size(16 << 10).half_close(false);
    let ended = builder.serve_connection(request_guard(script), service).await;
    (heard.take(), ended.is_ok() && !complained.get())
}

async fn hear(request: Request<Incoming>) -> Option<Parsed> {
    let (parts, body) = request.into_parts();
    let fields = parts.headers.iter().filter(|(name, _)| *name != http::header::CONTENT_LENGTH);
    let mut fields: Vec<_> = fields
        .map(|(name, value)| (name.as_str().to_owned(), value.as_bytes().trim_ascii().to_vec()))
        .collect();
    fields.sort();
    let (method, target) = (parts.method.to_string(), parts.uri.to_string());
    let mut parsed = Parsed { method, target, fields, body: Vec::new(), last: false };
    let mut body = std::pin::pin!(body);
    while let Some(frame) = std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
        let data: Option<Bytes> = frame.ok()?.into_data().ok();
        parsed.body.extend_from_slice(&data.unwrap_or_default());
    }
    Some(parsed)
}

/// A socket from which these pieces come, the last first, and which takes whatever it is given.
#[derive(Default)]
struct Script {
    pieces: Vec<Vec<u8>>,
    /// How often it said at the end that nothing is there yet, so that replies under way end before it.
    idle: usize,
}

impl AsyncRead for Script {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, room: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match this.pieces.last_mut() {
            Some(piece) => {
                let bytes = piece.len().min(room.remaining());
                room.put_slice(&piece[..bytes]);
                piece.drain(..bytes);
                if piece.is_empty() {
                    this.pieces.pop();
                }
                Poll::Ready(Ok(()))
            }
            None if this.idle < 8 => {
                this.idle += 1;
                cx.waker().wake_by_ref();
                Poll::Pending
            }
            None => Poll::Ready(Ok(())),
        }
    }
}

impl AsyncWrite for Script {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
