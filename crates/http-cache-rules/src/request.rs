//! What the rules need to know about a request, read once.
//!
//! Always holds: it is small and `Copy`, and borrows nothing from the request.
//! Not here: whether the request is well formed (`framing`), ranges and conditions themselves.

use http::header::{
    AUTHORIZATION, HeaderMap, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE, RANGE,
};
use http::{Method, header};

use crate::fields::cache_control::RequestDirectives;

/// What a method means to a cache (RFC 9110 section 9.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MethodKind {
    /// Answered from the store; its replies are stored.
    Get,
    /// Answered from the store; its replies update stored ones.
    Head,
    /// Unsafe; its reply may be stored for GET if its Content-Location says so (RFC 9110 section 9.3.3).
    Post,
    /// Safe, but not cached.
    OtherSafe,
    /// Unsafe, or unknown, which counts as unsafe (RFC 9111 section 4.4).
    Unsafe,
}

impl MethodKind {
    /// Classifies a method; names are case-sensitive.
    pub fn of(method: &Method) -> Self {
        match method.as_str() {
            "GET" => MethodKind::Get,
            "HEAD" => MethodKind::Head,
            "POST" => MethodKind::Post,
            "OPTIONS" | "TRACE" | "PROPFIND" | "REPORT" | "SEARCH" | "QUERY" => MethodKind::OtherSafe,
            _ => MethodKind::Unsafe,
        }
    }

    /// Whether a successful reply invalidates stored replies.
    pub fn invalidates(self) -> bool {
        matches!(self, MethodKind::Post | MethodKind::Unsafe)
    }

    /// Whether a stored reply may answer it.
    pub fn may_be_served(self) -> bool {
        matches!(self, MethodKind::Get | MethodKind::Head)
    }
}

/// What the rules need to know about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestFacts {
    /// What its method means to a cache.
    pub method: MethodKind,
    /// Its Cache-Control or Pragma.
    pub directives: RequestDirectives,
    /// It has Authorization (RFC 9111 section 3.5).
    pub authorized: bool,
    /// It asks for a range.
    pub ranged: bool,
    /// It has If-None-Match or If-Modified-Since, which a cache evaluates (RFC 9111 section 4.3.2).
    pub conditional: bool,
    /// It has If-Match or If-Unmodified-Since, which only the origin evaluates (RFC 9111 section 4.3.2).
    pub origin_conditional: bool,
}

impl RequestFacts {
    /// Reads the facts. Allocates nothing.
    pub fn of(method: &Method, headers: &HeaderMap) -> Self {
        let has = |name: header::HeaderName| headers.contains_key(name);
        Self {
            method: MethodKind::of(method),
            directives: RequestDirectives::of(headers),
            authorized: has(AUTHORIZATION),
            // Range is defined for GET alone (RFC 9110 section 14.2).
            ranged: *method == Method::GET && has(RANGE),
            conditional: has(IF_NONE_MATCH) || has(IF_MODIFIED_SINCE),
            origin_conditional: has(IF_MATCH) || has(IF_UNMODIFIED_SINCE),
        }
    }
}
