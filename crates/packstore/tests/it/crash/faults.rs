//! What faults of disks cost: failed writes and syncs, volumes that vanish, flipped bits; and a cache whose power is lost.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use disk::{Disk, DiskOpen};
use packstore::{CacheOptions, Mode, OpenOptions, PutOptions, Store, StoreError, StoreOptions, VolumeSpec};
use testkit::{DiskFault, DiskOperation, SimulatedDisk};

use super::model::{body, mixed};

fn store_on(disks: &[&SimulatedDisk]) -> Store {
    let volumes =
        disks.iter().map(|disk| VolumeSpec { disk: Arc::new((*disk).clone()), size_bytes: 8 << 20 });
    let options = StoreOptions { packed_blocks: Some((512 << 10) / 64), ..StoreOptions::default() };
    Store::create(volumes.collect(), options).expect("a new store")
}

fn open(disks: &[&SimulatedDisk]) -> Result<Store, StoreError> {
    let disks = disks.iter().map(|disk| Arc::new((*disk).clone()) as Arc<dyn Disk>).collect();
    Store::open(disks, OpenOptions::default())
}

fn key(number: u64) -> Vec<u8> {
    format!("key {number}").into_bytes()
}

fn put(store: &Store, number: u64) -> Result<(), StoreError> {
    store.put(&key(number), &body(number), PutOptions::default())
}

fn get(store: &Store, number: u64) -> Result<Option<Vec<u8>>, StoreError> {
    store.get(&key(number))?.map(|object| object.read_all()).transpose()
}

fn all_there(store: &Store, numbers: impl IntoIterator<Item = u64>) {
    for number in numbers {
        let held = get(store, number).unwrap_or_else(|error| panic!("{number}: {error}"));
        assert!(held == Some(body(number)), "{number} is not as it was put");
    }
}

#[test]
fn after_a_failed_write_or_sync_only_that_volume_is_read_only_and_nothing_acknowledged_is_lost() {
    let faults = [
        (DiskOperation::Write, DiskFault::Half),
        (DiskOperation::Write, DiskFault::Refused(io::ErrorKind::Other)),
        (DiskOperation::Sync, DiskFault::SyncLost),
        (DiskOperation::Sync, DiskFault::Refused(io::ErrorKind::Other)),
    ];
    for (operation, fault) in faults {
        for spared in 0..12 {
            let one = SimulatedDisk::new("one");
            let two = SimulatedDisk::new("two");
            let store = store_on(&[&one, &two]);
            (0..20).for_each(|number| put(&store, number).expect("nothing is wrong yet"));
            one.fail(operation, None, spared, 1, fault);
            let when = format!("{operation:?} {fault:?} after {spared}");
            let acknowledged = (20..120).filter(|&number| put(&store, number).is_ok()).collect::<Vec<_>>();
            assert!(acknowledged.len() > 90, "{when}: the other volume goes on: {}", acknowledged.len());
            all_there(&store, (0..20).chain(acknowledged.iter().copied()));
            assert!((500..520).all(|number| put(&store, number).is_ok()), "{when}");
            drop(store);
            for seed in 0..3 {
                let cut = [one.power_cut(seed), two.power_cut(seed)];
                let store = open(&[&cut[0], &cut[1]]).unwrap_or_else(|error| panic!("{when}: {error}"));
                all_there(&store, (0..20).chain(acknowledged.iter().copied()).chain(500..520));
            }
        }
    }
}

#[test]
fn a_store_whose_only_volume_failed_says_so_and_goes_on_reading() {
    let disk = SimulatedDisk::new("one");
    let store = store_on(&[&disk]);
    (0..20).for_each(|number| put(&store, number).expect("nothing is wrong yet"));
    disk.fail(DiskOperation::Sync, None, 0, 1, DiskFault::SyncLost);
    let failed = put(&store, 20).expect_err("its sync failed");
    assert!(matches!(failed, StoreError::VolumeFailed { .. }), "{failed}");
    for number in 21..30 {
        let refused = put(&store, number).expect_err("a second sync proves nothing");
        assert!(refused.to_string().contains("one"), "{refused}");
    }
    assert!(store.delete(&key(1)).is_err());
    assert!(store.flush().is_err());
    all_there(&store, 0..20);
    drop(store);
    all_there(&open(&[&disk.power_cut(1)]).expect("it opens"), 0..20);
}

