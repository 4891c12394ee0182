//! ICP version 2, by which caches ask each other by UDP what they have stored (RFC 2186, RFC 2187).
//!
//! ```text
//! | opcode u8 | version u8 | length u16 | number u32 | options u32 | option data u32 | sender u32 | payload |   big-endian
//! query:  payload = requester u32, URL, NUL          answers:  payload = URL, NUL, number and URL as in the query
//! ```
//!
//! Always holds: no bytes panic; a datagram counts only when the length in it is its own; nothing is allocated by a length
//! that a peer sent; an answer is shorter than its query, so that nobody's bytes are multiplied towards a third.
//! Not here: sockets, who may ask (`server::icp`), whom to ask (`server::neighbours`).
//! Left out: ICP_OP_HIT_OBJ (a reply without its fields), ICP_OP_SECHO and DECHO (for the echo port), round-trip times.

use http::{HeaderMap, Method, StatusCode};
use http_cache_rules::request::MethodKind;
use http_cache_rules::reuse::{self, Held, Reuse};
use http_cache_rules::{Policy, RequestFacts, StoredFacts, WallSeconds};

#[cfg(test)]
mod tests;

/// Longest message (RFC 2186 section 2, "Message Length").
pub const MESSAGE_BYTES_MAX: usize = 16_384;
/// What stands before the payload.
const HEAD_BYTES: usize = 20;
/// The requester's address in a query.
const REQUESTER_BYTES: usize = 4;
const VERSION: u8 = 2;
const QUERY: u8 = 1;

/// For so many seconds more a reply must be fresh to be offered (RFC 2187 section 5.2.3): the request for it comes in a
/// moment, and a copy that is stale in the next one is of no use.
pub const FRESH_S_MIN: u32 = 30;

/// What a cache says to a query (RFC 2186, "Opcodes").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is stored, and may be had.
    Hit,
    /// It is not; a child may have it fetched.
    Miss,
    /// The query's URL is none.
    Err,
    /// It is not, and is not to be fetched through this cache now.
    MissNoFetch,
    /// This URL may not be asked for here.
    Denied,
}

impl Answer {
    /// All, in the order of their numbers.
    pub const ALL: [Self; 5] = [Self::Hit, Self::Miss, Self::Err, Self::MissNoFetch, Self::Denied];

    /// Its number.
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

/// A datagram that was understood. URLs are bytes, as nobody has looked at them yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// Is this stored?
    Query {
        /// To be repeated in the answer.
        number: u32,
        /// What is asked for.
        url: &'a [u8],
    },
    /// To a query.
    Reply {
        /// What it says.
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
    /// Shorter than a message can be, or longer than it may be.
    #[error("a datagram of {bytes} bytes is no ICP message")]
    Size {
        /// How long it is.
        bytes: usize,
    },
    /// The length in it is not its own.
    #[error("an ICP message says another length than its datagram has")]
    Length,
    /// Another version than 2.
    #[error("ICP version {version} is not spoken here, only 2")]
    Version {
        /// Which.
        version: u8,
    },
    /// Neither a query nor one of the answers to it.
    #[error("ICP opcode {opcode} is not known here")]
    Opcode {
        /// Which.
        opcode: u8,
    },
    /// The URL does not end in the one NUL that ends the message.
    #[error("the URL of an ICP message does not end where the message ends")]
    Url,
}

/// Reads a datagram.
///
/// # Errors
/// When it is no message that is spoken here.
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

/// A query; nothing when the URL is too long for one.
pub fn query(number: u32, url: &str) -> Option<Vec<u8>> {
    message(QUERY, number, &[0; REQUESTER_BYTES], url.as_bytes())
}

/// An answer to a query with this number and URL; nothing when that was no URL of a query.
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
    // No options, and no sender: whoever gets it sees where it came from.
    bytes.resize(HEAD_BYTES, 0);
    bytes.extend_from_slice(before);
    bytes.extend_from_slice(url);
    bytes.push(0);
    Some(bytes)
}

/// Whether what is stored is worth a hit: a plain GET with `only-if-cached` will be answered from it, now and a while on.
pub fn offers(stored: Option<&StoredFacts>, policy: &Policy, now: WallSeconds) -> bool {
    let mut request = RequestFacts::of(&Method::GET, &HeaderMap::new());
    request.directives.only_if_cached = true;
    let held = stored.map_or(Held::Nothing, Held::Reply);
    let later = WallSeconds(now.0.saturating_add(FRESH_S_MIN.into()));
    [now, later]
        .into_iter()
        .all(|at| matches!(reuse::evaluate(&request, held, policy, at), Reuse::Serve { stale: false, .. }))
}

/// Whether caches beside and above are asked about a request for which nothing is stored here (RFC 2187 section 5.1.1 and
/// 5.1.2): a plain GET, that a stored reply may answer for anybody.
pub fn is_asked_about(request: &RequestFacts) -> bool {
    let asks = &request.directives;
    let not_for_anybody = request.authorized || request.origin_conditional;
    let not_from_a_store = asks.no_cache || asks.no_store || asks.only_if_cached || asks.max_age == Some(0);
    request.method == MethodKind::Get && !not_for_anybody && !not_from_a_store
}

/// Whether a sibling's reply to `only-if-cached` is passed on. Any other status may be about the sibling, or about this
/// cache as its client, and not about what was asked for: then the request takes its usual way.
pub fn is_taken(status: StatusCode) -> bool {
    status.is_success() || status.is_redirection() || matches!(status.as_u16(), 404 | 410)
}
