//! Every recorded session of the original, byte for byte; where the original errs, what ours does instead.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::talk::{Said, SevenSeconds, scratch, talk, tree};
use postmark::SessionEnd;

/// A name and what is in it.
type Text = (&'static str, &'static str);

/// Recorded with the clock advancing 7 s a reading: name, configuration file, and the files that were there then, as
/// their effects show them.
const EXACT: &[(&str, Option<&str>, &[Text])] = &[
    ("argfile", Some("cfg"), &[("cfg", "set number 77\nshow\n")]),
    ("argfile-missing", Some("not-there"), &[]),
    ("argfile-quit", Some("cfg"), &[("cfg", "set number 77\nset transactions 100\nrun\nquit\n")]),
    // Called with two names, which the original takes as none.
    ("argfile-two", None, &[(".pmrc", "set number 88\n")]),
    ("biascreate-1", None, &[]),
    ("blk4096", None, &[]),
    ("defaults", None, &[]),
    ("defaults-noloc", None, &[]),
    ("eof-empty", None, &[]),
    ("exit-alias", None, &[]),
    ("help", None, &[]),
    (
        "load",
        None,
        &[("cfg", "set number 77\nset seed 9\n"), ("cfgquit", "set number 78\nquit\nset number 9\n")],
    ),
    ("longline", None, &[]),
    ("n500t500", None, &[]),
    ("number0", None, &[]),
    ("paper", None, &[]),
    ("pmrc", None, &[(".pmrc", "set number 88\n")]),
    ("runfile", None, &[]),
    ("shell", None, &[]),
    ("show-defaults", None, &[]),
    ("sizefixed", None, &[]),
    ("subdirs-noloc", None, &[]),
    ("subdirs1", None, &[]),
    ("tablefull", None, &[]),
    ("trailing", None, &[]),
    ("trans0", None, &[]),
    ("trans10", None, &[]),
    ("tworuns", None, &[]),
    ("unknown-eof", None, &[]),
    ("weighted", None, &[]),
];

/// Where the original errs; each has a test of its own below.
const MENDED: &[&str] = &["argfile-nonl", "badinput", "badloc", "badloc-default", "eof-nonewline", "trans5"];

/// The directory in which the recordings were made.
const RECORDED_IN: &str = "/mnt/pm";

/// The recordings; `README.md` there says how they were made.
const GOLDENS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata");

/// Says what was said when `name` was recorded, and gives what came back beside what came back then.
fn replay(name: &str, configuration: Option<&str>, files: &[(&str, &str)]) -> (Said, String) {
    let here = scratch();
    let substitute = |text: String| text.replace(RECORDED_IN, here.path().to_str().unwrap());
    for directory in ["a", "b"] {
        fs::create_dir(here.path().join(directory)).unwrap();
    }
    for (file, text) in files {
        fs::write(here.path().join(file), text).unwrap();
    }
    let lines = fs::read_to_string(Path::new(GOLDENS).join(format!("{name}.cmd"))).unwrap();
    let recorded = fs::read_to_string(Path::new(GOLDENS).join(format!("{name}.txt"))).unwrap();
    let said = talk(here.path(), configuration, substitute(lines).as_bytes(), Arc::new(SevenSeconds::new()));
    let made = |path: &PathBuf| path.components().count() > 1 || path.to_str().unwrap().starts_with('s');
    let left: Vec<_> =
        tree(here.path()).into_iter().filter(made).filter(|path| !path.ends_with("show.log")).collect();
    assert!(left.is_empty(), "{name} left {left:?}");
    (said, substitute(recorded))
}

fn as_recorded(said: &Said) -> String {
    let exit = match said.end {
        SessionEnd::Fine => 0,
        SessionEnd::Failed { .. } => 1,
        SessionEnd::Interrupted => 130,
    };
    format!("{}\n--- stderr ---\n{}--- exit {exit} ---\n", said.out, said.err)
}

