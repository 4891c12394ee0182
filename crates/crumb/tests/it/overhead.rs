//! `crumb run overhead` on a mount of ours: figures, requests, nothing left, wrong usage.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use measure::RunRecord;
use measure::proc::MountInfo;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};

use crate::binary::{Bench, assert_fits};

/// A tree, shown at `at`; unmounted at the end whatever happens.
struct Mounted(Bench);

impl Mounted {
    fn new(options: &[&str]) -> Self {
        let bench = Bench::in_memory();
        fs::create_dir(bench.path("below")).unwrap();
        fs::create_dir(bench.path("at")).unwrap();
        bench.fine(&[&["mount", "below", "at", "--daemon", "--no-store"], options].concat());
        Self(bench)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = stackfs::mounts::unmount(&self.0.path("at"), true);
    }
}

#[test]
fn a_run_times_every_operation_on_both_sides_and_leaves_nothing() {
    if !testkit::need::fuse() {
        return;
    }
    let mounted = Mounted::new(&[]);
    let bench = &mounted.0;
    let out = bench
        .fine(&["run", "overhead", "below", "at", "--files", "60", "--rounds", "6", "--json", "run.json"]);
    assert_fits(&out);
    let record = RunRecord::from_json(&bench.read("run.json")).unwrap();
    assert!(record.complete);
    for operation in
        ["create", "stat_warm", "open_read_close", "list", "small_write", "small_read", "rename", "unlink"]
    {
        let metric = |what: &str| record.metrics[&format!("{operation}_{what}")];
        assert!(metric("lower_us") > 0.0 && metric("mount_us") > 0.0, "{operation}");
        assert!(metric("added_low_us") <= metric("added_us"), "{operation}");
        assert!(metric("added_us") <= metric("added_high_us"), "{operation}");
        assert!(metric("share_percent") > 0.0, "{operation}");
    }
    // A round trip through a daemon costs more than a call on tmpfs, on any machine.
    assert!(record.metrics["create_added_us"] > 0.0 && record.metrics["create_share_percent"] < 100.0);
    assert!(
        record.config["layer"].as_str().unwrap().starts_with("fuse.crumb of "),
        "{}",
        record.config["layer"]
    );
    assert!(
        record.config["lower_mount"].as_str().unwrap().starts_with("tmpfs of "),
        "{}",
        record.config["lower_mount"]
    );
    let pairs = record.phases.iter().filter(|phase| phase.name == "create mount").count();
    assert_eq!(pairs, 6);
    for place in ["below", "at"] {
        assert_eq!(fs::read_dir(bench.path(place)).unwrap().count(), 0, "{place}");
    }
    if rustix::process::geteuid().is_root()
        && std::path::Path::new("/sys/kernel/tracing/events/fuse").is_dir()
    {
        // Each file needs at least one CREATE, and its close sends a RELEASE that the program does not wait for.
        let (waited, all) = (record.metrics["create_requests"], record.metrics["create_requests_all"]);
        assert!(waited >= 1.0 && all >= waited + 1.0, "{waited} of {all}");
        // What is in memory sends none; the file was opened once.
        assert!(record.metrics["small_read_requests"] <= 0.1, "{:?}", record.metrics["small_read_requests"]);
    } else {
        assert!(record.verdict.has("requests-not-counted"));
    }
    // The floor beside it answers from memory: it needs as many requests, and the tables have it.
    assert!(record.metrics["create_floor_us"] > 0.0 && record.metrics["create_of_floor"] > 0.0);
    assert!(out.contains("95% interval") && out.contains("floor"), "{out}");
    if rustix::process::geteuid().is_root()
        && std::path::Path::new("/sys/kernel/tracing/events/fuse").is_dir()
    {
        for operation in ["create", "open_read_close", "rename", "unlink", "stat_warm"] {
            let of = |what: &str| record.metrics[&format!("{operation}_{what}")];
            let (layer, floor) = (of("requests"), of("floor_requests"));
            // Another program may drop the caches meanwhile: then names are looked up and data is read again.
            assert!((-1.0..=2.0).contains(&(floor - layer)), "{operation}: {layer} and {floor}");
        }
        assert!(!record.metrics.contains_key("stat_warm_of_floor"), "no request, nothing to compare");
    }
    assert_eq!(floors_below(bench.directory()), 0);
    let page = bench.fine(&["report", "run.json", "-o", "page.html"]);
    drop(page);
    assert!(bench.read("page.html").contains("What the layer adds"));
    assert!(bench.read("page.html").contains("beside the floor"));
}

