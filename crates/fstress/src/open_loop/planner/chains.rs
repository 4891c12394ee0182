//! Chains: which file each works on, which bytes it moves, and which request follows a reply.
//!
//! ```text
//! plan_chain ---- first request, by the schedule ----> reply --> follow: the next request, or the chain is over
//! ```
//!
//! Always holds: all decisions about a chain are made when its first request is planned, so that they depend on the seed and on
//! planned times only; a chain holds the slot of its file until it is over, and no REMOVE or RENAME takes that file meanwhile.

use files::{OpKind, Outcome};
use quanta::Instant;

use super::pending::CreateState;
use super::{NO_SERIES, Planned, Planner, Target};
use crate::objects::{DirectoryId, FileId};
use crate::workload::chains::{Chain, STEPS_MAX, Step};
use crate::workload::{ReadAccess, WriteAccess};

/// Not of a chain.
pub(super) const NO_CHAIN: u32 = u32::MAX;
/// In `Planned::extra`: a setattr that cuts the file.
pub(super) const TRUNCATES: u32 = u32::MAX - 2;

/// A chain under way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Running {
    file: FileId,
    which: u8,
    step: u8,
    /// Offset and bytes of each step that moves some.
    ranges: [(u64, u32); STEPS_MAX],
    /// From when the chain's latency counts.
    begun: Instant,
}

/// What a reply means for the chain of its request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Follow {
    /// The next request is due.
    Next(Planned),
    /// It is over.
    Over {
        /// Which of the workload's chains.
        which: usize,
        /// All its requests succeeded.
        is_complete: bool,
        /// From when its latency counts.
        begun: Instant,
    },
}

impl Planner {
    /// The workload's chains.
    pub fn chains(&self) -> &[Chain] {
        &self.workload.chains
    }

    /// Which chain a request is of.
    #[inline]
    pub fn chain_of(&self, planned: &Planned) -> Option<usize> {
        (planned.chain != NO_CHAIN).then(|| self.running[planned.chain as usize].which.into())
    }

    /// The first request of a chain.
    pub(super) fn plan_chain(&mut self, which: usize, due: Instant) -> Planned {
        let steps = self.steps_of(which);
        let is_new = steps[0] == Some(Step::Create);
        let file = if is_new { Some(self.file_to_create(due)) } else { self.target(due) };
        let Some(file) = file else {
            let mut planned = blank(OpKind::Fsstat);
            self.instead(&mut planned);
            self.digest.add(&planned);
            return planned;
        };
        let ranges = self.ranges(&steps, file, due);
        // The chain's own hold on the slot.
        self.set.begin_file_op(file);
        let running = Running { file, which: which as u8, step: 0, ranges, begun: due };
        let slot = match self.running_free.pop() {
            Some(slot) => {
                self.running[slot as usize] = running;
                slot
            }
            None => {
                self.running.push(running);
                self.running.len() as u32 - 1
            }
        };
        for at in 0..steps.iter().flatten().count() {
            let planned = self.request_of_chain(slot, at);
            self.digest.add(&planned);
        }
        self.set.begin_file_op(file);
        // For the request, and for the chain: its file is not removed between two of its requests.
        self.set.begin_file_request(file);
        self.set.begin_file_request(file);
        self.request_of_chain(slot, 0)
    }

    fn steps_of(&self, which: usize) -> [Option<Step>; STEPS_MAX] {
        let mut steps = [None; STEPS_MAX];
        let own = self.workload.chains[which].steps();
        steps.iter_mut().zip(own).for_each(|(step, own)| *step = Some(*own));
        steps
    }

    /// A file that only its chain works on until it comes of age, see `pending`.
    fn file_to_create(&mut self, due: Instant) -> FileId {
        let dir = self.pick_dir();
        let file = self.set.insert_file(dir, 0, 0);
        self.create_states.insert(file, CreateState::Asked);
        self.pending_creates.push_back((due, file));
        self.set.begin_file_op(file);
        self.touch(file, due);
        file
    }

