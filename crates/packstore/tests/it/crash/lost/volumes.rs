//! Heads of volumes and their copies, and volumes that are lost or leave.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use disk::{Disk, DiskOpen};
use packstore::{Mode, OpenOptions, Store, StoreError, StoreOptions, VolumeSpec};
use testkit::SimulatedDisk;

use super::super::model::body;
use super::{all_there, fill, get, open, overwrite, put, read_only, store_on};

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
