//! Requests that two readers could read in two ways, clients that say nothing, and old and hurried ones.

use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use crate::harness::{Connection, Origin, Proxy, reply};

#[test]
fn a_request_with_two_readings_is_answered_400_and_never_forwarded() {
    let origin = Origin::new(|_, _| reply("", "x"));
    let proxy = Proxy::new(&origin);
    let rows = [
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\nhello",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n",
        "GET / HTTP/1.1\nHost: a\n\n",
        "GET / HTTP/1.1\r\nHost: a\rX: b\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        "GET / HTTP/1.1\r\n\r\n",
        "GET  / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/2.0\r\nHost: a\r\n\r\n",
    ];
    for row in rows {
        let mut connection = Connection::new(proxy.reverse);
        connection.send(row);
        let got = connection.receive(false).unwrap_or_else(|| panic!("no reply to {row:?}"));
        assert_eq!(got.status, 400, "{row:?}");
        assert!(connection.has_ended(), "{row:?}");
    }
    assert!(origin.seen().is_empty(), "{:?}", origin.seen());
    let told = rows.len() as u64;
    proxy.until("all are counted", |proxy| proxy.count(|counters| counters.malformed_requests.get()) == told);
}

#[test]
fn what_is_smuggled_behind_a_good_request_does_not_become_one() {
    let origin = Origin::new(|seen, _| reply("", &seen.target));
    let proxy = Proxy::new(&origin);
    let mut connection = Connection::new(proxy.reverse);
    connection.send(
        "GET /good HTTP/1.1\r\nHost: a\r\n\r\nPOST /bad HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\
         Transfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /worse HTTP/1.1\r\nHost: a\r\n\r\n",
    );
    assert_eq!(connection.receive(false).unwrap().text(), "/good");
    assert_eq!(connection.receive(false).unwrap().status, 400);
    assert!(connection.has_ended());
    assert_eq!(origin.seen().len(), 1);
}

#[test]
fn a_head_that_comes_a_byte_at_a_time_is_cut_off_in_time() {
    let origin = Origin::new(|_, _| reply("", "x"));
    let proxy = Proxy::with(origin.address, "[limits]\nhead_s = 1\n");
    let mut slow = Connection::new(proxy.reverse);
    slow.send("GET / HTTP/1.1\r\nHost:");
    assert!(slow.has_ended(), "after a second");
    assert!(origin.seen().is_empty());
    assert_eq!(proxy.get("/").status, 200, "others are served");
}

#[test]
fn a_connection_that_lies_idle_ends_and_one_that_waits_for_a_slow_origin_does_not() {
    let gate = std::sync::Arc::new(crate::harness::Gate::default());
    let held = std::sync::Arc::clone(&gate);
    let origin = Origin::new(move |_, _| {
        let mut steps = reply("", "x");
        steps.insert(0, crate::harness::Step::Wait(std::sync::Arc::clone(&held)));
        steps
    });
    let proxy = Proxy::with(origin.address, "[limits]\nidle_s = 1\nhead_s = 1\nstall_s = 1\n");
    let mut waiting = Connection::new(proxy.reverse);
    waiting.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    proxy.until("it waits for the origin", |_| origin.seen().len() == 1);
    let mut idle = Connection::new(proxy.reverse);
    assert!(idle.has_ended(), "after a second");
    gate.open();
    assert_eq!(waiting.receive(false).unwrap().text(), "x");
    assert!(waiting.has_ended(), "and then it is idle too");
}

#[test]
fn a_connection_that_rested_goes_on_and_ends_in_time() {
    let origin = Origin::new(|_, _| reply("Cache-Control: max-age=60\r\n", "x"));
    let proxy = Proxy::with(origin.address, "[limits]\nidle_s = 3\nhead_s = 60\n");
    let mut client = Connection::new(proxy.reverse);
    let mut said_at = Instant::now();
    for times in 1..=3 {
        client.send("GET / HTTP/1.1\r\nHost:");
        // A client that is slow, for longer than others take to rest: half a head would be forgotten by that.
        std::thread::sleep(Duration::from_millis(700));
        said_at = Instant::now();
        client.send(" a\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(client.receive(false).unwrap().text(), "x");
        assert_eq!(client.receive(false).unwrap().text(), "x");
        proxy.until("it rests", |proxy| proxy.count(|counters| counters.connections_rested.get()) == times);
    }
    assert!(client.has_ended(), "idle for as long as it may");
    assert!(said_at.elapsed() >= Duration::from_secs(3), "rest is no end");
    assert_eq!(origin.seen().len(), 1);
}

#[test]
fn a_resting_connection_ends_when_the_proxy_drains() {
    let origin = Origin::new(|_, _| reply("", "x"));
    let proxy = Proxy::new(&origin);
    let mut client = Connection::new(proxy.reverse);
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.receive(false).unwrap().text(), "x");
    proxy.until("it rests", |proxy| proxy.count(|counters| counters.connections_rested.get()) == 1);
    drop(proxy.stop());
    assert!(client.has_ended());
}

