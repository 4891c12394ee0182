//! Forward mode: whole URLs, CONNECT, parents, and what access forbids.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use crate::harness::{Connection, Origin, Proxy, reply};

#[test]
fn connect_reaches_allowed_ports_and_carries_bytes_both_ways() {
    let echo = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = echo.local_addr().unwrap().port();
    let served = std::thread::spawn(move || {
        let (mut stream, _) = echo.accept().unwrap();
        let mut text = [0; 5];
        stream.read_exact(&mut text).unwrap();
        stream.write_all(&text.map(|byte| byte.to_ascii_uppercase())).unwrap();
    });
    let origin = Origin::new(|_, _| reply("", "x"));
    let proxy = Proxy::with(origin.address, &format!("[forward]\nconnect_ports = [{port}]\n"));
    let mut tunnel = Connection::new(proxy.forward);
    tunnel.send(format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n"));
    assert_eq!(tunnel.receive_head().unwrap().0, 200);
    tunnel.send("hello");
    assert_eq!(tunnel.receive_bytes(5), b"HELLO");
    served.join().unwrap();
    for (target, status) in [("127.0.0.1:22", 403), ("127.0.0.1", 400)] {
        let mut refused = Connection::new(proxy.forward);
        refused.send(format!("CONNECT {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(refused.receive(false).unwrap().status, status, "{target}");
        assert!(refused.has_ended(), "what follows is no HTTP");
    }
}

#[test]
fn whole_urls_are_fetched_from_their_own_host_and_lie_beside_no_other() {
    let one = Origin::new(|seen, _| {
        reply("Cache-Control: max-age=60\r\n", format!("one {}", seen.field("host").unwrap()))
    });
    let two = Origin::new(|_, _| reply("Cache-Control: max-age=60\r\n", "two"));
    let proxy = Proxy::new(&one);
    for (origin, is_hit) in [(&one, false), (&two, false), (&one, true), (&two, true)] {
        let mut connection = Connection::new(proxy.forward);
        // Host says something else: the target counts (RFC 9112 section 3.2.2).
        connection.send(format!("GET http://{}/ HTTP/1.1\r\nHost: other\r\n\r\n", origin.address));
        let got = connection.receive(false).unwrap();
        let text =
            if origin.address == one.address { format!("one {}", one.address) } else { "two".to_owned() };
        assert_eq!((got.text(), got.is_hit()), (text, is_hit));
        proxy.settled();
    }
    let mut lost = Connection::new(proxy.forward);
    lost.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(lost.receive(false).unwrap().status, 400);
}

#[test]
fn hosts_ports_and_methods_that_are_not_served_get_403_and_405() {
    let origin = Origin::new(|_, _| reply("", "x"));
    let more = "[access]\nhosts_denied = ['example.org']\nmethods = ['GET']\n[forward]\nports = [80]\n";
    let proxy = Proxy::with(origin.address, more);
    let rows = [
        ("GET http://example.org/ HTTP/1.1\r\nHost: a\r\n\r\n", 403),
        ("GET http://WWW.example.org/ HTTP/1.1\r\nHost: a\r\n\r\n", 403),
        ("GET http://127.0.0.1:81/ HTTP/1.1\r\nHost: a\r\n\r\n", 403),
        ("POST http://127.0.0.1/ HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", 405),
        ("GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n", 501),
        ("GET http://user@a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
    ];
    for (request, status) in rows {
        let mut connection = Connection::new(proxy.forward);
        connection.send(request);
        assert_eq!(connection.receive(false).unwrap().status, status, "{request}");
    }
}

#[test]
fn a_url_is_asked_of_one_parent_and_of_another_only_when_that_one_is_gone() {
    let origin = Origin::new(|_, _| reply("Cache-Control: max-age=60\r\n", "from the origin"));
    let parents = [
        Proxy::with(origin.address, "[proxy]\nname = \"parent-a\"\n"),
        Proxy::with(origin.address, "[proxy]\nname = \"parent-b\"\n"),
    ];
    let more = format!(
        "[parents]\nchoose = 'hash'\ndirect = false\n[[parent]]\naddress = '{}'\n[[parent]]\naddress = '{}'\n",
        parents[0].forward, parents[1].forward
    );
    let child = Proxy::with(origin.address, &more);
    let ask = |number: usize| {
        let mut connection = Connection::new(child.forward);
        connection.send(format!("GET http://{}/{number} HTTP/1.1\r\nHost: a\r\n\r\n", origin.address));
        connection.receive(false).unwrap()
    };
    for number in 0..40 {
        assert_eq!(ask(number).text(), "from the origin");
    }
    let asked = |parent: &Proxy| parent.count(|counters| counters.origin_requests.get());
    let shares = parents.each_ref().map(asked);
    assert_eq!(shares.iter().sum::<u64>(), 40);
    assert!(shares.iter().all(|share| *share > 4), "{shares:?}");
    let [first, second] = parents;
    drop(first);
    for number in 40..60 {
        assert_eq!(ask(number).text(), "from the origin", "{number}");
    }
    assert_eq!(asked(&second), shares[1] + 20);
}
