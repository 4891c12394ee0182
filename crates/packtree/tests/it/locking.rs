//! Who may open a tree at the same time, and what without the right to write.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use disk::{Disk as _, LocalDisk};
use files::{FileSystem, Status};
use packtree::{PackTree, TreeError, TreeOptions, check};
use testkit::{Tmpfs, need};

use crate::scenario::{SMALL, all, disk, made, opened, pattern, read, scratch, write};

/// Symptom: `rm lock` let a second program open the tree; both wrote it. Cause: the file was the only lock. Fix: the directory is locked
/// too.
#[test]
fn a_removed_or_replaced_lock_file_lets_no_second_program_in() {
    let scratch = scratch();
    let tree = made(disk(&scratch));
    write(&tree, "file", b"1");
    std::fs::remove_file(scratch.path().join("lock")).unwrap();
    for replaced in [false, true] {
        if replaced {
            std::fs::write(scratch.path().join("lock"), "").unwrap();
        }
        let second = PackTree::open(disk(&scratch), &SMALL, "pack:second");
        assert!(matches!(second.map(drop), Err(TreeError::InUse { .. })), "replaced: {replaced}");
        assert!(matches!(check(&*disk(&scratch), |_, _| ()), Err(TreeError::InUse { .. })));
    }
    drop(tree);
    assert_eq!(read(&opened(disk(&scratch)), "file"), b"1");
}

/// What an earlier version would do: it locks the file alone.
#[test]
fn a_tree_whose_lock_file_was_removed_is_written_no_more_from_its_next_checkpoint_or_flush_on() {
    for flush_every in [None, Some(Duration::from_millis(5))] {
        let scratch = scratch();
        let options = TreeOptions { flush_every, ..SMALL };
        PackTree::create(&*disk(&scratch), &options).unwrap();
        let tree = PackTree::open(disk(&scratch), &options, "pack:test").unwrap();
        write(&tree, "before", b"1");
        tree.sync_all().unwrap();
        std::fs::remove_file(scratch.path().join("lock")).unwrap();
        let began = Instant::now();
        let refused = (0_u64..).find_map(|number| {
            assert!(began.elapsed() < Duration::from_secs(60), "{number} files, and still written");
            tree.create(Path::new(&format!("file-{number}"))).map(drop).err()
        });
        assert_eq!(refused.and_then(|error| error.status()), Some(Status::IO));
        assert!(tree.sync_all().is_err());
        assert!(tree.close().is_err());
        let tree = opened(disk(&scratch));
        assert_eq!((tree.faults(), read(&tree, "before")), (&[][..], b"1".to_vec()));
    }
}

#[test]
fn readers_check_a_tree_together_and_keep_writers_out() {
    let scratch = scratch();
    let tree = made(disk(&scratch));
    write(&tree, "file", &pattern(1000, 1));
    tree.close().unwrap();
    let mut seen = 0;
    let report = check(&*disk(&scratch), |_, _| {
        seen += 1;
        if seen > 1 {
            return;
        }
        assert_eq!(check(&*disk(&scratch), |_, _| ()).unwrap().faults, [], "a second reader");
        let writer = PackTree::open(disk(&scratch), &SMALL, "pack:test");
        assert!(matches!(writer.map(drop), Err(TreeError::InUse { .. })));
    });
    assert!(seen > 0 && report.unwrap().is_locked);
}

#[test]
fn on_read_only_media_a_tree_is_checked_and_read_and_refuses_changes() {
    let Some(media) = Tmpfs::needed("size=64m") else { return };
    let disk = || Arc::new(LocalDisk::open(media.path()).unwrap());
    PackTree::create(&*disk(), &SMALL).unwrap();
    let tree = opened(disk());
    write(&tree, "file", &pattern(5000, 1));
    let before = all(&tree);
    // Killed, and not closed: the journal has to be read.
    std::mem::forget(tree);
    let copy = Tmpfs::needed("size=64m").expect("the first one was mounted");
    for name in disk().names().unwrap() {
        std::fs::copy(media.path().join(&name), copy.path().join(&name)).unwrap();
    }
    let remounted = Command::new("mount").args(["-o", "remount,ro"]).arg(copy.path()).status().unwrap();
    assert!(remounted.success());
    let disk = || Arc::new(LocalDisk::open(copy.path()).unwrap());
    let report = check(&*disk(), |_, _| ()).unwrap();
    assert_eq!((report.files, report.is_locked, report.faults), (1, true, Vec::new()));
    let tree = opened(disk());
    assert!(tree.unwritable().is_some_and(|error| error.kind() == std::io::ErrorKind::ReadOnlyFilesystem));
    assert_eq!(all(&tree), before);
    let refused = tree.create(Path::new("new")).map(drop).unwrap_err();
    assert_eq!(refused.status(), Some(Status::ROFS));
    tree.close().unwrap();
}

/// Symptom: after root had opened a user's tree, the user could not: `names` was root's.
#[test]
fn what_root_makes_in_a_user_s_tree_is_that_user_s() {
    if !need::root("files of another user") {
        return;
    }
    let scratch = scratch();
    std::os::unix::fs::chown(scratch.path(), Some(12_345), Some(12_346)).unwrap();
    let tree = made(disk(&scratch));
    for number in 0..2000 {
        write(&tree, &format!("file-{number}"), b"1");
    }
    tree.close().unwrap();
    let mut names = Vec::new();
    for entry in std::fs::read_dir(scratch.path()).unwrap() {
        let entry = entry.unwrap();
        let found = entry.metadata().unwrap();
        names.push(entry.file_name().into_string().unwrap());
        assert_eq!((found.uid(), found.gid()), (12_345, 12_346), "{names:?}");
    }
    names.sort();
    let is_there = |wanted: &str| names.iter().any(|name| name.starts_with(wanted));
    assert!(
        ["clean", "free-", "lock", "manifest", "names-", "space", "tree"].iter().all(|name| is_there(name))
    );
}
