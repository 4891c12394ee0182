//! What a request asks for, and from whom it is to be had.
//!
//! ```text
//! forward   GET http://a/b          ─> target http://a/b, from a or a parent
//! reverse   GET /b, Host: a         ─> target http://a/b, from the first [[site]] that matches
//! ```
//!
//! Always holds: a target is absolute, and was written in a form that its method may have (RFC 9112 section 3.2);
//! what access forbids gets no further.

use std::net::IpAddr;

use bytes::{Bytes, BytesMut};
use http::header::{HOST, HeaderValue};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, Method, StatusCode, Uri, Version};
use http_cache_rules::key::{CacheKey, KeyError, Realm};
use http_cache_rules::{RequestFacts, forwarding};

use crate::config::{Config, DeniedBy, Site, Upstream};

/// Which kind of listener a client came by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// It names whole URLs.
    Forward,
    /// It takes us for the site.
    Reverse {
        /// By TLS.
        tls: bool,
    },
}

/// From whom it is to be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// The target's own host, or a parent.
    Direct(Upstream),
    /// The site with this number.
    Site(usize),
}

/// A request as the rules want it.
#[derive(Debug)]
pub struct ParsedRequest {
    /// Its method.
    pub method: Method,
    /// Absolute.
    pub target: Uri,
    /// Of the target.
    pub key: CacheKey,
    /// As the client sent them, the cookies of HTTP/2 in one line.
    pub headers: HeaderMap,
    /// As the client spoke.
    pub version: Version,
    /// Read of the headers.
    pub facts: RequestFacts,
    /// From whom.
    pub route: Route,
    /// `OPTIONS *`: about the server, and not about what the target names.
    pub of_server: bool,
}

/// Why a request is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unserved {
    /// For the client.
    pub status: StatusCode,
    /// What is wrong, and what would be right.
    pub why: &'static str,
}

impl Unserved {
    /// A status with its reason.
    pub fn new(status: StatusCode, why: &'static str) -> Self {
        Self { status, why }
    }
}

impl ParsedRequest {
    /// Reads a request that is not CONNECT.
    ///
    /// # Errors
    /// When it asks for nothing that can be had here.
    pub fn read(mut parts: http::request::Parts, side: Side, config: &Config) -> Result<Self, Unserved> {
        let bad = |why| Unserved::new(StatusCode::BAD_REQUEST, why);
        // Without this its only word would count as a host, before Host.
        if parts.uri.scheme().is_none() && parts.uri.authority().is_some() {
            return Err(bad("a host alone is a target for CONNECT only: begin a path with /"));
        }
        let of_server = parts.uri.authority().is_none() && parts.uri.path() == "*";
        if of_server && parts.method != Method::OPTIONS {
            return Err(bad("* is a target for OPTIONS only"));
        }
        let target = match side {
            Side::Forward if parts.uri.authority().is_none() => {
                return Err(bad(
                    "this is a proxy: name the whole URL, as a browser does that is set to use one",
                ));
            }
            Side::Forward => parts.uri,
            Side::Reverse { tls } => {
                absolute(parts.uri, &parts.headers, tls).ok_or(bad("Host is missing or is no host"))?
            }
        };
        let key = match CacheKey::of(&target) {
            // Host is the client's word: what a site answers to it is no answer of the host that it names.
            Ok(key) if side != Side::Forward => key.within(Realm::Sites),
            Ok(key) => key,
            Err(KeyError::Scheme) => {
                return Err(Unserved::new(
                    StatusCode::NOT_IMPLEMENTED,
                    "only http and https can be asked for",
                ));
            }
            Err(KeyError::UserInfo) => return Err(bad("a name before the host is refused")),
            Err(KeyError::Port) => return Err(bad("the port is no number of one")),
            Err(KeyError::Host) => return Err(bad("the host is neither a name nor an address")),
            Err(_) => return Err(bad("the target has no host")),
        };
        if parts.version == Version::HTTP_2 {
            // Before any rule sees them: Vary: Cookie must not tell two clients apart by how they speak.
            forwarding::join_cookies(&mut parts.headers);
        }
        let facts = RequestFacts::of(&parts.method, &parts.headers);
        let route = match side {
            Side::Forward => Route::Direct(Upstream::of(&target).ok_or(bad("the target has no host"))?),
            Side::Reverse { .. } => {
                Route::Site(config.sites.iter().position(|site| serves(site, &target)).ok_or(
                    Unserved::new(StatusCode::MISDIRECTED_REQUEST, "no site of this name is served here"),
                )?)
            }
        };
        if let Route::Direct(upstream) = &route {
            allowed_host(&upstream.host, config)?;
            if !config.forward.ports.is_empty() && !config.forward.ports.contains(&upstream.port) {
                return Err(Unserved::new(StatusCode::FORBIDDEN, "this port is not served (forward.ports)"));
            }
        }
        let (method, headers, version) = (parts.method, parts.headers, parts.version);
        Ok(Self { method, target, key, headers, version, facts, route, of_server })
    }

    /// Copies what lies in the buffer that the head was read into, which is let go with that: it is many times as large, and
    /// whoever waits for an origin would hold it for as long.
    pub fn detach(&mut self) {
        let mut copies = BytesMut::with_capacity(self.headers.values().map(HeaderValue::len).sum());
        for value in self.headers.values_mut() {
            copies.extend_from_slice(value.as_bytes());
            if let Ok(mut copy) = HeaderValue::from_maybe_shared(copies.split().freeze()) {
                copy.set_sensitive(value.is_sensitive());
                *value = copy;
            }
        }
        let mut parts = self.target.clone().into_parts();
        parts.authority = parts.authority.and_then(|authority| {
            Authority::from_maybe_shared(Bytes::copy_from_slice(authority.as_str().as_bytes())).ok()
        });
        parts.path_and_query = parts.path_and_query.and_then(|path| {
            PathAndQuery::from_maybe_shared(Bytes::copy_from_slice(path.as_str().as_bytes())).ok()
        });
        if let Ok(target) = Uri::from_parts(parts) {
            self.target = target;
        }
    }
}

