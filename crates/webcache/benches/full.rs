//! How many replies a proxy finds in how much memory, how soon after a kill and a stop, and that each is its own.
//!
//! `cargo bench -p webcache --bench full -- DIRECTORY OBJECTS`: one reply is fetched and stored; copies of it under other URLs, each
//! with a body of its own, fill the store past the sockets (half a million a second). Then they are asked for at random over
//! 64 connections, while the origin is gone. Some 416 bytes of disk a reply. Each step is a process, which tells its own memory; bound
//! it by a control group around the whole. Runs with tiny inputs as a test.
#![allow(missing_docs)]
#![allow(clippy::print_stdout, reason = "a bench tells its figures")]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use packstore::{Mode, OpenOptions, PutOptions, Store, StoreError, StoreOptions, VolumeSpec};
use rand::{RngExt as _, SeedableRng as _};
use rand_xoshiro::Xoshiro256PlusPlus;
use testkit::LocalDisk;
use webcache::server::Server;

/// What a reply takes on the disk: record, end of its last block, index record.
const BYTES_EACH: u64 = 416;
/// The URL twice, the head, the body.
const MEAN_BYTES: u32 = 290;
const CONNECTIONS: u64 = 64;

fn main() {
    let args = std::env::args().skip(1).filter(|arg| arg != "--bench").collect::<Vec<_>>();
    let words = args.iter().map(String::as_str).collect::<Vec<_>>();
    match words[..] {
        ["fill", directory, objects] => fill(Path::new(directory), number(objects)),
        ["serve", directory, objects, seconds] => {
            serve(Path::new(directory), number(objects), seconds.parse().expect("seconds"));
        }
        [directory, objects] => steps(directory, objects, "20"),
        // As a test, with or without a filter's name.
        _ => {
            let directory = tempfile::tempdir().expect("a directory");
            steps(directory.path().to_str().expect("UTF-8"), "5000", "0.2");
        }
    }
}

fn number(text: &str) -> u64 {
    text.parse().expect("a number of objects")
}

fn steps(directory: &str, objects: &str, seconds: &str) {
    let step = |args: &[&str]| {
        let program = std::env::current_exe().expect("this program");
        let ended = Command::new(program).args(args).status().expect("it starts");
        assert!(ended.success(), "{args:?}: {ended}");
    };
    step(&["fill", directory, objects]);
    println!("after a kill");
    step(&["serve", directory, objects, seconds]);
    println!("after a stop");
    step(&["serve", directory, objects, seconds]);
}

/// Ends without closing the store, as a kill would.
fn fill(directory: &Path, objects: u64) {
    let volume = VolumeSpec { disk: disk(directory), size_bytes: objects * (BYTES_EACH + 4) + (64 << 20) };
    let options =
        StoreOptions { mode: Mode::Cache, object_bytes_mean: MEAN_BYTES, ..StoreOptions::default() };
    let store = Store::create(vec![volume], options).expect("an empty directory");
    let server = start(Arc::new(store), directory, origin());
    Client::new(server.addresses()[0].0).get(0).expect("a reply");
    while !server.shared().collapse_table.is_empty() {
        std::thread::yield_now();
    }
    let store = server.stop().expect("nobody else has it");
    store.flush().expect("flushed");
    let first = store.iter().expect("it can be listed").next().expect("it was stored").expect("whole");
    let prefix = first.key.strip_suffix(path(0).as_bytes()).expect("the URL ends the key").to_vec();
    let meta = store.get(&first.key).expect("whole").expect("there").meta().to_vec();
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for begin in [1, 2] {
            let (store, meta, prefix) = (&store, &meta, &prefix);
            scope.spawn(move || {
                for number in (begin..objects).step_by(2) {
                    put(store, &[prefix, path(number).as_bytes()].concat(), path(number).as_bytes(), meta);
                }
            });
        }
    });
    store.flush().expect("flushed");
    let (usage, took) = (store.usage(), begun.elapsed().as_secs_f64());
    println!(
        "{} replies, {:.1} GB in {took:.0} s; {:.1} bytes of memory each",
        usage.objects,
        (usage.body_bytes + usage.index_bytes) as f64 / 1e9,
        usage.memory_bytes as f64 / usage.objects as f64
    );
    assert_eq!(usage.objects, objects, "all fit");
    std::process::exit(0);
}

fn put(store: &Store, key: &[u8], body: &[u8], meta: &[u8]) {
    let options = PutOptions { meta, ..PutOptions::default() };
    loop {
        match store.try_put(key, body, options) {
            Ok(()) => return,
            Err(StoreError::Busy) => std::thread::sleep(Duration::from_micros(200)),
            Err(error) => panic!("{error}"),
        }
    }
}

