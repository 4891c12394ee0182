//! What passes through a mount: owners, bits, attributes, holes, locks, open files without a name.

use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, chown};
use std::process::Command;

use crate::scene::{Scene, cannot_mount};
use rustix::fs::{FallocateFlags, FlockOperation, IFlags, XattrFlags};
use rustix::io::Errno;
use stackfs::{Operation, StackOptions};
use testkit::need::{HostFeature, host};

/// Both ways of reading and writing.
fn scenes() -> impl Iterator<Item = (bool, Scene)> {
    [true, false]
        .into_iter()
        .map(|passthrough| (passthrough, Scene::with(|options| StackOptions { passthrough, ..options })))
}

/// The test is then listed as skipped.
fn lacks_attributes(missing: &str) {
    let _ = host::<()>(HostFeature::Attributes, Err(missing));
}

/// Runs a shell command as an ordinary user in a directory; what it wrote, and whether it succeeded.
fn as_user(directory: &std::path::Path, script: &str) -> (String, bool) {
    use std::os::unix::process::CommandExt as _;
    let output = Command::new("/bin/sh")
        .args(["-c", script])
        .current_dir(directory)
        .uid(12_345)
        .gid(23_456)
        .output()
        .expect("a shell");
    let text = [output.stdout, output.stderr].concat();
    (String::from_utf8_lossy(&text).into_owned(), output.status.success())
}

#[test]
fn what_a_user_makes_is_his_with_his_umask_and_the_directorys_group_where_it_says_so() {
    if cannot_mount() {
        return;
    }
    let scene = Scene::new();
    fs::set_permissions(scene.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    for directory in [scene.managed("group"), scene.at("plain")] {
        let _ = fs::create_dir(&directory);
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).unwrap();
        let script = "umask 027; echo x > 123; mkdir sub; ln -s 123 link; mkfifo 77; chmod 4751 123";
        let (output, fine) = as_user(&directory, script);
        assert!(fine, "{output}");
        for (name, mode) in [("123", 0o4751), ("sub", 0o750), ("link", 0o777), ("77", 0o640)] {
            let of = fs::symlink_metadata(directory.join(name)).unwrap();
            assert_eq!((of.uid(), of.gid(), of.mode() & 0o7777), (12_345, 23_456, mode), "{name}");
        }
        chown(&directory, None, Some(34_567)).unwrap();
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o2777)).unwrap();
        let (output, fine) = as_user(&directory, "echo x > 98765; echo y > 124");
        assert!(fine, "{output}");
        for name in ["98765", "124"] {
            assert_eq!(fs::metadata(directory.join(name)).unwrap().gid(), 34_567, "{name}");
        }
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
        let (output, fine) = as_user(&directory, "echo x > 5");
        assert!(!fine && output.contains("ermission denied"), "{output}");
        let (output, fine) = as_user(&directory, "rm -f 123");
        assert!(!fine && output.contains("ermission denied"), "{output}");
    }
}

