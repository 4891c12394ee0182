//! What a reply to an unsafe method invalidates (RFC 9111 section 4.4).
//!
//! Always holds: only 2xx and 3xx replies invalidate, and other URIs only within the same origin, so that one site cannot empty the
//! cache of another. An unknown method counts as unsafe.
//! Not here: removing the objects with all their variants.

use http::header::{CONTENT_LOCATION, HeaderMap, LOCATION};
use http::{StatusCode, Uri};

use super::key::{CacheKey, resolve};
use super::request::MethodKind;

/// The keys to invalidate, the target's first; empty when there are none.
pub fn invalidated(method: MethodKind, target: &Uri, status: StatusCode, reply: &HeaderMap) -> Vec<CacheKey> {
    if !method.invalidates() || !(status.is_success() || status.is_redirection()) {
        return Vec::new();
    }
    let Ok(own) = CacheKey::of(target) else { return Vec::new() };
    let mut keys = vec![own];
    for name in [LOCATION, CONTENT_LOCATION] {
        for line in reply.get_all(name) {
            let named = resolve(target, line.as_bytes()).filter(|named| named.origin() == keys[0].origin());
            if let Some(named) = named.filter(|named| !keys.contains(named)) {
                keys.push(named);
            }
        }
    }
    keys
}
