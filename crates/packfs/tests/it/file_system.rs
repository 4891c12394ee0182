//! The store as a file system: the seam's contract, what a reopening finds, and what only a store has.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use disk::{Disk, LocalDisk};
use files::{Access, FileKind, FileSystem, OpenFile, Status, SyncScope};
use packfs::{FileMeta, FileType, PackFs};
use packstore::{OpenOptions, PutOptions, Store, StoreOptions, VolumeSpec};
use tempfile::TempDir;
use testkit::conformance;

fn scratch() -> TempDir {
    let shm = Path::new("/dev/shm");
    if shm.is_dir() { tempfile::tempdir_in(shm).unwrap() } else { tempfile::tempdir().unwrap() }
}

fn disk(scratch: &TempDir) -> Arc<dyn Disk> {
    Arc::new(LocalDisk::open(scratch.path()).unwrap())
}

fn made(scratch: &TempDir, size_bytes: u64) -> PackFs {
    let volume = VolumeSpec { disk: disk(scratch), size_bytes };
    PackFs::open(Store::create(vec![volume], StoreOptions::default()).unwrap(), "pack:test").unwrap()
}

fn reopened(scratch: &TempDir) -> PackFs {
    PackFs::open(Store::open(vec![disk(scratch)], OpenOptions::default()).unwrap(), "pack:test").unwrap()
}

fn write(fs: &dyn FileSystem, path: &str, bytes: &[u8]) {
    let mut file = fs.create(Path::new(path)).unwrap();
    write_all(&mut *file, bytes);
    file.close().unwrap();
}

fn write_all(file: &mut dyn OpenFile, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let written = file.write(bytes).unwrap();
        bytes = &bytes[written..];
    }
}

fn read(fs: &dyn FileSystem, path: &str) -> Vec<u8> {
    let mut file = fs.open(Path::new(path), Access::Read).unwrap();
    let (mut all, mut piece) = (Vec::new(), vec![0; 9001]);
    loop {
        match file.read(&mut piece).unwrap() {
            0 => return all,
            bytes => all.extend_from_slice(&piece[..bytes]),
        }
    }
}

/// Every path below, with what it is and holds.
fn all(fs: &dyn FileSystem, directory: &str, found: &mut BTreeMap<String, String>) {
    let mut names = Vec::new();
    fs.readdir(Path::new(directory), &mut |entry| {
        names.push(String::from_utf8(entry.name.to_vec()).unwrap())
    })
    .unwrap();
    for name in names {
        let path = if directory.is_empty() { name } else { format!("{directory}/{name}") };
        let stat = fs.stat(Path::new(&path)).unwrap();
        let holds = match stat.kind {
            FileKind::Directory => {
                all(fs, &path, found);
                "/".to_owned()
            }
            FileKind::Symlink => format!("-> {}", fs.readlink(Path::new(&path)).unwrap().display()),
            _ => format!("{}x {} {:?}", stat.links, stat.mtime.s, String::from_utf8_lossy(&read(fs, &path))),
        };
        found.insert(path, holds);
    }
}

fn status<T>(outcome: Result<T, files::FsError>) -> Option<Status> {
    outcome.err().and_then(|error| error.status())
}

#[test]
fn a_packed_store_does_what_every_file_system_must() {
    let scratch = scratch();
    // No quirk: what is written is seen at once, and what is unlinked stays while it is open.
    conformance::check(&made(&scratch, 512 << 20), conformance::Quirks::LOCAL);
}

#[test]
fn a_reopening_finds_the_same_tree() {
    let scratch = scratch();
    let fs = made(&scratch, 64 << 20);
    for directory in ["empty", "a", "a/b", "moved"] {
        fs.mkdir(Path::new(directory)).unwrap();
    }
    write(&fs, "a/b/file", b"12345");
    write(&fs, "a/none", b"");
    write(&fs, "one", b"shared");
    fs.link(Path::new("one"), Path::new("a/two")).unwrap();
    fs.link(Path::new("a/two"), Path::new("three")).unwrap();
    fs.symlink(Path::new("../one"), Path::new("a/link")).unwrap();
    let mut file = fs.open(Path::new("a/two"), Access::Append).unwrap();
    write_all(&mut *file, b" by three");
    file.close().unwrap();
    write(&fs, "moved/file", b"6");
    fs.rename(Path::new("moved"), Path::new("a/there")).unwrap();
    write(&fs, "large", &vec![7; 700_000]);
    fs.rename(Path::new("large"), Path::new("a/large")).unwrap();
    let mut before = BTreeMap::new();
    all(&fs, "", &mut before);
    assert!(before["three"].contains("3x") && before["three"].contains("shared by three"), "{before:?}");
    drop(fs);
    let fs = reopened(&scratch);
    let mut after = BTreeMap::new();
    all(&fs, "", &mut after);
    assert_eq!(before, after);
    // The names are still those of one file.
    let mut file = fs.open(Path::new("three"), Access::Append).unwrap();
    write_all(&mut *file, b"!");
    file.close().unwrap();
    assert_eq!(read(&fs, "one"), b"shared by three!");
    drop(fs);
    let report = Store::open(vec![disk(&scratch)], OpenOptions::default()).unwrap().check(|_, _| ()).unwrap();
    assert_eq!(report.faults, []);
}

