//! The entry point for a request: refuses it, or parses it and runs the driver.
//!
//! ```text
//! request ─ access, size, loop ─> refused
//!         ├─ CONNECT ─> tunnel      PURGE ─> removed from the store and from the collapsing table
//!         └─ ParsedRequest::read ─> driver
//! ```
//!
//! Always holds: a request that the access rules forbid reaches neither the store nor an origin.
//! Not here: how a request is answered (`driver`).

use std::convert::Infallible;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use http::header::{HeaderName, HeaderValue, REFERER, USER_AGENT};
use http::{Method, Request, Response, StatusCode, Version};
use http_body::Body as _;
use http_cache_rules::WallSeconds;
use http_cache_rules::decide::{self, Local};
use http_cache_rules::forwarding::{self, Received};
use http_cache_rules::key::CacheKey;
use hyper::body::Incoming;

use crate::config::{Config, Network};
use crate::log::Entry;
use crate::server::answer::driver::Upgrade;
use crate::server::answer::reply::plain;
use crate::server::client::access_entry::{AccessEntry, Unflushed};
use crate::server::client::connection::BlockedSince;
use crate::server::client::parsed_request::{self, ParsedRequest, Rejection, Side};
use crate::server::client::reply_body::ReplyBody;
use crate::server::client::request_guard::ConnectionState;
use crate::server::client::tunnel;
use crate::server::counters::Outcome;
use crate::server::fetch::collapsing::Epoch;
use crate::server::upstream::request::{RateAllowance, RequestBody};
use crate::server::worker::{Admitted, Worker};

/// A client's connection, as its requests see it.
#[derive(Clone)]
pub struct Client {
    /// The client's address.
    pub address: IpAddr,
    /// The kind of listener that accepted it.
    pub side: Side,
    /// State shared with the connection's request guard.
    pub conn_state: Arc<ConnectionState>,
    /// For a stream of HTTP/2: since when the client could have taken more of the reply.
    pub stream: Option<BlockedSince>,
    /// Replies by HTTP/1 that have not left yet.
    pub unflushed: Rc<Unflushed>,
    /// Counts the connection until its last request or tunnel has ended.
    pub admitted: Rc<Admitted>,
}

/// A request that is being answered.
pub struct RequestHandler {
    worker: Rc<Worker>,
    config: Arc<Config>,
    parsed: ParsedRequest,
    client: IpAddr,
    side: Side,
    request_id: u64,
    /// The URI's epoch when the fetch began.
    epoch: Epoch,
    /// How many bans there were then.
    bans_seen: u64,
    access_entry: Option<AccessEntry>,
    /// This is a prefetch.
    ahead: bool,
    /// The request has a body.
    has_body: bool,
    /// The client asks for another protocol, and the operator allows that.
    upgrades: bool,
}

/// Answers a request.
///
/// # Errors
/// Never: the client gets an error reply.
pub async fn answer(
    worker: Rc<Worker>,
    client: Rc<Client>,
    mut request: Request<Incoming>,
) -> Result<Response<ReplyBody>, Infallible> {
    let began = Instant::now();
    let config = worker.config();
    let request_id = worker.request_id();
    let entry = worker.logs().then(|| entry(&request, &client, request_id));
    let mut access_entry = AccessEntry::new(Rc::clone(&worker), &client, began, entry);
    if let Err(rejection) = parsed_request::allowed_method(request.method(), &config) {
        return Ok(refuse(access_entry, rejection));
    }
    if request.method() == Method::CONNECT {
        return Ok(match client.side {
            Side::Forward => tunnel::open(worker, config, &mut request, access_entry, client).await,
            Side::Reverse { .. } => {
                access_entry.set_reply(Outcome::Denied, 405, None);
                tunnel::refusal(StatusCode::METHOD_NOT_ALLOWED, "CONNECT is for forward proxies")
                    .map(|body| body.with_access_entry(access_entry))
            }
        });
    }
    let upgrade = tunnel::wanted_upgrade(&request, &config)
        .map(|protocol| (protocol, hyper::upgrade::on(&mut request)));
    let (parts, body) = request.into_parts();
    let too_long = config.limits.body_bytes_max.is_some_and(|most| body.size_hint().lower() > most);
    if too_long {
        let why = "the body is longer than this proxy accepts (limits.body_mib)";
        return Ok(refuse(access_entry, Rejection::new(StatusCode::PAYLOAD_TOO_LARGE, why)));
    }
    let parsed = match ParsedRequest::read(parts, client.side, &config) {
        Ok(parsed) => parsed,
        Err(rejection) => return Ok(refuse(access_entry, rejection)),
    };
    if forwarding::is_loop(&parsed.headers, &config.via) {
        let why =
            "this request has already passed through this proxy: give each proxy its own name (proxy.name)";
        return Ok(refuse(access_entry, Rejection::new(StatusCode::LOOP_DETECTED, why)));
    }
    let (epoch, bans_seen) = (worker.shared.collapse_table.epoch(&parsed.key), worker.shared.bans.seen());
    let has_body = !body.is_end_stream();
    let mut handler = RequestHandler {
        worker,
        config,
        parsed,
        client: client.address,
        side: client.side,
        request_id,
        epoch,
        bans_seen,
        access_entry: Some(access_entry),
        ahead: false,
        has_body,
        upgrades: upgrade.is_some(),
    };
    if handler.parsed.method.as_str() == "PURGE" {
        return Ok(handler.purge().await);
    }
    let body = if has_body { handler.body(body) } else { RequestBody::Nothing };
    let upgrade = upgrade.map(|(protocol, upgraded)| Upgrade { protocol, upgraded, client });
    Ok(handler.run(body, upgrade).await)
}

