//! Space of what has expired is used again, and a store is full only when it is.

use std::sync::Arc;

use disk::Disk;
use packstore::{Clock, OpenOptions, PutOptions, Store, StoreError, VolumeSpec};
use testkit::SimulatedDisk;

use super::{BEGUN_S, body, open, options};

const SIZE_BYTES: u64 = 16 << 20;
const OBJECT_BYTES: usize = 8_000;

fn create(disk: &SimulatedDisk, clock: &Clock, size_bytes: u64) -> Store {
    let volume = VolumeSpec { disk: Arc::new(disk.clone()), size_bytes };
    Store::create(vec![volume], options(clock)).expect("a new store")
}

fn bytes_of(number: u32) -> Vec<u8> {
    vec![number as u8; OBJECT_BYTES]
}

/// One put a second, of which each lives as long as `lives_s` says.
fn churn(store: &Store, clock: &Clock, numbers: std::ops::Range<u32>, lives_s: impl Fn(u32) -> u32) {
    let mut pending = Vec::new();
    for number in numbers {
        clock.set(BEGUN_S + number);
        let options = PutOptions { expires_s: BEGUN_S + number + lives_s(number), ..PutOptions::default() };
        let put = store.put_deferred(&number.to_le_bytes(), &bytes_of(number), options);
        pending.push(put.unwrap_or_else(|error| panic!("{number}: {error}; {:?}", store.usage())));
        if pending.len() == 64 {
            pending.drain(..).for_each(|put| put.wait().expect("put"));
        }
    }
    pending.into_iter().for_each(|put| put.wait().expect("put"));
}

fn written_per_byte(store: &Store, puts: u32) -> f64 {
    let usage = store.usage();
    (usage.body_written_bytes + usage.index_written_bytes) as f64 / (f64::from(puts) * OBJECT_BYTES as f64)
}

#[test]
fn a_store_that_is_nine_tenths_full_of_living_objects_takes_more_for_good_and_writes_each_once() {
    let (disk, clock) = (SimulatedDisk::new("one"), Clock::manual(BEGUN_S));
    let store = create(&disk, &clock, SIZE_BYTES);
    // As many live at a time.
    let lives_s = (SIZE_BYTES * 9 / 10) as u32 / (OBJECT_BYTES as u32 + 200);
    churn(&store, &clock, 0..8 * lives_s, |_| lives_s);
    let usage = store.usage();
    assert!(usage.body_bytes + usage.index_bytes <= SIZE_BYTES, "{usage:?}");
    assert!(usage.expired > u64::from(6 * lives_s), "{usage:?}");
    let written = written_per_byte(&store, 8 * lives_s);
    assert!(written < 1.1, "{written} bytes written for each that was put; {usage:?}");
    for number in 7 * lives_s..8 * lives_s {
        assert!(body(&store, &number.to_le_bytes()) == Some(bytes_of(number)), "{number}");
    }
    assert_eq!(store.check(|_, _| {}).expect("checked").faults, []);
    drop(store);
    let store = open(&disk, &clock, false);
    let there = store.iter().expect("listed").count() as u32;
    assert_eq!(there, lives_s, "what lives is there after a kill, and nothing else");
    churn(&store, &clock, 8 * lives_s..10 * lives_s, |_| lives_s);
    assert_eq!(store.check(|_, _| {}).expect("checked").faults, []);
}

#[test]
fn lifetimes_of_all_lengths_beside_objects_that_stay_leave_room_for_as_much_as_lives() {
    let (disk, clock) = (SimulatedDisk::new("one"), Clock::manual(BEGUN_S));
    let store = create(&disk, &clock, SIZE_BYTES);
    for number in 0..500_u32 {
        store
            .put(&[&b"kept"[..], &number.to_le_bytes()].concat(), &bytes_of(number), PutOptions::default())
            .expect("put");
    }
    // On average 600 live.
    let lives_s = |number: u32| [60, 90, 300, 700, 1_800][number as usize % 5];
    churn(&store, &clock, 0..20_000, lives_s);
    let written = written_per_byte(&store, 20_500);
    assert!(written < 1.3, "{written} bytes written for each that was put");
    for number in 0..20_000_u32 {
        let lives = number + lives_s(number) > 19_999;
        assert_eq!(body(&store, &number.to_le_bytes()).is_some(), lives, "{number}");
    }
    for number in 0..500_u32 {
        let key = [&b"kept"[..], &number.to_le_bytes()].concat();
        assert!(body(&store, &key) == Some(bytes_of(number)), "{number}");
    }
    assert_eq!(store.check(|_, _| {}).expect("checked").faults, []);
}

