//! The list of a store's directories: what is in it, what is kept in it, and who may have the store.

use std::fs;
use std::path::Path;

use packfs::{VolumeList, VolumesError};
use packstore::{OpenOptions, PutOptions, Store, StoreError, StoreOptions};
use tempfile::TempDir;

const BYTES: u64 = 8 << 20;

struct Made {
    directory: TempDir,
    list: VolumeList,
    store: Store,
}

/// Of the directories `store` and `two`.
fn made() -> Made {
    let directory = tempfile::tempdir().expect("a directory");
    let volumes = [(directory.path().join("two"), BYTES)];
    let made = VolumeList::create(&directory.path().join("store"), BYTES, &volumes, StoreOptions::default());
    let (list, store) = made.expect("made");
    Made { directory, list, store }
}

fn listed(store: &Path) -> Vec<u8> {
    fs::read(store.join("volumes")).expect("there")
}

fn line(path: &Path) -> Vec<u8> {
    format!("{}\n", fs::canonicalize(path).expect("there").display()).into_bytes()
}

#[test]
fn a_directory_is_listed_whole_before_it_is_a_volume_and_forgotten_when_it_is_none() {
    let Made { directory, mut list, store } = made();
    let (one, two, three) =
        (directory.path().join("store"), directory.path().join("two"), directory.path().join("three"));
    assert_eq!(listed(&one), line(&two));
    list.grow(&store, &three, BYTES).expect("grown");
    assert_eq!(listed(&one), [line(&two), line(&three)].concat());
    store.put(b"key", b"body", PutOptions::default()).expect("put");
    store.close().expect("closed");
    let mut list = VolumeList::read(&one).expect("read");
    assert_eq!((list.store(), list.directories().len(), list.faults()), (&*one, 3, vec![]));
    let store = list.open(OpenOptions::default()).expect("it opens");
    assert!(store.get(b"key").expect("readable").is_some());
    assert_eq!(store.volumes().len(), 3);
    // As it is named, or by another way.
    let named = list.member(&one.join("../three")).expect("a member");
    assert_eq!(named, fs::canonicalize(&three).expect("there"));
    store.remove_volume(&named.display().to_string()).expect("removed");
    list.forget(&[named]).expect("forgotten");
    assert_eq!(listed(&one), line(&two));
}

#[test]
fn what_cannot_be_is_a_bad_request_and_leaves_the_list_as_it_is() {
    let Made { directory, mut list, store } = made();
    let (one, two) = (directory.path().join("store"), directory.path().join("two"));
    let before = listed(&one);
    let wrong = [
        list.grow(&store, &two, BYTES).expect_err("there already"),
        list.grow(&store, &one, BYTES).expect_err("the store's own"),
        list.grow(&store, &directory.path().join("small"), 10).expect_err("too small"),
        list.member(&one).expect_err("the store's own"),
        list.member(&directory.path().join("other")).expect_err("no member"),
    ];
    for error in &wrong {
        assert!(error.is_bad_request(), "{error}");
    }
    assert_eq!(listed(&one), before);
    let none = VolumeList::read(directory.path()).expect_err("no store");
    assert!(matches!(none, VolumesError::NoStore { .. }) && !none.is_bad_request(), "{none}");
    // What a store could not be made of is not left listed.
    let small = directory.path().join("small");
    let volumes = [(directory.path().join("four"), BYTES)];
    assert!(VolumeList::create(&small, 10, &volumes, StoreOptions::default()).is_err());
    assert!(!small.join("volumes").exists());
    let again =
        VolumeList::create(&one, BYTES, &[], StoreOptions::default()).map(drop).expect_err("there is one");
    assert!(matches!(again, VolumesError::Store(StoreError::NotEmpty { .. })), "{again}");
}

#[test]
fn a_line_that_is_no_path_is_told_escaped_and_outlives_every_change_of_the_list() {
    let Made { directory, store, .. } = made();
    let (one, two) = (directory.path().join("store"), directory.path().join("two"));
    fs::write(one.join("volumes"), [&line(&two)[..], b"\n", b"a\0\x1b[2Jb\n"].concat()).expect("written");
    let mut list = VolumeList::read(&one).expect("read");
    assert_eq!(list.directories().len(), 2);
    let faults = list.faults();
    assert!(
        matches!(&faults[..], [fault] if fault.what.contains("`a\\0\\u{1b}[2Jb` is no path; remove it")),
        "{faults:?}"
    );
    list.grow(&store, &directory.path().join("three"), BYTES).expect("grown");
    assert!(listed(&one).ends_with(b"/three\na\0\x1b[2Jb\n"));
}

#[test]
fn writers_are_kept_out_while_somebody_looks_and_a_store_that_is_open_is_known() {
    let Made { directory, list, store } = made();
    assert!(list.is_in_use());
    let taken = list.keep_writers_out().map(drop).expect_err("it is open");
    assert!(matches!(taken, VolumesError::Store(StoreError::Locked { .. })), "{taken}");
    store.close().expect("closed");
    assert!(!list.is_in_use());
    let held = list.keep_writers_out().expect("nobody writes");
    assert_eq!(held.len(), 2);
    let _others = list.keep_writers_out().expect("others may look too");
    assert!(list.open_to_read().is_ok());
    let locked = list.open(OpenOptions::default()).map(drop).expect_err("kept out");
    assert!(matches!(locked, VolumesError::Store(StoreError::Locked { .. })), "{locked}");
    drop((held, _others));
    assert!(list.open(OpenOptions::default()).is_ok());
    // Directories that are away are left to the engine.
    fs::rename(directory.path().join("two"), directory.path().join("away")).expect("moved");
    let missing = list.open(OpenOptions::default()).map(drop).expect_err("half of it is away");
    assert!(
        matches!(missing, VolumesError::Store(StoreError::Missing { found: 1, expected: 2 })),
        "{missing}"
    );
    assert_eq!(list.keep_writers_out().expect("the rest is free").len(), 1);
}

