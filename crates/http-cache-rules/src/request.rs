//! What a request says that the rules ask about, read once.
//!
//! Always holds: small and copied; holds nothing of the request's memory.
//! Not here: whether the request is well formed (`framing`), ranges and conditions themselves.

use http::header::{
    AUTHORIZATION, HeaderMap, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_UNMODIFIED_SINCE, RANGE,
};
use http::{Method, header};

use super::cache_control::RequestDirectives;

/// What a method means to a cache (RFC 9110 section 9.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MethodKind {
    /// Answered from the store, and its replies are stored.
    Get,
    /// Answered from the store; its replies update it.
    Head,
    /// Unsafe; yet its reply may be stored for GET when it says that it is that (RFC 9110 section 9.3.3).
    Post,
    /// Changes nothing and is not cached.
    OtherSafe,
    /// Changes what it names, or is not known to us, which counts the same (RFC 9111 section 4.4).
    Unsafe,
}

impl MethodKind {
    /// By the registry of methods; names are compared with regard to case.
    pub fn of(method: &Method) -> Self {
        match method.as_str() {
            "GET" => MethodKind::Get,
            "HEAD" => MethodKind::Head,
            "POST" => MethodKind::Post,
            "OPTIONS" | "TRACE" | "PROPFIND" | "REPORT" | "SEARCH" | "QUERY" => MethodKind::OtherSafe,
            _ => MethodKind::Unsafe,
        }
    }

    /// Whether a successful reply makes what is stored doubtful.
    pub fn invalidates(self) -> bool {
        matches!(self, MethodKind::Post | MethodKind::Unsafe)
    }

    /// Whether a stored reply may answer it.
    pub fn may_be_served(self) -> bool {
        matches!(self, MethodKind::Get | MethodKind::Head)
    }
}

/// What the rules need of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestFacts {
    /// What its method means to a cache.
    pub method: MethodKind,
    /// Its Cache-Control or Pragma.
    pub directives: RequestDirectives,
    /// Sent with Authorization (RFC 9111 section 3.5).
    pub authorized: bool,
    /// Asks for a part.
    pub ranged: bool,
    /// Has If-None-Match or If-Modified-Since, which a cache answers (RFC 9111 section 4.3.2).
    pub conditional: bool,
    /// Has If-Match or If-Unmodified-Since, which only the origin answers (RFC 9111 section 4.3.2).
    pub origin_conditional: bool,
}

impl RequestFacts {
    /// Reads what is needed. Allocates nothing.
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
