//! Small seeded runs of each benchmark, and of a mount, whose records are what `golden_records/` says.
//!
//! What is compared and what is masked: `testkit::Golden`. How to renew the files: the README beside them.

#![allow(clippy::print_stderr, reason = "a skipped test says so")]

#[path = "it/binary.rs"]
mod binary;

use std::fs;
use std::sync::{Mutex, MutexGuard, PoisonError};

use binary::Bench;
use rustix::process::{Pid, Signal, kill_process};
use testkit::Golden;

/// Of an open loop: see [`Golden::holds_one_of`].
const TRIES: u32 = 10;

/// Runs beside each other would make each other late.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn golden() -> Golden {
    Golden::records(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden_records"))
}

/// The record of `crumb ARGS`, made in a directory that has an empty one called `a`.
fn record(bench: &Bench, args: &[&str]) -> String {
    if !bench.path("a").exists() {
        fs::create_dir(bench.path("a")).unwrap();
    }
    let said = bench.crumb(&[args, &["--json", "run.json", "--quiet"]].concat());
    // 3: a loaded machine's figures may be INVALID, which is not what this is about.
    assert!(matches!(said.code, 0 | 3), "{args:?}: {} {}{}", said.code, said.out, said.err);
    bench.read("run.json")
}

#[test]
fn a_record_of_postmark_is_as_before() {
    let (_alone, bench) = (alone(), Bench::in_memory());
    let args = ["run", "postmark", "a", "--number", "50", "--transactions", "500", "--subdirectories", "3"];
    golden().holds("postmark", &record(&bench, &[&args[..], &["--seed", "7"]].concat()));
    golden().holds(
        "postmark-threads",
        &record(&bench, &[&args[..], &["--threads", "2", "--unbuffered", "--seed", "42"]].concat()),
    );
}

#[test]
fn a_record_of_postmark_that_ran_out_of_files_is_as_before() {
    let (_alone, bench) = (alone(), Bench::in_memory());
    let args = ["run", "postmark", "a", "--number", "10", "--transactions", "500", "--create-bias", "2"];
    golden().holds("postmark-out-of-files", &record(&bench, &[&args[..], &["--seed", "42"]].concat()));
}

#[test]
fn a_record_of_netnews_is_as_before() {
    let (_alone, bench) = (alone(), Bench::in_memory());
    let args = ["run", "netnews", "a", "--articles", "1000", "--passes", "5", "--retention", "2"];
    golden().holds("netnews", &record(&bench, &[&args[..], &["--seed", "5", "--batch-every", "2"]].concat()));
    let with_readers = record(&bench, &[&args[..], &["--readers", "1", "--rm", "dumbrm"]].concat());
    golden().holds("netnews-readers", &with_readers);
}

#[test]
fn a_record_of_dirscale_is_as_before() {
    let (_alone, bench) = (alone(), Bench::in_memory());
    let args = ["run", "dirscale", "a", "--sizes", "1..2", "--operations", "10", "--readings", "2", "--warm"];
    golden().holds("dirscale", &record(&bench, &[&args[..], &["--rounds", "2", "--seed", "5"]].concat()));
}

#[test]
fn a_record_of_fstress_is_as_before() {
    let (_alone, bench) = (alone(), Bench::in_memory());
    // The last request is due 115 ms before the end, as the warm-up is that much longer than a multiple of 125 ms: a machine
    // that keeps the program from running for less sends all of them.
    let times = ["--files", "100", "--warm", "115ms", "--measure", "2s", "--seed", "3"];
    let levels = ["run", "fstress", "null:", "--rate", "4, 8"];
    let all_kinds = ["run", "fstress", "null:", "--workload", "news", "--rate", "8"];
    for (name, args) in [("fstress", &levels[..]), ("fstress-news", &all_kinds)] {
        golden().holds_one_of(name, TRIES, || record(&bench, &[args, &times].concat()));
    }
    // In a closed loop the clock decides how much is asked.
    let brief = ["--files", "100", "--warm", "20ms", "--measure", "200ms"];
    let closed = ["run", "fstress", "null:", "--rate", "max", "--outstanding", "2"];
    golden().counts_masked().holds("fstress-closed", &record(&bench, &[&closed[..], &brief].concat()));
}

#[test]
fn a_record_of_webload_is_as_before() {
    let (_alone, bench) = (alone(), Bench::in_memory());
    let request = |url| {
        format!("127.0.0.1 - - [10/Oct/2000:13:55:36 -0700] \"GET /{url} HTTP/1.0\" 200 {}\n", 1000 + url)
    };
    bench.write("log", &[1, 2, 3, 1, 4, 2, 1, 5, 6, 1].map(request).concat());
    let replay = ["run", "webload", "--direct", "--workload", "trace", "--trace", "log"];
    let one_by_one = ["--connections", "1", "--rate", "max", "--seed", "3"];
    golden().holds("webload-trace", &record(&bench, &[&replay[..], &one_by_one].concat()));
    // The clock decides what of the schedule falls into which phase.
    let polymix = ["run", "webload", "--direct", "--peak", "250", "--cache-size", "1MB"];
    let quick = ["--time-scale", "20000", "--think", "2ms,1ms"];
    golden().counts_masked().holds("webload-polymix", &record(&bench, &[&polymix[..], &quick].concat()));
}

#[test]
fn a_record_of_a_mount_is_as_before() {
    if !testkit::need::fuse() {
        return;
    }
    let (_alone, bench) = (alone(), Bench::in_memory());
    fs::create_dir(bench.path("tree")).unwrap();
    fs::create_dir(bench.path("at")).unwrap();
    let mut child = bench.started(&["mount", "tree", "at", "-o", "noawake,readers=park"], "is shown at");
    for number in 0..20 {
        fs::write(bench.path(&format!("at/{number}")), "x").unwrap();
    }
    for number in 0..10 {
        fs::remove_file(bench.path(&format!("at/{number}"))).unwrap();
    }
    assert!(fs::remove_file(bench.path("at/none")).is_err());
    assert_eq!(fs::read_dir(bench.path("at")).unwrap().count(), 10);
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert!(child.wait().unwrap().success());
    let record = bench.fine(&["runs", "export", "last"]);
    let path = bench.directory().display().to_string();
    // What the kernel asks for by itself differs by its version; the end of a listing is not waited for.
    golden()
        .replacing(path, "DIR")
        .leaving_out(&["forget_", "getxattr_", "releasedir_"])
        .masking(&["getattr_", "table_1_", "items"])
        .holds("mount", &record);
}
