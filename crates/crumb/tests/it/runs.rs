//! `crumb runs`, from an imported record to the last one removed.

use std::io::Read as _;
use std::process::{Command, Stdio};

use crate::binary::{Bench, assert_fits};
use crate::sample;
use measure::RunRecord;

const FIRST: &str = "20261121-180000-fstress-3f9a";
const SECOND: &str = "20261122-090000-fstress-77c0";

fn with_two_runs() -> Bench {
    let bench = Bench::new();
    let mut second =
        sample::invalid_record(SECOND, "a filer whose name goes on and on until no terminal has room");
    second.started = "2026-11-22T09:00:00Z".parse().unwrap();
    bench.write("a.json", &sample::record(FIRST, "filer A").to_json());
    bench.write("b.json", &second.to_json());
    bench.fine(&["runs", "import", "a.json", "b.json"]);
    bench
}

#[test]
fn a_record_that_goes_in_comes_out_the_same() {
    let bench = with_two_runs();
    let asked = RunRecord::from_json(&bench.read("a.json")).unwrap();
    assert_eq!(RunRecord::from_json(&bench.fine(&["runs", "export", FIRST])).unwrap(), asked);
    assert_eq!(RunRecord::from_json(&bench.fine(&["runs", "show", "3f9a", "--json"])).unwrap(), asked);
    let said = bench.crumb(&["runs", "export", "20261121", "-o", "again.json"]);
    assert!(said.out.is_empty() && said.err.contains("again.json"), "{}{}", said.out, said.err);
    assert_eq!(RunRecord::from_json(&bench.read("again.json")).unwrap(), asked);
    bench.fine(&["runs", "rm", "3f9a"]);
    let said = bench.crumb_fed(&["runs", "import", "-"], &bench.read("again.json"));
    assert_eq!((said.code, said.err.as_str()), (0, "imported 20261121-180000-fstress-3f9a\n"));
}

/// A histogram whose payload skips 2^63 buckets: HdrHistogram's own reader ended the program.
#[test]
fn a_record_with_a_hostile_histogram_or_number_is_refused_by_name_wherever_it_is_read() {
    let bench = with_two_runs();
    let mut record: serde_json::Value = serde_json::from_str(&bench.read("a.json")).unwrap();
    let good = record["points"][0]["histogram"].clone();
    record["points"][0]["histogram"] = "HISTFAAAACN4nJNpmSzMwMAgwgABzFCaEYjFPcpeMNh/gAj8xwIAdnMYNw==".into();
    bench.write("hostile.json", &record.to_string());
    let verbs: [&[&str]; 3] = [
        &["runs", "import", "hostile.json"],
        &["report", "hostile.json"],
        &["compare", "hostile.json", "b.json"],
    ];
    for args in verbs {
        let said = bench.crumb(args);
        assert!([1, 2].contains(&said.code), "{args:?}: {} {}", said.code, said.err);
        assert!(
            said.err.contains("load point 1") && said.err.contains("histogram"),
            "{args:?}: {}",
            said.err
        );
    }
    record["points"][0]["histogram"] = good;
    record["points"][0]["achieved_per_sec"] = (-5).into();
    bench.write("hostile.json", &record.to_string());
    let said = bench.fails(1, &["runs", "import", "hostile.json"]);
    assert!(said.contains("achieved_per_sec is -5, which no run can have"), "{said}");
}

/// Symptom: the runs of a shootout looked alike in the list: their labels differ at the end, which was cut off.
#[test]
fn two_labels_that_differ_at_their_ends_differ_in_the_list() {
    let bench = Bench::new();
    for (id, side) in [(FIRST, "ssd"), (SECOND, "disk")] {
        let label = format!("shootout: web-server-of-the-library on {side}");
        bench.write("one.json", &sample::record(id, &label).to_json());
        bench.fine(&["runs", "import", "one.json"]);
    }
    let list = bench.fine(&["runs", "list"]);
    assert_fits(&list);
    assert!(list.contains("on ssd") && list.contains("on disk"), "{list}");
}

