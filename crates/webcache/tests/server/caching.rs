//! What is stored, served, validated and thrown away, over sockets.

use std::sync::Arc;

use crate::harness::{Connection, Gate, Origin, Proxy, Step, reply, send};

#[test]
fn what_varies_is_kept_once_for_each_kind_of_request_and_purged_as_one() {
    let origin = Origin::new(|seen, _| {
        let language = seen.field("accept-language").unwrap_or("none").to_owned();
        reply("Cache-Control: max-age=60\r\nVary: Accept-Language\r\n", language)
    });
    let proxy = Proxy::new(&origin);
    for round in 0..2 {
        for language in ["de", "en", "fr"] {
            let got = proxy.ask("GET", "/", &format!("Accept-Language: {language}\r\n"));
            assert_eq!((got.text().as_str(), got.is_hit()), (language, round == 1), "{got:?}");
            proxy.settled();
        }
    }
    assert_eq!(proxy.ask("PURGE", "/", "").status, 200);
    assert!(!proxy.ask("GET", "/", "Accept-Language: de\r\n").is_hit());
    assert_eq!(origin.seen().len(), 4);
}

#[test]
fn a_304_refreshes_what_is_stored_and_the_client_gets_the_whole_reply_with_the_new_fields() {
    let origin = Origin::new(|seen, number| match seen.field("if-none-match") {
        Some("\"v1\"") => send(format!(
            "HTTP/1.1 304 Not Modified\r\nETag: \"v1\"\r\nCache-Control: max-age=60\r\nX-Round: {number}\r\n\r\n"
        )),
        _ => reply(&format!("ETag: \"v1\"\r\nCache-Control: no-cache\r\nX-Round: {number}\r\n"), "hello"),
    });
    let proxy = Proxy::new(&origin);
    assert!(!proxy.get("/").is_hit());
    proxy.settled();
    let validated = proxy.get("/");
    assert_eq!((validated.status, validated.text().as_str()), (200, "hello"));
    assert_eq!(validated.field("x-round"), Some("1"));
    assert!(validated.field("cache-status").unwrap().contains("fwd-status=304"), "{validated:?}");
    let hit = proxy.get("/");
    assert_eq!((hit.text().as_str(), hit.field("x-round"), hit.is_hit()), ("hello", Some("1"), true));
    assert_eq!(origin.seen().len(), 2, "the third came from the store");
}

#[test]
fn a_long_reply_is_refreshed_too() {
    let body = vec![b'x'; 900_000];
    let whole = body.clone();
    let origin = Origin::new(move |seen, _| match seen.field("if-none-match") {
        Some(_) => send("HTTP/1.1 304 Not Modified\r\nCache-Control: max-age=60\r\n\r\n"),
        None => reply("ETag: \"v1\"\r\nCache-Control: no-cache\r\n", &whole),
    });
    let proxy = Proxy::new(&origin);
    proxy.get("/");
    proxy.settled();
    assert!(proxy.get("/").body == body);
    proxy.until("the copy with the new head is there", |proxy| {
        let got = proxy.get("/");
        got.body == body && got.field("cache-status").unwrap().contains("hit")
    });
}

#[test]
fn stale_replies_are_served_while_they_are_fetched_and_in_place_of_errors() {
    let origin = Origin::new(|seen, number| match (seen.target.as_str(), number) {
        ("/swr", 0) => reply("Cache-Control: max-age=0, stale-while-revalidate=60\r\nETag: \"1\"\r\n", "old"),
        ("/swr", _) => reply("Cache-Control: max-age=60\r\nETag: \"2\"\r\n", "new"),
        (_, number) if number % 2 == 0 => {
            reply("Cache-Control: max-age=0, stale-if-error=60\r\n", "still there")
        }
        _ => send("HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n"),
    });
    let proxy = Proxy::new(&origin);
    proxy.get("/swr");
    proxy.settled();
    assert_eq!(proxy.get("/swr").text(), "old");
    proxy.until("the new one is there", |proxy| proxy.get("/swr").text() == "new");
    assert_eq!(origin.seen().len(), 2, "in the background it is fetched once");
    proxy.get("/sie");
    proxy.settled();
    let stale = proxy.get("/sie");
    assert_eq!((stale.status, stale.text().as_str()), (200, "still there"));
    assert!(stale.field("cache-status").unwrap().contains("origin error"), "{stale:?}");
}

