//! Data files that are missing or empty, and kills while segments and stores are made and removed.

use std::collections::BTreeSet;
use std::sync::Arc;

use disk::{Disk, DiskOpen};
use packstore::{Mode, OpenOptions, PutOptions, Store, StoreError, StoreOptions, VolumeSpec};
use testkit::SimulatedDisk;

use super::super::model::body;
use super::{all_there, fill, get, is_kept, key, numbers, open, put, read_only, several_files, store_on};

#[test]
fn a_missing_data_file_costs_what_is_in_it_and_repair_says_so_and_goes_on() {
    for clean in [true, false] {
        let (disk, files) = several_files(Mode::Store, clean);
        // In which file an object is, and whether one made ahead holds any, depends on how soon the writer came to it.
        let mut gone_with_some = BTreeSet::new();
        for lost in 0..files {
            let when = format!("clean {clean}, body {lost}");
            let image = disk.process_end();
            image.remove(&format!("{lost:08}.body")).expect("removed");
            let store = open(&image);
            let name = format!("file {lost:08}");
            let read = |number| store.get(&key(number))?.map(|object| object.read_all()).transpose();
            let is_lost = |number: &u64| match read(*number) {
                Ok(found) => {
                    assert!(found == is_kept(*number).then(|| body(*number)), "{when}: {number}");
                    false
                }
                Err(StoreError::Damaged { why, .. }) => why == "its data file is missing",
                Err(error) => panic!("{when}: {number}: {error}"),
            };
            let gone = numbers().filter(is_lost).collect::<Vec<_>>();
            assert!(gone.len() < 300, "{when}: {} are gone", gone.len());
            gone_with_some.extend(gone.iter().copied());
            assert!(gone.iter().all(|&number| is_kept(number)), "{when}");
            (600..700).for_each(|number| put(&store, number, number));
            store.compact(u64::MAX).expect("the others are compacted");
            let faults = store.check(|_, _| {}).expect("checked").faults;
            let told =
                gone.iter().filter(|&&number| faults.iter().any(|fault| fault.key == Some(key(number))));
            assert_eq!(told.count(), gone.len(), "{when}: {name}: each is reported");
            let repaired = store.repair(|_, _| {}).expect("repaired");
            assert_eq!(repaired.left, [], "{when}");
            assert!(repaired.deleted >= gone.len() as u64, "{when}");
            drop(store);
            let store = open(&image.process_end());
            for number in numbers() {
                let wanted = (is_kept(number) && !gone.contains(&number)).then(|| body(number));
                assert!(get(&store, number) == wanted, "{when}, after a repair: {number}");
            }
            assert_eq!(store.check(|_, _| {}).expect("checked").faults, [], "{when}");
        }
        assert!(
            gone_with_some.iter().copied().eq(numbers().filter(|&number| is_kept(number))),
            "clean {clean}"
        );
    }
}

#[test]
fn a_segment_of_which_nothing_is_left_is_told_of_until_repair_gives_it_up() {
    for clean in [true, false] {
        let (disk, files) = several_files(Mode::Store, clean);
        for lost in 0..files {
            let when = format!("clean {clean}, file {lost}");
            let image = disk.process_end();
            image.remove(&format!("{lost:08}.body")).expect("removed");
            image.remove(&format!("{lost:08}.index")).expect("removed");
            let is_told = |store: &Store| {
                let faults = store.check(|_, _| {}).expect("checked").faults;
                faults.iter().any(|fault| {
                    fault.file.map(u64::from) == Some(lost)
                        && fault.what.contains("its body and its index are missing")
                })
            };
            assert!(is_told(&read_only(&image)), "{when}");
            let store = open(&image);
            // Its number is not taken, as it would be forgotten then.
            (600..1_400).for_each(|number| put(&store, number, number));
            store.close().expect("closed");
            let store = open(&image);
            assert!(is_told(&store), "{when}");
            let repaired = store.repair(|_, _| {}).expect("repaired");
            let is_lost = |fault: &packstore::Fault| fault.file.map(u64::from) == Some(lost);
            assert!(repaired.found.faults.iter().any(is_lost), "{when}: {repaired:?}");
            assert_eq!(repaired.left, [], "{when}");
            assert!(!is_told(&store), "{when}");
            drop(store);
            let store = open(&image.process_end());
            assert_eq!(store.check(|_, _| {}).expect("checked").faults, [], "{when}");
        }
    }
}

