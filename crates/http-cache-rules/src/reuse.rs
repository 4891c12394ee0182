//! Whether what is stored answers a request: the heart of a cache (RFC 9111 section 4). What follows is `decide`'s.
//!
//! ```text
//! origin's conditions, other methods ── Forward
//! nothing stored ── Forward, or GatewayTimeout when only-if-cached
//! no-cache, of reply or request ─┐
//! too old for the client ────────┼─ Revalidate (Forward without a validator)
//! stale ── max-stale: Serve ── stale-while-revalidate ──┘
//! fresh ── Serve
//! ```
//!
//! Always holds: nothing stale is served against must-revalidate, proxy-revalidate, s-maxage or no-cache; a request's
//! max-stale never overrides a no-cache (RFC 9111 section 5.2.1.2 is about freshness, 5.2.2.4 is not).
//! Not here: which of several variants (`select`), the client's conditions and ranges (`conditional`, `ranges`), which
//! are looked at once this says Serve.

use super::date::WallSeconds;
use super::facts::{Meta, StoredFacts};
use super::policy::Policy;
use super::request::RequestFacts;

/// Why a request goes to the origin; the words of RFC 9211 section 2.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ForwardReason {
    /// The cache was told not to handle it, or it holds a condition that only the origin may answer.
    Bypass,
    /// The method is not one that is answered from a store.
    Method,
    /// Nothing is stored for the URI.
    UriMiss,
    /// Something is stored, but not for these request fields.
    VaryMiss,
    /// What is stored is fresh, but the request wants it from the origin.
    Request,
    /// What is stored is stale.
    Stale,
    /// What is stored lacks a part that is asked for.
    Partial,
}

/// What to do with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// Answer from the store with this Age; `stale` when its lifetime is over and the client allows that.
    Serve {
        /// For the Age field, in seconds.
        age_s: u32,
        /// Past its lifetime.
        stale: bool,
    },
    /// Answer from the store with this Age, and ask the origin meanwhile (RFC 5861 section 3).
    ServeStaleWhileRevalidate {
        /// For the Age field, in seconds.
        age_s: u32,
    },
    /// Ask the origin whether what is stored still holds (`conditional::set_conditions`).
    Revalidate(ForwardReason),
    /// Ask the origin for it.
    Forward(ForwardReason),
    /// Answer 504: only-if-cached, and the store does not suffice (RFC 9111 section 5.2.1.7).
    GatewayTimeout,
}

/// What the store holds for a request's key.
#[derive(Clone, Copy, Debug)]
pub enum Held<'a> {
    /// Nothing at all.
    Nothing,
    /// Replies, but to other request fields.
    OtherVariants,
    /// This reply.
    Reply(&'a StoredFacts),
}

/// Whether what is held answers the request, and what to do if not. Allocates nothing.
pub fn evaluate(request: &RequestFacts, held: Held<'_>, policy: &Policy, now: WallSeconds) -> Reuse {
    let to_origin = |how: Reuse| if request.directives.only_if_cached { Reuse::GatewayTimeout } else { how };
    if !request.method.may_be_served() {
        return to_origin(Reuse::Forward(ForwardReason::Method));
    }
    if request.origin_conditional {
        return to_origin(Reuse::Forward(ForwardReason::Bypass));
    }
    let facts = match held {
        Held::Reply(facts) => facts,
        Held::Nothing => return to_origin(Reuse::Forward(ForwardReason::UriMiss)),
        Held::OtherVariants => return to_origin(Reuse::Forward(ForwardReason::VaryMiss)),
    };
    // A part answers nobody who wants the whole; what a range wants is seen when it is read (`ranges::plan`).
    if facts.is_part() && !request.ranged {
        return to_origin(Reuse::Forward(ForwardReason::Partial));
    }
    let ask = |why| {
        let how = if facts.has_validator() { Reuse::Revalidate(why) } else { Reuse::Forward(why) };
        to_origin(how)
    };
    let age_s = facts.age_s(now);
    let fresh = facts.is_fresh(now);
    let reason = if fresh { ForwardReason::Request } else { ForwardReason::Stale };
    if facts.no_cache {
        return ask(ForwardReason::Stale);
    }
    if policy.client_reload && wants_the_origin(request, facts, age_s, fresh) {
        return ask(reason);
    }
    if fresh {
        return Reuse::Serve { age_s, stale: false };
    }
    let staleness_s = facts.staleness_s(now);
    if facts.forbids_stale {
        return ask(reason);
    }
    if request.directives.max_stale.is_some_and(|most| staleness_s <= most) {
        return Reuse::Serve { age_s, stale: true };
    }
    if staleness_s < facts.stale_while_revalidate_s {
        return Reuse::ServeStaleWhileRevalidate { age_s };
    }
    ask(reason)
}