/// Whether the operator serves a host.
///
/// # Errors
/// When not.
pub fn allowed_host(host: &str, config: &Config) -> Result<(), Unserved> {
    let Some(host) = plain_host(host) else {
        return Err(Unserved::new(StatusCode::BAD_REQUEST, "the host is neither a name nor an address"));
    };
    let is_of = |domain: &String| {
        host.strip_suffix(domain.as_str()).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    if config.access.hosts_denied.iter().any(is_of) {
        return Err(Unserved::new(StatusCode::FORBIDDEN, "this host is not served (access.hosts_denied)"));
    }
    // Also what is stored already; where names lead is seen when they are connected to (`upstream`).
    if let Some(by) = host.parse().ok().and_then(|address| config.destinations.denies(address)) {
        return Err(Unserved::new(
            StatusCode::FORBIDDEN,
            match by {
                DeniedBy::Internal => "clients may not reach this address (access.internal)",
                DeniedBy::Listed => "clients may not reach this address (access.destinations_denied)",
            },
        ));
    }
    if !config.access.hosts.is_empty() && !config.access.hosts.iter().any(is_of) {
        return Err(Unserved::new(StatusCode::FORBIDDEN, "this host is not served (access.hosts)"));
    }
    Ok(())
}

/// A host as access has it: addresses in their one spelling, names without the dot of the root. Nothing when it is a
/// number that only some programs take for an address, as `127.1` and `0x7f000001`.
fn plain_host(host: &str) -> Option<String> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Some(address.to_canonical().to_string());
    }
    let host = host.trim_end_matches('.');
    let last = host.rsplit('.').next().unwrap_or_default();
    let hexadecimal = last.strip_prefix("0x").unwrap_or("x");
    let number = !last.is_empty() && last.bytes().all(|byte| byte.is_ascii_digit())
        || hexadecimal.bytes().all(|byte| byte.is_ascii_hexdigit());
    match host.parse::<IpAddr>() {
        Ok(address) => Some(address.to_canonical().to_string()),
        Err(_) => (!number).then(|| host.to_ascii_lowercase()),
    }
}

/// Whether the operator serves a method.
///
/// # Errors
/// When not.
pub fn allowed_method(method: &Method, config: &Config) -> Result<(), Unserved> {
    let allowed = if config.access.methods.is_empty() {
        *method != Method::TRACE
    } else {
        config.access.methods.contains(method)
    };
    allowed
        .then_some(())
        .ok_or(Unserved::new(StatusCode::METHOD_NOT_ALLOWED, "this method is not served (access.methods)"))
}

fn absolute(uri: Uri, headers: &HeaderMap, tls: bool) -> Option<Uri> {
    // HTTP/2 and absolute-form have it in the target, before Host (RFC 9112 section 3.2.2).
    let authority = match uri.authority() {
        Some(authority) => authority.clone(),
        None => Authority::try_from(headers.get(HOST)?.as_bytes()).ok()?,
    };
    let mut parts = uri.into_parts();
    parts.scheme = Some(if tls { Scheme::HTTPS } else { Scheme::HTTP });
    parts.authority = Some(authority);
    // `OPTIONS *` names no resource: it is routed as the root is.
    if parts.path_and_query.as_ref().is_none_or(|path| !path.as_str().starts_with('/')) {
        parts.path_and_query = Some(PathAndQuery::from_static("/"));
    }
    Uri::from_parts(parts).ok()
}

fn serves(site: &Site, target: &Uri) -> bool {
    let host = target.host().unwrap_or_default();
    site.hosts.iter().any(|own| own == "*" || own.eq_ignore_ascii_case(host))
        && target.path().starts_with(&site.path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_is_not_served_is_not_served_under_another_spelling() {
        let flags = "forward.listen = ['127.0.0.1:0']\ncache.directories = ['/c']\n\
                     access.hosts_denied = ['Example.org.', '127.0.0.1', '[0:0:0:0:0:0:0:1]']";
        let config = crate::config::read("", flags.parse().expect("TOML")).expect("right");
        let denied = [
            "example.org",
            "example.org.",
            "example.org..",
            "www.example.org.",
            "WWW.Example.Org",
            "127.0.0.1",
            "127.0.0.1.",
            "::ffff:127.0.0.1",
            "::1",
            "0:0::1",
            // They reach the same programs.
            "127.0.0.2",
            "0.0.0.0",
            "::",
            "64:ff9b::7f00:1",
        ];
        for host in denied {
            let refused = allowed_host(host, &config).expect_err(host);
            assert_eq!(refused.status, StatusCode::FORBIDDEN, "{host}");
        }
        for host in ["127.1", "2130706433", "0x7f000001", "0x7f.1", "127.0.0.0x1", "0x"] {
            let refused = allowed_host(host, &config).expect_err(host);
            assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{host}");
        }
        for host in ["example.com", "badexample.org", "128.0.0.1", "a.1x", "::2", "0xg.example", "a"] {
            assert_eq!(allowed_host(host, &config), Ok(()), "{host}");
        }
    }
}
