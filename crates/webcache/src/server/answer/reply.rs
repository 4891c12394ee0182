//! Builds replies to clients, from the store or of the proxy's own, with the fields that the proxy adds to every reply.

use http::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{Response, StatusCode};
use http_cache_rules::Meta;
use http_cache_rules::cache_status::CacheStatus;
use http_cache_rules::forwarding::{self, Received};

use crate::object_cache::{StoredBody, StoredReply};
use crate::server::answer::handler::RequestHandler;
use crate::server::answer::stored::{self, Served};
use crate::server::client::reply_body::ReplyBody;
use crate::server::counters::Outcome;
use crate::server::worker::now;

const X_CACHE: HeaderName = HeaderName::from_static("x-cache");
pub(in crate::server) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// A reply of the proxy's own, with one line of text.
pub fn plain(status: StatusCode, why: &str) -> Response<ReplyBody> {
    let mut reply = Response::new(ReplyBody::whole(format!("{why}\n")));
    *reply.status_mut() = status;
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(CONTENT_LENGTH, HeaderValue::from(why.len() + 1));
    headers.insert(http::header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    reply
}

impl RequestHandler {
    /// Serves a stored reply; `None` when the requested range is not stored, or the stored fields are unreadable.
    pub(in crate::server) fn serve_stored(
        &mut self,
        stored: StoredReply,
        age_s: u32,
        outcome: Outcome,
    ) -> Option<Response<ReplyBody>> {
        let headers = stored.fields().ok()?;
        let ttl = i64::from(stored.meta().facts.lifetime_s) - i64::from(age_s);
        self.serve(stored, headers, age_s, outcome, &CacheStatus::hit(&self.config().clone().proxy.name, ttl))
    }

    /// Serves a stored reply with these fields.
    pub(in crate::server) fn serve(
        &mut self,
        stored: StoredReply,
        headers: HeaderMap,
        age_s: u32,
        outcome: Outcome,
        status: &CacheStatus<'_>,
    ) -> Option<Response<ReplyBody>> {
        let (facts, body) = stored.into_parts();
        let meta = facts.meta();
        self.serve_parts(&meta, headers, body, age_s, outcome, status)
    }

    /// As [`RequestHandler::serve`], with head and body apart.
    pub(in crate::server) fn serve_parts(
        &mut self,
        meta: &Meta<'_>,
        headers: HeaderMap,
        body: StoredBody,
        age_s: u32,
        outcome: Outcome,
        status: &CacheStatus<'_>,
    ) -> Option<Response<ReplyBody>> {
        let mut served =
            stored::serve(&self.parsed().method, &self.parsed().headers, meta, headers, body, age_s, now())?;
        status.append_to(&mut served.headers);
        let outcome = match (outcome, served.status) {
            (Outcome::Hit, StatusCode::NOT_MODIFIED) => Outcome::NotModified,
            (outcome, _) => outcome,
        };
        Some(self.reply(served, outcome))
    }

    /// Adds the proxy's fields and hands the access-log entry to the body, whose end completes it.
    pub(in crate::server) fn reply(&mut self, served: Served, outcome: Outcome) -> Response<ReplyBody> {
        let Served { status, mut headers, body } = served;
        forwarding::add_via(&mut headers, Received::Http11, &self.config().via);
        let x_cache = if outcome.is_hit() { "HIT from " } else { "MISS from " };
        if let Ok(value) = HeaderValue::try_from([x_cache, &self.config().proxy.name].concat()) {
            headers.insert(X_CACHE, value);
        }
        headers.insert(X_REQUEST_ID, hexadecimal(self.request_id()));
        if outcome.is_hit()
            && self.has_client()
            && self.worker().shared.prefetches.is_first_use(&self.parsed().key)
        {
            self.worker().counters.prefetch_used.add(1);
        }
        let mut access_entry = self.take_access_entry();
        if let Some(access_entry) = &mut access_entry {
            access_entry.set_reply(outcome, status.as_u16(), headers.get(CONTENT_TYPE));
        }
        let body = match access_entry {
            Some(access_entry) => body.with_access_entry(access_entry),
            None => body,
        };
        let mut reply = Response::new(body);
        *reply.status_mut() = status;
        *reply.headers_mut() = headers;
        reply
    }

    /// Sends a reply of the proxy's own.
    pub(in crate::server) fn own(
        &mut self,
        reply: Response<ReplyBody>,
        outcome: Outcome,
    ) -> Response<ReplyBody> {
        let (parts, body) = reply.into_parts();
        self.reply(Served { status: parts.status, headers: parts.headers, body }, outcome)
    }

    pub(in crate::server) fn gateway_timeout(&mut self, why: &str) -> Response<ReplyBody> {
        self.own(plain(StatusCode::GATEWAY_TIMEOUT, why), Outcome::Failed)
    }
}

/// A request's number as a field value.
pub(in crate::server) fn hexadecimal(number: u64) -> HeaderValue {
    let digits = b"0123456789abcdef";
    let mut text = [0; 16];
    for (place, letter) in text.iter_mut().enumerate() {
        *letter = digits[(number >> (60 - 4 * place)) as usize & 15];
    }
    HeaderValue::from_bytes(&text).expect("hexadecimal digits are visible")
}
