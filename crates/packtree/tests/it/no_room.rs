//! A disk without one free block: what is in a tree can still be removed, and the room is free again.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::{Disk, DiskOpen, LocalDisk};
use files::{FileSystem, Status};
use packtree::{PackTree, TreeOptions, check};
use testkit::{LoopImage, SimulatedDisk};

use crate::scenario::{SMALL, all, opened, pattern, read, write};

const FILES: u64 = 300;

fn name(number: u64) -> String {
    format!("a-file-with-a-name-{number}")
}

/// A tree, as a kill or a stop left it; then another program took every page that was left.
fn full_disk(room_bytes: u64, is_closed: bool) -> SimulatedDisk {
    let machine = SimulatedDisk::new("machine").with_room(room_bytes);
    PackTree::create(&machine, &SMALL).unwrap();
    let tree = opened(Arc::new(machine.clone()));
    for number in 0..FILES {
        write(&tree, &name(number), &pattern(2_000, number));
    }
    tree.sync_all().unwrap();
    let killed = machine.process_end();
    tree.close().unwrap();
    let left = if is_closed { machine } else { killed };
    fill(&left);
    left
}

fn fill(machine: &SimulatedDisk) {
    let name = (0..).map(|number| format!("ballast-{number}"));
    let mut name = name.skip_while(|name| machine.names().unwrap().contains(name));
    let others = machine.open(&name.next().unwrap(), DiskOpen::New).unwrap();
    let mut taken = 0;
    while others.write_at(&[1; 512], taken).is_ok() {
        taken += 512;
    }
}

fn opened_to_write(machine: &SimulatedDisk, when: &str) -> PackTree {
    let tree = opened(Arc::new(machine.clone()));
    assert_eq!(tree.faults(), [], "{when}");
    assert!(tree.unwritable().is_none(), "{when}: {:?}", tree.unwritable());
    tree
}

fn whole(machine: &SimulatedDisk, when: &str) {
    let report = check(&machine.process_end(), |_, _| ()).unwrap();
    assert_eq!((report.faults, report.leaked_bytes), (Vec::new(), 0), "{when}");
}

/// Symptom: where the disk had not one block free, the tree could only be read, so that nothing could be removed to make room.
#[test]
fn all_files_are_removed_on_a_disk_without_a_free_block_and_room_for_as_many_is_there_again() {
    for (round, is_closed) in [(0, true), (1, false)] {
        let machine = full_disk(1500 << 10, is_closed);
        for opening in 0..6 {
            let when = format!("round {round}, opening {opening}");
            let tree = opened_to_write(&machine, &when);
            for number in opening * 50..opening * 50 + 50 {
                assert!(read(&tree, &name(number)) == pattern(2_000, number), "{when}");
                tree.unlink(Path::new(&name(number)))
                    .unwrap_or_else(|error| panic!("{when}: {number}: {error:?}"));
            }
            drop(tree);
            whole(&machine, &when);
            // Others take what the tree gave back.
            fill(&machine);
        }
        for number in 0.. {
            let ballast = format!("ballast-{number}");
            if machine.remove(&ballast).is_err() {
                break;
            }
        }
        let tree = opened_to_write(&machine, "at the end");
        assert!(all(&tree).is_empty());
        for number in 0..FILES {
            write(&tree, &name(number), &pattern(2_000, number));
        }
        tree.close().unwrap();
        assert!(machine.names().unwrap().contains(&"spare".to_owned()), "there is room for it again");
        whole(&machine, "at the end");
    }
}

