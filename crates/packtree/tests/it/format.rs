//! The layout on disk: trees that versions 1 and 2 wrote still open, with all that was in them, whatever the version of their runs.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use files::FileSystem;
use packtree::{PackTree, TreeOptions, check};
use tempfile::TempDir;
use testkit::SimulatedDisk;

use crate::scenario::{SMALL, There, all, append, disk, opened, pattern, scratch, write};

/// A tree of version 1; of version 2; of version 2 with runs of version 3, which have parity.
const VERSIONS: [&str; 3] = ["tree-v1", "tree-v2", "tree-v2-runs-v3"];

fn fixture(version: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(version)
}

/// Makes what is in `testdata`; see the README there.
fn made(directory: &Path) {
    let options = TreeOptions { segment_bytes: 32 << 10, journal_bytes: 8 << 10, ..SMALL };
    let disk = disk::LocalDisk::open(directory).unwrap();
    PackTree::create(&disk, &options).unwrap();
    let tree = opened(Arc::new(disk));
    tree.mkdir(Path::new("news")).unwrap();
    write(&tree, "news/1", &pattern(5000, 1));
    tree.link(Path::new("news/1"), Path::new("news/cross-post")).unwrap();
    append(&tree, "news/1", b"appended");
    tree.symlink(Path::new("news/1"), Path::new("newest")).unwrap();
    write(&tree, "news/2", b"gone");
    tree.unlink(Path::new("news/2")).unwrap();
    // Long links fill rooms until a checkpoint is written; the journal continues behind it.
    for number in 0..24 {
        let text = "x/".repeat(2000);
        tree.symlink(Path::new(&text), Path::new("long")).unwrap();
        tree.rename(Path::new("long"), Path::new(if number % 2 == 0 { "one" } else { "two" })).unwrap();
    }
    tree.rename(Path::new("news"), Path::new("spool")).unwrap();
    write(&tree, "empty", b"");
    tree.close().unwrap();
}

/// A copy of a fixture.
fn copied(version: &str) -> TempDir {
    let scratch = scratch();
    copy(&fixture(version), scratch.path());
    scratch
}

fn copy(from: &Path, to: &Path) {
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name() != "lock" {
            std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

fn has_all(tree: &PackTree) {
    assert_eq!(tree.faults(), []);
    let found = all(tree);
    let names: Vec<_> = found.keys().map(String::as_str).collect();
    assert_eq!(names, ["empty", "newest", "one", "spool", "spool/1", "spool/cross-post", "two"]);
    let There::File { inode, links: 2, bytes, .. } = &found["spool/1"] else { panic!("{found:?}") };
    assert_eq!(*bytes, [&pattern(5000, 1)[..], b"appended"].concat());
    assert_eq!(*inode, 3);
    assert_eq!(found["newest"], There::Symlink("news/1".to_owned()));
    assert!(matches!(&found["two"], There::Symlink(text) if text.len() == 4000));
}

#[test]
fn a_tree_that_version_1_wrote_opens_with_all_that_was_in_it() {
    let scratch = copied(VERSIONS[0]);
    let before = check(&*disk(&scratch), |_, _| ()).unwrap();
    assert_eq!(before.faults, []);
    assert!(scratch.path().join("names").exists(), "a check changes nothing");
    let tree = opened(disk(&scratch));
    has_all(&tree);
    let found = all(&tree);
    write(&tree, "later", b"it takes more");
    tree.close().unwrap();
    // It is one of version 2 now.
    assert!(!scratch.path().join("names").exists() && scratch.path().join("manifest").exists());
    let after = check(&*disk(&scratch), |_, _| ()).unwrap();
    assert_eq!((after.faults, after.files, after.leaked_bytes), (vec![], before.files + 1, 0));
    let tree = opened(disk(&scratch));
    tree.unlink(Path::new("later")).unwrap();
    assert_eq!(all(&tree), found);
}

#[test]
fn trees_that_version_2_wrote_open_with_all_that_was_in_them() {
    let [_, without_parity, newest] = VERSIONS;
    if std::env::var_os("UPDATE_FIXTURES").is_some() {
        let _ = std::fs::remove_dir_all(fixture(newest));
        std::fs::create_dir(fixture(newest)).unwrap();
        let scratch = scratch();
        made(scratch.path());
        copy(scratch.path(), &fixture(newest));
    }
    for (version, run_version) in [(without_parity, 2), (newest, 3)] {
        let scratch = copied(version);
        let run = std::fs::read(scratch.path().join("names-000001")).unwrap();
        assert_eq!(run[8..12], [run_version, 0, 0, 0], "{version}");
        assert_eq!(check(&*disk(&scratch), |_, _| ()).unwrap().faults, [], "{version}");
        let tree = opened(disk(&scratch));
        has_all(&tree);
        // New runs are of the newest version, and merges take both.
        for number in 0..500 {
            write(&tree, &format!("later-{number}"), b"it takes more");
        }
        tree.close().unwrap();
        assert_eq!(check(&*disk(&scratch), |_, _| ()).unwrap().faults, [], "{version}");
        let tree = opened(disk(&scratch));
        (0..500).for_each(|number| tree.unlink(Path::new(&format!("later-{number}"))).unwrap());
        has_all(&tree);
    }
}

/// What an upgrade that loses power at each of its operations leaves.
#[test]
fn an_upgrade_that_is_cut_off_anywhere_leaves_a_tree_with_everything() {
    let whole = SimulatedDisk::new("machine");
    for name in ["clean", "names", "space", "tree"] {
        let bytes = std::fs::read(fixture(VERSIONS[0]).join(name)).unwrap();
        let file = disk::Disk::open(&whole, name, disk::DiskOpen::New).unwrap();
        file.write_at(&bytes, 0).unwrap();
        file.sync().unwrap();
    }
    disk::Disk::sync_names(&whole).unwrap();
    let wanted = all(&opened(Arc::new(whole.process_end())));
    let mut operation = 0;
    loop {
        let machine = whole.process_end();
        machine.stop_at(machine.operations() + operation);
        let is_opened = PackTree::open(Arc::new(machine.clone()), &SMALL, "pack:test").is_ok();
        for (seed, is_killed) in [(operation, false), (operation ^ 99, false), (0, true)] {
            let after = if is_killed { machine.process_end() } else { machine.power_cut(seed) };
            assert_eq!(check(&after.process_end(), |_, _| ()).unwrap().faults, [], "operation {operation}");
            let tree = opened(Arc::new(after));
            assert_eq!(tree.faults(), [], "operation {operation}");
            assert!(all(&tree) == wanted, "operation {operation}");
        }
        if is_opened {
            break;
        }
        operation += 1;
    }
    assert!(operation > 12, "an upgrade of {operation} operations");
}
