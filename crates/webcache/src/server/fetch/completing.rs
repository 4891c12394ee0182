//! A stored part that does not suffice: what is missing of it is asked for, and both are served and stored as one.
//!
//! ```text
//! part ─ Completion ─ Range, If-Range ─> 206 of just that ─> stored bytes and new ones, in order ─> as any reply
//!                                     └> 200 ─> it has changed: as any reply      else ─> asked for as the client did
//! ```
//!
//! Always holds: the new object lies where the part lay only when its last byte is there; until then, and when the origin
//! breaks off, the part stays what it is.
//! Not here: what may be put together (`http_cache_rules::completion`).

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
use crate::server::fetch::Answer;
use crate::server::peers::neighbours::Found;
use crate::server::upstream::connection::ArrivingBody;
use crate::server::upstream::request::RequestBody;
use crate::server::worker::now;

/// A stored part, and what the reply brings of what it lacks.
pub(in crate::server) struct Joined {
    completion: Completion,
    stored: StoredBody,
}

impl Joined {
    /// Both, in the order of their bytes; and which of these come from the origin.
    pub(in crate::server) fn body(self, incoming: ArrivingBody, config: &Config) -> (ReplyBody, Range<u64>) {
        let (missing, extent) = (self.completion.missing, self.completion.extent);
        let from = missing.first - extent.first;
        let (stored, bytes) = (self.stored, missing.bytes());
        (ReplyBody::joined(stored, incoming, bytes, from > 0, config.upstream.reply_time), from..from + bytes)
    }

    /// What of it the client wanted: fields and status are changed to that; gives what to skip, and the length.
    pub(in crate::server) fn wanted(&self, fields: &mut HeaderMap) -> Option<(u64, u64)> {
        self.completion.describe_wanted(fields)
    }
}

impl RequestHandler {
    /// Answers with a stored part and what is missing of it. Nothing when the origin is to be asked as the client did.
    pub(in crate::server) async fn complete(
        &mut self,
        part: StoredReply,
    ) -> Option<http::Response<ReplyBody>> {
        let asks = &self.parsed.facts;
        if asks.conditional || asks.directives.no_cache || asks.directives.no_store {
            return None;
        }
        let completion = Completion::of(&self.parsed.headers, &part.meta(), now())?;
        self.epoch = self.worker.shared.collapse_table.epoch(&self.parsed.key);
        let mut headers = self.onward();
        completion.ask_for_it(&mut headers);
        let mut answer = match self.ask(headers, RequestBody::Nothing, &Found::default()).await {
            Ok(answer) => answer,
            Err(error) => return Some(self.no_reply(&error, ForwardReason::Partial)),
        };
        let status = answer.reply.status();
        if completion.is_brought_by(&part.meta(), status, answer.reply.headers(), now()) {
            let mut fields = part.fields().ok()?;
            let mut news = answer.reply.headers().clone();
            forwarding::strip_hop_by_hop(&mut news);
            update::merge(&mut fields, &news);
            *answer.reply.status_mut() = completion.describe(&mut fields);
            *answer.reply.headers_mut() = fields;
            self.worker.counters.completed_parts.add(1);
            answer.joined = Some(Joined { completion, stored: part.into_parts().1 });
            let verdict = self.verdict(&answer, None, Role::Doubtful);
            return Some(self.pass_on(answer, verdict, None, ForwardReason::Partial, None).await);
        }
        if matches!(status, StatusCode::PARTIAL_CONTENT | StatusCode::RANGE_NOT_SATISFIABLE) {
            // An answer to our range, which the client did not ask for.
            return None;
        }
        // It has changed, or is gone, and so is the part.
        let verdict = self.verdict(&answer, Some(&part), Role::Doubtful);
        Some(self.pass_on(answer, verdict, Some(Box::new(part)), ForwardReason::Partial, None).await)
    }
}

impl Answer {
    /// The status that came.
    pub(in crate::server) fn status(&self) -> StatusCode {
        if self.joined.is_some() { StatusCode::PARTIAL_CONTENT } else { self.reply.status() }
    }
}
