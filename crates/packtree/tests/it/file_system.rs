//! The seam's contract, and what a reopening finds.

use std::path::Path;

use files::{Access, FileSystem, Status, SyncScope};
use packtree::{PackTree, TreeError, TreeOptions, check};
use testkit::conformance;

use crate::scenario::{
    SMALL, There, all, append, disk, files_of_names, made, opened, pattern, read, scratch, write, write_all,
};

#[test]
fn a_tree_does_what_every_file_system_must() {
    for options in [SMALL, TreeOptions::default()] {
        let scratch = scratch();
        PackTree::create(&*disk(&scratch), &options).unwrap();
        let tree = PackTree::open(disk(&scratch), &options, "pack:test").unwrap();
        // No quirk: what is written is seen at once, and what is unlinked stays while it is open.
        conformance::check(&tree, conformance::Quirks::LOCAL);
        let before = all(&tree);
        tree.close().unwrap();
        assert_eq!(check(&*disk(&scratch), |_, _| ()).unwrap().faults, []);
        assert_eq!(all(&PackTree::open(disk(&scratch), &options, "pack:test").unwrap()), before);
    }
}

#[test]
fn a_reopening_finds_the_same_tree_with_its_numbers_and_times() {
    let scratch = scratch();
    let tree = made(disk(&scratch));
    for directory in ["empty", "a", "a/b", "moved"] {
        tree.mkdir(Path::new(directory)).unwrap();
    }
    write(&tree, "a/b/file", b"12345");
    write(&tree, "a/none", b"");
    write(&tree, "one", b"shared");
    tree.link(Path::new("one"), Path::new("a/two")).unwrap();
    tree.link(Path::new("a/two"), Path::new("three")).unwrap();
    tree.symlink(Path::new("../one"), Path::new("a/link")).unwrap();
    tree.link(Path::new("a/link"), Path::new("second-link")).unwrap();
    append(&tree, "a/two", b" by three");
    write(&tree, "moved/file", b"6");
    tree.rename(Path::new("moved"), Path::new("a/there")).unwrap();
    write(&tree, "large", &pattern(700_000, 1));
    let mut file = tree.open(Path::new("large"), Access::Write).unwrap();
    file.seek(1_000_000).unwrap();
    write_all(&mut *file, b"behind a hole");
    drop(file);
    let before = all(&tree);
    let There::File { links: 3, bytes, .. } = &before["three"] else { panic!("{:?}", before["three"]) };
    assert_eq!(bytes, b"shared by three");
    tree.close().unwrap();
    let tree = opened(disk(&scratch));
    assert_eq!(all(&tree), before);
    append(&tree, "three", b"!");
    assert_eq!(read(&tree, "one"), b"shared by three!");
}

#[test]
fn a_checkpoint_and_the_journal_behind_it_are_one_tree() {
    let scratch = scratch();
    let tree = made(disk(&scratch));
    // Some hundred records fill a room: checkpoints come, and rooms are used again.
    for number in 0..3000 {
        let name = format!("file-{}", number % 500);
        if number >= 500 {
            tree.unlink(Path::new(&name)).unwrap();
        }
        write(&tree, &name, &pattern(100 + number % 77, number as u64));
        if number % 7 == 0 {
            tree.link(Path::new(&name), Path::new(&format!("link-{number}"))).unwrap();
        }
    }
    let length = |name: &String| std::fs::metadata(scratch.path().join(name)).unwrap().len();
    let checkpoint: u64 = files_of_names(&*disk(&scratch)).iter().map(length).sum();
    assert!(checkpoint > 10_000, "no checkpoint was written: {checkpoint} bytes");
    let space = std::fs::metadata(scratch.path().join("space")).unwrap().len();
    assert!(space < 4 << 20, "space was not used again: {space} bytes");
    let before = all(&tree);
    tree.close().unwrap();
    assert_eq!(check(&*disk(&scratch), |_, _| ()).unwrap().faults, []);
    assert_eq!(all(&opened(disk(&scratch))), before);
}

