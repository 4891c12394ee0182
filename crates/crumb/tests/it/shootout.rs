//! `crumb run shootout`: the table in all its forms, hooks, and how it ends early.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::binary::{Bench, Said, assert_fits};

/// Two workloads that take a moment on each target.
const TINY: &str = "\
[[run]]
benchmark = \"postmark\"
number = 50
transactions = 200

[[run]]
benchmark = \"dirscale\"
warm = true
sizes = \"64\"
layout = \"flat\"
operations = 20
rounds = 1
";

/// Measures them on two targets.
const WORDS: [&str; 6] = ["run", "shootout", "one=a", "two=b", "--matrix", "tiny.toml"];

fn bench() -> Bench {
    let bench = Bench::in_memory();
    for name in ["a", "b"] {
        std::fs::create_dir(bench.path(name)).unwrap();
    }
    bench.write("tiny.toml", TINY);
    bench
}

/// Beside other tests the machine may be disturbed, which is INVALID (3) and not what this is about.
fn shot(bench: &Bench, more: &[&str]) -> Said {
    let args = [&WORDS, more].concat();
    let said = bench.crumb(&args);
    assert!(matches!(said.code, 0 | 3), "{args:?}: {} {}{}", said.code, said.out, said.err);
    said
}

fn json(bench: &Bench) -> Value {
    serde_json::from_str(&bench.read("out.json")).unwrap()
}

fn is_empty(path: &Path) -> bool {
    path.read_dir().unwrap().next().is_none()
}

#[test]
fn two_workloads_on_two_targets_are_one_table_in_every_form_and_leave_nothing_behind() {
    let bench = bench();
    let said = shot(
        &bench,
        &[
            "--rounds",
            "3",
            "--json",
            "out.json",
            "--markdown",
            "out.md",
            "--report",
            "out.html",
            "--label",
            "tiny",
        ],
    );
    assert_fits(&said.out);
    assert_fits(&said.err);
    assert!(said.err.contains("2 workloads on 2 targets: 4 cells, 3 rounds, 12 runs"), "{}", said.err);
    assert!(said.err.contains("12 of 12"), "{}", said.err);
    let all = json(&bench);
    assert_eq!(all["records"].as_array().unwrap().len(), 12);
    let rows = all["shootout"]["rows"].as_array().unwrap();
    let names: Vec<&str> = rows.iter().map(|row| row["workload"].as_str().unwrap()).collect();
    assert_eq!(names, ["postmark", "dirscale"]);
    for (text, what) in
        [(said.out.clone(), "terminal"), (bench.read("out.md"), "Markdown"), (bench.read("out.html"), "page")]
    {
        for word in ["postmark", "dirscale", "one", "two"] {
            assert!(text.contains(word), "{what} lacks {word}: {text}");
        }
        let invalid = rows.iter().flat_map(|row| row["cells"].as_array().unwrap());
        let any_invalid = invalid.clone().any(|cell| cell["state"] == "invalid");
        assert!(!any_invalid || text.contains("INVALID"), "{what}: {text}");
    }
    assert!(bench.read("out.md").contains("crumb run postmark a --number 50 --transactions 200"));
    assert!(is_empty(&bench.path("a")) && is_empty(&bench.path("b")));
    // Each workload is a series that `crumb compare` takes.
    let first = all["records"][0]["series"]["of"].as_str().unwrap();
    let compared = bench.crumb(&["compare", first]);
    let text = format!("{}{}", compared.out, compared.err);
    // Beside other tests all runs of a side may be INVALID, which it says.
    assert!(compared.out.contains("Transactions") || text.contains("are INVALID"), "{text}");
    assert!(bench.fine(&["runs", "list"]).contains("tiny: postmark on one"));
}

#[test]
fn a_dry_run_names_every_command_and_touches_nothing() {
    let bench = bench();
    let said = bench.crumb(&["run", "shootout", "one=a", "p=pack:none", "--quick", "--dry-run"]);
    assert_eq!(said.code, 0, "{}", said.err);
    assert_fits(&said.out);
    assert!(
        said.out.contains("crumb run postmark a --quick") && said.out.contains("not possible"),
        "{}",
        said.out
    );
    assert!(is_empty(&bench.path("a")) && !bench.path("runs.db").exists());
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/shootout-sizes.toml");
    let args =
        ["run", "shootout", "a", "b", "--matrix", example.to_str().unwrap(), "--dry-run", "--json", "-"];
    let plan: Value = serde_json::from_str(&bench.fine(&args)).unwrap();
    assert_eq!(
        (plan["rows"].as_array().unwrap().len(), plan["runs"].as_u64()),
        (9, Some(9 * 2 * 6)),
        "{plan:#}"
    );
}

