//! Completes a stored part: requests the missing bytes, and serves and stores both as one reply.
//!
//! ```text
//! part ─ Completion ─ Range, If-Range ─> 206 with those bytes ─> stored and new bytes, in order ─> as any reply
//!                                     └> 200 ─> the content changed: as any reply      other ─> send the client's request
//! ```
//!
//! Always holds: the new object replaces the part only when its last byte has arrived. Until then, and when the origin breaks
//! off, the part stays as it is.
//! Not here: which parts may be combined (`http_cache_rules::completion`).

use std::ops::Range;

use http::{HeaderMap, StatusCode};
use http_cache_rules::completion::Completion;
use http_cache_rules::response::Role;
use http_cache_rules::reuse::ForwardReason;
use http_cache_rules::{forwarding, update};

use crate::config::Config;
use crate::object_cache::{StoredBody, StoredReply};
use crate::server::answer::handler::RequestHandler;
use crate::server::client::reply_body::ReplyBody;
use crate::server::fetch::UpstreamReply;
use crate::server::peers::neighbours::IcpResult;
use crate::server::upstream::connection::ArrivingBody;
use crate::server::upstream::request::RequestBody;
use crate::server::worker::now;

/// A stored part together with the reply that brings its missing bytes.
pub(in crate::server) struct CompletedPart {
    completion: Completion,
    stored: StoredBody,
}

impl CompletedPart {
    /// Both bodies in order, and the range of bytes that comes from the origin.
    pub(in crate::server) fn body(self, incoming: ArrivingBody, config: &Config) -> (ReplyBody, Range<u64>) {
        let (missing, extent) = (self.completion.missing, self.completion.extent);
        let from = missing.first - extent.first;
        let (stored, bytes) = (self.stored, missing.bytes());
        (
            ReplyBody::completed(stored, incoming, bytes, from > 0, config.upstream.reply_time),
            from..from + bytes,
        )
    }

    /// Changes the fields to describe the range that the client asked for. Returns how many bytes to skip, and the length.
    pub(in crate::server) fn describe_wanted(&self, fields: &mut HeaderMap) -> Option<(u64, u64)> {
        self.completion.describe_wanted(fields)
    }
}

impl RequestHandler {
    /// Answers with a stored part and its missing bytes. `None` when the client's own request must go to the origin.
    pub(in crate::server) async fn complete(
        &mut self,
        part: StoredReply,
    ) -> Option<http::Response<ReplyBody>> {
        let asks = &self.parsed().facts;
        if asks.conditional || asks.directives.no_cache || asks.directives.no_store {
            return None;
        }
        let completion = Completion::of(&self.parsed().headers, &part.meta(), now())?;
        self.note_epoch();
        let mut headers = self.forwarded_headers();
        completion.request_missing(&mut headers);
        let mut answer =
            match self.send_to_upstreams(headers, RequestBody::Nothing, &IcpResult::default()).await {
                Ok(answer) => answer,
                Err(error) => return Some(self.no_reply(&error, ForwardReason::Partial)),
            };
        let status = answer.reply.status();
        if completion.is_satisfied_by(&part.meta(), status, answer.reply.headers(), now()) {
            let mut fields = part.fields().ok()?;
            let mut news = answer.reply.headers().clone();
            forwarding::strip_hop_by_hop(&mut news);
            update::merge(&mut fields, &news);
            *answer.reply.status_mut() = completion.describe(&mut fields);
            *answer.reply.headers_mut() = fields;
            self.worker().counters.completed_parts.add(1);
            answer.completed_part = Some(CompletedPart { completion, stored: part.into_parts().1 });
            let storage_decision = self.storage_decision(&answer, None, Role::Doubtful);
            return Some(self.pass_on(answer, storage_decision, None, ForwardReason::Partial, None).await);
        }
        if matches!(status, StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE) {
            // The reply answers our range, not the client's request.
            return None;
        }
        // The content changed or is gone, so the part is outdated.
        let storage_decision = self.storage_decision(&answer, Some(&part), Role::Doubtful);
        Some(self.pass_on(answer, storage_decision, Some(Box::new(part)), ForwardReason::Partial, None).await)
    }
}

impl UpstreamReply {
    /// The status that upstream sent.
    pub(in crate::server) fn status(&self) -> StatusCode {
        if self.completed_part.is_some() { StatusCode::PARTIAL_CONTENT } else { self.reply.status() }
    }
}
