//! Damaged bytes in every file: what they cost, and that opening and `check` say so.

use std::path::Path;
use std::sync::Arc;

use files::{Access, FileSystem, Status};
use packtree::{PackTree, TreeError, TreeReport, check};
use testkit::SimulatedDisk;

use crate::scenario::{SMALL, There, all, opened, pattern, write};

/// A tree with a checkpoint and a journal behind it, stopped cleanly.
fn machine() -> SimulatedDisk {
    let machine = SimulatedDisk::new("machine");
    PackTree::create(&machine, &SMALL).unwrap();
    let tree = opened(Arc::new(machine.clone()));
    tree.mkdir(Path::new("directory")).unwrap();
    for number in 0..700 {
        write(&tree, &format!("directory/file-{number}"), &pattern(100 + number, number as u64));
    }
    tree.close().unwrap();
    assert_eq!(report(&machine).faults, []);
    machine
}

fn report(machine: &SimulatedDisk) -> TreeReport {
    check(&machine.process_end(), |_, _| ()).unwrap()
}

#[test]
fn a_flipped_bit_in_a_file_costs_that_file_and_check_names_it() {
    let machine = machine();
    let bytes = machine.bytes("space").unwrap();
    let wanted = pattern(100 + 333, 333);
    let at = bytes.windows(wanted.len()).position(|window| *window == *wanted).expect("stored as it is");
    assert!(machine.flip("space", at as u64 * 8 + 100));
    let found = report(&machine);
    let faults: Vec<_> = found.faults.iter().map(|fault| &fault.what[..]).collect();
    assert_eq!(faults, ["directory/file-333: bytes 0 to 433 are damaged"]);
    // Opening does not look at contents that are known to be durable; reading does.
    let tree = opened(Arc::new(machine));
    let mut file = tree.open(Path::new("directory/file-333"), Access::Read).unwrap();
    let error = file.read(&mut [0; 10]).unwrap_err();
    assert_eq!(error.status(), Some(Status::IO));
    for number in (0..700).filter(|number| *number != 333) {
        let path = format!("directory/file-{number}");
        assert!(crate::scenario::read(&tree, &path) == pattern(100 + number, number as u64), "{path}");
    }
}

#[test]
fn a_damaged_record_of_the_journal_costs_its_change_and_the_rest_can_be_read() {
    let whole = machine();
    let before = all(&opened(Arc::new(whole.process_end())));
    let bytes = whole.bytes("space").unwrap();
    let mut lost_names = 0;
    // The head of every room, and some of its records.
    for room in (0..bytes.len()).step_by(SMALL.segment_bytes as usize) {
        for offset in [3, 64, 700, 1500, 4000] {
            let machine = whole.process_end();
            assert!(machine.flip("space", (room + offset) as u64 * 8));
            let found = report(&machine);
            let tree = opened(Arc::new(machine));
            assert_eq!(tree.faults().is_empty(), found.faults.is_empty(), "room at {room}, byte {offset}");
            let after = all(&tree);
            if found.faults.is_empty() {
                // A room that the checkpoint made superfluous, or bytes behind the last record.
                assert!(after == before, "room at {room}, byte {offset}: no fault, and another tree");
                continue;
            }
            lost_names += 1;
            assert!(
                found.faults.iter().any(|fault| fault.what.starts_with("journal: ")),
                "{:?}",
                found.faults
            );
            let status = tree.create(Path::new("new")).err().and_then(|error| error.status());
            assert_eq!(status, Some(Status::ROFS));
            // What is there is whole or, where its write was lost, empty.
            for (path, there) in &after {
                let same = before.get(path) == Some(there);
                let empty = matches!(there, There::File { bytes, .. } if bytes.is_empty());
                assert!(same || empty, "room at {room}, byte {offset}: {path}");
            }
            if offset > 64 {
                assert!(after.len() + 2 >= before.len(), "one record costs one name");
            }
        }
    }
    assert!(lost_names > 5, "{lost_names}");
}

#[test]
fn a_damaged_record_of_the_checkpoint_costs_its_file_and_a_damaged_head_is_reported() {
    let whole = machine();
    let length = whole.bytes("names").unwrap().len() as u64;
    for byte in [100, length / 2, length - 10] {
        let machine = whole.process_end();
        assert!(machine.flip("names", byte * 8));
        let found = report(&machine);
        assert!(
            found.faults.iter().any(|fault| fault.what.starts_with("names: ")),
            "{byte}: {:?}",
            found.faults
        );
        let tree = opened(Arc::new(machine));
        assert!(!tree.faults().is_empty());
        if byte > 200 {
            assert!(all(&tree).len() >= 700, "{byte}");
        }
    }
    let machine = whole.process_end();
    assert!(machine.flip("names", 20 * 8));
    assert!(report(&machine).faults[0].what.starts_with("names: missing, or its head is damaged"));
}

#[test]
fn a_damaged_head_of_the_tree_is_no_tree_and_nothing_is_made_in_its_place() {
    let machine = machine();
    let names = disk::Disk::names(&machine).unwrap();
    assert!(machine.flip("tree", 100));
    assert!(matches!(check(&machine, |_, _| ()), Err(TreeError::NoTree { .. })));
    let opened = PackTree::open(Arc::new(machine.clone()), &SMALL, "pack:test");
    assert!(matches!(opened.map(drop), Err(TreeError::NoTree { .. })));
    assert_eq!(disk::Disk::names(&machine).unwrap(), names);
}
