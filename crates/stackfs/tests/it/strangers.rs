//! What the owner of a managed directory puts below in the place of a hidden one: nothing outside is reached, changed or
//! given away, also while he exchanges it.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::scene::{Scene, cannot_mount, names, sorted};
use files::Layout;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use stackfs::StackOptions;

const USER: u32 = 12_345;

/// A directory beside the lower tree that is root's alone, with an entry of each sort that operations could reach.
fn elsewhere(scene: &Scene) -> PathBuf {
    fs::set_permissions(scene.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let place = scene.folder.path().join("elsewhere");
    for directory in ["", "34", "56", "aaa", "empty"] {
        fs::create_dir(place.join(directory)).unwrap();
        fs::set_permissions(place.join(directory), fs::Permissions::from_mode(0o700)).unwrap();
    }
    for file in ["victim", "34/1234", "aaa/victim"] {
        fs::write(place.join(file), "root's").unwrap();
    }
    place
}

/// Names, owners, modes and contents of all in it.
fn snapshot(place: &Path) -> Vec<(PathBuf, u32, u32, Option<String>)> {
    let mut all = Vec::new();
    let mut waiting = vec![place.to_owned()];
    while let Some(path) = waiting.pop() {
        let of = fs::symlink_metadata(&path).unwrap();
        if of.is_dir() {
            waiting.extend(sorted(&path).into_iter().map(|name| path.join(name)));
        }
        all.push((path.clone(), of.uid(), of.mode(), fs::read_to_string(&path).ok()));
    }
    all
}

/// A managed directory of the user's.
fn managed(scene: &Scene, name: &str, layout: Layout) -> PathBuf {
    let at = scene.managed(name);
    let lower = scene.lower(name);
    let directory = stackfs::managed::open_directory(&lower).unwrap();
    stackfs::managed::set_layout_mark(&directory, layout).unwrap();
    chown(&lower, Some(USER), Some(USER)).unwrap();
    fs::set_permissions(&lower, fs::Permissions::from_mode(0o4777)).unwrap();
    at
}

/// Everything a program can do by name, in a directory; how many calls succeeded.
fn try_everything(at: &Path) -> usize {
    let script = "for n in victim aaa 34 56 1234 empty 13412; do
        : > new-$n; : > $n; mkdir $n; mkdir dir-$n; ln -s x $n; mkfifo $n; ln $n hard-$n; stat $n; cat $n
        mv $n moved-$n; mv 7 $n; chmod 777 $n; rm -f $n; rmdir $n; find . ; done; find .; ls";
    let mut done = 0;
    for uid in [USER, 0] {
        use std::os::unix::process::CommandExt as _;
        let status = Command::new("/bin/sh")
            .args(["-c", script])
            .current_dir(at)
            .uid(uid)
            .gid(uid)
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .status()
            .unwrap();
        done += usize::from(status.code().is_some());
        for mode in [0o777, 0o755, 0o777] {
            fs::set_permissions(at, fs::Permissions::from_mode(mode)).unwrap();
        }
        chown(at, Some(USER + 1), Some(USER + 1)).unwrap();
        chown(at, Some(USER), Some(USER)).unwrap();
    }
    done
}

#[test]
fn a_link_in_the_place_of_a_hidden_directory_leads_nowhere() {
    if cannot_mount() {
        return;
    }
    let scene = Scene::new();
    let outside = elsewhere(&scene);
    let before = snapshot(&outside);
    // One level, two levels with the link in the upper and in the lower one.
    for (group, layout, places) in [
        ("one", Layout::D345, &["aaa", "341", "123", "000"][..]),
        ("two", Layout::D34D56, &["aaa", "34", "12", "00"][..]),
        ("below", Layout::D34D56, &["aaa", "34/12", "12/34", "00/56"][..]),
        ("hash", Layout::Hash2, &["0a", "1b", "22"][..]),
    ] {
        let at = managed(&scene, group, layout);
        let lower = scene.lower(group);
        let tops = (0..256).map(|top| format!("{top:02x}"));
        let places = places.iter().map(|place| (*place).to_owned());
        for place in places.chain(tops.filter(|_| layout == Layout::Hash2)) {
            if let Some((upper, _)) = place.split_once('/') {
                let _ = fs::create_dir(lower.join(upper));
                chown(lower.join(upper), Some(USER), Some(USER)).unwrap();
            }
            let _ = symlink(&outside, lower.join(place));
        }
        assert_eq!(try_everything(&at), 2);
        let [in_link, seen] = [fs::write(at.join("13412"), "").is_ok(), at.join("1234").exists()];
        assert!(!in_link && !seen, "{group}: its place is a link");
        assert!(!names(&at).contains(&"victim".to_owned()), "{group}: {:?}", names(&at));
        assert_eq!(snapshot(&outside), before, "{group}");
        // Removing the directory removes nothing through a link either.
        let _ = fs::remove_dir(&at);
        assert_eq!(snapshot(&outside), before, "{group}");
    }
}

#[test]
fn a_directory_of_somebody_else_is_not_taken_for_a_hidden_one_nor_given_away() {
    if cannot_mount() {
        return;
    }
    let scene = Scene::new();
    fs::set_permissions(scene.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let at = managed(&scene, "group", Layout::D345);
    // The owner of a directory may rename what others have made in it.
    let foreign = scene.lower("group/aaa");
    fs::create_dir(&foreign).unwrap();
    fs::set_permissions(&foreign, fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(foreign.join("victim"), "root's").unwrap();
    let before = snapshot(&foreign);
    try_everything(&at);
    assert!(fs::metadata(at.join("victim")).is_err());
    assert_eq!(snapshot(&foreign), before);
    // Nor is an empty one: its creator may be about to write into it.
    let empty = scene.lower("group/777");
    fs::create_dir(&empty).unwrap();
    fs::set_permissions(&empty, fs::Permissions::from_mode(0o700)).unwrap();
    let of_it = snapshot(&empty);
    assert_eq!(fs::write(at.join("7770"), "x").unwrap_err().raw_os_error(), Some(Errno::IO.raw_os_error()));
    assert!(fs::read_dir(&at).unwrap().any(|entry| entry.is_err()), "what is there is not passed over");
    try_everything(&at);
    assert_eq!(snapshot(&empty), of_it);
    // What the daemon itself makes is the owner's.
    fs::write(at.join("8880"), "x").unwrap();
    let made = fs::metadata(scene.lower("group/888")).unwrap();
    assert_eq!((made.uid(), made.gid(), made.mode() & 0o7777), (USER, USER, 0o777));
}

#[test]
fn an_upper_hidden_directory_of_somebody_else_is_not_looked_into_changed_or_emptied() {
    if cannot_mount() {
        return;
    }
    let scene = Scene::new();
    fs::set_permissions(scene.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let at = managed(&scene, "group", Layout::D34D56);
    let foreign = scene.lower("group/34");
    // In root's directory there are empty ones of root's, and one of the user's with a file in it.
    for inner in ["12", "56", "99"] {
        fs::create_dir_all(foreign.join(inner)).unwrap();
    }
    fs::write(foreign.join("56/123456"), "root's").unwrap();
    chown(foreign.join("56"), Some(USER), Some(USER)).unwrap();
    fs::set_permissions(&foreign, fs::Permissions::from_mode(0o700)).unwrap();
    let before = snapshot(&foreign);
    assert!(fs::read(at.join("123456")).is_err());
    // Into a subdirectory that is there, and into one that would have to be made.
    for name in ["003499", "123456", "123477"] {
        assert!(fs::write(at.join(name), "x").is_err(), "{name}");
    }
    try_everything(&at);
    assert!(fs::remove_dir(&at).is_err());
    assert_eq!(snapshot(&foreign), before);
}

#[test]
fn exchanging_a_hidden_directory_and_a_link_while_others_work_reaches_nothing_outside() {
    if cannot_mount() {
        return;
    }
    let scene = Scene::with(|options| {
        let mut options: StackOptions = options;
        // Names are never believed: each operation opens the hidden directory again.
        options.apply("entry_timeout=0,attr_timeout=0").unwrap();
        options
    });
    let outside = elsewhere(&scene);
    let before = snapshot(&outside);
    let groups = [("one", Layout::D345, "aaa", "file"), ("two", Layout::D34D56, "12", "1234")];
    for (group, layout, place, name) in groups {
        let at = managed(&scene, group, layout);
        let lower = scene.lower(group);
        fs::write(at.join(name), "").unwrap();
        let (hidden, link) = (lower.join(place), lower.join("link"));
        symlink(&outside, &link).unwrap();
        let over = AtomicBool::new(false);
        let (exchanged, worked) = (AtomicU64::new(0), AtomicU64::new(0));
        let deadline = Instant::now() + Duration::from_secs(20);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    renameat_with(CWD, &hidden, CWD, &link, RenameFlags::EXCHANGE).unwrap();
                    exchanged.fetch_add(1, Ordering::Relaxed);
                }
            });
            let workers: Vec<_> = (0..2)
                .map(|worker| {
                    let (at, worked) = (&at, &worked);
                    scope.spawn(move || {
                        // Enough of both, however the threads are scheduled.
                        while worked.load(Ordering::Relaxed) < 2000 && Instant::now() < deadline {
                            for name in [format!("{name}{worker}"), "victim".into(), "1234".into()] {
                                let path = at.join(&name);
                                let _ = fs::write(&path, "x");
                                let _ = fs::create_dir(at.join("empty"));
                                let _ = fs::rename(&path, at.join("moved"));
                                let _ = fs::remove_dir(at.join("empty"));
                                let _ = fs::remove_file(&path);
                                let _ = fs::metadata(at.join("victim"));
                                worked.fetch_add(1, Ordering::Relaxed);
                            }
                            let _ = fs::set_permissions(at, fs::Permissions::from_mode(0o777));
                            let _ = fs::read_dir(at).map(Iterator::count);
                        }
                    })
                })
                .collect();
            workers.into_iter().for_each(|worker| worker.join().unwrap());
            over.store(true, Ordering::Relaxed);
        });
        assert!(exchanged.load(Ordering::Relaxed) > 100, "{exchanged:?} exchanges");
        assert!(worked.load(Ordering::Relaxed) > 1000, "{worked:?} operations");
        assert_eq!(snapshot(&outside), before, "{group}: {exchanged:?} exchanges, {worked:?} operations");
    }
}

