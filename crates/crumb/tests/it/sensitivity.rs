//! `crumb run fstress --vary`: the figure in all its forms, its runs in the store, and what is refused.

use serde_json::Value;

use crate::binary::{Bench, Said, assert_fits};

/// Four short points.
const WORDS: [&str; 17] = [
    "run",
    "fstress",
    "a",
    "--vary",
    "memory-hit=0,1",
    "--lines",
    "disk-hit=0,1",
    "--rate",
    "100",
    "--files",
    "50",
    "--warm",
    "100ms",
    "--measure",
    "300ms",
    "--file-size",
    "1KiB",
];

fn bench() -> Bench {
    let bench = Bench::in_memory();
    std::fs::create_dir(bench.path("a")).unwrap();
    bench
}

/// Beside other tests the machine may be disturbed, which is INVALID (3) and not what this is about.
fn drawn(bench: &Bench, more: &[&str]) -> Said {
    let args = [&WORDS, more].concat();
    let said = bench.crumb(&args);
    assert!(matches!(said.code, 0 | 3), "{args:?}: {} {}{}", said.code, said.out, said.err);
    said
}

#[test]
fn a_figure_is_a_table_a_page_a_picture_and_runs_that_differ_in_their_workload() {
    let bench = bench();
    let files = ["--json", "out.json", "--report", "out.html", "--svg", "out.svg", "--csv", "out.csv"];
    let said = drawn(&bench, &files);
    assert_fits(&said.out);
    for words in ["memory-hit", "disk-hit 0", "disk-hit 1", "mean latency (ms)", "p99 latency (ms)"] {
        assert!(said.out.contains(words), "{words}: {}", said.out);
    }
    assert!(said.err.contains("4 points") && said.err.contains("4 of 4"), "{}", said.err);
    for (file, words) in [("out.html", "<svg"), ("out.html", "--set memory-hit=1"), ("out.svg", "disk-hit 1")]
    {
        assert!(bench.read(file).contains(words), "{file} has no {words}");
    }
    assert_eq!(bench.read("out.csv").lines().count(), 5);
    assert!(bench.read("out.csv").starts_with("memory-hit,disk-hit,offered_per_sec,"));
    assert!(bench.path("a").read_dir().unwrap().next().is_none(), "no files are left");

    let json: Value = serde_json::from_str(&bench.read("out.json")).unwrap();
    let records = json["records"].as_array().unwrap();
    let operations = |record: &Value| -> Vec<String> {
        record["points"][0]["ops"].as_object().unwrap().keys().cloned().collect()
    };
    // Line by line: memory hits of 0 and 1 with disk hits of 0, then with disk hits of 1.
    assert!(operations(&records[0]).contains(&"create".to_owned()));
    assert!(!operations(&records[1]).contains(&"lookup".to_owned()), "all hits are attribute checks");
    assert!(!operations(&records[2]).contains(&"create".to_owned()), "no disk misses");
    let workloads: Vec<&str> =
        records.iter().filter_map(|record| record["config"]["workload"].as_str()).collect();
    assert_eq!(workloads[2], "web-proxy memory-hit=0 disk-hit=1");
    let series = |record: &Value| record["series"]["of"].clone();
    assert!(records.iter().all(|record| series(record) == series(&records[0])), "one series");

    let ids: Vec<&str> = records.iter().filter_map(|record| record["id"].as_str()).collect();
    let listed = bench.crumb(&["runs", "list"]);
    assert!(ids.iter().all(|id| listed.out.contains(id)), "{}", listed.out);
    let compared = bench.crumb(&["compare", ids[0], ids[1]]);
    let said = format!("{}{}", compared.out, compared.err);
    assert!(said.contains("workload"), "the workload is named as what differs: {said}");
}

#[test]
fn a_dry_run_says_every_point_and_the_time_and_touches_nothing() {
    let bench = bench();
    let said = drawn(&bench, &["--dry-run"]);
    let flat = said.out.split_whitespace().collect::<Vec<_>>().join(" ");
    let last = "--workload web-proxy --rate 100 --set memory-hit=1 --set disk-hit=1";
    assert!(flat.contains("4 points") && flat.contains(last), "{}", said.out);
    assert!(bench.path("a").read_dir().unwrap().next().is_none());
}

#[test]
fn what_makes_no_figure_is_refused_with_what_would() {
    let bench = bench();
    for (args, words) in [
        (&["--vary", "memory-hits=0,1"][..], "did you mean `memory-hit`?"),
        (&["--vary", "memory-hit=0..1/0.5", "--rate", "100, 200"], "--rate 1000"),
        (&["--vary", "memory-hit=0,1", "--lines", "memory-hit=0,1"], "two knobs"),
        (&["--vary", "memory-hit=0,1", "--repeat", "3"], "leave --repeat"),
        (&["--vary", "memory-hit=0,2"], "a ratio from 0 to 1"),
        (&["--vary", "memory-hit=0,1", "--set", "memory-hit=1"], "also varied"),
        (&["--lines", "memory-hit=0,1"], "--vary"),
    ] {
        let said = bench.crumb(&[&["run", "fstress", "a"], args].concat());
        assert_eq!(said.code, 2, "{args:?}: {}", said.err);
        assert!(said.err.contains(words), "{args:?}: {}", said.err);
    }
}

#[test]
fn knobs_are_listed_and_set_for_one_run() {
    let bench = bench();
    let listed = bench.crumb(&["workload", "knobs"]);
    assert_fits(&listed.out);
    assert!(listed.out.contains("memory-hit") && listed.out.contains("mix.OPERATION"), "{}", listed.out);
    let said = bench.crumb(&[
        "run",
        "fstress",
        "a",
        "--set",
        "mix.read=50",
        "--rate",
        "100",
        "--files",
        "50",
        "--warm",
        "100ms",
        "--measure",
        "300ms",
    ]);
    assert!(matches!(said.code, 0 | 3) && said.out.contains("50.00"), "{}{}", said.out, said.err);
}
