//! Upstreams: origins of sites, parents and siblings.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use http::Uri;
use http::uri::{Authority, PathAndQuery};

use super::key::TIME_MAX;
use super::lists::{self, Lists};
use super::problem::{InvalidValue, Problems};

/// An origin, parent or sibling.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Upstream {
    /// Name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// Whether to use TLS.
    pub tls: bool,
}

/// How many idle connections a loop keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdleMax {
    /// To one upstream.
    pub per_origin: usize,
    /// In total.
    pub in_all: usize,
}

/// A cache that requests are forwarded to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parent {
    /// Its HTTP address.
    pub upstream: Upstream,
    /// Its ICP port; 0 if it is not queried.
    pub icp_port: u16,
}

/// A cache that is asked only for what it has stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sibling {
    /// Its HTTP address.
    pub upstream: Upstream,
    /// Its ICP port.
    pub icp_port: u16,
}

/// A site of the reverse proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Sent as Host in place of the client's.
    pub hosts: Vec<String>,
    /// Prefix of the path.
    pub path: String,
    /// At least one.
    pub origins: Vec<Upstream>,
    /// Sent as Host instead of the client's.
    pub host: Option<Authority>,
    /// The path of health checks, and their interval.
    pub health: Option<(PathAndQuery, Duration)>,
}

impl Upstream {
    /// The origin that an absolute URI names.
    pub fn of(uri: &Uri) -> Option<Self> {
        let tls = match uri.scheme_str()? {
            "http" => false,
            "https" => true,
            _ => return None,
        };
        let authority = uri.authority()?;
        let port = authority.port_u16().unwrap_or(if tls { 443 } else { 80 });
        Some(Self { host: host_of(authority), port, tls })
    }

    /// `host:port`, with brackets for IPv6.
    pub fn authority(&self) -> String {
        match self.host.parse::<IpAddr>() {
            Ok(IpAddr::V6(_)) => format!("[{}]:{}", self.host, self.port),
            _ => format!("{}:{}", self.host, self.port),
        }
    }
}

/// The parents and siblings of a file.
pub(super) fn neighbours(raw: &Lists, wrong: &mut Problems) -> (Vec<Parent>, Vec<Sibling>) {
    let (mut parents, mut siblings) = (Vec::new(), Vec::new());
    for raw in &raw.parent {
        match address_or_name(&raw.address) {
            Ok(upstream) => parents.push(Parent { upstream, icp_port: raw.icp_port }),
            Err(invalid) => wrong.add("parent.address", invalid.to_string()),
        }
    }
    for raw in &raw.sibling {
        match address_or_name(&raw.address) {
            Ok(_) if raw.icp_port == 0 => {
                wrong.add("sibling.icp_port", "is 0, and should be the UDP port that it answers at, as 3130");
            }
            Ok(upstream) => siblings.push(Sibling { upstream, icp_port: raw.icp_port }),
            Err(invalid) => wrong.add("sibling.address", invalid.to_string()),
        }
    }
    (parents, siblings)
}

fn address_or_name(text: &str) -> Result<Upstream, InvalidValue> {
    match host_and_port(text) {
        Some((host, Some(port))) => Ok(Upstream { host, port, tls: false }),
        _ => Err(InvalidValue(format!("is `{text}`, and should be HOST:PORT"))),
    }
}

/// An origin as the operator names it: a scheme, a host, perhaps a port, and nothing else.
fn origin(text: &str) -> Option<Upstream> {
    let (scheme, rest) = text.split_once("://")?;
    let tls = match scheme.to_ascii_lowercase().as_str() {
        "http" => false,
        "https" => true,
        _ => return None,
    };
    let (host, port) = host_and_port(rest.strip_suffix('/').unwrap_or(rest))?;
    Some(Upstream { host, port: port.unwrap_or(if tls { 443 } else { 80 }), tls })
}

/// The host in lower case, without the brackets of IPv6, and the port. The parser of URIs accepts more: it takes a port that is too
/// large for none, and passes over a name and password.
fn host_and_port(text: &str) -> Option<(String, Option<u16>)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, rest) = rest.split_once(']')?;
            address.parse::<Ipv6Addr>().ok()?;
            (address, if rest.is_empty() { None } else { Some(rest.strip_prefix(':')?) })
        }
        None => {
            let (host, port) = match text.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            };
            (is_name_or_v4(host).then_some(host)?, port)
        }
    };
    let port = match port {
        None => None,
        Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
            Some(digits.parse().ok().filter(|port| *port != 0)?)
        }
        Some(_) => return None,
    };
    Some((host.to_ascii_lowercase(), port))
}

