//! `crumb manage`, `unmanage`, `check` and `advise`: what an administrator of a spool types, and kill -9.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::binary::{Bench, assert_fits, is_one_error};

/// A group of articles, a name that is no number, and a group in it that is called like a subdirectory of ours.
fn group(bench: &Bench, articles: u64) -> PathBuf {
    let group = bench.path("spool/control");
    fs::create_dir_all(group.join("345")).unwrap();
    fs::write(group.join("345/1"), "in a group called 345").unwrap();
    fs::write(group.join(".overview"), "overview").unwrap();
    for number in 0..articles {
        fs::write(group.join((100_000 + number).to_string()), number.to_string()).unwrap();
    }
    group
}

/// Every file below, wherever it lies, by its name: inode, and how often it is there.
fn files_below(path: &Path, found: &mut BTreeMap<String, (u64, u32)>) {
    for entry in fs::read_dir(path).unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap();
        if entry.file_type().unwrap().is_dir() {
            files_below(&entry.path(), found);
        } else if name != ".times" {
            found.entry(name).or_insert((entry.metadata().unwrap().ino(), 0)).1 += 1;
        }
    }
}

fn files_of(path: &Path) -> BTreeMap<String, (u64, u32)> {
    let mut found = BTreeMap::new();
    files_below(path, &mut found);
    found
}

#[test]
fn a_group_is_managed_looked_at_and_made_plain_again_with_the_same_files() {
    let bench = Bench::in_memory();
    let group = group(&bench, 500);
    let before = files_of(&group);
    let planned = bench.fine(&["manage", "--dry-run", "spool/control"]);
    assert!(planned.contains("flat with 502 entries; would be managed in layout 345"), "{planned}");
    assert!(group.join("100000").exists());
    let done = bench.fine(&["manage", "spool/control"]);
    assert_fits(&done);
    assert!(done.contains("managed in layout 345: 502 entries"), "{done}");
    assert!(group.join("000/100000").is_file() && group.join("034/345/1").is_file());
    let checked = bench.fine(&["check", "spool"]);
    assert!(checked.contains("RIGHT") && checked.contains("502"), "{checked}");
    assert!(bench.fine(&["manage", "spool/control"]).contains("managed in layout 345 already"));
    assert!(bench.fails(1, &["manage", "--layout", "456", "spool/control"]).contains("crumb unmanage"));
    assert!(bench.fine(&["unmanage", "spool/control"]).contains("flat: 502 entries"));
    assert!(files_of(&group) == before);
    assert!(group.join("345/1").is_file() && !group.join("034").exists());
    let done = bench.fine(&["manage", "--layout", "hash:2", "spool/control/345", "spool/control"]);
    assert_eq!(done.matches("managed in layout hash:2").count(), 2, "{done}");
    bench.fine(&["check", "spool"]);
}

/// Symptom: `crumb manage` without --layout put all names that are not numbers into one subdirectory, and made "1 subdirectories".
#[test]
fn names_that_are_not_numbers_are_spread_by_their_hash_and_it_says_so() {
    let bench = Bench::in_memory();
    fs::create_dir(bench.path("mail")).unwrap();
    for number in 0..600 {
        bench.write(&format!("mail/{number}.M1P2.host"), "");
    }
    let in_one_line = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let planned = bench.fine(&["manage", "--dry-run", "mail"]);
    assert_fits(&planned);
    let planned = in_one_line(&planned);
    let chosen = "managed in layout hash:2 (its names are not numbers)";
    assert!(planned.contains(&format!("600 entries; would be {chosen}, in about 2")), "{planned}");
    for how in
        [&["manage", "--dry-run", "--layout", "345", "mail"][..], &["manage", "--layout", "345", "mail"]]
    {
        let said = bench.crumb(how);
        assert_eq!(said.code, 0, "{}", said.err);
        let (out, warning) = (in_one_line(&said.out), in_one_line(&said.err));
        assert!(
            out.contains("layout 345") && out.contains("1 subdirectory") && !out.contains("numbers"),
            "{out}"
        );
        assert!(warning.contains("warning: most of its names are not numbers"), "{warning}");
        assert!(warning.contains("`--layout hash:2` spreads them"), "{warning}");
    }
    let reverted = bench.crumb(&["unmanage", "mail"]);
    assert!(!reverted.err.contains("next:"), "{}", reverted.err);
    let said = bench.crumb(&["manage", "mail"]);
    assert!(in_one_line(&said.out).contains(&format!("{chosen}: 600 entries moved, 2")), "{}", said.out);
    assert!(!said.err.contains("warning"), "{}", said.err);
    assert_fits(&said.err);
    let next = in_one_line(&said.err);
    assert!(next.contains("next: until a `crumb mount` shows it, programs see the subdirectories"), "{next}");
    assert!(
        next.contains("`crumb mount mail MOUNTPOINT`") && next.contains("`crumb unmanage mail`"),
        "{next}"
    );
}

