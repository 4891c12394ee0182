//! `crumb proxy`: what someone types who puts a cache in front of the web, and what goes wrong for him. What the proxy does
//! with requests is tested in `webcache`.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::binary::Bench;

/// Far more than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// A proxy that runs, killed when dropped.
struct Running {
    process: Child,
    address: String,
    /// Where `/metrics` is, when that was asked for.
    administration: String,
    out: BufReader<ChildStdout>,
}

impl Running {
    fn start(bench: &Bench, args: &[&str]) -> Self {
        Self::start_saying(bench, args, Stdio::inherit())
    }

    /// With another place for what it says on standard error.
    fn start_saying(bench: &Bench, args: &[&str], said: Stdio) -> Self {
        // With few descriptors, as most systems give them.
        let mut process = Command::new("sh")
            .args(["-c", "ulimit -Sn 256; exec \"$0\" \"$@\""])
            .arg(assert_cmd::cargo::cargo_bin!("crumb"))
            .args([
                "proxy",
                "--cache",
                "cache",
                "--size-mib",
                "32",
                "--listen",
                "127.0.0.1:0",
                "--set",
                "proxy.loops=2",
            ])
            .args(args)
            .env("NOTIFY_SOCKET", bench.path("notify"))
            .current_dir(bench.directory())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(said)
            .spawn()
            .unwrap();
        let out = BufReader::new(process.stdout.take().unwrap());
        let mut running = Self { process, address: String::new(), administration: String::new(), out };
        let mut line = String::new();
        while line != "ready\n" {
            line.clear();
            assert!(running.out.read_line(&mut line).unwrap() > 0, "it ended before it was ready");
            if let Some(rest) = line.strip_prefix("listening at ") {
                let (address, what) = rest.split_once(' ').unwrap();
                let place = match what.trim() {
                    "(administration)" => &mut running.administration,
                    _ => &mut running.address,
                };
                address.clone_into(place);
            }
        }
        running
    }

    /// Waits until a metric is a number.
    fn until(&self, metric: &str, is: usize) {
        let (line, began) = (format!("\n{metric} {is}\n"), Instant::now());
        loop {
            let mut asked = TcpStream::connect(&self.administration).unwrap();
            asked
                .write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                .unwrap();
            let mut told = String::new();
            asked.read_to_string(&mut told).unwrap();
            if told.contains(&line) {
                return;
            }
            assert!(began.elapsed() < PATIENCE, "no {line} in {told}");
        }
    }

    fn signal(&self, name: &str) {
        let pid = self.process.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    fn ended(mut self) -> i32 {
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).unwrap();
        self.process.wait().unwrap().code().unwrap_or(-1)
    }

    fn resident_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
    }

    /// Head and body of a reply to a request for this URL.
    fn get(&self, url: &str) -> (String, Vec<u8>) {
        get(&self.address, url).expect("a head")
    }
}

/// What comes of a request, to the end of the connection, however that ends; nothing when there is no head.
fn get(address: &str, url: &str) -> Option<(String, Vec<u8>)> {
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {url} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").ok()?;
    let mut reply = Vec::new();
    let _ = stream.read_to_end(&mut reply);
    let end = reply.windows(4).position(|part| part == b"\r\n\r\n")? + 4;
    Some((String::from_utf8_lossy(&reply[..end]).into_owned(), reply[end..].to_vec()))
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// An origin whose bodies tell their path, and how often it was asked.
fn origin() -> (String, Arc<AtomicUsize>) {
    origin_of(|path| body(path).into_bytes())
}

fn origin_of(body: fn(&str) -> Vec<u8>) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let count = Arc::clone(&count);
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                loop {
                    let mut first = String::new();
                    let mut line = String::new();
                    if reader.read_line(&mut first).unwrap_or(0) == 0 {
                        return;
                    }
                    while line != "\r\n" {
                        line.clear();
                        if reader.read_line(&mut line).unwrap_or(0) == 0 {
                            return;
                        }
                    }
                    count.fetch_add(1, Ordering::SeqCst);
                    let path = first.split_whitespace().nth(1).unwrap_or("?").to_owned();
                    let body = body(&path);
                    let head = format!(
                        "HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nContent-Length: {}\r\n\r\n",
                        body.len()
                    );
                    if stream.write_all(&[head.as_bytes(), &body].concat()).is_err() {
                        return;
                    }
                }
            });
        }
    });
    (address, asked)
}

fn body(path: &str) -> String {
    path.repeat(300)
}

