//! Objects with a time to live: they are gone when it is over, and their space is used again.

mod model;
mod space;
mod threads;

use std::sync::Arc;

use disk::{Disk, DiskOpen};
use packstore::{Begun, Clock, Mode, OpenOptions, PutOptions, Store, StoreError, StoreOptions, VolumeSpec};
use testkit::SimulatedDisk;

const BEGUN_S: u32 = 1_000_000_000;
const BODY: &str = "00000000.body";

fn options(clock: &Clock) -> StoreOptions {
    StoreOptions {
        expires: true,
        packed_blocks: Some((512 << 10) / 64),
        clock: clock.clone(),
        ..StoreOptions::default()
    }
}

fn create(disk: &SimulatedDisk, clock: &Clock) -> Store {
    let volume = VolumeSpec { disk: Arc::new(disk.clone()), size_bytes: 8 << 20 };
    Store::create(vec![volume], options(clock)).expect("a new store")
}

fn open(disk: &SimulatedDisk, clock: &Clock, read_only: bool) -> Store {
    let disks = vec![Arc::new(disk.clone()) as Arc<dyn Disk>];
    let options = OpenOptions { read_only, clock: clock.clone(), ..OpenOptions::default() };
    Store::open(disks, options).expect("it opens")
}

/// Expires this many seconds after the beginning.
fn lives(seconds: u32) -> PutOptions<'static> {
    PutOptions { expires_s: BEGUN_S + seconds, ..PutOptions::default() }
}

fn body(store: &Store, key: &[u8]) -> Option<Vec<u8>> {
    store.get(key).expect("readable").map(|object| object.read_all().expect("whole"))
}

fn keys(store: &Store) -> Vec<Vec<u8>> {
    store.iter_ordered(b"").expect("listed").map(|entry| entry.key).collect()
}

/// Stops and opens again: cleanly, by a kill, or read-only.
fn reopened(store: Store, disk: &SimulatedDisk, clock: &Clock, how: usize) -> Store {
    match how {
        0 => store.close().expect("closed"),
        _ => drop(store),
    }
    open(disk, clock, how == 2)
}

#[test]
fn what_has_expired_is_gone_for_every_way_of_asking_and_what_has_not_is_there() {
    let (disk, clock) = (SimulatedDisk::new("one"), Clock::manual(BEGUN_S));
    let store = create(&disk, &clock);
    for key in [&b"kept"[..], b"later", b"soon", b"soon large"] {
        let large = key.ends_with(b"large");
        let options = match key {
            b"kept" => PutOptions::default(),
            b"later" => lives(11),
            _ => lives(10),
        };
        store.put(key, &vec![7; if large { 300 << 10 } else { 100 }], options).expect("put");
    }
    clock.set(BEGUN_S + 9);
    assert_eq!(keys(&store).len(), 4);
    assert_eq!(store.stat(b"soon").expect("readable").expect("there").expires_s, BEGUN_S + 10);
    // In the memory tier, too.
    assert!(body(&store, b"soon").is_some() && body(&store, b"soon large").is_some());
    let being_read = store.get(b"soon large").expect("readable").expect("there");
    clock.set(BEGUN_S + 10);
    for key in [&b"soon"[..], b"soon large"] {
        assert!(store.get(key).expect("no error").is_none());
        assert!(store.stat(key).expect("no error").is_none());
        assert!(store.attributes(key).expect("no error").is_none());
        assert!(store.extents(key).expect("no error").is_none());
        assert!(matches!(store.begin_get(key), Ok(Begun::Done(None))));
        assert!(
            !store.link(key, b"second").expect("no error")
                && !store.rename(key, b"second").expect("no error")
        );
        assert!(!store.touch(key, None).expect("no error"));
        assert_eq!(store.deleted_s(key).expect("no error"), None);
    }
    assert_eq!(keys(&store), [&b"kept"[..], b"later"]);
    let report = store.check(|_, _| {}).expect("checked");
    assert_eq!((report.faults, report.objects), (vec![], 2));
    assert_eq!(store.forget_expired().expect("swept"), 2);
    assert!(being_read.read_all().expect("whoever reads it has all of it") == vec![7; 300 << 10]);
    drop(being_read);
    store.forget_expired().expect("swept");
    let usage = store.usage();
    assert_eq!((usage.objects, usage.expired), (2, 2));
    assert!(usage.live_bytes < 1_000, "its pieces went when the reader did: {usage:?}");
    assert!(!store.delete(b"soon").expect("no error"));
    assert!(store.delete(b"later").expect("deleted"));
}

