//! Upstreams: origins of sites, parents and siblings.

use std::net::IpAddr;
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
    let wrong = || InvalidValue(format!("is `{text}`, and should be HOST:PORT"));
    let authority: Authority = text.parse().map_err(|_| wrong())?;
    let port = authority.port_u16().ok_or_else(wrong)?;
    Ok(Upstream { host: host_of(&authority), port, tls: false })
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
        let uri: Option<Uri> = text.parse().ok().filter(|uri: &Uri| ["", "/"].contains(&uri.path()));
        uri.and_then(|uri| Upstream::of(&uri)).ok_or_else(|| {
            InvalidValue(format!("`{text}`, which is not an origin such as http://10.0.0.1:8080"))
        })
    });
    let host = match raw.host.as_str() {
        "" => None,
        text => {
            text.parse().map_err(|_| wrong.add("site.host", format!("is `{text}`, which is not a host"))).ok()
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