#[test]
fn what_is_printed_is_a_file_that_is_read_and_mistakes_are_told_before_anything_starts() {
    let bench = Bench::new();
    let printed = bench.crumb(&["proxy", "--print-config"]);
    assert_eq!(printed.code, 0);
    bench.write("all.toml", &printed.out);
    let args = [
        "proxy",
        "-c",
        "all.toml",
        "--cache",
        "c",
        "--listen",
        "127.0.0.1:3128",
        "--set",
        "limits.idle_s=7",
        "--print-config",
    ];
    let again = bench.crumb(&args);
    assert_eq!(again.code, 0, "{}", again.err);
    assert!(
        again.out.contains("\nidle_s = 7\n") && again.out.contains("listen = [\"127.0.0.1:3128\"]"),
        "{}",
        again.out
    );
    let rows: [(&[&str], &str); 4] = [
        (&["--cache", "c", "--listen", "0.0.0.0:3128"], "access.clients is empty"),
        (&["--cache", "c"], "forward.listen"),
        (&["--listen", "127.0.0.1:0"], "cache.directories is empty"),
        (
            &["--cache", "c", "--listen", "127.0.0.1:0", "--set", "limits.nothing=1"],
            "limits.nothing is not a known key",
        ),
    ];
    for (args, told) in rows {
        let said = bench.crumb(&[&["proxy"], args].concat());
        assert_eq!(said.code, 2, "{args:?}");
        assert!(said.err.contains(told), "{args:?}: {}", said.err);
    }
    assert!(!bench.path("c").exists(), "nothing was made");
}

#[test]
fn what_was_stored_is_served_after_a_stop_and_after_a_kill_and_never_a_wrong_byte() {
    let bench = Bench::in_memory();
    let (origin, asked) = origin();
    let url = |number: usize| format!("http://{origin}/{number}");
    let check = |proxy: &Running, numbers: std::ops::Range<usize>| {
        numbers
            .filter(|number| {
                let (head, got) = proxy.get(&url(*number));
                assert!(head.starts_with("HTTP/1.1 200"), "{head}");
                assert!(got == body(&format!("/{number}")).as_bytes(), "{number} has wrong bytes");
                head.to_ascii_lowercase().contains("x-cache: hit")
            })
            .count()
    };
    let proxy = Running::start(&bench, &[]);
    assert_eq!(check(&proxy, 0..100), 0);
    assert_eq!(check(&proxy, 0..100), 100);
    proxy.signal("-TERM");
    assert_eq!(proxy.ended(), 0);
    let proxy = Running::start(&bench, &[]);
    assert_eq!(check(&proxy, 0..100), 100, "after a stop");
    check(&proxy, 100..200);
    proxy.signal("-KILL");
    proxy.ended();
    let proxy = Running::start(&bench, &[]);
    // It has looked through the store before it serves; what was stored last may not have been written yet.
    assert_eq!(check(&proxy, 0..100), 100, "after a kill");
    check(&proxy, 100..200);
    assert!(asked.load(Ordering::SeqCst) <= 300);
}

#[test]
fn the_service_manager_is_told_and_a_wrong_file_leaves_the_old_one_in_force() {
    let bench = Bench::in_memory();
    let (origin, _) = origin();
    let manager = UnixDatagram::bind(bench.path("notify")).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let next = || {
        let mut text = [0; 256];
        let bytes = manager.recv(&mut text).unwrap();
        String::from_utf8_lossy(&text[..bytes]).into_owned()
    };
    bench.write("proxy.toml", "[proxy]\nname = \"one\"\n");
    let proxy = Running::start(&bench, &["-c", "proxy.toml"]);
    assert_eq!(next(), "READY=1");
    let via = |proxy: &Running| proxy.get(&format!("http://{origin}/x")).0.to_ascii_lowercase();
    assert!(via(&proxy).contains("via: 1.1 one"));
    for (text, name) in [("[proxy]\nname = \"two\"\n", "two"), ("[proxy]\nnome = \"three\"\n", "two")] {
        bench.write("proxy.toml", text);
        proxy.signal("-HUP");
        assert!(next().starts_with("RELOADING=1\nMONOTONIC_USEC="));
        assert_eq!(next(), "READY=1");
        assert!(via(&proxy).contains(&format!("via: 1.1 {name}")), "{text}");
    }
    proxy.signal("-TERM");
    assert_eq!(next(), "STOPPING=1");
    assert_eq!(proxy.ended(), 0);
    assert!(Path::new(&bench.path("cache/table")).exists(), "the store was closed cleanly");
}

