//! The facts about a stored reply that a hit needs, as numbers, and their encoding in the object's meta bytes.
//!
//! ```text
//! | version 1 B | flags u16 | status u16 | stored_at i64 | made_at i64 | changed_at i64
//! | initial_age u32 | lifetime u32 | swr u32 | sie u32 | first u64 | length u64 | total u64
//! | tag_len u16 | tag | names_len u16 | names | variant_len u16 | variant |          all little-endian
//! ```
//!
//! Always holds: decoding never allocates and never panics. Truncated bytes, trailing bytes, another version and contradictions are
//! errors, and the object is dropped.
//! Not here: the reply's fields and body, which are stored separately, and a checksum (`packstore` has one).

use http::StatusCode;
use http::header::{ETAG, HeaderMap};

use crate::fields::date::WallSeconds;
use crate::fields::validators::EntityTag;
use crate::fields::vary::{self, Vary};

/// Which bytes of the content are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Offset of the first stored byte.
    pub first: u64,
    /// Stored bytes.
    pub length: u64,
    /// Length of the complete content, if known.
    pub total: Option<u64>,
}

impl Extent {
    /// The complete content.
    pub fn whole(length: u64) -> Self {
        Self { first: 0, length, total: Some(length) }
    }

    /// Whether nothing is missing.
    pub fn is_whole(self) -> bool {
        self.first == 0 && self.total == Some(self.length)
    }

    /// One past the last stored byte.
    pub fn end(self) -> u64 {
        self.first.saturating_add(self.length)
    }
}

/// What the rules need to know about a stored reply: 80 bytes, `Copy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoredFacts {
    /// When it was received or last validated.
    pub stored_at: WallSeconds,
    /// When the origin generated it.
    pub made_at: WallSeconds,
    /// When the content was last modified, if the origin sent that.
    pub changed_at: Option<WallSeconds>,
    /// Age in seconds at `stored_at`.
    pub initial_age_s: u32,
    /// Freshness lifetime: the age in seconds up to which it is fresh.
    pub lifetime_s: u32,
    /// Seconds past the lifetime in which it is served while it is revalidated.
    pub stale_while_revalidate_s: u32,
    /// Seconds past the lifetime in which it stands in for an error.
    pub stale_if_error_s: u32,
    /// Which bytes of the content are stored.
    pub extent: Extent,
    /// The reply's status.
    pub status: StatusCode,
    /// It must be validated before every use.
    pub no_cache: bool,
    /// It must never be served stale.
    pub forbids_stale: bool,
    /// It does not change while fresh.
    pub immutable: bool,
    /// Its lifetime is heuristic.
    pub heuristic: bool,
    /// It has an entity tag.
    pub tagged: bool,
}

impl StoredFacts {
    /// Age in seconds (RFC 9111 section 4.2.3).
    pub fn age_s(&self, now: WallSeconds) -> u32 {
        self.initial_age_s.saturating_add(now.since(self.stored_at)).min(crate::fields::lists::DELTA_MAX)
    }

    /// Whether it is fresh at that age (RFC 9111 section 4.2).
    pub fn is_fresh(&self, now: WallSeconds) -> bool {
        self.lifetime_s > self.age_s(now)
    }

    /// Seconds past its lifetime; 0 while fresh, and in the second in which the lifetime ends.
    pub fn staleness_s(&self, now: WallSeconds) -> u32 {
        self.age_s(now).saturating_sub(self.lifetime_s)
    }

    /// Whether bytes of the content are known to be missing: a 206, or a 200 that broke off. Not while a reply of unknown length is
    /// still arriving.
    pub fn is_part(&self) -> bool {
        let extent = self.extent;
        !extent.is_whole() && (self.status == StatusCode::PARTIAL_CONTENT || extent.total.is_some())
    }

    /// Whether the origin can validate it.
    pub fn has_validator(&self) -> bool {
        self.tagged || self.changed_at.is_some()
    }
}

/// The facts and the texts that go with them, as decoded from an object's meta bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta<'a> {
    /// The numbers.
    pub facts: StoredFacts,
    /// The entity tag as sent; empty without one.
    pub tag: &'a [u8],
    /// The fields that its Vary lists ([`Vary::names`]); empty without Vary.
    pub vary_names: &'a [u8],
    /// The request's values of those fields ([`vary::write_variant`]).
    pub variant: &'a [u8],
}

/// Bytes that are not valid facts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MetaError {
    /// Fewer or more bytes than their lengths say.
    #[error("the stored reply's facts are {bytes} bytes long and do not end where they say; drop the object")]
    Length {
        /// How many there are.
        bytes: usize,
    },
    /// Written by another version of this program.
    #[error(
        "the stored reply's facts are of version {version}, and this program reads version 1; drop the object"
    )]
    Version {
        /// What the first byte says.
        version: u8,
    },
    /// A value that is never written.
    #[error("the stored reply's facts hold an impossible {what}; drop the object")]
    Impossible {
        /// Which one.
        what: &'static str,
    },
}

