//! Changes of the lower tree that others make while the kernel may believe for minutes what it knows.
//!
//! The threads of a test are others to the mount: it knows its own by their numbers.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::online::convert;
use crate::scene::{Scene, cannot_mount, memory, sorted};
use stackfs::convert::Goal;
use stackfs::{Mount, Operation, StackOptions};
use testkit::LoopImage;

/// What is promised of a change that is reported: a tenth of a second, and time for a busy machine to get to it.
const WITHIN: Duration = Duration::from_secs(5);
/// Longer than what is believed without watching.
const LONG: Duration = Duration::from_millis(1500);

/// Whether `is` becomes true within the time that is promised.
fn soon(is: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < WITHIN {
        if is() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

fn lookups(scene: &Scene) -> u64 {
    let census = scene.mount.as_ref().unwrap().census();
    let count = |of: Operation| census.operations.get(&of).map_or(0, |counted| counted.latency.count());
    count(Operation::Lookup) + count(Operation::Getattr)
}

/// Whether this scene's mount is watched: what was looked at long ago is not asked for again. Changes that other tests make on the
/// same file system may shorten that, so one time in a few is enough.
fn is_watched(scene: &Scene) -> bool {
    fs::write(scene.lower("probe"), "").unwrap();
    assert!(soon(|| scene.at("probe").exists()));
    (0..5).any(|_| {
        std::thread::sleep(Duration::from_millis(200));
        let _ = fs::metadata(scene.at("probe"));
        let before = lookups(scene);
        std::thread::sleep(LONG);
        let _ = fs::metadata(scene.at("probe"));
        lookups(scene) == before
    })
}

fn watched() -> Option<Scene> {
    if cannot_mount() { None } else { only_watched(Scene::new()) }
}

/// On an image of ext4, whose handles are inode numbers; those of memory are not.
fn watched_on_disk() -> Option<(Scene, LoopImage)> {
    if cannot_mount() {
        return None;
    }
    let image = LoopImage::needed("ext4", 64 << 20, &[])?;
    let folder = tempfile::TempDir::new_in(image.path()).expect("a directory for the test");
    Some((only_watched(Scene::in_folder(folder, |options| options))?, image))
}

fn only_watched(scene: Scene) -> Option<Scene> {
    let watched = if is_watched(&scene) { Ok(()) } else { Err("changes below cannot be watched (root)") };
    testkit::need(watched.map_err(str::to_owned))?;
    Some(scene)
}

#[test]
fn every_kind_of_change_below_is_seen_soon_although_nothing_is_asked_for_again() {
    if let Some(scene) = watched() {
        changes_are_seen(&scene);
    }
    if let Some((scene, image)) = watched_on_disk() {
        changes_are_seen(&scene);
        drop((scene, image));
    }
}

fn changes_are_seen(scene: &Scene) {
    let (at, lower) = (scene.at("dir/file"), scene.lower("dir/file"));
    fs::create_dir(scene.lower("dir")).unwrap();
    assert!(soon(|| scene.at("dir").exists()));
    let look = || (fs::metadata(&at).is_ok(), fs::metadata(scene.at("dir")).unwrap().mtime_nsec());
    assert!(!look().0);
    fs::write(&lower, "first").unwrap();
    assert!(soon(|| fs::read_to_string(&at).is_ok_and(|text| text == "first")), "made");
    fs::write(&lower, "a second text").unwrap();
    assert!(soon(|| fs::metadata(&at).unwrap().len() == 13), "written");
    assert_eq!(fs::read_to_string(&at).unwrap(), "a second text");
    fs::set_permissions(&lower, fs::Permissions::from_mode(0o4712)).unwrap();
    assert!(soon(|| fs::metadata(&at).unwrap().mode() & 0o7777 == 0o4712), "its mode");
    let open = File::open(&at).unwrap();
    let time = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1234);
    File::options().write(true).open(&lower).unwrap().set_modified(time).unwrap();
    assert!(soon(|| open.metadata().unwrap().mtime() == 1234), "its time, by a descriptor");
    fs::hard_link(&lower, scene.lower("dir/link")).unwrap();
    assert!(soon(|| fs::metadata(&at).unwrap().nlink() == 2), "its names");
    File::options().write(true).open(&lower).unwrap().set_len(3).unwrap();
    assert!(soon(|| fs::metadata(scene.at("dir/link")).unwrap().len() == 3), "cut");
    fs::rename(&lower, scene.lower("dir/moved")).unwrap();
    assert!(soon(|| !at.exists() && scene.at("dir/moved").exists()), "renamed");
    fs::write(scene.lower("new"), "in its place").unwrap();
    fs::rename(scene.lower("new"), scene.lower("dir/moved")).unwrap();
    assert!(soon(|| fs::read_to_string(scene.at("dir/moved")).is_ok_and(|text| text == "in its place")));
    fs::remove_file(scene.lower("dir/link")).unwrap();
    assert!(soon(|| !scene.at("dir/link").exists()), "removed");
    symlink("nowhere", scene.lower("dir/symlink")).unwrap();
    assert!(soon(|| sorted(&scene.at("dir")) == ["moved", "symlink"]));
    // The directory itself, by another way than its name.
    let before = look().1;
    fs::create_dir(scene.lower("dir/sub")).unwrap();
    assert!(soon(|| look().1 != before), "the directory's time");
    let mode = || fs::metadata(scene.at("dir")).unwrap().mode() & 0o7777;
    for wanted in [0o700, 0o1777] {
        fs::set_permissions(scene.lower("dir"), fs::Permissions::from_mode(wanted)).unwrap();
        assert!(soon(|| mode() == wanted), "the directory's mode");
    }
    fs::set_permissions(scene.lower(""), fs::Permissions::from_mode(0o711)).unwrap();
    assert!(soon(|| fs::metadata(scene.at("")).unwrap().mode() & 0o7777 == 0o711), "the root's mode");
    fs::rename(scene.lower("dir"), scene.lower("elsewhere")).unwrap();
    assert!(soon(|| !scene.at("dir").exists() && scene.at("elsewhere/moved").exists()));
}

#[test]
fn names_and_attributes_outlive_the_time_outs_when_nothing_changes() {
    // On a file system of its own: nobody else changes anything there.
    let Some((scene, image)) = watched_on_disk() else { return };
    fs::create_dir(scene.at("dir")).unwrap();
    let paths: Vec<_> = (0..200).map(|number| scene.at(&format!("dir/{number}"))).collect();
    for path in &paths {
        fs::write(path, "text").unwrap();
    }
    std::thread::sleep(LONG);
    let look = || paths.iter().filter(|path| fs::metadata(path).is_ok_and(|is| is.len() == 4)).count();
    assert_eq!(look(), 200);
    assert!(fs::metadata(scene.at("dir/missing")).is_err());
    let before = lookups(&scene);
    std::thread::sleep(LONG);
    assert_eq!(look(), 200);
    assert!(fs::metadata(scene.at("dir/missing")).is_err());
    assert_eq!(lookups(&scene), before);
    // What the mount itself changes is right at once, and leaves the rest alone.
    File::options().append(true).open(&paths[7]).unwrap().write_all(b"more").unwrap();
    assert_eq!(fs::metadata(&paths[7]).unwrap().len(), 8);
    fs::remove_file(&paths[8]).unwrap();
    fs::rename(&paths[9], scene.at("dir/missing")).unwrap();
    assert_eq!(look(), 197);
    assert!(scene.at("dir/missing").exists() && !paths[8].exists());
    assert!(lookups(&scene) - before < 20, "{} more", lookups(&scene) - before);
    drop((scene, image));
}

#[test]
fn a_second_mount_of_the_tree_is_somebody_else() {
    let Some(scene) = watched() else { return };
    let place = memory();
    let other = Mount::start(StackOptions::new(scene.lower(""), place.path())).unwrap();
    assert!(!scene.at("made").exists());
    fs::write(place.path().join("made"), "by the other").unwrap();
    assert!(soon(|| fs::read_to_string(scene.at("made")).is_ok_and(|text| text == "by the other")));
    fs::write(place.path().join("made"), "written").unwrap();
    assert!(soon(|| fs::metadata(scene.at("made")).unwrap().len() == 7));
    drop(other);
}

#[test]
fn what_is_written_in_mapped_memory_through_the_mount_shows_within_the_time_outs() {
    let Some(scene) = watched() else { return };
    let path = scene.at("mapped");
    fs::write(&path, vec![0; 4096]).unwrap();
    std::thread::sleep(LONG);
    let before = fs::metadata(&path).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    // A child that maps it and keeps it so: its own writes are no changes that are reported.
    let script = "import mmap,sys,time\nf=open(sys.argv[1],'r+b')\nm=mmap.mmap(f.fileno(),0)\nm[0:4]=b'text'\n\
        print('written',flush=True)\nsys.stdin.read()";
    let child = std::process::Command::new("python3")
        .args(["-c", script])
        .arg(&path)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn();
    let Some(mut child) = testkit::need(child.map_err(|_| "no python3".to_owned())) else { return };
    let mut said = [0; 8];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut said).unwrap();
    assert!(soon(|| fs::metadata(&path).unwrap().modified().unwrap() > before.modified().unwrap()));
    drop(child.stdin.take());
    child.wait().unwrap();
}

