//! Many clients that keep their connections, before an origin that is slow: what the web is like, and what a proxy that
//! lets go of idle connections must tell from idleness.

use std::net::SocketAddr;
use std::time::Duration;

use rustix::process::{Resource, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::harness::{PATIENCE, Proxy};

/// Longer than an idle connection keeps its buffers, and no multiple of that.
const ORIGIN_TAKES: Duration = Duration::from_millis(700);
const CLIENTS: usize = 400;
/// Requests, when `CRUMB_SLOW_MISSES` says no number.
const REQUESTS: usize = 2_000;

/// The body at a path: another one for each, in bytes and length.
fn body(path: &str) -> Vec<u8> {
    let number: usize = path.trim_start_matches('/').parse().unwrap();
    path.bytes().cycle().take(200 + number * 37 % 9_000).collect()
}

/// Up to and with the empty line; nothing when the connection has ended.
async fn read_head(stream: &mut TcpStream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    String::from_utf8(head).ok()
}

async fn serve(listener: TcpListener) {
    while let Ok((mut stream, _)) = listener.accept().await {
        tokio::task::spawn_local(async move {
            while let Some(head) = read_head(&mut stream).await {
                let body = body(head.split_whitespace().nth(1).unwrap());
                tokio::time::sleep(ORIGIN_TAKES).await;
                let head = format!(
                    "HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nContent-Length: {}\r\n\r\n",
                    body.len()
                );
                if stream.write_all(&[head.as_bytes(), &body].concat()).await.is_err() {
                    return;
                }
            }
        });
    }
}

/// Asks for these, one after the other by one connection. Gives how many replies did not come, at most one, as nothing
/// comes after it.
async fn ask(proxy: SocketAddr, numbers: impl Iterator<Item = usize>) -> usize {
    let mut stream = TcpStream::connect(proxy).await.unwrap();
    for number in numbers {
        let path = format!("/{number}");
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: site\r\n\r\n").as_bytes()).await.unwrap();
        let reply = async {
            let head = read_head(&mut stream).await.expect("the connection goes on");
            assert!(head.starts_with("HTTP/1.1 200"), "{path}: {head}");
            let expected = body(&path);
            let mut got = vec![0; expected.len()];
            stream.read_exact(&mut got).await.unwrap();
            assert!(got == expected, "{path} has wrong bytes");
        };
        if tokio::time::timeout(PATIENCE, reply).await.is_err() {
            return 1;
        }
    }
    0
}

/// Symptom: of thousands of slow misses some are fetched, stored and logged, and their clients get nothing. Cause: while a
/// request was under way a timer of half a second ran; when it fired in the turn between a reply's last byte in hyper's hands
/// and its write, the connection was taken for idle and its socket away from under the reply. Fix: it is idle after a
/// completed flush that followed the last reply's end.
#[test]
fn no_reply_is_lost_by_slow_misses_of_many_clients_that_keep_their_connections() {
    let requests = std::env::var("CRUMB_SLOW_MISSES").map_or(REQUESTS, |text| text.parse().unwrap());
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let proxy = Proxy::with(listener.local_addr().unwrap(), "[limits]\nidle_s = 3600\n");
    let address = proxy.reverse;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let lost = tokio::task::LocalSet::new().block_on(&runtime, async {
        let origin = tokio::task::spawn_local(serve(TcpListener::from_std(listener).unwrap()));
        let mut clients = Vec::new();
        for client in 0..CLIENTS {
            clients.push(tokio::task::spawn_local(ask(address, (client..requests).step_by(CLIENTS))));
            // Not all at once: their timers fire at any time of a request.
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        let mut lost = 0;
        for client in clients {
            lost += client.await.unwrap();
        }
        origin.abort();
        lost
    });
    assert_eq!(lost, 0, "replies of {requests} that never came");
    assert_eq!(proxy.count(|counters| counters.lost_writes.get()), 0);
    assert_eq!(proxy.count(|counters| counters.aborted_replies.get()), 0);
}
