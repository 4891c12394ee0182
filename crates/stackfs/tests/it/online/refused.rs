//! What is not converted, what is stopped and continued, and what a mount does with what another has left.

use std::fs;
use std::mem::MaybeUninit;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use files::Layout;
use rustix::fs::{FlockOperation, Mode, OFlags, RawDir, SeekFrom};
use rustix::io::Errno;
use stackfs::convert::{ConvertError, Goal, State, Watch, state_of};
use stackfs::{Mount, StackOptions};

use super::convert;
use crate::scene::{Scene, cannot_mount, names, sorted};

const MANAGE: Goal = Goal::Managed(None);

fn me() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn filled(scene: &Scene, name: &str, count: u32) {
    fs::create_dir(scene.lower(name)).unwrap();
    for number in 0..count {
        fs::write(scene.lower(name).join((100_000 + number).to_string()), number.to_string()).unwrap();
    }
}

/// The first entry that a directory just opened has behind a position.
fn first_behind(path: &Path, position: u64) -> Result<Option<Vec<u8>>, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let directory = rustix::fs::open(path, flags, Mode::empty()).unwrap();
    rustix::fs::seek(&directory, SeekFrom::Start(position)).unwrap();
    let mut buffer = [MaybeUninit::uninit(); 1000];
    let mut raw = RawDir::new(&directory, &mut buffer);
    raw.next().transpose().map(|entry| entry.map(|entry| entry.file_name().to_bytes().to_vec()))
}

#[test]
fn a_directory_is_managed_and_made_plain_again_below_a_mount_that_shows_the_same_all_the_time() {
    if cannot_mount() {
        return;
    }
    let scene = Scene::new();
    let online = scene.mount.as_ref().unwrap().online();
    for layout in Layout::ALL.into_iter().filter(|layout| *layout != Layout::Flat) {
        filled(&scene, "group", 300);
        fs::write(scene.lower("group/.overview"), "").unwrap();
        fs::create_dir_all(scene.lower("group/345/000")).unwrap();
        fs::set_permissions(scene.lower("group"), fs::Permissions::from_mode(0o3771)).unwrap();
        let (before, of) = (sorted(&scene.at("group")), fs::metadata(scene.at("group")).unwrap());
        let done = convert(&online, "group", Goal::Managed(Some(layout))).unwrap();
        assert_eq!((done.before, done.after), (State::Flat, State::Managed(layout)));
        assert_eq!(done.entries_moved, 302, "{layout}");
        assert_eq!(state_of(&scene.lower("group")).unwrap(), State::Managed(layout));
        assert_eq!(sorted(&scene.at("group")), before, "{layout}");
        let now = fs::metadata(scene.at("group")).unwrap();
        assert_eq!((now.ino(), now.mode(), now.mtime_nsec()), (of.ino(), of.mode(), of.mtime_nsec()));
        fs::write(scene.at("group/777777"), "new").unwrap();
        let done = convert(&online, "group", Goal::Flat).unwrap();
        assert_eq!((done.after, done.entries_moved), (State::Flat, 303), "{layout}");
        assert_eq!(state_of(&scene.lower("group")).unwrap(), State::Flat);
        assert_eq!(fs::read_to_string(scene.lower("group/777777")).unwrap(), "new");
        assert_eq!(sorted(&scene.lower("group")), sorted(&scene.at("group")), "{layout}");
        assert!(
            stackfs::managed::layout_mark(fs::File::open(scene.lower("group")).unwrap()).unwrap().is_none()
        );
        fs::remove_dir_all(scene.at("group")).unwrap();
    }
}

#[test]
fn a_mount_that_opens_no_directories_does_not_know_who_lists_them_and_converts_none() {
    if cannot_mount() {
        return;
    }
    let scene = Scene::with(|options| StackOptions { no_open: true, ..options.exclusive() });
    filled(&scene, "group", 3);
    let refused = convert(&scene.mount.as_ref().unwrap().online(), "group", MANAGE).unwrap_err();
    assert!(matches!(*refused, ConvertError::Unopened { .. }), "{refused}");
    assert!(refused.to_string().contains("mount it without no-open"), "{refused}");
    assert_eq!(state_of(&scene.lower("group")).unwrap(), State::Flat);
}

