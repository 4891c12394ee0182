//! Pending creates and deferred removals: when a created file becomes a target, and when a removed file's slot is free
//! again, follows from the schedule and not from the reply.
//!
//! ```text
//! CREATE asked -- GAP later --> answered? made: a target, filled by a series; failed: gone
//!                               not yet: overdue, counted, and settled when the reply comes
//! ```
//!
//! Always holds: two runs of one seed have the same targets at the same planned time, whatever the storage answers when.

use files::{HandleRef, OpKind};
use quanta::Instant;

use super::{GAP, Planner, QUIET};
use crate::objects::FileId;

/// How far the creation of a file has come that is not a target yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CreateState {
    Asked,
    Made,
    Failed,
    /// Asked so long ago that it should have been answered.
    Overdue,
}

impl Planner {
    pub(super) fn settle_create(&mut self, file: FileId, made: Option<HandleRef<'_>>) {
        let made = made.is_some_and(|handle| self.set.set_file_handle(file, handle.0));
        let Some(state) = self.create_states.get_mut(&file) else { return };
        let overdue = *state == CreateState::Overdue;
        *state = if made { CreateState::Made } else { CreateState::Failed };
        if overdue {
            self.settle_pending(file, self.now_planned);
        }
    }

    /// Does what the schedule has due by now: files come of age, slots come free.
    #[inline]
    pub(super) fn pass_time(&mut self, due: Instant) {
        self.now_planned = due;
        while let Some(&(asked, file)) = self.pending_creates.front() {
            let answered = self.create_states.get(&file) != Some(&CreateState::Asked);
            if if self.closed { !answered } else { due < asked + GAP } {
                break;
            }
            self.pending_creates.pop_front();
            self.settle_pending(file, due);
        }
        while let Some(&(removed, file)) = self.deferred_removals.front() {
            if !self.closed && due < removed + QUIET {
                break;
            }
            self.deferred_removals.pop_front();
            self.set.end_file_op(file);
        }
    }

    pub(super) fn settle_pending(&mut self, file: FileId, due: Instant) {
        let going = self.is_going(file);
        let Some(state) = self.create_states.get_mut(&file) else { return };
        match *state {
            CreateState::Overdue => return,
            // The file set was made smaller meanwhile.
            CreateState::Made | CreateState::Failed if going => {}
            CreateState::Asked => {
                *state = CreateState::Overdue;
                self.overtaken += 1;
                return;
            }
            CreateState::Failed => self.set.remove_file(file),
            CreateState::Made => {
                let population = self.set.file_count();
                let weight = self.workload.popularity.file.sample_weight(population, &mut self.weights);
                self.set.set_file_weight(file, weight);
                let bytes = self.sizes_to_be.get(&file).copied().unwrap_or(0);
                if bytes > 0 && self.workload.mix.has(OpKind::Write) {
                    let slot = self.begin_series(file, bytes, due);
                    self.writes.push_back(slot);
                }
            }
        }
        self.sizes_to_be.remove(&file);
        self.create_states.remove(&file);
        self.set.end_file_op(file);
    }
}
