//! `crumb pack create --expires` and `put --ttl`: objects that are gone when their time is over.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use packstore::{OpenOptions, PutOptions, Store};
use serde_json::Value;

use crate::binary::{Bench, assert_fits};

fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()
}

fn expires_s(bench: &Bench, key: &str) -> u64 {
    let told = bench.fine(&["pack", "stat", "store", key, "--json"]);
    let told: Value = serde_json::from_str(&told).expect("JSON");
    told[0]["expires_s"].as_u64().expect("a number")
}

#[test]
fn what_is_put_with_a_time_to_live_says_when_it_expires_and_is_gone_then() {
    let bench = Bench::in_memory();
    bench.fine(&["pack", "create", "store", "--size", "64MiB", "--expires"]);
    std::fs::create_dir(bench.path("tree")).unwrap();
    bench.write("tree/file", "body");
    bench.write("kept", "body");
    let before_s = now_s();
    bench.fine(&["pack", "put", "store", "tree", "--ttl", "3d"]);
    bench.fine(&["pack", "put", "store", "kept"]);
    let day_s = 24 * 60 * 60;
    for key in ["tree", "tree/file"] {
        let expires_s = expires_s(&bench, key);
        assert!((before_s + 3 * day_s..=now_s() + 3 * day_s + 1).contains(&expires_s), "{key}: {expires_s}");
    }
    assert_eq!(expires_s(&bench, "kept"), 0);
    let listed = bench.fine(&["pack", "ls", "store", "-l"]);
    assert!(
        listed.lines().next().is_some_and(|line| line.contains(" never ") && line.ends_with(" kept")),
        "{listed}"
    );
    assert_fits(&listed);
    assert!(bench.fine(&["pack", "stat", "store"]).contains("store, objects may expire"));
    // A put without a time to live is one for good.
    bench.fine(&["pack", "put", "store", "tree/file"]);
    assert_eq!(expires_s(&bench, "tree/file"), 0);

    // By the library, as no test waits for the time to pass.
    {
        let disk = Arc::new(disk::LocalDisk::open(bench.path("store")).unwrap());
        let store = Store::open(vec![disk], OpenOptions::default()).unwrap();
        store.put(b"over", b"body", PutOptions { expires_s: 1, ..PutOptions::default() }).unwrap();
        store.close().unwrap();
    }
    assert!(bench.fails(1, &["pack", "cat", "store", "over"]).contains("no such object"));
    assert_eq!(bench.fine(&["pack", "ls", "store"]), "kept\ntree\ntree/file\n");
    bench.fine(&["pack", "check", "store"]);
    bench.fine(&["pack", "compact", "store"]);
    bench.fine(&["pack", "get", "store", "--all", "-o", "out"]);
    assert_eq!(bench.read("out/tree/file"), "body");
}

#[test]
fn a_time_to_live_that_a_store_cannot_keep_is_refused_and_nothing_is_put() {
    let bench = Bench::in_memory();
    bench.fine(&["pack", "create", "plain", "--size", "64MiB"]);
    bench.fine(&["pack", "create", "store", "--size", "64MiB", "--expires"]);
    bench.write("file", "body");
    let said = bench.fails(2, &["pack", "put", "plain", "file", "--ttl", "3d"]);
    assert!(said.contains("crumb pack create --expires"), "{said}");
    assert!(bench.fails(2, &["pack", "put", "store", "file", "--ttl", "10ms"]).contains("at least 1s"));
    assert!(bench.fails(2, &["pack", "put", "store", "file", "--ttl", "200y"]).contains("2105"));
    assert!(bench.fails(2, &["pack", "put", "store", "file", "--ttl", "3"]).contains("--ttl"));
    for store in ["plain", "store"] {
        assert_eq!(bench.fine(&["pack", "ls", store]), "");
    }
    let said =
        bench.fails(2, &["pack", "create", "cache", "--size", "64MiB", "--mode", "cache", "--expires"]);
    assert!(said.contains("--mode store"), "{said}");
}