#[test]
fn writing_clears_set_user_id_bits_unless_root_writes_or_the_bits_stay_below_too() {
    if cannot_mount() {
        return;
    }
    for (passthrough, scene) in scenes() {
        fs::set_permissions(scene.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let group = scene.managed("group");
        for script in ["echo y >> 1", "dd if=/dev/zero of=1 bs=1 count=1 conv=notrunc", ": > 1"] {
            fs::write(group.join("1"), "program").unwrap();
            fs::set_permissions(group.join("1"), fs::Permissions::from_mode(0o6777)).unwrap();
            let (output, fine) = as_user(&group, script);
            assert!(fine, "{output}");
            let mode = fs::metadata(group.join("1")).unwrap().mode() & 0o7777;
            let below = fs::metadata(scene.lower("group/000/1")).unwrap().mode() & 0o7777;
            assert_eq!((mode, below), (0o777, 0o777), "pass-through {passthrough}, {script}");
        }
    }
}

#[test]
fn two_clients_that_append_lose_nothing() {
    if cannot_mount() {
        return;
    }
    for (passthrough, scene) in scenes() {
        let path = scene.managed("group").join("log");
        fs::write(&path, "").unwrap();
        std::thread::scope(|scope| {
            for letter in *b"ab" {
                let path = &path;
                scope.spawn(move || {
                    let mut file = File::options().append(true).open(path).unwrap();
                    for _ in 0..500 {
                        file.write_all(&[letter; 100]).unwrap();
                    }
                });
            }
        });
        let text = fs::read(&path).unwrap();
        assert_eq!(text.len(), 100_000, "pass-through {passthrough}");
        for letter in *b"ab" {
            assert_eq!(text.iter().filter(|byte| **byte == letter).count(), 50_000);
        }
        assert!(text.chunks(100).all(|chunk| chunk.iter().all(|byte| *byte == chunk[0])), "torn");
    }
}

#[test]
fn a_file_removed_or_replaced_while_open_is_still_the_same_file() {
    if cannot_mount() {
        return;
    }
    for (passthrough, scene) in scenes() {
        let group = scene.managed("group");
        let path = group.join("123");
        fs::write(&path, "old").unwrap();
        let mut open = File::options().read(true).write(true).open(&path).unwrap();
        fs::write(group.join("new"), "replacement").unwrap();
        fs::rename(group.join("new"), &path).unwrap();
        assert_eq!(open.metadata().unwrap().nlink(), 0, "pass-through {passthrough}");
        let mut text = String::new();
        open.read_to_string(&mut text).unwrap();
        assert_eq!(text, "old");
        open.set_len(1).unwrap();
        open.write_all_at(b"longer", 0).unwrap();
        open.set_permissions(fs::Permissions::from_mode(0o600)).unwrap();
        let of = open.metadata().unwrap();
        assert_eq!((of.len(), of.mode() & 0o777), (6, 0o600));
        assert_eq!(fs::read_to_string(&path).unwrap(), "replacement");
        fs::create_dir(group.join("sub")).unwrap();
        fs::write(group.join("sub/1"), "one").unwrap();
        let mut inner = File::open(group.join("sub/1")).unwrap();
        fs::rename(group.join("sub"), scene.at("moved")).unwrap();
        let mut text = String::new();
        inner.read_to_string(&mut text).unwrap();
        assert_eq!((text.as_str(), inner.metadata().unwrap().nlink()), ("one", 1));
    }
}

/// The name that a file is known by goes to something that cannot be opened as it can.
#[test]
fn a_file_whose_older_name_went_to_a_fifo_or_a_program_is_cut_and_written_by_its_other_name() {
    if cannot_mount() {
        return;
    }
    for (passthrough, scene) in scenes() {
        let directory = scene.managed("taken");
        let program = directory.join("program");
        fs::copy("/bin/sleep", &program).unwrap();
        let quiet = || std::process::Stdio::null();
        let mut running = Command::new(&program)
            .arg("60")
            .stdin(quiet())
            .stdout(quiet())
            .stderr(quiet())
            .spawn()
            .expect("it runs");
        let fifo = directory.join("fifo");
        assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo").success());
        for stranger in [fifo, program] {
            let [older, other] = ["older", "other"].map(|name| directory.join(name));
            let when = format!("{}, pass-through {passthrough}", stranger.display());
            // The other name first: a file is known by what it was called last.
            fs::write(&other, b"as it was").unwrap();
            fs::hard_link(&other, &older).unwrap();
            fs::rename(&stranger, &older).unwrap();
            // Before anything else: whatever looks at the file without opening it finds its other name.
            let mut file = fs::OpenOptions::new().append(true).open(&other).expect(&when);
            file.set_len(5).and_then(|()| file.write_all(b" is")).expect(&when);
            assert_eq!(fs::read(&other).expect(&when), b"as it is", "{when}");
            fs::rename(&older, &stranger).unwrap();
        }
        let refused = fs::OpenOptions::new().write(true).open(directory.join("program"));
        assert_eq!(refused.map_err(|error| error.kind()).err(), Some(std::io::ErrorKind::ExecutableFileBusy));
        running.kill().and_then(|()| running.wait()).expect("it is ours");
    }
}

/// Symptom: fstat(2) of an open FIFO failed with ESTALE once it was removed, though it had another name. Cause: that name was taken to
/// be known, which it is not after the kernel has forgotten the inode, nor when it was made below.
#[test]
fn an_open_fifo_that_is_removed_keeps_its_attributes_when_its_other_name_is_not_known() {
    if cannot_mount() {
        return;
    }
    let scene = Scene::new();
    let (fifo, lower) = (scene.at("fifo"), scene.lower("fifo"));
    assert!(Command::new("mkfifo").arg(&lower).status().expect("mkfifo").success());
    fs::hard_link(&lower, scene.lower("other")).unwrap();
    let open = File::options().read(true).write(true).open(&fifo).unwrap();
    fs::remove_file(&fifo).unwrap();
    assert_eq!(open.metadata().unwrap().nlink(), 1);
    fs::remove_file(scene.lower("other")).unwrap();
    fs::set_permissions(format!("/proc/self/fd/{}", open.as_raw_fd()), fs::Permissions::from_mode(0o640))
        .unwrap();
    assert_eq!(open.metadata().unwrap().mode() & 0o777, 0o640);
}

#[test]
fn holes_are_made_found_and_copied() {
    if cannot_mount() {
        return;
    }
    for (passthrough, scene) in scenes() {
        let group = scene.managed("group");
        let file =
            File::options().read(true).write(true).create(true).truncate(true).open(group.join("1")).unwrap();
        file.write_all_at(b"behind a hole", 1 << 20).unwrap();
        assert_eq!(
            rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0)),
            Ok(1 << 20),
            "pass-through {passthrough}"
        );
        assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Hole(0)), Ok(0));
        rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, 2 << 20).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 2 << 20);
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        rustix::fs::fallocate(&file, punch, 1 << 20, 1 << 20).unwrap();
        let mut back = [1u8; 13];
        file.read_exact_at(&mut back, 1 << 20).unwrap();
        assert_eq!(back, [0; 13], "pass-through {passthrough}");
        let target = File::create(group.join("2")).unwrap();
        file.write_all_at(b"copied", 0).unwrap();
        let (mut from, mut to) = (0, 10);
        let copied = rustix::fs::copy_file_range(&file, Some(&mut from), &target, Some(&mut to), 6).unwrap();
        assert_eq!(copied, 6);
        assert_eq!(fs::read(group.join("2")).unwrap(), b"\0\0\0\0\0\0\0\0\0\0copied");
        file.sync_all().unwrap();
        file.sync_data().unwrap();
        File::open(&group).unwrap().sync_all().unwrap();
    }
}

