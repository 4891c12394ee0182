//! What a proxy does with a request: the first of its two decisions. The second is [`super::response`].
//!
//! ```text
//! request, what was found, policy, now ─> decide ─> Action { reply, background }
//!
//! reply      Stored     serve what was found (conditions and ranges: `conditional`, `ranges`)
//!            Wait       a reply is about to be stored: look up again when it has been
//!            Fetch      ask upstream, about what was found if that may still hold
//!            Complete   ask upstream for the missing bytes of what was found (`completion`); if that is no use: Fetch
//!            Tunnel     the bytes of a connection are nobody's to look at
//!            Local      answer without upstream and store
//! ```
//!
//! Always holds: a request with `only-if-cached` causes no fetch, in the background neither; what was found with
//! [`Found::Reply`] is there for every action that uses it.
//! Not here: who may ask for what, and methods that only one proxy knows, as PURGE.

use http::{HeaderMap, Method};

use super::completion;
use super::date::WallSeconds;
use super::facts::Meta;
use super::forwarding;
use super::policy::Policy;
use super::request::RequestFacts;
use super::reuse::{self, ForwardReason, Held, Reuse};

/// A request as both decisions see it.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// Its method.
    pub method: &'a Method,
    /// Its fields, as the client sent them.
    pub headers: &'a HeaderMap,
    /// What was read of both.
    pub facts: &'a RequestFacts,
    /// It has a body.
    pub has_body: bool,
    /// It asks for another protocol, and this proxy lets it (RFC 9110 section 7.8).
    pub upgrades: bool,
}

impl Request<'_> {
    /// Whether a store can answer it, so that looking is worth while. Of a GET or HEAD with a body it cannot: no cache
    /// compares bodies, so that its reply is for nobody else (RFC 9110 section 9.3.1).
    pub fn is_answered_from_store(&self) -> bool {
        self.facts.method.may_be_served() && !self.has_body && !self.is_tunnel()
    }

    fn is_tunnel(&self) -> bool {
        *self.method == Method::CONNECT || self.upgrades
    }

    /// Whether one fetch may answer this request and others with the same key that come before its reply.
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

    /// Whether it joins a reply that is on its way to another request, and shares it.
    pub fn joins(&self) -> bool {
        self.may_collapse(ForwardReason::UriMiss) && !self.facts.directives.only_if_cached
    }

    /// The fetch that takes the place of an action that could not be carried out. Nothing when none may.
    pub fn fetch_instead(&self, why: ForwardReason) -> Option<Fetch> {
        let fetch = Fetch { why, about_found: false, collapse: self.may_collapse(why) };
        (!self.facts.directives.only_if_cached).then_some(fetch)
    }
}

/// What a look for a request's key found.
#[derive(Clone, Copy, Debug)]
pub enum Found<'a> {
    /// Nothing at all.
    Nothing,
    /// Replies, but to other request fields.
    OtherVariants,
    /// A reply that has come whole, so that clients may know it, and is about to be stored. For callers that collapse
    /// requests, and can wait.
    AboutToBeStored,
    /// This reply.
    Reply(&'a Meta<'a>),
}

/// What to do with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Action {
    /// How the client is answered.
    pub reply: Reply,
    /// What is fetched besides, for the store alone, without conditions and ranges of the client.
    pub background: Option<Fetch>,
}

/// How a client is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// With what was found and this Age.
    Stored {
        /// For the Age field, in seconds.
        age_s: u32,
        /// Past its lifetime.
        stale: bool,
    },
    /// With what another look will find, once the reply that is about to be stored has been.
    Wait,
    /// With what upstream says.
    Fetch(Fetch),
    /// With the part that was found and what is missing of it; when that cannot be asked for, by
    /// [`Request::fetch_instead`] for [`ForwardReason::Partial`].
    Complete,
    /// With a connection to somewhere else.
    Tunnel,
    /// By the proxy itself.
    Local(Local),
}

/// A request to upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetch {
    /// Why what was found does not do.
    pub why: ForwardReason,
    /// What was found goes along: its validators are sent, if it has any, and it may stand in for an error.
    pub about_found: bool,
    /// Its reply may answer others that wait for the same key ([`Request::may_collapse`]).
    pub collapse: bool,
}

/// What a proxy answers of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Local {
    /// 504: only-if-cached, for what no store answers (RFC 9111 section 5.2.1.7).
    NeverStored,
    /// 504: only-if-cached, and what is stored does not suffice.
    NotStored,
    /// As the last recipient of an OPTIONS or TRACE: Max-Forwards is 0 (RFC 9110 section 7.6.2).
    LastHop,
}

/// Decides. Allocates nothing but for a Range.
pub fn decide(request: &Request<'_>, found: Found<'_>, policy: &Policy, now: WallSeconds) -> Action {
    let mut background = None;
    let reply = match () {
        () if request.is_tunnel() => Reply::Tunnel,
        () if forwarding::is_last_hop(request.method, request.headers) => Reply::Local(Local::LastHop),
        () if !request.is_answered_from_store() => of_what_no_store_answers(request),
        () => of_what_was_found(request, found, policy, now, &mut background),
    };
    Action { reply, background }
}

fn of_what_no_store_answers(request: &Request<'_>) -> Reply {
    let served_without_a_body = request.facts.method.may_be_served();
    let why = if served_without_a_body { ForwardReason::Bypass } else { ForwardReason::Method };
    request.fetch_instead(why).map_or(Reply::Local(Local::NeverStored), Reply::Fetch)
}

fn of_what_was_found(
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
        // Whoever has seen the end of a reply finds it: a part of it, or the answer to conditions.
        return Reply::Wait;
    }
    let fetch =
        |why, about_found| Reply::Fetch(Fetch { why, about_found, collapse: request.may_collapse(why) });
    let lacks = |meta: &&Meta<'_>| completion::is_too_little(request.method, request.headers, meta, now);
    match reuse::evaluate(request.facts, held, policy, now) {
        Reuse::GatewayTimeout => Reply::Local(Local::NotStored),
        Reuse::Serve { .. } | Reuse::ServeStaleWhileRevalidate { .. } if meta.as_ref().is_some_and(lacks) => {
            if only_if_cached {
                Reply::Local(Local::NotStored)
            } else {
                Reply::Complete
            }
        }
        Reuse::Serve { age_s, stale } => Reply::Stored { age_s, stale },
        Reuse::ServeStaleWhileRevalidate { age_s } => {
            let revalidation = Fetch { why: ForwardReason::Stale, about_found: true, collapse: true };
            // Nobody upstream is asked on behalf of a client who does not want that.
            *background = (!only_if_cached).then_some(revalidation);
            Reply::Stored { age_s, stale: true }
        }
        Reuse::Forward(ForwardReason::Partial) => Reply::Complete,
        Reuse::Revalidate(why) => fetch(why, true),
        // What is stored without a validator may still stand in for an error.
        Reuse::Forward(why @ (ForwardReason::Stale | ForwardReason::Request)) => fetch(why, true),
        Reuse::Forward(why) => fetch(why, false),
    }
}
