//! Sends a request upstream and handles the reply: stored, merged into a stored reply, or passed on.
//!
//! ```text
//! request ─ strip, Via, conditions ─> sibling with an ICP hit ─> parents, or the origins of the site, in order
//! no reply ──────────────────────────> stored reply stands in, or 504, or 502
//! 304 that validates the stored reply ─> merge, write, serve as stored    304 with another tag ─> retry without conditions
//! reply that may be stored ──────────> StreamingReply and body relay      any other ─> passed on as it arrives
//! ```
//!
//! Always holds: a reply is judged by its fields as received. Invalidation takes effect before the client sees the reply.
//! Not here: the upstreams and the attempts (`sending`), what a 304 changes (`updating`).

pub(super) mod body_relay;
pub(super) mod collapsing;
pub(super) mod completing;
mod sending;
pub(super) mod streaming_reply;
mod updating;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use http::header::{CONNECTION, CONTENT_LENGTH, HeaderMap, HeaderValue, TRANSFER_ENCODING};
use http::{Method, Response, StatusCode};
use http_cache_rules::cache_status::CacheStatus;
use http_cache_rules::conditional::{self, Outcome as Conditions};
use http_cache_rules::forwarding;
use http_cache_rules::response::{FetchOutcome, ResponseAction, Role, Stored, decide_response};
use http_cache_rules::reuse::{Failure, ForwardReason};
use http_cache_rules::{Exchange, Meta, StoredFacts, facts, invalidation, lists, ranges};

use crate::config::Admission;
use crate::object_cache::{NewHead, StoredReply, encode_reply};
use crate::server::answer::handler::{At, RequestHandler};
use crate::server::answer::reply::plain;
use crate::server::answer::stored::Served;
use crate::server::client::parsed_request::Side;
use crate::server::client::reply_body::ReplyBody;
use crate::server::counters::Outcome;
use crate::server::fetch::body_relay::{RelayInput, StoragePlan, expires_s};
use crate::server::fetch::collapsing::FetchGuard;
use crate::server::fetch::completing::CompletedPart;
use crate::server::fetch::streaming_reply::{FetchResult, SharedHead};
use crate::server::peers::neighbours::IcpResult;
use crate::server::upstream::UpstreamError;
use crate::server::upstream::connection::ArrivingBody;
use crate::server::upstream::request::RequestBody;
use crate::server::worker::now;

/// The head of an upstream reply, with the times of request and reply.
pub(super) struct UpstreamReply {
    pub(super) reply: Response<ArrivingBody>,
    pub(super) requested_at: At,
    pub(super) answered_at: At,
    /// It came from a sibling's cache.
    pub(super) of_sibling: bool,
    /// Set when the body is only what a stored part lacked; status and fields already describe both together.
    pub(super) completed_part: Option<CompletedPart>,
}

/// What a fetch brought, owned.
enum ReceivedOutcome<'a> {
    Reply(Exchange<'a>),
    Error { is_refusal: bool },
}

impl ReceivedOutcome<'_> {
    fn as_fetch_outcome(&self) -> FetchOutcome<'_> {
        match self {
            ReceivedOutcome::Reply(exchange) => FetchOutcome::Reply(exchange),
            // A stored reply must not stand in for a destination that clients may not reach.
            ReceivedOutcome::Error { is_refusal: true } => FetchOutcome::RefusedHere,
            ReceivedOutcome::Error { is_refusal: false } => FetchOutcome::NoReply { can_retry: false },
        }
    }
}

/// What to do with the store when a reply goes to the client.
pub(super) struct StorageDecision {
    /// The facts to store, if the rules allow storing.
    store: Option<StoredFacts>,
    /// Remove the stored reply, unless this one replaces it.
    supersedes: bool,
}

impl StorageDecision {
    fn of(action: ResponseAction) -> Self {
        match action {
            ResponseAction::Store { facts, supersedes } => Self { store: Some(facts), supersedes },
            ResponseAction::PassOn { supersedes, .. } => Self { store: None, supersedes },
            // The other actions never pass a reply on.
            _ => Self { store: None, supersedes: false },
        }
    }
}

impl RequestHandler {
    /// Sends the request upstream, with the validators of `stored` if there are any, and answers the client. A guard obliges this
    /// fetch to publish a result for the requests that wait. Boxed, so that the future of a hit needs no space for it.
    pub(super) fn fetch(
        &mut self,
        stored: Option<Box<StoredReply>>,
        why: ForwardReason,
        guard: Option<FetchGuard>,
        body: RequestBody,
    ) -> Pin<Box<impl Future<Output = Response<ReplyBody>>>> {
        Box::pin(self.fetch_in_place(stored, why, guard, body))
    }

