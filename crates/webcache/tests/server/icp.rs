//! Siblings and parents that are asked by ICP: two of our own, and some that lie.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use webcache::icp::{self, Answer, Message};

use packstore::{Mode, OpenOptions, Store, StoreOptions, VolumeSpec};
use testkit::{Held, HeldDisk, SimulatedDisk};

use crate::harness::{Connection, Gate, Nobody, Origin, PATIENCE, Proxy, reply};

/// A neighbour that answers queries as it is told, with its own socket, for as long as the test's process lives.
fn neighbour(answer: impl Fn(&UdpSocket, SocketAddr, u32, &[u8]) + Send + 'static) -> u16 {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = socket.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let mut datagram = vec![0; 20_000];
        while let Ok((bytes, from)) = socket.recv_from(&mut datagram) {
            if let Ok(Message::Query { number, url }) = icp::read(&datagram[..bytes]) {
                answer(&socket, from, number, url);
            }
        }
    });
    port
}

fn say(socket: &UdpSocket, to: SocketAddr, answer: Answer, number: u32, url: &[u8]) {
    socket.send_to(&icp::reply(answer, number, url).unwrap(), to).unwrap();
}

/// A proxy with a name of its own that answers ICP.
fn named(origin: &Origin, name: &str, more: &str) -> Proxy {
    Proxy::with(origin.address, &with_name(name, more))
}

fn with_name(name: &str, more: &str) -> String {
    format!("proxy.name = '{name}'\nicp.listen = '127.0.0.1:0'\n{more}")
}

fn icp_port(proxy: &Proxy) -> u16 {
    proxy.server().icp_address().unwrap().port()
}

/// A table of `[[sibling]]` or `[[parent]]`.
fn table(kind: &str, address: SocketAddr, icp_port: u16) -> String {
    format!("[[{kind}]]\naddress = '{address}'\nicp_port = {icp_port}\n")
}

fn table_of(kind: &str, proxy: &Proxy) -> String {
    table(kind, proxy.forward, icp_port(proxy))
}

fn answers(proxy: &Proxy) -> [u64; 5] {
    std::array::from_fn(|place| proxy.count(|counters| counters.icp_answers()[place].get()))
}

fn fresh_origin() -> Origin {
    Origin::new(|seen, _| reply("Cache-Control: max-age=600\r\n", &seen.target))
}

#[test]
fn what_a_sibling_has_comes_from_it_and_what_it_has_not_from_the_origin() {
    let origin = fresh_origin();
    let (one, other) = (named(&origin, "one", ""), named(&origin, "other", ""));
    assert!(one.reload(&with_name("one", &table_of("sibling", &other))).is_empty());
    let url = |path: &str| format!("http://{}{path}", origin.address);
    other.get_url(&url("/a"), "");
    other.settled();
    let got = one.get_url(&url("/a"), "");
    assert_eq!((got.status, got.text().as_str(), got.is_hit()), (200, "/a", false), "{got:?}");
    let said: Vec<_> = got.fields.iter().filter(|(name, _)| name == "cache-status").collect();
    assert!(said[0].1.starts_with("other; hit") && said[1].1.contains("detail=sibling"), "{said:?}");
    assert_eq!(origin.seen().len(), 1, "asked once, by the other");
    assert_eq!(one.count(|counters| counters.sibling_hits.get()), 1);
    one.settled();
    assert!(one.get_url(&url("/a"), "").is_hit(), "it is stored here too");
    let got = one.get_url(&url("/b"), "");
    assert_eq!((got.text().as_str(), origin.seen().len()), ("/b", 2));
    assert_eq!(answers(&other), [1, 1, 0, 0, 0]);
    assert_eq!(one.count(|counters| counters.icp_found.get()), 1);
    assert_eq!(one.count(|counters| counters.icp_not_found.get()), 1);
    assert_eq!(other.count(|counters| counters.icp_queries.get()), 0);
}