#[test]
fn a_volume_that_vanishes_costs_its_objects_alone_and_they_are_back_with_it() {
    let one = SimulatedDisk::new("one");
    let two = SimulatedDisk::new("two");
    let store = store_on(&[&one, &two]);
    (0..100).for_each(|number| put(&store, number).expect("nothing is wrong"));
    one.vanish(true);
    let held = (0..100).map(|number| get(&store, number)).collect::<Vec<_>>();
    let whole = held
        .iter()
        .zip(0..)
        .filter(|(held, number)| matches!(held, Ok(Some(bytes)) if *bytes == body(*number)));
    let whole = whole.count();
    assert!((20..80).contains(&whole), "{whole} of 100 lie on the other volume");
    let none = held.iter().filter(|held| matches!(held, Ok(None))).count();
    assert_eq!(none, 0, "an object that cannot be read is no object that is not there");
    let put_since = (200..260).filter(|&number| put(&store, number).is_ok()).collect::<Vec<_>>();
    assert!(put_since.len() > 50, "the other volume takes them: {}", put_since.len());
    all_there(&store, put_since.iter().copied());
    drop(store);
    one.vanish(false);
    let store = open(&[&one, &two]).expect("both are there again");
    all_there(&store, (0..100).chain(put_since));
}

#[test]
fn a_flipped_bit_anywhere_is_never_served_and_costs_at_most_what_it_hit() {
    let disk = SimulatedDisk::new("one");
    let store = store_on(&[&disk]);
    // Each key has an older version on disk, which must not come back.
    (0..40).for_each(|number| {
        store.put(&key(number), &body(number + 1_000), PutOptions::default()).expect("put");
        put(&store, number).expect("put");
    });
    (40..60).for_each(|number| {
        put(&store, number).expect("put");
        assert!(store.delete(&key(number)).expect("deleted"));
    });
    drop(store);
    let names = disk.names().expect("listed");
    let (mut flipped, mut errors, mut missing) = (0, 0, 0);
    let (mut costly, mut stale) = (Vec::new(), Vec::new());
    for name in names {
        let bytes = disk.bytes(&name).expect("it is there");
        let used = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last as u64 + 1) * 8;
        for drawn in 0..400.min(used) {
            // The first bits one by one, as heads lie there; of the others, some.
            let bit = if drawn < 200 { drawn * 5 % used } else { mixed(drawn) % used };
            let image = disk.process_end();
            assert!(image.flip(&name, bit));
            flipped += 1;
            let Ok(store) = open(&[&image]) else {
                errors += 1;
                continue;
            };
            let mut harmed = 0;
            for number in 0..60 {
                let wanted = (number < 40).then(|| body(number));
                match get(&store, number) {
                    Ok(held) if held == wanted => {}
                    Ok(None) => (harmed, missing) = (harmed + 1, missing + 1),
                    Ok(Some(held)) => {
                        let older = held == body(number + 1_000) || held == body(number);
                        assert!(older, "{name} bit {bit}: {number} is served wrong");
                        stale.push((name.clone(), bit, number));
                    }
                    Err(_) => (harmed, errors) = (harmed + 1, errors + 1),
                }
            }
            if harmed > 2 {
                costly.push((name.clone(), bit, harmed));
            }
        }
    }
    let _ = io::Write::write_fmt(
        &mut io::stderr(),
        format_args!("{flipped} bits flipped: {errors} errors, {missing} objects missing without one\n"),
    );
    assert!(flipped > 500 && errors > 50);
    assert!(stale.is_empty(), "file, bit, key that names again what it named before: {stale:?}");
    assert!(costly.is_empty(), "file, bit, objects harmed by it alone: {costly:?}");
}