/// The upper one of two hidden directories is kept open: also then each lower one is looked at when it is opened, and an
/// upper one that was removed and made again is found.
#[test]
fn what_is_kept_of_an_upper_hidden_directory_says_nothing_about_those_within_it_and_ends_with_it() {
    if cannot_mount() {
        return;
    }
    let scene = Scene::new();
    fs::set_permissions(scene.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let at = managed(&scene, "group", Layout::D34D56);
    let lower = scene.lower("group");
    fs::write(at.join("123456"), "x").unwrap();
    for inner in ["34/57", "34/58"] {
        fs::create_dir(lower.join(inner)).unwrap();
        fs::write(lower.join(inner).join(format!("12{}", inner.replace('/', ""))), "root's").unwrap();
    }
    chown(lower.join("34/58"), Some(USER), Some(USER)).unwrap();
    let eio = Some(Errno::IO.raw_os_error());
    assert_eq!(fs::metadata(at.join("123457")).unwrap_err().raw_os_error(), eio, "it is root's");
    assert_eq!(fs::write(at.join("993457"), "x").unwrap_err().raw_os_error(), eio);
    assert_eq!(fs::read_to_string(at.join("123458")).unwrap(), "root's");
    assert_eq!(sorted(&lower.join("34/57")), ["123457"]);
    fs::remove_dir_all(lower.join("34")).unwrap();
    fs::write(at.join("773456"), "x").unwrap();
    assert_eq!(sorted(&lower.join("34/56")), ["773456"]);
}
