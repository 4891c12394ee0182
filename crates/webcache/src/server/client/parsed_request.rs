//! What a request is for, and which upstreams can answer it.
//!
//! ```text
//! forward   GET http://a/b          ─> target http://a/b, from a or a parent
//! reverse   GET /b, Host: a         ─> target http://a/b, from the first [[site]] that matches
//! ```
//!
//! Always holds: a target is absolute, and had a form that its method allows (RFC 9112 section 3.2). A request that the access
//! rules forbid is rejected here.

use std::net::IpAddr;

use bytes::{Bytes, BytesMut};
use http::header::{HOST, HeaderValue};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderMap, Method, StatusCode, Uri, Version};
use http_cache_rules::key::{CacheKey, KeyError, Realm};
use http_cache_rules::{RequestFacts, forwarding};

use crate::config::{Config, DeniedBy, Site, Upstream};

/// The kind of listener that a client came through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The client names complete URLs.
    Forward,
    /// The client takes the proxy for the site.
    Reverse {
        /// The listener uses TLS.
        tls: bool,
    },
}

/// Where the request goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// To the target's own host, or to a parent.
    Direct(Upstream),
    /// To the site with this index.
    Site(usize),
}

/// A request in the form that the caching rules need.
#[derive(Debug)]
pub struct ParsedRequest {
    /// Its method.
    pub method: Method,
    /// The target, absolute.
    pub target: Uri,
    /// The cache key of the target.
    pub key: CacheKey,
    /// The fields as received; cookies of HTTP/2 are joined into one line.
    pub headers: HeaderMap,
    /// The client's HTTP version.
    pub version: Version,
    /// What the caching rules need from the headers.
    pub facts: RequestFacts,
    /// Where the request goes.
    pub route: Route,
    /// `OPTIONS *`: about the server, not about the target.
    pub server_wide: bool,
}

/// Why a request is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rejection {
    /// Status for the client.
    pub status: StatusCode,
    /// What is wrong, and how to fix it.
    pub why: &'static str,
}

impl Rejection {
    /// A status with its reason.
    pub fn new(status: StatusCode, why: &'static str) -> Self {
        Self { status, why }
    }
}

impl ParsedRequest {
    /// Parses a request other than CONNECT.
    ///
    /// # Errors
    /// When the request is invalid or not served here.
    pub fn read(mut parts: http::request::Parts, side: Side, config: &Config) -> Result<Self, Rejection> {
        let bad = |why| Rejection::new(StatusCode::BAD_REQUEST, why);
        // Otherwise the target itself would count as the host, before the Host field.
        if parts.uri.scheme().is_none() && parts.uri.authority().is_some() {
            return Err(bad("a host alone is a target for CONNECT only: begin a path with /"));
        }
        let by_http_2 = parts.version == Version::HTTP_2;
        if by_http_2 && !host_agrees(&parts.uri, &parts.headers) {
            return Err(bad("Host contradicts :authority, or is there twice"));
        }
        // By HTTP/2 it comes with an authority (RFC 9113 section 8.3.1).
        let server_wide = (by_http_2 || parts.uri.authority().is_none()) && parts.uri.path() == "*";
        if server_wide && parts.method != Method::OPTIONS {
            return Err(bad("* is a target for OPTIONS only"));
        }
        let target = match side {
            Side::Forward if parts.uri.authority().is_none() => {
                return Err(bad(
                    "this is a proxy: send the complete URL, as a browser does that is configured to use it",
                ));
            }
            Side::Forward => parts.uri,
            Side::Reverse { tls } => {
                absolute(parts.uri, &parts.headers, tls).ok_or(bad("Host is missing or invalid"))?
            }
        };
        let key = match CacheKey::of(&target) {
            // Host is chosen by the client: a reply of a site must not count as a reply of the host with that name.
            Ok(key) if side != Side::Forward => key.within(Realm::Sites),
            Ok(key) => key,
            Err(KeyError::Scheme) => {
                return Err(Rejection::new(StatusCode::NOT_IMPLEMENTED, "only http and https are supported"));
            }
            Err(KeyError::UserInfo) => return Err(bad("user information before the host is refused")),
            Err(KeyError::Port) => return Err(bad("the port is not a valid number")),
            Err(KeyError::Host) => return Err(bad("the host is neither a name nor an address")),
            Err(_) => return Err(bad("the target has no host")),
        };
        if by_http_2 {
            // Before any rule applies: Vary: Cookie must not depend on the client's HTTP version.
            forwarding::join_cookies(&mut parts.headers);
        }
        let facts = RequestFacts::of(&parts.method, &parts.headers);
        let route = match side {
            Side::Forward => Route::Direct(Upstream::of(&target).ok_or(bad("the target has no host"))?),
            Side::Reverse { .. } => {
                Route::Site(config.sites.iter().position(|site| site_matches(site, &target)).ok_or(
                    Rejection::new(StatusCode::MISDIRECTED_REQUEST, "no site of this name is served here"),
                )?)
            }
        };
        if let Route::Direct(upstream) = &route {
            allowed_host(&upstream.host, config)?;
            if !config.forward.ports.is_empty() && !config.forward.ports.contains(&upstream.port) {
                return Err(Rejection::new(StatusCode::FORBIDDEN, "this port is not served (forward.ports)"));
            }
        }
        let (method, headers, version) = (parts.method, parts.headers, parts.version);
        Ok(Self { method, target, key, headers, version, facts, route, server_wide })
    }