/// Names, kinds, sizes and modes below a directory.
fn tree(at: &Path) -> String {
    let mut all = String::new();
    let Ok(entries) = fs::read_dir(at) else { return "unreadable".to_owned() };
    let mut names: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.file_name())).collect();
    names.sort();
    for name in names {
        let path = at.join(&name);
        let Ok(is) = fs::symlink_metadata(&path) else { continue };
        let len = if is.is_dir() { 0 } else { is.len() };
        all +=
            &format!("{} {:o} {len} {}\n", path.strip_prefix(at).unwrap().display(), is.mode(), is.nlink());
        if is.is_dir() {
            all += &tree(&path);
        } else if let Ok(text) = fs::read(&path) {
            all += &format!("{:?}\n", String::from_utf8_lossy(&text));
        }
    }
    all
}

/// One change of a small tree, by a number: many of them fail, and hit what others have made.
fn change(root: &Path, dice: u64) {
    let place = |of: u64| match of % 12 {
        at @ 0..4 => root.join(format!("{at}")),
        at @ 4..8 => root.join(format!("d0/{at}")),
        at => root.join(format!("d1/d2/{at}")),
    };
    let (one, other) = (place(dice >> 8), place(dice >> 16));
    let _ = match dice % 9 {
        0 | 1 => fs::write(&one, vec![b'x'; (dice >> 24) as usize % 50]),
        2 => fs::remove_file(&one),
        3 => fs::rename(&one, &other),
        4 => fs::hard_link(&one, &other),
        5 => fs::set_permissions(&one, fs::Permissions::from_mode(0o600 + (dice >> 24) as u32 % 0o77)),
        6 => File::options().append(true).open(&one).and_then(|mut file| file.write_all(b"more")),
        7 => fs::create_dir_all(root.join("d1/d2")).and_then(|()| fs::create_dir_all(root.join("d0"))),
        _ => File::options().write(true).open(&one).and_then(|file| file.set_len((dice >> 24) % 9)),
    };
}

