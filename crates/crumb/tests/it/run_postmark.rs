//! `crumb run postmark` as a process: alone, against others, by several threads, over NFS, interrupted.

use std::process::{Command, Stdio};

use crate::binary::{Bench, assert_fits};
use measure::RunRecord;

fn bench() -> Bench {
    let bench = Bench::in_memory();
    ["a", "b"].iter().for_each(|name| std::fs::create_dir(bench.path(name)).unwrap());
    bench
}

fn left(bench: &Bench, directory: &str) -> usize {
    std::fs::read_dir(bench.path(directory)).unwrap().count()
}

#[test]
fn a_run_does_what_postmark_does_with_these_settings_and_leaves_nothing() {
    let bench = bench();
    let said = bench.crumb(&["run", "postmark", "a", "--seed", "42", "--json", "a.json"]);
    assert!(said.is_fine(), "{}{}", said.out, said.err);
    assert_fits(&said.out);
    assert!(said.out.starts_with("CLOSED LOOP") && said.out.contains("Transactions"), "{}", said.out);
    let record = RunRecord::from_json(&bench.read("a.json")).unwrap();
    // What PostMark 1.51 counts with its defaults, of which the seed is 42.
    let done = |op: &str| record.points[0].ops[op].ok;
    assert_eq!(["create", "read", "append", "delete"].map(done), [764, 243, 257, 764]);
    let items: Vec<_> = record.phases.iter().map(|phase| (phase.name.as_str(), phase.items)).collect();
    assert_eq!(items, [("create", 500), ("transactions", 500), ("delete", 528)]);
    assert!(
        record.verdict.reasons.iter().any(|reason| reason.code.ends_with("-bound")),
        "{:?}",
        record.verdict
    );
    assert_eq!((left(&bench, "a"), record.seed, record.series.is_none()), (0, 42, true));
}

#[test]
fn rivals_are_measured_in_turns_and_the_answer_stands_at_the_end() {
    let bench = bench();
    let small = ["--transactions", "2000", "--number", "200"];
    let said = bench.crumb(
        &[&["run", "postmark", "a", "--vs", "b", "--repeat", "4", "--json", "all.json"], &small[..]].concat(),
    );
    assert!(said.is_fine(), "{}{}", said.out, said.err);
    assert!(said.out.starts_with("A  postmark on a (4 runs)\nB  postmark on b (4 runs)\n"), "{}", said.out);
    assert_fits(&said.out);
    let records: Vec<RunRecord> = serde_json::from_str(&bench.read("all.json")).unwrap();
    let series: Vec<_> = records.iter().map(|record| record.series.clone().unwrap()).collect();
    let sides: String = series.iter().map(|place| place.side.as_str()).collect();
    assert_eq!(sides, "ABBAABBA");
    assert!(series.iter().zip(1..).all(|(place, turn)| place.turn == turn && place.of == records[0].id));
    let again = bench.fine(&["compare", "last"]);
    assert!(said.out.starts_with(&again), "{again}\n---\n{}", said.out);
    assert!(bench.fine(&["report", &records[0].id.0]).starts_with("wrote report.html of 8 runs"));
    assert!(bench.fine(&["report", &records[3].id.0]).starts_with("wrote report.html of 1 run"));
}

#[test]
fn repeats_on_one_target_give_medians_and_stop_when_they_are_known_well_enough() {
    let bench = bench();
    let said = bench.fine(&["run", "postmark", "a", "--repeat", "6", "--transactions", "1000"]);
    assert!(said.starts_with("6 runs; medians with their confidence intervals\n"), "{said}");
    assert_fits(&said);
    // Any interval is narrower than this, but six runs are what an interval takes.
    let wide = bench.fine(&["run", "postmark", "a", "--until-ci", "99%", "--transactions", "1000"]);
    assert!(wide.starts_with("6 runs; "), "{wide}");
    let limited = bench.crumb(&["run", "postmark", "a", "--until-ci", "0.001%", "--time-limit", "1ms"]);
    assert!(limited.is_fine() && limited.err.contains("time limit is reached"), "{}", limited.err);
    assert!(limited.out.starts_with("1 run; "), "{}", limited.out);
    // Without --until-ci it would be ignored.
    let useless = bench.crumb(&["run", "postmark", "a", "--time-limit", "5s"]);
    assert!(useless.code == 2 && useless.err.contains("--until-ci"), "{}", useless.err);
}

