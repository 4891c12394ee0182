//! What goes to the origin, and what becomes of its reply: stored, merged with what is stored, or passed on.
//!
//! ```text
//! request ─ strip, Via, conditions ─> a sibling that has it ─> parents, or the origins of the site, one after the other
//! no reply ─> what is stored stands in, 504, 502
//! 304 to our question ─> merge, write, serve as stored      of another tag ─> asked again without
//! may be stored ─> StreamingReply, relay                               may not ─> passed on as it comes
//! ```
//!
//! Always holds: a reply is judged by the fields that came; invalidation counts before the client hears of it; a 304 gives
//! new fields to the very object that was asked about, or to none; a password for a proxy goes to proxies alone.

pub(super) mod body_relay;
pub(super) mod collapsing;
pub(super) mod completing;
pub(super) mod streaming_reply;

use std::pin::Pin;
use std::sync::Arc;

use http::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_RANGE, HOST, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHORIZATION,
    RANGE, TRANSFER_ENCODING,
};
use http::uri::PathAndQuery;
use http::{Method, Response, StatusCode, Uri};
use http_cache_rules::cache_status::CacheStatus;
use http_cache_rules::conditional::{self, Outcome as Conditions};
use http_cache_rules::forwarding;
use http_cache_rules::response::{Came, ResponseAction, Role, Stored, decide_response};
use http_cache_rules::reuse::{Failure, ForwardReason};
use http_cache_rules::update::{self, HeadSays};
use http_cache_rules::{Exchange, Meta, Refusal, StoredFacts, facts, invalidation, lists, ranges};

use crate::config::{Admission, Choice, ForwardedFor, Upstream};
use crate::object_cache::{NewHead, Precondition, StoredBody, StoredReply, encode_reply};
use crate::server::answer::driver::{LookUp, Lookup};
use crate::server::answer::handler::{At, RequestHandler, received};
use crate::server::answer::reply::{X_REQUEST_ID, hexadecimal, plain};
use crate::server::answer::stored::Served;
use crate::server::client::parsed_request::{Route, Side};
use crate::server::client::reply_body::ReplyBody;
use crate::server::counters::Outcome;
use crate::server::fetch::body_relay::{Filling, Plan, expires_s};
use crate::server::fetch::collapsing::Guard;
use crate::server::fetch::completing::Joined;
use crate::server::fetch::streaming_reply::{FetchResult, SharedHead};
use crate::server::peers::neighbours::Found;
use crate::server::upstream::connection::ArrivingBody;
use crate::server::upstream::request::{RequestBody, RequestHead};
use crate::server::upstream::{NamedBy, UpstreamError};
use crate::server::worker::now;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// A reply's head with the times around it.
pub(super) struct Answer {
    pub(super) reply: Response<ArrivingBody>,
    pub(super) requested_at: At,
    pub(super) answered_at: At,
    /// Out of a sibling's store.
    pub(super) of_sibling: bool,
    /// Its body is what was missing of a stored part; status and fields are those of both together.
    pub(super) joined: Option<Joined>,
}

/// What came of a fetch.
enum CameAs<'a> {
    Reply(Exchange<'a>),
    Error { is_refusal: bool },
}

impl CameAs<'_> {
    fn as_came(&self) -> Came<'_> {
        match self {
            CameAs::Reply(exchange) => Came::Reply(exchange),
            // What is stored must not stand in for what clients may not reach.
            CameAs::Error { is_refusal: true } => Came::Refused,
            CameAs::Error { is_refusal: false } => Came::Nothing { can_go_on: false },
        }
    }
}

/// What is done with a reply that goes to the client.
pub(super) struct Verdict {
    /// What to remember of it, where the rules let it be stored.
    store: Option<StoredFacts>,
    /// What was stored is to be dropped, if this does not take its place.
    supersedes: bool,
}

impl Verdict {
    fn of(action: ResponseAction) -> Self {
        match action {
            ResponseAction::Store { facts, supersedes } => Self { store: Some(facts), supersedes },
            ResponseAction::PassOn { supersedes, .. } => Self { store: None, supersedes },
            // No reply that is passed on leads to another action.
            _ => Self { store: None, supersedes: false },
        }
    }
}

impl RequestHandler {
    /// Asks the origin, about what is stored if there is something, and answers the client. The guard, if there is one,
    /// stands for those who wait. Boxed: a hit needs no room for it.
    pub(super) fn fetch(
        &mut self,
        stored: Option<Box<StoredReply>>,
        why: ForwardReason,
        guard: Option<Guard>,
        body: RequestBody,
    ) -> Pin<Box<impl Future<Output = Response<ReplyBody>>>> {
        Box::pin(self.fetch_in_place(stored, why, guard, body))
    }