/// Symptom: every verb failed with "not a regular file" or "too many levels of symbolic links", and said neither what was in the place
/// of the list nor what to do. Fix: both are said; a repair moves it aside where the store has no other directory.
#[test]
fn what_is_in_the_place_of_the_list_is_named_and_moved_aside_only_where_no_directory_is_lost_with_it() {
    let put_there = |path: &Path, what: &str, moved: &Path| match what {
        "a directory" => fs::create_dir(path).expect("made"),
        _ => std::os::unix::fs::symlink(moved, path).expect("a link"),
    };
    for what in ["a directory", "a symbolic link"] {
        let Made { directory, store, .. } = made();
        for number in 0..50_u32 {
            store.put(&number.to_le_bytes(), b"body", PutOptions::default()).expect("put");
        }
        store.close().expect("closed");
        let (one, moved) = (directory.path().join("store"), directory.path().join("moved"));
        fs::rename(one.join("volumes"), &moved).expect("moved");
        put_there(&one.join("volumes"), what, &moved);
        let refused = [
            VolumeList::read(&one).map(drop).expect_err("refused"),
            VolumeList::read_to_repair(&one).map(drop).expect_err("refused"),
        ];
        for text in refused.map(|error| error.to_string()) {
            let parts =
                [what, "the file `volumes`", "put the file back there", "`crumb pack repair` refuses"];
            assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        }
        assert!(
            one.join("volumes").symlink_metadata().is_ok_and(|found| !found.is_file()),
            "{what}: unchanged"
        );
        match what {
            "a directory" => fs::remove_dir(one.join("volumes")).expect("removed"),
            _ => fs::remove_file(one.join("volumes")).expect("removed"),
        }
        fs::rename(&moved, one.join("volumes")).expect("put back");
        let (list, done) = VolumeList::read_to_repair(&one).expect("read");
        assert_eq!(done, []);
        let store = list.open(OpenOptions::default()).expect("it opens");
        assert_eq!(store.iter().expect("listed").count(), 50, "{what}");

        let alone = directory.path().join("alone");
        let (_, store) = VolumeList::create(&alone, BYTES, &[], StoreOptions::default()).expect("made");
        store.put(b"key", b"body", PutOptions::default()).expect("put");
        put_there(&alone.join("volumes"), what, &moved);
        let told = VolumeList::read(&alone).map(drop).expect_err("refused").to_string();
        assert!(told.contains(what) && told.contains("`crumb pack repair` moves it aside"), "{told}");
        let locked = VolumeList::read_to_repair(&alone).map(drop).expect_err("it is open");
        assert!(matches!(locked, VolumesError::Store(StoreError::Locked { .. })), "{locked}");
        drop(store);
        let (list, done) = VolumeList::read_to_repair(&alone).expect("moved aside");
        assert!(
            matches!(&done[..], [fault] if fault.what.contains("it is called `volumes.aside` now")),
            "{done:?}"
        );
        assert!(alone.join("volumes.aside").symlink_metadata().is_ok(), "{what} is kept");
        let store = list.open(OpenOptions::default()).expect("it opens");
        assert!(store.get(b"key").expect("readable").is_some());
    }
}

/// Symptom: a store whose `volume` and `volume.copy` were gone was no store, and the advice was to make a new one in its place.
#[test]
fn a_directory_with_segments_and_no_heads_is_a_store_that_lost_them() {
    let directory = tempfile::tempdir().expect("a directory");
    let (_, store) = VolumeList::create(directory.path(), BYTES, &[], StoreOptions::default()).expect("made");
    store.put(b"key", b"body", PutOptions::default()).expect("put");
    store.close().expect("closed");
    for name in ["volume", "volume.copy"] {
        fs::remove_file(directory.path().join(name)).expect("removed");
    }
    let list = VolumeList::read(directory.path()).expect("segments are there");
    let lost = list.open(OpenOptions::default()).map(drop).expect_err("no head");
    assert!(matches!(lost, VolumesError::Store(StoreError::HeadsLost { segments: 1, .. })), "{lost}");
    let empty = tempfile::tempdir().expect("a directory");
    assert!(matches!(VolumeList::read(empty.path()), Err(VolumesError::NoStore { .. })));
}

/// Symptom: a change of the list emptied and replaced the file that a symbolic link named `volumes.new` pointed to. Cause: the link was
/// followed. Fix: it is not, and the change is refused.
#[test]
fn a_link_in_the_place_of_the_new_list_is_not_followed_and_the_list_stays_as_it_is() {
    let Made { directory, mut list, store } = made();
    let one = directory.path().join("store");
    let (before, outside) = (listed(&one), directory.path().join("outside"));
    fs::write(&outside, "somebody's").expect("written");
    std::os::unix::fs::symlink(&outside, one.join("volumes.new")).expect("a link");
    let refused = list.grow(&store, &directory.path().join("three"), BYTES).expect_err("refused");
    assert!(refused.to_string().contains("volumes.new"), "{refused}");
    assert_eq!(fs::read(&outside).expect("there"), b"somebody's");
    assert_eq!(listed(&one), before);
    fs::remove_file(one.join("volumes.new")).expect("removed");
    // What a kill left of a longer list is written over whole.
    fs::write(one.join("volumes.new"), [b'x'; 10_000]).expect("written");
    let mut list = VolumeList::read(&one).expect("read");
    list.grow(&store, &directory.path().join("four"), BYTES).expect("grown");
    assert_eq!(listed(&one), [before, line(&directory.path().join("four"))].concat());
}
