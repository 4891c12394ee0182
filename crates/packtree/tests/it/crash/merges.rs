//! Crash points while runs of names are written: histories that are long enough for merges, stopped at each operation on a run.

use std::sync::{Arc, Mutex};

use disk::{Disk, DiskError, DiskFile, DiskLock, DiskOpen, DiskRoom};
use testkit::SimulatedDisk;

use super::model::Model;
use super::points::{Play, crash_at};
use crate::scenario::opened;

const STEPS: usize = 2_200;
/// From the making of a run until the files that it replaces are gone: writes, syncs, names, the manifest.
const OPERATIONS_OF_A_RUN: u64 = 24;

/// A disk that notes when runs are made.
struct Noting {
    disk: SimulatedDisk,
    runs: Arc<Mutex<Vec<u64>>>,
}

impl Disk for Noting {
    fn open(&self, name: &str, how: DiskOpen) -> Result<Arc<dyn DiskFile>, DiskError> {
        if how == DiskOpen::New && name.starts_with("names-") {
            self.runs.lock().unwrap().push(self.disk.operations());
        }
        self.disk.open(name, how)
    }

    fn names(&self) -> Result<Vec<String>, DiskError> {
        self.disk.names()
    }

    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        self.disk.rename(from, to)
    }

    fn remove(&self, name: &str) -> Result<(), DiskError> {
        self.disk.remove(name)
    }

    fn sync_names(&self) -> Result<(), DiskError> {
        self.disk.sync_names()
    }

    fn lock(&self, name: &str) -> Result<Option<DiskLock>, DiskError> {
        self.disk.lock(name)
    }

    fn room(&self) -> Result<DiskRoom, DiskError> {
        self.disk.room()
    }

    fn place(&self) -> String {
        self.disk.place()
    }
}

/// Operations at which runs were made, and the levels of the runs that were there at the end.
fn runs_made(play: Play) -> (Vec<u64>, Vec<u8>) {
    let machine = play.machine();
    let runs = Arc::default();
    let tree = opened(Arc::new(Noting { disk: machine.clone(), runs: Arc::clone(&runs) }));
    play.play(&tree, &mut Model::new()).expect("nothing is wrong");
    drop(tree);
    for name in machine.names().unwrap().iter().filter(|name| name.starts_with("names-")) {
        assert_eq!(machine.bytes(name).unwrap()[8..12], 3_u32.to_le_bytes(), "{name}: its version");
    }
    let manifest = machine.bytes("manifest").unwrap();
    let listed = manifest[64 + 24..manifest.len() - 4].chunks(9).map(|run| run[8]).collect();
    let made = std::mem::take(&mut *runs.lock().unwrap());
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
