//! The loop that answers a request: look up, decide, execute, and repeat up to a bound.
//!
//! ```text
//!      ┌──────────────────── Step::Again, up to ITERATIONS_MAX times ────────────────────────────┐
//! 1. look_up ─> 2. decide ─> 3. execute ─┬─ Stored, Local ─> reply                               │
//!      ^                                 ├─ Wait ─ until it is stored ─> look_up(AfterWait) ─> 2 │
//!      │                                 ├─ Complete, Tunnel ─> upstream ─> reply                │
//!      │                                 └─ Fetch ─> CollapseTable::join ─┬─ Bypass ─> fetch     │
//!      └───────────────────────────── look_up(AfterWinning) ──────────────┼─ Lead ───> fetch     │
//!                                                                         └─ Follow ─> wait ─────┘
//! ```
//!
//! Always holds:
//! - `http_cache_rules::decide` alone decides what a request may get.
//! - [`RequestHandler::look_up`] alone reads the store for a request. [`LookUpAt`] lists every place that calls it, each with
//!   the race that requires it.
//! - A request waits for another's fetch a bounded number of times, each time for a bounded time.
//! - When a client has received a whole reply, its next request finds it.
//!
//! Not here: what happens to an upstream reply (`fetch`).

use std::rc::Rc;
use std::sync::Arc;

use http::Response;
use http::header::{AGE, CONTENT_LENGTH, HeaderValue};
use http_cache_rules::cache_status::CacheStatus;
use http_cache_rules::decide::{Action, Fetch, Found, Local, Reply, decide};
use http_cache_rules::response::{FetchOutcome, ResponseAction, Role};
use http_cache_rules::reuse::ForwardReason;
use http_cache_rules::{Meta, forwarding};
use hyper::upgrade::OnUpgrade;

use crate::object_cache::{LookupResult, LookupStep, StoredReply};
use crate::server::StoredAt;
use crate::server::answer::handler::{Client, RequestHandler};
use crate::server::answer::stored::Served;
use crate::server::client::reply_body::ReplyBody;
use crate::server::counters::Outcome;
use crate::server::fetch::collapsing::{FetchGuard, JoinResult};
use crate::server::fetch::streaming_reply::{FetchResult, StreamingReply};
use crate::server::upstream::request::RequestBody;
use crate::server::worker::now;

/// Most iterations of the loop for one request.
const ITERATIONS_MAX: usize = 4;
/// In how many of these a request may wait for another's fetch. A reply that each request has to validate would otherwise let
/// them queue up.
const COLLAPSING_ITERATIONS: usize = 2;

/// What a switch to another protocol needs.
pub(in crate::server) struct Upgrade {
    /// The protocol that the client asked for.
    pub protocol: HeaderValue,
    /// The client's connection, available once the reply has been sent.
    pub upgraded: OnUpgrade,
    /// The client.
    pub client: Rc<Client>,
}

/// Every place that reads the store for a request, and the race that requires it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum LookUpAt {
    /// At the start of an iteration. It repeats after another's fetch ended in the store or was abandoned, as the result is there
    /// or the key is free again.
    LoopStart {
        /// Whether to report a reply that is about to be stored, so that the request can wait for it.
        may_wait: bool,
    },
    /// After [`Reply::Wait`]: the reply was stored during the wait.
    AfterWait,
    /// After a request or a prefetch won the right to fetch: another fetch may have ended between the first look-up and that.
    AfterWinning,
    /// Before a background fetch is sent, for a revalidation or a prefetch: the reply that was just served stale may have been replaced.
    BeforeBackgroundFetch,
    /// Before a prefetch joins the collapsing table: the object may be stored already.
    BeforePrefetch,
    /// After the reply to a HEAD: finds the stored reply to a GET that it updates.
    AfterHead,
}

/// The result of a look-up, without banned replies.
pub(in crate::server) enum Lookup {
    /// Nothing is stored for the URI.
    Nothing,
    /// Replies are stored, but for other request fields.
    OtherVariants,
    /// A reply that has arrived completely and is being stored.
    AboutToBeStored(Arc<StreamingReply>),
    /// This reply.
    Reply(Box<StoredReply>),
}

impl Lookup {
    fn reply(self) -> Option<Box<StoredReply>> {
        match self {
            Lookup::Reply(reply) => Some(reply),
            _ => None,
        }
    }
}

/// The result of one iteration.
enum Step {
    Done(Box<Response<ReplyBody>>),
    Again,
}

