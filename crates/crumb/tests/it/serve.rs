//! `crumb serve`: ready when it says so, reached by other programs, ended by a signal.

use std::io::{BufRead as _, BufReader, Read as _};
use std::net::{SocketAddr, TcpListener};
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use crate::binary::Bench;
use rustix::process::{Pid, Signal, kill_process};

struct Serving {
    child: Child,
    out: Option<BufReader<ChildStdout>>,
    ready: String,
}

impl Serving {
    fn start(args: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_crumb"))
            .arg("serve")
            .args(args)
            .args(["--listen", "127.0.0.1:0"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut ready = String::new();
        out.read_line(&mut ready).unwrap();
        Self { child, out: Some(out), ready }
    }

    fn address(&self) -> SocketAddr {
        let url = self.ready.split_once("nfs://").unwrap_or_else(|| panic!("not ready: {:?}", self.ready)).1;
        url.split_once('/').unwrap().0.parse().unwrap()
    }

    /// Sends the signal; gives the exit code and what was said after the ready line.
    fn end(mut self, signal: Signal) -> (Option<i32>, String) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        let (tell, told) = mpsc::channel();
        let mut out = self.out.take().unwrap();
        std::thread::spawn(move || {
            let mut rest = String::new();
            // The end of its output is the end of the process.
            out.read_to_string(&mut rest).unwrap();
            tell.send(rest)
        });
        let rest = told.recv_timeout(Duration::from_secs(20)).expect("it ends within 20 s");
        let status = self.child.wait().unwrap();
        assert_eq!(status.signal(), None, "it was killed and did not end by itself");
        (status.code(), rest)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // Ended already when the test went well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn nfs_ls(address: SocketAddr) -> Option<String> {
    testkit::need::program("nfs-ls", "libnfs-utils")?;
    let port = address.port();
    let url = format!("nfs://127.0.0.1/?version=3&nfsport={port}&mountport={port}");
    let output = Command::new("nfs-ls").arg(url).output().unwrap();
    Some(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

#[test]
fn a_directory_is_listed_by_others_and_sigterm_ends_it_with_totals() {
    let bench = Bench::new();
    bench.write("hello", "hello\n");
    let path = bench.directory().to_str().unwrap();
    let server = Serving::start(&["dir", path]);
    assert!(server.ready.starts_with(&format!("serving {path} at nfs://127.0.0.1:")), "{}", server.ready);
    assert!(server.ready.ends_with("(NFSv3 over UDP and TCP, MOUNT on the same port); Ctrl-C stops\n"));
    assert_ne!(server.address().port(), 0);
    let listing = nfs_ls(server.address());
    assert!(listing.as_ref().is_none_or(|listing| listing.contains("hello")), "{listing:?}");
    let (code, rest) = server.end(Signal::TERM);
    assert_eq!(code, Some(0));
    assert!(rest.starts_with("stopped after ") && rest.contains(" calls ("), "{rest}");
    assert!(listing.is_none() || !rest.contains(": 0 calls"), "{rest}");
}

#[test]
fn ctrl_c_ends_the_null_responder_on_its_cpu() {
    let cpu = rustix::thread::sched_getaffinity(None).unwrap();
    let cpu = (0..rustix::thread::CpuSet::MAX_CPU).find(|&at| cpu.is_set(at)).unwrap().to_string();
    let server = Serving::start(&["null", "--pin", &cpu]);
    assert!(server.ready.starts_with("serving the null responder at nfs://127.0.0.1:"), "{}", server.ready);
    assert_eq!(server.end(Signal::INT).0, Some(0));
    let server = Serving::start(&["null", "--quiet"]);
    server.address();
    assert_eq!(server.end(Signal::INT), (Some(0), String::new()));
}

#[test]
fn a_read_only_export_says_so() {
    let bench = Bench::new();
    let server = Serving::start(&["dir", bench.directory().to_str().unwrap(), "--read-only"]);
    assert!(server.ready.contains(", read-only, at nfs://"), "{}", server.ready);
    assert_eq!(server.end(Signal::TERM).0, Some(0));
}

#[test]
fn other_machines_are_let_in_only_on_purpose() {
    let bench = Bench::new();
    for address in ["0.0.0.0:0", "[::]:0", "0.0.0.0"] {
        let error = bench.fails(2, &["serve", "dir", ".", "--listen", address]);
        assert!(error.contains("--allow-remote") && error.contains("no password"), "{error}");
    }
}

#[test]
fn what_cannot_be_served_is_said_at_once() {
    let bench = Bench::new();
    bench.write("file", "");
    assert!(bench.fails(2, &["serve", "dir"]).contains("<PATH>"));
    assert!(bench.fails(1, &["serve", "dir", "missing", "--listen", "127.0.0.1:0"]).contains("missing"));
    assert!(bench.fails(1, &["serve", "dir", "file", "--listen", "127.0.0.1:0"]).contains("file"));
    assert!(bench.fails(2, &["serve", "null", "--listen", "nonsense:port"]).contains("127.0.0.1:20490"));
    assert!(bench.fails(2, &["serve", "null", "--connections-max", "0"]).contains("--connections-max"));
    assert!(bench.fails(2, &["serve", "null", "--pin", "3-1"]).contains("0-3,6"));
    assert!(
        bench.fails(2, &["serve", "null", "--pin", "1023", "--listen", "127.0.0.1:0"]).contains("CPU 1023")
    );
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let error = bench.fails(1, &["serve", "null", "--listen", &address]);
    assert!(error.contains(&address) && error.contains("in use"), "{error}");
}