/// From 700 bytes to 1.5 MB, other bytes for each path.
fn body_of_many_sizes(path: &str) -> Vec<u8> {
    let number: usize = path.trim_start_matches('/').parse().unwrap_or(0);
    let bytes = [700, 20_000, 400_000, 1_500_000][number % 4];
    (0..bytes).map(|at| ((at / 7 * 31 + at + number * 17) % 251) as u8).collect()
}

#[test]
fn a_kill_in_the_middle_of_many_fills_leaves_no_wrong_byte_to_be_served() {
    let bench = Bench::in_memory();
    let (origin, _) = origin_of(body_of_many_sizes);
    // What was not cut is right to its end, and what was cut is right as far as it came.
    let check = |address: &str, number: usize| -> bool {
        let Some((head, got)) = get(address, &format!("http://{origin}/{number}")) else { return false };
        let wanted = body_of_many_sizes(&format!("/{number}"));
        assert!(head.starts_with("HTTP/1.1 200"), "{number}: {head}");
        assert!(got == wanted[..got.len().min(wanted.len())], "{number} has wrong bytes:\n{head}");
        got.len() == wanted.len()
    };
    for round in 0..3 {
        let proxy = Running::start(&bench, &[]);
        let served = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for client in 0..6 {
                let (served, check, address) = (&served, &check, &proxy.address);
                scope.spawn(move || {
                    // All are asked for again and again, some by two at a time, until nobody answers.
                    for step in 0.. {
                        if !check(address, (client / 2 * 29 + step * 5 + round) % 60) {
                            return;
                        }
                        served.fetch_add(1, Ordering::SeqCst);
                    }
                });
            }
            let began = Instant::now();
            while served.load(Ordering::SeqCst) < 60 + round * 20 {
                assert!(began.elapsed() < PATIENCE, "{} served", served.load(Ordering::SeqCst));
                std::thread::yield_now();
            }
            proxy.signal("-KILL");
        });
    }
    let proxy = Running::start(&bench, &[]);
    for number in (0..60).chain(0..60) {
        assert!(check(&proxy.address, number), "{number} was cut");
    }
    proxy.signal("-TERM");
    assert_eq!(proxy.ended(), 0);
}

#[test]
fn a_second_proxy_on_one_address_is_refused_and_the_first_has_all_descriptors_that_it_may_have() {
    let bench = Bench::in_memory();
    let proxy = Running::start(&bench, &[]);
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", proxy.process.id())).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[3], words[4], "{line}");
    let args = ["proxy", "--cache", "other", "--size-mib", "32", "--listen", &proxy.address];
    let said = bench.crumb(&args);
    assert_eq!(said.code, 1, "{}", said.err);
    assert!(said.err.contains(&proxy.address) && said.err.contains("another program"), "{}", said.err);
}

/// That memory may be short is said of as many connections as there are open files for: see the unit tests of `proxy/memory.rs`.
#[test]
fn connections_that_need_more_open_files_than_are_allowed_are_reported_and_those_that_fit_are_not() {
    let bench = Bench::in_memory();
    let proxy = Running::start(&bench, &[]);
    // The first one has the address, so that the second ends by itself.
    let told = |connections: &str| {
        let args = ["proxy", "--cache", "other", "--size-mib", "32", "--listen", &proxy.address, "--set"];
        bench.crumb(&[&args[..], &[&format!("limits.connections={connections}")]].concat()).err
    };
    let err = told("1000000000");
    assert!(err.contains("instead of limits.connections = 1000000000: this process may open"), "{err}");
    for enough in ["100", "0"] {
        let err = told(enough);
        assert!(!err.contains("this process may open"), "{err}");
    }
}

/// Measured: 40 KB in a release build.
const WAITING_BYTES_MAX: u64 = 48 << 10;

#[test]
fn requests_that_wait_for_an_origin_take_few_bytes_each() {
    const HALF: usize = 200;
    let bench = Bench::new();
    let proxy = Running::start(&bench, &[]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let origin = listener.local_addr().unwrap();
    let (tells, asked) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let read = stream.read(&mut [0; 100]).unwrap_or(0);
            if read > 0 && tells.send(stream).is_err() {
                return;
            }
        }
    });
    let (mut clients, mut held) = (Vec::new(), Vec::new());
    // The first half brings what is there once.
    let resident = [(); 2].map(|()| {
        for _ in 0..HALF {
            let mut client = TcpStream::connect(&proxy.address).unwrap();
            let number = clients.len();
            write!(client, "GET http://{origin}/{number} HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            clients.push(client);
        }
        held.extend((0..HALF).map(|_| asked.recv_timeout(PATIENCE).expect("the origin is asked for all")));
        proxy.resident_bytes()
    });
    let each = resident[1].saturating_sub(resident[0]) / HALF as u64;
    assert!(each <= WAITING_BYTES_MAX, "{each} bytes each");
}

