//! What comes next is written with zeros where little is synced at a time, so that the file system below has nothing to note with each sync.

use std::sync::Arc;

use disk::{Disk as _, DiskOpen, LocalDisk};
use files::FileSystem as _;
use packtree::{PackTree, TreeOptions};
use testkit::{LoopImage, SimulatedDisk};

use crate::scenario::{SMALL, made, pattern, read, write};

/// Bytes of `space` that have room and were never written.
fn unwritten_bytes(machine: &SimulatedDisk) -> u64 {
    let space = machine.open("space", DiskOpen::Read).unwrap();
    let pages = (0..space.length().unwrap()).step_by(4096);
    pages.filter(|page| space.unwritten_at(*page).unwrap() > 0).count() as u64 * 4096
}

#[test]
fn after_a_few_syncs_of_little_what_comes_next_was_written_before() {
    let machine = SimulatedDisk::new("machine");
    let tree = made(Arc::new(machine.clone()));
    write(&tree, "first", &pattern(900, 1));
    let before = unwritten_bytes(&machine);
    assert!(before > 64 << 10, "{before}");
    for number in 0..3 {
        write(&tree, &format!("a{number}"), &pattern(900, number));
        tree.sync_all().unwrap();
    }
    assert_eq!(unwritten_bytes(&machine), 0);
    for number in 0..3 {
        assert!(read(&tree, &format!("a{number}")) == pattern(900, number));
    }
}

#[test]
fn after_much_nothing_is_written_ahead() {
    let options = TreeOptions { segment_bytes: 2 << 20, ..SMALL };
    let machine = SimulatedDisk::new("machine");
    PackTree::create(&machine, &options).unwrap();
    let tree = PackTree::open(Arc::new(machine.clone()), &options, "pack:test").unwrap();
    for number in 0..4 {
        write(&tree, &number.to_string(), &pattern(300 << 10, number));
        tree.sync_all().unwrap();
    }
    assert!(unwritten_bytes(&machine) > 700 << 10);
}

#[test]
fn ext4_commits_its_journal_for_few_of_many_synced_files() {
    let Some(image) = LoopImage::needed("ext4", 256 << 20, &[]) else { return };
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
    let is_image = |line: &&str| line.split(' ').nth(1) == image.path().to_str();
    let device =
        mounts.lines().find(is_image).unwrap().split(' ').next().unwrap().rsplit('/').next().unwrap();
    let commits = || {
        let info = std::fs::read_to_string(format!("/proc/fs/jbd2/{device}-8/info")).unwrap();
        info.split(' ').next().unwrap().parse::<u64>().unwrap()
    };
    let directory = image.path().join("tree");
    std::fs::create_dir(&directory).unwrap();
    let disk = Arc::new(LocalDisk::open(&directory).unwrap());
    PackTree::create(&*disk, &TreeOptions::default()).unwrap();
    let options = TreeOptions { flush_every: None, ..TreeOptions::default() };
    let tree = PackTree::open(disk, &options, "pack:test").unwrap();
    let before = commits();
    for number in 0..400 {
        write(&tree, &number.to_string(), &pattern(10_000, number));
        tree.sync_all().unwrap();
    }
    let commits = commits() - before;
    assert!(commits < 60, "{commits} commits");
}
