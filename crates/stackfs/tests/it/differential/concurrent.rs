//! The same by several threads at once on one mount: each has directories of its own, whose results are known, and
//! names of its own in a managed directory that all share. Beside them, contests for the same names, which exactly one
//! may win.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::steps::{Dice, Ground, Step, apply, tree};
use super::{cut_down, first_seed, share};
use crate::scene::{Scene, cannot_mount, names};

const THREADS: u64 = 4;
/// In a thread of a round.
const STEPS: u64 = 500;

fn sequence(seed: u64, thread: u64) -> Vec<Step> {
    let mut dice = Dice(seed << 8 | thread);
    (0..STEPS).map(|_| dice.step()).collect()
}

/// What differs first when these sequences run at the same time, and in which of them.
fn difference(scene: &Scene, attempt: &str, sequences: &[Vec<Step>]) -> Option<(usize, String)> {
    let (lower, mounted) = (scene.lower(attempt), scene.at(attempt));
    let plain = scene.folder.path().join("plain").join(attempt);
    let own: Vec<String> = (0..sequences.len()).map(|thread| format!("t{thread}")).collect();
    for (thread, own) in own.iter().enumerate() {
        for (side, is_lower) in [(&lower, true), (&plain, false)] {
            fs::create_dir_all(side.join(own)).expect("a root");
            Ground::sharing(thread as u64).lay(&side.join(own), is_lower);
        }
    }
    let over = AtomicBool::new(false);
    let mut found = std::thread::scope(|scope| {
        let lister = scope.spawn(|| list_until(&mounted.join("shared"), &over));
        let threads: Vec<_> = own
            .iter()
            .zip(sequences)
            .enumerate()
            .map(|(thread, (own, steps))| {
                let (mounted, plain) = (mounted.join(own), plain.join(own));
                scope.spawn(move || {
                    let ground = Ground::sharing(thread as u64);
                    for (at, step) in steps.iter().enumerate() {
                        let (through, beside) =
                            (apply(&ground, &mounted, step), apply(&ground, &plain, step));
                        if through != beside {
                            return Some(format!(
                                "thread {thread}, step {at}, {step:?}:\n  mounted {through}\n  plain   {beside}"
                            ));
                        }
                    }
                    None
                })
            })
            .collect();
        let outcomes: Vec<_> = threads.into_iter().map(|thread| thread.join().expect("no panic")).collect();
        over.store(true, Ordering::Relaxed);
        lister.join().expect("no panic");
        outcomes.into_iter().enumerate().find_map(|(thread, report)| report.map(|report| (thread, report)))
    });
    if found.is_none() {
        let (through, beside) = (tree(&mounted), tree(&plain));
        if through != beside {
            found = Some((0, format!("final trees differ:\n-- mounted\n{through}\n-- plain\n{beside}")));
        }
    }
    fs::remove_dir_all(&plain).expect("removed");
    fs::remove_dir_all(&mounted).expect("removed through the mount, managed directories and all");
    found
}

/// Reads the shared directory again and again: an error there is nobody's name's.
fn list_until(shared: &Path, over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        names(shared);
    }
}

#[test]
fn several_threads_at_once_get_what_each_would_get_alone() {
    if cannot_mount() {
        return;
    }
    compare(&Scene::new(), share(20));
}

#[test]
fn several_threads_at_once_by_io_uring_get_what_each_would_get_alone() {
    let Some(scene) = Scene::by_ring(|options| options) else { return };
    compare(&scene, share(10));
}

fn compare(scene: &Scene, operations: u64) {
    for round in 0..operations / (THREADS * STEPS) {
        let seed = first_seed() + round;
        let mut sequences: Vec<_> = (0..THREADS).map(|thread| sequence(seed, thread)).collect();
        let Some((thread, report)) = difference(scene, &format!("round{round}"), &sequences) else {
            continue;
        };
        // The others stay whole: without them it may never differ again. Each cut is tried a few times.
        let mut tries = 0;
        let steps = std::mem::take(&mut sequences[thread]);
        let (steps, again) = cut_down(steps, |steps| {
            sequences[thread] = steps.to_vec();
            (0..3).find_map(|_| {
                tries += 1;
                difference(scene, &format!("cut{tries}"), &sequences).map(|(_, report)| report)
            })
        });
        let steps: Vec<String> = steps.iter().map(|step| format!("{step:?}")).collect();
        panic!("seed {seed}, {report}\nthread {thread} cut down: {again}\nin\n{}", steps.join("\n"));
    }
}

