//! Tunnels: CONNECT to the ports that the operator allows (RFC 9110 section 9.3.6), and protocol switches by 101 to the protocols
//! that the operator allows (section 7.8).
//!
//! Always holds: a refused CONNECT ends the connection, as the client may already send bytes that are not HTTP. A tunnel ends when
//! no byte passes for `limits.tunnel_idle_s`. A tunnel counts as its client's connection until it ends.

use std::cell::Cell;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http::header::{CONNECTION, HeaderMap, HeaderValue, UPGRADE};
use http::{Method, Request, Response, StatusCode, Version};
use http_body::Body as _;
use http_cache_rules::forwarding::{self, Received};
use http_cache_rules::key::is_host;
use http_cache_rules::lists;
use http_cache_rules::response::Role;
use http_cache_rules::reuse::ForwardReason;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional};

use crate::config::Config;
use crate::server::answer::driver::Upgrade;
use crate::server::answer::handler::{Client, RequestHandler};
use crate::server::answer::reply::plain;
use crate::server::client::access_entry::AccessEntry;
use crate::server::client::parsed_request;
use crate::server::client::reply_body::ReplyBody;
use crate::server::counters::Outcome;
use crate::server::peers::neighbours::IcpResult;
use crate::server::upstream::request::RequestBody;
use crate::server::upstream::{NamedBy, UpstreamError};
use crate::server::worker::{Busy, Stage, Worker};

/// A refusal that ends the connection.
pub fn refusal(status: StatusCode, why: &str) -> Response<ReplyBody> {
    let mut reply = plain(status, why);
    reply.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    reply
}

/// Opens a tunnel, or answers why not.
pub async fn open(
    worker: Rc<Worker>,
    config: Arc<Config>,
    request: &mut Request<Incoming>,
    mut access_entry: AccessEntry,
    connection: Rc<Client>,
) -> Response<ReplyBody> {
    let refuse = |mut access_entry: AccessEntry, outcome, status: StatusCode, why: &str| {
        access_entry.set_reply(outcome, status.as_u16(), None);
        refusal(status, why).map(|body| body.with_access_entry(access_entry))
    };
    let authority = request.uri().authority().cloned();
    let Some((authority, port)) =
        authority.and_then(|authority| authority.port_u16().map(|port| (authority, port)))
    else {
        return refuse(access_entry, Outcome::Denied, StatusCode::BAD_REQUEST, "CONNECT needs HOST:PORT");
    };
    if !is_host(authority.host()) {
        let why = "the host is neither a name nor an address";
        return refuse(access_entry, Outcome::Denied, StatusCode::BAD_REQUEST, why);
    }
    let host = authority.host().trim_matches(['[', ']']).to_ascii_lowercase();
    if !config.forward.connect_ports.contains(&port) {
        let why = "CONNECT may not reach this port (forward.connect_ports)";
        return refuse(access_entry, Outcome::Denied, StatusCode::FORBIDDEN, why);
    }
    if let Err(rejection) = parsed_request::allowed_host(&host, &config) {
        return refuse(access_entry, Outcome::Denied, rejection.status, rejection.why);
    }
    access_entry.set_upstream(&host, false);
    let origin = match worker.pool.tcp(&host, port, NamedBy::Client, &config).await {
        Ok(origin) => origin,
        Err(error) if error.is_refusal() => {
            return refuse(access_entry, Outcome::Denied, StatusCode::FORBIDDEN, &error.to_string());
        }
        Err(error) => {
            return refuse(access_entry, Outcome::Failed, StatusCode::BAD_GATEWAY, &error.to_string());
        }
    };
    access_entry.set_reply(Outcome::Tunnel, 200, None);
    access_entry.record_when_dropped();
    let upgraded = hyper::upgrade::on(request);
    let admitted = Rc::clone(&connection.admitted);
    tokio::task::spawn_local(async move {
        let busy = Busy::new(&worker);
        if let Ok(upgraded) = upgraded.await {
            relay(&worker, TokioIo::new(upgraded), origin, config.limits.tunnel_idle_time, &mut access_entry)
                .await;
        }
        drop(access_entry);
        drop((busy, admitted));
    });
    Response::new(ReplyBody::nothing())
}

/// The protocol that a request asks to switch to, if the operator allows it.
pub fn wanted_upgrade(request: &Request<Incoming>, config: &Config) -> Option<HeaderValue> {
    let headers = request.headers();
    let asks = lists::all_members(headers, &CONNECTION).any(|word| word.eq_ignore_ascii_case(b"upgrade"));
    let mut protocols = headers.get_all(UPGRADE).iter();
    let (Some(protocol), None) = (protocols.next(), protocols.next()) else { return None };
    let name = protocol.to_str().ok()?.split('/').next()?.to_ascii_lowercase();
    let may = request.version() == Version::HTTP_11 && request.method() == Method::GET;
    (may && asks && request.body().is_end_stream() && config.access.upgrades.contains(&name))
        .then(|| protocol.clone())
}