#[test]
fn a_head_that_is_too_long_is_told_so_and_a_long_one_is_not() {
    let origin = Origin::new(|_, _| reply("", "x"));
    let proxy = Proxy::with(origin.address, "[limits]\nhead_kib = 16\n");
    let field = |bytes: usize| format!("X: {}\r\n", "x".repeat(bytes));
    assert_eq!(proxy.ask("GET", "/", &field(12_000)).status, 200);
    let mut connection = Connection::new(proxy.reverse);
    connection.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", field(40_000)));
    assert_eq!(connection.receive(false).map(|got| got.status), Some(431));
    proxy.until("it is counted", |proxy| proxy.count(|counters| counters.malformed_requests.get()) == 1);
}

/// Symptom: with the default of 32 KiB a head of 45 KB was served. Cause: hyper compares the length of a head with the limit only
/// before it reads more of it, and reads up to 32 KiB at once.
#[test]
fn the_longest_head_is_as_long_as_the_limit_says_to_the_byte() {
    let origin = Origin::new(|_, _| reply("", "x"));
    for kib in [8, 32] {
        let proxy = Proxy::with(origin.address, &format!("[limits]\nhead_kib = {kib}\n"));
        let status = |bytes: usize| {
            let begin = "GET / HTTP/1.1\r\nHost: a\r\nX: ";
            let mut connection = Connection::new(proxy.reverse);
            connection.send(format!("{begin}{}\r\n\r\n", "x".repeat(bytes - begin.len() - 4)));
            connection.receive(false).map(|got| got.status)
        };
        let most = kib << 10;
        for (bytes, expected) in [(most, 200), (most + 1, 431), (45_000, 431), (most * 4, 431)] {
            assert_eq!(status(bytes), Some(expected), "{bytes} bytes, {kib} KiB allowed");
        }
    }
}

#[test]
fn a_body_above_the_limit_is_refused() {
    let origin = Origin::new(|_, _| reply("", "x"));
    let proxy = Proxy::with(origin.address, "[limits]\nbody_mib = 1\n");
    let mut connection = Connection::new(proxy.reverse);
    connection.send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 2000000\r\n\r\n");
    assert_eq!(connection.receive(false).unwrap().status, 413);
    assert!(origin.seen().is_empty());
    // One that does not say its length is found out on the way.
    let mut connection = Connection::new(proxy.reverse);
    connection.send("PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    let chunk = [b"40000\r\n".to_vec(), vec![b'x'; 0x40000], b"\r\n".to_vec()].concat();
    for _ in 0..5 {
        connection.send(&chunk);
    }
    assert_eq!(connection.receive(false).unwrap().status, 413);
    assert!(connection.has_ended());
}

#[test]
fn clients_of_http_1_0_and_those_who_do_not_wait_for_replies_are_served_in_order() {
    let origin = Origin::new(|seen, _| {
        crate::harness::send(format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{}\r\n0\r\n\r\n",
            seen.target.len(),
            seen.target
        ))
    });
    let proxy = Proxy::new(&origin);
    let mut old = Connection::new(proxy.reverse);
    old.send("GET /old HTTP/1.0\r\nHost: a\r\n\r\n");
    let got = old.receive(false).unwrap();
    assert_eq!((got.text().as_str(), got.field("transfer-encoding")), ("/old", None), "{got:?}");
    let mut hurried = Connection::new(proxy.reverse);
    let requests: String =
        (0..20).map(|number| format!("GET /{number} HTTP/1.1\r\nHost: a\r\n\r\n")).collect();
    hurried.send(requests);
    for number in 0..20 {
        assert_eq!(hurried.receive(false).unwrap().text(), format!("/{number}"));
    }
}

#[test]
fn one_client_s_connections_are_limited_and_others_are_not_hurt() {
    let origin = Origin::new(|_, _| reply("", "x"));
    let proxy = Proxy::with(origin.address, "[limits]\nconnections_per_client = 2\n");
    let mut held: Vec<Connection> = Vec::new();
    for _ in 0..2 {
        let mut connection = Connection::new(proxy.reverse);
        connection.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(connection.receive(false).unwrap().status, 200);
        held.push(connection);
    }
    assert!(Connection::new(proxy.reverse).has_ended(), "the third");
    held.clear();
    proxy.until("both have ended", |proxy| proxy.count(|counters| counters.connections_ended.get()) == 2);
    assert_eq!(proxy.get("/").status, 200);
}

