//! Crash points while runs of names are written: histories that are long enough for merges, stopped at each operation on a run.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use disk::Disk as _;
use testkit::{Held, HeldDisk};

use super::model::Model;
use super::points::{Play, crash_at};
use crate::scenario::opened;

const STEPS: usize = 2_200;
/// From the making of a run until the files that it replaces are gone: writes, syncs, names, the manifest.
const OPERATIONS_OF_A_RUN: u64 = 24;

/// Operations at which runs were made, and the levels of the runs that were there at the end.
fn runs_made(play: Play) -> (Vec<u64>, Vec<u8>) {
    let machine = play.machine();
    let runs = Arc::new(Mutex::new(BTreeMap::new()));
    let (at, noted, before) = (machine.clone(), Arc::clone(&runs), machine.names().unwrap());
    let note = move |held: Held<'_>| {
        if let Held::Open(name) = held
            && name.starts_with("names-")
            && !before.iter().any(|there| there == name)
        {
            // The first opening makes it, and later ones read it.
            noted.lock().unwrap().entry(name.to_owned()).or_insert_with(|| at.operations());
        }
    };
    let tree = opened(Arc::new(HeldDisk::new(machine.clone(), note)));
    play.play(&tree, &mut Model::new()).expect("nothing is wrong");
    drop(tree);
    for name in machine.names().unwrap().iter().filter(|name| name.starts_with("names-")) {
        assert_eq!(machine.bytes(name).unwrap()[8..12], 3_u32.to_le_bytes(), "{name}: its version");
    }
    let manifest = machine.bytes("manifest").unwrap();
    let listed = manifest[64 + 24..manifest.len() - 4].chunks(9).map(|run| run[8]).collect();
    let mut made: Vec<u64> = runs.lock().unwrap().values().copied().collect();
    made.sort_unstable();
    (made, listed)
}

#[test]
fn power_lost_while_a_checkpoint_or_a_merge_writes_a_run_leaves_the_tree_of_one_moment() {
    let mut merged = 0;
    for seed in 1..=4 {
        let play = Play::long(seed, STEPS);
        let (made, levels) = runs_made(play);
        assert!(made.len() > 6, "{} runs", made.len());
        merged += levels.iter().filter(|level| **level > 0).count();
        // The runs of the last merges, which are made of the most.
        let made = &made[made.len().saturating_sub(6)..];
        let (first, end) = (made[0], made[made.len() - 1] + OPERATIONS_OF_A_RUN);
        let is_near =
            |operation: &u64| made.iter().any(|run| (*run..run + OPERATIONS_OF_A_RUN).contains(operation));
        for operation in (first..end).filter(is_near).skip(seed as usize % 3).step_by(3) {
            crash_at(play, operation);
        }
    }
    assert!(merged > 0, "no runs were merged");
}
