//! What is stored while something else happens to its URI: replaced, purged, banned.

use std::sync::Arc;

use http_cache_rules::WallSeconds;
use webcache::server::{Banned, ban};

use crate::harness::{Connection, Gate, Origin, Proxy, Step, reply};

fn now() -> WallSeconds {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    WallSeconds(since.as_secs() as i64)
}

fn not_modified(tag: &str) -> Vec<u8> {
    format!("HTTP/1.1 304 Not Modified\r\nCache-Control: max-age=0\r\nETag: \"{tag}\"\r\n\r\n").into_bytes()
}

/// Symptom: a new body under the head of the old one, or the old reply in place of the new. Cause: a 304's head was written
/// over whatever lay at the key by then. Fix: it counts for the very object that was asked about.
#[test]
fn a_304_about_an_old_reply_changes_nothing_about_the_one_that_replaced_it_meanwhile() {
    // Written anew at once, and copied by a store writer.
    for bytes in [1000, 600_000] {
        let gate = Arc::new(Gate::default());
        let held = Arc::clone(&gate);
        let fields = |tag: &str| format!("Cache-Control: max-age=0\r\nETag: \"{tag}\"\r\n");
        let origin = Origin::new(move |seen, number| match number {
            0 => reply(&fields("old"), vec![b'o'; bytes]),
            1 => vec![Step::Wait(Arc::clone(&held)), Step::Send(not_modified("old"))],
            2 => reply(&fields("new"), vec![b'n'; bytes]),
            _ => match seen.field("if-none-match") {
                Some("\"new\"") => vec![Step::Send(not_modified("new"))],
                _ => reply(&fields("newer"), vec![b'w'; bytes]),
            },
        });
        let proxy = Proxy::new(&origin);
        assert_eq!(proxy.get("/").body[0], b'o');
        proxy.settled();
        let mut asking = Connection::new(proxy.reverse);
        asking.send("GET / HTTP/1.1\r\nHost: site\r\n\r\n");
        proxy.until("the origin is asked about the old one", |_| origin.seen().len() == 2);
        assert_eq!(proxy.ask("GET", "/", "Cache-Control: no-cache\r\n").body[0], b'n');
        proxy.until("the new one is stored", |proxy| {
            proxy.count(|counters| counters.stored_objects.get()) == 2
        });
        gate.open();
        let got = asking.receive(false).unwrap();
        assert!(got.whole && got.body == vec![b'o'; bytes], "it was confirmed: {bytes} bytes");
        proxy.settled();
        // What a store writer copies is done before what is asked of it next.
        proxy.ask("PURGE", "/other", "");
        let got = proxy.get("/");
        assert!(got.body == vec![b'n'; bytes], "{bytes} bytes: {:?}", char::from(got.body[0]));
        assert_eq!(got.field("etag"), Some("\"new\""), "{bytes} bytes");
    }
}

/// Symptom: a reply that was purged is served again. Cause: a variant lies at a name of its own, to which the purged list
/// leads no more; a 304 about it listed it anew. Fix: it counts while the list that led to it is there.
#[test]
fn a_304_does_not_bring_back_a_variant_that_was_purged_meanwhile() {
    for bytes in [1000, 600_000] {
        let gate = Arc::new(Gate::default());
        let held = Arc::clone(&gate);
        let fields = |tag: &str| format!("Cache-Control: max-age=0\r\nVary: Accept\r\nETag: \"{tag}\"\r\n");
        let origin = Origin::new(move |_, number| match number {
            0 => reply(&fields("old"), vec![b'o'; bytes]),
            1 => vec![
                Step::Wait(Arc::clone(&held)),
                Step::Send(
                    b"HTTP/1.1 304 Not Modified\r\nCache-Control: max-age=60\r\nETag: \"old\"\r\n\r\n"
                        .to_vec(),
                ),
            ],
            _ => reply(&fields("new"), vec![b'n'; bytes]),
        });
        let proxy = Proxy::new(&origin);
        assert_eq!(proxy.get("/").body[0], b'o');
        proxy.settled();
        let mut asking = Connection::new(proxy.reverse);
        asking.send("GET / HTTP/1.1\r\nHost: site\r\n\r\n");
        proxy.until("the origin is asked about the old one", |_| origin.seen().len() == 2);
        assert_eq!(proxy.ask("PURGE", "/", "").status, 200);
        gate.open();
        assert!(asking.receive(false).unwrap().body == vec![b'o'; bytes], "who asked before gets it");
        proxy.ask("PURGE", "/other", "");
        assert_eq!(proxy.get("/").body[0], b'n', "{bytes} bytes");
    }
}

/// Symptom: a variant is fetched again though it was stored a moment ago. Cause: the list that a long reply puts there at
/// its end was made at its beginning. Fix: made at the end.
#[test]
fn a_long_variant_leaves_those_in_the_list_that_came_while_it_did() {
    let gate = Arc::new(Gate::default());
    let held = Arc::clone(&gate);
    let origin = Origin::new(move |seen, _| match seen.field("accept") {
        Some("long") => {
            let steps = reply("Cache-Control: max-age=60\r\nVary: Accept\r\n", vec![b'l'; 600_000]);
            let [Step::Send(whole)] = steps.as_slice() else { unreachable!("one step") };
            let (first, rest) = whole.split_at(500_000);
            vec![Step::Send(first.to_vec()), Step::Wait(Arc::clone(&held)), Step::Send(rest.to_vec())]
        }
        _ => reply("Cache-Control: max-age=60\r\nVary: Accept-Language\r\n", "short"),
    });
    let proxy = Proxy::new(&origin);
    let mut long = Connection::new(proxy.reverse);
    long.send("GET / HTTP/1.1\r\nHost: site\r\nAccept: long\r\nAccept-Language: en\r\n\r\n");
    assert_eq!(long.receive_head().unwrap().0, 200);
    // More than is kept in memory before the store is given the first piece.
    long.receive_bytes(400_000);
    let short = "Accept: short\r\nAccept-Language: de\r\n";
    assert_eq!(proxy.ask("GET", "/", short).text(), "short");
    proxy
        .until("the short one is stored", |proxy| proxy.count(|counters| counters.stored_objects.get()) == 1);
    gate.open();
    long.receive_bytes(200_000);
    proxy.settled();
    assert!(proxy.ask("GET", "/", short).is_hit());
    assert!(proxy.ask("GET", "/", "Accept: long\r\nAccept-Language: en\r\n").is_hit());
}

