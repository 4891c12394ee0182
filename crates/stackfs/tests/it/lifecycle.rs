//! Mounting and its end: bad places, over itself, in use, killed, and what is left behind.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use crate::scene::{Scene, cannot_mount, memory, sorted};
use stackfs::convert::{ConvertError, Goal, Watch};
use stackfs::{Ending, Mount, StackOptions};
use testkit::need::{HostFeature, host};

fn refused(lower: &Path, mountpoint: &Path) -> String {
    match Mount::start(StackOptions::new(lower, mountpoint)) {
        Ok(_) => panic!("mounted {} at {}", lower.display(), mountpoint.display()),
        Err(error) => measure::error_chain(&error),
    }
}

#[test]
fn places_that_cannot_be_used_are_named_in_one_line() {
    if cannot_mount() {
        return;
    }
    let folder = memory();
    let at = |name: &str| folder.path().join(name);
    for name in ["lower", "at", "full", "lower/inside"] {
        fs::create_dir(at(name)).unwrap();
    }
    fs::write(at("file"), "").unwrap();
    fs::write(at("full/x"), "").unwrap();
    for (lower, mountpoint, says) in [
        ("file", "at", "not a directory"),
        ("lower", "file", "not a directory"),
        ("none", "at", "No such file"),
        ("lower", "none", "No such file"),
        ("lower", "full", "not empty"),
        ("lower", "lower/inside", "lies within"),
    ] {
        let error = refused(&at(lower), &at(mountpoint));
        assert!(error.contains(says) && !error.contains('\n'), "{lower} at {mountpoint}: {error}");
    }
    let first = Mount::start(StackOptions::new(at("lower"), at("at"))).unwrap();
    assert!(refused(&at("lower"), &at("at")).contains("already mounted"));
    drop(first);
    let mut options = StackOptions::new(at("lower"), at("full"));
    options.nonempty = true;
    drop(Mount::start(options).unwrap());
    assert_eq!(sorted(&at("full")), ["x"]);
}

#[test]
fn a_tree_is_mounted_over_itself_and_seen_as_before_afterwards() {
    if cannot_mount() {
        return;
    }
    let folder = memory();
    let place = folder.path().join("spool");
    fs::create_dir(&place).unwrap();
    fs::write(place.join("before"), "").unwrap();
    let mount = Mount::start(StackOptions::new(&place, &place)).unwrap();
    assert_eq!(sorted(&place), ["before"]);
    fs::write(place.join("through"), "").unwrap();
    assert_eq!(stackfs::mounts::showing(&place).unwrap().len(), 1);
    assert_eq!(mount.stop().unwrap(), Ending::Unmounted);
    mount.wait().unwrap();
    assert_eq!(stackfs::mounts::showing(&place).unwrap(), []);
    assert_eq!(sorted(&place), ["before", "through"]);
}

#[test]
fn a_mount_in_use_is_detached_and_serves_its_last_user() {
    if cannot_mount() {
        return;
    }
    let mut scene = Scene::with(|options| StackOptions { passthrough: false, ..options });
    fs::write(scene.at("x"), "still here").unwrap();
    let mut open = File::open(scene.at("x")).unwrap();
    let mount = scene.mount.take().unwrap();
    let busy = stackfs::mounts::unmount(&scene.at(""), false).unwrap_err().to_string();
    assert!(busy.contains("in use"), "{busy}");
    assert_eq!(mount.stop().unwrap(), Ending::Detached);
    assert!(sorted(&scene.at("")).is_empty(), "out of sight");
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    assert_eq!(text, "still here");
    assert!(!mount.is_over());
    drop(open);
    mount.wait().unwrap();
    let error = stackfs::mounts::unmount(&scene.at(""), false).unwrap_err().to_string();
    assert!(error.contains("no mount of Crumb's"), "{error}");
}

#[test]
fn reading_only_means_that_nothing_can_be_changed() {
    if cannot_mount() {
        return;
    }
    let scene = Scene::with(|options| StackOptions { read_only: true, ..options });
    fs::write(scene.lower("x"), "there").unwrap();
    assert_eq!(fs::read_to_string(scene.at("x")).unwrap(), "there");
    let refused = fs::write(scene.at("y"), "").unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ReadOnlyFilesystem);
}

#[test]
fn references_and_open_files_are_all_given_back() {
    if cannot_mount() {
        return;
    }
    let scene = Scene::new();
    let group = scene.managed("group");
    for number in 0..500 {
        fs::write(group.join(number.to_string()), "x").unwrap();
    }
    let mount = scene.mount.as_ref().unwrap();
    assert!(mount.census().nodes > 500, "{}", mount.census().nodes);
    for number in 0..500 {
        fs::remove_file(group.join(number.to_string())).unwrap();
    }
    // References come back by and by; an operation later they are in.
    let begun = std::time::Instant::now();
    while mount.census().nodes > 5 && begun.elapsed().as_secs() < 10 {
        let _ = fs::metadata(scene.at("none"));
    }
    let census = mount.census();
    assert!(census.nodes <= 5, "{} nodes", census.nodes);
    assert_eq!((census.files_open, census.directories_open, census.passed_through), (0, 0, 0));
}

#[test]
fn the_end_of_a_mount_leaves_a_new_one_in_its_place_alone() {
    if cannot_mount() {
        return;
    }
    let folder = memory();
    let (lower, at) = (folder.path().join("lower"), folder.path().join("at"));
    [&lower, &at].iter().for_each(|place| fs::create_dir(place).unwrap());
    fs::write(lower.join("x"), "").unwrap();
    for _ in 0..10 {
        let old = Mount::start(StackOptions::new(&lower, &at)).unwrap();
        // As umount(8) does, with nobody waiting for the daemon.
        rustix::mount::unmount(&at, rustix::mount::UnmountFlags::empty()).unwrap();
        let new = Mount::start(StackOptions::new(&lower, &at)).unwrap();
        old.wait().unwrap();
        assert_eq!(sorted(&at), ["x"]);
        drop(new);
        assert!(sorted(&at).is_empty());
    }
}

