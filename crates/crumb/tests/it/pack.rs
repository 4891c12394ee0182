//! `crumb pack`: what someone types who keeps small objects packed, and what goes wrong for him.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::binary::{Bench, assert_fits};
use serde_json::Value;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// A tree with all that is kept.
fn tree(bench: &Bench) {
    let root = bench.path("tree");
    fs::create_dir_all(root.join("deep/er")).unwrap();
    fs::create_dir(root.join("empty")).unwrap();
    fs::write(root.join("small"), b"12345").unwrap();
    fs::write(root.join("none"), b"").unwrap();
    let large: Vec<u8> = (0..1_500_000_u32).map(|at| (at % 251) as u8).collect();
    fs::write(root.join("deep/large"), large).unwrap();
    fs::write(root.join("deep/er/run.sh"), b"#!/bin/sh\n").unwrap();
    fs::write(root.join("new\nline \u{2603}"), b"odd name").unwrap();
    fs::set_permissions(root.join("deep/er/run.sh"), fs::Permissions::from_mode(0o750)).unwrap();
    fs::set_permissions(root.join("empty"), fs::Permissions::from_mode(0o700)).unwrap();
    fs::hard_link(root.join("small"), root.join("deep/twin")).unwrap();
    symlink("../small", root.join("deep/link")).unwrap();
    symlink("/nowhere", root.join("dangling")).unwrap();
    for (path, seconds) in [("small", 1_000_000_000), ("deep/large", 1_234_567_890), ("empty", 999_999_999)] {
        let file = fs::File::open(root.join(path)).unwrap();
        let time = std::time::UNIX_EPOCH + std::time::Duration::new(seconds, 123_000_000);
        file.set_times(fs::FileTimes::new().set_modified(time)).unwrap();
    }
}

/// Everything below, compared byte for byte. `nanoseconds`: a tar stream has none.
fn looked_at(root: &Path, nanoseconds: bool) -> BTreeMap<String, String> {
    fn walk(root: &Path, path: &Path, nanoseconds: bool, found: &mut BTreeMap<String, String>) {
        for entry in fs::read_dir(path).unwrap().flatten() {
            let path = entry.path();
            let there = fs::symlink_metadata(&path).unwrap();
            let holds = if there.is_symlink() {
                fs::read_link(&path).unwrap().display().to_string()
            } else if there.is_dir() {
                walk(root, &path, nanoseconds, found);
                "/".to_owned()
            } else {
                format!("{} names, {:?}", there.nlink(), fs::read(&path).unwrap())
            };
            let time = (there.mtime(), if nanoseconds { there.mtime_nsec() } else { 0 });
            let name = path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
            found.insert(name, format!("{:o} {time:?} {holds}", there.mode()));
        }
    }
    let mut found = BTreeMap::new();
    walk(root, root, nanoseconds, &mut found);
    found
}

