//! What a proxy does with a request: the first of its two decisions. The second is [`super::response`].
//!
//! ```text
//! request, look-up result, policy, now ─> decide ─> Action { reply, background }
//!
//! reply      Stored     serve the stored reply (conditions and ranges: `conditional`, `ranges`)
//!            Wait       a reply is about to be stored: look up again when it has been
//!            Fetch      send the request upstream, to validate the stored reply if there is one
//!            Complete   request the missing bytes of the stored part (`completion`); if that is not possible: Fetch
//!            Tunnel     relay a connection without looking at its bytes
//!            Local      answer without upstream and store
//! ```
//!
//! Always holds: a request with `only-if-cached` causes no fetch, not even in the background. An action that uses a stored reply is
//! returned only for [`Found::Reply`].
//! Not here: access rules, and methods of a particular proxy such as PURGE.

use http::{HeaderMap, Method};

use super::facts::Meta;
use super::policy::Policy;
use super::request::RequestFacts;
use super::reuse::{self, ForwardReason, Held, Reuse};
use crate::fields::date::WallSeconds;
use crate::messages::completion;
use crate::messages::forwarding;

/// A request as both decisions take it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Its method.
    pub method: &'a Method,
    /// The fields, as the client sent them.
    pub headers: &'a HeaderMap,
    /// What was read from method and fields.
    pub facts: &'a RequestFacts,
    /// Whether it has a body.
    pub has_body: bool,
    /// Whether it asks for another protocol, and this proxy allows that (RFC 9110 section 7.8).
    pub upgrades: bool,
}

impl Request<'_> {
    /// Whether a stored reply can answer it, so that a look-up is useful. Not for a GET or HEAD with a body: caches do not compare
    /// bodies, so its reply answers no other request (RFC 9110 section 9.3.1).
    pub fn is_answered_from_store(&self) -> bool {
        self.facts.method.may_be_served() && !self.has_body && !self.is_tunnel()
    }

    fn is_tunnel(&self) -> bool {
        *self.method == Method::CONNECT || self.upgrades
    }

    /// Whether one fetch may answer this request and later ones with the same key.
    pub fn may_collapse(&self, why: ForwardReason) -> bool {
        let facts = self.facts;
        *self.method == Method::GET
            && !self.has_body
            && matches!(why, ForwardReason::UriMiss | ForwardReason::VaryMiss | ForwardReason::Stale)
            && !facts.ranged
            && !facts.conditional
            && !facts.authorized
            && !facts.directives.no_store
            && !facts.directives.no_cache
    }

    /// Whether it shares a reply that is being fetched for another request.
    pub fn joins(&self) -> bool {
        self.may_collapse(ForwardReason::UriMiss) && !self.facts.directives.only_if_cached
    }

    /// The fetch that replaces an action that could not be carried out; `None` when no fetch is allowed.
    pub fn fetch_instead(&self, why: ForwardReason) -> Option<Fetch> {
        let fetch = Fetch { why, about_found: false, collapse: self.may_collapse(why) };
        (!self.facts.directives.only_if_cached).then_some(fetch)
    }
}

/// The result of looking up a request's key.
#[derive(Clone, Copy, Debug)]
pub enum Found<'a> {
    /// Nothing is stored.
    Nothing,
    /// Replies are stored, but for other request fields.
    OtherVariants,
    /// A reply that has arrived completely, so that clients may have seen it, and is being stored. For callers that collapse requests
    /// and can wait.
    AboutToBeStored,
    /// This reply.
    Reply(&'a Meta<'a>),
}

/// What to do with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Action {
    /// How to answer the client.
    pub reply: Reply,
    /// What to fetch into the store besides, without the client's conditions and ranges.
    pub background: Option<Fetch>,
}

/// How to answer a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// With the stored reply and this Age.
    Stored {
        /// For the Age field, in seconds.
        age_s: u32,
        /// Whether its lifetime has passed.
        stale: bool,
    },
    /// With the result of another look-up, once the reply that is about to be stored has been.
    Wait,
    /// With upstream's reply.
    Fetch(Fetch),
    /// With the stored part and its missing bytes; if those cannot be requested, by [`Request::fetch_instead`] for
    /// [`ForwardReason::Partial`].
    Complete,
    /// With a tunnel.
    Tunnel,
    /// With a reply of the proxy's own.
    Local(Local),
}