/// More than a flipped bit cannot be repaired. What the block made void must stay void all the same, also after the index
/// was written anew, until somebody puts, deletes or repairs.
#[test]
fn an_index_record_that_is_lost_and_a_kill_bring_nothing_back() {
    let disk = SimulatedDisk::new("one");
    let store = store_on(&[&disk]);
    for number in 0..20 {
        store.put(&key(number), &body(number + 1_000), PutOptions::default()).expect("put");
        put(&store, number).expect("put");
    }
    for number in 20..30 {
        put(&store, number).expect("put");
        assert!(store.delete(&key(number)).expect("deleted"));
    }
    let name = "00000000.index";
    // A tombstone is told again when half a kilobyte more was told: at the second try, as the disk is full at each first.
    for number in 50..80 {
        disk.fail(DiskOperation::Write, Some(name), 0, 1, DiskFault::Refused(io::ErrorKind::StorageFull));
        let refused = put(&store, number).expect_err("a full disk");
        assert!(matches!(refused, StoreError::Full), "{refused}");
        put(&store, number).expect("put");
    }
    drop(store);
    let bytes = disk.bytes(name).expect("it is there");
    let used = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last as u64 + 1);
    let (mut errors, mut missing, mut repaired) = (0, 0, 0);
    for at in (64..used - 64).step_by(8) {
        let image = disk.process_end();
        assert!(image.flip(name, at * 8 + 1) && image.flip(name, at * 8 + 38));
        // Twice: what the first opening found out must not be forgotten.
        for round in 0..2 {
            let store = open(&[&image]).expect("it opens");
            for number in (0..30).chain(50..80) {
                let wanted = (!(20..30).contains(&number)).then(|| body(number));
                match get(&store, number) {
                    Ok(held) if held == wanted => {}
                    // The index may have been written anew meanwhile, without the damage: then it is just gone.
                    Ok(None) => missing += u64::from(round == 0),
                    Ok(Some(held)) => {
                        let older = held == body(number + 1_000) || held == body(number);
                        panic!("byte {at}, opening {round}: {number} is served wrong, older: {older}");
                    }
                    Err(StoreError::Damaged { .. }) => errors += 1,
                    Err(error) => panic!("byte {at}: {number}: {error}"),
                }
            }
            if round == 1 {
                let report = store.repair(|_, _| {}).expect("repaired");
                assert_eq!(report.deleted, 0, "byte {at}: all bodies are whole");
                repaired += u64::from(!report.found.faults.is_empty());
                assert_eq!(store.check(|_, _| {}).expect("checked").faults, [], "byte {at}, after a repair");
                all_there(&store, (0..20).chain(50..80));
                let back = (20..30).filter(|&number| get(&store, number).expect("whole").is_some()).count();
                assert_eq!(back, 0, "byte {at}: what was deleted");
                (0..30).for_each(|number| put(&store, number).expect("put"));
                all_there(&store, 0..30);
            }
        }
    }
    assert!(errors > 100 && repaired > 50, "{errors} errors, {repaired} repaired");
    assert!(missing < errors / 10, "{missing} missing without an error, {errors} with one");
}

#[test]
fn a_cache_whose_disk_refuses_what_compaction_moved_forgets_it_and_serves_nothing_wrong() {
    // The write that is refused may be one for the segment that the store makes ahead: then nothing is lost, and it is
    // tried again.
    let lost = (0..30).map(|_| lost_by_a_refused_write_while_compacting()).find(|lost| *lost > 0);
    assert!(lost.is_some(), "no refused write was one of what moved");
}

