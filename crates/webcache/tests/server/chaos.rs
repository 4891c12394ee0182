//! Origins that hang up, lie about lengths, chunk wrongly, say too much or nothing.

use crate::harness::{Connection, Nobody, Origin, Proxy, Step, reply, send};

#[test]
fn whatever_an_origin_does_a_client_never_takes_a_broken_reply_for_a_whole_one_and_none_is_stored() {
    let head = "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\n";
    let origin = Origin::new(move |seen, _| {
        let with_head = |rest: &str| format!("{head}{rest}");
        match seen.target.as_str() {
            "/short" => {
                vec![Step::Send(with_head("Content-Length: 100\r\n\r\nonly this").into_bytes()), Step::Close]
            }
            "/reset" => {
                vec![Step::Send(with_head("Content-Length: 100\r\n\r\nonly").into_bytes()), Step::Reset]
            }
            "/chunk-cut" => vec![
                Step::Send(with_head("Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n").into_bytes()),
                Step::Close,
            ],
            "/chunk-bad" => send(with_head("Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nzz\r\n")),
            "/two-lengths" => send(with_head("Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello")),
            "/nothing" => vec![Step::Close],
            "/no-http" => send("SSH-2.0-OpenSSH_9.2\r\n"),
            "/half-head" => vec![Step::Send(b"HTTP/1.1 200 OK\r\nCache-Con".to_vec()), Step::Close],
            "/folded" => send(with_head("X: a\r\n b\r\nContent-Length: 5\r\n\r\nhello")),
            "/huge-head" => {
                send(with_head(&format!("X: {}\r\nContent-Length: 5\r\n\r\nhello", "x".repeat(300_000))))
            }
            _ => reply("", "fine"),
        }
    });
    let proxy = Proxy::new(&origin);
    let paths = [
        "/short",
        "/reset",
        "/chunk-cut",
        "/chunk-bad",
        "/two-lengths",
        "/nothing",
        "/no-http",
        "/half-head",
        "/folded",
        "/huge-head",
    ];
    for path in paths {
        for _ in 0..2 {
            let mut connection = Connection::new(proxy.reverse);
            connection.send(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
            if let Some(got) = connection.receive(false) {
                assert!(got.status >= 500 || !got.whole, "{path}: {got:?}");
                assert!(!got.is_hit(), "{path}");
            }
        }
        assert_eq!(proxy.get("/fine").text(), "fine", "after {path}");
    }
    proxy.settled();
    assert_eq!(proxy.count(|counters| counters.stored_objects.get()), 0);
}

#[test]
fn interim_replies_and_bodies_until_the_end_of_the_connection_are_understood() {
    let origin = Origin::new(|seen, _| match seen.target.as_str() {
        "/interim" => send(
            "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\n\
             Content-Length: 5\r\n\r\nhello",
        ),
        _ => vec![
            Step::Send(b"HTTP/1.0 200 OK\r\nCache-Control: max-age=60\r\n\r\nhello".to_vec()),
            Step::Close,
        ],
    });
    let proxy = Proxy::new(&origin);
    for path in ["/interim", "/until-close"] {
        assert_eq!(proxy.get(path).text(), "hello", "{path}");
        proxy.settled();
        let hit = proxy.get(path);
        assert_eq!(
            (hit.text().as_str(), hit.is_hit(), hit.field("content-length")),
            ("hello", true, Some("5")),
            "{path}"
        );
    }
}

#[test]
fn a_kept_connection_that_the_origin_closed_meanwhile_costs_the_client_nothing() {
    let origin = Origin::new(|_, number| {
        let mut steps = reply("Cache-Control: no-store\r\n", number.to_string());
        if number % 2 == 0 {
            steps.push(Step::Close);
        }
        steps
    });
    let proxy = Proxy::new(&origin);
    for _ in 0..20 {
        assert_eq!(proxy.get("/").status, 200);
    }
}

#[test]
fn an_origin_that_is_down_is_left_out_for_another() {
    let origin = Origin::new(|_, _| reply("Cache-Control: no-store\r\n", "from the one that lives"));
    let nobody = Nobody::new();
    let dead = nobody.address;
    let more =
        format!("[[site]]\nhosts = ['two']\norigins = ['http://{dead}', 'http://{}']\n", origin.address);
    let flags_first = format!("{more}[[site]]\nhosts = ['dead']\norigins = ['http://{dead}']\n");
    let proxy = Proxy::with(origin.address, "");
    let config = "forward.listen = ['127.0.0.1:0']\nreverse.listen = ['127.0.0.1:0']\nproxy.loops = 2\n\
                  cache.directories = ['unused']\n";
    let config = webcache::config::read(&flags_first, config.parse().unwrap()).unwrap();
    proxy.server().reload(config).unwrap();
    for _ in 0..6 {
        let mut connection = Connection::new(proxy.reverse);
        connection.send("GET / HTTP/1.1\r\nHost: two\r\n\r\n");
        assert_eq!(connection.receive(false).unwrap().text(), "from the one that lives");
    }
    let mut connection = Connection::new(proxy.reverse);
    connection.send("GET / HTTP/1.1\r\nHost: dead\r\n\r\n");
    assert_eq!(connection.receive(false).unwrap().status, 502);
    let mut connection = Connection::new(proxy.reverse);
    connection.send("GET / HTTP/1.1\r\nHost: unknown\r\n\r\n");
    assert_eq!(connection.receive(false).unwrap().status, 421);
}

#[test]
fn a_reply_that_ends_in_two_places_or_in_another_protocol_is_refused_and_its_connection_used_no_more() {
    let rows = [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nhello",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n",
    ];
    let origin = Origin::new(move |seen, _| match seen.target.trim_start_matches('/').parse::<usize>() {
        Ok(number) => send(rows[number]),
        Err(_) => reply("Cache-Control: max-age=60\r\n", "fine"),
    });
    let proxy = Proxy::new(&origin);
    for (number, row) in rows.iter().enumerate() {
        let got = proxy.get(&format!("/{number}"));
        assert_eq!(got.status, 502, "{row:?}: {got:?}");
        assert_eq!(proxy.get("/fine").text(), "fine", "after {row:?}");
    }
}
