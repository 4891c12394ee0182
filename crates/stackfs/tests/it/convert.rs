//! Conversion there and back on real file systems, with everything that hangs on a directory.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use files::Layout;
use rustix::fs::{FlockOperation, XattrFlags};
use stackfs::convert::{ConvertError, Converted, Goal, State, Watch, convert, plan, state_of};
use testkit::LoopImage;

const FILES: u64 = 3000;

fn to(directory: &Path, goal: Goal) -> Result<Converted, ConvertError> {
    convert(directory, goal, &mut Watch { progress: &mut |_| {}, stop: &AtomicBool::new(false) })
}

/// An access control list as the kernel has it: version 2, and tag, permissions, id for each entry.
fn access_list() -> Vec<u8> {
    const NOBODY: u32 = u32::MAX;
    let entries: [(u16, u16, u32); 5] =
        [(1, 7, NOBODY), (2, 5, 1234), (4, 5, NOBODY), (0x10, 5, NOBODY), (0x20, 0, NOBODY)];
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend_from_slice(&tag.to_le_bytes());
        bytes.extend_from_slice(&permissions.to_le_bytes());
        bytes.extend_from_slice(&id.to_le_bytes());
    }
    bytes
}

fn attribute(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = [0u8; 256];
    rustix::fs::getxattr(path, name, &mut value).ok().map(|len| value[..len].to_vec())
}

fn contents(directory: &Path) -> BTreeMap<String, (u64, Vec<u8>)> {
    let entries = fs::read_dir(directory).unwrap().flatten().map(|entry| {
        let name = entry.file_name().into_string().unwrap();
        (name, (entry.metadata().unwrap().ino(), fs::read(entry.path()).unwrap_or_default()))
    });
    entries.collect()
}

fn there_and_back(image: &LoopImage, context: &str) {
    let directory = image.path().join("control");
    fs::create_dir(&directory).unwrap();
    for number in 0..FILES {
        fs::write(directory.join((98_000 + number * 7).to_string()), number.to_string()).unwrap();
    }
    fs::create_dir(directory.join("345")).unwrap();
    fs::write(directory.join("345/1"), "a group called 345").unwrap();
    for list in ["system.posix_acl_access", "system.posix_acl_default"] {
        rustix::fs::setxattr(&directory, list, &access_list(), XattrFlags::empty()).unwrap();
    }
    rustix::fs::setxattr(&directory, "user.of.mine", b"kept", XattrFlags::empty()).unwrap();
    let mode = fs::metadata(&directory).unwrap().mode() & 0o777 | 0o3000;
    fs::set_permissions(&directory, fs::Permissions::from_mode(mode)).unwrap();
    let long_ago = std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 5000);
    let as_it_was = fs::FileTimes::new().set_modified(long_ago);
    fs::File::open(&directory).unwrap().set_times(as_it_was).unwrap();
    let (before, stat) = (contents(&directory), fs::metadata(&directory).unwrap());
    let mut open = fs::File::open(directory.join("98007")).unwrap();

    let done = to(&directory, Goal::Managed(None)).unwrap();
    assert_eq!((done.after, done.entries_moved), (State::Managed(Layout::D345), FILES + 1), "{context}");
    assert_eq!(fs::read(directory.join("800/98007")).unwrap(), b"1", "{context}");
    assert_eq!(fs::read(directory.join("034/345/1")).unwrap(), b"a group called 345", "{context}");
    let managed = fs::metadata(&directory).unwrap();
    assert_eq!((managed.mode() & 0o7777, managed.ino()), (mode | 0o4000, stat.ino()), "{context}");
    assert_eq!(managed.modified().unwrap(), long_ago, "{context}");
    for hidden in ["800", "034"] {
        let hidden = directory.join(hidden);
        assert_eq!(fs::metadata(&hidden).unwrap().mode() & 0o7777, mode, "{context}");
        for list in ["system.posix_acl_access", "system.posix_acl_default"] {
            assert_eq!(attribute(&hidden, list), attribute(&directory, list), "{context}: {list}");
            assert!(attribute(&hidden, list).is_some(), "{context}: {list}");
        }
    }
    let mut read = String::new();
    open.read_to_string(&mut read).unwrap();
    assert_eq!(read, "1", "{context}: what was open is not what it was");

    assert_eq!(to(&directory, Goal::Managed(None)).unwrap().entries_moved, 0, "{context}");
    assert_eq!(to(&directory, Goal::Flat).unwrap().entries_moved, FILES + 1, "{context}");
    let flat = fs::metadata(&directory).unwrap();
    assert_eq!((flat.mode(), flat.ino(), flat.uid()), (stat.mode(), stat.ino(), stat.uid()), "{context}");
    assert_eq!(flat.modified().unwrap(), long_ago, "{context}");
    assert!(contents(&directory) == before, "{context}");
    assert_eq!(attribute(&directory, "user.of.mine").as_deref(), Some(&b"kept"[..]), "{context}");
}