/// Floors that are mounted somewhere in a directory.
fn floors_below(place: &Path) -> usize {
    let mounts = MountInfo::all().unwrap();
    mounts.iter().filter(|mount| mount.kind == overhead::FLOOR_TYPE && mount.point.starts_with(place)).count()
}

/// Waits until there are `count` of them; the kernel says when the table of mounts has changed.
fn until_floors_are(count: usize, place: &Path) {
    let table = fs::File::open("/proc/self/mountinfo").unwrap();
    while floors_below(place) != count {
        let mut changes = [PollFd::new(&table, PollFlags::PRI)];
        let limit = Timespec { tv_sec: 30, tv_nsec: 0 };
        assert_eq!(poll(&mut changes, Some(&limit)), Ok(1), "there are {} floors", floors_below(place));
    }
}

/// The process that serves the floor below a directory.
fn floor_process(place: &Path) -> Pid {
    let has = |text: &[u8], part: &str| text.windows(part.len()).any(|window| window == part.as_bytes());
    let mut found = fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let command = fs::read(entry.path().join("cmdline")).ok()?;
        (has(&command, "--serve-floor") && has(&command, place.to_str()?)).then_some(pid)
    });
    Pid::from_raw(found.next().expect("a process serves it")).unwrap()
}

#[test]
fn a_build_is_timed_on_both_sides_and_what_it_prints_is_kept_only_when_it_fails() {
    if !testkit::need::fuse()
        || testkit::need::program("cc", "gcc").is_none()
        || testkit::need::program("make", "make").is_none()
    {
        return;
    }
    let mounted = Mounted::new(&[]);
    let bench = &mounted.0;
    // The smallest package there is; the one that is made up takes seconds for each build.
    fs::create_dir(bench.path("package")).unwrap();
    bench.write("package/Makefile", "program: a.c\n\tcc -o program a.c\n");
    bench.write("package/a.c", "int main(void) { return 0; }\n");
    let few = ["run", "overhead", "below", "at", "--files", "20", "--rounds", "6", "--no-floor"];
    let out = bench.fine(&[&few[..], &["--build=package", "--json", "run.json"]].concat());
    assert_fits(&out);
    let record = RunRecord::from_json(&bench.read("run.json")).unwrap();
    assert!(record.metrics["build_lower_s"] > 0.0 && record.metrics["build_mount_s"] > 0.0);
    assert!(record.metrics["build_slower_low_percent"] <= record.metrics["build_slower_percent"]);
    assert!(out.contains("slower"), "{out}");
    assert!(!record.metrics.contains_key("create_floor_us"), "--no-floor");
    assert!(!record.verdict.has("no-floor"), "it was not asked for");

    bench.write("package/a.c", "this is no C\n");
    let err = bench.fails(1, &[&few[..], &["--build=package"]].concat());
    let log =
        err.split_whitespace().find(|word| word.ends_with("-build.log")).unwrap_or_else(|| panic!("{err}"));
    assert!(fs::read_to_string(log).unwrap().contains("a.c"), "what the compiler said");
    fs::remove_file(log).unwrap();
    fs::remove_file(bench.path("package/Makefile")).unwrap();
    let err = bench.fails(2, &[&few[..], &["--build=package"]].concat());
    assert!(err.contains("neither a Makefile nor a configure"), "{err}");
    for place in ["below", "at"] {
        assert_eq!(fs::read_dir(bench.path(place)).unwrap().count(), 0, "{place}");
    }
}

