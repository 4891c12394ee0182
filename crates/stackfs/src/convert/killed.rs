//! A conversion stopped at each of its calls in turn: nothing lost, nothing twice, and the same command finishes, or
//! the opposite one goes back.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use super::*;

/// Makes a number of calls and fails every later one, like a process that was killed.
struct Stopping {
    left: u64,
    made: Vec<String>,
    kernel: Kernel,
}

impl Stopping {
    fn after(calls: u64) -> Self {
        Self { left: calls, made: Vec::new(), kernel: Kernel }
    }
}

impl Calls for Stopping {
    fn call(&mut self, call: &Call<'_>) -> rustix::io::Result<()> {
        if self.left == 0 {
            return Err(Errno::IO);
        }
        self.left -= 1;
        let context = format!("{call:?}");
        self.made.push(context.split([' ', '{']).next().unwrap_or_default().to_owned());
        self.kernel.call(call)
    }
}

fn scratch() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    tempfile::Builder::new().prefix("crumb-convert").tempdir_in(parent).unwrap()
}

/// A directory with names that are like the hidden level's, links of both kinds, and a managed directory in it.
fn populate(directory: &Path) {
    fs::create_dir(directory).unwrap();
    for name in ["1", "7", "123456", "123457", "99999", "345", "000", "aaa", ".overview", "34", "56"] {
        let path = directory.join(name);
        if ["345", "aaa", "34"].contains(&name) {
            fs::create_dir(&path).unwrap();
            fs::write(path.join("345"), format!("within {name}")).unwrap();
            fs::create_dir(path.join("000")).unwrap();
        } else {
            fs::write(&path, format!("article {name}")).unwrap();
        }
    }
    fs::hard_link(directory.join("123456"), directory.join("888888")).unwrap();
    fs::hard_link(directory.join("7"), directory.parent().unwrap().join("elsewhere")).unwrap();
    symlink("nowhere/at/all", directory.join("link")).unwrap();
    let nested = directory.join("alt.2600");
    fs::create_dir_all(nested.join("000")).unwrap();
    fs::write(nested.join("000/3"), "nested").unwrap();
    fs::set_permissions(&nested, fs::Permissions::from_mode(0o4750)).unwrap();
    fs::set_permissions(directory, fs::Permissions::from_mode(0o3771)).unwrap();
    let times =
        fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000));
    fs::File::open(directory).unwrap().set_times(times).unwrap();
    if rustix::process::geteuid().is_root() {
        // What root makes here must be the owner's at once: killed later, it could be anybody's of root's.
        chown(directory, Some(OWNER), Some(OWNER)).unwrap();
    }
}

const OWNER: u32 = 12_345;

fn assert_like_the_owner(path: &Path, above: &Path) {
    let [its, owner] = [path, above].map(|path| fs::symlink_metadata(path).unwrap().uid());
    assert_eq!(its, owner, "{} is not of the owner of {}", path.display(), above.display());
}

/// Everything below an entry: kind and mode, inode, links, and content.
type Seen = BTreeMap<PathBuf, (u32, u64, Vec<u8>)>;

fn take(path: &Path, name: &Path, seen: &mut Seen) {
    let stat = fs::symlink_metadata(path).unwrap();
    let content = match stat.file_type() {
        kind if kind.is_symlink() => fs::read_link(path).unwrap().into_os_string().into_encoded_bytes(),
        kind if kind.is_dir() => {
            for entry in fs::read_dir(path).unwrap().flatten() {
                take(&entry.path(), &name.join(entry.file_name()), seen);
            }
            Vec::new()
        }
        _ => fs::read(path).unwrap(),
    };
    let twice = seen.insert(name.to_owned(), (stat.mode(), stat.ino(), content));
    assert!(twice.is_none(), "{} is there twice", name.display());
}

fn take_level(path: &Path, at: &[u8], levels: &Levels, seen: &mut Seen) {
    for entry in fs::read_dir(path).unwrap().flatten() {
        let name = entry.file_name();
        let below = levels::joined(at, name.as_bytes());
        if at.is_empty() && (state::is_reserved(name.as_bytes()) || name.as_bytes() == TIMES_FILE.to_bytes())
        {
            continue;
        }
        if levels.is_level(&below) {
            assert_like_the_owner(&entry.path(), path);
            take_level(&entry.path(), &below, levels, seen);
        } else {
            take(&entry.path(), Path::new(&name), seen);
        }
    }
}

