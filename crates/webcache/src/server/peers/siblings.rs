//! A request for which nothing is stored here, taken to a cache beside this one that has it.
//!
//! ```text
//! miss, forward, plain GET ─ neighbours ─> a sibling has it ─ ask_sibling: only-if-cached ─> 2xx, 3xx, 404, 410: the reply
//!                                                                                       └─> else as without siblings
//! ```
//!
//! Always holds: a sibling is asked for what it has and never to ask others, so that no two ask each other in a circle; what
//! it says about itself is told to no client.
//! Not here: finding out who has it (`neighbours`), parents (`fetch`).

use http::Method;
use http::header::{CACHE_CONTROL, HeaderMap, HeaderValue, PROXY_AUTHORIZATION};
use http_cache_rules::reuse::ForwardReason;

use crate::config::Upstream;
use crate::icp;
use crate::log::Way;
use crate::server::answer::handler::RequestHandler;
use crate::server::client::parsed_request::Route;
use crate::server::fetch::UpstreamReply;
use crate::server::peers::neighbours::Found;
use crate::server::upstream::NamedBy;
use crate::server::upstream::request::{RequestBody, RequestHead};
use crate::server::worker::now;

impl RequestHandler {
    /// Who else has it, where other caches are asked at all: of a request that a store may answer, when there is nothing here.
    pub(in crate::server) async fn neighbours(&mut self, why: ForwardReason) -> Found {
        let config = &self.config;
        let some = !config.siblings.is_empty() || config.parents.iter().any(|parent| parent.icp_port != 0);
        let nothing_here = matches!(why, ForwardReason::UriMiss | ForwardReason::VaryMiss);
        let forward = matches!(self.parsed.route, Route::Direct(_));
        if !(some && nothing_here && forward && icp::is_asked_about(&self.parsed.facts)) {
            return Found::default();
        }
        let url = self.parsed.target.to_string();
        let found = self.worker.asker.ask(&url, config, &self.worker.pool).await;
        if let (Some((parent, false)), Some(ledger)) = (&found.hit, &mut self.ledger) {
            ledger.has_it(&parent.host);
        }
        found
    }

    /// Asks a sibling that said it has it, for what it has and no more. Nothing when that is of no use after all.
    pub(in crate::server) async fn fetch_from_sibling(
        &mut self,
        sibling: &Upstream,
        headers: &HeaderMap,
    ) -> Option<UpstreamReply> {
        let mut headers = headers.clone();
        // It is not for its own clients, nor is it to ask anybody: so two siblings never ask each other in a circle.
        headers.remove(PROXY_AUTHORIZATION);
        headers.append(CACHE_CONTROL, HeaderValue::from_static("only-if-cached"));
        let head = RequestHead { method: Method::GET, uri: self.parsed.target.clone(), headers };
        if let Some(ledger) = &mut self.ledger {
            ledger.asked_by(&sibling.host, Way::SiblingHit);
        }
        let requested_at = now();
        let sent =
            self.worker.pool.send(sibling, NamedBy::Operator, &head, RequestBody::Nothing, &self.config);
        // What is stored comes at once; who does not even begin with it is not worth more than a connection's time.
        let reply = tokio::time::timeout(self.config.upstream.connect_time, sent).await;
        let reply = reply.ok().and_then(Result::ok).filter(|reply| icp::is_taken(reply.status()));
        let counters = &self.worker.counters;
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
