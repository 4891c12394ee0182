//! A rebuild that may hold little in memory: what it finds goes to a file of a volume meanwhile.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use disk::Disk;
use packstore::{CacheOptions, Mode, OpenOptions, PutOptions, Store, StoreError, StoreOptions, VolumeSpec};
use testkit::{DiskFault, DiskOperation, SimulatedDisk};

use super::model::body;

const SPILL: &str = "found.new";
const OBJECTS: u64 = 900;

fn key(number: u64) -> Vec<u8> {
    format!("key {number}").into_bytes()
}

/// Large enough for pieces, now and then.
fn bytes(number: u64) -> Vec<u8> {
    let mut bytes = body(number);
    bytes.resize(bytes.len() + if number % 200 == 7 { 200_000 } else { 0 }, number as u8);
    bytes
}

/// Several segments with all that a rebuild must tell apart, and no clean stop.
fn killed() -> SimulatedDisk {
    let disk = SimulatedDisk::new("one");
    let volume = VolumeSpec { disk: Arc::new(disk.clone()), size_bytes: 16 << 20 };
    let options = StoreOptions { packed_blocks: Some((512 << 10) / 64), ..StoreOptions::default() };
    let store = Store::create(vec![volume], options).expect("a new store");
    let put = |number, body: &[u8]| store.put(&key(number), body, PutOptions::default()).expect("put");
    (0..OBJECTS).for_each(|number| put(number, b"replaced below"));
    (0..OBJECTS).for_each(|number| put(number, &bytes(number)));
    for number in (0..OBJECTS).step_by(9) {
        assert!(store.delete(&key(number)).expect("deleted"));
    }
    assert!(store.link(&key(7), b"second name").expect("linked"));
    assert!(store.usage().packed_files > 3);
    disk.stop();
    drop(store);
    disk.process_end()
}

fn open(disk: &SimulatedDisk, rebuild_bytes_max: u64) -> Result<Store, StoreError> {
    let disk = Arc::new(disk.clone()) as Arc<dyn Disk>;
    Store::open(vec![disk], OpenOptions { rebuild_bytes_max, ..OpenOptions::default() })
}

fn get(store: &Store, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
    store.get(key)?.map(|object| object.read_all()).transpose()
}

fn assert_all_there(store: &Store) {
    for number in 0..OBJECTS {
        let wanted = (number % 9 != 0).then(|| bytes(number));
        assert!(get(store, &key(number)).expect("no error") == wanted, "{number} is not as it was left");
    }
    assert!(get(store, b"second name").expect("no error") == Some(bytes(7)));
    assert_eq!(store.usage().objects, OBJECTS - OBJECTS.div_ceil(9) + 1);
    assert_eq!(store.check(|_, _| {}).expect("checked").faults, []);
}

#[test]
fn finds_the_same_with_what_it_found_in_a_file_which_is_gone_afterwards() {
    let disk = killed();
    // No, a little, and all of what is found fits into memory.
    for rebuild_bytes_max in [0, 9_000, 64 << 20] {
        let disk = disk.process_end();
        let store = open(&disk, rebuild_bytes_max).expect("it opens");
        assert_all_there(&store);
        assert_eq!(disk.bytes(SPILL), None);
    }
}

#[test]
fn goes_on_in_memory_when_the_file_cannot_be_written() {
    let disk = killed();
    for (spared, fault) in [(0, DiskFault::Refused(io::ErrorKind::StorageFull)), (2, DiskFault::Half)] {
        let disk = disk.process_end();
        disk.fail(DiskOperation::Write, Some(SPILL), spared, 1, fault);
        let store = open(&disk, 0).expect("it opens");
        assert_all_there(&store);
        assert_eq!(disk.bytes(SPILL), None);
    }
}

#[test]
fn says_so_when_the_file_cannot_be_read_again_and_the_next_opening_finds_all() {
    let disk = killed();
    disk.fail(DiskOperation::Read, Some(SPILL), 20, 1, DiskFault::Refused(io::ErrorKind::Other));
    let store = open(&disk, 0).expect("it opens");
    let error = get(&store, &key(1)).expect_err("what is there is not known");
    assert!(matches!(&error, StoreError::Disk(why) if why.name == SPILL), "{error}");
    drop(store);
    disk.heal();
    let store = open(&disk, 0).expect("it opens");
    assert_all_there(&store);
}