    async fn fetch_in_place(
        &mut self,
        stored: Option<Box<StoredReply>>,
        why: ForwardReason,
        guard: Option<Guard>,
        body: RequestBody,
    ) -> Response<ReplyBody> {
        self.epoch = self.worker.shared.collapse_table.epoch(&self.parsed.key);
        let mut headers = self.onward();
        if self.has_body && self.parsed.facts.method.may_be_served() && !headers.contains_key(CONTENT_LENGTH)
        {
            // Not said, hyper would take it for none, and the body for nothing.
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
        let mut answer = self.ask(headers, body, &found).await;
        let mut action = self.decide_response(stored.as_deref(), role, self.came(&answer).as_came());
        if let (ResponseAction::RetryUnconditional, Some(headers)) = (action, unconditional) {
            answer = self.ask(headers, RequestBody::Nothing, &Found::default()).await;
            action = self.decide_response(stored.as_deref(), Role::Doubtful, self.came(&answer).as_came());
        }
        match (action, answer, stored) {
            (ResponseAction::ServeStale { age_s, failure }, _, Some(stored)) => {
                let reply = self.serve_stale(*stored, age_s, failure, why);
                guard.into_iter().for_each(|guard| guard.failed(failure));
                reply
            }
            (ResponseAction::GatewayTimeout, answer, _) => {
                let cause = answer.err().map(|error| told(&error));
                let reply = self.may_not_stand_in(cause.as_deref());
                guard.into_iter().for_each(|guard| guard.failed(Failure::NoReply));
                reply
            }
            (ResponseAction::Merge, Ok(answer), Some(stored)) => {
                self.confirmed(stored, answer, why, guard).await
            }
            (action, Ok(answer), stored) => {
                self.pass_on(answer, Verdict::of(action), stored, why, guard).await
            }
            (_, Err(error), _) => self.no_reply(&error, why),
        }
    }

    /// What came, in the words of the rules.
    fn came<'a>(&'a self, answer: &'a Result<Answer, UpstreamError>) -> CameAs<'a> {
        match answer {
            Ok(answer) => CameAs::Reply(self.judged(answer, answer.reply.status(), answer.reply.headers())),
            Err(error) => CameAs::Error { is_refusal: error.is_refusal() },
        }
    }

    /// Decides what is done with what came; `stored` is what went along, for this role.
    pub(super) fn decide_response(
        &self,
        stored: Option<&StoredReply>,
        role: Role,
        came: Came<'_>,
    ) -> ResponseAction {
        let meta = stored.map(StoredReply::meta);
        let stored = meta.as_ref().map(|meta| Stored { meta, role });
        decide_response(&self.request(), stored, came, &self.config.policy, now())
    }

    /// What is done with a reply that answers none of our own questions.
    pub(super) fn verdict(&self, answer: &Answer, stored: Option<&StoredReply>, role: Role) -> Verdict {
        let exchange = self.judged(answer, answer.reply.status(), answer.reply.headers());
        Verdict::of(self.decide_response(stored, role, Came::Reply(&exchange)))
    }

    /// What the client is told when there is no reply.
    pub(super) fn no_reply(&mut self, error: &UpstreamError, why: ForwardReason) -> Response<ReplyBody> {
        let (status, outcome) = match error {
            UpstreamError::Late { .. } => (StatusCode::GATEWAY_TIMEOUT, Outcome::Failed),
            error if error.is_refusal() => (StatusCode::FORBIDDEN, Outcome::Denied),
            UpstreamError::TooLong(_) => (StatusCode::PAYLOAD_TOO_LARGE, Outcome::Denied),
            UpstreamError::Silent(_) | UpstreamError::TooSlow(_) => {
                (StatusCode::REQUEST_TIMEOUT, Outcome::Failed)
            }
            UpstreamError::Broken(_) => (StatusCode::BAD_REQUEST, Outcome::Denied),
            _ => (StatusCode::BAD_GATEWAY, Outcome::Failed),
        };
        let mut reply = plain(status, &told(error));
        if error.is_the_clients() {
            // More of it may follow, which nobody will read.
            reply.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        let detail = if error.is_the_clients() { "request body" } else { "no reply" };
        let status =
            CacheStatus { detail: Some(detail), ..CacheStatus::forwarded(&self.config.proxy.name, why) };
        status.append_to(reply.headers_mut());
        self.own(reply, outcome)
    }

    /// The client's fields as they go on; the buffer that they came in is let go.
    pub(super) fn onward(&mut self) -> HeaderMap {
        self.parsed.detach();
        let mut headers = self.parsed.headers.clone();
        forwarding::strip_hop_by_hop(&mut headers);
        if matches!(self.parsed.method, Method::OPTIONS | Method::TRACE) {
            forwarding::count_forwards(&mut headers);
        }
        forwarding::add_via(&mut headers, received(self.parsed.version), &self.config.via);
        let host = match &self.parsed.route {
            Route::Site(site) => self.config.sites[*site].host.as_ref(),
            Route::Direct(_) => None,
        };
        let host = host
            .or(self.parsed.target.authority())
            .map(|authority| HeaderValue::from_str(authority.as_str()));
        if let Some(Ok(host)) = host {
            headers.insert(HOST, host);
        }
        headers.entry(X_REQUEST_ID).or_insert_with(|| hexadecimal(self.request_id));
        if let Side::Reverse { tls } = self.side {
            self.forwarded_for(&mut headers);
            headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(if tls { "https" } else { "http" }));
        }
        headers
    }

    /// Tells the origin of a site who the client is, as far as the operator wants that.
    fn forwarded_for(&self, headers: &mut HeaderMap) {
        let how = self.config.reverse.forwarded_for;
        if matches!(how, ForwardedFor::Replace | ForwardedFor::Remove) {
            headers.remove(X_FORWARDED_FOR);
        }
        if matches!(how, ForwardedFor::Append | ForwardedFor::Replace)
            && let Ok(client) = HeaderValue::from_str(&self.client.to_canonical().to_string())
        {
            headers.append(X_FORWARDED_FOR, client);
        }
    }

    /// Who may be asked, in order; and whether as a proxy.
    fn candidates(&self, neighbours: &Found) -> Vec<(Upstream, bool)> {
        let pool = &self.worker.pool;
        let mut found: Vec<(Upstream, bool)> = match &self.parsed.route {
            Route::Site(site) => {
                let origins = &self.config.sites[*site].origins;
                let first = if origins.len() > 1 { self.worker.turn() % origins.len() } else { 0 };
                let turned = origins[first..].iter().chain(&origins[..first]);
                turned.map(|origin| (origin.clone(), false)).collect()
            }
            Route::Direct(origin) => {
                let mut parents: Vec<Upstream> =
                    self.config.parents.iter().map(|parent| parent.upstream.clone()).collect();
                if self.config.parent_use.choose == Choice::Hash {
                    crate::server::peers::hashing::order(&mut parents, self.parsed.key.as_str());
                }
                let direct = self.config.parent_use.direct || parents.is_empty();
                let parents = parents.into_iter().map(|parent| (parent, true));
                let mut all: Vec<_> = parents.chain(direct.then(|| (origin.clone(), false))).collect();
                if let Some((parent, false)) = &neighbours.hit {
                    all.sort_by_key(|(upstream, _)| upstream != parent);
                }
                // Those that do not want to be asked are not, as long as anybody else can be.
                if all.iter().any(|(upstream, _)| !neighbours.refusing.contains(upstream)) {
                    all.retain(|(upstream, as_proxy)| !as_proxy || !neighbours.refusing.contains(upstream));
                }
                all
            }
        };
        // Those that were down of late come last, but they come.
        if found.len() > 1 {
            found.sort_by_key(|(upstream, _)| !pool.is_up(upstream));
        }
        found
    }

    /// Asks one after the other until one replies.
    pub(super) async fn ask(
        &mut self,
        mut headers: HeaderMap,
        body: RequestBody,
        neighbours: &Found,
    ) -> Result<Answer, UpstreamError> {
        if let Some((sibling, true)) = &neighbours.hit
            && let Some(answer) = Box::pin(self.ask_sibling(sibling, &headers)).await
        {
            return Ok(answer);
        }
        let repeatable = body.may_be_repeated(&self.parsed.method);
        let tries = if repeatable { self.config.upstream.retries as usize + 1 } else { 1 };
        let candidates = self.candidates(neighbours);
        let mut body = Some(body);
        // Meant for a proxy that asks for it; the origin has no use for a password of ours.
        let password = headers.remove(PROXY_AUTHORIZATION);
        let mut head = RequestHead { method: self.parsed.method.clone(), uri: Uri::default(), headers };
        let tries = tries.max(if repeatable { candidates.len() } else { 1 });
        for (number, (upstream, as_proxy)) in candidates.iter().cycle().take(tries).enumerate() {
            head.uri = match as_proxy {
                true => self.parsed.target.clone(),
                false if self.parsed.of_server => Uri::from_static("*"),
                false => origin_form(&self.parsed.target),
            };
            if let Some(password) = &password {
                if *as_proxy {
                    head.headers.insert(PROXY_AUTHORIZATION, password.clone());
                } else {
                    head.headers.remove(PROXY_AUTHORIZATION);
                }
            }
            if let Some(ledger) = &mut self.ledger {
                ledger.asked(&upstream.host, *as_proxy);
            }
            let requested_at = now();
            let body = body.take().unwrap_or(RequestBody::Nothing);
            let named_by = match self.parsed.route {
                Route::Direct(_) if !as_proxy => NamedBy::Client,
                Route::Direct(_) | Route::Site(_) => NamedBy::Operator,
            };
            match self.worker.pool.send(upstream, named_by, &head, body, &self.config).await {
                Ok(mut reply) => {
                    if !head.headers.contains_key(RANGE) {
                        part_to_whole(&mut reply);
                    }
                    return Ok(Answer {
                        reply,
                        requested_at,
                        answered_at: now(),
                        of_sibling: false,
                        joined: None,
                    });
                }
                Err(error) => {
                    let can_go_on = number + 1 < tries && !error.is_final();
                    let action = self.decide_response(None, Role::StandIn, Came::Nothing { can_go_on });
                    if action != ResponseAction::NextUpstream {
                        return Err(error);
                    }
                    tracing::debug!(%error, "asked in vain");
                }
            }
        }
        Err(UpstreamError::Name { host: String::new() })
    }

    /// What is stored stands in for an origin that fails.
    pub(super) fn serve_stale(
        &mut self,
        stored: StoredReply,
        age_s: u32,
        failure: Failure,
        why: ForwardReason,
    ) -> Response<ReplyBody> {
        let detail = if failure == Failure::NoReply { "no reply" } else { "origin error" };
        let name = self.config.proxy.name.clone();
        let status = CacheStatus { detail: Some(detail), ..CacheStatus::forwarded(&name, why) };
        let served = stored
            .fields()
            .ok()
            .and_then(|headers| self.serve(stored, headers, age_s, Outcome::StaleOnError, &status));
        served.unwrap_or_else(|| {
            self.gateway_timeout("the origin fails, and what is stored is not what was asked for")
        })
    }

    /// The origin fails, and what is stored is of no use. `cause`: when it was asked for this request.
    pub(super) fn may_not_stand_in(&mut self, cause: Option<&str>) -> Response<ReplyBody> {
        let cause = cause.unwrap_or("the origin gives no reply");
        self.gateway_timeout(&format!("{cause}; and what is stored may not be used unvalidated"))
    }

    fn judged<'a>(&'a self, answer: &Answer, status: StatusCode, headers: &'a HeaderMap) -> Exchange<'a> {
        Exchange {
            target: &self.parsed.target,
            request: &self.parsed.facts,
            request_headers: &self.parsed.headers,
            requested_at: answer.requested_at,
            answered_at: answer.answered_at,
            status,
            headers,
        }
    }

    /// The stored reply's new facts and fields after a 304 or a HEAD.
    fn merged(
        &self,
        stored: &StoredReply,
        answer: &Answer,
    ) -> Option<(Result<StoredFacts, Refusal>, HeaderMap)> {
        let mut fields = stored.fields().ok()?;
        let mut news = answer.reply.headers().clone();
        forwarding::strip_hop_by_hop(&mut news);
        update::merge(&mut fields, &news);
        let old = stored.meta().facts;
        let judged = self.judged(answer, old.status, &fields);
        let refreshed = update::refresh(&old, &judged, &self.config.policy);
        Some((refreshed, fields))
    }

    /// Writes a stored reply's new head, if nothing else lies there by then. Short ones count when this returns.
    async fn write_update(
        &self,
        stored: &StoredReply,
        facts: StoredFacts,
        fields: &mut HeaderMap,
        answer: &Answer,
    ) -> Vec<u8> {
        let facts_bytes = facts::meta_bytes(facts, fields, &self.parsed.headers);
        forwarding::storable_fields(fields);
        forwarding::add_date(fields, answer.answered_at);
        let shared = &self.worker.shared;
        let banned =
            shared.bans.covers(self.parsed.key.as_str(), answer.requested_at, || Some(fields.clone()));
        if !banned && let Some(meta) = encode_reply(&facts_bytes, &fields.iter().collect::<Vec<_>>()) {
            let writers = shared.object_cache.writers();
            let (key, facts, expires_s) = (self.parsed.key.clone(), facts_bytes.clone(), expires_s(&facts));
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
                // Copied in the background: until then it is asked about again.
                StoredBody::Pieces(_) => drop(writers.replace_head(head, over)),
            }
        }
        facts_bytes
    }

