//! A cyclic store overwrites its oldest objects when it is full: the newest stay, and nothing older comes back.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use disk::{Disk, LocalDisk};
use packstore::{Mode, OpenOptions, PutOptions, Store, StoreError, StoreOptions, VolumeSpec};
use tempfile::TempDir;
use testkit::SimulatedDisk;

/// On average.
const OBJECT_BYTES: usize = 10_000;

fn directory() -> TempDir {
    let memory = Path::new("/dev/shm");
    let dir = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    dir.expect("a directory")
}

fn disks(dirs: &[TempDir]) -> Vec<Arc<dyn Disk>> {
    let disk = |dir: &TempDir| Arc::new(LocalDisk::open(dir.path()).expect("it opens")) as Arc<dyn Disk>;
    dirs.iter().map(disk).collect()
}

fn options() -> StoreOptions {
    StoreOptions { cyclic: true, memory_bytes_max: 0, ..StoreOptions::default() }
}

fn create(dirs: &[TempDir], size_bytes: u64) -> Store {
    let volumes = disks(dirs).into_iter().map(|disk| VolumeSpec { disk, size_bytes }).collect();
    Store::create(volumes, options()).expect("a new store")
}

fn open(dirs: &[TempDir]) -> Store {
    Store::open(disks(dirs), OpenOptions { memory_bytes_max: 0, ..OpenOptions::default() }).expect("it opens")
}

fn body(number: u32) -> Vec<u8> {
    let words = 1_500 + number.wrapping_mul(7_919) % 2_000;
    (0..words).flat_map(|at| (number ^ at << 20).to_le_bytes()).collect()
}

fn put(store: &Store, numbers: Range<u32>) {
    let mut pending = Vec::new();
    for number in numbers {
        let put = store.put_deferred(&number.to_le_bytes(), &body(number), PutOptions::default());
        pending.push(put.unwrap_or_else(|error| panic!("{number}: a cyclic store is never full: {error}")));
        if pending.len() == 32 {
            pending.drain(..).for_each(|put| put.wait().expect("put"));
        }
    }
    pending.into_iter().for_each(|put| put.wait().expect("put"));
}

/// Which of the numbers below this are there; each is whole.
fn there(store: &Store, below: u32) -> Vec<u32> {
    let is_there = |number: &u32| match store.get(&number.to_le_bytes()).expect("readable") {
        None => false,
        Some(object) => {
            assert!(object.whole() == Some(&body(*number)[..]), "{number}");
            true
        }
    };
    let there = (0..below).filter(is_there).collect::<Vec<_>>();
    assert_eq!(store.iter().expect("listed").count(), there.len(), "what is listed is what can be read");
    assert_eq!(store.usage().objects, there.len() as u64);
    there
}

#[test]
fn after_three_times_its_size_the_newest_95_percent_are_there_and_nothing_older() {
    const SIZE_BYTES: u64 = 128 << 20;
    let objects = (SIZE_BYTES * 3 / OBJECT_BYTES as u64) as u32;
    let dirs = [directory()];
    let mut store = create(&dirs, SIZE_BYTES);
    // It is stopped, and killed, on the way.
    for (part, how) in [Some(true), Some(false), None].into_iter().enumerate() {
        let from = objects / 3 * part as u32;
        put(&store, from..if part == 2 { objects } else { from + objects / 3 });
        let Some(clean) = how else { continue };
        match clean {
            true => store.close().expect("closed"),
            false => drop(store),
        }
        store = open(&dirs);
    }
    for how in ["as it was", "closed", "killed"] {
        let there = there(&store, objects);
        let bytes = there.iter().map(|&number| body(number).len() as u64).sum::<u64>();
        assert!(bytes >= SIZE_BYTES * 95 / 100, "{how}: {bytes} of {SIZE_BYTES}; {:?}", store.usage());
        assert!(bytes <= SIZE_BYTES, "{how}");
        let expected = objects - there.len() as u32..objects;
        assert!(there.iter().copied().eq(expected), "{how}: the newest, without a gap: {:?}", there.first());
        let usage = store.usage();
        assert!(usage.body_bytes + usage.index_bytes <= SIZE_BYTES, "{usage:?}");
        assert_eq!(store.check(|_, _| {}).expect("checked").faults, [], "{how}");
        match how {
            "as it was" => store.close().expect("closed"),
            _ => drop(store),
        }
        store = open(&dirs);
    }
}

