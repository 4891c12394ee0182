//! Finds where each request of a connection ends, and refuses what two parsers could read differently.
//!
//! Always holds: the end of a body is found by the same rules as hyper's, so that both find the next head at the same byte.
//! Source: RFC 9112 sections 2.2, 6 and 7.1.

use std::sync::atomic::Ordering;

use http_cache_rules::framing::{self, BodyLength};
use tokio::time::Instant;

use super::ConnectionState;
use crate::server::client::chunks::ChunkScanner;

/// Where in the stream of requests the next byte is.
pub(super) enum ReadState {
    /// Before a head.
    Idle,
    /// Within a head, since this time.
    Head(Instant),
    Body(u64),
    Chunked(ChunkScanner),
    /// After CONNECT or a protocol switch: not HTTP.
    Tunnel,
    /// hyper has to be given an invalid head.
    Refused,
    Ended,
}

/// Follows the requests of one connection.
pub(super) struct RequestScanner {
    state: ReadState,
    /// The bytes of a head that has not arrived completely.
    partial: Vec<u8>,
    head_max_bytes: usize,
}

/// Why a head is not passed on completely.
enum Refusal {
    /// Longer than `limits.head_kib`: hyper gets as many bytes as it accepts for a head, and answers 431.
    Long {
        seen: usize,
    },
    Malformed(framing::Violation),
}

impl From<framing::Violation> for Refusal {
    fn from(violation: framing::Violation) -> Self {
        Self::Malformed(violation)
    }
}

impl RequestScanner {
    pub(super) fn new(state: ReadState, head_max_bytes: usize) -> Self {
        Self { state, partial: Vec::new(), head_max_bytes }
    }

    pub(super) fn state(&self) -> &ReadState {
        &self.state
    }

    /// Whether it is between two requests, with no byte of the next one.
    pub(super) fn is_between_requests(&self) -> bool {
        matches!(self.state, ReadState::Idle) && self.partial.is_empty()
    }

    /// True once after bytes were refused: then hyper has to be given an invalid head, and nothing more.
    pub(super) fn take_refusal(&mut self) -> bool {
        let is_refused = matches!(self.state, ReadState::Refused);
        if is_refused {
            self.state = ReadState::Ended;
        }
        is_refused
    }

    /// Scans received bytes. Returns how many hyper may see; fewer than all when the rest is refused.
    pub(super) fn scan(&mut self, bytes: &[u8], conn_state: &ConnectionState) -> usize {
        if conn_state.switched.load(Ordering::Relaxed) {
            self.state = ReadState::Tunnel;
        }
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            match &mut self.state {
                ReadState::Idle | ReadState::Head(_) => match self.scan_head(rest, conn_state) {
                    Ok(taken) => at += taken,
                    Err(Refusal::Long { seen }) => {
                        conn_state.refused_long.fetch_add(1, Ordering::Relaxed);
                        self.state = ReadState::Refused;
                        return at + seen;
                    }
                    Err(Refusal::Malformed(_violation)) => {
                        conn_state.refused.fetch_add(1, Ordering::Relaxed);
                        self.state = ReadState::Refused;
                        return at;
                    }
                },
                ReadState::Body(left) => {
                    let taken = (*left).min(rest.len() as u64);
                    *left -= taken;
                    at += taken as usize;
                    if *left == 0 {
                        self.state = ReadState::Idle;
                    }
                }
                ReadState::Chunked(scanner) => match scanner.scan(rest) {
                    Ok(taken) => {
                        at += taken;
                        if scanner.is_done() {
                            self.state = ReadState::Idle;
                        }
                    }
                    Err(_) => {
                        conn_state.refused_bodies.fetch_add(1, Ordering::Relaxed);
                        self.state = ReadState::Refused;
                        return at;
                    }
                },
                ReadState::Tunnel => return bytes.len(),
                ReadState::Refused | ReadState::Ended => return at,
            }
        }
        at
    }

    fn scan_head(&mut self, rest: &[u8], conn_state: &ConnectionState) -> Result<usize, Refusal> {
        // Skip an empty line before a request, as hyper does (RFC 9112 section 2.2), also when it arrives in two pieces.
        let line_break = &b"\r\n"[self.partial.len().min(2)..];
        if b"\r\n".starts_with(&self.partial) && !line_break.is_empty() && rest.starts_with(line_break) {
            self.partial = Vec::new();
            return Ok(line_break.len());
        }
        let scanned = self.partial.len();
        // The end of the head may have begun in the earlier bytes.
        let from = scanned.saturating_sub(3);
        let head: &[u8] = if scanned == 0 {
            rest
        } else {
            self.partial.extend_from_slice(rest);
            &self.partial
        };
        let Some(end) = find_end(head, from, scanned)? else {
            if scanned == 0 {
                self.partial.extend_from_slice(rest);
            }
            if self.partial.len() >= self.head_max_bytes {
                return Err(Refusal::Long { seen: self.head_max_bytes - scanned });
            }
            // Half of an empty line does not start a head.
            if let ReadState::Idle = self.state
                && self.partial != b"\r"
            {
                self.state = ReadState::Head(Instant::now());
            }
            return Ok(rest.len());
        };
        if end > self.head_max_bytes {
            return Err(Refusal::Long { seen: self.head_max_bytes - scanned });
        }
        let framing = framing::check_request(&head[..end])?;
        let tunnel = head.starts_with(b"CONNECT ");
        self.partial = Vec::new();
        conn_state.busy.fetch_add(1, Ordering::Relaxed);
        self.state = match framing.body {
            _ if tunnel => ReadState::Tunnel,
            BodyLength::Nothing | BodyLength::Bytes(0) | BodyLength::UntilClose => ReadState::Idle,
            BodyLength::Bytes(bytes) => ReadState::Body(bytes),
            BodyLength::Chunked => ReadState::Chunked(ChunkScanner::default()),
        };
        Ok(end - scanned)
    }
}

/// Finds the end of the head, searching from `from`. Line feeds after `scanned` without a carriage return are refused: a lenient parser
/// could take the head for complete.
fn find_end(head: &[u8], from: usize, scanned: usize) -> Result<Option<usize>, framing::Violation> {
    let mut at = from;
    while let Some(feed) = head[at..].iter().position(|byte| *byte == b'\n') {
        let feed = at + feed;
        if feed >= scanned && (feed == 0 || head[feed - 1] != b'\r') {
            return Err(framing::Violation::BareLineBreak);
        }
        if head[..=feed].ends_with(b"\r\n\r\n") {
            return Ok(Some(feed + 1));
        }
        at = feed + 1;
    }
    Ok(None)
}
