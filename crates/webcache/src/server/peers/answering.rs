//! Answers the ICP queries of other caches about what is stored here (RFC 2186, RFC 2187 section 5.2), on one socket and a thread
//! of its own.
//!
//! ```text
//! not from icp.clients ─> no answer   malformed ─> no answer   invalid URL ─> ERR   not served ─> DENIED
//! stored, not banned, fresh for a while ─> HIT
//! otherwise: the index is complete ─> MISS     the index is still being rebuilt ─> MISS_NOFETCH     draining ─> no answer
//! ```
//!
//! Always holds: every datagram is counted. A datagram causes at most one answer, which is shorter and goes to its sender, if that
//! may query. No event loop waits for a look-up here. A reply found here is in memory when the request for it arrives.
//! Not here: the message format (`crate::icp`), querying others (`neighbours`).

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use http::header::{ACCEPT_ENCODING, HeaderValue};
use http::{HeaderMap, Method, Uri};
use http_cache_rules::key::CacheKey;

use crate::config::{Config, Upstream};
use crate::icp::{self, Answer, Message};
use crate::object_cache::LookupResult;
use crate::server::StoredAt;
use crate::server::client::parsed_request::{allowed_host, allowed_method};
use crate::server::counters::Counters;
use crate::server::worker::{Shared, Stage, now};

/// Binds the socket.
///
/// # Errors
/// When the address cannot be bound.
pub fn open(address: SocketAddr) -> std::io::Result<(UdpSocket, SocketAddr)> {
    let socket = UdpSocket::bind(address)?;
    socket.set_nonblocking(true)?;
    let address = socket.local_addr()?;
    Ok((socket, address))
}

/// Answers until the proxy drains. From then on siblings get no answer and go elsewhere.
pub async fn answer(shared: Arc<Shared>, counters: Arc<Counters>, socket: UdpSocket) {
    let socket = match tokio::net::UdpSocket::from_std(socket) {
        Ok(socket) => socket,
        Err(error) => return tracing::error!(%error, "the socket for ICP cannot be used"),
    };
    let mut stage = shared.stage.subscribe();
    let mut server = IcpServer { shared, counters, ready: false };
    let mut datagram = vec![0; icp::MESSAGE_BYTES_MAX + 1];
    loop {
        let received = tokio::select! {
            received = socket.recv_from(&mut datagram) => received,
            _ = stage.wait_for(|stage| *stage >= Stage::Draining) => return,
        };
        let Ok((bytes, from)) = received else {
            // An earlier answer was rejected by its receiver, or memory is short.
            tokio::time::sleep(Duration::from_millis(1)).await;
            continue;
        };
        if let Some(answer) = server.answer(&datagram[..bytes], from) {
            // An answer that cannot be sent is lost, like any datagram.
            let _ = socket.send_to(&answer, from).await;
        }
    }
}

/// What browsers send in Accept-Encoding, over https and over http.
const ACCEPT_ENCODINGS: [&str; 3] = ["gzip, deflate, br, zstd", "gzip, deflate, br", "gzip, deflate"];

struct IcpServer {
    shared: Arc<Shared>,
    counters: Arc<Counters>,
    /// The store's index is complete. Once true it stays true.
    ready: bool,
}

impl IcpServer {
    fn answer(&mut self, datagram: &[u8], from: SocketAddr) -> Option<Vec<u8>> {
        let config = self.shared.config();
        if !config.may_ask_by_icp(from.ip()) {
            self.counters.icp_refused.add(1);
            return None;
        }
        let (number, url) = match icp::read(datagram) {
            Ok(Message::Query { number, url }) => (number, url),
            Ok(Message::Reply { .. }) => {
                self.counters.icp_unexpected.add(1);
                return None;
            }
            Err(error) => {
                tracing::debug!(%error, %from, "a datagram was dropped");
                self.counters.icp_malformed.add(1);
                return None;
            }
        };
        let answer = self.answer_to(url, &config);
        let index = Answer::ALL.iter().position(|known| *known == answer)?;
        self.counters.icp_answers()[index].add(1);
        icp::reply(answer, number, url)
    }

    /// Whether to answer with a hit. A query does not say which variant the client will accept: this checks the variant for a request
    /// without fields, and for browsers that only state encodings.
    fn is_hit(&self, key: &CacheKey, config: &Config) -> bool {
        let mut fields = HeaderMap::new();
        for accepted in std::iter::once(None).chain(ACCEPT_ENCODINGS.map(Some)) {
            if let Some(accepted) = accepted {
                fields.insert(ACCEPT_ENCODING, HeaderValue::from_static(accepted));
            }
            match self.shared.object_cache.look_up(key, &fields) {
                LookupResult::Nothing => return false,
                LookupResult::OtherVariants => {}
                LookupResult::Reply(reply) => {
                    let meta = reply.meta();
                    let stored_at = StoredAt::of(&reply);
                    let banned = self.shared.bans.covers(key.as_str(), stored_at, || reply.fields().ok());
                    if !banned && icp::is_offered(Some(&meta.facts), &config.policy, now()) {
                        return true;
                    }
                    if meta.vary_names.is_empty() {
                        return false;
                    }
                }
            }
        }
        false
    }

    fn answer_to(&mut self, url: &[u8], config: &Config) -> Answer {
        let Ok(target) = Uri::try_from(url) else { return Answer::Err };
        let (Ok(key), Some(upstream)) = (CacheKey::of(&target), Upstream::of(&target)) else {
            return Answer::Err;
        };
        let port_served = config.forward.ports.is_empty() || config.forward.ports.contains(&upstream.port);
        if !port_served
            || allowed_host(&upstream.host, config).is_err()
            || allowed_method(&Method::GET, config).is_err()
        {
            return Answer::Denied;
        }
        if self.is_hit(&key, config) {
            return Answer::Hit;
        }
        self.ready = self.ready || self.shared.object_cache.store().usage().ready;
        if self.ready { Answer::Miss } else { Answer::MissNoFetch }
    }
}