/// Runs the binary with bytes on standard input; gives standard output.
fn piped(bench: &Bench, args: &[&str], input: &[u8]) -> (i32, Vec<u8>, String) {
    let mut child = Command::new(assert_cmd::cargo::cargo_bin!("crumb"))
        .args(args)
        .current_dir(bench.directory())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let feeder = std::thread::spawn(move || {
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().unwrap();
    feeder.join().unwrap();
    (output.status.code().unwrap_or(-1), output.stdout, String::from_utf8_lossy(&output.stderr).into_owned())
}

fn with_store() -> Bench {
    let bench = Bench::in_memory();
    bench.fine(&["pack", "create", "store", "--size", "64MiB"]);
    bench
}

#[test]
fn a_tree_comes_back_byte_for_byte_with_modes_times_and_links() {
    let bench = with_store();
    tree(&bench);
    let put = json(&bench.fine(&["pack", "put", "store", "-C", "tree", ".", "--json"]));
    assert_eq!((put["files"].as_u64(), put["directories"].as_u64()), (Some(5), Some(3)), "{put}");
    assert_eq!((put["symlinks"].as_u64(), put["hard_links"].as_u64()), (Some(2), Some(1)), "{put}");
    let got = json(&bench.fine(&["pack", "get", "store", "--all", "-o", "back", "--json"]));
    assert_eq!((got["refused"].as_u64(), got["links"].as_u64()), (Some(0), Some(3)), "{got}");
    assert_eq!(looked_at(&bench.path("tree"), true), looked_at(&bench.path("back"), true));
    // Once more over what is there, and one tree alone.
    bench.fine(&["pack", "get", "store", "--all", "-o", "back"]);
    assert_eq!(looked_at(&bench.path("tree"), true), looked_at(&bench.path("back"), true));
    bench.fine(&["pack", "get", "store", "deep/er", "small", "-o", "part"]);
    let part = looked_at(&bench.path("part"), true);
    assert_eq!(part.keys().collect::<Vec<_>>(), ["deep", "deep/er", "deep/er/run.sh", "small"]);
    let checked = bench.crumb(&["pack", "check", "store"]);
    assert_eq!(checked.code, 0, "{}", checked.err);
    assert!(checked.err.contains("0 faults"), "{}", checked.err);
}

#[test]
fn a_tree_goes_through_tar_both_ways() {
    let bench = with_store();
    tree(&bench);
    bench.fine(&["pack", "put", "store", "tree"]);
    let (code, stream, said) = piped(&bench, &["pack", "get", "store", "--all", "-o", "-"], b"");
    assert_eq!(code, 0, "{said}");
    bench.fine(&["pack", "create", "other", "--size", "64MiB"]);
    let (code, _, said) = piped(&bench, &["pack", "put", "other", "-"], &stream);
    assert_eq!(code, 0, "{said}");
    bench.fine(&["pack", "get", "other", "--all", "-o", "back"]);
    assert_eq!(looked_at(&bench.path("tree"), false), looked_at(&bench.path("back/tree"), false));
    // tar(1) agrees.
    fs::create_dir(bench.path("by-tar")).unwrap();
    fs::write(bench.path("stream.tar"), &stream).unwrap();
    if testkit::need::program("tar", "tar").is_none() {
        return;
    }
    let mut tar = Command::new("tar");
    tar.args(["-xpf", "stream.tar", "-C", "by-tar"]).current_dir(bench.directory());
    assert!(tar.status().unwrap().success());
    assert_eq!(looked_at(&bench.path("tree"), false), looked_at(&bench.path("by-tar/tree"), false));
    let mut tar = Command::new("tar");
    let made = tar.args(["-cf", "-", "tree"]).current_dir(bench.directory()).output().unwrap();
    bench.fine(&["pack", "create", "third", "--size", "64MiB"]);
    assert_eq!(piped(&bench, &["pack", "put", "third", "-"], &made.stdout).0, 0);
    bench.fine(&["pack", "get", "third", "--all", "-o", "again"]);
    assert_eq!(looked_at(&bench.path("tree"), false), looked_at(&bench.path("again/tree"), false));
    // A stream that breaks off keeps what came before, and says so.
    let (code, _, said) = piped(&bench, &["pack", "put", "other", "-"], &stream[..stream.len() / 2]);
    assert_eq!(code, 1);
    assert!(said.contains("tar stream"), "{said}");
    bench.fine(&["pack", "check", "other"]);
}

#[test]
fn what_would_lead_out_of_the_directory_is_refused_and_the_rest_goes_on() {
    let bench = with_store();
    // Keys such as these come from programs or other people's streams.
    let mut header = tar_header("fine", 4);
    header.extend_from_slice(&block(b"fine"));
    for (name, body) in [("../out", "evil"), ("a/../../out", "evil")] {
        header.extend_from_slice(&tar_header(name, 4));
        header.extend_from_slice(&block(body.as_bytes()));
    }
    header.extend_from_slice(&[0; 1024]);
    let (code, _, said) = piped(&bench, &["pack", "put", "store", "-"], &header);
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("../out") && said.contains("2 entries were not put"), "{said}");
    assert_eq!(bench.fine(&["pack", "ls", "store"]), "fine\n");
    assert!(bench.fails(2, &["pack", "put", "store", "../x"]).contains("-C"));

    // By the library, any key goes in.
    {
        let disk = std::sync::Arc::new(disk::LocalDisk::open(bench.path("store")).unwrap());
        let store = packstore::Store::open(vec![disk], Default::default()).unwrap();
        for key in ["../out", "/tmp/abs", "a//b", "ok/file"] {
            store.put(key.as_bytes(), b"body", Default::default()).unwrap();
        }
        let link = packfs::FileMeta::new(packfs::FileType::Symlink(b"..".to_vec()), 0o777).encode();
        store.put(b"up", b"", packstore::PutOptions { meta: &link, ..Default::default() }).unwrap();
        store.put(b"up/climbed", b"evil", Default::default()).unwrap();
        store.close().unwrap();
    }
    fs::create_dir(bench.path("into")).unwrap();
    let said = bench.crumb(&["pack", "get", "store", "--all", "-o", "into/dir"]);
    assert_eq!(said.code, 1);
    assert!(
        said.err.contains("../out: it holds `..`") && said.err.contains("/tmp/abs: it begins with"),
        "{}",
        said.err
    );
    assert!(said.err.contains("not written"), "{}", said.err);
    assert_eq!(bench.read("into/dir/ok/file"), "body");
    assert!(
        !bench.path("out").exists()
            && !bench.path("into/out").exists()
            && !bench.path("into/climbed").exists()
    );
    // A link that is there already is not followed either.
    fs::create_dir(bench.path("second")).unwrap();
    symlink("../into", bench.path("second/ok")).unwrap();
    let said = bench.crumb(&["pack", "get", "store", "ok/file", "-o", "second"]);
    assert_eq!(said.code, 1);
    assert!(
        said.err.contains("no directory; remove it") && !bench.path("into/file").exists(),
        "{}",
        said.err
    );
}

/// Root may get objects into a directory of a user, who may exchange directories and links meanwhile.
#[test]
fn a_directory_that_becomes_a_link_while_objects_are_written_leads_nowhere() {
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    let bench = with_store();
    fs::create_dir(bench.path("tree")).unwrap();
    for number in 0..1500 {
        fs::write(bench.path(&format!("tree/{number}")), b"x").unwrap();
    }
    bench.fine(&["pack", "put", "store", "tree"]);
    for directory in ["into", "into/tree", "outside"] {
        fs::create_dir(bench.path(directory)).unwrap();
    }
    symlink("../outside", bench.path("into/link")).unwrap();
    let (over, exchanges) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut said = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (tree, link) = (bench.path("into/tree"), bench.path("into/link"));
            while !over.load(Ordering::Relaxed) {
                renameat_with(CWD, &tree, CWD, &link, RenameFlags::EXCHANGE).unwrap();
                exchanges.fetch_add(1, Ordering::Relaxed);
            }
        });
        for _ in 0..3 {
            said.push(bench.crumb(&["pack", "get", "store", "--all", "-o", "into"]));
        }
        over.store(true, Ordering::Relaxed);
    });
    assert!(exchanges.load(Ordering::Relaxed) > 100, "{exchanges:?}");
    assert_eq!(fs::read_dir(bench.path("outside")).unwrap().count(), 0, "{exchanges:?} exchanges");
    for said in said {
        assert!(said.code == 0 || said.err.contains("no directory; remove it"), "{}", said.err);
    }
}

