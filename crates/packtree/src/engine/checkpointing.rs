//! When the journal has grown long, what changed is written as a run of names, and the journal's rooms are free again; when there
//! are many runs, neighbours are merged.
//!
//! ```text
//! checkpoint: state lock [freeze what changed] -> sync of `space` -> run, free blocks, manifest -> state lock [it is in a run]
//! merge:      runs -> one run (no lock) -> manifest -> state lock [the one in the place of the others]
//! ```

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Engine, State, locked};
use crate::checkpoint::{Checkpoint, Merge, due, merge};
use crate::error::TreeError;
use crate::names::{Manifest, SortedRun, remove};
use crate::spare::is_full;

/// A checkpoint is due when the journal has more rooms: an opening has to read them.
pub(super) const ROOMS_MIN: usize = 8;
/// Changes wait for the checkpoint when the journal has more rooms.
const ROOMS_MAX: usize = 24;
/// A checkpoint waits for merges when there are more runs: a look-up of a name may ask the filter of each.
const RUNS_MAX: usize = 24;

impl Engine {
    /// Has a checkpoint written if the journal is longer than [`ROOMS_MIN`] rooms. A failure is only logged: the journal has
    /// everything.
    pub(super) fn checkpoint_when_due(&self) {
        let used = self.read().tail.used_rooms();
        if used <= ROOMS_MIN.max(self.rooms_at_failure.load(Ordering::Relaxed)) {
            return;
        }
        let is_woken = self.workers.get().is_some_and(|workers| workers.checkpoint());
        if !is_woken || used > ROOMS_MAX {
            self.checkpoint_or_log();
            if !is_woken {
                self.merge_or_log();
            }
        }
    }

    /// Has runs merged if there are many: each opening may add one.
    pub(crate) fn merge_when_due(&self) {
        if !self.read_only && !self.workers.get().is_some_and(super::Workers::merge) {
            self.merge_or_log();
        }
    }

    /// For the threads that do it: logs a failure, and waits for one more room before the next attempt.
    pub(super) fn checkpoint_or_log(&self) {
        let used = self.read().tail.used_rooms();
        if used <= ROOMS_MIN {
            return;
        }
        self.wait_for_merges();
        let failed = self.checkpoint().inspect_err(|error| {
            tracing::warn!(place = %self.place, error = error.with_cause(), "the changed names could not be written as a run");
        });
        self.rooms_at_failure.store(if failed.is_err() { used } else { 0 }, Ordering::Relaxed);
    }

    /// Returns once there are few enough runs for one more. Changes that come faster than runs are merged wait for a checkpoint, and it
    /// waits here. Where merges are over there is nothing to wait for.
    pub(super) fn wait_for_merges(&self) {
        if self.read().table.runs().len() >= RUNS_MAX {
            self.merge_or_log();
        }
    }

    /// Merges runs until none are due. After a failure there are no merges until the tree is opened again: what is damaged
    /// would be in no run any more.
    pub(super) fn merge_or_log(&self) {
        let mut is_over = locked(&self.merging);
        while !*is_over {
            match self.merge() {
                Ok(true) => {}
                Ok(false) => return,
                // There may be room later, and nothing is lost meanwhile.
                Err(TreeError::Disk(error)) if is_full(&error) => {
                    tracing::warn!(place = %self.place, %error, "runs of names are not merged: the disk is full");
                    return;
                }
                Err(error) => {
                    tracing::warn!(place = %self.place, error = error.with_cause(), "runs of names could not be merged");
                    *is_over = true;
                }
            }
        }
    }

    /// For an opening that has written nothing yet and has synced what it found: with all changes in runs, no room of the
    /// journal holds anything else. A failure is only logged.
    pub(super) fn free_all_rooms(&self) {
        if let Err(error) = self.checkpoint() {
            tracing::warn!(place = %self.place, error = error.with_cause(), "the changed names could not be written as a run");
            return;
        }
        let mut state = self.write();
        let State { tail, space, .. } = &mut *state;
        tail.free_all_rooms(space);
    }

    /// Whether the changes, written as a run, make a room free. On a full disk they may find no place.
    pub(super) fn freed_rooms(&self) -> Result<bool, TreeError> {
        match self.checkpoint() {
            Err(TreeError::Disk(error)) if is_full(&error) => Ok(false),
            done => done.map(|()| self.read().space.free_rooms() > 0),
        }
    }

    /// Writes what changed, on a full disk into the room that the tree has in reserve.
    pub(super) fn checkpoint(&self) -> Result<(), TreeError> {
        self.with_room(|| self.write_checkpoint())?;
        self.retake_spare();
        Ok(())
    }

