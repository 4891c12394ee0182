//! What a 304, or the reply to a HEAD, changes of a stored reply.
//!
//! Always holds: it updates the very object whose validators were sent, or none (RFC 9111 sections 4.3.4 and 4.3.5).

use std::sync::Arc;

use http::header::HeaderMap;
use http::{Response, StatusCode};
use http_cache_rules::cache_status::CacheStatus;
use http_cache_rules::reuse::ForwardReason;
use http_cache_rules::update::{self, HeadSays};
use http_cache_rules::{Meta, Refusal, StoredFacts, facts, forwarding};

use super::UpstreamReply;
use super::body_relay::expires_s;
use super::collapsing::FetchGuard;
use crate::object_cache::{NewHead, Precondition, StoredBody, StoredReply, encode_reply};
use crate::server::answer::driver::{LookUpAt, Lookup};
use crate::server::answer::handler::RequestHandler;
use crate::server::client::reply_body::ReplyBody;
use crate::server::counters::Outcome;
use crate::server::worker::now;

impl RequestHandler {
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
    pub(super) async fn confirmed(
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

    /// Applies the reply to a HEAD to the stored reply to a GET (RFC 9111 section 4.3.5).
    pub(super) async fn apply_head_reply(&self, answer: &UpstreamReply) {
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
