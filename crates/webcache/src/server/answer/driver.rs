//! The loop that answers a request: look up, decide, execute, reply; and again, a bounded number of times.
//!
//! ```text
//!      ┌──────────────────────────── again, LOOKS_MAX times ─────────────────────────────────┐
//! 1. look_up ─> 2. decide ─> 3. execute ─┬─ Stored, Local ─> reply                          │
//!      ^                                 ├─ Wait ─ until stored ─> 1, Landed                │
//!      │                                 ├─ Complete, Tunnel ─> upstream ─> reply           │
//!      │                                 └─ Fetch ─ CollapseTable::join ─┬─ Alone ─> fetch  │
//!      └──────────────────────────────────── Won ────────────────────────┼─ Mine ──> fetch  │
//!                                                                        └─ Others ─> wait ──┘
//! ```
//!
//! Always holds: what a request may get is decided by `http_cache_rules::decide` alone; the store is looked at by
//! [`RequestHandler::look_up`] alone, and [`LookUp`] lists for which races again; a request waits for another's fetch a bounded
//! number of times, and each time for a bounded time; what a client has received whole its next request finds.
//! Not here: what is done with the origin's reply (`fetch`).

use std::rc::Rc;
use std::sync::Arc;

use http::Response;
use http::header::{AGE, CONTENT_LENGTH, HeaderValue};
use http_cache_rules::cache_status::CacheStatus;
use http_cache_rules::decide::{Action, Fetch, Found, Local, Reply, decide};
use http_cache_rules::response::{Came, ResponseAction, Role};
use http_cache_rules::reuse::ForwardReason;
use http_cache_rules::{Meta, forwarding};
use hyper::upgrade::OnUpgrade;

use crate::object_cache::{LookupResult, LookupStep, StoredReply};
use crate::server::answer::handler::{Client, RequestHandler};
use crate::server::answer::stored::Served;
use crate::server::client::reply_body::ReplyBody;
use crate::server::counters::Outcome;
use crate::server::fetch::collapsing::{Guard, JoinResult};
use crate::server::fetch::streaming_reply::{FetchResult, StreamingReply};
use crate::server::upstream::request::RequestBody;
use crate::server::worker::now;

/// How often the store is looked at for one request.
const LOOKS_MAX: usize = 4;
/// Of these, how often others may be waited for: what must be validated for each request would else queue up.
const SHARED_LOOKS: usize = 2;

/// What a client needs to go on by another protocol.
pub(in crate::server) struct Upgrade {
    /// Which one it asked for.
    pub protocol: HeaderValue,
    /// Its connection, once the reply has left.
    pub upgraded: OnUpgrade,
    /// Whose.
    pub client: Rc<Client>,
}

/// The places that look at the store, and the race for which each does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum LookUp {
    /// At the beginning of each turn of the loop: also after a collapsed fetch that ended in the store, or that was given up.
    Turn {
        /// A reply that is about to be stored may be waited for.
        may_wait: bool,
    },
    /// After [`Reply::Wait`]: the reply has been stored in between.
    Landed,
    /// After the right to fetch was won: another fetch may have ended between the first look and that.
    Won,
    /// Before a fetch in the background: what was served a moment ago may have been replaced.
    Refetch,
    /// Before something is fetched ahead: it may be there.
    Ahead,
    /// After a HEAD: which stored reply to a GET it says something about.
    Head,
}

