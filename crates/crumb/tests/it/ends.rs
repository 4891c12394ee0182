//! How runs end that cannot write what they found, and those that a signal ends.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::binary::{Bench, is_one_error};
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
        (["--json", "nowhere/x.json"], "mkdir -p nowhere"),
        (["--report", "nowhere/x.html"], "mkdir -p nowhere"),
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

/// Real errors of every layer: of the system, of a library's own, of JSON. Each cause has a line of its own and is said once.
#[test]
fn an_error_prints_each_of_its_causes_once() {
    let bench = bench();
    bench.write("broken.json", "{ \"schema\": 1, ");
    bench.write("file", "");
    for (code, args, cause) in [
        (1, &["run", "postmark", "nowhere"][..], "No such file or directory"),
        (1, &["run", "dirscale", "nowhere"], "No such file or directory"),
        (1, &["run", "netnews", "nowhere", "--articles", "10"], "No such file or directory"),
        (1, &["run", "fstress", "file"], "Not a directory"),
        (1, &["report", "nowhere.json"], "No such file or directory"),
        (1, &["runs", "import", "broken.json"], "EOF while parsing"),
        (1, &["runs", "import", "nowhere.json"], "No such file or directory"),
        (1, &["check", "nowhere"], "No such file or directory"),
        (2, &["mount", "nowhere", "a"], "No such file or directory"),
        (2, &["proxy", "--config", "nowhere.toml"], "No such file or directory"),
        (1, &["serve", "dir", "nowhere"], "No such file or directory"),
    ] {
        let told = bench.fails(code, args);
        assert!(is_one_error(&told), "{args:?} says a cause twice, or not in a line of its own:\n{told}");
        assert_eq!(told.matches(cause).count(), 1, "{args:?}: {told}");
    }
}

/// Symptom: a run whose store was damaged was measured, could not be kept, and exited 0. Cause: the store was only asked
/// whether it can be written. Fix: it is looked through before anything is measured.
#[test]
fn a_damaged_store_or_a_file_that_is_none_is_refused_before_anything_is_measured() {
    let bench = bench();
    (0..3).for_each(|_| drop(bench.fine(&with(&[]))));
    let mut bytes = std::fs::read(bench.path("runs.db")).unwrap();
    let middle = bytes.len() / 4..bytes.len() * 3 / 4;
    bytes[middle].iter_mut().enumerate().for_each(|(at, byte)| *byte = (at * 7 + 1) as u8);
    std::fs::write(bench.path("damaged.db"), &bytes).unwrap();
    bench.write("one-byte", "x");
    let before = std::fs::metadata(bench.path("a")).unwrap().modified().unwrap();
    for (store, says) in [("damaged.db", "damaged"), ("one-byte", "not a run store")] {
        let said = bench.fails(1, &with(&["--store", store]));
        assert!(said.contains(says) && said.contains("--no-store measures without keeping it"), "{said}");
        assert_eq!(
            std::fs::metadata(bench.path("a")).unwrap().modified().unwrap(),
            before,
            "{store}: it ran"
        );
    }
    assert!(std::fs::read(bench.path("damaged.db")).unwrap() == bytes, "it is left as it was");
    assert_eq!(bench.read("one-byte"), "x");
}

