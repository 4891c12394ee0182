//! CONNECT: bytes both ways, to ports that the operator allows (RFC 9110 section 9.3.6).
//!
//! Always holds: a refused CONNECT ends the connection, as what follows it is not HTTP to its sender.

use std::rc::Rc;
use std::sync::Arc;

use http::header::{CONNECTION, HeaderValue};
use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::io::copy_bidirectional;

use super::asked;
use super::body::ReplyBody;
use super::counters::Outcome;
use super::ledger::Ledger;
use super::reply::plain;
use super::worker::{Busy, Stage, Worker};
use crate::config::Config;

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
    let host = authority.host().trim_matches(['[', ']']).to_ascii_lowercase();
    if !config.connect_ports.contains(&port) {
        let why = "CONNECT may not reach this port (forward.connect_ports)";
        return refuse(ledger, Outcome::Denied, StatusCode::FORBIDDEN, why);
    }
    if let Err(unserved) = asked::allowed_host(&host, &config) {
        return refuse(ledger, Outcome::Denied, unserved.status, unserved.why);
    }
    ledger.asked(&host);
    let mut origin = match worker.pool.tcp(&host, port, &config).await {
        Ok(origin) => origin,
        Err(error) => {
            return refuse(ledger, Outcome::Failed, StatusCode::BAD_GATEWAY, &error.to_string());
        }
    };
    ledger.answered(Outcome::Tunnel, 200, None);
    let upgraded = hyper::upgrade::on(request);
    let mut stage = worker.shared.stage.subscribe();
    tokio::task::spawn_local(async move {
        let busy = Busy::new(&worker);
        if let Ok(upgraded) = upgraded.await {
            let mut client = TokioIo::new(upgraded);
            tokio::select! {
                ended = copy_bidirectional(&mut client, &mut origin) => {
                    if let Ok((_, to_client)) = ended {
                        ledger.sent(to_client);
                        ledger.finished();
                    }
                }
                _ = stage.wait_for(|stage| *stage == Stage::Cut) => {}
            }
        }
        drop(ledger);
        drop(busy);
    });
    Response::new(ReplyBody::nothing())
}