/// What users have in a directory in any state.
fn users_view(directory: &Path) -> Seen {
    let mut seen = Seen::new();
    let state = state_of(directory).unwrap();
    let levels = Levels::of(state.layout());
    if matches!(state, State::MovingLevels(_) | State::Managed(_)) {
        take_level(directory, b"", &levels, &mut seen);
    } else {
        for entry in fs::read_dir(directory).unwrap().flatten() {
            if !state::is_reserved(entry.file_name().as_bytes()) {
                take(&entry.path(), Path::new(&entry.file_name()), &mut seen);
            }
        }
    }
    if state.is_half_way() {
        let staging = directory.join(OsStr::from_bytes(staging_name(state.layout()).as_bytes()));
        assert_like_the_owner(&staging, directory);
        take_level(&staging, b"", &levels, &mut seen);
    }
    seen
}

fn quietly<T>(work: impl FnOnce(&mut Watch<'_>) -> T) -> T {
    work(&mut Watch { progress: &mut |_| {}, stop: &AtomicBool::new(false) })
}

fn whole(directory: &Path, goal: Goal) -> Converted {
    quietly(|watch| convert(directory, goal, watch)).unwrap()
}

/// Stops a conversion to `goal` at every call; `begin` brings the directory into the state that it starts from.
fn stop_everywhere(begin: Option<Goal>, goal: Goal) {
    let back = if goal == Goal::Flat { Goal::Managed(begin_layout(begin)) } else { Goal::Flat };
    let mut kinds = HashSet::new();
    for calls in 0.. {
        let place = scratch();
        let directory = place.path().join("group");
        populate(&directory);
        begin.map(|begin| whole(&directory, begin));
        let (before, stat) = (users_view(&directory), fs::metadata(&directory).unwrap());
        let mut stopping = Stopping::after(calls);
        let ended = quietly(|watch| convert_by(&directory, goal, watch, &mut stopping));
        kinds.extend(stopping.made.last().cloned());
        let context = format!("stopped after call {calls}, {:?}", stopping.made.last());
        assert!(users_view(&directory) == before, "{context}: entries lost or twice");
        let finished = ended.is_ok();
        // Most are stopped again on their way, and again; every fourth goes back where it came from.
        for again in [calls % 3, calls / 2].into_iter().filter(|again| *again > 0) {
            let _ = quietly(|watch| convert_by(&directory, goal, watch, &mut Stopping::after(again)));
            assert!(users_view(&directory) == before, "{context}, and after {again}: entries lost or twice");
        }
        if calls % 4 == 0 {
            whole(&directory, back);
            assert!(users_view(&directory) == before, "{context}, and back: entries lost or twice");
            assert!(!state_of(&directory).unwrap().is_half_way(), "{context}");
        }
        let done = whole(&directory, goal);
        assert!(users_view(&directory) == before, "{context}, and finished: entries lost or twice");
        assert_eq!(state_of(&directory).unwrap(), done.after, "{context}");
        assert!(!done.after.is_half_way());
        let after = fs::metadata(&directory).unwrap();
        assert_eq!(
            (after.ino(), after.uid(), after.mode() & 0o3777),
            (stat.ino(), stat.uid(), stat.mode() & 0o3777)
        );
        if calls == 0 || finished {
            assert_eq!(after.mtime(), stat.mtime(), "{context}");
        }
        assert_right_shape(&directory, done.after);
        if finished {
            assert!(calls > 30, "only {calls} calls");
            break;
        }
    }
    for kind in ["MakeDirectory", "Rename", "RemoveDirectory", "RemoveFile", "Mode", "Mark", "Times", "Sync"]
    {
        assert!(kinds.contains(kind), "no run was stopped after {kind}: {kinds:?}");
    }
}

fn begin_layout(begin: Option<Goal>) -> Option<Layout> {
    match begin {
        Some(Goal::Managed(layout)) => layout,
        _ => None,
    }
}

/// All entries in their places, hidden directories like the one above them.
fn assert_right_shape(directory: &Path, state: State) {
    let State::Managed(layout) = state else { return };
    let levels = Levels::of(layout);
    let mode = fs::metadata(directory).unwrap().mode();
    for entry in fs::read_dir(directory).unwrap().flatten() {
        assert!(
            levels.is_level(entry.file_name().as_bytes()),
            "{} is no subdirectory",
            entry.path().display()
        );
        let hidden = entry.metadata().unwrap().mode();
        assert_eq!(hidden & 0o7777, mode & 0o3777, "{}", entry.path().display());
    }
    for name in users_view(directory).keys().filter(|name| name.components().count() == 1) {
        let mut place = Vec::new();
        layout.place(name.as_os_str().as_bytes(), &mut place);
        assert!(
            fs::symlink_metadata(directory.join(OsStr::from_bytes(&place))).is_ok(),
            "{}",
            name.display()
        );
    }
}

#[test]
fn managing_stopped_at_any_call_loses_nothing_shows_nothing_twice_and_can_be_finished_or_undone() {
    stop_everywhere(None, Goal::Managed(None));
}

#[test]
fn unmanaging_stopped_at_any_call_loses_nothing_shows_nothing_twice_and_can_be_finished_or_undone() {
    stop_everywhere(Some(Goal::Managed(None)), Goal::Flat);
}

#[test]
fn the_same_holds_for_a_layout_of_two_levels() {
    let two = Goal::Managed(Some(Layout::D34D56));
    stop_everywhere(None, two);
    stop_everywhere(Some(two), Goal::Flat);
}

#[test]
fn a_name_that_is_taken_on_either_way_is_told_and_both_are_kept() {
    let place = scratch();
    let directory = place.path().join("group");
    populate(&directory);
    let stopped =
        quietly(|watch| convert_by(&directory, Goal::Managed(None), watch, &mut Stopping::after(12)));
    assert!(stopped.is_err());
    let State::MovingEntries(_) = state_of(&directory).unwrap() else { panic!("not half way") };
    // Somebody writes into the directory while it is half converted.
    let staging = directory.join(".crumb-converting-345");
    let leaves = fs::read_dir(&staging).unwrap().flatten().filter(|entry| entry.path().is_dir());
    let moved = leaves.flat_map(|leaf| fs::read_dir(leaf.path()).unwrap().flatten()).next().unwrap();
    let twin = directory.join(moved.file_name());
    fs::write(&twin, "a twin").unwrap();
    for goal in [Goal::Managed(None), Goal::Flat, Goal::Managed(None)] {
        let refused = quietly(|watch| convert(&directory, goal, watch)).unwrap_err();
        assert!(matches!(refused, ConvertError::Collisions { count: 1, .. }), "{refused}");
        assert_eq!(fs::read(&twin).unwrap(), b"a twin");
    }
    fs::rename(&twin, directory.join("renamed")).unwrap();
    whole(&directory, Goal::Flat);
    assert_eq!(fs::read(directory.join("renamed")).unwrap(), b"a twin");
    assert!(fs::symlink_metadata(directory.join(moved.file_name())).is_ok());
}

#[test]
fn subdirectories_that_are_there_on_both_sides_are_merged() {
    let place = scratch();
    let directory = place.path().join("group");
    populate(&directory);
    // Stopped while lifting: then somebody mounts the half of it, and writes.
    let mut calls = 0;
    loop {
        calls += 1;
        let _ =
            quietly(|watch| convert_by(&directory, Goal::Managed(None), watch, &mut Stopping::after(calls)));
        if matches!(state_of(&directory).unwrap(), State::MovingLevels(_)) {
            break;
        }
    }
    let staging = directory.join(".crumb-converting-345");
    let level = fs::read_dir(&staging).unwrap().flatten().find(|e| e.file_type().unwrap().is_dir()).unwrap();
    let twin = directory.join(level.file_name());
    fs::create_dir(&twin).unwrap();
    if rustix::process::geteuid().is_root() {
        chown(&twin, Some(OWNER), Some(OWNER)).unwrap();
    }
    fs::set_permissions(&twin, fs::Permissions::from_mode(0o3771)).unwrap();
    let written = if level.file_name() == "aaa" {
        "more".to_owned()
    } else {
        format!("{}9", level.file_name().to_str().unwrap())
    };
    fs::write(twin.join(&written), "written meanwhile").unwrap();
    let before = users_view(&directory);
    whole(&directory, Goal::Managed(None));
    assert!(users_view(&directory) == before);
    assert_right_shape(&directory, State::Managed(Layout::D345));
    whole(&directory, Goal::Flat);
    assert!(users_view(&directory) == before);
    assert_eq!(fs::read(directory.join(written)).unwrap(), b"written meanwhile");
}
