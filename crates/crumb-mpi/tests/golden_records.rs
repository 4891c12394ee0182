//! Records of runs by several ranks: two alike, some that do different amounts, and one that is cut short.
//!
//! What is compared and what is masked: `testkit::Golden`. How to renew the files: the README beside them.

#[path = "it/job.rs"]
mod job;

use std::num::NonZeroU64;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use netnews::feed::Watch;
use netnews::feed::synthesize::{SynthesisConfig, synthesize};
use rustix::process::{Signal, kill_process};
use testkit::Golden;

use self::job::{CRUMB_MPI, Job, kept, mpirun, no_mpirun, place, times};

const LIMIT: Duration = Duration::from_secs(90);

fn golden() -> Golden {
    Golden::records(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden_records"))
}

/// Stands for the directory to work on.
const TARGET: &str = "TARGET";

/// Of an open loop: see [`Golden::holds_one_of`].
const TRIES: u32 = 10;

/// Checks that the record of `run ARGS` with `ranks` ranks equals the golden record `name`.
fn holds(name: &str, ranks: u32, args: &[&str]) {
    golden().holds_one_of(name, tries(args), || record(args, |dir, words| Job::start(ranks, dir, words)));
}

/// Only in an open loop does a busy machine change what is done.
fn tries(args: &[&str]) -> u32 {
    if args[0] == "fstress" { TRIES } else { 1 }
}

/// The record of a job that works on a directory of its own.
fn record(args: &[&str], start: impl FnOnce(&Path, &[&str]) -> Job) -> String {
    let (dir, files) = (place(), place());
    let target = files.path().display().to_string();
    let words: Vec<&str> =
        args.iter().map(|word| if *word == TARGET { target.as_str() } else { word }).collect();
    let ended = start(dir.path(), &words).end(LIMIT);
    // 3: a loaded machine's figures may be INVALID, 130: a rank was interrupted.
    assert!(matches!(ended.code, 0 | 3 | 130), "{}: {}", ended.code, ended.said);
    let [run] = &kept(dir.path())[..] else { panic!("one run is kept: {}", ended.said) };
    let own = dir.path().display().to_string();
    run.to_json().replace(&target, TARGET).replace(&own, "DIR")
}

const POSTMARK: [&str; 10] =
    ["postmark", TARGET, "--number", "40", "--transactions", "300", "--subdirectories", "2", "--seed", "42"];
const NETNEWS: [&str; 8] = ["netnews", TARGET, "--articles", "400", "--seed", "5", "--retention", "1"];
const FSTRESS: [&str; 8] = ["fstress", "null:", "--seed", "3", "--warm", "50ms", "--files", "100"];

#[test]
fn records_of_two_ranks_are_as_before() {
    if no_mpirun() {
        return;
    }
    holds("postmark", 2, &POSTMARK);
    holds("postmark-threads", 2, &[&POSTMARK[..], &["--threads", "2"]].concat());
    holds("netnews", 2, &[&NETNEWS[..], &["--passes", "4", "--batch-every", "2"]].concat());
    holds("fstress", 2, &[&FSTRESS[..], &["--measure", "400ms", "--rate", "50, 100"]].concat());
}

/// Files of very unlike sizes, feeds of unlike length, a rank with half a processor beside one with one and a half.
#[test]
fn records_of_ranks_that_do_different_amounts_are_as_before() {
    if no_mpirun() {
        return;
    }
    holds("postmark-unequal", 3, &[&POSTMARK[..], &["--size", "1..100000"]].concat());
    let (small, large) = (place(), place());
    for (own, articles) in [(&small, 500), (&large, 1500)] {
        let (mut no_progress, stop) = (|_| {}, AtomicBool::new(false));
        let mut watch = Watch { progress: &mut no_progress, stop: &stop };
        let config = SynthesisConfig::new(NonZeroU64::new(articles).unwrap(), articles);
        synthesize(&config, &own.path().join("feed"), &mut watch).unwrap();
    }
    let args = ["netnews", TARGET, "--feed", "feed", "--passes", "3", "--retention", "1"];
    let run =
        record(&args, |dir, words| Job::start_unlike(dir, &[(small.path(), words), (large.path(), words)]));
    golden().holds("netnews-unequal", &run);

    let processors = rustix::thread::sched_getaffinity(None).unwrap();
    let mut mine = (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| processors.is_set(*cpu));
    let two = mine.next().zip(mine.next()).ok_or("unequal ranks of fstress need two processors");
    let Some((first, second)) = testkit::need::need(two) else { return };
    let args = [&FSTRESS[..], &["--measure", "400ms", "--rate", "50, 100", "--share", "cores"]].concat();
    golden().holds_one_of("fstress-unequal", TRIES, || {
        record(&args, |dir, words| {
            let mut command = mpirun();
            for (before, cpus) in [(None, first.to_string()), (Some(":"), format!("{first},{second}"))] {
                command.args(before).args(["-n", "1", "taskset", "-c", &cpus, CRUMB_MPI]);
                command.arg("--store").arg(dir.join("runs.db")).args(["-vv", "run"]).args(words);
            }
            Job::spawn(command)
        })
    });
}

/// A rank of PostMark runs out of files, which its seed decides; one of the others is interrupted, so that the clock decides
/// the counts, and only what the record has is compared.
#[test]
fn records_of_runs_that_one_rank_cut_short_are_as_before() {
    if no_mpirun() {
        return;
    }
    let few = ["--number", "10", "--transactions", "60", "--create-bias", "4", "--seed", "4"];
    holds("postmark-cut-short", 2, &[&["postmark", TARGET][..], &few].concat());

    let interrupted = |args: &[&str], under_way: &str, count: usize| {
        record(args, |dir, words| {
            let mut job = Job::start(2, dir, words);
            job.until(under_way, |said| times(said, under_way) == count);
            kill_process(job.ranks()[1], Signal::INT).unwrap();
            job
        })
    };
    let news =
        ["netnews", TARGET, "--articles", "30000", "--seed", "5", "--passes", "2", "--batch-every", "0"];
    // Within the second pass; a rank that hears of it before it has stored anything has no such phase.
    golden()
        .counts_masked()
        .holds_one_of("netnews-cut-short", TRIES, || interrupted(&news, "a phase begins", 6));
    let null = ["fstress", "null:", "--workload", "null", "--rate", "100, 200", "--warm", "50ms"];
    let run = interrupted(&[&null[..], &["--measure", "3s"]].concat(), "an interval is under way", 4);
    // Whether the second point was held when it was cut short the clock decides as well.
    golden().counts_masked().leaving_out(&["saturat", "interrupted"]).holds("fstress-cut-short", &run);
}
