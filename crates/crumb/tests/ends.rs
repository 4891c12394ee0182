//! How runs end that cannot write what they found, and those that a signal ends.

mod binary;

use std::path::Path;
use std::process::{Child, Command, Stdio};

use binary::Bench;
use rustix::process::{Pid, Signal, kill_process};

const QUICK: [&str; 8] = ["run", "postmark", "a", "--number", "10", "--transactions", "10", "--threads=1"];

fn bench() -> Bench {
    let bench = Bench::in_memory();
    std::fs::create_dir(bench.path("a")).unwrap();
    bench
}

fn with<'a>(more: &[&'a str]) -> Vec<&'a str> {
    QUICK.iter().chain(more).copied().collect()
}

#[test]
fn what_cannot_be_written_is_said_before_anything_is_measured() {
    let bench = bench();
    std::fs::create_dir(bench.path("taken")).unwrap();
    // A run that measures touches the directory, which this one would show.
    let before = std::fs::metadata(bench.path("a")).unwrap().modified().unwrap();
    for (more, says) in [
        (["--json", "nowhere/x.json"], "nowhere/x.json"),
        (["--report", "nowhere/x.html"], "nowhere/x.html"),
        (["--report", "taken"], "taken"),
        (["--store", "nowhere/x.db"], "mkdir -p nowhere"),
        (["--store", "taken"], "taken"),
    ] {
        let said = bench.fails(1, &with(&more));
        assert!(said.contains(says), "{more:?}: {said}");
        assert_eq!(std::fs::metadata(bench.path("a")).unwrap().modified().unwrap(), before, "{more:?} ran");
    }
    assert!(!bench.path("nowhere").exists(), "no directory is made up");
    bench.fine(&with(&["--store", "nowhere/x.db", "--no-store"]));
    assert!(!bench.path("nowhere").exists());
}

#[test]
fn looking_whether_a_file_can_be_written_leaves_it_as_it_is() {
    let bench = bench();
    bench.write("kept.json", "as it was");
    bench.fails(1, &with(&["--json", "kept.json", "--report", "nowhere/x.html"]));
    bench.fails(1, &with(&["--json", "new.json", "--report", "nowhere/x.html"]));
    assert_eq!(bench.read("kept.json"), "as it was");
    assert!(!bench.path("new.json").exists());
}

/// Symptom: `--json` or `-o` that named the file of the run store replaced it, and every kept run was lost without a word.
#[test]
fn no_result_is_written_over_the_kept_runs_nor_over_the_run_it_is_made_from() {
    let bench = bench();
    bench.fine(&with(&["--json", "other.json"]));
    bench.fine(&with(&["--json", "run.json"]));
    std::os::unix::fs::symlink("runs.db", bench.path("other-name")).unwrap();
    let kept = std::fs::read(bench.path("runs.db")).unwrap();
    let run = bench.read("run.json");
    let refused: [&[&str]; 11] = [
        &with(&["--json", "runs.db"]),
        &with(&["--report", "./runs.db"]),
        &with(&["--json", "other-name"]),
        &with(&["--store", "new.db", "--json", "./new.db"]),
        &with(&["--json", "one", "--report", "./one"]),
        &["report", "last", "-o", "runs.db"],
        &["report", "run.json", "-o", "./run.json"],
        &["runs", "export", "last", "-o", "runs.db"],
        &["compare", "run.json", "other.json", "--report", "runs.db"],
        &["compare", "run.json", "other.json", "--json", "-", "--report", "-"],
        &["compare", "run.json", "other.json", "--json", "one", "--report", "./one"],
    ];
    for args in refused {
        let said = bench.fails(2, args);
        let why = ["would lose them", "made from", "both name", "both want"];
        assert!(why.iter().any(|why| said.contains(why)), "{args:?}: {said}");
    }
    assert!(std::fs::read(bench.path("runs.db")).unwrap() == kept, "the store is as it was");
    assert_eq!(bench.read("run.json"), run);
    assert!(!bench.path("one").exists() && !bench.path("new.db").exists());
}

#[test]
fn a_report_to_standard_output_is_a_page_and_no_file_of_that_name() {
    let bench = bench();
    let page = bench.fine(&with(&["--report", "-", "--quiet"]));
    assert!(page.starts_with("<!doctype html>") || page.starts_with("<!DOCTYPE html>"), "{:.200}", page);
    assert!(page.trim_end().ends_with("</html>") && !bench.path("-").exists());
    assert!(bench.fails(2, &with(&["--report", "-", "--json", "-"])).contains("both want standard output"));
}

fn start(bench: &Bench, program: &Path, args: &[&str]) -> Child {
    Command::new(program)
        .current_dir(bench.directory())
        .env("CRUMB_STORE", bench.path("runs.db"))
        .env("TMPDIR", bench.directory())
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn crumb() -> &'static Path {
    Path::new(assert_cmd::cargo::cargo_bin!("crumb"))
}

fn left(bench: &Bench) -> usize {
    std::fs::read_dir(bench.path("a")).unwrap().count()
}

/// Until the run has made its folder; it must not end before.
fn wait_for_folder(bench: &Bench, child: &mut Child) {
    while left(bench) == 0 {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::yield_now();
    }
}

const LONG: [[&str; 5]; 3] = [
    ["run", "postmark", "a", "--transactions", "100000000"],
    ["run", "dirscale", "a", "--sizes=1..1048576", "--warm"],
    ["run", "netnews", "a", "--articles", "20000"],
];

#[test]
fn a_dropped_connection_cleans_up_as_ctrl_c_does_and_each_verb_ends_with_130() {
    for args in LONG {
        for signal in [Signal::HUP, Signal::INT, Signal::TERM] {
            let bench = bench();
            let mut child = start(&bench, crumb(), &args);
            wait_for_folder(&bench, &mut child);
            // As when the terminal is gone: nothing can be written any more.
            if signal == Signal::HUP {
                drop((child.stdout.take(), child.stderr.take()));
            }
            kill_process(Pid::from_child(&child), signal).unwrap();
            let output = child.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(left(&bench), 0, "{args:?} {signal:?}: {said}");
            assert_eq!(output.status.code(), Some(130), "{args:?} {signal:?}: {said}");
        }
    }
}

#[test]
fn nohup_keeps_a_run_alive_when_the_connection_drops() {
    let bench = bench();
    // Its standard streams are no terminal, so that it changes nothing but the signal.
    let mut args = vec![crumb().to_str().unwrap()];
    args.extend(LONG[0]);
    let mut child = start(&bench, Path::new("nohup"), &args);
    wait_for_folder(&bench, &mut child);
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let mask = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        u64::from_str_radix(line.trim(), 16).unwrap()
    };
    let (ignored, caught) = (mask("SigIgn:") & 1, mask("SigCgt:") & 1);
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    child.wait_with_output().unwrap();
    assert_eq!((ignored, caught), (1, 0), "SIGHUP is still ignored");
    assert_eq!(left(&bench), 0);
}
