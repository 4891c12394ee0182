//! The owner of a directory, who exchanges what a conversion has put there with links to elsewhere while root's daemon
//! converts it: nothing elsewhere is reached, changed or given away.

use std::fs;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use stackfs::convert::Goal;

use crate::scene::{Scene, cannot_mount, sorted};

const USER: u32 = 12_345;
const ENTRIES: u32 = 600;

/// Names, owners, modes and contents of all in a directory.
fn snapshot(place: &Path) -> Vec<(PathBuf, u32, u32, Option<String>)> {
    let mut all = Vec::new();
    let mut waiting = vec![place.to_owned()];
    while let Some(path) = waiting.pop() {
        let of = fs::symlink_metadata(&path).unwrap();
        if of.is_dir() {
            waiting.extend(sorted(&path).into_iter().map(|name| path.join(name)));
        }
        let below = path.strip_prefix(place).unwrap().to_owned();
        all.push((below, of.uid(), of.mode(), fs::read_to_string(&path).ok()));
    }
    all
}

/// Exchanges each of these with a link to elsewhere or a directory of root's, whenever they are there.
fn exchange_until(lower: &Path, places: &[&str], over: &AtomicBool, exchanged: &AtomicU64) {
    while !over.load(Ordering::Relaxed) {
        for place in places {
            for decoy in ["link", "roots"] {
                let (there, decoy) = (lower.join(place), lower.with_file_name(decoy));
                if renameat_with(CWD, &there, CWD, &decoy, RenameFlags::EXCHANGE).is_ok() {
                    std::thread::yield_now();
                    let _ = renameat_with(CWD, &there, CWD, &decoy, RenameFlags::EXCHANGE);
                    exchanged.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }
}

#[test]
fn exchanging_the_staging_directory_and_those_in_it_reaches_nothing_elsewhere() {
    if cannot_mount() || !rustix::process::geteuid().is_root() {
        return;
    }
    let scene = Scene::new();
    fs::set_permissions(scene.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let outside = scene.folder.path().join("outside");
    for inner in ["", "000", "010", "aaa", "empty"] {
        fs::create_dir(outside.join(inner)).unwrap();
        fs::set_permissions(outside.join(inner), fs::Permissions::from_mode(0o700)).unwrap();
    }
    for file in ["victim", "000/7", "aaa/victim", "123"] {
        fs::write(outside.join(file), "root's").unwrap();
    }
    symlink(&outside, scene.lower("link")).unwrap();
    // A directory of root's that the owner has got hold of by renaming.
    fs::create_dir(scene.lower("roots")).unwrap();
    fs::set_permissions(scene.lower("roots"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(scene.lower("roots/victim"), "root's").unwrap();
    // Wherever it is in the end: what it was exchanged with may have been moved before it was exchanged back.
    let held = fs::File::open(scene.lower("roots")).unwrap();
    let roots = PathBuf::from(format!("/proc/self/fd/{}/.", held.as_raw_fd()));
    let before = (snapshot(&outside), snapshot(&roots));
    let (lower, at) = (scene.lower("group"), scene.at("group"));
    fs::create_dir(&lower).unwrap();
    for number in 0..ENTRIES {
        fs::write(lower.join(number.to_string()), "").unwrap();
    }
    for name in ["victim", "empty"] {
        fs::write(lower.join(name), "the user's").unwrap();
    }
    chown(&lower, Some(USER), Some(USER)).unwrap();
    let online = scene.mount.as_ref().unwrap().online();
    let (over, exchanged) = (AtomicBool::new(false), AtomicU64::new(0));
    let staged = [".crumb-converting-345/000", ".crumb-converting-345/aaa", ".crumb-converting-345/010"];
    let places = [&staged[..], &["000", "aaa", "010", ".crumb-converting-345"]].concat();
    std::thread::scope(|scope| {
        scope.spawn(|| exchange_until(&lower, &places, &over, &exchanged));
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                for name in ["victim", "7", "123", "new"] {
                    let path = at.join(name);
                    let _ = fs::metadata(&path);
                    let _ = fs::write(&path, "x");
                    let _ = fs::rename(&path, at.join("moved"));
                    let _ = fs::remove_file(at.join("moved"));
                }
                let _ = fs::read_dir(&at).map(Iterator::count);
            }
        });
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut runs = 0;
        while (runs < 30 || exchanged.load(Ordering::Relaxed) < 200) && Instant::now() < deadline {
            let goal = if runs % 2 == 0 { Goal::Managed(None) } else { Goal::Flat };
            // Many fail, as what they have made is not where they made it.
            let _ = super::convert(&online, "group", goal);
            runs += 1;
        }
        over.store(true, Ordering::Relaxed);
        assert!(
            runs >= 30 && exchanged.load(Ordering::Relaxed) >= 200,
            "{runs} runs, {exchanged:?} exchanges"
        );
    });
    assert_eq!(snapshot(&outside), before.0, "{exchanged:?} exchanges");
    assert_eq!(snapshot(&roots), before.1, "{exchanged:?} exchanges");
    // Where root's directory is left in the place of a hidden one, names in it give EIO, and a listing ends with that.
    let listed = fs::read_dir(&at).unwrap().map_while(Result::ok).map(|entry| entry.path());
    for path in listed.chain(["victim", "7", "123"].map(|name| at.join(name))) {
        let text = fs::read_to_string(&path);
        assert!(text.is_err() || text.unwrap() != "root's", "{}", path.display());
    }
}
