//! Stored parts that are made longer, or whole, by what was missing of them.

use std::sync::Arc;

use crate::harness::{AdmissionFilter, Gate, Origin, Proxy, Step, reply, send};

/// A whole of so many bytes, of which each tells its place.
fn whole(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 7 % 251) as u8).collect()
}

fn part(seen: &AdmissionFilter, body: &[u8], tag: &str) -> Option<Vec<u8>> {
    let range = seen.field("range")?.strip_prefix("bytes=")?;
    if seen.field("if-range").is_some_and(|named| named != tag) {
        return None;
    }
    let (first, last) = range.split_once('-')?;
    let first: usize = first.parse().ok()?;
    let last = if last.is_empty() { body.len() - 1 } else { last.parse().ok()? };
    let head = format!(
        "HTTP/1.1 206 Partial Content\r\nETag: {tag}\r\nCache-Control: max-age=60\r\n\
         Content-Range: bytes {first}-{last}/{}\r\nContent-Length: {}\r\n\r\n",
        body.len(),
        last + 1 - first
    );
    Some([head.as_bytes(), &body[first..=last]].concat())
}

/// An origin that serves parts as it should.
fn ranged(body: Vec<u8>) -> Origin {
    Origin::new(move |seen, _| match part(seen, &body, "\"v\"") {
        Some(part) => send(part),
        None => reply("ETag: \"v\"\r\nCache-Control: max-age=60\r\n", &body),
    })
}

fn stored(proxy: &Proxy, objects: u64) {
    proxy.until("it is stored", |proxy| proxy.count(|counters| counters.stored_objects.get()) == objects);
}

fn asked(origin: &Origin) -> Vec<String> {
    let range = |seen: &AdmissionFilter| seen.field("range").unwrap_or("all").to_owned();
    origin.seen().iter().map(range).collect()
}

#[test]
fn the_whole_is_had_by_asking_for_what_is_missing_before_or_behind() {
    // Short ones are kept in memory until they are stored, long ones are written as they come and read in pieces.
    for bytes in [1000, 1_500_000] {
        let body = whole(bytes);
        for (first, last) in [(0, bytes / 2), (bytes / 2, bytes - 1)] {
            let origin = ranged(body.clone());
            let proxy = Proxy::new(&origin);
            let got = proxy.ask("GET", "/", &format!("Range: bytes={first}-{last}\r\n"));
            assert!(got.status == 206 && got.body == body[first..=last]);
            stored(&proxy, 1);
            let got = proxy.get("/");
            assert_eq!((got.status, got.field("content-range"), got.whole), (200, None, true), "{bytes}");
            assert!(got.body == body, "{bytes} {first}");
            assert!(got.field("cache-status").unwrap().contains("fwd=partial; fwd-status=206"), "{got:?}");
            stored(&proxy, 2);
            let got = proxy.get("/");
            assert!(got.is_hit() && got.body == body, "{bytes} {first}");
            let rest =
                if first == 0 { format!("bytes={}-", last + 1) } else { format!("bytes=0-{}", first - 1) };
            assert_eq!(asked(&origin), [format!("bytes={first}-{last}"), rest]);
            assert_eq!(origin.seen()[1].field("if-range"), Some("\"v\""));
            assert_eq!(
                proxy.count(|counters| counters.origin_bytes.get()),
                bytes as u64,
                "no byte came twice"
            );
        }
    }
}

#[test]
fn a_part_grows_by_parts_that_overlap_or_touch_it() {
    let body = whole(100);
    let origin = ranged(body.clone());
    let proxy = Proxy::new(&origin);
    // Wanted, and what is asked for.
    let rows = [
        (40, 59, "bytes=40-59"),
        (50, 69, "bytes=60-69"),
        (70, 79, "bytes=70-79"),
        (30, 45, "bytes=30-39"),
        (10, 29, "bytes=10-29"),
        (0, 99, "bytes=0-99"),
    ];
    for (place, (first, last, range)) in rows.into_iter().enumerate() {
        let got = proxy.ask("GET", "/", &format!("Range: bytes={first}-{last}\r\n"));
        assert_eq!(got.status, 206);
        assert_eq!(got.field("content-range"), Some(format!("bytes {first}-{last}/100").as_str()));
        assert!(got.body == body[first..=last], "{first}-{last}");
        assert_eq!(asked(&origin).last().map(String::as_str), Some(range), "{first}-{last}");
        stored(&proxy, place as u64 + 1);
        let again = proxy.ask("GET", "/", &format!("Range: bytes={first}-{last}\r\n"));
        assert!(again.is_hit() && again.body == body[first..=last], "{first}-{last}");
    }
}

#[test]
fn what_has_changed_is_had_anew_and_never_mixed() {
    let (old, new) = (vec![b'o'; 1000], vec![b'n'; 1000]);
    // What the origin does with a range of the old one: heeds If-Range, or gives a part of the new one all the same, or has
    // less of it.
    for kind in ["200", "206", "416"] {
        let (old, fresh) = (old.clone(), new.clone());
        let origin = Origin::new(move |seen, number| {
            let fields = "ETag: \"new\"\r\nCache-Control: max-age=60\r\n";
            match (number, kind, seen.field("range")) {
                (0, ..) => send(part(seen, &old, "\"old\"").unwrap()),
                (1, "206", Some(_)) => {
                    let heedless = AdmissionFilter {
                        fields: seen.fields.iter().filter(|(name, _)| name != "if-range").cloned().collect(),
                        ..seen.clone()
                    };
                    send(part(&heedless, &fresh, "\"new\"").unwrap())
                }
                (1, "416", Some(_)) => send(
                    "HTTP/1.1 416 Range Not Satisfiable\r\nContent-Range: bytes */3\r\nContent-Length: 0\r\n\r\n",
                ),
                _ => reply(fields, &fresh),
            }
        });
        let proxy = Proxy::new(&origin);
        assert!(proxy.ask("GET", "/", "Range: bytes=0-499\r\n").body == old_part());
        stored(&proxy, 1);
        let got = proxy.get("/");
        assert!(
            (got.status, got.whole) == (200, true) && got.body == new,
            "{kind}: {} bytes",
            got.body.len()
        );
        stored(&proxy, 2);
        let got = proxy.get("/");
        assert!(got.is_hit() && got.body == new, "{kind}");
    }
}

