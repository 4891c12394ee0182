//! What is served from files of a real file system, which loops read without waiting where the kernel lets them.

use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use packstore::{Mode, Store, StoreOptions, VolumeSpec};
use testkit::LocalDisk;

use crate::harness::{Connection, Origin, Proxy, reply};

/// Without a memory tier: what is written is read from its file each time.
fn store_in(directory: &Path) -> Arc<Store> {
    let disk = Arc::new(LocalDisk::open(directory).unwrap());
    let options = StoreOptions { mode: Mode::Cache, memory_bytes_max: 0, ..StoreOptions::default() };
    Arc::new(Store::create(vec![VolumeSpec { disk, size_bytes: 64 << 20 }], options).unwrap())
}

fn body_of(path: &str) -> Vec<u8> {
    let number: usize = path.trim_start_matches('/').parse().unwrap();
    (0..number * number * 7 + 5).map(|at| ((at * (number + 3)) >> 3) as u8).collect()
}

/// A proxy over real files that hold `/0` to `/99` of up to 70 KB, and nothing in memory; the origin has forgotten it.
fn filled(origin: &Origin) -> (tempfile::TempDir, Proxy) {
    let directory = tempfile::tempdir().unwrap();
    let proxy = Proxy::on(store_in(directory.path()), origin.address, "");
    for number in 0..100 {
        assert!(!proxy.get(&format!("/{number}")).is_hit());
    }
    proxy.settled();
    let store = proxy.stop();
    store.flush().unwrap();
    origin.forget();
    (directory, Proxy::on(store, origin.address, ""))
}

fn origin() -> Origin {
    Origin::new(|seen, _| {
        reply("Cache-Control: max-age=600\r\nETag: \"e\"\r\nContent-Type: a/b\r\n", body_of(&seen.target))
    })
}

#[test]
fn what_lies_in_files_is_served_whole_in_part_and_as_conditions_say() {
    let origin = origin();
    let (_directory, proxy) = filled(&origin);
    // Several at once on each loop.
    std::thread::scope(|scope| {
        for first in 0..8 {
            let reverse = proxy.reverse;
            scope.spawn(move || {
                let mut connection = Connection::new(reverse);
                for number in (first..100).step_by(3) {
                    connection.send(format!("GET /{number} HTTP/1.1\r\nHost: site\r\n\r\n"));
                    let got = connection.receive(false).unwrap();
                    assert!(got.is_hit() && got.body == body_of(&format!("/{number}")), "{number}");
                }
            });
        }
    });
    let head = proxy.ask("HEAD", "/60", "");
    assert_eq!((head.is_hit(), head.body.len(), head.field("content-length")), (true, 0, Some("25205")));
    let part = proxy.ask("GET", "/60", "Range: bytes=25200-\r\n");
    assert_eq!((part.status, part.body), (206, body_of("/60")[25_200..].to_vec()));
    assert_eq!(proxy.ask("GET", "/60", "If-None-Match: \"e\"\r\n").status, 304);
    assert!(origin.seen().is_empty(), "all of it was there");
    let reads = proxy.stop().usage().disk_reads;
    assert!(reads >= 263, "each from the disk: {reads} reads");
}

#[test]
fn what_varies_is_found_among_its_variants() {
    let directory = tempfile::tempdir().unwrap();
    let origin = Origin::new(|seen, _| {
        let field = |name| seen.field(name).unwrap_or("-").to_owned();
        // The second kind of reply varies by one field more.
        let more = if seen.field("accept-language") == Some("la") { ", X-Era" } else { "" };
        let fields = format!("Cache-Control: max-age=600\r\nVary: Accept-Language{more}\r\n");
        reply(&fields, format!("{} {}", field("accept-language"), field("x-era")))
    });
    let asked = [
        "Accept-Language: de\r\n",
        "Accept-Language: la\r\nX-Era: old\r\n",
        "Accept-Language: la\r\nX-Era: new\r\n",
    ];
    let ask_all = |proxy: &Proxy, are_hits: bool| {
        for (fields, body) in asked.iter().zip(["de -", "la old", "la new"]) {
            let got = proxy.ask("GET", "/", fields);
            assert_eq!((got.text().as_str(), got.is_hit()), (body, are_hits), "{fields}");
            proxy.settled();
        }
    };
    let proxy = Proxy::on(store_in(directory.path()), origin.address, "");
    ask_all(&proxy, false);
    let store = proxy.stop();
    store.flush().unwrap();
    let before = store.usage().disk_reads;
    let proxy = Proxy::on(store, origin.address, "");
    ask_all(&proxy, true);
    assert!(!proxy.ask("GET", "/", "Accept-Language: fr\r\n").is_hit());
    let reads = proxy.stop().usage().disk_reads - before;
    assert!(reads >= 4 + 3, "the list each time, and what was asked for: {reads} reads");
}