/// Whether a 101 switches to the protocol that was asked for, or names none. Versions may differ.
fn is_same_protocol(reply: &HeaderMap, wanted: &HeaderValue) -> bool {
    let name = |value: &HeaderValue| {
        let text = value.to_str().ok()?;
        Some(text.split('/').next()?.trim().to_ascii_lowercase())
    };
    let mut lines = reply.get_all(UPGRADE).iter();
    match (lines.next(), lines.next()) {
        (None, _) => true,
        (Some(line), None) => name(line).is_some_and(|named| name(wanted) == Some(named)),
        (Some(_), Some(_)) => false,
    }
}

impl RequestHandler {
    /// Asks the origin to switch protocols, and relays bytes if it agrees.
    pub(in crate::server) async fn upgrade(&mut self, upgrade: Upgrade) -> Response<ReplyBody> {
        let Upgrade { protocol, upgraded: client, client: connection } = upgrade;
        let switching = |headers: &mut HeaderMap, protocol: HeaderValue| {
            headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
            headers.insert(UPGRADE, protocol);
        };
        let mut headers = self.forwarded_headers();
        switching(&mut headers, protocol.clone());
        let why = ForwardReason::Method;
        let mut answer =
            match self.send_to_upstreams(headers, RequestBody::Nothing, &IcpResult::default()).await {
                Ok(answer) if answer.reply.status() == StatusCode::SWITCHING_PROTOCOLS => answer.reply,
                Ok(answer) => {
                    let storage_decision = self.storage_decision(&answer, None, Role::Doubtful);
                    return self.pass_on(answer, storage_decision, None, why, None).await;
                }
                Err(error) => return self.no_reply(&error, why),
            };
        if !is_same_protocol(answer.headers(), &protocol) {
            let authority = self.parsed().target.authority().map_or_else(String::new, ToString::to_string);
            return self.no_reply(&UpstreamError::Switched { authority }, why);
        }
        let origin = hyper::upgrade::on(&mut answer);
        let mut reply = Response::new(ReplyBody::nothing());
        *reply.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        *reply.headers_mut() = std::mem::take(answer.headers_mut());
        let headers = reply.headers_mut();
        let protocol = headers.get(UPGRADE).cloned().unwrap_or(protocol);
        forwarding::strip_hop_by_hop(headers);
        forwarding::add_via(headers, Received::Http11, &self.config().via);
        switching(headers, protocol);
        // From here on the client's bytes are not HTTP.
        connection.conn_state.switched.store(true, Ordering::Relaxed);
        let admitted = Rc::clone(&connection.admitted);
        let (worker, config, access_entry) =
            (Rc::clone(self.worker()), Arc::clone(self.config()), self.take_access_entry());
        tokio::task::spawn_local(async move {
            let busy = Busy::new(&worker);
            let Some(mut access_entry) = access_entry else { return };
            access_entry.set_reply(Outcome::Tunnel, 101, None);
            access_entry.record_when_dropped();
            if let (Ok(client), Ok(origin)) = (client.await, origin.await) {
                let (client, origin) = (TokioIo::new(client), TokioIo::new(origin));
                relay(&worker, client, origin, config.limits.tunnel_idle_time, &mut access_entry).await;
            }
            drop(access_entry);
            drop((busy, admitted));
        });
        reply
    }
}

/// Relays bytes in both directions until both sides have ended, or none passes for the time `idle`.
async fn relay<O: AsyncRead + AsyncWrite + Unpin>(
    worker: &Worker,
    mut client: impl AsyncRead + AsyncWrite + Unpin,
    origin: O,
    idle: Duration,
    access_entry: &mut AccessEntry,
) {
    let activity = Rc::new(Activity { at: Cell::new(Instant::now()), bytes: Cell::new(0) });
    let mut origin = MeteredIo { io: origin, activity: Rc::clone(&activity) };
    let mut stage = worker.shared.stage.subscribe();
    tokio::select! {
        ended = copy_bidirectional(&mut client, &mut origin) => {
            if ended.is_ok() {
                access_entry.set_complete();
            }
        }
        () = wait_idle(&activity, idle) => {}
        _ = stage.wait_for(|stage| *stage == Stage::Cut) => {}
    }
    access_entry.add_sent_bytes(activity.bytes.get());
}

async fn wait_idle(activity: &Activity, idle: Duration) {
    loop {
        let left = idle.saturating_sub(activity.at.get().elapsed());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left).await;
    }
}

/// When a byte last passed in either direction, and how many came from the origin.
struct Activity {
    at: Cell<Instant>,
    bytes: Cell<u64>,
}

/// The origin's end of a tunnel: the bytes of both directions pass through it.
struct MeteredIo<O> {
    io: O,
    activity: Rc<Activity>,
}

impl<O: AsyncRead + Unpin> AsyncRead for MeteredIo<O> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = bytes.filled().len();
        let read = Pin::new(&mut this.io).poll_read(cx, bytes);
        let came = bytes.filled().len() - before;
        if came > 0 {
            this.activity.at.set(Instant::now());
            this.activity.bytes.set(this.activity.bytes.get() + came as u64);
        }
        read
    }
}

impl<O: AsyncWrite + Unpin> AsyncWrite for MeteredIo<O> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.io).poll_write(cx, bytes);
        if written.is_ready() {
            this.activity.at.set(Instant::now());
        }
        written
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(cx)
    }
}