#[test]
fn a_put_gives_its_key_the_time_to_live_that_it_has_itself_whatever_the_key_had_before() {
    for how in 0..3 {
        let (disk, clock) = (SimulatedDisk::new("one"), Clock::manual(BEGUN_S));
        let store = create(&disk, &clock);
        let put = |key: &[u8], body: &[u8], options| store.put(key, body, options).expect("put");
        put(b"longer", b"1", lives(10));
        put(b"longer", b"2", lives(100));
        put(b"shorter", b"1", lives(100));
        put(b"shorter", b"2", lives(10));
        put(b"without", b"1", lives(10));
        put(b"without", b"2", PutOptions::default());
        put(b"with", b"1", PutOptions::default());
        put(b"with", b"2", lives(10));
        put(b"over", b"1", lives(10));
        put(b"is over", b"1", PutOptions { expires_s: BEGUN_S, ..PutOptions::default() });
        clock.set(BEGUN_S + 20);
        put(b"over", b"2", PutOptions::default());
        let store = reopened(store, &disk, &clock, how);
        let there = |key: &[u8]| body(&store, key);
        assert_eq!(there(b"longer").as_deref(), Some(&b"2"[..]), "{how}");
        assert_eq!(there(b"without").as_deref(), Some(&b"2"[..]), "{how}");
        assert_eq!(there(b"over").as_deref(), Some(&b"2"[..]), "{how}");
        for key in [&b"shorter"[..], b"with", b"is over"] {
            assert_eq!(there(key), None, "{how}: {} is back", key.escape_ascii());
        }
        assert_eq!(keys(&store), [&b"longer"[..], b"over", b"without"], "{how}");
        assert_eq!(store.check(|_, _| {}).expect("checked").faults, [], "{how}");
    }
}

#[test]
fn all_names_of_an_object_go_when_it_does_and_a_name_that_was_put_again_stays() {
    for (how, large) in (0..3).flat_map(|how| [(how, false), (how, true)]) {
        let (disk, clock) = (SimulatedDisk::new("one"), Clock::manual(BEGUN_S));
        let store = create(&disk, &clock);
        let bytes = vec![3; if large { 200 << 10 } else { 10 }];
        store.put(b"first", &bytes, lives(10)).expect("put");
        assert!(store.link(b"first", b"second").expect("linked"));
        assert!(store.link(b"second", b"third").expect("linked"));
        assert!(store.rename(b"third", b"fourth").expect("renamed"));
        store.put(b"second", b"new", PutOptions::default()).expect("put");
        assert_eq!(store.stat(b"fourth").expect("readable").expect("there").expires_s, BEGUN_S + 10);
        assert_eq!(body(&store, b"fourth"), Some(bytes.clone()));
        clock.set(BEGUN_S + 10);
        if large {
            store.forget_expired().expect("swept");
        }
        let store = reopened(store, &disk, &clock, how);
        assert_eq!(keys(&store), [b"second"], "{how} {large}");
        assert_eq!(body(&store, b"second").as_deref(), Some(&b"new"[..]), "{how} {large}");
        assert!(body(&store, b"first").is_none() && body(&store, b"fourth").is_none());
        assert_eq!(store.check(|_, _| {}).expect("checked").faults, [], "{how} {large}");
        if how != 2 {
            store.forget_expired().expect("swept");
            assert!(store.usage().live_bytes < 1_000, "{how} {large}: {:?}", store.usage());
            store.put(b"first", b"again", PutOptions::default()).expect("put");
            assert_eq!(keys(&store).len(), 2, "{how} {large}");
        }
    }
}

