//! Hits a second over sockets, beside the bare hyper loop that answers with the same bytes from memory: the limit.
//!
//! `cargo bench -p webcache --bench sockets [-- DIRECTORY]`: 20,000 objects of 10.7 KB, 64 connections, one event loop; the load
//! comes from another thread of this process, so that the CPU of the loops' threads is what is told. Interleaved three times.
//! Runs with tiny inputs as a test.
#![allow(missing_docs)]
#![allow(clippy::print_stdout, reason = "a bench tells its figures")]

use std::convert::Infallible;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use packstore::{Mode, Store, StoreOptions, VolumeSpec};
use testkit::SimulatedDisk;
use webcache::server::Server;

const BODY_BYTES: usize = 10_700;

struct Size {
    objects: usize,
    connections: usize,
    time: Duration,
    rounds: usize,
}

fn main() {
    let size = if std::env::args().any(|word| word == "--bench") {
        Size { objects: 20_000, connections: 64, time: Duration::from_secs(4), rounds: 3 }
    } else {
        Size { objects: 20, connections: 2, time: Duration::from_millis(50), rounds: 1 }
    };
    let origin = origin();
    let disk = Arc::new(SimulatedDisk::new("bench"));
    let options = StoreOptions { mode: Mode::Cache, ..StoreOptions::default() };
    let store = Store::create(vec![VolumeSpec { disk, size_bytes: 512 << 20 }], options).expect("a store");
    let text = format!(
        "[reverse]\nlisten = ['127.0.0.1:0']\n[[site]]\nhosts = ['*']\norigins = ['http://{origin}']\n\
         [cache]\ndirectories = ['unused']\n[proxy]\nloops = 1\n"
    );
    let config = webcache::config::read(&text, toml::Table::new()).expect("right");
    let server = Server::start(config, Arc::new(store)).expect("a free port");
    let proxy = server.addresses()[0].0;
    let mut fill = Client::new(proxy);
    for number in 0..size.objects {
        fill.get(number);
    }
    drop(fill);
    while !server.shared().collapse_table.is_empty() {
        std::thread::yield_now();
    }
    let bare = bare_loop();
    println!("{:>8} {:>12} {:>16}", "", "replies/s", "CPU us a reply");
    for _ in 0..size.rounds {
        for (name, address, thread) in [("bare", bare, "bare-loop"), ("hit", proxy, "loop-0")] {
            let (replies, cpu, took) = load(address, thread, &size);
            let each_us = cpu.as_secs_f64() * 1e6 / replies.max(1) as f64;
            println!("{name:>8} {:>12.0} {each_us:>16.1}", replies as f64 / took.as_secs_f64());
            assert!(replies > 0, "{name}: no reply came");
        }
    }
    let misses: u64 = server.shared().counters.iter().map(|counters| counters.origin_requests.get()).sum();
    assert_eq!(misses as usize, size.objects, "all but the first round came from the store");
    drop(server.stop());
}

/// Replies, CPU time of the serving thread, and time.
fn load(address: SocketAddr, thread: &str, size: &Size) -> (u64, Duration, Duration) {
    let stop = AtomicBool::new(false);
    let replies = AtomicU64::new(0);
    let (cpu, began) = (cpu_of(thread), Instant::now());
    std::thread::scope(|scope| {
        for first in 0..size.connections {
            let (stop, replies) = (&stop, &replies);
            scope.spawn(move || {
                let mut client = Client::new(address);
                let mut number = first * 7919;
                while !stop.load(Ordering::Relaxed) {
                    number = (number * 31 + 17) % size.objects;
                    client.get(number);
                    replies.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        std::thread::park_timeout(size.time);
        stop.store(true, Ordering::Relaxed);
    });
    (replies.into_inner(), cpu_of(thread) - cpu, began.elapsed())
}

/// CPU time of this process's thread of that name, as the kernel counts it (in hundredths of a second).
fn cpu_of(name: &str) -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux").flatten();
    let ticks = tasks.filter_map(|task| {
        let stat = std::fs::read_to_string(task.path().join("stat")).ok()?;
        let (head, rest) = stat.rsplit_once(") ")?;
        head.ends_with(&format!("({name}")).then_some(())?;
        let mut fields = rest.split(' ').skip(11);
        Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
    });
    Duration::from_millis(ticks.sum::<u64>() * 10)
}

struct Client(TcpStream);

impl Client {
    fn new(address: SocketAddr) -> Self {
        Self(TcpStream::connect(address).expect("it listens"))
    }

    fn get(&mut self, number: usize) {
        let request =
            format!("GET /{number} HTTP/1.1\r\nHost: site\r\nUser-Agent: bench\r\nAccept: */*\r\n\r\n");
        self.0.write_all(request.as_bytes()).expect("it reads");
        let mut text = [0; 16 << 10];
        let (mut filled, mut body_at) = (0, None);
        loop {
            filled += self.0.read(&mut text[filled..]).expect("it writes");
            body_at = body_at.or_else(|| text[..filled].windows(4).position(|part| part == b"\r\n\r\n"));
            if body_at.is_some_and(|at| filled == at + 4 + BODY_BYTES) {
                return;
            }
        }
    }
}

/// An origin in plain threads.
fn origin() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut text = [0; 4096];
                let mut filled = 0;
                while let Ok(read @ 1..) = stream.read(&mut text[filled..]) {
                    filled += read;
                    if text[..filled].ends_with(b"\r\n\r\n") {
                        filled = 0;
                        let head = format!(
                            "HTTP/1.1 200 OK\r\nServer: x\r\nContent-Type: image/png\r\nETag: \"1\"\r\n\
                             Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\nCache-Control: max-age=86400\r\n\
                             Content-Length: {BODY_BYTES}\r\n\r\n"
                        );
                        let _ = stream.write_all(&[head.as_bytes(), &[b'x'; BODY_BYTES]].concat());
                    }
                }
            });
        }
    });
    address
}

struct Whole(Option<Bytes>);

impl Body for Whole {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        std::task::Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}

/// hyper alone: the same head and body to every request.
fn bare_loop() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.set_nonblocking(true).expect("a socket");
    let address = listener.local_addr().expect("bound");
    let serve = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        tokio::task::LocalSet::new().block_on(&runtime, async move {
            let listener = tokio::net::TcpListener::from_std(listener).expect("a socket");
            let body = Bytes::from(vec![b'x'; BODY_BYTES]);
            while let Ok((stream, _)) = listener.accept().await {
                let _ = stream.set_nodelay(true);
                let body = body.clone();
                let service = service_fn(move |_: Request<Incoming>| {
                    let reply = Response::builder()
                        .header("server", "x")
                        .header("content-type", "image/png")
                        .header("etag", "\"1\"")
                        .header("cache-control", "max-age=86400")
                        .body(Whole(Some(body.clone())));
                    async move { reply }
                });
                tokio::task::spawn_local(async move {
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
    };
    std::thread::Builder::new().name("bare-loop".to_owned()).spawn(serve).expect("a thread");
    address
}
