//! A tree is made whole or not at all, and never in the place of another.

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
    assert_eq!(presence(scratch.path()), Presence::Tree);
    let (head, away) = (scratch.path().join("tree"), scratch.path().join("clean"));
    let kept = std::fs::read(&head).unwrap();
    std::fs::remove_file(&head).unwrap();
    assert_eq!(presence(scratch.path()), Presence::HeadMissing);
    let refused = PackTree::create(&*disk(&scratch), &SMALL);
    assert!(matches!(refused, Err(TreeError::HeadMissing { .. })), "{refused:?}");
    // Also without the file that no creation makes.
    std::fs::remove_file(away).unwrap();
    assert_eq!(presence(scratch.path()), Presence::HeadMissing);
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

#[test]
fn a_directory_with_anything_else_is_refused_and_left_as_it_is() {
    let scratch = scratch();
    assert_eq!(presence(scratch.path()), Presence::Nothing);
    // Files of the names that a creation makes, and one that it does not.
    for name in ["space", "names", "stranger"] {
        drop(disk(&scratch).open(name, DiskOpen::New).unwrap());
    }
    assert!(matches!(PackTree::create(&*disk(&scratch), &SMALL), Err(TreeError::NotEmpty { .. })));
    std::fs::remove_file(scratch.path().join("stranger")).unwrap();
    assert_eq!(presence(scratch.path()), Presence::Unfinished);
    std::fs::write(scratch.path().join("space"), [vec![0; 200_000], vec![1]].concat()).unwrap();
    assert!(matches!(PackTree::create(&*disk(&scratch), &SMALL), Err(TreeError::HeadMissing { .. })));
    let mut names = disk(&scratch).names().unwrap();
    names.sort();
    assert_eq!(names, ["names", "space"]);
}