#[test]
fn an_implied_directory_that_lost_its_last_file_is_still_there_after_a_reopening() {
    let scratch = scratch();
    let fs = made(&scratch, 64 << 20);
    fs.store().put(b"a/b/c", b"put by its key", PutOptions::default()).unwrap();
    drop(fs);
    let fs = reopened(&scratch);
    assert_eq!(status(fs.rmdir(Path::new("a/b"))), Some(Status::NOTEMPTY));
    fs.unlink(Path::new("a/b/c")).unwrap();
    drop(fs);
    let fs = reopened(&scratch);
    assert_eq!(fs.stat(Path::new("a/b")).unwrap().kind, FileKind::Directory);
    fs.rmdir(Path::new("a/b")).unwrap();
    fs.rmdir(Path::new("a")).unwrap();
    drop(fs);
    assert_eq!(Store::open(vec![disk(&scratch)], OpenOptions::default()).unwrap().usage().objects, 0);
}

#[test]
fn objects_of_strangers_are_files_and_keys_that_are_no_paths_are_counted() {
    let scratch = scratch();
    let fs = made(&scratch, 64 << 20);
    let keys: [&[u8]; 6] = [b"plain", b"http://host/x", b"/abs", b"../up", b"dir/file", b"plain/below"];
    for key in keys {
        fs.store().put(key, key, PutOptions { created_s: Some(1234), ..PutOptions::default() }).unwrap();
    }
    let meta = FileMeta { mode: 0o751, mtime_s: 99, ..FileMeta::new(FileType::Regular, 0) }.encode();
    fs.store().put(b"kept", b"", PutOptions { meta: &meta, ..PutOptions::default() }).unwrap();
    drop(fs);
    let fs = reopened(&scratch);
    // `plain` and `plain/below` cannot both be shown.
    assert_eq!(fs.hidden_objects(), 4);
    assert_eq!(fs.stat(Path::new("dir/file")).unwrap().mtime.s, 1234);
    let kept = fs.stat(Path::new("kept")).unwrap();
    assert_eq!((kept.mode, kept.mtime.s), (0o751, 99));
}

#[test]
fn a_large_file_that_is_rewritten_leaves_no_scratch_file_and_one_left_by_a_kill_is_swept() {
    let scratch = scratch();
    let fs = made(&scratch, 128 << 20);
    let bytes: Vec<u8> = (0..9_000_000_u32).map(|at| (at % 253) as u8).collect();
    let mut file = fs.create(Path::new("large")).unwrap();
    for piece in bytes.chunks(100_003) {
        write_all(&mut *file, piece);
    }
    file.sync(SyncScope::All).unwrap();
    let scratches = || {
        let names = disk(&scratch).names().unwrap();
        names.into_iter().filter(|name| name.starts_with("scratch-")).count()
    };
    assert_eq!(scratches(), 1, "4 MB are in memory at most");
    file.seek(5_000_000).unwrap();
    write_all(&mut *file, b"changed");
    file.close().unwrap();
    assert_eq!(scratches(), 0);
    std::fs::write(scratch.path().join("scratch-1-1"), b"left").unwrap();
    drop(fs);
    let fs = reopened(&scratch);
    assert_eq!(scratches(), 0);
    let mut wanted = bytes;
    wanted[5_000_000..5_000_007].copy_from_slice(b"changed");
    assert!(read(&fs, "large") == wanted);
}

#[test]
fn a_full_store_says_so_at_close_and_leaves_no_name_without_bytes() {
    let scratch = scratch();
    let fs = made(&scratch, 4 << 20);
    write(&fs, "kept", b"12345");
    let mut refused = None;
    for number in 0..100 {
        let path = format!("file-{number}");
        let mut file = fs.create(Path::new(&path)).unwrap();
        write_all(&mut *file, &vec![number; 100_000]);
        if let Err(error) = file.close() {
            assert_eq!(error.status(), Some(Status::NOSPC), "{error}");
            let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            assert!(cause.contains("full"), "{error:?}");
            refused = Some(path);
            break;
        }
    }
    let refused = refused.expect("10 MB do not fit into 4");
    assert_eq!(status(fs.stat(Path::new(&refused))), Some(Status::NOENT));
    assert_eq!(read(&fs, "kept"), b"12345");
    fs.unlink(Path::new("file-0")).unwrap();
    write(&fs, "again", &[1; 1000]);
    assert_eq!(read(&fs, "again"), [1; 1000]);
}

#[test]
fn threads_that_rename_link_write_and_remove_leave_names_and_objects_that_agree() {
    let scratch = scratch();
    let fs = made(&scratch, 128 << 20);
    for directory in ["a", "b"] {
        fs.mkdir(Path::new(directory)).unwrap();
    }
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let fs = &fs;
            scope.spawn(move || {
                let mut random = thread + 1;
                let mut next = |below: u64| {
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    (random >> 33) % below
                };
                for _ in 0..400 {
                    let one = format!("{}/{}", ["a", "b"][next(2) as usize], next(6));
                    let other = format!("{}/{}", ["a", "b"][next(2) as usize], next(6));
                    let (one, other) = (Path::new(&one), Path::new(&other));
                    // Any of them may fail: others are at the same names.
                    match next(6) {
                        0 => drop(fs.create(one).map(|mut file| file.write(&[thread as u8; 500]))),
                        1 => drop(
                            fs.open(one, Access::Append).map(|mut file| file.write(&[thread as u8; 700])),
                        ),
                        2 => drop(fs.rename(one, other)),
                        3 => drop(fs.link(one, other)),
                        4 => drop(fs.unlink(one)),
                        _ => drop(fs.open(one, Access::Read).map(|mut file| file.read(&mut [0; 2000]))),
                    }
                }
            });
        }
    });
    let mut before = BTreeMap::new();
    all(&fs, "", &mut before);
    drop(fs);
    let fs = reopened(&scratch);
    let mut after = BTreeMap::new();
    all(&fs, "", &mut after);
    assert_eq!(before, after);
}