#[test]
fn on_real_file_systems_a_directory_comes_back_as_it_was_with_lists_times_and_inodes() {
    let kinds: [(&str, u64, &[&str]); 3] =
        [("ext4", 64 << 20, &[]), ("ext4", 64 << 20, &["-O", "^dir_index"]), ("xfs", 320 << 20, &[])];
    for (kind, bytes, flags) in kinds {
        let Some(image) = LoopImage::needed(kind, bytes, flags) else { continue };
        there_and_back(&image, &format!("{kind} {flags:?}"));
    }
}

#[test]
fn without_room_for_the_subdirectories_nothing_is_begun() {
    let Some(image) = LoopImage::needed("ext4", 16 << 20, &["-N", "1024"]) else { return };
    let directory = image.path().join("group");
    fs::create_dir(&directory).unwrap();
    for number in 0..600 {
        fs::write(directory.join((number * 10).to_string()), "").unwrap();
    }
    let refused = to(&directory, Goal::Managed(None)).unwrap_err();
    assert!(matches!(refused, ConvertError::NoRoom { what: "inodes", .. }), "{refused}");
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 600);
}

/// Symptom: a directory of names that all belong into few subdirectories was refused for want of a thousand inodes. Cause: as
/// many subdirectories were counted as there are entries, up to all that the layout has. Fix: those that are made.
#[test]
fn room_is_asked_for_the_subdirectories_that_are_made_and_no_more() {
    let Some(image) = LoopImage::needed("ext4", 16 << 20, &["-N", "1024"]) else { return };
    for number in 0..900 {
        fs::write(image.path().join(format!("taken-{number}")), "").unwrap();
    }
    for (group, layout) in [("one", Layout::D345), ("two", Layout::D34D56)] {
        let directory = image.path().join(group);
        fs::create_dir(&directory).unwrap();
        // All in 777, or in 77 with 70 to 79, but for what belongs in aaa. Hard links: the inodes are for something else.
        fs::write(directory.join("7770"), "").unwrap();
        for number in 1..700 {
            let name = directory.join(format!("{}777{}", number / 10, number % 10));
            fs::hard_link(directory.join("7770"), name).unwrap();
        }
        fs::write(directory.join("notes"), "").unwrap();
        to(&directory, Goal::Managed(Some(layout))).unwrap_or_else(|error| panic!("{layout}: {error}"));
        to(&directory, Goal::Flat).unwrap();
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 701, "{layout}");
    }
}

fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    tempfile::Builder::new().prefix("crumb-convert").tempdir_in(parent).unwrap()
}

#[test]
fn whoever_else_holds_a_lock_above_at_or_below_keeps_a_conversion_from_beginning() {
    let place = scratch();
    let directory = place.path().join("a/b");
    fs::create_dir_all(directory.join("c")).unwrap();
    let refused = |at: &Path, how: FlockOperation| {
        let held = fs::File::open(at).unwrap();
        rustix::fs::flock(&held, how).unwrap();
        matches!(to(&directory, Goal::Managed(None)), Err(ConvertError::Locked { .. }))
    };
    // A mount of what holds it; a conversion of the same; a conversion of what is in it.
    assert!(refused(place.path(), FlockOperation::LockExclusive));
    assert!(refused(&directory, FlockOperation::LockExclusive));
    assert!(refused(&directory, FlockOperation::LockShared));
    assert!(!refused(place.path(), FlockOperation::LockShared));
}

