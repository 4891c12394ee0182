//! Flipped bits, cut, swapped and foreign files: an object is served as it was put, or not at all.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use disk::{Disk, LocalDisk};
use packstore::{Mode, OpenOptions, PutOptions, Store, StoreError, StoreOptions, VolumeSpec};

fn directory() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    let dir = if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() };
    dir.expect("a directory")
}

fn disk(dir: &tempfile::TempDir) -> Arc<dyn Disk> {
    Arc::new(LocalDisk::open(dir.path()).expect("it opens"))
}

fn create(dirs: &[&tempfile::TempDir], mode: Mode) -> Store {
    let volumes = dirs.iter().map(|dir| VolumeSpec { disk: disk(dir), size_bytes: 8 << 20 }).collect();
    Store::create(volumes, StoreOptions { mode, ..StoreOptions::default() }).expect("made")
}

fn open(dirs: &[&tempfile::TempDir]) -> Result<Store, StoreError> {
    Store::open(dirs.iter().map(|dir| disk(dir)).collect(), OpenOptions::default())
}

fn body(number: u32) -> Vec<u8> {
    let len = if number == 3 { 300_000 } else { 100 + number as usize * 37 };
    (0..len as u32).map(|at| (at.wrapping_mul(number + 7) >> 3) as u8).collect()
}

fn fill(store: &Store) {
    for number in 0..20u32 {
        let meta = vec![number as u8; 30];
        let options = PutOptions { meta: &meta, expires_s: 5, created_s: None };
        store.put(&number.to_le_bytes(), &body(number), options).expect("put");
    }
    assert!(store.link(&1u32.to_le_bytes(), b"second name").expect("linked"));
    assert!(store.delete(&2u32.to_le_bytes()).expect("deleted"));
}

/// Each object is as it was put, or an error, or gone; returns how many are not as put.
fn wrong(store: &Store, what: &str) -> usize {
    let mut wrong = 0;
    for number in (0..20u32).filter(|&number| number != 2) {
        match store
            .get(&number.to_le_bytes())
            .and_then(|found| found.map(|object| object.read_all()).transpose())
        {
            Ok(Some(found)) => assert!(found == body(number), "{what}: {number} is served wrong"),
            Ok(None) | Err(_) => wrong += 1,
        }
    }
    wrong
}

fn files(dir: &tempfile::TempDir) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir.path()).expect("listed").map(|entry| entry.expect("an entry").path());
    let mut files =
        entries.filter(|path| path.file_name().is_some_and(|name| name != "lock")).collect::<Vec<_>>();
    files.sort();
    files
}

/// Closes a store, or drops it as a kill would.
fn end(store: Store, clean: bool) {
    if clean { store.close().expect("closed") } else { drop(store) }
}

#[test]
fn whatever_bit_flips_in_whatever_file_no_object_is_served_wrong() {
    for clean in [true, false] {
        let dir = directory();
        let store = create(&[&dir], Mode::Store);
        fill(&store);
        end(store, clean);
        let kept =
            files(&dir).into_iter().map(|path| (fs::read(&path).expect("read"), path)).collect::<Vec<_>>();
        let mut damaged_seen = 0;
        for (bytes, path) in &kept {
            let end = bytes.iter().rposition(|&byte| byte != 0).unwrap_or(0) + 1;
            for flip in 0..40 {
                for (bytes, path) in &kept {
                    fs::write(path, bytes).expect("put back");
                }
                let mut flipped = bytes.clone();
                // Heads closely, the rest by steps that meet all fields in the end.
                let at = if flip < 20 { flip * 5 % end } else { flip * 7_919 % end };
                flipped[at] ^= 1 << (flip % 8);
                fs::write(path, &flipped).expect("flipped");
                let what = format!("{} byte {at} clean {clean}", path.display());
                match open(&[&dir]) {
                    Ok(store) => {
                        damaged_seen += usize::from(wrong(&store, &what) > 0);
                        store.check(|_, _| {}).expect("checked");
                        let repaired = store.repair(|_, _| {}).expect("repaired");
                        let again = store.check(|_, _| {}).expect("checked").faults;
                        assert_eq!((repaired.left, again), (vec![], vec![]), "{what}");
                        store
                            .put(b"new", b"body", PutOptions::default())
                            .expect("a repaired store takes objects");
                    }
                    Err(error) => panic!("{what}: {error}"),
                }
            }
        }
        assert!(damaged_seen > 5, "the flips met no object");
    }
}

