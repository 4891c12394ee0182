//! Vary: which requests a stored reply answers (RFC 9111 section 4.1, RFC 9110 section 12.5.5).
//!
//! ```text
//! Vary: Accept-Encoding, Foo   request: accept-encoding: GZIP , br   ->   br,gzip 0x00 0x01 0x00
//!                                                                        (sorted)  |  (absent: 0x01)
//! ```
//!
//! Always holds: two requests with equal bytes here agree in every listed field, after what the field's syntax calls
//! insignificant is taken out; `*` anywhere matches nothing.
//! Not here: choosing by q-values what a client would like best, and where variants lie.

use http::header::{ACCEPT, ACCEPT_CHARSET, ACCEPT_ENCODING, ACCEPT_LANGUAGE, VARY};
use http::{HeaderMap, HeaderName};

use super::lists::all_members;

/// What a reply's Vary lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Vary {
    /// Nothing: one reply for all.
    Nothing,
    /// These fields of the request, sorted and each once.
    Fields(Vec<HeaderName>),
    /// Something outside the request's fields, or a name that is none: no other request matches.
    Anything,
}

impl Vary {
    /// Of a reply's fields.
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

    /// The names with commas between: what is stored to find variants again.
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

/// Appends to `variant` what `request` says in the fields of `names` (as [`Vary::names`] wrote them). Equal bytes: the
/// same variant. Allocates only for the names and what `variant` grows by.
pub fn write_variant(names: &[u8], request: &HeaderMap, variant: &mut Vec<u8>) {
    for name in names.split(|byte| *byte == b',').filter(|name| !name.is_empty()) {
        let Ok(name) = HeaderName::from_bytes(name) else {
            // Stored names are names; if a disk said otherwise, this matches nothing that was stored.
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

/// Whether a stored reply's variant is that of this request. `scratch` is emptied and reused.
pub fn matches(names: &[u8], variant: &[u8], request: &HeaderMap, scratch: &mut Vec<u8>) -> bool {
    if names.is_empty() {
        return true;
    }
    scratch.clear();
    write_variant(names, request, scratch);
    scratch == variant
}

/// Lines joined, space around commas outside quotes taken out. Case and order stay: they may mean something.
fn write_list(request: &HeaderMap, name: &HeaderName, variant: &mut Vec<u8>) {
    // A date or a browser's name is no list, but comes out of this unharmed all the same.
    let before = variant.len();
    for member in all_members(request, name) {
        if variant.len() > before {
            variant.push(b',');
        }
        variant.extend_from_slice(member);
    }
}

/// Ranges with weights: no case, no spaces, `q=1` and its zeros left out, sorted, as their order says nothing
/// (RFC 9110 section 12.4.2).
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
