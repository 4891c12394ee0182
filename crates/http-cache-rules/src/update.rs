//! What a 304 or the reply to a HEAD does to what is stored (RFC 9111 sections 3.2, 4.3.4 and 4.3.5).
//!
//! ```text
//! 304 ─> identify (same strong tag │ latest with the same weak validator │ the only one) ─> merge ─> refresh
//! HEAD 200 ─> same tag, date and length ─> merge ─> refresh        else ─> drop
//! ```
//!
//! Always holds: fields that describe the stored bytes (length, coding, place, digest, tag) are never changed by a
//! reply that brought no bytes.
//! Not here: writing the updated head to the store.

use http::header::{
    AGE, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, DATE, ETAG, HeaderMap, HeaderName, LAST_MODIFIED,
};

use super::facts::{Meta, StoredFacts, stored_tag};
use super::freshness::single_date;
use super::lists;
use super::policy::{Foreign304, Policy};
use super::request::{MethodKind, RequestFacts};
use super::storing::{self, Exchange, Refusal};

/// Which stored reply a 304 confirms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confirmed {
    /// The one in this place of the list.
    This(usize),
    /// None: send the request again without conditions (`conditional::clear_conditions`).
    None,
}

/// Finds the stored reply that a 304 confirms. `stored` are those that match the request's fields; `asked` is the place
/// in it of the one whose validators were sent. Every strong match may be updated; the one served is returned.
pub fn identify(stored: &[Meta<'_>], asked: usize, reply: &HeaderMap, policy: &Policy) -> Confirmed {
    let answered = stored.get(asked).map_or(Confirmed::None, |_| Confirmed::This(asked));
    let latest = |matching: &dyn Fn(&Meta<'_>) -> bool| {
        let all = stored.iter().enumerate().filter(|(_, meta)| matching(meta));
        all.max_by_key(|(place, meta)| (meta.facts.made_at, *place == asked, meta.facts.stored_at))
            .map(|(place, _)| place)
    };
    let found = match stored_tag(reply) {
        Some(tag) if !tag.weak => {
            latest(&|meta| meta.entity_tag().is_some_and(|held| held.strongly_equals(tag)))
        }
        Some(tag) => latest(&|meta| meta.entity_tag().is_some_and(|held| held.weakly_equals(tag))),
        None => match single_date(reply, &LAST_MODIFIED, super::WallSeconds(0)) {
            Some(changed_at) => latest(&|meta| meta.facts.changed_at == Some(changed_at)),
            // It names nothing, so that it can only mean what was asked about. The RFC's list knows this case for
            // replies without a validator alone; origins that leave the tag out of a 304 are too many for that.
            None => return answered,
        },
    };
    match (found, policy.foreign_304) {
        (Some(place), _) => Confirmed::This(place),
        (None, Foreign304::KeepStoredTag) => answered,
        (None, Foreign304::FetchAgain) => Confirmed::None,
    }
}

/// Puts a 304's or HEAD's fields in the place of the stored ones with the same name (RFC 9111 section 3.2). The reply's
/// hop-by-hop fields are already gone (`forwarding::strip_hop_by_hop`), its Age is not: [`refresh`] reads it, and
/// `forwarding::storable_fields` takes it out before the head is written.
pub fn merge(stored: &mut HeaderMap, reply: &HeaderMap) {
    // The old Age was that of the old exchange, and so was the old Date: `forwarding::add_date` gives a new one.
    stored.remove(AGE);
    stored.remove(DATE);
    for name in reply.keys().filter(|name| !describes_the_bytes(name)) {
        stored.remove(name);
        for value in reply.get_all(name) {
            stored.append(name, value.clone());
        }
    }
}

/// Fields that belong to the stored bytes: those that RFC 9111 section 3.2 excepts or allows to, and digests.
pub fn describes_the_bytes(name: &HeaderName) -> bool {
    [CONTENT_LENGTH, CONTENT_ENCODING, CONTENT_RANGE, ETAG].contains(name)
        || matches!(name.as_str(), "content-md5" | "content-digest" | "repr-digest" | "digest")
}

/// The facts of a stored reply after its fields were merged: as of a reply to GET that came just now, whether a GET or
/// a HEAD brought it. `exchange.headers` are the stored ones, merged. Refused with [`Refusal::RequestNoStore`]: leave
/// what is stored as it was; with any other refusal: serve it this once, and drop it.
pub fn refresh(old: &StoredFacts, exchange: &Exchange<'_>, policy: &Policy) -> Result<StoredFacts, Refusal> {
    let request = RequestFacts { method: MethodKind::Get, ..*exchange.request };
    let facts = storing::judge(&Exchange { status: old.status, request: &request, ..*exchange }, policy)?;
    Ok(StoredFacts { extent: old.extent, ..facts })
}

/// What the reply to a HEAD says about the stored reply to a GET.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeadSays {
    /// It is still that: merge and refresh.
    Same,
    /// It is another now: drop it.
    Other,
    /// Nothing: the HEAD did not succeed.
    Nothing,
}

/// Compares (RFC 9111 section 4.3.5).
pub fn head_says(stored: &Meta<'_>, status: http::StatusCode, reply: &HeaderMap) -> HeadSays {
    if status != http::StatusCode::OK {
        return HeadSays::Nothing;
    }
    let same_tag =
        stored_tag(reply).is_none_or(|tag| stored.entity_tag().is_some_and(|held| held.weakly_equals(tag)));
    let changed_at = single_date(reply, &LAST_MODIFIED, super::WallSeconds(0));
    let same_date = changed_at.is_none_or(|changed_at| stored.facts.changed_at == Some(changed_at));
    let length = reply.get(CONTENT_LENGTH).map(|line| lists::byte_count(line.as_bytes()));
    let same_length = length.is_none_or(|length| length.is_some() && length == stored.facts.extent.total);
    if same_tag && same_date && same_length { HeadSays::Same } else { HeadSays::Other }
}
