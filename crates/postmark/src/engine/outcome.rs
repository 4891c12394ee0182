//! What came of a run: counts, times, latencies.

use std::time::{Duration, Instant};

use measure::{CpuTimes, LatencyHistogram, StepCounts};
use serde::{Deserialize, Serialize};

use super::Phase;
use super::worker::Worker;
use crate::PostmarkError;

/// What was done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counts {
    /// Files made before the transactions.
    pub created_alone: u64,
    /// Files made by transactions.
    pub created_mixed: u64,
    /// Files read whole.
    pub read: u64,
    /// Files grown.
    pub appended: u64,
    /// Files removed after the transactions.
    pub deleted_alone: u64,
    /// Files removed by transactions.
    pub deleted_mixed: u64,
    /// File data only.
    pub bytes_read: u64,
    /// File data only.
    pub bytes_written: u64,
    /// Files that were there when the transactions ended.
    pub files_kept: u64,
    /// Sizes of these files.
    pub bytes_kept: u64,
    /// `bytes_read` as the original adds it up: in single precision, file by file, and printed so.
    pub bytes_read_single: f32,
    /// `bytes_written` as the original adds it up.
    pub bytes_written_single: f32,
}

impl Counts {
    /// Files made.
    pub fn created(&self) -> u64 {
        self.created_alone + self.created_mixed
    }

    /// Files removed.
    pub fn deleted(&self) -> u64 {
        self.deleted_alone + self.deleted_mixed
    }

    pub(super) fn note_read(&mut self, bytes: u32) {
        self.bytes_read += u64::from(bytes);
        self.bytes_read_single += bytes as f32;
    }

    pub(super) fn note_written(&mut self, bytes: u32) {
        self.bytes_written += u64::from(bytes);
        self.bytes_written_single += bytes as f32;
    }

    /// Adds what another one did.
    pub fn add(&mut self, other: &Self) {
        self.created_alone += other.created_alone;
        self.created_mixed += other.created_mixed;
        self.read += other.read;
        self.appended += other.appended;
        self.deleted_alone += other.deleted_alone;
        self.deleted_mixed += other.deleted_mixed;
        self.bytes_read += other.bytes_read;
        self.bytes_written += other.bytes_written;
        self.files_kept += other.files_kept;
        self.bytes_kept += other.bytes_kept;
        self.bytes_read_single += other.bytes_read_single;
        self.bytes_written_single += other.bytes_written_single;
    }
}

/// How long operations on one file took, from opening it to its close, or its removal.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latencies {
    /// Of creating and writing.
    pub create: LatencyHistogram,
    /// Of reading whole.
    pub read: LatencyHistogram,
    /// Of appending.
    pub append: LatencyHistogram,
    /// Of removing.
    pub delete: LatencyHistogram,
    /// How each phase went over its time.
    pub steps: Vec<(Phase, StepCounts)>,
}

impl Latencies {
    /// Adds those of another one.
    pub fn merge(&mut self, other: &Self) {
        self.create.merge(&other.create);
        self.read.merge(&other.read);
        self.append.merge(&other.append);
        self.delete.merge(&other.delete);
        for (phase, steps) in &other.steps {
            match self.steps.iter_mut().find(|(known, _)| known == phase) {
                Some((_, sum)) => sum.merge(steps.clone()),
                None => self.steps.push((*phase, steps.clone())),
            }
        }
    }
}

/// When a phase ran and what it cost this process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PhaseTimes {
    /// Which.
    pub phase: Phase,
    /// Where the phase before it ended, or it was let go.
    pub started: Instant,
    /// When the last worker was done.
    pub ended: Instant,
    /// CPU time of the whole process meanwhile, to a hundredth of a second.
    pub cpu: CpuTimes,
}

impl PhaseTimes {
    /// How long it took.
    pub fn wall(&self) -> Duration {
        self.ended.saturating_duration_since(self.started)
    }
}

/// Why the transactions ended; of several workers or ranks the last in this order stands for all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Ending {
    /// All were done.
    #[default]
    Complete,
    /// No file was left to work on. The original gives no report then.
    OutOfFiles,
    /// Someone asked to stop.
    Interrupted,
    /// The storage refused something.
    Failed,
}

/// What came of a run until its end, or until something cut it off.
#[derive(Debug)]
pub struct RunEnd {
    /// What was done.
    pub outcome: Outcome,
    /// What cut it off, or was left behind after the end.
    pub error: Option<PostmarkError>,
}

impl RunEnd {
    /// What came of a run that nothing cut off.
    ///
    /// # Errors
    /// What did.
    pub fn whole(self) -> Result<Outcome, PostmarkError> {
        self.error.map_or(Ok(self.outcome), Err)
    }
}

/// What came of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Of all workers together.
    pub counts: Counts,
    /// Transactions begun and ended, of all workers together.
    pub transactions_done: u64,
    /// The phases that ran, in order.
    pub phases: Vec<PhaseTimes>,
    /// When they were asked for.
    pub latencies: Option<Box<Latencies>>,
    /// Why the transactions ended.
    pub ending: Ending,
}

impl Outcome {
    pub(super) fn new(phases: Vec<PhaseTimes>, latencies: bool) -> Self {
        Self {
            counts: Counts::default(),
            transactions_done: 0,
            phases,
            latencies: latencies.then(Box::default),
            ending: Ending::Complete,
        }
    }

    pub(super) fn add(&mut self, worker: &Worker<'_>) {
        self.counts.add(&worker.counts);
        self.transactions_done += worker.transactions_done;
        if let (Some(all), Some(one)) = (&mut self.latencies, &worker.latencies) {
            all.merge(one);
        }
        if worker.out_of_files {
            self.ending = Ending::OutOfFiles;
        }
    }

    /// All transactions were done.
    pub fn complete(&self) -> bool {
        self.ending == Ending::Complete
    }

    /// How long a phase took; nothing for one that did not run.
    pub fn wall(&self, phase: Phase) -> Duration {
        self.phases.iter().find(|times| times.phase == phase).map(PhaseTimes::wall).unwrap_or_default()
    }

    /// From the first file made to the last one removed; making and removing subdirectories is not part of it.
    pub fn wall_of_files(&self) -> Duration {
        self.wall(Phase::Create) + self.wall(Phase::Transactions) + self.wall(Phase::Delete)
    }
}
