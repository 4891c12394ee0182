//! A real Squid as sibling in both directions, and as parent.

use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use http_cache_rules::{WallSeconds, date};
use testkit::need::program;

use crate::harness::{Origin, PATIENCE, Proxy, get_url, open_directory, reply};

/// A Squid with a cache in memory, on free ports; stopped by its own process when dropped.
struct Squid {
    process: Child,
    directory: tempfile::TempDir,
    address: SocketAddr,
    icp_port: u16,
}

/// A name that no other Squid on this machine has: letters and digits, by what it alone listens at.
fn service(address: SocketAddr) -> String {
    format!("crumb{}x{}", std::process::id(), address.port())
}

impl Squid {
    fn start(more: &str) -> Option<Self> {
        let squid = program("squid", "squid")?;
        let directory = open_directory("crumb-squid");
        let at = directory.path().display();
        // Squid takes what comes from its own address for its own words, whatever the port; and asks nobody for what is near
        // by, unless told (minimum_direct_rtt).
        let address = TcpListener::bind("127.0.0.2:0").unwrap().local_addr().unwrap();
        let icp_port = UdpSocket::bind("127.0.0.2:0").unwrap().local_addr().unwrap().port();
        let text = format!(
            "http_port {address}\nicp_port {icp_port}\nudp_incoming_address 127.0.0.2\nicp_access allow all\n\
             http_access allow all\nvisible_hostname squid.test\ncache_mem 16 MB\npid_filename {at}/pid\n\
             access_log stdio:{at}/access squid\nbuffered_logs off\ncache_log {at}/log\ncoredump_dir {at}\n\
             netdb_filename none\npinger_enable off\nshutdown_lifetime 0 seconds\nicp_query_timeout 10000\n\
             minimum_direct_rtt 0\nminimum_direct_hops 0\n{more}"
        );
        std::fs::write(directory.path().join("conf"), text).unwrap();
        let process = Command::new(squid)
            // Its segments of shared memory are named by the service: other Squids on this machine have theirs.
            .args(["-N", "-n", &service(address), "-f", &format!("{at}/conf")])
            .current_dir(directory.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut squid = Self { process, directory, address, icp_port };
        let began = Instant::now();
        while TcpStream::connect(address).is_err() {
            let ended = squid.process.try_wait().unwrap();
            assert!(
                ended.is_none() && began.elapsed() < PATIENCE,
                "Squid did not start: {}",
                squid.said("log")
            );
            std::thread::yield_now();
        }
        Some(squid)
    }

    fn said(&self, file: &str) -> String {
        std::fs::read_to_string(self.directory.path().join(file)).unwrap_or_default()
    }

    /// Its log, once it says this: lines are written when the reply has left already.
    fn logs(&self, wanted: &str) {
        let began = Instant::now();
        while !self.said("access").contains(wanted) {
            assert!(began.elapsed() < PATIENCE, "no {wanted} in Squid's log:\n{}", self.said("access"));
            std::thread::yield_now();
        }
    }

    fn table(&self, kind: &str) -> String {
        format!("[[{kind}]]\naddress = '{}'\nicp_port = {}\n", self.address, self.icp_port)
    }
}

impl Drop for Squid {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-TERM", &self.process.id().to_string()]).status();
        let began = Instant::now();
        while self.process.try_wait().is_ok_and(|ended| ended.is_none()) {
            if began.elapsed() > PATIENCE / 3 {
                let _ = self.process.kill();
            }
            std::thread::yield_now();
        }
    }
}

fn origin() -> Origin {
    Origin::new(|seen, _| {
        let body = seen.target.repeat(1000);
        // Without a Date Squid takes it for stale.
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let date = date::format(WallSeconds(since.as_secs() as i64));
        let date = std::str::from_utf8(&date).unwrap();
        reply(&format!("Date: {date}\r\nCache-Control: max-age=600\r\nContent-Type: text/plain\r\n"), body)
    })
}

fn url(origin: &Origin, path: &str) -> String {
    format!("http://{}{path}", origin.address)
}