    /// Which bytes each step moves; what it does to the size of the file counts at once.
    fn ranges(
        &mut self,
        steps: &[Option<Step>; STEPS_MAX],
        file: FileId,
        due: Instant,
    ) -> [(u64, u32); STEPS_MAX] {
        let mut ranges = [(0, 0); STEPS_MAX];
        let mut size = self.set.file_size_bytes(file);
        let mut is_empty = steps[0] == Some(Step::Create);
        let (mut read_to, mut written_to) = (None, None);
        for (step, range) in steps.iter().flatten().zip(&mut ranges) {
            match step {
                Step::Truncate => {
                    (size, is_empty) = (0, true);
                    (read_to, written_to) = (None, None);
                }
                Step::Read => {
                    let count = self.chunk_bytes(OpKind::Read);
                    let is_random = self.workload.access.read == ReadAccess::Random;
                    let offset = match read_to {
                        Some(offset) => offset,
                        None if is_random => self.aligned_offset(size, count),
                        None => 0,
                    };
                    read_to = Some(offset + u64::from(count));
                    *range = (offset, count);
                }
                Step::Write => {
                    let count = self.chunk_bytes(OpKind::Write);
                    let offset = written_to.unwrap_or_else(|| self.first_write(size, is_empty, count));
                    written_to = Some(offset + u64::from(count));
                    size = size.max(offset + u64::from(count));
                    *range = (offset, count);
                }
                _ => {}
            }
        }
        self.set.set_file_size_bytes(file, size);
        let last = |wanted: Step| steps.iter().rposition(|step| *step == Some(wanted));
        if last(Step::Write).is_some_and(|write| last(Step::Commit).is_none_or(|commit| commit < write)) {
            self.written(file, due);
        }
        ranges
    }

    fn first_write(&mut self, size: u64, is_empty: bool, count: u32) -> u64 {
        match self.workload.access.write {
            _ if is_empty => 0,
            WriteAccess::Sequential => 0,
            WriteAccess::Random => self.aligned_offset(size, count),
            WriteAccess::Append => {
                let fits = |max| size + u64::from(count) <= max;
                if self.workload.access.append_bytes_max.is_none_or(fits) { size } else { 0 }
            }
        }
    }

    fn request_of_chain(&self, slot: u32, at: usize) -> Planned {
        let running = &self.running[slot as usize];
        let step = self.workload.chains[usize::from(running.which)].steps()[at];
        let (offset, count) = running.ranges[at];
        let extra = if step == Step::Truncate { TRUNCATES } else { NO_SERIES };
        Planned {
            target: Target::File(running.file),
            extra,
            chain: slot,
            offset,
            count,
            ..blank(step.kind())
        }
    }

    /// What follows a request of a chain that ended; it was settled before. Its latency counts `from`. None for a request that
    /// is of no chain.
    #[inline]
    pub fn follow(&mut self, planned: &Planned, outcome: &Outcome<'_>, from: Instant) -> Option<Follow> {
        if planned.chain == NO_CHAIN {
            return None;
        }
        let running = &mut self.running[planned.chain as usize];
        if running.step == 0 {
            running.begun = from;
        }
        let Running { file, which, begun, .. } = *running;
        let next = usize::from(running.step) + 1;
        let is_last = next == self.workload.chains[usize::from(which)].steps().len();
        // A server may answer a create without the handle; then there is nothing to go on with.
        let is_ok = matches!(outcome, Outcome::Ok(_)) && self.set.file_handle(file).is_some();
        if is_last || !is_ok {
            self.abandon(planned);
            return Some(Follow::Over { which: which.into(), is_complete: is_last && is_ok, begun });
        }
        running.step = next as u8;
        self.set.begin_file_op(file);
        self.set.begin_file_request(file);
        Some(Follow::Next(self.request_of_chain(planned.chain, next)))
    }

    /// Ends the chain of a request that nothing follows any more.
    pub fn abandon(&mut self, planned: &Planned) {
        if planned.chain != NO_CHAIN {
            let file = self.running[planned.chain as usize].file;
            self.running_free.push(planned.chain);
            self.set.end_file_request(file);
            self.set.end_file_op(file);
        }
    }
}

/// A request without a target.
pub(super) fn blank(kind: OpKind) -> Planned {
    Planned {
        kind,
        target: Target::None,
        dir: DirectoryId::ROOT,
        extra: NO_SERIES,
        chain: NO_CHAIN,
        count: 0,
        offset: 0,
    }
}
