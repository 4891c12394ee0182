//! A mount over a tree in which a conversion was cut off: nothing is shown of that directory, nothing can be made in
//! it, and all of it is there when the conversion is finished.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::scene::{Scene, cannot_mount, memory, sorted};
use stackfs::convert::{Goal, State, Watch, Work, convert, state_of};
use stackfs::{Mount, StackOptions};

const ENTRIES: u32 = 400;

/// A directory with entries and a group in it, whose conversion to managed is cut off at this work.
fn cut_off(directory: &Path, at: Work) {
    fs::create_dir_all(directory.join("group")).unwrap();
    for number in 0..ENTRIES {
        fs::write(directory.join((120_000 + number * 10).to_string()), "").unwrap();
    }
    let stop = AtomicBool::new(false);
    let mut progress = |progress: stackfs::convert::Progress| {
        stop.store(progress.work == at && progress.done > 0, Ordering::Relaxed);
    };
    let goal = Goal::Managed(None);
    let cut = convert(directory, goal, &mut Watch { progress: &mut progress, stop: &stop }).unwrap();
    assert!(cut.after.is_half_way(), "{cut:?}");
    assert_eq!(matches!(cut.after, State::MovingLevels(_)), at == Work::LevelsOutOfStaging, "{cut:?}");
}

fn finish(directory: &Path, goal: Goal) {
    let stop = AtomicBool::new(false);
    convert(directory, goal, &mut Watch { progress: &mut |_| {}, stop: &stop }).unwrap();
}

#[test]
fn a_half_converted_directory_is_an_error_and_never_a_directory_with_less_in_it() {
    if cannot_mount() {
        return;
    }
    for at in [Work::EntriesIntoStaging, Work::LevelsOutOfStaging] {
        let folder = memory();
        let lower = folder.path().join("lower");
        cut_off(&lower.join("cut"), at);
        fs::create_dir(lower.join("whole")).unwrap();
        fs::write(lower.join("whole/1"), "").unwrap();
        let mut scene = Scene::in_folder(folder, |options| options);
        // The second time it is known, the third after the time-outs of the first.
        for _ in 0..3 {
            let refused = [
                fs::read_dir(scene.at("cut")).map(drop),
                fs::metadata(scene.at("cut/120010")).map(drop),
                fs::metadata(scene.at("cut/no-such-name")).map(drop),
                fs::write(scene.at("cut/120010"), "a second one"),
                fs::create_dir(scene.at("cut/group")),
                fs::rename(scene.at("whole/1"), scene.at("cut/1")),
                fs::hard_link(scene.at("whole/1"), scene.at("cut/1")),
                fs::remove_dir(scene.at("cut")),
            ];
            for (number, outcome) in refused.into_iter().enumerate() {
                let error = outcome.expect_err("refused");
                let expected = if number == 7 { &[5, 39][..] } else { &[5] };
                assert!(expected.contains(&error.raw_os_error().unwrap()), "{at:?}, {number}: {error}");
            }
            assert!(fs::metadata(scene.at("cut")).unwrap().is_dir());
            std::thread::park_timeout(std::time::Duration::from_millis(600));
        }
        assert_eq!(sorted(&scene.at("whole")), ["1"]);
        scene.mount.take().unwrap().stop().unwrap();
        finish(&scene.lower("cut"), Goal::Managed(None));
        let again = Scene::in_folder(scene.folder, |options| options);
        assert_eq!(sorted(&again.at("cut")).len(), ENTRIES as usize + 1, "{at:?}");
    }
}

#[test]
fn a_tree_whose_root_is_half_converted_is_not_mounted_and_the_verb_is_named() {
    if cannot_mount() {
        return;
    }
    let folder = memory();
    let (lower, at) = (folder.path().join("lower"), folder.path().join("at"));
    fs::create_dir(&at).unwrap();
    for (work, verb, goal) in [
        (Work::EntriesIntoStaging, "unmanage", Goal::Flat),
        (Work::LevelsOutOfStaging, "manage", Goal::Managed(None)),
    ] {
        cut_off(&lower, work);
        let Err(refused) = Mount::start(StackOptions::new(&lower, &at)) else { panic!("mounted") };
        let message = refused.to_string();
        assert!(message.contains(&format!("`crumb {verb} {}`", lower.display())), "{message}");
        finish(&lower, goal);
        drop(Mount::start(StackOptions::new(&lower, &at)).unwrap());
        finish(&lower, Goal::Flat);
        fs::remove_dir_all(&lower).unwrap();
    }
}

#[test]
fn names_that_would_pass_for_a_conversion_cannot_be_made_through_a_mount() {
    if cannot_mount() {
        return;
    }
    let scene = Scene::new();
    fs::create_dir(scene.lower("plain")).unwrap();
    fs::write(scene.lower("x"), "").unwrap();
    for directory in [scene.managed("managed"), scene.at("plain")] {
        let taken = directory.join(".crumb-converting-345");
        let outcomes = [
            fs::create_dir(&taken),
            fs::write(&taken, ""),
            fs::rename(scene.at("x"), &taken),
            fs::hard_link(scene.at("x"), &taken),
            std::os::unix::fs::symlink("x", &taken),
        ];
        for outcome in outcomes {
            assert_eq!(outcome.unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        }
        assert!(sorted(&directory).is_empty());
    }
    // One that somebody has made below is no conversion, as it holds other things.
    fs::create_dir_all(scene.lower("plain/.crumb-converting-345/mine")).unwrap();
    assert!(state_of(&scene.lower("plain")).is_err());
    assert_eq!(sorted(&scene.at("plain")), [".crumb-converting-345"]);
}