/// What overlayfs says to these layers, mounted at `at`.
fn overlaid(lower: &Path, folder: &Path, at: &Path) -> bool {
    let (upper, work) = (folder.join("upper"), folder.join("work"));
    [&upper, &work].iter().for_each(|place| fs::create_dir_all(place).unwrap());
    let layers =
        format!("lowerdir={},upperdir={},workdir={}", lower.display(), upper.display(), work.display());
    let mut command = std::process::Command::new("mount");
    command.args(["-t", "overlay", "overlay", "-o", &layers]).arg(at);
    command.stderr(std::process::Stdio::null()).status().is_ok_and(|status| status.success())
}

/// Symptom: an overlay with a mount of ours below was refused. Cause: the mount said that it stands on two levels of file
/// systems, the most that there may be. Fix: two only where the tree below is on a stacked file system itself.
#[test]
fn an_overlay_can_lie_over_a_mount_and_below_one() {
    if cannot_mount() {
        return;
    }
    let scene = Scene::new();
    let at = |name: &str| scene.folder.path().join(name);
    for name in ["plain", "over", "second"] {
        fs::create_dir(at(name)).unwrap();
    }
    fs::write(at("plain/x"), "below").unwrap();
    let overlay = overlaid(&at("plain"), &at("layers-1"), &at("over"));
    if host(HostFeature::Overlay, overlay.then_some(()).ok_or("no overlay can be mounted")).is_none() {
        return;
    }
    // Below: data of files in the overlay passes through.
    let mount = Mount::start(StackOptions::new(at("over"), at("second"))).unwrap();
    let mut open = File::open(at("second/x")).unwrap();
    let passed = mount.census().passed_through;
    let mut text = String::new();
    open.read_to_string(&mut text).unwrap();
    drop((open, mount));
    let plain = fs::File::open(scene.at("")).is_ok() && {
        fs::write(scene.lower("y"), "y").unwrap();
        let _open = File::open(scene.at("y")).unwrap();
        scene.mount.as_ref().unwrap().census().passed_through == 1
    };
    rustix::mount::unmount(at("over"), rustix::mount::UnmountFlags::empty()).unwrap();
    assert_eq!(text, "below");
    // Where the kernel passes nothing through, it does not here either.
    assert_eq!(passed == 1, plain);
    // Over.
    assert!(overlaid(&scene.at(""), &at("layers-2"), &at("over")), "an overlay over a mount is refused");
    let seen = fs::read_to_string(at("over/y"));
    rustix::mount::unmount(at("over"), rustix::mount::UnmountFlags::empty()).unwrap();
    assert_eq!(seen.unwrap(), "y");
}

#[test]
fn a_mount_that_serves_is_not_taken_for_a_dead_one() {
    if cannot_mount() {
        return;
    }
    let scene = Scene::new();
    assert!(!stackfs::mounts::is_dead(&scene.at("")));
    assert_eq!(stackfs::mounts::serving(&scene.lower("").canonicalize().unwrap()).len(), 1);
    assert!(refused(&scene.lower(""), &scene.at("")).contains("already mounted"));
}

/// A bind mount, away again when it is dropped.
struct Bound<'p>(&'p Path);

impl Drop for Bound<'_> {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(self.0).status();
    }
}

/// Symptom: a bind mount of a directory within the tree was converted while the tree was mounted, and names were there twice.
#[test]
fn a_bind_mount_of_a_part_of_a_tree_is_known_as_that_part() {
    if cannot_mount() || !testkit::need::root("a bind mount") {
        return;
    }
    let folder = memory();
    let at = |name: &str| folder.path().join(name);
    for name in ["lower/t/a", "at", "bound", "other"] {
        fs::create_dir_all(at(name)).unwrap();
    }
    let bound = at("bound");
    let bind = ["--bind".as_ref(), at("lower/t/a").as_os_str(), bound.as_os_str()].map(ToOwned::to_owned);
    assert!(std::process::Command::new("mount").args(bind).status().unwrap().success());
    let _bound = Bound(&bound);
    let options = |lower: &Path, mountpoint: &Path, exclusive| {
        let mut options = StackOptions::new(lower, mountpoint);
        options.exclusive = exclusive;
        options
    };
    let convert = || {
        let mut watch = Watch { progress: &mut |_| {}, stop: &AtomicBool::new(false) };
        stackfs::convert::convert(&bound, Goal::Managed(None), &mut watch)
    };
    for mountpoint in [at("at"), at("lower")] {
        for exclusive in [false, true] {
            let when = format!("{}, exclusive {exclusive}", mountpoint.display());
            let mount = Mount::start(options(&at("lower"), &mountpoint, exclusive)).unwrap();
            let refused = convert().expect_err(&when);
            assert!(matches!(refused, ConvertError::Mounted { .. }), "{when}: {refused}");
            for second in [false, true] {
                let started = Mount::start(options(&bound, &at("other"), second));
                assert_eq!(started.is_err(), exclusive || second, "{when}, then exclusive {second}");
            }
            drop(mount);
        }
    }
    let part = Mount::start(options(&bound, &at("other"), true)).unwrap();
    assert!(Mount::start(options(&at("lower"), &at("at"), false)).is_err(), "its part is to be alone");
    drop(part);
    assert!(convert().is_ok());
}