/// The store goes while the run is under way: a directory is in its place when the run is to be kept.
#[test]
fn a_run_that_could_not_be_kept_is_shown_and_exits_1_with_one_message() {
    let bench = bench();
    let mut child = start(
        &bench,
        crumb(),
        &[
            "run",
            "postmark",
            "a",
            "--store",
            "kept.db",
            "--number",
            "100",
            "--transactions",
            "20000",
            "--threads=1",
        ],
    );
    wait_for_folder(&bench, &mut child);
    std::fs::create_dir(bench.path("kept.db")).unwrap();
    let done = child.wait_with_output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert_eq!(done.status.code(), Some(1), "{out}{err}");
    assert_eq!(err.matches("the run was not stored").count(), 1, "{err}");
    assert!(
        err.contains("--json FILE") && out.contains("Verdict") && !out.contains("Stored as"),
        "{out}{err}"
    );
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
            // These tests may themselves run under nohup(1).
            let crumb = ["--default-signal=HUP", crumb().to_str().unwrap()];
            let mut child = start(&bench, Path::new("env"), &[&crumb[..], &args].concat());
            wait_for_folder(&bench, &mut child);
            let id = Pid::from_child(&child);
            // As when the terminal is gone: nothing can be written any more. Stopped meanwhile, as one that writes before the signal
            // comes has lost its reader and nothing else.
            if signal == Signal::HUP {
                kill_process(id, Signal::STOP).unwrap();
                kill_process(id, signal).unwrap();
                drop((child.stdout.take(), child.stderr.take()));
                kill_process(id, Signal::CONT).unwrap();
            } else {
                kill_process(id, signal).unwrap();
            }
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

/// Symptom: `feed verify` called the spool of a killed run WRONG, as if the storage had lost something.
#[test]
fn the_spool_of_a_killed_run_is_called_unfinished_and_told_how_to_go_on() {
    let bench = bench();
    let mut child = start(&bench, crumb(), &["run", "netnews", "a", "--articles", "20000", "--keep", "k"]);
    let articles = bench.path("a/crumb-netnews-k/articles");
    while std::fs::read_dir(&articles).map_or(0, Iterator::count) == 0 {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait_with_output().unwrap();
    let said = bench.crumb(&["feed", "verify", "a/crumb-netnews-k"]);
    let words = said.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(said.code, 1, "{}{}", said.out, said.err);
    assert!(words.contains("UNFINISHED: ") && !words.contains("WRONG"), "{}", said.out);
    assert!(words.contains("run netnews a --resume k") && said.err.contains("--resume k"), "{}", said.err);
}

/// A file server of our own on a folder of the bench, and its address.
fn serve(bench: &Bench, folder: &str) -> (Child, String) {
    std::fs::create_dir(bench.path(folder)).unwrap();
    let mut server = start(bench, crumb(), &["serve", "dir", "--listen", "127.0.0.1:0", folder]);
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(server.stdout.take().unwrap()));
    let ready = lines.next().expect("a line").unwrap();
    let at = ready.split("nfs://").nth(1).and_then(|rest| rest.split('/').next()).expect("an address");
    (server, at.to_owned())
}

/// Symptom: Ctrl-C of a run whose server had stopped answering took a minute for each file that it tried to remove, and did
/// not say what was left. Cause: no call looked at the wish to stop, and each waited for itself.
#[test]
fn ctrl_c_ends_a_run_whose_server_stopped_answering_and_tells_what_is_left() {
    let runs: [&[&str]; 4] = [
        &["run", "postmark", "--transactions", "100000000", "--threads", "2", "--proto", "tcp"],
        &["run", "postmark", "--transactions", "100000000", "--proto", "udp"],
        &["run", "netnews", "--articles", "20000"],
        &["run", "dirscale", "--sizes=1..1048576", "--warm"],
    ];
    for (number, args) in runs.into_iter().enumerate() {
        let bench = bench();
        let folder = format!("export{number}");
        let (mut server, at) = serve(&bench, &folder);
        let target = format!("nfs://{at}/");
        let mut child = start(&bench, crumb(), &[&args[..2], &[&target], &args[2..]].concat());
        // Until files are made in the run's folder, beside its mark.
        let has_files = || {
            let inside = std::fs::read_dir(bench.path(&folder)).unwrap().flatten().next();
            inside.is_some_and(|inside| std::fs::read_dir(inside.path()).is_ok_and(|all| all.count() > 2))
        };
        while !has_files() {
            assert!(child.try_wait().unwrap().is_none(), "{args:?} ended by itself");
            std::thread::yield_now();
        }
        kill_process(Pid::from_child(&server), Signal::STOP).unwrap();
        let begun = std::time::Instant::now();
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        let output = child.wait_with_output().unwrap();
        let took = begun.elapsed();
        server.kill().unwrap();
        server.wait().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(130), "{args:?}: {said}");
        assert!(took < std::time::Duration::from_secs(50), "{args:?} took {took:?}: {said}");
        assert!(said.contains("left behind: crumb-") && said.contains("crumb clean nfs"), "{args:?}: {said}");
        assert!(said.contains(&at), "{args:?} does not name the server: {said}");
    }
}

/// Symptom: tables came after up to 119 s in which files were removed, and Ctrl-C in them lost nothing but showed nothing either.
#[test]
fn results_come_before_the_removal_and_ctrl_c_in_it_keeps_them_and_says_how_to_remove_the_rest() {
    // How fast files go is the machine's: where all were gone before the signal came, it is tried again.
    for _ in 0..10 {
        let bench = bench();
        let mut child = start(
            &bench,
            crumb(),
            &[
                "run",
                "dirscale",
                "a",
                "--warm",
                "--layout",
                "flat",
                "--sizes",
                "60000",
                "--file-bytes",
                "0",
                "--rounds",
                "1",
                "--readings",
                "1",
                "--operations",
                "1",
            ],
        );
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut shown = String::new();
        while !shown.contains("Stored as") && out.read_line(&mut shown).unwrap() > 0 {}
        let (mut err, mut said) = (BufReader::new(child.stderr.take().unwrap()), String::new());
        while !said.contains("removing 60,000 files") && err.read_line(&mut said).unwrap() > 0 {}
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        out.read_to_string(&mut shown).unwrap();
        err.read_to_string(&mut said).unwrap();
        let status = child.wait().unwrap();
        assert_eq!(status.code(), Some(130), "{shown}{said}");
        // A remark on a row may name the verdict as well.
        let verdicts = shown.lines().filter(|line| line.starts_with("Verdict ")).count();
        assert_eq!(verdicts, 1, "{shown}");
        assert!(said.contains("removing 60,000 files; Ctrl-C leaves the rest behind"), "{said}");
        assert!(bench.fine(&["runs", "list"]).contains("dirscale"));
        if left(&bench) == 0 {
            continue;
        }
        assert!(
            said.contains("the results were printed before") && said.contains("`crumb clean a` removes it"),
            "{said}"
        );
        assert!(bench.fine(&["clean", "a"]).contains("Removed 1 directory"));
        assert_eq!(left(&bench), 0);
        return;
    }
    panic!("60,000 files were always gone before the signal came");
}

#[test]
fn the_first_ctrl_c_says_what_the_next_one_does() {
    let bench = bench();
    let mut child = start(&bench, crumb(), &LONG[0]);
    wait_for_folder(&bench, &mut child);
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("Ctrl-C again ends it at once and leaves behind:\n  crumb-postmark-"), "{said}");
}
