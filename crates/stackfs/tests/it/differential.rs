//! Random operations on managed directories through a mount and on plain ones beside: the same results, errors and
//! trees. A failing sequence is cut down to one that cannot be cut further, and printed with its seed.
//!
//! `CRUMB_DIFFERENTIAL_OPERATIONS` and `CRUMB_DIFFERENTIAL_SEED` are for a soak: more of them, and others.

mod concurrent;
pub mod steps;

use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::scene::{Scene, cannot_mount};
use stackfs::StackOptions;
use steps::{Dice, Ground, Step, apply, tree};

/// In all of a run of the tests: 70% alone, 10% with other options, 20% by several threads at once. By io_uring another 20% and 10%.
const OPERATIONS: u64 = 100_000;
/// In a sequence.
const STEPS: u64 = 500;
/// Sequences at work at the same time, each in directories of its own.
const WORKERS: u64 = 2;

fn number(variable: &str, default: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no number")),
        Err(_) => default,
    }
}

/// A share of all operations, in percent.
pub fn share(percent: u64) -> u64 {
    number("CRUMB_DIFFERENTIAL_OPERATIONS", OPERATIONS) * percent / 100
}

pub fn first_seed() -> u64 {
    number("CRUMB_DIFFERENTIAL_SEED", 0)
}

/// Where the two sides differ first, if they do.
fn difference(scene: &Scene, attempt: &str, steps: &[Step]) -> Option<String> {
    let (lower, mounted) = (scene.lower(attempt), scene.at(attempt));
    let plain = scene.folder.path().join("plain").join(attempt);
    let ground = Ground::alone();
    ground.lay(&lower, true);
    ground.lay(&plain, false);
    let mut found = None;
    for (at, step) in steps.iter().enumerate() {
        let (through, beside) = (apply(&ground, &mounted, step), apply(&ground, &plain, step));
        if through != beside {
            found = Some(format!("step {at}, {step:?}:\n  mounted {through}\n  plain   {beside}"));
            break;
        }
    }
    if found.is_none() {
        let (through, beside) = (tree(&mounted), tree(&plain));
        if through != beside {
            found = Some(format!("final trees differ:\n-- mounted\n{through}\n-- plain\n{beside}"));
        }
    }
    fs::remove_dir_all(&plain).expect("removed");
    fs::remove_dir_all(&mounted).expect("removed through the mount, managed directories and all");
    found
}

/// Takes pieces out of a sequence, large ones first, as long as what is left still `differs`.
fn cut_down(mut steps: Vec<Step>, mut differs: impl FnMut(&[Step]) -> Option<String>) -> (Vec<Step>, String) {
    let mut report = differs(&steps).unwrap_or_else(|| "differed once and not again".to_owned());
    let mut chunk = steps.len() / 2;
    while chunk > 0 {
        let mut at = 0;
        while at < steps.len() {
            let mut fewer = steps.clone();
            fewer.drain(at..(at + chunk).min(steps.len()));
            match differs(&fewer) {
                Some(still) => (steps, report) = (fewer, still),
                None => at += chunk,
            }
        }
        chunk /= 2;
    }
    (steps, report)
}

fn sequence(seed: u64) -> Vec<Step> {
    let mut dice = Dice(seed);
    (0..STEPS).map(|_| dice.step()).collect()
}

fn fail(scene: &Scene, seed: u64) -> ! {
    let mut tries = 0;
    let (steps, report) = cut_down(sequence(seed), |steps| {
        tries += 1;
        difference(scene, &format!("cut{tries}"), steps)
    });
    let steps: Vec<String> = steps.iter().map(|step| format!("{step:?}")).collect();
    panic!("seed {seed}: {report}\nin\n{}", steps.join("\n"));
}

fn compare(scene: &Scene, operations: u64) {
    let (next, failed) = (AtomicU64::new(0), Mutex::new(None));
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while failed.lock().unwrap().is_none() {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let seed = first_seed() + at;
                    if at * STEPS >= operations {
                        return;
                    }
                    if difference(scene, &format!("seed{seed}"), &sequence(seed)).is_some() {
                        failed.lock().unwrap().get_or_insert(seed);
                    }
                }
            });
        }
    });
    if let Some(seed) = failed.into_inner().unwrap() {
        fail(scene, seed);
    }
}

#[test]
fn managed_directories_behave_as_plain_ones_whatever_is_done_to_them() {
    if cannot_mount() {
        return;
    }
    compare(&Scene::new(), share(70));
}

#[test]
fn they_do_so_with_long_time_outs_and_without_pass_through() {
    if cannot_mount() {
        return;
    }
    let scene = Scene::with(|options| {
        let mut options = options.exclusive();
        options.passthrough = false;
        options
    });
    // The top directories are made below the mount before it first looks: names of their own, so no time-out lies.
    compare(&scene, share(10));
}

#[test]
fn they_do_so_by_io_uring_with_data_that_passes_through_and_that_does_not() {
    for passthrough in [true, false] {
        let Some(scene) = Scene::by_ring(|options| StackOptions { passthrough, ..options }) else { return };
        compare(&scene, share(10));
    }
}

#[test]
fn they_do_so_when_nothing_is_opened_by_a_request() {
    if cannot_mount() {
        return;
    }
    compare(&Scene::with(|options| StackOptions { no_open: true, ..options }), share(10));
    compare(&Scene::with(|options| StackOptions { no_open: true, ..options.exclusive() }), share(10));
}

#[test]
fn a_sequence_that_fails_is_cut_down_to_the_steps_that_matter() {
    let steps = sequence(7);
    let unlinks = |steps: &[Step]| steps.iter().filter(|step| matches!(step, Step::Unlink(_))).count();
    assert!(unlinks(&steps) > 10);
    let (cut, report) = cut_down(steps, |steps| (unlinks(steps) >= 2).then(|| "two removals".to_owned()));
    assert_eq!((cut.len(), unlinks(&cut), &report[..]), (2, 2, "two removals"));
}
