//! A repair that is killed at each of its file operations, and the repair after it: no object is lost that is whole in its data file.

use std::sync::Arc;
use std::time::Duration;

use disk::{Disk, DiskOpen};
use packstore::{Mode, OpenOptions, RepairReport, Store, StoreError};
use testkit::SimulatedDisk;

use super::lost::{body_of, numbers, several_files};
use super::model::mixed;

/// How an index is damaged.
#[derive(Clone, Copy, Debug)]
enum Damage {
    /// Zeros from a third of it to a half: index records in the middle cannot be read.
    Zeros,
    /// Other bytes there.
    Noise,
    /// One bit of one index record, which its checksum corrects.
    Bit,
    /// Its head, more than one bit.
    Head,
    /// Its second half is gone.
    Cut,
    /// None of it can be read.
    Whole,
}

const DAMAGES: [Damage; 6] =
    [Damage::Zeros, Damage::Noise, Damage::Bit, Damage::Head, Damage::Cut, Damage::Whole];

fn damage(disk: &SimulatedDisk, name: &str, how: Damage) {
    let bytes = disk.bytes(name).expect("it is there");
    // Index files may end in room that was never written.
    let length = bytes.iter().rposition(|&byte| byte != 0).expect("it has index records") + 1;
    let file = disk.open(name, DiskOpen::Write).expect("it opens");
    let noise = |range: std::ops::Range<usize>| range.map(|at| mixed(at as u64) as u8).collect::<Vec<_>>();
    let (third, half) = (length / 3 / 8 * 8, length / 2);
    match how {
        Damage::Zeros => file.write_at(&vec![0; half - third], third as u64),
        Damage::Noise => file.write_at(&noise(third..half), third as u64),
        Damage::Bit => file.write_at(&[bytes[third] ^ 4], third as u64),
        Damage::Head => file.write_at(&noise(0..64), 0),
        Damage::Cut => file.set_length(half as u64),
        Damage::Whole => file.write_at(&noise(0..length), 0),
    }
    .expect("damaged");
    file.sync().expect("synced");
}

/// As `crumb pack repair` does it.
fn repaired(disk: &SimulatedDisk) -> Result<RepairReport, StoreError> {
    let options = OpenOptions { move_aside: true, ..OpenOptions::default() };
    let store = Store::open(vec![Arc::new(disk.clone())], options)?;
    let report = store.repair(|_, _| {})?;
    store.close()?;
    Ok(report)
}

fn opened(disk: &SimulatedDisk) -> Store {
    let store = Store::open(vec![Arc::new(disk.clone())], OpenOptions::default()).expect("it opens");
    assert!(store.wait_until_ready(Duration::from_secs(60)));
    store
}

fn bodies(store: &Store) -> Vec<Option<Vec<u8>>> {
    numbers().map(|number| body_of(store, number)).collect()
}

/// All that was there is there. What was deleted may be back, if both copies of its tombstone were damaged.
fn compare(found: &[Option<Vec<u8>>], expected: &[Option<Vec<u8>>], when: &str) {
    for ((number, expected), found) in numbers().zip(expected).zip(found) {
        assert!(expected.is_none() || found == expected, "{when}: {number} is lost");
    }
}

/// A store that was closed cleanly, with one index damaged, and what was in it.
fn damaged_store(mode: Mode, how: Damage) -> (SimulatedDisk, Vec<Option<Vec<u8>>>) {
    let (disk, _) = several_files(mode, true);
    let expected = bodies(&opened(&disk.process_end()));
    assert!(expected.iter().flatten().count() > 300, "{mode:?}");
    let name = disk.names().expect("listed").into_iter().filter(|name| name.ends_with(".index")).min();
    damage(&disk, &name.expect("there are some"), how);
    (disk, expected)
}