#[test]
fn the_root_of_a_mount_and_a_directory_in_a_managed_one_are_converted_too() {
    if cannot_mount() {
        return;
    }
    let scene = Scene::new();
    let online = scene.mount.as_ref().unwrap().online();
    for number in 0..200 {
        fs::write(scene.at("").join(number.to_string()), "").unwrap();
    }
    fs::create_dir(scene.at("2600")).unwrap();
    fs::write(scene.at("2600/1"), "x").unwrap();
    convert(&online, "", MANAGE).unwrap();
    assert!(scene.lower("260/2600/1").is_file());
    convert(&online, "2600", Goal::Managed(Some(Layout::Hash2))).unwrap();
    assert_eq!((names(&scene.at("")).len(), fs::read(scene.at("2600/1")).unwrap()), (201, b"x".to_vec()));
    convert(&online, "", Goal::Flat).unwrap();
    assert_eq!(fs::read(scene.at("2600/1")).unwrap(), b"x");
    assert!(matches!(state_of(&scene.lower("2600")).unwrap(), State::Managed(Layout::Hash2)));
}

#[test]
fn only_root_or_the_user_of_both_daemon_and_directory_may_ask() {
    if cannot_mount() {
        return;
    }
    let scene = Scene::new();
    let online = scene.mount.as_ref().unwrap().online();
    filled(&scene, "group", 20);
    if me() == 0 {
        chown(scene.lower("group"), Some(12_345), Some(12_345)).unwrap();
    }
    for other in [12_345, 12_346] {
        let Err(refused) = online.begin(Path::new("group"), MANAGE, other) else { panic!("user {other}") };
        assert!(matches!(refused, ConvertError::NotYours { .. }), "{refused}");
    }
    assert_eq!(state_of(&scene.lower("group")).unwrap(), State::Flat);
    convert(&online, "group", MANAGE).unwrap();
}

#[test]
fn paths_that_are_no_directories_of_the_mount_are_refused() {
    if cannot_mount() {
        return;
    }
    let scene = Scene::new();
    let online = scene.mount.as_ref().unwrap().online();
    filled(&scene, "group", 5);
    let outside = scene.folder.path().join("outside");
    fs::create_dir(&outside).unwrap();
    std::os::unix::fs::symlink(&outside, scene.lower("link")).unwrap();
    std::os::unix::fs::symlink("..", scene.lower("group/up")).unwrap();
    for path in ["../outside", "group/../../outside", "link", "group/up", "group/100001", "none", "/"] {
        let Err(refused) = online.begin(Path::new(path), MANAGE, me()) else { panic!("{path}") };
        assert!(matches!(refused, ConvertError::Open { .. }), "{path}: {refused}");
    }
}

#[test]
fn while_it_is_locked_or_shown_elsewhere_it_stays_as_it_is() {
    if cannot_mount() {
        return;
    }
    let scene = Scene::new();
    let online = scene.mount.as_ref().unwrap().online();
    filled(&scene, "group", 20);
    {
        let held = fs::File::open(scene.lower("group")).unwrap();
        rustix::fs::flock(&held, FlockOperation::LockExclusive).unwrap();
        let Err(refused) = online.begin(Path::new("group"), MANAGE, me()) else { panic!("locked") };
        assert!(matches!(refused, ConvertError::Locked { .. }), "{refused}");
    }
    {
        let second = scene.folder.path().join("second");
        fs::create_dir(&second).unwrap();
        let _second = Mount::start(StackOptions::new(scene.lower(""), &second)).unwrap();
        let Err(refused) = online.begin(Path::new("group"), MANAGE, me()) else { panic!("shown twice") };
        assert!(matches!(refused, ConvertError::AlsoShown { .. }), "{refused}");
    }
    fs::write(scene.lower("group/stray"), "").unwrap();
    fs::set_permissions(scene.lower("group"), fs::Permissions::from_mode(0o4755)).unwrap();
    std::thread::park_timeout(Duration::from_millis(1100));
    let refused = convert(&online, "group", Goal::Flat).unwrap_err();
    assert!(matches!(*refused, ConvertError::Beside { .. }), "{refused}");
    fs::set_permissions(scene.lower("group"), fs::Permissions::from_mode(0o755)).unwrap();
    let stop = AtomicBool::new(false);
    let offline = stackfs::convert::convert(
        &scene.lower("group"),
        MANAGE,
        &mut Watch { progress: &mut |_| {}, stop: &stop },
    );
    assert!(matches!(offline, Err(ConvertError::Mounted { .. })), "{offline:?}");
}