    /// The origin said that what is stored holds.
    async fn confirmed(
        &mut self,
        stored: Box<StoredReply>,
        answer: Answer,
        why: ForwardReason,
        guard: Option<Guard>,
    ) -> Response<ReplyBody> {
        let Some((refreshed, mut fields)) = self.merged(&stored, &answer) else {
            return self.gateway_timeout("what is stored cannot be read");
        };
        let old = stored.meta().facts;
        let facts_bytes = match refreshed {
            Ok(facts) => self.write_update(&stored, facts, &mut fields, &answer).await,
            Err(refusal) => {
                if refusal != Refusal::RequestNoStore {
                    let _ = self.worker.shared.object_cache.writers().remove(&self.parsed.key).await;
                }
                let facts_bytes = facts::meta_bytes(old, &fields, &self.parsed.headers);
                forwarding::storable_fields(&mut fields);
                facts_bytes
            }
        };
        if let Some(guard) = guard {
            guard.in_store();
        }
        let name = self.config.proxy.name.clone();
        let status = CacheStatus {
            forward_status: Some(StatusCode::NOT_MODIFIED.as_u16()),
            stored: refreshed.is_ok(),
            ..CacheStatus::forwarded(&name, why)
        };
        let Ok(meta) = Meta::from_bytes(&facts_bytes) else {
            return self.gateway_timeout("what is stored cannot be read");
        };
        let age_s = meta.facts.age_s(now());
        let (_, body) = stored.into_parts();
        let served = self.serve_parts(&meta, fields, body, age_s, Outcome::Revalidated, &status);
        served.unwrap_or_else(|| self.gateway_timeout("a part was asked for that is not stored"))
    }