#[test]
fn a_post_makes_the_proxy_forget_what_it_has_of_the_target_and_what_the_reply_names() {
    let origin = Origin::new(|seen, _| match seen.method.as_str() {
        "POST" => reply("Location: /other\r\n", &seen.body),
        _ => reply("Cache-Control: max-age=60\r\n", "hello"),
    });
    let proxy = Proxy::new(&origin);
    for path in ["/", "/other", "/third"] {
        proxy.get(path);
        proxy.settled();
        assert!(proxy.get(path).is_hit());
    }
    let mut connection = Connection::new(proxy.reverse);
    connection
        .send("POST / HTTP/1.1\r\nHost: site\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n");
    assert_eq!(connection.receive(false).unwrap().text(), "abc", "the body came through");
    assert_eq!(
        [proxy.get("/").is_hit(), proxy.get("/other").is_hit(), proxy.get("/third").is_hit()],
        [false, false, true]
    );
}

#[test]
fn ranges_conditions_and_heads_are_answered_from_the_store() {
    let origin = Origin::new(|_, _| {
        reply("Cache-Control: max-age=60\r\nETag: \"v\"\r\nContent-Type: text/x\r\n", "0123456789")
    });
    let proxy = Proxy::new(&origin);
    proxy.get("/");
    proxy.settled();
    let rows = [
        ("GET", "Range: bytes=2-4\r\n", 206, "234"),
        ("GET", "Range: bytes=-3\r\n", 206, "789"),
        ("GET", "Range: bytes=99-\r\n", 416, ""),
        ("GET", "Range: bytes=2-4\r\nIf-Range: \"other\"\r\n", 200, "0123456789"),
        ("GET", "If-None-Match: \"v\"\r\n", 304, ""),
        ("HEAD", "", 200, ""),
    ];
    for (method, fields, status, body) in rows {
        let got = proxy.ask(method, "/", fields);
        assert_eq!((got.status, got.text().as_str()), (status, body), "{method} {fields}");
        assert!(got.is_hit(), "{method} {fields}");
    }
    let several = proxy.ask("GET", "/", "Range: bytes=0-1,8-9\r\n");
    assert_eq!(several.status, 206);
    assert!(several.field("content-type").unwrap().starts_with("multipart/byteranges; boundary="));
    assert_eq!(several.text().matches("Content-Range: bytes").count(), 2, "{}", several.text());
    assert_eq!(proxy.ask("HEAD", "/", "").field("content-length"), Some("10"));
    assert_eq!(origin.seen().len(), 1);
}

#[test]
fn a_part_is_kept_as_the_part_it_is() {
    let origin = Origin::new(|seen, _| match seen.field("range") {
        Some("bytes=2-4") => send(
            "HTTP/1.1 206 Partial Content\r\nETag: \"v\"\r\nCache-Control: max-age=60\r\nContent-Range: bytes 2-4/10\r\n\
             Content-Length: 3\r\n\r\n234",
        ),
        _ => reply("ETag: \"v\"\r\nCache-Control: max-age=60\r\n", "0123456789"),
    });
    let proxy = Proxy::new(&origin);
    proxy.ask("GET", "/", "Range: bytes=2-4\r\n");
    proxy.until("the part is stored", |proxy| proxy.count(|counters| counters.stored_objects.get()) == 1);
    let part = proxy.ask("GET", "/", "Range: bytes=3-4\r\n");
    assert_eq!((part.status, part.text().as_str(), part.is_hit()), (206, "34", true));
    let whole = proxy.get("/");
    assert_eq!((whole.status, whole.text().as_str(), whole.is_hit()), (200, "0123456789", false));
}

#[test]
fn only_if_cached_loops_and_forbidden_methods_never_reach_the_origin() {
    let origin = Origin::new(|_, _| reply("", "no"));
    let proxy = Proxy::with(origin.address, "proxy.name = 'crumb'");
    assert_eq!(proxy.ask("GET", "/", "Cache-Control: only-if-cached\r\n").status, 504);
    assert_eq!(proxy.ask("GET", "/", "Via: 1.1 crumb\r\n").status, 508);
    assert_eq!(proxy.ask("TRACE", "/", "").status, 405);
    assert_eq!(proxy.ask("OPTIONS", "/", "Max-Forwards: 0\r\n").status, 200);
    assert!(origin.seen().is_empty());
}

#[test]
fn cookies_and_private_replies_are_not_given_to_others() {
    let origin = Origin::new(|seen, number| match seen.target.as_str() {
        "/cookie" => reply("Cache-Control: max-age=60\r\nSet-Cookie: a=b\r\n", number.to_string()),
        _ => reply("Cache-Control: private, max-age=60\r\n", number.to_string()),
    });
    let proxy = Proxy::new(&origin);
    for path in ["/cookie", "/private"] {
        let (first, second) = (proxy.get(path), proxy.get(path));
        assert!(!first.is_hit() && !second.is_hit() && first.body != second.body, "{path}");
    }
}

