//! Files and directories that the kernel opens by itself (`no-open`, and directories of `exclusive`): what is saved by
//! it, and that programs notice nothing.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use crate::scene::{Scene, cannot_mount, names, sorted};
use rustix::fs::{AtFlags, CWD, FallocateFlags, IFlags, StatxFlags};
use stackfs::{Operation, StackOptions};

fn unopened() -> Scene {
    Scene::with(|options| StackOptions { no_open: true, ..options })
}

fn exclusive() -> Scene {
    Scene::with(|options| StackOptions { no_open: true, ..options.exclusive() })
}

/// Requests that the mount got by type, without those for which no program waits.
fn requests(scene: &Scene) -> BTreeMap<Operation, u64> {
    let census = scene.mount.as_ref().unwrap().census();
    let waited =
        |of: &Operation| !matches!(of, Operation::Forget | Operation::Release | Operation::Releasedir);
    let counted = census.operations.into_iter().filter(|(of, _)| waited(of));
    counted.map(|(of, counted)| (of, counted.latency.count())).collect()
}

/// Names and sizes of all that is below, as find(1) looks at them.
fn walk(at: &Path) -> u64 {
    let mut bytes = 0;
    for entry in fs::read_dir(at).unwrap() {
        let path = entry.unwrap().path();
        let attributes = fs::symlink_metadata(&path).unwrap();
        bytes += if attributes.is_dir() { walk(&path) } else { attributes.len() };
    }
    bytes
}

#[test]
fn what_was_read_is_opened_read_and_closed_again_without_a_request() {
    if cannot_mount() {
        return;
    }
    let scene = exclusive();
    let group = scene.managed("group");
    let mut paths = Vec::new();
    fs::create_dir(scene.at("plain")).unwrap();
    for number in 0..50 {
        for directory in [&group, &scene.at("plain")] {
            paths.push(directory.join(format!("1{number}")));
            fs::write(paths.last().unwrap(), format!("text {number}")).unwrap();
        }
    }
    let read = || paths.iter().map(|path| fs::read(path).unwrap().len()).sum::<usize>();
    let bytes = read();
    // What was written is asked for once more, with its new time of modification.
    assert_eq!(read(), bytes);
    let before = requests(&scene);
    for _ in 0..3 {
        assert_eq!(read(), bytes);
    }
    assert_eq!(requests(&scene), before);
    assert!(!before.contains_key(&Operation::Open), "{before:?}");
}

#[test]
fn a_tree_that_was_walked_is_walked_again_without_a_request() {
    if cannot_mount() {
        return;
    }
    let scene = exclusive();
    fs::create_dir(scene.lower("managed")).unwrap();
    fs::set_permissions(scene.lower("managed"), fs::Permissions::from_mode(0o4755)).unwrap();
    for directory in ["a", "a/b", "c"] {
        fs::create_dir(scene.lower(directory)).unwrap();
        for number in 0..700 {
            fs::write(scene.lower(directory).join(format!("file {number}")), "some text").unwrap();
        }
    }
    for number in 0..300 {
        fs::write(scene.at("managed").join(number.to_string()), "text").unwrap();
    }
    let bytes = 3 * 700 * 9 + 300 * 4;
    assert_eq!(walk(&scene.at("")), bytes);
    let cold = requests(&scene);
    // Every name came with its attributes: one batch holds many.
    assert!(cold[&Operation::Lookup] < 400, "{cold:?} for 2,400 files, of which 300 were made");
    // Reading a directory changed its time of access, which is asked for once.
    assert_eq!(walk(&scene.at("")), bytes);
    let warm = requests(&scene);
    assert_eq!(warm[&Operation::Readdir], cold[&Operation::Readdir]);
    assert!(warm.values().sum::<u64>() - cold.values().sum::<u64>() <= 5, "{cold:?}, then {warm:?}");
    for _ in 0..3 {
        assert_eq!(walk(&scene.at("")), bytes);
    }
    assert_eq!(requests(&scene), warm);
    // And a change is seen at once.
    fs::write(scene.at("a/new"), "and this").unwrap();
    fs::remove_file(scene.at("c/file 7")).unwrap();
    assert_eq!(walk(&scene.at("")), bytes + 8 - 9);
}