impl RequestHandler {
    /// Answers the request.
    pub(in crate::server) async fn run(
        mut self,
        body: RequestBody,
        upgrade: Option<Upgrade>,
    ) -> Response<ReplyBody> {
        let (mut body, mut upgrade) = (Some(body), upgrade);
        for look in 0..ITERATIONS_MAX {
            let share = look < COLLAPSING_ITERATIONS;
            let mut found = self.look_up(LookUpAt::LoopStart { may_wait: share }).await;
            let mut action = self.decide(&found);
            if let (Reply::Wait, Lookup::AboutToBeStored(streaming)) = (action.reply, &found) {
                let _ =
                    tokio::time::timeout(self.config().collapse.wait, streaming.wait_until_stored()).await;
                found = self.look_up(LookUpAt::AfterWait).await;
                action = self.decide(&found);
            }
            match self.execute(action, found, share, &mut body, &mut upgrade).await {
                Step::Done(reply) => return *reply,
                Step::Again => {}
            }
        }
        // The fetches of others were abandoned each time: fetch separately.
        self.fetch(None, ForwardReason::UriMiss, None, RequestBody::Nothing).await
    }

    /// The only place that reads the store for a request.
    pub(in crate::server) async fn look_up(&self, at: LookUpAt) -> Lookup {
        if !self.request().is_answered_from_store() {
            return Lookup::Nothing;
        }
        let found = match at {
            LookUpAt::LoopStart { .. } => self.look_up_without_blocking().await,
            // A repeated look-up most likely finds everything in memory.
            _ => self.worker().shared.object_cache.look_up(&self.parsed().key, &self.parsed().headers),
        };
        match found {
            LookupResult::Reply(reply) if !self.is_banned(&reply) => Lookup::Reply(reply),
            LookupResult::OtherVariants => Lookup::OtherVariants,
            LookupResult::Nothing
                if at == LookUpAt::LoopStart { may_wait: true } && !self.request().joins() =>
            {
                let about_to_be_stored =
                    self.worker().shared.collapse_table.about_to_be_stored(&self.parsed().key);
                about_to_be_stored.map_or(Lookup::Nothing, Lookup::AboutToBeStored)
            }
            LookupResult::Nothing | LookupResult::Reply(_) => Lookup::Nothing,
        }
    }

    /// Serves other requests while the disk is read, if the kernel supports that.
    async fn look_up_without_blocking(&self) -> LookupResult {
        let (object_cache, parsed) = (&self.worker().shared.object_cache, self.parsed());
        let Some(reads) = &self.worker().reads else {
            return object_cache.look_up(&parsed.key, &parsed.headers);
        };
        let mut looked = object_cache.begin_look_up(&parsed.key);
        loop {
            let pending = match looked {
                LookupStep::Done(look) => return look,
                LookupStep::Read(pending) => pending,
            };
            let read = match pending.pending_read() {
                Some(reading) => reads.read(reading, reading.offset(), reading.bytes()).await.ok(),
                None => None,
            };
            looked = object_cache.continue_look_up(pending, read, &parsed.key, &parsed.headers);
        }
    }

    fn is_banned(&self, reply: &StoredReply) -> bool {
        let bans = &self.worker().shared.bans;
        bans.covers(self.parsed().key.as_str(), StoredAt::of(reply), || reply.fields().ok())
    }

    fn decide(&self, found: &Lookup) -> Action {
        let meta = match found {
            Lookup::Reply(reply) => Some(reply.meta()),
            _ => None,
        };
        let found = match (found, &meta) {
            (_, Some(meta)) => Found::Reply(meta),
            (Lookup::OtherVariants, None) => Found::OtherVariants,
            (Lookup::AboutToBeStored(_), None) => Found::AboutToBeStored,
            (Lookup::Nothing | Lookup::Reply(_), None) => Found::Nothing,
        };
        decide(&self.request(), found, &self.config().policy, now())
    }

    /// Executes an action. `share`: the request may wait for another's fetch, and others may wait for its own.
    async fn execute(
        &mut self,
        action: Action,
        found: Lookup,
        share: bool,
        body: &mut Option<RequestBody>,
        upgrade: &mut Option<Upgrade>,
    ) -> Step {
        if let Some(fetch) = action.background {
            self.revalidate_in_background(fetch);
        }
        let done = |reply| Step::Done(Box::new(reply));
        let (fetch, stored) = match (action.reply, found.reply()) {
            (Reply::Fetch(fetch), stored) => (Some(fetch), stored.filter(|_| fetch.about_found)),
            (Reply::Stored { age_s, stale }, Some(stored)) => {
                let outcome = if stale { Outcome::Stale } else { Outcome::Hit };
                match self.serve_stored(*stored, age_s, outcome) {
                    Some(reply) => return done(reply),
                    None => (self.request().fetch_instead(ForwardReason::Partial), None),
                }
            }
            (Reply::Complete, Some(stored)) => match Box::pin(self.complete(*stored)).await {
                Some(reply) => return done(reply),
                None => (self.request().fetch_instead(ForwardReason::Partial), None),
            },
            (Reply::Tunnel, _) => match upgrade.take() {
                Some(upgrade) => return done(Box::pin(self.upgrade(upgrade)).await),
                None => (self.request().fetch_instead(ForwardReason::Method), None),
            },
            (Reply::Local(local), _) => return done(self.local(local)),
            // Unreachable: these need a stored reply, and only the first look-up reports one to wait for.
            (Reply::Wait | Reply::Stored { .. } | Reply::Complete, _) => return Step::Again,
        };
        let Some(fetch) = fetch else { return done(self.local(Local::NotStored)) };
        let guard = match self.collapse(&fetch, share).await {
            CollapseOutcome::FetchAlone => None,
            CollapseOutcome::Lead(guard) => Some(guard),
            CollapseOutcome::InStore => return Step::Again,
            CollapseOutcome::Follow(streaming) => {
                return Box::pin(self.join(&streaming, fetch.why, stored)).await;
            }
        };
        let body = body.take().unwrap_or(RequestBody::Nothing);
        done(self.fetch(stored, fetch.why, guard, body).await)
    }