#[test]
fn locks_exclude_and_times_and_sizes_are_kept() {
    if cannot_mount() {
        return;
    }
    let scene = Scene::new();
    let group = scene.managed("group");
    fs::write(group.join("1"), "x").unwrap();
    let (one, two) = (File::open(group.join("1")).unwrap(), File::open(group.join("1")).unwrap());
    rustix::fs::flock(&one, FlockOperation::LockExclusive).unwrap();
    assert_eq!(rustix::fs::flock(&two, FlockOperation::NonBlockingLockExclusive), Err(Errno::AGAIN));
    drop(one);
    rustix::fs::flock(&two, FlockOperation::NonBlockingLockExclusive).unwrap();
    let long_ago = std::time::UNIX_EPOCH - std::time::Duration::new(5, 250_000_000);
    let times = fs::FileTimes::new().set_modified(long_ago);
    let file = File::options().write(true).open(group.join("1")).unwrap();
    file.set_times(times).unwrap();
    assert_eq!(fs::metadata(group.join("1")).unwrap().modified().unwrap(), long_ago);
}

#[test]
fn every_change_moves_the_time_of_a_managed_directory_also_within_a_tick_and_after_it_was_set() {
    if cannot_mount() {
        return;
    }
    let scene = Scene::new();
    let group = scene.managed("group");
    let modified = || fs::metadata(&group).unwrap().modified().unwrap();
    // The clock of file systems: the time of the last tick.
    let tick = || {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
        std::time::UNIX_EPOCH + std::time::Duration::new(now.tv_sec as u64, now.tv_nsec as u32)
    };
    let directory = File::open(&group).unwrap();
    let long_ago = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
    for at in 0..500 {
        let (made, second) = (group.join(format!("{at}")), group.join(format!("{at}-2")));
        let before = tick();
        fs::write(&made, "").unwrap();
        assert!(modified() >= before, "entry {at} was made");
        // Within the same tick, most of the times.
        directory.set_times(fs::FileTimes::new().set_modified(long_ago)).unwrap();
        assert_eq!(modified(), long_ago);
        let before = tick();
        fs::rename(&made, &second).unwrap();
        assert!(modified() >= before, "entry {at} was renamed after the time was set");
        directory.set_times(fs::FileTimes::new().set_modified(long_ago)).unwrap();
        let before = tick();
        fs::remove_file(&second).unwrap();
        assert!(modified() >= before, "entry {at} was removed after the time was set");
        // By another program, below: an older time, and one to come.
        let below = File::open(scene.lower("group")).unwrap();
        let to_come = std::time::SystemTime::now() + std::time::Duration::from_secs(1_000_000);
        for other in [long_ago, to_come] {
            fs::write(&made, "").unwrap();
            below.set_times(fs::FileTimes::new().set_modified(other)).unwrap();
            let before = tick();
            fs::remove_file(&made).unwrap();
            let now = fs::metadata(scene.lower("group")).unwrap().modified().unwrap();
            assert!(now >= before && now < to_come, "entry {at} was removed after another set the time");
        }
    }
}