/// How many objects a cache of 25 forgot.
fn lost_by_a_refused_write_while_compacting() -> u64 {
    let disk = SimulatedDisk::new("one");
    let volumes = vec![VolumeSpec { disk: Arc::new(disk.clone()), size_bytes: 8 << 20 }];
    let cache = CacheOptions { behind_max: Duration::from_secs(3_600), ..CacheOptions::default() };
    let options = StoreOptions {
        mode: Mode::Cache,
        packed_blocks: Some((512 << 10) / 64),
        cache,
        memory_bytes_max: 0,
        ..StoreOptions::default()
    };
    let store = Store::create(volumes, options).expect("a new store");
    let large = |number: u64| vec![number as u8; 20_000];
    for number in 0..100 {
        store.put(&key(number), &large(number), PutOptions::default()).expect("put");
    }
    for number in (0..100).filter(|number| number % 4 != 0) {
        assert!(store.delete(&key(number)).expect("deleted"));
    }
    store.flush().expect("flushed");
    // Full when the first of what moved is written; what comes later finds room.
    disk.fail(DiskOperation::Write, None, 0, 1, DiskFault::Refused(io::ErrorKind::StorageFull));
    let _ = store.compact(u64::MAX);
    disk.heal();
    let mut gone = 0;
    for number in (0..100).step_by(4) {
        match get(&store, number) {
            Ok(None) => gone += 1,
            Ok(Some(held)) => assert!(held == large(number), "{number} is served wrong"),
            Err(error) => panic!("{number}: {error}"),
        }
    }
    assert!(gone < 25, "{gone} of 25 were in the write that failed");
    assert_eq!(store.usage().objects, 25 - gone);
    assert_eq!(store.check(|_, _| {}).expect("checked").faults, []);
    gone
}

/// Symptom: compaction on a full disk made the volume read-only. Cause: the copy of its head could not be written before a file
/// was removed, and any failed write there counted as a broken disk. Fix: it is written when the file is gone.
#[test]
fn compaction_on_a_full_disk_makes_room_and_the_volume_goes_on() {
    let disk = SimulatedDisk::new("one");
    let volumes = vec![VolumeSpec { disk: Arc::new(disk.clone()), size_bytes: 8 << 20 }];
    let options = StoreOptions { packed_blocks: Some((512 << 10) / 64), ..StoreOptions::default() };
    let store = Store::create(volumes, options).expect("a new store");
    for number in 0..100 {
        store.put(&key(number), &[number as u8; 20_000], PutOptions::default()).expect("put");
    }
    for number in 0..90 {
        assert!(store.delete(&key(number)).expect("deleted"));
    }
    let full = DiskFault::Refused(io::ErrorKind::StorageFull);
    disk.fail(DiskOperation::Write, Some("volume.copy.new"), 0, 1, full);
    let removed = store.compact(u64::MAX).expect("compacted").files_removed;
    assert!(removed > 0, "nothing was removed, so that nothing was tried");
    store.put(b"after", b"room", PutOptions::default()).expect("the volume takes puts");
    store.close().expect("closed");
    let store = Store::open(vec![Arc::new(disk)], OpenOptions::default()).expect("opened");
    let checked = store.check(|_, _| {}).expect("checked");
    assert_eq!(checked.faults, [], "the copy names what is there");
    assert_eq!(checked.objects, 11);
}

