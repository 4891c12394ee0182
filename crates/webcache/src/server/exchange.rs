//! One request's way: looked up, decided on by the rules, answered from the store, from what is on its way, or by the origin.
//!
//! ```text
//! Asked ─ Shelf::look ─ reuse::evaluate ─┬─ Serve ─────────────────────────────────> hit
//!            ^                         ├─ ServeStaleWhileRevalidate ─> hit, and a fetch in the background
//!            └── InStore, Abandoned ── ├─ Revalidate, Forward ─ Flights::board ─┬─ Mine, Alone ─> fetch
//!                                      │                                        └─ Others ─ wait ─> join, look again
//!                                      └─ GatewayTimeout ─> 504
//! ```
//!
//! Always holds: the order of the rules is that of tests/rules/proxy.rs; a request waits for another's fetch once, and for
//! a bounded time; what a client has received whole its next request finds.
//! Not here: what is done with the origin's reply (`fetch`).

use std::convert::Infallible;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use http::header::{CONTENT_LENGTH, HeaderName, HeaderValue, REFERER, USER_AGENT};
use http::{Method, Request, Response, StatusCode, Version};
use http_body::Body as _;
use http_cache_rules::cache_status::CacheStatus;
use http_cache_rules::forwarding::{self, Forwards, Received};
use http_cache_rules::reuse::{self, ForwardReason, Held};
use http_cache_rules::{Meta, Reuse, WallSeconds, completion};
use hyper::body::Incoming;

use super::asked::{self, Asked, Side, Unserved};
use super::body::ReplyBody;
use super::connection::Since;
use super::counters::Outcome;
use super::fill::{Fill, Heading};
use super::flights::{Epoch, Flight, Guard};
use super::hit::Served;
use super::ledger::{Ledger, Unflushed};
use super::reply::plain;
use super::request::{Pace, RequestBody};
use super::sentry::Watched;
use super::tunnel;
use super::worker::{Admitted, Busy, Worker, now};
use crate::config::{Config, Network};
use crate::log::Entry;
use crate::shelf::{Look, Looked, StoredReply};

/// A client's connection, as its requests see it.
#[derive(Clone)]
pub struct Client {
    /// Whose.
    pub address: IpAddr,
    /// By which listener.
    pub side: Side,
    /// Shared with its sentry.
    pub watched: Arc<Watched>,
    /// Of one stream of HTTP/2: since when its client could take more of the reply.
    pub stream: Option<Since>,
    /// Its replies by HTTP/1 that have yet to leave.
    pub unflushed: Rc<Unflushed>,
    /// It counts as long as one of its requests goes on, also as a tunnel.
    pub admitted: Rc<Admitted>,
}

/// A request that is being answered.
pub struct Exchange {
    pub(super) worker: Rc<Worker>,
    pub(super) config: Arc<Config>,
    pub(super) asked: Asked,
    pub(super) client: IpAddr,
    pub(super) side: Side,
    pub(super) request_id: u64,
    /// The URI's when the origin was asked.
    pub(super) epoch: Epoch,
    pub(super) ledger: Option<Ledger>,
    /// Fetched ahead, before anybody asks for it.
    pub(super) ahead: bool,
    /// A GET or HEAD with a body: no cache compares bodies, so that its reply answers no other request (RFC 9110 section 9.3.1).
    pub(super) has_odd_body: bool,
}

/// How often the store is looked at for one request.
const LOOKS_MAX: usize = 4;
/// Of these, how often others may be waited for: what must be validated for each request would else queue up.
const SHARED_LOOKS: usize = 2;