#[test]
fn extended_attributes_and_lists_pass_through_but_ours() {
    if cannot_mount() {
        return;
    }
    let scene = Scene::new();
    let group = scene.managed("group");
    fs::write(group.join("1"), "x").unwrap();
    for path in [group.clone(), group.join("1")] {
        match rustix::fs::setxattr(&path, "user.note", b"text", XattrFlags::CREATE) {
            // A file system below without such attributes says so through the mount.
            Err(Errno::OPNOTSUPP) => return,
            other => other.unwrap(),
        }
        let again = rustix::fs::setxattr(&path, "user.note", b"text", XattrFlags::CREATE);
        assert_eq!(again, Err(Errno::EXIST));
        let mut value = [0u8; 3];
        assert_eq!(rustix::fs::getxattr(&path, "user.note", &mut value), Err(Errno::RANGE));
        let mut value = [0u8; 16];
        assert_eq!(rustix::fs::getxattr(&path, "user.note", &mut value), Ok(4));
        rustix::fs::removexattr(&path, "user.note").unwrap();
        assert_eq!(rustix::fs::getxattr(&path, "user.note", &mut value), Err(Errno::NODATA));
        let ours = rustix::fs::setxattr(&path, "user.crumb.layout", b"hash:2", XattrFlags::empty());
        assert_eq!(ours, Err(Errno::PERM));
        assert_eq!(rustix::fs::getxattr(&path, "user.crumb.layout", &mut value), Err(Errno::NODATA));
    }
}

