//! What the operator asks of a proxy at work.

use std::collections::BTreeSet;

use crate::harness::{Connection, Got, Origin, Proxy, reply};

fn admin(proxy: &Proxy, method: &str, target: &str, fields: &str) -> Got {
    let mut connection = Connection::new(proxy.server().admin_address().unwrap());
    connection
        .send(format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{fields}\r\n"));
    connection.receive(false).unwrap()
}

#[test]
fn figures_are_told_and_what_is_banned_by_prefix_or_tag_is_fetched_again() {
    let origin =
        Origin::new(|seen, _| reply("Cache-Control: max-age=60\r\nCache-Tag: red, blue\r\n", &seen.target));
    let proxy = Proxy::with(origin.address, "[admin]\nlisten = '127.0.0.1:0'\n");
    let fetch = |path: &str| {
        let got = proxy.get(path);
        proxy.settled();
        got.is_hit()
    };
    assert_eq!([fetch("/a"), fetch("/a"), fetch("/b"), fetch("/b")], [false, true, false, true]);
    // What a client has read to its end is counted in the same turn, which may not be over.
    let counted = |proxy: &Proxy| {
        let metrics = admin(proxy, "GET", "/metrics", "").text();
        metrics.contains("crumb_latency_seconds_count{from=\"hit\"} 2\n")
    };
    proxy.until("both hits are counted", counted);
    let metrics = admin(&proxy, "GET", "/metrics", "").text();
    for line in [
        "crumb_requests_total{outcome=\"hit\"} 2",
        "crumb_requests_total{outcome=\"miss\"} 2",
        "crumb_store_objects 2",
        "crumb_latency_seconds_count{from=\"hit\"} 2",
    ] {
        assert!(metrics.lines().any(|told| told == line), "{line} is not in\n{metrics}");
    }
    let status: serde_json::Value =
        serde_json::from_str(&admin(&proxy, "GET", "/status.json", "").text()).unwrap();
    assert_eq!(status["hit_ratio_requests"], 0.5);
    assert!(admin(&proxy, "GET", "/", "").text().contains("status.json"));
    assert_eq!(admin(&proxy, "GET", "/purge?url=http://site/a", "").status, 405, "GET changes nothing");
    assert_eq!(admin(&proxy, "POST", "/purge?url=http%3A%2F%2Fsite%2Fa", "").status, 200);
    assert_eq!([fetch("/a"), fetch("/b")], [false, true]);
    assert_eq!(admin(&proxy, "POST", "/ban?prefix=http://site/b", "").status, 200);
    assert_eq!([fetch("/a"), fetch("/b")], [true, false]);
    assert_eq!(admin(&proxy, "POST", "/ban?tag=red", "").status, 200);
    assert!(!fetch("/a"));
    assert_eq!(admin(&proxy, "POST", "/ban", "").status, 400);
}

#[test]
fn the_page_of_metrics_names_what_the_proxy_tells_prometheus_and_no_more() {
    let page = include_str!("../../../../docs/guide/metrics.md");
    let section = page.split("\n## Prometheus: crumb proxy\n").nth(1).expect("its heading");
    let rows = section.split("\n## ").next().unwrap_or_default().lines();
    let promised: BTreeSet<(&str, &str)> = rows
        .filter_map(|row| {
            let mut cells = row.strip_prefix("| `")?.strip_suffix(" |")?.split(" | ");
            Some((cells.next()?.trim_end_matches('`'), cells.last()?))
        })
        .collect();
    let origin = Origin::new(|_, _| reply("", ""));
    let proxy = Proxy::with(origin.address, "[admin]\nlisten = '127.0.0.1:0'\n");
    let metrics = admin(&proxy, "GET", "/metrics", "").text();
    let emitted: BTreeSet<(&str, &str)> =
        metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect();
    assert!(emitted.len() > 50, "{metrics}");
    assert_eq!(promised, emitted);
}

#[test]
fn the_log_tells_each_request_in_the_form_that_was_asked_for() {
    let origin = Origin::new(|_, _| reply("Cache-Control: max-age=60\r\n", "hello"));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("access.log");
    let proxy =
        Proxy::with(origin.address, &format!("[log]\nfile = '{}'\nformat = 'json'\n", file.display()));
    let lines_are = |count| {
        proxy.until("the lines are there", |_| {
            std::fs::read_to_string(&file).is_ok_and(|text| text.lines().count() == count)
        });
    };
    proxy.get("/a");
    proxy.settled();
    // A client may have its reply, and ask again, before the line of it is written.
    lines_are(1);
    proxy.ask("GET", "/a", "User-Agent: one \"two\"\r\n");
    lines_are(2);
    let text = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["outcome"], &lines[0]["sent_bytes"]), (&"miss".into(), &5.into()));
    assert_eq!((&lines[1]["outcome"], &lines[1]["agent"]), (&"hit".into(), &"one \"two\"".into()));
    assert_eq!(lines[1]["aborted"], false);
}

