//! CONNECT: bytes both ways, to ports that the operator allows (RFC 9110 section 9.3.6); and what an origin switches to with
//! 101, of the protocols that the operator allows (section 7.8).
//!
//! Always holds: a refused CONNECT ends the connection, as what follows it is not HTTP to its sender; a tunnel through which
//! nothing comes for `limits.tunnel_idle_s` ends; a tunnel counts as its client's connection until it ends.

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
use crate::server::client::access_entry::Ledger;
use crate::server::client::parsed_request;
use crate::server::client::reply_body::ReplyBody;
use crate::server::counters::Outcome;
use crate::server::peers::neighbours::Found;
use crate::server::upstream::NamedBy;
use crate::server::upstream::request::RequestBody;
use crate::server::worker::{Busy, Stage, Worker};

/// A refusal that ends the connection.
pub fn refusal(status: StatusCode, why: &str) -> Response<ReplyBody> {
    let mut reply = plain(status, why);
    reply.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    reply
}

/// Opens a tunnel, or says why not.
pub async fn open(
    worker: Rc<Worker>,
    config: Arc<Config>,
    request: &mut Request<Incoming>,
    mut ledger: Ledger,
    asker: Rc<Client>,
) -> Response<ReplyBody> {
    let refuse = |mut ledger: Ledger, outcome, status: StatusCode, why: &str| {
        ledger.answered(outcome, status.as_u16(), None);
        refusal(status, why).map(|body| body.with(ledger))
    };
    let authority = request.uri().authority().cloned();
    let Some((authority, port)) =
        authority.and_then(|authority| authority.port_u16().map(|port| (authority, port)))
    else {
        return refuse(ledger, Outcome::Denied, StatusCode::BAD_REQUEST, "CONNECT needs HOST:PORT");
    };
    if !is_host(authority.host()) {
        let why = "the host is neither a name nor an address";
        return refuse(ledger, Outcome::Denied, StatusCode::BAD_REQUEST, why);
    }
    let host = authority.host().trim_matches(['[', ']']).to_ascii_lowercase();
    if !config.forward.connect_ports.contains(&port) {
        let why = "CONNECT may not reach this port (forward.connect_ports)";
        return refuse(ledger, Outcome::Denied, StatusCode::FORBIDDEN, why);
    }
    if let Err(unserved) = parsed_request::allowed_host(&host, &config) {
        return refuse(ledger, Outcome::Denied, unserved.status, unserved.why);
    }
    ledger.asked(&host, false);
    let origin = match worker.pool.tcp(&host, port, NamedBy::Client, &config).await {
        Ok(origin) => origin,
        Err(error) if error.is_refusal() => {
            return refuse(ledger, Outcome::Denied, StatusCode::FORBIDDEN, &error.to_string());
        }
        Err(error) => {
            return refuse(ledger, Outcome::Failed, StatusCode::BAD_GATEWAY, &error.to_string());
        }
    };
    ledger.answered(Outcome::Tunnel, 200, None);
    ledger.tunnelled();
    let upgraded = hyper::upgrade::on(request);
    let admitted = Rc::clone(&asker.admitted);
    tokio::task::spawn_local(async move {
        let busy = Busy::new(&worker);
        if let Ok(upgraded) = upgraded.await {
            carry(&worker, TokioIo::new(upgraded), origin, config.limits.tunnel_idle_time, &mut ledger).await;
        }
        drop(ledger);
        drop((busy, admitted));
    });
    Response::new(ReplyBody::nothing())
}

/// Which protocol a request asks to switch to, if the operator allows that.
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

