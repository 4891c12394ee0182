//! Files under the names of other segments: nothing is written over them, and a repair refuses while they may be all there is.

use std::sync::Arc;
use std::time::Duration;

use disk::{Disk, DiskOpen};
use packstore::{Mode, OpenOptions, PutOptions, Store, StoreError};
use testkit::SimulatedDisk;

use super::lost::{body_of, numbers, put, several_files};

fn open(disk: &SimulatedDisk) -> Store {
    let options = OpenOptions { move_aside: true, ..OpenOptions::default() };
    let store = Store::open(vec![Arc::new(disk.clone())], options).expect("it opens");
    assert!(store.wait_until_ready(Duration::from_secs(60)));
    store
}

fn bodies(store: &Store) -> Vec<Option<Vec<u8>>> {
    numbers().map(|number| body_of(store, number)).collect()
}

fn names(disk: &SimulatedDisk) -> Vec<String> {
    let mut names = disk.names().expect("listed");
    names.retain(|name| name.ends_with(".body") || name.ends_with(".index"));
    names.sort();
    names
}

/// By way of a third name, as both may be taken.
fn swap(disk: &SimulatedDisk, one: &str, other: &str) {
    for (from, to) in [(one, "third"), (other, one), ("third", other)] {
        match disk.rename(from, to) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => panic!("{from} to {to}: {error}"),
            _ => {}
        }
    }
}

fn copy(from: &SimulatedDisk, name: &str, to: &SimulatedDisk, as_name: &str) {
    let bytes = from.bytes(name).expect("there");
    let _ = to.remove(as_name);
    to.open(as_name, DiskOpen::New).and_then(|file| file.write_at(&bytes, 0)).expect("copied");
    to.sync_names().expect("synced");
}

/// Symptom: a data file that was renamed to another segment's number was given to new objects when the store was next opened for writing,
/// and a repair deleted all objects of its segment; so did one of two data files that were swapped. Cause: what a file holds was not
/// compared with its name. Fix: such a file is left alone and named, and a repair refuses before it changes anything.
#[test]
fn data_files_under_other_names_are_left_alone_and_their_objects_are_back_with_the_names() {
    let renamed: [(&str, &[(&str, &str)]); 4] = [
        ("a data file renamed", &[("00000000.body", "00000009.body")]),
        ("two data files swapped", &[("00000000.body", "00000001.body")]),
        ("a segment renamed", &[("00000000.body", "00000009.body"), ("00000000.index", "00000009.index")]),
        ("an index renamed too", &[("00000001.body", "00000009.body"), ("00000001.index", "00000008.index")]),
    ];
    for (clean, (what, pairs)) in [true, false].into_iter().flat_map(|clean| renamed.map(|one| (clean, one)))
    {
        let what = format!("{what}, clean {clean}");
        let (disk, _) = several_files(Mode::Store, clean);
        let expected = bodies(&open(&disk.process_end()));
        pairs.iter().for_each(|(one, other)| swap(&disk, one, other));
        let options = OpenOptions { read_only: true, ..OpenOptions::default() };
        let store = Store::open(vec![Arc::new(disk.clone())], options).expect("it opens");
        let faults = store.check(|_, _| {}).expect("checked").faults;
        let named =
            faults.iter().filter(|fault| fault.by_hand && fault.what.contains("give it that name back"));
        assert!(named.count() >= 1, "{what}: {faults:?}");
        drop(store);
        // An opening for writing, and objects that look for room.
        let store = open(&disk);
        for number in 600..1_600_u32 {
            store.put(&number.to_le_bytes(), &[number as u8; 3_000], PutOptions::default()).expect("put");
        }
        let before = names(&disk);
        let refused = store.repair(|_, _| {}).expect_err("refused");
        assert!(matches!(&refused, StoreError::Misplaced { belongs: Some(_), .. }), "{what}: {refused}");
        assert_eq!(names(&disk), before, "{what}");
        store.close().expect("closed");
        pairs.iter().for_each(|(one, other)| swap(&disk, one, other));
        let store = open(&disk);
        let repaired = store.repair(|_, _| {}).expect("repaired");
        assert_eq!(
            (repaired.deleted, &repaired.left, &repaired.lost),
            (0, &vec![], &vec![]),
            "{what}: {repaired:?}"
        );
        let found = bodies(&store);
        for ((number, wanted), found) in numbers().zip(&expected).zip(found) {
            assert!(wanted.is_none() || found == *wanted, "{what}: {number} is lost");
        }
        for number in 600..1_600_u32 {
            let found = store.get(&number.to_le_bytes()).expect("readable").expect("there");
            assert!(found.read_all().expect("whole") == [number as u8; 3_000], "{what}: {number}");
        }
        assert_eq!(store.check(|_, _| {}).expect("checked").faults, [], "{what}");
    }
}

