//! `crumb run webload` and `crumb serve origin`: robots, origin and real proxies between them.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use crate::binary::{Bench, assert_fits};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Ends what it started, by its own process id.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let _ = self.0.wait();
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Starts a server and waits until it says on standard error that it serves; none where it is not installed: the test is
/// then listed as skipped.
fn started(program: &str, args: &[&str], serves: &str, package: &str) -> Option<Running> {
    let path = testkit::need::program(program, package)?;
    let mut child = Command::new(path)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let said = BufReader::new(child.stderr.take().unwrap());
    let running = Running(child);
    let (tell, told) = channel();
    // It goes on reading, so that the server never waits for somebody who listens.
    std::thread::spawn(move || {
        said.split(b'\n')
            .map_while(Result::ok)
            .for_each(|line| drop(tell.send(String::from_utf8_lossy(&line).into_owned())))
    });
    let mut all = String::new();
    while !all.contains(serves) {
        let line = told.recv_timeout(Duration::from_secs(30));
        let line = line.unwrap_or_else(|error| panic!("{program} does not serve ({error}): {all}"));
        all = all + &line + "\n";
    }
    Some(running)
}

fn open_to_all(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).unwrap();
}

fn squid(bench: &Bench, port: u16) -> Option<Running> {
    open_to_all(bench.directory());
    let dir = bench.directory().display();
    let conf = format!(
        "http_port 127.0.0.1:{port}\npid_filename none\ncache_log {dir}/cache.log\naccess_log none\ncache_store_log none\n\
         http_access allow all\nvisible_hostname test\nshutdown_lifetime 0 seconds\ncoredump_dir {dir}\n\
         cache_mem 64 MB\nmaximum_object_size_in_memory 8 MB\nmemory_cache_mode always\npinger_enable off\n"
    );
    bench.write("squid.conf", &conf);
    let conf = bench.path("squid.conf");
    // Its segments of shared memory are named by the service: other Squids on this machine have theirs.
    let service = format!("crumb{}x{port}", std::process::id());
    started("squid", &["-N", "-n", &service, "-d1", "-f", conf.to_str().unwrap()], "Accepting HTTP", "squid")
}

fn nginx(bench: &Bench, port: u16, origin: u16) -> Option<Running> {
    open_to_all(bench.directory());
    let dir = bench.directory().display();
    let temps: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|name| format!("{name}_temp_path {dir}/{name};\n"))
        .concat();
    let conf = format!(
        "daemon off; pid {dir}/nginx.pid; error_log stderr notice; worker_processes 1; events {{ worker_connections 1024; }}\n\
         http {{ access_log off; {temps} proxy_cache_path {dir}/cache keys_zone=c:10m max_size=1g;\n\
         upstream o {{ server 127.0.0.1:{origin}; keepalive 16; }}\n\
         server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://o; proxy_http_version 1.1;\n\
         proxy_set_header Connection \"\"; proxy_cache c; proxy_cache_revalidate on; }} }} }}\n"
    );
    bench.write("nginx.conf", &conf);
    let conf = bench.path("nginx.conf");
    let args = ["-p", &dir.to_string(), "-c", conf.to_str().unwrap()];
    started("nginx", &args, "start worker process", "nginx-light")
}

/// Runs it, and gives its record. A busy machine may make the generator the limit, which exit code 3 says.
fn record(bench: &Bench, args: &[&str]) -> Value {
    let said = bench.crumb(&[&["run", "webload", "--no-store", "--quiet", "--json", "-"], args].concat());
    assert!([0, 3].contains(&said.code), "{}{}", said.out, said.err);
    let record: Value =
        serde_json::from_str(&said.out).unwrap_or_else(|error| panic!("{error}: {}", said.out));
    let reasons = record["verdict"]["reasons"].as_array().unwrap().clone();
    let ours = [
        "generator-late",
        "generator-busy",
        "sends-late",
        "figures-late",
        "machine-disturbed",
        "measured-again",
        "other-levels",
        "debug-build",
        "few-samples",
    ];
    let not_ours = reasons.iter().find(|reason| !ours.contains(&reason["code"].as_str().unwrap()));
    assert_eq!(not_ours, None);
    record
}

fn metric(record: &Value, name: &str) -> f64 {
    record["metrics"][name].as_f64().unwrap_or_else(|| panic!("no {name} in {}", record["metrics"]))
}