#[test]
fn a_file_that_a_second_kill_left_is_removed() {
    let disk = killed();
    let file = disk.open(SPILL, disk::DiskOpen::New).expect("made");
    file.write_at(b"of a rebuild that was killed", 0).expect("written");
    let store = open(&disk, 0).expect("it opens");
    assert_all_there(&store);
    assert_eq!(disk.bytes(SPILL), None);
}

#[test]
fn the_table_is_laid_out_for_what_fits_and_after_a_kill_for_what_the_index_tells_of() {
    // Each takes 384 bytes of a data file and 352 of the index.
    let (key_bytes, body_bytes, objects) = (300_usize, 24_usize, 20_000_u64);
    let disk = SimulatedDisk::new("one");
    let size_bytes = objects * 800;
    let volume = VolumeSpec { disk: Arc::new(disk.clone()), size_bytes };
    let mean = (2 * key_bytes + body_bytes) as u32;
    let store =
        Store::create(vec![volume], StoreOptions { object_bytes_mean: mean, ..StoreOptions::default() })
            .expect("a new store");
    let each = |store: &Store| store.usage().memory_bytes as f64 / objects as f64;
    assert!((8.9..10.5).contains(&each(&store)), "{} bytes an object", each(&store));
    let waits = (0..objects).map(|number| {
        let key = format!("{number:0width$}", width = key_bytes);
        store.put_deferred(key.as_bytes(), &[7; 24], PutOptions::default()).expect("put")
    });
    waits.collect::<Vec<_>>().into_iter().for_each(|put| put.wait().expect("durable"));
    disk.stop();
    drop(store);
    let store = open(&disk.process_end(), 0).expect("it opens");
    store.put(b"ready", b"", PutOptions::default()).expect("it knows what is there");
    assert_eq!(store.usage().objects, objects + 1);
    assert!((8.9..12.0).contains(&each(&store)), "{} bytes an object after a kill", each(&store));
}

/// A cache that was killed with all that it wrote not yet synced, and how many objects it had written.
fn killed_before_a_sync() -> (SimulatedDisk, u64) {
    let disk = SimulatedDisk::new("one");
    let volume = VolumeSpec { disk: Arc::new(disk.clone()), size_bytes: 256 << 20 };
    let cache = CacheOptions { behind_max: Duration::from_secs(3_600), ..CacheOptions::default() };
    let store =
        Store::create(vec![volume], StoreOptions { mode: Mode::Cache, cache, ..StoreOptions::default() })
            .expect("a new store");
    let (mut written, mut written_bytes) = (0, 0);
    while written_bytes < 3_500_000 {
        written_bytes += bytes(written).len();
        store.put(&key(written), &bytes(written), PutOptions::default()).expect("put");
        written += 1;
    }
    let begun = Instant::now();
    // A group is counted as it begins; with its part of the index it is written.
    while store.usage().index_written_bytes == 0 {
        assert!(begun.elapsed() < Duration::from_secs(60), "a megabyte is reason enough to write");
        std::thread::yield_now();
    }
    assert_eq!(store.usage().syncs, 0);
    let after = disk.process_end();
    disk.stop();
    drop(store);
    let found = open_ready(&after.process_end()).usage().objects;
    assert!(found > 100 && found <= written, "{found} of {written} had been written");
    (after, found)
}

fn open_ready(disk: &SimulatedDisk) -> Store {
    let store = open(disk, 64 << 20).expect("it opens");
    assert!(store.wait_until_ready(Duration::from_secs(60)));
    store
}

#[test]
fn bodies_are_compared_by_the_megabyte_and_one_that_cannot_be_read_is_not_taken_for_torn() {
    const BODY: &str = "00000000.body";
    let (disk, objects) = killed_before_a_sync();
    let unreadable = DiskFault::Refused(io::ErrorKind::Other);
    for (spared, times) in [
        // At most four groups of a megabyte, one behind the other: six reads are enough.
        (6, u64::MAX),
        // The first read takes many. They are read one by one then, and once more the first cannot be: it may be whole.
        (0, 1),
        (0, 2),
    ] {
        let disk = disk.process_end();
        disk.fail(DiskOperation::Read, Some(BODY), spared, times, unreadable);
        let usage = open_ready(&disk).usage();
        assert_eq!((usage.objects, usage.torn_puts), (objects, 0));
    }
}
