//! Health checks: requests a page from each origin at intervals, so that clients do not run into dead origins.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use http::header::{HOST, HeaderValue};
use http::{HeaderMap, Method, Uri};

use crate::config::Upstream;
use crate::server::upstream::request::{RequestBody, RequestHead};
use crate::server::upstream::{Attempts, NamedBy};
use crate::server::worker::{Stage, Worker};

/// Probes as configured until the proxy drains. Each loop probes for itself, as it has its own connections.
pub async fn probe_origins(worker: Rc<Worker>) {
    let mut stage = worker.shared.stage.subscribe();
    let mut tick = tokio::time::interval(Duration::from_secs(1));
    let mut probed_at: HashMap<Upstream, Instant> = HashMap::new();
    loop {
        tokio::select! {
            _ = stage.wait_for(|stage| *stage >= Stage::Draining) => return,
            _ = tick.tick() => {}
        }
        let config = worker.config();
        for site in &config.sites {
            let Some((path, every)) = &site.health else { continue };
            for origin in &site.origins {
                if probed_at.get(origin).is_some_and(|at| at.elapsed() < *every) {
                    continue;
                }
                probed_at.insert(origin.clone(), Instant::now());
                let host = site.host.as_ref().map_or_else(|| origin.authority(), ToString::to_string);
                let mut headers = HeaderMap::new();
                if let Ok(host) = HeaderValue::from_str(&host) {
                    headers.insert(HOST, host);
                }
                let head = RequestHead { method: Method::GET, uri: Uri::from(path.clone()), headers };
                let (worker, origin, every, config) =
                    (Rc::clone(&worker), origin.clone(), *every, config.clone());
                tokio::task::spawn_local(async move {
                    let reply = worker
                        .pool
                        .send(
                            &origin,
                            NamedBy::Operator,
                            &head,
                            RequestBody::Nothing,
                            &config,
                            &mut Attempts::new(),
                        )
                        .await;
                    let healthy = reply.is_ok_and(|reply| reply.status().as_u16() < 400);
                    let until = (!healthy).then(|| Instant::now() + every * 2 + Duration::from_secs(1));
                    if healthy != worker.pool.is_up(&origin) {
                        tracing::info!(
                            origin = origin.authority(),
                            lives = healthy,
                            "an origin's state changed"
                        );
                    }
                    worker.pool.set_down(&origin, until);
                });
            }
        }
    }
}
