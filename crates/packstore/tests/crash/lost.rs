//! Index files that are lost, and kills while packed files are made and removed: no body file is deleted for it.

use std::sync::Arc;
use std::time::Duration;

use files::Disk;
use packstore::{Mode, OpenOptions, PutOptions, Store, StoreError, StoreOptions, VolumeSpec};
use testkit::SimulatedDisk;

use crate::model::body;

const INDEX: &str = "00000000.index";
const BODY: &str = "00000000.body";

type Verb = fn(&Store);

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

fn put(store: &Store, number: u64, version: u64) {
    store.put(&key(number), &body(version), PutOptions::default()).expect("put");
}

fn get(store: &Store, number: u64) -> Option<Vec<u8>> {
    let found = store.get(&key(number)).unwrap_or_else(|error| panic!("{number}: {error}"));
    found.map(|object| object.read_all().unwrap_or_else(|error| panic!("{number}: {error}")))
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

/// Blocker that this is for: a body file without an index was taken for one half made, and deleted at each writable opening.
#[test]
fn no_verb_deletes_a_body_file_whose_index_is_missing_and_its_objects_are_recovered_and_listed() {
    let disk = SimulatedDisk::new("one");
    let store = store_on(&disk, Mode::Store);
    fill(&store);
    drop(store);
    let verbs: [(&str, Verb); 5] = [
        ("open", |_| ()),
        ("repair", |store| assert_eq!(store.repair(|_, _| {}).expect("repaired").deleted, 0)),
        ("rm", |store| assert!(!store.delete(b"no such key").expect("looked for"))),
        ("put", |store| (100..400).for_each(|number| put(store, number, number))),
        ("compact", |store| assert!(store.compact(u64::MAX).is_ok())),
    ];
    for (verb, run) in verbs {
        let image = disk.process_end();
        image.remove(INDEX).expect("removed");
        let before = image.bytes(BODY).expect("it is there");
        // Looking changes nothing, and tells.
        let options = OpenOptions { read_only: true, ..OpenOptions::default() };
        let looking = Store::open(vec![Arc::new(image.clone())], options).expect("it opens");
        all_there(&looking, "read-only");
        let found = looking.check(|_, _| {}).expect("checked");
        assert!(found.recovered.contains(&key(5)), "{found:?}");
        drop(looking);
        assert!(image.bytes(BODY) == Some(before), "{verb}");
        assert!(image.bytes(INDEX).is_none(), "{verb}");

        let store = open(&image);
        run(&store);
        all_there(&store, verb);
        let found = store.check(|_, _| {}).expect("checked");
        assert_eq!(found.faults, [], "{verb}");
        // Those that were deleted may be back, and are told of as all that were recovered.
        for number in (0..40).filter(|&number| get(&store, number).is_some()) {
            assert!(found.recovered.contains(&key(number)), "{verb}: {number} is not listed");
        }
        put(&store, 5, 5);
        assert!(
            !store.check(|_, _| {}).expect("checked").recovered.contains(&key(5)),
            "{verb}: it is certain"
        );
        drop(store);
        all_there(&open(&image.process_end()), verb);
    }
}

#[test]
fn after_a_clean_stop_the_table_tells_what_counted_and_nothing_deleted_is_back_not_even_after_a_kill() {
    for mode in [Mode::Store, Mode::Cache] {
        let disk = SimulatedDisk::new("one");
        let store = store_on(&disk, mode);
        // In several packed files.
        (100..500).for_each(|number| put(&store, number, number));
        fill(&store);
        let files = store.usage().packed_files;
        assert!(files > 1, "{files}");
        store.close().expect("closed");
        for lost in 0..files {
            let image = disk.process_end();
            image.remove(&format!("{lost:08}.index")).expect("removed");
            let mut store = open(&image);
            for round in 0..2 {
                let when = format!("{mode:?}, index {lost}, opening {round}");
                all_there(&store, &when);
                (100..500).for_each(|number| assert!(get(&store, number).is_some(), "{when}: {number}"));
                (30..40)
                    .for_each(|number| assert!(get(&store, number).is_none(), "{when}: {number} is back"));
                let found = store.check(|_, _| {}).expect("checked");
                assert_eq!((found.faults, found.recovered), (vec![], vec![]), "{when}");
                drop(store);
                store = open(&image.process_end());
            }
        }
    }
}

#[test]
fn a_cache_that_was_killed_and_lost_an_index_brings_nothing_back_that_was_purged() {
    let disk = SimulatedDisk::new("one");
    let store = store_on(&disk, Mode::Cache);
    (100..500).for_each(|number| put(&store, number, number));
    fill(&store);
    let files = store.usage().packed_files;
    drop(store);
    for lost in 0..files {
        let image = disk.process_end();
        image.remove(&format!("{lost:08}.index")).expect("removed");
        let mut store = open(&image);
        for round in 0..2 {
            let purged = (30..40).filter(|&number| get(&store, number).is_some()).collect::<Vec<_>>();
            assert_eq!(purged, [], "index {lost}, opening {round}");
            (0..30).filter_map(|number| Some((number, get(&store, number)?))).for_each(|(number, found)| {
                assert!(found == body(number) || found == body(number + 9_000), "{number} is another");
            });
            (0..30).for_each(|number| put(&store, number, number + 9_000));
            store.flush().expect("flushed");
            assert_eq!(store.check(|_, _| {}).expect("checked").faults, []);
            drop(store);
            store = open(&image.process_end());
        }
        assert!((0..30).all(|number| get(&store, number) == Some(body(number + 9_000))), "index {lost}");
    }
}

#[test]
fn a_kill_anywhere_while_packed_files_are_removed_loses_nothing_and_brings_nothing_back() {
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