/// Whether the request's own directives rule out what is stored (RFC 9111 section 5.2.1).
fn wants_the_origin(request: &RequestFacts, facts: &StoredFacts, age_s: u32, fresh: bool) -> bool {
    let asked = &request.directives;
    if asked.no_cache {
        return true;
    }
    // A reload of what will not change while it is fresh (RFC 8246 section 2); no-cache, the forced one, still asks.
    let spared = facts.immutable && fresh;
    // With max-stale a client takes what is past its lifetime, but no older than its max-age.
    let too_old = asked.max_age.is_some_and(|most| age_s > most || most == 0) && !spared;
    let too_near_its_end =
        asked.min_fresh.is_some_and(|least| facts.lifetime_s.saturating_sub(age_s) < least);
    too_old || too_near_its_end
}

/// What to do when the origin fails while it is asked about a stored reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnError {
    /// The stored reply stands in, with this Age (RFC 5861 section 4).
    ServeStale {
        /// For the Age field, in seconds.
        age_s: u32,
    },
    /// Answer 504: the stored reply may not be used unvalidated, and there is no other (RFC 9111 section 5.2.2.2).
    GatewayTimeout,
    /// Give the origin's error to the client.
    PassOn,
}

/// How the origin failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No reply, or one that broke off in its head.
    NoReply,
    /// One of the statuses that RFC 5861 section 4 counts: 500, 502, 503, 504.
    ErrorStatus,
}

/// Decides. `facts` is what would have been validated.
pub fn on_error(
    request: &RequestFacts,
    facts: &StoredFacts,
    failure: Failure,
    policy: &Policy,
    now: WallSeconds,
) -> OnError {
    let forced = policy.client_reload && request.directives.no_cache;
    let window_s = facts.stale_if_error_s.max(request.directives.stale_if_error.unwrap_or(0));
    let in_time = facts.is_fresh(now) || facts.staleness_s(now) < window_s;
    if !facts.forbids_stale && !facts.no_cache && !forced && window_s > 0 && in_time {
        return OnError::ServeStale { age_s: facts.age_s(now) };
    }
    match failure {
        Failure::NoReply => OnError::GatewayTimeout,
        Failure::ErrorStatus => OnError::PassOn,
    }
}

/// Of the stored replies to a key, the one to use for a request: of those that match its fields the one made last
/// (RFC 9111 section 4.1). `scratch` is emptied and reused.
pub fn select<'m, 'a>(
    stored: impl IntoIterator<Item = &'m Meta<'a>>,
    request: &http::HeaderMap,
    scratch: &mut Vec<u8>,
) -> Option<&'m Meta<'a>>
where
    'a: 'm,
{
    let matching = stored.into_iter().filter(|meta| meta.answers(request, scratch));
    matching.max_by_key(|meta| (meta.facts.made_at, meta.facts.stored_at))
}

/// Whether a status from the origin is one that a stored reply may stand in for (RFC 5861 section 4).
pub fn is_error_status(status: http::StatusCode) -> bool {
    matches!(status.as_u16(), 500 | 502 | 503 | 504)
}