#[test]
fn a_rename_of_a_directory_of_any_size_is_one_record() {
    let scratch = scratch();
    PackTree::create(&*disk(&scratch), &TreeOptions::default()).unwrap();
    let options = TreeOptions { flush_every: None, ..TreeOptions::default() };
    let tree = PackTree::open(disk(&scratch), &options, "pack:test").unwrap();
    tree.mkdir(Path::new("spool")).unwrap();
    let below = tree.below(Path::new("spool")).unwrap();
    for number in 0..20_000 {
        below.create(Path::new(&format!("{number}"))).unwrap();
    }
    drop(below);
    let syncs = || tree.syncs();
    let before = syncs();
    tree.rename(Path::new("spool"), Path::new("moved")).unwrap();
    assert_eq!(syncs(), before, "a rename waits for no disk");
    let mut names = 0;
    tree.readdir(Path::new("moved"), &mut |_| names += 1).unwrap();
    assert_eq!(names, 20_000);
    assert_eq!(tree.stat(Path::new("spool")).err().and_then(|error| error.status()), Some(Status::NOENT));
}

#[test]
fn one_sync_serves_all_who_ask_and_nothing_new_needs_none() {
    let scratch = scratch();
    let tree = made(disk(&scratch));
    let syncs = || tree.syncs();
    write(&tree, "file", b"1");
    let before = syncs();
    tree.sync_all().unwrap();
    assert_eq!(syncs(), before + 1);
    tree.sync_all().unwrap();
    tree.sync_dir(Path::new("")).unwrap();
    let mut file = tree.open(Path::new("file"), Access::Append).unwrap();
    file.sync(SyncScope::All).unwrap();
    assert_eq!(syncs(), before + 1, "nothing was changed since");
    write_all(&mut *file, b"2");
    file.sync(SyncScope::Data).unwrap();
    assert_eq!(syncs(), before + 2);
}

#[test]
fn appends_to_a_file_leave_few_pieces_and_all_bytes() {
    let scratch = scratch();
    let tree = made(disk(&scratch));
    let mut wanted = [Vec::new(), Vec::new()];
    for name in ["a", "b"] {
        write(&tree, name, b"");
    }
    // In turn, so that neither grows where it is.
    for round in 0..400 {
        for (name, wanted) in ["a", "b"].iter().zip(&mut wanted) {
            let bytes = pattern(50 + round % 60, round as u64);
            append(&tree, name, &bytes);
            wanted.extend_from_slice(&bytes);
        }
    }
    assert_eq!([read(&tree, "a"), read(&tree, "b")], wanted);
    // Each piece wastes less than a block of 64 bytes.
    let used = tree.stat(Path::new("a")).unwrap().used;
    assert!(used < wanted[0].len() as u64 + 30 * 64, "{used} bytes for {}", wanted[0].len());
    tree.close().unwrap();
    let tree = opened(disk(&scratch));
    assert_eq!([read(&tree, "a"), read(&tree, "b")], wanted);
}

#[test]
fn two_processes_are_refused_and_so_are_a_stranger_s_directory_and_a_later_format() {
    let scratch = scratch();
    let tree = made(disk(&scratch));
    let open = || PackTree::open(disk(&scratch), &SMALL, "pack:test").map(drop);
    assert!(matches!(open(), Err(TreeError::InUse { .. })));
    assert!(matches!(check(&*disk(&scratch), |_, _| ()), Err(TreeError::InUse { .. })));
    drop(tree);
    assert!(matches!(PackTree::create(&*disk(&scratch), &SMALL), Err(TreeError::NotEmpty { .. })));
    open().unwrap();
    let head = scratch.path().join("tree");
    let mut bytes = std::fs::read(&head).unwrap();
    bytes[8] = 9;
    let sum = crc_of(&bytes[..60]);
    bytes[60..].copy_from_slice(&sum.to_le_bytes());
    std::fs::write(&head, &bytes).unwrap();
    assert!(matches!(open(), Err(TreeError::Version { version: 9, .. })));
    std::fs::remove_file(&head).unwrap();
    assert!(matches!(open(), Err(TreeError::HeadMissing { .. })));
    std::fs::remove_file(scratch.path().join("space")).unwrap();
    assert!(matches!(open(), Err(TreeError::NoTree { .. })));
}

/// CRC-32C, bit by bit.
fn crc_of(bytes: &[u8]) -> u32 {
    let mut sum = u32::MAX;
    for byte in bytes {
        sum ^= u32::from(*byte);
        for _ in 0..8 {
            sum = if sum & 1 == 1 { sum >> 1 ^ 0x82F6_3B78 } else { sum >> 1 };
        }
    }
    !sum
}
