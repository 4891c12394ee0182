//! Which file a REMOVE or RENAME takes: one that was left alone for a while, and that no request of ours is under way on.
//!
//! ```text
//! REMOVE drawn -> a file that had to wait and is idle by now?           -> REMOVE
//!              -> else, of some draws, a quiet file that is idle        -> REMOVE
//!              -> else a busy file: no more requests to it, it waits    -> another operation in this turn
//! ```
//!
//! Always holds: no request of ours fails because another one of ours removed or renamed its file meanwhile. A storage that
//! answers the one with NFS3ERR_STALE or NFS3ERR_NOENT is then at fault, and not the generator.
//! Not here: when a removed file's slot is free again (`pending`).

use quanta::Instant;

use super::{Planned, Planner, QUIET, Target};
use crate::objects::{FileFlags, FileId};

/// Draws of a file to remove before a quiet one is given up.
const REMOVE_DRAWS: u32 = 32;
/// Draws of a file to look up before one whose RENAME is unanswered is given up.
const LOOKUP_DRAWS: u32 = 8;

impl Planner {
    pub(super) fn plan_remove(&mut self, planned: &mut Planned, due: Instant) {
        let Some(file) = self.removable(due) else { return self.instead(planned) };
        // Two holds: one until the reply, one until the schedule lets the slot go.
        self.set.begin_file_op(file);
        self.set.begin_file_op(file);
        self.set.mark_file(file, FileFlags::REMOVING, true);
        self.set.remove_file(file);
        self.deferred_removals.push_back((due, file));
        planned.target = Target::File(file);
    }

    pub(super) fn plan_rename(&mut self, planned: &mut Planned, due: Instant) {
        match self.quiet_file(due) {
            Some(file) if !self.set.is_file_busy(file) => {
                let before = (self.set.file_parent(file), self.set.file_name(file));
                let dir = self.pick_dir();
                self.set.rename_file(file, dir);
                self.renaming.insert(file, before);
                self.touch(file, due);
                planned.target = Target::File(file);
            }
            _ => self.instead(planned),
        }
    }

    /// A LOOKUP names its file, which has the one name or the other while its RENAME is under way.
    pub(super) fn plan_lookup(&mut self, planned: &mut Planned, due: Instant) {
        self.plan_on_file(planned, due);
        for _ in 0..LOOKUP_DRAWS {
            match planned.target {
                Target::File(file) if self.renaming.contains_key(&file) => {
                    self.overtaken += 1;
                    self.plan_on_file(planned, due);
                }
                _ => return,
            }
        }
        self.instead(planned);
    }

    /// A file that no request is under way on. Where there is only a busy one, it gets no more requests and is for a later turn.
    fn removable(&mut self, due: Instant) -> Option<FileId> {
        let idle = self.leaving.iter().position(|&(file, _)| !self.set.is_file_busy(file));
        if let Some((file, _)) = idle.and_then(|idle| self.leaving.remove(idle)) {
            return Some(file);
        }
        let file = self.quiet_file(due)?;
        if !self.set.is_file_busy(file) {
            return Some(file);
        }
        self.leaving.push_back((file, self.set.file_weight(file)));
        self.set.set_file_weight(file, 0);
        self.set.mark_file(file, FileFlags::REMOVING, true);
        None
    }

    /// The turn of these did not come: they are files like all others again.
    pub(super) fn keep_leaving(&mut self) {
        while let Some((file, weight)) = self.leaving.pop_front() {
            self.set.set_file_weight(file, weight);
            self.set.mark_file(file, FileFlags::REMOVING, false);
        }
    }

    /// Any file, all with equal chance, that was left alone for a while: by popularity the set would lose its popular files
    /// first. Where none is found, one that was not, rather an idle than a busy one.
    fn quiet_file(&mut self, due: Instant) -> Option<FileId> {
        let now_ms = self.ms(due);
        let mut second_best: Option<FileId> = None;
        for _ in 0..=REMOVE_DRAWS {
            let file = self.set.select_file_uniformly(&mut self.targets)?;
            // Just created, or on its way out already.
            if self.create_states.contains_key(&file) || self.is_going(file) {
                continue;
            }
            let used_ms = self.last_used_ms.get(file.slot() as usize).copied().unwrap_or(0);
            let is_quiet =
                used_ms == 0 || self.closed || now_ms.saturating_sub(used_ms) >= QUIET.as_millis() as u32;
            let is_busy = self.set.is_file_busy(file);
            if is_quiet && !is_busy {
                return Some(file);
            }
            if !is_busy || second_best.is_none_or(|before| self.set.is_file_busy(before)) {
                second_best = Some(file);
            }
        }
        second_best
    }

    pub(super) fn is_going(&self, file: FileId) -> bool {
        self.set.file_flags(file).contains(FileFlags::REMOVING)
    }
}