#[test]
fn a_store_is_full_when_what_lives_fills_it_and_takes_all_kinds_again_once_that_has_expired() {
    let (disk, clock) = (SimulatedDisk::new("one"), Clock::manual(BEGUN_S));
    let store = create(&disk, &clock, 4 << 20);
    // Several lifetimes, the longest first: each has segments of its own.
    let lifetimes = [0, 1_000_000, 10_000, 1_000, 100];
    let mut held = 0;
    let put = |number: u32, lives_s: u32| {
        let expires_s = if lives_s == 0 { 0 } else { store.now_s() + lives_s };
        store.put(&number.to_le_bytes(), &bytes_of(number), PutOptions { expires_s, ..PutOptions::default() })
    };
    for number in 0.. {
        match put(number, lifetimes[number as usize % lifetimes.len()]) {
            Ok(()) => held = number + 1,
            Err(error) => {
                assert!(matches!(error, StoreError::Full), "{error}");
                break;
            }
        }
    }
    let held_bytes = u64::from(held) * OBJECT_BYTES as u64;
    assert!(held_bytes > (4 << 20) * 8 / 10, "full with {held_bytes} bytes of 4 MB");
    assert!((0..held).all(|number| body(&store, &number.to_le_bytes()) == Some(bytes_of(number))));
    clock.set(BEGUN_S + 2_000);
    // Two fifths have expired.
    let again = held * 2 / 5 * 8 / 10;
    for number in held..held + again {
        let lives_s = lifetimes[number as usize % 3];
        put(number, lives_s).unwrap_or_else(|error| panic!("{} of {again}: {error}", number - held));
    }
    for number in 0..held + again {
        let lives = number >= held || number as usize % lifetimes.len() < 3;
        assert_eq!(body(&store, &number.to_le_bytes()).is_some(), lives, "{number}");
    }
    assert_eq!(store.check(|_, _| {}).expect("checked").faults, []);
}

#[test]
fn a_full_disk_is_room_again_when_objects_expire() {
    let clock = Clock::manual(BEGUN_S);
    let disk = SimulatedDisk::new("one").with_room(6 << 20);
    let store = create(&disk, &clock, 64 << 20);
    let put = |number: u32, expires_s| {
        store.put(&number.to_le_bytes(), &bytes_of(number), PutOptions { expires_s, ..PutOptions::default() })
    };
    let held = (0..).find(|&number| put(number, BEGUN_S + 100 + number % 50).is_err()).expect("it ends");
    assert!(matches!(put(held, BEGUN_S + 100), Err(StoreError::Full)));
    clock.set(BEGUN_S + 150);
    for number in held..held + held / 2 {
        put(number, BEGUN_S + 1_000).unwrap_or_else(|error| panic!("{number}, after {held}: {error}"));
    }
    assert!(store.volumes()[0].failed.is_none());
    assert_eq!(store.iter().expect("listed").count() as u32, held / 2);
    drop(store);
    let store = open(&disk, &clock, false);
    assert_eq!(store.iter().expect("listed").count() as u32, held / 2);
    assert_eq!(store.check(|_, _| {}).expect("checked").faults, []);
}

#[test]
fn compaction_moves_what_lives_with_its_time_and_gives_back_what_has_expired() {
    let (disk, clock) = (SimulatedDisk::new("one"), Clock::manual(BEGUN_S));
    let store = create(&disk, &clock, SIZE_BYTES);
    churn(&store, &clock, 0..1_000, |number| if number % 10 == 0 { 5_000 } else { 900 });
    clock.set(BEGUN_S + 2_000);
    let before = store.usage().packed_files;
    store.close().expect("closed");
    let store = open(&disk, &clock, false);
    while store.compact(4 << 20).expect("compacted").more {}
    let usage = store.usage();
    assert!(before > 10 && usage.packed_files <= 3, "{before} files, then {usage:?}");
    assert_eq!(usage.objects, 100);
    for number in (0..1_000_u32).step_by(10) {
        let stat = store.stat(&number.to_le_bytes()).expect("readable").expect("there");
        assert_eq!(stat.expires_s, BEGUN_S + number + 5_000);
    }
    assert_eq!(store.check(|_, _| {}).expect("checked").faults, []);
    clock.set(BEGUN_S + 10_000);
    while store.compact(4 << 20).expect("compacted").more {}
    assert_eq!(store.usage().objects, 0);
}

#[test]
fn two_volumes_each_take_back_the_space_of_what_has_expired() {
    let clock = Clock::manual(BEGUN_S);
    let machine = SimulatedDisk::new("machine");
    let disks = || (0..2).map(|number| Arc::new(machine.beside(&format!("volume{number}"))) as Arc<dyn Disk>);
    let volumes = disks().map(|disk| VolumeSpec { disk, size_bytes: 8 << 20 }).collect();
    let store = Store::create(volumes, options(&clock)).expect("a new store");
    churn(&store, &clock, 0..8_000, |_| 1_500);
    drop(store);
    let options = OpenOptions { clock: clock.clone(), ..OpenOptions::default() };
    let store = Store::open(disks().collect(), options).expect("it opens");
    assert_eq!(store.iter().expect("listed").count(), 1_500);
    assert_eq!(store.check(|_, _| {}).expect("checked").faults, []);
}