/// What a look found, bans left out.
pub(in crate::server) enum Lookup {
    /// Nothing for the URI.
    Nothing,
    /// Only replies to other request fields.
    OtherVariants,
    /// What has come whole and is on its way to the store.
    AboutToBeStored(Arc<StreamingReply>),
    /// This.
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

/// What one turn of the loop leads to.
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
        for look in 0..LOOKS_MAX {
            let share = look < SHARED_LOOKS;
            let mut found = self.look_up(LookUp::Turn { may_wait: share }).await;
            let mut action = self.decide(&found);
            if let (Reply::Wait, Lookup::AboutToBeStored(streaming)) = (action.reply, &found) {
                let _ = tokio::time::timeout(self.config.collapse.wait, streaming.landed()).await;
                found = self.look_up(LookUp::Landed).await;
                action = self.decide(&found);
            }
            match self.execute(action, found, share, &mut body, &mut upgrade).await {
                Step::Done(reply) => return *reply,
                Step::Again => {}
            }
        }
        // Others' fetches were given up again and again: this one is our own.
        self.fetch(None, ForwardReason::UriMiss, None, RequestBody::Nothing).await
    }

    /// The one place where the store is looked at for a request.
    pub(in crate::server) async fn look_up(&self, at: LookUp) -> Lookup {
        if !self.request().is_answered_from_store() {
            return Lookup::Nothing;
        }
        let found = match at {
            LookUp::Turn { .. } => self.look_in_time().await,
            // What was there a moment ago is in memory, in all likelihood.
            _ => self.worker.shared.object_cache.look_up(&self.parsed.key, &self.parsed.headers),
        };
        match found {
            LookupResult::Reply(reply) if !self.is_banned(&reply) => Lookup::Reply(reply),
            LookupResult::OtherVariants => Lookup::OtherVariants,
            LookupResult::Nothing if at == LookUp::Turn { may_wait: true } && !self.request().joins() => {
                let landing = self.worker.shared.collapse_table.landing(&self.parsed.key);
                landing.map_or(Lookup::Nothing, Lookup::AboutToBeStored)
            }
            LookupResult::Nothing | LookupResult::Reply(_) => Lookup::Nothing,
        }
    }

    /// Others are served while the disk is read, where the kernel can do that.
    async fn look_in_time(&self) -> LookupResult {
        let (object_cache, parsed) = (&self.worker.shared.object_cache, &self.parsed);
        let Some(reads) = &self.worker.reads else {
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
        let stored_at = reply.meta().facts.stored_at;
        self.worker.shared.bans.covers(self.parsed.key.as_str(), stored_at, || reply.fields().ok())
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
        decide(&self.request(), found, &self.config.policy, now())
    }

    /// `share`: wait for another's fetch, and let others wait for this one.
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
            // Neither is decided without a stored reply, and only the first look waits.
            (Reply::Wait | Reply::Stored { .. } | Reply::Complete, _) => return Step::Again,
        };
        let Some(fetch) = fetch else { return done(self.local(Local::NotStored)) };
        let guard = match self.collapse(&fetch, share).await {
            Collapsed::Alone => None,
            Collapsed::Mine(guard) => Some(guard),
            Collapsed::InStore => return Step::Again,
            Collapsed::Others(streaming) => return Box::pin(self.join(&streaming, fetch.why, stored)).await,
        };
        let body = body.take().unwrap_or(RequestBody::Nothing);
        done(self.fetch(stored, fetch.why, guard, body).await)
    }

    /// Who fetches it.
    async fn collapse(&self, fetch: &Fetch, share: bool) -> Collapsed {
        if !share || !fetch.collapse || self.config.collapse.wait.is_zero() {
            return Collapsed::Alone;
        }
        match self.worker.shared.collapse_table.join(&self.parsed.key) {
            JoinResult::Alone => Collapsed::Alone,
            JoinResult::Others(streaming) => Collapsed::Others(streaming),
            JoinResult::Mine(guard) if fetch.why == ForwardReason::UriMiss => {
                match self.look_up(LookUp::Won).await {
                    Lookup::Reply(_) => {
                        guard.in_store();
                        Collapsed::InStore
                    }
                    _ => Collapsed::Mine(guard),
                }
            }
            JoinResult::Mine(guard) => Collapsed::Mine(guard),
        }
    }

    /// Waits for another's fetch, and shares it if that may be.
    async fn join(
        &mut self,
        streaming: &Arc<StreamingReply>,
        why: ForwardReason,
        mut stored: Option<Box<StoredReply>>,
    ) -> Step {
        let result = match tokio::time::timeout(self.config.collapse.wait, streaming.result()).await {
            Ok(result) => result,
            Err(_) => {
                self.worker.counters.collapse_timeouts.add(1);
                FetchResult::NotShared
            }
        };
        let shared = match result {
            FetchResult::InStore | FetchResult::Abandoned => return Step::Again,
            FetchResult::Shared(head) => self.share(streaming, &head, why),
            FetchResult::NotShared => None,
            FetchResult::Failed(failure) => {
                // As the one who asked: it need not be asked again by each.
                let action = self.decide_response(stored.as_deref(), Role::StandIn, Came::Shared(failure));
                match (action, stored.take()) {
                    (ResponseAction::ServeStale { age_s, failure }, Some(held)) => {
                        Some(self.serve_stale(*held, age_s, failure, why))
                    }
                    (ResponseAction::GatewayTimeout, _) => Some(self.may_not_stand_in(None)),
                    (_, held) => {
                        stored = held;
                        None
                    }
                }
            }
        };
        // It varies, is for a part, or cannot be joined any more: on our own, beside it.
        let reply = match shared {
            Some(reply) => reply,
            None => self.fetch(stored, why, None, RequestBody::Nothing).await,
        };
        Step::Done(Box::new(reply))
    }

    /// What is on its way, if it answers this request too.
    fn share(
        &mut self,
        streaming: &Arc<StreamingReply>,
        head: &crate::server::fetch::streaming_reply::SharedHead,
        why: ForwardReason,
    ) -> Option<Response<ReplyBody>> {
        let bans = &self.worker.shared.bans;
        if bans.covers(self.parsed.key.as_str(), head.requested_at, || head.stored.fields()) {
            return None;
        }
        let (reader, meta) = (streaming.read()?, Meta::from_bytes(&head.stored.facts).ok()?);
        if !meta.answers(&self.parsed.headers, &mut Vec::new()) {
            return None;
        }
        let action = decide(&self.request(), Found::Reply(&meta), &self.config.policy, now());
        let Action { reply: Reply::Stored { age_s, .. }, background: None } = action else { return None };
        let mut headers = head.stored.fields()?;
        headers.insert(AGE, forwarding::age_value(age_s));
        if let Some(bytes) = head.announced {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes));
        }
        let status = CacheStatus { collapsed: true, ..CacheStatus::forwarded(&self.config.proxy.name, why) };
        status.append_to(&mut headers);
        let body = ReplyBody::filled(reader, head.announced);
        Some(self.reply(Served { status: head.status, headers, body }, Outcome::Collapsed))
    }
}

/// Who fetches what several requests may share.
enum Collapsed {
    /// This request, for itself.
    Alone,
    /// This request, for all.
    Mine(Guard),
    /// Another one, on its way.
    Others(Arc<StreamingReply>),
    /// Another one, by now.
    InStore,
}
