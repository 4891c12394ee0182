//! What a proxy does with the outcome of a fetch: the second of its two decisions. The first is [`super::decide`].
//!
//! ```text
//! request, stored reply, outcome, policy, now ─> decide_response ─>
//!
//! NextUpstream         try the next upstream
//! Merge                304 to our conditions: update the stored fields (`update`) and serve the stored reply
//! RetryUnconditional   304 that validates something else: request again without conditions
//! ServeStale           upstream failed: the stored reply stands in
//! Store, PassOn        a new reply: to the client, and into the store or not
//! GatewayTimeout       upstream failed, and the stored reply may not stand in
//! NoReply              upstream failed, and nothing is stored
//! ```
//!
//! Always holds: a stored reply stands in only for a failure, and only within its time. A part never replaces a complete reply. A reply
//! to a HEAD, or to a request with a body, is not stored.
//! Not here: other keys that a reply invalidates (`invalidation`), a HEAD that updates a stored reply (`update`), whether storing
//! pays.

use http::{Method, StatusCode};

use super::decide::Request;
use super::facts::{Meta, StoredFacts};
use super::policy::Policy;
use super::reuse::{self, Failure, OnError};
use super::storing::{self, Exchange, Refusal};
use super::update::{self, Confirmed};
use crate::fields::date::WallSeconds;

/// A stored reply that takes part in a fetch for its key.
#[derive(Clone, Copy, Debug)]
pub struct Stored<'a> {
    /// Its facts.
    pub meta: &'a Meta<'a>,
    /// Its part in the fetch.
    pub role: Role,
}

/// The part of a stored reply in a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The request carries its validators (`conditional::set_conditions`). It may also stand in for an error.
    Validated,
    /// It may stand in for an error.
    StandIn,
    /// Neither: upstream has indicated another reply, or was asked for part of one.
    Doubtful,
}

/// The outcome of a request to one upstream.
#[derive(Clone, Copy, Debug)]
pub enum FetchOutcome<'a> {
    /// The head of a reply, as received.
    Reply(&'a Exchange<'a>),
    /// No reply, or one that broke off in its head.
    NoReply {
        /// Whether the request may be sent to another upstream, or on another connection.
        can_retry: bool,
    },
    /// This request waited for another one with the same key, which failed in this way.
    CollapsedFailure(Failure),
    /// This proxy, or the client's own body, is the cause. No other upstream would help, and a stored reply must not hide it.
    RefusedHere,
}

/// What to do with the outcome of a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseAction {
    /// Try the next upstream.
    NextUpstream,
    /// The stored reply is valid: merge the fields (`update::merge`, `update::refresh`) and serve it.
    Merge,
    /// Upstream validated something that is not stored: request again without conditions (`conditional::clear_conditions`).
    RetryUnconditional,
    /// Serve the stored reply (RFC 5861 section 4).
    ServeStale {
        /// For the Age field, in seconds.
        age_s: u32,
        /// What it stands in for.
        failure: Failure,
    },
    /// Pass the reply on, and store it.
    Store {
        /// The facts to store with it.
        facts: StoredFacts,
        /// Whether the stored reply is outdated: remove it if the new one is not stored after all.
        supersedes: bool,
    },
    /// Pass the reply on without storing it.
    PassOn {
        /// Why not; `None` for reasons other than the standard's.
        refusal: Option<Refusal>,
        /// Whether the stored reply is outdated: remove it.
        supersedes: bool,
    },
    /// Answer 504: the stored reply may not be used without validation (RFC 9111 section 5.2.2.2).
    GatewayTimeout,
    /// Answer with an error: there is no reply.
    NoReply,
}

/// Decides what to do with the outcome of a fetch.
pub fn decide_response(
    request: &Request<'_>,
    stored: Option<Stored<'_>>,
    outcome: FetchOutcome<'_>,
    policy: &Policy,
    now: WallSeconds,
) -> ResponseAction {
    let exchange = match outcome {
        FetchOutcome::NoReply { can_retry: true } => return ResponseAction::NextUpstream,
        FetchOutcome::NoReply { can_retry: false } => {
            return match stands_in(request, stored, Failure::NoReply, policy, now) {
                Some(OnError::ServeStale { age_s }) => {
                    ResponseAction::ServeStale { age_s, failure: Failure::NoReply }
                }
                Some(OnError::GatewayTimeout) => ResponseAction::GatewayTimeout,
                Some(OnError::PassOn) | None => ResponseAction::NoReply,
            };
        }
        FetchOutcome::CollapsedFailure(failure) => {
            return match stands_in(request, stored, failure, policy, now) {
                Some(OnError::ServeStale { age_s }) => ResponseAction::ServeStale { age_s, failure },
                Some(OnError::GatewayTimeout) => ResponseAction::GatewayTimeout,
                Some(OnError::PassOn) | None => ResponseAction::NextUpstream,
            };
        }
        FetchOutcome::RefusedHere => return ResponseAction::NoReply,
        FetchOutcome::Reply(exchange) => exchange,
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