#[test]
fn two_writers_below_and_through_the_mount_leave_one_tree_that_both_see() {
    if let Some(scene) = watched() {
        two_writers(&scene);
    }
    if let Some((scene, image)) = watched_on_disk() {
        two_writers(&scene);
        drop((scene, image));
    }
}

fn two_writers(scene: &Scene) {
    fs::remove_file(scene.lower("probe")).unwrap();
    let mut dice = 7u64;
    for round in 0..60 {
        std::thread::scope(|scope| {
            for (side, root) in [scene.at(""), scene.lower("")].into_iter().enumerate() {
                let mut dice = dice ^ (side as u64) << 40;
                scope.spawn(move || {
                    for _ in 0..60 {
                        dice = next(dice);
                        change(&root, dice);
                        // The kernel is to believe things meanwhile.
                        let _ = fs::metadata(root.join(format!("d0/{}", dice % 8)));
                    }
                });
            }
            let at = scene.at("");
            scope.spawn(move || (0..20).for_each(|_| drop(tree(&at))));
        });
        dice = next(dice);
        let is_seen = soon(|| tree(&scene.at("")) == tree(&scene.lower("")));
        assert!(is_seen, "round {round}: {}\nbelow: {}", tree(&scene.at("")), tree(&scene.lower("")));
    }
}

fn next(dice: u64) -> u64 {
    (dice ^ dice >> 12).wrapping_mul(0x2545_f491_4f6c_dd1d) ^ dice << 25
}

#[test]
fn a_file_system_that_is_mounted_in_the_tree_is_seen_and_so_is_its_end() {
    let Some(scene) = watched() else { return };
    fs::create_dir(scene.lower("place")).unwrap();
    fs::write(scene.lower("place/before"), "").unwrap();
    assert!(scene.at("place/before").exists() && !scene.at("place/within").exists());
    let place = scene.lower("place");
    let mounted = std::process::Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&place).status();
    assert!(mounted.unwrap().success());
    fs::write(place.join("within"), "").unwrap();
    let seen = soon(|| scene.at("place/within").exists() && !scene.at("place/before").exists());
    // Files in it that the mount knows keep it busy.
    let ended = std::process::Command::new("umount").arg("-l").arg(&place).status();
    assert!(ended.unwrap().success());
    assert!(seen, "what was mounted is not seen");
    assert!(soon(|| !scene.at("place/within").exists() && scene.at("place/before").exists()));
}

