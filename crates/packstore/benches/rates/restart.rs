//! How soon the first object is had after a clean stop, and after a kill.

use std::fs;
use std::path::Path;
use std::time::Instant;

use packstore::{OpenOptions, PutOptions, Store, StoreOptions, VolumeSpec};

use crate::load::key;
use crate::peers::disk;

pub fn print(dir: &Path, objects: usize) {
    let root = dir.join("restart");
    let _ = fs::remove_dir_all(&root);
    fs::create_dir_all(&root).expect("made");
    let volumes = vec![VolumeSpec { disk: disk(&root), size_bytes: objects as u64 * 256 + (64 << 20) }];
    let options = StoreOptions { object_bytes_mean: 128, ..StoreOptions::default() };
    let store = Store::create(volumes, options).expect("made");
    let mut pending = Vec::new();
    for at in 0..objects {
        pending.push(store.put_deferred(key(at).as_bytes(), b"small", PutOptions::default()).expect("put"));
        if pending.len() == 50_000 {
            pending.drain(..).for_each(|put| put.wait().expect("durable"));
        }
    }
    pending.drain(..).for_each(|put| put.wait().expect("durable"));
    let usage = store.usage();
    println!(
        "restart with {objects} objects: {} MB of index files, {:.2} B of memory an object",
        usage.index_bytes >> 20,
        usage.memory_bytes as f64 / objects as f64
    );
    let first = |store: &Store| {
        assert!(store.get(key(objects / 2).as_bytes()).expect("whole").is_some());
    };
    let begun = Instant::now();
    store.close().expect("closed");
    println!("  clean stop {:?}", begun.elapsed());
    let begun = Instant::now();
    let store = Store::open(vec![disk(&root)], OpenOptions::default()).expect("opened");
    first(&store);
    println!("  first hit after a clean stop {:?}", begun.elapsed());
    drop(store);
    let begun = Instant::now();
    let store = Store::open(vec![disk(&root)], OpenOptions::default()).expect("opened");
    first(&store);
    println!("  first hit after a kill {:?}", begun.elapsed());
    assert_eq!(store.usage().objects, objects as u64);
    drop(store);
    fs::remove_dir_all(&root).expect("removed");
}