#[test]
fn nobody_is_asked_about_what_is_for_one_client_or_wants_the_origin_nor_by_the_reverse_side() {
    let origin = fresh_origin();
    let other = named(&origin, "other", "");
    let one = named(&origin, "one", &table_of("sibling", &other));
    let url = format!("http://{}/a", origin.address);
    for fields in ["Authorization: Basic eDp5\r\n", "Cache-Control: no-cache\r\n", "Pragma: no-cache\r\n"] {
        assert_eq!(one.get_url(&url, fields).status, 200, "{fields}");
    }
    assert_eq!(one.get_url(&format!("{url}x"), "Cache-Control: only-if-cached\r\n").status, 504);
    one.get("/site");
    assert_eq!(one.count(|counters| counters.icp_queries.get()), 0);
    one.get_url(&format!("{url}y"), "");
    assert_eq!(one.count(|counters| counters.icp_queries.get()), 1, "else the rest would prove nothing");
}

#[test]
fn a_sibling_that_has_it_no_more_says_504_which_no_client_sees_and_asks_nobody_in_a_circle() {
    let origin = fresh_origin();
    let (one, other) = (named(&origin, "one", ""), named(&origin, "other", ""));
    // Each is the other's sibling, and somebody says in the other's name that it has everything.
    let liar = neighbour(|socket, from, number, url| say(socket, from, Answer::Hit, number, url));
    other.reload(&with_name("other", &table_of("sibling", &one)));
    one.reload(&with_name("one", &table("sibling", other.forward, liar)));
    let got = one.get_url(&format!("http://{}/a", origin.address), "");
    assert_eq!((got.status, got.text().as_str()), (200, "/a"), "{got:?}");
    assert_eq!(origin.seen().len(), 1);
    assert_eq!(origin.seen()[0].field("cache-control"), None, "the origin is asked as the client asked");
    assert_eq!(one.count(|counters| counters.sibling_failures.get()), 1);
    assert_eq!(
        other.count(|counters| counters.origin_requests.get()),
        0,
        "what a sibling wants goes no further"
    );
    assert_eq!(other.count(|counters| counters.icp_queries.get()), 0);
    assert_eq!(answers(&one), [0; 5]);
    // As do two with the same name, which take each other for a loop.
    let twin = named(&origin, "one", "");
    one.reload(&with_name("one", &table("sibling", twin.forward, liar)));
    assert_eq!(one.get_url(&format!("http://{}/b", origin.address), "").status, 200);
    // Or one where nobody listens.
    let nobody = Nobody::new();
    one.reload(&with_name("one", &table("sibling", nobody.address, liar)));
    assert_eq!(one.get_url(&format!("http://{}/c", origin.address), "").status, 200);
}

#[test]
fn one_that_answers_nothing_holds_five_misses_up_and_no_more_until_it_answers_again() {
    const TIME: Duration = Duration::from_secs(2);
    let origin = fresh_origin();
    let speaks = Arc::new(AtomicBool::new(false));
    let now_it_does = Arc::clone(&speaks);
    let port = neighbour(move |socket, from, number, url| {
        if now_it_does.load(Ordering::SeqCst) {
            say(socket, from, Answer::Miss, number, url);
        }
    });
    let more = format!("icp.timeout_ms = 2000\n{}", table("sibling", origin.address, port));
    let one = named(&origin, "one", &more);
    let took = |path: usize| {
        let began = Instant::now();
        assert_eq!(one.get_url(&format!("http://{}/{path}", origin.address), "").status, 200);
        began.elapsed()
    };
    std::thread::scope(|scope| {
        let waits: Vec<_> = (0..5).map(|path| scope.spawn(move || took(path))).collect();
        waits.into_iter().for_each(|wait| assert!(wait.join().unwrap() >= TIME, "waited for the answer"));
    });
    one.until("all are counted", |one| one.count(|counters| counters.icp_unanswered.get()) == 5);
    assert_eq!(one.server().shared().neighbours.silent(), 1);
    assert!(took(5) < TIME, "not waited for any more");
    speaks.store(true, Ordering::SeqCst);
    let mut path = 6;
    let began = Instant::now();
    while one.server().shared().neighbours.silent() > 0 {
        assert!(took(path) < TIME);
        path += 1;
        assert!(began.elapsed() < PATIENCE, "never asked again");
    }
}

