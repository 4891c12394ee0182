//! Fetches an object that is missing here from a sibling that has it.
//!
//! ```text
//! miss, forward, plain GET ─ neighbours ─> hit at a sibling ─ fetch_from_sibling: only-if-cached ─> 2xx, 3xx, 404, 410: the reply
//!                                                                                              └> else as without siblings
//! ```
//!
//! Always holds: a sibling is asked only for what it has stored and never fetches for us, so that requests cannot circle between
//! siblings. A sibling's own error replies never reach a client.
//! Not here: finding the sibling (`neighbours`), parents (`fetch`).

use http::Method;
use http::header::{CACHE_CONTROL, HeaderMap, HeaderValue, PROXY_AUTHORIZATION};
use http_cache_rules::reuse::ForwardReason;

use crate::config::Upstream;
use crate::icp;
use crate::log::Way;
use crate::server::answer::handler::RequestHandler;
use crate::server::client::parsed_request::Route;
use crate::server::fetch::UpstreamReply;
use crate::server::peers::neighbours::IcpResult;
use crate::server::upstream::request::{RequestBody, RequestHead};
use crate::server::upstream::{Attempts, NamedBy};
use crate::server::worker::now;

impl RequestHandler {
    /// Queries the neighbours, if there are any, about a request that a store can answer and for which nothing is stored here.
    pub(in crate::server) async fn neighbours(&mut self, why: ForwardReason) -> IcpResult {
        let config = self.config();
        let some = !config.siblings.is_empty() || config.parents.iter().any(|parent| parent.icp_port != 0);
        let nothing_here = matches!(why, ForwardReason::UriMiss | ForwardReason::VaryMiss);
        let forward = matches!(self.parsed().route, Route::Direct(_));
        if !(some && nothing_here && forward && icp::is_queryable(&self.parsed().facts)) {
            return IcpResult::default();
        }
        let url = self.parsed().target.to_string();
        let found = self.worker().icp_client.query_all(&url, config, &self.worker().pool).await;
        if let (Some((parent, false)), Some(access_entry)) = (&found.hit, self.access_entry_mut()) {
            access_entry.set_icp_hit(&parent.host);
        }
        found
    }

    /// Requests an object from a sibling with an ICP hit. `None` when its reply is of no use.
    pub(in crate::server) async fn fetch_from_sibling(
        &mut self,
        sibling: &Upstream,
        headers: &HeaderMap,
    ) -> Option<UpstreamReply> {
        let mut headers = headers.clone();
        // The password is not for the sibling. With only-if-cached it does not forward the request.
        headers.remove(PROXY_AUTHORIZATION);
        headers.append(CACHE_CONTROL, HeaderValue::from_static("only-if-cached"));
        let head = RequestHead { method: Method::GET, uri: self.parsed().target.clone(), headers };
        if let Some(access_entry) = self.access_entry_mut() {
            access_entry.set_upstream_via(&sibling.host, Way::SiblingHit);
        }
        let requested_at = now();
        let (pool, mut attempts) = (&self.worker().pool, Attempts::new());
        let body = RequestBody::Nothing;
        let sent = pool.send(sibling, NamedBy::Operator, &head, body, self.config(), &mut attempts);
        // A stored object arrives at once: do not wait longer than for a connection.
        let reply = tokio::time::timeout(self.config().upstream.connect_time, sent).await;
        let reply = reply.ok().and_then(Result::ok).filter(|reply| icp::is_usable_reply(reply.status()));
        let counters = &self.worker().counters;
        match reply {
            Some(_) => counters.sibling_hits.add(1),
            None => counters.sibling_failures.add(1),
        }
        reply.map(|reply| UpstreamReply {
            reply,
            requested_at,
            answered_at: now(),
            of_sibling: true,
            completed_part: None,
        })
    }
}