#[test]
fn a_reply_damaged_in_its_file_is_fetched_anew() {
    let origin = origin();
    let (directory, proxy) = filled(&origin);
    for entry in std::fs::read_dir(directory.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|end| end == "body") {
            let length = path.metadata().unwrap().len();
            std::fs::write(&path, vec![0; length as usize]).unwrap();
        }
    }
    for number in [3, 50, 99] {
        let got = proxy.get(&format!("/{number}"));
        assert!(!got.is_hit() && got.body == body_of(&format!("/{number}")), "{number}");
    }
    assert_eq!(origin.seen().len(), 3);
}

/// Symptom: a long stored reply that was damaged behind its first piece broke off at each request until it expired. Cause: only the
/// look-up removed what is damaged, and it reads no pieces. Fix: the read that meets the damage removes the reply.
#[test]
fn a_long_reply_damaged_in_a_later_piece_breaks_off_once_and_is_fetched_again() {
    // No part of a body is like another part of it, or of the other body.
    let byte = |at: u32| (at.wrapping_mul(at).wrapping_mul(0x9E37_79B1) >> 24) as u8;
    let body = move |path: &str| {
        let first = path.len() as u32 * 1_000_000;
        (first..first + 900_000).map(byte).collect::<Vec<u8>>()
    };
    let origin = Origin::new(move |seen, _| reply("Cache-Control: max-age=600\r\n", body(&seen.target)));
    let directory = tempfile::tempdir().unwrap();
    let proxy = Proxy::on(store_in(directory.path()), origin.address, "");
    for path in ["/1", "/22"] {
        assert!(!proxy.get(path).is_hit());
    }
    proxy.settled();
    let store = proxy.stop();
    store.flush().unwrap();
    origin.forget();
    flip_a_bit_of(directory.path(), &body("/1")[600_000..600_064]);
    let proxy = Proxy::on(store, origin.address, "");
    let damaged = proxy.get("/1");
    assert!(damaged.is_hit() && !damaged.whole, "{} bytes", damaged.body.len());
    assert!(body("/1").starts_with(&damaged.body), "no byte that is wrong");
    let fetched = proxy.get("/1");
    assert!(!fetched.is_hit() && fetched.whole && fetched.body == body("/1"));
    proxy.settled();
    for path in ["/1", "/22"] {
        let got = proxy.get(path);
        assert!(got.is_hit() && got.whole && got.body == body(path), "{path}");
    }
    assert_eq!(origin.seen().len(), 1, "once, and the other reply is untouched");
}

/// Flips a bit of these bytes, which are at one place in the data files.
fn flip_a_bit_of(directory: &Path, sought: &[u8]) {
    let mut flipped = 0;
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|end| end != "body") {
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        let places = bytes.windows(sought.len()).enumerate().filter(|(_, bytes)| *bytes == sought);
        let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
        for (at, there) in places {
            file.write_at(&[there[0] ^ 1], at as u64).unwrap();
            flipped += 1;
        }
    }
    assert_eq!(flipped, 1);
}

#[test]
fn clients_that_leave_while_the_disk_is_read_leave_nothing_behind() {
    let origin = origin();
    let (_directory, proxy) = filled(&origin);
    for number in 0..300 {
        let mut connection = Connection::new(proxy.reverse);
        connection.send(format!("GET /{} HTTP/1.1\r\nHost: site\r\n\r\n", number % 100));
    }
    assert!(proxy.get("/99").body == body_of("/99"));
    proxy.until("all have left", |proxy| proxy.server().shared().clients.count() == 0);
    assert!(origin.seen().is_empty());
    // Whoever still held a part of the store would keep it from being given back.
    assert!(proxy.stop().check(|_, _| {}).unwrap().faults.is_empty());
}