#[test]
fn a_target_that_cannot_be_used_is_reported_before_the_first_run() {
    let bench = bench();
    let wrong = bench.fails(1, &["run", "shootout", "a", "none", "--matrix", "tiny.toml"]);
    assert!(wrong.contains("postmark on none") && wrong.contains("mkdir -p none"), "{wrong}");
    assert!(!wrong.contains("1 of "), "{wrong}");
    let wrong = bench.fails(2, &["run", "shootout", "a", "b", "--quick", "--only", "mial"]);
    assert!(wrong.contains("no workload is called so"), "{wrong}");
}

#[test]
fn hooks_know_their_run_and_a_failing_one_ends_it_with_the_table_so_far() {
    let bench = bench();
    shot(&bench, &["--rounds", "1", "--prepare", "echo $CRUMB_WORKLOAD $CRUMB_SIDE $CRUMB_TARGET >> log"]);
    let log = bench.read("log");
    assert!(log.contains("postmark one a\n") && log.contains("dirscale two b\n"), "{log}");
    let fails = "test $CRUMB_WORKLOAD != dirscale";
    let more = ["--rounds", "1", "--prepare", fails, "--cleanup", "touch cleaned"];
    let said = bench.crumb(&[&WORDS[..], &more].concat());
    assert_eq!(said.code, 1, "{}{}", said.out, said.err);
    let err = said.err.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(err.contains("--prepare failed for dirscale on "), "{err}");
    assert!(said.out.contains("postmark") && said.out.contains("not measured"), "{}", said.out);
    assert!(bench.path("cleaned").exists() && is_empty(&bench.path("a")) && is_empty(&bench.path("b")));
}

#[test]
fn a_run_that_reaches_the_limit_has_no_figure_and_says_why() {
    let bench = bench();
    bench.write("tiny.toml", "[[run]]\nbenchmark = \"postmark\"\nnumber = 20000\ntransactions = 2000000\n");
    let more = ["--rounds", "1", "--cell-limit", "300ms", "--json", "out.json"];
    let said = bench.crumb(&[&WORDS[..], &more].concat());
    assert!(matches!(said.code, 1 | 3), "{}{}", said.out, said.err);
    let cell = &json(&bench)["shootout"]["rows"][0]["cells"][0];
    assert!(["invalid", "failed"].contains(&cell["state"].as_str().unwrap()), "{cell:#}");
    assert!(cell["why"].as_str().unwrap().contains("--cell-limit") && cell["rate"].is_null(), "{cell:#}");
    assert!(is_empty(&bench.path("a")) && is_empty(&bench.path("b")));
}

#[test]
fn ctrl_c_removes_the_files_and_prints_what_was_measured() {
    let bench = bench();
    // The second workload is under way when its hook sends the signal.
    let interrupt = "if [ $CRUMB_WORKLOAD = dirscale ]; then kill -INT $PPID; fi";
    let child = Command::new(env!("CARGO_BIN_EXE_crumb"))
        .args(WORDS)
        .args(["--rounds", "1", "--prepare", interrupt])
        .current_dir(bench.directory())
        .env("CRUMB_STORE", bench.path("runs.db"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let out = String::from_utf8(child.stdout).unwrap();
    assert_eq!(child.status.code(), Some(130), "{out}{}", String::from_utf8_lossy(&child.stderr));
    assert!(out.contains("postmark") && out.contains("not measured"), "{out}");
    assert!(is_empty(&bench.path("a")) && is_empty(&bench.path("b")));
}

/// Symptom: one SIGTERM or Ctrl-C did not end a shootout whose hook hung.
#[test]
fn one_signal_ends_a_hook_that_hangs_and_the_shootout() {
    let bench = bench();
    let mut child = Command::new(env!("CARGO_BIN_EXE_crumb"))
        .args(WORDS)
        .args([
            "--rounds",
            "1",
            "--prepare",
            "touch begun; sleep 60; touch slept",
            "--cleanup",
            "touch cleaned",
        ])
        .current_dir(bench.directory())
        .env("CRUMB_STORE", bench.path("runs.db"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while !bench.path("begun").exists() {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::yield_now();
    }
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM)
        .unwrap();
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(130), "{said}");
    assert!(!said.contains("--prepare failed") && !bench.path("slept").exists(), "{said}");
    assert!(bench.path("cleaned").exists() && is_empty(&bench.path("a")) && is_empty(&bench.path("b")));
}
