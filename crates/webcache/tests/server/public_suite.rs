//! The public suite for HTTP caches (npm `http-cache-tests` 0.4.5) against the proxy in reverse, over sockets. Its score by
//! level is printed; what is not met must be in `known-failures.txt`, with the reason, and nothing else.

#![allow(clippy::print_stderr, reason = "the suite's scores are worth a line each")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use crate::harness::{PATIENCE, Proxy};

/// As rules/public_suite has it: the release predates RFC 9111 in two of these, and stores cookies.
const POLICY: &str = "[rules]\nset_cookie = 'store'\nage_errors = 'stale'\nforeign_304 = 'keep'\n";
const KNOWN: &str = include_str!("known-failures.txt");
/// Of those that 0.4.5 calls required, for all caches.
const REQUIRED_MIN: usize = 145;

/// Ends what it holds.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Where scripts/test-packages.sh puts it: in Cargo's target directory, above this program.
fn suite() -> Option<PathBuf> {
    let program = std::env::current_exe().ok()?;
    let place = |above: &Path| above.join("http-cache-tests/node_modules/http-cache-tests");
    program.ancestors().map(place).find(|path| path.join("cli.mjs").exists())
}

#[test]
fn the_public_suite_finds_nothing_that_is_not_known() {
    let missing = "http-cache-tests is not there (scripts/test-packages.sh fetches it)";
    let Some(suite) = testkit::need(suite().ok_or(missing)) else { return };
    if testkit::need::program("node", "nodejs").is_none() {
        return;
    }
    let origin = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let node = |script: &str| {
        let mut node = Command::new("node");
        node.current_dir(&suite)
            .args(["--no-warnings", script])
            .env("npm_package_config_id", "")
            .stdin(Stdio::null());
        node
    };
    let directory = tempfile::tempdir().unwrap();
    let server = node("server/server.mjs")
        .env("npm_config_port", origin.port().to_string())
        .env("npm_config_protocol", "http")
        .env("npm_config_pidfile", directory.path().join("pid"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let _server = Running(server.expect("node starts"));
    let began = Instant::now();
    while std::net::TcpStream::connect(origin).is_err() {
        assert!(began.elapsed() < PATIENCE, "the suite's server did not start");
        std::thread::yield_now();
    }
    let proxy = Proxy::with(origin, POLICY);
    let done = node("cli.mjs").env("npm_config_base", format!("http://{}", proxy.reverse)).output().unwrap();
    let results: BTreeMap<String, serde_json::Value> = serde_json::from_slice(&done.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&done.stderr)));
    let kinds = node("--input-type=module")
        .args(["--eval", KINDS])
        .output()
        .map(|done| String::from_utf8_lossy(&done.stdout).into_owned())
        .unwrap();
    let known: BTreeSet<&str> = KNOWN
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    let mut scores: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    let (mut failed, mut news) = (BTreeSet::new(), Vec::new());
    for (kind, id) in kinds.lines().filter_map(|line| line.split_once(' ')) {
        let Some(result) = results.get(id) else { continue };
        let score = scores.entry(kind).or_default();
        score.1 += 1;
        if *result == true {
            score.0 += 1;
        } else if !kind.ends_with("check") {
            failed.insert(id);
            if !known.contains(id) {
                news.push(format!("{kind} {id}: {result}"));
            }
        }
    }
    for (kind, (met, all)) in &scores {
        eprintln!("http-cache-tests 0.4.5, {kind}: {met} of {all}");
    }
    assert!(news.is_empty(), "not in known-failures.txt:\n{}", news.join("\n"));
    let better: Vec<&&str> = known.iter().filter(|id| !failed.contains(**id)).collect();
    assert!(better.is_empty(), "met, though known-failures.txt says otherwise: {better:?}");
    assert!(scores["required"].0 >= REQUIRED_MIN, "{scores:?}");
}

/// Level and name of each test that a command line runs.
const KINDS: &str = "import tests from './tests/index.mjs'; import surrogate from './tests/surrogate-control.mjs'; \
     tests.push(surrogate); \
     for (const suite of tests) for (const test of suite.tests) if (!test.browser_only) \
     console.log(suite === surrogate ? 'surrogate-' + (test.kind || 'required') : (test.kind || 'required'), test.id)";
