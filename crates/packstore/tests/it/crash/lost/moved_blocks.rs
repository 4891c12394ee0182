//! Blocks of an index that are in the wrong place: written over other blocks of it, once or twice, or replaced by zeros.

use disk::{Disk, DiskOpen};
use packstore::{Mode, OpenOptions, Store, StoreError};
use std::sync::Arc;
use testkit::SimulatedDisk;

use super::super::model::body;
use super::{body_of, is_kept, key, numbers, read_only, several_files};

/// As `crumb pack repair` opens it.
fn open_to_repair(disk: &SimulatedDisk) -> Store {
    let options = OpenOptions { move_aside: true, ..OpenOptions::default() };
    Store::open(vec![Arc::new(disk.clone())], options).expect("it opens")
}

/// Offsets of blocks in an index of this length, and of what is written over them; `None`: zeros.
fn damages(length: u64) -> Vec<(u64, Option<u64>)> {
    const STEP: u64 = 1_496;
    let places = (64..length.saturating_sub(BLOCK)).step_by(STEP as usize).collect::<Vec<_>>();
    let moved = places.iter().flat_map(|&to| [64, length / 2 / 8 * 8].map(|from| (to, Some(from))));
    moved
        .chain(places.iter().map(|&to| (to, None)))
        .filter(|&(to, from)| from.is_none_or(|from| from.abs_diff(to) >= BLOCK))
        .collect()
}

const BLOCK: u64 = 4_096;

fn damage(disk: &SimulatedDisk, name: &str, to: u64, from: Option<u64>) {
    let bytes = disk.bytes(name).expect("it is there");
    let block =
        from.map_or(vec![0; BLOCK as usize], |from| bytes[from as usize..][..BLOCK as usize].to_vec());
    disk.open(name, DiskOpen::Write).and_then(|file| file.write_at(&block, to)).expect("damaged");
}

/// Symptom: a repair deleted readable objects, and `get` was content, when blocks of an index had been written over others of it. Cause:
/// index records that were there twice counted twice, so that nothing seemed to be missing, and their objects seemed to overlap with
/// themselves; zeros counted as room never written. Fix: a second copy of an index record, and zeros before others, are damage.
#[test]
fn a_block_of_an_index_in_another_s_place_is_reported_and_a_repair_brings_back_all_that_is_whole() {
    let mut repaired = 0;
    for clean in [true, false] {
        let (disk, files) = several_files(Mode::Store, clean);
        for file in 0..files {
            let name = format!("{file:08}.index");
            let bytes = disk.bytes(&name).expect("it is there");
            let used = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last as u64);
            for (to, from) in damages(used) {
                let when = format!("clean {clean}, {name}, byte {to} from {from:?}");
                let image = disk.process_end();
                damage(&image, &name, to, from);
                told_of(&read_only(&image), clean, &when);
                let store = open_to_repair(&image);
                let report = store.repair(|_, _| {}).expect("repaired");
                assert_eq!((report.deleted, &report.left), (0, &vec![]), "{when}");
                all_back(&store, clean, &when);
                drop(store);
                let store = open_to_repair(&image.process_end());
                assert_eq!(
                    store.check(|_, _| {}).expect("checked").faults,
                    [],
                    "{when}, in the next process"
                );
                all_back(&store, clean, &when);
                repaired += 1;
            }
        }
    }
    assert!(repaired > 50, "{repaired}");
}

/// Before a repair: the damage is reported, and no key names nothing, or something older, without an error.
fn told_of(store: &Store, clean: bool, when: &str) {
    assert!(!store.check(|_, _| {}).expect("checked").faults.is_empty(), "{when}: check");
    assert!(!store.missing_parts().expect("looked for").is_empty(), "{when}: what a get asks");
    for number in numbers().filter(|&number| is_kept(number)) {
        let found = store.get(&key(number));
        match found.and_then(|object| object.map(|object| object.read_all()).transpose()) {
            Ok(Some(bytes)) => assert!(bytes == body(number), "{when}: {number}"),
            Err(StoreError::Damaged { .. }) if !clean => {}
            Ok(None) => panic!("{when}: {number} is not there"),
            Err(error) => panic!("{when}: {number}: {error}"),
        }
    }
}

fn all_back(store: &Store, clean: bool, when: &str) {
    for number in numbers() {
        let found = body_of(store, number);
        match is_kept(number) {
            true => assert!(found == Some(body(number)), "{when}: {number} is lost"),
            // Without the table a deletion is known as long as a tombstone is, and both of its copies may have been in the block.
            false => assert!(found.is_none() || !clean, "{when}: {number} is back"),
        }
    }
}

/// While an index is damaged, nothing is put where the objects are that it may have named, and a stop makes nothing of them final.
#[test]
fn objects_that_a_damaged_index_may_have_named_outlast_puts_and_a_clean_stop_before_the_repair() {
    let (disk, files) = several_files(Mode::Store, false);
    for file in 0..files {
        let name = format!("{file:08}.index");
        let image = disk.process_end();
        let bytes = image.bytes(&name).expect("it is there");
        let used = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last as u64);
        let Some(to) = used.checked_sub(2 * BLOCK) else { continue };
        damage(&image, &name, to, None);
        let store = super::open(&image);
        (600..900).for_each(|number| super::put(&store, number, number));
        store.close().expect("closed");
        let store = open_to_repair(&image);
        let report = store.repair(|_, _| {}).expect("repaired");
        assert_eq!((report.deleted, &report.left), (0, &vec![]), "{name}");
        all_back(&store, false, &name);
        (600..900)
            .for_each(|number| assert!(body_of(&store, number) == Some(body(number)), "{name}: {number}"));
        drop(store);
        all_back(&super::open(&image.process_end()), false, &name);
    }
}