#[test]
fn hop_by_hop_fields_end_here_in_both_directions() {
    let origin = Origin::new(|_, _| {
        reply(
            "Connection: X-Secret, keep-alive\r\nX-Secret: 1\r\nKeep-Alive: timeout=5\r\nCache-Control: max-age=60\r\n",
            "x",
        )
    });
    let proxy = Proxy::new(&origin);
    let fields = "Connection: X-Mine\r\nX-Mine: 1\r\nTE: trailers\r\nUpgrade: h2c\r\nX-Other: 2\r\n";
    let mut connection = Connection::new(proxy.reverse);
    connection.send(format!("GET / HTTP/1.1\r\nHost: site\r\n{fields}\r\n"));
    let got = connection.receive(false).unwrap();
    assert_eq!((got.field("x-secret"), got.field("keep-alive")), (None, None), "{got:?}");
    let seen = &origin.seen()[0];
    assert_eq!([seen.field("x-mine"), seen.field("te"), seen.field("upgrade")], [None; 3], "{seen:?}");
    assert_eq!(seen.field("x-other"), Some("2"));
    assert!(seen.field("via").unwrap().starts_with("1.1 crumb-"), "{seen:?}");
    assert_eq!(seen.field("x-forwarded-for"), Some("127.0.0.1"));
    proxy.settled();
    let hit = proxy.get("/");
    assert_eq!((hit.is_hit(), hit.field("x-secret")), (true, None));
    assert!(hit.field("age").is_some(), "{hit:?}");
}

#[test]
fn what_is_purged_while_it_comes_is_not_found_afterwards() {
    let gate = Arc::new(Gate::default());
    let held = Arc::clone(&gate);
    let origin = Origin::new(move |_, number| match number {
        0 => vec![
            Step::Send(b"HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: 3\r\n\r\n".to_vec()),
            Step::Wait(Arc::clone(&held)),
            Step::Send(b"old".to_vec()),
        ],
        _ => reply("Cache-Control: max-age=60\r\n", "new"),
    });
    let proxy = Proxy::new(&origin);
    let mut first = Connection::new(proxy.reverse);
    first.send("GET / HTTP/1.1\r\nHost: site\r\n\r\n");
    assert_eq!(first.receive_head().unwrap().0, 200);
    proxy.ask("PURGE", "/", "");
    gate.open();
    assert_eq!(first.receive_bytes(3), b"old", "who had asked before gets it");
    assert_eq!(proxy.get("/").text(), "new");
}

#[test]
fn several_long_ranges_come_from_the_store_a_piece_at_a_time() {
    let whole: Vec<u8> = (0..24_u32 << 20).map(|at| (at * 13 % 241) as u8).collect();
    let sent = whole.clone();
    let origin = Origin::new(move |_, _| {
        reply("Cache-Control: max-age=60\r\nETag: \"1\"\r\nContent-Type: a/b\r\n", &sent)
    });
    let proxy = Proxy::new(&origin);
    assert!(proxy.get("/").body == whole);
    proxy.settled();
    let got = proxy.ask("GET", "/", "Range: bytes=1000-9999999, 12000000-21999999, -10\r\n");
    assert_eq!((got.status, got.whole), (206, true));
    let boundary =
        got.field("content-type").unwrap().strip_prefix("multipart/byteranges; boundary=").unwrap();
    let mut wanted = Vec::new();
    let total = whole.len();
    for (first, end) in [(1000, 10_000_000), (12_000_000, 22_000_000), (total - 10, total)] {
        let head = format!(
            "\r\n--{boundary}\r\nContent-Type: a/b\r\nContent-Range: bytes {first}-{}/{total}\r\n\r\n",
            end - 1
        );
        wanted.extend_from_slice(head.as_bytes());
        wanted.extend_from_slice(&whole[first..end]);
    }
    wanted.extend_from_slice(format!("\r\n--{boundary}--\r\n").as_bytes());
    assert!(got.body == wanted, "{} bytes", got.body.len());
}