/// Puts a directory, a link or a pipe there.
fn put_in_the_way(path: &Path, what: &str, elsewhere: &Path) {
    match what {
        "a directory" => fs::create_dir(path).expect("made"),
        "a symbolic link" => std::os::unix::fs::symlink(elsewhere, path).expect("a link"),
        _ => rustix::fs::mkfifoat(rustix::fs::CWD, path, 0o600.into()).expect("a pipe"),
    }
}

/// Symptom: a directory, a link or a pipe in the place of one file made a store unusable, and the message named neither what was
/// there nor what to do.
#[test]
fn what_is_in_the_place_of_a_file_is_named_and_a_repair_moves_it_aside_and_does_without_the_file() {
    let names = [
        "00000000.index",
        "table",
        "volume",
        "volume.copy",
        "lock",
        "volume.new",
        "volume.copy.new",
        "table.new",
    ];
    let elsewhere = directory();
    let precious = elsewhere.path().join("precious");
    for (name, what) in
        names.iter().flat_map(|name| ["a directory", "a symbolic link", "a pipe"].map(|what| (*name, what)))
    {
        fs::write(&precious, "another's").expect("written");
        let dir = directory();
        let store = create(&[&dir], Mode::Store);
        fill(&store);
        store.close().expect("closed");
        let path = dir.path().join(name);
        let _ = fs::remove_file(&path);
        put_in_the_way(&path, what, &precious);
        let refused = open(&[&dir]).err().unwrap_or_else(|| panic!("{what} for {name} is not noticed"));
        let text = refused.to_string();
        assert!([what, name, "crumb pack repair"].iter().all(|part| text.contains(part)), "{text}");

        let reading = OpenOptions { read_only: true, ..OpenOptions::default() };
        let store = Store::open(vec![disk(&dir)], reading)
            .unwrap_or_else(|error| panic!("{what} for {name}: {error}"));
        assert_eq!(wrong(&store, name), 0, "{what} for {name}: all is readable");
        let faults = store.check(|_, _| {}).expect("checked").faults;
        assert!(
            faults.iter().any(|fault| fault.what.contains(what) && fault.what.contains(name)),
            "{faults:?}"
        );
        drop(store);

        let mending = OpenOptions { move_aside: true, ..OpenOptions::default() };
        let store = Store::open(vec![disk(&dir)], mending)
            .unwrap_or_else(|error| panic!("{what} for {name}: {error}"));
        let repaired = store.repair(|_, _| {}).expect("repaired");
        assert!(
            repaired.found.faults.iter().any(|fault| fault.what.contains(".aside")),
            "{:?}",
            repaired.found
        );
        assert_eq!(repaired.left, [], "{what} for {name}");
        store.close().expect("closed");
        assert!(
            dir.path().join(format!("{name}.aside")).symlink_metadata().is_ok(),
            "{what} for {name} is kept"
        );
        assert_eq!(fs::read_to_string(&precious).expect("there"), "another's", "no link is followed");
        let store = open(&[&dir]).expect("it opens");
        assert_eq!(store.check(|_, _| {}).expect("checked").faults, [], "{what} for {name}");
        assert_eq!(wrong(&store, name), 0, "{what} for {name}");
    }
}

