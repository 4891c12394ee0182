//! A store that format version 1 left (`testdata/pack-v1`) opens, by its table and by its index files alone.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use disk::LocalDisk;
use packstore::{OpenOptions, PutOptions, Store};

#[test]
fn a_store_of_version_1_opens_and_holds_what_it_held() {
    let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/pack-v1");
    for with_table in [true, false] {
        let dir = tempfile::tempdir().expect("a directory");
        for name in ["volume", "table", "00000000.body", "00000000.index"] {
            if with_table || name != "table" {
                fs::copy(sample.join(name), dir.path().join(name)).expect("copied");
            }
        }
        let disk = Arc::new(LocalDisk::open(dir.path()).expect("it opens"));
        let store = Store::open(vec![disk], OpenOptions::default()).expect("it opens");
        let first = store.get(b"first").expect("whole").expect("there");
        assert_eq!(first.whole(), Some(&b"the first body"[..]));
        assert_eq!(first.meta(), b"some attributes");
        assert_eq!((first.stat().created_s, first.stat().expires_s), (1_000, 2_000));
        let second = store.get(b"second name").expect("whole").expect("there");
        assert_eq!(second.whole(), Some(&b"the first body"[..]));
        let large = store.get(b"large").expect("whole").expect("there").read_all().expect("whole");
        let expected = (0..70_000u32).map(|at| (at * 7 / 256) as u8).collect::<Vec<_>>();
        assert!(large == expected);
        assert!(store.get(b"gone").expect("no error").is_none());
        assert_eq!(store.get(b"old").expect("whole").expect("there").whole(), Some(&b"version 2"[..]));
        let keys = store.iter_ordered(b"").expect("listed").map(|entry| entry.key).collect::<Vec<_>>();
        assert_eq!(keys, [&b"first"[..], b"large", b"old", b"second name"]);
        assert_eq!(store.check(|_, _| {}).expect("checked").faults, []);
        store.put(b"first", b"anew", PutOptions::default()).expect("it takes more");
    }
}