    /// A new reply.
    pub(super) async fn pass_on(
        &mut self,
        answer: Answer,
        verdict: Verdict,
        stored: Option<Box<StoredReply>>,
        why: ForwardReason,
        guard: Option<Guard>,
    ) -> Response<ReplyBody> {
        let status = answer.reply.status();
        self.invalidate(&answer).await;
        if self.parsed.method == Method::HEAD && !self.has_body {
            self.after_head(&answer).await;
        }
        let name = self.config.proxy.name.clone();
        let mut told = CacheStatus {
            forward_status: Some(answer.status().as_u16()),
            ..CacheStatus::forwarded(&name, why)
        };
        let outcome = match (&stored, self.parsed.facts.method.may_be_served() && !self.has_body) {
            (_, false) => Outcome::Pass,
            (Some(_), true) => Outcome::Refreshed,
            (None, true) => Outcome::Miss,
        };
        if answer.of_sibling {
            told.detail = Some("sibling");
        }
        let Answer { reply, requested_at, answered_at, joined, .. } = answer;
        let (parts, body) = reply.into_parts();
        let mut headers = parts.headers;
        forwarding::add_date(&mut headers, answered_at);
        let store = verdict.store.filter(|_| self.admitted());
        let plan = store.and_then(|facts| self.plan(facts, &headers, requested_at));
        forwarding::strip_hop_by_hop(&mut headers);
        let page = self.page(status, &headers);
        // What of the body the client wanted, when that is not all.
        let slice = joined.as_ref().and_then(|joined| joined.wanted(&mut headers));
        let told_status = if slice.is_some() { StatusCode::PARTIAL_CONTENT } else { status };
        let (body, fetched) = match joined {
            Some(joined) => joined.body(body, &self.config),
            None => (ReplyBody::through(body, self.config.upstream.reply_time), 0..u64::MAX),
        };
        let sliced = |body: ReplyBody| match slice {
            Some((skip, bytes)) => body.slice(skip, bytes),
            None => body,
        };
        let Some(plan) = plan else {
            if let Some(guard) = guard {
                guard.not_shared(self.config.collapse.pass);
            }
            if verdict.supersedes {
                // The old one was just said to be another now, and the new one is not for keeping.
                let _ = self.worker.shared.object_cache.writers().remove(&self.parsed.key).await;
            }
            told.append_to(&mut headers);
            return self.reply(Served { status: told_status, headers, body: sliced(body) }, outcome);
        };
        let streaming = guard.as_ref().map_or_else(Arc::default, |guard| Arc::clone(&guard.streaming));
        let stored_head = Arc::clone(&plan.head);
        let head = SharedHead { status, stored: stored_head, announced: plan.announced, requested_at };
        let unchanged = stored.is_some()
            && Meta::from_bytes(&plan.head.facts).is_ok_and(|meta| {
                conditional::evaluate(&self.parsed.headers, &meta, now()) == Conditions::NotModified
            });
        streaming.tell(FetchResult::Shared(Arc::new(head)));
        let reader = (!unchanged).then(|| streaming.read_own());
        let announced = plan.announced;
        let shared = Arc::clone(&streaming);
        body_relay::start(
            &self.worker,
            &self.config,
            Filling { streaming, guard, plan, page, fetched },
            body,
        )
        .await;
        if let Some(reader) = &reader {
            reader.settle().await;
        }
        // The head leaves before a long body has come: whether that is stored is not known yet, and not said.
        match shared.stays() {
            Some(stays) => told.stored = stays,
            None => told.detail = told.detail.or(Some("storing")),
        }
        told.append_to(&mut headers);
        let Some(reader) = reader else {
            // The client's own conditions, which the origin did not see, hold for the new reply.
            conditional::leave_for_304(&mut headers);
            let served = Served { status: StatusCode::NOT_MODIFIED, headers, body: ReplyBody::nothing() };
            return self.reply(served, outcome);
        };
        let body = sliced(ReplyBody::filled(reader, announced));
        self.reply(Served { status: told_status, headers, body }, outcome)
    }