/// A large object that has expired and is swept in part must not leave its key to what it had replaced.
#[test]
fn what_a_swept_object_replaced_stays_replaced_after_a_kill() {
    for (how, large) in [(0, false), (0, true), (1, false), (1, true)] {
        let (disk, clock) = (SimulatedDisk::new("one"), Clock::manual(BEGUN_S));
        let mut store = create(&disk, &clock);
        store.put(b"key", b"old", PutOptions::default()).expect("put");
        let bytes = vec![5; if large { 300 << 10 } else { 100 }];
        store.put(b"key", &bytes, lives(100)).expect("put");
        clock.set(BEGUN_S + 100);
        store.forget_expired().expect("swept");
        for round in 0..40_u32 {
            // Its segments are filled again, one after the other, and their indexes are rewritten without it.
            let fill = vec![round as u8; 100 << 10];
            store
                .put(b"fill", &fill, PutOptions { expires_s: BEGUN_S + 100 + round, ..lives(0) })
                .expect("put");
            clock.set(BEGUN_S + 101 + round);
            if round % 10 == 9 {
                store = reopened(store, &disk, &clock, how);
                assert_eq!(body(&store, b"key"), None, "{how} {large}: round {round}");
                assert_eq!(keys(&store), [[0_u8; 0]; 0], "{how} {large}: round {round}");
            }
        }
        assert_eq!(store.check(|_, _| {}).expect("checked").faults, [], "{how} {large}");
    }
}

/// As above, when only the segment of some of its pieces was filled again, and the index with its list is as it was.
#[test]
fn a_large_object_that_lost_some_pieces_when_it_expired_stays_gone_after_a_kill() {
    let (disk, clock) = (SimulatedDisk::new("one"), Clock::manual(BEGUN_S));
    let store = create(&disk, &clock);
    store.put(b"key", b"old", PutOptions::default()).expect("put");
    // More than a segment: the list of its pieces is in the second, with what keeps that from being filled first.
    store.put(b"key", &vec![5; 600 << 10], lives(100)).expect("put");
    store.put(b"beside", b"1", lives(5_000)).expect("put");
    clock.set(BEGUN_S + 100);
    store.forget_expired().expect("swept");
    store.put(b"again", b"1", lives(5_000)).expect("put");
    drop(store);
    let store = open(&disk, &clock, false);
    assert_eq!(body(&store, b"key"), None, "what it had replaced is back");
    assert_eq!(keys(&store), [&b"again"[..], b"beside"]);
    assert_eq!(store.check(|_, _| {}).expect("checked").faults, []);
}

#[test]
fn a_clock_that_is_set_back_brings_nothing_back_and_one_that_was_ahead_costs_nothing_put_since() {
    for how in 0..2 {
        let (disk, clock) = (SimulatedDisk::new("one"), Clock::manual(BEGUN_S));
        let store = create(&disk, &clock);
        store.put(b"kept", b"1", PutOptions::default()).expect("put");
        store.put(b"soon", &vec![1; 300 << 10], lives(10)).expect("put");
        store.put(b"later", b"1", lives(1_000)).expect("put");
        clock.set(BEGUN_S + 20);
        assert!(body(&store, b"soon").is_none());
        clock.set(BEGUN_S - 1_000);
        assert!(body(&store, b"soon").is_none(), "while it is open");
        assert_eq!(store.now_s(), BEGUN_S + 20);
        // Something is written over a part of it, so the time is on disk.
        store.forget_expired().expect("swept");
        for number in 0..80_u32 {
            store.put(&number.to_le_bytes(), &[9; 50_000], PutOptions::default()).expect("put");
        }
        let store = reopened(store, &disk, &clock, how);
        assert!(body(&store, b"soon").is_none(), "{how}: a part of it is left");
        assert!(body(&store, b"kept").is_some() && body(&store, b"later").is_some());
        // A time to live is counted by the store's clock.
        assert_eq!(store.now_s(), BEGUN_S + 20, "{how}");
        let options = PutOptions { expires_s: store.now_s() + 5, ..PutOptions::default() };
        store.put(b"new", b"1", options).expect("put");
        assert!(body(&store, b"new").is_some());
        assert_eq!(store.check(|_, _| {}).expect("checked").faults, [], "{how}");
    }
}

