//! What runs out besides room: descriptors, and memory for a file that is not what the store wrote.

use std::fs::{self, OpenOptions as FileOptions};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use disk::LocalDisk;
use packstore::{OpenOptions, PutOptions, Store, StoreError, StoreOptions, VolumeSpec};
use testkit::{DiskFault, DiskOperation, SimulatedDisk};

const EMFILE: i32 = 24;

fn key(number: u32) -> Vec<u8> {
    format!("key {number}").into_bytes()
}

fn put(store: &Store, number: u32) -> Result<(), StoreError> {
    store.put(&key(number), &[number as u8; 20_000], PutOptions::default())
}

fn options() -> StoreOptions {
    StoreOptions { packed_blocks: Some((512 << 10) / 64), memory_bytes_max: 0, ..StoreOptions::default() }
}

fn is_reported(error: &StoreError) -> bool {
    let text = error.to_string();
    matches!(error, StoreError::NoDescriptors { .. })
        && ["one: ", "0000", "ulimit -n"].iter().all(|part| text.contains(part))
}

/// Symptom: with few descriptors a put failed with "the store is full". Cause: what passes again was reported as lack of room.
#[test]
fn a_put_without_descriptors_says_so_and_succeeds_once_there_are_some() {
    for operation in [DiskOperation::Create, DiskOperation::Open] {
        let disk = SimulatedDisk::new("one");
        let volume = VolumeSpec { disk: Arc::new(disk.clone()), size_bytes: 8 << 20 };
        let store = Store::create(vec![volume], options()).expect("a store");
        put(&store, 0).expect("put");
        disk.fail(operation, None, 0, u64::MAX, DiskFault::RefusedWith(EMFILE));
        // Until the segment that is being filled has no more room.
        let refused =
            (1..200).find_map(|number| put(&store, number).err()).expect("a new segment needs descriptors");
        assert!(is_reported(&refused), "{operation:?}: {refused}");
        disk.heal();
        (200..220).for_each(|number| put(&store, number).expect("the volume takes puts"));
        assert_eq!(store.check(|_, _| {}).expect("checked").faults, [], "{operation:?}");
    }
}

#[test]
fn an_opening_without_descriptors_fails_with_that_and_costs_nothing() {
    for (clean, name) in [(true, "table"), (true, "00000001.index"), (false, "00000001.index")] {
        let disk = SimulatedDisk::new("one");
        let volume = VolumeSpec { disk: Arc::new(disk.clone()), size_bytes: 8 << 20 };
        let store = Store::create(vec![volume], options()).expect("a store");
        (0..60).for_each(|number| put(&store, number).expect("put"));
        if clean {
            store.close().expect("closed");
        } else {
            drop(store);
        }
        let disk = disk.process_end();
        // Once for its length, which is asked for before.
        let spared = u64::from(name != "table" && !clean);
        disk.fail(DiskOperation::Open, Some(name), spared, u64::MAX, DiskFault::RefusedWith(EMFILE));
        let opened = Store::open(vec![Arc::new(disk.clone())], OpenOptions::default());
        let failed = opened.and_then(|store| store.get(&key(0)).map(drop)).expect_err("it lacks descriptors");
        assert!(matches!(failed, StoreError::NoDescriptors { .. }), "{clean}, {name}: {failed}");
        disk.heal();
        let store =
            Store::open(vec![Arc::new(disk.process_end())], OpenOptions::default()).expect("it opens");
        let there = (0..60).filter(|&number| store.get(&key(number)).expect("whole").is_some()).count();
        assert_eq!(there, 60, "{clean}, {name}");
        assert_eq!(store.check(|_, _| {}).expect("checked").faults, [], "{clean}, {name}");
    }
}

fn open_local(path: &Path, options: OpenOptions) -> Store {
    let disk = Arc::new(LocalDisk::open(path).expect("it opens"));
    let store = Store::open(vec![disk], options).expect("it opens");
    assert!(store.wait_until_ready(Duration::from_secs(60)));
    store
}

/// Symptom: a sparse file of a terabyte in the place of an index was read into memory. Cause: its length was believed.
#[test]
fn an_index_longer_than_its_volume_can_have_is_refused_and_its_objects_are_found_again() {
    for (clean, length) in [(true, 1 << 40), (false, 1 << 40), (false, 33 << 20)] {
        let directory = tempfile::tempdir().expect("a directory");
        let disk = Arc::new(LocalDisk::open(directory.path()).expect("it opens"));
        let store =
            Store::create(vec![VolumeSpec { disk, size_bytes: 8 << 20 }], options()).expect("a store");
        (0..60).for_each(|number| put(&store, number).expect("put"));
        if clean {
            store.close().expect("closed");
        } else {
            drop(store);
        }
        let index = directory.path().join("00000000.index");
        fs::write(&index, b"").expect("emptied");
        FileOptions::new()
            .write(true)
            .open(&index)
            .and_then(|file| file.set_len(length))
            .expect("lengthened");
        let looking = open_local(directory.path(), OpenOptions { read_only: true, ..OpenOptions::default() });
        let faults = looking.check(|_, _| {}).expect("checked").faults;
        let what = faults.iter().map(|fault| &fault.what[..]).collect::<String>();
        assert!(what.contains("is not what the store wrote"), "clean {clean}: {what}");
        drop(looking);
        let store = open_local(directory.path(), OpenOptions { move_aside: true, ..OpenOptions::default() });
        let report = store.repair(|_, _| {}).expect("repaired");
        assert_eq!((report.deleted, report.left), (0, vec![]), "clean {clean}");
        let there = (0..60).filter(|&number| store.get(&key(number)).expect("whole").is_some()).count();
        assert_eq!(there, 60, "clean {clean}");
        store.close().expect("closed");
        assert!(fs::metadata(&index).expect("there").len() < 1 << 20);
    }
}
