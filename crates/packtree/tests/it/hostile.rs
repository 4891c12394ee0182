//! Files of a tree that somebody put there.

use packtree::{PackTree, check};

use crate::scenario::{SMALL, all, disk, made, opened, pattern, scratch, write};

/// Files of any length, and of another tree: an opening and a check say something, and neither panics, hangs nor takes all memory. Symptom: a
/// run that was made a terabyte long ended the process, as it had not so much memory for the filter.
#[test]
fn files_that_are_too_long_too_short_or_of_another_tree_are_reported() {
    let make = |seed: u64| {
        let directory = scratch();
        let tree = made(self::disk(&directory));
        for number in 0..400 {
            write(&tree, &format!("file-{number}"), &pattern(300, seed + number));
        }
        tree.close().unwrap();
        directory
    };
    let (one, other) = (make(1), make(1000));
    let disk = || self::disk(&one);
    let before = all(&PackTree::open_to_read(disk(), &SMALL, "pack:test").unwrap());
    let seen = |what: &str, may_be_whole: bool| {
        let checked = check(&*disk(), |_, _| ());
        let is_whole = checked.as_ref().is_ok_and(|report| report.faults.is_empty());
        let opened = PackTree::open_to_read(disk(), &SMALL, "pack:test");
        let is_same = opened.as_ref().is_ok_and(|tree| tree.faults().is_empty() && all(tree) == before);
        assert!(!is_whole || may_be_whole && is_same, "{what}: {checked:?}");
    };
    let mut names = disk().names().unwrap();
    names.sort_unstable();
    for name in &names {
        let path = one.path().join(name);
        let kept = std::fs::read(&path).unwrap();
        // What is not needed; `space` may have lost or won what is free.
        let may_be_whole = ["lock", "spare", "clean", "space"].contains(&&**name);
        let set_length = |length: u64| {
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            file.set_len(length).unwrap();
        };
        for length in
            [0, 1, 63, kept.len() as u64 / 2, (kept.len() as u64).saturating_sub(1), 1 << 40, 1 << 62]
        {
            set_length(length);
            let is_longer = length > kept.len() as u64;
            let is_padded = is_longer && (name == "space" && length <= 1 << 40 || name == "tree");
            seen(
                &format!("{name} of {length} bytes"),
                may_be_whole || is_padded || length == kept.len() as u64,
            );
            std::fs::write(&path, &kept).unwrap();
        }
        if let Ok(theirs) = std::fs::read(other.path().join(name)) {
            std::fs::write(&path, theirs).unwrap();
            seen(&format!("{name} of another tree"), may_be_whole);
            std::fs::write(&path, &kept).unwrap();
        }
    }
    assert_eq!(all(&opened(disk())), before);
}