#[test]
fn names_of_trusted_attributes_are_shown_to_root_alone() {
    if cannot_mount() {
        return;
    }
    let scene = Scene::new();
    fs::set_permissions(scene.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let file = scene.at("file");
    fs::write(&file, "x").unwrap();
    for name in ["trusted.secret", "user.note"] {
        match rustix::fs::setxattr(&file, name, b"text", XattrFlags::empty()) {
            Err(Errno::OPNOTSUPP) => return,
            other => other.unwrap(),
        }
    }
    let names = |file: &std::path::Path| {
        let mut names = vec![0u8; 4096];
        let len = rustix::fs::listxattr(file, &mut names[..]).unwrap();
        String::from_utf8(names[..len].to_vec()).unwrap()
    };
    assert!(names(&file).contains("trusted.secret") && names(&file).contains("user.note"));
    let by_another = std::thread::spawn(move || {
        let user = rustix::fs::Uid::from_raw(12_345);
        rustix::thread::set_thread_res_uid(user, user, user).unwrap();
        names(&file)
    });
    assert_eq!(by_another.join().unwrap(), "user.note\0");
}

/// Copies lost all values: the question for a value's length, which programs ask first, was answered with 0.
#[test]
fn the_length_of_an_attribute_can_be_asked_for_and_copies_have_its_value() {
    if cannot_mount() {
        return;
    }
    let scene = Scene::new();
    let group = scene.managed("group");
    // CAP_NET_RAW, permitted and effective (struct vfs_cap_data, revision 2).
    let words = [0x0200_0001_u32, 1 << 13, 0, 0, 0];
    let rights: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    fs::write(group.join("1"), "program").unwrap();
    fs::create_dir(group.join("2")).unwrap();
    let none = XattrFlags::empty();
    let values =
        [("1", "user.note", &b"text"[..]), ("1", "security.capability", &rights), ("2", "user.note", b"t")];
    for (name, attribute, value) in values {
        if rustix::fs::setxattr(group.join(name), attribute, value, none) == Err(Errno::OPNOTSUPP) {
            return lacks_attributes("no extended attributes on the file system below /dev/shm");
        }
    }
    // By its name, and by an open file's descriptor.
    for open in [false, true] {
        let _held = open.then(|| File::open(group.join("1")).unwrap());
        for (name, attribute, value) in values {
            let path = group.join(name);
            assert_eq!(rustix::fs::getxattr_query(&path, attribute), Ok(value.len()), "{name} {attribute}");
            assert_eq!(rustix::fs::getxattr_query(&path, "user.other"), Err(Errno::NODATA));
        }
    }
    let copy = scene.folder.path().join("copy");
    let copied = Command::new("cp").arg("-a").arg(&group).arg(&copy).output().unwrap();
    assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
    for (name, attribute, value) in values {
        let mut found = [0; 64];
        let len = rustix::fs::getxattr(copy.join(name), attribute, &mut found).unwrap();
        assert_eq!(&found[..len], value, "{name} {attribute}");
    }
}

#[test]
fn without_extended_attributes_there_are_none_and_writing_still_takes_a_programs_rights_away() {
    if cannot_mount() {
        return;
    }
    // CAP_NET_RAW, permitted and effective (struct vfs_cap_data, revision 2).
    let words = [0x0200_0001_u32, 1 << 13, 0, 0, 0];
    let rights: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    for (extended, passthrough) in [(true, true), (false, true), (true, false), (false, false)] {
        let scene = Scene::with(|options| StackOptions { extended, passthrough, ..options });
        let (below, at) = (scene.lower("program"), scene.at("program"));
        fs::write(&below, "first").unwrap();
        let none = XattrFlags::empty();
        if rustix::fs::setxattr(&below, "security.capability", &rights, none) == Err(Errno::OPNOTSUPP) {
            return lacks_attributes("no security attributes on the file system below /dev/shm");
        }
        let mut value = [0; 64];
        if !extended {
            assert_eq!(rustix::fs::getxattr(&at, "security.capability", &mut value), Err(Errno::OPNOTSUPP));
            assert_eq!(rustix::fs::setxattr(&at, "user.note", b"text", none), Err(Errno::OPNOTSUPP));
        }
        fs::write(&at, "second").unwrap();
        let left = rustix::fs::getxattr(&below, "security.capability", &mut value);
        assert_eq!(left, Err(Errno::NODATA), "attributes {extended}, passed through {passthrough}");
    }
}

/// A default list with owner rwx, user 12345 rwx, group r-x, mask rwx, others nothing, as Linux stores it.
fn default_list() -> Vec<u8> {
    let mut list = 2u32.to_le_bytes().to_vec();
    let none = u32::MAX;
    for (tag, rights, id) in
        [(0x01u16, 7u16, none), (0x02, 7, 12_345), (0x04, 5, none), (0x10, 7, none), (0x20, 0, none)]
    {
        list.extend(tag.to_le_bytes());
        list.extend(rights.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    list
}

#[test]
fn what_is_made_in_a_managed_directory_inherits_its_default_list() {
    if cannot_mount() {
        return;
    }
    let scene = Scene::new();
    let (group, plain) = (scene.managed("group"), scene.at("plain"));
    fs::create_dir(&plain).unwrap();
    fs::write(group.join("12"), "its hidden directory is there before the list").unwrap();
    for directory in [&group, &plain] {
        rustix::fs::setxattr(directory, "system.posix_acl_default", &default_list(), XattrFlags::empty())
            .unwrap();
        for name in ["1", "123456"] {
            fs::write(directory.join(name), "").unwrap();
        }
    }
    for name in ["1", "123456"] {
        let list = |directory: &std::path::Path| {
            let mut value = [0u8; 256];
            let len = rustix::fs::getxattr(directory.join(name), "system.posix_acl_access", &mut value);
            len.map(|len| value[..len].to_vec())
        };
        assert!(list(&plain).is_ok(), "inherited at all");
        assert_eq!(list(&group), list(&plain), "{name}");
        let mode = |directory: &std::path::Path| fs::metadata(directory.join(name)).unwrap().mode();
        assert_eq!(mode(&group), mode(&plain));
    }
}

#[test]
fn large_files_come_back_as_they_went_by_all_ways_of_reading() {
    if cannot_mount() {
        return;
    }
    for (passthrough, scene) in scenes() {
        let path = scene.managed("group").join("5");
        let bytes: Vec<u8> =
            (0..5_000_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        fs::write(&path, &bytes).unwrap();
        assert!(fs::read(&path).unwrap() == bytes, "pass-through {passthrough}");
        assert!(fs::read(scene.lower("group/000/5")).unwrap() == bytes);
        let mut file = File::open(&path).unwrap();
        file.seek(SeekFrom::Start(4_999_990)).unwrap();
        let mut end = Vec::new();
        file.read_to_end(&mut end).unwrap();
        assert_eq!(end, bytes[4_999_990..]);
        assert_eq!(scene.mount.as_ref().unwrap().census().passed_through, usize::from(passthrough));
    }
}

/// chattr(1) and lsattr(1) ask by ioctl, which the mount did not know.
#[test]
fn file_flags_are_shown_and_set_and_every_other_ioctl_is_counted_and_refused() {
    if cannot_mount() {
        return;
    }
    let scene = Scene::new();
    fs::set_permissions(scene.folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let group = scene.managed("group");
    fs::write(group.join("1"), "x").unwrap();
    fs::create_dir(group.join("2")).unwrap();
    let flags = |path: &std::path::Path| rustix::fs::ioctl_getflags(File::open(path).unwrap());
    if flags(&scene.lower("group")) == Err(Errno::NOTTY) {
        return lacks_attributes("no file flags on the file system below /dev/shm");
    }
    for (at, below) in [("group/1", "group/000/1"), ("group/2", "group/000/2"), ("group", "group")] {
        let (at, below) = (scene.at(at), scene.lower(below));
        assert_eq!(flags(&at), flags(&below), "{}", at.display());
        let set = flags(&at).unwrap() | IFlags::NODUMP;
        let done = rustix::fs::ioctl_setflags(File::open(&at).unwrap(), set);
        if at == group {
            assert_eq!(done, Err(Errno::OPNOTSUPP), "its entries are not in it");
        } else {
            assert_eq!((done, flags(&below)), (Ok(()), Ok(set)), "{}", at.display());
        }
    }
    // Only root makes a file immutable.
    chown(group.join("1"), Some(12_345), None).unwrap();
    let (output, fine) = as_user(&group, "chattr +i 1");
    assert!(!fine && output.contains("not permitted"), "{output}");
    assert!(!flags(&scene.lower("group/000/1")).unwrap().contains(IFlags::IMMUTABLE));
    let of = |scene: &Scene| {
        scene.mount.as_ref().unwrap().census().operations.get(&Operation::Ioctl).map(|of| of.failed)
    };
    let before = of(&scene).unwrap_or(0);
    let asked = Command::new("stty").arg("-F").arg(group.join("1")).output().unwrap();
    assert!(String::from_utf8_lossy(&asked.stderr).contains("Inappropriate ioctl"), "{asked:?}");
    assert!(of(&scene).unwrap_or(0) > before);
}
