//! ICP version 2: caches query each other by UDP for stored objects (RFC 2186, RFC 2187).
//!
//! ```text
//! | opcode u8 | version u8 | length u16 | number u32 | options u32 | option data u32 | sender u32 | payload |   big-endian
//! query:  payload = requester u32, URL, NUL          answer:  payload = URL, NUL; number and URL as in the query
//! ```
//!
//! Always holds: no input panics. The length field must equal the datagram's length, and nothing is allocated by a length that a peer
//! sent. An answer is shorter than its query, so that it cannot amplify an attack on a third party.
//! Not here: sockets and who may query (`server::peers::answering`), which neighbours to query (`server::peers::neighbours`).
//! Left out: ICP_OP_HIT_OBJ (a reply without its fields), ICP_OP_SECHO and DECHO (for the echo port), round-trip times.

use http::{HeaderMap, Method, StatusCode};
use http_cache_rules::request::MethodKind;
use http_cache_rules::reuse::{self, Held, Reuse};
use http_cache_rules::{Policy, RequestFacts, StoredFacts, WallSeconds};

#[cfg(test)]
mod tests;

/// Longest message (RFC 2186 section 2, "Message Length").
pub const MESSAGE_BYTES_MAX: usize = 16_384;
/// Length of the header before the payload.
const HEAD_BYTES: usize = 20;
/// The requester's address in a query.
const REQUESTER_BYTES: usize = 4;
const VERSION: u8 = 2;
const QUERY: u8 = 1;

/// A reply is offered only if it stays fresh for at least this many seconds (RFC 2187 section 5.2.3): the request for it follows, and a
/// reply that is stale by then is of no use.
pub const FRESH_S_MIN: u32 = 30;

/// The answer to a query (RFC 2186, "Opcodes").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The object is stored and may be fetched.
    Hit,
    /// It is not stored; a child may fetch it through this cache.
    Miss,
    /// The query's URL is invalid.
    Err,
    /// It is not stored, and must not be fetched through this cache now.
    MissNoFetch,
    /// This URL may not be requested here.
    Denied,
}

impl Answer {
    /// All answers, ordered by opcode.
    pub const ALL: [Self; 5] = [Self::Hit, Self::Miss, Self::Err, Self::MissNoFetch, Self::Denied];

    /// Its opcode.
    pub fn opcode(self) -> u8 {
        match self {
            Self::Hit => 2,
            Self::Miss => 3,
            Self::Err => 4,
            Self::MissNoFetch => 21,
            Self::Denied => 22,
        }
    }
}

/// A parsed datagram. URLs are bytes that have not been validated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// A query: is this stored?
    Query {
        /// To be repeated in the answer.
        number: u32,
        /// The queried URL.
        url: &'a [u8],
    },
    /// An answer to a query.
    Reply {
        /// The answer.
        answer: Answer,
        /// As in the query.
        number: u32,
        /// As in the query.
        url: &'a [u8],
    },
}

/// Why a datagram is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// Shorter or longer than a message can be.
    #[error("a datagram of {bytes} bytes is not a valid ICP message")]
    Size {
        /// Its length.
        bytes: usize,
    },
    /// The length field differs from the datagram's length.
    #[error("the length in an ICP message differs from that of its datagram")]
    Length,
    /// Another version than 2.
    #[error("ICP version {version} is not supported, only version 2")]
    Version {
        /// The version.
        version: u8,
    },
    /// Neither a query nor an answer.
    #[error("unknown ICP opcode {opcode}")]
    Opcode {
        /// The opcode.
        opcode: u8,
    },
    /// The URL does not end in a NUL at the end of the message.
    #[error("the URL of an ICP message does not end where the message ends")]
    Url,
}