#[test]
fn only_the_neighbour_that_was_asked_can_answer_and_only_what_it_was_asked() {
    let origin = fresh_origin();
    let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = neighbour(move |socket, from, number, url| {
        say(&stranger, from, Answer::Hit, number, url);
        say(socket, from, Answer::Hit, number.wrapping_add(1), url);
        say(socket, from, Answer::Hit, number, b"http://other/");
        socket.send_to(&[2; 10], from).unwrap();
        socket.send_to(&icp::query(number, "http://a/").unwrap(), from).unwrap();
        say(socket, from, Answer::Miss, number, url);
        say(socket, from, Answer::Hit, number, url);
    });
    // Whoever believed one of them would ask there.
    let trap = Origin::new(|_, _| reply("", "trapped"));
    let one = named(&origin, "one", &table("sibling", trap.address, port));
    let got = one.get_url(&format!("http://{}/a", origin.address), "");
    assert_eq!(got.text(), "/a");
    one.until("all have come", |one| one.count(|counters| counters.icp_unexpected.get()) == 5);
    assert_eq!(one.count(|counters| counters.icp_malformed.get()), 1);
    assert_eq!(one.count(|counters| counters.icp_found.get()), 0);
    assert_eq!(one.count(|counters| counters.icp_not_found.get()), 1);
    assert!(trap.seen().is_empty());
}

#[test]
fn the_parent_that_has_it_is_asked_before_others_and_one_that_does_not_want_to_be_is_not() {
    let origin = fresh_origin();
    let (first, second) = (named(&origin, "first", ""), named(&origin, "second", ""));
    let parents =
        format!("parents.direct = false\n{}{}", table_of("parent", &first), table_of("parent", &second));
    let child = named(&origin, "child", &parents);
    let url = |path: &str| format!("http://{}{path}", origin.address);
    let origin_asked = |proxy: &Proxy| proxy.count(|counters| counters.origin_requests.get());
    second.get_url(&url("/a"), "");
    second.settled();
    let got = child.get_url(&url("/a"), "");
    assert!(got.field("cache-status").unwrap().starts_with("second; hit"), "{got:?}");
    assert_eq!((origin_asked(&first), origin.seen().len()), (0, 1));
    child.get_url(&url("/b"), "");
    assert_eq!(
        (origin_asked(&first), origin_asked(&second)),
        (1, 1),
        "none has it: the first, as without ICP"
    );
    first.reload(&with_name("first", "access.hosts_denied = ['127.0.0.1']"));
    assert_eq!(child.get_url(&url("/c"), "").status, 200);
    assert_eq!((origin_asked(&first), origin_asked(&second)), (1, 2), "the first denies it");
    assert_eq!(answers(&first)[4], 1);
}

/// A client of ICP.
fn asker(proxy: &Proxy) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.connect(proxy.server().icp_address().unwrap()).unwrap();
    socket
}