/// Symptom: a proxy did not start on a full disk. Cause: the head of a volume was replaced by a new file, which found no room.
/// Fix: it is overwritten in place then, and what has no room (the copy, the table) is left for later.
#[test]
fn a_store_on_a_full_disk_opens_with_all_that_it_holds() {
    for (mode, closed, room_at_the_end) in [
        (Mode::Cache, true, true),
        (Mode::Cache, true, false),
        (Mode::Cache, false, false),
        (Mode::Store, true, false),
        (Mode::Store, false, true),
    ] {
        let what = format!("{mode:?}, closed {closed}, room at the end {room_at_the_end}");
        let disk = SimulatedDisk::new("one");
        let volumes = vec![VolumeSpec { disk: Arc::new(disk.clone()), size_bytes: 8 << 20 }];
        let store = Store::create(volumes, StoreOptions { mode, ..StoreOptions::default() });
        let store = store.expect("a new store");
        for number in 0..100 {
            store.put(&key(number), &[number as u8; 20_000], PutOptions::default()).expect("put");
        }
        store.flush().expect("flushed");
        if closed {
            store.close().expect("closed");
        } else {
            drop(store);
        }
        let full = DiskFault::Refused(io::ErrorKind::StorageFull);
        for operation in [DiskOperation::Create, DiskOperation::Reserve] {
            disk.fail(operation, None, 0, u64::MAX, full);
        }
        let open = || Store::open(vec![Arc::new(disk.clone())], OpenOptions::default());
        let store = open().unwrap_or_else(|error| panic!("{what}: {error}"));
        assert!(store.wait_until_ready(Duration::from_secs(60)), "{what}");
        for number in 0..100 {
            let object = store.get(&key(number)).expect("readable").expect("held");
            assert_eq!(object.read_all().expect("whole"), [number as u8; 20_000], "{what}");
        }
        if room_at_the_end {
            disk.heal();
        }
        assert_eq!(store.close().is_ok(), room_at_the_end, "{what}");
        disk.heal();
        let store = open().unwrap_or_else(|error| panic!("{what}: {error}"));
        let checked = store.check(|_, _| {}).expect("checked");
        assert_eq!((checked.faults, checked.objects), (vec![], 100), "{what}");
    }
}

#[test]
fn a_cache_keeps_what_was_flushed_until_what_replaces_it_is_durable_too() {
    let disks = [SimulatedDisk::new("one"), SimulatedDisk::new("two")];
    let volumes = disks.iter().map(|disk| VolumeSpec { disk: Arc::new(disk.clone()), size_bytes: 8 << 20 });
    // So long that nothing is synced but what the store itself needs to be.
    let cache = CacheOptions { behind_max: Duration::from_secs(3_600), ..CacheOptions::default() };
    let options = StoreOptions {
        mode: Mode::Cache,
        packed_blocks: Some((512 << 10) / 64),
        object_bytes_mean: 1_000,
        cache,
        ..StoreOptions::default()
    };
    let store = Store::create(volumes.collect(), options).expect("a new store");
    let versioned = |number: u64, round: u64| {
        let mut bytes = vec![number as u8; 4_000];
        bytes[..8].copy_from_slice(&round.to_le_bytes());
        bytes
    };
    let keys = 300;
    for round in 0..4 {
        // The last that was put before power is lost is in memory, or half on disk; what it voids lies in files filled anew.
        for number in 0..keys {
            store.put(&key(number), &versioned(number, round), PutOptions::default()).expect("put");
        }
        if round == 0 {
            store.flush().expect("flushed");
        }
    }
    let rewritten = store.usage().index_written_bytes;
    assert!(rewritten > 0);
    for disk in &disks {
        disk.stop();
    }
    drop(store);
    for seed in 0..8 {
        let cut = [disks[0].power_cut(seed), disks[1].power_cut(seed ^ 77)];
        let store = open(&[&cut[0], &cut[1]]).expect("it opens");
        store.put(b"ready", b"", PutOptions::default()).expect("it knows what is there");
        for number in 0..keys {
            let held = get(&store, number).expect("whole");
            let held = held.unwrap_or_else(|| panic!("image {seed}: {number} was flushed, and is gone"));
            assert!((0..4).any(|round| held == versioned(number, round)), "image {seed}: {number}");
        }
    }
}

