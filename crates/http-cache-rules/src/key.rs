//! The cache's key: one URI, one key, however it was spelt (RFC 9111 section 2, RFC 9110 section 4.2.3).
//!
//! ```text
//! HTTP://Example.COM:80?b=2&a=%7e1   ->   http://example.com/?b=2&a=~1
//! ```
//!
//! Always holds: only spellings that RFC 9110 itself calls the same share a key: case of scheme and host, the default
//! port, an empty path, and escapes of letters that need none. Order and content of the query stay, and so do dots in
//! the path: an origin that treats `/a/../b` otherwise than `/b` must not have one poison the other.
//! Not here: the request's fields (`vary`), and the method, which is always GET: HEAD is answered by the same reply.

use std::net::Ipv6Addr;

use http::Uri;

/// Who answers for a URI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Realm {
    /// The host that it names.
    Web,
    /// A site that is served here, whatever Host a client made up: never an answer to who asked the web.
    Sites,
}

/// A normalised absolute URI, scheme to query, and who answers for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CacheKey {
    uri: String,
    realm: Realm,
}

/// Why a URI has no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// No scheme or no host: a reverse proxy adds its site's before it asks.
    #[error("the target has no scheme and host; make it absolute before looking it up")]
    NotAbsolute,
    /// Neither http nor https.
    #[error("the target's scheme is neither http nor https; forward it without caching")]
    Scheme,
    /// A name or password before the host (RFC 9110 section 4.2.4).
    #[error("the target holds a user's name before the host; answer 400")]
    UserInfo,
    /// What stands for a port is no number of one: nobody could say where it leads, and the origin would be told of it.
    #[error("the target's port is none; answer 400")]
    Port,
    /// It is empty, or brackets are not around all of it, or what stands in them is no address of IPv6.
    #[error("the target's host is neither a name nor an address; answer 400")]
    Host,
}

impl CacheKey {
    /// Of an absolute target, answered for by its host.
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

    /// The same URI, answered for by another.
    pub fn within(self, realm: Realm) -> Self {
        Self { realm, ..self }
    }

    /// Who answers for it.
    pub fn realm(&self) -> Realm {
        self.realm
    }

    /// Scheme to query.
    pub fn as_str(&self) -> &str {
        &self.uri
    }

    /// Scheme, host and port: what RFC 9110 section 4.3.1 calls the origin.
    pub fn origin(&self) -> &str {
        let host = self.uri.find("://").map_or(0, |place| place + 3);
        let end = self.uri[host..].find('/').map_or(self.uri.len(), |place| host + place);
        &self.uri[..end]
    }
}

/// Whether a target's host, as written, is a name or an address: brackets are for addresses of IPv6 alone (RFC 3986 section
/// 3.2.2). Else `a.example[]` would be asked of `a.example`, and looked up as another.
pub fn is_host(host: &str) -> bool {
    match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
        Some(address) => address.parse::<Ipv6Addr>().is_ok(),
        None => !host.is_empty() && !host.contains(['[', ']']),
    }
}

/// Undoes escapes of unreserved letters, and writes the hexadecimal digits of others large (RFC 3986 section 6.2.2). Right
/// behind a percent sign that escapes nothing an escape stays: `%2%35` must not become the `%25` of another target.
fn push_unescaped(key: &mut String, text: &str) {
    let escape_at = |place: usize| match text.as_bytes().get(place + 1..place + 3) {
        Some([high, low]) => Some(hex(*high)? << 4 | hex(*low)?),
        _ => None,
    };
    let mut done = 0;
    // How long the key was before a percent sign that escapes nothing.
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

/// What keys begin with when URIs begin with this text: as [`CacheKey::of`] spells them. A piece of an escape at the end
/// is left out.
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

/// The key of a reference found in a reply to `base`, as Location holds them. Nothing when it is no reference to an http
/// resource.
pub fn resolve(base: &Uri, reference: &[u8]) -> Option<CacheKey> {
    CacheKey::of(&absolute(base, reference)?.parse().ok()?).ok()
}

/// The URI that a reference means in a reply to `base`, without its fragment (RFC 3986 section 5.2).
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
