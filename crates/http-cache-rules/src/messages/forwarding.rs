//! Fields of forwarded messages: removed between hops, added by a proxy, or left out of the store (RFC 9110 section 7.6, RFC 9111
//! section 3.1).
//!
//! Always holds: fields that Connection names are not forwarded, except those whose removal would change the message's length, position
//! or privacy, which no sender may name there.
//! Not here: Cache-Status (`cache_status`).

use http::Method;
use http::header::{
    AGE, AUTHORIZATION, CACHE_CONTROL, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, COOKIE,
    DATE, HOST, HeaderMap, HeaderName, HeaderValue, MAX_FORWARDS, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION,
    SET_COOKIE, TE, TRANSFER_ENCODING, UPGRADE, VARY, VIA,
};

use crate::fields::cache_control::withheld_fields;
use crate::fields::date::{self, WallSeconds};
use crate::fields::lists::all_members;

/// Removes hop-by-hop fields (RFC 9110 section 7.6.1). Proxy-Authorization and Proxy-Authenticate stay: a proxy that is not their
/// recipient forwards them.
pub fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let mut gone = nominated(headers);
    // Most messages have none: one pass over the names is cheaper than a look-up for each of these.
    gone.extend(headers.keys().filter(|name| HOP_BY_HOP.contains(name)).cloned());
    gone.iter().for_each(|name| drop(headers.remove(name)));
}

static HOP_BY_HOP: [HeaderName; 6] = [
    CONNECTION,
    TE,
    TRANSFER_ENCODING,
    UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// The fields that Connection names.
fn nominated(headers: &HeaderMap) -> Vec<HeaderName> {
    if !headers.contains_key(CONNECTION) {
        return Vec::new();
    }
    let named = all_members(headers, &CONNECTION).filter_map(|member| HeaderName::from_bytes(member).ok());
    named.filter(|name| !NEVER_NOMINATED.contains(name)).collect()
}

/// Connection must not name end-to-end fields (RFC 9110 section 7.6.1); removing these would do harm.
static NEVER_NOMINATED: [HeaderName; 8] =
    [HOST, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_ENCODING, CACHE_CONTROL, VARY, AUTHORIZATION, SET_COOKIE];

/// The fields of a reply that may be stored (RFC 9111 section 3.1): no hop-by-hop fields, none meant for a proxy, none withheld by
/// `private` or `no-cache`. No Age either: the facts have it, and a hit writes its own.
pub fn storable(headers: &HeaderMap) -> Vec<(&HeaderName, &HeaderValue)> {
    let left_out = left_out_of_store(headers);
    headers.iter().filter(|(name, _)| !is_never_stored(name) && !left_out.contains(name)).collect()
}

/// Removes the fields that may not be stored.
pub fn storable_fields(headers: &mut HeaderMap) {
    let mut gone = left_out_of_store(headers);
    gone.extend(headers.keys().filter(|name| is_never_stored(name)).cloned());
    gone.iter().for_each(|name| drop(headers.remove(name)));
}

/// The fields that the reply itself names.
fn left_out_of_store(headers: &HeaderMap) -> Vec<HeaderName> {
    let mut names = withheld_fields(headers);
    names.append(&mut nominated(headers));
    names
}

fn is_never_stored(name: &HeaderName) -> bool {
    HOP_BY_HOP.contains(name) || NOT_FOR_OTHERS.contains(name)
}

/// Fields meant for a proxy, and Age, which a hit writes itself.
static NOT_FOR_OTHERS: [HeaderName; 4] =
    [PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, HeaderName::from_static("proxy-authentication-info"), AGE];

/// Adds a Date to a reply without a valid one (RFC 9110 section 6.6.1).
pub fn add_date(headers: &mut HeaderMap, answered_at: WallSeconds) {
    let readable = headers.get(DATE).is_some_and(|line| date::parse(line.as_bytes(), answered_at).is_some());
    if !readable && let Ok(value) = HeaderValue::from_bytes(&date::format(answered_at)) {
        headers.insert(DATE, value);
    }
}

/// The HTTP version of a received message, as Via states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1.
    Http11,
    /// HTTP/2.
    Http2,
}

/// Adds this proxy to Via (RFC 9110 section 7.6.3). `pseudonym` is a token.
pub fn add_via(headers: &mut HeaderMap, received: Received, pseudonym: &str) {
    let version = match received {
        Received::Http10 => "1.0 ",
        Received::Http11 => "1.1 ",
        Received::Http2 => "2.0 ",
    };
    if let Ok(value) = HeaderValue::try_from([version, pseudonym].concat()) {
        headers.append(VIA, value);
    }
}

/// Whether a request has already passed through this proxy (RFC 9110 section 7.6.3).
pub fn is_loop(headers: &HeaderMap, pseudonym: &str) -> bool {
    all_members(headers, &VIA).any(|member| {
        let mut words = member.split(|byte| byte.is_ascii_whitespace()).filter(|word| !word.is_empty());
        words.nth(1) == Some(pseudonym.as_bytes())
    })
}

/// Joins the Cookie lines of an HTTP/2 request. HTTP/2 allows one line per cookie, elsewhere several lines are an error (RFC 9113
/// section 8.2.3, RFC 6265 section 5.4).
pub fn join_cookies(headers: &mut HeaderMap) {
    let lines: Vec<&HeaderValue> = headers.get_all(COOKIE).iter().collect();
    if lines.len() < 2 {
        return;
    }
    let whole = lines.iter().map(|line| line.as_bytes()).collect::<Vec<_>>().join(&b"; "[..]);
    let sensitive = lines.iter().any(|line| line.is_sensitive());
    if let Ok(mut whole) = HeaderValue::from_maybe_shared(bytes::Bytes::from(whole)) {
        whole.set_sensitive(sensitive);
        headers.insert(COOKIE, whole);
    }
}

/// Whether this proxy is the final recipient of an OPTIONS or TRACE: Max-Forwards is 0 (RFC 9110 section 7.6.2).
pub fn is_last_hop(method: &Method, headers: &HeaderMap) -> bool {
    matches!(*method, Method::OPTIONS | Method::TRACE) && forwards_left(headers) == Some(0)
}

fn forwards_left(headers: &HeaderMap) -> Option<u32> {
    headers.get(MAX_FORWARDS).and_then(|line| crate::fields::lists::delta_seconds(line.as_bytes()))
}

/// What Max-Forwards of an OPTIONS or TRACE means (RFC 9110 section 7.6.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forwards {
    /// This proxy is the final recipient.
    Last,
    /// Forward it; Max-Forwards was decremented if present.
    Goes,
}

/// Decrements Max-Forwards. For OPTIONS and TRACE only.
pub fn count_forwards(headers: &mut HeaderMap) -> Forwards {
    match forwards_left(headers) {
        Some(0) => Forwards::Last,
        Some(left) => {
            headers.insert(MAX_FORWARDS, HeaderValue::from(left - 1));
            Forwards::Goes
        }
        None => Forwards::Goes,
    }
}

/// The value of Age for a stored reply.
pub fn age_value(age_s: u32) -> HeaderValue {
    HeaderValue::from(age_s)
}