/// Symptom: the runs of `--repeat` and `--vs` stood in the list as if each had been made alone.
#[test]
fn runs_that_one_command_made_are_listed_as_a_series() {
    let bench = with_two_runs();
    assert!(!bench.fine(&["runs", "list"]).contains("series"), "no column without any");
    let of = measure::RunId("20261123-090001-fstress-77c0".to_owned());
    for (turn, side) in [(1, "A"), (2, "B")] {
        let mut record = sample::record(&format!("20261123-09000{turn}-fstress-77c{}", turn - 1), "a label");
        record.series = Some(measure::SeriesPlace { of: of.clone(), side: side.to_owned(), turn });
        bench.write("one.json", &record.to_json());
        bench.fine(&["runs", "import", "one.json"]);
    }
    let list = bench.fine(&["runs", "list"]);
    assert_fits(&list);
    assert!(list.contains("77c0:A") && list.contains("77c0:B"), "{list}");
    assert!(list.contains("`crumb compare 77c0`"), "{list}");
    let runs: serde_json::Value = serde_json::from_str(&bench.fine(&["runs", "list", "--json"])).unwrap();
    let side = |id: &str| {
        let run = runs.as_array().unwrap().iter().find(|run| run["id"] == id).expect("the run");
        run["series"]["side"].as_str().map(str::to_owned)
    };
    assert_eq!(side("20261123-090002-fstress-77c1").as_deref(), Some("B"));
    assert_eq!(side(FIRST), None);
}

/// Symptom: `runs import` into a store that is a link to nothing made the file at the end of the link.
#[test]
fn an_import_follows_no_link_to_nothing() {
    let bench = with_two_runs();
    std::os::unix::fs::symlink(bench.path("elsewhere.db"), bench.path("link.db")).unwrap();
    let said = bench.fails(1, &["--store", "link.db", "runs", "import", "a.json"]);
    assert!(said.contains("symbolic link to a file that is not there"), "{said}");
    assert!(!bench.path("elsewhere.db").exists());
}

/// A record of an earlier version has no declarations of its metrics; the program's own list says what they are.
#[test]
fn a_record_without_declarations_is_listed_shown_and_drawn_with_titles() {
    let bench = Bench::new();
    let mut record: serde_json::Value =
        serde_json::from_str(&sample::record(FIRST, "filer A").to_json()).unwrap();
    assert!(record.as_object_mut().unwrap().remove("declarations").is_some());
    bench.write("old.json", &record.to_string());
    bench.fine(&["runs", "import", "old.json"]);
    assert!(bench.fine(&["runs", "list"]).contains("4,000/s"));
    let shown = bench.fine(&["runs", "show", "last"]);
    assert!(shown.contains("Saturation point        4,000/s\n"), "{shown}");
    for run in ["last", "old.json"] {
        bench.fine(&["report", run, "-o", "page.html"]);
        assert!(bench.read("page.html").contains("Saturation point"), "{run}");
    }
}

#[test]
fn the_list_is_newest_first_and_fits_in_80_columns() {
    let bench = with_two_runs();
    let list = bench.fine(&["runs", "list"]);
    assert_fits(&list);
    let lines: Vec<&str> = list.lines().collect();
    assert!(
        lines[2].starts_with(SECOND) && lines[2].contains('…') && lines[2].ends_with("INVALID"),
        "{list}"
    );
    assert!(
        lines[3].starts_with(FIRST) && lines[3].contains("4,000/s") && lines[3].ends_with("VALID"),
        "{list}"
    );
    let runs: serde_json::Value = serde_json::from_str(&bench.fine(&["runs", "list", "--json"])).unwrap();
    assert_eq!(runs[1]["id"], FIRST);
    assert_eq!(runs[1]["metrics"]["saturation_per_sec"], 4000.0);
    assert_eq!(
        (&runs[0]["valid"], &runs[0]["complete"], &runs[0]["points"]),
        (&false.into(), &false.into(), &2.into())
    );
}

