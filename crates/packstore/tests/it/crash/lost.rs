//! Index files that are lost, and kills while segments are made and removed: no data file is deleted for it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use disk::{Disk, DiskOpen};
use packstore::{Mode, OpenOptions, PutOptions, Store, StoreError, StoreOptions, VolumeSpec};
use testkit::SimulatedDisk;

use super::model::body;

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

/// Blocker that this is for: a data file without an index was taken for one half made, and deleted at each writable opening.
#[test]
fn no_verb_deletes_a_data_file_whose_index_is_missing_and_its_objects_are_recovered_and_listed() {
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
        // In several segments.
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
            assert_eq!(purged, [0u64; 0], "index {lost}, opening {round}");
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

/// Several segments, each with objects, overwrites and deletions in it.
fn several_files(mode: Mode, clean: bool) -> (SimulatedDisk, u64) {
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

fn numbers() -> impl Iterator<Item = u64> {
    (0..40).chain(100..500)
}

/// Blocker that this is for: one damaged head made `ls` and `get --all` give nothing, and `repair` repaired nothing and was content.
#[test]
fn a_damaged_head_of_an_index_costs_nothing_and_is_repaired() {
    for (mode, clean) in
        [(Mode::Store, true), (Mode::Store, false), (Mode::Cache, true), (Mode::Cache, false)]
    {
        let (disk, files) = several_files(mode, clean);
        for damaged in 0..files {
            let when = format!("{mode:?}, clean {clean}, index {damaged}");
            let image = disk.process_end();
            let index = image.open(&format!("{damaged:08}.index"), DiskOpen::Write).expect("there");
            if index.length().expect("its length") <= 64 {
                // Made ahead, and nothing is in it yet.
                continue;
            }
            index.write_at(&[0; 64], 0).expect("damaged");
            let mut store = open(&image);
            for round in 0..3 {
                for number in numbers() {
                    let wanted = is_kept(number).then(|| body(number));
                    assert!(get(&store, number) == wanted, "{when}, round {round}: {number}");
                }
                let listed = store.iter_ordered(b"key ").expect("listed");
                assert!(listed.failures().is_empty(), "{when}, round {round}");
                let kept =
                    numbers().filter(|&number| is_kept(number)).count() + if round > 0 { 100 } else { 0 };
                assert_eq!(listed.count(), kept, "{when}, round {round}");
                (600..700).for_each(|number| put(&store, number, number));
                let faults = store.check(|_, _| {}).expect("checked").faults;
                assert!(
                    faults.iter().all(|fault| fault.file.map(u64::from) == Some(damaged)),
                    "{when}: {faults:?}"
                );
                if round == 0 {
                    assert!(!faults.is_empty(), "{when}: the damage is told");
                    let repaired = store.repair(|_, _| {}).expect("repaired");
                    assert_eq!((repaired.deleted, repaired.left), (0, vec![]), "{when}");
                } else {
                    assert_eq!(faults, [], "{when}, round {round}");
                }
                drop(store);
                store = open(&image.process_end());
            }
        }
    }
}

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
            assert_eq!(told.count(), gone.len(), "{when}: {name}: each is told of");
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

fn read_only(disk: &SimulatedDisk) -> Store {
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    Store::open(vec![Arc::new(disk.clone())], options).expect("it opens")
}

/// What this is for: one flipped bit in the 96 bytes made the store unopenable and unrepairable.
#[test]
fn a_volume_s_head_is_rebuilt_whatever_bit_flips_and_from_its_copy_when_it_is_gone() {
    let disk = SimulatedDisk::new("one");
    let store = store_on(&disk, Mode::Store);
    fill(&store);
    store.close().expect("closed");
    let head = disk.bytes("volume").expect("it is there");
    assert_eq!(head.len(), 96);
    for bit in 0..head.len() as u64 * 8 {
        let image = disk.process_end();
        assert!(image.flip("volume", bit));
        let faults = read_only(&image).check(|_, _| {}).expect("checked").faults;
        assert!(faults.iter().any(|fault| fault.what.contains("flipped bit")), "bit {bit}: {faults:?}");
        if bit.is_multiple_of(37) {
            let store = open(&image);
            all_there(&store, "a flipped bit");
            assert_eq!(store.repair(|_, _| {}).expect("repaired").left, []);
            drop(store);
            assert_eq!(read_only(&image).check(|_, _| {}).expect("checked").faults, []);
        }
    }
    let damages: [(&str, Damage); 3] = [
        ("gone", |image| image.remove("volume").expect("removed")),
        ("zeros", |image| overwrite(image, "volume", &[0; 96])),
        ("cut off", |image| {
            image.open("volume", DiskOpen::Write).and_then(|file| file.set_length(40)).expect("cut off");
        }),
    ];
    for (when, damage) in damages {
        let image = disk.process_end();
        damage(&image);
        let faults = read_only(&image).check(|_, _| {}).expect("checked").faults;
        assert!(faults.iter().any(|fault| fault.what.contains("its copy is used")), "{when}: {faults:?}");
        let store = open(&image);
        all_there(&store, when);
        let found = store.repair(|_, _| {}).expect("repaired");
        assert_eq!((found.found.faults.len(), found.left), (1, vec![]), "{when}");
        put(&store, 700, 700);
        drop(store);
        let store = open(&image.process_end());
        all_there(&store, when);
        assert_eq!(store.check(|_, _| {}).expect("checked").faults, [], "{when}");
    }
}

type Damage = fn(&SimulatedDisk);

fn overwrite(disk: &SimulatedDisk, name: &str, bytes: &[u8]) {
    disk.open(name, DiskOpen::Write).and_then(|file| file.write_at(bytes, 0)).expect("damaged");
}

fn two_volumes(clean: bool) -> [SimulatedDisk; 2] {
    let disks = [SimulatedDisk::new("one"), SimulatedDisk::new("two")];
    let volumes = disks.iter().map(|disk| VolumeSpec { disk: Arc::new(disk.clone()), size_bytes: 8 << 20 });
    let options = StoreOptions { packed_blocks: Some((512 << 10) / 64), ..StoreOptions::default() };
    let store = Store::create(volumes.collect(), options).expect("a new store");
    (0..200).for_each(|number| put(&store, number, number));
    if clean {
        store.close().expect("closed");
    } else {
        drop(store);
    }
    disks
}

fn open_all(disks: &[SimulatedDisk], options: OpenOptions) -> Store {
    let disks = disks.iter().map(|disk| Arc::new(disk.clone()) as Arc<dyn Disk>).collect();
    Store::open(disks, options).expect("it opens")
}

#[test]
fn a_volume_that_lost_head_and_copy_is_known_by_the_other_volume() {
    let disks = two_volumes(false);
    for name in ["volume", "volume.copy"] {
        overwrite(&disks[1], name, &[0; 200]);
    }
    let store = open_all(&disks, OpenOptions::default());
    (0..200).for_each(|number| assert!(get(&store, number) == Some(body(number)), "{number}"));
    assert_eq!(store.repair(|_, _| {}).expect("repaired").left, []);
    drop(store);
    assert!(disks[1].bytes("volume").is_some_and(|bytes| bytes.starts_with(b"CRUMBVOL")));
}

/// What this is for: `check` called stores whole of which a volume, or a segment, or the end of an index was missing.
#[test]
fn check_tells_that_a_volume_is_missing_and_how_much_when_it_can() {
    for clean in [true, false] {
        let disks = two_volumes(clean);
        let options = OpenOptions { read_only: true, ..OpenOptions::default() };
        let store = open_all(&disks[..1], options);
        let there = (0..200).filter(|&number| get(&store, number).is_some()).count();
        assert!(there > 20 && there < 180, "{there}");
        let faults = store.check(|_, _| {}).expect("checked").faults;
        let what = faults.first().map(|fault| &fault.what[..]).unwrap_or_default();
        let wanted = match clean {
            true => {
                format!("a volume is not here: {} records of the last clean stop are missing", 200 - there)
            }
            false => "a volume is not here: what was on it may be missing".to_owned(),
        };
        assert_eq!((faults.len(), what), (1, &wanted[..]));
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

#[test]
fn an_index_that_was_cut_off_is_told_of_nothing_is_put_over_its_objects_and_repair_brings_them_back() {
    for clean in [true, false] {
        let disk = SimulatedDisk::new("one");
        let store = store_on(&disk, Mode::Store);
        fill(&store);
        if clean {
            store.close().expect("closed");
        } else {
            drop(store);
        }
        let length = disk.bytes(INDEX).expect("it is there").len() as u64;
        for cut in [64, 200, length / 3, length / 2, length * 3 / 4] {
            let when = format!("clean {clean}, cut to {cut} of {length}");
            let image = disk.process_end();
            image.open(INDEX, DiskOpen::Write).and_then(|file| file.set_length(cut)).expect("cut off");
            let looking = read_only(&image);
            let faults = looking.check(|_, _| {}).expect("checked").faults;
            assert!(!faults.is_empty(), "{when}");
            let lacking = (0..30).filter(|&number| !matches!(looking.get(&key(number)), Ok(Some(_))));
            for number in lacking {
                let is_told = faults.iter().any(|fault| fault.key == Some(key(number)));
                assert!(is_told, "{when}: {number} is not told of");
            }
            drop(looking);
            let store = open(&image);
            (600..1_000).for_each(|number| put(&store, number, number));
            let repaired = store.repair(|_, _| {}).expect("repaired");
            assert_eq!(repaired.left, [], "{when}");
            for round in 0..2 {
                all_there(&open(&image.process_end()), &format!("{when}, opening {round}"));
            }
            assert_eq!(store.check(|_, _| {}).expect("checked").faults, [], "{when}");
        }
    }
}

/// Key and bytes.
type Put = (Vec<u8>, Vec<u8>);

/// Large objects in several pieces, small ones, second names; each with its bytes.
fn pieced(segments: u64) -> (SimulatedDisk, Vec<Put>) {
    let disk = SimulatedDisk::new("one");
    let store = store_on(&disk, Mode::Store);
    let mut objects = Vec::new();
    for number in 0..segments {
        // Pieces of it are in two segments, as each takes 512 KiB.
        let large = (0..300_000_u32).map(|at| (at as u64 * 31 + number) as u8).collect::<Vec<_>>();
        objects.push((format!("large {number}").into_bytes(), large));
        objects.push((format!("small {number}").into_bytes(), format!("{number}\n").into_bytes()));
    }
    for (key, bytes) in &objects {
        store.put(key, bytes, PutOptions::default()).expect("put");
    }
    store.link(b"large 0", b"second name of a large one").expect("linked");
    store.link(b"small 0", b"second name of a small one").expect("linked");
    objects.push((b"second name of a large one".to_vec(), objects[0].1.clone()));
    objects.push((b"second name of a small one".to_vec(), objects[1].1.clone()));
    store.put(b"last", b"3\n", PutOptions::default()).expect("put");
    objects.push((b"last".to_vec(), b"3\n".to_vec()));
    store.close().expect("closed");
    (disk, objects)
}

/// Symptom: a repair of a cut index lost large objects whose bytes were all there, and reported nothing; or it failed again and
/// again. Cause: pieces that the rest of the index named counted for nothing without their object, and were not looked for when
/// it was found in the data file; zeros behind half an index record made it whole, so that the object was named twice.
#[test]
fn wherever_an_index_is_cut_one_repair_brings_back_all_whose_bytes_are_there() {
    for segments in [2, 4] {
        let (disk, objects) = pieced(segments);
        let names = disk.names().expect("listed");
        let indexes = names.into_iter().filter(|name| name.ends_with(".index")).collect::<BTreeSet<_>>();
        for (name, has_table) in indexes.iter().flat_map(|name| [(name, true), (name, false)]) {
            let bytes = disk.bytes(name).expect("it is there");
            let end = bytes.iter().rposition(|&byte| byte != 0).expect("it holds something") as u64 + 9;
            // Each boundary of index records is a multiple of 8.
            for cut in (0..end.min(bytes.len() as u64)).step_by(4) {
                let when =
                    format!("{segments} segments, table {has_table}, {name} cut to {cut} of {}", bytes.len());
                let image = disk.process_end();
                if !has_table {
                    image.remove("table").expect("removed");
                }
                image.open(name, DiskOpen::Write).and_then(|file| file.set_length(cut)).expect("cut off");
                let store = open(&image);
                let repaired = store.repair(|_, _| {}).expect("repaired");
                assert_eq!((&repaired.left, &repaired.lost), (&vec![], &vec![]), "{when}");
                assert_eq!(store.check(|_, _| {}).expect("checked").faults, [], "{when}");
                drop(store);
                let store = open(&image.process_end());
                assert_eq!(store.check(|_, _| {}).expect("checked").faults, [], "{when}, opened again");
                for (key, bytes) in &objects {
                    let name = String::from_utf8_lossy(key);
                    let found = store.get(key).expect("whole");
                    let found = found.unwrap_or_else(|| panic!("{when}: {name} is gone"));
                    assert!(found.read_all().expect("whole") == *bytes, "{when}: {name}");
                }
            }
        }
    }
}

#[test]
fn an_object_that_a_cut_index_named_and_whose_piece_is_damaged_is_reported_as_lost() {
    let (disk, objects) = pieced(2);
    disk.remove("table").expect("removed");
    // Only the object's last piece, which is shorter, has these bytes at its end.
    let data = disk.bytes(BODY).expect("it is there");
    let (_, large) = &objects[0];
    let piece = &large[large.len() - 64..];
    let at = data.windows(64).position(|window| window == piece).expect("its last piece is there");
    disk.open(BODY, DiskOpen::Write).and_then(|file| file.write_at(&[1; 8], at as u64)).expect("damaged");
    disk.open(INDEX, DiskOpen::Write).and_then(|file| file.set_length(64)).expect("cut off");
    let store = open(&disk.process_end());
    let repaired = store.repair(|_, _| {}).expect("repaired");
    assert_eq!(repaired.left, []);
    assert!(repaired.lost.contains(&b"large 0".to_vec()), "{repaired:?}");
    assert_eq!(store.check(|_, _| {}).expect("checked").faults, []);
    assert!(store.get(b"small 0").expect("whole").is_some(), "the others are there");
}

/// Where the last mark of the index ends: its last 8 bytes are zeros.
fn index_end(disk: &SimulatedDisk) -> u64 {
    let bytes = disk.bytes(INDEX).expect("it is there");
    bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| (last as u64 + 1).next_multiple_of(8) + 8)
}

/// Symptom: an object that had been deleted was back, and `check` found nothing wrong. Cause: both what a clean stop leaves (`table`)
/// and the end of an index, with the tombstone, were damaged; what is behind an index's last mark was taken for what power cut
/// short. Fix: `check` tells of a damaged table, and of each index that does not end as it was left.
#[test]
fn check_says_that_deletions_may_be_back_when_the_table_and_the_end_of_an_index_are_damaged() {
    let disk = SimulatedDisk::new("one");
    let store = store_on(&disk, Mode::Store);
    (0..20).for_each(|number| put(&store, number, number));
    store.flush().expect("flushed");
    let kept = index_end(&disk);
    (15..20).for_each(|number| assert!(store.delete(&key(number)).expect("deleted")));
    store.close().expect("closed");
    assert_eq!(read_only(&disk).check(|_, _| {}).expect("checked").faults, []);
    let end = index_end(&disk);
    let about_index = |store: &Store| {
        let faults = store.check(|_, _| {}).expect("checked").faults;
        faults
            .into_iter()
            .any(|fault| fault.file == Some(0) && fault.what.contains("deleted last may be back"))
    };
    // A tombstone takes 40 bytes: in the last case one is left, and no mark behind it.
    for (with, from) in [(0xa5, kept), (0, kept), (0, kept + 40)] {
        let when = format!("{with:x} from {from} to {end}, where {kept} is kept");
        let image = disk.process_end();
        overwrite(&image, "table", &[0xff; 100]);
        let faults = read_only(&image).check(|_, _| {}).expect("checked").faults;
        assert!(
            matches!(&faults[..], [fault] if fault.what.contains("`table` is damaged")),
            "{when}: {faults:?}"
        );
        let index = image.open(INDEX, DiskOpen::Write).expect("it opens");
        index.write_at(&vec![with; (end - from) as usize], from).expect("damaged");
        let looking = read_only(&image);
        assert!(
            (15..20).any(|number| get(&looking, number).is_some()),
            "{when}: none is back: this tests nothing"
        );
        let faults = looking.check(|_, _| {}).expect("checked").faults;
        assert!(faults.iter().any(|fault| fault.what.contains("`table` is damaged")), "{when}: {faults:?}");
        // What was cut off where a mark ends looks whole; the table tells that there is no knowing.
        assert!(about_index(&looking) || with == 0 && from == kept, "{when}: {faults:?}");
        drop(looking);
        // An opening for writing must not do away with it.
        let store = open(&image);
        (100..300).for_each(|number| put(&store, number, number));
        assert!(about_index(&store) || with == 0, "{when}, after puts");
        let repaired = store.repair(|_, _| {}).expect("repaired");
        assert!(!repaired.found.faults.is_empty() && repaired.left.is_empty(), "{when}: {repaired:?}");
        store.close().expect("closed");
        let whole = read_only(&image);
        assert_eq!(whole.check(|_, _| {}).expect("checked").faults, [], "{when}");
        (0..15)
            .chain(100..300)
            .for_each(|number| assert!(get(&whole, number) == Some(body(number)), "{when}"));
    }
}

/// Symptom: as before, and `check` found nothing wrong at all. Cause: `table` was gone, not damaged, so that the last stop was taken
/// for a kill, after which an index may end anywhere. Fix: a clean stop is noted in the volumes' heads, with the lengths of the indexes.
#[test]
fn check_says_that_deletions_may_be_back_when_the_table_is_gone_and_an_index_was_cut_where_a_record_ends() {
    let disk = SimulatedDisk::new("one");
    let store = store_on(&disk, Mode::Store);
    (0..20).for_each(|number| put(&store, number, number));
    store.flush().expect("flushed");
    let kept = index_end(&disk);
    (15..20).for_each(|number| assert!(store.delete(&key(number)).expect("deleted")));
    store.close().expect("closed");
    let faults = |store: &Store| store.check(|_, _| {}).expect("checked").faults;
    let tells =
        |store: &Store| faults(store).iter().any(|fault| fault.what.contains("deleted last may be back"));
    // Where a mark ends, and where the first tombstone does.
    for from in [kept, kept + 40] {
        let image = disk.process_end();
        image.remove("table").expect("removed");
        assert_eq!(faults(&read_only(&image)), [], "nothing is missing as long as the indexes are whole");
        image.open(INDEX, DiskOpen::Write).expect("it opens").set_length(from).expect("cut");
        let looking = read_only(&image);
        assert!((15..20).any(|number| get(&looking, number).is_some()), "{from}: this tests nothing");
        assert!(tells(&looking), "{from}: {:?}", faults(&looking));
        drop(looking);
        let store = open(&image);
        (100..300).for_each(|number| put(&store, number, number));
        assert!(tells(&store), "{from}, after puts");
        let repaired = store.repair(|_, _| {}).expect("repaired");
        assert_eq!(repaired.left, [], "{from}");
        store.close().expect("closed");
        assert_eq!(faults(&read_only(&image)), [], "{from}");
    }
    // A kill is not a clean stop.
    let image = disk.process_end();
    drop(open(&image));
    assert_eq!(faults(&read_only(&image)), [], "after a kill");
}

#[test]
fn an_empty_copy_of_a_volumes_head_is_told_of_and_written_anew() {
    let disk = SimulatedDisk::new("one");
    let store = store_on(&disk, Mode::Store);
    put(&store, 1, 1);
    store.close().expect("closed");
    disk.open("volume.copy", DiskOpen::Write).expect("there").set_length(0).expect("emptied");
    let faults = |store: &Store| store.check(|_, _| {}).expect("checked").faults;
    let found = faults(&read_only(&disk));
    assert!(matches!(&found[..], [fault] if fault.what.contains("`volume.copy` is damaged")), "{found:?}");
    let store = open(&disk);
    let repaired = store.repair(|_, _| {}).expect("repaired");
    assert_eq!((repaired.found.faults.len(), repaired.left), (1, vec![]));
    store.close().expect("closed");
    assert_eq!(faults(&read_only(&disk)), []);
}

/// Symptom: `check` said nothing of a `volume.copy` that was removed or put there from elsewhere; with it goes what stands in for
/// a damaged head. Cause: only a copy that could not be read counted. Fix: after a clean stop it must be there, and be this head's.
#[test]
fn a_missing_or_differing_copy_of_a_volumes_head_is_told_of_and_written_anew() {
    let (disk, other) = (SimulatedDisk::new("one"), SimulatedDisk::new("two"));
    for disk in [&disk, &other] {
        store_on(disk, Mode::Store).close().expect("closed");
    }
    let of_another_store = other.bytes("volume.copy").expect("there");
    let earlier = disk.bytes("volume.copy").expect("there");
    open(&disk).close().expect("closed");
    let faults = |store: &Store| store.check(|_, _| {}).expect("checked").faults;
    assert_eq!(faults(&read_only(&disk)), []);
    for (bytes, what) in [
        (None, "`volume.copy` is missing"),
        (Some(of_another_store), "`volume.copy` is not the copy"),
        (Some(earlier), "`volume.copy` is not the copy"),
    ] {
        let image = disk.process_end();
        match bytes {
            None => image.remove("volume.copy").expect("removed"),
            Some(bytes) => overwrite(&image, "volume.copy", &bytes),
        }
        let found = faults(&read_only(&image));
        let [fault] = &found[..] else { panic!("{what}: {found:?}") };
        assert!(fault.what.contains(what) && fault.what.contains("opening for writing"), "{}", fault.what);
        open(&image).close().expect("closed");
        assert_eq!(faults(&read_only(&image)), [], "{what}");
    }
}

/// Symptom: with both heads damaged the advice was to make a new store, over segments that were whole. Fix: it says what is there
/// and what to do, and nothing is changed.
#[test]
fn without_both_heads_segments_are_named_and_nothing_is_made_or_removed() {
    let disk = SimulatedDisk::new("one");
    let store = store_on(&disk, Mode::Store);
    (0..20).for_each(|number| put(&store, number, number));
    store.close().expect("closed");
    let (head, before) = (disk.bytes("volume").expect("there"), disk.names().expect("read"));
    for name in ["volume", "volume.copy"] {
        overwrite(&disk, name, &[0; 200]);
    }
    for read_only in [true, false] {
        let options = OpenOptions { read_only, ..OpenOptions::default() };
        let error = Store::open(vec![Arc::new(disk.clone())], options).map(drop).expect_err("no head");
        assert!(matches!(error, StoreError::HeadsLost { segments: 1, .. }), "{error:?}");
        let text = error.to_string();
        assert!(text.contains("do not remove") && !text.contains("pack create"), "{text}");
    }
    let volume = VolumeSpec { disk: Arc::new(disk.clone()), size_bytes: 8 << 20 };
    let made = Store::create(vec![volume], StoreOptions::default()).map(drop);
    assert!(matches!(made, Err(StoreError::NotEmpty { .. })), "{made:?}");
    let names = |names: Vec<String>| names.into_iter().filter(|name| name != "lock").collect::<BTreeSet<_>>();
    assert_eq!(names(disk.names().expect("read")), names(before));
    // Its head back, all is there.
    overwrite(&disk, "volume", &head);
    let store = open(&disk);
    (0..20).for_each(|number| assert!(get(&store, number) == Some(body(number)), "{number}"));
}

/// What power cut short is no damage, and what is damaged later in its place is.
#[test]
fn what_a_kill_left_half_written_at_an_index_s_end_is_cleared_by_the_next_opening_for_writing() {
    let disk = SimulatedDisk::new("one");
    let store = store_on(&disk, Mode::Store);
    (0..20).for_each(|number| put(&store, number, number));
    drop(store);
    let end = index_end(&disk);
    let faults = |disk: &SimulatedDisk| read_only(disk).check(|_, _| {}).expect("checked").faults;
    let image = disk.process_end();
    let tear = || {
        let index = image.open(INDEX, DiskOpen::Write).expect("it opens");
        index.write_at(&[0x5a; 100], end).expect("torn");
    };
    tear();
    assert!(
        matches!(&faults(&image)[..], [fault] if fault.what.contains("cut short")),
        "{:?}",
        faults(&image)
    );
    let store = open(&image);
    assert_eq!(store.check(|_, _| {}).expect("checked").faults, []);
    store.close().expect("closed");
    assert_eq!(faults(&image), []);
    (0..20).for_each(|number| assert!(get(&read_only(&image), number) == Some(body(number))));
    tear();
    assert!(matches!(&faults(&image)[..], [fault] if fault.file == Some(0)), "{:?}", faults(&image));
}

#[test]
fn a_volume_is_emptied_and_removed_and_the_store_is_whole_without_it() {
    for (mode, clean) in [(Mode::Store, true), (Mode::Store, false), (Mode::Cache, true)] {
        let disks = [SimulatedDisk::new("one"), SimulatedDisk::new("two"), SimulatedDisk::new("three")];
        let volumes =
            disks.iter().map(|disk| VolumeSpec { disk: Arc::new(disk.clone()), size_bytes: 8 << 20 });
        let options = StoreOptions { mode, packed_blocks: Some((512 << 10) / 64), ..StoreOptions::default() };
        let store = Store::create(volumes.collect(), options).expect("a new store");
        fill(&store);
        (100..300).for_each(|number| put(&store, number, number));
        let moved = store.remove_volume("two").expect("removed");
        assert!(moved.records_moved > 30, "{moved:?}");
        let left = disks[1].names().expect("listed");
        assert_eq!(left, ["lock"], "{mode:?}");
        assert!(matches!(store.remove_volume("two"), Err(StoreError::NotAVolume { .. })));
        (300..400).for_each(|number| put(&store, number, number));
        if clean {
            store.close().expect("closed");
        } else {
            store.flush().expect("flushed");
            drop(store);
        }
        let disks = [disks[0].process_end(), disks[2].process_end()];
        let store = open_all(&disks, OpenOptions::default());
        assert!(store.wait_until_ready(Duration::from_secs(60)));
        all_there(&store, "without it");
        (30..40).for_each(|number| assert!(get(&store, number).is_none(), "{mode:?}: {number} is back"));
        (100..400)
            .for_each(|number| assert!(get(&store, number) == Some(body(number)), "{mode:?}: {number}"));
        assert_eq!(store.check(|_, _| {}).expect("checked").faults, [], "{mode:?}");
        store.remove_volume("three").expect("removed");
        assert!(matches!(store.remove_volume("one"), Err(StoreError::Setting { .. })), "the last one");
        all_there(&store, "alone");
        // One more comes, and gets a number of its own.
        let new = SimulatedDisk::new("four");
        store.add_volume(VolumeSpec { disk: Arc::new(new.clone()), size_bytes: 8 << 20 }).expect("added");
        (400..500).for_each(|number| put(&store, number, number));
        store.close().expect("closed");
        let store = open_all(&[disks[0].clone(), new], OpenOptions::default());
        assert!(store.wait_until_ready(Duration::from_secs(60)));
        (100..500)
            .for_each(|number| assert!(get(&store, number) == Some(body(number)), "{mode:?}: {number}"));
        assert_eq!(store.check(|_, _| {}).expect("checked").faults, [], "{mode:?}");
    }
}

/// What this is for: a store that lost a volume was read-only for ever.
#[test]
fn a_lost_volume_is_given_up_and_the_store_takes_objects_again() {
    for clean in [true, false] {
        let disks = two_volumes(clean);
        let options = OpenOptions { without_missing: true, ..OpenOptions::default() };
        let store = open_all(&disks[..1], options);
        let there = (0..200).filter(|&number| get(&store, number).is_some()).count();
        let records = store.give_up_missing().expect("given up");
        assert_eq!(records, clean.then_some(200 - there as u64));
        assert_eq!(store.check(|_, _| {}).expect("checked").faults, [], "clean {clean}");
        (300..400).for_each(|number| put(&store, number, number));
        store.close().expect("closed");
        // It opens as any other from now on, and the one that was given up is refused.
        let store = open_all(&disks[..1], OpenOptions::default());
        (300..400).for_each(|number| assert!(get(&store, number) == Some(body(number)), "{number}"));
        assert_eq!(store.check(|_, _| {}).expect("checked").faults, [], "clean {clean}");
        drop(store);
        let both = disks.iter().map(|disk| Arc::new(disk.clone()) as Arc<dyn Disk>).collect();
        let error = Store::open(both, OpenOptions::default()).err().expect("it was given up");
        assert!(matches!(error, StoreError::Foreign { .. }), "{error}");
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
