//! What the run store keeps, finds and refuses.

use std::error::Error as _;
use std::fs;

use crate::sample::{Sweep, postmark_series};
use measure::{BenchmarkRegistry, RunId, RunRecord};
use report::sides::{self, Source};
use report::{ReportError, Store};
use tempfile::TempDir;

fn scratch() -> (TempDir, Store) {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(directory.path().join("deep/er/runs.db")).unwrap();
    (directory, store)
}

fn run(id: &str, started: &str) -> RunRecord {
    let mut record = Sweep::new("filer", 400.0, 3_000.0).rates(&[500.0]).named(id).record();
    record.started = started.parse().unwrap();
    record
}

#[test]
fn a_record_comes_back_whole_after_the_store_was_closed() {
    let (directory, store) = scratch();
    let record = run("20261121-180000-fstress-3f9a", "2026-11-21T18:00:00Z");
    store.insert(&record).unwrap();
    let path = store.path().to_owned();
    drop(store);
    let again = Store::open(path).unwrap().find("last").unwrap();
    // By assert!, as a failure would otherwise print some hundred thousand histogram buckets.
    assert!(again.to_json() == record.to_json());
    assert_eq!(again.points[0].histogram.summary(), record.points[0].histogram.summary());
    drop(directory);
}

#[test]
fn a_list_is_newest_first_even_within_a_second() {
    let (_directory, store) = scratch();
    store.insert(&run("b", "2026-11-21T18:00:00.5Z")).unwrap();
    store.insert(&run("a", "2026-11-21T18:00:00Z")).unwrap();
    store.insert(&run("c", "2026-11-20T18:00:00Z")).unwrap();
    let list = store.list().unwrap();
    assert_eq!(list.iter().map(|run| run.id.0.as_str()).collect::<Vec<_>>(), ["b", "a", "c"]);
    assert!(list[0].valid && list[0].complete);
    assert_eq!((list[0].points, list[0].metrics["files"]), (1, 120_000.0));
    assert_eq!(store.find("last").unwrap().id.0, "b");
}

#[test]
fn a_run_by_size_is_listed_with_the_number_of_its_sizes() {
    let (_directory, store) = scratch();
    let mut record = run("20261121-180000-dirscale-3f9a", "2026-11-21T18:00:00Z");
    record.points.clear();
    let points = vec![measure::CurvePoint::default(); 7];
    let line = measure::CurveLine { label: "flat".to_owned(), points };
    let curve = |lines| measure::Curve { name: "add_us".to_owned(), over: "files".to_owned(), lines };
    record.curves = vec![curve(vec![]), curve(vec![measure::CurveLine::default(), line])];
    store.insert(&record).unwrap();
    assert_eq!(store.list().unwrap()[0].points, 7);
}

#[test]
fn a_run_is_found_by_its_beginning_or_its_end_and_several_are_named() {
    let (_directory, store) = scratch();
    for id in ["20261121-180000-fstress-3f9a", "20261121-190000-fstress-77aa", "20261122-180000-fstress-0001"]
    {
        store.insert(&run(id, "2026-11-21T18:00:00Z")).unwrap();
    }
    assert_eq!(store.find("77aa").unwrap().id.0, "20261121-190000-fstress-77aa");
    assert_eq!(store.find("20261122").unwrap().id.0, "20261122-180000-fstress-0001");
    let ambiguous = store.find("20261121").unwrap_err().to_string();
    assert!(
        ambiguous.contains("2 runs") && ambiguous.contains("3f9a") && ambiguous.contains("77aa"),
        "{ambiguous}"
    );
    let none = store.find("%").unwrap_err();
    assert!(matches!(none, ReportError::NoRun { runs: 3, .. }), "a wildcard is no name: {none}");
    assert!(matches!(store.find(""), Err(ReportError::NoRun { .. })));
}