const SMALL: [&str; 12] = [
    "--peak",
    "250",
    "--cache-size",
    "1MB",
    "--time-scale",
    "20000",
    "--think",
    "20ms,5ms",
    "--seed",
    "7",
    "--workload",
    "polymix-3",
];

#[test]
fn polymix_straight_to_the_origin_tells_rates_responses_and_no_hits() {
    let bench = Bench::in_memory();
    let said = bench.crumb(&[&["run", "webload", "--direct", "--report", "page.html"], &SMALL[..]].concat());
    assert!([0, 3].contains(&said.code), "{}{}", said.out, said.err);
    assert_fits(&said.out);
    for told in ["fill-ramp", "top-1", "top-2", "KOTETU 1.5b", "if-modified-304", "Verdict", "Stored as"] {
        assert!(said.out.contains(told), "{told}\n{}", said.out);
    }
    assert!(said.err.contains("straight to the origin"), "{}", said.err);
    let page = bench.read("page.html");
    for told in ["Traffic through the proxy", "traffic-requests-per-sec", "polyline", "KOTETU 1.5b, 2000"] {
        assert!(page.contains(told), "{told} is not on the page");
    }
    assert!(!page.contains("traffic-errors-percent"), "a figure of errors without any");
    assert!(bench.fine(&["runs", "list"]).contains("webload"));
    let record = record(&bench, &[&["--direct"], &SMALL[..]].concat());
    assert_eq!(metric(&record, "document_hit_percent"), 0.0);
    assert!(metric(&record, "response_mean_us") > 18_000.0);
    assert!(metric(&record, "response_without_think_us") < metric(&record, "response_mean_us") - 15_000.0);
    assert_eq!(record["points"].as_array().unwrap().len(), 2);
}

#[test]
fn a_real_forward_proxy_hits_what_could_be_hit_and_lies_about_nothing() {
    let bench = Bench::in_memory();
    let port = free_port();
    let Some(_squid) = squid(&bench, port) else { return };
    let proxy = format!("http://127.0.0.1:{port}");
    let small: Vec<&str> = SMALL.iter().map(|word| if *word == "20000" { "10000" } else { word }).collect();
    let record = record(&bench, &[&["--proxy", &proxy], &small[..]].concat());
    let (hits, offered) =
        (metric(&record, "document_hit_percent"), metric(&record, "document_hit_offered_percent"));
    assert!((offered - 55.0).abs() < 8.0, "{offered}");
    assert!(hits > offered - 12.0 && hits < offered + 3.0, "{hits} of {offered}");
    assert!(metric(&record, "byte_hit_percent") > 10.0);
    assert_eq!((metric(&record, "errors_percent"), metric(&record, "false_replies")), (0.0, 0.0));
    // Which of them is less is a matter of how busy the machine is.
    assert!(metric(&record, "hit_mean_us") > 0.0 && metric(&record, "miss_mean_us") > 0.0);
    let curve =
        record["curves"].as_array().unwrap().iter().find(|curve| curve["name"] == "document_hit_percent");
    assert_eq!(curve.unwrap()["lines"].as_array().unwrap().len(), 2);
}

#[test]
fn a_real_reverse_proxy_serves_a_filled_set_from_its_cache() {
    let bench = Bench::in_memory();
    let (port, origin) = (free_port(), free_port());
    let Some(_nginx) = nginx(&bench, port, origin) else { return };
    let (target, listen) = (format!("http://127.0.0.1:{port}"), format!("127.0.0.1:{origin}"));
    let set = ["--objects", "400", "--connections", "8", "--warm", "200ms", "--measure", "1s"];
    let ways: [&[&str]; 2] = [&["--workload", "hits"], &["--workload", "hits", "--rate", "500", "--no-fill"]];
    for way in ways {
        let record =
            record(&bench, &[&["--target", &target, "--origin-listen", &listen], way, &set[..]].concat());
        assert!(metric(&record, "document_hit_percent") > 99.0, "{}", record["metrics"]);
        assert_eq!((metric(&record, "errors_percent"), metric(&record, "false_replies")), (0.0, 0.0));
        assert!(record["points"][0]["latency_us"]["count"].as_u64().unwrap() > 100);
    }
    let stores = record(
        &bench,
        &[
            &["--target", &target, "--origin-listen", &listen, "--workload", "stores", "--seed", "9"],
            &set[..],
        ]
        .concat(),
    );
    assert_eq!(metric(&stores, "document_hit_percent"), 0.0);
}