/// Whether it is an IPv4 address, or labels of letters, digits, `-` and `_`, with a dot between them and perhaps at the end.
fn is_name_or_v4(host: &str) -> bool {
    let is_label = |label: &str| {
        let inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        !label.is_empty()
            && label.len() <= 63
            && label.bytes().all(inner)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let name = host.strip_suffix('.').unwrap_or(host);
    name.len() <= 253 && name.split('.').all(is_label)
}

/// The host in lower case, without the brackets of IPv6.
fn host_of(authority: &Authority) -> String {
    authority.host().trim_matches(['[', ']']).to_ascii_lowercase()
}

/// A site of a file.
pub(super) fn site(raw: &lists::Site, wrong: &mut Problems) -> Site {
    if raw.hosts.is_empty() {
        wrong.add("site.hosts", "is empty; name the hosts of the site, or \"*\"");
    }
    if raw.origins.is_empty() {
        wrong.add("site.origins", "is empty; name at least one, as http://10.0.0.1:8080");
    }
    let path = if raw.path.is_empty() { "/".to_owned() } else { raw.path.clone() };
    if !path.starts_with('/') {
        wrong.add("site.path", format!("is `{path}`, and should begin with a slash"));
    }
    let origins = wrong.each("site.origins", &raw.origins, |text| {
        origin(text).ok_or_else(|| {
            let what = "a scheme, a host and perhaps a port, as http://10.0.0.1:8080";
            InvalidValue(format!("`{text}`, which is not an origin: {what}"))
        })
    });
    let host = match raw.host.as_str() {
        "" => None,
        text => {
            let host = host_and_port(text).and_then(|_| text.parse().ok());
            if host.is_none() {
                wrong.add("site.host", format!("is `{text}`, which is not a host, perhaps with a port"));
            }
            host
        }
    };
    let health = match raw.health_path.as_str() {
        "" => None,
        text => match text.parse::<PathAndQuery>() {
            Ok(path) if text.starts_with('/') => {
                Some((path, Duration::from_secs(raw.health_s.unwrap_or(5).max(1))))
            }
            _ => {
                wrong.add("site.health_path", format!("is `{text}`, and should be a path such as /health"));
                None
            }
        },
    };
    wrong.at_most("site.health_s", raw.health_s.unwrap_or(0), TIME_MAX);
    let hosts = raw.hosts.iter().map(|host| host.to_ascii_lowercase()).collect();
    Site { hosts, path, origins, host, health }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Symptom: `http://127.0.0.1:99999` connected to port 80. Cause: the parser of URIs takes a port that is too large for none.
    #[test]
    fn an_origin_is_a_scheme_a_host_and_perhaps_a_port_and_nothing_else() {
        let wrong = [
            "http://127.0.0.1:99999",
            "http://a:b",
            "http://[::1]:x",
            "http://127.0.0.1:0",
            "http://127.0.0.1:80?x",
            "http://x#y",
            "http://-",
            "http://a..b",
            "http://u:p@h",
            "http://u@h",
            "http://",
            "http://:80",
            "http://a:",
            "http://a:+80",
            "http://[::1",
            "http://[::1]80",
            "http://[x]",
            "http://a/b",
            "http://a//",
            "ftp://a",
            "a:80",
            "http://a b",
            "http://a:80:80",
            "http://::1",
        ];
        for text in wrong {
            assert_eq!(origin(text), None, "{text}");
        }
        for (text, authority, tls) in [
            ("http://127.0.0.1:8080", "127.0.0.1:8080", false),
            ("HTTPS://A.example./", "a.example.:443", true),
            ("http://[::1]", "[::1]:80", false),
            ("https://[fe80::1]:65535/", "[fe80::1]:65535", true),
            ("http://back_end-1:1", "back_end-1:1", false),
        ] {
            let found = origin(text).expect(text);
            assert_eq!((found.authority().as_str(), found.tls), (authority, tls), "{text}");
        }
    }

    #[test]
    fn a_parent_or_sibling_is_a_host_with_a_port() {
        for text in ["a", "a:0", "a:65536", "u@a:1", "a:1/", "a..b:1", "[::1]"] {
            assert!(address_or_name(text).is_err(), "{text}");
        }
        assert_eq!(address_or_name("[::1]:3128").expect("right").authority(), "[::1]:3128");
    }
}
