//! `crumb run overhead` on a mount of ours: figures, requests, nothing left, wrong usage.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use measure::RunRecord;

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
    let page = bench.fine(&["report", "run.json", "-o", "page.html"]);
    drop(page);
    assert!(bench.read("page.html").contains("What the layer adds"));
}

#[test]
fn what_has_nothing_between_is_refused_and_nothing_is_made() {
    let bench = Bench::in_memory();
    for place in ["a", "b"] {
        fs::create_dir(bench.path(place)).unwrap();
    }
    let err = bench.fails(1, &["run", "overhead", "a", "b"]);
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
    let err = bench.fails(1, &["run", "overhead", "at", "below"]);
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