#[test]
fn a_run_is_shown_with_points_operations_environment_and_verdict() {
    let bench = with_two_runs();
    let shown = bench.fine(&["runs", "show", "3f9a"]);
    assert_fits(&shown);
    for part in [
        "filer A",
        "S    6,000   4,731.5",
        "Operations at 4,000/s",
        "NFS3ERR_STALE 1",
        "Example Processor",
        "'p99<20ms'",
        "VALID",
    ] {
        assert!(shown.contains(part), "{part}\n{shown}");
    }
    assert!(!shown.contains("Operations at 2,000/s") && !shown.contains("workload_toml"), "{shown}");
    let all = bench.fine(&["runs", "show", "3f9a", "--ops", "all"]);
    assert!(all.contains("Operations at 2,000/s") && all.contains("Operations at 6,000/s"));
    let last = bench.fine(&["runs", "show", "last"]);
    assert!(last.contains("INVALID because") && last.contains("Incomplete"), "{last}");
    assert_fits(&last);
}

#[test]
fn looking_at_a_store_that_is_not_there_makes_none() {
    let bench = Bench::new();
    let said = bench.crumb(&["runs", "list"]);
    assert!(said.code == 0 && said.out.is_empty() && said.err.contains("no runs yet"), "{}", said.err);
    assert_eq!(bench.fine(&["runs", "list", "--json"]), "[]\n");
    for verb in ["show", "export", "rm"] {
        assert!(bench.fails(1, &["runs", verb, "last"]).contains("crumb run fstress"));
    }
    assert!(!bench.path("runs.db").exists());
}

#[test]
fn what_is_wrong_is_said_with_what_to_do() {
    let bench = with_two_runs();
    for verb in ["show", "export", "import", "rm"] {
        assert!(bench.fails(2, &["runs", verb]).contains("Usage: crumb runs"));
    }
    assert!(bench.fails(1, &["runs", "show", "ffff"]).contains("crumb runs list"));
    assert!(bench.fails(1, &["runs", "show", "2026112"]).contains(FIRST));
    assert!(bench.fails(1, &["runs", "import", "missing.json"]).contains("missing.json"));
    bench.write("half.json", &bench.read("a.json")[..100]);
    assert!(bench.fails(1, &["runs", "import", "half.json"]).contains("half.json: not imported"));
    assert!(bench.fails(1, &["runs", "import", "a.json"]).contains("in the store already"));
    assert!(
        bench.fails(1, &["runs", "export", "last", "-o", "no/such/dir.json"]).contains("no/such/dir.json")
    );
    assert!(bench.fails(1, &["runs", "list", "--store", "a.json"]).contains("not a run store"));
}

#[test]
fn nothing_is_removed_when_one_of_the_names_is_wrong() {
    let bench = with_two_runs();
    bench.fails(1, &["runs", "rm", "3f9a", "ffff"]);
    assert!(bench.fine(&["runs", "list"]).contains(FIRST));
    // The same run by two names is one run.
    let said = bench.crumb(&["runs", "rm", "3f9a", FIRST]);
    assert!(said.code == 0 && said.err.ends_with("1 run left\n"), "{}", said.err);
    bench.fine(&["runs", "rm", "last"]);
    assert_eq!(bench.fine(&["runs", "list", "--json"]), "[]\n");
}

#[test]
fn a_reader_that_has_enough_is_no_error() {
    let bench = with_two_runs();
    let mut child = Command::new(env!("CARGO_BIN_EXE_crumb"))
        .args(["runs", "export", FIRST, "--store"])
        .arg(bench.path("runs.db"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Closed before the first byte is read: the write finds nobody.
    drop(child.stdout.take());
    let mut err = String::new();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    assert_eq!((child.wait().unwrap().code(), err.as_str()), (Some(0), ""));
}

#[test]
fn the_store_is_found_by_flag_then_by_environment_then_at_home() {
    let bench = with_two_runs();
    assert_eq!(bench.fine(&["--store", "other.db", "runs", "list", "--json"]), "[]\n");
    let mut command = assert_cmd::cargo::cargo_bin_cmd!("crumb");
    command.env_remove("CRUMB_STORE").env("XDG_DATA_HOME", bench.path("data")).current_dir(bench.directory());
    command.args(["runs", "import", "a.json"]).assert().success();
    assert!(bench.path("data/crumb/runs.db").is_file());
}