fn serve(directory: &Path, objects: u64, seconds: f64) {
    let begun = Instant::now();
    let store = Store::open(vec![disk(directory) as _], OpenOptions::default()).expect("it opens");
    let store = Arc::new(store);
    // Nobody is there any more who could answer.
    let server = start(store.clone(), directory, SocketAddr::from(([127, 0, 0, 1], 9)));
    let listens = begun.elapsed();
    assert!(store.wait_until_ready(Duration::from_secs(3_600)), "an hour was not enough");
    let ready = begun.elapsed();
    let known = store.usage().objects;
    drop(store);
    println!(
        "  listens after {:.2} s, knows {known} replies after {:.2} s; {}",
        listens.as_secs_f64(),
        ready.as_secs_f64(),
        resident()
    );
    assert_eq!(known, objects);
    let address = server.addresses()[0].0;
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let mut took_us = std::thread::scope(|scope| {
        let ask = |seed| {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let (mut client, mut took_us) = (Client::new(address), Vec::new());
            while Instant::now() < end {
                let (number, asked) = (random.random_range(0..objects), Instant::now());
                let body = client.get(number).unwrap_or_else(|status| panic!("{}: {status}", path(number)));
                assert!(body == path(number).as_bytes(), "{} has another's body", path(number));
                took_us.push(asked.elapsed().as_micros() as u64);
            }
            took_us
        };
        let threads = (0..CONNECTIONS).map(|seed| scope.spawn(move || ask(seed))).collect::<Vec<_>>();
        threads.into_iter().flat_map(|thread| thread.join().expect("all are hits")).collect::<Vec<_>>()
    });
    took_us.sort_unstable();
    println!(
        "  {:.0} hits a second, p50 {} and p99 {} us, each with its own body; {}",
        took_us.len() as f64 / seconds,
        took_us[took_us.len() / 2],
        took_us[took_us.len() * 99 / 100],
        resident()
    );
    let begun = Instant::now();
    let store = server.stop().expect("nobody else has it");
    Arc::into_inner(store).expect("nobody else has it").close().expect("closed");
    println!("  stopped in {:.2} s", begun.elapsed().as_secs_f64());
}

/// The list of bans is in the store's directory: without one a start serves nothing that was stored before it.
fn start(store: Arc<Store>, directory: &Path, origin: SocketAddr) -> Server {
    let text = format!(
        "[reverse]\nlisten = ['127.0.0.1:0']\n[[site]]\nhosts = ['*']\norigins = ['http://{origin}']\n\
         [cache]\ndirectories = ['{}']\n",
        directory.display()
    );
    let config = webcache::config::read(&text, toml::Table::new()).expect("right");
    Server::start(config, store).expect("a free port")
}

fn disk(directory: &Path) -> Arc<LocalDisk> {
    Arc::new(LocalDisk::open(directory).expect("a directory"))
}

fn path(number: u64) -> String {
    format!("/o/{number:09}")
}

fn resident() -> String {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let megabytes = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("it is told");
        line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024 / 1_000_000
    };
    format!("{} MB resident, {} at most", megabytes("VmRSS:"), megabytes("VmHWM:"))
}

struct Client(TcpStream);

impl Client {
    fn new(address: SocketAddr) -> Self {
        Self(TcpStream::connect(address).expect("it listens"))
    }

    /// The body; the status line when it is not 200.
    fn get(&mut self, number: u64) -> Result<Vec<u8>, String> {
        let request = format!("GET {} HTTP/1.1\r\nHost: site\r\n\r\n", path(number));
        self.0.write_all(request.as_bytes()).expect("it reads");
        let (mut bytes, mut step) = (Vec::new(), [0; 4096]);
        loop {
            let read = self.0.read(&mut step).expect("it writes");
            assert!(read > 0, "it hung up");
            bytes.extend_from_slice(&step[..read]);
            let Some(end) = bytes.windows(4).position(|part| part == b"\r\n\r\n") else { continue };
            let head = String::from_utf8_lossy(&bytes[..end]).to_ascii_lowercase();
            let status = head.lines().next().unwrap_or_default();
            if !status.starts_with("http/1.1 200") {
                return Err(status.to_owned());
            }
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length = length.expect("it is told").parse::<usize>().expect("a number");
            if bytes.len() >= end + 4 + length {
                return Ok(bytes.split_off(end + 4));
            }
        }
    }
}

/// One that answers a single request, with the path as its body.
fn origin() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("the proxy");
        let (mut head, mut byte) = (Vec::new(), [0]);
        while !head.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte).expect("it asks");
            head.push(byte[0]);
        }
        let body = path(0);
        let reply = format!(
            "HTTP/1.1 200 OK\r\nServer: origin\r\nCache-Control: max-age=315360000\r\n\
             Content-Type: text/plain\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(reply.as_bytes()).expect("it reads");
    });
    address
}
