//! Crash points: the machine stops at each operation of a history, and what is there afterwards is compared with the oracle. Every fourth
//! history is on a disk that gets full, so that the spare file is given up and taken again.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use disk::Disk as _;
use packtree::{PackTree, check, repair};
use testkit::SimulatedDisk;

use super::history::Player;
use super::model::Model;
use crate::scenario::{SMALL, mixed, opened};

/// Of a history; long enough for several checkpoints.
const STEPS: usize = 160;
/// Played on after a crash.
const STEPS_AFTER: usize = 25;

/// What is played, and where.
#[derive(Clone, Copy, Debug)]
pub struct Play {
    pub seed: u64,
    pub steps: usize,
    /// Of the disk.
    room_bytes: Option<u64>,
}

impl Play {
    fn of(seed: u64) -> Self {
        // One or two segments, and little beside them.
        let room_bytes = (seed % 4 == 3).then_some((220 << 10) + seed / 4 % 6 * (24 << 10));
        Self { seed, steps: STEPS, room_bytes }
    }

    pub fn long(seed: u64, steps: usize) -> Self {
        Self { seed, steps, room_bytes: None }
    }

    pub fn machine(&self) -> SimulatedDisk {
        let machine = SimulatedDisk::new("machine");
        let machine = self.room_bytes.map_or(machine.clone(), |bytes| machine.with_room(bytes));
        PackTree::create(&machine, &SMALL).expect("a new tree");
        machine
    }

    /// Plays it. Returns how many calls the full disk refused.
    pub fn play(&self, tree: &PackTree, model: &mut Model) -> Result<usize, files::FsError> {
        Player::new(tree, model, self.seed)
            .on_a_disk_that_may_be_full(self.room_bytes.is_some())
            .play(self.steps)
    }
}

#[test]
fn power_lost_at_any_operation_leaves_the_tree_of_one_moment_with_all_that_was_synced() {
    let asked = |name: &str| std::env::var(name).ok();
    let number = |name, default| asked(name).map_or(default, |text| text.parse().expect(name));
    if let Some(only) = asked("CRUMB_CRASH_ONLY") {
        let (seed, operation) = only.split_once(':').expect("seed:operation");
        return crash_at(Play::of(seed.parse().expect("a seed")), operation.parse().expect("a number"));
    }
    let (wanted, first) = (number("CRUMB_CRASH_POINTS", 10_000), number("CRUMB_CRASH_SEED", 1));
    let (points, seeds, refused) = (AtomicU64::new(0), AtomicU64::new(first), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(2, std::num::NonZero::get) {
            scope.spawn(|| {
                while points.load(Ordering::Relaxed) < wanted {
                    let seed = seeds.fetch_add(1, Ordering::Relaxed);
                    let play = Play::of(seed);
                    let (all, full) = operations(play);
                    refused.fetch_add(full, Ordering::Relaxed);
                    // Not all points of one history, but many histories.
                    for operation in all.skip(seed as usize % 7).step_by(7) {
                        crash_at(play, operation);
                        points.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let _ = writeln!(
        std::io::stderr(),
        "{points:?} crash points of seeds {first} to {seeds:?}, {refused:?} refusals"
    );
    assert!(refused.into_inner() > 0 || wanted < 1_000, "no disk was full");
}

/// Those at which the history can be stopped, after the tree was made; and how many of its calls were refused.
fn operations(play: Play) -> (std::ops::Range<u64>, usize) {
    let machine = play.machine();
    let tree = opened(Arc::new(machine.clone()));
    let first = machine.operations();
    let mut model = Model::new();
    let played = play.play(&tree, &mut model);
    let refused = played.unwrap_or_else(|error| panic!("{play:?}: nothing was wrong, but: {error:?}"));
    tree.close().expect("closed");
    (first..machine.operations(), refused)
}

pub fn crash_at(play: Play, operation: u64) {
    let seed = play.seed;
    let machine = play.machine();
    let tree = opened(Arc::new(machine.clone()));
    machine.stop_at(operation);
    let mut model = Model::new();
    if let Err(error) = play.play(&tree, &mut model) {
        assert!(machine.has_stopped(), "seed {seed} at {operation}: {error:?}");
    }
    drop(tree);
    for image in 0..3 {
        let cut = mixed(seed ^ operation << 20 ^ image << 50);
        let when = format!("CRUMB_CRASH_ONLY={seed}:{operation} of {play:?}, image {image}");
        let killed = image == 2;
        let after = if killed { machine.process_end() } else { machine.power_cut(cut) };
        let mut model = model.clone();
        checked(&after, &when);
        let tree = opened(Arc::new(after.clone()));
        assert_eq!(tree.faults(), [], "{when}");
        assert!(tree.unwritable().is_none(), "{when}: {:?}", tree.unwritable());
        model.compare(&tree, killed, &when);
        // It continues where it was, and loses power once more: what was found counts from the opening on.
        let player =
            Player::new(&tree, &mut model, cut).on_a_disk_that_may_be_full(play.room_bytes.is_some());
        let played = player.play(STEPS_AFTER);
        played.unwrap_or_else(|error| panic!("{when}, going on: {error:?}"));
        after.stop();
        drop(tree);
        let again = after.power_cut(cut ^ 1);
        let when = format!("{when}, and once more");
        checked(&again, &when);
        let tree = opened(Arc::new(again.clone()));
        model.compare(&tree, false, &when);
        tree.close().unwrap_or_else(|error| panic!("{when}: {error}"));
        if image == operation % 3 {
            repaired(&again, &mut model, cut, &when);
        }
    }
}

/// Damages a run of names, and repairs it where it is; the repair is killed or loses power at some operation, and is made again.
fn repaired(machine: &SimulatedDisk, model: &mut Model, cut: u64, when: &str) {
    let mut runs: Vec<_> =
        machine.names().unwrap().into_iter().filter(|name| name.starts_with("names-")).collect();
    runs.sort_unstable();
    // A repair needs room for a run.
    let machine = machine.process_end().with_room(u64::MAX);
    let Some(run) = runs.get(cut as usize % runs.len().max(1)) else { return };
    let length = machine.bytes(run).unwrap().len() as u64;
    assert!(machine.flip(run, mixed(cut) % (length * 8)));
    let found = check(&machine.process_end(), |_, _| ()).unwrap().faults;
    assert!(!found.is_empty() && found.iter().all(|fault| fault.is_repairable), "{when}: {run}: {found:?}");
    let killed = machine.process_end();
    // The last of these points is behind the end.
    killed.stop_at(killed.operations() + mixed(cut ^ 2) % 14);
    let done = repair(&killed, |_, _| ());
    assert!(done.is_err() || !killed.has_stopped(), "{when}: {done:?}");
    for after in [killed.process_end(), killed.power_cut(cut)] {
        let left = check(&after.process_end(), |_, _| ()).unwrap().faults;
        assert!(left.iter().all(|fault| found.contains(fault)), "{when}: {run}: {left:?}");
        let done = repair(&after, |_, _| ()).unwrap_or_else(|error| panic!("{when}: {run}: {error}"));
        assert_eq!(done.left, [], "{when}: {run}");
        checked(&after, when);
        model.compare(&opened(Arc::new(after)), false, when);
    }
}

pub fn checked(machine: &SimulatedDisk, when: &str) {
    let report = check(&machine.process_end(), |_, _| ()).unwrap_or_else(|error| panic!("{when}: {error}"));
    assert_eq!(report.faults, [], "{when}");
    assert_eq!(report.leaked_bytes, 0, "{when}: blocks that are neither used nor free");
}