/// Parses a datagram.
///
/// # Errors
/// When it is not a valid query or answer.
pub fn read(datagram: &[u8]) -> Result<Message<'_>, Malformed> {
    let size = Malformed::Size { bytes: datagram.len() };
    if datagram.len() > MESSAGE_BYTES_MAX {
        return Err(size);
    }
    let Some((head, payload)) = datagram.split_first_chunk::<HEAD_BYTES>() else { return Err(size) };
    let [opcode, version, high, low, n0, n1, n2, n3, ..] = *head;
    if usize::from(u16::from_be_bytes([high, low])) != datagram.len() {
        return Err(Malformed::Length);
    }
    if version != VERSION {
        return Err(Malformed::Version { version });
    }
    let number = u32::from_be_bytes([n0, n1, n2, n3]);
    if opcode == QUERY {
        let payload = payload.get(REQUESTER_BYTES..).ok_or(size)?;
        return Ok(Message::Query { number, url: terminated(payload)? });
    }
    let answer = Answer::ALL.into_iter().find(|answer| answer.opcode() == opcode);
    let answer = answer.ok_or(Malformed::Opcode { opcode })?;
    Ok(Message::Reply { answer, number, url: terminated(payload)? })
}

fn terminated(payload: &[u8]) -> Result<&[u8], Malformed> {
    match payload.split_last() {
        Some((0, url)) if !url.contains(&0) => Ok(url),
        _ => Err(Malformed::Url),
    }
}

/// Encodes a query; `None` when the URL is too long.
pub fn query(number: u32, url: &str) -> Option<Vec<u8>> {
    message(QUERY, number, &[0; REQUESTER_BYTES], url.as_bytes())
}

/// Encodes an answer to a query with this number and URL; `None` when the URL cannot come from a query.
pub fn reply(answer: Answer, number: u32, url: &[u8]) -> Option<Vec<u8>> {
    message(answer.opcode(), number, &[], url)
}

fn message(opcode: u8, number: u32, before: &[u8], url: &[u8]) -> Option<Vec<u8>> {
    let length = HEAD_BYTES + before.len() + url.len() + 1;
    if length > MESSAGE_BYTES_MAX || url.contains(&0) {
        return None;
    }
    let mut bytes = Vec::with_capacity(length);
    bytes.extend_from_slice(&[opcode, VERSION]);
    bytes.extend_from_slice(&(length as u16).to_be_bytes());
    bytes.extend_from_slice(&number.to_be_bytes());
    // No options and no sender: the receiver sees the source address.
    bytes.resize(HEAD_BYTES, 0);
    bytes.extend_from_slice(before);
    bytes.extend_from_slice(url);
    bytes.push(0);
    Some(bytes)
}

/// Whether a stored reply is worth a hit: it answers a plain GET with `only-if-cached`, now and for a while.
pub fn is_offered(stored: Option<&StoredFacts>, policy: &Policy, now: WallSeconds) -> bool {
    let mut request = RequestFacts::of(&Method::GET, &HeaderMap::new());
    request.directives.only_if_cached = true;
    let held = stored.map_or(Held::Nothing, Held::Reply);
    let later = WallSeconds(now.0.saturating_add(FRESH_S_MIN.into()));
    [now, later]
        .into_iter()
        .all(|at| matches!(reuse::evaluate(&request, held, policy, at), Reuse::Serve { stale: false, .. }))
}

/// Whether to query the neighbours about a request for which nothing is stored here (RFC 2187 section 5.1.1 and 5.1.2): a plain GET
/// that a stored reply may answer for any client.
pub fn is_queryable(request: &RequestFacts) -> bool {
    let asks = &request.directives;
    let not_for_anybody = request.authorized || request.origin_conditional;
    let not_from_a_store = asks.no_cache || asks.no_store || asks.only_if_cached || asks.max_age == Some(0);
    request.method == MethodKind::Get && !not_for_anybody && !not_from_a_store
}

/// Whether to pass on a sibling's reply to `only-if-cached`. Any other status may be about the sibling, or about this cache as its
/// client, rather than about the resource: the request then takes its usual way.
pub fn is_usable_reply(status: StatusCode) -> bool {
    status.is_success() || status.is_redirection() || matches!(status.as_u16(), 404 | 410)
}