    /// What is to be stored of a reply that has a Date.
    fn plan(&self, facts: StoredFacts, reply: &HeaderMap, requested_at: At) -> Option<Plan> {
        let announced = reply.get(CONTENT_LENGTH).and_then(|line| lists::byte_count(line.as_bytes()));
        if announced.is_some_and(|bytes| bytes > self.config.cache.object_max_bytes) {
            return None;
        }
        let facts_bytes = facts::meta_bytes(facts, reply, &self.parsed.headers);
        let strong = ranges::strong_validator(&Meta::from_bytes(&facts_bytes).ok()?).is_some();
        let meta = encode_reply(&facts_bytes, &forwarding::storable(reply))?;
        let announced =
            if facts.status == StatusCode::PARTIAL_CONTENT { Some(facts.extent.length) } else { announced };
        let (key, expires_s) = (self.parsed.key.clone(), expires_s(&facts));
        let head = Arc::new(NewHead { key, meta, facts: facts_bytes, expires_s });
        Some(Plan { head, facts, epoch: self.epoch, requested_at, strong, announced })
    }

    fn admitted(&self) -> bool {
        match self.config.cache.admission {
            // Its page was asked for a second time.
            Admission::Second if self.ahead => true,
            Admission::All => true,
            Admission::Second => self.worker.shared.admission_filter.note(&self.parsed.key),
        }
    }

