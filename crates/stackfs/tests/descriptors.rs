//! How many descriptors a mount keeps, and what it does when there are no more. In a process of its own, as the limit is
//! the process's.

#[path = "it/scene.rs"]
mod scene;

use std::fs::{self, File};

use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, setrlimit};
use scene::{Scene, cannot_mount, names};

const LIMIT: u64 = 400;

fn open_now() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Uses up all descriptors of this process, which are the mount's too.
fn used_up() -> Vec<File> {
    let mut others = Vec::new();
    let shortage = loop {
        match File::open("/") {
            Ok(file) => others.push(file),
            Err(error) => break error,
        }
    };
    assert_eq!(Errno::from_io_error(&shortage), Some(Errno::MFILE));
    others
}

/// Files that were read are kept for some seconds, by a descriptor each. Truncating by a path takes one here and none there.
fn files_that_are_not_open_give_way(scene: &Scene) {
    let before = open_now();
    for number in 0..100 {
        fs::write(scene.lower(&format!("read{number}")), "text").unwrap();
        assert_eq!(fs::read(scene.at(&format!("read{number}"))).unwrap(), b"text");
    }
    let kept = open_now() - before;
    assert!(kept >= 100, "{kept} descriptors kept of files that were read");
    let others = used_up();
    for number in 0..100 {
        let cut = nix::unistd::truncate(&scene.at(&format!("read{number}")), 2);
        assert_eq!(cut, Ok(()), "{number}");
    }
    drop(others);
    assert!(open_now() < before + 50, "{} descriptors, {before} before", open_now());
}

#[test]
fn hidden_directories_are_kept_open_up_to_a_bound_and_given_up_when_descriptors_run_short() {
    if cannot_mount() {
        return;
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(LIMIT), maximum: Some(LIMIT) }).unwrap();
    let scene = Scene::new();
    files_that_are_not_open_give_way(&scene);
    let group = scene.managed("group");
    let before = open_now();
    for number in (0..9990).step_by(10) {
        fs::write(group.join(number.to_string()), "").unwrap();
    }
    // What was written stays registered for some seconds, by a descriptor each, when it was read.
    let kept = open_now() - before;
    assert!(kept > LIMIT as usize / 8, "{kept} descriptors are no help for 999 hidden directories");
    assert!(kept <= LIMIT as usize / 4 + 10, "{kept} descriptors kept of {LIMIT}");
    let others = used_up();
    // A stat needs none here, and one there: of a hidden directory that is not open.
    for number in (0..9990).step_by(10) {
        let path = group.join(number.to_string());
        assert!(fs::metadata(&path).is_ok(), "{number}: {:?}", fs::metadata(&path));
    }
    drop(others);
    assert_eq!(names(&group).len(), 999);
}
