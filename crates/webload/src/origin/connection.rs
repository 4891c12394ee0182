//! One connection of the origin: a request is read, thought about and answered, then the next one.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::Turn;
use crate::plan::body::Body;
use crate::plan::object::Object;
use crate::sockets::poller::{Interest, Ready};
use crate::wire::http_date;
use crate::wire::{HEAD_BYTES_MAX, ORIGIN_FIELD, RequestHead, head_len};

/// Bytes made at a time for a socket to take.
const PIECE: usize = 64 * 1024;

pub(super) struct Connection {
    stream: TcpStream,
    /// Read and not understood yet.
    input: Vec<u8>,
    state: State,
    /// Made and not taken by the socket yet.
    unsent: Vec<u8>,
    /// Requests it will still serve.
    requests_left: Option<u32>,
    last_active: Instant,
    /// The events this connection waits for.
    interest: Interest,
    /// The events registered with epoll.
    registered: Interest,
}

enum State {
    Listening,
    Thinking(Asked),
    Sending(Sending),
}

/// A request that waits for its reply.
struct Asked {
    what: What,
    request: u64,
    think: Duration,
    keep_alive: bool,
    chunked: bool,
    http_11: bool,
    head_only: bool,
}

enum What {
    Object {
        object: Object,
        known_since: Option<u64>,
        known_version: Option<u64>,
    },
    /// Status and reason.
    Refused(&'static str),
}

/// The rest of a reply.
struct Sending {
    body: Body,
    at: u64,
    size: u64,
    chunked: bool,
    keep_alive: bool,
}

/// What the event loop is to do for it.
pub(super) enum Next {
    /// Wake it then.
    Think(Instant),
    Listen {
        newly_idle: bool,
    },
    Close,
}

impl Connection {
    pub fn new(stream: TcpStream, requests_left: Option<u32>) -> Self {
        Self {
            stream,
            input: Vec::new(),
            state: State::Listening,
            unsent: Vec::new(),
            requests_left,
            last_active: Instant::now(),
            interest: Interest::Read,
            registered: Interest::Read,
        }
    }

    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// The events to register with epoll, if they have changed.
    pub fn interest_changed(&mut self) -> Option<Interest> {
        (self.interest != self.registered).then(|| {
            self.registered = self.interest;
            self.interest
        })
    }

    pub fn is_idle_since(&self, since: Instant) -> bool {
        matches!(self.state, State::Listening) && self.last_active <= since
    }

    pub fn on_ready(&mut self, ready: Ready, turn: &mut Turn<'_>) -> Next {
        if ready.writable && matches!(self.state, State::Sending(_)) {
            match self.send(turn) {
                Next::Listen { .. } if matches!(self.state, State::Listening) => {}
                next => return next,
            }
        }
        if ready.readable { self.receive(turn) } else { self.understand(turn) }
    }

    /// The think time is over.
    pub fn on_thought(&mut self, turn: &mut Turn<'_>) -> Next {
        let State::Thinking(_) = &self.state else { return Next::Listen { newly_idle: false } };
        let State::Thinking(asked) = std::mem::replace(&mut self.state, State::Listening) else {
            return Next::Close;
        };
        match self.answer(&asked, turn) {
            Next::Listen { .. } if matches!(self.state, State::Listening) => self.understand(turn),
            next => next,
        }
    }

    fn receive(&mut self, turn: &mut Turn<'_>) -> Next {
        match self.stream.read(&mut turn.scratch.input) {
            Ok(0) => Next::Close,
            Ok(read) => {
                // More than a head of pipelined requests waits in the kernel; a client that sends it anyway is cut off.
                if self.input.len() + read > 2 * HEAD_BYTES_MAX {
                    return Next::Close;
                }
                self.input.extend_from_slice(&turn.scratch.input[..read]);
                self.understand(turn)
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                Next::Listen { newly_idle: false }
            }
            Err(_) => Next::Close,
        }
    }