#[test]
#[ignore = "the trace is not in the repository; make test-real"]
fn a_trace_of_a_real_server_is_replayed_whole() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/nasa_http_19950801.tsv.zst");
    assert!(path.exists(), "{} is not there; `make test` needs no real trace", path.display());
    let bench = Bench::in_memory();
    let record = record(
        &bench,
        &[
            &["--direct", "--workload", "trace", "--trace", path.to_str().unwrap()][..],
            &["--rate", "max", "--check-one-in", "4"],
        ]
        .concat(),
    );
    let requests = record["config"]["parameters"]["requests"].as_f64().unwrap();
    assert!(requests > 25_000.0 && requests < 30_970.0, "{requests}");
    assert_eq!(record["points"][0]["ops"]["plain"]["ok"].as_f64(), Some(requests));
    assert!(metric(&record, "document_hit_offered_percent") > 80.0);
}

#[test]
fn the_origin_alone_answers_anybody_and_says_what_it_did() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_crumb"))
        .args(["serve", "origin", "--listen", "127.0.0.1:0", "--idle-timeout", "1m"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut ready = String::new();
    out.read_line(&mut ready).unwrap();
    let child = Running(child);
    let address = ready.split_once("http://").unwrap().1.split_once('/').unwrap().0.to_owned();
    let mut stream = TcpStream::connect(&address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut ask = |more: &str, path: &str| {
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\n{more}\r\n").unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(reader.read_line(&mut head).unwrap() > 0, "{head}");
        }
        let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
        let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
        reader.read_exact(&mut body).unwrap();
        (head, body.len())
    };
    let (head, body) = ask("", "/f/2a/s10700");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && body == 10_700, "{head}");
    for field in
        ["Date: ", "Last-Modified: ", "ETag: ", "Expires: ", "Cache-Control: max-age=", "Content-Type: "]
    {
        assert!(head.contains(field), "{field}\n{head}");
    }
    let of = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).unwrap().to_owned();
    for condition in
        [format!("If-Modified-Since: {}", of("Last-Modified: ")), format!("If-None-Match: {}", of("ETag: "))]
    {
        let (head, body) = ask(&format!("{condition}\r\n"), "/f/2a/s10700");
        assert!(head.starts_with("HTTP/1.1 304 ") && body == 0, "{condition}\n{head}");
    }
    let (head, _) = ask("If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n", "/i/1/u");
    assert!(head.starts_with("HTTP/1.1 200 OK") && head.contains("no-store"), "{head}");
    assert!(ask("", "/nothing").0.starts_with("HTTP/1.1 404 "));
    kill_process(Pid::from_child(&child.0), Signal::TERM).unwrap();
    let mut rest = String::new();
    out.read_to_string(&mut rest).unwrap();
    assert!(rest.contains("5 requests (2 answered with 304, 1 refused)"), "{rest}");
}

#[test]
fn what_cannot_be_is_said_with_what_could() {
    let bench = Bench::new();
    let fails = |code: i32, args: &[&str], told: &str| {
        let error = bench.fails(code, &[&["run", "webload"], args].concat());
        assert!(error.contains(told), "{args:?}: {told}\n{error}");
    };
    fails(2, &["--proxy", "https://a:1"], "http://HOST:PORT");
    fails(2, &["--proxy", "http://127.0.0.1:1", "--target", "http://127.0.0.1:1"], "cannot be used with");
    for origin in ["http://127.0.0.1:8008", "127.0.0.1", "127.0.0.1:8008/x", "user@127.0.0.1:8008"] {
        fails(2, &["--proxy", "http://127.0.0.1:1", "--origin", origin], "HOST:PORT without http://");
    }
    fails(2, &[], "--direct for the origin itself");
    fails(2, &["--vs", "http://127.0.0.1:1"], "--proxy or --target");
    fails(2, &["--direct", "--threads", "100000"], "from 1 to 256");
    fails(2, &["--workload", "trace"], "--trace FILE");
    fails(2, &["--workload", "polymix-3", "--rate", "9"], "--peak");
    fails(2, &["--workload", "hits", "--rate", "fast"], "such as 300, or max");
    fails(1, &["--proxy", &format!("http://127.0.0.1:{}", free_port())], "start the proxy");
    assert!(bench.fails(2, &["serve", "origin", "--listen", "0.0.0.0:0"]).contains("--allow-remote"));
    bench.write("log", "prose\n");
    fails(2, &["--workload", "trace", "--trace", "log"], "log:1: expected Common Log Format");
}