#[test]
fn other_stores_keep_what_has_expired_and_a_cache_cannot_be_made_to_lose_it() {
    for mode in [Mode::Store, Mode::Cache] {
        let (disk, clock) = (SimulatedDisk::new("one"), Clock::manual(BEGUN_S));
        let volume = VolumeSpec { disk: Arc::new(disk.clone()), size_bytes: 8 << 20 };
        let store =
            Store::create(vec![volume.clone()], StoreOptions { mode, expires: false, ..options(&clock) });
        let store = store.expect("a new store");
        store.put(b"key", b"stale", lives(10)).expect("put");
        clock.set(BEGUN_S + 10);
        assert!(!store.expires());
        assert_eq!(body(&store, b"key").as_deref(), Some(&b"stale"[..]), "{mode:?}");
        assert!(store.touch(b"key", Some(77)).expect("touched"));
        assert_eq!(store.forget_expired().expect("nothing is swept"), 0);
        store.close().expect("closed");
        let version = |name| disk.bytes(name).expect("there")[8];
        assert_eq!((version("volume"), version("table")), (1, 1), "earlier programs open it");
        let again = Store::create(vec![volume], StoreOptions { mode: Mode::Cache, ..options(&clock) });
        assert!(matches!(again, Err(StoreError::Setting { name: "expires", .. })), "{mode:?}");
    }
}

#[test]
fn programs_that_know_no_times_to_live_refuse_the_store_by_its_version() {
    let (disk, clock) = (SimulatedDisk::new("one"), Clock::manual(BEGUN_S));
    create(&disk, &clock).close().expect("closed");
    for (name, at) in [("volume", 8), ("volume.copy", 16), ("table", 8)] {
        assert_eq!(disk.bytes(name).expect("there")[at], 2, "{name}");
    }
    // And so does this one what it does not know.
    for name in ["volume", "volume.copy"] {
        let head_at = if name == "volume" { 0 } else { 8 };
        let mut bytes = disk.bytes(name).expect("there");
        bytes[head_at + 74] |= 0x80;
        let sum = crc32c(&bytes[head_at..head_at + 92]);
        bytes[head_at + 92..head_at + 96].copy_from_slice(&sum.to_le_bytes());
        let end = bytes.len() - 4;
        if name == "volume.copy" {
            let sum = crc32c(&bytes[..end]);
            bytes[end..].copy_from_slice(&sum.to_le_bytes());
        }
        disk.open(name, DiskOpen::Write).and_then(|file| file.write_at(&bytes, 0)).expect("written");
    }
    let refused = Store::open(vec![Arc::new(disk)], OpenOptions::default());
    let error = refused.err().expect("it is refused").to_string();
    assert!(error.contains("properties that this program does not know"), "{error}");
}

fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |sum: u32, &byte| {
        (0..8).fold(sum ^ u32::from(byte), |sum, _| sum >> 1 ^ if sum & 1 == 1 { 0x82f6_3b78 } else { 0 })
    })
}

#[test]
fn a_time_to_live_is_changed_by_a_put_alone() {
    let (disk, clock) = (SimulatedDisk::new("one"), Clock::manual(BEGUN_S));
    let store = create(&disk, &clock);
    store.put(b"key", b"1", lives(10)).expect("put");
    assert!(
        store.touch(b"key", None).expect("touched")
            && store.touch(b"key", Some(BEGUN_S + 10)).expect("touched")
    );
    assert!(matches!(store.touch(b"key", Some(BEGUN_S + 11)), Err(StoreError::Expiry)));
    assert_eq!(store.stat(b"key").expect("readable").expect("there").expires_s, BEGUN_S + 10);
}

/// Times are not covered by the checksum of a record's head, as they change in place. Damaged ones must not keep an object for good.
#[test]
fn an_object_whose_times_are_damaged_is_an_error_and_not_one_that_never_expires() {
    let (disk, clock) = (SimulatedDisk::new("one"), Clock::manual(BEGUN_S));
    let store = create(&disk, &clock);
    store.put(b"key", b"1", lives(10)).expect("put");
    store.put(b"other", b"1", lives(10)).expect("put");
    assert!(disk.flip(BODY, 36 * 8));
    assert!(matches!(store.get(b"key"), Err(StoreError::Damaged { .. })));
    assert_eq!(store.check(|_, _| {}).expect("checked").faults.len(), 1);
    assert!(body(&store, b"other").is_some());
    let repaired = store.repair(|_, _| {}).expect("repaired");
    assert_eq!((repaired.deleted, repaired.left), (1, vec![]));
    assert_eq!(keys(&store), [b"other"]);
}
