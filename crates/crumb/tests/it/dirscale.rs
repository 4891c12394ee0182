//! `crumb run dirscale` on a memory file system: tables, record, keeping and going on, wrong usage.

use std::path::Path;

use crate::binary::{Bench, assert_fits, is_sound};
use measure::RunRecord;

/// Runs in memory where there is such a directory: the test is not about the disk.
fn target() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory) } else { tempfile::tempdir() }.unwrap()
}

const QUICK: [&str; 5] = ["--sizes", "1..32", "--operations", "30", "--warm"];

fn args<'a>(target: &'a Path, more: &[&'a str]) -> Vec<&'a str> {
    [&["run", "dirscale", target.to_str().unwrap()], &QUICK[..], more].concat()
}

#[test]
fn a_run_shows_a_table_for_each_layout_keeps_its_record_and_leaves_nothing() {
    let (bench, target) = (Bench::new(), target());
    let out = bench.fine(&args(target.path(), &["--layout", "flat,345", "--json", "run.json"]));
    assert_fits(&out);
    assert!(out.contains("flat: microseconds an operation"), "{out}");
    assert!(out.contains("345: microseconds an operation"), "{out}");
    assert!(out.contains("345 against flat: pays for the whole day"), "{out}");
    assert!(!out.contains("cache state unknown"), "{out}");
    assert!(out.contains("day's mean: an operation"), "{out}");
    assert_eq!(std::fs::read_dir(target.path()).unwrap().count(), 0);

    let record = RunRecord::from_json(&bench.read("run.json")).unwrap();
    assert!(record.complete && is_sound(&record.verdict), "{:?}", record.verdict);
    let curves: Vec<&str> = record.curves.iter().map(|curve| curve.name.as_str()).collect();
    assert_eq!(
        curves,
        ["lookup_random_us", "lookup_sequential_us", "add_us", "remove_us", "readdir_us", "day_us"]
    );
    assert!(record.curves.iter().all(|curve| curve.over == "files" && curve.lines.len() == 2));
    assert!(
        record.curves[0].lines[0].points.iter().map(|point| point.x).eq([1.0, 2.0, 4.0, 8.0, 16.0, 32.0])
    );
    assert!(record.metrics["day_cost_flat_us"] > 0.0 && record.metrics["day_cost_345_us"] > 0.0);
    assert_eq!(record.config["cache"], "warm");
    assert!(bench.fine(&["runs", "list"]).contains("dirscale"));
}

#[test]
fn directories_of_one_and_two_files_give_figures_and_no_conclusion() {
    let (bench, target) = (Bench::new(), target());
    let place = target.path().to_str().unwrap();
    let out = bench.fine(&["run", "dirscale", place, "--sizes", "1..2", "--warm", "--json", "run.json"]);
    let out = out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(out.contains("pays is unknown: the largest directory had 2 files"), "{out}");
    let record = RunRecord::from_json(&bench.read("run.json")).unwrap();
    assert!(
        record.verdict.has("sizes-too-small") && !record.verdict.has("pays-from"),
        "{:?}",
        record.verdict
    );
    assert!(!record.metrics.keys().any(|name| name.starts_with("pays_from")), "{:?}", record.metrics);
    assert!(record.metrics["day_cost_flat_us"] > 0.0);
}

#[test]
fn what_is_kept_is_gone_on_with() {
    let (bench, target) = (Bench::new(), target());
    bench.fine(&args(target.path(), &["--keep", "spool"]));
    assert!(target.path().join("crumb-dirscale-spool/345/000").is_dir());
    let refused = bench.fails(1, &args(target.path(), &["--keep", "spool"]));
    assert!(refused.contains("--reuse spool"), "{refused}");
    let place = target.path().to_str().unwrap();
    let again =
        ["run", "dirscale", place, "--sizes", "1..64", "--operations", "40", "--warm", "--reuse", "spool"];
    let said = bench.crumb(&again);
    assert!(said.is_fine(), "{}{}", said.out, said.err);
    assert!(said.err.contains("going on with 64 files"), "{}", said.err);
}

#[test]
fn cold_on_storage_that_cannot_be_cold_is_said_in_the_verdict() {
    let (bench, target) = (Bench::new(), target());
    if !target.path().starts_with("/dev/shm") {
        return;
    }
    let place = target.path().to_str().unwrap();
    let out = bench.fine(&["run", "dirscale", place, "--sizes", "8", "--operations", "20", "--cold"]);
    assert!(out.contains("note: measured warm though cold was asked for: tmpfs"), "{out}");
}

#[test]
fn wrong_usage_is_told_with_what_would_be_right() {
    let bench = Bench::new();
    let cases: [(&[&str], &str); 6] = [
        (&["--layout", "789"], "the layouts are flat, 345, 34/56, 56/34, 456 and hash:2"),
        (&["--sizes", "0"], "such as 1..524288"),
        (&["--cold", "--warm"], "cannot be used with"),
        (&["--frequencies", "rename=5"], "operations a day, such as"),
        (&["--keep", "a/b"], "letters, digits"),
        (&["--keep", "a", "--repeat", "2"], "leave --repeat and --vs out"),
    ];
    for (wrong, told) in cases {
        let err = bench.fails(2, &[&["run", "dirscale", "."], wrong].concat());
        assert!(err.contains(told), "{wrong:?}: {err}");
    }
    let missing = bench.fails(1, &["run", "dirscale", "no/such/place"]);
    assert!(missing.contains("no/such/place"), "{missing}");
}
