//! Debian's own `postmark` beside ours, on settings nobody chose: every number that does not depend on time.

use std::fs;
use std::io::Write as _;
use std::num::NonZeroU32;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::talk::{Said, say, scratch, tree};
use files::LocalFs;
use postmark::engine::{self, Event, Phase, Place, RunOptions};
use postmark::{SessionEnd, Settings};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// So many settings are compared.
const SETTINGS: usize = 200;
/// Longer than any of these runs takes; the original may be in one of its endless loops.
const PATIENCE_S: u32 = 5;

/// The commands of one run; `DIR` stands for its directory. The last number is that of locations.
fn commands() -> impl Strategy<Value = String> {
    let sizes = (1u32..3000, prop_oneof![Just(0u32), 1u32..12_000], 1u32..40, 1u32..120);
    let biases = (-1i32..=10, -1i32..=10);
    let places = (prop::collection::vec(1u32..9, 0..4), prop_oneof![Just(0u32), 1u32..15]);
    let blocks = (1u32..9000, 1u32..9000, any::<bool>());
    (sizes, biases, places, blocks, 1u32..i32::MAX as u32).prop_map(
        |((low, more, number, transactions), (read_bias, create_bias), (weights, subdirectories), blocks, seed)| {
            let (read, write, buffered) = blocks;
            let mut lines = format!(
                "set size {low} {}\nset number {number}\nset transactions {transactions}\nset seed {seed}\n\
                 set bias read {read_bias}\nset bias create {create_bias}\nset read {read}\nset write {write}\n\
                 set buffering {buffered}\n",
                low + more
            );
            if subdirectories > 0 {
                lines.push_str(&format!("set subdirectories {subdirectories}\n"));
            }
            for (index, weight) in weights.iter().enumerate() {
                lines.push_str(&format!("set location +DIR/p{index} {weight}\n"));
            }
            lines.push_str("run\nset report terse\nrun\nquit\n");
            lines
        },
    )
}

/// What was said but for what depends on time: of the verbose report what stands before the rates; the terse one
/// whole when it is of runs below two seconds, whose rates are the counts themselves.
fn counts(out: &str) -> Vec<String> {
    let mut told = Vec::new();
    for line in out.lines() {
        let of_time = line.contains("seconds");
        let terse = line.split(' ').count() == 13 && line.split(' ').all(|word| word.parse::<f64>().is_ok());
        if !of_time && line.starts_with('\t') {
            told.push(line.split(" (").next().unwrap().to_owned());
        } else if terse && !line.starts_with("1 1 ") {
            told.push(SLOW.to_owned());
        } else if !of_time {
            told.push(line.to_owned());
        }
    }
    told
}

/// In place of a terse report of a machine that was busy with something else.
const SLOW: &str = "took two seconds or more";

fn assert_equal_counts(ours: &str, theirs: &str, context: &str) {
    let (ours, theirs) = (counts(ours), counts(theirs));
    let slow = |line: &String| line == SLOW;
    assert_eq!(ours.len(), theirs.len(), "{context}");
    for (our, their) in ours.iter().zip(&theirs).filter(|(our, their)| !slow(our) && !slow(their)) {
        assert_eq!(our, their, "{context}");
    }
}

/// Named unlike any file of a run, which the original would overwrite, or remove if it is an empty directory.
fn make_places(directory: &Path) {
    (0..3).for_each(|index| fs::create_dir(directory.join(format!("p{index}"))).unwrap());
}

fn original(directory: &Path, lines: &str) -> Option<(String, Option<i32>)> {
    let mut timed = Command::new("timeout");
    timed.arg(PATIENCE_S.to_string()).arg("postmark").current_dir(directory);
    timed.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = timed.spawn().ok()?;
    child.stdin.take()?.write_all(lines.as_bytes()).ok()?;
    let output = child.wait_with_output().ok()?;
    Some((String::from_utf8(output.stdout).ok()?, output.status.code()))
}

fn ours(directory: &Path, lines: &str) -> Said {
    let said = say(directory, lines);
    let left: Vec<_> = tree(directory).into_iter().filter(|path| path.components().count() > 1).collect();
    assert!(left.is_empty(), "{lines} left {left:?}");
    said
}

fn seed() -> u64 {
    let given = std::env::var("CRUMB_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let clock = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    given.unwrap_or(clock.as_nanos() as u64)
}

#[test]
fn two_hundred_settings_give_the_original_s_counts() {
    if testkit::need::program("postmark", "postmark").is_none() {
        return;
    }
    let seed = seed();
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    let mut runner =
        TestRunner::new_with_rng(Config::default(), TestRng::from_seed(RngAlgorithm::ChaCha, &bytes));
    let (mut compared, mut hung, mut crashed) = (0, 0, 0);
    for _ in 0..SETTINGS {
        let lines = commands().new_tree(&mut runner).unwrap().current();
        let here = scratch();
        make_places(here.path());
        let lines = lines.replace("DIR", here.path().to_str().unwrap());
        let Some((theirs, code)) = original(here.path(), &lines) else {
            panic!("the original cannot be started");
        };
        let context = format!("CRUMB_TEST_SEED={seed}\n{lines}");
        if code == Some(0) {
            let said = ours(here.path(), &lines);
            assert_equal_counts(&said.out, &theirs, &context);
            assert_eq!((said.end, said.err.as_str()), (SessionEnd::Fine, ""), "{context}");
            compared += 1;
        } else {
            // It hung or crashed, and left its files.
            let here = scratch();
            make_places(here.path());
            let said = ours(here.path(), &lines);
            let told = said.end == SessionEnd::Fine || said.err.starts_with("Error: ");
            assert!(told, "{context}\n{said:?}");
            // Exit code 124 is that of timeout(1).
            if code == Some(124) { hung += 1 } else { crashed += 1 }
        }
    }
    let _ = writeln!(
        std::io::stderr(),
        "compared with the original: {compared} settings, no difference; it hung on {hung} and crashed on {crashed} \
         (CRUMB_TEST_SEED={seed})"
    );
}

#[test]
fn files_go_to_the_places_and_subdirectories_in_which_the_original_puts_them() {
    let here = scratch();
    let place = |(index, weight): (usize, u32)| {
        let path = here.path().join(format!("p{index}"));
        fs::create_dir(&path).unwrap();
        Place { fs: Arc::new(LocalFs::open(path).unwrap()), weight: NonZeroU32::new(weight).unwrap() }
    };
    let places: Vec<_> = [3, 2].into_iter().enumerate().map(place).collect();
    let settings = Settings { number: NonZeroU32::new(4).unwrap(), subdirectories: 3, ..Settings::default() };
    let mut found = Vec::new();
    let stop = AtomicBool::new(false);
    let how = RunOptions::default();
    let done = engine::run(&settings, &places, &how, &stop, &mut |event| {
        if matches!(event, Event::Ends { phase: Phase::Create, .. }) {
            found = tree(here.path()).into_iter().filter(|path| path.components().count() == 3).collect();
        }
    });
    assert_eq!(done.unwrap().counts.created_alone, 4);
    // As strace showed it of the original: seed 42, weights 3 and 2, 3 subdirectories.
    assert_eq!(found, ["p0/s0/2", "p0/s0/3", "p0/s1/1", "p1/s2/4"].map(Path::new));
}
