//! Sends a request upstream: its fields, the upstreams to try, and the attempts.
//!
//! Always holds: Proxy-Authorization is sent to proxies only. A request that may not be repeated is sent once.

use http::header::{
    CONTENT_LENGTH, CONTENT_RANGE, HOST, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHORIZATION, RANGE,
};
use http::uri::PathAndQuery;
use http::{Method, Response, StatusCode, Uri};
use http_cache_rules::response::{FetchOutcome, ResponseAction, Role};
use http_cache_rules::{forwarding, lists, ranges};

use super::UpstreamReply;
use crate::config::{Choice, ForwardedFor, Upstream};
use crate::server::answer::handler::{RequestHandler, received};
use crate::server::answer::reply::{X_REQUEST_ID, hexadecimal};
use crate::server::client::parsed_request::{Route, Side};
use crate::server::peers::neighbours::IcpResult;
use crate::server::upstream::connection::ArrivingBody;
use crate::server::upstream::request::{RequestBody, RequestHead};
use crate::server::upstream::{Attempts, NamedBy, UpstreamError};
use crate::server::worker::now;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

impl RequestHandler {
    /// The request fields to send upstream. Releases the buffer that the client's head was read into.
    pub(in crate::server) fn forwarded_headers(&mut self) -> HeaderMap {
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
    pub(in crate::server) async fn send_to_upstreams(
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
