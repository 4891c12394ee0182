//! Entity tags and dates of last change: what makes two replies the same (RFC 9110 section 8.8).
//!
//! Always holds: a tag is compared byte for byte; a weak one is never strongly equal, not even to itself; a tag that
//! is not in quotes is invalid, is never sent in a condition, and equals nothing.
//! Not here: conditions made of them (`conditional`).

use super::date::WallSeconds;
use super::lists;

/// `"x"` or `W/"x"` (RFC 9110 section 8.8.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntityTag<'a> {
    /// As it was sent, with quotes and `W/`.
    pub text: &'a [u8],
    /// Whether it began with `W/`: equal in meaning, perhaps not in bytes.
    pub weak: bool,
}

impl<'a> EntityTag<'a> {
    /// Reads a tag; nothing when it is not in quotes or holds what no tag may.
    pub fn parse(text: &'a [u8]) -> Option<Self> {
        let text = text.trim_ascii();
        let (weak, quoted) = match text.strip_prefix(b"W/") {
            Some(quoted) => (true, quoted),
            None => (false, text),
        };
        let [b'"', inner @ .., b'"'] = quoted else { return None };
        let valid = inner.iter().all(|byte| *byte == 0x21 || (0x23..=0x7e).contains(byte) || *byte >= 0x80);
        valid.then_some(Self { text, weak })
    }

    fn opaque(self) -> &'a [u8] {
        if self.weak { &self.text[2..] } else { self.text }
    }

    /// Equal bytes of the content: both strong and the same (8.8.3.2).
    pub fn strongly_equals(self, other: EntityTag<'_>) -> bool {
        !self.weak && !other.weak && self.text == other.text
    }

    /// Equal in meaning: the same but for `W/` (8.8.3.2).
    pub fn weakly_equals(self, other: EntityTag<'_>) -> bool {
        self.opaque() == other.opaque()
    }
}

/// The tags of one If-None-Match line; members that are no tags are skipped, as they equal nothing.
pub fn tags(line: &[u8]) -> impl Iterator<Item = EntityTag<'_>> {
    // A tag may hold a backslash that escapes nothing, so that lists::members would lose count of the quotes.
    let mut rest = line;
    std::iter::from_fn(move || {
        loop {
            while let [b',' | b' ' | b'\t', after @ ..] = rest {
                rest = after;
            }
            if rest.is_empty() {
                return None;
            }
            let opening = rest.iter().position(|byte| *byte == b'"' || *byte == b',').unwrap_or(rest.len());
            let quoted = rest.get(opening) == Some(&b'"');
            let closing =
                rest.get(opening + 1..).and_then(|inner| inner.iter().position(|byte| *byte == b'"'));
            let end = match closing {
                Some(closing) if quoted => opening + 1 + closing + 1,
                _ if quoted => rest.len(),
                _ => opening,
            };
            let (member, after) = rest.split_at(end);
            rest = after;
            if let Some(tag) = EntityTag::parse(member) {
                return Some(tag);
            }
        }
    })
}

/// Whether a date of last change tells versions apart to the byte: the origin's own clock was past it by a second at
/// least, so that nothing could change within the same second unseen (RFC 9110 section 8.8.2.2).
pub fn is_strong_date(last_modified: WallSeconds, date: WallSeconds) -> bool {
    date.0.saturating_sub(last_modified.0) >= 1
}

/// Whether a field value is the member `*` alone.
pub fn is_any(line: &[u8]) -> bool {
    let mut members = lists::members(line);
    members.next() == Some(b"*") && members.next().is_none()
}
