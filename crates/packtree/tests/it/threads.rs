//! Several threads on one tree, each with a model of its own part.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use files::{Access, FileSystem, SyncScope};
use packtree::{PackTree, TreeOptions, check};

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
