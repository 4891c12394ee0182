//! `--dry-run` of every benchmark, and the lines with which a run starts.

use serde_json::Value;

use crate::binary::{Bench, assert_fits};

const RUNS: [(&str, &[&str]); 5] = [
    ("fstress", &["a", "--quick"]),
    ("postmark", &["a", "--quick"]),
    ("netnews", &["a", "--quick"]),
    ("dirscale", &["a", "--quick"]),
    ("webload", &["--direct", "--quick"]),
];

fn bench() -> Bench {
    let bench = Bench::in_memory();
    std::fs::create_dir(bench.path("a")).unwrap();
    bench
}

#[test]
fn a_dry_run_of_each_benchmark_says_what_would_be_done_and_touches_nothing() {
    let bench = bench();
    let before = std::fs::metadata(bench.path("a")).unwrap().modified().unwrap();
    for (benchmark, more) in RUNS {
        let args = [&["run", benchmark, "--dry-run"], more].concat();
        let text = bench.fine(&args);
        assert_fits(&text);
        for says in ["Would run", "time", "writes", "runs.db"] {
            assert!(text.contains(says), "{benchmark}: {says}: {text}");
        }
        let json: Value = serde_json::from_str(&bench.fine(&[&args[..], &["--json", "-"]].concat())).unwrap();
        let side = &json["sides"][0];
        assert!(json["dry_run"] == true && json["runs_max"] == 1 && side["benchmark"] == benchmark, "{json}");
        if benchmark != "webload" {
            assert!(side["files"].as_u64() > Some(0) && side["bytes"].as_u64() > Some(0), "{json}");
            assert!(side["work_directory"].as_str().unwrap().starts_with("crumb-"), "{json}");
        }
    }
    assert_eq!(std::fs::metadata(bench.path("a")).unwrap().modified().unwrap(), before);
    assert!(!bench.path("runs.db").exists(), "nothing is kept");
}

#[test]
fn a_dry_run_reckons_levels_and_minutes_and_refuses_what_a_run_would() {
    let bench = bench();
    let text = bench.fine(&["run", "fstress", "a", "--dry-run"]);
    assert!(text.contains("8 to 16 load levels") && text.contains("48m to 1h"), "{text}");
    // A search's set grows with the rate.
    let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        flat.contains("files 6,000 of about ") && flat.contains(" at 500 requests/s, in proportion at"),
        "{text}"
    );
    bench.fails(1, &["run", "fstress", "nowhere", "--dry-run"]);
    let json = bench.fine(&["run", "fstress", "a", "--rate", "10, 20", "--dry-run", "--json", "-"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    let seconds = &json["sides"][0]["seconds"];
    assert_eq!((&seconds["least"], &seconds["most"]), (&720.0.into(), &740.0.into()));
    let series = ["run", "postmark", "a", "--vs", "a", "--repeat", "3", "--dry-run"];
    let text = bench.fine(&series);
    assert!(text.contains("6 at most, on all sides together") && text.contains("in all"), "{text}");
    let json: Value = serde_json::from_str(&bench.fine(&[&series[..], &["--json", "-"]].concat())).unwrap();
    let (one, all) = (json["sides"][0]["operations"].as_u64(), json["total"]["operations"].as_u64());
    assert_eq!(all, one.map(|one| 6 * one), "{json}");
    let until = ["run", "postmark", "a", "--until-ci", "5%", "--time-limit", "20m", "--dry-run"];
    assert!(bench.fine(&until).contains("no round begins after 20m"));
    bench.fails(2, &["run", "fstress", "a", "--measure", "1ms", "--dry-run"]);
    bench.fails(1, &["run", "postmark", "a", "--report", "nowhere/x.html", "--dry-run"]);
}

#[test]
fn a_run_starts_with_its_totals_in_two_lines() {
    let bench = bench();
    let args =
        ["run", "fstress", "a", "--rate", "20", "--files", "20", "--warm", "50ms", "--measure", "200ms"];
    let said = bench.crumb(&args);
    let words = said.err.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("1 load level, ") && words.contains("20 files of about "), "{}", said.err);
    assert!(words.contains("in crumb-fstress-") && words.contains("Ctrl-C ends it"), "{}", said.err);
    let start: Vec<&str> = said.err.lines().take_while(|line| !line.contains(" offered:")).collect();
    assert_fits(&start.join("\n"));
    let quiet = bench.crumb(&[&args[..], &["--quiet"]].concat());
    assert_eq!(quiet.err, "");
}

#[test]
fn a_dry_run_refuses_a_packed_store_that_takes_no_load_as_the_run_does() {
    let bench = bench();
    bench.fine(&["pack", "create", "objects", "--size", "64M"]);
    for more in [&["--quick"][..], &["--rate", "10", "--vary", "memory-hit=0,1"]] {
        let run = [&["run", "fstress", "pack:objects"], more].concat();
        let dry = [&run[..], &["--dry-run"]].concat();
        let refused = bench.fails(2, &run);
        assert!(refused.contains("--tree"), "{refused}");
        assert_eq!(bench.fails(2, &dry), refused);
    }
    bench.fine(&["pack", "create", "tree", "--tree"]);
    bench.fine(&["run", "fstress", "pack:tree", "--quick", "--dry-run"]);
}