#[test]
fn what_squid_has_comes_from_it_by_icp_and_what_it_has_not_from_the_origin() {
    let Some(squid) = Squid::start("") else { return };
    let origin = origin();
    let more = format!("proxy.name = 'ours'\nicp.timeout_ms = 10000\n{}", squid.table("sibling"));
    let proxy = Proxy::with(origin.address, &more);
    let first = get_url(squid.address, &url(&origin, "/a"), "");
    assert_eq!((first.status, first.text()), (200, "/a".repeat(1000)));
    let got = proxy.get_url(&url(&origin, "/a"), "");
    assert_eq!((got.status, got.text()), (200, "/a".repeat(1000)), "{got:?}");
    assert_eq!(proxy.count(|counters| counters.sibling_hits.get()), 1);
    assert_eq!(origin.seen().len(), 1, "Squid had it");
    squid.logs("UDP_HIT");
    proxy.settled();
    assert!(proxy.get_url(&url(&origin, "/a"), "").is_hit());
    assert_eq!(proxy.get_url(&url(&origin, "/b"), "").text(), "/b".repeat(1000));
    squid.logs("UDP_MISS");
    let seen = origin.seen();
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[1].field("via"), Some("1.1 ours"), "not by way of Squid");
}

#[test]
fn squid_has_from_us_by_icp_what_we_have() {
    let origin = origin();
    let proxy = Proxy::with(origin.address, "proxy.name = 'ours'\nicp.listen = '127.0.0.1:0'");
    let (http, icp) = (proxy.forward.port(), proxy.server().icp_address().unwrap().port());
    let more = format!("cache_peer 127.0.0.1 sibling {http} {icp} no-digest no-netdb-exchange\n");
    let Some(squid) = Squid::start(&more) else { return };
    assert_eq!(proxy.get_url(&url(&origin, "/a"), "").status, 200);
    proxy.settled();
    let got = get_url(squid.address, &url(&origin, "/a"), "");
    assert_eq!((got.status, got.text()), (200, "/a".repeat(1000)), "{got:?}");
    squid.logs("SIBLING_HIT/127.0.0.1");
    assert_eq!(origin.seen().len(), 1, "we had it");
    let said = got.fields.iter().any(|(name, value)| name == "x-cache" && value == "HIT from ours");
    assert!(said, "{got:?}");
    let got = get_url(squid.address, &url(&origin, "/b"), "");
    assert_eq!(got.text(), "/b".repeat(1000));
    squid.logs("HIER_DIRECT/127.0.0.1");
    let count = |place: usize| proxy.count(|counters| counters.icp_answers()[place].get());
    assert_eq!((count(0), count(1)), (1, 1));
}

#[test]
fn squid_is_the_parent_that_is_asked_when_it_has_it() {
    let Some(squid) = Squid::start("") else { return };
    let origin = origin();
    let other = Proxy::with(origin.address, "proxy.name = 'other'");
    let more = format!(
        "proxy.name = 'ours'\nicp.timeout_ms = 10000\nparents.direct = false\n[[parent]]\naddress = '{}'\n{}",
        other.forward,
        squid.table("parent")
    );
    let proxy = Proxy::with(origin.address, &more);
    get_url(squid.address, &url(&origin, "/a"), "");
    let got = proxy.get_url(&url(&origin, "/a"), "");
    assert_eq!((got.status, got.text()), (200, "/a".repeat(1000)), "{got:?}");
    assert_eq!(origin.seen().len(), 1);
    let asked = |other: &Proxy| other.count(|counters| counters.origin_requests.get());
    assert_eq!(asked(&other), 0, "the first parent is not asked, as the second has it");
    assert_eq!(proxy.get_url(&url(&origin, "/b"), "").text(), "/b".repeat(1000));
    assert_eq!(asked(&other), 1, "none has it: the first one");
    // Alone it is asked for all.
    proxy.reload(&format!("proxy.name = 'ours'\nparents.direct = false\n{}", squid.table("parent")));
    assert_eq!(proxy.get_url(&url(&origin, "/c"), "").text(), "/c".repeat(1000));
    assert!(origin.seen()[2].field("via").unwrap().contains("squid.test"), "{:?}", origin.seen()[2]);
}