impl RequestHandler {
    /// Asks the origin to switch, and carries bytes if it does.
    pub(in crate::server) async fn upgrade(&mut self, upgrade: Upgrade) -> Response<ReplyBody> {
        let Upgrade { protocol, upgraded: client, client: asker } = upgrade;
        let switching = |headers: &mut HeaderMap, protocol: HeaderValue| {
            headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
            headers.insert(UPGRADE, protocol);
        };
        let mut headers = self.forwarded_headers();
        switching(&mut headers, protocol.clone());
        let why = ForwardReason::Method;
        let mut answer = match self.send_to_upstreams(headers, RequestBody::Nothing, &Found::default()).await
        {
            Ok(answer) if answer.reply.status() == StatusCode::SWITCHING_PROTOCOLS => answer.reply,
            Ok(answer) => {
                let storage_decision = self.storage_decision(&answer, None, Role::Doubtful);
                return self.pass_on(answer, storage_decision, None, why, None).await;
            }
            Err(error) => return self.no_reply(&error, why),
        };
        let origin = hyper::upgrade::on(&mut answer);
        let mut reply = Response::new(ReplyBody::nothing());
        *reply.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        *reply.headers_mut() = std::mem::take(answer.headers_mut());
        let headers = reply.headers_mut();
        let protocol = headers.get(UPGRADE).cloned().unwrap_or(protocol);
        forwarding::strip_hop_by_hop(headers);
        forwarding::add_via(headers, Received::Http11, &self.config.via);
        switching(headers, protocol);
        // Nothing that the client sends from here on is HTTP.
        asker.watched.switched.store(true, Ordering::Relaxed);
        let admitted = Rc::clone(&asker.admitted);
        let (worker, config, ledger) =
            (Rc::clone(&self.worker), Arc::clone(&self.config), self.ledger.take());
        tokio::task::spawn_local(async move {
            let busy = Busy::new(&worker);
            let Some(mut ledger) = ledger else { return };
            ledger.answered(Outcome::Tunnel, 101, None);
            ledger.tunnelled();
            if let (Ok(client), Ok(origin)) = (client.await, origin.await) {
                let (client, origin) = (TokioIo::new(client), TokioIo::new(origin));
                carry(&worker, client, origin, config.limits.tunnel_idle_time, &mut ledger).await;
            }
            drop(ledger);
            drop((busy, admitted));
        });
        reply
    }
}

/// Carries bytes both ways until both sides have ended, or nothing comes for so long.
async fn carry<O: AsyncRead + AsyncWrite + Unpin>(
    worker: &Worker,
    mut client: impl AsyncRead + AsyncWrite + Unpin,
    origin: O,
    idle: Duration,
    ledger: &mut Ledger,
) {
    let heard = Rc::new(Heard { at: Cell::new(Instant::now()), bytes: Cell::new(0) });
    let mut origin = Listened { io: origin, heard: Rc::clone(&heard) };
    let mut stage = worker.shared.stage.subscribe();
    tokio::select! {
        ended = copy_bidirectional(&mut client, &mut origin) => {
            if ended.is_ok() {
                ledger.finished();
            }
        }
        () = silence(&heard, idle) => {}
        _ = stage.wait_for(|stage| *stage == Stage::Cut) => {}
    }
    ledger.sent(heard.bytes.get());
}

async fn silence(heard: &Heard, idle: Duration) {
    loop {
        let left = idle.saturating_sub(heard.at.get().elapsed());
        if left.is_zero() {
            return;
        }
        tokio::time::sleep(left).await;
    }
}

/// When a byte went through last, either way, and how many came from the origin.
struct Heard {
    at: Cell<Instant>,
    bytes: Cell<u64>,
}

/// The origin's end of a tunnel: all bytes of both ways pass here.
struct Listened<O> {
    io: O,
    heard: Rc<Heard>,
}

impl<O: AsyncRead + Unpin> AsyncRead for Listened<O> {
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
            this.heard.at.set(Instant::now());
            this.heard.bytes.set(this.heard.bytes.get() + came as u64);
        }
        read
    }
}

impl<O: AsyncWrite + Unpin> AsyncWrite for Listened<O> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.io).poll_write(cx, bytes);
        if written.is_ready() {
            this.heard.at.set(Instant::now());
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
