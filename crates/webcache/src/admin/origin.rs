//! Protects the administration from requests that a page of another site made a browser send.
//!
//! Always holds: a change is never made for a page of another origin, judged by `Origin` and Fetch Metadata, which browsers send and
//! pages cannot forge. Without a password, nothing is answered under a host name that a stranger may have pointed at this address
//! (DNS rebinding). Programs other than browsers send neither field and are served.
//! Source: the Fetch standard (Origin, Sec-Fetch-Site); RFC 6454.

use std::net::{IpAddr, Ipv6Addr};

use http::header::{HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN};
use http::uri::Authority;
use http::{Method, StatusCode, Uri};

use crate::config::Config;

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
    /// A name that is not this proxy's.
    #[error(
        "this name is not served here: use an address or localhost, or list the name in admin.hosts (or set admin.password)"
    )]
    /// The host name is not one of this proxy's.
    Name,
    /// A page of another origin sent it.
    #[error("a page of another site may not purge or ban")]
    OtherSite,
}

impl Refusal {
    /// The status for the client.
    pub(super) fn status(self) -> StatusCode {
        match self {
            Self::Name => StatusCode::MISDIRECTED_REQUEST,
            Self::OtherSite => StatusCode::FORBIDDEN,
        }
    }
}

/// Why a request is refused, if it is.
pub(super) fn refused(
    method: &Method,
    target: &Uri,
    headers: &HeaderMap,
    config: &Config,
) -> Option<Refusal> {
    let called = headers.get_all(HOST).iter().map(HeaderValue::as_bytes);
    let called: Vec<&[u8]> =
        called.chain(target.authority().map(|authority| authority.as_str().as_bytes())).collect();
    // With a password this is safe: a browser has none for a foreign name.
    if config.admin.password.is_empty() && !called.iter().all(|host| is_ours(host, config)) {
        return Some(Refusal::Name);
    }
    if method.is_safe() {
        // Pages of other sites cannot read the reply.
        return None;
    }
    let of_same_site = |site: &HeaderValue| [&b"same-origin"[..], b"none"].contains(&site.as_bytes());
    let of_ours = |origin: &HeaderValue| {
        let Ok(origin) = origin.to_str() else { return false };
        let Some((_, authority)) = origin.split_once("://") else { return false };
        called.iter().any(|host| host.eq_ignore_ascii_case(authority.as_bytes()))
            || is_listed(authority.as_bytes(), config)
    };
    let ours = headers.get_all(SEC_FETCH_SITE).iter().all(of_same_site)
        && headers.get_all(ORIGIN).iter().all(of_ours);
    (!ours).then_some(Refusal::OtherSite)
}

/// Whether the host is an address or one of the proxy's own names, which no stranger can point here.
fn is_ours(host: &[u8], config: &Config) -> bool {
    let Some(name) = name_of(host) else { return false };
    let is_address = match name.strip_prefix('[').and_then(|name| name.strip_suffix(']')) {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => name.parse::<IpAddr>().is_ok(),
    };
    is_address || name == "localhost" || is_listed(host, config)
}

fn is_listed(host: &[u8], config: &Config) -> bool {
    name_of(host).is_some_and(|name| config.admin.hosts.contains(&name))
}

/// The host in lower case, without the port.
fn name_of(host: &[u8]) -> Option<String> {
    let authority = Authority::try_from(host).ok().filter(|authority| !authority.as_str().contains('@'))?;
    Some(authority.host().trim_end_matches('.').to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(method: &Method, fields: &[(&'static str, &'static str)], more: &str) -> Option<Refusal> {
        let flags = format!("forward.listen=['127.0.0.1:0']\ncache.directories=['/c']\n{more}");
        let config = crate::config::read("", flags.parse().expect("TOML")).expect("right");
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            headers.append(*name, HeaderValue::from_static(value));
        }
        refused(method, &Uri::from_static("/ban"), &headers, &config)
    }

    #[test]
    fn a_name_that_a_stranger_may_have_given_is_not_answered_without_a_password() {
        let rows = [
            ("127.0.0.1:3129", true),
            ("[::1]:3129", true),
            ("10.1.2.3", true),
            ("localhost:3129", true),
            ("LOCALHOST.", true),
            ("cache.example", true),
            ("Cache.Example:3129", true),
            ("evil.example:3129", false),
            ("localhost.evil.example", false),
            ("127.0.0.1.evil.example", false),
            ("127.0.0.1@evil.example", false),
            ("[evil]", false),
            ("", false),
        ];
        for (host, served) in rows {
            for method in [Method::GET, Method::POST] {
                let refused = refusal(&method, &[("host", host)], "admin.hosts = ['Cache.example.']");
                assert_eq!(refused, (!served).then_some(Refusal::Name), "{method} {host}");
                assert_eq!(refusal(&method, &[("host", host)], "admin.password = 'x'"), None, "{host}");
            }
        }
        assert_eq!(refusal(&Method::POST, &[], ""), None, "what sends no Host is no browser");
    }

    #[test]
    fn pages_of_other_sites_change_nothing_with_a_password_or_without() {
        let site = |value| ("sec-fetch-site", value);
        let origin = |value| ("origin", value);
        let rows: [(&[(&str, &str)], bool); 13] = [
            (&[], true),
            (&[site("same-origin"), origin("http://127.0.0.1:3129")], true),
            (&[origin("https://127.0.0.1:3129")], true),
            (&[origin("https://cache.example")], true),
            (&[site("none")], true),
            (&[site("cross-site")], false),
            (&[site("same-site"), origin("http://127.0.0.1:8000")], false),
            (&[origin("http://127.0.0.1:8000")], false),
            (&[origin("http://127.0.0.1")], false),
            (&[origin("null")], false),
            (&[origin("")], false),
            (&[origin("http://evil.example")], false),
            (&[site("same-origin"), origin("http://127.0.0.1:3129"), origin("http://evil.example")], false),
        ];
        for (fields, served) in rows {
            let fields: Vec<_> = fields.iter().map(|(name, value)| (*name, *value)).collect();
            let all = [&fields[..], &[("host", "127.0.0.1:3129")]].concat();
            for more in ["", "\nadmin.password = 'x'"] {
                let more = format!("admin.hosts = ['cache.example']{more}");
                let refused = refusal(&Method::POST, &all, &more);
                assert_eq!(refused, (!served).then_some(Refusal::OtherSite), "{fields:?}");
                assert_eq!(refusal(&Method::GET, &all, &more), None, "to look is not to change: {fields:?}");
            }
        }
    }
}
