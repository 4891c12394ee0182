//! Validators: entity tags and modification dates (RFC 9110 section 8.8).
//!
//! Always holds: tags are compared byte for byte. A weak tag is never strongly equal, not even to itself. A tag without quotes is invalid,
//! never sent in a condition, and equals nothing.
//! Not here: the conditions that use them (`conditional`).

use super::date::WallSeconds;
use super::lists;

/// `"x"` or `W/"x"` (RFC 9110 section 8.8.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntityTag<'a> {
    /// As sent, with quotes and `W/`.
    pub text: &'a [u8],
    /// Whether it begins with `W/`: equivalent content, but perhaps not the same bytes.
    pub weak: bool,
}

impl<'a> EntityTag<'a> {
    /// Parses a tag; `None` when it is unquoted or contains invalid bytes.
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

    /// Whether both denote the same bytes: both strong and the same (8.8.3.2).
    pub fn strongly_equals(self, other: EntityTag<'_>) -> bool {
        !self.weak && !other.weak && self.text == other.text
    }

    /// Whether both denote equivalent content: the same apart from `W/` (8.8.3.2).
    pub fn weakly_equals(self, other: EntityTag<'_>) -> bool {
        self.opaque() == other.opaque()
    }
}

/// The tags of one If-None-Match line. Invalid members are skipped, as they equal nothing.
pub fn tags(line: &[u8]) -> impl Iterator<Item = EntityTag<'_>> {
    // A backslash in a tag escapes nothing, so `lists::members` would mistake where its quotes end.
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

/// Whether a modification date is a strong validator: the origin's clock was at least a second later, so that no change within the same
/// second can go unnoticed (RFC 9110 section 8.8.2.2).
pub fn is_strong_date(last_modified: WallSeconds, date: WallSeconds) -> bool {
    date.0.saturating_sub(last_modified.0) >= 1
}

/// Whether a field value is the single member `*`.
pub fn is_any(line: &[u8]) -> bool {
    let mut members = lists::members(line);
    members.next() == Some(b"*") && members.next().is_none()
}
