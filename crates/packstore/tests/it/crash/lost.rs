//! Files that are lost or damaged, and kills while segments are made and removed: what is left is served, and one repair is enough.

mod data_files;
mod indexes;
mod moved_blocks;
mod tables;
mod volumes;

use std::sync::Arc;
use std::time::Duration;

use disk::{Disk, DiskOpen};
use packstore::{Mode, OpenOptions, PutOptions, Store, StoreOptions, VolumeSpec};
use testkit::SimulatedDisk;

use super::model::body;

const INDEX: &str = "00000000.index";
const BODY: &str = "00000000.body";

fn store_on(disk: &SimulatedDisk, mode: Mode) -> Store {
    let volume = VolumeSpec { disk: Arc::new(disk.clone()), size_bytes: 8 << 20 };
    let options = StoreOptions {
        mode,
        packed_blocks: Some((512 << 10) / 64),
        memory_bytes_max: 0,
        ..StoreOptions::default()
    };
    Store::create(vec![volume], options).expect("a new store")
}

fn open(disk: &SimulatedDisk) -> Store {
    let store = Store::open(vec![Arc::new(disk.clone())], OpenOptions::default()).expect("it opens");
    assert!(store.wait_until_ready(Duration::from_secs(60)));
    store
}

fn key(number: u64) -> Vec<u8> {
    format!("key {number}").into_bytes()
}

pub(super) fn put(store: &Store, number: u64, version: u64) {
    store.put(&key(number), &body(version), PutOptions::default()).expect("put");
}

fn get(store: &Store, number: u64) -> Option<Vec<u8>> {
    let found = store.get(&key(number)).unwrap_or_else(|error| panic!("{number}: {error}"));
    found.map(|object| object.read_all().unwrap_or_else(|error| panic!("{number}: {error}")))
}

/// What a number names; a damaged one names nothing.
pub(super) fn body_of(store: &Store, number: u64) -> Option<Vec<u8>> {
    store.get(&key(number)).ok().flatten().and_then(|object| object.read_all().ok())
}

/// 0 to 19 put, 20 to 29 put twice, 30 to 39 put and deleted.
fn fill(store: &Store) {
    (0..20).for_each(|number| put(store, number, number));
    (20..30).for_each(|number| put(store, number, number + 1_000));
    (20..30).for_each(|number| put(store, number, number));
    (30..40).for_each(|number| put(store, number, number));
    (30..40).for_each(|number| assert!(store.delete(&key(number)).expect("deleted")));
    store.link(&key(1), b"second name").expect("linked");
    store.flush().expect("flushed");
}

fn all_there(store: &Store, when: &str) {
    for number in 0..30 {
        assert!(get(store, number) == Some(body(number)), "{when}: {number} is not as it was put");
    }
    let second = store.get(b"second name").expect("whole").expect("there");
    assert!(second.read_all().expect("whole") == body(1), "{when}: the second name");
}

/// Several segments, each with objects, overwrites and deletions in it.
pub(super) fn several_files(mode: Mode, clean: bool) -> (SimulatedDisk, u64) {
    let disk = SimulatedDisk::new("one");
    let store = store_on(&disk, mode);
    fill(&store);
    (100..500).for_each(|number| put(&store, number, number));
    (100..500).step_by(10).for_each(|number| assert!(store.delete(&key(number)).expect("deleted")));
    store.flush().expect("flushed");
    let files = store.usage().packed_files;
    assert!(files > 1, "{files}");
    if clean {
        store.close().expect("closed");
    } else {
        drop(store);
    }
    (disk, files)
}

fn is_kept(number: u64) -> bool {
    number < 30 || number >= 100 && !number.is_multiple_of(10)
}

pub(super) fn numbers() -> impl Iterator<Item = u64> {
    (0..40).chain(100..500)
}

fn read_only(disk: &SimulatedDisk) -> Store {
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    Store::open(vec![Arc::new(disk.clone())], options).expect("it opens")
}

fn overwrite(disk: &SimulatedDisk, name: &str, bytes: &[u8]) {
    disk.open(name, DiskOpen::Write).and_then(|file| file.write_at(bytes, 0)).expect("damaged");
}
