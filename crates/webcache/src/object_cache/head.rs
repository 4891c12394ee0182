//! The stored head: the attributes of an object in the packed store, version 1. The format is defined here and nowhere else.
//!
//! ```text
//! reply    | 1 u8 | 1 u8 | facts_len u16 | facts (http_cache_rules::facts) | count u16 | field... |
//! field    | name_len u16 | value_len u32 | name | value |        back to back, as received, without hop-by-hop fields
//! variants | 1 u8 | 2 u8 | generation u64 | count u8 | (names_len u16, names)... |             all little-endian
//! ```
//!
//! The facts are written before the body of a reply without Content-Length, so their extent may have an unknown total. An
//! object becomes visible only when its body came whole, so the object's length is the total. The same applies to `length`.
//!
//! Always holds: attributes of another version, truncated ones and ones with trailing bytes are errors, and the object is
//! dropped. Reading does not copy field values.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use http_cache_rules::{Meta, MetaError};

const VERSION: u8 = 1;
const REPLY: u8 = 1;
const VARIANTS: u8 = 2;
/// How many sets of field names the replies of one URI may vary by. Another one replaces the oldest.
pub const NAME_SETS_MAX: usize = 4;

/// Attributes that are not a valid stored head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeadError {
    /// Too short, too long, or of another version.
    #[error("the stored head is not one of version 1; drop the object")]
    Malformed,
    /// A field name or value that HTTP does not allow.
    #[error("the stored head holds an impossible field; drop the object")]
    Field,
    /// The facts are malformed.
    #[error(transparent)]
    Facts(#[from] MetaError),
}

/// What is stored at the key of a URI.
#[derive(Debug)]
pub enum StoredHead {
    /// A reply: where in the attributes its facts and its fields are.
    Reply {
        /// Range of the facts, for [`Meta`].
        facts: std::ops::Range<usize>,
        /// Range of the fields, for [`fields`].
        fields: std::ops::Range<usize>,
    },
    /// The list of its variants.
    Variants(VariantList),
}

/// The sets of fields by which the replies of a URI vary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VariantList {
    /// Part of the keys of the variants.
    pub generation: u64,
    /// Sets of field names as `http_cache_rules::vary` writes them, latest last.
    pub names: Vec<Vec<u8>>,
}

impl StoredHead {
    /// Reads attributes, but not the fields yet.
    ///
    /// # Errors
    /// When they are not a stored head of this version.
    pub fn read(meta: &[u8]) -> Result<Self, HeadError> {
        let wrong = HeadError::Malformed;
        match meta {
            [VERSION, REPLY, low, high, ..] => {
                let facts = 4..4 + usize::from(u16::from_le_bytes([*low, *high]));
                if facts.end + 2 > meta.len() {
                    return Err(wrong);
                }
                Ok(Self::Reply { fields: facts.end..meta.len(), facts })
            }
            [VERSION, VARIANTS, rest @ ..] => {
                let (generation, rest) = rest.split_first_chunk::<8>().ok_or(wrong)?;
                let (count, mut rest) = rest.split_first().ok_or(wrong)?;
                let mut names = Vec::new();
                for _ in 0..*count {
                    let (length, after) = rest.split_first_chunk::<2>().ok_or(wrong)?;
                    let (name, after) =
                        after.split_at_checked(usize::from(u16::from_le_bytes(*length))).ok_or(wrong)?;
                    names.push(name.to_vec());
                    rest = after;
                }
                if !rest.is_empty() {
                    return Err(wrong);
                }
                Ok(Self::Variants(VariantList { generation: u64::from_le_bytes(*generation), names }))
            }
            _ => Err(wrong),
        }
    }
}

/// The fields of a reply. `text` is the part of the attributes that [`StoredHead::Reply`] names.
///
/// # Errors
/// When the bytes are not valid fields.
pub fn fields(text: &Bytes) -> Result<HeaderMap, HeadError> {
    let wrong = HeadError::Malformed;
    let bytes: &[u8] = text;
    let (count, _) = bytes.split_first_chunk::<2>().ok_or(wrong)?;
    let count = usize::from(u16::from_le_bytes(*count));
    // A field takes at least 6 bytes, whatever the count says. Leave room for the fields that a hit adds.
    let mut headers = HeaderMap::with_capacity(count.min(bytes.len() / 6) + 4);
    let mut at = 2;
    for _ in 0..count {
        let head = bytes.get(at..at + 6).ok_or(wrong)?;
        let name_len = usize::from(u16::from_le_bytes([head[0], head[1]]));
        let value_len = u32::from_le_bytes([head[2], head[3], head[4], head[5]]) as usize;
        let name_at = at + 6;
        let value_at = name_at + name_len;
        let end = value_at.checked_add(value_len).filter(|end| *end <= bytes.len()).ok_or(wrong)?;
        let name = HeaderName::from_bytes(&bytes[name_at..value_at]).map_err(|_| HeadError::Field)?;
        let value =
            HeaderValue::from_maybe_shared(text.slice(value_at..end)).map_err(|_| HeadError::Field)?;
        headers.append(name, value);
        at = end;
    }
    if at == bytes.len() { Ok(headers) } else { Err(wrong) }
}

/// Encodes the attributes of a reply. `facts` comes from `http_cache_rules::facts::meta_bytes`. `None` when the result is longer than
/// the store allows.
pub fn encode_reply(facts: &[u8], fields: &[(&HeaderName, &HeaderValue)]) -> Option<Vec<u8>> {
    let length: usize = fields.iter().map(|(name, value)| 6 + name.as_str().len() + value.len()).sum();
    let total = 4 + facts.len() + 2 + length;
    if total > packstore::META_BYTES_MAX {
        return None;
    }
    let mut meta = Vec::with_capacity(total);
    meta.extend_from_slice(&[VERSION, REPLY]);
    meta.extend_from_slice(&u16::try_from(facts.len()).ok()?.to_le_bytes());
    meta.extend_from_slice(facts);
    meta.extend_from_slice(&u16::try_from(fields.len()).ok()?.to_le_bytes());
    for (name, value) in fields {
        meta.extend_from_slice(&u16::try_from(name.as_str().len()).ok()?.to_le_bytes());
        meta.extend_from_slice(&(value.len() as u32).to_le_bytes());
        meta.extend_from_slice(name.as_str().as_bytes());
        meta.extend_from_slice(value.as_bytes());
    }
    Some(meta)
}

/// Encodes the attributes of a list of variants.
pub fn encode_list(list: &VariantList) -> Vec<u8> {
    let mut meta = vec![VERSION, VARIANTS];
    meta.extend_from_slice(&list.generation.to_le_bytes());
    let names = list.names.iter().rev().take(NAME_SETS_MAX).rev();
    meta.push(names.len() as u8);
    for names in names {
        meta.extend_from_slice(&(names.len() as u16).to_le_bytes());
        meta.extend_from_slice(names);
    }
    meta
}

/// Reads the facts of a reply and completes them with the length of the stored body.
///
/// # Errors
/// When they are malformed, or do not fit that length.
pub fn facts(bytes: &[u8], body_bytes: u64) -> Result<Meta<'_>, HeadError> {
    let mut meta = Meta::from_bytes(bytes)?;
    let extent = &mut meta.facts.extent;
    extent.length = body_bytes;
    if extent.total.is_none() && meta.facts.status != StatusCode::PARTIAL_CONTENT {
        extent.total = Some(body_bytes);
    }
    if extent.first.checked_add(body_bytes).is_none_or(|end| extent.total.is_some_and(|total| end > total)) {
        return Err(HeadError::Malformed);
    }
    Ok(meta)
}