#[test]
fn threads_work_side_by_side_over_nfs_too() {
    let bench = bench();
    let server = nfs::server::serve_dir(bench.path("b"), Default::default(), Default::default()).unwrap();
    let url = format!("nfs://{}/", server.addr());
    for target in ["a", &url] {
        let flags =
            ["--threads", "3", "--sync", "close", "--subdirectories", "4", "--number", "50", "--json", "-"];
        let said = bench.crumb(&[&["run", "postmark", target], &flags[..]].concat());
        assert!(said.is_fine(), "{target}: {}{}", said.out, said.err);
        let record = RunRecord::from_json(&said.out).unwrap();
        assert_eq!(record.points[0].outstanding, Some(3));
        assert_eq!(record.phases[0].items, 150, "{target}");
    }
    assert_eq!((left(&bench, "a"), left(&bench, "b")), (0, 0));
}

#[test]
fn an_interrupted_run_tells_what_it_did_and_leaves_nothing() {
    let bench = bench();
    let child = Command::new(assert_cmd::cargo::cargo_bin!("crumb"))
        .current_dir(bench.directory())
        .env("CRUMB_STORE", bench.path("runs.db"))
        .args(["run", "postmark", "a", "--transactions", "100000000", "--json", "a.json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Its folder is there before the first file, and its handler before the folder.
    while left(&bench, "a") == 0 {
        std::thread::yield_now();
    }
    // Twice, as timeout(1) does: the second one once ended the process in the middle of its cleaning up.
    for _ in 0..2 {
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT)
            .unwrap();
    }
    let output = child.wait_with_output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(left(&bench, "a"), 0, "{out}{err}");
    assert_eq!(output.status.code(), Some(130), "{out}{err}");
    let record = RunRecord::from_json(&bench.read("a.json")).unwrap();
    assert!(!record.complete && record.verdict.has("interrupted"), "{out}");
    // Symptom: a run stopped while creating had 0 transactions/s as its answer.
    assert!(!record.metrics.contains_key("transactions_per_sec") && !out.contains("Transactions "), "{out}");
}

/// Symptom: a run whose storage failed in the middle exited 1 and kept nothing, where the guide promises that what was
/// measured is kept.
#[test]
fn a_run_whose_files_are_taken_away_keeps_what_it_measured_marked_incomplete() {
    let bench = bench();
    let child = Command::new(assert_cmd::cargo::cargo_bin!("crumb"))
        .current_dir(bench.directory())
        .env("CRUMB_STORE", bench.path("runs.db"))
        .args(["run", "postmark", "a", "--transactions", "100000000", "--json", "a.json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let files = || {
        let folder = std::fs::read_dir(bench.path("a")).unwrap().next()?.unwrap().path();
        Some(std::fs::read_dir(folder).ok()?.map(|file| file.unwrap().path()).collect::<Vec<_>>())
    };
    while files().is_none_or(|files| files.len() < 100) {
        std::thread::yield_now();
    }
    for file in files().unwrap() {
        // The run may have removed it already.
        let _ = std::fs::remove_file(file);
    }
    let output = child.wait_with_output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{out}{err}");
    assert!(err.contains("what was measured so far is kept, marked incomplete"), "{err}");
    let record = RunRecord::from_json(&bench.read("a.json")).unwrap();
    assert!(!record.complete && !record.verdict.valid && record.verdict.has("incomplete"), "{out}");
    assert!(record.points[0].ops["create"].ok > 0, "{out}");
    assert!(bench.fine(&["runs", "list"]).contains(&record.id.0), "and it is in the store");
}

/// Symptom: with `--no-store` and a file that could not be written at the end, nothing of the run was shown.
#[test]
fn a_file_that_cannot_be_written_is_an_error_after_the_tables() {
    let bench = bench();
    let args = ["run", "postmark", "a", "--no-store", "--json", "/dev/full"];
    let said = bench.crumb(&args);
    assert_eq!(said.code, 1, "{}{}", said.out, said.err);
    assert_eq!(said.out.matches("Transactions ").count(), 1, "{}", said.out);
    assert!(said.err.contains("cannot write /dev/full"), "{}", said.err);
    let series = bench.crumb(&[&args[..], &["--repeat", "2"]].concat());
    assert!(series.code == 1 && series.out.starts_with("2 runs; "), "{}{}", series.out, series.err);
}

#[test]
fn json_on_standard_output_leaves_the_verdict_on_standard_error() {
    let bench = bench();
    let args = ["run", "postmark", "a", "--json", "-"];
    let said = bench.crumb(&args);
    RunRecord::from_json(&said.out).unwrap();
    assert!(said.err.lines().any(|line| line.starts_with("Verdict")), "{}", said.err);
    assert_eq!(bench.crumb(&[&args[..], &["--quiet"]].concat()).err, "");
    let said = bench.crumb(&[&args[..], &["--vs", "b", "--repeat", "1"]].concat());
    // Too few repeats, or beside a busy machine no run that is VALID.
    assert!(said.err.contains("A and B"), "{}", said.err);
    assert!(said.err.contains("2 runs"), "{}", said.err);
}

/// Symptom: a server that was down was found out when it was its turn, after hours on the first side.
#[test]
fn a_side_that_cannot_be_reached_is_reported_before_the_first_run() {
    let bench = bench();
    // Free a moment ago, and nothing listens there.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let dead = format!("nfs://127.0.0.1:{port}/export?mountport={port}");
    for benchmark in ["postmark", "dirscale", "fstress"] {
        let said = bench.crumb(&["run", benchmark, "a", "--vs", &dead]);
        assert!(said.code == 1 && !said.err.contains("round 1"), "{benchmark}: {}", said.err);
        assert!(said.err.contains(&format!("127.0.0.1:{port}")), "{}", said.err);
    }
    assert!(!bench.path("runs.db").exists(), "nothing was measured");
}

#[test]
fn what_cannot_be_run_on_is_told_without_a_run() {
    let bench = bench();
    assert!(bench.fails(2, &["run", "postmark", "null:"]).contains("no files to work on"));
    assert!(bench.fails(1, &["run", "postmark", "nowhere"]).contains("nowhere: cannot open"));
    assert!(bench.fails(2, &["run", "postmark", "a", "--size", "20..10"]).contains("larger than the second"));
    assert!(bench.fails(2, &["run", "postmark", "a", "--read-bias", "11"]).contains("0 to 10"));
    assert!(bench.fails(2, &["run", "postmark", "a", "--until-ci", "0"]).contains("percentage"));
    // Before the first run on the others, which may take hours.
    assert!(bench.fails(1, &["run", "postmark", "a", "--vs", "nowhere"]).contains("nowhere: cannot open"));
    let nothing =
        bench.fails(1, &["run", "netnews", "a", "--quick", "--articles", "100", "--resume", "none"]);
    assert!(!nothing.contains("marked incomplete"), "{nothing}");
    assert!(!bench.path("runs.db").exists(), "nothing was measured, so nothing is kept");
}

#[test]
fn a_run_that_cannot_fit_is_refused_before_it_makes_anything() {
    let bench = bench();
    let said = bench.crumb(&["run", "postmark", "a", "--number", "2000000000", "--size", "512MiB"]);
    assert_eq!(said.code, 1, "{}", said.err);
    assert!(said.err.contains("are free") && said.err.contains("--number"), "{}", said.err);
    assert_eq!(left(&bench, "a"), 0);
}

/// Two loops for each CPU beside a run of a second or so. How long the run has to wait is the kernel's to say: what is asserted is
/// that the verdict follows what was measured.
#[test]
fn busy_loops_beside_a_run_are_named_when_the_run_waited_for_them() {
    let bench = bench();
    let cpus = std::thread::available_parallelism().unwrap().get();
    let busy = |_| Command::new("timeout").args(["50", "sh", "-c", "while :; do :; done"]).spawn().unwrap();
    let mut loops: Vec<_> = (0..2 * cpus).map(busy).collect();
    let said = bench.crumb(&["run", "postmark", "a", "--transactions", "100000", "--json", "run.json"]);
    for busy in &mut loops {
        let id = rustix::process::Pid::from_child(busy);
        rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
        busy.wait().unwrap();
    }
    assert!(said.is_fine(), "{}{}", said.out, said.err);
    let record = RunRecord::from_json(&bench.read("run.json")).unwrap();
    let lost = record.metrics["machine_lost_to_others_percent"];
    assert!(record.metrics["machine_others_cpu_percent"] > 0.0 && lost >= 0.0, "{:?}", record.metrics);
    let took_s: f64 = record.phases.iter().map(|phase| phase.wall_s).sum();
    if lost > 5.0 && took_s > 1.0 {
        let found = record.verdict.reasons.iter().find(|reason| reason.code == "machine-disturbed");
        assert!(
            found.is_some_and(|reason| reason.fatal && reason.text.contains("sh x")),
            "{:?}",
            record.verdict
        );
        assert!(!record.verdict.valid && said.code == 3);
    }
}