/// Symptom: a data file that had been moved elsewhere and linked back was taken for lost: a repair renamed the link, deleted all objects
/// of the segment, and they stayed deleted when the data file was put back. Cause: a data file was moved aside as the files are that a
/// repair can do without. Fix: a repair refuses before it changes anything, and says what to do.
#[test]
fn what_is_in_the_place_of_a_data_file_makes_a_repair_refuse_and_the_file_put_back_has_all_objects() {
    for (what, clean) in ["a directory", "a symbolic link", "a pipe"]
        .into_iter()
        .flat_map(|what| [(what, true), (what, false)])
    {
        let (dir, elsewhere) = (directory(), directory());
        let store = create(&[&dir], Mode::Store);
        fill(&store);
        end(store, clean);
        let (path, moved) = (dir.path().join("00000000.body"), elsewhere.path().join("moved"));
        fs::copy(&path, &moved).expect("copied");
        fs::remove_file(&path).expect("removed");
        put_in_the_way(&path, what, &moved);
        // Something that a repair does without is in the way too: it is not moved before the refusal.
        let pipe = dir.path().join("volume.new");
        put_in_the_way(&pipe, "a pipe", &moved);
        let before = state(&dir);
        let names = |text: &str| {
            [what, "00000000.body", "put the data file back", "repair` refuses"]
                .iter()
                .all(|part| text.contains(part))
        };

        let mending = OpenOptions { move_aside: true, ..OpenOptions::default() };
        for options in [mending, OpenOptions::default()] {
            let refused = Store::open(vec![disk(&dir)], options).err().expect("refused");
            assert!(names(&refused.to_string()), "{what}: {refused}");
            assert_eq!(state(&dir), before, "{what}: a refusal changes nothing");
        }
        let reading = OpenOptions { read_only: true, ..OpenOptions::default() };
        let store = Store::open(vec![disk(&dir)], reading).expect("it may be looked at");
        let faults = store.check(|_, _| {}).expect("checked").faults;
        let named = faults.iter().filter(|fault| names(&fault.what)).collect::<Vec<_>>();
        assert!(matches!(named[..], [fault] if fault.by_hand && !fault.is_damaged), "{what}: {faults:?}");
        assert!(
            !faults.iter().any(|fault| fault.is_damaged),
            "{what}: nothing is known to be lost: {faults:?}"
        );
        drop(store);
        assert_eq!(state(&dir), before, "{what}: a check changes nothing");

        if what == "a directory" {
            fs::remove_dir(&path).expect("removed");
        } else {
            fs::remove_file(&path).expect("removed");
        }
        fs::remove_file(&pipe).expect("removed");
        fs::copy(&moved, &path).expect("put back");
        let store = open(&[&dir]).expect("it opens");
        assert_eq!(store.repair(|_, _| {}).expect("repaired").found.faults, [], "{what}");
        assert_eq!(wrong(&store, what), 0, "{what}: all is readable, clean {clean}");
        assert_eq!(store.get(b"second name").expect("whole").expect("there").length(), body(1).len() as u64);
    }
}

/// Names, kinds and bytes of all that is in a directory.
fn state(dir: &tempfile::TempDir) -> Vec<(PathBuf, String, Vec<u8>)> {
    let state = |path: PathBuf| {
        let kind = path.symlink_metadata().expect("there").file_type();
        let bytes = if kind.is_file() { fs::read(&path).expect("read") } else { Vec::new() };
        (path, format!("{kind:?}"), bytes)
    };
    files(dir).into_iter().map(state).collect()
}

/// Symptom: a check by a user who may not read a data file advised a repair; a repair by one who may not, after a kill, dropped what the
/// index named last. Cause: what could not be read was taken for what power tore. Fix: such a file is named with the user and the cause,
/// and a repair refuses before it changes anything.
#[test]
fn a_data_file_that_cannot_be_opened_is_named_with_the_cause_and_nothing_is_lost() {
    use std::os::unix::fs::PermissionsExt as _;
    if !testkit::is_ordinary_user(
        "a_data_file_that_cannot_be_opened_is_named_with_the_cause_and_nothing_is_lost",
    ) {
        return;
    }
    for clean in [true, false] {
        let dir = directory();
        let store = create(&[&dir], Mode::Store);
        fill(&store);
        end(store, clean);
        let path = dir.path().join("00000000.body");
        let allow = |mode| fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
        let user = format!("user {} cannot open `00000000.body`: ", rustix::process::geteuid().as_raw());
        allow(0);
        let reading = OpenOptions { read_only: true, ..OpenOptions::default() };
        let store = Store::open(vec![disk(&dir)], reading).expect("it may be looked at");
        let faults = store.check(|_, _| {}).expect("checked").faults;
        assert!(matches!(&faults[..], [fault] if fault.by_hand && !fault.is_damaged), "{faults:?}");
        for part in [&user[..], "denied", "is not lost", "objects in it that were not read: 20"] {
            assert!(faults[0].what.contains(part), "{part}: {faults:?}");
        }
        drop(store);

        let mending = OpenOptions { move_aside: true, ..OpenOptions::default() };
        let refused = Store::open(vec![disk(&dir)], mending).err().expect("refused");
        assert!(refused.to_string().contains(&user), "{refused}");
        // As a program does that repairs a store which it has open.
        let store = open(&[&dir]).expect("it opens");
        let refused = store.repair(|_, _| {}).expect_err("refused");
        assert!(matches!(&refused, StoreError::NoAccess { .. }), "{refused}");
        drop(store);
        allow(0o600);
        let store = open(&[&dir]).expect("it opens");
        assert_eq!(store.repair(|_, _| {}).expect("repaired").found.faults, [], "clean {clean}");
        assert_eq!(wrong(&store, "readable again"), 0, "clean {clean}");
    }
}

