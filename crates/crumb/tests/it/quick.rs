//! `--quick` of every benchmark: what it sets, what it leaves to other flags, and what it says of itself.

use serde_json::Value;

use crate::binary::{Bench, assert_fits};

/// Made as small as can be by flags that win over what `--quick` sets.
const SMALLEST: [(&str, &[&str]); 5] = [
    (
        "fstress",
        &[
            "a",
            "--rate",
            "50",
            "--files",
            "20",
            "--file-size",
            "1000",
            "--warm",
            "50ms",
            "--measure",
            "300ms",
        ],
    ),
    ("postmark", &["a", "--number", "20", "--transactions", "30"]),
    ("netnews", &["a", "--articles", "2000"]),
    ("dirscale", &["a", "--sizes", "8", "--operations", "4", "--rounds", "1"]),
    (
        "webload",
        &[
            "--direct",
            "--workload",
            "hits",
            "--objects",
            "20",
            "--warm",
            "50ms",
            "--measure",
            "200ms",
            "--think",
            "1ms",
        ],
    ),
];

fn bench() -> Bench {
    let bench = Bench::in_memory();
    std::fs::create_dir(bench.path("a")).unwrap();
    bench
}

/// What a run of `benchmark` with these flags printed, and its record.
fn ran(bench: &Bench, benchmark: &str, more: &[&str]) -> (String, Value) {
    let args = [&["run", benchmark, "--json", "run.json"], more].concat();
    let said = bench.crumb(&args);
    // 3: a loaded machine's figures may be INVALID, which is not what this is about.
    assert!(matches!(said.code, 0 | 3), "{args:?}: {} {}{}", said.code, said.out, said.err);
    (said.out, serde_json::from_str(&bench.read("run.json")).unwrap())
}

#[test]
fn a_quick_run_of_each_benchmark_says_what_it_does_not_show() {
    let bench = bench();
    for (benchmark, smallest) in SMALLEST {
        let (out, record) = ran(&bench, benchmark, &[smallest, &["--quick"]].concat());
        assert_fits(&out);
        assert!(out.contains("a quick run:"), "{out}");
        assert_eq!(record["config"]["quick"], true, "{benchmark}");
        let reasons = record["verdict"]["reasons"].as_array().unwrap();
        let quick = reasons.iter().find(|reason| reason["code"] == "quick").unwrap();
        assert!(
            quick["fatal"] == false && quick["text"].as_str().unwrap().contains("nothing about the disk")
        );
        let (out, record) = ran(&bench, benchmark, smallest);
        assert!(record["config"]["quick"].is_null() && !out.contains("a quick run:"), "{benchmark}");
    }
}

#[test]
fn quick_sets_defaults_and_other_flags_win() {
    let bench = bench();
    let (_, record) = ran(&bench, "postmark", &["a", "--quick", "--transactions", "7"]);
    assert_eq!((&record["config"]["number"], &record["config"]["transactions"]), (&1000.into(), &7.into()));
    let (_, record) = ran(&bench, "postmark", &["a"]);
    assert_eq!((&record["config"]["number"], &record["config"]["transactions"]), (&500.into(), &500.into()));
    let brief = ["--warm", "10ms", "--measure", "100ms", "--rate", "40"];
    let (_, record) = ran(&bench, "fstress", &[&["null:", "--quick"], &brief[..]].concat());
    assert_eq!(record["points"][0]["file_set"]["files"], 2000);
    assert_eq!(record["config"]["drain_s"], 3.0);
    // A number of files for each request is a number of files.
    let per_op = ["--workload", "news", "--files-per-op", "30"];
    let (_, record) = ran(&bench, "fstress", &[&["null:", "--quick"], &brief[..], &per_op].concat());
    assert_ne!(record["points"][0]["file_set"]["files"], 2000);
    let small = ["a", "--quick", "--sizes", "8", "--operations", "4"];
    let (_, record) = ran(&bench, "dirscale", &small);
    assert_eq!((&record["config"]["cache"], &record["config"]["rounds"]), (&"warm".into(), &2.into()));
    assert!(
        bench
            .fails(2, &["run", "postmark", "a", "--quick", "--preset", "2001"])
            .contains("cannot be used with")
    );
}

#[test]
fn a_comparison_of_a_quick_run_with_a_full_one_says_that_they_differ() {
    let bench = bench();
    let same = ["a", "--number", "20", "--transactions", "30"];
    ran(&bench, "postmark", &same);
    std::fs::rename(bench.path("run.json"), bench.path("full.json")).unwrap();
    ran(&bench, "postmark", &[&same[..], &["--quick"]].concat());
    let said = bench.crumb(&["compare", "full.json", "run.json"]);
    let words = said.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("setting quick differs"), "{}{}", said.out, said.err);
}