#[test]
fn a_body_that_is_sent_for_longer_than_an_origin_may_take_to_reply_is_taken_to_its_end() {
    let origin = Origin::new(|seen, _| reply("", format!("{} bytes", seen.body.len())));
    let proxy = Proxy::with(origin.address, "[upstream]\nreply_s = 3\n");
    let mut slow = Connection::new(proxy.reverse);
    slow.send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n");
    for _ in 0..5 {
        // A client that is slow: there is nothing else to wait for.
        std::thread::sleep(Duration::from_millis(800));
        slow.send("x");
    }
    assert_eq!(slow.receive(false).unwrap().text(), "5 bytes");
}

/// Symptom: 502, and a failure of the origin's is counted. Cause: a body that breaks off looked like a reply that did not come.
#[test]
fn malformed_chunks_are_the_client_s_fault_and_answered_400() {
    let origin = Origin::new(|_, _| reply("", "x"));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("access.log");
    let proxy = Proxy::with(origin.address, &format!("[log]\nfile = '{}'\n", file.display()));
    let rows = ["x\r\n", "5\r\nhelloX\r\n0\r\n\r\n", "5\nhello\r\n0\r\n\r\n", "0\r\nA: b\nC: d\r\n\r\n"];
    for row in rows {
        let mut connection = Connection::new(proxy.reverse);
        connection.send(format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{row}"));
        let got = connection.receive(false).unwrap_or_else(|| panic!("no reply to {row:?}"));
        assert_eq!((got.status, got.field("connection")), (400, Some("close")), "{row:?}");
        assert!(connection.has_ended(), "{row:?}");
    }
    assert!(origin.seen().is_empty(), "no whole request: {:?}", origin.seen());
    let told = rows.len() as u64;
    proxy.until("all are counted", |proxy| proxy.count(|counters| counters.malformed_requests.get()) == told);
    assert_eq!(proxy.count(|counters| counters.origin_failures.get()), 0);
    drop(proxy);
    let text = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), rows.len(), "one line each: {text}");
    assert!(lines.iter().all(|line| line.contains(" TCP_DENIED/400 ") && line.contains(" POST ")), "{text}");
}

#[test]
fn a_reply_of_150_fields_passes_and_one_of_more_than_256_is_refused() {
    let origin = Origin::new(|seen, _| {
        let count: usize = seen.target.trim_start_matches('/').parse().unwrap();
        let fields: String = (0..count).map(|number| format!("X-{number}: {number}\r\n")).collect();
        reply(&format!("Cache-Control: max-age=60\r\n{fields}"), "x")
    });
    let proxy = Proxy::new(&origin);
    for hit in [false, true] {
        let got = proxy.get("/150");
        assert_eq!((got.status, got.is_hit(), got.field("x-149")), (200, hit, Some("149")));
        proxy.settled();
    }
    assert_eq!(proxy.get("/300").status, 502);
}

