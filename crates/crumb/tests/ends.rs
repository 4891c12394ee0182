//! How runs end that cannot write what they found.

mod binary;

use binary::Bench;

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

#[test]
fn a_report_to_standard_output_is_a_page_and_no_file_of_that_name() {
    let bench = bench();
    let page = bench.fine(&with(&["--report", "-", "--quiet"]));
    assert!(page.starts_with("<!doctype html>") || page.starts_with("<!DOCTYPE html>"), "{:.200}", page);
    assert!(page.trim_end().ends_with("</html>") && !bench.path("-").exists());
    assert!(bench.fails(2, &with(&["--report", "-", "--json", "-"])).contains("both want standard output"));
}