/// As earlier versions left it when they were killed while they made a segment.
#[test]
fn a_data_file_in_which_nothing_was_ever_written_stays_and_costs_nothing_not_even_a_cache() {
    for (mode, clean) in
        [(Mode::Store, true), (Mode::Store, false), (Mode::Cache, true), (Mode::Cache, false)]
    {
        let disk = SimulatedDisk::new("one");
        let store = store_on(&disk, mode);
        fill(&store);
        if clean {
            store.close().expect("closed");
        } else {
            drop(store);
        }
        let bare = "00000009.body";
        disk.open(bare, DiskOpen::New).and_then(|file| file.set_length(4_096)).expect("made");
        let image = disk.process_end();
        let store = open(&image);
        all_there(&store, "beside it");
        let found = store.check(|_, _| {}).expect("checked");
        assert_eq!((found.faults, found.recovered), (vec![], vec![]), "{mode:?}, clean {clean}");
        assert!(image.bytes(bare).is_some(), "{mode:?}, clean {clean}");
        (100..600).for_each(|number| put(&store, number, number));
        store.close().expect("closed");
        let store = open(&image);
        all_there(&store, "later");
        assert_eq!(store.check(|_, _| {}).expect("checked").faults, [], "{mode:?}, clean {clean}");
    }
}

#[test]
fn a_kill_anywhere_while_segments_are_removed_loses_nothing_and_brings_nothing_back() {
    let filled = SimulatedDisk::new("one");
    let store = store_on(&filled, Mode::Store);
    let large = |number: u64| vec![number as u8; 30_000];
    for number in 0..60 {
        store.put(&key(number), &large(number), PutOptions::default()).expect("put");
    }
    for number in (0..60).filter(|number| number % 10 != 0) {
        assert!(store.delete(&key(number)).expect("deleted"));
    }
    store.close().expect("closed");
    let mut points = 0;
    for ahead in 0.. {
        let disk = filled.process_end();
        let store = open(&disk);
        disk.stop_at(disk.operations() + ahead);
        let compacted = store.compact(u64::MAX);
        let ended = !disk.has_stopped();
        if ended {
            assert!(compacted.expect("compacted").files_removed > 1);
            disk.stop();
        }
        drop(store);
        for seed in 0..4 {
            let image = disk.power_cut(seed);
            for round in 0..2 {
                let store = open(&image);
                for number in 0..60 {
                    let wanted = (number % 10 == 0).then(|| large(number));
                    assert!(
                        get(&store, number) == wanted,
                        "operation {ahead}, image {seed}, opening {round}: {number}"
                    );
                }
                let found = store.check(|_, _| {}).expect("checked");
                assert_eq!(
                    (found.faults, found.recovered),
                    (vec![], vec![]),
                    "operation {ahead}, image {seed}"
                );
                drop(store);
                let left = image.names().expect("listed");
                let left = left.iter().filter(|name| name.ends_with(".gone") || name.ends_with(".new"));
                assert_eq!(
                    left.collect::<Vec<_>>(),
                    Vec::<&String>::new(),
                    "operation {ahead}, image {seed}"
                );
            }
        }
        points += 1;
        if ended {
            break;
        }
    }
    assert!(points > 10, "{points}");
}

#[test]
fn a_kill_anywhere_while_a_store_is_made_leaves_an_empty_one_or_none() {
    for stop_at in 0.. {
        let machine = SimulatedDisk::new("machine");
        let disks = [machine.beside("one"), machine.beside("two")];
        let volumes =
            disks.iter().map(|disk| VolumeSpec { disk: Arc::new(disk.clone()), size_bytes: 8 << 20 });
        machine.stop_at(stop_at);
        let made = Store::create(volumes.collect(), StoreOptions::default());
        let ended = made.is_ok() && !machine.has_stopped();
        machine.stop();
        drop(made);
        for seed in 0..4 {
            let image = machine.power_cut(seed);
            let disks = ["one", "two"].map(|place| Arc::new(image.beside(place)) as Arc<dyn Disk>);
            match Store::open(disks.to_vec(), OpenOptions::default()) {
                Ok(store) => {
                    put(&store, 1, 1);
                    assert!(get(&store, 1) == Some(body(1)));
                }
                Err(StoreError::NotAVolume { .. } | StoreError::Missing { .. }) => assert!(!ended),
                Err(error) => panic!("operation {stop_at}, image {seed}: {error}"),
            }
        }
        if ended {
            break;
        }
    }
}