/// Refuses a request.
fn refuse(mut access_entry: AccessEntry, rejection: Rejection) -> Response<ReplyBody> {
    access_entry.set_reply(Outcome::Denied, rejection.status.as_u16(), None);
    let mut reply = plain(rejection.status, rejection.why).map(|body| body.with_access_entry(access_entry));
    if ends_connection(rejection.status) {
        reply.headers_mut().insert(http::header::CONNECTION, HeaderValue::from_static("close"));
    }
    reply
}

/// Whether the client may still send a body or tunnel bytes, which are not read.
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

impl RequestHandler {
    /// Fetches for the store alone, on behalf of this request.
    pub(in crate::server) fn in_background(&self, parsed: ParsedRequest) -> Self {
        Self {
            worker: Rc::clone(&self.worker),
            config: Arc::clone(&self.config),
            parsed,
            client: self.client,
            side: self.side,
            request_id: self.worker.request_id(),
            epoch: self.epoch,
            bans_seen: self.bans_seen,
            access_entry: None,
            ahead: false,
            has_body: false,
            upgrades: false,
        }
    }

    /// Fetches for the store alone, before any client asks: as the client of the page that embeds it.
    pub(in crate::server) fn for_prefetch(
        worker: Rc<Worker>,
        config: Arc<Config>,
        parsed: ParsedRequest,
        client: IpAddr,
        side: Side,
    ) -> Self {
        let (request_id, epoch) = (worker.request_id(), worker.shared.collapse_table.epoch(&parsed.key));
        let bans_seen = worker.shared.bans.seen();
        Self {
            worker,
            config,
            parsed,
            client,
            side,
            request_id,
            epoch,
            bans_seen,
            access_entry: None,
            ahead: true,
            has_body: false,
            upgrades: false,
        }
    }

    /// The loop that answers it.
    pub(in crate::server) fn worker(&self) -> &Rc<Worker> {
        &self.worker
    }

    /// The configuration that was current when the request arrived.
    pub(in crate::server) fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// What it asks for.
    pub(in crate::server) fn parsed(&self) -> &ParsedRequest {
        &self.parsed
    }

    /// The client's address.
    pub(in crate::server) fn client(&self) -> IpAddr {
        self.client
    }

    /// The kind of listener that it came through.
    pub(in crate::server) fn side(&self) -> Side {
        self.side
    }

    /// Its id, in logs and in X-Request-Id.
    pub(in crate::server) fn request_id(&self) -> u64 {
        self.request_id
    }

    /// Whether it has a body.
    pub(in crate::server) fn has_body(&self) -> bool {
        self.has_body
    }

    /// Whether it is a prefetch.
    pub(in crate::server) fn is_prefetch(&self) -> bool {
        self.ahead
    }

    /// Whether a client waits for the reply, which is logged and counted then.
    pub(in crate::server) fn has_client(&self) -> bool {
        self.access_entry.is_some()
    }

    /// The access-log entry, until the reply takes it.
    pub(in crate::server) fn access_entry_mut(&mut self) -> Option<&mut AccessEntry> {
        self.access_entry.as_mut()
    }