#[test]
fn what_cannot_be_converted_is_refused_with_its_reason_and_left_alone() {
    let place = scratch();
    let directory = place.path().join("group");
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("12345"), "").unwrap();
    let refused = |path: &Path, goal| to(path, goal).unwrap_err();
    assert!(matches!(refused(&directory.join("12345"), Goal::Flat), ConvertError::Open { .. }));
    assert!(matches!(
        refused(&directory, Goal::Managed(Some(Layout::Flat))),
        ConvertError::FlatLayout { .. }
    ));
    // A name of ours that is a user's.
    let taken = directory.join(".crumb-converting-345");
    fs::create_dir(&taken).unwrap();
    fs::write(taken.join("precious"), "").unwrap();
    assert!(matches!(refused(&directory, Goal::Managed(None)), ConvertError::ReservedName { .. }));
    assert!(taken.join("precious").exists() && directory.join("12345").exists());
    fs::remove_dir_all(&taken).unwrap();

    to(&directory, Goal::Managed(None)).unwrap();
    let other = refused(&directory, Goal::Managed(Some(Layout::D456)));
    assert!(matches!(other, ConvertError::OtherLayout { there: Layout::D345, asked: Layout::D456, .. }));
    assert!(matches!(refused(&directory.join("234"), Goal::Managed(None)), ConvertError::HiddenLevel { .. }));
    fs::write(directory.join("aaa").join(".crumb-converting-345"), "")
        .or_else(|_| {
            fs::create_dir(directory.join("aaa"))?;
            fs::write(directory.join("aaa").join(".crumb-converting-345"), "")
        })
        .unwrap();
    assert!(matches!(refused(&directory, Goal::Flat), ConvertError::ReservedName { .. }));
    assert_eq!(state_of(&directory).unwrap(), State::Managed(Layout::D345));
}

/// Without a layout, names that are not numbers all went into one hidden subdirectory, `aaa`.
#[test]
fn without_a_layout_the_names_decide_and_one_that_is_given_is_obeyed() {
    let place = scratch();
    let directory = place.path().join("mail");
    fs::create_dir(&directory).unwrap();
    for number in 0..600 {
        fs::write(directory.join(format!("{number}.M1P2.host:2,S")), "").unwrap();
    }
    let planned = plan(&directory, Goal::Managed(None)).unwrap();
    assert_eq!((planned.after, planned.are_not_numbers), (State::Managed(Layout::Hash2), true));
    assert!((200..=256).contains(&planned.subdirectories), "{planned:?}");
    let given = plan(&directory, Goal::Managed(Some(Layout::D345))).unwrap();
    assert_eq!((given.after, given.subdirectories), (State::Managed(Layout::D345), 1));
    assert!(given.are_not_numbers);
    let done = to(&directory, Goal::Managed(None)).unwrap();
    assert_eq!((done.after, done.are_not_numbers), (State::Managed(Layout::Hash2), true));
    assert_eq!(done.subdirectories_moved, planned.subdirectories);
    assert_eq!(to(&directory, Goal::Managed(None)).unwrap().after, State::Managed(Layout::Hash2));
}

#[test]
fn stopped_by_its_user_it_is_half_way_and_goes_on_from_there() {
    let place = scratch();
    let directory = place.path().join("group");
    fs::create_dir(&directory).unwrap();
    for number in 0..1000 {
        fs::write(directory.join(number.to_string()), "").unwrap();
    }
    let planned = plan(&directory, Goal::Managed(Some(Layout::Hash2))).unwrap();
    assert_eq!((planned.before, planned.after), (State::Flat, State::Managed(Layout::Hash2)));
    let stop = AtomicBool::new(false);
    let mut reports = 0;
    let mut progress = |_| {
        reports += 1;
        stop.store(reports == 5, Ordering::Relaxed);
    };
    let goal = Goal::Managed(Some(Layout::Hash2));
    let done = convert(&directory, goal, &mut Watch { progress: &mut progress, stop: &stop }).unwrap();
    assert_eq!(done.after, State::MovingEntries(Layout::Hash2));
    assert!(done.entries_moved > 0 && done.entries_moved < 1000, "{done:?}");
    let rest = to(&directory, Goal::Managed(None)).unwrap();
    assert_eq!(rest.entries_moved, 1000 - done.entries_moved);
    assert_eq!(rest.after, State::Managed(Layout::Hash2));
    assert_eq!(to(&directory, Goal::Flat).unwrap().entries_moved, 1000);
}