/// What the tree gives up on a full disk: after a removal there is room for another program.
#[test]
fn what_is_removed_from_a_tree_on_a_full_disk_is_room_for_other_programs() {
    let machine = full_disk(1500 << 10, true);
    let tree = opened_to_write(&machine, "full");
    for number in 0..FILES {
        tree.unlink(Path::new(&name(number))).unwrap();
    }
    let error = write_more(&tree, "more").err();
    assert!(error.is_none(), "{error:?}");
    tree.unlink(Path::new("more")).unwrap();
    tree.close().unwrap();
    let before = machine.room().unwrap().free_bytes;
    assert!(before >= u64::from(SMALL.segment_bytes), "{before} bytes are free");
    fill(&machine);
    whole(&machine, "others took the room");
    // The tree has what it did not give back, and no more.
    let tree = opened_to_write(&machine, "full again");
    let refused = (0..).find_map(|number| write_more(&tree, &format!("more-{number}")).err());
    assert_eq!(refused.and_then(|error| error.status()), Some(Status::NOSPC));
    all(&tree);
    tree.close().unwrap();
    whole(&machine, "full again");
}

fn write_more(tree: &PackTree, path: &str) -> Result<usize, files::FsError> {
    let bytes = pattern(100_000, 1);
    let mut file = tree.create(Path::new(path))?;
    let mut written = 0;
    while written < bytes.len() {
        written += file.write(&bytes[written..])?;
    }
    Ok(written)
}

/// The process is killed, or power is lost, at every operation of removals on a full disk.
#[test]
fn a_kill_at_any_operation_of_removals_on_a_full_disk_leaves_a_tree_that_can_be_emptied() {
    for is_closed in [true, false] {
        let base = full_disk(1500 << 10, is_closed);
        let first = base.operations();
        let whole_run = base.process_end();
        let tree = opened_to_write(&whole_run, "without a kill");
        (0..FILES / 2).for_each(|number| tree.unlink(Path::new(&name(number))).unwrap());
        tree.close().unwrap();
        let points = whole_run.operations() - first;
        assert!(points > 100, "{points} operations");
        for point in (0..points).step_by(3) {
            let machine = base.process_end();
            machine.stop_at(first + point);
            let tree = PackTree::open(Arc::new(machine.clone()), &SMALL, "pack:test");
            let gone = tree.as_ref().map_or(0, |tree| {
                (0..FILES / 2).take_while(|number| tree.unlink(Path::new(&name(*number))).is_ok()).count()
                    as u64
            });
            drop(tree);
            for (after, is_cut) in [(machine.process_end(), false), (machine.power_cut(point), true)] {
                let when =
                    format!("closed {is_closed}, point {point} of {points}, power cut {is_cut}, {gone} gone");
                whole(&after, &when);
                let tree = opened_to_write(&after, &when);
                let left = all(&tree);
                if !is_cut {
                    assert!(left.len() as u64 <= FILES - gone, "{when}: {} left", left.len());
                }
                assert!((FILES / 2..FILES).all(|number| left.contains_key(&name(number))), "{when}");
                left.keys().for_each(|path| {
                    tree.unlink(Path::new(path)).unwrap_or_else(|error| panic!("{when}: {error:?}"))
                });
                tree.close().unwrap();
                whole(&after, &when);
            }
        }
    }
}

/// Symptom: a kill after removals, and before what they freed was given back, left a tree that held all the disk, and no spare file.
#[test]
fn after_a_kill_on_a_full_disk_the_next_opening_gives_back_what_is_free_and_has_its_spare_again() {
    let machine = full_disk(1500 << 10, true);
    let tree = opened_to_write(&machine, "full");
    (0..FILES).for_each(|number| tree.unlink(Path::new(&name(number))).unwrap());
    tree.sync_all().unwrap();
    let killed = machine.process_end();
    drop(tree);
    let _ = killed.remove("spare");
    fill(&killed);
    assert_eq!(killed.room().unwrap().free_bytes, 0);
    drop(opened_to_write(&killed, "killed"));
    assert!(killed.names().unwrap().contains(&"spare".to_owned()));
    let free = killed.room().unwrap().free_bytes;
    assert!(free >= FILES * 1_500, "{free} bytes are free");
    whole(&killed, "killed");
}

/// A tree that was made before there was a spare file gets one when it is opened.
#[test]
fn a_tree_without_the_spare_file_gets_one_when_it_is_opened_with_room() {
    let machine = SimulatedDisk::new("machine");
    PackTree::create(&machine, &SMALL).unwrap();
    let spare = |machine: &SimulatedDisk| machine.bytes("spare").map(|bytes| bytes.len());
    assert_eq!(spare(&machine), Some(SMALL.journal_bytes as usize / 2));
    machine.remove("spare").unwrap();
    drop(opened(Arc::new(machine.clone())));
    assert_eq!(spare(&machine), Some(SMALL.journal_bytes as usize / 2));
}

