//! A tree is made whole or not at all, and never in the place of another.

use std::path::Path;
use std::sync::Arc;

use disk::{Disk, DiskOpen};
use packtree::{PackTree, Presence, TreeError, check, presence};
use testkit::SimulatedDisk;

use crate::scenario::{SMALL, all, disk, made, opened, scratch, write};

/// Symptom: a creation that was killed left `lock` and `space`, and every later one refused the directory.
#[test]
fn a_creation_that_was_killed_or_lost_power_at_any_point_is_taken_up_by_the_next_one() {
    let whole = SimulatedDisk::new("machine");
    PackTree::create(&whole, &SMALL).unwrap();
    let (mut taken_up, mut there) = (0, 0);
    for operation in 0..whole.operations() {
        let machine = SimulatedDisk::new("machine");
        machine.stop_at(operation);
        assert!(PackTree::create(&machine, &SMALL).is_err(), "stopped at {operation}");
        for after in
            [machine.process_end(), machine.power_cut(operation), machine.power_cut(operation + 1000)]
        {
            let left = after.names().unwrap();
            match PackTree::create(&after, &SMALL) {
                Ok(()) => taken_up += usize::from(left.iter().any(|name| name == "space")),
                Err(TreeError::NotEmpty { .. }) if left.iter().any(|name| name == "tree") => there += 1,
                Err(error) => panic!("stopped at {operation}, left {left:?}: {error}"),
            }
            let tree = opened(Arc::new(after.clone()));
            write(&tree, "file", b"1");
            tree.close().unwrap();
            assert_eq!(check(&after, |_, _| ()).unwrap().faults, [], "stopped at {operation}");
        }
    }
    assert!(taken_up > 10 && there > 0, "{taken_up} taken up, {there} there");
}

#[test]
fn a_tree_that_lost_its_head_is_reported_and_never_made_again_nor_changed() {
    let scratch = scratch();
    let tree = made(disk(&scratch));
    write(&tree, "file", b"1");
    let before = all(&tree);
    tree.close().unwrap();
    assert_eq!(presence(scratch.path()).unwrap(), Presence::Tree);
    let (head, away) = (scratch.path().join("tree"), scratch.path().join("clean"));
    let kept = std::fs::read(&head).unwrap();
    std::fs::remove_file(&head).unwrap();
    assert_eq!(presence(scratch.path()).unwrap(), Presence::HeadMissing);
    let refused = PackTree::create(&*disk(&scratch), &SMALL);
    assert!(matches!(refused, Err(TreeError::HeadMissing { .. })), "{refused:?}");
    // Also without the file that no creation makes.
    std::fs::remove_file(away).unwrap();
    assert_eq!(presence(scratch.path()).unwrap(), Presence::HeadMissing);
    let refusals = [
        PackTree::create(&*disk(&scratch), &SMALL),
        PackTree::open(disk(&scratch), &SMALL, "pack:test").map(drop),
        check(&*disk(&scratch), |_, _| ()).map(drop),
    ];
    for refused in refusals {
        assert!(matches!(refused, Err(TreeError::HeadMissing { .. })), "{refused:?}");
    }
    std::fs::write(&head, kept).unwrap();
    assert_eq!(all(&opened(disk(&scratch))), before);
}

/// Symptom: with a link, a pipe or a directory in the place of `tree`, the directory had "no tree", and a store or another tree was made
/// there; so it was with a damaged `tree`. Cause: whatever was not a whole head was taken for nothing.
#[test]
fn a_tree_whose_head_is_replaced_or_damaged_is_never_taken_for_nothing() {
    let scratch = scratch();
    let tree = made(disk(&scratch));
    write(&tree, "file", b"1");
    let before = all(&tree);
    tree.close().unwrap();
    let head = scratch.path().join("tree");
    let kept = std::fs::read(&head).unwrap();
    let other = tempfile::tempdir().unwrap();
    std::fs::write(other.path().join("tree"), &kept).unwrap();
    let refusals = || {
        let created = PackTree::create(&*disk(&scratch), &SMALL);
        let opened = PackTree::open(disk(&scratch), &SMALL, "pack:test").map(drop);
        let checked = check(&*disk(&scratch), |_, _| ()).map(drop);
        let repaired = packtree::repair(&*disk(&scratch), |_, _| ()).map(drop);
        let copied = packtree::begin_copy(&*disk(&scratch));
        [presence(scratch.path()).map(drop), created, opened, checked, repaired, copied]
    };
    for what in ["a symbolic link", "a pipe", "a directory", "a socket"] {
        in_place_of(&head, what, &other.path().join("tree"));
        for refused in refusals() {
            let text = refused.expect_err(what).to_string();
            let wanted = format!("{}: {what} is in the place of the file `tree`", scratch.path().display());
            assert!(text.starts_with(&wanted) && text.contains("put the file itself back"), "{text}");
        }
        assert!(packtree::is_tree(scratch.path()).is_err(), "{what}");
        let _ = std::fs::remove_dir(&head).or_else(|_| std::fs::remove_file(&head));
    }
    for damaged in [&b""[..], &kept[..5], &[7; 64]] {
        std::fs::write(&head, damaged).unwrap();
        assert!(matches!(presence(scratch.path()), Err(TreeError::HeadDamaged { .. })), "{damaged:?}");
        assert!(PackTree::create(&*disk(&scratch), &SMALL).is_err(), "{damaged:?}");
    }
    std::fs::write(&head, kept).unwrap();
    assert_eq!(all(&opened(disk(&scratch))), before);
}