/// Symptom: a moment without file descriptors made a cache read-only until it was opened again. Cause: any error but a full disk
/// counted as a broken one.
#[test]
fn a_volume_that_lacked_memory_or_descriptors_for_a_moment_takes_puts_again() {
    let disk = SimulatedDisk::new("one");
    let volumes = vec![VolumeSpec { disk: Arc::new(disk.clone()), size_bytes: 8 << 20 }];
    let options = StoreOptions { mode: Mode::Cache, ..StoreOptions::default() };
    let store = Store::create(volumes, options).expect("a new store");
    let lacking = DiskFault::Refused(io::ErrorKind::OutOfMemory);
    disk.fail(DiskOperation::Create, None, 0, 100, lacking);
    store.put(b"early", b"body", PutOptions::default()).expect_err("no file can be opened");
    disk.heal();
    store.put(b"late", b"body", PutOptions::default()).expect("the volume takes puts");
    store.flush().expect("flushed");
}

/// Symptom: a put on a disk that failed did not return for hours. Cause: each number whose data file could not be opened counted as
/// taken, and there are four billion. Fix: the directory is listed once, and any error of it is returned.
#[test]
fn a_put_that_needs_a_new_segment_on_a_disk_that_fails_is_an_error_at_once() {
    for stops in [true, false] {
        let disk = SimulatedDisk::new("one");
        let store = store_on(&[&disk]);
        match stops {
            true => disk.stop(),
            false => {
                let broken = DiskFault::Refused(io::ErrorKind::Other);
                disk.fail(DiskOperation::Names, None, 0, u64::MAX, broken);
            }
        }
        put(&store, 1).expect_err("no segment can be made");
        let names = disk.process_end().names().expect("listed");
        assert!(names.iter().all(|name| !name.contains(".body")), "{names:?}");
    }
}

/// What a volume's directory has under a number that no segment has is left alone.
#[test]
fn a_new_segment_takes_no_number_of_a_data_file_that_is_there() {
    let disk = SimulatedDisk::new("one");
    let store = store_on(&[&disk]);
    for name in ["00000000.body", "00000002.body"] {
        disk.open(name, DiskOpen::New).and_then(|file| file.write_at(b"somebody's", 0)).expect("written");
    }
    (0..600).for_each(|number| put(&store, number).expect("put"));
    assert!(store.usage().packed_files > 1, "{:?}", store.usage());
    for name in ["00000000.body", "00000002.body"] {
        assert!(disk.bytes(name).is_some_and(|bytes| bytes == b"somebody's"), "{name} is as it was");
    }
    all_there(&store, 0..600);
}

/// Symptom: an object whose deletion a cache had acknowledged was back after a kill. Cause: the deletion waited in memory with
/// what is to be written later. Fix: one deletion that is with the kernel before it returns.
#[test]
fn a_deletion_through_survives_a_kill_that_a_plain_one_in_a_cache_need_not() {
    let disk = SimulatedDisk::new("one");
    let volumes = vec![VolumeSpec { disk: Arc::new(disk.clone()), size_bytes: 8 << 20 }];
    // So long that nothing is written in time.
    let cache = CacheOptions { behind_max: Duration::from_secs(3_600), ..CacheOptions::default() };
    let options = StoreOptions { mode: Mode::Cache, cache, ..StoreOptions::default() };
    let store = Store::create(volumes, options).expect("a new store");
    for key in [b"through", b"plainly"] {
        store.put(key, b"body", PutOptions::default()).expect("put");
    }
    store.flush().expect("flushed");
    let syncs = store.usage().syncs;
    assert!(store.delete_through(b"through").expect("deleted"));
    assert!(!store.delete_through(b"through").expect("gone already"));
    assert_eq!(store.usage().syncs, syncs, "no sync is waited for");
    assert!(store.delete(b"plainly").expect("deleted"));
    disk.stop();
    let killed = disk.process_end();
    drop(store);
    let store = Store::open(vec![Arc::new(killed)], OpenOptions::default()).expect("opened");
    assert!(store.wait_until_ready(Duration::from_secs(60)));
    assert!(store.get(b"through").expect("read").is_none());
    assert!(store.get(b"plainly").expect("read").is_some(), "else the rest proves nothing");
}
