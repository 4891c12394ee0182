//! Background fetches: they fill the store, and no client waits for them.
//!
//! Always holds: at most one runs per key, as they are collapsed like any other fetch. The client's conditions and ranges are
//! removed. A reply that turns out not to be storable is not read to its end.
//! Not here: which objects are prefetched (`prefetch`).

use http::Method;
use http_body::Body as _;
use http_cache_rules::decide::Fetch;
use http_cache_rules::reuse::ForwardReason;

use crate::server::answer::driver::{LookUpAt, Lookup};
use crate::server::answer::handler::RequestHandler;
use crate::server::client::parsed_request::ParsedRequest;
use crate::server::fetch::collapsing::{FetchGuard, JoinResult};
use crate::server::upstream::request::RequestBody;
use crate::server::worker::Busy;

impl RequestHandler {
    /// Revalidates a reply that was just served stale, unless another fetch of it is in progress.
    pub(in crate::server) fn revalidate_in_background(&self, fetch: Fetch) {
        let JoinResult::Lead(guard) = self.worker().shared.collapse_table.join(&self.parsed().key) else {
            return;
        };
        let mut headers = self.parsed().headers.clone();
        for name in [
            http::header::RANGE,
            http::header::IF_RANGE,
            http::header::IF_NONE_MATCH,
            http::header::IF_MODIFIED_SINCE,
        ] {
            headers.remove(name);
        }
        let parsed = ParsedRequest {
            method: Method::GET,
            target: self.parsed().target.clone(),
            key: self.parsed().key.clone(),
            facts: http_cache_rules::RequestFacts::of(&Method::GET, &headers),
            headers,
            version: self.parsed().version,
            route: self.parsed().route.clone(),
            server_wide: false,
        };
        let background = self.in_background(parsed);
        tokio::task::spawn_local(background.refetch(guard, fetch.why, u64::MAX));
    }

    /// Fetches into the store, up to `bytes_max` bytes of body. Returns the length when the reply arrived completely and may be stored.
    pub(in crate::server) async fn refetch(
        mut self,
        guard: FetchGuard,
        why: ForwardReason,
        bytes_max: u64,
    ) -> Option<u64> {
        let busy = Busy::new(self.worker());
        let stored = match self.look_up(LookUpAt::BeforeBackgroundFetch).await {
            Lookup::Reply(stored) => Some(stored),
            _ => None,
        };
        let reply = self.fetch(stored, why, Some(guard), RequestBody::Nothing).await;
        let mut body = std::pin::pin!(reply.into_body());
        // Read like a client, so that the fetch runs to its end, but stop as soon as the reply is not being stored.
        let mut bytes = 0;
        let whole = loop {
            if !body.is_being_stored() || body.size_hint().lower().saturating_add(bytes) > bytes_max {
                break false;
            }
            match std::future::poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
                Some(Ok(frame)) => bytes += frame.data_ref().map_or(0, |chunk| chunk.len() as u64),
                Some(Err(_)) => break false,
                None => break true,
            }
        };
        drop(busy);
        whole.then_some(bytes)
    }
}
