//! `crumb doctor`: what it finds first on storage and machines that are known to be bad, and that it leaves nothing.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use testkit::{CpuQuota, LoopImage, SlowFuse, Tmpfs};

use crate::binary::{Bench, assert_fits};

/// What `crumb doctor TARGET --json -` says, and its page.
fn examined(target: &Path) -> (Value, String) {
    let bench = Bench::new();
    let target = target.to_str().unwrap();
    let page = bench.fine(&["doctor", target, "--json", "facts.json"]);
    let json: Value = serde_json::from_str(&bench.read("facts.json")).unwrap();
    assert_no_long_lines(&page);
    (json, page)
}

/// Commands are to be pasted, so that they are not broken over lines.
fn assert_no_long_lines(page: &str) {
    let lines = page.lines().filter(|line| !line.starts_with("  crumb ") && !line.starts_with("  du "));
    assert_fits(&lines.collect::<Vec<_>>().join("\n"));
}

fn codes(json: &Value) -> Vec<&str> {
    json["findings"].as_array().unwrap().iter().map(|finding| finding["code"].as_str().unwrap()).collect()
}

/// The first finding has this code, and the page names it first with these words.
fn assert_first(target: &Path, code: &str, words: &[&str]) -> Value {
    let (json, page) = examined(target);
    assert_eq!(codes(&json)[0], code, "{page}");
    let first = page.split("  2. ").next().unwrap().split_whitespace().collect::<Vec<_>>().join(" ");
    for words in words {
        assert!(first.contains(words), "{words}\n{page}");
    }
    let left: Vec<_> = fs::read_dir(target).unwrap().flatten().map(|entry| entry.file_name()).collect();
    let of_doctor = left.iter().filter(|name| name.to_string_lossy().starts_with("crumb-doctor-"));
    assert_eq!(of_doctor.count(), 0, "{left:?}");
    json
}

#[test]
fn a_volume_that_takes_two_milliseconds_for_each_operation_on_names_is_named_first() {
    let Some(volume) = SlowFuse::needed(Duration::from_millis(2)) else { return };
    let json =
        assert_first(volume.path(), "slow-metadata", &["Metadata operations are slow", " ms, in memory "]);
    assert!(codes(&json).contains(&"fuse"), "{json:#}");
    let build =
        json["programs"].as_array().unwrap().iter().find(|one| one["program"] == "build tree").unwrap();
    assert_eq!(build["outlook"], "suffers", "{json:#}");
}

#[test]
fn memory_is_named_first_as_what_no_reboot_leaves() {
    let Some(memory) = Tmpfs::needed("size=64m") else { return };
    let json = assert_first(memory.path(), "volatile", &["Nothing here survives a reboot"]);
    assert!(json["next"][0]["command"].as_str().unwrap().starts_with("crumb doctor /"), "{json:#}");
}

#[test]
fn a_file_system_that_is_full_to_99_percent_is_named_first_by_bytes_and_by_inodes() {
    let Some(bytes) = Tmpfs::needed("size=16m") else { return };
    fs::write(bytes.path().join("most"), vec![1; (16 << 20) * 991 / 1000]).unwrap();
    assert_first(bytes.path(), "bytes-nearly-gone", &["The file system is full: 99"]);
    let Some(inodes) = Tmpfs::needed("size=64m,nr_inodes=2000") else { return };
    for number in 0..1982 {
        fs::write(inodes.path().join(number.to_string()), "").unwrap();
    }
    let json = assert_first(inodes.path(), "inodes-nearly-gone", &["Inodes run out: 99", "are left"]);
    assert!(json["next"][0]["command"].as_str().unwrap().starts_with("du --inodes"), "{json:#}");
}

