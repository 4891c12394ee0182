//! Cache-Status: reports what this cache did with a request (RFC 9211).
//!
//! ```text
//! Cache-Status: edge; hit; ttl=376
//! Cache-Status: edge; fwd=stale; fwd-status=304; stored; ttl=600; detail=revalidated
//! ```
//!
//! Always holds: it is a valid structured field, and comes after the members of caches nearer the origin.
//! Not here: the order of the caches on the way, which the order of the field's lines preserves.

use std::fmt;

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::reuse::ForwardReason;

/// The field's name.
pub const CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");

/// One cache's member of the field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheStatus<'a> {
    /// This cache's name.
    pub cache: &'a str,
    /// Why the request was forwarded; `None` for a hit.
    pub forwarded: Option<ForwardReason>,
    /// The upstream's status.
    pub forward_status: Option<u16>,
    /// Whether the reply was stored, or a stored one refreshed.
    pub stored: bool,
    /// Whether it shared the reply of another forwarded request.
    pub collapsed: bool,
    /// Remaining freshness in seconds; negative when stale.
    pub ttl_s: Option<i64>,
    /// The cache key.
    pub key: Option<&'a str>,
    /// One more word.
    pub detail: Option<&'a str>,
}

impl<'a> CacheStatus<'a> {
    /// A reply from the store.
    pub fn hit(cache: &'a str, ttl_s: i64) -> Self {
        let mut status = Self::forwarded(cache, ForwardReason::UriMiss);
        (status.forwarded, status.ttl_s) = (None, Some(ttl_s));
        status
    }

    /// A forwarded request.
    pub fn forwarded(cache: &'a str, why: ForwardReason) -> Self {
        Self {
            cache,
            forwarded: Some(why),
            forward_status: None,
            stored: false,
            collapsed: false,
            ttl_s: None,
            key: None,
            detail: None,
        }
    }

    /// Appends the member to the field.
    pub fn append_to(&self, headers: &mut HeaderMap) {
        if let Ok(value) = HeaderValue::try_from(self.text()) {
            headers.append(CACHE_STATUS, value);
        }
    }

    /// Built by hand, as every reply has one.
    fn text(&self) -> String {
        let mut text = String::with_capacity(64);
        push_text(&mut text, self.cache);
        match self.forwarded {
            None => text.push_str("; hit"),
            Some(why) => {
                text.push_str("; fwd=");
                text.push_str(word(why));
            }
        }
        if let Some(status) = self.forward_status {
            text.push_str("; fwd-status=");
            text.push_str(&status.to_string());
        }
        if self.stored {
            text.push_str("; stored");
        }
        if self.collapsed {
            text.push_str("; collapsed");
        }
        if let Some(ttl_s) = self.ttl_s {
            text.push_str("; ttl=");
            text.push_str(&ttl_s.to_string());
        }
        for (name, said) in [("; key=", self.key), ("; detail=", self.detail)] {
            if let Some(said) = said {
                text.push_str(name);
                push_text(&mut text, said);
            }
        }
        text
    }
}

impl fmt::Display for CacheStatus<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text())
    }
}

/// Writes a token if possible, else a string; characters that neither allows become question marks.
fn push_text(out: &mut String, text: &str) {
    let starts = text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '*');
    if starts && text.bytes().all(|byte| crate::fields::lists::is_token_byte(byte) || b":/".contains(&byte)) {
        return out.push_str(text);
    }
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            ' '..='~' => out.push(letter),
            _ => out.push('?'),
        }
    }
    out.push('"');
}

/// The value of `fwd` (RFC 9211 section 2.2).
pub fn word(why: ForwardReason) -> &'static str {
    match why {
        ForwardReason::Bypass => "bypass",
        ForwardReason::Method => "method",
        ForwardReason::UriMiss => "uri-miss",
        ForwardReason::VaryMiss => "vary-miss",
        ForwardReason::Request => "request",
        ForwardReason::Stale => "stale",
        ForwardReason::Partial => "partial",
    }
}
