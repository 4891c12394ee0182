//! Forward mode: whole URLs, CONNECT, parents, and what access forbids.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;

use crate::harness::{Connection, Nobody, Origin, Proxy, Step, reply};

/// By CONNECT, to a port of this machine.
fn tunnel(proxy: &Proxy, port: u16) -> Connection {
    let mut tunnel = Connection::new(proxy.forward);
    tunnel.send(format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: a\r\n\r\n"));
    assert_eq!(tunnel.receive_head().unwrap().0, 200);
    tunnel
}

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
    for (target, status) in [("127.0.0.1:22", 403), ("127.0.0.1", 400), ("127.0.0.1[]:443", 400)] {
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
        ("GET http://example.org./ HTTP/1.1\r\nHost: a\r\n\r\n", 403),
        ("GET http://127.0.0.1:81/ HTTP/1.1\r\nHost: a\r\n\r\n", 403),
        ("POST http://127.0.0.1/ HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", 405),
        ("GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n", 501),
        ("GET http://user@a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        ("GET http://a:80;/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
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

#[test]
fn a_tunnel_counts_as_its_client_s_connection() {
    let echo = Origin::new(|_, _| vec![Step::Echo]);
    let port = echo.address.port();
    let more = format!("[forward]\nconnect_ports = [{port}]\n[limits]\nconnections_per_client = 1\n");
    let proxy = Proxy::with(echo.address, &more);
    let mut tunnel = tunnel(&proxy, port);
    // Its connection is a tunnel by now, and no HTTP connection any more.
    tunnel.send("GET / HTTP/1.1\r\nHost: a\r\n\r\nhello");
    assert_eq!(tunnel.receive_bytes(5), b"hello");
    proxy.until("the tunnel's connection is HTTP no more", |proxy| {
        proxy.count(|counters| counters.connections_ended.get()) == 1
    });
    drop(Connection::new(proxy.forward));
    proxy.until("one too many has been refused", |proxy| {
        proxy.count(|counters| counters.connections_refused.get() + counters.connections_accepted.get()) == 2
    });
    assert_eq!(proxy.count(|counters| counters.connections_refused.get()), 1);
    drop(tunnel);
    proxy.until("the tunnel has ended", |proxy| proxy.server().shared().clients.count() == 0);
    let mut again = Connection::new(proxy.forward);
    again.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(again.receive(false).unwrap().status, 400);
}

/// Symptom: a download through a tunnel breaks off when the client pauses. Cause: the time that a client may take to read
/// a reply was kept in tunnels too. Fix: they have `tunnel_idle_s` alone.
#[test]
fn a_client_that_pauses_is_cut_off_in_a_reply_and_not_in_a_tunnel() {
    let origin = Origin::new(|_, _| reply("Cache-Control: no-store\r\n", vec![b'x'; 32 << 20]));
    let port = origin.address.port();
    let more = format!("[forward]\nconnect_ports = [{port}]\n[limits]\nstall_s = 1\n");
    let proxy = Proxy::with(origin.address, &more);
    let mut tunnel = tunnel(&proxy, port);
    tunnel.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(tunnel.receive_head().unwrap().0, 200);
    let mut plain = Connection::new(proxy.reverse);
    plain.send("GET / HTTP/1.1\r\nHost: site\r\n\r\n");
    assert_eq!(plain.receive_head().unwrap().0, 200);
    proxy.until("the one that reads a reply is cut off", |proxy| {
        proxy.count(|counters| counters.connections_ended.get()) > 1
    });
    assert_eq!(tunnel.receive_bytes(32 << 20).len(), 32 << 20);
}

#[test]
fn a_tunnel_through_which_nothing_comes_ends() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let more = format!("[forward]\nconnect_ports = [{port}]\n[limits]\ntunnel_idle_s = 1\n");
    let origin = Origin::new(|_, _| reply("", "x"));
    let proxy = Proxy::with(origin.address, &more);
    let mut tunnel = tunnel(&proxy, port);
    let (mut held, _) = silent.accept().unwrap();
    assert!(tunnel.has_ended(), "after a second");
    assert_eq!(held.read(&mut [0]).unwrap_or(0), 0, "at the other end too");
}

#[test]
fn the_proxy_s_own_addresses_are_not_reached_through_it_by_whatever_name() {
    let origin = Origin::new(|_, _| reply("", "from the origin"));
    let proxy = Proxy::with(origin.address, "[admin]\nlisten = '127.0.0.1:0'\n");
    let admin = proxy.server().admin_address().unwrap().port();
    proxy.reload(&format!("[admin]\nlisten = '127.0.0.1:0'\n[forward]\nconnect_ports = [{admin}]\n"));
    let asks = [
        format!("POST http://127.0.0.1:{admin}/ban?prefix=http://site/"),
        format!("POST http://localhost:{admin}/ban?prefix=http://site/"),
        format!("GET http://127.0.0.2:{admin}/metrics"),
        format!("GET http://0.0.0.0:{admin}/metrics"),
        format!("GET http://[::ffff:127.0.0.1]:{admin}/metrics"),
        format!("GET http://127.0.0.1:{}/", proxy.forward.port()),
        format!("GET http://127.0.0.1:{}/", proxy.reverse.port()),
    ];
    for ask in asks {
        let mut connection = Connection::new(proxy.forward);
        connection
            .send(format!("{ask} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"));
        let status = connection.receive(false).unwrap().status;
        // Nobody listens at the second loopback address.
        assert_eq!(status, if ask.contains("127.0.0.2") { 502 } else { 403 }, "{ask}");
    }
    let mut tunnel = Connection::new(proxy.forward);
    tunnel.send(format!("CONNECT 127.0.0.1:{admin} HTTP/1.1\r\nHost: a\r\n\r\n"));
    assert_eq!(tunnel.receive(false).unwrap().status, 403);
    assert_eq!(proxy.server().shared().bans.count(), 0);
    assert!(origin.seen().is_empty());
    // Others on this machine are, also at the same port of another of its addresses.
    let other = TcpListener::bind(("127.0.0.2", proxy.forward.port())).unwrap();
    let place = other.local_addr().unwrap();
    let served = std::thread::spawn(move || {
        let (mut stream, _) = other.accept().unwrap();
        assert!(stream.read(&mut [0; 1000]).is_ok_and(|bytes| bytes > 0));
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\nfrom the origin").unwrap();
    });
    for address in [origin.address, place] {
        let mut connection = Connection::new(proxy.forward);
        connection.send(format!("GET http://{address}/ HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(connection.receive(false).unwrap().text(), "from the origin", "{address}");
    }
    served.join().unwrap();
}

#[test]
fn what_a_site_answers_to_a_made_up_host_is_no_answer_of_that_host() {
    let site = Origin::new(|_, _| reply("Cache-Control: max-age=600\r\n", "from the site"));
    let other = Origin::new(|_, _| reply("Cache-Control: max-age=600\r\n", "from the other"));
    let proxy = Proxy::new(&site);
    let ask = |address, target: &str| {
        let mut connection = Connection::new(address);
        connection.send(format!("GET {target} HTTP/1.1\r\nHost: {}\r\n\r\n", other.address));
        let text = connection.receive(false).unwrap().text();
        proxy.settled();
        text
    };
    let url = format!("http://{}/", other.address);
    assert_eq!(ask(proxy.reverse, "/"), "from the site");
    assert_eq!(ask(proxy.forward, &url), "from the other");
    assert_eq!(ask(proxy.reverse, "/"), "from the site", "nor the other way round");
    assert_eq!((site.seen().len(), other.seen().len()), (1, 1));
}

#[test]
fn a_password_for_a_proxy_goes_to_parents_and_to_no_origin() {
    let origin = Origin::new(|_, _| reply("Cache-Control: no-store\r\n", "x"));
    let parent = Origin::new(|_, _| reply("Cache-Control: no-store\r\n", "x"));
    let dead = Nobody::new();
    let has_it = |seen: &Origin| seen.seen().last().unwrap().field("proxy-authorization").is_some();
    let ask = |address, target: &str| {
        let mut connection = Connection::new(address);
        connection
            .send(format!("GET {target} HTTP/1.1\r\nHost: a\r\nProxy-Authorization: Basic eDp5\r\n\r\n"));
        assert_eq!(connection.receive(false).unwrap().status, 200);
    };
    let url = format!("http://{}/", origin.address);
    for (parent, to_parent) in [(parent.address, true), (dead.address, false)] {
        let more = format!("[parents]\ndirect = true\n[[parent]]\naddress = '{parent}'\n");
        let proxy = Proxy::with(origin.address, &more);
        ask(proxy.forward, &url);
        assert_eq!(origin.seen().is_empty(), to_parent);
        ask(proxy.reverse, "/");
        assert!(!has_it(&origin), "from the reverse side");
        if !to_parent {
            assert!(origin.seen().iter().all(|seen| seen.field("proxy-authorization").is_none()));
        }
        origin.forget();
    }
    assert!(has_it(&parent));
}

#[test]
fn a_websocket_is_carried_where_that_is_allowed_and_asked_for_nowhere_else() {
    let origin = Origin::new(|seen, _| match seen.field("upgrade") {
        // Text that is no HTTP, both ways.
        Some("websocket") if seen.target == "/ws" => {
            let head = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\nX: y\r\n\r\n";
            vec![Step::Send([head.as_bytes(), b"\0hello"].concat()), Step::Echo]
        }
        Some(_) => reply("", "asked in vain"),
        None => reply("", "not asked"),
    });
    let request = |target: &str, protocol: &str| {
        format!("GET {target} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: {protocol}\r\n\r\n")
    };
    let proxy = Proxy::with(origin.address, "[access]\nupgrades = ['websocket']\n");
    for (address, target) in
        [(proxy.reverse, "/ws".to_owned()), (proxy.forward, format!("http://{}/ws", origin.address))]
    {
        let mut socket = Connection::new(address);
        socket.send(request(&target, "websocket"));
        let (status, fields) = socket.receive_head().unwrap();
        let field = |name: &str| fields.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
        assert_eq!((status, field("upgrade"), field("x")), (101, Some("websocket"), Some("y")));
        assert_eq!(socket.receive_bytes(6), b"\0hello");
        for text in ["\x01\r\nGET / HTTP/1.1\r\n\r\n", "x"] {
            socket.send(text);
            assert_eq!(socket.receive_bytes(text.len()), text.as_bytes());
        }
    }
    let ask = |proxy: &Proxy, target: &str, protocol: &str| {
        let mut connection = Connection::new(proxy.reverse);
        connection.send(request(target, protocol));
        connection.receive(false).unwrap().text()
    };
    assert_eq!(ask(&proxy, "/", "websocket"), "asked in vain", "the origin answers as if it were no upgrade");
    assert_eq!(ask(&proxy, "/ws", "h2c"), "not asked");
    let proxy = Proxy::new(&origin);
    assert_eq!(ask(&proxy, "/ws", "websocket"), "not asked", "by default");
}

#[test]
fn an_origin_that_switches_to_a_protocol_that_was_not_asked_for_is_answered_502() {
    let origin = Origin::new(|seen, _| {
        let names = seen.target.trim_start_matches('/');
        let lines: String = names.split('+').map(|name| format!("Upgrade: {name}\r\n")).collect();
        let head = format!("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n{lines}\r\n");
        vec![Step::Send(head.into_bytes()), Step::Echo]
    });
    let proxy = Proxy::with(origin.address, "[access]\nupgrades = ['websocket']\n");
    for (names, status) in
        [("evil", 502), ("websocket+evil", 502), ("websocket,evil", 502), ("WebSocket", 101)]
    {
        let mut socket = Connection::new(proxy.reverse);
        socket.send(format!(
            "GET /{names} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        ));
        assert_eq!(socket.receive_head().unwrap().0, status, "{names}");
    }
}