/// Symptom: a reply to a GET with a body was stored and served to all. Cause: only the method was looked at. Fix: a body makes
/// it a request of its own, which nothing is stored of and nothing stored answers.
#[test]
fn a_get_with_a_body_is_answered_by_the_origin_alone_and_leaves_nothing_behind() {
    let origin = Origin::new(|seen, _| {
        let poison = if seen.body.is_empty() { "clean" } else { "poison" };
        reply("Cache-Control: max-age=60\r\nETag: \"a\"\r\n", if seen.method == "HEAD" { "" } else { poison })
    });
    let proxy = Proxy::new(&origin);
    let with_body = |method: &str, path: &str| {
        let got = proxy.ask(method, path, "Content-Length: 1\r\n\r\nx");
        proxy.settled();
        got
    };
    let chunked = "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n";
    for path in ["/fat", "/chunked"] {
        let got = match path {
            "/fat" => with_body("GET", path),
            _ => proxy.ask("GET", path, chunked),
        };
        assert_eq!((got.text().as_str(), got.is_hit()), ("poison", false), "{path}");
        assert!(got.field("cache-status").unwrap().contains("fwd=bypass"), "{got:?}");
        assert!(!got.field("cache-status").unwrap().contains("stored"), "{got:?}");
        proxy.settled();
        let got = proxy.get(path);
        assert_eq!((got.text().as_str(), got.is_hit()), ("clean", false), "{path}");
        proxy.settled();
    }
    assert_eq!(with_body("GET", "/fat").text(), "poison", "what is stored is no answer to it");
    // Its length is not that of the stored reply: said without a body, this HEAD would take that out.
    with_body("HEAD", "/fat");
    let got = proxy.get("/fat");
    assert_eq!((got.text().as_str(), got.is_hit()), ("clean", true));
    assert!(proxy.ask("GET", "/fat", "Content-Length: 0\r\n").is_hit(), "an empty body is none");
}

#[test]
fn x_forwarded_for_is_what_the_operator_wants_of_it() {
    let origin = Origin::new(|_, _| reply("Cache-Control: no-store\r\n", "x"));
    let proxy = Proxy::new(&origin);
    for (how, seen) in [
        ("append", &["10.9.8.7", "127.0.0.1"][..]),
        ("replace", &["127.0.0.1"]),
        ("keep", &["10.9.8.7"]),
        ("remove", &[]),
    ] {
        assert!(proxy.reload(&format!("reverse.x_forwarded_for = '{how}'")).is_empty(), "it counts at once");
        origin.forget();
        proxy.ask("GET", "/", "X-Forwarded-For: 10.9.8.7\r\n");
        let fields = origin.seen().remove(0).fields;
        let told: Vec<_> = fields.iter().filter(|(name, _)| name == "x-forwarded-for").collect();
        assert_eq!(told.iter().map(|(_, value)| value.as_str()).collect::<Vec<_>>(), seen, "{how}");
    }
}

/// Symptom: two proxies in a row, both as they come, answered 508. Cause: both were called `crumb` in Via. Fix: each start makes
/// a name for itself, which is found again when a request really goes in a circle.
#[test]
fn two_proxies_in_a_row_need_no_names_and_a_circle_is_found() {
    let origin = Origin::new(|_, _| reply("Cache-Control: no-store\r\n", "from the origin"));
    let far = Proxy::new(&origin);
    let near = Proxy::with(far.reverse, "");
    let got = near.get("/");
    assert_eq!((got.status, got.text().as_str()), (200, "from the origin"), "{got:?}");
    let fields = origin.seen().remove(0).fields;
    let names: Vec<_> = fields.iter().filter(|(name, _)| name == "via").map(|(_, value)| value).collect();
    assert!(names.len() == 2 && names.iter().all(|name| name.starts_with("1.1 crumb-")), "{names:?}");
    assert_ne!(names[0], names[1]);
    assert!(got.field("cache-status").unwrap().starts_with("crumb; "), "{got:?}");
    origin.forget();
    // From one to the other and back.
    far.reload(&format!("[[parent]]\naddress = '{}'\n[parents]\ndirect = false\n", near.forward));
    near.reload(&format!("[[parent]]\naddress = '{}'\n[parents]\ndirect = false\n", far.forward));
    let got = near.get_url("http://outside.example/", "");
    assert_eq!(got.status, 508, "{got:?}");
    assert!(origin.seen().is_empty());
    // The name stays the same for as long as the process does.
    let told =
        |proxy: &Proxy| proxy.get("/").fields.iter().rfind(|(name, _)| name == "via").unwrap().1.clone();
    let before = told(&far);
    far.reload("proxy.name = 'other'");
    assert!(told(&far).ends_with("1.1 other"));
    far.reload("");
    assert_eq!(told(&far), before);
}