    /// Serves what has been read, request after request.
    fn understand(&mut self, turn: &mut Turn<'_>) -> Next {
        let mut served = false;
        while matches!(self.state, State::Listening) {
            let Ok(len) = head_len(&self.input) else { return Next::Close };
            let Some(len) = len else {
                return Next::Listen { newly_idle: served };
            };
            let asked = self.asked(len, turn);
            self.input.drain(..len);
            let Some(asked) = asked else { return Next::Close };
            self.last_active = Instant::now();
            if !asked.think.is_zero() {
                let until = self.last_active + asked.think;
                self.state = State::Thinking(asked);
                return Next::Think(until);
            }
            match self.answer(&asked, turn) {
                Next::Listen { .. } => served = true,
                next => return next,
            }
        }
        Next::Listen { newly_idle: false }
    }

    fn asked(&mut self, len: usize, turn: &mut Turn<'_>) -> Option<Asked> {
        let head = RequestHead::read(&self.input[..len]).ok()?;
        turn.shared.requests.fetch_add(1, Ordering::Relaxed);
        let mut keep_alive = head.keep_alive && !head.has_body;
        if let Some(left) = &mut self.requests_left {
            *left = left.saturating_sub(1);
            keep_alive &= *left > 0;
        }
        let what = match (head.method, Object::of_path(head.path)) {
            (b"GET" | b"HEAD", Some(object)) => What::Object {
                known_since: head
                    .if_modified_since
                    .filter(|_| head.if_none_match.is_none())
                    .and_then(http_date::read),
                known_version: head.if_none_match.and_then(|tags| version_of(tags, &object)),
                object,
            },
            (b"GET" | b"HEAD", None) => What::Refused("404 Not Found"),
            _ => What::Refused("405 Method Not Allowed"),
        };
        let think = match what {
            What::Object { .. } => turn.chance.think(),
            What::Refused(_) => Duration::ZERO,
        };
        Some(Asked {
            what,
            request: head.request.unwrap_or(0),
            think,
            keep_alive,
            chunked: turn.options.chunked && head.http_11,
            http_11: head.http_11,
            head_only: head.method == b"HEAD",
        })
    }

    fn answer(&mut self, asked: &Asked, turn: &mut Turn<'_>) -> Next {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let out = &mut turn.scratch.output;
        out.clear();
        let connection = match (asked.keep_alive, asked.http_11) {
            (false, _) => "Connection: close\r\n",
            (true, false) => "Connection: keep-alive\r\n",
            (true, true) => "",
        };
        let (object, known_since, known_version) = match &asked.what {
            What::Object { object, known_since, known_version } => (object, *known_since, *known_version),
            What::Refused(status) => {
                turn.shared.refused.fetch_add(1, Ordering::Relaxed);
                let text = "no object of that path here; try /i/1f3a, /h/7 or /f/2a/s10700\n";
                let body = if asked.head_only { "" } else { text };
                let head = format!(
                    "HTTP/1.1 {status}\r\nAllow: GET, HEAD\r\nContent-Type: text/plain\r\nCache-Control: no-store\r\n\
                     Content-Length: {}\r\n{connection}\r\n{body}",
                    text.len()
                );
                out.extend_from_slice(head.as_bytes());
                let empty = Body::new(&Object::fixed(0, 1), 0);
                self.state = State::Sending(Sending {
                    body: empty,
                    at: 0,
                    size: 0,
                    chunked: false,
                    keep_alive: asked.keep_alive,
                });
                return self.send_made(turn);
            }
        };
        let version = object.version_at(now.as_secs_f64());
        let (modified_s, expires_s) = (object.modified_s(version), object.modified_s(version + 1));
        let unchanged =
            known_version == Some(version) || known_since.is_some_and(|since| since >= modified_s);
        // A Vec takes all that is written to it.
        let _ = write!(out, "HTTP/1.1 {}\r\nDate: ", if unchanged { "304 Not Modified" } else { "200 OK" });
        let _ = write!(
            out,
            "{}\r\nServer: crumb-origin\r\nLast-Modified: {}\r\nETag: \"{version:x}-{:x}\"\r\n",
            http_date::written(now.as_secs()),
            http_date::written(modified_s),
            object.number
        );
        if object.cacheable {
            let _ = write!(
                out,
                "Expires: {}\r\nCache-Control: max-age={}\r\n",
                http_date::written(expires_s),
                expires_s.saturating_sub(now.as_secs() + 1)
            );
        } else {
            out.extend_from_slice(b"Cache-Control: private, no-cache, no-store\r\n");
        }
        let _ = write!(
            out,
            "{ORIGIN_FIELD}: {:x};{}{}\r\n{connection}",
            asked.request,
            asked.think.as_micros(),
            if unchanged { ";v" } else { "" }
        );
        let with_body = !unchanged && !asked.head_only;
        if unchanged {
            turn.shared.not_modified.fetch_add(1, Ordering::Relaxed);
        } else {
            let _ = write!(out, "Content-Type: {}\r\n", object.kind.content_type());
            if asked.chunked {
                out.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
            } else {
                let _ = write!(out, "Content-Length: {}\r\n", object.size_bytes);
            }
        }
        out.extend_from_slice(b"\r\n");
        self.state = State::Sending(Sending {
            body: Body::new(object, version),
            at: 0,
            size: if with_body { object.size_bytes } else { 0 },
            chunked: asked.chunked && with_body,
            keep_alive: asked.keep_alive,
        });
        self.make_body(turn);
        self.send_made(turn)
    }