/// Names, owners, modes and contents of all below a directory.
fn snapshot(place: &Path) -> Vec<(PathBuf, u32, u32, Option<String>)> {
    let (mut all, mut waiting) = (Vec::new(), vec![place.to_owned()]);
    while let Some(path) = waiting.pop() {
        let of = fs::symlink_metadata(&path).unwrap();
        if of.is_dir() {
            waiting.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        all.push((path.clone(), of.uid(), of.mode(), fs::read_to_string(&path).ok()));
    }
    all.sort();
    all
}

const USER: u32 = 12_345;

/// A directory of the user's, with files of his; managed in `layout` when one is named.
fn of_a_user(scratch: &Path, layout: Option<Layout>) -> PathBuf {
    let directory = scratch.join("spool");
    fs::create_dir(&directory).unwrap();
    for name in ["1000", "123456", "notes"] {
        fs::write(directory.join(name), name).unwrap();
    }
    chown(&directory, Some(USER), Some(USER)).unwrap();
    if let Some(layout) = layout {
        to(&directory, Goal::Managed(Some(layout))).unwrap();
    }
    directory
}

/// A directory of root's with a file in it, for nobody else; the owner of the directory above may have renamed it.
fn foreign(path: &Path) {
    fs::create_dir(path).unwrap();
    fs::write(path.join("key"), "secret").unwrap();
    fs::create_dir(path.join("inner")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn unmanaging_leaves_a_subdirectory_of_another_user_and_all_in_it_alone() {
    if !testkit::need::root("a directory of another user") {
        return;
    }
    for (layout, place) in [(Layout::D345, "346"), (Layout::D34D56, "35"), (Layout::D34D56, "34/57")] {
        for empty in [false, true] {
            let scratch = scratch();
            let directory = of_a_user(scratch.path(), Some(layout));
            foreign(&directory.join(place));
            if empty {
                fs::remove_file(directory.join(place).join("key")).unwrap();
                fs::remove_dir(directory.join(place).join("inner")).unwrap();
            }
            let before = snapshot(&directory);
            let refused = to(&directory, Goal::Flat).unwrap_err();
            assert!(matches!(refused, ConvertError::Foreign { owner: 0, of: USER, .. }), "{refused}");
            assert!(refused.to_string().starts_with(directory.join(place).to_str().unwrap()), "{refused}");
            assert_eq!(snapshot(&directory), before, "{layout} {place}");
            // After a chown to the owner it is converted with the rest.
            chown(directory.join(place), Some(USER), Some(USER)).unwrap();
            to(&directory, Goal::Flat).unwrap();
            assert_eq!(directory.join("key").exists(), !empty);
        }
    }
}

/// Symptom: `manage` said "managed already" of a directory of which a part is not shown, since another user's directory is in
/// its place. Fix: it says so and fails, as it does where there is something to do.
#[test]
fn managing_a_managed_directory_again_says_what_belongs_to_another_user() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    for (layout, place) in [(Layout::D345, "346"), (Layout::D34D56, "35"), (Layout::D34D56, "34/57")] {
        let scratch = scratch();
        let directory = of_a_user(scratch.path(), Some(layout));
        assert_eq!(to(&directory, Goal::Managed(None)).unwrap().before, State::Managed(layout));
        foreign(&directory.join(place));
        let before = snapshot(&directory);
        let refusals = [
            to(&directory, Goal::Managed(None)).unwrap_err(),
            plan(&directory, Goal::Managed(Some(layout))).unwrap_err(),
        ];
        for refused in refusals {
            assert!(matches!(refused, ConvertError::Foreign { owner: 0, of: USER, .. }), "{refused}");
            assert!(refused.to_string().contains(place), "{refused}");
        }
        assert_eq!(snapshot(&directory), before, "{layout} {place}");
    }
}

#[test]
fn a_staging_directory_with_another_users_directories_or_of_another_user_is_left_alone() {
    if !testkit::need::root("a directory of another user") {
        return;
    }
    for (managed, place) in [(false, Some("003")), (true, Some("003")), (false, None), (true, None)] {
        let scratch = scratch();
        let directory = of_a_user(scratch.path(), managed.then_some(Layout::D345));
        let staging = directory.join(".crumb-converting-345");
        fs::create_dir(&staging).unwrap();
        fs::write(staging.join(".times"), "").unwrap();
        match place {
            Some(place) => foreign(&staging.join(place)),
            // It is root's itself, with something that would be the user's.
            None => {
                fs::create_dir(staging.join("003")).unwrap();
                fs::write(staging.join("003/key"), "secret").unwrap();
                chown(staging.join("003"), Some(USER), Some(USER)).unwrap();
            }
        }
        if place.is_some() {
            for path in [&staging, &staging.join(".times")] {
                chown(path, Some(USER), Some(USER)).unwrap();
            }
        }
        let before = snapshot(&directory);
        for goal in [Goal::Managed(None), Goal::Flat] {
            let refused = to(&directory, goal).unwrap_err();
            assert!(
                matches!(refused, ConvertError::Foreign { owner: 0, of: USER, .. }),
                "{goal:?}: {refused}"
            );
            assert_eq!(snapshot(&directory), before, "managed {managed}, {place:?}, {goal:?}");
        }
        let stop = AtomicBool::new(false);
        let mut watch = stackfs::check::CheckWatch { progress: &mut |_, _, _| {}, stop: &stop };
        let checked = stackfs::check::check(&directory, true, &mut watch).unwrap();
        assert!(!checked.is_right());
        assert_eq!(snapshot(&directory), before, "managed {managed}, {place:?}, repaired");
    }
}

#[test]
fn what_a_conversion_by_root_makes_belongs_to_the_owner_in_the_end() {
    if !testkit::need::root("a directory of another user") {
        return;
    }
    let scratch = scratch();
    let directory = of_a_user(scratch.path(), Some(Layout::D34D56));
    let made: Vec<_> = snapshot(&directory).into_iter().filter(|(path, ..)| path.is_dir()).collect();
    assert!(made.len() > 3 && made.iter().all(|(_, owner, ..)| *owner == USER), "{made:#?}");
    to(&directory, Goal::Flat).unwrap();
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 3);
}

#[test]
fn a_symbolic_link_in_the_place_of_the_directory_is_not_followed() {
    let scratch = scratch();
    let directory = scratch.path().join("elsewhere");
    fs::create_dir(&directory).unwrap();
    fs::write(directory.join("123456"), "").unwrap();
    let link = scratch.path().join("spool");
    std::os::unix::fs::symlink(&directory, &link).unwrap();
    let before = snapshot(&directory);
    for behind in ["", "/", "/."] {
        let named = PathBuf::from(format!("{}{behind}", link.display()));
        for goal in [Goal::Managed(None), Goal::Flat] {
            let refused = to(&named, goal).unwrap_err();
            assert!(matches!(refused, ConvertError::Link { .. }), "{refused}");
            assert!(refused.to_string().ends_with(directory.to_str().unwrap()), "{refused}");
            assert!(matches!(plan(&named, goal), Err(ConvertError::Link { .. })));
        }
        let stop = AtomicBool::new(false);
        let mut watch = stackfs::check::CheckWatch { progress: &mut |_, _, _| {}, stop: &stop };
        let refused = stackfs::check::check(&named, true, &mut watch).unwrap_err();
        assert!(matches!(refused, ConvertError::Link { .. }), "{refused}");
        assert_eq!(snapshot(&directory), before);
    }
    // A link on the way there is the caller's own choice of words.
    std::os::unix::fs::symlink(scratch.path(), directory.join("up")).unwrap();
    let around = directory.join("up/elsewhere");
    to(&around, Goal::Managed(None)).unwrap();
    assert_eq!(state_of(&directory).unwrap(), State::Managed(Layout::D345));
}
