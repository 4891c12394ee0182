//! `crumb mount` and `crumb unmount` as a user types them: daemon and foreground, told in one line what is wrong.

#![allow(clippy::print_stderr, reason = "a skipped test says so")]

mod binary;

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use binary::Bench;
use rustix::process::{Pid, Signal, kill_process};

fn cannot_mount() -> bool {
    let root = rustix::process::geteuid().is_root();
    let device = fs::OpenOptions::new().read(true).write(true).open("/dev/fuse").is_ok();
    if !(root && device) {
        eprintln!("skipped: mounting needs root and /dev/fuse");
    }
    !(root && device)
}

/// A directory with a managed spool and a place to show it; unmounted at the end whatever happens.
struct Place(Bench);

impl Place {
    fn new() -> Self {
        let bench = Bench::in_memory();
        fs::create_dir_all(bench.path("spool/cancel")).unwrap();
        fs::set_permissions(bench.path("spool/cancel"), fs::Permissions::from_mode(0o4755)).unwrap();
        fs::create_dir(bench.path("at")).unwrap();
        Self(bench)
    }

    fn serving(&self, args: &[&str]) -> Child {
        let mut child = Command::new(env!("CARGO_BIN_EXE_crumb"))
            .args(args)
            .current_dir(self.0.directory())
            .env("CRUMB_STORE", self.0.path("runs.db"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut ready = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        assert!(ready.contains("is shown at"), "{ready}");
        child
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for place in ["at", "spool"] {
            let _ = stackfs::mounts::unmount(&self.0.path(place), true);
        }
    }
}

/// Waits until the daemon has seen that its mount is gone.
fn gone(path: &Path) -> bool {
    let begun = Instant::now();
    while path.exists() {
        if begun.elapsed() > Duration::from_secs(20) {
            return false;
        }
        std::thread::park_timeout(Duration::from_millis(20));
    }
    true
}

#[test]
fn a_daemon_is_ready_when_the_command_returns_and_ends_with_its_mount() {
    if cannot_mount() {
        return;
    }
    let place = Place::new();
    let bench = &place.0;
    bench.fine(&[
        "mount",
        "spool",
        "at",
        "--daemon",
        "--pid-file",
        "pid",
        "--log",
        "log",
        "-o",
        "rw,noatime",
    ]);
    fs::write(bench.path("at/cancel/123456"), "article").unwrap();
    assert_eq!(bench.read("spool/cancel/345/123456"), "article");
    let stats = bench.fine(&["mount", "--stats", "at"]);
    assert!(stats.contains("create") && stats.contains("% of these"), "{stats}");
    binary::assert_fits(&stats);
    let text = bench.fine(&["mount", "--stats", "at", "--prometheus"]);
    assert!(text.contains("crumb_mount_operation_seconds_count{operation=\"create\"} 1\n"), "{text}");
    let twice = bench.fails(2, &["mount", "spool", "at", "--daemon"]);
    assert!(twice.contains("already mounted") && twice.lines().count() == 1, "{twice}");
    assert!(bench.path("pid").exists());
    bench.fine(&["unmount", "at"]);
    assert!(gone(&bench.path("pid")), "the daemon stays");
    let runs = bench.fine(&["runs", "list"]);
    assert!(runs.contains("mount"), "{runs}");
    let not = bench.fails(2, &["unmount", "at"]);
    assert!(not.contains("no mount of Crumb's") && not.lines().count() == 1, "{not}");
}

#[test]
fn a_signal_unmounts_and_a_kill_leaves_a_tree_that_mounts_again() {
    if cannot_mount() {
        return;
    }
    let place = Place::new();
    let bench = &place.0;
    let mut child = place.serving(&["mount", "spool", "spool"]);
    fs::write(bench.path("spool/cancel/7"), "seven").unwrap();
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(bench.read("spool/cancel/000/7"), "seven", "unmounted: the tree below shows");
    let mut child = place.serving(&["mount", "spool", "at"]);
    fs::write(bench.path("at/cancel/8"), "eight").unwrap();
    kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
    child.wait().unwrap();
    assert!(fs::read(bench.path("at/cancel/8")).is_err());
    let again = bench.fails(2, &["mount", "spool", "at", "--daemon"]);
    assert!(again.contains("crumb unmount"), "{again}");
    bench.fine(&["unmount", "at"]);
    bench.fine(&["mount", "spool", "at", "--daemon", "--no-store"]);
    assert_eq!(bench.read("at/cancel/7") + &bench.read("at/cancel/8"), "seveneight");
    bench.fine(&["unmount", "at"]);
}

#[test]
fn mount_8_finds_its_helper_by_name() {
    if cannot_mount() {
        return;
    }
    let place = Place::new();
    let bench = &place.0;
    let helper = bench.path("mount.fuse.crumb");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_crumb"), &helper).unwrap();
    let status = Command::new(&helper)
        .args([&bench.path("spool"), &bench.path("at")])
        .args(["-o", "rw,exclusive,x-systemd.automount"])
        .env("CRUMB_STORE", bench.path("runs.db"))
        .status()
        .unwrap();
    assert!(status.success());
    fs::write(bench.path("at/cancel/123456"), "").unwrap();
    bench.fine(&["unmount", "at"]);
}

#[test]
fn wrong_places_and_options_are_told_in_one_line() {
    let bench = Bench::in_memory();
    bench.write("file", "");
    fs::create_dir(bench.path("at")).unwrap();
    for (args, says) in [
        (&["mount", "file", "at"][..], "not a directory"),
        (&["mount", "none", "at"], "none: cannot be used"),
        (&["mount", "at", "none"], "none: cannot be used"),
        (&["mount", "at", "at", "-o", "colour=red"], "`colour=red`"),
        (&["mount", "at", "at", "--layout", "flat"], "flat"),
    ] {
        for daemon in [false, true] {
            let args: Vec<&str> = args.iter().copied().chain(daemon.then_some("--daemon")).collect();
            let told = bench.fails(2, &args);
            assert!(told.contains(says), "{args:?}: {told}");
            assert_eq!(told.lines().count(), 1, "{args:?}: {told}");
        }
    }
}