#[test]
fn a_request_that_no_two_readers_read_alike_is_in_the_log_too() {
    let origin = Origin::new(|_, _| reply("", "x"));
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("access.log");
    let proxy = Proxy::with(origin.address, &format!("[log]\nfile = '{}'\n", file.display()));
    let mut connection = Connection::new(proxy.reverse);
    connection.send("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n");
    assert_eq!(connection.receive(false).unwrap().status, 400);
    drop(connection);
    proxy.until("the line is there", |_| std::fs::read_to_string(&file).is_ok_and(|text| !text.is_empty()));
    let line = std::fs::read_to_string(&file).unwrap();
    assert!(line.contains(" 127.0.0.1 TCP_DENIED/400 0 NONE error:invalid-request "), "{line}");
}

/// Symptom: any web page emptied the cache of a proxy on the same machine, by a form or by a name of its own for 127.0.0.1.
/// Cause: neither Host nor Origin was looked at. Fix: they are, and Fetch Metadata.
#[test]
fn no_web_page_takes_anything_out_and_an_empty_prefix_does_not_either() {
    let origin = Origin::new(|_, _| reply("Cache-Control: max-age=60\r\n", "x"));
    let proxy = Proxy::with(origin.address, "[admin]\nlisten = '127.0.0.1:0'\n");
    proxy.get("/");
    proxy.settled();
    let ask = |target: &str, fields: &str| {
        let mut connection = Connection::new(proxy.server().admin_address().unwrap());
        connection.send(format!("POST {target} HTTP/1.1\r\nConnection: close\r\n{fields}\r\n"));
        connection.receive(false).unwrap()
    };
    let own = proxy.server().admin_address().unwrap();
    for target in ["/ban?prefix=http://site/", "/ban?tag=a", "/purge?url=http://site/"] {
        for (fields, status) in [
            ("Host: evil.example\r\n".to_owned(), 421),
            (format!("Host: {own}\r\nOrigin: http://evil.example\r\n"), 403),
            (format!("Host: {own}\r\nOrigin: null\r\n"), 403),
            (format!("Host: {own}\r\nSec-Fetch-Site: cross-site\r\n"), 403),
        ] {
            assert_eq!(ask(target, &fields).status, status, "{target} {fields}");
        }
    }
    for prefix in ["", "h", "http", "%20", "://", "ftp://site/", "site"] {
        assert_eq!(ask(&format!("/ban?prefix={prefix}"), "Host: localhost\r\n").status, 400, "{prefix}");
    }
    assert_eq!(proxy.server().shared().bans.count(), 0);
    assert!(proxy.get("/").is_hit(), "it is still there");
    let from_its_own_page = format!("Host: {own}\r\nOrigin: http://{own}\r\nSec-Fetch-Site: same-origin\r\n");
    assert_eq!(ask("/ban?prefix=http://site/", &from_its_own_page).status, 200);
    assert!(!proxy.get("/").is_hit());
}
