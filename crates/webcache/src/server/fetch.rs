//! Sends a request upstream and handles the reply: stored, merged into a stored reply, or passed on.
//!
//! ```text
//! request ─ strip, Via, conditions ─> sibling with an ICP hit ─> parents, or the origins of the site, in order
//! no reply ──────────────────────────> stored reply stands in, or 504, or 502
//! 304 that validates the stored reply ─> merge, write, serve as stored    304 with another tag ─> retry without conditions
//! reply that may be stored ──────────> StreamingReply and body relay      any other ─> passed on as it arrives
//! ```
//!
//! Always holds: a reply is judged by its fields as received. Invalidation takes effect before the client sees the reply. A 304
//! updates the very object whose validators were sent, or none. Proxy-Authorization is sent to proxies only.

pub(super) mod body_relay;
pub(super) mod collapsing;
pub(super) mod completing;
pub(super) mod streaming_reply;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use http::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_RANGE, HOST, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHORIZATION,
    RANGE, TRANSFER_ENCODING,
};
use http::uri::PathAndQuery;
use http::{Method, Response, StatusCode, Uri};
use http_cache_rules::cache_status::CacheStatus;
use http_cache_rules::conditional::{self, Outcome as Conditions};
use http_cache_rules::forwarding;
use http_cache_rules::response::{FetchOutcome, ResponseAction, Role, Stored, decide_response};
use http_cache_rules::reuse::{Failure, ForwardReason};
use http_cache_rules::update::{self, HeadSays};
use http_cache_rules::{Exchange, Meta, Refusal, StoredFacts, facts, invalidation, lists, ranges};