impl<'a> Meta<'a> {
    /// Encodes the facts for storing with the object.
    pub fn to_bytes(&self) -> Vec<u8> {
        let facts = &self.facts;
        let mut bytes =
            Vec::with_capacity(FIXED_BYTES + 6 + self.tag.len() + self.vary_names.len() + self.variant.len());
        let flags = [facts.no_cache, facts.forbids_stale, facts.immutable, facts.heuristic, facts.tagged];
        let flags =
            flags.iter().enumerate().fold(0_u16, |bits, (place, set)| bits | u16::from(*set) << place);
        bytes.push(VERSION);
        bytes.extend_from_slice(&flags.to_le_bytes());
        bytes.extend_from_slice(&facts.status.as_u16().to_le_bytes());
        for time in [facts.stored_at, facts.made_at, facts.changed_at.unwrap_or(NEVER)] {
            bytes.extend_from_slice(&time.0.to_le_bytes());
        }
        let seconds =
            [facts.initial_age_s, facts.lifetime_s, facts.stale_while_revalidate_s, facts.stale_if_error_s];
        seconds.iter().for_each(|seconds| bytes.extend_from_slice(&seconds.to_le_bytes()));
        let extent = facts.extent;
        for place in [extent.first, extent.length, extent.total.unwrap_or(UNKNOWN)] {
            bytes.extend_from_slice(&place.to_le_bytes());
        }
        for text in [self.tag, self.vary_names, self.variant] {
            let length =
                u16::try_from(text.len()).expect("texts longer than TEXT_BYTES_MAX are refused before");
            bytes.extend_from_slice(&length.to_le_bytes());
            bytes.extend_from_slice(text);
        }
        bytes
    }

    /// Decodes what [`Meta::to_bytes`] wrote.
    pub fn from_bytes(bytes: &'a [u8]) -> Result<Self, MetaError> {
        let too_short = MetaError::Length { bytes: bytes.len() };
        let mut reader = Reader { rest: bytes };
        let [version] = reader.array().ok_or(too_short)?;
        if version != VERSION {
            return Err(MetaError::Version { version });
        }
        let numbers = (|| {
            let (flags, status) = (reader.array()?, reader.array()?);
            let times = [reader.array()?, reader.array()?, reader.array()?].map(i64::from_le_bytes);
            let seconds = [reader.array()?, reader.array()?, reader.array()?, reader.array()?];
            let places = [reader.array()?, reader.array()?, reader.array()?].map(u64::from_le_bytes);
            let (flags, status) = (u16::from_le_bytes(flags), u16::from_le_bytes(status));
            Some((flags, status, times, seconds.map(u32::from_le_bytes), places))
        })();
        let (flags, status, times, seconds, places) = numbers.ok_or(too_short)?;
        let mut text = || reader.text();
        let (tag, vary_names, variant) =
            (text().ok_or(too_short)?, text().ok_or(too_short)?, text().ok_or(too_short)?);
        if !reader.rest.is_empty() {
            return Err(too_short);
        }
        let impossible = |what| MetaError::Impossible { what };
        if flags >= 1 << 5 {
            return Err(impossible("flag"));
        }
        let flag = |place: u16| flags & (1 << place) != 0;
        let [first, length, total] = places;
        let total = (total != UNKNOWN).then_some(total);
        let end = first.checked_add(length).ok_or(impossible("range"))?;
        if total.is_some_and(|total| end > total) {
            return Err(impossible("range"));
        }
        if flag(4) != EntityTag::parse(tag).is_some() {
            return Err(impossible("entity tag"));
        }
        let facts = StoredFacts {
            stored_at: WallSeconds(times[0]),
            made_at: WallSeconds(times[1]),
            changed_at: (times[2] != NEVER.0).then_some(WallSeconds(times[2])),
            initial_age_s: seconds[0],
            lifetime_s: seconds[1],
            stale_while_revalidate_s: seconds[2],
            stale_if_error_s: seconds[3],
            extent: Extent { first, length, total },
            status: StatusCode::from_u16(status).map_err(|_| impossible("status"))?,
            no_cache: flag(0),
            forbids_stale: flag(1),
            immutable: flag(2),
            heuristic: flag(3),
            tagged: flag(4),
        };
        Ok(Self { facts, tag, vary_names, variant })
    }

    /// The entity tag.
    pub fn entity_tag(&self) -> Option<EntityTag<'a>> {
        EntityTag::parse(self.tag)
    }

    /// Whether it matches a request with these fields. `scratch` is a buffer for reuse.
    pub fn answers(&self, request: &HeaderMap, scratch: &mut Vec<u8>) -> bool {
        vary::matches(self.vary_names, self.variant, request, scratch)
    }
}

/// The meta bytes of a reply that [`super::judge`] allows to store.
pub fn meta_bytes(facts: StoredFacts, reply: &HeaderMap, request: &HeaderMap) -> Vec<u8> {
    let tag = stored_tag(reply).map_or(&[][..], |tag| tag.text);
    let vary_names = Vary::of(reply).names();
    let mut variant = Vec::new();
    vary::write_variant(&vary_names, request, &mut variant);
    Meta { facts, tag, vary_names: &vary_names, variant: &variant }.to_bytes()
}

/// The reply's entity tag, if it has exactly one, which is valid and of reasonable length.
pub fn stored_tag(reply: &HeaderMap) -> Option<EntityTag<'_>> {
    let mut lines = reply.get_all(ETAG).iter();
    let tag = EntityTag::parse(lines.next()?.as_bytes())?;
    (lines.next().is_none() && tag.text.len() <= TAG_BYTES_MAX).then_some(tag)
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*array)
    }

    fn text(&mut self) -> Option<&'a [u8]> {
        let length = usize::from(u16::from_le_bytes(self.array()?));
        let (text, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(text)
    }
}

/// A longer tag is treated as absent, in bytes.
pub const TAG_BYTES_MAX: usize = 1024;
/// A reply whose Vary makes the names or the variant longer is not stored, in bytes.
pub const VARIANT_BYTES_MAX: usize = 16 * 1024;
const VERSION: u8 = 1;
const NEVER: WallSeconds = WallSeconds(i64::MIN);
const UNKNOWN: u64 = u64::MAX;
const FIXED_BYTES: usize = 1 + 2 + 2 + 3 * 8 + 4 * 4 + 3 * 8;