/// Measured: 1.5 KB in a release build; 16 KB while their buffers are kept.
const IDLE_BYTES_MAX: u64 = 8 << 10;

#[test]
fn connections_that_lie_idle_take_few_bytes_each() {
    const PART: usize = 150;
    let bench = Bench::new();
    let proxy = Running::start(&bench, &["--set", "admin.listen=127.0.0.1:0"]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let origin = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 1000]);
            let _ = stream
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nCache-Control: max-age=60\r\n\r\nx");
        }
    });
    let mut clients = Vec::new();
    let resident = [(); 5].map(|()| {
        for _ in 0..PART {
            let mut client = TcpStream::connect(&proxy.address).unwrap();
            write!(client, "GET http://{origin}/ HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            let mut reply = Vec::new();
            while !reply.ends_with(b"\r\n\r\nx") {
                let mut piece = [0; 1000];
                let bytes = client.read(&mut piece).unwrap();
                assert!(bytes > 0, "{}", String::from_utf8_lossy(&reply));
                reply.extend_from_slice(&piece[..bytes]);
            }
            clients.push(client);
        }
        proxy.until("crumb_connections_rested_total", clients.len());
        proxy.resident_bytes()
    });
    // What a part needs while it is not idle is left for the next: one that needs more brings less than half of the bound.
    let each = resident[4].saturating_sub(resident[0]) / (4 * PART as u64);
    assert!(each <= IDLE_BYTES_MAX, "{each} bytes each: {resident:?}");
}

#[test]
fn clients_of_a_proxy_for_other_machines_do_not_reach_what_only_this_one_may_unless_told() {
    let bench = Bench::in_memory();
    let (origin, asked) = origin();
    let url = format!("http://{origin}/x");
    let others = ["--listen", "0.0.0.0:0", "--set", "access.clients=['127.0.0.0/8']"];
    let proxy = Running::start(&bench, &others);
    let (head, told) = proxy.get(&url);
    assert!(head.starts_with("HTTP/1.1 403"), "{head}");
    assert!(String::from_utf8_lossy(&told).contains("access.internal"), "the key is told");
    assert_eq!(asked.load(Ordering::SeqCst), 0);
    drop(proxy);
    let excepted = ["--set", "access.internal_allowed=['127.0.0.1']"];
    let proxy = Running::start(&bench, &[&others[..], &excepted].concat());
    assert!(proxy.get(&url).0.starts_with("HTTP/1.1 200"));
}

#[test]
fn what_a_cache_keeps_is_readable_for_its_owner_alone() {
    let bench = Bench::in_memory();
    let (origin, _) = origin();
    let args = ["--cache", "second", "--admin", "127.0.0.1:0"];
    let proxy = Running::start(&bench, &args);
    proxy.get(&format!("http://{origin}/x"));
    let mut ban = TcpStream::connect(&proxy.administration).unwrap();
    ban.write_all(b"POST /ban?prefix=http://a/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .unwrap();
    let mut told = String::new();
    ban.read_to_string(&mut told).unwrap();
    assert!(told.starts_with("HTTP/1.1 200"), "{told}");
    proxy.signal("-TERM");
    assert_eq!(proxy.ended(), 0);
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    for directory in ["cache", "second"].map(|name| bench.path(name)) {
        assert_eq!(mode(&directory), 0o700, "{}", directory.display());
        let names: Vec<_> =
            std::fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(names.len() > 2, "{names:?}");
        for path in names.iter().filter(|path| path.is_file()) {
            assert_eq!(mode(path), 0o600, "{}: {:o}", path.display(), mode(path));
        }
    }
    for name in ["bans", "volumes", "table", "lock"] {
        assert!(bench.path("cache").join(name).exists(), "{name} was looked at");
    }
}

#[test]
fn a_log_that_is_no_terminal_has_no_colours() {
    let bench = Bench::in_memory();
    bench.write("proxy.toml", "");
    let mut proxy = Running::start_saying(&bench, &["-c", "proxy.toml"], Stdio::piped());
    let mut said = BufReader::new(proxy.process.stderr.take().unwrap());
    bench.write("proxy.toml", "[proxy]\nnome = \"x\"\n");
    proxy.signal("-HUP");
    let mut line = String::new();
    while !line.contains("the configuration stays as it was") {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0, "it ended");
    }
    assert!(line.contains("ERROR"), "{line:?}");
    assert!(!line.contains('\x1b'), "{line:?}");
}
