//! Which way requests go: a proxy or server by its URL, or straight to the origin.
//!
//! Not here: connections (see `generator`).

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::str::FromStr;

use super::Route;
use crate::WebloadError;

/// What is between robots and origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Through {
    /// Nothing.
    Nothing,
    /// A forward proxy.
    Proxy(Peer),
    /// A reverse proxy.
    Server(Peer),
}

/// A proxy or server by its URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    url: String,
    authority: String,
    address: SocketAddr,
}

/// `HOST:PORT`, as the URLs that robots ask for name an origin. Put into the targets of requests, a whole URL would make every
/// server answer 400.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority(String);

/// Why a text names no peer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PeerError {
    /// No plain HTTP URL of a host.
    #[error("`{url}`: expected http://HOST:PORT, without a path; only plain HTTP is spoken")]
    NotAUrl {
        /// As typed.
        url: String,
    },
    /// No host and port.
    #[error("expected HOST:PORT without http://, such as 10.0.0.2:8008")]
    NotAnAuthority,
    /// No host of this name, or no port.
    #[error("`{authority}`: expected HOST:PORT")]
    Unresolved {
        /// Host and port.
        authority: String,
        /// What the resolver said.
        source: std::io::Error,
    },
    /// A name without an address.
    #[error("`{authority}` has no address")]
    NoAddress {
        /// Host and port.
        authority: String,
    },
}

impl Through {
    /// What a comparison calls it.
    pub fn name(&self) -> &str {
        match self {
            Self::Nothing => "origin",
            Self::Proxy(peer) | Self::Server(peer) => &peer.url,
        }
    }

    /// Connects to the proxy or server and closes the connection again.
    ///
    /// # Errors
    /// When nothing listens there.
    pub fn reach(&self) -> Result<(), WebloadError> {
        match self {
            Self::Nothing => Ok(()),
            Self::Proxy(peer) | Self::Server(peer) => super::reach(peer.address),
        }
    }

    /// Whom robots connect to, and what their requests name.
    ///
    /// # Errors
    /// When the origin is asked itself and has no address.
    pub fn route(&self, origin: &Authority) -> Result<Route, PeerError> {
        Ok(match self {
            Self::Nothing => {
                Route { peer: resolved(&origin.0)?, forward: false, authority: origin.0.clone() }
            }
            Self::Proxy(peer) => Route { peer: peer.address, forward: true, authority: origin.0.clone() },
            Self::Server(peer) => {
                Route { peer: peer.address, forward: false, authority: peer.authority.clone() }
            }
        })
    }
}

impl fmt::Display for Through {
    /// To go on behind a workload's name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("straight to the origin"),
            Self::Proxy(peer) => write!(f, "through proxy {}", peer.url),
            Self::Server(peer) => write!(f, "from {}", peer.url),
        }
    }
}

impl FromStr for Peer {
    type Err = PeerError;

    fn from_str(url: &str) -> Result<Self, PeerError> {
        let authority = url.strip_prefix("http://").map(|rest| rest.trim_end_matches('/'));
        let authority = authority
            .filter(|rest| !rest.is_empty() && !rest.contains('/'))
            .ok_or_else(|| PeerError::NotAUrl { url: url.to_owned() })?;
        let with_port = if authority.rsplit(']').next().is_some_and(|end| end.contains(':')) {
            authority.to_owned()
        } else {
            format!("{authority}:80")
        };
        Ok(Self { url: url.to_owned(), authority: authority.to_owned(), address: resolved(&with_port)? })
    }
}

impl From<SocketAddr> for Authority {
    fn from(address: SocketAddr) -> Self {
        Self(address.to_string())
    }
}

impl FromStr for Authority {
    type Err = PeerError;

    fn from_str(text: &str) -> Result<Self, PeerError> {
        let is_host = |host: &str| {
            let is_ipv6 = host.starts_with('[') && host.ends_with(']');
            !host.is_empty()
                && !host.contains(|letter: char| "/@?#".contains(letter) || letter.is_whitespace())
                && (is_ipv6 || !host.contains(':'))
        };
        match text.rsplit_once(':') {
            Some((host, port)) if is_host(host) && port.parse::<u16>().is_ok_and(|port| port > 0) => {
                Ok(Self(text.to_owned()))
            }
            _ => Err(PeerError::NotAnAuthority),
        }
    }
}

impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn resolved(authority: &str) -> Result<SocketAddr, PeerError> {
    let mut addresses = authority
        .to_socket_addrs()
        .map_err(|source| PeerError::Unresolved { authority: authority.to_owned(), source })?;
    addresses.next().ok_or_else(|| PeerError::NoAddress { authority: authority.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(url: &str) -> Peer {
        url.parse().unwrap()
    }

    #[test]
    fn a_url_without_a_port_is_at_port_80_and_keeps_its_authority() {
        for (url, authority, address) in [
            ("http://127.0.0.1:3128", "127.0.0.1:3128", "127.0.0.1:3128"),
            ("http://127.0.0.1/", "127.0.0.1", "127.0.0.1:80"),
            ("http://[::1]", "[::1]", "[::1]:80"),
            ("http://[::1]:8080/", "[::1]:8080", "[::1]:8080"),
        ] {
            let peer = peer(url);
            assert_eq!(
                (peer.authority.as_str(), peer.address),
                (authority, address.parse().unwrap()),
                "{url}"
            );
        }
    }

    #[test]
    fn what_is_no_plain_http_url_of_a_host_is_refused_with_what_would_be() {
        for url in ["", "127.0.0.1:3128", "https://127.0.0.1", "http://", "http:///", "http://127.0.0.1/path"]
        {
            let error = url.parse::<Peer>().unwrap_err().to_string();
            assert!(error.contains("expected http://HOST:PORT"), "{url}: {error}");
        }
        assert!(matches!("http://127.0.0.1:port".parse::<Peer>(), Err(PeerError::Unresolved { .. })));
    }

    #[test]
    fn an_authority_is_host_and_port_and_never_a_url() {
        for text in ["10.0.0.2:8008", "origin.example:80", "[::1]:8008"] {
            assert_eq!(text.parse::<Authority>().unwrap().to_string(), text);
        }
        for text in
            ["", "10.0.0.2", ":80", "::1:80", "http://10.0.0.2:8008", "a b:80", "h:0", "h:99999", "u@h:80"]
        {
            let error = text.parse::<Authority>().unwrap_err().to_string();
            assert!(error.contains("HOST:PORT without http://"), "{text}: {error}");
        }
    }

    #[test]
    fn a_forward_proxy_is_asked_for_urls_of_the_origin_and_a_server_for_its_own() {
        let origin: Authority = "127.0.0.1:8008".parse().unwrap();
        let route = |through: Through| {
            let Route { peer, forward, authority } = through.route(&origin).unwrap();
            (peer.port(), forward, authority)
        };
        let named = peer("http://127.0.0.1:3128");
        assert_eq!(route(Through::Nothing), (8008, false, "127.0.0.1:8008".to_owned()));
        assert_eq!(route(Through::Proxy(named.clone())), (3128, true, "127.0.0.1:8008".to_owned()));
        assert_eq!(route(Through::Server(named)), (3128, false, "127.0.0.1:3128".to_owned()));
    }
}