#[test]
fn a_store_that_is_opened_for_each_object_loses_no_more_than_one_that_stays_open() {
    const SIZE_BYTES: u64 = 16 << 20;
    for clean in [true, false] {
        let dirs = [directory()];
        let mut store = create(&dirs, SIZE_BYTES);
        put(&store, 0..2_000);
        for number in 2_000..2_200 {
            match clean {
                true => store.close().expect("closed"),
                false => drop(store),
            }
            store = open(&dirs);
            put(&store, number..number + 1);
        }
        let there = there(&store, 2_200);
        assert!(there.len() as u64 * OBJECT_BYTES as u64 > SIZE_BYTES * 85 / 100, "{clean}: {}", there.len());
        assert!(there.iter().copied().eq(2_200 - there.len() as u32..2_200), "{clean}");
    }
}

#[test]
fn each_of_two_volumes_goes_round_for_itself() {
    const SIZE_BYTES: u64 = 64 << 20;
    let dirs = [directory(), directory()];
    let store = create(&dirs, SIZE_BYTES);
    let objects = (SIZE_BYTES * 2 * 3 / OBJECT_BYTES as u64) as u32;
    put(&store, 0..objects);
    let there = there(&store, objects);
    let bytes = there.len() as u64 * OBJECT_BYTES as u64;
    assert!(bytes > SIZE_BYTES * 2 * 90 / 100, "{bytes}");
    let oldest = objects - *there.first().expect("some");
    assert!(u64::from(oldest) * (OBJECT_BYTES as u64) < SIZE_BYTES * 2 * 11 / 10, "{oldest} back");
    drop(store);
    assert_eq!(self::there(&open(&dirs), objects), there);
}

#[test]
fn what_was_deleted_or_replaced_is_not_back_when_its_turn_has_come_and_gone() {
    let dirs = [directory(), directory()];
    let mut store = create(&dirs, 8 << 20);
    let name = |number: u32| [&b"changed"[..], &number.to_le_bytes()].concat();
    for round in 0..6_u32 {
        for number in 0..100 {
            if number % 3 == round % 3 {
                store.delete(&name(number)).expect("deleted");
            } else {
                let body = [round; 500].iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
                store.put(&name(number), &body, PutOptions::default()).expect("put");
            }
        }
        let from = round * 400;
        put(&store, from..from + 400);
        drop(store);
        store = open(&dirs);
        for number in 0..100 {
            let Some(object) = store.get(&name(number)).expect("readable") else { continue };
            assert_ne!(number % 3, round % 3, "{number} is back");
            let last = u32::from_le_bytes(*object.whole().expect("small").first_chunk().expect("some"));
            assert_eq!(last, round, "{number}: an older version is back");
        }
        assert_eq!(store.check(|_, _| {}).expect("checked").faults, []);
    }
}

