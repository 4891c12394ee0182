//! Vary: which requests a stored reply answers (RFC 9111 section 4.1, RFC 9110 section 12.5.5).
//!
//! ```text
//! Vary: Accept-Encoding, Foo   request: accept-encoding: GZIP , br   ->   br,gzip 0x00 0x01 0x00
//!                                                                        (sorted)  |  (absent: 0x01)
//! ```
//!
//! Always holds: requests with equal variant bytes agree in every listed field, after removing what the field's syntax calls
//! insignificant. `*` matches nothing.
//! Not here: content negotiation by q-values, and where variants are stored.

use http::header::{ACCEPT, ACCEPT_CHARSET, ACCEPT_ENCODING, ACCEPT_LANGUAGE, VARY};
use http::{HeaderMap, HeaderName};

use super::lists::all_members;

/// The fields that a reply's Vary lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Vary {
    /// None: one reply for all requests.
    Nothing,
    /// These request fields, sorted, without duplicates.
    Fields(Vec<HeaderName>),
    /// Something outside the request's fields, or an invalid name: no other request matches.
    Anything,
}

impl Vary {
    /// Reads a reply's Vary.
    pub fn of(headers: &HeaderMap) -> Self {
        let mut fields = Vec::new();
        for member in all_members(headers, &VARY) {
            match HeaderName::from_bytes(member) {
                Ok(_) if member == b"*" => return Vary::Anything,
                Ok(name) => fields.push(name),
                Err(_) => return Vary::Anything,
            }
        }
        if fields.is_empty() {
            return Vary::Nothing;
        }
        fields.sort_unstable_by(|one, other| one.as_str().cmp(other.as_str()));
        fields.dedup();
        Vary::Fields(fields)
    }

    /// The names, separated by commas, as they are stored to find variants.
    pub fn names(&self) -> Vec<u8> {
        match self {
            Vary::Nothing => Vec::new(),
            Vary::Anything => b"*".to_vec(),
            Vary::Fields(fields) => {
                fields.iter().map(HeaderName::as_str).collect::<Vec<_>>().join(",").into_bytes()
            }
        }
    }
}

/// Appends the request's values of the fields in `names` (written by [`Vary::names`]) to `variant`. Equal bytes mean the same variant.
/// Allocates only for the names and for what `variant` grows by.
pub fn write_variant(names: &[u8], request: &HeaderMap, variant: &mut Vec<u8>) {
    for name in names.split(|byte| *byte == b',').filter(|name| !name.is_empty()) {
        let Ok(name) = HeaderName::from_bytes(name) else {
            // Only valid names are stored; a corrupt one matches no stored variant.
            variant.extend_from_slice(b"\x02\0");
            continue;
        };
        if !request.contains_key(&name) {
            variant.push(1);
        } else if name == ACCEPT_ENCODING
            || name == ACCEPT_LANGUAGE
            || name == ACCEPT
            || name == ACCEPT_CHARSET
        {
            write_preferences(request, &name, variant);
        } else {
            write_list(request, &name, variant);
        }
        variant.push(0);
    }
}

/// Whether a stored variant is that of this request. `scratch` is a buffer for reuse.
pub fn matches(names: &[u8], variant: &[u8], request: &HeaderMap, scratch: &mut Vec<u8>) -> bool {
    if names.is_empty() {
        return true;
    }
    scratch.clear();
    write_variant(names, request, scratch);
    scratch == variant
}

/// Joins the lines, and removes white space around commas outside quotes. Case and order are kept, as they may be significant.
fn write_list(request: &HeaderMap, name: &HeaderName, variant: &mut Vec<u8>) {
    // Dates and product names are not lists, but pass through this unchanged.
    let before = variant.len();
    for member in all_members(request, name) {
        if variant.len() > before {
            variant.push(b',');
        }
        variant.extend_from_slice(member);
    }
}

/// Media ranges with weights: in lower case, without spaces, `q=1` or trailing zeros, and sorted, as their order is insignificant (RFC
/// 9110 section 12.4.2).
fn write_preferences(request: &HeaderMap, name: &HeaderName, variant: &mut Vec<u8>) {
    let mut ranges: Vec<Vec<u8>> = all_members(request, name).map(preference).collect();
    ranges.sort_unstable();
    ranges.dedup();
    for (place, range) in ranges.iter().enumerate() {
        if place > 0 {
            variant.push(b',');
        }
        variant.extend_from_slice(range);
    }
}

fn preference(member: &[u8]) -> Vec<u8> {
    let mut parts = member.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
    let mut written = parts.next().unwrap_or_default().to_ascii_lowercase();
    for parameter in parts {
        let parameter = parameter.to_ascii_lowercase();
        if let Some(weight) = parameter.strip_prefix(b"q=") {
            let shortest = if weight.contains(&b'.') { weight.trim_ascii_end() } else { weight };
            let zeros = shortest.iter().rev().take_while(|byte| **byte == b'0').count();
            let cut = if shortest.contains(&b'.') { shortest.len() - zeros } else { shortest.len() };
            let shortest = shortest[..cut].strip_suffix(b".").unwrap_or(&shortest[..cut]);
            if shortest == b"1" {
                continue;
            }
            written.extend_from_slice(b";q=");
            written.extend_from_slice(shortest);
        } else {
            written.push(b';');
            written.extend_from_slice(&parameter);
        }
    }
    written
}
