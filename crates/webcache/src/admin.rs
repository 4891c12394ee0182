//! The operator's interface to a running proxy, on an address of its own.
//!
//! ```text
//! GET /               page that draws /status.json live
//! GET /status.json    figures
//! GET /metrics        the same for Prometheus
//! POST /purge?url=U   removes U             POST /ban?prefix=U, /ban?tag=T   replies stored until now are not used
//! ```
//!
//! Always holds: with a password configured, nothing is shown or done without it. Changes need a POST that does not come from a page of
//! another site (`origin`).

mod figures;
mod metrics;
mod origin;

use std::convert::Infallible;
use std::net::TcpListener;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use http::{Method, Request, Response, StatusCode, Uri};
use http_cache_rules::key::{CacheKey, Realm};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use subtle::ConstantTimeEq as _;

use crate::config::Config;
use crate::server::{Banned, Shared, Stage, ban, now, purge};

type Reply = Response<Text>;

/// A body in memory.
struct Text(Option<Bytes>);

impl http_body::Body for Text {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
        std::task::Poll::Ready(self.0.take().map(|bytes| Ok(http_body::Frame::data(bytes))))
    }

    fn size_hint(&self) -> http_body::SizeHint {
        http_body::SizeHint::with_exact(self.0.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}

/// Answers until the proxy drains.
pub(crate) async fn serve(shared: Arc<Shared>, socket: Option<TcpListener>) {
    let Some(Ok(socket)) = socket.map(tokio::net::TcpListener::from_std) else { return };
    let mut stage = shared.stage.subscribe();
    loop {
        let accepted = tokio::select! {
            accepted = socket.accept() => accepted,
            _ = stage.wait_for(|stage| *stage >= Stage::Draining) => return,
        };
        let Ok((stream, peer)) = accepted else {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            continue;
        };
        let shared = Arc::clone(&shared);
        tokio::task::spawn_local(async move {
            let config = shared.config();
            let known = |network: &crate::config::Network| network.contains(peer.ip());
            if !peer.ip().to_canonical().is_loopback() && !config.access.clients.iter().any(known) {
                return;
            }
            let service = service_fn(|request| {
                let shared = Arc::clone(&shared);
                async move { Ok::<_, Infallible>(answer(&shared, &request).await) }
            });
            let mut builder = hyper::server::conn::http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(config.limits.head_time);
            // A client that disconnects early is not an error.
            let _ = builder.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(shared: &Arc<Shared>, request: &Request<Incoming>) -> Reply {
    let config = shared.config();
    if !may(request.headers(), &config) {
        let mut reply = text(StatusCode::UNAUTHORIZED, "text/plain", "user name and password required\n");
        reply.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Basic realm=\"crumb\""));
        return reply;
    }
    if let Some(refusal) = origin::refused(request.method(), request.uri(), request.headers(), &config) {
        return text(refusal.status(), "text/plain", format!("{refusal}\n"));
    }
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/") => {
            text(StatusCode::OK, "text/html; charset=utf-8", include_str!("admin/status.html"))
        }
        (&Method::GET, "/status.json") => {
            text(StatusCode::OK, "application/json", figures::Figures::of(shared).json())
        }
        (&Method::GET, "/metrics") => text(
            StatusCode::OK,
            measure::PROMETHEUS_CONTENT_TYPE,
            metrics::text(&figures::Figures::of(shared)),
        ),
        (&Method::POST, "/purge") => purge_url(shared, request.uri()).await,
        (&Method::POST, "/ban") => ban_all(shared, request.uri()),
        (_, "/" | "/status.json" | "/metrics" | "/purge" | "/ban") => {
            text(StatusCode::METHOD_NOT_ALLOWED, "text/plain", "GET to look, POST to purge and ban\n")
        }
        _ => text(StatusCode::NOT_FOUND, "text/plain", "/, /status.json, /metrics, POST /purge, POST /ban\n"),
    }
}

fn may(headers: &HeaderMap, config: &Config) -> bool {
    if config.admin.password.is_empty() {
        return true;
    }
    let wanted = format!("{}:{}", config.admin.user, config.admin.password);
    let given = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let given =
        given.and_then(|value| value.strip_prefix("Basic ")).and_then(|text| STANDARD.decode(text).ok());
    // In constant time, so that the time taken does not reveal how much of a guess is right.
    given.is_some_and(|given| given.ct_eq(wanted.as_bytes()).into())
}

fn text(status: StatusCode, kind: &'static str, text: impl Into<Bytes>) -> Reply {
    let mut reply = Response::new(Text(Some(text.into())));
    *reply.status_mut() = status;
    reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    reply
}

/// The value of a query parameter, decoded.
fn word(uri: &Uri, name: &str) -> Option<String> {
    let pairs = uri.query()?.split('&').filter_map(|pair| pair.split_once('='));
    let value = pairs.filter(|(key, _)| *key == name).map(|(_, value)| value).next()?;
    let bytes = value.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escaped = || {
            let digits = std::str::from_utf8(bytes.get(at + 1..at + 3)?).ok()?;
            u8::from_str_radix(digits, 16).ok()
        };
        match (bytes[at], escaped()) {
            (b'%', Some(byte)) => {
                plain.push(byte);
                at += 3;
            }
            (byte, _) => {
                plain.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8(plain).ok()
}

/// Whether a prefix is long enough to contain its scheme.
fn has_scheme(prefix: &str) -> bool {
    let scheme = prefix.split_once("://").map_or("", |(scheme, _)| scheme);
    ["http", "https"].iter().any(|known| known.eq_ignore_ascii_case(scheme))
}

async fn purge_url(shared: &Arc<Shared>, uri: &Uri) -> Reply {
    let key = word(uri, "url").and_then(|url| CacheKey::of(&url.parse().ok()?).ok());
    let Some(key) = key else {
        return text(StatusCode::BAD_REQUEST, "text/plain", "POST /purge?url=http://host/path\n");
    };
    // Purge in both realms: the web, and the sites served here.
    let was_there = [purge(shared, &key).await, purge(shared, &key.within(Realm::Sites)).await];
    match was_there.contains(&true) {
        true => text(StatusCode::OK, "text/plain", "purged\n"),
        false => text(
            StatusCode::NOT_FOUND,
            "text/plain",
            "nothing is stored for this URL; what is being fetched for it now will not be stored\n",
        ),
    }
}

fn ban_all(shared: &Arc<Shared>, uri: &Uri) -> Reply {
    let banned = match (word(uri, "prefix"), word(uri, "tag")) {
        // A shorter prefix would cover everything: more likely an empty variable in a script.
        (Some(prefix), None) if has_scheme(&prefix) => Banned::Prefix(prefix),
        (None, Some(tag)) if !tag.is_empty() => Banned::Tag(tag),
        _ => {
            return text(
                StatusCode::BAD_REQUEST,
                "text/plain",
                "POST /ban?prefix=http://host/path or /ban?tag=TAG; nothing was banned\n",
            );
        }
    };
    match ban(shared, banned, now()) {
        Ok(()) => text(StatusCode::OK, "text/plain", "banned\n"),
        Err(error) => {
            let body =
                format!("banned until this process ends: the ban could not be written down: {error}\n");
            text(StatusCode::INTERNAL_SERVER_ERROR, "text/plain", body)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_of_the_query_comes_without_its_escapes() {
        let uri: Uri = "/purge?x=1&url=http%3A%2F%2Fa%2fb%3Fc%3Dd%26e&bad=%zz%4".parse().expect("a URI");
        assert_eq!(word(&uri, "url").as_deref(), Some("http://a/b?c=d&e"));
        assert_eq!(word(&uri, "bad").as_deref(), Some("%zz%4"));
        assert_eq!(word(&uri, "none"), None);
    }

    #[test]
    fn a_password_opens_and_nothing_like_it() {
        let flags =
            "forward.listen=['127.0.0.1:0']\ncache.directories=['/c']\nadmin.user='a'\nadmin.password='b'";
        let config = crate::config::read("", flags.parse().expect("TOML")).expect("right");
        let with = |text: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, HeaderValue::from_str(text).expect("visible"));
            headers
        };
        assert!(may(&with(&format!("Basic {}", STANDARD.encode("a:b"))), &config));
        for wrong in ["a:c", "a:b ", "", "a:"] {
            assert!(!may(&with(&format!("Basic {}", STANDARD.encode(wrong))), &config), "{wrong}");
        }
        assert!(!may(&HeaderMap::new(), &config));
        assert!(!may(&with("Bearer x"), &config));
    }
}