fn old_part() -> Vec<u8> {
    vec![b'o'; 500]
}

#[test]
fn a_missing_piece_that_breaks_off_or_lies_about_its_length_is_cut_and_spoils_nothing() {
    let body = whole(1000);
    // Before what is stored, and behind it.
    for (first, last) in [(500, 999), (0, 499)] {
        for lies in [false, true] {
            let sent = body.clone();
            let gate = Arc::new(Gate::default());
            let held = Arc::clone(&gate);
            let origin = Origin::new(move |seen, number| {
                let steps = part(seen, &sent, "\"v\"").unwrap();
                if number == 0 {
                    return send(steps);
                }
                if !lies {
                    return vec![
                        Step::Send(steps[..steps.len() - 100].to_vec()),
                        Step::Wait(Arc::clone(&held)),
                        Step::Close,
                    ];
                }
                // Chunked, and ended in order, a hundred bytes too early.
                let text = String::from_utf8_lossy(&steps).into_owned();
                let head = text.split("Content-Length").next().unwrap();
                let piece = &steps[steps.len() - 500..steps.len() - 100];
                let mut wire = format!("{head}Transfer-Encoding: chunked\r\n\r\n190\r\n").into_bytes();
                wire.extend_from_slice(piece);
                wire.extend_from_slice(b"\r\n0\r\n\r\n");
                send(wire)
            });
            let proxy = Proxy::new(&origin);
            proxy.ask("GET", "/", &format!("Range: bytes={first}-{last}\r\n"));
            stored(&proxy, 1);
            gate.open();
            let got = proxy.get("/");
            assert!(!got.whole, "{first} {lies}: {} bytes", got.body.len());
            assert!(body.starts_with(&got.body), "{first} {lies}: what came is right");
            proxy.settled();
            let got = proxy.ask("GET", "/", &format!("Range: bytes={first}-{last}\r\n"));
            assert!(
                got.is_hit() && got.body == body[first..=last],
                "{first} {lies}: the part is there still"
            );
        }
    }
}

#[test]
fn a_part_without_a_strong_validator_is_no_beginning() {
    let body = whole(100);
    let sent = body.clone();
    let origin = Origin::new(move |seen, number| match number {
        0 => send(String::from_utf8_lossy(&part(seen, &[b'x'; 100], "W/\"v\"").unwrap()).into_owned()),
        _ => reply("ETag: W/\"v\"\r\nCache-Control: max-age=60\r\n", &sent),
    });
    let proxy = Proxy::new(&origin);
    proxy.ask("GET", "/", "Range: bytes=0-49\r\n");
    stored(&proxy, 1);
    assert!(proxy.get("/").body == body);
    assert_eq!(asked(&origin), ["bytes=0-49", "all"]);
    assert_eq!(proxy.count(|counters| counters.completed_parts.get()), 0);
}

#[test]
fn who_asks_the_store_alone_is_not_answered_by_asking_the_origin_for_what_is_missing() {
    let origin = ranged(whole(100));
    let proxy = Proxy::new(&origin);
    proxy.ask("GET", "/", "Range: bytes=0-49\r\n");
    stored(&proxy, 1);
    let only = "Cache-Control: only-if-cached\r\n";
    assert_eq!(proxy.ask("GET", "/", &format!("Range: bytes=0-9\r\n{only}")).status, 206);
    assert_eq!(proxy.ask("GET", "/", &format!("Range: bytes=40-59\r\n{only}")).status, 504);
    assert_eq!(proxy.ask("GET", "/", &format!("Range: bytes=70-79\r\n{only}")).status, 504);
    assert_eq!(proxy.ask("GET", "/", only).status, 504);
    assert_eq!(asked(&origin), ["bytes=0-49"]);
}

/// Symptom: 206, from the origin and from the store, to clients that asked for no part (RFC 9111 section 3.3).
#[test]
fn a_part_that_is_all_is_a_whole_for_who_asks_for_no_part() {
    let origin = Origin::new(|_, _| {
        crate::harness::send(
            "HTTP/1.1 206 Partial Content\r\nCache-Control: max-age=600\r\nETag: \"v\"\r\n\
             Content-Range: bytes 0-2/3\r\nContent-Length: 3\r\n\r\nabc",
        )
    });
    let proxy = Proxy::new(&origin);
    for (path, fields, status, hit) in [
        ("/plain", "", 200, false),
        ("/plain", "", 200, true),
        ("/part", "Range: bytes=0-2\r\n", 206, false),
        ("/part", "", 200, true),
    ] {
        let got = proxy.ask("GET", path, fields);
        let told = (got.status, got.is_hit(), got.field("content-range").is_some(), got.text());
        assert_eq!(told, (status, hit, status == 206, "abc".to_owned()), "{path} {fields:?}");
        proxy.settled();
    }
}
