//! `crumb postmark` as a process: what a script that ran PostMark sees of it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Command, Stdio};

use crate::binary::Bench;

const BANNER: &str = "PostMark v1.51 : 8/14/01\n";

fn left(bench: &Bench, directory: &str) -> usize {
    std::fs::read_dir(bench.path(directory)).unwrap().count()
}

#[test]
fn a_script_runs_unchanged_and_its_report_can_be_parsed() {
    let bench = Bench::new();
    std::fs::create_dir(bench.path("spool")).unwrap();
    bench.write(
        "script",
        "set location spool\nset number 50\nset transactions 200\nset subdirectories 3\nrun\n",
    );
    let said =
        bench.crumb_fed(&["postmark", "script"], "set report terse\nrun terse.log\n!cat terse.log\nquit\n");
    assert_eq!((said.code, said.err.as_str()), (0, ""));
    assert!(
        said.out.starts_with(&format!("{BANNER}Reading configuration from file 'script'\n")),
        "{}",
        said.out
    );
    assert!(said.out.contains("\t\tCreation alone: 50 files ("), "{}", said.out);
    let terse = bench.read("terse.log");
    assert_eq!(terse.split_whitespace().filter(|word| word.parse::<f64>().is_ok()).count(), 13, "{terse}");
    assert!(said.out.ends_with(&format!("pm>{terse}pm>")), "{}", said.out);
    assert_eq!(left(&bench, "spool"), 0);
}

#[test]
fn a_place_that_is_not_there_is_named_and_the_exit_code_is_1() {
    let said = Bench::new().crumb_fed(&["postmark"], "set location nowhere\nrun\nshow\nquit\n");
    assert_eq!(said.code, 1);
    assert!(
        said.err.contains("nowhere' cannot be used") && said.err.contains("error: a run failed"),
        "{}",
        said.err
    );
    assert!(said.out.contains("Current configuration is:"), "the next command is read: {}", said.out);
}

/// Symptom: a mistyped script was passed over, as by the old program, and the commands ran with the defaults, exit code 0.
#[test]
fn a_script_that_cannot_be_read_ends_it_before_anything_runs() {
    let bench = Bench::new();
    let missing = bench.fails(2, &["postmark", "nowhere"]);
    assert!(missing.contains("cannot read the script nowhere"), "{missing}");
    let directory = bench.fails(2, &["postmark", "."]);
    assert!(directory.contains("crumb run postmark ."), "{directory}");
}

#[test]
fn a_reader_that_has_gone_is_no_error_and_leaves_no_file() {
    let bench = Bench::new();
    std::fs::create_dir(bench.path("spool")).unwrap();
    let mut crumb = Command::new(assert_cmd::cargo::cargo_bin!("crumb"))
        .current_dir(bench.directory())
        .arg("postmark")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(crumb.stdout.take());
    // It may be gone already, for want of a reader for its banner.
    let _ = crumb.stdin.take().unwrap().write_all(b"set location spool\nrun\n");
    let said = crumb.wait_with_output().unwrap();
    assert_eq!((said.status.code(), said.stderr.as_slice()), (Some(0), &b""[..]));
    assert_eq!(left(&bench, "spool"), 0);
}

#[test]
fn ctrl_c_in_a_run_removes_its_files_and_says_how_far_it_got() {
    let bench = Bench::new();
    std::fs::create_dir(bench.path("spool")).unwrap();
    let mut crumb = Command::new(assert_cmd::cargo::cargo_bin!("crumb"))
        .current_dir(bench.directory())
        .arg("postmark")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let script =
        "set location spool\nset number 100\nset transactions 2000000000\nset subdirectories 2\nrun\nshow\n";
    // The pipe stays open: a session that ended for want of input would prove nothing.
    let mut stdin = crumb.stdin.take().unwrap();
    stdin.write_all(script.as_bytes()).unwrap();
    let mut out = BufReader::new(crumb.stdout.take().unwrap());
    let mut said = Vec::new();
    // The first transaction's dot: the run is on.
    out.read_until(b'.', &mut said).unwrap();
    while !said.ends_with(b"transactions.") {
        assert!(out.read_until(b'.', &mut said).unwrap() > 0, "{}", String::from_utf8_lossy(&said));
    }
    let pid = rustix::process::Pid::from_child(&crumb);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    out.read_to_end(&mut said).unwrap();
    let ended = crumb.wait_with_output().unwrap();
    let (said, err) = (String::from_utf8(said).unwrap(), String::from_utf8(ended.stderr).unwrap());
    assert_eq!(ended.status.code(), Some(130), "{said}\n{err}");
    assert!(err.contains("of 2000000000 transactions; all files of this run are removed"), "{err}");
    assert!(said.ends_with("Done\nDeleting files...Done\nDeleting subdirectories...Done\n"), "{said}");
    assert_eq!(left(&bench, "spool"), 0);
}

#[test]
fn ctrl_c_at_the_prompt_ends_the_session_at_once() {
    let mut crumb = Command::new(assert_cmd::cargo::cargo_bin!("crumb"))
        .arg("postmark")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = crumb.stdout.take().unwrap();
    let mut said = vec![0; BANNER.len() + "pm>".len()];
    out.read_exact(&mut said).unwrap();
    let pid = rustix::process::Pid::from_child(&crumb);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(crumb.wait().unwrap().code(), Some(130));
}