/// Symptom: "Too many levels of symbolic links", "No such device or address" and the like, without what to do; with `space` a pipe and no
/// `tree`, "no tree".
#[test]
fn what_is_in_the_place_of_any_file_of_a_tree_is_named_and_nothing_is_written() {
    let scratch = scratch();
    let tree = made(disk(&scratch));
    for number in 0..300 {
        write(&tree, &format!("file-{number}"), b"1");
    }
    let before = all(&tree);
    tree.close().unwrap();
    let outside = crate::scenario::scratch();
    let mut names = disk(&scratch).names().unwrap();
    names.extend(
        ["clean.new", "manifest.new", "tree.new", "copying", "names-999999", "names"].map(str::to_owned),
    );
    assert!(names.len() > 12, "{names:?}");
    for name in names {
        let (path, away) = (scratch.path().join(&name), outside.path().join(&name));
        let was_there = path.exists();
        if was_there {
            std::fs::rename(&path, &away).unwrap();
        }
        for what in ["a symbolic link", "a pipe", "a directory", "a socket"] {
            in_place_of(&path, what, &away);
            let refusals = [
                PackTree::open(disk(&scratch), &SMALL, "pack:test").map(drop),
                PackTree::open_to_read(disk(&scratch), &SMALL, "pack:test").map(drop),
                check(&*disk(&scratch), |_, _| ()).map(drop),
                packtree::repair(&*disk(&scratch), |_, _| ()).map(drop),
            ];
            for refused in refusals {
                let text = refused.expect_err(what).to_string();
                assert!(text.contains(&format!("{what} is in the place of the file `{name}`")), "{text}");
            }
            let _ = std::fs::remove_dir(&path).or_else(|_| std::fs::remove_file(&path));
        }
        if was_there {
            std::fs::rename(&away, &path).unwrap();
        } else {
            assert!(!away.exists(), "{name}: a link was followed");
        }
    }
    assert_eq!(all(&opened(disk(&scratch))), before);
}

fn in_place_of(path: &Path, what: &str, leads_to: &Path) {
    let _ = std::fs::remove_file(path);
    match what {
        "a symbolic link" => std::os::unix::fs::symlink(leads_to, path).unwrap(),
        "a pipe" => rustix::fs::mkfifoat(rustix::fs::CWD, path, 0o600.into()).unwrap(),
        "a directory" => std::fs::create_dir(path).unwrap(),
        _ => drop(std::os::unix::net::UnixListener::bind(path).unwrap()),
    }
}

#[test]
fn a_directory_with_anything_else_is_refused_and_left_as_it_is() {
    let scratch = scratch();
    assert_eq!(presence(scratch.path()).unwrap(), Presence::Nothing);
    // Files of the names that a creation makes, and one that it does not.
    for name in ["space", "names", "stranger"] {
        drop(disk(&scratch).open(name, DiskOpen::New).unwrap());
    }
    assert!(matches!(PackTree::create(&*disk(&scratch), &SMALL), Err(TreeError::NotEmpty { .. })));
    std::fs::remove_file(scratch.path().join("stranger")).unwrap();
    assert_eq!(presence(scratch.path()).unwrap(), Presence::Unfinished);
    std::fs::write(scratch.path().join("space"), [vec![0; 200_000], vec![1]].concat()).unwrap();
    assert!(matches!(PackTree::create(&*disk(&scratch), &SMALL), Err(TreeError::HeadMissing { .. })));
    let mut names = disk(&scratch).names().unwrap();
    names.sort();
    assert_eq!(names, ["names", "space"]);
}
