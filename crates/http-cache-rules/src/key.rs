//! The cache key: one URI, one key, in whatever way it was spelled (RFC 9111 section 2, RFC 9110 section 4.2.3).
//!
//! ```text
//! HTTP://Example.COM:80?b=2&a=%7e1   ->   http://example.com/?b=2&a=~1
//! ```
//!
//! Always holds: only spellings that RFC 9110 itself calls equivalent share a key: case of scheme and host, the default port, an empty
//! path, and escapes of unreserved characters. The query is unchanged, and so are dots in the path: if an origin treats `/a/../b`
//! differently from `/b`, neither can poison the other.
//! Not here: the request's fields (`vary`), and the method, which is always GET, as the same reply answers HEAD.

use std::net::Ipv6Addr;

use http::Uri;

/// Which party answers for a URI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Realm {
    /// The host that it names.
    Web,
    /// A site served here, whatever Host the client sent; never used for requests to the web.
    Sites,
}

/// A normalized absolute URI from scheme to query, with its realm.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CacheKey {
    uri: String,
    realm: Realm,
}

/// Why a URI has no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// No scheme or no host: a reverse proxy adds those of its site first.
    #[error("the target has no scheme and host; make it absolute before looking it up")]
    NotAbsolute,
    /// Neither http nor https.
    #[error("the target's scheme is neither http nor https; forward it without caching")]
    Scheme,
    /// User information before the host (RFC 9110 section 4.2.4).
    #[error("the target holds a user's name before the host; answer 400")]
    UserInfo,
    /// The port is not a valid number, so that its destination is ambiguous.
    #[error("the target's port is none; answer 400")]
    Port,
    /// It is empty, has misplaced brackets, or brackets around something other than an IPv6 address.
    #[error("the target's host is neither a name nor an address; answer 400")]
    Host,
}

impl CacheKey {
    /// The key of an absolute target, in the realm of the web.
    pub fn of(target: &Uri) -> Result<Self, KeyError> {
        let scheme = target.scheme_str().ok_or(KeyError::NotAbsolute)?;
        let authority = target.authority().ok_or(KeyError::NotAbsolute)?;
        if authority.as_str().contains('@') {
            return Err(KeyError::UserInfo);
        }
        let host = authority.host();
        let behind = authority.as_str().strip_prefix(host).unwrap_or_default();
        let port = match behind.strip_prefix(':') {
            Some("") => None,
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                Some(digits.parse::<u16>().map_err(|_| KeyError::Port)?)
            }
            None if behind.is_empty() => None,
            _ => return Err(KeyError::Port),
        };
        if !is_host(host) {
            return Err(KeyError::Host);
        }
        let secure = scheme.eq_ignore_ascii_case("https");
        if !secure && !scheme.eq_ignore_ascii_case("http") {
            return Err(KeyError::Scheme);
        }
        let path = target.path();
        let mut key = String::with_capacity(scheme.len() + authority.as_str().len() + path.len() + 16);
        key.push_str(if secure { "https://" } else { "http://" });
        key.push_str(host);
        key.make_ascii_lowercase();
        if let Some(port) = port.filter(|port| *port != if secure { 443 } else { 80 }) {
            key.push(':');
            key.push_str(&port.to_string());
        }
        if !path.starts_with('/') {
            key.push('/');
        }
        push_unescaped(&mut key, path);
        if let Some(query) = target.query() {
            key.push('?');
            push_unescaped(&mut key, query);
        }
        Ok(Self { uri: key, realm: Realm::Web })
    }

    /// The same URI in another realm.
    pub fn within(self, realm: Realm) -> Self {
        Self { realm, ..self }
    }

    /// The realm.
    pub fn realm(&self) -> Realm {
        self.realm
    }

    /// From scheme to query.
    pub fn as_str(&self) -> &str {
        &self.uri
    }

    /// Scheme, host and port: the origin of RFC 9110 section 4.3.1.
    pub fn origin(&self) -> &str {
        let host = self.uri.find("://").map_or(0, |place| place + 3);
        let end = self.uri[host..].find('/').map_or(self.uri.len(), |place| host + place);
        &self.uri[..end]
    }
}

/// Whether the host of a target is a name or an address: only IPv6 addresses have brackets (RFC 3986 section 3.2.2). Otherwise
/// `a.example[]` would be requested from `a.example` but stored as another host.
pub fn is_host(host: &str) -> bool {
    match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => !host.is_empty() && !host.contains(['[', ']']),
    }
}