#[test]
fn the_whole_output_is_the_original_s_for_every_recorded_session() {
    for (name, configuration, files) in EXACT {
        let (said, recorded) = replay(name, *configuration, files);
        assert_eq!(as_recorded(&said), recorded, "{name}");
    }
}

#[test]
fn no_recording_is_left_out() {
    let mut recordings = 0;
    for entry in fs::read_dir(GOLDENS).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "txt") {
            continue;
        }
        let name = path.file_stem().unwrap().to_str().unwrap();
        let known = EXACT.iter().any(|(exact, ..)| *exact == name) || MENDED.contains(&name);
        assert!(known, "{name} is compared with nothing");
        recordings += 1;
    }
    assert_eq!(recordings, EXACT.len() + MENDED.len());
}

#[test]
fn a_last_line_without_newline_is_read_whole() {
    let (said, recorded) = replay("eof-nonewline", None, &[]);
    assert!(recorded.contains("Eh?"), "the original lost the last letter of `show`");
    assert!(said.out.contains("pm>Current configuration is:\n") && !said.out.contains("Eh?"), "{}", said.out);

    let files = [("cfg", "set number 77\nset seed 99")];
    let (said, recorded) = replay("argfile-nonl", Some("cfg"), &files);
    assert_eq!(as_recorded(&said), recorded.replace("seed is 9\n", "seed is 99\n"));
}

#[test]
fn fewer_than_ten_transactions_are_run() {
    let (said, recorded) = replay("trans5", None, &[]);
    assert!(recorded.contains("exit 136"), "the original divides by zero");
    assert_eq!((said.end, said.err.as_str()), (SessionEnd::Fine, ""));
    assert!(said.out.contains("Performing transactions.....Done\n"), "{}", said.out);
    assert!(said.out.contains("\t7 seconds of transactions (0 per second)\n"), "{}", said.out);
    for transactions in 1..10 {
        let lines = format!("set location a\nset number 20\nset transactions {transactions}\nrun\n");
        let here = scratch();
        fs::create_dir(here.path().join("a")).unwrap();
        let said = talk(here.path(), None, lines.as_bytes(), Arc::new(SevenSeconds::new()));
        let dots = ".".repeat(transactions);
        assert!(said.out.contains(&format!("Performing transactions{dots}Done\n")), "{}", said.out);
        assert_eq!(said.end, SessionEnd::Fine);
    }
}

#[test]
fn a_place_that_cannot_be_used_stops_the_run_and_is_told_once() {
    for name in ["badloc", "badloc-default"] {
        let (said, recorded) = replay(name, None, &[]);
        assert!(
            recorded.contains("Error: cannot open '/nonexistent/dir/1' for writing"),
            "an error a file, exit 0"
        );
        assert_eq!(said.end, SessionEnd::Failed { runs: 1 });
        assert_eq!(said.err.lines().count(), 1, "{}", said.err);
        assert!(said.err.starts_with("Error: location '/nonexistent/dir' cannot be used"), "{}", said.err);
        assert!(said.err.contains("No such file or directory"), "{}", said.err);
        assert!(said.out.ends_with("pm>pm>"), "no report, and the next command is read: {}", said.out);
    }
}

#[test]
fn bad_input_is_complained_of_as_the_original_does_but_for_the_place_that_is_not_there() {
    let (said, recorded) = replay("badinput", None, &[]);
    let progress = "Creating files...Done\nPerforming transactions..........Done\nDeleting files...Done\n";
    let a_file_each = |line: &&str| {
        !["Error: cannot open '/x/", "Error: Cannot delete '/x/"].iter().any(|error| line.starts_with(error))
    };
    let recorded: Vec<_> = recorded.split_inclusive('\n').filter(a_file_each).collect();
    let recorded = recorded.concat().replace(progress, "").replace("exit 0", "exit 1");
    let ours = as_recorded(&said);
    let ours: Vec<_> = ours
        .split_inclusive('\n')
        .filter(|line| !line.starts_with("Error: location '/x/y' cannot be used"))
        .collect();
    assert_eq!(ours.concat(), recorded);
}