/// Answers a request.
///
/// # Errors
/// Never: what goes wrong is told to the client.
pub async fn answer(
    worker: Rc<Worker>,
    client: Rc<Client>,
    mut request: Request<Incoming>,
) -> Result<Response<ReplyBody>, Infallible> {
    let began = Instant::now();
    let config = worker.config();
    let request_id = worker.request_id();
    let entry = worker.logs().then(|| entry(&request, &client, request_id));
    let mut ledger = Ledger::new(Rc::clone(&worker), &client, began, entry);
    let refused = |mut ledger: Ledger, unserved: Unserved| {
        ledger.answered(Outcome::Denied, unserved.status.as_u16(), None);
        let mut reply = plain(unserved.status, unserved.why).map(|body| body.with(ledger));
        if ends_connection(unserved.status) {
            reply.headers_mut().insert(http::header::CONNECTION, HeaderValue::from_static("close"));
        }
        Ok(reply)
    };
    if let Err(unserved) = asked::allowed_method(request.method(), &config) {
        return refused(ledger, unserved);
    }
    if request.method() == Method::CONNECT {
        return Ok(match client.side {
            Side::Forward => tunnel::open(worker, config, &mut request, ledger, client).await,
            Side::Reverse { .. } => {
                ledger.answered(Outcome::Denied, 405, None);
                tunnel::refusal(StatusCode::METHOD_NOT_ALLOWED, "CONNECT is for forward proxies")
                    .map(|body| body.with(ledger))
            }
        });
    }
    let upgrade = tunnel::wanted_upgrade(&request, &config)
        .map(|protocol| (protocol, hyper::upgrade::on(&mut request)));
    let (parts, body) = request.into_parts();
    let too_long = config.body_max_bytes.is_some_and(|most| body.size_hint().lower() > most);
    if too_long {
        let why = "the body is longer than this proxy takes (limits.body_mib)";
        return refused(ledger, Unserved::new(StatusCode::PAYLOAD_TOO_LARGE, why));
    }
    let asked = match Asked::read(parts, client.side, &config) {
        Ok(asked) => asked,
        Err(unserved) => return refused(ledger, unserved),
    };
    if forwarding::is_loop(&asked.headers, &config.via) {
        let why =
            "this request came through this proxy before: give each proxy a name of its own (proxy.name)";
        return refused(ledger, Unserved::new(StatusCode::LOOP_DETECTED, why));
    }
    let epoch = worker.shared.flights.epoch(&asked.key);
    let exchange = Exchange {
        worker,
        config,
        asked,
        client: client.address,
        side: client.side,
        request_id,
        epoch,
        ledger: Some(ledger),
        ahead: false,
        has_odd_body: false,
    };
    Ok(match upgrade {
        Some((protocol, upgraded)) => Box::pin(exchange.upgrade(protocol, upgraded, client)).await,
        None => exchange.run(body).await,
    })
}

/// Whether a body, or a tunnel's bytes, may follow that nobody will read.
fn ends_connection(status: StatusCode) -> bool {
    status == StatusCode::PAYLOAD_TOO_LARGE || status == StatusCode::METHOD_NOT_ALLOWED
}

fn entry(request: &Request<Incoming>, client: &Client, request_id: u64) -> Box<Entry> {
    let text = |name: HeaderName| {
        let value =
            request.headers().get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        value.unwrap_or_default()
    };
    Box::new(Entry {
        at: SystemTime::now(),
        took: std::time::Duration::ZERO,
        client: client.address,
        method: request.method().to_string(),
        url: match request.uri().authority() {
            Some(_) => request.uri().to_string(),
            None => format!("http://{}{}", text(http::header::HOST), request.uri()),
        },
        version: match request.version() {
            Version::HTTP_10 => "HTTP/1.0",
            Version::HTTP_2 => "HTTP/2.0",
            _ => "HTTP/1.1",
        },
        status: 0,
        sent_bytes: 0,
        outcome: Outcome::Failed,
        aborted: false,
        origin: None,
        content_type: String::new(),
        referer: text(REFERER),
        agent: text(USER_AGENT),
        request_id,
    })
}

impl Exchange {
    async fn run(mut self, body: Incoming) -> Response<ReplyBody> {
        match self.asked.method.as_str() {
            "PURGE" => return self.purge().await,
            "OPTIONS" | "TRACE" if forwarding::count_forwards(&mut self.asked.headers) == Forwards::Last => {
                let mut reply = plain(StatusCode::OK, "this proxy");
                let allow = HeaderValue::from_static("GET, HEAD, POST, PUT, DELETE, OPTIONS, CONNECT, PURGE");
                reply.headers_mut().insert(http::header::ALLOW, allow);
                return self.own(reply, Outcome::Pass);
            }
            _ => {}
        }
        let bodiless = body.is_end_stream();
        let may_be_served = self.asked.facts.method.may_be_served();
        self.has_odd_body = may_be_served && !bodiless;
        if !may_be_served || self.has_odd_body {
            let body = if bodiless {
                RequestBody::Nothing
            } else {
                // The sentry of HTTP/1 counts any byte, also of what stands between the bytes of a body.
                let stall = self.config.stall_time;
                let pace = Pace::new(self.config.body_bytes_per_s, self.config.stall_time);
                RequestBody::client(body, self.config.body_max_bytes, stall, pace)
            };
            let why = if self.asked.facts.directives.only_if_cached {
                return self
                    .gateway_timeout("only-if-cached was asked for, and this is not answered from a store");
            } else if may_be_served {
                ForwardReason::Bypass
            } else {
                ForwardReason::Method
            };
            return self.fetch(None, why, None, body).await;
        }
        for look in 0..LOOKS_MAX {
            match self.look(look < SHARED_LOOKS).await {
                Step::Done(reply) => return *reply,
                Step::Again => {}
            }
        }
        // Others' fetches were given up again and again: this one is our own.
        self.fetch(None, ForwardReason::UriMiss, None, RequestBody::Nothing).await
    }