#[test]
fn a_listing_that_was_left_never_hides_what_was_made_since() {
    if cannot_mount() {
        return;
    }
    let scene = exclusive();
    let group = scene.managed("group");
    fs::create_dir(scene.at("plain")).unwrap();
    for directory in [group, scene.at("plain")] {
        for number in 0..3000 {
            fs::write(directory.join(format!("{number}")), "").unwrap();
        }
        for round in 0..20 {
            // Left in the middle, where the daemon has read further than it passed on.
            assert_eq!(fs::read_dir(&directory).unwrap().take(100).count(), 100);
            for number in 0..20 {
                fs::write(directory.join(format!("{}", 10_000 + round * 20 + number)), "").unwrap();
            }
            let seen = sorted(&directory);
            assert_eq!(seen.len(), 3000 + (round + 1) * 20, "round {round}");
        }
        // Several readers in turns, and removals as rm does them.
        let (mut one, mut other) = (fs::read_dir(&directory).unwrap(), fs::read_dir(&directory).unwrap());
        for _ in 0..1000 {
            assert!(one.next().is_some() && other.next().is_some());
        }
        let left: Vec<_> = one.chain(other).map(|entry| entry.unwrap().path()).collect();
        assert_eq!(left.len(), 2 * 2400);
        fs::remove_dir_all(&directory).unwrap();
    }
    assert_eq!(names(&scene.at("")), Vec::<String>::new());
}

#[test]
fn a_file_without_a_name_stays_what_it_was_for_who_has_it_open() {
    if cannot_mount() {
        return;
    }
    for scene in [unopened(), exclusive()] {
        for (directory, name) in [(scene.managed("group"), "12345"), (scene.at(""), "plain")] {
            for how in ["removed", "replaced", "one of two names removed"] {
                let path = directory.join(name);
                let mut file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
                file.write_all(b"first").unwrap();
                let writer = File::options().append(true).open(&path).unwrap();
                let inode = file.metadata().unwrap().ino();
                match how {
                    "removed" => fs::remove_file(&path).unwrap(),
                    "replaced" => {
                        fs::write(directory.join("new"), "another file").unwrap();
                        fs::rename(directory.join("new"), &path).unwrap();
                    }
                    _ => {
                        fs::hard_link(&path, directory.join("second")).unwrap();
                        fs::remove_file(&path).unwrap();
                        fs::remove_file(directory.join("second")).unwrap();
                    }
                }
                // Others come and go, so that no descriptor is there by chance.
                for number in 0..300 {
                    let other = directory.join(format!("7{number}"));
                    fs::write(&other, "other").unwrap();
                    assert_eq!(fs::read(&other).unwrap(), b"other");
                    fs::remove_file(&other).unwrap();
                }
                (&writer).write_all(b" and second").unwrap();
                file.write_all_at(b"F", 0).unwrap();
                file.sync_all().unwrap();
                let mut text = String::new();
                file.seek(SeekFrom::Start(0)).unwrap();
                file.read_to_string(&mut text).unwrap();
                assert_eq!(text, "First and second", "{how}");
                file.set_len(5).unwrap();
                let attributes = file.metadata().unwrap();
                assert_eq!((attributes.len(), attributes.ino()), (5, inode), "{how}");
                if how == "replaced" {
                    assert_eq!(fs::read_to_string(&path).unwrap(), "another file");
                    fs::remove_file(&path).unwrap();
                }
            }
        }
    }
}

#[test]
fn files_that_are_removed_take_no_descriptors_with_them() {
    if cannot_mount() {
        return;
    }
    let scene = unopened();
    let open = || fs::read_dir("/proc/self/fd").unwrap().filter(|entry| is_below(entry, &scene)).count();
    for number in 0..2000 {
        let path = scene.at(&format!("{number}"));
        fs::write(&path, "text").unwrap();
        fs::hard_link(&path, scene.at("link")).unwrap();
        assert_eq!(fs::read(scene.at("link")).unwrap(), b"text");
        fs::remove_file(&path).unwrap();
        fs::remove_file(scene.at("link")).unwrap();
    }
    assert!(open() < 600, "{} descriptors of files that are gone", open());
}

/// Whether a descriptor of this process is of something in the scene's lower tree.
fn is_below(entry: &std::io::Result<fs::DirEntry>, scene: &Scene) -> bool {
    let target = entry.as_ref().ok().and_then(|entry| fs::read_link(entry.path()).ok());
    target.is_some_and(|target| target.starts_with(scene.lower("")))
}