    /// Takes the access-log entry, which goes with the reply.
    pub(in crate::server) fn take_access_entry(&mut self) -> Option<AccessEntry> {
        self.access_entry.take()
    }

    /// The URI's epoch when the fetch began.
    pub(in crate::server) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// How many bans there were when the fetch began.
    pub(in crate::server) fn bans_seen(&self) -> u64 {
        self.bans_seen
    }

    /// Notes that a fetch begins: from now on an invalidation of the URI and a ban apply to its reply.
    pub(in crate::server) fn note_epoch(&mut self) {
        self.bans_seen = self.worker.shared.bans.seen();
        self.epoch = self.worker.shared.collapse_table.epoch(&self.parsed.key);
    }

    /// The fetch itself is about to invalidate `key`, which must not make its own reply unfindable.
    pub(in crate::server) fn note_own_invalidation(&mut self, key: &CacheKey) {
        self.epoch = self.epoch.after_own_invalidation(self.worker.shared.collapse_table.epoch(key));
    }

    /// Releases the buffer that the client's head was read into ([`ParsedRequest::detach`]).
    pub(in crate::server) fn release_read_buffer(&mut self) {
        self.parsed.detach();
    }

    /// The request as the caching rules take it.
    pub(in crate::server) fn request(&self) -> decide::Request<'_> {
        let ParsedRequest { method, headers, facts, .. } = &self.parsed;
        decide::Request { method, headers, facts, has_body: self.has_body, upgrades: self.upgrades }
    }

    /// The client's body, to be sent upstream.
    fn body(&self, incoming: Incoming) -> RequestBody {
        // The request guard's timeout also counts bytes of chunk framing as progress; this one counts only the body.
        let stall = self.config.limits.stall_time;
        let pace = RateAllowance::new(self.config.limits.body_bytes_per_s, stall);
        RequestBody::client(incoming, self.config.limits.body_bytes_max, stall, pace)
    }

    /// Answers without the store and upstream.
    pub(in crate::server) fn local(&mut self, local: Local) -> Response<ReplyBody> {
        match local {
            Local::NeverStored => {
                self.gateway_timeout("the request has only-if-cached, and no store can answer it")
            }
            Local::NotStored => {
                self.gateway_timeout("the request has only-if-cached, and the store has no usable reply")
            }
            Local::LastHop => {
                let mut reply = plain(StatusCode::OK, "this proxy");
                let allow = HeaderValue::from_static("GET, HEAD, POST, PUT, DELETE, OPTIONS, CONNECT, PURGE");
                reply.headers_mut().insert(http::header::ALLOW, allow);
                self.own(reply, Outcome::Pass)
            }
        }
    }

    async fn purge(&mut self) -> Response<ReplyBody> {
        let from = |network: &Network| network.contains(self.client);
        if !self.config.access.purge.iter().any(from) {
            let reply =
                plain(StatusCode::FORBIDDEN, "PURGE is not accepted from this address (access.purge)");
            return self.own(reply, Outcome::Denied);
        }
        let was_there = purge(&self.worker.shared, &self.parsed.key).await;
        let reply = match was_there {
            true => plain(StatusCode::OK, "purged"),
            false => plain(StatusCode::NOT_FOUND, NOTHING_TO_PURGE),
        };
        self.own(reply, Outcome::Purge)
    }
}

/// A fetch that no other request may share is in no table, so that it cannot be notified; it sees the purge when it ends.
const NOTHING_TO_PURGE: &str =
    "nothing is stored for this URL; what is being fetched for it now will not be stored";

/// Removes a URI from the store and from the collapsing table. Returns whether it was in either. A kill of the process afterwards
/// does not bring it back.
pub async fn purge(shared: &crate::server::worker::Shared, key: &CacheKey) -> bool {
    let was_being_fetched = shared.collapse_table.invalidate(key);
    matches!(shared.object_cache.writers().remove(key).await, Ok(Some(_))) || was_being_fetched
}

/// The HTTP version of the client's message, for Via.
pub(in crate::server) fn received(version: Version) -> Received {
    match version {
        Version::HTTP_10 => Received::Http10,
        Version::HTTP_2 => Received::Http2,
        _ => Received::Http11,
    }
}

/// A point in time by the wall clock.
pub(in crate::server) type At = WallSeconds;