/// What is stored afterwards of a reply that was under way, asked for without anybody waiting for it, when `happens`.
fn is_stored_after(fields: &str, happens: impl Fn(&Proxy)) -> bool {
    // Whether others may wait for the reply or not.
    let [alone, awaited] =
        ["[collapse]\nwait_ms = 0\n", ""].map(|collapse| is_stored(fields, collapse, &happens));
    assert_eq!(alone, awaited);
    alone
}

fn is_stored(fields: &str, collapse: &str, happens: &impl Fn(&Proxy)) -> bool {
    let gate = Arc::new(Gate::default());
    let (held, fields) = (Arc::clone(&gate), fields.to_owned());
    let origin = Origin::new(move |_, _| {
        let mut steps = reply(&fields, "hello");
        steps.insert(0, Step::Wait(Arc::clone(&held)));
        steps
    });
    let proxy = Proxy::with(origin.address, collapse);
    let mut client = Connection::new(proxy.reverse);
    client.send("GET /a HTTP/1.1\r\nHost: site\r\n\r\n");
    proxy.until("the origin is asked", |_| origin.seen().len() == 1);
    happens(&proxy);
    gate.open();
    assert_eq!(client.receive(false).unwrap().text(), "hello");
    // Its end waits for what is stored.
    drop(client);
    let again = Proxy::on(proxy.stop(), origin.address, "");
    again.get("/a").is_hit()
}

#[test]
fn what_was_asked_for_before_a_purge_or_ban_is_not_stored_after_it_though_nobody_else_waits_for_it() {
    let plain = "Cache-Control: max-age=60\r\nCache-Tag: red\r\n";
    assert!(is_stored_after(plain, |_| {}), "else the rest would prove nothing");
    // 200 or 404: where nobody can wait for the fetch, it is in no list.
    assert!(!is_stored_after(plain, |proxy| drop(proxy.ask("PURGE", "/a", ""))));
    assert!(is_stored_after(plain, |proxy| assert_eq!(proxy.ask("PURGE", "/b", "").status, 404)));
    let banned = |banned: Banned| {
        move |proxy: &Proxy| {
            ban(proxy.server().shared(), banned.clone(), now()).unwrap();
            let at = now();
            // By its own time it is not covered then; but it was asked for before.
            proxy.until("the next second has come", |_| now() > at);
        }
    };
    assert!(!is_stored_after(plain, banned(Banned::Tag("red".to_owned()))));
    assert!(!is_stored_after(plain, banned(Banned::Prefix("http://site/a".to_owned()))));
    assert!(is_stored_after(plain, banned(Banned::Tag("blue".to_owned()))));
}

/// Symptom: what was banned was still a hit when the clock had been set back by two seconds or more before the ban. Cause: the time
/// of the ban was compared with the time of storing.
#[test]
fn a_ban_counts_for_all_that_was_stored_before_it_though_the_clock_was_set_back() {
    let origin = Origin::new(|_, _| reply("Cache-Control: max-age=600\r\nCache-Tag: red\r\n", "hello"));
    let proxy = Proxy::new(&origin);
    for banned in [Banned::Tag("red".to_owned()), Banned::Prefix("http://site/".to_owned())] {
        proxy.get("/a");
        proxy.settled();
        assert!(proxy.get("/a").is_hit(), "{banned:?}");
        let an_hour_ago = WallSeconds(now().0 - 3600);
        ban(proxy.server().shared(), banned.clone(), an_hour_ago).unwrap();
        assert!(!proxy.get("/a").is_hit(), "{banned:?}");
        proxy.settled();
        assert!(proxy.get("/a").is_hit(), "{banned:?}: stored after it");
    }
    let banned = |proxy: &Proxy| {
        let an_hour_ago = WallSeconds(now().0 - 3600);
        ban(proxy.server().shared(), Banned::Prefix("http://site/".to_owned()), an_hour_ago).unwrap();
    };
    assert!(!is_stored_after("Cache-Control: max-age=60\r\n", banned), "its fetch began before the ban");
}

#[test]
fn a_head_does_not_bring_back_what_is_banned() {
    let origin = Origin::new(|seen, _| {
        let fields = "Cache-Control: max-age=60\r\nETag: \"1\"\r\n";
        match seen.method.as_str() {
            "HEAD" => {
                vec![Step::Send(format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: 5\r\n\r\n").into_bytes())]
            }
            _ => reply(fields, "hello"),
        }
    });
    let proxy = Proxy::new(&origin);
    proxy.get("/a");
    proxy.settled();
    assert!(proxy.get("/a").is_hit());
    let at = now();
    ban(proxy.server().shared(), Banned::Prefix("http://site/".to_owned()), at).unwrap();
    proxy.until("the next second has come", |_| now() > at);
    assert_eq!(proxy.ask("HEAD", "/a", "").status, 200);
    assert!(!proxy.get("/a").is_hit());
}