#[test]
fn wrong_usage_and_places_that_cannot_be_converted_are_one_error_each() {
    let bench = Bench::in_memory();
    group(&bench, 3);
    assert!(bench.fails(2, &["manage"]).contains("<DIR>"));
    assert!(bench.fails(2, &["manage", "--layout", "789", "spool"]).contains("the layouts are"));
    assert!(bench.fails(2, &["manage", "--layout", "flat", "spool"]).contains("crumb unmanage"));
    assert!(bench.fails(2, &["advise", "--layout", "flat", "spool"]).contains("weighed against"));
    for verb in ["manage", "unmanage", "check", "advise"] {
        assert!(bench.fails(2, &[verb]).contains("Usage"), "{verb}");
        for (path, why) in [("no/such/place", "No such file"), ("spool/control/.overview", "Not a directory")]
        {
            let told = bench.fails(1, &[verb, path]);
            assert!(told.contains(path) && told.contains(why), "{verb}: {told}");
            assert!(is_one_error(&told) && told.len() < 200, "{verb}: {told}");
        }
    }
    // One that is refused does not keep the next from its turn.
    bench.fails(1, &["manage", "no/such/place", "spool/control"]);
    assert!(bench.path("spool/control/000/100001").is_file());
    let held = fs::File::open(bench.path("spool/control")).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let locked = bench.fails(1, &["unmanage", "spool/control"]);
    assert!(locked.contains("is locked (flock) by a mount that starts"), "{locked}");
}