#[test]
fn writing_and_cutting_keep_their_meaning_without_an_open_file_below() {
    if cannot_mount() {
        return;
    }
    let scene = unopened();
    let (path, lower) = (scene.at("file"), scene.lower("file"));
    fs::write(&path, "a long first text").unwrap();
    fs::write(&path, "short").unwrap();
    assert_eq!(fs::read_to_string(&lower).unwrap(), "short");
    // Of two that append nothing is lost, although the kernel does not know that the file has grown.
    let mut appending = File::options().append(true).open(&path).unwrap();
    appending.write_all(b", one").unwrap();
    File::options().append(true).open(&lower).unwrap().write_all(b", two").unwrap();
    appending.write_all(b", three").unwrap();
    assert_eq!(fs::read_to_string(&lower).unwrap(), "short, one, two, three");
    // Permissions count when a file is opened and not afterwards.
    let unwritable = scene.at("unwritable");
    let mut made = File::options().write(true).create_new(true).open(&unwritable).unwrap();
    fs::set_permissions(&unwritable, fs::Permissions::from_mode(0o0)).unwrap();
    made.write_all(b"still written").unwrap();
    assert_eq!(fs::read_to_string(scene.lower("unwritable")).unwrap(), "still written");
    // Only to be appended to: no other way of opening it is allowed.
    let log = File::create(scene.lower("log")).unwrap();
    let flags = rustix::fs::ioctl_getflags(&log);
    if let Ok(flags) = flags
        && rustix::fs::ioctl_setflags(&log, flags | IFlags::APPEND).is_ok()
    {
        let mut appending = File::options().append(true).open(scene.at("log")).unwrap();
        appending.write_all(b"line\n").unwrap();
        appending.write_all(b"line\n").unwrap();
        assert_eq!(fs::read_to_string(scene.lower("log")).unwrap(), "line\nline\n");
        rustix::fs::ioctl_setflags(&log, flags).unwrap();
    }
}

#[test]
fn a_program_just_written_runs_and_set_user_id_bits_go_when_others_write() {
    if cannot_mount() {
        return;
    }
    let scene = unopened();
    let program = scene.at("program");
    fs::copy("/bin/true", &program).unwrap();
    assert!(std::process::Command::new(&program).status().unwrap().success());
    fs::set_permissions(scene.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4777)).unwrap();
    let status = {
        use std::os::unix::process::CommandExt as _;
        let script = format!("printf x >> {}", program.display());
        std::process::Command::new("/bin/sh").args(["-c", &script]).uid(12_345).gid(23_456).status()
    };
    assert!(status.unwrap().success());
    assert_eq!(fs::metadata(scene.lower("program")).unwrap().mode() & 0o7777, 0o777);
}

#[test]
fn set_user_id_bits_go_when_others_change_contents_without_a_write() {
    if cannot_mount() {
        return;
    }
    for scene in [unopened(), Scene::new()] {
        let copied = |scene: &Scene| {
            let census = scene.mount.as_ref().unwrap().census();
            let counted = census.operations.get(&Operation::CopyFileRange);
            counted.map_or(0, |counted| counted.latency.count())
        };
        fs::set_permissions(scene.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let program = scene.at("program");
        fs::write(scene.at("source"), [1; 4096]).unwrap();
        let ways: [fn(&File, &Path); 2] = [
            |file, _| rustix::fs::fallocate(file, FallocateFlags::empty(), 0, 4096).unwrap(),
            |file, source| {
                let source = File::open(source).unwrap();
                assert!(rustix::fs::copy_file_range(source, None, file, None, 4096).unwrap() > 0);
            },
        ];
        for change in ways {
            fs::write(&program, "x").unwrap();
            fs::set_permissions(&program, fs::Permissions::from_mode(0o6777)).unwrap();
            let (program, source) = (program.clone(), scene.at("source"));
            let by_another = std::thread::spawn(move || {
                let (user, group) = (rustix::fs::Uid::from_raw(12_345), rustix::fs::Gid::from_raw(23_456));
                rustix::thread::set_thread_res_gid(group, group, group).unwrap();
                rustix::thread::set_thread_res_uid(user, user, user).unwrap();
                change(&File::options().write(true).open(program).unwrap(), &source);
            });
            by_another.join().unwrap();
            assert_eq!(fs::metadata(scene.lower("program")).unwrap().mode() & 0o7777, 0o777);
            // Asked for the mode alone, the kernel answers from what it knows of the mode.
            let mode = StatxFlags::MODE;
            let seen = rustix::fs::statx(CWD, scene.at("program"), AtFlags::empty(), mode).unwrap();
            assert_eq!(seen.stx_mode & 0o7777, 0o777, "what the mount shows");
        }
        assert!(copied(&scene) > 0, "the kernel copied by reading and writing");
    }
}