/// Symptom: a segment of another store with objects of the same keys made those of this store damaged, and a repair deleted them.
/// Cause: an index whose head is of another store was read as one whose head is damaged.
#[test]
fn a_segment_of_another_store_costs_nothing_is_not_written_over_and_goes_by_hand() {
    for clean in [true, false] {
        let (disk, _) = several_files(Mode::Store, clean);
        let (stranger, _) = several_files(Mode::Store, false);
        // Newer than any of this store, by their numbers.
        let store = open(&stranger);
        numbers().for_each(|number| put(&store, number, number + 5_000));
        drop(store);
        let stranger = stranger.process_end();
        let expected = bodies(&open(&disk.process_end()));
        for files in [&["body"][..], &["index"], &["body", "index"]] {
            let what = format!("{files:?}, clean {clean}");
            let image = disk.process_end();
            let copied = files.iter().map(|end| (format!("00000000.{end}"), format!("00000009.{end}")));
            let copied = copied.collect::<Vec<_>>();
            copied.iter().for_each(|(from, to)| copy(&stranger, from, &image, to));
            let store = open(&image);
            assert_eq!(bodies(&store), expected, "{what}");
            for number in 600..1_600_u32 {
                store.put(&number.to_le_bytes(), &[number as u8; 3_000], PutOptions::default()).expect("put");
            }
            let refused = store.repair(|_, _| {}).expect_err("refused");
            assert!(matches!(&refused, StoreError::Misplaced { belongs: None, .. }), "{what}: {refused}");
            store.close().expect("closed");
            for (from, to) in &copied {
                assert!(image.bytes(to) == stranger.bytes(from), "{what}: {to} is as it was");
                image.remove(to).expect("removed");
            }
            let store = open(&image);
            let repaired = store.repair(|_, _| {}).expect("repaired");
            assert_eq!((repaired.deleted, &repaired.left), (0, &vec![]), "{what}: {repaired:?}");
            assert_eq!(bodies(&store), expected, "{what}");
            assert_eq!(store.check(|_, _| {}).expect("checked").faults, [], "{what}");
        }
    }
}

/// Symptom: an index that was replaced by that of another segment of the store lost the objects of both. Cause: as above.
#[test]
fn an_index_that_is_a_copy_of_another_costs_no_object_of_either() {
    for clean in [true, false] {
        let (disk, files) = several_files(Mode::Store, clean);
        let expected = bodies(&open(&disk.process_end()));
        for (one, other) in (0..files).flat_map(|one| (0..files).map(move |other| (one, other))) {
            let (from, to) = (format!("{one:08}.index"), format!("{other:08}.index"));
            if one == other {
                continue;
            }
            let image = disk.process_end();
            copy(&disk, &from, &image, &to);
            let store = open(&image);
            let what = format!("{from} over {to}, clean {clean}");
            let repaired = store.repair(|_, _| {}).expect("repaired");
            assert_eq!((&repaired.left, &repaired.lost), (&vec![], &vec![]), "{what}");
            drop(store);
            for round in 0..2 {
                let found = bodies(&open(&image.process_end()));
                for ((number, wanted), found) in numbers().zip(&expected).zip(found) {
                    assert!(wanted.is_none() || found == *wanted, "{what}: {number} is lost, round {round}");
                }
            }
        }
    }
}

/// Symptom: with the `volume` of another store put in the place of its own, a store was empty, its copy of the own head was written over,
/// and a repair wrote empty indexes. Cause: a whole head was believed whatever the segments said. Fix: the copy counts where the indexes
/// are of its store.
#[test]
fn a_head_of_another_store_does_not_count_where_the_copy_is_of_the_store_of_the_segments() {
    for clean in [true, false] {
        let (disk, _) = several_files(Mode::Store, clean);
        let (stranger, _) = several_files(Mode::Store, clean);
        let expected = bodies(&open(&disk.process_end()));
        let head = disk.bytes("volume").expect("there");
        copy(&stranger, "volume", &disk, "volume");
        let options = OpenOptions { read_only: true, ..OpenOptions::default() };
        let store = Store::open(vec![Arc::new(disk.clone())], options).expect("it opens");
        assert_eq!(bodies(&store), expected, "clean {clean}, read-only");
        let faults = store.check(|_, _| {}).expect("checked").faults;
        assert!(faults.iter().any(|fault| fault.what.contains("`volume` is of another store")), "{faults:?}");
        drop(store);
        let store = open(&disk);
        assert_eq!(bodies(&store), expected, "clean {clean}");
        let repaired = store.repair(|_, _| {}).expect("repaired");
        assert_eq!((repaired.deleted, &repaired.left), (0, &vec![]), "clean {clean}: {repaired:?}");
        store.close().expect("closed");
        assert!(disk.bytes("volume").is_some_and(|bytes| bytes[16..40] == head[16..40]), "number and seed");
        let store = open(&disk);
        assert_eq!(bodies(&store), expected, "clean {clean}, opened again");
        assert_eq!(store.check(|_, _| {}).expect("checked").faults, [], "clean {clean}");
    }
}