/// Symptom: after `crumb manage --online`, a file that another program made or removed below was not seen for two minutes.
/// Cause: the kernel still believed names, and missing names, from when the directory was plain; changes in the hidden
/// level are not reported by those names. Fix: a conversion has the kernel drop all names when it begins.
#[test]
fn names_believed_before_a_conversion_do_not_outlive_it_when_others_change_the_hidden_level() {
    let Some(scene) = watched() else { return };
    let online = scene.mount.as_ref().unwrap().online();
    fs::create_dir(scene.at("dir")).unwrap();
    let (missing, removed, replaced) =
        (scene.at("dir/987654"), scene.at("dir/123456"), scene.at("dir/123457"));
    for path in [&removed, &replaced] {
        fs::write(path, "text").unwrap();
    }
    let look = || (missing.exists(), removed.exists(), fs::read_to_string(&replaced).unwrap());
    for _ in 0..2 {
        assert_eq!(look(), (false, true, "text".to_owned()));
    }
    convert(&online, "dir", Goal::Managed(None)).unwrap();
    fs::create_dir(scene.lower("dir/765")).unwrap();
    fs::write(scene.lower("dir/765/987654"), "").unwrap();
    fs::remove_file(scene.lower("dir/345/123456")).unwrap();
    fs::write(scene.lower("new"), "in its place").unwrap();
    fs::rename(scene.lower("new"), scene.lower("dir/345/123457")).unwrap();
    let is_seen = soon(|| look() == (true, false, "in its place".to_owned()));
    assert!(is_seen, "{:?}", look());
    // Back: names are believed for long again, so changes have to be reported again.
    convert(&online, "dir", Goal::Flat).unwrap();
    for _ in 0..2 {
        assert!(!removed.exists() && missing.exists());
    }
    fs::write(scene.lower("dir/123456"), "").unwrap();
    fs::remove_file(scene.lower("dir/987654")).unwrap();
    assert!(soon(|| removed.exists() && !missing.exists()));
}

#[test]
fn the_time_of_status_change_of_what_a_conversion_moved_is_that_of_the_file_below() {
    let Some(scene) = watched() else { return };
    let online = scene.mount.as_ref().unwrap().online();
    fs::create_dir(scene.at("dir")).unwrap();
    let path = scene.at("dir/123456");
    // Made below: no program has it open through the mount, so its attributes are believed for long.
    fs::write(scene.lower("dir/123456"), "text").unwrap();
    assert!(soon(|| fs::metadata(&path).is_ok_and(|is| is.len() == 4)));
    let changed = |path: &Path| fs::metadata(path).map(|is| (is.ctime(), is.ctime_nsec())).unwrap();
    let before = changed(&path);
    convert(&online, "dir", Goal::Managed(None)).unwrap();
    let below = changed(&scene.lower("dir/345/123456"));
    assert!(below > before);
    assert!(soon(|| changed(&path) == below));
}

/// Symptom: after `chmod u-s` of a managed directory below, or `chmod u+s` of a plain one, names that had been looked up before were
/// still found for up to two minutes, and files were made beside what the directory shows. Cause: they are names of what the directory
/// was. Fix: when a directory has become another kind, the kernel drops all names.
#[test]
fn names_of_a_directory_that_becomes_managed_or_plain_below_are_dropped() {
    let Some((scene, image)) = watched_on_disk() else { return };
    let group = scene.managed("group");
    let (shown, hidden) = (scene.at("group/123456"), scene.at("group/345/123456"));
    fs::write(&shown, "text").unwrap();
    let bits = |mode| fs::set_permissions(scene.lower("group"), fs::Permissions::from_mode(mode)).unwrap();
    for _ in 0..3 {
        assert!(soon(|| fs::metadata(&shown).is_ok() && fs::metadata(&hidden).is_err()), "managed");
        bits(0o755);
        assert!(soon(|| fs::metadata(&shown).is_err() && fs::metadata(&hidden).is_ok()), "plain");
        assert!(fs::metadata(group.join("345")).is_ok());
        bits(0o4755);
        assert!(soon(|| fs::metadata(group.join("345")).is_err() && fs::metadata(&hidden).is_err()));
    }
    drop((scene, image));
}