const CONTESTS: usize = 400;
/// Entries that nobody touches while all around them come and go.
const PINNED: usize = 200;

/// Adds to `won` when it was done; any other error than that of a loser is reported.
fn contest(won: &AtomicU32, outcome: std::io::Result<()>, losing: std::io::ErrorKind) {
    match outcome {
        Ok(()) => {
            won.fetch_add(1, Ordering::Relaxed);
        }
        Err(error) => assert_eq!(error.kind(), losing, "{error}"),
    }
}

#[test]
fn of_several_threads_that_want_the_same_name_exactly_one_gets_it() {
    if cannot_mount() {
        return;
    }
    contests(&Scene::new());
}

#[test]
fn by_io_uring_too_exactly_one_gets_a_name() {
    let Some(scene) = Scene::by_ring(|options| options) else { return };
    contests(&scene);
}

fn contests(scene: &Scene) {
    use std::io::ErrorKind::{AlreadyExists, NotFound};
    let shared = scene.managed("shared");
    let at = |kind: &str, number: usize| shared.join(format!("{kind}{number}"));
    let (pinned, log) = (at("10", 0), shared.join("log"));
    File::create(&pinned).unwrap();
    File::create(&log).unwrap();
    for number in 0..CONTESTS {
        File::create(at("20", number)).unwrap();
        File::create(at("30", number)).unwrap();
    }
    for number in 0..PINNED {
        File::create(at("pinned", number)).unwrap();
    }
    let counts = || (0..CONTESTS).map(|_| AtomicU32::new(0)).collect::<Vec<_>>();
    let [created, removed, moved, linked, made] = std::array::from_fn(|_| counts());
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let lister = scope.spawn(|| {
            let mut rounds = 0;
            while !over.load(Ordering::Relaxed) || rounds == 0 {
                let listed = names(&shared);
                let pinned: Vec<_> = listed.iter().filter(|name| name.starts_with("pinned")).collect();
                let different: HashSet<_> = pinned.iter().collect();
                assert_eq!((pinned.len(), different.len()), (PINNED, PINNED), "missing or doubled");
                rounds += 1;
            }
        });
        let threads: Vec<_> = (0..THREADS as usize)
            .map(|thread| {
                let (at, pinned, log) = (&at, &pinned, &log);
                let (created, removed, moved, linked, made) = (&created, &removed, &moved, &linked, &made);
                scope.spawn(move || {
                    let mut log = File::options().append(true).open(log).unwrap();
                    for number in 0..CONTESTS {
                        let new = File::create_new(at("40", number)).map(drop);
                        contest(&created[number], new, AlreadyExists);
                        contest(&removed[number], fs::remove_file(at("20", number)), NotFound);
                        let own = at(&format!("5{thread}0"), number);
                        contest(&moved[number], fs::rename(at("30", number), own), NotFound);
                        contest(&linked[number], fs::hard_link(pinned, at("60", number)), AlreadyExists);
                        contest(&made[number], fs::create_dir(at("group", number)), AlreadyExists);
                        log.write_all(format!("{thread} {number:>5}\n").as_bytes()).unwrap();
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        over.store(true, Ordering::Relaxed);
        lister.join().expect("no panic");
    });
    for (what, counts) in
        [("created", created), ("removed", removed), ("moved", moved), ("linked", linked), ("made", made)]
    {
        let wrong = counts.iter().position(|count| count.load(Ordering::Relaxed) != 1);
        assert_eq!(wrong, None, "{what}: not exactly one thread won");
    }
    assert_eq!(fs::metadata(&pinned).unwrap().nlink(), 1 + CONTESTS as u64);
    let log = fs::read_to_string(&log).unwrap();
    let records: HashSet<&str> = log.lines().collect();
    assert_eq!((log.len(), records.len()), (8 * THREADS as usize * CONTESTS, THREADS as usize * CONTESTS));
    // Created, moved, linked, made, pinned, and the two files that all worked on.
    assert_eq!(names(&shared).len(), 4 * CONTESTS + PINNED + 2);
}