use crate::config::{Admission, Choice, ForwardedFor, Upstream};
use crate::object_cache::{NewHead, Precondition, StoredBody, StoredReply, encode_reply};
use crate::server::answer::driver::{LookUpAt, Lookup};
use crate::server::answer::handler::{At, RequestHandler, received};
use crate::server::answer::reply::{X_REQUEST_ID, hexadecimal, plain};
use crate::server::answer::stored::Served;
use crate::server::client::parsed_request::{Route, Side};
use crate::server::client::reply_body::ReplyBody;
use crate::server::counters::Outcome;
use crate::server::fetch::body_relay::{RelayInput, StoragePlan, expires_s};
use crate::server::fetch::collapsing::FetchGuard;
use crate::server::fetch::completing::CompletedPart;
use crate::server::fetch::streaming_reply::{FetchResult, SharedHead};
use crate::server::peers::neighbours::IcpResult;
use crate::server::upstream::connection::ArrivingBody;
use crate::server::upstream::request::{RequestBody, RequestHead};
use crate::server::upstream::{Attempts, NamedBy, UpstreamError};
use crate::server::worker::now;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

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

    /// The request fields to send upstream. Releases the buffer that the client's head was read into.
    pub(super) fn forwarded_headers(&mut self) -> HeaderMap {
        self.release_read_buffer();
        let mut headers = self.parsed().headers.clone();
        forwarding::strip_hop_by_hop(&mut headers);
        if matches!(self.parsed().method, Method::OPTIONS | Method::TRACE) {
            forwarding::count_forwards(&mut headers);
        }
        forwarding::add_via(&mut headers, received(self.parsed().version), &self.config().via);
        let host = match &self.parsed().route {
            Route::Site(site) => self.config().sites[*site].host.as_ref(),
            Route::Direct(_) => None,
        };
        let host = host
            .or(self.parsed().target.authority())
            .map(|authority| HeaderValue::from_str(authority.as_str()));
        if let Some(Ok(host)) = host {
            headers.insert(HOST, host);
        }
        headers.entry(X_REQUEST_ID).or_insert_with(|| hexadecimal(self.request_id()));
        if let Side::Reverse { tls } = self.side() {
            self.forwarded_for(&mut headers);
            headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(if tls { "https" } else { "http" }));
        }
        headers
    }

    /// Sets X-Forwarded-For as the operator configured it.
    fn forwarded_for(&self, headers: &mut HeaderMap) {
        let how = self.config().reverse.forwarded_for;
        if matches!(how, ForwardedFor::Replace | ForwardedFor::Remove) {
            headers.remove(X_FORWARDED_FOR);
        }
        if matches!(how, ForwardedFor::Append | ForwardedFor::Replace)
            && let Ok(client) = HeaderValue::from_str(&self.client().to_canonical().to_string())
        {
            headers.append(X_FORWARDED_FOR, client);
        }
    }

    /// The upstreams to try, in order; true for those that are used as a proxy.
    fn candidates(&self, neighbours: &IcpResult) -> Vec<(Upstream, bool)> {
        let pool = &self.worker().pool;
        let mut found: Vec<(Upstream, bool)> = match &self.parsed().route {
            Route::Site(site) => {
                let origins = &self.config().sites[*site].origins;
                let first =
                    if origins.len() > 1 { self.worker().next_origin_index() % origins.len() } else { 0 };
                let turned = origins[first..].iter().chain(&origins[..first]);
                turned.map(|origin| (origin.clone(), false)).collect()
            }
            Route::Direct(origin) => {
                let mut parents: Vec<Upstream> =
                    self.config().parents.iter().map(|parent| parent.upstream.clone()).collect();
                if self.config().parent_use.choose == Choice::Hash {
                    crate::server::peers::hashing::order(&mut parents, self.parsed().key.as_str());
                }
                let direct = self.config().parent_use.direct || parents.is_empty();
                let parents = parents.into_iter().map(|parent| (parent, true));
                let mut all: Vec<_> = parents.chain(direct.then(|| (origin.clone(), false))).collect();
                if let Some((parent, false)) = &neighbours.hit {
                    all.sort_by_key(|(upstream, _)| upstream != parent);
                }
                // Skip caches that refuse ICP queries, as long as another upstream remains.
                if all.iter().any(|(upstream, _)| !neighbours.refusing.contains(upstream)) {
                    all.retain(|(upstream, as_proxy)| !as_proxy || !neighbours.refusing.contains(upstream));
                }
                all
            }
        };
        // Try upstreams that failed recently last, but do try them.
        if found.len() > 1 {
            found.sort_by_key(|(upstream, _)| !pool.is_up(upstream));
        }
        found
    }

    /// Tries one upstream after the other until one replies.
    pub(super) async fn send_to_upstreams(
        &mut self,
        mut headers: HeaderMap,
        body: RequestBody,
        neighbours: &IcpResult,
    ) -> Result<UpstreamReply, UpstreamError> {
        if let Some((sibling, true)) = &neighbours.hit
            && let Some(answer) = Box::pin(self.fetch_from_sibling(sibling, &headers)).await
        {
            return Ok(answer);
        }
        let repeatable = body.may_be_repeated(&self.parsed().method);
        let tries = if repeatable { self.config().upstream.retries as usize + 1 } else { 1 };
        let candidates = self.candidates(neighbours);
        let (mut body, mut attempts) = (Some(body), Attempts::new());
        // It is for a proxy that requires it; origins must not see the password.
        let password = headers.remove(PROXY_AUTHORIZATION);
        let mut head = RequestHead { method: self.parsed().method.clone(), uri: Uri::default(), headers };
        let tries = tries.max(if repeatable { candidates.len() } else { 1 });
        for (number, (upstream, as_proxy)) in candidates.iter().cycle().take(tries).enumerate() {
            head.uri = match as_proxy {
                true => self.parsed().target.clone(),
                false if self.parsed().server_wide => Uri::from_static("*"),
                false => origin_form(&self.parsed().target),
            };
            if let Some(password) = &password {
                if *as_proxy {
                    head.headers.insert(PROXY_AUTHORIZATION, password.clone());
                } else {
                    head.headers.remove(PROXY_AUTHORIZATION);
                }
            }
            if let Some(access_entry) = self.access_entry_mut() {
                access_entry.set_upstream(&upstream.host, *as_proxy);
            }
            let requested_at = now();
            let body = body.take().unwrap_or(RequestBody::Nothing);
            let named_by = match self.parsed().route {
                Route::Direct(_) if !as_proxy => NamedBy::Client,
                Route::Direct(_) | Route::Site(_) => NamedBy::Operator,
            };
            attempts.may_use_idle &= number < candidates.len();
            let sent = self.worker().pool.send(upstream, named_by, &head, body, self.config(), &mut attempts);
            match sent.await {
                Ok(mut reply) => {
                    if !head.headers.contains_key(RANGE) {
                        part_to_whole(&mut reply);
                    }
                    return Ok(UpstreamReply {
                        reply,
                        requested_at,
                        answered_at: now(),
                        of_sibling: false,
                        completed_part: None,
                    });
                }
                Err(error) => {
                    // An upstream that began a reply has acted on the request: only another one is tried after it.
                    let may_repeat = !attempts.reply_began || number + 1 < candidates.len();
                    let can_retry = number + 1 < tries && !error.is_final() && may_repeat;
                    let outcome = FetchOutcome::NoReply { can_retry };
                    if self.decide_response(None, Role::StandIn, outcome) != ResponseAction::NextUpstream {
                        return Err(error);
                    }
                    tracing::debug!(%error, "an upstream gave no reply");
                }
            }
        }
        Err(UpstreamError::Name { host: String::new() })
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

    /// The facts and fields of the stored reply, updated by a 304 or by the reply to a HEAD.
    fn merge_fields(
        &self,
        stored: &StoredReply,
        answer: &UpstreamReply,
    ) -> Option<(Result<StoredFacts, Refusal>, HeaderMap)> {
        let mut fields = stored.fields().ok()?;
        let mut news = answer.reply.headers().clone();
        forwarding::strip_hop_by_hop(&mut news);
        update::merge(&mut fields, &news);
        let old = stored.meta().facts;
        let exchange = self.exchange(answer, old.status, &fields);
        let refreshed = update::refresh(&old, &exchange, &self.config().policy);
        Some((refreshed, fields))
    }

    /// Writes the new head of a stored reply unless that was replaced meanwhile. For short bodies it is visible on return.
    async fn write_update(
        &self,
        stored: &StoredReply,
        facts: StoredFacts,
        fields: &mut HeaderMap,
        answer: &UpstreamReply,
    ) -> Vec<u8> {
        let facts_bytes = facts::meta_bytes(facts, fields, &self.parsed().headers);
        forwarding::storable_fields(fields);
        forwarding::add_date(fields, answer.answered_at);
        let shared = &self.worker().shared;
        let banned =
            shared.bans.covers_since(self.bans_seen(), self.parsed().key.as_str(), || Some(fields.clone()));
        if !banned && let Some(meta) = encode_reply(&facts_bytes, &fields.iter().collect::<Vec<_>>()) {
            let writers = shared.object_cache.writers();
            let (key, facts, expires_s) = (self.parsed().key.clone(), facts_bytes.clone(), expires_s(&facts));
            let head = Arc::new(NewHead { key, meta, facts, expires_s });
            let over = stored.version().clone();
            match &stored.body {
                StoredBody::Whole(body) => {
                    if let Some(put) =
                        writers.put(head, vec![body.clone()], Precondition::Unreplaced(over), false)
                    {
                        let _ = put.await;
                    }
                }
                // The body is copied in the background; until then requests revalidate the old head.
                StoredBody::Long(_) => drop(writers.replace_head(head, over)),
            }
        }
        facts_bytes
    }

    /// A 304 validated the stored reply: updates and serves it.
    async fn confirmed(
        &mut self,
        stored: Box<StoredReply>,
        answer: UpstreamReply,
        why: ForwardReason,
        guard: Option<FetchGuard>,
    ) -> Response<ReplyBody> {
        let Some((refreshed, mut fields)) = self.merge_fields(&stored, &answer) else {
            return self.gateway_timeout("the stored reply cannot be read");
        };
        let old = stored.meta().facts;
        let facts_bytes = match refreshed {
            Ok(facts) => self.write_update(&stored, facts, &mut fields, &answer).await,
            Err(refusal) => {
                if refusal != Refusal::RequestNoStore {
                    let _ = self.worker().shared.object_cache.writers().remove(&self.parsed().key).await;
                }
                let facts_bytes = facts::meta_bytes(old, &fields, &self.parsed().headers);
                forwarding::storable_fields(&mut fields);
                facts_bytes
            }
        };
        if let Some(guard) = guard {
            guard.in_store();
        }
        let name = self.config().proxy.name.clone();
        let status = CacheStatus {
            forward_status: Some(StatusCode::NOT_MODIFIED.as_u16()),
            stored: refreshed.is_ok(),
            ..CacheStatus::forwarded(&name, why)
        };
        let Ok(meta) = Meta::from_bytes(&facts_bytes) else {
            return self.gateway_timeout("the stored reply cannot be read");
        };
        let age_s = meta.facts.age_s(now());
        let (_, body) = stored.into_parts();
        let served = self.serve_parts(&meta, fields, body, age_s, Outcome::Revalidated, &status);
        served.unwrap_or_else(|| self.gateway_timeout("the requested range is not stored"))
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

    /// Applies the reply to a HEAD to the stored reply to a GET (RFC 9111 section 4.3.5).
    async fn apply_head_reply(&self, answer: &UpstreamReply) {
        let object_cache = &self.worker().shared.object_cache;
        let Lookup::Reply(stored) = self.look_up(LookUpAt::AfterHead).await else { return };
        match update::head_says(&stored.meta(), answer.reply.status(), answer.reply.headers()) {
            HeadSays::Same => {
                if let Some((Ok(facts), mut fields)) = self.merge_fields(&stored, answer) {
                    self.write_update(&stored, facts, &mut fields, answer).await;
                }
            }
            HeadSays::Other => drop(object_cache.writers().remove(&self.parsed().key).await),
            HeadSays::Nothing => {}
        }
    }
}

/// Turns an unrequested 206 that holds the complete content into a 200 (RFC 9111 section 3.3).
fn part_to_whole(reply: &mut Response<ArrivingBody>) {
    let mut lines = reply.headers().get_all(CONTENT_RANGE).iter();
    let range = lines.next().and_then(|line| ranges::content_range(line.as_bytes()));
    let announced = reply.headers().get(CONTENT_LENGTH).and_then(|line| lists::byte_count(line.as_bytes()));
    let is_whole = lines.next().is_none()
        && range.is_some_and(|range| range.is_whole() && announced.is_none_or(|bytes| bytes == range.length));
    if reply.status() == StatusCode::PARTIAL_CONTENT && is_whole {
        *reply.status_mut() = StatusCode::OK;
        reply.headers_mut().remove(CONTENT_RANGE);
    }
}

fn origin_form(target: &Uri) -> Uri {
    let path = target.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    Uri::from(path)
}