/// Symptom: damage in the middle of an index costs nothing after a clean stop, as the file `table` says what counts. But when a repair was
/// killed, the next one deleted objects that were whole in the data file. Cause: the opening removed `table` before the repair had
/// rewritten the index. Fix: an opening for a repair rewrites damaged indexes first.
#[test]
fn a_repair_that_is_killed_at_any_operation_costs_no_object_and_the_next_repair_ends_it() {
    for (mode, how) in [Mode::Store, Mode::Cache].into_iter().flat_map(|mode| DAMAGES.map(|how| (mode, how)))
    {
        let (disk, expected) = damaged_store(mode, how);
        let whole = disk.process_end();
        let first = whole.operations();
        let report = repaired(&whole).expect("repaired");
        assert!(!report.found.faults.is_empty(), "{mode:?}, {how:?}: the damage is reported");
        assert_eq!((report.deleted, &report.left), (0, &vec![]), "{mode:?}, {how:?}");
        compare(&bodies(&opened(&whole.process_end())), &expected, &format!("{mode:?}, {how:?}, no kill"));
        let operations = first..whole.operations();
        assert!(operations.end > first + 10, "{operations:?}");
        for operation in operations {
            let killed = disk.process_end();
            killed.stop_at(operation);
            let _ = repaired(&killed);
            for (image, after) in [killed.process_end(), killed.power_cut(operation)].into_iter().enumerate()
            {
                let when = format!("{mode:?}, {how:?}, killed at {operation}, image {image}");
                let report = repaired(&after).unwrap_or_else(|error| panic!("{when}: {error}"));
                assert_eq!((report.deleted, &report.left, &report.lost), (0, &vec![], &vec![]), "{when}");
                let store = opened(&after);
                compare(&bodies(&store), &expected, &when);
                assert_eq!(store.check(|_, _| {}).expect("checked").faults, [], "{when}");
                // Nor after a kill of the store, when the indexes alone say what there is.
                drop(store);
                compare(&bodies(&opened(&after.process_end())), &expected, &format!("{when}, and once more"));
            }
        }
    }
}

/// The store is used between the repairs: the killed one had done what only `table` could tell, or had not begun.
#[test]
fn a_store_that_is_used_after_a_repair_was_killed_has_all_objects_after_the_next() {
    for how in [Damage::Zeros, Damage::Noise, Damage::Head, Damage::Cut] {
        let (disk, expected) = damaged_store(Mode::Store, how);
        let whole = disk.process_end();
        let first = whole.operations();
        repaired(&whole).expect("repaired");
        for operation in first..whole.operations() {
            let when = format!("{how:?}, killed at {operation}");
            let killed = disk.process_end();
            killed.stop_at(operation);
            let _ = repaired(&killed);
            let after = killed.power_cut(operation);
            let store = opened(&after);
            compare(&bodies(&store), &expected, &when);
            super::lost::put(&store, 9_000, 1);
            store.close().expect("closed");
            let report = repaired(&after).unwrap_or_else(|error| panic!("{when}: {error}"));
            assert_eq!((report.deleted, &report.left, &report.lost), (0, &vec![], &vec![]), "{when}");
            compare(&bodies(&opened(&after)), &expected, &when);
        }
    }
}

/// A repair on a full disk fails before `table` is gone, and one with room then loses nothing.
#[test]
fn a_repair_that_finds_no_room_for_an_index_leaves_the_table() {
    let (disk, expected) = damaged_store(Mode::Store, Damage::Noise);
    disk.fail(
        testkit::DiskOperation::Create,
        Some("00000000.index.new"),
        0,
        1,
        testkit::DiskFault::Refused(std::io::ErrorKind::StorageFull),
    );
    let refused = repaired(&disk).expect_err("there is no room");
    assert!(matches!(refused, StoreError::Full), "{refused}");
    assert!(disk.bytes("table").is_some());
    disk.heal();
    assert_eq!(repaired(&disk).expect("repaired").deleted, 0);
    compare(&bodies(&opened(&disk.process_end())), &expected, "with room");
}
