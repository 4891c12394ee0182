//! `crumb run netnews` on a memory file system: tables, record, keeping and going on, places, wrong usage.

mod binary;

use std::path::Path;

use binary::{Bench, assert_fits};
use measure::RunRecord;

/// Runs in memory where there is such a directory: the test is not about the disk.
fn target() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap()
}

fn args<'a>(target: &'a Path, more: &[&'a str]) -> Vec<&'a str> {
    [&["run", "netnews", target.to_str().unwrap()], more].concat()
}

const SMALL: [&str; 5] = ["--quick", "--articles", "2000", "--seed", "7"];

#[test]
fn a_quick_run_shows_each_pass_keeps_its_record_and_leaves_nothing() {
    let (bench, target) = (Bench::new(), target());
    let out =
        bench.fine(&args(target.path(), &[&SMALL[..], &["--json", "run.json", "--readers", "1"]].concat()));
    assert_fits(&out);
    assert!(out.contains("Articles stored, batched, files deleted"), "{out}");
    assert_eq!(std::fs::read_dir(target.path()).unwrap().count(), 0);

    let record = RunRecord::from_json(&bench.read("run.json")).unwrap();
    assert!(record.complete && record.verdict.valid, "{:?}", record.verdict);
    let passes = |name: &str| -> Vec<u32> {
        record.phases.iter().filter(|phase| phase.name == name).map(|phase| phase.pass).collect()
    };
    assert_eq!(
        (passes("unbatch"), passes("batch"), passes("expire")),
        (vec![1, 2, 3, 4, 5], vec![2, 4], vec![3, 4, 5])
    );
    for name in ["unbatch_articles_per_sec", "ageing_percent", "expire_files_per_sec", "read_latency_p99_us"]
    {
        assert!(record.metrics.get(name).is_some_and(|value| *value > 0.0), "{name}: {:?}", record.metrics);
    }
    let curves: Vec<&str> = record.curves.iter().map(|curve| curve.name.as_str()).collect();
    assert_eq!(curves, ["unbatch_per_sec", "batch_minutes", "expire_minutes"]);
    assert!(bench.fine(&["runs", "list"]).contains("netnews"));
}

#[test]
fn a_kept_spool_lies_in_its_places_and_is_gone_on_with_only_as_it_was_begun() {
    let (bench, disk2, library) = (Bench::new(), target(), target());
    let target = target();
    let place = format!("alt.*={}", disk2.path().display());
    let history = library.path().to_str().unwrap();
    let begun = [&SMALL[..], &["--place", &place, "--history", history]].concat();
    let first = [&begun[..], &["--passes", "2", "--batches-per-pass", "3", "--keep", "mine"]].concat();
    bench.fine(&args(target.path(), &first));
    assert!(disk2.path().join("crumb-netnews-mine/articles/alt").is_dir());
    assert!(library.path().join("crumb-netnews-mine/lib/history").is_file());
    let again = bench.fails(1, &args(target.path(), &first));
    assert!(again.contains("there is a spool named mine"), "{again}");
    let elsewhere = [&SMALL[..], &["--passes", "3", "--batches-per-pass", "3", "--resume", "mine"]].concat();
    let refused = bench.fails(1, &args(target.path(), &elsewhere));
    assert!(refused.contains("ask for the same"), "{refused}");
    let on =
        [&begun[..], &["--passes", "4", "--batches-per-pass", "3", "--resume", "mine", "--json", "run.json"]]
            .concat();
    bench.fine(&args(target.path(), &on));
    let record = RunRecord::from_json(&bench.read("run.json")).unwrap();
    let passes: Vec<u32> =
        record.phases.iter().filter(|phase| phase.name == "unbatch").map(|phase| phase.pass).collect();
    assert_eq!(passes, [1, 2, 3, 4]);
}

#[test]
fn wrong_usage_says_what_is_expected() {
    let (bench, target) = (Bench::new(), target());
    let expected = [
        (&["--rm", "quickrm"][..], "dumbrm or fastrm"),
        (&["--link", "soft"], "hard or symlink"),
        (&["--place", "alt.*"], "HIERARCHY=TARGET"),
        (&["--place", "../x=/d"], "alt.binaries.*"),
        (&["--keep", "a/b"], "letters, digits"),
        (&["--keep", "a", "--repeat", "2"], "a run made alone"),
        (&["--articles", "5", "--feed", "x"], "cannot be used with"),
    ];
    for (flags, words) in expected {
        let told = bench.fails(2, &args(target.path(), flags));
        assert!(told.contains(words), "{flags:?}: {told}");
    }
    let missing = bench.fails(1, &args(target.path(), &["--feed", "nowhere"]));
    assert!(missing.contains("no feed there"), "{missing}");
}

#[test]
fn a_kept_spool_is_verified_against_its_feed_and_damage_is_found() {
    let (bench, target) = (Bench::new(), target());
    bench.fine(&["feed", "synthesize", "--articles", "1000", "--seed", "3", "-o", "feed"]);
    bench.fine(&args(target.path(), &["--quick", "--feed", "feed", "--keep", "mine"]));
    let spool = target.path().join("crumb-netnews-mine");
    let verify = ["feed", "verify", spool.to_str().unwrap(), "--feed", "feed"];
    let right = bench.fine(&verify);
    assert_fits(&right);
    assert!(right.ends_with("RIGHT\n"), "{right}");
    let json: serde_json::Value =
        serde_json::from_str(&bench.fine(&[&verify[..], &["--json", "-"]].concat())).unwrap();
    assert!(
        json["articles"].as_u64().is_some_and(|count| count > 100 && json["compared"] == count),
        "{json}"
    );

    let mut files = vec![spool.join("articles")];
    while files.last().unwrap().is_dir() {
        let dir = files.pop().unwrap();
        files.extend(std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()));
    }
    std::fs::write(files.last().unwrap(), "something else").unwrap();
    let wrong = bench.crumb(&verify);
    assert_eq!(wrong.code, 1, "{}{}", wrong.out, wrong.err);
    assert!(wrong.out.contains("wrong-content") && wrong.out.ends_with("WRONG\n"), "{}", wrong.out);
    assert!(bench.fails(2, &["feed", "verify", "/tmp/no-spool"]).contains("crumb-netnews-NAME"));
    assert!(bench.fails(1, &["feed", "verify", "crumb-netnews-none"]).contains("none"));
}