/// Passed on where hyper can: by HTTP/1 to a client that says it wants them, when the origin announced them.
#[test]
fn trailers_of_a_reply_that_is_not_stored_reach_a_client_that_wants_them() {
    let origin = Origin::new(|_, _| {
        crate::harness::send(
            "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n\
             5\r\nhello\r\n0\r\nX-Sum: 5\r\n\r\n",
        )
    });
    let proxy = Proxy::new(&origin);
    for (fields, end) in [
        ("Connection: close, TE\r\nTE: trailers\r\n", "0\r\nx-sum: 5\r\n\r\n"),
        ("Connection: close\r\n", "0\r\n\r\n"),
    ] {
        let mut stream = std::net::TcpStream::connect(proxy.reverse).unwrap();
        stream.set_read_timeout(Some(crate::harness::PATIENCE)).unwrap();
        write!(stream, "GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        assert!(text.ends_with(&format!("hello\r\n{end}")), "{text}");
    }
}

/// Symptom: a reply that never reached its client is logged as sent, and `aborted_replies_total` stays 0. Cause: it counted as
/// sent when hyper had all of it. Fix: it counts when it was flushed.
#[test]
fn a_reply_that_did_not_leave_before_its_client_went_counts_as_aborted() {
    let origin = Origin::new(|_, _| reply("Cache-Control: max-age=60\r\n", vec![b'x'; 200_000]));
    let proxy = Proxy::new(&origin);
    assert!(proxy.get("/").whole);
    proxy.settled();
    let mut client = Connection::new(proxy.reverse);
    // More than sockets hold, each reply handed to hyper in one piece.
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n".repeat(200));
    assert_eq!(client.receive_head().unwrap().0, 200);
    // Until the sockets hold all that they can, of which there is no event: then a part of a reply is in hyper's hands.
    let (mut unread, mut same) = (0, 0);
    while same < 20 {
        std::thread::sleep(Duration::from_millis(10));
        let now = rustix::io::ioctl_fionread(&client.stream).unwrap();
        same = if now == unread { same + 1 } else { 0 };
        unread = now;
    }
    drop(client);
    proxy.until("it is counted", |proxy| proxy.count(|counters| counters.aborted_replies.get()) == 1);
    // The connection ends a moment after its reply.
    proxy.until("its connection is, too", |proxy| {
        proxy.count(|counters| counters.connections_broken.get()) == 1
    });
    assert_eq!(proxy.count(|counters| counters.lost_writes.get()), 0);
}

/// Symptom: a client that sent a byte of its body every 29 s kept a connection, and one to the origin, for hours. Cause: any
/// byte in time was enough. Fix: there is a least rate, from which a client may fall behind by `limits.stall_s`.
#[test]
fn a_body_that_comes_too_slowly_is_cut_off_though_no_pause_is_too_long() {
    let origin = Origin::new(|seen, _| reply("", format!("{} bytes", seen.body.len())));
    let proxy = Proxy::with(origin.address, "[limits]\nstall_s = 1\n");
    for head in ["Content-Length: 40\r\n", "Transfer-Encoding: chunked\r\n"] {
        let piece = if head.starts_with('C') { "x" } else { "1\r\nx\r\n" };
        let mut slow = Connection::new(proxy.reverse);
        slow.send(format!("POST / HTTP/1.1\r\nHost: a\r\n{head}\r\n"));
        let answered = |slow: &Connection| rustix::io::ioctl_fionread(&slow.stream).unwrap() > 0;
        // A client that is slow: each pause is shorter than a second.
        for _ in 0..40 {
            std::thread::sleep(Duration::from_millis(300));
            if answered(&slow) {
                break;
            }
            slow.send(piece);
        }
        let got = slow.receive(false).unwrap_or_else(|| panic!("no reply: {head}"));
        assert_eq!(got.status, 408, "{got:?}");
        assert!(got.text().contains("limits.body_bytes_per_s"), "{got:?}");
        assert!(slow.has_ended(), "what follows would be read as a request");
    }
    assert!(origin.seen().is_empty(), "no whole request came");
    assert_eq!(proxy.ask("POST", "/", "Content-Length: 5\r\n\r\nhello").text(), "5 bytes");
    assert!(proxy.reload("[limits]\nstall_s = 1\nbody_bytes_per_s = 0\n").is_empty());
    let mut slow = Connection::new(proxy.reverse);
    slow.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 8\r\n\r\n");
    for _ in 0..8 {
        std::thread::sleep(Duration::from_millis(300));
        slow.send("x");
    }
    assert_eq!(slow.receive(false).unwrap().text(), "8 bytes", "where no rate is asked for");
}

/// Symptom: a panic in debug builds, and no reply, for a reply without a body that carries a length (RFC 9110 section 8.6).
#[test]
fn a_reply_that_can_have_no_body_passes_without_its_length() {
    let origin = Origin::new(|seen, _| {
        let start =
            if seen.target.starts_with("/204") { "204 No" } else { "304 Not Modified\r\nETag: \"v\"" };
        crate::harness::send(format!("HTTP/1.1 {start}\r\nContent-Length: 3\r\n\r\n"))
    });
    let proxy = Proxy::new(&origin);
    for (path, fields, status) in [
        ("/304", "If-None-Match: \"v\"\r\nCache-Control: no-store\r\n", 304),
        ("/204", "", 204),
        ("/204", "", 204),
    ] {
        let got = proxy.ask("GET", path, fields);
        assert_eq!((got.status, got.field("content-length")), (status, None), "{path} {fields:?}");
        proxy.settled();
    }
}

/// Symptom: a client that had named nothing that it holds got 304, and showed an empty page. Cause: the origin sends 304 to a request
/// without a condition, and that was passed on. Fix: it is no valid reply.
#[test]
fn a_304_to_a_request_without_a_condition_is_no_reply() {
    let origin = Origin::new(|seen, number| match (seen.target.as_str(), number) {
        ("/stale", 0) => {
            crate::harness::reply("Cache-Control: max-age=0, stale-if-error=60\r\n", "still there")
        }
        _ => crate::harness::send("HTTP/1.1 304 Not Modified\r\nETag: \"v\"\r\n\r\n"),
    });
    let proxy = Proxy::new(&origin);
    assert_eq!(proxy.get("/stale").text(), "still there");
    proxy.settled();
    assert_eq!(proxy.get("/stale").text(), "still there", "it stands in");
    for (method, fields, status) in [
        ("GET", "", 502),
        ("HEAD", "", 502),
        ("GET", "If-Match: \"v\"\r\n", 502),
        ("GET", "If-None-Match: \"v\"\r\n", 304),
        ("HEAD", "If-Modified-Since: Sat, 01 Jan 2022 00:00:00 GMT\r\n", 304),
    ] {
        assert_eq!(proxy.ask(method, "/a", fields).status, status, "{method} {fields}");
    }
}

/// Symptom: the first client got no byte, and with no-store the list was passed on (RFC 9110 section 8.6).
#[test]
fn a_length_that_is_said_twice_in_one_field_of_a_reply_is_passed_on_once() {
    let origin = Origin::new(|seen, _| {
        let (keep, length) = match seen.target.as_str() {
            "/stored" => ("max-age=600", "3, 3"),
            "/passed" => ("no-store", "3, 3"),
            _ => ("no-store", "3, 4"),
        };
        crate::harness::send(format!(
            "HTTP/1.1 200 OK\r\nCache-Control: {keep}\r\nContent-Length: {length}\r\n\r\nabc"
        ))
    });
    let proxy = Proxy::new(&origin);
    for (path, hit) in [("/stored", false), ("/stored", true), ("/passed", false)] {
        let got = proxy.get(path);
        assert_eq!((got.status, got.is_hit(), got.text().as_str()), (200, hit, "abc"), "{path}");
        let lengths: Vec<_> = got.fields.iter().filter(|(name, _)| name == "content-length").collect();
        assert!(matches!(lengths[..], [(_, value)] if value == "3"), "{path}: {lengths:?}");
        proxy.settled();
    }
    assert_eq!(proxy.get("/differ").status, 502);
}

/// Symptom: `GET rl` asked for the host `rl`, and `GET *` for `/` (RFC 9112 sections 3.2.3 and 3.2.4).
#[test]
fn a_target_whose_form_is_not_the_method_s_is_refused() {
    let origin = Origin::new(|seen, _| reply("Cache-Control: max-age=60\r\n", &seen.target));
    let proxy = Proxy::new(&origin);
    for (side, line) in [
        (proxy.reverse, "GET rl"),
        (proxy.reverse, "GET rl:80"),
        (proxy.reverse, "OPTIONS rl"),
        (proxy.reverse, "GET *"),
        (proxy.forward, "GET rl"),
        (proxy.forward, "GET *"),
    ] {
        let mut connection = Connection::new(side);
        connection.send(format!("{line} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!(connection.receive(false).map(|got| got.status), Some(400), "{line}");
    }
    assert!(origin.seen().is_empty(), "{:?}", origin.seen());
    let mut connection = Connection::new(proxy.reverse);
    connection.send("OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(connection.receive(false).map(|got| got.text()).as_deref(), Some("*"), "about the server");
}

/// Symptom: 504 after `upstream.reply_s`, and a failure of the origin's. Cause: bytes of chunk extensions and trailers counted as
/// word from the client, though nothing of the body came.
#[test]
fn a_body_of_which_only_extensions_or_trailers_come_is_cut_off_in_time() {
    let origin = Origin::new(|_, _| reply("", "x"));
    for rate in ["", "body_bytes_per_s = 0\n"] {
        let proxy =
            Proxy::with(origin.address, &format!("[limits]\nstall_s = 1\n{rate}[upstream]\nreply_s = 8\n"));
        for begin in ["3;a=", "0\r\nX: "] {
            let mut slow = Connection::new(proxy.reverse);
            slow.send(format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n{begin}"));
            // A client that is slow: each pause is shorter than a second.
            for _ in 0..30 {
                std::thread::sleep(Duration::from_millis(300));
                if rustix::io::ioctl_fionread(&slow.stream).unwrap() > 0 {
                    break;
                }
                slow.send("x");
            }
            let got = slow.receive(false).unwrap_or_else(|| panic!("no reply: {begin:?}"));
            assert_eq!(got.status, 408, "{begin:?}: {got:?}");
            assert!(slow.has_ended(), "what follows would be read as a request");
        }
        assert_eq!(proxy.count(|counters| counters.origin_failures.get()), 0);
    }
}