#[test]
fn stopped_half_way_it_shows_everything_and_is_continued_or_turned_round() {
    if cannot_mount() {
        return;
    }
    let scene = Scene::new();
    let online = scene.mount.as_ref().unwrap().online();
    filled(&scene, "group", 20_000);
    let all = sorted(&scene.at("group"));
    let mut half_way = 0;
    for round in 0..30u64 {
        let goal = if round % 3 == 2 { Goal::Flat } else { MANAGE };
        let run = online.begin(Path::new("group"), goal, me()).unwrap();
        let same = online.begin(Path::new("group"), goal, me()).map(|joined| Arc::ptr_eq(&joined, &run));
        assert!(same.is_err() || same.unwrap() || run.wait(Duration::ZERO).is_some(), "a second one");
        let ended = run.wait(Duration::from_millis(round * 7 % 90));
        run.stop();
        let done = ended.or_else(|| run.wait(Duration::from_secs(60))).unwrap().unwrap();
        half_way += u32::from(done.after.is_half_way());
        assert_eq!(state_of(&scene.lower("group")).unwrap(), done.after, "round {round}");
        if done.after.is_half_way() {
            // As an NFS server does, which opens it again for each part: never a part of the names without a word.
            assert_eq!(first_behind(&scene.at("group"), 123_456), Err(Errno::STALE), "round {round}");
        }
        let name = (300_000 + round).to_string();
        fs::write(scene.at("group").join(&name), "made half way").unwrap();
        assert_eq!(
            fs::create_dir(scene.at("group/100005")).unwrap_err().kind(),
            std::io::ErrorKind::AlreadyExists
        );
        assert_eq!(fs::read_to_string(scene.at("group/100077")).unwrap(), "77");
        fs::remove_file(scene.at("group").join(&name)).unwrap();
        assert!(sorted(&scene.at("group")) == all, "round {round}: other names");
        assert!(!scene.at("group/.crumb-converting-345").exists());
    }
    assert!(half_way > 5, "only {half_way} of 30 were stopped half way");
    convert(&online, "group", Goal::Flat).unwrap();
    assert!(sorted(&scene.lower("group")) == all);
}

#[test]
fn what_a_conversion_has_left_half_way_is_finished_by_the_mount_that_shows_it() {
    if cannot_mount() {
        return;
    }
    for (goal, at) in [(MANAGE, 4000), (Goal::Flat, 4000), (MANAGE, 8100), (Goal::Flat, 8100)] {
        let folder = crate::scene::memory();
        let lower = folder.path().join("lower/group");
        fs::create_dir_all(&lower).unwrap();
        for number in 0..8000 {
            fs::write(lower.join(number.to_string()), "").unwrap();
        }
        // Counted over all steps, so that it is cut in the first or in the second.
        let (stop, reports) = (AtomicBool::new(false), std::cell::Cell::new(0u64));
        let mut progress = |progress: stackfs::convert::Progress| {
            let later = progress.work == stackfs::convert::Work::LevelsOutOfStaging;
            reports.set(progress.done + if later { 8000 } else { 0 });
            stop.store(reports.get() >= at, Ordering::Relaxed);
        };
        let watch = &mut Watch { progress: &mut progress, stop: &stop };
        let cut = stackfs::convert::convert(&lower, MANAGE, watch).unwrap();
        assert!(cut.after.is_half_way(), "{at}: {cut:?}");
        let scene = Scene::in_folder(folder, |options| options);
        assert_eq!(
            fs::read_dir(scene.at("group")).unwrap_err().raw_os_error(),
            Some(5),
            "an error, as before"
        );
        let online = scene.mount.as_ref().unwrap().online();
        let done = convert(&online, "group", goal).unwrap();
        assert!(done.before.is_half_way() && !done.after.is_half_way(), "{done:?}");
        assert_eq!(names(&scene.at("group")).len(), 8000);
        assert_eq!(state_of(&scene.lower("group")).unwrap(), done.after);
    }
}

#[test]
fn a_mount_that_ends_stops_its_conversion_and_nothing_is_lost() {
    if cannot_mount() {
        return;
    }
    let scene = Scene::new();
    filled(&scene, "group", 20_000);
    let online = scene.mount.as_ref().unwrap().online();
    let run = online.begin(Path::new("group"), MANAGE, me()).unwrap();
    while run.progress().is_none() {
        std::thread::yield_now();
    }
    let folder = scene.unmounted();
    assert!(run.wait(Duration::ZERO).is_some(), "its thread outlived the mount");
    let lower = folder.path().join("lower/group");
    let Err(ending) = online.begin(Path::new("group"), MANAGE, me()) else {
        panic!("a mount that has ended")
    };
    assert!(matches!(ending, ConvertError::Ending { .. }), "{ending}");
    drop((run, online));
    let stop = AtomicBool::new(false);
    stackfs::convert::convert(&lower, Goal::Flat, &mut Watch { progress: &mut |_| {}, stop: &stop }).unwrap();
    assert_eq!(names(&lower).len(), 20_000);
}