#[test]
fn a_whole_name_is_found_though_another_begins_with_it() {
    let (_directory, store) = scratch();
    store.insert(&run("run", "2026-11-21T18:00:00Z")).unwrap();
    store.insert(&run("run-2", "2026-11-21T18:00:00Z")).unwrap();
    assert_eq!(store.find("run").unwrap().id.0, "run");
}

#[test]
fn an_empty_store_says_how_to_make_a_run() {
    let (_directory, store) = scratch();
    assert!(store.find("last").unwrap_err().to_string().contains("crumb run"));
}

#[test]
fn an_exported_run_can_be_imported_once_elsewhere() {
    let (_directory, store) = scratch();
    let text = run("r", "2026-11-21T18:00:00Z").to_json();
    assert_eq!(store.import(&text).unwrap(), [RunId("r".into())]);
    assert_eq!(store.list().unwrap().len(), 1);
    // A list is imported whole or not at all.
    let renamed = |id: &str| text.replace("\"id\": \"r\"", &format!("\"id\": {}", serde_json::json!(id)));
    assert_ne!(renamed("s"), text);
    for refused in ["\u{1b}[31m", "", "../x", "r"] {
        let list = format!("[{},{}]", renamed("s"), renamed(refused));
        assert!(store.import(&list).is_err(), "{refused:?}");
        assert_eq!(store.list().unwrap().len(), 1, "{refused:?}");
    }
    let list = format!("[{},{}]", renamed("s"), renamed("t"));
    assert_eq!(store.import(&list).unwrap(), [RunId("s".into()), RunId("t".into())]);
    assert!(store.import("[]").is_err());
    let again = store.import(&text).unwrap_err();
    assert!(matches!(again, ReportError::Duplicate { .. }), "{again}");
    assert!(again.to_string().contains("crumb runs rm r"), "{again}");
    assert!(matches!(store.import("{}"), Err(ReportError::Import(_))));
    let newer = store.import(r#"{"schema": 9}"#).unwrap_err();
    assert!(newer.source().unwrap().to_string().contains("schema 9"));
}

#[test]
fn what_is_kept_of_a_run_under_way_is_replaced_and_never_missing() {
    let (_directory, store) = scratch();
    let mut record = run("r", "2026-11-21T18:00:00Z");
    for complete in [false, false, true] {
        record.complete = complete;
        store.replace(&record).unwrap();
        assert_eq!(store.list().unwrap().len(), 1);
        assert_eq!(store.find("r").unwrap().complete, complete);
    }
}

#[test]
fn a_removed_run_is_gone_and_cannot_be_removed_twice() {
    let (_directory, store) = scratch();
    store.insert(&run("r", "2026-11-21T18:00:00Z")).unwrap();
    store.remove(&RunId("r".into())).unwrap();
    assert!(store.list().unwrap().is_empty());
    assert!(matches!(store.remove(&RunId("r".into())), Err(ReportError::NoRun { .. })));
}

#[test]
fn a_number_that_json_cannot_hold_is_refused_when_stored_and_not_when_wanted() {
    let (_directory, store) = scratch();
    let mut record = run("r", "2026-11-21T18:00:00Z");
    record.metrics.insert("overall_response_us".into(), f64::NAN);
    assert!(matches!(store.insert(&record), Err(ReportError::Unreadable { .. })));
    assert!(store.list().unwrap().is_empty());
}

#[test]
fn a_newer_store_is_refused_by_its_version_and_left_as_it_is() {
    let (_directory, store) = scratch();
    let path = store.path().to_owned();
    drop(store);
    let sqlite = rusqlite::Connection::open(&path).unwrap();
    sqlite.pragma_update(None, "user_version", 7).unwrap();
    drop(sqlite);
    let before = fs::read(&path).unwrap();
    let error = Store::open(&path).unwrap_err();
    assert!(matches!(error, ReportError::Newer { found: 7, .. }), "{error}");
    assert!(error.to_string().contains("version 7"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn a_file_that_is_no_database_and_one_of_another_program_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let text = directory.path().join("notes.txt");
    fs::write(&text, "my notes, dear to me\n".repeat(100)).unwrap();
    assert!(matches!(Store::open(&text), Err(ReportError::NoDatabase { .. })));
    assert!(fs::read_to_string(&text).unwrap().starts_with("my notes"));

    let other = directory.path().join("other.db");
    rusqlite::Connection::open(&other).unwrap().execute_batch("CREATE TABLE bookmarks (url TEXT)").unwrap();
    assert!(matches!(Store::open(&other), Err(ReportError::Foreign { .. })));
}

#[test]
fn a_torn_store_is_an_error_that_names_the_file() {
    let (_directory, store) = scratch();
    let path = store.path().to_owned();
    for at in 0..20 {
        store.insert(&run(&format!("r{at}"), "2026-11-21T18:00:00Z")).unwrap();
    }
    drop(store);
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 4..bytes.len();
    bytes[middle].fill(0xa5);
    fs::write(&path, bytes).unwrap();
    let told = Store::open(&path).and_then(|store| {
        store.list()?;
        (0..20).try_for_each(|at| store.find(&format!("r{at}")).map(drop))
    });
    assert!(told.unwrap_err().to_string().contains("runs.db"));
}

/// Symptom: `--store` with a file of one byte made an empty store of it. Cause: SQLite takes it for an empty database.
#[test]
fn a_file_that_is_not_empty_and_no_database_is_left_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    for content in ["x", "SQLite format 3", "a text of some length that is no database at all"] {
        let path = directory.path().join("notes");
        fs::write(&path, content).unwrap();
        assert!(matches!(Store::open(&path), Err(ReportError::NoDatabase { .. })), "{content}");
        assert_eq!(fs::read_to_string(&path).unwrap(), content);
    }
    let empty = directory.path().join("empty");
    fs::write(&empty, "").unwrap();
    Store::open(&empty).unwrap().check_whole().unwrap();
}

#[test]
fn a_store_with_foreign_bytes_in_its_middle_is_found_to_be_damaged() {
    let (_directory, store) = scratch();
    (0..40).for_each(|number| store.insert(&run(&format!("run-{number}"), "2026-11-21T18:00:00Z")).unwrap());
    store.check_whole().unwrap();
    let path = store.path().to_owned();
    drop(store);
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 4..bytes.len() * 3 / 4;
    bytes[middle].iter_mut().enumerate().for_each(|(at, byte)| *byte = (at * 7 + 1) as u8);
    fs::write(&path, bytes).unwrap();
    let error = Store::open(&path).unwrap().check_whole().unwrap_err().to_string();
    assert!(error.contains("damaged") && error.contains("runs.db"), "{error}");
}

#[test]
fn a_damaged_record_does_not_hide_the_others() {
    let (_directory, store) = scratch();
    store.insert(&run("bad", "2026-11-21T18:00:00Z")).unwrap();
    store.insert(&run("good", "2026-11-21T18:00:00Z")).unwrap();
    let sqlite = rusqlite::Connection::open(store.path()).unwrap();
    sqlite.execute("UPDATE runs SET record = '{\"schema\": 1', metrics = '[' WHERE id = 'bad'", []).unwrap();
    assert_eq!(store.list().unwrap().len(), 2);
    assert!(matches!(store.find("bad"), Err(ReportError::Damaged { .. })));
    assert_eq!(store.find("good").unwrap().id.0, "good");
}

#[test]
fn two_that_open_a_new_store_at_once_both_get_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("runs.db");
    std::thread::scope(|scope| {
        let opening: Vec<_> = (0..8)
            .map(|at| {
                let path = &path;
                scope.spawn(move || {
                    let store = Store::open(path).unwrap();
                    store.insert(&run(&format!("r{at}"), "2026-11-21T18:00:00Z")).unwrap();
                })
            })
            .collect();
        opening.into_iter().for_each(|thread| thread.join().unwrap());
    });
    assert_eq!(Store::open(&path).unwrap().list().unwrap().len(), 8);
}

fn with_a_series() -> (TempDir, Store) {
    let (directory, store) = scratch();
    for record in postmark_series(1.1) {
        store.insert(&record).unwrap();
    }
    store.insert(&run("20261121-180000-fstress-3f9a", "2026-11-20T18:00:00Z")).unwrap();
    (directory, store)
}

#[test]
fn a_series_is_found_by_any_of_its_runs_and_comes_in_the_order_of_its_turns() {
    let (_directory, store) = with_a_series();
    for name in ["20261122-180000-postmark-00a0", "00a0", "00a7", "last"] {
        let turns: Vec<u32> =
            store.series(name).unwrap().iter().map(|run| run.series.as_ref().unwrap().turn).collect();
        assert_eq!(turns, (1..=10).collect::<Vec<_>>(), "{name}");
    }
    assert!(matches!(store.series("3f9a"), Err(ReportError::NoSeries { .. })));
    assert!(matches!(store.series("ffff"), Err(ReportError::NoRun { .. })));
    store.remove(&RunId("20261122-180000-postmark-00a0".into())).unwrap();
    assert_eq!(store.series("00a0").unwrap().len(), 9, "the series outlives its first run");
    let sqlite = rusqlite::Connection::open(store.path()).unwrap();
    sqlite.execute("UPDATE runs SET record = '{' WHERE id LIKE '%3f9a'", []).unwrap();
    assert_eq!(store.series("00a7").unwrap().len(), 9, "a damaged run elsewhere is no matter");
}

#[test]
fn runs_are_found_by_exactly_their_label() {
    let (_directory, store) = with_a_series();
    assert_eq!(store.labelled("ext4").unwrap().len(), 5);
    assert!(matches!(store.labelled("ext"), Err(ReportError::NoLabel { .. })));
}

#[test]
fn sides_are_named_by_runs_series_labels_and_files() {
    let (directory, store) = with_a_series();
    let path = store.path().to_owned();
    drop(store);
    let source = Source::new(|| Store::open(&path), BenchmarkRegistry::NONE);
    let sizes = |arguments: &[&str]| {
        let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
        sides::named(&arguments, &source).map(|sides| {
            sides
                .iter()
                .map(|side| format!("{} {} {}", side.name, side.label, side.runs.len()))
                .collect::<Vec<_>>()
        })
    };
    assert_eq!(sizes(&["last"]).unwrap(), ["A ext4 5", "B XFS, new log 5"]);
    assert_eq!(sizes(&["00a3:B", "00a3:a"]).unwrap(), ["A XFS, new log 5", "B ext4 5"]);
    assert_eq!(sizes(&["label:XFS, new log", "00a0,00a3,00a0"]).unwrap(), ["A XFS, new log 5", "B ext4 2"]);
    assert_eq!(sizes(&["00a0", "00a1"]).unwrap(), ["A ext4 1", "B XFS, new log 1"]);
    assert!(matches!(sizes(&["3f9a"]), Err(ReportError::NoSeries { .. })));
    assert!(
        matches!(sizes(&["00a0,00a1"]).map(|sides| sides.len()), Ok(1)),
        "one side is found, and refused later"
    );
    let no_side = sizes(&["last:C", "last:A"]).unwrap_err().to_string();
    assert!(no_side.contains("no side \"C\"; it has A, B"), "{no_side}");
    let ambiguous = sizes(&["2026112", "00a0"]).unwrap_err();
    assert!(matches!(ambiguous, ReportError::Ambiguous { .. }), "{ambiguous}");
    let file = directory.path().join("a.json");
    fs::write(&file, postmark_series(1.0)[0].to_json()).unwrap();
    assert_eq!(sizes(&[file.to_str().unwrap(), "00a1"]).unwrap(), ["A ext4 1", "B XFS, new log 1"]);
    assert!(matches!(sizes(&["missing.json", "00a1"]), Err(ReportError::File { .. })));
}