    /// Adds to the output as much of the body as makes a good write.
    fn make_body(&mut self, turn: &mut Turn<'_>) {
        let State::Sending(sending) = &mut self.state else { return };
        let out = &mut turn.scratch.output;
        let take = (sending.size - sending.at).min(PIECE as u64) as usize;
        if take == 0 {
            return;
        }
        if sending.chunked {
            let _ = write!(out, "{take:x}\r\n");
        }
        let from = out.len();
        out.resize(from + take, 0);
        sending.body.fill(sending.at, &mut out[from..]);
        sending.at += take as u64;
        turn.shared.body_bytes.fetch_add(take as u64, Ordering::Relaxed);
        if sending.chunked {
            out.extend_from_slice(if sending.at == sending.size { b"\r\n0\r\n\r\n" } else { b"\r\n" });
        }
    }

    /// The socket takes bytes again.
    fn send(&mut self, turn: &mut Turn<'_>) -> Next {
        turn.scratch.output.clear();
        turn.scratch.output.append(&mut self.unsent);
        self.send_made(turn)
    }

    /// Sends the output and makes more, until all is sent or the socket takes no more.
    fn send_made(&mut self, turn: &mut Turn<'_>) -> Next {
        loop {
            let out = &turn.scratch.output;
            let mut at = 0;
            while at < out.len() {
                match self.stream.write(&out[at..]) {
                    Ok(0) => return Next::Close,
                    Ok(written) => at += written,
                    Err(error) if error.kind() == ErrorKind::Interrupted => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        self.unsent.extend_from_slice(&out[at..]);
                        self.interest = Interest::ReadWrite;
                        return Next::Listen { newly_idle: false };
                    }
                    Err(_) => return Next::Close,
                }
            }
            let State::Sending(sending) = &self.state else { return Next::Close };
            if sending.at == sending.size {
                let keep_alive = sending.keep_alive;
                self.state = State::Listening;
                self.interest = Interest::Read;
                self.last_active = Instant::now();
                return if keep_alive { Next::Listen { newly_idle: true } } else { Next::Close };
            }
            turn.scratch.output.clear();
            self.make_body(turn);
        }
    }
}

/// The version that one of the entity tags names.
fn version_of(tags: &[u8], object: &Object) -> Option<u64> {
    let text = std::str::from_utf8(tags).ok()?;
    text.split(',').find_map(|tag| {
        let tag = tag.trim().trim_start_matches("W/").trim_matches('"');
        let (version, number) = tag.split_once('-')?;
        let named = u64::from_str_radix(number, 16).ok()?;
        (named == object.number).then(|| u64::from_str_radix(version, 16).ok())?
    })
}