/// A tree of files of 20,000 bytes that has filled its file system.
pub struct FullImage {
    image: LoopImage,
    pub directory: PathBuf,
    pub files: u64,
}

impl FullImage {
    pub fn needed() -> Option<Self> {
        let image = LoopImage::needed("ext4", 300 << 20, &["-m", "0", "-b", "4096"])?;
        let directory = image.path().join("tree");
        std::fs::create_dir(&directory).unwrap();
        let mut full = Self { image, directory, files: 0 };
        PackTree::create(&*full.disk(), &DEFAULT).unwrap();
        let tree = full.open();
        let refused = loop {
            let path = PathBuf::from(full.files.to_string());
            let written = tree.create(&path).and_then(|mut file| file.write(&pattern(20_000, full.files)));
            match written {
                Ok(_) => full.files += 1,
                Err(error) => break (path, error),
            }
        };
        assert_eq!(refused.1.status(), Some(Status::NOSPC), "{refused:?}");
        assert!(full.files > 5_000, "{} files in 300 MiB", full.files);
        // It may have been made and not written.
        let _ = tree.unlink(&refused.0);
        tree.close().unwrap();
        Some(full)
    }

    pub fn disk(&self) -> Arc<dyn Disk> {
        Arc::new(LocalDisk::open(&self.directory).unwrap())
    }

    pub fn open(&self) -> PackTree {
        let tree = PackTree::open(self.disk(), &DEFAULT, "pack:test").unwrap();
        assert!(tree.faults().is_empty() && tree.unwritable().is_none(), "{:?}", tree.unwritable());
        tree
    }

    /// Other data, to the last block.
    pub fn fill(&self, round: u64) {
        let ballast = std::fs::File::create(self.image.path().join(format!("ballast-{round}"))).unwrap();
        let piece = vec![1; 4096];
        while std::io::Write::write_all(&mut &ballast, &piece).is_ok() {}
        ballast.sync_all().unwrap();
        assert_eq!(self.free_bytes(), 0);
    }

    pub fn free_bytes(&self) -> u64 {
        self.disk().room().unwrap().free_bytes
    }

    pub fn is_whole(&self, when: &str) {
        let report = check(&*self.disk(), |_, _| ()).unwrap();
        assert_eq!((report.faults, report.leaked_bytes), (Vec::new(), 0), "{when}");
    }

    /// Whether the file is there; then it is whole.
    pub fn has(&self, tree: &PackTree, number: u64) -> bool {
        let path = number.to_string();
        let is_there = tree.stat(Path::new(&path)).is_ok();
        assert!(!is_there || read(tree, &path) == pattern(20_000, number), "{path}");
        is_there
    }
}

/// Nothing happens by itself.
const DEFAULT: TreeOptions =
    TreeOptions { segment_bytes: 64 << 20, journal_bytes: 1 << 20, flush_every: None, cache_bytes: 32 << 20 };

/// On a real file system, with the sizes of every tree.
#[test]
fn on_ext4_without_a_free_block_files_are_removed_and_their_room_is_free() {
    let Some(full) = FullImage::needed() else { return };
    for round in 0..4_u64 {
        full.fill(round);
        let tree = full.open();
        for file in round * 1_000..round * 1_000 + 1_000 {
            assert!(full.has(&tree, file), "{round}: {file}");
            tree.unlink(Path::new(&file.to_string()))
                .unwrap_or_else(|error| panic!("{round}: {file}: {error:?}"));
        }
        tree.close().unwrap();
        let free = full.free_bytes();
        assert!(free > 10 << 20, "{round}: {free} bytes are free");
        full.is_whole(&format!("{round}"));
    }
    let tree = full.open();
    assert!((4_000..full.files).all(|number| full.has(&tree, number)));
}