    /// Decides which request fetches.
    async fn collapse(&self, fetch: &Fetch, share: bool) -> CollapseOutcome {
        if !share || !fetch.collapse || self.config().collapse.wait.is_zero() {
            return CollapseOutcome::FetchAlone;
        }
        match self.worker().shared.collapse_table.join(&self.parsed().key) {
            JoinResult::Bypass => CollapseOutcome::FetchAlone,
            JoinResult::Follow(streaming) => CollapseOutcome::Follow(streaming),
            JoinResult::Lead(guard) if fetch.why == ForwardReason::UriMiss => {
                match self.look_up(LookUpAt::AfterWinning).await {
                    Lookup::Reply(_) => {
                        guard.in_store();
                        CollapseOutcome::InStore
                    }
                    _ => CollapseOutcome::Lead(guard),
                }
            }
            JoinResult::Lead(guard) => CollapseOutcome::Lead(guard),
        }
    }

    /// Waits for another request's fetch and shares its reply if possible.
    async fn join(
        &mut self,
        streaming: &Arc<StreamingReply>,
        why: ForwardReason,
        mut stored: Option<Box<StoredReply>>,
    ) -> Step {
        let result = match tokio::time::timeout(self.config().collapse.wait, streaming.result()).await {
            Ok(result) => result,
            Err(_) => {
                self.worker().counters.collapse_timeouts.add(1);
                FetchResult::NotShared
            }
        };
        let shared = match result {
            FetchResult::InStore | FetchResult::Abandoned => return Step::Again,
            FetchResult::Shared(head) => self.share(streaming, &head, why),
            FetchResult::NotShared => None,
            FetchResult::Failed(failure) => {
                // Upstream failed for the request that fetched: serve stale without trying again for each request that waited.
                let action = self.decide_response(
                    stored.as_deref(),
                    Role::StandIn,
                    FetchOutcome::CollapsedFailure(failure),
                );
                match (action, stored.take()) {
                    (ResponseAction::ServeStale { age_s, failure }, Some(held)) => {
                        Some(self.serve_stale(*held, age_s, failure, why))
                    }
                    (ResponseAction::GatewayTimeout, _) => Some(self.stale_forbidden(None)),
                    (_, held) => {
                        stored = held;
                        None
                    }
                }
            }
        };
        // It is another variant or a part, or can no longer be joined: fetch separately.
        let reply = match shared {
            Some(reply) => reply,
            None => self.fetch(stored, why, None, RequestBody::Nothing).await,
        };
        Step::Done(Box::new(reply))
    }

    /// Shares the reply that is being received, if it answers this request.
    fn share(
        &mut self,
        streaming: &Arc<StreamingReply>,
        head: &crate::server::fetch::streaming_reply::SharedHead,
        why: ForwardReason,
    ) -> Option<Response<ReplyBody>> {
        let bans = &self.worker().shared.bans;
        if bans.covers_since(head.bans_seen, self.parsed().key.as_str(), || head.stored.fields()) {
            return None;
        }
        let (reader, meta) = (streaming.reader()?, Meta::from_bytes(&head.stored.facts).ok()?);
        if !meta.answers(&self.parsed().headers, &mut Vec::new()) {
            return None;
        }
        let action = decide(&self.request(), Found::Reply(&meta), &self.config().policy, now());
        let Action { reply: Reply::Stored { age_s, .. }, background: None } = action else { return None };
        let mut headers = head.stored.fields()?;
        headers.insert(AGE, forwarding::age_value(age_s));
        if let Some(bytes) = head.announced {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes));
        }
        let status =
            CacheStatus { collapsed: true, ..CacheStatus::forwarded(&self.config().proxy.name, why) };
        status.append_to(&mut headers);
        let body = ReplyBody::streamed(reader, head.announced);
        Some(self.reply(Served { status: head.status, headers, body }, Outcome::Collapsed))
    }
}

/// Which request fetches a reply that several could share.
enum CollapseOutcome {
    /// This one, for itself.
    FetchAlone,
    /// This one, for all that wait.
    Lead(FetchGuard),
    /// Another one is fetching.
    Follow(Arc<StreamingReply>),
    /// Another one has fetched it meanwhile.
    InStore,
}