#[test]
fn a_directory_of_100_000_names_without_an_index_is_named_first() {
    let Some(image) = LoopImage::needed("ext4", 64 << 20, &["-b", "4096"]) else { return };
    let spool = image.path().join("spool");
    fs::create_dir(&spool).unwrap();
    // Names of one file: each costs a directory entry and no inode. ext4 gives a file 65,000 names at most.
    for file in 0..2 {
        let first = spool.join(format!("{}", file * 50_000));
        fs::write(&first, "").unwrap();
        (1..50_000)
            .for_each(|name| fs::hard_link(&first, spool.join((file * 50_000 + name).to_string())).unwrap());
    }
    image.drop_directory_indexes();
    let words = ["is searched from its beginning", "100,000 names"];
    let json = assert_first(image.path(), "linear-directories", &words);
    let news =
        json["programs"].as_array().unwrap().iter().find(|one| one["program"] == "news spool").unwrap();
    assert_eq!(news["outlook"], "suffers", "{json:#}");
    // Also when the directory itself is the target.
    assert_first(&spool, "linear-directories", &words);
}

#[test]
fn a_directory_that_refuses_its_next_name_was_within_the_printed_range_and_is_named_first() {
    // The smallest index there is: blocks of 1 KiB, long names of one file.
    let Some(image) = LoopImage::needed("ext4", 64 << 20, &["-b", "1024", "-O", "^large_dir"]) else {
        return;
    };
    let spool = image.path().join("spool");
    fs::create_dir(&spool).unwrap();
    let name = |number: usize| spool.join(format!("{number:0>40}"));
    let mut first = name(0);
    fs::write(&first, "").unwrap();
    let mut grow = |from: usize, to: usize| {
        (from.max(1)..to).find(|number| {
            if number % 60_000 == 0 {
                first = name(*number);
                return fs::write(&first, "").is_err();
            }
            fs::hard_link(&first, name(*number)).is_err()
        })
    };
    assert_eq!(grow(0, 50_000), None);
    let (json, page) = examined(image.path());
    let max = &json["facts"]["target"]["largest"]["names_max"];
    let (low, high) = (max["low"].as_u64().unwrap(), max["high"].as_u64().unwrap());
    assert!(high as f64 / low as f64 <= 1.15, "{low} to {high}");
    assert!(page.contains("refuses a new name at"), "{page}");
    let refused = grow(50_000, 300_000).expect("a name that is refused") as u64;
    assert!((low..=high).contains(&refused), "{refused} is not within {low} to {high}");
    let json = assert_first(image.path(), "directory-nearly-full", &["its index is full"]);
    assert!(json["next"][0]["command"].as_str().unwrap().starts_with("crumb advise --predict"), "{json:#}");
}

#[test]
fn half_a_cpu_is_named_first() {
    let Some(quota) = CpuQuota::needed(0.5) else { return };
    let bench = Bench::new();
    let output = quota
        .command(env!("CARGO_BIN_EXE_crumb"))
        .args(["doctor", "--json", "-"])
        .current_dir(bench.directory())
        .output()
        .unwrap();
    let json: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    assert_eq!(codes(&json)[0], "cpu-quota", "{json:#}");
    let text = json["findings"][0]["text"].as_str().unwrap();
    assert!(text.contains("allows 0.50 CPUs"), "{text}");
}

#[test]
fn a_read_only_target_still_gets_a_page_of_what_can_be_learned() {
    let Some(memory) = Tmpfs::needed("size=1m,ro") else { return };
    let json = assert_first(memory.path(), "read-only", &["mounted read-only"]);
    let ops: Vec<&str> = json["facts"]["places"][0]["basics"]
        .as_array()
        .unwrap()
        .iter()
        .map(|basic| basic["op"].as_str().unwrap())
        .collect();
    assert_eq!(ops, ["stat", "negative-lookup"]);
}

#[test]
fn an_ordinary_user_gets_a_page_of_a_directory_of_root() {
    let test = "doctor::an_ordinary_user_gets_a_page_of_a_directory_of_root";
    if !testkit::is_ordinary_user(test) {
        return;
    }
    let (json, page) = examined(Path::new("/usr"));
    assert!(codes(&json).iter().any(|code| ["unwritable", "read-only"].contains(code)), "{page}");
    assert!(page.contains("lookup of no file"), "{page}");
}

