//! The layout on disk: a tree that version 1 wrote still opens, with all that was in it.

use std::path::Path;

use files::FileSystem;
use packtree::{PackTree, TreeOptions, check};

use crate::scenario::{There, all, append, disk, opened, pattern, scratch, write};

const FIXTURE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/tree-v1");
const FILES: [&str; 4] = ["clean", "names", "space", "tree"];

/// Makes what is in `testdata`; see the README there.
fn made(directory: &Path) {
    let options = TreeOptions { segment_bytes: 32 << 10, journal_bytes: 8 << 10, flush_every: None };
    let disk = disk::LocalDisk::open(directory).unwrap();
    PackTree::create(&disk, &options).unwrap();
    let tree = opened(std::sync::Arc::new(disk));
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

#[test]
fn a_tree_that_version_1_wrote_opens_with_all_that_was_in_it() {
    if std::env::var_os("UPDATE_FIXTURES").is_some() {
        for name in FILES {
            let _ = std::fs::remove_file(Path::new(FIXTURE).join(name));
        }
        let scratch = scratch();
        made(scratch.path());
        for name in FILES {
            std::fs::copy(scratch.path().join(name), Path::new(FIXTURE).join(name)).unwrap();
        }
    }
    let scratch = scratch();
    for name in FILES {
        std::fs::copy(Path::new(FIXTURE).join(name), scratch.path().join(name)).unwrap();
    }
    assert_eq!(check(&*disk(&scratch), |_, _| ()).unwrap().faults, []);
    let tree = opened(disk(&scratch));
    assert_eq!(tree.faults(), []);
    let found = all(&tree);
    let names: Vec<_> = found.keys().map(String::as_str).collect();
    assert_eq!(names, ["empty", "newest", "one", "spool", "spool/1", "spool/cross-post", "two"]);
    let There::File { inode, links: 2, bytes, .. } = &found["spool/1"] else { panic!("{found:?}") };
    assert_eq!(*bytes, [&pattern(5000, 1)[..], b"appended"].concat());
    assert_eq!(*inode, 3);
    assert_eq!(found["newest"], There::Symlink("news/1".to_owned()));
    assert!(matches!(&found["two"], There::Symlink(text) if text.len() == 4000));
    write(&tree, "later", b"it takes more");
}