/// Where the first segment holds a body.
fn place_of(dir: &tempfile::TempDir, body: &[u8]) -> usize {
    let bytes = fs::read(dir.path().join("00000000.body")).expect("read");
    bytes.windows(body.len()).position(|window| window == body).expect("it is there")
}

fn flip(dir: &tempfile::TempDir, at: usize) {
    let path = dir.path().join("00000000.body");
    let mut bytes = fs::read(&path).expect("read");
    bytes[at] ^= 4;
    fs::write(&path, &bytes).expect("flipped");
}

#[test]
fn a_flipped_bit_in_a_body_is_an_error_that_is_counted_and_can_be_replaced() {
    let dir = directory();
    let store = create(&[&dir], Mode::Store);
    fill(&store);
    let at = place_of(&dir, &body(9));
    flip(&dir, at + 50);
    let error = store.get(&9u32.to_le_bytes()).expect_err("damaged");
    assert!(error.to_string().contains("its body fails its checksum"), "{error}");
    assert_eq!(store.usage().damaged_reads, 1);
    let faults = store.check(|_, _| {}).expect("checked").faults;
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert_eq!(faults[0].key, Some(9u32.to_le_bytes().to_vec()));
    // A head that cannot be read any more: its index record tells what is to be replaced.
    flip(&dir, at - 40);
    store.put(&9u32.to_le_bytes(), b"anew", PutOptions::default()).expect("replaced");
    assert_eq!(store.get(&9u32.to_le_bytes()).expect("whole").expect("there").whole(), Some(&b"anew"[..]));
    assert_eq!(store.check(|_, _| {}).expect("checked").faults, []);
}

#[test]
fn what_was_durable_before_a_kill_and_is_damaged_since_is_an_error_and_brings_nothing_older_back() {
    for mode in [Mode::Store, Mode::Cache] {
        let dir = directory();
        let store = create(&[&dir], mode);
        for version in [9, 10] {
            store.put(b"key", &body(version), PutOptions::default()).expect("put");
            store.flush().expect("flushed");
        }
        drop(store);
        flip(&dir, place_of(&dir, &body(10)) + 50);
        let store = open(&[&dir]).expect("opened");
        assert!(store.wait_until_ready(std::time::Duration::from_secs(60)));
        let error = store.get(b"key").map(|found| found.map(|object| object.length())).expect_err("damaged");
        assert!(error.to_string().contains("its body fails its checksum"), "{mode:?}: {error}");
        assert_eq!(store.usage().torn_puts, 0, "{mode:?}");
    }
}

#[test]
fn what_is_durable_is_said_to_be_at_the_end_of_the_index_s_room_too() {
    let dir = directory();
    let store = create(&[&dir], Mode::Store);
    // Index records of 112 bytes, a mark of 24 after each: 482 of both reach beyond the first 64 KiB by 16 bytes.
    let key = |number: u32| format!("{number:060}").into_bytes();
    for number in 0..481 {
        store.put(&key(number), b"small", PutOptions::default()).expect("put");
    }
    store.put(&key(481), &body(10), PutOptions::default()).expect("put");
    drop(store);
    flip(&dir, place_of(&dir, &body(10)) + 50);
    let store = open(&[&dir]).expect("opened");
    let error = store.get(&key(481)).map(|found| found.map(|object| object.length()));
    let error = error.expect_err("it was durable, and is damaged");
    assert!(error.to_string().contains("its body fails its checksum"), "{error}");
    assert_eq!(store.usage().torn_puts, 0);
}