/// A doctor at work in `a`, and its directory, which carries the mark.
fn at_work(bench: &Bench) -> Child {
    fs::create_dir_all(bench.path("a")).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_crumb"))
        .args(["doctor", "a", "--quiet"])
        .current_dir(bench.directory())
        .env("TMPDIR", bench.directory())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let marked = || {
        let mut entries = fs::read_dir(bench.path("a")).unwrap().flatten();
        entries.any(|entry| {
            fs::read_to_string(entry.path().join("crumb-run")).is_ok_and(|mark| mark.ends_with('\n'))
        })
    };
    while !marked() {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::yield_now();
    }
    child
}

#[test]
fn a_signal_ends_it_and_nothing_is_left_and_what_a_kill_leaves_is_cleaned() {
    let bench = Bench::new();
    let mut child = at_work(&bench);
    let own = format!("crumb-doctor-{:x}", child.id());
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(fs::read_dir(bench.path("a")).unwrap().count(), 0);
    for place in [bench.directory(), Path::new("/dev/shm")] {
        assert!(!place.join(&own).exists(), "{}", place.display());
    }
    let mut child = at_work(&bench);
    let own = format!("crumb-doctor-{:x}", child.id());
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(bench.path("a").join(&own).exists());
    let text = bench.fine(&["clean", "a"]);
    assert!(text.contains(&own) && text.contains("Removed 1 directory"), "{text}");
    assert_eq!(fs::read_dir(bench.path("a")).unwrap().count(), 0);
    let shm = Path::new("/dev/shm").join(&own);
    if shm.exists() {
        fs::remove_dir_all(shm).unwrap();
    }
}

/// Symptom: the page of a disk said nothing of the files that were written in /tmp and in memory meanwhile.
#[test]
fn the_page_names_every_place_in_which_it_wrote() {
    let bench = Bench::new();
    let (json, page) = examined(bench.directory());
    let flat = page.split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, written) = flat.split_once("Test files were written in ").expect("the places");
    let (written, _) = written.split_once(", and removed").expect("removed");
    for place in json["facts"]["places"].as_array().unwrap() {
        let path = place["path"].as_str().unwrap();
        assert!(written.split([' ', ',']).any(|word| word == path), "{path} is not in {written}");
    }
}

#[test]
fn a_server_is_measured_as_far_as_it_can_be_and_other_targets_say_what_to_run() {
    let bench = Bench::in_memory();
    fs::create_dir(bench.path("a")).unwrap();
    let (mut server, url) = bench.nfs_server("a");
    let said = bench.crumb(&["doctor", &url]);
    server.kill().unwrap();
    server.wait().unwrap();
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    assert!(
        said.out.contains("a server's, by NFSv3") && said.out.contains("write 4 KiB + fsync"),
        "{}",
        said.out
    );
    assert!(
        said.out.contains(&format!("crumb run fstress '{url}'")) || said.out.contains(&url),
        "{}",
        said.out
    );
    // Symptom: its rates of reads were taken for those of the server's disk.
    let flat = said.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(flat.contains("the server answers stat, lookup and read from its own memory"), "{}", said.out);
    assert_no_long_lines(&said.out);
    assert_eq!(fs::read_dir(bench.path("a")).unwrap().count(), 0);
    let refused = bench.fails(2, &["doctor", "pack:./objects"]);
    assert!(
        refused.contains("crumb pack check ./objects") && refused.contains("crumb doctor ."),
        "{refused}"
    );
    assert!(bench.fails(2, &["doctor", "null:"]).contains("name a directory"));
    assert!(bench.fails(1, &["doctor", "nowhere"]).contains("mkdir -p nowhere"));
    bench.fails(1, &["doctor", "a", "--json", "nowhere/x.json"]);
}
