//! What is said when `table` is gone or damaged, and with it the end of an index.

use disk::{Disk, DiskOpen};
use packstore::{Mode, Store};
use testkit::SimulatedDisk;

use super::super::model::body;
use super::{INDEX, get, key, open, overwrite, put, read_only, store_on};

/// Where the last mark of the index ends: its last 8 bytes are zeros.
fn index_end(disk: &SimulatedDisk) -> u64 {
    let bytes = disk.bytes(INDEX).expect("it is there");
    bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| (last as u64 + 1).next_multiple_of(8) + 8)
}

/// A closed store of objects 0 to 19, of which the last five were deleted; and where its index ended before.
fn with_five_deleted() -> (SimulatedDisk, u64) {
    let disk = SimulatedDisk::new("one");
    let store = store_on(&disk, Mode::Store);
    (0..20).for_each(|number| put(&store, number, number));
    store.flush().expect("flushed");
    let kept = index_end(&disk);
    (15..20).for_each(|number| assert!(store.delete(&key(number)).expect("deleted")));
    store.close().expect("closed");
    (disk, kept)
}

/// Symptom: an object that had been deleted was back, and `check` found nothing wrong. Cause: both what a clean stop leaves (`table`)
/// and the end of an index, with the tombstone, were damaged; what is behind an index's last mark was taken for what power cut
/// short. Fix: `check` reports a damaged table, and each index that does not end as it was left.
#[test]
fn check_says_that_deletions_may_be_back_when_the_table_and_the_end_of_an_index_are_damaged() {
    let (disk, kept) = with_five_deleted();
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
        // What was cut off where a mark ends looks whole; the table shows that it may not be.
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
    let (disk, kept) = with_five_deleted();
    let faults = |store: &Store| store.check(|_, _| {}).expect("checked").faults;
    let warns =
        |store: &Store| faults(store).iter().any(|fault| fault.what.contains("deleted last may be back"));
    // Where a mark ends, and where the first tombstone does.
    for from in [kept, kept + 40] {
        let image = disk.process_end();
        image.remove("table").expect("removed");
        assert_eq!(faults(&read_only(&image)), [], "nothing is missing as long as the indexes are whole");
        image.open(INDEX, DiskOpen::Write).expect("it opens").set_length(from).expect("cut");
        let looking = read_only(&image);
        assert!((15..20).any(|number| get(&looking, number).is_some()), "{from}: this tests nothing");
        assert!(warns(&looking), "{from}: {:?}", faults(&looking));
        drop(looking);
        let store = open(&image);
        (100..300).for_each(|number| put(&store, number, number));
        assert!(warns(&store), "{from}, after puts");
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