#[test]
fn cut_swapped_and_foreign_files_cost_their_objects_and_nothing_else() {
    let (one, other) = (directory(), directory());
    let store = create(&[&one], Mode::Store);
    fill(&store);
    drop(store);
    let stranger = create(&[&other], Mode::Store);
    fill(&stranger);
    drop(stranger);
    for name in ["00000000.body", "00000000.index"] {
        let path = one.path().join(name);
        let kept = fs::read(&path).expect("read");
        for len in [0, 10, 64, 100, 1_000, kept.len() - 1] {
            fs::write(&path, &kept[..len]).expect("cut");
            let store = open(&[&one]).expect("it opens");
            wrong(&store, &format!("{name} cut to {len}"));
        }
        // Another store's file with the same keys in it.
        fs::copy(other.path().join(name), &path).expect("copied");
        let store = open(&[&one]).expect("it opens");
        // Nothing of a stranger is taken for ours; where it is the index, our own data file tells what was in it.
        let lost = if name.ends_with("body") { 19 } else { 0 };
        assert_eq!(wrong(&store, name), lost, "{name}");
        drop(store);
        fs::write(&path, &kept).expect("put back");
    }
    let store = open(&[&one]).expect("it opens");
    assert_eq!(wrong(&store, "put back"), 0);
    drop(store);
    let error = open(&[&one, &other]).err().expect("two stores");
    assert!(matches!(error, StoreError::Foreign { .. }), "{error}");
}

#[test]
fn a_volume_that_vanished_costs_only_its_objects() {
    for mode in [Mode::Store, Mode::Cache] {
        for clean in [true, false] {
            let (one, other) = (directory(), directory());
            let store = create(&[&one, &other], mode);
            for number in 0..200u32 {
                store.put(&number.to_le_bytes(), &body(number), PutOptions::default()).expect("put");
            }
            store.flush().expect("flushed");
            let on_first = store.volumes()[0].live_bytes;
            assert!(on_first > 0 && store.volumes()[1].live_bytes > 0);
            if clean {
                store.close().expect("closed")
            } else {
                drop(store)
            }
            if mode == Mode::Store {
                let error = open(&[&one]).err().expect("not for writing");
                assert!(matches!(error, StoreError::Missing { found: 1, expected: 2 }), "{error}");
            }
            let options = OpenOptions { without_missing: true, ..OpenOptions::default() };
            let store = Store::open(vec![disk(&one)], options).expect("it opens");
            store.iter().expect("all is known");
            let there = (0..200u32).filter(|number| {
                let found = store.get(&number.to_le_bytes()).expect("no error");
                found.is_some_and(|object| object.read_all().expect("whole") == body(*number))
            });
            let there = there.count();
            assert!((20..180).contains(&there), "{there} of 200");
            store.put(b"goes on", b"yes", PutOptions::default()).expect("put");
            store.close().expect("closed");
            let error = open(&[&one, &other]).err().expect("it was away");
            assert!(error.to_string().contains("was away"), "{error}");
        }
    }
}

#[test]
fn a_second_process_is_told_that_the_store_is_in_use_and_may_look() {
    let dir = directory();
    let store = create(&[&dir], Mode::Store);
    fill(&store);
    let error = open(&[&dir]).err().expect("in use");
    assert!(error.to_string().contains("in use by another process"), "{error}");
    let options = OpenOptions { read_only: true, ..OpenOptions::default() };
    let looking = Store::open(vec![disk(&dir)], options).expect("it may look");
    assert_eq!(wrong(&looking, "read-only"), 0);
    assert!(matches!(looking.delete(b"second name"), Err(StoreError::ReadOnly { .. })));
    drop(looking);
    assert_eq!(wrong(&store, "after the look"), 0);
}
