//! Several threads on one tree, each with a model of its own part.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use files::{Access, FileSystem, SyncScope};
use packtree::{PackTree, TreeOptions, check};
use testkit::{DiskFault, DiskOperation, SimulatedDisk};

use crate::scenario::{SMALL, append, disk, mixed, opened, pattern, read, scratch, write, write_all};

const THREADS: u64 = 8;

#[test]
fn eight_threads_find_what_they_wrote_while_others_write_sync_and_checkpoint() {
    let scratch = scratch();
    PackTree::create(&*disk(&scratch), &SMALL).unwrap();
    let options = TreeOptions { flush_every: Some(Duration::from_millis(5)), ..SMALL };
    let tree = PackTree::open(disk(&scratch), &options, "pack:test").unwrap();
    let models: Vec<HashMap<String, Vec<u8>>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn({
                    let tree = &tree;
                    move || worked(tree, thread)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("it ends well")).collect()
    });
    compare(&tree, &models);
    tree.close().unwrap();
    assert_eq!(check(&*disk(&scratch), |_, _| ()).unwrap().faults, []);
    compare(&opened(disk(&scratch)), &models);
}

#[test]
fn sixty_four_threads_that_sync_each_file_all_return_and_a_power_cut_loses_none() {
    let machine = SimulatedDisk::new("machine");
    PackTree::create(&machine, &SMALL).unwrap();
    let tree = opened(std::sync::Arc::new(machine.clone()));
    std::thread::scope(|scope| {
        for thread in 0..64_u64 {
            let tree = &tree;
            scope.spawn(move || {
                for number in 0..40_u64 {
                    let mut file = tree.create(Path::new(&format!("{thread}-{number}"))).unwrap();
                    write_all(&mut *file, &pattern(50, thread << 8 | number));
                    file.sync(SyncScope::All).unwrap();
                }
            });
        }
    });
    let after = machine.power_cut(7);
    assert_eq!(check(&after.process_end(), |_, _| ()).unwrap().faults, []);
    let tree = opened(std::sync::Arc::new(after));
    for (thread, number) in (0..64_u64).flat_map(|thread| (0..40_u64).map(move |number| (thread, number))) {
        assert!(read(&tree, &format!("{thread}-{number}")) == pattern(50, thread << 8 | number));
    }
}

#[test]
fn when_a_sync_fails_every_thread_that_waits_for_one_returns_an_error() {
    let machine = SimulatedDisk::new("machine");
    PackTree::create(&machine, &SMALL).unwrap();
    let tree = opened(std::sync::Arc::new(machine.clone()));
    machine.fail(DiskOperation::Sync, Some("space"), 200, 1, DiskFault::SyncLost);
    let failed: Vec<u64> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..16_u64)
            .map(|thread| {
                let tree = &tree;
                scope.spawn(move || {
                    let synced = |number| {
                        let mut file = tree.create(Path::new(&format!("{thread}-{number}")))?;
                        file.write(b"1").and_then(|_| file.sync(SyncScope::All))
                    };
                    (0..).find(|number| synced(*number).is_err()).expect("it ends")
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("it ends well")).collect()
    });
    assert_eq!(failed.len(), 16);
    assert!(tree.sync_all().is_err());
}

fn worked(tree: &PackTree, thread: u64) -> HashMap<String, Vec<u8>> {
    let mut model: HashMap<String, Vec<u8>> = HashMap::new();
    tree.mkdir(Path::new(&format!("{thread}"))).unwrap();
    for step in 0..1500_u64 {
        let drawn = mixed(thread << 40 | step);
        let path = format!("{thread}/{}", drawn % 40);
        let bytes = pattern((drawn >> 8) as usize % 3000, drawn);
        match ((drawn >> 32) % 6, model.contains_key(&path)) {
            (0..3, false) => {
                write(tree, &path, &bytes);
                model.insert(path, bytes);
            }
            (0 | 1, true) => {
                append(tree, &path, &bytes);
                model.get_mut(&path).expect("there").extend_from_slice(&bytes);
            }
            (2, true) => {
                tree.unlink(Path::new(&path)).unwrap();
                model.remove(&path);
            }
            (3, true) => {
                let new = format!("{thread}/{}", drawn >> 16 & 31);
                tree.rename(Path::new(&path), Path::new(&new)).unwrap();
                let bytes = model.remove(&path).expect("there");
                model.insert(new, bytes);
            }
            (4, true) => {
                let mut file = tree.open(Path::new(&path), Access::ReadWrite).unwrap();
                write_all(&mut *file, &bytes);
                if drawn >> 50 & 7 == 0 {
                    file.sync(SyncScope::Data).unwrap();
                }
                let old = model.get_mut(&path).expect("there");
                old.resize(old.len().max(bytes.len()), 0);
                old[..bytes.len()].copy_from_slice(&bytes);
            }
            (_, true) => assert!(read(tree, &path) == model[&path], "{path} at step {step}"),
            (_, false) => assert!(tree.open(Path::new(&path), Access::Read).is_err()),
        }
    }
    model
}

fn compare(tree: &PackTree, models: &[HashMap<String, Vec<u8>>]) {
    for (thread, model) in models.iter().enumerate() {
        let mut names = 0;
        tree.readdir(Path::new(&format!("{thread}")), &mut |_| names += 1).unwrap();
        assert_eq!(names, model.len());
        for (path, bytes) in model {
            assert!(read(tree, path) == *bytes, "{path}");
        }
    }
}
