//! What a proxy does with what came of a fetch: the second of its two decisions. The first is [`super::decide`].
//!
//! ```text
//! request, what is stored, what came, policy, now ─> decide_response ─>
//!
//! NextUpstream         ask the next one
//! Merge                304 to our conditions: give what is stored the new fields (`update`), serve it
//! RetryUnconditional   304 that confirms something else: ask again without conditions
//! ServeStale           upstream fails: what is stored stands in
//! Store, PassOn        a reply of its own: to the client, and into the store or not
//! GatewayTimeout       upstream fails, and what is stored may not stand in
//! NoReply              upstream fails, and nothing is stored
//! ```
//!
//! Always holds: what is stored stands in only for a failure, and only within its time; a part never takes the place of
//! a whole; a reply to a HEAD, or to a request with a body, is not stored.
//! Not here: other keys that a reply makes doubtful (`invalidation`), a HEAD that updates what is stored (`update`), whether
//! storing pays.

use http::{Method, StatusCode};

use super::date::WallSeconds;
use super::decide::Request;
use super::facts::{Meta, StoredFacts};
use super::policy::Policy;
use super::reuse::{self, Failure, OnError};
use super::storing::{self, Exchange, Refusal};
use super::update::{self, Confirmed};

/// A stored reply beside a fetch for its key.
#[derive(Clone, Copy, Debug)]
pub struct Stored<'a> {
    /// What it is.
    pub meta: &'a Meta<'a>,
    /// What it is for.
    pub role: Role,
}

/// What a stored reply is for in a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The request carries its validators (`conditional::set_conditions`). It also stands in.
    Validated,
    /// It stands in for an error.
    StandIn,
    /// Neither: upstream said that it has another one, or was asked for a part of it.
    Doubtful,
}

/// What came of asking one upstream.
#[derive(Clone, Copy, Debug)]
pub enum Came<'a> {
    /// The head of a reply, as it came.
    Reply(&'a Exchange<'a>),
    /// None, or one that broke off in its head.
    Nothing {
        /// There is another upstream, or another connection, that the request may be sent to.
        can_go_on: bool,
    },
    /// Another request for the same key was answered so by upstream, and this one waited for it.
    Shared(Failure),
    /// This proxy, or the client's own body, is the reason: no other upstream would do better, and what is stored must not
    /// hide it.
    Refused,
}

/// What to do with what came of a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseAction {
    /// Ask the next upstream.
    NextUpstream,
    /// What is stored holds: merge the fields (`update::merge`, `update::refresh`) and serve it.
    Merge,
    /// Upstream confirms what is not here: ask again, without conditions (`conditional::clear_conditions`).
    RetryUnconditional,
    /// Serve what is stored (RFC 5861 section 4).
    ServeStale {
        /// For the Age field, in seconds.
        age_s: u32,
        /// What it stands in for.
        failure: Failure,
    },
    /// Pass the reply on, and store it.
    Store {
        /// What to remember of it.
        facts: StoredFacts,
        /// What is stored is not what upstream has any more: drop it, if this is not stored after all.
        supersedes: bool,
    },
    /// Pass the reply on.
    PassOn {
        /// Why it is not stored. Nothing when it is for other reasons than the standard's.
        refusal: Option<Refusal>,
        /// What is stored is not what upstream has any more: drop it.
        supersedes: bool,
    },
    /// Answer 504: what is stored may not be used unvalidated (RFC 9111 section 5.2.2.2).
    GatewayTimeout,
    /// Tell the client that there is no reply.
    NoReply,
}

/// Decides.
pub fn decide_response(
    request: &Request<'_>,
    stored: Option<Stored<'_>>,
    came: Came<'_>,
    policy: &Policy,
    now: WallSeconds,
) -> ResponseAction {
    let exchange = match came {
        Came::Nothing { can_go_on: true } => return ResponseAction::NextUpstream,
        Came::Nothing { can_go_on: false } => {
            return match stands_in(request, stored, Failure::NoReply, policy, now) {
                Some(OnError::ServeStale { age_s }) => {
                    ResponseAction::ServeStale { age_s, failure: Failure::NoReply }
                }
                Some(OnError::GatewayTimeout) => ResponseAction::GatewayTimeout,
                Some(OnError::PassOn) | None => ResponseAction::NoReply,
            };
        }
        Came::Shared(failure) => {
            return match stands_in(request, stored, failure, policy, now) {
                Some(OnError::ServeStale { age_s }) => ResponseAction::ServeStale { age_s, failure },
                Some(OnError::GatewayTimeout) => ResponseAction::GatewayTimeout,
                Some(OnError::PassOn) | None => ResponseAction::NextUpstream,
            };
        }
        Came::Refused => return ResponseAction::NoReply,
        Came::Reply(exchange) => exchange,
    };
    if reuse::is_error_status(exchange.status)
        && let Some(OnError::ServeStale { age_s }) =
            stands_in(request, stored, Failure::ErrorStatus, policy, now)
    {
        return ResponseAction::ServeStale { age_s, failure: Failure::ErrorStatus };
    }
    if exchange.status == StatusCode::NOT_MODIFIED
        && let Some(Stored { meta, role: Role::Validated }) = stored
    {
        return match update::identify(&[*meta], 0, exchange.headers, policy) {
            Confirmed::This(_) => ResponseAction::Merge,
            Confirmed::None => ResponseAction::RetryUnconditional,
        };
    }
    store_or_pass_on(request, stored, exchange, policy)
}

fn stands_in(
    request: &Request<'_>,
    stored: Option<Stored<'_>>,
    failure: Failure,
    policy: &Policy,
    now: WallSeconds,
) -> Option<OnError> {
    let stored = stored.filter(|stored| stored.role != Role::Doubtful)?;
    Some(reuse::on_error(request.facts, &stored.meta.facts, failure, policy, now))
}

fn store_or_pass_on(
    request: &Request<'_>,
    stored: Option<Stored<'_>>,
    exchange: &Exchange<'_>,
    policy: &Policy,
) -> ResponseAction {
    let status = exchange.status;
    let is_another = status != StatusCode::PARTIAL_CONTENT && !reuse::is_error_status(status);
    let supersedes = stored.is_some() && *request.method == Method::GET && is_another;
    let pass_on = |refusal| ResponseAction::PassOn { refusal, supersedes };
    if *request.method == Method::HEAD || (request.has_body && request.facts.method.may_be_served()) {
        return pass_on(None);
    }
    let has_whole = stored.is_some_and(|stored| !stored.meta.facts.is_part());
    match storing::judge(exchange, policy) {
        Ok(facts) if facts.status == StatusCode::PARTIAL_CONTENT && has_whole => pass_on(None),
        Ok(facts) => ResponseAction::Store { facts, supersedes },
        Err(refusal) => pass_on(Some(refusal)),
    }
}