    /// Copies the fields and the target out of the buffer that the head was read into, and so releases it. That buffer is many times
    /// as large, and a request may wait for its origin for long.
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

/// Checks whether the operator serves a host.
///
/// # Errors
/// When it does not.
pub fn allowed_host(host: &str, config: &Config) -> Result<(), Rejection> {
    let Some(host) = normalized_host(host) else {
        return Err(Rejection::new(StatusCode::BAD_REQUEST, "the host is neither a name nor an address"));
    };
    let is_of = |domain: &String| {
        host.strip_suffix(domain.as_str()).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
    };
    if config.access.hosts_denied.iter().any(is_of) {
        return Err(Rejection::new(StatusCode::FORBIDDEN, "this host is not served (access.hosts_denied)"));
    }
    // This also protects stored replies. The addresses that names resolve to are checked when connecting (`upstream`).
    if let Some(by) = host.parse().ok().and_then(|address| config.destinations.denies(address)) {
        return Err(Rejection::new(
            StatusCode::FORBIDDEN,
            match by {
                DeniedBy::Internal => "clients may not reach this address (access.internal)",
                DeniedBy::Listed => "clients may not reach this address (access.destinations_denied)",
            },
        ));
    }
    if !config.access.hosts.is_empty() && !config.access.hosts.iter().any(is_of) {
        return Err(Rejection::new(StatusCode::FORBIDDEN, "this host is not served (access.hosts)"));
    }
    Ok(())
}

/// A host in the form of the access lists: addresses in canonical form, names without the root's dot. `None` for numbers that only
/// some programs take for an address, such as `127.1` and `0x7f000001`.
fn normalized_host(host: &str) -> Option<String> {
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

/// Checks whether the operator serves a method.
///
/// # Errors
/// When it does not.
pub fn allowed_method(method: &Method, config: &Config) -> Result<(), Rejection> {
    let allowed = if config.access.methods.is_empty() {
        *method != Method::TRACE
    } else {
        config.access.methods.contains(method)
    };
    allowed
        .then_some(())
        .ok_or(Rejection::new(StatusCode::METHOD_NOT_ALLOWED, "this method is not served (access.methods)"))
}

/// Whether Host, if there, names the authority of a target by HTTP/2 (RFC 9113 section 8.3.1).
fn host_agrees(uri: &Uri, headers: &HeaderMap) -> bool {
    let mut lines = headers.get_all(HOST).iter();
    let (Some(host), None) = (lines.next(), lines.next()) else { return !headers.contains_key(HOST) };
    let Some(authority) = uri.authority() else { return true };
    let port: &[u8] = if uri.scheme() == Some(&Scheme::HTTP) { b":80" } else { b":443" };
    let without_port = |host: &[u8]| host.strip_suffix(port).unwrap_or(host).to_ascii_lowercase();
    without_port(host.as_bytes()) == without_port(authority.as_str().as_bytes())
}

fn absolute(uri: Uri, headers: &HeaderMap, tls: bool) -> Option<Uri> {
    // HTTP/2 and absolute-form carry the authority in the target, which takes precedence over Host (RFC 9112 section 3.2.2).
    let authority = match uri.authority() {
        Some(authority) => authority.clone(),
        None => Authority::try_from(headers.get(HOST)?.as_bytes()).ok()?,
    };
    let mut parts = uri.into_parts();
    parts.scheme = Some(if tls { Scheme::HTTPS } else { Scheme::HTTP });
    parts.authority = Some(authority);
    // Route `OPTIONS *`, which names no resource, like the root.
    if parts.path_and_query.as_ref().is_none_or(|path| !path.as_str().starts_with('/')) {
        parts.path_and_query = Some(PathAndQuery::from_static("/"));
    }
    Uri::from_parts(parts).ok()
}

fn site_matches(site: &Site, target: &Uri) -> bool {
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
            // These reach the same programs.
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

    /// A request by HTTP/2 to the site `a`, with these Host fields.
    fn by_http_2(method: &str, path: &str, hosts: &[&str]) -> Result<ParsedRequest, Rejection> {
        let config = "reverse.listen = ['127.0.0.1:0']\ncache.directories = ['/c']\n\
                      site = [{ hosts = ['a'], origins = ['http://b'] }]";
        let config = crate::config::read(config, toml::Table::new()).expect("right");
        let mut request = http::Request::builder().method(method).version(Version::HTTP_2);
        for host in hosts {
            request = request.header(HOST, *host);
        }
        let path: PathAndQuery = path.parse().expect("a path");
        let uri = Uri::builder().scheme("https").authority("a").path_and_query(path).build().expect("a URI");
        let (parts, ()) = request.uri(uri).body(()).expect("a request").into_parts();
        ParsedRequest::read(parts, Side::Reverse { tls: true }, &config)
    }

    #[test]
    fn a_host_field_by_http_2_agrees_with_the_authority_or_is_refused() {
        for hosts in [&[][..], &["a"], &["A:443"]] {
            assert!(by_http_2("GET", "/", hosts).is_ok(), "{hosts:?}");
        }
        for hosts in [&["b"][..], &["a", "a"], &["a:80"], &[""]] {
            let refused = by_http_2("GET", "/", hosts).expect_err("refused");
            assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{hosts:?}");
        }
    }

    #[test]
    fn options_about_the_whole_server_stays_that_by_http_2() {
        assert!(by_http_2("OPTIONS", "*", &[]).expect("served").server_wide);
        assert!(!by_http_2("OPTIONS", "/", &[]).expect("served").server_wide);
        assert_eq!(
            by_http_2("GET", "*", &[]).err().map(|refused| refused.status),
            Some(StatusCode::BAD_REQUEST)
        );
    }
}
