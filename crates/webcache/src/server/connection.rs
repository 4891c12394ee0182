//! One client's connection, from its first byte to its last.

use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;

use super::asked::Side;
use super::exchange::{self, Client};
use super::sentry::{Patience, Sentry, Watched};
use super::worker::{Admitted, Busy, Stage, Worker};
use crate::config::Config;

/// Serves a connection until it ends. Refuses it at once when there are too many, or it comes from where none may.
pub fn serve(
    worker: &Rc<Worker>,
    stream: TcpStream,
    peer: SocketAddr,
    tls: Option<&TlsAcceptor>,
    side: Side,
) {
    let config = worker.config();
    let address = peer.ip();
    let counters = &worker.counters;
    let allowed = if config.clients.is_empty() {
        address.to_canonical().is_loopback()
    } else {
        config.clients.iter().any(|network| network.contains(address))
    };
    let Some(admitted) =
        Some(()).filter(|()| allowed).and_then(|()| Admitted::new(&worker.shared, address, &config))
    else {
        counters.connections_refused.add(1);
        return;
    };
    counters.connections_accepted.add(1);
    let _ = stream.set_nodelay(true);
    let busy = Busy::new(worker);
    let watched = Arc::new(Watched::default());
    let client = Rc::new(Client { address, side, watched: Arc::clone(&watched) });
    let tls = tls.cloned();
    let worker = Rc::clone(worker);
    tokio::task::spawn_local(async move {
        match tls {
            None => http1(&worker, &config, stream, client).await,
            Some(tls) => {
                // A client that says nothing has as long as for a head.
                let accepted = tokio::time::timeout(config.head_time, tls.accept(stream)).await;
                if let Ok(Ok(stream)) = accepted {
                    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
                        http2(&worker, &config, stream, client).await;
                    } else {
                        http1(&worker, &config, stream, client).await;
                    }
                }
            }
        }
        worker.counters.malformed_requests.add(watched.refused.load(Ordering::Relaxed));
        worker.counters.connections_ended.add(1);
        drop((admitted, busy));
    });
}

async fn http1<T>(worker: &Rc<Worker>, config: &Config, stream: T, client: Rc<Client>)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let patience = Patience { idle: config.idle_time, head: config.head_time, stall: config.stall_time };
    let sentry = Sentry::new(stream, Arc::clone(&client.watched), patience, config.head_max_bytes);
    let service = {
        let worker = Rc::clone(worker);
        service_fn(move |request| exchange::answer(Rc::clone(&worker), Rc::clone(&client), request))
    };
    let mut builder = http1::Builder::new();
    // The sentry keeps time.
    builder.header_read_timeout(None).max_buf_size(config.head_max_bytes.max(16 << 10)).half_close(false);
    let connection = builder.serve_connection(sentry, service).with_upgrades();
    to_its_end(worker, connection, |connection| connection.graceful_shutdown()).await;
}

#[derive(Clone)]
struct LocalExecutor;

impl<F: Future<Output = ()> + 'static> hyper::rt::Executor<F> for LocalExecutor {
    fn execute(&self, future: F) {
        tokio::task::spawn_local(future);
    }
}

async fn http2<T>(worker: &Rc<Worker>, config: &Config, stream: T, client: Rc<Client>)
where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let service = {
        let worker = Rc::clone(worker);
        service_fn(move |request| {
            // Counted by the sentry for HTTP/1.
            client.watched.busy.fetch_add(1, Ordering::Relaxed);
            exchange::answer(Rc::clone(&worker), Rc::clone(&client), request)
        })
    };
    let mut builder = http2::Builder::new(LocalExecutor);
    builder
        .timer(TokioTimer::new())
        .keep_alive_interval(config.idle_time)
        .keep_alive_timeout(config.stall_time)
        .max_header_list_size(u32::try_from(config.head_max_bytes).unwrap_or(u32::MAX))
        .max_concurrent_streams(128);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    to_its_end(worker, connection, |connection| connection.graceful_shutdown()).await;
}

/// Serves until the client or the server ends it: asked to end when the server drains, cut off when that lasts too long.
async fn to_its_end<C: Future>(worker: &Worker, connection: C, ask_to_end: impl FnOnce(Pin<&mut C>)) {
    let mut connection = std::pin::pin!(connection);
    let mut stage = worker.shared.stage.subscribe();
    tokio::select! {
        _ = connection.as_mut() => return,
        _ = stage.wait_for(|stage| *stage >= Stage::Draining) => {}
    }
    ask_to_end(connection.as_mut());
    tokio::select! {
        _ = connection => {}
        _ = stage.wait_for(|stage| *stage >= Stage::Cut) => {}
    }
}