/// A request to upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// Why the store does not suffice.
    pub why: ForwardReason,
    /// Whether the stored reply takes part: its validators are sent, if it has any, and it may stand in for an error.
    pub about_found: bool,
    /// Whether its reply may answer others that wait for the same key ([`Request::may_collapse`]).
    pub collapse: bool,
}

/// A reply of the proxy's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Local {
    /// 504: only-if-cached for a request that no store answers (RFC 9111 section 5.2.1.7).
    NeverStored,
    /// 504: only-if-cached, and the store does not suffice.
    NotStored,
    /// As the final recipient of an OPTIONS or TRACE: Max-Forwards is 0 (RFC 9110 section 7.6.2).
    LastHop,
}

/// Decides what to do with a request. Allocates only for a Range.
pub fn decide(request: &Request<'_>, found: Found<'_>, policy: &Policy, now: WallSeconds) -> Action {
    let mut background = None;
    let reply = match () {
        () if request.is_tunnel() => Reply::Tunnel,
        () if forwarding::is_last_hop(request.method, request.headers) => Reply::Local(Local::LastHop),
        () if !request.is_answered_from_store() => decide_without_store(request),
        () => decide_with_found(request, found, policy, now, &mut background),
    };
    Action { reply, background }
}

fn decide_without_store(request: &Request<'_>) -> Reply {
    let served_without_a_body = request.facts.method.may_be_served();
    let why = if served_without_a_body { ForwardReason::Bypass } else { ForwardReason::Method };
    request.fetch_instead(why).map_or(Reply::Local(Local::NeverStored), Reply::Fetch)
}

fn decide_with_found(
    request: &Request<'_>,
    found: Found<'_>,
    policy: &Policy,
    now: WallSeconds,
    background: &mut Option<Fetch>,
) -> Reply {
    let (held, meta) = match found {
        Found::Nothing | Found::AboutToBeStored => (Held::Nothing, None),
        Found::OtherVariants => (Held::OtherVariants, None),
        Found::Reply(meta) => (Held::Reply(&meta.facts), Some(meta)),
    };
    let only_if_cached = request.facts.directives.only_if_cached;
    if matches!(found, Found::AboutToBeStored) && !request.joins() {
        // A client that has seen the end of a reply finds it with its next request, for a range or with conditions too.
        return Reply::Wait;
    }
    let fetch =
        |why, about_found| Reply::Fetch(Fetch { why, about_found, collapse: request.may_collapse(why) });
    let is_insufficient =
        |meta: &&Meta<'_>| completion::is_insufficient(request.method, request.headers, meta, now);
    match reuse::evaluate(request.facts, held, policy, now) {
        Reuse::GatewayTimeout => Reply::Local(Local::NotStored),
        Reuse::Serve { .. } | Reuse::ServeStaleWhileRevalidate { .. }
            if meta.as_ref().is_some_and(is_insufficient) =>
        {
            if only_if_cached {
                Reply::Local(Local::NotStored)
            } else {
                Reply::Complete
            }
        }
        Reuse::Serve { age_s, stale } => Reply::Stored { age_s, stale },
        Reuse::ServeStaleWhileRevalidate { age_s } => {
            let revalidation = Fetch { why: ForwardReason::Stale, about_found: true, collapse: true };
            // The client does not want upstream requests on its behalf.
            *background = (!only_if_cached).then_some(revalidation);
            Reply::Stored { age_s, stale: true }
        }
        Reuse::Forward(ForwardReason::Partial) => Reply::Complete,
        Reuse::Revalidate(why) => fetch(why, true),
        // A stored reply without a validator may still stand in for an error.
        Reuse::Forward(why @ (ForwardReason::Stale | ForwardReason::Request)) => fetch(why, true),
        Reuse::Forward(why) => fetch(why, false),
    }
}