    async fn invalidate(&mut self, answer: &Answer) {
        let (method, reply) = (self.parsed.facts.method, &answer.reply);
        for key in invalidation::invalidated(method, &self.parsed.target, reply.status(), reply.headers()) {
            let key = key.within(self.parsed.key.realm());
            self.epoch = self.epoch.after_own_void(self.worker.shared.collapse_table.epoch(&key));
            crate::server::answer::handler::purge(&self.worker.shared, &key).await;
        }
    }

    /// What the reply to a HEAD says about the stored reply to a GET (RFC 9111 section 4.3.5).
    async fn after_head(&self, answer: &Answer) {
        let object_cache = &self.worker.shared.object_cache;
        let Lookup::Reply(stored) = self.look_up(LookUp::Head).await else { return };
        match update::head_says(&stored.meta(), answer.reply.status(), answer.reply.headers()) {
            HeadSays::Same => {
                if let Some((Ok(facts), mut fields)) = self.merged(&stored, answer) {
                    self.write_update(&stored, facts, &mut fields, answer).await;
                }
            }
            HeadSays::Other => drop(object_cache.writers().remove(&self.parsed.key).await),
            HeadSays::Nothing => {}
        }
    }
}

/// A part that is all of it, for which nobody asked, is a whole (RFC 9111 section 3.3).
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

/// An error with its causes, for people.
fn told(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    text
}