    /// Writes what changed. One thread does at a time.
    fn write_checkpoint(&self) -> Result<(), TreeError> {
        let mut manifest = locked(&self.manifest);
        self.check_going()?;
        self.check_lock()?;
        let (layer, mut free, runs, sequence, next_inode, inodes) = {
            let mut state = self.write();
            let State { table, tail, space } = &mut *state;
            let free = space.not_named(table.orphans_runs());
            (table.freeze(), free, table.runs().clone(), tail.last, table.next_inode, table.inodes)
        };
        // It names contents, and these must be there before it is.
        let written = self.sync_to(sequence).and_then(|()| {
            free.sort();
            let checkpoint = Checkpoint { sequence, next_inode, inodes, layer: &layer, free };
            checkpoint.write(&*self.disk, self.shape.id, &manifest, &runs)
        });
        drop(layer);
        let mut state = self.write();
        let State { table, tail, space } = &mut *state;
        match written {
            Err(error) => {
                table.thaw();
                // The disk may have a manifest that names the files: others get other numbers.
                manifest.next_number += 2;
                Err(error)
            }
            Ok((next, run)) => {
                table.written(run.into_iter().chain(runs.iter().cloned()).collect());
                tail.checkpointed(sequence, space);
                space.release(sequence);
                *manifest = next;
                Ok(())
            }
        }
    }

    /// Merges the runs that are due first, if any are. Checkpoints continue meanwhile.
    fn merge(&self) -> Result<bool, TreeError> {
        let (runs, range, number) = {
            let mut manifest = locked(&self.manifest);
            let runs = self.read().table.runs().clone();
            let Some(range) = due(&runs) else { return Ok(false) };
            manifest.next_number += 1;
            (runs, range, manifest.next_number - 1)
        };
        let (disk, id) = (&*self.disk, self.shape.id);
        let (merged, older) = (&runs[range.clone()], &runs[range.end..]);
        let is_over = || self.is_closing.load(Ordering::Relaxed);
        let one = match merge(disk, id, number, (merged, older), &is_over)? {
            Merge::Run(run) => Some(run),
            Merge::Nothing => None,
            Merge::Stopped => return Ok(false),
        };
        let mut manifest = locked(&self.manifest);
        let now = self.read().table.runs().clone();
        let newer = &now[..now.len() - runs.len() + range.start];
        let next: Vec<Arc<SortedRun>> = newer.iter().chain(&one).chain(older).cloned().collect();
        let numbers = next.iter().map(|run| (run.number, run.level)).collect();
        let next_manifest = Manifest { runs: numbers, ..manifest.clone() };
        if let Err(error) = next_manifest.write(disk, id) {
            // As in a checkpoint: nothing names it.
            if Manifest::remove_new(disk, &error) {
                let _ = remove(disk, &SortedRun::file_name(number));
            }
            return Err(error.into());
        }
        *manifest = next_manifest;
        self.write().table.merged(next);
        drop(manifest);
        for run in merged {
            remove(disk, &SortedRun::file_name(run.number))?;
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::atomic::AtomicU64;

    use files::FileSystem as _;
    use testkit::SimulatedDisk;

    use super::*;
    use crate::{PackTree, TreeOptions};

    /// Symptom: changes came faster than one thread merged, and after 10,000,000 names there were 104 files that a look-up may have to ask.
    #[test]
    fn while_a_merge_takes_long_changes_wait_and_the_runs_stay_few() {
        const NAMES: u64 = 60_000;
        let machine = SimulatedDisk::new("machine");
        let options = TreeOptions {
            segment_bytes: 128 << 10,
            journal_bytes: 8 << 10,
            cache_bytes: 96 << 10,
            ..TreeOptions::default()
        };
        PackTree::create(&machine, &options).unwrap();
        let tree = PackTree::open(Arc::new(machine), &options, "pack:test").unwrap();
        let engine = &tree.tree.engine;
        let (made, runs_max) = (AtomicU64::new(0), AtomicU64::new(0));
        let now = || (engine.read().table.runs().len(), engine.read().tail.used_rooms());
        let merging = locked(&engine.merging);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                for number in 0..NAMES {
                    drop(tree.create(Path::new(&format!("file-{number}"))).unwrap());
                    made.fetch_add(1, Ordering::Relaxed);
                    runs_max.fetch_max(now().0 as u64, Ordering::Relaxed);
                }
            });
            while !writer.is_finished() && now().0 < RUNS_MAX {
                std::thread::yield_now();
            }
            // The journal takes less than half of the names until the next checkpoint, which waits.
            (0..10_000).for_each(|_| std::thread::yield_now());
            assert!(!writer.is_finished() && made.load(Ordering::Relaxed) < NAMES, "no change waited");
            let (runs, rooms) = now();
            assert!(runs <= RUNS_MAX + 1 && rooms <= ROOMS_MAX + 1, "{runs} runs, {rooms} rooms");
            drop(merging);
        });
        assert_eq!(made.into_inner(), NAMES);
        // Two threads may write a checkpoint, and both may have found room for one.
        assert!(runs_max.into_inner() <= RUNS_MAX as u64 + 1);
        engine.merge_or_log();
        let runs = engine.read().table.runs().clone();
        assert!(runs.chunk_by(|one, other| one.level == other.level).all(|level| level.len() < 4));
        for number in (0..NAMES).step_by(97) {
            tree.stat(Path::new(&format!("file-{number}"))).unwrap();
        }
        tree.close().unwrap();
    }
}
