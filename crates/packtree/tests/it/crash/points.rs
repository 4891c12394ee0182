//! Crash points: the machine stops at each operation of a history, and what is there afterwards is compared with the oracle.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use packtree::{PackTree, check};
use testkit::SimulatedDisk;

use super::history::Player;
use super::model::Model;
use crate::scenario::{SMALL, mixed, opened};

/// Of a history; long enough for several checkpoints.
const STEPS: usize = 160;
/// Played on after a crash.
const STEPS_AFTER: usize = 25;

#[test]
fn power_lost_at_any_operation_leaves_the_tree_of_one_moment_with_all_that_was_synced() {
    let asked = |name: &str| std::env::var(name).ok();
    let number = |name, default| asked(name).map_or(default, |text| text.parse().expect(name));
    if let Some(only) = asked("CRUMB_CRASH_ONLY") {
        let (seed, operation) = only.split_once(':').expect("seed:operation");
        return crash_at(seed.parse().expect("a seed"), operation.parse().expect("a number"));
    }
    let (wanted, first) = (number("CRUMB_CRASH_POINTS", 10_000), number("CRUMB_CRASH_SEED", 1));
    let (points, seeds) = (AtomicU64::new(0), AtomicU64::new(first));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, std::num::NonZero::get) {
            scope.spawn(|| {
                while points.load(Ordering::Relaxed) < wanted {
                    let seed = seeds.fetch_add(1, Ordering::Relaxed);
                    // Not all points of one history, but many histories.
                    for operation in operations(seed).skip(seed as usize % 7).step_by(7) {
                        crash_at(seed, operation);
                        points.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let _ = writeln!(std::io::stderr(), "{points:?} crash points of seeds {first} to {seeds:?}");
}

fn machine() -> (SimulatedDisk, PackTree) {
    let machine = SimulatedDisk::new("machine");
    PackTree::create(&machine, &SMALL).expect("a new tree");
    let tree = opened(Arc::new(machine.clone()));
    (machine, tree)
}

/// Those at which the history can be stopped, after the tree was made.
fn operations(seed: u64) -> std::ops::Range<u64> {
    let (machine, tree) = machine();
    let first = machine.operations();
    let mut model = Model::new();
    let played = Player::new(&tree, &mut model, seed).play(STEPS);
    played.unwrap_or_else(|error| panic!("seed {seed}: nothing was wrong, but: {error}"));
    tree.close().expect("closed");
    first..machine.operations()
}

fn crash_at(seed: u64, operation: u64) {
    let (machine, tree) = machine();
    machine.stop_at(operation);
    let mut model = Model::new();
    if let Err(error) = Player::new(&tree, &mut model, seed).play(STEPS) {
        assert!(machine.has_stopped(), "seed {seed} at {operation}: {error:?}");
    }
    drop(tree);
    for image in 0..3 {
        let cut = mixed(seed ^ operation << 20 ^ image << 50);
        let when = format!("CRUMB_CRASH_ONLY={seed}:{operation}, image {image}");
        let killed = image == 2;
        let after = if killed { machine.process_end() } else { machine.power_cut(cut) };
        let mut model = model.clone();
        checked(&after, &when);
        let tree = opened(Arc::new(after.clone()));
        assert_eq!(tree.faults(), [], "{when}");
        model.compare(&tree, killed, &when);
        // It continues where it was, and loses power once more: what was found counts from the opening on.
        let played = Player::new(&tree, &mut model, cut).play(STEPS_AFTER);
        played.unwrap_or_else(|error| panic!("{when}, going on: {error:?}"));
        after.stop();
        drop(tree);
        let again = after.power_cut(cut ^ 1);
        let when = format!("{when}, and once more");
        checked(&again, &when);
        model.compare(&opened(Arc::new(again)), false, &when);
    }
}

fn checked(machine: &SimulatedDisk, when: &str) {
    let report = check(&machine.process_end(), |_, _| ()).unwrap_or_else(|error| panic!("{when}: {error}"));
    assert_eq!(report.faults, [], "{when}");
    assert_eq!(report.leaked_bytes, 0, "{when}: blocks that are neither used nor free");
}
