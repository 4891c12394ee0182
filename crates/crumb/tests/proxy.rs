//! `crumb proxy`: what someone types who puts a cache in front of the web, and what goes wrong for him. What the proxy does
//! with requests is tested in `webcache`.

mod binary;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use binary::Bench;

/// A proxy that runs, killed when dropped.
struct Running {
    process: Child,
    address: String,
    out: BufReader<ChildStdout>,
}

impl Running {
    fn start(bench: &Bench, args: &[&str]) -> Self {
        let mut process = Command::new(assert_cmd::cargo::cargo_bin!("crumb"))
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
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let out = BufReader::new(process.stdout.take().unwrap());
        let mut running = Self { process, address: String::new(), out };
        let mut line = String::new();
        while line != "ready\n" {
            line.clear();
            assert!(running.out.read_line(&mut line).unwrap() > 0, "it ended before it was ready");
            if let Some(rest) = line.strip_prefix("listening at ")
                && running.address.is_empty()
            {
                running.address = rest.split_whitespace().next().unwrap().to_owned();
            }
        }
        running
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

    /// Head and body of a reply to a request for this URL.
    fn get(&self, url: &str) -> (String, Vec<u8>) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        write!(stream, "GET {url} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        let mut reply = Vec::new();
        stream.read_to_end(&mut reply).unwrap();
        let end = reply.windows(4).position(|part| part == b"\r\n\r\n").expect("a head") + 4;
        (String::from_utf8_lossy(&reply[..end]).into_owned(), reply[end..].to_vec())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// An origin whose bodies tell their path, and how often it was asked.
fn origin() -> (String, Arc<AtomicUsize>) {
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
                    if stream.write_all(&[head.as_bytes(), body.as_bytes()].concat()).is_err() {
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
            "limits.nothing is no key",
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
    // It looks through the store meanwhile, and misses.
    while check(&proxy, 0..1) == 0 {}
    let hits = check(&proxy, 0..200);
    assert!(hits >= 100, "{hits} of 200 after a kill");
    assert!(asked.load(Ordering::SeqCst) < 400);
}

#[test]
fn the_service_manager_is_told_and_a_wrong_file_leaves_the_old_one_in_force() {
    let bench = Bench::in_memory();
    let (origin, _) = origin();
    let manager = UnixDatagram::bind(bench.path("notify")).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
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