#[test]
fn the_floor_ends_with_its_run_and_one_whose_process_was_killed_too_is_cleaned() {
    if !testkit::need::fuse() {
        return;
    }
    let mounted = Mounted::new(&[]);
    let bench = &mounted.0;
    let endless = ["run", "overhead", "below", "at", "--files", "50", "--rounds", "10000", "--no-store"];
    let started = |then: &dyn Fn(Pid)| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_crumb"));
        command.args(endless).current_dir(bench.directory());
        let mut run = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        until_floors_are(1, bench.directory());
        then(Pid::from_child(&run));
        run.kill().unwrap();
        run.wait().unwrap();
    };
    // Of a run that is killed alone the floor's process unmounts it, and the directories are left over.
    started(&|_| {});
    until_floors_are(0, bench.directory());
    bench.fine(&["clean", "below"]);
    assert_eq!(fs::read_dir(bench.path("below")).unwrap().count(), 0);

    // Killed with it, it leaves a mount that does not answer. While the run lives, nothing is touched.
    started(&|run| {
        let out = bench.fine(&["clean", "below"]);
        assert!(out.contains("in use by a run") && !out.contains("removed"), "{out}");
        // Stopped, so that it does not clean up itself when its floor is gone.
        kill_process(run, Signal::STOP).unwrap();
        let floor = floor_process(bench.directory());
        kill_process(floor, Signal::KILL).unwrap();
    });
    assert_eq!(floors_below(bench.directory()), 1);
    let out = bench.fine(&["clean", "below", "--dry-run"]);
    assert!(out.contains("left over"), "{out}");
    assert_eq!(floors_below(bench.directory()), 1, "a dry run changes nothing");
    bench.fine(&["clean", "below"]);
    assert_eq!(floors_below(bench.directory()), 0);
    assert_eq!(fs::read_dir(bench.path("below")).unwrap().count(), 0);
}

#[test]
fn what_has_nothing_between_is_refused_and_nothing_is_made() {
    let bench = Bench::in_memory();
    for place in ["a", "b"] {
        fs::create_dir(bench.path(place)).unwrap();
    }
    let err = bench.fails(2, &["run", "overhead", "a", "b"]);
    assert!(err.contains("nothing lies between them"), "{err}");
    assert!(!err.contains("kinds of operation"), "it is checked before the plan is announced: {err}");
    let err = bench.fails(1, &["run", "overhead", "a", "nowhere"]);
    assert!(err.contains("nowhere"), "{err}");
    for place in ["a", "b"] {
        assert_eq!(fs::read_dir(bench.path(place)).unwrap().count(), 0, "{place}");
    }
    let err = bench.fails(2, &["run", "overhead", "nfs://127.0.0.1/a", "b"]);
    assert!(err.contains("mount it, and name a directory of the mount"), "{err}");
    let out = bench.fine(&["run", "overhead", "a", "b", "--dry-run"]);
    assert!(out.contains("crumb-overhead-"), "{out}");
}

#[test]
fn what_is_the_wrong_way_round_or_others_may_change_is_refused() {
    if !testkit::need::fuse() {
        return;
    }
    let mounted = Mounted::new(&[]);
    let bench = &mounted.0;
    let err = bench.fails(2, &["run", "overhead", "at", "below"]);
    assert!(err.contains("they look exchanged"), "{err}");
    // Who can rename this run's directory can lead a daemon that resolves paths as root elsewhere.
    fs::create_dir(bench.path("below/open")).unwrap();
    fs::set_permissions(bench.path("below/open"), fs::Permissions::from_mode(0o777)).unwrap();
    let err = bench.fails(1, &["run", "overhead", "below/open", "at/open"]);
    assert!(err.contains("can be changed by other users than root"), "{err}");
    assert_eq!(fs::read_dir(bench.path("below/open")).unwrap().count(), 0);
}

#[test]
fn the_trace_of_a_killed_run_goes_with_the_next_clean() {
    if !testkit::need::fuse() || !std::path::Path::new("/sys/kernel/tracing/events/fuse").is_dir() {
        return;
    }
    let instances = std::path::Path::new("/sys/kernel/tracing/instances");
    // As a run leaves it that is killed: of this namespace, of a process that began at another moment than the one with its number.
    let namespace = fs::read_link("/proc/self/ns/pid").unwrap();
    let namespace: String = namespace.to_string_lossy().chars().filter(char::is_ascii_digit).collect();
    let left = instances.join(format!("crumb-overhead-{namespace}-{}-1", std::process::id()));
    fs::create_dir(&left).unwrap();
    let bench = Bench::in_memory();
    bench.fine(&["clean", "."]);
    assert!(!left.exists());
}