fn start(bench: &Bench, args: &[&str]) -> Child {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("crumb"));
    command.args(args).current_dir(bench.directory()).env("CRUMB_STORE", bench.path("runs.db"));
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Waits for something to be so while the child runs; false when the child ended before.
fn until(child: &mut Child, so: impl Fn() -> bool) -> bool {
    while !so() {
        if child.try_wait().unwrap().is_some() {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

const KILLS: usize = 60;

#[test]
fn killed_by_sigkill_sixty_times_no_article_is_ever_lost_or_there_twice() {
    let bench = Bench::in_memory();
    let group = group(&bench, 2500);
    let staging = group.join(".crumb-converting-345");
    let before = files_of(&group);
    assert!(before.values().all(|(_, count)| *count == 1));
    let (mut kills, mut half_way, mut with_bit) = (0, 0, 0);
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    while kills < KILLS {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        // Either way, from wherever the last one was killed.
        let verb = if random >> 40 & 1 == 0 { "manage" } else { "unmanage" };
        let mut child = start(&bench, &["--quiet", verb, "spool/control"]);
        if !until(&mut child, || staging.exists()) {
            continue;
        }
        let moment = Instant::now() + Duration::from_micros((random >> 20) % 25_000);
        until(&mut child, || Instant::now() >= moment);
        let _ = child.kill();
        child.wait().unwrap();
        kills += 1;
        if staging.exists() {
            half_way += 1;
            with_bit += u32::from(fs::metadata(&group).unwrap().mode() & 0o4000 != 0);
        }
        assert!(files_of(&group) == before, "kill {kills}, of {verb}");
    }
    assert!(
        half_way > 15,
        "only {half_way} of {kills} kills came in the middle, {with_bit} of them with the bit"
    );
    bench.fine(&["manage", "spool/control"]);
    bench.fine(&["check", "spool"]);
    assert!(files_of(&group) == before && !staging.exists());
    bench.fine(&["unmanage", "spool/control"]);
    assert!(files_of(&group) == before && group.join("100000").exists());
}

#[test]
fn check_tells_what_is_wrong_by_its_exit_code_and_repair_mends_it() {
    let bench = Bench::in_memory();
    let group = group(&bench, 100);
    bench.fine(&["manage", "spool/control"]);
    fs::rename(group.join("000/100003"), group.join("001/100003")).unwrap();
    fs::write(group.join("stray"), "").unwrap();
    let said = bench.crumb(&["check", "spool"]);
    assert_eq!(said.code, 1);
    assert_fits(&said.out);
    assert!(said.out.contains("belongs in") && said.out.contains("WRONG"), "{}", said.out);
    assert!(said.err.contains("--repair"), "{}", said.err);
    let said = bench.crumb(&["check", "spool", "--json", "-"]);
    assert_eq!(said.code, 1);
    let json: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!((&json["right"], &json["open"]), (&false.into(), &2.into()));
    assert_eq!(json["counts"]["wrong place"], 1);
    assert!(bench.fine(&["check", "spool", "--repair"]).contains("RIGHT now"));
    assert!(group.join("000/100003").is_file() && group.join("aaa/stray").is_file());
    assert!(bench.fine(&["check", "spool", "--verbose"]).contains("Empty subdirectories"));
}

/// Symptom: `crumb check` of a tree mounted over itself said RIGHT while the tree below was wrong. Cause: it looked
/// through the mount, which shows no hidden level. Fix: what a mount covers is refused.
#[test]
fn what_a_mount_covers_is_not_judged_by_check_or_advise() {
    if cannot_mount() {
        return;
    }
    let bench = Bench::in_memory();
    let group = group(&bench, 100);
    bench.fine(&["manage", "spool/control"]);
    fs::write(group.join("99999"), "beside the hidden level").unwrap();
    fs::create_dir(bench.path("at")).unwrap();
    let _unmounted_at_the_end = Unmounted(&bench, &["spool", "at"]);
    bench.fine(&["mount", "spool", "spool", "--daemon", "--no-store"]);
    for (verb, tree) in [("check", "spool"), ("check", "spool/control"), ("check", "."), ("advise", "spool")]
    {
        let told = bench.fails(1, &[verb, tree]);
        let says = format!("crumb unmount {}", bench.path("spool").canonicalize().unwrap().display());
        assert!(told.contains(&says) && told.lines().count() == 1, "{verb} {tree}: {told}");
    }
    bench.fine(&["unmount", "spool"]);
    // Shown elsewhere, the tree below is open to be looked at.
    bench.fine(&["mount", "spool", "at", "--daemon", "--no-store"]);
    assert!(bench.fails(1, &["check", "spool"]).contains("1 problem found"));
    assert!(bench.fails(1, &["check", "at"]).contains("crumb unmount"));
}

/// Whether nothing can be mounted here; the test is then listed as skipped.
fn cannot_mount() -> bool {
    !testkit::need::fuse()
}

/// Places that are no mounts any more when this is dropped.
struct Unmounted<'a>(&'a Bench, &'a [&'a str]);

impl Drop for Unmounted<'_> {
    fn drop(&mut self) {
        for place in self.1 {
            let _ = stackfs::mounts::unmount(&self.0.path(place), true);
        }
    }
}

#[test]
fn advice_names_its_assumptions_and_leaves_no_scratch_behind() {
    let bench = Bench::in_memory();
    group(&bench, 600);
    let asked = ["advise", "spool", "--quick", "--sizes", "256, 512", "--json", "advice.json"];
    let out = bench.fine(&asked);
    assert_fits(&out);
    for words in ["control", "A day", "lookups", "Verdict", "pays for the whole day", "fall on files evenly"]
    {
        assert!(out.contains(words), "{words}\n{out}");
    }
    let json: serde_json::Value = serde_json::from_str(&bench.read("advice.json")).unwrap();
    let directory = &json["directories"][0];
    assert_eq!((&directory["files"], &directory["beyond_measured"]), (&601.into(), &true.into()));
    assert!(directory["gain_s_per_day_low"].as_f64() <= directory["gain_s_per_day"].as_f64());
    assert!(!out.contains("--rounds"), "no flag of this verb\n{out}");
    if cannot_mount() {
        assert!(out.contains("is not in the figures"), "{out}");
    } else {
        assert!(out.contains("A mount adds"), "{out}");
        assert!(json["mount_us"].as_f64().is_some_and(|us| us > 0.0), "{json:#}");
    }
    assert_eq!(fs::read_dir(bench.path("spool")).unwrap().count(), 1);
    fs::create_dir(bench.path("small")).unwrap();
    let out = bench.fine(&["advise", "small"]);
    assert!(out.contains("nothing to gain: no directory holds 512 files"), "{out}");
}

