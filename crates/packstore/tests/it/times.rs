//! The times that a store keeps of its own: the last request, the deletion.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use disk::Disk;
use packstore::{Mode, OpenOptions, PutOptions, Stat, Store, StoreOptions, VolumeSpec};
use testkit::SimulatedDisk;

const BODY: &str = "00000000.body";
const DAY_S: u32 = 24 * 60 * 60;

fn now_s() -> u32 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs() as u32
}

fn create(disk: &SimulatedDisk, mode: Mode, memory_bytes_max: u64) -> Store {
    let volume = VolumeSpec { disk: Arc::new(disk.clone()), size_bytes: 8 << 20 };
    let packed_blocks = Some((512 << 10) / 64);
    let options = StoreOptions { mode, packed_blocks, memory_bytes_max, ..StoreOptions::default() };
    Store::create(vec![volume], options).expect("a new store")
}

fn open(disk: &SimulatedDisk, read_only: bool) -> Store {
    let disks = vec![Arc::new(disk.clone()) as Arc<dyn Disk>];
    Store::open(disks, OpenOptions { read_only, ..OpenOptions::default() }).expect("it opens")
}

fn stat(store: &Store, key: &[u8]) -> Stat {
    store.stat(key).expect("readable").expect("there")
}

/// Symptom: an object that is requested every day has the time of its put as that of its last request. Cause: only `touch` wrote
/// it, and no verb or proxy calls that. Fix: a get notes it for the volume's writer.
#[test]
fn a_get_moves_the_time_of_the_last_request_when_that_is_a_day_old_and_no_other_time() {
    for (mode, memory_bytes_max) in [(Mode::Store, 0), (Mode::Store, 1 << 20), (Mode::Cache, 1 << 20)] {
        let (disk, begun_s) = (SimulatedDisk::new("one"), now_s());
        let store = create(&disk, mode, memory_bytes_max);
        let old = PutOptions { created_s: Some(begun_s - 2 * DAY_S), expires_s: 77, ..PutOptions::default() };
        let large = vec![1; 300 << 10];
        for (key, body) in [(&b"read"[..], &b"body"[..]), (b"not read", b"body"), (b"large", &large)] {
            store.put(key, body, old).expect("put");
        }
        store.put(b"young", b"body", PutOptions { created_s: Some(begun_s - 100), ..old }).expect("put");
        assert!(store.link(b"not read", b"linked").expect("linked"));
        store.flush().expect("flushed");
        let sequence = stat(&store, b"read").sequence;
        for key in [&b"read"[..], b"read", b"young", b"large", b"linked"] {
            store.get(key).expect("readable").expect("there");
        }
        store.close().expect("closed");
        let store = open(&disk, false);
        for key in [&b"read"[..], b"large", b"linked"] {
            let now = stat(&store, key);
            let key = key.escape_ascii();
            assert!((begun_s..=now_s()).contains(&now.requested_s), "{mode:?} {key}: {now:?}");
            assert_eq!((now.created_s, now.expires_s), (begun_s - 2 * DAY_S, 77), "{mode:?} {key}");
        }
        assert_eq!(stat(&store, b"read").sequence, sequence);
        assert_eq!(stat(&store, b"not read").requested_s, begun_s - 2 * DAY_S, "{mode:?}");
        assert_eq!(stat(&store, b"young").requested_s, begun_s - 100, "{mode:?}: it is not a day old");
        assert_eq!(store.check(|_, _| {}).expect("checked").faults, [], "{mode:?}");
    }
}

#[test]
fn a_get_writes_nothing_itself_and_nothing_is_written_by_who_only_reads() {
    let disk = SimulatedDisk::new("one");
    let store = create(&disk, Mode::Store, 0);
    let old = PutOptions { created_s: Some(now_s() - 2 * DAY_S), ..PutOptions::default() };
    for number in 0..4_000_u32 {
        store.put_deferred(&number.to_le_bytes(), b"body", old).expect("put");
    }
    store.close().expect("closed");
    let before = disk.bytes(BODY).expect("there");
    let store = open(&disk, true);
    (0..4_000_u32).for_each(|number| assert!(store.get(&number.to_le_bytes()).expect("readable").is_some()));
    store.close().expect("closed");
    assert!(disk.bytes(BODY) == Some(before), "read-only");
    // More at once than the writer is given: those that are noted are written, the others stay, and all are as they were put.
    let store = open(&disk, false);
    (0..4_000_u32).for_each(|number| assert!(store.get(&number.to_le_bytes()).expect("readable").is_some()));
    store.close().expect("closed");
    let store = open(&disk, false);
    let is_noted = |number: &u32| stat(&store, &number.to_le_bytes()).requested_s != old.created_s.unwrap();
    let noted = (0..4_000_u32).filter(is_noted).count();
    assert!((1..=4_000).contains(&noted), "{noted}");
    assert_eq!(store.check(|_, _| {}).expect("checked").faults, []);
}

#[test]
fn a_deletion_keeps_its_time_until_nothing_of_the_object_is_left() {
    for clean in [true, false] {
        let (disk, begun_s) = (SimulatedDisk::new("one"), now_s());
        let store = create(&disk, Mode::Store, 0);
        for key in [&b"kept"[..], b"deleted", b"back", b"renamed"] {
            store.put(key, b"1", PutOptions::default()).expect("put");
            store.put(key, b"2", PutOptions::default()).expect("put");
        }
        for key in [&b"deleted"[..], b"back"] {
            assert!(store.delete(key).expect("deleted"));
        }
        store.put(b"back", b"3", PutOptions::default()).expect("put");
        let told = |store: &Store, when: &str| {
            let deleted_s = |key: &[u8]| store.deleted_s(key).expect("readable");
            assert!((begun_s..=now_s()).contains(&deleted_s(b"deleted").expect("known")), "{when}");
            for key in [&b"kept"[..], b"back", b"never there"] {
                assert_eq!(deleted_s(key), None, "{when}: {}", key.escape_ascii());
            }
        };
        told(&store, "at once");
        if clean {
            store.close().expect("closed");
        } else {
            drop(store);
        }
        told(&open(&disk, true), "read-only");
        // Once the index was written anew without the object's records, the tombstone is dropped with them.
        let store = open(&disk, false);
        assert!(store.deleted_s(b"deleted").expect("readable").is_some_and(|seconds| seconds >= begun_s));
        for number in 0..2_000_u32 {
            let key = [b"other", &number.to_le_bytes()[..]].concat();
            store.put_deferred(&key, &[7; 500], PutOptions::default()).expect("put");
        }
        store.flush().expect("flushed");
        assert!(store.deleted_s(b"deleted").expect("readable").is_none_or(|seconds| seconds >= begun_s));
        assert_eq!(store.check(|_, _| {}).expect("checked").faults, []);
    }
}