    async fn fetch_in_place(
        &mut self,
        stored: Option<Box<StoredReply>>,
        why: ForwardReason,
        guard: Option<FetchGuard>,
        body: RequestBody,
    ) -> Response<ReplyBody> {
        self.note_epoch();
        let mut headers = self.forwarded_headers();
        if self.has_body()
            && self.parsed().facts.method.may_be_served()
            && !headers.contains_key(CONTENT_LENGTH)
        {
            // Without it, hyper would assume that there is no body.
            headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
        }
        let role = match &stored {
            Some(stored) if stored.meta().facts.has_validator() => Role::Validated,
            _ => Role::StandIn,
        };
        let unconditional = match &stored {
            Some(stored) if role == Role::Validated => {
                conditional::set_conditions(&mut headers, &stored.meta());
                let mut headers = headers.clone();
                conditional::clear_conditions(&mut headers);
                Some(headers)
            }
            _ => None,
        };
        let found = self.neighbours(why).await;
        let mut answer = self.send_to_upstreams(headers, body, &found).await;
        let mut action =
            self.decide_response(stored.as_deref(), role, self.received(&answer).as_fetch_outcome());
        if let (ResponseAction::RetryUnconditional, Some(headers)) = (action, unconditional) {
            answer = self.send_to_upstreams(headers, RequestBody::Nothing, &IcpResult::default()).await;
            action = self.decide_response(
                stored.as_deref(),
                Role::Doubtful,
                self.received(&answer).as_fetch_outcome(),
            );
        }
        match (action, answer, stored) {
            (ResponseAction::ServeStale { age_s, failure }, _, Some(stored)) => {
                let reply = self.serve_stale(*stored, age_s, failure, why);
                guard.into_iter().for_each(|guard| guard.failed(failure));
                reply
            }
            (ResponseAction::GatewayTimeout, answer, _) => {
                let cause = answer.err().map(|error| self.cause_for_client(&error));
                let reply = self.stale_forbidden(cause.as_deref());
                guard.into_iter().for_each(|guard| guard.failed(Failure::NoReply));
                reply
            }
            (ResponseAction::Merge, Ok(answer), Some(stored)) => {
                self.confirmed(stored, answer, why, guard).await
            }
            (action, Ok(answer), stored) => {
                self.pass_on(answer, StorageDecision::of(action), stored, why, guard).await
            }
            (_, Err(error), _) => self.no_reply(&error, why),
        }
    }

    /// The outcome as the caching rules take it.
    fn received<'a>(&'a self, answer: &'a Result<UpstreamReply, UpstreamError>) -> ReceivedOutcome<'a> {
        match answer {
            Ok(answer) => {
                ReceivedOutcome::Reply(self.exchange(answer, answer.reply.status(), answer.reply.headers()))
            }
            Err(error) => ReceivedOutcome::Error { is_refusal: error.is_refusal() },
        }
    }

    /// Decides what to do with an outcome. `stored` took part in the fetch in this role.
    pub(super) fn decide_response(
        &self,
        stored: Option<&StoredReply>,
        role: Role,
        outcome: FetchOutcome<'_>,
    ) -> ResponseAction {
        let meta = stored.map(StoredReply::meta);
        let stored = meta.as_ref().map(|meta| Stored { meta, role });
        decide_response(&self.request(), stored, outcome, &self.config().policy, now())
    }

    /// Decides about storing a reply to a request that carried no validators of ours.
    pub(super) fn storage_decision(
        &self,
        answer: &UpstreamReply,
        stored: Option<&StoredReply>,
        role: Role,
    ) -> StorageDecision {
        let exchange = self.exchange(answer, answer.reply.status(), answer.reply.headers());
        StorageDecision::of(self.decide_response(stored, role, FetchOutcome::Reply(&exchange)))
    }

    /// Why upstream gave no reply, as a client may know it. Clients of a site learn no address of its origins.
    fn cause_for_client(&self, error: &UpstreamError) -> String {
        let detail = measure::error_chain(error);
        if self.side() == Side::Forward || error.is_client_body() {
            return detail;
        }
        let shared = &self.worker().shared;
        if let Some(held_back) = shared.upstream_failures.pass(Instant::now()) {
            tracing::warn!(error = detail, failures_since = held_back, "a site's origin gave no reply");
        }
        match error {
            UpstreamError::Timeout { .. } => "the origin does not reply in time".to_owned(),
            UpstreamError::Connect { .. } | UpstreamError::Name { .. } => {
                "the origin cannot be reached".to_owned()
            }
            _ => "the origin gives no valid reply".to_owned(),
        }
    }