#[test]
fn without_sizes_advice_measures_at_the_size_of_the_largest_directory() {
    let bench = Bench::in_memory();
    group(&bench, 5000);
    let out = bench.fine(&["advise", "spool", "--quick", "--json", "advice.json"]);
    assert_fits(&out);
    let json: serde_json::Value = serde_json::from_str(&bench.read("advice.json")).unwrap();
    // On a machine so busy that the time is too short, it says so.
    if json["cut_short"] == false {
        let sizes = json["cost_us"]["lines"][0]["points"].as_array().unwrap();
        let sizes: Vec<f64> = sizes.iter().map(|point| point["x"].as_f64().unwrap()).collect();
        assert_eq!(sizes, [512.0, 4096.0, 5001.0]);
        assert_eq!(json["directories"][0]["beyond_measured"], false);
    } else {
        assert!(out.contains("then the time was up"), "{out}");
    }
}

#[test]
fn advice_interrupted_while_it_measures_removes_its_scratch_directory() {
    let bench = Bench::in_memory();
    group(&bench, 600);
    let mut child = start(&bench, &["--quiet", "advise", "spool", "--sizes", "1..65536"]);
    let scratch = || {
        let names = fs::read_dir(bench.path("spool")).unwrap().flatten();
        names
            .into_iter()
            .any(|entry| entry.file_name().to_string_lossy().starts_with("crumb-dirscale-advise"))
    };
    assert!(until(&mut child, scratch), "it ended before it measured");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(!scratch());
}

/// Waits until a program listens to signals, then sends it Ctrl-C; its exit code and what it said.
fn interrupted(bench: &Bench, args: &[&str], ready: impl Fn() -> bool) -> (i32, String) {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("crumb"));
    command.args(args).current_dir(bench.directory()).env("CRUMB_STORE", bench.path("runs.db"));
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let tasks = PathBuf::from(format!("/proc/{}/task", child.id()));
    let listens = || {
        let names = fs::read_dir(&tasks).into_iter().flatten().flatten();
        names.into_iter().any(|task| {
            fs::read_to_string(task.path().join("comm")).is_ok_and(|name| name.trim() == "signals")
        })
    };
    assert!(until(&mut child, || listens() && ready()), "{args:?} ended before it was interrupted");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    (output.status.code().unwrap_or(-1), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn ctrl_c_ends_each_verb_soon_and_it_says_what_is_left_and_how_to_go_on() {
    let bench = Bench::in_memory();
    let group = group(&bench, 20_000);
    let before = files_of(&group);
    let staging = group.join(".crumb-converting-345");
    for verb in ["manage", "unmanage"] {
        let (code, told) =
            interrupted(&bench, &["--quiet", verb, "spool/control", "spool"], || staging.exists());
        assert_eq!(code, 130, "{verb}: {told}");
        for words in
            [&format!("`crumb {verb} spool/control` continues from there"), "those after it are as they were"]
        {
            assert!(told.contains(words), "{verb} should say {words}: {told}");
        }
        assert!(staging.exists() && files_of(&group) == before, "{verb}");
        let told = bench.fails(1, &["check", "spool"]);
        assert!(told.contains("1 problem found"), "{told}");
        bench.fine(&[verb, "spool/control"]);
        assert!(!staging.exists() && files_of(&group) == before, "{verb}");
    }
    for number in 0..20_000 {
        fs::create_dir(bench.path(&format!("spool/{number}"))).unwrap();
    }
    for (args, says) in [
        (&["--quiet", "check", "spool"][..], &["the rest was not looked at", "run it again"][..]),
        (&["--quiet", "check", "spool", "--repair"], &["what was repaired stays", "run it again"]),
        (&["--quiet", "advise", "spool"], &["interrupted while counting", "run it again"]),
    ] {
        let (code, told) = interrupted(&bench, args, || true);
        assert!(code == 130 && says.iter().all(|words| told.contains(words)), "{args:?}: {code} {told}");
    }
}