#[test]
fn a_large_object_is_there_as_a_whole_or_not_at_all_and_one_that_cannot_fit_is_refused() {
    const SIZE_BYTES: u64 = 16 << 20;
    let dirs = [directory()];
    let mut store = create(&dirs, SIZE_BYTES);
    let large = |number: u8| vec![number; 1_000_000];
    store.put(b"replaced", b"old", PutOptions::default()).expect("put");
    store.put(b"replaced", &large(0), PutOptions::default()).expect("put");
    for number in 1..60_u8 {
        store.put(&[number], &large(number), PutOptions::default()).expect("put");
        if number.is_multiple_of(9) {
            drop(store);
            store = open(&dirs);
        }
        let there = (1..=number).filter(|&older| match store.get(&[older]).expect("no error") {
            None => false,
            Some(object) => {
                assert!(object.read_all().expect("whole") == large(older), "{older}");
                true
            }
        });
        let there = there.collect::<Vec<_>>();
        assert!(there.len() >= usize::from(number.min(10)), "{number}: {there:?}");
        assert_eq!(there.last(), Some(&number));
        let replaced =
            store.get(b"replaced").expect("no error").map(|object| object.read_all().expect("whole"));
        assert!(replaced.is_none_or(|body| body == large(0)), "{number}: what it had replaced is back");
        assert_eq!(store.check(|_, _| {}).expect("checked").faults, [], "{number}");
    }
    let wrong = store.put(b"huge", &vec![0; 9 << 20], PutOptions::default());
    assert!(
        matches!(wrong, Err(StoreError::Length { what: "object", bytes_max, .. }) if bytes_max == SIZE_BYTES / 2)
    );
    assert!(store.get(b"huge").expect("no error").is_none());
    // Its pieces, some of which are overwritten already, take nothing of others with them.
    let count = store.iter().expect("listed").count() as u64;
    assert_eq!(store.usage().objects, count);
    for number in 1..60_u8 {
        store.delete(&[number]).expect("deleted");
    }
    store.flush().expect("flushed");
    assert_eq!(store.check(|_, _| {}).expect("checked").faults, []);
}

/// The segment of the older version cannot be filled, as its blocks are being sent: its index still names that version.
#[test]
fn a_large_object_that_lost_pieces_does_not_leave_its_key_to_what_it_had_replaced() {
    let dirs = [directory()];
    let store = create(&dirs, 8 << 20);
    store.put(b"key", b"old", PutOptions::default()).expect("put");
    store.put(b"sent", &[1; 5_000], PutOptions::default()).expect("put");
    store.put(b"key", &vec![2; 1 << 20], PutOptions::default()).expect("put");
    let sent = store.extents(b"sent").expect("readable").expect("it has descriptors");
    let mut number = 0;
    while store.get(b"key").expect("no error").is_some() {
        assert!(number < 2_000, "it is overwritten at last");
        put(&store, number..number + 1);
        number += 1;
    }
    drop(store);
    drop(sent);
    let store = open(&dirs);
    assert!(store.get(b"key").expect("no error").is_none(), "an older version is back");
    assert_eq!(store.check(|_, _| {}).expect("checked").faults, []);
}

#[test]
fn a_second_name_is_a_copy_and_compaction_leaves_the_order_alone() {
    let dirs = [directory()];
    let store = create(&dirs, 16 << 20);
    let large = vec![8; 700_000];
    for (key, body) in [(&b"small"[..], &b"body"[..]), (b"large", &large)] {
        let options = PutOptions { meta: b"meta", created_s: Some(5), ..PutOptions::default() };
        store.put(key, body, options).expect("put");
        assert!(store.link(key, b"second").expect("linked"));
        let second = store.get(b"second").expect("readable").expect("there");
        assert_eq!((second.meta(), second.stat().created_s), (&b"meta"[..], 5));
        assert!(second.read_all().expect("whole") == body);
        assert!(store.delete(key).expect("deleted"));
        assert!(store.rename(b"second", key).expect("renamed"));
        assert!(store.get(b"second").expect("readable").is_none());
        assert!(store.get(key).expect("readable").expect("there").read_all().expect("whole") == body);
    }
    assert!(!store.link(b"none", b"second").expect("no error"));
    put(&store, 0..300);
    (0..299_u32).for_each(|number| assert!(store.delete(&number.to_le_bytes()).expect("no error")));
    let before = store.usage().packed_files;
    assert_eq!(store.compact(1 << 30).expect("compacted"), packstore::CompactReport::default());
    assert_eq!(store.usage().packed_files, before);
}