fn ask(socket: &UdpSocket, url: &str) -> Answer {
    socket.send(&icp::query(7, url).unwrap()).unwrap();
    let mut said = vec![0; 20_000];
    let bytes = socket.recv(&mut said).unwrap();
    match icp::read(&said[..bytes]) {
        Ok(Message::Reply { answer, .. }) => answer,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_cache_that_does_not_know_yet_what_it_holds_is_not_to_be_fetched_through() {
    let origin = fresh_origin();
    let disk = SimulatedDisk::new("cache");
    let volume = VolumeSpec { disk: Arc::new(disk.beside("cache")), size_bytes: 64 << 20 };
    let options = StoreOptions { mode: Mode::Cache, ..StoreOptions::default() };
    let store = Arc::new(Store::create(vec![volume], options).unwrap());
    let url = format!("http://{}/a", origin.address);
    let before = Proxy::on(Arc::clone(&store), origin.address, "");
    before.get_url(&url, "");
    before.settled();
    store.flush().unwrap();
    let gate = Arc::new(Gate::default());
    let held = {
        let gate = Arc::clone(&gate);
        let wait = move |held: Held<'_>| {
            if held == Held::Learn {
                gate.wait();
            }
        };
        HeldDisk::new(disk.process_end(), wait)
    };
    let store = Arc::new(Store::open(vec![Arc::new(held)], OpenOptions::default()).unwrap());
    let after = Proxy::on(store, origin.address, &with_name("one", "cache.rebuild_wait_ms = 0"));
    let socket = asker(&after);
    assert_eq!(ask(&socket, "http://127.0.0.1:1/none"), Answer::MissNoFetch);
    gate.open();
    after.until("it knows what it holds", |after| after.server().shared().object_cache.store().usage().ready);
    assert_eq!(ask(&socket, "http://127.0.0.1:1/none"), Answer::Miss);
    assert_eq!(ask(&socket, &url), Answer::Hit, "what it held before");
    assert_eq!(answers(&after), [1, 1, 0, 1, 0]);
}

#[test]
fn a_parent_that_says_it_is_not_to_be_fetched_through_is_not_asked_while_there_is_another() {
    let origin = fresh_origin();
    let (first, second) = (named(&origin, "first", ""), named(&origin, "second", ""));
    let refuses = neighbour(|socket, from, number, url| say(socket, from, Answer::MissNoFetch, number, url));
    let misses = neighbour(|socket, from, number, url| say(socket, from, Answer::Miss, number, url));
    let (one, other) = (table("parent", first.forward, refuses), table("parent", second.forward, misses));
    let child =
        named(&origin, "child", &format!("parents.direct = false\nicp.timeout_ms = 10000\n{one}{other}"));
    let asked = |proxy: &Proxy| proxy.count(|counters| counters.origin_requests.get());
    assert_eq!(child.get_url(&format!("http://{}/a", origin.address), "").status, 200);
    assert_eq!((asked(&first), asked(&second)), (0, 1));
    child.reload(&with_name("child", &format!("parents.direct = false\n{one}")));
    assert_eq!(child.get_url(&format!("http://{}/b", origin.address), "").status, 200);
    assert_eq!((asked(&first), asked(&second)), (1, 1), "rather than nobody");
}

#[test]
fn what_varies_by_coding_is_offered_when_a_browser_would_hit() {
    let origin = Origin::new(|seen, _| {
        let age = if seen.target == "/stale" { 3 } else { 600 };
        reply(&format!("Vary: Accept-Encoding\r\nCache-Control: max-age={age}\r\n"), &seen.target)
    });
    let proxy = named(&origin, "one", "");
    let url = |path: &str| format!("http://{}{path}", origin.address);
    let rows = [
        ("/browser", "Accept-Encoding: gzip, deflate, br\r\n", Answer::Hit),
        ("/new", "Accept-Encoding: gzip, deflate, br, zstd\r\n", Answer::Hit),
        ("/plain", "", Answer::Hit),
        ("/tool", "Accept-Encoding: x-pack\r\n", Answer::Miss),
        ("/stale", "Accept-Encoding: gzip, deflate\r\n", Answer::Miss),
    ];
    let socket = asker(&proxy);
    for (path, fields, answer) in rows {
        proxy.get_url(&url(path), fields);
        proxy.settled();
        assert_eq!(ask(&socket, &url(path)), answer, "{path}");
    }
}

#[test]
fn the_log_says_who_gave_it() {
    let origin = fresh_origin();
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("log");
    let other = named(&origin, "other", "");
    let misses = neighbour(|socket, from, number, url| say(socket, from, Answer::Miss, number, url));
    let more = |text: String| {
        with_name("one", &format!("icp.timeout_ms = 10000\nlog.file = '{}'\n{text}", log.display()))
    };
    let one = Proxy::with(origin.address, &more(table_of("sibling", &other)));
    let (url, host) = (|path: &str| format!("http://{}{path}", origin.address), "127.0.0.1");
    other.get_url(&url("/a"), "");
    other.settled();
    // A reply is logged when its last byte has left, which may be after the client has it: each waits for the one before.
    let logs = |lines: usize| {
        one.until("it is written", |_| std::fs::read_to_string(&log).unwrap().lines().count() == lines);
    };
    one.get_url(&url("/a"), "");
    logs(1);
    one.get_url(&url("/b"), "");
    logs(2);
    one.settled();
    one.get_url(&url("/a"), "");
    let logged = |lines: usize| {
        logs(lines);
        let text = std::fs::read_to_string(&log).unwrap();
        // The last but one: then the type follows.
        let way = |line: &str| line.split(' ').nth_back(1).unwrap().to_owned();
        text.lines().map(way).collect::<Vec<_>>()
    };
    let expected = [format!("SIBLING_HIT/{host}"), format!("HIER_DIRECT/{host}"), "HIER_NONE/-".to_owned()];
    assert_eq!(logged(3), expected);
    // A parent that says it has it, and one that is just the first.
    other.get_url(&url("/c"), "");
    other.settled();
    one.reload(&more(table_of("parent", &other)));
    one.get_url(&url("/c"), "");
    logs(4);
    one.reload(&more(table("parent", other.forward, misses)));
    one.get_url(&url("/d"), "");
    assert_eq!(logged(5)[3..], [format!("PARENT_HIT/{host}"), format!("FIRSTUP_PARENT/{host}")]);
}

#[test]
fn questions_are_answered_by_rule_and_noise_with_silence() {
    let origin = fresh_origin();
    let proxy = named(&origin, "one", "access.hosts_denied = ['denied.example']\nforward.ports = []");
    let url = format!("http://{}/a", origin.address);
    proxy.get_url(&url, "");
    proxy.settled();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.connect(proxy.server().icp_address().unwrap()).unwrap();
    let noise: [&[u8]; 6] = [
        b"",
        b"x",
        &[0; 20],
        &[255; 9000],
        &icp::query(1, "http://a/").unwrap()[..30],
        &icp::reply(Answer::Hit, 1, b"http://a/").unwrap(),
    ];
    for datagram in noise {
        socket.send(datagram).unwrap();
    }
    let ask = |number: u32, url: &str| {
        let asked = icp::query(number, url).unwrap();
        socket.send(&asked).unwrap();
        let mut said = vec![0; 20_000];
        let bytes = socket.recv(&mut said).unwrap();
        assert!(bytes < asked.len());
        match icp::read(&said[..bytes]) {
            Ok(Message::Reply { answer, number: same, url: again }) if same == number => {
                assert_eq!(again, url.as_bytes());
                answer
            }
            other => panic!("{other:?}"),
        }
    };
    let rows = [
        (url.as_str(), Answer::Hit),
        ("http://127.0.0.1:1/none", Answer::Miss),
        ("http://www.denied.example/", Answer::Denied),
        ("ftp://a/", Answer::Err),
        ("/a", Answer::Err),
        ("", Answer::Err),
        ("http://a/ b", Answer::Err),
        ("http://name@a/", Answer::Err),
    ];
    for (number, (url, answer)) in rows.into_iter().enumerate() {
        assert_eq!(ask(number as u32, url), answer, "{url}");
    }
    assert_eq!(answers(&proxy), [1, 1, 5, 0, 1]);
    assert_eq!(proxy.count(|counters| counters.icp_malformed.get()), 5);
    assert_eq!(proxy.count(|counters| counters.icp_unexpected.get()), 1);
    // What is purged is not offered, and whoever may not ask hears nothing.
    let mut purge = Connection::new(proxy.forward);
    purge.send(format!("PURGE {url} HTTP/1.1\r\nHost: {}\r\n\r\n", origin.address));
    assert_eq!(purge.receive(false).unwrap().status, 200);
    assert_eq!(ask(100, &url), Answer::Miss);
    proxy.reload(&with_name("one", "icp.clients = ['10.0.0.0/8']"));
    socket.send(&icp::query(101, &url).unwrap()).unwrap();
    proxy.until("it is refused", |proxy| proxy.count(|counters| counters.icp_refused.get()) == 1);
    assert_eq!(answers(&proxy).iter().sum::<u64>(), 9);
}