fn tar_header(name: &str, length: usize) -> Vec<u8> {
    let mut header = vec![0; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[100..107].copy_from_slice(b"0000644");
    header[124..135].copy_from_slice(format!("{length:011o}").as_bytes());
    header[136..147].copy_from_slice(b"00000000000");
    header[156] = b'0';
    header[257..265].copy_from_slice(b"ustar\x0000");
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    header
}

fn block(body: &[u8]) -> Vec<u8> {
    let mut block = body.to_vec();
    block.resize(body.len().next_multiple_of(512), 0);
    block
}

#[test]
fn objects_are_listed_told_of_and_removed() {
    let bench = with_store();
    tree(&bench);
    bench.fine(&["pack", "put", "store", "tree"]);
    let listed = bench.fine(&["pack", "ls", "store", "tree/deep/"]);
    assert_eq!(
        listed,
        "tree/deep/er\ntree/deep/er/run.sh\ntree/deep/large\ntree/deep/link\ntree/deep/twin\n"
    );
    let long = bench.fine(&["pack", "ls", "store", "-l"]);
    assert!(long.contains("-rwxr-x---") && long.contains("tree/deep/link -> ../small"), "{long}");
    assert!(long.contains("2001-09-09 01:46:40 tree/small"), "{long}");
    assert!(!long.contains("new\nline"), "a key moves the cursor:\n{long}");
    let lines = bench.fine(&["pack", "ls", "store", "--json", "tree/deep/large"]);
    assert_eq!(json(&lines)["bytes"], 1_500_000, "{lines}");
    let told = bench.fine(&["pack", "stat", "store"]);
    assert_fits(&told);
    assert!(told.contains("Objects") && told.contains("64 bytes") || told.contains("64 B"), "{told}");
    let told = json(&bench.fine(&["pack", "stat", "store", "--json"]));
    assert_eq!((told["objects"].as_u64(), told["mode"].as_str()), (Some(12), Some("store")), "{told}");
    let object = json(&bench.fine(&["pack", "stat", "store", "tree/small", "--json"]));
    assert_eq!(
        (object[0]["mtime_s"].as_i64(), object[0]["kind"].as_str()),
        (Some(1_000_000_000), Some("file"))
    );
    assert!(bench.fails(1, &["pack", "stat", "store", "none-such"]).contains("none-such: no such object"));
    let removed = bench.crumb(&["pack", "rm", "store", "tree/small", "never"]);
    assert_eq!(removed.code, 1);
    assert!(
        removed.err.contains("1 object deleted") && removed.err.contains("never: no such object"),
        "{}",
        removed.err
    );
    // The other name of the same file is still there.
    bench.fine(&["pack", "get", "store", "tree/deep/twin", "-o", "."]);
    assert_eq!(bench.read("tree/deep/twin"), "12345");
    let removed = json(&bench.fine(&["pack", "rm", "store", "--prefix", "tree/", "--json"]));
    assert_eq!(removed["deleted"], 10);
    assert_eq!(bench.fine(&["pack", "ls", "store"]), "tree\n");
}

#[test]
fn a_store_that_is_open_is_locked_for_writers_and_readable_for_the_others() {
    let bench = with_store();
    bench.write("file", "12345");
    bench.fine(&["pack", "put", "store", "file"]);
    let disk = std::sync::Arc::new(disk::LocalDisk::open(bench.path("store")).unwrap());
    let held = packstore::Store::open(vec![disk], Default::default()).unwrap();
    for args in [
        &["pack", "put", "store", "file"][..],
        &["pack", "rm", "store", "file"],
        &["pack", "check", "store"],
        &["pack", "repair", "store"],
        &["pack", "compact", "store"],
        &["pack", "grow", "store", "--volume", "more", "--size", "64MiB"],
    ] {
        let said = bench.fails(1, args);
        assert!(said.contains("in use by another process"), "{args:?}: {said}");
    }
    let said = bench.crumb(&["pack", "get", "store", "file", "-o", "out"]);
    assert_eq!(said.code, 0, "{}", said.err);
    assert!(said.err.contains("another process has the store open"), "{}", said.err);
    assert_eq!(bench.read("out/file"), "12345");
    assert_eq!(bench.fine(&["pack", "ls", "store"]), "file\n");
    bench.fine(&["pack", "stat", "store"]);
    held.close().unwrap();
    bench.fine(&["pack", "check", "store"]);
}

/// Symptom: two checks could not go at once, `get` beside a check said that a process had the store open, and on read-only
/// media check failed. Cause: a check wrote the lock file and held it alone. Fix: it holds the lock that is there, shared.
#[test]
fn a_check_goes_beside_readers_and_on_read_only_media() {
    let bench = with_store();
    bench.write("file", "12345");
    bench.fine(&["pack", "put", "store", "file"]);
    let other_check = fs::File::open(bench.path("store/lock")).unwrap();
    other_check.try_lock_shared().unwrap();
    bench.fine(&["pack", "check", "store"]);
    let got = bench.crumb(&["pack", "get", "store", "file", "-o", "out"]);
    assert_eq!((got.code, got.err.contains("another process")), (0, false), "{}", got.err);
    drop(other_check);
    if !testkit::need::root("a read-only mount") {
        return;
    }
    // A mount namespace of its own: gone with the shell.
    let script = "mount --bind store store && mount -o remount,ro,bind store && ! touch store/file 2>/dev/null \
                  && exec \"$0\" pack check store";
    let checked = Command::new("unshare")
        .args(["--mount", "sh", "-c", script])
        .arg(assert_cmd::cargo::cargo_bin!("crumb"))
        .current_dir(bench.directory())
        .output()
        .unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    assert!(String::from_utf8_lossy(&checked.stderr).contains("1 object"), "{checked:?}");
}

#[test]
fn one_object_comes_from_standard_input_and_goes_to_standard_output() {
    let bench = with_store();
    // Longer than what is put in one piece, and no text.
    let long: Vec<u8> = (0..700_000_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    for (key, body) in [("dir/long", &long[..]), ("short", b"12345"), ("empty", b"")] {
        let (code, _, said) = piped(&bench, &["pack", "put", "store", "--as", key, "-"], body);
        assert_eq!(code, 0, "{said}");
        let (code, got, said) = piped(&bench, &["pack", "cat", "store", key], b"");
        assert_eq!((code, got == body), (0, true), "{said}");
    }
    bench.write("file", "67890");
    bench.fine(&["pack", "put", "store", "--as", "other", "file"]);
    assert_eq!(bench.fine(&["pack", "cat", "store", "short", "other"]), "1234567890");
    assert!(bench.fails(1, &["pack", "cat", "store", "none-such"]).contains("none-such: no such object"));
    let said = bench.fails(2, &["pack", "put", "store", "--as", "key", "file", "-"]);
    assert!(said.contains("--as names one object"), "{said}");
    fs::create_dir(bench.path("directory")).unwrap();
    let said = bench.fails(2, &["pack", "put", "store", "--as", "key", "directory"]);
    assert!(said.contains("is a directory"), "{said}");
    assert_eq!(bench.fine(&["pack", "ls", "store"]), "dir/long\nempty\nother\nshort\n");
}

#[test]
fn keys_that_are_not_text_are_listed_so_that_they_can_be_named() {
    let bench = with_store();
    let run = |args: &[&[u8]]| {
        let output = Command::new(assert_cmd::cargo::cargo_bin!("crumb"))
            .args(args.iter().map(|arg| std::ffi::OsStr::from_bytes(arg)))
            .current_dir(bench.directory())
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    bench.write("file", "12345");
    let key: &[u8] = b"caf\xe9/\xff";
    run(&[b"pack", b"put", b"store", b"--as", key, b"file"]);
    assert_eq!(run(&[b"pack", b"ls", b"store"]), "caf\\xe9/\\xff\n");
    let listed = json(&run(&[b"pack", b"ls", b"store", b"caf\xe9", b"--json"]));
    assert_eq!(listed["key_hex"], "636166e92fff", "{listed}");
    assert_eq!(run(&[b"pack", b"cat", b"store", key]), "12345");
    assert_eq!(json(&run(&[b"pack", b"stat", b"store", b"--json", key]))[0]["bytes"], 5);
    run(&[b"pack", b"get", b"store", key, b"-o", b"out"]);
    let got = bench.path("out").join(std::ffi::OsStr::from_bytes(key));
    assert_eq!(fs::read(got).unwrap(), b"12345");
    run(&[b"pack", b"rm", b"store", key]);
    assert_eq!(run(&[b"pack", b"ls", b"store"]), "");
}

/// Symptom: `pack stat` beside a running proxy said 0 objects. Cause: a cache answers with misses until all that it holds is
/// known, which after anything but a close takes a moment, and nothing waited for it.
#[test]
fn a_cache_that_another_process_has_open_is_told_of_as_it_is_on_disk() {
    let bench = Bench::in_memory();
    bench.fine(&["pack", "create", "cache", "--size", "64MiB", "--mode", "cache"]);
    let disk = std::sync::Arc::new(disk::LocalDisk::open(bench.path("cache")).unwrap());
    let cache = packstore::Store::open(vec![disk], Default::default()).unwrap();
    for number in 0..500_u32 {
        cache.put(format!("key {number}").as_bytes(), &[7; 3000], Default::default()).unwrap();
    }
    cache.flush().unwrap();
    let told = json(&bench.fine(&["pack", "stat", "cache", "--json"]));
    assert_eq!(told["objects"], 500, "{told}");
    assert_eq!(bench.fine(&["pack", "ls", "cache"]).lines().count(), 500);
    assert_eq!(bench.fine(&["pack", "cat", "cache", "key 499"]).len(), 3000);
    bench.fine(&["pack", "get", "cache", "key 0", "-o", "out"]);
    cache.close().unwrap();
}

#[test]
fn a_flipped_bit_is_found_by_name_and_place_and_repaired_at_the_cost_of_its_object() {
    let bench = with_store();
    for name in ["one", "two", "three"] {
        bench.write(name, &name.repeat(1000));
    }
    bench.fine(&["pack", "put", "store", "one", "two", "three"]);
    let body = fs::read_dir(bench.path("store")).unwrap().flatten().map(|entry| entry.path());
    let mut damaged = 0;
    for path in body.filter(|path| path.extension().is_some_and(|end| end == "body")) {
        let mut bytes = fs::read(&path).unwrap();
        let Some(at) = bytes.windows(12).position(|window| window == b"twotwotwotwo") else { continue };
        bytes[at + 100] ^= 4;
        fs::write(&path, bytes).unwrap();
        damaged += 1;
    }
    assert_eq!(damaged, 1);
    let said = bench.crumb(&["pack", "check", "store"]);
    assert_eq!(said.code, 1);
    assert!(said.out.contains("segment 00000") && said.out.contains("object two:"), "{}", said.out);
    assert!(said.err.contains("1 fault; `crumb pack repair`"), "{}", said.err);
    let got = bench.crumb(&["pack", "get", "store", "--all", "-o", "out"]);
    assert_eq!(got.code, 1);
    assert!(bench.path("out/one").exists() && !bench.path("out/two").exists(), "{}", got.err);
    let repaired = json(&bench.fine(&["pack", "repair", "store", "--json"]));
    assert_eq!(
        (repaired["deleted"].as_u64(), &repaired["found"]["faults"][0]["key"]),
        (Some(1), &Value::from("two"))
    );
    bench.fine(&["pack", "check", "store"]);
    assert_eq!(bench.fine(&["pack", "ls", "store"]), "one\nthree\n");
}

/// What one file costs when it is damaged: what is in it, at most.
#[test]
fn a_damaged_index_and_a_missing_body_cost_only_what_is_in_them_and_repair_says_what_it_could_not_do() {
    let bench = Bench::in_memory();
    fs::create_dir(bench.path("tree")).unwrap();
    for number in 0..60 {
        bench.write(&format!("tree/{number:02}"), &format!("{number}").repeat(10_000));
    }
    bench.fine(&["pack", "create", "store", "--size", "8M", "--packed-blocks", "8192"]);
    bench.fine(&["pack", "put", "store", "tree"]);
    let whole = bench.fine(&["pack", "ls", "store"]);
    assert_eq!(whole.lines().count(), 61);
    let index = bench.path("store/00000000.index");
    let mut bytes = fs::read(&index).unwrap();
    bytes[..64].fill(0);
    fs::write(&index, bytes).unwrap();
    assert_eq!(bench.fine(&["pack", "ls", "store"]), whole);
    bench.fine(&["pack", "get", "store", "--all", "-o", "out"]);
    assert_eq!(bench.read("out/tree/07"), "7".repeat(10_000));
    let said = bench.crumb(&["pack", "check", "store"]);
    assert_eq!(said.code, 1, "{}", said.err);
    assert!(said.out.contains("segment 00000000: the head of its index is damaged"), "{}", said.out);
    bench.fine(&["pack", "repair", "store"]);
    bench.fine(&["pack", "check", "store"]);
    assert_eq!(bench.fine(&["pack", "ls", "store"]), whole);

    fs::remove_file(bench.path("store/00000000.body")).unwrap();
    assert_eq!(bench.fine(&["pack", "ls", "store"]), whole);
    let got = bench.crumb(&["pack", "get", "store", "--all", "-o", "rest"]);
    assert_eq!(got.code, 1);
    assert!(got.err.contains("it is not served"), "{}", got.err);
    let rest = fs::read_dir(bench.path("rest/tree")).unwrap().count();
    assert!((10..55).contains(&rest), "{rest} of 60 are in other files");
    bench.write("more", "more");
    bench.fine(&["pack", "put", "store", "more"]);
    let repaired = json(&bench.fine(&["pack", "repair", "store", "--json"]));
    assert_eq!(repaired["left"], Value::Array(Vec::new()));
    assert!(repaired["deleted"].as_u64().is_some_and(|deleted| deleted >= 60 - rest as u64), "{repaired}");
    bench.fine(&["pack", "check", "store"]);
    bench.fine(&["pack", "rm", "store", "more"]);
}

/// A store on three directories with 60 objects, and what `ls` says of it.
fn on_three_directories() -> (Bench, String) {
    let bench = Bench::in_memory();
    fs::create_dir(bench.path("tree")).unwrap();
    for number in 0..60 {
        bench.write(&format!("tree/{number:02}"), &format!("{number}").repeat(3_000));
    }
    bench.fine(&["pack", "create", "store", "--size", "8M", "--volume", "second", "--volume", "third"]);
    bench.fine(&["pack", "put", "store", "tree"]);
    let listed = bench.fine(&["pack", "ls", "store"]);
    (bench, listed)
}

#[test]
fn a_directory_is_removed_or_replaced_and_all_objects_are_in_the_others() {
    let (bench, listed) = on_three_directories();
    bench.fine(&["pack", "member", "remove", "store", "second"]);
    fs::remove_dir_all(bench.path("second")).unwrap();
    bench.fine(&["pack", "check", "store"]);
    assert_eq!(bench.fine(&["pack", "ls", "store"]), listed);
    bench.fine(&["pack", "member", "replace", "store", "third", "fourth"]);
    fs::remove_dir_all(bench.path("third")).unwrap();
    bench.fine(&["pack", "check", "store"]);
    assert_eq!(bench.fine(&["pack", "ls", "store"]), listed);
    bench.fine(&["pack", "get", "store", "--all", "-o", "out"]);
    assert_eq!(looked_at(&bench.path("out/tree"), true), looked_at(&bench.path("tree"), true));
    let directories = json(&bench.fine(&["pack", "stat", "store", "--json"]));
    assert_eq!(directories["volumes"].as_array().map(Vec::len), Some(2), "{directories}");
    let refused = bench.crumb(&["pack", "member", "remove", "store", "store"]);
    assert_eq!(refused.code, 2, "{}", refused.err);
    assert!(refused.err.contains("the store's own directory"), "{}", refused.err);
    let refused = bench.crumb(&["pack", "member", "give-up", "store", "fourth"]);
    assert_eq!(refused.code, 2, "{}", refused.err);
    assert!(refused.err.contains("is there"), "{}", refused.err);
    bench.fine(&["pack", "check", "store"]);
}

#[test]
fn a_lost_directory_is_told_of_and_given_up_or_replaced_and_the_store_takes_objects_again() {
    for verb in ["give-up", "replace"] {
        let (bench, listed) = on_three_directories();
        fs::rename(bench.path("second"), bench.path("elsewhere")).unwrap();
        let said = bench.crumb(&["pack", "check", "store"]);
        assert_eq!(said.code, 1, "{}", said.out);
        assert!(said.out.contains("a volume is not here: "), "{}", said.out);
        assert!(said.out.contains("records of the last clean stop are missing"), "{}", said.out);
        bench.write("more", "more");
        let refused = bench.crumb(&["pack", "put", "store", "more"]);
        assert_eq!(refused.code, 1);
        assert!(refused.err.contains("crumb pack member give-up"), "{}", refused.err);
        let mut args = vec!["pack", "member", verb, "store", "second"];
        if verb == "replace" {
            args.push("fourth");
        }
        bench.fine(&args);
        bench.fine(&["pack", "check", "store"]);
        bench.fine(&["pack", "put", "store", "more"]);
        let left = bench.fine(&["pack", "ls", "store"]).lines().count();
        assert!(left > 10 && left < listed.lines().count(), "{left}");
    }
}

/// All verbs that are to show all there is.
fn assert_incomplete(bench: &Bench, why: &str) {
    for args in [
        &["get", "store", "--all", "-o", "out"][..],
        &["get", "store", "tree", "-o", "out"],
        &["get", "store", "--all", "-o", "-"],
        &["ls", "store"],
        &["stat", "store"],
    ] {
        let (code, _, said) = piped(bench, &[&["pack"], args].concat(), b"");
        assert_eq!(code, 1, "{args:?}: {said}");
        // The line may be wrapped.
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains(why) && said.contains("`crumb pack check`"), "{args:?}: {said}");
    }
}

#[test]
fn a_store_of_which_a_directory_is_away_is_not_shown_as_if_it_were_whole() {
    let (bench, _) = on_three_directories();
    fs::rename(bench.path("second"), bench.path("elsewhere")).unwrap();
    assert_incomplete(&bench, "a volume is not here");
    fs::rename(bench.path("elsewhere"), bench.path("second")).unwrap();
    bench.fine(&["pack", "get", "store", "--all", "-o", "out"]);
    bench.fine(&["pack", "stat", "store"]);
}

#[test]
fn a_store_whose_index_is_cut_or_damaged_is_not_shown_as_if_it_were_whole() {
    let bench = with_store();
    fs::create_dir(bench.path("tree")).unwrap();
    for number in 0..200 {
        bench.write(&format!("tree/{number:03}"), &format!("{number}").repeat(1_000));
    }
    bench.fine(&["pack", "put", "store", "tree"]);
    let index = bench.path("store/00000000.index");
    let whole = fs::read(&index).unwrap();
    fs::write(&index, &whole[..6000]).unwrap();
    assert_incomplete(&bench, "segment 00000000");
    let mut zeroed = whole;
    zeroed[4096..8192].fill(0);
    fs::write(&index, &zeroed).unwrap();
    assert_incomplete(&bench, "segment 00000000");
    // One object that is there is given.
    bench.fine(&["pack", "get", "store", "tree/000", "-o", "one"]);
    bench.fine(&["pack", "repair", "store"]);
    bench.fine(&["pack", "get", "store", "--all", "-o", "back"]);
    assert_eq!(fs::read_dir(bench.path("back/tree")).unwrap().count(), 200);
}

#[test]
fn an_empty_stream_is_no_tar_stream() {
    let bench = with_store();
    let (code, _, said) = piped(&bench, &["pack", "put", "store", "-"], b"");
    assert_eq!(code, 1, "{said}");
    assert!(said.contains("it holds nothing"), "{said}");
    // An archive without entries is one.
    let (code, _, said) = piped(&bench, &["pack", "put", "store", "-"], &[0; 1024]);
    assert_eq!(code, 0, "{said}");
}

#[test]
fn a_store_on_two_directories_grows_by_a_third_and_is_compacted() {
    let bench = Bench::in_memory();
    let made = bench.fine(&["pack", "create", "store", "--size", "8MiB", "--volume", "two=16MiB", "--json"]);
    assert_eq!(json(&made)["size_bytes"], 24 << 20, "{made}");
    fs::create_dir(bench.path("tree")).unwrap();
    for number in 0..40 {
        bench.write(&format!("tree/{number:03}"), &format!("{number:03}").repeat(100_000));
    }
    bench.fine(&["pack", "put", "store", "tree"]);
    let grown =
        json(&bench.fine(&["pack", "grow", "store", "--volume", "three", "--size", "16MiB", "--json"]));
    assert_eq!(
        (grown["size_bytes"].as_u64(), grown["volumes"].as_array().unwrap().len()),
        (Some(40 << 20), 3)
    );
    assert!(
        bench.fails(2, &["pack", "grow", "store", "--volume", "two", "--size", "16MiB"]).contains("already")
    );
    // Every other one goes: half of each segment is free.
    let keys: Vec<String> =
        (0..40).filter(|number| number % 4 != 0).map(|number| format!("tree/{number:03}")).collect();
    let mut rm = vec!["pack", "rm", "store"];
    rm.extend(keys.iter().map(String::as_str));
    bench.fine(&rm);
    let compacted = json(&bench.fine(&["pack", "compact", "store", "--json"]));
    let (before, after) = (compacted["body_bytes_before"].as_u64(), compacted["body_bytes_after"].as_u64());
    assert!(after < before && compacted["packed_files_removed"].as_u64() > Some(0), "{compacted}");
    bench.fine(&["pack", "check", "store"]);
    bench.fine(&["pack", "get", "store", "--all", "-o", "out"]);
    assert_eq!(bench.read("out/tree/008"), "008".repeat(100_000));
    // A volume that is away: said, and nothing is made up.
    fs::rename(bench.path("two"), bench.path("away")).unwrap();
    let said = bench.fails(1, &["pack", "put", "store", "tree"]);
    assert!(said.contains("2 of 3 volumes"), "{said}");
}

#[test]
fn what_cannot_be_is_said_with_what_to_do() {
    let bench = with_store();
    assert!(bench.fails(1, &["pack", "ls", "nowhere"]).contains("crumb pack create nowhere"));
    assert!(
        bench
            .fails(1, &["pack", "create", "store", "--size", "64MiB"])
            .contains("holds files of a packed store already")
    );
    assert!(
        bench
            .fails(2, &["pack", "create", "tiny", "--size", "1KiB"])
            .contains("a segment and its index do not fit")
    );
    for (size, more) in [("1M", &[][..]), ("1M", &["--cyclic"]), ("9MiB", &["--packed-blocks", "131072"])] {
        let create = |directory, bytes| [&["pack", "create", directory, "--size", bytes][..], more].concat();
        let said = bench.fails(2, &create("small", size));
        let (_, least) = said.split_once("at least ").unwrap_or_else(|| panic!("{said}"));
        let least: u64 = least.split(' ').next().unwrap().parse().unwrap();
        let (directory, below, just) =
            (format!("least{least}"), format!("{}B", least - 1), format!("{least}B"));
        bench.fails(2, &create("small", &below));
        bench.fine(&create(&directory, &just));
    }
    let odd = bench.fails(2, &["pack", "create", "odd", "--size", "64MiB", "--block-size", "100B"]);
    assert!(odd.contains("power of two"), "{odd}");
    assert!(bench.fails(2, &["pack", "create", "x", "--size", "ten"]).contains("--size"));
    assert!(
        bench
            .fails(2, &["pack", "create", "x", "--size", "64MiB", "--volume", "y=much"])
            .contains("DIR=SIZE")
    );
    assert!(bench.fails(1, &["pack", "put", "store", "missing"]).contains("missing"));
    assert!(bench.fails(1, &["pack", "get", "store", "missing", "-o", "out"]).contains("no such object"));
    assert!(bench.fails(2, &["pack", "get", "store", "-o", "out"]).contains("KEY"));
    assert_eq!(
        Command::new("mkfifo").arg(bench.path("pipe")).status().map(|status| status.success()).ok(),
        Some(true)
    );
    let said = bench.fails(1, &["pack", "put", "store", "pipe"]);
    assert!(said.contains("device, socket or pipe") && said.contains("1 entry was not put"), "{said}");
    let full = vec![7_u8; 80 << 20];
    fs::write(bench.path("huge"), full).unwrap();
    assert!(bench.fails(1, &["pack", "put", "store", "huge"]).contains("the store is full"));
    bench.fine(&["pack", "check", "store"]);
    assert_eq!(bench.fine(&["pack", "ls", "store"]), "", "nothing of it stays");
    // What cannot be looked at is not said to be missing.
    bench.write("no-directory", "");
    let said = bench.fails(1, &["pack", "ls", "no-directory"]);
    assert!(said.contains("cannot be looked at") && said.contains("Not a directory"), "{said}");
}

#[test]
fn a_look_at_a_place_measures_both_ways_and_leaves_nothing() {
    let bench = Bench::in_memory();
    fs::create_dir(bench.path("place")).unwrap();
    let figures = bench.fine(&["pack", "bench", "place", "--objects", "300", "--rounds", "2"]);
    assert_fits(&figures);
    for word in ["put", "get", "get again", "miss", "packed/s", "files/s"] {
        assert!(figures.contains(word), "{figures}");
    }
    let figures = json(&bench.fine(&[
        "pack",
        "bench",
        "place",
        "--objects",
        "50",
        "--rounds",
        "1",
        "--durable",
        "--json",
    ]));
    for rate in ["put_per_sec", "get_per_sec", "get_again_per_sec", "miss_per_sec"] {
        assert!(figures["packed"][rate]["median"].as_f64() > Some(0.0), "{figures}");
    }
    assert_eq!(fs::read_dir(bench.path("place")).unwrap().count(), 0);
}

#[test]
fn postmark_and_the_news_run_on_a_packed_store_and_the_spool_is_verified() {
    let bench = Bench::in_memory();
    let said = bench.crumb(&[
        "run",
        "postmark",
        "pack:store",
        "--number",
        "200",
        "--transactions",
        "300",
        "--json",
        "-",
    ]);
    assert!(said.code == 0 || said.code == 3, "{}", said.err);
    assert!(said.err.contains("made a packed store"), "{}", said.err);
    let record = json(&said.out);
    assert!(record["metrics"]["transactions_per_sec"].as_f64() > Some(0.0), "{record}");
    // Made for the run, and gone with it; the spool below is kept, and so is its store.
    assert!(!bench.path("store").exists());
    let said = bench.crumb(&["run", "netnews", "pack:store", "--quick", "--passes", "2", "--keep", "kept"]);
    assert!(said.code == 0 || said.code == 3, "{}", said.err);
    let verified = bench.fine(&["feed", "verify", "pack:store/crumb-netnews-kept"]);
    assert!(verified.contains("RIGHT"), "{verified}");
    bench.fine(&["pack", "check", "store"]);
    let refused = bench.fails(2, &["run", "fstress", "pack:store", "--rate", "10"]);
    assert!(refused.contains("packed store"), "{refused}");
}

#[test]
fn ctrl_c_ends_a_put_soon_and_what_was_put_until_then_is_whole() {
    let bench = with_store();
    let mut child = Command::new(assert_cmd::cargo::cargo_bin!("crumb"))
        .args(["pack", "put", "store", "-"])
        .current_dir(bench.directory())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // A stream without end, over the same names again and again.
    let mut stdin = child.stdin.take().unwrap();
    let feeder = std::thread::spawn(move || {
        let body = block(&[b'x'; 1_000]);
        (0..).find(|number| {
            let header = tar_header(&format!("file{}", number % 100), 1_000);
            stdin.write_all(&header).and_then(|()| stdin.write_all(&body)).is_err()
        })
    });
    let index = bench.path("store/00000000.index");
    while fs::metadata(&index).map_or(0, |found| found.len()) < 50_000 {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::yield_now();
    }
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(feeder.join().unwrap().is_some(), "the stream was cut off");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(130), "{said}");
    assert!(said.contains("interrupted; what was put until then is in the store"), "{said}");
    assert!(bench.path("store/table").exists(), "it ended cleanly");
    bench.fine(&["pack", "check", "store"]);
    let names = bench.fine(&["pack", "ls", "store"]);
    assert!(names.lines().count() > 50, "{names}");
}

#[test]
fn when_an_object_was_deleted_is_told_of_a_key_that_has_none() {
    let bench = with_store();
    for name in ["kept", "gone"] {
        bench.write(name, "12345");
    }
    let begun_s = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    bench.fine(&["pack", "put", "store", "kept", "gone"]);
    bench.fine(&["pack", "rm", "store", "gone"]);
    let said = bench.crumb(&["pack", "stat", "store", "kept", "gone", "never", "--json"]);
    assert_eq!(said.code, 1, "{}", said.err);
    assert!(said.err.contains("gone: no such object; it was deleted at 2"), "{}", said.err);
    assert!(said.err.contains("never: no such object\n"), "{}", said.err);
    let told = json(&said.out);
    assert_eq!(
        (&told[0]["key"], &told[1]["key"], told.as_array().map(Vec::len)),
        (&"kept".into(), &"gone".into(), Some(2))
    );
    assert_eq!(told[1]["kind"], "deleted", "{told}");
    assert!(told[1]["deleted_s"].as_u64().is_some_and(|seconds| seconds >= begun_s), "{told}");
}

/// Symptom: a line with a zero byte in `volumes` kept `check` from checking anything, `repair` said that nothing was wrong, and
/// both wrote the line to the terminal as it was. Cause: each line was taken for a path, which it could not be.
#[test]
fn a_damaged_line_of_the_list_of_volumes_is_told_escaped_and_all_else_is_checked() {
    let bench = with_store();
    fs::create_dir(bench.path("second")).unwrap();
    bench.write("file", "12345");
    bench.fine(&["pack", "grow", "store", "--volume", "second", "--size", "64MiB"]);
    bench.fine(&["pack", "put", "store", "file"]);
    let list = bench.path("store/volumes");
    let listed = fs::read(&list).unwrap();
    fs::write(&list, [&listed[..], b"a\0b\x1b[31mRED\n\x1b[2J\xff\n"].concat()).unwrap();
    for verb in ["check", "repair"] {
        let said = bench.crumb(&["pack", verb, "store"]);
        assert_eq!(said.code, 1, "{verb}: {}", said.err);
        assert!(
            said.out.contains("the line `a\\0b\\u{1b}[31mRED` is no path; remove it, or"),
            "{verb}: {}",
            said.out
        );
        assert!(said.err.contains("1 object of"), "{verb} looked at none: {}", said.err);
        assert!(said.err.contains("\\x1b[2J\\xff: left out"), "{verb}: {}", said.err);
        assert!(!said.out.contains('\u{1b}') && !said.err.contains('\u{1b}'), "{verb}: {:?}", said.err);
    }
    // It goes only by the hand of who knows what it was.
    fs::create_dir(bench.path("third")).unwrap();
    bench.fine(&["pack", "grow", "store", "--volume", "third", "--size", "64MiB"]);
    assert!(fs::read(&list).unwrap().windows(3).any(|bytes| bytes == b"a\0b"));
    assert_eq!(bench.fine(&["pack", "cat", "store", "file"]), "12345");
    let kept: Vec<u8> = fs::read(&list)
        .unwrap()
        .split_inclusive(|byte| *byte == b'\n')
        .filter(|line| !line.contains(&0x1b))
        .flatten()
        .copied()
        .collect();
    fs::write(&list, kept).unwrap();
    bench.fine(&["pack", "repair", "store"]);
    bench.fine(&["pack", "check", "store"]);
}

/// Symptom: `pack put` ended with 0 after it had said that a segment takes no more objects.
#[test]
fn a_put_into_a_store_with_a_damaged_index_stores_all_and_fails() {
    let bench = with_store();
    bench.write("one", "12345");
    bench.write("two", "67890");
    bench.fine(&["pack", "put", "store", "one"]);
    let index = bench.path("store/00000000.index");
    let mut bytes = fs::read(&index).unwrap();
    bytes[..64].fill(0xa5);
    fs::write(&index, bytes).unwrap();
    let said = bench.fails(1, &["pack", "put", "store", "two"]);
    assert!(
        said.contains("error: all was put, but the store is damaged: the indexes of 1 segment are"),
        "{said}"
    );
    assert_eq!(bench.fine(&["pack", "cat", "store", "one", "two"]), "1234567890");
    bench.fine(&["pack", "repair", "store"]);
    bench.fine(&["pack", "put", "store", "two"]);
}

/// Symptom: bytes of a stream that is no tar, and whole keys however long, went to the terminal.
#[test]
fn what_a_broken_stream_holds_does_not_reach_the_terminal_and_no_key_is_told_at_length() {
    let bench = with_store();
    let noise: Vec<u8> = (0..2048_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let mut half = Vec::new();
    let mut builder = tar::Builder::new(&mut half);
    let mut header = tar::Header::new_gnu();
    header.set_size(5);
    builder.append_data(&mut header, "whole", &b"12345"[..]).unwrap();
    drop(builder);
    half.truncate(1024);
    half.extend_from_slice(b"\x1b[31mname\x07");
    half.resize(2048, 0x1b);
    for stream in [&noise, &half] {
        let (code, _, said) = piped(&bench, &["pack", "put", "store", "-"], stream);
        assert_eq!(code, 1, "{said}");
        assert!(!said.chars().any(|letter| letter.is_control() && letter != '\n'), "{said:?}");
    }
    let long = "k".repeat(5000);
    let (code, _, said) = piped(&bench, &["pack", "put", "store", "--as", &long, "-"], b"12345");
    assert!(code == 1 && said.contains("k… (5000") && said.len() < 1000, "{code}: {said}");
    let said = bench.fails(1, &["pack", "cat", "store", &long]);
    assert!(said.contains("k… (5000 bytes): no such object") && said.len() < 1000, "{said}");
}

/// Symptom: a user's set-user-ID program that root put and got was a set-user-ID program of root. Cause: a store keeps modes and
/// no owners. Fix: the bits are not written.
#[test]
fn no_program_runs_as_somebody_else_because_it_was_put_and_got() {
    let bench = Bench::in_memory();
    fs::create_dir_all(bench.path("tree/bin")).unwrap();
    fs::write(bench.path("tree/bin/run"), b"#!/bin/sh\n").unwrap();
    fs::set_permissions(bench.path("tree/bin/run"), fs::Permissions::from_mode(0o6755)).unwrap();
    fs::set_permissions(bench.path("tree/bin"), fs::Permissions::from_mode(0o2755)).unwrap();
    bench.fine(&["pack", "create", "s", "--size", "16MiB"]);
    bench.fine(&["pack", "put", "s", "tree"]);
    let listed = bench.fine(&["pack", "ls", "-l", "s"]);
    assert!(listed.contains("-rwsr-sr-x") && listed.contains("drwxr-sr-x"), "{listed}");
    let got = bench.crumb(&["pack", "get", "s", "--all", "-o", "back"]);
    let said = got.err;
    assert_eq!(got.code, 0, "{said}");
    assert!(
        said.replace('\n', " ").contains("2 entries were put with a set-user-ID or set-group-ID bit"),
        "{said}"
    );
    let mode = |path: &str| fs::metadata(bench.path(path)).unwrap().mode() & 0o7777;
    let root = fs::read_dir(bench.path("back")).unwrap().next().unwrap().unwrap().path();
    let root = root.strip_prefix(bench.path("")).unwrap().display().to_string();
    assert_eq!((mode(&format!("{root}/bin/run")), mode(&format!("{root}/bin"))), (0o755, 0o755));
    let (_, stream, _) = piped(&bench, &["pack", "get", "s", "--all", "-o", "-"], b"");
    let mut archive = tar::Archive::new(&stream[..]);
    let modes: Vec<u32> =
        archive.entries().unwrap().map(|entry| entry.unwrap().header().mode().unwrap()).collect();
    assert!(modes.len() >= 2 && modes.iter().all(|mode| mode & 0o6000 == 0), "{modes:?}");
}

/// Symptom: of a sparse file in the pax form the data alone was stored, or data with the map of its holes, and all was said to be
/// well. Cause: the reader of tar streams does not know that form. Fix: such an entry is refused.
#[test]
fn a_sparse_file_in_the_pax_form_is_refused_and_the_rest_is_put() {
    let bench = Bench::in_memory();
    let mut builder = tar::Builder::new(Vec::new());
    builder
        .append_pax_extensions([("GNU.sparse.major", &b"1"[..]), ("GNU.sparse.minor", &b"0"[..])])
        .unwrap();
    for name in ["sparse", "plain"] {
        let mut header = tar::Header::new_ustar();
        header.set_mode(0o644);
        header.set_size(5);
        builder.append_data(&mut header, name, &b"12345"[..]).unwrap();
    }
    bench.fine(&["pack", "create", "s", "--size", "16MiB"]);
    let (code, _, refused) = piped(&bench, &["pack", "put", "s", "-"], &builder.into_inner().unwrap());
    assert_eq!(code, 1, "{refused}");
    let refused = refused.replace('\n', " ");
    assert!(refused.contains("sparse") && refused.contains("--format=gnu"), "{refused}");
    assert_eq!(bench.fine(&["pack", "ls", "s"]).trim(), "plain");
}

/// Symptom: a pipe in the place of a store's file made every verb wait for ever. Fix: only regular files are opened.
#[test]
fn a_pipe_in_the_place_of_a_file_of_the_store_is_an_error_and_nothing_waits_for_it() {
    let bench = Bench::in_memory();
    for name in ["volumes", "volume", "table", "00000000.index", "00000000.body", "lock"] {
        let store = format!("s-{name}");
        bench.fine(&["pack", "create", &store, "--size", "16MiB"]);
        fs::write(bench.path("one"), b"12345").unwrap();
        bench.fine(&["pack", "put", &store, "one"]);
        let path = bench.path(&store).join(name);
        let _ = fs::remove_file(&path);
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &path,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
        for verb in [&["check"][..], &["stat"], &["ls"]] {
            // That it ends is the point.
            bench.crumb(&[&["pack"][..], verb, &[store.as_str()]].concat());
        }
        let checked = bench.crumb(&["pack", "check", &store]);
        assert!(
            matches!(name, "table" | "lock") || checked.code == 1,
            "{name}: {} {}",
            checked.code,
            checked.err
        );
    }
}

#[test]
fn a_store_is_made_only_where_nothing_else_is() {
    let bench = Bench::new();
    fs::create_dir_all(bench.path("used")).unwrap();
    bench.write("used/b.txt", "mine");
    bench.write("used/a.txt", "mine");
    for args in [
        &["pack", "create", "used", "--size", "64MiB"][..],
        &["pack", "create", "new", "--size", "64MiB", "--volume", "used"],
    ] {
        let said = bench.fails(1, args);
        let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("used: has other files already (`a.txt`)"), "{said}");
    }
    assert_eq!(fs::read_dir(bench.path("used")).unwrap().count(), 2, "nothing was made");
    assert!(!bench.path("new").exists(), "nothing was made");
    assert!(bench.fails(1, &["pack", "ls", "used"]).contains("no packed store; make one with"));
    // A disk of its own has this from the beginning.
    fs::create_dir_all(bench.path("disk/lost+found")).unwrap();
    bench.fine(&["pack", "create", "disk", "--size", "64MiB"]);
    // A proxy keeps this beside its cache, which may be made again.
    fs::create_dir_all(bench.path("cache")).unwrap();
    bench.write("cache/bans", "");
    bench.fine(&["pack", "create", "cache", "--size", "64MiB", "--mode", "cache"]);
}

#[test]
fn a_store_that_may_use_more_than_is_free_is_made_with_a_warning() {
    let bench = Bench::new();
    // Large blocks and objects, so that the index stays small.
    let shape = ["--block-size", "64KiB", "--object-mean", "1GiB"];
    let said = bench.crumb(&[&["pack", "create", "large", "--size", "100TB"][..], &shape].concat());
    assert_eq!(said.code, 0, "{}", said.err);
    let words = said.err.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("large: the store may use") && words.contains("are free there"), "{words}");
    let said = bench.crumb(&["pack", "create", "small", "--size", "8MiB"]);
    assert!(said.code == 0 && !said.err.contains("free there"), "{}", said.err);
}