    /// What is stored and not banned.
    pub(super) fn stored(&self) -> Look {
        self.unless_banned(self.worker.shared.shelf.look(&self.asked.key, &self.asked.headers))
    }

    /// The same; others are served while the disk is read, where the kernel can do that.
    async fn stored_in_time(&self) -> Look {
        let Some(reads) = &self.worker.reads else { return self.stored() };
        let (shelf, asked) = (&self.worker.shared.shelf, &self.asked);
        let mut looked = shelf.begin_look(&asked.key);
        loop {
            let looking = match looked {
                Looked::Done(look) => return self.unless_banned(look),
                Looked::On(looking) => looking,
            };
            let read = match looking.reading() {
                Some(reading) => reads.read(reading, reading.offset(), reading.bytes()).await.ok(),
                None => None,
            };
            looked = shelf.go_on(looking, read, &asked.key, &asked.headers);
        }
    }

    fn unless_banned(&self, look: Look) -> Look {
        let shared = &self.worker.shared;
        match look {
            Look::Reply(reply)
                if shared.bans.covers(self.asked.key.as_str(), reply.meta().facts.stored_at, || {
                    reply.fields().ok()
                }) =>
            {
                Look::Nothing
            }
            look => look,
        }
    }

    /// `share`: wait for another's fetch, and let others wait for this one.
    async fn look(&mut self, share: bool) -> Step {
        let mut look = self.stored_in_time().await;
        if share
            && matches!(look, Look::Nothing)
            && (self.asked.facts.directives.only_if_cached || !self.may_share(ForwardReason::UriMiss))
            && let Some(fill) = self.worker.shared.flights.landing(&self.asked.key)
        {
            // Whoever has seen the end of a reply finds it: a part of it, or the answer to his conditions.
            let _ = tokio::time::timeout(self.config.collapse_wait, fill.landed()).await;
            look = self.stored();
        }
        let decision = {
            let meta = match &look {
                Look::Reply(reply) => Some(reply.meta().facts),
                _ => None,
            };
            let held = match (&look, &meta) {
                (_, Some(facts)) => Held::Reply(facts),
                (Look::OtherVariants, _) => Held::OtherVariants,
                _ => Held::Nothing,
            };
            reuse::evaluate(&self.asked.facts, held, &self.config.policy, now())
        };
        let stored = match look {
            Look::Reply(reply) => Some(reply),
            _ => None,
        };
        let too_little = |stored: &StoredReply| {
            completion::is_too_little(&self.asked.method, &self.asked.headers, &stored.meta(), now())
        };
        let (why, stored) = match (decision, stored) {
            (Reuse::Serve { .. } | Reuse::ServeStaleWhileRevalidate { .. }, Some(stored))
                if !self.asked.facts.directives.only_if_cached && too_little(&stored) =>
            {
                match Box::pin(self.complete(*stored)).await {
                    Some(reply) => return Step::Done(Box::new(reply)),
                    None => (ForwardReason::Partial, None),
                }
            }
            (Reuse::Forward(ForwardReason::Partial), Some(stored)) => {
                match Box::pin(self.complete(*stored)).await {
                    Some(reply) => return Step::Done(Box::new(reply)),
                    None => (ForwardReason::Partial, None),
                }
            }
            (Reuse::Serve { age_s, stale }, Some(stored)) => {
                let outcome = if stale { Outcome::Stale } else { Outcome::Hit };
                match self.serve_stored(*stored, age_s, outcome) {
                    Some(reply) => return Step::Done(Box::new(reply)),
                    None => (ForwardReason::Partial, None),
                }
            }
            (Reuse::ServeStaleWhileRevalidate { age_s }, Some(stored)) => {
                self.revalidate_in_background();
                match self.serve_stored(*stored, age_s, Outcome::Stale) {
                    Some(reply) => return Step::Done(Box::new(reply)),
                    None => (ForwardReason::Partial, None),
                }
            }
            (Reuse::GatewayTimeout, _) => {
                return Step::Done(Box::new(self.not_stored()));
            }
            (Reuse::Revalidate(why), stored) => (why, stored),
            // What is stored without a validator may still stand in for an error.
            (Reuse::Forward(why @ (ForwardReason::Stale | ForwardReason::Request)), stored) => (why, stored),
            (Reuse::Forward(why), _) => (why, None),
            (Reuse::Serve { .. } | Reuse::ServeStaleWhileRevalidate { .. }, None) => {
                (ForwardReason::UriMiss, None)
            }
        };
        if self.asked.facts.directives.only_if_cached {
            // What is stored was good enough but for the part that is asked for, or cannot be read.
            return Step::Done(Box::new(self.not_stored()));
        }
        let guard = if share && self.may_share(why) {
            match self.worker.shared.flights.board(&self.asked.key) {
                Flight::Alone => None,
                Flight::Mine(guard) => {
                    // It may have come between the look and now.
                    if why == ForwardReason::UriMiss && matches!(self.stored(), Look::Reply(_)) {
                        guard.in_store();
                        return Step::Again;
                    }
                    Some(guard)
                }
                Flight::Others(fill) => return Box::pin(self.join(&fill, why, stored)).await,
            }
        } else {
            None
        };
        Step::Done(Box::new(self.fetch(stored, why, guard, RequestBody::Nothing).await))
    }