#[test]
fn readers_beside_a_writer_that_overwrites_what_they_read_get_objects_whole_or_not_at_all() {
    const OBJECTS: u32 = 12_000;
    let dirs = [directory()];
    let store = create(&dirs, 16 << 20);
    let (newest, ended, hits) = (AtomicU32::new(0), AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..6_u32 {
            let (store, newest, ended, hits) = (&store, &newest, &ended, &hits);
            scope.spawn(move || {
                for step in 0_u32.. {
                    if ended.load(Ordering::Relaxed) && hits.load(Ordering::Relaxed) > 1_000 {
                        return;
                    }
                    let newest = newest.load(Ordering::Relaxed);
                    // Around those that are overwritten next.
                    let number = newest - (1_000 + step.wrapping_mul(7 + thread) % 700).min(newest);
                    if let Some(object) = store.get(&number.to_le_bytes()).expect("no error") {
                        assert!(object.whole() == Some(&body(number)[..]), "{number}");
                        hits.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        for number in (0..OBJECTS).step_by(50) {
            put(&store, number..number + 50);
            newest.store(number + 49, Ordering::Relaxed);
        }
        ended.store(true, Ordering::Relaxed);
    });
    let there = there(&store, OBJECTS);
    assert!(there.iter().copied().eq(OBJECTS - there.len() as u32..OBJECTS));
}

#[test]
fn objects_of_a_cyclic_store_may_have_a_time_to_live_too_and_are_overwritten_in_their_turn() {
    let clock = packstore::Clock::manual(1_000);
    let disk = SimulatedDisk::new("one");
    let volume = VolumeSpec { disk: Arc::new(disk.clone()), size_bytes: 12 << 20 };
    let made = StoreOptions { expires: true, clock: clock.clone(), ..options() };
    let store = Store::create(vec![volume], made).expect("a new store");
    let lives = |number: u32| number.is_multiple_of(3);
    for number in 0..3_000_u32 {
        let options =
            PutOptions { expires_s: if lives(number) { 0 } else { 1_010 }, ..PutOptions::default() };
        store.put_deferred(&number.to_le_bytes(), &body(number), options).expect("put");
    }
    store.flush().expect("flushed");
    clock.set(1_010);
    let all = (0..3_000_u32).filter(|number| store.get(&number.to_le_bytes()).expect("readable").is_some());
    let there = all.collect::<Vec<_>>();
    assert!(there.iter().copied().eq((there[0]..3_000).filter(|&number| lives(number))));
    assert!(there.len() > 300, "{}", there.len());
    let open = |clean: bool, store: Store| {
        match clean {
            true => store.close().expect("closed"),
            false => drop(store),
        }
        let options = OpenOptions { clock: clock.clone(), ..OpenOptions::default() };
        Store::open(vec![Arc::new(disk.clone())], options).expect("it opens")
    };
    let before = store.iter().expect("listed").count();
    let store = open(false, open(true, store));
    assert_eq!(store.iter().expect("listed").count(), before);
    put(&store, 3_000..6_000);
    assert_eq!(store.check(|_, _| {}).expect("checked").faults, []);
}

#[test]
fn on_a_disk_that_is_smaller_than_the_store_it_goes_round_within_what_there_is() {
    let disk = SimulatedDisk::new("one").with_room(6 << 20);
    let volume = VolumeSpec { disk: Arc::new(disk.clone()), size_bytes: 64 << 20 };
    let store = Store::create(vec![volume], options()).expect("a new store");
    put(&store, 0..2_000);
    assert!(store.volumes()[0].failed.is_none());
    let there = self::there(&store, 2_000);
    assert!(there.len() > 250, "{}", there.len());
    assert!(there.iter().copied().eq(2_000 - there.len() as u32..2_000));
    drop(store);
    let store = Store::open(vec![Arc::new(disk)], OpenOptions::default()).expect("it opens");
    assert_eq!(self::there(&store, 2_000), there);
}

#[test]
fn a_cyclic_cache_and_one_of_few_segments_are_refused() {
    let volume = || VolumeSpec { disk: Arc::new(SimulatedDisk::new("one")), size_bytes: 4 << 20 };
    let small = Store::create(vec![volume()], options());
    assert!(matches!(small, Err(StoreError::Setting { name: "the size of a volume in bytes", .. })));
    let cache = Store::create(vec![volume()], StoreOptions { mode: Mode::Cache, ..options() });
    assert!(matches!(cache, Err(StoreError::Setting { name: "cyclic", .. })));
}