/// Decodes escapes of unreserved characters, and writes the hexadecimal digits of others in upper case (RFC 3986 section 6.2.2). Right
/// after a percent sign that starts no escape, an escape is kept: `%2%35` must not become the `%25` of another target.
fn push_unescaped(key: &mut String, text: &str) {
    let escape_at = |place: usize| match text.as_bytes().get(place + 1..place + 3) {
        Some([high, low]) => Some(hex(*high)? << 4 | hex(*low)?),
        _ => None,
    };
    let mut done = 0;
    // The key's length at the last percent sign that starts no escape.
    let mut stray = None;
    for (place, _) in text.match_indices('%') {
        key.push_str(&text[done..place]);
        done = place;
        let Some(byte) = escape_at(place) else {
            stray = Some(key.len());
            continue;
        };
        done = place + 3;
        let exposed = stray.is_some_and(|stray| key.len() - stray <= 2);
        if !exposed && (byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)) {
            key.push(char::from(byte));
        } else {
            key.push_str(&text[place..done].to_ascii_uppercase());
        }
    }
    key.push_str(&text[done..]);
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

/// The prefix of all keys whose URIs have this prefix, spelled as [`CacheKey::of`] does. An incomplete escape at the end is
/// dropped.
pub fn prefix(text: &str) -> String {
    let text = match text.bytes().rev().take(2).position(|byte| byte == b'%') {
        Some(behind) => &text[..text.len() - 1 - behind],
        None => text,
    };
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_ascii_lowercase() };
    let scheme = scheme.to_ascii_lowercase();
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let default_port = if scheme == "https" { ":443" } else { ":80" };
    let mut authority = authority.to_ascii_lowercase();
    if let Some((host, port)) = authority.rsplit_once(':')
        && !port.is_empty()
        && port.bytes().all(|byte| byte.is_ascii_digit())
    {
        let shortest = port.trim_start_matches('0');
        authority = format!("{host}:{}", if shortest.is_empty() { "0" } else { shortest });
    }
    let authority =
        authority.strip_suffix(default_port).or(authority.strip_suffix(':')).unwrap_or(&authority);
    let mut key = format!("{scheme}://{authority}");
    if path.starts_with('?') {
        key.push('/');
    }
    match path.split_once('?') {
        None => push_unescaped(&mut key, path),
        Some((path, query)) => {
            push_unescaped(&mut key, path);
            key.push('?');
            push_unescaped(&mut key, query);
        }
    }
    key
}

/// The key of a reference in a reply to `base`, such as Location; `None` when it is not an http reference.
pub fn resolve(base: &Uri, reference: &[u8]) -> Option<CacheKey> {
    CacheKey::of(&absolute(base, reference)?.parse().ok()?).ok()
}

/// Resolves a reference in a reply to `base`, without its fragment (RFC 3986 section 5.2).
pub fn absolute(base: &Uri, reference: &[u8]) -> Option<String> {
    let reference = std::str::from_utf8(reference.trim_ascii()).ok()?;
    let reference = reference.split('#').next().unwrap_or_default();
    let scheme_end = reference.find(':').filter(|colon| {
        let scheme = &reference[..*colon];
        scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.chars().all(|letter| letter.is_ascii_alphanumeric() || "+-.".contains(letter))
    });
    match scheme_end {
        Some(_) => Some(reference.to_owned()),
        None => {
            let scheme = base.scheme_str()?;
            let authority = base.authority()?;
            let (path, query) = match reference.split_once('?') {
                Some((path, query)) => (path, Some(query)),
                None => (reference, None),
            };
            if reference.starts_with("//") {
                Some(format!("{scheme}:{reference}"))
            } else {
                let own_query = if path.is_empty() { query.or(base.query()) } else { query };
                let path = match path {
                    "" => base.path().to_owned(),
                    _ if path.starts_with('/') => path.to_owned(),
                    _ => format!(
                        "{}{path}",
                        &base.path()[..base.path().rfind('/').map_or(0, |slash| slash + 1)]
                    ),
                };
                let path = without_dots(&path);
                let query = own_query.map_or_else(String::new, |query| format!("?{query}"));
                Some(format!("{scheme}://{authority}{path}{query}"))
            }
        }
    }
}

/// A path without `.` and `..` segments (RFC 3986 section 5.2.4).
fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let segments: Vec<&str> = path.split('/').skip(1).collect();
    for (place, segment) in segments.iter().enumerate() {
        let is_last = place + 1 == segments.len();
        match *segment {
            "." | ".." => {
                if *segment == ".." {
                    kept.pop();
                }
                if is_last {
                    kept.push("");
                }
            }
            segment => kept.push(segment),
        }
    }
    format!("/{}", kept.join("/"))
}
