//! A disk without room, and one that fails.

use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use disk::{Disk as _, DiskOpen};
use files::{FileSystem, Status};
use packtree::{PackTree, check};
use testkit::{DiskFault, DiskOperation, SimulatedDisk};

use crate::scenario::{SMALL, all, opened, pattern, read, write, write_all};

#[test]
fn a_full_disk_refuses_writes_keeps_what_is_there_and_takes_more_after_a_removal() {
    let machine = SimulatedDisk::new("machine").with_room(1 << 20);
    PackTree::create(&machine, &SMALL).unwrap();
    let tree = opened(Arc::new(machine.clone()));
    let mut written = Vec::new();
    let refused = loop {
        let name = format!("file-{}", written.len());
        let bytes = pattern(10_000, written.len() as u64);
        let mut file = match tree.create(Path::new(&name)) {
            Ok(file) => file,
            Err(error) => break error,
        };
        match file.write(&bytes) {
            Ok(length) => assert_eq!(length, bytes.len()),
            Err(error) => break error,
        }
        written.push((name, bytes));
    };
    assert_eq!(refused.status(), Some(Status::NOSPC), "{refused}");
    assert!(written.len() > 70, "{} files of 10,000 bytes in 1 MiB", written.len());
    for (name, bytes) in &written {
        assert!(read(&tree, name) == *bytes, "{name}");
    }
    for (name, _) in written.drain(..20) {
        tree.unlink(Path::new(&name)).unwrap();
    }
    for number in 0..15 {
        write(&tree, &format!("later-{number}"), &pattern(10_000, number));
    }
    let before = all(&tree);
    tree.close().unwrap();
    assert_eq!(check(&machine, |_, _| ()).unwrap().faults, []);
    assert_eq!(all(&opened(Arc::new(machine))), before);
}

/// Symptom: each opening took a further segment for the journal, so that a tree on a full disk could be neither opened nor emptied.
#[test]
fn a_disk_without_room_for_a_second_segment_still_opens_and_gives_files_up() {
    let machine = SimulatedDisk::new("machine").with_room(u64::from(SMALL.segment_bytes) + (48 << 10));
    PackTree::create(&machine, &SMALL).unwrap();
    for number in 0..12 {
        let tree = opened(Arc::new(machine.clone()));
        write(&tree, &format!("file-{number}"), &pattern(1_000, number));
        if let Some(before) = number.checked_sub(1) {
            tree.unlink(Path::new(&format!("file-{before}"))).unwrap();
        }
        if number % 2 == 0 {
            tree.close().unwrap();
        } else {
            drop(tree);
        }
        assert_eq!(check(&machine, |_, _| ()).unwrap().faults, [], "{number}");
    }
    assert!(read(&opened(Arc::new(machine)), "file-11") == pattern(1_000, 11));
}

/// Symptom: a tree whose disk was full when its process was killed could not even be read or copied.
#[test]
fn a_tree_on_a_disk_without_room_for_a_journal_is_opened_to_be_read() {
    let machine = SimulatedDisk::new("machine").with_room(u64::from(SMALL.segment_bytes) + (64 << 10));
    PackTree::create(&machine, &SMALL).unwrap();
    let tree = opened(Arc::new(machine.clone()));
    // All blocks, all of the one room of the journal that names may have, and what is left to removals.
    let mut contents = tree.create(Path::new("contents")).unwrap();
    for bytes in [20_000, 1_000, 60] {
        while contents.write(&pattern(bytes, 1)).is_ok() {}
    }
    let name = |number| format!("a-file-with-a-name-{number}");
    let made = (0..).take_while(|number| tree.create(Path::new(&name(*number))).is_ok()).count();
    assert!(made > 20, "{made} names");
    let gone = (0..made).rev().take_while(|number| tree.unlink(Path::new(&name(*number))).is_ok()).count();
    assert!(gone > 0 && gone < made, "{gone} of {made} removed");
    let before = all(&tree);
    let killed = machine.process_end();
    drop((contents, tree));
    let machine = killed;
    machine.remove("spare").unwrap();
    // Another program takes what is left.
    let others = machine.open("ballast", DiskOpen::New).unwrap();
    let mut taken = 0;
    while others.write_at(&[1; 512], taken).is_ok() {
        taken += 512;
    }
    let (mut readable, mut refused) = (0, 0);
    for _ in 0..20 {
        let tree = opened(Arc::new(machine.clone()));
        assert!(all(&tree) == before);
        readable += 1;
        if let Some(why) = tree.unwritable() {
            assert_eq!(why.kind(), ErrorKind::StorageFull);
            refused += 1;
            assert!(tree.create(Path::new("more")).is_err());
        }
    }
    assert!(readable == 20 && refused > 0, "{refused} of {readable} were opened to be read");
    let read = PackTree::open_to_read(Arc::new(machine.clone()), &SMALL, "tree").unwrap();
    assert!(all(&read) == before);
    drop(read);
    machine.remove("ballast").unwrap();
    let tree = opened(Arc::new(machine));
    assert!(tree.unwritable().is_none() && all(&tree) == before);
    tree.unlink(Path::new("a-file-with-a-name-0")).unwrap();
}

#[test]
fn after_a_failed_sync_nothing_is_written_until_the_tree_is_opened_again() {
    let machine = SimulatedDisk::new("machine");
    PackTree::create(&machine, &SMALL).unwrap();
    let tree = opened(Arc::new(machine.clone()));
    write(&tree, "safe", b"1");
    tree.sync_all().unwrap();
    let safe = all(&tree);
    let mut file = tree.create(Path::new("lost")).unwrap();
    write_all(&mut *file, b"2");
    machine.fail(DiskOperation::Sync, None, 0, 1, DiskFault::SyncLost);
    assert_eq!(tree.sync_all().err().and_then(|error| error.status()), Some(Status::IO));
    // A second sync that succeeds would prove nothing.
    assert!(tree.sync_all().is_err() && tree.create(Path::new("more")).is_err() && file.write(b"3").is_err());
    drop((file, tree));
    // The lost bytes are in no later state of the disk.
    let tree = opened(Arc::new(machine.power_cut(1)));
    assert_eq!(all(&tree), safe);
    write(&tree, "more", b"3");
}