    /// The error reply to the client when upstream gave none.
    pub(super) fn no_reply(&mut self, error: &UpstreamError, why: ForwardReason) -> Response<ReplyBody> {
        let (status, outcome) = match error {
            UpstreamError::Timeout { .. } => (StatusCode::GATEWAY_TIMEOUT, Outcome::Failed),
            error if error.is_refusal() => (StatusCode::FORBIDDEN, Outcome::Denied),
            UpstreamError::BodyTooLong(_) => (StatusCode::PAYLOAD_TOO_LARGE, Outcome::Denied),
            UpstreamError::BodyStalled(_) | UpstreamError::BodyTooSlow(_) => {
                (StatusCode::REQUEST_TIMEOUT, Outcome::Failed)
            }
            UpstreamError::BodyBroken(_) => (StatusCode::BAD_REQUEST, Outcome::Denied),
            _ => (StatusCode::BAD_GATEWAY, Outcome::Failed),
        };
        let mut reply = plain(status, &self.cause_for_client(error));
        if error.is_client_body() {
            // The rest of the body may follow, and is not read.
            reply.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        let detail = if error.is_client_body() { "request body" } else { "no reply" };
        let status =
            CacheStatus { detail: Some(detail), ..CacheStatus::forwarded(&self.config().proxy.name, why) };
        status.append_to(reply.headers_mut());
        self.own(reply, outcome)
    }

    /// Serves the stored reply in place of a failed upstream.
    pub(super) fn serve_stale(
        &mut self,
        stored: StoredReply,
        age_s: u32,
        failure: Failure,
        why: ForwardReason,
    ) -> Response<ReplyBody> {
        let detail = if failure == Failure::NoReply { "no reply" } else { "origin error" };
        let name = self.config().proxy.name.clone();
        let status = CacheStatus { detail: Some(detail), ..CacheStatus::forwarded(&name, why) };
        let served = stored
            .fields()
            .ok()
            .and_then(|headers| self.serve(stored, headers, age_s, Outcome::StaleOnError, &status));
        served.unwrap_or_else(|| {
            self.gateway_timeout("the origin failed, and the requested range is not stored")
        })
    }

    /// 504: upstream failed, and the stored reply may not be used. `cause` is known when this request itself was sent upstream.
    pub(super) fn stale_forbidden(&mut self, cause: Option<&str>) -> Response<ReplyBody> {
        let cause = cause.unwrap_or("the origin sent no reply");
        self.gateway_timeout(&format!("{cause}; the stored reply may not be used without validation"))
    }

    /// The exchange as the caching rules take it.
    fn exchange<'a>(
        &'a self,
        answer: &UpstreamReply,
        status: StatusCode,
        headers: &'a HeaderMap,
    ) -> Exchange<'a> {
        Exchange {
            target: &self.parsed().target,
            request: &self.parsed().facts,
            request_headers: &self.parsed().headers,
            requested_at: answer.requested_at,
            answered_at: answer.answered_at,
            status,
            headers,
        }
    }

    /// Sends a new reply to the client, and to the store if `decision` says so.
    pub(super) async fn pass_on(
        &mut self,
        answer: UpstreamReply,
        storage_decision: StorageDecision,
        stored: Option<Box<StoredReply>>,
        why: ForwardReason,
        guard: Option<FetchGuard>,
    ) -> Response<ReplyBody> {
        let status = answer.reply.status();
        self.invalidate(&answer).await;
        if self.parsed().method == Method::HEAD && !self.has_body() {
            self.apply_head_reply(&answer).await;
        }
        let name = self.config().proxy.name.clone();
        let mut cache_status = CacheStatus {
            forward_status: Some(answer.status().as_u16()),
            ..CacheStatus::forwarded(&name, why)
        };
        let outcome = match (&stored, self.parsed().facts.method.may_be_served() && !self.has_body()) {
            (_, false) => Outcome::Pass,
            (Some(_), true) => Outcome::Refreshed,
            (None, true) => Outcome::Miss,
        };
        if answer.of_sibling {
            cache_status.detail = Some("sibling");
        }
        let UpstreamReply { reply, answered_at, completed_part, .. } = answer;
        let (parts, body) = reply.into_parts();
        let mut headers = parts.headers;
        forwarding::add_date(&mut headers, answered_at);
        let store = storage_decision.store.filter(|_| self.is_admitted());
        let plan = store.and_then(|facts| self.plan(facts, &headers));
        forwarding::strip_hop_by_hop(&mut headers);
        let page = self.page(status, &headers);
        // The range the client asked for, when that is not all of the body.
        let slice =
            completed_part.as_ref().and_then(|completed_part| completed_part.describe_wanted(&mut headers));
        let client_status = if slice.is_some() { StatusCode::PARTIAL_CONTENT } else { status };
        let (body, fetched) = match completed_part {
            Some(completed_part) => completed_part.body(body, self.config()),
            None => (ReplyBody::pass_through(body, self.config().upstream.reply_time), 0..u64::MAX),
        };
        let sliced = |body: ReplyBody| match slice {
            Some((skip, bytes)) => body.slice(skip, bytes),
            None => body,
        };
        let Some(plan) = plan else {
            if let Some(guard) = guard {
                guard.not_shared(self.config().collapse.pass);
            }
            if storage_decision.supersedes {
                // The origin has replaced the stored reply, and the new one is not stored.
                let _ = self.worker().shared.object_cache.writers().remove(&self.parsed().key).await;
            }
            cache_status.append_to(&mut headers);
            return self.reply(Served { status: client_status, headers, body: sliced(body) }, outcome);
        };
        let streaming = guard.as_ref().map_or_else(Arc::default, |guard| Arc::clone(&guard.streaming));
        let stored_head = Arc::clone(&plan.head);
        let (announced, bans_seen) = (plan.announced, plan.bans_seen);
        let head = SharedHead { status, stored: stored_head, announced, bans_seen };
        let unchanged = stored.is_some()
            && Meta::from_bytes(&plan.head.facts).is_ok_and(|meta| {
                conditional::evaluate(&self.parsed().headers, &meta, now()) == Conditions::NotModified
            });
        streaming.publish(FetchResult::Shared(Arc::new(head)));
        let reader = (!unchanged).then(|| streaming.own_reader());
        let shared = Arc::clone(&streaming);
        body_relay::start(
            self.worker(),
            self.config(),
            RelayInput { streaming, guard, plan, page, fetched },
            body,
        )
        .await;
        if let Some(reader) = &reader {
            reader.wait_for_first_bytes().await;
        }
        // The head of a long reply leaves before its body is stored; Cache-Status then says that it is being stored.
        match shared.findable() {
            Some(findable) => cache_status.stored = findable,
            None => cache_status.detail = cache_status.detail.or(Some("storing")),
        }
        cache_status.append_to(&mut headers);
        let Some(reader) = reader else {
            // The client's own conditions were not sent to the origin; evaluate them against the new reply.
            conditional::leave_for_304(&mut headers);
            let served = Served { status: StatusCode::NOT_MODIFIED, headers, body: ReplyBody::nothing() };
            return self.reply(served, outcome);
        };
        let body = sliced(ReplyBody::streamed(reader, announced));
        self.reply(Served { status: client_status, headers, body }, outcome)
    }

    /// How to store a reply; `None` when it is too long. The reply has a Date.
    fn plan(&self, facts: StoredFacts, reply: &HeaderMap) -> Option<StoragePlan> {
        let announced = reply.get(CONTENT_LENGTH).and_then(|line| lists::byte_count(line.as_bytes()));
        if announced.is_some_and(|bytes| bytes > self.config().cache.object_max_bytes) {
            return None;
        }
        let facts_bytes = facts::meta_bytes(facts, reply, &self.parsed().headers);
        let strong = ranges::strong_validator(&Meta::from_bytes(&facts_bytes).ok()?).is_some();
        let meta = encode_reply(&facts_bytes, &forwarding::storable(reply))?;
        let announced =
            if facts.status == StatusCode::PARTIAL_CONTENT { Some(facts.extent.length) } else { announced };
        let (key, expires_s) = (self.parsed().key.clone(), expires_s(&facts));
        let head = Arc::new(NewHead { key, meta, facts: facts_bytes, expires_s });
        let (epoch, bans_seen) = (self.epoch(), self.bans_seen());
        Some(StoragePlan { head, facts, epoch, bans_seen, strong, announced })
    }

    fn is_admitted(&self) -> bool {
        match self.config().cache.admission {
            // The page that embeds it was requested twice.
            Admission::Second if self.is_prefetch() => true,
            Admission::All => true,
            Admission::Second => self.worker().shared.admission_filter.note(&self.parsed().key),
        }
    }

    async fn invalidate(&mut self, answer: &UpstreamReply) {
        let (method, reply) = (self.parsed().facts.method, &answer.reply);
        for key in invalidation::invalidated(method, &self.parsed().target, reply.status(), reply.headers()) {
            let key = key.within(self.parsed().key.realm());
            self.note_own_invalidation(&key);
            crate::server::answer::handler::purge(&self.worker().shared, &key).await;
        }
    }
}