    /// Whether another request may get the reply to this one.
    fn may_share(&self, why: ForwardReason) -> bool {
        let facts = &self.asked.facts;
        !self.config.collapse_wait.is_zero()
            && self.asked.method == Method::GET
            && matches!(why, ForwardReason::UriMiss | ForwardReason::VaryMiss | ForwardReason::Stale)
            && !facts.ranged
            && !facts.conditional
            && !facts.authorized
            && !facts.directives.no_store
            && !facts.directives.no_cache
    }

    /// Waits for another's fetch, and shares it if that may be.
    async fn join(
        &mut self,
        fill: &Arc<Fill>,
        why: ForwardReason,
        mut stored: Option<Box<StoredReply>>,
    ) -> Step {
        let heading = match tokio::time::timeout(self.config.collapse_wait, fill.heading()).await {
            Ok(heading) => heading,
            Err(_) => {
                self.worker.counters.collapse_timeouts.add(1);
                Heading::NotShared
            }
        };
        if let Heading::Failed(failure) = heading
            && let Some(held) = stored.take()
        {
            // As the one who asked: it need not be asked again by each.
            match self.stand_in(held, failure, why, None) {
                Ok(reply) => return Step::Done(Box::new(reply)),
                Err(held) => stored = Some(held),
            }
        }
        let head = match heading {
            Heading::InStore | Heading::Abandoned => return Step::Again,
            Heading::NotShared | Heading::Failed(_) => {
                return Step::Done(Box::new(self.fetch(stored, why, None, RequestBody::Nothing).await));
            }
            Heading::Shared(head) => head,
        };
        let banned = self
            .worker
            .shared
            .bans
            .covers(self.asked.key.as_str(), head.requested_at, || head.stored.fields());
        let (reader, meta) = (fill.read(), Meta::from_bytes(&head.stored.facts));
        if let (Some(reader), Ok(meta), false) = (reader, meta, banned)
            && meta.answers(&self.asked.headers, &mut Vec::new())
            && matches!(
                reuse::evaluate(&self.asked.facts, Held::Reply(&meta.facts), &self.config.policy, now()),
                Reuse::Serve { .. }
            )
            && let Some(mut headers) = head.stored.fields()
        {
            let age_s = meta.facts.age_s(now());
            headers.insert(http::header::AGE, forwarding::age_value(age_s));
            if let Some(bytes) = head.announced {
                headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes));
            }
            let status = CacheStatus { collapsed: true, ..CacheStatus::forwarded(&self.config.name, why) };
            status.append_to(&mut headers);
            let body = ReplyBody::filled(reader, head.announced);
            let served = Served { status: head.status, headers, body };
            return Step::Done(Box::new(self.reply(served, Outcome::Collapsed)));
        }
        // It varies, is for a part, or cannot be joined any more: on our own, beside it.
        Step::Done(Box::new(self.fetch(stored, why, None, RequestBody::Nothing).await))
    }

    fn not_stored(&mut self) -> Response<ReplyBody> {
        self.gateway_timeout("only-if-cached was asked for, and the store does not suffice")
    }

    async fn purge(&mut self) -> Response<ReplyBody> {
        let from = |network: &Network| network.contains(self.client);
        if !self.config.purge.iter().any(from) {
            let reply = plain(StatusCode::FORBIDDEN, "PURGE is not taken from this address (access.purge)");
            return self.own(reply, Outcome::Denied);
        }
        let was_there = purge(&self.worker.shared, &self.asked.key).await;
        let reply = match was_there {
            true => plain(StatusCode::OK, "purged"),
            false => plain(StatusCode::NOT_FOUND, "nothing is stored for this URL"),
        };
        self.own(reply, Outcome::Purge)
    }

    fn revalidate_in_background(&self) {
        if self.asked.facts.directives.only_if_cached {
            // The origin, and caches on the way, are not asked on behalf of who does not want that.
            return;
        }
        let Flight::Mine(guard) = self.worker.shared.flights.board(&self.asked.key) else { return };
        let mut headers = self.asked.headers.clone();
        for name in [
            http::header::RANGE,
            http::header::IF_RANGE,
            http::header::IF_NONE_MATCH,
            http::header::IF_MODIFIED_SINCE,
        ] {
            headers.remove(name);
        }
        let asked = Asked {
            method: Method::GET,
            target: self.asked.target.clone(),
            key: self.asked.key.clone(),
            facts: http_cache_rules::RequestFacts::of(&Method::GET, &headers),
            headers,
            version: self.asked.version,
            route: self.asked.route.clone(),
            of_server: false,
        };
        let background = Exchange {
            worker: Rc::clone(&self.worker),
            config: Arc::clone(&self.config),
            asked,
            client: self.client,
            side: self.side,
            request_id: self.worker.request_id(),
            epoch: self.epoch,
            ledger: None,
            ahead: false,
            has_odd_body: false,
        };
        tokio::task::spawn_local(background.refetch(guard, ForwardReason::Stale, u64::MAX));
    }

    /// Fetches for the store alone, if it is no longer than so many bytes. Gives its length when it came whole and may be
    /// stored.
    pub(super) async fn refetch(mut self, guard: Guard, why: ForwardReason, bytes_max: u64) -> Option<u64> {
        let busy = Busy::new(&self.worker);
        let stored = match self.stored() {
            Look::Reply(stored) => Some(stored),
            _ => None,
        };
        let reply = self.fetch(stored, why, Some(guard), RequestBody::Nothing).await;
        let mut body = std::pin::pin!(reply.into_body());
        // Read like a client would, so that it is fetched to its end; unless nothing is stored of it, however long it is.
        let mut bytes = 0;
        let whole = loop {
            if !body.fills_store() || body.size_hint().lower().saturating_add(bytes) > bytes_max {
                break false;
            }
            match std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
                Some(Ok(frame)) => bytes += frame.data_ref().map_or(0, |chunk| chunk.len() as u64),
                Some(Err(_)) => break false,
                None => break true,
            }
        };
        drop(busy);
        whole.then_some(bytes)
    }
}

/// What a look at the store leads to.
enum Step {
    Done(Box<Response<ReplyBody>>),
    Again,
}

/// Takes a URI out, also what is on its way; says whether there was something.
pub async fn purge(shared: &super::worker::Shared, key: &http_cache_rules::key::CacheKey) -> bool {
    shared.flights.void(key);
    matches!(shared.shelf.clerks().remove(key).await, Ok(Some(_)))
}

/// Of the client's message, for Via.
pub(super) fn received(version: Version) -> Received {
    match version {
        Version::HTTP_10 => Received::Http10,
        Version::HTTP_2 => Received::Http2,
        _ => Received::Http11,
    }
}

/// Seconds of the wall clock, told apart from a duration.
pub(super) type At = WallSeconds;
