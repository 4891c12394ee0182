//! The begin of a phase: alone nothing, with several ranks the moment at which all of them begin it.
//!
//! A benchmark that runs as one of several ranks enters a gate before each phase. The gate may wait there until every rank
//! has come; the benchmark reads its clock after it. Nothing else of a run waits for other ranks: a callback that reports
//! progress returns at once.

use serde::{Deserialize, Serialize};

/// How a rank comes to the next phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum RankState {
    /// It continues with the others.
    On,
    /// Its time is up. It ends in good order, and the others do the same, each by its own clock.
    TimeUp,
    /// It failed or was stopped. The others are to end as soon as they can.
    Failed,
}

/// What the gate decided for all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry {
    /// Every rank begins the phase now.
    Go,
    /// There is no other rank, or this one finishes without waiting for others.
    Alone,
    /// Another rank failed or was stopped: end as soon as possible, and clean up.
    Stop,
}

/// What a benchmark enters before each phase.
pub trait PhaseGate: Send {
    /// Whether there are other ranks, so that [`PhaseGate::enter`] may wait.
    fn is_joined(&self) -> bool;

    /// Waits until every rank is ready for `phase`. All ranks name the same phase.
    fn enter(&mut self, phase: &str, state: RankState) -> Entry;
}

/// The gate of a run without other ranks: it never waits.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoGate;

impl PhaseGate for NoGate {
    fn is_joined(&self) -> bool {
        false
    }

    fn enter(&mut self, _phase: &str, _state: RankState) -> Entry {
        Entry::Alone
    }
}
