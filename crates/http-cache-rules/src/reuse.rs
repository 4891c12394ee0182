//! Whether a stored reply answers a request: the heart of a cache (RFC 9111 section 4). `decide` acts on the result.
//!
//! ```text
//! conditions for the origin, other methods ── Forward
//! nothing stored ── Forward, or GatewayTimeout with only-if-cached
//! no-cache in reply or request ──┐
//! too old for the client ────────┼─ Revalidate (Forward without a validator)
//! stale ── max-stale: Serve ── stale-while-revalidate ──┘
//! fresh ── Serve
//! ```
//!
//! Always holds: no stale reply is served against must-revalidate, proxy-revalidate, s-maxage or no-cache. A request's max-stale never
//! overrides a no-cache (RFC 9111 section 5.2.1.2 is about freshness, 5.2.2.4 is not).
//! Not here: selecting a variant (`select`), and the client's conditions and ranges (`conditional`, `ranges`), which apply after
//! this says Serve.

use super::facts::{Meta, StoredFacts};
use super::policy::Policy;
use super::request::RequestFacts;
use crate::fields::date::WallSeconds;

/// Why a request goes upstream; the parameters of `fwd` in RFC 9211 section 2.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ForwardReason {
    /// The cache was configured not to handle it, or it has a condition that only the origin may evaluate.
    Bypass,
    /// The method is never answered from a store.
    Method,
    /// Nothing is stored for the URI.
    UriMiss,
    /// Replies are stored, but for other request fields.
    VaryMiss,
    /// The stored reply is fresh, but the request demands the origin's.
    Request,
    /// The stored reply is stale.
    Stale,
    /// The stored reply lacks a part that is requested.
    Partial,
}

/// Whether and how to use the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// Answer from the store with this Age; `stale` when its lifetime has passed and the client accepts that.
    Serve {
        /// For the Age field, in seconds.
        age_s: u32,
        /// Whether its lifetime has passed.
        stale: bool,
    },
    /// Answer from the store with this Age, and revalidate in the background (RFC 5861 section 3).
    ServeStaleWhileRevalidate {
        /// For the Age field, in seconds.
        age_s: u32,
    },
    /// Validate the stored reply with the origin (`conditional::set_conditions`).
    Revalidate(ForwardReason),
    /// Send the request upstream.
    Forward(ForwardReason),
    /// Answer 504: only-if-cached, and the store does not suffice (RFC 9111 section 5.2.1.7).
    GatewayTimeout,
}

/// What the store has for a request's key.
#[derive(Clone, Copy, Debug)]
pub enum Held<'a> {
    /// Nothing.
    Nothing,
    /// Replies, but for other request fields.
    OtherVariants,
    /// This reply.
    Reply(&'a StoredFacts),
}

/// Decides whether the store answers the request, and what to do if not. Allocates nothing.
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
    // A part never answers a request for everything. Whether it covers a range is checked later (`ranges::plan`).
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
    if policy.client_reload && requires_origin(request, facts, age_s, fresh) {
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

/// Whether the request's own directives rule out the stored reply (RFC 9111 section 5.2.1).
fn requires_origin(request: &RequestFacts, facts: &StoredFacts, age_s: u32, fresh: bool) -> bool {
    let directives = &request.directives;
    if directives.no_cache {
        return true;
    }
    // A plain reload of an immutable reply is unnecessary while it is fresh (RFC 8246 section 2); no-cache, a forced reload, still goes
    // to the origin.
    let immutable = facts.immutable && fresh;
    // With max-stale a client accepts a stale reply, but none older than its max-age.
    let too_old = directives.max_age.is_some_and(|most| age_s > most || most == 0) && !immutable;
    let too_near_its_end =
        directives.min_fresh.is_some_and(|least| facts.lifetime_s.saturating_sub(age_s) < least);
    too_old || too_near_its_end
}

/// What to do when the origin fails while a stored reply exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnError {
    /// The stored reply stands in, with this Age (RFC 5861 section 4).
    ServeStale {
        /// For the Age field, in seconds.
        age_s: u32,
    },
    /// Answer 504: the stored reply may not be used without validation, and there is no other (RFC 9111 section 5.2.2.2).
    GatewayTimeout,
    /// Pass the origin's error on.
    PassOn,
}

/// How the origin failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No reply, or one that broke off in its head.
    NoReply,
    /// One of the statuses of RFC 5861 section 4: 500, 502, 503, 504.
    ErrorStatus,
}

/// Decides between a stored reply and the failure. `facts` describes the reply that would have been validated.
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

/// Selects the stored reply to use: among those that match the request's fields the latest (RFC 9111 section 4.1). `scratch` is
/// a buffer for reuse.
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

/// Whether a stored reply may stand in for a reply with this status (RFC 5861 section 4).
pub fn is_error_status(status: http::StatusCode) -> bool {
    matches!(status.as_u16(), 500 | 502 | 503 | 504)
}
