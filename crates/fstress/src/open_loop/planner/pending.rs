//! Births and graves: a file made by CREATE becomes a target, and a removed one's slot comes free, by the schedule and
//! not by the reply.
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
pub(super) enum Birth {
    Asked,
    Made,
    Failed,
    /// Asked so long ago that it should have been answered.
    Overdue,
}

impl Planner {
    pub(super) fn settle_create(&mut self, file: FileId, made: Option<HandleRef<'_>>) {
        let made = made.is_some_and(|handle| self.set.set_file_handle(file, handle.0));
        let Some(state) = self.birth_states.get_mut(&file) else { return };
        let overdue = *state == Birth::Overdue;
        *state = if made { Birth::Made } else { Birth::Failed };
        if overdue {
            self.come_of_age(file, self.now_planned);
        }
    }

    /// Does what the schedule has due by now: files come of age, slots come free.
    #[inline]
    pub(super) fn pass_time(&mut self, due: Instant) {
        self.now_planned = due;
        while let Some(&(asked, file)) = self.births.front() {
            let answered = self.birth_states.get(&file) != Some(&Birth::Asked);
            if if self.closed { !answered } else { due < asked + GAP } {
                break;
            }
            self.births.pop_front();
            self.come_of_age(file, due);
        }
        while let Some(&(removed, file)) = self.graves.front() {
            if !self.closed && due < removed + QUIET {
                break;
            }
            self.graves.pop_front();
            self.set.end_file_op(file);
        }
    }

    pub(super) fn come_of_age(&mut self, file: FileId, due: Instant) {
        let going = self.is_going(file);
        let Some(state) = self.birth_states.get_mut(&file) else { return };
        match *state {
            Birth::Overdue => return,
            // The file set was made smaller meanwhile.
            Birth::Made | Birth::Failed if going => {}
            Birth::Asked => {
                *state = Birth::Overdue;
                self.overtaken += 1;
                return;
            }
            Birth::Failed => self.set.remove_file(file),
            Birth::Made => {
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
        self.birth_states.remove(&file);
        self.set.end_file_op(file);
    }
}
